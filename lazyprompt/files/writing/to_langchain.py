"""A prompt file as the JSON of LangChain's ``ChatPromptTemplate``, which ``langchain_core.load.load`` reads.

A template that only has names in it is an f-string there; one with blocks or dotted names is Jinja, which LangChain
reads only where it is told that the file is trusted.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from lazyprompt.errors import FormatError
from lazyprompt.files.inputs import MEDIA
from lazyprompt.files.roles import ROLES
from lazyprompt.files.writing.conversion import Converted
from lazyprompt.files.writing.portable import Shown, Syntax, Tag, portable, runs, told_sections

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.files.properties import Property
    from lazyprompt.files.writing.conversion import Original
    from lazyprompt.files.writing.portable import Piece, Told

_CHAT: Final = ("langchain", "prompts", "chat")
_CLASSES: Final = {
    "": "SystemMessagePromptTemplate",
    "system": "SystemMessagePromptTemplate",
    "user": "HumanMessagePromptTemplate",
    "assistant": "AIMessagePromptTemplate",
}
_LEFT_OUT: Final = ("displayName", "description", "metadata", "model", "outputs", "tools", "name")
_JINJA_SIGNS: Final = ("{{", "{%", "{#")


def _fstring_text(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _jinja_text(text: str) -> str:
    return "".join(
        '{{ "{" }}' if sign == "{" and (text[at : at + 2] in _JINJA_SIGNS or at + 1 == len(text)) else sign
        for at, sign in enumerate(text)
    )


# It has nothing but names.
_F_STRING: Final = Syntax(
    "an f-string", lambda path, scope: f"{{{path[0]}}}" if len(path) == 1 and not scope else None, _fstring_text
)
# The same as the file has, without what LangChain would not allow.
_JINJA: Final = Syntax(
    "the LangChain templates that are written here",
    lambda path, _: f"{{{{ {'.'.join(path)} }}}}",
    _jinja_text,
    lambda path, _, negated: f"{{% if {'not ' if negated else ''}{'.'.join(path)} %}}",
    lambda variable, path, _: f"{{% for {variable} in {'.'.join(path)} %}}",
    "{% else %}",
    ("{% endif %}", "{% endif %}", "{% endfor %}"),
)


def to_langchain(original: Original) -> Converted:
    """A prompt file as the JSON of a ``ChatPromptTemplate``.

    Args:
        original: The file.

    Raises:
        FormatError: The template has what LangChain has not; the message names the line.
    """
    spec, notes = original.spec, [*map(str, original.as_v2.notes)]
    if spec.engine != "jinja2":
        raise FormatError(
            f"{original.source.name}: the template is {spec.engine}; only Jinja can be written for LangChain"
        )
    told = spec.to_dict()
    notes += [f"{name} is left out: a ChatPromptTemplate is messages alone" for name in _LEFT_OUT if name in told]
    try:
        # The simplest syntax that can say it.
        form, pieces = "f-string", portable(original.as_v2.body, _F_STRING)
    except FormatError:
        form, pieces = "jinja2", portable(original.as_v2.body, _JINJA)
        notes.append("the template is Jinja: load it with init_validator=None, which says that you trust it")
    inputs = {each.name: each for each in spec.inputs}
    messages: list[Json] = []
    used: dict[str, None] = {}
    for section in told_sections(pieces, ROLES, "LangChain"):
        messages += _messages(section, form, inputs, used, notes)
    threads = [each for each in spec.inputs if each.kind == "thread" and each.name not in used]
    messages += [_placeholder(each, used) for each in threads]
    kwargs: JsonObject = {**_variables(spec.inputs, used, notes), "messages": messages}
    text = json.dumps(_made(_CHAT, "ChatPromptTemplate", kwargs, named=True), ensure_ascii=False, indent=2)
    return Converted(f"{text}\n", tuple(notes))


def _variables(inputs: Sequence[Property], used: dict[str, None], notes: list[str]) -> dict[str, Json]:
    """The variables of the prompt: what must be given, what may be, and what stands for it otherwise."""
    partial: dict[str, Json] = {}
    optional: list[Json] = []
    for each in inputs:
        if each.name not in used:
            notes.append(f"input {each.name} is left out: the template does not name it")
        elif each.kind == "thread":
            optional += [] if each.required else [each.name]
            partial |= {} if each.required else {each.name: []}
            if each.default is not None:
                notes.append(f"input {each.name}: the default is left out: a placeholder has none")
        else:
            if not each.required or each.default is not None:
                partial[each.name] = "" if each.default is None else each.default
            if "${" in json.dumps(each.default):
                notes.append(f"input {each.name}: the default has references, which LangChain does not look up")
            if each.kind not in ("string", "integer", "float", "boolean"):
                notes.append(f"input {each.name}: of the kind {each.kind}, is shown there as Python writes it")
    required: list[Json] = [name for name in sorted(used) if name not in partial]
    made: dict[str, Json] = {"input_variables": required}
    if optional:
        made["optional_variables"] = optional
    if partial:
        made["partial_variables"] = partial
    return made


def _messages(
    section: Told, form: str, inputs: dict[str, Property], used: dict[str, None], notes: list[str]
) -> Iterator[JsonObject]:
    """The messages of a section: a thread in it divides it."""
    notes += [
        f"line {section.line} of the template: {section.role}[{key}=...] is left out: a message has no attributes there"
        for key in section.attributes
    ]
    if section.lead:
        raise _divided(section.lead[0])
    kinds = {name: each.kind for name, each in inputs.items()}
    for piece in section.pieces:
        if isinstance(piece, Shown) and kinds.get(piece.name) in MEDIA:
            raise FormatError(
                f"line {piece.line} of the template: {piece.name}, of the kind {kinds[piece.name]}, has no place in a "
                "LangChain template of text"
            )
    for run, thread in runs(section.pieces, [name for name, kind in kinds.items() if kind == "thread"]):
        if run or not thread:
            yield _message(section.role, run, form, used)
        if thread:
            yield _placeholder(inputs[thread.name], used)


def _message(role: str, kept: Sequence[Piece], form: str, used: dict[str, None]) -> JsonObject:
    """A message of text."""
    opened: list[Tag] = []
    for piece in kept:
        if isinstance(piece, Tag):
            if piece.ends and not opened:
                raise _divided(piece)
            if piece.ends and not piece.text.startswith("{% else"):
                opened.pop()
            elif not piece.ends:
                opened.append(piece)
    if opened:
        raise _divided(opened[-1])
    escape = _fstring_text if form == "f-string" else _jinja_text
    template = "".join(piece.text if not isinstance(piece, str) else escape(piece) for piece in kept)
    ends = isinstance(kept[0], Tag) or isinstance(kept[-1], Tag) if kept else False
    if ends and any(isinstance(piece, str) and piece != piece.strip("\n") for piece in kept):
        # The line breaks with which such a block begins or ends are none of the message's.
        template = f'{{% filter trim("\\n") %}}{template}{{% endfilter %}}'
    names = sorted(_names(template, form))
    used |= dict.fromkeys(names)
    inner: JsonObject = {"input_variables": [*names], "template": template, "template_format": form}
    prompt = _made(("langchain", "prompts", "prompt"), "PromptTemplate", inner, named=True)
    if role not in _CLASSES:
        return _made(_CHAT, "ChatMessagePromptTemplate", {"prompt": prompt, "role": role})
    return _made(_CHAT, _CLASSES[role], {"prompt": prompt})


def _divided(tag: Tag) -> FormatError:
    return FormatError(f"line {tag.line} of the template: in LangChain a block holds no role, and no thread")


def _names(template: str, form: str) -> set[str]:
    """The variables of a template."""
    if form == "f-string":
        from string import Formatter  # noqa: PLC0415 - only such a template needs it

        return {name for _, name, _, _ in Formatter().parse(template) if name}
    from jinja2 import Environment, meta  # noqa: PLC0415 - as above

    return meta.find_undeclared_variables(Environment().parse(template))  # noqa: S701 - it is only read


def _placeholder(declared: Property, used: dict[str, None]) -> JsonObject:
    used[declared.name] = None
    optional: JsonObject = {} if declared.required else {"optional": True}
    return _made(_CHAT, "MessagesPlaceholder", {"variable_name": declared.name, **optional})


def _made(room: Sequence[str], name: str, kwargs: JsonObject, *, named: bool = False) -> JsonObject:
    """An object of LangChain, as its ``dumpd`` writes it."""
    made: JsonObject = {"lc": 1, "type": "constructor", "id": [*room, name], "kwargs": kwargs}
    return {**made, "name": name} if named else made
