"""The turns of a prompt file as they leave it: for a provider, and in the neutral form.

The report of a request tells what stays behind.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
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
    from collections.abc import Iterable, Mapping, Sequence

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.files.spec import ToolSpec
    from lazyprompt.files.turns import Item, Step, Turn
    from lazyprompt.formatters.report import Notes
    from lazyprompt.messages.msg import Block, Msg


# What of a turn's attributes a message has a place for: the speaker; and of a result, whose it is.
_PLACES = frozenset({"name"})
_PLACES_OF_RESULT = frozenset({"name", "tool_call_id", "id"})


def functions_of(specs: Sequence[ToolSpec], notes: Notes) -> list[JsonObject]:
    """The tools of a front matter that are functions, in OpenAI's form: no provider calls others.

    Args:
        specs: The tools.
        notes: Where those that are no functions are written down.
    """
    found: list[JsonObject] = []
    for at, spec in enumerate(specs):
        if spec.kind == "function":
            found.append(spec.function())
        else:
            _note_tool(f"tools[{at}]", f"of the kind {spec.kind!r}", spec.name, notes)
    return found


def named_functions(tools: Sequence[Mapping[str, Json]], notes: Notes) -> list[JsonObject]:
    """The tools that a text names and that are functions, in OpenAI's form.

    Args:
        tools: The tools.
        notes: Where those that are no functions are written down.
    """
    found: list[JsonObject] = []
    for tool in tools:
        if isinstance(tool.get("function"), dict):
            found.append({"type": "function", "function": deepcopy(tool["function"])})
        else:
            name = str(tool.get("name") or tool.get("id") or "")
            _note_tool("tools", f"of the type {tool.get('type')!r}", name, notes)
    return found


def _note_tool(where: str, kind: str, name: str, notes: Notes) -> None:
    why = f"a tool {kind} is called by who runs the prompt: turn it into functions"
    notes.add(where, "tools", "left out", why, name)


def as_sent(steps: Iterable[Step], notes: Notes) -> list[Step]:
    """The turns of a prompt without the attributes that no message has a place for; threads are their caller's.

    Args:
        steps: Turns and threads.
        notes: Where those attributes are written down.
    """
    found: list[Step] = []
    at = 0
    for step in steps:
        if isinstance(step, Thread):
            for what in step.left_out:
                notes.add(f"messages[{at}]", "metadata", "left out", f"{what} is the template's own")
            found.append(step)
            at += len(step.messages)
            continue
        places = _PLACES_OF_RESULT if step.role == "tool" else _PLACES
        kept = {name: value for name, value in step.attributes.items() if name in places}
        if len(kept) == len(step.attributes):
            found.append(step)
        else:
            note_attributes((name for name in step.attributes if name not in places), at, notes)
            found.append(replace(step, attributes=kept))
        at += 1
    return found


def note_attributes(names: Iterable[str], at: int, notes: Notes) -> None:
    """Write down attributes that stay behind.

    Args:
        names: Their names.
        at: The message that has them.
        notes: Where they are written down.
    """
    for name in names:
        notes.add(f"messages[{at}]", "metadata", "left out", f"the attribute {name!r} is the template's own")


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
