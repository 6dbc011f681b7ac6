"""Helpers of the formatter tests: validate, search and read payloads."""

import json
from typing import Any

from lazyprompt import ChatFormatter, Payload
from support.providers.judges import in_order
from support.providers.types import strictly


def accepted(formatter: ChatFormatter, payload: Payload) -> Payload:
    """The payload, after our own validator and the tests' judges have accepted it."""
    formatter.validate(payload)
    strictly(formatter.provider, payload)
    in_order(formatter.provider, payload)
    return payload


def judged(formatter: ChatFormatter, *messages: Any, tools: Any = None) -> Payload:
    """The payload of messages, accepted by the validator and all judges."""
    return accepted(formatter, formatter.format(*messages, tools=tools))


def dump(payload: object) -> str:
    return json.dumps(payload, ensure_ascii=False)


def reported(payload: Payload, kind: str, action: str = "left out") -> list[str]:
    """The places of the report entries of a kind and an action."""
    return [entry.where for entry in payload.report if (entry.kind, entry.action) == (kind, action)]


def places(text: str, *marks: str) -> list[int]:
    """The positions of the marks, each of which must occur once."""
    found = [mark for mark in marks if text.count(mark) != 1]
    if found:
        raise AssertionError(f"{found} not once in {text}")
    return [text.index(mark) for mark in marks]


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of a JSON value and of all values in it."""
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, item in items for found in paths(item, (*path, key)))]


def roles(payload: Payload) -> list[str]:
    """The role of each turn; items of the Responses API without a role have their type."""
    system = ["system"] if {"system", "instructions", "system_instruction"} & payload.keys() else []
    turns = next((payload[key] for key in ("messages", "contents", "input") if key in payload), [{"role": "user"}])
    spoken = (turn.get("role") or turn["type"] for turn in turns)
    return [*system, *("system" if role == "developer" else role for role in spoken)]


def called(value: object) -> list[tuple[str, str]]:
    """The ids and names of all calls in a payload, in any provider's form."""
    if isinstance(value, list):
        return [each for item in value for each in called(item)]
    if not isinstance(value, dict):
        return []
    if value.get("type") in ("tool_use", "function_call"):
        return [(str(value.get("call_id", value.get("id"))), value["name"])]
    if {"id", "function"} <= value.keys():
        return [(value["id"], value["function"]["name"])]
    if "function_call" in value:
        # Gemini matches calls without ids by their order.
        call = value["function_call"]
        return [(call.get("id", f"the call {id(value)}"), call["name"])]
    return [each for item in value.values() for each in called(item)]


def texts(value: object, key: str = "") -> list[str]:
    """All texts of messages in any provider's form, without reasoning and arguments."""
    if isinstance(value, str):
        return [value] if key in _SAID else []
    items = (
        value.items() if isinstance(value, dict) else ((key, item) for item in value) if isinstance(value, list) else ()
    )
    return [text for name, item in items for text in texts(item, name)]


_SAID = ("text", "content", "prompt", "system", "instructions", "system_instruction", "output")
