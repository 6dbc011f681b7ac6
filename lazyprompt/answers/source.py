"""Text that arrives in chunks, cut at markers.

Its readers are generators that are written as if all the text were there. They pause when they need more text, so the
result does not depend on the chunks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import TypeAlias, TypeVar

_T = TypeVar("_T")

Waiting: TypeAlias = Generator[None, None, _T]
Put: TypeAlias = Callable[[str], object]

# Whitespace of templates. Any other is the model's own.
SPACE = " \t\r\n"
SPACES = re.compile(rf"[{SPACE}]*")

_STRUCTURE = {False: re.compile(r'["{}\[\]]'), True: re.compile(r"""["'()\[\]{}]""")}
_QUOTES = {'"': re.compile(r'["\\]'), "'": re.compile(r"['\\]")}
_SCALAR = re.compile(r"[^,;{}\[\]\s]*")


class Cuts:
    """Texts at which a stream is cut.

    Args:
        markers: The texts. None may be the beginning of another.
    """

    __slots__ = ("_beginnings", "_longest", "_pattern")

    def __init__(self, markers: frozenset[str]) -> None:
        self._pattern = re.compile("|".join(map(re.escape, sorted(markers))) or "(?!)")
        self._beginnings = frozenset(marker[:size] for marker in markers for size in range(1, len(marker)))
        self._longest = max(map(len, markers), default=0)

    def find(self, text: str, at: int) -> tuple[int, str] | None:
        """Return the place of the first marker and the marker; None if there is none."""
        match = self._pattern.search(text, at)
        return (match.start(), match[0]) if match else None

    def clear_until(self, text: str, at: int) -> int:
        """Return the place from which the end of a text may be the beginning of a marker."""
        for place in range(max(at, len(text) - self._longest + 1), len(text)):
            if text[place:] in self._beginnings:
                return place
        return len(text)


@lru_cache(maxsize=512)
def cuts_of(markers: frozenset[str]) -> Cuts:
    """Return the cuts for a set of markers, the same object for the same set."""
    return Cuts(markers)


class StreamedText:
    """Text that arrives in chunks.

    Attributes:
        text: The text that is not yet read, and perhaps some that is.
        at: The place up to which it is read.
        final: The markers that end the answer, even inside quotes.
        cuts: The markers that count at this place.
    """

    __slots__ = ("_ended", "_seen", "at", "cuts", "final", "text")

    def __init__(self, final: frozenset[str]) -> None:
        self.text = ""
        self.at = 0
        self.final = final
        self.cuts = cuts_of(final)
        self._ended = False
        # The first marker of each kind of cuts, so that no text is searched twice for the same markers.
        self._seen: dict[Cuts, tuple[int, str | None]] = {}

    def feed(self, chunk: str) -> None:
        """Add a chunk."""
        self.text = self.text[self.at :] + chunk
        self.at = 0
        self._seen.clear()

    def end(self) -> None:
        """End the text."""
        self._ended = True
        self._seen.clear()

    def take(self, end: int) -> str:
        """Read up to a place."""
        piece = self.text[self.at : end]
        self.at = end
        return piece

    def skip(self, marker: str) -> None:
        """Skip a marker at this place."""
        self.at += len(marker)

    def span(self) -> Waiting[tuple[int, str | None]]:
        """Wait until there is text to read, or a marker, or the end.

        Returns:
            The place up to which there is text, and the marker behind it: ``None`` if more text may follow, ``""`` at
            the end.
        """
        while True:
            end, marker = self._look()
            if end > self.at or marker is not None:
                return end, marker
            if self._ended:
                return end, ""
            yield

    def _look(self) -> tuple[int, str | None]:
        seen = self._seen.get(self.cuts)
        if seen is None or seen[0] < self.at:
            found = self.cuts.find(self.text, self.at)
            clear = len(self.text) if self._ended else self.cuts.clear_until(self.text, self.at)
            # A marker may be inside text that may still become a longer marker.
            seen = self._seen[self.cuts] = found if found and found[0] <= clear else (clear, None)
        return seen

    def peek(self) -> Waiting[str]:
        """Return the next character, or the marker at this place, or ``""`` at the end."""
        end, marker = yield from self.span()
        return self.text[self.at] if end > self.at else marker or ""

    def copy(self, put: Put) -> Waiting[str]:
        """Pass all text up to a marker on; the marker stays unread.

        Returns:
            The marker; ``""`` at the end.
        """
        while True:
            end, marker = yield from self.span()
            put(self.take(end))
            if marker is not None:
                return marker

    def run(self, pattern: re.Pattern[str]) -> Waiting[str]:
        """Read all characters that match a pattern of the form ``[...]*``."""
        pieces: list[str] = []
        while True:
            end, marker = yield from self.span()
            match = pattern.match(self.text, self.at, end)
            stop = match.end() if match else self.at
            pieces.append(self.take(stop))
            if stop < end or marker is not None:
                return "".join(pieces)

    def rest(self, quote: str = "") -> Waiting[tuple[str, str]]:
        """Read up to a marker, which stays unread.

        Args:
            quote: A marker that opens and closes quotes.

        Returns:
            The text and the marker; ``""`` at the end.
        """
        pieces: list[str] = []
        quoted = False
        while True:
            marker = yield from self.copy(pieces.append)
            if not marker or marker in self.final or not (quoted or marker == quote):
                return "".join(pieces), marker
            quoted = quoted != (marker == quote)
            pieces.append(self.take(self.at + len(marker)))

    def quoted(self, put: Put) -> Waiting[bool]:
        """Read a quoted text with its quotes.

        A marker inside quotes is part of the text, unless a line break precedes it: neither JSON nor Python has line
        breaks inside quotes, so the closing quote is missing then.

        Returns:
            True if it was closed.
        """
        quote = self.take(self.at + 1)
        put(quote)
        torn = False
        while True:
            end, marker = yield from self.span()
            if end == self.at:
                if not marker or torn or marker in self.final:
                    return False
                put(self.take(end + len(marker)))
                continue
            match = _QUOTES[quote].search(self.text, self.at, end)
            piece = self.take(match.end() if match else end)
            torn = torn or "\n" in piece
            put(piece)
            if match and match[0] == quote:
                return True
            if match:
                # The character behind a backslash is not a closing quote.
                end, _ = yield from self.span()
                if end > self.at:
                    put(self.take(self.at + 1))

    def value(self, put: Put, *, python: bool = False, depth: int = 0) -> Waiting[bool]:
        """Read one value: up to the bracket or quote that closes it, or to the end of a number or word.

        Args:
            put: The function that takes each piece.
            python: True if single quotes and round brackets count, too.
            depth: The number of brackets that are open already.

        Returns:
            True if it was closed.
        """
        while True:
            end, _ = yield from self.span()
            if end == self.at:
                return False
            match = _STRUCTURE[python].search(self.text, self.at, end)
            if depth == 0 and (match is None or match.start() > self.at or match[0] in ")]}"):
                put((yield from self.run(_SCALAR)))
                return True
            piece = self.take(match.start() if match else end)
            if piece:
                put(piece)
            if match is None:
                continue
            if match[0] in "\"'":
                if not (yield from self.quoted(put)):
                    return False
            else:
                put(self.take(self.at + 1))
                depth += 1 if match[0] in "([{" else -1
            if depth == 0:
                return True
