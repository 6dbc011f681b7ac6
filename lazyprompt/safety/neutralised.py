"""Neutralising control sequences in text and JSON, with marks that record the positions of the sequences."""

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

    from lazyprompt.safety.find import ControlMatch

_JSON_STRING = re.compile(r'"[^"\\]*+(?>(?:\\.[^"\\]*+)*)"')
_JSON_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|.)")

# The start, the end and the original text of a neutralised sequence.
TextMark: TypeAlias = tuple[int, int, str]
# The start and the end of a text span to replace, and the replacement.
_Edit: TypeAlias = tuple[int, int, str]


class Neutralised(str):
    """Text in which control sequences were neutralised.

    Args:
        text: The text after neutralising.
        marks: A function that returns the position and the original text of each neutralised sequence. This function is
            called only when :attr:`marks` is read.
    """

    __slots__ = ("_find_marks",)
    _find_marks: Callable[[], Iterable[TextMark]]

    def __new__(cls, text: str, marks: Callable[[], Iterable[TextMark]]) -> Self:
        """Create a neutralised text without calling ``marks``."""
        made = super().__new__(cls, text)
        made._find_marks = marks
        return made

    def __getnewargs__(self) -> tuple[str, Callable[[], Iterable[TextMark]]]:  # type: ignore[override]  # str returns the text alone
        return str.__str__(self), self._find_marks

    @property
    def marks(self) -> tuple[TextMark, ...]:
        """The start, the end and the original text of each neutralised sequence, in text order."""
        return (*self._find_marks(),)


class NeutralisedJson(Neutralised, JsonText):
    """JSON in which control sequences were neutralised."""

    __slots__ = ()


def neutralise(parts: Sequence[str], matches: Iterable[ControlMatch]) -> list[str]:
    r"""Break up each control sequence in the first untrusted part that contains any of its characters.

    A backslash after the first character breaks up a control sequence, so that ``<|im_end|>`` becomes ``<\|im_end|>``.
    No tokenizer contains the escaped sequence as a token, no normalizer drops the backslash, and the sequence stays
    readable. In JSON, the first character of a control sequence is written as an escape (``\u003c``), so that the JSON
    value stays the same.

    Args:
        parts: The parts of a prompt.
        matches: The control sequences in the parts, in order.
    """
    neutralised = [*parts]
    for part, sequences in groupby(matches, key=attrgetter("part")):
        neutralised[int(part)] = _broken(neutralised[int(part)], [*sequences])
    return neutralised


def _broken(text: str, sequences: Sequence[ControlMatch]) -> Neutralised:
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


def _marks(text: str, sequences: Sequence[ControlMatch], edits: Sequence[_Edit]) -> Iterator[TextMark]:
    """Yield the position and original text of each neutralised sequence; overlapping sequences share one mark.

    Args:
        text: The text before neutralising.
        sequences: The neutralised control sequences, in the order in which they appear in the text.
        edits: The edit that neutralised each control sequence, in the order of ``sequences``.
    """
    # The start and end of each control sequence, and the number of characters that neutralising added to the sequence.
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
    """Return the original text of a span, undoing the edits from earlier passes."""
    given, done = "", start
    for begin, stop, raw in known[bisect_left(known, (start,)) :]:
        if begin >= end:
            break
        given += text[done:begin] + raw
        done = stop
    return given + text[done:end]


def _edit(_: str, sequence: ControlMatch) -> _Edit:
    """Return an edit that inserts a backslash into a control sequence.

    The backslash follows the sequence's first character. If the control sequence begins in an earlier text part, the
    backslash is inserted at the start of the text.
    """
    begin = sequence.start
    if begin < 0:
        return 0, 0, "\\"
    if len(characters := fold(sequence.text[0])) > (broken := sequence.into + 1):
        # If the original character folds to several characters, insert the backslash between the folded characters.
        return begin, begin + 1, f"{characters[:broken]}\\{characters[broken:]}"
    return begin + 1, begin + 1, "\\"


def _json_editor(text: str) -> Callable[[str, ControlMatch], _Edit]:
    r"""Return a function that breaks up a control sequence in JSON text without changing the JSON value.

    The returned function escapes one character of a control sequence inside a JSON string. If all characters of the
    control sequence are already escaped, one of the escapes is rewritten as a ``\u`` escape. A control sequence outside
    JSON strings is broken up by inserting a space, which JSON allows there.
    """
    # The alternating start and end indices of all JSON strings, and those of all escape sequences inside the JSON
    # strings.
    strings, escapes = array("Q"), array("Q")
    for string in _JSON_STRING.finditer(text):
        begin, end = string.start() + 1, string.end() - 1
        strings.extend((begin, end))
        for escape in _JSON_ESCAPE.finditer(text, begin, end):
            escapes.extend(escape.span())

    def edit(text: str, sequence: ControlMatch) -> _Edit:
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
    """Return a character's JSON escape; for a character beyond U+FFFF, this is a surrogate pair."""
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
