"""Parses LangChain messages: objects and dicts with a ``type``, and tuples of role and content.

The format is defined by ``langchain_core.messages`` and its standard content blocks.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from lazyprompt._base.client_objects import fields_of
from lazyprompt._base.json import Fields, JsonObject, checked_object, is_sequence
from lazyprompt._base.roles import ROLES, Role
from lazyprompt.errors import HistoryError
from lazyprompt.messages.msg import Block, Msg, ThinkingBlock, ToolResultBlock, ToolUseBlock
from lazyprompt.messages.native import PART_FIELDS
from lazyprompt.messages.open_calls import OpenCalls
from lazyprompt.messages.read_openai import joined, read_call, read_item
from lazyprompt.messages.read_parts import Beside, list_in, object_in, read_parts, text_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


# Maps LangChain's message types to roles. Streamed messages have other types, such as "AIMessageChunk".
_ROLES: dict[str, Role] = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "developer": "developer",
    "tool": "tool",
    "function": "tool",
}
_CHUNK = "MessageChunk"
TYPES = frozenset(
    {*_ROLES, "chat", *(f"{kind}{_CHUNK}" for kind in ("Human", "AI", "System", "Tool", "Function", "Chat"))}
)
"""The values of ``type`` that identify a LangChain message."""

# Message fields that are not stored as metadata.
_ACCOUNT = frozenset(
    {"type", "id", "content", "name", "role", "example", "response_metadata", "usage_metadata", "artifact",
     "tool_calls", "invalid_tool_calls", "tool_call_chunks", "chunk_position", "tool_call_id", "status",
     "additional_kwargs"}
)  # fmt: skip
# Fields in `additional_kwargs` that duplicate other message fields or are parsed separately.
_DOUBLE = frozenset({"tool_calls", "function_call", "refusal", "reasoning_content", "__openai_role__"})


def read_message(item: Fields, where: str, waiting: OpenCalls) -> tuple[Msg, ...]:
    """Parse a LangChain message.

    Args:
        item: The message as a dict. Dicts created by LangChain contain the fields under ``data``.
        where: The item's name in error messages.
        waiting: The tool calls that have no result yet.

    Raises:
        HistoryError: A field has the wrong type.
    """
    item = {**item, **object_in(item.get("data") or {}, f"{where}.data")}
    kwargs = fields_of(item.get("additional_kwargs"))
    role = _role(item, kwargs, where)
    beside: Beside = {}
    parts = _parts(item.get("content"), f"{where}.content")
    if role == "assistant" and (items := _items(item, parts)):
        return (_read_items(items, item, kwargs, where, waiting),)
    blocks = list(read_parts(parts, f"{where}.content", beside))
    name = text_in(item.get("name"), f"{where}.name")
    if role == "tool":
        call_id = text_in(item.get("tool_call_id"), f"{where}.tool_call_id") or next(iter(waiting), "")
        if not call_id:
            raise HistoryError(f"{where} is a tool result without 'tool_call_id', and no call is waiting for a result")
        output = parts if isinstance(parts, str) else blocks
        blocks = [ToolResultBlock(call_id, name, output, is_error=item.get("status") == "error")]
    else:
        thought = text_in(kwargs.get("reasoning_content"), f"{where}.additional_kwargs.reasoning_content")
        blocks = [*([ThinkingBlock(thought)] if thought else []), *_with_calls(blocks, item, kwargs, where, waiting)]
    metadata: JsonObject = checked_object(
        {
            **{key: value for key, value in item.items() if key not in _ACCOUNT and key != "data" and value},
            **{key: value for key, value in kwargs.items() if key not in _DOUBLE and value},
            **({PART_FIELDS: beside} if beside else {}),
        },
        where,
        HistoryError,
    )
    content = parts if isinstance(parts, str) and all(block.type == "text" for block in blocks) else blocks
    message = Msg(name if name and role != "tool" else role, content, role, metadata=metadata)
    return (message.without_speaker() if message.name == role else message,)


def _parts(content: object, where: str) -> str | list[object]:
    """Return message content as a string or a list of parts. A string in a list becomes a text part."""
    if not is_sequence(content):
        return text_in(content, where)
    return [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]


def _role(item: Fields, kwargs: Fields, where: str) -> Role:
    kind = str(item["type"]).removesuffix(_CHUNK).lower()
    role = item.get("role") if kind == "chat" else _ROLES[kind]
    if role == "system" and kwargs.get("__openai_role__") == "developer":
        return "developer"
    if role not in ROLES:
        raise HistoryError(f"{where} has the unknown role {role!r}; expected one of {', '.join(ROLES)}")
    return role


def _items(item: Fields, parts: str | list[object]) -> list[Fields]:
    """Return the items of a Responses API response, or an empty list for any other content."""
    given = [fields_of(part) for part in parts] if isinstance(parts, list) else []
    is_own = fields_of(item.get("response_metadata")).get("output_version") == "responses/v1"
    if not is_own and not any(part.get("type") == "function_call" or "summary" in part for part in given):
        return []
    return [_message_item(part) if part.get("type") in ("text", "refusal") else part for part in given]


def _read_items(items: Iterable[Fields], item: Fields, kwargs: Fields, where: str, waiting: OpenCalls) -> Msg:
    """Build a message from response items. If the message's calls were edited, its native format is dropped."""
    message = reduce(joined, [each for part in items for each in read_item(part, f"{where}.content", waiting)])
    blocks = tuple(_with_calls(message.blocks, item, kwargs, where, waiting))
    return message if blocks == message.blocks else message.evolve(content=blocks)


def _message_item(part: Fields) -> Fields:
    kind = "output_text" if part["type"] == "text" else "refusal"
    inner = {key: value for key, value in part.items() if key not in ("id", "phase", "index")} | {"type": kind}
    beside = {key: part[key] for key in ("id", "phase") if part.get(key)}
    return {"type": "message", "role": "assistant", "content": [inner], **beside}


def _with_calls(blocks: Sequence[Block], item: Fields, kwargs: Fields, where: str, waiting: OpenCalls) -> list[Block]:
    """Replace the calls in the content with the calls in ``tool_calls``, because LangChain sends ``tool_calls``."""
    calls: dict[str, ToolUseBlock] = {}
    for key in ("tool_calls", "invalid_tool_calls"):
        for index, given in enumerate(list_in(item.get(key), f"{where}.{key}")):
            place = f"{where}.{key}[{index}]"
            call = object_in(given, place)
            call_id = text_in(call.get("id"), f"{place}.id") or waiting.new_id(len(calls))
            name = text_in(call.get("name"), f"{place}.name")
            if key == "invalid_tool_calls":
                calls[call_id] = ToolUseBlock(call_id, name, raw_input=text_in(call.get("args"), f"{place}.args"))
            else:
                calls[call_id] = read_call(call_id, name, call.get("args"), f"{place}.args")
    legacy = fields_of(kwargs.get("function_call"))
    if legacy and not calls:
        call_id, place = waiting.new_id(), f"{where}.additional_kwargs.function_call"
        calls[call_id] = read_call(call_id, text_in(legacy.get("name"), place), legacy.get("arguments"), place)
    own = [calls.pop(block.id, block) if isinstance(block, ToolUseBlock) else block for block in blocks]
    return [*own, *calls.values()]


def read_tuple(role: str, content: object, where: str) -> Msg:
    """Parse a tuple of role and content.

    Raises:
        HistoryError: The tuple is a placeholder, or its role requires a tool call id, which a tuple can't contain.
    """
    if role == "placeholder":
        raise HistoryError(f"{where} is a LangChain ('placeholder', ...) tuple; replace it with the messages")
    kind = {"user": "human", "assistant": "ai"}.get(role, role)
    if _ROLES[kind] == "tool":
        raise HistoryError(
            f"{where} is a LangChain tuple for a tool result, which requires the id of its call; write "
            "{'role': 'tool', 'tool_call_id': ..., 'content': ...}"
        )
    return read_message({"type": kind, "content": content}, where, OpenCalls())[0]
