"""Neutralised text: its marks give back what was given, and JSON keeps its value."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyprompt._base.json import JsonText
from lazyprompt.safety.find import Controls
from lazyprompt.safety.neutralised import Neutralised, NeutralisedJson
from lazyprompt.safety.policy import NEUTRALIZE, guard

if TYPE_CHECKING:
    from collections.abc import Sequence

# They overlap, lie within each other, and stand for signs that one character is decomposed to.
CONTROLS = Controls(["<|im_end|>", "</s>", "</s></s>", "s></", "<<", "aba", "=>", "==", "fi>"], ["### k:"])
# In JSON they may be its own brackets, quotes and escapes.
IN_JSON = Controls(["[[", "}]", '":', "\\n", "n<", "</s>", "😀x", "<\\"], reserved=False)
PIECES = st.sampled_from(
    [*("<|im_end|>", "</s>", "s></s>", "<<<", "ababa", "=>", "ﬁ>", "<|a|>", "### k:"), *"⩶＜\n aé\\"]
)
VALUES = st.recursive(
    st.sampled_from(["</s>", "a\nb", "n<", "\\", '"', "</s></s>", "😀x", "<\\", "", "é", ":", "\\n", 1, None]),
    lambda value: (
        st.lists(value, max_size=3) | st.dictionaries(st.sampled_from(["a", "</s>", "\n<"]), value, max_size=2)
    ),
    max_leaves=6,
)


def guard_text(text: str, controls: Controls, before: str = "") -> str:
    return guard(controls, [before, text, ""], ["system", "a", "b"], NEUTRALIZE)[1]


def as_given(text: str) -> str:
    """Return a text as it was before it was neutralised, by its marks."""
    pieces, done = list[str](), 0
    for begin, end, given_text in text.marks if isinstance(text, Neutralised) else ():
        assert done <= begin < end <= len(text)
        assert text[begin:end] != given_text
        pieces += text[done:begin], given_text
        done = end
    return "".join(pieces) + text[done:]


@given(st.lists(PIECES, max_size=12).map("".join), st.sampled_from(["", "\n", "a\n  ", "b <", "c =", "ab"]))
def test_marks_give_back_the_text(text: str, before: str) -> None:
    made = guard_text(text, CONTROLS, before)
    assert as_given(made) == text
    assert isinstance(made, Neutralised) is (made != text)
    assert guard_text(made, CONTROLS, before) == made


@given(VALUES)
def test_json_keeps_its_value(value: object) -> None:
    text = JsonText(json.dumps(value, ensure_ascii=False))
    made = guard_text(text, IN_JSON)
    assert json.loads(made) == value
    assert as_given(made) == text
    assert isinstance(made, NeutralisedJson) is (made != text)
    assert IN_JSON.found(made) == []


@pytest.mark.parametrize(
    ("before", "text", "made", "marks"),
    [
        *(("", "a</s>b", "a<\\/s>b", [(1, 6, "</s>")]), ("a\n", "</s>", "<\\/s>", [(0, 5, "</s>")])),
        *(("x <|", "im_end|> y", "\\im_end|> y", [(0, 9, "im_end|>")]), ("", "a⩶b", "a=\\=\\=b", [(1, 6, "⩶")])),
        ("", "aba-aba", "a\\ba-a\\ba", [(0, 4, "aba"), (5, 9, "aba")]),
        # The second pass breaks what the first one left, and what it made longer.
        ("", "ababa", "a\\ba\\ba", [(0, 7, "ababa")]),
        ("", "x</s></s>y", "x<\\/s\\><\\/s>y", [(1, 12, "</s></s>")]),
    ],
)
def test_marks_of_one_pass_and_of_several(
    before: str, text: str, made: str, marks: Sequence[tuple[int, int, str]]
) -> None:
    found = guard_text(text, CONTROLS, before)
    assert isinstance(found, Neutralised)
    assert (found, found.marks) == (made, tuple(marks))
