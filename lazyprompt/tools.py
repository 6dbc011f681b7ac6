"""Tools in the OpenAI form: checked once, copied fast, and described from Python functions.

A tool reaches a model as a JSON object, ``{"type": "function", "function": {"name": ..., "parameters": {...}}}``. A
developer gives it as that dict or as a function, whose signature, hints and docstring say the same::

    ToolSet.of([search, {"type": "function", "function": {"name": "now"}}])

pydantic and docstring-parser are imported when the first function is described, not before.
"""

from __future__ import annotations

import inspect
import marshal
import sys
import typing
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from json import dumps, loads
from operator import attrgetter
from reprlib import repr as short
from types import SimpleNamespace, UnionType
from typing import TYPE_CHECKING, Annotated, Literal, NotRequired, Required, TypeAlias, Union, cast

from lazyprompt._json import Json, JsonObject, JsonText, checked, checked_object, dump
from lazyprompt.errors import ToolsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.json_schema import GenerateJsonSchema

ToolLike: TypeAlias = Mapping[str, object] | Callable[..., object]
"""What a user may give for one tool: its dict in the OpenAI form, or a Python function."""

_FORM = '{"type": "function", "function": {"name": ..., "description": ..., "parameters": {...}}}'
# The keys that give away a tool in another form, and what its writer should do; the first that fits is told.
_ADVICE: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"function"}), 'add "type": "function" beside "function", which is a dict'),
    (
        frozenset({"name", "input_schema"}),
        'it looks like Anthropic\'s form: write {"type": "function", "function": {"name": ..., "description": ..., '
        '"parameters": <its input_schema>}}',
    ),
    (frozenset({"name"}), 'it looks like a bare function: wrap it as {"type": "function", "function": <this dict>}'),
    (frozenset({"function_declarations"}), "it looks like Gemini's form: give each declaration as a tool of its own"),
)
# Values under these keywords of JSON Schema are data of the user's, in which nothing is a keyword.
_DATA = frozenset({"default", "const", "enum", "examples"})
# Under these, the keys are names of the user's ("title" may be one), and the values are schemas.
_NAMED = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs"})
# "title" repeats the name; "discriminator" is OpenAPI's, and points into the $defs that are inlined here.
_NOISE = frozenset({"title", "discriminator"})
_REF = "#/$defs/"


@dataclass(frozen=True, slots=True, repr=False)
class ToolSet:
    """A checked, unchangeable list of tools; made by :meth:`ToolSet.of`. Equal where the JSON text is equal.

    Args:
        json: The JSON text of a checked list of tools: what :meth:`of` wrote and a pickle carries.

    Attributes:
        json: That text, written once: ``", "`` and ``": "`` as separators, Chinese and the like readable.
        names: The name of each tool, in order; a provider's own tool without a name stands under its type.
    """

    json: JsonText
    names: tuple[str, ...] = field(init=False, compare=False)
    _packed: bytes = field(init=False, compare=False)

    def __post_init__(self) -> None:
        tools: list[JsonObject] = loads(self.json)
        object.__setattr__(self, "names", tuple(_own_name(tool) or str(tool["type"]) for tool in tools))
        object.__setattr__(self, "_packed", marshal.dumps(tools))

    @classmethod
    def of(cls, tools: Iterable[ToolLike] | ToolSet | None) -> ToolSet:
        """Check tools and turn functions into their schemas.

        The last 128 different lists are kept by content, so giving the same tools with each call costs one
        :mod:`marshal` dump; a tool changed in between is seen. Nothing given is changed or kept.

        Args:
            tools: Dicts in the OpenAI form and Python functions, mixed as you like; None for no tools. A dict whose
                type is not ``function`` (a provider's own tool) is passed on as it is.

        Returns:
            The set; one that is given is returned itself.

        Raises:
            ToolsError: Something in it is no tool, is no JSON, or has a name twice; the message says where.
        """
        if isinstance(tools, ToolSet):
            return tools
        if not isinstance(tools, list):
            tools = _listed(tools)
        items = [tool if isinstance(tool, dict) else _described(tool, index) for index, tool in enumerate(tools)]
        try:
            # Version 2 writes equal content as equal bytes; later ones also write which strings are shared.
            packed = marshal.dumps(items, 2)
        except ValueError:  # something only the checks can judge: an error, a subclass of str, another mapping
            return _build(items)
        return _build_packed(packed)

    def copy(self) -> list[JsonObject]:
        """The tools as new dicts.

        Returns:
            A list that shares nothing mutable with this set or with any other copy.
        """
        tools: list[JsonObject] = marshal.loads(self._packed)  # noqa: S302  # bytes of our own making
        return tools

    def __len__(self) -> int:
        return len(self.names)

    def __bool__(self) -> bool:
        return bool(self.names)

    def __iter__(self) -> Iterator[JsonObject]:
        return iter(self.copy())

    def __repr__(self) -> str:
        return f"<ToolSet {', '.join(self.names)}>"

    def __reduce__(self) -> tuple[type[ToolSet], tuple[JsonText]]:
        # The text alone: bytes of marshal may differ between versions of Python.
        return ToolSet, (self.json,)


def function_schema(function: Callable[..., object]) -> JsonObject:
    """Describe a Python function as a tool in the OpenAI form.

    Types come from the hints, descriptions from the docstring (Google, NumPy or reST style); what
    ``Annotated[T, "text"]`` or ``Annotated[T, Field(description=...)]`` says goes before the docstring. A parameter
    with a default is optional. The return annotation is not looked at. The schemas of the last 256 functions are
    kept, and with them the functions (and objects) themselves: a docstring changed later is not seen.

    Args:
        function: A function, method, builtin with a signature, or partial of one, async or not. What a method or
            partial has bound is left out.

    Returns:
        The tool, a new dict on each call.

    Raises:
        ToolsError: It is a class or no function, takes ``*args`` or ``**kwargs``, or has a hint that cannot be
            resolved or has no JSON Schema.
    """
    make = _of_function if isinstance(function, Hashable) else _of_function.__wrapped__
    return make(function).copy()[0]


def _listed(tools: Iterable[ToolLike] | None) -> list[ToolLike]:
    """The tools as a list; a set would put them in another order in each process."""
    if tools is None:
        return []
    given: object = tools
    single = isinstance(given, str | bytes | set | frozenset | Mapping) or callable(given)
    if single or not isinstance(given, Iterable):
        raise ToolsError(
            f"tools is the {type(given).__name__} {short(given)}; expected a list of dicts {_FORM} and Python "
            "functions: put it in a list, tools=[...], even if it is the only one"
        )
    return list(tools)


def _described(tool: object, index: int) -> object:
    """A function as its dict; anything else as it is, for the checks to judge."""
    if isinstance(tool, Mapping) or not callable(tool):
        return cast("object", tool)
    try:
        return function_schema(tool)
    except ToolsError as error:
        raise ToolsError(f"tools[{index}]: {error}") from error


@lru_cache(maxsize=128)
def _build_packed(packed: bytes) -> ToolSet:
    return _build(marshal.loads(packed))  # noqa: S302  # bytes that ToolSet.of has just dumped


def _build(tools: list[object]) -> ToolSet:
    texts: list[str] = []
    seen: dict[str, int] = {}
    for index, tool in enumerate(tools):
        where = f"tools[{index}]"
        copy = _checked_tool(tool, where)
        name = _own_name(copy)
        if name is not None and seen.setdefault(name, index) != index:
            raise ToolsError(f"{where} has the name {name!r}, as tools[{seen[name]}] has; give each tool its own name")
        texts.append(_text(copy, where))
    return ToolSet(JsonText(f"[{', '.join(texts)}]"))


def _own_name(tool: JsonObject) -> str | None:
    """The name of a tool: within the part named after its type (as ``function``), or beside the type."""
    for part in (tool.get(str(tool["type"])), tool):
        name = part.get("name") if isinstance(part, dict) else None
        if isinstance(name, str) and name:
            return name
    return None


def _checked_tool(tool: object, where: str) -> JsonObject:
    if not isinstance(tool, Mapping):
        raise ToolsError(f"{where} is the {type(tool).__name__} {short(tool)}; expected a dict {_FORM} or a function")
    copy = checked_object(cast("Mapping[object, object]", tool), where, ToolsError)
    advice = next((text for keys, text in _ADVICE if keys <= copy.keys()), f"write {_FORM}")
    if "type" not in copy:
        raise ToolsError(f'{where} has no "type", only {list(copy)}; {advice}')
    if not isinstance(copy["type"], str) or not copy["type"]:
        raise ToolsError(f"{where}.type is {short(copy['type'])}; expected a non-empty string, as in {_FORM}")
    if copy["type"] == "function":
        _check_function(copy.get("function"), f"{where}.function", advice)
    return copy


def _check_function(function: Json, where: str, advice: str) -> None:
    if not isinstance(function, dict):
        raise ToolsError(f"{where} is {short(function)}; expected a dict; {advice}")
    name = function.get("name")
    # A name stands within markers and attributes of flat prompts: nothing in it may end one, or be invisible.
    if not isinstance(name, str) or not name or not name.isprintable() or not set(" <>\"'`").isdisjoint(name):
        raise ToolsError(
            f"{where}.name is {short(name)}; expected a non-empty string without white space, control characters, "
            "quotes, < or >, as 'get_weather'"
        )
    for key, kind, word in (("description", str, "a string"), ("parameters", dict, "a dict with a JSON Schema")):
        value = function.get(key)
        if value is not None and not isinstance(value, kind):
            raise ToolsError(
                f"{where}.{key} is the {type(value).__name__} {short(value)}; expected {word}, or leave it out"
            )


def _text(tool: JsonObject, where: str) -> JsonText:
    """The JSON text of one tool, which UTF-8 can carry."""
    try:
        text = dump(tool)
        text.encode()
    except ValueError as error:
        raise ToolsError(
            f"{_unwritable(tool, where)} cannot be written as JSON in UTF-8 ({error}); remove it"
        ) from error
    return text


def _unwritable(value: Json, where: str) -> str | None:
    """The path of the first part that is no text: a lone surrogate, or an integer of thousands of digits."""
    if isinstance(value, list):
        parts = [_unwritable(item, f"{where}[{index}]") for index, item in enumerate(value)]
    elif isinstance(value, dict):
        keys = [_unwritable(key, f"the key {key!a} of {where}") for key in value]
        parts = keys + [_unwritable(item, f"{where}.{key}") for key, item in value.items()]
    else:
        try:
            dumps(value, ensure_ascii=False).encode()
        except ValueError:
            return where
        return None
    return next(filter(None, parts), None)


@lru_cache(maxsize=256)
def _of_function(function: Callable[..., object]) -> ToolSet:
    base, bound = _unbound(function)
    where = f"the function {getattr(base, '__qualname__', short(base))}"
    parameters = _parameters(function, base, bound, where)
    description, texts = _documented(base)
    schemas, defs = _json_schemas({each.name: each.annotation for each in parameters}, where)
    properties = {each.name: _property(schemas[each.name], each, texts) for each in parameters if each.name in schemas}
    required = [each.name for each in parameters if each.default is each.empty and each.name in schemas]
    spec = {
        "name": base.__name__,
        **({"description": description} if description else {}),
        "parameters": {
            "type": "object",
            "properties": properties,
            **({"required": required} if required else {}),
            **({"$defs": defs} if defs else {}),
        },
    }
    tool = _checked_tool({"type": "function", "function": spec}, where)
    return ToolSet(JsonText(f"[{_text(tool, where)}]"))


def _unbound(function: Callable[..., object]) -> tuple[Callable[..., object], frozenset[str]]:
    """The function within partials, and the names of the arguments that they bind by keyword."""
    bound: frozenset[str] = frozenset()
    while isinstance(function, partial):
        bound |= function.keywords.keys()
        function = function.func
    if not inspect.isroutine(inspect.unwrap(function)):
        raise ToolsError(
            f"{short(function)} is a {type(function).__name__}, no function; expected a function or method: write "
            "`def name(...)` with hints and a docstring around it, or give one of its methods"
        )
    return function, bound


def _parameters(
    function: Callable[..., object], base: Callable[..., object], bound: frozenset[str], where: str
) -> list[inspect.Parameter]:
    """The parameters a model fills in, their hints resolved."""
    try:
        signature = inspect.signature(function)
    except ValueError as error:
        raise ToolsError(f"{where} has no signature to read ({error}); write a `def` around it") from error
    namespace = getattr(inspect.unwrap(base), "__globals__", {})
    free = [each for each in signature.parameters.values() if each.name not in bound]
    for each in free:
        if each.kind in {each.VAR_POSITIONAL, each.VAR_KEYWORD}:
            raise ToolsError(
                f"{where} takes {str(each).split(':')[0]}, which a schema cannot name; write its parameters out, "
                "or write a `def` with named parameters around it"
            )
    return [_resolved(each, namespace, where) for each in free]


def _resolved(parameter: inspect.Parameter, namespace: dict[str, object], where: str) -> inspect.Parameter:
    """The parameter with its hint as an object; ``= Field(...)`` is moved from the default to the hint."""
    from pydantic.fields import FieldInfo  # noqa: PLC0415  # lazy: see the module docstring

    hint = object if parameter.annotation is parameter.empty else parameter.annotation
    # One at a time, as the return annotation may name what only a type checker imports.
    holder = SimpleNamespace(__annotations__={"hint": hint})
    try:
        hint = _readable(typing.get_type_hints(holder, namespace, include_extras=True)["hint"])
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise ToolsError(
            f"{where}: the hint {hint!r} of parameter {parameter.name!r} cannot be resolved ({error}); import or "
            "define what it names at the top of the function's module, outside `if TYPE_CHECKING`"
        ) from error
    default = parameter.default
    if isinstance(default, FieldInfo):
        hint = Annotated[hint, default]
        default = parameter.empty if default.is_required() else default.get_default(call_default_factory=True)
    return parameter.replace(annotation=hint, default=default)


def _readable(hint: object) -> object:
    """The hint with every ``typing.TypedDict`` as typing_extensions' own, all that pydantic reads before Python 3.12."""
    if sys.version_info >= (3, 12):
        return hint
    if typing.is_typeddict(cast("type", hint)) and type(hint).__module__ == "typing":
        required = cast("frozenset[str]", getattr(hint, "__required_keys__", ()))
        fields: dict[str, object] = {}
        for name, kind in typing.get_type_hints(hint, include_extras=True).items():
            marked = typing.get_origin(kind) in {Required, NotRequired}
            fields[name] = _readable(kind if marked else (Required if name in required else NotRequired)[kind])
        return _typed_dict(str(getattr(hint, "__name__", "")), fields, hint.__doc__)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is None or origin is Literal or not args:
        return hint
    if origin is Annotated:
        return Annotated[(_readable(args[0]), *args[1:])]
    parts = tuple(map(_readable, args))
    return hint if parts == args else (Union if origin is UnionType else origin)[parts]


def _typed_dict(name: str, fields: Mapping[str, object], doc: str | None) -> object:
    from typing_extensions import TypedDict  # noqa: PLC0415  # lazy: comes with pydantic

    made = cast("Callable[[str, Mapping[str, object]], type]", TypedDict)(name, fields)
    made.__doc__ = doc
    return made


def _json_schemas(hints: Mapping[str, object], where: str) -> tuple[dict[str, JsonObject], JsonObject]:
    """The JSON Schema of each hint, and the definitions of the types that hold themselves."""
    from pydantic import Field, TypeAdapter  # noqa: PLC0415  # lazy: see the module docstring
    from pydantic_core import SchemaError  # noqa: PLC0415

    # Fields of a TypedDict may have any name; an alias would hide the name that Python calls the parameter by.
    fields = {name: Annotated[hint, Field(alias=name, validation_alias=name)] for name, hint in hints.items()}
    try:
        adapter = TypeAdapter[object](_typed_dict("Arguments", fields, None))
        schema = checked_object(adapter.json_schema(schema_generator=_generator()), where, ToolsError)
    except (RuntimeError, NameError, TypeError, ValueError, SchemaError) as error:
        if len(hints) > 1:  # one at a time, to find which
            for name, hint in hints.items():
                _json_schemas({name: hint}, where)
        raise ToolsError(
            f"{where}: the hint of parameter {', '.join(hints)} has no JSON Schema ({str(error).splitlines()[0]}); "
            "use types that JSON knows, dataclasses, TypedDicts or pydantic models"
        ) from error
    defs = cast("dict[str, JsonObject]", schema.get("$defs", {}))
    recursive = {name: part for name, part in defs.items() if name in _reached(part, defs)}
    inline = {name: part for name, part in defs.items() if name not in recursive}
    properties = cast("dict[str, Json]", schema.get("properties", {}))
    return (
        {name: cast("JsonObject", _inlined(part, inline)) for name, part in properties.items()},
        {name: _inlined(part, inline) for name, part in recursive.items()},
    )


@cache
def _generator() -> type[GenerateJsonSchema]:
    from pydantic.json_schema import GenerateJsonSchema  # noqa: PLC0415

    class Quiet(GenerateJsonSchema):
        """Leaves a default without a JSON form out, as is right for a parameter, and does not warn of it."""

        ignored_warning_kinds = GenerateJsonSchema.ignored_warning_kinds | {"non-serializable-default"}

    return Quiet


def _reached(schema: Json, defs: Mapping[str, Json]) -> set[str]:
    """The definitions a schema leads to, directly or through others."""
    reached: set[str] = set()
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        waiting += part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        name = str(part.get("$ref")).removeprefix(_REF) if isinstance(part, dict) else ""
        if name in defs and name not in reached:
            reached.add(name)
            waiting.append(defs[name])
    return reached


def _inlined(schema: Json, defs: Mapping[str, Json]) -> Json:
    """The schema without noise, each reference into ``defs`` replaced by what it names."""
    if isinstance(schema, list):
        return [_inlined(part, defs) for part in schema]
    if not isinstance(schema, dict):
        return schema
    copy: JsonObject = {}
    for key, value in schema.items():
        if key in _DATA:
            copy[key] = value
        elif key in _NAMED and isinstance(value, dict):
            copy[key] = {name: _inlined(part, defs) for name, part in value.items()}
        elif key not in _NOISE:
            copy[key] = _inlined(value, defs)
    named = defs.get(str(copy.get("$ref", "")).removeprefix(_REF))
    if named is None:
        return copy
    del copy["$ref"]  # what stands beside a reference, as a description, goes before what it names
    return cast("JsonObject", _inlined(named, defs)) | copy


def _property(schema: JsonObject, parameter: inspect.Parameter, texts: Mapping[str, str]) -> JsonObject:
    """The schema of a parameter with its description, and its default where that has a JSON form."""
    from pydantic_core import to_jsonable_python  # noqa: PLC0415

    notes = getattr(parameter.annotation, "__metadata__", ())
    said = [getattr(note, "description", None) for note in notes] + [note for note in notes if isinstance(note, str)]
    text = next(filter(None, said), texts.get(parameter.name))
    ...


def _documented(function: Callable[..., object]) -> tuple[str | None, dict[str, str]]:
    """What the docstring says of a function and of each parameter."""
    from docstring_parser import ParseError, parse  # noqa: PLC0415

    ...
