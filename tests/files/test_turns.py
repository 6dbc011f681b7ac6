"""Turns of a filled template, and how they become messages and report entries."""

import re
from typing import Any

import pytest

from lazyprompt import (
    Base64Source,
    FileBlock,
    ImageBlock,
    Msg,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    URLSource,
)
from lazyprompt.errors import PromptFileError
from lazyprompt.files.properties import MediaInput, Thread
from lazyprompt.files.roles import Section
from lazyprompt.files.spec import ToolSpec
from lazyprompt.files.turns import (
    CallItem,
    MediaItem,
    ResultItem,
    TextItem,
    Turn,
    drop_own_attributes,
    functions_of,
    messages_of,
    named_functions,
    neutral_messages,
    place_of_history,
    result_turn,
    steps_of,
    steps_with_media,
    text_items,
    with_history,
)
from lazyprompt.formatters.report import Entry, Notes
from lazyprompt.templates.slots import Value

URL = "https://a.example/b.png"
IMAGE, FILE = ImageBlock(URLSource(URL)), FileBlock(URLSource(URL))
USER, ANSWER = Msg("user", "a", "user"), Msg("assistant", "b", "assistant")
THREAD, HISTORY = Thread("talk", [USER, ANSWER]), Thread("", [], ("tone",))


def turn(*texts: str, role: str = "system", **attributes: Any) -> Turn:
    return Turn(role, tuple(TextItem((text,)) for text in texts), attributes)


@pytest.mark.parametrize(
    ("parts", "steps"),
    [
        ([], [turn()]),
        (["\n a \n"], [turn(" a ")]),
        (["\n", Value("\nx\n"), "\n"], [turn("\nx\n")]),
        (["\n a \n", Value("", held=THREAD), "\n b \n"], [turn(" a"), THREAD, turn("b ")]),
        ([Value("", held=THREAD), " \n", Value("", held=THREAD)], [THREAD, THREAD]),
        (
            [" a \n", Value("", held=MediaInput("i", IMAGE)), "\n b "],
            [Turn("system", (TextItem((" a ",)), MediaItem(IMAGE), TextItem((" b ",))))],
        ),
    ],
)
def test_section_is_split_into_turns_and_threads(parts: list[str], steps: list[Any]) -> None:
    """White space next to a thread is stripped, elsewhere only line breaks; values are kept unchanged."""
    assert [*steps_of(Section("", {}, tuple(parts)))] == steps


def test_section_with_a_role_becomes_a_turn_with_its_attributes() -> None:
    assert [*steps_of(Section("user", {"name": "Ann"}, ("a",)))] == [turn("a", role="user", name="Ann")]


@pytest.mark.parametrize(
    ("parts", "left"),
    [
        (["", "\n", "\n a\n", "\n"], [" a"]),
        (["\na", "b\n"], ["a", "b"]),
        ([Value("\n"), "\n"], ["\n"]),
        (["\n", ""], []),
    ],
)
def test_line_breaks_are_stripped_from_both_ends_of_a_text(parts: list[str], left: list[str]) -> None:
    assert text_items(parts) == ([TextItem(tuple(left))] if left else [])


def test_tool_result_turn_keeps_its_attributes_except_the_type() -> None:
    section = Section("tool", {"type": "result", "id": "c1"}, ("\n1", Value("2"), "\n"))
    assert result_turn(section) == Turn("tool", (ResultItem("12"),), {"id": "c1"})


def test_media_links_become_blocks_except_in_values() -> None:
    def medium(label: str, url: str) -> Any:
        return (label, {"detail": "low"}) if label in ("image", "file") and url else None

    text = f"a\n![image](x{URL})b\n![other](c)![image]()"
    parts = (text, Value("![image](d)"), " ![file](x", Value(URL), ")", Value("", held=THREAD))
    steps = [*steps_with_media(Section("user", {}, parts), medium, lambda address: address[1:])]
    items: list[Any] = [
        TextItem(("a",)),
        MediaItem(IMAGE, {"detail": "low"}),
        TextItem(("b\n![other](c)![image]()", "![image](d)", " ")),
        MediaItem(FILE, {"detail": "low"}),
    ]
    assert steps == [Turn("user", tuple(items)), THREAD]
    assert [*steps_with_media(Section("user", {}, ("![other](c)",)), medium)] == [turn("![other](c)", role="user")]


@pytest.mark.parametrize(
    ("steps", "place", "expected"),
    [
        ([], None, ["history"]),
        ([turn("s"), turn("u", role="user")], None, ["system", "history", "user"]),
        ([turn("u", role="user"), turn("s")], None, ["user", "system", "history"]),
        ([turn("s"), THREAD], None, ["system", "talk", "history"]),
        ([THREAD, HISTORY, turn("u", role="user")], 1, ["talk", "history", "user"]),
    ],
)
def test_history_is_inserted_at_its_place(steps: list[Any], place: int | None, expected: list[str]) -> None:
    made = with_history(steps, [ANSWER])
    assert place_of_history(steps) == place
    assert [step.name if isinstance(step, Thread) else step.role for step in made] == expected
    history = made[expected.index("history")]
    assert isinstance(history, Thread)
    assert (history.messages, history.left_out) == ((ANSWER,), () if place is None else ("tone",))


CALL: Any = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
NAMELESS_CALLS: list[Any] = [{}, {"name": ""}, {"function": {"name": 1}}]


DETAILS: list[Any] = [
    ({"detail": "low"}, "low"),
    ({"quality": "auto"}, "auto"),
    ({"detail": "high", "quality": "low"}, "high"),
    ({"detail": "best"}, None),
    ({"detail": 1}, None),
    ({}, None),
]


CALLS: list[Any] = [
    (CALL, ToolUseBlock("c1", "f", {"a": 1})),
    ({"name": "f", "input": {"a": 1}}, ToolUseBlock("", "f", {"a": 1})),
    ({"name": "f", "arguments": {"a": 1}, "input": {}}, ToolUseBlock("", "f", {"a": 1})),
    ({"name": "f"}, ToolUseBlock("", "f", {})),
]


RESULTS: list[Any] = [
    ({"id": "c1"}, ToolResultBlock("c1", "", "1"), {}),
    ({"tool_call_id": 2, "id": "c1", "name": "f"}, ToolResultBlock("2", "f", "1"), {}),
    ({"id": "c1", "tone": 1}, ToolResultBlock("c1", "", "1"), {"tone": 1}),
]


@pytest.mark.parametrize(
    ("step", "messages"),
    [
        (THREAD, [USER, ANSWER]),
        (turn(), [Msg("system", "", "system")]),
        (turn("a", role="user", name="Ann", tone=1), [Msg("Ann", "a", "user", metadata={"tone": 1})]),
        (turn("a", role="user", id="x"), [Msg("user", "a", "user", metadata={"id": "x"})]),
        (turn("a", "b"), [Msg("system", [TextBlock("a"), TextBlock("b")], "system")]),
        *(
            (
                Turn("user", (MediaItem(IMAGE, attributes),)),
                [Msg("user", [ImageBlock(URLSource(URL), detail=detail)], "user")],
            )
            for attributes, detail in DETAILS
        ),
        (Turn("user", (MediaItem(FILE, {"detail": "low"}),)), [Msg("user", [FILE], "user")]),
        *((Turn("assistant", (CallItem(call),)), [Msg("assistant", [block], "assistant")]) for call, block in CALLS),
        *(
            (Turn("tool", (ResultItem("1"),), attributes), [Msg("tool", [block], "tool", metadata=metadata)])
            for attributes, block, metadata in RESULTS
        ),
    ],
)
def test_turn_becomes_a_message(step: Any, messages: list[Msg]) -> None:
    assert messages_of([step, turn("z")]) == [*messages, Msg("system", "z", "system")]


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (ResultItem("1"), 'a tool turn needs the id of its tool call: tool[tool_call_id="..."]:'),
        *(
            (CallItem(call), "a tool_call has no name; write function: {name: ..., arguments: ...}")
            for call in NAMELESS_CALLS
        ),
        (CallItem({"name": "f", "arguments": "{}"}), "the arguments of the tool_call 'f' must be a mapping"),
    ],
)
def test_turn_with_an_invalid_tool_call_or_tool_result_is_an_error(item: Any, message: str) -> None:
    with pytest.raises(PromptFileError, match="^" + re.escape(message)):
        messages_of([Turn("tool", (item,))])


def left_out(where: str, kind: str, name: str = "") -> Entry:
    why = f"a tool {kind} is called by the runtime, not by the model: convert it to functions"
    return Entry(where, "tools", "left out", why, name)


def test_tools_other_than_functions_are_reported() -> None:
    notes = Notes()
    function, web = ToolSpec("f"), ToolSpec("w", "mcp")
    assert functions_of([web, function], notes) == [function.function()]
    assert named_functions([CALL, {"type": "mcp", "id": "i"}, {"name": "n", "id": "i"}, {}], notes) == [
        {"type": "function", "function": CALL["function"]}
    ]
    assert notes == [
        left_out("tools[0]", "of kind 'mcp'", "w"),
        Entry("tools", "name", "left out", "'id' of a tool is only for the runtime", "c1"),
        left_out("tools", "of type 'mcp'", "i"),
        left_out("tools", "of type None", "n"),
        left_out("tools", "of type None"),
    ]


def test_attributes_left_out_are_reported_with_the_index_of_their_message() -> None:
    notes = Notes()
    result = turn("1", role="tool", id="c1", tool_call_id="c1", name="f")
    thread = Thread("talk", [USER, ANSWER], ("the tone",))
    written: list[Any] = [
        *(MediaItem(IMAGE, {"detail": "low", "quality": "high", "alt": "A cat"}), MediaItem(FILE, {"detail": "low"})),
        MediaItem(IMAGE, {"detail": "vivid", "quality": "low"}),
        CallItem(
            {"id": "c2", "type": "function", "name": "f", "function": {"name": "f", "arguments": {}, "input": {}}}
        ),
        CallItem({"id": "c3", "name": "f", "input": {}, "strict": True}),
    ]
    steps: list[Any] = [turn("a", name="Ann", id="x", tone=1), thread, result, Turn("user", (*written,), {"tone": 2})]
    assert drop_own_attributes(steps, notes) == [turn("a", name="Ann"), thread, result, Turn("user", (*written,))]
    assert notes == [
        Entry(f"messages[{at}]", "metadata", "left out", f"{what} is not part of a message")
        for at, what in [
            (0, "the attribute 'id'"),
            (0, "the attribute 'tone'"),
            (1, "the tone"),
            (4, "the attribute 'tone'"),
            (4, "the attribute 'quality' of the image"),
            (4, "the attribute 'alt' of the image"),
            (4, "the attribute 'detail' of the file"),
            (4, "the attribute 'detail' of the image"),
            (4, "the key 'name' of the tool call"),
            (4, "the key 'input' of the tool call"),
            (4, "the key 'strict' of the tool call"),
        ]
    ]


DATA = ImageBlock(Base64Source("image/png", "AAAA"), detail="low")


def test_neutral_messages_have_attributes_and_typed_parts() -> None:
    talk = [
        Msg("Ann", [TextBlock("a"), DATA], "user"),
        Msg("assistant", [ThinkingBlock("hm"), TextBlock("b")], "assistant"),
        Msg("assistant", [TextBlock("b"), ToolUseBlock("c1", "f", {"a": 1})], "assistant"),
        Msg("tool", [ToolResultBlock("c1", "f", "1")], "tool"),
    ]
    items = (TextItem(("a",)), MediaItem(FILE, {"x": 1}), CallItem(CALL), ResultItem("1"))
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}}
    call, result = {"type": "tool_call", "tool_call": CALL}, {"type": "tool_result", "tool_result": "1"}
    file = {"type": "file", "file": {"url": URL, "x": 1}}
    made = neutral_messages(
        [turn("a", role="user", name="f"), Thread("talk", talk), Turn("tool", items, {"name": "f"})]
    )
    assert made == [
        {"name": "f", "role": "user", "content": "a"},
        {"name": "Ann", "role": "user", "content": [{"type": "text", "text": "a"}, image]},
        {"role": "assistant", "content": "b"},
        {"role": "assistant", "content": [{"type": "text", "text": "b"}, call]},
        {"tool_call_id": "c1", "role": "tool", "content": [result]},
        {"role": "tool", "content": [{"type": "text", "text": "a"}, file, call, result]},
    ]
