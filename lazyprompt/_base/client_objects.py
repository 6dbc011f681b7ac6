"""The objects of official clients, converted to the plain values of the REST API."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from datetime import date
from enum import Enum
from math import inf
from typing import TYPE_CHECKING, TypeGuard

from lazyprompt._base.json import MAX_DEPTH, MAX_INT_BITS, Fields, is_mapping, is_sequence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# The depth at which an answer may contain the arguments of a call, which may be MAX_DEPTH deep themselves.
_ENVELOPE_DEPTH = 20
_ALREADY_PLAIN = frozenset((str, bool, float, type(None)))


def _has_any_keys(value: object) -> TypeGuard[Mapping[object, object]]:
    return is_mapping(value)


def fields_of(value: object) -> Fields:
    """Return a mapping as it is, and an empty one for any other value."""
    return value if is_mapping(value) else {}


def items_of(value: object) -> Sequence[object]:
    """Return a list or tuple as it is, and an empty one for any other value."""
    return value if is_sequence(value) else ()


def snake_keys(value: object) -> Fields:
    """Return a dict of Gemini with the keys of its client: ``function_call`` for ``functionCall``."""
    if not _has_any_keys(value):
        return {}
    return {_snake_case(key): item for key, item in value.items() if isinstance(key, str)}


def _snake_case(key: str) -> str:
    return key if key.islower() else "".join(f"_{each.lower()}" if each.isupper() else each for each in key)


def json_or_text(value: object) -> str:
    """Return text that can be encoded: a lone surrogate becomes U+FFFD, ``None`` becomes ``""``, other values JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        text = str.__str__(value)
        return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    # The escape of a lone surrogate in JSON is the one that Python writes.
    written = json.dumps(plain(value, _ENVELOPE_DEPTH), ensure_ascii=False)
    return written.encode("utf-8", "backslashreplace").decode("utf-8")


def standard_base64(value: object) -> str:
    """Return standard base64 of bytes, or of base64 in either alphabet with or without padding; keep any other text."""
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    text = json_or_text(value)
    bare = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return b64encode(b64decode(bare + "=" * (-len(bare) % 4), validate=True)).decode("ascii")
    except ValueError:
        return text


def plain(value: object, depth: int = 0) -> object:
    """Convert a value to JSON."""
    # Nearly all values have these types or are pydantic objects; the other checks cost ten times as much.
    kind = type(value)
    if kind in _ALREADY_PLAIN:
        return value
    if kind is list or kind is dict or hasattr(kind, "model_dump"):
        return _plain_whole(value, depth)
    return _plain_value(value.value if isinstance(value, Enum) else value, depth)


def _plain_value(value: object, depth: int) -> object:
    """Convert a value of a rare type to JSON."""
    if isinstance(value, bytes):
        return standard_base64(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, int) and value.bit_length() > MAX_INT_BITS:
        return inf  # Python refuses to write the integer. Infinity is not JSON either, but can be written.
    if value is None or isinstance(value, str | int | float):
        return value
    return _plain_whole(value, depth)


def _plain_whole(value: object, depth: int) -> object:
    """Convert a list, a mapping or an object to JSON."""
    if depth > _ENVELOPE_DEPTH + MAX_DEPTH:
        return "…"
    if is_sequence(value):
        return [plain(item, depth + 1) for item in value]
    fields = plain_fields(value, depth)
    return f"<{type(value).__name__}>" if fields is None else fields


def plain_fields(value: object, depth: int = 0) -> dict[str, object] | None:
    """Return the fields of a dict or a pydantic object, converted to JSON; ``None`` for other values."""
    members = members_of(value)
    return None if members is None else {key: plain(item, depth + 1) for key, item in members.items()}


def members_of(value: object) -> dict[str, object] | None:
    """Return the fields of a dict or a pydantic object, which nearly all clients return; ``None`` for other values.

    ``model_dump`` is not called: it warns of unexpected values, and Ollama's opens the file that an answer names as its
    image.
    """
    if hasattr(type(value), "model_dump"):
        extra: object = getattr(value, "model_extra", None)
        fields = {**vars(value), **fields_of(extra)} if extra else vars(value)
        present = {key: item for key, item in fields.items() if item is not None and key[:1] != "_"}
        # Mistral's client has an Unset object for a missing value.
        return {key: item for key, item in present.items() if type(item).__name__ != "Unset"}
    if not _has_any_keys(value):
        return None
    return {key if isinstance(key, str) else repr(key): item for key, item in value.items()}
