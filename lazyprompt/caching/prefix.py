"""Comparison of two prompts in a conversation, to check that the later prompt extends the earlier one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lazyprompt._base.difference import shared_length
from lazyprompt.caching.reading import call_of, read_call
from lazyprompt.caching.rules import rules_for
from lazyprompt.formatters._repair import LATE_SYSTEM
from lazyprompt.tokens.counter import CharTokenCounter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyprompt.budget.report import TrimReport
    from lazyprompt.formatters.report import Entries, Entry


_PARTS = {"tools": "the tools", "system": "the system text", "history": "earlier messages", None: "the text"}


class PrefixChange(NamedTuple):
    """The first difference between a prompt and the earlier prompt that it should extend.

    Attributes:
        message: The message index in the later prompt, or None if the difference is outside the messages, such as in
            the tools.
        slot: The slot that changed, or ``tools``, ``system`` or ``history``; None if the payload doesn't reveal it.
        reason: A description of what changed the prompt: the budget, a provider rule or the caller.
        thoughts: The number of signed reasoning blocks that the difference invalidates, because they follow it.
            Anthropic may reject a request with invalidated reasoning blocks, whereas OpenAI ignores these blocks.
    """

    message: int | None
    slot: str | None
    reason: str
    thoughts: int

    def __str__(self) -> str:
        place = "" if self.message is None else f"message {self.message}, "
        void = f"; void signed thoughts after it: {self.thoughts}" if self.thoughts else ""
        return f"{place}{self.slot or 'text'}: {self.reason}{void}"


def check_prefix(previous: object, next: object) -> PrefixChange | None:  # noqa: A002 - the pair is a contract
    """Find the first difference between a prompt and the earlier prompt that it should extend.

    Providers cache prefixes and sign reasoning blocks for a specific prefix. If the later prompt only appends messages,
    the cached prefix and the signatures of the reasoning blocks stay valid.

    Args:
        previous: The prompt of an earlier call, as a payload, a :class:`~lazyprompt.Rendered` prompt, a module record
            or a :class:`PromptCall`.
        next: The prompt of a later call in the same conversation. If the later prompt is a payload from a formatter,
            the payload's report helps to find the cause of the difference.

    Returns:
        The first difference, or None if the prompt extends the earlier prompt. Cache breakpoints are ignored.

    Raises:
        FormatError: An argument is not a prompt.
    """
    rules, counter = rules_for("openai"), CharTokenCounter()
    before, after = (read_call(call_of(prompt), rules, counter) for prompt in (previous, next))
    shared = shared_length(before.text, after.text)
    if shared == len(before.text):
        return None
    at = min(shared, len(after.text) - 1)
    # Prefer to report a change outside the messages: if a tool was removed, the later prompt may have a message at the
    # index where the tool was.
    parts = (before.part_at(shared), *([after.part_at(at)] if at == shared else []))
    part = min(parts, key=lambda each: each.message is not None)
    slots = [slot for start, slot in after.slots if start <= at]
    slot = slots[-1] if slots else part.slot or ("history" if part.message is not None else None)
    return PrefixChange(part.message, slot, _reason(previous, next, slot), after.count_signed_after(at))


def _reason(previous: object, changed: object, slot: str | None) -> str:
    """Return a description of what changed a prompt: the budget, a provider rule or the caller."""
    before: TrimReport | None = getattr(previous, "trim", None)
    after: TrimReport | None = getattr(changed, "trim", None)
    if after is not None and _dropped(after) != _dropped(before):
        return "the budget dropped or cut earlier messages"
    reports: list[Entries] = [getattr(prompt, "report", ()) for prompt in (changed, previous)]
    news = [entry for report, other in (reports, reports[::-1]) for entry in report if entry not in other]
    entries = [entry for entry in news if _is_about(entry, slot)]
    if entries:
        return f"a rule of the provider: {entries[0]}"
    return f"the caller changed {_PARTS.get(slot, f'the slot {slot!r}')}"


def _is_about(entry: Entry, slot: str | None) -> bool:
    """Return True if a provider rule may have changed the given slot."""
    if slot == "system" and entry.reason == LATE_SYSTEM:
        return False
    return entry.where.startswith("tools") == (slot == "tools")


def _dropped(trim: TrimReport | None) -> Sequence[object]:
    return ((), ()) if trim is None else (trim.dropped, trim.cut)
