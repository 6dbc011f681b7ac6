"""The report of a simulated cache: the tokens of each call, and the breaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from lazyprompt._base.frozen import read_only

if TYPE_CHECKING:
    from lazyprompt.caching.rules import CacheRules


class CachedCall(NamedTuple):
    """The tokens of one call.

    Attributes:
        total: All tokens of the call.
        read: The tokens read from the cache.
        shared: The tokens shared with the compared earlier call: the index of the first differing token.
        compared: The index of that call; None if there is none.
        conversation: The id of its conversation, if known.
    """

    total: int
    read: int
    shared: int = 0
    compared: int | None = None
    conversation: str | None = None

    @property
    def hit_rate(self) -> float:
        """The fraction of the tokens that was read from the cache."""
        return self.read / (self.total or 1)


class Break(NamedTuple):
    """A difference between a call and an earlier one that lost cached tokens.

    Attributes:
        call: The index of the call.
        message: The index of the message; None outside of the messages, as in the tools or in flat text.
        slot: The slot that changed, or ``tools``, ``system``, ``history``; None if the payload doesn't reveal it.
        line: The line within the message, the system text, the tool or the flat text, from 1.
        before: The earlier call's text around the difference; secrets are masked.
        after: The call's own text around the difference.
        lost: The number of cached tokens that are computed again.
        advice: The advice to avoid the break.
        thoughts: The number of signed thoughts after the difference; they are void.
    """

    call: int
    message: int | None
    slot: str | None
    line: int
    before: str
    after: str
    lost: int
    advice: str
    thoughts: int = 0

    @property
    def where(self) -> str:
        """The slot, or the message if the slot is unknown."""
        return self.slot or f"message {self.message}"


@read_only
@dataclass(frozen=True, slots=True)
class CacheReport:
    """The tokens and breaks of a series of calls with a prompt cache.

    Attributes:
        rules: The rules that were simulated.
        calls: The tokens of each call.
        breaks: The breaks, in order.
        notes: The unpublished rules, with the assumptions in their place.
    """

    rules: CacheRules
    calls: tuple[CachedCall, ...]
    breaks: tuple[Break, ...]
    notes: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """The tokens of all calls."""
        return sum(call.total for call in self.calls)

    @property
    def read(self) -> int:
        """The tokens of all calls that were read from the cache."""
        return sum(call.read for call in self.calls)

    @property
    def hit_rate(self) -> float:
        """The fraction of all tokens that was read from the cache."""
        return self.read / (self.total or 1)

    @property
    def slots(self) -> dict[str, int]:
        """The tokens lost in each slot, the most first; ``message N`` if the slot is unknown."""
        lost: dict[str, int] = {}
        for each in self.breaks:
            lost[each.where] = lost.get(each.where, 0) + each.lost
        return dict(sorted(lost.items(), key=lambda item: -item[1]))

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "rules": {"name": self.rules.name, "source": self.rules.source, "date": self.rules.date},
            "hit_rate": self.hit_rate,
            "total": self.total,
            "read": self.read,
            "slots": self.slots,
            "breaks": [each._asdict() for each in self.breaks],
            "calls": [each._asdict() for each in self.calls],
            "notes": [*self.notes],
        }
