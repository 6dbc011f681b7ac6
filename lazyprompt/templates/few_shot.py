"""Templates for few-shot prompts: a prefix, worked examples and a suffix.

Examples are data, so braces in their values are not parsed as slots. A selector chooses and orders the examples for
each rendering.
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
from typing import (
    TYPE_CHECKING,
    Literal,
    Protocol,
    Self,
    SupportsFloat,
    SupportsIndex,
    TypeAlias,
    TypeGuard,
    cast,
    get_args,
)

from lazyprompt._base.frozen import read_only
from lazyprompt._base.json import checked, is_mapping, is_sequence, is_text
from lazyprompt.errors import BudgetError, LazyPromptError, SlotError, TemplateError
from lazyprompt.templates.instruction import Fixed, called, fixed_with, refuse_none
from lazyprompt.templates.slots import SlotTemplate, misfit, value_text

if TYPE_CHECKING:
    from lazyprompt.messages.prompt import CountsText

Best: TypeAlias = Literal["first", "last"]
"""The position of the best example."""

Score: TypeAlias = "Callable[[Mapping[str, object], Mapping[str, object]], SupportsFloat]"
"""A function that rates how well an example matches the values of a rendering; a higher result is better."""

# Iterable types that a selector can't return, because they are unordered or can't contain indices.
_NO_LISTS = (str, bytes, Mapping, set, frozenset)


@read_only
@dataclass(frozen=True, slots=True)
class ExampleOffer:
    """The read-only data from which a selector chooses the examples for one rendering.

    Attributes:
        values: The slot values passed to :meth:`FewShotTemplate.render`.
        examples: The examples, including values that fill no slot. Slot values that are dicts or lists are copied and
            contain only JSON.
        texts: The rendered text of each example.
        before: The filled prefix.
        after: The filled suffix.
        separator: The separator between prefix, examples and suffix.
    """

    values: Mapping[str, object]
    examples: Sequence[Mapping[str, object]]
    texts: Sequence[str]
    before: str
    after: str
    separator: str

    def whole(self, chosen: Iterable[int]) -> str:
        """Return the complete few-shot text with only the chosen examples, as :meth:`FewShotTemplate.render` does.

        Args:
            chosen: The indices of the chosen examples, in order.
        """
        pieces = (self.before, *(self.texts[at] for at in chosen), self.after)
        return self.separator.join(piece for piece in pieces if piece)


class ExampleSelector(Protocol):
    """The interface for example selectors. For equal offers, a selector should always return the same indices.

    A selector may define an attribute ``best``, which states where the selector's result contains the best example:
    ``"first"`` (the default) or ``"last"``. A :class:`LengthBudget` drops examples from the other end of the result, so
    that the best example stays.
    """

    def select(self, offer: ExampleOffer, /) -> Sequence[int]:
        """Return the indices of the examples to use, in order and without duplicates."""
        ...


@dataclass(frozen=True)
class FirstExamples:
    """A selector that chooses the first examples.

    Args:
        k: The maximum number of examples.

    Raises:
        TemplateError: ``k`` is not a non-negative integer.
    """

    k: int

    def __post_init__(self) -> None:
        _check_whole("k", self.k, 0, TemplateError)

    def select(self, offer: ExampleOffer, /) -> Sequence[int]:
        """Return the indices of the first ``k`` examples."""
        return range(len(offer.texts))[: self.k]


@dataclass(frozen=True)
class MostSimilar:
    """A selector that chooses the examples that best match the question.

    If two examples match equally well, the earlier example is preferred.

    Args:
        k: The maximum number of examples.
        score: A function ``score(values, example)`` that rates how well an example matches the given values.
            A higher number is a better match, so negate distances.
        best: The position of the best example: ``"last"``, which is next to the question, or ``"first"``.
        min_score: The minimum score. Examples with a lower score are dropped, even if fewer than ``k`` remain.

    Raises:
        TemplateError: ``k`` is not a non-negative integer, ``score`` is not a function, ``best`` is invalid, or
            ``min_score`` is not a number.
    """

    k: int
    score: Score
    best: Best = "last"
    min_score: float | None = None

    def __post_init__(self) -> None:
        _check_whole("k", self.k, 0, TemplateError)
        if not callable(self.score):
            raise TemplateError(f"score must be a function score(values, example), not {type(self.score).__name__}")
        if self.best not in get_args(Best):
            raise TemplateError(f"best must be 'last' or 'first', not {self.best!r}")
        if self.min_score is not None and _number(self.min_score) is None:
            raise TemplateError(f"min_score must be a number or None, not {self.min_score!r}")

    def select(self, offer: ExampleOffer, /) -> Sequence[int]:
        """Return the indices of up to ``k`` examples with the highest scores.

        Args:
            offer: The examples to choose from.

        Raises:
            TemplateError: A score is NaN or not a number; the error includes the example's index.
        """
        scores = [self._score(offer.values, example, at) for at, example in enumerate(offer.examples)]
        good = (at for at, score in enumerate(scores) if self.min_score is None or score >= self.min_score)
        # A reverse sort is stable, so the first of two examples with equal scores stays first.
        ranked = sorted(good, key=scores.__getitem__, reverse=True)[: self.k]
        return ranked if self.best == "first" else ranked[::-1]

    def _score(self, values: Mapping[str, object], example: Mapping[str, object], at: int) -> float:
        given = self.score(values, example)
        number = _number(given)
        if number is None:
            shown = repr(given) if isinstance(given, float) else type(given).__name__
            raise TemplateError(f"the score of examples[{at}] must be a number other than NaN, not {shown}")
        return number


@dataclass(frozen=True)
class LengthBudget:
    """A selector that chooses as many examples as fit a token limit.

    The limit applies to the complete few-shot text, including the prefix, the suffix and the separators. The first
    example that exceeds the limit and all examples after it are dropped.

    Args:
        max_tokens: The maximum number of tokens in the complete few-shot text.
        count: A token counter, or a function that returns the number of tokens in a text. The number must not decrease
            when text is added.
        among: A selector that first chooses and orders the examples; None for all examples in their original order. The
            best examples according to this selector are dropped last.
        min_examples: The minimum number of examples that must fit.

    Raises:
        BudgetError: ``max_tokens`` is not a positive integer, ``min_examples`` is not a non-negative integer, or
            ``count`` is not a counter.
        TemplateError: ``among`` is not a selector.
    """

    max_tokens: int
    count: Callable[[str], int] | CountsText
    among: ExampleSelector | None = None
    min_examples: int = 0

    def __post_init__(self) -> None:
        _check_whole("max_tokens", self.max_tokens, 1, BudgetError)
        _check_whole("min_examples", self.min_examples, 0, BudgetError)
        if isinstance(self.count, type) or not callable(getattr(self.count, "count_text", self.count)):
            given = f"the class {self.count.__name__}" if isinstance(self.count, type) else type(self.count).__name__
            raise BudgetError(f"count must be a function count(text) or a counter with count_text(text), not {given}")
        if self.among is not None:
            check_selector(self.among, "among")

    @property
    def best(self) -> Best:
        """The position of the best example: ``"first"`` or ``"last"``."""
        return "last" if getattr(self.among, "best", "first") == "last" else "first"

    def select(self, offer: ExampleOffer, /) -> Sequence[int]:
        """Return the indices of the examples that fit in the token limit.

        Args:
            offer: The examples to choose from.

        Raises:
            BudgetError: The few-shot text exceeds the token limit even without examples, fewer than ``min_examples``
                examples fit, or ``count`` doesn't return an integer.
            TemplateError: ``among`` returned an invalid index or an index more than once.
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
                f"the text has {bare} tokens even without examples, but max_tokens is {self.max_tokens}; "
                "increase max_tokens, or shorten the prefix, the suffix or the values"
            )
        fitting = bisect_right(range(len(order) + 1), self.max_tokens, key=cost) - 1
        if fitting < self.min_examples:
            raise BudgetError(self._too_few(fitting, len(order), cost))
        return some(fitting)

    def _too_few(self, fitting: int, there: int, cost: Callable[[int], int]) -> str:
        if fitting == there:
            return f"min_examples is {self.min_examples}, but the number of available examples is {there}"
        return (
            f"min_examples is {self.min_examples}, but only {fitting} fit: the text with {fitting + 1} would have "
            f"{cost(fitting + 1)} tokens, and max_tokens is {self.max_tokens}"
        )

    def _count(self, text: str) -> int:
        # Use the counter's `count_text` method if there is one, because a counter may also be callable.
        count: object = getattr(self.count, "count_text", self.count)
        given = count(text) if callable(count) else None
        found = _whole(given)
        if found is None:
            raise BudgetError(f"count returned {type(given).__name__}; it must return an integer and must not be async")
        return found


def check_selector(given: object, where: str) -> None:
    """Check that an object is an example selector.

    Args:
        given: The object to check.
        where: The name of the argument, for error messages.

    Raises:
        TemplateError: The object is a class or has no method ``select``.
    """
    if isinstance(given, type):
        raise TemplateError(f"{where} is the class {given.__name__}; pass an instance of this class")
    if not callable(getattr(given, "select", None)):
        raise TemplateError(
            f"{where} must be a selector with a method select(offer) that returns indices, not {type(given).__name__}"
        )


def choose(selector: ExampleSelector, offer: ExampleOffer) -> tuple[int, ...]:
    """Call a selector, and validate the indices that it returns.

    Args:
        selector: The selector to call.
        offer: The examples to choose from.

    Returns:
        The indices of the chosen examples, in order.

    Raises:
        TemplateError: The result is not a list of indices, or contains invalid or duplicate indices; the error lists
            these indices.
    """
    who = f"{type(selector).__name__}.select"
    chosen = _indices(selector.select(offer), who)
    there = len(offer.texts)
    outside = [at for at in chosen if not 0 <= at < there]
    twice = [at for at, times in Counter(chosen).items() if times > 1]
    faults = [f"{_joined(outside)}, but there {_are(there)}"] if outside else []
    faults += [f"{_joined(twice)} more than once"] if twice else []
    if faults:
        raise TemplateError(f"{who} returned {'; '.join(faults)}")
    return tuple(chosen)


def _indices(given: object, who: str) -> list[int]:
    expected = "expected a list of indices, such as [2, 0]"
    if not _is_ordered(given):
        raise TemplateError(f"{who} returned {type(given).__name__}; {expected}")
    chosen: list[int] = []
    for place, item in enumerate(given):
        found = _whole(item)
        if found is None:
            raise TemplateError(f"{who} returned {type(item).__name__} at index {place}; {expected}")
        chosen.append(found)
    return chosen


def _is_ordered(value: object) -> TypeGuard[Iterable[object]]:
    return isinstance(value, Iterable) and not isinstance(value, _NO_LISTS)


def _check_whole(name: str, given: object, least: int, error: type[LazyPromptError]) -> None:
    number = _whole(given)
    if number is None or number < least:
        raise error(f"{name} must be an integer of at least {least}, not {given!r}")


def _whole(given: object) -> int | None:
    """Convert an integer of any type (such as a numpy integer) to ``int``; return None for any other value.

    A bool is not accepted as an integer.
    """
    if isinstance(given, bool) or not isinstance(given, SupportsIndex):
        return None
    try:
        return index(given)
    except TypeError:
        return None


def _number(given: object) -> float | None:
    """Convert a number of any type to ``float``; return None for NaN or a value that is not a number."""
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
    """A template with worked examples before the question.

    Args:
        prefix: The text before the examples; it may contain slots.
        examples: A list of dicts, each with a value for every slot in ``example_template``. With ``select``, a dict may
            contain additional values for the selector, such as a label or a vector, which are not copied.
        example_template: The template that renders each example.
        suffix: The text after the examples, with slots for the question.
        separator: The separator between prefix, examples and suffix.
        select: The selector that chooses and orders the examples for each rendering; None for all examples.

    Raises:
        SlotError: An example lacks a value or contains an unknown name; the error includes the example's index.
        TemplateError: The examples are not a list of dicts, a text is not a string, or ``select`` is not a selector.
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
            raise TemplateError(f"examples must be a list of dicts, not {type(examples).__name__}")
        if not is_text(separator):
            raise TemplateError(f"the separator must be a string, not {type(separator).__name__}")
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
            # Only a selector needs the example values; rendering needs only the example texts.
            self._examples = tuple(_copied(example, template.slots) for example in examples)
        self._all_slots: tuple[str, ...] = tuple(dict.fromkeys(self._prefix.slots + self._suffix.slots))
        self._fixed: Fixed = ()
        self.slots = self._all_slots
        """The names of the slots without fixed values, which :meth:`render` requires."""

    def partial(self, /, **values: object) -> Self:
        """Return a copy with fixed values for some slots; values passed to :meth:`render` override fixed values.

        Args:
            **values: The values by slot name. A value that is a function without arguments is called once for each
                rendering.

        Raises:
            SlotError: A name is not a slot, or a value is None or can't be converted to text.
        """
        changed = copy(self)
        fixed = fixed_with(self._fixed, values, self._all_slots, value_text)
        changed._fixed = fixed  # noqa: SLF001 - a copy made by this method
        changed.slots = tuple(name for name in self._all_slots if name not in dict(fixed))
        return changed

    def render(self, /, **values: object) -> str:
        """Render the template.

        Args:
            **values: A value for each slot in the prefix and the suffix.

        Returns:
            The non-empty texts of the prefix, the examples and the suffix, joined by the separator.

        Raises:
            SlotError: A slot has no value, or a name is not a slot.
            BudgetError: The few-shot text exceeds the token limit of a :class:`LengthBudget`.
            TemplateError: The selector failed, or returned invalid or duplicate indices.
        """
        offer = self._offer(values)
        return offer.whole(self._chosen(offer))

    def chosen(self, /, **values: object) -> tuple[int, ...]:
        """Return the indices of the examples that :meth:`render` uses, in order.

        Args:
            **values: A value for each slot in the prefix and the suffix.

        Raises:
            SlotError: A slot has no value, or a name is not a slot.
            BudgetError: The few-shot text exceeds the token limit of a :class:`LengthBudget`.
            TemplateError: The selector failed, or returned invalid or duplicate indices.
        """
        return self._chosen(self._offer(values))

    def _offer(self, values: dict[str, object]) -> ExampleOffer:
        values = {**called(self._fixed, values), **values}
        _check(values, self._all_slots, "the few-shot template")
        texts = {name: value_text(value, name) for name, value in values.items()}
        before, after = ("".join(part.fill(texts)) for part in (self._prefix, self._suffix))
        # Create the read-only views here, because a template that stores views can't be pickled or copied.
        examples = tuple(map(MappingProxyType[str, object], self._examples))
        return ExampleOffer(MappingProxyType(values), examples, self._texts, before, after, self._separator)

    def _chosen(self, offer: ExampleOffer) -> tuple[int, ...]:
        return tuple(range(len(offer.texts))) if self._select is None else choose(self._select, offer)


def _text(template: SlotTemplate, example: object, index: int, *, more: bool) -> str:
    """Render an example. If ``more`` is True, the example may contain additional values that fill no slot."""
    where = f"examples[{index}]"
    if not is_mapping(example):
        raise TemplateError(f"{where} must be a dict with a value for each slot, not {type(example).__name__}")
    values = {name: value for name, value in example.items() if name in template.slots} if more else example
    _check(values, template.slots, where)
    return "".join(template.fill({name: value_text(value, name) for name, value in values.items()}))


def _copied(example: Mapping[str, object], slots: tuple[str, ...]) -> dict[str, object]:
    """Copy an example, so that later changes to the original have no effect."""
    held = {
        name: checked(value, name, SlotError)
        for name, value in example.items()
        if name in slots and (is_mapping(value) or is_sequence(value))
    }
    return {**example, **held}


def _check(values: Mapping[str, object], slots: tuple[str, ...], where: str) -> None:
    if fault := misfit(values, slots):
        raise SlotError(f"{where}: {fault}")
    try:
        refuse_none(values)
    except SlotError as error:
        raise SlotError(f"{where}: {error}") from error
