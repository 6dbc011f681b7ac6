"""A report on a simulated prompt cache, with the token counts for each call and the cache breaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from lazyprompt._base.frozen import read_only

if TYPE_CHECKING:
    from lazyprompt.caching.rules import CacheRules


class CachedCall(NamedTuple):
    """The token counts for one call.

    Attributes:
        total: The number of tokens in the call's prompt.
        read: The number of prompt tokens read from the cache.
        shared: The number of tokens shared with the earlier call in ``compared``, which is also the index of the first
            differing token.
        compared: The index of the earlier call used for comparison, or None if there is none.
        conversation: The id of the call's conversation, if known.
    """

    total: int
    read: int
    shared: int = 0
    compared: int | None = None
    conversation: str | None = None

    @property
    def hit_rate(self) -> float:
        """The fraction of the call's tokens that was read from the cache."""
        return self.read / (self.total or 1)


class Break(NamedTuple):
    """A cache break: a difference from an earlier call that invalidated cached tokens.

    Attributes:
        call: The index of the call.
        message: The message index, or None if the change is outside the messages, such as in the tools or in flat text.
        slot: The slot that changed, or ``tools``, ``system`` or ``history``; None if the payload doesn't reveal the
            slot.
        line: The line number within the message, the system text, the tool or the flat text, counted from 1.
        before: The earlier call's text around the difference, with secrets masked.
        after: The current call's text around the difference, with secrets masked.
        lost: The number of cached tokens that must be computed again.
        advice: Advice for avoiding the break.
        thoughts: The number of signed reasoning blocks that the difference invalidates, because they follow it.
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
        """The slot's name, or the message index if the slot is unknown."""
        return self.slot or f"message {self.message}"


@read_only
@dataclass(frozen=True, slots=True)
class CacheReport:
    """Token counts and cache breaks for a series of calls.

    Attributes:
        rules: The simulated cache rules.
        calls: The token counts for each call.
        breaks: The cache breaks, in the order of the calls.
        notes: The unpublished rules, each with the assumption that the simulation makes instead.
    """

    rules: CacheRules
    calls: tuple[CachedCall, ...]
    breaks: tuple[Break, ...]
    notes: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """The total number of prompt tokens in all calls."""
        return sum(call.total for call in self.calls)

    @property
    def read(self) -> int:
        """The total number of prompt tokens that all calls read from the cache."""
        return sum(call.read for call in self.calls)

    @property
    def hit_rate(self) -> float:
        """The fraction of all tokens that was read from the cache."""
        return self.read / (self.total or 1)

    @property
    def slots(self) -> dict[str, int]:
        """The number of cached tokens lost through changes in each slot, keyed by slot name; largest number first.

        Lost tokens must be computed again. If the slot is unknown, the key is ``message N``.
        """
        lost: dict[str, int] = {}
        for each in self.breaks:
            lost[each.where] = lost.get(each.where, 0) + each.lost
        return dict(sorted(lost.items(), key=lambda item: -item[1]))

    def as_dict(self) -> dict[str, Any]:
        """Return the report as a JSON-serializable dict."""
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
