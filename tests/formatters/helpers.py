"""Helpers of the formatter tests: messages, calls and results."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from lazyprompt import Base64Source, ChatFormatter, Msg, MultiAgentFormatter, URLSource, VideoBlock
from lazyprompt.formatters.providers import PROVIDERS
from lazyprompt.messages.msg import AudioBlock, Block, FileBlock, ImageBlock, TextBlock, ToolResultBlock, ToolUseBlock
from support.conversations import JPEG, MP4, PDF, PNG, WAV

KINDS = (ChatFormatter, MultiAgentFormatter)
WITH_TOOLS = tuple(name for name in PROVIDERS if name != "ollama-generate")
WITH_IMAGES = tuple(name for name in WITH_TOOLS if name != "deepseek")
MARKS = {"image": PNG, "audio": WAV, "video": MP4, "file": PDF}
_MEDIA: dict[str, tuple[type[ImageBlock | AudioBlock | VideoBlock | FileBlock], str]] = {
    "image": (ImageBlock, "image/png"),
    "audio": (AudioBlock, "audio/wav"),
    "video": (VideoBlock, "video/mp4"),
    "file": (FileBlock, "application/pdf"),
}
# A medium of each kind, as a URL and as data.
MEDIA: dict[str, dict[str, Block]] = {
    kind: {
        "url": block(URLSource(f"https://example.com/a.{media_type[-3:]}")),
        "data": block(Base64Source(media_type, MARKS[kind])),
    }
    for kind, (block, media_type) in _MEDIA.items()
}
# Providers that fetch no URLs.
WITHOUT_URLS = ("ollama", "ollama-generate", "moonshot")
PORTRAIT = "https://example.com/a.png"
IMAGE = ImageBlock(Base64Source("image/png", PNG))
PHOTO = ImageBlock(Base64Source("image/jpeg", JPEG))
HI = Msg("Ann", "hi", "user")
BYE = Msg("Ann", "bye", "user")


def formatters_of(providers: Sequence[str]) -> pytest.MarkDecorator:
    """Run a test with each kind of formatter for each of the providers."""
    pairs = [pytest.param(kind, name, id=f"{name}-{kind.__name__}") for kind in KINDS for name in providers]
    return pytest.mark.parametrize(("kind", "provider"), pairs)


class Characters:
    """A counter of all characters, including image data, that records how often it was called."""

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
    """An assistant message."""
    return Msg("Bot", blocks, "assistant")


def answering(*blocks: Block) -> Msg:
    """A tool message."""
    return Msg("tool", blocks, "tool")


def turn(role: str, *content: Any, key: str = "content", **more: Any) -> dict[str, Any]:
    """A message dict whose content is a list of parts."""
    return {"role": role, key: list(content), **more}


def openai_call(call_id: str, name: str = "f", arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def openai_calling(*calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A message dict of the assistant with calls in OpenAI's form."""
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **more}
