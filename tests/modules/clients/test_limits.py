"""The limits of a response: the bytes and seconds of a whole response, a stream and an event."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from lazyprompt.modules.clients import _limits
from lazyprompt.modules.clients._limits import AnswerLimits, OversizeError, limit_hooks

JSON, EVENTS, LINES = "Application/JSON; charset=utf-8", "text/event-stream", "application/x-ndjson"
MOST, SECONDS = 20, 5.0
LONG = b"x" * MOST
WHOLE = "the response exceeds max_answer_bytes=20"
STREAM = "the stream exceeds 4 times max_answer_bytes=20"
EVENT = "one event in the stream exceeds max_answer_bytes=20"


def single(data: bytes) -> tuple[bytes, ...]:
    return tuple(bytes([each]) for each in data)


def read_body(media_type: str, pieces: Iterator[bytes], **headers: str) -> bytes:
    """The body of a response that comes in pieces, as a client with the limits reads it."""
    hooks = limit_hooks(httpx, AnswerLimits(SECONDS, MOST), {}, in_loop=False)
    given = {"content-type": media_type, **{name.replace("_", "-"): value for name, value in headers.items()}}
    transport = httpx.MockTransport(lambda _: httpx.Response(200, headers=given, content=pieces))
    with httpx.Client(transport=transport, event_hooks=hooks) as client:
        return client.get("http://127.0.0.1").content


@pytest.mark.parametrize(
    ("media_type", "pieces", "more", "words"),
    [
        (JSON, (LONG,), b"x", WHOLE),
        (JSON, (LONG[:9], LONG[9:]), b"\n", WHOLE),
        (EVENTS, (LONG,), b"x", EVENT),
        (EVENTS, (b"\n\n" + LONG,), b"x", EVENT),
        (EVENTS, (b"a\n\n" + LONG[1:], b"x"), b"\n", EVENT),
        (EVENTS, (b"one\ntwo\r\nthree\rfour", b"."), b"x", EVENT),
        (EVENTS, (LONG[:18] + b"\n", b"\n", LONG), b"x", EVENT),
        (EVENTS, (LONG[:16] + b"\r", b"\n\r\n", LONG), b"x", EVENT),
        (EVENTS, (LONG[:16] + b"\r\n\r", b"\n", LONG), b"x", EVENT),
        (EVENTS, (LONG[:18] + b"\r", b"\r" + LONG), b"x", EVENT),
        (EVENTS, single(b"a\n\n" + LONG), b"x", EVENT),
        (EVENTS, single(b"a\r\n\r\n" + LONG), b"x", EVENT),
        (EVENTS, (LONG[2:] + b"\n\n",) * 4, b"x", STREAM),
        (LINES, (LONG,), b"x", EVENT),
        (LINES, single(b"a\n" + LONG), b"x", EVENT),
        (LINES, (LONG[1:] + b"\n",) * 4, b"\n", STREAM),
        ("", (LONG[1:] + b"\n", LONG), b"x", EVENT),
    ],
)
def test_body_at_the_byte_limit_is_read_and_one_more_byte_is_an_error(
    media_type: str, pieces: tuple[bytes, ...], more: bytes, words: str
) -> None:
    assert read_body(media_type, iter(pieces)) == b"".join(pieces)
    packed = gzip.compress(b"".join(pieces))
    assert read_body(media_type, iter((packed[:25], packed[25:])), content_encoding=" GZIP") == b"".join(pieces)
    with pytest.raises(OversizeError) as caught:
        read_body(media_type, iter((*pieces, more)))
    assert str(caught.value) == words


@pytest.mark.parametrize(
    ("media_type", "steps", "words"),
    [
        (JSON, (5.0,), None),
        (JSON, (3.0, 2.5), "the response took longer than timeout=5 seconds"),
        (LINES, (4.0, 5.0), None),
        (LINES, (4.0, 5.5), "one event in the stream took longer than timeout=5 seconds"),
        (LINES, (5.0,) * 60, None),
        (LINES, (5.0,) * 61, "the stream took longer than 60 times timeout=5 seconds"),
    ],
)
def test_body_that_takes_longer_than_the_timeout_is_an_error(
    monkeypatch: pytest.MonkeyPatch, media_type: str, steps: tuple[float, ...], words: str | None
) -> None:
    now = [100.0]
    monkeypatch.setattr(_limits, "monotonic", lambda: now[0])

    def pieces() -> Iterator[bytes]:
        for seconds in steps:
            now[0] += seconds
            yield b"\n"

    if words is None:
        read_body(media_type, pieces())
        return
    with pytest.raises(httpx.ReadTimeout) as caught:
        read_body(media_type, pieces())
    assert str(caught.value) == words
    assert caught.value.request.url == "http://127.0.0.1"


@pytest.mark.parametrize(
    ("coding", "body", "words"),
    [
        ("br", b"{}", "the server sent the content-encoding 'br', but the request asked for gzip"),
        ("gzip", b"{}", "the server sent invalid gzip data: Error -3 while decompressing data: incorrect header check"),
    ],
)
def test_unsupported_or_invalid_content_encoding_is_an_error(coding: str, body: bytes, words: str) -> None:
    with pytest.raises(httpx.DecodingError) as caught:
        read_body(JSON, iter((body,)), content_encoding=coding)
    assert str(caught.value) == words
    assert caught.value.request.headers["accept-encoding"] == "gzip"


def test_async_hooks_of_the_caller_run_after_the_limits() -> None:
    seen: list[str] = []

    async def hook(given: Any) -> None:
        seen.append(f"{type(given).__name__} {given.headers.get('accept-encoding')}")

    async def pieces() -> AsyncIterator[bytes]:
        yield gzip.compress(LONG)
        yield b"after the end"

    async def get() -> bytes:
        hooks = limit_hooks(httpx, AnswerLimits(SECONDS, MOST), {"request": [hook], "response": [hook]}, in_loop=True)
        given = {"content-type": JSON, "content-encoding": "gzip"}
        transport = httpx.MockTransport(lambda _: httpx.Response(200, headers=given, content=pieces()))
        async with httpx.AsyncClient(transport=transport, event_hooks=hooks) as client:
            return (await client.get("http://127.0.0.1")).content

    assert asyncio.run(get()) == LONG
    assert seen == ["Request gzip", "Response None"]
