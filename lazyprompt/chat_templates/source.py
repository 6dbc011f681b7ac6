"""A model's chat templates and special tokens, read from its tokenizer files or from a GGUF file.

The file ``chat_template.jinja`` and the folder ``additional_chat_templates`` override ``tokenizer_config.json``. The
file ``special_tokens_map.json`` is read only if ``tokenizer_config.json`` contains no ``added_tokens_decoder``.

These rules match transformers 5 (``PreTrainedTokenizerBase.from_pretrained`` and ``get_chat_template``). The GGUF
keys come from the GGUF specification (``ggml/docs/gguf.md``, "Standardized key-value pairs", tokenizer) and from
``gguf.constants.Keys.Tokenizer``.
"""

from __future__ import annotations

import json
import os
import re
import struct
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lazyprompt._base.client_objects import fields_of
from lazyprompt._base.files import open_regular, read_regular
from lazyprompt._base.json import is_dict, is_list
from lazyprompt.chat_templates.jinja import ChatJinja
from lazyprompt.errors import TemplateError, TokenizerError, missing_extra

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gguf import GGUFReader, GGUFValueType
    from numpy.typing import NDArray

_WORDS = re.compile(r"[\w\s]*")
MAX_BYTES = 16_777_216
"""The maximum size, in bytes, of a configuration file, and of all template files in a tokenizer's directory."""

_CONFIG = "tokenizer_config.json"
_TOKENS_MAP = "special_tokens_map.json"
_TEMPLATE = "chat_template.jinja"
_TEMPLATES = "additional_chat_templates"

# The GGUF keys of the chat template, the token list and the token types.
_FIELD = "tokenizer.chat_template"
_TOKENS = "tokenizer.ggml.tokens"
_TYPES = "tokenizer.ggml.token_type"
# Map special-token names in templates to the names in GGUF keys.
_SPECIAL = {
    "bos_token": "bos",
    "eos_token": "eos",
    "unk_token": "unknown",
    "pad_token": "padding",
    "sep_token": "seperator",  # spelled this way in the GGUF specification
    "mask_token": "mask",
}
_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4
# The token types that llama.cpp never splits (see the special-token cache in ``llama_vocab::impl::load``).
_WHOLE = frozenset((_UNKNOWN, _CONTROL, _USER_DEFINED))
_CUT = "the file is truncated"
# The maximum length of a list in a GGUF file; large vocabularies contain about 500,000 merges.
_MOST_ITEMS = 4_194_304
_MOST_FIELDS = 65_536
# The gguf package denotes native byte order by "I" and swapped byte order by "S".
_LENGTHS = {"I": struct.Struct("=Q"), "S": struct.Struct(">Q" if sys.byteorder == "little" else "<Q")}


@dataclass(frozen=True, slots=True)
class ChatSource:
    """The chat templates and special tokens of a model.

    Args:
        templates: The chat templates by name, such as ``default`` and ``tool_use``.
        special_tokens: The special tokens, keyed by their names in templates.
        added_tokens: The tokens that the configuration adds to the tokenizer, each with its flags.
        whole_tokens: The texts of all special tokens. Special tokens that the tokenizer lacks are added to
            it.
        response_template: The ``response_template`` in the configuration, which describes the format of the model's
            responses; None if the configuration contains no such template.
    """

    templates: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    special_tokens: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    added_tokens: tuple[Mapping[str, object], ...] = field(default=(), hash=False)
    whole_tokens: tuple[str, ...] = ()
    response_template: Mapping[str, object] | None = field(default=None, hash=False)

    @property
    def control_tokens(self) -> frozenset[str]:
        """The tokens that untrusted text must not forge: special tokens, and added tokens that aren't plain words."""
        added = {str(token["content"]): bool(token.get("special")) for token in self.added_tokens}
        found = {text for text, special in added.items() if special or not _WORDS.fullmatch(text)}
        # Skip one-character tokens, which can't be broken up and also occur in ordinary text.
        return frozenset(text for text in found.union(self.whole_tokens) if len(text.strip()) > 1)

    def template(self, *, with_tools: bool = False) -> ChatJinja | None:
        """Return the model's chat template for chats with or without tools.

        Args:
            with_tools: True if the chat has tools.

        Returns:
            ``tool_use`` if the chat has tools and the model has that template, else ``default``. The result is None if
            the model needs the template ``default`` but has none.

        Raises:
            TemplateError: The template's syntax is invalid.
        """
        names = ("tool_use", "default") if with_tools else ("default",)
        text = next((self.templates[name] for name in names if name in self.templates), None)
        return None if text is None else ChatJinja(text, self.special_tokens)


def read_source(source: str | Path) -> ChatSource:
    """Read chat templates from a path, or take a template from its source text.

    Args:
        source: A path that :func:`read_chat_source` accepts, the path of a GGUF file, or the source text of a template,
            which contains ``{{`` or ``{%``.

    Returns:
        The templates and special tokens.

    Raises:
        TokenizerError: The path does not exist, or a file cannot be read.
        TemplateError: A template in the configuration is not text.
        MissingExtraError: The file is a GGUF file, and the ``gguf`` package is not installed.
    """
    if not isinstance(cast("object", source), str | os.PathLike):
        raise TemplateError(f"expected a chat template's text or path, not {type(source).__name__}")
    if isinstance(source, str) and ("{{" in source or "{%" in source):
        return ChatSource({"default": source})
    path = Path(source)
    if path.suffix == ".gguf" and path.exists() and not path.is_dir():
        return read_gguf(path)
    return read_chat_source(path)


def read_chat_source(path: str | Path) -> ChatSource:
    """Read the chat templates and special tokens in a tokenizer's directory.

    Args:
        path: The tokenizer's directory, or a file in the directory. If the file name ends with ``.jinja``, only
            this file is used as a template.

    Returns:
        The special tokens, and the templates, if the directory contains any.

    Raises:
        TokenizerError: The path does not exist, or a file cannot be read.
        TemplateError: A template in the configuration is not text.
    """
    given = Path(path)
    if not given.exists():
        raise TokenizerError(
            f"{given} does not exist; pass a tokenizer's directory with tokenizer_config.json or chat_template.jinja, "
            "or a .jinja file"
        )
    directory = given if given.is_dir() else given.parent
    config = _read_json(directory / _CONFIG)
    named = config if "added_tokens_decoder" in config else config | _read_json(directory / _TOKENS_MAP)
    return ChatSource(
        {"default": _read(given)} if given.suffix == ".jinja" else _templates(directory, config),
        _special_tokens(named),
        _added_tokens(config.get("added_tokens_decoder")),
        tuple(_whole_tokens(named)),
        fields_of(config.get("response_template")) or None,
    )


def _read(path: Path, most: int = MAX_BYTES) -> str:
    try:
        text = read_regular(path, most).decode()
        return text.replace("\r\n", "\n").replace("\r", "\n")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise TokenizerError(f"{path} cannot be read: {why}; download or copy it again") from error


def _read_json(path: Path) -> dict[str, object]:
    """Read the object in a JSON file, or return an empty dict if the file does not exist."""
    if not path.exists():
        return {}
    try:
        value: object = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"{path} is not valid JSON: {error}; download or copy it again") from error
    if not is_dict(value):
        raise TokenizerError(f"{path} must contain a JSON object, not {type(value).__name__}")
    return value


def _templates(directory: Path, config: dict[str, object]) -> dict[str, str]:
    files = {path.stem: path for path in sorted((directory / _TEMPLATES).glob("*.jinja"))}
    if (directory / _TEMPLATE).exists():
        files = {"default": directory / _TEMPLATE} | files
    if files:
        left, read = MAX_BYTES, dict[str, str]()
        for key, path in files.items():
            read[key] = _read(path, left)
            left -= len(read[key].encode())
        return read
    where = f"the chat_template of {directory / _CONFIG}"
    given = config.get("chat_template")
    if given is None:
        return {}
    if isinstance(given, str):
        return {"default": given}
    if not is_list(given):
        raise TemplateError(f"{where} must be text or a list of templates, not {type(given).__name__}")
    templates: dict[str, str] = {}
    for at, item in enumerate(given):
        name, text = (item.get("name"), item.get("template")) if is_dict(item) else (None, None)
        if not isinstance(name, str) or not isinstance(text, str):
            raise TemplateError(f"item {at} of {where} must be a dict with string values for 'name' and 'template'")
        templates[name] = text
    return templates


def _text(token: object) -> str | None:
    """Return the text of a token, or None if the token has no text."""
    content = token.get("content") if is_dict(token) else token
    return content if isinstance(content, str) else None


def _special_tokens(config: Mapping[str, object]) -> dict[str, str]:
    """Return the standard special tokens and the model's extra special tokens, by name."""
    named = {name: token for name, token in config.items() if name.endswith("_token")}
    extra = config.get("extra_special_tokens")
    if is_dict(extra):
        named |= extra
    return {name: text for name, token in named.items() if (text := _text(token)) is not None}


def _added_tokens(added: object) -> tuple[Mapping[str, object], ...]:
    """Return the tokens that the configuration adds to the tokenizer, sorted by id."""
    tokens = added if is_dict(added) else {}
    in_order = sorted(tokens.items(), key=lambda item: (len(item[0]), item[0]))
    return tuple(token for _, token in in_order if is_dict(token) and _text(token) is not None)


def _whole_tokens(config: Mapping[str, object]) -> dict[str, None]:
    """Return the texts of all special tokens, without duplicates."""
    tokens: list[object] = list(_special_tokens(config).values())
    for name in ("extra_special_tokens", "additional_special_tokens"):
        extra = config.get(name)
        tokens += extra if is_list(extra) else []
    return dict.fromkeys(text for token in tokens if (text := _text(token)) is not None)


def read_gguf(path: Path) -> ChatSource:
    """Read the chat templates and special tokens in a GGUF file.

    Args:
        path: The GGUF file, or the first file if the model is split into several files.

    Returns:
        The special tokens, and the templates, if the file contains any.

    Raises:
        TokenizerError: The file is not a valid GGUF file.
        MissingExtraError: The ``gguf`` package is not installed.
    """
    try:
        reader = _reader()
    except ImportError as error:
        raise missing_extra("gguf", "hf") from error
    try:
        _check_head(path)
        return _source(reader(os.fspath(path)))
    except (OSError, ValueError, LookupError, ArithmeticError, struct.error) as error:
        why = getattr(error, "strerror", None) or error
        raise TokenizerError(f"{path} is not a valid GGUF file ({why}); download or copy it again") from error


def _check_head(path: Path) -> None:
    """Check the counts in a GGUF file's header: large counts could make ``gguf`` hang or exhaust the memory."""
    with os.fdopen(open_regular(path), "rb") as file:
        head = file.read(24)
    # The version number is small, so the position of zero bytes in the version reveals the byte order.
    counts = struct.unpack(">8xQQ" if head[4:6] == b"\0\0" else "<8xQQ", head)
    if max(counts) > _MOST_FIELDS:
        raise ValueError(f"too many fields or tensors: {max(counts):,}; the limit is {_MOST_FIELDS:,}")


def _reader() -> type[GGUFReader]:
    """Return a faster reader for GGUF files, because ``gguf.GGUFReader`` needs 30 seconds for a large vocabulary."""
    import numpy as np  # noqa: PLC0415 - the gguf package needs it
    from gguf import GGUFReader, GGUFValueType  # noqa: PLC0415 - an extra

    class Reader(GGUFReader):
        """A GGUF reader that reads each list of numbers in one step and doesn't decode the strings in lists."""

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
                raise ValueError(f"a list is too long: {count:,} items; the limit is {_MOST_ITEMS:,}")
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
                raise ValueError("the file contains a list of lists, which is not supported")
            if at > content.size:
                raise ValueError(_CUT)
            return at - orig_offs, parts, [*range(2, len(parts))], [GGUFValueType.ARRAY, kind]

    return Reader


def _source(reader: GGUFReader) -> ChatSource:
    templates: dict[str, str] = {}
    for key in reader.fields:
        if key == _FIELD or key.startswith(f"{_FIELD}."):
            text = _value(reader, key)
            if not isinstance(text, str):
                raise ValueError(f"{key} must be text, not {type(text).__name__}")
            if len(text) > MAX_BYTES:
                raise ValueError(f"{key} is too long: {len(text):,} characters; the limit is {MAX_BYTES:,}")
            templates["default" if key == _FIELD else key.removeprefix(f"{_FIELD}.")] = text
    token = _tokens(reader)
    numbers = {name: _value(reader, f"tokenizer.ggml.{key}_token_id") for name, key in _SPECIAL.items()}
    special = {name: token(number) for name, number in numbers.items() if isinstance(number, int)}
    return ChatSource(templates, {name: text for name, text in special.items() if text}, tuple(_added(reader, token)))


def _value(reader: GGUFReader, key: str) -> object:
    field = reader.get_field(key)
    contents: object = None if field is None else field.contents()
    return contents


def _tokens(reader: GGUFReader) -> Callable[[int], str]:
    """Return a function that decodes a single token, because decoding a whole vocabulary is slow."""
    field = reader.get_field(_TOKENS)

    def token(number: int) -> str:
        if field is None or not 0 <= number < len(field.data):
            return ""
        return field.parts[field.data[number]].tobytes().decode(errors="replace")

    return token


def _added(reader: GGUFReader, token: Callable[[int], str]) -> Iterable[Mapping[str, object]]:
    """Yield the tokens that llama.cpp matches as a whole, with a flag that is True for special tokens."""
    kinds = _value(reader, _TYPES)
    numbers = enumerate(kinds) if is_list(kinds) else ()
    found = [(number, kind) for number, kind in numbers if kind in _WHOLE]
    return ({"content": token(number), "special": kind != _USER_DEFINED} for number, kind in found)
