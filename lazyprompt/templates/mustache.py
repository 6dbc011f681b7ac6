"""Templates in Mustache syntax.

A template is parsed to Jinja's syntax tree and compiled by Jinja. A section such as ``{{#a}}`` becomes a loop. The
variables ``v0``, ``v1`` and so on form Mustache's context stack: ``v0`` contains the template's values, and ``v1``
contains the value of the outermost section. Values are rendered unchanged, without HTML escaping, and tags in values
are literal text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from reprlib import repr as short
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from jinja2 import ChainableUndefined, nodes

from lazyprompt._base.json import is_dict, is_list
from lazyprompt.errors import SlotError, TemplateError, did_you_mean
from lazyprompt.templates.bounds import MAX_TEMPLATE
from lazyprompt.templates.environment import finalize
from lazyprompt.templates.jinja import CompiledTemplate
from lazyprompt.templates.sandbox import BoundedEnvironment
from lazyprompt.templates.slots import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


MAX_DEPTH = 100
"""The maximum nesting depth of sections."""

MAX_TAGS = 20_000
"""The maximum number of tags and text segments in a template. Compiling a tag or a segment takes kilobytes."""

_ABSENT: Final[object] = ChainableUndefined()
"""The value that represents an undefined name."""

_Name: TypeAlias = tuple[tuple[str, ...], str, int]
"""The parts of a dotted name, the name's source text, and its line number."""

# Python limits nested loops to twenty, so every fifteenth level becomes a separate function.
_DEEP = 15
# The maximum number of names to compare for a "did you mean" suggestion.
_NAMES = 1000
_DIGITS = 9
_REST_OF_LINE = re.compile(r"[ \t]*+(?:\r?\n|\Z)")
# Matches the character after the opening delimiter, which determines the tag type.
_KIND = re.compile(r"\s*+([#^/!=>&{<$]?)")
# Maps each tag type to the character that must precede the closing delimiter.
_END = {"{": "}", "=": "="}
_NAME = re.compile(r"\.|[^\s{}.]++(?>(?:\.[^\s{}.]++)*)")
# The tag types whose entire line is removed if the line contains only the tag.
_ALONE = frozenset("#^/!=")
_REFUSED = {
    ">": "partials ({{>name}}) are not supported; write their text in this template",
    "<": "inheritance ({{<parent}}) is not supported; write one complete template",
    "$": "blocks ({{$name}}) are not supported; use a section, {{#name}}…{{/name}}",
}
_AS_TEXT = "set other delimiters before them, such as {{=<% %>=}}"


@dataclass(slots=True)
class _OpenSection:
    """A section whose closing tag has not been parsed yet.

    Attributes:
        tag: The source of the opening tag.
        name: The name of the section, which the closing tag repeats.
        line: The line number of the opening tag.
        node: The loop or condition that the section is compiled to.
        depth: The number of enclosing sections.
    """

    tag: str
    name: str
    line: int
    node: nodes.For | nodes.If
    depth: int


class _Builder:
    """A builder that adds nodes to a template's syntax tree in source order."""

    def __init__(self) -> None:
        self.line = 1
        self.literals: list[str] = []
        # The names of the template's values, in order of first appearance.
        self.slots: dict[str, None] = {}
        self.sections: list[_OpenSection] = []
        self.body: list[nodes.Node] = []
        self._tags = self._depth = 0

    def fault(self, what: str, line: int = 0) -> TemplateError:
        """Return an error that includes the current or the given line number."""
        return TemplateError(f"Mustache, line {line or self.line}: {what}")

    @property
    def level(self) -> int:
        """The number of enclosing loops at the current position."""
        return sum(isinstance(section.node, nodes.For) for section in self.sections)

    def variables(self) -> list[nodes.Expr]:
        """Return the variables of the context stack, innermost context first."""
        return [nodes.Name(f"v{level}", "load") for level in range(self.level, -1, -1)]

    def loop(self, items: nodes.Expr) -> nodes.For:
        """Return a loop node whose variable is the context inside a new section."""
        return nodes.For(nodes.Name(f"v{self.level + 1}", "store"), items, [], [], None, False)  # noqa: FBT003 - Jinja's form

    def own(self, text: str) -> None:
        if text:
            self.literals.append(text)
            self.put(nodes.Output([nodes.TemplateData(text)]))

    def put(self, node: nodes.Node) -> None:
        """Add a node to the innermost open section."""
        self._tags += 1
        if self._tags > MAX_TAGS:
            raise self.fault(f"the template has more than {MAX_TAGS} tags and text segments; split it, or use loops")
        (self.sections[-1].node.body if self.sections else self.body).append(node)

    def show(self, node: nodes.Expr) -> None:
        self.put(nodes.Output([node]))

    def open(self, tag: str, name: str, node: nodes.For | nodes.If) -> None:
        """Open a section, to which subsequent nodes are added."""
        depth = self._depth
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self.fault(f"sections are nested more than {MAX_DEPTH} levels deep; remove some sections")
        self.put(node if self._depth % _DEEP else nodes.Block(f"deep{self._tags}", [node], True, False))  # noqa: FBT003 - Jinja's form
        self.sections.append(_OpenSection(tag, name, self.line, node, depth))

    def close(self, name: str) -> None:
        """Close the innermost section; the closing tag must repeat its name."""
        if not self.sections:
            raise self.fault(f"{{{{/{_brief(name)}}}}} has no matching opening tag; remove it")
        section = self.sections.pop()
        if section.name != name:
            raise self.fault(
                f"{{{{/{_brief(name)}}}}} does not match the open tag {{{{{_brief(section.tag)}}}}} on line "
                f"{section.line}; write {{{{/{_brief(section.name)}}}}} first"
            )
        self._depth = section.depth

    def unclosed(self, close: str) -> TemplateError:
        """Return the error for a tag without a closing delimiter."""
        what = f"a tag is never closed; write {close} after it or, if its braces are literal text, "
        return self.fault(what + _AS_TEXT)

    def done(self) -> nodes.Template:
        if self.sections:
            section = self.sections[-1]
            raise self.fault(
                f"{{{{{_brief(section.tag)}}}}} is never closed; add {{{{/{_brief(section.name)}}}}} where it ends",
                section.line,
            )
        return nodes.Template(self.body)


def _brief(name: str) -> str:
    """Shorten a piece of the template for an error message."""
    return short(name)[1:-1]


def _lookup(function: str, levels: list[nodes.Expr], name: tuple[object, ...]) -> nodes.Filter:
    """Return a call to an internal function; its name contains a space, so that no template can call it."""
    return nodes.Filter(nodes.Tuple(levels, "load"), f" {function}", [nodes.Const(name)], [], None, None)


def _line_of(text: str, before: int, start: int, end: int) -> tuple[int, int] | None:
    """Find the start and the end of a line that contains only one tag.

    Args:
        text: The source of the template.
        before: The end index of the preceding tag, or 0.
        start: The start index of the tag.
        end: The end index of the tag.

    Returns:
        The start indices of the tag's line and of the next line, or None if the line contains more than the tag and
        white space.
    """
    head = text[before:start].rstrip(" \t")
    rest = _REST_OF_LINE.match(text, end)
    if rest is None or not (head.endswith("\n") or (not head and before == 0)):
        return None
    return before + len(head), rest.end()


class MustacheTemplate(CompiledTemplate):
    """A template in Mustache syntax, without partials, lambdas, inheritance or HTML escaping."""

    __slots__ = ()
    syntax = "Mustache"

    def _parse(self) -> None:
        if len(self.text) > MAX_TEMPLATE:
            raise TemplateError(f"{self.syntax}: the template is longer than {MAX_TEMPLATE} characters")
        build = _Builder()
        _read(build, self.text)
        tree = build.done()
        self.literals, self.slots = tuple(build.literals), tuple(build.slots)
        environment = _environment(lenient=self._lenient)
        if (shown := _only_shown(tree, environment)) is not None:
            self._only_show(*shown)
        else:
            tree.set_lineno(1)
            self._compile(tree, environment)

    def fill(self, values: Mapping[str, object]) -> Sequence[str]:
        """Render the template (see :meth:`CompiledTemplate.fill`).

        Raises:
            TemplateError: A value is a function, or the rendering exceeds a limit.
        """
        for name, value in values.items():
            if callable(value):
                raise TemplateError(
                    f"{self.syntax}: the value of {short(name)} is a function, and lambdas are not supported; call "
                    "the function and pass its result"
                )
        return super().fill({"v0": {**values}})


def _read(build: _Builder, text: str) -> None:
    opening, closing = "{{", "}}"
    # ``at`` is the start of the template text that has not been compiled yet, and ``end`` is the end of the last tag.
    at = end = 0
    while (start := text.find(opening, end)) >= 0:
        build.line += text.count("\n", end, start)
        kind = _KIND.match(text, start + len(opening))
        sign = kind[1] if kind else ""
        inside = kind.end() if kind else start + len(opening)
        close = _END.get(sign, "") + closing
        stop = text.find(close, inside)
        if stop < 0:
            raise build.unclosed(close)
        last, end = end, stop + len(close)
        alone = _line_of(text, last, start, end) if sign in _ALONE else None
        build.own(text[at : alone[0] if alone else start])
        at = alone[1] if alone else end
        content = text[inside:stop].strip()
        if sign == "=":
            opening, closing = _delimiters(build, content)
        elif sign != "!":
            _tag(build, sign, content)
        build.line += text.count("\n", start, end)
    build.own(text[at:])


def _delimiters(build: _Builder, content: str) -> tuple[str, str]:
    """Parse the new delimiters in a tag such as ``{{=<% %>=}}``."""
    match content.split():
        case [opening, closing] if "=" not in content:
            return opening, closing
        case _:
            raise build.fault(
                f"invalid delimiters {short(content)}; expected two delimiters separated by a space, as in "
                "{{=<% %>=}}"
            )


def _tag(build: _Builder, sign: str, name: str) -> None:
    """Parse a tag that contains a name."""
    if sign in _REFUSED:
        raise build.fault(_REFUSED[sign])
    if not _NAME.fullmatch(name):
        raise build.fault(
            f"invalid name {short(name)}; a name can't contain spaces or braces, and dots are allowed only between its "
            f"parts; if the braces are literal text, {_AS_TEXT}"
        )
    if sign == "/":
        build.close(name)
        return
    parts = () if name == "." else tuple(name.split("."))
    if parts and not build.level:
        build.slots.setdefault(parts[0])
    levels = build.variables()
    if sign == "#":
        build.open(f"#{name}", name, build.loop(_lookup("each", levels, parts)))
    elif sign == "^":
        build.open(f"^{name}", name, nodes.If(_lookup("none", levels, parts), [], [], []))
    else:
        build.show(_lookup("show", levels, (parts, name, build.line)))


@lru_cache(maxsize=2)
def _environment(*, lenient: bool) -> BoundedEnvironment:
    """Return a shared environment, which must not be modified."""

    def show(values: Sequence[object], name: _Name) -> Value:
        parts, text, line = name
        found = _find(values, parts)
        if found is _ABSENT and not lenient:
            raise SlotError(
                f"Mustache, line {line}: no value for {short(text)}{_nearest(values, parts)}; pass a value, or "
                "wrap the tag in a section of the same name"
            )
        return Value(found, text) if type(found) is str else _written(found, text)

    made = BoundedEnvironment()
    made.filters.update({" show": show, " each": _each, " none": _none})
    return made


def _find(values: Sequence[object], parts: Sequence[str]) -> object:
    """Look up a dotted name in the innermost context that contains the name's first part.

    Args:
        values: The context stack, innermost context first.
        parts: The parts of the name; empty for the innermost context itself.

    Returns:
        The value, or :data:`_ABSENT` if the name is undefined.
    """
    if not parts:
        return values[0]
    first, *others = parts
    found = _ABSENT
    for value in values:
        if is_dict(value) and first in value:
            found = value[first]
            break
    for part in others:
        found = _member(found, part)
    return found


def _each(values: Sequence[object], parts: Sequence[str]) -> Sequence[object]:
    """Return the values for which a section is rendered: a list's items, or the value itself if it is not empty."""
    value = _find(values, parts)
    return value if is_list(value) else () if _is_nothing(value) else (value,)


def _none(values: Sequence[object], parts: Sequence[str]) -> bool:
    return _is_nothing(_find(values, parts))


def _only_shown(
    tree: nodes.Template, environment: BoundedEnvironment
) -> tuple[list[str], list[Callable[[Mapping[str, Any]], Value]]] | None:
    """Return the literal texts and lookups of a template that contains only names, or None for any other template."""
    show = cast("Callable[..., Value]", environment.filters[" show"])

    def shown(name: _Name) -> Callable[[Mapping[str, Any]], Value]:
        return lambda values: show((values["v0"],), name)

    literals = [""]
    shows: list[Callable[[Mapping[str, Any]], Value]] = []
    for output in tree.body:
        match output:
            case nodes.Output(nodes=[nodes.TemplateData(data=text)]):
                literals[-1] += text
            case nodes.Output(
                nodes=[nodes.Filter(name=" show", node=nodes.Tuple(items=[_]), args=[nodes.Const(value=name)])]
            ):
                shows.append(shown(name))
                literals.append("")
            case _:
                return None
    return literals, shows


def _written(value: object, source: str) -> Value:
    """Convert a variable's value to text that records the variable's name. None becomes empty text."""
    return finalize(_ABSENT if value is None else value, source)


def _member(value: object, key: str) -> object:
    """Return an item of a dict or list, or :data:`_ABSENT`. The keys of a list are its indices."""
    if is_dict(value):
        return value.get(key, _ABSENT)
    if is_list(value) and key.isascii() and key.isdigit() and len(key) <= _DIGITS:
        return value[int(key)] if int(key) < len(value) else _ABSENT
    return _ABSENT


def _is_nothing(value: object) -> bool:
    """Return True if a section is not rendered for a value. Sections are rendered for 0 and an empty dict."""
    return value is _ABSENT or value is None or value is False or value in ("", [])


def _nearest(around: Sequence[object], parts: Sequence[str]) -> str:
    """Return a "did you mean" suggestion for the first undefined part of a name."""
    for part in parts:
        found = [inner for value in around if (inner := _member(value, part)) is not _ABSENT]
        if not found:
            dicts = [value for value in around if is_dict(value)]
            return did_you_mean(part, islice(chain.from_iterable(dicts), _NAMES))
        around = found[:1]
    return ""
