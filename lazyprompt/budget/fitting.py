"""The algorithm that fits a conversation to a budget, for all policies.

The algorithm groups items into units, sorts the units, drops as many as necessary, and then truncates or summarizes.
"""

from __future__ import annotations

import sys
from math import ceil
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from lazyprompt._base.roles import SYSTEM_ROLES
from lazyprompt.budget.costs import Cost, CountCache, MessageMeter, Meter, WholeMeter
from lazyprompt.budget.cut import Cut, cuttable_texts, is_empty, shorten, with_text
from lazyprompt.budget.report import Account, ItemTokens, Outcome, Tokens, TrimReport
from lazyprompt.budget.steps import Step, last_step
from lazyprompt.budget.summary import SUMMARY, Summaries, Task, checked_summary, summary_message
from lazyprompt.budget.units import ConversationUnits, Item, Message, SlotValue, Unit, group_units
from lazyprompt.errors import BudgetError, LazyPromptError
from lazyprompt.messages.msg import Msg
from lazyprompt.messages.turns import without_signed_thoughts

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from lazyprompt.tokens.counter import Form

    # A generator that yields summary tasks, receives each summary or the summarizer's exception, and returns the fitted
    # conversation.
    Steps: TypeAlias = Generator[Task, object, "Fitted"]

# The minimum length of a truncated message, in tokens. If less of a message would remain, the message is dropped
# instead.
_LEAST = 32
# The maximum number of attempts to truncate a text. One attempt may not suffice, because a text can cost more tokens in
# a request than alone.
_TRIES = 8
_ORPHAN = "a result without its call"
_AFTER_USER = "the oldest after a kept user message go first"


class Fitted(NamedTuple):
    """The result of fitting a conversation.

    Attributes:
        kept: The indices of the kept items, in order.
        replaced: The replacement items by index: truncated items, or a summary.
        fates: The outcome, with its reason, for each item that was dropped or changed.
        report: The report on all dropped, truncated and summarized items.
    """

    kept: list[int]
    replaced: dict[int, Item]
    fates: dict[int, tuple[Outcome, str]]
    report: TrimReport


class FitPlan(NamedTuple):
    """A budget's settings, resolved for one conversation.

    Attributes:
        limit: The maximum number of tokens; None if there is no limit.
        order: A function that sorts the conversation's units (groups of items) into the order in which they are
            dropped.
        reason: The reason that the report states for dropped messages.
        item_reason: The reason that the report states for dropped list items.
        is_protected: A function that returns True for each item to keep.
        cut: The part to remove from long text, either ``end`` or ``middle``; None to never truncate text.
        low: The target size after messages are dropped, in tokens; None to drop as few messages as possible.
        grid: The step size, in tokens; the amount to drop is rounded up to a multiple of it, so that summaries can be
            reused.
        summary: The maximum number of tokens in a summary; 0 for no summaries.
        counts: The cache of token counts.
        summaries: The cache of summaries.
        start_on: The required role of the first remaining turn; None for any role.
    """

    limit: int | None
    order: Callable[[Sequence[Item], list[Unit]], list[Unit]]
    reason: str
    item_reason: str
    is_protected: Callable[[int, Item], bool] | None
    cut: Cut | None
    low: int | None
    grid: int
    summary: int
    counts: CountCache
    summaries: Summaries
    start_on: str | None = None


def fit_steps(
    plan: FitPlan,
    items: Sequence[Item],
    tools: Sequence[Form] | None,
    cost: Cost | None,
    *,
    keep_newest: bool,
    together: Sequence[Unit] = (),
    past: Cost | None = None,
) -> Steps:
    """Fit items to a budget.

    Args:
        plan: The budget's settings.
        items: The messages and slot values, which are not modified.
        tools: The tools that are sent with the messages.
        cost: A function that returns the cost of items in the format in which they are sent. If None, the items are
            counted in OpenAI's format, and tool results without a call are dropped.
        keep_newest: True if the items include the newest user turn.
        together: Additional groups of item indices; the items of a group are kept or dropped together.
        past: A function like ``cost`` that omits the latest input, as earlier requests did; by default, ``cost``
            itself.

    Returns:
        A generator that yields summary tasks and returns the result.

    Raises:
        BudgetError: The items that are never dropped exceed the limit.
        HistoryError: An item is neither a message nor a slot value.
    """
    talk = group_units(items, plan.is_protected, keep_newest=keep_newest, together=together)
    orphans = talk.orphans
    if cost is not None:
        # Keep tool results without a call, because the caller handles them.
        talk, orphans = talk._replace(fixed=sorted((*talk.fixed, *orphans))), []
    order = plan.order(items, talk.units)
    meter: Meter
    if cost is None and plan.counts.additive:
        meter = MessageMeter(items, talk.fixed, order, plan.counts, tools)
    else:
        meter = WholeMeter(items, talk.fixed, order, cost or _whole(items, plan.counts, tools))
    limit = sys.maxsize if plan.limit is None else plan.limit
    work = _Work(plan, limit, items, talk, order, meter, tools)
    work.mark(orphans, "dropped", _ORPHAN)
    gone = 0 if plan.limit is None else meter.find_fewest(limit)
    if gone is None:
        work.drop(len(order))
        work.cut_protected()
    elif gone and plan.summary:
        yield from work.summarize(gone)
    elif gone:
        work.drop_in_steps(gone, past or meter.cost)
        work.cut_last(gone)
    if plan.start_on is not None:
        work.start_on(plan.start_on, follows=not keep_newest)
    if cost is not None:
        work.drop_void_thinking()
    return work.result()


def _whole(items: Sequence[Item], counts: CountCache, tools: Sequence[Form] | None) -> Cost:
    return lambda kept, replaced: counts.cost([replaced.get(at, items[at]) for at in kept], tools)


class _Work:
    """The state of fitting one conversation."""

    def __init__(
        self,
        plan: FitPlan,
        limit: int,
        items: Sequence[Item],
        talk: ConversationUnits,
        order: list[Unit],
        meter: Meter,
        tools: Sequence[Form] | None,
    ) -> None:
        self._plan, self._limit, self._items, self._talk = plan, limit, items, talk
        self._order, self._meter, self._tools = order, meter, tools
        self._lost: dict[int, tuple[Outcome, str]] = {}
        self._cuts: dict[int, tuple[Outcome, str]] = {}
        self._replaced: dict[int, Item] = {}
        self._summary: int | None = None
        self._failure: str | None = None
        self._void: list[int] = []
        # The index of the first assistant message that was generated without the messages that are now dropped; None
        # if unknown.
        self._since: int | None = None

    def mark(self, indices: Iterable[int], fate: Outcome, reason: str) -> None:
        """Record the outcome and its reason for items that are not kept."""
        self._lost |= dict.fromkeys(indices, (fate, reason))

    def drop(self, count: int) -> None:
        """Drop the first ``count`` units in the order that the policy determines."""
        going = {at for unit in self._order[:count] for at in unit}
        items = {at for at in going if self._is_list_item(at)}
        self.mark(going - items, "dropped", self._plan.reason)
        self.mark(items, "dropped", self._plan.item_reason)

    def drop_in_steps(self, gone: int, past: Cost) -> None:
        """Drop the oldest units, many at a time; without a low-water mark, only as many as necessary.

        Args:
            gone: The smallest number of units to drop.
            past: A function that returns the cost that items had in an earlier request.
        """
        if self._plan.low is None:
            self.drop(gone)
            return
        step = self._step(past)
        kept = [at for at in range(len(self._items)) if at not in step.dropped]
        if self._meter.cost(kept, {}) > self._limit:
            self.drop(gone)
        else:
            self._since = step.since
        self.mark(step.dropped, "dropped", self._plan.reason)
        self.mark(self._after_kept_user(), "dropped", _AFTER_USER)

    def _after_kept_user(self) -> list[int]:
        """Return the indices of the messages that the policy dropped although it kept their turn's user message."""
        found: list[int] = []
        is_kept = False
        for at, item in enumerate(self._items):
            if role_of(item) == "user":
                is_kept = at not in self._lost
            elif is_kept and self._lost.get(at) == ("dropped", self._plan.reason):
                found.append(at)
        return found

    def _step(self, past: Cost) -> Step:
        """Compute the messages dropped from each earlier request, and return those to drop from the latest request."""
        count = len(self._items)
        roles = [role_of(item) for item in self._items if not isinstance(item, SlotValue)]
        units = self._order[: self._message_units]
        alone = {*range(len(roles))}.difference(*units)
        first = next((at for at, role in enumerate(roles, 1) if role == "user"), len(roles))
        values = range(len(roles), count)
        # Count messages without the latest input, as earlier requests did, so that this request drops the same
        # messages.
        least = past([*range(first), *values], {})
        share = self._plan.counts.share
        tokens = dict.fromkeys(range(len(roles)), 0)
        for unit in (*units, *((at,) for at in alone)):
            if unit[0] >= first:
                tokens[unit[-1]] = past(sorted({*range(first), *values, *unit}), {}) - least
            else:
                tokens |= {at: share(self._items[at]) for at in unit}
        newer = self._meter.cost([*range(first), *values], {}) - least
        beside = least - sum(tokens[at] for at in range(first))
        low = self._plan.low or 0
        return last_step(units, [*tokens.values()], roles, beside=beside, newer=newer, limit=self._limit, low=low)

    @property
    def _message_units(self) -> int:
        """The number of droppable units that precede the first list item in the drop order."""
        return next((at for at, unit in enumerate(self._order) if self._is_list_item(unit[0])), len(self._order))

    def _is_list_item(self, at: int) -> bool:
        item = self._items[at]
        return isinstance(item, SlotValue) and item.place is not None

    def _fewest_to(self, most: int) -> int:
        full, grid = self._meter.full, self._plan.grid
        gone = self._meter.find_fewest(full - ceil((full - most) / grid) * grid)
        return len(self._order) if gone is None else gone

    def cut_last(self, gone: int) -> None:
        """Truncate the unit that would be dropped last instead of dropping it, if possible."""
        if self._plan.cut is not None:
            self._cut(self._order[gone - 1], _LEAST)

    def cut_protected(self) -> None:
        """Truncate the newest user turn or a slot value, because neither can be dropped."""
        slots = tuple(at for at, item in enumerate(self._items) if isinstance(item, SlotValue))
        if self._plan.cut is None or not self._cut((*self._talk.newest, *slots), 0):
            raise BudgetError(self._describe_excess())

    def _cut(self, unit: Unit, least: int) -> bool:
        """Truncate one text in a group of items, preferably the longest text, so that the conversation fits.

        Returns:
            True if the conversation fits after the truncation; False if truncating a single text is not enough.
        """
        texts = [(text, at) for at in unit for text in cuttable_texts(self._items[at])]
        texts.sort(key=lambda each: len(each[0]), reverse=True)
        return any(self._cut_text(text, at, unit, least) for text, at in texts)

    def _cut_text(self, text: str, at: int, unit: Unit, least: int) -> bool:
        count_text, cut = self._plan.counts.count_text, self._plan.cut or "end"
        kept = sorted({*self._kept(), *unit})
        room = count_text(text)
        over = self._meter.cost(kept, {}) - self._limit
        for _ in range(_TRIES):
            room -= max(1, over)
            if room < least:
                return False
            short = shorten(text, room, count_text, cut)
            if is_empty(short):
                return False
            item = with_text(self._items[at], text, short)
            over = self._meter.cost(kept, {at: item}) - self._limit
            if over <= 0:
                for member in unit:
                    self._lost.pop(member, None)
                self._replaced[at] = item
                self._cuts[at] = ("cut", f"longer than the {room} tokens left")
                return True
        return False

    def summarize(self, gone: int) -> Generator[Task, object, None]:
        """Replace dropped messages with a summary; if there is no summary, drop only as many as necessary."""
        plan = self._plan
        # Summarize at least the ``gone`` units that don't fit. The search for a size that includes a summary can return
        # fewer units, because token counts are not monotonic.
        units = min(max(gone, self._fewest_to(self._limit - plan.summary)), self._message_units)
        going = sorted(at for unit in self._order[:units] for at in unit)
        self.drop(gone)
        if not going:
            return
        try:
            messages = [item for at in going if not isinstance(item := self._items[at], SlotValue)]
            text = yield from self._summary_of(messages)
            self._put_summary(going, text)
        except LazyPromptError as error:
            self._failure = f"no summary: {error}"

    def _summary_of(self, messages: list[Message]) -> Generator[Task, object, str]:
        task = self._plan.summaries.task(messages)
        if isinstance(task, str):
            return task
        made = yield task
        if isinstance(made, Exception):
            raise BudgetError(f"the summarizer failed with {type(made).__name__}: {made}") from made
        text = checked_summary(made)
        self._plan.summaries.keep(task, text)
        return text

    def _put_summary(self, going: list[int], text: str) -> None:
        plan, first = self._plan, going[0]
        kept = sorted({*self._kept(), first} - set(going[1:]))
        count_text = plan.counts.count_text
        room = plan.summary - count_text(SUMMARY)
        for _ in range(_TRIES):
            left = shorten(text, room, count_text)
            if is_empty(left):
                break
            message = summary_message(left, self._items[first])
            over = self._meter.cost(kept, {first: message}) - self._limit
            if over <= 0:
                self.mark(going, "summarized", _REASON_SUMMARY)
                self._replaced[first], self._summary = message, first
                return
            # A text can cost more tokens in a request than alone, so the excess may exceed the text's own count.
            room = room - over if room > over else room // 2
        raise BudgetError(f"a summary of at most {plan.summary} tokens does not fit")

    def start_on(self, role: str, *, follows: bool) -> None:
        """Drop all units (groups of items) before the first turn with a role, except system text and protected items.

        Args:
            role: The required role of the first turn.
            follows: True if a turn with the role ``role`` is sent after the fitted items.
        """
        kept = self._kept() if self._summary is None else sorted((*self._kept(), self._summary))
        begins = {at: unit[0] for unit in self._order for at in unit}
        starts = (
            at for at in kept if begins.get(at, at) == at and role_of(self._replaced.get(at, self._items[at])) == role
        )
        first = next(starts, len(self._items) if follows else 0)
        stays = set(kept)
        for unit in self._order:
            if unit[0] < first and not stays.isdisjoint(unit) and unit[0] != self._summary and not self._is_value(unit):
                going = stays.intersection(unit)
                self.mark(going, "dropped", f"before the first {role} turn")
                for at in going:
                    self._replaced.pop(at, None)
                    self._cuts.pop(at, None)

    def _is_value(self, unit: Unit) -> bool:
        """Return True if a unit is a slot value rather than a message."""
        return isinstance(self._items[unit[0]], SlotValue)

    def drop_void_thinking(self) -> None:
        """Drop signed thinking whose signature covers messages that are now dropped."""
        if not self._lost and not self._cuts:
            return
        since = len(self._items) if self._since is None else self._since
        for at in self._kept():
            item = self._replaced.get(at, self._items[at])
            content = without_signed_thoughts(item.content) if isinstance(item, Msg) else ""
            if isinstance(item, Msg) and at < since and content is not item.content:
                self._replaced[at] = item.evolve(content=content)
                self._void.append(at)

    @property
    def _ends_prefix(self) -> bool:
        """True if the request for the last assistant message dropped other messages than the current request."""
        roles = [role_of(item) for item in self._items]
        last = max((at for at, role in enumerate(roles) if role == "assistant"), default=0)
        return bool(self._lost) and (self._since is None or self._since > last)

    def _kept(self) -> list[int]:
        return [at for at in range(len(self._items)) if at not in self._lost]

    def result(self) -> Fitted:
        """Return the fitted conversation, with its report."""
        kept = self._kept()
        if self._summary is not None:
            kept = sorted((*kept, self._summary))
        fates = self._lost | self._cuts
        report = TrimReport(
            self._plan.limit, fates, self._account, self._failure, void=tuple(self._void), ends_prefix=self._ends_prefix
        )
        return Fitted(kept, self._replaced, fates, report)

    def _account(self) -> Account:
        items, counts = self._items, self._plan.counts
        kept = self._kept()
        stays = set(kept)
        shares = [counts.share(item) for item in items]
        found = [
            ItemTokens(
                role_of(item),
                self._slot_of(at),
                shares[at],
                0 if at not in stays else counts.share(self._replaced[at]) if at in self._replaced else shares[at],
                item.place if isinstance(item, SlotValue) else None,
            )
            for at, item in enumerate(items)
        ]
        sent = kept if self._summary is None else sorted((*kept, self._summary))
        slots: dict[str, Tokens] = {}
        for each in found:
            old = slots.get(each.slot, Tokens(0, 0))
            slots[each.slot] = Tokens(old.before + each.before, old.after + each.after)
        if self._summary is not None:
            slots["summary"] = Tokens(0, counts.share(self._replaced[self._summary]))
        if self._tools:
            slots["tools"] = Tokens(counts.tools(self._tools), counts.tools(self._tools))
        before = self._meter.cost(range(len(items)), {})
        # Don't recount an unchanged conversation, because some counters call a provider's API.
        after = self._meter.cost(sent, self._replaced) if self._lost or self._cuts else before
        return Account(before, after, found, slots)

    def _slot_of(self, at: int) -> str:
        item = self._items[at]
        if isinstance(item, SlotValue):
            return item.slot
        if role_of(item) in SYSTEM_ROLES:
            return "system"
        return "input" if at in self._talk.newest else "history"

    def _describe_excess(self) -> str:
        """Explain, with token counts, why the items that are never dropped exceed the limit."""
        counts: dict[str, int] = {}
        for at in self._talk.fixed:
            slot = self._slot_of(at)
            counts[slot] = counts.get(slot, 0) + self._plan.counts.share(self._items[at])
        if self._tools:
            counts["tools"] = self._plan.counts.tools(self._tools)
        least = self._meter.cost(self._talk.fixed, {})
        rest = least - sum(counts.values())
        if rest > 0 and counts:
            counts["fixed text"] = rest
        parts = ", ".join(f"{_NAMES.get(slot, slot)} {count:,}" for slot, count in counts.items())
        advice = "" if self._plan.cut else ", or pass cut= to cut the newest turn"
        lists = sorted({repr(self._slot_of(at)) for at in self._talk.fixed if self._is_list_item(at)})
        empty = f", or the list {', '.join(lists)} would be empty" if lists else ""
        missing = f"{least - self._limit:,} tokens are missing{empty}"
        return (
            f"the parts that are never dropped have {least:,} tokens ({parts or 'no messages'}), and the limit is "
            f"{self._limit:,}: {missing}; raise the limit or shorten the text{advice}"
        )


_REASON_SUMMARY = "replaced by a summary"
_NAMES = {"system": "system text", "input": "newest user turn", "history": "protected messages"}


def role_of(item: Item) -> str:
    """Return the role of an item; ``slot`` for a slot value."""
    if isinstance(item, SlotValue):
        return "slot"
    return item.role if isinstance(item, Msg) else str(item.get("role", ""))
