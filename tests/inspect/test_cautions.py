from __future__ import annotations

from typing import Any

import pytest

from lazyprompt import CharTokenCounter, ChatPrompter
from lazyprompt.formatters.report import Entry
from lazyprompt.inspect.cautions import SAID, Caution, Facts, Kind, Piece, cautions_of, texts_in
from lazyprompt.inspect.look import Call, look
from lazyprompt.inspect.marks import Mark

NOTHING = Facts({}, (), (), (), 0, None, (), "", len)
MARK = Mark("q", 3, 14, "<|im_end|>", r"<\|im_end|>")
CACHE = "a provider's cache of the prefix ends at it, so put it behind them"
FACTS: dict[Kind, tuple[Facts, str]] = {
    "forged": (
        NOTHING._replace(forged=(MARK, MARK)),
        "q: 2 control sequence(s) sent as they are, as safety is off here; the first is <|im_end|>",
    ),
    "neutralised": (
        NOTHING._replace(marks=(MARK,)),
        r"q: 1 control sequence(s) made harmless; <|im_end|> is sent as <\|im_end|>",
    ),
    "hidden": (
        NOTHING._replace(pieces=[Piece("q", "a\u202eb\x1b\x1b", constant=False)]),
        "q: 3 sign(s) that nobody sees: U+202E, U+001B",
    ),
    "window": (
        NOTHING._replace(total=90, window=100),
        "90 tokens are 90 % of the context window (100); the answer has to fit in as well",
    ),
    "loss": (
        NOTHING._replace(report=(Entry("messages[0].content[1]", "image", "left out", "it takes none"),)),
        "messages[0].content[1]: left out: it takes none",
    ),
    "empty": (NOTHING._replace(values={"q": " \n"}), "q: the value is empty"),
    "cache": (
        NOTHING._replace(pieces=[Piece("q", "x", constant=False), Piece("instruction", "y" * 128, constant=True)]),
        f"q: stands before 128 tokens that never change; {CACHE}",
    ),
    "origin": (NOTHING._replace(note="a filter"), "where the text comes from is not known: a filter"),
}


@pytest.mark.parametrize("kind", FACTS)
def test_each_kind_is_found_and_says_what_it_is(kind: Kind) -> None:
    facts, said = FACTS[kind]
    found = cautions_of(facts)
    assert [(caution.kind, str(caution)) for caution in found] == [(kind, said)]


def test_there_is_a_test_of_each_kind() -> None:
    assert {*FACTS, "refused"} == {*SAID}  # what is refused is found in saved payloads alone


def test_what_matters_most_comes_first() -> None:
    facts = NOTHING._replace(forged=(MARK,), values={"q": ""}, total=1, window=1, note="n", marks=(MARK,))
    assert [caution.kind for caution in cautions_of(facts)] == ["forged", "neutralised", "window", "empty", "origin"]


def test_nothing_is_said_where_there_is_nothing() -> None:
    assert cautions_of(NOTHING) == ()


@pytest.mark.parametrize(("total", "near"), [(0, False), (899, False), (900, True), (1000, True), (5000, True)])
def test_the_window_is_near_from_nine_tenths_on(total: int, near: bool) -> None:  # noqa: FBT001 - a parameter
    found = cautions_of(NOTHING._replace(total=total, window=1000))
    assert [caution.kind for caution in found] == (["window"] if near else [])


@pytest.mark.parametrize(("tokens", "worth"), [(127, False), (128, True)])
def test_only_what_a_cache_would_keep_is_worth_moving(tokens: int, worth: bool) -> None:  # noqa: FBT001 - a parameter
    pieces = [
        Piece("instruction", "i" * 500, constant=True),
        Piece("q", "x", constant=False),
        Piece("markers", "m" * 500, constant=True),
        Piece("instruction", "j" * (tokens - 1), constant=True),
        Piece("r", "x" * 500, constant=False),
        Piece("instruction", "k", constant=True),
    ]
    found = cautions_of(NOTHING._replace(pieces=pieces))
    assert found == ((Caution("cache", {"slot": "q", "tokens": tokens}),) if worth else ())


@pytest.mark.parametrize(
    ("value", "empty"),
    [("", True), (" \t\n", True), (None, True), ([], True), ({}, True), (0, False), (False, False), ("0", False)],
)
def test_what_is_empty(value: object, empty: bool) -> None:  # noqa: FBT001 - a parameter
    assert len(cautions_of(NOTHING._replace(values={"q": value}))) == empty


def test_all_that_is_from_a_prompt_is_written_out() -> None:
    bad = Mark("q\x1b", 0, 3, "\x1b<|\u202e|>", "\x1b<\\|\u202e|>")
    facts = NOTHING._replace(
        values={"e\x1b": ""},
        marks=(bad,),
        forged=(bad,),
        pieces=[Piece("h\u202e", "\x1b", constant=False)],
        report=(Entry("m\x1b", "image", "left out", "r\u202e"),),
        note="n\x1b",
    )
    found = cautions_of(facts)
    assert len(found) == 6
    assert not any(sign in str(caution) for caution in found for sign in "\x1b\u202e")


def test_in_json_signs_are_found_that_it_escapes() -> None:
    # Once not found in the history and the tools of a payload: JSON has an escape for an escape.
    tool = {"type": "function", "function": {"name": "f", "description": "\x1b[2J", "parameters": {"type": "object"}}}
    history: Any = [{"role": "user", "content": "a\x07"}, {"role": "assistant", "content": "b"}]
    for form in ("openai", "anthropic"):
        found = look(ChatPrompter("Say"), Call("Hi", history, [tool]), form=form).cautions
        assert [str(caution) for caution in found] == [
            "tools: 1 sign(s) that nobody sees: U+001B",
            "history: 1 sign(s) that nobody sees: U+0007",
        ]


def test_texts_of_json() -> None:
    assert [*texts_in({"a": ["b", {"c": None, "d": 1.5}], "e": "f"})] == ["a", "b", "c", "d", "e", "f"]


def test_a_slot_before_a_long_instruction_breaks_the_cache() -> None:
    rules = "Never say more than was asked for. " * 20
    before, behind = ChatPrompter(f"For {{who}}.\n{rules}"), ChatPrompter(f"{rules}\nFor {{who}}.")
    for form in ("flat", "anthropic"):
        seen = look(before, Call({"who": "Ann"}), form=form)
        assert [(each.kind, each.values["slot"]) for each in seen.cautions] == [("cache", "who")]
        assert look(behind, Call({"who": "Ann"}), form=form).cautions == ()


def test_what_safety_lets_through_is_forged() -> None:
    prompter = ChatPrompter("{x} and {y}").with_safety("neutralize", {"x": "off"})
    seen = look(prompter, Call({"x": "<|im_end|>", "y": "<|im_start|>"}), model="qwen2.5")
    assert [(caution.kind, caution.values["slot"]) for caution in seen.cautions] == [
        ("forged", "x"),
        ("neutralised", "y"),
    ]


def test_more_kinds_of_signs_than_are_named() -> None:
    seen = look(ChatPrompter("{x}"), Call({"x": "\u200b\u200c\u200d\u200e\u200f\u200b"}), counter=CharTokenCounter())
    assert str(seen.cautions[0]) == "x: 6 sign(s) that nobody sees: U+200B, U+200C, U+200D, U+200E …"
