"""Dropping the oldest messages in large steps, so that many consecutive requests share a prefix.

A budget stores no state for a conversation. Instead, the budget replays all earlier requests. Whenever a request is too
long, the oldest messages are dropped until its size is at most the low-water mark. Subsequent requests omit the same
messages until a request is too long again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lazyprompt.budget.units import Unit


# An estimated request size above this multiple of the limit means that the exact size exceeds the limit.
_SURE = 1.05


class Step(NamedTuple):
    """The set of messages that are dropped from a request.

    Attributes:
        dropped: The indices of the dropped messages.
        since: The index of the first assistant message that was generated without the dropped messages; the number of
            messages if no such message exists yet.
    """

    dropped: frozenset[int]
    since: int


def last_step(
    units: Sequence[Unit],
    tokens: Sequence[float],
    roles: Sequence[str],
    *,
    beside: float,
    newer: float,
    limit: float,
    low: float,
) -> Step:
    """Return the messages that are dropped from a conversation's latest request.

    Args:
        units: The droppable units, oldest first.
        tokens: The token count of each message.
        roles: The role of each message. An assistant message answers the request that was sent after the preceding
            messages; the latest request is sent after all messages.
        beside: The token count of the request without its messages.
        newer: The token count of the latest request's input, which is not included in ``tokens``.
        limit: The maximum number of tokens in a request.
        low: The low-water mark: the target size after messages are dropped, in tokens.
    """
    dropped: set[int] = set()
    since, sent, done, newest = 0, beside, 0, -1
    # The index of the first kept unit, and the index of the newest dropped message.
    first, latest = 0, -1
    # The estimated request size if the latest set of messages had not been dropped, or None if this size clearly
    # exceeds the limit.
    unsure: float | None = None
    for end in [*(at for at, role in enumerate(roles) if role == "assistant" and at), len(roles)]:
        new = sum(tokens[done:end])
        newest = next((at for at in reversed(range(done, end)) if roles[at] == "user"), newest)
        done = end
        if end == len(roles) and newer:
            new, newest = new + newer, end
        sent += new
        unsure = None if unsure is None else unsure + new
        whole, step = sent, latest
        left = _droppable(units, first, end, newest, dropped) if whole > limit else iter(())
        unit = next(left, None)
        while unit is not None:
            following = next(left, None)
            # Below the limit, keep the last unit even if the request exceeds the low-water mark, because the model
            # responds to this unit.
            # Drop all units older than the newest dropped unit, for example a question whose tool calls were dropped.
            if sent <= (limit if following is None else low) and unit[0] > latest:
                break
            dropped.update(unit)
            step = max(step, *unit)
            sent -= sum(tokens[at] for at in unit)
            unit = following
        latest = step
        while first < len(units) and units[first][0] in dropped:
            first += 1
        if sent < whole:
            since, unsure = end, whole
        elif unsure is not None:
            since = end
        unsure = None if unsure is None or unsure > limit * _SURE else unsure
    return Step(frozenset(dropped), since)


def _droppable(units: Sequence[Unit], first: int, end: int, newest: int, dropped: set[int]) -> Iterator[Unit]:
    """Yield the droppable units of a request, oldest first.

    Args:
        units: All units.
        first: The index of the first unit to consider.
        end: The number of messages in the request.
        newest: The index of the newest user message, which is kept.
        dropped: The indices of the messages that were dropped from earlier requests.
    """
    for at in range(first, len(units)):
        unit = units[at]
        if unit[0] >= end:
            return
        if unit[-1] < end and newest not in unit and unit[0] not in dropped:
            yield unit
