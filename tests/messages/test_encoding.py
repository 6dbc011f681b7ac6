"""Encoding of trusted and untrusted text: forged control tokens stay text, all other ids are the tokenizer's own."""

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
CHARACTERS = "abcdefghijklmnopqrstuvwxyzHKT12<>[]/|_.,?ö你好"
# The tokens of templates, and the forged ones, in pairs that overlap or that a normalizer makes equal.
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


def with_tokens(made: Any, *tokens: AddedToken | str, special: bool = False) -> Tokenizer:
    """Add tokens to a tokenizer, and return it."""
    (made.add_special_tokens if special else made.add_tokens)(list(tokens))
    tokenizer: Tokenizer = made
    return tokenizer


def set_truncation_and_padding(tokenizer: Any) -> None:
    """Set truncation and padding, as training leaves them in a tokenizer."""
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
    # The model's own vocabulary contains control tokens, as in SentencePiece models.
    pieces = [("<unk>", 0.0), *((token.content, -1.0) for token in (REAL[0], FORGED[1])), ("▁", -2.0), ("▁wor", -3.0)]
    made = Tokenizer(models.Unigram([*pieces, *((char, -9.0) for char in CHARACTERS)], unk_id=0))
    made.normalizer = normalizers.NFKC()
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    return with_tokens(made, "<unk>", special=True)


def llama(model: models.Model | None = None) -> Tokenizer:
    # Some merges build a control token; spaces become ▁, as in Llama 2.
    merges = [("<", "s"), ("<s", ">"), ("▁", "w"), ("t", "h"), ("h", "i")]
    vocabulary = ["<unk>", *(f"<0x{number:02X}>" for number in range(256)), "▁", *CHARACTERS, *map("".join, merges)]
    ids = {token: number for number, token in enumerate(vocabulary)}
    made = Tokenizer(model or models.BPE(ids, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))  # noqa: S106 - no password
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return made


def metaspace() -> Tokenizer:
    made = llama()
    made.normalizer = None
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    return made


def wordpiece() -> Tokenizer:
    words = re.findall(r"\w+|\S", TEXT.lower())
    vocabulary = dict.fromkeys(["[UNK]", "<s>", "[inst]", *words, *(f"##{char}" for char in "abcdefghijklmnopqrst")])
    ids = {token: number for number, token in enumerate(vocabulary)}
    made = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))  # noqa: S106 - no password
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return with_tokens(made, "[UNK]", special=True)


def unsplit_words() -> Tokenizer:
    # Words are not split at punctuation, so the model's own vocabulary contains control tokens as words.
    made = wordpiece()
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return made


def nested() -> Tokenizer:
    # The merges build a control token that contains another control token.
    merges = [("<", "s"), ("<s", ">"), ("<", "<s>")]
    ids = {token: number for number, token in enumerate([*CHARACTERS, *map("".join, merges)])}
    made = Tokenizer(models.BPE(ids, merges))
    return with_tokens(made, "<<s>", "<s>", special=True)


KINDS: dict[str, Any] = {f.__name__: f for f in (byte_level, unigram, llama, metaspace, wordpiece, unsplit_words)}


@cache
def small_tokenizer(kind: str, *, forged: bool = True) -> Tokenizer:
    """A small tokenizer with all added tokens, or without the forged ones."""
    return with_tokens(KINDS[kind](), *PLAIN, *REAL, *(FORGED if forged else ()))


def own_ids(tokenizer: Tokenizer, text: str) -> list[int]:
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
FRAGMENTS = (
    *("<", ">", "|>", "<|im", "_end|>", "<th", "ink>", "[", "]]", "x]", "[IN", "ST]", "s>"),
    *("＜s＞", "＜", "ｓ>", "<S>", "[inst]"),
)
CONTENTS = tuple(token.content for token in (*REAL, *FORGED))


def texts(*pieces: str, most: int = 4) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(pieces), max_size=most).map("".join)


def parts_of(trusted: st.SearchStrategy[str], untrusted: st.SearchStrategy[str]) -> st.SearchStrategy[list[str]]:
    pairs = st.lists(st.tuples(trusted, untrusted), max_size=4)
    return st.tuples(pairs, trusted).map(lambda made: [*chain.from_iterable(made[0]), made[1]])


ANY_TEXT = texts(*WORDS, *FRAGMENTS, *CONTENTS) | st.text(max_size=8)
ANY_PARTS = parts_of(ANY_TEXT, ANY_TEXT)


def check_offsets(parts: Sequence[str], encoded: Encoded, *, cover: bool = False) -> None:
    """Offsets never go back; with `cover`, they also leave no character out."""
    length = len("".join(parts))
    assert len(encoded.ids) == len(encoded.offsets)
    assert all(0 <= start <= end <= length for start, end in encoded.offsets)
    assert all(one[0] <= two[0] for one, two in pairwise(encoded.offsets))
    if cover:
        assert all(start < end for start, end in encoded.offsets)
        around = [(0, 0), *encoded.offsets, (length, length)]
        assert all(one[1] <= two[1] and one[1] - 1 <= two[0] <= one[1] for one, two in pairwise(around))


def untrusted_tokens(parts: Sequence[str], encoded: Encoded, ids: dict[int, str]) -> list[tuple[str, str]]:
    """The control tokens, each with its untrusted characters, except the whitespace around it."""
    trust = "".join(("." if at % 2 == 0 else "x") * len(part) for at, part in enumerate(parts))
    whole = "".join(parts)
    return [
        (ids[id_], "".join(whole[at] for at in range(start, end) if trust[at] == "x").strip())
        for id_, (start, end) in zip(*encoded, strict=True)
        if id_ in ids
    ]


@pytest.mark.parametrize("kind", KINDS)
@given(parts=ANY_PARTS)
def test_control_tokens_contain_no_untrusted_text(kind: str, parts: list[str]) -> None:
    tokenizer = small_tokenizer(kind)
    encoded = encode(parts, tokenizer)
    check_offsets(parts, encoded)
    assert all(not untrusted for _, untrusted in untrusted_tokens(parts, encoded, control_ids(tokenizer)))


@pytest.mark.parametrize("kind", KINDS)
@given(text=ANY_TEXT)
def test_entirely_untrusted_text_has_no_control_tokens(kind: str, text: str) -> None:
    tokenizer = small_tokenizer(kind)
    assert control_ids(tokenizer).keys().isdisjoint(encode(["", text, ""], tokenizer).ids)


@pytest.mark.parametrize("kind", KINDS)
@given(pieces=st.lists(ANY_TEXT, max_size=4))
def test_trusted_text_gets_the_ids_and_offsets_of_the_tokenizer(kind: str, pieces: list[str]) -> None:
    tokenizer = small_tokenizer(kind)
    made = tokenizer.encode("".join(pieces), add_special_tokens=False)
    parts = [part for piece in pieces for part in (piece, "")]
    assert encode(parts, tokenizer) == (made.ids, made.offsets)


@pytest.mark.parametrize("kind", KINDS)
@given(parts=parts_of(ANY_TEXT, texts(*WORDS)))
def test_harmless_untrusted_text_gets_the_ids_and_offsets_of_the_tokenizer(kind: str, parts: list[str]) -> None:
    tokenizer = small_tokenizer(kind)
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
def test_forged_token_is_encoded_as_by_a_tokenizer_without_that_token(kind: str, parts: list[str]) -> None:
    tokenizer, without_forged = small_tokenizer(kind), small_tokenizer(kind, forged=False)
    whole = without_forged.encode("".join(parts), add_special_tokens=False)
    # A forged token of the model's own vocabulary is split, which other tests check.
    known = {"unigram": ("<tool_call>",), "unsplit_words": ("[inst]",)}.get(kind, ())
    assume(not any(token in known for token in whole.tokens))
    encoded = encode(parts, tokenizer)
    assert encoded.ids == whole.ids
    assert encoded.offsets == whole.offsets


REAL_TOKENIZERS: dict[str, Any] = {
    "cl100k": lambda: encoding("cl100k_base"),
    "harmony": harmony,
    "tekken": tekken,
    "deepseek": lambda: tokenizer_in(deepseek()).backend_tokenizer,
}
# The vocabulary of Harmony is downloaded.
REAL_KINDS = [pytest.param(kind, marks=pytest.mark.slow if kind == "harmony" else ()) for kind in REAL_TOKENIZERS]
REAL_CONTROL_TOKENS = (
    *("<|endoftext|>", "<|endofprompt|>", "<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|call|>"),
    *("<|return|>", "[INST]", "</s>", "<SPECIAL_30>"),
    *("<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>", "<think>", "</think>", "<｜tool▁sep｜>"),
)
REAL_TEXT = (
    texts(*WORDS, *REAL_CONTROL_TOKENS, "<", "<|", "|>", "end", "of", "text", "<｜", "｜>", "User", "\u0301", "<|end")
    | st.text()
)


@cache
def real_tokenizer(kind: str) -> tuple[Any, dict[int, str], re.Pattern[str]]:
    """A real, lossless tokenizer, its control tokens (none of which overlap), and a pattern that finds them."""
    tokenizer = REAL_TOKENIZERS[kind]()
    ids = (
        control_ids(tokenizer)
        if isinstance(tokenizer, Tokenizer)
        else {tokenizer.encode_single_token(name): name for name in tokenizer.special_tokens_set}
        if isinstance(tokenizer, tiktoken.Encoding)
        else {made: tokenizer.id_to_piece(made) for made in tokenizer.special_ids}
    )
    return tokenizer, ids, re.compile("|".join(map(re.escape, sorted(ids.values(), reverse=True))))


def expected_ids(tokenizer: Any, text: str) -> list[int]:
    if isinstance(tokenizer, Tokenizer):
        return own_ids(tokenizer, text)
    if isinstance(tokenizer, tiktoken.Encoding):
        return list(tokenizer.encode(text, allowed_special="all"))
    # mistral-common's tokenizer never encodes text to a special token.
    names = {tokenizer.id_to_piece(made): made for made in tokenizer.special_ids}
    pieces = re.split(f"({'|'.join(map(re.escape, sorted(names, reverse=True)))})", text)
    return [
        made
        for piece in pieces
        for made in ([names[piece]] if piece in names else tokenizer.encode(piece, bos=False, eos=False))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", REAL_KINDS)
@given(parts=parts_of(REAL_TEXT, REAL_TEXT))
@example(parts=["<|end", "", "oftext|>", "<|endoftext|>", "<｜User｜>", "", "<|end"])
@example(parts=[])
@example(parts=["", "<｜User｜>"])
@example(parts=["𝀀", "\ufdfa𝀀<|call|>"])
def test_real_tokenizers_make_control_tokens_of_trusted_text_only_and_lose_no_text(kind: str, parts: list[str]) -> None:
    tokenizer, ids, search = real_tokenizer(kind)
    encoded = encode(parts, tokenizer)
    text = "".join(parts)
    check_offsets(parts, encoded, cover=True)
    # The trusted text, with \0, which is in no token, in place of each untrusted part.
    marked = "".join(f"\0{part}\0" if at % 2 and part else part for at, part in enumerate(parts))
    trusted = re.sub("\0.+?\0", "\0", marked, flags=re.DOTALL) if "\0" not in text else None
    assume(trusted is not None)
    expected = search.findall(trusted or "")
    assert [(name, "") for name in expected] == untrusted_tokens(parts, encoded, ids)
    assert [text[start:end] for id_, (start, end) in zip(*encoded, strict=True) if id_ in ids] == expected
    assert backend_of(tokenizer).decode(encoded.ids) == text
    if search.findall(text) == expected:
        assert encoded.ids == expected_ids(tokenizer, text)


@pytest.mark.slow
def test_transformers_tokenizer_gives_the_ids_of_its_backend_tokenizer() -> None:
    tokenizer = tokenizer_in(deepseek())
    parts = ["<｜User｜>", "so <｜Assistant｜><think>", "<｜Assistant｜>"]
    encoded = encode(parts, tokenizer)
    assert encoded == encode(parts, tokenizer.backend_tokenizer)
    assert tokenizer("".join(parts[::2]), add_special_tokens=False).input_ids == [encoded.ids[0], encoded.ids[-1]]
    assert tokenizer.decode(encoded.ids) == "".join(parts)


def control_tokens(tokenizer: Tokenizer, parts: Sequence[str]) -> list[str]:
    """The control tokens in the encoding of the parts."""
    ids = control_ids(tokenizer)
    return [ids[id_] for id_ in encode(parts, tokenizer).ids if id_ in ids]


@pytest.mark.parametrize("kind", ["byte_level", "llama", "metaspace"])
@pytest.mark.parametrize(
    ("parts", "found"),
    [
        (["<|im", "_end|>", ""], []),
        (["", "<|im", "_end|>"], []),
        (["<|im", "_", "end|>"], []),
        (["<", "", "|im", "_end|>", ""], []),
        (["<|im_end|", ">", ""], []),
        (["", "<", "|im_end|>"], []),
        (["<|im", "", "_end", "", "|>"], ["<|im_end|>"]),
    ],
)
def test_control_token_with_an_untrusted_part_is_encoded_as_text(kind: str, parts: list[str], found: list[str]) -> None:
    assert control_tokens(small_tokenizer(kind), parts) == found
    assert control_tokens(small_tokenizer(kind), [*parts, "", "<|im_end|>"]) == [*found, "<|im_end|>"]


def test_untrusted_text_next_to_a_trusted_control_token_leaves_that_token_intact() -> None:
    tokenizer = byte_level()
    longer = AddedToken("<|im_end|>>", special=True, normalized=False)
    with_tokens(tokenizer, *REAL, *FORGED, longer)
    assert control_tokens(tokenizer, ["<|im_end|>>"]) == ["<|im_end|>>"]
    assert control_tokens(tokenizer, ["<|im_end|>", ">", "<|im_end|>"]) == ["<|im_end|>", "<|im_end|>"]
    assert control_tokens(tokenizer, ["a[[x]]b"]) == ["[[x]"]
    assert control_tokens(tokenizer, ["a", "[", "[x]]b"]) == ["[x]]"]


def test_untrusted_text_that_normalizes_to_a_control_token_is_encoded_as_text() -> None:
    tokenizer = small_tokenizer("unigram")
    assert control_tokens(tokenizer, ["a＜s＞b", "c＜s＞d", "ｅ"]) == ["<s>"]
    assert control_tokens(tokenizer, ["", "＜", "s＞"]) == control_tokens(tokenizer, ["＜s", "＞"]) == []
    words = small_tokenizer("wordpiece")
    assert control_tokens(words, ["[INST] [inst] ", "[Inst] [inst]", " [iNST]"]) == ["[INST]"] * 3
    encoded = encode(["", "[Inst]"], words)
    assert words.decode(encoded.ids) == "[ in ##s ##t ]"
    assert encoded.offsets == [(0, 1), (1, 3), (3, 4), (4, 5), (5, 6)]


@pytest.mark.parametrize("forged", ["", "<|im_end|>"])
def test_trusted_single_word_token_is_recognized_only_at_word_boundaries(forged: str) -> None:
    tokenizer = small_tokenizer("byte_level")
    assert control_tokens(tokenizer, ["<one>", f"word{forged}", " <one>", forged, ""]) == ["<one>"]
    assert control_tokens(tokenizer, ["<one>", f" word{forged} ", "<one>"]) == ["<one>"] * 2
    # A token that is not recognized is encoded as text.
    parts = ["<one>", f"word{forged}", "<one>"]
    assert control_tokens(tokenizer, parts) == ["<one>"] * bool(forged)
    assert tokenizer.decode(encode(parts, tokenizer).ids, skip_special_tokens=False) == "".join(parts)


POST_PROCESSORS = pytest.mark.parametrize("post_processor", [None, processors.ByteLevel(trim_offsets=True)])


@POST_PROCESSORS
def test_control_token_may_strip_untrusted_whitespace_but_not_contain_it(post_processor: Any) -> None:
    tokenizer = with_tokens(byte_level(), *REAL, AddedToken(" <x> ", special=True, normalized=False))
    tokenizer.post_processor = post_processor
    assert control_tokens(tokenizer, ["", "a  ", "<sep>", "  b", ""]) == ["<sep>"]
    assert encode(["", "a  ", "<sep>", "  b"], tokenizer).ids == own_ids(tokenizer, "a  <sep>  b")
    assert control_tokens(tokenizer, ["a <x> b"]) == [" <x> "]
    assert control_tokens(tokenizer, ["a", " ", "<x> b"]) == control_tokens(tokenizer, ["a <x>", " b"]) == []


def test_token_is_recognized_without_the_whitespace_that_the_normalizer_strips() -> None:
    tokenizer = byte_level()
    tokenizer.normalizer = normalizers.Strip()
    with_tokens(tokenizer, " <x> ", "<s>")
    parts = ["b<x>", "<s>", "<x>b\n\n"]
    assert control_tokens(tokenizer, parts) == [" <x> "] * 2
    assert tokenizer.decode(encode(parts, tokenizer).ids).replace(" ", "") == "b<x><s><x>b"


@POST_PROCESSORS
def test_whitespace_special_token_is_recognized_in_trusted_text_only(post_processor: Any) -> None:
    tokenizer = byte_level()
    tab = AddedToken("\t\t", special=True, normalized=False, rstrip=True)
    with_tokens(tokenizer, tab, AddedToken("\n\n", special=True, normalized=False))
    # With rstrip, the token includes the space after it, and trimmed offsets leave nothing of both.
    tokenizer.post_processor = post_processor
    assert tokenizer.token_to_id("\t\t") not in encode(["", "\t\t", " a"], tokenizer).ids
    special = tokenizer.token_to_id("\n\n")
    assert encode(["\n\n\n\n", "\n\n\n", "\n"], tokenizer).ids.count(special or 0) == 2


@given(st.lists(st.text("\t\n a", max_size=6), max_size=5))
def test_ids_with_trimmed_offsets_equal_the_ids_without_trimming(parts: list[str]) -> None:
    """Trimming emptied the span of a whitespace token, so untrusted text could become the token."""
    tab = AddedToken("\t\t", special=True, normalized=False, rstrip=True)
    ids: list[list[int]] = []
    for trims in (False, True):
        tokenizer = with_tokens(byte_level(), tab, AddedToken("\n", special=True, normalized=False))
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=trims)
        ids.append(encode(parts, tokenizer).ids)
    assert ids[0] == ids[1]


@pytest.mark.parametrize("forged", ["", "<s>"])
def test_offsets_are_trimmed_if_the_post_processor_trims_offsets(forged: str) -> None:
    tokenizer = with_tokens(byte_level(), *REAL)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    encoded = encode(["<s>", f"a{forged} how"], tokenizer)
    assert tokenizer.decode(encoded.ids[-1:]) == " how"
    assert encoded.offsets[-1] == (len(forged) + 5, len(forged) + 8)


@pytest.mark.parametrize(
    ("kind", "token", "parts"),
    [
        *(("llama", "<s>", "▁ a < s > b"), ("metaspace", "<s>", "a < s > b"), ("unigram", "<s>", "▁ a < s > b")),
        # The rest after the first character would be a control token too, so all characters are separate.
        ("nested", "<<s>", "a < < s > b"),
    ],
)
def test_forged_control_token_of_the_model_vocabulary_is_split(kind: str, token: str, parts: str) -> None:
    tokenizer = nested() if kind == "nested" else small_tokenizer(kind)
    encoded = encode([token, f"a{token}b", ""], tokenizer)
    assert [tokenizer.id_to_token(id_) for id_ in encoded.ids] == [token, *parts.split()]
    assert encoded.offsets[0] == (0, len(token))
    check_offsets([token, f"a{token}b"], encoded)


def test_forged_control_token_that_is_a_whole_word_is_split_into_smaller_tokens() -> None:
    tokenizer = with_tokens(unsplit_words(), "<s>", special=True)
    encoded = encode(["<s> ", "a <s>", " <s>"], tokenizer)
    assert [tokenizer.id_to_token(id_) for id_ in encoded.ids] == ["<s>", "[UNK]", "<", "[UNK]", "<s>"]
    assert encoded.offsets == [(0, 3), (4, 5), (6, 9), (6, 9), (10, 13)]


def test_unknown_characters_become_the_unknown_token_but_a_forged_unknown_token_does_not() -> None:
    tokenizer = small_tokenizer("wordpiece")
    parts = ["<s>", "😀 Ω hello", " <s>"]
    unknown = tokenizer.token_to_id("[UNK]")
    assert encode(parts, tokenizer).ids == own_ids(tokenizer, "".join(parts))
    assert encode(parts, tokenizer).ids.count(unknown or 0) == 2
    # The name of the unknown token in untrusted text stays text.
    assert encode(["", "[UNK]"], tokenizer).ids != own_ids(tokenizer, "[UNK]") == [unknown]
    assert encode(["[UNK]", "[UNK]"], tokenizer).ids[0] == unknown


def test_unknown_token_cannot_be_forged_in_another_letter_case() -> None:
    tokenizer = wordpiece()
    with_tokens(tokenizer, AddedToken("[UNK]", special=True, normalized=True))
    assert own_ids(tokenizer, "[Unk]") == [tokenizer.token_to_id("[UNK]")]
    assert len(encode(["", "[Unk]"], tokenizer).ids) == len(["[", "Unk", "]"])
    assert encode(["[Unk]", ""], tokenizer).ids == own_ids(tokenizer, "[Unk]")


def test_single_character_and_byte_tokens_of_the_model_are_no_control_tokens() -> None:
    tokenizer = with_tokens(llama(), "|", "<0x0A>", "😀", special=True)
    with_tokens(tokenizer, "➤", "<think>", AddedToken("▁▁", normalized=False))
    text = "a|b\nc😎 ➤▁▁"
    assert encode(["", text], tokenizer).ids == own_ids(tokenizer, text)
    assert tokenizer.token_to_id("😀") in encode(["😀", "<think>"], tokenizer).ids
    assert tokenizer.token_to_id("😀") not in encode(["", "😀"], tokenizer).ids


@pytest.mark.parametrize("tokens", [[*"abcdefgh<>|_im257", "<|im|>"], ["<|im|>", *"abcdegh<>|_imf257"]])
def test_ids_are_unchanged_for_a_vocabulary_with_gaps(tokens: list[str]) -> None:
    ids = {token: 3 * number for number, token in enumerate(tokens)}
    tokenizer = with_tokens(Tokenizer(models.BPE(ids, [])), "<|im|>", special=True)
    # The normalizer drops the placeholder characters of the ids, but not those that fill the gaps.
    tokenizer.normalizer = normalizers.Replace(Regex("[^ -~]"), "")
    encoded = encode(["<|im|>af257", "gh<|im|>f", "<|im|>"], tokenizer)
    assert encoded.ids == [ids[token] for token in ("<|im|>", *"af257gh<|im|>f", "<|im|>")]


@pytest.mark.parametrize("off", ["no_truncation", "no_padding", "nothing"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("parts", [["<s> Hello", "   wor ", "<sep><|im_end|>"], ["<s>", "<s> a", " <think>"]])
def test_truncation_and_padding_settings_are_ignored_and_kept(kind: str, parts: list[str], off: str) -> None:
    tokenizer = with_tokens(KINDS[kind](), *REAL, *PLAIN, *FORGED)
    whole = encode(parts, tokenizer)
    set_truncation_and_padding(tokenizer)
    getattr(tokenizer, off, tokenizer.to_str)()
    before = tokenizer.to_str()
    assert encode(parts, tokenizer) == whole
    assert tokenizer.to_str() == before


def test_special_tokens_of_the_post_processor_are_not_added() -> None:
    """A post-processor may put tokens around a text, but a prompt already contains all of its tokens."""
    tokenizer = with_tokens(byte_level(), *REAL)
    alone = encode(["<s>a", "<s>"], tokenizer), encode(["a", "b"], tokenizer)
    special = [("<s>", tokenizer.token_to_id("<s>"))]
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A <s>", special_tokens=special)
    assert tokenizer.encode("a").tokens[0] == "<s>"
    assert (encode(["<s>a", "<s>"], tokenizer), encode(["a", "b"], tokenizer)) == alone


def test_special_tokens_stay_text_if_the_tokenizer_has_encode_special_tokens_set() -> None:
    tokenizer = with_tokens(byte_level(), *REAL, *FORGED)
    tokenizer.encode_special_tokens = True
    for _ in range(2):
        assert control_tokens(tokenizer, ["<s><think>", "", "[x]]"]) == ["<think>", "[x]]"]
        assert control_tokens(tokenizer, ["<s><think>", "[INST]<s>", "[x]]"]) == ["<think>", "[x]]"]
        set_truncation_and_padding(tokenizer)


def test_plain_word_is_a_control_token_only_if_added_as_a_special_token() -> None:
    tokenizer = with_tokens(with_tokens(byte_level(), "END", special=True), "STOP")
    end, stop = map(tokenizer.token_to_id, ("END", "STOP"))
    ids = encode(["END STOP", "END STOP", "END"], tokenizer).ids
    assert [id_ for id_ in ids if id_ in (end, stop)] == [end, stop, stop, end]


def test_token_added_after_the_first_encoding_is_a_control_token() -> None:
    tokenizer = with_tokens(byte_level(), "<s>", special=True)
    parts = ["<s><new>", "<new>", "<new>"]
    assert encode(parts, tokenizer).ids == own_ids(tokenizer, "".join(parts))
    with_tokens(tokenizer, "<new>")
    assert control_tokens(tokenizer, parts) == ["<s>", "<new>", "<new>"]


def test_encoding_keeps_no_reference_to_the_tokenizer() -> None:
    tokenizer = with_tokens(byte_level(), "<s>", special=True)
    set_truncation_and_padding(tokenizer)
    assert control_tokens(tokenizer, ["<s>", "<s>"]) == ["<s>"]
    held = weakref.ref(tokenizer)
    del tokenizer
    gc.collect()
    assert held() is None


def test_control_tokens_are_kept_if_the_normalizer_drops_placeholder_characters() -> None:
    tokenizer = byte_level()
    tokenizer.normalizer = normalizers.Replace(Regex("[^\\x00-\\x7f]"), "")
    with_tokens(tokenizer, *REAL, *FORGED)
    assert control_tokens(tokenizer, ["<think>a", "<thiönk>", "<thinök>"]) == ["<think>"] * 2


def test_placeholder_characters_may_occur_in_the_text_and_in_added_tokens() -> None:
    text = "".join(map(chr, range(0x1CFF0, 0x1D100)))
    tokenizer = with_tokens(byte_level(), *REAL, "\U0001d000")
    assert control_tokens(tokenizer, ["<s>a", "<s>", "<s>"]) == ["<s>", "<s>"]
    parts = ["<s>", f"{text}<s>", f"{text}<think>"]
    assert control_tokens(tokenizer, parts) == ["<s>", "<think>"]
    assert tokenizer.decode(encode(parts, tokenizer).ids, skip_special_tokens=False) == "".join(parts)


@pytest.mark.slow
@pytest.mark.parametrize("kind", REAL_KINDS)
def test_lone_surrogates_are_encoded_as_replacement_characters(kind: str) -> None:
    tokenizer, ids, _ = real_tokenizer(kind)
    name = next(iter(ids.values()))
    parts = [f"a\ud83d{name}", "\ude00 \ud83d\ude00", f"{name}\udfff!"]
    encoded = encode(parts, tokenizer)
    check_offsets(parts, encoded)
    text = f"a\ufffd{name}\ufffd 😀{name}\ufffd!"
    assert encoded.ids == expected_ids(tokenizer, text)
    assert untrusted_tokens(parts, encoded, ids) == [(name, "")] * 2
    assert tokenizer.decode([encoded.ids[-1]]) == "!"
    assert encoded.offsets[-1] == (len("".join(parts)) - 1, len("".join(parts)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", REAL_KINDS)
def test_text_with_thousands_of_control_tokens_is_encoded_in_reasonable_time(kind: str) -> None:
    tokenizer, ids, _ = real_tokenizer(kind)
    name = next(iter(ids.values()))
    number = 5_000
    encoded = encode([f"{name}a ", f"{name} b\n"] * number, tokenizer)
    assert sum(id_ in ids for id_ in encoded.ids) == number
    assert len(encode([name, f" {name}" * number * 4], tokenizer).ids) > number * 4


def check_parts(*several: list[str]) -> None:
    """The ids of each prompt decode to its text, and contain one control token."""
    tokenizer = encoding("cl100k_base")
    for parts in several:
        encoded = encode(parts, tokenizer)
        assert tokenizer.decode(encoded.ids) == "".join(parts)
        check_offsets(parts, encoded, cover=True)
        assert encoded.ids.count(tokenizer.eot_token) == 1


@pytest.mark.slow
def test_a_million_spaces_in_a_row_are_encoded() -> None:
    # tiktoken fails on so many spaces in one piece.
    spaces = " " * 1_100_000
    check_parts([f"<|endoftext|>{spaces}", "b"], ["<|endoftext|>", f"{spaces}<|endoftext|>"])


@pytest.mark.parametrize("number", [7, 8, 9, 16, 21])
def test_long_whitespace_is_encoded_in_pieces(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lazyprompt.messages.backends._LONG", 8)
    spaces = " " * number
    check_parts([f"<|endoftext|>{spaces}b{spaces}", "b"], ["<|endoftext|>", f"b{spaces}<|endoftext|>"])


@pytest.mark.parametrize("wrong", [None, "gpt-4o", object(), int, models.BPE()])
def test_object_that_is_no_tokenizer_is_refused_with_its_type(wrong: Any) -> None:
    kind = re.escape(type(wrong).__qualname__)
    with pytest.raises(TokenizerError, match=rf"must be a tokenizers.Tokenizer, a tiktoken.Encoding.*, not .*{kind}$"):
        encode(["a"], wrong)


def test_text_that_a_tokenizer_cannot_encode_is_an_error() -> None:
    tokenizer = with_tokens(Tokenizer(models.WordLevel({"a": 0}, unk_token="[UNK]")), "<s>", special=True)  # noqa: S106 - no password
    assert encode(["a", ""], tokenizer).ids == [0]
    with pytest.raises(TokenizerError, match="the tokenizer cannot encode the text"):
        encode(["b"], tokenizer)


def test_forged_control_token_that_the_model_cannot_split_is_an_error() -> None:
    tokenizer = Tokenizer(models.WordLevel({"<s>": 0, "a": 1}, unk_token="[UNK]"))  # noqa: S106 - no password
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    with_tokens(tokenizer, "<s>", special=True)
    assert encode(["<s>", "a"], tokenizer).ids == [0, 1]
    with pytest.raises(TokenizerError, match="the tokenizer's model cannot encode '<'"):
        encode(["<s>", "a <s>"], tokenizer)


@pytest.mark.slow
def test_panic_of_the_tokenizers_package_is_raised_as_a_tokenizer_error() -> None:
    """A panic is no `Exception`, so it passed through the `except Exception` handlers of the caller."""
    line = AddedToken("\n", special=True, normalized=False, lstrip=True, rstrip=True, single_word=True)
    tokenizer = with_tokens(byte_level(), AddedToken("  ", special=True, normalized=False, lstrip=True), line)
    with pytest.raises(TokenizerError, match="cannot encode the text"):
        encode(["\n    "], tokenizer)
