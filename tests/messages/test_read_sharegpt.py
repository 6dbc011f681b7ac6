"""ShareGPT messages, with ``from`` and ``value``, are read by every part of the API that reads messages."""

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


def test_sharegpt_speakers_become_roles() -> None:
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


def test_sharegpt_function_call_with_a_list_becomes_several_tool_calls() -> None:
    calls = '[{"name": "a", "arguments": {}}, {"name": "b", "arguments": "{}"}]'
    chat = [{"from": "function_call", "value": calls}, {"from": "tool", "value": "1"}, {"from": "tool", "value": "2"}]
    blocks = [block for message in messages_from(chat) for block in message.blocks]
    assert [(block.id, block.name) for block in blocks if isinstance(block, ToolUseBlock | ToolResultBlock)] == [
        *(("call_without_id_0", "a"), ("call_without_id_1", "b"), ("call_without_id_0", "a")),
        ("call_without_id_1", "b"),
    ]


@pytest.mark.parametrize("provider", ["openai", "anthropic", "gemini", "openai-responses"])
def test_formatter_and_prompter_give_the_same_payload_for_sharegpt_and_openai_messages(provider: str) -> None:
    assert ChatFormatter(provider).format(CHAT) == ChatFormatter(provider).format(OPENAI)
    prompter = ChatPrompter(system="")
    assert prompter.generate_prompt(None, CHAT[:2], format=provider) == prompter.generate_prompt(
        None, OPENAI[:2], format=provider
    )


def test_chat_template_renders_sharegpt_messages() -> None:
    """A chat template silently rendered ShareGPT messages as empty text."""
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
def test_malformed_sharegpt_message_is_refused_with_its_path(chat: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(HistoryError, match=message):
        messages_from(chat)


def test_legacy_openai_function_call_and_function_role_are_read() -> None:
    """``function_call`` stayed in the metadata only, and the role ``function`` was refused."""
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


def test_legacy_function_result_answers_the_call_with_the_same_name() -> None:
    calls: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "function_call": {"name": name, "arguments": "{}"}}
        for name in ("rain", "wind")
    ]
    result = messages_from([*calls, {"role": "function", "name": "wind", "content": "no"}])[-1]
    assert result.blocks[0] == ToolResultBlock("call_without_id_1", "wind", "no")
