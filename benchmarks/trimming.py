"""What of trimming is no ratio: how its time grows, and what it leaves to a provider's cache."""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING, NamedTuple

from floors import FEW, MANY
from work import conversation

from lazyprompt import Budget

if TYPE_CHECKING:
    from collections.abc import Mapping

    from speed import Result
    from work import Messages

    from lazyprompt import TiktokenCounter

POLICIES = ("cache", "oldest")


class Figure(NamedTuple):
    """A figure of its own.

    Attributes:
        name: What it is.
        value: The figure.
        most: What it may be at most; None where it is only looked at.
        least: What it must be at least; the same.
    """

    name: str
    value: float
    most: float | None = None
    least: float | None = None

    def misses(self, slack: float) -> bool:
        """Whether it is out of its bounds; a time may be so many times too much, a share may not."""
        return (self.most is not None and self.value > self.most * slack) or (
            self.least is not None and self.value < self.least
        )


def growths(results: Mapping[str, Result]) -> list[Figure]:
    """The exponents with which the time grows, from rows by their keys; linear is 1.

    The floor is one loop over the same messages, so how it grows counts as linear: what more of them cost beside that
    (fewer are in the processor's caches) is the machine's.
    """
    pairs = (("none known", "trim few", "trim many"), ("all known", "trim few known", "trim many known"))
    return [
        Figure(
            f"growth of trimming from {FEW:,} to {MANY:,} messages, {name}",
            1 + log(results[many].ratio / results[few].ratio) / log(MANY / FEW),
            most=1.1,
        )
        for name, few, many in pairs
        if few in results and many in results
    ]


def shares(counter: TiktokenCounter) -> list[Figure]:
    """The shares of tokens that stay what they were, so that a provider's cache knows them."""
    return [
        Figure(
            f"prefix that is as in the turn before, over 200 turns, policy {policy!r}",
            unchanged(policy, counter),
            least=0.9 if policy == "cache" else None,
        )
        for policy in POLICIES
    ]


def unchanged(policy: str, counter: TiktokenCounter, turns: int = 200, most: int = 8_000) -> float:
    """The share of tokens in a prefix that is the same as in the turn before, over a chat of so many turns."""
    messages = conversation(1 + 2 * turns, words=80)
    budget = Budget(most, counter, policy)  # type: ignore[arg-type]  # one of two
    same = sent = 0
    before: Messages = []
    for turn in range(turns):
        now, _ = budget.fit(messages[: 2 * turn + 2])
        prefix = 0
        for one, other in zip(before, now, strict=False):
            if one != other:
                break
            prefix += 1
        if turn:
            same += counter.count(now[:prefix])
            sent += counter.count(now)
        before = now
    return same / sent
