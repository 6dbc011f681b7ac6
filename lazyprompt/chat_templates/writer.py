"""Rendering of prompts as flat text with a model's chat template, which replaces the prompt template and markers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lazyprompt.chat_templates.controls import turn_sequences_in
from lazyprompt.chat_templates.conversation import build_chat, template_dicts, tools_of, traced_chat
from lazyprompt.chat_templates.pieces import may_cross
from lazyprompt.chat_templates.traced import TextOrigin, trace_message
from lazyprompt.chat_templates.trained import trained_parts
from lazyprompt.chat_templates.untrusted import Rendering
from lazyprompt.messages.openai_form import openai_dicts
from lazyprompt.rendering.layout import LABEL_SLOTS, PartList, SampleParts, slot_origins
from lazyprompt.safety.find import controls_for
from lazyprompt.safety.policy import Policy, guard

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyprompt.chat_templates.template import ChatTemplate
    from lazyprompt.messages.msg import Msg
    from lazyprompt.messages.prompt import Prompt, Rendered


class ChatTemplateWriter:
    """A writer that renders prompts with a chat template.

    Args:
        template: The template.
        safety: The policy for control sequences in untrusted text.
        system: A function that returns the system text of a prompt.
    """

    __slots__ = ("_safety", "_system", "_template")

    def __init__(self, template: ChatTemplate, safety: Policy, system: Callable[[Prompt], str]) -> None:
        self._template, self._system = template, system
        self._safety: Policy = safety

    def text(self, prompt: Prompt) -> str:
        """Render a prompt to a plain string; this method is faster than :meth:`write`.

        Raises:
            TemplateError: The template rejects the messages.
            SafetyError: Untrusted text contains a control sequence, and the policy is ``raise``.
        """
        return self._render(prompt).text + "".join(self._guard_label(prompt.label))

    def write(self, prompt: Prompt) -> PartList:
        """Render a prompt to neutralised parts with their slots.

        Raises:
            TemplateError: The template rejects the messages.
            SafetyError: Untrusted text contains a control sequence, and the policy is ``raise``.
        """
        rendered = self._render(prompt)
        out = PartList()
        out.add(rendered.parts, slot_origins(rendered.slots))
        out.note = rendered.note
        if prompt.label is not None:
            out.add(self._guard_label(prompt.label), slot_origins(LABEL_SLOTS))
        return out

    def write_sample(self, prompt: Prompt, answer: Msg, trained: Sequence[bool]) -> SampleParts:
        """Render a prompt and its response to neutralised parts for training.

        Args:
            prompt: The prompt.
            answer: The response.
            trained: A flag for each assistant turn in the history and for the response, True if the turn is trained on.

        Raises:
            TemplateError: The template rejects the messages, or the origins of the rendered text can't be traced.
            SafetyError: Untrusted text contains a control sequence, and the policy is ``raise``.
        """
        jinja = self._template.jinja(tools=bool(prompt.tools.names))
        asked = traced_chat(prompt, self._system(prompt), jinja)
        origin = TextOrigin("label", len(asked))
        chat = [*asked, *(trace_message(form, origin) for form in template_dicts([answer], jinja))]
        answers = [at for at, message in enumerate(chat) if message["role"] == "assistant"]
        wanted = {at for at, is_trained in zip(answers, trained, strict=True) if is_trained}
        variables = {"tools": tools_of(prompt).data, "documents": None}
        found = trained_parts(Rendering(jinja, variables, self._template.controls(jinja), self._safety), chat, wanted)
        # Number the messages of the history from 0, and drop the numbers of all other messages.
        last = len(asked) - (prompt.said is not None)
        first = last - len(openai_dicts(prompt.history.messages))
        numbers: dict[int | None, int] = {at: number for number, at in enumerate(range(first, last))}
        return found._replace(messages=tuple(map(numbers.get, found.messages)))

    def _render(self, prompt: Prompt) -> Rendered:
        template, system = self._template, self._system(prompt)
        jinja = template.jinja(tools=bool(prompt.tools.names))
        controls = template.controls(jinja)
        chat, tools, texts = build_chat(prompt, system, jinja)
        given = {"tools": tools, "documents": None, "add_generation_prompt": True}
        # Trace which text comes from values if a control sequence could begin in literal text and end in a value.
        careful = any(may_cross(controls, literal) for literal in prompt.literals if literal)
        traced = partial(traced_chat, prompt, system, jinja)
        return template.laid_out(jinja, chat, given, self._safety, None if careful else texts, traced)

    def _guard_label(self, label: str | None) -> list[str]:
        """Neutralise the turn markers in a label; reasoning and tool calls in the label stay unchanged."""
        if label is None:
            return []
        parts = ["", label, ""]
        if not self._safety.looks:
            return parts
        controls = controls_for(turn_sequences_in(self._template.jinja()), frozenset[str](), reserved=False)
        return guard(controls, parts, LABEL_SLOTS, self._safety)
