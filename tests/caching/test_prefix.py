"""``check_prefix``: whether a prompt extends the previous one, what changed, and the void reasoning blocks."""

from typing import Any

import pytest

from lazyprompt import Budget, CharTokenCounter, ChatFormatter, ChatPrompter, FormatError
from lazyprompt.caching import PrefixChange, PromptCall, check_prefix

USER = {"role": "user", "content": "hi"}
REPLY = {"role": "assistant", "content": "hello"}
SIGNED = {"type": "thinking", "thinking": "hm", "signature": "s"}
THOUGHT = {"role": "assistant", "content": [SIGNED, {"type": "text", "text": "hello"}]}
MARKED = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
TOOL = {"name": "find", "input_schema": {"type": "object"}}
EARLIER = "the caller changed earlier messages"
SYSTEM = "the caller changed the system text"


def payload(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"messages": [*messages], **fields}


@pytest.mark.parametrize(
    ("previous", "later"),
    [
        (payload(USER), payload(USER)),
        (payload(USER), payload(USER, REPLY, USER)),
        (payload(USER, system="s", tools=[TOOL]), payload(USER, THOUGHT, USER, system="s", tools=[TOOL])),
        (payload(USER), payload({"role": "user", "content": [{"type": "text", "text": "hi"}]}, REPLY)),
        (payload({"role": "user", "content": [MARKED]}), payload(USER, REPLY)),
        ({"input": [USER, REASONING]}, {"input": [USER, REASONING, REPLY, USER]}),
        ("### Input:\nhi\n", "### Input:\nhi\n### Response:\nhello\n"),
    ],
)
def test_a_prompt_that_only_adds_text_keeps_the_prefix(previous: object, later: object) -> None:
    assert check_prefix(previous, later) is None


@pytest.mark.parametrize(
    ("previous", "later", "change"),
    [
        (payload(USER, tools=[TOOL]), payload(USER, REPLY), (None, "tools", "the caller changed the tools", 0)),
        (payload(USER, system="a"), payload(USER, THOUGHT, USER, system="b"), (None, "system", SYSTEM, 1)),
        (
            payload({"role": "system", "content": "a"}, USER),
            payload({"role": "system", "content": "b"}, USER),
            (0, "system", SYSTEM, 0),
        ),
        (payload(USER, THOUGHT, USER), payload(USER, THOUGHT, REPLY), (2, "history", EARLIER, 0)),
        ({"input": [USER, REASONING, REPLY]}, {"input": [REPLY, REASONING, REPLY]}, (0, "history", EARLIER, 1)),
        (payload(USER, REPLY), payload(USER), (1, "history", EARLIER, 0)),
    ],
)
def test_a_prefix_change_has_its_place_and_the_number_of_void_reasoning_blocks(
    previous: object, later: object, change: tuple[int | None, str, str, int]
) -> None:
    assert check_prefix(previous, later) == PrefixChange(*change)


def test_a_change_of_flat_text_without_slots_is_reported() -> None:
    assert str(check_prefix("One.", "Two.")) == "text: the caller changed the text"


def test_a_prefix_change_names_the_slot_of_a_prompter() -> None:
    prompter = ChatPrompter({"system": "It is {now}.", "user": "{question}"}, system="")
    one, two = (PromptCall(prompter, {"now": now, "question": "Why?"}) for now in ("Monday", "Tuesday"))
    change = check_prefix(one, two)
    assert change == PrefixChange(0, "now", "the caller changed the slot 'now'", 0)


def test_a_prefix_change_by_a_budget_or_a_provider_rule_names_its_cause() -> None:
    messages = [USER, {"role": "assistant", "content": "x" * 90}, USER]
    formatter = ChatFormatter("anthropic", budget=Budget(150, CharTokenCounter()))
    longer = formatter.format(*messages, {"role": "assistant", "content": "y" * 90}, USER)
    assert check_prefix(formatter.format(*messages), longer) == PrefixChange(
        0, "history", "the budget dropped or cut earlier messages", 0
    )
    # A budget that dropped nothing was named as the cause if the previous prompt had no budget.
    assert check_prefix(payload(REPLY), formatter.format(USER)) == PrefixChange(0, "history", EARLIER, 0)
    old = ChatFormatter("anthropic", model="claude-sonnet-4-5")
    late = old.format(USER, REPLY, {"role": "system", "content": "Be brief."}, USER)
    assert str(check_prefix(old.format(USER), late)) == (
        "system: a rule of the provider: messages[2] (text) moved: system text must be at the front"
    )
    new = ChatFormatter("anthropic", model="claude-opus-4-8")
    one, two = ({"role": "system", "content": text} for text in "ab")
    change = check_prefix(new.format(one, USER), new.format(two, USER, REPLY, one, USER))
    assert change == PrefixChange(None, "system", SYSTEM, 0)
    gemini = ChatFormatter("gemini")
    strict = gemini.format(USER, tools=[{"type": "function", "function": {"name": "f", "strict": True}}])
    assert check_prefix(gemini.format(USER), strict) == PrefixChange(
        None, "tools", "a rule of the provider: tools (strict) left out: gemini does not support 'strict' of a tool", 0
    )


def test_the_text_of_a_prefix_change_counts_void_reasoning_blocks() -> None:
    change = check_prefix(payload(USER, system="a"), payload(USER, THOUGHT, THOUGHT, system="b"))
    assert str(change) == "system: the caller changed the system text; void signed thoughts after it: 2"


def test_check_prefix_refuses_an_object_that_is_not_a_prompt() -> None:
    with pytest.raises(FormatError, match="a call must be a payload with one of the keys messages"):
        check_prefix(payload(USER), 5)
