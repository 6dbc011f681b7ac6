"""Pickles made by version 0.1, before modules had the folders of today."""

import json
import pickle
from base64 import b64decode
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest

from lazyprompt import (
    AudioBlock,
    Base64Source,
    ChatFormatter,
    ChatPrompter,
    FileBlock,
    ImageBlock,
    Markers,
    Msg,
    Prompty,
    Rendered,
    Reply,
    Segment,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    TrainingSample,
    TrimReport,
    Trusted,
    URLSource,
    VideoBlock,
)
from lazyprompt.safety.neutralised import Neutralised

PICKLES: dict[str, str] = json.loads((Path(__file__).parents[1] / "golden" / "old_pickles.json").read_text("utf-8"))
PDF, PICTURE = Base64Source("application/pdf", "JVBERg=="), URLSource("https://x.org/a.png")


def loaded(name: str) -> object:
    value: object = pickle.loads(b64decode(PICKLES[name]))  # noqa: S301 - made by the tests themselves
    return value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (
            "blocks",
            Msg(
                "Bob",
                [
                    *(TextBlock("hi"), ThinkingBlock("t"), ImageBlock(PICTURE)),
                    *(AudioBlock(Base64Source("audio/wav", "UklGRg==")), ToolUseBlock("c1", "f", {"a": 1})),
                    *(ToolResultBlock("c1", "f", "ok"), VideoBlock(URLSource("https://x.org/a.mp4")), FileBlock(PDF)),
                ],
                "user",
            ),
        ),
        ("messages", [Msg("user", "a", "user"), Msg("assistant", "b", "assistant"), Msg("user", "x", "user")]),
        ("text", ChatPrompter("{a}").fill({"a": "x", "input": "y"}, [["q", "r"]])),
        ("markers", Markers.for_model("qwen2.5")),
        ("payload", ChatFormatter("anthropic").format(Msg("u", "hi", "user"))),
        ("reply", Reply(Msg("assistant", "hi", "assistant"), {})),
        ("trusted", Trusted("<b>")),
    ],
)
def test_a_value_is_as_it_was(name: str, value: object) -> None:
    assert loaded(name) == value


def test_segments_are_as_they_were() -> None:
    rendered, sample = loaded("rendered"), loaded("sample")
    assert isinstance(rendered, Rendered)
    assert Segment("x", "a", trusted=False) in rendered.segments
    assert isinstance(sample, TrainingSample)
    assert sample.segments == ChatPrompter("{a}").training_sample({"a": "x"}, label="y").segments


def test_a_neutralised_text_still_has_its_marks() -> None:
    """How marks are found has other arguments now; a pickle holds those of before."""
    text = loaded("neutralised")
    assert isinstance(text, Neutralised)
    assert text == "a<\\|im_end|>b"
    assert text.marks == ((1, 12, "<|im_end|>"),)


def test_files_and_reports_go_on() -> None:
    file, trim = loaded("prompty"), cast("tuple[list[Any], TrimReport]", loaded("trim"))
    assert isinstance(file, Prompty)
    assert "why?" in file.render({"q": "why?"})
    assert trim[0][-1] == {"role": "user", "content": "z"}
    assert trim[1].dropped == (0,)


def test_nothing_else_has_an_old_name() -> None:
    with pytest.raises(ModuleNotFoundError):
        import_module("lazyprompt.no_such_module")
    with pytest.raises(AttributeError):
        getattr(import_module("lazyprompt.messages"), "NoSuchBlock")  # noqa: B009 - it is no attribute for type checkers
