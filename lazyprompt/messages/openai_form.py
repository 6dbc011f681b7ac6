"""Writes messages in the OpenAI chat form, the one dict form that all parties understand.

Source of the form: the Chat Completions API reference, "Create chat completion", and the types of the official client.
"""

from __future__ import annotations

import re
from hashlib import blake2s
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from lazyprompt._base.json import Json, JsonObject, checked_object, to_json
from lazyprompt.errors import FormatError
from lazyprompt.messages.msg import (
    AudioBlock,
    Base64Source,
    Block,
    FileBlock,
    ImageBlock,
    Msg,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    URLSource,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyprompt.messages.msg import Source

# Keys to which the form gives a meaning. A reader puts any other key that holds something into the metadata of the Msg.
KNOWN_KEYS = frozenset({"role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "url"})
# The key of the metadata for fields of content parts that no block has a place for: those of other providers' forms.
PART_FIELDS = "part_fields"
# The names of speakers and tools that the API takes, and the ids of calls.
NAMES = re.compile(r"[a-zA-Z0-9_-]{1,64}")
IDS = re.compile(r"[^\x00-\x1f\x7f]{1,40}")
ID_LENGTH = 40
# What a call without a result is answered with.
NO_RESULT = "(no result)"
_MAPPED_LENGTH = 64
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
    left = "".join(sign if pattern.fullmatch(f"a{sign}") else "_" for sign in text).strip("_")[: length - 9]
    # Where only ids of one length are taken, the mark alone fills it.
    candidates = (f"{left}_{mark}" if left else "", f"x_{mark}", blake2s(text.encode()).hexdigest()[:length])
    return next(filter(pattern.fullmatch, candidates))


def to_openai(message: Msg) -> list[JsonObject]:
    """Write the OpenAI dicts of a message: one for each tool result, and one for all the rest.

    Thinking is left out: the form has no place for it.

    Args:
        message: The message.

    Returns:
        Fresh dicts that share nothing mutable with the message.

    Raises:
        FormatError: A block has no OpenAI form (video, or audio at an address).
    """
    whole: JsonObject = {"role": message.role}
    if message.name != message.role and message.name:
        whole["name"] = message.name
    if isinstance(message.content, str) and message.url is None:
        whole["content"] = message.content
        dicts = [whole]
    else:
        dicts = _write_blocks(message, whole)
    if message.metadata:
        # Keys that have a meaning in this form come from the message itself, never from its metadata.
        extra = {key: value for key, value in message.metadata.items() if key not in KNOWN_KEYS and key != PART_FIELDS}
        dicts[0 if "tool_calls" in whole else -1] |= checked_object(extra, "metadata", FormatError)
    return dicts


def _write_blocks(message: Msg, whole: JsonObject) -> list[JsonObject]:
    """Write a message of more than a text: results are dicts of their own, all else goes into its one dict."""
    shown: list[Block] = []
    calls: list[Json] = []
    results: list[JsonObject] = []
    content = message.content
    for block in message.blocks if isinstance(content, str) else content:
        if isinstance(block, ToolUseBlock):
            function: JsonObject = {"name": block.name, "arguments": to_json(block.arguments)}
            calls.append({"id": block.id, "type": "function", "function": function})
        elif isinstance(block, ToolResultBlock):
            results.append(_write_result(block))
        elif not isinstance(block, ThinkingBlock):
            shown.append(block)
    if message.url is not None:
        # The form has pictures alone at the addresses of a message.
        shown += [ImageBlock(source_of(url)) for url in message.urls]
    if results and not shown and not calls:
        return results
    whole["content"] = _write_content(shown) if shown else None if calls else ""
    if calls:
        whole["tool_calls"] = calls
        # A message that calls and has the results as well: a result never stands before its call.
        return [whole, *results]
    return [*results, whole]


def _write_result(block: ToolResultBlock) -> JsonObject:
    output = block.output
    content = output if isinstance(output, str) else _write_content(output)
    form: JsonObject = {"role": "tool", "tool_call_id": block.id, "content": content}
    if block.name:
        form["name"] = block.name
    return form


def _write_content(blocks: Sequence[Block]) -> Json:
    """Write a content: a text alone stays text, all else is a list of parts."""
    if len(blocks) == 1 and isinstance(blocks[0], TextBlock):
        return blocks[0].text
    return [write_part(block) for block in blocks] if blocks else ""


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
