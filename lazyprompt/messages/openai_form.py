"""Writes messages in the form of OpenAI's Chat Completions API.

Source of the form: the Chat Completions API reference, "Create chat completion", and the types of the official client.
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

# Keys with a meaning in the form. A reader puts all other non-empty keys into the metadata of the Msg.
KNOWN_KEYS = frozenset(
    {"role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "thinking_blocks", "url"}
)
# The names of speakers and tools that the API accepts, and the ids of calls.
NAMES = re.compile(r"[a-zA-Z0-9_-]{1,64}")
IDS = re.compile(r"[^\x00-\x1f\x7f]{1,40}")
ID_LENGTH = 40
# The result sent for a call without one.
NO_RESULT = "(no result)"
_MAPPED_LENGTH = 64
# Punctuation that a mapped name keeps. All other punctuation is replaced, so the name completes no control sequence.
_MAPPED_PUNCTUATION = " ._:-"
# The form's names of audio formats, by their MIME subtypes.
_AUDIO_FORMATS = {"mpeg": "mp3", "x-wav": "wav", "vnd.wave": "wav", "wave": "wav"}


class OpenAIPrompt(TypedDict):
    """The OpenAI form of a prompt: ``messages``, and ``tools`` if there are any.

    All values are JSON. They are typed ``Any`` so that users can index them without a cast.
    """

    messages: list[dict[str, Any]]
    tools: NotRequired[list[dict[str, Any]]]


def source_of(url: str) -> Source:
    """Return the source of an address: a ``data:`` address is the media itself."""
    head, comma, data = url.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        return Base64Source(head.removeprefix("data:").removesuffix(";base64"), data)
    return URLSource(url)


def fitted(text: str, pattern: re.Pattern[str], length: int = _MAPPED_LENGTH) -> str:
    """Return a name or id in a provider's alphabet: the text itself, or its allowed characters and a hash.

    The hash keeps different texts apart, and equals itself in every process.
    """
    if pattern.fullmatch(text):
        return text
    mark = blake2s(text.encode(), digest_size=4).hexdigest()
    kept = (each.isalnum() or each in _MAPPED_PUNCTUATION for each in text)
    mapped = (each if keep and pattern.fullmatch(f"a{each}") else "_" for each, keep in zip(text, kept, strict=True))
    left = "".join(mapped).strip("_")[: length - 9]
    # Some providers accept ids of one length only: the hash has any length.
    candidates = (f"{left}_{mark}" if left else "", f"x_{mark}", blake2s(text.encode()).hexdigest()[:length])
    return next(filter(pattern.fullmatch, candidates))


@dataclass(frozen=True, slots=True)
class UrlPart:
    """A writer of media as ``{"type": "video_url", "video_url": {"url": ...}}``; base64 becomes a ``data:`` address.

    Args:
        kind: The ``type`` of the part, and its other key.
    """

    kind: str

    def __call__(self, block: MediaBlock) -> JsonObject:
        """Return the part of a block."""
        return {"type": self.kind, self.kind: {"url": address_of(block.source)}}


@dataclass(frozen=True, slots=True)
class OpenAIWriter:
    """Writer of turns in the form of the Chat Completions API, and in the forms that differ from it in a few places.

    Args:
        no_text: The content of a message that only calls tools.
        text_lists: True to write several texts as a list of parts, and False to join them with newlines.
        named_results: True if a result has the name of its tool.
        thinking: The key of a message for its thoughts; None leaves them out.
        parts: The writers of blocks whose parts differ from OpenAI's, by kind.
        lists: True if a content is always a list of parts.
    """

    no_text: Json = None
    text_lists: bool = False
    named_results: bool = False
    thinking: str | None = None
    parts: Mapping[str, Callable[[Any], JsonObject]] = field(default_factory=dict[str, "Callable[[Any], JsonObject]"])
    lists: bool = False

    def messages(self, turns: Iterable[WrittenTurn], *, names: bool = True) -> list[JsonObject]:
        """Write turns as messages: one for each tool result, and one for the rest of a turn.

        Args:
            turns: The turns.
            names: True to write the speakers' names.

        Returns:
            Fresh dicts that share nothing mutable with the turns.

        Raises:
            FormatError: The form cannot express a block.
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
            # A result never precedes its call.
            written += [*own, *answers] if "tool_calls" in message else [*answers, *own]
        return written

    def fill(self, message: JsonObject, blocks: tuple[Block, ...]) -> None:
        """Put the blocks of a turn into its message."""
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
        """Write a content: as a string if it has only texts, else as parts."""
        texts = [block.text for block in blocks if isinstance(block, TextBlock)]
        if not self.lists and len(texts) == len(blocks) and (len(texts) <= 1 or not self.text_lists):
            return "\n".join(texts)
        return [self.part(block) for block in blocks]

    def part(self, block: Block) -> JsonObject:
        """Write a block as a part of a content."""
        return self.parts.get(block.kind, write_part)(block)

    def call(self, block: ToolUseBlock) -> JsonObject:
        """Write a call of a tool."""
        arguments: JsonObject = block.input if block.raw_input is None else {"raw_input": block.raw_input}
        function: JsonObject = {"name": block.name, "arguments": to_json(arguments)}
        return {"id": block.id, "type": "function", "function": function}

    def result(self, block: ToolResultBlock) -> JsonObject:
        """Write the result of a call of a tool as a message."""
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
    """Write messages as OpenAI dicts, without the rules of a provider.

    Args:
        messages: The messages.
        writer: The writer; by default, thoughts are left out and results are named.

    Returns:
        Fresh dicts; keys of the metadata that have no meaning in the form are keys of the dict.

    Raises:
        FormatError: A block has no OpenAI form (video, or audio at an address), or the metadata are not JSON.
    """
    found: list[JsonObject] = []
    for message in messages:
        # In this form, the addresses of a message are those of images.
        pictures = [ImageBlock(source_of(url)) for url in message.urls]
        content = (*message.blocks, *pictures) if pictures else message.content
        speaker = "" if message.speaker == message.role else message.speaker
        dicts = writer.messages([(message.role, speaker, content, 0)])
        if message.metadata:
            # Keys that have a meaning in this form come from the message itself, never from its metadata.
            extra = {key: value for key, value in message.metadata.items() if key not in {*KNOWN_KEYS, PART_FIELDS}}
            dicts[0 if "tool_calls" in dicts[0] else -1] |= checked_object(extra, "metadata", FormatError)
        found += dicts
    return found


def write_part(block: Block) -> JsonObject:
    """Write a block as a part of a message's content.

    Raises:
        FormatError: The form cannot express the block.
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
            # The query of an address may contain a secret.
            raise FormatError(
                f"the OpenAI form does not support this {block.kind} block: it needs data, not an address such as "
                f"{url.partition('?')[0]!r}; give {type(block).__name__}.from_file(path), or a base64 source"
            )
        case _:
            raise FormatError(f"the OpenAI form does not support this {block.kind} block: {block!r}")


def _given(name: str, value: str | None) -> JsonObject:
    form: JsonObject = {} if value is None else {name: value}
    return form


def address_of(source: Source) -> str:
    """Return the address of a medium; base64 as a ``data:`` address."""
    return source.url if isinstance(source, URLSource) else f"data:{source.media_type};base64,{source.data}"
