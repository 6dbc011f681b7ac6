"""Reads messages in the OpenAI chat form; their content may be in any provider's parts, Anthropic's too.

Source of the form: the Chat Completions API reference, "Create chat completion", and the types of the official client.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

from lazyprompt._base.json import Fields, checked, checked_object, dump
from lazyprompt._base.roles import ROLES
from lazyprompt.errors import HistoryError, did_you_mean
from lazyprompt.messages.histories.parts import Beside, are_parts, list_in, object_in, read_parts, text_in
from lazyprompt.messages.msg import Block, Msg, ThinkingBlock, ToolResultBlock, ToolUseBlock
from lazyprompt.messages.openai_form import KNOWN_KEYS, PART_FIELDS

if TYPE_CHECKING:
    from collections.abc import Sequence


def message_from_openai(message: Fields, where: str, unanswered: Sequence[str]) -> Msg:
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
    name = text_in(message.get("name"), f"{where}.name")
    beside: Beside = {}
    if role == "tool" and not _holds_results(message.get("content")):
        content: str | tuple[Block, ...] = (_result(message, name, where, unanswered, beside),)
    else:
        content = _content(message, where, beside)
    metadata: dict[str, object] = {
        key: value
        for key, value in message.items()
        if key not in KNOWN_KEYS and (value or isinstance(value, bool | int | float))
    }
    if beside:
        metadata[PART_FIELDS] = beside
    return Msg(
        name or role,
        content,
        role,
        url=text_in(message.get("url"), f"{where}.url") or None,
        metadata=checked_object(metadata, where, HistoryError),
    )


def _content(message: Fields, where: str, beside: Beside) -> str | tuple[Block, ...]:
    """Return thinking, then content, then calls, as one tuple of blocks; plain text stays plain."""
    thinking = text_in(message.get("reasoning_content"), f"{where}.reasoning_content")
    calls = list_in(message.get("tool_calls"), f"{where}.tool_calls")
    content = message.get("content")
    if content is None and not thinking and not calls and not message.get("refusal"):
        raise HistoryError(f"{where} has neither content nor tool_calls")
    if isinstance(content, str) and not thinking and not calls:
        return str.__str__(content)
    return (
        # Beside calls an empty thought says something: that this model thinks, and had nothing to say.
        *([ThinkingBlock(thinking)] if thinking or (calls and message.get("reasoning_content") == "") else ()),
        *read_parts(content, f"{where}.content", beside),
        *(_call(call, f"{where}.tool_calls[{index}]") for index, call in enumerate(calls)),
    )


def _holds_results(content: object) -> bool:
    """Return True for a tool message whose content has the results as blocks."""
    kinds = [
        part.type if isinstance(part, ToolResultBlock) else cast("Fields", part).get("type")
        for part in (cast("Sequence[object]", content) if isinstance(content, list | tuple) else ())
        if isinstance(part, ToolResultBlock | dict)
    ]
    return "tool_result" in kinds


def _call(call: object, where: str) -> ToolUseBlock:
    fields = object_in(call, where)
    function = object_in(fields.get("function"), f"{where}.function")
    name = text_in(function.get("name"), f"{where}.function.name")
    if not name:
        raise HistoryError(f"{where}.function has no name")
    arguments = arguments_in(function.get("arguments"), f"{where}.function.arguments")
    return ToolUseBlock(text_in(fields.get("id"), f"{where}.id") or id_of_place(where), name, arguments)


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


def _result(message: Fields, name: str, where: str, unanswered: Sequence[str], beside: Beside) -> ToolResultBlock:
    given = text_in(message.get("tool_call_id"), f"{where}.tool_call_id")
    if not given and not unanswered:
        raise HistoryError(f"{where} is a tool result without 'tool_call_id', and no call waits for one")
    content = message.get("content")
    if isinstance(content, str):
        output: str | tuple[Block, ...] = str.__str__(content)
    elif are_parts(content):
        output = read_parts(content, f"{where}.content", beside)
    else:
        output = str(dump(checked(content, f"{where}.content", HistoryError)))
    return ToolResultBlock(id=given or unanswered[0], name=name, output=output)


def parted(message: Msg) -> tuple[Msg, ...]:
    """Return a user's message with tool results as two: the tools', and what the user says beside them.

    Anthropic's form and Gemini's have results in the user's turn.
    """
    if message.role != "user" or isinstance(message.content, str):
        return (message,)
    results = [block for block in message.content if isinstance(block, ToolResultBlock)]
    if not results:
        return (message,)
    rest = [block for block in message.content if not isinstance(block, ToolResultBlock)]
    tool = Msg("tool", results, "tool", metadata=message.metadata)
    return (tool, Msg(message.name, rest, "user", message.url)) if rest or message.url else (tool,)
