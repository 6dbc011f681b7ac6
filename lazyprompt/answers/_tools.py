"""What is known of the tools a model was offered: their names, and the types of their parameters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import TYPE_CHECKING, TypeAlias, cast

from lazyprompt.answers._literals import literal
from lazyprompt.answers._said import JSON
from lazyprompt.answers._source import SPACE
from lazyprompt.errors import ToolsError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyprompt._base.json import Fields, Json

ToolLike: TypeAlias = "str | Mapping[str, object]"

_INTEGER = re.compile(r"([+-]?[0-9]+)(?:\.0*)?")
_NUMBER = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]+)?")
_BOOLEANS = {"true": True, "false": False}
_NULLS = ("null", "None")


class Tools:
    """What is known of the tools.

    Args:
        tools: The names, or the tools as OpenAI dicts; ``None`` where nothing is known.

    Raises:
        ToolsError: A tool is neither.
    """

    __slots__ = ("_types",)

    def __init__(self, tools: Iterable[ToolLike] | None) -> None:
        # The types of each parameter of each tool.
        self._types: dict[str, dict[str, tuple[str, ...]]] | None = None
        if tools is not None:
            given = cast("object", tools)
            if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
                raise ToolsError(f"tools is a {tools.__class__.__name__}; give a list of names or of OpenAI dicts")
            self._types = dict(_parameters(tool, f"tools[{index}]") for index, tool in enumerate(tools))

    @property
    def known(self) -> bool:
        """Whether the names of all tools are known."""
        return self._types is not None

    def may_be(self, name: str) -> bool:
        """Whether there may be a tool of that name."""
        return bool(name) and (self._types is None or name in self._types)

    def value(self, tool: str, parameter: str, text: str) -> Json:
        """The value of a parameter that was written without its type.

        Args:
            tool: The tool.
            parameter: The parameter.
            text: What the model wrote.

        Returns:
            The value as the tool's schema types it; where that says nothing, or does not fit, the text itself.
        """
        types = (self._types or {}).get(tool, {}).get(parameter, ())
        # Where text is a possible value, only null is told from it.
        for kind in types if "string" not in types else [kind for kind in types if kind == "null"]:
            try:
                return _READERS[kind](text.strip(SPACE))
            except (ValueError, KeyError, RecursionError):
                continue
        return text


def _parameters(tool: object, where: str) -> tuple[str, dict[str, tuple[str, ...]]]:
    if isinstance(tool, str):
        return tool, {}
    if not isinstance(tool, Mapping):
        raise ToolsError(f"{where} is a {type(tool).__name__}; give a name or an OpenAI dict")
    given = cast("Fields", tool)
    function = _fields(given.get("function")) or given
    name = function.get("name")
    if not isinstance(name, str):
        raise ToolsError(f"{where} has no name; an OpenAI tool is {{'type': 'function', 'function': {{'name': ...}}}}")
    root = _fields(function.get("parameters"))
    properties = _fields(root.get("properties"))
    return name, {key: tuple(dict.fromkeys(_types(schema, root, set()))) for key, schema in properties.items()}


def _types(schema: object, root: Fields, seen: set[str]) -> list[str]:
    """The types that a schema allows, in its order."""
    fields = _fields(schema)
    declared = fields.get("type")
    kinds = cast("Sequence[object]", declared) if isinstance(declared, list | tuple) else (declared,)
    found = [kind for kind in kinds if isinstance(kind, str)]
    if fields.get("nullable") is True:
        found.append("null")
    for key in ("anyOf", "oneOf", "allOf"):
        choices = fields.get(key)
        for choice in cast("Sequence[object]", choices) if isinstance(choices, list | tuple) else ():
            found += _types(choice, root, seen)
    reference = fields.get("$ref")
    if isinstance(reference, str) and reference not in seen:
        seen.add(reference)
        target: object = root
        for step in reference.removeprefix("#/").split("/"):
            target = _fields(target).get(step)
        found += _types(target, root, seen)
    return found


def _fields(value: object) -> Fields:
    return cast("Fields", value) if isinstance(value, Mapping) else {}


def _integer(text: str) -> int:
    match = _INTEGER.fullmatch(text)
    if not match:
        raise ValueError(text)
    return int(match[1])


def _number(text: str) -> int | float:
    if not _NUMBER.fullmatch(text) or not isfinite(number := float(text)):
        raise ValueError(text)
    return int(text) if text.lstrip("+-").isdecimal() else number


def _null(text: str) -> None:
    if text not in _NULLS:
        raise ValueError(text)


def _of(kind: type[dict[str, Json] | list[Json]]) -> Callable[[str], Json]:
    def read(text: str) -> Json:
        try:
            value = cast("Json", JSON.decode(text))
        except ValueError:
            value = literal(text)  # Templates of some models write Python's own form.
        if not isinstance(value, kind):
            raise ValueError(text)  # noqa: TRY004 - it is the value that is wrong, and what a failed read raises
        return value

    return read


_READERS: dict[str, Callable[[str], Json]] = {
    "integer": _integer,
    "number": _number,
    "boolean": lambda text: _BOOLEANS[text.lower()],
    "null": _null,
    "object": _of(dict),
    "array": _of(list),
}
