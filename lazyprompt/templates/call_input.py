"""The step that reads the input of a call: values by the names of their slots, and the user's text under ``input``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

from lazyprompt.errors import SlotError, did_you_mean
from lazyprompt.templates.slots import listed, misfit

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Sequence

INPUT: Final = "input"
"""The key of the user's text in a dict input."""

Fixed: TypeAlias = "tuple[tuple[str, object], ...]"
"""Names with fixed values, or functions that give them."""


class InputForm(NamedTuple):
    """The names that an input may have.

    Attributes:
        slots: The slots, in template order.
        user_slots: The slots in the user's part.
        takes_text: True if text beside the slots is the user's; else all text goes into slots, as in Alpaca.
        fixed: Slots with the values that they have where an input leaves them out, or functions that give these.
        literals: The text of an instruction with slots, in which ``{{name}}`` has become ``{name}``.
        has_defaults: True if slots may have values of their own, as the inputs of a prompt file have.
    """

    slots: tuple[str, ...]
    user_slots: frozenset[str] = frozenset()
    takes_text: bool = True
    fixed: Fixed = ()
    literals: tuple[str, ...] = ()
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
            raise SlotError(fault)
    missing = [slot for slot in form.slots if slot not in values]
    left_over = [name for name in values if name not in form.slots and name not in takes]
    escaped = [name for name in left_over if any(f"{{{name}}}" in text for text in form.literals)]
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
        raise SlotError(misfit(values, needed, takes) + "".join(hints))
    refuse_none(values)
    return values


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
        raise SlotError(f"a text without a name could fill {len(left)} slots; give a dict, {dict_form(left)}")
    raise SlotError(
        "the input has no slot to go to; put one into the instruction, as {input}, or name it in extra_keys"
    )


def is_asked(user: Sequence[str], values: Iterable[str], asked: str) -> bool:
    """Return True if a filled user's part says what the user said already.

    The user's last text is that part, or begins with it where it ends in the template's own text, or is a value alone.

    Args:
        user: The parts of it: own text and values in turn.
        values: The values of its slots.
        asked: The user's last text.
    """
    said, before = "".join(user), asked.strip()
    begins = bool(user[-1].strip()) and asked.startswith(said)
    return begins or before in (said.strip(), *(value.strip() for value in values))


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
