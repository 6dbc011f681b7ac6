"""The JSON Schema of front matters, and a front matter's fields as JSON."""

import json
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # it has no stubs of its own

from lazyprompt.files.check.check import schema_text
from lazyprompt.files.yaml_nodes import SourceText, plain, split

SCHEMA: Any = json.loads(schema_text())
VALIDATOR: Any = jsonschema.Draft7Validator(SCHEMA)


def fields_of(text: str) -> dict[str, Any]:
    return {name: plain(node) for name, node in (split(SourceText(text, "p")).fields or {}).items()}
