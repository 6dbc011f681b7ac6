"""OpenAI's vocabularies, to compare with.

They are no part of this repository: the first test that wants one downloads the wheel of llama-index-core, which holds
two of them under the names that tiktoken's cache gives them.
"""

from __future__ import annotations

import hashlib
import zipfile
from base64 import b64decode
from functools import lru_cache
from importlib import import_module
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import tiktoken

from support.real_templates import wheel

_WHEEL = "llama_index_core-0.14.25-py3-none-any.whl"
# In the wheel: cl100k_base and o200k_base.
_FILES = tuple(
    f"llama_index/core/_static/tiktoken_cache/{name}"
    for name in ("9b5ad71b2ce5302211f9c61530b329a4922fc6a4", "fb374d419588a4632f3f557e76b4b70aebbca790")
)


def vocabulary_folder() -> Path:
    """A folder that can be tiktoken's ``TIKTOKEN_CACHE_DIR``: cl100k_base and o200k_base are in it.

    Any number of processes may come first at once: each unpacks beside, and puts whole files into place.
    """
    path = wheel(_WHEEL, "with OpenAI's vocabularies")
    folder = path.parent / "tiktoken"
    missing = {inside: folder / PurePosixPath(inside).name for inside in _FILES}
    missing = {inside: place for inside, place in missing.items() if not place.exists()}
    if missing:
        folder.mkdir(exist_ok=True)
        with zipfile.ZipFile(path) as archive, TemporaryDirectory(dir=path.parent) as beside:
            for inside, place in missing.items():
                Path(archive.extract(inside, beside)).replace(place)
    return folder


@lru_cache(maxsize=2)
def encoding(name: str) -> tiktoken.Encoding:
    """One of OpenAI's encodings as tiktoken makes it, without its downloads and its cache."""
    recipes: Any = import_module("tiktoken_ext.openai_public")
    with patch.object(recipes, "load_tiktoken_bpe", _load):
        return tiktoken.Encoding(**recipes.ENCODING_CONSTRUCTORS[name]())


@lru_cache(maxsize=1)
def chatml() -> tiktoken.Encoding:
    """o200k_base with the special tokens of ChatML and of thoughts."""
    base: Any = encoding("o200k_base")
    special = {name: 200_020 + at for at, name in enumerate(("<|im_start|>", "<|im_end|>", "<think>", "</think>"))}
    return tiktoken.Encoding(
        "chatml",
        pat_str=base._pat_str,  # noqa: SLF001 - as tiktoken's readme has it
        mergeable_ranks=base._mergeable_ranks,  # noqa: SLF001 - the same
        special_tokens=base._special_tokens | special,  # noqa: SLF001 - the same
    )


def _load(address: str, expected_hash: str) -> dict[bytes, int]:
    """What tiktoken's own loader gives, from the file that its cache would have for this address."""
    content = (vocabulary_folder() / hashlib.sha1(address.encode()).hexdigest()).read_bytes()  # noqa: S324 - its name
    if hashlib.sha256(content).hexdigest() != expected_hash:
        raise RuntimeError(f"the vocabulary in {_WHEEL} is not the one at {address}")
    lines = (line.split() for line in content.splitlines())
    return {b64decode(token): int(rank) for token, rank in lines}
