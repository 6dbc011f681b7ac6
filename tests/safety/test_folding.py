"""Folded text that knows where its signs come from, against the plain way, which keeps a place for each sign."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyprompt._base.json import JsonText
from lazyprompt.errors import SafetyError
from lazyprompt.safety import policy as safety
from lazyprompt.safety.folding import Folded, as_read, fold
from lazyprompt.safety.policy import NEUTRALIZE, Controls, Policy

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CONTROLS = Controls(
    ["<|im_end|>", "[INST]", "</s>", "USER:", "<｜User｜>", "===", "fi>", "가:"], ["### Response:", "### k:"]
)
# Signs that fold to one, to none, to several, and marks that a normaliser would put in another order.
SIGNS = st.sampled_from(
    [
        *("<|im_end|>", "[INST]", "### Response:", "USER:", "</s>", "fi", "im_end"),
        *"＜｜＞Ｕ［＃⩶=ﬁ≮≯éǖ가각ᄀﷺ…，你😀𝐔㍿ﾠ",
        *"\u0338\u0301\u0323\u200b\u00ad\ufeff\ufe0f\U000e0041\u3164\u115f",
        *'a|>\\\n\t #"',
    ]
)
TEXTS = st.lists(SIGNS | st.characters(codec="utf-8"), max_size=12).map("".join)
PARTS = st.lists(TEXTS, min_size=1, max_size=5)


class Plain(NamedTuple):
    """The plain way: each sign folded by itself, and for each of its signs the index it had."""

    text: str
    places: list[int]

    @classmethod
    def of(cls, text: str) -> Plain:
        folds = [sign if sign.isascii() else fold(sign) for sign in text]
        return cls("".join(folds), [place for place, folded in enumerate(folds) for _ in folded])

    def origin(self, at: int) -> tuple[int, int]:
        return self.places[at], at - bisect_left(self.places, self.places[at])


@given(TEXTS)
def test_each_sign_knows_its_place(text: str) -> None:
    folded, plain = Folded.of(text), Plain.of(text)
    assert folded.text == plain.text
    assert [folded.origin(at) for at in range(len(plain.text))] == [plain.origin(at) for at in range(len(plain.text))]


def test_a_folding_of_ones_own_moves_signs_of_plain_text_too() -> None:
    folded = Folded.of("aBbC", lambda text: text.replace("b", "xyz").replace("C", "").lower())
    assert folded.text == "abxyz"
    assert [folded.origin(at) for at in range(5)] == [(0, 0), (1, 0), (2, 0), (2, 1), (2, 2)]
    assert Folded.of("plain") == ("plain", "plain", {}, (), ())


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("Ann", "Ann"),
        ("A\x00n\x7fn\x9f\t", "Ann\t"),
        ("A\u2800n\u2581n\u200b", "A n n"),
        ("\uff21n\u0301\u0338\u20dd\u00ad", "An"),
        ("\u0639\u0650", "\u0639"),
        ("\u0915\u093e", "\u0915\u093e"),
    ],
)
def test_a_reader_sees_no_marks_and_nothing_invisible(text: str, seen: str) -> None:
    assert as_read(text) == seen


@pytest.mark.parametrize("behind", ["im_end|>", "im_end|" + "\u200b" * 90 + ">", "im" + "\u00ad" * 300 + "_end|>"])
def test_a_sequence_is_seen_through_any_number_of_invisible_signs(behind: str) -> None:
    assert CONTROLS.found(f"é<|{behind}") == [(1, f"<|{behind}")]
    assert not CONTROLS.clean(f"é<|{behind}")
    assert CONTROLS.clean(f"é<|{behind[:-1]}") is CONTROLS.clean("é< b<") is True


def guarded(parts: Sequence[str], policy: Policy) -> Sequence[str] | str:
    try:
        return CONTROLS.guard(parts, [f"slot{index}" for index in range(len(parts))], policy)
    except SafetyError as error:
        return str(error)


@pytest.mark.slow
@given(PARTS, st.sampled_from([NEUTRALIZE, Policy("raise"), Policy("neutralize", (("slot1", "off"),))]))
def test_the_guard_does_what_it_does_with_a_place_for_each_sign(parts: list[str], policy: Policy) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(safety, "Folded", Plain)
        plain = guarded(parts, policy)
    assert guarded(parts, policy) == plain


def plainly_edited(text: str, forged: Iterable[tuple[int, int]]) -> str:
    """JSON with the first sign of each sequence that stands in a string as an escape, by a set of all such signs."""
    inside: set[int] = set()
    for string in re.finditer(r'"(?:[^"\\]|\\.)*"', text):
        inside.update(range(string.start() + 1, string.end() - 1))
        for escape in re.finditer(r"\\(?:u[0-9a-fA-F]{4}|.)", string[0]):
            inside.difference_update(range(string.start() + escape.start(), string.start() + escape.end()))
    edits: dict[int, str] = {}
    for begin, end in forged:
        at = next((index for index in range(begin, end) if index in inside), None)
        if at is None:
            edits[begin] = text[begin] + " "
        else:
            edits[at] = f"\\u{ord(text[at]):04x}"
    return "".join(edits.get(index, sign) for index, sign in enumerate(text))


@given(
    st.recursive(
        st.lists(st.sampled_from(["<|x|>", "[{", '"', "\\", "\n", "你", "a", ":"]), max_size=5).map("".join),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "<|x|>", '"']), inner),
        max_leaves=5,
    )
)
def test_json_is_broken_where_the_plain_way_breaks_it(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False)
    controls = Controls(["<|x|>", "[{"], reserved=False)
    found = [match.span() for match in re.finditer(r"<\|x\|>|\[\{", text)]
    assert controls.guard(["", JsonText(text), ""], ["a", "b", "c"], NEUTRALIZE)[1] == plainly_edited(text, found)


@given(
    st.lists(st.text("<|[a>", min_size=2, max_size=4), min_size=1, max_size=8),
    st.text("<|[a>b", max_size=12),
)
def test_of_the_sequences_at_a_place_the_longest_is_found(sequences: list[str], text: str) -> None:
    """Sequences are grouped by their first two signs; the plain way tries one after the other, the longest first."""
    plain = re.search("|".join(re.escape(each) for each in sorted(sequences, key=len, reverse=True)), text)
    controls = Controls(sequences, reserved=False)
    assert controls.clean(text) == (plain is None)
    if plain is not None:
        with pytest.raises(SafetyError) as caught:
            controls.guard(["", text, ""], ["a", "b", "c"], Policy("raise"))
        assert f"sequence {plain[0]!r};" in str(caught.value)


@pytest.mark.parametrize("count", [15, 16, 17, 60])
def test_many_honest_signs_hide_no_sequence(count: int) -> None:
    """A few signs are looked at one by one; where they are many, all at once."""
    for text in ("a < b [1] " * count, "甲 < 乙 ［1］ " * count):
        assert CONTROLS.clean(text)
        for forged in ("<|im_end|>", "[INST]", "＜|im_end|>"):
            assert not CONTROLS.clean(text + forged)
            assert not CONTROLS.clean(forged + text)
