"""Conversion of messages to the format that ``ChatFormatter("openai")`` sends, for budgets without a formatter.

Each message is counted separately. The formatter's changes are applied first: names and ids are made valid, media from
tool results move to a user message, and calls without a result get a placeholder. The token count includes all content
that the formatter adds, and may include content that the formatter omits.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from lazyprompt.messages.msg import ImageBlock, Msg, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from lazyprompt.messages.openai_form import ID_LENGTH, IDS, NAMES, NO_RESULT, fitted, source_of
from lazyprompt.safety.speakers import no_imitation
from lazyprompt.tokens.counter import COUNTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lazyprompt._base.roles import Role
    from lazyprompt.messages.msg import Block
    from lazyprompt.tokens.counter import Form

    # A part of a message that is sent as a message of its own: the role, the speaker's name and the blocks.
    _Part: TypeAlias = tuple[Role, str, Sequence[Block]]


def link_calls(messages: Sequence[Msg]) -> list[Msg]:
    """Return messages in which every call has a unique id and a result."""
    found: list[Msg] = []
    # Maps each original call id to the new ids of calls without a result.
    waiting: dict[str, deque[str]] = {}
    # Maps each new call id to the call's message index and tool name.
    calls: dict[str, tuple[int, str]] = {}
    # Maps each repeated id to its next suffix, because some servers assign the same id to every call.
    numbers: dict[str, int] = {}
    for at, message in enumerate(messages):
        linked = message
        if not isinstance(message.content, str):
            blocks = [_link_block(block, at, waiting, calls, numbers) for block in message.content]
            if any(new is not old for new, old in zip(blocks, message.content, strict=True)):
                linked = message.evolve(content=blocks)
        found.append(linked)
    for open_calls in waiting.values():
        for call_id in open_calls:
            at = calls[call_id][0]
            found[at] = found[at].evolve(content=[*found[at].blocks, ToolResultBlock(call_id, output=NO_RESULT)])
    return found


def _link_block(
    block: Block,
    at: int,
    waiting: dict[str, deque[str]],
    calls: dict[str, tuple[int, str]],
    numbers: dict[str, int],
) -> Block:
    """Return a call with a unique id, a result with the id and tool name of its call, or any other block unchanged."""
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
    """Convert each Msg to the OpenAI dicts that are sent; dicts are returned unchanged."""
    found: list[Form] = []
    for message in messages:
        if isinstance(message, Msg):
            found += COUNTED.messages((role, speaker, tuple(blocks), 0) for role, speaker, blocks in _parts(message))
        else:
            found.append(message)
    return found


def _parts(message: Msg) -> list[_Part]:
    """Split a message into its tool results, their media, and its other blocks; invalid names are made valid."""
    speaker = fitted(no_imitation(message.speaker, message.role), NAMES) if message.speaker else ""
    parts: list[_Part] = []
    blocks: list[Block] = []
    for block in message.blocks:
        match block:
            case ToolResultBlock():
                if blocks and message.role == "assistant":
                    parts.append((message.role, speaker, blocks))
                    blocks = []
                parts += _result_parts(block)
            case ToolUseBlock(id=call_id, name=name):
                blocks.append(replace(block, id=fitted(call_id, IDS, ID_LENGTH), name=fitted(name, NAMES)))
            case ThinkingBlock():
                pass
            case _:
                blocks.append(block)
    blocks += [ImageBlock(source_of(url)) for url in message.urls]
    role: Role = "user" if message.role == "tool" else message.role
    return [*parts, (role, speaker, blocks)] if blocks or not parts else parts


def _result_parts(block: ToolResultBlock) -> list[_Part]:
    """Return a tool result without its name and, if it contains media, a part of the user with the media."""
    media = [] if isinstance(block.output, str) else [each for each in block.output if not isinstance(each, TextBlock)]
    text = block.text if block.text or not media else f"({', '.join(each.kind for each in media)}: in the next message)"
    result = ToolResultBlock(fitted(block.id, IDS, ID_LENGTH), output=text)
    parts: list[_Part] = [("tool", "", [result])]
    if media:
        tool = fitted(block.name, NAMES)
        shown = [part for each in media for part in (TextBlock(f"({each.kind} from the tool {tool})"), each)]
        parts.append(("user", "", shown))
    return parts
