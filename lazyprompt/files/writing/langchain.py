"""Prompts of LangChain: read as prompt files, and written as the JSON that ``langchain_core.load.load`` reads.

LangChain saves in two forms: that of ``dumps`` (``lc: 1``, constructors), and that of ``save`` (``_type: prompt``).
What a prompt file cannot say is refused with its reason, or noted. On the way back, a template that only has names in
it is an f-string; one with blocks or dotted names is Jinja, which LangChain reads only where the file is trusted.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from string import Formatter
from typing import TYPE_CHECKING, Final, cast

from jinja2 import meta

from lazyprompt.errors import FormatError, TemplateError
from lazyprompt.files.properties import MEDIA, Property
from lazyprompt.files.roles import ROLES
from lazyprompt.files.writing.conversion import Converted, Original
from lazyprompt.files.writing.portable import ParsedSection, Part, Shown, Syntax, Tag, parsed_sections, portable, runs
from lazyprompt.files.writing.rewriting import written
from lazyprompt.files.writing.turn_text import (
    Code,
    Slot,
    body_of,
    check_references,
    free_name,
    is_input,
    safe,
    turn,
)
from lazyprompt.files.yaml_nodes import Reader, Source, plain
from lazyprompt.templates.jinja import JinjaTemplate
from lazyprompt.templates.sandbox import BoundedEnvironment
from lazyprompt.templates.slots import listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.files.writing.turn_text import Piece


_ROLES: Final[Mapping[str, str]] = {
    **{role: role for role in ROLES},
    "human": "user",
    "ai": "assistant",
    "tool": "tool",
    "HumanMessage": "user",
    "AIMessage": "assistant",
    "SystemMessage": "system",
    "ToolMessage": "tool",
}
_TEMPLATES: Final = "MessagePromptTemplate"
_SAVED: Final[Mapping[str, str]] = {"prompt": "PromptTemplate", "few_shot": "FewShotPromptTemplate"}
_MUSTACHE_NAME: Final = re.compile(r"\{\{\{?&?\s*(\w+)\s*\}?\}\}")
# Fields that no section can say.
_OF_FIXED: Final = ("tool_calls", "name")
# Fields that say nothing of the text.
_OTHERS: Final = ("output_parser", "metadata", "tags", "schema_", "example_selector", "additional_kwargs")


def langchain_data(text: str, name: str) -> JsonObject | None:
    """Parse the text of a prompt that LangChain saved.

    Args:
        text: The text, JSON or YAML.
        name: The name of the file, for errors.

    Returns:
        The data; None if the text is no JSON, and is YAML of another kind or no YAML.

    Raises:
        FormatError: It is JSON, and no prompt of LangChain's.
    """
    is_json = text.lstrip("\ufeff \t\r\n").startswith(("{", "["))
    try:
        # JSON may write a character as two escapes, which YAML does not read.
        data = json.loads(text.removeprefix("\ufeff")) if is_json else plain(Reader(Source(text, name)).read())
    except (ValueError, RecursionError):
        if name.lower().endswith(".json"):
            raise FormatError(f"{name}: this is neither JSON nor YAML that can be read") from None
        return None
    if isinstance(data, dict) and ({"lc", "_type"} & data.keys() or {"template", "input_variables"} <= data.keys()):
        return cast("JsonObject", data)
    if is_json or name.lower().endswith(".json"):
        raise FormatError(f"{name}: this is JSON, and no prompt that LangChain saved: it has neither 'lc' nor '_type'")
    return None


def from_langchain(data: Mapping[str, Json], name: str) -> Converted:
    """Write a prompt that LangChain saved as a prompt file.

    Args:
        data: The data, of :func:`langchain_data`.
        name: The name of the prompt.

    Returns:
        The text of the file, and what it leaves out.

    Raises:
        FormatError: A prompt file cannot say it.
    """
    kind, fields = _constructed(dict(data))
    prompt = _Prompt(json.dumps(data, ensure_ascii=False))
    if kind in _SAVED.values():
        prompt.add("user", prompt.text(kind, fields))
    elif kind in ("ChatPromptTemplate", "StructuredPrompt"):
        for message in _items(fields.get("messages")):
            prompt.add_message(*_constructed(message))
    else:
        known = (*_SAVED.values(), "ChatPromptTemplate")
        raise FormatError(f"LangChain's {kind} is no prompt that can be read; those are {listed(known)}")
    prompt.note_others(fields)
    partial, optional = _mapping(fields.get("partial_variables")), _items(fields.get("optional_variables"))
    for key, each in prompt.inputs.items():
        if key in partial or key in optional:
            each.pop("required", None)
        if partial.get(key) not in (None, []):
            each["default"] = partial[key]
        check_references(each.get("default"), f"the value of {key!r}")
    front_matter: JsonObject = {"name": name, "inputs": [*prompt.inputs.values()]}
    front = written({key: value for key, value in front_matter.items() if value})
    return Converted(f"---\n{front}---\n{body_of(prompt.turns, [*prompt.inputs])}", tuple(dict.fromkeys(prompt.notes)))


def _constructed(data: Json) -> tuple[str, JsonObject]:
    """Return the class that data was saved from, and its arguments."""
    if not isinstance(data, dict):
        raise FormatError(f"a part of LangChain's prompt is {json.dumps(data)[:60]}, and must be an object")
    if "lc" not in data:
        kind = str(data.get("_type", "prompt"))
        return _SAVED.get(kind, kind), {key: value for key, value in data.items() if key != "_type"}
    ids = data.get("id")
    kind = str(ids[-1]) if isinstance(ids, list) and ids else "object without an id"
    if data.get("type") == "not_implemented":
        raise FormatError(f"LangChain's dumps() writes only the repr of a {kind}, which cannot be read; write it out")
    if data.get("type") != "constructor":
        raise FormatError(f"LangChain's {kind} is of the type {data.get('type')!r}, and must be a constructor")
    return kind, _mapping(data["kwargs"]) if "kwargs" in data else {}


def _mapping(value: Json | None) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _items(value: Json | None) -> list[Json]:
    return value if isinstance(value, list) else []


@dataclass
class _Prompt:
    """A prompt file that is being put together.

    Args:
        taken: A text with all names of the prompt, which no name that is made here may be.
    """

    taken: str
    turns: list[list[Piece]] = field(default_factory=list["list[Piece]"])
    inputs: dict[str, JsonObject] = field(default_factory=dict[str, "JsonObject"])
    notes: list[str] = field(default_factory=list[str])
    _setting: list[Code] = field(default_factory=list[Code])

    def add(self, role: str, pieces: Sequence[Piece]) -> None:
        """Add a turn."""
        self.turns.append([*self._setting, *turn(role, [safe(pieces)])])
        self._setting = []

    def add_message(self, kind: str, fields: JsonObject) -> None:
        """Add a message, the template of one, or a place of several."""
        if kind == "MessagesPlaceholder":
            self._add_thread(fields)
            return
        role = _ROLES.get(str(fields["role"]).lower() if "role" in fields else kind.replace(_TEMPLATES, "Message"))
        if role is None:
            raise FormatError(f"a prompt file has no {kind} with the role {fields.get('role', kind)!r}")
        if "prompt" in fields:
            prompts = fields["prompt"]
            parts = [_constructed(each) for each in (prompts if isinstance(prompts, list) else [prompts])]
            # A turn of text and media is divided by them.
            pieces = [piece for part in parts for piece in self.text(*part)]
            self.add(role, pieces)
        elif isinstance(fields.get("content"), str) and role != "tool" and not any(map(fields.get, _OF_FIXED)):
            self.add(role, [str(fields["content"])])
        else:
            self._add_fixed(role, fields)
        self.note_others(fields)

    def _add_fixed(self, role: str, fields: JsonObject) -> None:
        """Add a message that no section can say, as the default of a thread."""
        if not isinstance(fields.get("content"), str):
            raise FormatError("a fixed message of several blocks is no turn of a prompt file; make it a template")
        calls: list[Json] = []
        for call in map(_mapping, _items(fields.get("tool_calls"))):
            arguments = json.dumps(call.get("args") or {}, ensure_ascii=False)
            function: JsonObject = {"name": call.get("name"), "arguments": arguments}
            calls.append({"id": call.get("id"), "type": "function", "function": function})
        made: JsonObject = {"role": role, "content": fields["content"], "tool_calls": calls}
        made |= {key: fields.get(key) for key in ("name", "tool_call_id")}
        made = {key: value for key, value in made.items() if value or key == "content"}
        last = next(reversed(self.inputs), "")
        fixed = _items(self.inputs[last].get("default")) if last.startswith("fixed") else []
        # Messages that follow one another are one thread.
        if fixed and self.turns[-1] == [Code(f"{{{{ {last} }}}}\n")]:
            self.inputs[last]["default"] = [*fixed, made]
            return
        name = free_name("fixed", (self.taken, *self.inputs))
        self.inputs[name] = {"name": name, "kind": "thread", "default": [made]}
        self.turns.append([Code(f"{{{{ {name} }}}}\n")])

    def _add_thread(self, fields: JsonObject) -> None:
        name = self._slot(str(fields.get("variable_name")), kind="thread", required=not fields.get("optional")).name
        self.turns.append([Code(f"{{{{ {name} }}}}\n")])
        if fields.get("n_messages"):
            self.notes.append(f"n_messages={fields['n_messages']} of {name} is left out: give no more than that many")

    def _slot(self, name: str, kind: str = "union", *, required: bool = True) -> Slot:
        """Return the slot of a variable, which becomes an input."""
        if not is_input(name):
            raise FormatError(f"LangChain's {{{name}}} is no name of an input: write a name alone, as {{city}}")
        made: JsonObject = {"name": name, "kind": kind}
        self.inputs.setdefault(name, made | ({"required": True} if required else {}))
        if self.inputs[name]["kind"] != kind:
            raise FormatError(f"LangChain's {{{name}}} is both a {kind} and a {self.inputs[name]['kind']}")
        return Slot(name)

    def text(self, kind: str, fields: JsonObject) -> list[Piece]:
        """Return the pieces of a template of text, of few shots, or of a picture."""
        syntax = str(fields.get("template_format") or "f-string")
        if kind == "ImagePromptTemplate":
            return [self._picture(_mapping(fields.get("template")), syntax)]
        if kind == "FewShotPromptTemplate":
            return self._few_shot(fields, syntax)
        template = fields.get("template")
        if not isinstance(template, str):
            path = fields.get("template_path")
            why = f"is in another file, {path}" if path else "is missing"
            raise FormatError(f"the template of LangChain's {kind} {why}; write it out")
        if syntax == "f-string":
            return self._f_string(template)
        if syntax == "jinja2":
            # LangChain's Jinja takes a line break away at the end.
            text = template.removesuffix("\n")
            try:
                slots = JinjaTemplate(text).slots
            except TemplateError as error:
                raise FormatError(f"LangChain's template cannot be read: {error}") from error
            for slot in slots:
                self._slot(slot)
            inner = free_name("text", (self.taken, *(each.text for each in self._setting)))
            self._setting.append(Code(f"{{% set {inner} %}}{text}{{% endset %}}\n"))
            return [Slot(inner)]
        if syntax == "mustache":
            return self._mustache(template)
        raise FormatError(f"LangChain's template format {syntax!r} is unknown; it has f-string, jinja2 and mustache")

    def _f_string(self, template: str) -> list[Piece]:
        pieces: list[Piece] = []
        try:
            parsed = [*Formatter().parse(template)]
        except ValueError as error:
            raise FormatError(f"LangChain's template {template[:60]!r} is no f-string: {error}") from error
        for literal, name, spec, conversion in parsed:
            if spec or conversion:
                what = f"LangChain's {{{name}}} has the format {spec or conversion!r}, which no prompt file has"
                raise FormatError(f"{what}; format the value before")
            pieces += [literal] if name is None else [literal, self._slot(name)]
        return [piece for piece in pieces if piece]

    def _mustache(self, template: str) -> list[Piece]:
        found = _MUSTACHE_NAME.split(template)
        if any("{{" in literal for literal in found[::2]):
            raise FormatError("LangChain's template in Mustache has more than names; write it in f-strings or Jinja")
        pieces = [self._slot(piece) if at % 2 else piece for at, piece in enumerate(found) if piece]
        self.notes.append("LangChain escapes values in Mustache as HTML; they are written as they are here")
        return pieces

    def _few_shot(self, fields: JsonObject, syntax: str) -> list[Piece]:
        """Return prefix, examples and suffix as one text; values of examples are text."""
        examples = fields.get("examples")
        if fields.get("example_selector") is not None or not isinstance(examples, list):
            raise FormatError("the examples of LangChain's few-shot prompt are selected, or in a file; write them out")
        if "example_prompt" not in fields or syntax != "f-string":
            raise FormatError("LangChain's few-shot prompt is read with its example_prompt, in f-strings")
        example_prompt = _mapping(fields["example_prompt"])
        # The prompt of the examples is saved without its type, where LangChain wrote it itself.
        shot = _constructed(example_prompt)[1]
        template = _Prompt(self.taken).text("PromptTemplate", shot)
        parts = [self._f_string(str(fields.get("prefix") or ""))]
        for index, example in enumerate(map(_mapping, examples)):
            try:
                parts.append([str(example[each.name]) if isinstance(each, Slot) else each for each in template])
            except KeyError as error:
                raise FormatError(f"examples[{index}] of LangChain's few-shot prompt has no {error}") from error
        parts.append(self._f_string(str(fields.get("suffix") or "")))
        separator = fields.get("example_separator")
        between = "\n\n" if separator is None else str(separator)
        return [piece for part in parts if part for piece in (between, *part)][1:]

    def _picture(self, template: JsonObject, syntax: str) -> Slot:
        """Return the slot of a picture; one with an address of its own is an input with that default."""
        address = template.get("url")
        if not isinstance(address, str) or syntax != "f-string":
            raise FormatError("LangChain's picture is read by its url, as an f-string")
        if template.get("detail"):
            self.notes.append(f"detail={template['detail']} of a picture is left out")
        pieces = list(Formatter().parse(address))
        if len(pieces) == 1 and pieces[0][1] and not pieces[0][0]:
            return self._slot(pieces[0][1], kind="image")
        if any(each[1] is not None for each in pieces):
            raise FormatError(
                f"the url of LangChain's picture is more than a name: {address[:60]!r}; make it one value"
            )
        name = free_name("picture", (self.taken, *self.inputs))
        self.inputs[name] = {"name": name, "kind": "image", "default": address}
        return Slot(name)

    def note_others(self, fields: JsonObject) -> None:
        """Note the fields that a prompt file leaves out."""
        self.notes += [f"{key} is left out" for key in _OTHERS if fields.get(key)]


_CHAT: Final = ("langchain", "prompts", "chat")
_CLASSES: Final = {
    "": "SystemMessagePromptTemplate",
    "system": "SystemMessagePromptTemplate",
    "user": "HumanMessagePromptTemplate",
    "assistant": "AIMessagePromptTemplate",
}
_LEFT_OUT: Final = ("displayName", "description", "metadata", "model", "outputs", "tools", "name")
# A brace that Jinja would read, also with what follows the text.
_JINJA_BRACE: Final = re.compile(r"\{(?=[{%#]|\Z)")

_F_STRING: Final = Syntax(
    "an f-string",
    lambda path, scope: path[0] if len(path) == 1 and not scope else None,
    lambda text: text.replace("{", "{{").replace("}", "}}"),
    "{$path}",
)
# The file's own syntax, without the parts that LangChain refuses.
_JINJA: Final = Syntax(
    "the LangChain templates that are written here",
    lambda path, _: ".".join(path),
    lambda text: _JINJA_BRACE.sub('{{ "{" }}', text),
    "{{ $path }}",
    ("{% if $path %}", "{% if not $path %}"),
    "{% for $variable in $path %}",
    "{% else %}",
    ("{% endif %}", "{% endif %}", "{% endfor %}"),
)


def to_langchain(original: Original) -> Converted:
    """Return a prompt file as the JSON of a ``ChatPromptTemplate``.

    Args:
        original: The file.

    Raises:
        FormatError: The template has what LangChain has not; the message names the line.
    """
    spec, notes = original.in_jinja("for LangChain")
    fields = spec.to_dict()
    notes += [f"{name} is left out: a ChatPromptTemplate is messages alone" for name in _LEFT_OUT if name in fields]
    syntax = _F_STRING  # the simplest that can say it
    try:
        pieces = portable(original.as_v2.body, syntax)
    except FormatError:
        syntax = _JINJA
        pieces = portable(original.as_v2.body, syntax)
        notes.append("the template is Jinja: load it with init_validator=None, which says that you trust it")
    inputs = {each.name: each for each in spec.inputs}
    messages: list[Json] = []
    used: set[str] = set()
    for section in parsed_sections(pieces, ROLES, "LangChain"):
        notes += [
            f"line {section.line} of the template: {section.role}[{key}=...] is left out: a message has no attributes "
            "there"
            for key in section.attributes
        ]
        messages += _messages(section, syntax, inputs, used)
    messages += [_placeholder(each, used) for each in spec.inputs if each.kind == "thread" and each.name not in used]
    kwargs: JsonObject = {**_variables(spec.inputs, used, notes), "messages": messages}
    text = json.dumps(_constructor(_CHAT, "ChatPromptTemplate", kwargs, named=True), ensure_ascii=False, indent=2)
    return Converted(f"{text}\n", tuple(notes))


def _variables(inputs: Sequence[Property], used: set[str], notes: list[str]) -> JsonObject:
    """Return the variables of the prompt: those that are required, those that are optional, and the defaults."""
    partial: JsonObject = {}
    optional: list[Json] = []
    for each in inputs:
        found: list[str] = []
        if each.name not in used:
            found.append(" is left out: the template does not name it")
        elif each.kind == "thread":
            if not each.required:
                optional.append(each.name)
                partial[each.name] = []
            if each.default is not None:
                found.append(": the default is left out: a placeholder has none")
        else:
            if not each.required or each.default is not None:
                partial[each.name] = "" if each.default is None else each.default
            if "${" in json.dumps(each.default):
                found.append(": the default has references, which LangChain does not look up")
            if each.kind not in ("string", "integer", "float", "boolean"):
                found.append(f": of the kind {each.kind}, is shown there as Python writes it")
        notes += [f"input {each.name}{note}" for note in found]
    required: list[Json] = [name for name in sorted(used) if name not in partial]
    others: JsonObject = {"optional_variables": optional, "partial_variables": partial}
    return {"input_variables": required, **{name: value for name, value in others.items() if value}}


def _messages(
    section: ParsedSection, syntax: Syntax, inputs: Mapping[str, Property], used: set[str]
) -> Iterator[JsonObject]:
    """Render the messages of a section: a thread in it divides it."""
    if section.lead:
        raise _divided(section.lead[0])
    for piece in section.pieces:
        if isinstance(piece, Shown) and piece.name in inputs and (kind := inputs[piece.name].kind) in MEDIA:
            raise FormatError(
                f"line {piece.line} of the template: {piece.name}, of the kind {kind}, has no place in a LangChain "
                "template of text"
            )
    for run, thread in runs(section.pieces, [name for name, each in inputs.items() if each.kind == "thread"]):
        if run or not thread:
            yield _message(section.role, run, syntax, used)
        if thread:
            yield _placeholder(inputs[thread.name], used)


def _message(role: str, pieces: Sequence[Part], syntax: Syntax, used: set[str]) -> JsonObject:
    """Render a message of text."""
    opened: list[Tag] = []
    for piece in pieces:
        if isinstance(piece, Tag):
            if not piece.ends:
                opened.append(piece)
            elif not opened:
                raise _divided(piece)
            elif piece.text != syntax.otherwise:
                opened.pop()
    if opened:
        raise _divided(opened[-1])
    template = "".join(syntax.literal(piece) if isinstance(piece, str) else piece.text for piece in pieces)
    ends = isinstance(pieces[0], Tag) or isinstance(pieces[-1], Tag) if pieces else False
    if ends and any(isinstance(piece, str) and piece != piece.strip("\n") for piece in pieces):
        # The line breaks with which such a block begins or ends are none of the message's.
        template = f'{{% filter trim("\\n") %}}{template}{{% endfilter %}}'
    if syntax is _F_STRING:
        form, names = "f-string", {name for _, name, _, _ in Formatter().parse(template) if name}
    else:
        form, names = "jinja2", meta.find_undeclared_variables(BoundedEnvironment().parse(template))
    used |= names
    inner: JsonObject = {"input_variables": [*sorted(names)], "template": template, "template_format": form}
    fields: JsonObject = {
        "prompt": _constructor(("langchain", "prompts", "prompt"), "PromptTemplate", inner, named=True)
    }
    if role not in _CLASSES:
        return _constructor(_CHAT, "ChatMessagePromptTemplate", {**fields, "role": role})
    return _constructor(_CHAT, _CLASSES[role], fields)


def _divided(tag: Tag) -> FormatError:
    return FormatError(f"line {tag.line} of the template: in LangChain a block holds no role, and no thread")


def _placeholder(declared: Property, used: set[str]) -> JsonObject:
    used.add(declared.name)
    optional: JsonObject = {} if declared.required else {"optional": True}
    return _constructor(_CHAT, "MessagesPlaceholder", {"variable_name": declared.name, **optional})


def _constructor(package: Sequence[str], name: str, kwargs: JsonObject, *, named: bool = False) -> JsonObject:
    """Return an object of LangChain, as its ``dumpd`` writes it."""
    made: JsonObject = {"lc": 1, "type": "constructor", "id": [*package, name], "kwargs": kwargs}
    return {**made, "name": name} if named else made
