"""A reply: its text, message, tool calls, usage and finish reason."""

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from lazyprompt import Msg, Reply, TextBlock, ThinkingBlock, ToolUseBlock


class City(BaseModel):
    name: str


CALL = ToolUseBlock("c1", "weather", {"city": "Rome"})
USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
FULL = Msg("assistant", (ThinkingBlock("hm"), ThinkingBlock("so"), TextBlock("a"), CALL), "assistant", usage=USAGE)


def chat(reason: str | None, **message: Any) -> dict[str, Any]:
    return {"model": "m-1", "choices": [{"index": 0, "finish_reason": reason, "message": message}]}


def test_reply_is_its_text_and_has_message_tool_calls_usage_and_finish() -> None:
    raw = chat("tool_calls")
    reply = Reply(FULL, raw, {"a": 1})
    assert reply == "a" == str(reply) == f"{reply}"
    assert isinstance(reply, str)
    assert json.dumps({"said": reply}) == '{"said": "a"}'
    assert (reply.message, reply.raw, reply.parsed) == (FULL, raw, {"a": 1})
    assert (reply.tool_calls, reply.thinking, reply.usage) == ([CALL], "hm\nso", USAGE)
    assert (reply.finish, reply.model) == ("tool_calls", "m-1")
    assert repr(reply) == "Reply('a', weather({'city': 'Rome'}))"
    assert type(str(reply)) is str


def test_reply_to_an_empty_response_has_empty_fields() -> None:
    reply = Reply(Msg("assistant", "", "assistant"), {})
    assert (reply, list(reply.tool_calls), reply.thinking, reply.usage) == ("", [], "", None)
    assert (reply.finish, reply.model, reply.parsed) == (None, "", None)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda reply: pickle.loads(pickle.dumps(reply))])  # noqa: S301 - our own
def test_copied_and_pickled_replies_are_equal(duplicate: Callable[[Reply], Reply]) -> None:
    reply = Reply(FULL, chat("stop"), City(name="Rome"))
    again = duplicate(reply)
    assert type(again) is Reply
    assert again == reply
    for name in ("message", "raw", "parsed", "finish", "model", "usage", "thinking"):
        assert getattr(again, name) == getattr(reply, name)


def test_turn_of_a_reply_has_the_user_message_and_the_reply_message() -> None:
    assert Reply(FULL, {}).message is FULL
    assert Reply(FULL, {}).turn == (FULL,)
    again = pickle.loads(pickle.dumps(Reply(FULL, {}, said="hi")))  # noqa: S301 - our own
    assert again.turn == (Msg("user", "hi", "user"), FULL)


@pytest.mark.parametrize(
    ("raw", "finish"),
    [
        *((chat(reason), "stop") for reason in ("stop", "eos")),
        *((chat(reason), "length") for reason in ("length", "max_tokens")),
        *((chat(reason), "tool_calls") for reason in ("tool_calls", "function_call")),
        *((chat(reason), "content_filter") for reason in ("content_filter", "sensitive")),
        *((chat(reason), "other") for reason in ("abort", "network_error")),
        *((chat(reason), None) for reason in ("", None)),
        (chat("stop", refusal="no"), "refusal"),
        *(({"choices": choices}, None) for choices in ([], None, [5])),
        ({"output": {"choices": [{"finish_reason": "stop"}]}}, "stop"),
        ({"output": {"choices": [{"finish_reason": "null"}]}}, "stop"),
        *(({"stop_reason": reason}, "stop") for reason in ("end_turn", "stop_sequence")),
        *(({"stop_reason": reason}, "length") for reason in ("max_tokens", "model_context_window_exceeded")),
        *(({"stop_reason": "tool_use"}, "tool_calls"), ({"stop_reason": "refusal"}, "refusal")),
        *(({"stop_reason": reason}, "other") for reason in (["odd"], 5)),
        ({"candidates": [{"finish_reason": "STOP"}]}, "stop"),
        ({"candidates": [{"finishReason": "MAX_TOKENS"}]}, "length"),
        ({"candidates": [{"finish_reason": "FinishReason.SAFETY"}]}, "content_filter"),
        ({"candidates": [{"finish_reason": "IMAGE_PROHIBITED_CONTENT"}]}, "content_filter"),
        ({"candidates": [{"finish_reason": "MALFORMED_FUNCTION_CALL"}]}, "broken call"),
        ({"candidates": [{"finish_reason": "LANGUAGE"}]}, "other"),
        ({"prompt_feedback": {"block_reason": "JAILBREAK"}}, "content_filter"),
        ({"promptFeedback": {"blockReason": "OTHER"}, "candidates": []}, "content_filter"),
        *(({"done_reason": reason}, reason) for reason in ("stop", "length")),
        *(({"done_reason": "load"}, "other"), ({"details": {"finish_reason": "eos_token"}}, "stop")),
    ],
)
def test_finish_reasons_of_all_providers_get_common_names(raw: dict[str, Any], finish: str | None) -> None:
    assert Reply(Msg("assistant", "a", "assistant"), raw).finish == finish


def test_stop_with_tool_calls_becomes_the_finish_reason_tool_calls() -> None:
    """Gemini and Ollama have no finish reason for tool calls."""
    assert Reply(FULL, {"candidates": [{"finish_reason": "STOP"}]}).finish == "tool_calls"
    assert Reply(FULL, {"done_reason": "length"}).finish == "length"
