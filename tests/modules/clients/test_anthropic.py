"""Anthropic's official client, as the modules use it."""

from collections.abc import Mapping
from typing import Any

import pytest

from lazyprompt.errors import ModuleError
from lazyprompt.formatters.formatter import ChatFormatter
from lazyprompt.messages.msg import ThinkingBlock, ToolUseBlock
from lazyprompt.modules.clients import anthropic
from lazyprompt.modules.clients._base import ClientSettings, OfficialClient, Request
from lazyprompt.modules.clients.anthropic import expressible
from modules.clients.helpers import ClientTests
from support.model_server.server import Answer, HalfCall, ModelServer

pytestmark = pytest.mark.slow  # a real client

HI = {"role": "user", "content": "hi"}
OLD_VERSION = {"anthropic-version": "2023-06-01"}


class TestAnthropicClient(ClientTests):
    provider = "anthropic"

    def connect(self, settings: ClientSettings) -> OfficialClient:
        return anthropic.connect(settings)

    def test_incomplete_tool_call_arguments_become_raw_input(self, server: ModelServer, client: OfficialClient) -> None:
        server.answer = Answer("", calls=(("c1", "weather", {"city": "Paris"}),))
        server.faults = lambda _: HalfCall()
        msg, deltas, complete = self.streamed(client, self.request(client))
        call = msg.content[0]
        assert isinstance(call, ToolUseBlock)
        assert call.raw_input == "".join(delta.text for delta in deltas) == '{"city":'
        assert complete

    @pytest.mark.filterwarnings("ignore:The model .* is deprecated")
    def test_large_max_tokens_are_sent_without_streaming(self, server: ModelServer, client: OfficialClient) -> None:
        server.answer = Answer("pong")
        for model in ("claude-opus-4-5", "claude-opus-4-1-20250805@m"):
            client.send(self.request(client, HI, model=model, max_tokens=200_000))
        assert [seen.body["max_tokens"] for seen in server.seen] == [200_000, 200_000]

    def test_common_parameters_are_renamed(self, client: OfficialClient) -> None:
        assert client.params({}) == {"max_tokens": anthropic.DEFAULT_MAX_TOKENS}
        kept = {"max_tokens": 7, "metadata": {"user_id": "u"}}
        assert client.params({**kept, "stop": ["a"]}) == {**kept, "stop_sequences": ["a"]}

    def test_thinking_budget_is_added_to_the_default_max_tokens(self, client: OfficialClient) -> None:
        thinking = {"type": "enabled", "budget_tokens": 2000}
        assert client.params({"thinking": thinking})["max_tokens"] == anthropic.DEFAULT_MAX_TOKENS + 2000
        assert client.params({"thinking": thinking, "max_tokens": 2001})["max_tokens"] == 2001
        assert client.params({"thinking": {"type": "adaptive"}})["max_tokens"] == anthropic.DEFAULT_MAX_TOKENS

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("seed", "does not accept 'seed'; remove it$"),
            ("temperature", "does not accept 'temperature'; remove it, or .*2023-06-01"),
            ("top_p", "does not accept 'top_p'; remove it, or .*2023-06-01"),
            ("max_token", "does not accept 'max_token' \\(did you mean 'max_tokens'\\?\\); remove it$"),
        ],
    )
    def test_unsupported_parameters_are_rejected(self, client: OfficialClient, name: str, words: str) -> None:
        with pytest.raises(ModuleError, match=words):
            client.params({name: 1})

    def test_temperature_is_sent_with_the_api_version_that_the_error_advises(self, server: ModelServer) -> None:
        with self.opened(server, default_headers=OLD_VERSION) as client:
            client.send(self.request(client, HI, extra_body={"temperature": 0.5}))
        assert server.seen[0].headers["anthropic-version"] == "2023-06-01"
        assert server.seen[0].body["temperature"] == 0.5

    def test_auth_token_option_replaces_the_key(self, server: ModelServer) -> None:
        with self.opened(server, key=None, auth_token="other") as client:  # noqa: S106 - no secret
            client.send(self.request(client))
        assert server.seen[0].headers["authorization"] == "Bearer other"

    def test_schema_is_sent_in_the_form_that_the_api_accepts(self, server: ModelServer, client: OfficialClient) -> None:
        schema: Any = {
            "type": "object",
            "properties": {"size": {"type": "integer", "minimum": 1}, "name": {"type": "string"}},
            "required": ["size"],
        }
        asked = client.structured(schema, "thing")
        assert asked is not None
        made = asked["output_config"]["format"]["schema"]
        assert made["additionalProperties"] is False
        assert made["properties"]["size"] == {"type": "integer", "description": "{minimum: 1}"}
        client.send(Request("m", self.formatter.format(HI), {**client.params({}), **asked}))
        assert server.seen[0].body["output_config"] == {"format": {"type": "json_schema", "schema": made}}
        assert client.structured({"type": "object", "additionalProperties": {"type": "string"}}, "x") is None

    def test_old_client_package_sends_no_schema(self, client: OfficialClient, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr("anthropic.transform_schema")
        assert client.structured({"type": "object", "properties": {}}, "x") is None

    def test_unlisted_anthropic_error_is_a_request_fault(self, client: OfficialClient) -> None:
        from anthropic import AnthropicError, CredentialsError  # noqa: PLC0415 - slow

        kinds = [client.fault(error) for error in (AnthropicError("no"), CredentialsError("none"))]
        assert [fault and fault.kind for fault in kinds] == ["request", "key"]


DEFINED: Mapping[str, Any] = {
    "$defs": {"A": {"type": "object", "properties": {"b": {"$ref": "#/$defs/B"}}}, "B": {"type": "string"}}
}


@pytest.mark.parametrize(
    ("schema", "fits"),
    [
        ({"type": "object", "properties": {"a": {"type": "string"}}}, True),
        ({"type": "object", "additionalProperties": False}, True),
        *(({key: [{"type": "string"}, {"type": "null"}]}, True) for key in ("anyOf", "oneOf", "allOf")),
        *(({key: [{"type": "string"}, {}]}, False) for key in ("anyOf", "oneOf", "allOf")),
        *(({"type": kind}, True) for kind in ("object", "array", "string", "integer", "number", "boolean", "null")),
        ({"type": "file"}, False),
        ({"enum": ["a", "b"]}, True),
        ({"type": "array", "items": {"const": 1}}, True),
        ({**DEFINED, "$ref": "#/$defs/A"}, True),
        ({**DEFINED, "type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}}, True),
        ({}, False),
        ({"type": "object", "additionalProperties": True}, False),
        ({"type": "array", "items": {"type": "object", "additionalProperties": {"type": "string"}}}, False),
        ({"type": ["string", "null"]}, False),
        ({"type": "object", "properties": {"any": {}}}, False),
        ({"$ref": "#/definitions/A", "definitions": {"A": {"type": "string"}}}, False),
        ({"$ref": "https://example.org/schema"}, False),
        ({"$defs": {"A": {"type": "array", "items": {"$ref": "#/$defs/A"}}}, "$ref": "#/$defs/A"}, False),
    ],
)
def test_expressible_accepts_only_schemas_that_the_api_supports(schema: Any, fits: bool) -> None:  # noqa: FBT001 - a parameter
    assert expressible(schema) is fits


def collect(*events: Any) -> dict[str, Any]:
    client = anthropic.connect(ClientSettings(None, None, 1.0, 0, {}))
    collector = client.collector()
    for event in events:
        collector.feed(event)
    return collector.answer()


def test_streamed_reasoning_citations_and_tool_blocks_are_collected() -> None:
    block, delta = "content_block_start", "content_block_delta"
    search = {"type": "server_tool_use", "id": "s", "name": "web"}
    answer = collect(
        {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 3, "output_tokens": 1}}},
        {"type": block, "index": 0, "content_block": {"type": "redacted_thinking", "data": "x9"}},
        {"type": block, "index": 1, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
        {"type": delta, "index": 1, "delta": {"type": "signature_delta", "signature": "s"}},
        {"type": block, "index": 2, "content_block": {"type": "text", "text": "", "citations": None}},
        {"type": delta, "index": 2, "delta": {"type": "citations_delta", "citation": {"cited_text": "a"}}},
        {"type": delta, "index": 2, "delta": {"type": "text_delta", "text": "A."}},
        {"type": delta, "index": 2, "delta": {"type": "citations_delta", "citation": {"cited_text": "b"}}},
        {"type": block, "index": 3, "content_block": {**search, "input": {}}},
        {"type": delta, "index": 3, "delta": {"type": "input_json_delta", "partial_json": '{"q":1}'}},
        {"type": block, "index": 4, "content_block": {"type": "web_search_tool_result", "content": []}},
        {"type": block, "index": 5, "content_block": {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
    )
    assert answer == {
        "id": "m",
        "usage": {"input_tokens": 3, "output_tokens": 9},
        "stop_reason": "tool_use",
        "content": [
            {"type": "redacted_thinking", "data": "x9"},
            {"type": "thinking", "thinking": "", "signature": "s"},
            {"type": "text", "text": "A.", "citations": [{"cited_text": "a"}, {"cited_text": "b"}]},
            {**search, "input": {"q": 1}},
            {"type": "web_search_tool_result", "content": []},
            {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
        ],
    }
    msg = ChatFormatter("anthropic").parse(answer)
    assert [type(block) for block in msg.content][:2] == [ThinkingBlock, ThinkingBlock]


@pytest.mark.parametrize(
    "event",
    [
        None,
        "text",
        [],
        {},
        {"type": None},
        {"type": "content_block_delta"},
        {"type": "content_block_delta", "index": "x", "delta": []},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": None}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": [], "text": "unknown"}},
        {"type": "content_block_start", "index": 0, "content_block": None},
        {"type": "content_block_stop"},
        {"type": "message_start"},
        {"type": "message_delta", "usage": 3},
    ],
)
def test_invalid_events_are_ignored(event: object) -> None:
    assert not anthropic.connect(ClientSettings(None, None, 1.0, 0, {})).collector().feed(event)
    assert ChatFormatter("anthropic").parse(collect(event)).text == ""
