"""Truncation of text to a number of tokens, at the end of a sentence or line if possible, or else between words.

JSON values, single tags, and XML elements with their content (``<a>…</a>``) are kept or dropped whole. In messages,
text content and tool results can be truncated, but tool calls and reasoning cannot.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from lazyprompt._base.json import is_dict, is_sequence
from lazyprompt.budget.search import find_fewest
from lazyprompt.budget.units import Item, SlotValue
from lazyprompt.messages.msg import Msg, TextBlock, ToolResultBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lazyprompt.tokens.counter import Form

    _Change: TypeAlias = Callable[[str], str]
    _Span: TypeAlias = tuple[int, int]

Cut: TypeAlias = Literal["end", "middle"]

CUT_MARK = "[…]"
"""The marker that replaces the removed part of a truncated text."""

# Matches the end of a sentence or line. A Latin full stop ends a sentence only before whitespace.
_SENTENCES = re.compile(r"[。！？；…]+[”’」』）)\"']*|(?<![.!?;])[.!?;]++[\"')\]]*+(?=\s)|\n+")
_WORDS = re.compile(r"\s+|[、，：]")
# Matches an XML, HTML or custom tag. Groups: a closing tag's slash, the name, a self-closing tag's slash.
_TAG = re.compile(r"<(/?)([^\W\d][\w.:-]*+)(?:\s[^<>]*?)?(/?)>")
# If the truncated text leaves more than this fraction of the token limit unused, also try to cut between smaller units,
# such as words instead of sentences.
_WASTED = 0.5
_JOINERS = "\u200d\ufe0e\ufe0f"
_NOWHERE = (sys.maxsize, sys.maxsize)


def shorten(text: str, room: int, count_text: Callable[[str], int], cut: Cut = "end") -> str:
    """Truncate text to a given number of tokens.

    Args:
        text: The text.
        room: The maximum number of tokens in the result.
        count_text: A function that counts the tokens in a text.
        cut: The part to remove, either ``end``, or ``middle`` to keep the beginning and the end.

    Returns:
        The unchanged text if it fits; otherwise the text with ``[…]`` in place of the removed part. If no part of the
        text fits, the result is ``[…]`` or an empty string.
    """
    if count_text(text) <= room:
        return text
    best, best_count = "", 0
    unbroken = _unbroken_spans(text)
    for ends in (_SENTENCES, _WORDS, None):
        found = _drop_pieces(_pieces(text, ends, unbroken), room, count_text, cut)
        if found is not None:
            count = count_text(found)
            if count > best_count:
                best, best_count = found, count
        if best_count > room * (1 - _WASTED):
            break
    return best


def is_empty(text: str) -> bool:
    """Return True if truncation removed all of a text."""
    return text in ("", CUT_MARK)


def _pieces(text: str, ends: re.Pattern[str] | None, unbroken: Sequence[_Span]) -> list[str]:
    """Split a text at every index where it may be cut."""
    places = _between_letters(text) if ends is None else (match.end() for match in ends.finditer(text))
    allowed = _outside(places, unbroken) if unbroken else places
    cuts = [0, *(place for place in allowed if place < len(text)), len(text)]
    return [text[begin:end] for begin, end in pairwise(cuts)]


def _outside(places: Iterable[int], spans: Iterable[_Span]) -> Iterator[int]:
    """Yield the indices that are outside all spans; both arguments are in ascending order."""
    rest = iter(spans)
    begin, end = next(rest, _NOWHERE)
    for place in places:
        while end <= place:
            begin, end = next(rest, _NOWHERE)
        if place <= begin:
            yield place


def _unbroken_spans(text: str) -> list[_Span]:
    """Return the spans of a text that can't be split: the whole text if it is JSON, or else each tag and element."""
    if _is_json(text):
        return [(0, len(text))]
    spans: list[_Span] = []
    opened: dict[str, list[int]] = {}
    for tag in _TAG.finditer(text):
        closing, name, closed = tag.groups()
        begins = opened.setdefault(name.lower(), [])
        begin = begins.pop() if closing and begins else tag.start()
        if not closing and not closed:
            begins.append(begin)
        # Merge the spans inside an element into the element's span.
        while spans and spans[-1][1] > begin:
            begin = min(begin, spans.pop()[0])
        spans.append((begin, tag.end()))
    return spans


def _is_json(text: str) -> bool:
    """Return True if a text is a JSON object or array."""
    if text.strip()[:1] + text.strip()[-1:] not in ("{}", "[]"):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _between_letters(text: str) -> Iterator[int]:
    """Yield each index between two characters, except before a combining character."""
    for at in range(1, len(text)):
        if not (unicodedata.combining(text[at]) or text[at] in _JOINERS or text[at - 1] == _JOINERS[0]):
            yield at


def _drop_pieces(pieces: Sequence[str], room: int, count_text: Callable[[str], int], cut: Cut) -> str | None:
    """Drop as few pieces of a text as possible, and return the rest; return None if even ``[…]`` exceeds the limit."""
    count = len(pieces)
    backwards = range(count - 1, -1, -1)
    # From the middle outwards, the pieces that are already dropped are always consecutive.
    order = backwards if cut == "end" else sorted(backwards, key=lambda at: abs(2 * (at - count // 2) + 1))

    def without(gone: int) -> str:
        if not gone:
            return "".join(pieces)
        left = order[:gone]
        head, tail = "".join(pieces[: min(left)]).rstrip(), "".join(pieces[max(left) + 1 :]).lstrip()
        return " ".join(text for text in (head, CUT_MARK, tail) if text)

    gone = find_fewest(count, lambda gone: count_text(without(gone)), room)
    return None if gone is None else without(gone)


# Maps the type of a content part to the keys of the text that can be truncated.
_TEXT_KEYS = {"text": ("text",), "tool_result": ("content", "output")}


def with_cut_of(item: Item, before: Item, after: Item) -> Item:
    """Apply to ``item``, which is ``before`` in another format, the truncation from ``before`` to ``after``."""
    pairs = zip(cuttable_texts(before), cuttable_texts(after), strict=True)
    old, new = next((pair for pair in pairs if pair[0] != pair[1]), ("", ""))
    return with_text(item, old, new)


def cuttable_texts(item: Item) -> list[str]:
    """Return the texts in an item that can be truncated."""
    texts: list[str] = []

    def seen(text: str) -> str:
        texts.append(text)
        return text

    _map_texts(item, seen)
    return texts


def with_text(item: Item, old: str, new: str) -> Item:
    """Return a copy of a message or slot value, in which ``new`` replaces each text that equals ``old``."""
    return _map_texts(item, lambda text: new if text == old else text)


def _map_texts(item: Item, change: _Change) -> Item:
    match item:
        case SlotValue(text=text, place=place):
            # List items are dropped whole, never truncated.
            return item if place is not None else SlotValue(item.slot, change(text))
        case Msg():
            return item.evolve(content=_content(item.content, change))
        case _:
            return {**item, "content": _content(item["content"], change)} if "content" in item else item


def _content(content: object, change: _Change) -> Any:  # noqa: ANN401 - content in any format
    if isinstance(content, str):
        return change(content)
    if is_sequence(content):
        return [_part(part, change) for part in content]
    return content


def _part(part: object, change: _Change) -> object:
    match part:
        case TextBlock(text):
            return replace(part, text=change(text))
        case ToolResultBlock(output=output):
            return replace(part, output=_content(output, change))
        case _:
            return dict(_fields(part, change)) if is_dict(part) else part


def _fields(part: Form, change: _Change) -> Iterator[tuple[str, object]]:
    """Yield the fields of a content part, after applying ``change`` to each text in them."""
    keys = _TEXT_KEYS.get(str(part.get("type")), ())
    for key, value in part.items():
        yield key, _content(value, change) if key in keys else value
