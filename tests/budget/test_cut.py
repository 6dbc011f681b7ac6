"""Texts cut to a number of tokens."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyprompt.budget.cut import CUT_MARK, Cut, shorten

ENGLISH = "First of all. Then this! And that? Version 3.14 is out; see below.\nA line\nThe last sentence."
CHINESE = "第一句。第二句!第三句?最后一句。"


@pytest.mark.parametrize(
    ("text", "room", "cut", "expected"),
    [
        (ENGLISH, 500, "end", ENGLISH),
        (ENGLISH, len(ENGLISH), "middle", ENGLISH),
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
    ],
)
def test_a_text_is_cut_where_it_hurts_least(text: str, room: int, cut: Cut, expected: str) -> None:
    assert shorten(text, room, len, cut) == expected


@given(text=st.text("ab .\n你。", max_size=300), room=st.integers(0, 120), cut=st.sampled_from(["end", "middle"]))
def test_what_is_cut_fits_and_is_of_the_text(text: str, room: int, cut: Cut) -> None:
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


def test_much_of_the_room_is_used() -> None:
    words = "word " * 5_000
    for room in (100, 1_000, 10_000):
        assert room * 0.9 < len(shorten(words, room, len)) <= room
        assert room * 0.9 < len(shorten("A short one. " + words, room, len, "middle")) <= room


@pytest.mark.timing
def test_a_megabyte_is_no_matter() -> None:
    for text in ("x" * 1_000_000, "a b. " * 200_000, "\n" * 1_000_000):
        begun = time.perf_counter()
        assert len(shorten(text, 5_000, len, "middle")) <= 5_000
        assert time.perf_counter() - begun < 10
