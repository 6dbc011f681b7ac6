"""Conversion of objects from official clients to the plain JSON values of the REST API."""

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

# The maximum nesting depth of a response, not counting the levels inside its tool-call arguments.
_ENVELOPE_DEPTH = 20
_ALREADY_PLAIN = frozenset((str, bool, float, type(None)))


def _has_any_keys(value: object) -> TypeGuard[Mapping[object, object]]:
    return is_mapping(value)


def fields_of(value: object) -> Fields:
    """Return a mapping unchanged, and an empty mapping for any other value."""
    return value if is_mapping(value) else {}


def items_of(value: object) -> Sequence[object]:
    """Return a list or tuple unchanged, and an empty tuple for any other value."""
    return value if is_sequence(value) else ()


def snake_keys(value: object) -> Fields:
    """Convert a Gemini dict's camelCase keys to the keys of Gemini's Python client, such as ``function_call``."""
    if not _has_any_keys(value):
        return {}
    return {_snake_case(key): item for key, item in value.items() if isinstance(key, str)}


def _snake_case(key: str) -> str:
    return key if key.islower() else "".join(f"_{each.lower()}" if each.isupper() else each for each in key)


def json_or_text(value: object) -> str:
    """Convert a value to text that can be encoded as UTF-8.

    ``None`` becomes ``""``. In a string, each lone surrogate becomes U+FFFD. A value that is neither None nor a string
    is serialized as JSON.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        text = str.__str__(value)
        return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    # Python's escape for a lone surrogate, such as \ud800, is also valid JSON.
    written = json.dumps(plain(value, _ENVELOPE_DEPTH), ensure_ascii=False)
    return written.encode("utf-8", "backslashreplace").decode("utf-8")


def standard_base64(value: object) -> str:
    """Convert bytes, or standard or URL-safe base64, to padded standard base64; return other text unchanged."""
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    text = json_or_text(value)
    bare = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return b64encode(b64decode(bare + "=" * (-len(bare) % 4), validate=True)).decode("ascii")
    except ValueError:
        return text


def plain(value: object, depth: int = 0) -> object:
    """Convert a value to plain JSON data."""
    # Handle the most common types first, because the checks below are ten times slower.
    kind = type(value)
    if kind in _ALREADY_PLAIN:
        return value
    if kind is list or kind is dict or hasattr(kind, "model_dump"):
        return _plain_whole(value, depth)
    return _plain_value(value.value if isinstance(value, Enum) else value, depth)


def _plain_value(value: object, depth: int) -> object:
    if isinstance(value, bytes):
        return standard_base64(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, int) and value.bit_length() > MAX_INT_BITS:
        return inf  # Python can't convert an integer this large to text
    if value is None or isinstance(value, str | int | float):
        return value
    return _plain_whole(value, depth)


def _plain_whole(value: object, depth: int) -> object:
    if depth > _ENVELOPE_DEPTH + MAX_DEPTH:
        return "…"
    if is_sequence(value):
        return [plain(item, depth + 1) for item in value]
    fields = plain_fields(value, depth)
    return f"<{type(value).__name__}>" if fields is None else fields


def plain_fields(value: object, depth: int = 0) -> dict[str, object] | None:
    """Return the fields of a dict or pydantic object as plain JSON data, or None for other values."""
    members = members_of(value)
    return None if members is None else {key: plain(item, depth + 1) for key, item in members.items()}


def members_of(value: object) -> dict[str, object] | None:
    """Return the fields of a dict or pydantic object, or None for other values.

    Nearly all clients return dicts or pydantic objects. ``model_dump`` is not called, because it warns about unexpected
    values, and the ``model_dump`` of Ollama's client opens any image path in a response.
    """
    if hasattr(type(value), "model_dump"):
        extra: object = getattr(value, "model_extra", None)
        fields = {**vars(value), **fields_of(extra)} if extra else vars(value)
        present = {key: item for key, item in fields.items() if item is not None and key[:1] != "_"}
        # Mistral's client represents a missing value with an Unset object.
        return {key: item for key, item in present.items() if type(item).__name__ != "Unset"}
    if not _has_any_keys(value):
        return None
    return {key if isinstance(key, str) else repr(key): item for key, item in value.items()}
