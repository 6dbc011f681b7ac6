"""A prompt file read in its dialect, with all that it refers to and includes; a fault is one error with its place."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from lazyprompt._base.secret import shown
from lazyprompt.errors import PromptFileError, SlotError, TemplateError
from lazyprompt.files.dialects.dialects import dialect_named, dialect_of
from lazyprompt.files.includes import Expanded, expand_includes, place_in
from lazyprompt.files.properties import Property, checked_inputs
from lazyprompt.files.references import References
from lazyprompt.files.spec import ENGINES, DialectFile, Note, Spec, Template, read_spec
from lazyprompt.files.yaml_nodes import Node, SourceText, split

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lazyprompt._base.json import JsonObject


Undefined: TypeAlias = Literal["error", "empty"]
"""The value of a variable that is nowhere."""

_LINE = re.compile(r"\w+, line ([0-9]+): ")
_BREAK = re.compile(r"\r\n|[\r\n]")


@dataclass(frozen=True, repr=False)
class LoadedPrompty:
    """A prompt file that was read.

    Args:
        spec: Its front matter.
        instructions: Its template, with the files that it includes.
        dialect: Its dialect.
        text: The file as it is written.
        path: The path; None for text.
        undefined: The value of a variable that is nowhere: an ``error``, or ``empty``.
        references: The places that its references lead to.
        seen: The fields of its front matter, with all references looked up.
        notes: Fields that another dialect writes otherwise, or that were not carried over, by line and column.
    """

    spec: Spec
    instructions: str
    dialect: str
    text: str
    path: Path | None = None
    undefined: Undefined = "error"
    references: References = field(default_factory=References)
    seen: Mapping[str, Node] = field(default_factory=dict[str, "Node"], compare=False)
    notes: tuple[Note, ...] = field(default=(), compare=False)

    @classmethod
    def _read(
        cls, text: str, name: str, path: Path | None, references: References, dialect: str | None, undefined: Undefined
    ) -> Self:
        source = SourceText(text, name)
        parts = split(source)
        written = parts.fields or {}
        try:
            spoken = dialect_of(written, parts.body) if dialect is None else dialect_named(dialect)
        except TemplateError as error:
            raise PromptFileError(f"{name}:1:1: {error}") from error
        # A file of the first version is read without its connection, as by its own tools.
        looking = replace(references, connects_later=True) if spoken.name == "v1" else references
        seen = looking.resolve(written, source)
        translated = spoken.read(DialectFile(source, seen, parts.body, references))
        spec, body = read_spec(translated.fields, source), translated.body
        begin = written["instructions"].at if not body and "instructions" in written else parts.body_at
        whole = expand_includes(body or spec.instructions or "", spec.engine, references, source, begin)
        template = _parse_template(whole, spec.engine, source, begin, lenient=undefined == "empty")
        _check_defaults(spec.inputs, translated.fields.get("inputs"), source)
        made = cls(spec, whole.text, spoken.name, text, path, undefined, references, seen, translated.notes)
        # It was parsed to find its faults.
        vars(made)["template"] = template
        return made

    @property
    def name(self) -> str | None:
        """The name."""
        return self.spec.name

    @cached_property
    def template(self) -> Template:
        """Its template, parsed once."""
        return ENGINES[self.spec.engine](self.instructions, lenient=self.undefined == "empty")

    def to_dict(self) -> JsonObject:
        """Return the file in the canonical form of Prompty v2, with its template as ``instructions``."""
        return {**self.spec.to_dict(), "instructions": self.instructions}

    def __hash__(self) -> int:
        return hash(self.text)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle holds: nothing that was made of the rest."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({name_of(self)!r}, dialect={self.dialect!r})"


def name_of(file: LoadedPrompty) -> str:
    """Return the name that errors have for a file."""
    return str(file.path or file.name or "<string>")


def _parse_template(whole: Expanded, engine: str, source: SourceText, begin: int, *, lenient: bool) -> Template:
    """Return the template, parsed; an error in it has its place in the file."""
    parse = ENGINES[engine]
    try:
        return parse(whole.text, lenient=lenient)
    except TemplateError as error:
        its, at = whole.fault(error, parse)
        place = _place_of(its, source, begin) if at is None else place_in(source, begin, at)
        raise source.fault_at(place, f"{its}{_mustache_hint(str(its), engine)}") from error


def _mustache_hint(fault: str, engine: str) -> str:
    """Return what to do about a section of Mustache in a template of another syntax."""
    if engine == "mustache" or not re.search("unexpected char '[#^]'", fault):
        return ""
    return (
        "; {{#name}} begins a section of Mustache: write {% for %} or {% if %}, or write all of the template in "
        "Mustache and add the line 'template: {format: mustache}' to the front matter"
    )


def _place_of(error: TemplateError, source: SourceText, begin: int) -> int:
    """Return the place in a file of the line of its template that an error names."""
    named = _LINE.match(str(error))
    for line, found in enumerate(_BREAK.finditer(source.text, begin), 2):
        if named and line == int(named[1]):
            return found.end()
    return begin


def _check_defaults(inputs: tuple[Property, ...], written: Node | None, source: SourceText) -> None:
    """Refuse a default that is not of its input's kind."""
    for place, each in enumerate(inputs):
        if each.default is not None:
            try:
                checked_inputs({each.name: each.default}, (each,))
            except SlotError as error:
                items = [] if written is None else written.parts
                at = items[place].key_at if place < len(items) else 0
                raise source.fault_at(at, f"a default is wrong: {error}") from error


def content_hash(dialect: str, content: JsonObject) -> str:
    """Return the hash of a prompt: SHA-256 in hexadecimal, over its canonical JSON.

    Args:
        dialect: Its dialect: the same text has another meaning in another one.
        content: Its front matter, with what it refers to, and its template, with what it includes. The connection of
            the model (``model.connection``) is left out: it differs from place to place, and may hold keys.
    """
    model = content.get("model")
    if isinstance(model, dict):
        content = {**content, "model": {name: value for name, value in model.items() if name != "connection"}}
    hashed = shown([dialect, content])
    return sha256(json.dumps(hashed, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
