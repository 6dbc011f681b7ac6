"""The shape of JSON, as small checks put together; and the view of a payload that the rules judge.

A check takes a value and returns its faults, none where it is fine: the place, what is wrong, and what to do. Places
are put together on the way back, so that a value without faults costs no paths. Most checks are written in a short
form: ``{"name": "text", "id?": "text|null", "parts": [{"text": "text"}]}``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

from lazyprompt._base.json import MAX_INT_BITS
from lazyprompt._base.roles import ROLES
from lazyprompt.errors import did_you_mean
from lazyprompt.messages.read_parts import PART_TYPES

Path: TypeAlias = tuple[str | int, ...]
# The place, what is wrong, and what to do.
Fault: TypeAlias = tuple[Path, str, str]
Check: TypeAlias = Callable[[Any], Sequence[Fault]]
# A check, or its short form: its name, with "|null" where null will do; the fields of an object, with "?" behind the
# keys that may be missing, and the key "..." where others may be there; a list of the form of its items.
Spec: TypeAlias = "Check | str | Mapping[str, Any] | list[Any]"

FINE: Sequence[Fault] = ()


def shown(path: Path) -> str:
    """Write a path, as ``messages[3].content[0]``."""
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
    """Return the check of a short form."""
    if isinstance(spec, str):
        name = spec.removesuffix("|null")
        return _CHECKS[name] if name == spec else nullable(_CHECKS[name])
    if isinstance(spec, list):
        return listed(cast("list[Spec]", spec)[0])
    if not isinstance(spec, Mapping):
        return spec
    forms = cast("Mapping[str, Spec]", spec)
    required = {key: check_of(each) for key, each in forms.items() if key[-1] not in "?."}
    optional = {key[:-1]: check_of(each) for key, each in forms.items() if key[-1] == "?"}
    return fields(required, optional, more="..." in forms)


def parts_of(kinds: Mapping[str, Spec], least: int = 1, other: Spec | None = None) -> Check:
    """Return the check of a text, or of parts that name their ``type``; ``other`` is that of parts of other types."""
    return text_or(listed(tagged("type", kinds, other), least))


def new_kind(kinds: Mapping[str, Spec]) -> Check:
    """Return the check of a part of a type that no known provider has: a new release may know it.

    Args:
        kinds: The types that the provider has.
    """
    known = one_of(*kinds)

    def check(value: object) -> Sequence[Fault]:
        kind = cast("dict[str, object]", value).get("type")
        return _at("type", known(kind)) if kind in PART_TYPES else FINE

    return check


def one_of(*known: str) -> Check:
    """Return the check of one of some texts."""

    def check(value: object) -> Sequence[Fault]:
        if value in known:
            return FINE
        near = did_you_mean(value, known) if isinstance(value, str) else ""
        return _wrong(value, f"{' or '.join(map(repr, known))}{near}")

    return check


def nullable(inner: Spec) -> Check:
    """Return the check of null, or of another value."""
    rule = check_of(inner)
    return lambda value: FINE if value is None else rule(value)


def listed(item: Spec, least: int = 0) -> Check:
    """Return the check of a list of items."""
    rule = check_of(item)

    def check(value: object) -> Sequence[Fault]:
        if not isinstance(value, list):
            return _wrong(value, "a list")
        items = cast("list[object]", value)
        if len(items) < least:
            return [((), "is empty", f"give at least {least}, or leave the key out")]
        return [fault for at, each in enumerate(items) for fault in _at(at, rule(each))]

    return check


def text_or(other: Spec) -> Check:
    """Return the check of a text, or of another value."""
    rule = check_of(other)
    return lambda value: FINE if type(value) is str else rule(value)


def fields(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None, *, more: bool = False) -> Check:
    """Return the check of an object with known keys.

    Args:
        required: The keys that must be there.
        optional: The keys that may be.
        more: True if others may be too.
    """
    checks = {**required, **(optional or {})}

    def check(value: object) -> Sequence[Fault]:
        if not isinstance(value, dict):
            return _wrong(value, "a JSON object")
        given = cast("dict[str, object]", value)
        faults: list[Fault] = []
        for key, each in given.items():
            rule = checks.get(key, _CHECKS["any"] if more else None)
            if rule is None:
                faults.append(((str(key),), "is no known key", f"remove it{did_you_mean(str(key), checks)}"))
            elif found := rule(each):
                faults += _at(key, found)
        return [*faults, *(((key,), "is missing", "add it") for key in required if key not in given)]

    return check


def tagged(key: str, kinds: Mapping[str, Spec], other: Spec | None = None, default: str | None = None) -> Check:
    """Return the check of an object whose shape one of its values tells, as its ``type`` or ``role``.

    Args:
        key: The key of that value.
        kinds: The shapes by that value; fields need not name the key.
        other: The shape of all others; without it, there are none.
        default: What no value stands for.
    """
    checks = {
        kind: check_of({f"{key}?": "any", **spec} if isinstance(spec, Mapping) else spec)
        for kind, spec in kinds.items()
    }
    rest = None if other is None else check_of(other)

    def check(value: object) -> Sequence[Fault]:
        if not isinstance(value, dict):
            return _wrong(value, "a JSON object")
        tag = cast("dict[str, object]", value).get(key)
        if tag is None:
            tag = default
        rule = checks.get(tag, rest) if isinstance(tag, str) else None
        return _at(key, one_of(*kinds)(tag)) if rule is None else rule(cast("object", value))

    return check


def _at(step: str | int, faults: Iterable[Fault]) -> list[Fault]:
    return [((step, *path), what, fix) for path, what, fix in faults]


# A block of a payload as the rules look at it: its kind, its place within the message, its text (of a call or a result
# the id, of a medium the address, or ``data:`` and the MIME type), the name of the tool. Plain tuples: there are many.
Kind: TypeAlias = Literal["text", "thinking", "call", "result", "image", "audio", "video", "file", "other"]
Seen: TypeAlias = "tuple[Kind, Path, str, str | None]"
# A message as the rules look at it: its place, its role (system, user, assistant, tool; prefill for the beginning of an
# answer, which the model goes on with), its blocks, the speaker.
View: TypeAlias = "tuple[Path, str, Sequence[Seen], str | None]"


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
