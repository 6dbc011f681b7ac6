"""The context windows of well-known models."""

from __future__ import annotations

import pytest

from lazyprompt.tokens.windows import _ROWS, _WINDOWS, context_of


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("gpt-4o", 128_000),
        ("gpt-4o-2024-08-06", 128_000),
        ("gpt-4o-mini-2024-07-18", 128_000),
        ("openai/gpt-5-mini", 400_000),
        ("gpt-5-chat-latest", 128_000),
        ("gpt-5.4", 1_050_000),
        ("gpt-5.4-mini", 400_000),
        ("o3", 200_000),
        ("claude-haiku-4-5-20251001", 200_000),
        ("claude-sonnet-4-5@20250929", 200_000),
        ("claude-opus-4-6", 1_000_000),
        ("Claude-Opus-5-5", 1_000_000),
        ("models/gemini-2.5-pro-preview-05-06", 1_048_576),
        ("gemini-2.0-flash-001", 1_048_576),
        ("deepseek-chat", 1_000_000),
        ("qwen-max-latest", 32_768),
        ("qwen-max-2024-09-19", 32_768),
        ("glm-4.6", 200_000),
        ("kimi-k2-0905-preview", 256_000),
        ("moonshot-v1-8k", 8_000),
        ("grok-4-0709", 256_000),
        ("grok-4-fast", 2_000_000),
    ],
)
def test_known_models_and_their_versions(model: str, tokens: int) -> None:
    assert context_of(model) == tokens


@pytest.mark.parametrize(
    "model",
    [
        "",
        "m",
        "gpt",
        "gpt-5.9",
        "gpt-5-huge",
        "gpt-4o-realtime-preview",
        "claude-opus-5-9",
        "claude-opus-4-10",
        "gemini-2.5-flash-image",
        "glm-4.6v",
        "grok-4.99",
        "my-gpt-4o",
        "gpt-4o-2024-08-06/",
        "qwen-plus-character",
        "./models/gpt-4o.gguf",
    ],
)
def test_what_only_looks_like_one_is_not_guessed(model: str) -> None:
    assert context_of(model) is None


def test_the_longest_name_counts() -> None:
    assert [context_of(model) for model in ("gpt-5-2025-08-07", "gpt-5-chat-2025-08-07")] == [400_000, 128_000]


def test_each_row_has_its_source_and_each_name_is_there_once() -> None:
    names = [name for row in _ROWS for name in row[0].split()]
    assert len(names) == len(set(names)) == len(_WINDOWS)
    assert all(tokens > 0 and source.startswith("https://") for _, tokens, source in _ROWS)
    assert all(context_of(name) == tokens for name, tokens in _WINDOWS.items())
