"""The forms that prompt files are written in; here Prompty v2, agent definitions, and dotprompt with Handlebars."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, cast

from lazyprompt.errors import FormatError, did_you_mean
from lazyprompt.files.dialects.agentschema import AGENT_ROLES
from lazyprompt.files.properties import RICH, schema_of
from lazyprompt.files.roles import ROLES, Scanned, role_lines
from lazyprompt.files.spec import OTHERS, Note, Spec, ToolSpec, Translated
from lazyprompt.files.writing.conversion import MEDIUM, Converted, Original, medium_in
from lazyprompt.files.writing.langchain import to_langchain
from lazyprompt.files.writing.portable import Names, Part, Shown, Syntax, Tag, parsed_sections, portable, runs
from lazyprompt.files.writing.rewriting import written
from lazyprompt.files.yaml_nodes import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.files.prompt_source import PromptSource

_DOTPROMPT_ROLES: Final = {"": "system", "system": "system", "user": "user", "assistant": "model"}
_HELPERS: Final = ("history", "media", "role", "section", "json", "if", "unless", "each", "with", "else", "this", "log")
_LOOP: Final = {"index0": "@index", "first": "@first", "last": "@last"}
_MODEL: Final = ("id", "provider", "options")
_BLANK_LINE: Final = re.compile(r"[^\S\n]*\n")
# A brace before two others, a backslash before them, and a brace before a tag.
_UNSAYABLE: Final = re.compile(r"[{\\]\{\{|\{\0")
_TRIMMED: Final = re.compile(r"\S(?:.*\S)?", re.DOTALL)
_RENAMED: Final = {"inputs": "inputSchema", "outputs": "outputSchema"}


def converted(prompty: PromptSource, to: str) -> Converted:
    """Write a prompt file in another form; see :func:`lazyprompt.convert`.

    Raises:
        FormatError: As of :func:`lazyprompt.convert`.
    """
    if to not in TARGETS:
        raise FormatError(f"there is no form {to!r}{did_you_mean(to, TARGETS)}; there are {', '.join(TARGETS)}")
    if to == prompty.dialect:
        return Converted(prompty.text)
    return TARGETS[to](Original(prompty))


def _to_v2(original: Original) -> Converted:
    made = original.as_v2
    # Blank lines are left where the tools before the text were.
    body = made.body if made.body == original.parts.body else made.body.lstrip("\n")
    return _rewritten(original, _values(made), body, made.notes, "Prompty v2")


def _to_agentschema(original: Original) -> Converted:
    given, dialect = original.in_v2, original.prompty.dialect
    body = given.body
    notes = [*given.notes]
    # A tool result is a turn in the first version too.
    known = (*ROLES, "function") if dialect == "v1" else ROLES
    for match in role_lines(Scanned([body]), AGENT_ROLES):
        if match["role"].lower() not in known:
            what = f"{match[0].strip()!r} is text in this file, and would begin a section of an agent definition"
            raise original.fault(body, match.start(), f"{what}; write more on the line")
    if dialect == "v1":
        # A picture of the first version may have any words in its brackets.
        body = MEDIUM.sub(lambda match: f"![image]({match[2]})" if medium_in(match, "v1") else match[0], body)
    else:
        notes += [
            Note(*original.place(body, match.start()), f"{match[0]} was text, and is shown there")
            for match in MEDIUM.finditer(body)
            if medium_in(match, "agentschema")
        ]
    fields = _values(given)
    renamed: dict[str, Json] = {
        _RENAMED.get(name, name): {"properties": fields[name]} if name in _RENAMED else fields[name] for name in fields
    }
    return _rewritten(original, renamed, body, notes, "an agent definition")


def _values(given: Translated) -> dict[str, Json]:
    return {name: plain(node) for name, node in given.fields.items()}


def _rewritten(original: Original, fields: dict[str, Json], body: str, notes: Iterable[Note], form: str) -> Converted:
    found = [str(note) for note in notes]
    if original.prompty.dialect == "dotprompt":
        found.append(f"the template is Handlebars still, which {form} knows only here")
    return Converted(original.rewritten(fields, body), tuple(found))


def _to_dotprompt(original: Original) -> Converted:
    spec, notes = original.in_jinja("as Handlebars")
    fields: dict[str, Json] = {"name": spec.name, "description": spec.description}
    fields |= _model(spec, notes)
    fields["input"] = _input(spec, notes)
    fields["output"] = {"format": "json", "schema": schema_of(spec.outputs)} if spec.outputs else None
    fields["tools"] = [*_tools(spec.tools, notes)]
    metadata: JsonObject = {"displayName": spec.display_name} if spec.display_name else {}
    fields["metadata"] = {**metadata, **spec.metadata}
    front = written({name: value for name, value in fields.items() if value})
    if "${" in front:
        notes.append("references (${env:...}) stay as they are written; dotprompt itself does not look them up")
    body = ""
    for part in _body(original, notes):
        # A backslash before a tag would make it text.
        body += f"\\{part}" if body.endswith("\\") and part.startswith("{{") else part
    return Converted(f"---\n{front}---\n{body}\n", tuple(notes))


def _model(spec: Spec, notes: list[str]) -> dict[str, Json]:
    provider, name, options = (spec.model.get(field) for field in ("provider", "id", "options"))
    made: dict[str, Json] = {"model": f"{provider}/{name}" if provider and name else name}
    if provider and not name:
        notes.append(f"model.provider {provider!r} is left out: dotprompt names it with the model")
    notes += [f"model.{part} is left out: dotprompt has no such field" for part in spec.model if part not in _MODEL]
    if isinstance(options, dict):
        others = options.get(OTHERS)
        config = {key: value for key, value in options.items() if key != OTHERS}
        made["config"] = {**config, **(others if isinstance(others, dict) else {})}
    return made


def _input(spec: Spec, notes: list[str]) -> JsonObject:
    """Return the schema of the inputs, and their defaults."""
    declared = tuple(each for each in spec.inputs if each.kind != "thread")
    for each in spec.inputs:
        found: list[str] = []
        if each.kind == "thread":
            found.append("a thread is the history, {{history}}, which has no name in dotprompt")
            if each.default is not None:
                found.append("the default is left out: the history has none in dotprompt")
        elif each.kind in RICH:
            found.append(f"of the kind {each.kind}, is the text of an address in dotprompt")
        if each.example is not None:
            found.append("the example is left out: dotprompt has no such field")
        notes += [f"input {each.name}: {note}" for note in found]
    schema = schema_of(declared)
    properties = cast("dict[str, JsonObject]", schema["properties"])
    for each in declared:
        if each.kind == "array" and each.items is None:  # of anything
            properties[each.name].pop("items", None)
    defaults: JsonObject = {each.name: each.default for each in declared if each.default is not None}
    made: JsonObject = {"schema": schema if declared else None, "default": defaults}
    return {name: value for name, value in made.items() if value}


def _tools(tools: Sequence[ToolSpec], notes: list[str]) -> Iterator[JsonObject]:
    for tool in tools:
        if tool.kind != "function":
            notes.append(f"tool {tool.name}: of the kind {tool.kind}, is left out: tools of dotprompt are functions")
            continue
        lost = [part for part in ("strict", "bindings") if getattr(tool, part)] + [*tool.fields]
        notes += [f"tool {tool.name}: {part} is left out: dotprompt has no such field" for part in lost]
        function = cast("JsonObject", tool.function()["function"])
        schema = function.get("parameters")
        yield {"name": tool.name, "description": tool.description or "", "inputSchema": schema}


def _path(path: Names, scope: Names) -> str | None:
    """Render a path in Handlebars, as ``this.name`` in a loop and ``../name`` outside of it; None if it has none."""
    first, *rest = path
    if first == "loop" and scope:
        return _LOOP.get(rest[0]) if len(rest) == 1 else None
    if scope and first == scope[-1]:
        return ".".join(("this", *rest))
    # Where an item equals the one around it, Handlebars counts one loop less: no ".." is sure within two.
    if len(scope) > 1 or first in scope:
        return None
    if scope:
        return f"../{'.'.join(path)}"
    return ".".join(("this", *path) if first in _HELPERS else path)


def _escape(text: str, *, ends: bool = False) -> str:
    """Escape own text, so that no brace begins a tag.

    Args:
        text: The text.
        ends: True if no tag stands behind it.

    Raises:
        FormatError: Handlebars has no way to say it.
    """
    if found := _UNSAYABLE.search(text if ends else f"{text}\0"):
        raise FormatError(
            f"the text {text[max(found.start() - 10, 0) : found.end()]!r} in the template: Handlebars takes this brace "
            "for one of its own; put a blank beside it"
        )
    made = text.replace("{{", "\\{{")
    return made if ends or not made.endswith("\\") else f"{made}\\"


_HANDLEBARS: Final = Syntax(
    "Handlebars",
    _path,
    _escape,
    "{{$path}}",
    ("{{#if $path}}", "{{#unless $path}}"),
    "{{#each $path}}",
    "{{else}}",
    ("{{/if}}", "{{/unless}}", "{{/each}}"),
)


def _body(original: Original, notes: list[str]) -> Iterator[str]:
    """Render the template in Handlebars."""
    pieces = portable(original.as_v2.body, _HANDLEBARS)
    kinds = {each.name: each.kind for each in original.spec.inputs}
    threads = [name for name, kind in kinds.items() if kind == "thread"]
    between, was_tight = "", False
    named: set[str] = set()
    for section in parsed_sections(pieces, ROLES, "dotprompt"):
        where = f"line {section.line} of the template"
        if section.role not in _DOTPROMPT_ROLES:
            what = f"{section.role!r}: dotprompt has no such role; it has system, user and model"
            raise FormatError(f"{where}: {what}")
        notes += [
            f"{where}: {section.role}[{key}=...] is left out: dotprompt has no attributes" for key in section.attributes
        ]
        yield "".join(tag.text for tag in section.lead)
        role = _DOTPROMPT_ROLES[section.role]
        for run, thread in runs(section.pieces, threads):
            opens = sum(
                each.text.startswith("{{#") - each.text.startswith("{{/") for each in run if isinstance(each, Tag)
            )
            if thread and opens:
                raise FormatError(f"line {thread.line} of the template: the history stands in no block in dotprompt")
            if not thread and all(isinstance(piece, str) and not piece.strip() for piece in run):
                notes.append(f"{where}: an empty turn of {role} is none in dotprompt")
            if run or not thread:
                text = "".join(_rendered(run, kinds))
                tight = not _TRIMMED.fullmatch("".join(part if isinstance(part, str) else "x" for part in run))
                # White space that is the text's own must not go with that of the mark behind it.
                opening = f'{{{{role "{role}"' if tight or was_tight else f'{between}{{{{~role "{role}"'
                yield f"{opening}}}}}{text}" if tight else f"{opening}~}}}}\n{text}"
                was_tight, between = tight, "" if tight else "\n"
            if thread:
                named.add(thread.name)
                yield "{{history}}"
    if len(named) > 1:
        raise FormatError(f"the threads {', '.join(sorted(named))} would all be the history: dotprompt has one")
    if threads and not named:
        yield "{{history}}"


def _rendered(run: Sequence[Part], kinds: Mapping[str, str]) -> Iterator[str]:
    """Render text and values in Handlebars."""
    for before, piece, behind in zip(("", *run), run, (*run[1:], ""), strict=False):
        if isinstance(piece, str):
            comment = "{{!}}" if not isinstance(before, str) and piece.startswith("}") else ""
            yield comment + _escape(piece, ends=isinstance(behind, str))
        elif isinstance(piece, Shown):
            yield f"{{{{media url={piece.name}}}}}" if kinds.get(piece.name) in RICH else piece.text
        else:
            # A tag alone on its line would take the line with it; beside another it does not.
            alone = piece.ends and isinstance(before, str) and not before.rpartition("\n")[2].strip()
            ends_line = isinstance(behind, str) and _BLANK_LINE.match(behind)
            yield f"{'{{!}}' if alone else ''}{piece.text}{'{{!}}' if ends_line else ''}"


TARGETS: Final[Mapping[str, Callable[[Original], Converted]]] = {
    "v2": _to_v2,
    "agentschema": _to_agentschema,
    "dotprompt": _to_dotprompt,
    "langchain-json": to_langchain,
}
"""The forms, by their names."""
