"""The hit rates of budgets with large and with small steps, by the cache rules of each provider."""

from collections.abc import Iterator

import pytest

from lazyprompt import ApproximateTokenCounter, Budget, CacheReport, ChatPrompter
from lazyprompt.caching import RULES, PromptCall, simulate

COUNTER = ApproximateTokenCounter()
MODELS = {
    "openai": "gpt-5.6",
    "anthropic": "claude-sonnet-5",
    "gemini": "gemini-2.5-pro",
    "deepseek": "deepseek-chat",
    "vllm": "any/model",
    "llama.cpp": "qwen2.5",
}


def calls(budget: Budget, model: str | None) -> Iterator[PromptCall]:
    """A long chat in which each turn has about 160 tokens."""
    prompter = ChatPrompter("Answer from the manual.", system="", budget=budget)
    history: list[list[str]] = []
    for at in range(80):
        question = f"Question {at}: " + "how long " * 30
        yield PromptCall(prompter, question, [*history], conversation="chat", model=model)
        history.append([question, f"Answer {at}: " + "three years " * 30])


@pytest.mark.slow
@pytest.mark.parametrize("provider", RULES)
def test_trimming_in_large_steps_breaks_the_cache_less_than_in_single_messages(provider: str) -> None:
    def report(low_water: float) -> CacheReport:
        budget = Budget(5000, COUNTER, low_water=low_water)
        return simulate(calls(budget, MODELS[provider]), provider, COUNTER)

    # docs/how-to/prompt-caching.md has these limits.
    seldom, often = report(0.5), report(1)
    assert seldom.hit_rate > 0.7
    assert often.hit_rate < 0.5
    assert 0 < len(seldom.breaks) < 0.15 * len(often.breaks)
    assert {found.slot for found in seldom.breaks} <= {"history"}
