"""Helpers for tests of chats: online and local modules that call one server."""

import json
from typing import Any, TypeAlias

from lazyprompt import Chat, ChatPrompter, OnlineChatModule, Reply, TrainableModule
from modules.online_scenes import ask_by
from support.model_server.server import ModelServer

Module: TypeAlias = OnlineChatModule | TrainableModule
KINDS = ("online", "local")
# The caller's turns and no others.
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
    return make_local(server, **{"markers": "chatml", **given})


def make_local(server: ModelServer, **given: Any) -> TrainableModule:
    """A local module that calls the server."""
    return TrainableModule("m", url=server.url("completions"), **given).prompt(BARE)


def sent_text(server: ModelServer, at: int = -1) -> str:
    """The messages or the prompt of a request, as text."""
    body = server.seen[at].body
    return str(body["prompt"]) if "prompt" in body else json.dumps(body["messages"], ensure_ascii=False)


def turns(chat: Chat) -> list[tuple[str, str]]:
    """The role and text of each message."""
    return [(message.role, message.text) for message in chat.history]


def ask_chat(chat: Chat, way: str, said: object = "hi") -> Reply:
    """The reply to one of the ways to call."""
    return ask_by(way, chat, said)
