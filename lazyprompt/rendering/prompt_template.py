"""Prompt templates, which are flat text with placeholders for the fields of a prompt."""

from __future__ import annotations

import re
from itertools import compress, cycle, islice
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol, runtime_checkable

from lazyprompt._base.json import JsonText
from lazyprompt.errors import SafetyError, TemplateError
from lazyprompt.messages.prompt import MARKERS, Prompt, Rendered
from lazyprompt.rendering.family_layout import FamilyLayout
from lazyprompt.rendering.layout import LABEL_SLOTS, slot_origins
from lazyprompt.rendering.markers import DEFAULT_MARKERS, Markers, check_breakable, tokens_of
from lazyprompt.rendering.template_layout import TemplateLayout
from lazyprompt.safety.find import Controls, controls_for, is_breakable
from lazyprompt.safety.policy import COMMON_TAGS, NEUTRALIZE, Policy, guard, headers_in, policy_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyprompt.messages.msg import Msg
    from lazyprompt.messages.tools import ToolSet
    from lazyprompt.rendering.layout import PartList, SampleParts, TextLayout

DEFAULT_SYSTEM = "You are an AI-Agent developed by LazyLLM."


class PromptTemplate:
    """A template for flat text, with placeholders for the fields of a prompt.

    Args:
        text: The template's text, with ``{system} {instruction} {tools} {history} {user} {input}`` for the fields of
            the prompt and ``{sos} {eos} {soh} {eoh} {soa} {eoa} {soe} {eoe} {bos}`` for the markers.
        split: The text directly before the response, for :meth:`Prompter.get_response`; it may contain markers.
        optional: The optional sections of the template's text, in order of appearance. A section is omitted if the
            prompt contains none of the section's fields.

    Raises:
        TemplateError: The template's text contains an unknown placeholder, or lacks a section that ``optional`` lists.
    """

    exact_families: ClassVar[bool] = False
    """True if a model family's own layout replaces the text."""

    def __init__(self, text: str, split: str | None = None, *, optional: str | Sequence[str] = ()) -> None:
        self.text = text
        self.split = split
        self.optional = (optional,) if isinstance(optional, str) else tuple(optional)
        self.layout(DEFAULT_MARKERS)
        self.structure = structure_in(text)

    def layout(self, markers: Markers) -> TextLayout:
        """Compile the template with a model's markers."""
        if markers.exact and self.exact_families:
            return FamilyLayout(markers)
        return TemplateLayout.of(self.text, self.optional, markers)

    def render(self, prompt: Prompt, markers: Markers | str = DEFAULT_MARKERS, safety: str = "neutralize") -> Rendered:
        """Render a prompt as flat text.

        Args:
            prompt: The prompt.
            markers: The model's markers, or the name of a model or family.
            safety: The policy for control sequences in untrusted text: ``neutralize``, ``raise`` or ``off``.

        Returns:
            The flat prompt with its segments.

        Raises:
            SafetyError: Untrusted text contains a control sequence and ``safety`` is ``raise``, or ``safety`` is
                unknown.
            HistoryError: The prompt has a history, but the template contains no placeholder for it.
            ToolsError: The prompt has tools, but the template contains no placeholder for them.
            SlotError: The prompt has an input, but the template contains no placeholder for it.
        """
        markers = Markers.for_model(markers)
        known = prompt.with_system(resolved_system(prompt.system, markers))
        out = PromptWriter(self, markers, prompt.literals, policy_of(safety)).write(known)
        return Rendered(out.parts, out.slots)

    def answer_in(self, output: str, markers: Markers) -> str:
        """Return the part of an output after the prompt, or the whole output if it does not contain the prompt.

        If the template contains a history, each turn contains the separator ``split``, so the output is split at the
        last separator. If the template contains no history, the output is split at the first separator, because the
        response may also contain separators.
        """
        mark = self.layout(markers).mark(self.split or "")
        if not mark or mark not in output:
            return output
        return output.rpartition(mark)[2] if "{history}" in self.text else output.partition(mark)[2]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r})"


class ChatPromptTemplate(PromptTemplate):
    """The chat layout of ``ChatPrompter``, or a model family's own layout.

    Args:
        system_turn: True to write a system turn, which contains the tools; False to write the tools in the user turn.
    """

    exact_families: ClassVar[bool] = True

    def __init__(self, *, system_turn: bool = True) -> None:
        head = "{sos}{system}{instruction}{tools}{eos}\n\n" if system_turn else ""
        turn = "{soh}\n{user}{input}\n{eoh}" if system_turn else "{soh}\n{tools}{user}{input}\n{eoh}"
        super().__init__(f"{head}{{history}}\n{turn}{{soa}}\n", "{soa}\n", optional=(turn,))


class MessagesPromptTemplate(PromptTemplate):
    """A layout that writes messages one after another, each between the markers of its role."""

    def __init__(self) -> None:
        super().__init__("{sos}{system}{instruction}{tools}{eos}{history}{soh}{user}{input}{eoh}{soa}", "{soa}")

    def layout(self, markers: Markers) -> TextLayout:
        """Return a layout that adds no spacing, because a family's markers contain all the spacing."""
        general = markers.tools == DEFAULT_MARKERS.tools
        return FamilyLayout(markers.evolve(tools=f"\n\n{markers.tools.rstrip()}") if general else markers)


class AlpacaPromptTemplate(PromptTemplate):
    """The Alpaca layout, which contains one instruction and one response, but no history."""

    def __init__(self) -> None:
        super().__init__(
            "{system}\n{instruction}\n{tools}\n{user}\n\n### Response:\n",
            "### Response:\n",
            optional=("{system}\n", "\n{user}\n\n"),
        )


class TextWriter(Protocol):
    """A writer that renders prompts as neutralised flat text, with a prompt template or a model's own chat template."""

    def write(self, prompt: Prompt) -> PartList:
        """Render a prompt to trusted and untrusted parts, each with its slot name."""
        ...

    def write_sample(self, prompt: Prompt, answer: Msg, trained: Sequence[bool]) -> SampleParts:
        """Render a prompt and its response to text parts, each with a flag that is True if the loss covers the part."""
        ...


# Models trained on Alpaca's layout treat each of Alpaca's headers as structure.
# Source: https://github.com/tatsu-lab/stanford_alpaca#data-release
_ALPACA = frozenset({"### Instruction:", "### Input:", "### Response:"})


_PLACE = re.compile(r"\{\w+\}")


class TemplateStructure(NamedTuple):
    """The control sequences in the fixed text of a prompt template.

    Attributes:
        sequences: The texts that are control sequences wherever they occur in a value.
        lines: The texts that are control sequences only at the start of a line.
    """

    sequences: frozenset[str]
    lines: frozenset[str]


def structure_in(text: str) -> TemplateStructure:
    """Return the control sequences in the fixed text of a prompt template.

    - Tokens, such as ``<human>`` and ``[/INST]``, are control sequences wherever they occur in a value.
    - A line of fixed text without tokens, such as ``Human:`` or ``---``, is a control sequence only at the start of a
      line. The fixed text must contain at least two characters.
    - Text on the same line after a placeholder, such as ``Answer:`` in ``{input} Answer:``, is a control sequence
      wherever it occurs in a value. The text must end with punctuation and contain a letter or digit, so ``and`` in
      ``{user} and {input}`` is not a control sequence.
    """
    sequences, lines = set[str](), set[str]()
    for at, literal in enumerate(_PLACE.split(text)):
        for number, line in enumerate(literal.splitlines()):
            bare = line.strip()
            if tokens := tokens_of(line):
                sequences.update(tokens)
            elif at == 0 or number:
                lines.add(bare)
            elif any(map(str.isalnum, bare)) and not bare[-1].isalnum():
                sequences.add(bare)
    return TemplateStructure(frozenset(filter(is_breakable, sequences)), frozenset(filter(is_breakable, lines)))


class PromptWriter:
    """A writer that renders and neutralises prompts that share one instruction and one model.

    Args:
        template: The template.
        markers: The model's markers.
        literals: The developer's own text in the instruction; its section headers count as control sequences.
        safety: The policy for control sequences in untrusted text.
    """

    def __init__(self, template: PromptTemplate, markers: Markers, literals: Sequence[str], safety: Policy) -> None:
        self._layout = template.layout(markers)
        self._markers = markers
        self._safety: Policy = safety
        self._looks = safety.looks
        if self._looks:
            check_breakable(markers)
        # ``_own_layout`` is a precomputed layout for prompts that use the tool set ``_tools``.
        self._own_layout = self._layout
        self._tools: ToolSet | None = None
        texts = {*self._layout.literals, *literals, markers.tools}
        headers = template.structure.lines.union(header for text in texts for header in headers_in(text))
        if headers & _ALPACA:
            headers |= _ALPACA
        sequences = template.structure.sequences
        self._controls = controls_of(markers, headers, sequences)
        # The label, which is the expected response, may contain reasoning and tool calls, but no turn markers.
        self._label_controls = controls_for(markers.turn_sequences | sequences, headers, reserved=False)

    def keep(self, prompt: Prompt, constant: frozenset[str]) -> PromptWriter:
        """Precompute the fields that are the same in every prompt that this writer renders.

        Args:
            prompt: A prompt to render with this writer, including the system text. The constant fields are taken from
                this prompt.
            constant: The names of the constant fields.

        Returns:
            This writer.
        """
        self._own_layout = self._layout.folded(prompt, constant | {"tools"})
        self._layout = self._layout.folded(prompt, constant - {"tools"})
        self._tools = prompt.tools
        return self

    def write(self, prompt: Prompt) -> PartList:
        """Render a prompt.

        Args:
            prompt: The prompt. The prompt's system text is ignored if :meth:`keep` was called before.

        Returns:
            The prompt's trusted and untrusted parts after neutralising, each with its slot name.

        Raises:
            SafetyError: Untrusted text contains a control sequence, and the policy is ``raise``.
        """
        out = (self._own_layout if prompt.tools is self._tools else self._layout).lay(prompt)
        if self._looks:
            out.parts = guard(self._controls, out.parts, out.slots, self._safety)
        if prompt.label is not None:
            answer = ["", prompt.label, ""]
            if self._looks:
                answer = guard(self._label_controls, answer, LABEL_SLOTS, self._safety)
            out.add(answer, slot_origins(LABEL_SLOTS))
        return out

    def write_sample(self, prompt: Prompt, answer: Msg, trained: Sequence[bool]) -> SampleParts:
        """Render a prompt and its response for training.

        Args:
            prompt: The prompt.
            answer: The response.
            trained: A flag for each assistant turn in the history and for the response, True if the turn is trained on.

        Returns:
            The neutralised parts, which begin with the parts that :meth:`write` returns.

        Raises:
            SafetyError: Untrusted text contains a control sequence and the policy is ``raise``, or a turn to train on
                contains text that would be neutralised in a prompt.
            FormatError: The response contains media, which flat text can't represent.
        """
        from lazyprompt.rendering.turns import answer_parts, answer_turns, sample_parts  # noqa: PLC0415 - prompts need none

        out = self.write(prompt)
        turns = answer_turns(out.origins)
        # ``trained`` has one flag per turn. A template may render the history more than once, so repeat the flags.
        wanted = [*islice(cycle(trained[:-1]), len(turns)), trained[-1]]
        if any(wanted[:-1]):
            bare = self._layout.lay(prompt)
            for turn in compress(turns, wanted):
                self._check_said(bare.parts[turn[0] : turn[-1]], out.parts[turn[0] : turn[-1]])
        answered = answer_parts(answer, self._markers, self._layout.opening, prompt.history)
        if self._looks:
            answered.parts = guard(self._label_controls, answered.parts, answered.slots, self._safety)
        out.add(answered.parts, answered.origins)
        return sample_parts(out, wanted, self._markers, self._layout.opening, prompt.history)

    def _check_said(self, bare: Sequence[str], guarded: Sequence[str]) -> None:
        """Raise an error if rendering a prompt neutralised reasoning or tool calls in a history turn to train on.

        In a prompt, reasoning and tool calls inside a history turn's text are neutralised, but the model must not learn
        to write neutralised text.
        """
        for before, after in zip(bare, guarded, strict=True):
            # Accept neutralised JSON in text that the model is trained on, because neutralising JSON doesn't change the
            # decoded value.
            if before == after or isinstance(before, JsonText):
                continue
            if guard(self._label_controls, ["", before, ""], (MARKERS, "history", MARKERS), NEUTRALIZE)[1] != after:
                raise SafetyError(
                    "a turn in the history that is included in the loss contains control sequences, which rendering "
                    f"neutralises: {after!r}; pass calls as tool_calls, pass the turn as the label of a separate "
                    'sample, or call with_safety("off") to trust the history'
                )


_NONE: frozenset[str] = frozenset()


def controls_of(markers: Markers, headers: frozenset[str] = _NONE, sequences: frozenset[str] = _NONE) -> Controls:
    """Return the control sequences for a model.

    Args:
        markers: The model's markers. If the markers name no family, the result includes the control sequences of all
            known families.
        headers: The section headers that count as control sequences.
        sequences: Additional control sequences, for example from a prompt template.
    """
    known = markers.control_sequences | (_NONE if markers.family else Markers.known_sequences())
    return controls_for(known | COMMON_TAGS | sequences, headers)


@runtime_checkable
class HasControls(Protocol):
    """The interface that this module expects of a chat template; the chat template class is in a higher layer."""

    def controls(self) -> Controls:
        """Return the control sequences of the template and its tokenizer."""
        ...


def controls_for_model(model: str | Markers | HasControls | None, headers: frozenset[str] = _NONE) -> Controls:
    """Return the control sequences for a model, or for all families if the model is unknown.

    Args:
        model: The model's name on a server, its markers or its chat template.
        headers: The section headers that count as control sequences.

    Raises:
        TemplateError: The model has another type.
    """
    if isinstance(model, str):
        try:
            return controls_of(Markers.for_model(model), headers)
        except TemplateError:
            model = None
    return _controls_of_model(model, headers)


def _controls_of_model(model: str | Markers | HasControls | None, headers: frozenset[str] = _NONE) -> Controls:
    if model is None or isinstance(model, str | Markers):
        return controls_of(DEFAULT_MARKERS if model is None else Markers.for_model(model), headers)
    return _checked_template(model).controls()


def _checked_template(given: object) -> HasControls:
    if not isinstance(given, HasControls):
        raise TemplateError(f"model must be a name, Markers or a ChatTemplate, not {type(given).__name__}")
    return given


def neutralize(text: str, model: str | Markers | HasControls | None = None) -> str:
    """Neutralise untrusted text for a prompt that you build yourself.

    Each control sequence in the text is escaped with a backslash. Text that is already neutralised is returned
    unchanged. Prompters, chat templates and formatters neutralise untrusted text automatically.

    Args:
        text: The untrusted text to neutralise.
        model: The model that reads the text, as a name, Markers or ChatTemplate; None for any model.

    Raises:
        TemplateError: The model is unknown.
    """
    return guard(_controls_of_model(model), ["", text, ""], ("", "text", ""), NEUTRALIZE)[1]


def restore(text: str, model: str | Markers | HasControls | None = None) -> str:
    """Remove the backslashes that :func:`neutralize` added, to display a text.

    Args:
        text: The neutralised text. A backslash that the text's author wrote into a control sequence is removed, too.
        model: The model that the text was neutralised for.

    Raises:
        TemplateError: The model is unknown.
    """
    return _controls_of_model(model).restore(text)


def resolved_system(system: str | None, markers: Markers) -> str:
    """Return the developer's system text; if it is None, return the family's default or else lazyprompt's default."""
    if system is not None:
        return system
    return DEFAULT_SYSTEM if markers.system is None else markers.system
