"""What the tests of online modules have in common: a module for each source, the ways to call it, what it said."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, NamedTuple

from lazyprompt import Chat, ChatPrompter, OnlineChatModule, Reply, TrainableModule
from lazyprompt.modules.sources import SOURCES
from support.client_scenes import KEY, TIMEOUT, until
from support.model_server.server import Answer, ModelServer, Seen

NAMES = tuple(SOURCES)
WAYS = ("call", "stream", "acall", "astream")
FEW = ("openai", "anthropic", "gemini", "ollama")  # one for each client
# Of the four ways to call a module, two at a time: a whole answer and a stream, one of them in a loop. Where each
# client has half of its cases in these and half in those, it has every case, and every way, at half the price.
TWO_WAYS = (slice(0, 4, 3), slice(2, 0, -1))
PROMPTER = ChatPrompter("Answer in {language}.")
ASKED = {"language": "Dutch", "input": "ping"}

COMMON: dict[str, Any] = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 50, "stop": ["END", "."], "seed": 7}
# What a source calls them, or that its client does not take them.
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
    """A module for a source that is at the server; it tries nothing again, and is closed by :func:`close_all`."""
    given = {"api_key": KEY, "retries": 0, "timeout": TIMEOUT, "base_url": server.url(source), **settings}
    made = OnlineChatModule(source, model=given.pop("model", "m"), **given).prompt(PROMPTER)
    _OPENED.append(made)
    return made


def run_in_loop(asked: OnlineChatModule | TrainableModule | Chat, what: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine gives in an event loop of its own, whose connections are closed behind it."""

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


async def give_up(module: OnlineChatModule, server: ModelServer) -> None:
    """Cancel a call once the server has seen it."""
    before = len(server.seen)
    task = asyncio.ensure_future(module.acall(ASKED))
    assert await asyncio.to_thread(until, lambda: len(server.seen) > before)
    task.cancel()
    await asyncio.wait([task])


def ways(asked: OnlineChatModule | TrainableModule | Chat, *call: Any, **more: Any) -> Iterator[Callable[[], Reply]]:
    """The four ways to ask a module or a chat: call, stream, acall, astream."""

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
    """What a model answers, asked in one of the ways."""
    return dict(zip(WAYS, ways(asked, *call), strict=True))[way]()


class Counted(ModelServer):
    """Knows how many requests came to their end."""

    def over(self) -> int:
        return self._over


class ReplyContents(NamedTuple):
    """What a reply says, to be compared."""

    text: str
    thinking: str
    calls: list[tuple[str, str, dict[str, Any]]]
    finish: str | None
    usage: dict[str, int] | None


def reply_contents(reply: Reply) -> ReplyContents:
    calls = [(call.id, call.name, dict(call.input)) for call in reply.tool_calls]
    return ReplyContents(str(reply), reply.thinking, calls, reply.finish, dict(reply.usage) if reply.usage else None)


def echo_marks(seen: Seen) -> Answer:
    """Says the marks again, as ``<...>``, that are in a request, with an empty call named by them."""
    written = json.dumps(seen.payload, ensure_ascii=False)
    begin = written.rindex("<")
    return Answer(written[begin : written.index(">", begin) + 1], prompt_tokens=len(seen.body))


def to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def common_for(source: str) -> dict[str, Any]:
    """The common parameters that a source takes."""
    others = OTHERS.get(source, {})
    return {name: value for name, value in COMMON.items() if others.get(name, name)}


def settings_in(source: str, seen: Seen) -> dict[str, Any]:
    """The settings in a request: what is neither the payload nor the model."""
    if source == "gemini":
        names = {"topP": "top_p", "maxOutputTokens": "max_output_tokens", "stopSequences": "stop_sequences"}
        return {names.get(name, name): value for name, value in seen.body.get("generationConfig", {}).items()}
    return {name: value for name, value in seen.body.items() if name not in {"model", *seen.payload}}


def as_sent(source: str, payload: dict[str, Any]) -> dict[str, Any]:
    """A payload as the client writes it: OpenAI's spreads ``extra_body``, Gemini's makes a content of a system text."""
    payload = {**payload, **payload.get("extra_body", {})}
    payload.pop("extra_body", None)
    if source == "gemini" and isinstance(payload.get("system_instruction"), str):
        content = {"role": "user", "parts": [{"text": payload["system_instruction"]}]}
        return {**payload, "system_instruction": content}
    return payload
