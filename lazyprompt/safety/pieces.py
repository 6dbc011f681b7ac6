"""The pieces that control sequences can be cut into: their beginnings, their ends, and what is between them."""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import islice
from string import digits
from typing import TYPE_CHECKING

from lazyprompt.safety.folding import fold
from lazyprompt.safety.search import DISGUISES, LONGEST_RESERVED, NAME, NUMBERED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# The pieces that one of the form <|name|> can be cut into: its beginning, which is its end backwards, without the first
# character; and what is between them.
_RESERVED_BEGUN = rf"(?:\|(?:{NAME}\|?)?)?"
_RESERVED_INSIDE = re.compile(rf"\|?(?:{NAME})?\|?")
# One of each form; digits stand for any others.
_RESERVED_SAMPLES = ("<|x|>", *(f"<{name}{'0' * digits}>" for name in NUMBERED for digits in range(1, 6)))
_DISGUISED = frozenset((*DISGUISES, *"".join(DISGUISES.values())))
# Joins texts that are looked at together: it is part of no sequence.
JOINT = "\0"
_DIGITS = re.compile(r"\d")
_BLANKS = re.compile(r"[ \t]+")
# Text that may become shorter when it is folded.
_SHORTENED = re.compile(r"[^\x00-\x7f]|[ \t]{2}")
_ASCII = frozenset(map(chr, range(128)))


class _Beginnings:
    """Beginnings of control sequences; of those written backwards, which are their ends.

    Args:
        texts: The sequences.
        reserved: Whether anything of the form ``<|name|>`` counts.
        backwards: Whether all texts are read backwards.
    """

    __slots__ = ("_backwards", "_known", "_reserved", "_signs")

    def __init__(self, texts: Iterable[str], *, reserved: bool, backwards: bool) -> None:
        self._backwards = backwards
        self._reserved = re.compile((">" if backwards else "<") + _RESERVED_BEGUN if reserved else "(?!)")
        self._signs: dict[str, tuple[set[str], int]] = {}
        """By the first character, in plain or in disguise: the characters within sequences, and the longest length."""
        known = {self.plain(text): text[-1 if backwards else 0] for text in texts}
        for whole, first in known.items():
            for sign in {whole[0], first}:
                for form in (sign, *DISGUISES.get(sign, sign.upper() + sign.lower())):
                    within, length = self._signs.get(form, (set[str](), 0))
                    is_reserved = reserved and sign in "<>"
                    within.update(_ASCII if is_reserved else _in_any_case(whole[:-1]))
                    longest = len(LONGEST_RESERVED) if is_reserved else 0
                    self._signs[form] = within, max(length, longest, len(whole))
        # Sorted, so that one that begins with a piece is found however many there are.
        self._known = sorted(known)

    def plain(self, text: str) -> str:
        """Return a text as the function :func:`plain` does, in the direction of reading."""
        return plain(text)[::-1] if self._backwards else plain(text)

    def begin(self, piece: str) -> bool:
        """Return True if a sequence begins with a piece, which is plain, and goes on."""
        return _begins_longer(self._known, piece) or self._reserved.fullmatch(piece) is not None

    def at_end(self, texts: Sequence[str]) -> set[str]:
        """Return the pieces that texts end with, plain, white space aside."""
        joined = JOINT.join(texts)
        # Nobody knows all the disguises of a letter.
        known = joined.isascii()
        signs = {sign for sign in self._signs if sign in joined or not (known or sign in _DISGUISED)}
        if not signs:
            return set()
        # Only a few characters can be the last ones of a piece.
        last = set[str]().union(*(self._signs[sign][0] for sign in signs))
        tails = self._near(texts, last, signs, max(self._signs[sign][1] for sign in signs), ends=True)
        pieces = (tail[at:] for tail in tails for at, sign in enumerate(tail) if sign in self._signs)
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
            if bare and (bare[-1 if right else 0] in outermost or not bare.isascii()):
                near = bare[-width:] if right else bare[:width]
                shortened = _SHORTENED.search(near)
                whole = (
                    self.plain(bare if shortened else near).strip() if shortened or not within.isdisjoint(near) else ""
                )
                # Of signs that do not show, nothing is left.
                if whole:
                    yield whole[-width:] if ends else whole[:width]


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
        return bool(piece) and piece in self._insides

    def is_inside_reserved(self, piece: str) -> bool:
        """Return True if a reserved token could have a piece within it."""
        return self._reserved and _RESERVED_INSIDE.fullmatch(piece) is not None


def caseless(text: str) -> str:
    """Return a folded text in which letters that differ by case only are the same."""
    return fold(text).casefold().replace("\u0131", "i")


def plain(text: str) -> str:
    """Return a caseless text in which all digits are the same, and all runs of blanks."""
    return _BLANKS.sub(" ", _DIGITS.sub("0", caseless(text)))


def _begins_longer(known: Sequence[str], piece: str) -> bool:
    """Return True if one of several sorted texts begins with a piece and goes on."""
    at = bisect_right(known, piece)
    return bool(piece) and at < len(known) and known[at].startswith(piece)
