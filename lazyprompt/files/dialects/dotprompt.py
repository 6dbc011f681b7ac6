"""The dialect of dotprompt: ``.prompt`` files, with schemas in Picoschema and templates in Handlebars.

Its roles are marks of the template, ``{{role "user"}}``, and so are the places of the history and of media. Text before
the first one is the user's; an empty section is none; as in dotprompt, text behind ``{{history}}`` with no role of its
own is the model's.
Source: dotprompt's reference, sections Prompt frontmatter, Picoschema and Template content.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from lazyprompt.errors import TemplateError, did_you_mean
from lazyprompt.files.properties import MEDIA, SCALARS, Medium, Thread, kind_of
from lazyprompt.files.roles import Section
from lazyprompt.files.spec import Reading, Translated, fits
from lazyprompt.files.yaml_nodes import Node, Plain, written
from lazyprompt.messages.msg import URLSource
from lazyprompt.messages.openai_form import source_of
from lazyprompt.templates.handlebars import HistoryMark, MediaMark, RoleMark, SectionMark
from lazyprompt.templates.slots import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


_KINDS = {name: kind for kind, name in SCALARS.items()} | dict.fromkeys(("any", "null"), "union")
_JSON_KINDS = {**_KINDS, "array": "array", "object": "object"}
_PARENTHESES = ("array", "object", "enum")
_WILDCARD = "(*)"
_KEY = re.compile(r"([^(?]+)(\??)(?:\(([^(),]*)(?:,\s*([^()]*))?\))?")
# The keywords of JSON Schema that a property has a field for, or needs none for.
_READ = frozenset(("$schema", "title", "type", "description", "enum", "default", "items", "properties")).union(
    ("required", "anyOf", "oneOf", "examples")
)


def _is_json_schema(fields: Mapping[str, Node]) -> bool:
    """Return True if a schema is JSON Schema: dotprompt tells it by a ``type``, or by ``properties``."""
    named = "type" in fields and fields["type"].value in [*_JSON_KINDS]
    return named or ("properties" in fields and isinstance(fields["properties"].value, dict))


def _properties(node: Node, reading: Reading, where: str) -> dict[str, Node]:
    """Return the properties of the object that a schema is of, as Prompty v2 has them.

    Picoschema has ``name: string, who it is``, ``age?: integer``, ``tags(array, the tags): string``,
    ``address(object): {...}``, ``kind(enum): [a, b]`` and ``(*): any``.
    """
    if isinstance(node.value, str):
        kind = node.value.partition(",")[0].strip()
        if kind in _KINDS:
            raise reading.fault(node, f"{where} is of a {kind}; a prompt file has inputs and outputs with names")
        what = f"{where} names the schema {kind!r} of some program, which is not at hand; write the schema out"
        raise reading.fault(node, what)
    if not isinstance(node.value, dict) or not _is_json_schema(node.value):
        return _of_object(node, reading, where)
    made = reading.mapping(written(_of_json(node, reading, where), node), where)
    if made["kind"].value != "object":
        raise reading.fault(node, f"{where} is of the type {made['kind'].value}, and must be of an object")
    return reading.mapping(made.get("properties"), where)


def _of_object(node: Node, reading: Reading, where: str) -> dict[str, Node]:
    """Read the properties of an object in Picoschema."""
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
            fields["description"] = match[4].strip()
        made[name] = written({**fields, "nullable" if match[2] else "required": True}, item)
    return made


def _of_key(kind: str | None, item: Node, reading: Reading, where: str) -> dict[str, Plain]:
    """Return the fields of a property, by the kind that its key names."""
    if kind == "array":
        return {"kind": kind, "items": written(_of_value(item, reading, where), item)}
    if kind == "enum":
        return _of_enum(item, reading, where)
    if kind == "object" and not isinstance(item.value, dict):
        raise reading.source.refused(item, f"{where} is", "; an object has its properties in a mapping")
    return _of_value(item, reading, where)


def _of_enum(item: Node, reading: Reading, where: str) -> dict[str, Plain]:
    if not isinstance(item.value, list) or not item.value:
        raise reading.source.refused(item, f"{where} is", "; an enum is a list of its values")
    values = [each for each in item.value if each.value is not None]
    found = {kind_of(each.value) for each in values}
    made: dict[str, Plain] = {"kind": found.pop() if len(found) == 1 else "union", "enumValues": values}
    return made if len(values) == len(item.value) else {**made, "nullable": True}


def _of_value(item: Node, reading: Reading, where: str) -> dict[str, Plain]:
    """Return the fields of a property: a type with a description, or an object."""
    if isinstance(item.value, dict):
        return {"kind": "object", "properties": _of_object(item, reading, where)}
    if not isinstance(item.value, str):
        what = f"; a type is one of {', '.join(_KINDS)}, a mapping, or behind a name(array): or name(enum):"
        raise reading.source.refused(item, f"{where} is", what)
    kind, _, description = (part.strip() for part in item.value.partition(","))
    if kind not in _KINDS:
        what = f"{where} is of the type {kind!r}{did_you_mean(kind, _KINDS)}; the types are {', '.join(_KINDS)}"
        raise reading.fault(item, what)
    made: dict[str, Plain] = {"kind": _KINDS[kind]}
    if kind == "null":
        made["nullable"] = True
    return {**made, "description": description} if description else made


def _of_json(node: Node, reading: Reading, where: str) -> dict[str, Plain]:
    """Return the fields of a property that is written in JSON Schema."""
    given = reading.mapping(node, where)
    if "$ref" in given:
        raise reading.fault(given["$ref"], f"{where} refers to a schema by $ref, which is not read; write it out")
    made = _of_type(given, reading, where)
    closed = "additionalProperties" in given and given["additionalProperties"].value is False
    if left := [name for name in given if name not in _READ and not (closed and name == "additionalProperties")]:
        reading.note(node, f"{where}: {', '.join(left)} of the JSON Schema are not carried over")
    if "enum" in given:
        made |= _of_enum(given["enum"], reading, f"{where}.enum")
    made |= {name: given[name] for name in ("description", "default") if name in given}
    if "examples" in given and isinstance(examples := given["examples"].value, list) and examples:
        made["example"] = examples[0]
    if "items" in given:
        made["items"] = written(_of_json(given["items"], reading, f"{where}.items"), given["items"])
    if "properties" in given:
        required = given.get("required", written([], node))
        needed = [each.value for each in reading.source.list_of(required, f"{where}.required")]
        properties: dict[str, Plain] = {}
        for name, item in reading.mapping(given["properties"], f"{where}.properties").items():
            is_needed: dict[str, Plain] = {"required": True} if name in needed else {}
            properties[name] = written({**_of_json(item, reading, f"{where}.{name}"), **is_needed}, item)
        made["properties"] = properties
    return made


def _of_type(given: dict[str, Node], reading: Reading, where: str) -> dict[str, Plain]:
    """Return the kind, and if it may be null."""
    several = "anyOf" if "anyOf" in given else "oneOf"
    if several in given:
        choices = given[several]
        if not isinstance(choices.value, list):
            raise reading.fault(choices, f"{where}: anyOf and oneOf are lists of schemas")
        of = [_of_json(each, reading, f"{where}.{several}[{at}]") for at, each in enumerate(choices.value)]
        return {"kind": "union", several: [written(each, its) for each, its in zip(of, choices.value, strict=True)]}
    if "type" not in given:
        return {"kind": "object" if "properties" in given else "union"}
    kind = given["type"]
    kinds = kind.value if isinstance(kind.value, list) else [kind]
    for name in (each.value for each in kinds):
        if not isinstance(name, str) or name not in _JSON_KINDS:
            known = f"{did_you_mean(str(name), _JSON_KINDS)}; the types are {', '.join(_JSON_KINDS)}"
            raise reading.fault(kind, f"{where}.type is {name!r}{known}")
    names = [_JSON_KINDS[str(each.value)] for each in kinds if each.value != "null"]
    made: dict[str, Plain] = {"kind": names[0] if len(names) == 1 else "union"}
    if len(names) > 1:
        made["anyOf"] = [{"kind": name} for name in names]
    return made if len(names) == len(kinds) else {**made, "nullable": True}


SUFFIX: Final = ".prompt"
"""The suffix of its files."""

ENGINE: Final = "handlebars"
"""The syntax of its templates."""

MARKED_ROLES: Final = {**{role: role for role in ("user", "system", "assistant", "developer")}, "model": "assistant"}
"""The roles that its marks may name, and their names here."""

_INPUT, _OUTPUT = ("default", "schema"), ("format", "schema")
_FORMATS = ("json", "text", "jsonl", "array", "enum", "media")
_OWN = ("model", "config", "input", "output", "tools", "toolDefs", "metadata", "name")
_OF_V2 = {"inputs": "input", "outputs": "output", "parameters": "config", "options": "config"}
_SECTION = re.compile(r"\{\{~?\s*+section\s")
# The kinds of addresses without a media type, by their suffixes; any other is taken for a picture.
_BY_SUFFIX = {
    "audio": (".mp3", ".wav", ".flac", ".ogg", ".m4a"),
    "video": (".mp4", ".mov", ".webm", ".mpeg"),
    "file": (".pdf", ".txt", ".csv", ".json", ".md"),
}


def dotprompt_fields(reading: Reading) -> Translated:
    """Translate a ``.prompt`` file to Prompty v2; names that dotprompt does not know are kept as they are.

    Args:
        reading: The file.

    Raises:
        PromptFileError: A field is not what it must be.
    """
    given = reading.fields
    for name, own in _OF_V2.items():
        if name in given and own not in given:
            raise reading.source.pointed(given[name].key_at, f"{name} is called {own} in a {SUFFIX} file")
    place = next(iter(given.values()), Node(None, 0, 0))
    metadata = reading.mapping(given.get("metadata"), "metadata")
    inputs, (outputs, left) = _inputs(reading), _outputs(reading)
    if left:
        metadata["output"] = written(left, given["output"])
    if _SECTION.search(reading.body):
        reading.note(place, "{{section}} is left empty: a formatter asks for structured output in the request")
    made: dict[str, tuple[Plain, str]] = {
        "template": ({"format": ENGINE}, ""),
        "model": (_model(reading), "model" if "model" in given else "config"),
        "inputs": (inputs, "input"),
        "outputs": (outputs, "output"),
        "metadata": (metadata, "metadata"),
        "tools": ([*_tools(reading, "tools"), *_tools(reading, "toolDefs")], "tools"),
    }
    fields = {name: node for name, node in given.items() if name not in _OWN} | _name(reading, place)
    fields |= {name: written(value, given.get(its, place)) for name, (value, its) in made.items() if value}
    return Translated(fields, reading.body, tuple(sorted(reading.notes)))


def _name(reading: Reading, place: Node) -> dict[str, Node]:
    """Return the name and the variant; where they are not given, those that the file's own name says."""
    path = PurePath(reading.source.name)
    if "name" in reading.fields:
        return {"name": reading.fields["name"]}
    if path.suffix != SUFFIX:
        return {}
    name, _, variant = path.stem.removeprefix("_").partition(".")
    made = {"name": written(name, place)}
    return {**made, "variant": written(variant, place)} if variant and "variant" not in reading.fields else made


def _model(reading: Reading) -> dict[str, Plain]:
    """Return ``googleai/gemini-2.5-flash`` and the settings in ``config`` as a model."""
    model, config = reading.fields.get("model"), reading.fields.get("config")
    made: dict[str, Plain] = {}
    if model is not None:
        provider, slash, name = reading.text(model, "model").partition("/")
        if slash and not (provider and name):
            raise reading.fault(model, f"model is {model.value!r}, and must be as provider/name")
        made = {"id": written(name, model), "provider": written(provider, model)} if slash else {"id": model}
    options = reading.options(reading.mapping(config, "config"), {}, "config")
    if options and config is not None:
        made["options"] = written(options, config)
    return made


def _known(reading: Reading, part: str, names: Sequence[str]) -> dict[str, Node]:
    """Return the fields of ``input`` or ``output``, none of them unknown."""
    given = reading.mapping(reading.fields.get(part), part)
    for name, node in given.items():
        if name not in names:
            what = f"{part} has the field {name!r}{did_you_mean(name, names)}; it has {' and '.join(names)}"
            raise reading.source.pointed(node.key_at, what)
    return given


def _inputs(reading: Reading) -> dict[str, Node]:
    given = _known(reading, "input", _INPUT)
    schema = given.get("schema")
    made = {} if schema is None or schema.value is None else _properties(schema, reading, "input.schema")
    for name, node in reading.mapping(given.get("default"), "input.default").items():
        fields = reading.mapping(made.get(name, written({"kind": kind_of(node.value)}, node)), name)
        kind = str(fields["kind"].value)
        if not fits(node, kind):
            raise reading.source.refused(node, f"input.default.{name} is", f", and by input.schema of the kind {kind}")
        made[name] = written({**fields, "default": node}, node)
    return made


def _outputs(reading: Reading) -> tuple[dict[str, Node], dict[str, Node]]:
    """Return the outputs, and what Prompty v2 has no place for, which is kept as metadata."""
    given = _known(reading, "output", _OUTPUT)
    schema, form = given.get("schema"), given.get("format")
    name = None if form is None else reading.text(form, "output.format")
    if form is not None and name not in _FORMATS and (near := did_you_mean(str(name), _FORMATS)):
        raise reading.fault(form, f"output.format is {name!r}{near}; the formats are {', '.join(_FORMATS)}")
    has_schema = schema is not None and schema.value is not None
    if schema is not None and has_schema and name in (None, "json"):
        return _properties(schema, reading, "output.schema"), {}
    if not has_schema and name in (None, "text"):
        return {}, {}
    what = f"output.format {name} has no place in Prompty v2: output is kept as metadata, and no request asks for it"
    reading.note(reading.fields["output"], what)
    return {}, given


def _tools(reading: Reading, part: str) -> list[Node]:
    """Return tools by their names, which are those of a program, or written out."""
    node = reading.fields.get(part)
    if node is None or node.value is None:
        return []
    items = reading.source.list_of(node, part, "are")
    return [_tool(item, reading, f"{part}[{index}]") for index, item in enumerate(items)]


def _tool(item: Node, reading: Reading, where: str) -> Node:
    if not isinstance(item.value, dict):
        name = reading.text(item, where)
        reading.note(item, f"{where} names a tool of some program: give the tool {name!r} itself, as tools=")
        return written({"name": item, "kind": "named"}, item)
    given = dict(item.value)
    schema = given.pop("inputSchema", None)
    if given.pop("outputSchema", None) is not None:
        reading.note(item, f"{where}.outputSchema is not carried over: no provider takes one")
    if schema is not None:
        given["parameters"] = written(_properties(schema, reading, f"{where}.inputSchema"), schema)
    return written({"kind": "function", **given}, item)


_MARKS = (RoleMark, HistoryMark, MediaMark, SectionMark)


def has_marks(parts: Sequence[str]) -> bool:
    """Return True if marks of a template say where its sections begin, or the history goes, or media."""
    return any(isinstance(part, Value) and isinstance(part.held, _MARKS) for part in parts)


def marked_sections(parts: Sequence[str]) -> list[Section]:
    """Take a filled template apart by its marks.

    Args:
        parts: The template's own text, and values.

    Returns:
        The sections that say something; the place of the history is one of its own, with a thread without a name.

    Raises:
        TemplateError: A mark names a role that there is not.
    """
    found: list[tuple[str, list[str]]] = [("user", [])]
    for part in parts:
        held = part.held if isinstance(part, Value) else None
        if isinstance(held, RoleMark):
            found.append((_role(held.role), []))
        elif isinstance(held, HistoryMark):
            place: list[str] = [Value("", "history", Thread("", ()))]
            found += (("", place), ("assistant", []))
        elif isinstance(held, MediaMark):
            found[-1][1].append(Value("", part.source if isinstance(part, Value) else "", _medium(held)))
        elif not isinstance(held, SectionMark):
            found[-1][1].append(part)
    return [
        Section(role or "user", {}, tuple(run))
        for role, run in found
        if not role or any(part.strip() or (isinstance(part, Value) and part.held) for part in run)
    ]


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
    path = address.partition("?")[0].lower()
    by_suffix = next((name for name, suffixes in _BY_SUFFIX.items() if path.endswith(suffixes)), "image")
    kind = (source.media_type or "").partition("/")[0] or by_suffix
    return Medium("media", MEDIA.get(kind, MEDIA["file"])(source))


def shown_mark(held: object) -> str:
    """Return a mark as dotprompt writes it, to be looked at; ``""`` for anything else."""
    match held:
        case RoleMark(role):
            return f"<<<dotprompt:role:{role}>>>"
        case HistoryMark():
            return "<<<dotprompt:history>>>"
        case MediaMark(url):
            return f"<<<dotprompt:media:url {url}>>>"
        case SectionMark(name):
            return f"<<<dotprompt:section {name}>>>"
        case _:
            return ""
