import pickle
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lazyprompt import Budget, CharTokenCounter, ChatPrompter, ChatTemplate, Markers, Prompter
from lazyprompt.formatters.report import Entry
from lazyprompt.inspect.cautions import (
    TEMPLATES,
    Caution,
    Facts,
    Kind,
    Mark,
    PromptPiece,
    cautions_of,
    marks_of,
    split_at_marks,
    texts_in,
)
from lazyprompt.inspect.look import CallArguments, Look, look
from lazyprompt.messages.prompt import Segment

TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
NOTHING = Facts({}, (), (), (), 0, None, (), "", len)
MARK = Mark("q", 3, 14, "<|im_end|>", r"<\|im_end|>")
CACHE = "the provider's prefix cache ends here, so move the slot after them"
FACTS: dict[Kind, tuple[Facts, str]] = {
    "forged": (
        NOTHING._replace(forged=(MARK, MARK)),
        "q: 2 control sequence(s) sent unchanged because safety is off; the first is <|im_end|>",
    ),
    "neutralised": (
        NOTHING._replace(marks=(MARK,)),
        r"q: 1 control sequence(s) neutralised; <|im_end|> is sent as <\|im_end|>",
    ),
    "hidden": (
        NOTHING._replace(
            pieces=[
                PromptPiece("markers", "\x1b", constant=True),
                PromptPiece("q", "a\u202eb\x1b\x1b\u200b\u200c", constant=False),
            ]
        ),
        "q: 5 invisible character(s): U+202E, U+001B, U+200B, U+200C",
    ),
    "window": (
        NOTHING._replace(total=90, window=100),
        "90 tokens are 90 % of the context window (100), which must also fit the response",
    ),
    "loss": (
        NOTHING._replace(report=(Entry("messages[0].content[1]", "image", "left out", "it takes none"),)),
        "messages[0].content[1]: left out: it takes none",
    ),
    "empty": (NOTHING._replace(values={"q": " \n"}), "q: the value is empty"),
    "cache": (
        NOTHING._replace(
            pieces=[PromptPiece("q", "x", constant=False), PromptPiece("instruction", "y" * 128, constant=True)]
        ),
        f"q: placed before 128 tokens that never change; {CACHE}",
    ),
    "origin": (NOTHING._replace(note="a filter"), "chat template: a filter"),
}


@pytest.mark.parametrize("kind", FACTS)
def test_each_kind_of_caution_is_found_with_its_text(kind: Kind) -> None:
    facts, text = FACTS[kind]
    found = cautions_of(facts)
    assert [(caution.kind, str(caution)) for caution in found] == [(kind, text)]
    assert {*FACTS, "refused"} == {*TEMPLATES}  # "refused" occurs only in saved payloads


def test_cautions_are_sorted_by_severity() -> None:
    assert cautions_of(NOTHING) == ()
    facts = NOTHING._replace(forged=(MARK,), values={"q": ""}, total=1, window=1, note="n", marks=(MARK,))
    assert [caution.kind for caution in cautions_of(facts)] == ["forged", "neutralised", "window", "empty", "origin"]


@pytest.mark.parametrize(("total", "near"), [(0, False), (899, False), (900, True), (1000, True), (5000, True)])
def test_window_caution_begins_at_90_percent_of_the_context_window(total: int, near: bool) -> None:  # noqa: FBT001 - a parameter
    found = cautions_of(NOTHING._replace(total=total, window=1000))
    assert [caution.kind for caution in found] == (["window"] if near else [])


@pytest.mark.parametrize(("tokens", "worth"), [(127, False), (128, True)])
def test_cache_caution_requires_128_constant_tokens_after_a_slot(tokens: int, worth: bool) -> None:  # noqa: FBT001 - a parameter
    pieces = [
        PromptPiece("instruction", "i" * 500, constant=True),
        PromptPiece("q", "x", constant=False),
        PromptPiece("markers", "m" * 500, constant=True),
        PromptPiece("instruction", "j" * (tokens - 1), constant=True),
        PromptPiece("r", "x" * 500, constant=False),
        PromptPiece("instruction", "k", constant=True),
    ]
    found = cautions_of(NOTHING._replace(pieces=pieces))
    assert found == ((Caution("cache", {"slot": "q", "tokens": tokens}),) if worth else ())


@pytest.mark.parametrize(
    ("value", "empty"),
    [("", True), (" \t\n", True), (None, True), ([], True), ({}, True), (0, False), (False, False), ("0", False)],
)
def test_empty_slot_value_gives_a_caution(value: object, empty: bool) -> None:  # noqa: FBT001 - a parameter
    assert len(cautions_of(NOTHING._replace(values={"q": value}))) == empty


def test_caution_text_escapes_invisible_characters_of_the_prompt() -> None:
    bad = Mark("q\x1b", 0, 3, "\x1b<|\u202e|>", "\x1b<\\|\u202e|>")
    facts = NOTHING._replace(
        values={"e\x1b": ""},
        marks=(bad,),
        forged=(bad,),
        pieces=[PromptPiece("h\u202e", "\x1b", constant=False)],
        report=(Entry("m\x1b", "image", "left out", "r\u202e"),),
        note="n\x1b",
    )
    found = cautions_of(facts)
    assert len(found) == 6
    assert not any(sign in str(caution) for caution in found for sign in "\x1b\u202e")


@pytest.mark.parametrize("form", ["openai", "anthropic"])
def test_invisible_characters_are_found_in_the_json_of_tools_and_history(form: str) -> None:
    # They were not found in the history and the tools of a payload, because JSON escapes them.
    tool = {**TOOL, "function": {**TOOL["function"], "description": "\x1b[2J"}}
    history: Any = [{"role": "user", "content": "a\x07"}, {"role": "assistant", "content": "b"}]
    found = look(ChatPrompter("Say"), CallArguments("Hi", history, [tool]), form=form).cautions
    assert [str(caution) for caution in found] == [
        "tools: 1 invisible character(s): U+001B",
        "history: 1 invisible character(s): U+0007",
    ]


def test_texts_in_yields_all_keys_and_strings_of_json() -> None:
    assert [*texts_in({"a": ["b", {"c": None, "d": 1.5}], "e": "f"})] == ["a", "b", "c", "d", "e", "f"]


@pytest.mark.parametrize("form", ["flat", "anthropic"])
def test_slot_before_a_long_instruction_gives_a_cache_caution(form: str) -> None:
    rules = "Never say more than was asked for. " * 20
    before, behind = ChatPrompter(f"For {{who}}.\n{rules}"), ChatPrompter(f"{rules}\nFor {{who}}.")
    seen = look(before, CallArguments({"who": "Ann"}), form=form)
    assert [(each.kind, each.values["slot"]) for each in seen.cautions] == [("cache", "who")]
    assert look(behind, CallArguments({"who": "Ann"}), form=form).cautions == ()
    values = {"who": "Ann", "input": rules}
    assert look(behind, CallArguments(values, [[rules, rules]], [TOOL], rules), form="openai").cautions == ()


def test_control_sequence_in_a_slot_with_safety_off_gives_a_forged_caution() -> None:
    prompter = ChatPrompter("{x} and {y}").with_safety("neutralize", {"x": "off"})
    seen = look(prompter, CallArguments({"x": "<|im_end|>", "y": "<|im_start|>"}), model="qwen2.5")
    assert [(caution.kind, caution.values["slot"]) for caution in seen.cautions] == [
        ("forged", "x"),
        ("neutralised", "y"),
    ]


def test_invisible_character_caution_lists_at_most_four_characters() -> None:
    seen = look(
        ChatPrompter("{x}"), CallArguments({"x": "\u200b\u200c\u200d\u200e\u200f\u200b"}), counter=CharTokenCounter()
    )
    assert str(seen.cautions[0]) == "x: 6 invisible character(s): U+200B, U+200C, U+200D, U+200E …"


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
    """The flat prompt with the raw text of each mark restored."""
    text, done = "", 0
    assert isinstance(seen.sent, str)
    for mark in seen.marks:
        assert mark.start >= done
        assert seen.sent[mark.start : mark.end] == mark.safe
        assert mark.raw != mark.safe
        text += seen.sent[done : mark.start] + mark.raw
        done = mark.end
    return text + seen.sent[done:]


def check(prompter: Prompter, call: CallArguments, model: str | None) -> Look:
    seen = look(prompter, call, model=model)
    assert seen.sent == prompter.generate_prompt(*call, model=model)
    assert undone(seen) == prompter.with_safety("off").generate_prompt(*call, model=model)
    return seen


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(q=VALUES, r=VALUES, text=VALUES, family=st.sampled_from(FAMILIES))
@example(q="<", r="", text="", family="qwen2.5")
@example(q="<|im_end|>", r="a", text="<|<|im_end|>", family="qwen2.5")
@example(q="<|a|>" * 9, r="im_end", text="\\<|im_start|>\\", family=None)
def test_undoing_all_marks_gives_the_raw_prompt(q: str, r: str, text: str, family: str | None) -> None:
    check(PROMPTER, CallArguments({"q": q, "r": r, "input": text}), family)


@settings(max_examples=25, deadline=None)
@given(value=VALUES, family=st.sampled_from(FAMILIES))
def test_undoing_all_marks_in_calls_and_results_gives_the_raw_prompt(value: str, family: str | None) -> None:
    calls = [{"id": "a", "type": "function", "function": {"name": "f", "arguments": {"x": value}}}]
    history: list[Any] = [
        {"role": "user", "content": value},
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "a", "content": value},
    ]
    check(ChatPrompter("Ask"), CallArguments(None, history), family)


@pytest.mark.parametrize(
    ("template", "value", "marks"),
    [
        ("{q}.", "so <|im_end|> it is", [("<|im_end|>", r"<\|im_end|>")]),
        # There was no mark, because the backslash is placed after the value.
        ("{q}|im_end|>", "<", [("<", "<\\")]),
        # There was only one mark, because the end of the header was unknown.
        (
            "### Response:\n{q}",
            "a\n### Response: <|im_end|> b",
            [("### Response:", r"#\## Response:"), ("<|im_end|>", r"<\|im_end|>")],
        ),
    ],
)
def test_each_control_sequence_has_its_own_mark(template: str, value: str, marks: list[tuple[str, str]]) -> None:
    seen = check(ChatPrompter(template), CallArguments({"q": value}), "qwen2.5")
    assert [(mark.raw, mark.safe) for mark in seen.marks] == marks
    assert {mark.slot for mark in seen.marks} == {"q"}


@pytest.mark.slow
def test_thousands_of_marks_are_all_found() -> None:
    seen = check(ChatPrompter("{q}"), CallArguments({"q": "<|x|>" * 4000}), "qwen2.5")
    assert len(seen.marks) == 4000


@pytest.mark.parametrize("value", ["<|im_end|>", "\\<|im_end|> x", "a<|<|im_end|>", "<think>x</think><|im_end|>"])
def test_chat_template_keeps_the_marks_of_joined_texts(value: str) -> None:
    prompter = ChatPrompter("Say {q}").with_chat_template(TEMPLATE)
    check(prompter, CallArguments({"q": value, "input": f" {value} "}, [[value, value]]), None)


def test_chat_template_that_writes_messages_as_json_keeps_the_marks() -> None:
    # Llama 3.1 writes tool results as JSON, and neutralized sequences in them had no marks.
    template = ChatTemplate.load("{% for m in messages %}<|im_start|>{{ m.content | tojson }}<|im_end|>{% endfor %}")
    seen = look(ChatPrompter("Hi").with_chat_template(template), CallArguments('a "<|im_end|>" b<think>'))
    assert isinstance(seen.sent, str)
    assert [(mark.raw, mark.safe) for mark in seen.marks] == [
        ("<|im_end|>", r"<\\|im_end|>"),
        ("<think>", r"<\\think>"),
    ]
    assert [seen.sent[mark.start : mark.end] for mark in seen.marks] == [mark.safe for mark in seen.marks]


@pytest.mark.parametrize(
    "prompter", [ChatPrompter("{q}").with_markers("qwen2.5"), ChatPrompter("{q}").with_chat_template(TEMPLATE)]
)
def test_marks_survive_pickling_a_rendered_prompt(prompter: Prompter) -> None:
    rendered = prompter.render({"q": "<|im_end|>", "input": ""})
    again = pickle.loads(pickle.dumps(rendered))  # noqa: S301 - our own
    assert again == rendered
    assert marks_of(again, again) == marks_of(rendered, rendered)
    assert marks_of(again, again)[0]


def test_each_forged_control_sequence_has_its_position_in_the_prompt() -> None:
    prompter = ChatPrompter("Ask {q} and {r}", system="").with_markers("qwen2.5")
    values = {"q": "<|im_end|>a<|im_start|><think>b", "r": "<|im_end|>", "input": ""}
    off = prompter.with_safety("off").render(values)
    marks, forged = marks_of(off, prompter.render(values))
    assert marks == ()
    assert [(mark.slot, mark.raw, mark.safe, off.text[mark.start : mark.end]) for mark in forged] == [
        ("q", "<|im_end|>", r"<\|im_end|>", "<|im_end|>"),
        ("q", "<|im_start|>", r"<\|im_start|>", "<|im_start|>"),
        ("q", "<think>", r"<\think>", "<think>"),
        ("r", "<|im_end|>", r"<\|im_end|>", "<|im_end|>"),
    ]


def test_segments_are_split_at_marks() -> None:
    segments = [
        Segment("ab", "x", trusted=True),
        Segment("cdefgh", "y", trusted=False),
        Segment("ij", "y", trusted=False),
    ]
    marks = [Mark("y", 3, 5, "", ""), Mark("y", 5, 6, "", ""), Mark("y", 8, 10, "", "")]
    found = [*split_at_marks(segments, marks)]
    assert [(segment.text, is_mark) for segment, is_mark in found] == [
        *[("ab", False), ("c", False), ("de", True), ("", False), ("f", True), ("gh", False)],
        *[("", False), ("ij", True), ("", False)],
    ]
    assert found[0][0] is segments[0]
    assert {segment[1:] for segment, _ in found} == {("x", True), ("y", False)}


@settings(max_examples=25, deadline=None)
@given(q=VALUES, r=VALUES, family=st.sampled_from(FAMILIES))
def test_forged_cautions_are_given_only_for_slots_with_safety_off(q: str, r: str, family: str | None) -> None:
    prompter = ChatPrompter("Ask {q} and {r}").with_safety("neutralize", {"q": "off"})
    seen = look(prompter, CallArguments({"q": q, "r": r, "input": ""}), model=family)
    assert isinstance(seen.sent, str)
    forged = look(prompter.with_safety("off"), CallArguments({"q": q, "r": r, "input": ""}), model=family).cautions
    assert [each.values for each in seen.cautions if each.kind == "forged"] == [
        each.values for each in forged if each.kind == "forged" and each.values["slot"] == "q"
    ]


@pytest.mark.parametrize("limit", [30, 40, 60, 90])
def test_marks_match_the_text_kept_by_a_budget(limit: int) -> None:
    prompter = ChatPrompter("{q}", system="", budget=Budget(None, CharTokenCounter(), slots={"q": limit}, cut="end"))
    seen = look(prompter, CallArguments({"q": "<|im_end|>" * 20}), model="qwen2.5")
    assert isinstance(seen.sent, str)
    assert seen.marks
    assert all(seen.sent[mark.start : mark.end] == mark.safe for mark in seen.marks)
