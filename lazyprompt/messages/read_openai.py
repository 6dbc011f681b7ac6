"""Reads OpenAI's forms: chat messages, whose content may be in any provider's parts; items of the Responses API.

Source of the forms: the API references, "Create chat completion" and "Create a model response", and the types of the
official client.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, cast

from lazyprompt._base.json import Fields, JsonObject, checked, checked_object, is_well_formed, to_json, well_formed
from lazyprompt._base.roles import ROLES, Role
from lazyprompt.errors import HistoryError, did_you_mean
from lazyprompt.messages.msg import (
    Block,
    Msg,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    call_of,
    message_of,
    plain_block,
    result_of,
)
from lazyprompt.messages.openai_form import KNOWN_KEYS, PART_FIELDS
from lazyprompt.messages.read_parts import (
    Beside,
    are_parts,
    list_in,
    needed_text,
    object_in,
    read_parts,
    text_at,
    text_in,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


# The name, content, role, url and metadata of a message.
MessageFields: TypeAlias = "tuple[str, str | tuple[Block, ...], Role, str | None, JsonObject | None]"

# The number of keys of a message that is a role and a content.
_BARE = 2


def message_from_openai(message: Mapping[str, Any], where: str, unanswered: Iterable[str]) -> Msg:
    """Read a message dict as a value; one without a name is called what its role is. See :func:`read_fields`."""
    name, content, role, url, metadata = plain_fields(message) or read_fields(message, where, unanswered)
    return message_of(name or role, content, role, url, metadata)


def plain_fields(message: Mapping[str, Any]) -> MessageFields | None:
    """Read a message that is a role and a text, or a tool's result that is a text, as most messages are.

    Returns:
        The fields of the message; None of any other, and of one with a fault.
    """
    # A dict of another class may add a key that is asked for.
    if message.__class__ is not dict:
        return None
    try:
        role, content = message["role"], message["content"]
    except KeyError:
        return None
    if type(content) is not str or role not in ROLES or not (content.isascii() or is_well_formed(content)):
        return None
    if role != "tool":
        return ("", content, role, None, None) if len(message) == _BARE else None
    call_id, name = message.get("tool_call_id"), message.get("name", "")
    plain = type(call_id) is str and type(name) is str and len(message) == _BARE + 1 + ("name" in message)
    if not (plain and call_id and call_id.isascii() and name.isascii()):
        return None
    return name, (result_of(call_id, name, content),), role, None, None


def read_fields(
    message: Mapping[str, Any], where: str, unanswered: Iterable[str], calls: type[ToolUseBlock] = ToolUseBlock
) -> MessageFields:
    """Read an OpenAI dict, or a dict with the parts or blocks of another form as content.

    Args:
        message: The dict; left as it is.
        where: How an error names it, as ``history[3]``.
        unanswered: The ids of the calls still without a result; a result without an id takes the oldest.
        calls: The class of calls.

    Returns:
        The fields of a message, checked; the name is empty if the dict has none.

    Raises:
        HistoryError: It has no known role, or a part of it has the wrong shape.
    """
    role = message.get("role")
    if role not in ROLES:
        raise HistoryError(
            f"{where} has role {role!r}; known are {', '.join(ROLES)}{did_you_mean(str(role), ROLES)}"
            if "role" in message
            else f"{where} has no 'role'; an OpenAI message is {{'role': ..., 'content': ...}}"
        )
    content = message.get("content")
    name = text_at(message, "name", where) if "name" in message else ""
    url = (text_at(message, "url", where) or None) if "url" in message else None
    beside: Beside = {}
    made: str | tuple[Block, ...]
    if role == "tool" and not _holds_results(content):
        made = (_result(message, name, where, unanswered, beside),)
    else:
        made = _content(message, content, where, beside, calls)
    metadata = _metadata(message, where, beside) if beside or not message.keys() <= KNOWN_KEYS else None
    if name:
        well_formed(name, "the name of a message", HistoryError)
    if type(made) is str:
        well_formed(made, f"the message of {name or role!r}", HistoryError)
    if url:
        well_formed(url, f"the url of the message of {name or role!r}", HistoryError)
    return name, made, role, url, metadata


def _metadata(message: Fields, where: str, beside: Beside) -> JsonObject:
    """Return the keys that the form gives no meaning, and the fields of parts that no block has a place for."""
    found: dict[str, object] = {
        key: value
        for key, value in message.items()
        if key not in KNOWN_KEYS and (value or isinstance(value, bool | int | float))
    }
    if beside:
        found[PART_FIELDS] = beside
    return checked_object(found, where, HistoryError)


def _content(
    message: Fields, content: object, where: str, beside: Beside, kind: type[ToolUseBlock]
) -> str | tuple[Block, ...]:
    """Return thinking, then content, then calls, as one tuple of blocks; plain text stays plain."""
    thinking = text_at(message, "reasoning_content", where) if "reasoning_content" in message else None
    calls = message.get("tool_calls")
    if not (thinking or calls):
        if isinstance(content, str):
            return str.__str__(content)
        if content is None and not message.get("refusal"):
            raise HistoryError(f"{where} has neither content nor tool_calls")
    blocks: list[Block] = []
    # Beside calls an empty thought says something: that this model thinks, and had nothing to say.
    if thinking or (calls and thinking is not None and message["reasoning_content"] is not None):
        blocks.append(ThinkingBlock(thinking))
    if type(content) is str and content and is_well_formed(content):
        blocks.append(plain_block(content))
    elif content:
        blocks += read_parts(content, f"{where}.content", beside)
    if calls:
        items: Any = calls if calls.__class__ is list else list_in(calls, f"{where}.tool_calls")
        blocks += [_call(call, index, where, kind) for index, call in enumerate(items)]
    return tuple(blocks)


def _holds_results(content: object) -> bool:
    """Return True for a tool message whose content has the results as blocks."""
    return isinstance(content, list | tuple) and any(
        isinstance(part, ToolResultBlock)
        or (isinstance(part, dict) and cast("Fields", part).get("type") == "tool_result")
        for part in cast("Sequence[object]", content)
    )


def _call(call: dict[str, Any], index: int, message: str, kind: type[ToolUseBlock]) -> ToolUseBlock:
    """Read a call; most have an id, a name and arguments that need no closer look."""
    given: Any = call.get("function") if call.__class__ is dict else None
    if given.__class__ is dict:
        call_id, name = call.get("id"), given.get("name")
        if type(name) is str and type(call_id) is str and name and call_id and name.isascii() and call_id.isascii():
            plain = _plain_object(given.get("arguments"))
            if plain is not None:
                return call_of(call_id, name, plain, kind)
    where = f"{message}.tool_calls[{index}]"
    fields = object_in(call, where)
    function = object_in(fields.get("function"), f"{where}.function")
    if not text_at(function, "name", f"{where}.function"):
        raise HistoryError(f"{where}.function has no name")
    read = arguments_in(function.get("arguments"), f"{where}.function.arguments")
    return ToolUseBlock(text_at(fields, "id", where) or id_of_place(where), str(function["name"]), read)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _finite(number: str) -> float:
    """Return a number; what is too large for one is no JSON value."""
    return found if isfinite(found := float(number)) else _refuse(number)


# Within so many signs nothing is nested too deep, and no integer is too long to be written.
_SHORT = 400
# It stops the iteration where there is no JSON at all.
_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite).scan_once  # type: ignore[attr-defined]  # the stubs leave it out


def _plain_object(text: object) -> dict[str, Any] | None:
    """Return the JSON object that is all of a short text; None where it has to be looked at closely.

    Half of a surrogate pair can hide in an escape alone, once the text itself is well formed.
    """
    if type(text) is not str or len(text) > _SHORT or "\\u" in text or not (text.isascii() or is_well_formed(text)):
        return None
    try:
        value, end = _scan(text, 0)
    except (StopIteration, ValueError):
        return None
    return value if value.__class__ is dict and end == len(text) else None


def arguments_in(arguments: object, where: str) -> dict[str, Any]:
    """Return the arguments of a call: a dict, or one written as JSON; nothing is no argument.

    Args:
        arguments: The arguments.
        where: How an error names them.

    Raises:
        HistoryError: They are neither.
    """
    if (plain := _plain_object(arguments)) is not None:
        return plain
    read = arguments
    if isinstance(arguments, str) and arguments:
        try:
            read = json.loads(arguments)
        except (ValueError, RecursionError) as error:
            raise HistoryError(f"{where} is no JSON: {error}; given was {arguments[:200]!r}") from error
    return checked_object(object_in(read or {}, where), where, HistoryError)


def id_of_place(where: str) -> str:
    """Return the id for a call that has none, made of its place: the same history gives the same bytes everywhere."""
    return "call_" + where.translate({ord(character): "_" for character in "[]."}).replace("__", "_").strip("_")


def _result(message: Fields, name: str, where: str, unanswered: Iterable[str], beside: Beside) -> ToolResultBlock:
    call_id = text_at(message, "tool_call_id", where) or next(iter(unanswered), "")
    if not call_id:
        raise HistoryError(f"{where} is a tool result without 'tool_call_id', and no call waits for one")
    content = message.get("content")
    if isinstance(content, str):
        output: str | tuple[Block, ...] = str.__str__(content)
    elif are_parts(content):
        output = read_parts(content, f"{where}.content", beside)
    else:
        output = to_json(checked(content, f"{where}.content", HistoryError))
    return ToolResultBlock(call_id, name, output)


def parted(message: Msg) -> tuple[Msg, ...]:
    """Return a user's message with tool results as two: the tools', and what the user says beside them.

    Anthropic's form and Gemini's have results in the user's turn.
    """
    results = [block for block in message.blocks if isinstance(block, ToolResultBlock)]
    if not results:
        return (message,)
    rest = [block for block in message.blocks if not isinstance(block, ToolResultBlock)]
    tool = Msg("tool", results, "tool", metadata=message.metadata)
    return (tool, Msg(message.name, rest, "user", message.url)) if rest or message.url else (tool,)


# State of the service's own; no content of a speaker.
_STATE = {"type", "id", "status"}


def read_item(item: Fields, where: str, waiting: Mapping[str, str]) -> tuple[Msg, ...]:
    """Read an item.

    Args:
        item: The item as a dict.
        where: How an error names it.
        waiting: The calls still without a result: their tools by their ids.

    Returns:
        The message that the item is, or is a part of; see :func:`continues`.

    Raises:
        HistoryError: A field has a wrong shape.
    """
    beside: Beside = {}
    message = ITEMS[str(item["type"])](item, where, waiting, beside)
    if not beside:
        return (message,)
    return (Msg(message.name, message.content, message.role, metadata={**message.metadata, PART_FIELDS: beside}),)


def continues(before: Msg, new: Msg) -> bool:
    """Return True if an item belongs to the message of the items before it.

    Outputs belong together. An answer is thoughts, then text, then calls, as one message of any other form has them.
    """
    if before.role != new.role or new.role not in ("assistant", "tool") or (before.metadata and new.metadata):
        return False
    order = ["thinking", "text", "tool_use", "tool_result"]
    last, first = before.blocks[-1:], new.blocks[:1]
    return (
        bool(last and first)
        and order.index(_kind_of(last[0].type)) <= order.index(_kind_of(first[0].type))
        and not (last[0].type == first[0].type == "text")
    )


def _kind_of(kind: str) -> str:
    return kind if kind in ("thinking", "tool_use", "tool_result") else "text"


def _message_item(item: Fields, where: str, waiting: Mapping[str, str], _: Beside) -> Msg:
    return message_from_openai({key: item[key] for key in item if key not in _STATE}, where, waiting)


def _reasoning_item(item: Fields, where: str, _: Mapping[str, str], __: Beside) -> Msg:
    parts = list_in(item.get("summary"), f"{where}.summary") or list_in(item.get("content"), f"{where}.content")
    texts = [
        text_in(object_in(part, f"{where}.summary[{index}]").get("text"), f"{where}.summary[{index}].text")
        for index, part in enumerate(parts)
    ]
    thought = ThinkingBlock(
        "\n\n".join(texts),
        text_in(item.get("encrypted_content"), f"{where}.encrypted_content") or None,
        id=text_in(item.get("id"), f"{where}.id") or None,
        provider="openai-responses",
    )
    return Msg("assistant", [thought], "assistant")


def _call_item(item: Fields, where: str, _: Mapping[str, str], __: Beside) -> Msg:
    call_id = text_in(item.get("call_id"), f"{where}.call_id") or id_of_place(where)
    name = needed_text(item.get("name"), f"{where}.name")
    arguments = arguments_in(item.get("arguments"), f"{where}.arguments")
    return Msg("assistant", [ToolUseBlock(call_id, name, arguments)], "assistant")


def _output_item(item: Fields, where: str, _: Mapping[str, str], beside: Beside) -> Msg:
    call_id = needed_text(item.get("call_id"), f"{where}.call_id")
    output = item.get("output")
    content = output if isinstance(output, str) else read_parts(output, f"{where}.output", beside)
    return Msg("tool", [ToolResultBlock(call_id, text_in(item.get("name"), f"{where}.name"), content)], "tool")


ITEMS: dict[str, Callable[[Fields, str, Mapping[str, str], Beside], Msg]] = {
    "message": _message_item,
    "reasoning": _reasoning_item,
    "function_call": _call_item,
    "function_call_output": _output_item,
}
"""The readers of items, by their type."""
