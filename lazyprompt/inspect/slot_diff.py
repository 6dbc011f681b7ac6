"""Two prompts slot by slot: what changed and how, what only one of them has, and where their shared beginning ends."""

from __future__ import annotations

from difflib import unified_diff
from os.path import commonprefix
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from lazyprompt._base.signs import visible

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


class SharedPrefix(NamedTuple):
    """Beginning that two prompts share, which a provider's cache can serve.

    Attributes:
        tokens: Its tokens, about: of the slot in which it ends, as many as its part of the text has.
        total: The tokens of the other prompt.
        slot: The slot of the other prompt in which it ends; None if the prompts are the same.
        line: The line of that slot, from 1.
    """

    tokens: int
    total: int
    slot: str | None
    line: int

    def __str__(self) -> str:
        where = (
            "the prompts are the same" if self.slot is None else f"it ends in {visible(self.slot)}, line {self.line}"
        )
        return f"shared beginning: about {self.tokens:,} of {self.total:,}; {where}"


def shared_prefix(before: Look, after: Look) -> SharedPrefix:
    """Find where the beginning ends that two prompts share.

    Args:
        before: The one.
        after: The other.

    Returns:
        The place in the other. Of payloads, the slots are compared in their order, without what stands around them.
    """
    parts = _parts(after)
    one, other = ("".join(text for _, text in each) for each in (_parts(before), parts))
    left = shared = len(commonprefix((one, other)))  # noqa: RUF071 - they are no paths
    if one == other:
        return SharedPrefix(after.total, after.total, None, 1)
    lengths, counts = dict[str, int](), {slot.name: slot.tokens for slot in after.slots}
    for slot, text in parts:
        lengths[slot] = lengths.get(slot, 0) + len(text)
    tokens, ends, line = 0.0, "", 1
    for slot, text in parts:
        ends, line = slot, text.count("\n", 0, left) + 1
        tokens += counts.get(slot, 0) * min(left, len(text)) / lengths[slot]
        left -= len(text)
        if left < 0:
            break
    return SharedPrefix(round(tokens) if shared else 0, after.total, ends, line)


def _parts(look: Look) -> list[tuple[str, str]]:
    """List the texts of a prompt with their slots, in the order in which they are sent; of payloads, tools first."""
    given = [(slot, text) for text, slot, _ in look.segments]
    given = given or sorted(((slot.name, slot.text) for slot in look.slots), key=lambda part: part[0] != "tools")
    return [(slot, text) for slot, text in given if text]


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
