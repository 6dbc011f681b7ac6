"""Ollama's chat and generate APIs with its official client."""

import contextlib
from base64 import b64encode
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import TypeAdapter

from lazyprompt.answers.parser import Delta
from lazyprompt.errors import MediaError, ModuleError
from lazyprompt.modules.clients import ollama
from lazyprompt.modules.clients._base import ClientSettings, OfficialClient, Request
from modules.clients.helpers import ClientTests, raised_error, ways
from support.client_scenes import ANSWERS, CALLS, KEY, said_by, said_in
from support.model_server.http import odd_server
from support.model_server.server import Answer, Drop, HalfCall, Malformed, ModelServer, Status

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
# The client leaves out the ids of calls.
NUMBERED = tuple((f"call_{at}", name, arguments) for at, (_, name, arguments) in enumerate(CALLS))
SAID = [replace(answer, calls=NUMBERED if answer.calls else ()) for answer in ANSWERS]


@pytest.mark.slow  # a real client
class _Ollama(ClientTests):
    said: ClassVar[list[Answer]] = SAID

    @pytest.mark.parametrize(
        ("key", "model", "said", "kind"), [("wrong", "m", "hi", "key"), (KEY, "no-such-model", "hi", "not found")]
    )
    def test_rejected_key_or_model_is_a_fault_with_the_message_of_the_server(
        self, server: ModelServer, key: str, model: str, said: str, kind: str
    ) -> None:
        with self.opened(server, key=key) as client:
            request = self.request(client, {"role": "user", "content": said}, model=model)
            for fault in self.faults(client, request):
                assert fault.kind == kind
                assert fault.message.startswith(server.seen[0].refusal or "?")
                assert (kind == "not found") == fault.message.endswith("; download it with: ollama pull no-such-model")

    @pytest.mark.asyncio
    async def test_sync_async_and_streamed_message_are_equal(self, server: ModelServer, client: OfficialClient) -> None:
        request = self.request(client)
        for answer in self.said:
            server.answer = answer
            msg = self.formatter.parse(client.send(request))
            assert self.formatter.parse(await client.asend(request)) == msg
            for streamed, deltas, complete in (self.streamed(client, request), await self.astreamed(client, request)):
                assert (streamed, complete, said_in(deltas)) == (msg, True, said_by(msg))
            assert said_by(msg)[2] == [tuple(each) for each in answer.calls]
        await client.aclose()

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

    def test_context_size_error_is_an_overflow_fault(self, server: ModelServer, client: OfficialClient) -> None:
        said = "request (1407 tokens) exceeds the available context size (256 tokens), try increasing it"
        server.faults = lambda _: Status(400, said)
        assert {fault.kind for fault in self.faults(client, self.request(client))} == {"overflow"}

    def test_common_parameters_become_options(self, server: ModelServer, client: OfficialClient) -> None:
        common: dict[str, Any] = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 9, "stop": ["END"], "seed": 3}
        structured = client.structured(SCHEMA, "place")
        assert structured is not None
        params = client.params({**common, "keep_alive": "5m", "options": {"num_ctx": 8192, "seed": 4}})
        request = self.request(client)._replace(params={**params, **structured})
        client.send(request)
        body = server.seen[0].body
        own = {"temperature": 0.5, "top_p": 0.9, "num_predict": 9, "stop": ["END"], "seed": 4, "num_ctx": 8192}
        assert (body["options"], body["keep_alive"], body["format"]) == (own, "5m", SCHEMA)
        assert client.params({"keep_alive": "5m"}) == {"keep_alive": "5m"}

    def test_headers_option_is_passed_to_the_official_client(self, server: ModelServer) -> None:
        with self.opened(server, headers={"x-own": "1"}) as client:
            client.send(self.request(client))
        assert server.seen[0].headers["x-own"] == "1"
        assert f"Bearer {KEY}" in server.seen[0].headers.values()

    def test_base_url_is_read_from_the_environment(self, server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OLLAMA_HOST", server.url(self.provider))
        client = self.connect(ClientSettings(None, None, 30.0, 0, {}))
        assert self.formatter.parse(client.send(self.request(client))).text == "pong"
        client.close()

    def test_request_that_cannot_be_sent_is_not_a_server_fault(self, client: OfficialClient) -> None:
        request, given = self.request(client), ({"no_such_argument": 1}, {"keep_alive": object()})
        calls: list[partial[Any]] = [partial(client.send, request._replace(params=each)) for each in given]
        faults = [client.fault(raised_error(call)) for call in [*calls, partial(TypeAdapter(int).validate_python, "x")]]
        assert [fault and fault.kind for fault in faults] == [None, "request", None]

    def test_image_data_is_not_read_as_a_file_path(
        self, server: ModelServer, client: OfficialClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        picture = b64encode(b"a picture of a cat").decode()
        (tmp_path / picture).write_text("private")
        shown = {"images": [picture, b"a picture of a cat"]}
        message = {"role": "user", "content": "what is it?", **shown}
        chat = self.provider == "ollama"
        client.send(Request("m", {"messages": [message]} if chat else {"prompt": "what is it?", **shown}, {}))
        body = server.seen[0].body
        assert (body["messages"][0] if chat else body)["images"] == [picture, picture]
        assert shown == {"images": [picture, b"a picture of a cat"]}

    @pytest.mark.parametrize("body", [b"[]", b"7", b"null", b'"x"', b'{"message": 7, "response": 7}', b"", b"\xff"])
    def test_response_of_another_shape_is_a_malformed_fault(self, body: bytes) -> None:
        with odd_server(body + b"\n") as url:
            client = self.connect(ClientSettings(url, None, 30.0, 0, {}))
            for way in ways(client, self.request(client)):
                fault = client.fault(raised_error(way))
                assert fault is not None
                assert fault.kind == "malformed"
            client.close()


@pytest.mark.parametrize("connect", [ollama.connect, ollama.connect_generate])
def test_collected_stream_is_its_last_event_with_the_whole_message(connect: Any) -> None:
    collector = connect(ClientSettings(None, None, 1.0, 0, {})).collector()
    calls: list[dict[str, Any]] = [{"function": {"name": name, "arguments": {}}} for name in "fg"]
    said: list[dict[str, Any]] = [{"thinking": "so"}, {"content": "po"}, {"content": "ng"}]
    said += [{"content": "", "tool_calls": [call]} for call in calls]
    deltas = [Delta("thinking", "so"), Delta("text", "po"), Delta("text", "ng")]
    whole: dict[str, Any] = {"message": {"role": "assistant", "content": "pong", "thinking": "so", "tool_calls": calls}}
    if connect is ollama.connect:
        deltas += [Delta("tool_call", "{}", at, f"call_{at}", name) for at, name in enumerate("fg")]
        events = [{"model": "m", "message": each} for each in said]
    else:
        whole = {"response": "pong", "thinking": "so"}
        events = [{"model": "m", "response": each.get("content", ""), **each} for each in said[:3]]
        events = [{key: value for key, value in each.items() if key != "content"} for each in events]
    assert [delta for event in events for delta in collector.feed(event)] == deltas
    assert not collector.complete
    assert collector.feed({"model": "m", "done": True, "done_reason": "stop"}) == []
    assert collector.answer() == {"model": "m", "done": True, "done_reason": "stop", **whole}
    assert collector.complete


class TestChat(_Ollama):
    provider = "ollama"

    def connect(self, settings: ClientSettings) -> OfficialClient:
        return ollama.connect(settings)

    @pytest.mark.parametrize("image", ["/etc/passwd.", "https://example.com/cat.png", 7])
    def test_image_without_base64_is_rejected(self, server: ModelServer, client: OfficialClient, image: object) -> None:
        request = Request("m", {"messages": [{"role": "user", "content": "what is it?", "images": [image]}]}, {})
        with pytest.raises(MediaError, match="images must be valid base64"):
            client.send(request)
        assert server.seen == []


class TestGenerate(_Ollama):
    provider = "ollama-generate"
    said: ClassVar[list[Answer]] = [answer for answer in SAID if not answer.calls]

    def connect(self, settings: ClientSettings) -> OfficialClient:
        return ollama.connect_generate(settings)

    def test_generate_sends_the_prompt_raw_and_unchanged(self, server: ModelServer, client: OfficialClient) -> None:
        prompt = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
        request = Request("m", {"prompt": prompt}, client.params({"max_tokens": 9}))
        client.send(request)
        list(client.stream(request))
        assert [seen.streamed for seen in server.seen] == [False, True]
        for seen in server.seen:
            rest = {key: value for key, value in seen.body.items() if key != "stream"}
            assert rest == {"model": "m", "prompt": prompt, "raw": True, "options": {"num_predict": 9}}

    def test_generate_ignores_an_incomplete_tool_call(self, server: ModelServer, client: OfficialClient) -> None:
        server.faults = lambda _: HalfCall()
        msg, _, complete = self.streamed(client, self.request(client))
        assert (msg.text, complete) == ("pong", True)

    @pytest.mark.parametrize("payload", [{"prompt": [1, 2]}, {"messages": []}, {}])
    def test_generate_rejects_token_ids_and_payloads_without_a_prompt(
        self, server: ModelServer, client: OfficialClient, payload: dict[str, Any]
    ) -> None:
        request = Request("m", payload, {})
        for way in ways(client, request):
            with pytest.raises(ModuleError, match="does not accept token ids as a prompt") as caught:
                way()
            assert client.fault(caught.value) is None
        assert server.seen == []
