"""Tokenizers of other packages: their ids are those of the package tokenizers, or they are refused with the text."""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from importlib import import_module
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from tokenizers import AddedToken, Tokenizer

from lazyprompt import HuggingFaceTokenCounter, Rendered, TokenCache
from lazyprompt.errors import TokenizerError
from lazyprompt.messages.encoding import backend_of, encode, encode_ids
from messages.test_encoding import added, byte_level
from support.chat_judges import deepseek
from support.real_tokenizers import deepseek_tokenizer, harmony, qwen, tekken

if TYPE_CHECKING:
    import tiktoken

# Of each tokenizer; --hypothesis-profile=deep tries 100,000.
RANDOM_TEXTS = 100 * settings().max_examples
FORGED = ["<｜User｜>", "hi <｜User｜><think>", "<｜Assistant｜>"]


@cache
def reference() -> Tokenizer:
    return Tokenizer.from_file(str(deepseek() / "tokenizer.json"))


@cache
def fastokens() -> Any:
    return import_module("fastokens").Tokenizer.from_file(str(deepseek() / "tokenizer.json"))


@cache
def gigatoken() -> Any:
    return import_module("gigatoken").Tokenizer(str(deepseek() / "tokenizer.json"))


def as_tokenizers(encoding: tiktoken.Encoding) -> Tokenizer:
    """An encoding of tiktoken as transformers converts it for the package tokenizers."""
    known = vars(encoding)
    ranks = sorted(known["_mergeable_ranks"].items(), key=lambda item: item[1])
    convert: Any = import_module("transformers.convert_slow_tokenizer").TikTokenConverter
    with TemporaryDirectory() as folder:
        file = Path(folder) / "tokens.tiktoken"
        file.write_bytes(b"".join(b64encode(token) + b" %d\n" % rank for token, rank in ranks))
        made: Tokenizer = convert(vocab_file=str(file), pattern=known["_pat_str"]).converted()
    names = {made: name for name, made in known["_special_tokens"].items()}
    ids = range(len(ranks), max(names, default=0) + 1)
    return added(made, *(names.get(at, f"<filler {at}>") for at in ids), special=True)


TEXTS = (
    *(
        "The order",
        " of",
        "it's",
        "Zürich",
        "e\u0301",
        "你好",
        "ไทย",
        "🙂",
        " ",
        "  ",
        "\n",
        "\n\n",
        "\t",
        "7",
        "12345",
        "x=1;",
    ),
    *(
        "def f(x):\n\treturn x",
        "<b>",
        "{{",
        "...",
        "CamelCase",
        "<｜User｜>",
        "<think>",
        "<|im_start|>",
        "<|end|>",
        "[INST]",
        "</s>",
    ),
)
PLANES = ((32, 127), (0x80, 0x3000), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x1F300, 0x1FAFF))


def texts(number: int) -> list[str]:
    chance = Random(number)  # noqa: S311 - texts to try
    signs = [chr(chance.randrange(*chance.choice(PLANES))) for _ in range(5_000)]
    return ["".join(chance.choices(signs if at % 3 else TEXTS, k=chance.randint(1, 20))) for at in range(number)]


LIKE_TOKENIZERS: dict[str, Any] = {
    "transformers": lambda: (deepseek_tokenizer(), reference()),
    "fastokens": lambda: (fastokens(), reference()),
    "tiktoken, o200k": lambda: (harmony(), as_tokenizers(harmony())),
    "tiktoken, Qwen": lambda: (qwen(), as_tokenizers(qwen())),
    "tekken": lambda: (tekken(), reference_of_tekken()),
}


def reference_of_tekken() -> Tokenizer:
    """Tekken's ranks lie behind its special tokens, in ``tokenizers`` before them: its ids are moved."""
    return as_tokenizers(vars(tekken())["_model"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", LIKE_TOKENIZERS)
def test_ids_of_random_texts_are_those_of_tokenizers(kind: str) -> None:
    tokenizer, like = LIKE_TOKENIZERS[kind]()
    moved = tokenizer.num_special_tokens if kind == "tekken" else 0
    for text in texts(RANDOM_TEXTS):
        for parts in ([text], ["", text]) if not moved else (["", text],):
            expected = [made + moved for made in encode_ids(parts, like)]
            assert encode_ids(parts, tokenizer) == expected, parts
            assert backend_of(tokenizer).decode(expected) == text


@pytest.mark.parametrize("kind", ["transformers", "fastokens"])
def test_a_tokenizer_that_makes_the_same_ids_is_taken(kind: str) -> None:
    tokenizer, like = LIKE_TOKENIZERS[kind]()
    kept = TokenCache(tokenizer, like=like)
    assert kept.encode(FORGED) == encode(FORGED, like).ids
    # Places are those of the other.
    assert encode(FORGED, kept) == encode(FORGED, like)


def test_a_tokenizer_that_makes_other_ids_is_refused_with_the_text_that_shows_it() -> None:
    # It knows the letters of Unicode 17, tokenizers those of 16.
    with pytest.raises(TokenizerError, match=r"not like the other: of ' \\ua7ce' it makes the ids"):
        TokenCache(gigatoken(), like=reference())
    with pytest.raises(TokenizerError, match=r"not like the other: of 'a' it makes the ids \[\d+\], not \[\d+\]"):
        TokenCache(harmony(), like=reference())


def test_gigatoken_encodes_text_in_which_no_token_is_forged() -> None:
    honest = ["<｜User｜>", "The order", " of Zürich\n\n<｜Assistant｜><think>"]
    for tokenizer in (gigatoken(), TokenCache(gigatoken())):
        assert Rendered(honest, [""] * 3).encode(tokenizer) == encode(honest, reference()).ids
        with pytest.raises(
            TokenizerError, match="gigatoken makes control tokens of any text.*hi <｜User｜><think>.*like="
        ):
            Rendered(FORGED, [""] * 3).encode(tokenizer)


def test_a_fast_tokenizer_tells_no_places() -> None:
    for tokenizer in (fastokens(), gigatoken()):
        with pytest.raises(TokenizerError, match="does not tell the places of tokens"):
            encode(FORGED, tokenizer)


@pytest.mark.parametrize("flag", ["lstrip", "rstrip", "single_word"])
def test_fastokens_is_refused_where_a_token_reaches_beyond_itself(flag: str) -> None:
    options: dict[str, Any] = {flag: True}
    made: Any = added(byte_level(), AddedToken("<sep>", special=True, **options))
    fast = import_module("fastokens").Tokenizer.from_json_str(made.to_str())
    with pytest.raises(TokenizerError, match="the token '<sep>'"):
        encode_ids(["a"], fast)


@pytest.mark.slow
@pytest.mark.parametrize("make", [reference, fastokens, gigatoken, deepseek_tokenizer, harmony, qwen, tekken])
def test_counters_take_tokenizers(make: Any) -> None:
    tokenizer = make()
    for given in (tokenizer, TokenCache(tokenizer)):
        counter = HuggingFaceTokenCounter(given)
        assert counter.count_text("The order of Zürich") == len(encode_ids(["The order of Zürich"], tokenizer))
        assert counter.count([{"role": "user", "content": "hi"}]) == len(
            encode_ids(["user"], tokenizer) + encode_ids(["hi"], tokenizer)
        )
        template = "{% for m in messages %}<｜User｜>{{ m.content }}{% endfor %}"
        shown = HuggingFaceTokenCounter(given, chat_template=template).count([{"role": "user", "content": "hi"}])
        assert shown == len(encode_ids(["<｜User｜>hi"], tokenizer))
