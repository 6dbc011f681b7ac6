"""The pieces that control sequences can be cut into: their beginnings, their ends, and what is between them.

A chat template is a program: it can put its own text and several values together. These functions tell which texts
could become a part of a control sequence that way.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache
from itertools import islice
from string import digits
from typing import TYPE_CHECKING
from unicodedata import normalize

from lazyprompt.safety.find import LONGEST_RESERVED, NAME, NUMBERED, Controls
from lazyprompt.safety.folding import fold

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# The pieces that one of the form <|name|> can be cut into: its beginning, which is its end backwards, without the first
# character; and what is between them.
_RESERVED_BEGUN = rf"(?:\|(?:{NAME}\|?)?)?"
_RESERVED_INSIDE = re.compile(rf"\|?(?:{NAME})?\|?")
# One of each form; digits stand for any others.
_RESERVED_SAMPLES = ("<|x|>", *(f"<{name}{'0' * digits}>" for name in NUMBERED for digits in range(1, 6)))
# Joins texts that are looked at together: it is part of no sequence.
JOINT = "\n"
_DIGITS = re.compile(r"\d")
_BLANKS = re.compile("[ \t\u2581]+")
# Text that may become shorter when it is folded.
_SHORTENED = re.compile(r"[^\t\n\r -~]|[ \t]{2}")
_ASCII = frozenset(map(chr, range(128)))
# Characters that fold to none make a sequence longer than it is; so many times as long is looked at first.
_WIDE = 8


@lru_cache(maxsize=1_000)
def may_cross(controls: Controls, literal: str) -> bool:
    """Return True if a control sequence could lie partly in this trusted text and partly in a value beside it."""
    folded, edges = fold(literal), _edges_of(controls)
    whole = plain(literal)
    if not whole or edges.is_inside(whole) or edges.is_inside_reserved(whole):
        return bool(whole)
    longest = max(map(len, (*controls.texts, LONGEST_RESERVED)))
    head, tail = _first(folded, longest), _first(folded[::-1], longest)[::-1]
    ends = any(edges.ended.begin(plain(head[:at])[::-1]) for at in range(len(head), 0, -1))
    return ends or any(edges.begun.begin(plain(tail[at:])) for at in range(len(tail)))


def _first(text: str, longest: int) -> str:
    """Return the beginning of a text, as far as a sequence could reach; runs of blanks count as one."""
    found = re.match(rf"(?:[ \t]++|[^ \t]){{0,{longest}}}", text)
    return found[0] if found else ""


def at_edge(controls: Controls, texts: Sequence[str], own: Iterable[str] | None = None) -> bool:
    """Return True if a control sequence could lie partly in one of several texts and partly beside it.

    It begins or ends with a piece of a sequence then, white space aside.

    Args:
        controls: The control sequences.
        texts: The texts.
        own: All texts that may stand beside these, as each of them may beside the others; None is any text.
    """
    edges = _edges_of(controls)
    found = [(side, side.at_end(texts)) for side in (edges.begun, edges.ended)]
    if own is None or not any(pieces for _, pieces in found):
        return any(pieces for _, pieces in found)
    beside = (*texts, *own)
    return any(side.go_on(pieces, beside) for side, pieces in found)


def within(controls: Controls, texts: Iterable[str], known: frozenset[str]) -> bool:
    """Return True if one of several texts is the inside of a control sequence, white space aside.

    Args:
        controls: The control sequences.
        texts: The texts.
        known: Words that are no forgery.
    """
    edges = _edges_of(controls)
    longest = max(map(len, (*controls.texts, LONGEST_RESERVED)))
    short = [text for text in texts if len(text) <= longest and text not in known]
    return any(edges.is_inside(plain(text).strip()) for text in short)


def begins_at_end(controls: Controls, literal: str) -> bool:
    """Return True if a trusted text ends with the beginning of a control sequence."""
    return bool(_edges_of(controls).begun.at_end([literal]))


def ends_at_start(controls: Controls, literal: str) -> bool:
    """Return True if a trusted text begins with the end of a control sequence."""
    return bool(_edges_of(controls).ended.at_end([literal]))


@lru_cache(maxsize=64)
def _edges_of(controls: Controls) -> Edges:
    return Edges(controls.texts, reserved=controls.reserved)


class _Beginnings:
    """Beginnings of control sequences; of those written backwards, which are their ends.

    Args:
        texts: The sequences.
        reserved: Whether anything of the form ``<|name|>`` counts.
        backwards: Whether all texts are read backwards.
    """

    __slots__ = ("_backwards", "_firsts", "_known", "_reserved")

    def __init__(self, texts: Iterable[str], *, reserved: bool, backwards: bool) -> None:
        self._backwards = backwards
        self._reserved = re.compile((">" if backwards else "<") + _RESERVED_BEGUN if reserved else "(?!)")
        # Sorted, so that one that begins with a piece is found however many there are.
        self._known = sorted({self.plain(text) for text in texts})
        self._firsts: dict[str, tuple[set[str], int]] = {}
        """By the first character: the characters within sequences, and the longest length."""
        for whole in self._known:
            is_reserved = reserved and whole[0] in "<>"
            longest = len(LONGEST_RESERVED) if is_reserved else len(whole)
            for form in _in_any_case(whole[0]):
                within, length = self._firsts.get(form, (set[str](), 0))
                within.update(_ASCII if is_reserved else _in_any_case(whole[:-1]))
                self._firsts[form] = within, max(length, longest, len(whole))

    def plain(self, text: str) -> str:
        """Return a text as the function :func:`plain` does, in the direction of reading."""
        return plain(text)[::-1] if self._backwards else plain(text)

    def begin(self, piece: str) -> bool:
        """Return True if a sequence begins with a piece, which is plain, and goes on."""
        return _begins_longer(self._known, piece) or self._reserved.fullmatch(piece) is not None

    def at_end(self, texts: Sequence[str]) -> set[str]:
        """Return the pieces that texts end with, plain, white space aside."""
        joined = JOINT.join(texts)
        if joined.isascii():
            firsts = {first for first in self._firsts if first in joined}
        else:
            seen = _caseless(normalize("NFKD", joined))
            firsts = {first for first in self._firsts if _caseless(first) in seen}
        if not firsts:
            return set()
        # Only a few characters can be the last ones of a piece.
        last = set[str]().union(*(self._firsts[first][0] for first in firsts))
        tails = self._near(texts, last, firsts, max(self._firsts[first][1] for first in firsts), ends=True)
        pieces = (tail[at:] for tail in tails for at, first in enumerate(tail) if first in self._firsts)
        return {piece for piece in pieces if self.begin(piece)}

    def go_on(self, pieces: Iterable[str], texts: Iterable[str]) -> bool:
        """Return True if a sequence that begins with one of some pieces could go on with one of some texts."""
        rests: set[str] = set()
        for piece in pieces:
            if self._reserved.fullmatch(piece):
                return True
            for known in islice(self._known, bisect_right(self._known, piece), None):
                if not known.startswith(piece):
                    break
                rests.add(known[len(piece) :].strip())
        if not rests:
            return False
        firsts = _in_any_case([rest[:1] for rest in rests])
        heads = self._near(texts, firsts, firsts, max(map(len, rests)), ends=False)
        return "" in firsts or any(rest.startswith(head) or head.startswith(rest) for head in heads for rest in rests)

    def _near(
        self, texts: Iterable[str], outermost: set[str], within: set[str], width: int, *, ends: bool
    ) -> Iterator[str]:
        """Yield the ends or the beginnings of texts, plain, with these characters outermost and within them."""
        right = ends != self._backwards
        for text in texts:
            bare = text.rstrip() if right else text.lstrip()
            last = bare[-1 if right else 0] if bare else ""
            # A character that is not plain ASCII may fold to any.
            if not bare or (" " < last < "\x7f" and last not in outermost):
                continue
            near = bare[-width:] if right else bare[:width]
            shortened = _SHORTENED.search(near)
            whole = self._wide(bare, width, right=right) if shortened else self.plain(near).strip()
            # Of invisible characters, nothing is left.
            if whole and (shortened or not within.isdisjoint(near)):
                yield whole[-width:] if ends else whole[:width]

    def _wide(self, bare: str, width: int, *, right: bool) -> str:
        """Return the plain end or beginning of a text that is shortened when it is folded."""
        wide = bare[-_WIDE * width :] if right else bare[: _WIDE * width]
        whole = self.plain(wide).strip()
        return whole if len(whole) >= width or len(wide) == len(bare) else self.plain(bare).strip()


def _in_any_case(plain: Iterable[str]) -> set[str]:
    """Return characters of plain texts in all forms that ASCII has for them."""
    return {*plain, *map(str.upper, plain), *(digits if "0" in plain else "")}


class Edges:
    """The pieces that control sequences can be cut into. It is asked about texts that :func:`plain` has made.

    Args:
        texts: The sequences.
        reserved: Whether anything of the form ``<|name|>`` counts.
    """

    __slots__ = ("_insides", "_reserved", "begun", "ended")

    def __init__(self, texts: Iterable[str], *, reserved: bool) -> None:
        known = (*texts, *(_RESERVED_SAMPLES if reserved else ()))
        self._reserved = reserved
        self._insides = JOINT.join(plain(text)[1:-1] for text in known)
        self.begun, self.ended = (_Beginnings(known, reserved=reserved, backwards=each) for each in (False, True))

    def is_inside(self, piece: str) -> bool:
        """Return True if a sequence has a piece within it, and more on both sides."""
        return bool(piece) and JOINT not in piece and piece in self._insides

    def is_inside_reserved(self, piece: str) -> bool:
        """Return True if a reserved token could have a piece within it."""
        return self._reserved and _RESERVED_INSIDE.fullmatch(piece) is not None


def caseless(text: str) -> str:
    """Return a folded text in which letters that differ by case only are the same."""
    return _caseless(fold(text))


def _caseless(folded: str) -> str:
    return folded.casefold().replace("\u0131", "i")


def plain(text: str) -> str:
    """Return a caseless text in which all digits are the same, and all runs of blanks."""
    return _BLANKS.sub(" ", _DIGITS.sub("0", caseless(text)))


def _begins_longer(known: Sequence[str], piece: str) -> bool:
    """Return True if one of several sorted texts begins with a piece and goes on."""
    at = bisect_right(known, piece)
    return bool(piece) and at < len(known) and known[at].startswith(piece)
