"""Control sequences made harmless, in text and in JSON, and the marks of where that was done."""

from __future__ import annotations

import json
import re
from array import array
from bisect import bisect_left, bisect_right
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Self, TypeAlias

from lazyprompt._base.json import JsonText
from lazyprompt.safety.folding import fold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lazyprompt.safety.find import Match

_JSON_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"')
_JSON_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|.)")

# The start and end of a neutralised sequence in a text, and the sequence as it was given.
TextMark: TypeAlias = tuple[int, int, str]
# What is put in place of what: from one index to another, this text.
_Edit: TypeAlias = tuple[int, int, str]


class Neutralised(str):
    """Text in which control sequences were neutralised.

    Args:
        text: The text.
        marks: Finds where they are: most prompts are sent, and nobody asks.
    """

    __slots__ = ("_find_marks",)
    _find_marks: Callable[[], Iterable[TextMark]]

    def __new__(cls, text: str, marks: Callable[[], Iterable[TextMark]]) -> Self:
        """Make the text."""
        made = super().__new__(cls, text)
        made._find_marks = marks
        return made

    def __getnewargs__(self) -> tuple[str, Callable[[], Iterable[TextMark]]]:  # type: ignore[override]  # of str, of which there is more here
        return str.__str__(self), self._find_marks

    @property
    def marks(self) -> tuple[TextMark, ...]:
        """The neutralised sequences, in order."""
        return (*self._find_marks(),)


class NeutralisedJson(Neutralised, JsonText):
    """JSON in which control sequences were neutralised."""

    __slots__ = ()


def neutralise(parts: Sequence[str], matches: Iterable[Match]) -> list[str]:
    r"""Return parts with control sequences broken, each in the first untrusted part that it reaches into.

    A backslash behind its first character breaks it: ``<|im_end|>`` becomes ``<\|im_end|>``. No tokenizer knows that
    form, no normalizer drops the backslash, and a reader still sees what was written. In JSON, the first character
    becomes JSON's own escape (``\u003c``), so that the value stays the same.

    Args:
        parts: The parts.
        matches: The sequences, in order.
    """
    neutralised = [*parts]
    for part, sequences in groupby(matches, key=attrgetter("part")):
        neutralised[int(part)] = _broken(neutralised[int(part)], [*sequences])
    return neutralised


def _broken(text: str, sequences: Sequence[Match]) -> Neutralised:
    """Break the sequences of a text, put together in one go."""
    is_json = isinstance(text, JsonText)
    edit = _json_editor(text) if is_json else _edit
    edits = [edit(text, sequence) for sequence in sequences]
    pieces: list[str] = []
    done = 0
    for begin, end, instead in edits:
        pieces += text[done:begin], instead
        done = end
    kind = NeutralisedJson if is_json else Neutralised
    return kind("".join(pieces) + text[done:], partial(_marks, text, sequences, edits))


def _marks(text: str, sequences: Sequence[Match], edits: Sequence[_Edit]) -> Iterator[TextMark]:
    """Yield the marks of the text that a pass made of another one; sequences that overlap have one mark.

    Args:
        text: The text before the pass.
        sequences: The sequences that were broken.
        edits: The edit that broke each of them.
    """
    # The start and end of each sequence, and by how much its text grows.
    spans = [
        (sequence.begin, sequence.end_in(text), len(instead) - end + begin)
        for sequence, (begin, end, instead) in zip(sequences, edits, strict=True)
    ]
    known = text.marks if isinstance(text, Neutralised) else ()
    joined: list[tuple[int, int, int]] = []
    for start, end, growth in sorted([*spans, *((start, end, 0) for start, end, _ in known)]):
        if joined and start < joined[-1][1]:
            before = joined.pop()
            joined.append((before[0], max(before[1], end), before[2] + growth))
        else:
            joined.append((start, end, growth))
    moved = 0
    for start, end, growth in joined:
        yield start + moved, end + moved + growth, _given(text, start, end, known)
        moved += growth


def _given(text: str, start: int, end: int, known: Sequence[TextMark]) -> str:
    """Return a stretch of a text as it was given."""
    given, done = "", start
    for begin, stop, raw in known[bisect_left(known, (start,)) :]:
        if begin >= end:
            break
        given += text[done:begin] + raw
        done = stop
    return given + text[done:end]


def _edit(_: str, sequence: Match) -> _Edit:
    """A backslash behind a sequence's first character, or before the first one it takes from the text."""
    begin = sequence.start
    if begin < 0:
        return 0, 0, "\\"
    if len(characters := fold(sequence.text[0])) > (broken := sequence.into + 1):
        # One character stands for several of the sequence, or for all of it: they are written out, to be broken apart.
        return begin, begin + 1, f"{characters[:broken]}\\{characters[broken:]}"
    return begin + 1, begin + 1, "\\"


def _json_editor(text: str) -> Callable[[str, Match], _Edit]:
    """Return an editor that breaks a sequence in JSON without a change of its value, by an escape in a string.

    A sequence of nothing but JSON's own escapes has one of them written by its number. One of nothing but brackets and
    the like gets a space, which JSON allows between them.
    """
    # Where strings, and escapes in them, begin and end in turn.
    strings, escapes = array("Q"), array("Q")
    for string in _JSON_STRING.finditer(text):
        begin, end = string.start() + 1, string.end() - 1
        strings.extend((begin, end))
        for escape in _JSON_ESCAPE.finditer(text, begin, end):
            escapes.extend(escape.span())

    def edit(text: str, sequence: Match) -> _Edit:
        escape: _Edit | None = None
        for index in range(sequence.begin, sequence.end_in(text)):
            at = bisect_right(escapes, index)
            if at % 2:
                begin, end = escapes[at - 1 : at + 1]
                escape = escape or (begin, end, _json_escape(json.loads(f'"{text[begin:end]}"')))
            elif bisect_right(strings, index) % 2:
                return index, index + 1, _json_escape(text[index])
        at = max(sequence.start + 1, 0)
        return escape or (at, at, " ")

    return edit


def _json_escape(character: str) -> str:
    """A character as JSON's escape; one beyond the basic plane as a pair of them."""
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
