"""Definitions of model providers: their payload format, client, URL and API key variables.

URLs, environment variables and model names are taken from the providers' quick-start guides.
"""

from __future__ import annotations

import os
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from lazyprompt._base.secret import Secret
from lazyprompt.errors import ModuleError, did_you_mean
from lazyprompt.formatters.profile import Profile
from lazyprompt.modules.clients.openai import SERVERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lazyprompt.modules.clients._base import ClientSettings, OfficialClient


OPENAI_CLIENT = "openai:connect"


class Source(NamedTuple):
    """A model provider, or a server with a provider's API.

    Attributes:
        name: The name of the provider.
        provider: The payload format: a profile, or a provider name that ``ChatFormatter`` accepts.
        model: The default model, or an empty string if the caller must choose a model.
        connect: A function that creates a client from settings, or its name as ``module:function`` in ``clients/``. The
            default is OpenAI's client.
        keys: The environment variables for the API key. The first variable that is set is used.
        base_url: The server's URL, None for the client's default URL, or an empty string if the caller must pass a URL.
        needs_key: True if the server rejects calls without an API key.
        aliases: Alternative names for the provider.
    """

    name: str
    provider: str | Profile = "openai"
    model: str = ""
    connect: str | Callable[[ClientSettings], OfficialClient] = OPENAI_CLIENT
    keys: tuple[str, ...] = ()
    base_url: str | None = None
    needs_key: bool = True
    aliases: tuple[str, ...] = ()

    def is_hosted(self, address: str | None) -> bool:
        """Return True if a URL belongs to a hosted provider rather than a self-hosted server.

        Args:
            address: The caller's URL, or None for the source's default URL.
        """
        found = address or os.environ.get(_ADDRESSES.get(self.name, "")) or self.base_url
        if found is None:
            return self.needs_key
        host = f".{urlsplit(found).hostname}"
        return any(host.endswith(f".{end}") for end in _HOSTS)

    def client(self, settings: ClientSettings) -> OfficialClient:
        """Return a client for the source.

        Args:
            settings: The client's settings.
        """
        if not isinstance(self.connect, str):
            return self.connect(settings)
        connect: Callable[..., OfficialClient] = resolve_name(f"lazyprompt.modules.clients.{self.connect}")
        # OpenAI's client needs the source name, because OpenAI-compatible servers support different parameters.
        named = self.connect == OPENAI_CLIENT and self.base_url is not None
        return connect(settings, self.name) if named else connect(settings)

    def key(self, given: str | Secret | None) -> Secret | None:
        """Return the API key, or None if the source needs no key.

        Args:
            given: The caller's API key; if None or blank, the API key is read from the environment.

        Raises:
            ModuleError: The provider requires an API key, but none is set.
            TypeError: The API key is not a string.
        """
        secret = Secret(given) if given is not None and not isinstance(given, Secret) else given
        if secret is not None and secret.reveal().strip():
            return secret
        found = next((key for name in self.keys if (key := os.environ.get(name, "").strip())), None)
        if found is not None:
            return Secret(found)
        if self.needs_key:
            variables = f"set {' or '.join(self.keys)} in the environment, or " if self.keys else ""
            raise ModuleError(f"{self.name} requires an API key: {variables}pass api_key=", kind="key")
        return None


def _row(name: str, model: str = "", connect: str = OPENAI_CLIENT, **more: Any) -> Source:
    """Create a source; ``name`` determines the default provider and environment variable for the API key."""
    own: dict[str, Any] = {"provider": name, "keys": (f"{name.upper()}_API_KEY",), **more}
    return Source(name, model=model, connect=connect, **own)


# The environment variables from which SDKs read the default base URL, by source.
_ADDRESSES = {
    **dict.fromkeys(("openai", "openai-responses"), "OPENAI_BASE_URL"),
    "anthropic": "ANTHROPIC_BASE_URL",
    "gemini": "GOOGLE_GEMINI_BASE_URL",
}
# The domain suffixes of the providers' servers.
_HOSTS = (*(host for server in SERVERS.values() for host in server.hosts), "api.anthropic.com", "googleapis.com")
_GEMINI_KEYS, _ZHIPU_KEYS = ("GEMINI_API_KEY", "GOOGLE_API_KEY"), ("ZHIPUAI_API_KEY", "ZAI_API_KEY")
# DashScope's OpenAI-compatible mode follows vLLM's rules for Qwen models.
_QWEN: dict[str, Any] = {"provider": "vllm", "aliases": ("qwen",)}
_ROWS = (
    _row("openai", "gpt-5-mini"),
    _row("openai-responses", "gpt-5-mini", "responses:connect", keys=("OPENAI_API_KEY",)),
    _row("anthropic", "claude-haiku-4-5", "anthropic:connect", aliases=("claude",)),
    _row("gemini", "gemini-2.5-flash", "gemini:connect", aliases=("google",), keys=_GEMINI_KEYS),
    _row("dashscope", "qwen-plus", base_url="https://dashscope.aliyuncs.com/compatible-mode/v1", **_QWEN),
    _row("deepseek", "deepseek-chat", base_url="https://api.deepseek.com"),
    _row(
        "zhipu", "glm-4.6", base_url="https://open.bigmodel.cn/api/paas/v4/", aliases=("glm", "zai"), keys=_ZHIPU_KEYS
    ),
    _row("moonshot", "kimi-k2-turbo-preview", base_url="https://api.moonshot.cn/v1", aliases=("kimi",)),
    _row("mistral", "mistral-small-latest", base_url="https://api.mistral.ai/v1"),
    _row("xai", "grok-4", base_url="https://api.x.ai/v1"),
    _row("siliconflow", "Qwen/Qwen3-8B", base_url="https://api.siliconflow.cn/v1", provider="openai"),
    _row("ollama", connect="ollama:connect", needs_key=False),
    _row("vllm", base_url="http://localhost:8000/v1", needs_key=False),
    _row("litellm", base_url="", needs_key=False),
)

SOURCES: Final[Mapping[str, Source]] = MappingProxyType({source.name: source for source in _ROWS})
_NAMES = {name: source for source in _ROWS for name in (source.name, *source.aliases)}


def source_named(name: str | Source) -> Source:
    """Return the source with a given name.

    Args:
        name: The name or alias of a source in :data:`SOURCES`, or a source, which is returned unchanged.

    Raises:
        ModuleError: No source has this name.
    """
    if isinstance(name, Source):
        return name
    found = _NAMES.get(str(name).lower())
    if found is None:
        raise ModuleError(
            f"{_describe_unknown(name)}; expected one of {', '.join(SOURCES)}; for any other server with OpenAI's API, "
            'use OnlineChatModule("openai", base_url=...)'
        )
    return found


def _describe_unknown(name: object) -> str:
    if not isinstance(name, str):
        wrapped = "; pass Source(NAME, provider=PROFILE, ...)" if isinstance(name, Profile) else ""
        return f"source must be a name or a Source, not {type(name).__name__}{wrapped}"
    return f"unknown source {name!r}{did_you_mean(name, _NAMES)}"
