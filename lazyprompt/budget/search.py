"""Search for the number of units to drop, with as few counts of the whole as possible."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# So many times the next guess is made from the last one; after that, every other time the rest is halved.
_GUESSES = 6


def fewest(sizes: Sequence[int], cost: Callable[[int], int], target: int, full: int, rest: int = 0) -> int | None:
    """Return the fewest pieces that must go.

    Each guess supposes that cost goes with size; what a guess costs corrects the next. Two or three guesses will do
    where that is nearly so, a logarithm of them does in any case.

    Args:
        sizes: The pieces' rough sizes, in any unit, in the order in which they go.
        cost: What remains costs when so many have gone; it should not grow with them.
        target: The most it may cost.
        full: What the whole costs.
        rest: The rough size of what never goes.

    Returns:
        How many go: with them the cost is at most ``target``, with one less it is more. ``None`` where it is more with
        all gone.
    """
    if full <= target:
        return 0
    if not sizes:
        return None
    sums = [0, *accumulate(max(1, size) for size in sizes)]
    # low does not fit, high does, or is not yet known to.
    low, high = 0, len(sizes) + 1
    at, at_cost = 0, full
    # Nothing that costs nothing is too much, but for a target below nothing.
    scale = (full or 1) / (sums[-1] + rest)
    for step in range(2 * len(sizes) + 2):
        if high - low == 1:
            break
        if step < _GUESSES or step % 2:
            guess = bisect_left(sums, sums[at] + (at_cost - target) / scale)
        else:
            guess = (low + high) // 2
        before, before_cost = at, at_cost
        at = min(max(guess, low + 1), high - 1)
        at_cost = cost(at)
        if at_cost <= target:
            high = at
        else:
            low = at
        if at != before and at_cost != before_cost:
            measured = (before_cost - at_cost) / (sums[at] - sums[before])
            scale = measured if measured > 0 else scale
    return high if high <= len(sizes) else None
