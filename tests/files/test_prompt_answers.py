"""Answers to prompt files: as dicts and as objects of the official clients, good and bad."""

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
    ("nothing", "openai-chat", chat(), ""),
    ("no text", "openai-chat", chat(content=""), ""),
    ("refusal", "openai-chat", chat(refusal="I will not."), "I will not."),
    (
        # What was cut off is given as it came.
        "calls",
        "openai-chat",
        chat(content="I look.", tool_calls=[CALL]),
        [{"id": "c1", "name": "f", "arguments": '{"city": "Rom'}],
    ),
    ("text", "openai-responses", responses(output_message("H", "i")), "Hi"),
    ("nothing", "openai-responses", responses(), ""),
    ("no text", "openai-responses", responses(output_message("")), ""),
    ("refusal", "openai-responses", responses(REFUSED), "I will not."),
    (
        "calls",
        "azure-responses",
        responses(output_message("I look."), CALLED),
        [{"id": "c1", "name": "f", "arguments": '{"a": 1}'}],
    ),
    (
        "text",
        "anthropic-chat",
        anthropic({"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "Hi"}),
        "Hi",
    ),
    ("nothing", "anthropic-chat", anthropic(), ""),
    (
        "calls",
        "anthropic-chat",
        anthropic({"type": "text", "text": "I look."}, USED, stop="tool_use"),
        [{"id": "c1", "name": "f", "arguments": '{"city":"Köln","n":[1]}'}],
    ),
    (
        "vectors",
        "openai-embedding",
        {
            "object": "list",
            "model": "m",
            "usage": {"prompt_tokens": 1, "total_tokens": 1},
            "data": [{"object": "embedding", "index": at, "embedding": [at / 2]} for at in (1, 2, 0)],
        },
        [[0.0], [0.5], [1.0]],
    ),
    ("picture", "openai-image", {"created": 1, "data": [{"b64_json": "aGk="}]}, "aGk="),
]


@pytest.mark.parametrize(
    ("whose", "answer", "wanted"), [case[1:] for case in ANSWERS], ids=[f"{case[1]}-{case[0]}" for case in ANSWERS]
)
def test_what_an_answer_says_as_a_dict_and_as_its_clients_object(
    whose: str, answer: dict[str, Any], wanted: object
) -> None:
    for given in (answer, CLASSES[whose].model_validate(answer)):
        assert read_answer(given, *whose.split("-")) == wanted


def test_gemini_and_ollama_are_read_too() -> None:
    part = {"functionCall": {"name": "f", "args": {"a": 1}}}
    gemini = {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}]}
    calls: Any = read_answer(gemini, "gemini")
    assert [(each["name"], each["arguments"]) for each in calls] == [("f", '{"a":1}')]
    ollama = {"model": "m", "message": {"role": "assistant", "content": '{"a": 1}'}, "done": True}
    assert read_answer(ollama, "ollama", structured=True) == {"a": 1}


def test_outputs_make_an_object_of_a_text_that_is_one() -> None:
    prompt = Prompty.loads("---\nmodel: m\noutputs: {a: {kind: integer}}\n---\nuser:\nhi")
    for text, wanted in (
        ('{"a": 1}', {"a": 1}),
        ("[1, 2]", [1, 2]),
        ("", ""),
        ("no JSON", "no JSON"),
        ('```json\n{"a": 1}\n```', '```json\n{"a": 1}\n```'),
        ("[" * 100_000, "[" * 100_000),
    ):
        assert prompt.read(ChatCompletion.model_validate(chat(content=text))) == wanted
    assert prompt.read(chat(refusal="I will not.")) == "I will not."
    assert prompt.read(chat(tool_calls=[CALL])) == [{"id": "c1", "name": "f", "arguments": '{"city": "Rom'}]
    assert Prompty.loads("user:\nhi").read(chat(content='{"a": 1}')) == '{"a": 1}'
    assert prompt.read(anthropic({"type": "text", "text": '{"a": 2}'}), "anthropic") == {"a": 2}


@pytest.mark.parametrize(
    ("answer", "whose", "says"),
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
def test_what_is_no_answer_is_refused(answer: object, whose: tuple[str, str | None], says: str) -> None:
    with pytest.raises(FormatError, match=says):
        read_answer(answer, *whose)


def test_data_of_a_picture_is_given_as_it_came() -> None:
    data = base64.b64encode(bytes(300)).decode()
    answer = {"data": [{"b64_json": data}, {"url": "https://x", "index": 0}]}
    assert read_answer(answer, api="image") == [data, "https://x"]
