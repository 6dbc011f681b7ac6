"""Which JSON schemas OpenAI's strict mode takes.

Source: the guide "Structured model outputs", "Supported schemas".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from lazyprompt._base.json import JsonObject

_REFUSED = frozenset(
    {
        "allOf",
        "oneOf",
        "not",
        "if",
        "then",
        "else",
        "dependentRequired",
        "dependentSchemas",
        "patternProperties",
        "default",
    }
)


def is_strict(schema: JsonObject) -> bool:
    """Whether a schema keeps the rules of the strict mode: an object whose keys are all required, and no others."""
    return schema.get("type") == "object" and _keeps(schema)


def _keeps(schema: object) -> bool:
    if not isinstance(schema, dict):
        return False
    fields = cast("dict[str, object]", schema)
    if _REFUSED & fields.keys():
        return False
    properties = _mapping(fields.get("properties"))
    kinds = fields.get("type")
    if "properties" in fields or "object" in (kinds if isinstance(kinds, list) else [kinds]):
        required = fields.get("required")
        named = set(cast("list[str]", required)) if isinstance(required, list) else set[str]()
        if fields.get("additionalProperties") is not False or named != properties.keys():
            return False
    below = [
        *properties.values(),
        *_mapping(fields.get("$defs")).values(),
        *_mapping(fields.get("definitions")).values(),
    ]
    below += cast("list[object]", fields.get("anyOf") or [])
    below += [fields["items"]] if "items" in fields else []
    return all(map(_keeps, below))


def _mapping(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}
