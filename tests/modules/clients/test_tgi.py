"""Text Generation Inference, by the official client, against a voice after the server's own source (router/src).

The forms, the errors and their statuses are those of ``server.rs`` and ``infer/mod.rs``, the limits those of
``validation.rs``: https://github.com/huggingface/text-generation-inference.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pytest

from lazyprompt._base.secret import Secret
from lazyprompt.errors import MissingExtraError, ModuleError
from lazyprompt.messages.msg import Msg
from lazyprompt.modules.clients import tgi
from lazyprompt.modules.clients._base import Request, Settings
from modules.clients import contract
from modules.clients.contract import Contract, ways
from support.client_scenes import ANSWERS, KEY, TIMEOUT, opened_sockets, until
from support.model_server.errors import FORMS, REFUSALS
from support.model_server.http import odd_server
from support.model_server.parts import Ask, Event, Refusal, Voice, encoded, pieces
from support.model_server.server import PATHS, Answer, Drop, Fails, Malformed, ModelServer, Status
from support.model_server.voices import VOICES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lazyprompt.formatters.formatter import ChatFormatter
    from lazyprompt.modules.clients._base import OfficialClient

pytestmark = pytest.mark.slow  # a real client

TOO_LONG = (
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 1024. Given: 1100 `inputs` tokens and 20 "
    "`max_new_tokens`"
)
_TYPES = {422: "validation", 424: "generation", 429: "overloaded", 500: "incomplete_generation"}
_WHY = {"stop": "eos_token", "length": "length"}
_END = "</s>"


def _error(status: int, message: str) -> dict[str, str]:
    known = {"error_type": _TYPES[status]} if status in _TYPES else {}  # proxies before it have no such thing
    return {"error": message, **known}


def _tokens(answer: Answer) -> list[dict[str, Any]]:
    said = [*pieces(answer.text), *([_END] if answer.finish != "length" else [])]
    return [{"id": at, "text": text, "logprob": -0.5, "special": text == _END} for at, text in enumerate(said)]


def _details(answer: Answer) -> dict[str, Any]:
    return {
        "finish_reason": _WHY.get(answer.finish, "eos_token"),
        "generated_tokens": len(_tokens(answer)),
        "seed": None,
    }


def _whole(answer: Answer, _: Ask) -> Any:
    details = {**_details(answer), "prefill": [], "tokens": _tokens(answer)}
    return [{"generated_text": answer.text, "details": details}]


def _stream(answer: Answer, _: Ask) -> list[Event]:
    tokens = _tokens(answer)
    events: list[dict[str, Any]] = [
        {"index": at, "token": token, "generated_text": None, "details": None} for at, token in enumerate(tokens, 1)
    ]
    events[-1] |= {"generated_text": answer.text, "details": {**_details(answer), "input_length": answer.prompt_tokens}}
    return [Event(event, end=event is events[-1]) for event in events]


def _written(event: Event, at: int) -> bytes:
    beat = b":\n\n" if at == 2 else b""  # axum's keep-alive
    return b"%bdata:%b\n\n" % (beat, encoded(event.data))


VOICE = Voice(
    _whole, _stream, _written, "text/event-stream", (), lambda status, message: Event(_error(status, message))
)


@dataclass(frozen=True)
class _Raw:
    """In the place of a formatter: what an engine takes, and what it gives."""

    def format(self, *said: dict[str, str], tools: object = None) -> dict[str, Any]:
        del tools  # there is no place for them
        return {"prompt": "\n".join(one["content"] for one in said)}

    def parse(self, answer: Any) -> Msg:
        return Msg("assistant", answer["generated_text"], "assistant")


class TestTgi(Contract):
    provider = "tgi"
    package = "tgi"
    wire_key = f"Bearer {KEY}"

    def connect(self, settings: Settings) -> OfficialClient:
        return tgi.connect(settings)

    @property
    def formatter(self) -> ChatFormatter:
        return cast("ChatFormatter", _Raw())

    @pytest.fixture
    def server(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
        refusals = {"key": Refusal(401, "Invalid API key"), "length": Refusal(422, TOO_LONG)}
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)  # it refuses every address then
        monkeypatch.setitem(PATHS, "tgi", ("", "/"))
        monkeypatch.setitem(VOICES, "tgi", VOICE)
        monkeypatch.setitem(cast("dict[str, Any]", REFUSALS), "tgi", refusals)
        monkeypatch.setitem(cast("dict[str, Any]", FORMS), "tgi", _error)
        monkeypatch.setattr(contract, "echo", lambda seen: Answer(seen.body["inputs"]))
        with ModelServer(judges=False) as server:
            yield server

    def test_the_payload_arrives_as_the_formatter_made_it(self, server: ModelServer, client: OfficialClient) -> None:
        prompt = "<s>[INST] hi [/INST]"
        client.send(Request("m", {"prompt": prompt}, {}))
        list(client.stream(Request("m", {"prompt": prompt}, {})))
        parameters = {"details": True, "return_full_text": False}  # it would repeat the prompt else
        assert [seen.body for seen in server.seen] == [
            {"inputs": prompt, "parameters": parameters, "stream": streamed} for streamed in (False, True)
        ]
        assert all(self.wire_key in seen.headers.values() for seen in server.seen)

    @pytest.mark.parametrize("answer", [answer for answer in ANSWERS if not (answer.calls or answer.thinking)])
    def test_streams_give_the_same_as_answers(
        self, server: ModelServer, client: OfficialClient, answer: Answer
    ) -> None:
        super().test_streams_give_the_same_as_answers(server, client, answer)

    @pytest.mark.asyncio
    @pytest.mark.parametrize("answer", [answer for answer in ANSWERS if not (answer.calls or answer.thinking)])
    async def test_loops_give_the_same_as_threads(
        self, server: ModelServer, client: OfficialClient, answer: Answer
    ) -> None:
        await super().test_loops_give_the_same_as_threads(server, client, answer)

    def test_a_collected_answer_has_the_details_of_a_whole_one(
        self, server: ModelServer, client: OfficialClient
    ) -> None:
        server.answer = Answer("one two three", finish="length", prompt_tokens=7)
        request = self.request(client)
        collector = client.collector()
        for event in client.stream(request):
            collector.feed(event)
        whole = cast("dict[str, Any]", client.send(request))
        collected = collector.answer()
        assert collected["details"].pop("input_length") == 7  # told of streams alone
        kept = {key: value for key, value in whole["details"].items() if value is not None}
        assert {key: value for key, value in collected["details"].items() if value is not None} == kept
        assert collected["generated_text"] == whole["generated_text"]

    def test_what_is_left_of_half_a_character_is_said_at_the_end(self, client: OfficialClient) -> None:
        collector = client.collector()
        token = {"id": 1, "text": "a", "logprob": -1, "special": False}
        collector.feed({"index": 1, "token": token, "generated_text": None, "details": None})
        deltas = collector.feed(
            {"index": 2, "token": {**token, "text": ""}, "generated_text": "a\ufffd", "details": None}
        )
        assert [delta.text for delta in deltas] == ["\ufffd"]
        assert (collector.answer()["generated_text"], collector.complete) == ("a\ufffd", True)

    @pytest.mark.parametrize("how", ["whole", "streamed"])
    def test_calls_thoughts_and_results_go_back(self, server: ModelServer, client: OfficialClient, how: str) -> None:
        """There are none."""

    def test_half_a_call_is_never_a_whole_one(self, server: ModelServer, client: OfficialClient) -> None:
        """There are none."""

    @pytest.mark.parametrize(
        ("key", "model", "said", "kind"), [("wrong", "m", "hi", "key"), (KEY, "m", "OVERFLOW", "overflow")]
    )
    def test_the_servers_own_refusals(self, server: ModelServer, key: str, model: str, said: str, kind: str) -> None:
        super().test_the_servers_own_refusals(server, key, model, said, kind)

    def test_streams_are_refused_within(self, server: ModelServer, client: OfficialClient) -> None:
        server.faults = lambda seen: Fails(0, 422, TOO_LONG) if seen.streamed else Status(422, TOO_LONG)
        whole, streamed, awhole, astreamed = self.faults(client, self.request(client))
        assert {(fault.kind, fault.message) for fault in (whole, streamed, awhole, astreamed)} == {
            ("overflow", TOO_LONG)
        }
        assert (whole.status, streamed.status) == (422, None)

    @pytest.mark.parametrize(
        ("status", "said", "kind"),
        [
            (422, "Input validation error: `temperature` must be strictly positive", "request"),
            (422, "Input validation error: `inputs` must have less than 1000 tokens. Given: 1100", "overflow"),
            (424, "Request failed during generation: CUDA out of memory", "server"),
            (429, "Model is overloaded", "rate limit"),
            (500, "Incomplete generation", "server"),
        ],
    )
    def test_each_error_of_its_router(
        self, server: ModelServer, client: OfficialClient, status: int, said: str, kind: str
    ) -> None:
        for misbehaviour in (Status(status, said, retry_after=2.5), Fails(1, status, said)):
            server.faults = lambda _, wrong=misbehaviour: wrong
            faults = list(self.faults(client, self.request(client)))
            assert {(fault.kind, fault.message) for fault in faults} == {(kind, said)}
        assert client.retries_itself is False
        assert len(server.seen) == 8

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

    def test_no_key_of_the_environment_goes_to_a_server_that_asks_for_none(
        self, server: ModelServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HF_TOKEN", KEY)
        with self.opened(server, key=None) as client:
            for way in ways(client, self.request(client)):
                way()
        assert [seen.headers.get("authorization") for seen in server.seen] == [None] * 4

    @pytest.mark.skipif(sys.platform != "linux", reason="it counts files in /proc, which the Linux of CI has")
    def test_closing_leaves_no_socket_open(self, server: ModelServer) -> None:
        before = opened_sockets()
        with self.opened(server) as client:
            for way in ways(client, self.request(client)):
                way()
            assert until(lambda: opened_sockets() == before)  # threads keep none

            async def looped() -> None:
                await client.asend(self.request(client))
                assert opened_sockets() > before
                await client.aclose()

            asyncio.run(looped())
        assert until(lambda: opened_sockets() == before)

    def test_tasks_of_a_loop_share_connections(self, server: ModelServer, client: OfficialClient) -> None:
        async def looped() -> None:
            for _ in range(5):
                await client.asend(self.request(client))
                assert (await self.astreamed(client, self.request(client)))[2]
            await client.aclose()

        asyncio.run(looped())
        assert {seen.headers["connection"] for seen in server.seen} == {"keep-alive"}

    def test_without_the_official_client_its_extra_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        client = self.connect(Settings("http://127.0.0.1:1", Secret(KEY), TIMEOUT, 0, {}))
        monkeypatch.setitem(sys.modules, "huggingface_hub", None)
        with pytest.raises(MissingExtraError, match=r'the package huggingface_hub .* "lazyprompt\[tgi\]"'):
            client.send(Request("m", {"prompt": "p"}, {}))

    def test_options_are_those_of_the_constructor(self, server: ModelServer) -> None:
        with self.opened(server, headers={"x-own": "1"}) as client:
            for way in ways(client, self.request(client)):
                way()
        assert [(seen.headers["x-own"], seen.headers["authorization"]) for seen in server.seen] == [
            ("1", self.wire_key)
        ] * 4

    @pytest.mark.parametrize("payload", [{"prompt": [1, 2]}, {"messages": []}, {}])
    def test_token_ids_are_refused(self, server: ModelServer, client: OfficialClient, payload: dict[str, Any]) -> None:
        for way in ways(client, Request("m", payload, {})):
            with pytest.raises(ModuleError, match="not as token ids") as caught:
                way()
            assert client.fault(caught.value) is None
        assert server.seen == []

    @pytest.mark.parametrize(
        "body", [b"[]", b"7", b"null", b"{}", b'[{"generated_text": 7}]', b"", b"\xff", b'{"a": [1']
    )
    def test_answers_of_another_shape_are_malformed(self, body: bytes) -> None:
        with odd_server(body) as url:
            client = tgi.connect(Settings(url, None, TIMEOUT, 0, {}))
            send, _, asend, _ = ways(client, Request("m", {"prompt": "p"}, {}))
            for way in (send, asend):
                fault = client.fault(self._raised(way))
                assert fault is not None
                assert fault.kind == "malformed"
            client.close()

    @pytest.mark.parametrize("data", [b"[]", b"7", b"null", b'{"a": [1', b""])
    def test_events_of_another_shape_are_malformed(self, data: bytes) -> None:
        with odd_server(b"data:%b\n\n" % data, "text/event-stream") as url:
            client = tgi.connect(Settings(url, None, TIMEOUT, 0, {}))
            _, stream, _, astream = ways(client, Request("m", {"prompt": "p"}, {}))
            for way in (stream, astream):
                fault = client.fault(self._raised(way))
                assert fault is not None
                assert fault.kind == "malformed"
            client.close()


@pytest.mark.parametrize(
    ("common", "params"),
    [
        ({}, {}),
        ({"max_tokens": 9, "stop": ["END"], "seed": 3}, {"max_new_tokens": 9, "stop": ["END"], "seed": 3}),
        ({"temperature": 0.5, "top_p": 0.9}, {"temperature": 0.5, "top_p": 0.9, "do_sample": True}),
        ({"temperature": 1, "top_p": 1}, {"temperature": 1, "do_sample": True}),
        ({"temperature": 0}, {"do_sample": False}),
        ({"temperature": 0.5, "do_sample": False}, {"temperature": 0.5, "do_sample": False}),
        ({"top_k": 5}, {"top_k": 5}),
    ],
)
def test_common_parameters_become_its_own(common: dict[str, Any], params: dict[str, Any]) -> None:
    before = dict(common)
    assert tgi.connect(Settings("http://127.0.0.1:1", None, 1.0, 0, {})).params(common) == params
    assert common == before


def test_a_schema_is_a_grammar() -> None:
    schema: Any = {"type": "object", "properties": {"city": {"type": "string"}}}
    client = tgi.connect(Settings("http://127.0.0.1:1", None, 1.0, 0, {}))
    assert client.structured(schema, "place") == {"grammar": {"type": "json", "value": schema}}
