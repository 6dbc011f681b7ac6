"""Token counters by name, and one for a look: each text is counted once, however many views it is part of."""

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
    """Return the unit of a counter: ``tokens``, ``tokens (about)``, or ``characters``."""
    return _UNITS.get(type(counter), "tokens")


# For each counter, the argument after the colon (empty for none), its file and its class.
_COUNTERS: Final = {
    "approximate": ("", "tokens.approximate", "ApproximateTokenCounter"),
    "chars": ("", "tokens.counter", "CharTokenCounter"),
    "tiktoken": ("MODEL_OR_ENCODING", "tokens.openai", "TiktokenCounter"),
    "huggingface": ("PATH", "chat_templates.token_counter", "HuggingFaceTokenCounter"),
    "anthropic": ("MODEL", "formatters.counters", "AnthropicTokenCounter"),
    "gemini": ("MODEL", "formatters.counters", "GeminiTokenCounter"),
}


def counter_named(spec: str, bpe_file: str | None = None) -> TokenCounter:
    """Make the counter ``NAME[:ARGUMENT]``, as ``tiktoken:gpt-5``.

    Args:
        spec: Its name, with the argument.
        bpe_file: The vocabulary of tiktoken.

    Raises:
        TokenizerError: There is no such counter, or it cannot be made.
    """
    name, colon, argument = spec.partition(":")
    if name not in _COUNTERS:
        known = ", ".join(f"{each}:{behind[0]}" if behind[0] else each for each, behind in _COUNTERS.items())
        raise TokenizerError(f"{name!r} is no counter{did_you_mean(name, _COUNTERS)}; known are {known}")
    needed, file, kind = _COUNTERS[name]
    if needed and not argument:
        raise TokenizerError(f"{name} needs to know of what; give {name}:{needed}")
    if colon and not needed:
        raise TokenizerError(f"{name} takes nothing behind a colon; give {name}")
    given = [argument, bpe_file] if name == "tiktoken" else [argument] if needed else []
    counter: TokenCounter = getattr(import_module(f"lazyprompt.{file}"), kind)(*given)
    return _RemoteCounter(counter) if name in ("anthropic", "gemini") else counter


class _RemoteCounter:
    """A counter that asks a provider; its client's errors become this package's."""

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
        except Exception as error:  # the clients' errors have nothing in common: no key, no network, a refusal
            raise TokenizerError(f"the provider's client: {type(error).__name__}: {error}") from error


class CountedOnce:
    """A counter that remembers the texts it has counted: to be thrown away with the look that it was made for.

    Args:
        counter: What counts them.
    """

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self.count_text = cache(counter.count_text)
        # None says as little as a counter that has no such attribute.
        self.additive: bool | None = getattr(counter, "additive", None)

    def count(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None) -> int:
        """The tokens of messages, and of tools."""
        return self._counter.count(messages, tools) if tools else self._counter.count(messages)
