"""Writes messages in the format of OpenAI's Chat Completions API.

The format is documented in the Chat Completions API reference, "Create chat completion", and in the types of the
official client.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from hashlib import blake2s
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from lazyprompt._base.json import Json, JsonObject, checked_object, fresh, fresh_json, to_json
from lazyprompt.errors import FormatError
from lazyprompt.messages.msg import (
    AudioBlock,
    Base64Source,
    Block,
    FileBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    URLSource,
    plain_block,
)
from lazyprompt.messages.native import PART_FIELDS, Native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lazyprompt.messages.msg import MediaBlock, Msg, Source
    from lazyprompt.messages.turns import WrittenTurn

# The message keys that OpenAI's format defines. Parsing stores other non-empty keys in the message's metadata.
KNOWN_KEYS = frozenset(
    {"role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "thinking_blocks", "url"}
)
# Matches the speaker and tool names that OpenAI's API accepts.
NAMES = re.compile(r"[a-zA-Z0-9_-]{1,64}")
# Matches the tool call ids that OpenAI's API accepts.
IDS = re.compile(r"[^\x00-\x1f\x7f]{1,40}")
ID_LENGTH = 40
# The result to send for a tool call without a result.
NO_RESULT = "(no result)"
_MAPPED_LENGTH = 64
# The punctuation to keep when an invalid name or id is converted to a valid one. Other punctuation could form a control
# sequence.
_MAPPED_PUNCTUATION = " ._:-"
# Maps MIME subtypes to OpenAI's names for audio formats.
_AUDIO_FORMATS = {"mpeg": "mp3", "x-wav": "wav", "vnd.wave": "wav", "wave": "wav"}


class OpenAIPrompt(TypedDict):
    """A prompt in the OpenAI format, with ``messages`` and, if the prompt has tools, ``tools``.

    All values are JSON, but they are typed ``Any`` so that users can index them without a cast.
    """

    messages: list[dict[str, Any]]
    tools: NotRequired[list[dict[str, Any]]]


def source_of(url: str) -> Source:
    """Build the media source for a URL. A base64 ``data:`` URL becomes a :class:`Base64Source`."""
    head, comma, data = url.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        return Base64Source(head.removeprefix("data:").removesuffix(";base64"), data)
    return URLSource(url)


def fitted(text: str, pattern: re.Pattern[str], length: int = _MAPPED_LENGTH) -> str:
    """Convert a speaker name, tool name or tool call id to one that the provider accepts.

    A name or id that matches ``pattern`` is returned unchanged. Otherwise, invalid characters are replaced and a hash
    is appended, so that different names get different results. The hash is the same in every process.
    """
    if pattern.fullmatch(text):
        return text
    mark = blake2s(text.encode(), digest_size=4).hexdigest()
    kept = (each.isalnum() or each in _MAPPED_PUNCTUATION for each in text)
    mapped = (each if keep and pattern.fullmatch(f"a{each}") else "_" for each, keep in zip(text, kept, strict=True))
    left = "".join(mapped).strip("_")[: length - 9]
    # The last candidate is a hash of exactly `length` characters, because some providers require a fixed id length.
    candidates = (f"{left}_{mark}" if left else "", f"x_{mark}", blake2s(text.encode()).hexdigest()[:length])
    return next(filter(pattern.fullmatch, candidates))


@dataclass(frozen=True, slots=True)
class UrlPart:
    """A writer for media parts such as ``{"type": "video_url", "video_url": {"url": ...}}``.

    Base64 content is written as a ``data:`` URL.

    Args:
        kind: The value of ``type``, which is also the name of the part's other key.
    """

    kind: str

    def __call__(self, block: MediaBlock) -> JsonObject:
        """Write a media block as a content part."""
        return {"type": self.kind, self.kind: {"url": address_of(block.source)}}


@dataclass(frozen=True, slots=True)
class OpenAIWriter:
    """A writer that converts turns to the Chat Completions format or a similar format.

    Args:
        no_text: The content of a message that contains only tool calls.
        text_lists: True to write several texts as a list of parts; False to join them with newlines.
        named_results: True to include the tool's name in a tool result.
        thinking: The message key for reasoning; None omits the reasoning.
        parts: Custom part writers, by block kind, for parts that differ from OpenAI's.
        lists: True to always write content as a list of parts.
    """

    no_text: Json = None
    text_lists: bool = False
    named_results: bool = False
    thinking: str | None = None
    parts: Mapping[str, Callable[[Any], JsonObject]] = field(default_factory=dict[str, "Callable[[Any], JsonObject]"])
    lists: bool = False

    def messages(self, turns: Iterable[WrittenTurn], *, names: bool = True) -> list[JsonObject]:
        """Write the tool results of each turn as separate messages, and all other blocks as one message.

        Args:
            turns: The turns to write.
            names: True to write the speakers' names.

        Returns:
            New dicts that share no mutable data with the turns.

        Raises:
            FormatError: The format cannot express a block.
        """
        written: list[JsonObject] = []
        add, lists = written.append, self.lists
        for role, name, content, _ in turns:
            message: JsonObject = {"role": role, "name": name} if name and names else {"role": role}
            if isinstance(content, str) and not lists:
                message["content"] = content
                add(message)
                continue
            if isinstance(content, Native):
                written += map(fresh, content.objects())
                continue
            blocks = (plain_block(content),) if isinstance(content, str) else content
            if {*map(type, blocks)} == {TextBlock}:
                message["content"] = self.content(blocks)
                add(message)
                continue
            results = [block for block in blocks if isinstance(block, ToolResultBlock)]
            others = tuple(block for block in blocks if not isinstance(block, ToolResultBlock)) if results else blocks
            own = [] if results and not others else [message]
            if own:
                self.fill(message, others)
            answers = [self.result(block) for block in results]
            # Write tool calls before the tool results of the same message, because a tool result must follow its tool
            # call.
            written += [*own, *answers] if "tool_calls" in message else [*answers, *own]
        return written

    def fill(self, message: JsonObject, blocks: tuple[Block, ...]) -> None:
        """Write the blocks of a turn into the message dict."""
        calls = [self.call(block) for block in blocks if isinstance(block, ToolUseBlock)]
        content = tuple(block for block in blocks if not isinstance(block, ToolUseBlock | ThinkingBlock))
        if content or not calls:
            message["content"] = self.content(content)
        else:
            message["content"] = fresh_json(self.no_text) if isinstance(self.no_text, list) else self.no_text
        thoughts = [block.thinking for block in blocks if isinstance(block, ThinkingBlock)] if self.thinking else []
        if thoughts and self.thinking:
            message[self.thinking] = "\n".join(thoughts)
        if calls:
            message["tool_calls"] = list(calls)

    def content(self, blocks: tuple[Block, ...]) -> Json:
        """Write blocks as a string if all are text, or as a list of parts otherwise."""
        texts = [block.text for block in blocks if isinstance(block, TextBlock)]
        if not self.lists and len(texts) == len(blocks) and (len(texts) <= 1 or not self.text_lists):
            return "\n".join(texts)
        return [self.part(block) for block in blocks]

    def part(self, block: Block) -> JsonObject:
        """Write a block as a content part, with the custom writer for its kind if there is one."""
        return self.parts.get(block.kind, write_part)(block)

    def call(self, block: ToolUseBlock) -> JsonObject:
        """Write a tool call."""
        arguments: JsonObject = block.input if block.raw_input is None else {"raw_input": block.raw_input}
        function: JsonObject = {"name": block.name, "arguments": to_json(arguments)}
        return {"id": block.id, "type": "function", "function": function}

    def result(self, block: ToolResultBlock) -> JsonObject:
        """Write a tool result as a separate message."""
        output = block.output
        if not isinstance(output, str) or self.lists:
            blocks = (TextBlock(output),) if isinstance(output, str) else output
            content = self.content(blocks or (TextBlock(""),))
        else:
            content = output
        message: JsonObject = {"role": "tool", "tool_call_id": block.id, "content": content}
        if self.named_results and block.name:
            message["name"] = block.name
        return message


_PLAIN = OpenAIWriter(text_lists=True, named_results=True)


def openai_dicts(messages: Iterable[Msg], writer: OpenAIWriter = _PLAIN) -> list[JsonObject]:
    """Write messages as OpenAI dicts, without applying any provider's message rules.

    Args:
        messages: The messages to write.
        writer: The object that converts blocks to OpenAI's format; the default omits reasoning and includes the tools'
            names in tool results.

    Returns:
        New dicts. Metadata keys that the format does not define are included as keys of the message.

    Raises:
        FormatError: The format cannot express a block (such as video, or audio with a URL), or the metadata is not
            JSON.
    """
    found: list[JsonObject] = []
    for message in messages:
        # In OpenAI's format, a message's URLs always refer to images.
        pictures = [ImageBlock(source_of(url)) for url in message.urls]
        content = (*message.blocks, *pictures) if pictures else message.content
        speaker = "" if message.speaker == message.role else message.speaker
        dicts = writer.messages([(message.role, speaker, content, 0)])
        if message.metadata:
            extra = {key: value for key, value in message.metadata.items() if key not in {*KNOWN_KEYS, PART_FIELDS}}
            dicts[0 if "tool_calls" in dicts[0] else -1] |= checked_object(extra, "metadata", FormatError)
        found += dicts
    return found


def write_part(block: Block) -> JsonObject:
    """Write a block as an OpenAI content part.

    Raises:
        FormatError: The format cannot express the block.
    """
    match block:
        case TextBlock(text):
            return {"type": "text", "text": text}
        case ImageBlock(source, detail=detail):
            return {"type": "image_url", "image_url": _given("detail", detail) | {"url": address_of(source)}}
        case AudioBlock(Base64Source(media_type, data)):
            kind = media_type.removeprefix("audio/")
            return {"type": "input_audio", "input_audio": {"data": data, "format": _AUDIO_FORMATS.get(kind, kind)}}
        case FileBlock(Base64Source() as source, filename=filename):
            return {"type": "file", "file": _given("filename", filename) | {"file_data": address_of(source)}}
        case AudioBlock(URLSource(url)) | FileBlock(URLSource(url)):
            # Omit the URL's query string from the error message, because the query string may contain a secret.
            raise FormatError(
                f"the OpenAI format does not support {block.kind} blocks with a URL such as "
                f"{url.partition('?')[0]!r}; use {type(block).__name__}.from_file(path) or a Base64Source"
            )
        case _:
            raise FormatError(f"the OpenAI format does not support this {block.kind} block: {block!r}")


def _given(name: str, value: str | None) -> JsonObject:
    form: JsonObject = {} if value is None else {name: value}
    return form


def address_of(source: Source) -> str:
    """Return the URL of a media source. Base64 content becomes a ``data:`` URL."""
    return source.url if isinstance(source, URLSource) else f"data:{source.media_type};base64,{source.data}"
