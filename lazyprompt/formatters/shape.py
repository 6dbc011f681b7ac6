"""The shape of JSON, as small checks put together: what is wrong, where, and what to do.

A check takes a value and gives back its faults, none where it is fine. Where a fault is, is put together on the way
back, so that a value without faults costs no paths.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

from lazyprompt._base.json import MAX_INT_BITS
from lazyprompt._base.roles import ROLES
from lazyprompt.errors import did_you_mean

Path: TypeAlias = tuple[str | int, ...]
# Where it is, what is wrong, and what to do.
Fault: TypeAlias = tuple[Path, str, str]
Check: TypeAlias = Callable[[Any], Sequence[Fault]]

FINE: Sequence[Fault] = ()


def shown(path: Path) -> str:
    """A path as one writes it: ``messages[3].content[0]``."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def _named(value: object) -> str:
    if value is None or isinstance(value, bool):
        return str(value)
    kind = type(value).__name__
    # Not every integer can be written down.
    short = isinstance(value, str | float) or (isinstance(value, int) and value.bit_length() < MAX_INT_BITS)
    return f"the {kind} {value!r:.60}" if short else f"a {kind}"


def _wrong(value: object, expected: str) -> Sequence[Fault]:
    return [((), f"is {_named(value)}", f"give {expected}")]


def anything(_: object) -> Sequence[Fault]:
    """Any value."""
    return FINE


def text(value: object) -> Sequence[Fault]:
    """A text."""
    return FINE if type(value) is str else _wrong(value, "text")


def truth(value: object) -> Sequence[Fault]:
    """True or false."""
    return FINE if isinstance(value, bool) else _wrong(value, "true or false")


def mapping(value: object) -> Sequence[Fault]:
    """An object with any keys."""
    return FINE if isinstance(value, dict) else _wrong(value, "a JSON object")


def base64(value: object) -> Sequence[Fault]:
    """Bytes as base64 text."""
    fine = isinstance(value, bytes) or (type(value) is str and _BASE64.fullmatch(value) and len(value) % 4 == 0)
    return FINE if fine else _wrong(value, "base64")


_BASE64 = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")


def one_of(*known: str) -> Check:
    """One of some texts."""

    def check(value: object) -> Sequence[Fault]:
        if value in known:
            return FINE
        near = did_you_mean(value, known) if isinstance(value, str) else ""
        return _wrong(value, f"{' or '.join(map(repr, known))}{near}")

    return check


def nullable(inner: Check) -> Check:
    """What a check takes, or null."""
    return lambda value: FINE if value is None else inner(value)


def listed(item: Check, least: int = 0) -> Check:
    """Return the check of a list of items."""

    def check(value: object) -> Sequence[Fault]:
        if not isinstance(value, list):
            return _wrong(value, "a list")
        items = cast("list[object]", value)
        if len(items) < least:
            return [((), "is empty", f"give at least {least}, or leave the key out")]
        return [fault for at, each in enumerate(items) for fault in _at(at, item(each))]

    return check


def text_or(other: Check) -> Check:
    """A text, or what a check takes."""
    return lambda value: FINE if type(value) is str else other(value)


def fields(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None, *, more: bool = False) -> Check:
    """An object with known keys.

    Args:
        required: The keys that must be there.
        optional: The keys that may be.
        more: Whether others may be too.
    """
    checks = {**required, **(optional or {})}

    def check(value: object) -> Sequence[Fault]:
        if not isinstance(value, dict):
            return _wrong(value, "a JSON object")
        given = cast("dict[str, object]", value)
        faults: list[Fault] = []
        for key, each in given.items():
            rule = checks.get(key)
            rule = checks.get(key, anything if more else None)
            if rule is None:
                faults.append(((str(key),), "is no known key", f"remove it{did_you_mean(str(key), checks)}"))
            elif found := rule(each):
                faults += _at(key, found)
        return [*faults, *(((key,), "is missing", "add it") for key in required if key not in given)]

    return check


def tagged(key: str, kinds: Mapping[str, Check], other: Check | None = None, default: str | None = None) -> Check:
    """An object whose shape another of its values tells, as its ``type`` or ``role``.

    Args:
        key: The key of that value.
        kinds: The shapes by that value.
        other: The shape of all others; without it, there are none.
        default: What no value stands for.
    """

    def check(value: object) -> Sequence[Fault]:
        if not isinstance(value, dict):
            return _wrong(value, "a JSON object")
        tag = cast("dict[str, object]", value).get(key)
        if tag is None:
            tag = default
        rule = kinds.get(tag, other) if isinstance(tag, str) else None
        return _at(key, one_of(*kinds)(tag)) if rule is None else rule(cast("object", value))

    return check


def _at(step: str | int, faults: Iterable[Fault]) -> list[Fault]:
    return [((step, *path), what, fix) for path, what, fix in faults]


def text_of_json(value: object) -> str:
    """Return a JSON value that is a text; nothing of anything else, which the shape refuses."""
    return value if isinstance(value, str) else ""


def role_of_json(value: object) -> str:
    """Return a role that is known; ``nobody`` for any other, which the shape refuses."""
    return value if isinstance(value, str) and value in ROLES else "nobody"


def name_of_json(value: object) -> str | None:
    """Return a JSON value that is a text; None for anything else."""
    return value if isinstance(value, str) else None


def named(places: Iterable[tuple[Path, Mapping[str, Any]]]) -> Iterator[tuple[Path, str]]:
    """Return the names of the objects at some places; one that is missing or no text the shape refuses."""
    return (((*path, "name"), item["name"]) for path, item in places if isinstance(item.get("name"), str))


def objects(value: object) -> list[tuple[int, dict[str, Any]]]:
    """Return the objects in a list, each with its index; nothing of anything else."""
    if not isinstance(value, list):
        return []
    items = cast("list[dict[str, Any]]", value)
    return [(at, item) for at, item in enumerate(items) if isinstance(cast("object", item), dict)]
