"""The formats and rules of Ollama's chat and generate APIs, in which images are separate from the content.

Source: the API reference (``docs/api.md`` in the Ollama repository) and the types in the official client.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lazyprompt._base.client_objects import items_of
from lazyprompt.errors import FormatError
from lazyprompt.formatters._answers import from_ollama, from_ollama_generate
from lazyprompt.formatters.chat_form import ChatForm, bare_media, call_shape, chat_shape
from lazyprompt.formatters.profile import HistoryLayout, Media, Profile
from lazyprompt.formatters.shape import BlockView, Check, MessageView, Path, Spec, check_of, list_of, text, text_of_json
from lazyprompt.messages.msg import Block, ImageBlock, ToolResultBlock, ToolUseBlock, text_of
from lazyprompt.messages.native import Native

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.messages.turns import WrittenTurn


def _images(blocks: Sequence[Block]) -> list[Json]:
    """Return each image's base64 data or URL; AgentScope's documented examples contain URLs."""
    return [bare_media(block.source) for block in blocks if isinstance(block, ImageBlock)]


@dataclass(frozen=True, slots=True)
class OllamaForm(ChatForm):
    """Ollama's chat format, in which content is text, images are a separate list, and tool arguments are objects."""

    def fill(self, message: JsonObject, blocks: tuple[Block, ...]) -> None:
        """Add a turn's blocks to its message."""
        ChatForm.fill(self, message, tuple(block for block in blocks if not isinstance(block, ImageBlock)))
        if images := _images(blocks):
            message["images"] = images

    def call(self, block: ToolUseBlock) -> JsonObject:
        """Write a tool call with its arguments as an object."""
        return {"id": block.id, "function": {"name": block.name, "arguments": block.own_arguments()}}

    def result(self, block: ToolResultBlock) -> JsonObject:
        """Write a tool result as a message."""
        return {"role": "tool", "content": block.text, "tool_name": block.name, "tool_call_id": block.id}

    def shape(self, profile: Profile) -> Check:
        """Return a check for messages with text content and images."""
        images: dict[str, Spec] = {"images?": list_of("text" if profile.media["image"].url else "base64", 1)}
        return chat_shape(text, text, list_of(call_shape("object"), 1), profile, images, names_calls=False)

    def extra_blocks(self, message: Mapping[str, Any]) -> list[BlockView]:
        """Return a ``BlockView`` of each image in a message."""
        return [("image", ("images", at), "data:", None) for at in range(len(items_of(message.get("images"))))]

    parse = staticmethod(from_ollama)


class GenerateForm:
    """Ollama's generate format, which has a single text as ``prompt``, and optional ``system`` text and ``images``."""

    messages_key = "prompt"

    def write(self, turns: Sequence[WrittenTurn], profile: Profile, model: str | None) -> dict[str, Any]:
        """Write the single user turn as the prompt, and the system text before it as ``system``."""
        payload: dict[str, Any] = {}
        for role, _, content, _ in turns:
            if isinstance(content, Native):
                continue  # unreachable, because Ollama has no native format
            payload["system" if role == "system" else "prompt"] = text_of(content) or "(image)"
            if images := _images(() if isinstance(content, str) else content):
                payload["images"] = images
        return payload

    def tools(self, tools: list[JsonObject]) -> list[JsonObject]:
        """Reject all tools."""
        raise FormatError(f"ollama-generate does not support tools, but {len(tools)} were passed; use 'ollama'")

    def shape(self, profile: Profile) -> Check:
        """Return a check for a payload's prompt, system text and images; other keys are not checked."""
        return check_of({"prompt": "text", "system?": "text", "images?": list_of("base64", 1), "...": "any"})

    def declared(self, payload: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
        """Return an empty iterator, because the API doesn't support tools."""
        return iter(())

    def views(self, payload: Mapping[str, Any]) -> Iterator[MessageView]:
        """Yield a ``MessageView`` of the system text and of the prompt; the prompt counts as a user message."""
        if "system" in payload:
            yield ("system",), "system", [("text", (), text_of_json(payload["system"]), None)], None
        if "prompt" in payload:
            yield ("prompt",), "user", [("text", (), text_of_json(payload["prompt"]), None)], None

    parse = staticmethod(from_ollama_generate)


_IMAGE = Media(("image/*",), url=False)
# Ollama's SDK accepts only base64 data, but some of AgentScope's documented examples pass image URLs.
_ADDRESSES = {"media": {"image": Media(("image/*",), url=True, system=True)}}

OLLAMA = Profile(
    name="ollama",
    form=OllamaForm(no_text="", named_results=True, thinking="thinking"),
    source="https://github.com/ollama/ollama/blob/main/docs/api.md",
    media={"image": _IMAGE},
    url_media=frozenset({"image"}),
    tokenizes=True,
    thinking="text",
    ids=re.compile(r"[^\x00-\x1f\x7f]{1,64}"),
    prefill="",
    strict_tools=False,
    layouts={
        "conversation": HistoryLayout("host", changes=_ADDRESSES),
        "dialogue": HistoryLayout("host", "\n\n", changes=_ADDRESSES),
    },
)
OLLAMA_GENERATE = Profile(
    name="ollama-generate",
    form=GenerateForm(),
    source="https://github.com/ollama/ollama/blob/main/docs/api.md#generate-a-completion",
    media={"image": _IMAGE},
    url_media=frozenset({"image"}),
    tokenizes=True,
    calls_tools=False,
    turns=False,
    system="apart",
    needs_user=True,
    empty_text=False,
    layouts={"conversation": HistoryLayout("joined", "\n\n"), "dialogue": HistoryLayout("joined", "\n\n")},
)
