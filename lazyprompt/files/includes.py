"""Files within templates: ``{% include "shared/tone.md" %}`` in Jinja, ``{{> shared/tone.md}}`` in Mustache.

What is included is the developer's own text, put in its place before the template is parsed: slots in it are slots, and
lines in it that name a role begin a section. So a path stands there in full; one that a value would give is refused.
A newline at the end of an included file ends its last line, and is no part of its text.

A path is looked for beside the file that it stands in, then in the directory of the prompt, then in the allowed roots.
In a library, the layers are as one tree: beside the file in each of the layers, then in their roots.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from lazyprompt.errors import PromptFileError, PromptFileMissingError, TemplateError
from lazyprompt.files.references import References, file_text
from lazyprompt.files.yaml_nodes import MAX_BYTES, SourceText

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


MAX_INCLUDES: Final = 1000
"""How many times a prompt may include a file, all in all."""

_MAX_CHAIN = 50
_TEXTS = r"\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+'"
# What is raw and never ends goes on to the end of the text: to look for its end from each place would take long.
_JINJA = (
    r"\{#.*?#\}|\{%[-+]?\s*+raw\s*+[-+]?%\}(?:.*?\{%[-+]?\s*+endraw\s*+[-+]?%\}|.*+)"
    rf"|(?P<open>\{{%[-+]?)\s*+include\b(?P<what>(?:{_TEXTS}|[^\"'%]|%(?!\}}))*+)%\}}"
    rf"|\{{%(?:{_TEXTS}|[^\"'%]|%(?!\}}))*+%\}}|\{{\{{(?:{_TEXTS}|[^\"'}}]|\}}(?!\}}))*+\}}\}}"
)
_MUSTACHE = r"\{\{!.*?\}\}|(?P<open>\{\{)>(?P<what>[^}]*+)\}\}|\{\{\{[^{}]*+\}\}\}|\{\{.*?\}\}"
_LITERAL = r"\s*(?:\"([^\"\\\n]+)\"|'([^'\\\n]+)')\s*"
_NAME = r"\s*(?:\"([^\"\n]+)\"|'([^'\n]+)'|([^\s{}()|=\"'@]+))\s*"
_SPACE = re.compile(r"\s*+")
_REST_IS_BLANK = re.compile(r"[^\S\n]*+(?:\n|\Z)")
_DELIMITER = re.compile(r"\s*(?:---|\+\+\+)[^\S\n]*\n")


class _Tag(NamedTuple):
    """A tag that includes a file.

    Attributes:
        begin: Its beginning, with the white space that goes with it.
        end: Its end, likewise.
        at: The beginning of the tag itself.
        path: The path; None where there is none.
        indent: The indentation of each line of the file.
    """

    begin: int
    end: int
    at: int
    path: str | None
    indent: str


@dataclass(frozen=True)
class _Syntax:
    """Tags that include a file, in one syntax.

    Args:
        sign: A part of each tag that includes a file.
        usage: A tag as it is written.
        opens: The beginning of a tag.
        tag: A tag, comment or raw text, which has a group ``what`` where it includes a file.
        path: The path within such a tag.
        marks: The characters that may end a tag; the first takes white space away, also at the beginning.
        indents: True if a tag alone on its line indents all lines of its file.
    """

    sign: str
    usage: str
    opens: re.Pattern[str]
    tag: re.Pattern[str]
    path: re.Pattern[str]
    marks: tuple[str, ...]
    indents: bool = False

    def tags(self, text: str) -> Iterator[_Tag]:
        """Find the tags that include a file; those in comments, raw text and texts in quotes do not."""
        end = 0
        while opens := self.opens.search(text, end):
            at = opens.start()
            found = self.tag.match(text, at)
            if found is None or text.startswith("{{=", at):
                return  # it is not closed, or other delimiters follow; the template's parser says so
            end = found.end()
            what = found["what"]
            if what is None:
                continue
            named = self.path.fullmatch(what[:-1] if what.endswith(self.marks) else what)
            path = None if named is None else next(filter(None, named.groups()))
            begin = len(text[:at].rstrip()) if found["open"].endswith(self.marks[:1]) else at
            if what.endswith(self.marks[:1]):
                end = cast("re.Match[str]", _SPACE.match(text, end)).end()
            before = text[text.rfind("\n", 0, at) + 1 : at]
            alone = self.indents and not before.strip() and _REST_IS_BLANK.match(text, end)
            yield _Tag(begin, end, at, path, before if alone else "")


_SYNTAXES = {
    "jinja2": _Syntax(
        "include",
        '{% include "shared/tone.md" %}',
        re.compile(r"\{[{%#]"),
        re.compile(_JINJA, re.DOTALL),
        re.compile(_LITERAL),
        ("-", "+"),
    ),
    "mustache": _Syntax(
        ">",
        "{{> shared/tone.md}}",
        re.compile(r"\{\{"),
        re.compile(_MUSTACHE, re.DOTALL),
        re.compile(_NAME),
        (),
        indents=True,
    ),
}


class IncludedFile(NamedTuple):
    """A file that was included.

    Attributes:
        name: Its path, as the template has it.
        own: Its own text, without what it includes; its lines are those of the file.
        at: The place of the tag in the template of the prompt.
    """

    name: str
    own: str
    at: int


@dataclass(frozen=True, slots=True)
class Expanded:
    """A template with all that it includes.

    Args:
        text: The whole text.
        own: Its own text, without what it includes; its lines are those of the file.
        pieces: The files that it includes, each once; those that they include are before them.
    """

    text: str
    own: str
    pieces: tuple[IncludedFile, ...] = ()

    def fault(self, error: TemplateError, parse: Callable[[str], object]) -> tuple[TemplateError, int | None]:
        """Find the file that an error of the whole text is from: lines of the whole are lines of no file.

        Args:
            error: The error.
            parse: The parser of a template.

        Returns:
            The error with the line of its file; and the place of the tag, where it is in a file that is included.
        """
        for name, own, at in (*self.pieces, IncludedFile("", self.own, 0)) if self.pieces else ():
            try:
                parse(own)
            except TemplateError as its:
                return (TemplateError(f"in the included {name}: {its}"), at) if name else (its, None)
        return error, None


def expand_includes(text: str, engine: str, references: References, source: SourceText, begin: int) -> Expanded:
    """A template with the files that it includes in their places.

    Args:
        text: The template.
        engine: Its syntax.
        references: The places that files may lie in.
        source: The file that it is from, for errors.
        begin: The beginning of the template in it.

    Raises:
        PromptFileError: A file cannot be included; the message has the place of the tag in the prompt's file.
    """
    syntax = _SYNTAXES[engine]
    if syntax.sign not in text:
        return Expanded(text, text)
    including = _Including(references, syntax)
    try:
        whole, own = including.within(text, [], references.base)
    except (ValueError, FileNotFoundError) as error:
        kind = PromptFileMissingError if isinstance(error, FileNotFoundError) else PromptFileError
        raise kind(str(source.fault_at(place_in(source, begin, including.at), str(error)))) from error
    return Expanded(whole, own, tuple(including.pieces.values()))


@dataclass
class _Including:
    """Puts files into one template, within bounds."""

    references: References
    syntax: _Syntax
    at: int = 0
    left: int = MAX_BYTES
    count: int = 0
    pieces: dict[Path, IncludedFile] = field(default_factory=dict[Path, IncludedFile])
    texts: dict[Path, str] = field(default_factory=dict[Path, str])

    def within(self, text: str, chain: list[tuple[Path, str]], directory: Path | None) -> tuple[str, str]:
        """Return a text with all files in their places, and the same without them."""
        parts: list[str] = []
        bare: list[str] = []
        end = 0
        for tag in self.syntax.tags(text):
            if not chain:
                self.at = tag.at
            try:
                found = self._of(tag, chain, directory)
            except (FileNotFoundError, ValueError) as error:
                raise type(error)(f"{chain[-1][1]}: {error}" if chain else str(error)) from error
            parts += (text[end : tag.begin], found)
            # The tags go, their lines stay: so lines are those of the file.
            bare += (text[end : tag.begin], "\n" * text.count("\n", tag.begin, tag.end))
            end = tag.end
        return "".join([*parts, text[end:]]), "".join([*bare, text[end:]])

    def _of(self, tag: _Tag, chain: list[tuple[Path, str]], directory: Path | None) -> str:
        """Return the text that a tag includes."""
        self.count += 1
        if self.count > MAX_INCLUDES:
            raise ValueError(f"more than {MAX_INCLUDES} files are included")
        if tag.path is None:
            raise ValueError(
                f"an included file is named by its path in full, as {self.syntax.usage}, with nothing else in the tag: "
                "files are put in before there are values; to choose by a value, put it under an if"
            )
        found = self._text(self._path(tag.path, directory), tag.path, chain).replace("\n", "\n" + tag.indent)
        self.left -= len(found)
        if self.left < 0:
            raise ValueError(f"the included files make more than {MAX_BYTES} characters")
        return found

    def _path(self, given: str, directory: Path | None) -> Path:
        """The file of a path: the first one that there is."""
        refused: ValueError | None = None
        allowed = False
        for start in self.references.starts(directory):
            try:
                path = self.references.path_of(given, start)
            except ValueError as error:
                refused = refused or error
                continue
            allowed = True
            if os.path.isfile(path):  # noqa: PTH113 - a name that is too long is an error to a Path
                return path
        if refused is not None and not allowed:
            raise refused
        raise FileNotFoundError(f"there is no file {given!r} to be included")

    def _text(self, path: Path, given: str, chain: list[tuple[Path, str]]) -> str:
        """The text of a file, with what it includes itself."""
        if any(path == one for one, _ in chain):
            names = " → ".join([*(name for _, name in chain), given])
            raise ValueError(f"the included files go round in a circle: {names}")
        if len(chain) >= _MAX_CHAIN:
            raise ValueError(f"files include one another more than {_MAX_CHAIN} deep")
        if path in self.texts:
            return self.texts[path]
        text = file_text(path, given).replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n")
        if path.suffix.lower() == ".prompty" and _DELIMITER.match(text):
            raise ValueError(
                f"{given!r} has a front matter, which would be lost; put the text that is shared into a file of its own"
            )
        if "\0" in text:
            raise ValueError(f"{given!r} holds the character U+0000, which no text has")
        whole, own = self.within(text, [*chain, (path, given)], path.parent)
        self.pieces[path] = IncludedFile(given, own, self.at)
        self.texts[path] = whole
        return whole


def place_in(source: SourceText, begin: int, at: int) -> int:
    """Return the place in a file of a place in its template, which has no lines that end in two characters.

    Args:
        source: The file.
        begin: The beginning of the template in it.
        at: The place in the template.
    """
    for pairs, found in enumerate(re.finditer("\r\n", source.text[begin:])):
        if found.start() - pairs >= at:
            return begin + at + pairs
    return begin + at + source.text.count("\r\n", begin)
