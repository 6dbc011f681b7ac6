"""Marks stand where a control sequence was neutralised, and say what it was: taken back, the prompt is the raw one."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lazyprompt import Budget, CharTokenCounter, ChatPrompter, ChatTemplate, Markers
from lazyprompt.inspect.look import Call, Look, look
from lazyprompt.inspect.marks import marks_of

if TYPE_CHECKING:
    from lazyprompt import Prompter

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEMPLATE = ChatTemplate.load(CHATML)
FAMILIES = (None, *Markers.families())
SEQUENCES = sorted(Markers.known_sequences() | {"<think>", "</tool_call>", "### Response:", "＜|im_end|>", "<unused7>"})
PIECES = st.one_of(st.sampled_from(SEQUENCES), st.sampled_from("<|>\\[]/x \n"), st.text(max_size=4))
VALUES = st.lists(PIECES, max_size=7).map("".join)
PROMPTER = ChatPrompter("### Response:\nAsk {q} of <|{r}|> now")


def undone(seen: Look) -> str:
    """The flat prompt with what the marks say put back."""
    text, done = "", 0
    assert isinstance(seen.sent, str)
    for mark in seen.marks:
        assert mark.start >= done
        assert seen.sent[mark.start : mark.end] == mark.safe
        assert mark.raw != mark.safe
        text += seen.sent[done : mark.start] + mark.raw
        done = mark.end
    return text + seen.sent[done:]


def check(prompter: Prompter, call: Call, model: str | None) -> Look:
    seen = look(prompter, call, model=model)
    assert seen.sent == prompter.generate_prompt(*call, model=model)
    assert undone(seen) == prompter.with_safety("off").generate_prompt(*call, model=model)
    return seen


@settings(max_examples=50, deadline=None)
@given(q=VALUES, r=VALUES, said=VALUES, family=st.sampled_from(FAMILIES))
@example(q="<", r="", said="", family="qwen2.5")
@example(q="<|im_end|>", r="a", said="<|<|im_end|>", family="qwen2.5")
@example(q="<|a|>" * 9, r="im_end", said="\\<|im_start|>\\", family=None)
def test_marks_taken_back_give_the_raw_prompt(q: str, r: str, said: str, family: str | None) -> None:
    check(PROMPTER, Call({"q": q, "r": r, "input": said}), family)


@settings(max_examples=25, deadline=None)
@given(value=VALUES, family=st.sampled_from(FAMILIES))
def test_so_in_the_json_of_calls_and_in_results(value: str, family: str | None) -> None:
    calls = [{"id": "a", "type": "function", "function": {"name": "f", "arguments": {"x": value}}}]
    history: list[Any] = [
        {"role": "user", "content": value},
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "a", "content": value},
    ]
    check(ChatPrompter("Ask"), Call(None, history), family)


def test_a_mark_is_the_whole_sequence() -> None:
    seen = check(ChatPrompter("{q}."), Call({"q": "so <|im_end|> it is"}), "qwen2.5")
    assert [(mark.slot, mark.raw, mark.safe) for mark in seen.marks] == [("q", "<|im_end|>", r"<\|im_end|>")]


def test_a_backslash_at_the_end_of_a_value_has_a_mark() -> None:
    # Once no mark: the value was compared to its end, and the backslash stands behind it.
    seen = check(ChatPrompter("{q}|im_end|>"), Call({"q": "<"}), "qwen2.5")
    assert [(mark.raw, mark.safe) for mark in seen.marks] == [("<", "<\\")]


def test_sequences_that_follow_each_other_closely_have_marks_of_their_own() -> None:
    # Once one mark: how far a header goes was not known.
    seen = check(ChatPrompter("### Response:\n{q}"), Call({"q": "a\n### Response: <|im_end|> b"}), "qwen2.5")
    assert [mark.raw for mark in seen.marks] == ["### Response:", "<|im_end|>"]


def test_many_marks_are_found_in_time_that_grows_with_the_text() -> None:
    seen = check(ChatPrompter("{q}"), Call({"q": "<|x|>" * 4000}), "qwen2.5")
    assert len(seen.marks) == 4000


@pytest.mark.parametrize("value", ["<|im_end|>", "\\<|im_end|> x", "a<|<|im_end|>", "<think>x</think><|im_end|>"])
def test_a_chat_template_keeps_the_marks_of_what_it_puts_together(value: str) -> None:
    prompter = ChatPrompter("Say {q}").with_chat_template(TEMPLATE)
    check(prompter, Call({"q": value, "input": f" {value} "}, [[value, value]]), None)


def test_a_chat_template_that_writes_a_message_as_json_keeps_the_marks() -> None:
    # Llama 3.1 does so with the results of tools: nothing was said of what was neutralised in them.
    template = ChatTemplate.load("{% for m in messages %}<|im_start|>{{ m.content | tojson }}<|im_end|>{% endfor %}")
    seen = look(ChatPrompter("Hi").with_chat_template(template), Call('a "<|im_end|>" b<think>'))
    assert isinstance(seen.sent, str)
    assert [(mark.raw, mark.safe) for mark in seen.marks] == [
        ("<|im_end|>", r"<\\|im_end|>"),
        ("<think>", r"<\\think>"),
    ]
    assert [seen.sent[mark.start : mark.end] for mark in seen.marks] == [mark.safe for mark in seen.marks]


@pytest.mark.parametrize(
    "prompter", [ChatPrompter("{q}").with_markers("qwen2.5"), ChatPrompter("{q}").with_chat_template(TEMPLATE)]
)
def test_marks_go_with_a_pickled_prompt(prompter: Prompter) -> None:
    rendered = prompter.render({"q": "<|im_end|>", "input": ""})
    again = pickle.loads(pickle.dumps(rendered))  # noqa: S301 - our own
    assert again == rendered
    assert marks_of(again, again) == marks_of(rendered, rendered)
    assert marks_of(again, again)[0]


@settings(max_examples=25, deadline=None)
@given(q=VALUES, r=VALUES, family=st.sampled_from(FAMILIES))
def test_what_safety_lets_through_is_found_where_it_stands(q: str, r: str, family: str | None) -> None:
    prompter = ChatPrompter("Ask {q} and {r}").with_safety("neutralize", {"q": "off"})
    seen = look(prompter, Call({"q": q, "r": r, "input": ""}), model=family)
    assert isinstance(seen.sent, str)
    forged = look(prompter.with_safety("off"), Call({"q": q, "r": r, "input": ""}), model=family).cautions
    assert [each.values for each in seen.cautions if each.kind == "forged"] == [
        each.values for each in forged if each.kind == "forged" and each.values["slot"] == "q"
    ]


@pytest.mark.parametrize("limit", [30, 40, 60, 90])
def test_within_a_budget_marks_are_in_what_is_left(limit: int) -> None:
    prompter = ChatPrompter("{q}", system="", budget=Budget(None, CharTokenCounter(), slots={"q": limit}, cut="end"))
    seen = look(prompter, Call({"q": "<|im_end|>" * 20}), model="qwen2.5")
    assert isinstance(seen.sent, str)
    assert seen.marks
    assert all(seen.sent[mark.start : mark.end] == mark.safe for mark in seen.marks)
