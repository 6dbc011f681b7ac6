"""Text as a normalising tokenizer would see it, and where its signs come from."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from unicodedata import category, normalize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

# Signs that do not show and that a normaliser may drop: soft hyphen, joiners, fillers, zero-width and bidirectional
# signs, tags.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# Control characters that neither end a line nor move on.
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f]")
# Characters that look like a space and do not fold to one: Braille's, and the one that SentencePiece has for a space.
_BLANKS = re.compile("[\u2800\u2581]")


def fold(text: str) -> str:
    """Text as a normalising tokenizer would see it: full-width signs narrow, invisible ones gone.

    Decomposed (NFKD), not composed: ``>`` with a stroke over it is one sign to NFKC, and would hide a marker's end.
    """
    return text if text.isascii() else normalize("NFKD", _INVISIBLE.sub("", text))


def as_read(text: str) -> str:
    """Fold text to what a reader sees: without marks upon letters, control characters and invisible ones."""
    shown = _CONTROLS.sub("", text)
    if shown.isascii():
        return shown
    return "".join(each for each in fold(_BLANKS.sub(" ", shown)) if category(each) not in ("Mn", "Me"))


def places(text: str, sign: str) -> Iterator[int]:
    """Find a sign in a text."""
    at = text.find(sign)
    while at >= 0:
        yield at
        at = text.find(sign, at + 1)


class Folded(NamedTuple):
    """Folded text that knows where its signs come from.

    To keep a place for each sign would take many times the memory of the text: kept are the signs whose folding is none
    or more than one, since only they move those behind them.

    Attributes:
        text: The text, each sign folded by itself.
        source: The text as it was.
        folds: What its signs are folded to, by their codes.
        before: At which indices the signs were that move others.
        now: At which indices of the folded text what they became begins.
    """

    text: str
    source: str
    folds: Mapping[int, str]
    before: Sequence[int]
    now: Sequence[int]

    @classmethod
    def of(cls, text: str, folding: Callable[[str], str] = fold) -> Folded:
        """Fold a text character by character."""
        # What folding leaves as it is holds no sign that is folded to another.
        if folding(text) == text:
            return cls(text, text, {}, (), ())
        folds = {ord(sign): _folded(folding, sign) for sign in set(text)}
        folded = text.translate(folds)
        before, now = array("I"), array("I")
        moved = 0
        for at in _moving(text, folds):
            before.append(at)
            now.append(at + moved)
            moved += len(folds[ord(text[at])]) - 1
        return cls(folded, text, folds, before, now)

    def origin(self, at: int) -> tuple[int, int]:
        """Return the index of a folded sign in the text, and its place among the signs that it was folded to."""
        last = bisect_right(self.now, at) - 1
        if last < 0:
            return at, 0
        begin, into = self.before[last], at - self.now[last]
        size = len(self.folds[ord(self.source[begin])])
        return (begin, into) if into < size else (begin + 1 + into - size, 0)


@lru_cache(maxsize=1_024)
def _folded(folding: Callable[[str], str], sign: str) -> str:
    return folding(sign)


def _moving(text: str, folds: Mapping[int, str]) -> Iterator[int]:
    """Find the signs whose folding is none or more than one."""
    marks = {code: "1" if len(folded) != 1 else "0" for code, folded in folds.items()}
    return places(text.translate(marks), "1") if "1" in marks.values() else iter(())
