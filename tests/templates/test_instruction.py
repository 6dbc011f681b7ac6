from typing import Any

import pytest

from lazyprompt import AlpacaInstructionTemplate, ChatInstructionTemplate, ChatPrompter, InstructionTemplate
from lazyprompt.errors import SlotError, TemplateError
from lazyprompt.templates.instruction import ALPACA_PREAMBLE, EXTRA_KEYS


def test_a_plain_instruction_template_adds_no_text() -> None:
    filled = InstructionTemplate("Do {a}").fill({"a": 1, "input": "x"})
    assert (filled.system, filled.user, filled.input) == ("Do 1", "", "x")
    assert repr(filled) == "Filled(system='Do 1', user='', input='x')"
    assert filled.system_text.slots == ("instruction", "a", "instruction")
    assert filled.user_text.slots == ("user",)


def test_extra_keys_are_rendered_under_headers() -> None:
    block = f"{EXTRA_KEYS}### a:\n1\n\n### b:\n2\n\n"
    values = {"a": 1, "b": 2}
    assert InstructionTemplate("Do", ["a", "b"]).fill(values).system == f"Do\n\n{block}"
    assert ChatInstructionTemplate("Do", ("a", "b")).fill(values).system == f"Do\n{block}\n"
    assert AlpacaInstructionTemplate("Do", ["a", "b"]).fill(values).system == f"{ALPACA_PREAMBLE}Do\n\n{block}"
    assert ChatInstructionTemplate({"system": "S"}, ["a", "b"]).fill(values).user == block
    assert ChatInstructionTemplate({"system": "S", "user": "U"}, ["a", "b"]).fill(values).user == f"U\n\n{block}"
    assert InstructionTemplate("Do", ["a", "b"], "jinja2").fill(values).system == f"Do\n\n{block}"


@pytest.mark.parametrize("instruction", ["X", {"system": "X"}, {"user": "X"}, {"system": "", "user": "X"}])
def test_alpaca_uses_a_single_part_as_the_instruction(instruction: Any) -> None:
    filled = AlpacaInstructionTemplate(instruction).fill()
    assert (filled.system, filled.user) == (f"{ALPACA_PREAMBLE}X\n\n", "")


def test_alpaca_keeps_two_parts_apart() -> None:
    filled = AlpacaInstructionTemplate({"system": "S", "user": "U"}).fill()
    assert (filled.system, filled.user) == (f"{ALPACA_PREAMBLE}S", "U")


def test_slots_are_listed_once_in_order_of_appearance() -> None:
    assert InstructionTemplate({"system": "{b} {a}", "user": "{a} {c}"}).slots == ("b", "a", "c")
    assert InstructionTemplate("{x} {名字}", extra_keys="k").slots == ("x", "名字", "k")


@pytest.mark.parametrize("wrong", [5, ["a"], b"x", {"system": 5}, {"user": None}, {1: "x"}])
def test_an_instruction_that_is_neither_text_nor_two_parts_is_refused(wrong: Any) -> None:
    with pytest.raises(TemplateError, match="instruction"):
        InstructionTemplate(wrong)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["a", "a"], r"extra_keys\[1\] is the duplicate name 'a'"),
        (["a b"], r"extra_keys\[0\] must contain only letters, .*, not 'a b'"),
        ([5], r"extra_keys\[0\] must contain only letters, .*, not 5"),
        (5, "extra_keys must be a name or a list of names, not int"),
        ("", r"extra_keys\[0\] must contain only letters, .*, not ''"),
    ],
)
def test_extra_keys_that_are_not_valid_names_are_refused(keys: Any, message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        InstructionTemplate("x", keys)


@pytest.mark.parametrize("instruction", [None, "", {}, {"system": ""}, {"user": ""}, {"system": "", "user": ""}])
@pytest.mark.parametrize("kind", [InstructionTemplate, ChatInstructionTemplate, AlpacaInstructionTemplate])
def test_extra_keys_without_an_instruction_are_refused(kind: type[InstructionTemplate], instruction: Any) -> None:
    with pytest.raises(TemplateError, match="^extra_keys requires an instruction, but "):
        kind(instruction, "a")
    assert kind({"user": "U"}, "a").slots == ("a",)


@pytest.mark.parametrize(
    ("instruction", "where"), [("\ud800", "the instruction"), ({"user": "\ud800"}, "the user part of the instruction")]
)
@pytest.mark.parametrize("syntax", ["slots", "jinja2"])
def test_error_for_a_lone_surrogate_names_the_instruction_part(instruction: Any, where: str, syntax: Any) -> None:
    with pytest.raises(TemplateError, match=f"^{where} has a lone surrogate"):
        InstructionTemplate(instruction, syntax=syntax)


@pytest.mark.parametrize("syntax", ["slots", "jinja2"])
def test_at_user_level_moves_the_system_text_into_the_user_message(syntax: Any) -> None:
    slot = "{%s}" if syntax == "slots" else "{{ %s }}"
    whole = InstructionTemplate({"system": f"S {slot % 'a'}.", "user": f"U {slot % 'b'}"}, syntax=syntax)
    filled = whole.at_user_level().fill({"a": "1", "b": "2", "input": "I"})
    assert (filled.system, filled.user, filled.input) == ("", "S 1.U 2", "I")
    assert set(filled.system_text.slots) == {"instruction"}
    assert {"user"} <= set(filled.user_text.slots) <= {"user", "a", "b"}
    assert whole.fill({"a": "1", "b": "2"}).system == "S 1."


def test_an_unknown_syntax_is_refused() -> None:
    with pytest.raises(TemplateError, match=r"unknown syntax 'jinja' \(did you mean 'jinja2'\?\)"):
        InstructionTemplate("x", syntax="jinja")  # type: ignore[arg-type]


def test_a_list_value_stays_a_list_in_jinja_and_becomes_json_in_slots() -> None:
    assert (
        InstructionTemplate("{% for x in a %}<{{ x }}>{% endfor %}", syntax="jinja2").fill({"a": [1, 2]}).system
        == "<1><2>"
    )
    assert InstructionTemplate("{a}").fill({"a": [1, 2]}).system == "[1, 2]"


def test_one_error_lists_all_faults_of_an_input() -> None:
    template = InstructionTemplate("{context} {question}")
    with pytest.raises(SlotError) as caught:
        template.fill({"contxt": 1, 5: 2})
    assert str(caught.value) == (
        "no value for 'context', 'question'; no slot named 'contxt' (did you mean 'context'?); no slot named 5; "
        "the slots are 'context', 'question'"
    )
    with pytest.raises(SlotError, match="there are no slots"):
        AlpacaInstructionTemplate("x").fill({"a": 1})


def test_alpaca_refuses_a_text_input_without_a_slot_for_it() -> None:
    with pytest.raises(SlotError, match=r"add a slot such as \{input\} to the instruction, or a name to extra_keys"):
        AlpacaInstructionTemplate("x").fill("y")


def test_repr_of_an_instruction_template_shows_its_slots() -> None:
    assert repr(ChatInstructionTemplate("{a}")) == "ChatInstructionTemplate(slots=('a',))"


def test_error_in_a_function_for_a_slot_value_names_the_slot() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        ChatPrompter("{a}").partial(a=lambda: 1 / 0).generate_prompt("x")
    assert caught.value.__notes__ == ["raised by the function for the value of 'a'"]
