import copy
import pickle
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyprompt.errors import HistoryError, LazyPromptError, SlotError, ToolsError
from lazyprompt.messages.history import EMPTY_HISTORY, History
from lazyprompt.messages.msg import ImageBlock, Msg, TextBlock, URLSource
from lazyprompt.messages.prompt import (
    MARKERS,
    FilledText,
    Prompt,
    Rendered,
    Segment,
    Text,
    filled_texts,
    join_lines,
    map_filled,
    stripped,
    without_origins,
)
from lazyprompt.messages.tools import ToolSet

TOOLS = [{"type": "function", "function": {"name": "f"}}]
RENDERED = Rendered(
    ("<s>", "", "Say ", "hi", "", "you", "", "", "</s>"),
    (MARKERS, MARKERS, "instruction", "word", MARKERS, "word", "instruction", "x", MARKERS),
)


class Letters:
    def count_text(self, text: str) -> int:
        return len(text)


def test_neighbours_of_one_origin_are_one_segment_and_empty_ones_are_left_out() -> None:
    assert RENDERED.segments == (
        Segment("<s>", MARKERS, trusted=True),
        Segment("Say ", "instruction", trusted=True),
        Segment("hiyou", "word", trusted=False),
        Segment("</s>", MARKERS, trusted=True),
    )


@given(st.lists(st.tuples(st.text(max_size=3), st.sampled_from("abc"))))
def test_the_segments_make_the_whole_text(parts: list[tuple[str, str]]) -> None:
    texts, slots = [text for text, _ in parts], [slot for _, slot in parts]
    rendered = Rendered(texts, slots)
    segments = rendered.segments
    assert "".join(segment.text for segment in segments) == rendered.text == "".join(texts)
    assert all(segment.text for segment in segments)
    assert all(one[1:] != other[1:] for one, other in pairwise(segments))
    even = "".join(texts[0::2])
    assert "".join(segment.text for segment in segments if segment.trusted) == even


def test_parts_without_a_slot_are_noticed() -> None:
    with pytest.raises(ValueError, match="shorter"):
        _ = Rendered(("a", "b"), ("x",)).segments


def test_tokens_are_counted_slot_by_slot_in_order() -> None:
    counts = RENDERED.tokens(Letters())
    assert counts == {MARKERS: 7, "instruction": 4, "word": 5}
    assert list(counts) == [MARKERS, "instruction", "word"]


def test_a_rendered_prompt_is_its_text() -> None:
    assert str(RENDERED) == RENDERED.text == "<s>Say hiyou</s>"
    assert len(RENDERED) == 16
    assert repr(Rendered(("a",), ("x",))) == "Rendered([Segment(text='a', slot='x', trusted=True)])"


def test_rendered_prompts_are_equal_where_their_segments_are() -> None:
    one = Rendered(("a", "", "b"), ("x", "y", "x"))
    same = Rendered(("ab",), ("x",))
    assert one == same
    assert hash(one) == hash(same)
    assert one != Rendered(("ab",), ("y",))
    assert one != Rendered(("", "ab"), ("x", "x"))
    assert one != "ab"


def test_a_rendered_prompt_does_not_change_with_what_it_was_made_of() -> None:
    parts, slots = ["a", "b"], ["x", "y"]
    rendered = Rendered(parts, slots)
    parts[0] = slots[1] = "changed"
    assert rendered.segments == (Segment("a", "x", trusted=True), Segment("b", "y", trusted=False))
    assert rendered.text == "ab"


PROMPT = Prompt(
    system="s",
    instruction=Text(("Say ", "hi", ""), ("instruction", "word", "instruction")),
    user="u",
    input="i",
    history=[("a", "b")],
    tools=TOOLS,
    label="l",
)


@pytest.mark.parametrize("value", [RENDERED, PROMPT, Prompt(), Text(("a",), ("x",))], ids=lambda v: type(v).__name__)
def test_values_can_be_pickled_copied_and_hashed(value: Any) -> None:
    for twin in (pickle.loads(pickle.dumps(value)), copy.deepcopy(value)):  # noqa: S301 - our own bytes
        assert twin == value
        assert hash(twin) == hash(value)
        assert str(twin) == str(value)
    assert not hasattr(value, "__dict__")


@pytest.mark.parametrize(("value", "name"), [(PROMPT, "system"), (Text(), "parts")])
def test_values_are_frozen(value: Any, name: str) -> None:
    with pytest.raises(AttributeError, match=r"^(can't|cannot) (set|assign)"):
        setattr(value, name, "other")


def test_a_text_is_its_parts() -> None:
    text = Text(("Say ", "hi", "."), ("instruction", "word", "instruction"))
    assert str(text) == "Say hi."
    assert text
    assert not Text()
    assert not Text(("", "", ""), ("a", "b", "a"))
    assert Text.trusted("hi", "user") == Text(("hi",), ("user",))


def test_a_prompt_of_texts_made_of_lists_equals_one_of_tuples() -> None:
    """A layout looks the slots up in a cache, and a list can't be a key."""
    parts, slots = ("Say ", "hi", ""), ("instruction", "word", "instruction")
    listed: Any = ([*parts], [*slots])
    assert {Prompt(None, Text(*listed), Text(*listed)): 1} == {Prompt(None, Text(parts, slots), Text(parts, slots)): 1}


def test_plain_text_in_a_prompt_is_the_developers_own() -> None:
    prompt = Prompt(instruction="do", user="this")
    assert prompt.instruction == Text(("do",), ("instruction",))
    assert prompt.user == Text(("this",), ("user",))


def test_a_prompt_reads_history_and_tools_in_any_form() -> None:
    assert PROMPT.history == History.of([("a", "b")])
    assert PROMPT.tools == ToolSet.of(TOOLS)
    assert PROMPT.evolve(history=PROMPT.history, tools=PROMPT.tools) == PROMPT


def test_a_prompt_shares_nothing_with_what_it_was_given() -> None:
    history: Any = [["a", "b"]]
    tools: Any = copy.deepcopy(TOOLS)
    prompt = Prompt(history=history, tools=tools)
    history[0][0] = "changed"
    tools[0]["function"]["name"] = "changed"
    assert prompt.history.messages[0].text == "a"
    assert prompt.tools.names == ("f",)


def test_a_changed_prompt_leaves_the_first_as_it_was() -> None:
    changed = PROMPT.evolve(input="other", user="more", history=None)
    assert (changed.input, str(changed.user), changed.history) == ("other", "more", EMPTY_HISTORY)
    assert changed.system == "s"
    assert (PROMPT.input, str(PROMPT.user)) == ("i", "u")


def test_a_prompt_refuses_a_history_and_tools_of_a_wrong_shape() -> None:
    with pytest.raises(HistoryError, match=r"^history\[0\] contains 3 items"):
        Prompt(history=[("a", "b", "c")])  # type: ignore[list-item]
    with pytest.raises(ToolsError, match=r"tools\[0\]"):
        Prompt(tools=[5])  # type: ignore[list-item]


@pytest.mark.parametrize("field", ["system", "instruction", "user", "input", "label"])
@pytest.mark.parametrize(("wrong", "match"), [("\ud800", "lone surrogate"), (5, "int")])
def test_a_prompt_refuses_what_is_no_text(field: str, wrong: object, match: str) -> None:
    fields: Any = {field: wrong}
    with pytest.raises(LazyPromptError, match=match):
        Prompt(**fields)


TWICE = Prompt(
    instruction=Text(("About ", "A", ": ", "B", ""), ("instruction", "topic", "instruction", "word", "instruction")),
    user=Text(("Say ", "B", "."), ("user", "word", "user")),
    input="Now?",
    history=[["a", "b"]],
)


def test_a_slot_gets_another_text_in_each_of_its_places() -> None:
    changed = TWICE.with_slot("word", "C")
    assert changed.slots == {"topic": ("A",), "word": ("C", "C"), "input": ("Now?",)}
    assert (str(changed.instruction), str(changed.user)) == ("About A: C", "Say C.")
    assert changed.with_slot("word", "B") == TWICE
    assert TWICE.with_slot("input", "").input == ""


def test_of_several_values_of_a_slot_the_first_place_gets_the_text() -> None:
    items = Prompt(instruction=Text(("- ", "A", "\n- ", "B", ""), ("instruction", "item") * 2 + ("instruction",)))
    assert str(items.with_slot("item", "A, B").instruction) == "- A, B\n- "


def test_a_prompt_gets_another_history() -> None:
    assert TWICE.with_history([["c", "d"]]).history == History.of([["c", "d"]])
    assert TWICE.with_history([["a", "b"]]) == TWICE


def test_a_slot_with_several_values_is_replaced_once() -> None:
    """The first occurrence takes the text, wherever it is, and the others are empty."""

    def with_values(*values: str) -> Prompt:
        texts = [Text(("<", value, ">"), ("instruction", "a", "instruction")) for value in values]
        own = [Msg("user", FilledText(text), "user") for text in texts[1:-1]]
        return Prompt("s", texts[0], texts[-1], "q", own, opening=1, closing=len(own) - 1)

    def shown(prompt: Prompt) -> list[str]:
        return [str(text) for text in prompt.texts]

    assert shown(with_values("x", "y", "x", "y").with_slot("a", "n")) == ["<n>", "<>", "<>", "<>"]
    assert shown(with_values("x", "x", "x", "x").with_slot("a", "n")) == ["<n>"] * 4
    late = with_values("x", "y", "x", "y").evolve(instruction="i")
    assert shown(late.with_slot("a", "n")) == ["i", "<n>", "<>", "<>"]
    assert late.with_slot("input", "new") == late.evolve(input="new")
    for name, error in (("b", "the prompt has no slot 'b'"), ("inputt", "did you mean 'input'")):
        with pytest.raises(SlotError, match=error):
            late.with_slot(name, "n")
    with pytest.raises(SlotError, match="the prompt has no list slot 'a'; pass a string for a text slot"):
        late.with_slot("a", ["n"])


def test_what_a_prompt_does_not_say_is_not_shown() -> None:
    prompt = Prompt("s", "i", "u", "q", [["a", "b"]], opening=1, closing=1, report=("left out",))
    assert prompt == prompt.evolve(report=())
    assert prompt != prompt.evolve(opening=0)
    assert not any(f" {name}=" in repr(prompt) for name in ("opening", "closing", "report", "source"))
    talk = [["a", "b"], ["c", "d"]]
    for opening, closing, left in ((1, 2, "b"), (1, 0, "bcd"), (0, 1, "abc"), (0, 0, "abcd")):
        shown = Prompt(history=talk, opening=opening, closing=closing)
        assert "".join(message.text for message in shown.conversation) == left
        assert [*shown.plain_messages] == [*shown.history.messages]


def test_a_prompt_is_empty_unless_it_is_given_something() -> None:
    empty = Text.trusted("", "instruction"), Text.trusted("", "user")
    assert Prompt() == Prompt(None, *empty, None, None, None, None, 0, 0, (), None)
    assert (Prompt().history is EMPTY_HISTORY, bool(Prompt().instruction), Prompt().tools.names) == (True, False, ())
    assert Prompt().slots == Prompt("s", "i", "u", "").slots == {}
    assert [Prompt(user=user, input=own).said for user in ("", "u") for own in (None, "", "q")] == [
        None,
        None,
        *("q", "u", "u", "uq"),
    ]


def test_slots_have_a_value_for_each_occurrence() -> None:
    text = Text(("a", "x", "b", "y", "", "z"), ("instruction", "s", "instruction", MARKERS, "s", "s"))
    assert Prompt(instruction=text, input="q").slots == {"s": ("x", "z"), "input": ("q",)}
    for own in (MARKERS, "system", "instruction", "user", "tools", "history", "label"):
        assert Prompt(instruction=Text(("", "x"), ("s", own))).slots == {}


@pytest.mark.parametrize(
    ("parts", "chars", "left"),
    [
        *(((" a ",), None, ["a"]), ((" ", " a ", " "), None, ["", "a", ""]), ((" ", "", " "), None, ["", "", ""])),
        *((("xa", "b", "cx"), "x", ["a", "b", "c"]), (("a ", " b"), None, ["a ", " b"])),
    ],
)
def test_parts_are_stripped_as_one_text(parts: tuple[str, ...], chars: str | None, left: list[str]) -> None:
    assert stripped(parts, chars) == left


FILLED = FilledText(Text(("<", "x"), ("instruction", "a")))


def test_joined_lines_keep_their_origins() -> None:
    joined = join_lines(["h", FILLED])
    assert isinstance(joined, FilledText)
    assert joined == "h\n<x"
    found = zip(joined.origins.parts, joined.origins.slots, strict=True)
    expected = [("h", "history"), ("\n", MARKERS), ("<", "instruction"), ("x", "a")]
    assert [(part, slot) for part, slot in found if part] == expected
    assert not any(isinstance(text, FilledText) for text in (join_lines(["a", "b"]), join_lines([])))


IMAGE = ImageBlock(URLSource("https://a.example/b.png"))


@pytest.mark.parametrize(
    ("content", "changed"),
    [
        *(("<x", None), ([TextBlock("<x"), IMAGE], None), (FILLED, "<X")),
        (
            [IMAGE, TextBlock("b"), TextBlock(FILLED, signature="s")],
            [IMAGE, TextBlock("b"), TextBlock("<X", signature="s")],
        ),
    ],
)
def test_only_filled_texts_of_a_message_are_changed(content: Any, changed: Any) -> None:
    given = Msg("Ann", content, "user", "https://a.example", {"more": 1}, {"prompt_tokens": 1})
    made, bare = map_filled(given, str.upper), without_origins(given)
    assert [*filled_texts(given)] == ([FILLED] if changed else [])
    assert made == Msg("Ann", changed or content, "user", "https://a.example", {"more": 1}, {"prompt_tokens": 1})
    assert (bare, [*filled_texts(bare)]) == (given, [])
    assert (made is given) == (bare is given) == (changed is None)
