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


def test_adjacent_parts_of_one_slot_are_one_segment_and_empty_parts_are_left_out() -> None:
    assert RENDERED.segments == (
        Segment("<s>", MARKERS, trusted=True),
        Segment("Say ", "instruction", trusted=True),
        Segment("hiyou", "word", trusted=False),
        Segment("</s>", MARKERS, trusted=True),
    )


@given(st.lists(st.tuples(st.text(max_size=3), st.sampled_from("abc"))))
def test_segments_join_to_the_text_of_the_rendered_prompt(parts: list[tuple[str, str]]) -> None:
    texts, slots = [text for text, _ in parts], [slot for _, slot in parts]
    rendered = Rendered(texts, slots)
    segments = rendered.segments
    assert "".join(segment.text for segment in segments) == rendered.text == "".join(texts)
    assert all(segment.text for segment in segments)
    assert all(one[1:] != other[1:] for one, other in pairwise(segments))
    even = "".join(texts[0::2])
    assert "".join(segment.text for segment in segments if segment.trusted) == even


def test_fewer_slots_than_parts_is_an_error() -> None:
    with pytest.raises(ValueError, match="shorter"):
        _ = Rendered(("a", "b"), ("x",)).segments


def test_tokens_are_counted_per_slot_in_order_of_appearance() -> None:
    counts = RENDERED.tokens(Letters())
    assert counts == {MARKERS: 7, "instruction": 4, "word": 5}
    assert list(counts) == [MARKERS, "instruction", "word"]


def test_str_len_and_repr_of_a_rendered_prompt() -> None:
    assert str(RENDERED) == RENDERED.text == "<s>Say hiyou</s>"
    assert len(RENDERED) == 16
    assert repr(Rendered(("a",), ("x",))) == "Rendered([Segment(text='a', slot='x', trusted=True)])"


def test_rendered_prompts_with_equal_segments_are_equal() -> None:
    one = Rendered(("a", "", "b"), ("x", "y", "x"))
    same = Rendered(("ab",), ("x",))
    assert one == same
    assert hash(one) == hash(same)
    assert one != Rendered(("ab",), ("y",))
    assert one != Rendered(("", "ab"), ("x", "x"))
    assert one != "ab"


def test_rendered_prompt_copies_the_lists_of_parts_and_slots() -> None:
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
def test_prompts_and_texts_can_be_pickled_copied_and_hashed(value: Any) -> None:
    for twin in (pickle.loads(pickle.dumps(value)), copy.deepcopy(value)):  # noqa: S301 - our own bytes
        assert twin == value
        assert hash(twin) == hash(value)
        assert str(twin) == str(value)
    assert not hasattr(value, "__dict__")


@pytest.mark.parametrize(("value", "name"), [(PROMPT, "system"), (Text(), "parts")])
def test_prompts_and_texts_are_frozen(value: Any, name: str) -> None:
    with pytest.raises(AttributeError, match=r"^(can't|cannot) (set|assign)"):
        setattr(value, name, "other")


def test_text_is_the_concatenation_of_its_parts() -> None:
    text = Text(("Say ", "hi", "."), ("instruction", "word", "instruction"))
    assert str(text) == "Say hi."
    assert text
    assert not Text()
    assert not Text(("", "", ""), ("a", "b", "a"))
    assert Text.trusted("hi", "user") == Text(("hi",), ("user",))


def test_prompts_with_text_parts_as_lists_and_as_tuples_are_equal_and_hashable() -> None:
    """A layout uses the slots as a cache key, which a list cannot be."""
    parts, slots = ("Say ", "hi", ""), ("instruction", "word", "instruction")
    listed: Any = ([*parts], [*slots])
    assert {Prompt(None, Text(*listed), Text(*listed)): 1} == {Prompt(None, Text(parts, slots), Text(parts, slots)): 1}


def test_plain_strings_in_a_prompt_become_trusted_texts() -> None:
    prompt = Prompt(instruction="do", user="this")
    assert prompt.instruction == Text(("do",), ("instruction",))
    assert prompt.user == Text(("this",), ("user",))


def test_prompt_reads_history_and_tools_in_any_form() -> None:
    assert PROMPT.history == History.of([("a", "b")])
    assert PROMPT.tools == ToolSet.of(TOOLS)
    assert PROMPT.evolve(history=PROMPT.history, tools=PROMPT.tools) == PROMPT


def test_prompt_copies_the_history_and_tools_passed_to_the_constructor() -> None:
    history: Any = [["a", "b"]]
    tools: Any = copy.deepcopy(TOOLS)
    prompt = Prompt(history=history, tools=tools)
    history[0][0] = "changed"
    tools[0]["function"]["name"] = "changed"
    assert prompt.history.messages[0].text == "a"
    assert prompt.tools.names == ("f",)


def test_evolve_and_with_history_return_a_changed_prompt_and_keep_the_original() -> None:
    changed = PROMPT.evolve(input="other", user="more", history=None)
    assert (changed.input, str(changed.user), changed.history) == ("other", "more", EMPTY_HISTORY)
    assert changed.system == "s"
    assert PROMPT.with_history([["c", "d"]]).history == History.of([["c", "d"]])
    assert PROMPT.with_history([["a", "b"]]) == PROMPT
    assert (PROMPT.input, str(PROMPT.user)) == ("i", "u")


def test_prompt_refuses_a_malformed_history_and_malformed_tools() -> None:
    with pytest.raises(HistoryError, match=r"^history\[0\] contains 3 items"):
        Prompt(history=[("a", "b", "c")])  # type: ignore[list-item]
    with pytest.raises(ToolsError, match=r"tools\[0\]"):
        Prompt(tools=[5])  # type: ignore[list-item]


@pytest.mark.parametrize("field", ["system", "instruction", "user", "input", "label"])
@pytest.mark.parametrize(("wrong", "match"), [("\ud800", "lone surrogate"), (5, "int")])
def test_prompt_refuses_text_fields_with_numbers_or_lone_surrogates(field: str, wrong: object, match: str) -> None:
    fields: Any = {field: wrong}
    with pytest.raises(LazyPromptError, match=match):
        Prompt(**fields)


TWICE = Prompt(
    instruction=Text(("About ", "A", ": ", "B", ""), ("instruction", "topic", "instruction", "word", "instruction")),
    user=Text(("Say ", "B", "."), ("user", "word", "user")),
    input="Now?",
    history=[["a", "b"]],
)


def test_with_slot_replaces_the_value_at_every_occurrence() -> None:
    changed = TWICE.with_slot("word", "C")
    assert changed.slots == {"topic": ("A",), "word": ("C", "C"), "input": ("Now?",)}
    assert (str(changed.instruction), str(changed.user)) == ("About A: C", "Say C.")
    assert changed.with_slot("word", "B") == TWICE
    assert TWICE.with_slot("input", "").input == ""
    asked = Text(("<", "A", ">"), ("user", "input", "user"))
    changed = Prompt(user=asked, input="B").with_slot("input", "C")
    assert (str(changed.user), changed.input) == ("<C>", "")


def test_with_slot_puts_the_text_at_the_first_of_several_different_values() -> None:
    items = Prompt(instruction=Text(("- ", "A", "\n- ", "B", ""), ("instruction", "item") * 2 + ("instruction",)))
    assert str(items.with_slot("item", "A, B").instruction) == "- A, B\n- "


def test_with_slot_replaces_different_values_in_several_texts_once() -> None:
    """The first occurrence in any of the texts gets the new value, and the others become empty."""

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


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        *(("b", "n", "the prompt has no slot 'b'"), ("inputt", "n", "did you mean 'input'")),
        ("word", ["n"], "the prompt has no list slot 'word'; pass a string for a text slot"),
    ],
)
def test_with_slot_refuses_an_unknown_name_and_a_list_for_a_text_slot(name: str, value: Any, error: str) -> None:
    with pytest.raises(SlotError, match=error):
        TWICE.with_slot(name, value)


def test_repr_of_a_prompt_hides_internal_fields_and_equality_ignores_the_report() -> None:
    prompt = Prompt("s", "i", "u", "q", [["a", "b"]], opening=1, closing=1, report=("left out",))
    assert prompt == prompt.evolve(report=())
    assert prompt != prompt.evolve(opening=0)
    assert not any(f" {name}=" in repr(prompt) for name in ("opening", "closing", "report", "source"))


@pytest.mark.parametrize(("opening", "closing", "left"), [(1, 2, "b"), (1, 0, "bcd"), (0, 1, "abc"), (0, 0, "abcd")])
def test_conversation_leaves_out_opening_and_closing_messages(opening: int, closing: int, left: str) -> None:
    prompt = Prompt(history=[["a", "b"], ["c", "d"]], opening=opening, closing=closing)
    assert "".join(message.text for message in prompt.conversation) == left
    assert [*prompt.plain_messages] == [*prompt.history.messages]


def test_prompt_without_arguments_is_empty() -> None:
    empty = Text.trusted("", "instruction"), Text.trusted("", "user")
    assert Prompt() == Prompt(None, *empty, None, None, None, None, 0, 0, (), None)
    assert (Prompt().history is EMPTY_HISTORY, bool(Prompt().instruction), Prompt().tools.names) == (True, False, ())
    assert Prompt().slots == Prompt("s", "i", "u", "").slots == {}
    assert [Prompt(user=user, input=own).said for user in ("", "u") for own in (None, "", "q")] == [
        None,
        None,
        *("q", "u", "u", "uq"),
    ]


def test_prompt_slots_list_a_value_for_each_occurrence_and_no_reserved_names() -> None:
    text = Text(("a", "x", "b", "y", "", "z"), ("instruction", "s", "instruction", MARKERS, "s", "s"))
    assert Prompt(instruction=text, input="q").slots == {"s": ("x", "z"), "input": ("q",)}
    reserved = (MARKERS, "system", "instruction", "user", "tools", "history", "label")
    assert Prompt(instruction=Text(("", *reserved), ("s", *reserved))).slots == {}


@pytest.mark.parametrize(
    ("parts", "chars", "left"),
    [
        *(((" a ",), None, ["a"]), ((" ", " a ", " "), None, ["", "a", ""]), ((" ", "", " "), None, ["", "", ""])),
        *((("xa", "b", "cx"), "x", ["a", "b", "c"]), (("a ", " b"), None, ["a ", " b"])),
    ],
)
def test_parts_are_stripped_as_one_joined_text(parts: tuple[str, ...], chars: str | None, left: list[str]) -> None:
    assert stripped(parts, chars) == left


FILLED = FilledText(Text(("<", "x"), ("instruction", "a")))


def test_join_lines_keeps_the_origins_of_filled_texts() -> None:
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
def test_map_filled_changes_only_the_filled_texts_of_a_message(content: Any, changed: Any) -> None:
    given = Msg("Ann", content, "user", "https://a.example", {"more": 1}, {"prompt_tokens": 1})
    made, bare = map_filled(given, str.upper), without_origins(given)
    assert [*filled_texts(given)] == ([FILLED] if changed else [])
    assert made == Msg("Ann", changed or content, "user", "https://a.example", {"more": 1}, {"prompt_tokens": 1})
    assert (bare, [*filled_texts(bare)]) == (given, [])
    assert (made is given) == (bare is given) == (changed is None)
