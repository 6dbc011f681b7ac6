"""Makes a prompter's prompt fit a budget: by its history and the values of its slots."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from lazyprompt.budget.cut import CUT_MARK
from lazyprompt.budget.report import Account, ItemTokens, Outcome, Tokens, TrimReport
from lazyprompt.budget.units import Item, SlotValue
from lazyprompt.errors import BudgetError
from lazyprompt.messages.history import History

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lazyprompt.budget.budget import Budget
    from lazyprompt.budget.fitting import Fitted
    from lazyprompt.messages.msg import Msg
    from lazyprompt.messages.prompt import Prompt
    from lazyprompt.prompters.targets import Made, Target


class Fit(NamedTuple):
    """A prompt that fits a budget.

    Attributes:
        prompt: The prompt.
        report: The report of the budget.
        made: The prompt as the target renders it.
    """

    prompt: Prompt
    report: TrimReport
    made: Made


class _Renders:
    """Renders of prompts, of which the last one is kept: the prompt that is counted last is mostly the one to send."""

    def __init__(self, target: Target, budget: Budget) -> None:
        self._target, self._budget = target, budget
        self._last: tuple[Prompt, Made] | None = None

    def made(self, prompt: Prompt) -> Made:
        """Return the prompt as the target renders it."""
        if self._last is None or self._last[0] is not prompt:
            self._last = (prompt, self._target.render(prompt))
        return self._last[1]

    def cost(self, prompt: Prompt) -> int:
        """Return the tokens of the prompt."""
        return self._target.cost(self.made(prompt), self._budget)

    def fits(self, prompt: Prompt) -> bool:
        """Return True if the prompt has no more tokens than the budget allows."""
        limit = self._budget.limit
        return limit is None or self.cost(prompt) <= limit


def fitted(budget: Budget, prompt: Prompt, target: Target) -> Fit:
    """Make a prompt fit.

    Args:
        budget: The budget.
        prompt: The prompt; whoever made it.
        target: What renders it: the budget counts what that one sends.

    Returns:
        The prompt that fits. The messages of its report are those of the history behind the opening, empty turns of the
        user left out, then the values of the slots.

    Raises:
        BudgetError: Even what never goes does not fit.
    """
    messages = prompt.history.messages[prompt.opening :]
    values = {slot: _text_of(parts) for slot, parts in prompt.slots.items()}
    limited = {slot: _limited(budget, slot, values[slot]) for slot in budget.slots if slot in values}
    changed = {slot for slot, text in limited.items() if text != values[slot]}
    slots = [SlotValue(slot, text) for slot, text in (values | limited).items()]
    items: list[Item] = [*messages, *slots]
    renders = _Renders(target, budget)

    def part(kept: Sequence[int], replaced: Mapping[int, Item]) -> Prompt:
        """Return the prompt with some of its messages and values only, some of them replaced."""
        if len(kept) == len(items) and not replaced and not changed:
            return prompt
        turns = [cast("Msg", replaced.get(at, items[at])) for at in kept if at < len(messages)]
        made = prompt.evolve(history=History((*prompt.history.messages[: prompt.opening], *turns)))
        for slot, text in _values_left(items, kept, replaced).items():
            made = made if text == values[slot] else made.with_slot(slot, text)
        return made

    found: Fitted | None = None
    sent = prompt
    if changed or budget.start_on is not None or not renders.fits(prompt):
        # Of pairs, a question goes with its answer.
        pairs = [(at, at + 1) for at in range(0, len(messages), 2)] if _are_pairs(messages) else []
        waits = prompt.input is None and History(messages).awaits_answer
        found = budget.fitted(
            items, lambda kept, replaced: renders.cost(part(kept, replaced)), keep_newest=waits, together=pairs
        )
        sent = part(found.kept, found.replaced)
    fates: dict[int, tuple[Outcome, str]] = {
        at: ("cut", f"longer than {budget.slots[slot.slot]} tokens")
        for at, slot in enumerate(slots, len(messages))
        if slot.slot in changed
    }
    fates |= found.fates if found else {}

    def account() -> Account:
        lines = [_history_line(budget, at, message, found) for at, message in enumerate(messages)]
        left = _values_left(items, found.kept, found.replaced) if found else values
        lines += [_slot_line(budget, slot.slot, values[slot.slot], left[slot.slot]) for slot in slots]
        before, slots_before = target.cost(target.render(prompt), budget), target.tokens(prompt, budget)
        after, slots_after = before, slots_before
        # What is unchanged is not counted again: some counters ask a provider.
        if fates:
            after, slots_after = target.cost(target.render(sent), budget), target.tokens(sent, budget)
        names = {**slots_before, **slots_after}
        tokens = {slot: Tokens(slots_before.get(slot, 0), slots_after.get(slot, 0)) for slot in names}
        return Account(before, after, lines, tokens)

    report = TrimReport(budget.limit, fates, account, found.report.failure if found else None)
    return Fit(sent, report, renders.made(sent))


def _values_left(items: Sequence[Item], kept: Sequence[int], replaced: Mapping[int, Item]) -> dict[str, str]:
    """Return what is left of the values of slots, by their names."""
    left = {item.slot: "" for item in items if isinstance(item, SlotValue)}
    for at in kept:
        item = replaced.get(at, items[at])
        if isinstance(item, SlotValue):
            left[item.slot] = item.text
    return left


def _text_of(values: Sequence[str]) -> str:
    """Return the text of a slot: its value, or its values one behind the other where they differ."""
    return values[0] if len({*values}) == 1 else "".join(values)


def _limited(budget: Budget, slot: str, text: str) -> str:
    """Return the text of a slot, cut where the slot has a limit and it is longer."""
    short = budget.shortened(slot, text)
    if slot == "input" and text and short in ("", CUT_MARK):
        raise BudgetError(f"slots['input'] is {budget.slots[slot]} tokens, and nothing is left of the input; give more")
    return short


def _history_line(budget: Budget, at: int, message: Msg, fitted: Fitted | None) -> ItemTokens:
    """The tokens of a message of the history: after it all of them, or what was cut, or none where it went."""
    before = after = budget.share(message)
    fate, _ = fitted.fates.get(at, ("kept", "")) if fitted else ("kept", "")
    if fitted and fate == "cut":
        after = budget.share(fitted.replaced[at])
    elif fate != "kept":
        after = 0
    return ItemTokens(message.role, "history", before, after)


def _slot_line(budget: Budget, slot: str, before: str, after: str) -> ItemTokens:
    """The tokens of a slot's value."""
    return ItemTokens("slot", slot, budget.count_text(before), budget.count_text(after))


def _are_pairs(messages: Sequence[Msg]) -> bool:
    """Return True if the messages are texts of the user and the assistant in turn."""
    roles = [message.role for message in messages]
    texts = all(isinstance(message.content, str) and message.url is None for message in messages)
    return texts and roles == ["user", "assistant"] * (len(roles) // 2)
