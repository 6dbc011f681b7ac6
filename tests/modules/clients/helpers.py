"""Helpers for the tests of one client. Behaviour common to all clients is tested in test_online*."""

import asyncio
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, ClassVar, NamedTuple

import pytest

from lazyprompt._base.secret import Secret
from lazyprompt.answers.parser import Delta
from lazyprompt.formatters.formatter import ChatFormatter
from lazyprompt.messages.msg import Msg
from lazyprompt.modules.clients._base import ClientSettings, OfficialClient, Request
from lazyprompt.modules.clients._faults import Fault
from lazyprompt.modules.sources import SOURCES
from support.client_scenes import KEY, TIMEOUT
from support.model_server.server import ModelServer


class ClientTests:
    """Base class of the tests of a client. Subclasses set the provider, and how its client is made."""

    provider: ClassVar[str]

    def connect(self, settings: ClientSettings) -> OfficialClient:
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
    def opened(self, server: ModelServer, **settings: Any) -> Iterator[OfficialClient]:
        with closing(self.connect(settings_for(server, self.provider, **settings))) as client:
            yield client

    @property
    def formatter(self) -> ChatFormatter:
        return ChatFormatter(self.provider)

    def request(
        self, client: OfficialClient, *messages: Any, model: str = "m", tools: Any = None, **common: Any
    ) -> Request:
        said = messages or ({"role": "system", "content": "Be short."}, {"role": "user", "content": "ping"})
        return Request(model, self.formatter.format(*said, tools=tools), client.params(common))

    def streamed(self, client: OfficialClient, request: Request) -> tuple[Msg, list[Delta], bool]:
        stream = collect_stream(client, request)
        return self.formatter.parse(stream.answer), stream.deltas, stream.complete

    async def astreamed(self, client: OfficialClient, request: Request) -> tuple[Msg, list[Delta], bool]:
        collector = client.collector()
        deltas = [delta async for event in client.astream(request) for delta in collector.feed(event)]
        return self.formatter.parse(collector.answer()), deltas, collector.complete

    def faults(self, client: OfficialClient, request: Request) -> Iterator[Fault]:
        """The fault of a call and of a stream, for threads and in a loop."""
        for way in ways(client, request):
            error = raised_error(way)
            fault = client.fault(error)
            assert fault is not None, repr(error)
            shown = "".join(traceback.format_exception(error))
            assert KEY not in shown + repr(fault) + str(fault) + repr(client)
            assert "\n" not in fault.message
            yield fault


def settings_for(
    server: ModelServer,
    provider: str,
    *,
    key: str | None = KEY,
    timeout: float = TIMEOUT,
    retries: int = 0,
    **options: Any,
) -> ClientSettings:
    """Settings for a client of the server."""
    return ClientSettings(server.url(provider), None if key is None else Secret(key), timeout, retries, options)


def ask(content: str = "ping", model: str = "m", **params: object) -> Request:
    """A request with one user message in OpenAI's format."""
    return Request(model, {"messages": [{"role": "user", "content": content}]}, params)


def parse_answer(provider: str, answer: object) -> Msg:
    """The message of a response, as a module parses it."""
    return ChatFormatter(SOURCES[provider].provider).parse(answer)


class Streamed(NamedTuple):
    """A complete stream."""

    answer: dict[str, Any]
    deltas: list[Delta]
    complete: bool


def collect_stream(client: OfficialClient, request: Request) -> Streamed:
    """A stream, collected."""
    collector = client.collector()
    deltas = [delta for event in client.stream(request) for delta in collector.feed(event)]
    return Streamed(collector.answer(), deltas, collector.complete)


def call_error(client: OfficialClient, request: Request, *, stream: bool) -> tuple[Exception, Fault]:
    """The error of a call or of a stream, and the fault that the client makes of it."""
    error = raised_error(lambda: list(client.stream(request)) if stream else client.send(request))
    fault = client.fault(error)
    assert fault is not None, repr(error)
    return error, fault


def raised_error(what: Callable[[], object]) -> Exception:
    """The error of a call."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the fault is what is looked at
        what()
    return caught.value


def ways(client: OfficialClient, request: Request) -> Iterator[Callable[[], object]]:
    """The four ways to call a client: functions that return the response, or the list of events."""

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
