"""Units: what of a conversation goes, or stays, together.

A message is a unit by itself; a call and all its results are one, whatever stands between them. System text, what the
caller protects and the newest turn of the user never go.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from lazyprompt._base.roles import SYSTEM_ROLES
from lazyprompt.errors import HistoryError
from lazyprompt.messages.msg import Msg, ToolResultBlock, ToolUseBlock

if TYPE_CHECKING:
    from lazyprompt.tokens.counter import Form


class SlotValue(NamedTuple):
    """The value of a slot, or an item of a list in a slot, trimmed among the messages of a prompt.

    Attributes:
        slot: The slot's name.
        text: Its value.
        place: The index of the item in its list; None for a whole value.
        rank: The number of items of the list that go before this one; None for the one that always stays.
    """

    slot: str
    text: str
    place: int | None = None
    rank: int | None = None


Message: TypeAlias = "Msg | Form"
Item: TypeAlias = "Msg | Form | SlotValue"
Unit: TypeAlias = "tuple[int, ...]"


class Conversation(NamedTuple):
    """A conversation in units.

    Attributes:
        units: What may go, by the indices of its items, in the order in which the units begin.
        fixed: The indices of all that never goes.
        orphans: The indices of results without a call; nobody takes them.
        newest: The indices of the newest turn of the user; of the last unit where no user speaks.
    """

    units: list[Unit]
    fixed: list[int]
    orphans: list[int]
    newest: Unit


def conversation_of(
    items: Sequence[Item],
    is_protected: Callable[[int, Item], bool] | None = None,
    *,
    keep_newest: bool = True,
    together: Iterable[Unit] = (),
) -> Conversation:
    """Put the items of a conversation into units.

    Args:
        items: Messages, Msg or OpenAI dicts, and the values of slots.
        is_protected: Whether an item never goes, beside what never goes anyway; decides of the values of slots.
        keep_newest: Whether the newest turn of the user is among the items; else it follows them.
        together: Further items that go together.

    Returns:
        The units.

    Raises:
        HistoryError: An item is no message.
    """
    fixed: set[int] = set()
    orphans: list[int] = []
    # With whom an item goes together: the index of the unit's first.
    first_of: dict[int, int] = {}
    waiting: dict[str, deque[int]] = {}
    newest, last = -1, -1
    _check(items)
    for at, item in enumerate(cast("Sequence[Any]", items)):
        if isinstance(item, SlotValue):
            continue
        if isinstance(item, Msg):
            role, plain = item.role, isinstance(item.content, str)
        else:
            role = item.get("role")
            plain = item.keys() == {"role", "content"} and isinstance(item["content"], str)
        # Most messages are plain text, which has no links.
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
    # If no user speaks, the last message is to be answered.
    return _in_units(len(items), fixed, orphans, first_of, (newest if newest >= 0 else last) if keep_newest else -1)


def _in_units(count: int, fixed: set[int], orphans: list[int], first_of: dict[int, int], newest: int) -> Conversation:
    groups: dict[int, Unit] = {}
    for at in sorted(first_of):
        first = _root(at, first_of)
        groups[first] = (*groups.get(first, ()), at)
    # These stand in no unit, or in that of another.
    elsewhere = {*orphans, *(at for group in groups.values() for at in group[1:])}
    units = [groups.get(at, (at,)) for at in range(count) if at not in elsewhere]
    kept = next((unit for unit in units if newest in unit), ())
    stays = {*kept[:1], *(first for first, group in groups.items() if not fixed.isdisjoint(group))} | fixed
    still = sorted(at for first in stays if first not in elsewhere for at in groups.get(first, (first,)))
    return Conversation([unit for unit in units if unit[0] not in stays], still, orphans, kept)


def _join(items: list[int], first_of: dict[int, int]) -> None:
    """Make one unit of the units of items."""
    roots = {_root(at, first_of) for at in items}
    first = min(roots)
    for at in (*roots, *items):
        first_of[at] = first


def _root(at: int, first_of: dict[int, int]) -> int:
    while first_of.get(at, at) != at:
        at = first_of[at]
    return at


def _answered(result: str, waiting: dict[str, deque[int]]) -> int | None:
    """The item with the call that a result answers; a result without an id takes the oldest call that waits."""
    if not result:
        result = next((call for call, places in waiting.items() if places), "")
    places = waiting.get(result)
    return places.popleft() if places else None


def _check(items: Sequence[object]) -> None:
    """Refuse what is no message."""
    for at, item in enumerate(items):
        if not isinstance(item, Msg | Mapping | SlotValue):
            raise HistoryError(f"messages[{at}] is a {type(item).__name__}; give Msg or OpenAI dicts")


def _is_linked(
    item: Message, at: int, waiting: dict[str, deque[int]], first_of: dict[int, int], orphans: list[int]
) -> bool:
    """Return True if a message has results, which go with their calls; its own calls then wait for theirs."""
    calls, results = _msg_links(item) if isinstance(item, Msg) else _dict_links(item)
    for call in calls:
        waiting.setdefault(call, deque()).append(at)
    answered = [place for result in results if (place := _answered(result, waiting)) is not None]
    if answered:
        _join([at, *answered], first_of)
        return True
    if results and not calls and not _says_more(item):
        orphans.append(at)
        return True
    return False


def _msg_links(message: Msg) -> tuple[list[str], list[str]]:
    """The ids of the calls and of the results in a message."""
    blocks = message.blocks
    calls = [block.id for block in blocks if isinstance(block, ToolUseBlock)]
    return calls, [block.id for block in blocks if isinstance(block, ToolResultBlock)]


def _dict_links(message: Form) -> tuple[list[str], list[str]]:
    calls = [_id(call, "id") for call in _dicts(message.get("tool_calls"))]
    results = [_id(message, "tool_call_id")] if message.get("role") == "tool" else []
    content = message.get("content")
    if isinstance(content, list | tuple):
        for part in cast("Sequence[object]", content):
            if isinstance(part, ToolUseBlock):
                calls.append(part.id)
            elif isinstance(part, ToolResultBlock):
                results.append(part.id)
        parts = _dicts(cast("Sequence[object]", content))
        calls += [_id(part, "id") for part in parts if part.get("type") == "tool_use"]
        results += [_id(part, "tool_use_id", "id") for part in parts if part.get("type") == "tool_result"]
    return calls, results


def _dicts(value: object) -> Iterable[Mapping[str, Any]]:
    items = cast("Sequence[object]", value) if isinstance(value, list | tuple) else ()
    return [cast("Mapping[str, Any]", item) for item in items if isinstance(item, dict)]


def _id(holder: Mapping[str, Any], *keys: str) -> str:
    return next((str(holder[key]) for key in keys if holder.get(key)), "")


def _says_more(item: Item) -> bool:
    """Return True if a message with results has other content as well."""
    if isinstance(item, Msg):
        return any(not isinstance(block, ToolResultBlock) for block in item.blocks) or bool(item.urls)
    content = cast("Form", item).get("content")
    return isinstance(content, list) and any(
        part.get("type") != "tool_result" for part in _dicts(cast("Sequence[object]", content))
    )
