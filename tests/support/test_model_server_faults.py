"""The model server's misbehaviour, as the official clients see it."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from support.model_server.clients import LIBRARIES, Got, RefusedError
from support.model_server.errors import NO_KEY, NO_MODEL, REFUSALS
from support.model_server.helpers import (
    ALL,
    ANSWERS,
    BOTH,
    CALLS,
    FINISHES,
    FULL,
    MESSAGES,
    NO_CALLS,
    SECONDS,
    ask,
    failure,
    heard,
    said,
)
from support.model_server.server import (
    Answer,
    Cut,
    Drop,
    Ends,
    Fails,
    HalfCall,
    Malformed,
    ModelServer,
    Slow,
    Status,
    Unknown,
)
from support.providers.loopback import _http as http_arguments  # pyright: ignore[reportPrivateUsage]  # no proxies
from support.providers.types import sdk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.model_server.server import Misbehaviour, Seen

pytestmark = pytest.mark.slow  # every client with every fault


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as serving:
        yield serving


# What each client raises, by its library; a number is the status that it tells.
RAISED: dict[str, dict[str, str]] = {
    "openai": {"429": "RateLimitError", "500": "InternalServerError", "529": "InternalServerError"},
    "anthropic": {"429": "RateLimitError", "500": "InternalServerError", "529": "OverloadedError"},
    "gemini": {"429": "ClientError", "500": "ServerError", "529": "ServerError"},
    "ollama": dict.fromkeys(("429", "500", "529"), "ResponseError"),
}
LOST = dict.fromkeys(("gemini", "ollama"), "RemoteProtocolError")
FAILED = {
    "openai": "APIError",
    "anthropic": "APIStatusError",
    "gemini": "ServerError",
    "ollama": "ResponseError",
}


def no_answer() -> type[Exception]:
    """What Gemini's client raises, by a class of its own, where an answer is none."""
    kind: type[Exception] = sdk("google.genai.errors").UnknownApiResponseError
    return kind


@ALL
@BOTH
@pytest.mark.parametrize("code", [429, 500, 529])
def test_statuses(server: ModelServer, provider: str, *, stream: bool, code: int) -> None:
    server.faults = [Status(code, "not now, 今")]

    name, status, message = failure(server, provider, stream=stream)

    assert (name, status) == (RAISED[LIBRARIES[provider]][str(code)], code)
    assert "not now, 今" in message
    assert ask(server, provider, stream=stream).text == "pong"


@ALL
@BOTH
def test_connections_lost_in_the_middle(server: ModelServer, provider: str, *, stream: bool) -> None:
    server.answer, server.faults = FULL, [Cut(), Cut(after=999), Cut(after=0)]
    lost = "RemoteProtocolError" if stream and provider == "anthropic" else "APIConnectionError"

    for _ in range(3):
        assert failure(server, provider, stream=stream)[0] == LOST.get(LIBRARIES[provider], lost)
    assert heard(ask(server, provider, stream=stream)) == said(provider, FULL)


@ALL
def test_streams_that_end_without_their_end(server: ModelServer, provider: str) -> None:
    server.answer, server.faults = FULL, [Ends(after=4), Ends(after=999)]

    begun, rest = (ask(server, provider, stream=True) for _ in range(2))

    assert begun.finish == rest.finish == ""
    text, thinking, calls = said(provider, FULL)
    assert text.startswith(begun.text)
    assert thinking.startswith(begun.thinking)
    assert begun.text + begun.thinking < text + thinking
    assert (rest.text, rest.thinking, len(rest.calls)) == (text, thinking, len(calls))


@ALL
@BOTH
def test_errors_in_the_middle(server: ModelServer, provider: str, *, stream: bool) -> None:
    server.answer, server.faults = FULL, [Fails(code=503, message="busy")]
    # These errors have no "error", by which the client would know them.
    if stream and provider in ("siliconflow", "mistral"):
        assert ask(server, provider, stream=True).finish == ""
        return

    name, _, message = failure(server, provider, stream=stream)

    if stream and provider == "openai-responses":
        assert name == "RefusedError"  # our reader's: the client hands it on as an event
    elif stream:
        assert name == FAILED[LIBRARIES[provider]]
    if stream and provider == "xai":
        assert message.startswith("An error occurred during streaming")
    else:
        assert "busy" in message


@ALL
@pytest.mark.parametrize(
    ("stream", "fault"), [(False, Malformed()), (True, Malformed()), (False, Ends())], ids=["whole", "stream", "half"]
)
def test_what_is_no_json(server: ModelServer, provider: str, *, stream: bool, fault: Misbehaviour) -> None:
    server.faults = [fault]
    with pytest.raises((ValueError, RefusedError, no_answer())):
        ask(server, provider, stream=stream)


@ALL
@BOTH
def test_a_page_is_no_answer(server: ModelServer, provider: str, *, stream: bool) -> None:
    server.faults = [Malformed(page=True)]
    try:
        got = ask(server, provider, stream=stream)
    except tuple[type[Exception], ...]((ValueError, RefusedError, AssertionError, no_answer())):
        return  # AssertionError: Anthropic's helper, where no event came at all
    assert (stream, got) == (True, Got())


@ALL
@BOTH
def test_calls_cut_off(server: ModelServer, provider: str, *, stream: bool) -> None:
    server.answer, server.faults = Answer(calls=CALLS[:1]), [HalfCall()]

    got = ask(server, provider, stream=stream)

    assert got.finish == (FINISHES[provider][1] if provider != "gemini" else "MALFORMED_FUNCTION_CALL")
    if LIBRARIES[provider] in ("gemini", "ollama") or provider in NO_CALLS:
        assert got.calls == ()
    elif provider == "anthropic" and not stream:
        assert got.calls == (("call_1", "weather", "{}"),)
    else:
        whole = json.dumps(CALLS[0][2], ensure_ascii=False)
        [(ident, name, arguments)] = got.calls
        assert (ident, name, arguments) == ("call_1", "weather", whole[: len(whole) // 2])


@ALL
@BOTH
@pytest.mark.parametrize("name", ANSWERS)
def test_clients_take_what_nobody_knows(server: ModelServer, provider: str, *, stream: bool, name: str) -> None:
    answer = server.answer = ANSWERS[name]
    server.faults = [Unknown()]

    assert heard(ask(server, provider, stream=stream)) == said(provider, answer)


@ALL
@BOTH
def test_connections_closed_before_any_byte(server: ModelServer, provider: str, *, stream: bool) -> None:
    server.faults = [Drop()]

    name, _, _ = failure(server, provider, stream=stream)

    assert name == LOST.get(LIBRARIES[provider], "APIConnectionError")
    assert len(server.seen) == 1


REFUSED: dict[str, dict[int, str]] = {  # by the status of the error, where the library has classes for them
    "openai": {400: "BadRequestError", 401: "AuthenticationError", 404: "NotFoundError"},
    "anthropic": {400: "BadRequestError", 401: "AuthenticationError", 404: "NotFoundError"},
    "gemini": dict.fromkeys((400, 404), "ClientError"),
    "ollama": dict.fromkeys((401, 404), "ResponseError"),
}


@ALL
@BOTH
def test_wrong_keys_models_and_lengths(server: ModelServer, provider: str, *, stream: bool) -> None:
    asked: dict[Any, dict[str, str]] = {
        "key": {"key": NO_KEY},
        "model": {"model": NO_MODEL},
        "length": {"prompt": "An OVERFLOW of words."},
    }
    for reason, refusal in REFUSALS[provider].items():
        name, status, message = failure(server, provider, stream=stream, **asked[reason])
        assert (name, status) == (REFUSED[LIBRARIES[provider]][refusal.status], refusal.status)
        assert refusal.message in message
        assert server.seen[-1].refusal == refusal.message
    if "length" not in REFUSALS[provider]:
        assert ask(server, provider, stream=stream, **asked["length"]).text == "pong"


def test_when_to_try_again_is_told(server: ModelServer) -> None:
    server.faults = [Status(429, retry_after=1.5), Status(429, retry_after=1.5)]
    openai = sdk("openai")
    with pytest.raises(openai.RateLimitError) as limited:
        ask(server, "openai")
    with pytest.raises(sdk("google.genai.errors").ClientError) as busy:
        ask(server, "gemini")

    assert limited.value.response.headers["retry-after"] == "1.5"
    assert busy.value.details["error"]["details"][0]["retryDelay"] == "1.5s"


@pytest.mark.asyncio
async def test_a_cancelled_call_is_seen(server: ModelServer) -> None:
    arrived = Event()

    def late(_: Seen) -> Slow:
        arrived.set()
        return Slow(first=SECONDS)

    server.faults = late
    openai = sdk("openai")
    http = openai.DefaultAsyncHttpxClient(**http_arguments())
    async with openai.AsyncOpenAI(base_url=server.url("openai"), api_key="k", http_client=http) as client:
        call = asyncio.create_task(client.chat.completions.create(model="m", messages=MESSAGES["messages"]))
        assert await asyncio.to_thread(arrived.wait, SECONDS)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.to_thread(server.wait_for, 1, SECONDS)

    assert server.seen[0].client_left


def test_a_stream_that_is_closed_is_seen(server: ModelServer) -> None:
    server.faults = [Slow(first=0.0, between=SECONDS)]
    anthropic = sdk("anthropic")
    http = anthropic.DefaultHttpxClient(**http_arguments(), mounts={"all://127.0.0.1": None})
    with anthropic.Anthropic(base_url=server.url("anthropic"), api_key="k", http_client=http) as client:
        stream = client.messages.create(model="m", max_tokens=8, messages=MESSAGES["messages"], stream=True)
        assert next(stream).type == "message_start"
        with pytest.raises(TimeoutError, match="0 of 1 requests"):
            server.wait_for(1, 0.01)
        stream.close()
        server.wait_for(1, SECONDS)

    assert server.seen[0].client_left


@pytest.mark.parametrize("slow", [Slow(first=SECONDS), Slow(first=0.0, between=SECONDS)], ids=str)
def test_a_server_that_is_slow_runs_out_of_time(server: ModelServer, slow: Slow) -> None:
    server.faults = [slow]
    httpx = sdk("httpx")
    with closing(sdk("ollama").Client(host=server.url("ollama"), **http_arguments() | {"timeout": 0.3})) as client:
        with pytest.raises(httpx.ReadTimeout):
            list(client.chat(model="m", messages=MESSAGES["messages"], stream=True))
        server.wait_for(1, SECONDS)

    assert server.seen[0].client_left


def test_faults_may_depend_on_what_was_asked(server: ModelServer) -> None:
    server.faults = lambda seen: Status(503) if "fail" in str(seen.payload) else None

    assert ask(server, "openai").text == "pong"
    assert failure(server, "openai", prompt="fail")[1] == 503


@pytest.mark.parametrize("attribute", ["answer", "faults"])
def test_what_fails_in_a_thread_is_raised(attribute: str) -> None:
    def broken(_: Seen) -> Answer:
        raise LookupError("a bug of the test")

    server = ModelServer()
    setattr(server, attribute, broken)
    with pytest.raises(ExceptionGroup) as caught, server:
        failure(server, "openai")

    assert caught.group_contains(LookupError, match="a bug of the test")
