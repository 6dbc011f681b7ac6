"""Steps: the oldest messages are dropped many at a time, so that a prefix holds for many requests.

A budget keeps nothing of a conversation. What it drops now follows from all requests of the conversation until now,
which are gone through anew: whenever one was too long, messages were dropped down to the low-water mark. So the same
messages are dropped for the next request, until that is too long again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lazyprompt.budget.units import Unit


# Estimates are right to within this part of the limit.
_SURE = 1.05


class Step(NamedTuple):
    """The messages that are dropped for a request.

    Attributes:
        dropped: The indices of the messages.
        since: The index of the answer that was the first to be asked for without them; the number of messages if this
            request is the first.
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
    """Return the step of the last of the requests of a conversation.

    Args:
        units: The messages that may be dropped, in units that are dropped together, the oldest first.
        tokens: The tokens of each message.
        roles: The role of each message; there was a request before each message of the assistant, and is one now.
        beside: The tokens of what is sent beside the messages.
        newer: The tokens of the input of this request, which is not among the messages.
        limit: The most tokens of a request.
        low: The tokens down to which messages are dropped.
    """
    dropped: set[int] = set()
    since, sent, done, newest = 0, beside, 0, -1
    # The first unit that is not dropped, and the last message that is.
    first, latest = 0, -1
    # What a request would have without the last step, while the estimate leaves it open whether that was made then.
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
            # The last unit is what the model goes on with: it is dropped only if it must be. A step takes all that is
            # older than the last one, as the question whose tool calls went before it.
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
    """Yield the units of a request that may be dropped, the oldest first.

    Args:
        units: All units.
        first: The index of the first unit to consider.
        end: The number of messages of the request.
        newest: The index of the newest user message, which stays.
        dropped: The indices of the messages that earlier requests dropped.
    """
    for at in range(first, len(units)):
        unit = units[at]
        if unit[0] >= end:
            return
        if unit[-1] < end and newest not in unit and unit[0] not in dropped:
            yield unit
