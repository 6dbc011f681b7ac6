"""From messages to the wire and back: formatted, sent with the official client, judged, answered, parsed."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from lazyprompt import (
    AudioBlock,
    Base64Source,
    ChatFormatter,
    FileBlock,
    FormatError,
    ImageBlock,
    Msg,
    MultiAgentFormatter,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    URLSource,
    VideoBlock,
)
from lazyprompt.formatters.providers import rows
from support.conversations import MP4, PDF, PNG, WAV
from support.providers.judges import BROKEN
from support.providers.loopback import Loopback, answer_of, refusals
from support.providers.types import PROVIDERS, Payload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lazyprompt.messages.msg import Block

ARGUMENTS: dict[str, Any] = {"city": "Zürich", "days": [1, 2.5, None, {"deep": "“ja”\n"}]}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "weather", "description": "Rain?", "parameters": SCHEMA}}
SYSTEM, QUESTION = Msg("system", "Be brief.", "system"), Msg("user", "Is it raining?", "user")
ANSWER = Msg("assistant", "It is.", "assistant")
CALLS = Msg(
    "assistant",
    [TextBlock("I look."), ToolUseBlock("call_0", "weather", ARGUMENTS), ToolUseBlock("call_1", "weather", {})],
    "assistant",
)
RESULTS = Msg("tool", [ToolResultBlock("call_1", "weather", "Sun."), ToolResultBlock("call_0", output="Rain.")], "tool")
SAID: dict[str, list[Msg]] = {
    "plain": [QUESTION, ANSWER, QUESTION],
    "system": [SYSTEM, QUESTION, ANSWER, SYSTEM, QUESTION],
    "tools": [SYSTEM, QUESTION, CALLS, RESULTS, QUESTION],
    "agents": [SYSTEM, Msg("Ann", "Hi.", "user"), Msg("Bob", "Hello.", "assistant"), CALLS, RESULTS, QUESTION],
}
MEDIA: dict[str, dict[str, Block]] = {
    "image": {
        "url": ImageBlock(URLSource("https://example.com/a.png")),
        "data": ImageBlock(Base64Source("image/png", PNG)),
    },
    "audio": {
        "url": AudioBlock(URLSource("https://example.com/a.wav")),
        "data": AudioBlock(Base64Source("audio/wav", WAV)),
    },
    "video": {
        "url": VideoBlock(URLSource("https://example.com/a.mp4")),
        "data": VideoBlock(Base64Source("video/mp4", MP4)),
    },
    "file": {
        "url": FileBlock(URLSource("https://example.com/a.pdf")),
        "data": FileBlock(Base64Source("application/pdf", PDF), filename="a.pdf"),
    },
}
TAKEN = {
    row.provider: [each for kind in MEDIA for way, each in MEDIA[kind].items() if way in row.cells[kind]]
    for row in rows()
}
CALLING = [row.provider for row in rows() if row.cells["tool_use"] != "no"]
THINKING = {row.provider for row in rows() if row.cells["thinking"] != "no"}
USAGE = {"prompt_tokens": 30, "completion_tokens": 12, "total_tokens": 42}


@pytest.fixture(scope="module")
def server() -> Iterator[Loopback]:
    with Loopback() as server:
        yield server


def accepted(server: Loopback, provider: str, payload: Payload) -> Any:
    """What the client gives back for a payload that the validator and the server take."""
    ChatFormatter(provider).validate(payload)
    response = server.send(provider, payload)
    assert (server.seen[-1].provider, server.seen[-1].refusal) == (provider, None)
    return response


@pytest.mark.parametrize("kind", SAID)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_conversation_is_accepted_and_answered(provider: str, kind: str, server: Loopback) -> None:
    formatter = (MultiAgentFormatter if kind == "agents" else ChatFormatter)(provider)
    payload = formatter.format(*SAID[kind], tools=[TOOL] if provider in CALLING else None)
    answer = formatter.parse(accepted(server, provider, payload), "Friday")
    assert answer == Msg("Friday", "pong", "assistant")
    accepted(server, provider, formatter.format(*SAID[kind], answer, QUESTION))


@pytest.mark.parametrize("provider", PROVIDERS)
def test_all_media_that_a_provider_takes_are_accepted(provider: str, server: Loopback) -> None:
    blocks = TAKEN[provider]
    payload = ChatFormatter(provider, strict=True).format(Msg("user", [TextBlock("What is this?"), *blocks], "user"))
    accepted(server, provider, payload)
    if provider in CALLING:
        result = Msg(
            "tool", [ToolResultBlock("call_1", output=(TextBlock("See."), *blocks)), RESULTS.blocks[1]], "tool"
        )
        accepted(server, provider, ChatFormatter(provider, strict=True).format(QUESTION, CALLS, result))


def chat_message(provider: str) -> dict[str, Any]:
    functions = {"name": "weather", "arguments": json.dumps(ARGUMENTS)}, {"name": "weather", "arguments": "{}"}
    calls = [{"id": f"call_{at}", "type": "function", "function": each} for at, each in enumerate(functions)]
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    parts: dict[str, Any] = {
        "dashscope-multimodal": [{"text": "I look."}],
        "mistral": [thinking, {"type": "text", "text": "I look."}],
    }
    said = parts.get(provider, "I look.")
    thought = {} if provider in ("openai", "mistral") else {"reasoning_content": "Hm."}
    return {"role": "assistant", "content": said, "tool_calls": calls, **thought}


def ollama_answer(provider: str) -> dict[str, Any]:
    calls = [{"function": {"name": "weather", "arguments": given}} for given in (ARGUMENTS, {})]
    counts = {"prompt_eval_count": 30, "eval_count": 12}
    if provider == "ollama-generate":
        return {"response": "I look.", "thinking": "Hm.", **counts}
    return {"message": {"role": "assistant", "content": "I look.", "thinking": "Hm.", "tool_calls": calls}, **counts}


def responses_answer(message: dict[str, Any]) -> dict[str, Any]:
    thought = {"type": "reasoning", "id": "rs_1", "encrypted_content": "gAAA"}
    call = {"type": "function_call", "name": "weather"}
    details = {"input_tokens_details": {"cached_tokens": 5}, "output_tokens_details": {"reasoning_tokens": 4}}
    return {
        "output": [
            thought | {"summary": [{"type": "summary_text", "text": "Hm."}]},
            message | {"content": [{"type": "output_text", "text": "I look.", "annotations": []}]},
            call | {"id": "fc_0", "call_id": "call_0", "arguments": json.dumps(ARGUMENTS)},
            call | {"id": "fc_1", "call_id": "call_1", "arguments": "{}"},
        ],
        "usage": {"input_tokens": 30, "output_tokens": 12, "total_tokens": 42, **details},
    }


def anthropic_answer() -> dict[str, Any]:
    return {
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
            {"type": "redacted_thinking", "data": "b3BhcXVl"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "call_0", "name": "weather", "input": ARGUMENTS},
            {"type": "tool_use", "id": "call_1", "name": "weather", "input": {}},
        ],
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 20, "output_tokens": 12},
    }


def gemini_answer() -> dict[str, Any]:
    parts = [
        {"text": "Hm.", "thought": True},
        {"text": "I look."},
        {"functionCall": {"id": "call_0", "name": "weather", "args": ARGUMENTS}, "thoughtSignature": "c2ln"},
        {"functionCall": {"id": "call_1", "name": "weather", "args": {}}},
    ]
    counts = {"promptTokenCount": 30, "candidatesTokenCount": 8, "thoughtsTokenCount": 4, "totalTokenCount": 42}
    return {"candidates": [{"content": {"role": "model", "parts": parts}}], "usageMetadata": counts}


def rich(provider: str) -> dict[str, Any]:
    """An answer of a provider with all that it can hold."""
    answer: dict[str, Any] = answer_of(provider)
    if provider.startswith("ollama"):
        return answer | ollama_answer(provider)
    if provider == "openai-responses":
        return answer | responses_answer(answer["output"][0])
    if provider == "anthropic":
        return answer | anthropic_answer()
    if provider == "gemini":
        return answer | gemini_answer()
    answer.get("output", answer)["choices"] = [
        {"index": 0, "finish_reason": "tool_calls", "message": chat_message(provider)}
    ]
    counts = {"input_tokens": 30, "output_tokens": 12, "total_tokens": 42}
    return answer | {"usage": counts if provider.startswith("dashscope") else USAGE}


def meant(provider: str) -> Msg:
    """The message that `rich` is."""
    thoughts: dict[str, list[Block]] = {
        "openai": [],
        "openai-responses": [ThinkingBlock("Hm.", "gAAA", id="rs_1", provider=provider)],
        "anthropic": [
            ThinkingBlock("Hm.", "c2ln", provider=provider),
            ThinkingBlock(redacted="b3BhcXVl", provider=provider),
        ],
    }
    signature = "c2ln" if provider == "gemini" else None
    calls: list[Block] = [
        ToolUseBlock("call_0", "weather", ARGUMENTS, signature=signature),
        ToolUseBlock("call_1", "weather"),
    ]
    bare: list[Block] = [ThinkingBlock("Hm.", provider=provider)]
    calls = calls if provider in CALLING else []
    return Msg("assistant", [*thoughts.get(provider, bare), TextBlock("I look."), *calls], "assistant")


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_answer_with_everything_goes_back_with_the_results(provider: str) -> None:
    formatter = ChatFormatter(provider)
    tools = [TOOL] if provider in CALLING else None
    with Loopback({provider: rich(provider)}) as server:
        answer = formatter.parse(accepted(server, provider, formatter.format(SYSTEM, QUESTION, tools=tools)))
        assert answer == meant(provider)
        assert answer.usage == USAGE
        assert formatter.parse(rich(provider)) == answer
        more = [RESULTS] if provider in CALLING else [QUESTION]
        payload = formatter.format(SYSTEM, QUESTION, answer, *more, tools=tools)
        accepted(server, provider, payload)
        # What was thought goes back where it is wanted, and else the report has it.
        assert ("Hm." in json.dumps(payload)) == (provider in THINKING)
        assert any(entry.kind == "thinking" for entry in payload.report) == (
            provider not in THINKING and provider != "openai"
        )
        # The loop goes on: a second answer with calls of the same ids, and results of its own.
        again = formatter.format(SYSTEM, QUESTION, answer, *more, answer, *more, tools=tools)
        accepted(server, provider, again)


@pytest.mark.parametrize("provider", CALLING)
def test_arguments_that_were_cut_off_go_back_too(provider: str, server: Loopback) -> None:
    cut = ToolUseBlock("call_0", "weather", raw_input='{"city": "Zür')
    result = ToolResultBlock("call_0", "weather", "What city?")
    payload = ChatFormatter(provider).format(
        QUESTION, Msg("assistant", [cut], "assistant"), Msg("tool", [result], "tool")
    )
    accepted(server, provider, payload)
    assert "Zür" in json.dumps(payload, ensure_ascii=False)


PATH = re.compile(
    r"^  (messages|contents|input|system|system_instruction|instructions|tools|prompt)[\w.\[\]]* ", re.MULTILINE
)


@pytest.mark.parametrize(
    ("provider", "label", "payload"), BROKEN, ids=[f"{provider}: {label}" for provider, label, _ in BROKEN]
)
def test_a_broken_payload_is_refused_before_it_is_sent(
    provider: str, label: str, payload: Payload, server: Loopback
) -> None:
    with pytest.raises(FormatError, match=f"^{provider} would refuse this payload:\n") as caught:
        ChatFormatter(provider).validate(payload)
    assert PATH.search(str(caught.value)), label
    with pytest.raises(refusals(provider)):
        server.send(provider, payload)


def test_the_broken_payloads_are_many_and_of_all_providers() -> None:
    assert len(BROKEN) > 100
    assert {provider for provider, _, _ in BROKEN} == set(PROVIDERS)
