"""Parsers for tool calls.

Calls in JSON are parsed while they arrive; calls in other syntaxes are parsed only when complete.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from lazyprompt.answers.message_builder import JSON, MessageBuilder, WrittenCall, arguments_of, well
from lazyprompt.answers.source import SPACE, SPACES, StreamedText, Waiting, cuts_of
from lazyprompt.answers.values import Tools, gemma_object, literal, python_calls

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyprompt._base.json import JsonObject
    from lazyprompt.answers.forms import AnswerForm, Begins


class Body(NamedTuple):
    """The text between the start and end markers of a tool call.

    Args:
        text: The text between the tool call's start and end markers.
        whole: True if an end marker follows ``text``; False if the response ended without an end marker.
        tools: The tools that the model was offered.
    """

    text: str
    whole: bool
    tools: Tools


# A function that parses the calls in a text, or returns an empty list if the text has a different syntax.
Reader: TypeAlias = "Callable[[Body], list[WrittenCall]]"


class _Tags:
    """A parser for tool calls in tag syntax.

    A value ends at an end tag that precedes the next parameter or the end of the text. Tags inside a value never start
    a call.

    Args:
        call: A pattern for the tag that opens a call, with a group for the tool name.
        call_end: The tag that closes a call.
        key: A pattern for the tag that opens a parameter, with a group for the parameter name.
        value_end: The tag that closes a parameter.
        around: The text between a value and its tags.
    """

    def __init__(self, call: str, call_end: str, key: str, value_end: str, around: str = "") -> None:
        opens_call, opens_key = (tag.partition("(")[0] for tag in (call, key))
        self.call = re.compile(rf"\s*{call}(.*)", re.DOTALL)
        self.next_call = re.compile(rf"{call_end}\s*(?={opens_call}|\Z)")
        self.parameter = re.compile(rf"\s*{key}(.*)", re.DOTALL)
        self.next_parameter = re.compile(rf"{value_end}\s*(?={opens_key}|\Z)")
        self.around = around

    def read(self, body: Body) -> list[WrittenCall]:
        """Parse all calls in a text."""
        *closed, rest = self.next_call.split(body.text)
        bodies = [(text, True) for text in closed] + ([(rest, body.whole)] if rest.strip(SPACE) else [])
        matches = [(self.call.fullmatch(text), whole) for text, whole in bodies]
        calls = [self.written(match[1], match[2], Body("", whole, body.tools)) for match, whole in matches if match]
        return calls if len(calls) == len(matches) else []

    def written(self, name: str, text: str, body: Body) -> WrittenCall:
        """Parse one call; if its end tag is missing, the arguments are None, because a value may be truncated."""
        name = name.strip(_AROUND_NAME)
        return WrittenCall(name, text, self.arguments(name, text, body.tools) if body.whole else None)

    def arguments(self, tool: str, text: str, tools: Tools) -> JsonObject | None:
        """Parse the arguments of a call; return None if the text contains anything besides parameters."""
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
# GLM 4.5 writes the tool name without a tag, and each key and value in a separate tag.
_KEYED = _Tags(r"(?!)", "(?!)", r"<arg_key>([^<]*)</arg_key>\s*<arg_value>", "</arg_value>")
_KEYED_CALL = re.compile(r"\s*([^\s<>{}()\[\]\"']+)\s*((?:<arg_key>.*)?)", re.DOTALL)
_GEMMA_CALL = re.compile(r"\s*call:([^\s{}]+)(\{.*)", re.DOTALL)


def _keyed(body: Body) -> list[WrittenCall]:
    match = _KEYED_CALL.fullmatch(body.text)
    # A name without arguments could be any word, so accept only a known tool's name.
    if match is None or not (match[2] or body.tools.may_be(match[1])):
        return []
    return [_KEYED.written(match[1], match[2], body)]


def _gemma(body: Body) -> list[WrittenCall]:
    match = _GEMMA_CALL.fullmatch(body.text)
    if match is None:
        return []
    raw = match[2].rstrip(SPACE)
    return [WrittenCall(match[1], raw, gemma_object(raw))]


def _python(body: Body) -> list[WrittenCall]:
    try:
        return python_calls(body.text)
    except ValueError:
        return []


def _builtin(body: Body) -> list[WrittenCall]:
    """Parse calls to built-in Llama tools, whose names end in ``.call``; return an empty list for any other code."""
    calls = [call._replace(name=call.name.removesuffix(".call")) for call in _python(body)]
    return calls if all(call.arguments is not None for call in calls) else []


def _loose(body: Body) -> list[WrittenCall]:
    """Parse a call in JSON syntax with Python quotes."""
    try:
        value = literal(body.text)
    except ValueError:
        return []
    calls: list[WrittenCall] = []
    for item in value if isinstance(value, list) else [value]:
        name = item.get("name") if isinstance(item, dict) else None
        if not isinstance(item, dict) or not isinstance(name, str) or not name:
            return []
        arguments = item.get("arguments", item.get("parameters", {}))
        calls.append(WrittenCall(name, repr(arguments), arguments if isinstance(arguments, dict) else None))
    return calls


READERS: dict[str, Reader] = {
    "functions": _FUNCTIONS.read,
    "invokes": _INVOKES.read,
    "keyed": _keyed,
    "gemma": _gemma,
    "python": _python,
    "builtin": _builtin,
    "loose": _loose,
}
# Maps a call syntax to the characters that can start a call. In a syntax without an entry, any character can start a
# call.
FIRST = {"json": "{[", "loose": "{[", "functions": "<", "invokes": "<"}

# The keys for a tool call's name, arguments and id in all formats, in order of precedence.
_NAME = ("name", "tool_name", "function")
_ARGUMENTS = ("arguments", "parameters", "args", "input")
_ID = ("id", "tool_call_id", "call_id")
# The keys allowed in a tool call without a start marker.
_KEYS = frozenset((*_NAME, *_ARGUMENTS, *_ID, "type"))
_BETWEEN = re.compile(r"[,;\s]*")
_WITHIN = re.compile(r"[,\s]*")


class AnswerPlan:
    """A response format, with the markers to search for in each part of a response.

    Args:
        form: The format of the response.
        begins: The kind of content at the start of the response.
        final: The markers that end the response.
        tools: The tools that the model was offered.
    """

    def __init__(self, form: AnswerForm, begins: Begins, final: frozenset[str], tools: Tools) -> None:
        self.form = form
        self.begins = begins
        self.final = final
        self.tools = tools
        self.calls = {calls.start: calls for calls in form.calls if tools.known or not calls.known_tools}
        thought = form.thought or ()
        # If ``Calls.keep`` is set, a call's start marker is also part of its body, so don't search a body for this
        # marker.
        base = final.union((calls.start for calls in form.calls if not calls.keep), form.drop)
        starts = base.union(self.calls)
        # Text is also searched for the end markers of calls, in order to remove repeated end markers.
        self.text = cuts_of(starts.union((calls.end for calls in form.calls), thought[:1]) - {""})
        self.either = cuts_of(starts.union(thought))
        self.thought = cuts_of(final.union(thought[1:]))
        self.prompted_thought = cuts_of(final.union(thought))
        self.bodies = {calls.start: cuts_of(base | ({calls.end, calls.quote} - {""})) for calls in form.calls}


class CallReader:
    """A parser for tool calls that arrive in chunks.

    Args:
        plan: The response format and the known tools.
        source: The streamed text.
        builder: The builder for the parsed message.
    """

    def __init__(self, plan: AnswerPlan, source: StreamedText, builder: MessageBuilder) -> None:
        self._plan = plan
        self._form = plan.form
        self._tools = plan.tools
        self._source = source
        self._builder = builder

    def _arguments(self, name: str, own_id: str = "", begun: str = "") -> Waiting[None]:
        """Read a tool call's arguments; if they are a JSON object, add its text to the message chunk by chunk.

        Args:
            name: The name of the tool.
            own_id: The id that the model wrote.
            begun: The part of the arguments that was already read.
        """
        source, builder = self._source, self._builder
        first = begun or (yield from source.peek())
        if first == "{":
            builder.start_call(name, own_id, sure=True)
            yield from source.value(builder.arguments)
            builder.end_call()
            return
        pieces = [begun]
        if first == '"':
            # The arguments are JSON encoded as a JSON string.
            yield from source.value(pieces.append)
        else:
            pieces.append((yield from source.rest())[0].rstrip(SPACE))
        raw = "".join(pieces)
        builder.call(WrittenCall(name, raw, arguments_of(raw)), own_id)

    def _json_calls(self, opened: str = "", *, bare: bool) -> Waiting[tuple[int, str]]:
        """Read calls that are JSON objects: a single object, consecutive objects, or a list.

        Args:
            opened: The opening bracket of a list, if it was already read.
            bare: True if no marker precedes the calls; each call must then contain only call keys and name a known
                tool.

        Returns:
            The number of calls, and any text that was read after the last call but is not a call.
        """
        source = self._source
        raw = [opened]
        count = 0
        if not opened and (yield from source.peek()) == "[":
            raw = [source.take(source.at + 1), (yield from source.run(SPACES))]
        listed = bool(raw[0])
        while True:
            char = yield from source.peek()
            if char == "]" and listed and count:
                source.skip(char)
                return count, ""
            if char != "{" or not (yield from self._object(raw, bare=bare)):
                return count, "".join(raw)
            count += 1
            raw = [(yield from source.run(_BETWEEN))]

    def _object(self, raw: list[str], *, bare: bool) -> Waiting[bool]:
        """Read one JSON object; return True if the object is a tool call.

        Args:
            raw: A list to which the JSON object's text is appended; the caller keeps it as plain text if the object is
                not a tool call.
            bare: True if no tool-call marker precedes the object.
        """
        source, builder = self._source, self._builder
        fields: dict[str, str] = {}
        started = whole = False
        raw.append(source.take(source.at + 1))
        while True:
            raw.append((yield from source.run(_WITHIN)))
            if (yield from source.peek()) == "}":
                raw.append(source.take(source.at + 1))
                whole = True
                break
            key = yield from self._key(raw)
            if key is None or (bare and key not in _KEYS):
                break
            name = _name(fields) if key in _ARGUMENTS and not started else ""
            if name and name not in self._form.silent and (yield from source.peek()) == "{":
                builder.start_call(name, _own_id(fields), sure=False)
                started = True
                yield from source.value(builder.arguments)
                continue
            pieces: list[str] = []
            yield from source.value(pieces.append)
            raw += pieces
            fields[key] = "".join(pieces)
            if bare and key in _NAME and not self._tools.may_be(_text(fields[key])):
                break
        if started:
            builder.end_call(_own_id(fields))
            return True
        if not whole and not bare:
            # Treat the text after an invalid object as part of the object.
            raw.append((yield from source.rest())[0])
        return self._add(fields, "".join(raw), whole=whole, bare=bare)

    def _add(self, fields: dict[str, str], raw: str, *, whole: bool, bare: bool) -> bool:
        """Add a tool call from an object's parsed fields; return True if the object is a tool call."""
        name = _name(fields)
        written = next((fields[key] for key in _ARGUMENTS if key in fields), None)
        if bare and not (whole and name and written is not None):
            return False
        if name in self._form.silent:
            return whole
        # A call truncated before its arguments must not be parsed as a call without arguments.
        text = ("" if whole else raw) if written is None else written
        call = WrittenCall(name, text, arguments_of(text)) if name else _nested_call(fields.get("function", ""))
        if call is not None:
            self._builder.call(call, _own_id(fields))
        return call is not None

    def _key(self, raw: list[str]) -> Waiting[str | None]:
        """Read a key and its colon; return None if the text is not a key."""
        source = self._source
        if (yield from source.peek()) != '"':
            return None
        pieces: list[str] = []
        yield from source.quoted(pieces.append)
        raw += [*pieces, (yield from source.run(SPACES))]
        if (yield from source.peek()) != ":":
            return None
        raw += [source.take(source.at + 1), (yield from source.run(SPACES))]
        return _text("".join(pieces))


def _nested_call(raw: str) -> WrittenCall | None:
    """Parse a call from a ``function`` object, as in OpenAI's format."""
    fields = arguments_of(raw) or {}
    name = fields.get("name")
    if not isinstance(name, str) or not name:
        return None
    given = next((fields[key] for key in _ARGUMENTS if key in fields), None)
    arguments = {} if given is None else arguments_of(given) if isinstance(given, str) else given
    return WrittenCall(well(name), raw, arguments if isinstance(arguments, dict) else None)


def _text(raw: str) -> str:
    """Return the value of a JSON string, or an empty string for any other JSON."""
    if not raw.startswith('"'):
        return ""
    try:
        return well(str(JSON.decode(raw)))
    except ValueError:
        return ""


def _name(fields: dict[str, str]) -> str:
    return next((name for key in _NAME if (name := _text(fields.get(key, "")))), "")


def _own_id(fields: dict[str, str]) -> str:
    """Return the id of a tool call as the model wrote it; in JSON, the id may be a number."""
    written = (fields.get(key, "") for key in _ID)
    return next((own for raw in written if (own := raw if raw.isdecimal() else _text(raw))), "")
