"""Conversion of a prompter to a prompt file that renders the same messages.

Slots become inputs, the prompter's literal text becomes template text, and the initial history becomes turns.
Characters with a special meaning in a prompt file are escaped.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from lazyprompt._base.json import Json, JsonObject, checked
from lazyprompt.errors import FormatError, PromptFileError
from lazyprompt.files.roles import ROLES
from lazyprompt.files.writing.rewriting import dump_yaml
from lazyprompt.files.writing.turn_text import (
    Code,
    InputSlot,
    TurnPiece,
    body_of,
    check_references,
    free_name,
    is_input,
    safe,
    turn,
)
from lazyprompt.messages.openai_form import openai_dicts
from lazyprompt.prompters.prompter import Prompter
from lazyprompt.templates.instruction import InstructionTemplate
from lazyprompt.templates.messages import MessagesTemplate
from lazyprompt.templates.slots import SlotTemplate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lazyprompt.messages.msg import Msg
    from lazyprompt.prompters.definition import MadeOf
    from lazyprompt.templates.slots import SlotSyntax


_INPUT: Final = "input"
_LABEL: Final = re.compile(r"[\w .@-]+")
_FUNCTION: Final = {"name", "description", "parameters", "strict"}


class _Part(NamedTuple):
    """One of an instruction's templates, converted to text and slots for a prompt file.

    Attributes:
        pieces: The template's text and slots, in order.
        unless_empty: A Jinja condition that is true unless the part renders empty, or ``""`` if the part never renders
            empty.
        setting: Jinja code to insert before the turn, which assigns the rendered part to a variable.
    """

    pieces: list[TurnPiece]
    unless_empty: str = ""
    setting: tuple[Code, ...] = ()


def text_of(
    prompter: Prompter,
    *,
    name: str | None = None,
    description: str | None = None,
    model: str | Mapping[str, object] | None = None,
) -> str:
    """Convert a prompter to the text of a prompt file in Prompty v2.

    Given the same values, the file renders the same OpenAI messages as the prompter. The file contains the prompter's
    current system text. The messages in the initial history become the template's own text and are therefore trusted.
    The file doesn't store the flat text layout, the markers or the safety policy.

    Args:
        prompter: The prompter, whose instruction must use slots or Jinja.
        name: The prompt's name.
        description: The prompt's description.
        model: The prompt's model.

    Returns:
        The text of the file.

    Raises:
        FormatError: The prompter has hooks, a budget, tools that aren't functions or a custom instruction class, or
            a slot's name is reserved in Jinja.
    """
    made = prompter.made_of
    _check(prompter, made)
    instruction, past = made.instruction, made.history
    system, user = map(_part, instruction.templates, ("instruction", "user_text"))
    slots, fixed = instruction.input_form.slots, dict(instruction.input_form.fixed)
    for slot in slots:
        if not is_input(slot):
            raise FormatError(
                f"the slot {slot!r} cannot be an input in a prompt file: Jinja reserves its name; rename the slot"
            )
    takes_input = instruction.input_form.has_input
    turns = [_system_turn(made.system, system)]
    thread = free_name("conversation", slots)
    # A slot accepts any value, so declare its input with the kind ``union``.
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
        default: list[Json] = [*openai_dicts(past.messages)]
        check_references(default, "the history")
        inputs.append({"name": thread, "kind": "thread", "default": default})
        turns.append([Code(f"{{{{ {thread} }}}}\n")])
    turns.append(_user_turn(user, takes_input=takes_input, waits=past.awaits_answer))
    tools: list[Json] = [_tool(tool, index) for index, tool in enumerate(made.tools)]
    fields: dict[str, object] = {"name": name, "description": description, "model": model}
    fields |= {"inputs": inputs, "tools": tools}
    front = dump_yaml({key: checked(value, key, PromptFileError) for key, value in fields.items() if value})
    return f"---\n{front}---\n{body_of(turns, (*slots, _INPUT))}"


def _check(prompter: Prompter, made: MadeOf) -> None:
    """Raise an error if a prompt file can't express the prompter."""
    kind = type(made.instruction)
    own = kind.parts is not InstructionTemplate.parts or kind.fill is not InstructionTemplate.fill
    own = own or kind is MessagesTemplate or type(prompter).fill is not Prompter.fill
    for fault, advice in (
        (made.has_functions, "functions such as a pre_hook; convert the prompter without them"),
        (made.has_budget, "a budget; remove it with with_budget(None)"),
        (own, f"an instruction of the class {kind.__name__}, which fills templates in its own way"),
    ):
        if fault:
            raise FormatError(
                f"cannot convert this {type(prompter).__name__} to a prompt file: the prompter has {advice}"
            )


def _plain_slots(instruction: InstructionTemplate) -> list[str]:
    """Return the slots to declare as inputs. Variables in Jinja templates need no declaration."""
    texts = [template for template in instruction.templates if isinstance(template, SlotTemplate)]
    return [slot for slot in instruction.slots if any(slot in template.slots for template in texts)]


def _part(template: SlotSyntax, variable: str) -> _Part:
    if isinstance(template, SlotTemplate):
        names = template.origins(())[1::2]
        pieces: list[TurnPiece] = [template.literals[0]]
        for name, own in zip(names, template.literals[1:], strict=True):
            pieces += (InputSlot(name), own)
        always = not names or any(template.literals)
        return _Part([piece for piece in pieces if piece], "" if always else " or ".join(template.slots))
    text = template.text
    if not text:
        return _Part([])
    # Insert the text as a variable's value, because a value can't begin a section or a code fence.
    inner = free_name(variable, (text,))
    return _Part([InputSlot(inner)], inner, (Code(f"{{% set {inner} %}}{text}{{% endset %}}"),))


def _system_turn(system: str, part: _Part) -> list[TurnPiece]:
    """Return the system turn, or an empty list if the system text is empty."""
    pieces: list[TurnPiece] = ["\n", *part.pieces] if system and part.pieces else part.pieces
    if not part.unless_empty:
        return turn("system", [safe([system, *pieces])]) if system or pieces else []
    condition, end = Code(f"{{% if {part.unless_empty} %}}"), Code("{% endif %}")
    if system:
        return [*part.setting, *turn("system", [safe([system]), [condition], safe(pieces), [end]])]
    return [*part.setting, condition, *turn("system", [safe(pieces)]), end]


def _user_turn(part: _Part, *, takes_input: bool, waits: bool) -> list[TurnPiece]:
    """Return the user turn, or an empty list if there is no text and the history awaits the assistant."""
    made = turn("user", [safe([*part.pieces, *([InputSlot(_INPUT)] if takes_input else [])])])
    if not waits or (part.pieces and not part.unless_empty):
        return [*part.setting, *made]
    terms = ([part.unless_empty] if part.unless_empty else []) + ([f"{_INPUT} is defined"] if takes_input else [])
    if not terms:
        return []
    return [*part.setting, Code(f"{{% if {' or '.join(terms)} %}}"), *made, Code("{% endif %}")]


def _is_plain(message: Msg) -> bool:
    """Return True if a section can express a message, which requires a known role and plain text."""
    named = message.name == message.role or bool(_LABEL.fullmatch(message.name))
    return message.role in ROLES and isinstance(message.content, str) and not message.metadata and named


def _tool(tool: JsonObject, index: int) -> JsonObject:
    function = tool.get("function")
    if tool.get("type") != "function" or not isinstance(function, dict) or not function.keys() <= _FUNCTION:
        has = ", ".join(function if isinstance(function, dict) else tool)
        raise FormatError(
            f"tools[{index}] has type {tool.get('type')!r} and the fields {has}; a tool in a prompt file must be a "
            f"function with {', '.join(sorted(_FUNCTION))}"
        )
    check_references(function, f"tools[{index}]")
    return {"kind": "function", **function}
