"""Text that is still being written, cut at markers.

Its readers are written as if all the text were there. Each is a generator that pauses where it needs more,
so the reading cannot depend on how the text was cut into chunks.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from functools import lru_cache
from typing import TypeAlias, TypeVar

_T = TypeVar("_T")

Waiting: TypeAlias = Generator[None, None, _T]

# Whitespace as templates write it. Any other is the model's own.
SPACE = " \t\r\n"
SPACES = re.compile(rf"[{SPACE}]*")


class Cuts:
    """Texts at which a stream is cut.

    Args:
        markers: The texts; none may begin another.
    """

    __slots__ = ("_beginnings", "_longest", "_pattern")

    def __init__(self, markers: frozenset[str]) -> None:
        self._pattern = re.compile("|".join(map(re.escape, sorted(markers))) or "(?!)")
        self._beginnings = frozenset(marker[:size] for marker in markers for size in range(1, len(marker)))
        self._longest = max(map(len, markers), default=0)

    def find(self, text: str, at: int) -> tuple[int, str] | None:
        """Where the first marker is, and which."""
        match = self._pattern.search(text, at)
        return (match.start(), match[0]) if match else None

    def clear_until(self, text: str, at: int) -> int:
        """The place from which the end of a text may still turn out to begin a marker."""
        for place in range(max(at, len(text) - self._longest + 1), len(text)):
            if text[place:] in self._beginnings:
                return place
        return len(text)


@lru_cache(maxsize=512)
def cuts_of(markers: frozenset[str]) -> Cuts:
    """The cuts for a set of markers; the same object for the same set."""
    return Cuts(markers)


class Source:
    """Text that is still being written.

    Attributes:
        text: What is not yet read, and perhaps a little more.
        at: Up to where it is read.
    """

    __slots__ = ("_ended", "_seen", "at", "text")

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self._ended = False
        # How far the text is known, by the cuts that were looked for: each part of it is searched once for each.
        self._seen: dict[Cuts, tuple[int, str | None]] = {}

    def feed(self, chunk: str) -> None:
        """Add a chunk."""
        self.text = self.text[self.at :] + chunk
        self.at = 0
        self._seen.clear()

    def end(self) -> None:
        """Say that there is no more."""
        self._ended = True
        self._seen.clear()

    def take(self, end: int) -> str:
        """The text up to a place, which is now read."""
        piece = self.text[self.at : end]
        self.at = end
        return piece

    def skip(self, marker: str) -> None:
        """Read over a marker that stands here."""
        self.at += len(marker)

    def span(self, cuts: Cuts) -> Waiting[tuple[int, str | None]]:
        """Wait until there is text to read, or a marker, or the end.

        Args:
            cuts: The markers that count here.

        Returns:
            How far there is text, and the marker behind it: ``None`` where more text may follow, ``""`` at the end.
        """
        while True:
            end, marker = self._look(cuts)
            if end > self.at or marker is not None:
                return end, marker
            if self._ended:
                return end, ""
            yield

    def _look(self, cuts: Cuts) -> tuple[int, str | None]:
        seen = self._seen.get(cuts)
        if seen is None or seen[0] < self.at:
            found = cuts.find(self.text, self.at)
            clear = len(self.text) if self._ended else cuts.clear_until(self.text, self.at)
            # A marker may stand within what may still become a longer one.
            seen = self._seen[cuts] = found if found and found[0] <= clear else (clear, None)
        return seen

    def peek(self, cuts: Cuts) -> Waiting[str]:
        """The next character, or the marker that stands here, or ``""`` at the end."""
        end, marker = yield from self.span(cuts)
        return self.text[self.at] if end > self.at else marker or ""

    def run(self, pattern: re.Pattern[str], cuts: Cuts) -> Waiting[str]:
        """Read as many characters as a pattern of the form ``[...]*`` fits."""
        pieces: list[str] = []
        while True:
            end, marker = yield from self.span(cuts)
            match = pattern.match(self.text, self.at, end)
            stop = match.end() if match else self.at
            pieces.append(self.take(stop))
            if stop < end or marker is not None:
                return "".join(pieces)

    def rest(self, cuts: Cuts, final: frozenset[str], quote: str = "") -> Waiting[tuple[str, str]]:
        """Read up to a marker, which stays unread.

        Args:
            cuts: The markers that count here.
            final: The markers that count within quotes too.
            quote: A marker that opens and closes quotes.

        Returns:
            The text and the marker, ``""`` at the end.
        """
        pieces: list[str] = []
        quoted = False
        while True:
            end, marker = yield from self.span(cuts)
            pieces.append(self.take(end))
            if marker is None:
                continue
            if not marker or marker in final or not (quoted or marker == quote):
                return "".join(pieces), marker
            quoted = quoted != (marker == quote)
            pieces.append(self.take(end + len(marker)))
