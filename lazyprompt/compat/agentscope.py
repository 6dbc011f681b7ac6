"""AgentScope's names, of its versions 0.1 and 1.x, over this package: change the imports, and a program runs on.

What AgentScope returns is the messages alone. The account of what could not be carried over is in the payload of
``.formatter.format(...)``, which each wrapper and formatter has.
"""
# ruff: noqa: D101, E701 - the classes that differ in a name only are a table below

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar, cast

from lazyprompt.chat_templates.token_counter import HuggingFaceTokenCounter as TemplateTokenCounter
from lazyprompt.compat.agentscope_messages import (
    AudioBlock,
    Base64Source,
    ContentBlock,
    ImageBlock,
    Msg,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    URLSource,
    VideoBlock,
)
from lazyprompt.compat.prompt_engine import PromptEngine
from lazyprompt.errors import FormatError, did_you_mean, import_extra
from lazyprompt.formatters import counters
from lazyprompt.formatters.formatter import ChatFormatter, MultiAgentFormatter
from lazyprompt.messages import msg as messages
from lazyprompt.tokens import counter as chars
from lazyprompt.tokens.openai import TiktokenCounter

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

    from lazyprompt.formatters._job import Messages
    from lazyprompt.formatters.profile import HistoryStyle
    from lazyprompt.formatters.report import Payload
    from lazyprompt.media.resolver import MediaResolver
    from lazyprompt.messages.msg import Block
    from lazyprompt.tokens.counter import CountsMessages

# fmt: off
__all__ = [
    "AnthropicChatFormatter", "AnthropicMultiAgentFormatter", "AnthropicTokenCounter", "AudioBlock", "Base64Source",
    "CharTokenCounter", "ContentBlock", "Counter", "DashScopeChatFormatter", "DashScopeChatWrapper",
    "DashScopeMultiAgentFormatter", "DashScopeMultiModalWrapper", "DeepSeekChatFormatter",
    "DeepSeekMultiAgentFormatter", "FormatterBase", "GeminiChatFormatter", "GeminiChatWrapper",
    "GeminiMultiAgentFormatter", "GeminiTokenCounter", "HuggingFaceTokenCounter", "ImageBlock", "LiteLLMChatWrapper",
    "MessageList", "Msg", "OllamaChatFormatter", "OllamaChatWrapper", "OllamaGenerationWrapper",
    "OllamaMultiAgentFormatter", "OpenAIChatFormatter", "OpenAIChatWrapper", "OpenAIFormatter",
    "OpenAIMultiAgentFormatter", "OpenAIResponseChatFormatter", "OpenAIResponseMultiAgentFormatter",
    "OpenAITokenCounter", "PromptEngine", "TextBlock", "ThinkingBlock", "TokenCounterBase", "ToolResultBlock",
    "ToolUseBlock", "TruncatedFormatterBase", "URLSource", "VideoBlock", "Wrapper", "ZhipuAIChatWrapper",
]
# fmt: on

MessageList: TypeAlias = list[dict[str, Any]]
GivenMessages: TypeAlias = "Msg | Messages | Sequence[Msg | messages.Msg | Mapping[str, object] | None]"
MediaList: TypeAlias = list[tuple[str, ContentBlock]]
_Sent = TypeVar("_Sent", str, MessageList)
# The arguments that say of which media in tool results the model is shown more than the address.
_PROMOTED: dict[str, type[Block]] = {
    "promote_tool_result_images": messages.ImageBlock,
    "promote_tool_result_audios": messages.AudioBlock,
    "promote_tool_result_videos": messages.VideoBlock,
}


def _sent(payload: Payload, formatter: ChatFormatter) -> Any:  # noqa: ANN401 - a string from one wrapper, a list from others
    """The messages of a payload, system text that stands apart put first."""
    sent = payload[formatter.profile.form.messages_key]
    if "system" in payload:
        return [{"role": "system", "content": payload["system"]}, *sent]
    if "system_instruction" in payload:
        return [{"role": "user", "parts": [{"text": payload["system_instruction"]}]}, *sent]
    return sent


def _read(given: Any) -> Any:  # noqa: ANN401 - messages, and lists of them within lists
    """Return messages as lazyprompt has them."""
    if isinstance(given, Msg):
        return given.to_message()
    return [_read(each) for each in cast("list[object]", given)] if isinstance(given, list) else given


def _with_addresses(given: Any, kinds: tuple[type[Block], ...]) -> Any:  # noqa: ANN401 - as above
    """Return messages in whose tool results blocks of some kinds are the text of their addresses."""
    if isinstance(given, list):
        return [_with_addresses(each, kinds) for each in cast("list[object]", given)]
    if not kinds or not isinstance(given, messages.Msg) or isinstance(given.content, str):
        return given
    content = [
        _named(block, kinds) if isinstance(block, messages.ToolResultBlock) else block for block in given.content
    ]
    return given.evolve(content=content)


def _named(result: messages.ToolResultBlock, kinds: tuple[type[Block], ...]) -> messages.ToolResultBlock:
    """Return a tool result with the addresses of some kinds of blocks in their place."""
    if isinstance(result.output, str):
        return result
    output = [
        messages.TextBlock(f"The returned {block.kind} can be found at: {source.url}")
        if isinstance(block, kinds) and isinstance(source := getattr(block, "source", None), messages.URLSource)
        else block
        for block in result.output
    ]
    return replace(result, output=tuple(output))


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

    def format(self, *msgs: GivenMessages) -> _Sent:
        """Format messages and lists of messages; ``None`` is passed over."""
        return cast("_Sent", _sent(self.formatter.format(*map(_read, msgs)), self.formatter))


class TokenCounterBase(ABC):
    """AgentScope's base of all token counters, for counters of your own: override ``count``, which is awaited."""

    @abstractmethod
    async def count(self, messages: MessageList, tools: MessageList | None = None, **_: object) -> int:
        """Return the tokens of messages and tools."""


class _Own(TokenCounterBase):
    """A counter of the package under AgentScope's name.

    Args:
        counter: The counter that counts.
    """

    def __init__(self, counter: CountsMessages) -> None:
        self._counter = counter

    async def count(self, messages: MessageList, tools: MessageList | None = None, **_: object) -> int:
        """Return the tokens of messages and tools, counted in a thread: some counters ask a provider."""
        return await asyncio.to_thread(self._counter.count, messages, tools)


class CharTokenCounter(_Own):
    """AgentScope's CharTokenCounter: the number of characters."""

    def __init__(self) -> None:
        super().__init__(chars.CharTokenCounter())


class OpenAITokenCounter(_Own):
    """AgentScope's OpenAITokenCounter, as :class:`lazyprompt.TiktokenCounter` counts.

    Args:
        model_name: The model.
        options: Arguments of :class:`lazyprompt.TiktokenCounter`, as ``bpe_file``: nothing is downloaded here.

    Raises:
        TokenizerError: The vocabulary is not on this machine.
    """

    def __init__(self, model_name: str, **options: Any) -> None:
        self.model_name = model_name
        super().__init__(TiktokenCounter(model_name, **options))


class AnthropicTokenCounter(_Own):
    """AgentScope's AnthropicTokenCounter, as :class:`lazyprompt.AnthropicTokenCounter` counts.

    Args:
        model_name: The model.
        api_key: The key; without one, the client takes that of the environment.
        client_args: Further arguments of ``anthropic.Anthropic``.

    Raises:
        MissingExtraError: The client is not installed.
    """

    def __init__(self, model_name: str, api_key: str | None = None, **client_args: Any) -> None:
        self.model_name = model_name
        client = import_extra("anthropic", "anthropic").Anthropic(api_key=api_key, **client_args)
        super().__init__(counters.AnthropicTokenCounter(model_name, client))


class GeminiTokenCounter(_Own):
    """AgentScope's GeminiTokenCounter, as :class:`lazyprompt.GeminiTokenCounter` counts.

    Args:
        model_name: The model.
        api_key: The key; without one, the client takes that of the environment.
        client_args: Further arguments of ``google.genai.Client``.

    Raises:
        MissingExtraError: The client is not installed.
    """

    def __init__(self, model_name: str, api_key: str | None = None, **client_args: Any) -> None:
        self.model_name = model_name
        client = import_extra("google.genai", "google-genai").Client(api_key=api_key, **client_args)
        super().__init__(counters.GeminiTokenCounter(model_name, client))


class HuggingFaceTokenCounter(_Own):
    """AgentScope's HuggingFaceTokenCounter, as :class:`lazyprompt.HuggingFaceTokenCounter` counts: from local files.

    Args:
        pretrained_model_name_or_path: The directory of the model, or its ``tokenizer.json``; nothing is downloaded.
        anything: Other arguments of AgentScope's, which concern downloads; they have no effect.

    Raises:
        TokenizerError: There is no tokenizer at the path.
    """

    def __init__(self, pretrained_model_name_or_path: str, **anything: object) -> None:  # noqa: ARG002 - see the docstring
        super().__init__(TemplateTokenCounter(pretrained_model_name_or_path))


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


class FormatterBase(ABC):
    """AgentScope's base of all formatters, for formatters of your own: override ``format``."""

    @abstractmethod
    async def format(self, msgs: GivenMessages) -> MessageList:
        """Format messages as the provider takes them."""

    @staticmethod
    def assert_list_of_msgs(msgs: object) -> None:
        """Refuse what is no list of messages.

        Raises:
            TypeError: It is none.
        """
        if not isinstance(msgs, list):
            raise TypeError(f"the messages are a list of Msg, not a {type(msgs).__name__}")
        for index, msg in enumerate(cast("list[object]", msgs)):
            if not isinstance(msg, Msg | messages.Msg):
                raise TypeError(f"the messages are a list of Msg; number {index} is a {type(msg).__name__}")

    @staticmethod
    def convert_tool_result_to_string(output: str | Sequence[ContentBlock] | None) -> tuple[str, MediaList]:
        """Return a tool's output as text, and its media.

        An address stands in the text. What is given as base64 has none: AgentScope writes it to a temporary file and
        gives its path, this writes its type.

        Args:
            output: Text, or blocks of text and media.

        Returns:
            The text, and each picture, sound or video with its address.

        Raises:
            HistoryError: Something in it is no block.
        """
        if output is None or isinstance(output, str):
            return output or "", []
        texts: list[str] = []
        media: MediaList = []
        for block in output:
            fields = cast("Mapping[str, Any]", block)
            if fields["type"] == "text":
                texts.append(fields["text"])
                continue
            source = fields["source"]
            where = source["url"] if source["type"] == "url" else f"(base64 data of type {source['media_type']})"
            texts.append(f"The returned {fields['type']} can be found at: {where}")
            media.append((where, block))
        return texts[0] if len(texts) == 1 else "\n".join(f"- {text}" for text in texts), media


class TruncatedFormatterBase(FormatterBase):
    """A formatter of AgentScope 1.x.

    Args:
        token_counter: The counter of the messages' tokens, awaited or not.
        max_tokens: The most tokens; the oldest messages are dropped first.
        media: What may read the local files that messages name.
        promote: ``promote_tool_result_images``, ``…_audios`` and ``…_videos``: False writes the address of such a block
            in a tool's result as text, as AgentScope does by default. Here the model is shown them by default.

    Raises:
        FormatError: There is a limit and no counter, or no such argument.
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
        **promote: bool,
    ) -> None:
        if unknown := promote.keys() - _PROMOTED.keys():
            raise FormatError(f"{type(self).__name__} takes no {min(unknown)!r}{did_you_mean(min(unknown), _PROMOTED)}")
        self.token_counter, self.max_tokens, self._media = token_counter, max_tokens, media
        self._as_text = tuple(kind for name, kind in _PROMOTED.items() if not promote.get(name, True))
        # Only a counter makes a limit one; a limit without is refused here.
        self.formatter = self.kind(self.provider, media=media, max_tokens=max_tokens if token_counter is None else None)

    async def format(self, msgs: GivenMessages) -> MessageList:
        """Format messages as the provider takes them; none make an empty list."""
        if not msgs and not isinstance(msgs, str):
            return []
        given = _with_addresses(_read(msgs), self._as_text)
        if self.token_counter is None or self.max_tokens is None:
            return cast("MessageList", _sent(await self.formatter.aformat(given), self.formatter))
        counter = _Waiting(self.token_counter, asyncio.get_running_loop())
        limited = self.kind(self.provider, media=self._media, token_counter=counter, max_tokens=self.max_tokens)
        return cast("MessageList", _sent(await asyncio.to_thread(limited.format, given), limited))


Formatter = TruncatedFormatterBase


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
class OpenAIResponseChatFormatter(Formatter, provider="openai-responses", kind=ChatFormatter): ...
class OpenAIResponseMultiAgentFormatter(Formatter, provider="openai-responses", kind=MultiAgentFormatter): ...
# fmt: on
OpenAIFormatter = OpenAIChatFormatter
