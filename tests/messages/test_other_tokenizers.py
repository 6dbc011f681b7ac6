"""Tokenizers of other packages give the same ids as the package tokenizers."""

from base64 import b64encode
from functools import cache
from importlib import import_module
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import tiktoken
from hypothesis import settings
from tokenizers import Tokenizer

from lazyprompt import HuggingFaceTokenCounter, TokenCache
from lazyprompt.messages.encoding import backend_of, encode
from messages.test_encoding import with_tokens
from support.chat_judges import deepseek
from support.real_tokenizers import deepseek_tokenizer, harmony, qwen, tekken

# Texts for each tokenizer: 100,000 with --hypothesis-profile=deep.
RANDOM_TEXTS = 100 * settings().max_examples


@cache
def reference() -> Tokenizer:
    return Tokenizer.from_file(str(deepseek() / "tokenizer.json"))


def as_tokenizers(encoding: tiktoken.Encoding) -> Tokenizer:
    """A tiktoken encoding, converted by transformers for the package tokenizers."""
    known = vars(encoding)
    ranks = sorted(known["_mergeable_ranks"].items(), key=lambda item: item[1])
    convert: Any = import_module("transformers.convert_slow_tokenizer").TikTokenConverter
    with TemporaryDirectory() as folder:
        file = Path(folder) / "tokens.tiktoken"
        file.write_bytes(b"".join(b64encode(token) + b" %d\n" % rank for token, rank in ranks))
        made: Tokenizer = convert(vocab_file=str(file), pattern=known["_pat_str"]).converted()
    names = {made: name for name, made in known["_special_tokens"].items()}
    ids = range(len(ranks), max(names, default=0) + 1)
    return with_tokens(made, *(names.get(at, f"<filler {at}>") for at in ids), special=True)


TEXTS = (
    *("The order", " of", "it's", "Zürich", "e\u0301", "你好", "ไทย", "🙂", " ", "  ", "\n", "\n\n", "\t", "7"),
    *("12345", "x=1;", "def f(x):\n\treturn x", "<b>", "{{", "...", "CamelCase", "<｜User｜>", "<think>"),
    *("<|im_start|>", "<|end|>", "[INST]", "</s>"),
)
PLANES = ((32, 127), (0x80, 0x3000), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x1F300, 0x1FAFF))


def texts(number: int) -> list[str]:
    chance = Random(number)  # noqa: S311 - texts to try
    characters = [chr(chance.randrange(*chance.choice(PLANES))) for _ in range(5_000)]
    return ["".join(chance.choices(characters if at % 3 else TEXTS, k=chance.randint(1, 20))) for at in range(number)]


TOKENIZER_PAIRS: dict[str, Any] = {
    "transformers": lambda: (deepseek_tokenizer(), reference()),
    "tiktoken, o200k": lambda: (harmony(), as_tokenizers(harmony())),
    "tiktoken, Qwen": lambda: (qwen(), as_tokenizers(qwen())),
    # Tekken's special tokens have the lowest ids; in ``tokenizers``, the highest ids. All other ids are shifted.
    "tekken": lambda: (tekken(), as_tokenizers(vars(tekken())["_model"])),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", TOKENIZER_PAIRS)
def test_ids_of_random_texts_equal_the_ids_of_the_tokenizers_package(kind: str) -> None:
    tokenizer, like = TOKENIZER_PAIRS[kind]()
    shift = tokenizer.num_special_tokens if kind == "tekken" else 0
    for text in texts(RANDOM_TEXTS):
        for parts in ([text], ["", text]) if not shift else (["", text],):
            expected = [made + shift for made in encode(parts, like).ids]
            assert encode(parts, tokenizer).ids == expected, parts
            assert backend_of(tokenizer).decode(expected) == text


@pytest.mark.slow
@pytest.mark.parametrize("make", [reference, deepseek_tokenizer, harmony, qwen, tekken])
def test_hugging_face_token_counter_accepts_tokenizers_of_all_packages_and_token_caches(make: Any) -> None:
    tokenizer = make()
    for given in (tokenizer, TokenCache(tokenizer)):
        counter = HuggingFaceTokenCounter(given)
        assert counter.count_text("The order of Zürich") == len(encode(["The order of Zürich"], tokenizer).ids)
        assert counter.count([{"role": "user", "content": "hi"}]) == len(
            encode(["user"], tokenizer).ids + encode(["hi"], tokenizer).ids
        )
        template = "{% for m in messages %}<｜User｜>{{ m.content }}{% endfor %}"
        shown = HuggingFaceTokenCounter(given, chat_template=template).count([{"role": "user", "content": "hi"}])
        assert shown == len(encode(["<｜User｜>hi"], tokenizer).ids)
