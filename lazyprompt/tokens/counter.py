"""The protocols of token counters, the simplest counter, and the texts and media of messages that counters count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, cast, get_args

from lazyprompt._base.json import checked, dump, is_dict, is_sequence
from lazyprompt.errors import FormatError
from lazyprompt.messages.msg import AudioBlock, Block, FileBlock, Msg, URLSource, VideoBlock, message_of
from lazyprompt.messages.openai_form import OpenAIWriter, openai_dicts, write_part

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lazyprompt._base.json import JsonObject

# A message in a provider's form.
Form: TypeAlias = "Mapping[str, Any]"

_BLOCKS = get_args(Block)
# The keys of a message's content, in any provider's form.
_CONTENT = ("content", "parts", "output", "reasoning_content", "thinking")
# The keys of calls, in forms that separate them from the content.
_CALLS = ("tool_calls", "function_call", "arguments")
# The kinds of media parts, by their type or one of their keys.
MEDIA_KINDS = {
    form.format(word): "file" if word == "document" else word
    for word in ("image", "audio", "video", "file", "document")
    for form in ("{}", "{}_url", "{}_data", "input_{}")
} | dict.fromkeys(("inline_data", "inlineData", "fileData"), "file")


class CountsMessages(Protocol):
    """The protocol of objects that count the tokens of messages.

    A counter may have an attribute ``additive``. If it is True, the count of messages is the sum of their separate
    counts and the count of an empty request, so a budget counts each message once. If it is False, messages change each
    other's counts. A budget tests counters without the attribute.
    """

    def count(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None) -> int:
        """Return the number of tokens of messages in a provider's form, and of the tools sent with them."""
        ...


class TokenCounter(CountsMessages, Protocol):
    """The protocol of objects that count the tokens of messages and texts."""

    def count_text(self, text: str) -> int:
        """Return the number of tokens of a text."""
        ...


class CharTokenCounter:
    """Counts characters instead of tokens.

    It counts text: names, contents, and tool calls and tools as JSON. It doesn't count roles, ids, the markers between
    messages, or media. The count of a message doesn't depend on other messages.
    """

    __slots__ = ()
    additive: ClassVar[bool] = True

    def count(self, messages: Sequence[Msg | Form], tools: Sequence[Form] | None = None) -> int:
        """Return the number of characters of messages and tools.

        Args:
            messages: Messages in any provider's form, or Msg.
            tools: The tools in any provider's form.

        Returns:
            The sum of the lengths of their texts.

        Raises:
            FormatError: A call or a tool is not a JSON value.
        """
        counted = sum(len(text) for message in forms(messages) for text in content_of(message)[0])
        return counted + sum(len(json_text(tool, "a tool")) for tool in tools or ())

    def count_text(self, text: str) -> int:
        """Return the number of characters of a text."""
        return len(text)


def forms(messages: Iterable[Msg | Form]) -> list[Form]:
    """Return messages as dicts: a Msg in the OpenAI form, a dict unchanged.

    Args:
        messages: Msg, and dicts in any provider's form.

    Returns:
        The dicts. Media that the OpenAI form doesn't support are parts too, to be counted.

    Raises:
        FormatError: The metadata of a message are not JSON.
    """
    found: list[Form] = []
    for message in messages:
        if isinstance(message, Msg):
            found += openai_dicts([message], COUNTED)
        else:
            found.append(message)
    return found


def _countable_part(block: Block) -> JsonObject:
    """Write a block as a part; if the OpenAI form doesn't support it, as a part of its kind."""
    match block:
        case VideoBlock() | AudioBlock(URLSource()) | FileBlock(URLSource()):
            return {"type": block.kind}
        case _:
            return write_part(block)


COUNTED = OpenAIWriter(
    text_lists=True, named_results=True, parts=dict.fromkeys(("video", "audio", "file"), _countable_part)
)
"""The writer of messages to count, in which all media have a part."""


def content_of(message: Form) -> tuple[list[str], list[Form]]:
    """Return the texts and the media of a message.

    Args:
        message: The message, in any provider's form.

    Returns:
        The texts and the media parts. The texts are the name, the content, and calls and data as JSON, without role
        and ids.

    Raises:
        FormatError: A call or data is not a JSON value.
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
        # Ollama's form separates images from the content.
        media.append({"images": message["images"]})
    return texts, media


def _collect(content: object, texts: list[str], media: list[Form]) -> None:
    """Collect the texts and media of a content: a text, a list of parts, or any other value as JSON."""
    if isinstance(content, str):
        texts.append(content)
    elif is_sequence(content):
        for part in content:
            if is_dict(part):
                _collect_part(part, texts, media)
            elif isinstance(part, _BLOCKS):
                # A block in a dict counts like a block in a Msg.
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
    """Return a value as the JSON that a model reads; text is returned unchanged.

    Args:
        value: The value.
        what: The name of the value for error messages.

    Returns:
        The text.

    Raises:
        FormatError: The value is not JSON.
    """
    return value if isinstance(value, str) else dump(checked(value, what, FormatError))
