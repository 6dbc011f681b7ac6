"""The judges judged: good payloads pass, broken ones do not, neither in the process nor over the wire."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import TypeAdapter

from support.providers.judges import (
    BROKEN,
    CACHED,
    CACHED_LONG,
    FUNCTION,
    IMAGE,
    NINTH,
    PIECES,
    PNG,
    REASONING,
    RESULT,
    RULES,
    TEXT,
    THOUGHT,
    USE,
    A,
    S,
    U,
    calls,
    contents,
    in_order,
    items,
    parts,
    said,
    told,
    turns,
)
from support.providers.loopback import Loopback, judge, refusals, send, text_of
from support.providers.types import OPENAI_CHAT, PROVIDERS, Payload, many, sdk, strictly

if TYPE_CHECKING:
    from collections.abc import Iterator

SHORT = {"type": "ephemeral"}
SOURCE = {"type": "base64", "media_type": "image/png", "data": PNG}
DATA = f"data:image/png;base64,{PNG}"
PICTURE = {"type": "image_url", "image_url": {"url": DATA}}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "minLength": 1}}, "required": ["city"]}
FORECAST = {"type": "function", "function": {"name": "weather", "description": "Rain?", "parameters": SCHEMA}}
TWO_USES = said("assistant", [THOUGHT, TEXT, USE, USE | {"id": "toolu_2"}])
TWO_RESULTS = said("user", [RESULT, RESULT | {"tool_use_id": "toolu_2", "is_error": True}, TEXT])
ANTHROPIC_TOOL = {"name": "weather", "description": "Rain?", "input_schema": SCHEMA}
DECLARED = {"name": "weather", "description": "Rain?", "parameters_json_schema": SCHEMA}
INLINE = {"inline_data": {"mime_type": "image/png", "data": PNG}}
TIME = {
    "function_call": {"name": "time", "args": {"the_zone": "CET", "theDay": 1}, "id": "c2"},
    "thought_signature": PNG,
}
TIMED = {"function_response": {"name": "time", "response": {"isLate": True, "at_all": 1}, "id": "c2"}}
LOCAL_CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"function": {"name": "weather", "arguments": {}}}] * 2,
}
NUMBERED = LOCAL_CALL | {"tool_calls": [{"id": "call_1", "function": {"name": "weather", "arguments": {}}}]}
LOCAL_RESULT = {"role": "tool", "tool_name": "weather", "content": "Rain."}
LISTED = [said(one["role"], [{"text": one["content"]}]) for one in (S, U, A)]
FLAT_TOOL = {"type": "function", "name": "weather", "parameters": SCHEMA, "strict": False}
WRITTEN = {"type": "output_text", "text": "It is.", "annotations": []}
MESSAGE = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [WRITTEN]}

PLAIN: dict[str, Payload] = {
    **{provider: turns("SUAU") for provider in (*OPENAI_CHAT, "zhipu", "mistral", "ollama", "dashscope")},
    "dashscope-multimodal": turns(
        *LISTED, said("user", [{"image": "https://example.com/a.png"}, {"text": "And here?"}])
    ),
    "ollama-generate": {"prompt": "Is it raining?", "system": "Be brief.", "images": [PNG]},
    "openai-responses": items("UA", said("user", [{"type": "input_text", "text": "Why?"}]), instructions="Be brief."),
    "anthropic": turns("UAU", system="Be brief."),
    "gemini": contents("umu", system_instruction="Be brief."),
}
TOOLS: dict[str, Payload] = {
    **{provider: turns("SUC12AU", tools=[FORECAST]) for provider in (*OPENAI_CHAT, "zhipu", "dashscope")},
    "mistral": turns("SU", calls("call00001"), NINTH, "AU", tools=[FORECAST]),
    "dashscope-multimodal": turns(
        *LISTED[:2],
        said("assistant", [{"text": None}], tool_calls=PIECES["C"]["tool_calls"]),
        said("tool", [{"text": "Rain."}], tool_call_id="call_2", name="weather"),
        said("tool", [{"text": "Rain."}], tool_call_id="call_1", name="weather"),
        tools=[FORECAST],
    ),
    "ollama": turns("SU", LOCAL_CALL, LOCAL_RESULT, LOCAL_RESULT, "AU", tools=[FORECAST]),
    "openai-responses": items(
        "U",
        REASONING,
        "c",
        PIECES["c"] | {"call_id": "call_2"},
        "o",
        PIECES["o"] | {"call_id": "call_2"},
        tools=[FLAT_TOOL],
    ),
    "anthropic": turns("U", TWO_USES, TWO_RESULTS, "A", tools=[ANTHROPIC_TOOL]),
    "gemini": contents(
        "u",
        parts("model", FUNCTION, TIME),
        parts("user", TIMED, told()["parts"][0]),
        "mu",
        tools=[{"function_declarations": [DECLARED]}],
    ),
}
MORE: list[tuple[str, Payload]] = [
    ("openai", turns(S | {"role": "developer", "name": "boss"}, said("user", [PICTURE, TEXT], name="Ann"), "A")),
    ("openai", turns("U", said("assistant", None, tool_calls=PIECES["C"]["tool_calls"]), "21")),
    ("openai", turns("U", calls("call_1"), PIECES["1"] | {"name": "weather"})),
    ("litellm", turns("U", A | {"thinking_blocks": [THOUGHT]}, "U")),
    ("deepseek", turns("SU", A | {"reasoning_content": "Hm."}, "U")),
    ("moonshot", turns("U", calls("call_1") | {"reasoning_content": "Hm."}, "1")),
    ("moonshot", turns(said("user", [{"type": "video_url", "video_url": {"url": "https://example.com/a.mp4"}}]))),
    ("zhipu", turns("U", A | {"reasoning_content": "Hm."}, said("user", [IMAGE, TEXT]))),
    ("mistral", turns("U", A | {"content": "It", "prefix": True})),
    ("mistral", turns("U", said("assistant", [{"type": "thinking", "thinking": [TEXT]}, TEXT]), "U")),
    (
        "mistral",
        turns(said("user", [IMAGE, {"type": "document_url", "document_url": "https://example.com/a.pdf"}, TEXT])),
    ),
    ("vllm", turns(said("user", [{"type": "audio_url", "audio_url": {"url": "https://example.com/a.wav"}}, TEXT]))),
    ("ollama", turns(U | {"images": [PNG]}, A | {"thinking": "Hm."})),
    ("ollama", turns("U", NUMBERED, "1")),
    ("anthropic", turns(said("user", [CACHED_LONG, CACHED]), system=[CACHED_LONG], tools=[ANTHROPIC_TOOL])),
    ("anthropic", turns(said("user", [{"type": "image", "source": SOURCE}]))),
    (
        "gemini",
        contents(parts("user", INLINE, {"text": "What is it?"}), system_instruction={"parts": [{"text": "Be brief."}]}),
    ),
    ("gemini", contents("u", tools=[{"function_declarations": [{"name": "weather", "parameters": SCHEMA}]}])),
    ("openai-responses", items("U", REASONING, MESSAGE, "U")),
    (
        "openai-responses",
        items("U", "c", PIECES["o"] | {"output": [{"type": "input_image", "image_url": DATA, "detail": "auto"}]}),
    ),
]
GOOD = [*((provider, made[provider]) for made in (PLAIN, TOOLS) for provider in PROVIDERS if provider in made), *MORE]
IDS = [f"{provider}: {label}" for provider, label, _ in BROKEN]


@pytest.fixture(scope="module")
def server() -> Iterator[Loopback]:
    with Loopback() as server:
        yield server


@pytest.mark.parametrize(("provider", "payload"), GOOD)
def test_good_payloads_pass(provider: str, payload: Payload) -> None:
    before = deepcopy(payload)
    strictly(provider, payload)
    in_order(provider, payload)
    assert payload == before


@pytest.mark.parametrize(("provider", "payload"), GOOD)
def test_good_payloads_arrive_as_they_are(provider: str, payload: Payload, server: Loopback) -> None:
    before = deepcopy(payload)
    response = send(provider, payload, server.url(provider))
    assert text_of(provider, response) == "pong"
    assert payload == before
    seen = server.seen[-1]
    assert (seen.provider, seen.refusal) == (provider, None)
    assert at_home(provider, seen.payload) == at_home(provider, dict(payload))


def at_home(provider: str, payload: dict[str, Any]) -> dict[str, Any]:
    """A payload without what the clients are known to change on the way."""
    if provider == "gemini" and isinstance(system := payload.get("system_instruction"), str):
        payload = payload | {"system_instruction": {"role": "user", "parts": [{"text": system}]}}
    if provider == "gemini" and "'parameters'" in str(payload):  # spells the types of a Schema in capitals
        return {"contents": payload["contents"]}
    if provider == "ollama":  # drops ids, and what its types for JSON Schema do not know
        return {"said": [(one["role"], one["content"], one.get("images")) for one in payload["messages"]]}
    if provider == "zhipu":  # takes the head off a data URI
        return {key: str(value).replace("data:image/png;base64,", "") for key, value in payload.items()}
    return payload


@pytest.mark.parametrize(("provider", "label", "payload"), BROKEN, ids=IDS)
def test_broken_payloads_are_refused(provider: str, label: str, payload: Payload) -> None:
    with pytest.raises(ValueError, match="."):
        judge(provider, payload)
    assert label


@pytest.mark.parametrize(("provider", "label", "payload"), BROKEN, ids=IDS)
def test_the_wire_refuses_broken_payloads(provider: str, label: str, payload: Payload, server: Loopback) -> None:
    server.seen.clear()
    with pytest.raises(refusals(provider)) as caught:
        server.send(provider, payload)
    for seen in server.seen:  # nothing, where the client refuses by itself
        assert seen.refusal, label
        assert provider == "xai" or seen.refusal[:20] in str(caught.value)  # OpenAI's client cannot read xAI's errors


def test_every_provider_has_broken_payloads() -> None:
    assert {provider for provider, _, _ in BROKEN} == set(PROVIDERS) == set(RULES)
    assert len(IDS) == len(set(IDS)) > 100


WRONG_TYPES: list[tuple[str, Payload, str]] = [
    ("openai", turns("U", temperature=1), "keys"),
    ("openai", {}, "keys"),
    ("openai", turns("U", A | {"reasoning_content": "Hm."}, "U"), "messages.1.reasoning_content: unknown"),
    ("openai", turns(said("user", [PICTURE | {"image_url": DATA}])), "messages.0.content.0.image_url"),
    ("openai", turns("U", tools=[ANTHROPIC_TOOL]), "tools.0"),
    ("openai", turns("U", calls("call_1"), said("tool", "Rain.")), "messages.2.tool_call_id: missing"),
    ("deepseek", turns("U", A | {"reasoning_content": None}, "U"), "messages.1.reasoning_content"),
    ("xai", turns(said("user", [{"type": "video_url", "video_url": {"url": DATA}}])), "messages.0.content.0"),
    ("moonshot", turns(said("user", [{"type": "video_url", "video_url": DATA}])), "messages.0.content.0.video_url"),
    ("zhipu", turns("U", said("assistant", [TEXT])), "messages.1.content"),
    ("mistral", turns(U | {"name": "Ann"}), "messages.0.name: unknown"),
    ("mistral", turns("U", tools=[{"type": "function", "function": {"name": "now"}}]), "function.parameters: missing"),
    ("mistral", turns("U", A | {"reasoning_content": "Hm."}, "U"), "messages.1.reasoning_content: unknown"),
    ("ollama", turns(U | {"name": "Ann"}), "messages.0.name: unknown"),
    ("ollama", turns("U", said("assistant", None)), "messages.1.content"),
    ("dashscope", turns("U", said("assistant", [{"text": None}]), "U"), "text is None"),
    ("dashscope", turns(U | {"name": "Ann"}), "messages.0.name: unknown"),
    ("anthropic", turns("UT", said("user", [RESULT | {"is_error": "true"}])), "messages.2.content.0.is_error"),
    ("anthropic", turns("U", said("assistant", [{"type": "thinking", "thinking": "Hm."}])), "signature: missing"),
    ("anthropic", turns(said("user", [IMAGE])), "messages.0.content.0.type"),
    ("gemini", contents(parts("user", {"inlineData": INLINE["inline_data"]})), "inlineData: unknown"),
    ("gemini", contents(parts("user", {"inline_data": {"data": "?", "mime_type": "image/png"}})), "is no bytes"),
    ("openai-responses", items("U", said("assistant", [{"type": "output_text", "text": "It is."}])), "input.1"),
    ("openai-responses", {"input": "Is it raining?"}, "input"),
]


@pytest.mark.parametrize(("provider", "payload", "where"), WRONG_TYPES)
def test_wrong_types_are_told_with_their_place(provider: str, payload: Payload, where: str) -> None:
    with pytest.raises(ValueError, match=re.escape(where)):
        strictly(provider, payload)


WRONG_ORDER: list[tuple[str, Payload, str]] = [
    ("openai", turns("U", tools=[]), "too short"),
    ("openai", turns("U", A | {"tool_calls": []}), "too short"),
    ("vllm", turns("UC1AU"), "did not have response"),
    ("ollama-generate", {"prompt": "What is it?", "images": ["picture.png"]}, "base64"),
    ("ollama", turns("U", LOCAL_CALL, LOCAL_RESULT, "U"), "did not have response"),
    ("ollama", turns("U", LOCAL_CALL, LOCAL_RESULT | {"tool_name": "time"}, LOCAL_RESULT), "preceding"),
    ("dashscope-multimodal", turns(said("user", [])), "empty"),
    ("anthropic", turns("UT", said("user", [RESULT | {"content": [TEXT | {"text": ""}]}])), "empty"),
    ("anthropic", turns(said("user", [TEXT | {"text": " \n"}])), "non-empty"),
    ("anthropic", turns("U", system=[TEXT | {"text": ""}]), "system"),
    ("anthropic", turns("U", tools=[ANTHROPIC_TOOL, ANTHROPIC_TOOL]), "unique"),
    ("anthropic", turns(said("user", [CACHED_LONG]), tools=[ANTHROPIC_TOOL | {"cache_control": SHORT}]), "ttl"),
    ("anthropic", turns(said("user", [{"type": "image", "source": SOURCE | {"data": DATA}}])), "base64"),
    ("gemini", contents(parts("user", {"text": "What?", **INLINE})), "oneof"),
    ("gemini", contents("u", parts("model", {"function_call": {"name": "a b"}}), told(name="a b")), "function name"),
    ("openai-responses", items("U", REASONING, "U"), "reasoning"),
    ("openai-responses", items("U", PIECES["c"] | {"arguments": "Paris"}, "o"), "arguments"),
]


@pytest.mark.parametrize(("provider", "payload", "why"), WRONG_ORDER)
def test_the_order_is_judged_beyond_the_types(provider: str, payload: Payload, why: str) -> None:
    strictly(provider, payload)
    with pytest.raises(ValueError, match=why):
        in_order(provider, payload)


@pytest.mark.parametrize("payload", [PLAIN["openai"], TOOLS["openai"], PLAIN["vllm"], TOOLS["vllm"]])
def test_mistral_and_cohere_think_so_too(payload: Payload) -> None:
    request = sdk("mistralai.client.models").ChatCompletionRequest
    messages: TypeAdapter[Any] = TypeAdapter(many(sdk("cohere").ChatMessageV2))
    request.model_validate({"model": "m", **payload})
    messages.validate_python(payload["messages"])
    for broken in (turns(A | {"role": "model"}), {"messages": [{"role": "user"}]}):
        with pytest.raises(ValueError, match="validation error"):
            request.model_validate({"model": "m", **broken})
        with pytest.raises(ValueError, match="validation error"):
            messages.validate_python(broken["messages"])


def test_the_answer_can_be_set() -> None:
    with Loopback({"ollama-generate": {"response": "Rain.", "done": True}}) as server:
        assert server.send("ollama-generate", PLAIN["ollama-generate"]).response == "Rain."
        called = {"functionCall": {"name": "weather", "args": {}}}
        server.answer = {"gemini": {"candidates": [{"content": parts("model", called)}]}}
        assert server.send("gemini", PLAIN["gemini"]).function_calls[0].name == "weather"
        assert server.send("ollama-generate", PLAIN["ollama-generate"]).response == "pong"
    assert [seen.provider for seen in server.seen] == ["ollama-generate", "gemini", "ollama-generate"]
    assert server.seen[1].headers["x-goog-api-key"] == "k"
    assert server.seen[1].body["systemInstruction"]["parts"] == [{"text": "Be brief."}]


def test_there_is_nothing_elsewhere(server: Loopback) -> None:
    with pytest.raises(sdk("openai").NotFoundError, match="there is nothing at"):
        send("openai", PLAIN["openai"], server.url("openai") + "/v2")


def test_dashscope_keeps_its_address(server: Loopback) -> None:
    before = sdk("dashscope").base_http_api_url
    server.send("dashscope", PLAIN["dashscope"])
    assert sdk("dashscope").base_http_api_url == before
