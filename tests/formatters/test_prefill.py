"""Prefill: the beginning of a response, which the model continues."""

from typing import Any

import pytest

from formatters.helpers import KINDS, call, calling, openai_call, result
from formatters.payloads import dump, judged
from lazyprompt import Budget, CharTokenCounter, ChatFormatter, FormatError, Msg, MultiAgentFormatter, TextBlock
from lazyprompt.formatters._repair import LAST_TURN
from lazyprompt.formatters.providers import PROVIDERS

HI = {"role": "user", "content": "Write it."}
MARKED = dict.fromkeys(("deepseek", "litellm", "mistral"), "prefix")
MARKED |= dict.fromkeys(("moonshot", "dashscope", "dashscope-multimodal"), "partial")
UNMARKED = ("anthropic", "ollama")
OTHERS = tuple(name for name in PROVIDERS if name not in MARKED and name not in UNMARKED)


def begun(key: str, text: str = "```python", *, value: object = True) -> dict[str, Any]:
    return {"role": "assistant", "content": text, key: value}


@pytest.mark.parametrize("given", ["prefix", "partial"])
@pytest.mark.parametrize("provider", [*MARKED, *UNMARKED])
def test_prefill_is_sent_in_the_providers_own_form(provider: str, given: str) -> None:
    # The prefill became an ordinary turn, followed by a filler user turn.
    asked = ChatFormatter(provider, strict=True)
    metadata = {given: True}
    for messages in ([HI, begun(given)], [HI, Msg("assistant", "```python", "assistant", metadata=metadata)]):
        payload = judged(asked, messages)
        last = payload["messages"][-1]
        assert (last["role"], payload.report) == ("assistant", ())
        assert [key for key in ("prefix", "partial") if key in last] == [*filter(None, [MARKED.get(provider)])]
        assert "```python" in dump(payload)


@pytest.mark.parametrize("provider", OTHERS)
def test_unsupported_prefill_is_reported(provider: str) -> None:
    payload = judged(ChatFormatter(provider), HI, begun("prefix"))
    (entry,) = [entry for entry in payload.report if entry.kind == "metadata"]
    assert (entry.where, entry.action) == ("messages[1].prefix", "left out")
    with pytest.raises(FormatError, match="does not continue an unfinished answer"):
        ChatFormatter(provider, strict=True).format(HI, begun("prefix"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("provider", [*MARKED, *UNMARKED])
def test_prefill_mark_is_left_out_unless_the_message_is_last(kind: type[ChatFormatter], provider: str) -> None:
    payload = judged(kind(provider), HI, begun("prefix"), HI)
    assert [entry.where for entry in payload.report if entry.kind == "metadata"] == ["messages[1].prefix"]
    assert '"prefix"' not in dump(payload)
    # A message with calls is not last: their results follow it.
    payload = judged(kind(provider), HI, begun("prefix") | {"tool_calls": [openai_call("c1")]})
    assert "metadata" in [entry.kind for entry in payload.report]
    assert (
        judged(kind(provider), HI, begun("prefix", value=False), HI).report
        == judged(kind(provider), HI, {"role": "assistant", "content": "```python"}, HI).report
    )


def test_multi_agent_formatter_supports_no_prefill() -> None:
    payload = judged(MultiAgentFormatter("deepseek"), HI, begun("prefix"))
    assert [entry.where for entry in payload.report if entry.kind == "metadata"] == ["messages[1].prefix"]


def test_prefill_is_joined_with_the_preceding_assistant_message() -> None:
    payload = judged(ChatFormatter("deepseek"), HI, Msg("assistant", "Here:", "assistant"), begun("prefix"))
    assert payload["messages"][1:] == [{"role": "assistant", "content": "Here:\n```python", "prefix": True}]
    # Reasoning is sent with the prefill.
    thinking = begun("prefix") | {"reasoning_content": "Hm."}
    payload = judged(ChatFormatter("deepseek"), HI, thinking)
    assert payload["messages"][-1] == thinking


def test_budget_keeps_the_prefill_mark() -> None:
    history = [HI, {"role": "assistant", "content": "a" * 200}] * 5
    formatter = ChatFormatter("deepseek", budget=Budget(300, CharTokenCounter()))
    payload = judged(formatter, history, HI, begun("prefix"))
    assert payload["messages"][-1] == begun("prefix")
    assert payload.trim is not None
    assert payload.trim.dropped


OLDER = (
    *(None, "claude-3-5-sonnet-20241022", "claude-3-haiku-20240307", "claude-2.1", "claude-instant-1.2"),
    *("claude-opus-4-20250514", "claude-sonnet-4-0", "claude-opus-4-1@20250805", "claude-haiku-4-5", "deepseek-chat"),
    "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
)
NEWER = (
    *("claude-opus-4-6", "claude-sonnet-4-6-20260201", "anthropic/claude-opus-4.7", "us.anthropic.claude-opus-4-6-v1"),
    *("claude-opus-4-10", "claude-sonnet-5", "claude-mythos-preview", "claude-5-sonnet"),
)


@pytest.mark.parametrize("model", OLDER)
def test_older_claude_models_accept_a_prefill(model: str | None) -> None:
    payload = judged(ChatFormatter("anthropic", model=model, strict=True), HI, begun("prefix"))
    assert payload["messages"][-1] == {"role": "assistant", "content": "```python"}


@pytest.mark.parametrize("model", NEWER)
def test_newer_claude_models_get_a_user_turn_after_a_last_assistant_turn(model: str) -> None:
    # "This model does not support assistant message prefill. The conversation must end with a user message."
    formatter = ChatFormatter("anthropic", model=model)
    for messages in ([HI, begun("prefix")], [HI, Msg("assistant", [TextBlock("```python")], "assistant")]):
        payload = judged(formatter, messages)
        assert payload["messages"][-1] == {"role": "user", "content": LAST_TURN}
        assert [entry.action for entry in payload.report if entry.kind == "message"] == ["added"]
    with pytest.raises(FormatError, match=r"messages\[1\] has the role 'assistant', but comes last"):
        formatter.validate({"messages": [HI, {"role": "assistant", "content": "```python"}]})
    judged(formatter, HI, calling(call("c1")), Msg("tool", [result("c1", "42")], "tool"))


@pytest.mark.parametrize("provider", MARKED)
def test_assistant_message_before_a_prefill_is_not_validated_as_the_last_turn(provider: str) -> None:
    """The validator skipped the prefill, took the message before it for the last turn, and refused our payload."""
    answer = {"role": "assistant", "content": "Yes."}
    judged(ChatFormatter(provider), HI, answer, {**answer, MARKED[provider]: True})
