"""Token budgets for conversations, with policies that decide what to drop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast, get_args

from lazyprompt.budget.costs import Cost, CountCache
from lazyprompt.budget.cut import Cut, is_empty, shorten
from lazyprompt.budget.fitting import FitPlan, fit_steps, role_of
from lazyprompt.budget.input import BudgetInput
from lazyprompt.budget.sent import sent_forms
from lazyprompt.budget.summary import Summaries, Summarizer, Task
from lazyprompt.budget.units import Item, Message, SlotValue, Unit
from lazyprompt.errors import BudgetError, did_you_mean
from lazyprompt.messages.msg import Msg
from lazyprompt.messages.prompt import Prompt, Text, filled_texts
from lazyprompt.messages.tools import ToolLike, ToolSet
from lazyprompt.templates.slots import value_text
from lazyprompt.tokens.approximate import ApproximateTokenCounter

if TYPE_CHECKING:
    from lazyprompt.budget.fitting import Fitted, Steps
    from lazyprompt.budget.report import TrimReport
    from lazyprompt.tokens.counter import CountsMessages, Form

_M = TypeVar("_M")

Policy: TypeAlias = 'Literal["oldest", "priority", "cache"] | Summarizer'
ToolsLike: TypeAlias = "Iterable[ToolLike] | ToolSet | None"
Order: TypeAlias = "Callable[[list[Any]], Iterable[Any]]"
Priority: TypeAlias = "Mapping[int | str, float] | Callable[[Message], float]"
BudgetLike: TypeAlias = "Budget | Mapping[str, int]"
_POLICIES = ("oldest", "priority", "cache")
# The default maximum length of a summary is the token limit divided by this number.
_SUMMARY_SHARE = 8
_REASONS = {
    "oldest": "the oldest go first",
    "priority": "the lowest priority goes first",
    "cache": "the oldest go first",
}
_LAST_FIRST = "the last items go first"


def checked_budget(budget: object, more: str = "") -> Budget:
    """Return the argument after checking that it is a Budget.

    Args:
        budget: The argument to check.
        more: A description of the types that are accepted besides Budget, for the error message.

    Raises:
        BudgetError: The argument is not a Budget.
    """
    if isinstance(budget, Budget):
        return budget
    instead = f"; use Budget({budget})" if isinstance(budget, int) else ""
    raise BudgetError(f"budget must be a Budget{more}, not {budget!r}{instead}")


def read_budget(budget: BudgetLike) -> Budget:
    """Convert an argument to a Budget; a dict of token limits by slot name becomes a budget without a total limit.

    Raises:
        BudgetError: The argument is neither a Budget nor a dict.
    """
    if isinstance(budget, Mapping):
        return Budget(None, slots=budget)
    return checked_budget(budget, " or a dict of token limits by slot name")


class Budget:
    """A token limit, with a policy that decides which messages and list items to drop when it is exceeded.

    System text and the newest user turn are never dropped. A tool call and its results are kept or dropped together.
    The budget counts messages in the format in which they are sent. Message counts are cached, so reuse one budget for
    many calls.

    Args:
        max_tokens: The maximum number of tokens; ``None`` for a budget that only limits slots or only counts tokens.
        counter: The token counter; by default, an :class:`ApproximateTokenCounter`.
        policy: The order in which messages are dropped. ``oldest``, or its alias ``cache``, drops the oldest messages
            first. ``priority`` drops the messages with the lowest priority first, and the older message first if two
            priorities are equal. A summarizer is a function, possibly async, that receives the dropped messages as
            OpenAI dicts and returns their summary. If the summarizer fails, the oldest messages are dropped.
        reserve: The number of tokens to reserve for the response.
        start_on: ``"user"`` to also drop every message before the first remaining user turn, except system text and
            protected messages.
        slots: The token limits for a prompter's slot values, by slot name. Text values are truncated; list values lose
            whole items. JSON and XML elements (``<a>…</a>``) are never truncated. An error is raised if a limit would
            leave a slot empty.
        order: For each slot name, a function that sorts the items of the slot's list value by importance. The least
            important items are dropped first; the remaining items keep their original order. By default, items are
            dropped from the end of the list. At least one item of a list is always kept.
        cut: The part to remove from long text, either ``end`` or ``middle``. If set, the last message that would be
            dropped is truncated instead, and the newest user turn is truncated if it doesn't fit. By default, only slot
            values that have a limit are truncated, and only the end of their text is removed.
        priority: The priorities for the policy ``priority``, by message index, name or role, or by slot name; the key
            ``history`` applies to all messages. A function that maps a message to its priority is also accepted. By
            default, a message's priority is the ``priority`` in its metadata, or 0. Slot values without a priority are
            never dropped; list items have priority 0 by default.
        protect: The messages and slots that are never dropped: message indices, names or roles, and slot names.
        low_water: The size to which a conversation is reduced whenever it outgrows the limit, as a fraction of the
            limit. A longer version of the conversation drops the same messages until it outgrows the limit again, so
            that consecutive requests share a prefix. As few messages as possible are dropped if ``low_water`` is 1, if
            ``cut`` is set, or if the policy is ``priority``.
        summary_tokens: The maximum number of tokens in a summary; by default, an eighth of the limit.

    Raises:
        BudgetError: A setting is invalid or conflicts with another setting.
    """

    __slots__ = (
        "_counts",
        "_sent",
        "_summaries",
        "counter",
        "cut",
        "low_water",
        "max_tokens",
        "order",
        "policy",
        "priority",
        "protect",
        "reserve",
        "slots",
        "start_on",
        "summary_tokens",
    )

    def __init__(  # noqa: PLR0913 - one parameter for each setting; all but the first four are keyword-only
        self,
        max_tokens: int | None,
        counter: CountsMessages | None = None,
        policy: Policy = "oldest",
        reserve: int = 0,
        *,
        start_on: Literal["user"] | None = None,
        slots: Mapping[str, int] | None = None,
        order: Mapping[str, Order] | None = None,
        cut: Cut | None = None,
        priority: Priority | None = None,
        protect: Collection[int | str] = (),
        low_water: float = 0.5,
        summary_tokens: int | None = None,
    ) -> None:
        self.max_tokens = max_tokens
        self.counter: CountsMessages = ApproximateTokenCounter() if counter is None else counter
        self.policy: Policy = policy
        self.cut: Cut | None = cut
        self.reserve, self.priority, self.low_water = reserve, priority, low_water
        self.start_on: Literal["user"] | None = start_on
        self.slots = dict(slots or {})
        self.order = dict(order or {})
        self.protect = frozenset((protect,) if isinstance(protect, str) else protect)
        self.summary_tokens = summary_tokens
        self._check()
        self._counts = CountCache(self.counter)
        # A separate cache for `fit`, which counts messages in the format that ChatFormatter("openai") produces.
        self._sent = CountCache(self.counter, sent_forms)
        self._summaries = Summaries()

    @property
    def limit(self) -> int | None:
        """The token limit for a request, which is ``max_tokens`` minus ``reserve``; None if there is no limit."""
        return None if self.max_tokens is None else self.max_tokens - self.reserve

    @property
    def _drops_in_steps(self) -> bool:
        # Drop messages in steps only if the oldest messages are dropped whole: ``cut`` fills the limit with truncated
        # messages, and the other policies choose messages by other rules.
        return self.policy in ("oldest", "cache") and self.low_water < 1 and self.cut is None and self.limit is not None

    def fit(self, messages: Iterable[_M], tools: ToolsLike = None) -> tuple[list[_M], TrimReport]:
        """Fit messages to the budget.

        The budget counts messages in the format that ``ChatFormatter("openai")`` produces. Tool results without a
        matching call are dropped.

        Args:
            messages: Msg, OpenAI dicts, or any other format that a history accepts. The messages are not modified.
            tools: The tools that are sent with the messages. Tools are counted but never dropped.

        Returns:
            The fitted messages, in their original types and order, and the report. The returned messages share no
            mutable object with the argument. If an item is neither a Msg nor an OpenAI dict, truncated messages and
            summaries are returned as Msg, and the report's indices refer to ``messages_from(messages)``.

        Raises:
            BudgetError: The parts that are never dropped exceed the limit; the error message contains token counts.
                ``BudgetError`` is also raised if the summarizer is async and an event loop is running; use :meth:`afit`
                instead.
            HistoryError: An item is not a message.
            ToolsError: A tool is invalid, or its schema cannot be generated.
        """
        given = BudgetInput.parse(messages)
        return given.restore(_drive(self._given_steps(given, tools), self.policy))

    async def afit(self, messages: Iterable[_M], tools: ToolsLike = None) -> tuple[list[_M], TrimReport]:
        """Async version of :meth:`fit`, which awaits the summarizer and counts tokens in a thread."""
        given = BudgetInput.parse(messages)
        return given.restore(await _adrive(self._given_steps(given, tools), self.policy))

    def fitted(
        self,
        items: Sequence[Item],
        cost: Cost,
        *,
        keep_newest: bool = True,
        together: Sequence[Unit] = (),
        fixed: Collection[int] = (),
        past: Cost | None = None,
    ) -> Fitted:
        """Fit items whose cost is computed by the caller, such as a formatter or a prompter.

        Args:
            items: Messages and slot values.
            cost: A function that returns the total cost of the kept items, given their indices and any replacements.
            keep_newest: True if the items include the newest user turn.
            together: Additional groups of item indices; like tool calls and their results, the items of a group are
                kept or dropped together.
            fixed: The indices of additional items to keep.
            past: A function like ``cost`` that omits the latest input, as earlier requests did; by default, ``cost``
                itself.

        Returns:
            A :class:`Fitted` with the indices of the kept items, the truncated items and summaries that replace items,
            and the report.

        Raises:
            BudgetError: See :meth:`fit`.
            HistoryError: See :meth:`fit`.
        """
        steps = self._steps(items, cost, keep_newest=keep_newest, together=together, fixed=fixed, past=past)
        return _drive(steps, self.policy)

    async def afitted(self, items: Sequence[Item], cost: Cost) -> Fitted:
        """Async version of :meth:`fitted`."""
        return await _adrive(self._steps(items, cost), self.policy)

    def share(self, item: Item) -> int:
        """Return the token count of a single message or slot value."""
        return self._counts.share(item)

    def count(self, messages: Sequence[Message], tools: Sequence[Form] | None = None) -> int:
        """Return the token count of messages and tools.

        If the counter is additive, the count of each message is cached.
        """
        return self._counts.cost(messages, tools)

    def count_text(self, text: str) -> int:
        """Return the token count of a text."""
        return self._counts.count_text(text)

    def count_tools(self, tools: Sequence[Form]) -> int:
        """Return the token count of the tools in a request."""
        return self._counts.tools(tools)

    def count_slots(self, prompt: Prompt, system: str) -> dict[str, int]:
        """Return the token count of each slot in a prompt, by slot name; empty slots are omitted.

        Args:
            prompt: The filled prompt.
            system: The system text of the rendered prompt.
        """
        # Skip the prompter's own messages, because their slots are counted separately.
        unfilled = [each for each in prompt.history.messages if not [*filled_texts(each)]]
        texts = (Text.trusted(system, "system"), *prompt.texts)
        found = [each for text in texts for each in zip(text.slots, text.parts, strict=True)]
        found += [("input", prompt.input or ""), ("label", prompt.label or "")]
        counted = [(slot, self.count_text(part)) for slot, part in found if part]
        counted += [
            ("history", sum(map(self.share, unfilled))),
            ("tools", self.count_tools(list(prompt.tools))),
        ]
        counts: dict[str, int] = {}
        # Add the counts, because a slot may also be named "history" or "tools".
        for slot, count in counted:
            counts[slot] = counts.get(slot, 0) + count
        return {slot: count for slot, count in counts.items() if count}

    def shortened(self, slot: str, value: str) -> str:
        """Return a slot's value, truncated to the slot's limit.

        Raises:
            BudgetError: Truncation would leave the slot empty.
        """
        most = self.slots.get(slot)
        if most is None:
            return value
        short = shorten(value, most, self.count_text, self.cut or "end")
        if value and is_empty(short):
            count = self.count_text(value)
            raise BudgetError(
                f"slots[{slot!r}] is limited to {most} tokens, but its value has {count} tokens ({count - most} too "
                "many) and would be dropped entirely, because JSON and elements (<a>…</a>) are never truncated; raise "
                "the limit"
            )
        return short

    def list_items(self, slot: str, items: Sequence[object]) -> list[SlotValue]:
        """Return the items of a list value, with the order in which they are dropped.

        Raises:
            BudgetError: The slot's function in ``order`` did not return exactly the items that it received.
        """
        kept = _kept_order(slot, items, self.order.get(slot))
        ranks = {place: len(items) - 1 - number if number else None for number, place in enumerate(kept)}
        return [SlotValue(slot, value_text(item, slot), place, ranks[place]) for place, item in enumerate(items)]

    def over_limit(self, items: Sequence[SlotValue]) -> set[int]:
        """Return the indices of the list items that must be dropped to meet the slot's limit.

        Raises:
            BudgetError: The item that is always kept exceeds the limit by itself.
        """
        most = self.slots.get(items[0].slot)
        if most is None:
            return set()
        shares = [self.share(item) for item in items]
        over, gone = sum(shares) - most, set[int]()
        for at in sorted(range(len(items)), key=lambda at: (items[at].rank is None, items[at].rank)):
            if over <= 0:
                break
            gone.add(at)
            over -= shares[at]
        if len(gone) == len(items):
            slot, last = items[0].slot, next(at for at, item in enumerate(items) if item.rank is None)
            raise BudgetError(
                f"slots[{slot!r}] is limited to {most} tokens, but its most important item has {shares[last]} tokens "
                f"({shares[last] - most} too many), so the slot would be empty; raise the limit"
            )
        return gone

    def _given_steps(self, given: BudgetInput, tools: ToolsLike) -> Steps:
        forms = None if tools is None else [*ToolSet.of(tools)] or None
        plan = self._plan(self._sent)
        order, is_protected = plan.order, plan.is_protected
        # Pass the caller's original messages to the caller's functions, not the converted messages that are counted.

        def order_given(_: Sequence[Item], units: list[Unit]) -> list[Unit]:
            return order(given.messages, units)

        def is_given_protected(at: int, _: Item) -> bool:
            return is_protected is not None and is_protected(at, given.messages[at])

        plan = plan._replace(order=order_given, is_protected=is_protected and is_given_protected)
        return fit_steps(plan, given.counted, forms, None, keep_newest=True, together=given.together)

    def _steps(
        self,
        items: Sequence[Item],
        cost: Cost,
        *,
        keep_newest: bool = True,
        together: Sequence[Unit] = (),
        fixed: Collection[int] = (),
        past: Cost | None = None,
    ) -> Steps:
        plan = self._plan(self._counts)

        def stays(at: int, item: Item) -> bool:
            return at in fixed or self._is_protected(at, item)

        plan = plan._replace(is_protected=stays) if fixed else plan
        return fit_steps(plan, items, None, cost, keep_newest=keep_newest, together=together, past=past)

    def _plan(self, counts: CountCache) -> FitPlan:
        limit = self.limit
        low = round((limit or 0) * self.low_water)
        reason = _REASONS["oldest" if callable(self.policy) else self.policy]
        return FitPlan(
            limit,
            self._order,
            f"{reason}, down to low_water={self.low_water}" if self._drops_in_steps else reason,
            _REASONS["priority"] if self.policy == "priority" else _LAST_FIRST,
            self._is_protected if self.protect or counts is self._counts else None,
            self.cut,
            low if self._drops_in_steps else None,
            max(1, (limit or 0) - low),
            (self.summary_tokens or max(1, (limit or 0) // _SUMMARY_SHARE)) if callable(self.policy) else 0,
            counts,
            self._summaries,
            self.start_on,
        )

    def _order(self, items: Sequence[Item], units: list[Unit]) -> list[Unit]:
        """Return the units in the order in which they are dropped: messages by age, list items by rank."""
        if any(isinstance(items[unit[0]], SlotValue) for unit in units):
            units = sorted(units, key=lambda unit: _place_in_order(unit[0], items[unit[0]]))
        if self.policy != "priority":
            return units
        numbers = [max(self._number(at, items[at]) for at in unit) for unit in units]
        return [units[place] for place in sorted(range(len(units)), key=numbers.__getitem__)]

    def _number(self, at: int, item: Item) -> float:
        if isinstance(item, SlotValue):
            return self._numbers.get(item.slot, 0)
        if callable(self.priority):
            return self.priority(item)
        found = next((self._numbers[key] for key in self._keys(at, item) if key in self._numbers), None)
        if found is None:
            own = (item.metadata if isinstance(item, Msg) else item).get("priority")
            found = own if isinstance(own, int | float) else 0
        return found

    @property
    def _numbers(self) -> Mapping[int | str, float]:
        return {} if self.priority is None or callable(self.priority) else self.priority

    def _is_protected(self, at: int, item: Item) -> bool:
        if isinstance(item, SlotValue):
            if item.place is not None:
                return item.rank is None or item.slot in self.protect
            return self.policy != "priority" or item.slot not in self._numbers or item.slot in self.protect
        return not self.protect.isdisjoint(self._keys(at, item))

    @staticmethod
    def _keys(at: int, item: Message) -> tuple[int | str, ...]:
        """Return all keys by which ``priority`` and ``protect`` can select a message."""
        name = item.name if isinstance(item, Msg) else item.get("name")
        return (at, name, role_of(item), "history") if isinstance(name, str) else (at, role_of(item), "history")

    def _check(self) -> None:
        most, reserve = self.max_tokens, self.reserve
        _check_count("max_tokens", most, least=1, optional=True)
        _check_count("reserve", reserve, least=0)
        for slot, limit in self.slots.items():
            _check_count(f"slots[{slot!r}]", limit, least=1)
        for slot, order in self.order.items():
            if not callable(order):
                raise BudgetError(f"order[{slot!r}] must be a function that sorts items, not {order!r}")
        _check_count("summary_tokens", self.summary_tokens, least=1, optional=True)
        if most is not None and reserve >= most:
            raise BudgetError(f"reserve={reserve} must be less than max_tokens={most}")
        if not callable(self.policy) and self.policy not in _POLICIES:
            raise BudgetError(
                f"unknown policy {self.policy!r}{did_you_mean(str(self.policy), _POLICIES)}; "
                f"expected one of {', '.join(_POLICIES)}, or a function that summarizes messages"
            )
        if self.start_on not in (None, "user"):
            near = did_you_mean(str(self.start_on), ("user",))
            raise BudgetError(f"start_on must be 'user' or None, not {self.start_on!r}{near}")
        if self.cut not in (None, *get_args(Cut)):
            raise BudgetError(f"cut must be 'end', 'middle' or None, not {self.cut!r}")
        if self.priority is not None and self.policy != "priority":
            raise BudgetError("priority= requires policy='priority'; pass both or neither")
        if not 0 < self.low_water <= 1:
            raise BudgetError(f"low_water must be a fraction above 0 and at most 1, not {self.low_water!r}")
        _check_counter(self.counter)

    def __repr__(self) -> str:
        policy = self.policy if isinstance(self.policy, str) else "a summarizer"
        return f"Budget({self.max_tokens}, {type(self.counter).__name__}, {policy!r}, reserve={self.reserve})"


def _place_in_order(at: int, item: Item) -> int:
    """Return an item's sort key: its index, except that the items of a list value are sorted by rank."""
    if not isinstance(item, SlotValue) or item.place is None or item.rank is None:
        return at
    return at - item.place + item.rank


def _kept_order(slot: str, items: Sequence[object], order: Order | None) -> Iterable[int]:
    """Return the indices of a list value's items, most important first; ``order`` sorts the items by importance."""
    if order is None:
        return range(len(items))
    places: dict[int, list[int]] = {}
    for place, item in enumerate(items):
        places.setdefault(id(item), []).append(place)
    kept = [*order([*items])]
    found = [places[id(item)].pop(0) for item in kept if places.get(id(item))]
    if len(found) != len(items) or len(kept) != len(items):
        raise BudgetError(
            f"order[{slot!r}] returned {len(kept)} items, including {len(found)} of the {len(items)} it received; "
            "it must return exactly the items it received, in any order"
        )
    return found


def _check_count(name: str, value: object, *, least: int, optional: bool = False) -> None:
    if value is None and optional:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise BudgetError(f"{name} must be a whole number of tokens, at least {least}, not {value!r}")


def _check_counter(counter: object) -> None:
    if isinstance(counter, str):
        raise BudgetError(f"counter is the string {counter!r}; pass a counter, such as TiktokenCounter({counter!r})")
    if isinstance(counter, type):
        raise BudgetError(f"counter is the class {counter.__name__}; pass an instance: {counter.__name__}(...)")
    if not callable(getattr(counter, "count", None)):
        raise BudgetError(f"counter must have a method count(messages, tools), which {type(counter).__name__} lacks")


def _advance(steps: Steps, answer: object) -> Task | Fitted:
    """Send a summary to the generator of fitting steps; return the next summary task, or the fitted result."""
    try:
        return steps.send(answer)
    except StopIteration as end:
        result: Fitted = end.value
        return result


def _drive(steps: Steps, policy: Policy) -> Fitted:
    """Run all fitting steps and return the fitted result."""
    step = _advance(steps, None)
    while isinstance(step, Task):
        made = _summarize(policy, step)
        if isawaitable(made):
            made = _run_summary(made)
        step = _advance(steps, made)
    return step


async def _adrive(steps: Steps, policy: Policy) -> Fitted:
    """Async version of ``_drive``; it awaits the summarizer and counts tokens in a thread."""
    import asyncio  # noqa: PLC0415 - importing it takes 25 ms, and most programs don't need it

    step = await asyncio.to_thread(_advance, steps, None)
    while isinstance(step, Task):
        made = await asyncio.to_thread(_summarize, policy, step)
        if isawaitable(made):
            made = await _await_summary(made)
        step = await asyncio.to_thread(_advance, steps, made)
    return step


def _summarize(policy: Policy, task: Task) -> object:
    """Return the summary, or the summarizer's exception, which is reported in place of a summary."""
    try:
        return cast("Summarizer", policy)(task.messages)
    except Exception as error:  # noqa: BLE001 - the messages must fit whatever a summarizer raises
        return error


async def _await_summary(made: Awaitable[object]) -> object:
    try:
        return await made
    except Exception as error:  # noqa: BLE001 - as above
        return error


def _run_summary(made: Awaitable[object]) -> object:
    """Run an async summarizer in a new event loop."""
    import asyncio  # noqa: PLC0415 - as above

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_await_summary(made))
    if isinstance(made, Coroutine):
        made.close()
    raise BudgetError("the summarizer is async, but an event loop is running; use afit, or the formatter's aformat")
