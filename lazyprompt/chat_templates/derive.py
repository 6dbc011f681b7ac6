"""Markers out of a chat template: what stands around short chats, and a proof on others."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lazyprompt.chat_templates.controls import sequences_in
from lazyprompt.chat_templates.frame import ALL_KEPT, ROLES, PlainChat, chats_for, frame_of, messages_of
from lazyprompt.chat_templates.probe import ANSWER, QUESTION, Probe
from lazyprompt.chat_templates.traced import common_start
from lazyprompt.errors import TemplateError
from lazyprompt.messages.history import EMPTY_HISTORY, History
from lazyprompt.messages.prompt import Prompt
from lazyprompt.rendering.family_layout import FamilyLayout
from lazyprompt.rendering.markers import Markers

if TYPE_CHECKING:
    from lazyprompt.chat_templates.frame import Frame
    from lazyprompt.chat_templates.jinja import ChatJinja

_LAST_TOKEN = re.compile(r".*(?:>|\])\n*", re.DOTALL)


def markers_of(template: ChatJinja) -> Markers:
    """The markers of a template.

    Args:
        template: The template.

    Returns:
        Markers that lay out any plain chat as the template does.

    Raises:
        TemplateError: There are none that do; the message says why.
    """
    frame = frame_of(template)
    found = frame if isinstance(frame, str) else _markers(frame, template)
    if isinstance(found, Markers) and not isinstance(frame, str):
        for chat in chats_for(frame._replace(trim=ALL_KEPT)):
            if template.writes(messages_of(chat), add_generation_prompt=True) != _laid_out(found, chat):
                found = f"they would lay out {chat.texts!r:.200} in another way"
                break
        else:
            return found
    raise TemplateError(
        f"no markers take the place of this chat template: {found}; render with ChatTemplate, which knows the template"
    )


def _laid_out(markers: Markers, chat: PlainChat) -> str:
    said = chat.texts[int(chat.has_system) :]
    system = chat.texts[0] if chat.has_system else markers.system or ""
    history = History(tuple(said[0:-1:2]), tuple(said[1::2])) if len(said) > 1 else EMPTY_HISTORY
    prompt = Prompt(system, input=said[-1], history=history)
    return "".join(FamilyLayout(markers).lay(prompt).parts)


def _markers(frame: Frame, template: ChatJinja) -> Markers | str:
    """The markers of a frame: where one ends and the next begins, unprompted chats tell."""
    probe = Probe(template)
    bare = probe.around(("user", QUESTION), prompted=False)
    ended = probe.around(("user", QUESTION), ("assistant", ANSWER), prompted=False)
    trim = frame.trim
    if bare is None or ended is None or trim is None or not {"kept", "strip"}.issuperset(trim):
        return "what becomes of white space, or of a chat that nobody goes on with, is not simple"
    eoh, eoa = common_start(frame.asked, frame.end, bare[1]), common_start(frame.answered, ended[2])
    soh = frame.answered.removeprefix(eoa)
    if not frame.opening.endswith(soh):
        return "its first turn begins in another way than the others"
    markers = Markers(
        soh=soh,
        eoh=eoh,
        soa=frame.asked.removeprefix(eoh),
        eoa=eoa,
        generation=frame.end.removeprefix(eoh),
        stop=(eoa.strip(),) if eoa.strip() else (),
        exact=True,
        trim=tuple(sorted(role for role, done in zip(ROLES, trim, strict=True) if done == "strip")),
        controls=tuple(sorted(sequences_in(template))),
        family="chat template",
    )
    return _with_system(markers, frame.opening.removesuffix(soh), frame.system)


def _with_system(markers: Markers, head: str, around: tuple[str, str] | None) -> Markers | str:
    """Markers with what stands around a system text, and before all else where there is none."""
    if around is None:
        # As Gemma's: a system text of ours would go before the first thing the user says.
        return markers.evolve(bos=head, system="", system_place="first_user", eos="\n\n")
    opening, closing = around
    if markers.soh and closing.endswith(markers.soh):
        return _in_turn_of_its_own(markers, head, opening, closing.removesuffix(markers.soh))
    if opening.startswith(head + markers.soh):
        sos = opening.removeprefix(head + markers.soh)
        return markers.evolve(bos=head, sos=sos, eos=closing, system_place="first_user", system="")
    return "its system text stands in a place of its own"


def _in_turn_of_its_own(markers: Markers, head: str, opening: str, eos: str) -> Markers | str:
    """Markers with those of a system turn."""
    if opening.startswith(head):
        # Nothing stands there without a system text.
        return markers.evolve(bos=head, sos=opening.removeprefix(head), eos=eos)
    if not (head.startswith(opening) and head.endswith(eos)):
        return "it begins in another way where there is a system text"
    if brought := head.removeprefix(opening).removesuffix(eos):
        return markers.evolve(sos=opening, eos=eos, system=brought)
    # There is a system turn also without a text: what the template writes into it by itself.
    token = _LAST_TOKEN.match(opening)
    sos = token[0] if token else ""
    if sos == opening:
        return "it writes a system turn with nothing in it"
    return markers.evolve(sos=sos, preamble=opening.removeprefix(sos), eos=eos)
