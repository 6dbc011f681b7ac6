"""Calls that can only be read as a whole: a reader for each way they are written."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

from lazyprompt.answers._literals import gemma_object, literal, python_calls
from lazyprompt.answers._said import WrittenCall
from lazyprompt.answers._source import SPACE

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.answers._tools import Tools

# The text of the calls, and whether it was ended by its marker rather than by the end of the answer. A reader gives no
# calls where the text is none of its own.
Reader: TypeAlias = "Callable[[str, bool, Tools], list[WrittenCall]]"


class _Tags:
    """How calls are written in tags.

    A value goes up to the end tag behind which the next parameter begins or nothing is left: so it may hold tags
    itself, and what it holds begins no call.

    Args:
        call: The tag that opens a call, with its name.
        call_end: The tag that closes it.
        key: The tag that opens a parameter, with its name.
        value_end: The tag that closes it.
        around: What stands around a value besides its tags.
    """

    def __init__(self, call: str, call_end: str, key: str, value_end: str, around: str = "") -> None:
        opens_call, opens_key = (tag.partition("(")[0] for tag in (call, key))
        self.call = re.compile(rf"\s*{call}(.*)", re.DOTALL)
        self.next_call = re.compile(rf"{call_end}\s*(?={opens_call}|\Z)")
        self.parameter = re.compile(rf"\s*{key}(.*)", re.DOTALL)
        self.next_parameter = re.compile(rf"{value_end}\s*(?={opens_key}|\Z)")
        self.around = around

    def read(self, text: str, whole: bool, tools: Tools) -> list[WrittenCall]:  # noqa: FBT001 - the form of all readers
        """The calls in a text; none if it holds anything else."""
        *closed, rest = self.next_call.split(text)
        bodies = [(body, True) for body in closed] + ([(rest, whole)] if rest.strip(SPACE) else [])
        calls: list[WrittenCall] = []
        for body, is_whole in bodies:
            match = self.call.fullmatch(body)
            if match is None:
                return []
            name = match[1].strip(_AROUND_NAME)
            # Without its end tag it may have been cut off within a value.
            arguments = self.arguments(name, match[2], tools) if is_whole else None
            calls.append(WrittenCall(name, match[2], arguments))
        return calls

    def arguments(self, tool: str, text: str, tools: Tools) -> JsonObject | None:
        """The arguments in a text; ``None`` if it holds anything else."""
        found: JsonObject = {}
        for part in self.next_parameter.split(text):
            if not part.strip(SPACE):
                continue
            match = self.parameter.fullmatch(part)
            if match is None:
                return None
            key = match[1].strip(_AROUND_NAME)
            found[key] = tools.value(tool, key, match[2].removeprefix(self.around).removesuffix(self.around))
        return found


_AROUND_NAME = SPACE + "\"'"
_FUNCTIONS = _Tags(r"<function=([^>\n]+)>", "</function>", r"<parameter=([^>\n]+)>", "</parameter>", "\n")
_INVOKES = _Tags(r"<invoke name=([^>\n]+)>", "</invoke>", r"<parameter name=([^>\n]+)>", "</parameter>")
# GLM 4.5 has the name without a tag, and keys and values in tags of their own.
_KEYED = _Tags(r"(?!)", "(?!)", r"<arg_key>([^<]*)</arg_key>\s*<arg_value>", "</arg_value>")
_KEYED_CALL = re.compile(r"\s*([^\s<>{}()\[\]\"']+)\s*((?:<arg_key>.*)?)", re.DOTALL)
_GEMMA_CALL = re.compile(r"\s*call:([^\s{}]+)(\{.*)", re.DOTALL)


def _keyed(text: str, whole: bool, tools: Tools) -> list[WrittenCall]:  # noqa: FBT001 - the form of all readers
    match = _KEYED_CALL.fullmatch(text)
    # A name and nothing else could be any word.
    if match is None or not (match[2] or tools.may_be(match[1])):
        return []
    arguments = _KEYED.arguments(match[1], match[2], tools) if whole else None
    return [WrittenCall(match[1], match[2], arguments)]


def _gemma(text: str, whole: bool, tools: Tools) -> list[WrittenCall]:  # noqa: ARG001, FBT001 - the form of all readers
    match = _GEMMA_CALL.fullmatch(text)
    if match is None:
        return []
    raw = match[2].rstrip(SPACE)
    try:
        return [WrittenCall(match[1], raw, gemma_object(raw))]
    except (ValueError, RecursionError):
        return [WrittenCall(match[1], raw, None)]


def _python(text: str, whole: bool, tools: Tools) -> list[WrittenCall]:  # noqa: ARG001, FBT001 - the form of all readers
    try:
        return [WrittenCall(*call) for call in python_calls(text)]
    except (ValueError, RecursionError):
        return []


def _builtin(text: str, whole: bool, tools: Tools) -> list[WrittenCall]:  # noqa: FBT001 - the form of all readers
    """A call of one of Llama's built-in tools, whose name ends in ``.call``; other Python is code to be run."""
    calls = [call._replace(name=call.name.removesuffix(".call")) for call in _python(text, whole, tools)]
    return calls if all(call.arguments is not None for call in calls) else []


def _loose(text: str, whole: bool, tools: Tools) -> list[WrittenCall]:  # noqa: ARG001, FBT001 - the form of all readers
    """What should have been JSON, but has Python's quotes."""
    try:
        value = literal(text)
    except (ValueError, RecursionError):
        return []
    found = [_loose_call(item) for item in (value if isinstance(value, list) else [value])]
    calls = [call for call in found if call is not None]
    return calls if len(calls) == len(found) else []


def _loose_call(value: Json) -> WrittenCall | None:
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(name, str) or not name:
        return None
    arguments = value.get("arguments", value.get("parameters", {}))
    return WrittenCall(name, repr(arguments), arguments if isinstance(arguments, dict) else None)


READERS: dict[str, Reader] = {
    "functions": _FUNCTIONS.read,
    "invokes": _INVOKES.read,
    "keyed": _keyed,
    "gemma": _gemma,
    "python": _python,
    "builtin": _builtin,
    "loose": _loose,
}
# What a text of each kind can begin with; kinds that are not here can begin with anything.
FIRST = {"json": "{[", "loose": "{[", "functions": "<", "invokes": "<"}
