"""Reads LangChain's messages: objects and dicts with a ``type``, and tuples of a role and a content.

Source of the form: ``langchain_core.messages`` and its standard content blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from lazyprompt._base.client_objects import fields_of
from lazyprompt._base.json import Fields, JsonObject, checked_object
from lazyprompt._base.roles import ROLES, Role
from lazyprompt.errors import HistoryError
from lazyprompt.messages.msg import Block, Msg, ThinkingBlock, ToolResultBlock, ToolUseBlock
from lazyprompt.messages.native import PART_FIELDS
from lazyprompt.messages.open_calls import OpenCalls
from lazyprompt.messages.read_openai import read_call
from lazyprompt.messages.read_parts import Beside, list_in, object_in, read_parts, text_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


# The types of messages; a part of a stream that was added up is a "...MessageChunk".
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
"""The values of ``type`` that make a message one of LangChain's."""

# What LangChain keeps of an answer besides its content: the provider's own account of it.
_ACCOUNT = frozenset(
    {"type", "id", "content", "name", "role", "example", "response_metadata", "usage_metadata", "artifact",
     "tool_calls", "invalid_tool_calls", "tool_call_chunks", "chunk_position", "tool_call_id", "status",
     "additional_kwargs"}
)  # fmt: skip
# Of the fields that providers add: those that stand in tool_calls or content as well, and the thoughts.
_DOUBLE = frozenset({"tool_calls", "function_call", "refusal", "reasoning_content", "__openai_role__"})


def read_message(item: Fields, where: str, waiting: OpenCalls) -> tuple[Msg, ...]:
    """Read a message.

    Args:
        item: The message as a dict; one that LangChain itself made a dict of has its fields under ``data``.
        where: How an error names it.
        waiting: The calls still without a result.

    Returns:
        The message.

    Raises:
        HistoryError: A field has a wrong shape.
    """
    item = {**item, **fields_of(item.get("data"))}
    kwargs = fields_of(item.get("additional_kwargs"))
    role = _role(item, kwargs, where)
    beside: Beside = {}
    parts = _parts(item.get("content"), f"{where}.content")
    blocks = list(read_parts(parts, f"{where}.content", beside))
    name = text_in(item.get("name"), f"{where}.name")
    if role == "tool":
        call_id = text_in(item.get("tool_call_id"), f"{where}.tool_call_id") or next(iter(waiting), "")
        if not call_id:
            raise HistoryError(f"{where} is a tool result without 'tool_call_id', and no call waits for one")
        output = parts if isinstance(parts, str) else blocks
        blocks = [ToolResultBlock(call_id, name, output, is_error=item.get("status") == "error")]
    else:
        thought = text_in(kwargs.get("reasoning_content"), f"{where}.additional_kwargs.reasoning_content")
        blocks = [*([ThinkingBlock(thought)] if thought else []), *blocks, *_calls(item, blocks, where, waiting)]
    metadata: JsonObject = checked_object(
        {
            **{key: value for key, value in item.items() if key not in _ACCOUNT and key != "data" and value},
            **{key: value for key, value in kwargs.items() if key not in _DOUBLE and value},
            **({PART_FIELDS: beside} if beside else {}),
        },
        where,
        HistoryError,
    )
    plain = isinstance(parts, str) and all(block.type == "text" for block in blocks)
    content = cast("str", parts) if plain else blocks
    message = Msg(name if name and role != "tool" else role, content, role, metadata=metadata)
    return (message.without_speaker() if message.name == role else message,)


def _parts(content: object, where: str) -> str | list[object]:
    """Return a content as text or parts; LangChain's may be lists of texts and parts."""
    if not isinstance(content, list | tuple):
        return text_in(content, where)
    parts = cast("Sequence[object]", content)
    return [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]


def _role(item: Fields, kwargs: Fields, where: str) -> Role:
    kind = str(item["type"]).removesuffix(_CHUNK).lower()
    role = item.get("role") if kind == "chat" else _ROLES[kind]
    if role == "system" and kwargs.get("__openai_role__") == "developer":
        return "developer"
    if role not in ROLES:
        raise HistoryError(f"{where} has role {role!r}; known are {', '.join(ROLES)}")
    return role


def _calls(item: Fields, blocks: Iterable[Block], where: str, waiting: OpenCalls) -> list[Block]:
    """Return the calls of a message that do not stand in its content too."""
    known = {block.id for block in blocks if isinstance(block, ToolUseBlock)}
    calls: list[Block] = []
    for key in ("tool_calls", "invalid_tool_calls"):
        for index, given in enumerate(list_in(item.get(key), f"{where}.{key}")):
            place = f"{where}.{key}[{index}]"
            call = object_in(given, place)
            call_id = text_in(call.get("id"), f"{place}.id") or waiting.new_id(len(known) + len(calls))
            if call_id in known:
                continue
            name = text_in(call.get("name"), f"{place}.name")
            if key == "invalid_tool_calls":
                calls.append(ToolUseBlock(call_id, name, raw_input=text_in(call.get("args"), f"{place}.args")))
            else:
                calls.append(read_call(call_id, name, call.get("args"), f"{place}.args"))
    return calls


def read_tuple(role: str, content: object, where: str) -> Msg:
    """Read a tuple of a role and a content.

    Raises:
        HistoryError: The role is a tool's, which a tuple cannot say the call of, or the tuple is a placeholder.
    """
    if role == "placeholder":
        raise HistoryError(
            f"{where} is LangChain's ('placeholder', ...), which stands for messages; put the messages in its place"
        )
    kind = {"user": "human", "assistant": "ai"}.get(role, role)
    if _ROLES[kind] == "tool":
        raise HistoryError(
            f"{where} is a LangChain tuple of a tool's result without the id of its call; write "
            "{'role': 'tool', 'tool_call_id': ..., 'content': ...}"
        )
    return read_message({"type": kind, "content": content}, where, OpenCalls())[0]
