"""Which JSON schemas Anthropic's structured outputs can keep to.

Source: the guide "Structured outputs", "JSON Schema limitations"; ``transform_schema`` of the official client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lazyprompt._base.json import JsonObject

_DEFINITIONS = "#/$defs/"
_CHOICES = ("anyOf", "oneOf", "allOf")
_TYPES = frozenset({"object", "array", "string", "integer", "number", "boolean", "null"})


def expressible(schema: JsonObject) -> bool:
    """Whether the API takes a schema without losing more of it than bounds and patterns.

    It takes no free keys (``additionalProperties``), no recursion, no references but to ``$defs``, and each part must
    say what it is.

    Args:
        schema: The JSON schema.
    """
    definitions = _objects(schema.get("$defs"))
    fine = all(map(_says, _parts({**schema, "$defs": None}))) and all(
        _says(part) for definition in definitions.values() for part in _parts(definition)
    )
    references = {name: _references(definition) for name, definition in definitions.items()}
    known = _references({**schema, "$defs": None}).union(*references.values()) <= definitions.keys()
    return fine and known and _ends(references)


def _objects(value: object) -> dict[str, JsonObject]:
    """The schemas in a dict of schemas."""
    given = cast("JsonObject", value) if isinstance(value, dict) else {}
    return {name: item for name, item in given.items() if isinstance(item, dict)}


def _parts(schema: JsonObject) -> Iterator[JsonObject]:
    """A schema and all below it, but for its definitions."""
    yield schema
    below: list[object] = [*_objects(schema.get("properties")).values(), schema.get("items")]
    for key in _CHOICES:
        variants = schema.get(key)
        below += variants if isinstance(variants, list) else []
    for part in below:
        if isinstance(part, dict):
            yield from _parts(cast("JsonObject", part))


def _says(schema: JsonObject) -> bool:
    """Whether a schema says what it is, and has no keys but those it names."""
    free = schema.get("additionalProperties") not in (None, False)
    kind = schema.get("type")
    known = isinstance(kind, str) and kind in _TYPES
    return not free and (known or any(key in schema for key in (*_CHOICES, "$ref", "const", "enum")))


def _references(schema: JsonObject) -> set[str]:
    """The definitions a schema refers to; other references are no name of one."""
    given = (part.get("$ref") for part in _parts(schema))
    return {reference.removeprefix(_DEFINITIONS) for reference in given if isinstance(reference, str)}


def _ends(references: dict[str, set[str]]) -> bool:
    """Whether no definition leads back to itself."""
    left = dict(references)
    while left:
        ended = {name for name, targets in left.items() if not targets & left.keys()}
        if not ended:
            return False
        left = {name: targets for name, targets in left.items() if name not in ended}
    return True
