"""Where a conversation may be cut: the oldest goes first, a call and its results go together."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from lazyprompt.messages import ToolResultBlock, ToolUseBlock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyprompt.formatters._turns import Turn


def cuts(turns: Sequence[Turn]) -> list[tuple[int, int]]:
    """All ways to leave out the oldest turns, the one that leaves out least first.

    Args:
        turns: The turns.

    Returns:
        For each way the index at which leaving out begins, behind the system text at the front, and the index at which
        it ends. A turn goes by itself, a call with all its results; the newest of these always stays.
    """
    front = 0
    while (
        front < len(turns) and turns[front][0] in ("system", "developer") and not _blocks(turns[front], ToolResultBlock)
    ):
        front += 1
    reach = _reach(turns)
    ends: list[tuple[int, int]] = []
    furthest = front
    for at in range(front, len(turns) - 1):
        furthest = max(furthest, reach.get(at, at))
        if furthest <= at:
            ends.append((front, at + 1))
    return ends


def _reach(turns: Sequence[Turn]) -> dict[int, int]:
    """For each turn with calls the index of the turn with the last of their results."""
    waiting: dict[str, deque[int]] = {}
    reach: dict[int, int] = {}
    for at, turn in enumerate(turns):
        for call in _blocks(turn, ToolUseBlock):
            waiting.setdefault(call.id, deque()).append(at)
        for result in _blocks(turn, ToolResultBlock):
            if waiting.get(result.id):
                reach[waiting[result.id].popleft()] = at
    return reach


def _blocks(turn: Turn, kind: type[ToolUseBlock | ToolResultBlock]) -> list[ToolUseBlock | ToolResultBlock]:
    return [block for block in turn[2] if isinstance(block, kind)] if isinstance(turn[2], tuple) else []
