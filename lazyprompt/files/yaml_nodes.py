"""The YAML parser for prompt files, and the functions that split a file into front matter and body.

A plain scalar is text unless it is a JSON number, ``true``, ``false`` or ``null``. YAML 1.1 reads ``no`` as false,
``12:30`` as 750 and ``010`` as 8, which prompt authors don't intend.

Front matter is enclosed in two delimiter lines, ``---`` or ``+++``. A file that doesn't begin with a delimiter has no
front matter and is not parsed as YAML.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar
from unicodedata import combining, east_asian_width

import yaml

from lazyprompt._base.characters import visible
from lazyprompt._base.files import read_regular
from lazyprompt._base.json import Json, well_formed
from lazyprompt.errors import PromptFileError, PromptFileMissingError

MAX_BYTES = 5_000_000
"""The maximum size of a file in bytes, and of its text with aliases expanded."""

MAX_NODES = 100_000
"""The maximum number of values in a file, with aliases expanded."""

MAX_DEPTH = 100
"""The maximum nesting in a file."""

TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"

TOO_LARGE = f"the file is larger than {MAX_BYTES} bytes"
_LINE_BREAK = re.compile(r"\r\n|[\r\n]")
_NOT_A_BREAK = re.compile(r"[^\r\n]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_NOT_IN_YAML = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SHOWN_BEFORE, _SHOWN_BEHIND = 60, 40


_Kind = TypeVar("_Kind")


class SourceText:
    """The text of a file, with methods that create errors for positions in the text.

    Args:
        text: The file's text; a leading byte order mark is removed.
        name: The file's name in error messages.
        whole: True to check the text's size and characters, False if the text is only the beginning of a file.

    Raises:
        PromptFileError: The text is too long, or can't be encoded as UTF-8.
    """

    def __init__(self, text: str, name: str, *, whole: bool = True) -> None:
        self.text = text.removeprefix("\ufeff")
        self.name = name
        if not whole:
            return
        if alone := _SURROGATE.search(self.text):
            what = f"the character U+{ord(alone[0]):04X} is a lone surrogate, which UTF-8 cannot encode"
            raise self.fault_at(alone.start(), what)
        if len(self.text.encode()) > MAX_BYTES:
            raise self.error(0, TOO_LARGE)

    def place(self, at: int) -> tuple[int, int]:
        """Convert an index to a line and column, both counted from 1 as in editors."""
        breaks = [match.end() for match in _LINE_BREAK.finditer(self.text, 0, at)]
        return len(breaks) + 1, at - (breaks[-1] if breaks else 0) + 1

    def error(self, at: int, what: str) -> PromptFileError:
        """Create an error with the file's name and the line and column of a character index in the file's text."""
        line, column = self.place(at)
        return PromptFileError(f"{self.name}:{line}:{column}: {what}")

    def fault_at(self, at: int, what: str) -> PromptFileError:
        """Create an error that states the line and column of an index in the text, and shows the line with a caret."""
        column = self.place(at)[1]
        line = _LINE_BREAK.split(self.text[at - column + 1 : at + _SHOWN_BEHIND], maxsplit=1)[0].replace("\t", " ")
        line = _SURROGATE.sub("\ufffd", line)  # surrogates can't be printed
        start = max(column - 1 - _SHOWN_BEFORE, 0)
        indent = " " * sum(map(_cells, visible(line[start : column - 1])))
        return self.error(at, f"{what}\n{visible(line[start:])}\n{indent}^")

    def wrong_kind(self, node: Node, rule: str, advice: str = "") -> PromptFileError:
        """Create an error for a value of the wrong type, from the violated rule and optional advice."""
        return self.fault_at(node.at, f"{rule}, not {KINDS[type(node.value)]}{advice}")

    def text_of(self, node: Node | None, where: str) -> str | None:
        """Return the text of a field, or None if the field is empty or missing.

        Args:
            node: The YAML node of the field's value, or None if the field is missing.
            where: The field's name in error messages.

        Raises:
            PromptFileError: The field isn't text.
        """
        return self._of(node, str, f"{where} must be text")

    def flag_of(self, node: Node | None, where: str) -> bool | None:
        """Return a boolean field; see :meth:`text_of`."""
        return self._of(node, bool, f"{where} must be true or false")

    def list_of(self, node: Node, where: str) -> list[Node]:
        """Return a list field; see :meth:`text_of`."""
        if not isinstance(node.value, list):
            raise self.wrong_kind(node, f"{where} must be a list")
        return node.value

    def mapping_of(self, node: Node | None, where: str) -> dict[str, Node]:
        """Return a copy of a mapping field, or an empty mapping; see :meth:`text_of`."""
        self._of(node, dict, f"{where} must be a mapping")
        return {} if node is None else dict(node.fields)

    def _of(self, node: Node | None, kind: type[_Kind], rule: str) -> _Kind | None:
        if node is None or node.value is None:
            return None
        if not isinstance(node.value, kind):
            raise self.wrong_kind(node, rule)
        return node.value


def _syntax_error(source: SourceText, error: yaml.MarkedYAMLError) -> PromptFileError:
    """Convert an error from the YAML parser, and add advice for common mistakes."""
    problem = error.problem or ""
    # Report an unclosed construct at its start, not at the end of the file.
    unclosed = "unexpected end of stream" in problem or "document separator" in problem
    mark = (error.context_mark if unclosed else None) or error.problem_mark or error.context_mark
    # If the error is at the end of the file, report the position after the last character that isn't white space.
    at = min(mark.index if mark else 0, len(source.text.rstrip()))
    # Newer versions of libyaml also limit nesting, so report libyaml's error with this module's message.
    what = TOO_DEEP if "maximum nesting depth" in problem else ", ".join(filter(None, (error.context, problem)))
    line = _LINE_BREAK.split(source.text[:at])[-1] + source.text[at : at + 1]
    if "\t" in line[: len(line) - len(line.lstrip())]:
        what += "; indent YAML with spaces, not tabs"
    elif "mapping values" in what:
        what += "; put text that contains ': ' in quotes, or after a |"
    elif "cannot start" in what:
        what += f"; put text that begins with {source.text[at : at + 1]!r} in quotes"
    return source.fault_at(at, what)


def _cells(sign: str) -> int:
    """Return the number of terminal columns that a character occupies."""
    return 0 if combining(sign) else 2 if east_asian_width(sign) in "WF" else 1


class Node(NamedTuple):
    """A YAML value with its position.

    Attributes:
        value: The parsed value.
        at: The value's character index in the file.
        key_at: The character index of the value's key in the file, or of the value itself if it has no key.
        flow: True for a list in brackets or a mapping in braces.
    """

    value: Value
    at: int
    key_at: int
    flow: bool = False

    @property
    def fields(self) -> dict[str, Node]:
        """The values of a mapping by name; empty if the node isn't a mapping."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def named(self) -> list[tuple[str, Node]]:
        """The (name, value) pairs of a mapping, or of the list items that have a ``name``."""
        if not isinstance(self.value, list):
            return [*self.fields.items()]
        named = ((item.fields.get("name"), item) for item in self.value)
        return [(name.value, item) for name, item in named if name is not None and isinstance(name.value, str)]

    @property
    def parts(self) -> list[Node]:
        """The items of a list or the values of a mapping; empty for other nodes."""
        return self.value if isinstance(self.value, list) else [*self.fields.values()]

    def within(self) -> Iterator[Node]:
        """Yield the node and its descendants without recursion."""
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
# Python refuses to parse integers with thousands of digits, so reject long numbers.
_MOST_DIGITS = 300
KINDS: dict[type, str] = {
    str: "text",
    int: "a number",
    float: "a decimal number",
    bool: "true or false",
    type(None): "empty",
    list: "a list",
    dict: "a mapping",
}


def is_of_type(value: object, types: tuple[type, ...]) -> bool:
    """Return True if a value has one of the types; ``bool`` doesn't count as ``int``, unlike in Python."""
    return isinstance(value, types) and (bool in types or not isinstance(value, bool))


def expected_kind(types: tuple[type, ...]) -> str:
    """Return the words for the values that a field accepts, given their Python types."""
    return "a whole number" if types == (int,) else KINDS[types[0]]


class Field(NamedTuple):
    """A field in the front matter of a file.

    Attributes:
        raw: The value as written.
        seen: The value with all references resolved.
    """

    raw: Node
    seen: Node


class YamlReader:
    """A YAML parser that creates nodes from the events of PyYAML.

    The limits are checked before each node is created. An alias counts as much toward the limits as the value that it
    refers to.

    Args:
        source: The text of the file that contains the YAML.
        begin: The character index in the file's text where the YAML starts.
        end: The character index in the file's text where the YAML ends, or None for the end of the file.

    Raises:
        PromptFileError: The YAML contains invalid characters.
    """

    def __init__(self, source: SourceText, begin: int = 0, end: int | None = None) -> None:
        self._source = source
        if alien := _NOT_IN_YAML.search(source.text, begin, len(source.text) if end is None else end):
            what = f"the character U+{ord(alien[0]):04X} is not allowed in YAML; write an escape in double quotes"
            raise source.fault_at(alien.start(), what)
        # Replace the text before the YAML with spaces, so that positions refer to the whole text.
        text = _NOT_A_BREAK.sub(" ", source.text[:begin]) + source.text[begin:end]
        loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
        # Call the loader directly, because yaml.parse calls the parser twice for each event.
        self._next: Callable[[], yaml.Event] = loader.get_event
        self._anchors: dict[str, tuple[Node, int, int]] = {}
        self._nodes = 0
        self._characters = 0

    def read(self) -> Node | None:
        """Return the YAML document, or None if the text contains none."""
        try:
            self._next()  # stream start
            if isinstance(self._next(), yaml.StreamEndEvent):
                return None
            node = self._node(self._next(), 0)
            self._next()  # document end
            event = self._next()
        except yaml.MarkedYAMLError as error:
            raise _syntax_error(self._source, error) from error
        if not isinstance(event, yaml.StreamEndEvent):
            raise self._source.fault_at(_index(event), "a prompt file must contain exactly one YAML document")
        return node

    def _node(self, event: yaml.Event, depth: int, key_at: int | None = None) -> Node:
        at = _index(event)
        known_at = at if key_at is None else key_at
        anchor: str | None = getattr(event, "anchor", None)
        if isinstance(event, yaml.AliasEvent):
            if anchor not in self._anchors:
                what = f"unknown alias *{anchor}; put text that begins with '*' in quotes"
                raise self._source.fault_at(at, what)
            aliased, nodes, characters = self._anchors[anchor]
            self._count(at, nodes, characters)
            return aliased._replace(at=at, key_at=known_at)
        tag: str | None = getattr(event, "tag", None)
        if tag is not None and tag not in _TAGS:
            what = f"the tag {tag.replace('tag:yaml.org,2002:', '!!')} is not supported"
            raise self._source.fault_at(at, f"{what}; a prompt file can contain only text, numbers, lists and mappings")
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
            raise self._source.fault_at(at, f"the file contains more than {most}, with aliases expanded")

    def _scalar(self, event: yaml.ScalarEvent, at: int) -> Value:
        text = event.value
        self._count(at, 1, len(text))
        # Only escapes in double-quoted text can create lone surrogates; all other text was already checked.
        if event.style == '"':
            try:
                well_formed(text, "the text", PromptFileError)
            except PromptFileError as error:
                raise self._source.fault_at(at, str(error)) from error
        if not event.implicit[0] or event.tag is not None:
            return text
        if text in _WORDS:
            return _WORDS[text]
        # Most scalars are words, so check the first character before matching the pattern.
        number = _NUMBER.fullmatch(text) if text[0] in _NUMBER_STARTS else None
        if number is None:
            return text
        if len(text) > _MOST_DIGITS:
            raise self._source.fault_at(
                at, f"the number has too many digits ({len(text)}); put it in quotes if it is text"
            )
        return float(text) if number[1] or number[2] else int(text)

    def _mapping(self, depth: int) -> dict[str, Node]:
        fields: dict[str, Node] = {}
        while type(event := self._next()) is not yaml.MappingEndEvent:
            key = self._node(event, depth)
            name = key.value
            if not isinstance(name, str):
                what = f"a key must be text, not {KINDS[type(name)]}; put it in quotes"
                raise self._source.fault_at(key.at, what)
            if name == "<<" and isinstance(event, yaml.ScalarEvent) and event.implicit[0]:
                raise self._source.fault_at(key.at, "merge keys (<<) are not supported; write the fields out")
            if name in fields:
                line, _ = self._source.place(fields[name].key_at)
                raise self._source.fault_at(key.at, f"duplicate key {name!r}; the first is on line {line}")
            fields[name] = self._node(self._next(), depth, key.at)
        return fields


def _index(event: yaml.Event) -> int:
    return event.start_mark.index if event.start_mark else 0


def is_text(plain_scalar: str) -> bool:
    """Return True if a plain scalar is text rather than a number, true, false or null."""
    return plain_scalar not in _WORDS and _NUMBER.fullmatch(plain_scalar) is None and plain_scalar != "<<"


def plain(node: Node | None) -> Json:
    """Return a copy of a node's value without positions, or None if there is no node."""
    value = None if node is None else node.value
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return value


Plain: TypeAlias = "Node | str | int | float | bool | Sequence[Plain] | Mapping[str, Plain] | None"


def to_node(value: Plain, place: Node) -> Node:
    """Convert a value to a node.

    Args:
        value: The value to convert; nodes inside it keep their positions.
        place: The node whose position is copied to new nodes.
    """
    if isinstance(value, Node):
        return value
    made: Value
    if value is None or isinstance(value, str | int | float):
        made = value
    elif isinstance(value, Mapping):
        made = {name: to_node(item, place) for name, item in value.items()}
    else:
        made = [to_node(item, place) for item in value]
    return Node(made, place.at, place.key_at)


def is_same(old: object, new: object) -> bool:
    """Return True if two values are equal in JSON, which distinguishes true from 1."""
    return old == new and json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True)


def require_text(text: object, name: str, loader: str) -> None:
    """Raise an error if a prompt isn't text.

    Args:
        text: The value to check.
        name: The prompt's name, which begins the error message.
        loader: The name of the method that the error message refers to, such as ``Prompty.load``.

    Raises:
        PromptFileError: The value isn't a string.
    """
    if not isinstance(text, str):
        raise PromptFileError(f"{name}:1:1: a prompt must be text, not {type(text).__name__}; see {loader}")


def text_of_file(name: str) -> str:
    """Read the text of a prompt file.

    Args:
        name: The path of the file.

    Raises:
        PromptFileError: The file can't be read, isn't a regular file, is too large, or isn't UTF-8.
    """
    try:
        data = read_regular(name, MAX_BYTES)
    except FileNotFoundError as error:
        raise PromptFileMissingError(f"{name}:1:1: file not found") from error
    except (OSError, ValueError) as error:  # a path that contains a NUL character raises a ValueError
        why = getattr(error, "strerror", None) or error
        raise PromptFileError(f"{name}:1:1: the file cannot be read: {why}") from error
    return decode_file(data, name)


def decode_file(data: bytes, name: str) -> str:
    """Decode the contents of a file as UTF-8.

    Args:
        data: The contents of the file.
        name: The file's name in error messages.

    Raises:
        PromptFileError: The contents aren't UTF-8.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = SourceText(data[: error.start].decode("utf-8"), name, whole=False)
        what = f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        raise before.error(len(before.text), what) from error


# Possessive quantifiers keep the matching time linear.
_BLANK = r"(?>(?:[^\S\r\n]*+(?:\r\n?+|\n))*)"
_OPENS = re.compile(rf"{_BLANK}([^\S\r\n]*+)(?:---|\+\+\+)[^\S\r\n]*+(?:\r\n?+|\n|\Z)")
_BLANK_LINES = re.compile(_BLANK)
# If the opening delimiter is indented, the closing delimiter has the same indentation or none.
_CLOSES = r"(?:^|(?<=\r))(?:{indent})?(?:---|\+\+\+)[^\S\r\n]*(?:\r\n|[\r\n]|\Z)"
_LINE_END = re.compile(r"\r\n|\r")


class Parts(NamedTuple):
    """The front matter and body of a file.

    Attributes:
        fields: The fields of the front matter, or None if the file has no front matter.
        body: The template, with LF line endings.
        body_at: The index of the body in the file.
        yaml_at: The start and end of the front matter in the file.
    """

    fields: dict[str, Node] | None
    body: str
    body_at: int
    yaml_at: tuple[int, int] = (0, 0)


def split(source: SourceText) -> Parts:
    """Split a file into front matter and body.

    Args:
        source: The file to split.

    Raises:
        PromptFileError: The front matter isn't closed or isn't a YAML mapping, or the file contains a NUL character.
    """
    text = source.text
    if (nul := text.find("\0")) >= 0:
        raise source.fault_at(nul, "the file contains the character U+0000, which is not allowed")
    opening = _OPENS.match(text)
    if opening is None:
        return Parts(None, _LINE_END.sub("\n", text), 0)
    closing = re.compile(_CLOSES.format(indent=opening[1]), re.MULTILINE).search(text, opening.end())
    if closing is None:
        at = opening.end(1)
        what = "invalid frontmatter: it begins here but is not closed by a line that contains only --- or +++"
        raise source.fault_at(at, what)
    fields = _front_matter(source, opening.end(), closing.start())
    blank = _BLANK_LINES.match(text, closing.end())
    begin = blank.end() if blank else closing.end()
    return Parts(fields, _LINE_END.sub("\n", text[begin:]), begin, (opening.end(), closing.start()))


def _front_matter(source: SourceText, begin: int, end: int) -> dict[str, Node]:
    try:
        node = YamlReader(source, begin, end).read()
    except PromptFileError as error:
        place, _, what = str(error).partition(": ")
        raise PromptFileError(f"{place}: invalid frontmatter: {what}") from error
    if node is not None and node.value is not None and not isinstance(node.value, dict):
        raise source.wrong_kind(node, "invalid frontmatter: it must be a mapping of fields")
    return {} if node is None else node.fields
