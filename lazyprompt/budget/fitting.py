"""The one path on which all policies make a conversation fit.

items → units → order in which they go → how many must → a text cut, or a summary → report
"""

from __future__ import annotations

import sys
from math import ceil
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

from lazyprompt._base.roles import SYSTEM_ROLES
from lazyprompt.budget.cut import CUT_MARK, Cut, longest_text, shortened, with_text
from lazyprompt.budget.report import Account, ItemTokens, Outcome, Tokens, TrimReport
from lazyprompt.budget.steps import Step, last_step
from lazyprompt.budget.summary import SUMMARY, Summaries, Task, checked_summary, summary_message
from lazyprompt.budget.tally import AsWhole, ByMessage, Cost, Meter, Tally
from lazyprompt.budget.units import Conversation, Item, Message, SlotValue, Unit, conversation_of
from lazyprompt.errors import BudgetError, LazyPromptError
from lazyprompt.messages.msg import Msg
from lazyprompt.messages.turns import unsigned

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from lazyprompt.tokens.counter import Form

    # Asks for summaries, is sent what was made or the error that was raised, and ends with what fits.
    Steps: TypeAlias = Generator[Task, object, "Fitted"]

# A message that may go is cut only where so many tokens of it would stay.
_LEAST = 32
# How often a text is cut anew where its tokens count otherwise in the whole than by themselves.
_TRIES = 8
_ORPHAN = "a result without its call"


class Fitted(NamedTuple):
    """Messages that fit, and the report.

    Attributes:
        kept: The indices of what stays, in order.
        replaced: What stands in the place of some of them: texts that were cut, a summary.
        fates: What became of those that went or were cut, and why.
        report: The report.
    """

    kept: list[int]
    replaced: dict[int, Item]
    fates: dict[int, tuple[Outcome, str]]
    report: TrimReport


class Plan(NamedTuple):
    """Limits that a budget sets.

    Attributes:
        limit: The most tokens; ``None`` is no limit.
        order: Puts the units in the order in which they go.
        reason: Why they go in that order.
        item_reason: Why items of lists go in that order.
        is_protected: Whether an item never goes.
        cut: Where long texts are cut; ``None`` cuts none.
        low: The tokens down to which messages go at a time; ``None`` lets no more go than must.
        grid: How many tokens a summary takes the place of at a time.
        summary: The most tokens of a summary; 0 makes none.
        tally: What counts.
        summaries: The summaries that are known.
        start_on: The role of the turn that what is left begins with; ``None`` for any.
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
    tally: Tally
    summaries: Summaries
    start_on: str | None = None


def fitting(
    plan: Plan,
    items: Sequence[Item],
    tools: Sequence[Form] | None,
    cost: Cost | None,
    *,
    keep_newest: bool,
    together: Sequence[Unit] = (),
    past: Cost | None = None,
) -> Steps:
    """Make items fit.

    Args:
        plan: What the budget asks for.
        items: Messages and values of slots; left as they are.
        tools: The tools that are sent with them.
        cost: What items cost as they will be sent; ``None`` for the OpenAI form, which drops results without a call.
        keep_newest: Whether the newest turn of the user is among the items.
        together: Further items that go together.
        past: What items cost in an earlier request, which had no newer input; ``None`` is ``cost``.

    Returns:
        What fits, when it is driven to its end; on its way it asks for summaries.

    Raises:
        BudgetError: Even what never goes does not fit.
        HistoryError: An item is no message.
    """
    talk = conversation_of(items, plan.is_protected, keep_newest=keep_newest, together=together)
    orphans = talk.orphans
    if cost is not None:
        # Whoever sends the messages judges these.
        talk, orphans = talk._replace(fixed=sorted((*talk.fixed, *orphans))), []
    order = plan.order(items, talk.units)
    meter: Meter
    if cost is None and plan.tally.additive:
        meter = ByMessage(items, talk.fixed, order, plan.tally, tools)
    else:
        meter = AsWhole(items, talk.fixed, order, cost or _whole(items, plan.tally, tools))
    limit = sys.maxsize if plan.limit is None else plan.limit
    work = _Work(plan, limit, items, talk, order, meter, tools)
    work.lose(orphans, "dropped", _ORPHAN)
    gone = 0 if plan.limit is None else meter.fewest(limit)
    if gone is None:
        work.go(len(order))
        work.cut_protected()
    elif gone and plan.summary:
        yield from work.summarized(gone)
    elif gone:
        work.go_in_steps(gone, past or meter.cost)
        work.cut_last(gone)
    if plan.start_on is not None:
        work.begin_with(plan.start_on, follows=not keep_newest)
    if cost is not None:
        work.leave_void_thoughts()
    return work.done()


def _whole(items: Sequence[Item], tally: Tally, tools: Sequence[Form] | None) -> Cost:
    return lambda kept, replaced: tally.cost([replaced.get(at, items[at]) for at in kept], tools)


class _Work:
    """A conversation on its way to fit."""

    def __init__(
        self,
        plan: Plan,
        limit: int,
        items: Sequence[Item],
        talk: Conversation,
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
        # The messages whose signed thoughts are left out; and the first answer for which the same messages were
        # dropped as now.
        self._void: list[int] = []
        self._since: int | None = None

    def lose(self, indices: Iterable[int], fate: Outcome, reason: str) -> None:
        """Write down that items do not stay, and why."""
        self._lost |= dict.fromkeys(indices, (fate, reason))

    def go(self, count: int) -> None:
        """Let the first units go."""
        going = {at for unit in self._order[:count] for at in unit}
        items = {at for at in going if self._is_list_item(at)}
        self.lose(going - items, "dropped", self._plan.reason)
        self.lose(items, "dropped", self._plan.item_reason)

    def go_in_steps(self, gone: int, past: Cost) -> None:
        """Let the oldest units go, many at a time; items of lists differ between requests, so no more than must.

        Args:
            gone: The fewest units that must go.
            past: What items cost in an earlier request.
        """
        if self._plan.low is None:
            self.go(gone)
            return
        step = self._step(past)
        kept = [at for at in range(len(self._items)) if at not in step.dropped]
        if self._meter.cost(kept, {}) > self._limit:
            self.go(gone)
        else:
            self._since = step.since
        self.lose(step.dropped, "dropped", self._plan.reason)

    def _step(self, past: Cost) -> Step:
        """Return what is dropped in steps."""
        count = len(self._items)
        roles = [role_of(item) for item in self._items if not isinstance(item, SlotValue)]
        units = self._order[: self._message_units]
        alone = {*range(len(roles))}.difference(*units)
        first = next((at for at, role in enumerate(roles, 1) if role == "user"), len(roles))
        values = range(len(roles), count)
        # A message costs what it adds to the first request: the same in all requests, which find the same to drop.
        least = past([*range(first), *values], {})
        share = self._plan.tally.share
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
        """The number of units at the beginning of the order that are no items of lists."""
        return next((at for at, unit in enumerate(self._order) if self._is_list_item(unit[0])), len(self._order))

    def _is_list_item(self, at: int) -> bool:
        item = self._items[at]
        return isinstance(item, SlotValue) and item.place is not None

    def _fewest_to(self, most: int) -> int:
        full, grid = self._meter.full, self._plan.grid
        gone = self._meter.fewest(full - ceil((full - most) / grid) * grid)
        return len(self._order) if gone is None else gone

    def cut_last(self, gone: int) -> None:
        """Cut the unit that would be the next to stay, rather than let it go."""
        if self._plan.cut is not None and self._plan.low is None:
            self._cut(self._order[gone - 1], _LEAST)

    def cut_protected(self) -> None:
        """Cut what never goes: the newest turn of the user, or the value of a slot."""
        slots = tuple(at for at, item in enumerate(self._items) if isinstance(item, SlotValue))
        if self._plan.cut is None or not self._cut((*self._talk.newest, *slots), 0):
            raise BudgetError(self._too_much())

    def _cut(self, unit: Unit, least: int) -> bool:
        """Cut the longest text of a unit so that all fits; whether that could be done."""
        items = self._items
        text, at = max(((longest_text(items[at]), at) for at in unit), key=lambda each: len(each[0]), default=("", -1))
        if not text:
            return False
        count_text, cut = self._plan.tally.count_text, self._plan.cut or "end"
        kept = sorted({*self._kept(), *unit})
        room = count_text(text)
        over = self._meter.cost(kept, {}) - self._limit
        for _ in range(_TRIES):
            room -= max(1, over)
            if room < least:
                return False
            short = shortened(text, room, count_text, cut)
            item = items[at]
            if short in ("", CUT_MARK) and (not isinstance(item, SlotValue) or item.slot == "input"):
                # Nothing of the message would be left.
                return False
            item = with_text(items[at], text, short)
            over = self._meter.cost(kept, {at: item}) - self._limit
            if over <= 0:
                for member in unit:
                    self._lost.pop(member, None)
                self._replaced[at] = item
                self._cuts[at] = ("cut", f"longer than the room that was left, {room} tokens")
                return True
        return False

    def summarized(self, gone: int) -> Generator[Task, object, None]:
        """Put a summary in the place of what goes; where there can be none, let no more go than must."""
        plan = self._plan
        # A counter whose counts jump may find that fewer would do; then there would be nothing to summarise.
        units = min(max(gone, self._fewest_to(self._limit - plan.summary)), self._message_units)
        going = sorted(at for unit in self._order[:units] for at in unit)
        self.go(gone)
        if not going:
            return
        try:
            # Plain values of slots go by priority only, so all of these are messages.
            text = yield from self._summary_of([cast("Message", self._items[at]) for at in going])
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
        count_text = plan.tally.count_text
        room = plan.summary - count_text(SUMMARY)
        for _ in range(_TRIES):
            left = shortened(text, room, count_text) if room > 0 else ""
            if left in ("", CUT_MARK):
                break
            message = summary_message(left, cast("Message", self._items[first]))
            over = self._meter.cost(kept, {first: message}) - self._limit
            if over <= 0:
                self.lose(going, "summarized", _REASON_SUMMARY)
                self._replaced[first], self._summary = message, first
                return
            # Where a text counts more in the whole than by itself, what it is over may be more than it has.
            room = room - over if room > over else room // 2
        raise BudgetError(f"no room was left for one of {plan.summary} tokens")

    def begin_with(self, role: str, *, follows: bool) -> None:
        """Drop what stands before the first turn of a role; system text and what is protected stay.

        Args:
            role: The role.
            follows: Whether such a turn follows the items.
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
                self.lose(going, "dropped", f"it stood before the first turn of the {role}")
                for at in going:
                    self._replaced.pop(at, None)
                    self._cuts.pop(at, None)

    def _is_value(self, unit: Unit) -> bool:
        """Return True if a unit is in the texts of the prompt, and before no turn."""
        return isinstance(self._items[unit[0]], SlotValue)

    def leave_void_thoughts(self) -> None:
        """Leave out the thoughts that were signed before the messages were dropped that are dropped now."""
        if not self._lost and not self._cuts:
            return
        since = len(self._items) if self._since is None else self._since
        for at in self._kept():
            item = self._replaced.get(at, self._items[at])
            content = unsigned(item.content) if isinstance(item, Msg) else ""
            if isinstance(item, Msg) and at < since and content is not item.content:
                self._replaced[at] = item.evolve(content=content)
                self._void.append(at)

    @property
    def _ends_prefix(self) -> bool:
        """True if other messages are dropped than for the last answer."""
        roles = [role_of(item) for item in self._items]
        last = max((at for at, role in enumerate(roles) if role == "assistant"), default=0)
        return bool(self._lost) and (self._since is None or self._since > last)

    def _kept(self) -> list[int]:
        return [at for at in range(len(self._items)) if at not in self._lost]

    def done(self) -> Fitted:
        """Return the messages that fit, and the report."""
        kept = self._kept()
        if self._summary is not None:
            kept = sorted((*kept, self._summary))
        fates = self._lost | self._cuts
        report = TrimReport(
            self._plan.limit, fates, self._account, self._failure, void=tuple(self._void), ends_prefix=self._ends_prefix
        )
        return Fitted(kept, self._replaced, fates, report)

    def _account(self) -> Account:
        items, tally = self._items, self._plan.tally
        kept = self._kept()
        stays = set(kept)
        shares = [tally.share(item) for item in items]
        found = [
            ItemTokens(
                role_of(item),
                self._slot_of(at),
                shares[at],
                0 if at not in stays else tally.share(self._replaced[at]) if at in self._replaced else shares[at],
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
            slots["summary"] = Tokens(0, tally.share(self._replaced[self._summary]))
        if self._tools:
            slots["tools"] = Tokens(tally.tools(self._tools), tally.tools(self._tools))
        before = self._meter.cost(range(len(items)), {})
        # What is unchanged is not counted again: some counters ask a provider.
        after = self._meter.cost(sent, self._replaced) if self._lost or self._cuts else before
        return Account(before, after, found, slots)

    def _slot_of(self, at: int) -> str:
        item = self._items[at]
        if isinstance(item, SlotValue):
            return item.slot
        if role_of(item) in SYSTEM_ROLES:
            return "system"
        return "input" if at in self._talk.newest else "history"

    def _too_much(self) -> str:
        """Explain why the parts that never go do not fit, with the numbers."""
        counts: dict[str, int] = {}
        for at in self._talk.fixed:
            slot = self._slot_of(at)
            counts[slot] = counts.get(slot, 0) + self._plan.tally.share(self._items[at])
        if self._tools:
            counts["tools"] = self._plan.tally.tools(self._tools)
        least = self._meter.cost(self._talk.fixed, {})
        rest = least - sum(counts.values())
        if rest > 0 and counts:
            counts["what stands around them"] = rest
        parts = ", ".join(f"{_NAMES.get(slot, slot)} {count:,}" for slot, count in counts.items())
        advice = "" if self._plan.cut else ", or cut= to cut the newest turn"
        lists = sorted({repr(self._slot_of(at)) for at in self._talk.fixed if self._is_list_item(at)})
        empty = f", or the list {', '.join(lists)} would be empty" if lists else ""
        missing = f"{least - self._limit:,} tokens are missing{empty}"
        return (
            f"what never goes counts {least:,} tokens ({parts or 'no message at all'}), and the limit is "
            f"{self._limit:,}: {missing}; give more room, or shorter text{advice}"
        )


_REASON_SUMMARY = "a summary stands for it"
_NAMES = {"system": "system text", "input": "the newest turn of the user", "history": "what is protected"}


def role_of(item: Item) -> str:
    """The role of an item; ``slot`` for the value of a slot."""
    if isinstance(item, SlotValue):
        return "slot"
    return item.role if isinstance(item, Msg) else str(item.get("role", ""))
