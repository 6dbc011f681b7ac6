import copy
import pickle
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import FrozenInstanceError, dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyprompt import ApproximateTokenCounter, CharTokenCounter, FewShotTemplate
from lazyprompt.errors import BudgetError, TemplateError
from lazyprompt.templates.few_shot import Best, ExampleOffer, ExampleSelector, FirstExamples, LengthBudget, MostSimilar

LETTERS = [{"q": letter} for letter in "abcde"]


def make_offer(texts: Sequence[str], before: str = "", after: str = "", separator: str = "\n") -> ExampleOffer:
    return ExampleOffer({}, tuple({"q": text} for text in texts), tuple(texts), before, after, separator)


def template(select: ExampleSelector | None, examples: Sequence[Mapping[str, object]] = LETTERS) -> FewShotTemplate:
    return FewShotTemplate("P", list(examples), "{q}", "{x}", " ", select=select)


def words(text: str) -> int:
    return len(text.split())


def by_position(values: Mapping[str, object], example: Mapping[str, object]) -> float:
    """Scores an example by the place of its letter in the question: the earlier, the better."""
    return -str(values["x"]).find(str(example["q"]))


@dataclass(frozen=True)
class Fixed:
    """Selects the indices that it was made with."""

    given: Any

    def select(self, offer: ExampleOffer, /) -> Any:  # noqa: ARG002 - a selector is given one
        return self.given


# FirstExamples


@pytest.mark.parametrize(("k", "shown"), [(0, "P x"), (2, "P a b x"), (5, "P a b c d e x"), (9, "P a b c d e x")])
def test_first_examples_selects_the_first_k_examples(k: int, shown: str) -> None:
    assert template(FirstExamples(k)).render(x="x") == shown


@pytest.mark.parametrize("k", [-1, 1.0, "2", None, True])
@pytest.mark.parametrize("make", [FirstExamples, lambda k: MostSimilar(k, by_position)])
def test_a_k_that_is_not_a_non_negative_integer_is_refused(make: Callable[[Any], object], k: Any) -> None:
    with pytest.raises(TemplateError, match=f"^k must be an integer of at least 0, not {k!r}$"):
        make(k)


# MostSimilar


@pytest.mark.parametrize(("best", "shown"), [("last", "P a c d dca"), ("first", "P d c a dca")])
def test_most_similar_puts_the_best_example_last_or_first(best: Best, shown: str) -> None:
    examples = [{"q": letter} for letter in "acd"]
    assert template(MostSimilar(3, by_position, best=best), examples).render(x="dca") == shown


def test_most_similar_selects_the_k_best_examples() -> None:
    assert template(MostSimilar(2, by_position)).chosen(x="dcabe") == (2, 3)
    assert template(MostSimilar(9, by_position)).chosen(x="dcabe") == (4, 1, 0, 2, 3)
    assert template(MostSimilar(0, by_position)).chosen(x="dcabe") == ()


def test_the_earlier_of_examples_with_equal_scores_ranks_higher() -> None:
    same = MostSimilar(3, lambda _values, _example: 1)
    assert template(same).chosen(x="") == (2, 1, 0)
    assert template(replace(same, best="first")).chosen(x="") == (0, 1, 2)


def test_examples_below_min_score_are_not_selected() -> None:
    """Without a lowest score, a question that is like no example would get k misleading examples."""
    select = MostSimilar(4, lambda values, example: values["x"] == example["q"], min_score=1)
    assert template(select).chosen(x="d") == (3,)
    assert template(select).chosen(x="?") == ()


def test_the_score_function_gets_the_original_values_and_example() -> None:
    seen: list[tuple[dict[str, object], dict[str, object]]] = []

    def score(values: Mapping[str, object], example: Mapping[str, object]) -> float:
        seen.append((dict(values), dict(example)))
        return 0

    FewShotTemplate("", [{"q": {"a": [1]}, "n": 2}], "{q}{n}", "{x}", select=MostSimilar(1, score)).render(x=3)
    assert seen == [({"x": 3}, {"q": {"a": [1]}, "n": 2})]


@pytest.mark.parametrize("number", [1, True, 0.5, np.float32(0.5), np.int64(1), Fraction(1, 2), Decimal("0.5"), 1e308])
def test_a_score_of_any_number_type_is_accepted(number: Any) -> None:
    select = MostSimilar(1, lambda _values, example: number if example["q"] == "d" else 0)
    assert template(select).chosen(x="") == (3,)


def test_infinite_scores_are_sorted_first_and_last() -> None:
    table = {"a": float("inf"), "b": float("-inf"), "c": 0.0}
    select = MostSimilar(5, lambda _values, example: table.get(str(example["q"]), 1.0), best="first")
    assert template(select).chosen(x="") == (0, 3, 4, 2, 1)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (float("nan"), "nan"),
        (None, "NoneType"),
        ("0.5", "str"),
        (1j, "complex"),
        ([0.5], "list"),
        (np.array([1.0, 2.0]), "ndarray"),
        (10**400, "int"),
    ],
)
def test_error_for_an_invalid_score_names_the_example_index(wrong: Any, error: str) -> None:
    """A single NaN, which compares as neither more nor less, would spoil the order of all examples."""
    select = MostSimilar(1, lambda _values, example: wrong if example["q"] == "c" else 1)
    expected = rf"the score of examples\[2\] must be a number other than NaN, not {error}"
    with pytest.raises(TemplateError, match=f"^{expected}$"):
        template(select).render(x="")


def test_an_error_in_the_score_function_is_raised() -> None:
    def broken(_values: Mapping[str, object], _example: Mapping[str, object]) -> float:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        template(MostSimilar(1, broken)).render(x="")


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"score": 5}, r"score must be a function score\(values, example\), not int"),
        ({"best": "nearest"}, "best must be 'last' or 'first', not 'nearest'"),
        ({"min_score": "high"}, "min_score must be a number or None, not 'high'"),
        ({"min_score": float("nan")}, "min_score must be a number or None, not nan"),
    ],
)
def test_invalid_settings_of_most_similar_are_refused(wrong: dict[str, Any], error: str) -> None:
    with pytest.raises(TemplateError, match=f"^{error}$"):
        MostSimilar(**{"k": 1, "score": by_position, **wrong})


# LengthBudget


@pytest.mark.parametrize(
    ("limit", "shown"), [(1, ""), (2, ""), (3, "a"), (4, "a"), (5, "ab"), (10, "abcd"), (11, "abcde"), (99, "abcde")]
)
def test_length_budget_limits_the_whole_rendered_text(limit: int, shown: str) -> None:
    select = LengthBudget(limit, len)
    few_shot = FewShotTemplate("", LETTERS, "{q}", "{x}", ",", select=select)
    text = few_shot.render(x="?")
    assert text == ",".join([*shown, "?"])
    assert len(text) <= limit


@given(
    st.lists(st.text("ab \n", max_size=6), max_size=12),
    st.text("ab \n", max_size=6),
    st.text("ab \n", max_size=6),
    st.sampled_from(["", " ", "\n\n", "ab"]),
    st.integers(1, 40),
    st.sampled_from([len, words, lambda text: len(text) // 3, lambda text: len(text) + 5, lambda text: len(text) ** 2]),
)
def test_length_budget_selects_as_many_examples_as_fit(
    texts: list[str], before: str, after: str, separator: str, limit: int, count: Callable[[str], int]
) -> None:
    """The counts of the pieces need not add up to the count of the whole text."""
    offer = make_offer(texts, before, after, separator)
    costs = [count(offer.whole(range(number))) for number in range(len(texts) + 1)]
    select = LengthBudget(limit, count)
    if costs[0] > limit:
        with pytest.raises(BudgetError, match=f"has {costs[0]} tokens even without examples"):
            select.select(offer)
        return
    shown = select.select(offer)
    assert list(shown) == list(range(len(shown)))
    assert costs[len(shown)] <= limit
    assert all(cost > limit for cost in costs[len(shown) + 1 :])


def test_an_example_that_does_not_fit_is_not_replaced_by_a_later_one() -> None:
    offer = make_offer(["a", "b" * 50, "c"])
    assert list(LengthBudget(20, len).select(offer)) == [0]


def test_a_text_that_exceeds_max_tokens_without_examples_is_refused() -> None:
    few_shot = template(LengthBudget(4, len))
    with pytest.raises(BudgetError) as caught:
        few_shot.render(x="12345")
    assert str(caught.value) == (
        "the text has 7 tokens even without examples, but max_tokens is 4; increase max_tokens, or shorten the prefix, "
        "the suffix or the values"
    )


def test_fewer_examples_than_min_examples_are_refused() -> None:
    with pytest.raises(BudgetError) as caught:
        template(LengthBudget(6, len, min_examples=2)).render(x="x")
    assert str(caught.value) == (
        "min_examples is 2, but only 1 fit: the text with 2 would have 7 tokens, and max_tokens is 6"
    )
    assert template(LengthBudget(7, len, min_examples=2)).chosen(x="x") == (0, 1)
    with pytest.raises(BudgetError, match="^min_examples is 9, but the number of available examples is 5$"):
        template(LengthBudget(99, len, min_examples=9)).render(x="x")


def test_length_budget_keeps_the_best_examples_of_the_inner_selector() -> None:
    """If examples were dropped from the end, the most similar one, which is last, would be dropped first."""
    similar = MostSimilar(3, by_position)
    assert template(similar).chosen(x="dcabe") == (0, 2, 3)
    assert template(LengthBudget(11, len, among=similar)).chosen(x="dcabe") == (2, 3)
    assert template(LengthBudget(11, len, among=replace(similar, best="first"))).chosen(x="dcabe") == (3, 2)
    assert template(LengthBudget(11, len, among=Fixed([4, 0, 1]))).chosen(x="dcabe") == (4, 0)


def test_length_budgets_can_be_nested() -> None:
    inner = LengthBudget(6, words, among=MostSimilar(5, by_position))
    assert template(inner).chosen(x="dcabe") == (1, 0, 2, 3)
    assert template(LengthBudget(9, len, among=inner)).chosen(x="dcabe") == (3,)


def test_invalid_indices_from_the_inner_selector_are_refused() -> None:
    with pytest.raises(TemplateError, match=r"^Fixed\.select returned 7, but there are examples 0 to 4$"):
        template(LengthBudget(99, len, among=Fixed([7]))).render(x="")


class CallableCounter:
    """A token counter that is also callable, for another purpose, and records the counted texts."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, text: str) -> int:
        raise AssertionError(text)

    def count_text(self, text: str) -> int:
        self.asked.append(text)
        return len(text)


@pytest.mark.parametrize("counter", [CharTokenCounter(), CharTokenCounter().count_text, CallableCounter(), len])
def test_length_budget_accepts_a_token_counter_or_a_function(counter: Any) -> None:
    assert template(LengthBudget(7, counter)).chosen(x="x") == (0, 1)


def test_a_non_additive_count_function_is_called_on_few_whole_texts() -> None:
    """A tokenizer that adds tokens to each text makes the sum of many texts too large."""
    asked: list[str] = []

    def count(text: str) -> int:
        asked.append(text)
        return len(text) + 20

    few_shot = template(LengthBudget(1_000, count), [{"q": f"{number:03}"} for number in range(500)])
    assert len(few_shot.chosen(x="x")) == 244
    assert len([text for text in asked if text.startswith("P")]) < 20


@pytest.mark.parametrize("wrong", [1.0, None, "3", True])
def test_a_count_that_is_not_an_integer_is_refused(wrong: Any) -> None:
    with pytest.raises(BudgetError, match=f"^count returned {type(wrong).__name__}; it must return an integer"):
        template(LengthBudget(7, lambda _text: wrong)).render(x="x")


def test_a_count_of_a_numpy_integer_is_accepted() -> None:
    count: Any = lambda text: np.int64(len(text))  # noqa: E731 - its type is wrong on paper
    assert template(LengthBudget(7, count)).chosen(x="x") == (0, 1)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"max_tokens": 0}, "max_tokens must be an integer of at least 1, not 0"),
        ({"max_tokens": 5.0}, "max_tokens must be an integer of at least 1, not 5.0"),
        ({"min_examples": -1}, "min_examples must be an integer of at least 0, not -1"),
        ({"count": 5}, "count must be a function count(text) or a counter with count_text(text), not int"),
        (
            {"count": CharTokenCounter},
            "count must be a function count(text) or a counter with count_text(text), not the class CharTokenCounter",
        ),
    ],
)
def test_invalid_settings_of_length_budget_are_refused(wrong: dict[str, Any], error: str) -> None:
    with pytest.raises(BudgetError, match=f"^{re.escape(error)}$"):
        LengthBudget(**{"max_tokens": 5, "count": len, **wrong})


def test_an_among_setting_that_is_not_a_selector_is_refused() -> None:
    among: Any = 3
    with pytest.raises(TemplateError, match="^among must be a selector with a method select"):
        LengthBudget(5, len, among=among)


# User-defined selectors


def test_a_user_defined_selector_needs_only_a_select_method() -> None:
    @dataclass(frozen=True)
    class EverySecond:
        def select(self, offer: ExampleOffer, /) -> Sequence[int]:
            return range(0, len(offer.texts), 2)

    assert template(EverySecond()).render(x="x") == "P a c e x"


def test_a_selector_gets_the_values_the_example_texts_and_the_whole_text() -> None:
    class Seen:
        offers: ClassVar[list[ExampleOffer]] = []

        def select(self, offer: ExampleOffer, /) -> Sequence[int]:
            self.offers.append(offer)
            return [2, 0]

    few_shot = FewShotTemplate("{y}:", LETTERS, "<{q}>", "{x}", "|", select=Seen())
    text = few_shot.render(x=1, y="{q}")
    (offer,) = Seen.offers
    assert offer.values == {"x": 1, "y": "{q}"}
    assert list(offer.examples) == LETTERS
    assert list(offer.texts) == ["<a>", "<b>", "<c>", "<d>", "<e>"]
    assert (offer.before, offer.after, offer.separator) == ("{q}:", "1", "|")
    assert offer.whole([2, 0]) == text == "{q}:|<c>|<a>|1"


def test_an_example_offer_is_immutable() -> None:
    class Changes:
        def select(self, offer: Any, /) -> Sequence[int]:
            for change in (
                lambda: setattr(offer, "texts", ()),
                lambda: offer.values.update(x=1),
                lambda: offer.examples[0].update(q=1),
                lambda: offer.texts.append("more"),
            ):
                with pytest.raises((FrozenInstanceError, AttributeError)):
                    change()
            return [0]

    assert template(Changes()).chosen(x="") == (0,)


@pytest.mark.parametrize("given", [[2, 0], (2, 0), np.array([2, 0]), iter([2, 0]), [np.int32(2), 0], range(2, -1, -2)])
def test_indices_are_accepted_in_any_sequence_or_iterator(given: Any) -> None:
    assert template(Fixed(given)).chosen(x="") == (2, 0)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ([0, 5, -1], "returned 5, -1, but there are examples 0 to 4"),
        ([1, 0, 1, 0, 2], "returned 1, 0 more than once"),
        ([9, 9], "returned 9, 9, but there are examples 0 to 4; 9 more than once"),
        (None, "returned NoneType; expected a list of indices, such as [2, 0]"),
        (3, "returned int; expected a list of indices, such as [2, 0]"),
        ("01", "returned str; expected a list of indices, such as [2, 0]"),
        (b"\0\1", "returned bytes; expected a list of indices, such as [2, 0]"),
        ({0, 1}, "returned set; expected a list of indices, such as [2, 0]"),
        ({0: 0.5}, "returned dict; expected a list of indices, such as [2, 0]"),
        ([0, {"q": "a"}], "returned dict at index 1; expected a list of indices, such as [2, 0]"),
        ([True, False], "returned bool at index 0; expected a list of indices, such as [2, 0]"),
        ([1.0], "returned float at index 0; expected a list of indices, such as [2, 0]"),
    ],
)
def test_invalid_indices_from_a_selector_are_refused(given: Any, error: str) -> None:
    """A negative index would silently select from the end; a mask would be read as the indices 0 and 1."""
    with pytest.raises(TemplateError, match=f"^{re.escape('Fixed.select ' + error)}$"):
        template(Fixed(given)).render(x="")


@pytest.mark.parametrize(("examples", "there"), [([], "are no examples"), (LETTERS[:1], "is only example 0")])
def test_error_for_an_invalid_index_states_which_examples_there_are(examples: list[dict[str, str]], there: str) -> None:
    with pytest.raises(TemplateError, match=f"^Fixed.select returned 1, but there {there}$"):
        template(Fixed([1]), examples).render(x="")


# Equality, pickling and copying


def test_selectors_with_equal_settings_are_equal_and_immutable() -> None:
    used = LengthBudget(7, len)
    template(used).render(x="x")
    assert used == LengthBudget(7, len) != LengthBudget(8, len)
    assert hash(used) == hash(LengthBudget(7, len))
    assert repr(used) == f"LengthBudget(max_tokens=7, count={len!r}, among=None, min_examples=0)"
    assert MostSimilar(2, by_position) == MostSimilar(2, by_position, "last", None)
    settings: Any = used
    with pytest.raises(FrozenInstanceError):
        settings.max_tokens = 8


@pytest.mark.parametrize(
    "select",
    [
        FirstExamples(2),
        MostSimilar(2, by_position),
        LengthBudget(10, len),
        LengthBudget(12, ApproximateTokenCounter(), MostSimilar(3, by_position), min_examples=1),
    ],
)
def test_a_template_with_a_selector_can_be_pickled_and_copied(select: Any) -> None:
    few_shot = template(select)
    shown = few_shot.render(x="dcabe")
    for twin in (pickle.loads(pickle.dumps(few_shot)), copy.deepcopy(few_shot), copy.copy(few_shot)):  # noqa: S301 - our own bytes
        assert twin.render(x="dcabe") == shown


@pytest.mark.parametrize(
    "select", [FirstExamples(2), MostSimilar(2, by_position), LengthBudget(10, len, MostSimilar(3, by_position), 1)]
)
def test_a_pickled_or_copied_selector_equals_the_original(select: Any) -> None:
    template(select).render(x="x")
    for twin in (pickle.loads(pickle.dumps(select)), copy.deepcopy(select), replace(select)):  # noqa: S301 - our own bytes
        assert twin == select
