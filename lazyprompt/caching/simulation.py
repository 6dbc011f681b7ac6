"""The simulation of a prompt cache over a series of calls."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from lazyprompt._base.secrets_in import masked, secrets_in
from lazyprompt.caching.prefix_tree import Match, PrefixTree, is_over
from lazyprompt.caching.reading import END, Piece, Reading, call_of, read_call, texts_between
from lazyprompt.caching.report import Break, CachedCall, CacheReport, PriceList, Prices
from lazyprompt.caching.rules import CacheRules, rules_for
from lazyprompt.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lazyprompt.tokens.counter import TokenCounter

# The characters of a text that are shown around a change, and those that are searched for secrets.
_SHOWN_BEFORE, _SHOWN_BEHIND = 30, 50
_SEARCHED, _SEARCHED_BEHIND = 1_000, 200
_PRIVATE_KEY = "-----BEGIN"
# The characters around a place of which a token may be made.
_NEAR = 100
_DATE = re.compile(r"\d{4}-\d\d?-\d\d?|\d\d?:\d\d|\d\d?[./]\d\d?[./]\d{2,4}|\b\d{10,13}\b")
_SWEEP = 1_000
# Parts of a call that are no text of a message, and slots that are not a value's.
_PARAMETERS = {"tools": "tools, in one order,", "model": "model", "response_format": "response format"}
_FIXED = (None, "system", "history", "input", "instruction", "user", "markers")
_SHORT = "shorter than the shortest text that is cached"
_UNMARKED = (
    "without a breakpoint, so that nothing is cached; cache=('tools', 'system', 'history') of a formatter sets them"
)
_TRIMMED = "The history was trimmed: trim it seldom and deep, with Budget(policy='cache') and a lower low_water."


class _Cached(NamedTuple):
    """Memory of a call for later ones: its cached tokens, slots, messages, time, and the lifetime of what is cached."""

    tokens: int
    slots: list[tuple[int, str]]
    messages: int
    time: float | None
    lifetime: float | None


def simulate(
    calls: Iterable[object], rules: CacheRules | str, counter: TokenCounter, prices: Prices | None = None
) -> CacheReport:
    """Simulate a prompt cache, and find what broke it.

    A call is compared with the earlier call that shares the longest beginning within the lifetime: of the same
    conversation if calls name theirs, of all otherwise. The first call of a conversation is no break. Without names, a
    call that differs only behind its last answer counts as a first one.

    Args:
        calls: Payloads, Rendereds, records of modules, and :class:`PromptCall` for prompters with their inputs, times
            and conversations. They are read one after the other.
        rules: The rules, or the name of a provider: ``openai``, ``anthropic``, ``gemini``, ``deepseek``, ``vllm``,
            ``llama.cpp``.
        counter: What counts tokens. Each text is counted once, as long as a call that has it is open.
        prices: The prices of a million tokens: ``input``, ``read`` (from the cache), ``write`` (to it) and
            ``write_1h``; or such a mapping for each model.

    Returns:
        The report.

    Raises:
        FormatError: A call is no prompt, or rules or prices are unknown.
    """
    simulation = _Simulation(rules_for(rules), counter, prices)
    for call in calls:
        simulation.add(call)
    return simulation.report()


class _Simulation:
    """A simulation under way."""

    def __init__(self, rules: CacheRules, counter: TokenCounter, prices: Prices | None) -> None:
        self._rules, self._counter = rules, counter
        self._prices = None if prices is None else PriceList(prices, rules)
        kinds = [rules, *(each for _, each in rules.others)]
        lifetimes = [each.longest_lifetime for each in kinds]
        self._lifetime = None if None in lifetimes else max(each for each in lifetimes if each is not None)
        self._all = PrefixTree(self._lifetime)
        self._conversations: dict[str, PrefixTree] = {}
        self._calls: list[CachedCall] = []
        self._kept: dict[int, _Cached] = {}
        self._breaks: list[Break] = []
        self._notes: dict[str, None] = dict.fromkeys(rules.unknown)
        self._uncached = {_SHORT: 0, _UNMARKED: 0}

    def report(self) -> CacheReport:
        """Return the report of the calls so far."""
        few = [f"{count:,} call{'s' * (count > 1)} {why}" for why, count in self._uncached.items() if count]
        return CacheReport(self._rules, tuple(self._calls), tuple(self._breaks), (*self._notes, *few))

    def _note(self, model: str | None, rules: CacheRules) -> None:
        """Note what is unknown of a model."""
        self._notes |= dict.fromkeys(rules.unknown)
        if not rules.knows(model):
            least = f"{rules.least_for(model):,} are assumed"
            self._notes[f"the fewest cached tokens of {model or 'an unnamed model'} are unknown; {least}"] = None

    def add(self, given: object) -> None:
        """Simulate the next call."""
        call = call_of(given)
        at, now = len(self._calls), call.time
        try:
            reading = read_call(call, self._rules, self._counter)
        except FormatError as error:
            raise FormatError(f"call {at}: {error}") from error
        rules = reading.rules
        least = rules.least_for(reading.model)
        self._note(reading.model, rules)
        if rules.kind == "breakpoints" and not reading.marks:
            self._uncached[_UNMARKED] += 1
        lifetime = rules.longest_lifetime
        match = self._all.match(reading.text, now, lifetime)
        tokens = _Tokens(reading, match, self._counter)
        total = tokens.total
        self._uncached[_SHORT] += total < least
        read, by_lifetime, units = self._cached(reading, match, tokens, least, now)
        written = sum(by_lifetime.values())
        own, trees, is_first = match, [self._all], match.length >= reading.past
        if call.conversation is not None:
            is_first = call.conversation not in self._conversations
            trees.append(self._conversations.setdefault(call.conversation, PrefixTree(self._lifetime)))
            own = trees[-1].match(reading.text, now, lifetime)
        later = own.later(reading.text)
        own = later if later is not None and tokens.until(later) >= tokens.until(own) else own
        shared = tokens.until(own) if own.call is not None else 0
        uncached = total - read - written
        cost, cost_without = None, None
        if self._prices is not None:
            cost, cost_without = self._prices.cost(reading.model, read, by_lifetime, uncached)
        self._calls.append(CachedCall(read, written, uncached, shared, own.call, cost, cost_without, call.conversation))
        earlier = None if own.call is None or is_first or not own.behind else self._kept.get(own.call)
        if earlier is not None and not is_over(earlier.time, now, earlier.lifetime):
            lost = min(earlier.tokens, total) - read
            if lost > 0:
                self._breaks.append(self._break(at, reading, own, earlier, lost, shared=shared, read=read))
        lifetime = max((each for _, each in reading.marks), default=lifetime)
        self._kept[at] = _Cached(read + written, reading.slots, reading.messages, now, lifetime)
        for tree in trees:
            tree.add(reading.text, at, now, tokens.ends, units)
            if reading.reply and rules.caches_replies:
                tree.add(reading.text + reading.reply, at, now, {}, units)
        if (at + 1) % _SWEEP == 0:
            self._sweep(now)

    def _cached(
        self, reading: Reading, match: Match, tokens: _Tokens, least: int, now: float | None
    ) -> tuple[int, dict[float, int], dict[int, float | None]]:
        """Return the tokens read, those written by their lifetime, and the units that are cached now."""
        rules, total = reading.rules, tokens.total
        if rules.kind == "prefix":
            most = total - 1 if rules.recomputes_last else total
            read = min(tokens.until(match), most) // rules.step * rules.step
            read = read if read >= least else 0
            cached = total // rules.step * rules.step
            written = max(cached - read, 0) if cached >= least else 0
            return read, {0.0: written}, {}
        alive = {
            index: tokens.until_index(index, match)
            for index, expires in match.units()
            if now is None or expires is None or now <= expires
        }
        if rules.kind == "units":
            read = max(alive.values(), default=0)
            ends = len(reading.text), len(reading.text) + len(reading.reply), match.length
            units: dict[int, float | None] = dict.fromkeys(filter(None, ends))
            return read, {0.0: total - read}, units
        marks = [(index, lifetime) for index, lifetime in reading.marks if tokens.until_index(index, match) >= least]
        hit = max(_looked_at(reading, alive), default=0)
        read = alive.get(hit, 0)
        if now is not None and hit:
            lifetime = next((each for index, each in reading.marks if index >= hit), 0.0)
            match.refresh(hit, now + lifetime)
        by_lifetime: dict[float, int] = {}
        before = read
        for index, lifetime in marks:
            until = tokens.until_index(index, match)
            if until > before:
                by_lifetime[lifetime] = by_lifetime.get(lifetime, 0) + until - before
                before = until
        return read, by_lifetime, {index: None if now is None else now + lifetime for index, lifetime in marks}

    def _break(
        self, at: int, reading: Reading, own: Match, earlier: _Cached, lost: int, *, shared: int, read: int
    ) -> Break:
        index = min(own.length, len(reading.text) - 1)
        piece = reading.pieces[bisect_right([each.start for each in reading.pieces], index) - 1]
        place = max(index, piece.begin)
        line = reading.text.count("\n", piece.begin, place) + 1
        before, after = _shown(reading.text, own, piece)
        slot = _slot(reading, own, earlier) or piece.slot
        advice = _advice(piece, slot, before, after, reading, earlier)
        if reading.rules.kind == "breakpoints" and shared - read >= reading.rules.least_for(reading.model):
            advice += f" Put a breakpoint before the change: {shared - read:,} shared tokens were not read."
        return Break(at, piece.message, slot, line, before, after, lost, advice)

    def _sweep(self, now: float | None) -> None:
        """Forget the calls and conversations that no later call can be compared with."""
        self._kept = {at: each for at, each in self._kept.items() if not is_over(each.time, now, self._lifetime)}
        self._conversations = {
            key: tree for key, tree in self._conversations.items() if not is_over(tree.time, now, self._lifetime)
        }


def _looked_at(reading: Reading, indices: Iterable[int]) -> Iterator[int]:
    """Yield those of some indices at which a cached prefix is looked for."""
    ends = [piece.end for piece in reading.pieces]
    blocks = [0, *(piece.block for piece in reading.pieces)]
    marked = {blocks[bisect_right(ends, index)] for index, _ in reading.marks}
    for index in indices:
        block = blocks[bisect_right(ends, index)]
        if reading.looked_at is not None:
            is_near = index in reading.looked_at
        else:
            is_near = any(block <= mark < block + reading.rules.look_back for mark in marked)
        if is_near:
            yield index


class _Tokens:
    """The tokens of a call up to each index, counted where no earlier call has done so."""

    def __init__(self, reading: Reading, match: Match, counter: TokenCounter) -> None:
        self._reading, self._counter = reading, counter
        self._starts = [piece.start for piece in reading.pieces]
        self._before: list[int] = []
        self.ends: dict[int, int] = {}
        until = 0
        for piece in reading.pieces:
            self._before.append(until)
            known = match.tokens_at(piece.end) if piece.end <= match.length else None
            until = until + piece.tokens() if known is None else known
            self.ends[piece.end] = until
        self.total = until + reading.overhead
        self._known: dict[tuple[int, int | None], int] = {}

    def until(self, match: Match) -> int:
        """Return the tokens that are shared with an earlier call."""
        return self.until_index(match.length, match)

    def until_index(self, index: int, match: Match) -> int:
        """Return the tokens up to an index that a match shares."""
        if index in self.ends:
            return self.ends[index]
        key = index, match.call
        if key not in self._known:
            self._known[key] = self._inside(index, match)
        return self._known[key]

    def _inside(self, index: int, match: Match) -> int:
        at = bisect_right(self._starts, index) - 1
        piece = self._reading.pieces[at]
        before, end = self._before[at], self.ends[piece.end]
        if index < piece.begin:
            return before
        count, text = self._counter.count_text, self._reading.text
        whole, head = text[piece.begin : piece.end].rstrip(END), text[piece.begin : index].rstrip(END)
        framing = max(end - before - count(whole), 0) if piece.is_framed else 0
        counted = match.tokens_at(index)
        inside = count(head) if counted is None else counted - before - framing
        # A token that stands across the index, in this call or in the earlier one, is not shared.
        tails = [whole[len(head) :]]
        if index == match.length:
            tails.append(texts_between(match.behind))
        near = head[-_NEAR:]
        if any(tail and near and count(near + tail[:_NEAR]) < count(near) + count(tail[:_NEAR]) for tail in tails):
            inside -= 1
        return before + min(framing + inside, end - before)


def _slot(reading: Reading, own: Match, earlier: _Cached) -> str | None:
    """Return the slot that changed: the first that ends elsewhere than in the earlier call, or holds the difference."""
    slots, others = reading.slots, earlier.slots
    at = bisect_right([start for start, _ in slots], own.length) - 1
    for index in range(at):
        if index + 1 >= len(others) or slots[index + 1][0] != others[index + 1][0]:
            return slots[index][1]
    return slots[at][1] if at >= 0 else None


def _shown(text: str, own: Match, piece: Piece) -> tuple[str, str]:
    """Return what stood at the difference before, and what stands there now, in one line each."""
    begin = max(piece.begin, own.length - _SEARCHED, 0)
    key = text.rfind(_PRIVATE_KEY, piece.begin, begin)
    begin = begin if key < 0 else key
    at = max(own.length, piece.begin) - begin
    shown: list[str] = []
    for behind in (own.behind, text[own.length : own.length + _SEARCHED]):
        skipped = max(piece.begin - own.length, 0)
        whole = texts_between(text[begin : own.length]) + texts_between(behind[skipped : skipped + _SEARCHED_BEHIND])
        safe = masked(whole, secrets_in(whole, len(whole)))
        start = max(safe.rfind("\n", 0, at) + 1, at - _SHOWN_BEFORE)
        shown.append(safe[start : at + _SHOWN_BEHIND])
    return shown[0], shown[1]


def _advice(piece: Piece, slot: str | None, before: str, after: str, reading: Reading, earlier: _Cached) -> str:
    """Return what to do about a break."""
    in_history = piece.message not in (None, 0) and slot in (None, "history")
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
            "Pin the date or time for the whole conversation, or put it behind the history.",
        ),
        (slot not in _FIXED, f"Move the slot {slot!r} behind the history, into the user's last message."),
    )
    last = "Keep this text the same in every call, or move what changes behind the history."
    return next((advice for is_cause, advice in causes if is_cause), last)
