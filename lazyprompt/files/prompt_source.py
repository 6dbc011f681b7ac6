"""A prompt file read, with all that it refers to and includes; a fault in it is one error with its place."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

from lazyprompt.errors import PromptFileError, SlotError, TemplateError
from lazyprompt.files.dialects.dotprompt import check_marks
from lazyprompt.files.dialects.table import dialect_named, dialect_of
from lazyprompt.files.dialects.translation import Reading
from lazyprompt.files.includes import expanded, place_in
from lazyprompt.files.inputs import checked_inputs
from lazyprompt.files.spec import ENGINES, read_spec
from lazyprompt.files.yaml_nodes import split
from lazyprompt.templates.handlebars import HandlebarsTemplate

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.files.dialects.translation import Note
    from lazyprompt.files.includes import Expanded
    from lazyprompt.files.properties import Property
    from lazyprompt.files.references import References
    from lazyprompt.files.spec import Spec, Template
    from lazyprompt.files.yaml_nodes import Node, Source


class PromptSource(Protocol):
    """A prompt file, as :class:`lazyprompt.Prompty` is one; its docstring describes the attributes."""

    @property
    def name(self) -> str | None:
        """The name of the prompt."""
        ...

    @property
    def text(self) -> str:
        """The file as it is written."""
        ...

    @property
    def path(self) -> Path | None:
        """The path; None for text."""
        ...

    @property
    def dialect(self) -> str:
        """The dialect."""
        ...

    @property
    def references(self) -> References:
        """The places that references lead to."""
        ...

    @property
    def seen(self) -> Mapping[str, Node]:
        """The fields, with references looked up."""
        ...

    @property
    def notes(self) -> tuple[Note, ...]:
        """The notes of reading."""
        ...

    def to_dict(self) -> JsonObject:
        """Return the file in the canonical form of Prompty v2."""
        ...


def name_of(file: PromptSource) -> str:
    """Return the name that errors have for a file."""
    return str(file.path or file.name or "<string>")


Undefined: TypeAlias = Literal["error", "empty"]
"""What a variable is that is nowhere."""

_LINE = re.compile(r"\w+, line ([0-9]+): ")
_BREAK = re.compile(r"\r\n|[\r\n]")


class Read(NamedTuple):
    """A prompt file that was read.

    Attributes:
        spec: What its front matter says.
        instructions: Its template, with all that it includes.
        template: The same, parsed.
        dialect: The name of its dialect.
        seen: The fields of its front matter, with all references looked up.
        notes: What its dialect says otherwise.
    """

    spec: Spec
    instructions: str
    template: Template
    dialect: str
    seen: Mapping[str, Node]
    notes: tuple[Note, ...]


def read(source: Source, references: References, dialect: str | None, undefined: Undefined) -> Read:
    """Read a prompt file.

    Args:
        source: The file.
        references: Where its references lead.
        dialect: Its dialect; None finds it out.
        undefined: What a variable is that is nowhere.

    Raises:
        PromptFileError: It is wrong; the message has the place.
    """
    parts = split(source)
    fields = parts.fields or {}
    try:
        spoken = dialect_of(fields, parts.body, source.name) if dialect is None else dialect_named(dialect)
    except TemplateError as error:
        raise PromptFileError(f"{source.name}:1:1: {error}") from error
    seen = references.resolved(fields, source)
    said = spoken.translate(Reading(source, seen, parts.body, references))
    spec = read_spec(said.fields, source)
    template, begin = said.body or spec.instructions or "", parts.body_at
    if not said.body and "instructions" in fields:
        begin = fields["instructions"].at
    whole = expanded(template, spec.engine, references, source, begin)
    parsed = _parsed(whole, spec.engine, source, begin, lenient=undefined == "empty")
    _check_defaults(spec.inputs, said.fields.get("inputs"), source)
    return Read(spec, whole.text, parsed, spoken.name, seen, said.notes)


def _parsed(whole: Expanded, engine: str, source: Source, begin: int, *, lenient: bool) -> Template:
    """The template, parsed; an error in it has its place in the file."""
    parse = ENGINES[engine].parse
    try:
        made = parse(whole.text, lenient=lenient)
        if isinstance(made, HandlebarsTemplate):
            check_marks(made.marks)
    except TemplateError as error:
        its, at = whole.fault(error, parse)
        place = _place_of(its, source, begin) if at is None else place_in(source, begin, at)
        raise source.pointed(place, str(its)) from error
    return made


def _place_of(error: TemplateError, source: Source, begin: int) -> int:
    """Where the line of a template begins in its file that an error names."""
    named = _LINE.match(str(error))
    for line, found in enumerate(_BREAK.finditer(source.text, begin), 2):
        if named and line == int(named[1]):
            return found.end()
    return begin


def _check_defaults(inputs: tuple[Property, ...], written: Node | None, source: Source) -> None:
    """Refuse a default that is not of its input's kind."""
    for place, each in enumerate(inputs):
        if each.default is not None:
            try:
                checked_inputs({each.name: each.default}, (each,))
            except SlotError as error:
                items = [] if written is None else written.parts
                at = items[place].key_at if place < len(items) else 0
                raise source.pointed(at, f"a default is wrong: {error}") from error


def content_hash(dialect: str, content: JsonObject) -> str:
    """The hash of a prompt.

    Args:
        dialect: What it is written in: the same text says something else in another one.
        content: Its front matter, with what it refers to, and its template, with what it includes. How the model is
            reached (``model.connection``) is not counted: it differs from place to place, and may hold keys.

    Returns:
        SHA-256 in hexadecimal, over its canonical JSON.
    """
    model = content.get("model")
    if isinstance(model, dict):
        content = {**content, "model": {name: value for name, value in model.items() if name != "connection"}}
    told: Json = [dialect, content]
    return sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
