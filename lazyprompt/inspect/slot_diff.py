"""Two prompts slot by slot: what is the same in both, what changed and how, and what only one of them has."""

from __future__ import annotations

from difflib import unified_diff
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from lazyprompt.inspect.look import Look, Slot

State: TypeAlias = Literal["same", "changed", "added", "removed"]

# Lines around a change, as diff has them.
_CONTEXT = 3


class SlotChange(NamedTuple):
    """Change of a slot from one prompt to another.

    Attributes:
        name: Its name.
        state: ``same``, ``changed``, ``added`` (only the other has it) or ``removed``. Slots of the same text are the
            same; of ``framing``, which has none, the tokens are compared.
        before: Its tokens in the one; 0 where it is not there.
        after: Its tokens in the other.
        lines: A unified diff of its texts, without the lines that name files; nothing where the texts are the same.
    """

    name: str
    state: State
    before: int
    after: int
    lines: tuple[str, ...]


def slot_diff(before: Look, after: Look) -> tuple[SlotChange, ...]:
    """Compare two prompts slot by slot.

    Args:
        before: The one.
        after: The other.

    Returns:
        All slots of both: in the order of the one, then those that only the other has; what stands around the slots
        (``markers`` or ``framing``) comes last.
    """
    one, other = ({slot.name: slot for slot in look.slots} for look in (before, after))
    around = [look.slots[-1].name for look in (before, after) if look.slots]
    names = [name for name in dict.fromkeys((*one, *other)) if name not in around]
    return tuple(_change(name, one.get(name), other.get(name)) for name in (*names, *dict.fromkeys(around)))


def _change(name: str, before: Slot | None, after: Slot | None) -> SlotChange:
    old, new = before.text if before else "", after.text if after else ""
    spent = before.tokens if before else 0, after.tokens if after else 0
    state: State = "changed"
    if before is None or after is None:
        state = "added" if before is None else "removed"
    elif old == new and (old or before.tokens == after.tokens):
        state = "same"
    return SlotChange(name, state, *spent, _lines(old, new))


def _lines(old: str, new: str) -> tuple[str, ...]:
    """The lines of a diff; a text with no line has none, not an empty one."""
    given, made = (text.split("\n") if text else [] for text in (old, new))
    return tuple(unified_diff(given, made, lineterm="", n=_CONTEXT))[2:]
