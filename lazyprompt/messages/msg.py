"""Immutable messages and content blocks, which are compared by value.

The names and fields of the blocks match AgentScope's message blocks, which are modelled on Anthropic's content blocks.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias, TypeVar, get_args

from lazyprompt._base.display import html_of
from lazyprompt._base.files import read_regular
from lazyprompt._base.frozen import draft_of, fill, read_only
from lazyprompt._base.json import (
    Json,
    JsonObject,
    checked_object,
    fresh,
    is_dict,
    is_mapping,
    is_sequence,
    is_well_formed,
    well_formed,
)
from lazyprompt._base.roles import ROLES, Role
from lazyprompt.errors import HistoryError, MediaError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from lazyprompt.messages.native import Native


_T = TypeVar("_T")

# The maximum size of a media file, in bytes.
_MOST = 1_073_741_824


@read_only
@dataclass(frozen=True, slots=True)
class URLSource:
    """A reference to media by URL.

    Args:
        url: An ``http(s)`` URL, or a local path (which only a media resolver may open).
        media_type: The MIME type, if known.
        type: Always ``"url"``.
    """

    url: str
    media_type: str | None = None
    type: Literal["url"] = "url"

    def __post_init__(self) -> None:
        _text(self.url, "the url of a URLSource", MediaError)
        if self.media_type is not None:
            _text(self.media_type, "the media_type of a URLSource", MediaError)


@read_only
@dataclass(frozen=True, slots=True)
class Base64Source:
    """Media content as base64 text.

    Args:
        media_type: The MIME type, such as ``image/png``.
        data: The content, encoded in base64.
        type: Always ``"base64"``.
    """

    media_type: str
    data: str = field(repr=False)
    type: Literal["base64"] = "base64"

    def __post_init__(self) -> None:
        _text(self.media_type, "the media_type of a Base64Source", MediaError)
        _text(self.data, "the data of a Base64Source", MediaError)


def _text(text: object, where: str, error: type[HistoryError | MediaError] = HistoryError) -> str:
    if not isinstance(text, str):
        raise error(f"{where} must be a string, not {type(text).__name__}")
    return well_formed(text, where, error)


Source: TypeAlias = URLSource | Base64Source

# The default arguments of a tool call. Blocks copy their input, so this shared dict never changes.
_NO_INPUT: dict[str, Any] = {}


class _Block:
    """The base class of all blocks, which validates the ``type`` and the string fields."""

    __slots__ = ()
    kind: ClassVar[str]
    # Maps the name of each string field to whether the field may be None.
    _texts: ClassVar[dict[str, bool]] = {}

    def __init_subclass__(cls) -> None:
        hints = {"str": False, "str | None": True}
        cls._texts = {name: hints[hint] for name, hint in cls.__annotations__.items() if hint in hints}

    def __post_init__(self) -> None:
        given: object = getattr(self, "type", self.kind)
        if given != self.kind:
            raise HistoryError(f"the type of a {type(self).__name__} must be {self.kind!r}, not {given!r}")
        for name, optional in self._texts.items():
            value: object = getattr(self, name)
            if not (type(value) is str and value.isascii()) and not (optional and value is None):
                _text(value, f"the {'text' if name == self.kind else name} of a {type(self).__name__}")


@read_only
@dataclass(frozen=True, slots=True)
class TextBlock(_Block):
    """Plain text.

    Args:
        text: The text.
        type: Always ``"text"``.
        signature: Gemini's thought signature in base64, if the text has one.
    """

    kind: ClassVar[str] = "text"
    text: str
    type: Literal["text"] = "text"
    signature: str | None = None


_TextDraft = draft_of(TextBlock)


def plain_block(text: str) -> TextBlock:
    """Build a text block without validating the text."""
    draft = _TextDraft()
    draft.text = text
    draft.type = "text"
    draft.signature = None
    draft.__class__ = TextBlock
    block: TextBlock = draft
    return block


@read_only
@dataclass(frozen=True, slots=True)
class ThinkingBlock(_Block):
    """A model's reasoning before its response.

    Args:
        thinking: The reasoning text.
        signature: The data that the provider uses to verify its own reasoning: Anthropic's signature, or the encrypted
            content of OpenAI's reasoning items.
        type: Always ``"thinking"``.
        redacted: Reasoning that the provider returned only in encrypted form; ``None`` for readable reasoning.
        id: The provider's id for the reasoning, such as the id of an OpenAI reasoning item.
        provider: The provider that issued the signature, redacted data or id; ``None`` if unknown.
    """

    kind: ClassVar[str] = "thinking"
    thinking: str = ""
    signature: str | None = None
    type: Literal["thinking"] = "thinking"
    redacted: str | None = None
    id: str | None = None
    provider: str | None = None


@read_only
@dataclass(frozen=True, slots=True, init=False)
class ToolUseBlock(_Block):
    """A model's tool call.

    Args:
        id: The call id, which the tool result repeats.
        name: The name of the tool.
        input: The arguments of the tool call, as a dict that is copied.
        type: Always ``"tool_use"``.
        raw_input: The arguments as the model wrote them if they are not a JSON object, usually because the response was
            truncated.
        signature: Gemini's thought signature in base64, if the call has one.

    Raises:
        HistoryError: The arguments are not a JSON object.
    """

    kind: ClassVar[str] = "tool_use"
    id: str
    name: str
    # The JSON values have type `Any`, so that type checkers accept `f(**call.input)`.
    input: dict[str, Any] = field(hash=False)
    type: Literal["tool_use"]
    raw_input: str | None
    signature: str | None

    def __init__(
        self,
        id: str,
        name: str,
        input: dict[str, Any] = _NO_INPUT,
        type: Literal["tool_use"] = "tool_use",
        raw_input: str | None = None,
        signature: str | None = None,
    ) -> None:
        fill(self, (id, name, input, type, raw_input, signature))
        self.__post_init__()
        if not is_dict(input):
            raise HistoryError(f"the input of tool call {name!r} must be a dict, not {input.__class__.__name__}")
        object.__setattr__(self, "input", checked_object(input, f"{name}.input", HistoryError))

    @property
    def arguments(self) -> JsonObject:
        """The arguments to send: the input, or ``{"raw_input": text}`` if the model's text is not a JSON object."""
        return self.input if self.raw_input is None else {"raw_input": self.raw_input}

    def own_arguments(self) -> JsonObject:
        """Return a copy of :attr:`arguments`, so that a payload shares no data with the block."""
        return fresh(self.arguments)


_CallDraft = draft_of(ToolUseBlock)


def call_of(call_id: str, name: str, arguments: dict[str, Any]) -> ToolUseBlock:
    """Build a tool call without validating the fields or copying the arguments."""
    draft = _CallDraft()
    draft.id = call_id
    draft.name = name
    draft.input = arguments
    draft.type = "tool_use"
    draft.raw_input = draft.signature = None
    draft.__class__ = ToolUseBlock
    call: ToolUseBlock = draft
    return call


@read_only
@dataclass(frozen=True, slots=True, init=False)
class ToolResultBlock(_Block):
    """The result of a tool call.

    Args:
        id: The id of the call.
        name: The name of the tool.
        output: A string, or a list of text and media blocks (or of dicts with the same fields).
        type: Always ``"tool_result"``.
        is_error: True if the output is an error message.

    Raises:
        HistoryError: A field has the wrong type.
    """

    kind: ClassVar[str] = "tool_result"
    id: str
    name: str
    output: str | tuple[Block, ...]
    type: Literal["tool_result"]
    is_error: bool

    def __init__(
        self,
        id: str,
        name: str = "",
        output: str | Sequence[BlockLike] = "",
        type: Literal["tool_result"] = "tool_result",
        *,
        is_error: bool = False,
    ) -> None:
        fill(self, (id, name, output, type, is_error))
        self.__post_init__()
        where = f"the output of tool {name!r}"
        if isinstance(output, str):
            well_formed(output, where, HistoryError)
        else:
            object.__setattr__(self, "output", _content(output, where, where))

    @property
    def text(self) -> str:
        """The output's text, without media."""
        return self.output if isinstance(self.output, str) else text_of(self.output)


_ResultDraft = draft_of(ToolResultBlock)


def result_of(call_id: str, name: str, output: str) -> ToolResultBlock:
    """Build a tool result without validating the fields."""
    draft = _ResultDraft()
    draft.id = call_id
    draft.name = name
    draft.output = output
    draft.type = "tool_result"
    draft.is_error = False
    draft.__class__ = ToolResultBlock
    result: ToolResultBlock = draft
    return result


@dataclass(frozen=True, slots=True)
class _MediaBlock(_Block):
    """The base class of all media blocks."""

    source: Source

    def __post_init__(self) -> None:
        _Block.__post_init__(self)
        object.__setattr__(self, "source", _source(self.source, type(self).__name__))

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """Read a file into a block with base64 data, without a media resolver.

        Args:
            path: The path of the file, whose suffix determines the MIME type.

        Raises:
            MediaError: The file cannot be read, or its suffix has no known MIME type.
        """
        # Import lazily, because these rarely needed modules take several milliseconds to import.
        from mimetypes import guess_type  # noqa: PLC0415
        from pathlib import Path  # noqa: PLC0415

        media_type = guess_type(Path(path).name)[0]
        if media_type is None:
            raise MediaError(f"no known MIME type for the suffix of {str(path)!r}; use Base64Source with media_type=")
        try:
            data = read_regular(path, _MOST)
        except OSError as error:
            raise MediaError(f"cannot read {str(path)!r}: {error.strerror or error}") from error
        return cls._of(Base64Source(media_type, b64encode(data).decode("ascii")), Path(path).name)

    @classmethod
    def _of(cls, source: Base64Source, name: str) -> Self:  # noqa: ARG003 - FileBlock uses the name
        return cls(source)


@read_only
@dataclass(frozen=True, slots=True)
class ImageBlock(_MediaBlock):
    """An image.

    Args:
        source: The base64 content or the URL of the image.
        type: Always ``"image"``.
        detail: The level of detail for models that support this setting: ``low``, ``high`` or ``auto``.
    """

    kind: ClassVar[str] = "image"
    type: Literal["image"] = "image"
    detail: str | None = None


@read_only
@dataclass(frozen=True, slots=True)
class AudioBlock(_MediaBlock):
    """An audio clip."""

    kind: ClassVar[str] = "audio"
    type: Literal["audio"] = "audio"


@read_only
@dataclass(frozen=True, slots=True)
class VideoBlock(_MediaBlock):
    """A video."""

    kind: ClassVar[str] = "video"
    type: Literal["video"] = "video"


@read_only
@dataclass(frozen=True, slots=True)
class FileBlock(_MediaBlock):
    """A document, such as a PDF.

    Args:
        source: The base64 content or the URL of the document.
        type: Always ``"file"``.
        filename: The file name that is sent to the model.
    """

    kind: ClassVar[str] = "file"
    type: Literal["file"] = "file"
    filename: str | None = None

    @classmethod
    def _of(cls, source: Base64Source, name: str) -> Self:
        return cls(source, filename=name)


MediaBlock: TypeAlias = ImageBlock | AudioBlock | VideoBlock | FileBlock
Block: TypeAlias = TextBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock | MediaBlock
BlockLike: TypeAlias = "Block | Mapping[str, object]"
BLOCKS: dict[str, type[Block]] = {block.kind: block for block in get_args(Block)}
"""All block classes, by ``kind``."""
MEDIA_BLOCKS: dict[str, type[MediaBlock]] = {block.kind: block for block in get_args(MediaBlock)}
"""The classes of media blocks, by ``kind``."""
_SOURCES: dict[str, type[Source]] = {"url": URLSource, "base64": Base64Source}


def _source(source: object, block: str) -> Source:
    if isinstance(source, Source):
        return source
    if is_dict(source):
        return source_from(source)
    raise MediaError(f"the source of {block} must be a URLSource or Base64Source, not {type(source).__name__}")


def source_from(source: Mapping[str, object]) -> Source:
    """Build a media source from a dict, whose ``type`` is ``url`` or ``base64``.

    Raises:
        MediaError: The dict is not a valid media source.
    """
    kind = source.get("type")
    if not isinstance(kind, str) or kind not in _SOURCES:
        raise MediaError(f"unknown source type {kind!r}; expected one of {', '.join(map(repr, _SOURCES))}")
    return _build(_SOURCES[kind], source, MediaError)


def _build(kind: type[_T], given: Mapping[str, object], error: type[HistoryError | MediaError]) -> _T:
    try:
        return kind(**given)
    except TypeError as fault:
        raise error(f"invalid fields for {kind.__name__} ({', '.join(map(str, given))}): {fault}") from fault


def block_from(item: object, where: str) -> Block:
    """Build a block from a dict, or return an existing block unchanged.

    Args:
        item: A block, or a dict with the block's fields and its kind as ``type``.
        where: The item's name in error messages, such as ``history[2].content[0]``.

    Raises:
        HistoryError: The item is neither a block nor a valid dict.
    """
    if isinstance(item, Block):
        return item
    if not is_dict(item):
        raise HistoryError(
            f"{where} must be a block such as TextBlock or {{'type': 'text', ...}}, not {type(item).__name__}"
        )
    kind = item.get("type")
    if not isinstance(kind, str) or kind not in BLOCKS:
        near = did_you_mean(str(kind), BLOCKS)
        raise HistoryError(f"{where} has the unknown type {kind!r}{near}; expected one of {', '.join(BLOCKS)}")
    return _build(BLOCKS[kind], item, HistoryError)


def block_of_media(source: Source, media_type: str) -> MediaBlock:
    """Build an image, audio or video block for a matching MIME type, or a file block for any other type."""
    return MEDIA_BLOCKS.get(media_type.partition("/")[0], FileBlock)(source)


def text_of(content: str | Iterable[Block]) -> str:
    """Join the text blocks of message content with newlines, and omit reasoning, tool calls and media."""
    if isinstance(content, str):
        return content
    return "\n".join(block.text for block in content if isinstance(block, TextBlock))


def _content(content: Sequence[BlockLike], where: str, place: str) -> tuple[Block, ...]:
    if not is_sequence(content):
        raise HistoryError(f"{where} must be a string or a list of blocks, not {type(content).__name__}")
    return tuple(block_from(item, f"{place}[{index}]") for index, item in enumerate(content))


@read_only
@dataclass(frozen=True, slots=True, init=False, eq=False)
class Msg:
    """One message of a conversation.

    Two messages are equal if their names, roles, blocks, URLs and metadata are equal. For the comparison, a plain
    string equals a single text block.

    Args:
        name: The speaker's name, or the role.
        content: A string, or a list of blocks (or of dicts with the same fields).
        role: ``system``, ``developer``, ``user``, ``assistant`` or ``tool``.
        url: The URL of an image, audio clip or video to send with the text, or a list of such URLs.
        metadata: Additional JSON values by key. The OpenAI format includes the metadata as keys of the message; flat
            text omits the metadata.
        usage: The provider's token counts for the message, which are never sent: ``prompt_tokens``,
            ``completion_tokens`` and ``total_tokens``.

    Attributes:
        speaker: The name to send, or an empty string if the message was parsed without a speaker's name.
        native: The message in its provider's native format, which is sent to that provider unchanged. The native data
            contain the content parts (``anthropic``, ``gemini``), the response items (``openai-responses``) or the
            whole message (``openai``). None if the message was not parsed, was modified, or is fully expressed by its
            blocks. Comparisons of messages ignore this attribute.

    Raises:
        HistoryError: The role is unknown, the content is neither a string nor blocks, or a field has the wrong type.
    """

    name: str
    content: str | tuple[Block, ...]
    role: Role
    url: str | tuple[str, ...] | None
    metadata: Mapping[str, Json]
    usage: Mapping[str, int] | None
    speaker: str = field(init=False, repr=False)
    native: Native | None = field(init=False, repr=False)

    def __init__(
        self,
        name: str,
        content: str | Sequence[BlockLike] | None,
        role: Role,
        url: str | Sequence[str] | None = None,
        metadata: Mapping[str, object] | None = None,
        usage: Mapping[str, int] | None = None,
    ) -> None:
        _text(name, "the name of a message")
        if role not in ROLES:
            raise HistoryError(
                f"unknown role {role!r}{did_you_mean(str(role), ROLES)}; expected one of {', '.join(ROLES)}"
            )
        if metadata is not None and not is_mapping(metadata):
            raise HistoryError(f"the metadata of {name!r} must be a dict, not {type(metadata).__name__}")
        own_content = _message_content(content, name)
        own_metadata = checked_object(metadata, "metadata", HistoryError) if metadata else {}
        own_usage = None if usage is None else dict(usage)
        own_url = None if url is None else _urls(url, name)
        fill(self, (name, own_content, role, own_url, own_metadata, own_usage, name, None))

    def evolve(self, **changes: object) -> Msg:
        """Return a copy with some fields changed and without the native format.

        The copy has the same speaker as the original message unless ``changes`` contains another ``name``.

        Args:
            **changes: New values for arguments of the constructor.

        Raises:
            HistoryError: A new value is invalid (see the errors of the constructor).
        """
        fields = ("name", "content", "role", "url", "metadata", "usage")
        given: Any = {name: getattr(self, name) for name in fields} | changes  # the constructor validates the values
        changed = Msg(**given)
        return changed if self.speaker or changed.name != self.name else changed.without_speaker()

    def without_speaker(self) -> Msg:
        """Return a copy without a speaker; the name of the copy is the role."""
        return self.spoken_by("")

    def spoken_by(self, speaker: str) -> Msg:
        """Return a copy of the message with another speaker name (``""`` for none), keeping the native format."""
        return message_of(speaker, self.content, self.role, self.url, self.metadata, self.usage, self.native)

    @property
    def text(self) -> str:
        """The text blocks of the message, joined with newlines."""
        return text_of(self.content)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The content as blocks; plain text is a single block."""
        if isinstance(self.content, str):
            return (plain_block(self.content),) if self.content else ()
        return self.content

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs of the message as a tuple."""
        return (self.url,) if isinstance(self.url, str) else self.url or ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Msg):
            return NotImplemented
        mine = (self.name, self.role, self.urls, self.blocks, self.metadata)
        return mine == (other.name, other.role, other.urls, other.blocks, other.metadata)

    def __hash__(self) -> int:
        return hash((self.name, self.role, self.urls, self.blocks))

    def _repr_html_(self) -> str:
        return html_of(self)


def _message_content(content: str | Sequence[BlockLike] | None, name: str) -> str | tuple[Block, ...]:
    if content is None:
        return ()
    if isinstance(content, str):
        return well_formed(content, f"the message from {name!r}", HistoryError)
    return _content(content, f"the content of {name!r}", "content")


_MsgDraft = draft_of(Msg)


def text_message(text: str, role: Role) -> Msg:
    """Build a message that has no speaker name, without validating the message's text."""
    draft = _MsgDraft()
    draft.name = draft.role = role
    draft.content = text
    draft.url = draft.usage = None
    draft.metadata = {}
    draft.speaker = ""
    draft.native = None
    draft.__class__ = Msg
    message: Msg = draft
    return message


def message_of(
    speaker: str,
    content: str | tuple[Block, ...],
    role: Role,
    url: str | tuple[str, ...] | None = None,
    metadata: Mapping[str, Json] | None = None,
    usage: Mapping[str, int] | None = None,
    native: Native | None = None,
) -> Msg:
    """Build a message without validating the fields. A speaker name that is identical to the role is dropped."""
    draft = _MsgDraft()
    draft.name = speaker or role
    draft.content = content
    draft.role = role
    draft.url = url
    draft.metadata = metadata or {}
    draft.usage = usage
    draft.speaker = "" if speaker == role else speaker
    draft.native = native
    draft.__class__ = Msg
    message: Msg = draft
    return message


# The number of keys in a message that contains only a role and content.
_BARE = 2


def plain_message(fields: dict[str, Any]) -> Msg | None:
    """Parse the most common message dicts, which contain only a role and text, or a tool result with text output.

    Returns:
        The message, or None if the dict has additional keys, content other than text, or an invalid field.
    """
    role, content = fields.get("role"), fields.get("content")
    if type(content) is not str or role not in ROLES or not (content.isascii() or is_well_formed(content)):
        return None
    if role != "tool":
        return text_message(content, role) if len(fields) == _BARE else None
    call_id, name = fields.get("tool_call_id"), fields.get("name", "")
    plain = type(call_id) is str and type(name) is str and len(fields) == _BARE + 1 + ("name" in fields)
    if not (plain and call_id and call_id.isascii() and name.isascii()):
        return None
    return message_of("", (result_of(call_id, name, content),), role)


def _urls(url: str | Sequence[str], name: str) -> str | tuple[str, ...]:
    where = f"the URL of the message from {name!r}"
    if isinstance(url, str):
        return _text(url, where)
    if not is_sequence(url):
        raise HistoryError(f"{where} must be a string or a list of strings, not {type(url).__name__}")
    return tuple(_text(each, where) for each in url)
