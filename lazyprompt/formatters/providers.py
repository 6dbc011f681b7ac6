"""The providers by name. A profile is imported when it is first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from lazyprompt.errors import FormatError, did_you_mean

if TYPE_CHECKING:
    from lazyprompt.formatters.profile import Profile

# All but ``openai``, for type checkers: a prompter makes a payload for these.
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
PROVIDERS: tuple[str, ...] = ("openai", *get_args(OtherProvider))
# The modules of profiles by the first part of the provider's name; all other profiles are in ``openai``.
_MODULES = frozenset({"anthropic", "gemini", "dashscope", "ollama", "mistral", "responses"})


def profile_of(provider: str) -> Profile:
    """Return the rules of a provider.

    Args:
        provider: One of ``PROVIDERS``.

    Returns:
        Its profile.

    Raises:
        FormatError: There is no such provider.
    """
    if provider not in PROVIDERS:
        raise FormatError(
            f"provider {provider!r} is unknown{did_you_mean(str(provider), PROVIDERS)}; "
            f"known are {', '.join(PROVIDERS)}"
        )
    family = provider.removeprefix("openai-").partition("-")[0]
    module = import_module(f"lazyprompt.formatters.{family if family in _MODULES else 'openai'}")
    profile: Profile = getattr(module, provider.upper().replace("-", "_"))
    return profile
