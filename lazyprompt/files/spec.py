"""What the front matter of a prompt file says, read field by field.

The fields are those of Prompty v2 (its specification, sections 2.3 to 2.9). A field that is not known is no
fault: it is kept among the metadata.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

from lazyprompt.errors import did_you_mean
from lazyprompt.files.properties import Property, PropertyReader, schema_of
from lazyprompt.files.yaml_nodes import KINDS, Node, plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.files.yaml_nodes import Source

ENGINES: Final = ("jinja2", "mustache", "handlebars")
"""The syntaxes of templates."""

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
    reader = _Reader(source)
    properties = PropertyReader(source)
    texts = {name: reader.text(fields.get(name), name) for name in (*_TEXTS, "instructions")}
    others = {name: _json(node) for name, node in fields.items() if name not in FIELDS}
    template = reader.mapping(fields.get("template"), "template", "Invalid template format: ")
    template = {name: _of_kind(each) for name, each in template.items()}
    tools = fields.get("tools")
    return Spec(
        texts["name"],
        texts["displayName"],
        texts["description"],
        {**others, **reader.mapping(fields.get("metadata"), "metadata")},
        reader.model(fields.get("model")),
        properties.listed(fields["inputs"], "inputs") if "inputs" in fields else (),
        properties.listed(fields["outputs"], "outputs") if "outputs" in fields else (),
        () if tools is None else tuple(reader.tools(tools, properties)),
        reader.engine(fields.get("template")),
        template,
        texts["instructions"],
    )


class _Reader:
    """Reads fields, and says where they are not what they must be."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def text(self, node: Node | None, where: str) -> str | None:
        if node is None or node.value is None:
            return None
        if isinstance(node.value, list | dict):
            raise self._source.pointed(node.at, f"{where} is {KINDS[type(node.value)]}, and must be text")
        return node.value if isinstance(node.value, str) else str(_json(node))

    def mapping(self, node: Node | None, where: str, says: str = "") -> dict[str, Json]:
        if node is None or node.value is None:
            return {}
        if not isinstance(node.value, dict):
            raise self._source.pointed(node.at, f"{says}{where} is {KINDS[type(node.value)]}, and must be a mapping")
        return {name: _json(item) for name, item in node.value.items()}

    def model(self, node: Node | None) -> dict[str, Json]:
        """The model; a name alone is its ``id``."""
        if node is not None and isinstance(node.value, str):
            return {"id": node.value}
        made = self.mapping(node, "model")
        fields = node.value if node is not None and isinstance(node.value, dict) else {}
        for part in ("connection", "options"):
            self.mapping(fields.get(part), f"model.{part}")
        return made | {part: self.text(fields[part], f"model.{part}") for part in _TEXTS_OF_MODEL if part in fields}

    def engine(self, node: Node | None) -> str:
        """The syntax of the template: ``template.format``, as text or as a mapping with ``kind``."""
        if node is None or not isinstance(node.value, dict) or "format" not in node.value:
            return ENGINES[0]
        form = node.value["format"]
        kind = form.value.get("kind") if isinstance(form.value, dict) else form
        name = None if kind is None else kind.value
        if name is None:
            return ENGINES[0]
        if not isinstance(name, str) or name not in ENGINES:
            known = f"{did_you_mean(str(name), ENGINES)}; the formats are {', '.join(ENGINES)}"
            raise self._source.pointed(form.at, f"Invalid template format: {name!r} is none{known}")
        return name

    def tools(self, node: Node, properties: PropertyReader) -> list[ToolSpec]:
        """Tools as a list of mappings with names, or as a mapping by names."""
        if node.value is None:
            return []
        if isinstance(node.value, dict):
            return [self._tool(item, properties, f"tools.{name}", name) for name, item in node.value.items()]
        if not isinstance(node.value, list):
            what = f"tools are {KINDS[type(node.value)]}; they are a list, or a mapping by their names"
            raise self._source.pointed(node.at, what)
        found: dict[str, ToolSpec] = {}
        for index, item in enumerate(node.value):
            made = self._tool(item, properties, f"tools[{index}]")
            if made.name in found:
                raise self._source.pointed(item.at, f"tools[{index}]: there is a second one of the name {made.name!r}")
            found[made.name] = made
        return [*found.values()]

    def _tool(self, node: Node, properties: PropertyReader, where: str, name: str = "") -> ToolSpec:
        if not isinstance(node.value, dict):
            raise self._source.pointed(node.at, f"{where} is {KINDS[type(node.value)]}; a tool is a mapping")
        fields = node.value
        own = name or self.text(fields.get("name"), f"{where}.name")
        if not own:
            raise self._source.pointed(node.at, f"{where} has no name")
        parameters = fields.get("parameters")
        schema = None
        if parameters is not None and _is_schema(parameters):
            schema, parameters = cast("JsonObject", _json(parameters)), None
        strict = fields.get("strict")
        if strict is not None and not isinstance(strict.value, bool):
            raise self._source.pointed(strict.at, f"{where}.strict is true or false")
        return ToolSpec(
            own,
            self.text(fields.get("kind"), f"{where}.kind") or "function",
            self.text(fields.get("description"), f"{where}.description"),
            () if parameters is None else properties.listed(parameters, f"{where}.parameters"),
            None if strict is None else cast("bool", strict.value),
            self._bindings(fields.get("bindings"), f"{where}.bindings"),
            {
                key: _of_kind(_json(item)) if key == "approvalMode" else _json(item)
                for key, item in fields.items()
                if key not in FIELDS_OF_TOOL
            },
            schema,
        )

    def _bindings(self, node: Node | None, where: str) -> dict[str, str]:
        """Which parameters are filled from which inputs: ``param: input``, or ``param: {input: name}``."""
        if node is None or node.value is None:
            return {}
        if not isinstance(node.value, dict):
            raise self._source.pointed(node.at, f"{where} are a mapping of parameters to inputs")
        found: dict[str, str] = {}
        for name, item in node.value.items():
            given = item.value.get("input") if isinstance(item.value, dict) else item
            if given is None or not isinstance(given.value, str):
                raise self._source.pointed(item.at, f"{where}.{name} is the name of an input, or {{input: its name}}")
            found[name] = given.value
        return found


def _is_schema(node: Node) -> bool:
    """Whether parameters are JSON Schema, and not a mapping by their names."""
    fields = node.value if isinstance(node.value, dict) else {}
    return "properties" in fields or ("type" in fields and fields["type"].value == "object")


def _of_kind(value: Json) -> Json:
    """A mapping with a ``kind``, where its kind alone is written."""
    return {"kind": value} if isinstance(value, str) else value


def _json(node: Node) -> Json:
    return cast("Json", plain(node))
