"""LiteLLM against a server that plays the providers it knows."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from lazyprompt.errors import MissingExtraError
from lazyprompt.modules.clients._base import Request, Settings
from lazyprompt.modules.clients.litellm import connect
from modules.clients.openai_form import (
    ANSWERS,
    KEY,
    PATIENCE,
    WRONG,
    afailed,
    afirst_of,
    arrived,
    ask,
    astreamed,
    ataken,
    checked,
    echo,
    failed,
    first_of,
    read,
    settings_for,
    shown,
    streamed,
)
from support.model_server.server import HalfCall, ModelServer, Slow, Status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lazyprompt.modules.clients._base import OfficialClient

# Pydantic's, of LiteLLM's own code, which makes errors of the server of them.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")]

# A model of each of the ways LiteLLM has to a provider: OpenAI's client, and HTTP clients of its own.
MODELS = {
    "litellm": "openai/m",
    "deepseek": "deepseek/deepseek-chat",
    "anthropic": "anthropic/claude-sonnet-4-5",
    "gemini": "gemini/gemini-2.5-flash",
}


@pytest_asyncio.fixture
async def closing_all() -> AsyncIterator[None]:
    """Its connections end with the event loop, though it keeps them for the whole process."""
    yield
    await import_module("litellm").close_litellm_async_clients()


def client_for(server: ModelServer, provider: str = "litellm", **settings: Any) -> OfficialClient:
    made = settings_for(server, provider, **settings)
    # LiteLLM's address of Gemini has the version in it.
    return connect(made._replace(base_url=f"{made.base_url}/v1beta") if provider == "gemini" else made)


def request_for(provider: str = "litellm", content: str = "ping", **params: object) -> Request:
    return ask(content, MODELS[provider], **params)


@pytest.mark.asyncio
@pytest.mark.usefixtures("closing_all")
@pytest.mark.parametrize("provider", MODELS)
@pytest.mark.parametrize("name", ["text", "thinking", "calls", "all", "length", "empty"])
async def test_whole_streamed_and_in_event_loops_it_says_the_same(
    server: ModelServer, provider: str, name: str
) -> None:
    server.answer = ANSWERS[name]
    client, request = client_for(server, provider), request_for(provider)
    message = read("litellm", client.send(request))
    streams = [streamed(client, request), await astreamed(client, request)]
    again = read("litellm", await client.asend(request))

    assert [seen.refusal for seen in server.seen] == [None] * 4
    for stream in streams:
        assert stream.complete
        checked(stream, read("litellm", stream.answer))
    # For Gemini, LiteLLM makes up ids anew each time, and tells thoughts in another way in streams.
    if provider != "gemini" or name in ("text", "length", "empty"):
        assert again.content == message.content
        assert [read("litellm", stream.answer).content for stream in streams] == [message.content] * 2


@pytest.mark.asyncio
@pytest.mark.usefixtures("closing_all")
@pytest.mark.parametrize(
    ("provider", "name", "stream"),
    [
        pytest.param(provider, name, stream, id=f"{provider}-{name}-{'stream' if stream else 'whole'}")
        for provider in ("litellm", "anthropic")
        for name in WRONG
        for stream in (False, True)
        # LiteLLM leaves such events out, and which are missed depends on its version.
        if (provider, name, stream) != ("anthropic", "malformed", True)
    ],
)
async def test_what_goes_wrong_has_a_kind(server: ModelServer, provider: str, name: str, *, stream: bool) -> None:
    fault, *kinds = WRONG[name]
    # The first events of Anthropic's say nothing, so this stream has none.
    kind = "malformed" if stream and (provider, name) == ("anthropic", "ends") else kinds[stream]
    server.faults = [fault, fault]
    client = client_for(server, provider, timeout=0.5 if isinstance(fault, Slow) else PATIENCE)
    request = request_for(provider)
    if kind is None:
        message = read("litellm", streamed(client, request).answer if stream else client.send(request))
        assert stream or isinstance(fault, HalfCall) or "pong" in str(message.content)
        return
    for error, told in (failed(client, request, stream=stream), await afailed(client, request, stream=stream)):
        assert told.kind == kind
        assert told.message
        assert "\n" not in told.message
        if isinstance(fault, Status):
            assert "the server would not" in told.message
            assert told[2:] == (fault.code, fault.retry_after)
        else:
            assert told.status in (None, 500)  # of Fails, which the server sends unless it streams
        assert KEY not in shown(error, told, client)


@pytest.mark.parametrize("provider", MODELS)
def test_refusals_are_recognised(server: ModelServer, provider: str) -> None:
    error, told = failed(client_for(server, provider, key="wrong"), request_for(provider), stream=False)
    assert told.kind == "key"
    assert "wrong" not in shown(error, told)
    client = client_for(server, provider)
    unknown = ask("ping", MODELS[provider].partition("/")[0] + "/no-such-model")
    assert failed(client, unknown, stream=False)[1].kind == "not found"
    assert failed(client, request_for(provider, "OVERFLOW"), stream=True)[1].kind == "overflow"


def test_a_provider_that_it_does_not_know_is_not_found(server: ModelServer) -> None:
    assert failed(client_for(server), ask(model="no-such-model"), stream=False)[1].kind == "not found"


def test_a_key_that_a_server_quotes_shows_nowhere(server: ModelServer) -> None:
    server.faults = [Status(400, f"I do not like {KEY} at all")] * 2
    for stream in (False, True):
        error, told = failed(client_for(server), request_for(), stream=stream)
        assert "I do not like *** at all" in told.message
        assert KEY not in shown(error, told)


def test_without_a_key_it_takes_that_of_the_provider_from_the_environment(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    client_for(server, "anthropic", key=None).send(request_for("anthropic"))
    assert server.seen[0].headers["x-api-key"] == KEY
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    assert failed(client_for(server, "anthropic", key=None), request_for("anthropic"), stream=False)[1].kind == "key"


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503])
@pytest.mark.parametrize("provider", ["litellm", "anthropic"])
def test_trying_again_is_left_to_the_module_which_is_told_when(server: ModelServer, provider: str, status: int) -> None:
    server.faults = [Status(status, retry_after=0.25)]
    client = client_for(server, provider, retries=5)
    assert not client.retries_itself
    assert failed(client, request_for(provider), stream=False)[1].retry_after == 0.25
    client.send(request_for(provider))
    assert len(server.seen) == 2
    assert server.seen[0].body == server.seen[1].body


def test_what_is_sent_stays_as_it_is_and_options_go_with_it(server: ModelServer) -> None:
    def messages() -> list[dict[str, Any]]:
        return [{"role": "system", "content": "Be short."}, {"role": "user", "content": "ping"}]

    given = messages()
    client = client_for(server, "anthropic", extra_headers={"x-mine": "1"})
    client.send(Request(MODELS["anthropic"], {"messages": given}, client.params({"max_tokens": 7, "temperature": 0.5})))
    assert given == messages()
    assert server.seen[0].headers["x-mine"] == "1"
    assert (server.seen[0].body["max_tokens"], server.seen[0].body["temperature"]) == (7, 0.5)
    assert client.structured({"type": "object"}, "Number") is None


def test_tokens_are_asked_for_where_it_knows_the_server(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPSEEK_API_BASE", server.url("deepseek"))
    client = connect(Settings(None, settings_for(server, "deepseek").key, PATIENCE, 0, {}))
    stream = streamed(client, request_for("deepseek"))
    assert stream.answer["usage"]["prompt_tokens"] == 1
    streamed(client_for(server), request_for())
    streamed(client_for(server), ask(model="litellm_proxy/m"))
    assert [seen.body.get("stream_options") for seen in server.seen] == [
        {"include_usage": True},
        None,
        {"include_usage": True},
    ]


@pytest.mark.asyncio
@pytest.mark.usefixtures("closing_all")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("provider", ["litellm", "anthropic"])
async def test_cancelling_closes_the_connection(server: ModelServer, provider: str, *, stream: bool) -> None:
    server.faults = [Slow(0.0, PATIENCE) if stream else Slow(PATIENCE)]
    client, request = client_for(server, provider), request_for(provider)
    task = asyncio.ensure_future(ataken(client, request) if stream else client.asend(request))
    await asyncio.to_thread(arrived, server)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(server.wait_for, 1, PATIENCE / 2)
    assert server.seen[0].client_left


@pytest.mark.asyncio
@pytest.mark.usefixtures("closing_all")
@pytest.mark.parametrize("provider", ["litellm", "anthropic"])
async def test_closing_a_stream_closes_the_connection(server: ModelServer, provider: str) -> None:
    server.faults = [Slow(0.0, 0.3)] * 2
    client, request = client_for(server, provider), request_for(provider)
    first_of(client, request).close()
    await (await afirst_of(client, request)).aclose()
    await asyncio.to_thread(server.wait_for, 2, PATIENCE / 2)
    client.close()
    await client.aclose()
    assert [seen.client_left for seen in server.seen] == [True, True]


def test_fifty_threads_share_a_client() -> None:
    with ModelServer(echo, judges=False) as server, ThreadPoolExecutor(50) as pool:
        client = client_for(server)
        whole = list(
            pool.map(lambda n: read("litellm", client.send(request_for(content=f"n {n}"))).content, range(100))
        )
        parts = list(pool.map(lambda n: streamed(client, request_for(content=f"s {n}")).said, range(100)))
    assert whole == [f"you said n {n}" for n in range(100)]
    assert parts == [f"you said s {n}" for n in range(100)]


@pytest.mark.asyncio
@pytest.mark.usefixtures("closing_all")
async def test_a_hundred_tasks_share_a_client() -> None:
    with ModelServer(echo, judges=False) as server:
        client = client_for(server)
        whole = await asyncio.gather(*(client.asend(request_for(content=f"n {n}")) for n in range(100)))
        parts = await asyncio.gather(*(astreamed(client, request_for(content=f"s {n}")) for n in range(100)))
    assert [read("litellm", each).content for each in whole] == [f"you said n {n}" for n in range(100)]
    assert [each.said for each in parts] == [f"you said s {n}" for n in range(100)]


QUIET = """
import os, sys, socket
def no_network(*args): raise OSError("no network here")
socket.getaddrinfo = no_network
from lazyprompt.modules.clients._base import Request, Settings
from lazyprompt.modules.clients.litellm import connect
client = connect(Settings("http://127.0.0.1:9/v1", None, 5.0, 3, {}))
try:
    client.send(Request("openai/m", {"messages": [{"role": "user", "content": "hi"}]}, {"api_key": "k"}))
except Exception as error:
    print(client.fault(error).kind)
print("LITELLM_LOCAL_MODEL_COST_MAP" in os.environ)
"""


def test_it_prints_nothing_and_asks_nobody_while_it_is_imported() -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("LITELLM")}
    command = [sys.executable, "-c", QUIET]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=True)  # noqa: S603 - ours
    assert ran.stdout.split() == ["connection", "False"]
    assert ran.stderr == ""


def test_a_client_that_is_not_installed_names_the_extra(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "litellm", None)
    with pytest.raises(MissingExtraError, match=r"lazyprompt\[litellm\]"):
        client_for(server).send(request_for())
