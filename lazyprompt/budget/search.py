"""Binary search for the minimum number of pieces to drop from a text or a conversation."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def find_fewest(count: int, cost: Callable[[int], int], target: int) -> int | None:
    """Find the minimum number of pieces to drop to reach a target cost, by binary search.

    Args:
        count: The number of pieces of the text or conversation.
        cost: A function that receives the number of dropped pieces and returns the cost of the remaining pieces. The
            search assumes that dropping more pieces of the text or conversation never increases the cost.
        target: The maximum cost.

    Returns:
        The minimum number of pieces to drop so that the cost is at most ``target``; None if the cost is higher even
        after all pieces are dropped.
    """
    found = bisect_left(range(count + 1), -target, key=lambda gone: -cost(gone))
    return found if found <= count else None
