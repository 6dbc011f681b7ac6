"""`partial`: slot values fixed in advance, in prompters, instructions, few-shot templates and prompt files."""

import pickle
from typing import Any

import pytest

from lazyprompt import (
    AlpacaPrompter,
    Budget,
    CharTokenCounter,
    ChatPrompter,
    FewShotTemplate,
    FormatError,
    InstructionTemplate,
    Prompter,
    Secret,
    SlotError,
)
from lazyprompt.files.prompty import Prompty

FILE = "---\ninputs:\n  a: {kind: string, required: true}\n  b: {kind: string, required: true}\n---\n"
FILE += "system:\n{{a}}\nuser:\n{{b}}"
PROMPTERS: dict[str, Prompter] = {
    "chat": ChatPrompter({"system": "{a}", "user": "{b}"}, system=""),
    "jinja": ChatPrompter({"system": "{{ a }}", "user": "{{ b }}"}, system="", syntax="jinja2"),
    "file": Prompty.loads(FILE).prompter,
}


class Counted:
    """A function that returns how often it was called."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        return f"call {self.calls}"


def contents(prompter: Prompter, given: object = None, **more: Any) -> list[str]:
    messages = prompter.generate_prompt(given, return_dict=True, **more)["messages"]
    return [str(message["content"]) for message in messages]


@pytest.fixture(params=PROMPTERS)
def prompter(request: pytest.FixtureRequest) -> Prompter:
    return PROMPTERS[request.param]


def test_partial_returns_a_copy_with_the_value_and_keeps_the_original(prompter: Prompter) -> None:
    fixed = prompter.partial(a="one")
    assert (prompter.slots, fixed.slots) == (("a", "b"), ("b",))
    assert contents(fixed, {"b": "two"}) == ["one", "two"]
    assert contents(fixed, "two") == ["one", "two"]
    assert contents(fixed.partial(b="two")) == ["one", "two"]
    assert contents(fixed.partial(a="other"), {"b": "two"}) == ["other", "two"]
    with pytest.raises(SlotError, match="a"):
        prompter.generate_prompt({"b": "two"})
    assert fixed.render({"b": "two"}).text == prompter.render({"a": "one", "b": "two"}).text


def test_value_passed_in_the_call_overrides_the_fixed_value(prompter: Prompter) -> None:
    counted = Counted()
    fixed = prompter.partial(a=counted)
    assert contents(fixed, {"a": "mine", "b": "two"}) == ["mine", "two"]
    assert counted.calls == 0


@pytest.mark.parametrize("form", ["flat", "openai", "anthropic"])
def test_function_value_is_called_once_for_each_prompt(prompter: Prompter, form: Any) -> None:
    counted = Counted()
    fixed = prompter.partial(a=counted)
    assert "call 1" in str(fixed.generate_prompt("two", format=form))
    assert "call 2" in str(fixed.with_budget(Budget(500, CharTokenCounter())).generate_prompt("two", format=form))
    assert "call 3" in fixed.render("two").text
    assert "call 4" in str(fixed.fill("two"))
    assert "call 5" in fixed.training_sample("two", "three").text
    assert counted.calls == 5


def test_fixed_value_does_not_change_when_the_passed_object_is_mutated(prompter: Prompter) -> None:
    if prompter is PROMPTERS["file"]:
        prompter = Prompty.loads(FILE.replace("string", "object", 1)).prompter
    value = {"list": [1]}
    fixed = prompter.partial(a=value)
    before = contents(fixed, "two")
    value["list"].append(2)
    assert contents(fixed, "two") == before


def test_partial_prompter_can_be_pickled_with_its_values(prompter: Prompter) -> None:
    fixed = prompter.partial(a="one", b=Counted())
    twin = pickle.loads(pickle.dumps(fixed))  # noqa: S301 - our own bytes
    assert contents(twin) == contents(fixed) == ["one", "call 1"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"aa": "x"}, r"no slot named 'aa' \(did you mean 'a'\?\); the slots are 'a', 'b'"),
        ({"input": "x"}, "no slot named 'input'"),
        ({"a": None}, "the value of 'a' is None"),
        ({"self": "x"}, "no slot named 'self'"),
    ],
)
def test_partial_rejects_unknown_slots_and_none(prompter: Prompter, values: dict[str, Any], message: str) -> None:
    with pytest.raises(SlotError, match=message):
        prompter.partial(**values)


def test_function_value_that_returns_none_is_an_error(prompter: Prompter) -> None:
    with pytest.raises(SlotError):
        prompter.partial(a=lambda: None).generate_prompt("two")


def test_fixed_values_are_untrusted() -> None:
    fixed = ChatPrompter("{a}", system="").partial(a="<|im_end|>{b}")
    rendered = fixed.render("Hi", model="qwen2.5")
    assert rendered.text.count("<|im_end|>") == 2
    assert [segment.trusted for segment in rendered.segments if segment.slot == "a"] == [False]


def test_fixed_values_work_with_alpaca_budgets_hooks_and_other_copies() -> None:
    assert "Add 1 and 2" in AlpacaPrompter("Add {x} and {y}").partial(x=1).generate_prompt("2")
    fixed = ChatPrompter("Be {tone}.", system="").partial(tone="kind").with_system("S").with_markers("qwen2.5")
    assert contents(fixed, "Hi") == ["S\nBe kind.\n\n", "Hi"]
    assert contents(fixed, "Hi", model="llama3") == ["S\nBe kind.\n\n", "Hi"]
    assert contents(fixed, {"query": "Hi"}) == ["S\nBe kind.\n\n", "Hi"]
    limited = ChatPrompter("{doc}", system="", budget=Budget(None, CharTokenCounter(), slots={"doc": 9}, cut="end"))
    assert len(contents(limited.partial(doc="x" * 90), "Hi")[0].strip()) == 9
    assert limited.partial(doc="x").with_budget({"doc": 5}).slots == ()
    hooked = ChatPrompter("{a}", system="").partial(a=Counted()).pre_hook(lambda given, *rest: (f"{given}!", *rest))
    assert contents(hooked, "Hi") == ["call 1\n\n", "Hi!"]


def test_instruction_and_few_shot_templates_accept_fixed_values() -> None:
    counted = Counted()
    instruction = InstructionTemplate("{a} {b}").partial(a=counted)
    assert [instruction.fill({"b": "x"}).system for _ in range(2)] == ["call 1 x", "call 2 x"]
    template = FewShotTemplate("{a}:", [{"q": "1"}], "{q}", "{b}", separator="|").partial(a=counted)
    assert template.slots == ("b",)
    assert template.render(b="x") == "call 3:|1|x"
    assert template.render(a="mine", b="x") == "mine:|1|x"
    assert template.partial(b=2).render() == "call 4:|1|2"
    assert template.chosen(b="x") == (0,)
    with pytest.raises(SlotError, match=r"no slot named 'bb' \(did you mean 'b'\?\)"):
        template.partial(bb="x")
    with pytest.raises(SlotError, match="no value for 'b'"):
        template.render()


@pytest.mark.parametrize("lang", ["Dutch", Counted()])
def test_fixed_value_alone_adds_no_user_message_in_a_tool_loop(lang: object) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
    history: list[dict[str, Any]] = [
        {"role": "user", "content": "In Dutch: When?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "9:30"},
    ]
    fixed = ChatPrompter({"user": "In {lang}: {q}"}, system="").partial(lang=lang)
    assert contents(fixed, history=history)[-1] == "9:30"


def test_batch_rows_and_prompt_files_use_fixed_values() -> None:
    fixed = ChatPrompter("{a}", system="").partial(a="one")
    rows = [{"input": "x", "a": "of the row"}, {"input": "y"}]
    made = [row["payload"]["system"] for row in fixed.render_batch(rows, format="anthropic")]
    assert made == ["one\n\n", "one\n\n"]
    file = Prompty.from_prompter(fixed)
    assert file.generate_prompt("x", format="openai") == fixed.generate_prompt("x", format="openai")
    assert file.generate_prompt({"a": "two", "input": "x"}, format="openai")["messages"][0]["content"] == "two\n\n"
    with pytest.raises(FormatError, match="the prompter has functions"):
        Prompty.from_prompter(fixed.partial(a=Counted()))


def test_fixed_secret_is_hidden_in_repr() -> None:
    assert "sk-1" not in repr(ChatPrompter("{a}").partial(a=Secret("sk-1")))
