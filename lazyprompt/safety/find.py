"""The search for control sequences in the parts of a prompt.

:meth:`Controls.find` joins the parts, folds the text as a normalizing tokenizer would, and returns the sequences that
reach into untrusted parts. :func:`lazyprompt.safety.neutralised.neutralise` breaks them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache
from itertools import accumulate, count
from operator import add
from string import printable
from typing import TYPE_CHECKING, NamedTuple

from lazyprompt._base.trusted import is_trusted
from lazyprompt.safety.folding import DISGUISES, fold, origins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

# The form of nearly all reserved tokens is <|name|>; a tokenizer may have more of them than its template uses. Others
# are numbered.
NAME = r"[^<>|\s\\]{1,64}"
NUMBERED = ("unused", "reserved_", "special_", "extra_id_")
_RESERVED = rf"<(?:\|{NAME}\||(?:{'|'.join(NUMBERED)})[0-9]{{1,5}})>"
_RESERVED_PAIRS = ("<|", *(f"<{name[0]}" for name in NUMBERED))
# The pieces that a reserved token can begin with.
_RESERVED_BEGUN = re.compile(rf"<(?:\|(?:{NAME}\|?)?|(?:{'|'.join(NUMBERED)})[0-9]{{0,5}})?")
LONGEST_RESERVED = f"<|{'x' * 64}|>"
# Tokenizers write a space as U+2581 or read that as one, and some make one of a run of spaces.
_BLANK = "[ \t\u2581]"
_BLANKS = re.compile(f"{_BLANK}+")
_NOTHING = frozenset[str]()
_PLAIN = frozenset(("", *printable[:-2]))
# No character is folded to more than these.
_MOST_CHARACTERS = 18
_LINE_ENDS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"


class Match(NamedTuple):
    """A control sequence that reaches into an untrusted part.

    Attributes:
        part: The index of the first untrusted part that it reaches into.
        start: The index in that part where it begins; negative where it begins in a part before it.
        into: The place of its first character among those that one character of the text is folded to.
        text: The sequence as it is written.
    """

    part: int
    start: int
    into: int
    text: str

    @property
    def begin(self) -> int:
        """The index of its first character in the part."""
        return max(self.start, 0)

    def end_in(self, text: str) -> int:
        """Return the index behind its last character in the part; the rest of it may stand in later parts.

        Args:
            text: The text of the part.
        """
        return min(self.start + len(self.text), len(text))


class _Found(NamedTuple):
    """A control sequence that begins at a place of some parts.

    Attributes:
        text: The sequence as it is written.
        into: The place of its first character among those that one character of the text is folded to.
        last: The index of the part in which its last character stands.
        stop: The index behind its last character in that part.
    """

    text: str
    into: int
    last: int
    stop: int


class Controls:
    """A compiled set of control sequences.

    A sequence that begins with a letter or a digit, as ``USER:``, counts as it is written: ``user:`` is a word in many
    honest texts. All others count in any case, because some tokenizers fold it. Runs of blanks are equal. A single
    character is no sequence, because it cannot be broken; see :func:`is_breakable`.

    Args:
        sequences: The sequences, as they are written.
        headers: Texts that are structure at the start of a line, in any case, as ``### Response:``.
        reserved: Whether anything of the form ``<|name|>`` counts.

    Attributes:
        texts: The sequences and headers, folded, the longest first.
        reserved: Whether anything of the form ``<|name|>`` counts.
    """

    __slots__ = ("_any_case", "_begun", "_exact", "_known", "_lengths", "_longest", "_patterns", "reserved", "texts")

    def __init__(self, sequences: Iterable[str], headers: Iterable[str] = (), *, reserved: bool = True) -> None:
        texts, headers = _longest_first(sequences), _longest_first(headers)
        self.texts, self.reserved = (*texts, *headers), reserved
        fixed = [text for text in texts if not _BLANKS.search(text)]
        spaced = [text for text in texts if _BLANKS.search(text)]
        self._exact = frozenset(text for text in fixed if text[0].isalnum())
        self._any_case = frozenset(text.lower() for text in fixed if not text[0].isalnum())
        # All are looked up by the first two characters of a sequence, in lower case.
        self._lengths = {pair: sorted({*map(len, same)}, reverse=True) for pair, same in _by_pair(fixed).items()}
        patterns = _patterns(spaced, headers, reserved=reserved)
        self._patterns = {pair: re.compile(pattern) for pair, pattern in patterns.items()}
        pairs = {*_by_pair(headers), *(_RESERVED_PAIRS if reserved else ())}
        for text in texts:
            pairs.update((text[:2],) if text[0].isalnum() else _by_pair([text]))
        self._begun = _beginnings(pairs)
        # The same for text that is not ASCII, where all disguises of the first characters are known.
        disguised = {form: _NOTHING for first in self._begun for form in DISGUISES.get(first, "")}
        self._known = self._begun | disguised if self._begun.keys() <= DISGUISES.keys() else None
        # One more, because a header may have to end where a word does.
        self._longest = max(map(len, (*self.texts, LONGEST_RESERVED))) + 1

    def find(self, parts: Sequence[str], is_exempt: Callable[[int], bool] = lambda _: False) -> list[Match]:
        """Return the control sequences that reach into untrusted parts, in order; none overlaps the one before it.

        Args:
            parts: Trusted and untrusted text in turn.
            is_exempt: Returns True for the index of an untrusted part whose sequences stay.
        """
        matches: list[Match] = []
        done = (0, 0)
        for part, at in self._begin_in(parts):
            # Another sequence may begin inside a trusted one.
            for found in self._found_at(parts, part, at) if (part, at) >= done else ():
                touched = (
                    index
                    for index in range(part, found.last + 1)
                    if parts[index] and not is_trusted(index, parts[index]) and not is_exempt(index)
                )
                if (first := next(touched, None)) is not None:
                    matches.append(Match(first, at - sum(map(len, parts[part:first])), found.into, found.text))
                    done = found.last, found.stop
                    break
        return matches

    def _begin_in(self, parts: Sequence[str]) -> list[tuple[int, int]]:
        """Return the places, as part and index in it, where a sequence may begin that reaches into untrusted text.

        These are the places in untrusted text that hold two characters a sequence may begin with, and those from which
        on a trusted text is the beginning of a sequence. Most prompts have none, and nothing else of them is looked at.
        """
        values = parts[1::2]
        joined = "\0".join((*values, ""))
        begin: list[tuple[int, int]] = []
        if places := self._places(joined):
            ends = [*map(add, accumulate(map(len, values), initial=0), count())]
            for place in places:
                value = bisect_right(ends, place) - 1
                part, at = 2 * value + 1, place - ends[value]
                # Behind the last character of a value comes what is behind the value.
                behind = joined[place + 1] if place + 2 < ends[value + 1] else _character_behind(parts, part)
                if behind not in self._begun.get(joined[place], _NOTHING):
                    begin.append((part, at))
        # The same few literals stand between many values.
        opened = {literal: opening for literal in {*parts[0::2]} if (opening := _open_places(self, literal))}
        if opened:
            literals = ((part, opened.get(parts[part], ())) for part in range(0, len(parts), 2))
            begin = sorted((*begin, *((part, at) for part, opening in literals for at in opening)))
        return begin

    def _places(self, text: str) -> list[int]:
        """Return the places of a text where a sequence may begin, by its first two characters."""
        places: list[int] = []
        for first, harmless in self._firsts_in(text).items():
            at = text.find(first) if first in text else -1
            while at >= 0:
                if text[at + 1 : at + 2] not in harmless:
                    places.append(at)
                at = text.find(first, at + 1)
        return sorted(places) if len(places) > 1 else places

    def _firsts_in(self, text: str) -> Mapping[str, frozenset[str]]:
        """Return the characters of a text that sequences begin with, each with those that no sequence has behind it."""
        if text.isascii():
            return self._begun
        if self._known is not None:
            return self._known
        forms = (each for each in {*text} if not each.isascii() and not self._begun.keys().isdisjoint(fold(each)))
        return self._begun | dict.fromkeys(forms, _NOTHING)

    def _found_at(self, parts: Sequence[str], part: int, at: int) -> Iterator[_Found]:
        """Yield the control sequences that begin at a place: the longest at each character that is folded to there."""
        size = self._longest
        while True:
            text = _text_from(parts, part, at, size)
            folded = fold(text)
            # Characters that fold to none, and runs of blanks, make a sequence longer than it is.
            if len(text) < size or len(_BLANKS.sub(" ", folded)) >= self._longest:
                break
            size *= 4
        for into in range(len(fold(text[:1]))):
            end, is_header = self._match(folded, into)
            if end and not (is_header and not _is_line_start(parts, part, at)):
                written = next(origins(text, [end - 1])) + 1
                yield _Found(text[:written], into, *_place_behind(parts, part, at + written))

    def _match(self, folded: str, at: int) -> tuple[int, bool]:
        """Return the end of the longest sequence at a place of folded text, or 0, and whether it is a header."""
        pair = folded[at : at + 2].lower()
        for length in self._lengths.get(pair, ()):
            piece = folded[at : at + length]
            if piece in self._exact or piece.lower() in self._any_case:
                return at + len(piece), False
        pattern = self._patterns.get(pair)
        match = pattern.match(folded, at) if pattern else None
        return (match.end(), match.lastgroup == "header") if match else (0, False)

    def begins_in(self, text: str) -> bool:
        """Return True if a text holds a character that a control sequence may begin with."""
        return any(first in text for first in self._firsts_in(text))

    def open_places(self, literal: str) -> tuple[int, ...]:
        """Return the places from which on a text is the beginning of a sequence that the text behind it may end."""
        places: list[int] = []
        for place in reversed(self._places(f"{literal}\0")):
            rest = _BLANKS.sub(" ", fold(literal[place:])).lower()
            if len(rest) > self._longest + _MOST_CHARACTERS:
                break
            if any(self._goes_on(rest[into:]) for into in range(len(fold(literal[place])))):
                places.append(place)
        return tuple(reversed(places))

    def _goes_on(self, beginning: str) -> bool:
        """Return True if a sequence begins with a text, which is plain and in lower case, and goes on."""
        if self.reserved and _RESERVED_BEGUN.fullmatch(beginning):
            return True
        plain = (_BLANKS.sub(" ", text).lower() for text in self.texts)
        return any(len(text) > len(beginning) and text.startswith(beginning) for text in plain)

    def found(self, text: str) -> list[tuple[int, str]]:
        """Return the places and texts of the control sequences in a text, in plain and in disguise."""
        return [(match.start, match.text) for match in self.find(("", text))]

    def is_clean(self, text: str) -> bool:
        """Return True if a text holds no control sequence, in plain or in disguise."""
        return not self.found(text)

    def restore(self, text: str) -> str:
        """Return a text as it was before it was neutralised, but for JSON.

        Args:
            text: The text. A backslash that was there before, in the place of one of ours, goes too.
        """
        # Characters that fold to none, and runs of blanks, may make a sequence longer than it is.
        width = 8 * self._longest
        pieces: list[str] = []
        # From the end on, since a sequence may have a broken one within it: what stands behind is whole again.
        behind, end = "", len(text)
        at = text.rfind("\\")
        while at >= 0:
            piece = text[at:end]
            if at and self._begins_at(text, at - 1, (piece[1 : width + 1] + behind)[:width]):
                piece = piece[1:]
            pieces.append(piece)
            behind, end = (piece[:width] + behind)[:width], at
            at = text.rfind("\\", 0, at)
        return "".join(reversed([*pieces, text[:end]]))

    def _begins_at(self, text: str, at: int, behind: str) -> bool:
        """Return True if a control sequence begins at a place, with the text that would follow it."""
        end, is_header = self._match(fold(text[at] + behind), 0)
        return bool(end) and not (is_header and not _is_line_start((text,), 0, at))


@lru_cache(maxsize=1_000)
def _open_places(controls: Controls, literal: str) -> tuple[int, ...]:
    return controls.open_places(literal)


def _text_from(parts: Sequence[str], part: int, at: int, size: int) -> str:
    """Return the text from a place on, up to a number of characters."""
    text = parts[part][at : at + size]
    while len(text) < size and part + 1 < len(parts):
        part += 1
        text += parts[part][: size - len(text)]
    return text


def _place_behind(parts: Sequence[str], part: int, at: int) -> tuple[int, int]:
    """Return the part in which the character before an index stands, which is counted from the beginning of a part."""
    while at > len(parts[part]):
        at -= len(parts[part])
        part += 1
    return part, at


def is_breakable(sequence: str) -> bool:
    """Return True if a backslash within a control sequence leaves no such sequence: it has two characters or more.

    Args:
        sequence: The sequence; white space around it and characters that a normalizer drops do not count.
    """
    folded = fold(sequence).strip()
    return len(folded) > 1 and folded.strip("\\") != ""


def _longest_first(texts: Iterable[str]) -> list[str]:
    # Of two sequences with one beginning, the whole one is to be found.
    return sorted({fold(text) for text in texts if len(fold(text).strip()) > 1}, key=lambda text: (-len(text), text))


def _by_pair(texts: Iterable[str]) -> dict[str, list[str]]:
    """Group texts by their first two characters, in lower case; a blank as the second one is any blank."""
    by_pair: dict[str, list[str]] = {}
    for text in texts:
        pair = text[:2].lower()
        for second in " \t\u2581" if _BLANKS.match(pair, 1) else pair[1]:
            by_pair.setdefault(pair[0] + second, []).append(text)
    return by_pair


def _beginnings(pairs: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return the first characters of sequences, and those that no sequence has behind each of them.

    Characters that are not plain ASCII are none of these: a normalizer may drop them.

    Args:
        pairs: The first two characters of sequences, in lower case where any case counts.
    """
    begun: dict[str, frozenset[str]] = {}
    for pair in pairs:
        for first in {pair[0], pair[0].upper()}:
            begun[first] = begun.get(first, _PLAIN) - {pair[1], pair[1].upper()}
    return begun


def _character_behind(parts: Sequence[str], at: int) -> str:
    """Return the character behind a part, or one that may be any where the next part is empty."""
    return (parts[at + 1][:1] if at + 1 < len(parts) else "") or "\0"


def _patterns(spaced: Sequence[str], headers: Sequence[str], *, reserved: bool) -> dict[str, str]:
    """Return the patterns of sequences that hold blanks, of reserved tokens and of headers, by first two characters."""
    patterns: dict[str, list[str]] = {}
    for pair, same in _by_pair(spaced).items():
        patterns[pair] = [_pattern(text) if text[0].isalnum() else f"(?i:{_pattern(text)})" for text in same]
    for pair in _RESERVED_PAIRS if reserved else ():
        patterns.setdefault(pair, []).append(f"(?i:{_RESERVED})")
    # Headers come last: one within a line does not count, and is not to hide another sequence.
    for pair, same in _by_pair(headers).items():
        patterns.setdefault(pair, []).append(f"(?P<header>(?i:{'|'.join(map(_header_pattern, same))}))")
    return {pair: "|".join(same) for pair, same in patterns.items()}


def _pattern(text: str) -> str:
    """Return the pattern of a text in which any run of blanks is as good as another."""
    return f"{_BLANK}+".join(map(re.escape, _BLANKS.split(text)))


def _header_pattern(text: str) -> str:
    """Return the pattern of a header; of one that is made of words, the last has to be a whole one."""
    return _pattern(text) + (r"(?!\w)" if text[0].isalnum() and text[-1].isalnum() else "")


def _is_line_start(parts: Sequence[str], part: int, at: int) -> bool:
    """Return True if only blanks, and characters that fold to none, stand before a place in its line."""
    while part >= 0:
        for index in range(at - 1, -1, -1):
            if parts[part][index] in _LINE_ENDS:
                return True
            if fold(parts[part][index]).strip(" \t"):
                return False
        part -= 1
        at = len(parts[part])
    return True


@lru_cache(maxsize=64)
def controls_for(sequences: frozenset[str], headers: frozenset[str], *, reserved: bool = True) -> Controls:
    """The compiled set of control sequences; the last 64 sets are kept."""
    return Controls(sequences, headers, reserved=reserved)
