"""Where whole requests go: what each provider's interface calls the options of a prompt file, and what else it has.

A target is data. Messages and answers are the formatters' own: a target only names the profile, and the few rules in
which Prompty's specification (section 7) differs from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from lazyprompt.errors import FormatError, did_you_mean
from lazyprompt.files.properties import schema_of
from lazyprompt.formatters.chat_form import ChatForm, UrlPart
from lazyprompt.formatters.profile import PDF, Media
from lazyprompt.formatters.providers import PROVIDERS, profile_of
from lazyprompt.messages.msg import FileBlock, URLSource
from lazyprompt.messages.openai_form import write_part

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.files.properties import Property
    from lazyprompt.formatters.profile import MediaKind, Profile
    from lazyprompt.messages.msg import Block

Place: TypeAlias = tuple[str, ...]
"""Where something stands in a request: the keys that lead to it."""

APIS: Final = ("chat", "responses", "embedding", "image")
"""The kinds of interfaces."""

OPTIONS: Final = (
    "temperature",
    "maxOutputTokens",
    "topP",
    "topK",
    "frequencyPenalty",
    "presencePenalty",
    "seed",
    "stopSequences",
    "allowMultipleToolCalls",
    "reasoningEffort",
)
"""The options that Prompty names; ``additionalProperties`` are those of the provider."""

_SAME = {"temperature": ("temperature",), "topP": ("top_p",)}
_SAMPLING = {
    **_SAME,
    "frequencyPenalty": ("frequency_penalty",),
    "presencePenalty": ("presence_penalty",),
    "seed": ("seed",),
    "stopSequences": ("stop",),
}
_CHAT: Mapping[str, Place] = {
    **_SAMPLING,
    "allowMultipleToolCalls": ("parallel_tool_calls",),
    "reasoningEffort": ("reasoning_effort",),
}


@dataclass(frozen=True, slots=True)
class Target:
    """An interface of a provider.

    Args:
        profile: The rules of its messages, by the name of a formatter.
        api: One of :data:`APIS`.
        options: Where the options of a prompt file stand in a request; one that is not named has no place.
        defaults: What a request must have, where the file does not say it.
        changes: The rules of the profile that are others here.
        structured: The part of a request that asks for an answer of some properties; None where there is none.
        text_content: Whether a content that is text alone is one text; else all content is a list of blocks.
        strict_tools: Whether tools are asked to keep strict schemas, where the provider can.
    """

    profile: str
    api: str = "chat"
    options: Mapping[str, Place] = field(default_factory=dict[str, Place])
    defaults: Mapping[str, Json] = field(default_factory=dict[str, "Json"])
    changes: Mapping[str, object] = field(default_factory=dict[str, object])
    structured: Callable[[tuple[Property, ...]], JsonObject] | None = None
    text_content: bool = True
    strict_tools: bool = True

    def own_profile(self) -> Profile:
        """The rules of its messages."""
        return profile_of(self.profile).but(**self.changes)

    def passes_on(self, block: Block) -> bool:
        """Whether the address of a medium is sent, though the provider itself takes data only."""
        kind = cast("MediaKind", block.kind)
        ours, its = (profile.media.get(kind) for profile in (self.own_profile(), profile_of(self.profile)))
        return ours is not None and ours.url and (its is None or not its.url)


class _FilePart(UrlPart):
    """A file as a part: by its address, which Prompty has and OpenAI's own form does not, or as data."""

    __slots__ = ()

    def __call__(self, block: Block) -> JsonObject:
        """The part of a block."""
        by_address = isinstance(block, FileBlock) and isinstance(block.source, URLSource)
        return super().__call__(block) if by_address else write_part(block)


def _closed(schema: Json) -> Json:
    """A schema whose objects hold nothing but what they name."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made: dict[str, Json] = {key: _closed(value) for key, value in schema.items()}
    return {**made, "additionalProperties": False} if made.get("type") == "object" else made


def _named(outputs: tuple[Property, ...]) -> dict[str, Json]:
    return {"name": "structured_output", "strict": True, "schema": schema_of(outputs, strict=True)}


def _response_format(outputs: tuple[Property, ...]) -> JsonObject:
    return {"response_format": {"type": "json_schema", "json_schema": _named(outputs)}}


def _text_format(outputs: tuple[Property, ...]) -> JsonObject:
    return {"text": {"format": {"type": "json_schema", **_named(outputs)}}}


def _output_config(outputs: tuple[Property, ...]) -> JsonObject:
    return {"output_config": {"format": {"type": "json_schema", "schema": _closed(schema_of(outputs))}}}


def _generation_config(outputs: tuple[Property, ...]) -> JsonObject:
    return {"generation_config": {"response_mime_type": "application/json", "response_json_schema": schema_of(outputs)}}


def _ollama_format(outputs: tuple[Property, ...]) -> JsonObject:
    return {"format": schema_of(outputs)}


_OPENAI = Target(
    "openai",
    options={**_CHAT, "maxOutputTokens": ("max_completion_tokens",)},
    changes={
        "form": ChatForm(parts={"file": _FilePart("file")}),
        "media": {
            "image": Media(("image/*",)),
            # Which formats a model hears changes from model to model: the format is told by its own name.
            "audio": Media(("audio/*",), url=False),
            "file": Media(PDF),
        },
    },
    structured=_response_format,
)
_RESPONSES = Target(
    "openai-responses",
    "responses",
    options={
        **_SAME,
        "maxOutputTokens": ("max_output_tokens",),
        "allowMultipleToolCalls": ("parallel_tool_calls",),
        "reasoningEffort": ("reasoning", "effort"),
    },
    # All that the developer says is one text: the instructions.
    changes={"system": "first", "developer": False},
    structured=_text_format,
)
_ANTHROPIC = Target(
    "anthropic",
    options={
        **_SAME,
        "topK": ("top_k",),
        "maxOutputTokens": ("max_tokens",),
        "stopSequences": ("stop_sequences",),
        "reasoningEffort": ("output_config", "effort"),
    },
    defaults={"max_tokens": 4096},
    structured=_output_config,
    text_content=False,
    # Anthropic takes them, but Prompty's specification has none there.
    strict_tools=False,
)
_GEMINI = Target(
    "gemini",
    options={
        name: ("generation_config", *place)
        for name, place in {
            **_SAMPLING,
            "topK": ("top_k",),
            "stopSequences": ("stop_sequences",),
            "maxOutputTokens": ("max_output_tokens",),
        }.items()
    },
    structured=_generation_config,
)
_OLLAMA = Target(
    "ollama",
    options={
        name: ("options", *place)
        for name, place in {**_SAMPLING, "topK": ("top_k",), "maxOutputTokens": ("num_predict",)}.items()
    },
    structured=_ollama_format,
)
_LIKE_OPENAI = Target("", options={**_CHAT, "maxOutputTokens": ("max_tokens",)}, structured=_response_format)

_TARGETS: Final[Mapping[tuple[str, str], Target]] = {
    ("openai", "chat"): _OPENAI,
    ("openai", "responses"): _RESPONSES,
    ("openai", "embedding"): Target("openai", "embedding"),
    ("openai", "image"): Target("openai", "image"),
    ("anthropic", "chat"): _ANTHROPIC,
    ("gemini", "chat"): _GEMINI,
    ("ollama", "chat"): _OLLAMA,
    # DeepSeek answers in JSON, but keeps to no schema.
    ("deepseek", "chat"): replace(_LIKE_OPENAI, profile="deepseek", structured=None),
    **{
        (name, "chat"): replace(_LIKE_OPENAI, profile=name)
        for name in ("litellm", "mistral", "moonshot", "vllm", "xai", "zhipu")
    },
}
# What serves the models of another provider through that one's own interface.
_OTHER_NAMES = {
    **dict.fromkeys(("azure", "azure_openai", "foundry", "openai-responses"), "openai"),
    **dict.fromkeys(("googleai", "vertexai"), "gemini"),
}


def takes(provider: str, api: str) -> bool:
    """Whether a provider has an interface.

    Args:
        provider: The provider, as a prompt file names it.
        api: One of :data:`APIS`.
    """
    return (_OTHER_NAMES.get(provider, provider), api) in _TARGETS


def target_of(provider: str | None = None, api: str | None = None) -> Target:
    """Where a request goes.

    Args:
        provider: The provider, as a prompt file names it; None is ``openai``.
        api: One of :data:`APIS`; None is ``chat``.

    Returns:
        The target.

    Raises:
        FormatError: There is no such provider, or it has no such interface.
    """
    name = provider or "openai"
    kind = api or "chat"
    if name == "openai-responses" and kind == "chat":
        kind = "responses"
    family = _OTHER_NAMES.get(name, name)
    if (family, kind) in _TARGETS:
        return _TARGETS[family, kind]
    known = sorted({each for each, _ in _TARGETS})
    if family not in known:
        what = "is sent no whole requests" if family in PROVIDERS else "is unknown"
        near = did_you_mean(family, known)
        raise FormatError(f"provider {name!r} {what}{near}; prompt files are sent to {', '.join(known)}")
    kinds = [each for owner, each in _TARGETS if owner == family]
    raise FormatError(f"{name} has no interface {kind!r}{did_you_mean(kind, kinds)}; it has {', '.join(kinds)}")
