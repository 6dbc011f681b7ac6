"""Zhipu's official client, in threads and in event loops."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from lazyprompt._base.secret import Secret
from lazyprompt.errors import ModuleError
from lazyprompt.modules.clients._base import Request, Settings
from lazyprompt.modules.clients.zai import LIMIT, connect
from modules.clients.openai_form import (
    ANSWERS,
    KEY,
    PATIENCE,
    WRONG,
    Shared,
    afailed,
    arrived,
    ask,
    astreamed,
    ataken,
    checked,
    closed,
    failed,
    open_sockets,
    read,
    settings_for,
    shown,
    streamed,
)
from support.model_server.server import Answer, ModelServer, Slow, Status

if TYPE_CHECKING:
    from lazyprompt.modules.clients._base import OfficialClient
    from lazyprompt.modules.clients._faults import FaultKind
    from support.model_server.server import Misbehaviour

pytestmark = pytest.mark.slow  # a real client


def client_for(server: ModelServer, **settings: Any) -> OfficialClient:
    return connect(settings_for(server, "zhipu", **settings))


class TestOpenAIForm(Shared):
    provider = "zhipu"
    package = "zai"
    extra = "zai-sdk"
    most_sockets = 2 * LIMIT

    def client_for(self, server: ModelServer, **settings: Any) -> OfficialClient:
        return client_for(server, **settings)


@pytest.mark.asyncio
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
async def test_whole_streamed_and_in_event_loops_it_says_the_same(server: ModelServer, answer: Answer) -> None:
    server.answer = answer
    client = client_for(server)
    message = read("zhipu", client.send(ask()))
    streams = [streamed(client, ask()), await astreamed(client, ask())]
    again = read("zhipu", await client.asend(ask()))
    client.close()
    await client.aclose()

    assert [seen.refusal for seen in server.seen] == [None] * 4
    assert server.seen[0].headers["authorization"] == f"Bearer {KEY}"
    assert message == again
    for stream in streams:
        assert stream.complete
        assert read("zhipu", stream.answer) == message
        checked(stream, message)


@pytest.mark.asyncio
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(("fault", "whole_kind", "stream_kind"), WRONG.values(), ids=WRONG)
async def test_what_goes_wrong_has_a_kind(
    server: ModelServer,
    fault: Misbehaviour,
    whole_kind: FaultKind | None,
    stream_kind: FaultKind | None,
    *,
    stream: bool,
) -> None:
    kind = stream_kind if stream else whole_kind
    server.faults = [fault, fault]
    client = client_for(server, timeout=0.5 if isinstance(fault, Slow) else PATIENCE)
    if kind is None:
        message = read("zhipu", streamed(client, ask()).answer if stream else client.send(ask()))
        assert "pong" in str(message.content)
    else:
        for error, told in (failed(client, ask(), stream=stream), await afailed(client, ask(), stream=stream)):
            assert told.kind == kind
            assert told.message
            if isinstance(fault, Status):
                assert told[1:] == ("the server would not", fault.code, fault.retry_after)
            assert KEY not in shown(error, told, client)
        assert read("zhipu", await client.asend(ask())).content == "pong"  # on the line that saw the fault
    client.close()
    await client.aclose()


def test_refusals_are_recognised(server: ModelServer) -> None:
    with closing(client_for(server, key="wrong")) as client:
        error, told = failed(client, ask(), stream=False)
        assert told.kind == "key"
        assert "wrong" not in shown(error, told, client)
    with closing(client_for(server)) as client:
        assert failed(client, ask(model="no-such-model"), stream=False)[1].kind == "not found"
        assert failed(client, ask("OVERFLOW"), stream=True)[1].kind == "overflow"


def test_a_key_that_is_none_is_refused_and_not_shown() -> None:
    key = Secret("sk-\nnew line")
    with pytest.raises(ModuleError) as refused:
        connect(Settings("http://127.0.0.1:9", key, 1.0, 0, {}))
    assert "new line" not in shown(refused.value)


def test_without_a_key_that_of_the_environment_is_not_sent(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZAI_API_KEY", KEY)
    with closing(client_for(server, key=None)) as client:
        client.send(ask())
    assert KEY not in str(server.seen[0].headers)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503])
def test_trying_again_is_left_to_the_module_which_is_told_when(server: ModelServer, status: int) -> None:
    server.faults = [Status(status, retry_after=0.25)]
    with closing(client_for(server, retries=5)) as client:
        assert not client.retries_itself
        assert failed(client, ask(), stream=False)[1].retry_after == 0.25
        client.send(ask())
    assert len(server.seen) == 2
    assert server.seen[0].body == server.seen[1].body


def test_what_is_sent_stays_as_it_is(server: ModelServer) -> None:
    def picture() -> list[dict[str, Any]]:
        parts = [
            {"type": "text", "text": "?"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        ]
        return [{"role": "user", "content": parts}]

    messages = picture()
    with closing(client_for(server)) as client:
        client.send(Request("m", {"messages": messages}, {}))
    assert messages == picture()
    assert server.seen[0].body["messages"][0]["content"][1] == {"type": "image_url", "image_url": {"url": "AAAA"}}


def test_parameters_have_their_names_and_there_are_no_schemas(server: ModelServer) -> None:
    common = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 7, "stop": ["\n"], "seed": 1, "do_sample": True}
    with closing(client_for(server)) as client:
        assert client.structured({"type": "object"}, "Number") is None
        client.send(ask(**client.params(common)))
    assert {key: server.seen[0].body[key] for key in common} == common


@pytest.mark.asyncio
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("warm", [False, True], ids=["new connection", "used connection"])
async def test_cancelling_closes_the_connection_at_once(server: ModelServer, *, stream: bool, warm: bool) -> None:
    client, before = client_for(server), open_sockets()
    if warm:
        await client.asend(ask())
    at = len(server.seen)
    server.faults = [Slow(0.0, PATIENCE) if stream else Slow(PATIENCE)]
    task = asyncio.ensure_future(ataken(client, ask()) if stream else client.asend(ask()))
    await asyncio.to_thread(arrived, server, at + 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(server.wait_for, at + 1, PATIENCE / 2)
    assert server.seen[at].client_left
    assert read("zhipu", await client.asend(ask())).content == "pong"
    await client.aclose()
    assert await asyncio.to_thread(closed, before)


@pytest.mark.asyncio
async def test_closing_cuts_what_is_under_way(server: ModelServer) -> None:
    server.faults = [Slow(PATIENCE)]
    client = client_for(server)
    task = asyncio.ensure_future(afailed(client, ask(), stream=False))
    await asyncio.to_thread(arrived, server)
    await client.aclose()

    assert (await task)[1].kind == "connection"
