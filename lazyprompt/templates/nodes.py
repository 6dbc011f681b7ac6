"""What templates are parsed to that have a syntax of their own, and how that is written.

A template is parsed once, to nodes that never change; to fill it the nodes write to an :class:`Output`, each in a
:class:`Scope`. Values are written as they are and never read: nothing is escaped for HTML, and no tag in one counts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import chain, islice
from reprlib import repr as short
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol, cast

from lazyprompt._base.json import JsonText
from lazyprompt.errors import SlotError, TemplateError, did_you_mean
from lazyprompt.templates.bounds import MAX_OUTPUT, MAX_PIECES, MAX_STEPS, Meter, weigh
from lazyprompt.templates.slots import value_text
from lazyprompt.templates.values import JsonValue, Opaque, Value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ABSENT = object()
"""What a name gives that leads nowhere."""

# Of how many names the nearest is looked for.
_NAMES = 1000
# How many digits the index of a list may have.
_DIGITS = 9
_GIVE_ONE = {
    "Mustache": "give one, or put the tag in a section that asks for it",
    "Handlebars": "give one, or ask for it with {{#if}}",
}


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
        value: Plain data, an :class:`~lazyprompt.templates.values.Opaque`, or nothing, which like ``None`` is empty.
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


def is_nothing(value: object) -> bool:
    """Whether a value counts as none: 0 and the empty dict do not.

    Args:
        value: A value, or :data:`ABSENT`.

    Returns:
        Whether a section leaves it out.
    """
    return value is ABSENT or value is None or value is False or value in ("", [])


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
