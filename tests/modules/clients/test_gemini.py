"""Google's official client, as the modules use it."""

from typing import Any

import pytest

from lazyprompt.answers.parser import Delta
from lazyprompt.errors import ModuleError
from lazyprompt.formatters.formatter import ChatFormatter
from lazyprompt.messages.msg import TextBlock, ThinkingBlock
from lazyprompt.modules.clients import gemini
from lazyprompt.modules.clients._base import ClientSettings, OfficialClient, Request
from modules.clients.helpers import ClientTests, raised_error, ways
from support.model_server.server import Answer, ModelServer

HI = {"role": "user", "content": "hi"}
SCHEMA: Any = {"type": "object", "properties": {"size": {"type": "integer", "minimum": 1}}, "required": ["size"]}


@pytest.mark.slow  # a real client
class TestGeminiClient(ClientTests):
    provider = "gemini"

    def connect(self, settings: ClientSettings) -> OfficialClient:
        return gemini.connect(settings)

    @pytest.mark.parametrize(
        ("header", "waits"), [("3", 3.0), ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0), ("soon", None), (None, None)]
    )
    def test_retry_after_header_is_read(self, client: OfficialClient, header: str | None, waits: float | None) -> None:
        from google.genai.errors import ClientError  # noqa: PLC0415 - slow
        from httpx2 import Response  # noqa: PLC0415

        response = Response(429, headers={"retry-after": header} if header else {})
        fault = client.fault(ClientError(429, {"error": {"message": "slow down"}}, response))
        assert fault is not None
        assert (fault.kind, fault.message, fault.retry_after) == ("rate limit", "slow down", waits)

    def test_timeout_is_not_sent_as_a_deadline_of_the_server(self, server: ModelServer) -> None:
        with self.opened(server, timeout=5.0) as client:
            client.send(self.request(client))
            for way in ways(client, self.request(client)):
                way()
        assert not any("x-server-timeout" in seen.headers for seen in server.seen)

    def test_common_parameters_are_renamed(self, server: ModelServer, client: OfficialClient) -> None:
        same = {"seed": 1, "temperature": 0.5, "candidateCount": 1}
        params = client.params({**same, "max_tokens": 7, "stop": ["a"], "top_p": 0.9, "top_k": 3})
        client.send(Request("m", self.formatter.format(HI), params))
        sent = {**same, "maxOutputTokens": 7, "stopSequences": ["a"], "topP": 0.9, "topK": 3}
        assert server.seen[0].body["generationConfig"] == sent

    def test_unsupported_parameters_are_rejected(self, client: OfficialClient) -> None:
        with pytest.raises(ModuleError, match=r"has no field 'temprature' \(did you mean 'temperature'\?\)"):
            client.params({"temprature": 1})
        with pytest.raises(ModuleError, match="streaming of tool call arguments"):
            client.params({"tool_config": {"function_calling_config": {"stream_function_call_arguments": True}}})
        assert client.params({"tool_config": {"function_calling_config": {"mode": "ANY"}}})

    def test_value_rejected_by_the_client_is_a_request_fault(self, server: ModelServer, client: OfficialClient) -> None:
        request = self.request(client, HI, temperature="hot")
        assert {fault.kind for fault in self.faults(client, request)} == {"request"}
        assert server.seen == []

    def test_response_rejected_by_the_client_is_a_malformed_fault(self, client: OfficialClient) -> None:
        from google.genai.types import GenerateContentResponse  # noqa: PLC0415 - slow

        error = raised_error(lambda: GenerateContentResponse.model_validate({"candidates": 3}))
        fault = client.fault(error)
        assert fault is not None
        assert fault.kind == "malformed"

    @pytest.mark.parametrize("text", ['{"size": 3}', "[1]", "3", '"a"', "no JSON"])
    def test_schema_is_sent_and_any_text_is_read(self, server: ModelServer, client: OfficialClient, text: str) -> None:
        server.answer = Answer(text)
        asked = client.structured(SCHEMA, "thing")
        assert asked is not None
        request = Request("m", self.formatter.format(HI), {**client.params({"max_tokens": 9}), **asked})
        assert self.formatter.parse(client.send(request)).text == text
        assert self.streamed(client, request)[0].text == text
        config = server.seen[0].body["generationConfig"]
        assert (config["responseMimeType"], config["responseJsonSchema"]) == ("application/json", SCHEMA)

    def test_http_options_are_passed_to_the_official_client(self, server: ModelServer) -> None:
        http_options = {"headers": {"x-more": "1"}, "client_args": {"headers": {"x-inner": "2"}}}
        with self.opened(server, http_options=http_options) as client:
            client.send(self.request(client))
        assert (server.seen[0].headers["x-more"], server.seen[0].headers["x-inner"]) == ("1", "2")
        assert server.seen[0].path == "/gemini/v1beta/models/m:generateContent"

    def test_vertex_ai_options_are_passed_to_the_official_client(self, server: ModelServer) -> None:
        from google.auth.credentials import AnonymousCredentials  # noqa: PLC0415 - slow
        from google.genai.types import HttpOptions  # noqa: PLC0415

        options: dict[str, Any] = {
            "vertexai": True,
            "project": "p",
            "location": "l",
            "credentials": AnonymousCredentials(),  # type: ignore[no-untyped-call]  # of Google's
            "http_options": HttpOptions(headers={"x-more": "1"}),
        }
        with self.opened(server, key=None, **options) as client:
            made: Any = client
            sdk = made.client().sdk  # there is no server to ask
            assert sdk.vertexai
            assert sdk._api_client._http_options.api_version == "v1beta1"  # noqa: SLF001
            assert sdk._api_client._http_options.headers["x-more"] == "1"  # noqa: SLF001
            assert sdk._api_client._http_options.base_url == server.url("gemini")  # noqa: SLF001


def feed_parts(*parts: Any) -> tuple[list[Any], bool]:
    """The content and completeness of a stream whose chunks have one part each."""
    collector = gemini.connect(ClientSettings(None, None, 1.0, 0, {})).collector()
    for part in parts:
        collector.feed({"candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0}]})
    collector.feed({"candidates": [{"finish_reason": "STOP"}], "usage_metadata": {"prompt_token_count": 1}})
    content = ChatFormatter("gemini").parse(collector.answer()).content
    return ([content] if isinstance(content, str) else list(content)), collector.complete


def test_thought_signature_stays_on_its_part() -> None:
    thoughts = [{"text": "h", "thought": True}, {"text": "m", "thought": True}]
    parts = [{"text": "a"}, {"text": "b"}, {"text": "", "thought_signature": "eA=="}, {"text": "c"}, {"text": "d"}]
    blocks = [ThinkingBlock("hm", provider="gemini"), TextBlock("ab"), TextBlock("", signature="eA=="), TextBlock("cd")]
    assert feed_parts(*thoughts, *parts) == (blocks, True)


def test_empty_parts_do_not_split_the_text() -> None:
    assert feed_parts({"text": "a"}, {}, {"thought": False, "code": "", "id": None}, {"text": "b"}) == (["ab"], True)
    assert feed_parts({"text": "a"}, {"executable_code": {"code": "1"}}, {"text": "b"})[0] == [
        TextBlock("a"),
        TextBlock("b"),
    ]


def test_tool_calls_without_ids_are_numbered() -> None:
    collector = gemini.connect(ClientSettings(None, None, 1.0, 0, {})).collector()
    calls: list[Any] = [{"name": "f", "args": {"a": "ö"}}, {"id": "own"}, {"name": "g"}]
    parts = [{"text": "so", "thought": True}, *({"function_call": call} for call in calls)]
    chunk = {"candidates": [{"content": {"parts": parts}}], "parsed": 1, "model_version": "v"}
    assert collector.feed(chunk) == [
        *(Delta("thinking", "so"), Delta("tool_call", '{"a": "ö"}', 0, "call_0", "f")),
        *(Delta("tool_call", "{}", 1, "own", ""), Delta("tool_call", "{}", 2, "call_2", "g")),
    ]
    answer = {"model_version": "v", "candidates": [{"content": {"role": "model", "parts": parts}}]}
    assert (collector.answer(), collector.complete) == (answer, False)
    collector.feed({"prompt_feedback": {"block_reason": "SAFETY"}})
    assert collector.complete


def test_only_the_first_candidate_is_read() -> None:
    collector = gemini.connect(ClientSettings(None, None, 1.0, 0, {})).collector()
    said = [
        [
            delta.text
            for delta in collector.feed({"candidates": [{"content": {"parts": [{"text": text}]}, "index": at}]})
        ]
        for at, text in ((1, "B"), (0, "A"), (0, "a"), (1, "b"))
    ]
    collector.feed({"candidates": [{"index": 1, "finish_reason": "STOP"}]})
    assert not collector.complete
    collector.feed({"candidates": [{"index": 0, "finish_reason": "STOP"}]})
    assert (said, collector.complete) == ([[], ["A"], ["a"], []], True)
    assert ChatFormatter("gemini").parse(collector.answer()).text == "Aa"


@pytest.mark.parametrize(
    "event",
    [
        None,
        "text",
        [],
        {},
        {"candidates": None},
        {"candidates": [None, {"index": "x", "content": []}]},
        {"candidates": [{"content": {"parts": [None, 3, {"text": 5}, {"function_call": None}]}}]},
        {"candidates": [{"content": {"parts": {"text": "a"}}}]},
    ],
)
def test_invalid_chunks_are_ignored(event: object) -> None:
    collector = gemini.connect(ClientSettings(None, None, 1.0, 0, {})).collector()
    assert collector.feed(event) == []
    assert not collector.complete
