"""What a template in a syntax of its own gives: its own text, and values that know where they are from.

A filled template is a list of parts, its own text and values in turn. Values are :class:`Value`, which is text; what
has no text (a thread, a picture) is an :class:`Opaque` in a value that holds its place.
"""

from __future__ import annotations

from typing import Self

from lazyprompt._base.json import JsonText
from lazyprompt._base.trusted import Trusted


class Opaque:
    """Something that a template may put in a place, and that has no text."""

    __slots__ = ()


class Value(str):
    """Text that an expression gave: not the developer's.

    Attributes:
        source: The name that the expression is, as ``question`` or ``user.name``; ``""`` for any other expression.
        held: What the text holds the place of, where the value has no text; then the text is empty.
    """

    __slots__ = ("held", "source")
    source: str
    held: Opaque | None

    def __new__(cls, text: str, source: str = "", held: Opaque | None = None) -> Self:
        """A value.

        Args:
            text: Its text.
            source: The name it is from.
            held: What it holds the place of.
        """
        made = super().__new__(cls, text)
        made.source, made.held = source, held
        return made

    @property
    def root(self) -> str:
        """The first name of :attr:`source`: that of the slot or input."""
        return self.source.partition(".")[0]

    def __str__(self) -> str:
        return self


class JsonValue(JsonText, Value):
    """The same, where the value was a dict or list."""

    __slots__ = ()


class TrustedValue(Trusted, Value):
    """The same, where the value is the developer's own text."""

    __slots__ = ()
