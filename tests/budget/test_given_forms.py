"""Budgets over messages of any form; what is left begins with the user, and is never empty."""

from typing import Any

import pytest

from budget.helpers import CHARS, exactly, function_call, msg, talk
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
def test_what_is_left_is_of_the_kind_that_was_given(items: Any, limit: int, left: list[int]) -> None:
    kept, _ = exactly(limit, CHARS).fit(items)
    assert kept == [items[at] for at in left]
    assert all(new is not items[at] for new, at in zip(kept, left, strict=True) if isinstance(new, dict))
    sent = ChatFormatter("openai").format(*kept)["messages"]
    assert CHARS.count(sent) <= limit


def test_a_text_that_was_cut_in_another_form_is_a_msg() -> None:
    kept, report = Budget(40, CHARS, cut="end").fit(GEMINI[-1:])
    assert report.cut == (0,)
    assert kept == [Msg("user", kept[0].text, "user")]  # type: ignore[attr-defined]  # it is a Msg now
    assert messages_from([*GEMINI[:1], *kept])


def test_a_text_cut_in_an_openai_dict_leaves_the_rest_of_the_dict() -> None:
    ask = msg("assistant", None, tool_calls=[function_call()])
    items = [ask, msg("tool", "one. " * 90, tool_call_id="1", name="f"), msg("user", "so?")]
    kept, report = Budget(200, CHARS, cut="end").fit(items)
    assert report.cut == (1,)
    assert kept[0] == items[0]
    assert kept[1] == items[1] | {"content": kept[1]["content"]}
    assert str(kept[1]["content"]).endswith("[…]")


@pytest.mark.parametrize("limit", range(20, 34))
def test_a_cut_never_leaves_an_empty_message(limit: int) -> None:
    """Where nothing of a text fits, its message goes; where it must stay, that is an error."""
    messages = [msg("assistant", "x" * 400), msg("user", "u" * 20)]
    kept, _ = Budget(limit, CHARS, cut="end").fit(messages)
    assert all(message["content"] not in ("", "[…]") for message in kept)
    with pytest.raises(BudgetError, match="the parts that are never dropped have"):
        Budget(limit, CHARS, cut="end").fit([msg("system", "s" * (limit - 3)), msg("user", "x" * 99)])


def test_the_value_of_the_input_is_never_cut_to_nothing() -> None:
    with pytest.raises(
        BudgetError,
        match=r"slots\['input'\] is limited to 2 tokens, but its value has 12 tokens \(10 too many\) and would be",
    ):
        ChatPrompter("Help.", budget=Budget(900, CHARS, slots={"input": 2})).generate_prompt("How are you?")


def test_what_would_stand_before_the_users_turn_goes_with_its_reason() -> None:
    messages = [msg("system", "s" * 10), *talk(6)[1:], msg("user", "u" * 10)]
    kept, report = Budget(35, CHARS, start_on="user").fit(messages)
    assert [message["role"] for message in kept] == ["system", "user"]
    reasons = {each.index: each.reason for each in report.messages if each.fate == "dropped"}
    assert reasons[5] == "before the first user turn"
    assert reasons[1] == "the oldest go first, down to low_water=0.5"
    # Without a limit too: the conversation begins with the assistant.
    assert Budget(None, CHARS, start_on="user").fit(messages)[1].dropped == (1,)
    assert Budget(None, CHARS, start_on="user", protect={1}).fit(messages)[1].dropped == ()
    cut = Budget(60, CHARS, cut="end", start_on="user").fit([msg("assistant", "x" * 200), msg("user", "new")])[1]
    assert str(cut) == "203 → 3 of 60 tokens: 1 dropped (before the first user turn)"
    with pytest.raises(BudgetError, match="start_on must be 'user' or None, not 'assistant'"):
        Budget(9, start_on="assistant")  # type: ignore[arg-type]


def test_an_exchange_before_the_users_turn_goes_whole() -> None:
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
def test_a_history_that_waits_for_an_answer_keeps_its_question_and_what_follows_it(start_on: Any) -> None:
    """The question stands in the history, not in the input: it is what never goes, and what is left begins with it."""
    loop = [msg("assistant", None, tool_calls=[function_call()]), msg("tool", "result", tool_call_id="1")]
    history = [*talk(8), msg("user", "question"), *loop]
    room = CHARS.count(history[8:])
    for limit, count in ((room, 3), (room + 9, 3), (room + 10, 3 if start_on else 4), (room + 20, 5), (900, 11)):
        prompter = ChatPrompter("", system="", budget=exactly(limit, CHARS, start_on=start_on))
        made, report = prompter.fit(None, history, format="openai")
        assert made["messages"] == history[-count:]
        assert report.dropped == tuple(range(11 - count))
        assert exactly(limit, CHARS, start_on=start_on).fit(history)[0] == history[-count:]
    # In steps, no message stays without the one that it answers.
    steps = ChatPrompter("", system="", budget=Budget(100, CHARS, low_water=0.3))
    report = steps.fit(None, [*talk(2, 20), msg("user", "So? ")])[1]
    assert (report.dropped, report.ends_prefix) == ((0, 1), True)
    # With less, the exchange goes, and the question stays.
    assert exactly(room - 1, CHARS).fit(history)[0] == [history[8]]
    with pytest.raises(BudgetError, match=r"the parts that are never dropped have 8 tokens \(newest user turn 8\)"):
        exactly(7, CHARS).fit(history)


def test_where_no_user_speaks_all_stays_unless_the_users_turn_follows() -> None:
    history = [msg("system", "s"), msg("assistant", "a" * 10), msg("assistant", "b" * 10)]
    assert Budget(900, CHARS, start_on="user").fit(history)[0] == history
    prompter = ChatPrompter("", system="", budget=Budget(900, CHARS, start_on="user"))
    made, report = prompter.fit("So?", history[1:], format="openai")
    assert made["messages"] == [msg("user", "So?")]
    assert [line.after for line in report.messages] == [0, 0, 3]


def test_formatters_prompters_and_modules_begin_with_the_user_too() -> None:
    budget = Budget(900, CHARS, start_on="user")
    history = [msg("assistant", "Good morning."), msg("user", "Hi"), msg("assistant", "Hello")]
    payload = ChatFormatter("openai", budget=budget).format(*history, msg("user", "So?"))
    assert [message["role"] for message in payload["messages"]] == ["user", "assistant", "user"]
    prompter = ChatPrompter("Help.", budget=budget)
    assert "Good morning." not in prompter.generate_prompt("So?", history)
    made = OnlineChatModule("openai", api_key="k", budget=budget).prompt("Help.").payload("So?", history[:1])
    assert [message["role"] for message in made["messages"]] == ["system", "user"]
