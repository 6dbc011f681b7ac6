"""A prompt file read in its dialect, with all that it refers to and includes; a fault is one error with its place.

Dialects differ in their roles, and the turns of their sections. Fields that one names otherwise get the names of
Prompty v2 when a file is read; all else is the same for all.
Agent definitions have tools before the text, calls and results as turns, and media in Markdown. Source: the prompt
section of the specification of agent definitions (AgentSchema).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, fields
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Self, TypeAlias, cast

from lazyprompt.errors import PromptFileError, SlotError, TemplateError, did_you_mean
from lazyprompt.files.dotprompt import SUFFIX, check_marks, dotprompt_fields, has_marks, marked_sections
from lazyprompt.files.includes import Expanded, expanded, place_in
from lazyprompt.files.prompty_v1 import V1_ROLES, v1_fields, v1_steps
from lazyprompt.files.properties import MEDIA, Property, Thread, checked_inputs
from lazyprompt.files.references import References
from lazyprompt.files.roles import ROLES, Section, attributes_in, sections
from lazyprompt.files.spec import ENGINES, Note, Reading, Spec, Template, Translated, read_spec
from lazyprompt.files.turns import Called, Step, TextItem, Turn, result_turn, steps_of, steps_with_media, untyped
from lazyprompt.files.yaml_nodes import Node, Reader, Source, plain, split
from lazyprompt.templates.handlebars import HandlebarsTemplate
from lazyprompt.templates.slots import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from lazyprompt._base.json import Json, JsonObject


def _read_yaml(parts: Sequence[str], name: str) -> Json:
    """Read YAML in which a value is text in its place: it adds no key, no item and no line."""
    own = "".join(part for part in parts if not isinstance(part, Value))
    # A word that is not in the text stands for each value, and is text wherever it stands.
    word = "slot"
    while word in own:
        word += "s"
    values = [part for part in parts if isinstance(part, Value)]
    names = (f"{word}{number}x" for number in range(len(values)))
    text = "".join(next(names) if isinstance(part, Value) else part for part in parts)
    slot = re.compile(rf"{word}(\d+)x")

    def filled(value: Json) -> Json:
        if isinstance(value, str):
            return slot.sub(lambda match: values[int(match[1])], value)
        if isinstance(value, list):
            return [*map(filled, value)]
        if not isinstance(value, dict):
            return value
        if any(map(slot.search, value)):
            raise PromptFileError(f"{name}: a value stands in the place of a key; keys are the template's own")
        return {key: filled(item) for key, item in value.items()}

    return filled(plain(Reader(Source(text, name)).read()))


AGENT_ROLES: Final = (*ROLES, "function", "tool", "tools", "thread")
"""The names that begin a section."""


def agent_steps(sections: Sequence[Section]) -> Iterator[Step]:
    """Find the turns of an agent definition; its tools are not among them.

    Args:
        sections: The sections of the filled template.

    Raises:
        PromptFileError: A call is no YAML.
    """
    for section in sections:
        if section.role == "tools":
            continue
        if section.role == "thread":
            yield from _threads(section)
        elif section.role in ("tool", "function"):
            yield result_turn(section)
        elif section.attributes.get("type") == "tool_call":
            yield Turn(section.role, tuple(_calls(section)), untyped(section))
        else:
            yield from steps_with_media(section, lambda label, _: medium_named(label.strip()))


def agent_tools(sections: Sequence[Section]) -> list[JsonObject]:
    """Return the tools that an agent definition names before its text.

    Args:
        sections: The sections of the filled template.

    Raises:
        PromptFileError: They are no list of mappings.
    """
    found: list[JsonObject] = []
    for section in sections:
        if section.role != "tools":
            continue
        read = _read_yaml(section.parts, "tools")
        tools = [] if read is None else read
        if not isinstance(tools, list) or not all(isinstance(each, dict) for each in tools):
            raise PromptFileError("tools: this section is a list of tools, each of them a mapping")
        found += cast("list[JsonObject]", tools)
    return found


def _threads(section: Section) -> Iterator[Thread]:
    """Find the threads of a ``thread`` section; one without a slot holds the place of the history.

    Text in it stands for the messages: it is sent nowhere, and the report tells of it.
    """
    steps = [*steps_of(section)]
    items = (item for step in steps if isinstance(step, Turn) for item in step.items)
    texts = (f"the text {item.text!r} of a thread section" for item in items if isinstance(item, TextItem))
    left_out = (*(f"the attribute {name!r}" for name in section.attributes), *texts)
    threads = [step for step in steps if isinstance(step, Thread)]
    # The slot of a thread that is not given is a value with nothing in it.
    if not threads and any(isinstance(part, Value) for part in section.parts):
        return
    for thread in threads or [Thread("", ())]:
        yield Thread(thread.name, thread.messages, left_out)
        left_out = ()


def _calls(section: Section) -> Iterator[Called]:
    """The calls that a turn makes: one mapping, or a list of them."""
    read = _read_yaml(section.parts, f'{section.role}[type="tool_call"]')
    for call in read if isinstance(read, list) else [read]:
        if not isinstance(call, dict):
            raise PromptFileError(f"a tool_call is a mapping: id, type, function; not {call!r}")
        yield Called(call)


def medium_named(label: str) -> tuple[str, dict[str, Json]] | None:
    """Return the kind of the medium that stands behind some words in brackets, and what else they say of it.

    Args:
        label: The words: ``image``, or ``type="image", quality="high"``.

    Returns:
        The kind and the attributes; None where they name no medium, as in any other Markdown.
    """
    attributes: dict[str, Json] = {} if label in MEDIA else attributes_in(label)
    kind = label if label in MEDIA else attributes.pop("type", None)
    return (kind, attributes) if isinstance(kind, str) and kind in MEDIA else None


def _steps(sections: Sequence[Section]) -> Iterator[Step]:
    return (step for section in sections for step in steps_of(section))


class Dialect(NamedTuple):
    """A dialect.

    Attributes:
        name: Its name.
        roles: The names that begin a section.
        steps: Finds the turns of sections.
        tools: Finds the tools among the sections.
        translate: Translates a file to Prompty v2.
    """

    name: str
    roles: Sequence[str] = ROLES
    steps: Callable[[Sequence[Section]], Iterator[Step]] = _steps
    tools: Callable[[Sequence[Section]], list[JsonObject]] = lambda _: []
    translate: Callable[[Reading], Translated] = lambda reading: Translated(reading.fields, reading.body)

    def __reduce__(self) -> tuple[Callable[[str], Dialect], tuple[str]]:
        return dialect_named, (self.name,)

    def sections(self, parts: Sequence[str]) -> list[Section]:
        """Take a filled template apart: by its marks, where Handlebars left any, else by the lines that name a role.

        Args:
            parts: The template's own text, and values.

        Raises:
            TemplateError: A mark names a role that there is not.
            SlotError: A value stands in the place of a role, and is none.
        """
        return marked_sections(parts) if not self.roles or has_marks(parts) else sections(parts, self.roles)


def _agent_fields(reading: Reading) -> Translated:
    """Translate ``inputSchema.properties`` to inputs, and likewise the outputs."""
    made = dict(reading.fields)
    for old, new in (("inputSchema", "inputs"), ("outputSchema", "outputs")):
        if old in made and (properties := made.pop(old).fields.get("properties")):
            made.setdefault(new, properties)
    return Translated(made, reading.body)


DIALECTS: Final[Mapping[str, Dialect]] = {
    each.name: each
    for each in (
        Dialect("v2"),
        Dialect("agentschema", AGENT_ROLES, agent_steps, agent_tools, _agent_fields),
        Dialect("v1", V1_ROLES, v1_steps, translate=v1_fields),
        Dialect("dotprompt", (), translate=dotprompt_fields),
    )
}
"""The dialects by their names."""

_OF_AGENTS = re.compile(
    r"^[^\S\n]*+(?:(?:tool|function|tools|thread)(?:\[[^\]\n]*+\])?|assistant\[[^\]\n]*type\s*=\s*\"?tool_call\"?[^\]\n]*\])"
    r"[^\S\n]*+:[^\S\n]*+$|!\[type\s*+=\s*+\"(?:image|file|audio)\"[^\]\n]*+\]\(",
    re.MULTILINE,
)

_OF_HANDLEBARS = re.compile(r"\{\{~?(?:role\s++[\"']|media\s++url\s*+=|#(?:if|each|unless|with)\s)")
_OF_V1_MODEL = {"api", "configuration", "parameters"}
_V2_ONLY = frozenset(("inputs", "outputs", "template"))


def dialect_named(name: str) -> Dialect:
    """Return the dialect of a name.

    Raises:
        TemplateError: There is none.
    """
    if name not in DIALECTS:
        raise TemplateError(
            f"there is no dialect {name!r}{did_you_mean(name, DIALECTS)}; there are {', '.join(DIALECTS)}"
        )
    return DIALECTS[name]


def dialect_of(fields: Mapping[str, Node], body: str, name: str = "") -> Dialect:
    """Return the dialect of a file, by the fields and marks that only that one has.

    Args:
        fields: Its front matter.
        body: Its template.
        name: The name of the file.
    """
    if name.lower().endswith(SUFFIX):
        return DIALECTS["dotprompt"]
    return next((DIALECTS[each] for each, has_signs in _SIGNS if has_signs(fields, body)), DIALECTS["v2"])


def _is_dotprompt(fields: Mapping[str, Node], body: str) -> bool:
    """Return True if a file has schemas in ``input`` or ``output``, or Handlebars with no name: only dotprompt does."""
    if not _V2_ONLY.isdisjoint(fields):
        return False
    schemas = _keys(fields.get("input")) & {"schema", "default"} or _keys(fields.get("output")) & {"schema", "format"}
    # Where Jinja is at work, the rest may be text about Handlebars.
    return bool(schemas) or ("{%" not in body and _OF_HANDLEBARS.search(body) is not None)


def _is_v1(fields: Mapping[str, Node], _: str) -> bool:
    """Return True if a file has a field of the first version, or a property with a ``type`` and no ``kind``."""
    properties = [item for part in ("inputs", "outputs") if part in fields for item in fields[part].parts]
    return (
        not {"sample", "base"}.isdisjoint(fields)
        or not _OF_V1_MODEL.isdisjoint(_keys(fields.get("model")))
        or any("type" in item.fields and "kind" not in item.fields for item in properties)
    )


def _keys(node: Node | None) -> set[str]:
    return set() if node is None else set(node.fields)


# In this order: a section of the first version may have the name that one of agent definitions has.
_SIGNS: tuple[tuple[str, Callable[[Mapping[str, Node], str], bool]], ...] = (
    ("agentschema", lambda fields, _: "inputSchema" in fields or "outputSchema" in fields),
    ("dotprompt", _is_dotprompt),
    ("v1", _is_v1),
    ("agentschema", lambda _, body: _OF_AGENTS.search(body) is not None),
)


Undefined: TypeAlias = Literal["error", "empty"]
"""The value of a variable that is nowhere."""

_LINE = re.compile(r"\w+, line ([0-9]+): ")
_BREAK = re.compile(r"\r\n|[\r\n]")


@dataclass(frozen=True, repr=False)
class PromptSource:
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
        source = Source(text, name)
        parts = split(source)
        written = parts.fields or {}
        try:
            spoken = dialect_of(written, parts.body, name) if dialect is None else dialect_named(dialect)
        except TemplateError as error:
            raise PromptFileError(f"{name}:1:1: {error}") from error
        seen = references.resolved(written, source)
        translated = spoken.translate(Reading(source, seen, parts.body, references))
        spec, body = read_spec(translated.fields, source), translated.body
        begin = written["instructions"].at if not body and "instructions" in written else parts.body_at
        whole = expanded(body or spec.instructions or "", spec.engine, references, source, begin)
        template = _parsed(whole, spec.engine, source, begin, lenient=undefined == "empty")
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


def name_of(file: PromptSource) -> str:
    """Return the name that errors have for a file."""
    return str(file.path or file.name or "<string>")


def _parsed(whole: Expanded, engine: str, source: Source, begin: int, *, lenient: bool) -> Template:
    """Return the template, parsed; an error in it has its place in the file."""
    parse = ENGINES[engine]
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
    """Return the place in a file of the line of its template that an error names."""
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
    """Return the hash of a prompt: SHA-256 in hexadecimal, over its canonical JSON.

    Args:
        dialect: Its dialect: the same text has another meaning in another one.
        content: Its front matter, with what it refers to, and its template, with what it includes. The connection of
            the model (``model.connection``) is left out: it differs from place to place, and may hold keys.
    """
    model = content.get("model")
    if isinstance(model, dict):
        content = {**content, "model": {name: value for name, value in model.items() if name != "connection"}}
    hashed: Json = [dialect, content]
    return sha256(json.dumps(hashed, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
