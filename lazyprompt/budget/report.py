"""The report of a budget: what went, what was cut or summarised, and what it all costs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from lazyprompt._base.display import html_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lazyprompt._base.json import JsonObject

Outcome: TypeAlias = Literal["kept", "dropped", "cut", "summarized"]


class Tokens(NamedTuple):
    """Tokens before and after trimming."""

    before: int
    after: int


class ListItems(NamedTuple):
    """The items of a list in a slot, by their indices in the list.

    Attributes:
        kept: The items that stay.
        dropped: The items that went.
        start: The index of the first item among the messages of the report.
    """

    kept: tuple[int, ...]
    dropped: tuple[int, ...]
    start: int


@dataclass(frozen=True, slots=True)
class Trimmed:
    """Outcome for one message, for the value of a slot, or for an item of a list in a slot.

    Attributes:
        index: Its place among the messages that were given.
        role: Its role; ``slot`` for the value of a slot.
        slot: What it belongs to: ``system``, ``history``, ``input`` (the newest turn of the user), or a slot's name.
        fate: ``kept``, ``dropped``, ``cut`` or ``summarized``.
        reason: Why; empty where it was kept.
        before: Its tokens before.
        after: Its tokens after.
        item: The index of the item in its list; None for a message and a whole value.
    """

    index: int
    role: str
    slot: str
    fate: Outcome
    reason: str
    before: int
    after: int
    item: int | None = None


class TrimReport:
    """An account of what a budget did to a conversation.

    What costs time to know is counted when it is asked for, message by message.

    Attributes:
        max_tokens: The most tokens that were allowed, what is reserved for the answer not among them; ``None`` where
            only slots were limited.
        failure: Why there is no summary, where one was asked for and could not be had.
        lists: The items of each list in a slot that stay, and those that went, by the name of the slot.
        void: The indices of the messages whose signed thoughts are left out, because other messages stood before them
            when the provider signed them.
        ends_prefix: True if other messages are dropped than for the last answer, so that no cache has the rest.
    """

    def __init__(
        self,
        max_tokens: int | None,
        fates: Mapping[int, tuple[Outcome, str]],
        account: Callable[[], Account],
        failure: str | None = None,
        lists: Mapping[str, ListItems] | None = None,
        *,
        void: tuple[int, ...] = (),
        ends_prefix: bool = False,
    ) -> None:
        self.lists = dict(lists or {})
        self.max_tokens = max_tokens
        self.failure = failure
        self.void = void
        self._fates = fates
        self.ends_prefix = ends_prefix
        self._count = account

    def __bool__(self) -> bool:
        """Return True if anything was changed."""
        return bool(self._fates)

    @property
    def dropped(self) -> tuple[int, ...]:
        """The indices of the messages, values and items that went."""
        return self._of("dropped")

    @property
    def cut(self) -> tuple[int, ...]:
        """The indices of those that were cut."""
        return self._of("cut")

    @property
    def summarized(self) -> tuple[int, ...]:
        """The indices of those whose place a summary took."""
        return self._of("summarized")

    def _of(self, kind: Outcome) -> tuple[int, ...]:
        return tuple(sorted(at for at, (fate, _) in self._fates.items() if fate == kind))

    @cached_property
    def _account(self) -> Account:
        return self._count()

    @property
    def before(self) -> int:
        """The tokens of all that was given."""
        return self._account.before

    @property
    def after(self) -> int:
        """The tokens of all that is sent."""
        return self._account.after

    @property
    def messages(self) -> tuple[Trimmed, ...]:
        """Outcome for each message, and for the value of each slot, in the order given."""
        return tuple(
            Trimmed(
                index, item.role, item.slot, *self._fates.get(index, ("kept", "")), item.before, item.after, item.item
            )
            for index, item in enumerate(self._account.items)
        )

    @property
    def slots(self) -> dict[str, Tokens]:
        """The tokens of each slot, of ``tools``, and of what stands around them (``framing``): the whole in parts."""
        account = self._account
        found = dict(account.slots)
        rest = Tokens(
            account.before - sum(tokens.before for tokens in found.values()),
            account.after - sum(tokens.after for tokens in found.values()),
        )
        if any(rest):
            old = found.get("framing", Tokens(0, 0))
            found["framing"] = Tokens(old.before + rest.before, old.after + rest.after)
        return found

    def as_dict(self) -> JsonObject:
        """The report as JSON values."""
        return {
            "max_tokens": self.max_tokens,
            "before": self.before,
            "after": self.after,
            "slots": {slot: tokens._asdict() for slot, tokens in self.slots.items()},
            "lists": {slot: {"kept": [*items.kept], "dropped": [*items.dropped]} for slot, items in self.lists.items()},
            "messages": [asdict(message) for message in self.messages],
            "void": [*self.void],
            "ends_prefix": self.ends_prefix,
            "failure": self.failure,
        }

    def _done(self) -> str:
        """Describe the changes, without numbers of tokens."""
        of_lists = {
            slot: [items.start + place for place in items.dropped]
            for slot, items in self.lists.items()
            if items.dropped
        }
        others = [at for at in self.dropped if not any(at in gone for gone in of_lists.values())]
        done = [
            f"{len(gone)} {what} ({self._reasons(gone)})"
            for gone, what in ((others, "dropped"), (self.cut, "cut"), (self.summarized, "summarized"))
            if gone
        ]
        for slot, gone in of_lists.items():
            count = len(gone) + len(self.lists[slot].kept)
            done.append(f"{len(gone)} of {count} items of {slot} dropped ({self._reasons(gone)})")
        if self.void:
            done.append(f"{len(self.void)} without their signed thoughts, which are void")
        return "; ".join([*done, *([self.failure] if self.failure else [])]) or "nothing had to go"

    def _reasons(self, indices: Sequence[int]) -> str:
        return ", ".join(sorted({self._fates[at][1] for at in indices}))

    def __str__(self) -> str:
        limit = "" if self.max_tokens is None else f" of {self.max_tokens:,}"
        before = f"{self.before:,} → " if self else ""
        return f"{before}{self.after:,}{limit} tokens: {self._done()}"

    def __repr__(self) -> str:
        # Nothing is counted for it: some counters ask a provider.
        return f"<TrimReport: {self._done()}>"

    def _repr_html_(self) -> str:
        return html_of(self)

    def __getstate__(self) -> dict[str, Any]:
        """Return the known values for a pickle, without those that could still be counted."""
        account = self._account
        return {**self.__dict__, "_count": None, "_account": account}


class ItemTokens(NamedTuple):
    """The tokens of one item.

    Attributes:
        role: Its role.
        slot: What it belongs to.
        before: Its tokens before.
        after: Its tokens after; 0 where it went.
        item: The index of the item in its list; None for a message and a whole value.
    """

    role: str
    slot: str
    before: int
    after: int
    item: int | None = None


class Account(NamedTuple):
    """Cost of a conversation, before and after.

    Attributes:
        before: The tokens of all that was given.
        after: The tokens of all that is sent.
        items: The tokens of each item.
        slots: The tokens of each slot.
    """

    before: int
    after: int
    items: Sequence[ItemTokens]
    slots: Mapping[str, Tokens]
