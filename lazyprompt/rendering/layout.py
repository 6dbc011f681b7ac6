"""Layouts: the order and spacing in which the fields of a prompt become one flat text.

Two kinds of layout share this code. ``template_layout.py`` follows the text of a prompt template, with its fixed
spacing. ``family_layout.py`` follows a model family's own chat template, whose markers contain all the spacing.
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from lazyprompt.errors import ToolFormWarning
from lazyprompt.messages.prompt import MARKERS, Prompt
from lazyprompt.rendering.tool_form import join_parts, tool_run

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lazyprompt.messages.msg import Msg
    from lazyprompt.messages.tools import ToolSet
    from lazyprompt.rendering.markers import Markers
    from lazyprompt.rendering.tool_form import ToolFormat


# Parts, and the slot of each.
Run: TypeAlias = "tuple[Sequence[str], Sequence[str]]"


class Said(str):  # pickles of segments hold the name
    """The slot of a part of a turn of the assistant.

    It equals the plain name of the slot; only training data needs the class. A prompt has no cost for it.
    """

    __slots__ = ()


class End(Said):
    """The slot of the part that begins with the end marker of the assistant's turn."""

    __slots__ = ()


_MARKER = (MARKERS,)
OWN = (MARKERS, MARKERS)


class PartList:
    """A list of parts: trusted and untrusted text in turn, with the slot of each.

    Args:
        parts: Parts that begin and end with a trusted one.
        slots: The slot of each.

    Attributes:
        parts: The parts.
        runs: The slots of the parts, as they were added.
        note: The reason why the slots are unknown; empty if they are known.
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


class TextLayout(Protocol):
    """A compiled layout."""

    literals: tuple[str, ...]
    """The fixed texts, in which control sequences are found."""
    opening: str
    """The end of the assistant's marker that the model writes itself; empty if the prompt has all of it."""

    def lay(self, prompt: Prompt) -> PartList:
        """Put the fields in order."""
        ...

    def folded(self, prompt: Prompt, constant: frozenset[str]) -> TextLayout:
        """Return a faster layout for prompts with constant fields.

        Args:
            prompt: Any of these prompts.
            constant: The names of the constant fields.
        """
        ...

    def mark(self, split: str) -> str:
        """Return the text right before the answer: a template's split with its markers, or the family's own marker."""
        ...


def last_question(messages: Sequence[Msg]) -> int:
    """Return the index of the user's last message; 0 if there is none."""
    asked = (
        at
        for at in reversed(range(len(messages)))
        if messages[at].role == "user" and not any(block.type == "tool_result" for block in messages[at].blocks)
    )
    return next(asked, 0)


def turn_literals(markers: Markers) -> tuple[str, ...]:
    """Return the fixed texts between the values of a history."""
    return (
        *(markers.sos, markers.eos, markers.eoh + markers.soa, markers.eoa + markers.soh, markers.soe, markers.eoe),
        *(markers.tool_start, markers.tool_args, markers.tool_end, markers.result_join or ""),
        *markers.tool_form.literals,
    )


def tool_parts(tools: ToolSet, markers: Markers, description: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the tools block with its slots.

    Args:
        tools: The tools.
        markers: The markers of the model.
        description: The text of the block, with ``{tools}`` where the tools go.
    """
    form = markers.tool_form
    if form.note and markers.family:
        warnings.warn(
            f"the tools are described as JSON, not as {markers.family} was trained to read them: {form.note}; "
            "chat_template= renders the model's own form",
            ToolFormWarning,
            stacklevel=2,
        )
    return _described_tools(tools, description, form.tool, markers.tool_join)


@lru_cache(maxsize=64)
def _described_tools(
    tools: ToolSet, description: str, form: ToolFormat, join: str | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    before, after = description.split("{tools}")
    if join is None:
        parts = [before, tools.json, after]
    else:
        parts = join_parts([tool_run(tool, form) for tool in tools], join)
        parts[0] = before + parts[0]
        parts[-1] += after
    return tuple(parts), ("tools",) * len(parts)
