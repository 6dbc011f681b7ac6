"""Parses OpenAI's formats: Responses API items, and chat messages with content parts from any provider.

The formats are documented in the API references, "Create chat completion" and "Create a model response", and in the
types of the official client.
"""

from __future__ import annotations

import json
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING, Any, NoReturn, get_args

from lazyprompt._base.client_objects import fields_of, items_of, members_of, plain
from lazyprompt._base.json import (
    Fields,
    Json,
    JsonObject,
    checked,
    checked_object,
    is_list,
    is_well_formed,
    to_json,
    well_formed,
)
from lazyprompt._base.roles import ROLES, Role
from lazyprompt.errors import HistoryError, did_you_mean
from lazyprompt.messages.msg import (
    Block,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    call_of,
    message_of,
    plain_block,
)
from lazyprompt.messages.native import PART_FIELDS, Native
from lazyprompt.messages.openai_form import KNOWN_KEYS
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
    from collections.abc import Callable, Iterable

    from lazyprompt.messages.msg import Msg
    from lazyprompt.messages.open_calls import OpenCalls


def read_openai(message: Fields, where: str, waiting: OpenCalls) -> Msg:
    """Parse an OpenAI message dict; its content may also use another provider's parts or blocks.

    Args:
        message: The dict, which is not modified.
        where: The message's name in error messages, such as ``history[3]``.
        waiting: The tool calls that have no result yet. A tool result without an id belongs to the oldest call that has
            no result.

    Raises:
        HistoryError: The role is unknown, or a field has the wrong type.
    """
    if message.get("role") == "function" or message.get("function_call"):
        message = _with_tools(message, waiting)
    if not _OTHER_NAMES.isdisjoint(message):
        message = _with_names_of_openai(message)
    role = message.get("role")
    if role not in ROLES:
        raise HistoryError(
            f"{where} has the unknown role {role!r}{did_you_mean(str(role), ROLES)}; expected one of {', '.join(ROLES)}"
            if "role" in message
            else f"{where} has no 'role'; an OpenAI message must be {{'role': ..., 'content': ...}}"
        )
    content = message.get("content")
    name = text_at(message, "name", where) if "name" in message else ""
    url = (text_at(message, "url", where) or None) if "url" in message else None
    is_compact = has_compact_calls(message)
    beside: Beside = {}
    made: str | tuple[Block, ...]
    if role == "tool" and not _holds_results(content):
        made = (_result(message, name, where, waiting, beside),)
    else:
        made = _content(message, content, where, waiting, beside)
    is_bare = not beside and message.keys() <= KNOWN_KEYS
    metadata = None if is_bare else _metadata(message, where, beside)
    is_plain = is_bare and type(content) is not list and not is_compact
    native = None if is_plain else _native(message, role, beside, where)
    if name:
        well_formed(name, "the name of a message", HistoryError)
    if type(made) is str:
        well_formed(made, f"the message from {name or role!r}", HistoryError)
    if url:
        well_formed(url, f"the URL of the message from {name or role!r}", HistoryError)
    # A tool message's `name` is the tool's name, which the result block already contains.
    return message_of("" if role == "tool" else name, made, role, url, metadata, native=native)


# The name of the Responses API in `Native.provider`.
RESPONSES = "openai-responses"
# The part types that identify the API that a message comes from.
_OPENAI_PARTS = frozenset({"image_url", "input_audio", "file", "refusal"})
_ANTHROPIC_PARTS = frozenset({"thinking", "redacted_thinking", "tool_use"})
_RESPONSES_PARTS = frozenset({"input_text", "input_image", "input_file", "output_text"})
# The keys of a chat message that no block type can represent.
_UNSAID = frozenset({"audio", "refusal", "annotations"})
# The keys that OpenAI's API accepts in an assistant message from an earlier response.
_SENT_BACK = frozenset({"role", "content", "name", "tool_calls", "tool_call_id"}) | _UNSAID


def _native(message: Fields, role: Role, beside: Beside, where: str) -> Native | None:
    """Return the message in the provider's native format if blocks cannot express the message, or None otherwise."""
    parts = items_of(message.get("content"))
    if any(isinstance(part, get_args(Block)) for part in parts):
        return None
    given = [fields_of(plain(part)) for part in parts]
    kinds = {str(part.get("type")) for part in given}
    data: Json = None
    provider = ""
    if kinds & _RESPONSES_PARTS or "phase" in message:
        provider, data = RESPONSES, _item_native(message, where) if beside else None
    elif (
        "tool_calls" in message
        or kinds & _OPENAI_PARTS
        or has_unsaid(message)
        or any("prompt_cache_breakpoint" in part for part in given)
    ):
        provider, data = "openai", _chat_native(message, beside, where)
    # Anthropic signs every thinking part, so an unsigned thinking part comes from another provider.
    elif not any(part.get("type") == "thinking" and not part.get("signature") for part in given) and (
        beside or (role == "assistant" and kinds & _ANTHROPIC_PARTS)
    ):
        provider, data = "anthropic", checked(given, f"{where}.content", HistoryError)
    return Native(provider, data) if data else None


def _item_native(message: Fields, where: str) -> list[Json]:
    """Return a message as a list with one Responses API item."""
    return [checked_object({key: value for key, value in message.items() if value is not None}, where, HistoryError)]


def _chat_native(message: Fields, beside: Beside, where: str) -> JsonObject | None:
    """Return a chat message in the form to send back to the API, or None if blocks fully express the message."""
    unsaid = any("type" in each or "prompt_cache_breakpoint" in each for each in beside.values())
    has_more = (
        has_unsaid(message) or has_compact_calls(message) or any(place.startswith("tool_calls") for place in beside)
    )
    return checked_object(sent_back(message), where, HistoryError) if unsaid or has_more else None


def has_unsaid(message: Fields) -> bool:
    """Return True if a chat message contains a key that must be sent back to the API but that no block can express."""
    return any(map(message.get, _UNSAID))


def has_compact_calls(message: Fields) -> bool:
    """Return True if the arguments of a call are JSON without spaces.

    Models write JSON without spaces, but this package writes JSON with spaces, so the original text must be kept.
    """
    calls: Any = message.get("tool_calls")
    return calls.__class__ is list and any(map(_is_compact, calls))


def _is_compact(call: dict[str, Any]) -> bool:
    function: Any = call.get("function") if call.__class__ is dict else None
    arguments: Any = function.get("arguments") if function.__class__ is dict else None
    return isinstance(arguments, str) and '":' in arguments and '": ' not in arguments


def sent_back(message: Fields) -> dict[str, object]:
    """Return a chat message in the form to send back to the API: only accepted keys, with audio reduced to its id."""
    kept = {key: value for key, value in message.items() if key == "content" or (key in _SENT_BACK and value)}
    if audio := fields_of(kept.get("audio")):
        kept["audio"] = {"id": audio.get("id")}
    return kept


# Field names in Ollama's and vLLM's messages that differ from OpenAI's field names.
_OTHER_NAMES = frozenset({"thinking", "reasoning", "tool_name", "images"})
# Maps the first characters of base64-encoded images to MIME types.
_IMAGE_TYPES = {"/9j/": "image/jpeg", "R0lG": "image/gif", "UklG": "image/webp"}


def _with_names_of_openai(message: Fields) -> Fields:
    """Convert the reasoning, tool name and image fields of an Ollama or vLLM message to OpenAI's fields."""
    made = {**message}
    for key in ("thinking", "reasoning"):
        if isinstance(message.get(key), str):
            made.setdefault("reasoning_content", made.pop(key))
    if isinstance(message.get("tool_name"), str) and message.get("role") == "tool":
        made["name"] = made.pop("tool_name")
    images = message.get("images")
    data = [image for image in images if isinstance(image, str)] if is_list(images) else []
    if is_list(images) and len(data) == len(images):
        del made["images"]
        text = [{"type": "text", "text": content}] if (content := message.get("content")) else []
        made["content"] = [*text, *map(_image, data)]
    return made


def _image(data: str) -> dict[str, object]:
    if "://" in data:
        return {"type": "image_url", "image_url": {"url": data}}
    source = {"type": "base64", "media_type": _IMAGE_TYPES.get(data[:4], "image/png"), "data": data}
    return {"type": "image", "source": source}


def _with_tools(message: Fields, waiting: OpenCalls) -> Fields:
    """Convert a legacy message with a ``function_call`` or the role ``function`` to the current fields."""
    made = {key: value for key, value in message.items() if key != "function_call"}
    call, name = message.get("function_call"), message.get("name")
    if call and not message.get("tool_calls"):
        made["tool_calls"] = [{"function": call}]
    if message.get("role") == "function":
        # A legacy function result has no call id, so match the result to a call by the function's name.
        made |= {"role": "tool", "tool_call_id": next((id_ for id_ in waiting if waiting[id_] == name), "")}
    return made


def _metadata(message: Fields, where: str, beside: Beside) -> JsonObject:
    """Return the keys that OpenAI's format does not define, and the part fields that no block can express."""
    found: dict[str, object] = {
        key: value
        for key, value in message.items()
        if key not in KNOWN_KEYS and (value or isinstance(value, bool | int | float))
    }
    if beside:
        found[PART_FIELDS] = beside
    return checked_object(found, where, HistoryError)


def _content(
    message: Fields, content: object, where: str, waiting: OpenCalls, beside: Beside
) -> str | tuple[Block, ...]:
    """Return blocks for the reasoning, the content and the tool calls, in that order.

    If a message contains only a string as content, return the string.
    """
    calls = message.get("tool_calls")
    thoughts = _thoughts(message, where, beside)
    if not (thoughts or calls):
        if isinstance(content, str):
            return str.__str__(content)
        if content is None and "content" not in message and not message.get("refusal"):
            raise HistoryError(f"{where} must contain 'content' or 'tool_calls'")
    blocks = [*thoughts]
    if not blocks and calls and message.get("reasoning_content") is not None:
        # Keep empty reasoning before a tool call, because some reasoning models require the field.
        blocks.append(ThinkingBlock(""))
    if type(content) is str and content and is_well_formed(content):
        blocks.append(plain_block(content))
    elif content:
        blocks += read_parts(content, f"{where}.content", beside)
    if calls:
        items: Any = calls if calls.__class__ is list else list_in(calls, f"{where}.tool_calls")
        blocks += [_call(call, index, where, waiting, beside) for index, call in enumerate(items)]
    return tuple(blocks)


def _thoughts(message: Fields, where: str, beside: Beside) -> list[Block]:
    """Return a message's reasoning, which is plain text or, from LiteLLM, a list of Anthropic blocks."""
    if given := message.get("thinking_blocks"):
        blocks = read_parts(given, f"{where}.thinking_blocks", beside)
        return [replace(block, provider="anthropic") for block in blocks if isinstance(block, ThinkingBlock)]
    text = text_at(message, "reasoning_content", where) if "reasoning_content" in message else ""
    return [ThinkingBlock(text)] if text else []


def _holds_results(content: object) -> bool:
    """Return True if the content of a tool message contains tool result blocks."""
    return any(
        isinstance(part, ToolResultBlock) or fields_of(part).get("type") == "tool_result" for part in items_of(content)
    )


def _call(call: dict[str, Any], index: int, message: str, waiting: OpenCalls, beside: Beside) -> ToolUseBlock:
    """Parse a tool call, with a fast path for the common case of a plain id, name and arguments."""
    given: Any = call.get("function") if call.__class__ is dict else None
    if given.__class__ is dict and len(call) <= _CALL and len(given) <= _FUNCTION:
        call_id, name = call.get("id"), given.get("name")
        if type(name) is str and type(call_id) is str and name and call_id and name.isascii() and call_id.isascii():
            plain_arguments = _plain_object(given.get("arguments"))
            if plain_arguments is not None:
                return call_of(call_id, name, plain_arguments)
    place = f"tool_calls[{index}]"
    where = f"{message}.{place}"
    fields = {key: value for key, value in object_in(call, where).items() if value is not None}
    # The input of a custom tool is free text instead of JSON arguments.
    kind = "custom" if fields.get("type") == "custom" else "function"
    function = {**object_in(fields.pop(kind, None), f"{where}.{kind}")}
    name = text_in(function.pop("name", None), f"{where}.{kind}.name")
    if not name:
        raise HistoryError(f"{where}.{kind} has no name")
    call_id = text_in(fields.pop("id", None), f"{where}.id") or waiting.new_id(index)
    if kind == "function" and fields.get("type") == "function":
        del fields["type"]
    arguments = function.pop("arguments" if kind == "function" else "input", None)
    if rest := {**fields, **({kind: function} if function else {})}:
        beside[place] = checked_object(rest, where, HistoryError)
    if kind == "custom":
        return ToolUseBlock(call_id, name, raw_input=text_in(arguments, f"{where}.custom.input"))
    return read_call(call_id, name, arguments, f"{where}.function.arguments")


def read_call(call_id: str, name: str, arguments: object, where: str, signature: str | None = None) -> ToolUseBlock:
    """Build a tool call. Arguments that are not a JSON object are stored as ``raw_input``.

    Args:
        call_id: The id of the call.
        name: The name of the tool.
        arguments: The arguments as a dict or as JSON text. None and empty text mean no arguments.
        where: The name used for the arguments in error messages.
        signature: Gemini's thought signature for the call.

    Raises:
        HistoryError: The arguments are a dict with values that are not JSON.
    """
    if (plain := _plain_object(arguments)) is not None:
        return ToolUseBlock(call_id, name, plain, signature=signature)
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return ToolUseBlock(call_id, name, signature=signature)
    if isinstance(arguments, str):
        try:
            read = checked_object(object_in(json.loads(arguments), where), where, HistoryError)
        except (ValueError, RecursionError):
            return ToolUseBlock(call_id, name, raw_input=arguments, signature=signature)
        return ToolUseBlock(call_id, name, read, signature=signature)
    if isinstance(arguments, dict) or members_of(arguments) is not None:
        given: dict[str, Any] = object_in(arguments, where)  # pyright: ignore[reportUnknownArgumentType]  # the keys may be of any type
        return ToolUseBlock(call_id, name, given, signature=signature)
    raw = to_json(checked(arguments, where, HistoryError))
    return ToolUseBlock(call_id, name, raw_input=raw, signature=signature)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _finite(number: str) -> float:
    """Parse a number, and reject a number that is too large for a float."""
    return found if isfinite(found := float(number)) else _refuse(number)


# The number of keys in an ordinary tool call (id, type, function) and in its function (name, arguments).
_CALL, _FUNCTION = 3, 2
# JSON text of at most this length, in characters, is too short for excessive nesting or an excessively long integer.
_SHORT = 400
# The JSON scanner raises `StopIteration` if the text is not JSON.
_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite).scan_once  # type: ignore[attr-defined]  # missing from the type stubs


def _plain_object(text: object) -> dict[str, Any] | None:
    """Parse a short text as a JSON object; return None if the text is not a JSON object or needs further checks.

    Text with Unicode escapes needs further checks, because an escape may be a lone surrogate.
    """
    if type(text) is not str or len(text) > _SHORT or "\\u" in text or not (text.isascii() or is_well_formed(text)):
        return None
    try:
        value, end = _scan(text, 0)
    except (StopIteration, ValueError):
        return None
    return value if value.__class__ is dict and end == len(text) else None


def _result(message: Fields, name: str, where: str, unanswered: Iterable[str], beside: Beside) -> ToolResultBlock:
    call_id = text_at(message, "tool_call_id", where) or next(iter(unanswered), "")
    if not call_id:
        raise HistoryError(f"{where} is a tool result without 'tool_call_id', and no call is waiting for a result")
    content = message.get("content")
    output: str | tuple[Block, ...]
    if isinstance(content, str):
        output = str.__str__(content)
    elif content is None or are_parts(content):
        output = read_parts(content, f"{where}.content", beside) or ""
    else:
        output = to_json(checked(content, f"{where}.content", HistoryError))
    return ToolResultBlock(call_id, name, output)


def parted(message: Msg) -> tuple[Msg, ...]:
    """Split a user message that contains tool results into a tool message and a user message.

    Anthropic and Gemini send tool results in the user's turn.
    """
    results = tuple(block for block in message.blocks if isinstance(block, ToolResultBlock))
    if not results:
        return (message,)
    rest = tuple(block for block in message.blocks if not isinstance(block, ToolResultBlock))
    of_results, of_rest = _parted_native(message.native)
    tool = message_of("", results, "tool", metadata=message.metadata, native=of_results)
    rest_of = message_of(message.speaker, rest, "user", message.url, native=of_rest)
    return (tool, rest_of) if rest or of_rest or message.url else (tool,)


def _parted_native(native: Native | None) -> tuple[Native | None, Native | None]:
    """Split a native message into the tool results and all other parts."""
    if native is None or not isinstance(native.data, list):
        return None, None
    results = [part for part in native.data if _is_result(part)]
    others = [part for part in native.data if not _is_result(part)]
    return Native(native.provider, results), Native(native.provider, others) if others else None


def _is_result(part: Json) -> bool:
    """Return True if an Anthropic or Gemini part is a tool result."""
    if not isinstance(part, dict):
        return False
    return part.get("type") == "tool_result" or "function_response" in part or "functionResponse" in part


# The keys that describe a Responses API item's state on the server rather than its content.
_STATE = {"type", "id", "status"}


def read_item(item: Fields, where: str, waiting: OpenCalls) -> tuple[Msg, ...]:
    """Parse a Responses API item.

    Args:
        item: The item as a dict. An item of an unknown type becomes a message without blocks, which is sent only to the
            Responses API.
        where: The item's name in error messages.
        waiting: The tool calls that have no result yet.

    Returns:
        A message, which may be only a part of the full message; see :func:`continues`.

    Raises:
        HistoryError: A field has the wrong type.
    """
    beside: Beside = {}
    given = {key: value for key, value in item.items() if value is not None}
    message = ITEMS.get(str(item["type"]), _unknown_item)(given, where, waiting, beside)
    metadata: JsonObject = {**message.metadata}
    if beside:
        metadata[PART_FIELDS] = {**beside}
    # The Responses API assigns an id to every reasoning item, so an item without an id comes from another source.
    is_own = item["type"] != "reasoning" or bool(item.get("id"))
    native = Native(RESPONSES, [checked_object(given, where, HistoryError)]) if is_own else None
    return (message_of(message.speaker, message.content, message.role, metadata=metadata, native=native),)


def joined(first: Msg, second: Msg) -> Msg:
    """Join two parsed messages that are parts of one message."""
    blocks = (*first.blocks, *second.blocks)
    items = [_items_of(message) for message in (first, second)]
    native = Native(RESPONSES, [*items[0], *items[1]]) if all(items) else None
    own, others = ({**message.metadata} for message in (first, second))
    own_fields, other_fields = own.get(PART_FIELDS), others.get(PART_FIELDS)
    if isinstance(own_fields, dict) and isinstance(other_fields, dict):
        # If the part fields of both joined messages contain the same key, append an item number to the second message's
        # key.
        fields = {**own_fields}
        for place, each in other_fields.items():
            fields[f"{place} (item {len(items[0]) + 1})" if place in fields else place] = each
        others[PART_FIELDS] = fields
    # Skip validation of the joined message, because validating all blocks for each item would take quadratic time.
    return message_of(first.speaker, blocks, first.role, first.url, own | others, native=native)


def _items_of(message: Msg) -> list[Json]:
    """Return a message as Responses API items, or an empty list if some blocks were not parsed from items."""
    if message.native is not None and message.native.provider == RESPONSES:
        return message.native.items()
    if isinstance(message.content, str) and message.content:
        return [{"role": message.role, "content": message.content}]
    return []


def continues(before: Msg, new: Msg) -> bool:
    """Return True if a Responses API item is part of the same message as the preceding items.

    All items of one model response form one message, regardless of their order. Consecutive tool outputs form one
    message. A text item directly after another text item begins a new message.

    Args:
        before: The message joined from the preceding items.
        new: The message parsed from the new item.
    """
    if before.role != new.role or new.role not in ("assistant", "tool"):
        return False
    last, first = before.blocks[-1:], new.blocks[:1]
    if not (last and first):
        # Join a message without blocks only if its item has an unknown type, but not if it is an empty text.
        return PART_FIELDS in (new if last else before).metadata
    clashes = before.metadata.keys() & new.metadata.keys() - {PART_FIELDS}
    return not clashes and not (last[0].type == first[0].type == "text")


def _unknown_item(item: Fields, where: str, _: OpenCalls, beside: Beside) -> Msg:
    """Build a message for an item of an unknown type: a tool message for a result, otherwise an assistant message."""
    kind = str(item["type"])
    beside["item"] = checked_object(item, where, HistoryError)
    return message_of("", (), "tool" if kind.endswith(_ANSWERS) else "assistant")


# The suffixes of Responses API item types for the results of tool calls.
_ANSWERS = ("_output", "_response")


def _message_item(item: Fields, where: str, waiting: OpenCalls, _: Beside) -> Msg:
    return read_openai({key: item[key] for key in item if key not in _STATE}, where, waiting)


def _reasoning_item(item: Fields, where: str, _: OpenCalls, __: Beside) -> Msg:
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
    return message_of("", (thought,), "assistant")


def _call_item(item: Fields, where: str, waiting: OpenCalls, _: Beside) -> Msg:
    call_id = text_in(item.get("call_id"), f"{where}.call_id") or waiting.new_id()
    name = needed_text(item.get("name"), f"{where}.name")
    return message_of("", (read_call(call_id, name, item.get("arguments"), f"{where}.arguments"),), "assistant")


def _custom_call_item(item: Fields, where: str, waiting: OpenCalls, _: Beside) -> Msg:
    call_id = text_in(item.get("call_id"), f"{where}.call_id") or waiting.new_id()
    name = needed_text(item.get("name"), f"{where}.name")
    call = ToolUseBlock(call_id, name, raw_input=text_in(item.get("input"), f"{where}.input"))
    return message_of("", (call,), "assistant")


def _output_item(item: Fields, where: str, waiting: OpenCalls, beside: Beside) -> Msg:
    call_id = text_in(item.get("call_id"), f"{where}.call_id") or next(iter(waiting), "")
    if not call_id:
        # The matching call is missing because the server stores the earlier part of the conversation.
        return _unknown_item(item, where, waiting, beside)
    output = item.get("output")
    content = output if isinstance(output, str) else read_parts(output, f"{where}.output", beside)
    result = ToolResultBlock(call_id, text_in(item.get("name"), f"{where}.name"), content)
    return message_of("", (result,), "tool")


ITEMS: dict[str, Callable[[Fields, str, OpenCalls, Beside], Msg]] = {
    "message": _message_item,
    "reasoning": _reasoning_item,
    "function_call": _call_item,
    "function_call_output": _output_item,
    "custom_tool_call": _custom_call_item,
    "custom_tool_call_output": _output_item,
}
"""The parsers of Responses API items, by item type, for all items that blocks can express."""
