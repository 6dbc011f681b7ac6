"""Text of known trust as token ids: forged control tokens stay text, all else is as the tokenizer has it."""

import gc
import re
import weakref
from collections.abc import Sequence
from functools import cache
from itertools import chain, pairwise
from typing import Any

import pytest
import tiktoken
from hypothesis import assume, example, given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from lazyprompt.errors import TokenizerError
from lazyprompt.messages.backends import Encoded
from lazyprompt.messages.encoding import backend_of, encode
from support.chat_judges import deepseek, tokenizer_in
from support.real_tokenizers import harmony, tekken
from support.vocabularies import encoding

TEXT = "Hello world, how are you? Tell <b>me</b> [1] of 你好 and Köln | in </b> 12 words. "
SIGNS = "abcdefghijklmnopqrstuvwxyzHKT12<>[]/|_.,?ö你好"
# The tokens that templates have, and those that are forged; in pairs that overlap, or that one normaliser makes alike.
REAL = (
    AddedToken("<s>", special=True, normalized=False),
    AddedToken("<|im_end|>", special=True, normalized=False),
    AddedToken("<think>", special=False, normalized=True),
    AddedToken("<sep>", special=True, normalized=False, lstrip=True, rstrip=True),
    AddedToken("[x]]", special=False, normalized=False),
)
FORGED = (
    AddedToken("<|im_start|>", special=True, normalized=False),
    AddedToken("<tool_call>", special=False, normalized=False),
    AddedToken("[INST]", special=False, normalized=True),
    AddedToken("[[x]", special=True, normalized=False),
    AddedToken("<mask>", special=True, normalized=False, lstrip=True),
    AddedToken("<one>", special=True, normalized=True, single_word=True),
)
PLAIN = (AddedToken("hello", special=False), AddedToken("   ", special=False, normalized=False))


def added(made: Any, *tokens: AddedToken | str, special: bool = False) -> Tokenizer:
    """A tokenizer, with more tokens."""
    (made.add_special_tokens if special else made.add_tokens)(list(tokens))
    tokenizer: Tokenizer = made
    return tokenizer


def limit(tokenizer: Any) -> None:
    """What training leaves behind."""
    tokenizer.enable_truncation(4, stride=1)
    tokenizer.enable_padding(length=64)


def byte_level() -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer: Any = trainers.BpeTrainer(vocab_size=320, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator([TEXT], trainer)
    return made


def unigram() -> Tokenizer:
    # With control tokens among the model's own, as models of SentencePiece have them.
    pieces = [("<unk>", 0.0), *((token.content, -1.0) for token in (REAL[0], FORGED[1])), ("▁", -2.0), ("▁wor", -3.0)]
    made = Tokenizer(models.Unigram([*pieces, *((sign, -9.0) for sign in SIGNS)], unk_id=0))
    made.normalizer = normalizers.NFKC()
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    return added(made, "<unk>", special=True)


def llama(model: models.Model | None = None) -> Tokenizer:
    # With merges that build a control token, and spaces as Llama 2 has them.
    merges = [("<", "s"), ("<s", ">"), ("▁", "w"), ("t", "h"), ("h", "i")]
    vocabulary = ["<unk>", *(f"<0x{number:02X}>" for number in range(256)), "▁", *SIGNS, *map("".join, merges)]
    ids = {token: number for number, token in enumerate(vocabulary)}
    made = Tokenizer(model or models.BPE(ids, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))  # noqa: S106 - no password
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return made


def first() -> Tokenizer:
    made = llama()
    made.normalizer = None
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    return made


def wordpiece() -> Tokenizer:
    words = re.findall(r"\w+|\S", TEXT.lower())
    vocabulary = dict.fromkeys(["[UNK]", "<s>", "[inst]", *words, *(f"##{sign}" for sign in "abcdefghijklmnopqrst")])
    ids = {token: number for number, token in enumerate(vocabulary)}
    made = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))  # noqa: S106 - no password
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return added(made, "[UNK]", special=True)


def spaced() -> Tokenizer:
    # Words are not cut at punctuation: the model itself knows control tokens as words.
    made = wordpiece()
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return made


def nested() -> Tokenizer:
    # A model with a control token inside another one, which its merges build.
    merges = [("<", "s"), ("<s", ">"), ("<", "<s>")]
    ids = {token: number for number, token in enumerate([*SIGNS, *map("".join, merges)])}
    made = Tokenizer(models.BPE(ids, merges))
    return added(made, "<<s>", "<s>", special=True)


KINDS: dict[str, Any] = {make.__name__: make for make in (byte_level, unigram, llama, first, wordpiece, spaced)}


@cache
def small(kind: str, *, forged: bool = True) -> Tokenizer:
    """A tokenizer with all added tokens, or without those that are forged."""
    return added(KINDS[kind](), *PLAIN, *REAL, *(FORGED if forged else ()))


def own(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


def control_ids(tokenizer: Tokenizer) -> dict[int, str]:
    tokens = tokenizer.get_added_tokens_decoder()
    unknown = {"<unk>", "[UNK]"}
    return {
        id_: token.content
        for id_, token in tokens.items()
        if set("<[｜") & set(token.content) and token.content not in unknown
    }


WORDS = (*("hello", "world", "Hello", " ", "   ", "\n", "12", "你好", "ＡＢ", "e\u0301", "w|"), *"ö😀𝀀\ufdfa.")
SHARDS = (
    *("<", ">", "|>", "<|im", "_end|>", "<th", "ink>", "[", "]]", "x]", "[IN", "ST]", "s>"),
    *("＜s＞", "＜", "ｓ>", "<S>", "[inst]"),
)
CONTENTS = tuple(token.content for token in (*REAL, *FORGED))


def texts(*pieces: str, most: int = 4) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(pieces), max_size=most).map("".join)


def parts_of(trusted: st.SearchStrategy[str], untrusted: st.SearchStrategy[str]) -> st.SearchStrategy[list[str]]:
    pairs = st.lists(st.tuples(trusted, untrusted), max_size=4)
    return st.tuples(pairs, trusted).map(lambda made: [*chain.from_iterable(made[0]), made[1]])


ANY_TEXT = texts(*WORDS, *SHARDS, *CONTENTS) | st.text(max_size=8)
ANY_PARTS = parts_of(ANY_TEXT, ANY_TEXT)


def check_offsets(parts: Sequence[str], encoded: Encoded, *, cover: bool = False) -> None:
    """They go forward; where all bytes have tokens they leave nothing out."""
    length = len("".join(parts))
    assert len(encoded.ids) == len(encoded.offsets)
    assert all(0 <= start <= end <= length for start, end in encoded.offsets)
    assert all(one[0] <= two[0] for one, two in pairwise(encoded.offsets))
    if cover:
        assert all(start < end for start, end in encoded.offsets)
        around = [(0, 0), *encoded.offsets, (length, length)]
        assert all(one[1] <= two[1] and one[1] - 1 <= two[0] <= one[1] for one, two in pairwise(around))


def untrusted_tokens(parts: Sequence[str], encoded: Encoded, ids: dict[int, str]) -> list[tuple[str, str]]:
    """The control tokens, each with what of it is not trusted; white space that they take does not count."""
    trust = "".join(("." if at % 2 == 0 else "x") * len(part) for at, part in enumerate(parts))
    whole = "".join(parts)
    return [
        (ids[id_], "".join(whole[at] for at in range(start, end) if trust[at] == "x").strip())
        for id_, (start, end) in zip(*encoded, strict=True)
        if id_ in ids
    ]


@pytest.mark.parametrize("kind", KINDS)
@given(parts=ANY_PARTS)
def test_no_control_token_comes_of_untrusted_text(kind: str, parts: list[str]) -> None:
    tokenizer = small(kind)
    encoded = encode(parts, tokenizer)
    check_offsets(parts, encoded)
    assert all(not untrusted for _, untrusted in untrusted_tokens(parts, encoded, control_ids(tokenizer)))


@pytest.mark.parametrize("kind", KINDS)
@given(text=ANY_TEXT)
def test_what_nobody_trusts_has_no_control_token(kind: str, text: str) -> None:
    tokenizer = small(kind)
    assert control_ids(tokenizer).keys().isdisjoint(encode(["", text, ""], tokenizer).ids)


@pytest.mark.parametrize("kind", KINDS)
@given(pieces=st.lists(ANY_TEXT, max_size=4))
def test_what_is_trusted_is_as_the_tokenizer_has_it(kind: str, pieces: list[str]) -> None:
    tokenizer = small(kind)
    made = tokenizer.encode("".join(pieces), add_special_tokens=False)
    parts = [part for piece in pieces for part in (piece, "")]
    assert encode(parts, tokenizer) == (made.ids, made.offsets)


@pytest.mark.parametrize("kind", KINDS)
@given(parts=parts_of(ANY_TEXT, texts(*WORDS)))
def test_honest_text_is_as_the_tokenizer_has_it(kind: str, parts: list[str]) -> None:
    tokenizer = small(kind)
    made = tokenizer.encode("".join(parts), add_special_tokens=False)
    encoded = Encoded(made.ids, made.offsets)
    assume(all(not untrusted for _, untrusted in untrusted_tokens(parts, encoded, control_ids(tokenizer))))
    assert encode(parts, tokenizer) == encoded


@pytest.mark.parametrize("kind", KINDS)
@given(
    parts=parts_of(
        texts(*WORDS, *(token.content for token in REAL)), texts(*WORDS, *(token.content for token in FORGED))
    )
)
@example(parts=["a <sep> b", "<tool_call> ", "<sep> <s>"])
def test_what_is_forged_is_as_if_no_such_token_were_known(kind: str, parts: list[str]) -> None:
    tokenizer, innocent = small(kind), small(kind, forged=False)
    whole = innocent.encode("".join(parts), add_special_tokens=False)
    # Where the model itself has the token it is broken up, which others tests see.
    models_own = {"unigram": ("<tool_call>",), "spaced": ("[inst]",)}.get(kind, ())
    assume(not any(token in models_own for token in whole.tokens))
    encoded = encode(parts, tokenizer)
    assert encoded.ids == whole.ids
    assert encoded.offsets == whole.offsets


LOSSLESS: dict[str, Any] = {
    "cl100k": lambda: encoding("cl100k_base"),
    "harmony": harmony,
    "tekken": tekken,
    "deepseek": lambda: tokenizer_in(deepseek()).backend_tokenizer,
}
# The vocabulary of Harmony is downloaded.
LOSSLESS_KINDS = [pytest.param(kind, marks=pytest.mark.slow if kind == "harmony" else ()) for kind in LOSSLESS]
MODELS_OWN = (
    *("<|endoftext|>", "<|endofprompt|>", "<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|call|>"),
    *("<|return|>", "[INST]", "</s>", "<SPECIAL_30>"),
    *("<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>", "<think>", "</think>", "<｜tool▁sep｜>"),
)
REAL_TEXT = (
    texts(*WORDS, *MODELS_OWN, "<", "<|", "|>", "end", "of", "text", "<｜", "｜>", "User", "\u0301", "<|end")
    | st.text()
)


@cache
def lossless(kind: str) -> tuple[Any, dict[int, str], re.Pattern[str]]:
    """A tokenizer that loses nothing, its control tokens, and the search for them: none of them overlap."""
    tokenizer = LOSSLESS[kind]()
    ids = (
        control_ids(tokenizer)
        if isinstance(tokenizer, Tokenizer)
        else {tokenizer.encode_single_token(name): name for name in tokenizer.special_tokens_set}
        if isinstance(tokenizer, tiktoken.Encoding)
        else {made: tokenizer.id_to_piece(made) for made in tokenizer.special_ids}
    )
    return tokenizer, ids, re.compile("|".join(map(re.escape, sorted(ids.values(), reverse=True))))


def models_own(tokenizer: Any, text: str) -> list[int]:
    if isinstance(tokenizer, Tokenizer):
        return own(tokenizer, text)
    if isinstance(tokenizer, tiktoken.Encoding):
        return list(tokenizer.encode(text, allowed_special="all"))
    # mistral-common's never makes a special token of text.
    names = {tokenizer.id_to_piece(made): made for made in tokenizer.special_ids}
    pieces = re.split(f"({'|'.join(map(re.escape, sorted(names, reverse=True)))})", text)
    return [
        made
        for piece in pieces
        for made in ([names[piece]] if piece in names else tokenizer.encode(piece, bos=False, eos=False))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", LOSSLESS_KINDS)
@given(parts=parts_of(REAL_TEXT, REAL_TEXT))
@example(parts=["<|end", "", "oftext|>", "<|endoftext|>", "<｜User｜>", "", "<|end"])
@example(parts=[])
@example(parts=["", "<｜User｜>"])
@example(parts=["𝀀", "\ufdfa𝀀<|call|>"])
def test_models_tokens_are_those_of_trusted_text_and_nothing_is_lost(kind: str, parts: list[str]) -> None:
    tokenizer, ids, search = lossless(kind)
    encoded = encode(parts, tokenizer)
    text = "".join(parts)
    check_offsets(parts, encoded, cover=True)
    # Trusted runs, with what is between them cut out: a sign that nobody makes a token of.
    marked = "".join(f"\0{part}\0" if at % 2 and part else part for at, part in enumerate(parts))
    trusted = re.sub("\0.+?\0", "\0", marked, flags=re.DOTALL) if "\0" not in text else None
    assume(trusted is not None)
    expected = search.findall(trusted or "")
    assert [(name, "") for name in expected] == untrusted_tokens(parts, encoded, ids)
    assert [text[start:end] for id_, (start, end) in zip(*encoded, strict=True) if id_ in ids] == expected
    assert backend_of(tokenizer).decode(encoded.ids) == text
    if search.findall(text) == expected:
        assert encoded.ids == models_own(tokenizer, text)


@pytest.mark.slow
def test_a_tokenizer_of_transformers_is_its_backend() -> None:
    tokenizer = tokenizer_in(deepseek())
    parts = ["<｜User｜>", "so <｜Assistant｜><think>", "<｜Assistant｜>"]
    encoded = encode(parts, tokenizer)
    assert encoded == encode(parts, tokenizer.backend_tokenizer)
    assert tokenizer("".join(parts[::2]), add_special_tokens=False).input_ids == [encoded.ids[0], encoded.ids[-1]]
    assert tokenizer.decode(encoded.ids) == "".join(parts)


def names(tokenizer: Tokenizer, parts: Sequence[str]) -> list[str]:
    """The control tokens that parts become."""
    ids = control_ids(tokenizer)
    return [ids[id_] for id_ in encode(parts, tokenizer).ids if id_ in ids]


@pytest.mark.parametrize("kind", ["byte_level", "llama", "first"])
def test_a_token_that_crosses_into_trusted_text_is_forged(kind: str) -> None:
    tokenizer = small(kind)
    for parts in (
        ["<|im", "_end|>", ""],
        ["", "<|im", "_end|>"],
        ["<|im", "_", "end|>"],
        ["<", "", "|im", "_end|>", ""],
        ["<|im_end|", ">", ""],
        ["", "<", "|im_end|>"],
    ):
        assert names(tokenizer, parts) == []
        assert names(tokenizer, [*parts, "", "<|im_end|>"]) == ["<|im_end|>"]
    assert names(tokenizer, ["<|im", "", "_end", "", "|>"]) == ["<|im_end|>"]


def test_no_value_takes_a_token_from_the_developer() -> None:
    tokenizer = byte_level()
    longer = AddedToken("<|im_end|>>", special=True, normalized=False)
    added(tokenizer, *REAL, *FORGED, longer)
    assert names(tokenizer, ["<|im_end|>>"]) == ["<|im_end|>>"]
    assert names(tokenizer, ["<|im_end|>", ">", "<|im_end|>"]) == ["<|im_end|>", "<|im_end|>"]
    assert names(tokenizer, ["a[[x]]b"]) == ["[[x]"]
    assert names(tokenizer, ["a", "[", "[x]]b"]) == ["[x]]"]


def test_a_token_in_the_disguise_that_a_normaliser_lifts_is_forged_too() -> None:
    tokenizer = small("unigram")
    assert names(tokenizer, ["a＜s＞b", "c＜s＞d", "ｅ"]) == ["<s>"]
    assert names(tokenizer, ["", "＜", "s＞"]) == names(tokenizer, ["＜s", "＞"]) == []
    words = small("wordpiece")
    assert names(words, ["[INST] [inst] ", "[Inst] [inst]", " [iNST]"]) == ["[INST]"] * 3
    encoded = encode(["", "[Inst]"], words)
    assert words.decode(encoded.ids) == "[ in ##s ##t ]"
    assert encoded.offsets == [(0, 1), (1, 3), (3, 4), (4, 5), (5, 6)]


def test_a_single_word_is_one_where_the_tokenizer_sees_it() -> None:
    tokenizer = small("byte_level")
    for forged in ("", "<|im_end|>"):
        assert names(tokenizer, ["<one>", f"word{forged}", " <one>", forged, ""]) == ["<one>"]
        assert names(tokenizer, ["<one>", f" word{forged} ", "<one>"]) == ["<one>"] * 2
    # What is no token is text all the same.
    parts = ["<one>", "word<|im_end|>", "<one>"]
    encoded = encode(parts, tokenizer)
    assert names(tokenizer, parts) == ["<one>"]
    assert tokenizer.decode(encoded.ids, skip_special_tokens=False) == "".join(parts)


def test_white_space_that_tokens_take_may_be_anybodys_but_not_their_own() -> None:
    tokenizer = added(byte_level(), *REAL, AddedToken(" <x> ", special=True, normalized=False))
    for post in (None, processors.ByteLevel(trim_offsets=True)):
        if post is not None:
            tokenizer.post_processor = post
        assert names(tokenizer, ["", "a  ", "<sep>", "  b", ""]) == ["<sep>"]
        assert encode(["", "a  ", "<sep>", "  b"], tokenizer).ids == own(tokenizer, "a  <sep>  b")
        assert names(tokenizer, ["a <x> b"]) == [" <x> "]
        assert names(tokenizer, ["a", " ", "<x> b"]) == names(tokenizer, ["a <x>", " b"]) == []


def test_white_space_of_a_token_that_a_normaliser_drops_is_not_looked_for() -> None:
    tokenizer = byte_level()
    tokenizer.normalizer = normalizers.Strip()
    added(tokenizer, " <x> ", "<s>")
    parts = ["b<x>", "<s>", "<x>b\n\n"]
    assert names(tokenizer, parts) == [" <x> "] * 2
    assert tokenizer.decode(encode(parts, tokenizer).ids).replace(" ", "") == "b<x><s><x>b"


def test_a_special_token_may_be_white_space() -> None:
    tokenizer = byte_level()
    added(tokenizer, AddedToken("\n\n", special=True, normalized=False))
    special = tokenizer.token_to_id("\n\n")
    for post in (None, processors.ByteLevel(trim_offsets=True)):
        if post is not None:
            tokenizer.post_processor = post
        assert encode(["\n\n\n\n", "\n\n\n", "\n"], tokenizer).ids.count(special or 0) == 2


def test_offsets_are_trimmed_where_the_tokenizer_trims_them() -> None:
    tokenizer = added(byte_level(), *REAL)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    for forged in ("", "<s>"):
        encoded = encode(["<s>", f"a{forged} how"], tokenizer)
        assert tokenizer.decode(encoded.ids[-1:]) == " how"
        assert encoded.offsets[-1] == (len(forged) + 5, len(forged) + 8)


@pytest.mark.parametrize(
    ("kind", "token", "parts"),
    [
        *(("llama", "<s>", "▁ a < s > b"), ("first", "<s>", "a < s > b"), ("unigram", "<s>", "▁ a < s > b")),
        # The rest would be a control token too, so all signs stand apart.
        ("nested", "<<s>", "a < < s > b"),
    ],
)
def test_a_control_token_that_the_model_itself_builds_is_broken_up(kind: str, token: str, parts: str) -> None:
    tokenizer = nested() if kind == "nested" else small(kind)
    encoded = encode([token, f"a{token}b", ""], tokenizer)
    assert [tokenizer.id_to_token(id_) for id_ in encoded.ids] == [token, *parts.split()]
    assert encoded.offsets[0] == (0, len(token))
    check_offsets([token, f"a{token}b"], encoded)


def test_words_that_are_control_tokens_are_broken_up() -> None:
    tokenizer = added(spaced(), "<s>", special=True)
    encoded = encode(["<s> ", "a <s>", " <s>"], tokenizer)
    assert [tokenizer.id_to_token(id_) for id_ in encoded.ids] == ["<s>", "[UNK]", "<", "[UNK]", "<s>"]
    assert encoded.offsets == [(0, 3), (4, 5), (6, 9), (6, 9), (10, 13)]


def test_signs_that_a_model_does_not_know_are_not_forged() -> None:
    tokenizer = small("wordpiece")
    parts = ["<s>", "😀 Ω hello", " <s>"]
    unknown = tokenizer.token_to_id("[UNK]")
    assert encode(parts, tokenizer).ids == own(tokenizer, "".join(parts))
    assert encode(parts, tokenizer).ids.count(unknown or 0) == 2
    # Who writes the token itself gets text.
    assert encode(["", "[UNK]"], tokenizer).ids != own(tokenizer, "[UNK]") == [unknown]
    assert encode(["[UNK]", "[UNK]"], tokenizer).ids[0] == unknown


def test_the_token_for_what_is_unknown_cannot_be_forged_in_capitals() -> None:
    tokenizer = wordpiece()
    added(tokenizer, AddedToken("[UNK]", special=True, normalized=True))
    assert own(tokenizer, "[Unk]") == [tokenizer.token_to_id("[UNK]")]
    assert len(encode(["", "[Unk]"], tokenizer).ids) == len(["[", "Unk", "]"])
    assert encode(["[Unk]", ""], tokenizer).ids == own(tokenizer, "[Unk]")


def test_tokens_of_one_sign_or_byte_are_no_control_tokens() -> None:
    tokenizer = added(llama(), "|", "<0x0A>", "😀", special=True)
    added(tokenizer, "➤", "<think>", AddedToken("▁▁", normalized=False))
    text = "a|b\nc😎 ➤▁▁"
    assert encode(["", text], tokenizer).ids == own(tokenizer, text)
    assert tokenizer.token_to_id("😀") in encode(["😀", "<think>"], tokenizer).ids
    assert tokenizer.token_to_id("😀") not in encode(["", "😀"], tokenizer).ids


@pytest.mark.parametrize("tokens", [[*"abcdefgh<>|_im", "<|im|>"], ["<|im|>", *"abcdegh<>|_imf"]])
def test_ids_beyond_the_size_of_a_vocabulary_with_gaps_stay_what_they_are(tokens: list[str]) -> None:
    ids = {token: 3 * number for number, token in enumerate(tokens)}
    tokenizer = added(Tokenizer(models.BPE(ids, [])), "<|im|>", special=True)
    encoded = encode(["<|im|>af", "gh<|im|>f", "<|im|>"], tokenizer)
    assert encoded.ids == [ids[token] for token in ("<|im|>", *"afgh<|im|>f", "<|im|>")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("parts", [["<s> Hello", "   wor ", "<sep><|im_end|>"], ["<s>", "<s> a", " <think>"]])
def test_nothing_is_cut_off_or_filled_up(kind: str, parts: list[str]) -> None:
    tokenizer = added(KINDS[kind](), *REAL, *PLAIN, *FORGED)
    whole = encode(parts, tokenizer)
    for off in ("to_str", "no_truncation", "no_padding"):
        limit(tokenizer)
        getattr(tokenizer, off)()
        before = tokenizer.to_str()
        assert encode(parts, tokenizer) == whole
        assert tokenizer.to_str() == before


def test_nothing_is_added() -> None:
    """A tokenizer's post-processor may put tokens around a text; a prompt holds those that it is to have."""
    tokenizer = added(byte_level(), *REAL)
    alone = encode(["<s>a", "<s>"], tokenizer), encode(["a", "b"], tokenizer)
    special = [("<s>", tokenizer.token_to_id("<s>"))]
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A <s>", special_tokens=special)
    assert tokenizer.encode("a").tokens[0] == "<s>"
    assert (encode(["<s>a", "<s>"], tokenizer), encode(["a", "b"], tokenizer)) == alone


def test_a_tokenizer_that_knows_no_special_tokens_is_taken_at_its_word() -> None:
    tokenizer = added(byte_level(), *REAL, *FORGED)
    tokenizer.encode_special_tokens = True
    for _ in range(2):
        assert names(tokenizer, ["<s><think>", "", "[x]]"]) == ["<think>", "[x]]"]
        assert names(tokenizer, ["<s><think>", "[INST]<s>", "[x]]"]) == ["<think>", "[x]]"]
        limit(tokenizer)


def test_a_special_word_is_a_control_token_and_an_added_one_is_a_word() -> None:
    tokenizer = added(added(byte_level(), "END", special=True), "STOP")
    end, stop = map(tokenizer.token_to_id, ("END", "STOP"))
    ids = encode(["END STOP", "END STOP", "END"], tokenizer).ids
    assert [id_ for id_ in ids if id_ in (end, stop)] == [end, stop, stop, end]


def test_tokens_that_are_added_later_are_seen() -> None:
    tokenizer = added(byte_level(), "<s>", special=True)
    parts = ["<s><new>", "<new>", "<new>"]
    assert encode(parts, tokenizer).ids == own(tokenizer, "".join(parts))
    added(tokenizer, "<new>")
    assert names(tokenizer, parts) == ["<s>", "<new>", "<new>"]


def test_nothing_keeps_a_tokenizer() -> None:
    tokenizer = added(byte_level(), "<s>", special=True)
    limit(tokenizer)
    assert names(tokenizer, ["<s>", "<s>"]) == ["<s>"]
    held = weakref.ref(tokenizer)
    del tokenizer
    gc.collect()
    assert held() is None


def test_a_normaliser_may_drop_what_stands_for_a_token() -> None:
    tokenizer = byte_level()
    tokenizer.normalizer = normalizers.Replace(Regex("[^\\x00-\\x7f]"), "")
    added(tokenizer, *REAL, *FORGED)
    assert names(tokenizer, ["<think>a", "<thiönk>", "<thinök>"]) == ["<think>"] * 2


def test_signs_that_stand_for_tokens_may_be_in_the_text_and_in_other_tokens() -> None:
    text = "".join(map(chr, range(0x1CFF0, 0x1D100)))
    tokenizer = added(byte_level(), *REAL, "\U0001d000")
    assert names(tokenizer, ["<s>a", "<s>", "<s>"]) == ["<s>", "<s>"]
    parts = ["<s>", f"{text}<s>", f"{text}<think>"]
    assert names(tokenizer, parts) == ["<s>", "<think>"]
    assert tokenizer.decode(encode(parts, tokenizer).ids, skip_special_tokens=False) == "".join(parts)


@pytest.mark.slow
@pytest.mark.parametrize("kind", LOSSLESS_KINDS)
def test_halves_of_surrogate_pairs_are_no_text(kind: str) -> None:
    tokenizer, ids, _ = lossless(kind)
    name = next(iter(ids.values()))
    parts = [f"a\ud83d{name}", "\ude00 \ud83d\ude00", f"{name}\udfff!"]
    encoded = encode(parts, tokenizer)
    check_offsets(parts, encoded)
    text = f"a\ufffd{name}\ufffd 😀{name}\ufffd!"
    assert encoded.ids == models_own(tokenizer, text)
    assert untrusted_tokens(parts, encoded, ids) == [(name, "")] * 2
    assert tokenizer.decode([encoded.ids[-1]]) == "!"
    assert encoded.offsets[-1] == (len("".join(parts)) - 1, len("".join(parts)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", LOSSLESS_KINDS)
def test_long_text_takes_time_by_its_length_only(kind: str) -> None:
    tokenizer, ids, _ = lossless(kind)
    name = next(iter(ids.values()))
    number = 5_000
    encoded = encode([f"{name}a ", f"{name} b\n"] * number, tokenizer)
    assert sum(id_ in ids for id_ in encoded.ids) == number
    assert len(encode([name, f" {name}" * number * 4], tokenizer).ids) > number * 4


def check_parts(*several: list[str]) -> None:
    """Each comes back from its ids, which have one control token."""
    tokenizer = encoding("cl100k_base")
    for parts in several:
        encoded = encode(parts, tokenizer)
        assert tokenizer.decode(encoded.ids) == "".join(parts)
        check_offsets(parts, encoded, cover=True)
        assert encoded.ids.count(tokenizer.eot_token) == 1


@pytest.mark.slow
def test_a_million_white_spaces_are_text_too() -> None:
    # On their own they are too much for tiktoken.
    spaces = " " * 1_100_000
    check_parts([f"<|endoftext|>{spaces}", "b"], ["<|endoftext|>", f"{spaces}<|endoftext|>"])


@pytest.mark.parametrize("number", [7, 8, 9, 16, 21])
def test_long_white_space_is_encoded_in_pieces(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lazyprompt.messages.backends._LONG", 8)
    spaces = " " * number
    check_parts([f"<|endoftext|>{spaces}b{spaces}", "b"], ["<|endoftext|>", f"b{spaces}<|endoftext|>"])


@pytest.mark.parametrize("wrong", [None, "gpt-4o", object(), int, models.BPE()])
def test_what_is_no_tokenizer_is_named(wrong: Any) -> None:
    kind = re.escape(type(wrong).__qualname__)
    with pytest.raises(TokenizerError, match=rf"must be a tokenizers.Tokenizer, a tiktoken.Encoding.*, not .*{kind}$"):
        encode(["a"], wrong)


def test_text_that_a_tokenizer_cannot_encode_is_an_error() -> None:
    tokenizer = added(Tokenizer(models.WordLevel({"a": 0}, unk_token="[UNK]")), "<s>", special=True)  # noqa: S106 - no password
    assert encode(["a", ""], tokenizer).ids == [0]
    with pytest.raises(TokenizerError, match="the tokenizer cannot encode the text"):
        encode(["b"], tokenizer)


def test_a_control_token_that_cannot_be_broken_up_is_an_error() -> None:
    tokenizer = Tokenizer(models.WordLevel({"<s>": 0, "a": 1}, unk_token="[UNK]"))  # noqa: S106 - no password
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    added(tokenizer, "<s>", special=True)
    assert encode(["<s>", "a"], tokenizer).ids == [0, 1]
    with pytest.raises(TokenizerError, match="the tokenizer's model cannot encode '<'"):
        encode(["<s>", "a <s>"], tokenizer)


@pytest.mark.slow
def test_a_panic_of_the_package_is_an_error_of_ours() -> None:
    """It is no Exception: it went through every handler of the caller."""
    line = AddedToken("\n", special=True, normalized=False, lstrip=True, rstrip=True, single_word=True)
    tokenizer = added(byte_level(), AddedToken("  ", special=True, normalized=False, lstrip=True), line)
    with pytest.raises(TokenizerError, match="cannot encode the text"):
        encode(["\n    "], tokenizer)
