"""AgentScope 1: formatters of messages, and several agents' messages merged into one user turn."""

# ruff: noqa: ANN401 - the peer is not installed where this is checked, so nothing of it has a type

from __future__ import annotations

import asyncio
import copy
import json
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from driving import Case, Entry, Message, drive
from shapes import ORDERS
from work import SYSTEM, TOOLS, TURNS

if TYPE_CHECKING:
    from collections.abc import Callable

formatters: Any = import_module("agentscope.formatter")
Msg: Any = import_module("agentscope.message").Msg
LOOP = asyncio.new_event_loop()


def chat() -> Callable[[], object]:
    """Prepare twenty turns as its messages."""
    texts = [("system", f"{SYSTEM}\nBe brief.\n\n")]
    texts += [each for one, other in TURNS for each in (("user", one), ("assistant", other))]
    given = [Msg(role, text, role) for role, text in (*texts, ("user", "And now?"))]
    formatter = formatters.OpenAIChatFormatter()
    return lambda: {"messages": LOOP.run_until_complete(formatter.format(given)), "tools": copy.deepcopy(TOOLS)}


def payload(name: str) -> Callable[[], object]:
    """Prepare a provider's messages; its model class adds tools and moves the system text."""
    given, formatter = [as_msg(message) for message in ORDERS], getattr(formatters, name)()
    return lambda: LOOP.run_until_complete(formatter.format(given))


def as_msg(message: dict[str, Any]) -> Any:
    """Return an OpenAI message as its own."""
    role = message["role"]
    if role == "tool":
        block = {"type": "tool_result", "id": message["tool_call_id"], "name": "tool", "output": message["content"]}
        return Msg("system", [block], "system")
    blocks = [
        {
            "type": "tool_use",
            "id": call["id"],
            "name": call["function"]["name"],
            "input": json.loads(call["function"]["arguments"]),
        }
        for call in message.get("tool_calls", ())
    ]
    return Msg(role, blocks or message["content"], role)


def single(case: Case) -> list[Message]:
    """Put the values into a talk, as messages."""
    return made(formatters.OpenAIChatFormatter(), talk(texts(case)))


def merged(case: Case) -> list[Message]:
    """Put the values into a talk that becomes one user turn."""
    return made(formatters.OpenAIMultiAgentFormatter(), talk(texts(case)))


def texts(case: Case) -> Any:
    """Return the values; two of them are two blocks."""
    return case.text if len(case.values) == 1 else [{"type": "text", "text": value} for value in case.values]


def talk(content: Any) -> list[Any]:
    """Return a talk of several agents with a message in it."""
    return [
        Msg("system", "Be kind.", "system"),
        Msg("Ada", content, "user"),
        Msg("Bob", "Fine.", "assistant"),
        Msg("Ada", "Go on.", "user"),
    ]


def made(formatter: Any, messages: list[Any]) -> list[Message]:
    """Format messages."""
    return [as_message(each) for each in LOOP.run_until_complete(formatter.format(messages))]


def as_message(each: Any) -> Message:
    """Return role, text and the number of other blocks."""
    content: Any = each["content"] or ()
    blocks: list[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else content
    found = [block["text"] for block in blocks if block["type"] == "text"]
    return str(each["role"]), "\n".join(found), len(blocks) - len(found) + len(each.get("tool_calls") or ())


if __name__ == "__main__":
    drive(
        "agentscope",
        {
            "dict": chat,
            "anthropic": partial(payload, "AnthropicChatFormatter"),
            "gemini": partial(payload, "GeminiChatFormatter"),
        },
        [
            Entry("OpenAIMultiAgentFormatter, what is said", "history", merged, slots=False),
            Entry("OpenAIChatFormatter, what is said", "", single, slots=False),
        ],
    )
