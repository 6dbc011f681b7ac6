"""The tokens of pictures, sounds, videos and documents, without ever asking a network.

OpenAI's models have a rule for pictures each; all else is a safe estimate for any model.

Media are found in the parts of all providers' forms. The width and height of a picture are read from its bytes. The
length of sounds, videos and documents is estimated from the number of bytes. For an address, a picture counts the most
that the rule allows, and any other medium a usual length.

Source of the rules: OpenAI's guide "Images and vision" (developers.openai.com/api/docs/guides/images-vision), "Model
sizing behavior" and "Calculating costs", as it stood in summer 2026, before GPT-6. Models that it no longer lists are
as its older versions have them; GPT-6 is as measured (huggingface.co/datasets/JOHNISKING/image-token-cost).
"""

from __future__ import annotations

import re
import struct
from binascii import a2b_base64
from io import BytesIO
from math import ceil, floor, sqrt
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

from lazyprompt.errors import import_extra
from lazyprompt.tokens.counter import MEDIA_KINDS, Form

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


Size: TypeAlias = "tuple[int, int] | None"


class _Rate(NamedTuple):
    """Rate of an estimate.

    Attributes:
        tokens: The tokens of a second or a page.
        size: The assumed bytes of a second or a page.
        usual: The assumed seconds or pages of a file that is only given by its address.
    """

    tokens: int
    size: int
    usual: int


_RATES: Final = {
    # Gemini's guide "Understand and count tokens": a second of sound is 32 tokens, one of video 263, and it hears both.
    # OpenAI counts 10 for a second of sound (its guide "Managing costs" of the Realtime API). Speech as MP3 or AAC has
    # 64 kbit/s and more, video 1 Mbit/s and more.
    "audio": _Rate(32, 8_000, 60),
    # Uncompressed: 16 kHz, mono, 16 bits.
    "wav": _Rate(32, 32_000, 60),
    "video": _Rate(263 + 32, 125_000, 60),
    # Anthropic's guide "PDF support": a page is 1,500 to 3,000 tokens of text. In bytes it is one of printed text, its
    # fonts left out.
    "file": _Rate(3_000, 20_000, 10),
}
# English has about four bytes to a token, Chinese about two and a half: texts count with the safer of the two.
_TEXT_BYTES: Final = 2

# Most formats of pictures tell their size in the head, JPEG behind what cameras say of themselves, a few anywhere.
_HEADS: Final = (1_024, 65_536, 1 << 40)
_URLSAFE: Final = str.maketrans("-_", "+/", " \t\r\n")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
# Shorter text without a scheme is a path or the id of a file; only pictures are given as base64 this short.
_BASE64_LEAST: Final = 1024
_TEXT_TYPES: Final = ("text/", "application/json", "application/xml")

# Ollama's form has pictures beside the content. The MIME type tells the kind better where there is one.
_KINDS: Final = {**MEDIA_KINDS, "images": "image"}
_TYPES: Final = ("media_type", "mime_type", "mimeType", "format")
# Where an object holds a medium, the content itself before its address.
_HOLDERS: Final = (
    *("data", "bytes", "file_data", "content", "source"),
    *("url", "file_uri", "fileUri", "file_url", "image_url", "file_id"),
)


class Medium(NamedTuple):
    """One medium of a part: its kind, and its content if the part has it."""

    kind: str
    media_type: str = ""
    # Base64, or bytes; None where there is but an address.
    data: str | bytes | None = None
    # The text of a document that is given as text.
    text: str | None = None
    detail: str = ""


_BOX: Final = 2048
_SHORT: Final = 768
_TILE: Final = 512
_MOST_TILES: Final = 8
_PATCH: Final = 32
# Products like 1.2 x 2500 must not be rounded up for a digit in the fifteenth place.
_DUST: Final = 1e-9


class Tiles(NamedTuple):
    """A rule: a base, and a number for each tile of 512 px; at low detail the base alone."""

    base: int
    each: int

    def tokens(self, size: Size, detail: str = "auto") -> int:
        """Return the tokens of a picture; of one whose size is not known, the most they can be."""
        if detail == "low":
            return self.base
        return self.base + self.each * (_MOST_TILES if size is None else tiles(*size))


class Limit(NamedTuple):
    """The limits that a picture is scaled down to: its longer side in pixels, its number of patches; 0 is no limit."""

    side: int = 0
    patches: int = 0


_OLD: Final = Limit(2048, 1_536)
_HIGH: Final = Limit(2048, 2_500)
_SMALL: Final = Limit(512)
# Also what a picture of unknown size counts where a model sets no limit: the largest that any model sets.
_LARGE: Final = Limit(6000, 10_000)
_BROAD: Final = Limit(2048, 6_144)


class Patches(NamedTuple):
    """A rule: the number of patches of 32 px, times a factor; the limit depends on the detail."""

    factor: float
    high: Limit
    low: Limit | None = None
    original: Limit | None = None
    # Which of them it is where none is asked for.
    auto: str = "high"

    def tokens(self, size: Size, detail: str = "auto") -> int:
        """Return the tokens of a picture; of one whose size is not known, the most they can be."""
        asked = detail if detail in {"low", "high", "original"} else self.auto
        limit = {"low": self.low, "original": self.original}.get(asked) or self.high
        most = limit.patches or min(_LARGE.patches, ceil((limit.side or _LARGE.side) / _PATCH) ** 2)
        return ceil((most if size is None else patches(*size, limit)) * self.factor - _DUST)


def tiles(width: int, height: int) -> int:
    """Return the number of tiles of 512 px that a picture has at high detail.

    It is scaled down into a square of 2048 px, then until its shorter side has 768 px; small ones are not enlarged. The
    first step rounds and the second rounds down: so says the guide, and so do the bills (2049x513 px are 8 tiles,
    2050x513 px are 4: community.openai.com/t/1281361).

    Args:
        width: Its pixels.
        height: Its pixels.

    Returns:
        The number of tiles, from 1 to 8.
    """
    width, height = _within(width, height, _BOX)
    short, long = sorted((width, height))
    if short > _SHORT:
        short, long = _SHORT, long * _SHORT // short
    return ceil(short / _TILE) * ceil(long / _TILE)


def patches(width: int, height: int, limit: Limit) -> int:
    """Return the number of patches of 32 px that a picture has, scaled down to a limit.

    Args:
        width: Its pixels.
        height: Its pixels.
        limit: The limit.

    Returns:
        The number of patches.
    """
    if limit.side:
        width, height = _within(width, height, limit.side)
    count = ceil(width / _PATCH) * ceil(height / _PATCH)
    if not limit.patches or count <= limit.patches:
        return count
    scale = sqrt(_PATCH * _PATCH * limit.patches / (width * height))
    # One side ends with a whole patch, so that the other's last one cannot go beyond the limit.
    sides = [side * scale / _PATCH for side in (width, height)]
    scale *= min(floor(side + _DUST) / side if side >= 1 else 1 for side in sides)
    width, height = (max(1, floor(side * scale + _DUST)) for side in (width, height))
    return min(limit.patches, ceil(width / _PATCH) * ceil(height / _PATCH))


def _within(width: int, height: int, side: int) -> tuple[int, int]:
    """Scale a picture down until its longer side fits."""
    longer = max(width, height)
    if longer <= side:
        return width, height
    return max(1, round(width * side / longer)), max(1, round(height * side / longer))


_NEWEST: Final = Patches(1.2, Limit(0, 2_500), _SMALL, Limit(), auto="original")
_GPT_4O_MINI: Final = Tiles(2833, 5667)

# Models by name; the longest that a model's name begins with counts, so that dated versions are found too.
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
    # The models of the older vocabulary that see pictures are GPT-4's.
    "cl100k_base": Tiles(85, 170),
}
# GPT-4o mini is left out: what it counts beyond GPT-4o is for the bill alone (pypi.org/project/pictoken), and no other
# model counts so.
_KNOWN: Final = tuple(rule for rule in dict.fromkeys(_RULES.values()) if rule is not _GPT_4O_MINI)


def rule_for(model: str) -> Tiles | Patches | None:
    """Return the rule for a model.

    Args:
        model: The name of a model, dated and fine-tuned ones too, or of an encoding.

    Returns:
        The rule, or None where the model is not known.
    """
    name = model.removeprefix("ft:")
    found = max((known for known in _RULES if name.startswith(known)), key=len, default=None)
    return None if found is None else _RULES[found]


def picture_tokens(rule: Tiles | Patches | None, size: Size, detail: str = "auto") -> int:
    """Return the number of tokens of a picture.

    Args:
        rule: The rule that :func:`rule_for` returned.
        size: Its width and height; None where they are not known.
        detail: ``low``, ``high``, ``original`` or ``auto``.

    Returns:
        The tokens; for a model that is not known, the most that any known one makes of it.
    """
    return rule.tokens(size, detail) if rule else max(known.tokens(size, detail) for known in _KNOWN)


# Other models' pictures count as GPT-4o has them at high detail.
_PICTURE: Final = Tiles(85, 170)


def estimate_media_tokens(part: Form) -> int:
    """Estimate the tokens of the media of a part, for any model.

    Args:
        part: A part in any provider's form; an unknown one counts like a document at an address.

    Returns:
        The sum of the estimates. Pictures count by OpenAI's tiles; sounds, videos and documents by their size in bytes.
    """
    return sum(estimate_tokens(medium) for medium in media_in(part))


def estimate_tokens(medium: Medium) -> int:
    """Estimate the tokens of one medium, for any model.

    Args:
        medium: The medium.

    Returns:
        The number; never 0.
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


def image_size(medium: Medium) -> tuple[int, int] | None:
    """Return the width and height of a picture.

    Args:
        medium: The picture.

    Returns:
        The pixels, or None where only an address is known or the bytes tell none.

    Raises:
        MissingExtraError: The bytes are known, and imagesize is not installed.
    """
    if medium.data is None:
        return None
    # Without it only a bound of the size is known: a budget would drop messages that fit.
    measure: Callable[[BytesIO], tuple[float, float]] = import_extra("imagesize", "imagesize", "images").get
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
    """Return the media of a part.

    Args:
        part: A part in the form of OpenAI, Anthropic, Gemini, DashScope or another provider; a message of Ollama
            with its ``images`` is one too.

    Returns:
        At least one: a part that holds nothing known is a document at an address.
    """
    named = _KINDS.get(_text(part.get("type")))
    detail = part.get("detail")
    found = [
        medium
        for key, value in part.items()
        if key in _KINDS or key == "source"
        for medium in _media(value, Medium(named or _KINDS.get(key, "file"), detail=_text(detail)))
    ]
    return found or [Medium(named or "file")]


def _media(value: object, known: Medium) -> Iterator[Medium]:
    """Yield the media that a value holds, with the facts known so far."""
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
    """Return the number of bytes of a content."""
    return len(data) * 3 // 4 - data[-2:].count("=") if isinstance(data, str) else len(data)


def _content(data: str | bytes, most: int = _HEADS[-1]) -> bytes:
    """Return a content as bytes, or its beginning; nothing if it is no base64."""
    if isinstance(data, bytes):
        return data[:most]
    # Four signs of base64 are three bytes.
    signs = data[: -(-most // 3) * 4].translate(_URLSAFE).rstrip("=")
    try:
        return a2b_base64(signs + "=" * (-len(signs) % 4))
    except ValueError:
        # It cannot be measured, so it counts as what is at an address.
        return b""
