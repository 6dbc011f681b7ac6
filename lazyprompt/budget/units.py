"""Units: groups of messages that a budget drops or keeps together.

A tool call and its results form one unit; every other message is a unit by itself. System text, protected items and
the newest user turn are never dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from lazyprompt._base.json import is_dict, is_sequence
from lazyprompt._base.roles import SYSTEM_ROLES
from lazyprompt.errors import HistoryError
from lazyprompt.messages.msg import Msg, ToolResultBlock, ToolUseBlock

if TYPE_CHECKING:
    from lazyprompt.tokens.counter import Form


class SlotValue(NamedTuple):
    """A slot value, or one item of a list value, that a budget can trim along with the prompt's messages.

    Attributes:
        slot: The slot's name.
        text: The text of the slot value or list item.
        place: The index of the item in its list; None for a whole value.
        rank: The number of items in the same list that are dropped before this item; None for the item that is always
            kept.
    """

    slot: str
    text: str
    place: int | None = None
    rank: int | None = None


Message: TypeAlias = "Msg | Form"
Item: TypeAlias = "Msg | Form | SlotValue"
Unit: TypeAlias = "tuple[int, ...]"


_PLAIN_KEYS: AbstractSet[str] = frozenset(("role", "content"))


class ConversationUnits(NamedTuple):
    """A conversation that is divided into units.

    Attributes:
        units: The droppable units, each as a tuple of item indices, sorted by their first item.
        fixed: The indices of the items that are never dropped.
        orphans: The indices of tool results without a call; providers reject such results.
        newest: The indices of the items in the newest user turn, or in the last unit if there is no user turn.
    """

    units: list[Unit]
    fixed: list[int]
    orphans: list[int]
    newest: Unit


def group_units(
    items: Sequence[Item],
    is_protected: Callable[[int, Item], bool] | None = None,
    *,
    keep_newest: bool = True,
    together: Iterable[Unit] = (),
) -> ConversationUnits:
    """Group the items of a conversation into units, each of which is kept or dropped as a whole.

    Args:
        items: Messages (Msg or OpenAI dicts) and slot values.
        is_protected: A function that returns True for a message or slot value to keep in addition to the system text
            and the newest user turn.
        keep_newest: True if ``items`` includes the newest user turn, which must be kept; False if a newer user turn
            follows ``items``.
        together: Additional groups of item indices to drop together.

    Returns:
        The droppable units and the indices of the items to keep.

    Raises:
        HistoryError: An item is neither a message nor a slot value.
    """
    fixed: set[int] = set()
    orphans: list[int] = []
    # Maps each linked item to an earlier item in the same unit (a union-find forest).
    first_of: dict[int, int] = {}
    waiting: dict[str, deque[int]] = {}
    newest, last = -1, -1
    _check(items)
    for at, item in enumerate(items):
        if isinstance(item, SlotValue):
            continue
        role: object
        if isinstance(item, Msg):
            role = item.role
            plain = isinstance(item.content, str)
        else:
            role = item.get("role")
            plain = item.keys() == _PLAIN_KEYS and isinstance(item["content"], str)
        # Skip plain text messages, which contain no tool calls or results to link.
        if plain or not _is_linked(item, at, waiting, first_of, orphans):
            last = at
            if role == "user":
                newest = at
            elif role in SYSTEM_ROLES:
                fixed.add(at)
    for unit in together:
        _join([*unit], first_of)
    if is_protected is not None:
        fixed |= {at for at, item in enumerate(items) if is_protected(at, item)}
    # If there is no user turn, keep the last message, because the model responds to it.
    return _in_units(len(items), fixed, orphans, first_of, (newest if newest >= 0 else last) if keep_newest else -1)


def _in_units(
    count: int, fixed: set[int], orphans: list[int], first_of: dict[int, int], newest: int
) -> ConversationUnits:
    groups: dict[int, Unit] = {}
    for at in sorted(first_of):
        first = _root(at, first_of)
        groups[first] = (*groups.get(first, ()), at)
    # The items that don't start a unit: tool results without a call, and all items of a group except the group's first
    # item.
    elsewhere = {*orphans, *(at for group in groups.values() for at in group[1:])}
    units = [groups.get(at, (at,)) for at in range(count) if at not in elsewhere]
    kept = next((unit for unit in units if newest in unit), ())
    stays = {*kept[:1], *(first for first, group in groups.items() if not fixed.isdisjoint(group))} | fixed
    still = sorted(at for first in stays if first not in elsewhere for at in groups.get(first, (first,)))
    return ConversationUnits([unit for unit in units if unit[0] not in stays], still, orphans, kept)


def _join(items: list[int], first_of: dict[int, int]) -> None:
    """Merge the units that contain the given items into one unit."""
    roots = {_root(at, first_of) for at in items}
    first = min(roots)
    for at in (*roots, *items):
        first_of[at] = first


def _root(at: int, first_of: dict[int, int]) -> int:
    while first_of.get(at, at) != at:
        at = first_of[at]
    return at


def _find_call(result: str, waiting: dict[str, deque[int]]) -> int | None:
    """Return the index of the message that contains the tool call for a tool result, or None if there is no such call.

    A result without an id is matched to the oldest call without a result.
    """
    if not result:
        result = next((call for call, places in waiting.items() if places), "")
    places = waiting.get(result)
    return places.popleft() if places else None


def _check(items: Sequence[object]) -> None:
    for at, item in enumerate(items):
        if not isinstance(item, Msg | Mapping | SlotValue):
            raise HistoryError(f"messages[{at}] must be a Msg or an OpenAI message dict, not {type(item).__name__}")


def _is_linked(
    item: Message, at: int, waiting: dict[str, deque[int]], first_of: dict[int, int], orphans: list[int]
) -> bool:
    """Link the tool results in a message to their calls, and register the tool calls in the message.

    Returns:
        True if a result was linked to its call, or if the message contains only results whose calls are missing.
    """
    calls, results = _msg_links(item) if isinstance(item, Msg) else _dict_links(item)
    for call in calls:
        waiting.setdefault(call, deque()).append(at)
    answered = [place for result in results if (place := _find_call(result, waiting)) is not None]
    if answered:
        _join([at, *answered], first_of)
        return True
    if results and not calls and not _has_other_content(item):
        orphans.append(at)
        return True
    return False


def _msg_links(message: Msg) -> tuple[list[str], list[str]]:
    """Return the ids of the tool calls in a message, and the ids of its tool results."""
    blocks = message.blocks
    calls = [block.id for block in blocks if isinstance(block, ToolUseBlock)]
    return calls, [block.id for block in blocks if isinstance(block, ToolResultBlock)]


def _dict_links(message: Form) -> tuple[list[str], list[str]]:
    calls = [_id(call, "id") for call in _dicts(message.get("tool_calls"))]
    results = [_id(message, "tool_call_id")] if message.get("role") == "tool" else []
    content = message.get("content")
    if is_sequence(content):
        for part in content:
            if isinstance(part, ToolUseBlock):
                calls.append(part.id)
            elif isinstance(part, ToolResultBlock):
                results.append(part.id)
        parts = _dicts(content)
        calls += [_id(part, "id") for part in parts if part.get("type") == "tool_use"]
        results += [_id(part, "tool_use_id", "id") for part in parts if part.get("type") == "tool_result"]
    return calls, results


def _dicts(value: object) -> Iterable[Mapping[str, Any]]:
    return [item for item in value if is_dict(item)] if is_sequence(value) else []


def _id(holder: Mapping[str, Any], *keys: str) -> str:
    return next((str(holder[key]) for key in keys if holder.get(key)), "")


def _has_other_content(item: Message) -> bool:
    """Return True if a message contains anything besides tool results."""
    if isinstance(item, Msg):
        return any(not isinstance(block, ToolResultBlock) for block in item.blocks) or bool(item.urls)
    return any(part.get("type") != "tool_result" for part in _dicts(item.get("content")))
