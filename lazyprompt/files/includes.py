"""File inclusion with ``{% include "shared/tone.md" %}`` in Jinja and ``{{> shared/tone.md}}`` in Mustache.

Included text is trusted like the template, and is inserted before the template is parsed. An included file can
therefore contain slots and role lines. Because the template isn't rendered yet, the path in an include tag must be a
constant. The newline at the end of an included file is dropped.

A path is resolved against the directory of the including file, then the prompt's directory, then the allowed roots. In
a library, a path is resolved against the including file's directory in each layer, then against the root of each layer.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from lazyprompt.errors import PromptFileError, PromptFileMissingError, TemplateError
from lazyprompt.files.references import References, file_text
from lazyprompt.files.yaml_nodes import MAX_BYTES, SourceText

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


MAX_INCLUDES: Final = 1000
"""The maximum number of includes in a prompt, counting nested includes."""

_MAX_CHAIN = 50
_TEXTS = r"\"(?>(?:[^\"\\]++|\\.)*)\"|'(?>(?:[^'\\]++|\\.)*)'"
# An unclosed raw block extends to the end of the text, because repeated searches for its end take quadratic time.
_JINJA = (
    r"\{#.*?#\}|\{%[-+]?\s*+raw\s*+[-+]?%\}(?:.*?\{%[-+]?\s*+endraw\s*+[-+]?%\}|.*+)"
    rf"|(?P<open>\{{%[-+]?)\s*+include\b(?P<what>(?>(?:{_TEXTS}|[^\"'%]++|%(?!\}}))*))%\}}"
    rf"|\{{%(?>(?:{_TEXTS}|[^\"'%]++|%(?!\}}))*)%\}}|\{{\{{(?>(?:{_TEXTS}|[^\"'}}]++|\}}(?!\}}))*)\}}\}}"
)
_MUSTACHE = r"\{\{!.*?\}\}|(?P<open>\{\{)>(?P<what>[^}]*+)\}\}|\{\{\{[^{}]*+\}\}\}|\{\{.*?\}\}"
_LITERAL = r"\s*(?:\"([^\"\\\n]+)\"|'([^'\\\n]+)')\s*"
_NAME = r"\s*(?:\"([^\"\n]+)\"|'([^'\n]+)'|([^\s{}()|=\"'@]+))\s*"
_SPACE = re.compile(r"\s*+")
_REST_IS_BLANK = re.compile(r"[^\S\n]*+(?:\n|\Z)")
_DELIMITER = re.compile(r"\s*(?:---|\+\+\+)[^\S\n]*\n")


class _Tag(NamedTuple):
    """A tag that includes a file in a template.

    Attributes:
        begin: The index where the replaced text starts; the text includes white space that the tag strips.
        end: The index where the replaced text ends.
        at: The index where the tag itself starts.
        path: The path in the tag, or None if the path isn't a constant.
        indent: The indentation to add to each line of the file.
    """

    begin: int
    end: int
    at: int
    path: str | None
    indent: str


@dataclass(frozen=True)
class _Syntax:
    """The rules for include tags in one template syntax.

    Args:
        sign: A substring that every include tag contains.
        usage: An example tag for error messages.
        opens: The pattern for the start of any tag.
        tag: The pattern for a tag, comment or raw block, with a group ``what`` that matches only in include tags.
        path: A pattern that matches the argument of an include tag (the group ``what``) if it is a constant path.
        marks: Jinja's characters for whitespace control, ``-`` and ``+``; empty for Mustache. The first one, ``-``,
            strips white space around the tag.
        indents: True if the indentation of an include tag that is alone on its line is added to every line of the
            included file.
    """

    sign: str
    usage: str
    opens: re.Pattern[str]
    tag: re.Pattern[str]
    path: re.Pattern[str]
    marks: tuple[str, ...]
    indents: bool = False

    def tags(self, text: str) -> Iterator[_Tag]:
        """Yield the include tags outside comments, raw blocks and string literals."""
        end = 0
        while opens := self.opens.search(text, end):
            at = opens.start()
            found = self.tag.match(text, at)
            if found is None or text.startswith("{{=", at):
                # Stop without an error, because the template's parser reports an unclosed tag or changed delimiters.
                return
            end = found.end()
            what = found["what"]
            if what is None:
                continue
            named = self.path.fullmatch(what[:-1] if what.endswith(self.marks) else what)
            path = None if named is None else next(filter(None, named.groups()))
            begin = len(text[:at].rstrip()) if found["open"].endswith(self.marks[:1]) else at
            if what.endswith(self.marks[:1]) and (space := _SPACE.match(text, end)):
                end = space.end()
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
    """A file that a template includes.

    Attributes:
        name: The path as written in the tag.
        own: The file's text with each include tag replaced by the line breaks that the tag contains, so that line
            numbers stay correct.
        at: The index of the include tag in the prompt's template. For a nested file, this is the index of the tag that
            includes the outermost file.
    """

    name: str
    own: str
    at: int


@dataclass(frozen=True, slots=True)
class Expanded:
    """A template and the files that it includes.

    Args:
        text: The template with all files inserted.
        own: The template with each include tag replaced by the line breaks that the tag contains, so that line numbers
            stay correct.
        pieces: The included files, without duplicates and with nested files first.
    """

    text: str
    own: str
    pieces: tuple[IncludedFile, ...] = ()

    def fault(self, error: TemplateError, parse: Callable[[str], object]) -> tuple[TemplateError, int | None]:
        """Find the file that causes an error. The error's line number counts lines of inserted files too.

        Args:
            error: The error that the parser raised for the template with all files inserted.
            parse: The template parser.

        Returns:
            The error with the line number in the faulty file, and the index in the template of the tag that includes
            this file. If the error is in the template itself, the tag's index is None.
        """
        for name, own, at in (*self.pieces, IncludedFile("", self.own, 0)) if self.pieces else ():
            try:
                parse(own)
            except TemplateError as its:
                return (TemplateError(f"in the included {name}: {its}"), at) if name else (its, None)
        return error, None


def expand_includes(text: str, engine: str, references: References, source: SourceText, begin: int) -> Expanded:
    """Insert included files into a template.

    Args:
        text: The template.
        engine: The template syntax.
        references: The directories that files may be read from.
        source: The prompt file, for error positions.
        begin: The character index in the prompt file where the template starts.

    Raises:
        PromptFileError: A file can't be included. The message contains the position of the include tag.
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
    """The state of one template's expansion: the files inserted so far and the remaining number of bytes."""

    references: References
    syntax: _Syntax
    at: int = 0
    left: int = MAX_BYTES
    count: int = 0
    pieces: dict[Path, IncludedFile] = field(default_factory=dict[Path, IncludedFile])
    texts: dict[Path, str] = field(default_factory=dict[Path, str])

    def within(self, text: str, chain: list[tuple[Path, str]], directory: Path | None) -> tuple[str, str]:
        """Replace the include tags in a text.

        Returns:
            The text with the included files inserted, and the text with each include tag reduced to its line breaks.
        """
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
            # Keep the line breaks of removed tags, so that line numbers match the file.
            bare += (text[end : tag.begin], "\n" * text.count("\n", tag.begin, tag.end))
            end = tag.end
        return "".join([*parts, text[end:]]), "".join([*bare, text[end:]])

    def _of(self, tag: _Tag, chain: list[tuple[Path, str]], directory: Path | None) -> str:
        """Return the text that replaces an include tag."""
        self.count += 1
        if self.count > MAX_INCLUDES:
            raise ValueError(f"more than {MAX_INCLUDES} files are included")
        if tag.path is None:
            raise ValueError(
                f"an include tag must contain only a constant path, such as {self.syntax.usage}: files are inserted "
                "before values are known; to choose a file by a value, put each include in an if block"
            )
        found = self._text(self._path(tag.path, directory), tag.path, chain).replace("\n", "\n" + tag.indent)
        self.left -= len(found)
        if self.left < 0:
            raise ValueError(f"the included files exceed {MAX_BYTES} characters")
        return found

    def _path(self, given: str, directory: Path | None) -> Path:
        """Return the first existing file that a path resolves to."""
        refused: ValueError | None = None
        allowed = False
        for start in self.references.starts(directory):
            try:
                path = self.references.path_of(given, start)
            except ValueError as error:
                refused = refused or error
                continue
            allowed = True
            if os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises for names that are too long
                return path
        if refused is not None and not allowed:
            raise refused
        raise FileNotFoundError(f"included file {given!r} not found")

    def _text(self, path: Path, given: str, chain: list[tuple[Path, str]]) -> str:
        """Return a file's text with all nested files inserted."""
        if any(path == one for one, _ in chain):
            names = " → ".join([*(name for _, name in chain), given])
            raise ValueError(f"circular includes: {names}")
        if len(chain) >= _MAX_CHAIN:
            raise ValueError(f"includes are nested more than {_MAX_CHAIN} levels deep")
        if path in self.texts:
            return self.texts[path]
        text = file_text(path, given).replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n")
        if path.suffix.lower() == ".prompty" and _DELIMITER.match(text):
            raise ValueError(
                f"{given!r} has front matter, which an include would drop; move the shared text to a separate file"
            )
        if "\0" in text:
            raise ValueError(f"{given!r} contains the character U+0000, which is not allowed")
        whole, own = self.within(text, [*chain, (path, given)], path.parent)
        self.pieces[path] = IncludedFile(given, own, self.at)
        self.texts[path] = whole
        return whole


def place_in(source: SourceText, begin: int, at: int) -> int:
    """Convert an index in the template, which has only ``LF`` line endings, to an index in the file.

    Args:
        source: The prompt file.
        begin: The index in the file where the template starts.
        at: The index to convert, counted from the start of the template.
    """
    for pairs, found in enumerate(re.finditer("\r\n", source.text[begin:])):
        if found.start() - pairs >= at:
            return begin + at + pairs
    return begin + at + source.text.count("\r\n", begin)
