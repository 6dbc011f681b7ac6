"""Mustache as a syntax of templates, and the small interpreter that it shares with Handlebars.

A template is parsed once, to nodes that never change; to fill it the nodes write to an :class:`Output`, each in a
:class:`Scope`. Values are written as they are and never read: nothing is escaped for HTML, and no tag in one counts.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from reprlib import repr as short
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol, cast

from jinja2.exceptions import SecurityError

from lazyprompt._json import JsonText, well_formed
from lazyprompt.errors import SlotError, TemplateError, did_you_mean
from lazyprompt.text.bounds import MAX_OUTPUT, MAX_PIECES, MAX_STEPS, Meter, weigh
from lazyprompt.text.jinja import JinjaTemplate
from lazyprompt.text.slots import value_text
from lazyprompt.text.values import JsonValue, Opaque, Value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MAX_DEPTH = 100
"""How deep sections may lie in one another."""

ABSENT = object()
"""What a name gives that leads nowhere."""

# Of how many names the nearest is looked for.
_NAMES = 1000
# How many digits the index of a list may have.
_DIGITS = 9
_REST_OF_LINE = re.compile(r"[ \t]*+(?:\r?\n|\Z)")


class Scope(NamedTuple):
    """Where names are looked up: a value, and the scope around it.

    Attributes:
        value: What ``{{.}}`` and ``{{this}}`` are here.
        up: The scope around this one; ``None`` for the values of the template.
        loop: What a loop knows of this round, as ``index``.
    """

    value: object
    up: Scope | None = None
    loop: Mapping[str, object] | None = None


class Output:
    """What one rendering has written so far.

    Args:
        syntax: The name of the syntax, for errors.
        lenient: Whether a name that leads nowhere is empty text.
    """

    __slots__ = ("_own", "_parts", "_pieces", "_size", "lenient", "meter", "syntax")

    def __init__(self, syntax: str, *, lenient: bool) -> None:
        self.syntax, self.lenient = syntax, lenient
        self.meter = Meter(MAX_STEPS, 0)
        # The own text since the last value: joined only then, for a sum of texts would copy them each time.
        self._own: list[str] = []
        self._parts: list[str] = []
        self._pieces = self._size = 0

    def text(self, text: str) -> None:
        """Write the template's own text."""
        self._count(text)
        self._own.append(text)

    def value(self, value: Value) -> None:
        """Write a value."""
        self._count(value)
        self._parts += ("".join(self._own), value)
        self._own.clear()

    def parts(self) -> list[str]:
        """The own text and the values, in turn."""
        return [*self._parts, "".join(self._own)]

    def _count(self, text: str) -> None:
        self._pieces += 1
        self._size += len(text)
        if self._size > MAX_OUTPUT:
            raise TemplateError(f"{self.syntax}: the output is longer than {MAX_OUTPUT} characters")
        if self._pieces > MAX_PIECES:
            raise TemplateError(f"{self.syntax}: the output is of more than {MAX_PIECES} pieces")


class Node(Protocol):
    """A piece of a parsed template."""

    def write(self, out: Output, scope: Scope) -> None:
        """Write what it gives in a scope."""
        ...


class Choice(Protocol):
    """What decides whether a body is written, and how often."""

    pushes: ClassVar[bool]
    """Whether names in the body are looked up in a scope of their own."""

    def scopes(self, scope: Scope, meter: Meter) -> Iterator[Scope]:
        """The scopes to write the body in, one for each time."""
        ...


@dataclass(frozen=True, slots=True)
class Text:
    """The template's own text."""

    text: str

    def write(self, out: Output, scope: Scope) -> None:  # noqa: ARG002 - a node is given both
        """Write it."""
        out.text(self.text)


@dataclass(frozen=True, slots=True)
class Lookup(ABC):
    """A name in a template.

    Args:
        name: The name as written.
        line: The line that it is in.
        parts: The keys that lead from the first value to the one that is meant.
    """

    name: str
    line: int
    parts: tuple[str, ...]

    @abstractmethod
    def find(self, scope: Scope) -> object:
        """The value, or :data:`ABSENT`."""

    def need(self, out: Output, scope: Scope) -> object:
        """The value, where one must be.

        Args:
            out: What is written to.
            scope: Where to look.

        Returns:
            The value; :data:`ABSENT` only where the output is lenient.

        Raises:
            SlotError: There is none.
        """
        found = self.find(scope)
        if found is ABSENT and not out.lenient:
            where = f"{out.syntax}, line {self.line}"
            near = _nearest(scope, self.parts)
            raise SlotError(f"{where}: there is no value for {short(self.name)}{near}; {_GIVE_ONE[out.syntax]}")
        return found


@dataclass(frozen=True, slots=True)
class Shown:
    """``{{name}}``: a value as text."""

    what: Lookup

    def write(self, out: Output, scope: Scope) -> None:
        """Write the value."""
        out.value(written(self.what.need(out, scope), self.what.name))


class Arm(NamedTuple):
    """One way a block can go."""

    choice: Choice
    body: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """A section, or ``if`` with all its ``else``: the first arm that is chosen is written."""

    arms: tuple[Arm, ...]

    def write(self, out: Output, scope: Scope) -> None:
        """Write the body of the first arm that gives any scope, once in each."""
        for choice, body in self.arms:
            chosen = False
            for inner in choice.scopes(scope, out.meter):
                chosen = True
                for node in body:
                    node.write(out, inner)
            if chosen:
                return


def written(value: object, source: str) -> Value:
    """A value as it is written.

    Args:
        value: Plain data, an :class:`~lazyprompt.text.values.Opaque`, or nothing, which like ``None`` is empty.
        source: The name it is from.

    Returns:
        Its text, which knows the name.

    Raises:
        SlotError: It has no text.
        SecurityError: It would be too long.
    """
    if isinstance(value, Opaque):
        return Value("", source, value)
    if value is ABSENT or value is None:
        return Value("", source)
    if not isinstance(value, str):
        weigh(value)
    text = value_text(value, source)
    return JsonValue(text, source) if isinstance(text, JsonText) else Value(text, source)


def member(value: object, key: str) -> object:
    """What a value has under a key.

    Args:
        value: A dict, or a list, whose keys are its indexes; nothing else has any.
        key: The key.

    Returns:
        The value there, or :data:`ABSENT`.
    """
    if isinstance(value, dict):
        return cast("dict[str, object]", value).get(key, ABSENT)
    if isinstance(value, list) and key.isascii() and key.isdigit() and len(key) <= _DIGITS:
        items = cast("list[object]", value)
        return items[int(key)] if int(key) < len(items) else ABSENT
    return ABSENT


def _nearest(scope: Scope, parts: Sequence[str]) -> str:
    """Which name could have been meant by the first part that leads nowhere, as the end of a message."""
    around: list[object] = []
    up: Scope | None = scope
    while up:
        around.append(up.value)
        up = up.up
    for part in parts:
        found = [inner for value in around if (inner := member(value, part)) is not ABSENT]
        if not found:
            dicts = [cast("dict[str, object]", value) for value in around if isinstance(value, dict)]
            return did_you_mean(part, islice(chain.from_iterable(dicts), _NAMES))
        around = found[:1]
    return ""


@dataclass(slots=True)
class _Open:
    """A block that is being read."""

    tag: str
    name: str
    line: int
    choice: Choice
    arms: list[Arm] = field(default_factory=list[Arm])
    body: list[Node] = field(default_factory=list[Node])

    def turn(self, choice: Choice) -> None:
        """End the body of one arm and begin the next."""
        self.arms.append(Arm(self.choice, tuple(self.body)))
        self.choice, self.body = choice, []


class Builder:
    """Puts nodes together, in the order of the template.

    Args:
        syntax: The name of the syntax, for errors.
        text: The template.
    """

    def __init__(self, syntax: str, text: str) -> None:
        self.syntax, self.source = syntax, text
        self.line = 1
        self.literals: list[str] = []
        # Names in order of appearance: those looked up in the values of the template, those that a section may have.
        self.slots: dict[str, None] = {}
        self.inner: dict[str, None] = {}
        self.blocks: list[_Open] = []
        self._body: list[Node] = []

    def fault(self, what: str, line: int = 0) -> TemplateError:
        """The error for a mistake in the template."""
        return TemplateError(f"{self.syntax}, line {line or self.line}: {what}")

    @property
    def levels(self) -> int:
        """How many scopes are around what is read now, but for the values of the template."""
        return sum(block.choice.pushes for block in self.blocks)

    def text(self, text: str) -> None:
        """Add own text."""
        if text:
            self.literals.append(text)
            self.add(Text(text))

    def add(self, node: Node) -> None:
        """Add a node."""
        (self.blocks[-1].body if self.blocks else self._body).append(node)

    def open(self, tag: str, name: str, choice: Choice) -> None:
        """Begin a block."""
        if len(self.blocks) == MAX_DEPTH:
            raise self.fault(f"sections lie in one another more than {MAX_DEPTH} deep; take some of them out")
        self.blocks.append(_Open(tag, name, self.line, choice))

    def close(self, name: str) -> None:
        """End the block that was opened last."""
        if not self.blocks:
            raise self.fault(f"{{{{/{_brief(name)}}}}} closes nothing: no section is open here; take it out")
        block = self.blocks.pop()
        if block.name != name:
            raise self.fault(
                f"{{{{/{_brief(name)}}}}} was found where {{{{{_brief(block.tag)}}}}} of line {block.line} is still "
                f"open; write {{{{/{_brief(block.name)}}}}} first"
            )
        block.turn(block.choice)
        self.add(Block(tuple(block.arms)))

    def unclosed(self, close: str) -> TemplateError:
        """The error for a tag that does not end."""
        return self.fault(
            f"a tag is opened and never closed; write {close} behind it, or, if its braces are meant as text, "
            + _AS_TEXT[self.syntax]
        )

    def done(self) -> tuple[Node, ...]:
        """The nodes of the whole template."""
        if self.blocks:
            block = self.blocks[-1]
            raise self.fault(
                f"{{{{{_brief(block.tag)}}}}} is never closed; write {{{{/{_brief(block.name)}}}}} where it ends",
                block.line,
            )
        return tuple(self._body)


_GIVE_ONE = {
    "Mustache": "give one, or put the tag in a section that asks for it",
    "Handlebars": "give one, or ask for it with {{#if}}",
}
_AS_TEXT = {
    "Mustache": "choose other delimiters before them, as in {{=<% %>=}}",
    "Handlebars": "a backslash before them, as in \\{{",
}


def _brief(name: str) -> str:
    """A piece of the template for a message, not too long."""
    return short(name)[1:-1]


def line_of(text: str, before: int, start: int, end: int) -> tuple[int, int] | None:
    """The whole line of a tag that stands alone in it.

    Args:
        text: The template.
        before: Where the tag before ended, or 0.
        start: Where the tag starts.
        end: Where it ends.

    Returns:
        Where the line begins and where the next one does; ``None`` where the tag is not alone.
    """
    head = text[before:start].rstrip(" \t")
    rest = _REST_OF_LINE.match(text, end)
    if rest is None or not (head.endswith("\n") or (not head and before == 0)):
        return None
    return before + len(head), rest.end()


class ParsedTemplate(ABC):
    """A template that was parsed to nodes: what Mustache and Handlebars have in common.

    Args:
        text: The template.
        own: What all of it counts as, among the slots.
        lenient: Whether what is not there is empty text, at any depth; else it is an error.

    Attributes:
        text: The template as it was written.
        slots: The names it looks up at the top level, in order of first appearance.
        inner: Further names, which a section's value may have or else the top level.
        literals: Its own text, in pieces.

    Raises:
        TemplateError: It is no text, or the syntax is wrong; the message names the line.
    """

    __slots__ = ("_lenient", "_nodes", "_own", "inner", "literals", "slots", "text")
    syntax: ClassVar[str]

    def __init__(self, text: str, own: str = "instruction", *, lenient: bool = False) -> None:
        if not isinstance(cast("object", text), str):
            raise TemplateError(f"a template is text, not a {type(text).__name__}")
        well_formed(text, "the template", TemplateError)
        build = Builder(self.syntax, text)
        self._parse(build)
        self._nodes = build.done()
        self.text = text
        self._own, self._lenient = own, lenient
        self.literals: tuple[str, ...] = tuple(build.literals)
        self.slots: tuple[str, ...] = tuple(build.slots)
        self.inner: tuple[str, ...] = tuple(name for name in build.inner if name not in build.slots)

    @staticmethod
    def coerce(value: object, slot: str) -> object:
        """A value as plain data, as Jinja is given it."""
        return JinjaTemplate.coerce(value, slot)

    @staticmethod
    @abstractmethod
    def _parse(build: Builder) -> None:
        """Read the template."""

    def fill(self, values: Mapping[str, object]) -> Sequence[str]:
        """Render the template.

        Args:
            values: Plain data for each slot, or an :class:`~lazyprompt.text.values.Opaque`.

        Returns:
            The parts: the template's own text and values, in turn.

        Raises:
            SlotError: A name leads nowhere.
            TemplateError: The template asks for more than the bounds give, or a value is a function.
        """
        for name, value in values.items():
            if callable(value):
                raise TemplateError(
                    f"{self.syntax}: {short(name)} is a function (a lambda), which a template cannot call; call it and "
                    "give what it returns"
                )
        out = Output(self.syntax, lenient=self._lenient)
        scope = Scope({**values})
        try:
            for node in self._nodes:
                node.write(out, scope)
        except SecurityError as error:
            raise TemplateError(f"{self.syntax}: {error}") from error
        return out.parts()

    def origins(self, parts: Sequence[str]) -> tuple[str, ...]:
        """The slot of each part."""
        return (self._own,) * len(parts)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled as its text, which is parsed as fast as nodes are read."""
        return partial(type(self), lenient=self._lenient), (self.text, self._own)


@dataclass(frozen=True, slots=True)
class _Name(Lookup):
    """A name in Mustache: its first part is looked up in one scope after the other; ``.`` is the value here."""

    def find(self, scope: Scope) -> object:
        """The value, or :data:`ABSENT`."""
        if not self.parts:
            return scope.value
        up: Scope | None = scope
        value = ABSENT
        while up and value is ABSENT:
            if isinstance(up.value, dict):
                value = cast("dict[str, object]", up.value).get(self.parts[0], ABSENT)
            up = up.up
        for part in self.parts[1:]:
            value = member(value, part)
        return value


@dataclass(frozen=True, slots=True)
class _Over:
    """``{{#name}}``: once for each item of a list, once in any other value, and not at all where there is none."""

    pushes: ClassVar[bool] = True
    what: _Name

    def scopes(self, scope: Scope, meter: Meter) -> Iterator[Scope]:
        """The scopes to write the body in."""
        value = self.what.find(scope)
        if isinstance(value, list):
            for item in meter.counted(cast("list[object]", value)):
                yield Scope(item, scope)
        elif not is_nothing(value):
            yield Scope(value, scope)


@dataclass(frozen=True, slots=True)
class _Without:
    """``{{^name}}``: once, where there is no value."""

    pushes: ClassVar[bool] = False
    what: _Name

    def scopes(self, scope: Scope, meter: Meter) -> Iterator[Scope]:  # noqa: ARG002 - a choice is given both
        """The scopes to write the body in."""
        if is_nothing(self.what.find(scope)):
            yield scope


def is_nothing(value: object) -> bool:
    """Whether a value counts as none: 0 and the empty dict do not.

    Args:
        value: A value, or :data:`ABSENT`.

    Returns:
        Whether a section leaves it out.
    """
    return value is ABSENT or value is None or value is False or value in ("", [])


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


class MustacheTemplate(ParsedTemplate):
    """A template in Mustache's syntax, without partials, lambdas and inheritance; nothing is escaped for HTML."""

    __slots__ = ()
    syntax = "Mustache"

    @staticmethod
    def _parse(build: Builder) -> None:
        text = build.source
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
            build.text(text[at : alone[0] if alone else start])
            at = alone[1] if alone else end
            content = text[inside:stop].strip()
            if sign == "=":
                opening, closing = _delimiters(build, content)
            elif sign != "!":
                _tag(build, sign, content)
            build.line += text.count("\n", start, end)
        build.text(text[at:])


def _delimiters(build: Builder, content: str) -> tuple[str, str]:
    """The delimiters that a tag chooses."""
    chosen = content.split()
    if len(chosen) != 2 or "=" in content:  # noqa: PLR2004 - one to open and one to close
        raise build.fault(f"{short(content)} are no delimiters; write two, with a space between: {{{{=<% %>=}}}}")
    return chosen[0], chosen[1]


def _tag(build: Builder, sign: str, name: str) -> None:
    """Add what a tag with a name gives."""
    if sign in _REFUSED:
        raise build.fault(_REFUSED[sign])
    if not _NAME.fullmatch(name):
        raise build.fault(
            f"{short(name)} is no name: a name has no spaces and no braces, and dots only between its parts; "
            f"where braces are meant as text, {_AS_TEXT['Mustache']}"
        )
    if sign == "/":
        build.close(name)
        return
    parts = () if name == "." else tuple(name.split("."))
    what = _Name(name, build.line, parts)
    if parts:
        (build.inner if build.levels else build.slots).setdefault(parts[0])
    if sign == "#":
        build.open(f"#{name}", name, _Over(what))
    elif sign == "^":
        build.open(f"^{name}", name, _Without(what))
    else:
        build.add(Shown(what))
