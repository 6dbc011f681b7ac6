"""Composable checks for the structure of JSON values, and the views of a payload that the validator reads.

A check is a function that takes a value and returns its faults, each with a path, a problem and a fix. For speed, a
check builds the path of a value only if the value is invalid. Most checks use a shorthand such as
``{"name": "text", "id?": "text|null", "parts": ["object"]}``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

from lazyprompt._base.client_objects import fields_of
from lazyprompt._base.json import MAX_INT_BITS, is_dict, is_list
from lazyprompt._base.roles import ROLES
from lazyprompt.errors import did_you_mean
from lazyprompt.messages.read_parts import PART_TYPES

Path: TypeAlias = tuple[str | int, ...]
# A fault in a payload: the path, the problem and the suggested fix.
Fault: TypeAlias = tuple[Path, str, str]
Check: TypeAlias = Callable[[Any], Sequence[Fault]]
# A check function, or a shorthand for a check: a string, a mapping or a list.
# A string names a check in ``_CHECKS``; the suffix ``|null`` also accepts null.
# A mapping describes a JSON object: a ``?`` marks an optional key, and a ``...`` key allows unknown keys.
# A list with one check describes a JSON array: the check applies to every item of the array.
Spec: TypeAlias = "Check | str | Mapping[str, Any] | list[Any]"

FINE: Sequence[Fault] = ()


def path_text(path: Path) -> str:
    """Return a path as text, such as ``messages[3].content[0]``."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def _describe(value: object) -> str:
    if value is None or isinstance(value, bool):
        return str(value)
    kind = type(value).__name__
    # Don't convert very long integers to text, because Python raises a ValueError.
    short = isinstance(value, str | float) or (isinstance(value, int) and value.bit_length() < MAX_INT_BITS)
    return f"the {kind} {value!r:.60}" if short else f"a {kind}"


def _wrong(value: object, expected: str) -> Sequence[Fault]:
    return [((), f"is {_describe(value)}", f"use {expected}")]


def text(value: object) -> Sequence[Fault]:
    """Check that a value is a string."""
    return FINE if type(value) is str else _wrong(value, "text")


def _base64(value: object) -> Sequence[Fault]:
    fine = isinstance(value, bytes) or (type(value) is str and _BASE64.fullmatch(value) and len(value) % 4 == 0)
    return FINE if fine else _wrong(value, "base64")


_BASE64 = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")
_CHECKS: dict[str, Check] = {
    "any": lambda _: FINE,
    "text": text,
    "bool": lambda value: FINE if isinstance(value, bool) else _wrong(value, "true or false"),
    "object": lambda value: FINE if isinstance(value, dict) else _wrong(value, "a JSON object"),
    "base64": _base64,
}


def check_of(spec: Spec) -> Check:
    """Build a function that checks JSON values from a shorthand such as ``{"name": "text"}``."""
    if isinstance(spec, str):
        name = spec.removesuffix("|null")
        return _CHECKS[name] if name == spec else nullable(_CHECKS[name])
    if isinstance(spec, list):
        return list_of(cast("list[Spec]", spec)[0])
    if not isinstance(spec, Mapping):
        return spec
    forms = cast("Mapping[str, Spec]", spec)
    required = {key: check_of(each) for key, each in forms.items() if key[-1] not in "?."}
    optional = {key[:-1]: check_of(each) for key, each in forms.items() if key[-1] == "?"}
    return fields(required, optional, more="..." in forms)


def parts_of(kinds: Mapping[str, Spec], least: int = 1, other: Spec | None = None) -> Check:
    """Build a check that a value is either a string or a list of parts.

    Args:
        kinds: A mapping from part types to their shapes.
        least: The minimum number of parts in a list.
        other: The shape of parts with an unlisted type; None to reject such parts.
    """
    return text_or(list_of(tagged_object("type", kinds, other), least))


def new_kind(kinds: Mapping[str, Spec]) -> Check:
    """Build a check that accepts a part with an unknown type, which may come from a newer release of the API.

    Args:
        kinds: The part types that the provider accepts; part types that only other providers accept are rejected.
    """
    known = one_of(*kinds)

    def check(value: object) -> Sequence[Fault]:
        kind = fields_of(value).get("type")
        return _at("type", known(kind)) if kind in PART_TYPES else FINE

    return check


def one_of(*known: str) -> Check:
    """Build a check for a string that must equal one of the known values."""

    def check(value: object) -> Sequence[Fault]:
        if value in known:
            return FINE
        near = did_you_mean(value, known) if isinstance(value, str) else ""
        return _wrong(value, f"{' or '.join(map(repr, known))}{near}")

    return check


def nullable(inner: Spec) -> Check:
    """Build a check that accepts null, and any other value that the given check accepts."""
    rule = check_of(inner)
    return lambda value: FINE if value is None else rule(value)


def list_of(item: Spec, least: int = 0) -> Check:
    """Build a check for a list with at least ``least`` items."""
    rule = check_of(item)

    def check(value: object) -> Sequence[Fault]:
        if not is_list(value):
            return _wrong(value, "a list")
        if len(value) < least:
            return [((), "is empty", f"add at least {least}, or remove the key")]
        return [fault for at, each in enumerate(value) for fault in _at(at, rule(each))]

    return check


def text_or(other: Spec) -> Check:
    """Build a check that accepts any string, and any other value that the given check accepts."""
    rule = check_of(other)
    return lambda value: FINE if type(value) is str else rule(value)


def fields(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None, *, more: bool = False) -> Check:
    """Build a check for an object with the given fields.

    Args:
        required: The checks for required keys.
        optional: The checks for optional keys.
        more: True to accept unknown keys.
    """
    checks = {**required, **(optional or {})}

    def check(value: object) -> Sequence[Fault]:
        if not is_dict(value):
            return _wrong(value, "a JSON object")
        faults: list[Fault] = []
        for key, each in value.items():
            rule = checks.get(key, _CHECKS["any"] if more else None)
            if rule is None:
                faults.append(((str(key),), "is an unknown key", f"remove it{did_you_mean(str(key), checks)}"))
            elif found := rule(each):
                faults += _at(key, found)
        return [*faults, *(((key,), "is missing", "add it") for key in required if key not in value)]

    return check


def tagged_object(key: str, kinds: Mapping[str, Spec], other: Spec | None = None, default: str | None = None) -> Check:
    """Build a check for an object whose shape depends on the value of one key, such as ``type`` or ``role``.

    Args:
        key: The key that determines the shape.
        kinds: A mapping from each value of ``key`` to the shape of the object's other keys.
        other: The shape of an object whose value of ``key`` is not in ``kinds``; None to reject such objects.
        default: The value to assume if the object doesn't contain ``key``.
    """
    checks = {
        kind: check_of({f"{key}?": "any", **spec} if isinstance(spec, Mapping) else spec)
        for kind, spec in kinds.items()
    }
    rest = None if other is None else check_of(other)

    def check(value: object) -> Sequence[Fault]:
        if not is_dict(value):
            return _wrong(value, "a JSON object")
        tag = value.get(key)
        if tag is None:
            tag = default
        rule = checks.get(tag, rest) if isinstance(tag, str) else None
        return _at(key, one_of(*kinds)(tag)) if rule is None else rule(value)

    return check


def _at(step: str | int, faults: Iterable[Fault]) -> list[Fault]:
    return [((step, *path), what, fix) for path, what, fix in faults]


# The role of a message whose own role is unknown. The shape check reports the unknown role.
UNKNOWN_ROLE = "nobody"
# A content block as a tuple for validation: the kind, the path within the message, a text and the tool name.
# The text of a tool call's or tool result's tuple is the call id.
# The text of a media block's tuple is the URL, or ``data:`` followed by the MIME type.
Kind: TypeAlias = Literal["text", "thinking", "call", "result", "image", "audio", "video", "file", "other"]
BlockView: TypeAlias = "tuple[Kind, Path, str, str | None]"
# A message as a tuple for validation: the path in the payload, the role, the blocks and the speaker's name.
# A partial reply that the model must continue has the role ``prefill``.
MessageView: TypeAlias = "tuple[Path, str, Sequence[BlockView], str | None]"


def text_of_json(value: object) -> str:
    """Return a string unchanged; return an empty string for any other value, because the shape check reports it."""
    return value if isinstance(value, str) else ""


def role_of_json(value: object) -> str:
    """Return a known role unchanged, and any other value as :data:`UNKNOWN_ROLE`."""
    return value if isinstance(value, str) and value in ROLES else UNKNOWN_ROLE


def name_of_json(value: object) -> str | None:
    """Return a string unchanged, or None for any other value."""
    return value if isinstance(value, str) else None


def names_at(places: Iterable[tuple[Path, Mapping[str, Any]]]) -> Iterator[tuple[Path, str]]:
    """Yield the path and value of each object's ``name``, skipping names that are not strings."""
    return (((*path, "name"), item["name"]) for path, item in places if isinstance(item.get("name"), str))


def objects(value: object) -> list[tuple[int, dict[str, Any]]]:
    """Return the objects in a list with their indices; return an empty list if the value is not a list."""
    return [(at, item) for at, item in enumerate(value) if is_dict(item)] if is_list(value) else []
