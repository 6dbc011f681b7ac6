"""Calls that are given up, and modules that are closed: connections go, nothing is left, and the next call works."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lazyprompt import ModuleError
from lazyprompt.modules.clients._base import OfficialClient
from modules.online_scenes import ASKED, FEW, Counted, module, run_in_loop
from support.client_scenes import TIMEOUT, opened_sockets, until
from support.model_server.server import Answer, Slow, Status

pytestmark = pytest.mark.slow
SOME = pytest.mark.parametrize("source", FEW)


@SOME
def test_cancelling_closes_the_connection(server: Counted, source: str) -> None:
    model = module(server, source)
    server.answer = Answer("one two three four five")
    server.faults = lambda seen: Slow(first=0.0, between=TIMEOUT) if seen.streamed else Slow(first=TIMEOUT)

    async def drained() -> None:
        async for _ in model.astream(ASKED):
            pass

    async def given_up() -> None:
        def arrived(number: int) -> bool:
            return until(lambda: len(server.seen) == number)

        for number, doing in enumerate((model.acall(ASKED), drained()), 1):
            task = asyncio.ensure_future(doing)
            assert await asyncio.to_thread(arrived, number)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.to_thread(server.wait_for, number, TIMEOUT)

    run_in_loop(model, given_up())
    assert [seen.client_left for seen in server.seen] == [True, True]


@SOME
def test_cancelled_between_two_attempts_it_is_not_tried_again(server: Counted, source: str) -> None:
    model = module(server, source, retries=5)
    server.faults = lambda _: Status(429, retry_after=50)

    async def given_up() -> None:
        task = asyncio.ensure_future(model.acall(ASKED))
        assert await asyncio.to_thread(until, lambda: server.over() == 1)
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_in_loop(model, given_up())
    assert len(server.seen) == 1


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="it counts files in /proc, which the Linux of CI has")
@SOME
def test_closing_leaves_no_socket(server: Counted, source: str) -> None:
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
def test_closed_in_the_midst_of_calls_it_goes_on(server: Counted, source: str) -> None:
    """Calls that are under way may fail, with an error of ours; the next ones get their answer."""
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
        assert set(answers) <= {"pong", "connection", "cut", "timeout"}
    assert model(ASKED) == "pong"


@SOME
def test_a_client_that_was_closed_under_a_call_is_a_lost_connection(
    server: Counted, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when another thread closes the module between the two steps of a call: to get the client, and to send."""
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
