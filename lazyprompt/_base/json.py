"""JSON values: checked, copied and written the one way this package writes them."""

from __future__ import annotations

import json
import marshal
from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, TypeAlias, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyprompt.errors import LazyPromptError

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
JsonObject: TypeAlias = "dict[str, Json]"
# A mapping that nobody has checked yet.
Fields: TypeAlias = "Mapping[str, object]"

# Deeper nesting than any schema has; well below the interpreter's recursion limit.
MAX_DEPTH = 200
# Python itself refuses to write an integer of more than 4,300 digits.
MAX_INT_BITS = 14_000


class JsonText(str):
    """Text that is JSON: control sequences in it are neutralised with JSON's own escapes."""

    __slots__ = ()


# json.dumps would make an encoder for each call, because these settings are not its defaults.
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def to_json(value: Json) -> str:
    """Write a checked JSON value, Chinese and the like left readable.

    Args:
        value: A value that :func:`checked` returned.

    Returns:
        One line of JSON with the separators ``", "`` and ``": "``.
    """
    return _encode(value)


def dump(value: Json) -> JsonText:
    """Write a value as :func:`to_json` does, as text that is known to be JSON."""
    return JsonText(to_json(value))


def checked(value: object, where: str, error: type[LazyPromptError], depth: int = 0) -> Json:
    """A deep copy of a JSON value; tuples become lists.

    Args:
        value: What was given.
        where: How the message names it, as ``tools[0].parameters``.
        error: The class to raise.
        depth: How deep in the value this is.

    Returns:
        The copy, sharing nothing mutable with the value.

    Raises:
        LazyPromptError: Of the class ``error``: something in it is no JSON.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if value.bit_length() > MAX_INT_BITS:
            raise error(f"{where} is an integer of {value.bit_length()} bits; it must have at most {MAX_INT_BITS}")
        # A plain number, not a member of an IntEnum with methods of its own.
        return value if type(value) is int else int.__int__(value)
    if isinstance(value, str):
        return well_formed(str.__str__(value), where, error)
    if isinstance(value, float):
        if not isfinite(value):
            raise error(f"{where} is {value}, which JSON does not know; use None or a string")
        return value if type(value) is float else float.__float__(value)
    if depth >= MAX_DEPTH:
        raise error(f"{where} is nested deeper than {MAX_DEPTH} levels, or holds itself")
    if isinstance(value, list | tuple):
        items = cast("Sequence[object]", value)
        return [checked(item, f"{where}[{index}]", error, depth + 1) for index, item in enumerate(items)]
    if isinstance(value, Mapping):
        return checked_object(cast("Mapping[str, object]", value), where, error, depth)
    raise error(f"{where} is a {type(value).__name__}, which is no JSON value")


def checked_object(value: Mapping[str, object], where: str, error: type[LazyPromptError], depth: int = 0) -> JsonObject:
    """The same as :func:`checked` for a mapping, whose keys must be strings."""
    copy: JsonObject = {}
    for key, item in value.items():
        if type(key) is not str or not key.isascii():
            if not isinstance(cast("object", key), str):
                raise error(
                    f"{where} has the key {key!r} of type {type(key).__name__}; keys of JSON objects are strings"
                )
            key = well_formed(str.__str__(key), where, error)  # noqa: PLW2901 - the same key, checked
        # Most values are plain text or a constant, for which no place needs to be written.
        if (type(item) is str and item.isascii()) or type(item) is bool or item is None:
            copy[key] = item
        else:
            copy[key] = checked(item, f"{where}.{key}", error, depth + 1)
    return copy


def well_formed(text: str, where: str, error: type[LazyPromptError]) -> str:
    """The text itself, if it can be written as UTF-8.

    Args:
        text: Any text.
        where: How the message names it.
        error: The class to raise.

    Returns:
        The text.

    Raises:
        LazyPromptError: Of the class ``error``: the text holds half of a surrogate pair.
    """
    if not text.isascii():
        try:
            # Of all codecs that look for lone surrogates this one is the fastest: 0.4 ns a character.
            text.encode("utf-32-le")
        except UnicodeEncodeError as fault:
            raise error(
                f"{where} has a lone surrogate (\\u{ord(text[fault.start]):04x}) at index {fault.start}, which no "
                "encoding can write; it comes from text that was cut or decoded wrongly"
            ) from fault
    return text


def checked_text(value: object, where: str, error: type[LazyPromptError]) -> str | None:
    """Text that may be left out, checked.

    Args:
        value: Text, or ``None``.
        where: How the message names it.
        error: The class to raise.

    Returns:
        The value.

    Raises:
        LazyPromptError: Of the class ``error``: it is no text, or not well formed.
    """
    if value is None:
        return None
    if not isinstance(value, str):
        raise error(f"{where} is a {type(value).__name__}, not text")
    return well_formed(value, where, error)


def fresh(value: JsonObject) -> JsonObject:
    """A deep copy of a checked JSON object, made as fast as it can be.

    Args:
        value: A value that :func:`checked_object` returned.

    Returns:
        The copy, sharing nothing mutable with the value.
    """
    for item in value.values():
        kind = type(item)
        if kind is dict or kind is list:
            copy: JsonObject = marshal.loads(marshal.dumps(value))  # noqa: S302 - bytes of our own making
            return copy
    return value.copy()
