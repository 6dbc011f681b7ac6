"""Reads the contents of Gemini, ``{"role": "model", "parts": [...]}``, and LangChain's messages.

Gemini's are in the keys of its REST API or of its client; LangChain's are objects and dicts with a ``type``, and tuples
of a role and a content. Source of the forms: Gemini's API reference, "Content", and the types of the official client
(google-genai); ``langchain_core.messages`` and its standard content blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from lazyprompt._base.client_objects import fields_of, snake_keys, standard_base64
from lazyprompt._base.json import Fields, JsonObject, checked_object, to_json
from lazyprompt._base.roles import ROLES, Role
from lazyprompt.errors import HistoryError
from lazyprompt.messages.msg import (
    Base64Source,
    Msg,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    URLSource,
    block_of_media,
)
from lazyprompt.messages.openai_form import PART_FIELDS
from lazyprompt.messages.read_openai import arguments_in, id_of_place
from lazyprompt.messages.read_parts import Beside, list_in, needed_text, object_in, read_parts, text_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lazyprompt.messages.msg import Block

# A content without a role is the user's. Results stood in contents of the role "function" once.
_GEMINI_ROLES: dict[object, Role] = {None: "user", "user": "user", "function": "user", "model": "assistant"}


def read_content(item: Fields, where: str, waiting: Mapping[str, str]) -> tuple[Msg, ...]:
    """Read a content.

    Args:
        item: The content as a dict.
        where: How an error names it.
        waiting: The calls still without a result: their tools by their ids.

    Returns:
        The message; results of tools are a message of their own, before what the user says beside them.

    Raises:
        HistoryError: A part holds nothing that a block can hold, or the role is unknown.
    """
    given = item.get("role")
    if not isinstance(given, str | None) or given not in _GEMINI_ROLES:
        raise HistoryError(f"{where} has role {given!r}; a content of Gemini has 'user' or 'model'")
    role, open_calls, beside = _GEMINI_ROLES[given], dict(waiting), cast("Beside", {})
    others: list[Block] = []
    results: list[Block] = []
    for index, part in enumerate(list_in(item["parts"], f"{where}.parts")):
        place = f"{where}.parts[{index}]"
        if isinstance(part, str):
            others.append(TextBlock(part))
            continue
        fields: dict[str, object] = {
            key: value for key, value in snake_keys(object_in(part, place)).items() if value is not None
        }
        block = _read(fields, place, open_calls)
        (results if isinstance(block, ToolResultBlock) else others).append(block)
        # Empty texts and false flags say nothing.
        if rest := {key: value for key, value in fields.items() if value}:
            beside[f"parts[{index}]"] = checked_object(rest, place, HistoryError)
    metadata = {PART_FIELDS: beside} if beside else None
    messages = [Msg("tool", results, "tool", metadata=metadata)] if results else []
    if others or not results:
        messages.append(Msg(role, others, role, metadata=None if results else metadata))
    return tuple(messages)


def _read(part: dict[str, object], where: str, open_calls: dict[str, str]) -> Block:
    """Read a part; what the block holds is taken out of its fields."""
    found = [kind for kind in _READERS if kind in part]
    if len(found) != 1:
        raise HistoryError(
            f"{where} holds {', '.join(map(repr, part)) or 'nothing'}; give one of {', '.join(_READERS)}, and write "
            "anything else as text"
        )
    return _READERS[found[0]](part, where, open_calls)


def _text(part: dict[str, object], where: str, _: dict[str, str]) -> Block:
    text, signature = text_in(part.pop("text"), f"{where}.text"), _signature(part)
    if part.pop("thought", False) is True:
        return ThinkingBlock(text, signature, provider="gemini")
    return TextBlock(text, signature=signature)


def _call(part: dict[str, object], where: str, open_calls: dict[str, str]) -> Block:
    place = f"{where}.function_call"
    call = object_in(part.pop("function_call"), place)
    name = needed_text(call.get("name"), f"{place}.name")
    call_id = text_in(call.get("id"), f"{place}.id") or id_of_place(where)
    open_calls[call_id] = name
    return ToolUseBlock(call_id, name, arguments_in(call.get("args"), f"{place}.args"), signature=_signature(part))


def _response(part: dict[str, object], where: str, open_calls: dict[str, str]) -> Block:
    place = f"{where}.function_response"
    given = object_in(part.pop("function_response"), place)
    name = text_in(given.get("name"), f"{place}.name")
    call_id = text_in(given.get("id"), f"{place}.id")
    if not call_id:
        # Gemini matches results to calls by name and order.
        call_id = next((waiting for waiting, tool in open_calls.items() if tool == name), "")
        if not call_id:
            raise HistoryError(f"{place} has no id, and no call of {name!r} waits for a result")
    open_calls.pop(call_id, None)
    output, is_error = _output(given.get("response"), place)
    media = [
        _medium(dict(snake_keys(object_in(each, f"{place}.parts[{index}]"))), f"{place}.parts[{index}]", open_calls)
        for index, each in enumerate(list_in(given.get("parts"), f"{place}.parts"))
    ]
    blocks = [*([TextBlock(output)] if output else []), *media]
    return ToolResultBlock(call_id, name, blocks if media else output, is_error=is_error)


def _output(response: object, where: str) -> tuple[str, bool]:
    """Return the text of a response, and whether it is an error; data stay JSON."""
    fields = object_in(response or {}, f"{where}.response")
    for key, is_error in (("output", False), ("error", True)):
        if fields.keys() == {key} and isinstance(fields[key], str):
            return cast("str", fields[key]), is_error
    return to_json(checked_object(fields, f"{where}.response", HistoryError)) if fields else "", False


def _medium(part: dict[str, object], where: str, _: dict[str, str]) -> Block:
    key = next((key for key in ("inline_data", "file_data") if part.get(key)), "")
    fields = snake_keys(fields_of(part.pop(key, None)))
    media_type = text_in(fields.get("mime_type"), f"{where}.mime_type")
    if key == "file_data":
        url = needed_text(fields.get("file_uri"), f"{where}.file_data.file_uri")
        return block_of_media(URLSource(url, media_type or None), media_type)
    data = standard_base64(fields.get("data"))
    media_type = needed_text(media_type, f"{where}.inline_data.mime_type")
    return block_of_media(Base64Source(media_type, needed_text(data, f"{where}.inline_data.data")), media_type)


def _signature(part: dict[str, object]) -> str | None:
    return standard_base64(part.pop("thought_signature", None)) or None


_READERS: dict[str, Callable[[dict[str, object], str, dict[str, str]], Block]] = {
    "text": _text,
    "function_call": _call,
    "function_response": _response,
    "inline_data": _medium,
    "file_data": _medium,
}


# The types of messages; a part of a stream that was added up is a "...MessageChunk".
_LANGCHAIN_ROLES: dict[str, Role] = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "developer": "developer",
    "tool": "tool",
    "function": "tool",
}
_CHUNK = "MessageChunk"
TYPES = frozenset(
    {*_LANGCHAIN_ROLES, "chat", *(f"{kind}{_CHUNK}" for kind in ("Human", "AI", "System", "Tool", "Function", "Chat"))}
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


def read_message(item: Fields, where: str, waiting: Mapping[str, str]) -> tuple[Msg, ...]:
    """Read a message.

    Args:
        item: The message as a dict; one that LangChain itself made a dict of has its fields under ``data``.
        where: How an error names it.
        waiting: The calls still without a result: their tools by their ids.

    Returns:
        The message.

    Raises:
        HistoryError: A field has a wrong shape.
    """
    item = {**item, **fields_of(item.get("data"))}
    kwargs = fields_of(item.get("additional_kwargs"))
    role = _langchain_role(item, kwargs, where)
    beside: Beside = {}
    parts = _langchain_parts(item.get("content"), f"{where}.content")
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
        blocks = [*([ThinkingBlock(thought)] if thought else []), *blocks, *_langchain_calls(item, blocks, where)]
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
    return (Msg(name if name and role != "tool" else role, content, role, metadata=metadata),)


def _langchain_parts(content: object, where: str) -> str | list[object]:
    """Return a content as text or parts; LangChain's may be lists of texts and parts."""
    if not isinstance(content, list | tuple):
        return text_in(content, where)
    parts = cast("Sequence[object]", content)
    return [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]


def _langchain_role(item: Fields, kwargs: Fields, where: str) -> Role:
    kind = str(item["type"]).removesuffix(_CHUNK).lower()
    role = item.get("role") if kind == "chat" else _LANGCHAIN_ROLES[kind]
    if role == "system" and kwargs.get("__openai_role__") == "developer":
        return "developer"
    if role not in ROLES:
        raise HistoryError(f"{where} has role {role!r}; known are {', '.join(ROLES)}")
    return role


def _langchain_calls(item: Fields, blocks: Iterable[Block], where: str) -> list[Block]:
    """Return the calls of a message that do not stand in its content too."""
    known = {block.id for block in blocks if isinstance(block, ToolUseBlock)}
    calls: list[Block] = []
    for key in ("tool_calls", "invalid_tool_calls"):
        for index, given in enumerate(list_in(item.get(key), f"{where}.{key}")):
            place = f"{where}.{key}[{index}]"
            call = object_in(given, place)
            call_id = text_in(call.get("id"), f"{place}.id") or id_of_place(place)
            if call_id in known:
                continue
            name = text_in(call.get("name"), f"{place}.name")
            if key == "invalid_tool_calls":
                calls.append(ToolUseBlock(call_id, name, raw_input=text_in(call.get("args"), f"{place}.args")))
            else:
                calls.append(ToolUseBlock(call_id, name, arguments_in(call.get("args"), f"{place}.args")))
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
    if _LANGCHAIN_ROLES[kind] == "tool":
        raise HistoryError(
            f"{where} is a LangChain tuple of a tool's result without the id of its call; write "
            "{'role': 'tool', 'tool_call_id': ..., 'content': ...}"
        )
    return read_message({"type": kind, "content": content}, where, {})[0]
