"""What the front matter of a prompt file says, read field by field.

The fields are those of Prompty v2 (its specification, sections 2.3 to 2.9). A field that is not known is no
fault: it is kept among the metadata.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from jinja2 import ChainableUndefined

from lazyprompt.errors import did_you_mean
from lazyprompt.files.properties import read_named, read_properties, schema_of
from lazyprompt.files.yaml_nodes import plain
from lazyprompt.templates.handlebars import HandlebarsTemplate
from lazyprompt.templates.jinja import JinjaTemplate
from lazyprompt.templates.mustache import MustacheTemplate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.files.properties import Property
    from lazyprompt.files.yaml_nodes import Node, Source

Template: TypeAlias = JinjaTemplate | MustacheTemplate | HandlebarsTemplate


@dataclass(frozen=True)
class Engine:
    """A syntax of templates.

    Args:
        parse: What reads a template.
        absent: What stands for an input, by its name, that is declared and not given.
    """

    parse: Callable[..., Template]
    absent: Callable[[str], object]


ENGINES: Final[Mapping[str, Engine]] = {
    # Empty, and undefined to Jinja's tests, so that ``is defined`` and ``default`` know it.
    "jinja2": Engine(partial(JinjaTemplate, is_portable=True), lambda name: ChainableUndefined(name=name)),
    "mustache": Engine(MustacheTemplate, lambda _: ""),
    "handlebars": Engine(HandlebarsTemplate, lambda _: ""),
}
"""The syntaxes by the names that ``template.format`` has for them."""

_TEXTS = ("name", "displayName", "description")
FIELDS: Final = (*_TEXTS, "metadata", "model", "inputs", "outputs", "tools", "template", "instructions", "kind")
"""The fields of a front matter that mean something here."""

FIELDS_OF_MODEL: Final = ("id", "provider", "apiType", "connection", "options")
"""The fields of a model."""

_TEXTS_OF_MODEL = ("id", "provider", "apiType")

FIELDS_OF_TOOL: Final = ("name", "kind", "description", "parameters", "strict", "bindings")
"""The fields of a tool; tools of other kinds than functions have more."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool that a prompt file names.

    Args:
        name: Its name.
        kind: ``function``, ``mcp``, ``openapi``, or a kind of the runtime's own.
        description: What it does.
        parameters: What it takes.
        strict: Whether its schema keeps the rules of strict schemas.
        bindings: Parameters that are filled from inputs, by the inputs' names: the model does not see them.
        fields: What else is said of it.
        schema: The JSON Schema of what it takes, where the file gives one in the place of parameters.
    """

    name: str
    kind: str = "function"
    description: str | None = None
    parameters: tuple[Property, ...] = ()
    strict: bool | None = None
    bindings: Mapping[str, str] = field(default_factory=dict[str, str])
    fields: Mapping[str, Json] = field(default_factory=dict[str, "Json"])
    schema: JsonObject | None = None

    def to_dict(self) -> JsonObject:
        """The tool as a front matter says it."""
        parameters: Json = deepcopy(self.schema) or [each.to_dict() for each in self.parameters] or None
        bindings: Json = {name: {"input": source} for name, source in self.bindings.items()} or None
        told: dict[str, Json] = {
            "name": self.name,
            "kind": self.kind,
            "description": self.description,
            "parameters": parameters,
            "strict": self.strict,
            "bindings": bindings,
            **deepcopy(dict(self.fields)),
        }
        return {name: value for name, value in told.items() if value is not None}

    def function(self) -> JsonObject:
        """The tool in OpenAI's form, without what inputs fill."""
        shown = tuple(each for each in self.parameters if each.name not in self.bindings)
        made: JsonObject = {"name": self.name}
        if self.description:
            made["description"] = self.description
        made["parameters"] = self._own_schema() or schema_of(shown, strict=bool(self.strict))
        if self.strict is not None:
            made["strict"] = self.strict
        return {"type": "function", "function": made}

    def _own_schema(self) -> JsonObject | None:
        """The schema that the file gives, without what inputs fill."""
        made = deepcopy(self.schema)
        if made is None or not self.bindings:
            return made
        properties, required = made.get("properties"), made.get("required")
        if isinstance(properties, dict):
            made["properties"] = {name: value for name, value in properties.items() if name not in self.bindings}
        if isinstance(required, list):
            made["required"] = [name for name in required if name not in self.bindings]
        return made


@dataclass(frozen=True, slots=True)
class Spec:
    """What a front matter says.

    Args:
        name: The prompt's name.
        display_name: Its name for people.
        description: What it is for.
        metadata: What else is said of it.
        model: The model: ``id``, ``provider``, ``apiType``, ``connection``, ``options``; empty where none is named.
        inputs: What it takes.
        outputs: What it gives.
        tools: The tools that the model may call.
        engine: The syntax of its template, one of :data:`ENGINES`.
        template: The field ``template``.
        instructions: The template, where the front matter holds it.
    """

    name: str | None = None
    display_name: str | None = None
    description: str | None = None
    metadata: Mapping[str, Json] = field(default_factory=dict[str, "Json"])
    model: Mapping[str, Json] = field(default_factory=dict[str, "Json"])
    inputs: tuple[Property, ...] = ()
    outputs: tuple[Property, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    engine: str = "jinja2"
    template: Mapping[str, Json] = field(default_factory=dict[str, "Json"])
    instructions: str | None = None

    def to_dict(self) -> JsonObject:
        """The front matter in its canonical form; what is not said is not in it."""
        told: dict[str, Json] = {
            "kind": "prompt",
            "name": self.name,
            "displayName": self.display_name,
            "description": self.description,
            "metadata": deepcopy(dict(self.metadata)) or None,
            "model": deepcopy(dict(self.model)) or None,
            "inputs": [each.to_dict() for each in self.inputs] or None,
            "outputs": [each.to_dict() for each in self.outputs] or None,
            "tools": [each.to_dict() for each in self.tools] or None,
            "template": deepcopy(dict(self.template)) or None,
            "instructions": self.instructions,
        }
        return {name: value for name, value in told.items() if value is not None}


def read_spec(fields: Mapping[str, Node], source: Source) -> Spec:
    """Read a front matter.

    Args:
        fields: Its fields, with all references looked up.
        source: The file.

    Raises:
        PromptFileError: A field is not what it must be; the message has its place.
    """
    texts = {name: _text(source, fields.get(name), name) for name in (*_TEXTS, "instructions")}
    others = {name: plain(node) for name, node in fields.items() if name not in FIELDS}
    template, tools = fields.get("template"), fields.get("tools")
    if template is not None and not isinstance(template.value, dict | None):
        raise source.refused(template, "Invalid template format: template is", ", and must be a mapping")
    return Spec(
        texts["name"],
        texts["displayName"],
        texts["description"],
        {**others, **_values(source, fields.get("metadata"), "metadata")},
        _model(source, fields.get("model")),
        read_properties(source, fields.get("inputs"), "inputs"),
        read_properties(source, fields.get("outputs"), "outputs"),
        () if tools is None else tuple(read_named(source, tools, "tools", _tool, _tool)),
        _engine(source, template),
        {name: _of_kind(each) for name, each in _values(source, template, "template").items()},
        texts["instructions"],
    )


def _text(source: Source, node: Node | None, where: str) -> str | None:
    """A field that is text, or a number or word, which counts as the text that it is written as."""
    if node is not None and isinstance(node.value, int | float):
        return str(node.value)
    return source.text_of(node, where)


def _values(source: Source, node: Node | None, where: str) -> dict[str, Json]:
    return {name: plain(item) for name, item in source.mapping_of(node, where).items()}


def _model(source: Source, node: Node | None) -> dict[str, Json]:
    """The model; a name alone is its ``id``."""
    if node is not None and isinstance(node.value, str):
        return {"id": node.value}
    fields = source.mapping_of(node, "model")
    for part in ("connection", "options"):
        source.mapping_of(fields.get(part), f"model.{part}")
    texts = {part: _text(source, fields[part], f"model.{part}") for part in _TEXTS_OF_MODEL if part in fields}
    return {**_values(source, node, "model"), **texts}


def _engine(source: Source, template: Node | None) -> str:
    """The syntax of the template: ``template.format``, as text or as a mapping with ``kind``."""
    form = source.mapping_of(template, "template").get("format")
    kind = form.value.get("kind") if form is not None and isinstance(form.value, dict) else form
    name = None if kind is None else kind.value
    if form is not None and name is not None and (not isinstance(name, str) or name not in ENGINES):
        known = f"{did_you_mean(str(name), ENGINES)}; the formats are {', '.join(ENGINES)}"
        raise source.pointed(form.at, f"Invalid template format: {name!r} is none{known}")
    return name if isinstance(name, str) else "jinja2"


def _tool(source: Source, node: Node, where: str, name: str) -> ToolSpec:
    if not isinstance(node.value, dict):
        raise source.refused(node, f"{where} is", "; a tool is a mapping")
    fields = node.value
    parameters, strict = fields.get("parameters"), fields.get("strict")
    schema = parameters is not None and _is_schema(parameters)
    if strict is not None and not isinstance(strict.value, bool):
        raise source.pointed(strict.at, f"{where}.strict is true or false")
    return ToolSpec(
        name or _text(source, fields.get("name"), f"{where}.name") or "",
        _text(source, fields.get("kind"), f"{where}.kind") or "function",
        _text(source, fields.get("description"), f"{where}.description"),
        () if schema else read_properties(source, parameters, f"{where}.parameters"),
        None if strict is None else bool(strict.value),
        _bindings(source, fields.get("bindings"), f"{where}.bindings"),
        {
            key: _of_kind(plain(item)) if key == "approvalMode" else plain(item)
            for key, item in fields.items()
            if key not in FIELDS_OF_TOOL
        },
        _values(source, parameters, f"{where}.parameters") if schema else None,
    )


def _bindings(source: Source, node: Node | None, where: str) -> dict[str, str]:
    """Which parameters are filled from which inputs: ``param: input``, or ``param: {input: name}``."""
    if node is None or node.value is None:
        return {}
    if not isinstance(node.value, dict):
        raise source.pointed(node.at, f"{where} are a mapping of parameters to inputs")
    found: dict[str, str] = {}
    for name, item in node.value.items():
        given = item.value.get("input") if isinstance(item.value, dict) else item
        if given is None or not isinstance(given.value, str):
            raise source.pointed(item.at, f"{where}.{name} is the name of an input, or {{input: its name}}")
        found[name] = given.value
    return found


def _is_schema(node: Node) -> bool:
    """True if parameters are JSON Schema, and not a mapping by their names."""
    fields = node.value if isinstance(node.value, dict) else {}
    return "properties" in fields or ("type" in fields and fields["type"].value == "object")


def _of_kind(value: Json) -> Json:
    """A mapping with a ``kind``, where its kind alone is written."""
    return {"kind": value} if isinstance(value, str) else value
