"""Counts of messages, remembered: each message is counted once, in this turn and in all later ones.

What remains of a conversation is measured message by message, or as a whole.
"""

from __future__ import annotations

import marshal
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from lazyprompt.budget.search import fewest
from lazyprompt.budget.units import Item, SlotValue, Unit
from lazyprompt.errors import BudgetError
from lazyprompt.messages.msg import Msg
from lazyprompt.tokens.counter import CountsMessages, Form, content_of, forms, json_text

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    WritesForms: TypeAlias = Callable[[Iterable[Msg | Form]], list[Form]]

# So many counts are kept at least, and twice as many at most.
_KEPT = 16_384
# Longer texts are remembered by a digest.
_LONG = 1_024
# What a counter is tried with: two messages, so many times.
_TRIAL: tuple[Form, Form] = ({"role": "user", "content": "a"}, {"role": "assistant", "content": "bb cc"})
_TIMES = 8


class Tally:
    """The counts of a counter. What it remembers changes no result, only the time it takes.

    Args:
        counter: The counter.
        forms: Writes messages as the dicts that are counted.
    """

    __slots__ = ("_additive", "_forms", "_new", "_old", "counter")

    def __init__(self, counter: CountsMessages, forms: WritesForms = forms) -> None:
        self.counter = counter
        self._forms = forms
        self._additive: bool | None = getattr(counter, "additive", None)
        self._new: dict[Hashable, int] = {}
        self._old: dict[Hashable, int] = {}

    @property
    def additive(self) -> bool:
        """True if the count of messages is the sum of theirs; a counter that does not say so is tried."""
        if self._additive is None:
            self._additive = _is_additive(self.counter)
        return self._additive

    def empty(self, tools: Sequence[Form] | None = None) -> int:
        """The count of no message at all, and of tools."""
        if not tools:
            return self._known(None, lambda: self._count([]))
        return self._known(digest(list(tools)), lambda: self._count([], tools))

    def tokens_of(self, item: Item) -> int:
        """Return the tokens that an item adds, for an additive counter only."""
        if isinstance(item, SlotValue):
            return self._known((SlotValue, item.text), lambda: self.count_text(item.text))
        if isinstance(item, Msg):
            plain = not item.metadata and item.url is None
            content: object = item.content if plain else None
            key: Hashable = (item.role, item.name, content)
        else:
            content = item.get("content") if set(item) == {"role", "content"} else None
            key = (item.get("role"), content)
        if type(content) is not str or len(content) > _LONG:
            key = digest(self._forms([item]))
        return self._known(key, lambda: self._count(self._forms([item])) - self.empty())

    def cost(self, messages: Sequence[Item], tools: Sequence[Form] | None) -> int:
        """Count messages and tools."""
        if self.additive:
            return self.empty(tools) + sum(map(self.tokens_of, messages))
        slots = sum(self.count_text(item.text) for item in messages if isinstance(item, SlotValue))
        return slots + self._count(
            self._forms(item for item in messages if not isinstance(item, SlotValue)), tools or None
        )

    def tools(self, tools: Sequence[Form] | None) -> int:
        """Tokens of the tools: exact, or for a counter that is not additive, those of their JSON."""
        if not tools:
            return 0
        if self.additive:
            return self.empty(tools) - self.empty()
        return sum(self.count_text(json_text(tool, "a tool")) for tool in tools)

    def count_text(self, text: str) -> int:
        """The count of a text; of a counter that knows messages only, what such a message of the user's adds."""
        count: Callable[[str], int] | None = getattr(self.counter, "count_text", None)
        if count is not None:
            return count(text)
        return self._count([{"role": "user", "content": text}]) - self.empty()

    def share(self, item: Item) -> int:
        """Count an item by itself: exactly, or for a counter that is not additive, by its texts."""
        if self.additive:
            return self.tokens_of(item)
        return sum(map(self.count_text, texts_of(item, self._forms)))

    def _count(self, messages: Sequence[Form], tools: Sequence[Form] | None = None) -> int:
        counter = self.counter
        found = cast("object", counter.count(messages, tools) if tools else counter.count(messages))
        if not isinstance(found, int):
            raise BudgetError(
                f"{type(self.counter).__name__}.count gave a {type(found).__name__}; it must give a whole number, and "
                "not have to be awaited"
            )
        return found

    def _known(self, key: Hashable, count: Callable[[], int]) -> int:
        if key is _UNKNOWN:
            return count()
        known = self._new.get(key)
        if known is None:
            known = self._old.get(key)
            if known is None:
                known = count()
            if len(self._new) >= _KEPT:
                self._old, self._new = self._new, {}
            self._new[key] = known
        return known

    def __reduce__(self) -> tuple[type[Tally], tuple[CountsMessages, WritesForms]]:
        return Tally, (self.counter, self._forms)


def texts_of(item: Item, write: WritesForms = forms) -> list[str]:
    """Return all texts of an item."""
    return (
        [item.text] if isinstance(item, SlotValue) else [text for form in write([item]) for text in content_of(form)[0]]
    )


_UNKNOWN = object()


def digest(value: object) -> Hashable:
    """Return a digest of a value: equal for equal content alone."""
    try:
        # The second version knows no references, so that the same content is the same bytes.
        data = marshal.dumps(cast("Any", value), 2)
    except ValueError:
        # It holds what is no plain value: a block within a dict.
        return _UNKNOWN
    return blake2b(data, digest_size=16).digest()


def _is_additive(counter: CountsMessages) -> bool:
    """Return True if a counter's count of several messages is the sum of theirs."""

    def adds(messages: Sequence[Mapping[str, Any]]) -> int:
        return counter.count(messages) - nothing

    try:
        nothing = counter.count([])
        return adds([*_TRIAL] * _TIMES) == _TIMES * sum(adds([message]) for message in _TRIAL)
    except Exception:  # noqa: BLE001 - a counter that does not know such messages says nothing of its kind: the safe way
        return False


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
        return fewest(len(self._order), lambda gone: self.cost(self._without(gone), {}), most)

    def cost(self, kept: Sequence[int], replaced: Mapping[int, Item], /) -> int:
        """Return the cost of some items."""
        return self._cost(kept, replaced)

    def _without(self, gone: int) -> list[int]:
        return sorted((*self._fixed, *(at for unit in self._order[gone:] for at in unit)))


Meter: TypeAlias = ByMessage | AsWhole
