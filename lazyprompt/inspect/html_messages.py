"""Messages as HTML: who speaks, and block by block what is said, thought, called and shown.

Nothing is fetched: an address is text, and a picture is shown where its bytes are here and are those of a picture.
"""

from __future__ import annotations

from base64 import b64encode
from binascii import Error as NoBase64
from binascii import a2b_base64
from typing import TYPE_CHECKING, Final, cast

from lazyprompt.inspect.html_text import ELEMENT, Html, element, folded, joined, json_view, label, left_out, name, text
from lazyprompt.media.resolver import sniffed
from lazyprompt.messages.msg import Base64Source, FileBlock
from lazyprompt.tokens.media import Medium, image_size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lazyprompt.inspect.html_text import Room
    from lazyprompt.messages.msg import (
        AudioBlock,
        Block,
        ImageBlock,
        Msg,
        Source,
        TextBlock,
        ThinkingBlock,
        ToolResultBlock,
        ToolUseBlock,
        VideoBlock,
    )

# What browsers show, and what runs nothing when it is shown.
_PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
# A picture of a few bytes may be one of many pixels, which a browser would have to hold.
_MOST_PIXELS: Final = 40_000_000
# How many messages are open before the rest is folded.
_OPEN: Final = 30
# What a message costs beside what it says, in signs.
_FRAME: Final = 12 * ELEMENT


def conversation(messages: Sequence[Msg], room: Room) -> Html:
    """Messages one below the other: the first of them, then the rest folded, as far as there is room.

    Args:
        messages: The messages.
        room: What they may take; what they take is taken off.
    """
    shown: list[Html] = []
    for one in messages:
        if room.signs <= 0:
            break
        shown.append(message(one, room))
    parts = shown[:_OPEN]
    if len(shown) > _OPEN:
        parts.append(folded(f"{len(shown) - _OPEN:,} more messages", *shown[_OPEN:]))
    if len(shown) < len(messages):
        parts.append(left_out(len(messages) - len(shown), "messages"))
    return joined(parts)


def message(one: Msg, room: Room) -> Html:
    """A message: who speaks, and what.

    Args:
        one: The message.
        room: As of :func:`conversation`.
    """
    room.signs -= _FRAME
    head = [element("span", label(one.role), look="lp-role")]
    if one.name and one.name != one.role:
        head.append(name(one.name))
    if one.usage:
        head.append(element("span", label(usage_text(one.usage)), look="lp-note"))
    rest = [_addressed("media", url, room) for url in one.urls]
    if one.metadata:
        rest.append(folded("metadata", json_view(one.metadata, room)))
    return element(
        "div",
        element("div", *head, look="lp-head"),
        blocks(one.blocks, room),
        *rest,
        look=f"lp-message lp-{one.role}",
    )


def blocks(given: Sequence[Block], room: Room) -> Html:
    """Blocks one below the other, as far as there is room.

    Args:
        given: The blocks.
        room: As of :func:`conversation`.
    """
    shown: list[Html] = []
    for block in given:
        if room.signs <= 0:
            return joined((*shown, left_out(len(given) - len(shown), "blocks")))
        room.signs -= ELEMENT
        shown.append(_BLOCKS[block.kind](block, room))
    return joined(shown)


def usage_text(usage: Mapping[str, int]) -> str:
    """What a call cost, in one line.

    Args:
        usage: The tokens, as ``prompt_tokens``.
    """
    return " · ".join(f"{what.removesuffix('_tokens')} {count:,}" for what, count in usage.items()) + " tokens"


def _text(block: TextBlock, room: Room) -> Html:
    return text(block.text, room)


def _thinking(block: ThinkingBlock, room: Room) -> Html:
    if not block.thinking and block.redacted:
        return element("p", label("thinking that only the provider can read"), look="lp-note")
    return folded("thinking", text(block.thinking, room))


def _call(block: ToolUseBlock, room: Room) -> Html:
    given = json_view(block.input, room) if block.raw_input is None else text(block.raw_input, room)
    return _titled("calls", block.name, block.id, given)


def _result(block: ToolResultBlock, room: Room) -> Html:
    output = block.output
    inside = text(output, room) if isinstance(output, str) else blocks(output, room)
    return _titled("result of", block.name, block.id, inside)


def _titled(what: str, tool: str, call: str, inside: Html) -> Html:
    head = (
        element("span", label(what), look="lp-note"),
        element("span", name(tool), look="lp-title"),
        element("span", name(call), look="lp-note"),
    )
    return element("div", element("div", *head, look="lp-head"), inside, look="lp-block")


def _media(block: ImageBlock | AudioBlock | VideoBlock | FileBlock, room: Room) -> Html:
    source: Source = block.source
    if not isinstance(source, Base64Source):
        return _addressed(block.kind, source.url, room)
    picture = _picture(source, room) if block.kind == "image" else None
    said = (
        element("span", label(block.kind), look="lp-role"),
        name(source.media_type),
        element("span", label(f"about {len(source.data) * 3 // 4:,} bytes"), look="lp-note"),
        *((name(block.filename),) if isinstance(block, FileBlock) and block.filename else ()),
        *(() if picture or block.kind != "image" else (element("span", label("not shown"), look="lp-note"),)),
    )
    return element("div", element("div", *said, look="lp-head"), *((picture,) if picture else ()), look="lp-block")


def _addressed(what: str, url: str, room: Room) -> Html:
    """An address, which is text and no link: whoever looks at a prompt asks nobody for anything."""
    head = element("div", element("span", label(what), look="lp-role"), label("at"), look="lp-head")
    return element("div", head, text(url, room), look="lp-block")


def _picture(source: Base64Source, room: Room) -> Html | None:
    """A picture, where it is one by its own bytes, and not too large to be kept in a notebook."""
    if len(source.data) > room.pictures:
        return None
    try:
        content = a2b_base64(source.data, strict_mode=True)
    except (NoBase64, ValueError):
        return None
    kind = sniffed(content[:64])
    size = image_size(Medium("image", data=content)) if kind in _PICTURES else None
    if kind is None or size is None or size[0] * size[1] > _MOST_PIXELS:
        return None
    room.pictures -= len(source.data)
    width, height = size
    return element(
        "img",
        look="lp-picture",
        alt=f"{kind}, {width} × {height} pixels",
        src=f"data:{kind};base64,{b64encode(content).decode('ascii')}",
    )


_BLOCKS: Final = cast(
    "Mapping[str, Callable[[Block, Room], Html]]",
    {
        "text": _text,
        "thinking": _thinking,
        "tool_use": _call,
        "tool_result": _result,
        "image": _media,
        "audio": _media,
        "video": _media,
        "file": _media,
    },
)
