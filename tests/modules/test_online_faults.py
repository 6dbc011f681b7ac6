"""Every fault between a module and a server is one error with advice, which changes neither prompter nor arguments."""

import copy
import json
import logging
import pickle
import socket
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import monotonic
from typing import Any

import pytest

from lazyprompt import ModuleError, OnlineChatModule, SlotError
from modules.online_scenes import ASKED, FEW, NAMES, PROMPTER, SOME, TWO_WAYS, close_all, module, reply_contents, ways
from support.client_scenes import KEY, TIMEOUT, WHOLE
from support.model_server.http import odd_server
from support.model_server.server import (
    PATHS,
    Answer,
    Cut,
    Drop,
    Ends,
    Fails,
    HalfCall,
    Malformed,
    Misbehaviour,
    ModelServer,
    Seen,
    Slow,
    Status,
    Unknown,
)

pytestmark = pytest.mark.slow
# A fault, its kind for a whole response and for a stream, and the advice.
FAULTS: tuple[tuple[Misbehaviour, str, str, str], ...] = (
    (Status(400), "request", "request", "inspect it with payload(...)"),
    (Status(401), "key", "key", "pass a valid key as api_key="),
    (Status(403), "key", "key", "pass a valid key as api_key="),
    (Status(404), "not found", "not found", "check the model's name and the server's URL"),
    (Status(408), "timeout", "timeout", "increase timeout="),
    (Status(409), "request", "request", "inspect it with payload(...)"),
    (Status(413), "overflow", "overflow", "set a budget"),
    (Status(429), "rate limit", "rate limit", "concurrency="),
    (Status(418), "request", "request", "inspect it with payload(...)"),
    (Status(500), "server", "server", "try again later"),
    (Status(502), "server", "server", "try again later"),
    (Status(503), "server", "server", "try again later"),
    (Status(529), "server", "server", "try again later"),
    (Cut(0), "connection", "connection", "check that the server is running"),
    (Drop(), "connection", "connection", "check that the server is running"),
    (Malformed(page=True), "malformed", "malformed", "check that the URL belongs to the expected API"),
    (Malformed(), "malformed", "malformed", "check that the URL belongs to the expected API"),
)
RETRIES = 3
SHORT = 0.02
STREAMS = slice(1, 4, 2)  # of the four ways


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(judges=False) as server:
        yield server
        close_all()


@contextmanager
def no_key_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No log record of any logger and level contains the key."""
    with caplog.at_level(logging.DEBUG):
        yield
    logged = "\n".join(f"{record.getMessage()} {record.exc_text or ''} {record.args}" for record in caplog.records)
    assert KEY not in logged


def failures(model: OnlineChatModule, *call: Any, some: slice = slice(None), **more: Any) -> Iterator[ModuleError]:
    """The errors of the four ways to call, or of some; the prompter and the arguments stay unchanged."""
    history = [["früher", "ja"]]
    prompter, given = pickle.dumps(model.prompter), copy.deepcopy((call, history, more))
    for way in list(ways(model, *call, history=history, **more))[some]:
        with pytest.raises(ModuleError) as caught:
            way()
        error = caught.value
        shown = "".join(traceback.format_exception(error)) + repr(error) + repr(vars(error))
        assert KEY not in shown
        assert KEY.encode() not in pickle.dumps(error)
        again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
        assert (str(again), again.kind, again.status) == (str(error), error.kind, error.status)
        assert pickle.dumps(model.prompter) == prompter
        assert (call, history, more) == given
        yield error


@SOME
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: repr(fault[0]))
def test_server_fault_is_a_module_error_with_kind_and_advice(
    server: ModelServer, source: str, fault: tuple[Misbehaviour, str, str, str], caplog: pytest.LogCaptureFixture
) -> None:
    misbehaviour, whole, streamed, advice = fault
    server.answer = WHOLE
    server.faults = lambda _: misbehaviour
    some = TWO_WAYS[(FEW.index(source) + FAULTS.index(fault)) % 2]
    with no_key_logged(caplog):
        errors = list(failures(module(server, source), ASKED, some=some))
    assert [error.kind for error in errors] == [whole, streamed]
    assert all(advice in str(error) and str(error).startswith(f"{source}: ") for error in errors)
    if isinstance(misbehaviour, Status):
        assert {error.status for error in errors} == {misbehaviour.code}
        assert all(misbehaviour.message in str(error) for error in errors)
        assert {error.partial for error in errors} == {None}


@SOME
@pytest.mark.parametrize("fault", [Cut(4), Ends(4), Fails(4)], ids=repr)
def test_broken_stream_keeps_its_text_and_is_not_retried(server: ModelServer, source: str, fault: Misbehaviour) -> None:
    server.answer = Answer("one two three four five six seven eight", thinking="hm")
    server.faults = lambda _: fault
    model = module(server, source, retries=RETRIES)
    text = server.answer.text
    kinds = {"cut"} if not isinstance(fault, Fails) else {"server"}
    for error in failures(model, ASKED, some=STREAMS):
        assert error.kind in kinds
        assert error.partial is not None
        assert text.startswith(error.partial)
        assert error.partial or error.partial.thinking
        assert error.partial.finish is None
    # A broken stream is not retried.
    assert len(server.seen) == 2


@SOME
def test_text_received_before_the_stream_breaks_is_yielded(server: ModelServer, source: str) -> None:
    server.answer = Answer("one two three four five six seven eight")
    server.faults = [Cut(6)]
    stream = module(server, source).stream(ASKED)
    pieces: list[str] = []
    with pytest.raises(ModuleError) as caught:
        pieces.extend(stream)
    assert caught.value.partial == "".join(pieces) != ""
    with pytest.raises(ModuleError, match="is not complete yet"):
        _ = stream.reply
    assert list(stream) == []


@SOME
def test_incomplete_tool_call_is_an_error(server: ModelServer, source: str) -> None:
    server.answer = Answer("", calls=(("c1", "weather", {"city": "Paris"}), ("c2", "weather", {"city": "Rome"})))
    server.faults = lambda _: HalfCall()
    for error in failures(module(server, source), ASKED):
        assert error.kind == "invalid"
        assert "tool call" in str(error)
        assert error.partial.tool_calls[0].input == {"city": "Paris"}
        assert {"city": "Rome"} not in [call.input for call in error.partial.tool_calls]


@SOME
def test_unknown_fields_and_events_are_ignored(server: ModelServer, source: str) -> None:
    server.answer = WHOLE
    model = module(server, source)
    known = [reply_contents(way()) for way in ways(model, ASKED)]
    server.faults = lambda _: Unknown()
    assert [reply_contents(way()) for way in ways(model, ASKED)] == known


@SOME
@pytest.mark.parametrize(
    ("key", "name", "text", "kind"),
    [("wrong", "m", "hi", "key"), (KEY, "no-such-model", "hi", "not found"), (KEY, "m", "OVERFLOW", "overflow")],
)
def test_request_rejected_by_the_server_is_an_error_with_its_kind_and_message(
    server: ModelServer, source: str, key: str, name: str, text: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = module(server, source, api_key=key, model=name)
    if (source, kind) == ("ollama", "overflow"):  # Ollama truncates the prompt without an error
        assert model({"language": "Dutch", "input": text}) == "pong"
        return
    with no_key_logged(caplog):
        errors = list(failures(model, {"language": "Dutch", "input": text}))
    assert [error.kind for error in errors] == [kind] * 4
    assert all(error.status in (400, 401, 404) for error in errors)
    if kind != "key":  # a message about the key may quote it, and is not shown
        assert all(str(server.seen[0].refusal) in str(error) for error in errors)


@SOME
def test_unreachable_server_is_a_connection_error(server: ModelServer, source: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}{server.url(source).partition(source)[2]}"
        for error in failures(module(server, source, base_url=url), ASKED):
            assert (error.kind, error.partial) == ("connection", None)
            assert "check that the server is running and that its URL is correct" in str(error)


@SOME
def test_response_that_does_not_arrive_is_a_timeout(server: ModelServer, source: str) -> None:
    server.faults = lambda _: Slow(first=TIMEOUT)
    for error in failures(module(server, source, timeout=0.15), ASKED):
        assert (error.kind, error.partial) == ("timeout", None)
        assert "increase timeout=" in str(error)


@SOME
def test_timeout_applies_to_each_event_of_a_stream(server: ModelServer, source: str) -> None:
    server.answer = Answer("slowly, one piece after the other")
    server.faults = lambda _: Slow(first=0.0, between=0.2)
    model = module(server, source, timeout=1.5)
    begin = monotonic()
    with ThreadPoolExecutor(2) as pool:
        replies = [pool.submit(way) for way in list(ways(model, ASKED))[STREAMS]]
        assert [reply.result() for reply in replies] == [server.answer.text] * 2
    assert monotonic() - begin > 1.5


@SOME
def test_stalled_stream_is_a_timeout(server: ModelServer, source: str) -> None:
    server.faults = lambda _: Slow(first=0.0, between=TIMEOUT)
    for error in failures(module(server, source, timeout=0.4), ASKED, some=STREAMS):
        assert error.kind == "timeout"
        assert error.partial is not None


@SOME
@pytest.mark.parametrize(
    "body", [b"null", b"{}", b'"x"', b"[]", b"[" * 100_000, b"\xff"], ids=lambda body: repr(body[:4])
)
@pytest.mark.parametrize(("status", "streamed"), [(200, False), (200, True), (400, False)])
def test_malformed_response_is_a_module_error(source: str, body: bytes, status: int, *, streamed: bool) -> None:
    sent, media_type = (b"data: " + body + b"\n\n", "text/event-stream") if streamed else (body, "application/json")
    with odd_server(sent, media_type, status) as url:
        base_url = f"{url}/{source}{PATHS[source][0]}"
        model = OnlineChatModule(source, model="m", base_url=base_url, api_key=KEY, retries=0, timeout=TIMEOUT)
        for way in list(ways(model.prompt(PROMPTER), ASKED))[streamed::2]:
            with pytest.raises(ModuleError) as caught:
                way()
            assert caught.value.kind in ("malformed", "cut", "empty", "server", "connection", "request")
        model.close()


# Faults of the model itself.


@SOME
@pytest.mark.parametrize(
    "answer", [Answer("", completion_tokens=0), Answer(" \n", thinking="hm"), Answer("", finish="length")]
)
def test_empty_response_is_an_error(server: ModelServer, source: str, answer: Answer) -> None:
    server.answer = answer
    for error in failures(module(server, source), ASKED):
        assert error.kind == "empty"
        assert ("increase max_tokens" if answer.finish == "length" else "repeat the request") in str(error)
        assert error.partial is not None
        assert error.partial.usage is None or error.partial.usage["prompt_tokens"] == 1


@pytest.mark.parametrize("source", ["openai", "anthropic"])
def test_refusal_is_an_error_with_the_text_of_the_refusal(server: ModelServer, source: str) -> None:
    server.answer = Answer("I would rather not.", finish="refusal")
    for error in failures(module(server, source), ASKED):
        assert (error.kind, error.partial) == ("refusal", "I would rather not.")
        assert "rephrase the prompt" in str(error)


# Ollama has no filter; Moonshot and DashScope reject the request instead.
@pytest.mark.parametrize("source", sorted({*NAMES} - {"moonshot", "ollama", "dashscope"}))
@pytest.mark.parametrize("text", ["half of it", ""])
def test_content_filter_stop_is_a_refusal_error(server: ModelServer, source: str, text: str) -> None:
    server.answer = Answer(text, finish="content_filter")
    for error in failures(module(server, source), ASKED):
        assert (error.kind, error.partial) == ("refusal", text)


# Retries.


def fail_times(times: int, fault: Misbehaviour, at: list[float]) -> Any:
    """Fails the given number of requests, and records the time of each request."""

    def behave(_: Seen) -> Misbehaviour | None:
        at.append(monotonic())
        return fault if len(at) <= times else None

    return behave


def bodies(server: ModelServer) -> set[str]:
    """The received bodies of each client with their lengths."""
    return {f"{seen.provider} {seen.headers['content-length']} {json.dumps(seen.body)}" for seen in server.seen}


@SOME
@pytest.mark.parametrize("status", [429, 500, 503, 408, 409])
def test_temporary_error_status_is_retried_with_the_same_body(server: ModelServer, source: str, status: int) -> None:
    server.answer = WHOLE
    model = module(server, source, retries=1)
    for way in ways(model, ASKED):
        server.faults = fail_times(1, Status(status, retry_after=SHORT), [])
        assert str(way()) == WHOLE.text
        assert len(server.seen) == 2
        assert len(bodies(server)) == 1
        server.seen.clear()


def fail_once_per_client(server: ModelServer, fault: Misbehaviour, way: int) -> dict[str, list[float]]:
    """Call all clients concurrently; each fails once. Returns the times of the requests of each."""
    server.answer = WHOLE
    models = [module(server, source, retries=1) for source in FEW]
    assert [str(model(ASKED)) for model in models] == [WHOLE.text] * len(models)  # what is loaded once is loaded here
    server.seen.clear()
    at: dict[str, list[float]] = {source: [] for source in FEW}
    faults = {source: fail_times(1, fault, at[source]) for source in FEW}
    server.faults = lambda seen: faults[seen.provider](seen)
    with ThreadPoolExecutor(len(models)) as pool:
        answers = pool.map(lambda model: str(list(ways(model, ASKED))[way]()), models)
        assert list(answers) == [WHOLE.text] * len(models)
    return at


@pytest.mark.parametrize("way", [0, 3])
def test_lost_connection_is_retried_with_the_same_body(server: ModelServer, way: int) -> None:
    """Without a retry-after header, for call and astream."""
    asked = fail_once_per_client(server, Drop(), way)
    assert {source: len(times) for source, times in asked.items()} == dict.fromkeys(FEW, 2)
    assert len(bodies(server)) == len(FEW)


@pytest.mark.parametrize("status", [429, 529])
def test_retry_waits_as_long_as_the_retry_after_header_says(server: ModelServer, status: int) -> None:
    """The header asks for a longer wait than any client's own before a second attempt."""
    asked = fail_once_per_client(server, Status(status, retry_after=1.1), 0)
    waited = {source: again - first for source, (first, again) in asked.items()}
    assert {source: seconds for source, seconds in waited.items() if seconds < 1.1} == {}


@pytest.mark.parametrize("source", ["gemini", "ollama"])
def test_error_with_a_retry_after_of_an_hour_is_not_retried(server: ModelServer, source: str) -> None:
    server.faults = lambda _: Status(429, retry_after=3600)
    for error in failures(module(server, source, retries=RETRIES), ASKED):
        assert error.kind == "rate limit"
    assert len(server.seen) == 4


@SOME
def test_failed_request_is_retried_as_often_as_retries_says(server: ModelServer, source: str) -> None:
    server.faults = lambda _: Status(503, retry_after=SHORT)
    for error in failures(module(server, source, retries=2), ASKED):
        assert error.kind == "server"
    assert len(server.seen) == 4 * 3
    # Streams of Gemini have another path, but no other body.
    assert len(bodies(server)) == (1 if source == "gemini" else 2)


@SOME
@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_permanent_error_status_is_not_retried(server: ModelServer, source: str, status: int) -> None:
    server.faults = lambda _: Status(status)
    for _ in failures(module(server, source, retries=RETRIES), ASKED):
        pass
    assert len(server.seen) == 4


@pytest.mark.parametrize("values", [{"input": "hi"}, {"language": "Dutch", "nothing": 1}])
def test_invalid_slot_values_are_an_error_before_anything_is_sent(server: ModelServer, values: dict[str, Any]) -> None:
    model = module(server, "openai")
    for way in ways(model, values):
        with pytest.raises(SlotError):
            way()
    assert not server.seen
    assert model.prompter is PROMPTER
