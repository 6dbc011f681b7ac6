"""The context windows of well-known models."""

from __future__ import annotations

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
def test_known_models_and_their_versions(model: str, tokens: int) -> None:
    assert context_of(model) == tokens


@pytest.mark.parametrize(
    "model",
    [
        *("", "m", "gpt", "gpt-5.9", "gpt-5-huge", "gpt-4o-realtime-preview", "claude-opus-5-9", "claude-opus-4-10"),
        *("gemini-2.5-flash-image", "glm-4.6v", "grok-4.99", "my-gpt-4o", "gpt-4o-2024-08-06/", "qwen-plus-character"),
        "./models/gpt-4o.gguf",
    ],
)
def test_what_only_looks_like_one_is_not_guessed(model: str) -> None:
    assert context_of(model) is None


def test_each_row_has_its_source_and_each_name_is_there_once() -> None:
    names = [name for row in _ROWS for name in row[0].split()]
    assert len(names) == len(set(names)) == len(_WINDOWS)
    assert all(tokens > 0 and source.startswith("https://") for _, tokens, source in _ROWS)
    assert all(context_of(name) == tokens for name, tokens in _WINDOWS.items())


SIZES = """
8000 moonshot-v1-8k moonshot-v1-8k-vision
32000 moonshot-v1-32k moonshot-v1-32k-vision
32768 qwen-max
128000 gpt-5-chat gpt-5.1-chat gpt-5.2-chat gpt-5.3-chat o1-mini gpt-4o gpt-4o-mini gpt-4-turbo glm-4.5
128000 glm-4.5-air kimi-k2-0711 moonshot-v1-128k moonshot-v1-128k-vision
131072 gpt-oss-120b gpt-oss-20b qwen-plus
200000 o4-mini o3 o3-pro o3-mini o1 codex-mini claude-opus-4-5 claude-opus-4-1 claude-sonnet-4-5
200000 claude-haiku-4-5 glm-5 glm-4.7 glm-4.6
256000 kimi-k2.6 kimi-k2.7-code kimi-k2.5 kimi-k2-0905 kimi-k2-turbo kimi-k2-thinking kimi-k2-thinking-turbo
256000 grok-4
400000 gpt-5.4-mini gpt-5.4-nano gpt-5.3-codex gpt-5.2 gpt-5.2-codex gpt-5.1 gpt-5.1-codex gpt-5.1-codex-mini
400000 gpt-5.1-codex-max gpt-5 gpt-5-mini gpt-5-nano gpt-5-codex gpt-5-pro
500000 grok-4.5
1000000 claude-fable-5-1 claude-opus-5-5 claude-sonnet-5-5 claude-haiku-5-5 claude-opus-5 claude-sonnet-5
1000000 claude-opus-4-8 claude-opus-4-6 claude-fable-5 claude-opus-4-7 claude-sonnet-4-6 deepseek-v4-flash
1000000 deepseek-v4-pro deepseek-chat deepseek-reasoner qwen3.5-plus qwen-turbo glm-5.2 kimi-k3 grok-4.20
1000000 grok-4.20-reasoning grok-4.20-0309-reasoning
1047576 gpt-4.1 gpt-4.1-mini gpt-4.1-nano
1048576 gemini-4-argon gemini-3.8-flash gemini-2.5-pro gemini-2.5-flash gemini-2.0-flash
1050000 gpt-6.1-sol gpt-6-astra gpt-6-luna gpt-6-sol gpt-5.6-sol gpt-5.6-terra gpt-5.6-luna gpt-5.5 gpt-5.4
1050000 gpt-5.4-pro
2000000 grok-4-fast
10000000 qwen-long
"""


def test_each_model_has_the_size_of_its_source() -> None:
    rows = [line.split() for line in SIZES.split("\n") if line]
    assert {name: int(size) for size, *names in rows for name in names} == _WINDOWS


def test_a_page_of_one_model_names_it() -> None:
    pages = [(row[0], re.search(r"/models/(?:text/)?([^/]+)(?:/overview)?$", row[2])) for row in _ROWS]
    named = [(names, page[1]) for names, page in pages if page and names.startswith(("claude", "glm"))]
    assert len(named) == 11
    assert all(page in names.replace("claude-", "").split() for names, page in named)
