"""The input to ``Budget.fit``: counted in the format in which it is sent, returned in the caller's format."""

from __future__ import annotations

import marshal
from copy import deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from lazyprompt._base.json import is_dict
from lazyprompt.budget.cut import with_cut_of
from lazyprompt.budget.sent import link_calls
from lazyprompt.errors import HistoryError
from lazyprompt.messages.msg import Msg
from lazyprompt.messages.parse import parse_with_sources

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lazyprompt.budget.fitting import Fitted
    from lazyprompt.budget.report import TrimReport
    from lazyprompt.budget.units import Item, Message, Unit


class BudgetInput(NamedTuple):
    """A conversation in two formats: as passed by the caller, and as counted by the budget.

    Attributes:
        items: The items passed by the caller.
        messages: The items themselves if each is a Msg or a message dict; otherwise, the messages parsed from the
            items.
        counted: The messages in the format in which they are sent, at the same indices as in ``messages``.
        sources: For each message, the indices of the items that it was parsed from; None if each item is a message.
        together: For each item that was parsed into messages, the indices of these messages.
    """

    items: Sequence[object]
    messages: Sequence[Message]
    counted: list[Msg]
    sources: list[range] | None
    together: list[Unit]

    @classmethod
    def parse(cls, items: Iterable[object]) -> BudgetInput:
        """Parse items in any format that a history accepts.

        Raises:
            HistoryError: The argument is not a list, or an item is not a message.
        """
        _check_list(items)
        given = list(items)
        parsed = parse_with_sources(given, "messages")
        counted = link_calls(parsed.messages)
        is_each = len(given) == len(parsed.messages) and not parsed.has_forms
        if is_each and _are_messages(given):
            return cls(given, given, counted, None, [])
        sources = parsed.sources(len(given))
        groups: dict[int, list[int]] = {}
        for at, source in enumerate(sources):
            groups.setdefault(source.start, []).append(at)
        return cls(given, [*parsed.messages], counted, sources, [*map(tuple, groups.values())])

    def restore(self, fitted: Fitted) -> tuple[list[Any], TrimReport]:
        """Return the fitted items, in the types that the caller passed, and the report."""
        replaced = {at: self._replaced(at, fitted) for at in fitted.replaced}
        if self.sources is None:
            left: list[object] = [replaced[at] if at in replaced else self.messages[at] for at in fitted.kept]
        else:
            left = self._items(fitted.kept, replaced, self.sources)
        return [_copied(item) for item in left], fitted.report

    def _replaced(self, at: int, fitted: Fitted) -> Item:
        """Return a truncated message or a summary in the type that the caller passed."""
        item, given = fitted.replaced[at], self.messages[at]
        if fitted.fates[at][0] == "cut":
            return with_cut_of(given, self.counted[at], item)
        return {"role": "user", "content": item.text} if isinstance(item, Msg) and not isinstance(given, Msg) else item

    def _items(self, kept: Sequence[int], replaced: Mapping[int, Item], sources: Sequence[range]) -> list[object]:
        """Return the items of the kept messages; an item with a replaced message is split into its messages."""
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


def _check_list(items: object) -> None:
    if is_dict(items) or isinstance(items, Msg | str):
        raise HistoryError(f"messages must be a list of Msg or message dicts, not {type(items).__name__}")


def _are_messages(items: list[object]) -> TypeGuard[list[Message]]:
    return all(isinstance(item, dict | Msg) for item in items)


def _copied(message: Any) -> object:  # noqa: ANN401 - casts would slow this down
    """Return a copy of a message; a Msg is immutable and is returned unchanged."""
    # A shallow copy is sufficient for messages that contain only a role and text.
    if message.__class__ is dict and message.keys() == {"role", "content"} and type(message["content"]) is str:
        return message.copy()
    if isinstance(message, Msg):
        return message
    try:
        return marshal.loads(marshal.dumps(message))  # noqa: S302 - bytes from marshal.dumps
    except ValueError:
        # marshal can't copy a message that contains, for example, a content block or an object from a client library.
        return deepcopy(message)
