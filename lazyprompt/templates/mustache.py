"""Templates in Mustache.

They are compiled as Jinja is: each is read to the nodes of Jinja's own syntax tree. A section that opens a level is a
loop whose variable is what names in it are looked up in: ``v0`` are the values of the template, ``v1`` is that of the
first level. Values are written as they are and never read: nothing is escaped for HTML, and no tag in one counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from reprlib import repr as short
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from jinja2 import ChainableUndefined, nodes

from lazyprompt.errors import SlotError, TemplateError, did_you_mean
from lazyprompt.templates.bounds import MAX_TEMPLATE
from lazyprompt.templates.environment import finalize
from lazyprompt.templates.jinja import CompiledTemplate
from lazyprompt.templates.sandbox import BoundedEnvironment
from lazyprompt.templates.slots import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


MAX_DEPTH = 100
"""How deep sections may lie in one another."""

MAX_TAGS = 20_000
"""The number of tags of a template, and of the texts between them: each takes kilobytes while it is compiled."""

_ABSENT: Final[object] = ChainableUndefined()
"""The value of a name that leads nowhere."""

_Name: TypeAlias = tuple[tuple[str, ...], str, int]
"""The parts of a name, the name as written, and its line."""

# Python takes twenty loops in one another: deeper ones are in a function of their own.
_DEEP = 15
# The number of names among which the nearest is looked for.
_NAMES = 1000
# The longest index of a list, in digits.
_DIGITS = 9
_REST_OF_LINE = re.compile(r"[ \t]*+(?:\r?\n|\Z)")
# What stands first in a tag and says of which kind it is; behind some of them the tag ends with a sign of its own.
_KIND = re.compile(r"\s*+([#^/!=>&{<$]?)")
_END = {"{": "}", "=": "="}
_NAME = re.compile(r"\.|[^\s{}.]++(?:\.[^\s{}.]++)*+")
# After these a line that has nothing else on it goes too.
_ALONE = frozenset("#^/!=")
_REFUSED = {
    ">": "partials ({{>name}}) are not known here; write their text in this template",
    "<": "inheritance ({{<parent}}) is not known here; write the whole template in one",
    "$": "blocks of inheritance ({{$name}}) are not known here; use a section, {{#name}}…{{/name}}",
}
_AS_TEXT = "choose other delimiters before them, as in {{=<% %>=}}"


@dataclass(slots=True)
class _OpenSection:
    """A section that is being read.

    Attributes:
        tag: Its tag, as written.
        name: Its name, which the tag at its end repeats.
        line: The line that it begins in.
        node: Its loop or condition.
        depth: The number of sections around it.
    """

    tag: str
    name: str
    line: int
    node: nodes.For | nodes.If
    depth: int


class _Builder:
    """Builds the syntax tree of a template, in the order of its text."""

    def __init__(self) -> None:
        self.line = 1
        self.literals: list[str] = []
        # The names that are looked up in the values of the template, in order of appearance.
        self.slots: dict[str, None] = {}
        self.sections: list[_OpenSection] = []
        self.body: list[nodes.Node] = []
        self._tags = self._depth = 0

    def fault(self, what: str, line: int = 0) -> TemplateError:
        """Return the error for a mistake in the template."""
        return TemplateError(f"Mustache, line {line or self.line}: {what}")

    @property
    def level(self) -> int:
        """The number of levels around the place that is read now."""
        return sum(isinstance(section.node, nodes.For) for section in self.sections)

    def variables(self) -> list[nodes.Expr]:
        """Return the variables of all levels, the innermost first."""
        return [nodes.Name(f"v{level}", "load") for level in range(self.level, -1, -1)]

    def loop(self, items: nodes.Expr) -> nodes.For:
        """Return a loop over the values of a level that it opens."""
        return nodes.For(nodes.Name(f"v{self.level + 1}", "store"), items, [], [], None, False)  # noqa: FBT003 - Jinja's form

    def own(self, text: str) -> None:
        """Add own text."""
        if text:
            self.literals.append(text)
            self.put(nodes.Output([nodes.TemplateData(text)]))

    def put(self, node: nodes.Node) -> None:
        """Add a node."""
        self._tags += 1
        if self._tags > MAX_TAGS:
            raise self.fault(f"the template has more than {MAX_TAGS} tags and texts; split it, or loop over values")
        (self.sections[-1].node.body if self.sections else self.body).append(node)

    def show(self, node: nodes.Expr) -> None:
        """Add a value."""
        self.put(nodes.Output([node]))

    def open(self, tag: str, name: str, node: nodes.For | nodes.If) -> None:
        """Begin a section."""
        depth = self._depth
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self.fault(f"sections lie in one another more than {MAX_DEPTH} deep; take some of them out")
        self.put(node if self._depth % _DEEP else nodes.Block(f"deep{self._tags}", [node], True, False))  # noqa: FBT003 - Jinja's form
        self.sections.append(_OpenSection(tag, name, self.line, node, depth))

    def close(self, name: str) -> None:
        """End the section that was opened last."""
        if not self.sections:
            raise self.fault(f"{{{{/{_brief(name)}}}}} closes nothing: no section is open here; take it out")
        section = self.sections.pop()
        if section.name != name:
            raise self.fault(
                f"{{{{/{_brief(name)}}}}} was found where {{{{{_brief(section.tag)}}}}} of line {section.line} "
                f"is still open; write {{{{/{_brief(section.name)}}}}} first"
            )
        self._depth = section.depth

    def unclosed(self, close: str) -> TemplateError:
        """Return the error for a tag that does not end."""
        what = f"a tag is opened and never closed; write {close} behind it, or, if its braces are meant as text, "
        return self.fault(what + _AS_TEXT)

    def done(self) -> nodes.Template:
        """Return the tree of the whole template."""
        if self.sections:
            section = self.sections[-1]
            raise self.fault(
                f"{{{{{_brief(section.tag)}}}}} is never closed; write {{{{/{_brief(section.name)}}}}} where it ends",
                section.line,
            )
        return nodes.Template(self.body)


def _brief(name: str) -> str:
    """Return a piece of the template for a message, not too long."""
    return short(name)[1:-1]


def _lookup(function: str, levels: list[nodes.Expr], name: tuple[object, ...]) -> nodes.Filter:
    """Return the call of a function of the environment, whose name no template can write."""
    return nodes.Filter(nodes.Tuple(levels, "load"), f" {function}", [nodes.Const(name)], [], None, None)


def _line_of(text: str, before: int, start: int, end: int) -> tuple[int, int] | None:
    """Return the whole line of a tag that stands alone in it.

    Args:
        text: The template.
        before: Where the tag before ended, or 0.
        start: Where the tag starts.
        end: Where it ends.

    Returns:
        Where the line begins and where the next one does; None if the tag is not alone.
    """
    head = text[before:start].rstrip(" \t")
    rest = _REST_OF_LINE.match(text, end)
    if rest is None or not (head.endswith("\n") or (not head and before == 0)):
        return None
    return before + len(head), rest.end()


class MustacheTemplate(CompiledTemplate):
    """A template in Mustache's syntax, without partials, lambdas and inheritance; nothing is escaped for HTML."""

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
        """Render the template; see :meth:`CompiledTemplate.fill`.

        Raises:
            TemplateError: A value is a function, or the template asks for more than the bounds give.
        """
        for name, value in values.items():
            if callable(value):
                raise TemplateError(
                    f"{self.syntax}: {short(name)} is a function (a lambda), which a template cannot call; call it and "
                    "give what it returns"
                )
        return super().fill({"v0": {**values}})


def _read(build: _Builder, text: str) -> None:
    """Read a template."""
    opening, closing = "{{", "}}"
    # From where own text is still to be added, and where the last tag ended.
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
    """Return the delimiters that a tag chooses."""
    match content.split():
        case [opening, closing] if "=" not in content:
            return opening, closing
        case _:
            raise build.fault(f"{short(content)} are no delimiters; write two, with a space between: {{{{=<% %>=}}}}")


def _tag(build: _Builder, sign: str, name: str) -> None:
    """Read a tag with a name."""
    if sign in _REFUSED:
        raise build.fault(_REFUSED[sign])
    if not _NAME.fullmatch(name):
        raise build.fault(
            f"{short(name)} is no name: a name has no spaces and no braces, and dots only between its parts; "
            f"where braces are meant as text, {_AS_TEXT}"
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
    """Return the environment that all templates share; nothing ever changes it."""

    def show(values: Sequence[object], name: _Name) -> Value:
        parts, text, line = name
        found = _find(values, parts)
        if found is _ABSENT and not lenient:
            raise SlotError(
                f"Mustache, line {line}: there is no value for {short(text)}{_nearest(values, parts)}; give one, or "
                "put the tag in a section that asks for it"
            )
        # Text was checked when it was coerced.
        return Value(found, text) if type(found) is str else _written(found, text)

    made = BoundedEnvironment()
    made.filters.update({" show": show, " each": _each, " none": _none})
    return made


def _find(values: Sequence[object], parts: Sequence[str]) -> object:
    """Look up a name: the innermost level that has its first part counts.

    Args:
        values: The values that may have its first part, the innermost first.
        parts: Its parts; none for the innermost value itself.

    Returns:
        The value, or :data:`_ABSENT`.
    """
    if not parts:
        return values[0]
    first, *others = parts
    found = _ABSENT
    for value in values:
        if isinstance(value, dict) and first in value:
            found = cast("dict[str, object]", value)[first]
            break
    for part in others:
        found = _member(found, part)
    return found


def _each(values: Sequence[object], parts: Sequence[str]) -> Sequence[object]:
    """Return the values that a section is written for: the items of a list, or any other value there is."""
    value = _find(values, parts)
    return cast("list[object]", value) if isinstance(value, list) else () if _is_nothing(value) else (value,)


def _none(values: Sequence[object], parts: Sequence[str]) -> bool:
    return _is_nothing(_find(values, parts))


def _only_shown(
    tree: nodes.Template, environment: BoundedEnvironment
) -> tuple[list[str], list[Callable[[Mapping[str, Any]], Value]]] | None:
    """Return the own text and the values of a template that only shows values by their names; None for any other."""
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
    """Return a value as text that knows the name that it is from; None is empty."""
    return finalize(_ABSENT if value is None else value, source)


def _member(value: object, key: str) -> object:
    """Return the value that a dict or list has under a key, or :data:`_ABSENT`; the keys of a list are its indexes."""
    if isinstance(value, dict):
        return cast("dict[str, object]", value).get(key, _ABSENT)
    if isinstance(value, list) and key.isascii() and key.isdigit() and len(key) <= _DIGITS:
        items = cast("list[object]", value)
        return items[int(key)] if int(key) < len(items) else _ABSENT
    return _ABSENT


def _is_nothing(value: object) -> bool:
    """Return True if a section leaves a value out; it does not for 0 and the empty dict."""
    return value is _ABSENT or value is None or value is False or value in ("", [])


def _nearest(around: Sequence[object], parts: Sequence[str]) -> str:
    """Return the name that the first part that leads nowhere may have meant, as the end of a message."""
    for part in parts:
        found = [inner for value in around if (inner := _member(value, part)) is not _ABSENT]
        if not found:
            dicts = [cast("dict[str, object]", value) for value in around if isinstance(value, dict)]
            return did_you_mean(part, islice(chain.from_iterable(dicts), _NAMES))
        around = found[:1]
    return ""
