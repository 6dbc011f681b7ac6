"""Steps: the oldest messages are dropped many at a time, so that many requests share a prefix.

A budget keeps no state of a conversation. Each time, it replays all requests of the conversation so far: whenever one
was too long, messages were dropped down to the low-water mark. The next requests drop the same messages, until one is
too long again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lazyprompt.budget.units import Unit


# The tolerance of estimates, as a factor of the limit.
_SURE = 1.05


class Step(NamedTuple):
    """The messages that are dropped for a request.

    Attributes:
        dropped: The indices of the messages.
        since: The index of the first answer that was requested without them; the number of messages if this request
            is the first.
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
    """Return the step of the latest request of a conversation.

    Args:
        units: The units that may be dropped, the oldest first.
        tokens: The tokens of each message.
        roles: The role of each message. One request preceded each assistant message; the latest follows them all.
        beside: The tokens of the request without its messages.
        newer: The tokens of the latest request's input, which is not one of the messages.
        limit: The maximum number of tokens of a request.
        low: The low-water mark: the number of tokens to drop down to.
    """
    dropped: set[int] = set()
    since, sent, done, newest = 0, beside, 0, -1
    # The index of the first unit that is not dropped, and of the newest dropped message.
    first, latest = 0, -1
    # The tokens of a request before the last step, while the estimate is too close to the limit to date that step.
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
            # The model continues from the last unit, so drop it only if necessary. A step also drops every unit older
            # than the newest dropped one, such as a question whose tool calls were dropped before it.
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
    """Yield the units of a request that may be dropped, oldest first.

    Args:
        units: All units.
        first: The index of the first unit to consider.
        end: The number of messages of the request.
        newest: The index of the newest user message, which is kept.
        dropped: The indices of the messages that earlier requests dropped.
    """
    for at in range(first, len(units)):
        unit = units[at]
        if unit[0] >= end:
            return
        if unit[-1] < end and newest not in unit and unit[0] not in dropped:
            yield unit
