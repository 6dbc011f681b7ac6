"""Responses from REST APIs and from the official clients are parsed to the same messages."""

import copy
import json
import re
import threading
from base64 import b64encode
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import ollama
import pytest
from anthropic.types import Message
from dashscope.api_entities.dashscope_response import (
    DashScopeAPIResponse,
    GenerationResponse,
    MultiModalConversationResponse,
)
from google.genai.types import GenerateContentResponse
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion
from openai.types.responses import Response
from pydantic import BaseModel, ConfigDict
from zai.types.chat.chat_completion import Completion

from formatters.payloads import paths
from lazyprompt import Base64Source, Msg, URLSource
from lazyprompt.errors import FormatError
from lazyprompt.formatters._answers import (
    as_dict,
    from_anthropic,
    from_dashscope,
    from_gemini,
    from_ollama,
    from_ollama_generate,
    from_openai_chat,
    from_responses,
)
from lazyprompt.formatters.reply import Reply
from lazyprompt.messages.msg import AudioBlock, FileBlock, ImageBlock, TextBlock, ThinkingBlock, ToolUseBlock
from lazyprompt.messages.native import Native

Reader = Callable[[Any, str], Msg]

ARGUMENTS: dict[str, Any] = {"city": "Zürich", "days": [1, None], "deep": {"unit": None}}
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": json.dumps(ARGUMENTS)}}
BARE_CALL = {"function": {"name": "weather", "arguments": ARGUMENTS}}
USED = ToolUseBlock("c1", "weather", ARGUMENTS)
PNG = b"\x89PNG\xfb\xff"
PNG64 = b64encode(PNG).decode()
URLSAFE = PNG64.replace("+", "-").replace("/", "_").rstrip("=")


class Case(NamedTuple):
    provider: str
    answer: dict[str, Any]
    blocks: tuple[Any, ...]
    usage: dict[str, int] | None = None
    # Fields without a block, by their place.
    part_fields: dict[str, Any] | None = None
    # The native form, which is sent back unchanged.
    native: Any = None

    @property
    def read(self) -> Reader:
        return READERS.get(self.provider, from_openai_chat)

    def client_object(self) -> object:
        return OBJECTS.get(self.provider, ChatCompletion.model_validate)(copy.deepcopy(self.answer))


READERS: dict[str, Reader] = {
    "openai-responses": from_responses,
    "anthropic": from_anthropic,
    "gemini": from_gemini,
    "dashscope": from_dashscope,
    "dashscope-multimodal": from_dashscope,
    "ollama": from_ollama,
    "ollama-generate": from_ollama_generate,
}
OBJECTS: dict[str, Callable[[Any], object]] = {
    "openai-responses": Response.model_validate,
    "anthropic": Message.model_validate,
    "gemini": GenerateContentResponse.model_validate,
    "dashscope": lambda answer: GenerationResponse.from_api_response(DashScopeAPIResponse(**answer)),
    "dashscope-multimodal": lambda answer: MultiModalConversationResponse.from_api_response(
        DashScopeAPIResponse(**answer)
    ),
    "ollama": ollama.ChatResponse.model_validate,
    "ollama-generate": ollama.GenerateResponse.model_validate,
    "zhipu": Completion.model_validate,
}


def usage(prompt: int, completion: int, total: int | None = None) -> dict[str, int]:
    total = prompt + completion if total is None else total
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}


def chat(message: dict[str, Any], **rest: Any) -> dict[str, Any]:
    whole = {"role": "assistant", "content": None, **message}
    choice = {"index": 0, "finish_reason": "stop", "logprobs": None, "message": whole}
    return {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], **rest}


def responses(*output: dict[str, Any], **rest: Any) -> dict[str, Any]:
    head = {"id": "resp_1", "object": "response", "created_at": 1.0, "model": "gpt-5", "error": None}
    return {**head, "output": list(output), "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], **rest}


def anthropic(*content: dict[str, Any], **counts: int) -> dict[str, Any]:
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "stop_reason": "end_turn"}
    counted = {"input_tokens": 10, "output_tokens": 5, **counts}
    return {**head, "stop_sequence": None, "content": list(content), "usage": counted}


def gemini(*parts: dict[str, Any], **rest: Any) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": list(parts)}, "finishReason": "STOP", "index": 0}
    return {"candidates": [candidate], "createTime": "2026-01-01T00:00:00Z", **rest}


def dashscope(message: dict[str, Any] | None = None, **output: Any) -> dict[str, Any]:
    if message is not None:
        output["choices"] = [{"finish_reason": "stop", "message": {"role": "assistant", **message}}]
    tokens = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
    return {"status_code": 200, "request_id": "r", "code": "", "message": "", "output": output, "usage": tokens}


def thought(provider: str, text: str = "Hm.", signature: str | None = None, **more: Any) -> ThinkingBlock:
    return ThinkingBlock(text, signature, provider=provider, **more)


WRITTEN = json.dumps(ARGUMENTS)
MESSAGE_ITEM = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
TEXT_PARTS = [{"type": "output_text", "text": "Hot.", "annotations": []}, {"type": "refusal", "refusal": "No more."}]
SUMMARY = [{"type": "summary_text", "text": "One."}, {"type": "summary_text", "text": "Two."}]
RESPONSES = responses(
    {"type": "reasoning", "id": "rs_1", "summary": SUMMARY, "encrypted_content": "gAAA"},
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
    MESSAGE_ITEM | {"content": TEXT_PARTS},
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "weather", "arguments": WRITTEN},
    usage={"input_tokens": 5, "output_tokens": 6, "total_tokens": 11}
    | {"input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 0}}
    | {"output_tokens_details": {"reasoning_tokens": 1}},
)
OPEN_REASONING = responses(
    {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
    {"type": "reasoning", "id": "rs_2", "summary": []},
)
SAID = {"role": "assistant", "content": None}
CUSTOM_CALL = {"id": "c1", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}
SIGNED = {"type": "thinking", "thinking": "Hm.", "signature": "s=="}
REDACTED = {"type": "redacted_thinking", "data": "r=="}
LITELLM = chat(
    {"content": "Hot.", "reasoning_content": "Hm.", "thinking_blocks": [SIGNED, REDACTED]}
    | {"images": [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG64}"}}]}
)
ANTHROPIC = anthropic(
    SIGNED,
    REDACTED,
    {"type": "thinking", "thinking": "", "signature": "t=="},
    {"type": "text", "text": "Hot.", "citations": None},
    {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}},
    {"type": "tool_use", "id": "c1", "name": "weather", "input": ARGUMENTS},
    {"type": "text", "text": ""},
    cache_creation_input_tokens=100,
    cache_read_input_tokens=1000,
)
# The keys of the Python client, and unchanged signatures.
GEMINI_NATIVE: list[dict[str, Any]] = [
    {"text": "Hm.", "thought": True},
    {"text": "Hot.", "thought_signature": URLSAFE},
    {"function_call": {"name": "weather", "args": ARGUMENTS}, "thought_signature": URLSAFE},
    {"function_call": {"id": "c1", "name": "weather", "args": ARGUMENTS}},
    {"function_call": {"name": "now"}},
    *({"inline_data": {"mime_type": kind, "data": PNG64}} for kind in ("image/png", "audio/wav", "application/pdf")),
    {"executable_code": {"code": "1", "language": "PYTHON"}},
    {"text": "", "thought_signature": URLSAFE},
]


def in_camel_case(value: Any) -> Any:
    """Convert keys of the Python client to those of the REST API."""
    if not isinstance(value, dict):
        return value
    return {re.sub("_(.)", lambda found: found[1].upper(), key): in_camel_case(item) for key, item in value.items()}


GEMINI = gemini(
    *map(in_camel_case, GEMINI_NATIVE),
    usageMetadata={"promptTokenCount": 1, "candidatesTokenCount": 2, "thoughtsTokenCount": 4}
    | {"toolUsePromptTokenCount": 8, "totalTokenCount": 15},
)
GEMINI_BLOCKS = (
    thought("gemini"),
    TextBlock("Hot.", signature=PNG64),
    ToolUseBlock("call_0", "weather", ARGUMENTS, signature=PNG64),
    USED,
    ToolUseBlock("call_2", "now"),
    ImageBlock(Base64Source("image/png", PNG64)),
    AudioBlock(Base64Source("audio/wav", PNG64)),
    FileBlock(Base64Source("application/pdf", PNG64)),
    TextBlock("", signature=PNG64),
)
GEMINI_BLOCKED = {
    "promptFeedback": {"blockReason": "SAFETY"},
    "usageMetadata": {"promptTokenCount": 7, "totalTokenCount": 7},
}
DASHSCOPE = {"content": "热。", "reasoning_content": "想。", "tool_calls": [{**CALL, "index": 0}]}
DASHSCOPE_PARTS = [{"text": "A"}, {"image": "https://example.org/a.png", "n": 1}, {"box": [1, 2]}, {"image": ""}, "B"]
DASHSCOPE_PARTS += [{"n": 2, "text": "C"}]
OLLAMA = {"role": "assistant", "content": "Hot.", "thinking": "Hm.", "tool_calls": [BARE_CALL, BARE_CALL]}
HOT = TextBlock("Hot.")
CALLS_BY_PLACE = tuple(ToolUseBlock(f"call_{at}", "weather", ARGUMENTS) for at in range(2))

CASES = {
    "openai": Case(
        "openai",
        chat({"content": "Hot.", "refusal": None, "tool_calls": [CALL]}, usage=usage(1, 2)),
        (HOT, USED),
        usage(1, 2),
    ),
    "openai refusal": Case("openai", chat({"refusal": "No."}), (TextBlock("No."),), native=SAID | {"refusal": "No."}),
    "openai legacy": Case(
        "openai", chat({"function_call": {"name": "weather", "arguments": WRITTEN}}), CALLS_BY_PLACE[:1], native=SAID
    ),
    "openai custom": Case(
        "openai",
        chat({"tool_calls": [CUSTOM_CALL]}),
        (ToolUseBlock("c1", "sql", raw_input="select 1"),),
        native=SAID | {"tool_calls": [CUSTOM_CALL]},
    ),
    "openai audio": Case(
        "openai",
        chat({"audio": {"id": "a", "data": PNG64, "expires_at": 1, "transcript": "Hello."}}),
        (TextBlock("Hello."),),
        native=SAID | {"audio": {"id": "a"}},
    ),
    "deepseek": Case("deepseek", chat({"content": "Hot.", "reasoning_content": "Hm."}), (thought("deepseek"), HOT)),
    "vllm": Case(
        "vllm", chat({"content": "Hot.", "reasoning_content": "", "reasoning": "Hm."}), (thought("vllm"), HOT)
    ),
    "litellm": Case(
        "litellm",
        LITELLM,
        (
            thought("anthropic", "Hm.", "s=="),
            ThinkingBlock(redacted="r==", provider="anthropic"),
            HOT,
            ImageBlock(Base64Source("image/png", PNG64)),
        ),
    ),
    "zhipu": Case(
        "zhipu",
        chat({"content": "热。", "reasoning_content": "想。", "tool_calls": [CALL]}, usage=usage(1, 2, 4)),
        (thought("zhipu", "想。"), TextBlock("热。"), USED),
        usage(1, 2, 4),
    ),
    "responses": Case(
        "openai-responses",
        RESPONSES,
        (thought("openai-responses", "One.\n\nTwo.", "gAAA", id="rs_1"), HOT, TextBlock("No more."), USED),
        usage(5, 6),
        {"output[1]": RESPONSES["output"][1]},
        RESPONSES["output"],
    ),
    "responses open reasoning": Case(
        "openai-responses",
        OPEN_REASONING,
        (thought("openai-responses", id="rs_1"), thought("openai-responses", "", id="rs_2")),
        native=OPEN_REASONING["output"],
    ),
    "anthropic": Case(
        "anthropic",
        ANTHROPIC,
        (
            thought("anthropic", "Hm.", "s=="),
            ThinkingBlock(redacted="r==", provider="anthropic"),
            thought("anthropic", "", "t=="),
            HOT,
            USED,
        ),
        usage(1110, 5),
        {"content[4]": ANTHROPIC["content"][4]},
        ANTHROPIC["content"],
    ),
    "gemini": Case("gemini", GEMINI, GEMINI_BLOCKS, usage(9, 6), {"parts[8]": GEMINI_NATIVE[8]}, GEMINI_NATIVE),
    "gemini blocked": Case("gemini", GEMINI_BLOCKED, (), usage(7, 0)),
    "gemini cut off": Case("gemini", {"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL"}]}, ()),
    "dashscope": Case(
        "dashscope", dashscope(DASHSCOPE), (thought("dashscope", "想。"), TextBlock("热。"), USED), usage(3, 4)
    ),
    "dashscope text": Case(
        "dashscope", dashscope(text="热。", finish_reason="stop"), (TextBlock("热。"),), usage(3, 4)
    ),
    "dashscope multimodal": Case(
        "dashscope-multimodal",
        dashscope({"content": DASHSCOPE_PARTS}),
        (TextBlock("A"), ImageBlock(URLSource("https://example.org/a.png")), TextBlock("B"), TextBlock("C")),
        usage(3, 4),
        {"content[1]": {"n": 1}, "content[2]": {"box": [1, 2]}, "content[5]": {"n": 2}},
    ),
    "ollama": Case(
        "ollama",
        {"model": "qwen3", "done": True, "message": OLLAMA, "prompt_eval_count": 3, "eval_count": 4},
        (thought("ollama"), HOT, *CALLS_BY_PLACE),
        usage(3, 4),
    ),
    "ollama cached": Case(
        "ollama", {"message": {"role": "assistant", "content": ""}, "eval_count": 4}, (), usage(0, 4)
    ),
    "ollama generate": Case(
        "ollama-generate",
        {"model": "qwen3", "done": True, "response": "Hot.", "thinking": "Hm."},
        (thought("ollama-generate"), HOT),
    ),
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def parse_message(message: dict[str, Any], provider: str = "openai") -> Msg:
    return from_openai_chat(chat(message), provider)


def first_call(message: Msg) -> ToolUseBlock:
    (call,) = message.blocks
    assert isinstance(call, ToolUseBlock)
    return call


def read_call(arguments: object) -> ToolUseBlock:
    return first_call(parse_message({"tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": arguments}}]}))


@each_case
def test_rest_dict_and_client_object_are_parsed_alike(case: Case) -> None:
    before, made = copy.deepcopy(case.answer), as_dict(case.client_object())
    assert json.loads(json.dumps(made)) == made
    from_rest, from_client = case.read(case.answer, case.provider), case.read(made, case.provider)
    metadata = {"part_fields": case.part_fields} if case.part_fields else None
    assert from_rest == Msg("assistant", case.blocks, "assistant", metadata=metadata)
    assert from_rest == from_client
    assert from_rest.content == from_client.content
    assert (from_rest.native and from_rest.native.data) == case.native
    assert from_rest.usage == case.usage
    assert case.usage is None or from_client.usage == case.usage
    assert case.answer == before


@each_case
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"error": {"message": "Too many requests", "code": 429}}, "Too many requests"),
        ({"type": "error", "error": {"type": "overloaded", "message": "Overloaded"}}, "Overloaded"),
        ({"error": "model 'x' not found"}, "model 'x' not found"),
        ({"error": {"code": 500}}, '{"code": 500}'),
        ({"code": "InvalidApiKey", "message": "No such key", "request_id": "r"}, "No such key"),
        ({"object": "error", "message": "Too long", "code": 400}, "Too long"),
    ],
)
def test_error_response_body_is_quoted_in_the_exception(case: Case, fault: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError) as caught:
        case.read(fault, case.provider)
    assert str(caught.value) == f"{case.provider} returned an error: {message}"


def test_error_in_a_dashscope_client_object_is_quoted_in_the_exception() -> None:
    response = GenerationResponse.from_api_response(
        DashScopeAPIResponse(status_code=400, request_id="r", code="InvalidParameter", message="Wrong model")
    )
    with pytest.raises(FormatError, match="^dashscope returned an error: Wrong model$"):
        from_dashscope(as_dict(response), "dashscope")


def test_a_call_id_of_any_type_is_accepted() -> None:
    # A list was looked up in a set of ids, which raised a TypeError.
    items: list[Any] = [
        {"type": f"custom_tool_call{end}", "call_id": each} for end, each in (("_output", "1"), ("", []), ("", "1"))
    ]
    message = from_responses(responses(*items), "openai-responses")
    assert message.native == Native("openai-responses", items)
    # A call with its output has already been run by the provider.
    assert message.metadata == {"part_fields": {f"output[{at}]": items[at] for at in range(3)}}
    assert message.content == ""


def test_responses_api_response_with_status_failed_raises_its_error() -> None:
    failed = responses(status="failed", error={"code": "server_error", "message": "The model broke"})
    for answer in (failed, as_dict(Response.model_validate(failed))):
        with pytest.raises(FormatError, match="^openai-responses returned an error: The model broke$"):
            from_responses(answer, "openai-responses")


GEMINI_KEYS = "value at candidates or promptFeedback or prompt_feedback or usageMetadata or usage_metadata"


@pytest.mark.parametrize(
    ("reader", "response", "expected", "actual"),
    [
        (from_anthropic, {"id": "x", "choices": []}, "list at content", "a dict with 'id' (str), 'choices' (list)"),
        (from_openai_chat, {"choices": [{"delta": {}}]}, "dict at choices[0].message", "a dict with 'delta' (dict)"),
        (from_openai_chat, {"choices": ["x"]}, "dict at choices[0].message", "a str"),
        (from_anthropic, {"content": "Hot."}, "list at content", "a dict with 'content' (str)"),
        (from_responses, {"output": {}}, "list at output", "a dict with 'output' (dict)"),
        (
            *(from_dashscope, {"output": {"task_id": "t"}}, "value at output.choices or output.text"),
            "a dict with 'task_id' (str)",
        ),
        (from_dashscope, {"text": "x"}, "dict at output", "a dict with 'text' (str)"),
        (from_ollama, {"message": "x"}, "dict at message", "a dict with 'message' (str)"),
        (from_ollama, None, "dict at message", "a NoneType"),
        (from_ollama_generate, {"done": None}, "value at response or thinking", "a dict with 'done' (NoneType)"),
        (from_gemini, "x", GEMINI_KEYS, "a str"),
        (from_gemini, {}, GEMINI_KEYS, "a dict"),
    ],
)
def test_response_with_a_missing_field_is_refused(reader: Reader, response: Any, expected: str, actual: str) -> None:
    with pytest.raises(FormatError) as caught:
        reader(response, "p")
    assert str(caught.value) == f"not a response from p: expected a {expected}, not {actual}"


@pytest.mark.parametrize("given", [None, "{}", b"{}", 5, [], [chat({})], ChatCompletion, iter([])])
def test_response_that_is_neither_a_dict_nor_a_client_object_is_refused(given: object) -> None:
    with pytest.raises(FormatError, match=f"^response must be a dict or .* not {type(given).__name__}$"):
        as_dict(given)


class Colour(Enum):
    RED = "red"


class Anything(BaseModel):
    model_config = ConfigDict(extra="allow")


def test_client_object_becomes_plain_json_and_a_dict_is_returned_unchanged() -> None:
    held = Anything.model_validate(
        {
            "bytes": PNG,
            "enum": Colour.RED,
            "time": datetime(2026, 1, 1, tzinfo=UTC),
            "nothing": None,
            "kept": {"nothing": None, 5: (1, 2.5, True)},
            "odd": {1},
            "nested": [Anything.model_validate({"a": None, "b": 1})],
        }
    )
    plain = as_dict(held)
    assert as_dict(plain) is plain
    assert plain == {
        "bytes": PNG64,
        "enum": "red",
        "time": "2026-01-01T00:00:00+00:00",
        "kept": {"nothing": None, "5": [1, 2.5, True]},
        "odd": "<set>",
        "nested": [{"b": 1}],
    }


def test_client_object_with_values_of_unexpected_types_is_parsed_without_a_warning() -> None:
    call = {"function": {"name": None, "arguments": {"a": None}}}
    message: Any = {"role": "assistant", "content": [{"type": "text", "text": "Hot."}], "tool_calls": [call]}
    answer: Any = {"choices": [{"message": message}], "usage": {"prompt_tokens": "many"}}
    response = ChatCompletion.construct(**answer)
    expected = Msg("assistant", [TextBlock("Hot."), ToolUseBlock("call_0", "", {"a": None})], "assistant")
    assert from_openai_chat(as_dict(response), "openai") == expected
    assert from_openai_chat(answer, "openai") == expected


def test_local_file_named_in_a_response_is_not_opened(tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(PNG)
    message = {"role": "assistant", "content": "Hot.", "images": [{"value": str(secret)}]}
    response = ollama.ChatResponse.model_validate({"message": message})
    assert PNG64 in str(response.model_dump())
    assert PNG64 not in str(as_dict(response))
    assert from_ollama(as_dict(response), "ollama").content == "Hot."


def test_call_with_its_output_in_the_same_response_is_kept_in_the_metadata() -> None:
    ran, waits = ({"type": "function_call", "call_id": each, "name": "f", "arguments": "{}"} for each in ("a", "b"))
    output = {"type": "function_call_output", "call_id": "a", "output": "1"}
    message = from_responses({"output": [ran, output, waits]}, "openai-responses")
    assert message.blocks == (ToolUseBlock("b", "f"),)
    assert message.metadata == {"part_fields": {"output[0]": ran, "output[1]": output}}


def test_gemini_response_with_snake_case_keys_and_bytes_is_parsed() -> None:
    part: dict[str, Any] = {"text": "Hot.", "thought_signature": PNG}
    image: dict[str, Any] = {"inline_data": {"mime_type": "image/png", "data": PNG}}
    call: dict[str, Any] = {"function_call": {"name": "f", "args": {"camelCase": 1}}, "thought_signature": URLSAFE}
    assert from_gemini(gemini(part, image, call), "gemini").content == (
        TextBlock("Hot.", signature=PNG64),
        ImageBlock(Base64Source("image/png", PNG64)),
        ToolUseBlock("call_0", "f", {"camelCase": 1}, signature=PNG64),
    )


PICTURE = {"mimeType": "image/png", "data": PNG64}


@pytest.mark.parametrize(
    ("parts", "content"),
    [
        *(([{"thoughtSignature": text}], (TextBlock("", signature=text),)) for text in ("no base64!", "abcde", "é")),
        ([{"inlineData": {"data": PNG64}}], (FileBlock(Base64Source("application/octet-stream", PNG64)),)),
        ([{"inlineData": {"mimeType": "image/png"}}], ""),
        ([{"thought": True, "inlineData": PICTURE}, {"text": "Hot."}], "Hot."),
    ],
    ids=[*["a signature that is no base64"] * 3, "no type", "no data", "a picture of thoughts"],
)
def test_malformed_gemini_parts_are_parsed(parts: list[dict[str, Any]], content: object) -> None:
    assert from_gemini(gemini(*parts), "gemini").content == content


@pytest.mark.parametrize("answer", [{"choices": []}, chat({}), chat({"content": ""}), chat({"content": []})])
def test_response_without_content_becomes_empty_text(answer: dict[str, Any]) -> None:
    message = from_openai_chat(answer, "openai")
    assert message.content == ""
    assert message.usage is None


@pytest.mark.parametrize(("parts", "finish"), [(TEXT_PARTS, "refusal"), (TEXT_PARTS[:1], "stop"), ([], "stop")])
def test_responses_api_refusal_sets_the_finish_reason(parts: list[dict[str, Any]], finish: str) -> None:
    answer = responses({"type": "reasoning", "id": "rs_1"}, MESSAGE_ITEM | {"content": parts}, status="completed")
    assert Reply(from_responses(answer, "openai-responses"), answer).finish == finish


def test_single_text_part_becomes_a_string_and_several_become_blocks() -> None:
    assert parse_message({"content": [{"type": "text", "text": "a"}]}).content == "a"
    assert parse_message({"content": [{"type": "text", "text": "a"}, "b", {"type": "odd"}, 5]}).content == (
        TextBlock("a"),
        TextBlock("b"),
        TextBlock("5"),
    )


def test_reasoning_comes_first_and_tool_calls_last_in_a_parsed_chat_response() -> None:
    message = {"tool_calls": [CALL], "refusal": "No.", "content": "Hot.", "reasoning": "Hm."}
    assert parse_message(message, "xai").content == (thought("xai"), HOT, TextBlock("No."), USED)
    said = [{"type": "thinking", "thinking": [{"text": "H"}, {"text": "m."}], "signature": "s"}, "Hot."]
    assert parse_message({"content": said}, "mistral").content == (thought("mistral", "Hm.", "s"), HOT)


def test_invalid_thinking_blocks_fall_back_to_reasoning_content() -> None:
    message = {"content": "Hot.", "reasoning_content": "Hm.", "thinking_blocks": ["x", {"type": "thinking"}]}
    assert parse_message(message, "litellm").content == (thought("litellm"), HOT)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5, "5"),
        (True, "true"),
        ({"a": [1, None, "é"]}, '{"a": [1, null, "é"]}'),
        ({1: "\ud800"}, '{"1": "\\ud800"}'),
        ("a\ud800b\udc00", "a\ufffdb\ufffd"),
        ("\ud83d\ude00", "😀"),
    ],
)
def test_content_that_is_not_valid_text_is_converted_to_text(value: object, text: str) -> None:
    assert parse_message({"content": value}).content == text


def test_tool_name_that_is_not_valid_text_is_converted_to_text() -> None:
    calls = [{"id": 5, "function": {"name": name, "arguments": "{}"}} for name in (None, 7, "f\ud800")]
    names = [block.name for block in parse_message({"tool_calls": calls}).blocks if isinstance(block, ToolUseBlock)]
    assert names == ["", "7", "f\ufffd"]


def test_missing_call_ids_are_made_from_the_position_and_all_ids_are_unique() -> None:
    ids = [None, "a", "a", "", "a_2", "a", "call_3", 5]
    calls = [{"id": each, "function": {"name": "f", "arguments": "{}"}} for each in ids]
    blocks = parse_message({"tool_calls": [*calls, "no call"]}).blocks
    made = [block.id for block in blocks if isinstance(block, ToolUseBlock)]
    assert made == ["call_0", "a", "a_2", "call_3", "a_2_2", "a_3", "call_3_2", "5"]


@pytest.mark.parametrize(
    ("arguments", "read"), [(None, {}), ("", {}), (" \n", {}), ("{}", {}), ({}, {}), ('{"a": 1, "a": 2}', {"a": 2})]
)
def test_missing_arguments_become_an_empty_object_and_the_last_duplicate_key_wins(arguments: object, read: Any) -> None:
    assert read_call(arguments) == ToolUseBlock("c1", "f", read)


@pytest.mark.parametrize(
    "arguments",
    [
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": 1e999}',
        "[1]",
        "null",
        '"text"',
        "5",
        "{'a': 1}",
        '{"a": 1} and more',
        '{"a": "\\ud800"}',
        '{"\\udc00": 1}',
        '{"a": ' + "9" * 10_000 + "}",
        '{"a": ' * 250 + "1" + "}" * 250,
        '{"a": ' * 100_000,
        "[" * 100_000,
    ],
    ids=lambda text: text[:20],
)
def test_arguments_that_are_not_a_json_object_are_kept_as_raw_input(arguments: str) -> None:
    assert read_call(arguments) == ToolUseBlock("c1", "f", raw_input=arguments)


def test_truncated_arguments_are_kept_as_raw_input() -> None:
    whole = json.dumps(ARGUMENTS, ensure_ascii=False)
    for end in range(1, len(whole)):
        assert read_call(whole[:end]) == ToolUseBlock("c1", "f", raw_input=whole[:end])
    assert read_call(whole).input == ARGUMENTS


def nest(depth: int) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for _ in range(depth):
        whole = {"a": whole}
    return whole


@pytest.mark.parametrize(
    ("arguments", "raw"),
    [
        ([1], "[1]"),
        (False, "false"),
        ({"a": float("nan")}, '{"a": NaN}'),
        ({"a": "\ud800é"}, '{"a": "\\ud800é"}'),
        ({"a": 10**10_000}, '{"a": Infinity}'),
        (nest(300), None),
        (nest(5000), None),
    ],
    ids=["list", "bool", "nan", "surrogate", "integer", "deep", "deeper"],
)
def test_invalid_argument_values_are_kept_as_json_in_raw_input(arguments: Any, raw: str | None) -> None:
    call = read_call(arguments)
    assert call.input == {}
    assert call.raw_input is not None
    assert raw in (None, call.raw_input)


@pytest.mark.slow
@pytest.mark.parametrize("depth", [190, 205, 300, 5000])
def test_deeply_nested_arguments_are_parsed_alike_from_dict_and_client_object(depth: int) -> None:
    answer = anthropic({"type": "tool_use", "id": "c1", "name": "f", "input": nest(depth)})
    response = Message.construct(**answer)
    from_rest = from_anthropic(answer, "anthropic")
    assert from_rest == from_anthropic(as_dict(response), "anthropic")
    assert (first_call(from_rest).raw_input is None) == (depth < 200)


def test_nested_arguments_are_parsed_with_little_stack_left() -> None:
    found: list[ToolUseBlock] = []

    def deep(levels: int) -> None:
        found.append(read_call("[" * 500)) if levels == 0 else deep(levels - 1)

    thread = threading.Thread(target=deep, args=(700,))
    thread.start()
    thread.join()
    assert found == [ToolUseBlock("c1", "f", raw_input="[" * 500)]


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        (None, None),
        ("many", None),
        ({}, None),
        ({"prompt_tokens": "1", "completion_tokens": True, "total_tokens": -1}, None),
        ({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}, usage(0, 0)),
        ({"prompt_tokens": 3, "completion_tokens": None}, usage(3, 0)),
        ({"total_tokens": 3}, usage(0, 0, 3)),
        # LiteLLM reports cached tokens too, which are already in prompt_tokens.
        ({"prompt_tokens": 3, "completion_tokens": 1, "cache_read_input_tokens": 2}, usage(3, 1)),
    ],
)
def test_usage_contains_the_reported_token_counts(counts: object, expected: dict[str, int] | None) -> None:
    assert from_openai_chat(chat({"content": "Hot."}, usage=counts), "litellm").usage == expected


KEYS = (
    "type text refusal thinking data signature image image_url url id name input arguments function custom content "
    "tool_calls call_id args functionCall inlineData mimeType thought thoughtSignature"
)
VALUES = (
    "text refusal thinking redacted_thinking tool_use image_url message reasoning function_call "
    "data:image/png;base64,eA== {} ["
)
WORDS = st.sampled_from(VALUES.split())
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | WORDS


def whole(scalars: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS.split()) | WORDS, inner, max_size=6)
        ),
        max_leaves=20,
    )


JSON = whole(SCALARS)
GARBAGE = whole(SCALARS | st.binary() | st.just(Colour.RED) | st.builds(object) | st.tuples(SCALARS))


# Paths of the envelope, by which a response is recognized: invalid values here are refused.
ENVELOPES = {
    *((), ("error",), ("choices",), ("choices", 0), ("choices", 0, "message"), ("content",), ("message",)),
    *(("output",), ("output", "choices"), ("output", "choices", 0), ("output", "choices", 0, "message")),
    *(("output", "text"), ("response",), ("candidates",), ("promptFeedback",)),
}


@pytest.mark.slow
@given(st.data())
def test_response_with_random_values_at_any_path_is_parsed_without_an_error(data: st.DataObject) -> None:
    case = CASES[data.draw(st.sampled_from(sorted(CASES)), "case")]
    answer = copy.deepcopy(case.answer)
    path = data.draw(st.sampled_from([place for place in paths(answer) if place not in ENVELOPES]), "place")
    target: Any = answer
    for key in path[:-1]:
        target = target[key]
    is_json = data.draw(st.booleans(), "JSON")
    target[path[-1]] = data.draw(JSON if is_json else GARBAGE, "garbage")
    message = case.read(answer, case.provider)
    assert message == case.read(answer, case.provider)
    if is_json:
        assert message == case.read(as_dict(Anything.model_validate(answer)), case.provider)
        json.dumps([asdict(block) for block in message.blocks], ensure_ascii=False, allow_nan=False).encode()
    assert len({block.id for block in message.blocks if isinstance(block, ToolUseBlock)}) == sum(
        isinstance(block, ToolUseBlock) for block in message.blocks
    )
