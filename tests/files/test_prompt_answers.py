"""Responses to prompt files, valid and invalid, as dicts and as objects of the official clients."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest
from anthropic.types import Message
from openai.types import CreateEmbeddingResponse, ImagesResponse
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from lazyprompt.errors import FormatError
from lazyprompt.files.prompty import Prompty
from lazyprompt.files.targets import read_answer

if TYPE_CHECKING:
    from pydantic import BaseModel

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"city": "Rom'}}


def chat(**message: Any) -> dict[str, Any]:
    whole = {"role": "assistant", "content": None, **message}
    choice = {"index": 0, "message": whole, "finish_reason": "stop", "logprobs": None}
    return {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


def responses(*output: dict[str, Any], **more: Any) -> dict[str, Any]:
    own = {"id": "r", "object": "response", "created_at": 1, "model": "m", "status": "completed"}
    return {**own, "output": [*output], "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], **more}


def output_message(*texts: str) -> dict[str, Any]:
    content: list[Any] = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"type": "message", "id": "m", "status": "completed", "role": "assistant", "content": content}


def anthropic(*content: dict[str, Any], stop: str = "end_turn") -> dict[str, Any]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    own = {"id": "m", "type": "message", "role": "assistant", "model": "c", "usage": usage}
    return {**own, "content": [*content], "stop_reason": stop, "stop_sequence": None}


def tool_call(arguments: str) -> list[dict[str, str]]:
    return [{"id": "c1", "name": "f", "arguments": arguments}]


REFUSED = {**output_message(), "content": [{"type": "refusal", "refusal": "I will not."}]}
CALLED = {"type": "function_call", "id": "i", "call_id": "c1", "name": "f", "arguments": '{"a": 1}'}
USED = {"type": "tool_use", "id": "c1", "name": "f", "input": {"city": "Köln", "n": [1]}}

CLASSES: dict[str, type[BaseModel]] = {
    "openai-chat": ChatCompletion,
    "openai-responses": Response,
    "azure-responses": Response,
    "anthropic-chat": Message,
    "openai-embedding": CreateEmbeddingResponse,
    "openai-image": ImagesResponse,
}
ANSWERS: list[tuple[str, str, dict[str, Any], Any]] = [
    ("text", "openai-chat", chat(content="Hi"), "Hi"),
    ("no content", "openai-chat", chat(), ""),
    ("empty text", "openai-chat", chat(content=""), ""),
    ("refusal", "openai-chat", chat(refusal="I will not."), "I will not."),
    # Truncated arguments are returned unchanged.
    ("calls", "openai-chat", chat(content="I look.", tool_calls=[CALL]), tool_call('{"city": "Rom')),
    ("text", "openai-responses", responses(output_message("H", "i")), "Hi"),
    ("no content", "openai-responses", responses(), ""),
    ("empty text", "openai-responses", responses(output_message("")), ""),
    ("refusal", "openai-responses", responses(REFUSED), "I will not."),
    ("calls", "azure-responses", responses(output_message("I look."), CALLED), tool_call('{"a": 1}')),
    (
        "text",
        "anthropic-chat",
        anthropic({"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "Hi"}),
        "Hi",
    ),
    ("no content", "anthropic-chat", anthropic(), ""),
    (
        "calls",
        "anthropic-chat",
        anthropic({"type": "text", "text": "I look."}, USED, stop="tool_use"),
        tool_call('{"city":"Köln","n":[1]}'),
    ),
    (
        "embeddings",
        "openai-embedding",
        {
            "object": "list",
            "model": "m",
            "usage": {"prompt_tokens": 1, "total_tokens": 1},
            "data": [{"object": "embedding", "index": at, "embedding": [at / 2]} for at in (1, 2, 0)],
        },
        [[0.0], [0.5], [1.0]],
    ),
    ("image", "openai-image", {"created": 1, "data": [{"b64_json": "aGk="}]}, "aGk="),
]


@pytest.mark.parametrize("as_object", [False, True])
@pytest.mark.parametrize(
    ("target", "answer", "expected"), [case[1:] for case in ANSWERS], ids=[f"{case[1]}-{case[0]}" for case in ANSWERS]
)
def test_response_is_read_from_a_dict_and_from_a_client_object(
    target: str, answer: dict[str, Any], expected: object, *, as_object: bool
) -> None:
    response = CLASSES[target].model_validate(answer) if as_object else answer
    assert read_answer(response, *target.split("-")) == expected


def test_gemini_and_ollama_responses_are_read() -> None:
    part = {"functionCall": {"name": "f", "args": {"a": 1}}}
    gemini = {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}]}
    calls: Any = read_answer(gemini, "gemini")
    assert [(each["name"], each["arguments"]) for each in calls] == [("f", '{"a":1}')]
    ollama = {"model": "m", "message": {"role": "assistant", "content": '{"a": 1}'}, "done": True}
    assert read_answer(ollama, "ollama", structured=True) == {"a": 1}


WITH_OUTPUTS = Prompty.loads("---\nmodel: m\noutputs: {a: {kind: integer}}\n---\nuser:\nhi")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(('{"a": 1}', {"a": 1}), ("[1, 2]", [1, 2]), ("", ""), ("no JSON", "no JSON"), ("[" * 100_000, "[" * 100_000)),
        ('```json\n{"a": 1}\n```', '```json\n{"a": 1}\n```'),
    ],
    ids=["object", "list", "empty", "text", "nested", "fenced"],
)
def test_response_text_is_parsed_as_json_if_the_prompt_has_outputs(text: str, expected: object) -> None:
    assert WITH_OUTPUTS.read(ChatCompletion.model_validate(chat(content=text))) == expected


def test_outputs_apply_to_every_provider_but_not_to_refusals_and_tool_calls() -> None:
    assert WITH_OUTPUTS.read(chat(refusal="I will not.")) == "I will not."
    assert WITH_OUTPUTS.read(chat(tool_calls=[CALL])) == tool_call('{"city": "Rom')
    assert Prompty.loads("user:\nhi").read(chat(content='{"a": 1}')) == '{"a": 1}'
    assert WITH_OUTPUTS.read(anthropic({"type": "text", "text": '{"a": 2}'}), "anthropic") == {"a": 2}


@pytest.mark.parametrize(
    ("answer", "target", "message"),
    [
        (chat(content="x"), ("opnai", None), r"provider 'opnai' is unknown \(did you mean 'openai'\?\)"),
        (
            chat(content="x"),
            ("anthropic", "embedding"),
            "anthropic doesn't support the 'embedding' API; expected one of chat",
        ),
        ({"error": {"message": "boom"}}, ("openai", "chat"), "boom"),
        (
            responses(error={"code": "server_error", "message": "boom"}, status="failed"),
            ("openai", "responses"),
            "boom",
        ),
        ({"error": {"message": "boom"}}, ("openai", "embedding"), "openai returned an error: boom"),
        ({"object": "list", "data": []}, ("openai", "embedding"), "not a response from the 'embedding' API"),
        ({"data": [{"url": None}]}, ("openai", "image"), "not a response from the 'image' API"),
        ({}, ("openai", "chat"), "choices"),
        (3, ("openai", "chat"), "int"),
    ],
)
def test_invalid_response_is_refused(answer: object, target: tuple[str, str | None], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        read_answer(answer, *target)


def test_image_data_is_returned_unchanged() -> None:
    data = base64.b64encode(bytes(300)).decode()
    answer = {"data": [{"b64_json": data}, {"url": "https://x", "index": 0}]}
    assert read_answer(answer, api="image") == [data, "https://x"]
