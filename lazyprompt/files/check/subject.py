"""The prompt file that lint rules check, with the position of each field and of each line in the template.

Invalid front matter fields are recorded as errors and then skipped.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from jinja2 import TemplateSyntaxError, nodes

from lazyprompt._base.secrets_in import masked, secrets_in
from lazyprompt.errors import PromptFileError, TemplateError
from lazyprompt.files.dialects.dialects import Dialect, dialect_named, dialect_of
from lazyprompt.files.includes import Expanded, IncludedFile, expand_includes
from lazyprompt.files.library.names import YAML_SUFFIXES
from lazyprompt.files.prompt_file import PromptFile
from lazyprompt.files.prompty import Prompty
from lazyprompt.files.references import References
from lazyprompt.files.roles import Scanned
from lazyprompt.files.spec import ENGINES, DialectFile, Spec, read_spec
from lazyprompt.files.yaml_nodes import Node, SourceText, split
from lazyprompt.templates.sandbox import BoundedEnvironment
from lazyprompt.templates.slots import Value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


def items_of(node: Node | None) -> list[tuple[str, Node]]:
    """Return a node's named items (see :attr:`Node.named`), or an empty list if the node is None."""
    return [] if node is None else node.named


def fields_of(node: Node | None) -> dict[str, Node]:
    """Return the fields of a mapping node, or an empty dict if the node is None or another kind of node."""
    return {} if node is None else node.fields


def failing(node: Node, references: References, source: SourceText) -> Node:
    """Return the innermost YAML node that contains the first unresolvable reference in a field.

    Args:
        node: The field with an unresolvable reference.
        references: The resolver for references.
        source: The file that contains the field.
    """
    for part in node.parts:
        try:
            references.resolve({"": part}, source)
        except PromptFileError:
            return failing(part, references, source)
    return node


_RAW = r"\{%[-+]?\s*raw\s*[-+]?%\}(?P<raw>.*?)\{%[-+]?\s*endraw\s*[-+]?%\}"
_TAGS: Final[Mapping[str, re.Pattern[str]]] = {
    "jinja2": re.compile(_RAW + r"|\{#.*?#\}|\{%.*?%\}|(?P<value>\{\{.*?\}\})", re.DOTALL),
    "mustache": re.compile(r"(?P<value>\{\{\{.*?\}\}\}|\{\{(?![#^/!>=]).*?\}\})|\{\{.*?\}\}", re.DOTALL),
}
_NAME_IN_TAG = re.compile(r"\{\{\{?[-+]?\s*([\w.]+)\s*[-+]?\}?\}\}")
_NOT_A_BREAK = re.compile(r"[^\n]")


class OwnText:
    """A template's literal text, with one character in place of each value tag, and spaces in place of other tags.

    Args:
        body: The template.
        engine: The template syntax.
    """

    def __init__(self, body: str, engine: str) -> None:
        self.tags: list[tuple[int, int]] = []
        """The spans of the tags in the template."""
        parts: list[str] = []
        # ``_starts`` and ``_shifts`` map an index in the scanned text to an index in the template.
        self._starts, self._shifts = [0], [0]
        end = 0
        for match in _TAGS[engine].finditer(body):
            part = self._scan(match)
            parts += (body[end : match.start()], part)
            end = match.end()
            if isinstance(part, Value):
                self._shifts.append(self._shifts[-1] + len(match[0]) - 1)
                self._starts.append(end - self._shifts[-1])
        self.scanned = Scanned([*parts, body[end:]])

    def _scan(self, match: re.Match[str]) -> str:
        """Return what replaces a template tag: a placeholder value, spaces, or a raw block's text between spaces."""
        groups = match.groupdict()
        if groups.get("raw") is not None:
            begin, end = (at - match.start() for at in match.span("raw"))
            return _blank(match[0][:begin]) + match[0][begin:end] + _blank(match[0][end:])
        self.tags.append(match.span())
        if groups.get("value") is None:
            return _blank(match[0])
        name = _NAME_IN_TAG.fullmatch(match[0])
        return Value("", name[1] if name else "")

    def in_body(self, at: int) -> int:
        """Convert an index in ``scanned.text`` to an index in the template."""
        return at + self._shifts[bisect_right(self._starts, at) - 1]


def _blank(text: str) -> str:
    return _NOT_A_BREAK.sub(" ", text)


_T = TypeVar("_T")
_N = TypeVar("_N", bound=nodes.Node)
_LINE_BREAK = re.compile(r"\r\n|[\r\n]")
_PLACED = re.compile(r":([0-9]+):([0-9]+): ")
_GIVEN = re.compile(r"[\"']?\$\{params:", re.IGNORECASE)
_LINE = re.compile(r"(\w+), line ([0-9]+): ")
_OTHER_LINE = re.compile(r"\bline ([0-9]+)\b")
_INDEX = re.compile(r" at ([0-9]+)$")
# The search for an invalid tag reads at most this many characters of a line.
_LOOKED_AT = 2000
_TAG_OPENS = re.compile(r"\{[{%#]")
_TAG = re.compile(r"\{\{.*?\}\}|\{%.*?%\}")
_CLOSING = re.compile(r"^[^\S\r\n]*(?:---|\+\+\+)[^\S\r\n]*$", re.MULTILINE)
_NO_PARSE = (TemplateSyntaxError, SyntaxError, ValueError, RecursionError, MemoryError)


class Place(NamedTuple):
    """A line number and a column number, both counted from 1."""

    line: int
    column: int


_BEGIN: Final = Place(1, 1)


class Hit(NamedTuple):
    """A violation found by a lint rule.

    Attributes:
        place: The line and column of the violation.
        message: A description of the problem.
        advice: The suggested fix.
    """

    place: Place
    message: str
    advice: str = ""


class _ReferenceValues(dict[str, str]):
    """A stand-in for environment variables or params that maps each name to a reference, such as ``${env:NAME}``.

    Lint rules resolve references with this mapping, so that findings don't depend on the machine's environment
    variables. A reference that specifies a default value resolves to this value.

    Args:
        protocol: The prefix of the references, such as ``env``.
    """

    def __init__(self, protocol: str) -> None:
        self._protocol = protocol

    def __missing__(self, name: str) -> str:
        return f"${{{self._protocol}:{name}}}"

    def get(self, name: str, default: _T | None = None) -> str | _T:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self[name] if default is None else default

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str)


@lru_cache(maxsize=1)
def jinja() -> BoundedEnvironment:
    """Return the Jinja environment that parses templates and lists the known filters and tests."""
    return BoundedEnvironment()


def nodes_in(template: str) -> tuple[nodes.Node, ...] | None:
    """Return all nodes in a Jinja template in order, or None if the template doesn't parse."""
    try:
        return tuple(nodes_of(jinja().parse(template)))
    except _NO_PARSE:
        return None


def nodes_of(node: nodes.Node) -> Iterator[nodes.Node]:
    """Yield a node and its descendants without recursion."""
    waiting = [node]
    while waiting:
        found = waiting.pop()
        yield found
        waiting += reversed([*found.iter_child_nodes()])


class Subject:
    """A prompt file that lint rules check.

    Args:
        text: The file's text.
        name: The file's name in findings.
        base: The directory that references are relative to, or None if the text has no directory.
        roots: Additional directories that references may point to.
        dialect: The file's dialect; if None, the dialect is detected.

    Attributes:
        text: The text with secrets masked, and without a byte order mark.
        faults: The errors that prevent the file from loading.
        fields: The front matter as written; each value is a ``Node`` with a position.
        seen: The front matter with references resolved.
        in_v2: The front matter in the fields of Prompty v2.
        body: The template after the front matter, with LF line ends; ``""`` if the front matter contains it.
        engine: The template syntax, or ``""`` if the syntax is unknown.
        pieces: The files that the template includes.

    Raises:
        TemplateError: The dialect is unknown.
    """

    def __init__(
        self, text: str, name: str, base: Path | None, roots: tuple[Path, ...] = (), dialect: str | None = None
    ) -> None:
        self.name = name
        self.has_mark = text.startswith("\ufeff")
        plain = text.removeprefix("\ufeff")
        self.is_yaml = name.lower().endswith(YAML_SUFFIXES)
        self.secrets = secrets_in(plain, len(plain) if self.is_yaml else _fields_end(plain))
        self.text = masked(plain, self.secrets)
        self.faults: list[Hit] = []
        self.fields: Mapping[str, Node] = {}
        self.seen: Mapping[str, Node] = {}
        self.in_v2: Mapping[str, Node] = {}
        self.spec = Spec()
        self.body: str = ""
        self.body_at: int = 0
        self.dialect: Dialect = dialect_named(dialect or "v2")
        self.engine: str = ""
        self.pieces: tuple[IncludedFile, ...] = ()
        self.prompt: Prompty | None = None
        self.prompt_file: PromptFile | None = None
        self._starts = [0, *(match.end() for match in _LINE_BREAK.finditer(self.text))]
        self._lines = _LINE_BREAK.split(self.text)
        try:
            # SourceText removes one byte order mark, so prepend another one to keep the file's text unchanged.
            source = SourceText("\ufeff" + self.text, name)
            if self.is_yaml:
                self.prompt_file = PromptFile.loads(self.text, name)
            else:
                self._read(
                    source, References(base, roots, _ReferenceValues("params"), _ReferenceValues("env")), dialect
                )
        except PromptFileError as error:
            self._fault(error)

    def _read(self, source: SourceText, references: References, dialect: str | None) -> None:
        """Parse the front matter and the template, skipping invalid fields after recording their errors."""
        parts = split(source)
        self.fields, self.body, self.body_at = parts.fields or {}, parts.body, parts.body_at
        if dialect is None:
            self.dialect = dialect_of(self.fields, self.body)
        self.seen = seen = dict[str, Node]()
        for name, node in self.fields.items():
            try:
                seen[name] = references.resolve({name: node}, source)[name]
            except PromptFileError as error:
                self._fault(error, self.of(failing(node, references, source)))
        self.in_v2, self.body, _ = self.dialect.read(DialectFile(source, seen, self.body, references))
        good: dict[str, Node] = {}
        for name, node in self.in_v2.items():
            try:
                read_spec({name: node}, source)
                good[name] = node
            except PromptFileError as error:
                self._fault(error)
        self.spec = read_spec(good, source)
        if "template" in self.in_v2 and "template" not in good:
            return
        self.engine = self.spec.engine
        begin = self.body_at if self.body or "instructions" not in self.fields else self.fields["instructions"].at
        whole = expand_includes(self.template, self.engine, references, source, begin)
        self.pieces = whole.pieces
        made = Prompty(self.spec, whole.text, self.dialect.name, self.text)
        try:
            vars(made)["template"] = ENGINES[self.engine](whole.text)
            self.prompt = made
        except TemplateError as error:
            self.faults.append(self._template_fault(error, whole))

    def _fault(self, error: PromptFileError, referring: Place = _BEGIN) -> None:
        """Record an error that prevents the file from loading."""
        hit = hit_of(error, self.name, referring)
        if not _GIVEN.match(self.text, self._starts[hit.place.line - 1] + hit.place.column - 1):
            self.faults.append(hit)

    def _template_fault(self, error: TemplateError, whole: Expanded) -> Hit:
        """Convert a template error to a rule violation. If the error states no column, guess one."""
        its, at = whole.fault(error, ENGINES[self.engine])
        what = str(its).splitlines()[0]
        named = _LINE.match(what)
        if at is not None or named is None:
            return Hit(self.in_body(at or 0), what)
        what = f"{named[1]}: {what[named.end() :]}"
        if index := _INDEX.search(what):
            return Hit(self.in_body(int(index[1])), what[: index.start()])
        place = self.line_of_body(int(named[2]))
        if not self.body:
            return Hit(place, what)
        what = _OTHER_LINE.sub(lambda found: f"line {self.line_of_body(int(found[1])).line}", what)
        return Hit(place._replace(column=_column_of_fault(self.excerpt(place.line), what, self.engine)), what)

    @property
    def template(self) -> str:
        """The template, from the body or the front matter."""
        return self.body or self.spec.instructions or ""

    @cached_property
    def _nodes(self) -> tuple[nodes.Node, ...] | None:
        """The Jinja nodes of the template without included files, or None if the template isn't valid Jinja."""
        return nodes_in(self.template) if self.engine == "jinja2" else None

    def found(self, *kinds: type[_N]) -> Iterator[_N]:
        """Yield the nodes of the given kinds in a Jinja template."""
        return (node for node in self._nodes or () if isinstance(node, kinds))

    @cached_property
    def own(self) -> OwnText | None:
        """The template without its tags, for searches in literal text; None if the template doesn't parse.

        For the template as a string, use ``template``.
        """
        if self.prompt is None and self._nodes is None:
            return None
        return OwnText(self.template, self.engine)

    def place(self, at: int) -> Place:
        """Convert an index in the file's text to a line and column."""
        line = bisect_right(self._starts, at)
        return Place(line, at - self._starts[line - 1] + 1)

    def in_body(self, at: int) -> Place:
        """Convert an index in the template to a line and column in the file."""
        if not self.body:
            return self._instructions()
        line = self.body.count("\n", 0, at)
        column = at - (self.body.rfind("\n", 0, at) + 1) + 1
        return Place(self.place(self.body_at).line + line, column)

    def line_of_body(self, line: int, word: str = "") -> Place:
        """Return the position of a word in a line of the template, or the start of the line if the word isn't found."""
        if not self.body:
            return self._instructions()
        lines = self.body.split("\n", line)
        text = lines[line - 1] if line <= len(lines) else ""
        found = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) if word else None
        return Place(self.place(self.body_at).line + line - 1, found.start() + 1 if found else 1)

    def _instructions(self) -> Place:
        """Return the position of the template in the front matter."""
        return self.of(self.in_v2["instructions"])

    def of(self, node: Node) -> Place:
        """Return the line and column of a YAML node."""
        return self.place(node.at)

    def excerpt(self, line: int) -> str:
        """Return a line of the file's text, with secrets masked."""
        return "".join(self._lines[line - 1 : line])


def hit_of(error: PromptFileError, name: str, otherwise: Place = _BEGIN) -> Hit:
    """Convert a prompt file error to a rule violation.

    Args:
        error: The error to convert.
        name: The name of the checked file. Each error message about this file starts with the file's name.
        otherwise: The position in the checked file to report if the error is in a referenced file.
    """
    what = str(error).splitlines()[0]
    placed = _PLACED.match(what, len(name)) if what.startswith(name) else None
    return Hit(otherwise, what) if placed is None else Hit(Place(int(placed[1]), int(placed[2])), what[placed.end() :])


def _column_of_fault(line: str, what: str, engine: str) -> int:
    """Guess an error's column: the tag quoted in its message, the first invalid tag, or the line's only tag."""
    begin = line[:_LOOKED_AT]
    named = _TAG.search(what)
    if named is not None and named[0] in begin:
        return begin.index(named[0]) + 1
    for value in _TAG.finditer(begin) if engine == "jinja2" else ():
        if value[0].startswith("{{") and nodes_in(value[0]) is None:
            return value.start() + 1
    tags = [*_TAG_OPENS.finditer(begin)]
    return tags[0].start() + 1 if len(tags) == 1 else 1


def _fields_end(text: str) -> int:
    """Guess the end of the front matter without parsing, so that secrets are found even in invalid files."""
    lines = _CLOSING.finditer(text)
    opening = next(lines, None)
    if opening is None or text[: opening.start()].strip():
        return 0
    closing = next(lines, None)
    return len(text) if closing is None else closing.start()
