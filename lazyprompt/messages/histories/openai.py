"""Reads messages in the OpenAI chat form; their content may be in any provider's parts, Anthropic's too.

Source of the form: the Chat Completions API reference, "Create chat completion", and the types of the official client.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

from lazyprompt._base.json import Fields, JsonObject, checked, checked_object, to_json
from lazyprompt._base.roles import ROLES
from lazyprompt.errors import HistoryError, did_you_mean
from lazyprompt.messages.histories.parts import Beside, are_parts, list_in, object_in, read_parts, text_at
from lazyprompt.messages.msg import Block, Msg, ThinkingBlock, ToolResultBlock, ToolUseBlock
from lazyprompt.messages.openai_form import KNOWN_KEYS, PART_FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def message_from_openai(message: Fields, where: str, unanswered: Iterable[str]) -> Msg:
    """Read an OpenAI dict, or a dict with the parts or blocks of another form as content.

    Args:
        message: The dict; left as it is.
        where: How an error names it, as ``history[3]``.
        unanswered: The ids of the calls still without a result; a result without an id takes the oldest.

    Returns:
        The message as a value.

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
    said = message.get("content")
    if type(said) is str and len(message) == 2 and role != "tool":  # noqa: PLR2004 - role and content, as most have
        return Msg(role, said, role)
    name = text_at(message, "name", where) if "name" in message else ""
    url = (text_at(message, "url", where) or None) if "url" in message else None
    beside: Beside = {}
    if role == "tool" and not _holds_results(said):
        content: str | tuple[Block, ...] = (_result(message, name, where, unanswered, beside),)
    else:
        content = _content(message, where, beside)
    metadata = _metadata(message, where, beside) if beside or not message.keys() <= KNOWN_KEYS else None
    return Msg(name or role, content, role, url, metadata)


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


def _content(message: Fields, where: str, beside: Beside) -> str | tuple[Block, ...]:
    """Return thinking, then content, then calls, as one tuple of blocks; plain text stays plain."""
    thinking = text_at(message, "reasoning_content", where) if "reasoning_content" in message else ""
    calls = message.get("tool_calls")
    content = message.get("content")
    if isinstance(content, str) and not thinking and not calls:
        return str.__str__(content)
    if content is None and not thinking and not calls and not message.get("refusal"):
        raise HistoryError(f"{where} has neither content nor tool_calls")
    # Beside calls an empty thought says something: that this model thinks, and had nothing to say.
    blocks: list[Block] = (
        [ThinkingBlock(thinking)] if thinking or (calls and message.get("reasoning_content") == "") else []
    )
    if content:
        blocks += read_parts(content, f"{where}.content", beside)
    if calls:
        blocks += [_call(call, index, where) for index, call in enumerate(list_in(calls, f"{where}.tool_calls"))]
    return tuple(blocks)


def _holds_results(content: object) -> bool:
    """Return True for a tool message whose content has the results as blocks."""
    return isinstance(content, list | tuple) and any(
        isinstance(part, ToolResultBlock)
        or (isinstance(part, dict) and cast("Fields", part).get("type") == "tool_result")
        for part in cast("Sequence[object]", content)
    )


def _call(call: object, index: int, message: str) -> ToolUseBlock:
    where = f"{message}.tool_calls[{index}]"
    fields = call if isinstance(call, dict) else object_in(call, where)
    function = fields.get("function")
    if not isinstance(function, dict):
        function = object_in(function, f"{where}.function")
    name = text_at(function, "name", f"{where}.function")
    if not name:
        raise HistoryError(f"{where}.function has no name")
    given = function.get("arguments")
    arguments = _decoded(given) if type(given) is str else None
    if arguments is None:
        arguments = arguments_in(given, f"{where}.function.arguments")
    try:
        return ToolUseBlock(text_at(fields, "id", where) or id_of_place(where), name, arguments)
    except HistoryError:
        checked_object(arguments, f"{where}.function.arguments", HistoryError)
        raise


def _decoded(text: str) -> dict[str, object] | None:
    """Return a JSON object that is all of a text; None for any other text."""
    try:
        value, end = _decode(text)
    except ValueError:
        return None
    return value if type(value) is dict and end == len(text) else None


# json.loads makes sure of more than this, and takes twice the time.
_decode = json.JSONDecoder().raw_decode


def arguments_in(arguments: object, where: str) -> dict[str, object]:
    """Return the arguments of a call: a dict, or one written as JSON; nothing is no argument.

    Raises:
        HistoryError: They are neither.
    """
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except ValueError as error:
            raise HistoryError(f"{where} is no JSON: {error}; given was {arguments!r}") from error
    return dict(checked_object(object_in(arguments or {}, where), where, HistoryError))


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
    if isinstance(message.content, str) or message.role != "user":
        return (message,)
    results = [block for block in message.content if isinstance(block, ToolResultBlock)]
    if not results:
        return (message,)
    rest = [block for block in message.content if not isinstance(block, ToolResultBlock)]
    tool = Msg("tool", results, "tool", metadata=message.metadata)
    return (tool, Msg(message.name, rest, "user", message.url)) if rest or message.url else (tool,)
