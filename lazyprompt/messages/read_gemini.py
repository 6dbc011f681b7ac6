"""Parses Gemini contents such as ``{"role": "model", "parts": [...]}``.

The keys may be spelled as in the REST API or as in the official client (google-genai). The format is documented in the
API reference, "Content", and in the types of Google's client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lazyprompt._base.client_objects import items_of, plain, snake_keys, standard_base64
from lazyprompt._base.json import Fields, JsonObject, checked, checked_object, is_dict, is_mapping, to_json
from lazyprompt.errors import HistoryError
from lazyprompt.messages.msg import (
    Base64Source,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    URLSource,
    block_of_media,
    message_of,
)
from lazyprompt.messages.native import PART_FIELDS, Native
from lazyprompt.messages.read_openai import parted, read_call
from lazyprompt.messages.read_parts import Beside, base64_in, list_in, needed_text, object_in, text_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyprompt._base.roles import Role
    from lazyprompt.messages.msg import Block, Msg
    from lazyprompt.messages.open_calls import OpenCalls

# Content without a role comes from the user. "function" is the legacy role for tool results.
_ROLES: dict[object, Role] = {None: "user", "user": "user", "function": "user", "model": "assistant"}


def read_content(item: Fields, where: str, waiting: OpenCalls) -> tuple[Msg, ...]:
    """Parse a Gemini ``Content`` object.

    Args:
        item: The ``Content`` object as a dict.
        where: The item's name in error messages.
        waiting: The tool calls that have no result yet.

    Returns:
        The message. Tool results in a user message become a separate message before the user message.

    Raises:
        HistoryError: A part is invalid, or the role is unknown.
    """
    given = item.get("role")
    if not isinstance(given, str | None) or given not in _ROLES:
        raise HistoryError(
            f"{where} has the role {given!r}; the role of a Gemini Content object must be 'user' or 'model'"
        )
    role, open_calls = _ROLES[given], dict(waiting)
    beside: Beside = {}
    blocks: list[Block] = []
    for index, part in enumerate(list_in(item["parts"], f"{where}.parts")):
        calls = sum(isinstance(block, ToolUseBlock) for block in blocks)
        block = read_gemini_part(part, f"{where}.parts[{index}]", open_calls, waiting.new_id(calls), beside)
        if block is not None:
            blocks.append(block)
    metadata: JsonObject | None = {PART_FIELDS: {**beside}} if beside else None
    native: Native | None = None
    # Blocks represent a user's text and media parts completely, so such messages need no copy in Gemini's own format.
    if role == "assistant" or beside or any(isinstance(block, ToolResultBlock) for block in blocks):
        parts = [client_part(part) for part in list_in(item["parts"], where)]
        native = Native("gemini", checked(parts, f"{where}.parts", HistoryError))
    message = message_of("", tuple(blocks), role, metadata=metadata, native=native)
    return parted(message) if role == "user" else (message,)


def client_part(part: object) -> object:
    """Rename the keys of a part and its nested objects as in Google's client, except in arguments and results."""
    if isinstance(part, str):
        return {"text": part}
    fields: dict[str, object] = {}
    for key, value in snake_keys(plain(part)).items():
        fields[key] = {**snake_keys(value)} if is_mapping(value) else value
    response = fields.get("function_response")
    if is_dict(response) and response.get("parts"):
        response["parts"] = [client_part(each) for each in items_of(response["parts"])]
    return fields


def read_gemini_part(part: object, where: str, open_calls: dict[str, str], new_id: str, beside: Beside) -> Block | None:
    """Parse a content part. A part of an unknown kind is added to ``beside``.

    Args:
        part: The part, as a string, a dict or an object from Google's client library.
        where: The part's name in error messages, such as ``history[0].parts[1]``.
        open_calls: The tool names of calls without a result, by call id.
        new_id: The id to assign to a call that has none.
        beside: A dict that collects the fields that no block can express.
    """
    if isinstance(part, str):
        return TextBlock(part)
    fields = {key: value for key, value in snake_keys(object_in(part, where)).items() if value is not None}
    block = _read(fields, where, _Calls(open_calls, new_id))
    if rest := {key: value for key, value in fields.items() if value}:
        beside[where.partition("].")[2] or where] = checked_object(rest, where, HistoryError)
    return block


class _Calls(NamedTuple):
    """The context for parsing calls and results.

    Attributes:
        open: The tool names of calls without a result, by call id.
        new_id: The id to assign to a call that has none.
    """

    open: dict[str, str]
    new_id: str


def _read(part: dict[str, object], where: str, calls: _Calls) -> Block | None:
    """Parse a part, and remove the parsed fields from the dict. Return None for a part of an unknown kind."""
    found = [kind for kind in _READERS if kind in part]
    if len(found) > 1 or not part:
        raise HistoryError(
            f"{where} contains {' and '.join(map(repr, found)) or 'nothing'}; use one of {', '.join(_READERS)}"
        )
    return _READERS[found[0]](part, where, calls) if found else None


def _text(part: dict[str, object], where: str, _: _Calls) -> Block:
    text, signature = text_in(part.pop("text"), f"{where}.text"), _signature(part)
    if part.pop("thought", False) is True:
        return ThinkingBlock(text, signature, provider="gemini")
    return TextBlock(text, signature=signature)


def _call(part: dict[str, object], where: str, calls: _Calls) -> Block:
    place = f"{where}.function_call"
    call = object_in(part.pop("function_call"), place)
    name = needed_text(call.get("name"), f"{place}.name")
    call_id = text_in(call.get("id"), f"{place}.id") or calls.new_id
    calls.open[call_id] = name
    return read_call(call_id, name, call.get("args"), f"{place}.args", _signature(part))


def _response(part: dict[str, object], where: str, calls: _Calls) -> Block:
    place = f"{where}.function_response"
    given = object_in(part.pop("function_response"), place)
    name = text_in(given.get("name"), f"{place}.name")
    call_id = text_in(given.get("id"), f"{place}.id")
    if not call_id:
        # Gemini matches a result without an id to a call by name and order.
        call_id = next((waiting for waiting, tool in calls.open.items() if tool == name), "")
        if not call_id:
            raise HistoryError(f"{place} has no id, and no call to {name!r} is waiting for a result")
    calls.open.pop(call_id, None)
    output, is_error = _output(given.get("response"), place)
    media = [
        _medium(dict(snake_keys(object_in(each, f"{place}.parts[{index}]"))), f"{place}.parts[{index}]", calls)
        for index, each in enumerate(list_in(given.get("parts"), f"{place}.parts"))
    ]
    blocks = [*([TextBlock(output)] if output else []), *media]
    return ToolResultBlock(call_id, name, blocks if media else output, is_error=is_error)


def _output(response: object, where: str) -> tuple[str, bool]:
    """Return the output text, and True if the text is an error message. Structured data is converted to JSON text."""
    fields = object_in(response or {}, f"{where}.response")
    for key, is_error in (("output", False), ("error", True)):
        text = fields.get(key)
        if isinstance(text, str) and len(fields) == 1:
            return text, is_error
    return to_json(checked_object(fields, f"{where}.response", HistoryError)) if fields else "", False


def _medium(part: dict[str, object], where: str, _: _Calls) -> Block:
    key = next(key for key in ("inline_data", "file_data") if key in part)
    where = f"{where}.{key}"
    fields = snake_keys(object_in(part.pop(key), where))
    media_type = text_in(fields.get("mime_type"), f"{where}.mime_type")
    if key == "file_data":
        url = needed_text(fields.get("file_uri"), f"{where}.file_uri")
        return block_of_media(URLSource(url, media_type or None), media_type)
    data = base64_in(fields.get("data"), f"{where}.data")
    media_type = needed_text(media_type, f"{where}.mime_type")
    return block_of_media(Base64Source(media_type, needed_text(data, f"{where}.data")), media_type)


def _signature(part: dict[str, object]) -> str | None:
    return standard_base64(part.pop("thought_signature", None)) or None


_READERS: dict[str, Callable[[dict[str, object], str, _Calls], Block]] = {
    "text": _text,
    "function_call": _call,
    "function_response": _response,
    "inline_data": _medium,
    "file_data": _medium,
}
