"""DashScope's two APIs, by its official client."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest

from lazyprompt._base.secret import Secret
from lazyprompt.errors import MissingExtraError, ModuleError
from lazyprompt.modules.clients import dashscope
from lazyprompt.modules.clients._base import Request, Settings
from modules.clients.contract import Contract, ways
from support.client_scenes import ANSWERS, KEY
from support.model_server.http import odd_server
from support.model_server.server import Answer, Drop, Fails, Malformed, ModelServer, Slow, Status
from support.providers.types import sdk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lazyprompt.modules.clients._base import OfficialClient

pytestmark = pytest.mark.slow  # a real client

SAID = [answer for answer in ANSWERS if answer.finish != "content_filter"]
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


class _DashScope(Contract):
    package = "dashscope"
    wire_key = f"Bearer {KEY}"

    @pytest.mark.parametrize("answer", SAID)
    def test_streams_give_the_same_as_answers(
        self, server: ModelServer, client: OfficialClient, answer: Answer
    ) -> None:
        super().test_streams_give_the_same_as_answers(server, client, answer)

    @pytest.mark.asyncio
    @pytest.mark.parametrize("answer", SAID)
    async def test_loops_give_the_same_as_threads(
        self, server: ModelServer, client: OfficialClient, answer: Answer
    ) -> None:
        await super().test_loops_give_the_same_as_threads(server, client, answer)

    def test_a_filtered_answer_is_a_refused_request(self, server: ModelServer, client: OfficialClient) -> None:
        server.answer = Answer("", finish="content_filter")
        for fault in self.faults(client, self.request(client)):
            assert (fault.kind, fault.status) == ("request", 400)
            assert "inappropriate content" in fault.message

    def test_no_key_of_the_environment_goes_to_a_server_that_asks_for_none(
        self, server: ModelServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sdk("dashscope"), "api_key", KEY)  # read when it is imported
        with self.opened(server, key=None) as client:
            client.send(self.request(client))
        assert not any(KEY in value for value in server.seen[0].headers.values())

    def test_without_the_official_client_its_extra_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        client = self.connect(Settings(None, Secret(KEY), 1.0, 0, {}))
        monkeypatch.setitem(sys.modules, "dashscope", None)
        with pytest.raises(MissingExtraError, match=r'the package dashscope .* "lazyprompt\[dashscope\]"'):
            client.send(Request("m", {}, {}))

    def test_a_request_is_sent_once(self, server: ModelServer) -> None:
        with self.opened(server, timeout=0.3) as client:
            assert client.retries_itself is False
            for fault in (Drop(), Slow(30.0), Slow(0.0, 30.0)):  # the client itself would send it again
                server.seen.clear()
                server.faults = lambda seen, fault=fault: (
                    fault if seen.streamed or isinstance(fault, Drop) else Slow(30)
                )
                assert len(list(self.faults(client, self.request(client)))) == len(server.seen) == 4

    def test_an_error_in_mid_stream_is_known_by_its_code(self, server: ModelServer, client: OfficialClient) -> None:
        for status, kind in ((500, "server"), (429, "rate limit"), (408, "timeout"), (401, "key")):
            server.faults = lambda _, status=status: Fails(1, status, "so it goes")
            _, streamed, _, astreamed = self.faults(client, self.request(client))
            assert streamed == astreamed
            assert (streamed.kind, streamed.status, streamed.message) == (kind, None, "so it goes")

    def test_no_log_shows_the_key(
        self, server: ModelServer, client: OfficialClient, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("DEBUG")
        for fault in (None, Status(401, f"the key {KEY} is wrong"), Drop(), Malformed()):
            server.faults = lambda _, fault=fault: fault
            for way in ways(client, self.request(client)):
                with contextlib.suppress(Exception):
                    way()
        assert len(server.seen) == 16
        assert caplog.records
        assert KEY not in caplog.text

    def test_how_long_to_wait_is_told(self, server: ModelServer, client: OfficialClient) -> None:
        server.faults = lambda _: Status(429, retry_after=2.5)
        assert {fault.retry_after for fault in self.faults(client, self.request(client))} == {2.5}

    def test_the_address_is_that_of_the_call(self, server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
        client_package = sdk("dashscope")
        before = (client_package.base_http_api_url, client_package.api_key)
        with self.opened(server) as client:
            client.send(self.request(client))
        assert (client_package.base_http_api_url, client_package.api_key) == before
        monkeypatch.setattr(client_package, "base_http_api_url", server.url(self.provider))
        client = self.connect(Settings(None, Secret(KEY), 30.0, 0, {}))
        assert self.formatter.parse(client.send(self.request(client))).text == "pong"
        client.close()

    def test_options_go_with_each_call(self, server: ModelServer) -> None:
        options: dict[str, Any] = {"headers": {"x-own": "1", "user-agent": "me"}, "enable_search": True}
        before = deepcopy(options)
        with self.opened(server, **options) as client:
            for _ in range(2):
                client.send(self.request(client))
                assert self.astream_whole(client)
        assert options == before
        first, *others = (seen.headers for seen in server.seen)
        assert first["x-own"] == "1"
        assert {seen["user-agent"].count("me") for seen in others} == {first["user-agent"].count("me")}
        assert server.seen[0].body["parameters"]["enable_search"] is True

    def astream_whole(self, client: OfficialClient) -> bool:
        return asyncio.run(self._looped(client, self.request(client)))[2]

    def test_parameters_keep_their_names(self, server: ModelServer, client: OfficialClient) -> None:
        common: dict[str, Any] = {
            "temperature": 0.5,
            "top_p": 0.9,
            "max_tokens": 9,
            "stop": ["END"],
            "seed": 3,
            "enable_thinking": True,
        }
        structured = client.structured(SCHEMA, "place")
        assert structured is not None
        request = self.request(client, **common)
        client.send(request._replace(params={**request.params, **structured}))
        sent = server.seen[0].body["parameters"]
        assert {name: sent[name] for name in common} == common
        assert sent["result_format"] == "message"
        assert sent["response_format"] == {
            "type": "json_schema",
            "json_schema": {"name": "place", "schema": SCHEMA, "strict": True},
        }

    def test_what_cannot_be_sent_is_no_fault_of_the_server(self, client: OfficialClient) -> None:
        request = self.request(client)._replace(params={"seed": object()})
        error = self._raised(lambda: client.send(request))
        assert isinstance(error, TypeError)
        assert client.fault(error) is None


class TestText(_DashScope):
    provider = "dashscope"

    def connect(self, settings: Settings) -> OfficialClient:
        return dashscope.connect(settings)


class TestMultimodal(_DashScope):
    provider = "dashscope-multimodal"

    def connect(self, settings: Settings) -> OfficialClient:
        return dashscope.connect_multimodal(settings)

    def test_no_text_is_taken_for_the_path_of_a_file(
        self, server: ModelServer, client: OfficialClient, tmp_path: Path
    ) -> None:
        secret = tmp_path / "secret.txt"
        secret.write_text("private")
        said = [{"text": str(secret)}, {"text": f"file://{secret}"}, {"image": f"file://{secret}"}]
        messages = [{"role": "user", "content": said}]
        self.sent_both_ways(client, messages)
        assert [seen.body["input"]["messages"] for seen in server.seen] == [messages, messages]
        assert "x-dashscope-ossresourceresolve" not in server.seen[0].headers

    @pytest.mark.parametrize(
        "part", [{"image": "oss://bucket/a.png"}, {"video": ["https://example.com/1.png", "oss://bucket/2.png"]}]
    )
    def test_the_server_is_told_of_what_lies_in_its_store(
        self, server: ModelServer, client: OfficialClient, part: dict[str, Any]
    ) -> None:
        self.sent_both_ways(client, [{"role": "user", "content": [{"text": "what is it?"}, part]}])
        assert [seen.headers.get("x-dashscope-ossresourceresolve") for seen in server.seen] == ["enable", "enable"]

    def sent_both_ways(self, client: OfficialClient, messages: list[dict[str, Any]]) -> None:
        request = Request("m", {"messages": messages}, {})
        client.send(request)

        async def looped() -> None:
            await client.asend(request)
            await client.aclose()

        asyncio.run(looped())

    def test_a_client_that_cannot_be_kept_from_files_is_not_used(
        self, server: ModelServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delattr(sdk("dashscope").MultiModalConversation, "_preprocess_messages")
        with self.opened(server) as client, pytest.raises(ModuleError, match="might upload"):
            client.send(self.request(client))
        assert server.seen == []

    def test_parts_that_are_no_text_are_kept(self, client: OfficialClient) -> None:
        collector = client.collector()
        for content in ([{"text": "a cat"}], [{"image": "https://example.com/cat.png"}], [{"text": "!"}], []):
            message = {"role": "assistant", "content": content}
            collector.feed({"output": {"choices": [{"finish_reason": "null", "message": message}]}})
        assert not collector.complete
        content = collector.answer()["output"]["choices"][0]["message"]["content"]
        assert content == [{"text": "a cat!"}, {"image": "https://example.com/cat.png"}]


@pytest.mark.parametrize(
    ("status", "code", "said", "kind"),
    [
        (400, "InvalidParameter", "Range of input length should be [1, 30720]", "overflow"),
        (400, "InvalidParameter", "Model not exist.", "not found"),
        (400, "InvalidParameter", "url error, please check url！", "not found"),
        (400, "InvalidParameter", "temperature must be smaller", "request"),
        (400, "Arrearage", "Access denied, please make sure your account is in good standing.", "key"),
        (400, "DataInspectionFailed", "Input data may contain inappropriate content.", "request"),
        (403, "AccessDenied.Unpurchased", "Access to model denied.", "key"),
        (403, "AllocationQuota.FreeTierOnly", "The free tier of the model has been exhausted.", "rate limit"),
        (404, "ModelNotFound", "Model can not be found.", "not found"),
        (408, "RequestTimeOut", "Request timed out, please try again later.", "timeout"),
        (413, "BadRequest.TooLarge", "Payload Too Large", "overflow"),
        (429, "Throttling.AllocationQuota", "Allocated quota exceeded.", "rate limit"),
        (500, "InternalError.Timeout", "An internal timeout error has occurred.", "timeout"),
        (500, "InternalError.Algo", "An internal error has occurred.", "server"),
        (503, "ModelUnavailable", "Model is unavailable, please try again later.", "server"),
        (502, "Unknown", "<html>Bad Gateway</html>", "server"),
    ],
)
def test_each_code_has_its_kind(status: int, code: str, said: str, kind: str) -> None:
    answer = {"status_code": status, "code": code, "message": said, "headers": {"Content-Type": "application/json"}}
    client = dashscope.connect(Settings("http://127.0.0.1:1", None, 1.0, 0, {}))
    fault = client.fault(dashscope.DashScopeError(answer))
    assert fault is not None
    assert (fault.kind, fault.status, fault.message) == (kind, status, said)


ODD = (b"[]", b"7", b"null", b'{"output": null}', b'{"output": {"choices": [7]}}', b'{"output": {"choices": 7}}', b"")


@pytest.mark.parametrize("connect", [dashscope.connect, dashscope.connect_multimodal])
@pytest.mark.parametrize("body", ODD)
def test_answers_of_another_shape_are_malformed(connect: Callable[[Settings], OfficialClient], body: bytes) -> None:
    request = Request("m", {"messages": [{"role": "user", "content": [{"text": "hi"}]}]}, {})
    for media_type, written in (("application/json", body), ("text/event-stream", b"event:result\ndata:%b\n\n" % body)):
        with odd_server(written, media_type) as url:
            client = connect(Settings(url, None, 30.0, 0, {}))
            for way in ways(client, request):
                with pytest.raises(Exception) as caught:  # noqa: PT011 - the fault is what is looked at
                    way()
                fault = client.fault(caught.value)
                assert fault is not None, repr(caught.value)
                assert fault.kind == "malformed"
            client.close()
