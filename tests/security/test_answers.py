"""Responses of servers are limited in size and time, whatever client reads them.

Once, 389 KB of gzip became 1.2 GB, and one endless line of a stream 3.7 GB in 27 seconds, with timeout=10.
"""

import gzip
import tracemalloc
import zlib
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from functools import partial
from itertools import repeat
from time import monotonic
from typing import Any

import pytest

from lazyprompt import ModuleError, OnlineChatModule, TrainableModule
from lazyprompt.modules.clients import _limits
from modules.online_scenes import ways
from support.client_scenes import TIMEOUT
from support.model_server.http import Script, ScriptServer
from support.model_server.server import ModelServer
from support.serving import Serving

pytestmark = pytest.mark.slow
LIMIT = 10_000
ONLINE = ("openai", "anthropic", "gemini", "ollama")
LOCAL = ("llama.cpp", "vllm", "other", "ollama")
CLIENTS = pytest.mark.parametrize(
    "client", [*((OnlineChatModule, each) for each in ONLINE), *((TrainableModule, each) for each in LOCAL)], ids=str
)
FILLER = b"x" * 999
EVENT = b'data: {"choices": [], "candidates": []}\n\n'

# Bodies that are too large when they are decompressed.
BODIES: dict[str, bytes] = {
    "a text": b'{"a": "' + b"x" * LIMIT + b'"}',
    "nothing but space": b" " * (LIMIT + 1),
    "many lists": b"[" + b"[]," * LIMIT + b"[]]",
}
# Endless streams, and the words of the error about each.
STREAMS: dict[str, tuple[Iterable[bytes], str]] = {
    "an endless line": (repeat(b"data: " + FILLER), "one event in the stream exceeds"),
    "an endless line of bytes alone": (repeat(b"x" * 7), "one event in the stream exceeds"),
    "events after one another": (repeat(EVENT), "the stream exceeds 4 times"),
    "comments after one another": (repeat(b": " + FILLER + b"\n\n"), "the stream exceeds 4 times"),
}


def module(client: tuple[Any, str], url: str, **settings: Any) -> Any:
    kind, name = client
    given: dict[str, Any] = {"timeout": TIMEOUT, "retries": 2, "api_key": "sk-0123456789", "max_answer_bytes": LIMIT}
    given |= settings
    if kind is OnlineChatModule:
        return OnlineChatModule(name, model="m", base_url=url, **given)
    return TrainableModule("m", engine=name, url=url, markers="chatml", **given)


@contextmanager
def serve_response(script: Callable[[], Script]) -> Generator[tuple[str, list[dict[str, str]]]]:
    """Serve one response; yield the server's URL and the headers of its requests."""
    seen: list[dict[str, str]] = []

    def reply(path: str, headers: dict[str, str], _: bytes) -> tuple[Script, Callable[[bool], None]]:
        if path.endswith("/tokenize"):  # llama.cpp is asked for its BOS first
            return Script(200, "application/json", (b'{"tokens": []}',)), lambda _: None
        seen.append(headers)
        return script(), lambda _: None

    server = ScriptServer(reply)
    with Serving(server):
        yield f"http://127.0.0.1:{server.server_port}", seen


def failures(client: tuple[Any, str], script: Callable[[], Script], **settings: Any) -> list[ModuleError]:
    """The errors of the four ways to call a module; each sends one request."""
    found: list[ModuleError] = []
    with serve_response(script) as (url, seen):
        model = module(client, url, **settings)
        for way in ways(model, "hi"):
            with pytest.raises(ModuleError) as caught:
                way()
            found.append(caught.value)
            assert len(seen) == len(found), "the request was repeated"
        model.close()
    return found


@CLIENTS
@pytest.mark.parametrize("coding", ["identity", "gzip"])
@pytest.mark.parametrize("body", BODIES)
def test_response_larger_than_max_answer_bytes_is_refused(client: tuple[Any, str], body: str, coding: str) -> None:
    sent = gzip.compress(BODIES[body]) if coding == "gzip" else BODIES[body]
    assert (len(sent) > LIMIT) is (coding == "identity")
    for error in failures(
        client, lambda: Script(200, "application/json", (sent,), headers={"content-encoding": coding})
    ):
        assert error.kind == "too large"
        assert f"the response exceeds max_answer_bytes={LIMIT}" in str(error)
        assert "increase max_answer_bytes=" in str(error)


@CLIENTS
@pytest.mark.parametrize("media_type", ["text/event-stream; charset=utf-8", "application/x-ndjson", "text/plain"])
@pytest.mark.parametrize("events", STREAMS)
def test_endless_stream_ends_at_its_byte_limit(client: tuple[Any, str], events: str, media_type: str) -> None:
    frames, words = STREAMS[events]
    for error in failures(client, lambda: Script(200, media_type, frames, chunked=True)):
        # A client may notice malformed content before the limit is reached.
        assert error.kind in ("too large", "malformed", "server")
        if error.kind == "too large":
            assert f"{words} max_answer_bytes={LIMIT}" in str(error)


@pytest.mark.parametrize("source", ["openai", "anthropic", "gemini"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_stream_event_of_many_lines_is_limited_in_bytes(source: str, end: str) -> None:
    """Only an empty line ends an event, whatever the line ends are."""
    frames = repeat(f"data: {'x' * 90}{end}".encode())
    for error in failures((OnlineChatModule, source), lambda: Script(200, "text/event-stream", frames, chunked=True)):
        assert error.kind == "too large"
        assert "one event in the stream exceeds" in str(error)


@pytest.mark.parametrize("status", [400, 500])
@CLIENTS
def test_error_response_larger_than_max_answer_bytes_is_refused(client: tuple[Any, str], status: int) -> None:
    sent = gzip.compress(b'{"error": {"message": "' + b"x" * LIMIT + b'"}}')
    script = Script(status, "application/json", (sent,), headers={"content-encoding": "gzip"})
    for error in failures(client, lambda: script, retries=0):
        assert error.kind == "too large"


@CLIENTS
def test_gzip_bomb_in_a_response_takes_little_memory(client: tuple[Any, str]) -> None:
    """The naive version lets the HTTP client decompress: 300 KB became 300 MB."""
    bomb = gzip.compress(b'{"a": "' + b"x" * 300_000_000 + b'"}', 6)
    script = Script(200, "application/json", (bomb,), headers={"content-encoding": "gzip"})
    with serve_response(lambda: script) as (url, _):
        model = module(client, url, max_answer_bytes=1_000_000)
        for way in ways(model, "hi"):
            with pytest.raises(ModuleError, match="max_answer_bytes=1000000"):
                way()  # imports the client
        tracemalloc.start()
        try:
            for way in ways(model, "hi"):
                with pytest.raises(ModuleError, match="max_answer_bytes=1000000"):
                    way()
            assert tracemalloc.get_traced_memory()[1] < 20_000_000
        finally:
            tracemalloc.stop()
        model.close()


@CLIENTS
@pytest.mark.parametrize(
    ("media_type", "words"), [("application/json", "the response"), ("text/event-stream", "one event in the stream")]
)
def test_endless_slow_response_times_out(client: tuple[Any, str], media_type: str, words: str) -> None:
    """Each byte arrives in time, but the response never ends."""
    begin = monotonic()
    script = Script(200, media_type, repeat(b" "), chunked=True, between=0.05)
    for error in failures(client, lambda: script, timeout=0.6, retries=0):
        assert error.kind == "timeout"
        assert f"{words} took longer than timeout=0.6 seconds" in str(error)
    assert monotonic() - begin < TIMEOUT


@CLIENTS
def test_endless_stream_of_events_times_out(client: tuple[Any, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_limits, "STREAM_TIME", 1)
    media_type = "application/x-ndjson" if client[1] == "ollama" else "text/event-stream"
    event = b"{}\n" if client[1] == "ollama" else b": still here\n\n"
    script = Script(200, media_type, repeat(event), chunked=True, between=0.05)
    for error in failures(client, lambda: script, timeout=0.6, retries=0)[1::2]:
        assert (error.kind, "the stream took longer than 1 times timeout=0.6" in str(error)) in (
            ("timeout", True),
            ("malformed", False),  # Ollama's client requires fields in each event
        )


@pytest.mark.parametrize("source", ONLINE)
def test_gzip_response_reads_the_same_as_an_uncompressed_response(source: str) -> None:
    """Requests ask for gzip; compressed responses and streams are read, whole or byte by byte."""
    with ModelServer(judges=False) as server:
        expected = [way() for way in ways(module((OnlineChatModule, source), server.url(source)), "ping")]
        played = server.http.reply

        def compressed(path: str, headers: dict[str, str], body: bytes) -> tuple[Script, Callable[[bool], None]]:
            assert headers["accept-encoding"] == "gzip"
            script, over = played(path, headers, body)
            squeeze = zlib.compressobj(wbits=31)
            frames = [squeeze.compress(frame) + squeeze.flush(zlib.Z_SYNC_FLUSH) for frame in script.frames]
            whole = [*frames, squeeze.flush()]
            parts = [bytes([each]) for each in b"".join(whole)] if script.chunked else whole
            more = {**(script.headers or {}), "content-encoding": "gzip"}
            return script._replace(frames=parts, headers=more), over

        server.http.reply = compressed
        model = module((OnlineChatModule, source), server.url(source))
        assert [way() for way in ways(model, "ping")] == expected
        model.close()


@CLIENTS
@pytest.mark.parametrize("coding", ["br", "zstd", "deflate", "gzip, gzip"])
def test_response_with_an_unrequested_content_encoding_is_refused(client: tuple[Any, str], coding: str) -> None:
    script = Script(200, "application/json", (b"{}",), headers={"content-encoding": coding})
    for error in failures(client, lambda: script, retries=0):
        assert f"the server sent the content-encoding {coding!r}, but the request asked for gzip" in str(error)


@pytest.mark.parametrize("make", [OnlineChatModule, partial(TrainableModule, "m")], ids=["online", "local"])
@pytest.mark.parametrize("limit", [0, -1, 1.5, "1", None])
def test_max_answer_bytes_must_be_a_positive_integer(make: Callable[..., object], limit: Any) -> None:
    with pytest.raises(ModuleError, match="max_answer_bytes must be"):
        make(max_answer_bytes=limit)


@pytest.mark.parametrize("source", ["ollama", "gemini"])
def test_event_hooks_in_the_client_options_are_kept(source: str) -> None:
    """The clients of Gemini and Ollama accept hooks in their options."""
    seen: list[str] = []
    hooks: dict[str, list[Callable[[object], None]]] = {
        "request": [lambda _: seen.append("request")],
        "response": [lambda _: seen.append("response")],
    }
    script = Script(200, "application/json", (BODIES["a text"],))
    options: dict[str, dict[str, Any]] = {
        "ollama": {"event_hooks": hooks},
        "gemini": {"http_options": {"client_args": {"event_hooks": hooks}}},
    }
    with serve_response(lambda: script) as (url, _), pytest.raises(ModuleError, match="max_answer_bytes"):
        module((OnlineChatModule, source), url, options=options[source])("hi")
    assert seen == ["request", "response"]
