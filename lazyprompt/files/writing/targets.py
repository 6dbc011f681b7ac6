"""The forms that prompt files are written in; here Prompty v2, agent definitions, and dotprompt with Handlebars."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, cast

from lazyprompt.errors import FormatError, did_you_mean
from lazyprompt.files.dialects.agent_schema import AGENT_ROLES
from lazyprompt.files.dialects.translation import Note
from lazyprompt.files.properties import RICH, schema_of
from lazyprompt.files.roles import ROLES, Scanned, role_lines
from lazyprompt.files.writing.conversion import MEDIUM, Converted, Original, medium_in, told
from lazyprompt.files.writing.langchain import to_langchain
from lazyprompt.files.writing.portable import Shown, Syntax, Tag, portable, runs, told_sections
from lazyprompt.files.writing.rewriting import written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.files.prompt_source import PromptSource
    from lazyprompt.files.spec import Spec, ToolSpec
    from lazyprompt.files.writing.portable import Names, Part


_DOTPROMPT_ROLES: Final = {"": "system", "system": "system", "user": "user", "assistant": "model"}
_HELPERS: Final = ("history", "media", "role", "section", "json", "if", "unless", "each", "with", "else", "this", "log")
_LOOP: Final = {"index0": "@index", "first": "@first", "last": "@last"}
_OTHERS: Final = "additionalProperties"
_BLANK_LINE: Final = re.compile(r"[^\S\n]*\n")
# A brace before two others, a backslash before them, and a brace before a tag.
_UNSAYABLE: Final = re.compile(r"[{\\]\{\{|\{\0")
_TRIMMED: Final = re.compile(r"\S(?:.*\S)?", re.DOTALL)


def _path(path: Names, scope: Names) -> str | None:
    """A path in Handlebars; None where there is none."""
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


def _shown(path: Names, scope: Names) -> str | None:
    """``{{name}}``, ``{{this.name}}`` in a loop, ``{{../name}}`` for what is outside of it."""
    found = _path(path, scope)
    return f"{{{{{found}}}}}" if found else None


def _block(helper: str, path: Names, scope: Names) -> str | None:
    found = _path(path, scope)
    return f"{{{{#{helper} {found}}}}}" if found else None


_SYNTAX: Final = Syntax(
    "Handlebars",
    _shown,
    # Roles are no lines here.
    lambda text: _escaped(text, ends=False),
    lambda path, scope, negated: _block("unless" if negated else "if", path, scope),
    lambda _, path, scope: _block("each", path, scope),
    "{{else}}",
    ("{{/if}}", "{{/unless}}", "{{/each}}"),
)


def to_dotprompt(original: Original) -> Converted:
    """A prompt file for dotprompt.

    Args:
        original: The file.

    Raises:
        FormatError: The template has what Handlebars has not; the message names the line.
    """
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
    given = spec.model
    provider, name = given.get("provider"), given.get("id")
    made: dict[str, Json] = {"model": f"{provider}/{name}" if provider and name else name}
    if provider and not name:
        notes.append(f"model.provider {provider!r} is left out: dotprompt names it with the model")
    notes += [f"model.{part} is left out: dotprompt has no such field" for part in given if part not in _MODEL]
    options = given.get("options")
    if isinstance(options, dict):
        others = options.get(_OTHERS)
        config = {key: value for key, value in options.items() if key != _OTHERS}
        made["config"] = {**config, **(others if isinstance(others, dict) else {})}
    return made


_MODEL: Final = ("id", "provider", "options")


def _input(spec: Spec, notes: list[str]) -> JsonObject:
    """The schema of the inputs, and their defaults."""
    declared = tuple(each for each in spec.inputs if each.kind != "thread")
    for each in spec.inputs:
        if each.kind == "thread":
            notes.append(f"input {each.name}: a thread is the history, {{{{history}}}}, which has no name in dotprompt")
            if each.default is not None:
                notes.append(f"input {each.name}: the default is left out: the history has none in dotprompt")
        elif each.kind in RICH:
            notes.append(f"input {each.name}: of the kind {each.kind}, is the text of an address in dotprompt")
        if each.example is not None:
            notes.append(f"input {each.name}: the example is left out: dotprompt has no such field")
    schema = schema_of(declared)
    properties = cast("dict[str, JsonObject]", schema["properties"])
    for each in declared:
        if each.kind == "array" and each.items is None:  # of anything
            properties[each.name].pop("items", None)
    made: JsonObject = {"schema": schema} if declared else {}
    defaults: JsonObject = {each.name: each.default for each in declared if each.default is not None}
    return {**made, "default": defaults} if defaults else made


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


def _body(original: Original, notes: list[str]) -> Iterator[str]:
    """The template in Handlebars."""
    pieces = portable(original.as_v2.body, _SYNTAX)
    kinds = {each.name: each.kind for each in original.spec.inputs}
    threads = [name for name, kind in kinds.items() if kind == "thread"]
    between, was_tight = "", False
    named: set[str] = set()
    for section in told_sections(pieces, ROLES, "dotprompt"):
        if section.role not in _DOTPROMPT_ROLES:
            raise FormatError(
                f"line {section.line} of the template: {section.role!r}: dotprompt has no such role; it has system, "
                "user and model"
            )
        notes += [
            f"line {section.line} of the template: {section.role}[{key}=...] is left out: dotprompt has no attributes"
            for key in section.attributes
        ]
        yield "".join(tag.text for tag in section.lead)
        role = _DOTPROMPT_ROLES[section.role]
        for run, thread in runs(section.pieces, threads):
            if thread and _is_within(run):
                raise FormatError(f"line {thread.line} of the template: the history stands in no block in dotprompt")
            if not thread and all(isinstance(piece, str) and not piece.strip() for piece in run):
                notes.append(f"line {section.line} of the template: an empty turn of {role} is none in dotprompt")
            if run or not thread:
                text = "".join(_told(run, kinds))
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


def _is_within(run: Sequence[Part]) -> bool:
    """Whether a block is open behind some pieces."""
    tags = [piece.text for piece in run if isinstance(piece, Tag)]
    return sum(text.startswith("{{#") - text.startswith("{{/") for text in tags) != 0


def _told(run: Sequence[Part], kinds: Mapping[str, str]) -> Iterator[str]:
    """A run of text and values in Handlebars."""
    for index, piece in enumerate(run):
        behind = run[index + 1] if index + 1 < len(run) else ""
        before = run[index - 1] if index else ""
        if isinstance(piece, str):
            after = not isinstance(before, str)
            yield ("{{!}}" if after and piece.startswith("}") else "") + _escaped(piece, ends=isinstance(behind, str))
        elif isinstance(piece, Shown) and kinds.get(piece.name) in RICH:
            yield f"{{{{media url={piece.name}}}}}"
        elif isinstance(piece, Tag):
            # A tag alone on its line would take the line with it; beside another it does not.
            yield ("{{!}}" if piece.ends and _ends_line(before) else "") + piece.text
            yield "{{!}}" if isinstance(behind, str) and _BLANK_LINE.match(behind) else ""
        else:
            yield piece.text


def _ends_line(piece: Part) -> bool:
    return isinstance(piece, str) and not piece.rpartition("\n")[2].strip()


def _escaped(text: str, *, ends: bool) -> str:
    """Own text, in which no brace begins a tag.

    Args:
        text: The text.
        ends: Whether no tag stands behind it.

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


_RENAMED: Final = {"inputs": "inputSchema", "outputs": "outputSchema"}
_HANDLEBARS: Final = "the template is Handlebars still, which {} knows only here"


def to_v2(original: Original) -> Converted:
    """A prompt file as Prompty v2.

    Args:
        original: The file.

    Raises:
        FormatError: It has turns of tools, which Prompty v2 has not; the message has the line.
    """
    made = original.as_v2
    # Blank lines are left where the tools before the text were.
    body = made.body if made.body == original.parts.body else made.body.lstrip("\n")
    return _converted(original, told(made.fields), body, made.notes, "Prompty v2")


def to_agentschema(original: Original) -> Converted:
    """A prompt file in the dialect of agent definitions.

    Args:
        original: The file.

    Raises:
        FormatError: A line that is text in it names a role there; the message has the line.
    """
    given, dialect = original.in_v2, original.prompty.dialect
    body = given.body
    notes = list(given.notes)
    # What the tool gave back is a turn in the first version too.
    known = (*ROLES, "function") if dialect == "v1" else ROLES
    for match in role_lines(Scanned([body]), AGENT_ROLES):
        if match["role"].lower() not in known:
            raise original.fault(
                body,
                match.start(),
                f"{match[0].strip()!r} is text in this file, and would begin a section of an agent definition; write "
                "more on the line",
            )
    if dialect == "v1":
        body = MEDIUM.sub(_as_picture, body)
    else:
        notes += [
            Note(*original.place(body, match.start()), f"{match[0]} was text, and is shown there")
            for match in MEDIUM.finditer(body)
            if medium_in(match, "agentschema")
        ]
    fields: dict[str, Json] = {
        _RENAMED.get(name, name): {"properties": value} if name in _RENAMED else value
        for name, value in told(given.fields).items()
    }
    return _converted(original, fields, body, notes, "an agent definition")


def _as_picture(match: re.Match[str]) -> str:
    """A picture of the first version, which has any words in its brackets."""
    return f"![image]({match[2]})" if medium_in(match, "v1") else match[0]


def _converted(original: Original, fields: dict[str, Json], body: str, notes: Iterable[Note], form: str) -> Converted:
    said = [str(note) for note in notes]
    if original.prompty.dialect == "dotprompt":
        said.append(_HANDLEBARS.format(form))
    return Converted(original.rewritten(fields, body), tuple(said))


TARGETS: Final[Mapping[str, Callable[[Original], Converted]]] = {
    "v2": to_v2,
    "agentschema": to_agentschema,
    "dotprompt": to_dotprompt,
    "langchain-json": to_langchain,
}
"""The forms, by their names."""


def converted(prompty: PromptSource, to: str) -> Converted:
    """Write a prompt file in another form; see :func:`lazyprompt.convert`.

    Raises:
        FormatError: There is no such form; or the template says what it has no words for: the message names the line.
    """
    if to not in TARGETS:
        raise FormatError(f"there is no form {to!r}{did_you_mean(to, TARGETS)}; there are {', '.join(TARGETS)}")
    if to == prompty.dialect:
        return Converted(prompty.text)
    return TARGETS[to](Original(prompty))


def converted_whole(prompty: PromptSource, to: str) -> str:
    """The text of :func:`lazyprompt.convert`, where the form says all of it.

    Args:
        prompty: The prompt file.
        to: The form.

    Raises:
        FormatError: As of :func:`lazyprompt.convert`; or the form cannot say all of it. What was read otherwise than it
            is written does not count: :attr:`Prompty.notes` tells of that.
    """
    made = converted(prompty, to)
    read = {*map(str, prompty.notes)}
    if lost := [note for note in made.notes if note not in read]:
        raise FormatError(f"{to} cannot say all of it, and convert() gives the rest: {'; '.join(lost)}")
    return made.text
