"""Restoration of neutralised control sequences that a model quotes in its reply."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from lazyprompt.safety.neutralised import Neutralised

if TYPE_CHECKING:
    from collections.abc import Iterable


def pairs_in(parts: Iterable[str]) -> dict[str, str]:
    """Map each neutralised sequence in the parts of a prompt to its original."""
    neutralised = (part for part in parts if isinstance(part, Neutralised))
    return {part[start:end]: raw for part in neutralised for start, end, raw in part.marks}


class Restorer:
    """A restorer for the neutralised control sequences that a reply quotes from the prompt, in text or in JSON.

    Args:
        pairs: The neutralised sequences, each with its original sequence.
    """

    __slots__ = ("_given", "_pattern")

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self._given: dict[str, str] = {}
        for safe, raw in pairs:
            self._given |= {safe: raw, _in_json(safe): _in_json(raw)}
        longest_first = sorted(self._given, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)))

    def __bool__(self) -> bool:
        return bool(self._given)

    def restore(self, text: str) -> str:
        """Return a text with its neutralised control sequences restored."""
        return self._pattern.sub(lambda match: self._given[match[0]], text) if self._given else text

    def split(self, text: str) -> tuple[str, str]:
        """Split streamed text into restored text and a remainder, which may be the start of a neutralised sequence.

        Args:
            text: The unrestored end from the previous call, followed by the newly received text.
        """
        cut = len(text) - self._held(text)
        for match in self._pattern.finditer(text):
            if match.start() < cut < match.end():
                cut = match.end()
        return self.restore(text[:cut]), text[cut:]

    def _held(self, text: str) -> int:
        """Return the length of the longest suffix of a text that is an incomplete neutralised sequence."""
        return next(
            (
                size
                for size in range(min(len(text), max(map(len, self._given), default=0)), 0, -1)
                if any(len(safe) > size and safe.startswith(text[-size:]) for safe in self._given)
            ),
            0,
        )


def _in_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]
