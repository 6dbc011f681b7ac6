"""The objects of official clients, read as the plain values of the REST API that they stand for."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from datetime import date
from enum import Enum
from math import inf
from typing import cast

from lazyprompt._base.json import MAX_DEPTH, MAX_INT_BITS, Fields

# How deep in an answer the arguments of a call may lie, which in turn may be MAX_DEPTH deep.
_ENVELOPE_DEPTH = 20
_ALREADY_PLAIN = frozenset((str, bool, float, type(None)))


def fields_of(value: object) -> Fields:
    """Return a mapping as it is, and an empty one for all else."""
    # Asking a dict whether it is a Mapping takes ten times as long.
    return cast("Fields", value) if type(value) is dict or isinstance(value, Mapping) else {}


def snake_keys(value: object) -> Fields:
    """Return a dict of Gemini with the keys of its client: ``function_call`` for ``functionCall``."""
    return {
        key if key.islower() else "".join(f"_{sign.lower()}" if sign.isupper() else sign for sign in key): item
        for key, item in fields_of(value).items()
        if isinstance(cast("object", key), str)
    }


def json_or_text(value: object) -> str:
    """Return text that can be written: lone surrogates are U+FFFD, ``None`` is nothing, other values are their JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        text = str.__str__(value)
        return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    # In JSON a lone surrogate has an escape, and it is the one Python writes too.
    written = json.dumps(plain(value, _ENVELOPE_DEPTH), ensure_ascii=False)
    return written.encode("utf-8", "backslashreplace").decode("utf-8")


def standard_base64(value: object) -> str:
    """Return standard base64 of bytes, or of base64 in either alphabet with or without padding; other text stays."""
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    text = json_or_text(value)
    bare = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return b64encode(b64decode(bare + "=" * (-len(bare) % 4), validate=True)).decode("ascii")
    except ValueError:
        return text


def plain(value: object, depth: int = 0) -> object:
    """Return a value as JSON has it."""
    # Nearly all are of these types, or objects of pydantic's; the other checks cost ten times as much.
    kind = type(value)
    if kind in _ALREADY_PLAIN:
        return value
    if kind is list or kind is dict or hasattr(kind, "model_dump"):
        return _plain_whole(value, depth)
    return _plain_value(value.value if isinstance(value, Enum) else value, depth)


def _plain_value(value: object, depth: int) -> object:
    """Return a value of a rare type as JSON has it."""
    if isinstance(value, bytes):
        return standard_base64(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, int) and value.bit_length() > MAX_INT_BITS:
        return inf  # Python refuses to write it; this can be written, and is no valid number either.
    if value is None or isinstance(value, str | int | float):
        return value
    return _plain_whole(value, depth)


def _plain_whole(value: object, depth: int) -> object:
    """Return a list, a mapping or an object as JSON has it."""
    if depth > _ENVELOPE_DEPTH + MAX_DEPTH:
        return "…"
    if isinstance(value, list | tuple):
        return [plain(item, depth + 1) for item in cast("Sequence[object]", value)]
    members = members_of(value)
    if members is None:
        return f"<{type(value).__name__}>"
    return {key: plain(item, depth + 1) for key, item in members.items()}


def members_of(value: object) -> dict[str, object] | None:
    """Return the fields of a dict or of a pydantic object, as nearly all clients give; ``None`` for all else.

    Objects are read field by field. Their own ``model_dump`` warns of whatever their types did not foresee, and that of
    Ollama's opens the file that an answer names as its picture.
    """
    if hasattr(type(value), "model_dump"):
        extra: object = getattr(value, "model_extra", None)
        given = {**vars(value), **fields_of(extra)} if extra else vars(value)
        # Mistral's client has an object for what is not there.
        left = {key: item for key, item in given.items() if item is not None and key[:1] != "_"}
        return {key: item for key, item in left.items() if type(item).__name__ != "Unset"}
    if not isinstance(value, Mapping):
        return None
    items = cast("Mapping[object, object]", value).items()
    return {key if isinstance(key, str) else repr(key): item for key, item in items}
