"""Few-shot prompts: a prefix, worked examples, a suffix. The examples are data: their braces stay.

A selector decides at each rendering which examples are shown, and in which order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from math import isnan
from operator import index
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, Protocol, Self, SupportsFloat, SupportsIndex, TypeAlias, cast, get_args

from lazyprompt._base.frozen import read_only
from lazyprompt._base.json import checked
from lazyprompt.errors import BudgetError, LazyPromptError, SlotError, TemplateError
from lazyprompt.templates.instruction import Fixed, called, fixed_with, refuse_none
from lazyprompt.templates.slots import SlotTemplate, misfit, value_text

if TYPE_CHECKING:
    from lazyprompt.messages.prompt import CountsText

Best: TypeAlias = Literal["first", "last"]
"""Where the best example stands."""

Score: TypeAlias = "Callable[[Mapping[str, object], Mapping[str, object]], SupportsFloat]"
"""How well an example (the second) goes with the values of a rendering (the first): the more, the better."""

# They can be gone through, but have no order, or hold no indices.
_NO_LISTS = (str, bytes, Mapping, set, frozenset)


@read_only
@dataclass(frozen=True, slots=True)
class ExampleOffer:
    """Examples to choose from at one rendering. It is for reading only.

    Attributes:
        values: The values of this rendering, as they were given.
        examples: The examples, with what no slot takes too; dicts and lists that a slot takes are copies, as JSON has
            them.
        texts: Each example as it would be written.
        before: The prefix, filled.
        after: The suffix, filled.
        separator: What stands between them all.
    """

    values: Mapping[str, object]
    examples: Sequence[Mapping[str, object]]
    texts: Sequence[str]
    before: str
    after: str
    separator: str

    def whole(self, chosen: Iterable[int]) -> str:
        """The whole text with some of the examples.

        Args:
            chosen: Their indices, in the order in which they are shown.

        Returns:
            Just what :meth:`FewShotTemplate.render` would give.
        """
        pieces = (self.before, *(self.texts[at] for at in chosen), self.after)
        return self.separator.join(piece for piece in pieces if piece)


class ExampleSelector(Protocol):
    """Anything that chooses examples. The same offer should always give the same choice.

    A selector may also have an attribute ``best``, ``"first"`` or ``"last"``: where in its choice the best example
    stands. A :class:`LengthBudget` leaves out those at the other end. Of a selector without it, the first is the best.
    """

    def select(self, offer: ExampleOffer, /) -> Sequence[int]:
        """The indices of the examples to show, in the order in which they are shown, none of them twice."""
        ...


@dataclass(frozen=True)
class FirstExamples:
    """Shows the first examples.

    Args:
        k: How many; where there are fewer, all.

    Raises:
        TemplateError: ``k`` is no whole number from 0 on.
    """

    k: int

    def __post_init__(self) -> None:
        _check_whole("k", self.k, 0, TemplateError)

    def select(self, offer: ExampleOffer, /) -> Sequence[int]:
        """The first indices."""
        return range(len(offer.texts))[: self.k]


@dataclass(frozen=True)
class MostSimilar:
    """Shows the examples that go best with what is asked. Of two that are equally good, the earlier one is the better.

    Args:
        k: How many; where there are fewer, all.
        score: How well an example goes with the values of the rendering: called as ``score(values, example)`` for each
            example, it gives a number, the more the better. A distance has to be negated.
        best: Where the best one stands: ``"last"``, nearest to the question, or ``"first"``.
        min_score: Examples that score less are not shown, even where ``k`` of them would have room.

    Raises:
        TemplateError: ``k`` is no whole number from 0 on, ``score`` is no function, ``best`` is something else,
            ``min_score`` is no number.
    """

    k: int
    score: Score
    best: Best = "last"
    min_score: float | None = None

    def __post_init__(self) -> None:
        _check_whole("k", self.k, 0, TemplateError)
        if not callable(self.score):
            raise TemplateError(f"score is a {type(self.score).__name__}; give a function of the values and an example")
        if self.best not in get_args(Best):
            raise TemplateError(f"best is {self.best!r}; give 'last' or 'first'")
        if self.min_score is not None and _number(self.min_score) is None:
            raise TemplateError(f"min_score is {self.min_score!r}; give a number, or None")

    def select(self, offer: ExampleOffer, /) -> Sequence[int]:
        """The indices of the examples with the highest scores.

        Args:
            offer: What there is to choose from.

        Returns:
            At most ``k`` of them.

        Raises:
            TemplateError: A score is no number, or NaN; the message names the example's index.
        """
        scores = [self._score(offer.values, example, at) for at, example in enumerate(offer.examples)]
        good = (at for at, score in enumerate(scores) if self.min_score is None or score >= self.min_score)
        # Sorted in reverse, equal ones still keep their order.
        ranked = sorted(good, key=scores.__getitem__, reverse=True)[: self.k]
        return ranked if self.best == "first" else ranked[::-1]

    def _score(self, values: Mapping[str, object], example: Mapping[str, object], at: int) -> float:
        given = self.score(values, example)
        number = _number(given)
        if number is None:
            shown = repr(given) if isinstance(given, float) else f"a {type(given).__name__}"
            raise TemplateError(f"the score of examples[{at}] is {shown}; a score is a number that is not NaN")
        return number


@dataclass(frozen=True)
class LengthBudget:
    """Shows as many examples as fit: the whole text, with prefix, suffix and separators, is within the limit.

    Examples are left out from the end on: the first that does not fit is the first that is not shown.

    Args:
        max_tokens: The most that the whole text may have.
        count: What counts it: a function of a text, or a token counter. It should not count more text as less.
        among: What chooses the examples, and their order, before; ``None`` takes all, as they stand. Those that it says
            are the best stay longest.
        min_examples: The fewest that must fit.

    Raises:
        BudgetError: ``max_tokens`` is no whole number from 1 on, or ``min_examples`` none from 0 on, or ``count``
            cannot count.
        TemplateError: ``among`` is no selector.
    """

    max_tokens: int
    count: Callable[[str], int] | CountsText
    among: ExampleSelector | None = None
    min_examples: int = 0

    def __post_init__(self) -> None:
        _check_whole("max_tokens", self.max_tokens, 1, BudgetError)
        _check_whole("min_examples", self.min_examples, 0, BudgetError)
        if isinstance(self.count, type) or not callable(getattr(self.count, "count_text", self.count)):
            given = (
                f"the class {self.count.__name__}" if isinstance(self.count, type) else f"a {type(self.count).__name__}"
            )
            raise BudgetError(f"count is {given}; give a function of a text, or a counter with count_text(text)")
        if self.among is not None:
            check_selector(self.among, "among")

    @property
    def best(self) -> Best:
        """Place of the best example."""
        return "last" if getattr(self.among, "best", "first") == "last" else "first"

    def select(self, offer: ExampleOffer, /) -> Sequence[int]:
        """The indices of the examples that fit.

        Args:
            offer: What there is to choose from.

        Returns:
            As many as fit.

        Raises:
            BudgetError: The text does not fit even without any example, or with fewer than ``min_examples``; or what
                counts gives no whole number.
            TemplateError: ``among`` chose what is not there, or something twice.
        """
        order = range(len(offer.texts)) if self.among is None else choose(self.among, offer)
        last = self.best == "last"

        def some(number: int) -> Sequence[int]:
            return order[len(order) - number :] if last else order[:number]

        def cost(number: int) -> int:
            return self._count(offer.whole(some(number)))

        bare = cost(0)
        if bare > self.max_tokens:
            raise BudgetError(
                f"even without an example the text has {bare} tokens, and max_tokens is {self.max_tokens}; "
                "allow more, or shorten prefix, suffix or values"
            )
        fitting = bisect_right(range(len(order) + 1), self.max_tokens, key=cost) - 1
        if fitting < self.min_examples:
            raise BudgetError(self._too_few(fitting, len(order), cost))
        return some(fitting)

    def _too_few(self, fitting: int, there: int, cost: Callable[[int], int]) -> str:
        if fitting == there:
            return f"min_examples is {self.min_examples}, and there are only {there} examples to choose from"
        return (
            f"min_examples is {self.min_examples}, and only {fitting} fit: with {fitting + 1} the text has "
            f"{cost(fitting + 1)} tokens, and max_tokens is {self.max_tokens}"
        )

    def _count(self, text: str) -> int:
        # Distinguished by their methods: a counter may be callable for reasons of its own.
        count = cast("Callable[[str], int]", getattr(self.count, "count_text", self.count))
        given = cast("object", count(text))
        found = _whole(given)
        if found is None:
            raise BudgetError(
                f"count gave a {type(given).__name__}; it must give a whole number, and not have to be awaited"
            )
        return found


def check_selector(given: object, where: str) -> None:
    """Refuse what cannot choose examples.

    Args:
        given: What was given as a selector.
        where: The argument, for the error.

    Raises:
        TemplateError: It has no method ``select``, or is a class.
    """
    if isinstance(given, type):
        raise TemplateError(f"{where} is the class {given.__name__}; give a selector made with it")
    if not callable(getattr(given, "select", None)):
        raise TemplateError(
            f"{where} is a {type(given).__name__}; give a selector: something with a method select(offer) that gives "
            "indices"
        )


def choose(selector: ExampleSelector, offer: ExampleOffer) -> tuple[int, ...]:
    """Return a selector's choice, checked.

    Args:
        selector: The selector.
        offer: What there is to choose from.

    Returns:
        The indices.

    Raises:
        TemplateError: It gave no list of indices, or some that are not there or twice; the message names them.
    """
    who, expected = f"{type(selector).__name__}.select", "it gives a list of indices, as [2, 0]"
    given = cast("object", selector.select(offer))
    kind = type(given).__name__
    if not isinstance(given, Iterable) or isinstance(given, _NO_LISTS):
        raise TemplateError(f"{who} gave a {kind}; {expected}")
    chosen: list[int] = []
    for place, item in enumerate(cast("Iterable[object]", given)):
        found = _whole(item)
        if found is None:
            raise TemplateError(f"{who} gave a {type(item).__name__} at place {place}; {expected}")
        chosen.append(found)
    there = len(offer.texts)
    outside = [at for at in chosen if not 0 <= at < there]
    twice = [at for at, times in Counter(chosen).items() if times > 1]
    faults = [f"{_joined(outside)}, and there {_are(there)}"] if outside else []
    faults += [f"{_joined(twice)} more than once"] if twice else []
    if faults:
        raise TemplateError(f"{who} gave {'; '.join(faults)}")
    return tuple(chosen)


def _check_whole(name: str, given: object, least: int, error: type[LazyPromptError]) -> None:
    number = _whole(given)
    if number is None or number < least:
        raise error(f"{name} is {given!r}; give a whole number from {least} on")


def _whole(given: object) -> int | None:
    """A whole number of any kind, as numpy's, as an int; ``None`` where it is none. A bool is no number here."""
    if isinstance(given, bool):
        return None
    try:
        return index(cast("SupportsIndex", given))
    except TypeError:
        return None


def _number(given: object) -> float | None:
    """A number of any kind as a float; ``None`` where it is none, or NaN."""
    if not isinstance(given, SupportsFloat):
        return None
    try:
        number = float(given)
    except (TypeError, ValueError, OverflowError):
        return None
    return None if isnan(number) else number


def _joined(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def _are(there: int) -> str:
    if not there:
        return "are no examples"
    return f"are examples 0 to {there - 1}" if there > 1 else "is only example 0"


class FewShotTemplate:
    """A text with worked examples before the question.

    Args:
        prefix: What stands first; may have slots.
        examples: A dict for each example, with a value for each slot of ``example_template``. With ``select`` it may
            have others, as a label or a vector, that only the selector looks at; these are kept as they are, no copies.
        example_template: How one example is written.
        suffix: What stands last, with the slots of the question.
        separator: What stands between prefix, examples and suffix.
        select: What decides at each rendering which examples are shown, and in which order; ``None`` shows all.

    Raises:
        SlotError: An example lacks a value or has one too many; the message names its index.
        TemplateError: The examples are no list of dicts, a text is none, or ``select`` is no selector.
    """

    def __init__(
        self,
        prefix: str,
        examples: Sequence[Mapping[str, object]],
        example_template: str,
        suffix: str,
        separator: str = "\n",
        *,
        select: ExampleSelector | None = None,
    ) -> None:
        if not isinstance(cast("object", examples), list | tuple):
            raise TemplateError(f"examples are a list of dicts, not a {type(examples).__name__}")
        if not isinstance(cast("object", separator), str):
            raise TemplateError(f"the separator is text, not a {type(separator).__name__}")
        self._prefix = SlotTemplate(prefix)
        self._suffix = SlotTemplate(suffix)
        self._separator = separator
        template = SlotTemplate(example_template)
        self._texts = tuple(
            _text(template, example, index, more=select is not None) for index, example in enumerate(examples)
        )
        self._select = select
        self._examples: tuple[dict[str, object], ...] = ()
        if select is not None:
            check_selector(select, "select")
            # Only a selector looks at them.
            self._examples = tuple(_copied(example, template.slots) for example in examples)
        self._all_slots: tuple[str, ...] = tuple(dict.fromkeys(self._prefix.slots + self._suffix.slots))
        self._fixed: Fixed = ()
        self.slots = self._all_slots
        """The names of the slots that :meth:`render` fills."""

    def partial(self, /, **values: object) -> Self:
        """Return a copy with values for some slots, which :meth:`render` may then leave out; those of a call win.

        Args:
            **values: A value for each slot, or a function without arguments, which is called once for each rendering.

        Raises:
            SlotError: A name is that of no slot, or a value is None or cannot become text.
        """
        changed = copy(self)
        fixed = fixed_with(self._fixed, values, self._all_slots, value_text)
        changed._fixed = fixed  # noqa: SLF001 - a copy of our own
        changed.slots = tuple(name for name in self._all_slots if name not in dict(fixed))
        return changed

    def render(self, /, **values: object) -> str:
        """The whole text.

        Args:
            **values: A value for each slot of prefix and suffix.

        Returns:
            Prefix, examples and suffix, joined by the separator; an empty one is left out.

        Raises:
            SlotError: A value is missing, or there is no slot for it.
            BudgetError: The text does not fit the limit of a :class:`LengthBudget`.
            TemplateError: The selector chose an example that is not there, or one twice; or it cannot choose.
        """
        offer = self._offer(values)
        return offer.whole(self._chosen(offer))

    def chosen(self, /, **values: object) -> tuple[int, ...]:
        """Return the examples that :meth:`render` shows.

        Args:
            **values: A value for each slot of prefix and suffix.

        Returns:
            Their indices, in the order in which they are shown.

        Raises:
            SlotError: As of :meth:`render`.
            BudgetError: As of :meth:`render`.
            TemplateError: As of :meth:`render`.
        """
        return self._chosen(self._offer(values))

    def _offer(self, values: dict[str, object]) -> ExampleOffer:
        values = {**called(self._fixed, values), **values}
        _check(values, self._all_slots, "the few-shot template")
        texts = {name: value_text(value, name) for name, value in values.items()}
        before, after = ("".join(part.fill(texts)) for part in (self._prefix, self._suffix))
        # A read-only view of a dict cannot be pickled or copied, the dict can.
        examples = tuple(map(MappingProxyType[str, object], self._examples))
        return ExampleOffer(MappingProxyType(values), examples, self._texts, before, after, self._separator)

    def _chosen(self, offer: ExampleOffer) -> tuple[int, ...]:
        return tuple(range(len(offer.texts))) if self._select is None else choose(self._select, offer)


def _text(template: SlotTemplate, example: object, index: int, *, more: bool) -> str:
    """An example as it is written; ``more`` lets it have values that no slot takes."""
    where = f"examples[{index}]"
    if not isinstance(example, Mapping):
        raise TemplateError(f"{where} is a {type(example).__name__}; an example is a dict with a value for each slot")
    values = cast("Mapping[str, object]", example)
    if more:
        values = {name: value for name, value in values.items() if name in template.slots}
    _check(values, template.slots, where)
    return "".join(template.fill({name: value_text(value, name) for name, value in values.items()}))


def _copied(example: Mapping[str, object], slots: tuple[str, ...]) -> dict[str, object]:
    """Return an example that stays as it was written, whatever becomes of the one given."""
    held = {
        name: checked(cast("object", value), name, SlotError)
        for name, value in example.items()
        if name in slots and isinstance(value, Mapping | list | tuple)
    }
    return {**example, **held}


def _check(values: Mapping[str, object], slots: tuple[str, ...], where: str) -> None:
    if fault := misfit(values, slots):
        raise SlotError(f"{where}: {fault}")
    try:
        refuse_none(values)
    except SlotError as error:
        raise SlotError(f"{where}: {error}") from error
