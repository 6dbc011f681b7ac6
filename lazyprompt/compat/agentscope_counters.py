"""AgentScope's token counters: the package's own, to be awaited, with AgentScope's arguments."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeAlias

from lazyprompt.chat_templates.token_counter import HuggingFaceTokenCounter as TemplateTokenCounter
from lazyprompt.errors import missing_extra
from lazyprompt.formatters import counters
from lazyprompt.tokens import counter as chars
from lazyprompt.tokens.openai import TiktokenCounter

if TYPE_CHECKING:
    from lazyprompt.tokens.counter import CountsMessages

MessageList: TypeAlias = list[dict[str, Any]]


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
        try:
            from anthropic import Anthropic  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise missing_extra("anthropic", "anthropic") from error
        self.model_name = model_name
        super().__init__(counters.AnthropicTokenCounter(model_name, Anthropic(api_key=api_key, **client_args)))


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
        try:
            from google.genai import Client  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise missing_extra("google-genai", "google-genai") from error
        self.model_name = model_name
        super().__init__(counters.GeminiTokenCounter(model_name, Client(api_key=api_key, **client_args)))


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
