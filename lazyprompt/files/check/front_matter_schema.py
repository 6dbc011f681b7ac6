"""The JSON Schema of front matters, for editors: made of the tables that a front matter is read by.

It says what Prompty v2 is; fields that it does not know are let through, as a reader keeps them.
``prompty.schema.json`` in the directory above is what :func:`front_matter_schema` gives.
"""

from __future__ import annotations

import json
from copy import deepcopy
from typing import TYPE_CHECKING, Final

from lazyprompt.files.dialects.translation import OPTIONS, OTHERS
from lazyprompt.files.properties import ALSO_CALLED, FIELDS_OF_PROPERTY, KINDS_OF_PROPERTY
from lazyprompt.files.spec import ENGINES, FIELDS, FIELDS_OF_MODEL, FIELDS_OF_TOOL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lazyprompt._base.json import Json, JsonObject

_TEXT: Final[JsonObject] = {"type": ["string", "null"]}
# Readers take a number or a word for the text that it is written as.
_WRITTEN: Final[JsonObject] = {"type": ["string", "number", "boolean", "null"]}
# In the place of a value, a reference to it may stand.
_REFERENCE: Final[JsonObject] = {
    "type": "string",
    "pattern": "\\$\\{(?:[Ee][Nn][Vv]|[Ff][Ii][Ll][Ee]|[Pp][Aa][Rr][Aa][Mm][Ss]):[^{}]*\\}",
}
_MAPPING: Final[JsonObject] = {"type": ["object", "null"]}


def _or_reference(*schemas: JsonObject) -> JsonObject:
    return {"anyOf": [*schemas, {"$ref": "#/definitions/reference"}]}


def _ref(name: str) -> JsonObject:
    return {"$ref": f"#/definitions/{name}"}


_KINDS: Final = (*KINDS_OF_PROPERTY, *ALSO_CALLED)
_TYPES: Final[Mapping[type, str]] = {int: "integer", float: "number", list: "array", bool: "boolean", str: "string"}

_FIELDS: Final[Mapping[str, tuple[JsonObject, str]]] = {
    "name": (_WRITTEN, "The name of the prompt, by which it is called."),
    "displayName": (_WRITTEN, "Its name for people."),
    "description": (_WRITTEN, "What the prompt is for."),
    "metadata": (_or_reference(_MAPPING), "What else is said of the prompt: authors, tags, a version."),
    "model": (_or_reference(_TEXT, _ref("model")), "The model: its name alone, or with its provider and its options."),
    "inputs": (_or_reference(_ref("properties")), "What the prompt takes: the variables of its template."),
    "outputs": (_or_reference(_ref("properties")), "What the prompt gives: the fields of the model's answer."),
    "tools": (_or_reference(_ref("tools")), "The tools that the model may call."),
    "template": (_ref("template"), "The syntax of the template, and how it is taken apart."),
    "instructions": (_WRITTEN, "The template, where the file has no text below its front matter."),
    "kind": ({}, "What the file is: prompt."),
}

_PROPERTY: Final[Mapping[str, tuple[JsonObject, str]]] = {
    "name": (_TEXT, "Its name, as the template has it."),
    "description": (_TEXT, "What it is."),
    "required": ({"type": ["boolean", "null"]}, "Whether it must be given."),
    "nullable": ({"type": ["boolean", "null"]}, "Whether it may be null."),
    "kind": ({"enum": [*_KINDS, None]}, "What kind of value it is; without it, a text (string)."),
    "default": ({}, "Its value where none is given."),
    "example": ({}, "What a value may look like; it is never used as one."),
    "enumValues": (_or_reference({"type": "array"}), "The values that it may have."),
    "items": (
        _or_reference({"enum": [*_KINDS]}, _ref("property")),
        "What an array holds: a kind, or a property.",
    ),
    "properties": (_or_reference(_ref("properties")), "What an object holds."),
    "oneOf": (_or_reference(_ref("choices")), "What a union may be, of which just one fits."),
    "anyOf": (_or_reference(_ref("choices")), "What a union may be."),
}

_MODEL: Final[Mapping[str, tuple[JsonObject, str]]] = {
    "id": (_WRITTEN, "The name of the model at its provider."),
    "provider": (_WRITTEN, "Who provides it: openai, azure, anthropic, …"),
    "apiType": (_WRITTEN, "Which of its interfaces is meant: chat, responses, embedding or image."),
    "connection": (_or_reference(_MAPPING), "How it is reached; write a key as ${env:NAME}, never into the file."),
    "options": (_or_reference(_ref("options")), "How it answers."),
}

_OPTIONS: Final[Mapping[str, str]] = {
    "temperature": "How freely it chooses its words; 0 is the least.",
    "maxOutputTokens": "The most tokens that an answer may have.",
    "topP": "From how much of all likely words it chooses, 0 to 1.",
    "topK": "From how many words it chooses.",
    "frequencyPenalty": "How much it avoids what it said often.",
    "presencePenalty": "How much it avoids what it said at all.",
    "seed": "A number with which answers are the same, as far as the provider keeps to that.",
    "stopSequences": "Texts at which an answer ends.",
    "allowMultipleToolCalls": "Whether it may call several tools at once.",
    "reasoningEffort": "How much it thinks before it answers.",
    OTHERS: "Settings of one provider that have no name here.",
}

_TOOL: Final[Mapping[str, tuple[JsonObject, str]]] = {
    "name": (_WRITTEN, "The name by which the model calls it."),
    "kind": (_WRITTEN, "function, mcp, openapi, or a kind of the runtime's own; without it, a function."),
    "description": (_WRITTEN, "What it does, and when it is to be called: the model reads this."),
    "parameters": (
        _or_reference(_ref("properties"), {"type": "object", "required": ["properties"]}),
        "What it takes: properties, or a JSON Schema.",
    ),
    "strict": ({"type": "boolean"}, "Whether its schema keeps the rules of strict schemas."),
    "bindings": (
        {"type": ["object", "null"], "additionalProperties": _ref("binding")},
        "Parameters that inputs fill: the model does not see them.",
    ),
}


def _object(known: Sequence[str], told: Mapping[str, tuple[JsonObject, str]], *, closed: bool = False) -> JsonObject:
    """An object of some fields, each with its description."""
    fields: dict[str, Json] = {name: {**deepcopy(told[name][0]), "description": told[name][1]} for name in known}
    made: JsonObject = {"type": "object", "properties": fields}
    return {**made, "additionalProperties": False} if closed else made


def _options() -> JsonObject:
    made: dict[str, Json] = {
        name: {
            **_or_reference({"type": [*(_TYPES[each] for each in types), "null"]}),
            "description": _OPTIONS[name],
        }
        for name, types in OPTIONS.items()
    }
    # One text that stops an answer is as good as a list of one.
    made["stopSequences"] = {
        **_or_reference({"type": ["array", "string", "null"], "items": {"type": "string"}}),
        "description": _OPTIONS["stopSequences"],
    }
    made[OTHERS] = {**_or_reference(_MAPPING), "description": _OPTIONS[OTHERS]}
    return {"type": ["object", "null"], "properties": made}


def front_matter_schema() -> JsonObject:
    """The JSON Schema of the front matter of a ``.prompty`` file, in draft 7: all editors read that."""
    tool = _object(FIELDS_OF_TOOL, _TOOL)
    # Under its name, a value alone is the default of an input; a mapping that is no property is one too.
    by_name: JsonObject = {"type": "object", "additionalProperties": True}
    named: JsonObject = {"allOf": [_ref("property"), {"type": "object", "required": ["name"]}]}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "The front matter of a prompt file (Prompty v2)",
        **_object(FIELDS, _FIELDS),
        "definitions": {
            "reference": {
                **_REFERENCE,
                "description": "${env:NAME}, ${env:NAME:default}, ${file:path}, ${params:name}",
            },
            "property": _object(FIELDS_OF_PROPERTY, _PROPERTY, closed=True),
            "properties": {"anyOf": [{"type": "array", "items": named}, by_name, {"type": "null"}]},
            "choices": {"type": "array", "items": {"anyOf": [{"enum": [*_KINDS]}, _ref("property")]}},
            "model": _object(FIELDS_OF_MODEL, _MODEL),
            "options": _options(),
            "tool": tool,
            "tools": {
                "anyOf": [
                    {"type": "array", "items": {"allOf": [_ref("tool"), {"required": ["name"]}]}},
                    {"type": "object", "additionalProperties": _ref("tool")},
                    {"type": "null"},
                ]
            },
            "binding": {
                "anyOf": [
                    {"type": "string"},
                    {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]},
                ],
                "description": "The name of an input.",
            },
            "template": {
                "type": ["object", "null"],
                "properties": {
                    "format": {
                        "anyOf": [
                            {"enum": [*ENGINES, None]},
                            {"type": "object", "properties": {"kind": {"enum": [*ENGINES, None]}}},
                        ],
                        "description": f"The syntax: {', '.join(ENGINES)}; alone, or as a mapping with kind.",
                    },
                    "parser": {"description": "How it is taken apart: prompty."},
                },
            },
        },
    }


def schema_text() -> str:
    """The schema as the file ``prompty.schema.json`` has it."""
    return json.dumps(front_matter_schema(), ensure_ascii=False, indent=2) + "\n"
