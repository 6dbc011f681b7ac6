"""Search for the number of units to drop."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def fewest(count: int, cost: Callable[[int], int], target: int) -> int | None:
    """Return the fewest pieces that must go, found by halving.

    Args:
        count: The number of pieces.
        cost: What remains costs when so many have gone; it should not grow with them.
        target: The most it may cost.

    Returns:
        How many go: with them the cost is at most ``target``, with one less it is more. ``None`` where it is more with
        all gone.
    """
    found = bisect_left(range(count + 1), -target, key=lambda gone: -cost(gone))
    return found if found <= count else None
