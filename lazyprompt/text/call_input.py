"""The step that reads the input of a call: values by the names of their slots, and the user's text under ``input``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, cast

from lazyprompt.errors import SlotError

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

INPUT = "input"
"""The key of the user's text in a dict input."""


class InputForm(NamedTuple):
    """The names that an input may have.

    Attributes:
        slots: The slots, in template order.
        user_slots: The slots in the user's part.
        takes_text: True if text beside the slots is the user's; else all text goes into slots, as in Alpaca.
    """

    slots: tuple[str, ...]
    user_slots: frozenset[str] = frozenset()
    takes_text: bool = True


def read_input(given: object, form: InputForm) -> dict[str, object]:
    """Read an input as values by name.

    Args:
        given: A dict; or one value, which fills a slot or is the user's text (see :func:`name_of_text`); or None.
        form: The names that it may have.

    Returns:
        A new dict. The names of a dict input are not checked here.

    Raises:
        SlotError: A value without a name leaves slots unfilled, or has no slot to go to.
    """
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return dict(cast("Mapping[str, object]", given))
    name = name_of_text(form)
    if missing := [slot for slot in form.slots if slot != name]:
        wanted = dict.fromkeys((*form.slots, name))
        raise SlotError(
            f"no value for {', '.join(map(repr, missing))}: a {type(given).__name__} without a name is the user's "
            f"text; give a dict, {dict_form(wanted)}"
        )
    return {name: given}


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
        raise SlotError(f"a text without a name could fill {len(left)} slots; give a dict, {dict_form(form.slots)}")
    raise SlotError(
        "the input has no slot to go to; put one into the instruction, as {input}, or name it in extra_keys"
    )


def dict_form(names: Iterable[str]) -> str:
    """Return a dict input as an error shows it."""
    return f"{{{', '.join(f'{name!r}: ...' for name in names)}}}"
