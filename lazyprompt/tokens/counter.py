"""Protocols for token counters, a character counter, and functions that extract text and media from messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, cast, get_args

from lazyprompt._base.json import checked, dump, is_dict, is_sequence
from lazyprompt.errors import FormatError
from lazyprompt.messages.msg import AudioBlock, Block, FileBlock, Msg, URLSource, VideoBlock, message_of
from lazyprompt.messages.openai_form import OpenAIWriter, openai_dicts, write_part

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lazyprompt._base.json import JsonObject

# A message as a dict in a provider's format.
Form: TypeAlias = "Mapping[str, Any]"

_BLOCKS = get_args(Block)
# The keys for a message's content in all provider formats.
_CONTENT = ("content", "parts", "output", "reasoning_content", "thinking")
# The keys for tool calls in formats that store calls outside the content.
_CALLS = ("tool_calls", "function_call", "arguments")
# Maps a media part's type or key to the kind of media.
MEDIA_KINDS = {
    form.format(word): "file" if word == "document" else word
    for word in ("image", "audio", "video", "file", "document")
    for form in ("{}", "{}_url", "{}_data", "input_{}")
} | dict.fromkeys(("inline_data", "inlineData", "fileData"), "file")


class CountsMessages(Protocol):
    """The protocol for objects that count tokens in messages.

    A counter may have a boolean attribute ``additive``. If ``additive`` is True, a message's token count doesn't depend
    on the other messages, so a budget counts each message only once. If ``additive`` is False, messages affect each
    other's counts. If a counter lacks the attribute ``additive``, a budget tests whether the counter is additive.
    """

    def count(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None) -> int:
        """Return the token count of message dicts in a provider's format, including the tools sent with them."""
        ...


class TokenCounter(CountsMessages, Protocol):
    """The protocol for objects that count tokens in messages and texts."""

    def count_text(self, text: str) -> int:
        """Return the number of tokens in a text."""
        ...


class CharTokenCounter:
    """A token counter that counts characters instead of tokens.

    The count includes names, content, tool calls and tools (as JSON). Roles, ids, media and the markers between
    messages are ignored. The count of a message doesn't depend on other messages.
    """

    __slots__ = ()
    additive: ClassVar[bool] = True

    def count(self, messages: Sequence[Msg | Form], tools: Sequence[Form] | None = None) -> int:
        """Return the number of characters in messages and tools.

        Args:
            messages: The messages, as Msg or in any provider's format.
            tools: The tools, in any provider's format.

        Returns:
            The total length of all texts in characters.

        Raises:
            FormatError: A tool call or a tool is not JSON-serializable.
        """
        counted = sum(len(text) for message in forms(messages) for text in content_of(message)[0])
        return counted + sum(len(json_text(tool, "a tool")) for tool in tools or ())

    def count_text(self, text: str) -> int:
        """Return the number of characters in a text."""
        return len(text)


def forms(messages: Iterable[Msg | Form]) -> list[Form]:
    """Convert each Msg to OpenAI dicts; dicts are returned unchanged.

    Args:
        messages: The messages, as Msg or as dicts in any provider's format.

    Returns:
        The dicts; media that the OpenAI format doesn't support are also converted to content parts.

    Raises:
        FormatError: A message's metadata is not JSON-serializable.
    """
    found: list[Form] = []
    for message in messages:
        if isinstance(message, Msg):
            found += openai_dicts([message], COUNTED)
        else:
            found.append(message)
    return found


def _countable_part(block: Block) -> JsonObject:
    """Convert a block to a content part; if the OpenAI format doesn't support the block, only its kind is kept."""
    match block:
        case VideoBlock() | AudioBlock(URLSource()) | FileBlock(URLSource()):
            return {"type": block.kind}
        case _:
            return write_part(block)


COUNTED = OpenAIWriter(
    text_lists=True, named_results=True, parts=dict.fromkeys(("video", "audio", "file"), _countable_part)
)
"""The OpenAI writer for messages to count, which writes a part for every media block."""


def content_of(message: Form) -> tuple[list[str], list[Form]]:
    """Return the texts and media in a message.

    Args:
        message: The message, in any provider's format.

    Returns:
        The message's texts and media parts. The texts are the speaker's name, the content, and the tool calls and other
        data as JSON. The role and ids are omitted.

    Raises:
        FormatError: A tool call or other data is not JSON-serializable.
    """
    texts: list[str] = []
    media: list[Form] = []
    name = message.get("name")
    if isinstance(name, str):
        texts.append(name)
    for key in _CONTENT:
        if key in message:
            _collect(message[key], texts, media)
    texts += [json_text(message[key], f"the {key} of a message") for key in _CALLS if message.get(key)]
    if message.get("images"):
        # Ollama's format stores images outside the content.
        media.append({"images": message["images"]})
    return texts, media


def _collect(content: object, texts: list[str], media: list[Form]) -> None:
    """Collect the texts and media in message content: text, a list of parts, or any other value as JSON."""
    if isinstance(content, str):
        texts.append(content)
    elif is_sequence(content):
        for part in content:
            if is_dict(part):
                _collect_part(part, texts, media)
            elif isinstance(part, _BLOCKS):
                # Convert the block, so that a block in a dict has the same count as a block in a Msg.
                found = [content_of(form) for form in forms([message_of("", (cast("Block", part),), "user")])]
                texts += [text for more, _ in found for text in more]
                media += [medium for _, more in found for medium in more]
            else:
                _collect(part, texts, media)
    elif content is not None:
        texts.append(json_text(content, "the content of a message"))


def _collect_part(part: Form, texts: list[str], media: list[Form]) -> None:
    if part.get("type") in MEDIA_KINDS or not MEDIA_KINDS.keys().isdisjoint(part):
        media.append(part)
        return
    for key in ("text", "thinking", "content", "output"):
        if key in part:
            _collect(part[key], texts, media)
            return
    texts.append(json_text(part, "a part of a message"))


def json_text(value: object, what: str) -> str:
    """Serialize a value as JSON, in the form in which models receive it; return strings unchanged.

    Args:
        value: The value to serialize.
        what: The name of the value, for error messages.

    Returns:
        The JSON text, or the unchanged string.

    Raises:
        FormatError: The value is not JSON-serializable.
    """
    return value if isinstance(value, str) else dump(checked(value, what, FormatError))
