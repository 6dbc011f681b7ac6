"""Zhipu's official client (GLM), which knows only threads: event loops get it in threads, on connections of their own.

It would try again by itself, but does not wait as long as ``Retry-After`` says; so it is left to the module. It changes
the messages it is given, and takes temperatures of 0 and 1, which its API does not, for others next to them.

A thread that waits for an answer cannot be stopped, and closing its socket does not wake it. Shutting the socket down
does: the server sees that the client left, and the thread's call fails at once.

Source: the API reference, "Chat completion" (对话补全) and "Error codes"; the source of the client (zai-sdk 0.2).
"""

from __future__ import annotations

import json
import socket
from asyncio import Semaphore, to_thread, wrap_future
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, nullcontext, suppress
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

from lazyprompt.modules.clients._base import CONNECTIONS, EXTRA_BODY, OfficialClient, Request, import_extra, key_of
from lazyprompt.modules.clients._faults import FaultKind, Refusal
from lazyprompt.modules.clients.openai import ChatCollector

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    import httpx


# How many calls of an event loop are made at a time; the client itself has as many connections at most.
LIMIT = 50
_END = object()


class ZaiClient(OfficialClient):
    """The client of chat completions.

    Args:
        settings: ``options`` are further arguments of ``zai.ZhipuAiClient``. An ``http_client`` is for threads only:
            event loops have one for each connection. With no ``base_url`` it is that of ``ZAI_BASE_URL``, or Zhipu's.
    """

    package = ("zai", "zai-sdk")
    method = "zai.api_resource.chat.completions:Completions.create"
    called = "chat.completions.create"
    advice = EXTRA_BODY
    collector = ChatCollector
    kinds: ClassVar[Mapping[str, FaultKind]] = {
        "zai.APITimeoutError": "timeout",
        "zai.APIConnectionError": "connection",
        "zai.APIResponseValidationError": "malformed",
        "zai.APIStatusError": "request",
        "zai.APIResponseError": "server",  # what a stream says of itself
        "zai.ZaiError": "key",  # there is none
    }

    def _make(self, *, in_loop: bool) -> Any:
        """Make the client for threads, or the lines of an event loop, which read the certificates once for all."""
        self.sdk()
        httpx = import_extra("httpx", "zai-sdk")
        if in_loop:
            context = httpx.create_ssl_context()
            return _Lines(lambda threads: _Line(self._client, httpx.Client(verify=context), threads))
        if "http_client" in self._settings.options:
            return self._client()
        limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
        return self._client(http_client=httpx.Client(limits=limits))

    def _client(self, **http: Any) -> Any:
        base_url, _, timeout, _, options = self._settings
        made = {"base_url": base_url, "timeout": timeout, "max_retries": 0, **options, **http}
        client = self.sdk().ZhipuAiClient(**{"api_key": key_of(self._key), **made})
        _ = client.chat.completions  # which imports what it needs: here, where no event loop waits for it
        return client

    def _lend(self, client: Any) -> Any:
        return client.line() if isinstance(client, _Lines) else nullcontext(client)

    def _ask(self, client: Any, request: Request, **stream: bool) -> Any:
        # A copy, for the client takes the heads off pictures in the messages it is given.
        call = {"model": request.model, **deepcopy(dict(request.payload)), **request.params, **stream}
        if isinstance(client, _Line):
            return client.ask(call)
        answer = client.chat.completions.create(**call)
        return _Events(answer) if stream else answer

    def _refusal(self, error: Any) -> Refusal:
        """Return the server's answer: the client keeps it as it came, or its error in a stream."""
        response: httpx.Response | None = getattr(error, "response", None)
        if response is None or hasattr(error, "json_data"):
            return Refusal(None, getattr(error, "json_data", None))
        try:
            body: object = json.loads(response.text)
        except (ValueError, RecursionError):
            body = response.text
        return Refusal(response.status_code, body, response.headers)


class _Events:
    """The events of a stream, whose response is closed with it."""

    def __init__(self, events: Any, line: _Line | None = None) -> None:
        self._events, self._line = events, line

    def __iter__(self) -> Any:
        return iter(self._events)

    async def __aiter__(self) -> AsyncGenerator[object]:
        while self._line and (event := await self._line.run(partial(next, self._events, _END))) is not _END:
            yield event

    def close(self) -> None:
        self._events.response.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, Exception):  # for the line is kept; else it is cut
            self.close()


class _Line:
    """An official client with a connection of its own, for one call after the other.

    Args:
        make: Makes the client with an HTTP client.
        http: The HTTP client that it uses and nobody else.
        threads: The threads that it works in.
    """

    def __init__(self, make: Callable[..., Any], http: httpx.Client, threads: ThreadPoolExecutor) -> None:
        self._client, self._http, self._threads = make(http_client=http), http, threads
        self._cut = False
        self._socket: socket.socket | None = None
        self._work: Future[Any] | None = None
        http.event_hooks["request"] = [self._watch]

    async def ask(self, call: Mapping[str, Any]) -> Any:
        """Call the client in a thread."""
        answer = await self.run(partial(self._client.chat.completions.create, **call))
        return _Events(answer, self) if call.get("stream") else answer

    async def run(self, work: Callable[[], Any]) -> Any:
        """Do something with the client in a thread."""
        self._work = self._threads.submit(work)
        return await wrap_future(self._work)

    def hang_up(self) -> None:
        """Cut the connection now, and close it as soon as no thread uses it any more."""
        self._cut = True
        self._shut()
        if self._work is None:
            self._http.close()
        else:
            self._work.add_done_callback(lambda _: self._http.close())

    def _watch(self, request: httpx.Request) -> None:
        request.extensions["trace"] = self._note

    def _note(self, event: str, info: Mapping[str, Any]) -> None:
        """Note a connection when it is made, and again when TLS is: httpx tells both by its "trace" extension."""
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._socket = info["return_value"].get_extra_info("socket")
            if self._cut:
                self._shut()

    def _shut(self) -> None:
        if self._socket is not None:
            with suppress(OSError):  # it is closed already
                # Not the method that TLS sockets have: it takes away what the thread is just reading from.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


class _Lines:
    """The lines of an event loop, each used by one task at a time.

    Args:
        make: Makes a line.
    """

    def __init__(self, make: Callable[[ThreadPoolExecutor], _Line]) -> None:
        self._make = make
        self._free = Semaphore(LIMIT)
        self._all: set[_Line] = set()
        self._idle: list[_Line] = []
        self._threads = ThreadPoolExecutor(LIMIT, "zai")

    @asynccontextmanager
    async def line(self) -> AsyncGenerator[_Line]:
        """Lend a line for one call; it is cut if the call is cancelled, or its stream is closed before its end."""
        async with self._free:
            line = self._idle.pop() if self._idle else await to_thread(self._make, self._threads)
            self._all.add(line)
            try:
                yield line
            except Exception:
                self._idle.append(line)  # whatever broke, httpx has closed it
                raise
            except BaseException:
                self._all.discard(line)
                line.hang_up()
                raise
            self._idle.append(line)

    async def close(self) -> None:
        """Close all connections, of calls under way too, and wait for the threads."""
        for line in self._all:
            line.hang_up()
        await to_thread(self._threads.shutdown)


connect = ZaiClient
