"""ShareGPT's messages, with ``from`` and ``value``, are read at every door."""

from typing import Any

import pytest

from lazyprompt import ChatFormatter, ChatPrompter, ChatTemplate, HistoryError, Msg, ToolUseBlock, messages_from
from lazyprompt.messages.msg import ToolResultBlock

CHAT: list[dict[str, Any]] = [
    {"from": "system", "value": "Be kind."},
    {"from": "human", "value": "Rain?"},
    {"from": "function_call", "value": '{"name": "rain", "arguments": {"city": "Oslo"}}'},
    {"from": "observation", "value": "no"},
    {"from": "gpt", "value": "No.", "weight": 1},
]
OPENAI: list[dict[str, Any]] = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Rain?"},
    {"role": "assistant", "tool_calls": [{"function": {"name": "rain", "arguments": {"city": "Oslo"}}}]},
    {"role": "tool", "content": "no"},
    {"role": "assistant", "content": "No."},
]


def test_what_the_speakers_are() -> None:
    call_id = "call_without_id_0"
    assert messages_from(CHAT) == [
        Msg("system", "Be kind.", "system"),
        Msg("user", "Rain?", "user"),
        Msg("assistant", [ToolUseBlock(call_id, "rain", {"city": "Oslo"})], "assistant"),
        Msg("tool", [ToolResultBlock(call_id, "rain", "no")], "tool"),
        Msg("assistant", "No.", "assistant", metadata={"weight": 1}),
    ]
    chat = [{"from": role, "value": "a"} for role in ("user", "assistant")]
    assert [each.role for each in messages_from(chat)] == ["user", "assistant"]


def test_several_calls() -> None:
    calls = '[{"name": "a", "arguments": {}}, {"name": "b", "arguments": "{}"}]'
    chat = [{"from": "function_call", "value": calls}, {"from": "tool", "value": "1"}, {"from": "tool", "value": "2"}]
    blocks = [block for message in messages_from(chat) for block in message.blocks]
    assert [(block.id, block.name) for block in blocks if isinstance(block, ToolUseBlock | ToolResultBlock)] == [
        *(("call_without_id_0", "a"), ("call_without_id_1", "b"), ("call_without_id_0", "a")),
        ("call_without_id_1", "b"),
    ]


@pytest.mark.parametrize("provider", ["openai", "anthropic", "gemini", "openai-responses"])
def test_doors_send_what_they_send_of_the_same_in_openais_form(provider: str) -> None:
    """A chat template rendered an empty text of them, without a word."""
    assert ChatFormatter(provider).format(CHAT) == ChatFormatter(provider).format(OPENAI)
    prompter = ChatPrompter(system="")
    assert prompter.generate_prompt(None, CHAT[:2], format=provider) == prompter.generate_prompt(
        None, OPENAI[:2], format=provider
    )


def test_a_chat_template_renders_them() -> None:
    template = ChatTemplate.load("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}")
    assert template.render(CHAT[:2], add_generation_prompt=False).text == "[system]Be kind.[user]Rain?"


@pytest.mark.parametrize(
    ("chat", "message"),
    [
        ([{"from": "humn", "value": "a"}], r"history\[0\].from is the unknown speaker 'humn' .*mean 'human'\?\)"),
        ([{"from": "observation", "value": "a"}], r"history\[0\] is a result, but no earlier function_call is waiting"),
        (
            [{"from": "function_call", "value": "rain()"}],
            r"history\[0\].value is not JSON; a function_call must be the JSON",
        ),
        ([{"from": "function_call", "value": "{}"}], r"history\[0\].value.name"),
        ([{"from": "human", "value": ["a"]}], r"history\[0\]"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(chat: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(HistoryError, match=message):
        messages_from(chat)


def test_function_calls_of_openais_first_form() -> None:
    """``function_call`` was left among the metadata, and the role ``function`` was unknown."""
    call = {"name": "rain", "arguments": '{"city": "Oslo"}'}
    old: list[dict[str, Any]] = [
        {"role": "user", "content": "Rain?"},
        {"role": "assistant", "content": None, "function_call": call},
        {"role": "function", "name": "rain", "content": "no"},
    ]
    new: list[dict[str, Any]] = [
        old[0],
        {"role": "assistant", "content": None, "tool_calls": [{"function": call}]},
        {"role": "tool", "name": "rain", "content": "no"},
    ]
    assert messages_from(old) == messages_from(new)
    with pytest.raises(HistoryError, match="tool result without 'tool_call_id', and no call is waiting for a result"):
        messages_from(old[2:])


def test_a_result_of_a_function_answers_the_call_of_its_name() -> None:
    calls: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "function_call": {"name": name, "arguments": "{}"}}
        for name in ("rain", "wind")
    ]
    result = messages_from([*calls, {"role": "function", "name": "wind", "content": "no"}])[-1]
    assert result.blocks[0] == ToolResultBlock("call_without_id_1", "wind", "no")
