"""Thinking models of DeepSeek and Moonshot, which refuse a call without the preceding reasoning."""

from typing import Any

import pytest

from formatters.helpers import answering, call, calling, openai_call, openai_calling, result
from formatters.payloads import judged
from lazyprompt import ChatFormatter, FormatError, TextBlock, ThinkingBlock
from lazyprompt.formatters.providers import PROVIDERS

HI = {"role": "user", "content": "Is it raining?"}
ASKED = openai_calling(openai_call("c1"))
TOLD = {"role": "tool", "tool_call_id": "c1", "content": "rain"}
DEEPSEEK, KIMI = (
    ("deepseek-reasoner", "deepseek-v4-pro", "deepseek/deepseek-v4-flash", "a/deepseek-v10"),
    (
        *("kimi-k2-thinking", "kimi-k2-thinking-turbo", "kimi-thinking-preview", "kimi-thinking"),
        *("kimi-k2.5", "kimi-k2.6", "a/kimi-k2-9", "kimi-k3", "kimi-k10"),
    ),
)
THINKERS = [*(("deepseek", name) for name in DEEPSEEK), *(("moonshot", name) for name in KIMI)]
OTHERS = [
    *(("deepseek", name) for name in (None, "deepseek-chat", "deepseek-v3")),
    *(("moonshot", name) for name in (None, "kimi-k2", "kimi-k2.4", "kimi-k2-turbo-preview", "kimi-k2-0905-preview")),
    ("moonshot", "moonshot-v1-8k"),
]


def thoughts(payload: Any) -> list[str | None]:
    return [one.get("reasoning_content") for one in payload["messages"] if one["role"] == "assistant"]


@pytest.mark.parametrize(("provider", "model"), [*THINKERS, *OTHERS])
@pytest.mark.parametrize("thought", ["", "Hm."])
def test_reasoning_content_is_sent_back_even_if_empty(provider: str, model: str | None, thought: str) -> None:
    # "" was dropped, and the next request refused: "thinking is enabled but reasoning_content is missing".
    formatter = ChatFormatter(provider, model=model, strict=True)
    payload = judged(formatter, HI, ASKED | {"reasoning_content": thought}, TOLD)
    assert (thoughts(payload), payload.report) == ([thought], ())
    msg = calling(ThinkingBlock(thought, provider=provider), call("c1"))
    payload = judged(formatter, HI, msg, answering(result("c1", "rain")))
    assert thoughts(payload) == [thought]


@pytest.mark.parametrize(("provider", "model"), THINKERS)
@pytest.mark.parametrize(
    "asked", [ASKED, calling(TextBlock("I look."), call("c1")), ASKED | {"reasoning_content": None}]
)
def test_thinking_model_gets_empty_reasoning_for_a_call_without_reasoning(
    provider: str, model: str, asked: Any
) -> None:
    formatter = ChatFormatter(provider, model=model, strict=True)
    payload = judged(formatter, HI, asked, TOLD, {"role": "assistant", "content": "It is."}, HI)
    # Turns without calls need none.
    assert thoughts(payload) == ["", None]
    formatter.validate(payload)
    assert formatter.format(payload["messages"]) == payload


@pytest.mark.parametrize(("provider", "model"), OTHERS)
def test_other_models_get_no_reasoning_for_a_call_without_reasoning(provider: str, model: str | None) -> None:
    formatter = ChatFormatter(provider, model=model)
    assert thoughts(judged(formatter, HI, ASKED, TOLD)) == [None]


@pytest.mark.parametrize(("provider", "model"), THINKERS)
def test_validator_requires_reasoning_before_calls_of_a_thinking_model(provider: str, model: str) -> None:
    asked = ASKED | {"content": ""}
    formatter = ChatFormatter(provider, model=model)
    formatter.validate({"messages": [HI, asked | {"reasoning_content": ""}, TOLD]})
    with pytest.raises(FormatError, match=r"messages\[1\] calls tools without the preceding reasoning; set"):
        formatter.validate({"messages": [HI, asked, TOLD]})
    with pytest.raises(FormatError, match="without the preceding reasoning"):
        ChatFormatter(provider).validate({"model": model, "messages": [HI, asked, TOLD]})
    ChatFormatter(provider).validate({"messages": [HI, asked, TOLD]})


@pytest.mark.parametrize("provider", [name for name in PROVIDERS if name != "ollama-generate"])
def test_empty_reasoning_is_not_reported_as_a_loss(provider: str) -> None:
    payload = judged(ChatFormatter(provider, strict=True), HI, ASKED | {"reasoning_content": ""}, TOLD)
    assert all(entry.kind == "id" for entry in payload.report)  # Mistral ids have their own form
    # A text turn with empty reasoning is the same as without.
    answer = {"role": "assistant", "content": "It is."}
    plain = {"role": "assistant", "content": "It is.", "reasoning_content": ""}
    formatter = ChatFormatter(provider)
    assert judged(formatter, HI, plain, HI) == judged(formatter, HI, answer, HI)
