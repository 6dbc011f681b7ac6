"""Templates with slots: parsed once, filled in one pass, so that no value is ever read as a template.

A slot is ``{name}`` with an identifier as name. ``{{name}}`` is the literal ``{name}``. Any other brace is text: JSON,
LaTeX and regular expressions need no escaping.

A filled template is a list of parts, its own text and values in turn. Other syntaxes give values as :class:`Value`,
which is text; what has no text (a thread, a picture) is an :class:`Opaque` in a value that holds its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Protocol, Self, cast

from lazyprompt._base.frozen import draft_of
from lazyprompt._base.json import MAX_INT_BITS, JsonText, checked, dump, well_formed
from lazyprompt._base.trusted import Trusted
from lazyprompt.errors import SlotError, TemplateError, did_you_mean
from lazyprompt.messages.prompt import Text

# What is a name, str.isidentifier decides: re's \w lacks the vowel signs of Hindi and Thai, and has ``²``.
_NAME = r"[^{}\s]+"
_SLOT = re.compile(rf"\{{\{{({_NAME})\}}\}}|\{{({_NAME})\}}")
# To fill a draft takes a third of the time of the constructor.
_TextDraft = draft_of(Text)
# Where messages and what they hold are made; they are no values of slots.
_MESSAGES = "lazyprompt.messages.msg"


class SlotSyntax(Protocol):
    """A parsed template, whichever syntax it was written in."""

    slots: tuple[str, ...]
    """The names of the slots, each once, in the order in which they first appear."""

    literals: tuple[str, ...]
    """The developer's own text, in pieces."""

    text: str
    """The template as it was written."""

    def __init__(self, text: str, own: str) -> None: ...

    @staticmethod
    def coerce(value: object, slot: str) -> object:
        """A value in the form that :meth:`fill` takes."""
        ...

    def fill(self, values: Mapping[str, Any]) -> Sequence[str]:
        """The parts of the filled template: even ones the developer's text, odd ones values."""
        ...

    def origins(self, parts: Sequence[str]) -> tuple[str, ...]:
        """The slot of each part that :meth:`fill` gave."""
        ...

    def filled(self, values: Mapping[str, Any]) -> Text:
        """Fill the template, and tell the slot of each part."""
        ...


class SlotTemplate:
    """A template in the slot syntax.

    Args:
        text: The template.
        own: What the developer's own text in it counts as, among the slots.

    Raises:
        TemplateError: The template is no text, or has a lone surrogate.
    """

    __slots__ = ("_blank", "_constant", "_get", "_origins", "literals", "slots", "text")

    def __init__(self, text: str, own: str = "instruction") -> None:
        if not isinstance(cast("object", text), str):
            raise TemplateError(f"a template is text, not a {type(text).__name__}")
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
        """A value as text."""
        return value_text(value, slot)

    def fill(self, values: Mapping[str, str]) -> Sequence[str]:
        """Put the values in.

        Args:
            values: Text for each slot (others are not looked at); the caller has made them text.

        Returns:
            The parts: the developer's text and the values in turn.
        """
        return [*self.filled(values).parts]

    def origins(self, parts: Sequence[str]) -> tuple[str, ...]:  # noqa: ARG002 - they are the same each time
        """The slot of each part."""
        return self._origins

    def filled(self, values: Mapping[str, str]) -> Text:
        """Put the values in, and tell the slot of each part; see :meth:`fill`."""
        if self._constant is not None:
            return self._constant
        literals = self.literals
        if len(literals) == 2:  # noqa: PLR2004 - before the only slot, and behind it
            parts: tuple[str, ...] = (literals[0], values[self.slots[0]], literals[1])
        else:
            filled = [*self._blank]
            # An itemgetter takes half of the time of a loop.
            filled[1::2] = self._get(values)
            parts = tuple(filled)
        draft = _TextDraft()
        draft.parts = parts
        draft.slots = self._origins
        draft.__class__ = Text
        text: Text = draft
        return text

    def __reduce__(self) -> tuple[type[SlotTemplate], tuple[str, str]]:
        """Pickled as its text, which is parsed as fast as its pieces are read."""
        return type(self), (self.text, self._origins[0])


def _is_slot(match: re.Match[str]) -> bool:
    """Return True if the text between the braces is a name."""
    return (match[1] or match[2]).isidentifier()


def misfit(values: Iterable[object], slots: Sequence[str], takes: Sequence[str] = ()) -> str:
    """Describe missing and surplus values.

    Args:
        values: The names that values were given for.
        slots: The names that need one.
        takes: Further names that may have one.

    Returns:
        The whole account, or ``""`` where all fits.
    """
    given = list(values)
    missing = [name for name in slots if name not in given]
    near = [*(missing or slots), *takes]
    left_over = [name for name in given if name not in slots and name not in takes]
    faults = [f"no value for {listed(missing)}"] if missing else []
    faults += [f"no slot named {name!r}{did_you_mean(str(name), near)}" for name in left_over]
    known = f"the slots are {listed(slots)}" if slots else "there are no slots"
    # Where all slots have values, a key that is left over may be the user's text under another name.
    also = "" if missing or not takes or {*takes} & {*given} else f", and the user's text is {listed(takes)}"
    return f"{'; '.join(faults)}; {known}{also}" if faults else ""


def listed(names: Iterable[str]) -> str:
    """Names as a message lists them."""
    return ", ".join(map(repr, names))


def escape(text: str) -> str:
    """Text as a template that is filled to just that text: its slots become literal.

    Args:
        text: Any text.

    Returns:
        The text with the braces of each ``{name}`` doubled.
    """
    return _SLOT.sub(lambda match: f"{{{match[0]}}}" if _is_slot(match) else match[0], text)


def value_text(value: object, slot: str) -> str:
    """A value as the text that goes into a slot.

    Args:
        value: Text, any scalar (as ``str()`` writes it), or a dict or list (as JSON).
        slot: The slot, for the error.

    Returns:
        The text; JSON is marked as such.

    Raises:
        SlotError: A dict or list holds something that JSON cannot say, the value is bytes, a set, an object that has
            no text of its own, an integer too long to write, or it has a lone surrogate.
    """
    where = f"the value of slot {slot!r}"
    if isinstance(value, str):
        text = well_formed(str.__str__(value), where, SlotError)
        return value if isinstance(value, Trusted) else text
    if isinstance(value, Mapping | list | tuple):
        return dump(checked(cast("object", value), where, SlotError))
    if isinstance(value, bytes | bytearray):
        raise SlotError(f"{where} is {type(value).__name__}; decode it to text first")
    if isinstance(value, set | frozenset):
        raise SlotError(f"{where} is a set, whose order differs from process to process; sort it")
    if isinstance(value, int) and value.bit_length() > MAX_INT_BITS:
        raise SlotError(f"{where} is an integer of {value.bit_length()} bits; it must have at most {MAX_INT_BITS}")
    kind = type(value)
    if kind.__str__ is object.__str__ and not isinstance(value, int | float | complex | None):
        instead = "it goes into the history" if kind.__module__ == _MESSAGES else "give its text, or a dict or list"
        raise SlotError(f"{where} is a {kind.__name__}, which has no text of its own; {instead}")
    return well_formed(str(value), where, SlotError)


class Opaque:
    """Something that a template may put in a place, and that has no text."""

    __slots__ = ()


class Value(str):
    """Text that an expression gave: not the developer's.

    Attributes:
        source: The name that the expression is, as ``question`` or ``user.name``; ``""`` for any other expression.
        held: What the text holds the place of, where the value has no text; then the text is empty.
    """

    __slots__ = ("held", "source")
    source: str
    held: Opaque | None

    def __new__(cls, text: str, source: str = "", held: Opaque | None = None) -> Self:
        """A value.

        Args:
            text: Its text.
            source: The name it is from.
            held: What it holds the place of.
        """
        made = super().__new__(cls, text)
        made.source, made.held = source, held
        return made

    @property
    def root(self) -> str:
        """The first name of :attr:`source`: that of the slot or input."""
        return self.source.partition(".")[0]

    def __str__(self) -> str:
        return self


class JsonValue(JsonText, Value):
    """Text of a value that was a dict or list."""

    __slots__ = ()


class TrustedValue(Trusted, Value):
    """Text of a value that is the developer's own."""

    __slots__ = ()
