"""Message keys that providers do not support, and names of tool messages."""

from typing import Any

import pytest

from formatters.helpers import WITH_TOOLS, call, calling, formatters_of, openai_call, openai_calling, result
from formatters.payloads import dump, judged
from lazyprompt import Budget, CharTokenCounter, ChatFormatter, FormatError, Msg
from lazyprompt.formatters.providers import PROVIDERS
from lazyprompt.formatters.report import Entry

HI: dict[str, object] = {"role": "user", "content": "hi"}
ASKED = openai_calling(openai_call("c1", "weather"))


def lost(payload: Any) -> list[tuple[str, str, str]]:
    return [(entry.where, entry.reason, entry.text) for entry in payload.report if entry.kind == "metadata"]


@formatters_of(PROVIDERS)
def test_unsupported_message_key_is_reported(kind: type[ChatFormatter], provider: str) -> None:
    # Unsupported keys were dropped without a report, even with strict=True.
    messages: list[Msg | dict[str, object]] = [
        {"role": "system", "content": "Be brief.", "cache_control": {"type": "ephemeral"}},
        {**HI, "mood": "calm", "nothing": None, "empty": []},
        Msg("assistant", "Hello.", "assistant", metadata={"score": 0}),
        HI,
    ]
    payload = judged(kind(provider), messages)
    why = f"{provider} does not support this key"
    assert lost(payload) == [
        ("messages[0].cache_control", why, '{"type": "ephemeral"}'),
        ("messages[1].mood", why, '"calm"'),
        ("messages[2].score", why, "0"),
    ]
    with pytest.raises(FormatError, match=r"messages\[1\]\.mood \(metadata\) left out"):
        kind(provider, strict=True).format(messages)


def test_keys_of_a_message_dropped_by_the_budget_are_not_reported() -> None:
    history = {**HI, "content": "a" * 50, "mood": "calm"}, {"role": "assistant", "content": "b" * 50}
    payload = ChatFormatter("openai", budget=Budget(60, CharTokenCounter())).format(*history, {**HI, "tone": "dry"})
    assert lost(payload) == [("messages[2].tone", "openai does not support this key", '"dry"')]


@formatters_of(WITH_TOOLS)
@pytest.mark.parametrize("name", ["weather", "the weather", "天气", "tool"])
def test_tool_message_name_is_not_a_speaker_name(kind: type[ChatFormatter], provider: str, name: str) -> None:
    # The tool's name was reported as a lost speaker name, or fitted like one.
    expected = judged(kind(provider), HI, ASKED, {"role": "tool", "tool_call_id": "c1", "content": "rain"}, HI)
    rain = [result("c1", "rain", name="weather")]
    answer: dict[str, Any] = {"role": "tool", "tool_call_id": "c1", "name": name, "content": "rain"}
    payload = judged(kind(provider), HI, ASKED, answer, HI)
    key = kind(provider).profile.form.messages_key
    assert (payload.report, len(payload[key])) == (expected.report, len(expected[key]))
    named, plain = (
        judged(kind(provider), HI, calling(call("c1", "weather")), Msg(who, rain, "tool"), HI) for who in (name, "tool")
    )
    assert named.report == plain.report


def test_lost_speaker_name_is_reported() -> None:
    payload = judged(ChatFormatter("deepseek"), {**HI, "name": "Ann"}, ASKED, Msg("f", [result("c1", "rain")], "tool"))
    why = "'Ann': deepseek does not support names; use MultiAgentFormatter to send them"
    assert payload.report == (Entry("messages", "name", "left out", why, "Ann"),)
    assert "Ann" not in dump(payload)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_unsupported_field_of_a_content_part_is_reported_with_its_place(provider: str) -> None:
    part = {"type": "text", "text": "Hi.", "cache_control": {"type": "ephemeral"}}
    cited = {"type": "text", "text": "There.", "citations": [{"cited_text": "here"}]}
    payload = ChatFormatter(provider).format([{"role": "user", "content": [part, cited]}])
    if provider == "anthropic":
        # Anthropic supports both fields.
        assert (payload["messages"], payload.report) == ([{"role": "user", "content": [part, cited]}], ())
        return
    assert [(entry.where, entry.kind, entry.reason) for entry in payload.report if "content" in entry.where] == [
        ("messages[0].content[0].cache_control", "cache", "breakpoints are set with cache="),
        ("messages[0].content[1].citations", "metadata", "content blocks do not support this field"),
    ]
    # A breakpoint is no content, so strict allows its loss.
    ChatFormatter(provider, strict=True).format([{"role": "user", "content": [part]}])
