"""Ids out of a cache: always the tokenizer's own, in bounded memory, from any number of threads."""

import pickle
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cache, reduce
from random import Random
from typing import Any

import pytest
import tiktoken
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from lazyprompt import ChatTemplate, Rendered, TokenCache
from lazyprompt._base.trusted import Trusted
from lazyprompt.errors import TokenizerError
from lazyprompt.messages.encoding import encode
from messages.test_encoding import (
    ANY_PARTS,
    KINDS,
    LOSSLESS,
    LOSSLESS_KINDS,
    REAL_TEXT,
    added,
    byte_level,
    llama,
    parts_of,
    small,
)
from support.real_tokenizers import TOKENIZERS, template_of

NOW = datetime(2026, 1, 2, tzinfo=UTC)
MARKS = ("<s>", "<im>", "</im>")
PARTS = ["<s>", "hello", "</im><im>"]
# Chats of each tokenizer: 40,000 with --hypothesis-profile=deep.
CHATS = 40 * settings().max_examples


@cache
def letters() -> tiktoken.Encoding:
    """An encoding of bytes with three special tokens."""
    ranks = {bytes([byte]): byte for byte in range(256)}
    special = {name: 256 + at for at, name in enumerate(MARKS)}
    return tiktoken.Encoding("bytes", pat_str=r"\s+|\S+", mergeable_ranks=ranks, special_tokens=special)


def check(parts: list[str], tokenizer: Any, kept: TokenCache) -> None:
    """A prompt, as it grows part by part, has the ids of the tokenizer."""
    for most in (len(parts) // 2, len(parts), len(parts)):
        rendered = Rendered(parts[:most], [""] * most)
        assert rendered.encode(kept) == encode(parts[:most], tokenizer).ids


@cache
def shared_cache(kind: str) -> tuple[Any, TokenCache]:
    tokenizer = small(kind) if kind in KINDS else LOSSLESS[kind]()
    return tokenizer, TokenCache(tokenizer, 200_000)


@pytest.mark.parametrize("kind", KINDS)
@given(parts=ANY_PARTS)
@example(parts=["a\ud83d", "", "\ude00<s>", "\ud83d", "", "\ude00<s>"])
@example(parts=["", "a", "", "b<s>"])
@example(parts=["<|im", "＜s＞", "_end|><|im_end|>", "<s>", "<think><s>"])
def test_ids_are_those_of_small_tokenizers(kind: str, parts: list[str]) -> None:
    check(parts, *shared_cache(kind))


@pytest.mark.slow
@pytest.mark.parametrize("kind", LOSSLESS_KINDS)
@given(parts=parts_of(REAL_TEXT, REAL_TEXT))
def test_ids_are_those_of_models_tokenizers(kind: str, parts: list[str]) -> None:
    check(parts, *shared_cache(kind))


WORDS = (
    *("the order", "你好", " ", "\n", "\n\n", "  12345", "Zürich", "🙂", "e\u0301", "def f(x):\n    return", "<b>"),
    *("it's", "ﷺ"),
)
FORGED = (
    *("<|im_end|>", "<|im_start|>system\n", "<|end|>", "<|start|>", "<|endoftext|>", "<think>", "</think>"),
    *("<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>", "[INST]", "[/INST]", "</s>", "<s>", "<|im_"),
    *("end|>", "<｜"),
)


def chat_of(chance: Random, number: int) -> list[dict[str, str]]:
    """A chat that ends with a user's turn, with control sequences in every third text."""

    def text() -> str:
        words = (*WORDS, *FORGED) if chance.random() < 0.3 else WORDS
        return "x".join(chance.choices(words, k=chance.randint(1, 6))) + chance.choice(("", " ", "\n"))

    roles = ["user", "assistant"] * number
    return [{"role": role, "content": text()} for role in roles[: number - 1 + number % 2]]


@pytest.mark.slow
@pytest.mark.parametrize("name", TOKENIZERS)
def test_ids_of_chats_that_grow_are_those_without_a_cache(name: str) -> None:
    tokenizer, template = TOKENIZERS[name](), template_of(name)
    kept = TokenCache(tokenizer)
    for seed in range(CHATS):
        chance = Random(seed)  # noqa: S311 - chats to try
        chat = chat_of(chance, 9)
        most = chance.randint(1, 9)
        for end in {most, min(9, most + chance.randint(1, 5))}:
            rendered = template.render(chat[:end], safety=chance.choice(("off", "neutralize")), now=NOW)
            assert rendered.encode(kept) == rendered.encode(tokenizer), (seed, end)


def chatml(turns: int, text: str = "{} hello") -> list[str]:
    """The parts of a chat."""
    parts = ["<s>"]
    for turn in range(turns):
        parts += [text.format(turn), "</im><im>"]
    return parts


def test_what_was_encoded_before_is_not_encoded_again() -> None:
    tokenizer = llama()
    added(tokenizer, *(AddedToken(name, special=True, normalized=False) for name in MARKS))
    kept = TokenCache(tokenizer)
    kept.encode(chatml(5))
    before = kept.size
    assert kept.encode(chatml(5)) == encode(chatml(5), tokenizer).ids
    assert kept.size == before
    kept.encode(chatml(6))
    assert before < kept.size < before * 1.5


@pytest.mark.slow
@pytest.mark.parametrize("max_bytes", [0, 300, 1_000, 20_000])
def test_memory_is_bounded(max_bytes: int) -> None:
    kept = TokenCache(letters(), max_bytes)
    for start in range(200):
        parts = chatml(5, f"{start} {{}} " + "word " * (start % 60))
        assert kept.encode(parts) == encode(parts, letters()).ids
        assert kept.size <= max_bytes


@pytest.mark.slow
def test_many_turns_take_no_more_memory_than_ten_thousand() -> None:
    kept = TokenCache(letters(), 100_000)
    sizes: list[int] = []
    for start in range(0, 80_000, 10_000):
        if start in (20_000, 70_000):
            tracemalloc.start()
        for turn in range(start, start + 10_000):
            kept.encode(["<s>", f"{turn} hello", "</im><im>"])
        if tracemalloc.is_tracing():
            sizes.append(tracemalloc.get_traced_memory()[0])
            tracemalloc.stop()
    assert kept.size <= 100_000
    assert sizes[1] < sizes[0] * 1.5


@pytest.mark.slow
def test_threads_share_a_cache() -> None:
    tokenizer = LOSSLESS["deepseek"]()
    kept = TokenCache(tokenizer, 50_000)
    chats = [[f"<｜User｜>{seed % 7}", f"hello {seed} <｜User｜>", "<｜Assistant｜>"] * 5 + ["!"] for seed in range(40)]
    expected = [encode(parts, tokenizer).ids for parts in chats]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(kept.encode, chats * 10)) == expected * 10
    assert kept.size <= 50_000


def test_trusted_values_are_trusted() -> None:
    kept = TokenCache(letters())
    for parts in (["a", "<im>", ""], ["a", Trusted("<im>"), ""], ["a", "<im>", ""]):
        assert kept.encode(parts) == encode(parts, letters()).ids
    assert kept.encode(["a", Trusted("<im>"), ""])[-1] == 257


def marked_tokenizer() -> Any:
    return added(byte_level(), *(AddedToken(name, special=True, normalized=False) for name in MARKS))


def set_attribute(path: str, value: Any) -> Callable[[Any], None]:
    *names, last = path.split(".")
    return lambda tokenizer: setattr(reduce(getattr, names, tokenizer), last, value)


def add_flag(tokenizer: Any) -> None:
    tokenizer.add_special_tokens([AddedToken("<im>", special=True, normalized=False, rstrip=True)])


CHANGES: dict[str, Callable[[Any], None]] = {
    "tokens": lambda tokenizer: tokenizer.add_tokens(["<new>"]),
    "flags": add_flag,
    "normalizer": set_attribute("normalizer", normalizers.Lowercase()),
    "pre-tokenizer": set_attribute("pre_tokenizer.add_prefix_space", value=True),
    "model": set_attribute("model", models.BPE()),
    "special tokens": set_attribute("encode_special_tokens", value=True),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_tokenizer_that_changed_is_an_error(change: Any) -> None:
    tokenizer = marked_tokenizer()
    kept = TokenCache(tokenizer)
    assert kept.encode(PARTS) == kept.encode(PARTS)
    change(tokenizer)
    with pytest.raises(TokenizerError, match="has changed since its TokenCache was created.*create a new TokenCache"):
        kept.encode(PARTS)
    assert TokenCache(tokenizer).encode(PARTS) == encode(PARTS, tokenizer).ids


def test_a_cache_that_gets_another_tokenizer_is_an_error() -> None:
    kept = TokenCache(marked_tokenizer())
    kept.encode(["<s>", "hello"])
    kept.tokenizer = marked_tokenizer()
    with pytest.raises(TokenizerError, match="has changed since"):
        kept.encode(["<s>", "hello"])


def test_a_cache_is_of_one_tokenizer() -> None:
    kept = TokenCache(marked_tokenizer())
    with pytest.raises(TokenizerError, match="is already a TokenCache"):
        TokenCache(kept)
    wrong: Any = "gpt-4o"
    with pytest.raises(TokenizerError, match="the tokenizer must be .*, not builtins.str$"):
        TokenCache(wrong)
    # Two caches, two tokenizers: neither has ids of the other.
    other = TokenCache(letters())
    assert kept.encode(PARTS) != other.encode(PARTS)
    assert kept.encode(PARTS) == encode(PARTS, kept.tokenizer).ids


def test_ids_that_hang_on_chance_are_refused() -> None:
    merges = [("a", "b")]
    tokenizer = Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2}, merges, dropout=0.5))
    with pytest.raises(TokenizerError, match=r"at random \(dropout=0.5\)"):
        TokenCache(tokenizer)


class Own:
    """A step of somebody's own."""

    def pre_tokenize(self, text: Any) -> None:
        """Do nothing."""


def test_a_step_written_in_python_is_asked_each_time() -> None:
    tokenizer = marked_tokenizer()
    step: Any = pre_tokenizers.PreTokenizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.ByteLevel(), step.custom(Own())])
    kept = TokenCache(tokenizer)
    assert kept.encode(PARTS) == encode(PARTS, tokenizer).ids
    assert kept.size == 0


@pytest.mark.slow
def test_a_cache_stands_for_its_tokenizer() -> None:
    tokenizer = LOSSLESS["deepseek"]()
    kept = TokenCache(tokenizer)
    parts = ["<｜User｜>", "hello <｜User｜>", "<｜Assistant｜>"]
    assert encode(parts, kept) == encode(parts, tokenizer)
    template = ChatTemplate.load("{% for m in messages %}<｜User｜>{{ m.content }}{% endfor %}<｜Assistant｜>")
    assert (
        template.render([{"role": "user", "content": "hi"}]).encode(kept)
        == encode(["<｜User｜>", "hi", "<｜Assistant｜>"], tokenizer).ids
    )


def test_a_pickled_cache_is_empty() -> None:
    kept = TokenCache(marked_tokenizer(), 1_000)
    ids = kept.encode(PARTS)
    copy = pickle.loads(pickle.dumps(kept))  # noqa: S301 - our own
    assert (copy.size, copy.max_bytes) == (0, 1_000)
    assert copy.encode(PARTS) == ids
    assert repr(kept).endswith("max_bytes=1000)")


def test_a_token_of_white_space_that_takes_more_has_one_place() -> None:
    """Its place was taken for the end of what it took, so that several tokens had one, and encoding never ended."""
    line = AddedToken("\n", special=True, single_word=True, rstrip=True, normalized=False)
    tokenizer = added(byte_level(), AddedToken("<s>", special=True, normalized=False), line)
    parts = ["a<I ", "IM<s> M>", "\n\n \n", "IM", "<IM> ", "IM\nM>M>", "  <s>a", "", ""]
    check(parts, tokenizer, TokenCache(tokenizer))
    whole = Rendered(("\n\n \n", "x", ""), ("markers", "history", "markers"))
    assert whole.encode(tokenizer) == tokenizer.encode(whole.text, add_special_tokens=False).ids


@pytest.mark.slow
@given(data=st.data())
def test_a_token_that_reaches_to_its_left_is_no_place_to_cut(data: st.DataObject) -> None:
    flags = data.draw(
        st.fixed_dictionaries({name: st.booleans() for name in ("lstrip", "rstrip", "single_word", "normalized")})
    )
    name = data.draw(st.sampled_from(("<im>", "im", " im", "_im", "\n")))
    tokenizer = added(
        byte_level(), AddedToken("<s>", special=True, normalized=False), AddedToken(name, special=True, **flags)
    )
    tokenizer.normalizer = data.draw(st.sampled_from((None, normalizers.Lowercase(), normalizers.Strip())))
    parts = data.draw(
        parts_of(
            *[st.lists(st.sampled_from((name, "<s>", "a", " ", "\n", "IM", "<I", "M>")), max_size=4).map("".join)] * 2
        )
    )
    check(parts, tokenizer, TokenCache(tokenizer))
