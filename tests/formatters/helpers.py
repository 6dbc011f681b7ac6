"""What the tests of formatters share: short ways to make calls and results, and payloads that were judged."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lazyprompt import (
    AudioBlock,
    Base64Source,
    ChatFormatter,
    FileBlock,
    ImageBlock,
    Msg,
    MultiAgentFormatter,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    URLSource,
    VideoBlock,
)
from lazyprompt.formatters.providers import PROVIDERS
from support.conversations import JPEG, MP4, PDF, PNG, WAV
from support.providers.judges import in_order
from support.providers.types import strictly

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lazyprompt import Payload
    from lazyprompt.messages.msg import Block

KINDS = (ChatFormatter, MultiAgentFormatter)
CALLING = tuple(name for name in PROVIDERS if name != "ollama-generate")
SEES = tuple(name for name in CALLING if name != "deepseek")
MARKS = {"image": PNG, "audio": WAV, "video": MP4, "file": PDF}
_MEDIA: dict[str, tuple[type[ImageBlock | AudioBlock | VideoBlock | FileBlock], str]] = {
    "image": (ImageBlock, "image/png"),
    "audio": (AudioBlock, "audio/wav"),
    "video": (VideoBlock, "video/mp4"),
    "file": (FileBlock, "application/pdf"),
}
# A medium of each kind, by its address and as data.
MEDIA: dict[str, dict[str, Block]] = {
    kind: {
        "url": block(URLSource(f"https://example.com/a.{media_type[-3:]}")),
        "data": block(Base64Source(media_type, MARKS[kind])),
    }
    for kind, (block, media_type) in _MEDIA.items()
}
IMAGE = ImageBlock(Base64Source("image/png", PNG))
PHOTO = ImageBlock(Base64Source("image/jpeg", JPEG))
HI = Msg("Ann", "hi", "user")
BYE = Msg("Ann", "bye", "user")


def formatters_of(providers: Sequence[str]) -> pytest.MarkDecorator:
    """Run a test with each kind of formatter for each of the providers."""
    pairs = [pytest.param(kind, name, id=f"{name}-{kind.__name__}") for kind in KINDS for name in providers]
    return pytest.mark.parametrize(("kind", "provider"), pairs)


class Characters:
    """A counter of signs, pictures and all, that remembers how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def count(self, messages: Sequence[Mapping[str, Any]], tools: object = None) -> int:
        self.asked += 1
        return len(json.dumps([messages, tools], ensure_ascii=False))


def call(call_id: str, name: str = "f", **arguments: str) -> ToolUseBlock:
    return ToolUseBlock(call_id, name, dict(arguments))


def result(call_id: str, *output: Block | str, name: str = "f") -> ToolResultBlock:
    return ToolResultBlock(call_id, name, tuple(TextBlock(one) if isinstance(one, str) else one for one in output))


def calling(*blocks: Block) -> Msg:
    """A message of the assistant."""
    return Msg("Bot", blocks, "assistant")


def answering(*blocks: Block) -> Msg:
    """A message of a tool."""
    return Msg("tool", blocks, "tool")


def accepted(formatter: ChatFormatter, payload: Payload) -> Payload:
    """The payload, as accepted by our own validator and by the tests' judges."""
    formatter.validate(payload)
    strictly(formatter.provider, payload)
    in_order(formatter.provider, payload)
    return payload


def judged(formatter: ChatFormatter, *messages: Any, tools: Any = None) -> Payload:
    """The payload of messages, accepted by all."""
    return accepted(formatter, formatter.format(*messages, tools=tools))


def dump(payload: Payload) -> str:
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
