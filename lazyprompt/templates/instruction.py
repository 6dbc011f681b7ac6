"""Instructions: the developer's text for the model, with slots for the input of a call, and how that input is read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, Self, TypeAlias, cast, get_args

from lazyprompt._base.frozen import read_only
from lazyprompt._base.json import checked, checked_text, well_formed
from lazyprompt.errors import SlotError, TemplateError, did_you_mean
from lazyprompt.messages.prompt import Text
from lazyprompt.templates.slots import SlotSyntax, SlotTemplate, listed, misfit, value_text

if TYPE_CHECKING:
    from lazyprompt.messages.msg import Msg

Instruction: TypeAlias = "str | Mapping[str, str] | None"
Syntax: TypeAlias = Literal["slots", "jinja2"]
# The prompter's own messages before and behind the earlier messages of a conversation.
Around: TypeAlias = "tuple[tuple[Msg, ...], tuple[Msg, ...]]"
# The system-level part, the user-level part, the user's text, and those messages.
Parts: TypeAlias = "tuple[Text, Text, str | None, Around]"

INPUT: Final = "input"
"""The key of the user's text in a dict input."""

Fixed: TypeAlias = "tuple[tuple[str, object], ...]"
"""Names with fixed values, or functions that give them."""

# The user's part of an instruction that has none, or where a tool loop leaves it out.
_NO_USER_PART = Text(("",), ("user",))
_NOTHING_AROUND: Around = ((), ())

# The sentences of the documents, to the byte ("referred" and all).
EXTRA_KEYS = "Here are some extra messages you can referred to:\n\n"
ALPACA_PREAMBLE = (
    "Below is an instruction that describes a task, paired with extra messages such as input that provides further "
    "context if possible. Write a response that appropriately completes the request.\n\n ### Instruction:\n"
)


@read_only
@dataclass(frozen=True, slots=True, repr=False)
class Filled:
    """An instruction with its values.

    Args:
        system_text: The system-level part.
        user_text: The user-level part.
        input: What the user says beside the slots; ``None`` where nothing was given.
    """

    system_text: Text
    user_text: Text
    input: str | None

    @property
    def system(self) -> str:
        """The system-level part as text."""
        return str(self.system_text)

    @property
    def user(self) -> str:
        """The user-level part as text."""
        return str(self.user_text)

    def __repr__(self) -> str:
        return f"Filled(system={self.system!r}, user={self.user!r}, input={self.input!r})"


class InstructionTemplate:
    """An instruction whose slots are filled with the caller's input.

    A string is a system-level instruction. A dict has the keys ``system`` and ``user``, one of them or both; nothing is
    added around either. Subclasses say what goes around a string: see :meth:`frame`.

    Args:
        instruction: The instruction; ``None`` is an empty one.
        extra_keys: Names of further slots, which are listed under headers behind the instruction.
        syntax: ``slots`` for ``{name}``, ``jinja2`` for Jinja (sandboxed).

    Raises:
        TemplateError: The instruction is neither text nor such a dict, an extra key is no identifier or named twice,
            there are extra keys but no instruction, or the Jinja syntax is wrong.
    """

    accepts_input: bool = True
    """Whether a text that fills no slot is what the user says (else it is an error)."""

    always_user_turn: ClassVar[bool] = True
    """True if a prompt template shows the user's section even without text, as the documents print it."""

    keeps_empty_turn: ClassVar[bool] = False
    """True if the OpenAI form has a user turn even without text, as the documents print it for Alpaca."""

    preamble: ClassVar[str] = ""
    """What stands before a system-level instruction."""

    # Pickles made before have none; they find out for each text.
    _text_name: str | None = None

    def __init__(
        self, instruction: Instruction = None, extra_keys: str | Iterable[str] | None = None, syntax: Syntax = "slots"
    ) -> None:
        system, user = self._levels(instruction, _extra_block(_names(extra_keys), syntax))
        parse = _parser(syntax)
        self._system = parse(system, "instruction")
        self._user = parse(user, "user")
        self._read_slots(has_escapes=syntax == "slots")

    def _read_slots(self, *, has_escapes: bool) -> None:
        """Find the slots of the parts, and with them the names that an input may have."""
        self.slots: tuple[str, ...] = tuple(dict.fromkeys(slot for part in self.templates for slot in part.slots))
        """The names of the slots that an input fills, in the order in which they first appear."""
        self._names = frozenset(self.slots)
        texts = tuple(template.text for template in self.templates) if has_escapes else ()
        self.input_form = InputForm(self.slots, frozenset(self._user.slots), self.accepts_input, texts=texts)
        """The names that an input may have."""
        self.has_functions = False
        """True if functions give fixed values."""
        self._names_with_input = self._names | {INPUT} if self.input_form.has_input else None
        self._text_name = self._name_of_text()

    @property
    def constant(self) -> frozenset[str]:
        """The parts that are the same in every prompt; a user's part with text is left out in a tool loop."""
        parts = {"instruction": self._system.slots, "user": self._user.text}
        return frozenset(name for name, varies in parts.items() if not varies)

    def frame(self, instruction: str, extra: str) -> str:
        """The whole text of a string instruction, with what goes around it.

        Args:
            instruction: The instruction.
            extra: The extra keys under their headers, or ``""``.

        Returns:
            The template's text.
        """
        return _join(instruction, extra)

    def _levels(self, instruction: Instruction, extra: str) -> tuple[str, str]:
        """The texts of the system-level and the user-level template."""
        if instruction is None or isinstance(instruction, str):
            checked_text(instruction, "the instruction", TemplateError)
            if extra and not instruction:
                raise TemplateError("extra_keys need an instruction to go with; it is empty")
            return self.frame(instruction or "", extra), ""
        system, user = _parts_of(instruction)
        if extra and not system and not user:
            raise TemplateError("extra_keys need an instruction to go with; both its parts are empty")
        return self.preamble + system, _join(user, extra)

    def at_user_level(self) -> Self:
        """A copy whose system-level part stands before the user-level part, for models without a system turn."""
        changed = copy(self)
        parse = type(self._system)
        changed._system = parse("", "instruction")  # noqa: SLF001 - a copy of our own
        changed._user = parse(self._system.text + self._user.text, "user")  # noqa: SLF001 - a copy of our own
        return changed

    def followed_by(self, text: str) -> Self:
        """Return a copy whose system-level part ends with a text without slots, on a line of its own."""
        changed = copy(self)
        parse, before = type(self._system), self._system.text
        line_end = "\n" if before and not before.endswith("\n") else ""
        literal = _in_slots(text) if parse is SlotTemplate else f"{{{{ {json.dumps(text, ensure_ascii=False)} }}}}"
        changed._system = parse(before + line_end + literal, "instruction")  # noqa: SLF001 - a copy of our own
        return changed

    @property
    def templates(self) -> tuple[SlotSyntax, ...]:
        """Its parts, parsed: the system-level one first, and the user-level one last."""
        return self._system, self._user

    @property
    def literals(self) -> tuple[str, ...]:
        """The developer's own text, in pieces."""
        return tuple(text for template in self.templates for text in template.literals)

    def fill(self, input: object = None) -> Filled:
        """Fill the slots.

        Args:
            input: A dict with a value for each slot, and under ``input`` the user's text, if no slot has that name.
                Text alone fills the only slot if that is called ``input``, stands in the user's part, or is Alpaca's;
                else it is the user's text.

        Returns:
            The filled instruction.

        Raises:
            SlotError: A value is missing, left over, or cannot become text.
        """
        return Filled(*self.parts(input)[:3])

    def parts(self, given: object, asked: str | None = None) -> Parts:
        """Fill the slots, and return the parts of a prompt.

        Args:
            given: As of :meth:`fill`.
            asked: In a tool loop, the user's last text in the history; else None. The user's part is then left out,
                unless the user's text or a question other than that is given.

        Raises:
            SlotError: As of :meth:`fill`. In a tool loop, the slots of the user's part alone may all be left out.
        """
        if asked is not None:
            return self._parts_in_loop(given, asked)
        if type(given) is str and self._text_name is not None:
            values: dict[str, Any] = {self._text_name: given}
        else:
            # A cast would be a call, and one that is made for each prompt.
            values = given if type(given) is dict else self.by_name(given)  # pyright: ignore[reportUnknownVariableType]
            if values.keys() != self._names and values.keys() != self._names_with_input:
                values = self.by_name(values)
        for value in values.values():
            # Plain ASCII text, the common case, needs no look; everything else is made text and checked.
            if type(value) is not str or not value.isascii():
                refuse_none(values)
                values = self._texts(values)
                break
        return self._filled(values)

    def _filled(self, values: Mapping[str, Any], *, user: bool = True) -> Parts:
        """Return the parts filled with checked values, or all but those of the user."""
        system = self._system.filled(values)
        if not user:
            return system, _NO_USER_PART, None, _NOTHING_AROUND
        text: str | None = values[INPUT] if self._names_with_input and INPUT in values else None
        return system, self._user.filled(values) if self._user.text else _NO_USER_PART, text, _NOTHING_AROUND

    def _parts_in_loop(self, given: object, asked: str) -> Parts:
        values = self.by_name(given, asked)
        fixed = dict(self.input_form.fixed)
        says = [str(values[name]) for name in self.user_only if name in values and name not in fixed]
        # If nobody asked yet, a part without values is written.
        is_whole = not asked and all(name in values for name in self.user_only)
        if not says and not is_whole and not (self.input_form.has_input and values.get(INPUT)):
            return self._filled(self._texts(values), user=False)
        # The user's part is whole or left out.
        whole = self.parts(values)
        _, user, text, _ = whole
        return whole if text or not is_asked(user.parts, says, asked) else self._filled(self._texts(values), user=False)

    def _texts(self, values: Mapping[str, object]) -> dict[str, object]:
        return {name: self._coerced(value, name) for name, value in values.items()}

    def _coerced(self, value: object, name: str) -> object:
        """Return a value as its template takes it; the user's text is text in every syntax."""
        return self._system.coerce(value, name) if name in self._names else value_text(value, name)

    def partial(self, /, **values: object) -> Self:
        """Return a copy with values for some slots, which an input may then leave out; those of an input win.

        Args:
            **values: A value for each slot, or a function without arguments, which is called once for each prompt.

        Raises:
            SlotError: A name is that of no slot, or a value is None or cannot become text.
        """
        changed = copy(self)
        form = self.input_form
        fixed = fixed_with(form.fixed, values, form.slots, self._fixed_value)
        changed.input_form = form._replace(fixed=fixed)
        changed.has_functions = any(callable(value) for _, value in fixed)
        changed.slots = tuple(name for name in form.slots if name not in dict(fixed))
        changed._text_name = None  # noqa: SLF001 - a copy of our own
        return changed

    def _fixed_value(self, value: object, name: str) -> object:
        """Return a copy of a list, of which a budget may drop items; any other value as its template takes it."""
        if isinstance(value, list | tuple):
            return checked(cast("object", value), f"the value of slot {name!r}", SlotError)
        return self._system.coerce(value, name)

    def _name_of_text(self) -> str | None:
        """Return what a text without a name is alone the input of: the only slot, or the user's text without slots."""
        form = self.input_form
        if not form.slots:
            return INPUT if form.has_input else None
        name = name_of_text(form) if len(form.slots) == 1 else INPUT
        return None if name == INPUT and INPUT not in form.slots else name

    def by_name(self, given: object, asked: str | None = None) -> dict[str, object]:
        """Read an input as values by the names of their slots, and the user's text under ``input``.

        Args:
            given: As of :meth:`fill`.
            asked: As of :meth:`parts`.

        Raises:
            SlotError: A slot has no value, a value no slot, or a value is None.
        """
        return read_input(given, self.input_form, () if asked is None else self.user_only)

    @property
    def user_only(self) -> tuple[str, ...]:
        """The slots of the user's part that the system-level part has not."""
        return tuple(name for name in self._user.slots if name not in self._system.slots)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(slots={self.slots!r})"


class ChatInstructionTemplate(InstructionTemplate):
    """The instruction of a chat: a string is followed by a blank line."""

    def frame(self, instruction: str, extra: str) -> str:
        """The instruction, the extra keys, and a line's end behind each."""
        return f"{instruction}\n{extra}\n" if instruction else ""


class AlpacaInstructionTemplate(InstructionTemplate):
    """The instruction of the Alpaca form: the standard preamble before it, and no text beside its slots.

    With ``{"user": ...}`` alone, that is the instruction.
    """

    accepts_input: bool = False
    keeps_empty_turn: ClassVar[bool] = True
    preamble: ClassVar[str] = ALPACA_PREAMBLE

    def frame(self, instruction: str, extra: str) -> str:
        """The preamble, the instruction, a blank line, the extra keys."""
        return f"{self.preamble}{instruction}\n\n{extra}"

    def _levels(self, instruction: Instruction, extra: str) -> tuple[str, str]:
        if isinstance(instruction, Mapping):
            system, user = _parts_of(instruction)
            if not (system and user):
                instruction = system or user
        return super()._levels(instruction, extra)


def _parts_of(instruction: object) -> tuple[str, str]:
    """The system and user part of a dict instruction."""
    if not isinstance(instruction, Mapping):
        raise TemplateError(
            f"an instruction is text or a dict with the keys 'system' and 'user', not a {type(instruction).__name__}"
        )
    known = ("system", "user")
    parts = cast("Mapping[str, object]", instruction)
    for key, value in parts.items():
        if key not in known:
            raise TemplateError(
                f"the instruction has the key {key!r}{did_you_mean(str(key), known)}; it takes {listed(known)}"
            )
        if not isinstance(value, str):
            raise TemplateError(
                f"the {key} part of the instruction is a {type(value).__name__}; leave it out or give text"
            )
        well_formed(value, f"the {key} part of the instruction", TemplateError)
    return str(parts.get("system", "")), str(parts.get("user", ""))


def _names(extra_keys: str | Iterable[str] | None) -> tuple[str, ...]:
    if not isinstance(cast("object", extra_keys), Iterable | None):
        raise TemplateError(f"extra_keys is a {type(extra_keys).__name__}; give a name or a list of names")
    names = (extra_keys,) if isinstance(extra_keys, str) else tuple(extra_keys or ())
    for index, name in enumerate(names):
        if not isinstance(cast("object", name), str) or not name.isidentifier():
            raise TemplateError(f"extra_keys[{index}] is {name!r}; a key is a name of letters, digits and underscores")
        if name in names[:index]:
            raise TemplateError(f"extra_keys[{index}] names {name!r} a second time")
    return names


def _extra_block(names: tuple[str, ...], syntax: Syntax) -> str:
    if not names:
        return ""
    slot = "{%s}" if syntax == "slots" else "{{ %s }}"
    return EXTRA_KEYS + "".join(f"### {name}:\n{slot % name}\n\n" for name in names)


def _in_slots(text: str) -> str:
    """Return a text as the slot syntax writes it: braces around a name are doubled."""
    return re.sub(r"\{([^{}\s]+)\}", lambda run: f"{{{run[0]}}}" if run[1].isidentifier() else run[0], text)


def _parser(syntax: str) -> type[SlotSyntax]:
    if syntax == "slots":
        return SlotTemplate
    if syntax == "jinja2":
        from lazyprompt.templates.jinja import JinjaTemplate  # noqa: PLC0415 - importing jinja2 costs 99 ms

        return JinjaTemplate
    known = get_args(Syntax)
    raise TemplateError(f"syntax {syntax!r} is unknown{did_you_mean(str(syntax), known)}; known are {listed(known)}")


def _join(text: str, extra: str) -> str:
    return f"{text}\n\n{extra}" if text and extra else text or extra


class InputForm(NamedTuple):
    """The names that an input may have.

    Attributes:
        slots: The slots, in template order.
        user_slots: The slots in the user's part.
        takes_text: True if text beside the slots is the user's; else all text goes into slots, as in Alpaca.
        fixed: Slots with the values that they have where an input leaves them out, or functions that give these.
        texts: The templates of an instruction with slots, as they were written.
        has_defaults: True if slots may have values of their own, as the inputs of a prompt file have.
    """

    slots: tuple[str, ...]
    user_slots: frozenset[str] = frozenset()
    takes_text: bool = True
    fixed: Fixed = ()
    texts: tuple[str, ...] = ()
    has_defaults: bool = False

    @property
    def has_input(self) -> bool:
        """True if the key ``input`` is the user's text: no slot has that name."""
        return self.takes_text and INPUT not in self.slots


def read_input(given: object, form: InputForm, optional: Container[str] = ()) -> dict[str, object]:
    """Read an input as values by name.

    Args:
        given: A dict; or one value, which fills a slot or is the user's text (see :func:`name_of_text`); or None. Where
            a dict has all slots, and there are any, one further key with text is the user's text, whatever its name.
        form: The names that it may have.
        optional: The slots that may be left out.

    Returns:
        A new dict: a value for each slot that is not optional, and the user's text under ``input``.

    Raises:
        SlotError: A slot has no value, a value no slot, or a value is None.
    """
    named = dict(cast("Mapping[str, object]", given)) if isinstance(given, Mapping) else {}
    values = {**called(form.fixed, named), **named}
    takes = (INPUT,) if form.has_input else ()
    if given is not None and not isinstance(given, Mapping):
        name = name_of_text(form, values)
        values[name] = given
        if missing := [slot for slot in form.slots if slot not in values]:
            wanted = dict.fromkeys((*missing, name))
            kind, shown = type(given).__name__, dict_form(wanted)
            if len(missing) == 1:
                fault = (
                    f"no value for {listed(missing)}: a {kind} without a name is the user's text; give a dict, {shown}"
                )
            else:
                fault = (
                    f"the input is one {kind}, but there are {len(missing)} slots; "
                    f"give a dict with a value for each of {listed(missing)}, {shown}"
                )
            raise SlotError(fault + _formula_hints(missing, form))
    missing = [slot for slot in form.slots if slot not in values]
    left_over = [name for name in values if name not in form.slots and name not in takes]
    escaped = [name for name in left_over if any(f"{{{{{name}}}}}" in text for text in form.texts)]
    if (
        takes
        and form.slots
        and not missing
        and INPUT not in values
        and len(left_over) == 1
        and not escaped
        and _is_text(left_over[0], values)
    ):
        values[INPUT] = values.pop(left_over[0])
    elif left_over or any(slot not in optional for slot in missing):
        needed = [slot for slot in form.slots if slot in values or slot not in optional]
        hints = (f"; {{{{{name}}}}} is the text {{{name}}}, the slot is written {{{name}}}" for name in escaped)
        raise SlotError(misfit(values, needed, takes) + "".join(hints) + _formula_hints(missing, form))
    refuse_none(values)
    return values


# What stands before a brace in LaTeX and in regular expressions: a command, an index, a set or group.
_FORMULA = r"(?:\\[A-Za-z]+|\^|\b[A-Za-z]_|\]|\))(?:\{{[^{{}}\s]*\}})*\{{{}\}}"


def _formula_hints(missing: Iterable[str], form: InputForm) -> str:
    """Explain how to write the braces of slots without a value that look like a part of LaTeX or of a pattern."""
    found = [name for name in missing if any(re.search(_FORMULA.format(re.escape(name)), text) for text in form.texts)]
    if not found:
        return ""
    braces = ", ".join(f"{{{{{name}}}}}" for name in found)
    return f"; if they are LaTeX or a pattern and no slots, write {braces}"


def fixed_with(
    fixed: Fixed, values: Mapping[str, object], slots: Sequence[str], coerce: Callable[[object, str], object]
) -> Fixed:
    """Return fixed values with more of them.

    Args:
        fixed: The values that are fixed already; new ones replace them.
        values: Values for slots, or functions without arguments that give them.
        slots: All slots.
        coerce: Makes a value and its slot's name what a template takes; what it returns shares nothing mutable.

    Raises:
        SlotError: A name is that of no slot, or a value is None or cannot be taken.
    """
    if unknown := [name for name in values if name not in slots]:
        faults = [f"no slot named {name!r}{did_you_mean(name, slots)}" for name in unknown]
        raise SlotError(
            f"{'; '.join(faults)}; " + (f"the slots are {listed(slots)}" if slots else "there are no slots")
        )
    refuse_none(values)
    held = {name: value if callable(value) else coerce(value, name) for name, value in values.items()}
    return tuple({**dict(fixed), **held}.items())


def called(fixed: Fixed, given: Container[str]) -> dict[str, object]:
    """Return the fixed values whose names are not given; functions are called."""
    values = {name: value for name, value in fixed if name not in given}
    for name, value in values.items():
        if callable(value):
            try:
                values[name] = value()
            except Exception as error:
                error.add_note(f"raised by the function that gives the value of {name!r}")
                raise
    return values


def name_of_text(form: InputForm, given: Container[str] = ()) -> str:
    """Return the name that a text without a name gets.

    It fills the only open slot where that is called ``input``, stands in the user's part, or text goes into slots
    only; otherwise it is the user's text.

    Args:
        form: The names that the input may have.
        given: The slots that have a value already.

    Raises:
        SlotError: Text goes into slots only, and there is not just one that is open.
    """
    left = [slot for slot in form.slots if slot not in given]
    if len(left) == 1 and (left[0] == INPUT or left[0] in form.user_slots or not form.takes_text):
        return left[0]
    if form.takes_text:
        return INPUT
    if left:
        fault = f"a text without a name could fill {len(left)} slots; give a dict, {dict_form(left)}"
        raise SlotError(fault + _formula_hints(left, form))
    raise SlotError(
        "the input has no slot to go to; put one into the instruction, as {input}, or name it in extra_keys"
    )


def is_asked(user: Sequence[str], values: Iterable[str], asked: str) -> bool:
    """Return True if a filled user's part repeats the user's question.

    The user's last text is that part, or begins with it where it ends in the template's own text, or is a value alone.

    Args:
        user: The parts of it: own text and values in turn.
        values: The values of its slots.
        asked: The user's last text.
    """
    text, before = "".join(user), asked.strip()
    begins = bool(user[-1].strip()) and asked.startswith(text)
    return begins or before in (text.strip(), *(value.strip() for value in values))


def refuse_none(values: Mapping[str, object]) -> None:
    """Refuse None as a value.

    Raises:
        SlotError: A value is None.
    """
    if names := [name for name, value in values.items() if value is None]:
        raise SlotError(f"the value of {listed(names)} is None; give a value, or '' for nothing")


def dict_form(names: Iterable[str]) -> str:
    """Return a dict input as an error shows it."""
    return f"{{{', '.join(f'{name!r}: ...' for name in names)}}}"


def _is_text(name: object, values: Mapping[str, object]) -> bool:
    """True if a key and its value are text."""
    return isinstance(name, str) and isinstance(values[name], str)
