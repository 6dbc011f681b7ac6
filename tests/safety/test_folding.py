"""Folded text compared with the normalizers of real tokenizers, and the source indexes of its characters."""

import json
import re
from collections.abc import Iterable
from functools import cache
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import normalizers

from lazyprompt._base.json import JsonText
from lazyprompt.errors import SafetyError
from lazyprompt.safety.find import Controls
from lazyprompt.safety.folding import DISGUISES, Folds, as_read, fold, origins
from lazyprompt.safety.policy import NEUTRALIZE, Policy, guard

CONTROLS = Controls(
    ["<|im_end|>", "[INST]", "</s>", "USER:", "<｜User｜>", "===", "fi>", "가:"], ["### Response:", "### k:"]
)
# Characters that fold to one, none or several, and accents that a normalizer would reorder.
CHARACTERS = st.sampled_from(
    [
        *("<|im_end|>", "[INST]", "### Response:", "USER:", "</s>", "fi", "im_end"),
        *"＜｜＞Ｕ［＃⩶=ﬁ≮≯éǖ가각ᄀﷺ…，你😀𝐔㍿ﾠ",
        *"\u0338\u0301\u0323\u200b\u00ad\ufeff\ufe0f\U000e0041\u3164\u115f",
        *'a|>\\\n\t #"',
    ]
)
TEXTS = st.lists(CHARACTERS | st.characters(codec="utf-8"), max_size=12).map("".join)
PARTS = st.lists(TEXTS, min_size=1, max_size=5)


@given(TEXTS)
def test_origins_map_each_folded_character_to_its_source_index(text: str) -> None:
    folds = [fold(character) for character in text]
    places = [at for at, folded in enumerate(folds) for _ in folded]
    assert fold(text) == "".join(folds)
    assert [*origins(text, range(len(places)))] == places


def test_custom_folding_maps_origins_and_limits_its_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folding caches a limited number of characters."""
    monkeypatch.setattr("lazyprompt.safety.folding._MOST_FOLDS", 3)
    folds = Folds(lambda character: {"b": "xyz", "C": ""}.get(character, character.lower()))
    assert "aBbC".translate(folds) == "abxyz"
    assert [*origins("aBbC", range(5), folds)] == [0, 1, 2, 2, 2]
    assert ("aBbCde".translate(folds), [*folds]) == ("abxyzde", [*map(ord, "Cde")])


@pytest.mark.slow
def test_disguises_are_all_compatibility_forms_of_unicode() -> None:
    """The search decomposes a text only if it contains one of these characters."""
    forms = [chr(code) for code in range(128, 0x110000) if normalize("NFKD", chr(code)) != chr(code)]
    for character, known in DISGUISES.items():
        assert known == "".join(each for each in forms if character in normalize("NFKD", each))


NORMALIZERS = {
    "nmt": normalizers.Nmt(),
    "nmt nfkc": normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()]),
    "nfkc": normalizers.NFKC(),
    "bert": normalizers.BertNormalizer(),
    "accents": normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents()]),
    "lower": normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]),
}


MARKER = "<|im_end|>"


@cache
def disguised_markers() -> list[str]:
    """The marker with each character of Unicode inserted, or in place of one of its own characters."""
    return [
        f"{MARKER[:at]}{character}{MARKER[behind:]}"
        for character in map(chr, (*range(0xD800), *range(0xE000, 0x20000), *range(0xE0000, 0xE0200)))
        for at, behind in ((1, 1), (3, 3), (0, 1), (3, 4))
        if character != "😀"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", NORMALIZERS)
def test_characters_changed_by_a_tokenizers_normalizer_do_not_hide_a_sequence(name: str) -> None:
    texts = disguised_markers()
    read = NORMALIZERS[name].normalize_str("😀".join(texts)).split("😀")
    disguised = [text for text, each in zip(texts, read, strict=True) if MARKER in each]
    assert disguised
    assert [text for text in disguised if CONTROLS.is_clean(text)] == []


@pytest.mark.parametrize(
    ("text", "visible"),
    [
        ("Ann", "Ann"),
        ("A\x00n\x7fn\x9f\t", "Ann\t"),
        ("A\u2800n\u2581n\u200b", "A n n"),
        ("\uff21n\u0301\u0338\u20dd\u00ad", "An"),
        ("\u0639\u0650", "\u0639"),
        ("\u0915\u093e", "\u0915\u093e"),
    ],
)
def test_as_read_removes_accents_and_invisible_characters(text: str, visible: str) -> None:
    assert as_read(text) == visible


@pytest.mark.parametrize("behind", ["im_end|>", "im_end|" + "\u200b" * 90 + ">", "im" + "\u00ad" * 300 + "_end|>"])
def test_sequence_with_any_number_of_invisible_characters_is_found(behind: str) -> None:
    assert CONTROLS.found(f"é<|{behind}") == [(1, f"<|{behind}")]
    assert not CONTROLS.is_clean(f"é<|{behind}")
    assert CONTROLS.is_clean(f"é<|{behind[:-1]}") is CONTROLS.is_clean("é< b<") is True


def edited_json(text: str, forged: Iterable[tuple[int, int]]) -> str:
    """JSON with an escape for the first character of each sequence inside a string; a simple implementation."""
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
    return "".join(edits.get(index, character) for index, character in enumerate(text))


@given(
    st.recursive(
        st.lists(st.sampled_from(["<|x|>", "[{", '"', "\\", "\n", "你", "a", ":"]), max_size=5).map("".join),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "<|x|>", '"']), inner),
        max_leaves=5,
    )
)
def test_json_is_neutralized_at_the_same_places_as_by_a_simple_implementation(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False)
    controls = Controls(["<|x|>", "[{"], reserved=False)
    found = [match.span() for match in re.finditer(r"<\|x\|>|\[\{", text)]
    assert guard(controls, ["", JsonText(text), ""], ["a", "b", "c"], NEUTRALIZE)[1] == edited_json(text, found)


@given(st.lists(st.text("<|[a>", min_size=2, max_size=4), min_size=1, max_size=8), st.text("<|[a>b", max_size=12))
def test_longest_sequence_at_a_position_is_found(sequences: list[str], text: str) -> None:
    """Sequences are grouped by their first two characters; the regular expression tries all, the longest first."""
    plain = re.search("|".join(re.escape(each) for each in sorted(sequences, key=len, reverse=True)), text)
    controls = Controls(sequences, reserved=False)
    assert controls.is_clean(text) == (plain is None)
    if plain is not None:
        with pytest.raises(SafetyError) as caught:
            guard(controls, ["", text, ""], ["a", "b", "c"], Policy("raise"))
        assert f"sequence {plain[0]!r};" in str(caught.value)


@pytest.mark.parametrize("count", [15, 16, 17, 60])
@pytest.mark.parametrize("piece", ["a < b [1] ", "甲 < 乙 ［1］ "])
def test_sequence_beside_many_harmless_special_characters_is_found(piece: str, count: int) -> None:
    """A few special characters are checked one by one, and many all at once."""
    text = piece * count
    assert CONTROLS.is_clean(text)
    for forged in ("<|im_end|>", "[INST]", "＜|im_end|>"):
        assert not CONTROLS.is_clean(text + forged)
        assert not CONTROLS.is_clean(forged + text)
