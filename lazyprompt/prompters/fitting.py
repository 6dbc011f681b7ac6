"""Makes a prompter's prompt fit a budget: by its history and the values of its slots."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from lazyprompt.budget.cut import CUT_MARK
from lazyprompt.budget.report import Account, ItemTokens, Outcome, Tokens, TrimReport
from lazyprompt.budget.units import Item, SlotValue
from lazyprompt.errors import BudgetError
from lazyprompt.messages.history import History
from lazyprompt.templates.slots import value_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lazyprompt.budget.budget import Budget
    from lazyprompt.budget.fitting import Fitted
    from lazyprompt.messages.msg import Msg
    from lazyprompt.messages.prompt import Prompt
    from lazyprompt.prompters.targets import Target


def fitted(budget: Budget, prompt: Prompt, target: Target) -> tuple[Prompt, TrimReport]:
    """Make a prompt fit.

    Args:
        budget: The budget.
        prompt: The prompt of a prompter, which knows its source.
        target: What renders it: the budget counts what that one sends.

    Returns:
        The prompt that fits, and the report: its messages are those of the history behind the opening, empty turns of
        the user left out, then the values of the slots.

    Raises:
        BudgetError: Even what never goes does not fit.
    """
    source = prompt.source
    if source is None:
        raise BudgetError("a budget needs to know the values of a prompt; let a prompter with a budget fill it")
    past = _behind(prompt.history, source.opening)
    messages = past.messages
    limited = {slot: _limited(budget, slot, value) for slot, value in source.values.items()}
    changed = {slot for slot, value in limited.items() if value is not source.values[slot]}
    slots = [SlotValue(slot, value) for slot, value in limited.items() if isinstance(value, str)]
    items: list[Item] = [*messages, *slots]

    def part(kept: Sequence[int], replaced: Mapping[int, Item]) -> Prompt:
        """Return the prompt with some of its messages and values only, some of them replaced."""
        if len(kept) == len(items) and not replaced and not changed:
            return prompt
        turns = {at: cast("Msg", replaced.get(at, items[at])) for at in kept if at < len(messages)}
        values = {**limited, **_values_left(items, kept, replaced)}
        made = source.refill(prompt, values, History(tuple(turns.values())))
        return made.evolve(label=prompt.label, source=source)

    # Of pairs, a question goes with its answer.
    pairs = [(at, at + 1) for at in range(0, len(messages), 2)] if _are_pairs(messages) else []
    waits = "input" not in source.values and past.awaits_answer
    found = budget.fitted(
        items, lambda kept, replaced: target.cost(part(kept, replaced), budget), keep_newest=waits, together=pairs
    )
    sent = part(found.kept, found.replaced)
    fates: dict[int, tuple[Outcome, str]] = {
        at: ("cut", f"longer than {budget.slots[slot.slot]} tokens")
        for at, slot in enumerate(slots, len(messages))
        if slot.slot in changed
    }
    fates |= found.fates

    def account() -> Account:
        lines = [_history_line(budget, at, message, found) for at, message in enumerate(messages)]
        left = _values_left(items, found.kept, found.replaced)
        lines += [_slot_line(budget, slot.slot, source.values[slot.slot], left[slot.slot]) for slot in slots]
        before, slots_before = target.cost(prompt, budget), target.tokens(prompt, budget)
        # What is unchanged is not counted again: some counters ask a provider.
        after, slots_after = (
            (target.cost(sent, budget), target.tokens(sent, budget)) if fates else (before, slots_before)
        )
        names = {**slots_before, **slots_after}
        tokens = {slot: Tokens(slots_before.get(slot, 0), slots_after.get(slot, 0)) for slot in names}
        return Account(before, after, lines, tokens)

    return sent, TrimReport(budget.limit, fates, account, found.report.failure)


def _values_left(items: Sequence[Item], kept: Sequence[int], replaced: Mapping[int, Item]) -> dict[str, str]:
    """Return what is left of the values of slots, by their names."""
    left = {item.slot: "" for item in items if isinstance(item, SlotValue)}
    for at in kept:
        item = replaced.get(at, items[at])
        if isinstance(item, SlotValue):
            left[item.slot] = item.text
    return left


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


def _slot_line(budget: Budget, slot: str, before: object, after: str) -> ItemTokens:
    """The tokens of a slot's value."""
    counts = [budget.count_text(text) for text in (value_text(before, slot), after)]
    return ItemTokens("slot", slot, *counts)


def _behind(whole: History, opening: History) -> History:
    """Return what of a history stands behind its opening."""
    return History(whole.messages[len(opening.messages) :]) if opening else whole


def _are_pairs(messages: Sequence[Msg]) -> bool:
    """Return True if the messages are texts of the user and the assistant in turn."""
    roles = [message.role for message in messages]
    texts = all(isinstance(message.content, str) and message.url is None for message in messages)
    return texts and roles == ["user", "assistant"] * (len(roles) // 2)
