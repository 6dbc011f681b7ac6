"""Messages given to a budget by themselves: read, counted as they will be sent, and given back in their own kind."""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from lazyprompt.budget.cut import with_cut_of
from lazyprompt.budget.sent import as_sent
from lazyprompt.errors import HistoryError
from lazyprompt.messages.msg import Msg
from lazyprompt.messages.reading import is_openai, read_history, without_role_names

if TYPE_CHECKING:
    from lazyprompt.budget.fitting import Fitted
    from lazyprompt.budget.report import TrimReport
    from lazyprompt.budget.units import Item, Message, Unit


class Given(NamedTuple):
    """A conversation as it was given, and as it is counted.

    Attributes:
        items: The items.
        messages: The messages: Msg and OpenAI dicts as they are, any other item read.
        counted: The messages as they will be sent, in the same places.
        sources: The items that each message was read from, and whether it was read at all.
        together: The messages of one item.
    """

    items: list[object]
    messages: list[Message]
    counted: list[Item]
    sources: list[range] | None
    together: list[Unit]

    @classmethod
    def of(cls, items: Iterable[object]) -> Given:
        """Read items of any form that a history may hold.

        Raises:
            HistoryError: It is no list, or an item is no message.
        """
        if isinstance(cast("object", items), Msg | str | dict):
            raise HistoryError(f"messages is a {type(items).__name__}; give a list of Msg or message dicts")
        given = list(items)
        if _are_plain(given):
            messages = cast("list[Message]", given)
            return cls(given, messages, [*messages], None, [])
        if all(isinstance(item, Msg) or (isinstance(item, Mapping) and is_openai(cast("Any", item))) for item in given):
            messages = cast("list[Message]", given)
            return cls(given, messages, as_sent(messages), None, [])
        read = read_history(given)
        sources = read.sources(len(given))
        groups: dict[int, Unit] = {}
        for at, source in enumerate(sources):
            groups[source.start] = (*groups.get(source.start, ()), at)
        read_messages = cast("list[Message]", without_role_names(given, read))
        together = [unit for unit in groups.values() if len(unit) > 1]
        return cls(given, read_messages, as_sent(read_messages), sources, together)

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


def _are_plain(items: list[Any]) -> bool:
    """Return True for dicts of role and text alone, as most are: they are sent as they are."""
    for item in items:
        if item.__class__ is not dict or item.keys() != {"role", "content"}:
            return False
        if type(item["content"]) is not str:
            return False
    return True


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
