"""Pieces of control sequences, compared with a plain search through all sequences and all their cuts."""

import re
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lazyprompt.chat_templates.pieces import Edges, at_edge, begins_at_end, ends_at_start, may_cross, plain, within
from lazyprompt.safety.find import Controls

CONTROLS = Controls(
    ("<|im_start|>", "<|im_end|>", "[INST]", "[/INST]", "</s>", "<start_of_turn>", "<｜User｜>", "USER:", "<think>"),
    ("### Response:", "### k:"),
)
TEXTS = ("<|im_end|>", "[INST]", "</s>", "USER: ", "aBca", "### k:", "S1 0\tx", "<unused7>", "ß>")
NAME = r"[^<>|\s\\]{1,64}"
# Reserved tokens that are numbered, one with each number of digits; digits are all the same in plain text.
WORDS = ("unused", "reserved_", "special_", "extra_id_")
NUMBERED = {f"<{word}{'0' * count}>" for word in WORDS for count in range(1, 6)}


class Plain(NamedTuple):
    """The reference: one side of :class:`Edges`."""

    reserved: bool
    backwards: bool

    def read(self, text: str) -> str:
        return plain(text)[:: -1 if self.backwards else 1].strip()

    def rests(self, piece: str) -> set[str] | None:
        """Return the texts that can follow a piece; None if any text can."""
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
# Blanks, invisible characters, and disguises.
CHARACTERS = (*" \t\n\x0117a你é＜﹤［＞\u200b\u0131", "  ", "xyz", "ＵＳ", "<p>")
FRAGMENTS = st.one_of(
    st.sampled_from(CUTS),
    st.sampled_from([each.upper() for each in CUTS]),
    st.sampled_from(CHARACTERS),
    st.integers(50, 70).map(lambda count: "<|" + "n" * count),
)
TEXT_LISTS = st.lists(st.lists(FRAGMENTS, max_size=4).map("".join), max_size=3)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("reserved", [False, True])
@given(texts=TEXT_LISTS, beside=TEXT_LISTS)
@example(texts=["US\x01", "\x01 0\tx"], beside=["\x01ER:"])
@example(texts=["<unused"], beside=["7>"])
@example(texts=["SER: \n<"], beside=[])  # the blank of "USER: " was stripped with the line break after it
@example(texts=["ß>", "ABCA"], beside=[])  # with a text that is not ASCII, capital letters were ignored
def test_pieces_at_text_ends_are_found(*, reserved: bool, backwards: bool, texts: list[str], beside: list[str]) -> None:
    edges, way = Edges(TEXTS, reserved=reserved), Plain(reserved, backwards)
    side = edges.ended if backwards else edges.begun
    pieces = side.at_end(texts)
    assert pieces == way.at_end(texts)
    assert not side.begin("")
    assert side.go_on(pieces, beside) == way.go_on(pieces, beside)
    for piece in pieces:
        assert side.begin(piece)
        assert side.go_on([piece], beside) == way.go_on({piece}, beside)


@given(FRAGMENTS)
@example("\n")  # it joins the sequences that are searched
def test_pieces_within_sequences_are_found(text: str) -> None:
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
def test_pieces_within_reserved_tokens_are_found(piece: str, *, inside: bool) -> None:
    assert Edges((), reserved=True).is_inside_reserved(piece) is inside
    assert not Edges((), reserved=False).is_inside_reserved(piece)


@pytest.mark.parametrize("word", WORDS)
def test_reserved_tokens_are_known_with_numbers_of_up_to_five_digits(word: str) -> None:
    edges, turned = Edges((), reserved=True), f"<{word}"[::-1]
    assert all(edges.begun.begin(f"<{word}{digits}") for digits in ("", "0", "00000"))
    assert all(edges.ended.begin(f">{digits}{turned[:-1]}") for digits in ("0", "00000"))
    assert not any(edges.begun.begin(f"<{word}{rest}") for rest in ("000000", ">", "0>"))
    assert not any(edges.ended.begin(f">{rest}") for rest in (turned, f"0{turned}", turned[:-1]))


@pytest.mark.parametrize(
    ("literal", "part"),
    [
        *((text, True) for text in ("<", "a<|", "a<|im", "<|im_end|", "im_end", "|", "_", "|>", ">a", "end|>a")),
        *((text, True) for text in ("|im_end|> a", "a[", "INST]", "NST", "USE", "ER: x", "\n#", "## resp", "onse: x")),
        *(("＜", True), ("a＜|im", True), ("<\u200b", True), ("Say: \n", False), ("a " * 40, False)),
        *((text, False) for text in ("", "\u200b", " and ", "<|im_end|>\n", "\n\n", "<p> </p> ")),
    ],
)
def test_literal_that_may_be_part_of_a_sequence_is_detected(literal: str, *, part: bool) -> None:
    assert may_cross(CONTROLS, literal) is part


@pytest.mark.parametrize(
    ("text", "edge"),
    [
        *((text, True) for text in ("a <|im", "a <|im_  ", "_end|> b", "  |> b", "a [in", "NST] b", "＜|im", "a ［in")),
        *((text, True) for text in ("a\n###  resp", "a\n＃## resp", "end|＞ b", "a <|any_name", "any_name|> b")),
        *(("a [ın", True), ("a <unused1", True), ("a <|im\x01", True), ("\x7fnst] b", True), ("a [in\x7f", True)),
        *(("a <|im" + "\u200b" * 999, True), ("\u200b" * 999 + "end|> b", True)),
        *(("", False), ("a", False), ("im_end", False), ("a <p b", False), ("1 > 0 is so", False), ("[x] is", False)),
        *(("<|im_end|>", False), ("a <|im_end|> b", False), ("name> is", False), (f"{'x' * 80}|> b", False)),
    ],
)
def test_text_that_begins_or_ends_within_a_sequence_is_detected(text: str, edge: bool) -> None:  # noqa: FBT001 - pytest hands it in
    many = "a <p> [x] b" * 60
    assert at_edge(CONTROLS, [text]) == at_edge(CONTROLS, ["fine", text, "and"]) == edge
    assert at_edge(CONTROLS, [many, text]) == edge
    assert (begins_at_end(CONTROLS, text) or ends_at_start(CONTROLS, text)) == edge
    assert begins_at_end(CONTROLS, f"fine {text}") == begins_at_end(CONTROLS, text)
    assert ends_at_start(CONTROLS, f"{text} fine") == ends_at_start(CONTROLS, text)


@pytest.mark.parametrize(
    ("text", "own", "edge"),
    [
        *(("status", [], False), ("status", ["er: a"], True), ("status", ["e"], True), ("status", ["e-"], False)),
        *(("status", ["ser:"], False), ("you", ["ser:"], True), ("you ", ["\n SER:"], True), ("user: a", [], False)),
        *((": a", [], False), (": a", ["user"], True), (": a", ["user "], True), (": a", ["er"], True)),
        *((": a", ["us"], False), ("a <", [], True), ("> a", [], True), ("[IN", [], False), ("[IN", ["st]"], True)),
        *((": a", ["xser"], False), ("us", ["erx"], False)),
        *(("\uff35s", ["er:"], True), ("us\u200b", ["e\u200br:"], True), ("a u", ["", " ", "\u200b"], False)),
    ],
)
def test_piece_at_an_edge_counts_if_other_text_continues_it(text: str, own: list[str], edge: bool) -> None:  # noqa: FBT001 - as above
    controls = Controls(["User:", "[INST]"])
    assert at_edge(controls, [text, "honest"], own) == at_edge(controls, [text, *own], ["honest"]) == edge


@pytest.mark.parametrize(
    ("texts", "known", "inside"),
    [
        *(([text], (), True) for text in ("im_end", " INST ", "inst", "＿end|", "ser", " " * 99 + "inst")),
        (["\u200b" * 9 + "in" + "\u200b" * 999 + "st"], (), True),
        *(([text], (), False) for text in ("", "hello", "im_end|>", "<|im_end", "<|im_end|>")),
        *((["im_end", "hello"], ["im_end"], False), (["inst", "im_end"], ["inst"], True)),
    ],
)
def test_text_within_a_sequence_is_detected(texts: list[str], known: list[str], *, inside: bool) -> None:
    assert within(CONTROLS, texts, frozenset(known)) is inside
