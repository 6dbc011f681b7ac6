"""Where control sequences were neutralised, or would be: two ways of writing one prompt, compared part by part."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lazyprompt.messages.prompt import Rendered

# How much of a sequence is shown that has no end of its own.
_SHOWN = 24
_ENDS = frozenset(">]}】▁\n")
# What makes a sequence harmless is a backslash behind its first sign, or JSON's escape in the place of that sign.
_BREAKS = "\\"
_ESCAPE = 6
# What else may have been done at a place, the least first: signs taken out, and signs put in. A sign that is a control
# sequence in disguise is written as what it stands for.
_TRIED = tuple((taken, put) for put in range(1, 64) for taken in (0, 1))
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
        The marks, none of which overlap; nothing where the two are not laid out alike, as a budget may have cut one of
        them elsewhere.
    """
    if raw.slots != safe.slots:
        return ()
    marks: list[Mark] = []
    done = 0
    for given, made, slot in zip(raw.parts, safe.parts, raw.slots, strict=True):
        if given != made:
            edits = [*_edits(given, made)]
            if not all(_BREAKS in made[edit.other_start : edit.other_end] for edit in edits):
                return ()
            for each in _together(given, edits):
                start = done + (each.other_start if shown_safe else each.start)
                end = done + (each.other_end if shown_safe else each.end)
                written, sent = given[each.start : each.end], made[each.other_start : each.other_end]
                marks.append(Mark(slot, start, end, written, sent))
        done += len(made if shown_safe else given)
    return tuple(marks)


def _together(raw: str, edits: Iterable[_Edit]) -> Iterator[_Edit]:
    """The edits, each with the whole of its sequence; those within one sequence are one."""
    found: _Edit | None = None
    for edit in edits:
        # Where nothing was taken out, the sequence begins with the sign before.
        before = min(1, edit.start) if edit.start == edit.end else 0
        behind = _behind(raw, edit.end)
        whole = _Edit(edit.start - before, edit.end + behind, edit.other_start - before, edit.other_end + behind)
        if found is not None and whole.start < found.end:
            found = _Edit(found.start, whole.end, found.other_start, whole.other_end)
            continue
        if found is not None:
            yield found
        found = whole
    if found is not None:
        yield found


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
        if at == len(raw) and other == len(safe):
            return
        taken, put = _edit(raw, at, safe, other) if other < len(safe) else (len(raw) - at, 0)
        yield _Edit(at, at + taken, other, other + put)
        at, other = at + taken, other + put


def _edit(raw: str, at: int, safe: str, other: int) -> tuple[int, int]:
    """How much was taken out at a place, and how much put in."""
    sign = raw[at : at + 1]
    if safe[other] == _BREAKS and safe[other + 1 : other + 2] == sign:
        return 0, 1
    if sign and safe.startswith(f"\\u{ord(sign):04x}", other):
        return 1, _ESCAPE
    return _best_edit(raw, at, safe, other)


def _best_edit(raw: str, at: int, safe: str, other: int) -> tuple[int, int]:
    """The least edit behind which two texts agree best."""
    most = len(raw) - at, len(safe) - other
    found, best = most, 0
    for taken, put in _TRIED:
        if taken > most[0] or put > most[1]:
            continue
        agreed = _agreed(raw, at + taken, safe, other + put)
        if agreed > best:
            found, best = (taken, put), agreed
        if best == _AGREED:
            break
    return found


def _agreed(raw: str, at: int, safe: str, other: int) -> int:
    """How well two texts agree from two places on; best where both are at their end."""
    if at == len(raw) and other == len(safe):
        return _AGREED
    return _same(raw[at : at + _AGREED], 0, safe[other : other + _AGREED], 0)


def _same(one: str, at: int, other: str, place: int) -> int:
    """How many signs two texts have in common from two places on: looked for in steps that grow, then by halves."""
    most = min(len(one) - at, len(other) - place)
    same, step = 0, _AGREED
    while same < most:
        high = min(same + step, most)
        if one[at + same : at + high] == other[place + same : place + high]:
            same, step = high, 2 * step
            continue
        while high - same > 1:
            half = (same + high) // 2
            if one[at + same : at + half] == other[place + same : place + half]:
                same = half
            else:
                high = half
        break
    return same
