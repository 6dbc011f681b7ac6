"""The format and rules of Mistral's chat API, in which reasoning is message content and URLs are plain strings.

Source: the page "Chat completion" in the API reference and the types in the official client. The formats of
reasoning, images, audio clips and documents come from Mistral's guides on these subjects. The rules for turn order and
call ids come from mistral-common.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lazyprompt.formatters.chat_form import PART_SHAPES, ChatForm, bare_media, call_shape, chat_shape, json_text
from lazyprompt.formatters.profile import IMAGES, PDF, Media, Profile
from lazyprompt.formatters.shape import BlockView, Check, Path, Spec, list_of, parts_of, text_of_json, text_or
from lazyprompt.messages.msg import AudioBlock, Block, FileBlock, ThinkingBlock, ToolUseBlock
from lazyprompt.messages.openai_form import address_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lazyprompt._base.json import JsonObject


@dataclass(frozen=True, slots=True)
class MistralForm(ChatForm):
    """Mistral's format, in which message content is a string or a list of text, reasoning and media chunks."""

    def fill(self, message: JsonObject, blocks: tuple[Block, ...]) -> None:
        """Add a turn's blocks to its message."""
        content = tuple(block for block in blocks if not isinstance(block, ToolUseBlock))
        message["content"] = self.content(content)
        if calls := [self.call(block) for block in blocks if isinstance(block, ToolUseBlock)]:
            message["tool_calls"] = list(calls)

    def part(self, block: Block) -> JsonObject:
        """Write a block as a content chunk."""
        match block:
            case ThinkingBlock(thinking, signature):
                chunk: JsonObject = {"type": "thinking", "thinking": [{"type": "text", "text": thinking}]}
                return chunk | {"signature": signature} if signature else chunk
            case AudioBlock(source):
                return {"type": "input_audio", "input_audio": bare_media(source)}
            case FileBlock(source, filename=filename):
                document: JsonObject = {"type": "document_url", "document_url": address_of(source)}
                return document | {"document_name": filename} if filename else document
            case _:
                return ChatForm.part(self, block)

    def tools(self, tools: list[JsonObject]) -> list[JsonObject]:
        """Add an empty ``parameters`` schema to each tool that has none, because Mistral requires this key."""
        for tool in tools:
            function = tool.get("function")
            if isinstance(function, dict) and not function.get("parameters"):
                function["parameters"] = {"type": "object", "properties": {}}
        return tools

    def shape(self, profile: Profile) -> Check:
        """Return a check for messages whose content is text or a list of chunks."""
        plain, answers = parts_of({"text": PART_SHAPES["text"]}, 0), parts_of(_ANSWERED, 0)
        return chat_shape(parts_of(_SAID), plain, list_of(call_shape(json_text)), profile, answers=answers)

    def block_view(self, part: Mapping[str, Any], path: Path) -> BlockView:
        """Return a ``BlockView`` of a content chunk."""
        kind = part.get("type")
        if kind == "thinking":
            return "thinking", path, "", None
        if kind in ("reference", "file"):
            return "other", path, "", None
        if kind == "input_audio":
            audio = text_of_json(part.get("input_audio"))
            return "audio", path, audio if "://" in audio else "data:", None
        if kind == "document_url":
            return "file", path, text_of_json(part.get("document_url")), None
        if kind == "image_url" and isinstance(part.get("image_url"), str):
            return "image", path, part["image_url"], None
        return ChatForm.block_view(self, part, path)


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
    # Mistral rejects system turns after other turns, and user turns directly after tool results.
    system="first",
    answers_results=True,
    user_last=True,
    needs_user=True,
    prefill="prefix",
    empty_text=False,
    ids=re.compile(r"[a-zA-Z0-9]{9}"),
    id_length=9,
)
