"""Token costs: cached counts for individual messages, and meters for whole conversations.

If the counter is additive, each message is counted once, and the cost of a conversation is the sum of these counts.
Otherwise, the conversation is counted as a whole.
"""

from __future__ import annotations

import marshal
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from lazyprompt.budget.search import find_fewest
from lazyprompt.budget.units import Item, SlotValue, Unit
from lazyprompt.errors import BudgetError
from lazyprompt.messages.msg import Msg
from lazyprompt.tokens.counter import CountsMessages, Form, content_of, forms, json_text

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    WritesForms: TypeAlias = Callable[[Iterable[Msg | Form]], list[Form]]

# The maximum number of entries in the cache's newer half. When the newer half is full, the older half is discarded.
_KEPT = 16_384
# The maximum length of a text that is used as a cache key, in characters. A longer text is replaced by its hash.
_LONG = 1_024
# The messages for testing whether a counter is additive, and the number of times that they are repeated in the test.
_TRIAL: tuple[Form, Form] = ({"role": "user", "content": "a"}, {"role": "assistant", "content": "bb cc"})
_TIMES = 8


class CountCache:
    """A cache for the results of a token counter.

    Args:
        counter: The token counter.
        forms: A function that converts messages to the OpenAI dicts to count.
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
        """True if the token count of a list of messages is the sum of the messages' token counts.

        If the counter has no ``additive`` attribute, a test determines the value.
        """
        if self._additive is None:
            self._additive = _is_additive(self.counter)
        return self._additive

    def empty(self, tools: Sequence[Form] | None = None) -> int:
        """Return the token count of a request without messages."""
        if not tools:
            return self._cached(None, lambda: self._count([]))
        return self._cached(digest(list(tools)), lambda: self._count([], tools))

    def count_item(self, item: Item) -> int:
        """Return the number of tokens that an item adds to a request; for additive counters only."""
        if isinstance(item, SlotValue):
            return self._cached((SlotValue, item.text), lambda: self.count_text(item.text))
        if isinstance(item, Msg):
            plain = not item.metadata and item.url is None
            content: object = item.content if plain else None
            key: Hashable = (item.role, item.name, content)
        else:
            content = item.get("content") if set(item) == {"role", "content"} else None
            key = (item.get("role"), content)
        if type(content) is not str or len(content) > _LONG:
            key = digest(self._forms([item]))
        return self._cached(key, lambda: self._count(self._forms([item])) - self.empty())

    def cost(self, messages: Sequence[Item], tools: Sequence[Form] | None) -> int:
        """Return the token count of messages and tools."""
        if self.additive:
            return self.empty(tools) + sum(map(self.count_item, messages))
        slots = sum(self.count_text(item.text) for item in messages if isinstance(item, SlotValue))
        return slots + self._count(
            self._forms(item for item in messages if not isinstance(item, SlotValue)), tools or None
        )

    def tools(self, tools: Sequence[Form]) -> int:
        """Return the token count of the tools; for a counter that isn't additive, the token count of their JSON."""
        if self.additive:
            return self.empty(tools) - self.empty()
        return sum(self.count_text(json_text(tool, "a tool")) for tool in tools)

    def count_text(self, text: str) -> int:
        """Return the token count of a text.

        If the counter has no ``count_text``, the text is counted as a user message.
        """
        count: Callable[[str], int] | None = getattr(self.counter, "count_text", None)
        if count is not None:
            return count(text)
        return self._count([{"role": "user", "content": text}]) - self.empty()

    def share(self, item: Item) -> int:
        """Return the token count of a single item; for a counter that isn't additive, the sum of its texts' counts."""
        if self.additive:
            return self.count_item(item)
        return sum(map(self.count_text, texts_of(item, self._forms)))

    def _count(self, messages: Sequence[Form], tools: Sequence[Form] | None = None) -> int:
        counter = self.counter
        return _checked_count(counter, counter.count(messages, tools) if tools else counter.count(messages))

    def _cached(self, key: Hashable, count: Callable[[], int]) -> int:
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

    def __reduce__(self) -> tuple[type[CountCache], tuple[CountsMessages, WritesForms]]:
        return CountCache, (self.counter, self._forms)


def _checked_count(counter: CountsMessages, count: object) -> int:
    if not isinstance(count, int):
        raise BudgetError(f"{type(counter).__name__}.count must be sync and return an int, not {type(count).__name__}")
    return count


def texts_of(item: Item, write: WritesForms = forms) -> list[str]:
    """Return all texts in a message, or the text of a slot value."""
    return (
        [item.text] if isinstance(item, SlotValue) else [text for form in write([item]) for text in content_of(form)[0]]
    )


_UNKNOWN = object()


def digest(value: object) -> Hashable:
    """Return a hash of a value's content, or ``_UNKNOWN`` if the value is not plain data and can't be cached."""
    try:
        # marshal version 2 writes no references, so equal content is serialized to equal bytes.
        data = marshal.dumps(cast("Any", value), 2)
    except ValueError:
        return _UNKNOWN
    return blake2b(data, digest_size=16).digest()


def _is_additive(counter: CountsMessages) -> bool:
    """Return True if a counter's result for several messages is the sum of its results for each message."""

    def adds(messages: Sequence[Mapping[str, Any]]) -> int:
        return counter.count(messages) - nothing

    try:
        nothing = counter.count([])
        return adds([*_TRIAL] * _TIMES) == _TIMES * sum(adds([message]) for message in _TRIAL)
    except Exception:  # noqa: BLE001 - a counter that rejects the test messages is not additive
        return False


# A function that returns the total cost of the items at the given indices, with replacements for some items.
Cost: TypeAlias = "Callable[[Sequence[int], Mapping[int, Item]], int]"


class MessageMeter:
    """A meter for additive counters, which adds up the costs of individual messages.

    The messages that would be dropped last are added first, so most of the dropped messages are never counted.

    Args:
        items: All items.
        fixed: The indices of the items that are never dropped.
        order: The droppable units (groups of items), in the order in which they are dropped.
        counts: The cache of token counts.
        tools: The tools that are sent with the messages.
    """

    def __init__(
        self,
        items: Sequence[Item],
        fixed: Sequence[int],
        order: Sequence[Unit],
        counts: CountCache,
        tools: Sequence[Form] | None,
    ) -> None:
        self._items, self._order, self._counts = items, order, counts
        self._empty = counts.empty(tools)
        self._fixed = self._empty + sum(counts.count_item(items[at]) for at in fixed)

    @cached_property
    def full(self) -> int:
        """The total cost of all items, in tokens."""
        items, count_item = self._items, self._counts.count_item
        return self._fixed + sum(count_item(items[at]) for unit in self._order for at in unit)

    def find_fewest(self, most: int) -> int | None:
        """Return the minimum number of units to drop so that the cost is at most ``most``.

        Return None if the cost is higher even after all units are dropped.
        """
        items, order, count_item = self._items, self._order, self._counts.count_item
        room = most - self._fixed
        if room < 0:
            return None
        for place in range(len(order) - 1, -1, -1):
            for at in order[place]:
                room -= count_item(items[at])
            if room < 0:
                return place + 1
        return 0

    def cost(self, kept: Sequence[int], replaced: Mapping[int, Item], /) -> int:
        """Return the cost of the kept items in tokens, after some of these items are replaced."""
        items, count_item = self._items, self._counts.count_item
        return self._empty + sum(count_item(replaced.get(at, items[at])) for at in kept)


class WholeMeter:
    """A meter for whole requests, which uses a binary search to measure as few requests as possible.

    Args:
        items: All items.
        fixed: The indices of the items that are never dropped.
        order: The droppable units (groups of items), in the order in which they are dropped.
        cost: A function that returns the total cost of the kept items, in tokens.
    """

    def __init__(self, items: Sequence[Item], fixed: Sequence[int], order: Sequence[Unit], cost: Cost) -> None:
        self._items, self._fixed, self._order, self._cost = items, fixed, order, cost

    @cached_property
    def full(self) -> int:
        """The total cost of all items, in tokens."""
        return self.cost(self._without(0), {})

    def find_fewest(self, most: int) -> int | None:
        """Return the minimum number of units to drop so that the cost is at most ``most``.

        Return None if the cost is higher even after all units are dropped.
        """
        if self.full <= most:
            return 0
        return find_fewest(len(self._order), lambda gone: self.cost(self._without(gone), {}), most)

    def cost(self, kept: Sequence[int], replaced: Mapping[int, Item], /) -> int:
        """Return the cost of the kept items in tokens, after some of these items are replaced."""
        return self._cost(kept, replaced)

    def _without(self, gone: int) -> list[int]:
        return sorted((*self._fixed, *(at for unit in self._order[gone:] for at in unit)))


Meter: TypeAlias = MessageMeter | WholeMeter
