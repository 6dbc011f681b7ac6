"""Messages given to a budget by themselves: read, counted as they will be sent, and given back in their own kind."""

from __future__ import annotations

import marshal
from copy import deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from lazyprompt.budget.cut import with_cut_of
from lazyprompt.budget.sent import as_sent
from lazyprompt.errors import HistoryError
from lazyprompt.messages.msg import Msg
from lazyprompt.messages.parse import parse_with_sources

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lazyprompt.budget.fitting import Fitted
    from lazyprompt.budget.report import TrimReport
    from lazyprompt.budget.units import Item, Message, Unit


class Given(NamedTuple):
    """A conversation as it was given, and as it is counted.

    Attributes:
        items: The items.
        messages: The messages: the items themselves if each is a Msg or a message dict, else what they were parsed to.
        counted: The messages as they will be sent, in the same places.
        sources: The items that each message was parsed from; None if each item is a message.
        together: The messages of one item.
    """

    items: list[object]
    messages: list[Message]
    counted: list[Msg]
    sources: list[range] | None
    together: list[Unit]

    @classmethod
    def of(cls, items: Iterable[object]) -> Given:
        """Parse items of any form that a history may hold.

        Raises:
            HistoryError: It is no list, or an item is no message.
        """
        if isinstance(cast("object", items), Msg | str | dict):
            raise HistoryError(f"messages is a {type(items).__name__}; give a list of Msg or message dicts")
        given = list(items)
        parsed = parse_with_sources(given, "messages")
        counted = as_sent(parsed.messages)
        is_each = len(given) == len(parsed.messages) and not parsed.has_forms
        if is_each and all(isinstance(item, dict | Msg) for item in given):
            # Each item is a message of its own.
            return cls(given, cast("list[Message]", given), counted, None, [])
        sources = parsed.sources(len(given))
        groups: dict[int, list[int]] = {}
        for at, source in enumerate(sources):
            groups.setdefault(source.start, []).append(at)
        together = [tuple(group) for group in groups.values() if len(group) > 1]
        return cls(given, [*parsed.messages], counted, sources, together)

    def taken(self, fitted: Fitted) -> tuple[list[Any], TrimReport]:
        """Return what fits, each in the kind in which it was given, and the report."""
        replaced = {at: self._replaced(at, fitted) for at in fitted.replaced}
        if self.sources is None:
            left: list[object] = [replaced[at] if at in replaced else self.messages[at] for at in fitted.kept]
        else:
            left = self._items(fitted.kept, replaced, self.sources)
        return [_copied(item) for item in left], fitted.report

    def _replaced(self, at: int, fitted: Fitted) -> Item:
        """Return a message that was cut, or a summary, in the kind of the message that was given."""
        item, given = fitted.replaced[at], self.messages[at]
        if fitted.fates[at][0] == "cut":
            return with_cut_of(given, self.counted[at], item)
        return {"role": "user", "content": item.text} if isinstance(item, Msg) and not isinstance(given, Msg) else item

    def _items(self, kept: Sequence[int], replaced: Mapping[int, Item], sources: Sequence[range]) -> list[object]:
        """Return the items of messages; where one of an item was replaced, all of that item are messages."""
        changed = {sources[at].start for at in replaced}
        left: list[object] = []
        done: set[int] = set()
        for at in kept:
            source = sources[at]
            if source.start in changed:
                left.append(replaced.get(at, self.messages[at]))
            elif source.start not in done:
                done.add(source.start)
                left += [self.items[index] for index in source]
        return left


def _copied(message: Any) -> object:  # noqa: ANN401 - a cast would be a call for each message
    """Return a message that shares nothing mutable with another; a Msg never changes."""
    # Most messages are a role and a text, whose shallow copy shares nothing mutable.
    if message.__class__ is dict and message.keys() == {"role", "content"} and type(message["content"]) is str:
        return message.copy()
    if isinstance(message, Msg):
        return message
    try:
        return marshal.loads(marshal.dumps(message))  # noqa: S302 - bytes of our own making
    except ValueError:
        # It holds what is no plain value: a block within a dict, or a client's object.
        return deepcopy(message)
