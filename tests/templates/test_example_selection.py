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


def by_worth(values: Mapping[str, object], example: Mapping[str, object]) -> float:
    """Scores an example by the place of its letter in what is asked: the earlier, the better."""
    return -str(values["x"]).find(str(example["q"]))


@dataclass(frozen=True)
class Gives:
    """Chooses what it was made with."""

    given: Any

    def select(self, offer: ExampleOffer, /) -> Any:  # noqa: ARG002 - a selector is given one
        return self.given


# The first ones


@pytest.mark.parametrize(("k", "shown"), [(0, "P x"), (2, "P a b x"), (5, "P a b c d e x"), (9, "P a b c d e x")])
def test_the_first_examples(k: int, shown: str) -> None:
    assert template(FirstExamples(k)).render(x="x") == shown


@pytest.mark.parametrize("k", [-1, 1.0, "2", None, True])
@pytest.mark.parametrize("make", [FirstExamples, lambda k: MostSimilar(k, by_worth)])
def test_a_number_of_examples_is_a_whole_number(make: Callable[[Any], object], k: Any) -> None:
    with pytest.raises(TemplateError, match=f"^k must be an integer of at least 0, not {k!r}$"):
        make(k)


# The most similar ones


@pytest.mark.parametrize(("best", "shown"), [("last", "P a c d dca"), ("first", "P d c a dca")])
def test_the_best_stands_nearest_to_the_question_or_first(best: Best, shown: str) -> None:
    examples = [{"q": letter} for letter in "acd"]
    assert template(MostSimilar(3, by_worth, best=best), examples).render(x="dca") == shown


def test_only_the_best_are_shown() -> None:
    assert template(MostSimilar(2, by_worth)).chosen(x="dcabe") == (2, 3)
    assert template(MostSimilar(9, by_worth)).chosen(x="dcabe") == (4, 1, 0, 2, 3)
    assert template(MostSimilar(0, by_worth)).chosen(x="dcabe") == ()


def test_of_equal_ones_the_earlier_is_the_better() -> None:
    same = MostSimilar(3, lambda _values, _example: 1)
    assert template(same).chosen(x="") == (2, 1, 0)
    assert template(replace(same, best="first")).chosen(x="") == (0, 1, 2)


def test_what_scores_too_little_is_not_shown() -> None:
    """Where k is all there is to say, a question that is like no example is shown k examples that mislead."""
    select = MostSimilar(4, lambda values, example: values["x"] == example["q"], min_score=1)
    assert template(select).chosen(x="d") == (3,)
    assert template(select).chosen(x="?") == ()


def test_the_score_is_given_the_values_and_the_example_as_they_are() -> None:
    seen: list[tuple[dict[str, object], dict[str, object]]] = []

    def score(values: Mapping[str, object], example: Mapping[str, object]) -> float:
        seen.append((dict(values), dict(example)))
        return 0

    FewShotTemplate("", [{"q": {"a": [1]}, "n": 2}], "{q}{n}", "{x}", select=MostSimilar(1, score)).render(x=3)
    assert seen == [({"x": 3}, {"q": {"a": [1]}, "n": 2})]


@pytest.mark.parametrize("number", [1, True, 0.5, np.float32(0.5), np.int64(1), Fraction(1, 2), Decimal("0.5"), 1e308])
def test_any_number_is_a_score(number: Any) -> None:
    select = MostSimilar(1, lambda _values, example: number if example["q"] == "d" else 0)
    assert template(select).chosen(x="") == (3,)


def test_infinite_scores_have_their_place() -> None:
    table = {"a": float("inf"), "b": float("-inf"), "c": 0.0}
    select = MostSimilar(5, lambda _values, example: table.get(str(example["q"]), 1.0), best="first")
    assert template(select).chosen(x="") == (0, 3, 4, 2, 1)


@pytest.mark.parametrize(
    ("wrong", "said"),
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
def test_what_is_no_score_is_refused_with_the_examples_index(wrong: Any, said: str) -> None:
    """NaN compares as neither more nor less, so that one of them spoils the order of all."""
    select = MostSimilar(1, lambda _values, example: wrong if example["q"] == "c" else 1)
    expected = rf"the score of examples\[2\] must be a number other than NaN, not {said}"
    with pytest.raises(TemplateError, match=f"^{expected}$"):
        template(select).render(x="")


def test_what_a_score_raises_is_raised() -> None:
    def broken(_values: Mapping[str, object], _example: Mapping[str, object]) -> float:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        template(MostSimilar(1, broken)).render(x="")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"score": 5}, r"score must be a function score\(values, example\), not int"),
        ({"best": "nearest"}, "best must be 'last' or 'first', not 'nearest'"),
        ({"min_score": "high"}, "min_score must be a number or None, not 'high'"),
        ({"min_score": float("nan")}, "min_score must be a number or None, not nan"),
    ],
)
def test_settings_of_similarity_that_are_wrong_are_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(TemplateError, match=f"^{said}$"):
        MostSimilar(**{"k": 1, "score": by_worth, **wrong})


# As many as fit


@pytest.mark.parametrize(
    ("limit", "shown"), [(1, ""), (2, ""), (3, "a"), (4, "a"), (5, "ab"), (10, "abcd"), (11, "abcde"), (99, "abcde")]
)
def test_the_whole_text_fits(limit: int, shown: str) -> None:
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
def test_as_many_fit_as_can(
    texts: list[str], before: str, after: str, separator: str, limit: int, count: Callable[[str], int]
) -> None:
    """Whether tokens of pieces add up to those of the whole or not: they seldom do."""
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


def test_no_later_example_takes_the_place_of_one_that_is_too_long() -> None:
    offer = make_offer(["a", "b" * 50, "c"])
    assert list(LengthBudget(20, len).select(offer)) == [0]


def test_a_text_that_does_not_fit_without_examples_is_refused() -> None:
    few_shot = template(LengthBudget(4, len))
    with pytest.raises(BudgetError) as caught:
        few_shot.render(x="12345")
    assert str(caught.value) == (
        "the text has 7 tokens even without examples, but max_tokens is 4; increase max_tokens, or shorten the prefix, "
        "the suffix or the values"
    )


def test_too_few_examples_can_be_refused() -> None:
    with pytest.raises(BudgetError) as caught:
        template(LengthBudget(6, len, min_examples=2)).render(x="x")
    assert str(caught.value) == (
        "min_examples is 2, but only 1 fit: the text with 2 would have 7 tokens, and max_tokens is 6"
    )
    assert template(LengthBudget(7, len, min_examples=2)).chosen(x="x") == (0, 1)
    with pytest.raises(BudgetError, match="^min_examples is 9, but the number of available examples is 5$"):
        template(LengthBudget(99, len, min_examples=9)).render(x="x")


def test_the_best_of_a_choice_stay_longest() -> None:
    """Left out from the end on, the most similar example, which stands last, would be the first to go."""
    similar = MostSimilar(3, by_worth)
    assert template(similar).chosen(x="dcabe") == (0, 2, 3)
    assert template(LengthBudget(11, len, among=similar)).chosen(x="dcabe") == (2, 3)
    assert template(LengthBudget(11, len, among=replace(similar, best="first"))).chosen(x="dcabe") == (3, 2)
    assert template(LengthBudget(11, len, among=Gives([4, 0, 1]))).chosen(x="dcabe") == (4, 0)


def test_budgets_may_stand_in_each_other() -> None:
    inner = LengthBudget(6, words, among=MostSimilar(5, by_worth))
    assert template(inner).chosen(x="dcabe") == (1, 0, 2, 3)
    assert template(LengthBudget(9, len, among=inner)).chosen(x="dcabe") == (3,)


def test_what_a_budget_chooses_from_is_checked() -> None:
    with pytest.raises(TemplateError, match=r"^Gives\.select returned 7, but there are examples 0 to 4$"):
        template(LengthBudget(99, len, among=Gives([7]))).render(x="")


class Calling:
    """A counter that is callable for reasons of its own, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, text: str) -> int:
        raise AssertionError(text)

    def count_text(self, text: str) -> int:
        self.asked.append(text)
        return len(text)


@pytest.mark.parametrize("counter", [CharTokenCounter(), CharTokenCounter().count_text, Calling(), len])
def test_a_counter_or_a_function_counts(counter: Any) -> None:
    assert template(LengthBudget(7, counter)).chosen(x="x") == (0, 1)


def test_a_count_that_does_not_add_up_takes_few_tries() -> None:
    """A tokenizer that puts a sign before each text makes the sum of many too great."""
    asked: list[str] = []

    def count(text: str) -> int:
        asked.append(text)
        return len(text) + 20

    few_shot = template(LengthBudget(1_000, count), [{"q": f"{number:03}"} for number in range(500)])
    assert len(few_shot.chosen(x="x")) == 244
    assert len([text for text in asked if text.startswith("P")]) < 20


@pytest.mark.parametrize("wrong", [1.0, None, "3", True])
def test_a_count_that_is_no_whole_number_is_refused(wrong: Any) -> None:
    with pytest.raises(BudgetError, match=f"^count returned {type(wrong).__name__}; it must return an integer"):
        template(LengthBudget(7, lambda _text: wrong)).render(x="x")


def test_a_count_may_be_a_number_of_another_library() -> None:
    count: Any = lambda text: np.int64(len(text))  # noqa: E731 - its type is wrong on paper
    assert template(LengthBudget(7, count)).chosen(x="x") == (0, 1)


@pytest.mark.parametrize(
    ("wrong", "said"),
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
def test_settings_of_a_budget_that_are_wrong_are_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(BudgetError, match=f"^{re.escape(said)}$"):
        LengthBudget(**{"max_tokens": 5, "count": len, **wrong})


def test_a_budget_chooses_among_what_a_selector_gives() -> None:
    among: Any = 3
    with pytest.raises(TemplateError, match="^among must be a selector with a method select"):
        LengthBudget(5, len, among=among)


# Selectors of one's own


def test_a_selector_of_ones_own_is_short() -> None:
    @dataclass(frozen=True)
    class EverySecond:
        def select(self, offer: ExampleOffer, /) -> Sequence[int]:
            return range(0, len(offer.texts), 2)

    assert template(EverySecond()).render(x="x") == "P a c e x"


def test_a_selector_sees_texts_and_what_the_whole_would_be() -> None:
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


def test_an_offer_can_not_be_changed() -> None:
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
def test_indices_may_come_in_any_list(given: Any) -> None:
    assert template(Gives(given)).chosen(x="") == (2, 0)


@pytest.mark.parametrize(
    ("given", "said"),
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
def test_a_choice_that_is_none_is_refused(given: Any, said: str) -> None:
    """A negative index would take from the end in silence; a mask would be read as the indices 0 and 1."""
    with pytest.raises(TemplateError, match=f"^{re.escape('Gives.select ' + said)}$"):
        template(Gives(given)).render(x="")


@pytest.mark.parametrize(("examples", "there"), [([], "are no examples"), (LETTERS[:1], "is only example 0")])
def test_a_choice_among_few_is_refused_in_words_that_fit(examples: list[dict[str, str]], there: str) -> None:
    with pytest.raises(TemplateError, match=f"^Gives.select returned 1, but there {there}$"):
        template(Gives([1]), examples).render(x="")


# Values


def test_selectors_are_equal_by_what_they_say_and_keep_it() -> None:
    used = LengthBudget(7, len)
    template(used).render(x="x")
    assert used == LengthBudget(7, len) != LengthBudget(8, len)
    assert hash(used) == hash(LengthBudget(7, len))
    assert repr(used) == f"LengthBudget(max_tokens=7, count={len!r}, among=None, min_examples=0)"
    assert MostSimilar(2, by_worth) == MostSimilar(2, by_worth, "last", None)
    settings: Any = used
    with pytest.raises(FrozenInstanceError):
        settings.max_tokens = 8


@pytest.mark.parametrize(
    "select",
    [
        FirstExamples(2),
        MostSimilar(2, by_worth),
        LengthBudget(10, len),
        LengthBudget(12, ApproximateTokenCounter(), MostSimilar(3, by_worth), min_examples=1),
    ],
)
def test_a_template_with_a_selector_can_be_pickled_and_copied(select: Any) -> None:
    few_shot = template(select)
    shown = few_shot.render(x="dcabe")
    for twin in (pickle.loads(pickle.dumps(few_shot)), copy.deepcopy(few_shot), copy.copy(few_shot)):  # noqa: S301 - our own bytes
        assert twin.render(x="dcabe") == shown


@pytest.mark.parametrize(
    "select", [FirstExamples(2), MostSimilar(2, by_worth), LengthBudget(10, len, MostSimilar(3, by_worth), 1)]
)
def test_a_selector_is_a_value(select: Any) -> None:
    template(select).render(x="x")
    for twin in (pickle.loads(pickle.dumps(select)), copy.deepcopy(select), replace(select)):  # noqa: S301 - our own bytes
        assert twin == select
