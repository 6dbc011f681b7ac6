"""The providers by name. A profile is imported when it is first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Literal, TypeAlias

from lazyprompt.errors import FormatError, did_you_mean

if TYPE_CHECKING:
    from lazyprompt.formatters.profile import Profile

_HOMES = {
    "openai": "openai:OPENAI",
    "openai-responses": "responses:OPENAI_RESPONSES",
    "anthropic": "anthropic:ANTHROPIC",
    "gemini": "gemini:GEMINI",
    "dashscope": "dashscope:DASHSCOPE",
    "dashscope-multimodal": "dashscope:DASHSCOPE_MULTIMODAL",
    "ollama": "ollama:OLLAMA",
    "ollama-generate": "ollama:OLLAMA_GENERATE",
    "deepseek": "deepseek:DEEPSEEK",
    "zhipu": "zhipu:ZHIPU",
    "litellm": "litellm:LITELLM",
    "moonshot": "moonshot:MOONSHOT",
    "xai": "xai:XAI",
    "vllm": "vllm:VLLM",
    "mistral": "mistral:MISTRAL",
}
PROVIDERS = tuple(_HOMES)
# All but ``openai``, for type checkers: what a prompter makes for these is a payload.
OtherProvider: TypeAlias = Literal[
    "openai-responses",
    "anthropic",
    "gemini",
    "dashscope",
    "dashscope-multimodal",
    "ollama",
    "ollama-generate",
    "deepseek",
    "zhipu",
    "litellm",
    "moonshot",
    "xai",
    "vllm",
    "mistral",
]


def profile_of(provider: str) -> Profile:
    """The rules of a provider.

    Args:
        provider: One of ``PROVIDERS``.

    Returns:
        Its profile.

    Raises:
        FormatError: There is no such provider.
    """
    home = _HOMES.get(provider)
    if home is None:
        raise FormatError(
            f"provider {provider!r} is unknown{did_you_mean(str(provider), PROVIDERS)}; "
            f"known are {', '.join(PROVIDERS)}"
        )
    module, _, name = home.partition(":")
    profile: Profile = getattr(import_module(f"lazyprompt.formatters.{module}"), name)
    return profile
