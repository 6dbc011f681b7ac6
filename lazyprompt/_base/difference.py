"""Comparison of two prompts: lists of named parts, and what changed from one to the other."""

from __future__ import annotations

from difflib import SequenceMatcher, unified_diff
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

State: TypeAlias = Literal["added", "removed", "changed"]
_CONTEXT: Final = 3


class Part(NamedTuple):
    """A named part of a prompt: an input, a setting, a section, a slot.

    Attributes:
        name: The name. Several parts may have the same name, such as the turns of a role.
        text: The text.
    """

    name: str
    text: str


class Change(NamedTuple):
    """The change of a part.

    Attributes:
        name: The name of the part.
        state: ``added``, ``removed`` or ``changed``.
        before: The text before; empty for an added part.
        after: The text after; empty for a removed part.
    """

    name: str
    state: State
    before: str = ""
    after: str = ""

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines that differ, as a unified diff without file names."""
        return changed_lines(self.before, self.after)


def compare(before: Sequence[Part], after: Sequence[Part]) -> tuple[Change, ...]:
    """Compare two lists of parts.

    Parts are matched by their names. If a name repeats, equal parts are matched first, and parts between them by name.

    Args:
        before: The parts of the first prompt.
        after: The parts of the second prompt.

    Returns:
        The parts that differ: in the order of the first list, then parts that only the second one has. If a name
        repeats, an added part is listed where it was added.
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
            # The parts before the match have no counterpart.
            at = new.index(match)
            yield from (Change(part.name, "added", "", part.text) for part in new[:at])
            del new[: at + 1]
            if match.text != old.text:
                yield Change(old.name, "changed", old.text, match.text)
        yield from (Change(part.name, "added", "", part.text) for part in new)


def changed_lines(before: str, after: str, context: int = _CONTEXT) -> tuple[str, ...]:
    """Return the lines of two texts that differ, as a unified diff without file names.

    Args:
        before: The first text; an empty text has no line.
        after: The second text.
        context: The number of equal lines around each change.
    """
    old, new = (text.split("\n") if text else [] for text in (before, after))
    return tuple(unified_diff(old, new, lineterm="", n=context))[2:]


def shared_length(before: str, after: str) -> int:
    """Return the length of the common beginning of two texts."""
    low, high = 0, min(len(before), len(after))
    if before[:high] == after[:high]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if before[low:middle] == after[low:middle] else (low, middle - 1)
    return low
