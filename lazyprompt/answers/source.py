"""Streamed text that is split at markers.

The reading methods are generators, which are written as if the complete text were available. The generators
pause whenever they need more text, so the result does not depend on how the text is split into chunks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import TypeAlias, TypeVar

_T = TypeVar("_T")

Waiting: TypeAlias = Generator[None, None, _T]
Put: TypeAlias = Callable[[str], object]

# Whitespace that chat templates add. Any other whitespace comes from the model.
SPACE = " \t\r\n"
SPACES = re.compile(rf"[{SPACE}]*")

_STRUCTURE = {False: re.compile(r'["{}\[\]]'), True: re.compile(r"""["'()\[\]{}]""")}
_QUOTES = {'"': re.compile(r'["\\]'), "'": re.compile(r"['\\]")}
_SCALAR = re.compile(r"[^,;{}\[\]\s]*")


class Cuts:
    """A set of markers at which streamed text is split.

    Args:
        markers: One or more markers. No marker may be a prefix of another marker.
    """

    __slots__ = ("_beginnings", "_longest", "_pattern")

    def __init__(self, markers: frozenset[str]) -> None:
        self._pattern = re.compile("|".join(map(re.escape, sorted(markers))))
        self._beginnings = frozenset(marker[:size] for marker in markers for size in range(1, len(marker)))
        self._longest = max(map(len, markers))

    def find(self, text: str, at: int) -> tuple[int, str] | None:
        """Return the index and the text of the first marker, or None if the text contains no marker."""
        match = self._pattern.search(text, at)
        return (match.start(), match[0]) if match else None

    def clear_until(self, text: str, at: int) -> int:
        """Return the index at which an incomplete marker may start at the end of a text."""
        for place in range(max(at, len(text) - self._longest + 1), len(text)):
            if text[place:] in self._beginnings:
                return place
        return len(text)


@lru_cache(maxsize=512)
def cuts_of(markers: frozenset[str]) -> Cuts:
    """Return the cached Cuts object for a set of markers."""
    return Cuts(markers)


class StreamedText:
    """A model's response, which arrives in chunks.

    Attributes:
        text: The buffered part of the response: characters that were already read, followed by unread characters.
        at: The index in ``text`` of the first unread character.
        final: The markers that end the response, even inside quotes.
        cuts: The markers to search for at the current position.
    """

    __slots__ = ("_ended", "_seen", "at", "cuts", "final", "text")

    def __init__(self, final: frozenset[str]) -> None:
        self.text = ""
        self.at = 0
        self.final = final
        self.cuts = cuts_of(final)
        self._ended = False
        # Caches the next marker for each marker set, so that the text is searched only once per set.
        self._seen: dict[Cuts, tuple[int, str | None]] = {}

    def feed(self, chunk: str) -> None:
        """Append a chunk to the unread text."""
        self.text = self.text[self.at :] + chunk
        self.at = 0
        self._seen.clear()

    def end(self) -> None:
        """Declare the text complete, so that readers no longer wait for more."""
        self._ended = True
        self._seen.clear()

    def take(self, end: int) -> str:
        """Read and return all text up to an index."""
        piece = self.text[self.at : end]
        self.at = end
        return piece

    def skip(self, marker: str) -> None:
        """Skip a marker at the current position."""
        self.at += len(marker)

    def span(self) -> Waiting[tuple[int, str | None]]:
        """Wait until there is unread text, a marker is found, or the response ends.

        Returns:
            The end index of the text that can be read, and the marker at this index. Instead of a marker, None means
            that the response may continue, and an empty string means that the response ends at this index.
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
            # Ignore the marker that was found if a longer marker may start at an earlier index.
            seen = self._seen[self.cuts] = found if found and found[0] <= clear else (clear, None)
        return seen

    def peek(self) -> Waiting[str]:
        """Return the next character or the marker at the current position; an empty string at the end."""
        end, marker = yield from self.span()
        return self.text[self.at] if end > self.at else marker or ""

    def copy(self, put: Put) -> Waiting[str]:
        """Pass all text before the next marker to a function, without consuming the marker.

        Returns:
            The next marker, or an empty string if the response ends first.
        """
        while True:
            end, marker = yield from self.span()
            put(self.take(end))
            if marker is not None:
                return marker

    def run(self, pattern: re.Pattern[str]) -> Waiting[str]:
        """Read the characters at the current position that match a pattern such as ``[...]*``."""
        pieces: list[str] = []
        while True:
            end, marker = yield from self.span()
            match = pattern.match(self.text, self.at, end)
            stop = match.end() if match else self.at
            pieces.append(self.take(stop))
            if stop < end or marker is not None:
                return "".join(pieces)

    def rest(self, quote: str = "") -> Waiting[tuple[str, str]]:
        """Read all text before the next marker outside quotes, without consuming the marker.

        Args:
            quote: The marker that opens and closes a quoted string.

        Returns:
            The text before the next marker, and the marker, which is an empty string if the response ends first.
        """
        pieces: list[str] = []
        quoted = False
        while True:
            marker = yield from self.copy(pieces.append)
            if not marker or marker in self.final or not (quoted or marker == quote):
                return "".join(pieces), marker
            quoted = quoted != (marker == quote)
            pieces.append(self.take(self.at + len(marker)))

    def quoted(self, put: Put) -> Waiting[None]:
        """Read quoted text, including its quotes.

        A marker inside quotes is part of the quoted text, unless the quoted text contains a line break before the
        marker. JSON and Python don't allow line breaks inside quotes, so a line break means that the closing quote is
        missing.
        """
        quote = self.take(self.at + 1)
        put(quote)
        torn = False
        while True:
            end, marker = yield from self.span()
            if end == self.at:
                if not marker or torn or marker in self.final:
                    return
                put(self.take(end + len(marker)))
                continue
            match = _QUOTES[quote].search(self.text, self.at, end)
            piece = self.take(match.end() if match else end)
            torn = torn or "\n" in piece
            put(piece)
            if match and match[0] == quote:
                return
            if match:
                # A quote after a backslash does not close the string.
                end, _ = yield from self.span()
                if end > self.at:
                    put(self.take(self.at + 1))

    def value(self, put: Put, *, python: bool = False, depth: int = 0) -> Waiting[None]:
        """Read one JSON or Python value: up to its closing bracket or quote, or to the end of a number or word.

        A marker or the end of the response also ends the value.

        Args:
            put: A function that receives each piece of the value's source text.
            python: True for Python syntax, in which a value may contain single quotes and parentheses.
            depth: The number of brackets that are already open.
        """
        while True:
            end, _ = yield from self.span()
            if end == self.at:
                return
            match = _STRUCTURE[python].search(self.text, self.at, end)
            if depth == 0 and (match is None or match.start() > self.at or match[0] in ")]}"):
                put((yield from self.run(_SCALAR)))
                return
            piece = self.take(match.start() if match else end)
            if piece:
                put(piece)
            if match is None:
                continue
            if match[0] in "\"'":
                yield from self.quoted(put)
            else:
                put(self.take(self.at + 1))
                depth += 1 if match[0] in "([{" else -1
            if depth == 0:
                return
