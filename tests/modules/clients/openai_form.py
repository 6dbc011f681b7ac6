"""What the tests of the clients for OpenAI's form have in common: settings, questions, answers, and ways to ask."""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, closing, suppress
from math import inf
from stat import S_ISSOCK
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

import pytest

from lazyprompt._base.secret import Secret
from lazyprompt.errors import MissingExtraError
from lazyprompt.formatters.formatter import ChatFormatter
from lazyprompt.modules.clients._base import Request, Settings
from lazyprompt.modules.clients._faults import Fault
from support.model_server.server import (
    Answer,
    Cut,
    Drop,
    Ends,
    Fails,
    HalfCall,
    Malformed,
    Misbehaviour,
    ModelServer,
    Slow,
    Status,
    Unknown,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from lazyprompt.answers.parser import Delta
    from lazyprompt.messages.msg import Msg
    from lazyprompt.modules.clients._base import OfficialClient
    from lazyprompt.modules.clients._faults import FaultKind
    from support.model_server.server import Seen

KEY = "sk-test-0123456789abcdef"
PATIENCE = 30.0  # seconds; for what is to happen soon, on a machine that has other things to do

ANSWERS = {
    "text": Answer("Grüße aus Köln, 你好 🙂", prompt_tokens=11, completion_tokens=7),
    "thinking": Answer("42", thinking="Six times seven is\n\nforty-two."),
    "calls": Answer(
        text="", calls=(("call_a", "weather", {"city": "Paris", "days": 2}), ("call_b", "clock", {"zone": "北京"}))
    ),
    "all": Answer("I look.", "What do I need?", (("call_a", "search", {"query": 'a "quoted" {brace}', "deep": {}}),)),
    "length": Answer("The beginning of", finish="length"),
    "refusal": Answer("I cannot help with that.", finish="refusal"),
    "empty": Answer(""),
}

# What a server does to a request, and what that means unstreamed and streamed; None: nothing is wrong.
WRONG: dict[str, tuple[Misbehaviour, FaultKind | None, FaultKind | None]] = {
    "400": (Status(400), "request", "request"),
    "401": (Status(401), "key", "key"),
    "402": (Status(402), "rate limit", "rate limit"),
    "403": (Status(403), "key", "key"),
    "404": (Status(404), "not found", "not found"),
    "408": (Status(408), "timeout", "timeout"),
    "413": (Status(413), "overflow", "overflow"),
    "422": (Status(422), "request", "request"),
    "429": (Status(429, retry_after=7.5), "rate limit", "rate limit"),
    "500": (Status(500), "server", "server"),
    "503": (Status(503), "server", "server"),
    "drop": (Drop(), "connection", "connection"),
    "cut": (Cut(), "connection", "connection"),  # the module tells that an answer had begun
    "cut before": (Cut(0), "connection", "connection"),
    "ends": (Ends(), "malformed", "cut"),
    "fails": (Fails(), "server", "server"),
    "malformed": (Malformed(), "malformed", "malformed"),
    "page": (Malformed(page=True), "malformed", "malformed"),
    "slow": (Slow(PATIENCE), "timeout", "timeout"),
    "halts": (Slow(0.0, PATIENCE), None, "timeout"),
    "half call": (HalfCall(), None, None),
    "unknown": (Unknown(), None, None),
}


def settings_for(
    server: ModelServer,
    provider: str,
    *,
    key: str | None = KEY,
    timeout: float = PATIENCE,
    retries: int = 0,
    **options: Any,
) -> Settings:
    """Settings for a client of the server."""
    return Settings(server.url(provider), None if key is None else Secret(key), timeout, retries, options)


def ask(content: str = "ping", model: str = "m", **params: object) -> Request:
    """A request of one user's turn."""
    return Request(model, {"messages": [{"role": "user", "content": content}]}, params)


def read(provider: str, answer: object) -> Msg:
    """What a module makes of an answer."""
    return ChatFormatter("openai" if provider == "siliconflow" else provider).parse(answer)


class Streamed(NamedTuple):
    """A stream to its end."""

    answer: dict[str, Any]
    deltas: list[Delta]
    complete: bool

    @property
    def said(self) -> str:
        """The text and the thoughts in the deltas."""
        return "".join(delta.text for delta in self.deltas if delta.kind != "tool_call")


def streamed(client: OfficialClient, request: Request) -> Streamed:
    """A stream, collected."""
    collector = client.collector()
    deltas = [delta for event in client.stream(request) for delta in collector.feed(event)]
    return Streamed(collector.answer(), deltas, collector.complete)


async def astreamed(client: OfficialClient, request: Request) -> Streamed:
    """The same in an event loop."""
    collector = client.collector()
    deltas = [delta async for event in client.astream(request) for delta in collector.feed(event)]
    return Streamed(collector.answer(), deltas, collector.complete)


def checked(streamed: Streamed, message: Msg) -> None:
    """That the deltas add up to the message."""
    calls: dict[int | None, dict[str, str]] = {}
    for delta in streamed.deltas:
        if delta.kind == "tool_call":
            call = calls.setdefault(delta.index, {"id": "", "name": "", "text": ""})
            call["text"] += delta.text
            call["id"] += delta.id or ""  # each is told once
            call["name"] += delta.name or ""
    told = streamed.answer["choices"][0]["message"].get("tool_calls", [])
    assert list(calls) == list(range(len(told)))
    assert [(call["id"], call["name"], call["text"]) for call in calls.values()] == [
        (call["id"] or "", call["function"]["name"], call["function"]["arguments"]) for call in told
    ]
    blocks = [message.content] if isinstance(message.content, str) else message.content
    written = (
        block if isinstance(block, str) else getattr(block, "thinking", getattr(block, "text", "")) for block in blocks
    )
    assert streamed.said == "".join(written)


_ENDED = EOFError("the stream ended without its end")


def failed(client: OfficialClient, request: Request, *, stream: bool) -> tuple[Exception, Fault]:
    """What went wrong with a call, or with a stream that came to its end."""
    try:
        fine = streamed(client, request).complete if stream else client.send(request) is not None
    except Exception as error:  # noqa: BLE001 - whichever the client has
        return _fault(client, error)
    return _ended(fine=fine)


async def afailed(client: OfficialClient, request: Request, *, stream: bool) -> tuple[Exception, Fault]:
    """The same in an event loop."""
    try:
        fine = (await astreamed(client, request)).complete if stream else await client.asend(request) is not None
    except Exception as error:  # noqa: BLE001 - whichever the client has
        return _fault(client, error)
    return _ended(fine=fine)


def _fault(client: OfficialClient, error: Exception) -> tuple[Exception, Fault]:
    fault = client.fault(error)
    if fault is None:
        raise error
    return error, fault


def _ended(*, fine: bool) -> tuple[Exception, Fault]:
    """What a module says where a stream ended and its collector is not complete."""
    assert not fine, "nothing went wrong"
    return _ENDED, Fault("cut", str(_ENDED))


def shown(error: BaseException, *more: object) -> str:
    """All that can be read of an error, and of other things."""
    return "".join((*traceback.format_exception(error), *(f"{each!r} {each!s}" for each in (error, *more))))


def first_of(client: OfficialClient, request: Request) -> Generator[object]:
    """A stream of which the first event was taken."""
    events = cast("Generator[object]", client.stream(request))
    next(events)
    return events


async def afirst_of(client: OfficialClient, request: Request) -> AsyncGenerator[object]:
    """The same in an event loop."""
    events = cast("AsyncGenerator[object]", client.astream(request))
    await anext(events)
    return events


async def ataken(client: OfficialClient, request: Request) -> None:
    """A stream to its end, in a task that is to be cancelled."""
    async with aclosing(cast("AsyncGenerator[object]", client.astream(request))) as events:
        async for _ in events:
            pass


def arrived(server: ModelServer, requests: int = 1) -> None:
    """Wait until the server has seen so many requests."""
    until = monotonic() + PATIENCE
    while len(server.seen) < requests:
        assert monotonic() < until, f"{len(server.seen)} requests"
        sleep(0.005)


def open_sockets() -> int:
    """How many sockets this process has open, of which the server's are half."""
    count = 0
    for name in os.listdir("/dev/fd"):  # noqa: PTH208 - no files, but numbers
        with suppress(OSError):  # that of the list itself
            count += S_ISSOCK(os.fstat(int(name)).st_mode)
    return count


def closed(before: int) -> bool:
    """Whether there are soon no more sockets open than before; the server closes its ends a moment later."""
    until = monotonic() + PATIENCE
    while open_sockets() > before and monotonic() < until:
        sleep(0.01)
    return open_sockets() <= before


def echo(seen: Seen) -> Answer:
    """An answer that quotes the question."""
    return Answer(f"you said {seen.body['messages'][0]['content']}")


class Shared:
    """Tests of every client for OpenAI's form. Whoever inherits says which provider, and how its client is made.

    Attributes:
        provider: The provider whose server is asked.
        package: The official client.
        extra: The extra that installs it.
        most_sockets: How many sockets a client may open at most.
    """

    provider: ClassVar[str]
    package: ClassVar[str]
    extra: ClassVar[str]
    most_sockets: ClassVar[float] = inf

    def client_for(self, server: ModelServer, **settings: Any) -> OfficialClient:
        raise NotImplementedError

    def content(self, answer: object) -> object:
        return read(self.provider, answer).content

    def test_a_key_that_a_server_quotes_shows_nowhere(self, server: ModelServer) -> None:
        server.faults = [Status(400, f"I do not like {KEY} at all")] * 2
        with closing(self.client_for(server)) as client:
            for stream in (False, True):
                error, told = failed(client, ask(), stream=stream)
                assert told.message == "I do not like *** at all"
                assert KEY not in shown(error, told, client, settings_for(server, self.provider))

    @pytest.mark.asyncio
    async def test_closing_a_stream_closes_the_connection(self, server: ModelServer) -> None:
        server.faults = [Slow(0.0, PATIENCE)] * 2
        client = self.client_for(server)
        first_of(client, ask()).close()
        await (await afirst_of(client, ask())).aclose()
        await asyncio.to_thread(server.wait_for, 2, PATIENCE / 2)
        client.close()
        await client.aclose()

        assert [seen.client_left for seen in server.seen] == [True, True]

    def test_fifty_threads_share_a_client(self) -> None:
        with (
            ModelServer(echo, judges=False) as server,
            closing(self.client_for(server)) as client,
            ThreadPoolExecutor(50) as pool,
        ):
            whole = list(pool.map(lambda n: self.content(client.send(ask(f"n {n}"))), range(100)))
            parts = list(pool.map(lambda n: streamed(client, ask(f"s {n}")).said, range(100)))
        assert whole == [f"you said n {n}" for n in range(100)]
        assert parts == [f"you said s {n}" for n in range(100)]

    @pytest.mark.asyncio
    async def test_a_hundred_tasks_share_a_client_on_no_more_lines_than_there_may_be(self) -> None:
        with ModelServer(echo, judges=False) as server:
            client, before = self.client_for(server), open_sockets()
            whole = await asyncio.gather(*(client.asend(ask(f"n {n}")) for n in range(100)))
            parts = await asyncio.gather(*(astreamed(client, ask(f"s {n}")) for n in range(100)))
            assert open_sockets() - before <= self.most_sockets
            await client.aclose()
        assert [self.content(each) for each in whole] == [f"you said n {n}" for n in range(100)]
        assert [each.said for each in parts] == [f"you said s {n}" for n in range(100)]

    def test_closing_leaves_nothing_open_and_what_was_closed_opens_again(self, server: ModelServer) -> None:
        client, before = self.client_for(server), open_sockets()

        async def ask_once() -> None:
            inside = open_sockets()
            await astreamed(client, ask())  # whose connection may be closed, as it is not read to the very end
            await client.asend(ask())
            assert open_sockets() > inside
            await client.aclose()
            assert await asyncio.to_thread(closed, inside)

        for _ in range(2):
            streamed(client, ask())
            client.send(ask())
            assert open_sockets() > before
            client.close()
            assert closed(before)
            asyncio.run(ask_once())
        client.close()  # there is nothing left to close
        assert len(server.seen) == 8

    def test_a_client_that_is_not_installed_names_the_extra(
        self, server: ModelServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, self.package, None)
        with pytest.raises(MissingExtraError, match=rf"lazyprompt\[{self.extra}\]"):
            self.client_for(server).send(ask())
