"""Shared code for layouts, which determine the order and spacing of a prompt's fields in flat text.

The layouts for prompt templates and for model families share this code. The layout in ``template_layout.py`` fills a
prompt template, whose spacing is fixed. The layout in ``family_layout.py`` reproduces a model family's own chat
template with markers that contain all the spacing.
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


class Origin(NamedTuple):
    """The origin of a text part. Only training samples need more than the slot.

    Attributes:
        slot: The name of the slot.
        message: The index of the history message that contains the text; None for markers and for other text.
        result: The number of the tool result in its message, from 0; None for the message's own text.
        in_answer: True if the model writes the part: the content of an assistant turn, and the marker that ends it.
        ends_turn: True if the part begins with the marker that ends an assistant turn.
    """

    slot: str
    message: int | None = None
    result: int | None = None
    in_answer: bool = False
    ends_turn: bool = False


# A sequence of text parts, and the origin of each part.
Run: TypeAlias = "tuple[Sequence[str], Sequence[Origin]]"

MARKER = Origin(MARKERS)
OWN = (MARKER, MARKER)
_MARKER = (MARKER,)
# The slots of a label's text and of the empty parts around it.
LABEL_SLOTS = (MARKERS, "label", MARKERS)


@lru_cache(maxsize=256)
def slot_origins(slots: tuple[str, ...]) -> tuple[Origin, ...]:
    """Return the origins of text parts outside the history, given their slot names."""
    return tuple(map(Origin, slots))


class PartList:
    """A list of alternating trusted and untrusted text parts, with the origin of each part.

    Args:
        parts: The initial parts. The first and the last part are trusted.
        origins: The origin of each part in ``parts``.

    Attributes:
        parts: All parts.
        runs: Sequences of origins, whose concatenation contains the origin of each text part in order.
        note: The reason why the slots are unknown; empty if they are known.
    """

    __slots__ = ("note", "parts", "runs")

    def __init__(self, parts: Iterable[str] = ("",), origins: Sequence[Origin] = _MARKER) -> None:
        self.parts: list[str] = [*parts]
        self.runs: list[Sequence[Origin]] = [origins]
        self.note = ""

    @property
    def origins(self) -> list[Origin]:
        """The origin of each part."""
        return [origin for run in self.runs for origin in run]

    @property
    def slots(self) -> list[str]:
        """The slot of each part."""
        return [origin.slot for run in self.runs for origin in run]

    def extend(self, parts: Iterable[str], origins: Sequence[Origin]) -> None:
        """Append a list of parts whose first part is untrusted and whose last part is trusted."""
        self.parts += parts
        self.runs.append(origins)

    def own(self, text: str, origins: Sequence[Origin] = OWN) -> None:
        """Add trusted text, such as a marker."""
        self.parts += ("", text)
        self.runs.append(origins)

    def add(self, parts: Iterable[str], origins: Sequence[Origin]) -> None:
        """Add a sequence of alternating trusted and untrusted parts, whose first and last parts are trusted."""
        self.parts.append("")
        self.parts += parts
        self.runs.append(_MARKER)
        self.runs.append(origins)


class SampleParts(NamedTuple):
    """The parts of a training sample's text.

    Attributes:
        parts: Alternating trusted and untrusted parts.
        slots: The slot of each part.
        trained: A flag for each part, True if the loss covers the part.
        messages: For each part, the index of its message among the history's OpenAI dicts; None outside the history.
    """

    parts: tuple[str, ...]
    slots: tuple[str, ...]
    trained: tuple[bool, ...]
    messages: tuple[int | None, ...]


class TextLayout(Protocol):
    """A compiled layout."""

    literals: tuple[str, ...]
    """The fixed texts, which are searched for control sequences."""
    opening: str
    """The part of the assistant marker that the model itself generates; empty if the prompt contains all of it."""

    def lay(self, prompt: Prompt) -> PartList:
        """Render a prompt's fields in the order of the layout."""
        ...

    def folded(self, prompt: Prompt, constant: frozenset[str]) -> TextLayout:
        """Return a faster layout for prompts that share the values of some fields.

        Args:
            prompt: A prompt that contains the shared field values.
            constant: The names of the fields whose values are equal in all prompts that the layout will render.
        """
        ...

    def mark(self, split: str) -> str:
        """Return the text directly before the response.

        Args:
            split: The template's text before the response, with placeholders for markers. A model family's layout
                ignores ``split`` and returns the generation prompt.
        """
        ...


def last_question(messages: Sequence[Msg]) -> int:
    """Return the index of the last user message without tool results, or 0 if there is none."""
    asked = (
        at
        for at in reversed(range(len(messages)))
        if messages[at].role == "user" and not any(block.type == "tool_result" for block in messages[at].blocks)
    )
    return next(asked, 0)


def turn_literals(markers: Markers) -> tuple[str, ...]:
    """Return the literal text that a model family adds around message contents, tool calls and results in a history."""
    return (
        *(markers.sos, markers.eos, markers.eoh + markers.soa, markers.eoa + markers.soh, markers.soe, markers.eoe),
        *(markers.tool_start, markers.tool_args, markers.tool_end, markers.result_join or ""),
        *markers.tool_form.literals,
    )


def tool_parts(tools: ToolSet, markers: Markers, description: str) -> Run:
    """Return the trusted and untrusted parts of a prompt's tools block, and the origin of each part.

    Args:
        tools: The tools.
        markers: The model's markers.
        description: The text of the block, with ``{tools}`` as the placeholder for the tools.
    """
    form = markers.tool_form
    if form.note and markers.family:
        warnings.warn(
            f"the tools are described as JSON, which {markers.family} was not trained to read: {form.note}; "
            "pass chat_template= to render the model's own format",
            ToolFormWarning,
            stacklevel=2,
        )
    return _described_tools(tools, description, form.tool, markers.tool_join)


@lru_cache(maxsize=64)
def _described_tools(tools: ToolSet, description: str, form: ToolFormat, join: str | None) -> Run:
    before, after = description.split("{tools}")
    if join is None:
        parts = [before, tools.json, after]
    else:
        parts = join_parts([tool_run(tool, form) for tool in tools], join)
        parts[0] = before + parts[0]
        parts[-1] += after
    return tuple(parts), (Origin("tools"),) * len(parts)
