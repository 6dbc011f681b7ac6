"""The JSON Schema of the front matter accepts and refuses the same files as the reader."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # it has no stubs of its own
import pytest

from lazyprompt.errors import PromptFileError
from lazyprompt.files.check.subject import Subject
from lazyprompt.files.prompty import Prompty
from lazyprompt.files.properties import ALSO_CALLED, FIELDS_OF_PROPERTY, KINDS_OF_PROPERTY
from lazyprompt.files.spec import ENGINES, FIELDS, FIELDS_OF_MODEL, FIELDS_OF_TOOL, OPTIONS, OTHERS
from support.front_matter import SCHEMA, VALIDATOR, fields_of
from support.paths import LIBRARY

# The JSON Schema types of the Python types of options.
TYPES: dict[type, str] = {int: "integer", float: "number", list: "array", bool: "boolean", str: "string"}


def test_schema_is_a_valid_json_schema() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)


@pytest.mark.parametrize(
    ("part", "fields"),
    [
        (SCHEMA, FIELDS),
        (SCHEMA["definitions"]["property"], FIELDS_OF_PROPERTY),
        (SCHEMA["definitions"]["model"], FIELDS_OF_MODEL),
        (SCHEMA["definitions"]["options"], (*OPTIONS, OTHERS)),
        (SCHEMA["definitions"]["tool"], FIELDS_OF_TOOL),
        (SCHEMA["definitions"]["template"], ("format", "parser")),
    ],
)
def test_schema_lists_the_fields_of_the_reader(part: Any, fields: Iterable[str]) -> None:
    assert [*part["properties"]] == [*fields]


def test_schema_lists_the_kinds_formats_and_option_types_of_the_reader() -> None:
    kinds, definitions = [*KINDS_OF_PROPERTY, *ALSO_CALLED], SCHEMA["definitions"]
    assert definitions["property"]["properties"]["kind"]["enum"] == [*kinds, None]
    assert definitions["property"]["properties"]["items"]["anyOf"][0]["enum"] == kinds
    assert definitions["choices"]["items"]["anyOf"][0]["enum"] == kinds
    alone, by_kind = definitions["template"]["properties"]["format"]["anyOf"]
    assert alone["enum"] == by_kind["properties"]["kind"]["enum"] == [*ENGINES, None]
    options = definitions["options"]["properties"]
    for name, types in OPTIONS.items():
        # A single stop sequence may be text instead of a list.
        wanted = [TYPES[each] for each in types] + (["string"] if name == "stopSequences" else [])
        assert options[name]["anyOf"][0]["type"] == [*wanted, "null"]


def test_each_schema_field_has_a_description() -> None:
    parts = [SCHEMA, *(SCHEMA["definitions"][name] for name in ("property", "model", "options", "tool", "template"))]
    descriptions = [field["description"] for part in parts for field in part["properties"].values()]
    assert len(descriptions) > 40
    assert all(len(each) > 9 for each in descriptions)


VALID_FIELDS = [
    "",
    "name: a\ndescription: 7",
    "model: gpt-4o",
    "model: {id: gpt-4o, provider: openai, options: {temperature: 0.5, stopSequences: x, mine: 1}}",
    "model: ${file:model.json}",
    "model: {id: a, options: {temperature: '${params:t}'}}",
    "inputs:\n  - name: a\n  - {name: b, kind: array, items: string}",
    "inputs:\n  - {name: c, kind: union, oneOf: [string, integer]}",
    "inputs: {a: Ada, b: 7, c: {kind: integer, default: 7}, d: {free: 1}, e: null}",
    "inputs: {a: {kind: object, properties: [{name: x, required: true}]}}",
    "outputs:\n  - {name: a, kind: boolean, nullable: true, description: x}",
    "tools:\n  - {name: t, parameters: [{name: a}], bindings: {a: b, c: {input: d}}, strict: true}",
    "tools:\n  t: {kind: mcp, serverName: x}",
    "tools:\n  - {name: t, parameters: {type: object, properties: {a: {type: string}}}}",
    "template: {format: {kind: mustache}, parser: prompty}",
    "template: {format: jinja2}",
    "anything: [1, 2]\nmetadata: {a: 1}",
]

INVALID_FIELDS = [
    "name: [a]",
    "model: 7",
    "model: {id: a, connection: x}",
    "inputs: 7",
    "inputs:\n  - kind: string",
    "inputs:\n  - {name: a, kind: strin}",
    "inputs:\n  - {name: a, requird: true}",
    "inputs:\n  - {name: a, required: 'yes'}",
    "outputs:\n  - {name: a, enumValues: x}",
    "tools:\n  - {kind: function}",
    "tools:\n  - {name: a, strict: x}",
    "tools:\n  - {name: a, bindings: {a: 7}}",
    "tools: 7",
    "metadata: 7",
    "template: jinja2",
    "template: {format: jinja}",
]


@pytest.mark.parametrize("fields", VALID_FIELDS)
def test_valid_front_matter_is_accepted_by_the_schema_and_the_reader(fields: str, tmp_path: Path) -> None:
    text = f"---\n{fields}\n---\nHi."
    VALIDATOR.validate(fields_of(text))
    (tmp_path / "model.json").write_text('{"id": "gpt-4o"}', encoding="utf-8")
    Prompty.loads(text, base_dir=tmp_path, params={"t": 1}, dialect="v2")


@pytest.mark.parametrize("fields", INVALID_FIELDS)
def test_invalid_front_matter_is_refused_by_the_schema_and_the_reader(fields: str) -> None:
    text = f"---\n{fields}\n---\nHi."
    assert not VALIDATOR.is_valid(fields_of(text))
    with pytest.raises(PromptFileError):
        Prompty.loads(text, dialect="v2")


@pytest.mark.parametrize("path", sorted(LIBRARY.rglob("*.prompty")), ids=lambda path: path.name)
def test_example_library_matches_the_schema(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    # Parsed like `lazyprompt check` does, which needs no environment variables and params.
    made = Subject(text, str(path), path.parent, (LIBRARY,))
    # The v2 form of a file in another dialect is valid.
    VALIDATOR.validate(fields_of(text) if made.dialect.name == "v2" else made.spec.to_dict())
