"""Templates with slots: parsed once and filled in one pass, so that a value is never parsed as a template.

A slot is ``{name}`` with an identifier as name. ``{{name}}`` is the literal ``{name}``. Any other brace is text: JSON,
LaTeX and regular expressions need no escaping.

A filled template is a list of parts: alternating own text and values. In other syntaxes a value is a :class:`Value`,
which is a string. For an object without text (a thread, an image), an empty value contains an :class:`Opaque`.
"""

from __future__ import annotations

import re
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol, Self

from lazyprompt._base.frozen import draft_of
from lazyprompt._base.json import (
    MAX_INT_BITS,
    JsonText,
    checked,
    dump,
    is_mapping,
    is_sequence,
    is_text,
    well_formed,
)
from lazyprompt._base.trusted import Trusted
from lazyprompt.errors import SlotError, TemplateError, did_you_mean
from lazyprompt.messages.prompt import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# str.isidentifier checks names: the regex \w excludes the vowel signs of Hindi and Thai, and includes ``²``.
_NAME = r"[^{}\s]+"
_SLOT = re.compile(rf"\{{\{{({_NAME})\}}\}}|\{{({_NAME})\}}")
# Filling a draft takes a third of the constructor's time.
_TextDraft = draft_of(Text)
# The module of messages and blocks, which are not slot values.
_MESSAGES = "lazyprompt.messages.msg"


class SlotSyntax(Protocol):
    """A parsed template of any syntax."""

    slots: tuple[str, ...]
    """The names of the slots, without duplicates, in order of first appearance."""

    literals: tuple[str, ...]
    """The developer's own text, in pieces."""

    text: str
    """The source of the template."""

    def __init__(self, text: str, own: str) -> None: ...

    @staticmethod
    def coerce(value: object, slot: str) -> object:
        """Convert a value for :meth:`fill`."""
        ...

    def fill(self, values: Mapping[str, Any]) -> Sequence[str]:
        """Return the parts of the filled template: alternating developer's text and values."""
        ...

    def origins(self, parts: Sequence[str]) -> tuple[str, ...]:
        """Return the slot of each part from :meth:`fill`."""
        ...

    def filled(self, values: Mapping[str, Any]) -> Text:
        """Fill the template and return the parts with their slots."""
        ...


class SlotTemplate:
    """A template in slot syntax.

    Args:
        text: The template.
        own: The slot name of the developer's own text in it.

    Raises:
        TemplateError: The template is not a string, or contains a lone surrogate.
    """

    __slots__ = ("_blank", "_constant", "_get", "_origins", "literals", "slots", "text")

    def __init__(self, text: str, own: str = "instruction") -> None:
        if not is_text(text):
            raise TemplateError(f"the template is a {type(text).__name__}; expected text")
        well_formed(text, "the template", TemplateError)
        literals = [""]
        names: list[str] = []
        end = 0
        for match in filter(_is_slot, _SLOT.finditer(text)):
            literals[-1] += text[end : match.start()]
            end = match.end()
            if match[1]:
                literals[-1] += f"{{{match[1]}}}"
            else:
                names.append(match[2])
                literals.append("")
        literals[-1] += text[end:]
        self.text = text
        self.literals: tuple[str, ...] = tuple(literals)
        self.slots: tuple[str, ...] = tuple(dict.fromkeys(names))
        self._get = itemgetter(*names or ("",))
        blank = [""] * (2 * len(names) + 1)
        blank[0::2] = literals
        self._blank = tuple(blank)
        origins = [own] * len(blank)
        origins[1::2] = names
        self._origins = tuple(origins)
        self._constant = None if names else Text(self._blank, self._origins)

    @staticmethod
    def coerce(value: object, slot: str) -> str:
        """Convert a value to text."""
        return value_text(value, slot)

    def fill(self, values: Mapping[str, str]) -> Sequence[str]:
        """Fill the slots.

        Args:
            values: Text for each slot; other values are ignored.

        Returns:
            The parts: alternating developer's text and values.
        """
        return [*self.filled(values).parts]

    def origins(self, parts: Sequence[str]) -> tuple[str, ...]:  # noqa: ARG002 - they never vary
        """Return the slot of each part."""
        return self._origins

    def filled(self, values: Mapping[str, str]) -> Text:
        """Fill the slots and return the parts with their slots; see :meth:`fill`."""
        if self._constant is not None:
            return self._constant
        literals = self.literals
        if len(literals) == 2:  # noqa: PLR2004 - before and after the only slot
            parts: tuple[str, ...] = (literals[0], values[self.slots[0]], literals[1])
        else:
            filled = [*self._blank]
            # An itemgetter takes half the time of a loop.
            filled[1::2] = self._get(values)
            parts = tuple(filled)
        draft = _TextDraft()
        draft.parts = parts
        draft.slots = self._origins
        draft.__class__ = Text
        text: Text = draft
        return text

    def __reduce__(self) -> tuple[type[SlotTemplate], tuple[str, str]]:
        """Pickle the source only; parsing it is as fast as loading its pieces."""
        return type(self), (self.text, self._origins[0])


def _is_slot(match: re.Match[str]) -> bool:
    """Return True if the text between the braces is a name."""
    return (match[1] or match[2]).isidentifier()


def misfit(values: Iterable[object], slots: Sequence[str], takes: Sequence[str] = ()) -> str:
    """Describe missing and surplus values.

    Args:
        values: The names of the given values.
        slots: The names that need a value.
        takes: Further names that may have a value.

    Returns:
            The description, or ``""`` if nothing is missing or surplus.
    """
    given = list(values)
    missing = [name for name in slots if name not in given]
    near = [*(missing or slots), *takes]
    left_over = [name for name in given if name not in slots and name not in takes]
    faults = [f"no value for {listed(missing)}"] if missing else []
    faults += [f"no slot named {name!r}{did_you_mean(str(name), near)}" for name in left_over]
    known = f"the slots are {listed(slots)}" if slots else "there are no slots"
    # If all slots have values, a surplus key may be the user's text under another name.
    also = "" if missing or not takes or {*takes} & {*given} else f", and the user's text is {listed(takes)}"
    return f"{'; '.join(faults)}; {known}{also}" if faults else ""


def listed(names: Iterable[str]) -> str:
    """Format names for a message."""
    return ", ".join(map(repr, names))


def escape(text: str) -> str:
    """Escape the slots in a text by doubling the braces of each ``{name}``."""
    return _SLOT.sub(lambda match: f"{{{match[0]}}}" if _is_slot(match) else match[0], text)


def value_text(value: object, slot: str) -> str:
    """Convert a value to text for a slot.

    Args:
        value: Text, a scalar (converted by ``str()``), or a dict or list (converted to JSON).
        slot: The slot, for the error.

    Returns:
        The text; JSON as :class:`~lazyprompt._base.json.JsonText`.

    Raises:
        SlotError: A dict or list contains a value that is not JSON, the value is bytes, a set, an object without its
            own text or an integer that is too large, or it contains a lone surrogate.
    """
    where = f"the value of slot {slot!r}"
    if isinstance(value, str):
        text = well_formed(str.__str__(value), where, SlotError)
        return value if isinstance(value, Trusted) else text
    if is_mapping(value) or is_sequence(value):
        return dump(checked(value, where, SlotError))
    if isinstance(value, bytes | bytearray):
        raise SlotError(f"{where} is {type(value).__name__}; decode it to text first")
    if isinstance(value, set | frozenset):
        raise SlotError(f"{where} is a set, whose order differs between processes; sort it into a list")
    if isinstance(value, int) and value.bit_length() > MAX_INT_BITS:
        raise SlotError(f"{where} is an integer of {value.bit_length()} bits; it must have at most {MAX_INT_BITS}")
    kind = type(value)
    if kind.__str__ is object.__str__ and not isinstance(value, int | float | complex | None):
        instead = "add it to the history" if kind.__module__ == _MESSAGES else "give its text, or a dict or list"
        raise SlotError(f"{where} is a {kind.__name__}, which has no text of its own; {instead}")
    return well_formed(str(value), where, SlotError)


class Opaque:
    """An object without text that a template can place in its output."""

    __slots__ = ()


class Value(str):
    """The text of an expression, which is not the developer's.

    Attributes:
        source: The name, if the expression is a name, such as ``question`` or ``user.name``; else ``""``.
        held: The object, if the value has no text; then the text is empty.
    """

    __slots__ = ("held", "source")
    source: str
    held: Opaque | None

    def __new__(cls, text: str, source: str = "", held: Opaque | None = None) -> Self:
        """Create a value.

        Args:
            text: The text.
            source: The name of the value.
            held: The object, if the value has no text.
        """
        made = super().__new__(cls, text)
        made.source, made.held = source, held
        return made

    @property
    def root(self) -> str:
        """The first part of :attr:`source`: the name of the slot or input."""
        return self.source.partition(".")[0]

    def __str__(self) -> str:
        return self


class JsonValue(JsonText, Value):
    """The JSON text of a dict or list."""

    __slots__ = ()


class TrustedValue(Trusted, Value):
    """The text of a trusted value."""

    __slots__ = ()
