"""Limits on the size and duration of responses and stream events, for every client.

The official clients limit neither the size nor the total duration of responses. Event hooks of the HTTP client
therefore replace each response body with a stream that counts the decompressed bytes and checks the time.
"""

from __future__ import annotations

import zlib
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

# The size and time limits for a whole stream, as multiples of the limits for one event.
# Streams need higher limits: each event repeats the JSON keys, and generation may last an hour.
STREAM_BYTES, STREAM_TIME = 4, 60
_PIECE = 65_536
_STARTED = "lazyprompt.started"  # the request extension for the start time
_GZIP = zlib.MAX_WBITS | 16


class AnswerLimits(NamedTuple):
    """The time and size limits for a complete response or for one event of a streamed response.

    Attributes:
        timeout: The time limit for the response or event, in seconds.
        max_answer_bytes: The maximum decompressed size of the response or event, in bytes.
    """

    timeout: float
    max_answer_bytes: int


class OversizeError(Exception):
    """Raised when a response exceeds ``max_answer_bytes``."""


class _Meter:
    """Decompresses the body of one response and counts its bytes.

    Args:
        response: The HTTP response. The response's ``content-encoding`` header is removed, so that the HTTP client
            doesn't also decompress the body.
        limits: The size and time limits for the response.
        library: The HTTP library that defines the exceptions to raise.
        oversize: The exception class for oversize responses.
    """

    def __init__(self, response: Any, limits: AnswerLimits, library: Any, oversize: type[OversizeError]) -> None:
        self._request, self._library, self._oversize = response.request, library, oversize
        self._timeout, self._most = limits
        media_type = str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()
        self._is_stream = media_type != "application/json"
        # A blank line ends a server-sent event. In other media types, each line is an event.
        self._ends = (b"\n\n", b"\r\n\r\n", b"\r\r") if media_type == "text/event-stream" else (b"\n",)
        self._started, self._event_started = float(self._request.extensions[_STARTED]), monotonic()
        self._bytes = self._event_bytes = 0
        self._tail = b""
        coding = str(response.headers.pop("content-encoding", "identity")).strip().lower()
        if coding not in ("gzip", "identity"):
            raise self._malformed(f"the server sent the content-encoding {coding!r}, but the request asked for gzip")
        self._gzip = zlib.decompressobj(_GZIP) if coding == "gzip" else None

    def read(self, data: bytes) -> Iterator[bytes]:
        """Decompress the next bytes of the body.

        Raises:
            OversizeError: The response or one event exceeds the size limit.
        """
        self._check_time()
        if self._gzip is None:
            self._count(data)
            yield data
            return
        while data and not self._gzip.eof:
            try:
                piece = self._gzip.decompress(data, _PIECE)
            except zlib.error as error:
                raise self._malformed(f"the server sent invalid gzip data: {error}") from error
            data = self._gzip.unconsumed_tail
            self._count(piece)
            yield piece

    def _check_time(self) -> None:
        now, timeout = monotonic(), self._timeout
        if not self._is_stream:
            if now - self._started > timeout:
                raise self._late(f"the response took longer than timeout={timeout:g} seconds")
        elif now - self._started > STREAM_TIME * timeout:
            raise self._late(f"the stream took longer than {STREAM_TIME} times timeout={timeout:g} seconds")
        elif now - self._event_started > timeout:
            raise self._late(f"one event in the stream took longer than timeout={timeout:g} seconds")

    def _count(self, piece: bytes) -> None:
        self._bytes += len(piece)
        if not self._is_stream:
            if self._bytes > self._most:
                raise self._oversize(f"the response exceeds max_answer_bytes={self._most}")
            return
        if self._bytes > STREAM_BYTES * self._most:
            raise self._oversize(f"the stream exceeds {STREAM_BYTES} times max_answer_bytes={self._most}")
        text = self._tail + piece
        end = max(found + len(mark) if (found := text.rfind(mark)) >= 0 else 0 for mark in self._ends)
        if end > len(self._tail):  # otherwise, the end belongs to an earlier piece
            self._event_bytes, self._event_started = 0, monotonic()
        self._tail = text[-3:]
        self._event_bytes += min(len(piece), len(text) - end)
        if self._event_bytes > self._most:
            raise self._oversize(f"one event in the stream exceeds max_answer_bytes={self._most}")

    def _late(self, message: str) -> Exception:
        error: Exception = self._library.ReadTimeout(message, request=self._request)
        return error

    def _malformed(self, message: str) -> Exception:
        error: Exception = self._library.DecodingError(message, request=self._request)
        return error


class _Body:
    """A mixin for the HTTP library's stream class that counts the bytes of a response body."""

    def __init__(self, body: Any, meter: _Meter) -> None:
        self._body, self._meter = body, meter

    def __iter__(self) -> Iterator[bytes]:
        for data in self._body:
            yield from self._meter.read(data)

    def close(self) -> None:
        self._body.close()


class _AsyncBody:
    """Async version of :class:`_Body`."""

    def __init__(self, body: Any, meter: _Meter) -> None:
        self._body, self._meter = body, meter

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for data in self._body:
            for piece in self._meter.read(data):
                yield piece

    async def aclose(self) -> None:
        await self._body.aclose()


def limit_hooks(
    library: Any,
    limits: AnswerLimits,
    hooks: Mapping[str, Sequence[Any]],
    *,
    in_loop: bool,
    oversize: type[OversizeError] = OversizeError,
) -> dict[str, list[Any]]:
    """Return event hooks that limit every response of an HTTP client.

    Args:
        library: The client's HTTP library, httpx or httpx2.
        limits: The size and time limits for the response.
        hooks: The HTTP client's existing event hooks, which run after the new hooks.
        in_loop: True for an async client.
        oversize: The exception class for oversize responses.
    """
    own, base = (_AsyncBody, library.AsyncByteStream) if in_loop else (_Body, library.SyncByteStream)
    body = type("Body", (own, base), {})

    def start(request: Any) -> None:
        request.headers["accept-encoding"] = "gzip"
        request.extensions[_STARTED] = monotonic()

    def count(response: Any) -> None:
        response.stream = body(response.stream, _Meter(response, limits, library, oversize))

    async def astart(request: Any) -> None:
        start(request)

    async def acount(response: Any) -> None:
        count(response)

    ours = {"request": astart, "response": acount} if in_loop else {"request": start, "response": count}
    return {when: [hook, *hooks.get(when, ())] for when, hook in ours.items()}
