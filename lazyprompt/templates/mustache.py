"""Templates in tags, ``{{name}}``, and Mustache as one syntax of them.

They are compiled as Jinja is: each is read to the nodes of Jinja's own syntax tree. A section that opens a level is a
loop whose variable is what names in it are looked up in: ``v0`` are the values of the template, ``v1`` is that of the
first level. Values are written as they are and never read: nothing is escaped for HTML, and no tag in one counts.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from reprlib import repr as short
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, cast

from jinja2 import ChainableUndefined, nodes

from lazyprompt.errors import SlotError, TemplateError, did_you_mean
from lazyprompt.templates.bounds import MAX_TEMPLATE
from lazyprompt.templates.environment import finalize
from lazyprompt.templates.jinja import CompiledTemplate
from lazyprompt.templates.sandbox import BoundedEnvironment
from lazyprompt.templates.slots import Opaque, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


MAX_DEPTH = 100
"""How deep sections may lie in one another."""

MAX_TAGS = 20_000
"""The number of tags of a template, and of the texts between them: each takes kilobytes while it is compiled."""

ABSENT: Final[object] = ChainableUndefined()
"""The value of a name that leads nowhere."""

Name: TypeAlias = tuple[tuple[str, ...], str, int]
"""The parts of a name, the name as written, and its line."""

# Python takes twenty loops in one another: deeper ones are in a function of their own.
_DEEP = 15
# The number of names among which the nearest is looked for.
_NAMES = 1000
# The longest index of a list, in digits.
_DIGITS = 9
_REST_OF_LINE = re.compile(r"[ \t]*+(?:\r?\n|\Z)")


@dataclass(slots=True)
class Section:
    """A section that is being read.

    Attributes:
        tag: Its tag, as written.
        name: Its name, which the tag at its end repeats.
        line: The line that it begins in.
        node: The loop or condition that is read now; after an ``else``, the one that this belongs to.
        body: The nodes that are read now: those of ``node``, or what is written instead.
        depth: The number of sections around it.
        is_else: True after an ``else`` without a condition.
    """

    tag: str
    name: str
    line: int
    node: nodes.For | nodes.If
    body: list[nodes.Node]
    depth: int
    is_else: bool = False

    @property
    def level(self) -> int:
        """1 if names are looked up in a level of its own, else 0."""
        return isinstance(self.node, nodes.For) and not self.is_else

    def begin_else(self) -> None:
        """Begin what is written instead."""
        self.body, self.is_else = self.node.else_, True


class Builder:
    """Builds the syntax tree of a template, in the order of its text.

    Args:
        template: The template.
    """

    def __init__(self, template: TagTemplate) -> None:
        self.syntax, self.text = template.syntax, template.text
        self.as_text = template.as_text
        self.line = 1
        self.literals: list[str] = []
        # Names in order of appearance: those looked up in the values of the template, those that a section may have.
        self.slots: dict[str, None] = {}
        self.inner: dict[str, None] = {}
        self.marks: list[tuple[int, Opaque]] = []
        self.sections: list[Section] = []
        self.body: list[nodes.Node] = []
        self._tags = self._depth = 0

    def fault(self, what: str, line: int = 0) -> TemplateError:
        """Return the error for a mistake in the template."""
        return TemplateError(f"{self.syntax}, line {line or self.line}: {what}")

    @property
    def level(self) -> int:
        """The number of levels around the place that is read now."""
        return sum(section.level for section in self.sections)

    def variables(self) -> list[nodes.Expr]:
        """Return the variables of all levels, the innermost first."""
        return [nodes.Name(f"v{level}", "load") for level in range(self.level, -1, -1)]

    def loop(self, items: nodes.Expr, *, has_names: bool = False) -> nodes.For:
        """Return a loop that opens a level.

        Args:
            items: The values of the level; or pairs, with the names that the loop knows in each round.
            has_names: True for pairs.
        """
        item, known = (nodes.Name(f"{kind}{self.level + 1}", "store") for kind in "vl")
        target = nodes.Tuple([item, known], "store") if has_names else item
        return nodes.For(target, items, [], [], None, False)  # noqa: FBT003 - Jinja's form

    def loops(self) -> list[nodes.Expr]:
        """Return the variables of the loops that know names, the innermost first."""
        loops = [cast("nodes.For", section.node) for section in self.sections if section.level]
        known = [f"l{level}" for level, loop in enumerate(loops, 1) if isinstance(loop.target, nodes.Tuple)]
        return [nodes.Name(name, "load") for name in reversed(known)]

    def own(self, text: str) -> None:
        """Add own text."""
        if text:
            self.literals.append(text)
            self.put(nodes.Output([nodes.TemplateData(text)]))

    def put(self, node: nodes.Node) -> None:
        """Add a node."""
        self._count()
        (self.sections[-1].body if self.sections else self.body).append(node)

    def _count(self) -> None:
        self._tags += 1
        if self._tags > MAX_TAGS:
            raise self.fault(f"the template has more than {MAX_TAGS} tags and texts; split it, or loop over values")

    def show(self, node: nodes.Expr) -> None:
        """Add a value."""
        self.put(nodes.Output([node]))

    def nest(self, node: nodes.Node) -> nodes.Node:
        """Return a loop or condition that will lie in what is around it, bounded in depth."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self.fault(f"sections lie in one another more than {MAX_DEPTH} deep; take some of them out")
        return node if self._depth % _DEEP else nodes.Block(f"deep{self._tags}", [node], True, False)  # noqa: FBT003 - Jinja's form

    def open(self, tag: str, name: str, node: nodes.For | nodes.If) -> None:
        """Begin a section."""
        depth = self._depth
        self.put(self.nest(node))
        self.sections.append(Section(tag, name, self.line, node, node.body, depth))

    def branch(self, node: nodes.For | nodes.If) -> None:
        """Begin another loop or condition, which is tried if the one before gives nothing."""
        section = self.sections[-1]
        section.is_else, section.body = False, node.body
        self._count()
        if isinstance(node, nodes.If) and isinstance(section.node, nodes.If):
            section.node.elif_.append(node)
        else:
            section.node.else_.append(self.nest(node))
            section.node = node

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
        return self.fault(
            f"a tag is opened and never closed; write {close} behind it, or, if its braces are meant as text, "
            + self.as_text
        )

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


def runtime(name: str, *arguments: object) -> nodes.Filter:
    """Return a call of a function that the environment of a syntax has.

    Args:
        name: Its name.
        arguments: Its arguments: expressions, lists of them, or constants.
    """
    first, *others = (
        given
        if isinstance(given, nodes.Expr)
        else nodes.Tuple(cast("list[nodes.Expr]", given), "load")
        if isinstance(given, list)
        else nodes.Const(given)
        for given in arguments
    )
    # A name that no template can write.
    return nodes.Filter(first, f" {name}", others, [], None, None)


def line_of(text: str, before: int, start: int, end: int) -> tuple[int, int] | None:
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


class TagTemplate(CompiledTemplate):
    """A template in tags.

    Attributes:
        inner: Names that a section's value may have or else the top level.
        marks: The marks that it leaves, which are no values, and their lines.
    """

    __slots__ = ("inner", "marks")
    as_text: ClassVar[str]
    """The way to write braces that are text."""
    advice: ClassVar[str]
    """The end of the error for a value that there is not."""

    def _parse(self) -> None:
        if len(self.text) > MAX_TEMPLATE:
            raise TemplateError(f"{self.syntax}: the template is longer than {MAX_TEMPLATE} characters")
        build = Builder(self)
        self.read(build)
        tree = build.done()
        self.literals, self.slots = tuple(build.literals), tuple(build.slots)
        self.inner = tuple(name for name in build.inner if name not in build.slots)
        self.marks: tuple[tuple[int, Opaque], ...] = tuple(build.marks)
        environment = _environment(type(self), lenient=self._lenient)
        if (shown := _only_shown(tree, environment)) is not None:
            self._only_show(*shown)
        else:
            tree.set_lineno(1)
            self._compile(tree, environment)

    @staticmethod
    @abstractmethod
    def read(build: Builder) -> None:
        """Read the template."""

    @staticmethod
    @abstractmethod
    def find(values: Sequence[object], parts: Sequence[str]) -> object:
        """Look up a name.

        Args:
            values: The values that may have its first part, the innermost first.
            parts: Its parts; none for the innermost value itself.

        Returns:
            The value, or :data:`ABSENT`.
        """

    @classmethod
    def functions(cls, *, lenient: bool) -> dict[str, Callable[..., object]]:
        """Return the functions that compiled templates call, by their names."""

        def need(values: Sequence[object], name: Name, around: Sequence[object] | None = None) -> object:
            parts, text, line = name
            found = cls.find(values, parts)
            if found is ABSENT and not lenient:
                near = _nearest(values if around is None else around, parts)
                where = f"{cls.syntax}, line {line}"
                raise SlotError(f"{where}: there is no value for {short(text)}{near}; {cls.advice}")
            return found

        def show(values: Sequence[object], name: Name, around: Sequence[object] | None = None) -> Value:
            found = need(values, name, around)
            # Text was checked when it was coerced.
            return Value(found, name[1]) if type(found) is str else written(found, name[1])

        return {"find": cls.find, "need": need, "show": show}

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


@lru_cache(maxsize=4)
def _environment(syntax: type[TagTemplate], *, lenient: bool) -> BoundedEnvironment:
    """Return the environment that all templates of a kind share; nothing ever changes it."""
    made = BoundedEnvironment()
    functions = {f" {name}": function for name, function in syntax.functions(lenient=lenient).items()}
    cast("dict[str, Callable[..., object]]", made.filters).update(functions)
    return made


def _only_shown(
    tree: nodes.Template, environment: BoundedEnvironment
) -> tuple[list[str], list[Callable[[Mapping[str, Any]], Value]]] | None:
    """Return the own text and the values of a template that only shows values by their names; None for any other."""
    show = cast("Callable[..., Value]", environment.filters[" show"])

    def shown(name: Name) -> Callable[[Mapping[str, Any]], Value]:
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


def written(value: object, source: str) -> Value:
    """Return a value as text that knows the name that it is from; None is empty."""
    return finalize(ABSENT if value is None else value, source)


def member(value: object, key: str) -> object:
    """Return the value that a dict or list has under a key, or :data:`ABSENT`; the keys of a list are its indexes."""
    if isinstance(value, dict):
        return cast("dict[str, object]", value).get(key, ABSENT)
    if isinstance(value, list) and key.isascii() and key.isdigit() and len(key) <= _DIGITS:
        items = cast("list[object]", value)
        return items[int(key)] if int(key) < len(items) else ABSENT
    return ABSENT


def is_nothing(value: object) -> bool:
    """Return True if a section leaves a value out; it does not for 0 and the empty dict."""
    return value is ABSENT or value is None or value is False or value in ("", [])


def _nearest(around: Sequence[object], parts: Sequence[str]) -> str:
    """Return the name that the first part that leads nowhere may have meant, as the end of a message."""
    for part in parts:
        found = [inner for value in around if (inner := member(value, part)) is not ABSENT]
        if not found:
            dicts = [cast("dict[str, object]", value) for value in around if isinstance(value, dict)]
            return did_you_mean(part, islice(chain.from_iterable(dicts), _NAMES))
        around = found[:1]
    return ""


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


class MustacheTemplate(TagTemplate):
    """A template in Mustache's syntax, without partials, lambdas and inheritance; nothing is escaped for HTML."""

    __slots__ = ()
    syntax = "Mustache"
    as_text = "choose other delimiters before them, as in {{=<% %>=}}"
    advice = "give one, or put the tag in a section that asks for it"

    @staticmethod
    def read(build: Builder) -> None:
        """Read the template."""
        text = build.text
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
            alone = line_of(text, last, start, end) if sign in _ALONE else None
            build.own(text[at : alone[0] if alone else start])
            at = alone[1] if alone else end
            content = text[inside:stop].strip()
            if sign == "=":
                opening, closing = _delimiters(build, content)
            elif sign != "!":
                _tag(build, sign, content)
            build.line += text.count("\n", start, end)
        build.own(text[at:])

    @staticmethod
    def find(values: Sequence[object], parts: Sequence[str]) -> object:
        """Look up a name: the innermost level that has its first part counts."""
        if not parts:
            return values[0]
        first, *others = parts
        found = ABSENT
        for value in values:
            if isinstance(value, dict) and first in value:
                found = cast("dict[str, object]", value)[first]
                break
        for part in others:
            found = member(found, part)
        return found

    @classmethod
    def functions(cls, *, lenient: bool) -> dict[str, Callable[..., object]]:
        """Return the functions that compiled templates call."""

        def each(values: Sequence[object], parts: Sequence[str]) -> Sequence[object]:
            """Return the values that a section is written for: the items of a list, or any other value there is."""
            value = cls.find(values, parts)
            return cast("list[object]", value) if isinstance(value, list) else () if is_nothing(value) else (value,)

        def none(values: Sequence[object], parts: Sequence[str]) -> bool:
            return is_nothing(cls.find(values, parts))

        return {**super().functions(lenient=lenient), "each": each, "none": none}


def _delimiters(build: Builder, content: str) -> tuple[str, str]:
    """Return the delimiters that a tag chooses."""
    match content.split():
        case [opening, closing] if "=" not in content:
            return opening, closing
        case _:
            raise build.fault(f"{short(content)} are no delimiters; write two, with a space between: {{{{=<% %>=}}}}")


def _tag(build: Builder, sign: str, name: str) -> None:
    """Read a tag with a name."""
    if sign in _REFUSED:
        raise build.fault(_REFUSED[sign])
    if not _NAME.fullmatch(name):
        raise build.fault(
            f"{short(name)} is no name: a name has no spaces and no braces, and dots only between its parts; "
            f"where braces are meant as text, {build.as_text}"
        )
    if sign == "/":
        build.close(name)
        return
    parts = () if name == "." else tuple(name.split("."))
    if parts:
        (build.inner if build.level else build.slots).setdefault(parts[0])
    levels = build.variables()
    if sign == "#":
        build.open(f"#{name}", name, build.loop(runtime("each", levels, parts)))
    elif sign == "^":
        build.open(f"^{name}", name, nodes.If(runtime("none", levels, parts), [], [], []))
    else:
        build.show(runtime("show", levels, (parts, name, build.line)))
