"""Streamed replies: their pieces, their callbacks, and the connections of abandoned streams."""

import asyncio
import gc
import re
from typing import Any

import pytest

from lazyprompt import AsyncReplyStream, Delta, ModuleError, Reply
from modules.online_scenes import ASKED, SOME, module, run_in_loop
from support.client_scenes import TIMEOUT, said_by, said_in, until
from support.model_server.server import Answer, Ends, ModelServer, Slow

ANSWER = Answer(
    "let me see: 雨 🎈?", thinking="which city?", calls=(("c1", "weather", {"city": "東京"}), ("c2", "time", {}))
)
LONG = Answer("on and on " * 200)
SLOWLY = Slow(first=0.0, between=0.05)


@SOME
def test_streamed_pieces_and_deltas_add_up_to_the_reply(server: ModelServer, source: str) -> None:
    model = module(server, source)
    stream, whole = model.stream(ASKED), model.stream(ASKED)
    pieces, deltas = list(stream), list(whole.deltas())

    async def asked() -> tuple[AsyncReplyStream, list[str], list[Delta]]:
        stream, whole = model.astream(ASKED), model.astream(ASKED)
        pieces = [piece async for piece in stream]
        deltas = [delta async for delta in whole.deltas()]
        assert said_in(deltas) == said_by(whole.reply.message)
        return stream, pieces, deltas

    astream, apieces, adeltas = run_in_loop(model, asked())
    assert pieces == apieces == [delta.text for delta in deltas if delta.kind == "text"]
    assert len(pieces) > 1
    assert "".join(pieces) == stream.reply == astream.reply == ANSWER.text
    assert said_in(deltas) == said_by(whole.reply.message)
    assert adeltas == deltas
    assert stream.reply.message == whole.reply.message == astream.reply.message


@SOME
def test_stream_that_is_not_iterated_over_sends_nothing(server: ModelServer, source: str) -> None:
    model = module(server, source)
    model.stream(ASKED)
    with model.stream(ASKED) as stream:
        pass
    stream.close()

    async def asked() -> None:
        model.astream(ASKED)
        async with model.astream(ASKED) as stream:
            pass
        await stream.aclose()

    run_in_loop(model, asked())
    gc.collect()
    assert list(stream) == []
    with pytest.raises(ModuleError, match="not complete yet"):
        _ = stream.reply
    assert not server.seen


@SOME
def test_closing_a_stream_early_closes_its_connection(server: ModelServer, source: str) -> None:
    server.faults = lambda _: SLOWLY
    server.answer = LONG
    model = module(server, source)
    with model.stream(ASKED) as stream:
        assert next(iter(stream))
    server.wait_for(1, TIMEOUT)

    async def asked() -> None:
        async with model.astream(ASKED) as stream:
            assert await anext(aiter(stream))
        await asyncio.to_thread(server.wait_for, 2, TIMEOUT)

    run_in_loop(model, asked())
    assert [seen.client_left for seen in server.seen] == [True, True]
    model.close()


@pytest.mark.slow
@SOME
def test_abandoned_stream_closes_its_connection(server: ModelServer, source: str) -> None:
    server.faults = lambda _: SLOWLY
    server.answer = LONG
    model = module(server, source)
    for _ in model.stream(ASKED):
        break
    server.wait_for(1, TIMEOUT)

    def failing() -> None:
        with model.stream(ASKED) as stream:
            for _ in stream:
                raise ValueError("of the caller's own")

    with pytest.raises(ValueError, match="of the caller's own"):
        failing()
    server.wait_for(2, TIMEOUT)

    async def asked() -> None:
        async for _ in model.astream(ASKED):
            break
        assert await asyncio.to_thread(until, lambda: len(server.seen) == 3 and server.seen[2].client_left)

    run_in_loop(model, asked())
    assert [seen.client_left for seen in server.seen] == [True, True, True]
    model.close()


@SOME
def test_reply_is_set_at_the_end_of_a_stream_and_then_callbacks_run_once(server: ModelServer, source: str) -> None:
    model = module(server, source)
    told: list[tuple[str, Reply]] = []
    stream = model.stream(ASKED)
    assert stream.then(lambda reply: told.append(("a", reply))).then(lambda reply: told.append(("b", reply))) is stream
    deltas = stream.deltas()
    for _ in range(3):
        next(deltas)
        with pytest.raises(ModuleError, match="iterate over the stream to its end"):
            _ = stream.reply
    assert not told
    list(deltas)
    assert told == [("a", stream.reply), ("b", stream.reply)]
    assert not list(stream)
    assert not list(stream.deltas())
    assert len(told) == 2
    assert len(server.seen) == 1


@SOME
def test_failed_or_closed_stream_runs_no_then_callback(server: ModelServer, source: str) -> None:
    model = module(server, source)
    told: list[Reply] = []
    server.faults = [Ends(2)]
    stream = model.stream(ASKED).then(told.append)
    with pytest.raises(ModuleError) as caught:
        list(stream)
    assert caught.value.kind == "cut"
    with model.stream(ASKED).then(told.append) as closed:
        next(closed.deltas())
    server.answer = Answer("")
    with pytest.raises(ModuleError, match="response is empty"):
        list(model.stream(ASKED).then(told.append))
    assert not told
    model.close()


def test_error_in_a_then_callback_is_raised_and_the_reply_is_kept(server: ModelServer) -> None:
    def fail(_: Reply) -> None:
        raise KeyError("of the caller's own")

    stream = module(server, "openai").stream(ASKED).then(fail)
    with pytest.raises(KeyError, match="of the caller's own"):
        list(stream)
    assert stream.reply == ANSWER.text


@SOME
def test_interleaved_streams_do_not_mix_their_texts(source: str) -> None:
    def echo(seen: Any) -> Answer:
        return Answer(re.findall(r"number \d", repr(seen.payload))[-1] * 10)

    with ModelServer(echo) as server:
        model = module(server, source)
        streams = [model.stream({"language": "Dutch", "input": f"number {number}"}) for number in range(8)]
        texts = ["" for _ in streams]
        left = {at: iter(stream) for at, stream in enumerate(streams)}
        while left:  # in turns
            for at, pieces in list(left.items()):
                piece = next(pieces, None)
                if piece is None:
                    del left[at]
                else:
                    texts[at] += piece
        assert texts == [str(stream.reply) for stream in streams] == [f"number {number}" * 10 for number in range(8)]
        model.close()
