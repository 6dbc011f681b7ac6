"""Messages and their blocks: frozen values, compared by content.

The block names and fields are those of AgentScope's message blocks, which follow Anthropic's content blocks.
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

# The largest media file in bytes.
_MOST = 1_073_741_824


@read_only
@dataclass(frozen=True, slots=True)
class URLSource:
    """Media at an address.

    Args:
        url: An ``http(s)`` address, or a local path (which only a media resolver may open).
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
    """Media as base64 text.

    Args:
        media_type: The MIME type, such as ``image/png``.
        data: The bytes in base64.
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
        raise error(f"{where} is a {type(text).__name__}, not text")
    return well_formed(text, where, error)


Source: TypeAlias = URLSource | Base64Source

# The default input of a call. Blocks copy their input, so this dict never changes.
_NO_INPUT: dict[str, Any] = {}


class _Block:
    """The base of all blocks, which checks their ``type`` and their text fields."""

    __slots__ = ()
    kind: ClassVar[str]
    # The text fields, each with True if it may be None.
    _texts: ClassVar[dict[str, bool]] = {}

    def __init_subclass__(cls) -> None:
        hints = {"str": False, "str | None": True}
        cls._texts = {name: hints[hint] for name, hint in cls.__annotations__.items() if hint in hints}

    def __post_init__(self) -> None:
        given: object = getattr(self, "type", self.kind)
        if given != self.kind:
            raise HistoryError(f"{type(self).__name__} has type {given!r}; its type is {self.kind!r}")
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
    """Return a block of a checked text."""
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
    """The thoughts of a model before its answer.

    Args:
        thinking: The text of the thought.
        signature: The provider's proof that the thought is its own: Anthropic's signature, or the encrypted content of
            OpenAI's reasoning items.
        type: Always ``"thinking"``.
        redacted: The encrypted thought, if only the provider can read it.
        id: The provider's id of the thought, such as the id of an OpenAI reasoning item.
        provider: The provider of the signature, redacted data or id; ``None`` if unknown.
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
    """A tool call of a model.

    Args:
        id: The id of the call, to which its result refers.
        name: The tool.
        input: The arguments; copied.
        type: Always ``"tool_use"``.
        raw_input: The model's text for the arguments if it is not a JSON object (usually because it was cut off).
        signature: Gemini's thought signature in base64, if the call has one.

    Raises:
        HistoryError: The arguments are not a JSON object.
    """

    kind: ClassVar[str] = "tool_use"
    id: str
    name: str
    # JSON values, typed Any so that a function can be called with them: f(**call.input).
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
            raise HistoryError(f"the input of tool call {name!r} is a {input.__class__.__name__}, not a dict")
        object.__setattr__(self, "input", checked_object(input, f"{name}.input", HistoryError))

    @property
    def arguments(self) -> JsonObject:
        """The arguments to send: the input, or the model's text under ``raw_input`` if it is not a JSON object."""
        return self.input if self.raw_input is None else {"raw_input": self.raw_input}

    def own_arguments(self) -> JsonObject:
        """Return a copy of the arguments for a payload."""
        return fresh(self.arguments)


_CallDraft = draft_of(ToolUseBlock)


def call_of(call_id: str, name: str, arguments: dict[str, Any]) -> ToolUseBlock:
    """Return a call with checked fields; the arguments are not copied."""
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
        name: The tool.
        output: Text, or blocks of text and media (or dicts with the same fields).
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
        """The text of the output, without media."""
        return self.output if isinstance(self.output, str) else text_of(self.output)


_ResultDraft = draft_of(ToolResultBlock)


def result_of(call_id: str, name: str, output: str) -> ToolResultBlock:
    """Return a result with checked fields."""
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
    """A block with a media source."""

    source: Source

    def __post_init__(self) -> None:
        _Block.__post_init__(self)
        object.__setattr__(self, "source", _source(self.source, type(self).__name__))

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """Read a file into a block with base64 data. No media resolver is needed.

        Args:
            path: The file; its suffix determines the MIME type.

        Raises:
            MediaError: The file cannot be read, or its suffix has no MIME type.
        """
        # Few users need these modules, which take milliseconds to import.
        from mimetypes import guess_type  # noqa: PLC0415
        from pathlib import Path  # noqa: PLC0415

        media_type = guess_type(Path(path).name)[0]
        if media_type is None:
            raise MediaError(f"{str(path)!r}: its suffix has no known MIME type; build a Base64Source with media_type=")
        try:
            data = read_regular(path, _MOST)
        except OSError as error:
            raise MediaError(f"{str(path)!r} cannot be read: {error.strerror or error}") from error
        return cls._of(Base64Source(media_type, b64encode(data).decode("ascii")), Path(path).name)

    @classmethod
    def _of(cls, source: Base64Source, name: str) -> Self:  # noqa: ARG003 - FileBlock uses the name
        """Return a block with the content of a file."""
        return cls(source)


@read_only
@dataclass(frozen=True, slots=True)
class ImageBlock(_MediaBlock):
    """An image.

    Args:
        source: The content or its address.
        type: Always ``"image"``.
        detail: The level of detail, for models with this setting: ``low``, ``high`` or ``auto``.
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
        source: The content or its address.
        type: Always ``"file"``.
        filename: The name that the model sees.
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
"""All blocks, by their kinds."""
MEDIA_BLOCKS: dict[str, type[MediaBlock]] = {block.kind: block for block in get_args(MediaBlock)}
"""The blocks of media, by their kinds."""
_SOURCES: dict[str, type[Source]] = {"url": URLSource, "base64": Base64Source}


def _source(source: object, block: str) -> Source:
    if isinstance(source, Source):
        return source
    if is_dict(source):
        return source_from(source)
    raise MediaError(f"the source of {block} is a {type(source).__name__}; give a URLSource or Base64Source")


def source_from(source: Mapping[str, object]) -> Source:
    """Return the source with these fields, whose ``type`` names its kind.

    Raises:
        MediaError: The fields don't describe a source.
    """
    kind = source.get("type")
    if not isinstance(kind, str) or kind not in _SOURCES:
        raise MediaError(f"a source has type {kind!r}; known are {', '.join(map(repr, _SOURCES))}")
    return _build(_SOURCES[kind], source, MediaError)


def _build(kind: type[_T], given: Mapping[str, object], error: type[HistoryError | MediaError]) -> _T:
    try:
        return kind(**given)
    except TypeError as fault:
        raise error(f"{kind.__name__} does not fit the fields {', '.join(map(str, given))}: {fault}") from fault


def block_from(item: object, where: str) -> Block:
    """Return a block itself, or the block of a dict whose ``type`` names its kind.

    Args:
        item: The block or dict.
        where: Its name in errors, such as ``history[2].content[0]``.

    Raises:
        HistoryError: The item is neither.
    """
    if isinstance(item, Block):
        return item
    if not is_dict(item):
        raise HistoryError(
            f"{where} is a {type(item).__name__}, not a block such as TextBlock or {{'type': 'text', ...}}"
        )
    kind = item.get("type")
    if not isinstance(kind, str) or kind not in BLOCKS:
        raise HistoryError(f"{where} has type {kind!r}; known are {', '.join(BLOCKS)}{did_you_mean(str(kind), BLOCKS)}")
    return _build(BLOCKS[kind], item, HistoryError)


def block_of_media(source: Source, media_type: str) -> MediaBlock:
    """Return a block of the kind that matches a MIME type; a document if none does."""
    return MEDIA_BLOCKS.get(media_type.partition("/")[0], FileBlock)(source)


def text_of(content: str | Iterable[Block]) -> str:
    """Join the text blocks of a content with newlines; thoughts, calls and media are left out."""
    if isinstance(content, str):
        return content
    return "\n".join(block.text for block in content if isinstance(block, TextBlock))


def _content(content: Sequence[BlockLike], where: str, place: str) -> tuple[Block, ...]:
    if not is_sequence(content):
        raise HistoryError(f"{where} is a {type(content).__name__}; give text or a list of blocks")
    return tuple(block_from(item, f"{place}[{index}]") for index, item in enumerate(content))


@read_only
@dataclass(frozen=True, slots=True, init=False, eq=False)
class Msg:
    """One message of a conversation.

    Two messages are equal if their names, roles, blocks, urls and metadata are. Plain text equals a single text block.

    Args:
        name: The speaker's name, or the role.
        content: Text, or blocks (or dicts with the same fields).
        role: ``system``, ``developer``, ``user``, ``assistant`` or ``tool``.
        url: The address of an image, audio clip or video that belongs to the text, or several.
        metadata: Further JSON values of the message. They are keys in the OpenAI form, and are not in flat text.
        usage: The tokens of the message as a provider reported them: ``prompt_tokens``, ``completion_tokens`` and
            ``total_tokens``. They are never sent.

    Attributes:
        speaker: The name to send; empty if the message was parsed from a form without a speaker's name.
        native: The message in its provider's own form, with the provider: the parts of its content (``anthropic``,
            ``gemini``), the items of an answer (``openai-responses``) or the whole message (``openai``). It is sent to
            that provider unchanged. None if the message was made or changed by hand, or its blocks are equivalent. It
            is ignored in comparisons.

    Raises:
        HistoryError: The role is unknown, the content is neither text nor blocks, or another field has the wrong type.
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
                f"role {role!r} is unknown; known are {', '.join(ROLES)}{did_you_mean(str(role), ROLES)}"
            )
        if metadata is not None and not is_mapping(metadata):
            raise HistoryError(f"the metadata of {name!r} is a {type(metadata).__name__}, not a dict")
        own_content = _message_content(content, name)
        own_metadata = checked_object(metadata, "metadata", HistoryError) if metadata else {}
        own_usage = None if usage is None else dict(usage)
        own_url = None if url is None else _urls(url, name)
        fill(self, (name, own_content, role, own_url, own_metadata, own_usage, name, None))

    def evolve(self, **changes: object) -> Msg:
        """Return a copy with some fields changed and without a native form. The speaker changes with the name only.

        Args:
            **changes: Fields of the constructor.

        Raises:
            HistoryError: A field is invalid, as in the constructor.
        """
        fields = ("name", "content", "role", "url", "metadata", "usage")
        given: Any = {name: getattr(self, name) for name in fields} | changes  # the constructor checks them
        changed = Msg(**given)
        return changed if self.speaker or changed.name != self.name else changed.without_speaker()

    def without_speaker(self) -> Msg:
        """Return a copy without a speaker, whose name is the role."""
        return self.spoken_by("")

    def spoken_by(self, speaker: str) -> Msg:
        """Return a copy with another speaker (``""`` for none); the provider's own form of the message is kept."""
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
        """The addresses of ``url`` as a tuple."""
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
        return well_formed(content, f"the message of {name!r}", HistoryError)
    return _content(content, f"the content of {name!r}", "content")


_MsgDraft = draft_of(Msg)


def text_message(text: str, role: Role) -> Msg:
    """Return a message of a checked text, without a speaker."""
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
    """Return a message with checked fields; a name equal to the role is not a speaker."""
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


# The number of keys of a message with a role and a content only.
_BARE = 2


def plain_message(fields: dict[str, Any]) -> Msg | None:
    """Return the message of a dict with a role and a text, or with a tool result that is a text, as most are.

    Returns:
        The message; None for any other dict, and for an invalid one.
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
    where = f"the url of the message of {name!r}"
    if isinstance(url, str):
        return _text(url, where)
    if not is_sequence(url):
        raise HistoryError(f"{where} is a {type(url).__name__}; give text or a list of it")
    return tuple(_text(each, where) for each in url)
