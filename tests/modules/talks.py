"""What tests of conversations need: modules of both kinds before one server, and the ways to ask."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, TypeAlias

from lazyprompt import ChatPrompter, OnlineChatModule, TrainableModule

if TYPE_CHECKING:
    from lazyprompt import Chat, Reply
    from support.model_server.server import ModelServer

Module: TypeAlias = OnlineChatModule | TrainableModule
KINDS = ("online", "local")
WAYS = ("call", "stream", "acall", "astream")
# The caller's words and no others.
BARE = ChatPrompter(system="")

TOOL_TEMPLATE = (
    "{% if tools %}<|im_start|>system\n{% for t in tools %}{{ t.function.name }}{% endfor %}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>\n"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}'
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def weather(city: str) -> str:
    """Tell the weather.

    Args:
        city: Where.
    """
    return city


def module_of(kind: str, server: ModelServer, **more: Any) -> Module:
    """A module of a kind."""
    given: dict[str, Any] = {"retries": 0, **more}
    if kind == "online":
        made = OnlineChatModule("openai", model="m", base_url=server.url("openai"), api_key="k", **given)
        return made.prompt(BARE)
    return local_of(server, **{"markers": "chatml", **given})


def local_of(server: ModelServer, **given: Any) -> TrainableModule:
    """A local module before the server."""
    return TrainableModule("m", url=server.url("completions"), **given).prompt(BARE)


def sent_text(server: ModelServer, at: int = -1) -> str:
    """What the server was sent, as text that holds all messages."""
    body = server.seen[at].body
    return str(body["prompt"]) if "prompt" in body else json.dumps(body["messages"], ensure_ascii=False)


def words(chat: Chat) -> list[tuple[str, str]]:
    """Who said what."""
    return [(message.role, message.text) for message in chat.history]


def spoken(chat: Chat, way: str, said: object = "hi") -> Reply:
    """What a model answers, asked in one of the ways."""
    if way == "call":
        return chat(said)
    if way == "stream":
        stream = chat.stream(said)
        assert "".join(stream) == stream.reply
        return stream.reply

    async def asked() -> Reply:
        try:
            if way == "acall":
                return await chat.acall(said)
            stream = chat.astream(said)
            assert "".join([piece async for piece in stream]) == stream.reply
            return stream.reply
        finally:
            await close_connections(chat)

    return asyncio.run(asked())


async def close_connections(chat: Chat) -> None:
    """Close the connections of the running event loop."""
    module = chat.module
    if isinstance(module, Module):
        await module.aclose()
