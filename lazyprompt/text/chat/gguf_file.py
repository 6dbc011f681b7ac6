"""Chat templates in GGUF files, the format of llama.cpp.

Source of the names: the GGUF specification (``ggml/docs/gguf.md``, "Standardized key-value pairs", tokenizer) and
``gguf.constants.Keys.Tokenizer``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

from lazyprompt.errors import TokenizerError, missing_extra
from lazyprompt.text.chat.source import ChatSource

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from gguf import GGUFReader

_TEMPLATE = "tokenizer.chat_template"
_TOKENS = "tokenizer.ggml.tokens"
_TYPES = "tokenizer.ggml.token_type"
# The names that templates have for them, and the end of the key with the token's number.
_SPECIAL = {
    "bos_token": "bos",
    "eos_token": "eos",
    "unk_token": "unknown",
    "pad_token": "padding",
    "sep_token": "seperator",  # spelled so in the format
    "mask_token": "mask",
}
_CONTROL, _USER_DEFINED = 3, 4


def read_gguf(path: Path) -> ChatSource:
    """Read the chat templates and the special tokens of a GGUF file.

    Args:
        path: The file; of a model in several files, the first.

    Returns:
        What the file says; templates are missing where it has none.

    Raises:
        TokenizerError: It is no GGUF file.
        MissingExtraError: The package gguf is not installed.
    """
    try:
        from gguf import GGUFReader  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise missing_extra("gguf", "gguf") from error
    try:
        reader = GGUFReader(os.fspath(path))
    except (OSError, ValueError, IndexError, KeyError) as error:
        raise TokenizerError(f"{path} is no GGUF file that can be read: {error}") from error
    templates = {
        "default" if key == _TEMPLATE else key.removeprefix(f"{_TEMPLATE}."): str(_value(reader, key))
        for key in reader.fields
        if key == _TEMPLATE or key.startswith(f"{_TEMPLATE}.")
    }
    token = _tokens(reader)
    numbers = {name: _value(reader, f"tokenizer.ggml.{key}_token_id") for name, key in _SPECIAL.items()}
    special = {name: token(number) for name, number in numbers.items() if isinstance(number, int)}
    return ChatSource(templates, {name: text for name, text in special.items() if text}, tuple(_added(reader, token)))


def _value(reader: GGUFReader, key: str) -> object:
    field = reader.get_field(key)
    return None if field is None else cast("object", field.contents())


def _tokens(reader: GGUFReader) -> Callable[[int], str]:
    """What gives the text of a token: one at a time, for there are many."""
    field = reader.get_field(_TOKENS)

    def token(number: int) -> str:
        if field is None or not 0 <= number < len(field.data):
            return ""
        return bytes(field.parts[field.data[number]]).decode(errors="replace")

    return token


def _added(reader: GGUFReader, token: Callable[[int], str]) -> list[Mapping[str, object]]:
    """The tokens that are no ordinary ones, with the flag that tells whether they are special."""
    kinds = _value(reader, _TYPES)
    numbers = enumerate(cast("list[int]", kinds)) if isinstance(kinds, list) else ()
    found = [(number, kind) for number, kind in numbers if kind in (_CONTROL, _USER_DEFINED)]
    return [{"content": token(number), "special": kind == _CONTROL} for number, kind in found]
