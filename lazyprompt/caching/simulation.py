"""Simulation of a prompt cache over a series of calls."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from lazyprompt._base.secrets_in import masked, secrets_in
from lazyprompt.caching.prefix_tree import PrefixMatch, PrefixTree, is_over
from lazyprompt.caching.reading import END, CallPart, CallText, call_of, read_call, until_separator
from lazyprompt.caching.report import Break, CachedCall, CacheReport
from lazyprompt.caching.rules import CacheRules, rules_for
from lazyprompt.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lazyprompt.tokens.counter import TokenCounter

_SHOWN_BEFORE, _SHOWN_BEHIND = 30, 50
# The numbers of characters before and after a difference that are searched for secrets.
_SEARCHED, _SEARCHED_BEHIND = 1_000, 200
_PRIVATE_KEY = "-----BEGIN"
# The number of characters on each side of an index that are searched for a token that spans the index.
_NEAR = 100
_DATE = re.compile(r"\d{4}-\d\d?-\d\d?|\d\d?:\d\d|\d\d?[./]\d\d?[./]\d{2,4}|\b\d{10,13}\b")
_SWEEP = 1_000
_PARAMETERS = {"tools": "tools, in one order,", "model": "model", "response_format": "response format"}
# Advice never suggests moving these slots after the history.
_FIXED = (None, "system", "history", "input", "instruction", "user", "markers")
_TRIMMED = "The history was trimmed: trim it rarely and by much, with Budget(policy='cache') and a lower low_water."


class _Cached(NamedTuple):
    """Data kept from a call for comparison with later calls."""

    tokens: int
    slots: list[tuple[int, str]]
    messages: int
    time: float | None


def simulate(calls: Iterable[object], rules: CacheRules | str, counter: TokenCounter) -> CacheReport:
    """Simulate a prompt cache and report each change that caused a cache miss.

    Each call is compared with an earlier call: of the calls that are still cached, the one that shares the longest
    prefix. If calls have conversation ids, only calls in the same conversation are compared. The first call in a
    conversation never counts as a break. Without conversation ids, a call counts as a conversation's first call if the
    compared call has the same text up to the last response.

    Args:
        calls: Payloads, :class:`~lazyprompt.Rendered` prompts, module records, or :class:`PromptCall` objects for
            prompters with their inputs, times and conversations. The iterable is read lazily.
        rules: The cache rules, or a provider's name: ``openai``, ``anthropic``, ``gemini``, ``deepseek``, ``vllm`` or
            ``llama.cpp``.
        counter: The token counter, which is not called again for text that is still cached.

    Returns:
        The report.

    Raises:
        FormatError: A call contains no prompt, or the provider's name is unknown.
    """
    simulation = _Simulation(rules_for(rules), counter)
    for call in calls:
        simulation.add(call)
    return simulation.report()


class _Simulation:
    """The state of a simulation."""

    def __init__(self, rules: CacheRules, counter: TokenCounter) -> None:
        self._rules, self._counter = rules, counter
        lifetimes = [each.lifetime for each in (rules, *(each for _, each in rules.others))]
        self._lifetime = None if None in lifetimes else max(each for each in lifetimes if each is not None)
        self._all = PrefixTree(self._lifetime)
        self._conversations: dict[str, PrefixTree] = {}
        self._calls: list[CachedCall] = []
        self._kept: dict[int, _Cached] = {}
        self._breaks: list[Break] = []
        self._notes: dict[str, None] = dict.fromkeys(rules.unknown)
        self._short = 0

    def report(self) -> CacheReport:
        plural = "s" * (self._short > 1)
        few = [f"{self._short:,} call{plural} shorter than the shortest text that is cached"] if self._short else []
        return CacheReport(self._rules, tuple(self._calls), tuple(self._breaks), (*self._notes, *few))

    def _note(self, model: str | None, rules: CacheRules) -> None:
        """Add notes about caching rules that the provider hasn't published for a model."""
        self._notes |= dict.fromkeys(rules.unknown)
        if not rules.knows(model):
            least = f"{rules.least_for(model):,} are assumed"
            self._notes[f"the fewest cached tokens of {model or 'an unnamed model'} are unknown; {least}"] = None

    def add(self, given: object) -> None:
        call = call_of(given)
        at, now = len(self._calls), call.time
        try:
            reading = read_call(call, self._rules, self._counter)
        except FormatError as error:
            raise FormatError(f"call {at}: {error}") from error
        rules = reading.rules
        self._note(reading.model, rules)
        match = self._all.match(reading.text, now, rules.lifetime)
        tokens = _Tokens(reading, match, self._counter)
        least = rules.least_for(reading.model)
        self._short += tokens.total < least
        read, cached = (_cacheable(count, rules.step, least) for count in (tokens.until(match), tokens.total))
        own, trees, is_first = match, [self._all], match.length >= reading.past
        if call.conversation is not None:
            is_first = call.conversation not in self._conversations
            trees.append(self._conversations.setdefault(call.conversation, PrefixTree(self._lifetime)))
            own = trees[-1].match(reading.text, now, rules.lifetime)
        later = own.later(reading.text)
        own = later if later is not None and tokens.until(later) >= tokens.until(own) else own
        shared = tokens.until(own) if own.call is not None else 0
        self._calls.append(CachedCall(tokens.total, read, shared, own.call, call.conversation))
        earlier = None if own.call is None or is_first or not own.behind else self._kept.get(own.call)
        if earlier is not None and not is_over(earlier.time, now, rules.lifetime):
            lost = min(earlier.tokens, tokens.total) - read
            if lost > 0:
                self._breaks.append(_break(at, reading, own, earlier, lost))
        self._kept[at] = _Cached(cached, reading.slots, reading.messages, now)
        for tree in trees:
            tree.add(reading.text, at, now, tokens.ends)
        if (at + 1) % _SWEEP == 0:
            self._sweep(now)

    def _sweep(self, now: float | None) -> None:
        """Remove calls and conversations whose lifetime has expired."""
        self._kept = {at: each for at, each in self._kept.items() if not is_over(each.time, now, self._lifetime)}
        self._conversations = {
            key: tree for key, tree in self._conversations.items() if not is_over(tree.time, now, self._lifetime)
        }


def _cacheable(tokens: int, step: int, least: int) -> int:
    """Return how many tokens of a prefix the provider caches."""
    whole = tokens // step * step
    return whole if whole >= least else 0


def _break(at: int, reading: CallText, own: PrefixMatch, earlier: _Cached, lost: int) -> Break:
    index = min(own.length, len(reading.text) - 1)
    part = reading.part_at(index)
    line = reading.text.count("\n", part.begin, max(index, part.begin)) + 1
    before, after = _shown(reading.text, own, part)
    slot = _slot(reading, own, earlier) or part.slot
    advice = _advice(part, slot, before, after, reading, earlier)
    return Break(at, part.message, slot, line, before, after, lost, advice, reading.count_signed_after(index))


class _Tokens:
    """The token counts up to any index in a call's text; counts of parts shared with an earlier call are reused."""

    def __init__(self, reading: CallText, match: PrefixMatch, counter: TokenCounter) -> None:
        self._reading, self._counter = reading, counter
        self._starts = [part.start for part in reading.parts]
        self._before: list[int] = []
        self.ends: dict[int, int] = {}
        until = 0
        for part in reading.parts:
            self._before.append(until)
            known = match.tokens_at(part.end) if part.end <= match.length else None
            until = until + part.tokens() if known is None else known
            self.ends[part.end] = until
        self.total = until + reading.overhead
        self._known: dict[tuple[int, int | None], int] = {}

    def until(self, match: PrefixMatch) -> int:
        """Return the number of tokens in the prefix that the call shares with an earlier call."""
        return self.until_index(match.length, match)

    def until_index(self, index: int, match: PrefixMatch) -> int:
        """Return the number of tokens up to a character index inside the shared prefix."""
        if index in self.ends:
            return self.ends[index]
        key = index, match.call
        if key not in self._known:
            self._known[key] = self._inside(index, match)
        return self._known[key]

    def _inside(self, index: int, match: PrefixMatch) -> int:
        at = bisect_right(self._starts, index) - 1
        part = self._reading.parts[at]
        before, end = self._before[at], self.ends[part.end]
        if index < part.begin:
            return before
        count, text = self._counter.count_text, self._reading.text
        whole, head = text[part.begin : part.end].rstrip(END), text[part.begin : index].rstrip(END)
        framing = max(end - before - count(whole), 0) if part.is_framed else 0
        counted = match.tokens_at(index)
        inside = count(head) if counted is None else counted - before - framing
        # A token that spans the index where the calls' texts start to differ, in this call or the earlier call, is not
        # shared.
        tails = [whole[len(head) :]]
        if index == match.length:
            tails.append(until_separator(match.behind))
        near = head[-_NEAR:]
        if any(tail and near and count(near + tail[:_NEAR]) < count(near) + count(tail[:_NEAR]) for tail in tails):
            inside -= 1
        return before + min(framing + inside, end - before)


def _slot(reading: CallText, own: PrefixMatch, earlier: _Cached) -> str | None:
    """Return the slot that caused a cache break.

    This is the first slot that ends at a different index than in the earlier call, or else the slot with the first
    difference.
    """
    slots, others = reading.slots, earlier.slots
    at = bisect_right([start for start, _ in slots], own.length) - 1
    for index in range(at):
        if index + 1 >= len(others) or slots[index + 1][0] != others[index + 1][0]:
            return slots[index][1]
    return slots[at][1] if at >= 0 else None


def _shown(text: str, own: PrefixMatch, part: CallPart) -> tuple[str, str]:
    """Return the lines around the first difference between the earlier and the current prompt, with secrets masked."""
    begin = max(part.begin, own.length - _SEARCHED)
    key = text.rfind(_PRIVATE_KEY, part.begin, begin)
    begin = begin if key < 0 else key
    at = max(own.length, part.begin) - begin
    shown: list[str] = []
    for behind in (own.behind, text[own.length : own.length + _SEARCHED]):
        skipped = max(part.begin - own.length, 0)
        whole = until_separator(text[begin : own.length]) + until_separator(
            behind[skipped : skipped + _SEARCHED_BEHIND]
        )
        safe = masked(whole, secrets_in(whole, len(whole)))
        start = max(safe.rfind("\n", 0, at) + 1, at - _SHOWN_BEFORE)
        shown.append(safe[start : at + _SHOWN_BEHIND])
    return shown[0], shown[1]


def _advice(part: CallPart, slot: str | None, before: str, after: str, reading: CallText, earlier: _Cached) -> str:
    """Return advice for avoiding a cache break."""
    in_history = part.message not in (None, 0) and slot in (None, "history")
    causes = (
        (slot in _PARAMETERS, f"Send the same {_PARAMETERS.get(slot or '', '')} in every call of a conversation."),
        (before.split() == after.split(), "Only white space differs: write the text the same way in every call."),
        (in_history and reading.messages <= earlier.messages, _TRIMMED),
        (
            in_history,
            "An earlier message was changed: send earlier messages as they were, and add new ones at the end.",
        ),
        (
            bool(_DATE.search(before) and _DATE.search(after)),
            "Pin the date or time for the whole conversation, or put it after the history.",
        ),
        (slot not in _FIXED, f"Move the slot {slot!r} after the history, into the user's last message."),
    )
    last = "Keep this text the same in every call, or move the changing part after the history."
    return next((advice for is_cause, advice in causes if is_cause), last)
