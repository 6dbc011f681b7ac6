"""Texts that are cut to a number of tokens."""

import json
import re
import time
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from budget.helpers import msg
from lazyprompt import Budget, CharTokenCounter, Msg
from lazyprompt.budget.cut import CUT_MARK, Cut, cuttable_texts, is_empty, shorten, with_cut_of, with_text
from lazyprompt.budget.units import SlotValue
from lazyprompt.messages.msg import TextBlock, ThinkingBlock, ToolResultBlock

ENGLISH = "First of all. Then this! And that? Version 3.14 is out; see below.\nA line\nThe last sentence."
CHINESE = "第一句。第二句!第三句?最后一句。"


@pytest.mark.parametrize(
    ("text", "room", "cut", "expected"),
    [
        (ENGLISH, 500, "end", ENGLISH),
        (ENGLISH, len(ENGLISH), "middle", ENGLISH),
        ("One. Two. Three.", 15, "end", "One. Two. […]"),
        ("One. Two. Three.", 15, "middle", "One. […] Three."),
        (ENGLISH, 30, "end", "First of all. Then this! […]"),
        (ENGLISH, 75, "end", "First of all. Then this! And that? Version 3.14 is out; see below. […]"),
        (ENGLISH, 60, "middle", "First of all. Then this! […] A line\nThe last sentence."),
        (CHINESE, 9, "end", "第一句。 […]"),
        ("one two three four", 13, "end", "one two […]"),
        ("x" * 50, 10, "end", "xxxxxx […]"),
        ("x" * 50, 11, "middle", "xxx […] xxx"),
        ("abc def", 3, "end", "[…]"),
        ("abc def", 2, "end", ""),
        ("", 0, "end", ""),
        ("e\u0301" * 9, 11, "end", "e\u0301e\u0301e\u0301 […]"),
        ("👩‍👩‍👧" * 3, 9, "end", "👩‍👩‍👧 […]"),
        ("<a>One. Two.</a>\n<a>Three. Four.</a>", 25, "end", "<a>One. Two.</a> […]"),
        ("Now. <a>One. <b>Two.</b></a>\nThree.", 25, "end", "Now. […]"),
        ("Now. <a>One. Two.</a> Three.", 20, "middle", "Now. […] Three."),
        ("<A>One.</a> <br/> <li>Two. Three.", 25, "end", "<A>One.</a> <br/> […]"),
        ("<br/> <a>One. <b>Two.</b></a> Three.", 20, "end", "<br/> […]"),
        ('See <img alt="a b c d e f g h"> here', 30, "end", "See […]"),
        ("<a>One. Two. Three.</a>", 20, "end", "[…]"),
        ('{"a": "One. Two. Three."}', 20, "end", "[…]"),
        ("[1, 2, 3]", 8, "end", "[…]"),
        ("[1, 2, 3]e\u0301]", 7, "middle", "[ […] ]"),
        ("e\u0301</b>。", 6, "middle", "[…] 。"),
        ("</br></br>]", 10, "end", "</br> […]"),
        ("1</b><b>", 7, "middle", "[…] <b>"),
        ("</a><b><a>1</b>xA. </a>", 19, "middle", "</a> […]"),
        ("。x。x\n{", 5, "middle", "。 […]"),
        ("\u200d</br>1", 6, "end", "[…]"),
        ("A. bbbb cccc dddd", 12, "end", "A. bbbb […]"),
    ],
)
def test_a_text_is_cut_at_sentence_element_or_word_boundaries(text: str, room: int, cut: Cut, expected: str) -> None:
    assert shorten(text, room, len, cut) == expected


@pytest.mark.parametrize(
    ("text", "room", "cut", "expected"),
    [
        ("one two", 1, "end", "[…]"),
        ("one 。", 1, "middle", "[…]"),
        (", xA. 。\u200dA. ", 2, "middle", "[…] 。\u200dA. "),
    ],
)
def test_a_text_is_cut_to_a_number_of_words(text: str, room: int, cut: Cut, expected: str) -> None:
    assert shorten(text, room, lambda text: len(text.split()), cut) == expected


@pytest.mark.parametrize(("text", "empty"), [("", True), ("[…]", True), ("x", False), ("x […]", False)])
def test_a_text_of_only_the_cut_mark_is_empty(*, text: str, empty: bool) -> None:
    assert is_empty(text) is empty


RESULT = {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "a"}]}
CUTTABLE: list[tuple[Any, list[str], Any]] = [
    (SlotValue("s", "a"), ["a"], SlotValue("s", "z")),
    (SlotValue("s", "a", 0, 1), [], SlotValue("s", "a", 0, 1)),
    (Msg("user", "a", "user"), ["a"], Msg("user", "z", "user")),
    (
        Msg("u", [TextBlock("a"), ThinkingBlock("a"), TextBlock("b"), ToolResultBlock("1", "f", "a")], "user"),
        ["a", "b", "a"],
        Msg("u", [TextBlock("z"), ThinkingBlock("a"), TextBlock("b"), ToolResultBlock("1", "f", "z")], "user"),
    ),
    (
        Msg("tool", [ToolResultBlock("1", "f", [TextBlock("b"), TextBlock("a")])], "tool"),
        ["b", "a"],
        Msg("tool", [ToolResultBlock("1", "f", [TextBlock("b"), TextBlock("z")])], "tool"),
    ),
    (msg("user", "a", name="a"), ["a"], msg("user", "z", name="a")),
    (msg("user", {"text": "a"}), [], msg("user", {"text": "a"})),
    ({"role": "model", "parts": [{"text": "a"}]}, [], {"role": "model", "parts": [{"text": "a"}]}),
    (
        msg("user", ["a", {"type": "text", "text": "a", "x": "a"}, {"type": "image", "text": "a"}, RESULT]),
        ["a", "a"],
        msg(
            "user",
            [
                *("a", {"type": "text", "text": "z", "x": "a"}, {"type": "image", "text": "a"}),
                RESULT | {"content": [{"type": "text", "text": "z"}]},
            ],
        ),
    ),
    (
        msg("tool", [{"type": "tool_result", "id": "a", "output": "a"}]),
        ["a"],
        msg("tool", [{"type": "tool_result", "id": "a", "output": "z"}]),
    ),
]


@pytest.mark.parametrize(("item", "texts", "changed"), CUTTABLE)
def test_the_texts_of_an_item_can_be_cut_and_replaced(item: Any, texts: list[str], changed: Any) -> None:
    assert cuttable_texts(item) == texts
    assert with_text(item, "a", "z") == changed
    assert with_text(item, "c", "z") == item


def test_a_cut_is_repeated_on_the_same_item_in_another_format() -> None:
    given = Msg("user", [TextBlock("same"), TextBlock("one two")], "user")
    before, after = (
        msg("user", [{"type": "text", "text": text} for text in ("same", cut)]) for cut in ("one two", "on")
    )
    assert with_cut_of(given, before, after) == Msg("user", [TextBlock("same"), TextBlock("on")], "user")
    assert with_cut_of(given, before, before) == given
    assert with_cut_of(Msg("user", "", "user"), before, before) == Msg("user", "", "user")


@given(text=st.text("ab .\n你。", max_size=300), room=st.integers(0, 120), cut=st.sampled_from(["end", "middle"]))
def test_a_cut_text_fits_and_consists_of_parts_of_the_text(text: str, room: int, cut: Cut) -> None:
    found = shorten(text, room, len, cut)
    assert len(found) <= room
    if len(text) <= room:
        assert found == text
    elif found:
        head, mark, tail = found.partition(CUT_MARK)
        assert mark
        assert text.startswith(head.rstrip())
        assert text.endswith(tail.lstrip()) if cut == "middle" else not tail
    else:
        assert room < len(CUT_MARK)


# Elements, unpaired tags, and text.
MARKUP = st.recursive(
    st.sampled_from(["One. ", "two ", "三。", "\n", "x", "<br>", "<br/>", "</i>", "<i class='c d'>", "5 > 3 "]),
    lambda inner: st.builds(
        "<{0}{2}>{1}</{0}>".format,
        st.sampled_from("abi"),
        st.lists(inner).map("".join),
        st.sampled_from(["", " k='v w'"]),
    ),
).flatmap(lambda text: st.lists(st.just(text) | st.sampled_from(["Three. ", "<b>four</b>", "<a>five "]), max_size=9))


def is_balanced(text: str, name: str) -> bool:
    """Return True if each opening tag of a name has its closing tag, and each closing tag its opening tag."""
    tags = re.findall(rf"<(/?){name}(?:\s[^<>]*)?>", text)
    depths = [*accumulate((-1 if closing else 1 for closing in tags), initial=0)]
    return min(depths) == depths[-1] == 0


@pytest.mark.slow
@given(pieces=MARKUP, room=st.integers(0, 200), cut=st.sampled_from(["end", "middle"]))
def test_no_cut_separates_a_tag_from_its_partner(pieces: list[str], room: int, cut: Cut) -> None:
    """A retrieved passage lost its closing tag, so the following text seemed part of it."""
    text = "".join(pieces)
    found = shorten(text, room, len, cut)
    assert [name for name in "abi" if is_balanced(text, name) and not is_balanced(found, name)] == []
    assert found.count("<") == found.count(">") - found.count("5 > 3")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.slow
@given(
    value=st.lists(JSON) | st.dictionaries(st.text(), JSON), indent=st.sampled_from([None, 2]), room=st.integers(0, 90)
)
def test_json_is_kept_or_dropped_whole(value: object, indent: int | None, room: int) -> None:
    """A JSON tool result was cut in its middle."""
    text = json.dumps(value, indent=indent, ensure_ascii=False) + "\n"
    assert shorten(text, room, len, "middle") in (text if len(text) <= room else CUT_MARK, "")
    messages = [{"role": "assistant", "content": text}, {"role": "user", "content": "And now?"}]
    kept, report = Budget(40 + room, CharTokenCounter(), cut="end").fit(messages)
    assert [message["content"] for message in kept] in ([text, "And now?"], ["And now?"])
    assert report.cut == ()


@pytest.mark.timing
@pytest.mark.parametrize(
    "text",
    [
        *("x" * 1_000_000, "a b. " * 200_000, "\n" * 1_000_000, "<a>" * 300_000, "<a></b> " * 100_000),
        *("<a " * 300_000, "[" * 500_000 + "]" * 500_000, "<a>" * 100_000 + "</a>" * 100_000 + "x. " * 50_000),
    ],
    ids=range(8),
)
def test_cutting_a_megabyte_of_text_is_fast(text: str) -> None:
    begun = time.process_time()
    assert len(shorten(text, 5_000, len, "middle")) <= 5_000
    assert time.process_time() - begun < 10
