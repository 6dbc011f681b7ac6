"""Loaded prompt files, with references resolved and includes inserted."""

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
"""The handling of undefined template variables: raise an error, or render empty text."""

_LINE = re.compile(r"\w+, line ([0-9]+): ")
_BREAK = re.compile(r"\r\n|[\r\n]")


@dataclass(frozen=True, repr=False)
class LoadedPrompty:
    """A loaded prompt file.

    Args:
        spec: The parsed front matter.
        instructions: The template, with included files inserted.
        dialect: The name of the file's dialect.
        text: The file's text as written.
        path: The file's path, or None if the prompt was loaded from text.
        undefined: ``error`` to raise for undefined template variables, or ``empty`` to render them as empty text.
        references: The values and directories used to resolve references.
        seen: The front matter's fields, with all references resolved.
        notes: Notes on fields that were translated from another dialect or dropped, with line and column.
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
            found = dialect_of(written, parts.body) if dialect is None else dialect_named(dialect)
        except TemplateError as error:
            raise PromptFileError(f"{name}:1:1: {error}") from error
        # Like the v1 runtime, load a v1 file even if the environment variables for its connection aren't set.
        resolver = replace(references, connects_later=True) if found.name == "v1" else references
        seen = resolver.resolve(written, source)
        translated = found.read(DialectFile(source, seen, parts.body, references))
        spec, body = read_spec(translated.fields, source), translated.body
        begin = written["instructions"].at if not body and "instructions" in written else parts.body_at
        whole = expand_includes(body or spec.instructions or "", spec.engine, references, source, begin)
        template = _parse_template(whole, spec.engine, source, begin, lenient=undefined == "empty")
        _check_defaults(spec.inputs, translated.fields.get("inputs"), source)
        made = cls(spec, whole.text, found.name, text, path, undefined, references, seen, translated.notes)
        # Set the cached property `template`, so that the template isn't parsed again.
        vars(made)["template"] = template
        return made

    @property
    def name(self) -> str | None:
        """The prompt's name."""
        return self.spec.name

    @cached_property
    def template(self) -> Template:
        """The parsed template."""
        return ENGINES[self.spec.engine](self.instructions, lenient=self.undefined == "empty")

    def to_dict(self) -> JsonObject:
        """Return the file in Prompty v2's canonical format, with the template as ``instructions``."""
        return {**self.spec.to_dict(), "instructions": self.instructions}

    def __hash__(self) -> int:
        return hash(self.text)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields to pickle, without cached values."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({name_of(self)!r}, dialect={self.dialect!r})"


def name_of(file: LoadedPrompty) -> str:
    """Return the name that identifies a file in error messages."""
    return str(file.path or file.name or "<string>")


def _parse_template(whole: Expanded, engine: str, source: SourceText, begin: int, *, lenient: bool) -> Template:
    """Parse the template, and add the position in the file to errors."""
    parse = ENGINES[engine]
    try:
        return parse(whole.text, lenient=lenient)
    except TemplateError as error:
        its, at = whole.fault(error, parse)
        place = _place_of(its, source, begin) if at is None else place_in(source, begin, at)
        raise source.fault_at(place, f"{its}{_mustache_hint(str(its))}") from error


def _mustache_hint(fault: str) -> str:
    """Return advice if an error is caused by a Mustache section in a Jinja template, or else ``""``."""
    if not re.search("unexpected char '[#^]'", fault):
        return ""
    return (
        "; {{#name}} is a Mustache section: write {% for %} or {% if %}, or write the whole template in Mustache and "
        "add 'template: {format: mustache}' to the front matter"
    )


def _place_of(error: TemplateError, source: SourceText, begin: int) -> int:
    """Return the start of the template line that an error reports, as an index in the file."""
    named = _LINE.match(str(error))
    for line, found in enumerate(_BREAK.finditer(source.text, begin), 2):
        if named and line == int(named[1]):
            return found.end()
    return begin


def _check_defaults(inputs: tuple[Property, ...], written: Node | None, source: SourceText) -> None:
    """Raise an error if a default doesn't match its input's kind."""
    for each, node in zip(inputs, written.parts if written else (), strict=True):
        if each.default is not None:
            try:
                checked_inputs({each.name: each.default}, (each,))
            except SlotError as error:
                raise source.fault_at(node.key_at, f"invalid default: {error}") from error


def content_hash(dialect: str, content: JsonObject) -> str:
    """Return the SHA-256 hash of a prompt's canonical JSON, in hexadecimal.

    Args:
        dialect: The dialect, which is hashed because it can change the meaning of the text.
        content: The front matter with references resolved, and the template with includes inserted.
            ``model.connection`` is ignored, because it differs between environments and may contain keys.
    """
    model = content.get("model")
    if isinstance(model, dict):
        content = {**content, "model": {name: value for name, value in model.items() if name != "connection"}}
    hashed = shown([dialect, content])
    return sha256(json.dumps(hashed, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
