"""The parsed front matter of a prompt file, and the types for translating other dialects to Prompty v2.

The fields are defined in the Prompty v2 specification, sections 2.3 to 2.9. Unknown fields are kept as metadata.
"""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from lazyprompt.errors import PromptFileError, did_you_mean
from lazyprompt.files.properties import Property, kind_of, read_named, read_properties, schema_of
from lazyprompt.files.yaml_nodes import Node, SourceText, plain
from lazyprompt.templates.jinja import JinjaTemplate
from lazyprompt.templates.mustache import MustacheTemplate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.files.references import References


Template: TypeAlias = JinjaTemplate | MustacheTemplate


ENGINES: Final[Mapping[str, Callable[..., Template]]] = {
    "jinja2": partial(JinjaTemplate, is_portable=True),
    "mustache": MustacheTemplate,
}
"""The template parsers, by template syntax."""

_FORMATS: Final = {**{each: each for each in ENGINES}, "nunjucks": "jinja2"}
"""The template syntaxes, by the value of ``template.format``."""

_TEXTS = ("name", "displayName", "description")
FIELDS: Final = (*_TEXTS, "metadata", "model", "inputs", "outputs", "tools", "template", "instructions", "kind")
"""The known fields of the front matter."""

FIELDS_OF_MODEL: Final = ("id", "provider", "apiType", "connection", "options")
"""The fields of a model."""

_TEXTS_OF_MODEL = ("id", "provider", "apiType")

FIELDS_OF_TOOL: Final = ("name", "kind", "description", "parameters", "strict", "bindings")
"""The fields of a function tool; other kinds of tools have more fields."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool in a prompt file.

    Args:
        name: The tool's name.
        kind: ``function``, ``mcp``, ``openapi``, or a runtime-specific kind.
        description: The tool's description.
        parameters: The tool's parameters.
        strict: True if the schema is strict, or None if the file doesn't specify ``strict``.
        bindings: The names of the inputs that are bound to the tool's parameters, by parameter name. The model doesn't
            receive bound parameters.
        fields: All other fields of the tool.
        schema: The JSON Schema of the parameters, if the file contains a schema instead of a list of parameters.
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
        """Return the tool in the format of the front matter."""
        made: dict[str, Json] = {
            "name": self.name,
            "kind": self.kind,
            "description": self.description,
            "parameters": deepcopy(self.schema) or [each.to_dict() for each in self.parameters] or None,
            "strict": self.strict,
            "bindings": {name: {"input": source} for name, source in self.bindings.items()} or None,
            **deepcopy(dict(self.fields)),
        }
        return {name: value for name, value in made.items() if value is not None}

    def function(self) -> JsonObject:
        """Return the tool in OpenAI's format, without bound parameters."""
        parameters = deepcopy(self.schema)
        if parameters is None:
            shown = tuple(each for each in self.parameters if each.name not in self.bindings)
            parameters = schema_of(shown, strict=bool(self.strict))
        properties, required = parameters.get("properties"), parameters.get("required")
        if isinstance(properties, dict):
            parameters["properties"] = {name: properties[name] for name in properties if name not in self.bindings}
        if isinstance(required, list):
            parameters["required"] = [name for name in required if name not in self.bindings]
        description: JsonObject = {"description": self.description} if self.description else {}
        strict: JsonObject = {} if self.strict is None else {"strict": self.strict}
        return {"type": "function", "function": {"name": self.name, **description, "parameters": parameters, **strict}}


@dataclass(frozen=True, slots=True)
class Spec:
    """The parsed front matter of a prompt file.

    Args:
        name: The prompt's name.
        display_name: The prompt's name for display.
        description: The prompt's description.
        metadata: The metadata and unknown fields.
        model: The model's ``id``, ``provider``, ``apiType``, ``connection`` and ``options``; empty if no model is set.
        inputs: The inputs.
        outputs: The outputs.
        tools: The tools that the model may call.
        engine: The template syntax, a key of :data:`ENGINES`.
        template: The contents of the field ``template``.
        instructions: The template, if it is part of the front matter.
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
        """Return the front matter in its canonical format, without empty fields."""
        made: dict[str, Json] = {
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
        return {name: value for name, value in made.items() if value is not None}


def read_spec(fields: Mapping[str, Node], source: SourceText) -> Spec:
    """Parse the front matter of a prompt file.

    Args:
        fields: The front matter's fields by name, with all references resolved.
        source: The text of the prompt file, for positions in error messages.

    Raises:
        PromptFileError: A field is invalid; the message contains its position.
    """
    name, display_name, description, instructions = (
        _text(source, fields.get(each), each) for each in (*_TEXTS, "instructions")
    )
    others = {each: plain(node) for each, node in fields.items() if each not in FIELDS}
    template, tools = fields.get("template"), fields.get("tools")
    if template is not None and not isinstance(template.value, dict | None):
        raise source.wrong_kind(template, "Invalid template format: template must be a mapping")
    return Spec(
        name,
        display_name,
        description,
        {**others, **_values(source, fields.get("metadata"), "metadata")},
        _model(source, fields.get("model")),
        read_properties(source, fields.get("inputs"), "inputs"),
        read_properties(source, fields.get("outputs"), "outputs"),
        () if tools is None else tuple(read_named(source, tools, "tools", _tool, _tool)),
        _engine(source, template),
        {each: _of_kind(value) for each, value in _values(source, template, "template").items()},
        instructions,
    )


def _text(source: SourceText, node: Node | None, where: str) -> str | None:
    """Return a text field; numbers and booleans are converted to text."""
    if node is not None and isinstance(node.value, int | float):
        return str(node.value)
    return source.text_of(node, where)


def _values(source: SourceText, node: Node | None, where: str) -> dict[str, Json]:
    return {name: plain(item) for name, item in source.mapping_of(node, where).items()}


def _model(source: SourceText, node: Node | None) -> dict[str, Json]:
    if node is not None and isinstance(node.value, str):
        return {"id": node.value}  # a bare name
    fields = source.mapping_of(node, "model")
    for part in ("connection", "options"):
        source.mapping_of(fields.get(part), f"model.{part}")
    texts = {part: _text(source, fields[part], f"model.{part}") for part in _TEXTS_OF_MODEL if part in fields}
    return {**_values(source, node, "model"), **texts}


def _engine(source: SourceText, template: Node | None) -> str:
    """Return the template syntax from ``template.format``, which is text or a mapping with ``kind``."""
    form = source.mapping_of(template, "template").get("format")
    kind = form.fields.get("kind") if form is not None and isinstance(form.value, dict) else form
    name = None if kind is None else kind.value
    if form is not None and name is not None and name not in [*_FORMATS]:
        known = f"{did_you_mean(str(name), _FORMATS)}; the formats are {', '.join(_FORMATS)}"
        raise source.fault_at(form.at, f"Invalid template format {name!r}{known}")
    return _FORMATS[str(name or "jinja2")]


def _tool(source: SourceText, node: Node, where: str, name: str) -> ToolSpec:
    if not isinstance(node.value, dict):
        raise source.wrong_kind(node, f"{where} must be a mapping")
    fields = node.value
    parameters, strict = fields.get("parameters"), fields.get("strict")
    # The parameters can be a JSON Schema instead of a mapping of parameters by name.
    type_ = None if parameters is None else parameters.fields.get("type")
    schema = parameters is not None and ("properties" in parameters.fields or (type_ and type_.value == "object"))
    if strict is not None and not isinstance(strict.value, bool):
        raise source.fault_at(strict.at, f"{where}.strict must be true or false")
    others = {key: plain(item) for key, item in fields.items() if key not in FIELDS_OF_TOOL}
    return ToolSpec(
        name or _text(source, fields.get("name"), f"{where}.name") or "",
        _text(source, fields.get("kind"), f"{where}.kind") or "function",
        _text(source, fields.get("description"), f"{where}.description"),
        () if schema else read_properties(source, parameters, f"{where}.parameters"),
        None if strict is None else bool(strict.value),
        _bindings(source, fields.get("bindings"), f"{where}.bindings"),
        {key: _of_kind(value) if key == "approvalMode" else value for key, value in others.items()},
        _values(source, parameters, f"{where}.parameters") if schema else None,
    )


def _bindings(source: SourceText, node: Node | None, where: str) -> dict[str, str]:
    """Return the input bound to each parameter, from ``param: input`` or ``param: {input: name}``."""
    if node is not None and node.value is not None and not isinstance(node.value, dict):
        raise source.fault_at(node.at, f"{where} must be a mapping of parameters to inputs")
    found: dict[str, str] = {}
    for name, item in (node.fields if node is not None else {}).items():
        given = item.value.get("input") if isinstance(item.value, dict) else item
        if given is None or not isinstance(given.value, str):
            raise source.fault_at(item.at, f"{where}.{name} must be the name of an input, or {{input: name}}")
        found[name] = given.value
    return found


def _of_kind(value: Json) -> Json:
    """Convert a kind that is written as text to a mapping with the key ``kind``."""
    return {"kind": value} if isinstance(value, str) else value


OPTIONS: Final[Mapping[str, tuple[type, ...]]] = {
    "temperature": (int, float),
    "maxOutputTokens": (int,),
    "topP": (int, float),
    "topK": (int, float),
    "frequencyPenalty": (int, float),
    "presencePenalty": (int, float),
    "seed": (int,),
    "stopSequences": (list,),
    "allowMultipleToolCalls": (bool,),
    "reasoningEffort": (str,),
}
"""The model options of Prompty v2, with their types."""

OTHERS: Final = "additionalProperties"
"""The option that contains all options without a name in Prompty v2."""


def snake_names(options: Iterable[str]) -> dict[str, str]:
    """Map each option name to its snake_case form, such as ``topP`` to ``top_p``."""
    return {name: re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", name) for name in options}


class Note(NamedTuple):
    """A note about prompt file content that was translated from another dialect or dropped.

    Attributes:
        line: The line number in the prompt file, counted from 1.
        column: The column number in the line, counted from 1.
        text: A description of how the content was translated, or why it was dropped.
    """

    line: int
    column: int
    text: str

    def __str__(self) -> str:
        return f"{self.line}:{self.column}: {self.text}"


class Translated(NamedTuple):
    """A file translated to Prompty v2.

    Attributes:
        fields: The fields of the front matter.
        body: The template after the front matter.
        notes: Notes on the changes that the translation made to the file.
    """

    fields: dict[str, Node]
    body: str
    notes: tuple[Note, ...] = ()


class DialectFile:
    """A file in any dialect, which can be translated to Prompty v2.

    Args:
        source: The file to translate.
        fields: The front matter, with all references resolved.
        body: The template after the front matter.
        references: The values and directories used to resolve references during the translation, such as a
            path to sample values.
    """

    def __init__(self, source: SourceText, fields: dict[str, Node], body: str, references: References) -> None:
        self.source, self.fields, self.body, self.references = source, fields, body, references
        self.notes: list[Note] = []

    def note(self, node: Node, text: str) -> None:
        """Add a note about a changed field."""
        self.notes.append(Note(*self.source.place(node.key_at), text))

    def fault(self, node: Node, what: str) -> PromptFileError:
        """Create an error that states the line and column of a field."""
        return self.source.fault_at(node.at, what)

    def mapping(self, node: Node | None, where: str) -> dict[str, Node]:
        """Return a copy of a mapping field; see :meth:`SourceText.mapping_of`."""
        return self.source.mapping_of(node, where)

    def text(self, node: Node, where: str) -> str:
        """Return the text of a field, which must not be empty."""
        if not isinstance(node.value, str) or not node.value:
            raise self.source.wrong_kind(node, f"{where} must be non-empty text")
        return node.value


def fits(node: Node, kind: str) -> bool:
    """Return True if a value is valid for an input of the given kind, such as ``string`` or ``thread``."""
    found = kind_of(node.value)
    also = {"float": "integer", "thread": "array"}.get(kind)
    return node.value is None or kind in (found, "union") or found == also
