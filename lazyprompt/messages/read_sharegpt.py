"""Parses messages in the ShareGPT format for fine-tuning data sets: dicts with ``from`` and ``value``.

The format is described in LLaMA-Factory's data documentation. A ``function_call`` is a JSON object with ``name`` and
``arguments``, or a list of such objects. An ``observation`` is a tool result.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from lazyprompt._base.json import Fields, checked_object, is_list, well_formed
from lazyprompt.errors import HistoryError, did_you_mean
from lazyprompt.messages.msg import ToolResultBlock, message_of
from lazyprompt.messages.read_openai import read_call
from lazyprompt.messages.read_parts import needed_text, object_in, text_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lazyprompt._base.roles import Role
    from lazyprompt.messages.msg import Msg, ToolUseBlock
    from lazyprompt.messages.open_calls import OpenCalls

KEYS: Final = frozenset({"from", "value"})
"""The keys of a ShareGPT message."""

_CALL = "function_call"
_ROLES: Final[Mapping[str, Role]] = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    _CALL: "assistant",
    "system": "system",
    "observation": "tool",
    "tool": "tool",
}


def read_turn(item: Fields, where: str, waiting: OpenCalls) -> tuple[Msg, ...]:
    """Parse a ShareGPT message.

    Args:
        item: The message as a dict.
        where: The message's name in error messages.
        waiting: The tool calls that have no result yet. A tool result is assigned to the oldest call in ``waiting``.

    Returns:
        The message; keys other than ``from`` and ``value`` are stored as metadata.

    Raises:
        HistoryError: The value of ``from`` is unknown, or a field has the wrong type.
    """
    speaker = text_at(item, "from", where)
    if speaker not in _ROLES:
        near = did_you_mean(speaker, _ROLES)
        raise HistoryError(
            f"{where}.from is the unknown speaker {speaker!r}{near}; expected one of {', '.join(_ROLES)}"
        )
    text = well_formed(text_at(item, "value", where), f"the value of {where}", HistoryError)
    others = {key: value for key, value in item.items() if key not in KEYS and value is not None}
    metadata = checked_object(others, where, HistoryError) if others else None
    role = _ROLES[speaker]
    if speaker == _CALL:
        return (message_of("", _calls(text, where, waiting), role, metadata=metadata),)
    if role != "tool":
        return (message_of("", text, role, metadata=metadata),)
    call_id = next(iter(waiting), "")
    if not call_id:
        raise HistoryError(f"{where} is a result, but no earlier {_CALL} is waiting for one")
    return (message_of("", (ToolResultBlock(call_id, waiting[call_id], text),), role, metadata=metadata),)


def _calls(text: str, where: str, waiting: OpenCalls) -> tuple[ToolUseBlock, ...]:
    try:
        read: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        what = f"{where}.value is not JSON; a {_CALL} must be the JSON of {{'name': ..., 'arguments': ...}}"
        raise HistoryError(what) from error
    calls = [object_in(call, f"{where}.value") for call in (read if is_list(read) else [read])]
    return tuple(
        read_call(
            waiting.new_id(at), needed_text(call.get("name"), f"{where}.value.name"), call.get("arguments"), where
        )
        for at, call in enumerate(calls)
    )
