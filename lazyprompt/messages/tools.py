"""Tool definitions in the OpenAI format, converted from other formats or generated from Python functions.

A tool is a dict, or a function with a signature, type hints and a docstring. Dicts in the format of the Responses API,
Anthropic, Gemini or MCP are converted to the OpenAI format. Pydantic and docstring-parser are imported only when a
schema is generated from a function.
"""

from __future__ import annotations

import inspect
import marshal
import re
import sys
import typing
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from json import dumps, loads
from reprlib import repr as short
from types import SimpleNamespace, UnionType
from typing import (
    Annotated,
    Any,
    NotRequired,
    Required,
    TypeAlias,
    TypeGuard,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from lazyprompt._base.json import (
    Json,
    JsonObject,
    JsonText,
    checked,
    checked_object,
    dump,
    is_list,
    is_mapping,
    json_object,
)
from lazyprompt.errors import ToolsError

ToolLike: TypeAlias = Mapping[str, object] | Callable[..., object]
"""A tool definition: a dict in the format of OpenAI or another API, or a Python function."""

ToolsLike: TypeAlias = "Iterable[ToolLike] | ToolSet | None"
"""A list of tool definitions, a :class:`ToolSet`, or None for no tools."""

_FORM = '{"type": "function", "function": {"name": ..., "description": ..., "parameters": {...}}}'
# Advice for error messages, selected by an invalid tool's keys. The first match is used.
_ADVICE = (
    ({"function"}, 'add "type": "function" next to "function", which must be a dict'),
    ({"name"}, 'to use a bare function definition, write {"type": "function", "function": <this dict>}'),
)
# The keys for a function's JSON Schema in the formats of OpenAI, Anthropic, MCP and Gemini.
_SCHEMAS = ("parameters", "input_schema", "inputSchema", "parametersJsonSchema", "parameters_json_schema")
# JSON Schema keywords that some documentation wrongly puts outside the schema, where APIs ignore or reject them.
_KEYWORDS = ("properties", "required", "additionalProperties", "$defs")
_ODD_KEYS = {*_SCHEMAS[1:], *_KEYWORDS}
_INNER = ("name", "description", "strict", *_SCHEMAS, *_KEYWORDS)
# The keys for the list of functions in Gemini's format.
_DECLARATIONS = ("functionDeclarations", "function_declarations")
# JSON Schema keywords whose values are data rather than schemas.
_DATA = {"default", "const", "enum", "examples"}
# JSON Schema keywords whose values map names to schemas.
_NAMED = {"properties", "patternProperties", "dependentSchemas", "$defs"}
# The prefix of a list of allowed values in a parameter description, as in `transformers.utils.get_json_schema`.
_CHOICES = "(choices:"
# Keywords to drop: `title` repeats the name, and `discriminator` refers to `$defs`, which are inlined.
_NOISE = {"title", "discriminator"}


@dataclass(frozen=True, slots=True, repr=False)
class ToolSet:
    """A validated, immutable list of tools, built by :meth:`ToolSet.of`.

    Two tool sets are equal if their JSON texts are equal.

    Args:
        json: The JSON text of the validated tools, with the separators ``", "`` and ``": "`` and with unescaped
            non-ASCII characters.

    Attributes:
        names: The names of the tools, in order. A provider's built-in tool without a name is listed by its type.
    """

    json: JsonText
    names: tuple[str, ...] = field(init=False, compare=False)
    _packed: bytes = field(init=False, compare=False)

    def __post_init__(self) -> None:
        # Reuse equal strings, because marshal writes a shared string only once, which makes copies faster.
        tools: list[JsonObject] = loads(self.json, object_pairs_hook=partial(_with_texts_once, {}))
        object.__setattr__(self, "names", tuple(_own_name(tool) or str(tool["type"]) for tool in tools))
        object.__setattr__(self, "_packed", marshal.dumps(tools))

    @classmethod
    def of(cls, tools: Iterable[ToolLike] | ToolSet | None) -> ToolSet:
        """Validate tools, and convert functions to schemas.

        The last 128 lists are cached by content. Passing the same tools with each call therefore costs one
        :mod:`marshal` dump, and changes to the dicts are detected. The tools are copied.

        Args:
            tools: A list that may mix Python functions and dicts in the format of OpenAI, Responses, Anthropic, Gemini
                or MCP; None for no tools. Dicts of a type other than ``function`` are not converted.

        Returns:
            The validated set. If ``tools`` is already a :class:`ToolSet`, it is returned unchanged.

        Raises:
            ToolsError: An item is not a tool or not JSON, or a name occurs twice; the error includes the item's index.
        """
        if isinstance(tools, ToolSet):
            return tools
        given: Sequence[object] = tools if isinstance(tools, list) else list_tools(tools)
        items: list[object] = [tool if type(tool) is dict else _describe(tool, at) for at, tool in enumerate(given)]
        try:
            # marshal version 2 writes equal content as equal bytes. Later versions also record shared strings.
            packed = marshal.dumps(items, 2)
        except ValueError:  # marshal doesn't support subclasses of dict or str
            return _build(items)
        return _build_packed(packed)

    def copy(self) -> list[JsonObject]:
        """Return the tools as new dicts, which share no mutable data with this set or other copies."""
        tools: list[JsonObject] = marshal.loads(self._packed)  # noqa: S302  # the bytes are from __post_init__
        return tools

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[JsonObject]:
        return iter(self.copy())

    def __repr__(self) -> str:
        return f"<ToolSet {list(self.names)}>"

    def __reduce__(self) -> tuple[type[ToolSet], tuple[JsonText]]:
        return ToolSet, (self.json,)  # marshal's output depends on the Python version


def _with_texts_once(texts: dict[str, str], pairs: Iterable[tuple[str, Json]]) -> JsonObject:
    """Build a JSON object in which equal strings are the same Python object."""
    return {key: texts.setdefault(value, value) if isinstance(value, str) else value for key, value in pairs}


def function_schema(function: Callable[..., object]) -> JsonObject:
    """Generate a tool definition in the OpenAI format from a Python function.

    Types come from the type hints. Descriptions come from ``Annotated[T, "text"]`` and ``Field(description=...)``, or
    else from the docstring (Google, NumPy or reST style). A parameter with a default is optional. The return annotation
    is ignored. The schemas of the last 256 functions are cached, so later changes to a function have no effect.

    Args:
        function: A function, method, builtin or partial, which may be async. Arguments bound by a partial are omitted.

    Returns:
        The tool as a new dict.

    Raises:
        ToolsError: The argument is not a function, takes ``*args`` or ``**kwargs``, or has a type hint that can't be
            expressed as JSON Schema.
    """
    describe = _of_function if _is_hashable(function) else _of_function.__wrapped__
    return describe(function).copy()[0]


def _is_hashable(value: object) -> bool:
    return isinstance(value, Hashable)


def list_tools(tools: object) -> list[object]:
    """Return tools as a list without validating the items.

    Raises:
        ToolsError: The value is not a list or another ordered iterable of tools.
    """
    if tools is None:
        return []
    if not _has_items(tools):
        raise ToolsError(f"tools must be a list of dicts and functions, as in tools=[...], not {short(tools)}")
    return [*tools]


def _has_items(value: object) -> TypeGuard[Iterable[object]]:
    # Reject sets, because their iteration order differs between processes.
    if callable(value) or isinstance(value, str | bytes | set | frozenset | Mapping):
        return False
    return isinstance(value, Iterable)


def _describe(tool: object, index: int) -> object:
    """Convert a function to a tool dict, and return any other value unchanged."""
    if is_mapping(tool) or not callable(tool):
        return tool
    try:
        return function_schema(tool)
    except ToolsError as error:
        raise ToolsError(f"tools[{index}]: {error}") from error


@lru_cache(maxsize=128)
def _build_packed(packed: bytes) -> ToolSet:
    return _build(marshal.loads(packed))  # noqa: S302  # the bytes are from ToolSet.of


def _build(tools: list[object]) -> ToolSet:
    copies: list[Json] = []
    seen: dict[str, int] = {}
    for index, tool in enumerate(tools):
        for copy in _checked_tools(tool, f"tools[{index}]"):
            name = _own_name(copy)
            if name in seen:
                raise ToolsError(f"tools[{seen[name]}] and tools[{index}] are both named {name!r}; use unique names")
            if name:
                seen[name] = index
            copies.append(copy)
    return ToolSet(dump(copies))


def _own_name(tool: JsonObject) -> str | None:
    """Return a tool's name, which is in the object under its ``type`` (such as ``function``) or in the tool itself."""
    parts = (tool.get(str(tool["type"])), tool)
    names = (part.get("name") for part in parts if isinstance(part, dict))
    return next((name for name in names if isinstance(name, str) and name), None)


def _checked_tools(tool: object, where: str) -> list[JsonObject]:
    """Validate an item, which is a tool or a Gemini list of function declarations."""
    if not is_mapping(tool):
        raise ToolsError(f"{where} must be a dict {_FORM} or a function, not {type(tool).__name__} {short(tool)}")
    copy = checked_object(tool, where, ToolsError)
    key = next((key for key in _DECLARATIONS if key in copy), "")
    if not key:
        return [_checked_tool(copy, where)]
    given = copy[key]
    if len(copy) > 1 or not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise ToolsError(f"{where} is {short(copy)}; expected a dict with only {key!r}, which must be a list of dicts")
    return [
        _checked_tool({"type": "function", "function": each}, f"{where}.{key}[{at}]") for at, each in enumerate(given)
    ]


def _checked_tool(copy: JsonObject, where: str) -> JsonObject:
    copy = _in_openai_form(copy, where)
    advice = next((text for keys, text in _ADVICE if keys <= copy.keys()), f"write {_FORM}")
    if not isinstance(copy.get("type"), str) or not copy["type"]:
        raise ToolsError(f'{where} must contain "type" as a non-empty string; {advice} (found {short(copy)})')
    if copy["type"] == "function":
        _check_function(copy.get("function"), f"{where}.function", advice)
    return copy


def _in_openai_form(tool: JsonObject, where: str) -> JsonObject:
    """Convert a function definition from another API's format to OpenAI's format; return all other tools unchanged."""
    if _is_flat(tool):
        # Store all other keys next to ``function`` instead of inside it, because these keys are provider settings.
        inner: Json = _only(tool, *_INNER)
        tool = {"type": "function", "function": inner} | {k: v for k, v in tool.items() if k not in (*_INNER, "type")}
    function = tool.get("function")
    if tool.get("type") != "function" or not isinstance(function, dict):
        return tool
    misplaced = _only(tool, "strict", *_ODD_KEYS)
    if not misplaced and _ODD_KEYS.isdisjoint(function):
        return tool
    whole: JsonObject = {key: value for key, value in tool.items() if key not in misplaced}
    whole["function"] = _with_one_schema(function | misplaced, f"{where}.function")
    return whole


def _is_flat(tool: JsonObject) -> bool:
    """Return True for a flat function definition, as used by Responses, Anthropic, MCP and Gemini."""
    if "function" in tool or "name" not in tool:
        return False
    if tool.get("type") == "custom":  # Anthropic's custom tools have a schema, unlike OpenAI's
        return "input_schema" in tool
    return tool.get("type") == "function" or ("type" not in tool and not {"description", *_SCHEMAS}.isdisjoint(tool))


def _with_one_schema(function: JsonObject, where: str) -> JsonObject:
    """Move a function's schema, and any keywords that are outside the schema, to ``parameters``."""
    found = [key for key in _SCHEMAS if function.get(key)]
    if len(found) > 1:
        raise ToolsError(f"{where} contains several schemas: {', '.join(map(repr, found))}; keep only 'parameters'")
    schema = function[found[0]] if found else {}
    beside = {key: function[key] for key in _KEYWORDS if function.get(key) not in (None, [], {})}
    if beside and isinstance(schema, dict):
        for key, value in beside.items():
            if schema.get(key, value) != value:
                raise ToolsError(f"{where} contains two different values for {key!r}; keep only the one in the schema")
        schema = (schema or {"type": "object"}) | beside
    rest: JsonObject = {key: value for key, value in function.items() if key != "parameters" and key not in _ODD_KEYS}
    rest["parameters"] = schema
    return rest


def _only(fields: JsonObject, *keys: str) -> JsonObject:
    return {key: fields[key] for key in keys if key in fields}


def _check_function(function: Json, where: str, advice: str) -> None:
    if not isinstance(function, dict):
        raise ToolsError(f"{where} must be a dict, not {short(function)}; {advice}")
    name = function.get("name")
    # Flat prompts contain tool names in markers and attributes, so a tool name must not end a marker or an attribute.
    if not isinstance(name, str) or not name or not name.isprintable() or set(name) & set(" <>\"'`"):
        what = "a name without spaces, control characters, quotes, < or >"
        raise ToolsError(f"{where}.name must be {what}, not {short(name)}")
    for key, kind, word in (("description", str, "a string"), ("parameters", dict, "a dict with a JSON Schema")):
        value = function.get(key)
        if value is not None and not isinstance(value, kind):
            raise ToolsError(f"{where}.{key} must be {word} or omitted, not {short(value)}")


@lru_cache(maxsize=256)
def _of_function(function: Callable[..., object]) -> ToolSet:
    from docstring_parser import parse  # noqa: PLC0415  # see the module docstring

    base, given = _parameters(function)
    where = f"{base.__qualname__}()"
    namespace = getattr(inspect.unwrap(base), "__globals__", {})
    parameters = [_resolved(each, namespace, where) for each in given]
    schemas, defs = _json_schemas({each.name: each.annotation for each in parameters}, where)
    doc = parse(inspect.getdoc(base) or "")
    texts = {name.strip(): each.description for each in doc.params for name in each.arg_name.split(",")}
    visible = [each for each in parameters if each.name in schemas]  # pydantic's SkipJsonSchema hides parameters
    properties: JsonObject = {each.name: _property(schemas[each.name], each, texts) for each in visible}
    required: list[Json] = [each.name for each in visible if each.default is each.empty]
    schema: JsonObject = {"type": "object", "properties": properties, "required": required, "$defs": defs}
    schema = {key: part for key, part in schema.items() if part or key == "properties"}
    described = {"description": text} if (text := (doc.description or "").strip()) else {}
    spec = {"name": base.__name__, **described, "parameters": schema}
    return ToolSet(dump([*_checked_tools({"type": "function", "function": spec}, where)]))


def _parameters(function: Callable[..., object]) -> tuple[Callable[..., object], list[inspect.Parameter]]:
    """Return the function wrapped by partials, and its unbound parameters."""
    base, bound = function, set[str]()
    while isinstance(base, partial):
        bound |= base.keywords.keys()
        base = base.func
    what = f"can't generate a tool from {short(base)} of type {type(base).__name__}"
    try:
        parameters = inspect.signature(function).parameters.values()
        if inspect.isroutine(inspect.unwrap(base)):
            free = [each for each in parameters if each.name not in bound]
            return base, free[1:] if free and _is_instance(free[0]) else free
    except (ValueError, TypeError) as error:
        what = f"{what}: {error}"
    raise ToolsError(
        f"{what}; wrap the object in a function with type hints and a docstring, or pass one of its methods"
    )


def _is_instance(parameter: inspect.Parameter) -> bool:
    """Return True for the ``self`` or ``cls`` parameter of a method."""
    return parameter.name in ("self", "cls") and parameter.annotation is parameter.empty


def _resolved(parameter: inspect.Parameter, namespace: dict[str, object], where: str) -> inspect.Parameter:
    """Resolve the type hint of a parameter, and move a ``Field(...)`` given as the default into the hint."""
    from pydantic.fields import FieldInfo  # noqa: PLC0415

    if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
        star = str(parameter.replace(annotation=parameter.empty))
        raise ToolsError(f"{where} takes {star}, which a schema can't express; use a function with named parameters")
    hint = object if parameter.annotation is parameter.empty else parameter.annotation
    try:
        # Resolve only the parameter's hint, because the return annotation may use a name imported under TYPE_CHECKING.
        holder = SimpleNamespace(__annotations__={"": hint})
        hint = _readable(get_type_hints(holder, namespace, include_extras=True)[""])
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        what = f"{where}: the type hint {hint!r} of parameter {parameter.name!r} cannot be resolved ({error})"
        raise ToolsError(f"{what}; define or import the type at module level, outside TYPE_CHECKING") from error
    default = parameter.default
    if isinstance(default, FieldInfo):
        hint = Annotated[hint, default]
        default = parameter.empty if default.is_required() else default.get_default(call_default_factory=True)
    return parameter.replace(annotation=hint, default=default)


def _readable(hint: Any, within: tuple[object, ...] = ()) -> Any:  # noqa: ANN401  # type hints have no common type
    """Convert each TypedDict in a type hint to one from typing_extensions.

    Before Python 3.12, pydantic rejects a TypedDict from ``typing``.
    """
    if sys.version_info >= (3, 12):
        return hint
    if typing.is_typeddict(hint) and type(hint).__module__ == "typing" and hint not in within:
        fields = get_type_hints(hint, include_extras=True)
        for name, part in fields.items():
            free = name not in hint.__required_keys__ and get_origin(part) not in {Required, NotRequired}
            fields[name] = _readable(NotRequired[part] if free else part, (*within, hint))
        return _typed_dict(hint.__name__, fields, hint.__doc__)
    parts = tuple(_readable(part, within) for part in get_args(hint))
    origin: Any = Union if get_origin(hint) is UnionType else get_origin(hint)
    return hint if parts == get_args(hint) else origin[parts if len(parts) > 1 else next(iter(parts))]


def _typed_dict(name: str, fields: Mapping[str, object], doc: str | None = None) -> type:
    from typing_extensions import TypedDict  # noqa: PLC0415  # a dependency of pydantic

    # Cast, because type checkers reject a TypedDict with computed fields.
    typed_dict = cast("Callable[..., type]", TypedDict)(name, fields)
    typed_dict.__doc__ = doc
    return typed_dict


def _json_schemas(hints: Mapping[str, object], where: str) -> tuple[JsonObject, JsonObject]:
    """Return the JSON Schema of each type hint, and the definitions of recursive types."""
    from pydantic import Field, TypeAdapter, json_schema  # noqa: PLC0415
    from pydantic_core import SchemaError  # noqa: PLC0415

    class Quiet(json_schema.GenerateJsonSchema):
        def emit_warning(self, kind: str, detail: str) -> None:
            """Suppress warnings about defaults that JSON can't express, because :func:`_property` omits them."""

    try:
        # Use a TypedDict, because its fields may have any name. The alias overrides any alias in a type hint.
        fields = {name: Annotated[hint, Field(alias=name, validation_alias=name)] for name, hint in hints.items()}
        adapter = TypeAdapter[object](_typed_dict("Arguments", fields))
        schema = checked_object(adapter.json_schema(schema_generator=Quiet), where, ToolsError)
    except (RuntimeError, AttributeError, LookupError, NameError, TypeError, ValueError, SchemaError) as error:
        for name in hints if len(hints) > 1 else ():
            _json_schemas({name: hints[name]}, where)  # raises an error that names the invalid parameter
        fault = str(error).splitlines()[0]
        what = f"{where}: the type hint of parameter {', '.join(hints)} can't be expressed as JSON Schema ({fault})"
        raise ToolsError(f"{what}; use JSON types, dataclasses, TypedDicts or pydantic models") from error
    properties, defs = (json_object(schema.get(key)) for key in ("properties", "$defs"))
    inline = {name: part for name, part in defs.items() if name not in _reached(name, defs)}
    clean = partial(_inlined, defs=inline)
    kept = {name: clean(part) for name, part in defs.items() if name not in inline}
    return {name: clean(part) for name, part in properties.items()}, kept


def _reached(name: str, defs: Mapping[str, Json]) -> set[str]:
    """Return the names of all definitions that a definition references, directly or indirectly."""
    reached, waiting = set[str](), [name]
    while waiting:
        found = set(re.findall(r'"\$ref": "#/\$defs/([^"]+)"', dumps(defs[waiting.pop()])))
        waiting += (found & defs.keys()) - reached
        reached |= found
    return reached


def _inlined(schema: Json, defs: Mapping[str, Json], *, named: bool = False) -> Json:
    """Inline references to ``defs`` in a schema, and drop the keywords in ``_NOISE``.

    Args:
        schema: The schema, or a part of it.
        defs: The definitions to inline, by name.
        named: True if the schema's keys are names, such as property names, rather than JSON Schema keywords.
    """
    if isinstance(schema, list):
        return [_inlined(part, defs) for part in schema]
    if not isinstance(schema, dict):
        return schema
    copy: JsonObject = {
        key: part if key in _DATA and not named else _inlined(part, defs, named=key in _NAMED and not named)
        for key, part in schema.items()
        if named or key not in _NOISE
    }
    target = _inlined(defs.get(str(copy.get("$ref")).removeprefix("#/$defs/")), defs)
    # Keywords next to a reference override the referenced definition's keywords.
    return target | {key: part for key, part in copy.items() if key != "$ref"} if isinstance(target, dict) else copy


def _choices(text: str, name: str) -> tuple[str, list[Json]]:
    """Split a list such as ``(choices: ["a", "b"])`` off the end of a description.

    Returns:
        The description without the list of choices, and the choices.
    """
    start = text.lower().rfind(_CHOICES)
    given = text[start + len(_CHOICES) :].strip()
    if start < 0 or not given.endswith(")"):
        return text, []
    try:
        values: object = loads(given[:-1])
    except ValueError:
        values = None
    if not is_list(values):
        raise ToolsError(
            f'the choices of parameter {name!r} must be a JSON list such as ["red", "blue"], not {given[:-1]!r}'
        )
    return text[:start].rstrip(), [checked(each, name, ToolsError) for each in values]


def _property(schema: Json, parameter: inspect.Parameter, texts: Mapping[str, str | None]) -> JsonObject:
    """Return a parameter's schema with its description, and with its default if JSON can express it."""
    from pydantic_core import to_jsonable_python  # noqa: PLC0415

    notes = getattr(parameter.annotation, "__metadata__", ())[::-1]
    descriptions = (*(getattr(note, "description", None) for note in notes), *notes, texts.get(parameter.name))
    described = next((each for each in descriptions if isinstance(each, str) and each), "")
    copy = {key: part for key, part in json_object(schema).items() if key != "default"}
    text, choices = _choices(described, parameter.name)
    copy |= {"description": text} if text else {}
    copy |= {"enum": choices} if choices else {}
    if parameter.default is not parameter.empty:
        with suppress(ValueError):  # omit a default that JSON can't represent
            form = to_jsonable_python(parameter.default)
            # Sort sets, because their iteration order differs between processes.
            form = sorted(form, key=dumps) if isinstance(parameter.default, set | frozenset) else form
            copy["default"] = checked(form, parameter.name, ToolsError)
    return copy
