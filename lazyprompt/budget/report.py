"""The report on a trimmed conversation: token counts, and the dropped, truncated and summarized messages."""

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
    """The token counts before and after trimming."""

    before: int
    after: int


class ListItems(NamedTuple):
    """The outcome for a slot whose value is a list.

    Attributes:
        kept: The indices of the kept items in the slot's list.
        dropped: The indices of the dropped items in the slot's list.
        start: The index of the list's first item in the report's ``messages``.
    """

    kept: tuple[int, ...]
    dropped: tuple[int, ...]
    start: int


@dataclass(frozen=True, slots=True)
class Trimmed:
    """The outcome for a message, a slot value, or one item of a list value.

    Attributes:
        index: The index in the report's ``messages``.
        role: The message role; ``slot`` for a slot value.
        slot: The part of the prompt, which is ``system``, ``history``, ``input`` (the newest user turn) or a slot name.
        fate: The outcome, which is ``kept``, ``dropped``, ``cut`` or ``summarized``.
        reason: The reason for the outcome; empty for a kept message.
        before: The token count before trimming.
        after: The token count after trimming.
        item: For an item of a list value, its index in the list; None for a message or a complete slot value.
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
    """A report on the changes that a budget made to a conversation.

    Token counts are computed on first access.

    Attributes:
        max_tokens: The maximum number of tokens, excluding the reserve for the response; None if only slots had limits.
        failure: The reason why summarizing failed; None if summarizing did not fail.
        lists: The kept and dropped items of each list, by slot name.
        void: The indices of the messages whose signed thinking was dropped because its signature covered messages that
            are now dropped.
        ends_prefix: True if the previous request dropped different messages, so that a prompt cache can't serve the
            remaining messages.
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
        """Return True if the budget changed the conversation."""
        return bool(self._fates)

    @property
    def dropped(self) -> tuple[int, ...]:
        """The indices of the dropped messages, slot values and list items."""
        return self._of("dropped")

    @property
    def cut(self) -> tuple[int, ...]:
        """The indices of the truncated messages and slot values."""
        return self._of("cut")

    @property
    def summarized(self) -> tuple[int, ...]:
        """The indices of the messages that were replaced by a summary."""
        return self._of("summarized")

    def _of(self, kind: Outcome) -> tuple[int, ...]:
        return tuple(sorted(at for at, (fate, _) in self._fates.items() if fate == kind))

    @cached_property
    def _account(self) -> Account:
        return self._count()

    @property
    def before(self) -> int:
        """The token count before trimming."""
        return self._account.before

    @property
    def after(self) -> int:
        """The token count after trimming."""
        return self._account.after

    @property
    def messages(self) -> tuple[Trimmed, ...]:
        """The outcome for each message, slot value and list item, in their original order."""
        return tuple(
            Trimmed(
                index, item.role, item.slot, *self._fates.get(index, ("kept", "")), item.before, item.after, item.item
            )
            for index, item in enumerate(self._account.items)
        )

    @property
    def slots(self) -> dict[str, Tokens]:
        """The token counts by slot name, plus ``tools`` and ``framing`` (all other tokens)."""
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
        """Return the report as a JSON-serializable dict."""
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

    def _describe_changes(self) -> str:
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
            done.append(f"{len(self.void)} without their signed thinking, which is void")
        return "; ".join([*done, *([self.failure] if self.failure else [])]) or "nothing changed"

    def _reasons(self, indices: Sequence[int]) -> str:
        return ", ".join(dict.fromkeys(self._fates[at][1] for at in indices))

    def __str__(self) -> str:
        limit = "" if self.max_tokens is None else f" of {self.max_tokens:,}"
        before = f"{self.before:,} → " if self else ""
        return f"{before}{self.after:,}{limit} tokens: {self._describe_changes()}"

    def __repr__(self) -> str:
        # Omit token counts, because some counters call a provider's API.
        return f"<TrimReport: {self._describe_changes()}>"

    def _repr_html_(self) -> str:
        return html_of(self)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a pickle, with computed token counts."""
        return {**self.__dict__, "_count": None, "_account": self._account}


class ItemTokens(NamedTuple):
    """The token counts for one item.

    Attributes:
        role: The message role; ``slot`` for a slot value.
        slot: The part of the prompt; see :class:`Trimmed`.
        before: The token count before trimming.
        after: The token count after trimming; 0 if the item was dropped.
        item: For an item of a list value, its index in the list; None for a message or a complete slot value.
    """

    role: str
    slot: str
    before: int
    after: int
    item: int | None = None


class Account(NamedTuple):
    """The token counts for a conversation.

    Attributes:
        before: The token count before trimming.
        after: The token count after trimming.
        items: The token counts for each item.
        slots: The token counts by slot name.
    """

    before: int
    after: int
    items: Sequence[ItemTokens]
    slots: Mapping[str, Tokens]
