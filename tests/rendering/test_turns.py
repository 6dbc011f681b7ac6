"""The turns of a history and of a response in flat text, with tool calls and tool results."""

from typing import Any

import pytest

from lazyprompt import ChatPrompter, Markers, Prompt, PromptTemplate
from lazyprompt.errors import FormatError
from lazyprompt.messages.msg import ImageBlock, Msg, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock, URLSource
from lazyprompt.rendering.tool_form import ToolForm

MARKERS = Markers("S:", ";", "U:", ".", "A:", "!", "R:", "#", tool_start="<", tool_end=">")
PLAIN = ChatPrompter(system="").with_safety("off")
CONVERSATION = [
    Msg("system", " s ", "system"),
    Msg("user", " q ", "user"),
    Msg("assistant", [ThinkingBlock("hm"), TextBlock(" t "), ToolUseBlock("c", "f", {"a": 1, "b": "x"})], "assistant"),
    Msg("f", [ToolResultBlock("c", "f", " r ")], "tool"),
    Msg("assistant", [ToolUseBlock("d", "g", {}), ToolUseBlock("e", "h", {})], "assistant"),
    Msg("g", [ToolResultBlock("d", "g", "1"), ToolResultBlock("e", "h", [TextBlock("2"), TextBlock("3")])], "tool"),
    Msg("assistant", " a ", "assistant"),
    Msg("h", [ToolResultBlock("e", "h", "4"), TextBlock(" i ")], "tool"),
    Msg("h", [ToolResultBlock("e", "h", "5")], "tool"),
    Msg("user", "w", "user"),
    Msg("assistant", "z", "assistant"),
]
TEXT = {
    "start": "S: s ;U: q .",
    "called": 'A: t \n<f{"a": 1, "b": "x"}>!',
    "result": "R: r #",
    "calls": "A:<g{}>\n<h{}>!",
    "results": "R:1#R:2\n3#",
    "answer": "A: a !",
    "text": "R:4#U: i .R:5#",
    "end": "U:w.A:z!",
}


@pytest.mark.parametrize(
    ("form", "markers", "changed"),
    [
        ({}, {}, {}),
        ({"opens_turn": False}, {}, {"calls": "<g{}>\n<h{}>!"}),
        ({"same_turn": True}, {}, {"calls": "<g{}>\n<h{}>!", "answer": " a !"}),
        ({"strips_text": True, "text_end": "|"}, {}, {"called": 'A:t|<f{"a": 1, "b": "x"}>!'}),
        (
            {"turn": "[{text}-{calls}]", "call": "{name}{arguments}{id}", "call_join": "+", "text_end": ""},
            {},
            {"called": 'A:[ t -f{"a": 1, "b": "x"}c]!', "calls": "A:[-g{}d+h{}e]!"},
        ),
        (
            {"call": "{id}({arguments})", "call_id": "{name}{number}", "result": "{id}={content}"},
            {"result_join": "&"},
            {
                "called": 'A: t \nf0({"a": 1, "b": "x"})!',
                "result": "R:f0= r #",
                "calls": "A:g1({})\nh2({})!",
                "results": "R:g1=1&h2=2\n3#",
                "text": "R:h2=4#U: i .R:h2=5#",
            },
        ),
        (
            {"argument": "{key}:{value}", "argument_join": ","},
            {},
            {"called": "A: t \n<fa:1,b:x>!", "calls": "A:<g>\n<h>!"},
        ),
        (
            {},
            {"soe": ""},
            {
                "result": "U:<tool_response>\n r \n</tool_response>.",
                "results": "U:<tool_response>\n1\n</tool_response>.U:<tool_response>\n2\n3\n</tool_response>.",
                "text": "U:<tool_response>\n4\n</tool_response>.U: i .U:<tool_response>\n5\n</tool_response>.",
            },
        ),
        ({}, {"trim": ("user",)}, {"start": "S:s;U:q."}),
        ({}, {"trim": ("assistant",)}, {"called": 'A:t\n<f{"a": 1, "b": "x"}>!', "answer": "A:a!"}),
        ({}, {"trim": ("tool",)}, {"result": "R:r#", "text": "R:4#U:i.R:5#"}),
        ({}, {"exact": True, "system_place": "first_user"}, {"start": "U: s .U: q ."}),
    ],
)
def test_each_message_is_written_between_the_markers_of_its_role(
    form: dict[str, Any], markers: dict[str, Any], changed: dict[str, str]
) -> None:
    made = MARKERS.evolve(tool_form=ToolForm(**form), **markers)
    text = PromptTemplate("{history}").render(Prompt(history=CONVERSATION), made, "off").text
    assert text == "".join({**TEXT, **changed}.values())


def answer(*blocks: Any, **more: Any) -> Msg:
    return Msg("assistant", blocks, "assistant", **more)


@pytest.mark.parametrize(
    ("form", "response", "trained"),
    [
        ({}, answer(TextBlock(" a ")), "A: a !"),
        ({}, answer(ToolUseBlock("x", "f", {})), "A:<f{}>!"),
        ({"opens_turn": False}, answer(ToolUseBlock("x", "f", {})), "<f{}>!"),
        ({"opens_turn": False}, answer(TextBlock("t"), ToolUseBlock("x", "f", {})), "A:t\n<f{}>!"),
        ({"call": "{id}", "call_id": "{name}{number}"}, answer(ToolUseBlock("x", "f", {})), "A:f3!"),
    ],
)
def test_trained_span_of_a_response_is_the_text_that_the_model_writes(
    form: dict[str, Any], response: Msg, trained: str
) -> None:
    markers = MARKERS.evolve(tool_form=ToolForm(**form), exact=True, generation="")
    sample = PLAIN.with_markers(markers).training_sample(None, None, [*CONVERSATION, CONVERSATION[1], response])
    assert [sample.text[slice(*span)] for span in sample.spans] == [trained]
    assert sample.text.endswith(f"U: q .{trained}")


URL = "contains the url 'x', which flat text cannot represent; use a dict format"
IMAGE = "contains a block of type 'image', which flat text cannot represent; use a dict format"


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (answer(TextBlock("a"), url="x"), URL),
        (Msg("assistant", "a", "assistant", url="x"), URL),
        (answer(TextBlock("a"), ImageBlock(URLSource("x"))), IMAGE),
    ],
)
def test_url_or_image_in_a_message_is_an_error_in_flat_text(message: Msg, error: str) -> None:
    with pytest.raises(FormatError) as caught:
        PLAIN.with_markers(MARKERS).generate_prompt("q", [CONVERSATION[1], message])
    assert str(caught.value) == f"history[1] {error}"
    with pytest.raises(FormatError) as caught:
        PLAIN.with_markers(MARKERS).training_sample(None, None, [CONVERSATION[1], message])
    assert str(caught.value) == f"the answer {error}"


def test_training_sample_has_the_slot_and_message_index_of_each_trained_part() -> None:
    """The template has an empty system turn, and the line break after the end marker of a response is not trained."""
    history = [
        CONVERSATION[1],
        answer(TextBlock("<think>t</think>"), ToolUseBlock("c", "f", {"a": 1})),
        Msg("user", [ToolResultBlock("c", "f", "1"), TextBlock("x")], "user"),
        answer(TextBlock("a")),
    ]
    markers = MARKERS.evolve(eoa="!\n")
    sample = PLAIN.with_markers(markers).training_sample("Q", "B", history, train="all")
    rows = [*zip(sample.parts, sample.slots, sample.part_messages, sample.trained, strict=True)]
    assert [f"{text!r} {slot} {message}" for text, slot, message, trained in rows if text and trained] == [
        *("'<think>' history 1", "'t' history 1", "'</think>' history 1", r"'\n<' markers None", "'f' history 1"),
        *("""'{"a": 1}' history 1""", "'>' markers None", "'!' markers None", "'a' history 4", "'!' markers None"),
        *("'B' label 6", "'!' markers None"),
    ]
    others = [(text, message) for text, _, message, trained in rows if text and not trained and message is not None]
    assert others == [(" q ", 0), ("1", 2), ("x", 3), ("Q", 5)]
    assert sample.text == 'S:;\n\nU: q .A:<think>t</think>\n<f{"a": 1}>!\nR:1#U:x.A:a!\n\nU:\nQ\n.A:\nB!\n'


def test_slots_in_messages_keep_their_names_and_are_trained_in_assistant_messages() -> None:
    prompter = ChatPrompter.from_messages([("user", "q{x}"), ("assistant", "{x}a")]).with_safety("off")
    prompter = prompter.with_markers(MARKERS)
    sample = prompter.training_sample({"x": "1", "input": "Q"}, "B", train="all")
    rows = [*zip(sample.parts, sample.slots, sample.part_messages, sample.trained, strict=True)]
    assert [(text, slot, message) for text, slot, message, trained in rows if text and trained] == [
        *(("1", "x", 1), ("a", "instruction", 1), ("!", "markers", None), ("B", "label", 3), ("!", "markers", None))
    ]
    assert [(text, slot, message) for text, slot, message, trained in rows if text and not trained] == [
        *(("U:", "markers", None), ("q", "instruction", 0), ("1", "x", 0), (".", "markers", None)),
        *(("A:", "markers", None), ("U:", "markers", None), ("Q", "input", 2), (".", "markers", None)),
        ("A:", "markers", None),
    ]
    assert prompter.render({"x": "1", "input": "Q"}).note == ""


def test_untrained_assistant_message_of_the_template_has_its_own_message_index() -> None:
    """Its parts had the index of the message before it."""
    prompter = ChatPrompter.from_messages([("user", "q {x}"), ("assistant", "a {x}."), ("user", "{x}?")])
    sample = prompter.training_sample({"x": "1"}, "yes", train="last")
    texts = dict.fromkeys(range(4), "")
    for part, message in zip(sample.parts, sample.part_messages, strict=True):
        if message is not None:
            texts[message] += part
    assert [*texts.values()] == [message["content"] for message in sample.messages]
