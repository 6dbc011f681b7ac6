"""Where a model's chat template and its special tokens come from: the files beside its tokenizer.

Source of the rules: transformers 5, ``PreTrainedTokenizerBase.from_pretrained`` and ``get_chat_template``. A file
``chat_template.jinja`` and the folder ``additional_chat_templates`` go before what ``tokenizer_config.json`` holds, and
``special_tokens_map.json`` is read where that file lists no ``added_tokens_decoder``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, cast

from lazyprompt._base.files import read_regular
from lazyprompt.chat_templates.gguf_file import read_gguf
from lazyprompt.chat_templates.source import MAX_BYTES, ChatSource
from lazyprompt.errors import TemplateError, TokenizerError

if TYPE_CHECKING:
    from collections.abc import Mapping

_CONFIG = "tokenizer_config.json"
_TOKENS_MAP = "special_tokens_map.json"
_TEMPLATE = "chat_template.jinja"
_TEMPLATES = "additional_chat_templates"


def read_source(source: str | Path) -> ChatSource:
    """The template or templates that somebody names or gives.

    Args:
        source: A path as for :func:`read_chat_source`, a GGUF file, or the template itself: text with ``{{`` or ``{%``.

    Returns:
        What there is.

    Raises:
        TokenizerError: There is nothing at the path, or a file cannot be read.
        TemplateError: What should be a template is none.
        MissingExtraError: It is a GGUF file, and the package gguf is not installed.
    """
    if isinstance(source, str) and ("{{" in source or "{%" in source):
        return ChatSource({"default": source})
    path = Path(source)
    if path.suffix == ".gguf" and path.exists() and not path.is_dir():
        return read_gguf(path)
    return read_chat_source(path)


def read_chat_source(path: str | Path) -> ChatSource:
    """Read what is said about chats beside a tokenizer.

    Args:
        path: The tokenizer's directory, or a file in it; a file that ends with ``.jinja`` is the only template then.

    Returns:
        What the files say; templates are missing where no file has any.

    Raises:
        TokenizerError: There is nothing at the path, or a file cannot be read.
        TemplateError: What should be a template is none.
    """
    given = Path(path)
    if not given.exists():
        raise TokenizerError(
            f"there is nothing at {given}; give the directory of a tokenizer, with tokenizer_config.json or "
            "chat_template.jinja in it, or a .jinja file"
        )
    directory = given if given.is_dir() else given.parent
    config = _read_json(directory / _CONFIG)
    named = config if "added_tokens_decoder" in config else config | _read_json(directory / _TOKENS_MAP)
    return ChatSource(
        {"default": _read(given)} if given.suffix == ".jinja" else _templates(directory, config),
        _special_tokens(named),
        _added_tokens(config.get("added_tokens_decoder")),
        tuple(_whole_tokens(named)),
    )


def _read(path: Path, most: int = MAX_BYTES) -> str:
    try:
        # As text files are read: each line ends with a line feed.
        text = read_regular(path, most).decode()
        return text.replace("\r\n", "\n").replace("\r", "\n")
    except OSError as error:
        why = error.strerror
        raise TokenizerError(f"{path} cannot be read: {why}; copy it again from where the model is kept") from error
    except ValueError as error:
        raise TokenizerError(f"{path} cannot be read: {error}; copy it again from where the model is kept") from error


def _read_json(path: Path) -> dict[str, object]:
    """A JSON file's object; nothing where there is no such file."""
    if not path.exists():
        return {}
    try:
        value: object = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"{path} is no JSON: {error}; copy it again from where the model is kept") from error
    if not isinstance(value, dict):
        raise TokenizerError(f"{path} holds a {type(value).__name__}, not an object")
    return cast("dict[str, object]", value)


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
    if not isinstance(given, list):
        raise TemplateError(f"{where} is a {type(given).__name__}, neither text nor a list of templates")
    templates: dict[str, str] = {}
    for at, item in enumerate(cast("list[object]", given)):
        entry = cast("dict[str, object]", item if isinstance(item, dict) else {})
        name, text = entry.get("name"), entry.get("template")
        if not isinstance(name, str) or not isinstance(text, str):
            raise TemplateError(f"{where} has no 'name' and 'template' in its item {at}")
        templates[name] = text
    return templates


def _text(token: object) -> str | None:
    """The text of a token; None where it is none."""
    content = cast("Mapping[str, object]", token).get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None


def _special_tokens(config: Mapping[str, object]) -> dict[str, str]:
    """The tokens that have a name of their own: the usual ones, and those of the model."""
    named = {name: token for name, token in config.items() if name.endswith("_token")}
    extra = config.get("extra_special_tokens")
    if isinstance(extra, dict):
        named |= cast("dict[str, object]", extra)
    return {name: text for name, token in named.items() if (text := _text(token)) is not None}


def _added_tokens(added: object) -> tuple[Mapping[str, object], ...]:
    """The tokens that the configuration adds to the tokenizer, in the order of their ids."""
    tokens = cast("dict[str, object]", added) if isinstance(added, dict) else {}
    in_order = sorted(tokens.items(), key=lambda item: (len(item[0]), item[0]))
    return tuple(
        cast("Mapping[str, object]", token)
        for _, token in in_order
        if isinstance(token, dict) and _text(cast("object", token)) is not None
    )


def _whole_tokens(config: Mapping[str, object]) -> dict[str, None]:
    """The texts of the special tokens, named and others, each once."""
    tokens: list[object] = list(_special_tokens(config).values())
    for name in ("extra_special_tokens", "additional_special_tokens"):
        extra = config.get(name)
        tokens += cast("list[object]", extra) if isinstance(extra, list) else []
    return dict.fromkeys(text for token in tokens if (text := _text(token)) is not None)
