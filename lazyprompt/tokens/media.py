"""Estimates token counts for images, audio, video and documents, without network access.

For images, OpenAI publishes rules for calculating the token count. The estimates for audio, video and documents use
high token rates from the documentation of Gemini and Anthropic.

Media are detected in content parts in any provider's format. The dimensions of an image are read from its bytes. The
length of audio, video and documents is estimated from the number of bytes. An image at a URL is assumed to cost the
maximum under the model's rule; other media at a URL are assumed to have a typical length.

Source of the rules: the sections "Model sizing behavior" and "Calculating costs" in OpenAI's guide "Images and vision"
(developers.openai.com/api/docs/guides/images-vision), as of summer 2026, before GPT-6. For models that OpenAI's guide
no longer lists, the rules are from older versions of the guide. The GPT-6 rule is based on measurements
(huggingface.co/datasets/JOHNISKING/image-token-cost).
"""

from __future__ import annotations

import re
import struct
from binascii import a2b_base64
from io import BytesIO
from math import ceil, floor, sqrt
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from lazyprompt._base.json import is_dict, is_sequence
from lazyprompt.errors import import_extra
from lazyprompt.tokens.counter import MEDIA_KINDS, Form

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


Size: TypeAlias = "tuple[int, int] | None"


class _Rate(NamedTuple):
    """The assumed token rate of a kind of media.

    Attributes:
        tokens: The number of tokens per second of audio or video, or per page of a document.
        size: The assumed number of bytes per second of audio or video, or per page of a document.
        usual: The assumed length of a file at a URL, in seconds or pages.
    """

    tokens: int
    size: int
    usual: int


_RATES: Final = {
    # Gemini's guide "Understand and count tokens" states 32 tokens per second of audio and 263 per second of video.
    # OpenAI's rate for audio is only 10 tokens per second (Realtime API, "Managing costs").
    # Low assumed bit rates make the counts high: 64 kbit/s for speech (MP3 or AAC) and 1 Mbit/s for video.
    "audio": _Rate(32, 8_000, 60),
    # The assumed WAV format is uncompressed 16-bit mono audio at 16 kHz.
    "wav": _Rate(32, 32_000, 60),
    "video": _Rate(263 + 32, 125_000, 60),
    # Anthropic's guide "PDF support" states 1,500 to 3,000 text tokens per page.
    # The assumed number of bytes per page matches a PDF page of text without embedded fonts.
    "file": _Rate(3_000, 20_000, 10),
}
# The assumed bytes per token, below the average for English (about 4) and Chinese (about 2.5) to avoid underestimates.
_TEXT_BYTES: Final = 2

# How many bytes to read to find an image's dimensions, which follow the metadata in JPEG files.
_HEADS: Final = (1_024, 65_536, 1 << 40)
_URLSAFE: Final = str.maketrans("-_", "+/", " \t\r\n")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
# The minimum length of a string that is read as base64 outside data: URLs, in characters.
# A shorter string is read as base64 if it is an image, and as a path or file id otherwise.
_BASE64_LEAST: Final = 1024
_TEXT_TYPES: Final = ("text/", "application/json", "application/xml")

# Maps a media part's key to the kind of media. A MIME type takes precedence. Ollama's key is "images".
_KINDS: Final = {**MEDIA_KINDS, "images": "image"}
_TYPES: Final = ("media_type", "mime_type", "mimeType", "format")
# The keys for a media object's content or URL. Content keys come first, because content takes precedence.
_HOLDERS: Final = (
    *("data", "bytes", "file_data", "content", "source"),
    *("url", "file_uri", "fileUri", "file_url", "image_url", "file_id"),
)


class CountedMedia(NamedTuple):
    """An image, audio, video or document in a content part.

    Attributes:
        kind: The kind of media, which is ``image``, ``audio``, ``video`` or ``file``.
        media_type: The MIME type; empty if unknown.
        data: The content, as base64 or bytes; None for a URL.
        text: The content of a text document; None for other media.
        detail: The value of OpenAI's ``detail`` setting for an image.
    """

    kind: str
    media_type: str = ""
    data: str | bytes | None = None
    text: str | None = None
    detail: str = ""


_BOX: Final = 2048
_SHORT: Final = 768
_TILE: Final = 512
_MOST_TILES: Final = 8
_PATCH: Final = 32
# The tolerance for floating-point errors when rounding.
_DUST: Final = 1e-9


class Tiles(NamedTuple):
    """A rule with a base cost and a cost per tile of 512 x 512 px; low detail costs only the base."""

    base: int
    each: int

    def tokens(self, size: Size, detail: str = "auto") -> int:
        """Return the token count for an image, or the rule's maximum if the image's size is unknown."""
        if detail == "low":
            return self.base
        return self.base + self.each * (_MOST_TILES if size is None else tiles(*size))


class Limit(NamedTuple):
    """The limits to which an image is scaled down.

    Attributes:
        side: The maximum length of the longer side, in pixels; 0 for no limit.
        patches: The maximum number of patches; 0 for no limit.
    """

    side: int = 0
    patches: int = 0


_OLD: Final = Limit(2048, 1_536)
_HIGH: Final = Limit(2048, 2_500)
_SMALL: Final = Limit(512)
# The largest size limit for images. For models without a limit, this size is assumed for images of unknown size.
_LARGE: Final = Limit(6000, 10_000)
_BROAD: Final = Limit(2048, 6_144)


class Patches(NamedTuple):
    """A rule with a cost per patch of 32 x 32 px; the size limit depends on the detail level."""

    factor: float
    high: Limit
    low: Limit | None = None
    original: Limit | None = None
    auto: str = "high"

    def tokens(self, size: Size, detail: str = "auto") -> int:
        """Return the token count for an image, or the rule's maximum if the image's size is unknown."""
        asked = detail if detail in {"low", "high", "original"} else self.auto
        limit = {"low": self.low, "original": self.original}.get(asked) or self.high
        most = limit.patches or min(_LARGE.patches, ceil((limit.side or _LARGE.side) / _PATCH) ** 2)
        return ceil((most if size is None else patches(*size, limit)) * self.factor - _DUST)


def tiles(width: int, height: int) -> int:
    """Return the number of 512 x 512 px tiles in an image at high detail.

    The image is scaled down to fit 2048x2048 px, and then until its shorter side is 768 px. Images are never enlarged.
    According to OpenAI's guide, scaling to 2048x2048 px rounds to the nearest pixel, and scaling to 768 px rounds down.
    Billed token counts confirm the rounding: an image of 2049x513 px costs 8 tiles, and an image of 2050x513 px costs 4
    (community.openai.com/t/1281361).

    Args:
        width: The width in pixels.
        height: The height in pixels.

    Returns:
        The number of tiles, from 1 to 8.
    """
    width, height = _within(width, height, _BOX)
    short, long = sorted((width, height))
    if short > _SHORT:
        short, long = _SHORT, long * _SHORT // short
    return ceil(short / _TILE) * ceil(long / _TILE)


def patches(width: int, height: int, limit: Limit) -> int:
    """Return the number of 32 x 32 px patches in an image after it is scaled down to a limit.

    Args:
        width: The width in pixels.
        height: The height in pixels.
        limit: The maximum side length in pixels and the maximum number of patches, from the model's image rule.

    Returns:
        The number of patches.
    """
    if limit.side:
        width, height = _within(width, height, limit.side)
    count = ceil(width / _PATCH) * ceil(height / _PATCH)
    if not limit.patches or count <= limit.patches:
        return count
    scale = sqrt(_PATCH * _PATCH * limit.patches / (width * height))
    # Scale one side to whole patches, so that a partial patch on the other side can't exceed the limit.
    sides = [side * scale / _PATCH for side in (width, height)]
    scale *= min(floor(side + _DUST) / side if side >= 1 else 1 for side in sides)
    width, height = (max(1, floor(side * scale + _DUST)) for side in (width, height))
    return min(limit.patches, ceil(width / _PATCH) * ceil(height / _PATCH))


def _within(width: int, height: int, side: int) -> tuple[int, int]:
    """Scale dimensions down until the longer side is within a limit."""
    longer = max(width, height)
    if longer <= side:
        return width, height
    return max(1, round(width * side / longer)), max(1, round(height * side / longer))


_NEWEST: Final = Patches(1.2, Limit(0, 2_500), _SMALL, Limit(), auto="original")
_GPT_4O_MINI: Final = Tiles(2833, 5667)

# Image rules by model name prefix. The longest matching prefix applies.
_RULES: Final[Mapping[str, Tiles | Patches]] = {
    "gpt-4": Tiles(85, 170),
    "gpt-4o": Tiles(85, 170),
    "gpt-4o-mini": _GPT_4O_MINI,
    "chatgpt-4o": Tiles(85, 170),
    "gpt-4.1": Tiles(85, 170),
    "gpt-4.1-mini": Patches(1.62, _BROAD),
    "gpt-4.1-nano": Patches(2.46, _OLD),
    "gpt-4.5": Tiles(85, 170),
    "o1": Tiles(75, 150),
    "o3": Tiles(75, 150),
    "o4-mini": Patches(1.72, _OLD),
    "computer-use-preview": Tiles(65, 129),
    "gpt-5": Tiles(70, 140),
    "gpt-5-mini": Patches(1.2, _OLD),
    "gpt-5-nano": Patches(1.5, _OLD),
    "gpt-5-codex-mini": Patches(1.62, _OLD),
    "gpt-5.1": Tiles(70, 140),
    "gpt-5.1-codex-mini": Patches(1.62, _OLD),
    "gpt-5.2": Patches(1.2, _BROAD),
    "gpt-5.3": Patches(1.2, _BROAD),
    "gpt-5.4": Patches(1.2, _HIGH, _BROAD, _LARGE),
    "gpt-5.5": Patches(1.2, _HIGH, _SMALL, _LARGE, auto="original"),
    "gpt-5.6": Patches(1.2, _HIGH, _SMALL, Limit(65_535), auto="original"),
    "gpt-5.": _NEWEST,
    "gpt-6": _NEWEST,
    # Among the models with the cl100k_base encoding, only GPT-4 models accept images.
    "cl100k_base": Tiles(85, 170),
}
# All image rules except GPT-4o mini's, whose higher token counts apply only to billing (pypi.org/project/pictoken).
_KNOWN: Final = tuple(rule for rule in dict.fromkeys(_RULES.values()) if rule is not _GPT_4O_MINI)


def rule_for(model: str) -> Tiles | Patches | None:
    """Return the rule that determines how many tokens an image costs for a model.

    Args:
        model: The name of an encoding or model. The model may be fine-tuned, and the name may contain a date.

    Returns:
        The model's rule for image tokens, or None for an unknown model.
    """
    name = model.removeprefix("ft:")
    found = max((known for known in _RULES if name.startswith(known)), key=len, default=None)
    return None if found is None else _RULES[found]


def picture_tokens(rule: Tiles | Patches | None, size: Size, detail: str = "auto") -> int:
    """Return the token count for an image.

    Args:
        rule: The image rule returned by :func:`rule_for`.
        size: The width and height in pixels; None if unknown.
        detail: The detail level, which is ``low``, ``high``, ``original`` or ``auto``.

    Returns:
        The token count; for an unknown model, the highest count for any known model.
    """
    return rule.tokens(size, detail) if rule else max(known.tokens(size, detail) for known in _KNOWN)


# The image rule for other providers' models, which is GPT-4o's rule at high detail.
_PICTURE: Final = Tiles(85, 170)


def estimate_media_tokens(part: Form) -> int:
    """Estimate the token count of all media in a content part, for any model.

    Args:
        part: A content part in any provider's format. A part in an unknown format is treated as a document of unknown
            length.

    Returns:
        The sum of the estimates; images are estimated with OpenAI's tile rule, other media from their size in bytes.
    """
    return sum(estimate_tokens(medium) for medium in media_in(part))


def estimate_tokens(medium: CountedMedia) -> int:
    """Estimate the token count of a single media file, for any model.

    Args:
        medium: The media file.

    Returns:
        The estimated token count, which is at least 1.
    """
    if medium.kind == "image":
        return _PICTURE.tokens(image_size(medium))
    is_wav = medium.kind == "audio" and medium.media_type.endswith(("wav", "wave"))
    rate, data = _RATES["wav" if is_wav else medium.kind], medium.data
    if medium.kind == "file" and (medium.text is not None or (data and medium.media_type.startswith(_TEXT_TYPES))):
        size = _size(data or "") if medium.text is None else len(medium.text.encode("utf-8", "surrogatepass"))
        return max(1, ceil(size / _TEXT_BYTES))
    if data is None:
        return rate.usual * rate.tokens
    return max(1, ceil(_size(data) / rate.size)) * rate.tokens


def image_size(medium: CountedMedia) -> tuple[int, int] | None:
    """Return the width and height of an image, in pixels.

    Args:
        medium: The image.

    Returns:
        The width and height, or None for an image at a URL or for unreadable bytes.

    Raises:
        MissingExtraError: The image is passed as data, not as a URL, and the package imagesize is not installed.
    """
    if medium.data is None:
        return None
    # Raise an error if imagesize is missing, because assuming the maximum size could drop messages that fit.
    measure: Callable[[BytesIO], tuple[float, float]] = import_extra("imagesize", "imagesize", "images").get
    for most in _HEADS:
        content = _content(medium.data, most)
        try:
            width, height = measure(BytesIO(content))
        except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, struct.error):
            # For bytes that are not an image, older versions of imagesize raise an error, and newer versions return -1.
            width = height = -1
        if width > 0 and height > 0:
            return ceil(width), ceil(height)
        if len(content) < most:
            break
    return None


def media_in(part: Form) -> list[CountedMedia]:
    """Return all media in a content part.

    Args:
        part: A content part in the format of OpenAI, Anthropic, Gemini, DashScope or another provider, or an Ollama
            message with ``images``.

    Returns:
        A list of at least one media file. A part in an unknown format is treated as a document of unknown length.
    """
    named = _KINDS.get(_text(part.get("type")))
    detail = part.get("detail")
    found = [
        medium
        for key, value in part.items()
        if key in _KINDS or key == "source"
        for medium in _media(value, CountedMedia(named or _KINDS.get(key, "file"), detail=_text(detail)))
    ]
    return found or [CountedMedia(named or "file")]


def _media(value: object, known: CountedMedia) -> Iterator[CountedMedia]:
    """Yield the media items in the value of one field of a content part.

    Args:
        value: The field's value, which is searched recursively.
        known: The media properties that enclosing fields determine, such as the kind.
    """
    if isinstance(value, bytes):
        yield known._replace(data=value)
    elif isinstance(value, str):
        yield _of_text(value, known)
    elif is_dict(value):
        yield from _of_object(value, known)
    elif is_sequence(value):
        # A video may be a list of images.
        each = known._replace(kind="image") if known.kind == "video" else known
        for item in value:
            yield from _media(item, each)
    elif value is not None:
        yield known


def _of_object(value: Mapping[str, object], known: CountedMedia) -> Iterator[CountedMedia]:
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
    elif holder == "content" and is_sequence(given):
        # In Anthropic's format, a document may contain a list of blocks.
        for block in given:
            if is_dict(block):
                yield from _media(block, known) if block.get("type") == "text" else media_in(block)
    else:
        yield from _media(given, known) if holder else (known,)


def _of_text(value: str, known: CountedMedia) -> CountedMedia:
    """Return the media file at a URL, in a ``data:`` URL, or in plain base64."""
    if value[:5].lower() == "data:":
        head, _, data = value.partition(",")
        media_type = head[5:].partition(";")[0].lower()
        kind = _kind(media_type, known.kind)
        # A data: URL without base64 contains percent-encoded text, which providers reject.
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
    """Return the size in bytes of binary data, or of base64 data after decoding."""
    return len(data) * 3 // 4 - data[-2:].count("=") if isinstance(data, str) else len(data)


def _content(data: str | bytes, most: int = _HEADS[-1]) -> bytes:
    """Return the first bytes of binary data or base64 data; empty if the base64 is invalid."""
    if isinstance(data, bytes):
        return data[:most]
    # Four base64 characters encode three bytes.
    signs = data[: -(-most // 3) * 4].translate(_URLSAFE).rstrip("=")
    try:
        return a2b_base64(signs + "=" * (-len(signs) % 4))
    except ValueError:
        # Count invalid base64 as an image of unknown size.
        return b""
