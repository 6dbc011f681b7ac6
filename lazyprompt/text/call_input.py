"""The step that reads the input of a call: values by the names of their slots, and the user's text under ``input``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from lazyprompt.errors import SlotError
from lazyprompt.text.slots import listed, misfit

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

INPUT: Final = "input"
"""The key of the user's text in a dict input."""


class InputForm(NamedTuple):
    """The names that an input may have.

    Attributes:
        slots: The slots, in template order.
        user_slots: The slots in the user's part.
        takes_text: True if text beside the slots is the user's; else all text goes into slots, as in Alpaca.
        fixed: Slots with the values that they have where an input leaves them out, or functions that give these.
    """

    slots: tuple[str, ...]
    user_slots: frozenset[str] = frozenset()
    takes_text: bool = True
    fixed: tuple[tuple[str, object], ...] = ()

    @property
    def has_input(self) -> bool:
        """True if the key ``input`` is the user's text: no slot has that name."""
        return self.takes_text and INPUT not in self.slots


def read_input(given: object, form: InputForm, optional: Container[str] = ()) -> dict[str, object]:
    """Read an input as values by name.

    Args:
        given: A dict; or one value, which fills a slot or is the user's text (see :func:`name_of_text`); or None. Where
            a dict has all slots, one further key with text is the user's text, whatever its name.
        form: The names that it may have.
        optional: The slots that may be left out.

    Returns:
        A new dict: a value for each slot that is not optional, and the user's text under ``input``.

    Raises:
        SlotError: A slot has no value, a value no slot, or a value is None.
    """
    values = dict(form.fixed)
    takes = (INPUT,) if form.has_input else ()
    if isinstance(given, Mapping):
        values |= cast("Mapping[str, object]", given)
    elif given is not None:
        name = name_of_text(form, values)
        values[name] = given
        if missing := [slot for slot in form.slots if slot not in values]:
            wanted = dict.fromkeys((*missing, name))
            raise SlotError(
                f"no value for {listed(missing)}: a {type(given).__name__} without a name is the user's text; "
                f"give a dict, {dict_form(wanted)}"
            )
    missing = [slot for slot in form.slots if slot not in values]
    left_over = [name for name in values if name not in form.slots and name not in takes]
    if takes and not missing and INPUT not in values and len(left_over) == 1 and _is_text(left_over[0], values):
        values[INPUT] = values.pop(left_over[0])
    elif left_over or any(slot not in optional for slot in missing):
        needed = [slot for slot in form.slots if slot in values or slot not in optional]
        raise SlotError(misfit(values, needed, takes))
    for name, value in form.fixed:
        # A function whose slot the input gives is not called.
        if callable(value) and values[name] is value:
            values[name] = value()
    refuse_none(values)
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
