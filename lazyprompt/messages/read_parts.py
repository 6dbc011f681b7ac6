"""Parses content parts from all providers into blocks, with a table of parsers by part type.

The formats are documented in the API references of OpenAI (Chat Completions and Responses) and Anthropic (Messages),
and in LangChain's standard content blocks.
"""

from __future__ import annotations

from base64 import b64encode
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from lazyprompt._base.client_objects import fields_of, plain_fields, standard_base64
from lazyprompt._base.json import Fields, JsonObject, checked_object, is_dict, is_list, is_sequence, is_well_formed
from lazyprompt.errors import HistoryError
from lazyprompt.messages.msg import (
    BLOCKS,
    MEDIA_BLOCKS,
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
    VideoBlock,
    block_from,
    plain_block,
    source_from,
)
from lazyprompt.messages.openai_form import source_of

if TYPE_CHECKING:
    from collections.abc import Callable

# Maps the path of a content part to the part's fields that no block type can represent.
Beside: TypeAlias = dict[str, JsonObject]


def text_in(value: object, where: str) -> str:
    """Return a string unchanged, or an empty string for ``None``.

    Raises:
        HistoryError: The value is not a string.
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        raise HistoryError(f"{where} must be a string, not {type(value).__name__}")
    return str.__str__(value)


def text_at(fields: Fields, key: str, where: str) -> str:
    """Return the string value of a key, or an empty string if the key is missing or its value is ``None``.

    Raises:
        HistoryError: The value is not a string.
    """
    value = fields.get(key)
    if value is None:
        return ""
    # For speed, format the value's name for error messages only if the value is not a plain string.
    return value if type(value) is str else text_in(value, f"{where}.{key}")


def needed_text(value: object, where: str) -> str:
    """Return the value of a field after checking that it is a non-empty string.

    Raises:
        HistoryError: The value is None, empty or not a string.
    """
    text = text_in(value, where)
    if not text:
        raise HistoryError(f"{where} is missing or empty")
    return text


def base64_in(value: object, where: str) -> str:
    """Return bytes or base64 text as standard base64, or an empty string for ``None``.

    Raises:
        HistoryError: The value is neither a string nor bytes.
    """
    return standard_base64(value if isinstance(value, bytes) else text_in(value, where))


def list_in(value: object, where: str) -> list[object]:
    """Return a sequence as a list, or an empty list for ``None``.

    Raises:
        HistoryError: The value is not a list or tuple.
    """
    if value is None:
        return []
    if not is_sequence(value):
        raise HistoryError(f"{where} must be a list, not {type(value).__name__}")
    return list(value)


def object_in(value: object, where: str) -> dict[str, object]:
    """Return the fields of a dict or of an object from a provider's client library.

    Raises:
        HistoryError: The value is neither a dict nor an object from a client library.
    """
    if is_dict(value):
        return value
    fields = plain_fields(value)
    if fields is None:
        raise HistoryError(f"{where} must be a dict, not {type(value).__name__}")
    return fields


def are_parts(content: object) -> bool:
    """Return True for a list of content parts, False for all other values, such as a tool's structured output."""
    return is_list(content) and all(is_dict(part) and ("type" in part or _is_untyped(part)) for part in content)


def read_parts(content: object, where: str, beside: Beside) -> tuple[Block, ...]:
    """Parse message content into blocks.

    Args:
        content: A string, or a list of parts, which may be dicts, blocks, or objects from a provider's client library.
        where: The content's name in error messages, such as ``history[3].content``.
        beside: A dict that collects the fields that no block can express, and the parts of unknown types.

    Raises:
        HistoryError: A part is invalid.
    """
    if content is None or content == "":
        return ()
    if isinstance(content, str):
        text = str.__str__(content)
        return (plain_block(text) if is_well_formed(text) else TextBlock(text),)
    parts: Any = content if content.__class__ is list else list_in(content, where)
    blocks = [read_part(part, f"{where}[{index}]", beside) for index, part in enumerate(parts)]
    return tuple([block for block in blocks if block is not None])


def read_part(part: Any, where: str, beside: Beside) -> Block | None:  # noqa: ANN401 - a part may be of any type
    """Parse a content part. For a part of an unknown type, return None and add the part to ``beside``."""
    # A fast path for parts that contain only a type and text, which are the most common parts.
    if part.__class__ is dict and len(part) == 2 and part.get("type") == "text":  # noqa: PLR2004 - type and text
        text = part.get("text")
        if type(text) is str and is_well_formed(text):
            return plain_block(text)
    given = part if is_dict(part) else plain_fields(part)
    if given is None:
        return block_from(part, where)
    fields = {key: value for key, value in given.items() if value is not None}
    if not isinstance(fields.get("type"), str):
        return _read_untyped(fields, where, beside) if _is_untyped(given) else block_from(fields, where)
    kind = str(fields["type"])
    block: Block | None = None
    if _is_of_one_service(fields):
        pass
    elif kind in _READERS:
        del fields["type"]
        block = _READERS[kind](fields, where, beside)
    elif kind in BLOCKS:
        own = {key: fields.pop(key) for key in BLOCKS[kind].__match_args__ if key in fields}
        block = block_from(own, where)
    _keep_rest(fields, block, where, beside)
    return block


def _keep_rest(fields: Fields, block: Block | None, where: str, beside: Beside) -> None:
    """Copy each field of a content part that the parsed block lacks to the dict ``beside``."""
    if rest := {key: value for key, value in fields.items() if block is None or value not in ("", [], {})}:
        # Remove the message's index from the path, so that equal messages have equal metadata.
        place = where.partition("].")[2] or where
        beside[place] = checked_object(rest, where, HistoryError)


def _is_untyped(part: Fields) -> bool:
    """Return True for a DashScope part, which has no ``type``: its first key determines the type."""
    key = next(iter(part), None)
    value: object = part[key] if key in _UNTYPED else 0
    return isinstance(value, str) or (key == "text" and value is None)


def _read_untyped(fields: dict[str, object], where: str, beside: Beside) -> Block | None:
    key = next((key for key, value in fields.items() if key in _UNTYPED and isinstance(value, str)), "text")
    block = _UNTYPED[key](fields.pop(key, ""))
    _keep_rest(fields, block, where, beside)
    return block


_UNTYPED: dict[str, Callable[[Any], Block]] = {
    "text": TextBlock,
    "image": lambda address: ImageBlock(source_of(address)),
    "audio": lambda address: AudioBlock(source_of(address)),
    "video": lambda address: VideoBlock(source_of(address)),
}


def _is_of_one_service(fields: Fields) -> bool:
    """Return True if a part refers to an uploaded file by its id, which is valid only for one provider."""
    inner = (fields.get("source"), fields.get("file"))
    return bool(fields.get("file_id")) or any(isinstance(each, dict) and "file_id" in each for each in inner)


# A function that parses a part and removes the parsed fields. The remaining fields are stored as metadata.
_Reader: TypeAlias = "Callable[[dict[str, object], str, Beside], Block]"


def _read_text(part: dict[str, object], where: str, _: Beside) -> Block:
    return block_from({"type": "text", "text": part.pop("text", None)}, where)


def _read_call(part: dict[str, object], where: str, _: Beside) -> Block:
    call_id, name = (needed_text(part.pop(key, None), f"{where}.{key}") for key in ("id", "name"))
    return ToolUseBlock(call_id, name, object_in(part.pop("args", None) or {}, f"{where}.args"))


def _read_refusal(part: dict[str, object], where: str, _: Beside) -> Block:
    return TextBlock(text_in(part.pop("refusal", None), f"{where}.refusal"))


def _read_redacted(part: dict[str, object], where: str, _: Beside) -> Block:
    return ThinkingBlock(redacted=needed_text(part.pop("data", None), f"{where}.data"), provider="anthropic")


def _read_reasoning(part: dict[str, object], where: str, _: Beside) -> Block:
    signature = fields_of(part.get("extras")).get("signature")
    text = text_in(part.pop("reasoning", None), f"{where}.reasoning")
    return ThinkingBlock(text, text_in(signature, f"{where}.extras.signature") or None)


def _read_result(part: dict[str, object], where: str, beside: Beside) -> Block:
    if "tool_use_id" not in part:
        block = block_from({"type": "tool_result", **part}, where)
        part.clear()
        return block
    content = part.pop("content", None)
    return ToolResultBlock(
        needed_text(part.pop("tool_use_id"), f"{where}.tool_use_id"),
        output=content if isinstance(content, str) else read_parts(content, f"{where}.content", beside),
        is_error=part.pop("is_error", False) is True,
    )


def _read_document(part: dict[str, object], where: str, _: Beside) -> Block:
    source = object_in(part.pop("source", None), f"{where}.source")
    title = text_in(part.pop("title", None), f"{where}.title") or None
    kind = source.get("type")
    if kind == "text" or (kind == "content" and isinstance(source.get("content"), str)):
        content = text_in(source.get("data", source.get("content")), f"{where}.source.data")
        return FileBlock(Base64Source("text/plain", b64encode(content.encode()).decode("ascii")), filename=title)
    if kind not in ("base64", "url"):
        raise HistoryError(f"{where}.source has the type {kind!r}; expected 'base64', 'url' or 'text'")
    return FileBlock(source_from(source), filename=title)


def _read_medium(part: dict[str, object], where: str, _: Beside, kind: str) -> Block:
    """Parse a media block with a ``source``, or a media part from LangChain or transformers.

    In transformers, the key of the URL is ``url``, ``path`` or the part's type. A part without a URL is a placeholder
    for media that is passed separately. The format is documented in transformers' guide "Multimodal templates" and in
    ``ProcessorMixin.apply_chat_template``.
    """
    if "source" in part:
        block = block_from({"type": kind, **part}, where)
        part.clear()
        return block
    part.pop("source_type", None)
    media_type = text_in(part.pop("mime_type", None), f"{where}.mime_type")
    key = "base64" if part.get("base64") else "data"
    data = base64_in(part.pop(key, None), f"{where}.{key}")
    if data:
        return MEDIA_BLOCKS[kind](Base64Source(needed_text(media_type, f"{where}.mime_type"), data))
    addresses = [text_in(part.pop(key, None), f"{where}.{key}") for key in ("url", "path", kind)]
    address = next(filter(None, addresses), "")
    if part or kind == "file":
        needed_text(address, f"{where}.url (or base64, or source)")
    return MEDIA_BLOCKS[kind](source_of(address))


def _read_url(part: dict[str, object], where: str, _: Beside, kind: str) -> Block:
    """Parse a part such as ``{"type": "video_url", "video_url": {"url": ...}}`` or ``{..., "video_url": "..."}``."""
    key = f"{kind}_url"
    given, place = part.pop(key, None), f"{where}.{key}"
    url = given if isinstance(given, str) else object_in(given, place).get("url")
    return MEDIA_BLOCKS[kind](source_of(needed_text(url, f"{place}.url")))


def _read_document_url(part: dict[str, object], where: str, _: Beside) -> Block:
    """Parse a document part in Mistral's format."""
    name = text_in(part.pop("document_name", None), f"{where}.document_name") or None
    return FileBlock(source_of(needed_text(part.pop("document_url", None), f"{where}.document_url")), filename=name)


def _read_image_url(part: dict[str, object], where: str, _: Beside) -> Block:
    given, where = part.pop("image_url", None), f"{where}.image_url"
    image = {"url": given} if isinstance(given, str) else object_in(given, where)
    source = source_of(needed_text(image.get("url"), f"{where}.url"))
    return ImageBlock(source, detail=text_at(image, "detail", where) or None)


def _read_input_image(part: dict[str, object], where: str, _: Beside) -> Block:
    detail = text_in(part.pop("detail", None), f"{where}.detail")
    source = source_of(needed_text(part.pop("image_url", None), f"{where}.image_url"))
    return ImageBlock(source, detail=None if detail in ("", "auto") else detail)


def _read_audio(part: dict[str, object], where: str, _: Beside) -> Block:
    given = part.pop("input_audio", None)
    if isinstance(given, str):
        # Mistral's `input_audio` is a string that contains base64 data or a URL.
        kind = "wav" if given.startswith("UklG") else "mpeg"
        return AudioBlock(URLSource(given) if "://" in given else Base64Source(f"audio/{kind}", given))
    audio = object_in(given, f"{where}.input_audio")
    kind = text_in(audio.get("format"), f"{where}.input_audio.format") or "wav"
    data = needed_text(audio.get("data"), f"{where}.input_audio.data")
    return AudioBlock(Base64Source(f"audio/{'mpeg' if kind == 'mp3' else kind}", data))


def _read_file(part: dict[str, object], where: str, beside: Beside) -> Block:
    if "file" not in part:
        return _read_medium(part, where, beside, "file")
    file = object_in(part.pop("file"), f"{where}.file")
    data = text_in(file.get("file_data"), f"{where}.file.file_data")
    if not data:
        raise HistoryError(f"{where}.file must contain 'file_data' or 'file_id'")
    return FileBlock(source_of(data), filename=text_in(file.get("filename"), f"{where}.file.filename") or None)


def _read_input_file(part: dict[str, object], where: str, _: Beside) -> Block:
    name = text_in(part.pop("filename", None), f"{where}.filename") or None
    address = needed_text(part.pop("file_data", None) or part.pop("file_url", None), f"{where}.file_data (or file_url)")
    return FileBlock(source_of(address), filename=name)


_READERS: dict[str, _Reader] = {
    "input_text": _read_text,
    "output_text": _read_text,
    "refusal": _read_refusal,
    "redacted_thinking": _read_redacted,
    "reasoning": _read_reasoning,
    "tool_call": _read_call,
    "tool_result": _read_result,
    "document": _read_document,
    **{kind: partial(_read_medium, kind=kind) for kind in ("image", "audio", "video")},
    "image_url": _read_image_url,
    **{f"{kind}_url": partial(_read_url, kind=kind) for kind in ("audio", "video", "file")},
    "document_url": _read_document_url,
    "input_image": _read_input_image,
    "input_audio": _read_audio,
    "file": _read_file,
    "input_file": _read_input_file,
}
PART_TYPES = frozenset({*_READERS, *BLOCKS})
"""The part types that can be parsed into blocks."""
