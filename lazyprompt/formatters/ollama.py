"""Ollama's chat and generate APIs: pictures beside the text, arguments as objects.

Source: the API reference (docs/api.md of the Ollama repository) and the types of the official client.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from lazyprompt.errors import FormatError
from lazyprompt.formatters._answers import from_ollama, from_ollama_generate
from lazyprompt.formatters.chat_form import ChatForm, bare_media, call_shape, chat_shape
from lazyprompt.formatters.profile import Layout, Media, Profile
from lazyprompt.formatters.shape import Check, Path, Seen, Spec, View, check_of, listed, text, text_of_json
from lazyprompt.messages.msg import Block, ImageBlock, ToolResultBlock, ToolUseBlock, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.messages.turns import Turn, WrittenTurn


def _images(blocks: Sequence[Block]) -> list[Json]:
    """Return the pictures as Ollama takes them: bare base64, or an address as the documents print it."""
    return [bare_media(block.source) for block in blocks if isinstance(block, ImageBlock)]


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

    def result(self, block: ToolResultBlock) -> JsonObject:
        """Write the result of a call of a tool as a message."""
        return {"role": "tool", "content": block.text, "tool_name": block.name, "tool_call_id": block.id}

    def shape(self, profile: Profile) -> Check:
        """Return the check of messages by role, content of text with pictures beside it."""
        images: dict[str, Spec] = {"images?": listed("text" if profile.media["image"].url else "base64", 1)}
        return chat_shape(text, text, listed(call_shape("object"), 1), profile, images, names_calls=False)

    def beside(self, message: Mapping[str, Any]) -> list[Seen]:
        """Return the pictures as the rules look at them."""
        images = message.get("images")
        given = cast("list[object]", images) if isinstance(images, list) else []
        return [("image", ("images", at), "data:", None) for at in range(len(given))]

    parse = staticmethod(from_ollama)


class GenerateForm:
    """One text, with ``system`` and ``images`` beside it."""

    messages_key = "prompt"

    def write(self, turns: Sequence[WrittenTurn], profile: Profile, model: str | None) -> dict[str, Any]:
        """Write the prompt of one user's turn, and the system text before it."""
        payload: dict[str, Any] = {}
        # It has no native form.
        for role, _, content, _ in cast("Sequence[Turn]", turns):
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
    tokenizes=True,
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
    tokenizes=True,
    calls_tools=False,
    turns=False,
    system="apart",
    needs_user=True,
    empty_text=False,
    layouts={"conversation": Layout("joined", "\n\n"), "dialogue": Layout("joined", "\n\n")},
)
