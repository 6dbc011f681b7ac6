"""Budgets for messages in any format; kept messages begin with a user turn, and are never empty."""

from typing import Any

import pytest

from budget.helpers import CHARS, chat, exactly, function_call, msg
from lazyprompt import Budget, BudgetError, ChatFormatter, ChatPrompter, Msg, OnlineChatModule, messages_from

CALL = {"functionCall": {"id": "1", "name": "f", "args": {}}}
ANSWER = {"functionResponse": {"id": "1", "name": "f", "response": {"output": "r" * 50}}}
GEMINI: list[dict[str, Any]] = [
    {"role": "user", "parts": [{"text": "a" * 50}]},
    {"role": "model", "parts": [CALL]},
    {"role": "user", "parts": [ANSWER, {"text": "So?"}]},
    {"role": "model", "parts": [{"text": "b" * 50}]},
    {"role": "user", "parts": [{"text": "c" * 50}]},
]
RESPONSES: list[dict[str, Any]] = [
    {"role": "user", "content": "a" * 50},
    {"type": "reasoning", "id": "r", "summary": []},
    {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "1", "output": "r" * 50},
    {"role": "assistant", "content": "b" * 50},
    {"role": "user", "content": "c" * 50},
]
TUPLES = [("human", "a" * 50), ("ai", "b" * 50), ("human", "c" * 50)]


@pytest.mark.parametrize(
    ("items", "limit", "left"),
    [
        (GEMINI, 900, [0, 1, 2, 3, 4]),
        (GEMINI, 250, [1, 2, 3, 4]),
        (GEMINI, 120, [3, 4]),
        (RESPONSES, 900, [0, 1, 2, 3, 4, 5]),
        (RESPONSES, 250, [1, 2, 3, 4, 5]),
        (RESPONSES, 120, [4, 5]),
        (TUPLES, 120, [1, 2]),
        ([["a" * 50, "b" * 50], ["c" * 50, "d" * 50]], 120, [1]),
    ],
)
def test_kept_messages_have_the_format_of_the_passed_messages(items: Any, limit: int, left: list[int]) -> None:
    kept, _ = exactly(limit, CHARS).fit(items)
    assert kept == [items[at] for at in left]
    assert all(new is not items[at] for new, at in zip(kept, left, strict=True) if isinstance(new, dict))
    sent = ChatFormatter("openai").format(*kept)["messages"]
    assert CHARS.count(sent) <= limit


def test_a_message_cut_in_another_format_becomes_a_msg() -> None:
    kept, report = Budget(40, CHARS, cut="end").fit(GEMINI[-1:])
    assert report.cut == (0,)
    assert kept == [Msg("user", kept[0].text, "user")]  # type: ignore[attr-defined]  # it is a Msg now
    assert messages_from([*GEMINI[:1], *kept])


def test_cutting_an_openai_dict_changes_only_its_content() -> None:
    ask = msg("assistant", None, tool_calls=[function_call()])
    items = [ask, msg("tool", "one. " * 90, tool_call_id="1", name="f"), msg("user", "so?")]
    kept, report = Budget(200, CHARS, cut="end").fit(items)
    assert report.cut == (1,)
    assert kept[0] == items[0]
    assert kept[1] == items[1] | {"content": kept[1]["content"]}
    assert str(kept[1]["content"]).endswith("[…]")


@pytest.mark.parametrize("limit", range(20, 34))
def test_a_cut_never_leaves_an_empty_message(limit: int) -> None:
    """If no part of a text fits, its message is dropped; a protected message is an error."""
    messages = [msg("assistant", "x" * 400), msg("user", "u" * 20)]
    kept, _ = Budget(limit, CHARS, cut="end").fit(messages)
    assert all(message["content"] not in ("", "[…]") for message in kept)
    with pytest.raises(BudgetError, match="the parts that are never dropped have"):
        Budget(limit, CHARS, cut="end").fit([msg("system", "s" * (limit - 3)), msg("user", "x" * 99)])


def test_the_input_is_never_cut_to_an_empty_text() -> None:
    with pytest.raises(
        BudgetError,
        match=r"slots\['input'\] is limited to 2 tokens, but its value has 12 tokens \(10 too many\) and would be",
    ):
        ChatPrompter("Help.", budget=Budget(900, CHARS, slots={"input": 2})).generate_prompt("How are you?")


def test_messages_before_the_first_user_turn_are_dropped_with_a_reason() -> None:
    messages = [msg("system", "s" * 10), *chat(6)[1:], msg("user", "u" * 10)]
    kept, report = Budget(35, CHARS, start_on="user").fit(messages)
    assert [message["role"] for message in kept] == ["system", "user"]
    reasons = {each.index: each.reason for each in report.messages if each.fate == "dropped"}
    assert reasons[5] == "before the first user turn"
    assert reasons[1] == "the oldest go first, down to low_water=0.5"
    # Also without a limit, as the conversation begins with the assistant.
    assert Budget(None, CHARS, start_on="user").fit(messages)[1].dropped == (1,)
    assert Budget(None, CHARS, start_on="user", protect={1}).fit(messages)[1].dropped == ()
    cut = Budget(60, CHARS, cut="end", start_on="user").fit([msg("assistant", "x" * 200), msg("user", "new")])[1]
    assert str(cut) == "203 → 3 of 60 tokens: 1 dropped (before the first user turn)"
    with pytest.raises(BudgetError, match="start_on must be 'user' or None, not 'assistant'"):
        Budget(9, start_on="assistant")  # type: ignore[arg-type]


def test_a_tool_exchange_before_the_first_user_turn_is_dropped_whole() -> None:
    messages = [
        msg("assistant", None, tool_calls=[function_call()]),
        msg("user", "wait"),
        msg("tool", "r", tool_call_id="1"),
        msg("assistant", "so"),
        msg("user", "on"),
    ]
    kept, report = Budget(900, CHARS, start_on="user").fit(messages)
    assert kept == [messages[1], *messages[3:]]
    assert report.dropped == (0, 2)


@pytest.mark.parametrize("start_on", [None, "user"])
def test_a_pending_history_keeps_its_last_user_message_and_tool_exchange(start_on: Any) -> None:
    """The question is in the history, not in the input; it is never dropped, and kept messages begin with it."""
    loop = [msg("assistant", None, tool_calls=[function_call()]), msg("tool", "result", tool_call_id="1")]
    history = [*chat(8), msg("user", "question"), *loop]
    room = CHARS.count(history[8:])
    for limit, count in ((room, 3), (room + 9, 3), (room + 10, 3 if start_on else 4), (room + 20, 5), (900, 11)):
        prompter = ChatPrompter("", system="", budget=exactly(limit, CHARS, start_on=start_on))
        made, report = prompter.fit(None, history, format="openai")
        assert made["messages"] == history[-count:]
        assert report.dropped == tuple(range(11 - count))
        assert exactly(limit, CHARS, start_on=start_on).fit(history)[0] == history[-count:]
    # With low_water, no response is kept without its question.
    steps = ChatPrompter("", system="", budget=Budget(100, CHARS, low_water=0.3))
    report = steps.fit(None, [*chat(2, 20), msg("user", "So? ")])[1]
    assert (report.dropped, report.ends_prefix) == ((0, 1), True)
    # Below that limit, the exchange is dropped, and the question is kept.
    assert exactly(room - 1, CHARS).fit(history)[0] == [history[8]]
    with pytest.raises(BudgetError, match=r"the parts that are never dropped have 8 tokens \(newest user turn 8\)"):
        exactly(7, CHARS).fit(history)


def test_a_history_without_user_turns_is_kept_unless_an_input_follows() -> None:
    history = [msg("system", "s"), msg("assistant", "a" * 10), msg("assistant", "b" * 10)]
    assert Budget(900, CHARS, start_on="user").fit(history)[0] == history
    prompter = ChatPrompter("", system="", budget=Budget(900, CHARS, start_on="user"))
    made, report = prompter.fit("So?", history[1:], format="openai")
    assert made["messages"] == [msg("user", "So?")]
    assert [line.after for line in report.messages] == [0, 0, 3]


def test_start_on_user_applies_to_formatters_prompters_and_modules() -> None:
    budget = Budget(900, CHARS, start_on="user")
    history = [msg("assistant", "Good morning."), msg("user", "Hi"), msg("assistant", "Hello")]
    payload = ChatFormatter("openai", budget=budget).format(*history, msg("user", "So?"))
    assert [message["role"] for message in payload["messages"]] == ["user", "assistant", "user"]
    prompter = ChatPrompter("Help.", budget=budget)
    assert "Good morning." not in prompter.generate_prompt("So?", history)
    made = OnlineChatModule("openai", api_key="k", budget=budget).prompt("Help.").payload("So?", history[:1])
    assert [message["role"] for message in made["messages"]] == ["system", "user"]
