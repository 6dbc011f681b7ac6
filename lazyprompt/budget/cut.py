"""Texts cut to a number of tokens: at the end of a sentence or line where there is one, else between words.

Of messages, content and the results of tools may be cut; no call, no thought.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from lazyprompt._base.json import JsonText
from lazyprompt.budget.search import fewest
from lazyprompt.budget.units import Item, SlotValue
from lazyprompt.messages.msg import Msg, TextBlock, ToolResultBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lazyprompt.tokens.counter import Form

    _Change: TypeAlias = Callable[[str], str]

Cut: TypeAlias = Literal["end", "middle"]

CUT_MARK = "[…]"
"""What stands where text was cut out."""

# Where a sentence or a line ends. Latin full stops are ends before white space only: 3.14 is no two sentences.
_SENTENCES = re.compile(r"[。！？；…]+[”’」』）)\"']*|(?<![.!?;])[.!?;]++[\"')\]]*+(?=\s)|\n+")
_WORDS = re.compile(r"\s+|[、，：]")
# A finer cut is looked for where the coarser leaves more than this share of the room.
_WASTED = 0.5
_JOINERS = "\u200d\ufe0e\ufe0f"


def shortened(text: str, room: int, count_text: Callable[[str], int], cut: Cut = "end") -> str:
    """A text, cut so that it fits.

    Args:
        text: The text.
        room: The most tokens that it may have.
        count_text: What counts tokens.
        cut: Where it is cut: at its end, or in its middle, so that beginning and end both stay.

    Returns:
        The text as it is where it fits; else what is left of it, with ``[…]`` where something is missing; an empty text
        where not even that fits.
    """
    if count_text(text) <= room:
        return text
    best, best_count = "", 0
    for ends in (_SENTENCES, _WORDS, None):
        found = _shorter(_pieces(text, ends), room, count_text, cut)
        if found is not None:
            count = count_text(found)
            if count > best_count:
                best, best_count = found, count
        if best_count > room * (1 - _WASTED):
            break
    return best


def _pieces(text: str, ends: re.Pattern[str] | None) -> list[str]:
    """The text in pieces that end where it may be cut."""
    places = _between_letters(text) if ends is None else [match.end() for match in ends.finditer(text)]
    cuts = [0, *(place for place in places if 0 < place < len(text)), len(text)]
    return [text[begin:end] for begin, end in pairwise(cuts)]


def _between_letters(text: str) -> Iterator[int]:
    """Yield the places at which no character is cut in two: not before one that changes the one before it."""
    for at in range(1, len(text)):
        if not (unicodedata.combining(text[at]) or text[at] in _JOINERS or text[at - 1] == _JOINERS[0]):
            yield at


def _shorter(pieces: Sequence[str], room: int, count_text: Callable[[str], int], cut: Cut) -> str | None:
    """The text without the fewest pieces that must go."""
    count = len(pieces)
    middle = count // 2
    # How many pieces stay at the beginning, where so many are gone from the middle.
    order = range(count - 1, -1, -1) if cut == "end" else [at for pair in _outwards(middle, count) for at in pair]

    def without(gone: int) -> str:
        if not gone:
            return "".join(pieces)
        left = order[:gone]
        head, tail = "".join(pieces[: min(left)]).rstrip(), "".join(pieces[max(left) + 1 :]).lstrip()
        return " ".join(text for text in (head, CUT_MARK, tail) if text)

    gone = fewest(count, lambda gone: count_text(without(gone)), room)
    return None if gone is None else without(gone)


def _outwards(middle: int, count: int) -> Iterator[tuple[int, ...]]:
    """The places around a middle, the nearest first: always one run without a gap."""
    for distance in range(count):
        after, before = middle + distance, middle - 1 - distance
        yield tuple(at for at in (after, before) if 0 <= at < count)


# Where parts in dict form hold what may be cut.
_SAID = {"text": ("text",), "tool_result": ("content", "output")}


def longest_text(item: Item) -> str:
    """Return the longest text of an item that may be cut; an empty one where there is none."""
    return max(_texts(item), key=len, default="")


def with_cut_of(item: Item, before: Item, after: Item) -> Item:
    """Return an item with the cut that turned another form of it into what that is now."""
    old, new = next((pair for pair in zip(_texts(before), _texts(after), strict=True) if pair[0] != pair[1]), ("", ""))
    return with_text(item, old, new)


def _texts(item: Item) -> list[str]:
    texts: list[str] = []

    def seen(text: str) -> str:
        texts.append(text)
        return text

    _changed(item, seen)
    return texts


def with_text(item: Item, old: str, new: str) -> Item:
    """An item with another text in the place of one of its own; the item itself stays as it is."""
    return _changed(item, lambda text: new if text == old else text)


def _changed(item: Item, change: _Change) -> Item:
    match item:
        case SlotValue(text=text, place=place):
            # Neither JSON nor an item of a list is cut.
            return item if isinstance(text, JsonText) or place is not None else SlotValue(item.slot, change(text))
        case Msg():
            return item.evolve(content=_content(item.content, change))
        case _:
            return {**item, "content": _content(item["content"], change)} if "content" in item else item


def _content(content: object, change: _Change) -> Any:  # noqa: ANN401 - a content in any form
    if isinstance(content, str):
        return change(content)
    if isinstance(content, list | tuple):
        return [_part(part, change) for part in cast("Sequence[object]", content)]
    return content


def _part(part: object, change: _Change) -> object:
    match part:
        case TextBlock(text):
            return replace(part, text=change(text))
        case ToolResultBlock(output=output):
            return replace(part, output=_content(output, change))
        case dict():
            return dict(_fields(cast("Form", part), change))
        case _:
            return part


def _fields(part: Form, change: _Change) -> Iterator[tuple[str, object]]:
    """The fields of a part in dict form."""
    keys = _SAID.get(str(part.get("type")), ())
    for key, value in part.items():
        yield key, _content(value, change) if key in keys else value
