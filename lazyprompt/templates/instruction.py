"""Instruction templates (the developer's text with slots), and functions that parse the input for the slots."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, Self, TypeAlias, TypeGuard, get_args

from lazyprompt._base.frozen import read_only
from lazyprompt._base.json import checked, checked_text, is_mapping, is_sequence, well_formed
from lazyprompt.errors import SlotError, TemplateError, did_you_mean
from lazyprompt.messages.prompt import Text
from lazyprompt.templates.slots import SlotSyntax, SlotTemplate, listed, misfit, value_text

if TYPE_CHECKING:
    from lazyprompt.messages.msg import Msg

Instruction: TypeAlias = "str | Mapping[str, str] | None"
Syntax: TypeAlias = Literal["slots", "jinja2"]
# The messages that a prompter adds before the history, and those that it adds after the history.
Around: TypeAlias = "tuple[tuple[Msg, ...], tuple[Msg, ...]]"
# A filled instruction: its system-level text, its user-level text, the user's text, and the messages that the prompter
# adds around the history.
Parts: TypeAlias = "tuple[Text, Text, str | None, Around]"

INPUT: Final = "input"
"""The key for the user's text in a dict input."""

Fixed: TypeAlias = "tuple[tuple[str, object], ...]"
"""Pairs of a slot name and either the slot's fixed value or a function that returns this value."""

# The user-level part of an instruction without user-level text, and of any instruction whose user-level part a tool
# loop drops.
_NO_USER_PART = Text(("",), ("user",))
_NOTHING_AROUND: Around = ((), ())

# LazyLLM's wording, copied verbatim, including the typo "referred".
EXTRA_KEYS = "Here are some extra messages you can referred to:\n\n"
ALPACA_PREAMBLE = (
    "Below is an instruction that describes a task, paired with extra messages such as input that provides further "
    "context if possible. Write a response that appropriately completes the request.\n\n ### Instruction:\n"
)


@read_only
@dataclass(frozen=True, slots=True, repr=False)
class Filled:
    """A filled instruction.

    Args:
        system_text: The system-level part of the instruction.
        user_text: The user-level part of the instruction.
        input: The user's text if it filled no slot of the instruction, or None if there is no such text.
    """

    system_text: Text
    user_text: Text
    input: str | None

    @property
    def system(self) -> str:
        """The system-level part as a string."""
        return str(self.system_text)

    @property
    def user(self) -> str:
        """The user-level part as a string."""
        return str(self.user_text)

    def __repr__(self) -> str:
        return f"Filled(system={self.system!r}, user={self.user!r}, input={self.input!r})"


class InstructionTemplate:
    """An instruction whose slots are filled with the caller's input.

    A string is a system-level instruction, and subclasses may add text around it in :meth:`frame`. A dict must contain
    ``system``, ``user`` or both, and its texts are used unchanged.

    Args:
        instruction: The instruction; None for an empty instruction.
        extra_keys: The names of additional slots, which are placed under headers after the instruction.
        syntax: ``slots`` for ``{name}`` or ``jinja2`` for sandboxed Jinja.

    Raises:
        TemplateError: The instruction or its Jinja syntax is invalid, an extra key is invalid or duplicate, or extra
            keys are given without an instruction.
    """

    accepts_input: bool = True
    """True if text that fills no slot is used as the user's text; False if such text is an error."""

    always_user_turn: ClassVar[bool] = True
    """True if a prompt template renders the user's section even without text."""

    keeps_empty_turn: ClassVar[bool] = False
    """True if the OpenAI format includes a user turn even without text, as Alpaca requires."""

    preamble: ClassVar[str] = ""
    """The text before a system-level instruction."""

    # The slot that a plain string fills. Templates pickled by older versions lack this attribute, so their calls use
    # the default None and search for the slot.
    _text_name: str | None = None

    def __init__(
        self, instruction: Instruction = None, extra_keys: str | Iterable[str] | None = None, syntax: Syntax = "slots"
    ) -> None:
        system, user = self._levels(instruction, _extra_block(_names(extra_keys), syntax))
        parse = syntax_parser(syntax)
        self._system = parse(system, "instruction")
        self._user = parse(user, "user")
        self._read_slots(has_escapes=syntax == "slots")

    def _read_slots(self, *, has_escapes: bool) -> None:
        """Collect the slots in all parts of the instruction, and the keys that an input dict may contain."""
        self.slots: tuple[str, ...] = tuple(dict.fromkeys(slot for part in self.templates for slot in part.slots))
        """The names of the slots without fixed values, in order of first appearance."""
        self._names = frozenset(self.slots)
        texts = tuple(template.text for template in self.templates) if has_escapes else ()
        self.input_form = InputForm(self.slots, frozenset(self._user.slots), self.accepts_input, texts=texts)
        """The keys that an input may contain."""
        self.has_functions = False
        """True if at least one fixed value is a function."""
        self._names_with_input = self._names | {INPUT} if self.input_form.has_input else None
        self._text_name = self._name_of_text()

    @property
    def constant(self) -> frozenset[str]:
        """The names of the parts that are the same in every prompt.

        A user-level part with text is excluded, because it may be omitted from the prompts of a tool loop.
        """
        parts = {"instruction": self._system.slots, "user": self._user.text}
        return frozenset(name for name, varies in parts.items() if not varies)

    def frame(self, instruction: str, extra: str) -> str:
        """Return the template source of a string instruction, with the format's fixed text and the extra text.

        Args:
            instruction: The source of the instruction.
            extra: The text with a header and a slot for each extra key; empty if there are no extra keys.
        """
        return _join(instruction, extra)

    def _levels(self, instruction: Instruction, extra: str) -> tuple[str, str]:
        """Return the sources of the system-level and the user-level template."""
        if instruction is None or isinstance(instruction, str):
            checked_text(instruction, "the instruction", TemplateError)
            if extra and not instruction:
                raise TemplateError("extra_keys requires an instruction, but the instruction is empty")
            return self.frame(instruction or "", extra), ""
        system, user = _parts_of(instruction)
        if extra and not system and not user:
            raise TemplateError("extra_keys requires an instruction, but both parts of the instruction are empty")
        return self.preamble + system, _join(user, extra)

    def at_user_level(self) -> Self:
        """Return a copy with the system-level part moved to the user-level part, for models without a system role."""
        changed = copy(self)
        parse = type(self._system)
        changed._system = parse("", "instruction")  # noqa: SLF001 - a copy made by this method
        changed._user = parse(self._system.text + self._user.text, "user")  # noqa: SLF001 - a copy made by this method
        return changed

    def followed_by(self, text: str) -> Self:
        """Return a copy with ``text`` appended to the system-level part as literal text on a new line."""
        changed = copy(self)
        parse, before = type(self._system), self._system.text
        line_end = "\n" if before and not before.endswith("\n") else ""
        literal = _in_slots(text) if parse is SlotTemplate else f"{{{{ {json.dumps(text, ensure_ascii=False)} }}}}"
        changed._system = parse(before + line_end + literal, "instruction")  # noqa: SLF001 - a copy made by this method
        return changed

    @property
    def templates(self) -> tuple[SlotSyntax, ...]:
        """The parsed templates: the first is the system-level part, and the last is the user-level part."""
        return self._system, self._user

    @property
    def literals(self) -> tuple[str, ...]:
        """The literal texts of all templates, without the slots."""
        return tuple(text for template in self.templates for text in template.literals)

    def fill(self, input: object = None) -> Filled:
        """Fill the slots of the instruction.

        Args:
            input: A dict with a value for each slot, and with the user's text under ``input`` if no slot has this name.
                If the input is a string, it fills the template's only slot if that slot is named ``input`` or is in the
                user-level part. In the Alpaca format, a string input always fills the template's only slot. A string
                that fills no slot is the user's text.

        Returns:
            The filled instruction.

        Raises:
            SlotError: A slot has no value, a name is not a slot, or a value can't be converted to text.
        """
        return Filled(*self.parts(input)[:3])

    def parts(self, given: object, asked: str | None = None) -> Parts:
        """Fill the slots, and return the parts of a prompt.

        Args:
            given: The input, as for :meth:`fill`. In a tool loop, slots that occur only in the user-level part are
                optional.
            asked: The text of the history's last user message if the prompt continues a tool loop, or None otherwise.
                In a tool loop, the user-level part is dropped unless the input contains text under ``input`` or values
                for a new question.

        Raises:
            SlotError: A slot has no value, a name is not a slot, or a value can't be converted to text.
        """
        if asked is not None:
            return self._parts_in_loop(given, asked)
        if type(given) is str and self._text_name is not None:
            values: dict[str, Any] = {self._text_name: given}
        else:
            # For speed, check the type here instead of calling a type guard.
            values = given if type(given) is dict else self.by_name(given)  # pyright: ignore[reportUnknownVariableType]
            if values.keys() != self._names and values.keys() != self._names_with_input:
                values = self.by_name(values)
        for value in values.values():
            # For speed, skip the conversion and the checks if every value is a plain ASCII string.
            if type(value) is not str or not value.isascii():
                refuse_none(values)
                values = self._texts(values)
                break
        return self._filled(values)

    def _filled(self, values: Mapping[str, Any], *, user: bool = True) -> Parts:
        """Fill the system-level part and, unless ``user`` is False, the user-level part with checked values."""
        system = self._system.filled(values)
        if not user:
            return system, _NO_USER_PART, None, _NOTHING_AROUND
        text: str | None = values[INPUT] if self._names_with_input and INPUT in values else None
        return system, self._user.filled(values) if self._user.text else _NO_USER_PART, text, _NOTHING_AROUND

    def _parts_in_loop(self, given: object, asked: str) -> Parts:
        values = self.by_name(given, asked)
        fixed = dict(self.input_form.fixed)
        says = [str(values[name]) for name in self.user_only if name in values and name not in fixed]
        # If the history contains no user text, also render a user-level part whose slots all have fixed values.
        is_whole = not asked and all(name in values for name in self.user_only)
        if not says and not is_whole and not (self.input_form.has_input and values.get(INPUT)):
            return self._filled(self._texts(values), user=False)
        whole = self.parts(values)
        _, user, text, _ = whole
        return whole if text or not is_asked(user.parts, says, asked) else self._filled(self._texts(values), user=False)

    def _texts(self, values: Mapping[str, object]) -> dict[str, object]:
        return {name: self._coerced(value, name) for name, value in values.items()}

    def _coerced(self, value: object, name: str) -> object:
        """Convert a slot's value as the template's syntax requires, and convert the user's text to a string."""
        return self._system.coerce(value, name) if name in self._names else value_text(value, name)

    def partial(self, /, **values: object) -> Self:
        """Return a copy with fixed values for some slots. Values in an input override the fixed values.

        Args:
            **values: The values by slot name. A function without arguments is called once for each prompt.

        Raises:
            SlotError: A name is not a slot, or a value is None or can't be converted to text.
        """
        changed = copy(self)
        form = self.input_form
        fixed = fixed_with(form.fixed, values, form.slots, self._fixed_value)
        changed.input_form = form._replace(fixed=fixed)
        changed.has_functions = any(callable(value) for _, value in fixed)
        changed.slots = tuple(name for name in form.slots if name not in dict(fixed))
        changed._text_name = None  # noqa: SLF001 - a copy made by this method
        return changed

    def _fixed_value(self, value: object, name: str) -> object:
        """Convert a slot's fixed value as the syntax requires; only copy a list, so that a budget can drop items."""
        if is_sequence(value):
            return checked(value, f"the value of slot {name!r}", SlotError)
        return self._system.coerce(value, name)

    def _name_of_text(self) -> str | None:
        """Return the name of the slot that a plain string fills, if every plain string fills the same slot."""
        form = self.input_form
        if not form.slots:
            return INPUT if form.has_input else None
        name = name_of_text(form) if len(form.slots) == 1 else INPUT
        return None if name == INPUT and INPUT not in form.slots else name

    def by_name(self, given: object, asked: str | None = None) -> dict[str, object]:
        """Parse an input into values by slot name, with the user's text under ``input``.

        Args:
            given: The input, as for :meth:`fill`.
            asked: The text of the history's last user message if the prompt continues a tool loop, or None otherwise.

        Raises:
            SlotError: A slot has no value, a name is not a slot, or a value is None.
        """
        return read_input(given, self.input_form, () if asked is None else self.user_only)

    @property
    def user_only(self) -> tuple[str, ...]:
        """The names of slots that occur only in the user-level part."""
        return tuple(name for name in self._user.slots if name not in self._system.slots)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(slots={self.slots!r})"


class ChatInstructionTemplate(InstructionTemplate):
    """An instruction for chat models. A blank line follows an instruction that is a string."""

    def frame(self, instruction: str, extra: str) -> str:
        """Return the instruction and the slots for the extra keys, each followed by a newline."""
        return f"{instruction}\n{extra}\n" if instruction else ""


class AlpacaInstructionTemplate(InstructionTemplate):
    """An instruction in the Alpaca format, with the standard preamble. Text that fills no slot is an error.

    A dict that contains only ``user`` is treated like a string instruction.
    """

    accepts_input: bool = False
    keeps_empty_turn: ClassVar[bool] = True
    preamble: ClassVar[str] = ALPACA_PREAMBLE

    def frame(self, instruction: str, extra: str) -> str:
        """Return the preamble, the instruction, a blank line and the slots for the extra keys."""
        return f"{self.preamble}{instruction}\n\n{extra}"

    def _levels(self, instruction: Instruction, extra: str) -> tuple[str, str]:
        if isinstance(instruction, Mapping):
            system, user = _parts_of(instruction)
            if not (system and user):
                instruction = system or user
        return super()._levels(instruction, extra)


def _parts_of(instruction: object) -> tuple[str, str]:
    """Return the system-level and the user-level part of a dict instruction."""
    if not is_mapping(instruction):
        raise TemplateError(
            f"the instruction must be a string or a dict with 'system' and 'user', not {type(instruction).__name__}"
        )
    known = ("system", "user")
    for key, value in instruction.items():
        if key not in known:
            raise TemplateError(
                f"the instruction contains the unknown key {key!r}{did_you_mean(str(key), known)}; expected one of "
                f"{listed(known)}"
            )
        if not isinstance(value, str):
            raise TemplateError(f"the {key} part of the instruction must be a string, not {type(value).__name__}")
        well_formed(value, f"the {key} part of the instruction", TemplateError)
    return str(instruction.get("system", "")), str(instruction.get("user", ""))


def _names(extra_keys: object) -> tuple[str, ...]:
    given = (extra_keys,) if isinstance(extra_keys, str) else () if extra_keys is None else extra_keys
    if not _is_iterable(given):
        raise TemplateError(f"extra_keys must be a name or a list of names, not {type(extra_keys).__name__}")
    names: list[str] = []
    for index, name in enumerate(given):
        if not isinstance(name, str) or not name.isidentifier():
            raise TemplateError(f"extra_keys[{index}] must contain only letters, digits and underscores, not {name!r}")
        if name in names:
            raise TemplateError(f"extra_keys[{index}] is the duplicate name {name!r}; use unique names")
        names.append(name)
    return tuple(names)


def _is_iterable(value: object) -> TypeGuard[Iterable[object]]:
    return isinstance(value, Iterable)


def _extra_block(names: tuple[str, ...], syntax: Syntax) -> str:
    if not names:
        return ""
    slot = "{%s}" if syntax == "slots" else "{{ %s }}"
    return EXTRA_KEYS + "".join(f"### {name}:\n{slot % name}\n\n" for name in names)


def _in_slots(text: str) -> str:
    """Escape a text for the slot syntax by doubling the braces around each name."""
    return re.sub(r"\{([^{}\s]+)\}", lambda run: f"{{{run[0]}}}" if run[1].isidentifier() else run[0], text)


def syntax_parser(syntax: str) -> type[SlotSyntax]:
    """Return the template class for a syntax.

    Raises:
        TemplateError: The syntax is unknown.
    """
    if syntax == "slots":
        return SlotTemplate
    if syntax == "jinja2":
        from lazyprompt.templates.jinja import JinjaTemplate  # noqa: PLC0415 - importing jinja2 costs 99 ms

        return JinjaTemplate
    known = get_args(Syntax)
    raise TemplateError(f"unknown syntax {syntax!r}{did_you_mean(str(syntax), known)}; expected one of {listed(known)}")


def _join(text: str, extra: str) -> str:
    return f"{text}\n\n{extra}" if text and extra else text or extra


class InputForm(NamedTuple):
    """The keys that an input may contain.

    Attributes:
        slots: The names of the slots, in template order.
        user_slots: The names of the slots in the user-level part.
        takes_text: True if text that fills no slot is the user's text; False if such text is an error, as in Alpaca.
        fixed: Pairs of a slot name and either the default value or a function that returns the default value.
        texts: The sources of templates in slot syntax.
        has_defaults: True if slots may have defaults, like the inputs in a prompt file.
    """

    slots: tuple[str, ...]
    user_slots: frozenset[str] = frozenset()
    takes_text: bool = True
    fixed: Fixed = ()
    texts: tuple[str, ...] = ()
    has_defaults: bool = False

    @property
    def has_input(self) -> bool:
        """True if the value of the key ``input`` is the user's text, because no slot has this name."""
        return self.takes_text and INPUT not in self.slots


def read_input(given: object, form: InputForm, optional: Container[str] = ()) -> dict[str, object]:
    """Parse an input into values by slot name.

    Args:
        given: A dict, a single value (see :func:`name_of_text`), or None. If a dict contains a value for every slot,
            the text under one additional key with any name is the user's text.
        form: The keys that the input may contain.
        optional: The names of slots that need no value.

    Returns:
        A new dict with a value for each slot that is not optional, and with the user's text under ``input``.

    Raises:
        SlotError: A slot has no value, a name is not a slot, or a value is None.
    """
    named = dict(given) if is_mapping(given) else {}
    values = {**called(form.fixed, named), **named}
    takes = (INPUT,) if form.has_input else ()
    if given is not None and not isinstance(given, Mapping):
        name = name_of_text(form, values)
        values[name] = given
        if missing := [slot for slot in form.slots if slot not in values]:
            wanted = dict.fromkeys((*missing, name))
            kind, shown = type(given).__name__, dict_form(wanted)
            if len(missing) == 1:
                fault = f"no value for {listed(missing)}; a single {kind} is the user's text, so pass a dict, {shown}"
            else:
                fault = (
                    f"the input is a single {kind}, but the template has {len(missing)} slots; "
                    f"pass a dict with a value for each of {listed(missing)}, {shown}"
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
        hints = (f"; {{{{{name}}}}} is the literal text {{{name}}}, whereas {{{name}}} is a slot" for name in escaped)
        raise SlotError(misfit(values, needed, takes) + "".join(hints) + _formula_hints(missing, form))
    refuse_none(values)
    return values


# Matches a name in braces that is probably part of LaTeX (after a command, ``^`` or ``_``) or of a regular expression
# (after ``]`` or ``)``).
_FORMULA = r"(?:\\[A-Za-z]+|\^|\b[A-Za-z]_|\]|\))(?:\{{[^{{}}\s]*\}})*\{{{}\}}"


def _formula_hints(missing: Iterable[str], form: InputForm) -> str:
    """Explain, for an error message, how to escape slots that look like parts of LaTeX or a regular expression."""
    found = [name for name in missing if any(re.search(_FORMULA.format(re.escape(name)), text) for text in form.texts)]
    if not found:
        return ""
    braces = ", ".join(f"{{{{{name}}}}}" for name in found)
    return f"; if they are part of LaTeX or a regular expression, write {braces}"


def fixed_with(
    fixed: Fixed, values: Mapping[str, object], slots: Sequence[str], coerce: Callable[[object, str], object]
) -> Fixed:
    """Add or replace fixed values for slots.

    Args:
        fixed: The existing fixed values.
        values: The new values by slot name, or functions without arguments that return the values.
        slots: The names of all slots.
        coerce: A function that converts a value for a slot, given the value and the slot's name. The converted value
            must not share mutable data with the original value.

    Raises:
        SlotError: A name is not a slot, or a value is None or can't be converted.
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
    """Return the fixed values of the slots that have no given value, and call the functions among these values."""
    values = {name: value for name, value in fixed if name not in given}
    for name, value in values.items():
        if callable(value):
            try:
                values[name] = value()
            except Exception as error:
                error.add_note(f"raised by the function for the value of {name!r}")
                raise
    return values


def name_of_text(form: InputForm, given: Container[str] = ()) -> str:
    """Return the name of the slot that a plain string fills, or ``input`` for the user's text.

    A plain string fills the only slot without a value if that slot is named ``input`` or is in the user-level part. If
    ``form.takes_text`` is False, the string always fills the only slot without a value. A string that fills no slot is
    the user's text.

    Args:
        form: The keys that the input may contain.
        given: The slots that already have a value.

    Raises:
        SlotError: ``form.takes_text`` is False, but the number of slots without a value is not one.
    """
    left = [slot for slot in form.slots if slot not in given]
    if len(left) == 1 and (left[0] == INPUT or left[0] in form.user_slots or not form.takes_text):
        return left[0]
    if form.takes_text:
        return INPUT
    if left:
        fault = f"the input is a single text, but the template has {len(left)} slots; pass a dict, {dict_form(left)}"
        raise SlotError(fault + _formula_hints(left, form))
    raise SlotError("no slot for the input; add a slot such as {input} to the instruction, or a name to extra_keys")


def is_asked(user: Sequence[str], values: Iterable[str], asked: str) -> bool:
    """Return True if a filled user-level part repeats the text of the history's last user message.

    The user-level part repeats ``asked`` if ``asked`` equals the whole filled part or one of its slot values. If the
    part ends with literal text, it is enough that ``asked`` begins with the whole filled part.

    Args:
        user: The filled user-level part, as alternating literal texts and values.
        values: The values of the part's slots.
        asked: The text of the history's last user message.
    """
    text, before = "".join(user), asked.strip()
    begins = bool(user[-1].strip()) and asked.startswith(text)
    return begins or before in (text.strip(), *(value.strip() for value in values))


def refuse_none(values: Mapping[str, object]) -> None:
    """Check that no value is None.

    Raises:
        SlotError: A value is None.
    """
    if names := [name for name, value in values.items() if value is None]:
        raise SlotError(f"the value of {listed(names)} is None; pass a value, or '' for empty text")


def dict_form(names: Iterable[str]) -> str:
    """Return an example of a dict input, for error messages."""
    return f"{{{', '.join(f'{name!r}: ...' for name in names)}}}"


def _is_text(name: object, values: Mapping[str, object]) -> bool:
    return isinstance(name, str) and isinstance(values[name], str)
