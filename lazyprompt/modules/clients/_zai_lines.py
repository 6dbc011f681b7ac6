"""A client that knows only threads, for event loops: in threads of its own, on connections that can be cut.

A thread that waits for an answer cannot be stopped, and closing its socket does not wake it. Shutting the socket down
does: the server sees that the client left, and the thread's call fails at once.
"""

from __future__ import annotations

import socket
from asyncio import Semaphore, to_thread, wrap_future
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from concurrent.futures import Future

    import httpx
    import zai

_Result = TypeVar("_Result")

# How many calls are made at a time; the client itself has as many connections at most.
LIMIT = 50


class Line:
    """An official client with a connection of its own, for one call after the other.

    Args:
        client: The client.
        http: The HTTP client that it uses and nobody else.
    """

    def __init__(self, client: zai.ZhipuAiClient, http: httpx.Client) -> None:
        self.client = client
        self._http = http
        self._cut = False
        self._socket: socket.socket | None = None
        self._work: Future[Any] | None = None
        http.event_hooks["request"] = [self._watch]

    async def run(self, threads: ThreadPoolExecutor, work: Callable[[], _Result]) -> _Result:
        """Do something with the client in a thread."""
        self._work = threads.submit(work)
        return cast("_Result", await wrap_future(self._work))

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


class Lines:
    """The lines of an event loop, each used by one task at a time.

    Args:
        make: Makes a line.
    """

    def __init__(self, make: Callable[[], Line]) -> None:
        self._make = make
        self._free = Semaphore(LIMIT)
        self._all: set[Line] = set()
        self._idle: list[Line] = []
        self.threads = ThreadPoolExecutor(LIMIT, "zai")

    @asynccontextmanager
    async def line(self) -> AsyncGenerator[Line]:
        """A line for one call; it is cut if the call is cancelled, or its stream is closed before its end."""
        async with self._free:
            line = self._idle.pop() if self._idle else await to_thread(self._make)
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
        await to_thread(self.threads.shutdown)
