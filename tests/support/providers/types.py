"""Validates payloads by the types of the official clients, made strict.

The clients' own types hardly check anything: pydantic reads an ``Iterable`` only when somebody else does, ignores
unknown keys and turns "1" into 1. `fits` therefore walks a value and its type together, and refuses all of that.
"""

import json
import sys
import warnings
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import cache
from types import GenericAlias, NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NotRequired,
    Required,
    TypeAlias,
    TypedDict,
    Union,
    get_args,
    get_origin,
)

from pydantic import BaseModel
from typing_extensions import TypeAliasType, get_type_hints, is_typeddict

from support.missing import needs

Payload: TypeAlias = Mapping[str, Any]
Path: TypeAlias = tuple[str | int, ...]

OPENAI_CHAT = ("openai", "litellm", "xai", "deepseek", "moonshot", "vllm")
DASHSCOPE = ("dashscope", "dashscope-multimodal")
CHAT = (*OPENAI_CHAT, "zhipu", "mistral", "ollama", *DASHSCOPE)
PROVIDERS = (*CHAT, "ollama-generate", "openai-responses", "anthropic", "gemini")

KEYS: dict[str, tuple[set[str], set[str]]] = {  # what a payload must have, and what it may have besides
    **dict.fromkeys(CHAT, ({"messages"}, {"tools"})),
    "ollama-generate": ({"prompt"}, {"system", "images"}),
    "openai-responses": ({"input"}, {"instructions", "tools"}),
    "anthropic": ({"messages"}, {"system", "tools"}),
    "gemini": ({"contents"}, {"system_instruction", "tools"}),
}


class MisfitError(ValueError):
    """A value that is not of its type: ``path`` is its position; ``tag`` tells that a Literal did not match."""

    def __init__(self, path: Path, why: str, *, tag: bool = False) -> None:
        self.path, self.tag = path, tag
        super().__init__(f"{'.'.join(map(str, path)) or 'payload'}: {why}")


@cache
def sdk(name: str) -> Any:
    """A module of a client, loaded when it is first needed, without its warnings on import."""
    if name in sys.modules:
        return sys.modules[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Hypothesis passes a skip on at once; an error of a missing module would be shrunk first.
        return needs(name)


def is_base64(value: object) -> bool:
    """Whether this is non-empty base64 text of the standard alphabet, padded."""
    try:
        return isinstance(value, str) and value != "" and b64decode(value, validate=True) is not None
    except ValueError:
        return False


def is_object(text: str) -> bool:
    """Whether this is the JSON text of an object."""
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def many(tp: Any) -> Any:
    """The type of a list of these."""
    return GenericAlias(list, (tp,))


def fits(tp: Any, value: object, path: Path = ()) -> None:
    """Raise MisfitError for a JSON value that is not of a type; of several alternatives, the closest one is named."""
    tp = _unnamed(tp)
    origin, args = get_origin(tp), get_args(tp)
    if tp in (Any, object):
        return
    if origin in (Annotated, Required, NotRequired):
        fits(args[0], value, path)
    elif origin in (Union, UnionType):
        _fits_one(args, value, path)
    elif origin in (list, Iterable, Sequence) or getattr(origin, "__name__", "") == "SequenceNotStr":
        for at, item in enumerate(_of(list, value, path)):
            fits(args[0], item, (*path, at))
    elif origin in (dict, Mapping):
        for key, item in _of(dict, value, path).items():
            fits(args[1], item, (*path, key))
    elif is_typeddict(tp) or _is_model(tp):
        _fits_record(tp, _of(dict, value, path), path)
    elif not _is_scalar(tp, value):
        raise MisfitError(path, f"{value!r} is no {tp if args else getattr(tp, '__name__', tp)}", tag=origin is Literal)


def _unnamed(tp: Any) -> Any:
    """The type that a name in Mistral's client stands for."""
    while isinstance(tp, TypeAliasType) or isinstance(get_origin(tp), TypeAliasType):
        tp = tp.__value__ if isinstance(tp, TypeAliasType) else get_origin(tp).__value__[get_args(tp)]
    return tp


def _of(tp: type, value: object, path: Path) -> Any:
    if not isinstance(value, tp):
        raise MisfitError(path, f"{value!r} is no {tp.__name__}")
    return value


def _is_model(tp: Any) -> bool:
    """Whether a class describes requests. OpenAI's and Anthropic's models describe responses, and match nothing."""
    models = ("google", "ollama", "zai")
    return isinstance(tp, type) and issubclass(tp, BaseModel) and tp.__module__.partition(".")[0] in models


def _is_scalar(tp: Any, value: object) -> bool:
    if get_origin(tp) is Literal:
        return any(type(value) is type(option) and value == option for option in get_args(tp))
    if tp is bytes:
        return is_base64(value)
    if tp is float:
        return type(value) in (int, float)
    if isinstance(tp, type) and issubclass(tp, Enum):
        return isinstance(value, str) and value.upper() in {str(one.value).upper() for one in tp}
    return type(value) is tp or (value is None and tp in (None, NoneType))


def _fits_one(options: Iterable[Any], value: object, path: Path) -> None:
    misfits = []
    for option in options:
        try:
            return fits(option, value, path)
        except MisfitError as misfit:
            misfits.append(misfit)
    raise max(misfits, key=lambda misfit: (len(misfit.path), not misfit.tag))


class _Record(NamedTuple):
    fields: dict[str, Any]
    required: set[str]
    extra: bool


@cache
def _record(tp: Any) -> _Record:
    if not is_typeddict(tp):
        tp.model_rebuild()
        fields = {name: field.annotation for name, field in tp.model_fields.items()}
        return _Record(
            fields | ({field.alias: field.annotation for field in tp.model_fields.values() if _is_schema(tp)}),
            {name for name, field in tp.model_fields.items() if field.is_required()},
            extra=_is_schema(tp),
        )
    hints = get_type_hints(tp, include_extras=True)
    marks: dict[str, Any] = {name: get_origin(hint) for name, hint in hints.items()}  # __required_keys__ misses these
    required = {name for name in hints if marks[name] is Required}
    required |= {name for name in tp.__required_keys__ if marks[name] is not NotRequired}
    return _Record(hints, required, extra=getattr(tp, "__pydantic_config__", {}).get("extra") == "allow")


def _is_schema(tp: Any) -> bool:
    """JSON Schema has more keys than Ollama's types, and its own spelling of Gemini's."""
    return tp.__name__ in ("Parameters", "Property", "Schema")


def _fits_record(tp: Any, value: dict[str, Any], path: Path) -> None:
    record = _record(tp)
    known = [key for key in value if key in record.fields]
    for key in sorted(known, key=lambda key: get_origin(_bare(record.fields[key])) is not Literal):
        fits(record.fields[key], value[key], (*path, key))
    if missing := record.required - set(value):
        raise MisfitError((*path, min(missing)), f"missing in {tp.__name__}")
    if not record.extra and (unknown := set(value) - set(record.fields)):
        raise MisfitError((*path, min(unknown)), f"unknown in {tp.__name__}")


def _bare(tp: Any) -> Any:
    return get_args(tp)[0] if get_origin(tp) in (Required, NotRequired) else tp


class _Text(TypedDict):
    text: str | None


class _Image(TypedDict):
    image: str


class _Audio(TypedDict):
    audio: str


class _Video(TypedDict):
    video: str | list[str]


_Content: TypeAlias = str | list[_Text | _Image | _Audio | _Video]


class _Function(TypedDict):
    name: str
    arguments: str


class _Call(TypedDict):
    id: str
    type: Literal["function"]
    function: _Function
    index: NotRequired[int]


class _Said(TypedDict):
    role: Literal["system", "user"]
    content: _Content


class _Answered(TypedDict):
    role: Literal["assistant"]
    content: _Content
    tool_calls: NotRequired[list[_Call]]
    partial: NotRequired[bool]


class _Returned(TypedDict):
    role: Literal["tool"]
    tool_call_id: str
    content: _Content
    name: NotRequired[str]


class _Generate(TypedDict):
    prompt: str
    system: NotRequired[str]
    images: NotRequired[list[str]]


class _Url(TypedDict):
    url: str


class _Media(TypedDict):
    type: str
    video_url: NotRequired[_Url]
    audio_url: NotRequired[_Url]
    file_url: NotRequired[_Url]


# Parts and keys that the servers take and document, though OpenAI's types do not have them.
_PARTS = {
    "litellm": ("video_url",),
    "moonshot": ("video_url",),
    "vllm": ("video_url", "audio_url"),
    "zhipu": ("video_url", "file_url"),
}


def _extras(provider: str, role: object) -> dict[str, Any]:
    if role == "tool":
        return {"name": str}
    if role != "assistant":
        return {}
    prefill = {"deepseek": "prefix", "litellm": "prefix", "moonshot": "partial"}.get(provider)
    extras: dict[str, Any] = {prefill: bool} if prefill else {}
    if provider in ("deepseek", "moonshot", "zhipu"):
        extras["reasoning_content"] = str
    if provider == "litellm":
        blocks = sdk("anthropic.types")
        extras["thinking_blocks"] = many(blocks.ThinkingBlockParam | blocks.RedactedThinkingBlockParam)
    return extras


def _without_extras(provider: str, message: dict[str, Any], path: Path) -> dict[str, Any]:
    """A message as OpenAI's types know it, after its other fields were validated."""
    message = dict(message)
    for key, tp in _extras(provider, message.get("role")).items():
        if key in message:
            fits(tp, message.pop(key), (*path, key))
    if message.get("role") == "user" and isinstance(message.get("content"), list):
        kept = []
        for at, part in enumerate(message["content"]):
            kind = part.get("type") if isinstance(part, dict) else None
            if kind in _PARTS.get(provider, ()):
                fits(_Media, part, (*path, "content", at))
                fits(_Url, part.get(kind), (*path, "content", at, kind))
            else:
                kept.append(part)
        message["content"] = kept
    return message


def _openai_chat(provider: str, payload: Payload) -> None:
    fits(list[dict[str, Any]], payload["messages"], ("messages",))
    messages = [_without_extras(provider, said, ("messages", at)) for at, said in enumerate(payload["messages"])]
    params = sdk("openai.types.chat.completion_create_params").CompletionCreateParamsNonStreaming
    fits(params, {**payload, "model": "m", "messages": messages})


def _zhipu(provider: str, payload: Payload) -> None:
    _openai_chat(provider, payload)
    answer = sdk("zai.types.chat.chat_completion").CompletionMessage
    for at, message in enumerate(payload["messages"]):
        if message["role"] == "assistant":
            fits(answer, {key: message[key] for key in message if key in answer.model_fields}, ("messages", at))


def _ollama(_: str, payload: Payload) -> None:
    ollama = sdk("ollama")
    fits(list[dict[str, Any]], payload["messages"], ("messages",))
    for at, given in enumerate(payload["messages"]):
        message = {"content": None, **given}
        fits(Literal["system", "user", "assistant", "tool"], message.get("role"), ("messages", at, "role"))
        fits(str, message["content"], ("messages", at, "content"))
        fits(list[str], message.pop("images", []), ("messages", at, "images"))
        if message["role"] == "tool":
            fits(str, message.pop("tool_call_id", ""), ("messages", at, "tool_call_id"))
        if "tool_calls" in message:
            fits(list[dict[str, Any]], message["tool_calls"], ("messages", at, "tool_calls"))
            fits(list[str], [call["id"] for call in message["tool_calls"] if "id" in call], ("messages", at, "id"))
            message["tool_calls"] = [{k: call[k] for k in call if k != "id"} for call in message["tool_calls"]]
        fits(ollama.Message, message, ("messages", at))
        ollama.Message.model_validate(message)
    fits(many(ollama.Tool), payload.get("tools", []), ("tools",))
    for tool in payload.get("tools", []):
        ollama.Tool.model_validate(tool)


def _dashscope(_: str, payload: Payload) -> None:
    fits(list[_Said | _Answered | _Returned], payload["messages"], ("messages",))
    for at, message in enumerate(payload["messages"]):
        if not message.get("tool_calls") and {"text": None} in list(message["content"]):
            raise MisfitError(("messages", at, "content"), "text is None, and the message calls no tool")
    fits(many(sdk("openai.types.chat").ChatCompletionFunctionToolParam), payload.get("tools", []), ("tools",))


def _mistral(_: str, payload: Payload) -> None:
    models = sdk("mistralai.client.models")
    for at, message in enumerate(payload["messages"]):
        fits(Literal["system", "user", "assistant", "tool"], message.get("role"), ("messages", at, "role"))
    fits(models.ChatCompletionRequestTypedDict, {"model": "m", **payload})
    models.ChatCompletionRequest.model_validate({"model": "m", **payload})


def _gemini(_: str, payload: Payload) -> None:
    types = sdk("google.genai.types")
    fits(many(types.Content), payload["contents"], ("contents",))
    config = {key: payload[key] for key in payload if key != "contents"}
    fits(str | types.Content | many(str | types.Part), config.get("system_instruction", ""), ("system_instruction",))
    fits(many(types.Tool), config.get("tools", []), ("tools",))
    for content in payload["contents"]:
        types.Content.model_validate(content)
    types.GenerateContentConfig.model_validate(config)


def _ollama_generate(_: str, payload: Payload) -> None:
    fits(_Generate, dict(payload))


def _openai_responses(_: str, payload: Payload) -> None:
    params = sdk("openai.types.responses.response_create_params").ResponseCreateParamsNonStreaming
    fits(list[Any], payload["input"], ("input",))
    fits(params, {"model": "m", **payload})


def _anthropic(_: str, payload: Payload) -> None:
    params = sdk("anthropic.types.message_create_params").MessageCreateParamsNonStreaming
    fits(params, {"model": "m", "max_tokens": 8, **payload})


_STRICT: dict[str, Callable[[str, Payload], None]] = {
    **dict.fromkeys(OPENAI_CHAT, _openai_chat),
    **dict.fromkeys(DASHSCOPE, _dashscope),
    "zhipu": _zhipu,
    "mistral": _mistral,
    "ollama": _ollama,
    "ollama-generate": _ollama_generate,
    "openai-responses": _openai_responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
}


def strictly(provider: str, payload: Payload) -> None:
    """Raise an error for a payload that does not match the types of the provider's client."""
    required, optional = KEYS[provider]
    if not required <= set(payload) <= required | optional:
        raise MisfitError((), f"has the keys {sorted(payload)}; expected {sorted(required)}, maybe {sorted(optional)}")
    _STRICT[provider](provider, payload)
