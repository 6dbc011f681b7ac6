"""The sources of answers: who provides models, in which form and with which client. One row for each.

Sources: the providers' own quick starts, for addresses, variables of keys and names of models.
"""

from __future__ import annotations

import os
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from lazyprompt._base.secret import Secret
from lazyprompt.errors import ModuleError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lazyprompt.modules.client import Client, Settings

_CLIENTS = "lazyprompt.modules.clients."
_OPENAI = _CLIENTS + "openai:connect"


class Source(NamedTuple):
    """A source.

    Attributes:
        name: Its name.
        provider: Whose form its payloads have, as of ``ChatFormatter``.
        connect: Its client, as ``module:function``, which is a :data:`~lazyprompt.modules.client.Connect`.
        base_url: Where it is; None where its client knows.
        keys: The variables of the environment that its key may be in, the first that is set counts.
        needs_key: Whether nothing is answered without a key.
        model: The model where none is named; ``""`` where one must be.
        aliases: Its other names.
        server: What the client is told of the server, where it serves several.
    """

    name: str
    provider: str
    connect: str = _OPENAI
    base_url: str | None = None
    keys: tuple[str, ...] = ()
    needs_key: bool = True
    model: str = ""
    aliases: tuple[str, ...] = ()
    server: str = ""

    def client(self, settings: Settings) -> Client:
        """Its client.

        Args:
            settings: How it is to be made.
        """
        module, _, function = self.connect.partition(":")
        connect = getattr(import_module(module), function)
        client: Client = connect(settings, self.server) if self.server else connect(settings)
        return client

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


_ROWS = (
    Source("openai", "openai", keys=("OPENAI_API_KEY",), model="gpt-5-mini"),
    Source(
        "anthropic",
        "anthropic",
        _CLIENTS + "anthropic:connect",
        keys=("ANTHROPIC_API_KEY",),
        model="claude-haiku-4-5",
        aliases=("claude",),
    ),
    Source(
        "gemini",
        "gemini",
        _CLIENTS + "gemini:connect",
        keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        model="gemini-2.5-flash",
        aliases=("google",),
    ),
    Source(
        "dashscope",
        "dashscope",
        _CLIENTS + "dashscope:connect",
        keys=("DASHSCOPE_API_KEY",),
        model="qwen-plus",
        aliases=("qwen",),
    ),
    Source(
        "dashscope-multimodal",
        "dashscope-multimodal",
        _CLIENTS + "dashscope:connect_multimodal",
        keys=("DASHSCOPE_API_KEY",),
        model="qwen-vl-plus",
        aliases=("qwen-vl",),
    ),
    Source(
        "deepseek",
        "deepseek",
        base_url="https://api.deepseek.com",
        keys=("DEEPSEEK_API_KEY",),
        model="deepseek-chat",
        server="deepseek",
    ),
    Source(
        "zhipu",
        "zhipu",
        _CLIENTS + "zai:connect",
        keys=("ZHIPUAI_API_KEY", "ZAI_API_KEY"),
        model="glm-4.6",
        aliases=("glm", "zai"),
    ),
    Source(
        "moonshot",
        "moonshot",
        base_url="https://api.moonshot.cn/v1",
        keys=("MOONSHOT_API_KEY",),
        model="kimi-k2-turbo-preview",
        aliases=("kimi",),
        server="moonshot",
    ),
    Source(
        "mistral",
        "mistral",
        _CLIENTS + "mistral:connect",
        keys=("MISTRAL_API_KEY",),
        model="mistral-small-latest",
    ),
    Source("xai", "xai", base_url="https://api.x.ai/v1", keys=("XAI_API_KEY",), model="grok-4", server="xai"),
    Source(
        "siliconflow",
        "openai",
        base_url="https://api.siliconflow.cn/v1",
        keys=("SILICONFLOW_API_KEY",),
        model="Qwen/Qwen3-8B",
        server="siliconflow",
    ),
    Source("ollama", "ollama", _CLIENTS + "ollama:connect", keys=("OLLAMA_API_KEY",), needs_key=False),
    Source(
        "vllm",
        "vllm",
        base_url="http://localhost:8000/v1",
        keys=("VLLM_API_KEY",),
        needs_key=False,
        server="vllm",
    ),
    Source("litellm", "litellm", _CLIENTS + "litellm:connect", needs_key=False),
)

SOURCES: Final[Mapping[str, Source]] = MappingProxyType({source.name: source for source in _ROWS})
_NAMES = {name: source for source in _ROWS for name in (source.name, *source.aliases)}


def source_named(name: str) -> Source:
    """The source of a name.

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
