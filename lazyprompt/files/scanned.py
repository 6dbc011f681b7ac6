"""A filled template as text that can be searched: each value in it is one sign, whatever it holds."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from lazyprompt.templates.slots import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

PLACE: Final = "\ufdd0"
"""What stands for a value: a code point that is no character."""


class Scanned:
    """A filled template to be searched.

    Args:
        parts: The template's own text, and values.

    Attributes:
        text: The text, with :data:`PLACE` for each value.
    """

    __slots__ = ("_begins", "_parts", "text")

    def __init__(self, parts: Sequence[str]) -> None:
        self._parts = [part for part in parts if part or isinstance(part, Value)]
        self.text = "".join(PLACE if isinstance(part, Value) else part.replace(PLACE, " ") for part in self._parts)
        lengths = (1 if isinstance(part, Value) else len(part) for part in self._parts)
        self._begins = [0, *accumulate(lengths)]

    def is_blank(self, begin: int, end: int) -> bool:
        """Whether nothing but white space is between two places."""
        return not self.text[begin:end].strip()

    def value_at(self, at: int) -> Value:
        """The value at a place."""
        part = self._parts[bisect_right(self._begins, at) - 1]
        return part if isinstance(part, Value) else Value(part)

    def between(self, begin: int, end: int) -> tuple[str, ...]:
        """The parts between two places."""
        found: list[str] = []
        index = bisect_right(self._begins, begin) - 1
        while begin < end:
            part, start = self._parts[index], self._begins[index]
            stop = min(end, self._begins[index + 1])
            found.append(part if isinstance(part, Value) else part[begin - start : stop - start])
            begin, index = stop, index + 1
        return tuple(found)
