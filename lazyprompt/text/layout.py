"""Layouts: the order and spacing in which the fields of a prompt become one flat text.

Two kinds. A :class:`TemplateLayout` follows the text of a prompt template, with its fixed spacing. A
:class:`FamilyLayout` follows a model family's own chat template, whose markers hold all the spacing.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from lazyprompt._json import dump
from lazyprompt.errors import HistoryError, SlotError, TemplateError, ToolsError, did_you_mean
from lazyprompt.history import EMPTY_HISTORY
from lazyprompt.prompt import MARKERS
from lazyprompt.text.markers import TURN_MARKERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lazyprompt.errors import LazyPromptError
    from lazyprompt.history import History
    from lazyprompt.text.markers import Markers
    from lazyprompt.tools import ToolSet

_PLACE = re.compile(r"\{(\w+)\}")


class Fields(NamedTuple):
    """What a layout puts in order: the bare fields of a prompt, with the slots that their parts came from."""

    system: str
    instruction: Sequence[str]
    instruction_slots: Sequence[str]
    user: Sequence[str]
    user_slots: Sequence[str]
    input: str | None
    history: History
    tools: ToolSet


# Parts, and the slot of each.
Run: TypeAlias = "tuple[Sequence[str], Sequence[str]]"


class Laid:
    """Parts in the making: trusted and untrusted text in turn. Which slot each came from is put together when asked."""

    __slots__ = ("_runs", "parts")

    def __init__(self, first: str = "") -> None:
        self.parts = [first]
        self._runs: list[Sequence[str]] = [_MARKER]

    @property
    def slots(self) -> list[str]:
        """The slot of each part."""
        return [slot for run in self._runs for slot in run]

    def extend(self, parts: Iterable[str], slots: Sequence[str]) -> None:
        """Add parts that go on with an untrusted one, and end with a trusted one."""
        self.parts += parts
        self._runs.append(slots)

    def own(self, text: str) -> None:
        """Add the model's own text."""
        self.parts += ("", text)
        self._runs.append(_OWN)

    def add(self, parts: Iterable[str], slots: Sequence[str]) -> None:
        """Add parts that begin and end with a trusted one."""
        self.parts.append("")
        self.parts += parts
        self._runs.append(_MARKER)
        self._runs.append(slots)


_MARKER = (MARKERS,)
_OWN = (MARKERS, MARKERS)
_INPUT = ("input", MARKERS)
_SYSTEM = ("system",)


class Layout(Protocol):
    """A compiled layout."""

    literals: tuple[str, ...]
    """The fixed texts, for the look-out for control sequences."""

    def lay(self, fields: Fields) -> Laid:
        """Put the fields in order."""
        ...

    def folded(self, fields: Fields, constant: frozenset[str]) -> Layout:
        """A layout for prompts of which some fields never change.

        Args:
            fields: The prompt's fields.
            constant: The names of those that never change.

        Returns:
            A layout that gives the same for every such prompt, only sooner.
        """
        ...

    @property
    def constant_parts(self) -> int:
        """How many parts at the beginning are the same in every prompt; an odd number."""
        ...

    def mark(self, split: str) -> str:
        """What stands right before the answer: a template's split with the markers in, or the family's own marker."""
        ...


class _Section(NamedTuple):
    """A stretch of a prompt template: the names of its fields, and between them runs that are always the same."""

    items: tuple[str | Run, ...]
    optional: bool

    @property
    def names(self) -> list[str]:
        """The fields in it."""
        return [item for item in self.items if isinstance(item, str)]


def turn_literals(markers: Markers) -> tuple[str, ...]:
    """The fixed texts between the values of a history."""
    return (
        *(markers.sos, markers.eos, markers.eoh + markers.soa, markers.eoa + markers.soh, markers.soe, markers.eoe),
        *(markers.tool_start, markers.tool_args, markers.tool_end, markers.result_join or ""),
    )


class TemplateLayout:
    """A prompt template with the markers put in.

    Args:
        sections: The template, cut at its optional stretches.
        markers: The markers.
    """

    __slots__ = ("_markers", "_plan", "_sections", "_unplaced", "literals")

    def __init__(self, sections: tuple[_Section, ...], markers: Markers) -> None:
        self._markers = markers
        self._sections = sections
        # What each section holds, and the fields one of which must be there.
        self._plan = tuple((section.items, section.names if section.optional else ()) for section in sections)
        placed = {name for section in sections for name in section.names}
        self._unplaced = tuple(name for name in _NO_PLACE if name not in placed)
        fixed = [item for section in sections for item in section.items if not isinstance(item, str)]
        self.literals: tuple[str, ...] = (
            *(text for parts, _ in fixed for text in parts[1::2]),
            *turn_literals(markers),
        )

    @classmethod
    def of(cls, text: str, optional: Sequence[str], markers: Markers) -> TemplateLayout:
        """Read a template.

        Args:
            text: The template: ``{name}`` for a field of the prompt or a marker.
            optional: Stretches of the text that are left out when all their fields are absent.
            markers: The markers.

        Raises:
            TemplateError: A name is unknown, or an optional stretch is not in the text.
        """
        sections: list[_Section] = []
        rest = text
        for run in optional:
            before, found, rest = rest.partition(run)
            if not found:
                raise TemplateError(f"the optional part {run!r} is not in the template, or not in the order given")
            sections += (
                _Section(_items(before, markers), optional=False),
                _Section(_items(run, markers), optional=True),
            )
        sections.append(_Section(_items(rest, markers), optional=False))
        return cls(tuple(sections), markers)

    def folded(self, fields: Fields, constant: frozenset[str]) -> TemplateLayout:
        """This layout with the fields that are the same in every prompt put in for good."""
        sections = [self._folded(section, fields, constant) for section in self._sections]
        layout = TemplateLayout(tuple(section for section in sections if section.items), self._markers)
        layout._unplaced = self._unplaced
        return layout

    def _folded(self, section: _Section, fields: Fields, constant: frozenset[str]) -> _Section:
        """A section with its constant fields put in, and what is then constant side by side made one run."""
        known = [name for name in section.names if name in constant]
        optional = section.optional and not any(_has_text(name, fields) for name in known)
        if optional and known == section.names:
            return _Section((), optional)
        items: list[str | Run] = []
        for item in section.items:
            run = self._run(item, fields) if isinstance(item, str) and item in constant else item
            before = items[-1] if items else ""
            if isinstance(run, str) or isinstance(before, str):
                items.append(run)
            else:
                items[-1] = (*before[0], *run[0]), (*before[1], *run[1])
        return _Section(tuple(items), optional)

    def _run(self, name: str, fields: Fields) -> Run:
        laid = Laid()
        _PUT[name](fields, self._markers, laid)
        return tuple(laid.parts[1:]), tuple(laid.slots[1:])

    def lay(self, fields: Fields) -> Laid:
        """Put the fields in order.

        Raises:
            HistoryError: There is a history, but the template has no place for it (so with tools and input).
        """
        for name in self._unplaced:
            if _has_text(name, fields):
                raise _NO_PLACE[name](f"this prompt template has no place for the {name}; put {{{name}}} into it")
        laid = Laid()
        markers = self._markers
        for items, needed in self._plan:
            if needed and not _any_present(needed, fields):
                continue
            for item in items:
                if type(item) is str:
                    _PUT[item](fields, markers, laid)
                else:
                    laid.extend(*item)
        return laid

    @property
    def constant_parts(self) -> int:
        """How many parts stand before the first field."""
        first = self._sections[0]
        run = first.items[0]
        return 1 if first.optional or isinstance(run, str) else 1 + len(run[0])

    def mark(self, split: str) -> str:
        """The split with the markers in."""
        return _with_markers(split, self._markers)


class FamilyLayout:
    """The layout of a model family: the markers hold all the spacing, and an empty system turn is left out.

    Args:
        markers: The family's markers.
    """

    __slots__ = ("_constant_system", "_constant_tools", "_generation", "_markers", "literals")

    def __init__(self, markers: Markers) -> None:
        self._markers = markers
        self._constant_system: Run | None = None
        self._constant_tools: ToolSet | None = None
        self._generation = markers.soa if markers.generation is None else markers.generation
        opening, closing = markers.bos + markers.sos + markers.preamble, markers.eoh + self._generation
        self.literals: tuple[str, ...] = (opening, markers.eos + markers.soh, closing, *turn_literals(markers))

    def lay(self, fields: Fields) -> Laid:
        """Put the fields in order, as the family's chat template does with the same messages."""
        markers = self._markers
        known = self._constant_system if fields.tools is self._constant_tools else None
        system, said = known or self._system(fields), self._said(fields)
        laid = Laid(markers.bos)
        if markers.system_place == "turn":
            laid.add(*system)
            put_history(fields.history, markers, laid)
        elif fields.history and (markers.system_place == "first_user" or said is None):
            _put_into_first_turn(system, fields.history, markers, laid)
        else:
            put_history(fields.history, markers, laid)
            if said is not None:
                said = (*system[0], "", *said[0]), (*system[1], MARKERS, *said[1])
        if said is not None:
            laid.own(markers.soh)
            laid.add(*said)
            laid.own(markers.eoh)
        laid.own(self._generation)
        return laid

    def folded(self, fields: Fields, constant: frozenset[str]) -> FamilyLayout:
        """This layout with the system turn put in for good, if all that is in it is the same in every prompt."""
        layout = FamilyLayout(self._markers)
        if constant >= {"system", "instruction", "tools"}:
            layout._constant_system = self._system(fields)
        return layout

    @property
    def constant_parts(self) -> int:
        """How many parts the constant system turn has, with what stands before it."""
        constant = self._constant_system if self._markers.system_place == "turn" else None
        return 2 + len(constant[0]) if constant else 1

    def mark(self, split: str) -> str:  # noqa: ARG002 - a family has its own
        """What invites the assistant to speak."""
        return self._generation

    def _system(self, fields: Fields) -> Run:
        """The whole system turn, or nothing."""
        markers = self._markers
        system = f"{fields.system}\n" if fields.system and any(fields.instruction) else fields.system
        parts: Sequence[str] = (system, "", *fields.instruction)
        slots = ("system", MARKERS, *fields.instruction_slots)
        if "system" in markers.trim:
            parts = stripped(parts)
        if fields.tools.names:
            # What parts the tools from the text before them has no place where there is none.
            description = markers.tools if any(parts) else markers.tools.lstrip("\n")
            tools, tool_slots = tool_parts(fields.tools, description, markers.tool_join)
            parts, slots = (*parts, "", *tools), (*slots, MARKERS, *tool_slots)
        if not any(parts) and not markers.preamble:
            return ("",), (MARKERS,)
        opening = markers.sos + markers.preamble
        return (opening, "", *parts, "", markers.eos), (MARKERS, MARKERS, *slots, MARKERS, MARKERS)

    def _said(self, fields: Fields) -> Run | None:
        """What the user says now; None where nobody speaks."""
        if fields.input is None and not any(fields.user):
            return None
        parts = (*fields.user, fields.input or "", "")
        return stripped(parts) if "user" in self._markers.trim else parts, (*fields.user_slots, "input", MARKERS)


def stripped(parts: Sequence[str]) -> list[str]:
    """Parts without white space at both ends, as the templates of some families treat each text."""
    texts = [*parts]
    for indexes, strip in ((range(len(texts)), str.lstrip), (range(len(texts) - 1, -1, -1), str.rstrip)):
        for index in indexes:
            text = strip(texts[index])
            # What is not changed stays the value it is: JSON begins and ends with no space.
            if text != texts[index]:
                texts[index] = text
            if text:
                break
    return texts


def _put_into_first_turn(system: Run, history: History, markers: Markers, laid: Laid) -> None:
    """A history whose first turn begins with the system text."""
    turns = Laid()
    put_history(history, markers, turns)
    # The first two parts are the empty ones every list begins with; the third is what opens the first turn.
    slots = turns.slots
    laid.add(turns.parts[:3], slots[:3])
    laid.add(*system)
    laid.extend(turns.parts[3:], slots[3:])


def _has_text(name: str, fields: Fields) -> bool:
    return any(getattr(fields, name)) if name in ("instruction", "user") else bool(getattr(fields, name))


def _any_present(names: Iterable[str], fields: Fields) -> bool:
    """Whether a field is there: an input may be there and empty, all else is there when it has text."""
    for name in names:  # noqa: SIM110 - a generator would cost more than what it looks at
        if (name == "input" and fields.input is not None) or _has_text(name, fields):
            return True
    return False


def _items(text: str, markers: Markers) -> tuple[str | Run, ...]:
    """A stretch of a template: runs of fixed text, and names of fields."""
    pieces = _PLACE.split(_with_markers(text, markers))
    return tuple(
        piece if index % 2 else (("", piece), _OWN) for index, piece in enumerate(pieces) if piece or index % 2
    )


def _with_markers(text: str, markers: Markers) -> str:
    """A text of a template with its markers in, and the places of its fields left."""
    known = (*_PUT, *TURN_MARKERS)

    def marker(match: re.Match[str]) -> str:
        name = match[1]
        if name not in known:
            raise TemplateError(
                f"the prompt template has the place {match[0]}{did_you_mean(name, known)}; known are {', '.join(known)}"
            )
        return match[0] if name in _PUT else str(getattr(markers, name))

    return _PLACE.sub(marker, text)


def _put_system(fields: Fields, _: Markers, laid: Laid) -> None:
    laid.add((fields.system,), _SYSTEM)


def _put_instruction(fields: Fields, _: Markers, laid: Laid) -> None:
    laid.add(fields.instruction, fields.instruction_slots)


def _put_tools(fields: Fields, markers: Markers, laid: Laid) -> None:
    if fields.tools.names:
        laid.add(*tool_parts(fields.tools, markers.tools, markers.tool_join))


def _put_history(fields: Fields, markers: Markers, laid: Laid) -> None:
    if fields.history is not EMPTY_HISTORY:
        put_history(fields.history, markers, laid)


def _put_user(fields: Fields, _: Markers, laid: Laid) -> None:
    laid.add(fields.user, fields.user_slots)


def _put_input(fields: Fields, _: Markers, laid: Laid) -> None:
    laid.extend((fields.input or "", ""), _INPUT)


# How each field of a prompt is put into a layout.
_PUT: dict[str, Callable[[Fields, Markers, Laid], None]] = {
    "system": _put_system,
    "instruction": _put_instruction,
    "tools": _put_tools,
    "history": _put_history,
    "user": _put_user,
    "input": _put_input,
}

# What to raise where a template has no place for a field that is there: nothing is left out in silence.
_NO_PLACE: dict[str, type[LazyPromptError]] = {
    "instruction": TemplateError,
    "tools": ToolsError,
    "history": HistoryError,
    "user": TemplateError,
    "input": SlotError,
}


@lru_cache(maxsize=64)
def tool_parts(tools: ToolSet, description: str, join: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The description of tools, with its slots; the last 64 sets are kept.

    Args:
        tools: The tools.
        description: What stands around them, with ``{tools}`` where their JSON goes.
        join: What stands between two of them; ``None`` writes one list.

    Returns:
        The parts and the slot of each.
    """
    before, after = description.split("{tools}")
    texts = [tools.json] if join is None else [dump(tool) for tool in tools]
    parts = [before]
    for text in texts:
        parts += (text, join or "")
    parts[-1] = after
    return tuple(parts), ("tools",) * len(parts)


def put_history(history: History, markers: Markers, laid: Laid) -> None:
    """Add the turns of a history."""
    if history.questions:
        _put_pairs(history.questions, history.answers, markers, laid)
    elif history:
        from lazyprompt.text.turns import put_messages  # noqa: PLC0415 - only messages need to know what they are

        put_messages(history.messages, markers, laid)


def _put_pairs(questions: Sequence[str], answers: Sequence[str], markers: Markers, laid: Laid) -> None:
    """Plain turns, all at once: this is where the time of a long chat would go."""
    if "user" in markers.trim:
        questions = [text.strip() for text in questions]
    if "assistant" in markers.trim:
        answers = [text.strip() for text in answers]
    # Each question stands behind what ends the answer before it, each answer behind what ends its question.
    parts = [markers.eoa + markers.soh, "", markers.eoh + markers.soa, ""] * len(questions)
    parts[0] = markers.soh
    parts[1::4] = questions
    parts[3::4] = answers
    parts.append(markers.eoa)
    laid.add(parts, _pair_slots(len(questions)))


@lru_cache(maxsize=256)
def _pair_slots(count: int) -> tuple[str, ...]:
    """The slots of so many pairs: marker and text in turn, then the last marker."""
    return (*(MARKERS, "history") * (2 * count), MARKERS)
