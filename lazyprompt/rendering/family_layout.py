"""A layout that writes prompts in the format of a model family's own chat template."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

from lazyprompt._base.roles import SYSTEM_ROLES
from lazyprompt.messages.prompt import Prompt, stripped
from lazyprompt.rendering.history_turns import put_history
from lazyprompt.rendering.layout import (
    MARKER,
    OWN,
    Origin,
    PartList,
    Run,
    last_question,
    slot_origins,
    tool_parts,
    turn_literals,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyprompt.messages.msg import Msg
    from lazyprompt.rendering.markers import Markers

_BETWEEN = "\n\n"
_SYSTEM, _INPUT = Origin("system"), Origin("input")


class FamilyLayout:
    """A layout that adds no spacing, because the markers contain all of it.

    Args:
        markers: The family's markers.
    """

    __slots__ = ("_constant_system", "_generation", "_markers", "_system_text", "_with_tools", "literals", "opening")

    def __init__(self, markers: Markers) -> None:
        self._markers = markers
        self._constant_system: Run | None = None
        self._system_text: str | None = None
        # Llama's templates strip the first user text if the tools precede the text.
        in_first = markers.tool_form.place == "first_user" and "user" not in markers.trim
        self._with_tools = markers.evolve(trim=(*markers.trim, "user")) if in_first else markers
        self._generation = markers.soa if markers.generation is None else markers.generation
        stops_short = markers.soa.startswith(self._generation)
        self.opening = markers.soa[len(self._generation) :] if stops_short else ""
        begin, closing = markers.bos + markers.sos + markers.preamble, markers.eoh + self._generation
        self.literals: tuple[str, ...] = (begin, markers.eos + markers.soh, closing, *turn_literals(markers))

    def lay(self, prompt: Prompt) -> PartList:
        """Render a prompt's fields in the order of the family's chat template."""
        markers, leading = self._markers, self._leading(prompt)
        system = self._constant_system if self._constant_system and not leading else self._system(prompt, leading)
        messages = prompt.history.messages[len(leading) :]
        out = PartList((markers.bos,))
        lay = self._lay_turns if markers.system_place == "turn" else self._lay_into_user_turn
        asked = lay(system, messages, self._said(prompt), self._user_tools(prompt), out, len(leading))
        if asked is not None:
            out.own(markers.soh)
            out.add(*asked)
            out.own(markers.eoh)
        if asked is not None or not (markers.tool_form.same_turn and _ends_with_result(messages)):
            out.own(self._generation)
        return out

    def _lay_turns(
        self, system: Run, messages: Sequence[Msg], asked: Run | None, tools: Run | None, out: PartList, first: int
    ) -> Run | None:
        """Add the system turn and the history to a part list, and return the parts of the current user turn."""
        out.add(*system)
        if tools is None:
            put_history(messages, self._markers, out, first, is_open=asked is None)
        elif messages:
            _put_into_first_turn(tools, messages, self._with_tools, out, first, self._markers)
        else:
            asked = tools if asked is None else _join_runs(tools, (stripped(asked[0]), asked[1]))
        return asked

    def _lay_into_user_turn(
        self, system: Run, messages: Sequence[Msg], asked: Run | None, tools: Run | None, out: PartList, first: int
    ) -> Run | None:
        """Write the system text into a user turn of the history, and return the parts of the current user turn."""
        markers = self._markers
        in_first = markers.system_place == "first_user"
        if messages and (in_first or asked is None):
            moved = 0 if in_first else last_question(messages)
            put_history(messages[:moved], markers, out, first)
            if tools is not None:
                out.add(*tools)
            _put_into_first_turn(system, messages[moved:], markers, out, first + moved)
            return asked
        put_history(messages, markers, out, first)
        if tools is not None:
            out.add(*tools)
        if asked is not None:
            asked = _join_runs(system, asked)
        elif any(system[0][2:-2]):
            asked = self._trimmed(system[0][2:-2]), system[1][2:-2]
        return asked

    def _user_tools(self, prompt: Prompt) -> Run | None:
        """Return the tools block if the family writes it in or before a user turn, else None."""
        markers = self._markers
        if markers.tool_form.place not in ("first_user", "last_user") or not prompt.tools.names:
            return None
        return tool_parts(prompt.tools, markers, markers.tools)

    def folded(self, prompt: Prompt, constant: frozenset[str]) -> FamilyLayout:
        """Return a layout that precomputes the system text, or the whole system turn, if it is constant."""
        layout = FamilyLayout(self._markers)
        if "system" in constant:
            layout._system_text = prompt.system
        if constant >= {"system", "instruction", "tools"}:
            layout._constant_system = self._system(prompt, ())
        return layout

    def mark(self, split: str) -> str:  # noqa: ARG002 - the family's generation prompt is used
        """Return the family's generation prompt."""
        return self._generation

    def _leading(self, prompt: Prompt) -> Sequence[Msg]:
        """Return the system messages at the beginning of the history that become part of the system turn.

        If the family writes system text into a user turn or without a start marker, the method returns all leading
        system messages, because no marker would separate the messages. For other families, the method follows the chat
        template: it returns only the first message, and only if the prompter has no system text.
        """
        texts = [*takewhile(_is_system_text, prompt.history.messages)]
        if not texts:
            return ()
        if not self._markers.sos or self._markers.system_place != "turn":
            return texts
        own = prompt.system if self._system_text is None else self._system_text
        return () if own or any(prompt.instruction.parts) else texts[:1]

    def _system(self, prompt: Prompt, leading: Sequence[Msg]) -> Run:
        """Return the system turn's text parts and their origins; without a system turn, return one empty part."""
        markers = self._markers
        text = (prompt.system if self._system_text is None else self._system_text) or ""
        system = f"{text}\n" if text and any(prompt.instruction.parts) else text
        parts: Sequence[str] = (system, "", *prompt.instruction.parts)
        origins: Sequence[Origin] = (_SYSTEM, MARKER, *slot_origins(prompt.instruction.slots))
        if "system" in markers.trim:
            parts = stripped(parts)
        if leading:
            parts, origins = _with_leading(parts, origins, leading, trim="system" in markers.trim)
        opening, before = markers.sos + markers.preamble, None
        if prompt.tools.names:
            opening = markers.sos + markers.tool_form.header + markers.preamble
            if markers.tool_form.place == "before_system":
                before = tool_parts(prompt.tools, markers, markers.tools)
            else:
                parts, origins = self._with_system_tools((parts, origins), prompt)
        has_turn = any(parts) or markers.preamble or markers.empty_system
        if not has_turn and not (leading and markers.system_place == "turn"):
            return before or (("",), (MARKER,))
        turn = (opening, "", *parts, "", markers.eos), (*OWN, *origins, *OWN)
        return turn if before is None else _join_runs(before, turn)

    def _with_system_tools(self, text: Run, prompt: Prompt) -> Run:
        """Return the system text, including the tools block if the family writes it in the system turn."""
        markers, form = self._markers, self._markers.tool_form
        has_text = any(text[0])
        if form.place == "system_start":
            description = f"{markers.tools}\n\n" if has_text else markers.tools
            return _join_runs(tool_parts(prompt.tools, markers, description), text)
        if form.place != "system_end":
            return text
        if has_text or form.default_system:
            description = markers.tools if has_text else form.default_system + markers.tools
        else:
            # No text precedes the tools block, so drop the block's leading line breaks.
            description = markers.tools.lstrip("\n")
        return _join_runs(text, tool_parts(prompt.tools, markers, description))

    def _said(self, prompt: Prompt) -> Run | None:
        """Return the user's current text, or None if the prompt contains no user text."""
        if not prompt.input and not any(prompt.user.parts):
            return None
        parts = (*prompt.user.parts, prompt.input or "", "")
        return self._trimmed(parts), (*slot_origins(prompt.user.slots), _INPUT, MARKER)

    def _trimmed(self, parts: Sequence[str]) -> Sequence[str]:
        """Return the parts of a user turn, stripped if the family's template strips user text."""
        return stripped(parts) if "user" in self._markers.trim else parts


def _join_runs(first: Run, second: Run) -> Run:
    """Join two runs of alternating trusted and untrusted parts with an empty untrusted part."""
    return (*first[0], "", *second[0]), (*first[1], MARKER, *second[1])


def _with_leading(parts: Sequence[str], origins: Sequence[Origin], leading: Sequence[Msg], *, trim: bool) -> Run:
    """Append the texts of a history's leading system messages to the parts of the system text."""
    from lazyprompt.rendering.turns import message_run  # noqa: PLC0415 - only prompts with a history need it

    for index, message in enumerate(leading):
        text = message.text.strip() if trim else message.text
        run, run_origins = message_run(text, Origin("history", index))
        parts = (*parts, "", _BETWEEN if text and any(parts) else "", *run)
        origins = (*origins, *OWN, *run_origins)
    return parts, origins


def _is_system_text(message: Msg) -> bool:
    is_text = isinstance(message.content, str) or all(block.type == "text" for block in message.content)
    return message.role in SYSTEM_ROLES and is_text and message.url is None


def _ends_with_result(messages: Sequence[Msg]) -> bool:
    return bool(messages) and any(block.type == "tool_result" for block in messages[-1].blocks)


def _put_into_first_turn(
    system: Run, messages: Sequence[Msg], markers: Markers, out: PartList, first: int, others: Markers | None = None
) -> None:
    """Add a history, with the system text or the tools at the beginning of its first turn.

    If the first message is not a user message, the system text or the tools become a separate user turn. The
    turns after the first are written with the markers in ``others``, if given.
    """
    turns = PartList()
    own_turn = messages[0].role != "user"
    if own_turn:
        turns.own(markers.soh)
        turns.own(markers.eoh)
    begun = 0 if own_turn else 1
    put_history(messages[:begun], markers, turns, first)
    put_history(messages[begun:], others or markers, turns, first + begun)
    # In ``turns``, the first two parts are empty, and the third part is the start marker of the first turn.
    origins = turns.origins
    out.add(turns.parts[:3], origins[:3])
    out.add(*system)
    out.extend(turns.parts[3:], origins[3:])
