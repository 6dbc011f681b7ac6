"""Payloads as the tests of formatters look at them: judged, searched and read."""

import json
from typing import Any

from lazyprompt import ChatFormatter, Payload
from support.providers.judges import in_order
from support.providers.types import strictly


def accepted(formatter: ChatFormatter, payload: Payload) -> Payload:
    """The payload, as accepted by our own validator and by the tests' judges."""
    formatter.validate(payload)
    strictly(formatter.provider, payload)
    in_order(formatter.provider, payload)
    return payload


def judged(formatter: ChatFormatter, *messages: Any, tools: Any = None) -> Payload:
    """The payload of messages, accepted by all."""
    return accepted(formatter, formatter.format(*messages, tools=tools))


def dump(payload: object) -> str:
    return json.dumps(payload, ensure_ascii=False)


def reported(payload: Payload, kind: str, action: str = "left out") -> list[str]:
    """The places of the entries of a kind."""
    return [entry.where for entry in payload.report if (entry.kind, entry.action) == (kind, action)]


def places(text: str, *marks: str) -> list[int]:
    """Where the marks are, each of which is there once."""
    found = [mark for mark in marks if text.count(mark) != 1]
    if found:
        raise AssertionError(f"{found} not once in {text}")
    return [text.index(mark) for mark in marks]


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The ways from a JSON value to it and to all that is in it."""
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, item in items for found in paths(item, (*path, key)))]


def roles(payload: Payload) -> list[str]:
    """Who speaks, turn by turn; an item of the Responses API that is no message by its type."""
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
        # Gemini matches a call without an id by its place.
        call = value["function_call"]
        return [(call.get("id", f"the call {id(value)}"), call["name"])]
    return [each for item in value.values() for each in called(item)]


def texts(value: object, key: str = "") -> list[str]:
    """All texts that a model reads as said, in any provider's form; thoughts and arguments apart."""
    if isinstance(value, str):
        return [value] if key in _SAID else []
    items = (
        value.items() if isinstance(value, dict) else ((key, item) for item in value) if isinstance(value, list) else ()
    )
    return [text for name, item in items for text in texts(item, name)]


_SAID = ("text", "content", "prompt", "system", "instructions", "system_instruction", "output")
