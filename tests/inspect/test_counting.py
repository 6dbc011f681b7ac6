"""Token counters by name, and caching of token counts."""

from typing import Any

import pytest

from lazyprompt import CharTokenCounter
from lazyprompt.errors import BudgetError, TokenizerError
from lazyprompt.formatters import counters
from lazyprompt.inspect.counting import CountedOnce, counter_named, unit_of
from support.inspect_views import CHARS


def test_token_counters_have_units() -> None:
    found = [unit_of(counter_named(name)) for name in ("chars", "approximate")]
    assert [*found, unit_of(CountedOnce(CHARS))] == ["characters", "tokens (about)", "tokens"]


KNOWN = "approximate, chars, tiktoken:MODEL_OR_ENCODING, huggingface:PATH, anthropic:MODEL, gemini:MODEL"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("char", f"unknown token counter 'char' (did you mean 'chars'?); expected one of {KNOWN}"),
        *((name, f"{name} requires an argument; use {name}:MODEL") for name in ("anthropic", "gemini")),
        ("tiktoken", "tiktoken requires an argument; use tiktoken:MODEL_OR_ENCODING"),
        ("huggingface:", "huggingface requires an argument; use huggingface:PATH"),
        *((f"{name}:x", f"{name} accepts no argument; write only {name}") for name in ("approximate", "chars")),
    ],
)
def test_invalid_counter_name_error_contains_the_correct_form(spec: str, message: str) -> None:
    with pytest.raises(TokenizerError) as caught:
        counter_named(spec)
    assert str(caught.value) == message


class Asked:
    """A fake provider counter that can fail."""

    def __init__(self, model: str) -> None:
        self.model = model

    def count(self, messages: Any, tools: Any = None) -> int:
        return CHARS.count(messages, tools)

    def count_text(self, text: str) -> int:
        if not text:
            raise BudgetError("no text")
        return len(self.model) // (len(text) - 1)


@pytest.mark.parametrize(("name", "kind"), [("anthropic", "AnthropicTokenCounter"), ("gemini", "GeminiTokenCounter")])
def test_provider_counter_reports_errors_of_its_client(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, kind, Asked)
    counter: Any = counter_named(f"{name}:model")
    assert (counter.count([{"role": "user", "content": "ab"}], [{"a": 1}]), counter.count_text("abc")) == (10, 2)
    assert counter.additive is False
    with pytest.raises(TokenizerError, match="^the provider's client failed: ZeroDivisionError: integer"):
        counter.count_text("a")
    with pytest.raises(BudgetError, match="^no text$"):
        counter.count_text("")


def test_counted_once_counts_each_text_once() -> None:
    texts: list[str] = []

    class Noting(CharTokenCounter):
        def count_text(self, text: str) -> int:
            texts.append(text)
            return 7

    once = CountedOnce(Noting())
    assert [once.count_text("a"), once.count_text("a"), once.count_text("b")] == [7, 7, 7]
    assert texts == ["a", "b"]
    assert once.additive is True
    assert CountedOnce(Asked("m")).additive is None
    assert [once.count([{"role": "user", "content": "ab"}], tools) for tools in (None, [], [{"a": 1}])] == [2, 2, 10]
