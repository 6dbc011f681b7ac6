"""One prompter at many modules, sources and engines, asked at once: each gets what it asked for."""

from __future__ import annotations

import asyncio
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from lazyprompt import ChatPrompter, OnlineChatModule, TrainableModule
from modules.online_scenes import as_sent, close_all, marked, module, written
from support.model_server.server import ModelServer

if TYPE_CHECKING:
    Module = OnlineChatModule | TrainableModule

CALLS = 64


def sources_and_engines(server: ModelServer) -> list[Module]:
    """Two providers and two engines. The markers of the local models have no signs that marks of a call begin with."""
    local: dict[str, Any] = {"markers": "vicuna", "retries": 0}
    return [
        module(server, "openai"),
        module(server, "anthropic"),
        TrainableModule("m", engine="vllm", url=server.url("completions"), **local),
        TrainableModule("m", engine="sglang", url=server.url("completions"), **local),
    ]


def dry(model: Module, *call: Any) -> dict[str, Any]:
    payload = dict(model.payload(*call))
    return as_sent(model.source.name, payload) if isinstance(model, OnlineChatModule) else payload


@pytest.mark.slow
def test_one_prompter_serves_four_modules_at_once() -> None:
    """64 calls at once over 4 modules, whole and streamed, in threads and then in a loop."""
    prompter = ChatPrompter("Answer in {language}.")
    before = pickle.dumps(prompter)
    expected = {}
    with ModelServer(marked) as server:
        models = [model.prompt(prompter) for model in sources_and_engines(server)]

        def call(number: int) -> tuple[Module, str, Any]:
            model, mark = models[number % 4], f"<m-{number}>"
            given = {"language": f"L{number}", "input": f"say {mark}"}, [[f"h{number}", "k"]]
            expected[mark] = dry(model, *given)
            return model, mark, given

        def ask(number: int) -> bool:
            model, mark, given = call(number)
            if number % 8 < 4:
                return model(*given) == mark
            with model.stream(*given) as stream:
                return "".join(stream) == mark

        async def aask(number: int) -> bool:
            model, mark, given = call(number)
            if number % 8 < 4:
                return await model.acall(*given) == mark
            async with model.astream(*given) as stream:
                return "".join([piece async for piece in stream]) == mark

        async def all_at_once() -> bool:
            right = await asyncio.gather(*map(aask, range(CALLS, 2 * CALLS)))
            for model in models:
                await model.aclose()
            return all(right)

        with ThreadPoolExecutor(CALLS) as pool:
            assert all(pool.map(ask, range(CALLS)))
        assert asyncio.run(all_at_once())
        for model in models:
            model.close()
        close_all()
    assert pickle.dumps(prompter) == before
    assert len(server.seen) == 2 * CALLS
    for seen in server.seen:
        wanted = expected.pop(marked(seen).text)
        assert written(seen.payload) == written({name: wanted[name] for name in seen.payload})
    assert not expected
