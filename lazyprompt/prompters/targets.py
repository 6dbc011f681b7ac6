"""Targets, which render prompts as flat text or as a provider's payload."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol, TypeAlias

from lazyprompt.formatters.report import Payload
from lazyprompt.messages.prompt import MARKERS, Prompt, Rendered
from lazyprompt.rendering.prompt_template import PromptTemplate, PromptWriter, TextWriter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lazyprompt.budget.budget import Budget
    from lazyprompt.chat_templates.template import ChatTemplate
    from lazyprompt.formatters.report import Payload
    from lazyprompt.messages.msg import Msg
    from lazyprompt.messages.tools import ToolSet
    from lazyprompt.rendering.layout import SampleParts
    from lazyprompt.rendering.markers import Markers
    from lazyprompt.safety.policy import Policy
    from lazyprompt.templates.instruction import InstructionTemplate

Made: TypeAlias = "str | Payload"


class Target(Protocol):
    """A renderer for prompts in a single format. A renderer stores no state for a prompt, so threads can share it."""

    def render(self, prompt: Prompt) -> Made:
        """Render a prompt; the result shares no mutable object with the prompt."""
        ...

    def cost(self, made: Made, budget: Budget) -> int:
        """Return the token count of a rendered prompt, according to the budget's counter."""
        ...

    def tokens(self, prompt: Prompt, budget: Budget) -> Mapping[str, int]:
        """Return the token counts of the slots, by name."""
        ...


class System(NamedTuple):
    """The system text for all prompts of a target.

    Attributes:
        default: The default system text, which is used if a prompt's ``system`` is None.
        added: A paragraph appended to every system text.
    """

    default: str
    added: str = ""

    def of(self, prompt: Prompt) -> str:
        """Return the system text of a prompt."""
        own = self.default if prompt.system is None else prompt.system
        return f"{own}\n\n{self.added}" if own and self.added else own or self.added


class TextTarget:
    """A renderer for flat text, with a prompt template and markers.

    Args:
        template: The prompt template.
        markers: The model's markers.
        system: The system text.
        instruction: The instruction template, whose own text is trusted.
        tools: The default tools for every prompt.
        safety: The policy for control sequences in untrusted text.
    """

    shows_thoughts: ClassVar[bool] = False
    """True if flat text can include a model's thinking."""

    def __init__(
        self,
        template: PromptTemplate,
        markers: Markers,
        system: System,
        instruction: InstructionTemplate,
        tools: ToolSet,
        safety: Policy,
    ) -> None:
        self._template, self._markers, self._system = template, markers, system
        self._instruction, self._tools, self._safety = instruction, tools, safety
        self._writer: TextWriter | None = None

    def render(self, prompt: Prompt) -> str:
        """Return the flat text.

        Raises:
            HistoryError: The prompt template has no field for the history.
            ToolsError: The prompt template has no field for the tools.
            SlotError: The prompt template has no field for the input.
            SafetyError: Untrusted text contains a control sequence, and the policy is ``raise``.
        """
        return "".join((self._writer or self._ready(prompt)).write(prompt).parts)

    def segments(self, prompt: Prompt) -> Rendered:
        """Return the flat text together with its segments; see :meth:`render`."""
        out = self._ready(prompt).write(prompt)
        return Rendered(out.parts, out.slots, out.note)

    def sample(self, prompt: Prompt, answer: Msg, trained: Sequence[bool]) -> SampleParts:
        """Render a prompt and its response as a training sample.

        Args:
            prompt: The prompt, without the response.
            answer: The response.
            trained: Flags for the assistant turns in the history and for the response; True to train on the turn.

        Returns:
            The text parts of the sample.

        Raises:
            LazyPromptError: Rendering would change a turn to train on. For other causes, see :meth:`render`.
        """
        return self._ready(prompt).write_sample(prompt, answer, trained)

    def cost(self, made: Made, budget: Budget) -> int:
        """Return the token count of the flat text."""
        return budget.count_text(str(made))

    def tokens(self, prompt: Prompt, budget: Budget) -> Mapping[str, int]:
        """Return the token counts of the slots, by name; fixed text and markers are omitted."""
        found = self.segments(prompt).tokens(budget)
        return {slot: tokens for slot, tokens in found.items() if slot != MARKERS}

    def _ready(self, prompt: Prompt) -> TextWriter:
        """Return the writer, which is created on first use; concurrent threads may create several equal writers."""
        writer = self._writer = self._writer or self._new_writer(prompt)
        return writer

    def _new_writer(self, prompt: Prompt) -> TextWriter:
        constant = self._instruction.constant | ({"system", "tools"} if self._tools else {"system"})
        writer = PromptWriter(self._template, self._markers, self._instruction.literals, self._safety)
        # Keep only the prompter's tools, because tools passed to a single call are not part of the constant text.
        return writer.keep(prompt.evolve(system=self._system.of(prompt), tools=self._tools), constant)


class TemplateTarget(TextTarget):
    """A renderer for flat text, with a model's own chat template.

    Args:
        template: The chat template.
        system: The system text.
        safety: The policy for control sequences in untrusted text.
    """

    shows_thoughts: ClassVar[bool] = True

    def __init__(self, template: ChatTemplate, system: System, safety: Policy) -> None:
        from lazyprompt.chat_templates.writer import ChatTemplateWriter  # noqa: PLC0415 - only templates need Jinja

        self._chat_writer = ChatTemplateWriter(template, safety, system.of)

    def render(self, prompt: Prompt) -> str:
        """Return the flat text without its segments, which take longer to compute.

        Raises:
            TemplateError: The template rejects the messages.
            SafetyError: Untrusted text contains a control sequence, and the policy is ``raise``.
        """
        return self._chat_writer.text(prompt)

    def _ready(self, prompt: Prompt) -> TextWriter:  # noqa: ARG002 - the same for all prompts
        return self._chat_writer
