"""`with_texts` and `json_with_texts` apply a function to each text of a message or JSON value."""

from dataclasses import asdict
from typing import Any

import pytest

from lazyprompt import Base64Source, Msg, URLSource
from lazyprompt.messages.msg import FileBlock, ImageBlock, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from lazyprompt.messages.texts import json_with_texts, with_texts

IMAGE = ImageBlock(URLSource("https://a.example/b.png"))
SOURCE = Base64Source("application/pdf", "aaaa")


def upper_text(text: str, *, behind_text: bool = False) -> str:
    return text.upper() + "+" * behind_text if text.upper() != text else text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a", "A"),
        ({"a": ["b", 1, None, True, 1.5, {"c": "C"}]}, {"A": ["B", 1, None, True, 1.5, {"C": "C"}]}),
        *((same, same) for same in (["A", 1], {"A": "B", "C": {"D": []}}, None, 1, True, "A")),
    ],
)
def test_json_with_texts_changes_every_string_of_a_json_value(value: Any, expected: Any) -> None:
    made = json_with_texts(value, upper_text)
    assert made == expected
    assert (made is value) == (value == expected)


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (TextBlock("a", signature="s"), TextBlock("A", signature="s")),
        (ThinkingBlock("a", signature="s"), ThinkingBlock("A")),
        (ThinkingBlock("A", signature="s"), ThinkingBlock("A", signature="s")),
        (ToolUseBlock("a", "b", {"c": "d"}), ToolUseBlock("A", "B", {"C": "D"})),
        (ToolUseBlock("A", "B", raw_input="c"), ToolUseBlock("A", "B", raw_input="C")),
        (ToolResultBlock("a", "b", "c"), ToolResultBlock("A", "B", "C")),
        (ToolResultBlock("A", "B", [TextBlock("c"), IMAGE]), ToolResultBlock("A", "B", [TextBlock("C"), IMAGE])),
        (FileBlock(SOURCE, filename="a"), FileBlock(SOURCE, filename="A")),
        *((same, same) for same in (IMAGE, FileBlock(SOURCE), ToolUseBlock("A", "B", {"C": "D"}), TextBlock("A"))),
    ],
)
def test_with_texts_changes_every_text_of_a_block(block: Any, expected: Any) -> None:
    given = Msg("ANN", [block], "assistant", metadata={"a": "b"})
    made = with_texts(given, upper_text)
    assert made == Msg("ANN", [expected], "assistant", metadata={"a": "b"})
    assert [*map(asdict, made.blocks)] == [asdict(expected)]
    assert (made is given) == (block == expected)


@pytest.mark.parametrize(
    ("name", "content", "speaker", "expected"),
    [
        *(("ann", "a", "ANN", "A"), ("ann", "A", "ANN", "A"), ("USER", "a", "USER", "A"), ("ANN", "A", "ANN", "A")),
        ("USER", [TextBlock("a"), TextBlock("b"), IMAGE, TextBlock("c")], "USER", ["A", "B+", "", "C"]),
    ],
)
def test_with_texts_changes_the_speaker_and_the_content(name: str, content: Any, speaker: str, expected: Any) -> None:
    given = Msg(name, content, "user", url="https://a.example")
    made = with_texts(given, upper_text)
    texts = [getattr(block, "text", "") for block in made.blocks] if isinstance(expected, list) else made.content
    assert (made.name, texts, made.url, made.role) == (speaker, expected, "https://a.example", "user")
    assert (made is given) == (name == speaker and content == expected)


def test_with_texts_adds_no_speaker_to_a_message_without_a_speaker() -> None:
    message = Msg("user", "a", "user").without_speaker()
    assert with_texts(message, upper_text) == Msg("user", "A", "user").without_speaker()
