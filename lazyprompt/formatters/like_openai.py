"""Providers whose forms are variants of OpenAI's: DashScope's own API (Qwen), Mistral, Ollama.

Sources: for DashScope, the API references of Generation and MultiModalConversation, and the documented form of a
message that only calls tools (its text is null); for Mistral, the API reference "Chat completion", the guides on
reasoning, vision, audio and document understanding, the types of the official client, and for the order of turns and
the ids of calls the rules of mistral-common; for Ollama, the API reference (docs/api.md of its repository) and the
types of the official client.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from lazyprompt.errors import FormatError
from lazyprompt.formatters._answers import from_dashscope, from_ollama, from_ollama_generate
from lazyprompt.formatters.chat_form import PART_SHAPES, ChatForm, call_shape, chat_shape, json_text
from lazyprompt.formatters.profile import IMAGES, PDF, Layout, Media, MediaKind, Profile, Turn
from lazyprompt.formatters.shape import check_of, listed, parts_of, text, text_of_json, text_or
from lazyprompt.messages.msg import (
    AudioBlock,
    Base64Source,
    FileBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    text_of,
)
from lazyprompt.messages.openai_form import address_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.formatters.shape import Check, Fault, Path, Seen, Spec, View
    from lazyprompt.messages.msg import Block, Source


@dataclass(frozen=True, slots=True)
class DashScopeForm(ChatForm):
    """Messages with content of parts ``{"text": ...}``, ``{"image": ...}``, ``{"audio": ...}``, ``{"video": ...}``."""

    def part(self, block: Block) -> JsonObject:
        """Write a block as a part of one key."""
        if isinstance(block, TextBlock):
            return {"text": block.text}
        return {block.kind: address_of(cast("ImageBlock", block).source)}

    def shape(self, profile: Profile) -> Check:
        """Return the check of messages by role, content of text or of parts of one key."""
        parts = listed(_one_key("text", *profile.media), 1)
        content = parts if self.lists else text_or(parts)
        return chat_shape(content, content, call_shape(json_text), profile)

    def seen(self, part: Mapping[str, Any], path: Path) -> Seen:
        """Return a part of a content as the rules look at it."""
        for kind in _KINDS:
            if kind in part:
                return kind, path, text_of_json(part[kind]), None
        return "text", path, text_of_json(part.get("text")), None

    parse = staticmethod(from_dashscope)


_KINDS: tuple[MediaKind, ...] = ("image", "audio", "video")


# What may stand beside a medium: how closely it is looked at, and a mark for the cache.
_BESIDE: dict[str, Spec] = dict.fromkeys(
    ("fps?", "max_frames?", "min_pixels?", "max_pixels?", "total_pixels?", "cache_control?"), "any"
)


def _one_key(*kinds: str) -> Check:
    """Return the check of an object of one key of these, and its settings; a text may be null, as documented."""
    known = check_of({f"{kind}?": "text|null" if kind == "text" else "any" for kind in kinds} | _BESIDE)

    def check(value: object) -> Sequence[Fault]:
        faults = known(value)
        if not faults and len(set(kinds).intersection(cast("Mapping[str, object]", value))) != 1:
            return [((), "has not one key", f"give one of {', '.join(kinds)}")]
        return faults

    return check


DASHSCOPE = Profile(
    name="dashscope",
    form=DashScopeForm(no_text=[{"text": None}], named_results=True),
    source="https://help.aliyun.com/zh/model-studio/qwen-api-reference/",
    media={kind: Media((f"{kind}/*",), schemes=("oss",), opaque=True, system=True) for kind in _KINDS},
    system="first",
    alternate=True,
    user_first=True,
    user_last=True,
    prefill="partial",
    needs_user=True,
    strict_tools=False,
    layouts={"conversation": Layout("joined"), "dialogue": Layout()},
)
DASHSCOPE_MULTIMODAL = DASHSCOPE.but(
    name="dashscope-multimodal",
    form=DashScopeForm(no_text=[{"text": None}], named_results=True, lists=True),
    source="https://help.aliyun.com/zh/model-studio/qwen-vl-api-via-dashscope",
    layouts={"conversation": Layout(), "dialogue": Layout()},
)


@dataclass(frozen=True, slots=True)
class MistralForm(ChatForm):
    """Messages whose content is a text, or chunks of text, thought and media, with addresses as bare texts."""

    def fill(self, message: JsonObject, blocks: tuple[Block, ...]) -> None:
        """Put the blocks of a turn into its message."""
        content = tuple(block for block in blocks if not isinstance(block, ToolUseBlock))
        message["content"] = self.content(content)
        if calls := [self.call(block) for block in blocks if isinstance(block, ToolUseBlock)]:
            message["tool_calls"] = list(calls)

    def part(self, block: Block) -> JsonObject:
        """Return a block as a chunk of a content."""
        match block:
            case ThinkingBlock(thinking, signature):
                chunk: JsonObject = {"type": "thinking", "thinking": [{"type": "text", "text": thinking}]}
                return chunk | {"signature": signature} if signature else chunk
            case AudioBlock(source):
                return {"type": "input_audio", "input_audio": _bare(source)}
            case FileBlock(source, filename=filename):
                document: JsonObject = {"type": "document_url", "document_url": address_of(source)}
                return document | {"document_name": filename} if filename else document
            case _:
                return ChatForm.part(self, block)

    def tools(self, tools: list[JsonObject]) -> list[JsonObject]:
        """Return the tools, each function with parameters: they must be there."""
        for tool in tools:
            function = tool.get("function")
            if isinstance(function, dict) and not function.get("parameters"):
                function["parameters"] = {"type": "object", "properties": {}}
        return tools

    def shape(self, profile: Profile) -> Check:
        """Return the check of messages by role, content of text or of chunks."""
        plain = parts_of({"text": PART_SHAPES["text"]})
        return chat_shape(parts_of(_SAID), plain, call_shape(json_text), profile, answers=parts_of(_ANSWERED))

    def seen(self, part: Mapping[str, Any], path: Path) -> Seen:
        """Return a chunk of a content as the rules look at it."""
        kind = part.get("type")
        if kind == "thinking":
            return "thinking", path, "", None
        if kind == "input_audio":
            sound = text_of_json(part.get("input_audio"))
            return "audio", path, sound if "://" in sound else "data:", None
        if kind == "document_url":
            return "file", path, text_of_json(part.get("document_url")), None
        if kind == "image_url" and isinstance(part.get("image_url"), str):
            return "image", path, part["image_url"], None
        return ChatForm.seen(self, part, path)


def _bare(source: Source) -> str:
    """Return the base64 of a medium, or its address."""
    return source.data if isinstance(source, Base64Source) else source.url


_SAID: dict[str, Spec] = {
    "text": PART_SHAPES["text"],
    "image_url": {"image_url": text_or({"url": "text", "detail?": "text|null"})},
    "input_audio": {"input_audio": "text"},
    "document_url": {"document_url": "text", "document_name?": "text|null"},
    "file": {"file_id": "text"},
}
_ANSWERED: dict[str, Spec] = {
    "text": PART_SHAPES["text"],
    "thinking": {"thinking": [{"type": "any", "...": "any"}], "signature?": "text|null", "closed?": "any"},
    "reference": "object",
}

MISTRAL = Profile(
    name="mistral",
    form=MistralForm(no_text="", text_lists=True, named_results=True),
    source="https://docs.mistral.ai/api/#tag/chat",
    media={"image": Media(IMAGES), "audio": Media(("audio/*",)), "file": Media(PDF)},
    thinking="own",
    # A system turn behind another role is refused, and the user's behind a result.
    system="first",
    answers_results=True,
    user_last=True,
    needs_user=True,
    prefill="prefix",
    empty_text=False,
    ids=re.compile(r"[a-zA-Z0-9]{9}"),
    id_length=9,
)


def _images(blocks: Sequence[Block]) -> list[Json]:
    """Return the pictures as Ollama takes them: bare base64, or an address as the documents print it."""
    return [_bare(block.source) for block in blocks if isinstance(block, ImageBlock)]


@dataclass(frozen=True, slots=True)
class OllamaForm(ChatForm):
    """Messages whose content is text, with ``images`` beside it; arguments are objects."""

    def fill(self, message: JsonObject, blocks: tuple[Block, ...]) -> None:
        """Put the blocks of a turn into its message."""
        ChatForm.fill(self, message, tuple(block for block in blocks if not isinstance(block, ImageBlock)))
        if images := _images(blocks):
            message["images"] = images

    def call(self, block: ToolUseBlock) -> JsonObject:
        """Write a call of a tool."""
        return {"id": block.id, "function": {"name": block.name, "arguments": block.own_arguments()}}

    def result(self, block: ToolResultBlock, tool: str) -> JsonObject:
        """Write the result of a call of a tool as a message."""
        return {"role": "tool", "content": block.text, "tool_name": tool, "tool_call_id": block.id}

    def shape(self, profile: Profile) -> Check:
        """Return the check of messages by role, content of text with pictures beside it."""
        images: dict[str, Spec] = {"images?": listed("text" if profile.media["image"].url else "base64", 1)}
        return chat_shape(text, text, call_shape("object"), profile, images, names_calls=False)

    def beside(self, message: Mapping[str, Any]) -> list[Seen]:
        """Return the pictures as the rules look at them."""
        images = message.get("images")
        given = cast("list[object]", images) if isinstance(images, list) else []
        return [("image", ("images", at), "data:", None) for at in range(len(given))]

    parse = staticmethod(from_ollama)


class GenerateForm:
    """One text, with ``system`` and ``images`` beside it."""

    messages_key = "prompt"

    def write(self, turns: Sequence[Turn], profile: Profile, model: str | None) -> dict[str, Any]:
        """Write the prompt of one user's turn, and the system text before it."""
        payload: dict[str, Any] = {}
        for role, _, content, _ in turns:
            payload["system" if role == "system" else "prompt"] = text_of(content) or "(image)"
            if images := _images(content if isinstance(content, tuple) else ()):
                payload["images"] = images
        return payload

    def tools(self, tools: list[JsonObject]) -> list[JsonObject]:
        """Refuse all tools."""
        raise FormatError(f"ollama-generate knows no tools, and {len(tools)} were given; use the provider 'ollama'")

    def shape(self, profile: Profile) -> Check:
        """Return the check of a prompt and its further keys."""
        return check_of({"prompt": "text", "system?": "text", "images?": listed("base64", 1), "...": "any"})

    def declared(self, payload: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
        """Yield nothing: there are no tools."""
        return iter(())

    def views(self, payload: Mapping[str, Any]) -> Iterator[View]:
        """Yield the prompt as the user's turn."""
        if "system" in payload:
            yield ("system",), "system", [("text", (), text_of_json(payload["system"]), None)], None
        if "prompt" in payload:
            yield ("prompt",), "user", [("text", (), text_of_json(payload["prompt"]), None)], None

    parse = staticmethod(from_ollama_generate)


_IMAGE = Media(("image/*",), url=False)
# The documents print addresses among the pictures; today's client takes base64 only.
_ADDRESSES = {"media": {"image": Media(("image/*",), url=True, system=True)}}

OLLAMA = Profile(
    name="ollama",
    form=OllamaForm(no_text="", named_results=True, thinking="thinking"),
    source="https://github.com/ollama/ollama/blob/main/docs/api.md",
    media={"image": _IMAGE},
    url_media=frozenset({"image"}),
    thinking="text",
    ids=re.compile(r"[^\x00-\x1f\x7f]{1,64}"),
    prefill="",
    strict_tools=False,
    layouts={
        "conversation": Layout("host", changes=_ADDRESSES),
        "dialogue": Layout("host", "\n\n", changes=_ADDRESSES),
    },
)
OLLAMA_GENERATE = Profile(
    name="ollama-generate",
    form=GenerateForm(),
    source="https://github.com/ollama/ollama/blob/main/docs/api.md#generate-a-completion",
    media={"image": _IMAGE},
    url_media=frozenset({"image"}),
    calls_tools=False,
    turns=False,
    system="apart",
    needs_user=True,
    empty_text=False,
    layouts={"conversation": Layout("joined", "\n\n"), "dialogue": Layout("joined", "\n\n")},
)
