"""What a model answered: its text, and all that came with it."""

import copy
import json
import pickle
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


def test_it_is_its_text_and_knows_the_rest() -> None:
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


def test_of_an_answer_that_tells_nothing_nothing_is_known() -> None:
    reply = Reply(Msg("assistant", "", "assistant"), {})
    assert (reply, list(reply.tool_calls), reply.thinking, reply.usage) == ("", [], "", None)
    assert (reply.finish, reply.model, reply.parsed) == (None, "", None)


def test_copies_and_pickles_are_the_same() -> None:
    reply = Reply(FULL, chat("stop"), City(name="Rome"))
    for again in (pickle.loads(pickle.dumps(reply)), copy.copy(reply), copy.deepcopy(reply)):  # noqa: S301 - our own
        assert type(again) is Reply
        assert again == reply
        for name in ("message", "raw", "parsed", "finish", "model", "usage", "thinking"):
            assert getattr(again, name) == getattr(reply, name)


def test_it_is_ready_for_the_history() -> None:
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
def test_why_an_answer_ended_has_one_name_for_all(raw: dict[str, Any], finish: str | None) -> None:
    assert Reply(Msg("assistant", "a", "assistant"), raw).finish == finish


def test_calls_are_a_reason_where_the_provider_says_stop() -> None:
    """Gemini and Ollama have no word for it."""
    assert Reply(FULL, {"candidates": [{"finish_reason": "STOP"}]}).finish == "tool_calls"
    assert Reply(FULL, {"done_reason": "length"}).finish == "length"
