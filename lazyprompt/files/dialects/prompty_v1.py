"""Translation of prompt files from the Prompty v1 dialect to Prompty v2.

The field ``sample`` of an optional input becomes ``default``, because the v1 runtime used the sample if an input had no
value. The field ``sample`` of a required input becomes ``example``. If a sample doesn't match its input's type, the
input accepts values of any type, because the v1 runtime didn't check types.

Sources: the v1 schema for the front matter, and the behaviour of the v1 runtime.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from lazyprompt.errors import did_you_mean
from lazyprompt.files.properties import KINDS_OF_PROPERTY, kind_of
from lazyprompt.files.roles import ROLES, Section
from lazyprompt.files.spec import OPTIONS, OTHERS, DialectFile, Translated, fits, snake_names
from lazyprompt.files.turns import Step, result_turn, steps_with_media
from lazyprompt.files.yaml_nodes import Node, Plain, expected_kind, is_of_type, to_node

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


V1_ROLES: Final = (*ROLES, "function")
"""The role names that begin a section."""

V1_KINDS: Final[Mapping[str, str]] = {
    "number": "float",
    "double": "float",
    "int": "integer",
    "bool": "boolean",
    "str": "string",
    "text": "string",
    "image": "string",
    "list": "array",
    "tuple": "array",
    "dict": "object",
    "json": "object",
    "json_object": "object",
    "any": "union",
}
"""The v1 types whose names differ in Prompty v2."""

_TYPES = (*V1_KINDS, *KINDS_OF_PROPERTY)
_PROVIDERS = {
    **dict.fromkeys(("azure", "azure_openai", "azure_open_ai", "azure_beta", "azure_openai_beta"), "foundry"),
    **dict.fromkeys(("openai", "openai_beta"), "openai"),
    **dict.fromkeys(("serverless", "azure_serverless"), "foundry"),
}
_MODEL = ("api", "configuration", "connection", "parameters", "options", "response")
_ID = ("azure_deployment", "deployment", "model", "name")
# Prompty v2 names for v1 connection settings; all other names are converted from snake_case to camelCase.
_OF_CONNECTION = {"azure_endpoint": "endpoint", "base_url": "endpoint", "key": "apiKey"}
_OF_OPTIONS = {
    **{name: option for option, name in snake_names(OPTIONS).items()},
    **dict.fromkeys(("max_tokens", "max_completion_tokens", "max_new_tokens"), "maxOutputTokens"),
    "stop": "stopSequences",
    "parallel_tool_calls": "allowMultipleToolCalls",
}
_APIS = {"completion": "chat", **{api: api for api in ("chat", "embedding", "image", "realtime", "responses")}}
_PROPERTY = (
    *("type", "sample", "default", "description", "required", "is_required", "strict", "items", "properties"),
    *("is_chat_input", "is_chat_history"),
)
_KEPT = ("description", "kind", "enumValues", "nullable", "example")
_THREAD = re.compile(r"^[^\S\n]*+!\[thread\][^\S\n]*+$", re.MULTILINE)
_THREAD_SLOT = "{{thread}}"
_OF_PROMPTFLOW = re.compile(r"data:image/[\w.+-]+;(?:path|url):")
_ALIKE = 0.75


def v1_fields(reading: DialectFile) -> Translated:
    """Translate a v1 file to Prompty v2; the line ``![thread]`` becomes an input named ``thread``.

    Args:
        reading: The file to translate.

    Raises:
        PromptFileError: A field is invalid, or ``base`` names another file.
    """
    given = reading.fields
    if "base" in given:
        what = "base, which inherits the fields of another file, is not supported; copy its fields here"
        raise reading.source.fault_at(given["base"].key_at, what)
    place = next(iter(given.values()), Node(None, 0, 0))
    made = {name: node for name, node in given.items() if name not in ("sample", "outputs")}
    tools: list[Node] = []
    if "model" in given and isinstance(given["model"].value, dict):
        made["model"] = to_node(_model(given["model"], tools, reading), given["model"])
    inputs = _inputs(reading)
    body = _THREAD.sub(_THREAD_SLOT, reading.body)
    if body != reading.body and "thread" not in inputs:
        inputs["thread"] = to_node({"kind": "thread"}, place)
        reading.note(place, f"![thread] in the template becomes {_THREAD_SLOT}, an input of kind thread")
    if inputs:
        inputs = {name: _with_items(node, reading) for name, node in inputs.items()}
        made["inputs"] = to_node(inputs, given.get("inputs") or given.get("sample") or place)
    if "outputs" in given:
        made["metadata"] = _with_outputs(given.get("metadata"), given["outputs"], reading)
    if "template" in given:
        made["template"] = _template(given["template"], reading)
    if "tools" in given:
        tools = [*reading.source.list_of(_resolve(given["tools"], reading), "tools"), *tools]
    if tools or "tools" in given:
        made["tools"] = to_node([_tool(item, reading) for item in tools], given.get("tools") or tools[0])
    return Translated(made, body, tuple(sorted(reading.notes)))


def _with_outputs(metadata: Node | None, node: Node, reading: DialectFile) -> Node:
    """Add the outputs to the metadata, because outputs in v1 only describe the response."""
    reading.note(node, "outputs becomes metadata.outputs: in v1, outputs do not request structured output")
    fields = reading.mapping(metadata, "metadata")
    return to_node({**fields, "outputs": to_node(_declared("outputs", reading), node)}, node)


def _template(node: Node, reading: DialectFile) -> Node:
    """Convert ``jinja2`` or ``{type: jinja2}`` to ``{format: jinja2}``."""
    fields = {"type": node} if isinstance(node.value, str) else reading.mapping(node, "template")
    if "type" not in fields:
        return node
    reading.note(node, "template becomes template.format")
    return to_node({"format" if name == "type" else name: item for name, item in fields.items()}, node)


def _model(node: Node, tools: list[Node], reading: DialectFile) -> dict[str, Plain]:
    given = reading.mapping(node, "model")
    made: dict[str, Plain] = {name: item for name, item in given.items() if name not in _MODEL}
    if "api" in given:
        made["apiType"] = _api(given["api"], reading)
    for name in ("configuration", "connection"):
        if name == "connection" and name in given and isinstance(given[name].value, str):
            # In Prompty v1, a string in ``connection`` is the name of a promptflow connection.
            made["connection"] = to_node({"kind": "reference", "name": given[name]}, given[name])
            continue
        part = reading.mapping(given.get(name), f"model.{name}")
        if "kind" in part:  # A connection with a ``kind`` already has the Prompty v2 format.
            made["connection"] = given[name]
        elif part:
            made |= _configuration(part, given[name], name, reading)
    made |= _options(given, tools, reading)
    if "response" in given:
        reading.note(given["response"], "model.response is dropped: replies are always parsed completely")
    return made


def _options(given: Mapping[str, Node], tools: list[Node], reading: DialectFile) -> dict[str, Node]:
    """Return the model options, and append any tools among the options to ``tools``."""
    made: dict[str, Node] = {}
    for name in ("parameters", "options"):
        part = reading.mapping(given.get(name), f"model.{name}")
        if not part:
            continue
        if name == "parameters":
            reading.note(given[name], "model.parameters becomes model.options")
        if "tools" in part:
            reading.note(part["tools"], f"model.{name}.tools becomes tools")
            tools += reading.source.list_of(_resolve(part.pop("tools"), reading), f"model.{name}.tools")
        others = reading.mapping(part.pop(OTHERS, None), f"model.{name}.{OTHERS}")
        made |= _in_v2(part, f"model.{name}", reading)
        if others:
            made[OTHERS] = to_node({**others, **reading.mapping(made.get(OTHERS), OTHERS)}, given[name])
    return {"options": to_node(made, next(iter(made.values())))} if made else {}


def _in_v2(given: Mapping[str, Node], where: str, reading: DialectFile) -> dict[str, Node]:
    """Convert settings to Prompty v2 options; settings without a v2 name are placed under :data:`OTHERS`."""
    made: dict[str, Node] = {}
    others: dict[str, Node] = {}
    for name, node in given.items():
        option = _OF_OPTIONS.get(name, name)
        if option in OPTIONS:
            if option in made:
                raise reading.fault(node, f"{where}.{name} sets {option} a second time; remove one of the two settings")
            made[option] = _option(node, option, f"{where}.{name}", reading)
        elif near := _near(name):
            what = f"unknown setting {where}.{name} (did you mean {near!r}?)"
            raise reading.source.fault_at(node.key_at, what)
        else:
            reading.note(node, f"{where}.{name} has no name in Prompty v2: it becomes model.options.{OTHERS}.{name}")
            others[name] = node
    return {**made, **({OTHERS: to_node(others, next(iter(others.values())))} if others else {})}


def _option(node: Node, option: str, where: str, reading: DialectFile) -> Node:
    types = OPTIONS[option]
    if option == "stopSequences" and isinstance(node.value, str):
        return node._replace(value=[node])
    if node.value is not None and not is_of_type(node.value, types):
        raise reading.source.wrong_kind(node, f"{where} must be {expected_kind(types)}")
    return node


def _near(name: str) -> str:
    """Return the known setting that a name most likely misspells, or ``""``."""
    by_letters = {_letters(each): each for each in (*_OF_OPTIONS, *OPTIONS)}
    near = get_close_matches(_letters(name), by_letters, 1, _ALIKE)
    return by_letters[near[0]] if near else ""


def _letters(name: str) -> str:
    return name.replace("_", "").lower()


def _api(node: Node, reading: DialectFile) -> Node:
    api = reading.text(node, "model.api")
    if api not in _APIS:
        raise reading.fault(
            node, f"unknown model.api {api!r}{did_you_mean(api, _APIS)}; expected one of {', '.join(_APIS)}"
        )
    if api == "completion":
        reading.note(node, "model.api completion becomes apiType chat: the text is a conversation of one turn")
    return node._replace(value=_APIS[api])


def _configuration(part: dict[str, Node], node: Node, name: str, reading: DialectFile) -> dict[str, Node]:
    """Convert a model configuration of v1 to the v2 fields ``provider``, ``id`` and ``connection`` of ``model``."""
    where = f"model.{name}"
    made: dict[str, Node] = {}
    kind = part.pop("type", None)
    if kind is not None:
        text = reading.text(kind, f"{where}.type")
        if text not in _PROVIDERS and (near := did_you_mean(text, _PROVIDERS)):
            raise reading.fault(kind, f"unknown {where}.type {text!r}{near}; expected one of {', '.join(_PROVIDERS)}")
        made["provider"] = kind._replace(value=_PROVIDERS.get(text, text))
    elif "azure_deployment" in part or "azure_endpoint" in part:
        made["provider"] = to_node("foundry", node)
    named_ids = [each for each in _ID if each in part]
    if named_ids:
        made["id"] = part.pop(named_ids[0])
    named = part.pop("connection", None)
    connection: dict[str, Plain] = {_OF_CONNECTION.get(each, _camel(each)): item for each, item in part.items()}
    if named is not None:
        connection = {"kind": "reference", "name": named, **connection}
    elif connection:
        connection = {"kind": "key" if "apiKey" in connection else "anonymous", **connection}
    if connection:
        made["connection"] = to_node(connection, node)
    becomes = f"becomes {' and '.join(f'model.{each}' for each in made)}" if made else "is dropped"
    reading.note(node, f"{where} {becomes}")
    return made


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return "".join((first, *(each.capitalize() for each in others)))


def _inputs(reading: DialectFile) -> dict[str, Node]:
    """Return the inputs, with their samples as defaults."""
    made = _declared("inputs", reading)
    sample = reading.fields.get("sample")
    if sample is None:
        return made
    reading.note(sample, "sample becomes the inputs' defaults, or the examples of required inputs")
    for name, item in _samples(sample, reading).items():
        # Report an invalid value at the ``sample`` field, because the value may come from another file.
        node = item._replace(at=sample.at, key_at=sample.key_at)
        own = made.get(name, to_node({"kind": kind_of(node.value)}, node))
        fields = reading.mapping(own, f"inputs.{name}")
        made[name] = to_node(_with_sample(fields, node, f"inputs.{name}", reading), node)
    return made


def _with_items(node: Node, reading: DialectFile) -> Node:
    """Add ``items`` that accept any kind to an array input without ``items``; Prompty v2 requires the field."""
    fields = reading.mapping(node, "an input")
    if "kind" in fields and fields["kind"].value == "array":
        return to_node({"items": {"kind": "union"}, **fields}, node)
    return node


def _samples(node: Node, reading: DialectFile) -> dict[str, Node]:
    """Return the samples from the front matter, or from the file that the front matter refers to."""
    if isinstance(node.value, str):
        is_path = node.value.lower().endswith((".json", ".yaml", ".yml"))
        named = node._replace(value=f"${{file:{node.value}}}") if is_path else node
        node = _resolve(named, reading)
    return reading.mapping(node, "sample")


def _resolve(node: Node, reading: DialectFile) -> Node:
    """Resolve a reference, keeping its position; return any other value unchanged."""
    if not isinstance(node.value, str):
        return node
    found = reading.references.resolve({"": node}, reading.source)[""]
    return found._replace(at=node.at, key_at=node.key_at)


def _with_sample(fields: Mapping[str, Node], sample: Node, where: str, reading: DialectFile) -> dict[str, Node]:
    """Set a property's sample as its default, or as its example if the property is required."""
    required = fields.get("required")
    is_required = required is not None and required.value is True
    made = {**fields, "example" if is_required else "default": sample}
    kind = str(made["kind"].value) if "kind" in made else "string"
    if fits(sample, kind):
        return made
    reading.note(sample, f"{where} has type {kind}, but its sample does not: it accepts any kind")
    left = {name: node for name, node in made.items() if name not in ("items", "properties")}
    return {**left, "kind": to_node("union", sample)}


def _declared(part: str, reading: DialectFile) -> dict[str, Node]:
    """Return inputs or outputs by name, from a mapping or a list."""
    node = reading.fields.get(part)
    if node is not None and isinstance(node.value, list):
        given: dict[str, Node] = {}
        for index, item in enumerate(node.value):
            fields = reading.mapping(item, f"{part}[{index}]")
            if "name" not in fields:
                raise reading.fault(item, f"each of the {part} must have a name")
            name = reading.text(fields.pop("name"), f"{part}.name")
            given[name] = to_node(fields, item)
    else:
        given = reading.mapping(node, part)
    made = {name: _property(item, f"{part}.{name}", reading) for name, item in given.items()}
    old = {"type", "sample", "is_required"}
    if node is not None and any(isinstance(item.value, dict) and old & item.value.keys() for item in given.values()):
        reading.note(node, f"{part}: type becomes kind, with the names of Prompty v2, and sample becomes default")
    return made


def _property(node: Node, where: str, reading: DialectFile) -> Node:
    """Translate a property; a value that isn't a mapping of property fields becomes the property's default."""
    given = node.value if isinstance(node.value, dict) else None
    if given is None or not given.keys() <= {*_PROPERTY, *_KEPT}:
        if given is not None and "type" in given:
            odd = next(name for name in given if name not in (*_PROPERTY, *_KEPT))
            what = f"{where} has the field {odd!r}{did_you_mean(odd, _PROPERTY)}; it has {', '.join(_PROPERTY)}"
            raise reading.source.fault_at(given[odd].key_at, what)
        kind = kind_of(node.value)
        return to_node({"kind": kind} if node.value is None else {"kind": kind, "default": node}, node)
    made = {name: given[name] for name in (*_KEPT, "default") if name in given}
    history = given.get("is_chat_history")
    if history is not None and history.value is True:
        made["kind"] = history._replace(value="thread")
    elif "type" in given:
        made["kind"] = _kind(given["type"], f"{where}.type", reading)
    required = given.get("required") or given.get("is_required")
    if required is not None:
        made["required"] = required
    if "items" in given:
        made["items"] = _property(given["items"], f"{where}.items", reading)
    if "properties" in given:
        within = reading.mapping(given["properties"], f"{where}.properties")
        parts = {name: _property(item, f"{where}.{name}", reading) for name, item in within.items()}
        made["properties"] = to_node(parts, given["properties"])
    default, sample = given.get("default"), given.get("sample")
    if sample is not None and default is not None and default.value is not None:
        made["example"], sample = sample, None
    value = sample or default
    if value is not None and "kind" not in made:
        made["kind"] = to_node(kind_of(value.value), value)
    return to_node(made if sample is None else _with_sample(made, sample, where, reading), node)


def _kind(node: Node, where: str, reading: DialectFile) -> Node:
    name = reading.text(node, where)
    # Ignore the type arguments of Python types such as List[str].
    plain_name = name.partition("[")[0].strip().lower()
    if plain_name not in _TYPES:
        known = f"{did_you_mean(name, _TYPES)}; the types are {', '.join(_TYPES)}"
        reading.note(node, f"{where} is {name!r}, so it accepts any value{known}")
    return node._replace(value=V1_KINDS.get(plain_name, plain_name if plain_name in _TYPES else "union"))


def _tool(node: Node, reading: DialectFile) -> Node:
    given = reading.mapping(node, "a tool")
    function = reading.mapping(given.get("function"), "a tool's function")
    if function:  # in OpenAI's format
        return to_node({"kind": "function", **function}, node)
    listed = given["parameters"].fields.get("properties") if "parameters" in given else None
    # Parameters can be a list of named properties instead of a JSON Schema.
    if listed is not None and isinstance(listed.value, list):
        given["parameters"] = listed
    names = {"id": "name", "type": "kind"}
    return to_node({names.get(name, name): item for name, item in given.items()}, node)


def v1_steps(sections: Sequence[Section]) -> Iterator[Step]:
    """Yield the turns and threads in a v1 file; every Markdown media link is treated as an image.

    Args:
        sections: The sections of the filled template.
    """
    for section in sections:
        if section.role == "function":
            yield result_turn(section)
        else:
            # Keep a local path as a URL, because only a media resolver may open files.
            yield from steps_with_media(section, lambda _, address: ("image", {}) if address else None, _address)


def _address(text: str) -> str:
    """Convert promptflow's ``data:image/png;path:cat.png`` and ``data:image/png;url:`` to a plain path or URL."""
    match = _OF_PROMPTFLOW.match(text)
    return text if match is None else text[match.end() :]
