"""Functions that search texts for the beginnings, ends and middles of control sequences.

A chat template concatenates its literal text with values from the chat. These functions find texts that could become
part of a control sequence when they are joined to other text.
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

# Matches the beginning of a reserved token like <|name|>, but without the leading "<".
_RESERVED_BEGUN = rf"(?:\|(?:{NAME}\|?)?)?"
# Matches text in the middle of a reserved token like <|name|>.
_RESERVED_INSIDE = re.compile(rf"\|?(?:{NAME})?\|?")
# An example of each kind of reserved token. Only the digit 0 is needed, because plain() replaces all digits with 0.
_RESERVED_SAMPLES = ("<|x|>", *(f"<{name}{'0' * digits}>" for name in NUMBERED for digits in range(1, 6)))
# The separator between texts that are searched together; no control sequence contains a line break.
JOINT = "\n"
_DIGITS = re.compile(r"\d")
_BLANKS = re.compile("[ \t\u2581]+")
# Matches the text that ``plain()`` may replace by shorter text: non-ASCII characters and runs of blanks.
_SHORTENED = re.compile(r"[^\t\n\r -~]|[ \t]{2}")
_ASCII = frozenset(map(chr, range(128)))
# Invisible characters can lengthen a control sequence, so the first search window is this many times its length.
_WIDE = 8


@lru_cache(maxsize=1_000)
def may_cross(controls: Controls, literal: str) -> bool:
    """Return True if this trusted text and an adjacent value could form a control sequence together."""
    folded, edges = fold(literal), _edges_of(controls)
    whole = plain(literal)
    if not whole or edges.is_inside(whole) or edges.is_inside_reserved(whole):
        return bool(whole)
    longest = max(map(len, (*controls.texts, LONGEST_RESERVED)))
    head, tail = _first(folded, longest), _first(folded[::-1], longest)[::-1]
    ends = any(edges.ended.begin(plain(head[:at])[::-1]) for at in range(len(head), 0, -1))
    return ends or any(edges.begun.begin(plain(tail[at:])) for at in range(len(tail)))


def _first(text: str, longest: int) -> str:
    """Return the first ``longest`` characters of a text; each run of spaces and tabs counts as one character."""
    return "".join(re.findall(r"[ \t]+|[^ \t]", text)[:longest])


def at_edge(controls: Controls, texts: Sequence[str], own: Iterable[str] | None = None) -> bool:
    """Return True if one of ``texts`` could form a control sequence together with an adjacent text.

    The function looks for texts that begin or end with a piece of a control sequence, ignoring white space.

    Args:
        controls: The control sequences to search for.
        texts: The texts to examine, any two of which may be adjacent in the output.
        own: Other texts that may be adjacent to the examined texts in the output; None if any text may be adjacent.
    """
    edges = _edges_of(controls)
    found = [(side, side.at_end(texts)) for side in (edges.begun, edges.ended)]
    if own is None or not any(pieces for _, pieces in found):
        return any(pieces for _, pieces in found)
    beside = (*texts, *own)
    return any(side.go_on(pieces, beside) for side, pieces in found)


def within(controls: Controls, texts: Iterable[str], known: frozenset[str]) -> bool:
    """Return True if one of several texts could be the middle of a control sequence, ignoring white space.

    Args:
        controls: The control sequences to search for.
        texts: The texts to examine.
        known: The texts to skip, such as the words of OpenAI's message format.
    """
    edges = _edges_of(controls)
    longest = max(map(len, (*controls.texts, LONGEST_RESERVED)))
    for bare in (text.strip() for text in texts if text not in known):
        # The first characters rule out most texts.
        head = plain(bare[:_WIDE]).strip()
        if (not head or edges.is_inside(head)) and edges.is_inside(edges.begun.wide(bare, longest, right=False)):
            return True
    return False


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
    """An index of the prefixes of control sequences, or of their suffixes if ``backwards`` is True.

    Args:
        texts: The control sequences to index.
        reserved: True to include all sequences like ``<|name|>``.
        backwards: True to reverse the control sequences and all texts that are searched.
    """

    __slots__ = ("_backwards", "_firsts", "_known", "_reserved")

    def __init__(self, texts: Iterable[str], *, reserved: bool, backwards: bool) -> None:
        self._backwards = backwards
        self._reserved = re.compile((">" if backwards else "<") + _RESERVED_BEGUN if reserved else "(?!)")
        # Sort the sequences for a binary search by prefix.
        self._known = sorted({self.plain(text) for text in texts})
        self._firsts: dict[str, tuple[set[str], int]] = {}
        """Maps each first character to the characters in the sequences that begin with it, and their maximum length."""
        for whole in self._known:
            is_reserved = reserved and whole[0] in "<>"
            longest = len(LONGEST_RESERVED) if is_reserved else len(whole)
            for form in _in_any_case(whole[0]):
                within, length = self._firsts.get(form, (set[str](), 0))
                within.update(_ASCII if is_reserved else _in_any_case(whole[:-1]))
                self._firsts[form] = within, max(length, longest, len(whole))

    def plain(self, text: str) -> str:
        return plain(text)[::-1] if self._backwards else plain(text)

    def begin(self, piece: str) -> bool:
        """Return True if a piece, normalized by :meth:`plain`, is a proper prefix of a control sequence."""
        return _begins_longer(self._known, piece) or self._reserved.fullmatch(piece) is not None

    def at_end(self, texts: Sequence[str]) -> set[str]:
        """Return each normalized suffix of the texts that is a proper prefix of a control sequence.

        White space at the end of each text in ``texts`` is ignored.
        """
        joined = JOINT.join(texts)
        if joined.isascii():
            firsts = {first for first in self._firsts if first in joined}
        else:
            seen = _caseless(normalize("NFKD", joined))
            firsts = {first for first in self._firsts if _caseless(first) in seen}
        if not firsts:
            return set()
        last = set[str]().union(*(self._firsts[first][0] for first in firsts))
        tails = self._near(texts, last, firsts, max(self._firsts[first][1] for first in firsts), ends=True)
        pieces = (tail[at:] for tail in tails for at, first in enumerate(tail) if first in self._firsts)
        return {piece for piece in pieces if self.begin(piece)}

    def go_on(self, pieces: Iterable[str], texts: Iterable[str]) -> bool:
        """Return True if one of the texts could continue a control sequence that begins with one of the pieces."""
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
        """Yield the normalized end (or beginning) of each text that could contain a piece of a control sequence.

        Args:
            texts: The texts.
            outermost: The characters with which a piece of a control sequence can end, or begin if ``ends`` is False.
            within: The characters to look for. A text whose end (or beginning) contains none of these characters is
                skipped.
            width: The maximum length of each yielded text, in characters.
            ends: True to yield the ends of the texts, False to yield their beginnings.
        """
        right = ends != self._backwards
        for text in texts:
            bare = text.rstrip() if right else text.lstrip()
            last = bare[-1:] if right else bare[:1]
            if not last or (" " < last < "\x7f" and last not in outermost):
                continue
            near = bare[-width:] if right else bare[:width]
            # White space at the inner end may be a part of a control sequence, and must not be stripped.
            shortened = near != near.strip() or _SHORTENED.search(near)
            whole = self.wide(bare, width, right=right) if shortened else self.plain(near).strip()
            # Text that consists only of invisible characters is empty after normalization.
            if whole and (shortened or not within.isdisjoint(near)):
                yield whole[-width:] if ends else whole[:width]

    def wide(self, bare: str, width: int, *, right: bool) -> str:
        """Return the normalized end or beginning of a text.

        The returned text has at least ``width`` characters, unless the whole normalized text is shorter.
        """
        wide = bare[-_WIDE * width :] if right else bare[: _WIDE * width]
        whole = self.plain(wide).strip()
        return whole if len(whole) >= width or len(wide) == len(bare) else self.plain(bare).strip()


def _in_any_case(plain: Iterable[str]) -> set[str]:
    """Return normalized characters together with their upper-case forms.

    If the characters include ``0``, which represents any digit, the result contains all digits.
    """
    return {*plain, *map(str.upper, plain), *(digits if "0" in plain else "")}


class Edges:
    """An index of the prefixes, suffixes and inner parts of control sequences, all normalized by :func:`plain`.

    Args:
        texts: The control sequences to index.
        reserved: True to include all sequences like ``<|name|>``.
    """

    __slots__ = ("_insides", "_reserved", "begun", "ended")

    def __init__(self, texts: Iterable[str], *, reserved: bool) -> None:
        known = (*texts, *(_RESERVED_SAMPLES if reserved else ()))
        self._reserved = reserved
        self._insides = JOINT.join(plain(text)[1:-1] for text in known)
        self.begun, self.ended = (_Beginnings(known, reserved=reserved, backwards=each) for each in (False, True))

    def is_inside(self, piece: str) -> bool:
        """Return True if a piece occurs inside a control sequence, with text on both sides of the piece."""
        return bool(piece) and JOINT not in piece and piece in self._insides

    def is_inside_reserved(self, piece: str) -> bool:
        """Return True if a piece could be the middle of a sequence like ``<|name|>``."""
        return self._reserved and _RESERVED_INSIDE.fullmatch(piece) is not None


def caseless(text: str) -> str:
    """Fold a text with :func:`~lazyprompt.safety.folding.fold`, and also fold the case of its letters."""
    return _caseless(fold(text))


def _caseless(folded: str) -> str:
    return folded.casefold().replace("\u0131", "i")


def plain(text: str) -> str:
    """Normalize a text: fold it with :func:`caseless`, replace digits with ``0`` and runs of blanks with a space."""
    return _BLANKS.sub(" ", _DIGITS.sub("0", caseless(text)))


def _begins_longer(known: Sequence[str], piece: str) -> bool:
    """Return True if a piece is a proper prefix of a text in the sorted list ``known``."""
    at = bisect_right(known, piece)
    return bool(piece) and at < len(known) and known[at].startswith(piece)
