"""Writes messages in the OpenAI chat form, the one dict form that all parties understand.

Source of the form: the Chat Completions API reference, "Create chat completion", and the types of the official client.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from hashlib import blake2s
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, cast

from lazyprompt._base.json import Json, JsonObject, checked_object, fresh, to_json
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

# Keys to which the form gives a meaning. A reader puts any other key that holds something into the metadata of the Msg.
KNOWN_KEYS = frozenset(
    {"role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "thinking_blocks", "url"}
)
# The names of speakers and tools that the API takes, and the ids of calls.
NAMES = re.compile(r"[a-zA-Z0-9_-]{1,64}")
IDS = re.compile(r"[^\x00-\x1f\x7f]{1,40}")
ID_LENGTH = 40
# What a call without a result is answered with.
NO_RESULT = "(no result)"
_MAPPED_LENGTH = 64
# Punctuation that stays in a mapped name. What is put in place of other characters completes no control sequence then.
_MAPPED_PUNCTUATION = " ._:-"
# The names by which MIME knows the formats that the form calls otherwise.
_AUDIO_FORMATS = {"mpeg": "mp3", "x-wav": "wav", "vnd.wave": "wav", "wave": "wav"}


class OpenAIPrompt(TypedDict):
    """The OpenAI form of a prompt: ``messages``, and ``tools`` where there are any.

    Their values are JSON values. They are ``Any`` to type checkers, so that users can go into them without a cast.
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
    """Return a name or id in a provider's alphabet: the text itself, or what is left of it with a mark of its own.

    The mark is made of the text, so that the same one gives the same name in every process, and another one another.
    """
    if pattern.fullmatch(text):
        return text
    mark = blake2s(text.encode(), digest_size=4).hexdigest()
    kept = (sign.isalnum() or sign in _MAPPED_PUNCTUATION for sign in text)
    mapped = (sign if keep and pattern.fullmatch(f"a{sign}") else "_" for sign, keep in zip(text, kept, strict=True))
    left = "".join(mapped).strip("_")[: length - 9]
    # Where only ids of one length are taken, the mark alone fills it.
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
        text_lists: True if several texts stay apart, as a list of parts; else they are lines of one text.
        named_results: True if a result has the name of its tool.
        thinking: The key of a message for its thoughts; None leaves them out.
        parts: The writers of blocks that OpenAI's own parts do not fit, by kind.
        lists: True if a content is always a list of parts.
    """

    no_text: Json = None
    text_lists: bool = False
    named_results: bool = False
    thinking: str | None = None
    parts: Mapping[str, Callable[[Any], JsonObject]] = field(default_factory=dict[str, "Callable[[Any], JsonObject]"])
    lists: bool = False

    def messages(self, turns: Iterable[WrittenTurn], *, names: bool = True) -> list[JsonObject]:
        """Write turns as messages: one for each tool result, and one for all else of a turn.

        Args:
            turns: The turns.
            names: True if speakers are named.

        Returns:
            Fresh dicts that share nothing mutable with the turns.

        Raises:
            FormatError: A block has no place in the form.
        """
        written: list[JsonObject] = []
        add, lists = written.append, self.lists
        for role, name, content, _ in turns:
            message: JsonObject = {"role": role, "name": name} if name and names else {"role": role}
            if isinstance(content, str) and not lists:
                # Most messages are a text.
                message["content"] = content
                add(message)
                continue
            if isinstance(content, Native):
                add(fresh(cast("JsonObject", content.data)))
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
            # A result never stands before its call.
            written += [*own, *answers] if "tool_calls" in message else [*answers, *own]
        return written

    def fill(self, message: JsonObject, blocks: tuple[Block, ...]) -> None:
        """Put the blocks of a turn into its message."""
        calls = [self.call(block) for block in blocks if isinstance(block, ToolUseBlock)]
        content = tuple(block for block in blocks if not isinstance(block, ToolUseBlock | ThinkingBlock))
        message["content"] = self.content(content) if content or not calls else _copy(self.no_text)
        thoughts = [block.thinking for block in blocks if isinstance(block, ThinkingBlock)] if self.thinking else []
        if thoughts and self.thinking:
            message[self.thinking] = "\n".join(thoughts)
        if calls:
            message["tool_calls"] = list(calls)

    def content(self, blocks: tuple[Block, ...]) -> Json:
        """Write a content: a text where it is text alone, else parts."""
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
    """Write messages as OpenAI dicts as they are, without the rules of a provider.

    Args:
        messages: The messages.
        writer: The writer; by default, thoughts are left out and results are named.

    Returns:
        Fresh dicts; keys of the metadata that have no meaning in the form are keys of the dict.

    Raises:
        FormatError: A block has no OpenAI form (video, or audio at an address), or the metadata are no JSON.
    """
    found: list[JsonObject] = []
    for message in messages:
        # The form has pictures alone at the addresses of a message.
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


def _copy(content: Json) -> Json:
    """Copy content of a table."""
    return [dict(part) for part in cast("list[JsonObject]", content)] if isinstance(content, list) else content


def write_part(block: Block) -> JsonObject:
    """Write a block as a part of a message's content.

    Raises:
        FormatError: The form has no place for it.
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
            # What stands behind a question mark may be a secret.
            raise FormatError(
                f"the OpenAI form has no place for this {block.kind} block: it takes data, and no address as "
                f"{url.partition('?')[0]!r}; give {type(block).__name__}.from_file(path), or a base64 source"
            )
        case _:
            raise FormatError(f"the OpenAI form has no place for this {block.kind} block: {block!r}")


def _given(name: str, value: str | None) -> JsonObject:
    form: JsonObject = {} if value is None else {name: value}
    return form


def address_of(source: Source) -> str:
    """Return the address of a medium; base64 as a ``data:`` address."""
    return source.url if isinstance(source, URLSource) else f"data:{source.media_type};base64,{source.data}"
