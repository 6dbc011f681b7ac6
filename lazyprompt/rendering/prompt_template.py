"""Prompt templates: the fields of a prompt, and the text between them."""

from __future__ import annotations

import re
from itertools import compress, cycle, islice
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from lazyprompt._base.json import JsonText
from lazyprompt.errors import SafetyError, TemplateError
from lazyprompt.messages.prompt import MARKERS, Prompt, Rendered
from lazyprompt.rendering.family_layout import FamilyLayout
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
    """A layout of flat text, given as text with places for the fields of a prompt.

    Args:
        text: The text, with ``{system} {instruction} {tools} {history} {user} {input}`` for the fields of the
            prompt and ``{sos} {eos} {soh} {eoh} {soa} {eoa} {soe} {eoe} {bos}`` for the markers.
        split: Text right before the answer, for :meth:`Prompter.get_response`; it may contain markers.
        optional: Runs of the text, in order, that are left out when all their fields are absent.

    Raises:
        TemplateError: A place is unknown, or an optional run is not in the text.
    """

    exact_families: ClassVar[bool] = False
    """True if a family's own layout replaces the text."""

    def __init__(self, text: str, split: str | None = None, *, optional: str | Sequence[str] = ()) -> None:
        self.text = text
        self.split = split
        self.optional = (optional,) if isinstance(optional, str) else tuple(optional)
        self.layout(DEFAULT_MARKERS)
        self.structure = structure_in(text)

    def layout(self, markers: Markers) -> TextLayout:
        """Return the template with the markers in it."""
        if markers.exact and self.exact_families:
            return FamilyLayout(markers)
        return TemplateLayout.of(self.text, self.optional, markers)

    def render(self, prompt: Prompt, markers: Markers = DEFAULT_MARKERS, safety: str = "neutralize") -> Rendered:
        """Render a prompt as flat text.

        Args:
            prompt: The prompt.
            markers: The markers of the model.
            safety: The policy for control sequences in untrusted text: ``neutralize``, ``raise`` or ``off``.

        Returns:
            The flat prompt, with its segments.

        Raises:
            SafetyError: There is such a sequence and ``safety`` is ``raise``, or ``safety`` is unknown.
            HistoryError: The prompt has a history, but the template has no place for it.
            ToolsError: The prompt has tools, but the template has no place for them.
            SlotError: The prompt has an input, but the template has no place for it.
        """
        known = prompt.with_system(resolved_system(prompt.system, markers))
        out = PromptWriter(self, markers, prompt.literals, policy_of(safety)).write(known)
        return Rendered(out.parts, out.slots)

    def answer_in(self, output: str, markers: Markers) -> str:
        """Return the part of an output behind the prompt, or all of it if the prompt is not in it.

        A template with turns has its split in each turn, so the last one counts. Otherwise the first counts, because
        the answer may contain it too.
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
        system_turn: True for a system turn; without one, tools are described in the user's turn.
    """

    exact_families: ClassVar[bool] = True

    def __init__(self, *, system_turn: bool = True) -> None:
        head = "{sos}{system}{instruction}{tools}{eos}\n\n" if system_turn else ""
        turn = "{soh}\n{user}{input}\n{eoh}" if system_turn else "{soh}\n{tools}{user}{input}\n{eoh}"
        super().__init__(f"{head}{{history}}\n{turn}{{soa}}\n", "{soa}\n", optional=(turn,))


class MessagesPromptTemplate(PromptTemplate):
    """Messages in a row, with only the markers of their roles around them."""

    def __init__(self) -> None:
        super().__init__("{sos}{system}{instruction}{tools}{eos}{history}{soh}{user}{input}{eoh}{soa}", "{soa}")

    def layout(self, markers: Markers) -> TextLayout:
        """Return a layout without spacing of its own: a family's markers contain all of it."""
        general = markers.tools == DEFAULT_MARKERS.tools
        return FamilyLayout(markers.evolve(tools=f"\n\n{markers.tools.rstrip()}") if general else markers)


class AlpacaPromptTemplate(PromptTemplate):
    """The Alpaca layout: one instruction and one response, without turns or a history."""

    def __init__(self) -> None:
        super().__init__(
            "{system}\n{instruction}\n{tools}\n{user}\n\n### Response:\n",
            "### Response:\n",
            optional=("{system}\n", "\n{user}\n\n"),
        )


class TextWriter(Protocol):
    """A writer of guarded flat prompts: a prompt template with markers, or a model's own chat template."""

    def write(self, prompt: Prompt) -> PartList:
        """Return the text as parts, with their slots."""
        ...

    def write_sample(self, prompt: Prompt, answer: Msg, trained: Sequence[bool]) -> SampleParts:
        """Return the prompt with an answer, as parts that are trained or not."""
        ...


# A model that was trained on Alpaca's layout reads each of its headers, even if a template has only some of them.
# Source: https://github.com/tatsu-lab/stanford_alpaca#data-release
_ALPACA = frozenset({"### Instruction:", "### Input:", "### Response:"})


_PLACE = re.compile(r"\{\w+\}")


class TemplateStructure(NamedTuple):
    """The control sequences in the literals of a prompt template.

    Attributes:
        sequences: The texts that count anywhere.
        lines: The texts that count at the start of a line.
    """

    sequences: frozenset[str]
    lines: frozenset[str]


def structure_in(text: str) -> TemplateStructure:
    """Return the control sequences in the text of a prompt template, between its places.

    - Tokens, such as ``<human>`` and ``[/INST]``, count anywhere.
    - A line without tokens that begins in the template, such as ``Human:`` or ``---``, counts at the start of a line if
      it has two characters or more.
    - Text right behind a place, in its line, counts anywhere if it ends in punctuation and holds a letter or digit, as
      ``Answer:`` of ``{input} Answer:``. The ``and`` of ``{user} and {input}`` is no structure.
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
    """A writer for one instruction and one model: renders prompts and guards them.

    Args:
        template: The template.
        markers: The markers of the model.
        literals: The developer's own text in the instruction, whose section headers are structure.
        safety: The policy for control sequences in untrusted text.
    """

    def __init__(self, template: PromptTemplate, markers: Markers, literals: Sequence[str], safety: Policy) -> None:
        self._layout = template.layout(markers)
        self._markers = markers
        self._safety: Policy = safety
        self._looks = safety.looks
        if self._looks:
            check_breakable(markers)
        # The layout for prompts with these tools, which are the same in most prompts.
        self._own_layout = self._layout
        self._tools: ToolSet | None = None
        texts = {*self._layout.literals, *literals, markers.tools}
        headers = template.structure.lines.union(header for text in texts for header in headers_in(text))
        if headers & _ALPACA:
            headers |= _ALPACA
        sequences = template.structure.sequences
        self._controls = controls_of(markers, headers, sequences)
        # A trained answer may think and call tools, but not end its turn or open another.
        self._label_controls = controls_for(markers.turn_sequences | sequences, headers, reserved=False)

    def keep(self, prompt: Prompt, constant: frozenset[str]) -> PromptWriter:
        """Precompute the fields that are the same in every prompt of this writer.

        Args:
            prompt: Any of these prompts, with its system text.
            constant: The names of the constant fields.

        Returns:
            The writer itself.
        """
        self._own_layout = self._layout.folded(prompt, constant | {"tools"})
        self._layout = self._layout.folded(prompt, constant - {"tools"})
        self._tools = prompt.tools
        return self

    def write(self, prompt: Prompt) -> PartList:
        """Render a prompt.

        Args:
            prompt: The prompt. Its system text is ignored after :meth:`keep`.

        Returns:
            The guarded parts with their slots.

        Raises:
            SafetyError: Untrusted text contains a control sequence, and the policy is ``raise``.
        """
        out = (self._own_layout if prompt.tools is self._tools else self._layout).lay(prompt)
        if self._looks:
            out.parts = guard(self._controls, out.parts, out.slots, self._safety)
        if prompt.label is not None:
            answer, slots = ["", prompt.label, ""], (MARKERS, "label", MARKERS)
            if self._looks:
                answer = guard(self._label_controls, answer, slots, self._safety)
            out.add(answer, slots)
        return out

    def write_sample(self, prompt: Prompt, answer: Msg, trained: Sequence[bool]) -> SampleParts:
        """Render a prompt with its answer, for training.

        Args:
            prompt: The prompt.
            answer: The answer.
            trained: True for each trained turn of the assistant: those of the history in order, then the answer.

        Returns:
            The guarded parts, which begin with those of :meth:`write`.

        Raises:
            SafetyError: Untrusted text contains a control sequence and the policy is ``raise``, or a trained turn
                contains one that a prompt would neutralise.
            FormatError: The answer contains media, which flat text can't show.
        """
        from lazyprompt.rendering.turns import (  # noqa: PLC0415 - prompts need none
            answer_parts,
            sample_parts,
            turns_in,
            with_trained,
        )

        out = self.write(prompt)
        turns = turns_in(out.slots)
        # A template may show the history more than once.
        wanted = [*islice(cycle(trained[:-1]), len(turns)), trained[-1]]
        if any(wanted[:-1]):
            bare = self._layout.lay(prompt)
            for turn in compress(turns, wanted):
                self._check_said(bare.parts[turn[0] : turn[-1]], out.parts[turn[0] : turn[-1]])
        answered = answer_parts(answer, self._markers, self._layout.opening, prompt.history)
        if self._looks:
            answered.parts = guard(self._label_controls, answered.parts, answered.slots, self._safety)
        out.add(answered.parts, answered.slots)
        parts = with_trained(out, wanted, self._markers, self._layout.opening)
        return sample_parts(parts, prompt.history, out.order, self._markers)

    def _check_said(self, bare: Sequence[str], guarded: Sequence[str]) -> None:
        """Refuse a turn of the history that the guard changes in a prompt, but not in an answer.

        In a prompt, thoughts and calls that are written as text are neutralised. A model must not learn that form.
        """
        for before, after in zip(bare, guarded, strict=True):
            # JSON stays the same value.
            if before == after or isinstance(before, JsonText):
                continue
            if guard(self._label_controls, ["", before, ""], (MARKERS, "history", MARKERS), NEUTRALIZE)[1] != after:
                raise SafetyError(
                    f"a trained turn of the history contains control sequences, which a prompt neutralises: {after!r}; "
                    "pass calls as tool_calls, pass the turn as a label of its own, or trust the history: "
                    'with_safety("off")'
                )


_NONE: frozenset[str] = frozenset()


def controls_of(markers: Markers, headers: frozenset[str] = _NONE, sequences: frozenset[str] = _NONE) -> Controls:
    """Return the control sequences of a model.

    Args:
        markers: The markers of the model. Without a family, the control sequences of every known family count.
        headers: The section headers that are structure.
        sequences: Further sequences, those of a prompt template.
    """
    known = markers.control_sequences | (_NONE if markers.family else Markers.known_sequences())
    return controls_for(known | COMMON_TAGS | sequences, headers)


def controls_for_model(model: str | None, headers: frozenset[str] = _NONE) -> Controls:
    """Return the control sequences of a model by its name; of all families if the name is unknown.

    Args:
        model: The model's name at a server.
        headers: The section headers that are structure.
    """
    try:
        markers = _markers_of(model)
    except TemplateError:
        markers = DEFAULT_MARKERS
    return controls_of(markers, headers)


def neutralize(text: str, model: str | None = None) -> str:
    """Return untrusted text with its control sequences broken by a backslash, for prompts that you put together.

    Prompters, chat templates and formatters do this themselves. Neutralised text stays as it is.

    Args:
        text: The text.
        model: The model that reads it; None for any model.

    Raises:
        TemplateError: The model is unknown.
    """
    return guard(controls_of(_markers_of(model)), ["", text, ""], ("", "text", ""), NEUTRALIZE)[1]


def restore(text: str, model: str | None = None) -> str:
    """Undo :func:`neutralize`, to display a text.

    Args:
        text: The text. A broken sequence that its author wrote loses its backslash, too.
        model: The model that it was neutralised for.

    Raises:
        TemplateError: The model is unknown.
    """
    return controls_of(_markers_of(model)).restore(text)


def _markers_of(model: str | None) -> Markers:
    return DEFAULT_MARKERS if model is None else Markers.for_model(model)


def resolved_system(system: str | None, markers: Markers) -> str:
    """Return the developer's system text, else the family's, else the default."""
    if system is not None:
        return system
    return DEFAULT_SYSTEM if markers.system is None else markers.system
