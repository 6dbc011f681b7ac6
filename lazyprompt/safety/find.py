"""Detection of control sequences in the parts of a prompt.

:meth:`Controls.find` joins the parts, folds the text as a normalizing tokenizer would, and returns the sequences that
contain untrusted text. :func:`lazyprompt.safety.neutralised.neutralise` breaks up these sequences.
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

# Reserved tokens look like ``<|name|>`` or have a numbered name. Many reserved tokens occur in no chat template.
NAME = r"[^<>|\s\\]{1,64}"
NUMBERED = ("unused", "reserved_", "special_", "extra_id_")
_RESERVED = rf"<(?:\|{NAME}\||(?:{'|'.join(NUMBERED)})[0-9]{{1,5}})>"
_RESERVED_PAIRS = ("<|", *(f"<{name[0]}" for name in NUMBERED))
# Matches any incomplete reserved token.
_RESERVED_BEGUN = re.compile(rf"<(?:\|(?:{NAME}\|?)?|(?:{'|'.join(NUMBERED)})[0-9]{{0,5}})?")
LONGEST_RESERVED = f"<|{'x' * 64}|>"
# Interchangeable blanks: tokenizers may convert spaces to U+2581 or back, and may collapse runs of spaces.
_BLANK = "[ \t\u2581]"
_BLANKS = re.compile(f"{_BLANK}+")
_NOTHING = frozenset[str]()
_PLAIN = frozenset(("", *printable[:-2]))
# The maximum number of characters to which a single character can fold.
_MOST_CHARACTERS = 18
_LINE_ENDS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"


class ControlMatch(NamedTuple):
    """A control sequence that contains untrusted text.

    Attributes:
        part: The index of the first untrusted part that contains any character of the sequence.
        start: The index in that part where the sequence begins; negative if it begins in an earlier part.
        into: The start of the sequence in the folded form of ``text[0]``; 0 unless that form has several characters.
        text: The control sequence as it appears in the original text.
    """

    part: int
    start: int
    into: int
    text: str

    @property
    def begin(self) -> int:
        """The index of the sequence's first character in the part."""
        return max(self.start, 0)

    def end_in(self, text: str) -> int:
        """Return the index after the sequence's last character in the part; the sequence may continue in later parts.

        Args:
            text: The text of the part.
        """
        return min(self.start + len(self.text), len(text))


class _Found(NamedTuple):
    """A control sequence that begins at a given position.

    Attributes:
        text: The control sequence as it appears in the original text.
        into: The start of the sequence in the folded form of ``text[0]``; 0 unless that form has several characters.
        last: The index of the part that contains the sequence's last character.
        stop: The index after the sequence's last character in the part ``last``.
    """

    text: str
    into: int
    last: int
    stop: int


class Controls:
    """A compiled set of control sequences.

    A sequence that begins with a letter or digit, such as ``USER:``, is case-sensitive, because ``user:`` is common in
    ordinary text. All other sequences are case-insensitive, because some tokenizers fold case. Blanks are spaces, tabs
    and U+2581; one or more blanks in a control sequence match one or more blanks in the searched text. A
    single-character sequence is ignored, because a backslash can't break it up; see :func:`is_breakable`.

    Args:
        sequences: The control sequences.
        headers: The headers, such as ``### Response:``, which are matched case-insensitively and only at the start of a
            line.
        reserved: True to treat any text of the form ``<|name|>`` as a control sequence.

    Attributes:
        texts: The control sequences after Unicode folding, followed by the folded headers. Both groups are sorted from
            longest to shortest.
        reserved: True if any text of the form ``<|name|>`` is a control sequence.
    """

    __slots__ = ("_any_case", "_begun", "_exact", "_known", "_lengths", "_longest", "_patterns", "reserved", "texts")

    def __init__(self, sequences: Iterable[str], headers: Iterable[str] = (), *, reserved: bool = True) -> None:
        texts, headers = _longest_first(sequences), _longest_first(headers)
        self.texts, self.reserved = (*texts, *headers), reserved
        fixed = [text for text in texts if not _BLANKS.search(text)]
        spaced = [text for text in texts if _BLANKS.search(text)]
        self._exact = frozenset(text for text in fixed if text[0].isalnum())
        self._any_case = frozenset(text.lower() for text in fixed if not text[0].isalnum())
        # The keys of the lookup tables are the first two characters of the control sequences, in lower case.
        self._lengths = {pair: sorted({*map(len, same)}, reverse=True) for pair, same in _by_pair(fixed).items()}
        patterns = _patterns(spaced, headers, reserved=reserved)
        self._patterns = {pair: re.compile(pattern) for pair, pattern in patterns.items()}
        pairs = {*_by_pair(headers), *(_RESERVED_PAIRS if reserved else ())}
        for text in texts:
            pairs.update((text[:2],) if text[0].isalnum() else _by_pair([text]))
        self._begun = _beginnings(pairs)
        # The lookup table for non-ASCII text, or None if ``DISGUISES`` lacks the first character of a control sequence.
        disguised = {form: _NOTHING for first in self._begun for form in DISGUISES.get(first, "")}
        self._known = self._begun | disguised if self._begun.keys() <= DISGUISES.keys() else None
        # Include one more character to check that a header ends at a word boundary.
        self._longest = max(map(len, (*self.texts, LONGEST_RESERVED))) + 1

    def find(self, parts: Sequence[str], is_exempt: Callable[[int], bool] = lambda _: False) -> list[ControlMatch]:
        """Return the control sequences that contain untrusted text, in order and without overlaps.

        Args:
            parts: The text as alternating trusted and untrusted parts.
            is_exempt: A function that returns True for the index of an untrusted part to ignore.
        """
        matches: list[ControlMatch] = []
        done = (0, 0)
        for part, at in self._begin_in(parts):
            # Search inside trusted sequences too, because an untrusted sequence may begin there.
            for found in self._found_at(parts, part, at) if (part, at) >= done else ():
                touched = (
                    index
                    for index in range(part, found.last + 1)
                    if parts[index] and not is_trusted(index, parts[index]) and not is_exempt(index)
                )
                if (first := next(touched, None)) is not None:
                    matches.append(ControlMatch(first, at - sum(map(len, parts[part:first])), found.into, found.text))
                    done = found.last, found.stop
                    break
        return matches

    def _begin_in(self, parts: Sequence[str]) -> list[tuple[int, int]]:
        """Return each position (part, index) at which a control sequence that contains untrusted text may begin.

        A sequence may begin wherever its first two characters occur in untrusted text, or in trusted text that ends
        with the beginning of a sequence. Most prompts contain no such position and need no further search.
        """
        values = parts[1::2]
        joined = "\0".join((*values, ""))
        begin: list[tuple[int, int]] = []
        if places := self._places(joined):
            ends = [*map(add, accumulate(map(len, values), initial=0), count())]
            for place in places:
                value = bisect_right(ends, place) - 1
                part, at = 2 * value + 1, place - ends[value]
                # At the end of a slot's value, the next character is in the following part of the prompt.
                behind = joined[place + 1] if place + 2 < ends[value + 1] else _character_behind(parts, part)
                if behind not in self._begun.get(joined[place], _NOTHING):
                    begin.append((part, at))
        # Check each distinct literal once, because templates often repeat a literal between values.
        opened = {literal: opening for literal in {*parts[0::2]} if (opening := _open_places(self, literal))}
        if opened:
            literals = ((part, opened.get(parts[part], ())) for part in range(0, len(parts), 2))
            begin = sorted((*begin, *((part, at) for part, opening in literals for at in opening)))
        return begin

    def _places(self, text: str) -> list[int]:
        """Return the indices in a text where a control sequence may begin, based on the first two characters."""
        places: list[int] = []
        for first, harmless in self._firsts_in(text).items():
            at = text.find(first) if first in text else -1
            while at >= 0:
                if text[at + 1 : at + 2] not in harmless:
                    places.append(at)
                at = text.find(first, at + 1)
        return sorted(places) if len(places) > 1 else places

    def _firsts_in(self, text: str) -> Mapping[str, frozenset[str]]:
        """Map each possible first character of a sequence to the characters that never follow it in a sequence."""
        if text.isascii():
            return self._begun
        if self._known is not None:
            return self._known
        forms = (each for each in {*text} if not each.isascii() and not self._begun.keys().isdisjoint(fold(each)))
        return self._begun | dict.fromkeys(forms, _NOTHING)

    def _found_at(self, parts: Sequence[str], part: int, at: int) -> Iterator[_Found]:
        """Yield the control sequences that begin at index ``at`` of the part with index ``part``.

        If the character at ``at`` folds to several characters, a control sequence may begin at each folded character.
        """
        size = self._longest
        while True:
            text = _text_from(parts, part, at, size)
            folded = fold(text)
            # A control sequence can be longer before folding, because invisible characters and blanks may be inserted.
            if len(text) < size or len(_BLANKS.sub(" ", folded)) >= self._longest:
                break
            size *= 4
        for into in range(len(fold(text[:1]))):
            end, is_header = self._match(folded, into)
            if end and not (is_header and not _is_line_start(parts, part, at)):
                written = next(origins(text, [end - 1])) + 1
                yield _Found(text[:written], into, *_place_behind(parts, part, at + written))

    def _match(self, folded: str, at: int) -> tuple[int, bool]:
        """Find the longest control sequence that begins at index ``at`` of the folded text.

        Return the end index of the control sequence, or 0 if there is none, and True if the control sequence is a
        header.
        """
        pair = folded[at : at + 2].lower()
        for length in self._lengths.get(pair, ()):
            piece = folded[at : at + length]
            if piece in self._exact or piece.lower() in self._any_case:
                return at + len(piece), False
        pattern = self._patterns.get(pair)
        match = pattern.match(folded, at) if pattern else None
        return (match.end(), match.lastgroup == "header") if match else (0, False)

    def begins_in(self, text: str) -> bool:
        """Return True if a text contains a character with which a control sequence may begin."""
        return any(first in text for first in self._firsts_in(text))

    def open_places(self, literal: str) -> tuple[int, ...]:
        """Return the indices at which a literal contains an incomplete sequence that later text could complete."""
        places: list[int] = []
        for place in reversed(self._places(f"{literal}\0")):
            rest = _BLANKS.sub(" ", fold(literal[place:])).lower()
            if len(rest) > self._longest + _MOST_CHARACTERS:
                break
            if any(self._goes_on(rest[into:]) for into in range(len(fold(literal[place])))):
                places.append(place)
        return tuple(reversed(places))

    def _goes_on(self, beginning: str) -> bool:
        """Return True if a lower-case text is the beginning of a sequence, but not the whole sequence."""
        if self.reserved and _RESERVED_BEGUN.fullmatch(beginning):
            return True
        plain = (_BLANKS.sub(" ", text).lower() for text in self.texts)
        return any(len(text) > len(beginning) and text.startswith(beginning) for text in plain)

    def found(self, text: str) -> list[tuple[int, str]]:
        """Return the index and text of each control sequence in a text, whether plain or disguised."""
        return [(match.start, match.text) for match in self.find(("", text))]

    def is_clean(self, text: str) -> bool:
        """Return True if a text contains no control sequence, plain or disguised."""
        return not self.found(text)

    def restore(self, text: str) -> str:
        """Restore the neutralised control sequences in a text that is not JSON.

        Args:
            text: The neutralised text. A backslash in a control sequence is removed even if the original text contained
                it.
        """
        # A control sequence can be longer before folding, so compare up to eight times the length of the longest folded
        # sequence.
        width = 8 * self._longest
        pieces: list[str] = []
        # Search backwards, because a nested sequence must be restored before the sequence around it.
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
        """Return True if a control sequence begins at an index; ``behind`` is the text after that index."""
        end, is_header = self._match(fold(text[at] + behind), 0)
        return bool(end) and not (is_header and not _is_line_start((text,), 0, at))


@lru_cache(maxsize=1_000)
def _open_places(controls: Controls, literal: str) -> tuple[int, ...]:
    return controls.open_places(literal)


def _text_from(parts: Sequence[str], part: int, at: int, size: int) -> str:
    """Return up to ``size`` characters of text, starting at an index in a part."""
    text = parts[part][at : at + size]
    while len(text) < size and part + 1 < len(parts):
        part += 1
        text += parts[part][: size - len(text)]
    return text


def _place_behind(parts: Sequence[str], part: int, at: int) -> tuple[int, int]:
    """Find the text part that contains a character.

    Return the index of this part and the character's index in it, given the character's index ``at`` counted from the
    start of the text part ``part``.
    """
    while at > len(parts[part]):
        at -= len(parts[part])
        part += 1
    return part, at


def is_breakable(sequence: str) -> bool:
    """Return True if a backslash can break up a control sequence, which must have at least two characters.

    Args:
        sequence: The sequence; surrounding white space and characters that a normalizer drops are ignored.
    """
    folded = fold(sequence).strip()
    return len(folded) > 1 and folded.strip("\\") != ""


def _longest_first(texts: Iterable[str]) -> list[str]:
    # Sort longer sequences first, so that they match before their own prefixes.
    return sorted({fold(text) for text in texts if len(fold(text).strip()) > 1}, key=lambda text: (-len(text), text))


def _by_pair(texts: Iterable[str]) -> dict[str, list[str]]:
    """Group texts by their first two characters, in lower case; a second character that is blank matches any blank."""
    by_pair: dict[str, list[str]] = {}
    for text in texts:
        pair = text[:2].lower()
        for second in " \t\u2581" if _BLANKS.match(pair, 1) else pair[1]:
            by_pair.setdefault(pair[0] + second, []).append(text)
    return by_pair


def _beginnings(pairs: Iterable[str]) -> dict[str, frozenset[str]]:
    """Map the first character of each control sequence to the characters that never follow it in a control sequence.

    The returned sets contain only ASCII characters, because a tokenizer's normalizer may drop any other character.

    Args:
        pairs: The first two characters of each control sequence, in lower case if the sequence is case-insensitive.
    """
    begun: dict[str, frozenset[str]] = {}
    for pair in pairs:
        for first in {pair[0], pair[0].upper()}:
            begun[first] = begun.get(first, _PLAIN) - {pair[1], pair[1].upper()}
    return begun


def _character_behind(parts: Sequence[str], at: int) -> str:
    """Return the next text part's first character; if that part is empty, return NUL, which never rules out a match."""
    return (parts[at + 1][:1] if at + 1 < len(parts) else "") or "\0"


def _patterns(spaced: Sequence[str], headers: Sequence[str], *, reserved: bool) -> dict[str, str]:
    """Return patterns for reserved tokens, headers and sequences with blanks, keyed by their first two characters."""
    patterns: dict[str, list[str]] = {}
    for pair, same in _by_pair(spaced).items():
        patterns[pair] = [_pattern(text) if text[0].isalnum() else f"(?i:{_pattern(text)})" for text in same]
    for pair in _RESERVED_PAIRS if reserved else ():
        patterns.setdefault(pair, []).append(f"(?i:{_RESERVED})")
    # Try headers last: a header in the middle of a line is ignored, and must not hide another sequence.
    for pair, same in _by_pair(headers).items():
        patterns.setdefault(pair, []).append(f"(?P<header>(?i:{'|'.join(map(_header_pattern, same))}))")
    return {pair: "|".join(same) for pair, same in patterns.items()}


def _pattern(text: str) -> str:
    """Return a regular expression for a control sequence; one or more blanks match one or more blanks."""
    return f"{_BLANK}+".join(map(re.escape, _BLANKS.split(text)))


def _header_pattern(text: str) -> str:
    """Return a pattern for a header, which must end at a word boundary if it begins and ends with a letter or digit."""
    return _pattern(text) + (r"(?!\w)" if text[0].isalnum() and text[-1].isalnum() else "")


def _is_line_start(parts: Sequence[str], part: int, at: int) -> bool:
    """Return True if a position is at the start of its line, ignoring blanks and characters that folding drops."""
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
    """Return the compiled set of control sequences; the last 64 sets are cached."""
    return Controls(sequences, headers, reserved=reserved)
