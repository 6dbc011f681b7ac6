"""Token counters by name: the value of ``--counter``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import lazyprompt
from lazyprompt.cli.errors import WrongUseError, blaming
from lazyprompt.errors import LazyPromptError, TokenizerError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lazyprompt.tokens.counter import TokenCounter

# For each counter, the argument after the colon (empty for none) and the public class.
_COUNTERS = {
    "approximate": ("", "ApproximateTokenCounter"),
    "chars": ("", "CharTokenCounter"),
    "tiktoken": ("MODEL_OR_ENCODING", "TiktokenCounter"),
    "huggingface": ("PATH", "HuggingFaceTokenCounter"),
    "anthropic": ("MODEL", "AnthropicTokenCounter"),
    "gemini": ("MODEL", "GeminiTokenCounter"),
}


def token_counter(spec: str, bpe_file: str | None = None) -> TokenCounter:
    """Make the counter of an option ``NAME[:ARGUMENT]``.

    Args:
        spec: The option's text.
        bpe_file: The vocabulary of tiktoken.

    Raises:
        WrongUseError: There is no such counter, or it cannot be made.
    """
    name, colon, argument = spec.partition(":")
    if name not in _COUNTERS:
        known = ", ".join(f"{each}:{behind[0]}" if behind[0] else each for each, behind in _COUNTERS.items())
        raise WrongUseError("--counter", f"{name!r} is no counter{did_you_mean(name, _COUNTERS)}; known are {known}")
    needed, kind = _COUNTERS[name]
    if needed and not argument:
        raise WrongUseError("--counter", f"{name} needs to know of what; give {name}:{needed}")
    if colon and not needed:
        raise WrongUseError("--counter", f"{name} takes nothing behind a colon; give {name}")
    if bpe_file is not None and name != "tiktoken":
        raise WrongUseError("--bpe-file", "only tiktoken reads it; give --counter tiktoken:MODEL_OR_ENCODING with it")
    given = [argument, bpe_file] if name == "tiktoken" else [argument] if needed else []
    with blaming("--counter" if bpe_file is None else "--bpe-file"):
        counter: TokenCounter = getattr(lazyprompt, kind)(*given)
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
