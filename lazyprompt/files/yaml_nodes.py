"""Prompt files taken apart: YAML read into values that know their place, within bounds; front matter and body.

Plain values are text unless JSON would read them as a number, ``true``, ``false`` or ``null``. YAML 1.1 knows more:
to it ``no`` is false, ``12:30`` is 750 and ``010`` is 8, none of which anybody means who writes a prompt.

The delimiters of a front matter are lines of their own, ``---`` or ``+++``: one that stands within a line is text. A
file that does not begin with one is all body, and none of it is ever read as YAML.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast
from unicodedata import combining, east_asian_width

import yaml

from lazyprompt._base.characters import visible
from lazyprompt._base.files import read_regular
from lazyprompt._base.json import Json, well_formed
from lazyprompt.errors import PromptFileError, PromptFileMissingError

MAX_BYTES = 5_000_000
"""The largest size of a file in bytes, and of its text once its aliases are written out."""

MAX_NODES = 100_000
"""The most values a file may hold once its aliases are written out."""

MAX_DEPTH = 100
"""The deepest nesting in a file."""

TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"

TOO_LARGE = f"the file is larger than {MAX_BYTES} bytes"
_LINE_BREAK = re.compile(r"\r\n|[\r\n]")
_NOT_A_BREAK = re.compile(r"[^\r\n]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_NOT_IN_YAML = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# How much of a long line a syntax error shows, before and after the place.
_SHOWN_BEFORE, _SHOWN_BEHIND = 60, 40


_Kind = TypeVar("_Kind")


class SourceText:
    """The text of a file, in which each place has a line and a column.

    Args:
        text: The text; a byte order mark before it is no part of it.
        name: The name of the file in errors.
        whole: True if it is the whole text, and so to be checked.

    Raises:
        PromptFileError: The text is too long, or cannot be written as UTF-8.
    """

    def __init__(self, text: str, name: str, *, whole: bool = True) -> None:
        self.text = text.removeprefix("\ufeff")
        self.name = name
        if not whole:
            return
        if alone := _SURROGATE.search(self.text):
            what = f"the character U+{ord(alone[0]):04X} is half of a pair, which no UTF-8 has"
            raise self.fault_at(alone.start(), what)
        if len(self.text.encode()) > MAX_BYTES:
            raise self.error(0, TOO_LARGE)

    def place(self, at: int) -> tuple[int, int]:
        """Return the line and column of an index, both from 1, as editors count them."""
        breaks = [match.end() for match in _LINE_BREAK.finditer(self.text, 0, at)]
        return len(breaks) + 1, at - (breaks[-1] if breaks else 0) + 1

    def error(self, at: int, what: str) -> PromptFileError:
        """Return an error at an index."""
        line, column = self.place(at)
        return PromptFileError(f"{self.name}:{line}:{column}: {what}")

    def fault_at(self, at: int, what: str) -> PromptFileError:
        """Return an error at an index, with its line and a caret below."""
        column = self.place(at)[1]
        line = _LINE_BREAK.split(self.text[at - column + 1 : at + _SHOWN_BEHIND], maxsplit=1)[0].replace("\t", " ")
        line = _SURROGATE.sub("\ufffd", line)  # which nothing could write
        start = max(column - 1 - _SHOWN_BEFORE, 0)
        indent = " " * sum(map(_cells, visible(line[start : column - 1])))
        return self.error(at, f"{what}\n{visible(line[start:])}\n{indent}^")

    def wrong_kind(self, node: Node, before: str, behind: str) -> PromptFileError:
        """Return the error for a value of a wrong kind, which stands between two texts."""
        return self.fault_at(node.at, f"{before} {KINDS[type(node.value)]}{behind}")

    def text_of(self, node: Node | None, where: str) -> str | None:
        """Return a field that is text, or None if it is empty or not there.

        Args:
            node: The field.
            where: Its name in errors.

        Raises:
            PromptFileError: It is of another kind.
        """
        return self._of(node, str, f"{where} is", ", and must be text")

    def flag_of(self, node: Node | None, where: str) -> bool | None:
        """Return a field that is true or false; see :meth:`text_of`."""
        return self._of(node, bool, f"{where} is true or false, not", "")

    def list_of(self, node: Node, where: str, verb: str = "is") -> list[Node]:
        """Return a field that is a list; see :meth:`text_of`."""
        if not isinstance(node.value, list):
            raise self.wrong_kind(node, f"{where} {verb}", ", and must be a list")
        return node.value

    def mapping_of(self, node: Node | None, where: str) -> dict[str, Node]:
        """Return a copy of a field that is a mapping, which is empty if the field is; see :meth:`text_of`."""
        self._of(node, dict, f"{where} is", ", and must be a mapping")
        return {} if node is None else dict(node.fields)

    def _of(self, node: Node | None, kind: type[_Kind], before: str, behind: str) -> _Kind | None:
        if node is None or node.value is None:
            return None
        if not isinstance(node.value, kind):
            raise self.wrong_kind(node, before, behind)
        return node.value


def _syntax_error(source: SourceText, error: yaml.MarkedYAMLError) -> PromptFileError:
    """Return the error of the parser, with its line, and advice for the mistakes that people make most."""
    problem = error.problem or ""
    # What is never closed is shown where it was opened, not where the file ends.
    unclosed = "unexpected end of stream" in problem or "document separator" in problem
    mark = (error.context_mark if unclosed else None) or error.problem_mark or error.context_mark
    # The end of the file is better shown behind the last thing in it.
    at = min(mark.index if mark else 0, len(source.text.rstrip()))
    # Newer versions of libyaml limit the nesting too, at more levels, and notice it before the first level is parsed.
    what = TOO_DEEP if "maximum nesting depth" in problem else ", ".join(filter(None, (error.context, problem)))
    line = _LINE_BREAK.split(source.text[:at])[-1] + source.text[at : at + 1]
    if "\t" in line[: len(line) - len(line.lstrip())]:
        what += "; YAML is indented with spaces, not with tabs"
    elif "mapping values" in what:
        what += "; text that holds ': ' goes into quotes, or behind a |"
    elif "cannot start" in what:
        what += f"; text that begins with {source.text[at : at + 1]!r} goes into quotes"
    return source.fault_at(at, what)


def _cells(sign: str) -> int:
    """Return the width of a character in a terminal."""
    return 0 if combining(sign) else 2 if east_asian_width(sign) in "WF" else 1


class Node(NamedTuple):
    """A value and its place.

    Attributes:
        value: The value.
        at: Its index in the file.
        key_at: The index of its key; for a value without a key, its own.
        flow: True if it is a list or mapping written with brackets or braces.
    """

    value: Value
    at: int
    key_at: int
    flow: bool = False

    @property
    def fields(self) -> dict[str, Node]:
        """The values of a mapping by their names; none of anything else."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def named(self) -> list[tuple[str, Node]]:
        """The values of a mapping, or the items of a list that have a ``name``: each with its name."""
        if not isinstance(self.value, list):
            return [*self.fields.items()]
        named = ((item.fields.get("name"), item) for item in self.value)
        return [(name.value, item) for name, item in named if name is not None and isinstance(name.value, str)]

    @property
    def parts(self) -> list[Node]:
        """The items of a list, or the values of a mapping; none of anything else."""
        return self.value if isinstance(self.value, list) else [*self.fields.values()]

    def within(self) -> Iterator[Node]:
        """Find the node and all below it, without recursion."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += node.parts


Value: TypeAlias = "str | int | float | bool | list[Node] | dict[str, Node] | None"

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_NUMBER_STARTS = frozenset("-0123456789")
_WORDS = dict.fromkeys(("", "~", "null", "Null", "NULL"), None) | {
    word: word.lower() == "true" for word in ("true", "True", "TRUE", "false", "False", "FALSE")
}
_TAGS = ("!", "tag:yaml.org,2002:str", "tag:yaml.org,2002:seq", "tag:yaml.org,2002:map")
# More digits are no number that anything means, and Python refuses to read them.
_MOST_DIGITS = 300
KINDS: dict[type, str] = {
    str: "text",
    int: "a number",
    float: "a number",
    bool: "true or false",
    type(None): "empty",
    list: "a list",
    dict: "a mapping",
}


class Field(NamedTuple):
    """A field as it stands in a file.

    Attributes:
        raw: The value as it is written.
        seen: The value with all references resolved.
    """

    raw: Node
    seen: Node


class YamlReader:
    """Makes nodes of YAML, event by event.

    Nothing is made that a bound forbids: an alias counts as its value, and the parser is asked for no more than was
    allowed so far.

    Args:
        source: The text.
        begin: The beginning of the YAML in it.
        end: The end of the YAML; None is the end of the text.

    Raises:
        PromptFileError: It has characters that no YAML has.
    """

    def __init__(self, source: SourceText, begin: int = 0, end: int | None = None) -> None:
        self._source = source
        if alien := _NOT_IN_YAML.search(source.text, begin, len(source.text) if end is None else end):
            what = f"the character U+{ord(alien[0]):04X} may not stand in YAML; in double quotes an escape may"
            raise source.fault_at(alien.start(), what)
        # What stands before it is blanked, so that places are those of the whole text.
        text = _NOT_A_BREAK.sub(" ", source.text[:begin]) + source.text[begin:end]
        loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
        # yaml.parse would ask twice for each event: if there is one, and for the event itself.
        self._next: Callable[[], yaml.Event] = loader.get_event
        self._anchors: dict[str, tuple[Node, int, int]] = {}
        self._nodes = 0
        self._characters = 0

    def read(self) -> Node | None:
        """Return the one document in the text, or None if there is none."""
        try:
            self._next()  # the stream begins
            if isinstance(self._next(), yaml.StreamEndEvent):
                return None
            node = self._node(self._next(), 0)
            self._next()  # the document ends
            event = self._next()
        except yaml.MarkedYAMLError as error:
            raise _syntax_error(self._source, error) from error
        if not isinstance(event, yaml.StreamEndEvent):
            raise self._source.fault_at(_index(event), "a second YAML document begins; a prompt file is one")
        return node

    def _node(self, event: yaml.Event, depth: int, key_at: int | None = None) -> Node:
        at = _index(event)
        known_at = at if key_at is None else key_at
        anchor: str | None = getattr(event, "anchor", None)
        if isinstance(event, yaml.AliasEvent):
            if anchor not in self._anchors:
                what = f"the alias *{anchor} stands for nothing before it; text that begins with '*' goes into quotes"
                raise self._source.fault_at(at, what)
            aliased, nodes, characters = self._anchors[anchor]
            self._count(at, nodes, characters)
            return aliased._replace(at=at, key_at=known_at)
        tag: str | None = getattr(event, "tag", None)
        if tag is not None and tag not in _TAGS:
            what = f"the tag {tag.replace('tag:yaml.org,2002:', '!!')} is not read"
            raise self._source.fault_at(at, f"{what}; a prompt file holds text, numbers, lists and maps")
        nodes, characters = self._nodes, self._characters
        if isinstance(event, yaml.ScalarEvent):
            node = Node(self._scalar(event, at), at, known_at)
        else:
            node = Node(self._collection(event, at, depth), at, known_at, bool(getattr(event, "flow_style", False)))
        if anchor is not None:
            self._anchors[anchor] = node, self._nodes - nodes, self._characters - characters
        return node

    def _collection(self, event: yaml.Event, at: int, depth: int) -> Value:
        if depth >= MAX_DEPTH:
            raise self._source.fault_at(at, TOO_DEEP)
        self._count(at, 1, 0)
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(depth + 1)
        items: list[Node] = []
        while type(event := self._next()) is not yaml.SequenceEndEvent:
            items.append(self._node(event, depth + 1))
        return items

    def _count(self, at: int, nodes: int, characters: int) -> None:
        self._nodes += nodes
        self._characters += characters
        if self._nodes > MAX_NODES or self._characters > MAX_BYTES:
            most = f"{MAX_NODES} values" if self._nodes > MAX_NODES else f"{MAX_BYTES} characters"
            raise self._source.fault_at(at, f"more than {most}, with what the aliases stand for")

    def _scalar(self, event: yaml.ScalarEvent, at: int) -> Value:
        text = event.value
        self._count(at, 1, len(text))
        # Only an escape in double quotes makes half of a pair: the text itself has none.
        if event.style == '"':
            try:
                well_formed(text, "the text", PromptFileError)
            except PromptFileError as error:
                raise self._source.fault_at(at, str(error)) from error
        if not event.implicit[0] or event.tag is not None:
            return text
        if text in _WORDS:
            return _WORDS[text]
        # Most scalars are words, which need no pattern to be told from numbers.
        number = _NUMBER.fullmatch(text) if text[0] in _NUMBER_STARTS else None
        if number is None:
            return text
        if len(text) > _MOST_DIGITS:
            raise self._source.fault_at(at, f"a number of {len(text)} digits; put it in quotes if it is text")
        return float(text) if number[1] or number[2] else int(text)

    def _mapping(self, depth: int) -> dict[str, Node]:
        fields: dict[str, Node] = {}
        while type(event := self._next()) is not yaml.MappingEndEvent:
            key = self._node(event, depth)
            name = key.value
            if not isinstance(name, str):
                what = f"a key is {KINDS[type(name)]}; keys are text, so put it in quotes"
                raise self._source.fault_at(key.at, what)
            if name == "<<" and isinstance(event, yaml.ScalarEvent) and event.implicit[0]:
                raise self._source.fault_at(key.at, "merge keys (<<) are not read; write the fields out")
            if name in fields:
                line, _ = self._source.place(fields[name].key_at)
                raise self._source.fault_at(key.at, f"{name!r} stands here a second time; the first is in line {line}")
            fields[name] = self._node(self._next(), depth, key.at)
        return fields


def _index(event: yaml.Event) -> int:
    return event.start_mark.index if event.start_mark else 0


def is_text(plain_scalar: str) -> bool:
    """Return True if a plain scalar is read as text, and not as a number, true, false or null."""
    return plain_scalar not in _WORDS and _NUMBER.fullmatch(plain_scalar) is None and plain_scalar != "<<"


def plain(node: Node | None) -> Json:
    """Return the value of a node, without places; the value of an alias is made anew. No node is None."""
    value = None if node is None else node.value
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return value


Plain: TypeAlias = "Node | str | int | float | bool | Sequence[Plain] | Mapping[str, Plain] | None"


def to_node(value: Plain, place: Node) -> Node:
    """Return a value as a node.

    Args:
        value: The value; nodes in it keep their places.
        place: The node whose place it gets, as the field that has it in another dialect.
    """
    if isinstance(value, Node):
        return value
    if isinstance(value, Mapping):
        value = {name: to_node(item, place) for name, item in value.items()}
    elif isinstance(value, list):
        value = [to_node(item, place) for item in value]
    return Node(cast("Value", value), place.at, place.key_at)


def is_same(old: object, new: object) -> bool:
    """Return True if two values are the same in JSON, to which true is no 1."""
    return old == new and json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True)


def text_of_file(name: str) -> str:
    """Read the text of a prompt file.

    Args:
        name: Its path.

    Raises:
        PromptFileError: It cannot be read, is not a regular file, is too large, or is not UTF-8.
    """
    try:
        data = read_regular(name, MAX_BYTES)
    except FileNotFoundError as error:
        raise PromptFileMissingError(f"{name}:1:1: there is no such file") from error
    except (OSError, ValueError) as error:  # a path with a NUL character is a ValueError
        raise PromptFileError(f"{name}:1:1: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    return decode_file(data, name)


def decode_file(data: bytes, name: str) -> str:
    """Decode a file.

    Args:
        data: Its bytes.
        name: Its name in errors.

    Raises:
        PromptFileError: It is not UTF-8.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = SourceText(data[: error.start].decode("utf-8"), name, whole=False)
        what = f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        raise before.error(len(before.text), what) from error


# Nothing here can be read in two ways, so that no file takes long to look through.
_BLANK = r"(?:[^\S\r\n]*+(?:\r\n?+|\n))*+"
_OPENS = re.compile(rf"{_BLANK}([^\S\r\n]*+)(?:---|\+\+\+)[^\S\r\n]*+(?:\r\n?+|\n|\Z)")
_BLANK_LINES = re.compile(_BLANK)
# A file that begins indented may end its front matter so, or at the beginning of a line.
_CLOSES = r"(?:^|(?<=\r))(?:{indent})?(?:---|\+\+\+)[^\S\r\n]*(?:\r\n|[\r\n]|\Z)"
_LINE_END = re.compile(r"\r\n|\r")


class Parts(NamedTuple):
    """A file taken apart.

    Attributes:
        fields: The fields of the front matter, with places; None where there is no front matter.
        body: The template, its lines ended by newlines.
        body_at: The beginning of the body in the file.
        yaml_at: The beginning and the end of the front matter in the file.
    """

    fields: dict[str, Node] | None
    body: str
    body_at: int
    yaml_at: tuple[int, int] = (0, 0)


def split(source: SourceText) -> Parts:
    """Take a file apart.

    Args:
        source: The file.

    Raises:
        PromptFileError: The front matter has no end, is no YAML or no mapping, or the file holds a NUL character.
    """
    text = source.text
    if (nul := text.find("\0")) >= 0:
        raise source.fault_at(nul, "the file holds the character U+0000, which no text has")
    opening = _OPENS.match(text)
    if opening is None:
        return Parts(None, _LINE_END.sub("\n", text), 0)
    closing = re.compile(_CLOSES.format(indent=opening[1]), re.MULTILINE).search(text, opening.end())
    if closing is None:
        at = opening.end(1)
        raise source.fault_at(at, "invalid frontmatter: it begins here, and no line of its own (--- or +++) ends it")
    fields = _front_matter(source, opening.end(), closing.start())
    begin = cast("re.Match[str]", _BLANK_LINES.match(text, closing.end())).end()
    return Parts(fields, _LINE_END.sub("\n", text[begin:]), begin, (opening.end(), closing.start()))


def _front_matter(source: SourceText, begin: int, end: int) -> dict[str, Node]:
    try:
        node = YamlReader(source, begin, end).read()
    except PromptFileError as error:
        place, _, what = str(error).partition(": ")
        raise PromptFileError(f"{place}: invalid frontmatter: {what}") from error
    if node is not None and node.value is not None and not isinstance(node.value, dict):
        raise source.wrong_kind(node, "invalid frontmatter: it is a mapping of fields, not", "")
    return {} if node is None else node.fields
