"""Picoschema, and JSON Schema, as properties of Prompty v2.

Picoschema is how dotprompt files say what they take and give: ``name: string, who it is``, ``age?: integer``,
``tags(array, the tags): string``, ``address(object): {...}``, ``kind(enum): [a, b]``, ``(*): any``.
Source: dotprompt's reference, section Picoschema.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lazyprompt.errors import did_you_mean
from lazyprompt.files.dialects.translation import written
from lazyprompt.files.properties import kind_of
from lazyprompt.files.yaml_nodes import Node

if TYPE_CHECKING:
    from lazyprompt.files.dialects.translation import Reading

_KINDS = {
    "string": "string",
    "number": "float",
    "integer": "integer",
    "boolean": "boolean",
    "any": "union",
    "null": "union",
}
_PARENTHESES = ("array", "object", "enum")
_JSON_TYPES = (*_KINDS, "array", "object")
_WILDCARD = "(*)"
_KEY = re.compile(r"([^(?]+)(\??)(?:\(([^(),]*)(?:,\s*([^()]*))?\))?")
# The keywords of JSON Schema that a property has a field for, or needs none for.
_READ = frozenset(
    (
        *("$schema", "title", "type", "description", "enum", "default", "items", "properties", "required"),
        *("anyOf", "oneOf", "examples"),
    )
)


def is_json_schema(node: Node) -> bool:
    """Whether a schema is JSON Schema: dotprompt tells it by a ``type``, or by ``properties``."""
    if not isinstance(node.value, dict):
        return False
    kind, properties = node.value.get("type"), node.value.get("properties")
    named = kind is not None and isinstance(kind.value, str) and kind.value in _JSON_TYPES
    return named or (properties is not None and isinstance(properties.value, dict))


def properties_of(node: Node, reading: Reading, where: str) -> dict[str, Node]:
    """The properties of the object that a schema is of.

    Args:
        node: The schema.
        reading: The file.
        where: How errors call it.

    Returns:
        For each name its fields, as a property of Prompty v2 has them.

    Raises:
        PromptFileError: It is no schema, or not of an object.
    """
    if isinstance(node.value, str):
        kind = node.value.partition(",")[0].strip()
        if kind in _KINDS:
            raise reading.fault(node, f"{where} is of a {kind}; a prompt file has inputs and outputs with names")
        what = f"{where} names the schema {kind!r} of some program, which is not at hand; write the schema out"
        raise reading.fault(node, what)
    if is_json_schema(node):
        made = _of_json(node, reading, where)
        kind_node = made["kind"]
        if kind_node.value != "object":
            raise reading.fault(node, f"{where} is of the type {kind_node.value}, and must be of an object")
        return reading.mapping(made.get("properties"), where)
    return _of_object(node, reading, where)


def _of_object(node: Node, reading: Reading, where: str) -> dict[str, Node]:
    """The properties of an object in Picoschema."""
    if not isinstance(node.value, dict):
        raise reading.source.refused(node, f"{where} is", "; a schema is a mapping of names to types")
    made: dict[str, Node] = {}
    for key, item in node.value.items():
        if key == _WILDCARD:
            _of_value(item, reading, f"{where}.{key}")
            reading.note(item, f"{where}.(*) is not carried over: a schema here says nothing of names it does not have")
            continue
        match = _KEY.fullmatch(key)
        kind = match[3].strip() if match and match[3] is not None else None
        if match is None or (kind is not None and kind not in _PARENTHESES):
            near = "" if kind is None else did_you_mean(kind, _PARENTHESES)
            what = f"{where} has the key {key!r}{near}; a key is name, name? or name(array), name(object), name(enum)"
            raise reading.source.pointed(item.key_at, f"{what}, with a description: name(array, what it is)")
        name = match[1].strip()
        if name in made:
            raise reading.source.pointed(item.key_at, f"{where}.{name} stands there a second time")
        fields = _of_key(kind, item, reading, f"{where}.{name}")
        if match[4]:
            fields["description"] = written(match[4].strip(), item)
        fields["nullable" if match[2] else "required"] = written(value=True, place=item)
        made[name] = written(fields, item)
    return made


def _of_key(kind: str | None, item: Node, reading: Reading, where: str) -> dict[str, Node]:
    """The fields of a property, by the kind that its key names."""
    if kind == "array":
        return {"kind": written("array", item), "items": written(_of_value(item, reading, where), item)}
    if kind == "enum":
        return {**_of_enum(item, reading, where)}
    if kind == "object" and not isinstance(item.value, dict):
        raise reading.source.refused(item, f"{where} is", "; an object has its properties in a mapping")
    return _of_value(item, reading, where)


def _of_enum(item: Node, reading: Reading, where: str) -> dict[str, Node]:
    if not isinstance(item.value, list) or not item.value:
        raise reading.source.refused(item, f"{where} is", "; an enum is a list of its values")
    values = [each for each in item.value if each.value is not None]
    found = {kind_of(each.value) for each in values}
    made = {"kind": written(found.pop() if len(found) == 1 else "union", item), "enumValues": written(values, item)}
    return {**made, "nullable": written(value=True, place=item)} if len(values) < len(item.value) else made


def _of_value(item: Node, reading: Reading, where: str) -> dict[str, Node]:
    """The fields of a property: a type with a description, or an object."""
    if isinstance(item.value, dict):
        properties = _of_object(item, reading, where)
        made = {"kind": written("object", item)}
        return {**made, "properties": written(properties, item)} if properties else made
    if not isinstance(item.value, str):
        raise reading.source.refused(item, f"{where} is", f"; a type is one of {', '.join(_KINDS)}, or a mapping")
    kind, _, description = item.value.partition(",")
    kind = kind.strip()
    if kind not in _KINDS:
        what = f"{where} is of the type {kind!r}{did_you_mean(kind, _KINDS)}; the types are {', '.join(_KINDS)}"
        raise reading.fault(item, what)
    made = {"kind": written(_KINDS[kind], item)}
    if kind == "null":
        made["nullable"] = written(value=True, place=item)
    return {**made, "description": written(description.strip(), item)} if description.strip() else made


def _of_json(node: Node, reading: Reading, where: str) -> dict[str, Node]:
    """The fields of a property that is written in JSON Schema."""
    given = reading.mapping(node, where)
    if "$ref" in given:
        raise reading.fault(given["$ref"], f"{where} refers to a schema by $ref, which is not read; write it out")
    made = _of_type(given, node, reading, where)
    closed = given.get("additionalProperties")
    left = [
        name
        for name in given
        if name not in _READ and not (closed and name == "additionalProperties" and closed.value is False)
    ]
    if left:
        reading.note(node, f"{where}: {', '.join(left)} of the JSON Schema are not carried over")
    if "enum" in given:
        made.update(_of_enum(given["enum"], reading, f"{where}.enum"))
    for name in ("description", "default"):
        if name in given:
            made[name] = given[name]
    examples = given.get("examples")
    if examples is not None and isinstance(examples.value, list) and examples.value:
        made["example"] = examples.value[0]
    if "items" in given:
        made["items"] = written(_of_json(given["items"], reading, f"{where}.items"), given["items"])
    if "properties" in given:
        made["properties"] = written(_of_properties(given, reading, where), given["properties"])
    return made


def _of_type(given: dict[str, Node], node: Node, reading: Reading, where: str) -> dict[str, Node]:
    """The kind, and whether it may be null."""
    several = "anyOf" if "anyOf" in given else "oneOf"
    if several in given:
        choices = given[several]
        if not isinstance(choices.value, list):
            raise reading.fault(choices, f"{where}: anyOf and oneOf are lists of schemas")
        of = [
            written(_of_json(each, reading, f"{where}.{several}[{at}]"), each) for at, each in enumerate(choices.value)
        ]
        return {"kind": written("union", node), several: written(of, choices)}
    default = Node("object" if "properties" in given else "any", node.at, node.key_at)
    kind = given.get("type", default)
    kinds = kind.value if isinstance(kind.value, list) else [kind]
    names = [each.value for each in kinds if each.value != "null"]
    for name in names:
        if not isinstance(name, str) or name not in _JSON_TYPES:
            known = f"{did_you_mean(str(name), _JSON_TYPES)}; the types are {', '.join(_JSON_TYPES)}"
            raise reading.fault(kind, f"{where}.type is {name!r}{known}")
    made: dict[str, Node] = {}
    if len(names) == 1:
        only = str(names[0])
        made["kind"] = written(_KINDS.get(only, only), kind)
    else:
        made["kind"] = written("union", kind)
        if names:
            of = [written({"kind": written(_KINDS.get(str(name), str(name)), kind)}, kind) for name in names]
            made["anyOf"] = written(of, kind)
    return {**made, "nullable": written(value=True, place=kind)} if len(names) < len(kinds) else made


def _of_properties(given: dict[str, Node], reading: Reading, where: str) -> dict[str, Node]:
    required = given.get("required")
    if required is not None and not isinstance(required.value, list):
        raise reading.source.refused(required, f"{where}.required is", ", and must be a list of names")
    names = required.value if required is not None and isinstance(required.value, list) else []
    needed = [each.value for each in names]
    made: dict[str, Node] = {}
    for name, item in reading.mapping(given["properties"], f"{where}.properties").items():
        fields = _of_json(item, reading, f"{where}.{name}")
        if name in needed:
            fields["required"] = written(value=True, place=item)
        made[name] = written(fields, item)
    return made
