"""Validation, copying and serialization of JSON values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

if TYPE_CHECKING:
    from lazyprompt.errors import LazyPromptError

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
JsonObject: TypeAlias = "dict[str, Json]"
Fields: TypeAlias = "Mapping[str, object]"

# The maximum nesting depth, which is deeper than real schemas but well below Python's recursion limit.
MAX_DEPTH = 200
# The maximum size of an integer, in bits. By default, Python converts only integers of up to 4,300 digits to text.
MAX_INT_BITS = 14_000
# The text length, in characters, below which encoding as UTF-8 is faster than encoding as UTF-32.
_SHORT = 1_000


def is_text(value: object) -> TypeGuard[str]:
    """Return True for a string. Use this function where a type checker would report ``isinstance`` as redundant."""
    return isinstance(value, str)


def is_dict(value: object) -> TypeGuard[dict[str, object]]:
    """Return True for a dict; its keys and values are unchecked."""
    return isinstance(value, dict)


def is_mapping(value: object) -> TypeGuard[Fields]:
    """Return True for a mapping; its keys and values are unchecked."""
    # Compare the type first, because isinstance() with an abstract base class is ten times slower.
    return type(value) is dict or isinstance(value, Mapping)


def is_sequence(value: object) -> TypeGuard[Sequence[object]]:
    """Return True for a list or tuple."""
    return isinstance(value, list | tuple)


def is_list(value: object) -> TypeGuard[list[object]]:
    """Return True for a list."""
    return isinstance(value, list)


class JsonText(str):
    """A string of JSON text; control sequences in it are neutralised with JSON escapes."""

    __slots__ = ()


# The values are checked before encoding, so they contain no circular references.
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False).encode


def to_json(value: Json) -> str:
    """Serialize a JSON value, already validated by :func:`checked`, to one line without escaping non-ASCII text.

    The separators are ``", "`` and ``": "``.

    Args:
        value: A value that :func:`checked` returned.
    """
    return _encode(value)


def dump(value: Json) -> JsonText:
    """Serialize a value returned by :func:`checked`, and return the JSON as :class:`JsonText`."""
    return JsonText(to_json(value))


def checked(value: object, where: str, error: type[LazyPromptError]) -> Json:
    """Validate a JSON value and return a deep copy; tuples become lists.

    Args:
        value: The value.
        where: The value's name in the error message, such as ``tools[0].parameters``.
        error: The exception class to raise.

    Raises:
        LazyPromptError: The value is not JSON; the raised exception is an instance of the class ``error``.
    """
    try:
        return _copied(value, 0)
    except _NoJsonError as fault:
        raise error(f"{where}{''.join(reversed(fault.path))} {fault.reason}") from fault


def checked_object(value: Mapping[str, object], where: str, error: type[LazyPromptError]) -> JsonObject:
    """Validate a mapping with :func:`checked` and return a deep copy."""
    try:
        return _copied_object(value, 0)
    except _NoJsonError as fault:
        raise error(f"{where}{''.join(reversed(fault.path))} {fault.reason}") from fault


class _NoJsonError(Exception):
    """An error for a value that can't be serialized as JSON.

    Attributes:
        reason: The rule that the value breaks.
        path: The keys and indices that lead to the value, innermost first.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.path: list[str] = []


def _copied(value: object, depth: int) -> Json:  # noqa: C901 - one branch for each kind of value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        if value.bit_length() > MAX_INT_BITS:
            raise _NoJsonError(f"is an integer of {value.bit_length()} bits; the limit is {MAX_INT_BITS} bits")
        # Convert an IntEnum member, whose class may override methods, to a plain int.
        return value if type(value) is int else int.__int__(value)
    if isinstance(value, float):
        if not isfinite(value):
            raise _NoJsonError(f"is {value}, which is not valid JSON; use None or a string")
        return value if type(value) is float else float.__float__(value)
    if depth >= MAX_DEPTH:
        raise _NoJsonError(f"is nested deeper than {MAX_DEPTH} levels, or contains itself")
    if is_sequence(value):
        items: list[Json] = []
        try:
            for item in value:
                items.append(_copied(item, depth + 1))  # noqa: PERF401 - the list's length is used in the error
        except _NoJsonError as fault:
            fault.path.append(f"[{len(items)}]")
            raise
        return items
    if is_mapping(value):
        return _copied_object(value, depth)
    raise _NoJsonError(f"has type {type(value).__name__}, which is not a JSON value")


def _copied_object(value: Mapping[str, object], depth: int) -> JsonObject:
    copy: JsonObject = {}
    for key, item in value.items():
        name = key if type(key) is str and key.isascii() else _key(key)
        # ASCII text is the most common value, so handle it without a function call.
        if type(item) is str and item.isascii():
            copy[name] = item
            continue
        try:
            copy[name] = _copied(item, depth + 1)
        except _NoJsonError as fault:
            fault.path.append(f".{name}")
            raise
    return copy


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise _NoJsonError(f"has the key {key!r} of type {type(key).__name__}; keys in JSON objects must be strings")
    return _text(key)


def _text(text: str) -> str:
    if not text.isascii() and (surrogate := _surrogate(text)):
        raise _NoJsonError(surrogate)
    return text if type(text) is str else str.__str__(text)


def well_formed(text: str, where: str, error: type[LazyPromptError]) -> str:
    """Check that a text can be encoded as UTF-8, and return the text unchanged.

    Args:
        text: The text.
        where: The text's name in the error message.
        error: The exception class to raise.

    Raises:
        LazyPromptError: The text contains a lone surrogate; the raised exception is an instance of the class ``error``.
    """
    if not text.isascii() and (surrogate := _surrogate(text)):
        raise error(f"{where} {surrogate}")
    return text


def is_well_formed(text: str) -> bool:
    """Return True if a text contains no lone surrogates, so that it can be encoded as UTF-8."""
    if text.isascii():
        return True
    try:
        _ = text.encode() if len(text) < _SHORT else text.encode("utf-32")
    except UnicodeEncodeError:
        return False
    return True


def _surrogate(text: str) -> str:
    """Describe the first lone surrogate in a text, or return an empty string."""
    if is_well_formed(text):
        return ""
    at, half = next((at, each) for at, each in enumerate(text) if "\ud800" <= each <= "\udfff")
    return (
        f"has a lone surrogate (\\u{ord(half):04x}) at index {at}, which cannot be encoded; the text was probably "
        "truncated or decoded incorrectly"
    )


def checked_text(value: object, where: str, error: type[LazyPromptError]) -> str | None:
    """Check that a value is None or text that can be encoded as UTF-8, and return the value.

    Args:
        value: The value to check.
        where: The value's name in the error message.
        error: The exception class to raise.

    Raises:
        LazyPromptError: The value is not text or can't be encoded as UTF-8; the raised exception is an instance of the
            class ``error``.
    """
    if value is None:
        return None
    if not isinstance(value, str):
        raise error(f"{where} must be text, not {type(value).__name__}")
    return well_formed(value, where, error)


def fresh(value: JsonObject) -> JsonObject:
    """Return a deep copy of an object that :func:`checked_object` returned."""
    copy = value.copy()
    for key, item in value.items():
        if type(item) in _NESTED:
            copy[key] = fresh_json(item)
    return copy


def json_object(value: Json) -> JsonObject:
    """Return a JSON object unchanged, and an empty dict for any other value."""
    return value if isinstance(value, dict) else {}


_NESTED = frozenset((dict, list))


def fresh_json(value: Json) -> Json:
    """Return a deep copy of a checked JSON value."""
    if isinstance(value, dict):
        return fresh(value)
    return [fresh_json(item) if type(item) in _NESTED else item for item in value] if isinstance(value, list) else value


def texts_in(value: object) -> list[str]:
    """Return every string in plain data, including dict keys."""
    texts: list[str] = []
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            texts.append(item)
        elif is_dict(item):
            waiting += (*item, *item.values())
        elif is_sequence(item):
            waiting += item
    return texts
