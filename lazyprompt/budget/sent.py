"""Messages as ``ChatFormatter("openai")`` sends them, so that a budget by itself counts what will be sent.

Each message counts by itself, with what the formatter makes of it: names and ids that fit, media of results behind
them, an answer for a call that has none. What the formatter leaves out may count, what it adds always does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from lazyprompt._base.json import Json, JsonObject, to_json
from lazyprompt.messages.msg import (
    AudioBlock,
    FileBlock,
    ImageBlock,
    Msg,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    URLSource,
    VideoBlock,
)
from lazyprompt.messages.openai_form import ID_LENGTH, IDS, NAMES, NO_RESULT, fitted, source_of, write_part
from lazyprompt.messages.read_openai import message_from_openai
from lazyprompt.safety.speakers import no_imitation

if TYPE_CHECKING:
    from lazyprompt.budget.units import Item
    from lazyprompt.messages.msg import Block
    from lazyprompt.tokens.counter import Form


def as_sent(items: Sequence[Item]) -> list[Item]:
    """Return messages with unique ids of calls, and with an answer for each call.

    Args:
        items: Msg and OpenAI dicts; left as they are.

    Returns:
        The items; a dict that is more than a role and a text is a Msg.

    Raises:
        HistoryError: A dict is no message.
    """
    found: list[Item] = []
    # The new ids of the calls without a result, by their own ids; where all calls stand, and their tools, by new ids.
    waiting: dict[str, deque[str]] = {}
    calls: dict[str, tuple[int, str]] = {}
    # The number to try next for an id that is used again: some servers give every call the same id.
    numbers: dict[str, int] = {}
    for at, given in enumerate(items):
        item = given
        if isinstance(item, Mapping) and (len(item) != 2 or type(item.get("content")) is not str):  # noqa: PLR2004 - role and content
            item = _read(item, at, waiting)
        if isinstance(item, Msg) and not isinstance(item.content, str):
            blocks = [_linked(block, at, waiting, calls, numbers) for block in item.content]
            if any(new is not old for new, old in zip(blocks, item.content, strict=True)):
                item = Msg(item.name, blocks, item.role, item.url, item.metadata)
        found.append(item)
    for open_calls in waiting.values():
        for call_id in open_calls:
            at = calls[call_id][0]
            message = cast("Msg", found[at])
            blocks = [*message.blocks, ToolResultBlock(call_id, output=NO_RESULT)]
            found[at] = Msg(message.name, blocks, message.role, message.url, message.metadata)
    return found


def _read(item: Form, at: int, waiting: Iterable[str]) -> Msg:
    message = message_from_openai(item, f"messages[{at}]", waiting)
    # A dict without a name has none.
    return message if item.get("name") else Msg("", message.content, message.role, message.url, message.metadata)


def _linked(
    block: Block,
    at: int,
    waiting: dict[str, deque[str]],
    calls: dict[str, tuple[int, str]],
    numbers: dict[str, int],
) -> Block:
    """Return a call with an id that no other has, and a result with the id and tool of its call."""
    if isinstance(block, ToolUseBlock):
        new, number = block.id, numbers.get(block.id, 2)
        while new in calls:
            new, number = f"{block.id}_{number}", number + 1
        numbers[block.id] = number
        waiting.setdefault(block.id, deque()).append(new)
        calls[new] = at, block.name
        return block if new == block.id else replace(block, id=new)
    if isinstance(block, ToolResultBlock) and block.id in waiting:
        new = waiting[block.id].popleft()
        if not waiting[block.id]:
            del waiting[block.id]
        name = calls[new][1]
        return block if (new, name) == (block.id, block.name) else replace(block, id=new, name=name)
    return block


def sent_forms(messages: Iterable[Msg | Form]) -> list[Form]:
    """Return messages as the OpenAI dicts that are sent; a dict is one already."""
    found: list[Form] = []
    for message in messages:
        if isinstance(message, Msg):
            found += _of_msg(message)
        else:
            found.append(message)
    return found


def _of_msg(message: Msg) -> list[JsonObject]:
    forms: list[JsonObject] = []
    blocks: list[Block] = []
    for block in message.blocks:
        if isinstance(block, ToolResultBlock):
            if blocks and message.role == "assistant":
                forms.append(_whole(message, blocks))
                blocks = []
            forms += _of_result(block)
        elif not isinstance(block, ThinkingBlock):
            blocks.append(block)
    blocks += [ImageBlock(source_of(url)) for url in message.urls]
    return [*forms, _whole(message, blocks)] if blocks or not forms else forms


def _whole(message: Msg, blocks: Iterable[Block]) -> JsonObject:
    calls: list[Json] = [
        {
            "id": fitted(block.id, IDS, ID_LENGTH),
            "type": "function",
            "function": {"name": fitted(block.name, NAMES), "arguments": to_json(block.arguments)},
        }
        for block in blocks
        if isinstance(block, ToolUseBlock)
    ]
    form: JsonObject = {"role": "user" if message.role == "tool" else message.role}
    if message.name:
        form["name"] = fitted(no_imitation(message.name, message.role), NAMES)
    match [block for block in blocks if not isinstance(block, ToolUseBlock)]:
        case []:
            form["content"] = None if calls else ""
        case [TextBlock(text)]:
            form["content"] = text
        case rest:
            form["content"] = [_part(block) for block in rest]
    if calls:
        form["tool_calls"] = calls
    return form


def _of_result(block: ToolResultBlock) -> list[JsonObject]:
    """Return the result, and its media as the user's turn that follows."""
    result: dict[str, Any] = {"role": "tool", "tool_call_id": fitted(block.id, IDS, ID_LENGTH), "content": block.text}
    media = [] if isinstance(block.output, str) else [each for each in block.output if not isinstance(each, TextBlock)]
    if not media:
        return [result]
    if not block.text:
        result["content"] = f"({', '.join(each.kind for each in media)}: in the next message)"
    parts: list[Json] = []
    for each in media:
        parts.append({"type": "text", "text": f"({each.kind} from the tool {fitted(block.name, NAMES)})"})
        parts.append(_part(each))
    return [result, {"role": "user", "content": parts}]


def _part(block: Block) -> JsonObject:
    match block:
        case VideoBlock() | AudioBlock(URLSource()) | FileBlock(URLSource()) | ThinkingBlock() | ToolUseBlock():
            # The form has no place for it: it counts as a medium of its kind.
            return {"type": block.kind}
        case ToolResultBlock():
            return {"type": "text", "text": block.text}
        case _:
            return write_part(block)
