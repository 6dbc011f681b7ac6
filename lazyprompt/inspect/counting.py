"""Tokens of one look: each text is counted once, however many views of a prompt it is part of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lazyprompt.tokens.approximate import ApproximateTokenCounter
from lazyprompt.tokens.counter import CharTokenCounter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lazyprompt.tokens.counter import TokenCounter

_UNITS: Final[Mapping[type, str]] = {ApproximateTokenCounter: "tokens (about)", CharTokenCounter: "characters"}


def unit_of(counter: TokenCounter) -> str:
    """Return the unit of a counter: ``tokens``, ``tokens (about)``, or ``characters``."""
    return _UNITS.get(type(counter), "tokens")


class CountedOnce:
    """A counter that remembers the texts it has counted: to be thrown away with the look that it was made for.

    Args:
        counter: What counts them.
    """

    __slots__ = ("_counter", "_known", "additive")

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._known: dict[str, int] = {}
        # None says as little as a counter that has no such attribute.
        self.additive: bool | None = getattr(counter, "additive", None)

    def count(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None) -> int:
        """The tokens of messages, and of tools."""
        return self._counter.count(messages, tools) if tools else self._counter.count(messages)

    def count_text(self, text: str) -> int:
        """The tokens of a text."""
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = self._counter.count_text(text)
        return found
