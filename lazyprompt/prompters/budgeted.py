"""A prompter's call made to fit: the values of its slots, and the history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

from lazyprompt.budget.budget import Budget, checked_budget
from lazyprompt.budget.cut import CUT_MARK
from lazyprompt.budget.report import Account, Fate, ItemTokens, Tokens, TrimReport
from lazyprompt.budget.units import SlotValue
from lazyprompt.errors import BudgetError, did_you_mean
from lazyprompt.formatters.formatter import countable
from lazyprompt.formatters.providers import profile_of
from lazyprompt.messages.history import EMPTY_HISTORY, History
from lazyprompt.templates.slots import listed, value_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lazyprompt.budget.fitting import Fitted
    from lazyprompt.budget.units import Item
    from lazyprompt.formatters.report import Payload
    from lazyprompt.messages.msg import Msg
    from lazyprompt.messages.openai_form import OpenAIPrompt
    from lazyprompt.messages.prompt import Text
    from lazyprompt.messages.tools import ToolSet

Values: TypeAlias = "dict[str, object]"
BudgetLike: TypeAlias = "Budget | Mapping[str, int]"


class Call(NamedTuple):
    """What a prompter is called with.

    Attributes:
        values: The values of the slots; under ``input`` what the user says.
        history: What was said before.
    """

    values: Values
    history: History


class Costs(NamedTuple):
    """What prompts cost.

    Attributes:
        whole: The tokens of the prompt that is made of a call.
        slots: The tokens of its slots.
    """

    whole: Callable[[Call], int]
    slots: Callable[[Call], Mapping[str, int]]


def read_budget(budget: BudgetLike) -> Budget:
    """Return a budget, read from a dict of slots and their limits where one was given.

    Raises:
        BudgetError: It is neither.
    """
    if isinstance(budget, Mapping):
        return Budget(None, slots=budget)
    return checked_budget(budget, ", or a dict of slots and their limits")


def budget_for(budget: BudgetLike, slots: Sequence[str]) -> Budget:
    """Return a budget for a prompter.

    Args:
        budget: The budget; or the most tokens of slots, by their names.
        slots: The prompter's slots.

    Returns:
        The budget.

    Raises:
        BudgetError: It is no budget, or limits a slot that the prompter does not have.
    """
    made = read_budget(budget)
    known = (*slots, "input")
    for slot in made.slots:
        if slot not in known:
            raise BudgetError(
                f"the budget limits the slot {slot!r}{did_you_mean(slot, known)}, which the prompter has not; it has "
                f"{listed(known)}"
            )
    return made


def cost_of(budget: Budget, form: str | None, prompt: str | OpenAIPrompt | Payload) -> int:
    """What a prompt costs in its form, by a budget's counter."""
    if isinstance(prompt, str):
        return budget.count_text(prompt)

    return budget.count(*countable(prompt, profile_of(str(form))))


def slots_of(
    budget: Budget, texts: Iterable[Text], said: Mapping[str, str | None], history: History, tools: ToolSet
) -> dict[str, int]:
    """The tokens of the slots of messages, each by itself.

    Args:
        budget: The budget whose counter counts them.
        texts: The texts that know their slots.
        said: Further texts by their slots.
        history: The history.
        tools: The tools.

    Returns:
        Tokens by slot, those of slots without any left out.
    """
    found = [(slot, part) for text in texts for slot, part in zip(text.slots, text.parts, strict=True)]
    counted = [(slot, budget.count_text(part)) for slot, part in (*found, *said.items()) if part]
    counted += [("history", sum(map(budget.share, history.messages))), ("tools", budget.count_tools(list(tools)))]
    counts: dict[str, int] = {}
    # A slot may have the name of what stands beside it.
    for slot, count in counted:
        counts[slot] = counts.get(slot, 0) + count
    return {slot: count for slot, count in counts.items() if count}


def fitted_call(budget: Budget, call: Call, costs: Costs, *, waits: bool) -> tuple[Call, TrimReport]:
    """Make a call fit.

    Args:
        budget: The budget.
        call: What the prompter is called with.
        costs: What the prompt costs that is made of a call.
        waits: Whether the history holds the newest turn of the user.

    Returns:
        The call that fits, and the report: its messages are those of the history, then the values of the slots.

    Raises:
        BudgetError: Even what never goes does not fit.
    """
    limited = {slot: _limited(budget, slot, value) for slot, value in call.values.items()}
    capped = Call(limited, call.history)
    messages = call.history.messages
    slots = [SlotValue(slot, value) for slot, value in limited.items() if isinstance(value, str)]
    items: list[Item] = [*messages, *slots]

    def call_of(kept: Sequence[int], replaced: Mapping[int, Item]) -> Call:
        return _part(capped, items, kept, replaced)

    # Of pairs, a question goes with its answer.
    pairs = [] if call.history.has_messages else [(at, at + 1) for at in range(0, len(messages), 2)]
    fitted = budget.fitted(
        items, lambda kept, replaced: costs.whole(call_of(kept, replaced)), keep_newest=waits, together=pairs
    )
    sent = call_of(fitted.kept, fitted.replaced)
    fates: dict[int, tuple[Fate, str]] = {
        at: ("cut", f"longer than {budget.slots[slot.slot]} tokens")
        for at, slot in enumerate(slots, len(messages))
        if limited[slot.slot] is not call.values[slot.slot]
    }
    fates |= fitted.fates

    def account() -> Account:
        lines = [_history_line(budget, at, message, fitted) for at, message in enumerate(messages)]
        lines += [_slot_line(budget, slot.slot, call.values, sent.values) for slot in slots]
        before, slots_before = costs.whole(call), costs.slots(call)
        # What is unchanged is not counted again: some counters ask a provider.
        after, slots_after = (costs.whole(sent), costs.slots(sent)) if fates else (before, slots_before)
        names = {**slots_before, **slots_after}
        found = {slot: Tokens(slots_before.get(slot, 0), slots_after.get(slot, 0)) for slot in names}
        return Account(before, after, lines, found)

    return sent, TrimReport(budget.limit, fates, account, fitted.report.failure)


def _limited(budget: Budget, slot: str, value: object) -> object:
    """The value of a slot, cut where the slot has a limit and it is longer; else the very value."""
    if slot not in budget.slots:
        return value
    text = value_text(value, slot)
    short = budget.shortened(slot, text)
    if slot == "input" and text and short in ("", CUT_MARK):
        raise BudgetError(f"slots['input'] is {budget.slots[slot]} tokens, and nothing is left of the input; give more")
    return value if short == text else short


def _history_line(budget: Budget, at: int, message: Msg, fitted: Fitted) -> ItemTokens:
    """The tokens of a message of the history: after it all of them, or what was cut, or none where it went."""
    before = after = budget.share(message)
    fate, _ = fitted.fates.get(at, ("kept", ""))
    if fate == "cut":
        after = budget.share(fitted.replaced[at])
    elif fate != "kept":
        after = 0
    return ItemTokens(message.role, "history", before, after)


def _slot_line(budget: Budget, slot: str, before: Values, after: Values) -> ItemTokens:
    """The tokens of a slot's value."""
    counts = [budget.count_text(value_text(values[slot], slot)) for values in (before, after)]
    return ItemTokens("slot", slot, *counts)


def _part(call: Call, items: Sequence[Item], kept: Sequence[int], replaced: Mapping[int, Item]) -> Call:
    """The call with some of its messages and values only, some of them replaced."""
    count = len(items) - sum(isinstance(item, SlotValue) for item in items)
    if len(kept) == len(items) and not replaced:
        return call
    values: Values = {**call.values, **{item.slot: "" for item in items[count:] if isinstance(item, SlotValue)}}
    messages: list[Msg] = []
    for at in kept:
        item = replaced.get(at, items[at])
        if isinstance(item, SlotValue):
            values[item.slot] = item.text
        else:
            messages.append(cast("Msg", item))
    return Call(values, _history_of(call.history, messages, [at for at in kept if at < count], replaced))


def _history_of(whole: History, messages: Sequence[Msg], kept: Sequence[int], replaced: Mapping[int, Item]) -> History:
    """A history of some of the messages; pairs stay pairs where they can."""
    if not messages:
        return EMPTY_HISTORY
    if whole.has_messages or any(at in replaced for at in kept):
        return History(messages=tuple(messages))
    places = [at // 2 for at in kept[::2]]
    return History(tuple(whole.questions[place] for place in places), tuple(whole.answers[place] for place in places))
