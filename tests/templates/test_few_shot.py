import pickle
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyprompt import FewShotTemplate
from lazyprompt.errors import SlotError, TemplateError
from lazyprompt.templates.few_shot import FirstExamples, MostSimilar

ADDITION = FewShotTemplate(
    "Add, {name}.", [{"q": "1+1", "a": 2}, {"q": "2+2", "a": 4}], "Q: {q}\nA: {a}", "Q: {question}\nA:"
)


def test_prefix_examples_and_suffix_are_joined() -> None:
    assert ADDITION.render(name="Bob", question="3+3") == "Add, Bob.\nQ: 1+1\nA: 2\nQ: 2+2\nA: 4\nQ: 3+3\nA:"
    assert ADDITION.slots == ("name", "question")


@pytest.mark.parametrize(
    ("parts", "values", "shown"),
    [
        (("p", [{"q": "1"}, {"q": "2"}], "{q}", "s", "\n--\n"), {}, "p\n--\n1\n--\n2\n--\ns"),
        # An empty part has no separator.
        (("", [], "{q}", "{x}"), {"x": "only"}, "only"),
        (("", [{"q": ""}, {"q": "1"}], "{q}", ""), {}, "1"),
        # JSON and sets need no escaping, and values of any kind become text.
        (("", [{"q": "set {1;2} {}"}], 'in {"a": {q}}', ""), {}, 'in {"a": set {1;2} {}}'),
        (("", [{"q": {"a": [1, None]}}], "{q}", "{x}"), {"x": ["你"]}, '{"a": [1, null]}\n["你"]'),
        (("", [], "", "{self}"), {"self": "me"}, "me"),
        (("", (MappingProxyType({"q": "1"}),), "{q}", ""), {}, "1"),
    ],
)
def test_parts_of_a_few_shot_template_are_joined(parts: Any, values: dict[str, object], shown: str) -> None:
    assert FewShotTemplate(*parts).render(**values) == shown


def test_a_slot_in_both_prefix_and_suffix_is_listed_once() -> None:
    template = FewShotTemplate("{b} {a}", [], "", "{c} {a}")
    assert template.slots == ("b", "a", "c")
    assert template.render(a="1", b="2", c="3") == "2 1\n3 1"


@pytest.mark.parametrize("select", [None, FirstExamples(1)])
@given(example=st.text(), value=st.text())
def test_braces_in_examples_and_values_are_literal_text(select: FirstExamples | None, example: str, value: str) -> None:
    """Their braces stay, and no value is inserted into an example."""
    template = FewShotTemplate("", [{"q": f"{{x}}{example}"}], "<{q}>", "{x}", "|", select=select)
    assert template.render(x=f"{{q}}{value}") == f"<{{x}}{example}>|{{q}}{value}"


def test_a_template_copies_its_examples_and_can_be_pickled() -> None:
    examples: list[dict[str, object]] = [{"q": ["1"]}]
    template = FewShotTemplate("", examples, "{q}", "{x}")
    examples[0]["q"] = "changed"
    examples.append({"q": "more"})
    assert template.render(x="y") == '["1"]\ny'
    twin = pickle.loads(pickle.dumps(template))  # noqa: S301 - our own bytes
    assert twin.render(x="y") == '["1"]\ny'
    assert twin.slots == ("x",)


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({}, "the few-shot template: no value for 'name', 'question'"),
        ({"name": "Bob"}, "the few-shot template: no value for 'question'"),
        (
            {"name": "Bob", "question": "1", "qestion": "2"},
            r".*no slot named 'qestion' \(did you mean 'question'\?\); the slots are 'name', 'question'",
        ),
        ({"name": "Bob", "question": "\ud800"}, "the value of slot 'question' has a lone surrogate"),
        ({"name": b"Bob", "question": ""}, "the value of slot 'name' must be text, not bytes"),
    ],
)
def test_missing_unknown_and_invalid_slot_values_are_refused(values: dict[str, object], error: str) -> None:
    with pytest.raises(SlotError, match=f"^{error}"):
        ADDITION.render(**values)


def test_a_value_for_a_template_without_slots_is_refused() -> None:
    with pytest.raises(SlotError, match=r"no slot named 'x'; there are no slots$"):
        FewShotTemplate("p", [], "", "s").render(x="1")


@pytest.mark.parametrize(
    ("example", "error"),
    [
        ({"q": "1"}, r"examples\[1\]: no value for 'a'"),
        ({}, r"examples\[1\]: no value for 'q', 'a'"),
        ({"q": "1", "a": "2", "ans": "3"}, r"examples\[1\]: no slot named 'ans'.*; the slots are 'q', 'a'"),
        ({"q": "1", "a": "2", 5: "3"}, r"examples\[1\]: no slot named 5"),
        ({"q": "1", "a": {1}}, "the value of slot 'a' is a set"),
    ],
)
def test_an_example_with_missing_unknown_or_invalid_values_is_refused(example: Any, error: str) -> None:
    with pytest.raises(SlotError, match=f"^{error}"):
        FewShotTemplate("", [{"q": "1", "a": "2"}, example], "{q}{a}", "")


@pytest.mark.parametrize("example", ["text", 5, None, ["q"]])
def test_error_for_an_example_that_is_not_a_dict_names_its_index(example: Any) -> None:
    with pytest.raises(TemplateError, match=rf"^examples\[0\] must be a dict with .*, not {type(example).__name__}"):
        FewShotTemplate("", [example], "{q}", "")


@pytest.mark.parametrize("examples", [None, 5, {"q": "1"}, "text"])
def test_examples_that_are_not_a_list_are_refused(examples: Any) -> None:
    with pytest.raises(TemplateError, match=f"^examples must be a list of dicts, not {type(examples).__name__}$"):
        FewShotTemplate("", examples, "{q}", "")


def test_all_examples_are_chosen_without_a_selector() -> None:
    assert ADDITION.chosen(name="Bob", question="3+3") == (0, 1)
    with pytest.raises(SlotError, match="no value for 'question'"):
        ADDITION.chosen(name="Bob")


def test_values_are_checked_before_the_selector_is_called() -> None:
    def never(values: Mapping[str, object], example: Mapping[str, object]) -> float:
        raise AssertionError((values, example))

    with pytest.raises(SlotError, match="no value for 'x'"):
        FewShotTemplate("", [{"q": "1"}], "{q}", "{x}", select=MostSimilar(1, never)).render()


def test_a_selector_gets_the_examples_as_they_were_at_construction() -> None:
    seen: list[object] = []

    def score(_values: Mapping[str, object], example: Mapping[str, object]) -> float:
        seen.append(example["q"])
        return 0

    tags = ["1"]
    example = {"q": tags}
    template = FewShotTemplate("", [example], "{q}", "{x}", select=MostSimilar(1, score))
    tags.append("2")
    example["q"] = ["3"]
    assert template.render(x="y") == '["1"]\ny'
    assert seen == [["1"]]


def test_an_example_may_have_extra_fields_only_with_a_selector() -> None:
    vectors = [{"q": "a", "vector": [0.0, 1.0]}, {"q": "b", "vector": [1.0, 0.0]}]

    def first_part(_values: Mapping[str, object], example: Mapping[str, Any]) -> float:
        return float(example["vector"][0])

    template = FewShotTemplate("", vectors, "{q}", "{x}", "-", select=MostSimilar(1, first_part))
    assert template.render(x="?") == "b-?"
    with pytest.raises(SlotError, match=r"^examples\[0\]: no slot named 'vector'; the slots are 'q'$"):
        FewShotTemplate("", vectors, "{q}", "{x}", "-")


def test_an_invalid_example_is_refused_even_with_a_selector() -> None:
    with pytest.raises(SlotError, match=r"^examples\[1\]: no value for 'a'; the slots are 'q', 'a'$"):
        FewShotTemplate("", [{"q": "1", "a": "2"}, {"q": "1", "b": "2"}], "{q}{a}", "", select=FirstExamples(1))
    with pytest.raises(TemplateError, match=r"^examples\[0\] must be a dict with .*, not str"):
        FewShotTemplate("", ["text"], "{q}{a}", "", select=FirstExamples(1))  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("select", "error"),
    [
        (2, r"select must be a selector with a method select"),
        (len, "select must be a selector .*, not builtin_function_or_method"),
        (FirstExamples, "select is the class FirstExamples; pass an instance of this class"),
    ],
)
def test_a_select_setting_that_is_not_a_selector_is_refused(select: Any, error: str) -> None:
    with pytest.raises(TemplateError, match=f"^{error}"):
        FewShotTemplate("", [], "{q}", "", select=select)


@pytest.mark.parametrize("place", range(4))
def test_prefix_example_suffix_and_separator_must_be_strings(place: int) -> None:
    texts: Any = ["", "", "", ""]
    texts[place] = 5
    prefix, example, suffix, separator = texts
    with pytest.raises(TemplateError, match=r"must be a string, not int$"):
        FewShotTemplate(prefix, [], example, suffix, separator)
