"""Ids from a token cache always equal the tokenizer's own ids, with bounded memory and several threads."""

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
    REAL_KINDS,
    REAL_TEXT,
    REAL_TOKENIZERS,
    byte_level,
    llama,
    parts_of,
    small_tokenizer,
    with_tokens,
)
from support.real_tokenizers import TOKENIZERS, template_of

NOW = datetime(2026, 1, 2, tzinfo=UTC)
MARKS = ("<s>", "<im>", "</im>")
PARTS = ["<s>", "hello", "</im><im>"]
# Chats for each tokenizer: 40,000 with --hypothesis-profile=deep.
CHATS = 40 * settings().max_examples


@cache
def letters() -> tiktoken.Encoding:
    """An encoding of bytes with three special tokens."""
    ranks = {bytes([byte]): byte for byte in range(256)}
    special = {name: 256 + at for at, name in enumerate(MARKS)}
    return tiktoken.Encoding("bytes", pat_str=r"\s+|\S+", mergeable_ranks=ranks, special_tokens=special)


def check_growing_prompt(parts: list[str], tokenizer: Any, token_cache: TokenCache) -> None:
    """Check that the cached ids of a growing prompt equal the ids of the tokenizer."""
    for most in (len(parts) // 2, len(parts), len(parts)):
        rendered = Rendered(parts[:most], [""] * most)
        assert rendered.encode(token_cache) == encode(parts[:most], tokenizer).ids


@cache
def shared_cache(kind: str) -> tuple[Any, TokenCache]:
    tokenizer = small_tokenizer(kind) if kind in KINDS else REAL_TOKENIZERS[kind]()
    return tokenizer, TokenCache(tokenizer, 200_000)


@pytest.mark.parametrize("kind", KINDS)
@given(parts=ANY_PARTS)
@example(parts=["a\ud83d", "", "\ude00<s>", "\ud83d", "", "\ude00<s>"])
@example(parts=["", "a", "", "b<s>"])
@example(parts=["<|im", "＜s＞", "_end|><|im_end|>", "<s>", "<think><s>"])
def test_cached_ids_equal_the_ids_of_small_tokenizers(kind: str, parts: list[str]) -> None:
    check_growing_prompt(parts, *shared_cache(kind))


@pytest.mark.slow
@pytest.mark.parametrize("kind", REAL_KINDS)
@given(parts=parts_of(REAL_TEXT, REAL_TEXT))
def test_cached_ids_equal_the_ids_of_real_tokenizers(kind: str, parts: list[str]) -> None:
    check_growing_prompt(parts, *shared_cache(kind))


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
def test_cached_ids_of_growing_chats_equal_the_ids_without_a_cache(name: str) -> None:
    tokenizer, template = TOKENIZERS[name](), template_of(name)
    token_cache = TokenCache(tokenizer)
    for seed in range(CHATS):
        chance = Random(seed)  # noqa: S311 - chats to try
        chat = chat_of(chance, 9)
        most = chance.randint(1, 9)
        for end in {most, min(9, most + chance.randint(1, 5))}:
            rendered = template.render(chat[:end], safety=chance.choice(("off", "neutralize")), now=NOW)
            assert rendered.encode(token_cache) == rendered.encode(tokenizer), (seed, end)


def chatml(turns: int, text: str = "{} hello") -> list[str]:
    """The parts of a chat."""
    parts = ["<s>"]
    for turn in range(turns):
        parts += [text.format(turn), "</im><im>"]
    return parts


def test_prompt_encoded_before_adds_nothing_to_the_cache() -> None:
    tokenizer = llama()
    with_tokens(tokenizer, *(AddedToken(name, special=True, normalized=False) for name in MARKS))
    token_cache = TokenCache(tokenizer)
    token_cache.encode(chatml(5))
    before = token_cache.size
    assert token_cache.encode(chatml(5)) == encode(chatml(5), tokenizer).ids
    assert token_cache.size == before
    token_cache.encode(chatml(6))
    assert before < token_cache.size < before * 1.5


@pytest.mark.slow
@pytest.mark.parametrize("max_bytes", [0, 300, 1_000, 20_000])
def test_cache_size_stays_within_max_bytes(max_bytes: int) -> None:
    token_cache = TokenCache(letters(), max_bytes)
    for start in range(200):
        parts = chatml(5, f"{start} {{}} " + "word " * (start % 60))
        assert token_cache.encode(parts) == encode(parts, letters()).ids
        assert token_cache.size <= max_bytes


@pytest.mark.slow
def test_traced_memory_of_a_full_cache_does_not_grow_with_more_turns() -> None:
    token_cache = TokenCache(letters(), 100_000)
    sizes: list[int] = []
    for start in range(0, 80_000, 10_000):
        if start in (20_000, 70_000):
            tracemalloc.start()
        for turn in range(start, start + 10_000):
            token_cache.encode(["<s>", f"{turn} hello", "</im><im>"])
        if tracemalloc.is_tracing():
            sizes.append(tracemalloc.get_traced_memory()[0])
            tracemalloc.stop()
    assert token_cache.size <= 100_000
    assert sizes[1] < sizes[0] * 1.5


@pytest.mark.slow
def test_threads_that_share_a_cache_get_correct_ids() -> None:
    tokenizer = REAL_TOKENIZERS["deepseek"]()
    token_cache = TokenCache(tokenizer, 50_000)
    chats = [[f"<｜User｜>{seed % 7}", f"hello {seed} <｜User｜>", "<｜Assistant｜>"] * 5 + ["!"] for seed in range(40)]
    expected = [encode(parts, tokenizer).ids for parts in chats]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(token_cache.encode, chats * 10)) == expected * 10
    assert token_cache.size <= 50_000


def test_cache_distinguishes_trusted_from_untrusted_values_with_the_same_text() -> None:
    token_cache = TokenCache(letters())
    for parts in (["a", "<im>", ""], ["a", Trusted("<im>"), ""], ["a", "<im>", ""]):
        assert token_cache.encode(parts) == encode(parts, letters()).ids
    assert token_cache.encode(["a", Trusted("<im>"), ""])[-1] == 257


def marked_tokenizer() -> Any:
    return with_tokens(byte_level(), *(AddedToken(name, special=True, normalized=False) for name in MARKS))


def set_attribute(path: str, value: Any) -> Callable[[Any], None]:
    *names, last = path.split(".")
    return lambda token_cache: setattr(reduce(getattr, names, token_cache), last, value)


def add_flag(token_cache: Any) -> None:
    token_cache.tokenizer.add_special_tokens([AddedToken("<im>", special=True, normalized=False, rstrip=True)])


CHANGES: dict[str, Callable[[Any], None]] = {
    "tokens": lambda token_cache: token_cache.tokenizer.add_tokens(["<new>"]),
    "flags": add_flag,
    "normalizer": set_attribute("tokenizer.normalizer", normalizers.Lowercase()),
    "pre-tokenizer": set_attribute("tokenizer.pre_tokenizer.add_prefix_space", value=True),
    "model": set_attribute("tokenizer.model", models.BPE()),
    "special tokens": set_attribute("tokenizer.encode_special_tokens", value=True),
    "another tokenizer": set_attribute("tokenizer", marked_tokenizer()),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_tokenizer_changed_after_the_cache_was_created_is_an_error(change: Any) -> None:
    token_cache = TokenCache(marked_tokenizer())
    assert token_cache.encode(PARTS) == token_cache.encode(PARTS)
    change(token_cache)
    with pytest.raises(TokenizerError, match="has changed since its TokenCache was created.*create a new TokenCache"):
        token_cache.encode(PARTS)
    assert TokenCache(token_cache.tokenizer).encode(PARTS) == encode(PARTS, token_cache.tokenizer).ids


def test_token_cache_belongs_to_a_single_tokenizer() -> None:
    token_cache = TokenCache(marked_tokenizer())
    with pytest.raises(TokenizerError, match="is already a TokenCache"):
        TokenCache(token_cache)
    wrong: Any = "gpt-4o"
    with pytest.raises(TokenizerError, match="the tokenizer must be .*, not builtins.str$"):
        TokenCache(wrong)
    # Caches of two tokenizers do not share ids.
    other = TokenCache(letters())
    assert token_cache.encode(PARTS) != other.encode(PARTS)
    assert token_cache.encode(PARTS) == encode(PARTS, token_cache.tokenizer).ids


def test_tokenizer_with_dropout_is_refused() -> None:
    merges = [("a", "b")]
    tokenizer = Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2}, merges, dropout=0.5))
    with pytest.raises(TokenizerError, match=r"at random \(dropout=0.5\)"):
        TokenCache(tokenizer)


class CustomPreTokenizer:
    """A custom pre-tokenizer."""

    def pre_tokenize(self, text: Any) -> None:
        """Do nothing."""


def test_tokenizer_with_a_custom_python_pre_tokenizer_is_not_cached() -> None:
    tokenizer = marked_tokenizer()
    step: Any = pre_tokenizers.PreTokenizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.ByteLevel(), step.custom(CustomPreTokenizer())])
    token_cache = TokenCache(tokenizer)
    assert token_cache.encode(PARTS) == encode(PARTS, tokenizer).ids
    assert token_cache.size == 0


@pytest.mark.slow
def test_token_cache_is_accepted_in_place_of_its_tokenizer() -> None:
    tokenizer = REAL_TOKENIZERS["deepseek"]()
    token_cache = TokenCache(tokenizer)
    parts = ["<｜User｜>", "hello <｜User｜>", "<｜Assistant｜>"]
    assert encode(parts, token_cache) == encode(parts, tokenizer)
    template = ChatTemplate.load("{% for m in messages %}<｜User｜>{{ m.content }}{% endfor %}<｜Assistant｜>")
    assert (
        template.render([{"role": "user", "content": "hi"}]).encode(token_cache)
        == encode(["<｜User｜>", "hi", "<｜Assistant｜>"], tokenizer).ids
    )


def test_unpickled_token_cache_is_empty_and_gives_the_same_ids() -> None:
    token_cache = TokenCache(marked_tokenizer(), 1_000)
    ids = token_cache.encode(PARTS)
    copy = pickle.loads(pickle.dumps(token_cache))  # noqa: S301 - our own
    assert (copy.size, copy.max_bytes) == (0, 1_000)
    assert copy.encode(PARTS) == ids
    assert repr(token_cache).endswith("max_bytes=1000)")


def test_whitespace_token_that_strips_more_whitespace_is_encoded_with_a_cache() -> None:
    """The position of such a token was wrong, so that several tokens had the same one, and encoding never ended."""
    line = AddedToken("\n", special=True, single_word=True, rstrip=True, normalized=False)
    tokenizer = with_tokens(byte_level(), AddedToken("<s>", special=True, normalized=False), line)
    parts = ["a<I ", "IM<s> M>", "\n\n \n", "IM", "<IM> ", "IM\nM>M>", "  <s>a", "", ""]
    check_growing_prompt(parts, tokenizer, TokenCache(tokenizer))
    whole = Rendered(("\n\n \n", "x", ""), ("markers", "history", "markers"))
    assert whole.encode(tokenizer) == tokenizer.encode(whole.text, add_special_tokens=False).ids


@pytest.mark.slow
@given(data=st.data())
def test_cached_ids_are_correct_for_added_tokens_with_any_flags_and_normalizer(data: st.DataObject) -> None:
    flags = data.draw(
        st.fixed_dictionaries({name: st.booleans() for name in ("lstrip", "rstrip", "single_word", "normalized")})
    )
    name = data.draw(st.sampled_from(("<im>", "im", " im", "_im", "\n")))
    tokenizer = with_tokens(
        byte_level(), AddedToken("<s>", special=True, normalized=False), AddedToken(name, special=True, **flags)
    )
    tokenizer.normalizer = data.draw(st.sampled_from((None, normalizers.Lowercase(), normalizers.Strip())))
    parts = data.draw(
        parts_of(
            *[st.lists(st.sampled_from((name, "<s>", "a", " ", "\n", "IM", "<I", "M>")), max_size=4).map("".join)] * 2
        )
    )
    check_growing_prompt(parts, tokenizer, TokenCache(tokenizer))
