"""What pictures, sounds, videos and documents count: a safe estimate for any model, without ever asking a network.

Media are found in the parts of all providers' forms. Sizes are read from the bytes where a part holds them; where it
only names an address, a picture counts the most that the rule allows, and anything else a usual length.
"""

from __future__ import annotations

import re
import struct
from binascii import a2b_base64
from io import BytesIO
from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from lazyprompt.tokens._pictures import Tiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lazyprompt.tokens.said import Form

# Pictures count as GPT-4o has them at high detail.
_PICTURE: Final = Tiles(85, 170)
# Gemini's guide "Understand and count tokens": a second of sound is 32 tokens, one of video 263, and it hears both.
# OpenAI counts 10 for a second of sound (its guide "Managing costs" of the Realtime API).
_SOUND_SECOND: Final = 32
_VIDEO_SECOND: Final = 263 + _SOUND_SECOND
# How long bytes last where they do not say so: speech as MP3 or AAC has 64 kbit/s and more, video 1 Mbit/s and more.
_SOUND_RATE: Final = 8_000
_VIDEO_RATE: Final = 125_000
_USUAL_SECONDS: Final = 60
# Anthropic's guide "PDF support": a page is 1,500 to 3,000 tokens of text.
_PAGE: Final = 3_000
_USUAL_PAGES: Final = 10
# A page where a document does not say how many it has: one of printed text, its fonts left out.
_PAGE_BYTES: Final = 20_000
# English has about four bytes to a token, Chinese about two and a half: texts count with the safer of the two.
_TEXT_BYTES: Final = 2

# Most formats of pictures tell their size in the head, JPEG behind what cameras say of themselves, a few anywhere.
_HEADS: Final = (1_024, 65_536, 1 << 40)
# How much of a document's packed parts is looked at.
_UNPACKED: Final = 16_777_216
_URLSAFE: Final = str.maketrans("-_", "+/", " \t\r\n")
_PLAIN_PAGE: Final = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
_PACKED: Final = re.compile(rb"/ObjStm\b.{0,400}?\bstream\r?\n", re.DOTALL)
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
# Shorter text without a scheme is a path or the id of a file; only pictures are given as base64 this short.
_BASE64_LEAST: Final = 1024
_TEXT_TYPES: Final = ("text/", "application/json", "application/xml")

# The keys and types of parts, and what they hold; the MIME type tells it better where there is one.
_KINDS: Final[Mapping[str, str]] = {
    form.format(word): kind
    for word, kind in (
        ("image", "image"),
        ("audio", "audio"),
        ("video", "video"),
        ("file", "file"),
        ("document", "file"),
    )
    for form in ("{}", "{}_url", "{}_data", "input_{}")
} | {"images": "image", "inline_data": "file", "inlineData": "file", "fileData": "file"}
_TYPES: Final = ("media_type", "mime_type", "mimeType", "format")
# Where an object holds a medium, the content itself before its address.
_HOLDERS: Final = (
    *("data", "bytes", "file_data", "content", "source"),
    *("url", "file_uri", "fileUri", "file_url", "image_url", "file_id"),
)


class Medium(NamedTuple):
    """One medium of a part: what it is, and its content where that is there."""

    kind: str
    media_type: str = ""
    # Base64, or bytes; None where there is but an address.
    data: str | bytes | None = None
    # The text of a document that is given as text.
    text: str | None = None
    detail: str = ""


def media_tokens(part: Form) -> int:
    """About how many tokens the media of a part are, for any model.

    Args:
        part: A part in any provider's form; an unknown one counts like a document at an address.

    Returns:
        Pictures by the tiles of OpenAI, sounds and videos by their length, documents by their pages.
    """
    return sum(medium_tokens(medium) for medium in media_in(part))


def medium_tokens(medium: Medium) -> int:
    """About how many tokens one medium is, for any model.

    Args:
        medium: The medium.

    Returns:
        The number; never 0.
    """
    match medium.kind:
        case "image":
            return _PICTURE.tokens(image_size(medium))
        case "audio":
            seconds = _USUAL_SECONDS if medium.data is None else _sound_seconds(medium.data)
            return max(1, ceil(seconds * _SOUND_SECOND))
        case "video":
            seconds = _USUAL_SECONDS if medium.data is None else ceil(_size(medium.data) / _VIDEO_RATE)
            return max(1, seconds) * _VIDEO_SECOND
        case _:
            return _document_tokens(medium)


def image_size(medium: Medium) -> tuple[int, int] | None:
    """Width and height of a picture.

    Args:
        medium: The picture.

    Returns:
        The pixels, or None where only an address is known or the bytes tell none.
    """
    if medium.data is None:
        return None
    import imagesize  # type: ignore[import-untyped]  # noqa: PLC0415 - it has no types; only pictures need it

    measure = cast("Callable[[BytesIO], tuple[float, float]]", imagesize.get)  # pyright: ignore[reportUnknownMemberType]
    for most in _HEADS:
        content = _content(medium.data, most)
        try:
            width, height = measure(BytesIO(content))
        except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, struct.error):
            # Older versions of the library raise what later ones tell as -1: that the bytes are no picture.
            width = height = -1
        if width > 0 and height > 0:
            return ceil(width), ceil(height)
        if len(content) < most:
            break
    return None


def media_in(part: Form) -> list[Medium]:
    """The media of a part.

    Args:
        part: A part in the form of OpenAI, Anthropic, Gemini, DashScope or another provider; a message of Ollama
            with its ``images`` is one too.

    Returns:
        At least one: a part that holds nothing known is a document at an address.
    """
    told = _KINDS.get(_text(part.get("type")))
    detail = part.get("detail")
    found = [
        medium
        for key, value in part.items()
        if key in _KINDS or key == "source"
        for medium in _media(value, Medium(told or _KINDS.get(key, "file"), detail=_text(detail)))
    ]
    return found or [Medium(told or "file")]


def _media(value: object, known: Medium) -> Iterator[Medium]:
    """The media that a value holds, with what is known of them so far."""
    match value:
        case None:
            return
        case bytes():
            yield known._replace(data=value)
        case str():
            yield _of_text(value, known)
        case dict():
            yield from _of_object(cast("Mapping[str, object]", value), known)
        case list() | tuple():
            # A video given as its single pictures.
            each = known._replace(kind="image") if known.kind == "video" else known
            for item in cast("Sequence[object]", value):
                yield from _media(item, each)
        case _:
            yield known


def _of_object(value: Mapping[str, object], known: Medium) -> Iterator[Medium]:
    media_type = next((_text(value[key]) for key in _TYPES if value.get(key)), known.media_type)
    known = known._replace(media_type=media_type, kind=_kind(media_type, known.kind))
    if value.get("detail"):
        known = known._replace(detail=_text(value["detail"]))
    holder = next((key for key in _HOLDERS if value.get(key)), None)
    given = value[holder] if holder else value.get("text")
    if isinstance(given, str) and (value.get("type") == "text" or holder in {None, "content"}):
        yield known._replace(text=given)
    elif isinstance(given, str) and holder in {"data", "bytes"} and not given.startswith("data:"):
        yield known._replace(data=given)
    elif holder == "content" and isinstance(given, list | tuple):
        # A document of Anthropic's form that is made of blocks.
        for block in cast("Sequence[object]", given):
            if isinstance(block, dict):
                inner = cast("Form", block)
                yield from _media(inner, known) if inner.get("type") == "text" else media_in(inner)
    else:
        yield from _media(given, known) if holder else (known,)


def _of_text(value: str, known: Medium) -> Medium:
    """A medium given as an address; a ``data:`` address, and base64 without one, is the medium itself."""
    if value[:5].lower() == "data:":
        head, _, data = value.partition(",")
        media_type = head[5:].partition(";")[0].lower()
        kind = _kind(media_type, known.kind)
        # Any other data: address is percent-encoded text, which no provider takes.
        content = data if head.endswith(";base64") else None
        return known._replace(kind=kind, media_type=media_type or known.media_type, data=content)
    if not _SCHEME.match(value[:64]) and (known.kind == "image" or len(value) >= _BASE64_LEAST):
        return known._replace(data=value)
    return known


def _kind(media_type: str, known: str) -> str:
    kind = media_type.partition("/")[0]
    return kind if kind in {"image", "audio", "video"} else known


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _size(data: str | bytes) -> int:
    """How many bytes a content has."""
    return len(data) * 3 // 4 - data[-2:].count("=") if isinstance(data, str) else len(data)


def _content(data: str | bytes, most: int = _HEADS[-1]) -> bytes:
    """A content as bytes, or its beginning; nothing where it is no base64."""
    if isinstance(data, bytes):
        return data[:most]
    # Four signs of base64 are three bytes.
    signs = data[: -(-most // 3) * 4].translate(_URLSAFE).rstrip("=")
    try:
        return a2b_base64(signs + "=" * (-len(signs) % 4))
    except ValueError:
        # It cannot be measured, so it counts as what is at an address.
        return b""


def _sound_seconds(data: str | bytes) -> float:
    rate = _wav_rate(_content(data, _HEADS[1])) or _SOUND_RATE
    return _size(data) / rate


def _wav_rate(head: bytes) -> int:
    """The bytes in a second of a WAV file; 0 where it is none."""
    if head[:4] != b"RIFF":
        return 0
    import wave  # noqa: PLC0415 - only sounds need it

    try:
        with wave.open(BytesIO(head)) as sound:
            # The number of frames it tells is not looked at: of a sound made piece by piece it is wrong.
            return int(sound.getframerate() * sound.getnchannels() * sound.getsampwidth())
    except (wave.Error, EOFError):
        # A codec that the standard library does not know.
        return 0


def _document_tokens(medium: Medium) -> int:
    if medium.text is not None:
        return max(1, ceil(len(medium.text.encode("utf-8", "surrogatepass")) / _TEXT_BYTES))
    if medium.data is None:
        return _USUAL_PAGES * _PAGE
    if medium.media_type.startswith(_TEXT_TYPES):
        return max(1, ceil(_size(medium.data) / _TEXT_BYTES))
    return _pages(medium.data) * _PAGE


def _pages(data: str | bytes) -> int:
    """How many pages a document has: those that a PDF lists, else by its size."""
    content = _content(data)
    pages = 0
    if b"%PDF-" in content[:1024]:
        import zlib  # noqa: PLC0415 - only documents need it

        pages = len(_PLAIN_PAGE.findall(content))
        left = _UNPACKED
        for packed in _PACKED.finditer(content):
            stream = content[packed.end() : content.find(b"endstream", packed.end())]
            try:
                unpacked = zlib.decompressobj().decompress(stream, max(1, left))
            except zlib.error:
                # Encrypted, or packed by other means.
                continue
            left -= len(unpacked)
            pages += len(_PLAIN_PAGE.findall(unpacked))
    return pages or max(1, ceil(_size(data) / _PAGE_BYTES))
