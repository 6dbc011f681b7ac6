"""Budgets: a conversation made to fit a number of tokens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast, get_args

from lazyprompt._base.json import JsonText
from lazyprompt.budget.cut import Cut, shortened
from lazyprompt.budget.fitting import Plan, fitting, role_of
from lazyprompt.budget.given import Given
from lazyprompt.budget.sent import sent_forms
from lazyprompt.budget.summary import Summaries, Summarizer, Task
from lazyprompt.budget.tally import Cost, Tally
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
# Of the limit, so much is a summary's by default.
_SUMMARY_SHARE = 8
_REASONS = {
    "oldest": "the oldest go first",
    "priority": "the lowest priority goes first",
    "cache": "the oldest go first",
}
_LAST_FIRST = "the last items go first"


def checked_budget(budget: object, more: str = "") -> Budget:
    """Return a budget that was given as one.

    Args:
        budget: The value that was given.
        more: What else may be given, for the message.

    Raises:
        BudgetError: It is no Budget.
    """
    if isinstance(budget, Budget):
        return budget
    instead = f": give Budget({budget})" if isinstance(budget, int) else ""
    raise BudgetError(f"budget is a Budget{more}, not {budget!r}{instead}")


def read_budget(budget: BudgetLike) -> Budget:
    """Return a budget, read from a dict of slots and their limits where one was given.

    Raises:
        BudgetError: It is neither.
    """
    if isinstance(budget, Mapping):
        return Budget(None, slots=budget)
    return checked_budget(budget, ", or a dict of slots and their limits")


class Budget:
    """Limit of tokens, and the rule by which messages, and items of lists in slots, are dropped.

    System text and the newest turn of the user never go; a call and its results go together or stay together. What is
    counted is what is sent. A budget remembers the counts of messages, so keep one for a conversation, or for all.

    Args:
        max_tokens: The most tokens; ``None`` is no limit, for a budget that limits slots only, or only counts.
        counter: What counts them; by default an approximation.
        policy: What goes first. ``oldest``: the oldest. ``priority``: what has the lowest number, of two the older.
            ``cache`` is another name of ``oldest``. Or a summarizer: a function that is given the messages that go, as
            OpenAI dicts, and gives their summary as text, which may have to be awaited; where it fails, the oldest go.
        reserve: How many of the tokens are kept for the answer.
        start_on: ``"user"`` drops what would stand before the first turn of the user that is left. System text, and
            what is protected, stay.
        slots: The most tokens of the values of slots, for a prompter: longer texts are cut, and of lists whole items
            are dropped. JSON of a dict is never cut: it is an error if it is longer.
        order: For slots whose values are lists, by their names, a function that is given the items and returns the same
            items in the order in which they are kept: the last of these goes first. They stay in the prompt's own
            order. Without a function, items go from the end of the list. One item always stays.
        cut: Whether texts that are too long by themselves are cut, at the ``end`` or in the ``middle``: first the one
            that would be the next to stay, and the newest turn of the user rather than be an error. Values of slots
            that have a limit are cut at the end by default.
        priority: For the policy ``priority``, the numbers: by a message's index, name or role, or by a slot's name; or
            a function of a message. What has none of these has its own ``priority`` (a key of its metadata), or 0; the
            value of a slot that has none never goes, and the items of a list have 0. ``history`` is the slot of all
            messages.
        protect: What never goes: indices, names, roles, or names of slots, of lists too.
        low_water: The part of the limit that is left when messages go: many go at a time, so that the rest is the same
            for many requests. 1 lets no more go than must; so do priorities, and a budget that cuts.
        summary_tokens: The most tokens of a summary; an eighth of the limit by default.

    Raises:
        BudgetError: A setting is wrong, or does not fit another.
    """

    __slots__ = (
        "_sent",
        "_summaries",
        "_tally",
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

    def __init__(  # noqa: PLR0913 - a budget has so many sides; all but the first four are named
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
        self._tally = Tally(self.counter)
        # By itself, a budget counts what ChatFormatter("openai") sends.
        self._sent = Tally(self.counter, sent_forms)
        self._summaries = Summaries()

    @property
    def limit(self) -> int | None:
        """The most tokens that are sent: ``max_tokens`` less ``reserve``; ``None`` where there is no limit."""
        return None if self.max_tokens is None else self.max_tokens - self.reserve

    @property
    def _drops_in_steps(self) -> bool:
        # A text that is cut uses all room there is; a summary and priorities have their own ways.
        return self.policy in ("oldest", "cache") and self.low_water < 1 and self.cut is None and self.limit is not None

    def fit(self, messages: Iterable[_M], tools: ToolsLike = None) -> tuple[list[_M], TrimReport]:
        """Make messages fit.

        Args:
            messages: Msg, OpenAI dicts, or whatever else a history may hold; left as they are.
            tools: The tools that are sent with them: they are counted, and all stay.

        Returns:
            The messages that fit, of the same kind and in the same order, and the report. What is counted is what
            ``ChatFormatter("openai")`` sends of them. Results of tools without their call are left out. Nothing
            that can be changed is shared with what was given. Among items of another form, a text that was cut, or a
            summary, is a Msg; the report's indices are those of ``messages_from(messages)``.

        Raises:
            BudgetError: Even what never goes does not fit; the message has the numbers. Or the summarizer must be
                awaited, and an event loop runs: use :meth:`afit`.
            HistoryError: Something is no message.
            ToolsError: A tool cannot be described.
        """
        given = Given.of(messages)
        return given.taken(_driven(self._given_steps(given, tools), self.policy))

    async def afit(self, messages: Iterable[_M], tools: ToolsLike = None) -> tuple[list[_M], TrimReport]:
        """Async version of :meth:`fit`: awaits the summarizer, and counts without blocking the event loop."""
        given = Given.of(messages)
        return given.taken(await _adriven(self._given_steps(given, tools), self.policy))

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
        """Make items fit, for whoever knows what they cost as they will be sent.

        Args:
            items: Messages, and values of slots.
            cost: What some of the items cost together, by their indices; some are replaced by others.
            keep_newest: Whether the newest turn of the user is among the items.
            together: Items that go together, beside calls and their results.
            fixed: The indices of further items that never go.
            past: What some of the items cost in an earlier request; None is ``cost``.

        Returns:
            What fits.

        Raises:
            BudgetError: As in :meth:`fit`.
            HistoryError: As in :meth:`fit`.
        """
        steps = self._steps(items, cost, keep_newest=keep_newest, together=together, fixed=fixed, past=past)
        return _driven(steps, self.policy)

    async def afitted(self, items: Sequence[Item], cost: Cost) -> Fitted:
        """Async version of :meth:`fitted`."""
        return await _adriven(self._steps(items, cost), self.policy)

    def share(self, item: Item) -> int:
        """Count one message, or the value of a slot, by itself."""
        return self._tally.share(item)

    def count(self, messages: Sequence[Message], tools: Sequence[Form] | None = None) -> int:
        """Count messages; where the counter adds up, each message is counted once and remembered."""
        return self._tally.cost(messages, tools)

    def count_text(self, text: str) -> int:
        """Count a text."""
        return self._tally.count_text(text)

    def count_tools(self, tools: Sequence[Form]) -> int:
        """Count tools beside messages."""
        return self._tally.tools(tools)

    def count_slots(self, prompt: Prompt, system: str) -> dict[str, int]:
        """Count the slots of a prompt, each by itself; those without tokens are left out.

        Args:
            prompt: The prompt.
            system: Its system text.
        """
        # The texts of the prompter's own messages have slots of their own.
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
        # A slot may have the name of what stands beside it.
        for slot, count in counted:
            counts[slot] = counts.get(slot, 0) + count
        return {slot: count for slot, count in counts.items() if count}

    def shortened(self, slot: str, value: str) -> str:
        """The value of a slot, cut where the slot has a limit and it is longer.

        Raises:
            BudgetError: It is JSON, which is not cut.
        """
        most = self.slots.get(slot)
        if most is None:
            return value
        if isinstance(value, JsonText) and (count := self.count_text(value)) > most:
            raise BudgetError(
                f"slots[{slot!r}] is {most} tokens, and its JSON has {count}, which is not cut; give more"
            )
        return shortened(value, most, self._tally.count_text, self.cut or "end")

    def list_items(self, slot: str, items: Sequence[object]) -> list[SlotValue]:
        """Return the items of a list in a slot, each with the number of items that go before it.

        Raises:
            BudgetError: The slot's function of ``order`` returned other items than it was given.
        """
        kept = _kept_order(slot, items, self.order.get(slot))
        ranks = {place: len(items) - 1 - number if number else None for number, place in enumerate(kept)}
        return [SlotValue(slot, value_text(item, slot), place, ranks[place]) for place, item in enumerate(items)]

    def over_limit(self, items: Sequence[SlotValue]) -> set[int]:
        """Return the indices of the items of a list that go because their slot has a limit.

        Raises:
            BudgetError: Not even the item that always stays fits.
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
                f"slots[{slot!r}] is {most} tokens, and the item that goes last has {shares[last]}: "
                f"{shares[last] - most} tokens are missing, so the slot would be empty; give more"
            )
        return gone

    def _given_steps(self, given: Given, tools: ToolsLike) -> Steps:
        """Make messages fit that stand by themselves."""
        forms = None if tools is None else [*ToolSet.of(tools)] or None
        plan = self._plan(self._sent)
        order, is_protected = plan.order, plan.is_protected
        # The caller's own functions are given the messages as they were given.

        def order_given(_: Sequence[Item], units: list[Unit]) -> list[Unit]:
            return order(given.messages, units)

        def is_given_protected(at: int, _: Item) -> bool:
            return is_protected is not None and is_protected(at, given.messages[at])

        plan = plan._replace(order=order_given, is_protected=is_protected and is_given_protected)
        return fitting(plan, given.counted, forms, None, keep_newest=True, together=given.together)

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
        plan = self._plan(self._tally)

        def stays(at: int, item: Item) -> bool:
            return at in fixed or self._is_protected(at, item)

        plan = plan._replace(is_protected=stays) if fixed else plan
        return fitting(plan, items, None, cost, keep_newest=keep_newest, together=together, past=past)

    def _plan(self, tally: Tally) -> Plan:
        limit = self.limit
        low = round((limit or 0) * self.low_water)
        return Plan(
            limit,
            self._order,
            _REASONS["oldest" if callable(self.policy) else self.policy],
            _REASONS["priority"] if self.policy == "priority" else _LAST_FIRST,
            self._is_protected if self.protect or tally is self._tally else None,
            self.cut,
            low if self._drops_in_steps else None,
            max(1, (limit or 0) - low),
            (self.summary_tokens or max(1, (limit or 0) // _SUMMARY_SHARE)) if callable(self.policy) else 0,
            tally,
            self._summaries,
            self.start_on,
        )

    def _order(self, items: Sequence[Item], units: list[Unit]) -> list[Unit]:
        """The units in the order in which they go: by age, and the items of a list by their ranks."""
        if any(isinstance(items[unit[0]], SlotValue) for unit in units):
            units = sorted(units, key=lambda unit: _place_in_order(unit[0], items[unit[0]]))
        if self.policy != "priority":
            return units
        numbers = [max(self._number(at, items[at]) for at in unit) for unit in units]
        return [units[place] for place in sorted(range(len(units)), key=numbers.__getitem__)]

    def _number(self, at: int, item: Item) -> float:
        """The priority of an item."""
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
        """By what a message is known: its index, its name, its role, and that it is of the history."""
        name = item.name if isinstance(item, Msg) else item.get("name")
        return (at, name, role_of(item), "history") if isinstance(name, str) else (at, role_of(item), "history")

    def _check(self) -> None:
        """Refuse settings that are wrong."""
        most, reserve = self.max_tokens, self.reserve
        _check_count("max_tokens", most, least=1, optional=True)
        _check_count("reserve", reserve, least=0)
        for slot, limit in self.slots.items():
            _check_count(f"slots[{slot!r}]", limit, least=1)
        for slot, order in self.order.items():
            if not callable(order):
                raise BudgetError(f"order[{slot!r}] is {order!r}; give a function that puts items in order")
        _check_count("summary_tokens", self.summary_tokens, least=1, optional=True)
        if most is not None and reserve >= most:
            raise BudgetError(f"reserve={reserve} leaves nothing of max_tokens={most}; give less")
        if not callable(self.policy) and self.policy not in _POLICIES:
            raise BudgetError(
                f"policy {self.policy!r} is unknown{did_you_mean(str(self.policy), _POLICIES)}; "
                f"known are {', '.join(_POLICIES)}, or a function that sums messages up"
            )
        if self.start_on not in (None, "user"):
            near = did_you_mean(str(self.start_on), ("user",))
            raise BudgetError(f"start_on is {self.start_on!r}{near}; give 'user' or None")
        if self.cut not in (None, *get_args(Cut)):
            raise BudgetError(f"cut is {self.cut!r}; give 'end', 'middle' or None")
        if self.priority is not None and self.policy != "priority":
            raise BudgetError("priority= is for policy='priority'; give both, or neither")
        if not 0 < self.low_water <= 1:
            raise BudgetError(f"low_water is {self.low_water!r}; give a share of the limit above 0, at most 1")
        _check_counter(self.counter)

    def __repr__(self) -> str:
        policy = self.policy if isinstance(self.policy, str) else "a summarizer"
        return f"Budget({self.max_tokens}, {type(self.counter).__name__}, {policy!r}, reserve={self.reserve})"


def _place_in_order(at: int, item: Item) -> int:
    """Return the place of an item among all, an item of a list at that of its rank."""
    if not isinstance(item, SlotValue) or item.place is None or item.rank is None:
        return at
    return at - item.place + item.rank


def _kept_order(slot: str, items: Sequence[object], order: Order | None) -> Iterable[int]:
    """Return the indices of items in the order in which they are kept."""
    if order is None:
        return range(len(items))
    places: dict[int, list[int]] = {}
    for place, item in enumerate(items):
        places.setdefault(id(item), []).append(place)
    kept = [*order([*items])]
    found = [places[id(item)].pop(0) for item in kept if places.get(id(item))]
    if len(found) != len(items) or len(kept) != len(items):
        raise BudgetError(
            f"order[{slot!r}] returned {len(kept)} items, {len(found)} of them of the {len(items)} it was given; "
            "it returns the same items in another order"
        )
    return found


def _check_count(name: str, value: object, *, least: int, optional: bool = False) -> None:
    if value is None and optional:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise BudgetError(f"{name} is {value!r}; give a whole number of tokens, at least {least}")


def _check_counter(counter: object) -> None:
    if isinstance(counter, str):
        raise BudgetError(f"the counter is the text {counter!r}; give a counter, as TiktokenCounter({counter!r})")
    if isinstance(counter, type):
        raise BudgetError(f"the counter is the class {counter.__name__}; give one of it: {counter.__name__}(...)")
    if not callable(getattr(counter, "count", None)):
        raise BudgetError(f"the counter is a {type(counter).__name__} without count(messages, tools)")


def _advanced(steps: Steps, answer: object) -> tuple[Task | None, Fitted | None]:
    """The next thing that the steps ask for, or what they end with."""
    try:
        return steps.send(answer), None
    except StopIteration as end:
        return None, cast("Fitted", end.value)


def _driven(steps: Steps, policy: Policy) -> Fitted:
    """Run the steps to their end and return their result."""
    task, fitted = _advanced(steps, None)
    while task is not None:
        made = _made(policy, task)
        if isawaitable(made):
            made = _run(made)
        task, fitted = _advanced(steps, made)
    return cast("Fitted", fitted)


async def _adriven(steps: Steps, policy: Policy) -> Fitted:
    """Run the steps, counting in a thread and awaiting the summarizer."""
    import asyncio  # noqa: PLC0415 - 25 ms that a program without it need not pay

    task, fitted = await asyncio.to_thread(_advanced, steps, None)
    while task is not None:
        made = await asyncio.to_thread(_made, policy, task)
        if isawaitable(made):
            made = await _awaited(made)
        task, fitted = await asyncio.to_thread(_advanced, steps, made)
    return cast("Fitted", fitted)


def _made(policy: Policy, task: Task) -> object:
    """Return the summary, or the error of the summarizer: the steps report it and go on without."""
    try:
        return cast("Summarizer", policy)(task.messages)
    except Exception as error:  # noqa: BLE001 - whatever a summarizer raises, the messages still have to fit
        return error


async def _awaited(made: Awaitable[object]) -> object:
    try:
        return await made
    except Exception as error:  # noqa: BLE001 - as above
        return error


def _run(made: Awaitable[object]) -> object:
    """Await without an event loop."""
    import asyncio  # noqa: PLC0415 - as above

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_awaited(made))
    if isinstance(made, Coroutine):
        made.close()
    raise BudgetError("the summarizer must be awaited and an event loop runs; use afit, or the formatter's aformat")
