"""No answer of a server fills the memory or never ends, whatever client reads it.

389 KB of gzip became 1.2 GB, and one endless line of a stream 3.7 GB in 27 seconds, with timeout=10.
"""

import gzip
import tracemalloc
import zlib
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
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

# The decompressed bodies that are too large as a plain answer.
WHOLE: dict[str, bytes] = {
    "a text": b'{"a": "' + b"x" * LIMIT + b'"}',
    "nothing but space": b" " * (LIMIT + 1),
    "many lists": b"[" + b"[]," * LIMIT + b"[]]",
}
# The events of streams without an end, and what the error says of them.
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
def serve_answer(script: Callable[[], Script]) -> Generator[tuple[str, list[dict[str, str]]]]:
    """A server with one answer; its address, and the headers of the requests that came."""
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
    """The errors of the four ways to ask; each asks once."""
    found: list[ModuleError] = []
    with serve_answer(script) as (url, seen):
        model = module(client, url, **settings)
        for way in ways(model, "hi"):
            with pytest.raises(ModuleError) as caught:
                way()
            found.append(caught.value)
            assert len(seen) == len(found), "it was asked for again"
        model.close()
    return found


@CLIENTS
@pytest.mark.parametrize("coding", ["identity", "gzip"])
@pytest.mark.parametrize("body", WHOLE)
def test_an_answer_has_a_most_of_bytes(client: tuple[Any, str], body: str, coding: str) -> None:
    sent = gzip.compress(WHOLE[body]) if coding == "gzip" else WHOLE[body]
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
def test_a_stream_ends_at_its_most_of_bytes(client: tuple[Any, str], events: str, media_type: str) -> None:
    frames, words = STREAMS[events]
    for error in failures(client, lambda: Script(200, media_type, frames, chunked=True)):
        # A client may find that an event is none before it has read too much.
        assert error.kind in ("too large", "malformed", "server")
        if error.kind == "too large":
            assert f"{words} max_answer_bytes={LIMIT}" in str(error)


@pytest.mark.parametrize("source", ["openai", "anthropic", "gemini"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_an_event_has_many_lines_and_a_most_of_bytes(source: str, end: str) -> None:
    """An event ends at an empty line, whatever ends a line; lines alone end none."""
    frames = repeat(f"data: {'x' * 90}{end}".encode())
    for error in failures((OnlineChatModule, source), lambda: Script(200, "text/event-stream", frames, chunked=True)):
        assert error.kind == "too large"
        assert "one event in the stream exceeds" in str(error)


@pytest.mark.parametrize("status", [400, 500])
@CLIENTS
def test_a_refusal_has_a_most_of_bytes(client: tuple[Any, str], status: int) -> None:
    sent = gzip.compress(b'{"error": {"message": "' + b"x" * LIMIT + b'"}}')
    script = Script(status, "application/json", (sent,), headers={"content-encoding": "gzip"})
    for error in failures(client, lambda: script, retries=0):
        assert error.kind == "too large"


@CLIENTS
def test_a_bomb_takes_no_memory(client: tuple[Any, str]) -> None:
    """The naive version lets the HTTP client decompress: 300 KB became 300 MB."""
    bomb = gzip.compress(b'{"a": "' + b"x" * 300_000_000 + b'"}', 6)
    script = Script(200, "application/json", (bomb,), headers={"content-encoding": "gzip"})
    with serve_answer(lambda: script) as (url, _):
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
def test_a_slow_answer_ends(client: tuple[Any, str], media_type: str, words: str) -> None:
    """Each byte comes quickly, the answer never does."""
    begin = monotonic()
    script = Script(200, media_type, repeat(b" "), chunked=True, between=0.05)
    for error in failures(client, lambda: script, timeout=0.6, retries=0):
        assert error.kind == "timeout"
        assert f"{words} took longer than timeout=0.6 seconds" in str(error)
    assert monotonic() - begin < TIMEOUT


@CLIENTS
def test_a_stream_of_quick_events_ends(client: tuple[Any, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_limits, "STREAM_TIME", 1)
    media_type = "application/x-ndjson" if client[1] == "ollama" else "text/event-stream"
    event = b"{}\n" if client[1] == "ollama" else b": still here\n\n"
    script = Script(200, media_type, repeat(event), chunked=True, between=0.05)
    for error in failures(client, lambda: script, timeout=0.6, retries=0)[1::2]:
        assert (error.kind, "the stream took longer than 1 times timeout=0.6" in str(error)) in (
            ("timeout", True),
            ("malformed", False),  # Ollama's events have fields that must be there
        )


@pytest.mark.parametrize("source", ONLINE)
def test_what_keeps_the_limits_is_read_compressed_or_not(source: str) -> None:
    """gzip is asked for; answers and streams in it are read, in one piece or byte by byte."""
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
def test_a_compression_that_was_not_asked_for_is_refused(client: tuple[Any, str], coding: str) -> None:
    script = Script(200, "application/json", (b"{}",), headers={"content-encoding": coding})
    for error in failures(client, lambda: script, retries=0):
        assert f"the server sent the content-encoding {coding!r}, but the request asked for gzip" in str(error)


@pytest.mark.parametrize("given", [0, -1, 1.5, "1", None])
def test_the_limit_is_a_number_of_bytes(given: Any) -> None:
    for make in (
        lambda: OnlineChatModule(max_answer_bytes=given),
        lambda: TrainableModule("m", max_answer_bytes=given),
    ):
        with pytest.raises(ModuleError, match="max_answer_bytes must be"):
            make()


def test_hooks_of_ones_own_client_stay() -> None:
    """Gemini's and Ollama's clients take hooks in their options."""
    seen: list[str] = []
    hooks: dict[str, list[Callable[[object], None]]] = {
        "request": [lambda _: seen.append("request")],
        "response": [lambda _: seen.append("response")],
    }
    script = Script(200, "application/json", (WHOLE["a text"],))
    options: dict[str, dict[str, Any]] = {
        "ollama": {"event_hooks": hooks},
        "gemini": {"http_options": {"client_args": {"event_hooks": hooks}}},
    }
    with serve_answer(lambda: script) as (url, _):
        for source, given in options.items():
            with pytest.raises(ModuleError, match="max_answer_bytes"):
                module((OnlineChatModule, source), url, options=given)("hi")
    assert seen == ["request", "response"] * 2
