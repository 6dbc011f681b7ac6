"""The judges refuse broken payloads, when called directly and in the fake servers."""

import re

import pytest

from support.model_server.server import ModelServer
from support.providers.judges import (
    BROKEN,
    CACHED_LONG,
    IMAGE,
    PIECES,
    PNG,
    REASONING,
    RESULT,
    RULES,
    TEXT,
    A,
    U,
    calls,
    contents,
    in_order,
    items,
    msg,
    parts,
    told,
    turns,
)
from support.providers.loopback import Loopback, judge, refusals, send
from support.providers.types import PROVIDERS, Payload, strictly

SHORT = {"type": "ephemeral"}
SOURCE = {"type": "base64", "media_type": "image/png", "data": PNG}
DATA = f"data:image/png;base64,{PNG}"
PICTURE = {"type": "image_url", "image_url": {"url": DATA}}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "minLength": 1}}, "required": ["city"]}
ANTHROPIC_TOOL = {"name": "weather", "description": "Rain?", "input_schema": SCHEMA}
INLINE = {"inline_data": {"mime_type": "image/png", "data": PNG}}
LOCAL_CALL = msg("assistant", "", tool_calls=[{"function": {"name": "weather", "arguments": {}}}] * 2)
LOCAL_RESULT = {"role": "tool", "tool_name": "weather", "content": "Rain."}
IDS = [f"{provider}: {label}" for provider, label, _ in BROKEN]


@pytest.mark.parametrize(("provider", "label", "payload"), BROKEN, ids=IDS)
def test_judge_refuses_broken_payload(provider: str, label: str, payload: Payload) -> None:
    with pytest.raises(ValueError, match="."):
        judge(provider, payload)
    assert label


@pytest.mark.parametrize("kind", [Loopback, ModelServer])
def test_fake_servers_refuse_a_payload_that_the_judge_refuses(kind: type[Loopback | ModelServer]) -> None:
    with kind() as server, pytest.raises(refusals("openai"), match="did not have response messages"):
        send("openai", turns("UC1"), server.url("openai"))
    assert [bool(seen.refusal) for seen in server.seen] == [True]


def test_each_provider_has_broken_payloads() -> None:
    assert {provider for provider, _, _ in BROKEN} == set(PROVIDERS) == set(RULES)
    assert len(IDS) == len(set(IDS)) > 100


WRONG_TYPES: list[tuple[str, Payload, str]] = [
    ("openai", turns("U", temperature=1), "keys"),
    ("openai", {}, "keys"),
    ("openai", turns("U", A | {"reasoning_content": "Hm."}, "U"), "messages.1.reasoning_content: unknown"),
    ("openai", turns(msg("user", [PICTURE | {"image_url": DATA}])), "messages.0.content.0.image_url"),
    ("openai", turns("U", tools=[ANTHROPIC_TOOL]), "tools.0"),
    ("openai", turns("U", calls("call_1"), msg("tool", "Rain.")), "messages.2.tool_call_id: missing"),
    ("deepseek", turns("U", A | {"reasoning_content": None}, "U"), "messages.1.reasoning_content"),
    ("xai", turns(msg("user", [{"type": "video_url", "video_url": {"url": DATA}}])), "messages.0.content.0"),
    ("moonshot", turns(msg("user", [{"type": "video_url", "video_url": DATA}])), "messages.0.content.0.video_url"),
    ("zhipu", turns("U", msg("assistant", [TEXT])), "messages.1.content"),
    ("mistral", turns(U | {"name": "Ann"}), "messages.0.name: unknown"),
    ("mistral", turns("U", tools=[{"type": "function", "function": {"name": "now"}}]), "function.parameters: missing"),
    ("mistral", turns("U", A | {"reasoning_content": "Hm."}, "U"), "messages.1.reasoning_content: unknown"),
    ("ollama", turns(U | {"name": "Ann"}), "messages.0.name: unknown"),
    ("ollama", turns("U", msg("assistant", None)), "messages.1.content"),
    ("dashscope", turns("U", msg("assistant", [{"text": None}]), "U"), "text is None"),
    ("dashscope", turns(U | {"name": "Ann"}), "messages.0.name: unknown"),
    ("anthropic", turns("UT", msg("user", [RESULT | {"is_error": "true"}])), "messages.2.content.0.is_error"),
    ("anthropic", turns("U", msg("assistant", [{"type": "thinking", "thinking": "Hm."}])), "signature: missing"),
    ("anthropic", turns(msg("user", [IMAGE])), "messages.0.content.0.type"),
    ("gemini", contents(parts("user", {"inlineData": INLINE["inline_data"]})), "inlineData: unknown"),
    ("gemini", contents(parts("user", {"inline_data": {"data": "?", "mime_type": "image/png"}})), "is no bytes"),
    ("openai-responses", items("U", msg("assistant", [{"type": "output_text", "text": "It is."}])), "input.1"),
    ("openai-responses", {"input": "Is it raining?"}, "input"),
]


@pytest.mark.parametrize(("provider", "payload", "where"), WRONG_TYPES)
def test_wrong_types_are_reported_with_their_path(provider: str, payload: Payload, where: str) -> None:
    with pytest.raises(ValueError, match=re.escape(where)):
        strictly(provider, payload)


WRONG_ORDER: list[tuple[str, Payload, str]] = [
    ("openai", turns("U", tools=[]), "too short"),
    ("openai", turns("U", A | {"tool_calls": []}), "too short"),
    ("vllm", turns("UC1AU"), "did not have response"),
    ("ollama-generate", {"prompt": "What is it?", "images": ["picture.png"]}, "base64"),
    ("ollama", turns("U", LOCAL_CALL, LOCAL_RESULT, "U"), "did not have response"),
    ("ollama", turns("U", LOCAL_CALL, LOCAL_RESULT | {"tool_name": "time"}, LOCAL_RESULT), "preceding"),
    ("dashscope-multimodal", turns(msg("user", [])), "empty"),
    ("anthropic", turns("UT", msg("user", [RESULT | {"content": [TEXT | {"text": ""}]}])), "empty"),
    ("anthropic", turns(msg("user", [TEXT | {"text": " \n"}])), "non-empty"),
    ("anthropic", turns("U", system=[TEXT | {"text": ""}]), "system"),
    ("anthropic", turns("U", tools=[ANTHROPIC_TOOL, ANTHROPIC_TOOL]), "unique"),
    ("anthropic", turns(msg("user", [CACHED_LONG]), tools=[ANTHROPIC_TOOL | {"cache_control": SHORT}]), "ttl"),
    ("anthropic", turns(msg("user", [{"type": "image", "source": SOURCE | {"data": DATA}}])), "base64"),
    ("gemini", contents(parts("user", {"text": "What?", **INLINE})), "oneof"),
    ("gemini", contents("u", parts("model", {"function_call": {"name": "a b"}}), told(name="a b")), "function name"),
    ("openai-responses", items("U", REASONING, "U"), "reasoning"),
    ("openai-responses", items("U", PIECES["c"] | {"arguments": "Paris"}, "o"), "arguments"),
]


@pytest.mark.parametrize(("provider", "payload", "why"), WRONG_ORDER)
def test_judge_refuses_well_typed_payload_that_breaks_another_rule(provider: str, payload: Payload, why: str) -> None:
    strictly(provider, payload)
    with pytest.raises(ValueError, match=why):
        in_order(provider, payload)
