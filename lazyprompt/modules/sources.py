"""The sources of answers: who provides models, in which form and with which client. One row for each.

Sources: the providers' own quick starts, for addresses, variables of keys and names of models.
"""

from __future__ import annotations

import os
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lazyprompt._base.secret import Secret
from lazyprompt.errors import ModuleError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lazyprompt.modules.clients._base import OfficialClient, Settings


class Source(NamedTuple):
    """A source.

    Attributes:
        name: Its name.
        provider: The provider whose form its payloads have, as of ``ChatFormatter``.
        connect: Its client: ``module:function`` in ``clients/``.
        base_url: Where it is; None where its client knows.
        keys: The variables of the environment that its key may be in, the first that is set counts.
        needs_key: True if nothing is answered without a key.
        model: The model where none is named; ``""`` where one must be.
        aliases: Its other names.
        server: The name of the server for a client that serves several.
    """

    name: str
    provider: str
    connect: str = "openai:connect"
    base_url: str | None = None
    keys: tuple[str, ...] = ()
    needs_key: bool = True
    model: str = ""
    aliases: tuple[str, ...] = ()
    server: str = ""

    def client(self, settings: Settings) -> OfficialClient:
        """Return its client.

        Args:
            settings: The settings of the client.
        """
        connect: Callable[..., OfficialClient] = resolve_name(f"lazyprompt.modules.clients.{self.connect}")
        return connect(settings, self.server) if self.server else connect(settings)

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
    name: str, model: str = "", connect: str = "openai:connect", aliases: tuple[str, ...] = (), **more: object
) -> Source:
    """Return a source whose provider and key are named as it is, and its server where its address is given."""
    own: dict[str, Any] = {"provider": name, "keys": (f"{name.partition('-')[0].upper()}_API_KEY",), **more}
    return Source(name, connect=connect, model=model, aliases=aliases, server=name if "base_url" in more else "", **own)


_ROWS = (
    _row("openai", "gpt-5-mini"),
    _row("anthropic", "claude-haiku-4-5", "anthropic:connect", ("claude",)),
    _row("gemini", "gemini-2.5-flash", "gemini:connect", ("google",), keys=("GEMINI_API_KEY", "GOOGLE_API_KEY")),
    _row("dashscope", "qwen-plus", "dashscope:connect", ("qwen",)),
    _row("dashscope-multimodal", "qwen-vl-plus", "dashscope:connect_multimodal", ("qwen-vl",)),
    _row("deepseek", "deepseek-chat", base_url="https://api.deepseek.com"),
    _row("zhipu", "glm-4.6", "zai:connect", ("glm", "zai"), keys=("ZHIPUAI_API_KEY", "ZAI_API_KEY")),
    _row("moonshot", "kimi-k2-turbo-preview", aliases=("kimi",), base_url="https://api.moonshot.cn/v1"),
    _row("mistral", "mistral-small-latest", "mistral:connect"),
    _row("xai", "grok-4", base_url="https://api.x.ai/v1"),
    _row("siliconflow", "Qwen/Qwen3-8B", provider="openai", base_url="https://api.siliconflow.cn/v1"),
    _row("ollama", connect="ollama:connect", needs_key=False),
    _row("vllm", base_url="http://localhost:8000/v1", needs_key=False),
    _row("litellm", connect="litellm:connect", keys=(), needs_key=False),
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
            f"there is no source {name!r}{did_you_mean(str(name), _NAMES)}; there are {', '.join(SOURCES)}; whoever "
            'else speaks like OpenAI is OnlineChatModule("openai", base_url=...)'
        )
    return found
