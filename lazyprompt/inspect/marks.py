"""Where control sequences were neutralised, or would be: two ways of writing one prompt, compared part by part."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lazyprompt.prompt import Rendered

# How much of a sequence is shown that has no end of its own.
_SHOWN = 24
_ENDS = frozenset(">]}】▁\n")
# An edit takes at most one sign away, and writes no more than these.
_WIDEST = 64
# So many signs that agree behind an edit say that it is over.
_AGREED = 8


class Mark(NamedTuple):
    """A control sequence in untrusted text.

    Attributes:
        slot: Where it stands.
        start: Where it begins in the flat prompt, in signs.
        end: Where it ends.
        raw: How it was given.
        safe: How it is when it is neutralised.
    """

    slot: str
    start: int
    end: int
    raw: str
    safe: str


class _Edit(NamedTuple):
    """A piece of a text, and what stands in its place in the other."""

    start: int
    end: int
    other_start: int
    other_end: int


def neutralised(raw: Rendered, safe: Rendered, *, shown_safe: bool) -> tuple[Mark, ...]:
    """The control sequences of a prompt, in order.

    Args:
        raw: The prompt with its values as they were given.
        safe: The prompt with them neutralised.
        shown_safe: Whether the marks are places in ``safe``, else in ``raw``.

    Returns:
        The marks; none where the two are not laid out alike, as a budget may have cut one of them elsewhere.
    """
    if raw.slots != safe.slots:
        return ()
    marks: list[Mark] = []
    done = 0
    for given, made, slot in zip(raw.parts, safe.parts, raw.slots, strict=True):
        if given != made:
            marks += (_mark(given, made, edit, slot, done, shown_safe=shown_safe) for edit in _edits(given, made))
        done += len(made if shown_safe else given)
    return tuple(marks)


def _mark(raw: str, safe: str, edit: _Edit, slot: str, done: int, *, shown_safe: bool) -> Mark:
    """The mark of an edit: from the sign before it to the end of the sequence."""
    begin = min(1, edit.start)
    behind = _behind(raw, edit.end)
    written = raw[edit.start - begin : edit.end + behind]
    sent = safe[edit.other_start - begin : edit.other_end + behind]
    start = done + (edit.other_start if shown_safe else edit.start) - begin
    return Mark(slot, start, start + len(sent if shown_safe else written), written, sent)


def _behind(text: str, at: int) -> int:
    """How many signs of a sequence stand behind the edit."""
    rest = text[at : at + _SHOWN]
    end = next((place for place, sign in enumerate(rest) if sign in _ENDS), len(rest))
    return end + 1 if end < len(rest) and rest[end] != "\n" else end


def _edits(raw: str, safe: str) -> Iterator[_Edit]:
    """What was taken out and put in, from the beginning on."""
    at = other = 0
    while True:
        same = _same(raw, at, safe, other)
        at, other = at + same, other + same
        if at >= len(raw) or other >= len(safe):
            return
        taken, put = max(
            ((taken, put) for put in range(1, _WIDEST) for taken in (0, 1)),
            key=lambda edit: (_agreed(raw, at + edit[0], safe, other + edit[1]), -edit[1]),
        )
        yield _Edit(at, min(at + taken, len(raw)), other, min(other + put, len(safe)))
        at, other = at + taken, other + put


def _agreed(raw: str, at: int, safe: str, other: int) -> int:
    """How well two texts agree from two places on; best where both are at their end."""
    if at == len(raw) and other == len(safe):
        return _AGREED
    return _same(raw[at : at + _AGREED], 0, safe[other : other + _AGREED], 0)


def _same(one: str, at: int, other: str, place: int) -> int:
    """How many signs two texts have in common from two places on: found by halves, as long runs are compared whole."""
    low, high = 0, min(len(one) - at, len(other) - place)
    if high <= 0:
        return 0
    if one[at : at + high] == other[place : place + high]:
        return high
    while high - low > 1:
        half = (low + high) // 2
        if one[at + low : at + half] == other[place + low : place + half]:
            low = half
        else:
            high = half
    return low
