"""AgentScope's API as of versions 0.1 and 1.x, for programs that want to change only their imports.

As in AgentScope, wrappers and formatters return messages without a report. To get the payload with its report, call
``format`` on the ``formatter`` attribute.
"""
# ruff: noqa: D101, E701 - the classes differ only in their names and are laid out as a table

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, TypeAlias, TypeVar

from lazyprompt._base.json import is_list, is_sequence
from lazyprompt.budget.budget import Budget
from lazyprompt.chat_templates.token_counter import HuggingFaceTokenCounter as TemplateTokenCounter
from lazyprompt.compat.agentscope_messages import (
    AgentScopeAudioBlock as AudioBlock,
)
from lazyprompt.compat.agentscope_messages import (
    AgentScopeBase64Source as Base64Source,
)
from lazyprompt.compat.agentscope_messages import (
    AgentScopeImageBlock as ImageBlock,
)
from lazyprompt.compat.agentscope_messages import (
    AgentScopeMsg as Msg,
)
from lazyprompt.compat.agentscope_messages import (
    AgentScopeTextBlock as TextBlock,
)
from lazyprompt.compat.agentscope_messages import (
    AgentScopeThinkingBlock as ThinkingBlock,
)
from lazyprompt.compat.agentscope_messages import (
    AgentScopeToolResultBlock as ToolResultBlock,
)
from lazyprompt.compat.agentscope_messages import (
    AgentScopeToolUseBlock as ToolUseBlock,
)
from lazyprompt.compat.agentscope_messages import (
    AgentScopeURLSource as URLSource,
)
from lazyprompt.compat.agentscope_messages import (
    AgentScopeVideoBlock as VideoBlock,
)
from lazyprompt.compat.agentscope_messages import (
    ContentBlock,
)
from lazyprompt.compat.prompt_engine import PromptEngine
from lazyprompt.errors import BudgetError, FormatError, did_you_mean, import_extra
from lazyprompt.formatters import counters
from lazyprompt.formatters._merge import TAGS_HEADING
from lazyprompt.formatters.formatter import ChatFormatter, MultiAgentFormatter
from lazyprompt.messages import msg as messages
from lazyprompt.tokens import counter as chars
from lazyprompt.tokens.openai import TiktokenCounter

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence

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
    "MessageList", "MoonshotChatFormatter", "MoonshotMultiAgentFormatter", "Msg", "OllamaChatFormatter",
    "OllamaChatWrapper", "OllamaGenerationWrapper", "OllamaMultiAgentFormatter", "OpenAIChatFormatter",
    "OpenAIChatWrapper", "OpenAIFormatter", "OpenAIMultiAgentFormatter", "OpenAIResponseChatFormatter",
    "OpenAIResponseFormatter", "OpenAIResponseMultiAgentFormatter", "OpenAITokenCounter", "PromptEngine", "TextBlock",
    "ThinkingBlock", "TokenCounterBase", "ToolResultBlock", "ToolUseBlock", "TruncatedFormatterBase", "URLSource",
    "VideoBlock", "Wrapper", "XAIChatFormatter", "XAIMultiAgentFormatter", "ZhipuAIChatWrapper",
]
# fmt: on

MessageList: TypeAlias = list[dict[str, Any]]
GivenMessages: TypeAlias = "Msg | Messages | Sequence[Msg | messages.Msg | Mapping[str, object] | None]"
MessageGroup: TypeAlias = Literal["tool_sequence", "agent_message"]
MediaList: TypeAlias = list[tuple[str, ContentBlock]]
_Sent = TypeVar("_Sent", str, MessageList)
# Maps each formatter argument to a block type. If the argument is true, tool results contain blocks of this type as
# media instead of a URL in the text.
_PROMOTED: dict[str, type[Block]] = {
    "promote_tool_result_images": messages.ImageBlock,
    "promote_tool_result_audios": messages.AudioBlock,
    "promote_tool_result_videos": messages.VideoBlock,
}


def _sent_messages(payload: Payload, formatter: ChatFormatter) -> Any:  # noqa: ANN401 - a string from one wrapper, a list from others
    """Return the messages in a payload, with separate system text as the first message."""
    sent = payload[formatter.profile.form.messages_key]
    if "system" in payload:
        return [{"role": "system", "content": payload["system"]}, *sent]
    if "system_instruction" in payload:
        return [{"role": "user", "parts": [{"text": payload["system_instruction"]}]}, *sent]
    return sent


def _as_messages(given: Any) -> Any:  # noqa: ANN401 - messages, and lists of them within lists
    """Convert AgentScope messages, which may be in nested lists, to lazyprompt's ``Msg``."""
    if isinstance(given, Msg):
        return given.to_message()
    return [_as_messages(each) for each in given] if is_list(given) else given


def _with_addresses(given: Any, kinds: tuple[type[Block], ...]) -> Any:  # noqa: ANN401 - as above
    """Replace media of the given kinds in the messages' tool results with texts that contain their URLs."""
    if is_list(given):
        return [_with_addresses(each, kinds) for each in given]
    if not kinds or not isinstance(given, messages.Msg) or isinstance(given.content, str):
        return given
    content = [
        _name_media(block, kinds) if isinstance(block, messages.ToolResultBlock) else block for block in given.content
    ]
    return given.evolve(content=content)


def _name_media(result: messages.ToolResultBlock, kinds: tuple[type[Block], ...]) -> messages.ToolResultBlock:
    """Replace media blocks of the given kinds in a tool result with texts that contain their URLs."""
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
    """A model wrapper with AgentScope 0.x's interface; it only supports ``format`` and sends no requests.

    Args:
        config_name: The name of the model configuration; the name is stored but has no effect.
        model_name: The model.
        api_key: The API key, which is ignored.
        media: The loader for local files that messages refer to.
        anything: Any further arguments of AgentScope's wrapper classes; they are ignored.
    """

    provider: ClassVar[str]
    history_style: ClassVar[HistoryStyle | None] = "conversation"

    def __init_subclass__(cls, provider: str = "") -> None:
        cls.provider = provider or cls.provider
        cls.__doc__ = cls.__doc__ or f"AgentScope's {cls.__name__}: ``format`` for the provider ``{cls.provider}``."

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
        """Format messages or nested lists of messages for the provider, skipping ``None``."""
        sent: _Sent = _sent_messages(self.formatter.format(*map(_as_messages, msgs)), self.formatter)
        return sent


class TokenCounterBase(ABC):
    """AgentScope's base class for custom token counters; subclasses override ``count``."""

    @abstractmethod
    async def count(self, messages: MessageList, tools: MessageList | None = None, **_: object) -> int:
        """Return the number of tokens in messages and tools."""


class _Own(TokenCounterBase):
    """An adapter for lazyprompt's token counters that implements AgentScope's counter interface."""

    def __init__(self, counter: CountsMessages) -> None:
        self._counter = counter

    async def count(self, messages: MessageList, tools: MessageList | None = None, **_: object) -> int:
        """Return the number of tokens; count in a thread, because some counters call a provider."""
        return await asyncio.to_thread(self._counter.count, messages, tools)


class AgentScopeCharTokenCounter(_Own):
    """AgentScope's CharTokenCounter, which counts each character as a token."""

    def __init__(self) -> None:
        super().__init__(chars.CharTokenCounter())


class OpenAITokenCounter(_Own):
    """AgentScope's OpenAITokenCounter, based on :class:`lazyprompt.TiktokenCounter`.

    Args:
        model_name: The model.
        options: The keyword arguments for :class:`lazyprompt.TiktokenCounter`, such as ``bpe_file``.

    Raises:
        TokenizerError: The vocabulary is not available locally; it is never downloaded.
    """

    def __init__(self, model_name: str, **options: Any) -> None:
        self.model_name = model_name
        super().__init__(TiktokenCounter(model_name, **options))


class AgentScopeAnthropicTokenCounter(_Own):
    """AgentScope's AnthropicTokenCounter, based on :class:`lazyprompt.AnthropicTokenCounter`.

    Args:
        model_name: The model.
        api_key: The API key; None to read it from the environment.
        client_args: Additional keyword arguments for ``anthropic.Anthropic``.

    Raises:
        MissingExtraError: The client is not installed.
    """

    def __init__(self, model_name: str, api_key: str | None = None, **client_args: Any) -> None:
        self.model_name = model_name
        client = import_extra("anthropic", "anthropic").Anthropic(api_key=api_key, **client_args)
        super().__init__(counters.AnthropicTokenCounter(model_name, client))


class AgentScopeGeminiTokenCounter(_Own):
    """AgentScope's GeminiTokenCounter, based on :class:`lazyprompt.GeminiTokenCounter`.

    Args:
        model_name: The model.
        api_key: The API key; None to read it from the environment.
        client_args: Additional keyword arguments for ``google.genai.Client``.

    Raises:
        MissingExtraError: The client is not installed.
    """

    def __init__(self, model_name: str, api_key: str | None = None, **client_args: Any) -> None:
        self.model_name = model_name
        client = import_extra("google.genai", "google-genai").Client(api_key=api_key, **client_args)
        super().__init__(counters.GeminiTokenCounter(model_name, client))


class AgentScopeHuggingFaceTokenCounter(_Own):
    """AgentScope's HuggingFaceTokenCounter, based on :class:`lazyprompt.HuggingFaceTokenCounter`.

    Args:
        pretrained_model_name_or_path: The path of the model directory or of its ``tokenizer.json``.
        anything: AgentScope's download arguments, which have no effect because nothing is downloaded.

    Raises:
        TokenizerError: The path contains no tokenizer.
    """

    def __init__(self, pretrained_model_name_or_path: str, **anything: object) -> None:  # noqa: ARG002 - see the docstring
        super().__init__(TemplateTokenCounter(pretrained_model_name_or_path))


# AgentScope's names for the token counters in this module.
CharTokenCounter = AgentScopeCharTokenCounter
AnthropicTokenCounter = AgentScopeAnthropicTokenCounter
GeminiTokenCounter = AgentScopeGeminiTokenCounter
HuggingFaceTokenCounter = AgentScopeHuggingFaceTokenCounter


class Counter(Protocol):
    """A token counter, which may be asynchronous like AgentScope's counters."""

    def count(self, messages: MessageList, /) -> int | Coroutine[Any, Any, int]:
        """Return the number of tokens in messages."""
        ...


class _CounterInThread:
    """A synchronous token counter for worker threads, which runs an asynchronous counter on the event loop."""

    def __init__(self, count: Callable[[MessageList], Coroutine[Any, Any, int]], loop: AbstractEventLoop) -> None:
        self._count, self._loop = count, loop

    def count(self, messages: Sequence[Mapping[str, Any]], tools: object = None) -> int:  # noqa: ARG002 - see the docstring
        """Return the number of tokens in messages; ignore tools, because AgentScope's formatters don't accept any."""
        return asyncio.run_coroutine_threadsafe(self._count([*map(dict, messages)]), self._loop).result()

    def count_text(self, text: str) -> int:
        """Count a text as a user message, because AgentScope's counters only count messages."""
        return self.count([{"role": "user", "content": text}])


class FormatterBase(ABC):
    """AgentScope's base class for custom formatters; subclasses override ``format``."""

    @abstractmethod
    async def format(self, *args: Any, **kwargs: Any) -> MessageList:
        """Format messages for the provider."""

    @staticmethod
    def assert_list_of_msgs(msgs: object) -> None:
        """Check that an argument is a list of messages.

        Raises:
            TypeError: The argument is not a list, or one of its items is not a message.
        """
        if not is_list(msgs):
            raise TypeError(f"msgs must be a list of Msg, not {type(msgs).__name__}")
        for index, msg in enumerate(msgs):
            if not isinstance(msg, Msg | messages.Msg):
                raise TypeError(f"msgs must be a list of Msg, but msgs[{index}] has type {type(msg).__name__}")

    @staticmethod
    def convert_tool_result_to_string(output: str | Sequence[Mapping[str, Any]] | None) -> tuple[str, MediaList]:
        """Return the text of a tool's output, and a list of the media in the output.

        The returned text contains the URL of each media block. For base64 data, AgentScope saves a temporary file,
        whereas lazyprompt only names the media type in the text.

        Args:
            output: The tool's output, as text or as a list of text and media blocks.

        Returns:
            The text of the output, and a list of ``(URL, media block)`` pairs, one for each media block. For base64
            data, the URL is replaced by a description, such as ``(base64 data of type image/png)``.
        """
        if output is None or isinstance(output, str):
            return output or "", []
        texts: list[str] = []
        media: MediaList = []
        for block in output:
            if block["type"] == "text":
                texts.append(block["text"])
                continue
            source = block["source"]
            where = source["url"] if source["type"] == "url" else f"(base64 data of type {source['media_type']})"
            texts.append(f"The returned {block['type']} can be found at: {where}")
            media.append((where, block))
        return texts[0] if len(texts) == 1 else "\n".join(f"- {text}" for text in texts), media


class TruncatedFormatterBase(FormatterBase):
    """AgentScope 1's base class for custom formatters with a token limit.

    Override either ``_format``, or both ``_format_tool_sequence`` (for messages with tool calls or results) and
    ``_format_agent_message`` (for all other messages). Override ``_truncate`` to customize trimming, and ``_count`` to
    customize counting.

    Args:
        token_counter: The token counter, which may be asynchronous.
        max_tokens: The token limit for the formatted messages.
    """

    def __init__(self, token_counter: Counter | None = None, max_tokens: int | None = None) -> None:
        self.token_counter, self.max_tokens = token_counter, max_tokens

    async def format(self, msgs: GivenMessages, **_: object) -> MessageList:
        """Format messages for the provider, dropping the oldest messages until the result fits the token limit.

        Raises:
            BudgetError: The messages that are always kept exceed the token limit.
        """
        kept: list[Any] = [*msgs] if is_sequence(msgs) else [msgs]
        while True:
            formatted = await self._format(kept)
            tokens = None if self.max_tokens is None else await self._count(formatted)
            if self.max_tokens is None or tokens is None or tokens <= self.max_tokens:
                return formatted
            before, kept = len(kept), await self._truncate(kept)
            if len(kept) >= before:
                raise BudgetError(f"_truncate dropped no messages, although {tokens} tokens exceed {self.max_tokens}")

    async def _format(self, msgs: list[Msg]) -> MessageList:
        """Split the messages into runs with and without tool calls or results, and format each run separately."""
        has_system = bool(msgs) and msgs[0].role == "system"
        formatted = [await self._format_system_message(msgs[0])] if has_system else []
        is_first = True
        async for kind, group in self._group_messages(msgs[has_system:]):
            if kind == "tool_sequence":
                formatted += await self._format_tool_sequence(group)
            else:
                formatted += await self._format_agent_message(group, is_first)
                is_first = False
        return formatted

    async def _format_system_message(self, msg: Msg) -> dict[str, Any]:
        """Format a leading system message."""
        return {"role": "system", "content": msg.get_content_blocks("text")}

    async def _format_tool_sequence(self, msgs: list[Msg]) -> MessageList:
        """Format consecutive messages with tool calls or results."""
        raise NotImplementedError(f"{type(self).__name__} can't format tool calls; override _format_tool_sequence")

    async def _format_agent_message(self, msgs: list[Msg], is_first: bool = True) -> MessageList:  # noqa: FBT001, FBT002 - AgentScope's signature
        """Format consecutive messages that contain no tool calls or results; ``is_first`` marks the first group."""
        raise NotImplementedError(f"{type(self).__name__} can't format messages; override _format_agent_message")

    async def _count(self, msgs: MessageList) -> int | None:
        """Return the number of tokens in formatted messages, or None if there is no counter."""
        if self.token_counter is None:
            return None
        # Count in a thread, because a synchronous counter would block the event loop.
        counted = await asyncio.to_thread(self.token_counter.count, msgs)
        return await counted if asyncio.iscoroutine(counted) else counted

    async def _truncate(self, msgs: list[Msg]) -> list[Msg]:
        """Return the system text, the newest user turn, and as many of the other messages as fit, newest first.

        Raises:
            BudgetError: The system text and the newest user turn alone exceed the token limit.
        """
        loop = asyncio.get_running_loop()

        async def count(formatted: MessageList) -> int:
            return await self._count(formatted) or 0

        async def count_kept(kept: Sequence[int]) -> int:
            return await count(await self._format([msgs[at] for at in kept]))

        def cost(kept: Sequence[int], _: object) -> int:
            return asyncio.run_coroutine_threadsafe(count_kept(kept), loop).result()

        # Like AgentScope, drop as few messages as possible.
        budget = Budget(self.max_tokens, _CounterInThread(count, loop), low_water=1)
        fitted = await asyncio.to_thread(budget.fitted, [*map(_as_messages, msgs)], cost)
        return [msgs[at] for at in fitted.kept]

    @staticmethod
    async def _group_messages(msgs: list[Msg]) -> AsyncIterator[tuple[MessageGroup, list[Msg]]]:
        """Split messages into runs in which either every message or no message contains tool calls or results."""
        for has_tools, group in groupby(msgs, lambda msg: msg.has_content_blocks(("tool_use", "tool_result"))):
            yield "tool_sequence" if has_tools else "agent_message", [*group]


class ChatFormatterBase(TruncatedFormatterBase):
    """Base class for AgentScope's formatters for conversations between a user and an assistant.

    Args:
        token_counter: The token counter, which may be asynchronous.
        max_tokens: The token limit; the oldest messages are dropped first.
        media: The loader for local files that messages refer to.
        promote: The flags ``promote_tool_result_images``, ``…_audios`` and ``…_videos``. If a flag is True, which is
            the default, media of this kind in tool results are sent as content. If it is False, which is AgentScope's
            default, only their URLs are sent, as text.

    Raises:
        FormatError: ``max_tokens`` is set without a ``token_counter``, or an argument is unknown.
    """

    provider: ClassVar[str] = ""
    kind: ClassVar[type[ChatFormatter]] = ChatFormatter

    def __init_subclass__(cls, provider: str = "") -> None:
        cls.provider = provider or cls.provider
        cls.__doc__ = cls.__doc__ or f"AgentScope's {cls.__name__}: the {cls.kind.__name__} of ``{cls.provider}``."
        for name in ("_format_system_message", "_format_tool_sequence", "_format_agent_message"):
            if name in vars(cls):
                raise FormatError(
                    f"{cls.__name__}.{name} would never be called, because a provider's formatter formats the whole "
                    "conversation at once; override _format, or derive the class from TruncatedFormatterBase"
                )

    def __init__(
        self,
        token_counter: Counter | None = None,
        max_tokens: int | None = None,
        *,
        media: MediaResolver | None = None,
        **promote: bool,
    ) -> None:
        if unknown := promote.keys() - _PROMOTED.keys():
            raise FormatError(
                f"{type(self).__name__} has no argument {min(unknown)!r}{did_you_mean(min(unknown), _PROMOTED)}"
            )
        if max_tokens is not None and token_counter is None:
            raise FormatError("max_tokens requires a counter; pass token_counter")
        super().__init__(token_counter, max_tokens)
        self._as_text = tuple(kind for name, kind in _PROMOTED.items() if not promote.get(name, True))
        self.formatter = self.kind(self.provider, media=media)

    async def _format(self, msgs: list[Msg]) -> MessageList:
        """Format all messages in a single call to lazyprompt's formatter."""
        if not msgs:
            return []
        given = _with_addresses(_as_messages(msgs), self._as_text)
        sent: MessageList = _sent_messages(await self.formatter.aformat(given), self.formatter)
        return sent


class MultiAgentFormatterBase(ChatFormatterBase):
    """Base class for AgentScope's formatters for conversations with several speakers.

    Args:
        token_counter: The token counter, which may be asynchronous.
        max_tokens: The token limit; the oldest messages are dropped first.
        conversation_history_prompt: The heading before the first conversation history.
        media: The loader for local files that messages refer to.
        promote: The flags for media in tool results, as in :class:`ChatFormatterBase`.
    """

    kind = MultiAgentFormatter

    def __init__(
        self,
        token_counter: Counter | None = None,
        max_tokens: int | None = None,
        *,
        conversation_history_prompt: str = TAGS_HEADING,
        media: MediaResolver | None = None,
        **promote: bool,
    ) -> None:
        super().__init__(token_counter, max_tokens, media=media, **promote)
        self.conversation_history_prompt = conversation_history_prompt
        self.formatter = MultiAgentFormatter(self.provider, heading=conversation_history_prompt, media=media)


# fmt: off
class OpenAIChatWrapper(Wrapper[MessageList], provider="openai"): history_style = None
class DashScopeChatWrapper(Wrapper[MessageList], provider="dashscope"): ...
class DashScopeMultiModalWrapper(Wrapper[MessageList], provider="dashscope-multimodal"): ...
class OllamaChatWrapper(Wrapper[MessageList], provider="ollama"): ...
class OllamaGenerationWrapper(Wrapper[str], provider="ollama-generate"): ...
class GeminiChatWrapper(Wrapper[MessageList], provider="gemini"): ...
class ZhipuAIChatWrapper(Wrapper[MessageList], provider="zhipu"): ...
class LiteLLMChatWrapper(Wrapper[MessageList], provider="litellm"): ...

class OpenAIChatFormatter(ChatFormatterBase, provider="openai"): ...
class OpenAIMultiAgentFormatter(MultiAgentFormatterBase, provider="openai"): ...
class AnthropicChatFormatter(ChatFormatterBase, provider="anthropic"): ...
class AnthropicMultiAgentFormatter(MultiAgentFormatterBase, provider="anthropic"): ...
class DashScopeChatFormatter(ChatFormatterBase, provider="dashscope"): ...
class DashScopeMultiAgentFormatter(MultiAgentFormatterBase, provider="dashscope"): ...
class GeminiChatFormatter(ChatFormatterBase, provider="gemini"): ...
class GeminiMultiAgentFormatter(MultiAgentFormatterBase, provider="gemini"): ...
class OllamaChatFormatter(ChatFormatterBase, provider="ollama"): ...
class OllamaMultiAgentFormatter(MultiAgentFormatterBase, provider="ollama"): ...
class DeepSeekChatFormatter(ChatFormatterBase, provider="deepseek"): ...
class DeepSeekMultiAgentFormatter(MultiAgentFormatterBase, provider="deepseek"): ...
class OpenAIResponseChatFormatter(ChatFormatterBase, provider="openai-responses"): ...
class OpenAIResponseMultiAgentFormatter(MultiAgentFormatterBase, provider="openai-responses"): ...
class MoonshotChatFormatter(ChatFormatterBase, provider="moonshot"): ...
class MoonshotMultiAgentFormatter(MultiAgentFormatterBase, provider="moonshot"): ...
class XAIChatFormatter(ChatFormatterBase, provider="xai"): ...
class XAIMultiAgentFormatter(MultiAgentFormatterBase, provider="xai"): ...
# fmt: on
OpenAIFormatter = OpenAIChatFormatter
OpenAIResponseFormatter = OpenAIResponseChatFormatter
