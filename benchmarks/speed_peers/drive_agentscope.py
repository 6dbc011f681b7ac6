"""AgentScope 1: formatters of messages, and the trimming of its truncating ones."""

# ruff: noqa: ANN401 - the peer is not installed where this is checked, so nothing of it has a type

from __future__ import annotations

import asyncio
import copy
import json
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import conversation_floors
from driven import Does, drive
from floors import FEW, half, size
from work import ORDERS, SYSTEM, TOOLS, TURNS, conversation

if TYPE_CHECKING:
    from collections.abc import Callable

formatters: Any = import_module("agentscope.formatter")
said: Any = import_module("agentscope.message")
LOOP = asyncio.new_event_loop()


def chat() -> Callable[[], object]:
    """Twenty turns, the messages made before."""
    texts = [("system", f"{SYSTEM}\nBe brief.\n\n")]
    texts += [each for one, other in TURNS for each in (("user", one), ("assistant", other))]
    given = [said.Msg(role, text, role) for role, text in (*texts, ("user", "And now?"))]
    formatter = formatters.OpenAIChatFormatter()
    return lambda: {"messages": LOOP.run_until_complete(formatter.format(given)), "tools": copy.deepcopy(TOOLS)}


def as_msg(message: dict[str, Any]) -> Any:
    """A message of the forty as its own."""
    role = message["role"]
    if role == "tool":
        call_id: str = message["tool_call_id"]
        block = {
            "type": "tool_result",
            "id": call_id,
            "name": f"tool_{call_id.rpartition('_')[2]}",
            "output": message["content"],
        }
        return said.Msg("system", [block], "system")
    blocks = [
        {
            "type": "tool_use",
            "id": call["id"],
            "name": call["function"]["name"],
            "input": json.loads(call["function"]["arguments"]),
        }
        for call in message.get("tool_calls", ())
    ]
    return said.Msg(role, blocks or message["content"], role)


def payload(name: str) -> Callable[[], object]:
    """The messages of a provider; tools and the place of the system text are its model class's business."""
    given, formatter = [as_msg(message) for message in ORDERS], getattr(formatters, name)()
    return lambda: LOOP.run_until_complete(formatter.format(given))


def anthropic_whole(made: list[dict[str, Any]]) -> object:
    """Its messages with the floor's system text and tools, results side by side, texts not in blocks."""
    wanted: Any = conversation_floors.anthropic(ORDERS)
    messages: list[dict[str, Any]] = []
    for each in made:
        if each["role"] == "system":
            continue
        blocks = [_plain_result(block) for block in each["content"]]
        alone = len(blocks) == 1 and blocks[0].keys() == {"type", "text"}
        if messages and blocks[0]["type"] == "tool_result" and isinstance(messages[-1]["content"], list):
            last = messages[-1]["content"]
            if last[0]["type"] == "tool_result":
                last += blocks
                continue
        messages.append({"role": each["role"], "content": blocks[0]["text"] if alone else blocks})
    return {"system": wanted["system"], "messages": messages, "tools": wanted["tools"]}


def _plain_result(block: dict[str, Any]) -> dict[str, Any]:
    content = block.get("content")
    if isinstance(content, list):
        return {**block, "content": content[0]["text"]}
    return block


def gemini_whole(made: list[dict[str, Any]]) -> object:
    """Its contents with the floor's system text and tools, results side by side."""
    wanted: Any = conversation_floors.gemini(ORDERS)
    contents: list[dict[str, Any]] = []
    ids = iter([call["id"] for message in ORDERS for call in message.get("tool_calls", ())])
    for each in made[1:]:
        parts = [
            {"function_call": {**part["function_call"], "id": next(ids)}} if "function_call" in part else part
            for part in each["parts"]
        ]
        if contents and "function_response" in parts[0] and "function_response" in contents[-1]["parts"][0]:
            contents[-1]["parts"] += parts
        else:
            contents.append({"role": each["role"], "parts": [*parts]})
    return {"system_instruction": wanted["system_instruction"], "contents": contents, "tools": wanted["tools"]}


def trim(count: int) -> Callable[[], object]:
    """Its truncation, which counts all messages anew for each one that goes; one counter for all contenders."""
    base: Any = import_module("agentscope.token").TokenCounterBase
    measured, most = size(), half(count)

    class Counter(base):  # type: ignore[misc]  # its class is not known here
        """Counts as OpenAI does."""

        async def count(self, messages: list[dict[str, Any]], **_: object) -> int:
            """The tokens of messages."""
            return 3 + sum(3 + measured(each["role"]) + measured(each["content"][0]["text"]) for each in messages)

    formatter = formatters.OpenAIChatFormatter(token_counter=Counter(), max_tokens=most)
    given = [said.Msg(each["role"], each["content"], each["role"]) for each in conversation(count)]
    return lambda: LOOP.run_until_complete(formatter.format(given))


def texts(made: list[dict[str, Any]]) -> object:
    """Messages without names, texts not in blocks."""
    return [
        {
            "role": each["role"],
            "content": each["content"] if isinstance(each["content"], str) else each["content"][0]["text"],
        }
        for each in made
    ]


def chat_texts(made: Any) -> object:
    """The same for a payload."""
    return {**made, "messages": texts(made["messages"])}


if __name__ == "__main__":
    blocks = "each text stands in a block, and messages have names"
    apart = "system text and tools are put in by its model class, results stand in turns of their own"
    drive(
        "agentscope",
        [
            Does("dict", chat, chat_texts, blocks),
            Does("anthropic", partial(payload, "AnthropicChatFormatter"), anthropic_whole, apart),
            Does(
                "gemini", partial(payload, "GeminiChatFormatter"), gemini_whole, "and its calls for Gemini have no ids"
            ),
            Does("trim few", partial(trim, FEW), texts),
        ],
        "it has no slots, no flat text, no files",
    )
