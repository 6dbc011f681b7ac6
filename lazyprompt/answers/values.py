"""Parsers for tool call arguments in formats other than JSON, such as Python literals and plain text."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, cast

from lazyprompt._base.client_objects import fields_of
from lazyprompt._base.json import MAX_DEPTH, Fields, Json, JsonObject, checked_object, dump
from lazyprompt.answers.message_builder import JSON, WrittenCall
from lazyprompt.answers.source import SPACE
from lazyprompt.errors import ToolsError
from lazyprompt.messages.tools import function_schema

if TYPE_CHECKING:
    from lazyprompt.messages.tools import ToolLike

# The maximum number of tokens in a literal, because the ast module needs about 500 bytes per token.
_MAX_TOKENS = 100_000
# How often a literal is evaluated again after threads collided in CPython's parser.
_COLLISIONS = 3
_QUOTED = r"""
    '''(?>(?:[^'\\]++|\\.|'(?!''))*)''' | \"""(?>(?:[^"\\]++|\\.|"(?!""))*)\"""
  | '(?!'')(?>(?:[^'\\\n]++|\\.)*)' | "(?!"")(?>(?:[^"\\\n]++|\\.)*)"
"""
_TOKEN = re.compile(
    rf"""
    (?P<text>[rRuU]?(?:{_QUOTED}))
  | (?P<key>[\w.-]++)(?=\s*:)
  | (?P<number>[+-]?(?:[0-9][0-9_]*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?!\w))
  | (?P<word>True|False|None|true|false|null)\b
  | (?P<sign>[()\[\]{{}},:])
  | (?P<space>\s+)
    """,
    re.VERBOSE | re.DOTALL,
)
_GEMMA_TOKEN = re.compile(
    r"""
    <\|"\|>(?P<quoted>.*?)<\|"\|> | (?P<json>"(?>(?:[^"\\]++|\\.)*)") | (?P<unclosed>")
  | (?P<key>[\w.-]++)(?=\s*:) | (?P<word>[^\W\d][\w.-]*) | (?P<number>[\w.-]++)
    """,
    re.VERBOSE | re.DOTALL,
)
# Maps JSON keywords to Python keywords, because models also write JSON keywords in Python literals.
_WORDS = {"true": "True", "false": "False", "null": "None"}
_JSON_WORDS = frozenset(("true", "false", "null", "None"))
# Matches an escape sequence that Python supports. Any other backslash is literal.
_ESCAPE = re.compile(
    r"""\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4}|[0-3]?[0-7]{1,2}|[abfnrtv\\'"\n])?"""
)
_ARGUMENT = re.compile(r"\s*([^\W\d][\w.-]*)\s*=(.*)", re.DOTALL)
_CALL = re.compile(r"([^\W\d][\w.-]*)\s*\((.*)\)", re.DOTALL)
_STRUCTURE = re.compile(rf"{_QUOTED}|[()\[\]{{}},'\"]", re.VERBOSE | re.DOTALL)


def literal(text: str) -> Json:
    """Parse JSON or a Python literal without executing code.

    The ``ast`` module only receives literals of limited length and depth; other text could exhaust memory or the stack.

    Args:
        text: JSON or a Python literal; quotes around dict keys are optional.

    Returns:
        The parsed value; tuples become lists.

    Raises:
        ValueError: The text is not a literal.
    """
    text = text.strip()
    try:
        value: Json = JSON.decode(text)
    except (ValueError, RecursionError):
        return _python_literal(text)
    return value


def _python_literal(text: str) -> Json:
    pieces: list[str] = []
    at = depth = 0
    # Use `match`: after an invalid token, `search` would rescan the text from each quote, in quadratic time.
    while match := _TOKEN.match(text, at):
        sign = match["sign"] or " "
        depth += (sign in "([{") - (sign in ")]}")
        if depth > MAX_DEPTH or len(pieces) > _MAX_TOKENS or (sign == "," and not depth):
            break
        at = match.end()
        pieces.append(_python(match))
    try:
        if at == len(text):
            return _json(_evaluate("".join(pieces)))
    except (SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError(text) from error
    raise ValueError(text)


def _evaluate(text: str) -> object:
    """Evaluate a Python literal.

    In CPython 3.11, threads share the recursion counter of the parser, so a call can fail while another thread parses
    (python/cpython#106905). A second call succeeds, unless the threads collide again.
    """
    for _ in range(_COLLISIONS):
        with suppress(SystemError):
            return ast.literal_eval(text)
    return ast.literal_eval(text)


def _python(match: re.Match[str]) -> str:
    """Convert a lexical token, such as ``true``, to Python syntax."""
    kind, written = match.lastgroup, match[0]
    if kind == "text" and "\\" in written and written[0] not in "rR":
        return _ESCAPE.sub(lambda found: found[0] if found[1] else r"\\", written)
    if kind == "word":
        return _WORDS.get(written, written)
    return repr(written) if kind == "key" else " " if kind == "space" else written


def gemma_object(text: str) -> JsonObject | None:
    """Parse an object in Gemma 4's syntax, which is JSON with ``<|"|>`` in place of quotes and with unquoted keys."""
    try:
        value: Json = JSON.decode(_GEMMA_TOKEN.sub(_gemma_json, text))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _gemma_json(match: re.Match[str]) -> str:
    kind, written = match.lastgroup, match[match.lastgroup or 0]
    if kind == "unclosed":
        raise ValueError(written)  # Stop, because searching for the end of each later quote would take quadratic time.
    if kind == "word" and written in _JSON_WORDS:
        return "null" if written == "None" else written
    return written if kind in ("json", "number") else dump(written)


def _json(value: object) -> Json:
    """Convert a value from ast to a JSON value; raise ValueError if JSON doesn't support the value."""
    if isinstance(value, str):
        # Join surrogate pairs, because models sometimes write one character as two JSON escapes.
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    if isinstance(value, list | tuple):
        return [_json(item) for item in cast("Sequence[object]", value)]
    if isinstance(value, dict):
        items = cast("dict[object, object]", value).items()
        return {str(_json(key)): _json(item) for key, item in items}
    if value is None or isinstance(value, bool | int | float):
        return value
    raise ValueError(value)


def _split(text: str) -> list[str]:
    """Split a text at commas outside brackets and quotes; raise ValueError if a bracket or quote is not closed."""
    pieces: list[str] = []
    start = depth = 0
    for match in _STRUCTURE.finditer(text):
        sign = match[0]
        depth += (sign in "([{") - (sign in ")]}")
        if depth < 0 or sign in "'\"":
            raise ValueError(text)
        if sign == "," and not depth:
            pieces.append(text[start : match.start()])
            start = match.end()
    if depth:
        raise ValueError(text)
    last = text[start:]
    return [*pieces, last] if last.strip() else pieces


def python_calls(text: str) -> list[WrittenCall]:
    """Parse a list of Python calls such as ``[f(a=1), g()]``, or a single call.

    Raises:
        ValueError: The text is not a list of calls.
    """
    text = text.strip()
    inner = text[1:-1] if text[:1] + text[-1:] == "[]" else text
    matches = [_CALL.fullmatch(each.strip()) for each in _split(inner)]
    calls = [WrittenCall(match[1], match[2], _named(_split(match[2]))) for match in matches if match]
    if not calls or len(calls) < len(matches):
        raise ValueError(text)
    return calls


def _named(pieces: list[str]) -> JsonObject | None:
    """Parse keyword arguments; return None if any argument is positional or invalid."""
    matches = [_ARGUMENT.fullmatch(piece) for piece in pieces]
    try:
        return {match[1]: literal(match[2]) for match in matches if match} if all(matches) else None
    except ValueError:
        return None


class Tools:
    """The tools that were passed to a model, with their names and parameter types.

    Args:
        tools: The tools or their names; None if the tools are unknown.

    Attributes:
        schemas: The tools that were not passed by name, as dicts in OpenAI's format.

    Raises:
        ToolsError: An item is neither a tool nor a name.
    """

    __slots__ = ("_types", "schemas")

    def __init__(self, tools: Iterable[str | ToolLike] | None) -> None:
        # Maps each tool name to a dict that maps the tool's parameter names to JSON types.
        self._types: dict[str, dict[str, tuple[str, ...]]] | None = None
        self.schemas: list[JsonObject] = []
        if tools is None:
            return
        self._types = {}
        for index, tool in enumerate(_tools_in(tools)):
            if isinstance(tool, str):
                self._types[tool] = {}
            else:
                function = _function(tool, f"tools[{index}]")
                self._types[str(function["name"])] = _parameter_types(function)
                self.schemas.append({"type": "function", "function": function})

    @property
    def known(self) -> bool:
        """True if the caller passed the tools that the model may call."""
        return self._types is not None

    def may_be(self, name: str) -> bool:
        """Return True if a tool with this name exists or if the tools are unknown."""
        return bool(name) and (self._types is None or name in self._types)

    def value(self, tool: str, parameter: str, text: str) -> Json:
        """Parse a parameter value that the model wrote without a type.

        Args:
            tool: The tool name.
            parameter: The parameter name.
            text: The text that the model wrote.

        Returns:
            The value, converted to the type in the tool's schema; the unchanged text if the schema has no type or the
            conversion fails.
        """
        types = (self._types or {}).get(tool, {}).get(parameter, ())
        # If the schema allows strings, convert only null, because any other text may be intended as a string.
        for kind in types if "string" not in types else [kind for kind in types if kind == "null"]:
            with suppress(ValueError, KeyError, RecursionError):
                return _READERS[kind](text.strip(SPACE))
        return text


def _tools_in(tools: object) -> list[object]:
    kind = type(tools).__name__
    if isinstance(tools, str | Mapping) or not isinstance(tools, Iterable):
        raise ToolsError(f"tools must be a list of functions, OpenAI tool dicts or tool names, not {kind}")
    return list(cast("Iterable[object]", tools))


def _function(tool: object, where: str) -> JsonObject:
    """Return the ``function`` part of an OpenAI tool dict, which contains the tool's name and schema."""
    fields = fields_of(tool)
    if not isinstance(tool, Mapping):
        if not callable(tool):
            raise ToolsError(
                f"{where} must be a function, an OpenAI tool dict or a tool name, not {type(tool).__name__}"
            )
        fields = function_schema(tool)
    function = fields_of(fields.get("function")) or fields
    if not isinstance(function.get("name"), str):
        raise ToolsError(
            f"{where} has no name; expected {{'type': 'function', 'function': {{'name': ...}}}}, as in OpenAI's API"
        )
    return checked_object(function, where, ToolsError)


def _parameter_types(function: Fields) -> dict[str, tuple[str, ...]]:
    root = fields_of(function.get("parameters"))
    properties = fields_of(root.get("properties"))
    return {key: tuple(dict.fromkeys(_types(schema, root, set()))) for key, schema in properties.items()}


def _types(schema: object, root: Fields, seen: set[str]) -> list[str]:
    """Return all types that a schema allows, in schema order."""
    fields = fields_of(schema)
    declared = fields.get("type")
    found = [kind for kind in items_in(declared) or (declared,) if isinstance(kind, str)]
    if fields.get("nullable") is True:
        found.append("null")
    inner = [choice for key in ("anyOf", "oneOf", "allOf") for choice in items_in(fields.get(key))]
    reference = fields.get("$ref")
    if isinstance(reference, str) and reference not in seen:
        seen.add(reference)
        target: object = root
        for step in reference.removeprefix("#/").split("/"):
            target = fields_of(target).get(step)
        inner.append(target)
    return [*found, *(kind for each in inner for kind in _types(each, root, seen))]


def items_in(value: object) -> Sequence[object]:
    """Return a list or tuple unchanged, and an empty tuple for any other value."""
    return cast("Sequence[object]", value) if isinstance(value, list | tuple) else ()


_INTEGER = re.compile(r"([+-]?[0-9]+)(?:\.0*)?")
_NUMBER = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]+)?")


def _integer(text: str) -> int:
    match = _INTEGER.fullmatch(text)
    if not match:
        raise ValueError(text)
    return int(match[1])


def _number(text: str) -> int | float:
    if not _NUMBER.fullmatch(text) or not isfinite(number := float(text)):
        raise ValueError(text)
    return int(text) if text.lstrip("+-").isdecimal() else number


def _container(text: str, kind: type[object]) -> Json:
    value = literal(text)
    if not isinstance(value, kind):
        raise ValueError(text)  # noqa: TRY004 - callers catch this
    return value


_READERS: dict[str, Callable[[str], Json]] = {
    "integer": _integer,
    "number": _number,
    "boolean": lambda text: {"true": True, "false": False}[text.lower()],
    "null": lambda text: {"null": None, "None": None}[text],
    "object": partial(_container, kind=dict),
    "array": partial(_container, kind=list),
}
