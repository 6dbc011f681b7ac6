import json
import sys
from importlib import import_module
from typing import Any
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyprompt._base.characters import code_point, find_hidden, split_hidden, visible

# It knows the properties of Unicode, is installed with tiktoken, and has no types.
regex: Any = import_module("regex")
EVERY = "".join(map(chr, (*range(0xD800), *range(0xE000, sys.maxunicode + 1))))


def test_default_ignorable_characters_are_escaped() -> None:
    ignorable = regex.findall(r"\p{Default_Ignorable_Code_Point}", EVERY)
    assert len(ignorable) > 4000
    assert [code_point(sign) for sign in ignorable if not any(find_hidden(sign))] == []


def test_control_line_separator_and_bidi_characters_are_escaped() -> None:
    obeyed = regex.findall(r"[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}--[\n\t]]", EVERY, flags=regex.VERSION1)
    assert len(obeyed) > 70
    assert [code_point(sign) for sign in obeyed if not any(find_hidden(sign))] == []


def test_visible_characters_are_not_escaped() -> None:
    known = regex.compile(r"[\p{Default_Ignorable_Code_Point}\p{Cc}\p{Cf}\p{Zl}\p{Zp}]")
    found = [match[0] for match in find_hidden(EVERY)]
    # The Braille pattern without dots is blank; category Cn is unassigned characters.
    assert {code_point(sign) for sign in found if not known.match(sign) and category(sign) != "Cn"} == {"U+2800"}


@pytest.mark.parametrize(
    "text",
    [
        "a\n\tb 中文 é",
        "👨\u200d👩\u200d👧 ❤\ufe0f\u200d🔥 👁\ufe0f\u200d🗨\ufe0f",
        "🏳\ufe0f\u200d🌈 🇩🇪🇯🇵 👍🏽 1\ufe0f\u20e3 ☺\ufe0e",
        "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
        "می\u200cخواهم نامه\u200cای",
        "क्\u200dष श्री क्\u200cष",
        "ක්\u200dෂ ස්\u200dත්\u200dරී",
        "നന്\u200dമ",
    ],
)
def test_joiners_and_variation_selectors_in_valid_sequences_are_kept(text: str) -> None:
    assert visible(text) == text
    assert not any(find_hidden(text))


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a\u200db", r"a\u200db"),
        ("\u200d👩", "\\u200d👩"),
        ("👩\u200d", "👩\\u200d"),
        ("中\u200c文", "中\\u200c文"),
        ("a\ufe0f", r"a\ufe0f"),
        ("❤\ufe0f\ufe0f", "❤\ufe0f\\ufe0f"),
        ("x\ufe01\U000e0100", r"x\ufe01\udb40\udd00"),
        ("🏴\U000e0067\U000e007f", r"🏴\udb40\udc67\udb40\udc7f"),
        (
            "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067",
            "🏴" + r"\udb40\udc67\udb40\udc62\udb40\udc65\udb40\udc6e\udb40\udc67",
        ),
        (
            "🏴\U000e0067\U000e0062\U000e0077\U000e006c\U000e0073\U000e007f\U000e0041",
            "🏴\U000e0067\U000e0062\U000e0077\U000e006c\U000e0073\U000e007f" + r"\udb40\udc41",
        ),
        ("so\xadft \u3164 \u2800 \u115f \u180e \u034f", r"so\u00adft \u3164 \u2800 \u115f \u180e \u034f"),
        ("\x1b]0;t\x07 \x9b2J \x85 \r\x08\x7f", r"\u001b]0;t\u0007 \u009b2J \u0085 \u000d\u0008\u007f"),
    ],
)
def test_hidden_characters_outside_valid_sequences_are_escaped_as_in_json(text: str, written: str) -> None:
    assert visible(text) == written
    assert json.loads(f'"{written}"') == text


@given(
    st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("\u200d\u200c\ufe0f👩❤ ک\x1b\u202e")))
)
def test_split_pieces_join_to_the_text_and_agree_with_visible(text: str) -> None:
    found = [*split_hidden(text)]
    assert "".join(piece for piece, _ in found) == text
    assert "".join(visible(piece) if is_hidden else piece for piece, is_hidden in found) == visible(text)
    assert any(is_hidden for _, is_hidden in found) is any(find_hidden(text))
