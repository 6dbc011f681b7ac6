"""Formats for tools, tool calls and tool results that markers alone cannot express.

A pattern contains placeholders for values, such as ``{name}``. The fixed text in a pattern is trusted, but the
values are not.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias

from lazyprompt._base.json import JsonText, dump

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lazyprompt._base.json import Json
    from lazyprompt.messages.msg import ToolResultBlock, ToolUseBlock

ToolFormat: TypeAlias = Literal["json", "indented", "function", "xml", "python"]
ToolPlace: TypeAlias = Literal["system_end", "system_start", "before_system", "first_user", "last_user"]
ArgumentFormat: TypeAlias = Literal["json", "python", "mixed", "quoted", "raw_quoted"]

_NAME = re.compile(r"\{([a-z]+)\}")


@dataclass(frozen=True, slots=True)
class ToolForm:
    """The format of tools, tool calls and tool results, in addition to a family's markers.

    Args:
        tool: The syntax of a tool in the tools block: JSON, JSON indented by 4 spaces, JSON of only the tool's
            function, Qwen3-Coder's XML, or Seed-OSS's Python functions.
        place: The position of the tools block: at the end or start of the system turn, in a separate turn before the
            system turn, at the start of the first user turn, or before the last user turn.
        header: The text at the start of a system turn if the prompt has tools.
        default_system: The system text for a prompt with tools but without system text.
        turn: The pattern for a message with tool calls, with ``{text}`` and ``{calls}``.
        text_end: The separator between a message's text and its tool calls.
        strips_text: True if surrounding white space is stripped from the text of a message with tool calls.
        call: The pattern for a tool call, with ``{name}``, ``{arguments}`` and ``{id}``. If empty, the markers
            ``tool_start``, ``tool_args`` and ``tool_end`` are used.
        call_join: The separator between two tool calls.
        call_id: The pattern for a call id, with ``{name}`` and the ``{number}`` of the call in the chat. If empty, the
            original call ids are used.
        argument: The pattern for a tool argument, with ``{key}`` and ``{value}``. If empty, all arguments are written
            as a JSON object.
        argument_join: The separator between two tool arguments.
        argument_format: The notation of tool argument values other than strings: JSON, Python, or ``mixed`` (JSON for
            lists and objects, Python for other values). The formats ``quoted`` and ``raw_quoted`` write string
            arguments in single quotes; ``quoted`` escapes special characters in the strings, and ``raw_quoted``
            doesn't.
        result: The pattern for a tool result, with ``{content}`` and ``{id}``.
        json_results: True if the content of a tool result is written as a JSON string.
        opens_turn: True if an assistant turn with only tool calls begins with the start marker of the assistant turn.
        same_turn: True if the response to tool results continues the turn that contains the tool calls.
        open_thought: The empty reasoning tags that begin each assistant turn after the last user text.
        note: The reason why this format differs from the model's own tool format; empty if the formats are equal.
    """

    tool: ToolFormat = "json"
    place: ToolPlace = "system_end"
    header: str = ""
    default_system: str = ""
    turn: str = "{text}{calls}"
    text_end: str = "\n"
    strips_text: bool = False
    call: str = ""
    call_join: str = "\n"
    call_id: str = ""
    argument: str = ""
    argument_join: str = ""
    argument_format: ArgumentFormat = "json"
    result: str = "{content}"
    json_results: bool = False
    opens_turn: bool = True
    same_turn: bool = False
    open_thought: str = ""
    note: str = ""

    @property
    def literals(self) -> tuple[str, ...]:
        """The fixed texts in the patterns for tool calls and results, with the header and the separators."""
        patterns = (self.turn, self.call, self.call_id, self.argument, self.result)
        fixed = (text for pattern in patterns for text in split_pattern(pattern)[::2])
        return (*fixed, self.header, self.text_end, self.call_join, self.argument_join)


GENERAL_FORM = ToolForm()
"""The default tool format, with JSON tools in the system turn and tool calls in the markers' format."""
NO_FORM = ToolForm(note="its chat template does not render tools")
"""The format for a family whose chat template does not render tools."""


class CallIds:
    """The ids of the tool calls in a chat, rewritten to match a tool format's id pattern.

    Args:
        form: The tool format.
        number: The number of earlier tool calls in the chat.
    """

    __slots__ = ("_ids", "_number", "_pattern")

    def __init__(self, form: ToolForm, number: int = 0) -> None:
        self._pattern = form.call_id
        self._number = number
        self._ids: dict[str, str] = {}

    def add(self, call: ToolUseBlock) -> str:
        """Return the rewritten id of the next call in the chat."""
        if self._pattern:
            self._ids[call.id] = self._id(call.name)
            self._number += 1
        return self._ids.get(call.id, call.id)

    def find(self, result: ToolResultBlock) -> str:
        """Return the rewritten id of the call that produced a result."""
        if self._pattern and result.id not in self._ids:
            return self._id(result.name)
        return self._ids.get(result.id, result.id)

    def _id(self, name: str) -> str:
        return self._pattern.replace("{name}", name).replace("{number}", str(self._number))


@lru_cache(maxsize=256)
def split_pattern(pattern: str) -> tuple[str, ...]:
    """Split a pattern into alternating fixed texts and placeholder names."""
    return tuple(_NAME.split(pattern))


def fill_pattern(pattern: str, values: Mapping[str, Sequence[str]]) -> list[str]:
    """Replace the placeholders in a pattern with values.

    Args:
        pattern: The pattern.
        values: The alternating trusted and untrusted parts of each value. The first and the last part are trusted.

    Returns:
        The alternating trusted and untrusted parts of the filled pattern.
    """
    first, *rest = split_pattern(pattern)
    parts = [first]
    for name, fixed in zip(rest[::2], rest[1::2], strict=True):
        _append(parts, values[name])
        parts[-1] += fixed
    return parts


def join_parts(runs: Sequence[Sequence[str]], separator: str) -> list[str]:
    """Join lists of parts with a separator; the first and last part of each list are trusted."""
    parts = [""]
    for at, run in enumerate(runs):
        parts[-1] += separator if at else ""
        _append(parts, run)
    return parts


def _append(parts: list[str], run: Sequence[str]) -> None:
    parts[-1] += run[0]
    parts += run[1:]


def call_parts(call: ToolUseBlock, form: ToolForm, pattern: str, call_id: str) -> list[str]:
    """Write a tool call as alternating trusted and untrusted parts."""
    if not form.argument:
        arguments: Sequence[str] = ("", dump(call.arguments), "")
        name: str = JsonText(dump(call.name)[1:-1])
    else:
        name = call.name
        write = _ARGUMENT_FORMATS[form.argument_format]
        runs = [
            fill_pattern(form.argument, {"key": ("", key, ""), "value": ("", write(value), "")})
            for key, value in call.arguments.items()
        ]
        arguments = join_parts(runs, form.argument_join)
    return fill_pattern(pattern, {"name": ("", name, ""), "arguments": arguments, "id": ("", call_id, "")})


def result_parts(content: str, form: ToolForm, call_id: str) -> list[str]:
    """Write a tool result as alternating trusted and untrusted parts."""
    text = dump(content) if form.json_results else content
    return fill_pattern(form.result, {"content": ("", text, ""), "id": ("", call_id, "")})


def _as_json(value: Json) -> str:
    return value if isinstance(value, str) else dump(value)


def _as_python(value: Json) -> str:
    return str(value)


def _as_mixed(value: Json) -> str:
    return dump(value) if isinstance(value, dict | list) else str(value)


def _as_quoted(value: Json) -> str:
    if not isinstance(value, str):
        return _as_mixed(value)
    for character, escape in (("\\", "\\\\"), ("'", "\\'"), ("\n", "\\n"), ("\r", "\\r")):
        value = value.replace(character, escape)
    return f"'{value}'"


def _as_raw_quoted(value: Json) -> str:
    if isinstance(value, str):
        return f"'{value}'"
    return dump(value) if isinstance(value, dict) else str(value)


_ARGUMENT_FORMATS: Mapping[ArgumentFormat, Callable[[Json], str]] = {
    "json": _as_json,
    "python": _as_python,
    "mixed": _as_mixed,
    "quoted": _as_quoted,
    "raw_quoted": _as_raw_quoted,
}


def tool_run(tool: Json, form: ToolFormat) -> list[str]:
    """Write the description of a tool as alternating trusted and untrusted parts."""
    return _TOOL_FORMATS[form](tool)


def _object(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _function(tool: Json) -> dict[str, Json]:
    """Return a tool's ``function`` field, or the tool itself if the field is missing."""
    fields = _object(tool)
    return _object(fields.get("function")) or fields


def _xml(tool: Json) -> list[str]:
    """Write a tool in Qwen3-Coder's XML format."""
    function = _function(tool)
    parameters = _object(function.get("parameters"))
    out = ["\n<function>"]
    _add_tags(out, {"name": function.get("name"), "description": str(function.get("description", "")).strip()})
    out[-1] += "\n<parameters>"
    for name, given in _object(parameters.get("properties")).items():
        fields = _object(given)
        out[-1] += "\n<parameter>"
        described = {"description": str(fields["description"]).strip()} if "description" in fields else {}
        _add_tags(out, {"name": name, **{key: fields[key] for key in ("type",) if key in fields}, **described})
        _add_list(out, "enum", fields.get("enum"))
        rest = {key: value for key, value in fields.items() if key not in ("type", "description", "enum", "required")}
        _add_tags(out, {re.sub(r"[- ]", "_", key).replace("$", ""): value for key, value in rest.items()})
        _add_list(out, "required", fields.get("required"))
        out[-1] += "\n</parameter>"
    _add_list(out, "required", parameters.get("required"))
    out[-1] += "\n</parameters>"
    _add_tags(out, {key: function[key] for key in ("return",) if key in function})
    out[-1] += "\n</function>"
    return out


def _add_tags(out: list[str], values: Mapping[str, Json]) -> None:
    for tag, value in values.items():
        text = dump(value) if isinstance(value, dict) else str(value)
        _append(out, fill_pattern("\n<{tag}>{value}</{tag}>", {"tag": ("", tag, ""), "value": ("", text, "")}))


def _add_list(out: list[str], tag: str, items: Json) -> None:
    if isinstance(items, list) and items:
        texts = [f"`{item}`" if isinstance(item, str) else str(item) for item in items]
        _append(out, ["\n<" + tag + ">[", ", ".join(texts), f"]</{tag}>"])


_PYTHON_TYPES = {"string": "str", "number": "int", "integer": "int", "boolean": "bool", "array": "list"}


def _python(tool: Json) -> list[str]:
    """Write a tool as a Python function in Seed-OSS's format."""
    function = _function(tool)
    parameters = _object(function.get("parameters"))
    properties = {name: _object(given) for name, given in _object(parameters.get("properties")).items()}
    types = {name: _PYTHON_TYPES.get(str(given.get("type")), "Any") for name, given in properties.items()}
    required = parameters.get("required")
    needed = required if isinstance(required, list) else []
    arguments = ",".join(f"{name}: {types[name]}" for name in properties)
    lines = [
        f"\n    - {name} ({types[name]}) [{'必填' if name in needed else '选填'}]: {given.get('description') or ''}"
        for name, given in properties.items()
    ]
    described = "\n    Args:" + "".join(lines) + "\n" if lines else ""
    head = f"{function.get('name')}({arguments}):"
    body = f"{str(function.get('description', '')).strip()}\n{described}"
    return ["\n\nFunction:\ndef ", head, '\n    """\n    ', body, '\n    """']


_TOOL_FORMATS: Mapping[ToolFormat, Callable[[Json], list[str]]] = {
    "json": lambda tool: ["", dump(tool), ""],
    "indented": lambda tool: ["", JsonText(json.dumps(tool, ensure_ascii=False, indent=4)), ""],
    "function": lambda tool: ["", dump(dict(_function(tool))), ""],
    "xml": _xml,
    "python": _python,
}
