"""Checks of the shape of JSON, combined from small functions, and the views of a payload that the validator reads.

A check is a function from a value to its faults: path, fault and remedy. Paths are built only when there is a fault.
Most checks are written in a short form: ``{"name": "text", "id?": "text|null", "parts": [{"text": "text"}]}``.
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
# A fault in a payload: its path, the problem, and what to do.
Fault: TypeAlias = tuple[Path, str, str]
Check: TypeAlias = Callable[[Any], Sequence[Fault]]
# A check, or its short form: a name in _CHECKS, with "|null" to accept null; the fields of an object, with "?" after
# optional keys and the key "..." to accept unknown keys; or a list with the form of its items.
Spec: TypeAlias = "Check | str | Mapping[str, Any] | list[Any]"

FINE: Sequence[Fault] = ()


def path_text(path: Path) -> str:
    """Return a path as text, such as ``messages[3].content[0]``."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def _describe(value: object) -> str:
    if value is None or isinstance(value, bool):
        return str(value)
    kind = type(value).__name__
    # Python refuses to write very long integers.
    short = isinstance(value, str | float) or (isinstance(value, int) and value.bit_length() < MAX_INT_BITS)
    return f"the {kind} {value!r:.60}" if short else f"a {kind}"


def _wrong(value: object, expected: str) -> Sequence[Fault]:
    return [((), f"is {_describe(value)}", f"give {expected}")]


def text(value: object) -> Sequence[Fault]:
    """Check a text."""
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
    """Build a check from its short form."""
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
    """Build a check of a text or a list of parts.

    Args:
        kinds: The shapes of parts, by their ``type``.
        least: The smallest number of parts.
        other: The shape of parts of other types; None to refuse them.
    """
    return text_or(list_of(tagged_object("type", kinds, other), least))


def new_kind(kinds: Mapping[str, Spec]) -> Check:
    """Build a check of a part of an unknown type, which a new release of the provider may accept.

    Args:
        kinds: The types that the provider accepts; known types of other providers are refused.
    """
    known = one_of(*kinds)

    def check(value: object) -> Sequence[Fault]:
        kind = fields_of(value).get("type")
        return _at("type", known(kind)) if kind in PART_TYPES else FINE

    return check


def one_of(*known: str) -> Check:
    """Build a check of a text with one of these values."""

    def check(value: object) -> Sequence[Fault]:
        if value in known:
            return FINE
        near = did_you_mean(value, known) if isinstance(value, str) else ""
        return _wrong(value, f"{' or '.join(map(repr, known))}{near}")

    return check


def nullable(inner: Spec) -> Check:
    """Build a check that accepts null."""
    rule = check_of(inner)
    return lambda value: FINE if value is None else rule(value)


def list_of(item: Spec, least: int = 0) -> Check:
    """Build a check of a list of items."""
    rule = check_of(item)

    def check(value: object) -> Sequence[Fault]:
        if not is_list(value):
            return _wrong(value, "a list")
        if len(value) < least:
            return [((), "is empty", f"give at least {least}, or leave the key out")]
        return [fault for at, each in enumerate(value) for fault in _at(at, rule(each))]

    return check


def text_or(other: Spec) -> Check:
    """Build a check that also accepts text."""
    rule = check_of(other)
    return lambda value: FINE if type(value) is str else rule(value)


def fields(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None, *, more: bool = False) -> Check:
    """Build a check of an object.

    Args:
        required: The checks of required keys.
        optional: The checks of optional keys.
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
    """Build a check of an object whose shape depends on the value of one key, such as ``type`` or ``role``.

    Args:
        key: The key.
        kinds: The shapes by the value of the key, which is not among their fields.
        other: The shape for all other values; None to refuse them.
        default: The value of a missing key.
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


# The validator's view of a block: its kind, its path within the message, its text, and the tool's name. The text of a
# call or result is the id; that of a medium is the address, or ``data:`` and the MIME type. Plain tuples are fast.
Kind: TypeAlias = Literal["text", "thinking", "call", "result", "image", "audio", "video", "file", "other"]
BlockView: TypeAlias = "tuple[Kind, Path, str, str | None]"
# The validator's view of a message: its path, its role, its blocks and the speaker. The roles are those of messages,
# and prefill for the beginning of an answer that the model continues.
MessageView: TypeAlias = "tuple[Path, str, Sequence[BlockView], str | None]"


def text_of_json(value: object) -> str:
    """Return a text as it is, and an empty one for any other value, which the shape refuses."""
    return value if isinstance(value, str) else ""


def role_of_json(value: object) -> str:
    """Return a known role as it is, and ``nobody`` for any other value, which the shape refuses."""
    return value if isinstance(value, str) and value in ROLES else "nobody"


def name_of_json(value: object) -> str | None:
    """Return a text as it is, and None for any other value."""
    return value if isinstance(value, str) else None


def names_at(places: Iterable[tuple[Path, Mapping[str, Any]]]) -> Iterator[tuple[Path, str]]:
    """Yield the paths and values of the objects' names; the shape refuses other values than text."""
    return (((*path, "name"), item["name"]) for path, item in places if isinstance(item.get("name"), str))


def objects(value: object) -> list[tuple[int, dict[str, Any]]]:
    """Return the objects in a list with their indices; an empty list for any other value."""
    return [(at, item) for at, item in enumerate(value) if is_dict(item)] if is_list(value) else []
