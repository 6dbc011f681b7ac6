"""Layouts: the order and spacing in which the fields of a prompt become one flat text.

This is what the two kinds of layout share. ``template_layout.py`` follows the text of a prompt template, with its
fixed spacing; ``family_layout.py`` a model family's own chat template, whose markers hold all the spacing.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from lazyprompt._base.json import dump
from lazyprompt.messages.prompt import MARKERS, Prompt

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lazyprompt.messages.tools import ToolSet
    from lazyprompt.rendering.markers import Markers


# Parts, and the slot of each.
Run: TypeAlias = "tuple[Sequence[str], Sequence[str]]"


class Said(str):  # pickles of segments hold the name
    """The slot of a part of a turn of the assistant.

    It equals the plain name of the slot: only who makes training data looks for the class. So which parts the assistant
    said goes with them wherever they are put, and costs a prompt nothing.
    """

    __slots__ = ()


class End(Said):
    """The slot of the part that begins with what ends the turn of the assistant."""

    __slots__ = ()


_MARKER = (MARKERS,)
OWN = (MARKERS, MARKERS)


class PartList:
    """Parts in the making: trusted and untrusted text in turn. Which slot each came from is put together when asked.

    Args:
        parts: Parts that begin and end with a trusted one.
        slots: The slot of each.

    Attributes:
        parts: The parts.
        runs: The slots of the parts, as they were added.
        note: Why nobody knows where they came from, if that is so.
        order: The indexes of the messages of the history in the order of the text, if some are part of the system text.
    """

    __slots__ = ("note", "order", "parts", "runs")

    def __init__(self, parts: Iterable[str] = ("",), slots: Sequence[str] = _MARKER) -> None:
        self.parts: list[str] = [*parts]
        self.runs: list[Sequence[str]] = [slots]
        self.note = ""
        self.order: Sequence[int] | None = None

    @property
    def slots(self) -> list[str]:
        """The slot of each part."""
        slots: list[str] = []
        for run in self.runs:
            slots += run
        return slots

    def extend(self, parts: Iterable[str], slots: Sequence[str]) -> None:
        """Add parts that go on with an untrusted one, and end with a trusted one."""
        self.parts += parts
        self.runs.append(slots)

    def own(self, text: str, slots: Sequence[str] = OWN) -> None:
        """Add the model's own text."""
        self.parts += ("", text)
        self.runs.append(slots)

    def add(self, parts: Iterable[str], slots: Sequence[str]) -> None:
        """Add parts that begin and end with a trusted one."""
        self.parts.append("")
        self.parts += parts
        self.runs.append(_MARKER)
        self.runs.append(slots)


class SampleParts(NamedTuple):
    """Text of a training sample in parts.

    Attributes:
        parts: Trusted and untrusted text in turn.
        slots: The slot of each part.
        trained: True for each part that is trained.
        messages: For each part of the history, the index of its message among the OpenAI dicts of the history.
    """

    parts: tuple[str, ...]
    slots: tuple[str, ...]
    trained: tuple[bool, ...]
    messages: tuple[int | None, ...]


class Layout(Protocol):
    """A compiled layout."""

    literals: tuple[str, ...]
    """The fixed texts, for the look-out for control sequences."""
    opening: str
    """What the model itself says before each answer: the end of its marker, where the prompt stops short of it."""

    def lay(self, prompt: Prompt) -> PartList:
        """Put the fields in order."""
        ...

    def folded(self, prompt: Prompt, constant: frozenset[str]) -> Layout:
        """A layout for prompts of which some fields never change.

        Args:
            prompt: Any of these prompts.
            constant: The names of those that never change.

        Returns:
            A layout that gives the same for every such prompt, only sooner.
        """
        ...

    def mark(self, split: str) -> str:
        """Text right before the answer: a template's split with the markers in, or the family's own marker."""
        ...


def turn_literals(markers: Markers) -> tuple[str, ...]:
    """The fixed texts between the values of a history."""
    return (
        *(markers.sos, markers.eos, markers.eoh + markers.soa, markers.eoa + markers.soh, markers.soe, markers.eoe),
        *(markers.tool_start, markers.tool_args, markers.tool_end, markers.result_join or ""),
    )


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
