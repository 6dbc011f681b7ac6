"""The sources of answers: the providers of models, with the form and the client of each.

Sources: the providers' own quick starts, for addresses, variables of keys and names of models.
"""

from __future__ import annotations

import os
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from lazyprompt._base.secret import Secret
from lazyprompt.errors import ModuleError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lazyprompt.modules.clients._base import OfficialClient, Settings


class Source(NamedTuple):
    """A source of answers.

    Attributes:
        name: The name of the source.
        provider: The provider whose payload form it takes, a name of ``ChatFormatter``.
        model: The default model, or "" if the caller must name one.
        connect: The client, as ``module:function`` in ``clients/``.
        aliases: Other names of the source.
        base_url: The address, or None if the client has its own. With "", the caller must give one.
        keys: The environment variables that may hold the key. The first one that is set counts.
        needs_key: True if the source refuses calls without a key.
    """

    name: str
    provider: str
    model: str
    connect: str
    aliases: tuple[str, ...]
    base_url: str | None
    keys: tuple[str, ...]
    needs_key: bool

    def client(self, settings: Settings) -> OfficialClient:
        """Return a client for the source.

        Args:
            settings: The settings of the client.
        """
        connect: Callable[..., OfficialClient] = resolve_name(f"lazyprompt.modules.clients.{self.connect}")
        # OpenAI's client serves many sources, which differ in the details of a call.
        return connect(settings) if self.base_url is None else connect(settings, self.name)

    def key(self, given: str | Secret | None) -> Secret | None:
        """Return the key to use, or None if the source needs none.

        Args:
            given: The caller's key; None or blank text means the key of the environment.

        Raises:
            ModuleError: There is no key, and the source needs one.
            TypeError: The key is no text.
        """
        secret = Secret(given) if given is not None and not isinstance(given, Secret) else given
        if secret is not None and secret.reveal().strip():
            return secret
        found = next((key for name in self.keys if (key := os.environ.get(name, "").strip())), None)
        if found is not None:
            return Secret(found)
        if self.needs_key:
            raise ModuleError(
                f"{self.name} needs a key, and there is none: set {' or '.join(self.keys)} in the environment, or give "
                "api_key=",
                kind="key",
            )
        return None


def _row(
    name: str,
    model: str = "",
    connect: str = "openai:connect",
    *,
    aliases: tuple[str, ...] = (),
    provider: str = "",
    base_url: str | None = None,
    keys: tuple[str, ...] | None = None,
    needs_key: bool = True,
) -> Source:
    """Return a source. The provider and the key's variable are named after the source by default."""
    keys = (f"{name.upper()}_API_KEY",) if keys is None else keys
    return Source(name, provider or name, model, connect, aliases, base_url, keys, needs_key)


_ROWS = (
    _row("openai", "gpt-5-mini"),
    _row("anthropic", "claude-haiku-4-5", "anthropic:connect", aliases=("claude",)),
    _row(
        "gemini",
        "gemini-2.5-flash",
        "gemini:connect",
        aliases=("google",),
        keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    ),
    # Its compatible mode takes OpenAI's form, not DashScope's own, with the rules that vLLM has for the same models.
    _row(
        "dashscope",
        "qwen-plus",
        aliases=("qwen",),
        provider="vllm",
        base_url="https://dashscope.aliyuncs.com/compatible-mode/v1",
    ),
    _row("deepseek", "deepseek-chat", base_url="https://api.deepseek.com"),
    _row(
        "zhipu",
        "glm-4.6",
        aliases=("glm", "zai"),
        base_url="https://open.bigmodel.cn/api/paas/v4/",
        keys=("ZHIPUAI_API_KEY", "ZAI_API_KEY"),
    ),
    _row("moonshot", "kimi-k2-turbo-preview", aliases=("kimi",), base_url="https://api.moonshot.cn/v1"),
    _row("mistral", "mistral-small-latest", base_url="https://api.mistral.ai/v1"),
    _row("xai", "grok-4", base_url="https://api.x.ai/v1"),
    _row("siliconflow", "Qwen/Qwen3-8B", provider="openai", base_url="https://api.siliconflow.cn/v1"),
    _row("ollama", connect="ollama:connect", needs_key=False),
    _row("vllm", base_url="http://localhost:8000/v1", needs_key=False),
    _row("litellm", base_url="", needs_key=False),
)

SOURCES: Final[Mapping[str, Source]] = MappingProxyType({source.name: source for source in _ROWS})
_NAMES = {name: source for source in _ROWS for name in (source.name, *source.aliases)}


def source_named(name: str) -> Source:
    """Return the source of a name.

    Args:
        name: As in `SOURCES`, or one of its other names.

    Raises:
        ModuleError: There is none of that name.
    """
    found = _NAMES.get(str(name).lower())
    if found is None:
        raise ModuleError(
            f"there is no source {name!r}{did_you_mean(str(name), _NAMES)}; there are {', '.join(SOURCES)}; any "
            'other server with OpenAI\'s API is OnlineChatModule("openai", base_url=...)'
        )
    return found
