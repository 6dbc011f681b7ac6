"""The dialect of dotprompt: ``.prompt`` files, with schemas in Picoschema and templates in Handlebars.

Its roles are marks of the template, ``{{role "user"}}``, and so are the places of the history and of media. What
stands before the first one is the user's; a section that says nothing is none; what follows ``{{history}}`` with no
role of its own is the model's, as it is in dotprompt.
Source: dotprompt's reference, sections Prompt frontmatter, Picoschema and Template content.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from lazyprompt.errors import TemplateError, did_you_mean
from lazyprompt.files.dialects.translation import Translated, fits, written
from lazyprompt.files.inputs import MEDIA, Medium, Thread
from lazyprompt.files.properties import kind_of
from lazyprompt.files.roles import Section
from lazyprompt.files.yaml_nodes import Node
from lazyprompt.messages.msg import URLSource
from lazyprompt.messages.openai_form import source_of
from lazyprompt.templates.handlebars import HistoryMark, MediaMark, RoleMark, SectionMark
from lazyprompt.templates.slots import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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

    Picoschema has ``name: string, who it is``, ``age?: integer``, ``tags(array, the tags): string``,
    ``address(object): {...}``, ``kind(enum): [a, b]`` and ``(*): any``.

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


SUFFIX: Final = ".prompt"
"""What the names of its files end with."""

ENGINE: Final = "handlebars"
"""The syntax of its templates."""

MARKED_ROLES: Final[Mapping[str, str]] = {
    "user": "user",
    "system": "system",
    "model": "assistant",
    "assistant": "assistant",
    "developer": "developer",
}
"""The roles that its marks may name, and what they are here."""

_INPUT, _OUTPUT = ("default", "schema"), ("format", "schema")
_FORMATS = ("json", "text", "jsonl", "array", "enum", "media")
_OWN = ("model", "config", "input", "output", "tools", "toolDefs", "metadata", "name")
_OF_V2 = {"inputs": "input", "outputs": "output", "parameters": "config", "options": "config"}
_SECTION = re.compile(r"\{\{~?\s*+section\s")
# What an address without a media type shows, by how it ends; anything else is taken for a picture.
_BY_SUFFIX = {
    "audio": (".mp3", ".wav", ".flac", ".ogg", ".m4a"),
    "video": (".mp4", ".mov", ".webm", ".mpeg"),
    "file": (".pdf", ".txt", ".csv", ".json", ".md"),
}


def dotprompt_fields(reading: Reading) -> Translated:
    """A ``.prompt`` file as Prompty v2 has it.

    Args:
        reading: The file.

    Returns:
        Its fields; names that dotprompt does not know are kept as they are.

    Raises:
        PromptFileError: A field is not what it must be.
    """
    given = reading.fields
    for name, own in _OF_V2.items():
        if name in given and own not in given:
            raise reading.source.pointed(given[name].key_at, f"{name} is called {own} in a {SUFFIX} file")
    place = next(iter(given.values()), Node(None, 0, 0))
    made = {name: node for name, node in given.items() if name not in _OWN}
    made |= _name(reading, place) | _model(reading)
    made["template"] = written({"format": written(ENGINE, place)}, place)
    inputs = _inputs(reading)
    if inputs:
        made["inputs"] = written(inputs, given["input"])
    metadata = reading.mapping(given.get("metadata"), "metadata")
    outputs, left = _outputs(reading)
    if outputs:
        made["outputs"] = written(outputs, given["output"])
    if left:
        metadata["output"] = written(left, given["output"])
    if metadata:
        made["metadata"] = written(metadata, given.get("metadata", place))
    if tools := [*_tools(reading, "tools"), *_tools(reading, "toolDefs")]:
        made["tools"] = written(tools, given.get("tools", place))
    if _SECTION.search(reading.body):
        reading.note(place, "{{section}} is left empty: a formatter asks for structured output in the request")
    return Translated(made, reading.body, tuple(sorted(reading.notes)))


def _name(reading: Reading, place: Node) -> dict[str, Node]:
    """The name and the variant; where they are not given, those that the file's own name says."""
    path = PurePath(reading.source.name)
    if "name" in reading.fields:
        return {"name": reading.fields["name"]}
    if path.suffix != SUFFIX:
        return {}
    name, _, variant = path.stem.removeprefix("_").partition(".")
    made = {"name": written(name, place)}
    return {**made, "variant": written(variant, place)} if variant and "variant" not in reading.fields else made


def _model(reading: Reading) -> dict[str, Node]:
    """``googleai/gemini-2.5-flash`` and the settings in ``config``."""
    model, config = reading.fields.get("model"), reading.fields.get("config")
    made: dict[str, Node] = {}
    if model is not None:
        provider, slash, name = reading.text(model, "model").partition("/")
        if slash and not (provider and name):
            raise reading.fault(model, f"model is {model.value!r}, and must be as provider/name")
        made["id"] = model._replace(value=name if slash else provider)
        if slash:
            made["provider"] = model._replace(value=provider)
    options = reading.options(reading.mapping(config, "config"), {}, "config")
    if options and config is not None:
        made["options"] = written(options, config)
    place = model or config
    return {"model": written(made, place)} if made and place is not None else {}


def _known(reading: Reading, part: str, names: Sequence[str]) -> dict[str, Node]:
    """The fields of ``input`` or ``output``, none of them unknown."""
    given = reading.mapping(reading.fields.get(part), part)
    for name, node in given.items():
        if name not in names:
            what = f"{part} has the field {name!r}{did_you_mean(name, names)}; it has {' and '.join(names)}"
            raise reading.source.pointed(node.key_at, what)
    return given


def _inputs(reading: Reading) -> dict[str, Node]:
    given = _known(reading, "input", _INPUT)
    schema = given.get("schema")
    made = properties_of(schema, reading, "input.schema") if schema is not None and schema.value is not None else {}
    for name, node in reading.mapping(given.get("default"), "input.default").items():
        fields = reading.mapping(made.get(name), name) or {"kind": written(kind_of(node.value), node)}
        kind = str(fields["kind"].value)
        if not fits(node, kind):
            raise reading.source.refused(node, f"input.default.{name} is", f", and by input.schema of the kind {kind}")
        made[name] = written({**fields, "default": node}, node)
    return made


def _outputs(reading: Reading) -> tuple[dict[str, Node], dict[str, Node]]:
    """The outputs, and what Prompty v2 has no place for, which is kept as metadata."""
    given = _known(reading, "output", _OUTPUT)
    schema, form = given.get("schema"), given.get("format")
    name = None if form is None else reading.text(form, "output.format")
    if form is not None and name not in _FORMATS and (near := did_you_mean(str(name), _FORMATS)):
        raise reading.fault(form, f"output.format is {name!r}{near}; the formats are {', '.join(_FORMATS)}")
    has_schema = schema is not None and schema.value is not None
    if schema is not None and has_schema and name in (None, "json"):
        return properties_of(schema, reading, "output.schema"), {}
    if has_schema or name not in (None, "text"):
        reading.note(
            reading.fields["output"],
            f"output.format {name} has no place in Prompty v2: output is kept as metadata, and no request asks for it",
        )
        return {}, given
    return {}, {}


def _tools(reading: Reading, part: str) -> list[Node]:
    """Tools by their names, which are those of a program, or written out."""
    node = reading.fields.get(part)
    if node is None or node.value is None:
        return []
    items = reading.source.list_of(node, part, "are")
    return [_tool(item, reading, f"{part}[{index}]") for index, item in enumerate(items)]


def _tool(item: Node, reading: Reading, where: str) -> Node:
    if not isinstance(item.value, dict):
        name = reading.text(item, where)
        reading.note(item, f"{where} names a tool of some program: give the tool {name!r} itself, as tools=")
        return written({"name": item, "kind": written("named", item)}, item)
    given = dict(item.value)
    schema = given.pop("inputSchema", None)
    if given.pop("outputSchema", None) is not None:
        reading.note(item, f"{where}.outputSchema is not carried over: no provider takes one")
    if schema is not None:
        given["parameters"] = written(properties_of(schema, reading, f"{where}.inputSchema"), schema)
    return written({"kind": written("function", item), **given}, item)


def has_marks(parts: Sequence[str]) -> bool:
    """Whether marks of a template say where its sections begin, or the history goes, or media."""
    kinds = (RoleMark, HistoryMark, MediaMark, SectionMark)
    return any(isinstance(part, Value) and isinstance(part.held, kinds) for part in parts)


def marked_sections(parts: Sequence[str]) -> list[Section]:
    """Take a filled template apart by its marks.

    Args:
        parts: The template's own text, and values.

    Returns:
        The sections; the place of the history is one of its own, with a thread that has no name.

    Raises:
        TemplateError: A mark names a role that there is not.
    """
    found: list[Section] = []
    role, run = "user", list[str]()
    for part in parts:
        held = part.held if isinstance(part, Value) else None
        if isinstance(held, RoleMark):
            found += _section(role, run)
            role, run = _role(held.role), []
        elif isinstance(held, HistoryMark):
            found += [*_section(role, run), Section("user", {}, (Value("", "history", Thread("", ())),))]
            role, run = "assistant", []
        elif isinstance(held, MediaMark):
            run.append(Value("", part.source if isinstance(part, Value) else "", _medium(held)))
        elif not isinstance(held, SectionMark):
            run.append(part)
    return [*found, *_section(role, run)]


def _section(role: str, run: Sequence[str]) -> list[Section]:
    """A section; none where it says nothing."""
    if any(part.strip() or (isinstance(part, Value) and part.held) for part in run):
        return [Section(role, {}, tuple(run))]
    return []


def _role(name: str) -> str:
    if name not in MARKED_ROLES:
        known = f"{did_you_mean(name, MARKED_ROLES)}; the roles are {', '.join(MARKED_ROLES)}"
        raise TemplateError(f'{{{{role "{name}"}}}} names no role{known}')
    return MARKED_ROLES[name]


def check_marks(marks: Iterable[tuple[int, object]]) -> None:
    """Refuse marks that name a role that there is not.

    Args:
        marks: The marks of a template, with their lines.

    Raises:
        TemplateError: There is one; the message has its line.
    """
    for line, mark in marks:
        try:
            _role(mark.role if isinstance(mark, RoleMark) else "user")
        except TemplateError as error:
            raise TemplateError(f"Handlebars, line {line}: {error}") from error


def _medium(mark: MediaMark) -> Medium:
    address = str.__str__(mark.url)
    source = source_of(address)
    if isinstance(source, URLSource) and mark.content_type:
        source = URLSource(address, str.__str__(mark.content_type))
    kind = (source.media_type or "").partition("/")[0]
    if not kind:
        path = address.partition("?")[0].lower()
        kind = next((name for name, suffixes in _BY_SUFFIX.items() if path.endswith(suffixes)), "image")
    return Medium("media", MEDIA.get(kind, MEDIA["file"])(source))


def shown_mark(held: object) -> str:
    """What stands for a mark where a filled template is looked at, as dotprompt writes it; "" for anything else."""
    if isinstance(held, RoleMark):
        return f"<<<dotprompt:role:{held.role}>>>"
    if isinstance(held, HistoryMark):
        return "<<<dotprompt:history>>>"
    if isinstance(held, MediaMark):
        return f"<<<dotprompt:media:url {held.url}>>>"
    return f"<<<dotprompt:section {held.name}>>>" if isinstance(held, SectionMark) else ""
