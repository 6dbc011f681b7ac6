"""YAML prompt files: a prompter written down, to be reviewed, shared and rendered from the command line.

A file is read in two steps. :class:`_Reader` turns YAML into nodes that know their place; the functions below it turn
nodes into a prompter. Every mistake is one :class:`PromptFileError` that begins with ``name:line:column:``.

Plain values are text unless JSON would read them as a number, ``true``, ``false`` or ``null``. YAML 1.1 knows more:
to it ``no`` is false, ``12:30`` is 750 and ``010`` is 8, none of which anybody means who writes a prompt.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast
from unicodedata import combining, east_asian_width

import yaml

from lazyprompt._json import well_formed
from lazyprompt.errors import LazyPromptError, PromptFileError, did_you_mean
from lazyprompt.history import History
from lazyprompt.inspect.terminal import visible
from lazyprompt.prompter import AlpacaPrompter, ChatPrompter
from lazyprompt.text.slots import escape
from lazyprompt.tools import ToolSet

if TYPE_CHECKING:
    from collections.abc import Generator

    from lazyprompt.history import HistoryLike
    from lazyprompt.prompter import Prompter
    from lazyprompt.tools import ToolLike

MAX_BYTES = 5_000_000
"""The largest prompt file, and the most text it may hold once its aliases are written out."""

MAX_NODES = 100_000
"""The most values a prompt file may hold once its aliases are written out."""

MAX_DEPTH = 100
"""The deepest nesting in a prompt file."""

FIELDS = ("type", "instruction", "system", "extra_keys", "tools", "history", "examples", "model")
"""The fields of a prompt file; all may be left out."""

TYPES = ("chat", "alpaca")
"""The values of the field ``type``."""


@dataclass(frozen=True, slots=True)
class PromptFile:
    """A prompter that was read from a file.

    Args:
        prompter: The prompter; with the model's markers, where the file names a model.
        model: The model the file names.
        name: How errors call the file.
        path: Where the file is; ``None`` if it was given as text.
    """

    prompter: Prompter
    model: str | None = None
    name: str = "<string>"
    path: Path | None = None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PromptFile:
        """Read a prompt file.

        Args:
            path: The file, in UTF-8.

        Returns:
            The prompter and what the file says about it.

        Raises:
            PromptFileError: The file cannot be read or is no prompt file; the message begins ``path:line:column:``.
        """
        name = os.fspath(path)
        try:
            with Path(name).open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        except (OSError, ValueError) as error:  # a path with a NUL character is a ValueError
            raise PromptFileError(f"{name}:1:1: cannot be read: {getattr(error, 'strerror', None) or error}") from error
        return cls._made(_decoded(data, name), name, Path(name))

    @classmethod
    def loads(cls, text: str, name: str = "<string>") -> PromptFile:
        """Read a prompt file that is at hand as text.

        Args:
            text: What stands in the file.
            name: How errors call it.

        Returns:
            The prompter and what the text says about it.

        Raises:
            PromptFileError: The text is no prompt file; the message begins ``name:line:column:``.
        """
        if not isinstance(cast("object", text), str):
            raise PromptFileError(f"{name}:1:1: a prompt file is text, not {type(text).__name__}; see PromptFile.load")
        return cls._made(text, name, None)

    @classmethod
    def _made(cls, text: str, name: str, path: Path | None) -> PromptFile:
        source = _Source(text, name)
        fields = _fields(source)
        prompter = _prompter(source, fields)
        model = _text_of(source, fields["model"], "model") if "model" in fields else None
        if model is not None:
            with _placed(source, fields["model"]):
                prompter = prompter.with_markers(model)
        return cls(prompter, model, name, path)


def _decoded(data: bytes, name: str) -> str:
    if len(data) > MAX_BYTES:
        raise PromptFileError(f"{name}:1:1: {_TOO_LARGE}")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = _Source(data[: error.start].decode("utf-8"), name, whole=False)
        what = f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        raise before.error(len(before.text), what) from error


# --- Places ------------------------------------------------------------------------------------------------------

_TOO_LARGE = f"the file is larger than {MAX_BYTES} bytes"
_LINE_BREAK = re.compile(r"\r\n|[\r\n]")
_NOT_IN_YAML = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# How much of a long line a syntax error shows, before and after the place.
_SHOWN_BEFORE, _SHOWN_BEHIND = 60, 40


class _Source:
    """The text of a file, in which each place has a line and a column.

    Args:
        text: The text; a byte order mark before it is no part of it.
        name: How errors call the file.
        whole: Whether it is the whole text, and so to be checked.

    Raises:
        PromptFileError: The text is too long, or has characters that no YAML has.
    """

    def __init__(self, text: str, name: str, *, whole: bool = True) -> None:
        self.text = text.removeprefix("\ufeff")
        self.name = name
        if whole:
            self._check()

    def _check(self) -> None:
        if alien := _NOT_IN_YAML.search(self.text):
            what = f"the character U+{ord(alien[0]):04X} may not stand in YAML; in double quotes an escape may"
            raise self.error(alien.start(), what)
        if len(self.text.encode()) > MAX_BYTES:
            raise self.error(0, _TOO_LARGE)

    def place(self, at: int) -> tuple[int, int]:
        """The line and column of an index, both from 1, as editors count them."""
        breaks = [match.end() for match in _LINE_BREAK.finditer(self.text, 0, at)]
        return len(breaks) + 1, at - (breaks[-1] if breaks else 0) + 1

    def error(self, at: int, what: str) -> PromptFileError:
        """An error at an index."""
        line, column = self.place(at)
        return PromptFileError(f"{self.name}:{line}:{column}: {what}")

    def syntax_error(self, error: yaml.MarkedYAMLError) -> PromptFileError:
        """What the parser found wrong, with the line it found it in."""
        mark = error.problem_mark or error.context_mark
        # The end of the file is better shown behind the last thing in it.
        at = min(mark.index if mark else 0, len(self.text.rstrip()))
        column = self.place(at)[1]
        line = _LINE_BREAK.split(self.text[at - column + 1 : at + _SHOWN_BEHIND], maxsplit=1)[0].replace("\t", " ")
        start = max(column - 1 - _SHOWN_BEFORE, 0)
        indent = " " * sum(map(_cells, visible(line[start : column - 1])))
        what = ", ".join(filter(None, (error.context, error.problem)))
        return self.error(at, f"{what}{self._advice(at, what)}\n{visible(line[start:])}\n{indent}^")

    def _advice(self, at: int, what: str) -> str:
        """What to do about the mistakes that people make most."""
        line = _LINE_BREAK.split(self.text[:at])[-1] + self.text[at : at + 1]
        if "\t" in line[: len(line) - len(line.lstrip())]:
            return "; YAML is indented with spaces, not with tabs"
        if "mapping values" in what:
            return "; text that holds ': ' goes into quotes, or behind a |"
        if "cannot start" in what:
            return f"; text that begins with {self.text[at : at + 1]!r} goes into quotes"
        return ""


def _cells(sign: str) -> int:
    """How many cells of a terminal a character takes."""
    return 0 if combining(sign) else 2 if east_asian_width(sign) in "WF" else 1


# --- YAML into nodes ---------------------------------------------------------------------------------------------


class _Node(NamedTuple):
    """A value and its place.

    Attributes:
        value: The value.
        at: Where it begins.
        key_at: Where its key begins; for a value without a key, where it begins itself.
        flow: Whether it is a list or mapping written with brackets or braces.
    """

    value: _Value
    at: int
    key_at: int
    flow: bool = False


_Value: TypeAlias = "str | int | float | bool | list[_Node] | dict[str, _Node] | None"

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORDS = dict.fromkeys(("", "~", "null", "Null", "NULL"), None) | {
    word: word.lower() == "true" for word in ("true", "True", "TRUE", "false", "False", "FALSE")
}
_TAGS = ("!", "tag:yaml.org,2002:str", "tag:yaml.org,2002:seq", "tag:yaml.org,2002:map")
# More digits are no number that anything means, and Python refuses to read them.
_MOST_DIGITS = 300
_KINDS: dict[type, str] = {
    str: "text",
    int: "a number",
    float: "a number",
    bool: "true or false",
    type(None): "empty",
    list: "a list",
    dict: "a mapping",
}


class _Reader:
    """Makes nodes of YAML, event by event.

    Nothing is made that a bound forbids: an alias is counted as what it stands for before it stands for it, and the
    parser is not asked for more than was allowed so far.

    Args:
        source: The text.
    """

    def __init__(self, source: _Source) -> None:
        self._source = source
        self._events = yaml.parse(source.text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        self._anchors: dict[str, tuple[_Node, int, int]] = {}
        self._nodes = 0
        self._characters = 0

    def read(self) -> _Node | None:
        """The one document in the text; ``None`` if there is none."""
        try:
            next(self._events)  # the stream begins
            if isinstance(next(self._events), yaml.StreamEndEvent):
                return None
            node = self._node(next(self._events), 0)
            next(self._events)  # the document ends
            event = next(self._events)
        except yaml.MarkedYAMLError as error:
            raise self._source.syntax_error(error) from error
        if not isinstance(event, yaml.StreamEndEvent):
            raise self._source.error(_index(event), "a second YAML document begins; a prompt file is one")
        return node

    def _node(self, event: yaml.Event, depth: int) -> _Node:
        at = _index(event)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(str(event.anchor), at)
        if depth > MAX_DEPTH:
            raise self._source.error(at, f"nested deeper than {MAX_DEPTH} levels")
        nodes, characters = self._nodes, self._characters
        self._count(at, 1, 0)
        value: _Value
        if isinstance(event, yaml.ScalarEvent):
            value = self._scalar(event, at)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = self._list(depth)
        else:
            value = self._mapping(depth)
        started = cast("yaml.ScalarEvent | yaml.CollectionStartEvent", event)
        if started.tag is not None and started.tag not in _TAGS:
            tag = started.tag.replace("tag:yaml.org,2002:", "!!")
            raise self._source.error(
                at, f"the tag {tag} is not read; a prompt file holds text, numbers, lists and maps"
            )
        node = _Node(value, at, at, bool(getattr(event, "flow_style", False)))
        if started.anchor is not None:
            self._anchors[started.anchor] = node, self._nodes - nodes, self._characters - characters
        return node

    def _alias(self, anchor: str, at: int) -> _Node:
        if anchor not in self._anchors:
            what = f"the alias *{anchor} stands for nothing before it; text that begins with '*' goes into quotes"
            raise self._source.error(at, what)
        node, nodes, characters = self._anchors[anchor]
        self._count(at, nodes, characters)
        return node._replace(at=at, key_at=at)

    def _count(self, at: int, nodes: int, characters: int) -> None:
        self._nodes += nodes
        self._characters += characters
        if self._nodes > MAX_NODES:
            raise self._source.error(at, f"more than {MAX_NODES} values, with what the aliases stand for")
        if self._characters > MAX_BYTES:
            raise self._source.error(at, f"more than {MAX_BYTES} characters, with what the aliases stand for")

    def _scalar(self, event: yaml.ScalarEvent, at: int) -> _Value:
        text = event.value
        self._count(at, 0, len(text))
        try:
            well_formed(text, "the text", PromptFileError)
        except PromptFileError as error:
            raise self._source.error(at, str(error)) from error
        if not event.implicit[0] or event.tag is not None:
            return text
        if text in _WORDS:
            return _WORDS[text]
        number = _NUMBER.fullmatch(text)
        if number is None:
            return text
        if len(text) > _MOST_DIGITS:
            raise self._source.error(at, f"a number of {len(text)} digits; put it in quotes if it is text")
        return float(text) if number[1] or number[2] else int(text)

    def _list(self, depth: int) -> list[_Node]:
        items: list[_Node] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._node(event, depth + 1))
        return items

    def _mapping(self, depth: int) -> dict[str, _Node]:
        fields: dict[str, _Node] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._node(event, depth + 1)
            if not isinstance(key.value, str):
                what = f"a key is {_KINDS[type(key.value)]}; keys are text, so put it in quotes"
                raise self._source.error(key.at, what)
            if isinstance(event, yaml.ScalarEvent) and event.implicit[0] and key.value == "<<":
                raise self._source.error(key.at, "merge keys (<<) are not read; write the fields out")
            if key.value in fields:
                line, _ = self._source.place(fields[key.value].key_at)
                raise self._source.error(
                    key.at, f"{key.value!r} stands here a second time; the first is in line {line}"
                )
            fields[key.value] = self._node(next(self._events), depth + 1)._replace(key_at=key.at)
        return fields


def _index(event: yaml.Event) -> int:
    return event.start_mark.index if event.start_mark else 0


# --- Nodes into a prompter ---------------------------------------------------------------------------------------


def _fields(source: _Source) -> dict[str, _Node]:
    """The fields of a file, with right names."""
    node = _Reader(source).read()
    known = f"the fields are {', '.join(FIELDS)}"
    if node is None or node.value is None:
        raise source.error(0, f"the file is empty; {known}")
    if not isinstance(node.value, dict):
        raise source.error(node.at, f"a prompt file is a mapping, not {_KINDS[type(node.value)]}; {known}")
    for name, field in node.value.items():
        if name not in FIELDS:
            raise source.error(field.key_at, f"unknown field {name!r}{did_you_mean(name, FIELDS)}; {known}")
    return node.value


def _prompter(source: _Source, fields: dict[str, _Node]) -> Prompter:
    """The prompter that the fields describe."""
    kind = _text_of(source, fields["type"], "type") if "type" in fields else TYPES[0]
    if kind not in TYPES:
        known = f"{did_you_mean(kind, TYPES)}; known are {', '.join(TYPES)}"
        raise source.error(fields["type"].at, f"type {kind!r} is unknown{known}")
    instruction = _instruction(source, fields["instruction"]) if "instruction" in fields else None
    system = _text_of(source, fields["system"], "system") if "system" in fields else None
    keys = _extra_keys(source, fields["extra_keys"]) if "extra_keys" in fields else None
    tools = _tools(source, fields["tools"]) if "tools" in fields else None
    examples = _examples(source, fields["examples"]) if "examples" in fields else []
    history = _history(source, fields["history"]) if "history" in fields else ()
    # The parts were checked one by one; what can still be wrong is the extra keys, or how they go with the instruction.
    at = fields.get("extra_keys") or fields.get("instruction") or _Node(None, 0, 0)
    with _placed(source, at):
        if kind == "chat":
            return ChatPrompter(instruction, keys, tools=tools, history=[*examples, *history], system=system)
        if history:
            what = "the Alpaca form has no turns and takes no history; use type: chat, or examples"
            raise source.error(fields["history"].key_at, what)
        return AlpacaPrompter(_with_examples(instruction, examples), keys, tools=tools, system=system)


@contextmanager
def _placed(source: _Source, node: _Node) -> Generator[None]:
    """Errors of the prompter as errors of the field that they come from."""
    try:
        yield
    except PromptFileError:
        raise
    except LazyPromptError as error:
        raise source.error(node.key_at, str(error)) from error


def _text_of(source: _Source, node: _Node, where: str) -> str:
    if isinstance(node.value, str):
        return node.value
    if node.value is None:
        raise source.error(node.key_at, f"{where} is empty; give it text, or leave it out")
    advice = ""
    if node.flow:
        advice = "; text that begins with { or [ goes into quotes"
    elif not isinstance(node.value, list | dict):
        advice = "; put it in quotes"
    raise source.error(node.at, f"{where} is {_KINDS[type(node.value)]}, but must be text{advice}")


def _items_of(source: _Source, node: _Node, where: str, what: str) -> list[_Node]:
    if not isinstance(node.value, list):
        at = node.key_at if node.value is None else node.at
        raise source.error(at, f"{where} is {_KINDS[type(node.value)]}, but must be a list of {what}")
    return node.value


def _instruction(source: _Source, node: _Node) -> str | dict[str, str]:
    if not isinstance(node.value, dict):
        return _text_of(source, node, "instruction")
    levels = ("system", "user")
    for level, part in node.value.items():
        if level not in levels:
            advice = "; text that begins with { goes into quotes" if node.flow else ""
            what = (
                f"the instruction has the key {level!r}{did_you_mean(level, levels)}; it takes system and user{advice}"
            )
            raise source.error(part.key_at, what)
    return {level: _text_of(source, part, f"instruction.{level}") for level, part in node.value.items()}


def _extra_keys(source: _Source, node: _Node) -> str | list[str]:
    if isinstance(node.value, str):
        return node.value
    items = _items_of(source, node, "extra_keys", "names")
    return [_text_of(source, item, f"extra_keys[{index}]") for index, item in enumerate(items)]


def _tools(source: _Source, node: _Node) -> ToolSet:
    items = _items_of(source, node, "tools", "tools in the OpenAI form")
    with _placed(source, node):
        return ToolSet.of(cast("list[ToolLike]", [_plain(item) for item in items]))


def _history(source: _Source, node: _Node) -> HistoryLike:
    items = _items_of(source, node, "history", "pairs [question, answer] or messages")
    history = cast("HistoryLike", [_plain(item) for item in items])
    with _placed(source, node):
        History.of(history)
    return history


def _examples(source: _Source, node: _Node) -> list[tuple[str, str]]:
    """The examples as pairs of input and output."""
    parts = ("input", "output")
    pairs: list[tuple[str, str]] = []
    for index, item in enumerate(_items_of(source, node, "examples", "pairs or of {input, output}")):
        where = f"examples[{index}]"
        if isinstance(item.value, dict) and item.value.keys() == set(parts):
            input_node, output_node = (item.value[part] for part in parts)
        elif isinstance(item.value, list) and len(item.value) == len(parts):
            input_node, output_node = item.value
        else:
            has = ""
            if isinstance(item.value, dict):
                has = f" with the keys {', '.join(map(repr, item.value))}"
            elif isinstance(item.value, list):
                has = f" of {len(item.value)}"
            form = "an example is {input: ..., output: ...} or [input, output]"
            raise source.error(item.at, f"{where} is {_KINDS[type(item.value)]}{has}; {form}")
        pairs.append((_text_of(source, input_node, f"{where} input"), _text_of(source, output_node, f"{where} output")))
    return pairs


def _plain(node: _Node) -> object:
    """The value of a node, without places; what an alias repeats is made anew."""
    if isinstance(node.value, list):
        return [_plain(item) for item in node.value]
    if isinstance(node.value, dict):
        return {name: _plain(item) for name, item in node.value.items()}
    return node.value


def _with_examples(instruction: str | dict[str, str] | None, examples: list[tuple[str, str]]) -> str | dict[str, str]:
    """An Alpaca instruction with its examples behind it; their braces are text."""
    if isinstance(instruction, dict):
        level = "system" if instruction.get("system") or "user" not in instruction else "user"
        text = cast("str", _with_examples(instruction.get(level), examples))
        return {**instruction, level: text}
    if not examples:
        return instruction or ""
    written = [escape(f"Input: {given}\nOutput: {answer}") for given, answer in examples]
    # A block of YAML ends in a newline, which would make two blank lines of the one.
    return "\n\n".join([*filter(None, [(instruction or "").rstrip("\n")]), *written])
