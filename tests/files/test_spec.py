"""The fields of the front matter, and the errors of invalid fields with their places."""

import re

import pytest

from lazyprompt.errors import PromptFileError
from lazyprompt.files.spec import Spec, fits, read_spec
from lazyprompt.files.yaml_nodes import SourceText, YamlReader

TEXT = """name: 3
displayName: true
version: 1.0
metadata: {a: 1}
model: {id: m, apiType: chat, options: {seed: 1}, more: [1]}
inputs: [{name: q, kind: string}]
outputs: [{name: a, kind: integer}]
template: {format: mustache, parser: p, rows: [1]}
instructions: i
tools:
  f:
    description: d
    strict: true
    bindings: {k: q, l: {input: r}}
    parameters: {k: {kind: string}, j: {kind: integer, required: true}}
    approvalMode: never
    other: x
  g: {kind: mcp, parameters: {type: object, properties: {a: {}, k: {}}, required: [a, k]}, bindings: {k: q}}
"""
TOOLS = [
    {
        "name": "f",
        "kind": "function",
        "description": "d",
        "strict": True,
        "other": "x",
        "parameters": [{"name": "k", "kind": "string"}, {"name": "j", "kind": "integer", "required": True}],
        "bindings": {"k": {"input": "q"}, "l": {"input": "r"}},
        "approvalMode": {"kind": "never"},
    },
    {
        "name": "g",
        "kind": "mcp",
        "bindings": {"k": {"input": "q"}},
        "parameters": {"type": "object", "properties": {"a": {}, "k": {}}, "required": ["a", "k"]},
    },
]


def spec(text: str) -> Spec:
    source = SourceText(text, "a.yaml")
    node = YamlReader(source).read()
    return read_spec({} if node is None else node.fields, source)


def test_all_front_matter_fields_are_read() -> None:
    made = spec(TEXT)
    assert made.engine == "mustache"
    assert made.to_dict() == {
        "kind": "prompt",
        "name": "3",
        "displayName": "True",
        "metadata": {"version": 1.0, "a": 1},
        "model": {"id": "m", "apiType": "chat", "options": {"seed": 1}, "more": [1]},
        "inputs": [{"name": "q", "kind": "string"}],
        "outputs": [{"name": "a", "kind": "integer"}],
        "tools": TOOLS,
        "template": {"format": {"kind": "mustache"}, "parser": {"kind": "p"}, "rows": [1]},
        "instructions": "i",
    }


def test_bound_parameters_are_left_out_of_the_function_of_a_tool() -> None:
    integer = {"type": "object", "properties": {"j": {"type": "integer"}}, "required": ["j"]}
    assert [tool.function()["function"] for tool in spec(TEXT).tools] == [
        {"name": "f", "description": "d", "parameters": {**integer, "additionalProperties": False}, "strict": True},
        {"name": "g", "parameters": {"type": "object", "properties": {"a": {}}, "required": ["a"]}},
    ]


@pytest.mark.parametrize(
    ("text", "fields", "engine"),
    [
        ("{}", {}, "jinja2"),
        ("template:", {}, "jinja2"),
        ("model: m", {"model": {"id": "m"}}, "jinja2"),
        ("model: {id: 1}", {"model": {"id": "1"}}, "jinja2"),
        ("template: {format: {kind: mustache}}", {"template": {"format": {"kind": "mustache"}}}, "mustache"),
        ("template: {format: nunjucks}", {"template": {"format": {"kind": "nunjucks"}}}, "jinja2"),
        ("tools: [{name: f, bindings: }]", {"tools": [{"name": "f", "kind": "function"}]}, "jinja2"),
        ("outputs: {type: {kind: string}}", {"outputs": [{"name": "type", "kind": "string"}]}, "jinja2"),
    ],
)
def test_short_forms_of_fields_are_expanded(text: str, fields: dict[str, object], engine: str) -> None:
    assert spec(text).to_dict() == {"kind": "prompt", **fields}
    assert spec(text).engine == engine


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tools: {f: 1}", "12: tools.f must be a mapping, not a number"),
        ("tools: [1]", "9: tools[0] must be a mapping, not a number"),
        ("tools: [{name: f, kind: []}]", "25: tools[0].kind must be text, not a list"),
        ("tools: {f: {strict: 1}}", "21: tools.f.strict must be true or false"),
        ("tools: {f: {bindings: 1}}", "23: tools.f.bindings must be a mapping of parameters to inputs"),
        ("tools: {f: {bindings: {k: 1}}}", "27: tools.f.bindings.k must be the name of an input, or {input: name}"),
        ("tools: {f: {bindings: {k: {x: q}}}}", "27: tools.f.bindings.k must be the name of an input"),
        ("tools: {f: {description: []}}", "26: tools.f.description must be text, not a list"),
        ("tools: {f: {parameters: 1}}", "25: tools.f.parameters must be a list or a mapping keyed by name"),
        ("template: 1", "11: Invalid template format: template must be a mapping, not a number"),
        ("template: {format: jinja}", "20: Invalid template format 'jinja' (did you mean 'jinja2'?); the formats are"),
        ("template: {format: {kind: mustach}}", "20: Invalid template format 'mustach' (did you mean 'mustache'?)"),
        ("template: {format: 1}", "20: Invalid template format 1; the formats are jinja2, mustache, nunjucks"),
        ("model: 1", "8: model must be a mapping, not a number"),
        ("model: {connection: 1}", "21: model.connection must be a mapping, not a number"),
        ("model: {options: 1}", "18: model.options must be a mapping, not a number"),
        ("model: {id: []}", "13: model.id must be text, not a list"),
        ("metadata: 1", "11: metadata must be a mapping, not a number"),
        ("name: []", "7: name must be text, not a list"),
    ],
)
def test_invalid_field_is_an_error_at_its_place(text: str, message: str) -> None:
    with pytest.raises(PromptFileError, match="^" + re.escape(f"a.yaml:1:{message}")):
        spec(text)


@pytest.mark.parametrize(
    ("value", "kinds"),
    [
        ("1", {"integer", "float", "union"}),
        ("1.5", {"float", "union"}),
        ("[1]", {"array", "thread", "union"}),
        ("a", {"string", "union"}),
        ("", {"integer", "float", "array", "thread", "string", "union"}),
    ],
)
def test_yaml_value_fits_only_its_kinds(value: str, kinds: set[str]) -> None:
    node = YamlReader(SourceText(f"[{value}, ]" if value else "[null]", "a.yaml")).read()
    assert node is not None
    asked = ("integer", "float", "array", "thread", "string", "union")
    assert {kind for kind in asked if fits(node.parts[0], kind)} == kinds
