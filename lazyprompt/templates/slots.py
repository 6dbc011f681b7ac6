"""Templates in slot syntax, which are parsed once and filled in one pass. A value is never parsed as a template.

A slot is written as ``{name}``, where the name is an identifier. ``{{name}}`` renders the literal text ``{name}``. Any
other brace is literal text, so JSON, LaTeX and regular expressions need no escaping.

A filled template is a list of parts, in which literal texts and values alternate. In Jinja and Mustache templates, a
value is a :class:`Value`, a subclass of ``str``. An object without text (such as an image) is represented by an empty
:class:`Value` that references an :class:`Opaque`.
"""

from __future__ import annotations

import re
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol, Self

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
    from collections.abc import Collection, Iterable, Mapping, Sequence

# Names are checked by `str.isidentifier`, because `\w` matches `²` but not the vowel signs of Hindi and Thai.
_NAME = r"[^{}\s]+"
_SLOT = re.compile(rf"\{{\{{({_NAME})\}}\}}|\{{({_NAME})\}}")
# The module that defines messages and blocks, which are not allowed as slot values.
_MESSAGES = "lazyprompt.messages.msg"


class SlotSyntax(Protocol):
    """The interface of a parsed template in any syntax."""

    slots: tuple[str, ...]
    """The names of the slots, without duplicates, in order of first appearance."""

    literals: tuple[str, ...]
    """The pieces of the developer's literal text."""

    text: str
    """The source of the template."""

    def __init__(self, text: str, own: str) -> None: ...

    @staticmethod
    def coerce(value: object, slot: str) -> object:
        """Convert a value to the type that :meth:`fill` accepts."""
        ...

    def fill(self, values: Mapping[str, Any]) -> Sequence[str]:
        """Fill the template, and return its parts as alternating literal texts and values."""
        ...

    def origins(self, parts: Sequence[str]) -> tuple[str, ...]:
        """Return the slot name of each part that :meth:`fill` returned."""
        ...

    def filled(self, values: Mapping[str, Any]) -> Text:
        """Fill the template, and return the parts and their slot names."""
        ...


class SlotTemplate:
    """A template in slot syntax.

    Args:
        text: The source of the template.
        own: The slot name to record for the template's literal text.

    Raises:
        TemplateError: The template is not a string, or contains a lone surrogate.
    """

    __slots__ = ("_blank", "_constant", "_get", "_origins", "literals", "slots", "text")

    def __init__(self, text: str, own: str = "instruction") -> None:
        if not is_text(text):
            raise TemplateError(f"the template must be a string, not {type(text).__name__}")
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
        """Convert a value to text with :func:`value_text`."""
        return value_text(value, slot)

    def fill(self, values: Mapping[str, str]) -> Sequence[str]:
        """Fill the slots of the template.

        Args:
            values: The text for each slot. Values for unknown names are ignored.

        Returns:
            The parts as alternating literal texts and values.
        """
        return [*self.filled(values).parts]

    def origins(self, parts: Sequence[str]) -> tuple[str, ...]:  # noqa: ARG002 - the slots are always the same
        """Return the slot name of each part of the filled template."""
        return self._origins

    def filled(self, values: Mapping[str, str]) -> Text:
        """Fill the slots, and return the parts and their slot names (see :meth:`fill`)."""
        if self._constant is not None:
            return self._constant
        literals = self.literals
        if len(literals) == 2:  # noqa: PLR2004 - the texts before and after the only slot
            parts: tuple[str, ...] = (literals[0], values[self.slots[0]], literals[1])
        else:
            filled = [*self._blank]
            # An `itemgetter` is twice as fast as a loop.
            filled[1::2] = self._get(values)
            parts = tuple(filled)
        return Text(parts, self._origins)

    def __reduce__(self) -> tuple[type[SlotTemplate], tuple[str, str]]:
        """Pickle only the source, because parsing it is as fast as loading its pieces."""
        return type(self), (self.text, self._origins[0])


def _is_slot(match: re.Match[str]) -> bool:
    """Return True if the text between a pair of braces is an identifier."""
    return (match[1] or match[2]).isidentifier()


def misfit(values: Iterable[object], slots: Sequence[str], takes: Sequence[str] = ()) -> str:
    """Describe slots without a value and values without a slot.

    Args:
        values: The names of the given values.
        slots: The names that require a value.
        takes: The names that may, but need not, have a value, such as the key of the user's text.

    Returns:
        A description of the mismatch, or an empty string if the values match the slots.
    """
    given = list(values)
    missing = [name for name in slots if name not in given]
    near = [*(missing or slots), *takes]
    left_over = [name for name in given if name not in slots and name not in takes]
    faults = [f"no value for {listed(missing)}"] if missing else []
    faults += [f"no slot named {name!r}{did_you_mean(str(name), near)}" for name in left_over]
    known = f"the slots are {listed(slots)}" if slots else "there are no slots"
    # If all slots have values, an unknown name was probably meant as the key of the user's text, so suggest the correct
    # key.
    also = "" if missing or not takes or {*takes} & {*given} else f", and the user's text is {listed(takes)}"
    return f"{'; '.join(faults)}; {known}{also}" if faults else ""


def unknown_inputs(given: Iterable[str], names: Collection[str]) -> str:
    """Describe the given inputs that a prompt file doesn't have.

    Args:
        given: The names of the given inputs.
        names: The names of the prompt file's inputs.

    Returns:
        The description, or an empty string if the file has all given inputs.
    """
    unknown = [f"no input named {name!r}{did_you_mean(name, names)}" for name in given if name not in names]
    return f"{'; '.join(unknown)}; available inputs: {listed(names) or 'none'}" if unknown else ""


def listed(names: Iterable[str]) -> str:
    """Format a list of quoted names for an error message."""
    return ", ".join(map(repr, names))


def escape(text: str) -> str:
    """Escape a text for the slot syntax by doubling the braces of each ``{name}``."""
    return _SLOT.sub(lambda match: f"{{{match[0]}}}" if _is_slot(match) else match[0], text)


def value_text(value: object, slot: str) -> str:
    """Convert a slot's value to text.

    Args:
        value: A string, a scalar (converted with ``str()``), or a dict or list (converted to JSON).
        slot: The name of the slot, for error messages.

    Returns:
        The text; for a dict or list, its JSON as a :class:`~lazyprompt._base.json.JsonText`.

    Raises:
        SlotError: The value is bytes, a set, an object without its own ``__str__``, an integer that is too large, a
            text with a lone surrogate, or a dict or list with values that are not JSON.
    """
    where = f"the value of slot {slot!r}"
    if isinstance(value, str):
        text = well_formed(str.__str__(value), where, SlotError)
        return value if isinstance(value, Trusted) else text
    if is_mapping(value) or is_sequence(value):
        return dump(checked(value, where, SlotError))
    if isinstance(value, bytes | bytearray):
        raise SlotError(f"{where} must be text, not {type(value).__name__}; decode the bytes first")
    if isinstance(value, set | frozenset):
        raise SlotError(f"{where} is a set, whose order differs between processes; pass a sorted list")
    if isinstance(value, int) and value.bit_length() > MAX_INT_BITS:
        raise SlotError(f"{where} is an integer of {value.bit_length()} bits; the limit is {MAX_INT_BITS} bits")
    kind = type(value)
    if kind.__str__ is object.__str__ and not isinstance(value, int | float | complex | None):
        instead = "add it to the history" if kind.__module__ == _MESSAGES else "pass a string, a dict or a list"
        raise SlotError(f"{where} has type {kind.__name__}, which can't be converted to text; {instead}")
    return well_formed(str(value), where, SlotError)


class Opaque:
    """The base class for objects that have no text but can be part of a template's output."""

    __slots__ = ()


class Value(str):
    """The text of an expression's value, which is untrusted.

    Attributes:
        source: The expression if it is a name such as ``question`` or ``user.name``; otherwise an empty string.
        held: The object if it can't be converted to text; otherwise None. The text of such an object is empty.
    """

    __slots__ = ("held", "source")
    source: str
    held: Opaque | None

    def __new__(cls, text: str, source: str = "", held: Opaque | None = None) -> Self:
        """Create the value of an expression from the value's text.

        Args:
            text: The text of the expression's value.
            source: The expression if it is a name; otherwise an empty string.
            held: The object if it can't be converted to text; otherwise None.
        """
        made = super().__new__(cls, text)
        made.source, made.held = source, held
        return made

    @property
    def root(self) -> str:
        """The first part of :attr:`source`, which is the name of the slot or input."""
        return self.source.partition(".")[0]

    def __str__(self) -> str:
        return self


class JsonValue(JsonText, Value):
    """The JSON text of a dict or list."""

    __slots__ = ()


class TrustedValue(Trusted, Value):
    """The text of a trusted value."""

    __slots__ = ()
