"""Files within templates: ``{% include "shared/tone.md" %}`` in Jinja, ``{{> shared/tone.md}}`` in the others.

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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from lazyprompt.errors import PromptFileError, PromptFileMissingError, TemplateError
from lazyprompt.files.references import file_text
from lazyprompt.files.yaml_nodes import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lazyprompt.files.references import References
    from lazyprompt.files.yaml_nodes import Source

MAX_INCLUDES: Final = 1000
"""How many times a prompt may include a file, all in all."""

_MAX_CHAIN = 50
_TEXTS = r"\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+'"
_JINJA = re.compile(
    # What is raw and never ends goes on to the end of the text: to look for its end from each place would take long.
    r"\{#.*?#\}|\{%[-+]?\s*+raw\s*+[-+]?%\}(?:.*?\{%[-+]?\s*+endraw\s*+[-+]?%\}|.*+)"
    rf"|(?P<open>\{{%[-+]?)\s*+include\b(?P<what>(?:{_TEXTS}|[^\"'%]|%(?!\}}))*+)%\}}"
    rf"|\{{%(?:{_TEXTS}|[^\"'%]|%(?!\}}))*+%\}}|\{{\{{(?:{_TEXTS}|[^\"'}}]|\}}(?!\}}))*+\}}\}}",
    re.DOTALL,
)
_JINJA_OPENS = re.compile(r"\{[{%#]")
_LITERAL = re.compile(r"\s*(?:\"([^\"\\\n]+)\"|'([^'\\\n]+)')\s*")
_MUSTACHE = r"\{\{~?!.*?\}\}|\{\{(?P<open>~?)[#*]?>(?P<what>[^}]*+)\}\}|\{\{\{[^{}]*+\}\}\}|\{\{.*?\}\}"
_CURLY = {
    "mustache": re.compile(_MUSTACHE, re.DOTALL),
    "handlebars": re.compile(rf"\{{\{{~?!--(?:.*?--~?\}}\}}|.*+)|{_MUSTACHE}", re.DOTALL),
}
_MUSTACHE_OPENS = re.compile(r"\{\{")
_NAME = re.compile(r"\s*(?:\"([^\"\n]+)\"|'([^'\n]+)'|([^\s{}()|=\"'@]+))\s*")
_SPACE = re.compile(r"\s*+")
_PROMPTS = (".prompty", ".prompt")
_DELIMITER = re.compile(r"\s*(?:---|\+\+\+)[^\S\n]*\n")


class _Tag(NamedTuple):
    """A tag that includes a file.

    Attributes:
        begin: Where it begins, with the white space that goes with it.
        end: Where it ends.
        at: Where the tag itself begins.
        path: The path; None where it is none.
        indent: What each line of the file is indented by.
    """

    begin: int
    end: int
    at: int
    path: str | None
    indent: str = ""


def _jinja_tags(text: str) -> Iterator[_Tag]:
    """The tags of a Jinja template; those in comments, raw blocks and texts in quotes are none."""
    end = 0
    while opens := _JINJA_OPENS.search(text, end):
        found = _JINJA.match(text, opens.start())
        if found is None:
            return  # It is not closed: what parses the template says so.
        end = found.end()
        if found["what"] is not None:
            what = found["what"]
            closes = what[-1:] if what[-1:] in ("-", "+") else ""
            literal = _LITERAL.fullmatch(what.removesuffix(closes))
            begin = _space_before(text, opens.start()) if found["open"].endswith("-") else opens.start()
            end = cast("re.Match[str]", _SPACE.match(text, end)).end() if closes == "-" else end
            yield _Tag(begin, end, opens.start(), None if literal is None else literal[1] or literal[2])


def _curly_tags(text: str, engine: str) -> Iterator[_Tag]:
    """The tags of a Mustache or Handlebars template; one alone on its line indents all lines of its file."""
    end = 0
    while opens := _MUSTACHE_OPENS.search(text, end):
        at = opens.start()
        found = _CURLY[engine].match(text, at)
        if found is None or text.startswith("{{=", at):
            return  # It is not closed; or other delimiters follow, in which nothing can be included.
        end = found.end()
        if found["what"] is None or _is_escaped(text, at):
            continue
        what = found["what"]
        name = _NAME.fullmatch(what.removesuffix("~"))
        path = None if name is None or "{{#" in found[0] or "{{*" in found[0] else name[1] or name[2] or name[3]
        begin = _space_before(text, at) if found["open"] else at
        end = cast("re.Match[str]", _SPACE.match(text, end)).end() if what.endswith("~") else end
        before = text[text.rfind("\n", 0, at) + 1 : at]
        alone = not before.strip() and not text[end : (text.find("\n", end) + 1 or len(text) + 1) - 1].strip()
        yield _Tag(begin, end, at, path, before if alone else "")


def _space_before(text: str, at: int) -> int:
    """Where the white space before a place begins."""
    while at and text[at - 1].isspace():
        at -= 1
    return at


def _is_escaped(text: str, at: int) -> bool:
    """Whether a backslash makes text of the tag at a place; two of them are one that does not."""
    begin = at
    while begin and text[begin - 1] == "\\":
        begin -= 1
    return (at - begin) % 2 == 1


_SYNTAXES: dict[str, tuple[str, Callable[[str], Iterator[_Tag]], str]] = {
    "jinja2": ("include", _jinja_tags, '{% include "shared/tone.md" %}'),
    "mustache": (">", partial(_curly_tags, engine="mustache"), "{{> shared/tone.md}}"),
    "handlebars": (">", partial(_curly_tags, engine="handlebars"), "{{> shared/tone.md}}"),
}


class Piece(NamedTuple):
    """A file that was included.

    Attributes:
        name: Its path, as the template has it.
        own: Its own text, without what it includes; its lines are those of the file.
        at: Where the tag is, in the template of the prompt.
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
    pieces: tuple[Piece, ...] = ()

    def fault(self, error: TemplateError, parse: Callable[[str], object]) -> tuple[TemplateError, int | None]:
        """Where an error of the whole text is from: lines of the whole are lines of no file.

        Args:
            error: The error.
            parse: What parses a template.

        Returns:
            The error with the line of its file; and the place of the tag, where it is in a file that is included.
        """
        for name, own, at in (*self.pieces, Piece("", self.own, 0)) if self.pieces else ():
            try:
                parse(own)
            except TemplateError as its:
                return (TemplateError(f"in the included {name}: {its}"), at) if name else (its, None)
        return error, None


def expanded(text: str, engine: str, references: References, source: Source, begin: int) -> Expanded:
    """A template with the files that it includes in their places.

    Args:
        text: The template.
        engine: Its syntax.
        references: Where files are looked for, and may lie.
        source: The file that it is from, for errors.
        begin: Where the template begins in it.

    Raises:
        PromptFileError: A file cannot be included; the message has the place of the tag in the prompt's file.
    """
    sign, tags, usage = _SYNTAXES[engine]
    if sign not in text:
        return Expanded(text, text)
    including = _Including(references, tags, usage)
    own = [text]
    try:
        whole = including.within(text, [], references.base, own)
    except (ValueError, FileNotFoundError) as error:
        kind = PromptFileMissingError if isinstance(error, FileNotFoundError) else PromptFileError
        raise kind(str(source.pointed(place_in(source, begin, including.at), str(error)))) from error
    return Expanded(whole, own[0], tuple(including.pieces.values()))


@dataclass
class _Including:
    """Puts files into one template, within bounds.

    Args:
        references: Where files may lie.
        tags: What finds the tags.
        usage: How a tag is written.
    """

    references: References
    tags: Callable[[str], Iterator[_Tag]]
    usage: str
    at: int = 0
    left: int = MAX_BYTES
    count: int = 0
    pieces: dict[Path, Piece] = field(default_factory=dict[Path, Piece])
    texts: dict[Path, str] = field(default_factory=dict[Path, str])

    def within(self, text: str, chain: list[tuple[Path, str]], directory: Path | None, own: list[str]) -> str:
        """A text with all files in their places; ``own`` is given the text without them."""
        parts: list[str] = []
        bare: list[str] = []
        end = 0
        for tag in self.tags(text):
            if not chain:
                self.at = tag.at
            parts += (text[end : tag.begin], self._of(tag, chain, directory))
            # The tags go, their lines stay: so lines are those of the file.
            bare += (text[end : tag.begin], "\n" * text.count("\n", tag.begin, tag.end))
            end = tag.end
        own[0] = "".join([*bare, text[end:]])
        return "".join([*parts, text[end:]])

    def _of(self, tag: _Tag, chain: list[tuple[Path, str]], directory: Path | None) -> str:
        """What a tag includes."""
        self.count += 1
        where = f"{chain[-1][1]}: " if chain else ""
        if self.count > MAX_INCLUDES:
            raise ValueError(f"{where}more than {MAX_INCLUDES} files are included")
        if tag.path is None:
            raise ValueError(
                f"{where}an included file is named by its path in full, as {self.usage}, with nothing else in the tag: "
                "files are put in before there are values; to choose by a value, put it under an if"
            )
        try:
            path = self._path(tag.path, directory)
            found = self._text(path, tag.path, chain)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{where}{error}") from error
        except ValueError as error:
            # What a file within says has the chain in it already.
            raise ValueError(f"{where}{error}") from error
        found = found.replace("\n", "\n" + tag.indent) if tag.indent else found
        self.left -= len(found)
        if self.left < 0:
            raise ValueError(f"{where}the included files make more than {MAX_BYTES} characters")
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
        if path.suffix.lower() in _PROMPTS and _DELIMITER.match(text):
            raise ValueError(
                f"{given!r} has a front matter, which would be lost; put the text that is shared into a file of its own"
            )
        if "\0" in text:
            raise ValueError(f"{given!r} holds the character U+0000, which no text has")
        own = [text]
        whole = self.within(text, [*chain, (path, given)], path.parent, own)
        self.pieces[path] = Piece(given, own[0], self.at)
        self.texts[path] = whole
        return whole


def place_in(source: Source, begin: int, at: int) -> int:
    """Where a place of a template is in its file, where lines may end in two characters.

    Args:
        source: The file.
        begin: Where the template begins in it.
        at: The place in the template.
    """
    pairs = 0
    for found in re.finditer("\r\n", source.text[begin:]):
        if found.start() - pairs >= at:
            break
        pairs += 1
    return begin + at + pairs
