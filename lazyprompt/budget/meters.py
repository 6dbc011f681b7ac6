"""Two ways to measure what remains of a conversation: message by message, or as a whole."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from lazyprompt.budget.search import fewest
from lazyprompt.budget.tally import rough

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lazyprompt.budget.tally import Tally
    from lazyprompt.budget.units import Item, Unit
    from lazyprompt.tokens.counter import Form

# What the items at these places cost together, some of them replaced by others.
Cost: TypeAlias = "Callable[[Sequence[int], Mapping[int, Item]], int]"


class ByMessage:
    """Adds up what each message costs, beginning with those that go last: what goes need not be counted.

    Args:
        items: All items.
        fixed: The indices of those that never go.
        order: The units that may go, in the order in which they do.
        tally: What counts them.
        tools: The tools.
    """

    def __init__(
        self,
        items: Sequence[Item],
        fixed: Sequence[int],
        order: Sequence[Unit],
        tally: Tally,
        tools: Sequence[Form] | None,
    ) -> None:
        self._items, self._order, self._tally = items, order, tally
        self._empty = tally.empty(tools)
        self._fixed = self._empty + sum(tally.tokens_of(items[at]) for at in fixed)

    @cached_property
    def full(self) -> int:
        """Cost of all items."""
        items, tokens_of = self._items, self._tally.tokens_of
        return self._fixed + sum(tokens_of(items[at]) for unit in self._order for at in unit)

    def fewest(self, most: int) -> int | None:
        """The fewest units that must go so that the rest costs no more; ``None`` where even without all it does."""
        items, order, tokens_of = self._items, self._order, self._tally.tokens_of
        room = most - self._fixed
        if room < 0:
            return None
        for place in range(len(order) - 1, -1, -1):
            for at in order[place]:
                room -= tokens_of(items[at])
            if room < 0:
                return place + 1
        return 0

    def cost(self, kept: Sequence[int], replaced: Mapping[int, Item], /) -> int:
        """Return the cost of some items."""
        items, tokens_of = self._items, self._tally.tokens_of
        return self._empty + sum(tokens_of(replaced.get(at, items[at])) for at in kept)


class AsWhole:
    """Measures what remains as it will be sent, with a few tries.

    Args:
        items: All items.
        fixed: The indices of those that never go.
        order: The units that may go, in the order in which they do.
        cost: What items cost together.
    """

    def __init__(self, items: Sequence[Item], fixed: Sequence[int], order: Sequence[Unit], cost: Cost) -> None:
        self._items, self._fixed, self._order, self._cost = items, fixed, order, cost

    @cached_property
    def full(self) -> int:
        """Cost of all items."""
        return self.cost(self._without(0), {})

    def fewest(self, most: int) -> int | None:
        """The fewest units that must go so that the rest costs no more; ``None`` where even without all it does."""
        if self.full <= most:
            return 0
        return fewest(
            [sum(rough(self._items[at]) for at in unit) for unit in self._order],
            lambda gone: self.cost(self._without(gone), {}),
            most,
            self.full,
            sum(rough(self._items[at]) for at in self._fixed),
        )

    def cost(self, kept: Sequence[int], replaced: Mapping[int, Item], /) -> int:
        """Return the cost of some items."""
        return self._cost(kept, replaced)

    def _without(self, gone: int) -> list[int]:
        return sorted((*self._fixed, *(at for unit in self._order[gone:] for at in unit)))


Meter: TypeAlias = ByMessage | AsWhole
