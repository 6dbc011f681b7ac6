"""A provider's answer read back to a message: one reader for each wire form.

A model's output never raises: arguments that are no JSON, odd types and lone surrogates all find a place. Only what is
no answer of the provider at all, or is its account of an error, is a ``FormatError``. Finish reason, model and id stay
in the answer itself: a message that was sent and came back is to equal what it was.

Sources of the forms: the API references of the providers, and the types of their official clients.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count, islice
from typing import TYPE_CHECKING, TypeAlias, cast

from lazyprompt._base.client_objects import fields_of, json_or_text, members_of, plain, snake_keys, standard_base64
from lazyprompt.errors import FormatError
from lazyprompt.messages.msg import (
    Base64Source,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    block_of_media,
    message_of,
)
from lazyprompt.messages.openai_form import source_of

if TYPE_CHECKING:
    from types import UnionType

    from lazyprompt._base.json import Fields, JsonObject
    from lazyprompt.messages.msg import Block, Msg

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


def as_dict(response: object) -> dict[str, object]:
    """Return an answer as the dict of its REST API, whatever the official client made of it.

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
    if members_of(response) is not None:
        return cast("dict[str, object]", plain(response))
    raise FormatError(
        f"an answer is a dict or the object of the provider's official client, whole and awaited; given was a "
        f"{type(response).__name__}"
    )


def from_openai_chat(answer: Fields, provider: str) -> Msg:
    """Read a Chat Completions answer.

    Args:
        answer: The answer as a dict.
        provider: Who answered, as ``deepseek``: an error names it, and so does the thinking.

    Returns:
        The assistant's message.

    Raises:
        FormatError: It is no such answer.
    """
    choices = _opened(answer, provider, list, "choices")
    return _message(_first_choice(choices, provider, "choices"), _usage(answer.get("usage"), _CHAT))


def from_dashscope(answer: Fields, provider: str) -> Msg:
    """Read an answer of DashScope's own API, of text and of media."""
    output = fields_of(_opened(answer, provider, Mapping, "output"))
    _opened(output, provider, object, "choices", "text", where="output.")
    blocks = _first_choice(output.get("choices"), provider, "output.choices") or _said(output.get("text"))
    return _message(blocks, _usage(answer.get("usage"), _INPUT))


def from_ollama(answer: Fields, provider: str) -> Msg:
    """Read an answer of Ollama's chat."""
    message = fields_of(_opened(answer, provider, Mapping, "message"))
    return _message(_chat_blocks(message, provider), _usage(answer, _OLLAMA))


def from_ollama_generate(answer: Fields, provider: str) -> Msg:
    """Read an answer of Ollama's generate."""
    _opened(answer, provider, object, "response", "thinking")
    message = {"content": answer.get("response"), "thinking": answer.get("thinking")}
    return _message(_chat_blocks(message, provider), _usage(answer, _OLLAMA))


def from_responses(answer: Fields, provider: str) -> Msg:
    """Read an answer of OpenAI's Responses API; the items of its own tools are left out."""
    output = _opened(answer, provider, list, "output")
    blocks = (block for item in _items(output) for block in _response_item(fields_of(item)))
    return _message(blocks, _usage(answer.get("usage"), _INPUT))


def from_anthropic(answer: Fields, provider: str) -> Msg:
    """Read an answer of Anthropic's Messages API; the blocks of its own tools are left out."""
    content = _opened(answer, provider, list, "content")
    return _message(_parts(content, "anthropic"), _usage(answer.get("usage"), _CACHED))


def from_gemini(answer: Fields, provider: str) -> Msg:
    """Read an answer of Gemini, in the keys of its REST API or of its client.

    A prompt that was blocked has no candidates: its message is empty.
    """
    _opened(answer, provider, list | Mapping, *_GEMINI_KEYS)
    answer = snake_keys(answer)
    candidate = fields_of(next(iter(_items(answer.get("candidates"))), None))
    parts = _items(fields_of(candidate.get("content")).get("parts"))
    blocks = (block for part in parts for block in _gemini_part(snake_keys(part)))
    return _message(blocks, _usage(snake_keys(answer.get("usage_metadata")), _GEMINI))


def _opened(answer: object, provider: str, kind: type | UnionType, *keys: str, where: str = "") -> object:
    """Return the value of the first of the keys that fits, or raise the error of what is no answer."""
    fields = fields_of(answer)
    found = next((each for each in map(fields.get, keys) if each is not None and isinstance(each, kind)), None)
    # DashScope and vLLM have the error's code and message at the top.
    fault = fields.get("error") or (fields if found is None and fields.get("code") and fields.get("message") else None)
    if fault:
        raise FormatError(
            f"{provider} answered with an error: {json_or_text(fields_of(fault).get('message')) or json_or_text(fault)}"
        )
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
    return message_of("", content, "assistant", usage=usage)


def _with_ids(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield the blocks, each call with an id of its own: made of its place, or numbered where it is taken."""
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
    """Return the tokens an answer reports; ``None`` where it reports none."""
    counts = {key: value for key, value in fields_of(given).items() if type(value) is int and value >= 0}
    prompt, completion = (sum(counts.get(key, 0) for key in keys) for keys in counters)
    total = next((counts[key] for key in _TOTALS if key in counts), prompt + completion)
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}
    return usage if any(key in counts for keys in (*counters, _TOTALS) for key in keys) else None


def _first_choice(choices: object, provider: str, where: str) -> list[Block]:
    """Return the blocks of the first choice; none of an answer without choices."""
    for choice in _items(choices):
        return _chat_blocks(fields_of(_opened(choice, provider, Mapping, "message", where=f"{where}[0].")), provider)
    return []


def _chat_blocks(message: Fields, provider: str) -> list[Block]:
    """Return the blocks of a message of the chat forms: thinking, text, calls."""
    calls = _items(message.get("tool_calls")) or [message.get("function_call")]
    return [
        *_chat_thinking(message, provider),
        *_parts(message.get("content"), provider),
        *_said(fields_of(message.get("audio")).get("transcript")),
        *_said(message.get("refusal")),
        *(block for block in _parts(message.get("images"), provider) if block.type == "image"),
        *(_chat_call(cast("Fields", call)) for call in calls if isinstance(call, Mapping)),
    ]


def _chat_thinking(message: Fields, provider: str) -> Sequence[Block]:
    """LiteLLM's signed thoughts, which are Anthropic's, or else the text by whichever name it has."""
    signed = [block for block in _parts(message.get("thinking_blocks"), "anthropic") if block.type == "thinking"]
    return signed or _thought(next(filter(None, (json_or_text(message.get(key)) for key in _THOUGHTS)), ""), provider)


def _chat_call(call: Fields) -> ToolUseBlock:
    """Read a call, nested (``function``; ``custom`` for tools that take free text) or flat as the legacy one."""
    fields = fields_of(call.get("function")) or fields_of(call.get("custom")) or call
    return _call(call.get("id"), fields.get("name"), fields.get("arguments", fields.get("input")))


def _parts(content: object, provider: str) -> list[Block]:
    """Read a content: text, or a list of texts and typed parts; parts of an unknown type are left out."""
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
            thinking = part.get("thinking")  # Mistral's is a list of parts
            parts = [json_or_text(fields_of(each).get("text")) for each in _items(thinking)]
            text = "".join(parts) if parts else json_or_text(thinking)
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
            thoughts = _parts(item.get("summary"), provider) or _parts(item.get("content"), provider)
            text = "\n\n".join(block.text for block in thoughts if isinstance(block, TextBlock))
            return _thought(text, provider, signature=item.get("encrypted_content"), own_id=item.get("id"))
        case "function_call":
            return [_call(item.get("call_id"), item.get("name"), item.get("arguments"))]
        case _:
            return []


def _gemini_part(part: Fields) -> list[Block]:
    signature = standard_base64(part.get("thought_signature"))
    if isinstance(part.get("function_call"), Mapping):
        call = fields_of(part["function_call"])
        return [_call(call.get("id"), call.get("name"), call.get("args"), signature or None)]
    text = json_or_text(part.get("text"))
    if part.get("thought") is True:
        return _thought(text, "gemini", signature=signature)
    blob = snake_keys(part.get("inline_data"))
    if data := standard_base64(blob.get("data")):
        media_type = json_or_text(blob.get("mime_type")) or "application/octet-stream"
        return [block_of_media(Base64Source(media_type, data), media_type)]
    # A signature alone, as the last part often is, must go back as it came: on an empty text.
    return [TextBlock(text, signature=signature or None)] if text or signature else []


def _said(value: object) -> list[Block]:
    return [TextBlock(text)] if (text := json_or_text(value)) else []


def _thought(
    text: str, provider: str, *, signature: object = None, redacted: object = None, own_id: object = None
) -> list[Block]:
    if not (text or signature or redacted or own_id):
        return []
    proof, data, name = (json_or_text(value) or None for value in (signature, redacted, own_id))
    return [ThinkingBlock(text, proof, redacted=data, id=name, provider=provider)]


def _picture(address: object) -> list[Block]:
    url = fields_of(address).get("url", address)
    return [ImageBlock(source_of(json_or_text(url)))] if isinstance(url, str) and url else []


def _call(own_id: object, name: object, arguments: object, signature: str | None = None) -> ToolUseBlock:
    """Return a call; arguments that are no JSON object stay as the model wrote them."""
    given = "{}" if arguments is None or (isinstance(arguments, str) and not arguments.strip()) else arguments
    try:
        read: object = json.loads(given) if isinstance(given, str) else given
        return ToolUseBlock(json_or_text(own_id), json_or_text(name), cast("JsonObject", read), signature=signature)
    except (ValueError, RecursionError):
        return ToolUseBlock(
            json_or_text(own_id), json_or_text(name), raw_input=json_or_text(given), signature=signature
        )


def _items(value: object) -> Sequence[object]:
    return cast("Sequence[object]", value) if isinstance(value, list | tuple) else ()
