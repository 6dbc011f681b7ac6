"""Calls written as JSON, read while they are being written: the arguments can be given on piece by piece."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lazyprompt.answers._said import JSON, WrittenCall, arguments_of, well
from lazyprompt.answers._source import SPACES

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyprompt.answers._said import Said
    from lazyprompt.answers._source import Cuts, Source, Waiting
    from lazyprompt.answers._tools import Tools

# The keys by which the forms call the same three things. The first that is there counts.
_NAME = ("name", "tool_name", "function")
_ARGUMENTS = ("arguments", "parameters", "args", "input")
_ID = ("id", "tool_call_id", "call_id")
# Without a marker before it, an object that has any other key is no call.
_KEYS = frozenset((*_NAME, *_ARGUMENTS, *_ID, "type"))

_STRUCTURE = {False: re.compile(r'["{}\[\]]'), True: re.compile(r"""["'()\[\]{}]""")}
_QUOTES = {'"': re.compile(r'["\\]'), "'": re.compile(r"['\\]")}
_SCALAR = re.compile(r"[^,;{}\[\]\s]*")
_BETWEEN = re.compile(r"[,;\s]*")
_WITHIN = re.compile(r"[,\s]*")


class Nested:
    """Reads what is nested in brackets and quotes, without understanding it.

    A marker within quotes is a part of them, as long as they may still be closed on the same line: neither JSON nor
    Python has line breaks there, so behind one they were torn open.

    Args:
        source: The text.
        cuts: The markers that count here.
        final: The markers that end everything.
        python: Whether it is Python, which has single quotes and round brackets too.
    """

    __slots__ = ("_structure", "cuts", "final", "source")

    def __init__(self, source: Source, cuts: Cuts, final: frozenset[str], *, python: bool = False) -> None:
        self.source = source
        self.cuts = cuts
        self.final = final
        self._structure = _STRUCTURE[python]

    def quoted(self, put: Callable[[str], object]) -> Waiting[bool]:
        """Read from a quote to the one that closes it.

        Args:
            put: Is given each piece.

        Returns:
            Whether it was closed.
        """
        source = self.source
        quote = source.take(source.at + 1)
        put(quote)
        torn = False
        while True:
            end, marker = yield from source.span(self.cuts)
            if end == source.at:
                if not marker or torn or marker in self.final:
                    return False
                put(source.take(end + len(marker)))
                continue
            match = _QUOTES[quote].search(source.text, source.at, end)
            piece = source.take(match.end() if match else end)
            torn = torn or "\n" in piece
            put(piece)
            if match and match[0] == quote:
                return True
            if match:
                # Whatever follows the backslash closes nothing.
                end, _ = yield from source.span(self.cuts)
                if end > source.at:
                    put(source.take(source.at + 1))

    def value(self, put: Callable[[str], object]) -> Waiting[bool]:
        """Read one value: up to the bracket or quote that closes it, or as far as a number or word goes.

        Args:
            put: Is given each piece.

        Returns:
            Whether it was closed.
        """
        source = self.source
        depth = 0
        while True:
            end, _ = yield from source.span(self.cuts)
            if end == source.at:
                return False
            match = self._structure.search(source.text, source.at, end)
            if depth == 0 and (match is None or match.start() > source.at or match[0] in ")]}"):
                put((yield from source.run(_SCALAR, self.cuts)))
                return True
            piece = source.take(match.start() if match else end)
            if piece:
                put(piece)
            if match is None:
                continue
            if match[0] in "\"'":
                if not (yield from self.quoted(put)):
                    return False
            else:
                put(source.take(source.at + 1))
                depth += 1 if match[0] in "([{" else -1
            if depth == 0:
                return True


class JsonCalls:
    """Reads calls that are JSON objects, alone, in a list, or one behind the other.

    Args:
        nested: The text.
        said: Is told of the calls.
        tools: The known tools.
        silent: Names that stand for no call at all.
        bare: Whether no marker said that these are calls: then they must look the part, and their names be known.
    """

    __slots__ = ("_bare", "_nested", "_said", "_silent", "_source", "_tools")

    def __init__(
        self, nested: Nested, said: Said, tools: Tools, silent: frozenset[str] = frozenset(), *, bare: bool = False
    ) -> None:
        self._nested = nested
        self._source = nested.source
        self._said = said
        self._tools = tools
        self._silent = silent
        self._bare = bare

    def calls(self, opened: str = "") -> Waiting[tuple[int, str]]:
        """Read all calls that stand here.

        Args:
            opened: What was read of them already: the bracket that opens a list.

        Returns:
            How many there were, and what was read behind them that is no call.
        """
        source, cuts = self._source, self._nested.cuts
        raw = [opened]
        count = 0
        listed = bool(opened)
        if not listed and (yield from source.peek(cuts)) == "[":
            listed = True
            raw += [source.take(source.at + 1), (yield from source.run(SPACES, cuts))]
        while True:
            char = yield from source.peek(cuts)
            if char == "{":
                if not (yield from self._object(raw)):
                    return count, "".join(raw)
                count += 1
                raw.clear()
            elif char == "]" and listed and count:
                source.take(source.at + 1)
                return count, ""
            else:
                return count, "".join(raw)
            raw.append((yield from source.run(_BETWEEN, cuts)))

    def _object(self, raw: list[str]) -> Waiting[bool]:
        """Read one object, and say the call.

        Args:
            raw: Where all that is read is put, for the case that it is no call.

        Returns:
            Whether it was a call.
        """
        source, cuts, nested, said = self._source, self._nested.cuts, self._nested, self._said
        fields: dict[str, str] = {}
        started = whole = False
        raw.append(source.take(source.at + 1))
        while True:
            raw.append((yield from source.run(_WITHIN, cuts)))
            char = yield from source.peek(cuts)
            if char == "}":
                raw.append(source.take(source.at + 1))
                whole = True
                break
            if char != '"':
                break
            key = yield from self._key(raw)
            if key is None or (self._bare and key not in _KEYS):
                break
            opens = (yield from source.peek(cuts)) == "{"
            if opens and key in _ARGUMENTS and not started and (name := self._callable(fields)):
                said.start_call(name, _own_id(fields), sure=False)
                started = True
                if not (yield from nested.value(said.arguments)):
                    break
                continue
            pieces: list[str] = []
            closed = yield from nested.value(pieces.append)
            raw += pieces
            fields[key] = "".join(pieces)
            if not closed or (self._bare and key in _NAME and not self._tools.may_be(_text(fields[key]))):
                break
        if started:
            said.end_call(_own_id(fields))
            return True
        if not whole and not self._bare:
            # What follows in an object that is torn belongs to it.
            raw.append((yield from source.rest(cuts, nested.final))[0])
        return self._say(fields, "".join(raw), whole=whole)

    def _key(self, raw: list[str]) -> Waiting[str | None]:
        """Read a key and its colon; ``None`` where there is none."""
        source, cuts = self._source, self._nested.cuts
        pieces: list[str] = []
        closed = yield from self._nested.quoted(pieces.append)
        raw += [*pieces, (yield from source.run(SPACES, cuts))]
        if not closed or (yield from source.peek(cuts)) != ":":
            return None
        raw += [source.take(source.at + 1), (yield from source.run(SPACES, cuts))]
        return _text("".join(pieces))

    def _callable(self, fields: dict[str, str]) -> str:
        """The name of the tool, if one can be called by what is known of it so far."""
        name = _name(fields)
        return name if name not in self._silent and (not self._bare or self._tools.may_be(name)) else ""

    def _say(self, fields: dict[str, str], raw: str, *, whole: bool) -> bool:
        """Say a call of which all is read; whether it was one."""
        name = _name(fields)
        written = next((fields[key] for key in _ARGUMENTS if key in fields), None)
        if self._bare and not (whole and written is not None and self._tools.may_be(name)):
            return False
        if name in self._silent:
            return whole
        # Cut off before its arguments, a call is not one without any.
        text = ("" if whole else raw) if written is None else written
        call = WrittenCall(name, text, arguments_of(text)) if name else _nested_call(fields.get("function", ""))
        if call is None:
            return False
        self._said.call(call, _own_id(fields))
        return True


def _nested_call(raw: str) -> WrittenCall | None:
    """The call in a ``function``, where OpenAI's form has name and arguments."""
    fields = arguments_of(raw) or {}
    name = fields.get("name")
    if not isinstance(name, str) or not name:
        return None
    given = next((fields[key] for key in _ARGUMENTS if key in fields), None)
    arguments = {} if given is None else arguments_of(given) if isinstance(given, str) else given
    return WrittenCall(well(name), raw, arguments if isinstance(arguments, dict) else None)


def _text(raw: str) -> str:
    """The text of a JSON string; ``""`` for anything else."""
    if not raw.startswith('"'):
        return ""
    try:
        return well(str(JSON.decode(raw)))
    except ValueError:
        return ""


def _name(fields: dict[str, str]) -> str:
    return next((name for key in _NAME if (name := _text(fields.get(key, "")))), "")


def _own_id(fields: dict[str, str]) -> str:
    """The id the model wrote, a number too."""
    written = (fields.get(key, "") for key in _ID)
    return next((own for raw in written if (own := raw if raw.isdecimal() else _text(raw))), "")
