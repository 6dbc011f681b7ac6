import re
from operator import methodcaller
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyprompt import (
    AlpacaPrompter,
    ChatPrompter,
    EmptyPrompter,
    FewShotTemplate,
    InstructionTemplate,
    Prompter,
    PromptTemplate,
    SlotError,
)
from lazyprompt.files.prompty import Prompty
from lazyprompt.templates.instruction import InputForm, name_of_text, read_input

QUESTION = "When do you open?"


@pytest.mark.parametrize(
    ("slots", "user_slots", "takes_text", "values"),
    [
        ((), (), True, {"input": QUESTION}),
        (("input",), (), True, {"input": QUESTION}),
        (("q",), ("q",), True, {"q": QUESTION}),
        (("q",), (), False, {"q": QUESTION}),
    ],
)
def test_a_text_input_gets_the_name_of_its_slot_or_the_name_input(
    slots: tuple[str, ...],
    user_slots: tuple[str, ...],
    takes_text: bool,  # noqa: FBT001 - a case
    values: dict[str, str],
) -> None:
    form = InputForm(slots, frozenset(user_slots), takes_text)
    assert read_input(QUESTION, form) == values
    assert name_of_text(form) == next(iter(values))


@pytest.mark.parametrize(
    ("slots", "user_slots", "takes_text", "message"),
    [
        (("context",), (), True, r"no value for 'context'; .* pass a dict, {'context': ..., 'input': ...}"),
        (
            ("a", "b"),
            ("b",),
            True,
            r"single str, but the template has 2 slots; .*'a', 'b', {'a': ..., 'b': ..., 'input': ...}",
        ),
        (("a", "input"), (), True, r"no value for 'a'; .* {'a': ..., 'input': ...}"),
        (("a", "b"), (), False, r"the template has 2 slots; pass a dict, {'a': ..., 'b': ...}"),
        ((), (), False, "no slot for the input"),
    ],
)
def test_error_for_a_text_input_that_leaves_slots_unfilled_shows_the_dict_to_pass(
    slots: tuple[str, ...],
    user_slots: tuple[str, ...],
    takes_text: bool,  # noqa: FBT001 - a case
    message: str,
) -> None:
    with pytest.raises(SlotError, match=message):
        read_input(QUESTION, InputForm(slots, frozenset(user_slots), takes_text))


def test_a_text_input_is_not_assigned_to_a_slot_that_has_a_value() -> None:
    form = InputForm(("style", "question"), frozenset(("question",)))
    assert name_of_text(form, {"style"}) == "question"
    assert name_of_text(form, {"question"}) == "input"
    assert name_of_text(form) == "input"


@given(value=st.one_of(st.text(), st.integers(), st.lists(st.text())))
def test_input_values_are_not_copied_or_converted(value: Any) -> None:
    assert read_input(value, InputForm(("input",)))["input"] is value
    assert read_input({"a": value}, InputForm(("a",))) == {"a": value}


# Each of these once inserted the question into the system text, and sent an empty user message.
PROMPTERS: dict[str, Prompter] = {
    "chat": ChatPrompter("Answer from: {context}"),
    "extra key": ChatPrompter("Answer.", extra_keys="context"),
    "two parts": ChatPrompter({"system": "Answer from: {context}", "user": "Q: "}),
    "no system turn": ChatPrompter("Answer from: {context}", enable_system=False),
    "own templates": Prompter(InstructionTemplate("From: {context}"), PromptTemplate("{instruction}{input}")),
    "jinja": ChatPrompter("Answer from: {{ context }}", syntax="jinja2"),
    "file": Prompty.loads("system:\nAnswer from: {{context}}\nuser:\nGo on.").prompter,
    "file of one turn": Prompty.loads("Answer from: {{context}}").prompter,
}


@pytest.mark.parametrize(
    "call",
    [
        *(methodcaller(name, QUESTION) for name in ("generate_prompt", "render", "fill")),
        methodcaller("generate_prompt", QUESTION, return_dict=True),
        methodcaller("generate_prompt", QUESTION, format="anthropic"),
        methodcaller("generate_prompt", QUESTION, model="qwen2.5"),
        methodcaller("training_sample", QUESTION, "At nine."),
    ],
)
@pytest.mark.parametrize("prompter", PROMPTERS.values(), ids=PROMPTERS)
def test_a_text_input_never_fills_the_context_slot_of_the_system_text(prompter: Prompter, call: Any) -> None:
    with pytest.raises(SlotError, match=r" a dict, {'context': \.\.\."):
        call(prompter)


@pytest.mark.parametrize(
    ("prompter", "turns"),
    [
        (ChatPrompter("Add: {input}", system=""), ["Add: 1+1\n\n"]),
        (ChatPrompter("Add.", "input", system=""), ["1+1"]),
        (ChatPrompter({"system": "Add.", "user": "Sum of {sum}"}, system=""), ["Add.", "Sum of 1+1"]),
        (AlpacaPrompter("Add: {sum}", system=""), ["Add: 1+1\n\n"]),
        (EmptyPrompter(), ["1+1"]),
        (Prompty.loads("---\ninputs: {tone: kind}\n---\nsystem:\nBe {{tone}}.\nuser:\n{{q}}").prompter, ["", "1+1"]),
        (Prompty.loads("system:\nAdd.\nuser:\n{{ q | trim }}").prompter, ["Add.", "1+1"]),
        (Prompty.loads("system:\nAdd {{ input }}").prompter, ["Add 1+1"]),
    ],
)
def test_a_text_input_fills_the_user_slot_or_the_only_slot(prompter: Prompter, turns: list[str]) -> None:
    made = prompter.generate_prompt("1+1", return_dict=True)["messages"]
    for message, text in zip(made, turns, strict=False):
        assert text in str(message["content"])


@given(key=st.text(min_size=1).filter(lambda key: key != "context"), text=st.text())
def test_a_single_extra_key_of_any_name_is_the_user_text(key: str, text: str) -> None:
    values = {"context": "We open at nine.", key: text}
    assert read_input(values, InputForm(("context",))) == {"context": "We open at nine.", "input": text}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"context": "c", "query": "q", "lang": "nl"}, "no slot named 'query'; no slot named 'lang'; the slots are"),
        ({"context": "c", "top_k": 5}, "no slot named 'top_k'"),
        ({"context": "c", "input": "q", "query": "r"}, "no slot named 'query'"),
        ({"query": "q"}, "no value for 'context'; no slot named 'query'"),
        ({"context": "c", 5: "q"}, "no slot named 5"),
        ({"context": None}, "the value of 'context' is None; pass a value, or '' for empty text"),
        ({"context": "c", "input": None}, "the value of 'input' is None"),
        ({"context": "c", "query": None}, "no slot named 'query'"),
    ],
)
def test_error_for_unknown_or_missing_input_keys_names_them(values: dict[Any, object], message: str) -> None:
    with pytest.raises(SlotError, match=message):
        read_input(values, InputForm(("context",)))


@pytest.mark.parametrize(
    ("values", "slots"),
    [({"a": "1"}, "'a'"), ({"a": "1", "b": "2"}, "'a', 'b'"), ({}, "'a'"), ({"b": "2"}, "'a', 'b'")],
)
def test_an_error_lists_optional_slots_only_if_they_have_values(values: dict[str, str], slots: str) -> None:
    with pytest.raises(SlotError, match=f"no slot named 'mood'; the slots are {slots}(, and|$)"):
        read_input({**values, "mood": 5}, InputForm(("a", "b")), ("b",))


def test_an_extra_key_that_cannot_be_the_user_text_is_refused() -> None:
    with pytest.raises(SlotError, match=r"no slot named 'inptu' \(did you mean 'input'\?\)"):
        ChatPrompter("Be brief.").generate_prompt({"inptu": "q"})
    with pytest.raises(SlotError, match="no slot named 'query'"):
        AlpacaPrompter("From {context}").generate_prompt({"context": "c", "query": "q"})
    with pytest.raises(SlotError, match="no slot named 'query'"):
        ChatPrompter("{context} {input}").generate_prompt({"context": "c", "input": "i", "query": "q"})


@pytest.mark.parametrize("syntax", ["slots", "jinja2"])
def test_a_lazyllm_rag_prompter_accepts_the_question_under_another_key(syntax: Any) -> None:
    # The key "query", which LazyLLM's examples use, was refused as an unknown slot.
    prompter = ChatPrompter("Answer from the context.", extro_keys=["context_str"], system="", syntax=syntax)
    values = {"context_str": "We open at nine.", "query": QUESTION}
    made = prompter.generate_prompt(values, [["Hi", "Hello"]], return_dict=True)["messages"]
    assert made[-1] == {"role": "user", "content": QUESTION}
    assert prompter.fill(values).input == QUESTION
    assert prompter.training_sample(values, "At nine.").messages[-2]["content"] == QUESTION


@pytest.mark.parametrize("syntax", ["slots", "jinja2"])
def test_a_slot_value_of_none_is_refused_and_an_empty_text_is_accepted(syntax: Any) -> None:
    # The prompt contained the text "None".
    prompter = ChatPrompter("" + ("{{ a }}!" if syntax == "jinja2" else "{a}!"), syntax=syntax, system="")
    for ask in (prompter.generate_prompt, prompter.render, prompter.fill):
        with pytest.raises(SlotError, match="the value of 'a' is None"):
            ask({"a": None})
    assert prompter.fill({"a": ""}).instruction.parts[0] in ("", "!")
    assert str(prompter.fill({"a": "", "input": ""}).instruction).strip() == "!"
    with pytest.raises(SlotError, match="the few-shot template: the value of 'q' is None"):
        FewShotTemplate("", [], "", "{q}").render(q=None)
    with pytest.raises(SlotError, match=r"examples\[0\]: the value of 'q' is None"):
        FewShotTemplate("", [{"q": None}], "{q}", "")


@pytest.mark.parametrize("values", [{"name": "Ann"}, {"name": "Ann", "input": "Hi"}, {"name": "Ann", "city": "Rome"}])
@pytest.mark.parametrize("instruction", ["Greet {{name}}.", {"user": "Greet {{name}} in {city}."}])
def test_error_for_a_key_in_double_braces_says_they_are_literal_text(instruction: Any, values: dict[str, str]) -> None:
    """Users who wrote slots as in Jinja or Mustache got an error that did not mention the braces."""
    hint = r"{{name}} is the literal text {name}, whereas {name} is a slot"
    with pytest.raises(SlotError, match=re.escape(hint)):
        ChatPrompter(instruction).generate_prompt(values)


@pytest.mark.parametrize("make", [ChatPrompter, lambda text, **kw: ChatPrompter.from_messages([("user", text)], **kw)])
def test_error_for_an_unknown_slot_in_jinja_has_no_hint_about_double_braces(make: Any) -> None:
    text = "{{ a }}{% raw %}{{name}}{% endraw %}"
    with pytest.raises(SlotError, match="no slot named 'name'; the slots are 'a'(, and .*input.)?$") as caught:
        make(text, syntax="jinja2").generate_prompt({"name": "Ann"})
    assert "whereas" not in str(caught.value)


@pytest.mark.parametrize(
    "make", [ChatPrompter, AlpacaPrompter, lambda text: ChatPrompter.from_messages([("user", text)])]
)
@pytest.mark.parametrize(
    ("text", "values", "names"),
    [
        (r"Solve \frac{a}{b} for {x}.", {"x": "1"}, "{{a}}, {{b}}"),
        (r"Solve \sqrt[3]{a} for {x}.", {"x": "1"}, "{{a}}"),
        ("Sum x^{n} + y_{i}.", {}, "{{n}}, {{i}}"),
        (r"Match \d{n} and [a-z]{m}.", "abc", "{{n}}, {{m}}"),
        ("Match (ab){n}.", {}, "{{n}}"),
        (r"Say {city}, user_{id}, [{b}] and **{c}**.", {}, ""),
        (r"Say {city} and \frac{{a}}{{b}}.", {}, ""),
    ],
)
def test_error_for_a_missing_slot_in_latex_or_a_regex_shows_how_to_escape_the_braces(
    text: str, values: object, names: str, make: Any
) -> None:
    with pytest.raises(SlotError) as caught:
        make(text).generate_prompt(values)
    hint = f"; if they are part of LaTeX or a regular expression, write {names}"
    assert str(caught.value).endswith(hint) if names else "LaTeX" not in str(caught.value)
