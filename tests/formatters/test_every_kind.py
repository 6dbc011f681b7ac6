"""Every kind of block, item and part in the types of the installed clients is sent back unchanged, or reported.

The kinds are read from the clients, so that those of a newer release are tried without a change here.
"""

import json
from typing import Any

import anthropic.types
import openai.types.chat as chat_types
import openai.types.responses as responses_types
import pytest
from google.genai import types as gemini_types

from lazyprompt import ChatFormatter
from support.smallest import members_of, smallest

HI = {"role": "user", "content": "hi"}


def kinds(union: Any) -> dict[str, Any]:
    """Return the smallest value of each member of a union, by its type; the first one of each type."""
    found: dict[str, Any] = {}
    for member in members_of(union):
        value = smallest(member)
        found.setdefault(str(value.get("type")), value)
    return found


def without_nulls(value: Any) -> Any:
    """Return JSON without keys that are null."""
    return json.loads(json.dumps(value), object_hook=lambda given: {k: v for k, v in given.items() if v is not None})


def is_sent_or_reported(payload: Any, given: Any) -> bool:
    """True if a value is in a payload unchanged, or the payload has a loss or change in its report."""
    sent = json.dumps(without_nulls(payload), sort_keys=True)
    return json.dumps(without_nulls(given), sort_keys=True) in sent or any(
        entry.action in ("left out", "changed") for entry in payload.report
    )


BLOCKS = kinds(anthropic.types.ContentBlock)
BLOCK_PARAMS = kinds(anthropic.types.ContentBlockParam)
# Results need their call.
CALL: dict[str, Any] = {"type": "tool_use", "id": "x", "name": "f", "input": {}}


@pytest.mark.parametrize("kind", BLOCKS)
def test_anthropic_response_block_is_sent_back_or_reported(kind: str) -> None:
    block = BLOCKS[kind]
    formatter = ChatFormatter("anthropic")
    message = formatter.parse({"content": [{"type": "text", "text": "a"}, block]})
    payload = formatter.format(HI, message)
    assert is_sent_or_reported(payload, block)
    if kind not in ("tool_use", "thinking", "redacted_thinking", "text"):
        assert payload["messages"][1]["content"][1] == without_nulls(block)
        reported = ChatFormatter("openai").format(HI, message).report
        assert kind in [entry.kind for entry in reported]


# Only assistant messages contain calls.
@pytest.mark.parametrize(
    ("kind", "role"),
    [(kind, role) for kind in BLOCK_PARAMS for role in ("user", "assistant") if (kind, role) != ("tool_use", "user")],
)
def test_anthropic_history_block_is_sent_or_reported(kind: str, role: str) -> None:
    block = BLOCK_PARAMS[kind]
    if kind == "tool_result":
        history: list[Any] = [HI, {"role": "assistant", "content": [CALL]}, {"role": "user", "content": [block]}]
    else:
        history = [HI, {"role": role, "content": [{"type": "text", "text": "a"}, block]}]
    payload = ChatFormatter("anthropic").format(*history)
    assert is_sent_or_reported(payload, block)


ITEMS = kinds(responses_types.ResponseOutputItem)
ITEM_PARAMS = kinds(responses_types.ResponseInputItemParam)
RESULTS = {"function_call_output": "function_call", "custom_tool_call_output": "custom_tool_call"}


@pytest.mark.parametrize("kind", ITEMS)
def test_responses_api_output_item_is_sent_back_or_reported(kind: str) -> None:
    item = ITEMS[kind]
    formatter = ChatFormatter("openai-responses")
    before = [ITEMS[RESULTS[kind]]] if kind in RESULTS else []
    message = formatter.parse({"output": [*before, item]})
    payload = formatter.format(HI, message)
    # The smallest instances of some are invalid: a message without content, reasoning without a next item.
    is_sent = without_nulls(item) in payload["input"]
    assert is_sent == (kind not in ("message", "reasoning", "function_call", "function_call_output"))
    assert is_sent or payload.report


@pytest.mark.parametrize("kind", ITEM_PARAMS)
def test_responses_api_input_item_is_sent_or_reported(kind: str) -> None:
    item = ITEM_PARAMS[kind]
    before = [ITEM_PARAMS[RESULTS[kind]]] if kind in RESULTS else []
    payload = ChatFormatter("openai-responses").format([HI, *before, item])
    assert is_sent_or_reported(payload, item)


PARTS = kinds(chat_types.ChatCompletionContentPartParam)
VALID: dict[str, dict[str, Any]] = {
    "file": {"file": {"file_id": "f1"}},
    "input_audio": {"input_audio": {"data": "UklGRg==", "format": "wav"}},
    "image_url": {"image_url": {"url": "https://example.org/a.png"}},
}
CALLS = (
    kinds(chat_types.ChatCompletionMessageToolCallParam)
    if hasattr(chat_types, "ChatCompletionMessageToolCallParam")
    else kinds(chat_types.ChatCompletionMessageToolCallUnionParam)
)


@pytest.mark.parametrize("kind", PARTS)
def test_openai_content_part_is_sent_or_reported(kind: str) -> None:
    part = {**PARTS[kind], **VALID.get(kind, {})}
    payload = ChatFormatter("openai").format({"role": "user", "content": [{"type": "text", "text": "a"}, part]})
    assert is_sent_or_reported(payload, part)


@pytest.mark.parametrize("kind", CALLS)
def test_openai_tool_call_is_sent_back_or_reported(kind: str) -> None:
    call = CALLS[kind]
    formatter = ChatFormatter("openai")
    message: Any = {"role": "assistant", "content": None, "tool_calls": [call]}
    answer: Any = {"role": "tool", "tool_call_id": "x", "content": "1"}
    read = formatter.parse({"choices": [{"message": message}]})
    for said in (message, read):
        history: list[Any] = [HI, said, answer]
        assert is_sent_or_reported(formatter.format(*history), call)


GEMINI_PARTS = {
    name: smallest(members_of(field.annotation)[0]) or {"a": 1}
    for name, field in gemini_types.Part.model_fields.items()
    if name not in ("thought", "thought_signature", "video_metadata", "media_resolution", "part_metadata")
}


@pytest.mark.parametrize("kind", GEMINI_PARTS)
def test_gemini_part_is_sent_back_or_reported(kind: str) -> None:
    value = GEMINI_PARTS[kind]
    part: dict[str, Any] = {kind: {"name": "f", "args": {}} if kind == "function_call" else value}
    formatter = ChatFormatter("gemini")
    history: list[Any] = [HI, {"role": "model", "parts": [{"text": "a"}, part]}]
    if kind == "function_response":
        part = {kind: {"name": "f", "response": {"rows": [1]}}}
        calls: dict[str, Any] = {"role": "model", "parts": [{"function_call": {"name": "f", "args": {}}}]}
        history = [HI, calls, {"role": "user", "parts": [part]}]
    elif kind in ("inline_data", "file_data"):
        where = {"data": "eA=="} if kind == "inline_data" else {"file_uri": "gs://a"}
        part = {kind: {"mime_type": "image/png", **where}}
        history = [HI, {"role": "model", "parts": [{"text": "a"}, part]}]
    payload = formatter.format(*history)
    assert is_sent_or_reported(payload, part)
    if kind != "function_response":
        answer = formatter.parse({"candidates": [{"content": history[-1]}]})
        assert is_sent_or_reported(formatter.format(HI, answer), part)
