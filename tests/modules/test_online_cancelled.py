"""Cancelled calls and closed modules: connections are closed, and the next call works."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lazyprompt import ModuleError
from lazyprompt.modules.clients._base import OfficialClient
from modules.online_scenes import ASKED, SOME, Counted, module, run_in_loop
from support.client_scenes import TIMEOUT, opened_sockets, until
from support.model_server.server import Answer, Slow, Status

pytestmark = pytest.mark.slow


@SOME
def test_cancelled_call_closes_its_connection(server: Counted, source: str) -> None:
    model = module(server, source)
    server.answer = Answer("one two three four five")
    server.faults = lambda seen: Slow(first=0.0, between=TIMEOUT) if seen.streamed else Slow(first=TIMEOUT)

    async def drained() -> None:
        async for _ in model.astream(ASKED):
            pass

    async def cancel_all() -> None:
        def arrived(number: int) -> bool:
            return until(lambda: len(server.seen) == number)

        for number, doing in enumerate((model.acall(ASKED), drained()), 1):
            task = asyncio.ensure_future(doing)
            assert await asyncio.to_thread(arrived, number)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.to_thread(server.wait_for, number, TIMEOUT)

    run_in_loop(model, cancel_all())
    assert [seen.client_left for seen in server.seen] == [True, True]


@SOME
def test_call_cancelled_between_attempts_is_not_retried(server: Counted, source: str) -> None:
    model = module(server, source, retries=5)
    server.faults = lambda _: Status(429, retry_after=50)

    async def cancel_all() -> None:
        task = asyncio.ensure_future(model.acall(ASKED))
        assert await asyncio.to_thread(until, lambda: server.over() == 1)
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_in_loop(model, cancel_all())
    assert len(server.seen) == 1


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="it counts files in /proc, which the Linux of CI has")
@SOME
def test_closed_module_leaves_no_socket_open(server: Counted, source: str) -> None:
    before = opened_sockets()
    model = module(server, source)

    async def asked() -> None:
        await model.acall(ASKED)
        async with model.astream(ASKED) as stream:
            async for _ in stream:
                break

    with model.stream(ASKED) as stream:
        next(iter(stream))
    model(ASKED)
    run_in_loop(model, asked())
    assert opened_sockets() > before
    model.close()
    model.close()
    assert until(lambda: opened_sockets() == before)
    assert model(ASKED) == "pong"  # it opens again
    model.close()


@SOME
def test_module_closed_during_calls_can_be_called_again(server: Counted, source: str) -> None:
    """Running calls may fail with a ModuleError; later calls succeed."""
    model = module(server, source, timeout=1.0)
    server.faults = lambda _: Slow(first=0.1)

    def ask(_: int) -> str:
        try:
            return str(model(ASKED))
        except ModuleError as error:
            return error.kind

    with ThreadPoolExecutor(8) as pool:
        answers = pool.map(ask, range(16))
        for _ in range(5):
            model.close()
        assert {"pong"} <= set(answers) <= {"pong", "connection", "cut", "timeout"}
    assert model(ASKED) == "pong"


@SOME
def test_client_closed_before_the_request_is_sent_is_a_connection_error(
    server: Counted, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread may close the module after a call got its client, and before it sends the request."""
    taken = OfficialClient.client

    def closed(self: OfficialClient) -> Any:
        client = taken(self)
        model.close()
        return client

    model = module(server, source)
    with monkeypatch.context() as patched:
        patched.setattr(OfficialClient, "client", closed)
        for way in (lambda: model(ASKED), lambda: list(model.stream(ASKED))):
            with pytest.raises(ModuleError, match="closed") as caught:
                way()
            assert caught.value.kind == "connection"
    assert model(ASKED) == "pong"
    model.close()
