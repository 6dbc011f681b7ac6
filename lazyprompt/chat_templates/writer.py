"""A chat template in the place of a prompt template and markers: lays a prompter's fields out, and guards them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lazyprompt.chat_templates.controls import turn_sequences_in
from lazyprompt.chat_templates.conversation import prompted, template_dicts, tools_of, traced_chat
from lazyprompt.chat_templates.pieces import may_cross
from lazyprompt.chat_templates.traced import Origin, trace_message
from lazyprompt.chat_templates.trained import trained_parts
from lazyprompt.chat_templates.untrusted import Rendering
from lazyprompt.messages.openai_form import openai_dicts
from lazyprompt.messages.prompt import MARKERS, OfMessage, Prompt, Rendered
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
        asked = traced_chat(prompt, self._system(prompt), jinja)
        origin = Origin("label", len(asked))
        chat = [*asked, *(trace_message(form, origin) for form in template_dicts([answer], jinja))]
        answers = [at for at, message in enumerate(chat) if message["role"] == "assistant"]
        wanted = {at for at, is_trained in zip(answers, trained, strict=True) if is_trained}
        variables = {"tools": tools_of(prompt).data, "documents": None}
        found = trained_parts(Rendering(jinja, variables, self._template.controls(jinja), self._safety), chat, wanted)
        # The system text may be a message before the history, or stand in the first one.
        first = len(asked) - len(openai_dicts(prompt.history.messages)) - (prompt.said is not None)
        places = zip(found.slots, found.messages, strict=True)
        return found._replace(
            messages=tuple(
                at - first if at is not None and (slot == "history" or isinstance(slot, OfMessage)) else None
                for slot, at in places
            )
        )

    def _rendered(self, prompt: Prompt) -> Rendered:
        template, system = self._template, self._system(prompt)
        jinja = template.jinja(tools=bool(prompt.tools.names))
        controls = template.controls(jinja)
        chat, tools, texts = prompted(prompt, system, jinja)
        given = {"tools": tools, "documents": None, "add_generation_prompt": True}
        # A sequence may begin in the developer's own text and end in a value.
        careful = any(may_cross(controls, literal) for literal in prompt.literals if literal)
        traced = partial(traced_chat, prompt, system, jinja)
        return template.laid_out(jinja, chat, given, self._safety, None if careful else texts, traced)

    def _guarded(self, label: str | None) -> list[str]:
        """An answer that may think and call tools, but not end its turn or open another."""
        if label is None:
            return []
        parts = ["", label, ""]
        if not self._safety.looks:
            return parts
        controls = controls_for(turn_sequences_in(self._template.jinja()), frozenset[str](), reserved=False)
        return guard(controls, parts, (MARKERS, "label", MARKERS), self._safety)
