"""The context windows of well-known models."""

import re

import pytest

from lazyprompt.tokens.windows import _ROWS, _WINDOWS, context_of


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        *(("gpt-4o-2024-08-06", 128_000), ("gpt-4o-mini-2024-07-18", 128_000), ("openai/gpt-5-mini", 400_000)),
        *(("gpt-5-2025-08-07", 400_000), ("gpt-5-chat-latest", 128_000), ("gpt-5-chat-2025-08-07", 128_000)),
        *(("claude-haiku-4-5-20251001", 200_000), ("claude-sonnet-4-5@20250929", 200_000)),
        *(("Claude-Opus-5-5", 1_000_000), ("models/gemini-2.5-pro-preview-05-06", 1_048_576)),
        *(("gemini-2.0-flash-001", 1_048_576), ("qwen-max-latest", 32_768), ("qwen-max-2024-09-19", 32_768)),
        *(("kimi-k2-0905-preview", 256_000), ("grok-4-0709", 256_000)),
    ],
)
def test_the_context_window_of_known_models_and_their_versions_is_found(model: str, tokens: int) -> None:
    assert context_of(model) == tokens


@pytest.mark.parametrize(
    "model",
    [
        *("", "m", "gpt", "gpt-5.9", "gpt-5-huge", "gpt-4o-realtime-preview", "claude-opus-5-9", "claude-opus-4-10"),
        *("gemini-2.5-flash-image", "glm-4.6v", "grok-4.99", "my-gpt-4o", "gpt-4o-2024-08-06/", "qwen-plus-character"),
        "./models/gpt-4o.gguf",
    ],
)
def test_the_context_window_of_an_unknown_model_is_none(model: str) -> None:
    assert context_of(model) is None


def test_each_row_has_a_source_and_each_model_is_listed_once() -> None:
    names = [name for row in _ROWS for name in row[0].split()]
    assert len(names) == len(set(names)) == len(_WINDOWS)
    assert all(tokens > 0 and source.startswith("https://") for _, tokens, source in _ROWS)
    assert all(context_of(name) == tokens for name, tokens in _WINDOWS.items())


def test_the_source_page_of_a_single_model_names_the_model() -> None:
    pages = [(row[0], re.search(r"/models/(?:text/)?([^/]+)(?:/overview)?$", row[2])) for row in _ROWS]
    named = [(names, page[1]) for names, page in pages if page and names.startswith(("claude", "glm"))]
    assert len(named) == 11
    assert all(page in names.replace("claude-", "").split() for names, page in named)
