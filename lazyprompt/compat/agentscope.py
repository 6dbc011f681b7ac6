"""AgentScope's names, of its versions 0.1 and 1.x, over this package: change the imports, and a program runs on.

What AgentScope returns is the messages alone. The account of what could not be carried over is in the payload of
``.formatter.format(...)``, which each wrapper and formatter has.
"""
# ruff: noqa: D101, E701 - the classes that differ in a name only are a table below

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar, cast

from lazyprompt.formatters.formatter import ChatFormatter, MultiAgentFormatter
from lazyprompt.formatters.prompt_engine import PromptEngine
from lazyprompt.messages import (
    AudioBlock,
    Base64Source,
    ImageBlock,
    Msg,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    URLSource,
    VideoBlock,
)
from lazyprompt.tokens.counter import CharTokenCounter as _CharTokenCounter

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

    from lazyprompt.formatters._turns import Messages
    from lazyprompt.formatters.media import MediaResolver
    from lazyprompt.formatters.profile import HistoryStyle
    from lazyprompt.formatters.report import Payload

# fmt: off
__all__ = [
    "AnthropicChatFormatter", "AnthropicMultiAgentFormatter", "AudioBlock", "Base64Source", "CharTokenCounter",
    "Counter", "DashScopeChatFormatter", "DashScopeChatWrapper", "DashScopeMultiAgentFormatter",
    "DashScopeMultiModalWrapper", "DeepSeekChatFormatter", "DeepSeekMultiAgentFormatter", "Formatter",
    "GeminiChatFormatter", "GeminiChatWrapper", "GeminiMultiAgentFormatter", "ImageBlock", "LiteLLMChatWrapper",
    "MessageList", "Msg", "OllamaChatFormatter", "OllamaChatWrapper", "OllamaGenerationWrapper",
    "OllamaMultiAgentFormatter", "OpenAIChatFormatter", "OpenAIChatWrapper", "OpenAIFormatter",
    "OpenAIMultiAgentFormatter", "PromptEngine", "TextBlock", "ThinkingBlock", "ToolResultBlock", "ToolUseBlock",
    "URLSource", "VideoBlock", "Wrapper", "ZhipuAIChatWrapper",
]
# fmt: on

MessageList: TypeAlias = list[dict[str, Any]]
_Sent = TypeVar("_Sent", str, MessageList)


def _sent(payload: Payload, formatter: ChatFormatter) -> Any:  # noqa: ANN401 - a string from one wrapper, a list from others
    """The messages of a payload, system text that stands apart put first."""
    said = payload[formatter.profile.form.messages_key]
    if "system" in payload:
        return [{"role": "system", "content": payload["system"]}, *said]
    if "system_instruction" in payload:
        return [{"role": "user", "parts": [{"text": payload["system_instruction"]}]}, *said]
    return said


class Wrapper(Generic[_Sent]):
    """A model wrapper of AgentScope 0.x: its ``format`` only, nothing is ever sent.

    Args:
        config_name: Kept as it is.
        model_name: The model.
        api_key: Taken for the call's sake, and not kept.
        media: What may read the local files that messages name.
        anything: What else AgentScope's wrappers take; not looked at.
    """

    provider: ClassVar[str]
    history_style: ClassVar[HistoryStyle | None] = "conversation"

    def __init_subclass__(cls, provider: str = "") -> None:
        cls.provider = provider or cls.provider
        cls.__doc__ = cls.__doc__ or f"AgentScope's {cls.__name__}: its ``format``, as the provider ``{cls.provider}``."

    def __init__(
        self,
        config_name: str = "",
        model_name: str = "",
        api_key: str = "",  # noqa: ARG002 - see the docstring
        *,
        media: MediaResolver | None = None,
        **anything: object,  # noqa: ARG002 - see the docstring
    ) -> None:
        self.config_name, self.model_name = config_name, model_name
        self.formatter = (
            ChatFormatter(self.provider, model=model_name or None, media=media)
            if self.history_style is None
            else MultiAgentFormatter(
                self.provider, history_style=self.history_style, model=model_name or None, media=media
            )
        )

    def format(self, *msgs: Messages) -> _Sent:
        """The prompt of messages and lists of messages; ``None`` is passed over."""
        return cast("_Sent", _sent(self.formatter.format(*msgs), self.formatter))


class Counter(Protocol):
    """A token counter of AgentScope, or one that does not have to be awaited."""

    def count(self, messages: MessageList, /) -> int | Coroutine[Any, Any, int]:
        """The tokens of messages."""
        ...


class _Waiting:
    """A counter for a formatter that runs in a thread: what must be awaited is, on the event loop."""

    def __init__(self, counter: Counter, loop: asyncio.AbstractEventLoop) -> None:
        self._counter, self._loop = counter, loop

    def count(self, messages: Sequence[Mapping[str, Any]], tools: object = None) -> int:  # noqa: ARG002 - see the docstring
        """The tokens of messages; AgentScope's formatters are never given tools."""
        counted = self._counter.count([dict(message) for message in messages])
        if asyncio.iscoroutine(counted):
            return asyncio.run_coroutine_threadsafe(counted, self._loop).result()
        return counted

    def count_text(self, text: str) -> int:
        """The tokens of a text: AgentScope's counters know messages only."""
        return self.count([{"role": "user", "content": text}])


class Formatter:
    """A formatter of AgentScope 1.x.

    Args:
        token_counter: What counts the tokens of the messages, awaited or not.
        max_tokens: The most tokens; the oldest messages go first.
        media: What may read the local files that messages name.
    """

    provider: ClassVar[str]
    kind: ClassVar[type[ChatFormatter]]

    def __init_subclass__(cls, provider: str = "", kind: type[ChatFormatter] | None = None) -> None:
        cls.provider, cls.kind = provider or cls.provider, kind or cls.kind
        cls.__doc__ = cls.__doc__ or f"AgentScope's {cls.__name__}: the {cls.kind.__name__} of ``{cls.provider}``."

    def __init__(
        self,
        token_counter: Counter | None = None,
        max_tokens: int | None = None,
        *,
        media: MediaResolver | None = None,
    ) -> None:
        self.token_counter, self.max_tokens, self._media = token_counter, max_tokens, media
        # Only a counter makes a limit one; a limit without is refused here.
        self.formatter = self.kind(self.provider, media=media, max_tokens=max_tokens if token_counter is None else None)

    async def format(self, msgs: Messages) -> MessageList:
        """The messages as the provider takes them."""
        if self.token_counter is None or self.max_tokens is None:
            return cast("MessageList", _sent(await self.formatter.aformat(msgs), self.formatter))
        counter = _Waiting(self.token_counter, asyncio.get_running_loop())
        limited = self.kind(self.provider, media=self._media, token_counter=counter, max_tokens=self.max_tokens)
        return cast("MessageList", _sent(await asyncio.to_thread(limited.format, msgs), limited))


class CharTokenCounter:
    """Counts characters, as :class:`lazyprompt.tokens.CharTokenCounter` does, to be awaited."""

    async def count(self, messages: MessageList, tools: MessageList | None = None, **_: object) -> int:
        """The number of characters of messages and tools."""
        return _CharTokenCounter().count(messages, tools)


# fmt: off
class OpenAIChatWrapper(Wrapper[MessageList], provider="openai"): history_style = None
class DashScopeChatWrapper(Wrapper[MessageList], provider="dashscope"): ...
class DashScopeMultiModalWrapper(Wrapper[MessageList], provider="dashscope-multimodal"): ...
class OllamaChatWrapper(Wrapper[MessageList], provider="ollama"): ...
class OllamaGenerationWrapper(Wrapper[str], provider="ollama-generate"): ...
class GeminiChatWrapper(Wrapper[MessageList], provider="gemini"): ...
class ZhipuAIChatWrapper(Wrapper[MessageList], provider="zhipu"): ...
class LiteLLMChatWrapper(Wrapper[MessageList], provider="litellm"): ...

class OpenAIChatFormatter(Formatter, provider="openai", kind=ChatFormatter): ...
class OpenAIMultiAgentFormatter(Formatter, provider="openai", kind=MultiAgentFormatter): ...
class AnthropicChatFormatter(Formatter, provider="anthropic", kind=ChatFormatter): ...
class AnthropicMultiAgentFormatter(Formatter, provider="anthropic", kind=MultiAgentFormatter): ...
class DashScopeChatFormatter(Formatter, provider="dashscope", kind=ChatFormatter): ...
class DashScopeMultiAgentFormatter(Formatter, provider="dashscope", kind=MultiAgentFormatter): ...
class GeminiChatFormatter(Formatter, provider="gemini", kind=ChatFormatter): ...
class GeminiMultiAgentFormatter(Formatter, provider="gemini", kind=MultiAgentFormatter): ...
class OllamaChatFormatter(Formatter, provider="ollama", kind=ChatFormatter): ...
class OllamaMultiAgentFormatter(Formatter, provider="ollama", kind=MultiAgentFormatter): ...
class DeepSeekChatFormatter(Formatter, provider="deepseek", kind=ChatFormatter): ...
class DeepSeekMultiAgentFormatter(Formatter, provider="deepseek", kind=MultiAgentFormatter): ...
# fmt: on
OpenAIFormatter = OpenAIChatFormatter
