"""Parsers that convert provider responses to messages.

Malformed model output never raises an error: the parsers accept arguments that are not JSON, wrong types and lone
surrogates. A ``FormatError`` means that the value is not a response from the provider, or that the response reports an
error. Content that no block can represent is kept in the message's metadata or native content. A parsed message leaves
out the finish reason, model and response id, so it equals a message built by hand from the same content.

The formats come from the providers' API references and from the types in their official clients.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, count, islice
from math import isfinite
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

from lazyprompt._base.client_objects import (
    fields_of,
    items_of,
    json_or_text,
    plain,
    plain_fields,
    snake_keys,
    standard_base64,
)
from lazyprompt._base.json import is_dict, is_mapping, is_sequence
from lazyprompt.errors import FormatError, HistoryError, MediaError
from lazyprompt.messages.msg import ImageBlock, TextBlock, ThinkingBlock, ToolUseBlock, URLSource, message_of
from lazyprompt.messages.native import PART_FIELDS, Native
from lazyprompt.messages.open_calls import OpenCalls
from lazyprompt.messages.read_gemini import client_part, read_gemini_part
from lazyprompt.messages.read_openai import RESPONSES, has_compact_calls, has_unsaid, read_item, sent_back
from lazyprompt.messages.read_parts import read_part

if TYPE_CHECKING:
    from types import UnionType

    from lazyprompt._base.json import Fields, Json, JsonObject
    from lazyprompt.messages.msg import Block, Msg
    from lazyprompt.messages.read_parts import Beside

# The keys for prompt tokens and for completion tokens in a response. The counts under all keys in a tuple are added up.
_Counters: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]
_CHAT: _Counters = (("prompt_tokens",), ("completion_tokens",))
_INPUT: _Counters = (("input_tokens",), ("output_tokens",))
_CACHED: _Counters = (("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"), ("output_tokens",))
_GEMINI: _Counters = (
    ("prompt_token_count", "tool_use_prompt_token_count"),
    ("candidates_token_count", "thoughts_token_count"),
)
_OLLAMA: _Counters = (("prompt_eval_count",), ("eval_count",))
_TOTALS = ("total_tokens", "total_token_count")

# The top-level keys of a Gemini response in the REST API and in the SDK. A response contains at least one of them.
_GEMINI_KEYS = ("candidates", "promptFeedback", "prompt_feedback", "usageMetadata", "usage_metadata")
# The message keys for reasoning: vLLM and OpenRouter use "reasoning", Ollama uses "thinking".
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")
# The results of parts without content, which are dropped.
_EMPTY = (None, TextBlock(""), ImageBlock(URLSource("")))
_KINDS: dict[type | UnionType, str] = {list: "a list", Mapping: "a dict"}


def as_dict(response: object) -> dict[str, object]:
    """Return a response as a dict in the format of the REST API.

    Args:
        response: A plain dict, which is returned unchanged, or an object from the official client.

    Returns:
        The response as a dict of JSON values: bytes as standard base64, enums as their values, and times in ISO 8601.
        Fields that are ``None`` are omitted, except in tool arguments.

    Raises:
        FormatError: The value is neither a dict nor an object from an official client.
    """
    if _is_plain_dict(response):
        return response
    fields = plain_fields(response)
    if fields is None:
        raise FormatError(
            f"response must be a dict or a complete, awaited object from the provider's official client, not "
            f"{type(response).__name__}"
        )
    return fields


def _is_plain_dict(value: object) -> TypeGuard[dict[str, object]]:
    # Some clients return instances of a dict subclass, which the caller must convert to plain dicts.
    return type(value) is dict


def from_openai_chat(answer: Fields, provider: str) -> Msg:
    """Parse a Chat Completions response.

    Args:
        answer: The response as a dict.
        provider: The provider's name, for error messages and for the ``provider`` attribute of thinking blocks.

    Returns:
        The assistant message.

    Raises:
        FormatError: The dict is not a Chat Completions response.
    """
    choices = _find_value(answer, provider, list, "choices")
    return _first_choice(choices, provider, "choices", _usage(answer.get("usage"), _CHAT))


def from_dashscope(answer: Fields, provider: str) -> Msg:
    """Parse a response from DashScope's own text or multimodal API."""
    output = fields_of(_find_value(answer, provider, Mapping, "output"))
    _find_value(output, provider, object, "choices", "text", where="output.")
    message = _first_choice(output.get("choices"), provider, "output.choices", _usage(answer.get("usage"), _INPUT))
    return message if message.content else _message(_text_blocks(output.get("text")), message.usage)


def from_ollama(answer: Fields, provider: str) -> Msg:
    """Parse a response from Ollama's chat API."""
    message = fields_of(_find_value(answer, provider, Mapping, "message"))
    return _chat_message(message, provider, _usage(answer, _OLLAMA))


def from_ollama_generate(answer: Fields, provider: str) -> Msg:
    """Parse a response from Ollama's generate API."""
    _find_value(answer, provider, object, "response", "thinking")
    message = {"content": answer.get("response"), "thinking": answer.get("thinking")}
    return _chat_message(message, provider, _usage(answer, _OLLAMA))


def from_responses(answer: Fields, provider: str) -> Msg:
    """Parse a response from OpenAI's Responses API."""
    items = _clean_list(_find_value(answer, provider, list, "output"))
    beside: Beside = {}
    blocks: list[Block] = []
    # Skip tool calls that already have an output in the response, because OpenAI has run them.
    answered = {_call_id(item) for item in items if _is_output(item)} - {""}
    for index, item in enumerate(items):
        if isinstance(item, dict) and (_is_output(item) or _call_id(item) in answered):
            beside[f"output[{index}]"] = item
        else:
            blocks += _item_blocks(item, f"output[{index}]", beside)
    return _message(blocks, _usage(answer.get("usage"), _INPUT), beside, Native(RESPONSES, [*items]))


def _call_id(item: object) -> str:
    return json_or_text(fields_of(item).get("call_id"))


def _is_output(item: object) -> bool:
    """Return True if a response item is the output of a tool call."""
    return json_or_text(fields_of(item).get("type")).endswith("_output")


def from_anthropic(answer: Fields, provider: str) -> Msg:
    """Parse a response from Anthropic's Messages API."""
    parts = _clean_list(_find_value(answer, provider, list, "content"))
    beside: Beside = {}
    blocks = _content_blocks(parts, provider, beside)
    is_text = not beside and all(isinstance(block, TextBlock) for block in blocks)
    native = None if is_text else Native("anthropic", [*parts])
    return _message(blocks, _usage(answer.get("usage"), _CACHED), beside, native)


def from_gemini(answer: Fields, provider: str) -> Msg:
    """Parse a Gemini response, with the key names of the REST API or of the Python client.

    If the prompt was blocked, the response contains no candidates and the message is empty.
    """
    _find_value(answer, provider, list | Mapping, *_GEMINI_KEYS)
    answer = snake_keys(answer)
    candidate = fields_of(next(iter(items_of(answer.get("candidates"))), None))
    parts = _clean_list(fields_of(candidate.get("content")).get("parts"))
    beside: Beside = {}
    blocks: list[Block] = []
    for index, part in enumerate(parts):
        blocks += _gemini_blocks(part, f"parts[{index}]", beside)
    native = Native("gemini", _clean_list([client_part(part) for part in parts])) if parts else None
    return _message(blocks, _usage(snake_keys(answer.get("usage_metadata")), _GEMINI), beside, native)


def _find_value(answer: object, provider: str, kind: type | UnionType, *keys: str, where: str = "") -> object:
    """Return the first value of the type ``kind`` that is stored under one of the keys.

    Raises:
        FormatError: The response contains no value of the type ``kind`` under any of the keys, or it reports an error.
    """
    fields = fields_of(answer)
    found = next((each for each in map(fields.get, keys) if each is not None and isinstance(each, kind)), None)
    # DashScope and vLLM report the error code and message at the top level of the response.
    fault = fields.get("error") or (fields if found is None and fields.get("code") and fields.get("message") else None)
    if fault:
        raise FormatError(
            f"{provider} returned an error: {json_or_text(fields_of(fault).get('message')) or json_or_text(fault)}"
        )
    if found is None:
        wanted = f"{_KINDS.get(kind, 'a value')} at {' or '.join(where + key for key in keys)}"
        shown = ", ".join(f"{key!r} ({type(value).__name__})" for key, value in islice(fields.items(), 10))
        given = f"{type(answer).__name__}{' with ' if shown else ''}{shown}"
        raise FormatError(f"not a response from {provider}: expected {wanted}, not a {given}")
    return found


def _message(
    blocks: Iterable[Block],
    usage: Mapping[str, int] | None,
    beside: Beside | None = None,
    native: Native | None = None,
) -> Msg:
    content: str | tuple[Block, ...] = tuple(_with_ids(blocks))
    if not content:
        content = ""
    elif len(content) == 1 and isinstance(only := content[0], TextBlock) and only.signature is None:
        content = only.text
    metadata: JsonObject | None = {PART_FIELDS: {**beside}} if beside else None
    return message_of("", content, "assistant", metadata=metadata, usage=usage, native=native)


def _clean_list(items: object) -> list[Json]:
    """Copy a list, converting its items to valid JSON values."""
    return [_clean(item) for item in items_of(items)]


def _clean(value: object) -> Json:
    value = plain(value)
    if is_mapping(value):
        return _clean_fields(value)
    if is_sequence(value):
        return [_clean(item) for item in value]
    if isinstance(value, float) and not isfinite(value):
        return json_or_text(value)
    return value if value is None or isinstance(value, bool | int | float) else json_or_text(value)


def _clean_fields(fields: Fields) -> JsonObject:
    return {json_or_text(key): _clean(item) for key, item in fields.items()}


def _with_ids(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield the blocks with unique tool call ids: repeated ids get a number, and missing ids are generated."""
    taken: set[str] = set()
    for block in blocks:
        if isinstance(block, ToolUseBlock):
            wanted = block.id or f"call_{len(taken)}"
            free = next(name for name in chain([wanted], (f"{wanted}_{n}" for n in count(2))) if name not in taken)
            taken.add(free)
            yield block if free == block.id else replace(block, id=free)
        else:
            yield block


def _usage(given: object, counters: _Counters) -> dict[str, int] | None:
    """Return the token counts in a response, or ``None`` if there are none."""
    counts = {key: value for key, value in fields_of(given).items() if type(value) is int and value >= 0}
    prompt, completion = (sum(counts.get(key, 0) for key in keys) for keys in counters)
    total = next((counts[key] for key in _TOTALS if key in counts), prompt + completion)
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}
    return usage if any(key in counts for keys in (*counters, _TOTALS) for key in keys) else None


def _first_choice(choices: object, provider: str, where: str, usage: Mapping[str, int] | None) -> Msg:
    """Return the message of the first choice, or an empty message if there are no choices."""
    for choice in items_of(choices):
        message = fields_of(_find_value(choice, provider, Mapping, "message", where=f"{where}[0]."))
        return _chat_message(message, provider, usage)
    return _message((), usage)


def _chat_message(message: Fields, provider: str, usage: Mapping[str, int] | None) -> Msg:
    """Parse a chat message with reasoning, text and tool calls."""
    beside: Beside = {}
    calls = [call for call in items_of(message.get("tool_calls")) or [message.get("function_call")] if fields_of(call)]
    blocks = [
        *_chat_thoughts(message, provider, beside),
        *_content_blocks(message.get("content"), provider, beside),
        *_text_blocks(fields_of(message.get("audio")).get("transcript")),
        *_text_blocks(message.get("refusal")),
        *(block for block in _content_blocks(message.get("images"), provider, beside) if block.type == "image"),
        *(_chat_call(fields_of(call)) for call in calls),
    ]
    native = None
    if provider == "openai" and (has_unsaid(message) or has_compact_calls(message) or any(map(_has_more, calls))):
        native = Native(provider, _clean(sent_back(message)))
    return _message(blocks, usage, beside, native)


def _has_more(call: object) -> bool:
    """Return True if a tool call has fields besides its id, type, index and function."""
    return "function" not in fields_of(call) or not fields_of(call).keys() <= {"id", "type", "function", "index"}


def _chat_thoughts(message: Fields, provider: str, beside: Beside) -> Sequence[Block]:
    """Return the signed thinking blocks that LiteLLM passes on from Anthropic, or else the plain reasoning text."""
    signed = [
        block
        for block in _content_blocks(message.get("thinking_blocks"), "anthropic", beside)
        if block.type == "thinking"
    ]
    return signed or _thought_blocks(
        next(filter(None, (json_or_text(message.get(key)) for key in _THOUGHTS)), ""), provider
    )


def _chat_call(call: Fields) -> ToolUseBlock:
    """Parse a legacy function call, or a tool call of type ``function`` or ``custom`` (for free-text arguments)."""
    fields = fields_of(call.get("function")) or fields_of(call.get("custom")) or call
    return _call(call.get("id"), fields.get("name"), fields.get("arguments", fields.get("input")))


def _content_blocks(content: object, provider: str, beside: Beside) -> list[Block]:
    """Parse message content, which is a string or a list of strings and typed parts."""
    if not is_sequence(content):
        return _text_blocks(content)
    blocks: list[Block] = []
    for index, part in enumerate(content):
        fields = fields_of(part)
        blocks += _part_blocks(fields, f"content[{index}]", provider, beside) if fields else _text_blocks(part or None)
    return blocks


def _part_blocks(given: Mapping[str, object], where: str, provider: str, beside: Beside) -> list[Block]:
    cleaned = _clean_fields(plain_fields(given) or {})
    part: JsonObject = {key: value for key, value in cleaned.items() if value is not None}
    if not part:
        return []
    if part.get("type") == "thinking" and not isinstance(part.get("thinking"), str):
        texts = [json_or_text(fields_of(each).get("text")) for each in items_of(part.get("thinking"))]
        return _thought_blocks("".join(texts), provider, signature=part.get("signature"))
    try:
        block = read_part(part, where, beside)
    except (HistoryError, MediaError):
        return _malformed_part(part, where, beside)
    if block in _EMPTY:
        return []
    return [replace(block, provider=provider) if isinstance(block, ThinkingBlock) else block]


def _malformed_part(part: JsonObject, where: str, beside: Beside) -> list[Block]:
    """Return a malformed response part's tool call or text; store its other fields in the reply's metadata."""
    if part.get("type") == "tool_use":
        return [_call(part.get("id"), part.get("name"), part.get("input"))]
    text = _text_blocks(part.get("text", part.get("refusal")))
    rest = {key: value for key, value in part.items() if not text or key not in ("type", "text", "refusal")}
    if rest:
        beside[where] = rest
    return text


def _item_blocks(item: Json, where: str, beside: Beside) -> list[Block]:
    if not isinstance(item, dict):
        return []
    kind = item.get("type")
    if kind == "message":
        return _content_blocks(item.get("content"), "openai-responses", beside)
    if kind == "function_call":
        return [_call(item.get("call_id"), item.get("name"), item.get("arguments"))]
    try:
        (message,) = read_item({**item, "type": json_or_text(kind)}, where, OpenCalls())
    except (HistoryError, MediaError):
        beside[where] = item
        return []
    if PART_FIELDS in message.metadata:
        beside[where] = item
    return [*message.blocks]


def _gemini_blocks(part: Json, where: str, beside: Beside) -> list[Block]:
    fields = {**snake_keys(part)}
    blob = snake_keys(fields.get("inline_data"))
    if fields.get("thought") is True and blob and isinstance(part, dict):
        # Store reasoning images only in the metadata, because they are not part of the reply.
        beside[where] = part
        return []
    if blob and not blob.get("mime_type"):
        fields["inline_data"] = {**blob, "mime_type": "application/octet-stream"}
    if isinstance(fields.get("function_call"), Mapping):
        call = fields_of(fields["function_call"])
        signature = standard_base64(fields.get("thought_signature"))
        return [_call(call.get("id"), call.get("name"), call.get("args"), signature or None)]
    if fields.keys() == {"thought_signature"}:
        # A Gemini stream may end with a signature without text. Keep the signature, because Gemini requires it in the
        # next request.
        return [TextBlock("", signature=standard_base64(fields["thought_signature"]))]
    try:
        block = read_gemini_part(fields, where, {}, "", beside)
    except (HistoryError, MediaError):
        if isinstance(part, dict):
            beside[where] = part
        return _text_blocks(fields.get("text"))
    is_empty = isinstance(block, TextBlock) and not (block.text or block.signature)
    return [] if block is None or is_empty else [block]


def _text_blocks(value: object) -> list[Block]:
    return [TextBlock(text)] if (text := json_or_text(value)) else []


def _thought_blocks(
    text: str, provider: str, *, signature: object = None, redacted: object = None, own_id: object = None
) -> list[Block]:
    if not (text or signature or redacted or own_id):
        return []
    proof, data, name = (json_or_text(value) or None for value in (signature, redacted, own_id))
    return [ThinkingBlock(text, proof, redacted=data, id=name, provider=provider)]


def _call(own_id: object, name: object, arguments: object, signature: str | None = None) -> ToolUseBlock:
    """Build a tool call; arguments that are not a JSON object become its ``raw_input``."""
    given = "{}" if arguments is None or (isinstance(arguments, str) and not arguments.strip()) else arguments
    call_id, tool = json_or_text(own_id), json_or_text(name)
    with suppress(ValueError, RecursionError):
        read: object = json.loads(given) if isinstance(given, str) else given
        if is_dict(read):
            return ToolUseBlock(call_id, tool, read, signature=signature)
    return ToolUseBlock(call_id, tool, raw_input=json_or_text(given), signature=signature)
