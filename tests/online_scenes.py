"""What the tests of online modules have in common: a module for each source, the ways to call it, what it said."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from client_scenes import KEY, TIMEOUT
from model_server import Answer

from lazyprompt import ChatPrompter, OnlineChatModule
from lazyprompt.modules.sources import SOURCES

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from model_server import ModelServer, Seen

    from lazyprompt import Reply

NAMES = tuple(SOURCES)
FEW = ("openai", "anthropic", "gemini", "ollama")  # one for each form
PROMPTER = ChatPrompter("Answer in {language}.")
ASKED = {"language": "Dutch", "input": "ping"}
# What goes with a litellm model is the provider whose ways it takes.
MODELS = {"litellm": "openai/m"}
# LiteLLM 1.106 wants a package that it does not install, mcp, wherever there are tools; unless it is told this.
OPTIONS = {"litellm": {"_skip_mcp_handler": True}}
# What LiteLLM's own code warns of.
LITELLM = ("ignore::UserWarning", "ignore::DeprecationWarning")


def module(server: ModelServer, source: str, **settings: Any) -> OnlineChatModule:
    """A module for a source that is at the server; it tries nothing again."""
    given = {"api_key": KEY, "retries": 0, "timeout": TIMEOUT, "base_url": server.url(source), **settings}
    given["options"] = {**OPTIONS.get(source, {}), **given.get("options", {})}
    return OnlineChatModule(source, model=given.pop("model", MODELS.get(source, "m")), **given).prompt(PROMPTER)


def looped(module: OnlineChatModule, what: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine gives in an event loop of its own, whose connections are closed behind it."""

    async def run() -> Any:
        try:
            return await what
        finally:
            await module.aclose()

    return asyncio.run(run())


def ways(module: OnlineChatModule, *call: Any, **more: Any) -> Iterator[Callable[[], Reply]]:
    """The four ways to ask a module: call, stream, acall, astream."""

    def streamed() -> Reply:
        stream = module.stream(*call, **more)
        list(stream)
        return stream.reply

    async def astreamed() -> Reply:
        async with module.astream(*call, **more) as stream:
            async for _ in stream:
                pass
        return stream.reply

    yield lambda: module(*call, **more)
    yield streamed
    yield lambda: looped(module, module.acall(*call, **more))
    yield lambda: looped(module, astreamed())


class Said(NamedTuple):
    """What a reply says, to be compared."""

    text: str
    thinking: str
    calls: list[tuple[str, str, dict[str, Any]]]
    finish: str | None
    usage: dict[str, int] | None


def said(reply: Reply) -> Said:
    calls = [(call.id, call.name, dict(call.input)) for call in reply.tool_calls]
    return Said(str(reply), reply.thinking, calls, reply.finish, dict(reply.usage) if reply.usage else None)


def marked(seen: Seen) -> Answer:
    """Says the marks again, as ``<...>``, that are in a request, with an empty call named by them."""
    written = json.dumps(seen.payload, ensure_ascii=False)
    begin = written.rindex("<")
    return Answer(written[begin : written.index(">", begin) + 1], prompt_tokens=len(seen.body))
