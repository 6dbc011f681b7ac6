"""Whatever can go wrong between a module and a model is one error, which says what to do, and leaves all as it was."""

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

from lazyprompt import ModuleError, OnlineChatModule
from modules.online_scenes import ASKED, FEW, NAMES, PROMPTER, TWO_WAYS, close_all, module, reply_contents, ways
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
SOME = pytest.mark.parametrize("source", FEW)
# A fault, its kind of an answer, its kind of a stream, and what to do.
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
PATIENT = 3
SHORT = 0.02
STREAMS = slice(1, 4, 2)  # of the four ways


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(judges=False) as server:
        yield server
        close_all()


@contextmanager
def nothing_shown(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No key in what is logged, by whomever, at whatever level."""
    with caplog.at_level(logging.DEBUG):
        yield
    logged = "\n".join(f"{record.getMessage()} {record.exc_text or ''} {record.args}" for record in caplog.records)
    assert KEY not in logged


def failures(model: OnlineChatModule, *call: Any, some: slice = slice(None), **more: Any) -> Iterator[ModuleError]:
    """The errors of the four ways, or of some of them; the prompter, and what was given, are as they were."""
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
def test_each_misbehaviour_is_one_error(
    server: ModelServer, source: str, fault: tuple[Misbehaviour, str, str, str], caplog: pytest.LogCaptureFixture
) -> None:
    misbehaviour, whole, streamed, advice = fault
    server.answer = WHOLE
    server.faults = lambda _: misbehaviour
    some = TWO_WAYS[(FEW.index(source) + FAULTS.index(fault)) % 2]
    with nothing_shown(caplog):
        errors = list(failures(module(server, source), ASKED, some=some))
    assert [error.kind for error in errors] == [whole, streamed]
    assert all(advice in str(error) and str(error).startswith(f"{source}: ") for error in errors)
    if isinstance(misbehaviour, Status):
        assert {error.status for error in errors} == {misbehaviour.code}
        assert all(misbehaviour.message in str(error) for error in errors)
        assert {error.partial for error in errors} == {None}


@SOME
@pytest.mark.parametrize("fault", [Cut(4), Ends(4), Fails(4)], ids=repr)
def test_what_came_of_a_stream_that_breaks_is_kept(server: ModelServer, source: str, fault: Misbehaviour) -> None:
    server.answer = Answer("one two three four five six seven eight", thinking="hm")
    server.faults = lambda _: fault
    model = module(server, source, retries=PATIENT)
    text = server.answer.text
    kinds = {"cut"} if not isinstance(fault, Fails) else {"server"}
    for error in failures(model, ASKED, some=STREAMS):
        assert error.kind in kinds
        assert error.partial is not None
        assert text.startswith(error.partial)
        assert error.partial or error.partial.thinking
        assert error.partial.finish is None
    # What was said is not said again: each stream was asked for once.
    assert len(server.seen) == 2


@SOME
def test_pieces_come_before_the_stream_breaks(server: ModelServer, source: str) -> None:
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
def test_half_a_call_is_an_error(server: ModelServer, source: str) -> None:
    server.answer = Answer("", calls=(("c1", "weather", {"city": "Paris"}), ("c2", "weather", {"city": "Rome"})))
    server.faults = lambda _: HalfCall()
    for error in failures(module(server, source), ASKED):
        assert error.kind == "invalid"
        assert "tool call" in str(error)
        assert error.partial.tool_calls[0].input == {"city": "Paris"}
        assert {"city": "Rome"} not in [call.input for call in error.partial.tool_calls]


@SOME
def test_unknown_fields_and_events_change_nothing(server: ModelServer, source: str) -> None:
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
def test_the_servers_own_refusals(
    server: ModelServer, source: str, key: str, name: str, text: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    if (source, kind) == ("ollama", "overflow"):  # it cuts the prompt, and says nothing
        return
    model = module(server, source, api_key=key, model=name)
    with nothing_shown(caplog):
        errors = list(failures(model, {"language": "Dutch", "input": text}))
    assert [error.kind for error in errors] == [kind] * 4
    assert all(error.status in (400, 401, 404) for error in errors)
    if kind != "key":  # whose words may quote it
        assert all(str(server.seen[0].refusal) in str(error) for error in errors)


@SOME
def test_no_server_is_a_connection_that_fails(server: ModelServer, source: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}{server.url(source).partition(source)[2]}"
        for error in failures(module(server, source, base_url=url), ASKED):
            assert (error.kind, error.partial) == ("connection", None)
            assert "check that the server is running and that its URL is correct" in str(error)


@SOME
def test_an_answer_that_does_not_come_is_a_timeout(server: ModelServer, source: str) -> None:
    server.faults = lambda _: Slow(first=TIMEOUT)
    for error in failures(module(server, source, timeout=0.15), ASKED):
        assert (error.kind, error.partial) == ("timeout", None)
        assert "increase timeout=" in str(error)


@SOME
def test_the_timeout_is_for_each_piece(server: ModelServer, source: str) -> None:
    server.answer = Answer("slowly, one piece after the other")
    server.faults = lambda _: Slow(first=0.0, between=0.2)
    model = module(server, source, timeout=1.5)
    begin = monotonic()
    with ThreadPoolExecutor(2) as pool:
        replies = [pool.submit(way) for way in list(ways(model, ASKED))[STREAMS]]
        assert [reply.result() for reply in replies] == [server.answer.text] * 2
    assert monotonic() - begin > 1.5


@SOME
def test_a_stream_that_stands_still_is_a_timeout(server: ModelServer, source: str) -> None:
    server.faults = lambda _: Slow(first=0.0, between=TIMEOUT)
    for error in failures(module(server, source, timeout=0.4), ASKED, some=STREAMS):
        assert error.kind == "timeout"
        assert error.partial is not None


@SOME
@pytest.mark.parametrize(
    "body", [b"null", b"{}", b'"x"', b"[]", b"[" * 100_000, b"\xff"], ids=lambda body: repr(body[:4])
)
def test_what_is_no_answer_is_an_error_of_ours(source: str, body: bytes) -> None:
    written = body.replace(b"\n", b" ")
    for media_type, sent, status in (
        ("application/json", body, 200),
        ("text/event-stream", b"data: " + written + b"\n\n", 200),
        ("application/json", body, 400),
    ):
        with odd_server(sent, media_type, status) as url:
            base_url = f"{url}/{source}{PATHS[source][0]}"
            model = OnlineChatModule(
                source, model="m", base_url=base_url, api_key=KEY, retries=0, timeout=TIMEOUT
            ).prompt(PROMPTER)
            for way in list(ways(model, ASKED))[media_type != "application/json" :: 2]:
                with pytest.raises(ModuleError) as caught:
                    way()
                assert caught.value.kind in ("malformed", "cut", "empty", "server", "connection", "request")
            model.close()


# What the model itself does.


@SOME
def test_an_empty_answer_is_an_error(server: ModelServer, source: str) -> None:
    for answer in (Answer("", completion_tokens=0), Answer(" \n", thinking="hm"), Answer("", finish="length")):
        server.answer = answer
        for error in failures(module(server, source), ASKED):
            assert error.kind == "empty"
            assert ("increase max_tokens" if answer.finish == "length" else "repeat the request") in str(error)
            assert error.partial is not None
            assert error.partial.usage is None or error.partial.usage["prompt_tokens"] == 1


@pytest.mark.parametrize("source", ["openai", "anthropic"])
def test_a_refusal_is_an_error_with_its_words(server: ModelServer, source: str) -> None:
    server.answer = Answer("I would rather not.", finish="refusal")
    for error in failures(module(server, source), ASKED):
        assert (error.kind, error.partial) == ("refusal", "I would rather not.")
        assert "rephrase the prompt" in str(error)


# Ollama has no filter; Moonshot and DashScope refuse the request in place of an answer.
@pytest.mark.parametrize("source", sorted({*NAMES} - {"moonshot", "ollama", "dashscope"}))
@pytest.mark.parametrize("text", ["half of it", ""])
def test_a_safety_stop_is_an_error(server: ModelServer, source: str, text: str) -> None:
    server.answer = Answer(text, finish="content_filter")
    for error in failures(module(server, source), ASKED):
        assert (error.kind, error.partial) == ("refusal", text)


# Tried again.


def fail_times(times: int, fault: Misbehaviour, at: list[float]) -> Any:
    """Misbehaves so many times; notes when it was asked."""

    def behave(_: Seen) -> Misbehaviour | None:
        at.append(monotonic())
        return fault if len(at) <= times else None

    return behave


def bodies(server: ModelServer) -> set[str]:
    """The bodies that arrived, as they were written, and their lengths; of each client its own."""
    return {f"{seen.provider} {seen.headers['content-length']} {json.dumps(seen.body)}" for seen in server.seen}


@SOME
@pytest.mark.parametrize("status", [429, 500, 503, 408, 409])
def test_what_may_pass_is_tried_again_with_the_same_bytes(server: ModelServer, source: str, status: int) -> None:
    server.answer = WHOLE
    model = module(server, source, retries=1)
    for way in ways(model, ASKED):
        server.faults = fail_times(1, Status(status, retry_after=SHORT), [])
        assert str(way()) == WHOLE.text
        assert len(server.seen) == 2
        assert len(bodies(server)) == 1
        server.seen.clear()


def at_once(server: ModelServer, fault: Misbehaviour, way: int) -> dict[str, list[float]]:
    """What fails once for each client, all of which wait at the same time; and when each of them asked."""
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
def test_a_lost_connection_is_tried_again_with_the_same_bytes(server: ModelServer, way: int) -> None:
    """Nobody says how long to wait, which takes its time: a call, and an astream."""
    asked = at_once(server, Drop(), way)
    assert {source: len(times) for source, times in asked.items()} == dict.fromkeys(FEW, 2)
    assert len(bodies(server)) == len(FEW)


@pytest.mark.parametrize("status", [429, 529])
def test_the_server_says_when_to_try_again(server: ModelServer, status: int) -> None:
    """It asks for more than any client would wait by itself before a second attempt."""
    asked = at_once(server, Status(status, retry_after=1.1), 0)
    waited = {source: again - first for source, (first, again) in asked.items()}
    assert {source: seconds for source, seconds in waited.items() if seconds < 1.1} == {}


@pytest.mark.parametrize("source", ["gemini", "ollama"])
def test_nobody_waits_for_an_hour(server: ModelServer, source: str) -> None:
    server.faults = lambda _: Status(429, retry_after=3600)
    for error in failures(module(server, source, retries=PATIENT), ASKED):
        assert error.kind == "rate limit"
    assert len(server.seen) == 4


@SOME
def test_it_is_tried_as_often_as_it_was_said(server: ModelServer, source: str) -> None:
    server.faults = lambda _: Status(503, retry_after=SHORT)
    for error in failures(module(server, source, retries=2), ASKED):
        assert error.kind == "server"
    assert len(server.seen) == 4 * 3
    assert len(bodies(server)) == (1 if source == "gemini" else 2)  # its streams have another path, and no other body


@SOME
@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_what_will_not_pass_is_not_tried_again(server: ModelServer, source: str, status: int) -> None:
    server.faults = lambda _: Status(status)
    for _ in failures(module(server, source, retries=PATIENT), ASKED):
        pass
    assert len(server.seen) == 4


def test_no_prompter_no_call_and_no_error_is_sent(server: ModelServer) -> None:
    """What is wrong with a call itself is told by its own error, before anything is sent."""
    model = module(server, "openai")
    for wrong in ({"input": "hi"}, {"language": "Dutch", "nothing": 1}):
        for way in ways(model, wrong):
            with pytest.raises(Exception) as caught:  # noqa: PT011 - which of them is not the point
                way()
            assert type(caught.value).__module__ == "lazyprompt.errors"
    assert not server.seen
    assert model.prompter is PROMPTER
