"""A prompt file as the rules of ``lazyprompt check`` see it: read as far as it can be, with places for all of it."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from jinja2 import TemplateSyntaxError, nodes

from lazyprompt.errors import PromptFileError, TemplateError
from lazyprompt.files.check.secrets_in import masked, secrets_in
from lazyprompt.files.dialects.dotprompt import check_marks
from lazyprompt.files.dialects.table import dialect_named, dialect_of
from lazyprompt.files.dialects.translation import Reading
from lazyprompt.files.front_matter import split
from lazyprompt.files.prompt_file import PromptFile
from lazyprompt.files.prompty import Prompty
from lazyprompt.files.references import References
from lazyprompt.files.scanned import Scanned
from lazyprompt.files.spec import Spec, read_spec
from lazyprompt.files.yaml_nodes import Source
from lazyprompt.text.handlebars import HandlebarsTemplate
from lazyprompt.text.sandbox import BoundedEnvironment
from lazyprompt.text.values import Value

if TYPE_CHECKING:
    from pathlib import Path

    from lazyprompt.files.dialects.table import Dialect
    from lazyprompt.files.yaml_nodes import Node

YAML_FILES: Final = (".yaml", ".yml")
"""The suffixes of files that are YAML as a whole."""

_N = TypeVar("_N", bound=nodes.Node)
_LINE_BREAK = re.compile(r"\r\n|[\r\n]")
_PLACED = re.compile(r":([0-9]+):([0-9]+): ")
_LINE_SAID = re.compile(r"\w+, line ([0-9]+): ")
_CLOSING = re.compile(r"^[^\S\r\n]*(?:---|\+\+\+)[^\S\r\n]*$", re.MULTILINE)
_NO_PARSE = (TemplateSyntaxError, SyntaxError, ValueError, RecursionError, MemoryError)
_RAW = r"\{%[-+]?\s*raw\s*[-+]?%\}(?P<raw>.*?)\{%[-+]?\s*endraw\s*[-+]?%\}"
_TAGS: Final[Mapping[str, re.Pattern[str]]] = {
    "jinja2": re.compile(_RAW + r"|\{#.*?#\}|\{%.*?%\}|(?P<value>\{\{.*?\}\})", re.DOTALL),
    "mustache": re.compile(r"(?P<value>\{\{\{.*?\}\}\}|\{\{(?![#^/!>=]).*?\}\})|\{\{.*?\}\}", re.DOTALL),
    "handlebars": re.compile(r"(?P<value>\{\{\{.*?\}\}\}|\{\{(?![#^/!>~]|else).*?\}\})|\{\{.*?\}\}", re.DOTALL),
}
_NAME_IN_TAG = re.compile(r"\{\{\{?[-+~]?\s*([\w.]+)\s*[-+~]?\}?\}\}")
_NOT_A_BREAK = re.compile(r"[^\n]")


class Place(NamedTuple):
    """A line and a column, both from 1."""

    line: int
    column: int


class Hit(NamedTuple):
    """What a rule found.

    Attributes:
        place: Where.
        message: What is wrong there.
        advice: What to do.
    """

    place: Place
    message: str
    advice: str = ""


class _AnyName(Mapping[str, str]):
    """An environment in which every name has a value, which is the name: what is checked does not depend on where."""

    def __getitem__(self, name: str) -> str:
        return name

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class OwnText:
    """A template's own text, with places: its tags are blank, and what it shows is one sign for each value.

    Args:
        body: The template.
        engine: Its syntax.
    """

    def __init__(self, body: str, engine: str) -> None:
        parts: list[str] = []
        self.tags: list[tuple[int, int]] = []
        """Where the tags are in the template."""
        self._at = [0]
        self._in_body = [0]
        end = length = 0

        def add(part: str, width: int, at: int) -> None:
            nonlocal length
            parts.append(part)
            self._at.append(length)
            self._in_body.append(at)
            length += width

        for match in _TAGS[engine].finditer(body):
            add(body[end : match.start()], match.start() - end, end)
            end = match.end()
            groups = match.groupdict()
            if groups.get("raw") is not None:
                begin, stop = match.span("raw")
                for text, at in (
                    (_NOT_A_BREAK.sub(" ", body[match.start() : begin]), match.start()),
                    (body[begin:stop], begin),
                    (_NOT_A_BREAK.sub(" ", body[stop:end]), stop),
                ):
                    add(text, len(text), at)
                continue
            self.tags.append(match.span())
            if groups.get("value") is not None:
                name = _NAME_IN_TAG.fullmatch(match[0])
                add(Value("", name[1] if name else ""), 1, match.start())
            else:
                add(_NOT_A_BREAK.sub(" ", match[0]), end - match.start(), match.start())
        add(body[end:], len(body) - end, end)
        self.scanned = Scanned(parts)

    def in_body(self, at: int) -> int:
        """Where a place of the scanned text is in the template."""
        index = bisect_right(self._at, at) - 1
        return self._in_body[index] + at - self._at[index]


@lru_cache(maxsize=1)
def jinja() -> BoundedEnvironment:
    """What parses templates here, and knows the names of filters and tests."""
    return BoundedEnvironment()


class Subject:
    """A prompt file that is checked.

    Args:
        text: The text.
        name: How findings call it.
        base: The directory that it refers to files in; None where there is none.
        roots: Further directories of that kind.
        dialect: Its dialect; None finds it out.
    """

    def __init__(
        self, text: str, name: str, base: Path | None, roots: tuple[Path, ...] = (), dialect: str | None = None
    ) -> None:
        self.name = name
        self.has_mark = text.startswith("\ufeff")
        plain = text.removeprefix("\ufeff")
        self.is_yaml = name.lower().endswith(YAML_FILES)
        self.secrets = secrets_in(plain, len(plain) if self.is_yaml else _fields_end(plain))
        self.text = masked(plain, self.secrets)
        """The text without its secrets and without a byte order mark."""
        self.faults: list[Hit] = []
        """Why it does not load."""
        self.fields: Mapping[str, Node] = {}
        """The front matter as it is written."""
        self.said: Mapping[str, Node] = {}
        """The front matter as Prompty v2 says it."""
        self.spec = Spec()
        self.body: str = ""
        """The template, where it stands below the front matter; its lines ended by newlines."""
        self.body_at: int = 0
        self.spoken: Dialect = dialect_named("v2")
        self.prompt: Prompty | None = None
        self.prompt_file: PromptFile | None = None
        self._starts = [0, *(match.end() for match in _LINE_BREAK.finditer(self.text))]
        try:
            # It takes one mark away itself; a second one is text.
            source = Source("\ufeff" + self.text, name)
            if self.is_yaml:
                self.prompt_file = PromptFile.loads(self.text, name)
            else:
                self._read(source, References(base, roots, _AnyName(), _AnyName()), dialect)
        except PromptFileError as error:
            self._fault(error)

    def _read(self, source: Source, references: References, dialect: str | None) -> None:
        """Read a file with front matter, each part of it as far as it goes."""
        parts = split(source)
        self.fields, self.body, self.body_at = parts.fields or {}, parts.body, parts.body_at
        self.spoken = dialect_of(self.fields, self.body, self.name) if dialect is None else dialect_named(dialect)
        seen: dict[str, Node] = {}
        for name, node in self.fields.items():
            try:
                seen |= references.resolved({name: node}, source)
            except PromptFileError as error:
                self._fault(error)
        said = self.spoken.translate(Reading(source, seen, self.body, references))
        self.said, self.body = said.fields, said.body
        good: dict[str, Node] = {}
        for name, node in said.fields.items():
            try:
                read_spec({name: node}, source)
                good[name] = node
            except PromptFileError as error:
                self._fault(error)
        self.spec = read_spec(good, source)
        if "template" in said.fields and "template" not in good:
            return  # nobody knows its syntax
        made = Prompty(self.spec, self.body or self.spec.instructions or "", self.spoken.name, self.text)
        try:
            if isinstance(made.template, HandlebarsTemplate):
                check_marks(made.template.marks)
            self.prompt = made
        except TemplateError as error:
            what = str(error)
            line = _LINE_SAID.match(what)
            self.faults.append(Hit(self.line_of_body(int(line[1]) if line else 1), what.splitlines()[0]))

    def _fault(self, error: PromptFileError) -> None:
        what = str(error).splitlines()[0]
        placed = _PLACED.match(what, len(self.name)) if what.startswith(self.name) else None
        if placed is None:
            self.faults.append(Hit(Place(1, 1), what))
        else:
            self.faults.append(Hit(Place(int(placed[1]), int(placed[2])), what[placed.end() :]))

    @property
    def engine(self) -> str:
        """The syntax of the template."""
        return self.spec.engine

    @property
    def template(self) -> str:
        """The template, wherever it stands."""
        return self.body or self.spec.instructions or ""

    @cached_property
    def tree(self) -> nodes.Template | None:
        """The template as Jinja parses it; None where it is none of Jinja."""
        if self.engine != "jinja2" or self.is_yaml:
            return None
        try:
            return jinja().parse(self.template)
        except _NO_PARSE:
            return None  # it is among the faults

    @cached_property
    def _nodes(self) -> tuple[nodes.Node, ...]:
        """All nodes of the template in Jinja, in its order; found without recursion, however deep they lie."""
        found: list[nodes.Node] = []
        waiting: list[nodes.Node] = [] if self.tree is None else [self.tree]
        while waiting:
            node = waiting.pop()
            found.append(node)
            waiting += reversed([*node.iter_child_nodes()])
        return tuple(found)

    def found(self, *kinds: type[_N]) -> Iterator[_N]:
        """The nodes of some kinds in the template, where it is one of Jinja."""
        return (node for node in self._nodes if isinstance(node, kinds))

    @cached_property
    def own(self) -> OwnText | None:
        """The template's own text; None where it does not parse."""
        if self.is_yaml or (self.prompt is None and self.tree is None):
            return None
        return OwnText(self.template, self.engine)

    def place(self, at: int) -> Place:
        """The place of an index of the text."""
        line = bisect_right(self._starts, at)
        return Place(line, at - self._starts[line - 1] + 1)

    def in_body(self, at: int) -> Place:
        """The place of an index of the template."""
        if not self.body:
            return self._instructions()
        line = self.body.count("\n", 0, at)
        column = at - (self.body.rfind("\n", 0, at) + 1) + 1
        return Place(self.place(self.body_at).line + line, column)

    def line_of_body(self, line: int, word: str = "") -> Place:
        """The place of a word in a line of the template, counted from 1; else where the line begins."""
        if not self.body:
            return self._instructions()
        lines = self.body.split("\n", line)
        text = lines[line - 1] if line <= len(lines) else ""
        found = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) if word else None
        return Place(self.place(self.body_at).line + line - 1, found.start() + 1 if found else 1)

    def _instructions(self) -> Place:
        """Where the template begins that stands in the front matter."""
        node = self.said.get("instructions")
        return self.place(node.at if node else 0)

    def of(self, node: Node) -> Place:
        """The place of a node."""
        return self.place(node.at)

    def excerpt(self, line: int) -> str:
        """A line of the text, without its secrets."""
        if not 1 <= line <= len(self._starts):
            return ""
        end = self._starts[line] if line < len(self._starts) else len(self.text)
        return self.text[self._starts[line - 1] : end].rstrip("\r\n")


def items_of(node: Node | None) -> list[tuple[str, Node]]:
    """What a list of mappings with names, or a mapping by names, holds: each with its name."""
    value = None if node is None else node.value
    if isinstance(value, dict):
        return [*value.items()]
    if not isinstance(value, list):
        return []
    found: list[tuple[str, Node]] = []
    for item in value:
        named = item.value.get("name") if isinstance(item.value, dict) else None
        if named is not None and isinstance(named.value, str):
            found.append((named.value, item))
    return found


def field_of(node: Node, name: str) -> Node | None:
    """A field of a node that is a mapping."""
    return node.value.get(name) if isinstance(node.value, dict) else None


def fields_of(node: Node | None) -> dict[str, Node]:
    """The fields of a node; none where it is no mapping."""
    return node.value if node is not None and isinstance(node.value, dict) else {}


def _fields_end(text: str) -> int:
    """About where the front matter ends: a file that cannot be taken apart may hold secrets too."""
    lines = _CLOSING.finditer(text)
    opening = next(lines, None)
    if opening is None or text[: opening.start()].strip():
        return 0
    closing = next(lines, None)
    return len(text) if closing is None else closing.start()
