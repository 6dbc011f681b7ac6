"""Creates token counters by name, and caches token counts while a prompt is inspected."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final

from lazyprompt.errors import LazyPromptError, TokenizerError, did_you_mean
from lazyprompt.tokens.approximate import ApproximateTokenCounter
from lazyprompt.tokens.counter import CharTokenCounter, TokenCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


_UNITS: Final[Mapping[type, str]] = {ApproximateTokenCounter: "tokens (about)", CharTokenCounter: "characters"}


def unit_of(counter: TokenCounter) -> str:
    """Return a counter's unit, which is ``tokens``, ``tokens (about)`` or ``characters``."""
    return _UNITS.get(type(counter), "tokens")


# Maps each counter's name to its argument (empty if the counter accepts none), its module and its class.
_COUNTERS: Final = {
    "approximate": ("", "tokens.approximate", "ApproximateTokenCounter"),
    "chars": ("", "tokens.counter", "CharTokenCounter"),
    "tiktoken": ("MODEL_OR_ENCODING", "tokens.openai", "TiktokenCounter"),
    "huggingface": ("PATH", "chat_templates.token_counter", "HuggingFaceTokenCounter"),
    "anthropic": ("MODEL", "formatters.counters", "AnthropicTokenCounter"),
    "gemini": ("MODEL", "formatters.counters", "GeminiTokenCounter"),
}


def counter_named(spec: str, bpe_file: str | None = None) -> TokenCounter:
    """Create a token counter from ``NAME[:ARGUMENT]``, such as ``tiktoken:gpt-5``.

    Args:
        spec: The counter's name, with its argument if required.
        bpe_file: The path of a vocabulary file for tiktoken.

    Raises:
        TokenizerError: The counter is unknown or can't be created.
    """
    name, colon, argument = spec.partition(":")
    if name not in _COUNTERS:
        known = ", ".join(f"{each}:{behind[0]}" if behind[0] else each for each, behind in _COUNTERS.items())
        raise TokenizerError(f"unknown token counter {name!r}{did_you_mean(name, _COUNTERS)}; expected one of {known}")
    needed, file, kind = _COUNTERS[name]
    if needed and not argument:
        raise TokenizerError(f"{name} requires an argument; use {name}:{needed}")
    if colon and not needed:
        raise TokenizerError(f"{name} accepts no argument; write only {name}")
    given = [argument, bpe_file] if name == "tiktoken" else [argument] if needed else []
    counter: TokenCounter = getattr(import_module(f"lazyprompt.{file}"), kind)(*given)
    return _RemoteCounter(counter) if name in ("anthropic", "gemini") else counter


class _RemoteCounter:
    """A counter that calls a provider's API and converts the client's errors to :class:`TokenizerError`."""

    additive: ClassVar[bool] = False

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter

    def count(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None) -> int:
        return self._ask(lambda: self._counter.count(messages, tools))

    def count_text(self, text: str) -> int:
        return self._ask(lambda: self._counter.count_text(text))

    @staticmethod
    def _ask(count: Callable[[], int]) -> int:
        try:
            return count()
        except LazyPromptError:
            raise
        except Exception as error:  # client errors have no common base class
            raise TokenizerError(f"the provider's client failed: {type(error).__name__}: {error}") from error


class CountedOnce:
    """A counter that caches the token counts of texts without a size limit, for use in a single view.

    Args:
        counter: The counter.
    """

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self.count_text = cache(counter.count_text)
        self.additive: bool | None = getattr(counter, "additive", None)

    def count(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None) -> int:
        """Count the tokens in messages and tools."""
        return self._counter.count(messages, tools) if tools else self._counter.count(messages)
