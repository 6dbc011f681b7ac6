"""The profiles by provider name, and a table of the content that each provider accepts.

Profiles are imported on first use. In the table, ``yes (signed)`` means that a provider's signatures on text blocks and
tool calls are sent back to it. The media columns list the accepted ways to send media, and show whether media from tool
results are sent in the results or after them. The ``thinking`` column shows the form in which a provider accepts
reasoning.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

from lazyprompt.errors import FormatError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lazyprompt.formatters.profile import MediaKind, Profile

# The values of the ``format`` argument of prompters, except ``openai``.
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
# The modules that are named after a provider. The module ``openai`` defines the profiles of all other providers.
_MODULES = frozenset({"anthropic", "gemini", "dashscope", "ollama", "mistral", "responses"})


def profile_of(provider: str | Profile) -> Profile:
    """Return the rules of a provider.

    Args:
        provider: A name from ``PROVIDERS``, or a profile, which is returned unchanged.

    Returns:
        The provider's profile.

    Raises:
        FormatError: The provider is unknown.
    """
    if not isinstance(provider, str):
        return _checked_profile(provider)
    if provider not in PROVIDERS:
        raise FormatError(
            f"provider {provider!r} is unknown{did_you_mean(provider, PROVIDERS)}; "
            f"expected one of {', '.join(PROVIDERS)}, or a Profile"
        )
    family = provider.removeprefix("openai-").partition("-")[0]
    module = import_module(f"lazyprompt.formatters.{family if family in _MODULES else 'openai'}")
    profile: Profile = getattr(module, provider.upper().replace("-", "_"))
    return profile


def _checked_profile(given: object) -> Profile:
    from lazyprompt.formatters.profile import Profile  # noqa: PLC0415 - named providers are checked by name

    if not isinstance(given, Profile):
        raise FormatError(f"provider must be a name or a Profile, not {type(given).__name__}")
    return given


class Row(NamedTuple):
    """A table row that shows the content and settings that a provider accepts.

    Attributes:
        provider: The provider's name.
        cells: A mapping from column names to cell texts, in column order.
    """

    provider: str
    cells: Mapping[str, str]


def rows() -> list[Row]:
    """Return a table row for each built-in provider; ``HEADERS`` lists the columns."""
    return [row_of(profile_of(provider)) for provider in PROVIDERS]


def row_of(profile: Profile) -> Row:
    """Return the table row for a built-in or custom provider.

    Args:
        profile: The provider's rules.
    """
    text, marks = "yes (signed)" if profile.signs_parts else "yes", profile.breakpoints
    cells: dict[str, str] = {
        "text": text,
        "tool_use": text if profile.calls_tools else "no",
        "tool_result": "yes" if profile.calls_tools else "no",
        **{kind: _medium(profile, kind) for kind in _MEDIA},
        "thinking": _THINKING[profile.thinking],
        "system": profile.system if profile.late_system is None else f"{profile.system}, late after a user turn",
        "turns": "one text" if not profile.turns else "must alternate" if profile.alternate else "any order",
        "names": "no" if profile.names is None else "yes",
        "cache": "no",
    }
    if marks is not None:
        places = "tools, system, history" if marks.tools else "system, history"
        cells["cache"] = places if marks.models is None else f"{places} (some models)"
    return Row(profile.name, cells)


def _medium(profile: Profile, kind: MediaKind) -> str:
    media = profile.media.get(kind)
    if media is None:
        return "no"
    ways = "+".join(way for way, fits in (("url", media.url), ("data", media.data)) if fits)
    if not profile.calls_tools:
        return ways
    return f"{ways} (also in results)" if kind in profile.result_media else f"{ways} (after results)"


_MEDIA: tuple[MediaKind, ...] = ("image", "audio", "video", "file")
_THINKING = {"none": "no", "signed": "signed", "items": "with id", "own": "its own", "text": "as text"}
HEADERS = (
    *("provider", "text", "tool_use", "tool_result", "image", "audio", "video", "file"),
    *("thinking", "system", "turns", "names", "cache"),
)
