"""The neutral form of a conversation: no provider's, with the typed content that agent definitions have."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING

from lazyprompt.files.inputs import Thread
from lazyprompt.files.turns import Called, Said, Shown
from lazyprompt.messages.msg import (
    AudioBlock,
    FileBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    VideoBlock,
)
from lazyprompt.messages.openai_form import address_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.files.turns import Item, Step, Turn
    from lazyprompt.messages.msg import Block, Msg


def neutral(steps: Sequence[Step]) -> list[JsonObject]:
    """A conversation in the neutral form.

    Args:
        steps: Its turns and threads.

    Returns:
        A dict for each message: ``role``, its attributes, ``content`` as text or as typed parts. The thoughts of a
        thread are not in it.
    """
    found: list[JsonObject] = []
    for step in steps:
        if isinstance(step, Thread):
            found += map(_of_thread, step.messages)
        else:
            found.append(_message(step))
    return found


def _message(turn: Turn) -> JsonObject:
    only = turn.only_text
    content: Json = only.text if only is not None else [_part(item) for item in turn.items]
    # Whose result it is, its call says.
    kept = {key: value for key, value in turn.attributes.items() if turn.role != "tool" or key != "name"}
    return {**deepcopy(kept), "role": turn.role, "content": content}


def _of_thread(message: Msg) -> JsonObject:
    """A message of a thread, with what a turn of the template that says the same would have."""
    made: JsonObject = {"role": message.role}
    if message.role != "tool" and message.name not in ("", message.role):
        made["name"] = message.name
    results = [block for block in message.blocks if isinstance(block, ToolResultBlock)]
    if len(results) == 1:
        made["tool_call_id"] = results[0].id
    said = [block for block in message.blocks if not isinstance(block, ThinkingBlock)]
    plain = all(isinstance(block, TextBlock) for block in said)
    content: Json = message.text if plain else [_part_of(block) for block in said]
    return {**made, "content": content}


def _part_of(block: Block) -> JsonObject:
    match block:
        case ToolUseBlock():
            function: JsonObject = {"name": block.name, "arguments": block.own_arguments()}
            return _call({"id": block.id, "type": "function", "function": function})
        case ToolResultBlock():
            return _result(block.text)
        case ImageBlock(detail=str(detail)):
            return _medium(block, {"detail": detail})
        case ImageBlock() | AudioBlock() | FileBlock() | VideoBlock():
            return _medium(block, {})
        case TextBlock(text) | ThinkingBlock(text):
            return _text(text)


def _part(item: Item) -> JsonObject:
    if isinstance(item, Said):
        return _text(item.text)
    if isinstance(item, Called):
        return _call(deepcopy(item.call))
    if isinstance(item, Shown):
        return _medium(item.block, item.attributes)
    return _result(item.said.text)


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _call(call: JsonObject) -> JsonObject:
    return {"type": "tool_call", "tool_call": call}


def _result(text: str) -> JsonObject:
    return {"type": "tool_result", "tool_result": text}


def _medium(block: ImageBlock | AudioBlock | FileBlock | VideoBlock, attributes: Mapping[str, Json]) -> JsonObject:
    kind = "image_url" if isinstance(block, ImageBlock) else block.type
    return {"type": kind, kind: {"url": address_of(block.source), **deepcopy(dict(attributes))}}
