"""What templates in Handlebars are parsed to: names, blocks and helpers, and the marks that some helpers leave."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, cast

from lazyprompt._base.json import checked
from lazyprompt.errors import SlotError
from lazyprompt.templates.bounds import check_length, weigh
from lazyprompt.templates.nodes import ABSENT, Lookup, Output, Scope, is_nothing, member
from lazyprompt.templates.values import JsonValue, Opaque, Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lazyprompt.templates.bounds import Meter


@dataclass(frozen=True, slots=True)
class RoleMark(Opaque):
    """Here a message begins: ``{{role "user"}}``.

    Args:
        role: Its role, which is the template's own text.
    """

    role: str


@dataclass(frozen=True, slots=True)
class HistoryMark(Opaque):
    """Here the history goes: ``{{history}}``."""


@dataclass(frozen=True, slots=True)
class MediaMark(Opaque):
    """Here a picture, sound or file goes: ``{{media url=photo}}``.

    Args:
        url: Its address, which may be a value.
        content_type: Its media type, where one is given.
    """

    url: str
    content_type: str | None = None


@dataclass(frozen=True, slots=True)
class SectionMark(Opaque):
    """Here a part goes that has a name: ``{{section "output"}}``.

    Args:
        name: The name, which is the template's own text.
    """

    name: str


OF_LOOP: Final = frozenset(("index", "key", "first", "last"))
"""What a loop knows of each round."""


@dataclass(frozen=True, slots=True)
class Path(Lookup):
    """A name: ``a.b``, ``this``, ``../a``, ``@index``, ``@root.a``.

    Args:
        ups: How many levels outwards it leads.
        kind: Where it starts: at the value ``here``, at the ``root``, at what the ``loop`` knows.
    """

    ups: int
    kind: str

    def find(self, scope: Scope) -> object:
        """The value, or ABSENT."""
        at: Scope | None = scope
        if self.kind == "loop":
            left = self.ups
            while at and (at.loop is None or left):
                left -= at.loop is not None
                at = at.up
            value = at.loop.get(self.parts[0], ABSENT) if at and at.loop else ABSENT
            parts = self.parts[1:]
        else:
            left, parts = self.ups, self.parts
            while at and at.up and (left or self.kind == "root"):
                left -= 1
                at = at.up
            value = at.value if at else ABSENT
        for part in parts:
            value = _member(value, part)
        return value


def _member(value: object, key: str) -> object:
    """What a value has under a key; lists and texts have a length too."""
    found = member(value, key)
    if found is ABSENT and key == "length" and isinstance(value, list | str):
        return len(cast("list[object]", value))
    return found


@dataclass(frozen=True, slots=True)
class Literal:
    """An argument that is written out: a text, a number, ``true``, ``false`` or ``null``."""

    value: str | float | bool | None
    name: str

    def find(self, scope: Scope) -> object:  # noqa: ARG002 - it is the same in each
        """The value."""
        return self.value

    def need(self, out: Output, scope: Scope) -> object:  # noqa: ARG002 - it is the same in each
        """The value."""
        return self.value


class Argument(Protocol):
    """A name or a literal."""

    @property
    def name(self) -> str:
        """It as written."""
        ...

    def find(self, scope: Scope) -> object:
        """Its value, or ABSENT."""
        ...

    def need(self, out: Output, scope: Scope) -> object:
        """Its value, where one must be."""
        ...


@dataclass(frozen=True, slots=True)
class If:
    """``if`` and ``unless``: once, where something is there or not."""

    pushes: ClassVar[bool] = False
    what: Argument
    wanted: bool

    def scopes(self, scope: Scope, meter: Meter) -> Iterator[Scope]:  # noqa: ARG002 - a choice is given both
        """The scopes to write the body in."""
        value = self.what.find(scope)
        if (is_nothing(value) or value == 0) is not self.wanted:
            yield scope


@dataclass(frozen=True, slots=True)
class Equals:
    """``ifEquals`` and ``unlessEquals``: once, where two values are the same or not; ``true`` is not 1."""

    pushes: ClassVar[bool] = False
    left: Argument
    right: Argument
    wanted: bool

    def scopes(self, scope: Scope, meter: Meter) -> Iterator[Scope]:  # noqa: ARG002 - a choice is given both
        """The scopes to write the body in."""
        left, right = (None if value is ABSENT else value for value in (self.left.find(scope), self.right.find(scope)))
        if (left == right and isinstance(left, bool) is isinstance(right, bool)) is self.wanted:
            yield scope


@dataclass(frozen=True, slots=True)
class Each:
    """``each``: once for each item of a list or dict."""

    pushes: ClassVar[bool] = True
    what: Argument

    def scopes(self, scope: Scope, meter: Meter) -> Iterator[Scope]:
        """The scopes to write the body in."""
        value = self.what.find(scope)
        if not isinstance(value, dict | list):
            return
        many = cast("dict[str, object] | list[object]", value)
        items = many.items() if isinstance(many, dict) else enumerate(many)
        for index, (key, item) in enumerate(items):
            meter.step()
            loop = {"index": index, "key": key, "first": not index, "last": index == len(many) - 1}
            yield Scope(item, scope, loop)


@dataclass(frozen=True, slots=True)
class With:
    """``with``: once in a value, where there is one."""

    pushes: ClassVar[bool] = True
    what: Argument

    def scopes(self, scope: Scope, meter: Meter) -> Iterator[Scope]:  # noqa: ARG002 - a choice is given both
        """The scopes to write the body in."""
        value = self.what.find(scope)
        if not is_nothing(value):
            yield Scope(value, scope)


@dataclass(frozen=True, slots=True)
class Else:
    """``else``: always once."""

    pushes: ClassVar[bool] = False

    def scopes(self, scope: Scope, meter: Meter) -> Iterator[Scope]:  # noqa: ARG002 - a choice is given both
        """The scopes to write the body in."""
        yield scope


@dataclass(frozen=True, slots=True)
class AsJson:
    """``{{json x indent=2}}``: a value as JSON text, whatever it is."""

    what: Argument
    indent: int

    def write(self, out: Output, scope: Scope) -> None:
        """Write the value."""
        value = self.what.need(out, scope)
        if value is ABSENT:
            out.value(Value("", self.what.name))
            return
        weigh(value)
        plain = checked(value, f"the value of {self.what.name!r}", SlotError)
        # As dotprompt writes it: without an indent, without any blank.
        between = (",", ": ") if self.indent else (",", ":")
        encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, indent=self.indent or None, separators=between)
        pieces: list[str] = []
        length = 0
        # Piece by piece: an indent makes a deep value many times longer.
        for piece in encoder.iterencode(plain):
            pieces.append(piece)
            length += len(piece)
            check_length(length)
        out.value(JsonValue("".join(pieces), self.what.name))


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark that is the same each time."""

    source: str
    held: Opaque

    def write(self, out: Output, scope: Scope) -> None:  # noqa: ARG002 - a node is given both
        """Write the place of it."""
        out.value(Value("", self.source, self.held))


@dataclass(frozen=True, slots=True)
class Media:
    """``{{media url=photo contentType="image/png"}}``."""

    url: Argument
    content_type: Argument
    line: int

    def write(self, out: Output, scope: Scope) -> None:
        """Write the place of it; nothing where there is no address."""
        url, kind = (
            None if value is ABSENT else value
            for value in (self.url.need(out, scope), self.content_type.need(out, scope))
        )
        source = "media" if isinstance(self.url, Literal) else self.url.name
        if out.lenient and not url:
            out.value(Value("", source))
            return
        for what, value in (("url", url), ("contentType", kind or "none")):
            if not isinstance(value, str) or not value:
                given = type(value).__name__ if value else "empty"
                raise SlotError(
                    f"{out.syntax}, line {self.line}: the {what} of media is {given}; give text, or leave the media "
                    "out with {{#if}}"
                )
        out.value(Value("", source, MediaMark(cast("str", url), cast("str | None", kind or None))))
