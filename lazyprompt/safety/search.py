"""The search for control sequences in a folded text: all that begin with one sign, in one pass."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias
from unicodedata import normalize

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

# The form of nearly all reserved tokens, <|name|>; a tokenizer may have more of them than its template uses. Others are
# numbered.
NAME = r"[^<>|\s\\]{1,64}"
NUMBERED = ("unused", "reserved_", "SPECIAL_", "special_", "extra_id_")
RESERVED = rf"<(?:\|{NAME}\||(?:{'|'.join(NUMBERED)})[0-9]{{1,5}})>"
LONGEST_RESERVED = f"<|{'x' * 64}|>"
# Sequences are looked up by their first characters, so many of them.
_PREFIX = 4
# So many signs are looked at one by one.
_MOST_FINDS = 16

# The signs that decompose to text with a sign in it, for the signs that nearly all sequences begin with.
DISGUISES = {
    "<": "\u226e\ufe64\uff1c",
    ">": "\u226f\ufe65\uff1e",
    "[": "\ufe47\uff3b",
    "]": "\ufe48\uff3d",
    "#": "\ufe5f\uff03",
}
# A control sequence in a text: where it begins and ends, and True if it is a section header.
Found: TypeAlias = tuple[int, int, bool]


class Search:
    """The control sequences that begin with one sign.

    A pattern of all of them would take long to compile. So the pattern knows but how they begin, and what is found is
    then looked up by its length.

    Args:
        sign: The sign.
        texts: The sequences.
        others: A pattern of what is behind the sign in further ones; empty if there are none.
    """

    __slots__ = ("_begun", "_lengths", "_others", "_short_lengths", "_texts", "forms", "sign")

    def __init__(self, sign: str, texts: Sequence[str], others: str) -> None:
        self.sign = sign
        self._texts = frozenset(texts)
        lengths: dict[str, set[int]] = {}
        for text in self._texts:
            lengths.setdefault(text[:_PREFIX] if len(text) >= _PREFIX else "", set()).add(len(text))
        self._short_lengths = sorted(lengths.pop("", ()), reverse=True)
        # By how sequences begin, which are longer than the short ones.
        self._lengths = {
            begun: [*sorted(found, reverse=True), *self._short_lengths] for begun, found in lengths.items()
        }
        self._others = re.compile(f"{re.escape(sign)}{others}" if others else "(?!)")
        self.forms = _forms(sign, {text[1:2] for text in texts})
        """The sign and its disguises; none where nobody knows them all."""
        rests = [*_grouped({text[1:_PREFIX] for text in texts}), *filter(None, (others,))]
        # A pattern of how they begin.
        self._begun = re.compile(f"{re.escape(sign)}(?:{'|'.join(rests)})")

    def match(self, text: str, at: int) -> Found | None:
        """Return the longest sequence at a place."""
        for length in self._lengths.get(text[at : at + _PREFIX], self._short_lengths):
            piece = text[at : at + length]
            if piece in self._texts:
                return at, at + len(piece), False
        found = self._others.match(text, at)
        return None if found is None else (at, found.end(), found.lastgroup == "header")

    def occurrences(self, text: str) -> list[Found]:
        """Return the sequences in a text, in order."""
        occurrences: list[Found] = []
        at = -1
        # A few signs are found sooner one by one than by a search, which goes through all that is between them.
        for _ in range(_MOST_FINDS):
            at = text.find(self.sign, at + 1)
            if at < 0:
                return occurrences
            if occurrence := self.match(text, at):
                occurrences.append(occurrence)
        # One may begin within another's beginning.
        while found := self._begun.search(text, at + 1):
            at = found.start()
            if occurrence := self.match(text, at):
                occurrences.append(occurrence)
        return occurrences


def _grouped(rests: Iterable[str]) -> list[str]:
    """Patterns for texts, which ask each first sign of theirs but once."""
    by_sign: dict[str, list[str]] = {}
    for text in sorted(rests):
        by_sign.setdefault(text[:1], []).append(re.escape(text[1:]))
    return [f"{re.escape(sign)}(?:{'|'.join(more)})" for sign, more in by_sign.items()]


def _forms(sign: str, seconds: Collection[str]) -> tuple[str, ...]:
    """A sign and those of its disguises that sequences could begin with.

    Args:
        sign: The sign.
        seconds: The signs behind it in the sequences.
    """
    if sign not in DISGUISES:
        return ()
    # A mark upon the sign stands behind it when decomposed: no sequence begins so that does not go on with the mark.
    marks = ((form, normalize("NFKD", form).partition(sign)[2]) for form in DISGUISES[sign])
    return (sign, *(form for form, mark in marks if not mark or not {"", mark[0]}.isdisjoint(seconds)))
