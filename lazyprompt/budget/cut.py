"""Texts cut to a number of tokens: at the end of a sentence or line where there is one, else between words."""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, TypeAlias

from lazyprompt.budget.search import fewest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Cut: TypeAlias = Literal["end", "middle"]

CUT_MARK = "[…]"
"""What stands where text was cut out."""

# Where a sentence or a line ends. Latin full stops are ends before white space only: 3.14 is no two sentences.
_SENTENCES = re.compile(r"[。！？；…]+[”’」』）)\"']*|(?<![.!?;])[.!?;]++[\"')\]]*+(?=\s)|\n+")
_WORDS = re.compile(r"\s+|[、，：]")
# A finer cut is looked for where the coarser leaves more than this share of the room.
_WASTED = 0.5
_JOINERS = "\u200d\ufe0e\ufe0f"


def shortened(text: str, room: int, count_text: Callable[[str], int], cut: Cut = "end") -> str:
    """A text, cut so that it fits.

    Args:
        text: The text.
        room: The most tokens that it may have.
        count_text: What counts tokens.
        cut: Where it is cut: at its end, or in its middle, so that beginning and end both stay.

    Returns:
        The text as it is where it fits; else what is left of it, with ``[…]`` where something is missing; an empty text
        where not even that fits.
    """
    full = count_text(text)
    if full <= room:
        return text
    best, best_count = "", 0
    for ends in (_SENTENCES, _WORDS, None):
        found = _shorter(_pieces(text, ends), room, full, count_text, cut)
        if found is not None:
            count = count_text(found)
            if count > best_count:
                best, best_count = found, count
        if best_count > room * (1 - _WASTED):
            break
    return best


def _pieces(text: str, ends: re.Pattern[str] | None) -> list[str]:
    """The text in pieces that end where it may be cut."""
    places = _between_letters(text) if ends is None else [match.end() for match in ends.finditer(text)]
    cuts = [0, *(place for place in places if 0 < place < len(text)), len(text)]
    return [text[begin:end] for begin, end in pairwise(cuts)]


def _between_letters(text: str) -> Iterator[int]:
    """Yield the places at which no character is cut in two: not before one that changes the one before it."""
    for at in range(1, len(text)):
        if not (unicodedata.combining(text[at]) or text[at] in _JOINERS or text[at - 1] == _JOINERS[0]):
            yield at


def _shorter(pieces: Sequence[str], room: int, full: int, count_text: Callable[[str], int], cut: Cut) -> str | None:
    """The text without the fewest pieces that must go."""
    count = len(pieces)
    middle = count // 2
    # How many pieces stay at the beginning, where so many are gone from the middle.
    order = range(count - 1, -1, -1) if cut == "end" else [at for pair in _outwards(middle, count) for at in pair]

    def without(gone: int) -> str:
        if not gone:
            return "".join(pieces)
        left = order[:gone]
        head, tail = "".join(pieces[: min(left)]).rstrip(), "".join(pieces[max(left) + 1 :]).lstrip()
        return " ".join(text for text in (head, CUT_MARK, tail) if text)

    gone = fewest([len(pieces[at]) for at in order], lambda gone: count_text(without(gone)), room, full)
    return None if gone is None else without(gone)


def _outwards(middle: int, count: int) -> Iterator[tuple[int, ...]]:
    """The places around a middle, the nearest first: always one run without a gap."""
    for distance in range(count):
        after, before = middle + distance, middle - 1 - distance
        yield tuple(at for at in (after, before) if 0 <= at < count)
