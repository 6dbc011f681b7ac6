"""Comparison of two prompts as lists of named parts."""

from __future__ import annotations

from difflib import SequenceMatcher, unified_diff
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

State: TypeAlias = Literal["added", "removed", "changed"]
_CONTEXT: Final = 3


class Part(NamedTuple):
    """A named part of a prompt, such as an input, a setting, a section or a slot.

    Attributes:
        name: The part's name. Several parts can have the same name, such as turns with the same role.
        text: The part's text.
    """

    name: str
    text: str


class Change(NamedTuple):
    """A change to one part of a prompt.

    Attributes:
        name: The part's name.
        state: ``added``, ``removed`` or ``changed``.
        before: The part's old text, which is empty if the part was added.
        after: The part's new text, which is empty if the part was removed.
    """

    name: str
    state: State
    before: str = ""
    after: str = ""

    @property
    def lines(self) -> tuple[str, ...]:
        """The changed lines, as a unified diff without file names."""
        return changed_lines(self.before, self.after)


def compare(before: Sequence[Part], after: Sequence[Part]) -> tuple[Change, ...]:
    """Compare the parts of two prompts.

    The parts of the two prompts are matched by name. If any name repeats, identical parts are matched first, and the
    remaining parts are then matched by name.

    Args:
        before: The parts of the first prompt.
        after: The parts of the second prompt.

    Returns:
        The changed and removed parts in the order of the first prompt, followed by the added parts. If any name
        repeats, each added part is listed at its position in the second prompt instead.
    """
    if before == after:
        return ()
    old, new = dict(before), dict(after)
    if (len(old), len(new)) != (len(before), len(after)):
        return tuple(_in_order(before, after))
    changes: list[Change] = []
    for name in {**old, **new}:
        if name not in new:
            changes.append(Change(name, "removed", old[name]))
        elif name not in old:
            changes.append(Change(name, "added", "", new[name]))
        elif old[name] != new[name]:
            changes.append(Change(name, "changed", old[name], new[name]))
    return tuple(changes)


def _in_order(before: Sequence[Part], after: Sequence[Part]) -> Iterator[Change]:
    for tag, i, j, k, m in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        new = [*after[k:m]]
        for old in before[i:j]:
            match = next((part for part in new if part.name == old.name), None)
            if match is None:
                yield Change(old.name, "removed", old.text)
                continue
            at = new.index(match)
            yield from (Change(part.name, "added", "", part.text) for part in new[:at])
            del new[: at + 1]
            if match.text != old.text:
                yield Change(old.name, "changed", old.text, match.text)
        yield from (Change(part.name, "added", "", part.text) for part in new)


def changed_lines(before: str, after: str, context: int = _CONTEXT) -> tuple[str, ...]:
    """Return the lines that differ between two texts, as a unified diff without file names.

    Args:
        before: The first text; an empty text has no lines.
        after: The second text.
        context: The number of unchanged lines to include around each change.
    """
    old, new = (text.split("\n") if text else [] for text in (before, after))
    return tuple(unified_diff(old, new, lineterm="", n=context))[2:]


def shared_length(before: str, after: str) -> int:
    """Return the length of the common prefix of two texts."""
    low, high = 0, min(len(before), len(after))
    if before[:high] == after[:high]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if before[low:middle] == after[low:middle] else (low, middle - 1)
    return low
