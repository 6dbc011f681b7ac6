"""Chat templates in GGUF files, the format of llama.cpp.

Source of the names: the GGUF specification (``ggml/docs/gguf.md``, "Standardized key-value pairs", tokenizer) and
``gguf.constants.Keys.Tokenizer``.
"""

from __future__ import annotations

import os
import struct
import sys
from typing import TYPE_CHECKING, Any, cast

from lazyprompt._base.files import open_regular
from lazyprompt.chat_templates.source import MAX_BYTES, ChatSource
from lazyprompt.errors import TokenizerError, missing_extra

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from gguf import GGUFReader, GGUFValueType
    from numpy.typing import NDArray

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
_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4
# What llama.cpp finds in a text as a whole token (``llama_vocab::impl::load``, its cache of special tokens).
_WHOLE = frozenset((_UNKNOWN, _CONTROL, _USER_DEFINED))
_CUT = "it ends too early"
# Models in use have about a quarter of a million tokens and half a million merges.
_MOST_ITEMS = 4_194_304
_MOST_FIELDS = 65_536
# The length of a text, in the machine's own order of bytes and in the other, by the package's names for them.
_LENGTHS = {"I": struct.Struct("=Q"), "S": struct.Struct(">Q" if sys.byteorder == "little" else "<Q")}


def read_gguf(path: Path) -> ChatSource:
    """Read the chat templates and the special tokens of a GGUF file.

    Args:
        path: The file; of a model in several files, the first.

    Returns:
        What the file says; templates are missing where it has none.

    Raises:
        TokenizerError: It is no GGUF file, or no sound one.
        MissingExtraError: The package gguf is not installed.
    """
    try:
        reader = _reader()
    except ImportError as error:
        raise missing_extra("gguf", "gguf") from error
    try:
        _check_head(path)
        return _source(reader(os.fspath(path)))
    except (OSError, ValueError, LookupError, ArithmeticError, struct.error) as error:
        why = getattr(error, "strerror", None) or error
        raise TokenizerError(
            f"{path} is no GGUF file, or no sound one ({why}); copy it again from where the model is kept"
        ) from error


def _check_head(path: Path) -> None:
    """Check what the package gguf would wait for, or fill the memory with."""
    with os.fdopen(open_regular(path), "rb") as file:
        head = file.read(24)
    # The version, which is small, tells the order of bytes.
    counts = struct.unpack(">8xQQ" if head[4:6] == b"\0\0" else "<8xQQ", head)
    if max(counts) > _MOST_FIELDS:
        raise ValueError(f"it has more than {_MOST_FIELDS:,} fields or tensors")


def _reader() -> type[GGUFReader]:
    """The reader of the package gguf, quick with long lists: its own takes half a minute for a large vocabulary."""
    import numpy as np  # noqa: PLC0415 - the package gguf needs it
    from gguf import GGUFReader, GGUFValueType  # noqa: PLC0415 - an extra

    class Reader(GGUFReader):
        """Reads a list of numbers at once, and no more of a list of texts than where each of them is."""

        def _get_field_parts(
            self, orig_offs: int, raw_type: int
        ) -> tuple[int, list[NDArray[Any]], list[int], list[GGUFValueType]]:
            if raw_type != GGUFValueType.ARRAY:
                field = super()._get_field_parts(orig_offs, raw_type)
                if raw_type == GGUFValueType.STRING and field[1][1].size < field[1][0][0]:
                    raise ValueError(_CUT)
                return field
            parts: list[NDArray[Any]] = [self._get(orig_offs, np.uint32), self._get(orig_offs + 4, np.uint64)]
            kind, count, at = GGUFValueType(int(parts[0][0])), int(parts[1][0]), orig_offs + 12
            if count > _MOST_ITEMS:
                raise ValueError(f"a list in it has {count:,} items; the limit is {_MOST_ITEMS:,}")
            content = np.asarray(self.data)  # slices of a memmap are slow
            if kind in self.gguf_scalar_to_np:
                parts.append(self._get(at, self.gguf_scalar_to_np[kind], count))
                at += parts[-1].itemsize * count
            elif kind == GGUFValueType.STRING:
                length, view = _LENGTHS[self.byte_order].unpack_from, content.data
                for _ in range(count):
                    start = at + 8
                    at = start + length(view, at)[0]
                    parts.append(content[start:at])
            else:
                raise ValueError("there is a list of lists in it")
            if at > content.size:
                raise ValueError(_CUT)
            return at - orig_offs, parts, [*range(2, len(parts))], [GGUFValueType.ARRAY, kind]

    return Reader


def _source(reader: GGUFReader) -> ChatSource:
    templates: dict[str, str] = {}
    for key in reader.fields:
        if key == _TEMPLATE or key.startswith(f"{_TEMPLATE}."):
            text = _value(reader, key)
            if not isinstance(text, str):
                raise ValueError(f"{key} is a {type(text).__name__}, not text")
            if len(text) > MAX_BYTES:
                raise ValueError(f"{key} has {len(text):,} characters; the limit is {MAX_BYTES:,}")
            templates["default" if key == _TEMPLATE else key.removeprefix(f"{_TEMPLATE}.")] = text
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
        return field.parts[field.data[number]].tobytes().decode(errors="replace")

    return token


def _added(reader: GGUFReader, token: Callable[[int], str]) -> Iterable[Mapping[str, object]]:
    """The tokens that are no ordinary ones, with the flag that tells whether they are special."""
    kinds = _value(reader, _TYPES)
    numbers = enumerate(cast("list[int]", kinds)) if isinstance(kinds, list) else ()
    found = [(number, kind) for number, kind in numbers if kind in _WHOLE]
    return ({"content": token(number), "special": kind != _USER_DEFINED} for number, kind in found)
