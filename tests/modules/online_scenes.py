"""Helpers for tests of online modules: a module for each source, the ways to call it, and its requests."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, NamedTuple

import pytest

from lazyprompt import Chat, ChatPrompter, OnlineChatModule, Reply, TrainableModule
from lazyprompt.modules.sources import SOURCES
from support.client_scenes import KEY, TIMEOUT, until
from support.model_server.server import Answer, ModelServer, Seen

NAMES = tuple(SOURCES)
WAYS = ("call", "stream", "acall", "astream")
FEW = ("openai", "anthropic", "gemini", "ollama")  # one for each client
ALL = pytest.mark.parametrize("source", NAMES)
SOME = pytest.mark.parametrize("source", FEW)
# Two of the four ways to call a module: a whole response and a stream, one of them async. If half of the cases of
# each client use the first two ways and half the others, every case and every way is tested at half the cost.
TWO_WAYS = (slice(0, 4, 3), slice(2, 0, -1))
PROMPTER = ChatPrompter("Answer in {language}.")
ASKED = {"language": "Dutch", "input": "ping"}

COMMON: dict[str, Any] = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 50, "stop": ["END", "."], "seed": 7}
# The names that a source has for common parameters; None if its client does not accept a parameter.
OTHERS: dict[str, dict[str, str | None]] = {
    "mistral": {"seed": "random_seed"},
    "openai-responses": {"max_tokens": "max_output_tokens", "stop": None, "seed": None},
    "anthropic": {"temperature": None, "top_p": None, "seed": None, "stop": "stop_sequences"},
    "gemini": {"max_tokens": "max_output_tokens", "stop": "stop_sequences"},
    "ollama": {"max_tokens": "num_predict"},
    "moonshot": {"max_tokens": "max_completion_tokens"},
    "xai": {"max_tokens": "max_completion_tokens"},
}

_OPENED: list[OnlineChatModule] = []


def close_all() -> None:
    """Close the connections of threads of all modules that :func:`module` made."""
    while _OPENED:
        _OPENED.pop().close()


def module(server: ModelServer, source: str, **settings: Any) -> OnlineChatModule:
    """A module for a source at the test server; without retries, closed by :func:`close_all`."""
    given = {"api_key": KEY, "retries": 0, "timeout": TIMEOUT, "base_url": server.url(source), **settings}
    made = OnlineChatModule(source, model=given.pop("model", "m"), **given).prompt(PROMPTER)
    _OPENED.append(made)
    return made


def run_in_loop(asked: OnlineChatModule | TrainableModule | Chat, what: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine in a new event loop, whose connections are closed afterwards."""

    async def run() -> Any:
        try:
            return await what
        finally:
            await close_connections(asked)

    return asyncio.run(run())


async def close_connections(asked: OnlineChatModule | TrainableModule | Chat) -> None:
    """Close the connections that the running event loop has to the model of a module or a chat."""
    module: Any = asked.module if isinstance(asked, Chat) else asked
    await module.aclose()


async def cancel_call(module: OnlineChatModule, server: ModelServer) -> None:
    """Cancel a call once the server has seen it."""
    before = len(server.seen)
    task = asyncio.ensure_future(module.acall(ASKED))
    assert await asyncio.to_thread(until, lambda: len(server.seen) > before)
    task.cancel()
    await asyncio.wait([task])


def ways(asked: OnlineChatModule | TrainableModule | Chat, *call: Any, **more: Any) -> Iterator[Callable[[], Reply]]:
    """The four ways to call a module or a chat: call, stream, acall, astream."""

    def streamed() -> Reply:
        stream = asked.stream(*call, **more)
        assert "".join(stream) == stream.reply
        return stream.reply

    async def astreamed() -> Reply:
        async with asked.astream(*call, **more) as stream:
            assert "".join([piece async for piece in stream]) == stream.reply
        return stream.reply

    yield lambda: asked(*call, **more)
    yield streamed
    yield lambda: run_in_loop(asked, asked.acall(*call, **more))
    yield lambda: run_in_loop(asked, astreamed())


def ask_by(way: str, asked: OnlineChatModule | TrainableModule | Chat, *call: Any) -> Reply:
    """The reply to one of the ways to call."""
    return dict(zip(WAYS, ways(asked, *call), strict=True))[way]()


class Counted(ModelServer):
    """A server that counts the finished requests."""

    def over(self) -> int:
        return self._over


class ReplyContents(NamedTuple):
    """The contents of a reply, to be compared."""

    text: str
    thinking: str
    calls: list[tuple[str, str, dict[str, Any]]]
    finish: str | None
    usage: dict[str, int] | None


def reply_contents(reply: Reply) -> ReplyContents:
    calls = [(call.id, call.name, dict(call.input)) for call in reply.tool_calls]
    return ReplyContents(str(reply), reply.thinking, calls, reply.finish, dict(reply.usage) if reply.usage else None)


def echo_marks(seen: Seen) -> Answer:
    """A response that repeats the last mark, such as ``<...>``, of a request."""
    written = json.dumps(seen.payload, ensure_ascii=False)
    begin = written.rindex("<")
    return Answer(written[begin : written.index(">", begin) + 1], prompt_tokens=len(seen.body))


def to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def common_for(source: str) -> dict[str, Any]:
    """The common parameters that a source accepts."""
    others = OTHERS.get(source, {})
    return {name: value for name, value in COMMON.items() if others.get(name, name)}


def settings_in(source: str, seen: Seen) -> dict[str, Any]:
    """The settings in a request: what is neither the payload nor the model."""
    if source == "gemini":
        names = {"topP": "top_p", "maxOutputTokens": "max_output_tokens", "stopSequences": "stop_sequences"}
        return {names.get(name, name): value for name, value in seen.body.get("generationConfig", {}).items()}
    return {name: value for name, value in seen.body.items() if name not in {"model", *seen.payload}}


def as_sent(source: str, payload: dict[str, Any]) -> dict[str, Any]:
    """A payload as the client sends it: OpenAI's merges ``extra_body``, Gemini's wraps the system text in a content."""
    payload = {**payload, **payload.get("extra_body", {})}
    payload.pop("extra_body", None)
    if source == "gemini" and isinstance(payload.get("system_instruction"), str):
        content = {"role": "user", "parts": [{"text": payload["system_instruction"]}]}
        return {**payload, "system_instruction": content}
    return payload
