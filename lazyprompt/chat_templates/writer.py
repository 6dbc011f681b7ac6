"""A chat template in the place of a prompt template and markers: lays a prompter's fields out, and guards them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyprompt.chat_templates.controls import turn_sequences_in
from lazyprompt.chat_templates.conversation import dicts_from, prompted
from lazyprompt.chat_templates.pieces import may_cross
from lazyprompt.chat_templates.traced import Origin, map_texts, trace_message
from lazyprompt.chat_templates.trained import trained_parts
from lazyprompt.chat_templates.untrusted import Rendering
from lazyprompt.messages.openai_form import openai_dicts
from lazyprompt.messages.prompt import MARKERS, Prompt, Rendered
from lazyprompt.rendering.layout import PartList, SampleParts
from lazyprompt.safety.find import controls_for
from lazyprompt.safety.policy import Policy, guard

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyprompt.chat_templates.template import ChatTemplate
    from lazyprompt.messages.msg import Msg


class ChatTemplateWriter:
    """A chat template made ready for a prompter.

    Args:
        template: The template.
        safety: What becomes of control sequences in untrusted text.
        system: Returns the system text of a prompt.
    """

    __slots__ = ("_safety", "_system", "_template")

    def __init__(self, template: ChatTemplate, safety: Policy, system: Callable[[Prompt], str]) -> None:
        self._template, self._system = template, system
        self._safety: Policy = safety

    def text(self, prompt: Prompt) -> str:
        """The flat text.

        Args:
            prompt: The prompt.

        Returns:
            The text of :meth:`write`, which takes longer.

        Raises:
            TemplateError: The template refuses the messages.
            SafetyError: Untrusted text holds a control sequence, and that is to be refused.
        """
        return self._rendered(prompt).text + "".join(self._guarded(prompt.label))

    def write(self, prompt: Prompt) -> PartList:
        """Lay the prompt out.

        Args:
            prompt: The prompt.

        Returns:
            The guarded parts with their slots.

        Raises:
            TemplateError: The template refuses the messages.
            SafetyError: Untrusted text holds a control sequence, and that is to be refused.
        """
        rendered = self._rendered(prompt)
        out = PartList()
        out.add(rendered.parts, rendered.slots)
        out.note = rendered.note
        if prompt.label is not None:
            out.add(self._guarded(prompt.label), (MARKERS, "label", MARKERS))
        return out

    def write_sample(self, prompt: Prompt, answer: Msg, trained: Sequence[bool]) -> SampleParts:
        """Lay the prompt out with an answer behind them, to train a model with.

        Args:
            prompt: The prompt.
            answer: The answer.
            trained: For each turn of the assistant in the history, whether it is trained; then the same of the answer.

        Returns:
            The guarded parts.

        Raises:
            TemplateError: The template refuses the messages, or loses where its text came from.
            SafetyError: Untrusted text holds a control sequence, and that is to be refused.
        """
        jinja = self._template.jinja(tools=bool(prompt.tools.names))
        given = prompted(prompt.with_system(self._system(prompt)), jinja)
        origin = Origin("label", len(given.chat))
        forms = [jinja.takes.form(dict(form)) for form in dicts_from([answer], jinja)]
        chat = [*given.chat, *(trace_message(form, origin) for form in forms)]
        answers = [at for at, message in enumerate(chat) if message["role"] == "assistant"]
        wanted = {at for at, is_trained in zip(answers, trained, strict=True) if is_trained}
        variables = {"tools": given.tools, "documents": None}
        found = trained_parts(Rendering(jinja, variables, self._template.controls(jinja), self._safety), chat, wanted)
        # The system text may be a message before the history, or stand in the first one.
        first = len(given.chat) - len(openai_dicts(prompt.history.messages)) - (prompt.said is not None)
        places = zip(found.slots, found.messages, strict=True)
        return found._replace(
            messages=tuple(None if slot != "history" or at is None else at - first for slot, at in places)
        )

    def _rendered(self, prompt: Prompt) -> Rendered:
        jinja = self._template.jinja(tools=bool(prompt.tools.names))
        given = prompted(prompt.with_system(self._system(prompt)), jinja)
        variables = {"tools": given.tools, "documents": None, "add_generation_prompt": True}
        controls = self._template.controls(jinja)
        # A sequence may begin in the developer's own text and end in a value.
        careful = any(may_cross(controls, literal) for literal in given.literals if literal)
        texts = None if careful else given.texts
        chat = map_texts(given.chat, str.__str__)
        return self._template.laid_out(jinja, chat, variables, self._safety, texts, given.chat)

    def _guarded(self, label: str | None) -> list[str]:
        """An answer that may think and call tools, but not end its turn or open another."""
        if label is None:
            return []
        parts = ["", label, ""]
        if not self._safety.looks:
            return parts
        controls = controls_for(turn_sequences_in(self._template.jinja()), frozenset[str](), reserved=False)
        return guard(controls, parts, (MARKERS, "label", MARKERS), self._safety)
