"""The providers by name. A profile is imported when it is first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Literal, TypeAlias

from lazyprompt.errors import FormatError, did_you_mean

if TYPE_CHECKING:
    from lazyprompt.formatters.profile import Profile

# The module of each profile, whose name there is the provider's in capitals.
_MODULES = {
    "openai": "openai",
    "openai-responses": "responses",
    "anthropic": "anthropic",
    "gemini": "gemini",
    "dashscope": "dashscope",
    "dashscope-multimodal": "dashscope",
    "ollama": "ollama",
    "ollama-generate": "ollama",
    "deepseek": "openai",
    "zhipu": "openai",
    "litellm": "openai",
    "moonshot": "openai",
    "xai": "openai",
    "vllm": "openai",
    "mistral": "mistral",
}
PROVIDERS = tuple(_MODULES)
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
    """Return the rules of a provider.

    Args:
        provider: One of ``PROVIDERS``.

    Returns:
        Its profile.

    Raises:
        FormatError: There is no such provider.
    """
    if provider not in _MODULES:
        raise FormatError(
            f"provider {provider!r} is unknown{did_you_mean(str(provider), PROVIDERS)}; "
            f"known are {', '.join(PROVIDERS)}"
        )
    module = import_module(f"lazyprompt.formatters.{_MODULES[provider]}")
    profile: Profile = getattr(module, provider.upper().replace("-", "_"))
    return profile
