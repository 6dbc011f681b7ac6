"""Which models of a provider need their reasoning sent back."""

from __future__ import annotations

from lazyprompt.formatters.providers import profile_of


def test_these_models_need_reasoning_in_each_message_with_calls() -> None:
    names = {
        "deepseek": "deepseek-reasoner deepseek-v4 a/deepseek-v10 deepseek-chat deepseek-v3",
        "moonshot": "kimi-thinking kimi-k2-thinking kimi-k2.5 a/kimi-k2-9 kimi-k3 kimi-k10 kimi-k2 kimi-k2.4",
    }
    assert {each: list(map(profile_of(each).needs_thoughts, given.split())) for each, given in names.items()} == {
        "deepseek": [True] * 3 + [False] * 2,
        "moonshot": [True] * 6 + [False] * 2,
    }
