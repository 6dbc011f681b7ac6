"""Fitting a prompt to a budget by dropping or truncating history messages and slot values."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from lazyprompt.budget.report import Account, ItemTokens, ListItems, Outcome, Tokens, TrimReport
from lazyprompt.budget.units import Item, SlotValue
from lazyprompt.messages.history import History

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lazyprompt.budget.budget import Budget
    from lazyprompt.budget.fitting import Fitted
    from lazyprompt.messages.msg import Msg
    from lazyprompt.messages.prompt import Prompt
    from lazyprompt.prompters.targets import Made, Target


class Fit(NamedTuple):
    """A prompt that was fitted to a budget.

    Attributes:
        prompt: The fitted prompt.
        report: The budget's report.
        made: The rendered prompt.
    """

    prompt: Prompt
    report: TrimReport
    made: Made


class _Renders:
    """A renderer that caches the last rendered prompt, because the last counted prompt is usually the one sent."""

    def __init__(self, target: Target, budget: Budget) -> None:
        self._target, self._budget = target, budget
        self._last: tuple[Prompt, Made] | None = None

    def made(self, prompt: Prompt) -> Made:
        """Render a prompt, unless it is cached."""
        if self._last is None or self._last[0] is not prompt:
            self._last = (prompt, self._target.render(prompt))
        return self._last[1]

    def cost(self, prompt: Prompt) -> int:
        """Return the token count of the rendered prompt."""
        return self._target.cost(self.made(prompt), self._budget)

    def fits(self, prompt: Prompt) -> bool:
        """Return True if the rendered prompt is within the budget."""
        limit = self._budget.limit
        return limit is None or self.cost(prompt) <= limit


def fitted(budget: Budget, prompt: Prompt, target: Target) -> Fit:
    """Fit a prompt to a budget.

    Args:
        budget: The token budget.
        prompt: The filled prompt.
        target: The renderer whose output the budget counts.

    Returns:
        The fitted prompt and its report. The report lists the history's messages without the prompter's own messages
        and empty user turns, followed by the slot values and the list items.

    Raises:
        BudgetError: The parts of the prompt that are never dropped exceed the budget, or no item of a list input would
            remain.
    """
    parts = _PromptParts.of(budget, prompt)
    renders = _Renders(target, budget)
    found: Fitted | None = None
    sent = parts.prompt(range(len(parts.items)), {})
    if sent is not prompt or budget.start_on is not None or not renders.fits(prompt):
        # If the history consists of pairs, drop each user message together with its response.
        messages = parts.messages
        pairs = [(at, at + 1) for at in range(0, len(messages), 2)] if _are_pairs(messages) else []
        waits = prompt.input is None and History(messages).awaits_answer

        def cost(kept: Sequence[int], replaced: Mapping[int, Item]) -> int:
            return renders.cost(parts.prompt(kept, replaced))

        def past(kept: Sequence[int], replaced: Mapping[int, Item]) -> int:
            # Clear the input, because the history of an earlier request already contains the user's text.
            return renders.cost(parts.prompt(kept, replaced).evolve(input=None))

        found = budget.fitted(parts.items, cost, keep_newest=waits, together=pairs, fixed=parts.of_lists, past=past)
        sent = parts.prompt(found.kept, found.replaced)
    fates = {**(found.fates if found else {}), **parts.limited, **parts.gone_with_items(sent)}

    def account() -> Account:
        before, slots_before = target.cost(target.render(prompt), budget), target.tokens(prompt, budget)
        after, slots_after = before, slots_before
        # Don't recount an unchanged prompt, because some counters call a provider's API.
        if fates:
            after, slots_after = target.cost(target.render(sent), budget), target.tokens(sent, budget)
        names = {**slots_before, **slots_after}
        tokens = {slot: Tokens(slots_before.get(slot, 0), slots_after.get(slot, 0)) for slot in names}
        return Account(before, after, parts.lines(sent, found, fates), tokens)

    lists = parts.lists(fates)
    report = TrimReport(budget.limit, fates, account, lists=lists)
    if found is not None:
        inner = found.report
        report = TrimReport(
            budget.limit, fates, account, inner.failure, lists, void=inner.void, ends_prefix=inner.ends_prefix
        )
    return Fit(sent, report, renders.made(sent))


class _PromptParts(NamedTuple):
    """The parts of a prompt that a budget may drop or truncate.

    Attributes:
        budget: The token budget.
        given: The original prompt.
        messages: The history's messages, without the prompter's own messages.
        values: The texts of all slots whose values are not lists, before truncation.
        items: The messages, the slot texts after truncation to slot limits, and the items of list values.
        limited: The outcome and the reason for each item that a slot limit truncated or dropped, by item index.
        of_lists: A flag for each message that a prompt file renders from list items, by message index; True if the
            message is rendered from a single item. A message rendered from a single item is dropped only together with
            that item.
    """

    budget: Budget
    given: Prompt
    messages: tuple[Msg, ...]
    values: Mapping[str, str]
    items: Sequence[Item]
    limited: Mapping[int, tuple[Outcome, str]]
    of_lists: Mapping[int, bool]

    @classmethod
    def of(cls, budget: Budget, prompt: Prompt) -> _PromptParts:
        """Split a prompt into its parts.

        Raises:
            BudgetError: A slot's limit would leave the slot empty.
        """
        messages, lists, slots = prompt.conversation, prompt.lists, prompt.slots
        # Fill each list with only its first item, then only its last item, to find the prompt parts that depend on list
        # items.
        ends = [
            prompt.with_slot(slot, end)
            for slot, given in lists.items()
            for end in (given[:1], given[-1:])
            if len(given) > 1 and prompt.source is not None and prompt.source.fills_turns
        ]
        values = {
            slot: _text_of(parts)
            for slot, parts in slots.items()
            if slot not in lists and all(end.slots.get(slot) == parts for end in ends)
        }
        pasts = [end.conversation for end in ends]
        items: list[Item] = [*messages]
        limited: dict[int, tuple[Outcome, str]] = {}
        for slot, text in values.items():
            short = budget.shortened(slot, text)
            if short != text:
                limited[len(items)] = ("cut", f"longer than {budget.slots[slot]} tokens")
            items.append(SlotValue(slot, short))
        for slot, given in lists.items():
            found = budget.list_items(slot, given)
            for at in budget.over_limit(found):
                limited[len(items) + at] = ("dropped", f"the slot has at most {budget.slots[slot]} tokens")
            items += found
        return cls(budget, prompt, messages, values, items, limited, _of_lists(messages, pasts))

    def prompt(self, kept: Sequence[int], replaced: Mapping[int, Item]) -> Prompt:
        """Return the prompt with only the messages, slot texts and list items at the indices ``kept``.

        The values of ``replaced`` replace the original items.
        """
        if len(kept) == len(self.items) and not replaced and not self.limited:
            return self.given
        left = dict.fromkeys(self.values, "")
        lists: dict[str, list[object]] = {slot: [] for slot in self.given.lists}
        for at in kept:
            item = replaced.get(at, self.items[at])
            if not isinstance(item, SlotValue):
                continue
            if item.place is None:
                left[item.slot] = item.text
            elif at not in self.limited:
                lists[item.slot].append(self.given.lists[item.slot][item.place])
        made = self.given
        for slot, items in lists.items():
            made = made if len(items) == len(self.given.lists[slot]) else made.with_slot(slot, items)
        past, filled = made.history.messages, made.conversation
        turns = self._turns(filled, kept, replaced)
        made = made.with_history(History((*past[: made.opening], *turns, *past[made.opening + len(filled) :])))
        for slot, text in left.items():
            made = made if text == self.values[slot] else made.with_slot(slot, text)
        return made

    def _turns(self, filled: Sequence[Msg], kept: Sequence[int], replaced: Mapping[int, Item]) -> list[Msg]:
        """Drop and replace messages in ``filled``, which may already lack the messages of dropped list items."""
        count = len(self.messages)
        stays = {at for at in kept if at < count}
        if len(filled) == count:
            return [cast("Msg", replaced.get(at, filled[at])) for at in sorted(stays)]
        changes = {
            at: [cast("Msg", replaced[at])] if at in replaced else []
            for at in replaced.keys() | ({*range(count)} - stays)
        }
        turns: list[Msg] = []
        for message in filled:
            at = next((at for at in changes if self.messages[at] == message), None)
            turns += [message] if at is None else changes.pop(at)
        return turns

    def gone_with_items(self, sent: Prompt) -> dict[int, tuple[Outcome, str]]:
        """Return the outcome, by message index, for each message that was dropped together with its list item."""
        left = sent.history.messages
        turns = (at for at, is_of_item in self.of_lists.items() if is_of_item and self.messages[at] not in left)
        return dict.fromkeys(turns, ("dropped", "its item of a list went"))

    def lines(self, sent: Prompt, found: Fitted | None, fates: Mapping[int, tuple[Outcome, str]]) -> list[ItemTokens]:
        """Return the token counts of each part, before and after fitting."""
        budget = self.budget
        left = {slot: _text_of(parts) for slot, parts in sent.slots.items()}
        gone = {at for at, (fate, _) in fates.items() if fate != "cut"}
        lines: list[ItemTokens] = []
        for at, item in enumerate(self.items):
            if not isinstance(item, SlotValue):
                before, after = budget.share(item), budget.share(found.replaced.get(at, item) if found else item)
                lines.append(ItemTokens(self.messages[at].role, "history", before, 0 if at in gone else after))
            elif item.place is None:
                before, after = budget.count_text(self.values[item.slot]), budget.count_text(left.get(item.slot, ""))
                lines.append(ItemTokens("slot", item.slot, before, after))
            else:
                before = budget.share(item)
                lines.append(ItemTokens("slot", item.slot, before, 0 if at in gone else before, item.place))
        return lines

    def lists(self, fates: Mapping[int, object]) -> dict[str, ListItems]:
        """Return the kept and dropped items of each list value, by slot name."""
        lists: dict[str, ListItems] = {}
        start = len(self.messages) + len(self.values)
        for slot, items in self.given.lists.items():
            dropped = tuple(place for place in range(len(items)) if start + place in fates)
            kept = tuple(place for place in range(len(items)) if start + place not in fates)
            lists[slot] = ListItems(kept, dropped, start)
            start += len(items)
        return lists


def _of_lists(messages: Sequence[Msg], pasts: Sequence[Sequence[Msg]]) -> dict[int, bool]:
    """Map the index of each message that depends on list items to True if a single item renders the message."""
    found: dict[int, bool] = {}
    for past in pasts:
        is_whole = len(past) == len(messages)
        for at, message in enumerate(messages):
            if (past[at] != message) if is_whole else (message not in past):
                found[at] = not is_whole
    return found


def _text_of(values: Sequence[str]) -> str:
    """Return a slot's text: its value, or all values concatenated if the slot has different values."""
    return values[0] if len({*values}) == 1 else "".join(values)


def _are_pairs(messages: Sequence[Msg]) -> bool:
    """Return True if the messages are pairs of a user text and an assistant text."""
    roles = [message.role for message in messages]
    texts = all(isinstance(message.content, str) and message.url is None for message in messages)
    return texts and roles == ["user", "assistant"] * (len(roles) // 2)
