"""OpenAI dicts give the payload of the messages read from them, and faults in them are told with their place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lazyprompt import ChatFormatter, HistoryError, messages_from

ASKED = {"role": "user", "content": "Rain in Leeds?"}


def calling(arguments: str, call_id: str = "c1", name: str = "weather") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def answered(call_id: str = "c1", content: str = "rain") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    ASKED,
    calling('{"city": "Leeds", "days": [1, 2]}'),
    answered(),
    {"role": "assistant", "content": "It rains. 下雨。"},
    {"role": "user", "content": "谢谢"},
]


@pytest.mark.parametrize("provider", ["openai", "anthropic", "gemini", "ollama", "openai-responses", "dashscope"])
def test_dicts_give_the_payload_of_their_messages(provider: str) -> None:
    formatter = ChatFormatter(provider)
    careful = formatter.format(*messages_from(CHAT))
    for message in careful.get("messages", []):
        # As a Msg, who has no name is called what the role is.
        if message.get("name") == message["role"]:
            del message["name"]
    assert formatter.format(*CHAT) == careful


def test_a_payload_has_arguments_of_its_own() -> None:
    formatter = ChatFormatter("anthropic")
    first = formatter.format(*CHAT)
    first["messages"][1]["content"][0]["input"]["days"].append(3)
    assert formatter.format(*CHAT)["messages"][1]["content"][0]["input"]["days"] == [1, 2]


@pytest.mark.parametrize(
    "arguments",
    [
        r'{"city": "\u4f60\u597d"}',
        '{"city": "你好"}',
        " {} ",
        "",
        json.dumps({"text": "x" * 500}),
        '{"a": {"b": [null, true, 1.5e3]}}',
    ],
)
def test_unusual_arguments_arrive(arguments: str) -> None:
    payload = ChatFormatter("anthropic").format(ASKED, calling(arguments), answered())
    assert payload["messages"][1]["content"][0]["input"] == json.loads(arguments or "{}")


@pytest.mark.parametrize(
    "arguments", ["[1]", "{", "NaN", '{"a": NaN}', "{} x", r'{"a": "\ud800"}', "[" * 300 + "]" * 300]
)
def test_arguments_that_are_no_json_object_are_refused(arguments: str) -> None:
    with pytest.raises(HistoryError, match=r"messages\[1\]"):
        ChatFormatter("anthropic").format(ASKED, calling(arguments), answered())


@pytest.mark.parametrize(
    "message",
    [
        {"role": "wizard", "content": "x"},
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": None, "tool_calls": [5]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "function": {"name": "", "arguments": "{}"}}],
        },
        {"content": "x"},
        {"role": "user", "content": "\ud800"},
    ],
)
def test_what_is_no_message_is_refused_with_its_place(message: dict[str, Any]) -> None:
    with pytest.raises(HistoryError, match=r"messages\[1\]"):
        ChatFormatter("openai").format(ASKED, message)
