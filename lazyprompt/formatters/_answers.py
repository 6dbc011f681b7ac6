"""A provider's answer read back to a message: one reader for each wire form.

What a model said never raises: arguments that are no JSON, odd types and lone surrogates all find a place. Only what is
no answer of the provider at all, or is its account of an error, is a ``FormatError``. Finish reason, model and id stay
in the answer itself: a message that was sent and came back is to equal what it was.

Sources of the forms: the API references of the providers, and the types of their official clients.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from enum import Enum
from itertools import chain, count, islice
from math import inf
from typing import TYPE_CHECKING, TypeAlias, cast

from lazyprompt._json import MAX_DEPTH, MAX_INT_BITS
from lazyprompt.errors import FormatError
from lazyprompt.messages import (
    AudioBlock,
    Base64Source,
    FileBlock,
    ImageBlock,
    Msg,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    VideoBlock,
)
from lazyprompt.openai_form import source_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import UnionType

    from lazyprompt._json import JsonObject
    from lazyprompt.messages import Block
    from lazyprompt.openai_form import Fields

# How deep in an answer the arguments of a call may lie, which in turn may be MAX_DEPTH deep.
_ENVELOPE_DEPTH = 20

# Where the forms count tokens, for the prompt and for what was made; all that is there is added up.
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

# What an answer of Gemini's may consist of alone, in the spelling of its REST API and of its client.
_GEMINI_KEYS = ("candidates", "promptFeedback", "prompt_feedback", "usageMetadata", "usage_metadata")
# What a thought is called beside an answer: by most, by vLLM and OpenRouter, by Ollama.
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")
_KINDS: dict[type | UnionType, str] = {list: "a list", Mapping: "a dict"}
_ALREADY_PLAIN = frozenset((str, bool, float, type(None)))
_MEDIA = {"image": ImageBlock, "audio": AudioBlock, "video": VideoBlock}


def as_dict(response: object) -> dict[str, object]:
    """An answer as the dict of its REST API, whatever the official client made of it.

    Args:
        response: A dict, which is taken as it is, or the client's own object.

    Returns:
        Plain values: bytes are standard base64, enums their values, times ISO 8601; fields that are ``None`` are left
        out (arguments of a tool keep theirs).

    Raises:
        FormatError: It is neither.
    """
    if type(response) is dict:
        return cast("dict[str, object]", response)
    if _members(response) is not None:
        return cast("dict[str, object]", _plain(response))
    raise FormatError(
        f"an answer is a dict or the object of the provider's official client, whole and awaited; given was a "
        f"{type(response).__name__}"
    )


def from_openai_chat(answer: Fields, provider: str) -> Msg:
    """The message of a Chat Completions answer.

    Args:
        answer: The answer as a dict.
        provider: Who answered, as ``deepseek``: an error names it, and so does the thinking.

    Returns:
        What the assistant said.

    Raises:
        FormatError: It is no such answer.
    """
    choices = _opened(answer, provider, list, "choices")
    return _message(_first_choice(choices, provider, "choices"), _usage(answer.get("usage"), _CHAT))


def from_dashscope(answer: Fields, provider: str) -> Msg:
    """The same as :func:`from_openai_chat` for DashScope's own API, of text and of media."""
    output = _fields(_opened(answer, provider, Mapping, "output"))
    _opened(output, provider, object, "choices", "text", where="output.")
    blocks = _first_choice(output.get("choices"), provider, "output.choices") or _said(output.get("text"))
    return _message(blocks, _usage(answer.get("usage"), _INPUT))


def from_ollama(answer: Fields, provider: str) -> Msg:
    """The same as :func:`from_openai_chat` for Ollama's chat."""
    message = _fields(_opened(answer, provider, Mapping, "message"))
    return _message(_chat_blocks(message, provider), _usage(answer, _OLLAMA))


def from_ollama_generate(answer: Fields, provider: str) -> Msg:
    """The same as :func:`from_openai_chat` for Ollama's generate."""
    _opened(answer, provider, object, "response", "thinking")
    message = {"content": answer.get("response"), "thinking": answer.get("thinking")}
    return _message(_chat_blocks(message, provider), _usage(answer, _OLLAMA))


def from_responses(answer: Fields, provider: str) -> Msg:
    """The same as :func:`from_openai_chat` for OpenAI's Responses; what its own tools did is left out."""
    output = _opened(answer, provider, list, "output")
    blocks = (block for item in _items(output) for block in _response_item(_fields(item)))
    return _message(blocks, _usage(answer.get("usage"), _INPUT))


def from_anthropic(answer: Fields, provider: str) -> Msg:
    """The same as :func:`from_openai_chat` for Anthropic's Messages; what its own tools did is left out."""
    content = _opened(answer, provider, list, "content")
    return _message(_parts(content, "anthropic"), _usage(answer.get("usage"), _CACHED))


def from_gemini(answer: Fields, provider: str) -> Msg:
    """The same as :func:`from_openai_chat` for Gemini, in the keys of its REST API or of its client.

    A prompt that was blocked has no candidates: its message is empty.
    """
    _opened(answer, provider, list | Mapping, *_GEMINI_KEYS)
    answer = _snake(answer)
    candidate = _fields(next(iter(_items(answer.get("candidates"))), None))
    parts = _items(_fields(candidate.get("content")).get("parts"))
    blocks = (block for part in parts for block in _gemini_part(_snake(part)))
    return _message(blocks, _usage(_snake(answer.get("usage_metadata")), _GEMINI))


def _opened(answer: object, provider: str, kind: type | UnionType, *keys: str, where: str = "") -> object:
    """What an answer holds in the first of the keys that fits; the one place that says what is no answer."""
    fields = _fields(answer)
    found = next((each for each in map(fields.get, keys) if each is not None and isinstance(each, kind)), None)
    # DashScope and vLLM have the error's code and message at the top.
    fault = fields.get("error") or (fields if found is None and fields.get("code") and fields.get("message") else None)
    if fault:
        raise FormatError(f"{provider} answered with an error: {_text(_fields(fault).get('message')) or _text(fault)}")
    if found is None:
        wanted = f"{_KINDS.get(kind, 'a value')} at {' or '.join(where + key for key in keys)}"
        shown = ", ".join(f"{key!r} ({type(value).__name__})" for key, value in islice(fields.items(), 10))
        given = f"{type(answer).__name__}{' with ' if shown else ''}{shown}"
        raise FormatError(f"this is no answer of {provider}, which has {wanted}; given was a {given}")
    return found


def _message(blocks: Iterable[Block], usage: dict[str, int] | None) -> Msg:
    content: str | tuple[Block, ...] = tuple(_with_ids(blocks))
    if not content:
        content = ""
    elif len(content) == 1 and isinstance(only := content[0], TextBlock) and only.signature is None:
        content = only.text
    return Msg("assistant", content, "assistant", usage=usage)


def _with_ids(blocks: Iterable[Block]) -> Iterator[Block]:
    """The blocks, each call with an id of its own: made of its place, or numbered where it is taken."""
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
    """The tokens an answer tells of; ``None`` where it tells of none."""
    counts = {key: value for key, value in _fields(given).items() if type(value) is int and value >= 0}
    prompt, completion = (sum(counts.get(key, 0) for key in keys) for keys in counters)
    total = next((counts[key] for key in _TOTALS if key in counts), prompt + completion)
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}
    return usage if any(key in counts for keys in (*counters, _TOTALS) for key in keys) else None


def _first_choice(choices: object, provider: str, where: str) -> list[Block]:
    """What the first choice says; an answer without choices says nothing."""
    for choice in _items(choices):
        return _chat_blocks(_fields(_opened(choice, provider, Mapping, "message", where=f"{where}[0].")), provider)
    return []


def _chat_blocks(message: Fields, provider: str) -> list[Block]:
    """A message of the chat forms: thinking, text, calls."""
    calls = _items(message.get("tool_calls")) or [message.get("function_call")]
    return [
        *_chat_thinking(message, provider),
        *_parts(message.get("content"), provider),
        *_said(_fields(message.get("audio")).get("transcript")),
        *_said(message.get("refusal")),
        *(block for block in _parts(message.get("images"), provider) if block.type == "image"),
        *(_chat_call(cast("Fields", call)) for call in calls if isinstance(call, Mapping)),
    ]


def _chat_thinking(message: Fields, provider: str) -> Sequence[Block]:
    """LiteLLM's signed thoughts, which are Anthropic's, or else the text by whichever name it has."""
    signed = [block for block in _parts(message.get("thinking_blocks"), "anthropic") if block.type == "thinking"]
    return signed or _thought(next(filter(None, (_text(message.get(key)) for key in _THOUGHTS)), ""), provider)


def _chat_call(call: Fields) -> ToolUseBlock:
    """A call as it is nested (``function``; ``custom`` for tools that take free text), or flat as the legacy one."""
    fields = _fields(call.get("function")) or _fields(call.get("custom")) or call
    return _call(call.get("id"), fields.get("name"), fields.get("arguments", fields.get("input")))


def _parts(content: object, provider: str) -> list[Block]:
    """A content: text, or a list of texts and typed parts; parts of an unknown type are left out."""
    if not isinstance(content, list | tuple):
        return _said(content)
    blocks: list[Block] = []
    for part in cast("Sequence[object]", content):
        blocks += _part(cast("Fields", part), provider) if isinstance(part, Mapping) else _said(part)
    return blocks


def _part(part: Fields, provider: str) -> list[Block]:
    # DashScope's parts have no type: their only key tells it.
    match part.get("type") or next((key for key in ("text", "image") if key in part), None):
        case "text" | "output_text" | "summary_text" | "reasoning_text" | "refusal":
            return _said(part.get("text", part.get("refusal")))
        case "thinking" | "redacted_thinking":
            text = _text(part.get("thinking"))
            return _thought(text, provider, signature=part.get("signature"), redacted=part.get("data"))
        case "tool_use":
            return [_call(part.get("id"), part.get("name"), part.get("input"))]
        case "image_url" | "image":
            return _picture(part.get("image_url", part.get("image")))
        case _:
            return []


def _response_item(item: Fields) -> list[Block]:
    provider = "openai-responses"
    match item.get("type"):
        case "message":
            return _parts(item.get("content"), provider)
        case "reasoning":
            told = _parts(item.get("summary"), provider) or _parts(item.get("content"), provider)
            text = "\n\n".join(block.text for block in told if isinstance(block, TextBlock))
            return _thought(text, provider, signature=item.get("encrypted_content"), own_id=item.get("id"))
        case "function_call":
            return [_call(item.get("call_id"), item.get("name"), item.get("arguments"))]
        case _:
            return []


def _gemini_part(part: Fields) -> list[Block]:
    signature = _base64(part.get("thought_signature"))
    if isinstance(part.get("function_call"), Mapping):
        call = _fields(part["function_call"])
        return [_call(call.get("id"), call.get("name"), call.get("args"), signature or None)]
    text = _text(part.get("text"))
    if part.get("thought") is True:
        return _thought(text, "gemini", signature=signature)
    blob = _snake(part.get("inline_data"))
    if data := _base64(blob.get("data")):
        media_type = _text(blob.get("mime_type")) or "application/octet-stream"
        return [_MEDIA.get(media_type.partition("/")[0], FileBlock)(Base64Source(media_type, data))]
    # A signature alone, as the last part often is, must go back as it came: on an empty text.
    return [TextBlock(text, signature=signature or None)] if text or signature else []


def _said(value: object) -> list[Block]:
    return [TextBlock(text)] if (text := _text(value)) else []


def _thought(
    text: str, provider: str, *, signature: object = None, redacted: object = None, own_id: object = None
) -> list[Block]:
    if not (text or signature or redacted or own_id):
        return []
    proof, data, name = (_text(value) or None for value in (signature, redacted, own_id))
    return [ThinkingBlock(text, proof, redacted=data, id=name, provider=provider)]


def _picture(address: object) -> list[Block]:
    url = _fields(address).get("url", address)
    return [ImageBlock(source_of(_text(url)))] if isinstance(url, str) and url else []


def _call(own_id: object, name: object, arguments: object, signature: str | None = None) -> ToolUseBlock:
    """A call; arguments that are no JSON object stay as the model wrote them."""
    given = "{}" if arguments is None or (isinstance(arguments, str) and not arguments.strip()) else arguments
    try:
        read: object = json.loads(given) if isinstance(given, str) else given
        return ToolUseBlock(_text(own_id), _text(name), cast("JsonObject", read), signature=signature)
    except (ValueError, RecursionError):
        return ToolUseBlock(_text(own_id), _text(name), raw_input=_text(given), signature=signature)


def _fields(value: object) -> Fields:
    # Asking a dict whether it is a Mapping takes ten times as long.
    return cast("Fields", value) if type(value) is dict or isinstance(value, Mapping) else {}


def _snake(value: object) -> Fields:
    """A dict of Gemini's with the keys of its client, ``function_call`` for ``functionCall``."""
    return {
        key if key.islower() else "".join(f"_{sign.lower()}" if sign.isupper() else sign for sign in key): item
        for key, item in _fields(value).items()
        if isinstance(cast("object", key), str)
    }


def _items(value: object) -> Sequence[object]:
    return cast("Sequence[object]", value) if isinstance(value, list | tuple) else ()


def _text(value: object) -> str:
    """Text that can be written: lone surrogates are U+FFFD, ``None`` is nothing, other values are their JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        text = str.__str__(value)
        return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    # In JSON a lone surrogate has an escape, and it is the one Python writes too.
    written = json.dumps(_plain(value, _ENVELOPE_DEPTH), ensure_ascii=False)
    return written.encode("utf-8", "backslashreplace").decode("utf-8")


def _base64(value: object) -> str:
    """Bytes, or base64 of either alphabet with or without padding, as standard base64; other text as it is."""
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    text = _text(value)
    bare = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return b64encode(b64decode(bare + "=" * (-len(bare) % 4), validate=True)).decode("ascii")
    except ValueError:
        return text


def _plain(value: object, depth: int = 0) -> object:
    """A value as JSON has it."""
    # Nearly all are of these types, or objects of pydantic's; the other checks cost ten times as much.
    kind = type(value)
    if kind in _ALREADY_PLAIN:
        return value
    if kind is list or kind is dict or hasattr(kind, "model_dump"):
        return _plain_whole(value, depth)
    return _plain_value(value.value if isinstance(value, Enum) else value, depth)


def _plain_value(value: object, depth: int) -> object:
    """The same as :func:`_plain` for what is rare."""
    if isinstance(value, bytes):
        return _base64(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, int) and value.bit_length() > MAX_INT_BITS:
        return inf  # Python refuses to write it; this can be written, and is no valid number either.
    if value is None or isinstance(value, str | int | float):
        return value
    return _plain_whole(value, depth)


def _plain_whole(value: object, depth: int) -> object:
    """The same as :func:`_plain` for what has parts."""
    if depth > _ENVELOPE_DEPTH + MAX_DEPTH:
        return "…"
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1) for item in cast("Sequence[object]", value)]
    members = _members(value)
    if members is None:
        return f"<{type(value).__name__}>"
    return {key: _plain(item, depth + 1) for key, item in members.items()}


def _members(value: object) -> dict[str, object] | None:
    """What a dict, or an object of pydantic's as nearly all clients give, holds; ``None`` for all else.

    Objects are read field by field. Their own ``model_dump`` warns of whatever their types did not foresee, and that of
    Ollama's opens the file that an answer names as its picture.
    """
    if hasattr(type(value), "model_dump"):
        extra: object = getattr(value, "model_extra", None)
        given = {**vars(value), **_fields(extra)} if extra else vars(value)
        return {key: item for key, item in given.items() if item is not None and key[:1] != "_"}
    if not isinstance(value, Mapping):
        return None
    items = cast("Mapping[object, object]", value).items()
    return {key if isinstance(key, str) else repr(key): item for key, item in items}
