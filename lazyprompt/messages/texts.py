"""Applies a function to each text in a message."""

from __future__ import annotations

from dataclasses import replace
from operator import is_
from typing import TYPE_CHECKING, Any, Protocol

from lazyprompt.messages.msg import (
    Block,
    FileBlock,
    Msg,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    message_of,
)

if TYPE_CHECKING:
    from lazyprompt._base.json import Json


class ChangeText(Protocol):
    """A function that returns the replacement for a text, or the same object if the text does not change."""

    def __call__(self, text: str, *, behind_text: bool = False) -> str:
        """Return the replacement for the text of a message or block.

        Args:
            text: The original text.
            behind_text: True if the preceding block is also a text block.
        """
        ...


def with_texts(message: Msg, change: ChangeText) -> Msg:
    """Apply a function to each text in a message: the speaker, content, reasoning, ids, names, arguments and results.

    ``message.native`` is kept unchanged. Modified reasoning loses its signature, which is only valid for the original
    text.

    Args:
        message: The message, which is returned unchanged if no text changes.
        change: A function that returns the replacement for a text.
    """
    speaker = change(message.speaker) if message.speaker else ""
    given = message.content
    content = change(given) if isinstance(given, str) else _blocks(given, change)
    if speaker == message.speaker and content is given:
        return message
    return message_of(speaker, content, message.role, message.url, message.metadata, message.usage, message.native)


def json_with_texts(value: Json, change: ChangeText) -> Json:
    """Apply a function to the strings in a JSON value, including keys. If no string changes, return the same value."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        items = [json_with_texts(item, change) for item in value]
        return value if all(map(is_, items, value)) else items
    if isinstance(value, dict):
        fields = {change(key): json_with_texts(item, change) for key, item in value.items()}
        unchanged = fields.keys() == value.keys() and all(map(is_, fields.values(), value.values()))
        return value if unchanged else fields
    return value


def _blocks(blocks: tuple[Block, ...], change: ChangeText) -> tuple[Block, ...]:
    changed: list[Block] = []
    for block in blocks:
        behind_text = bool(changed) and isinstance(changed[-1], TextBlock)
        changed.append(_block(block, change, behind_text=behind_text))
    return blocks if all(map(is_, changed, blocks)) else tuple(changed)


def _block(block: Block, change: ChangeText, *, behind_text: bool) -> Block:
    fields: dict[str, Any]
    match block:
        case TextBlock(text):
            fields = {"text": change(text, behind_text=behind_text)}
        case ThinkingBlock(thinking):
            changed = change(thinking)
            fields = {"thinking": changed} if changed is thinking else {"thinking": changed, "signature": None}
        case ToolUseBlock(id=call_id, name=name, input=given, raw_input=raw):
            fields = {
                "id": change(call_id),
                "name": change(name),
                "input": json_with_texts(given, change),
            }
            fields["raw_input"] = None if raw is None else change(raw)
        case ToolResultBlock(id=call_id, name=name, output=output):
            fields = {"id": change(call_id), "name": change(name)}
            fields["output"] = change(output) if isinstance(output, str) else _blocks(output, change)
        case FileBlock(filename=str(filename)):
            fields = {"filename": change(filename)}
        case _:
            return block
    return block if all(getattr(block, name) is value for name, value in fields.items()) else replace(block, **fields)
