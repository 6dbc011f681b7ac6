import copy
import json
import pickle
from datetime import date
from decimal import Decimal
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lazyprompt import Msg
from lazyprompt._base.json import MAX_INT_BITS, JsonText
from lazyprompt.errors import SlotError, TemplateError
from lazyprompt.templates.slots import SlotTemplate, Value, escape, misfit, unknown_inputs, value_text

# Text with many braces that look like slots.
BRACED = st.lists(st.sampled_from(["{", "}", "{{", "}}", "a", "b1", "नाम", "{a}", "{{a}}", " ", "1", "²", "\n"])).map(
    "".join
)


def filled(template: str, **values: str) -> str:
    return "".join(SlotTemplate(template).fill(values))


@pytest.mark.parametrize(
    ("template", "slots"),
    [
        ("", ()),
        ("no slot", ()),
        ("{a}", ("a",)),
        ("{a}{b}{a}", ("a", "b")),
        ("{b} and {a}", ("b", "a")),
        ("{_x1} {问题} {é}", ("_x1", "问题", "é")),
        ("{नाम} {ชื่อ}", ("नाम", "ชื่อ")),
        ("{{a}} {b}", ("b",)),
        ("{{{a}}}", ()),
        ("{{a} {b}}", ("a", "b")),
        ("{class}", ("class",)),
    ],
)
def test_slots_are_the_identifiers_in_braces_listed_once_in_order(template: str, slots: tuple[str, ...]) -> None:
    assert SlotTemplate(template).slots == slots


@pytest.mark.parametrize(
    "text",
    [
        'Return JSON like {"a": 1, "b": {"c": []}}.',
        r"\frac{a+1}{b^2} and x^{2} and \begin{align*}",
        r"\d{3} [a-z]{2,5} ({0}) {} { } {a b} { a } {a.b} {a!r} {a:>10} {a-b} {1a}",
        "{²} {①} {½}",
        "{{x y}} {{1}} {{}} {{ a }}",
        "{a\n}",
        "}{ {{ }} {{{ }}}",
        "function () { return {}; }",
    ],
)
def test_braces_without_an_identifier_are_literal_text(text: str) -> None:
    template = SlotTemplate(text)
    assert template.slots == ()
    assert template.literals == (text,)
    assert "".join(template.fill({})) == text


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{a}}", "{a}"),
        ("{{{a}}}", "{{a}}"),
        ("{{{{a}}}}", "{{{a}}}"),
        ("{{a} {a}}", "{V V}"),
        ("{{a}}{a}{{a}}", "{a}V{a}"),
        (r"\frac{{a}}{{b}}", r"\frac{a}{b}"),
    ],
)
def test_double_braces_become_single_literal_braces(template: str, expected: str) -> None:
    assert filled(template, a="V") == expected


@given(st.text() | BRACED)
@example("{1} {a} {²}")
def test_escaped_text_has_no_slots_and_renders_unchanged(text: str) -> None:
    template = SlotTemplate(escape(text))
    assert template.slots == ()
    assert "".join(template.fill({})) == text


@given(BRACED, st.text() | BRACED)
def test_slot_syntax_in_a_value_is_not_evaluated(text: str, value: str) -> None:
    template = SlotTemplate(text)
    parts = template.fill(dict.fromkeys(template.slots, value))
    assert tuple(parts[0::2]) == template.literals
    assert set(parts[1::2]) <= {value}
    assert len(parts) == 2 * len(template.literals) - 1


def test_slots_in_values_are_not_filled() -> None:
    assert filled("{a} {b}", a="{b}", b="{a}") == "{b} {a}"
    assert filled("{a}", a="{{a}}") == "{{a}}"
    assert filled("{a}b}", a="{") == "{b}"


def test_odd_parts_of_a_filled_template_are_its_values() -> None:
    template = SlotTemplate("Say {a} to {b}, {a}!", own="user")
    parts = template.fill({"a": "hi", "b": "Bob", "unused": "x"})
    assert list(parts) == ["Say ", "hi", " to ", "Bob", ", ", "hi", "!"]
    assert template.origins(parts) == ("user", "a", "user", "b", "user", "a", "user")
    assert list(SlotTemplate("{a}").fill({"a": "x"})) == ["", "x", ""]
    assert SlotTemplate("{a}").origins([]) == ("instruction", "a", "instruction")


def test_changing_the_filled_parts_does_not_affect_later_fills() -> None:
    template = SlotTemplate("{a}")
    first: Any = template.fill({"a": "1"})
    first[0] = "changed"
    assert "".join(template.fill({"a": "2"})) == "2"


@pytest.mark.parametrize("text", ["", "plain {{a}}", "{a}", "{a} {b}"])
def test_a_template_can_be_pickled_and_copied(text: str) -> None:
    template = SlotTemplate(text, "user")
    values = {"a": "x", "b": "y"}
    for twin in (pickle.loads(pickle.dumps(template)), copy.deepcopy(template)):  # noqa: S301 - our own bytes
        parts = twin.fill(values)
        assert list(parts) == list(template.fill(values))
        assert twin.origins(parts) == template.origins(parts)
        assert (twin.text, twin.slots, twin.literals) == (template.text, template.slots, template.literals)
    assert not hasattr(template, "__dict__")


@pytest.mark.parametrize("text", [None, 5, b"{a}", ["{a}"]])
def test_a_template_that_is_not_a_string_is_refused(text: Any) -> None:
    with pytest.raises(TemplateError, match=f"^the template must be a string, not {type(text).__name__}$"):
        SlotTemplate(text)


def test_a_template_with_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(TemplateError, match=r"^the template has a lone surrogate \(\\udc00\) at index 4"):
        SlotTemplate("{a} \udc00")


def test_a_long_template_of_braces_is_parsed_in_linear_time() -> None:
    assert SlotTemplate("{" * 200_000).slots == ()
    assert SlotTemplate("{{a" * 100_000).slots == ()


class Tone(StrEnum):
    WARM = "warm"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("你好 {a}", "你好 {a}"),
        (Tone.WARM, "warm"),
        (5, "5"),
        (-1.5, "-1.5"),
        (True, "True"),
        (None, "None"),
        (float("nan"), "nan"),
        (Decimal("1.10"), "1.10"),
        (date(2024, 2, 29), "2024-02-29"),
        (PurePosixPath("a/b"), "a/b"),
    ],
)
def test_a_scalar_value_becomes_its_text(value: object, text: str) -> None:
    written = value_text(value, "a")
    assert (written, type(written)) == (text, str)
    assert SlotTemplate.coerce(value, "a") == text


@pytest.mark.parametrize("value", [{}, [], {"z": 1, "城": ["北京", None, 1.5, True]}, [{"a": {"b": []}}], (1, (2,))])
def test_a_dict_or_list_value_becomes_json_text(value: Any) -> None:
    before = copy.deepcopy(value)
    written = value_text(value, "a")
    assert type(written) is JsonText
    assert written == json.dumps(value, ensure_ascii=False)
    assert value == before
    assert type(SlotTemplate.coerce(value, "a")) is JsonText
    assert type(SlotTemplate("{a}").fill({"a": written})[1]) is JsonText


class Plain:
    pass


class Broken:
    def __str__(self) -> str:
        return "\ud800"


SET = "is a set, whose order differs between processes; pass a sorted list"


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (b"x", "must be text, not bytes; decode the bytes first"),
        (bytearray(b"x"), "must be text, not bytearray; decode the bytes first"),
        *((value, SET) for value in ({"a", "b"}, frozenset("ab"))),
        ("a\ud800", r"has a lone surrogate (\ud800) at index 1, which cannot be encoded; "),
        (Broken(), r"has a lone surrogate (\ud800) at index 0, which cannot be encoded; "),
        ({"k": [1, float("nan")]}, ".k[1] is nan, which is not valid JSON"),
        (1 << MAX_INT_BITS, f"is an integer of {MAX_INT_BITS + 1} bits; the limit is {MAX_INT_BITS} bits"),
        (Plain(), "has type Plain, which can't be converted to text; pass a string, a dict or a list"),
        # The error told a user who passed an image as the input to pass its text.
        (Msg("user", "hi", "user"), "has type Msg, which can't be converted to text; add it to the history"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_error_for_a_value_without_a_text_form_names_its_slot(value: object, error: str) -> None:
    with pytest.raises(SlotError, match="^the value of slot 'a'") as caught:
        value_text(value, "a")
    assert error in str(caught.value)


CITY, NO_X = "; the slots are 'city'", "no slot named 'x'"
TYPO = "no slot named 'ctiy' (did you mean 'city'?)"
NEAR = "no input named 'citi' (did you mean 'city'?)"
ALSO = f"{CITY}, and the user's text is 'input', 'query'"


@pytest.mark.parametrize(
    ("values", "slots", "takes", "error"),
    [
        (["city"], ["city"], (), ""),
        (["city", "input"], ["city"], ("input",), ""),
        ([], ["city", "day"], (), f"no value for 'city', 'day'{CITY}, 'day'"),
        (["x"], [], (), f"{NO_X}; there are no slots"),
        (["x", "y"], ["city"], (), f"no value for 'city'; {NO_X}; no slot named 'y'{CITY}"),
        # A similar name is suggested only from the slots without a value.
        (["ctiy", 5], ["city"], (), f"no value for 'city'; {TYPO}; no slot named 5{CITY}"),
        (["city", "cty"], ["city", "day"], (), f"no value for 'day'; no slot named 'cty'{CITY}, 'day'"),
        (["city", "cty"], ["city"], (), f"no slot named 'cty' (did you mean 'city'?){CITY}"),
        # An unknown value may be the user's text under another name.
        (["city", "inptu"], ["city"], ("input", "query"), f"no slot named 'inptu' (did you mean 'input'?){ALSO}"),
        (["city", "x", "query"], ["city"], ("input", "query"), f"{NO_X}{CITY}"),
        (["x"], ["city"], ("input",), f"no value for 'city'; {NO_X}{CITY}"),
    ],
)
def test_missing_and_unknown_values_are_reported_in_one_message(
    values: list[object], slots: list[str], takes: tuple[str, ...], error: str
) -> None:
    assert misfit(values, slots, takes) == error


@pytest.mark.parametrize(
    ("inputs", "names", "error"),
    [
        (["a"], ["a", "b"], ""),
        ([], [], ""),
        (["x"], [], "no input named 'x'; available inputs: none"),
        (["a", "citi", "x"], ["a", "city"], f"{NEAR}; no input named 'x'; available inputs: 'a', 'city'"),
    ],
)
def test_error_for_unknown_inputs_lists_the_available_inputs(inputs: list[str], names: list[str], error: str) -> None:
    assert unknown_inputs(inputs, names) == error


@pytest.mark.parametrize("template", ["plain", "a {x} b {y}"])
def test_the_origin_of_a_part_is_its_slot_or_the_template(template: str) -> None:
    made = SlotTemplate(template, "system")
    text = made.filled({"x": "1", "y": "2"})
    assert "".join(text.parts) == template.format(x="1", y="2")
    assert text.slots == made.origins(text.parts)
    assert text.slots == (("system",) if template == "plain" else ("system", "x", "system", "y", "system"))


def test_the_filled_text_of_a_template_without_slots_is_reused() -> None:
    made = SlotTemplate("plain")
    assert made.filled({}) is made.filled({"x": "1"})


def test_the_root_of_a_value_is_the_first_part_of_its_source() -> None:
    assert (Value("a", "user.name").root, Value("a", "user").root, Value("a").root) == ("user", "user", "")
    assert str(Value("a", "user")) == "a"
