"""The pieces of control sequences, against a plain search through all sequences and all places to cut them."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyprompt.safety.pieces import Edges, plain

TEXTS = ("<|im_end|>", "[INST]", "</s>", "USER: ", "aBca", "### k:", "S1 0\tx", "<unused7>", "ß>")
NAME = r"[^<>|\s\\]{1,64}"
# Reserved tokens that are numbered, one with each number of digits; digits are all the same in plain text.
WORDS = ("unused", "reserved_", "special_", "extra_id_")
NUMBERED = {f"<{word}{'0' * count}>" for word in WORDS for count in range(1, 6)}


class Plain(NamedTuple):
    """The plain way: one side of :class:`Edges`."""

    reserved: bool
    backwards: bool

    def read(self, text: str) -> str:
        return plain(text)[:: -1 if self.backwards else 1].strip()

    def rests(self, piece: str) -> set[str] | None:
        """Return what can follow a piece; None is anything."""
        if self.reserved and re.fullmatch(rf"{'>' if self.backwards else '<'}(\|({NAME}\|?)?)?", piece):
            return None
        known = {plain(text) for text in TEXTS} | (NUMBERED | {"<|x|>"} if self.reserved else set())
        turned = {text[::-1] for text in known} if self.backwards else known
        return {text[len(piece) :].strip() for text in turned if piece and text.startswith(piece) and text != piece}

    def at_end(self, texts: list[str]) -> set[str]:
        read = map(self.read, texts)
        pieces = {text[at:] for text in read for at in range(len(text))}
        return {piece for piece in pieces if self.rests(piece) != set()}

    def go_on(self, pieces: set[str], texts: list[str]) -> bool:
        found = [self.rests(piece) for piece in pieces]
        if None in found:
            return True
        rests = {rest for each in found for rest in each or ()}
        heads = {self.read(text) for text in texts} - {""}
        return "" in rests or any(rest.startswith(head) or head.startswith(rest) for rest in rests for head in heads)


WHOLE = (*TEXTS, "<|name|>", "<extra_id_12>")
CUTS = [piece for text in WHOLE for at in range(len(text)) for piece in (text[:at], text[at:])]
# Blanks, signs that do not show, and disguises.
SIGNS = (*" \t\n17a你é＜﹤［＞\u200b\u0131", "  ", "xyz", "ＵＳ", "<p>")
FRAGMENTS = st.one_of(
    st.sampled_from(CUTS),
    st.sampled_from([each.upper() for each in CUTS]),
    st.sampled_from(SIGNS),
    st.integers(50, 70).map(lambda count: "<|" + "n" * count),
)
TALKS = st.lists(st.lists(FRAGMENTS, max_size=4).map("".join), max_size=3)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("reserved", [False, True])
@given(texts=TALKS, beside=TALKS)
def test_pieces_at_the_ends_of_texts(*, reserved: bool, backwards: bool, texts: list[str], beside: list[str]) -> None:
    edges, way = Edges(TEXTS, reserved=reserved), Plain(reserved, backwards)
    side = edges.ended if backwards else edges.begun
    pieces = side.at_end(texts)
    assert pieces == way.at_end(texts)
    assert side.go_on(pieces, beside) == way.go_on(pieces, beside)
    for piece in pieces:
        assert side.begin(piece)
        assert side.go_on([piece], beside) == way.go_on({piece}, beside)


@given(FRAGMENTS)
def test_pieces_within_sequences(text: str) -> None:
    edges, piece = Edges(TEXTS, reserved=False), plain(text)
    assert edges.is_inside(piece) == any(piece in plain(each)[1:-1] for each in TEXTS if piece)
    assert edges.is_inside_reserved(piece) is False


@pytest.mark.parametrize(
    ("piece", "inside"),
    [
        *(("|", True), ("|name", True), ("name|", True), ("|name|", True), ("name", True), ("", True)),
        *(("n" * 64, True), ("n" * 65, False), ("a b", False), ("<", False), ("a\\b", False)),
        *(("||", True), ("|||", False)),
    ],
)
def test_pieces_within_reserved_tokens(piece: str, *, inside: bool) -> None:
    assert Edges((), reserved=True).is_inside_reserved(piece) is inside
    assert not Edges((), reserved=False).is_inside_reserved(piece)


@pytest.mark.parametrize("word", WORDS)
def test_each_number_of_a_reserved_token_is_known(word: str) -> None:
    edges, turned = Edges((), reserved=True), f"<{word}"[::-1]
    assert all(edges.begun.begin(f"<{word}{digits}") for digits in ("", "0", "00000"))
    assert all(edges.ended.begin(f">{digits}{turned[:-1]}") for digits in ("0", "00000"))
    assert not any(edges.begun.begin(f"<{word}{rest}") for rest in ("000000", ">", "0>"))
    assert not any(edges.ended.begin(f">{rest}") for rest in (turned, f"0{turned}", turned[:-1]))
