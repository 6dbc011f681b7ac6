"""The export formats of trainers, each compared with a dict written by hand after its documentation."""

import json
from typing import Any

import pytest

from lazyprompt import AlpacaPrompter, ChatPrompter, FormatError, Msg
from lazyprompt.training.samples import TrainingSample
from training.helpers import weather_call as call

WEATHER: dict[str, Any] = {
    "name": "weather",
    "description": "Says it.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
TOOLS = [{"type": "function", "function": WEATHER}]
PROMPTER = ChatPrompter("Be {style}.", system="").with_markers("qwen3-instruct-2507")
GIVEN = {"style": "kind", "input": "And now?"}
PAIRS = [["Hi", "Hello."]]


def result(number: int) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"call_{number}", "name": "weather", "content": "rain"}


CALLS: list[dict[str, Any]] = [
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": None, "tool_calls": [call(1)]},
    result(1),
    {"role": "assistant", "content": "It rains."},
]
USER, ANSWER = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
SYSTEM = {"role": "system", "content": "Be kind.\n\n"}
PROMPT = [
    SYSTEM,
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "And now?"},
]
RESPONSE = {"role": "assistant", "content": "Now it rains."}


def sample(train: Any = "all", **more: Any) -> TrainingSample:
    return PROMPTER.training_sample(GIVEN, "Now it rains.", PAIRS, train=train, **more)


def with_calls(train: Any = "all") -> TrainingSample:
    return PROMPTER.training_sample({"style": "kind"}, None, CALLS, TOOLS, train=train)


CALLED = {"name": "weather", "arguments": {"city": "Köln"}}
TRL_CALL = {"role": "assistant", "tool_calls": [{"id": "call_1", "type": "function", "function": CALLED}]}
EXPORTS: dict[str, tuple[TrainingSample, str, object]] = {
    "openai": (sample(), "openai", {"messages": [*PROMPT, RESPONSE]}),
    # Untrained messages get the weight 0.
    "openai, calls": (
        with_calls("last"),
        "openai",
        {"messages": [SYSTEM, CALLS[0], {**CALLS[1], "weight": 0}, *CALLS[2:]], "tools": TOOLS},
    ),
    "alpaca": (
        sample(),
        "alpaca",
        {"instruction": "And now?", "input": "", "output": "Now it rains.", "system": "Be kind.\n\n", "history": PAIRS},
    ),
    "sharegpt": (
        sample(),
        "sharegpt",
        {
            "conversations": [
                {"from": "human", "value": "Hi"},
                {"from": "gpt", "value": "Hello."},
                {"from": "human", "value": "And now?"},
                {"from": "gpt", "value": "Now it rains."},
            ],
            "system": "Be kind.\n\n",
            "tools": "",
        },
    ),
    "sharegpt, calls": (
        with_calls(),
        "sharegpt",
        {
            "conversations": [
                {"from": "human", "value": "Weather?"},
                {"from": "function_call", "value": '{"name": "weather", "arguments": {"city": "Köln"}}'},
                {"from": "observation", "value": "rain"},
                {"from": "gpt", "value": "It rains."},
            ],
            "system": "Be kind.\n\n",
            "tools": '[{"name": "weather", "description": "Says it.", '
            '"parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]',
        },
    ),
    "trl": (sample("last"), "trl", {"prompt": PROMPT, "completion": [RESPONSE]}),
    "trl, calls": (
        with_calls("last"),
        "trl",
        {"prompt": [SYSTEM, CALLS[0], TRL_CALL, CALLS[2]], "completion": [CALLS[3]], "tools": TOOLS},
    ),
    "trl, a call as the answer": (
        PROMPTER.training_sample({"style": "kind"}, None, CALLS[:2], TOOLS),
        "trl",
        {"prompt": [SYSTEM, CALLS[0]], "completion": [TRL_CALL], "tools": TOOLS},
    ),
    "trl-text": (
        sample("last"),
        "trl-text",
        {
            "prompt": "<|im_start|>system\nBe kind.\n\n<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\nAnd now?<|im_end|>\n<|im_start|>assistant\n",
            "completion": "Now it rains.<|im_end|>",
        },
    ),
}


@pytest.mark.parametrize(("made", "form", "expected"), EXPORTS.values(), ids=EXPORTS)
def test_export_equals_the_documented_format(made: TrainingSample, form: str, expected: object) -> None:
    assert made.export(form) == expected


def test_trl_text_prompt_equals_the_generated_prompt() -> None:
    assert sample("last").export("trl-text")["prompt"] == PROMPTER.generate_prompt(GIVEN, PAIRS)


def test_alpaca_export_without_a_history() -> None:
    alone = PROMPTER.training_sample(GIVEN, "Now it rains.").export("alpaca")
    assert alone == sample().export("alpaca") | {"history": []}


def test_alpaca_export_of_an_alpaca_prompter_contains_the_instruction() -> None:
    made = AlpacaPrompter("Sum up.", extra_keys="text", system="").training_sample("It rains.", "Rain.")
    assert made.messages[1] == {"role": "user", "content": ""}
    instruction = str(made.messages[0]["content"])
    expected = {"instruction": instruction, "input": "", "output": "Rain.", "system": "", "history": []}
    assert made.export("alpaca") == expected
    extra = "Here are some extra messages you can referred to:\n\n### text:\nIt rains.\n\n"
    assert instruction.endswith(f"### Instruction:\nSum up.\n\n{extra}")


def test_sharegpt_export_with_parallel_tool_calls() -> None:
    history = [CALLS[0], {**CALLS[1], "tool_calls": [call(1), call(2, "Rom")]}]
    exported: Any = PROMPTER.training_sample({"style": "kind"}, None, history, TOOLS).export("sharegpt")
    value = f'[{json.dumps(CALLED, ensure_ascii=False)}, {{"name": "weather", "arguments": {{"city": "Rom"}}}}]'
    assert exported["conversations"][-1] == {"from": "function_call", "value": value}


@pytest.mark.parametrize("form", ["openai", "alpaca", "sharegpt", "trl", "trl-text"])
def test_export_is_one_line_of_jsonl(form: str) -> None:
    made = PROMPTER.training_sample({**GIVEN, "input": '你好\n\u2028"<|im_end|>\\'}, "line\nline", train="all")
    exported = made.export(form)
    line = json.dumps(exported, ensure_ascii=False)
    assert "\n" not in line
    assert json.loads(line) == exported


@pytest.mark.parametrize("form", ["openai", "sharegpt", "trl"])
def test_changing_an_export_does_not_change_the_sample(form: str) -> None:
    made = with_calls("last" if form == "trl" else "all")
    before = json.dumps([made.messages, made.tools])
    exported: Any = made.export(form)
    for key in ("messages", "prompt", "conversations", "completion"):
        for message in exported.get(key, ()):
            for call_ in message.get("tool_calls", ()):
                call_["function"].clear()
            message.clear()
    if form != "sharegpt":
        exported["tools"][0]["function"].clear()
    assert json.dumps([made.messages, made.tools]) == before


def test_unknown_export_format_is_an_error() -> None:
    message = (
        r"unknown export format 'sharegtp' \(did you mean 'sharegpt'\?\); expected one of openai, alpaca, sharegpt, "
    )
    with pytest.raises(FormatError, match=f"^{message}trl, trl-text$"):
        sample().export("sharegtp")


PICTURE = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
FUNNY_TOOL = {"type": "custom", "custom": {"name": "code"}}
PARALLEL = [CALLS[0], {**CALLS[1], "tool_calls": [call(1), call(2)]}, result(1), result(2), CALLS[3]]


LAST = (
    'a response that is excluded from training (messages[2]); pass train="all"; '
    "with mask_history set, LLaMA-Factory then trains on the last response only"
)
PLAIN = "content parts in messages[1].content; use plain text"
THERE = "in this position; alternate between user and assistant"
BEHIND = (
    "messages[3], which is not trained, after messages[2], which is; export it as openai; "
    "with assistant_only_loss=True, TRL trains on the assistant messages in this format"
)
REST = "untrained text after trained text; use features()"
UNTRAINED = "a conversation without trained text; omit this sample"
NO_PLACE: list[tuple[str, Any, Any, Any, str]] = [
    ("alpaca", [USER, ANSWER, *CALLS], None, "last", LAST),
    ("sharegpt", [USER, ANSWER, USER, ANSWER], None, "last", LAST),
    ("alpaca", [USER, ANSWER], TOOLS, "all", "tools; export it as sharegpt"),
    ("alpaca", CALLS, None, "all", "a tool call or result (turn 1); export it as sharegpt"),
    ("alpaca", [PICTURE, ANSWER], None, "all", PLAIN),
    ("sharegpt", [PICTURE, ANSWER], None, "all", PLAIN),
    ("sharegpt", [USER, SYSTEM, USER, ANSWER], None, "all", f"the role 'system' of messages[2] {THERE}"),
    ("alpaca", [USER, USER, ANSWER], None, "all", f"the role 'user' of messages[2] {THERE}"),
    ("sharegpt", [ANSWER, USER, ANSWER], None, "all", f"the role 'assistant' of messages[1] {THERE}"),
    ("sharegpt", PARALLEL, TOOLS, "all", f"the role 'tool' of messages[4] {THERE}"),
    ("sharegpt", [USER, {**CALLS[1], "content": "I look."}], None, "all",
     "text and a tool call in the same message (messages[2]); remove one of them"),
    ("sharegpt", [USER, ANSWER], [FUNNY_TOOL], "all", "a tool of type 'custom'; remove the tool"),
    ("sharegpt", [{**USER, "name": "Ann"}, ANSWER], None, "all", "the name of messages[1]; remove this key"),
    ("alpaca", [USER, {**ANSWER, "refusal": "no"}], None, "all", "the refusal of messages[2]; remove this key"),
    ("trl", CALLS, None, "all", BEHIND),
    ("trl", CALLS, None, lambda at, _: at == 2, BEHIND),
    ("trl", CALLS, None, lambda *_: False, UNTRAINED),
    ("trl-text", CALLS, None, "all", REST),
    ("trl-text", CALLS, None, lambda at, _: at == 2, REST),
    ("trl-text", CALLS, None, lambda *_: False, UNTRAINED),
]  # fmt: skip


@pytest.mark.parametrize(("form", "history", "tools", "train", "content"), NO_PLACE)
def test_content_that_an_export_format_cannot_express_is_an_error(
    form: str, history: Any, tools: Any, train: Any, content: str
) -> None:
    made = PROMPTER.training_sample({"style": "kind"}, None, history, tools, train=train)
    with pytest.raises(FormatError) as refused:
        made.export(form)
    assert str(refused.value) == f"the {form} format can't express {content}"


def test_developer_message_is_exported_as_the_system_text() -> None:
    history: list[Any] = [Msg("developer", "Be brief.", "developer"), USER, ANSWER]
    made = ChatPrompter(system="").training_sample(None, None, history)
    assert made.export("sharegpt")["system"] == made.export("alpaca")["system"] == "Be brief."


@pytest.mark.parametrize("form", ["alpaca", "sharegpt"])
def test_instruction_without_a_user_turn_is_exported_as_the_user_turn(form: Any) -> None:
    sample = ChatPrompter("Add {input}.", system="").training_sample("1+1", "2")
    assert [message["role"] for message in sample.messages] == ["system", "assistant"]
    made: Any = sample.export(form)
    assert (
        made
        == {
            "alpaca": {"instruction": "Add 1+1.\n\n", "input": "", "output": "2", "system": "", "history": []},
            "sharegpt": {
                "conversations": [{"from": "human", "value": "Add 1+1.\n\n"}, {"from": "gpt", "value": "2"}],
                "system": "",
                "tools": "",
            },
        }[form]
    )
