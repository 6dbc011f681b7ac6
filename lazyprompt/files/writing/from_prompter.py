"""A prompter written as a prompt file that renders the same messages; and turns written as text of a file.

Its slots become inputs, its texts the file's own text, and the begin of its conversations turns.

Turns are written so that their text means nothing to the file: it begins no section, opens no fence and keeps its line
breaks. A character that would mean something is written as the value of a variable, which the file sets itself.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

from lazyprompt._base.json import Json, JsonObject, checked
from lazyprompt.errors import FormatError, PromptFileError, TemplateError
from lazyprompt.files.prompt_source import AGENT_ROLES
from lazyprompt.files.roles import PLACE, ROLES, Scanned, role_lines, sections
from lazyprompt.files.writing.rewriting import written
from lazyprompt.prompters.prompter import Prompter
from lazyprompt.templates.instruction import InstructionTemplate
from lazyprompt.templates.jinja import JinjaTemplate
from lazyprompt.templates.slots import SlotTemplate, Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lazyprompt.messages.msg import Msg
    from lazyprompt.prompters.definition import MadeOf


_NAMES: Final = {"\n": "newline", ":": "colon", "`": "tick", "~": "tilde"}
# The begin of a section or a fence, in text that has one: rather too much than too little.
_ROLE_LINE: Final = re.compile(
    rf"^([^\S\n]*+(?:#[^\S\n]*+)?(?:{'|'.join(AGENT_ROLES)}|{PLACE})[^\n]*?)(:)(?=[^\S\n]*$)",
    re.IGNORECASE | re.MULTILINE,
)
_FENCE: Final = re.compile(r"^([^\S\n]*)([`~])(?=\2\2)", re.MULTILINE)
# Characters that Jinja would read, and those that YAML or a file cannot hold.
_SPECIAL: Final = re.compile(r"\{(?=[{%#\r\0]|\Z)|[\r\0]")
_REFERENCE: Final = re.compile(r"\$\{(?:env|file|params):", re.IGNORECASE)


class Slot(NamedTuple):
    """The place of an input."""

    name: str


class Sign(NamedTuple):
    """A character that is written as a value."""

    sign: str


class Code(NamedTuple):
    """Jinja, as it is."""

    text: str


Piece: TypeAlias = "str | Slot | Sign | Code"


def turn(role: str, runs: Iterable[Sequence[Piece]]) -> list[Piece]:
    """Return the pieces of a turn.

    Args:
        role: Its role, with attributes.
        runs: Its text, made by :func:`safe`.
    """
    return [Code(f"{role}:\n"), *(piece for run in runs for piece in run), Code("\n")]


def safe(pieces: Sequence[Piece]) -> list[Piece]:
    """Join text and slots; characters that would mean something to a file become values."""
    joined: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, str) and joined and isinstance(joined[-1], str):
            joined[-1] += piece
        elif piece:
            joined.append(piece)
    if not _is_one_section(joined):
        joined = _without_lines(joined)
    return _with_edges(joined)


def _is_one_section(pieces: Sequence[Piece]) -> bool:
    """Return True if no dialect finds a role in the pieces, or a fence that stays open."""
    parts = [piece if isinstance(piece, str) else Value("", getattr(piece, "name", "")) for piece in pieces]
    filled = Scanned(parts)
    if any(any(role_lines(filled, AGENT_ROLES, fenced=fenced)) for fenced in (False, True)):
        return False
    # A fence that is open would hide the role behind it, if another one closed it.
    ends = (sign * max(3, filled.text.count(sign)) for sign in "`~")
    return all(sections([*parts, f"\nuser:\n\n{end}\n"])[-1].role == "user" for end in ends)


def _without_lines(pieces: Sequence[Piece]) -> list[Piece]:
    """Return pieces in which no line begins a section or a fence."""
    text = "".join(piece.replace(PLACE, " ") if isinstance(piece, str) else PLACE for piece in pieces)
    places = {match.start(2) for pattern in (_ROLE_LINE, _FENCE) for match in pattern.finditer(text)}
    found: list[Piece] = []
    at = 0
    for piece in pieces:
        if not isinstance(piece, str):
            found.append(piece)
            at += 1
            continue
        begin = 0
        for place in sorted(place - at for place in places if at <= place < at + len(piece)):
            found += (piece[begin:place], Sign(piece[place]))
            begin = place + 1
        found.append(piece[begin:])
        at += len(piece)
    return [piece for piece in found if piece]


def _with_edges(pieces: Sequence[Piece]) -> list[Piece]:
    """Return pieces whose first and last line break are values, also beside empty slots: a file drops its own."""
    found = [*pieces]
    own = [index for index, piece in enumerate(found) if not isinstance(piece, Slot)]
    if not own:
        return found
    # The last one first: its index stays, whatever becomes of the first.
    if isinstance(last := found[own[-1]], str) and last.endswith("\n"):
        found[own[-1] : own[-1] + 1] = [last[:-1], Sign("\n")]
    if isinstance(first := found[own[0]], str) and first.startswith("\n"):
        found[own[0] : own[0] + 1] = [Sign("\n"), first[1:]]
    return [piece for piece in found if piece]


def body_of(turns: Sequence[Sequence[Piece]], slots: Sequence[str]) -> str:
    """Return the template."""
    pieces = [piece for turn in turns for piece in turn]
    taken = (*slots, *(piece.text for piece in pieces if isinstance(piece, Code)))
    names = {sign: free_name(name, taken) for sign, name in _NAMES.items()}
    used = dict.fromkeys(piece.sign for piece in pieces if isinstance(piece, Sign))
    setting = "".join(f"{{% set {names[sign]} = {json.dumps(sign)} %}}\n" for sign in used)
    return setting + "\n".join("".join(_written(piece, names) for piece in turn) for turn in turns if turn)


def _written(piece: Piece, names: Mapping[str, str]) -> str:
    if isinstance(piece, str):
        return _SPECIAL.sub(lambda special: f"{{{{ {json.dumps(special[0])} }}}}", piece)
    if isinstance(piece, Code):
        return piece.text
    return f"{{{{ {names[piece.sign] if isinstance(piece, Sign) else piece.name} }}}}"


def free_name(name: str, taken: Iterable[str]) -> str:
    """Return a name that is in none of the texts."""
    texts = [*taken]
    while any(name in text for text in texts):
        name += "_"
    return name


def is_input(name: str) -> bool:
    """Return True if a name can be that of an input: Jinja has no other meaning for it."""
    try:
        return JinjaTemplate(f"{{{{ {name} }}}}").slots == (name,)
    except TemplateError:
        return False


def check_references(value: Json, where: str) -> None:
    """Refuse text that a front matter would take for a reference.

    Args:
        value: The value of a field.
        where: Its name in errors.

    Raises:
        FormatError: A text in it is a reference.
    """
    if isinstance(value, str) and (found := _REFERENCE.search(value)):
        raise FormatError(f"{where} has the text {found[0]}…, which a prompt file would look up; write it otherwise")
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        check_references(item, where)


_INPUT: Final = "input"
_LABEL: Final = re.compile(r"[\w .@-]+")
_FUNCTION: Final = {"name", "description", "parameters", "strict"}


class _Part(NamedTuple):
    """A part of an instruction.

    Attributes:
        pieces: Its text and slots.
        unless_empty: A condition in Jinja that holds if it has any text; ``""`` if it always has.
        setting: Jinja that sets a variable of it, in front of the turn.
    """

    pieces: list[Piece]
    unless_empty: str = ""
    setting: tuple[Code, ...] = ()


def text_of(
    prompter: Prompter,
    *,
    name: str | None = None,
    description: str | None = None,
    model: str | Mapping[str, object] | None = None,
) -> str:
    """Return a prompter as the text of a prompt file, in Prompty v2.

    With the same values its messages are those of the prompter in OpenAI's form. The system text is the prompter's
    present one; texts that it began with become the file's own text, and so trusted. The layout of flat text, markers
    and safety are no part of a file.

    Args:
        prompter: The prompter, with an instruction in slots or in Jinja.
        name: The name of the prompt.
        description: Its purpose.
        model: Its model.

    Returns:
        The text.

    Raises:
        FormatError: A file cannot do what the prompter does: it has hooks or a budget, tools that are no functions, an
            instruction of its own making; or a slot's name means something in Jinja.
    """
    made = prompter.made_of
    _check(prompter, made)
    instruction, past = made.instruction, made.history
    system, user = map(_part, instruction.templates, ("instruction", "user_text"))
    slots, fixed = instruction.input_form.slots, dict(instruction.input_form.fixed)
    for slot in slots:
        if not is_input(slot):
            raise FormatError(
                f"the slot {slot!r} cannot be an input of a prompt file: Jinja has another meaning for it"
            )
    takes_input = instruction.input_form.has_input
    turns = [_system_turn(made.system, system)]
    thread = free_name("conversation", slots)
    # A slot takes any value, as an input of this kind does.
    inputs: list[Json] = [{"name": slot, "kind": "union", "required": True} for slot in _plain_slots(instruction)]
    inputs += [
        {"name": slot, "kind": "union", "default": checked(value, f"the value of {slot!r}", FormatError)}
        for slot, value in fixed.items()
    ]
    if takes_input:
        inputs.append({"name": _INPUT, "kind": "string", "description": "What the user says."})
    if all(_is_plain(message) for message in past.messages):
        for each in past.messages:
            named = "" if each.name == each.role else f'[name="{each.name}"]'
            turns.append(turn(f"{each.role}{named}", [safe([each.text])]))
    else:
        default: list[Json] = [*past.to_openai()]
        check_references(default, "the history")
        inputs.append({"name": thread, "kind": "thread", "default": default})
        turns.append([Code(f"{{{{ {thread} }}}}\n")])
    turns.append(_user_turn(user, takes_input=takes_input, waits=past.waits_for_answer))
    tools: list[Json] = [_tool(tool, index) for index, tool in enumerate(made.tools)]
    fields: dict[str, object] = {"name": name, "description": description, "model": model}
    fields |= {"inputs": inputs, "tools": tools}
    front = written({key: checked(value, key, PromptFileError) for key, value in fields.items() if value})
    return f"---\n{front}---\n{body_of(turns, (*slots, _INPUT))}"


def _check(prompter: Prompter, made: MadeOf) -> None:
    """Refuse a prompter that no file can replace."""
    kind = type(made.instruction)
    own = kind.parts is not InstructionTemplate.parts or kind.fill is not InstructionTemplate.fill
    own = own or type(prompter).fill is not Prompter.fill
    for fault, advice in (
        (made.has_functions, "a function, as a pre_hook: write the prompter without it"),
        (made.has_budget, "a budget: take it away with with_budget(None)"),
        (own, f"an instruction of the class {kind.__name__}, which fills itself"),
    ):
        if fault:
            raise FormatError(f"a prompt file cannot say what this {type(prompter).__name__} does: it has {advice}")


def _plain_slots(instruction: InstructionTemplate) -> list[str]:
    """Return the slots that take text; a file need not declare values for Jinja, which may be of any kind."""
    texts = [template for template in instruction.templates if isinstance(template, SlotTemplate)]
    return [slot for slot in instruction.slots if any(slot in template.slots for template in texts)]


def _part(template: object, variable: str) -> _Part:
    """Return a part of an instruction."""
    if isinstance(template, SlotTemplate):
        names = template.origins(())[1::2]
        pieces: list[Piece] = [template.literals[0]]
        for name, own in zip(names, template.literals[1:], strict=True):
            pieces += (Slot(name), own)
        always = not names or any(template.literals)
        return _Part([piece for piece in pieces if piece], "" if always else " or ".join(template.slots))
    text = cast("JinjaTemplate", template).text
    if not text:
        return _Part([])
    # All of it is one value: nothing in it can be taken for something else.
    inner = free_name(variable, (text,))
    return _Part([Slot(inner)], inner, (Code(f"{{% set {inner} %}}{text}{{% endset %}}"),))


def _system_turn(system: str, part: _Part) -> list[Piece]:
    """Return the system turn; no turn if it is empty."""
    pieces: list[Piece] = ["\n", *part.pieces] if system and part.pieces else part.pieces
    if not part.unless_empty:
        return turn("system", [safe([system, *pieces])]) if system or pieces else []
    condition, end = Code(f"{{% if {part.unless_empty} %}}"), Code("{% endif %}")
    if system:
        return [*part.setting, *turn("system", [safe([system]), [condition], safe(pieces), [end]])]
    return [*part.setting, condition, *turn("system", [safe(pieces)]), end]


def _user_turn(part: _Part, *, takes_input: bool, waits: bool) -> list[Piece]:
    """Return the turn of the user's text; no turn if there is no text and the history awaits the assistant."""
    made = turn("user", [safe([*part.pieces, *([Slot(_INPUT)] if takes_input else [])])])
    if not waits or (part.pieces and not part.unless_empty):
        return [*part.setting, *made]
    terms = ([part.unless_empty] if part.unless_empty else []) + ([f"{_INPUT} is defined"] if takes_input else [])
    if not terms:
        return []
    return [*part.setting, Code(f"{{% if {' or '.join(terms)} %}}"), *made, Code("{% endif %}")]


def _is_plain(message: Msg) -> bool:
    """Return True if a message is text under a role, which a section can hold."""
    named = message.name == message.role or bool(_LABEL.fullmatch(message.name))
    return message.role in ROLES and isinstance(message.content, str) and not message.metadata and named


def _tool(tool: JsonObject, index: int) -> JsonObject:
    function = tool.get("function")
    if tool.get("type") != "function" or not isinstance(function, dict) or not function.keys() <= _FUNCTION:
        has = ", ".join(function if isinstance(function, dict) else tool)
        raise FormatError(
            f"tools[{index}] is of the type {tool.get('type')!r}, with the fields {has}; a tool of a prompt file is a "
            f"function, with {', '.join(sorted(_FUNCTION))}"
        )
    check_references(function, f"tools[{index}]")
    return {"kind": "function", **function}
