"""The texts of messages that may be cut: content and the results of tools; no call, no thought."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from lazyprompt.budget.units import SlotValue
from lazyprompt.messages.msg import Msg, TextBlock, ToolResultBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lazyprompt.budget.units import Item
    from lazyprompt.tokens.counter import Form

    _Change: TypeAlias = Callable[[str], str]


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
        case SlotValue(slot, text):
            return SlotValue(slot, change(text))
        case Msg():
            return Msg(item.name, _content(item.content, change), item.role, item.url, item.metadata)
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
