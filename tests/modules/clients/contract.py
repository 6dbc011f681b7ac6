"""What every client of a module is held to, against a server of our own; the tests of a client inherit it."""

from __future__ import annotations

import asyncio
import socket
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from lazyprompt._base.secret import Secret
from lazyprompt.errors import MissingExtraError, ModuleError
from lazyprompt.formatters.formatter import ChatFormatter
from lazyprompt.messages.msg import Msg, ToolResultBlock, ToolUseBlock
from lazyprompt.modules.clients._base import Request, Settings
from support.client_scenes import (
    ANSWERS,
    CALLS,
    FAULTS,
    KEY,
    TIMEOUT,
    WEATHER,
    WHOLE,
    echo,
    opened_sockets,
    said_by,
    said_in,
    until,
)
from support.model_server.server import Answer, HalfCall, Misbehaviour, ModelServer, Slow, Status, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lazyprompt.answers.parser import Delta
    from lazyprompt.modules.clients._base import OfficialClient
    from lazyprompt.modules.clients._faults import Fault


class Contract:
    """The tests. Whoever inherits says which provider, and how its client is made."""

    provider: ClassVar[str]
    package: ClassVar[str]  # the official client
    wire_key: ClassVar[str]  # what stands for the key in a header, given `KEY`

    def connect(self, settings: Settings) -> OfficialClient:
        raise NotImplementedError

    @pytest.fixture
    def server(self) -> Iterator[ModelServer]:
        with ModelServer() as server:
            yield server

    @pytest.fixture
    def client(self, server: ModelServer) -> Iterator[OfficialClient]:
        with self.opened(server) as client:
            yield client

    @contextmanager
    def opened(
        self, server: ModelServer, *, key: str | None = KEY, timeout: float = TIMEOUT, retries: int = 0, **options: Any
    ) -> Iterator[OfficialClient]:
        secret = None if key is None else Secret(key)
        client = self.connect(Settings(server.url(self.provider), secret, timeout, retries, options))
        yield client
        client.close()

    @property
    def formatter(self) -> ChatFormatter:
        return ChatFormatter(self.provider)

    def request(
        self, client: OfficialClient, *messages: Any, model: str = "m", tools: Any = None, **common: Any
    ) -> Request:
        said = messages or ({"role": "system", "content": "Be short."}, {"role": "user", "content": "ping"})
        return Request(model, self.formatter.format(*said, tools=tools), client.params(common))

    def streamed(self, client: OfficialClient, request: Request) -> tuple[Msg, list[Delta], bool]:
        collector = client.collector()
        deltas = [delta for event in client.stream(request) for delta in collector.feed(event)]
        return self.formatter.parse(collector.answer()), deltas, collector.complete

    async def astreamed(self, client: OfficialClient, request: Request) -> tuple[Msg, list[Delta], bool]:
        collector = client.collector()
        deltas = [delta async for event in client.astream(request) for delta in collector.feed(event)]
        return self.formatter.parse(collector.answer()), deltas, collector.complete

    def faults(self, client: OfficialClient, request: Request) -> Iterator[Fault]:
        """The fault of a call and of a stream, for threads and in a loop."""

        async def drained() -> None:
            async for _ in client.astream(request):
                pass

        async def looped(what: Callable[[], Any]) -> None:
            try:
                await what()
            finally:
                await client.aclose()

        ways: tuple[Callable[[], Any], ...] = (
            lambda: client.send(request),
            lambda: list(client.stream(request)),
            lambda: asyncio.run(looped(lambda: client.asend(request))),
            lambda: asyncio.run(looped(drained)),
        )
        for way in ways:
            with pytest.raises(Exception) as caught:  # noqa: PT011 - the fault is what is looked at
                way()
            fault = client.fault(caught.value)
            assert fault is not None, repr(caught.value)
            shown = "".join(traceback.format_exception(caught.value))
            assert KEY not in shown + repr(fault) + str(fault) + repr(client)
            assert "\n" not in fault.message
            yield fault

    def test_the_payload_arrives_as_the_formatter_made_it(self, server: ModelServer, client: OfficialClient) -> None:
        request = self.request(client, tools=[WEATHER], max_tokens=100, stop=["END"])
        before = deepcopy(request)
        client.send(request)
        list(client.stream(request))
        whole, streamed = server.seen
        assert whole.refusal is None
        assert (whole.streamed, streamed.streamed) == (False, True)
        assert whole.payload == streamed.payload
        assert request == before
        assert self.wire_key in whole.headers.values()

    @pytest.mark.parametrize("answer", ANSWERS)
    def test_streams_give_the_same_as_answers(
        self, server: ModelServer, client: OfficialClient, answer: Answer
    ) -> None:
        server.answer = answer
        request = self.request(client)
        msg = self.formatter.parse(client.send(request))
        streamed, deltas, complete = self.streamed(client, request)
        assert (streamed, complete) == (msg, True)
        assert said_in(deltas) == said_by(msg)
        assert said_by(msg)[2] == [tuple(each) for each in answer.calls]

    @pytest.mark.asyncio
    @pytest.mark.parametrize("answer", ANSWERS)
    async def test_loops_give_the_same_as_threads(
        self, server: ModelServer, client: OfficialClient, answer: Answer
    ) -> None:
        server.answer = answer
        request = self.request(client)
        msg = self.formatter.parse(await asyncio.to_thread(client.send, request))
        assert self.formatter.parse(await client.asend(request)) == msg
        streamed, deltas, complete = await self.astreamed(client, request)
        assert (streamed, complete, said_in(deltas)) == (msg, True, said_by(msg))
        await client.aclose()

    @pytest.mark.parametrize("how", ["whole", "streamed"])
    def test_calls_thoughts_and_results_go_back(self, server: ModelServer, client: OfficialClient, how: str) -> None:
        server.answer = WHOLE
        ask = Msg("Ann", "the weather?", "user")
        request = self.request(client, ask, tools=[WEATHER])
        sent = client.send(request) if how == "whole" else None
        msg = self.streamed(client, request)[0] if sent is None else self.formatter.parse(sent)
        results = Msg("tool", tuple(ToolResultBlock(each[0], each[1], "rain") for each in CALLS), "tool")
        server.answer = Answer("rain it is")
        again = self.request(client, ask, msg, results, tools=[WEATHER])
        assert self.formatter.parse(client.send(again)).text == "rain it is"
        assert [seen.refusal for seen in server.seen] == [None, None]

    @pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: repr(fault[0]))
    def test_each_misbehaviour_is_its_fault(
        self, server: ModelServer, client: OfficialClient, fault: tuple[Misbehaviour, str, str | None]
    ) -> None:
        misbehaviour, whole, streamed = fault
        server.answer = WHOLE
        server.faults = lambda _: misbehaviour
        request = self.request(client)
        if streamed is None:
            assert self.streamed(client, request)[2] is False
            assert asyncio.run(self._looped(client, request))[2] is False
            request_kinds = [client.fault(self._raised(lambda: client.send(request)))]
            assert [each and each.kind for each in request_kinds] == [whole]
            return
        faults = list(self.faults(client, request))
        assert [each.kind for each in faults] == [whole, streamed, whole, streamed]
        if isinstance(misbehaviour, Status):
            assert {(each.status, each.message) for each in faults} == {(misbehaviour.code, misbehaviour.message)}

    async def _looped(self, client: OfficialClient, request: Request) -> tuple[Msg, list[Delta], bool]:
        try:
            return await self.astreamed(client, request)
        finally:
            await client.aclose()

    @staticmethod
    def _raised(what: Callable[[], object]) -> Exception:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - the fault is what is looked at
            what()
        return caught.value

    def test_no_server_is_a_connection_fault(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{taken.getsockname()[1]}"
            client = self.connect(Settings(url, Secret(KEY), TIMEOUT, 0, {}))
            assert {fault.kind for fault in self.faults(client, self.request(client))} == {"connection"}
            client.close()

    def test_what_takes_too_long_is_a_timeout(self, server: ModelServer) -> None:
        server.faults = lambda _: Slow(first=TIMEOUT)
        with self.opened(server, timeout=0.2) as client:
            assert {fault.kind for fault in self.faults(client, self.request(client))} == {"timeout"}

    def test_a_stream_that_stands_still_is_a_timeout(self, server: ModelServer) -> None:
        server.faults = lambda _: Slow(first=0.0, between=TIMEOUT)
        with self.opened(server, timeout=0.5) as client:
            request = self.request(client)
            fault = client.fault(self._raised(lambda: list(client.stream(request))))
            assert fault is not None
            assert fault.kind == "timeout"

    def test_the_timeout_is_for_each_piece(self, server: ModelServer) -> None:
        server.answer = Answer("slowly, one piece after the other")
        server.faults = lambda _: Slow(first=0.0, between=0.2)
        with self.opened(server, timeout=1.5) as client, ThreadPoolExecutor(1) as beside:
            request = self.request(client)
            begin = time.monotonic()
            looped = beside.submit(lambda: asyncio.run(self._looped(client, request)))
            msg, _, complete = self.streamed(client, request)
            assert (msg.text, complete) == (server.answer.text, True)
            assert time.monotonic() - begin > 1.5
            assert looped.result()[0].text == server.answer.text

    def test_unknown_fields_and_events_change_nothing(self, server: ModelServer, client: OfficialClient) -> None:
        server.answer = WHOLE
        request = self.request(client)
        known = self.formatter.parse(client.send(request))
        server.faults = lambda _: Unknown()
        assert self.formatter.parse(client.send(request)) == known
        streamed, deltas, complete = self.streamed(client, request)
        assert (streamed, complete, said_in(deltas)) == (known, True, said_by(known))

    def test_half_a_call_is_never_a_whole_one(self, server: ModelServer, client: OfficialClient) -> None:
        server.answer = WHOLE
        server.faults = lambda _: HalfCall()
        msg, _, complete = self.streamed(client, self.request(client))
        calls = [block for block in msg.content if isinstance(block, ToolUseBlock)]
        assert complete
        assert calls[0].input == CALLS[0][2]
        assert all(call.raw_input for call in calls[1:])

    @pytest.mark.parametrize(
        ("key", "model", "said", "kind"),
        [("wrong", "m", "hi", "key"), (KEY, "no-such-model", "hi", "not found"), (KEY, "m", "OVERFLOW", "overflow")],
    )
    def test_the_servers_own_refusals(self, server: ModelServer, key: str, model: str, said: str, kind: str) -> None:
        with self.opened(server, key=key) as client:
            request = self.request(client, {"role": "user", "content": said}, model=model)
            assert {fault.kind for fault in self.faults(client, request)} == {kind}
            assert server.seen[0].refusal in {fault.message for fault in self.faults(client, request)}

    def test_a_key_that_the_server_quotes_is_not_shown(self, server: ModelServer, client: OfficialClient) -> None:
        server.faults = lambda _: Status(401, f"the key {KEY} is wrong")
        for fault in self.faults(client, self.request(client)):
            assert fault.message == "the key *** is wrong"

    def test_a_key_that_no_header_can_carry_is_not_shown(self, server: ModelServer) -> None:
        with self.opened(server, key=f" {KEY}\n") as client:
            client.send(self.request(client))
            assert self.wire_key in server.seen[0].headers.values()
        with pytest.raises(ModuleError, match="no header can carry") as caught, self.opened(server, key=f"{KEY}\nx"):
            pass
        assert KEY not in "".join(traceback.format_exception(caught.value))

    def test_no_key_of_the_environment_goes_to_a_server_that_asks_for_none(
        self, server: ModelServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "GOOGLE_API_KEY", "GEMINI_API_KEY"):
            monkeypatch.setenv(name, KEY)
        with self.opened(server, key=None) as client:
            client.send(self.request(client))
        assert not any(KEY in value for value in server.seen[0].headers.values())

    @pytest.mark.asyncio
    async def test_cancelling_closes_the_connection(self, server: ModelServer, client: OfficialClient) -> None:
        server.faults = lambda seen: Slow(first=0.0, between=TIMEOUT) if seen.streamed else Slow(first=TIMEOUT)

        async def drained() -> None:
            async for _ in client.astream(self.request(client)):
                pass

        def arrived(number: int) -> bool:
            return until(lambda: len(server.seen) == number)

        for number, doing in enumerate((client.asend(self.request(client)), drained()), 1):
            task = asyncio.ensure_future(doing)
            assert await asyncio.to_thread(arrived, number)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.to_thread(server.wait_for, number, TIMEOUT)
            assert server.seen[-1].client_left
        await client.aclose()

    def test_closing_a_stream_closes_the_connection(self, server: ModelServer, client: OfficialClient) -> None:
        server.faults = lambda _: Slow(first=0.0, between=TIMEOUT)

        async def looped() -> None:
            events = client.astream(self.request(client))
            await anext(aiter(events))
            await events.aclose()  # type: ignore[attr-defined]  # it is a generator
            await asyncio.to_thread(server.wait_for, 2, TIMEOUT)
            await client.aclose()

        events = client.stream(self.request(client))
        next(iter(events))
        events.close()  # type: ignore[attr-defined]  # it is a generator
        server.wait_for(1, TIMEOUT)
        asyncio.run(looped())
        assert [seen.client_left for seen in server.seen] == [True, True]

    def test_fifty_threads_at_once(self, server: ModelServer, client: OfficialClient) -> None:
        server.answer = echo

        def ask(number: int) -> bool:
            request = self.request(client, {"role": "user", "content": f"number {number}."})
            msg = self.formatter.parse(client.send(request)) if number % 2 else self.streamed(client, request)[0]
            return f"number {number}." in msg.text

        with ThreadPoolExecutor(50) as pool:
            assert all(pool.map(ask, range(100)))
        assert len(server.seen) == 100

    @pytest.mark.asyncio
    async def test_a_hundred_tasks_at_once(self, server: ModelServer, client: OfficialClient) -> None:
        server.answer = echo

        async def ask(number: int) -> bool:
            request = self.request(client, {"role": "user", "content": f"number {number}."})
            if number % 2:
                return f"number {number}." in self.formatter.parse(await client.asend(request)).text
            return f"number {number}." in (await self.astreamed(client, request))[0].text

        assert all(await asyncio.gather(*map(ask, range(100))))
        assert len(server.seen) == 100
        await client.aclose()

    def test_each_event_loop_has_connections_of_its_own(self, server: ModelServer, client: OfficialClient) -> None:
        for _ in range(3):
            assert asyncio.run(self._looped(client, self.request(client)))[2]
        assert len(server.seen) == 3

    @pytest.mark.skipif(
        not Path("/proc/self/fd").is_dir(), reason="it counts files in /proc, which the Linux of CI has"
    )
    def test_closing_leaves_no_socket_open(self, server: ModelServer) -> None:
        before = opened_sockets()
        with self.opened(server) as client:
            for _ in range(3):
                self.streamed(client, self.request(client))
                client.send(self.request(client))
                asyncio.run(self._looped(client, self.request(client)))
            assert opened_sockets() > before
        assert until(lambda: opened_sockets() == before)

    def test_a_closed_client_opens_again(self, server: ModelServer, client: OfficialClient) -> None:
        client.send(self.request(client))
        client.close()
        client.close()
        client.send(self.request(client))
        assert len(server.seen) == 2

    def test_without_the_official_client_its_extra_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        client = self.connect(Settings(None, Secret(KEY), TIMEOUT, 0, {}))
        for name in ("anthropic", "google", "google.genai", "mistralai", "mistralai.client"):
            monkeypatch.setitem(__import__("sys").modules, name, None)
        with pytest.raises(MissingExtraError, match=rf'the package {self.package} .* "lazyprompt\[{self.package}\]"'):
            client.send(Request("m", {}, {}))

    def test_errors_of_others_are_none_of_the_clients(self, client: OfficialClient) -> None:
        assert client.fault(KeyError("x")) is None
        assert client.fault(RuntimeError("x")) is None


def ways(client: OfficialClient, request: Request) -> Iterator[Callable[[], object]]:
    """The four ways to ask a client: functions that give the answer, or the list of events."""

    async def asend() -> object:
        try:
            return await client.asend(request)
        finally:
            await client.aclose()

    async def astream() -> list[object]:
        try:
            return [event async for event in client.astream(request)]
        finally:
            await client.aclose()

    yield lambda: client.send(request)
    yield lambda: list(client.stream(request))
    yield lambda: asyncio.run(asend())
    yield lambda: asyncio.run(astream())
