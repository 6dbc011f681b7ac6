"""A layout that follows a model family's own chat template."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

from lazyprompt._base.roles import SYSTEM_ROLES
from lazyprompt.messages.prompt import MARKERS, Prompt, stripped
from lazyprompt.rendering.history_turns import put_history
from lazyprompt.rendering.layout import PartList, Run, tool_parts, turn_literals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyprompt.messages.msg import Msg
    from lazyprompt.rendering.markers import Markers

# What stands between the system text of the prompter and that of the history, where both are one: as in DeepSeek's.
_BETWEEN = "\n\n"


class FamilyLayout:
    """The layout of a model family: the markers hold all the spacing, and an empty system turn is left out.

    Args:
        markers: The family's markers.
    """

    __slots__ = ("_constant_system", "_generation", "_markers", "_system_text", "literals", "opening")

    def __init__(self, markers: Markers) -> None:
        self._markers = markers
        self._constant_system: Run | None = None
        self._system_text: str | None = None
        self._generation = markers.soa if markers.generation is None else markers.generation
        stops_short = markers.soa.startswith(self._generation)
        self.opening = markers.soa[len(self._generation) :] if stops_short else ""
        begin, closing = markers.bos + markers.sos + markers.preamble, markers.eoh + self._generation
        self.literals: tuple[str, ...] = (begin, markers.eos + markers.soh, closing, *turn_literals(markers))

    def lay(self, prompt: Prompt) -> PartList:
        """Put the fields in order, as the family's chat template does with the same messages."""
        markers, leading = self._markers, self._leading(prompt)
        # A system text that the history begins with stands in the place of the prompter's, or behind it.
        system = self._constant_system if self._constant_system and not leading else self._system(prompt, leading)
        messages = prompt.history.messages[len(leading) :]
        asked = self._said(prompt)
        out = PartList((markers.bos,))
        last = 0
        if markers.system_place == "turn":
            parts, slots = system
            out.add(parts, slots)
            put_history(messages, markers, out, len(leading))
        elif messages and (markers.system_place == "first_user" or asked is None):
            last = 0 if markers.system_place == "first_user" else _last_question(messages)
            put_history(messages[:last], markers, out, len(leading))
            _put_into_first_turn(system, messages[last:], markers, out, len(leading) + last)
        else:
            last = len(messages) if leading else 0
            put_history(messages, markers, out, len(leading))
            # Without a user turn, the system text is one.
            if asked is not None:
                asked = (*system[0], "", *asked[0]), (*system[1], MARKERS, *asked[1])
            elif any(system[0][2:-2]):
                asked = self._trimmed(system[0][2:-2]), system[1][2:-2]
        if leading:
            first = [*range(len(leading), len(leading) + last)]
            out.order = [*first, *range(len(leading)), *range(len(leading) + last, len(prompt.history.messages))]
        if asked is not None:
            parts, slots = asked
            out.own(markers.soh)
            out.add(parts, slots)
            out.own(markers.eoh)
        out.own(self._generation)
        return out

    def folded(self, prompt: Prompt, constant: frozenset[str]) -> FamilyLayout:
        """This layout with the system text put in for good, or its turn, if all in it is the same in every prompt."""
        layout = FamilyLayout(self._markers)
        if "system" in constant:
            layout._system_text = prompt.system
        if constant >= {"system", "instruction", "tools"}:
            layout._constant_system = self._system(prompt, ())
        return layout

    def mark(self, split: str) -> str:  # noqa: ARG002 - a family has its own
        """Text that invites the assistant to answer."""
        return self._generation

    def _leading(self, prompt: Prompt) -> Sequence[Msg]:
        """Return the messages at the beginning of the history that are part of the system text.

        The first is one if the prompter has no system text of its own, as a template takes it from the first message.
        All are where the family has no marker that opens a system turn, so that two texts could not be told apart.
        """
        if not prompt.history or prompt.history.messages[0].role not in SYSTEM_ROLES:
            return ()
        texts = [*takewhile(_is_system_text, prompt.history.messages)]
        if not self._markers.sos or self._markers.system_place != "turn":
            return texts
        own = prompt.system if self._system_text is None else self._system_text
        return () if own or any(prompt.instruction.parts) else texts[:1]

    def _system(self, prompt: Prompt, leading: Sequence[Msg]) -> Run:
        """The whole system turn, or nothing; behind the prompter's text the one that the history begins with."""
        markers = self._markers
        text = (prompt.system if self._system_text is None else self._system_text) or ""
        system = f"{text}\n" if text and any(prompt.instruction.parts) else text
        parts: Sequence[str] = (system, "", *prompt.instruction.parts)
        slots: Sequence[str] = ("system", MARKERS, *prompt.instruction.slots)
        if "system" in markers.trim:
            parts = stripped(parts)
        if leading:
            parts, slots = _with_leading(parts, slots, leading, trim="system" in markers.trim)
        if prompt.tools.names:
            # What parts the tools from the text before them has no place where there is none.
            description = markers.tools if any(parts) else markers.tools.lstrip("\n")
            tools, tool_slots = tool_parts(prompt.tools, description, markers.tool_join)
            parts, slots = (*parts, "", *tools), (*slots, MARKERS, *tool_slots)
        has_turn = any(parts) or markers.preamble or markers.empty_system
        if not has_turn and not (leading and markers.system_place == "turn"):
            return ("",), (MARKERS,)
        opening = markers.sos + markers.preamble
        return (opening, "", *parts, "", markers.eos), (MARKERS, MARKERS, *slots, MARKERS, MARKERS)

    def _said(self, prompt: Prompt) -> Run | None:
        """Return the user's newest text; None if there is none."""
        if not prompt.input and not any(prompt.user.parts):
            return None
        parts = (*prompt.user.parts, prompt.input or "", "")
        return self._trimmed(parts), (*prompt.user.slots, "input", MARKERS)

    def _trimmed(self, parts: Sequence[str]) -> Sequence[str]:
        """The parts of a user turn, without white space around them where the family's template strips it."""
        return stripped(parts) if "user" in self._markers.trim else parts


def _with_leading(parts: Sequence[str], slots: Sequence[str], leading: Sequence[Msg], *, trim: bool) -> Run:
    """Return the parts of a system text with the system messages that the history begins with behind them."""
    from lazyprompt.rendering.turns import message_run  # noqa: PLC0415 - only messages need to know what they are

    for message in leading:
        text = message.text.strip() if trim else message.text
        run, run_slots = message_run(text)
        parts = (*parts, "", _BETWEEN if text and any(parts) else "", *run)
        slots = (*slots, MARKERS, MARKERS, *run_slots)
    return parts, slots


def _is_system_text(message: Msg) -> bool:
    is_text = isinstance(message.content, str) or all(block.type == "text" for block in message.content)
    return message.role in SYSTEM_ROLES and is_text and message.url is None


def _last_question(messages: Sequence[Msg]) -> int:
    """Return the index of the user's last message; 0 if there is none."""
    asked = (
        at
        for at in reversed(range(len(messages)))
        if messages[at].role == "user" and not any(block.type == "tool_result" for block in messages[at].blocks)
    )
    return next(asked, 0)


def _put_into_first_turn(system: Run, messages: Sequence[Msg], markers: Markers, out: PartList, first: int) -> None:
    """A history whose first turn begins with the system text; a turn of its own where somebody else speaks first."""
    turns = PartList()
    if messages[0].role != "user":
        turns.own(markers.soh)
        turns.own(markers.eoh)
    put_history(messages, markers, turns, first)
    # The first two parts are the empty ones every list begins with; the third is what opens the first turn.
    slots = turns.slots
    out.add(turns.parts[:3], slots[:3])
    out.add(*system)
    out.extend(turns.parts[3:], slots[3:])
