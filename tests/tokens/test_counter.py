"""Token counters: the counts of messages in the format of any provider."""

import json
from typing import Any

import pytest

from lazyprompt.errors import FormatError
from lazyprompt.formatters.formatter import ChatFormatter
from lazyprompt.messages.msg import AudioBlock, FileBlock, Msg, TextBlock, ToolResultBlock, URLSource, VideoBlock
from lazyprompt.tokens.counter import CharTokenCounter, TokenCounter, content_of, forms

COUNTER: TokenCounter = CharTokenCounter()
CALL: dict[str, Any] = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": "é"}'}}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 1000}}


def length(value: object) -> int:
    return len(json.dumps(value, ensure_ascii=False))


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        *(({"role": "user", "content": "abc"}, 3), ({"role": "user", "content": "你好"}, 2)),
        *(({"role": "user", "name": "Bob", "content": "abc"}, 6), ({"role": "assistant", "content": None}, 0)),
        ({"role": "assistant"}, 0),
        ({"role": "user", "content": ["ab", {"type": "text", "text": "cd"}, {"text": None}]}, 4),
        ({"role": "user", "content": [{"type": "text", "text": "cd"}, PICTURE]}, 2),
        ({"role": "user", "content": [{"image": "A" * 1000}, {"text": "cd"}]}, 2),
        ({"role": "user", "parts": ["ab", {"text": "cd"}, {"inline_data": {"data": "A" * 1000}}]}, 4),
        ({"role": "user", "content": [{"type": "input_text", "text": "cd"}, {"type": "input_image"}]}, 2),
        ({"role": "user", "content": [{"type": "document", "source": {}}]}, 0),
        ({"role": "assistant", "content": None, "tool_calls": [CALL]}, length([CALL])),
        ({"role": "assistant", "content": "", "reasoning_content": "hm"}, 2),
        ({"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "A" * 99}]}, 2),
        ({"role": "tool", "tool_call_id": "1", "content": "42"}, 2),
        ({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "42"}]}, 2),
        ({"role": "user", "content": [{"type": "tool_result", "content": [{"type": "text", "text": "42"}]}]}, 2),
        ({"role": "model", "parts": [{"function_call": {"name": "f"}}]}, length({"function_call": {"name": "f"}})),
        ({"type": "function_call", "call_id": "1", "name": "f", "arguments": '{"a": 1}'}, 9),
        ({"type": "function_call_output", "call_id": "1", "output": "42"}, 2),
        ({"role": "user", "content": [{"type": "function_call_output", "call_id": "1", "output": "42"}]}, 2),
        ({"role": "tool", "content": {"a": 1}}, 8),
    ],
)
def test_the_count_of_a_message_includes_its_text_but_no_media(message: dict[str, Any], expected: int) -> None:
    assert COUNTER.count([message]) == expected
    assert COUNTER.count([message, message]) == 2 * expected


def test_tools_are_counted_as_json() -> None:
    tools = [{"type": "function", "function": {"name": "f", "description": "é"}}]
    assert COUNTER.count([], tools) == length(tools[0])
    assert COUNTER.count([{"role": "user", "content": "ab"}], tools) == 2 + length(tools[0])
    assert COUNTER.count([]) == COUNTER.count([], []) == 0


def test_the_char_count_of_a_text_is_its_length() -> None:
    assert COUNTER.count_text("") == 0
    assert COUNTER.count_text("a你\n") == 3


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"tool_calls": [object()]}, "^the tool_calls of a message"),
        *(({"content": [{"x": b"a"}]}, "^a part of a message"), ({"content": {1}}, "^the content of a message")),
    ],
)
def test_messages_and_tools_that_are_not_json_are_refused(fields: dict[str, Any], error: str) -> None:
    with pytest.raises(FormatError, match=error):
        COUNTER.count([{"role": "user", **fields}])
    with pytest.raises(FormatError, match="^a tool"):
        COUNTER.count([], [{"function": object()}])


def test_a_token_counter_limits_the_messages_of_a_formatter() -> None:
    messages = [Msg("user", f"text {at}", "user") for at in range(5)]
    limited = ChatFormatter("anthropic", token_counter=CharTokenCounter(), max_tokens=13)
    assert limited.format(messages) == ChatFormatter("anthropic").format(messages[3:])


@pytest.mark.parametrize(
    ("blocks", "media"),
    [
        ([TextBlock("abc"), VideoBlock(URLSource("https://x/v.mp4"))], [{"type": "video"}]),
        ([TextBlock("abc"), AudioBlock(URLSource("https://x/a.mp3"))], [{"type": "audio"}]),
        ([TextBlock("abc"), FileBlock(URLSource("https://x/f.pdf"))], [{"type": "file"}]),
        ([ToolResultBlock("1", "", [TextBlock("abc"), VideoBlock(URLSource("https://x/v.mp4"))])], [{"type": "video"}]),
        ("abc", []),
    ],
)
def test_messages_with_media_unsupported_by_openai_are_counted(blocks: Any, media: Any) -> None:
    message = Msg("user", blocks, "user")
    assert CharTokenCounter().count([message]) == 3
    assert [content_of(form) for form in forms([message])] == [(["abc"], media)]
    if not isinstance(blocks, str):
        assert content_of({"role": "user", "content": blocks}) == (["abc"], media)
