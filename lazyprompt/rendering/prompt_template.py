"""Prompt templates: which fields a prompt shows, and what stands between them."""

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
    from lazyprompt.rendering.layout import Layout, PartList, SampleParts

DEFAULT_SYSTEM = "You are an AI-Agent developed by LazyLLM."


class PromptTemplate:
    """A prompt template of your own.

    Args:
        text: The text, with ``{system} {instruction} {tools} {history} {user} {input}`` for the fields of the
            prompt and ``{sos} {eos} {soh} {eoh} {soa} {eoa} {soe} {eoe} {bos}`` for the markers.
        split: What stands right before the answer, for :meth:`Prompter.get_response`; markers may be in it.
        optional: Runs of the text, in order, that are left out when all their fields are absent.

    Raises:
        TemplateError: A place is unknown, or an optional run is not in the text.
    """

    exact_families: ClassVar[bool] = False
    """Whether a family's own layout takes the place of the text, where the family has one."""

    def __init__(self, text: str, split: str | None = None, *, optional: str | Sequence[str] = ()) -> None:
        self.text = text
        self.split = split
        self.optional = (optional,) if isinstance(optional, str) else tuple(optional)
        self.layout(DEFAULT_MARKERS)
        self.structure = structure_in(text)

    def layout(self, markers: Markers) -> Layout:
        """The template with the markers put in."""
        if markers.exact and self.exact_families:
            return FamilyLayout(markers)
        return TemplateLayout.of(self.text, self.optional, markers)

    def render(self, prompt: Prompt, markers: Markers = DEFAULT_MARKERS, safety: str = "neutralize") -> Rendered:
        """Lay a prompt out as flat text.

        Args:
            prompt: The prompt.
            markers: The markers of the model.
            safety: What becomes of control sequences in untrusted text: ``neutralize``, ``raise`` or ``off``.

        Returns:
            The flat prompt, with its segments.

        Raises:
            SafetyError: There is such a sequence and ``safety`` is ``raise``, or ``safety`` is unknown.
            HistoryError: There is a history, but the template has no place for it (so with tools and input).
        """
        known = prompt.with_system(resolved_system(prompt.system, markers))
        out = Writer(self, markers, prompt.literals, policy_of(safety)).write(known)
        return Rendered(out.parts, out.slots)

    def answer_in(self, output: str, markers: Markers) -> str:
        """Return the part of an output behind the prompt, or all of it if the prompt is not in it.

        A template with turns has its split in each of them, so the last one counts; else the first, because the answer
        may hold it too.
        """
        mark = self.layout(markers).mark(self.split or "")
        if not mark or mark not in output:
            return output
        return output.rpartition(mark)[2] if "{history}" in self.text else output.partition(mark)[2]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r})"


class ChatPromptTemplate(PromptTemplate):
    """The chat form of the documents; a model family's own layout where one is named.

    Args:
        system_turn: Whether there is a system turn; without one, tools are described in the user's turn.
    """

    exact_families: ClassVar[bool] = True

    def __init__(self, *, system_turn: bool = True) -> None:
        head = "{sos}{system}{instruction}{tools}{eos}\n\n" if system_turn else ""
        turn = "{soh}\n{user}{input}\n{eoh}" if system_turn else "{soh}\n{tools}{user}{input}\n{eoh}"
        super().__init__(f"{head}{{history}}\n{turn}{{soa}}\n", "{soa}\n", optional=(turn,))


class MessagesPromptTemplate(PromptTemplate):
    """Messages one after another, with the markers of their roles and nothing else around them."""

    def __init__(self) -> None:
        super().__init__("{sos}{system}{instruction}{tools}{eos}{history}{soh}{user}{input}{eoh}{soa}", "{soa}")

    def layout(self, markers: Markers) -> Layout:
        """The markers as they are: those of a family contain all its spacing."""
        general = markers.tools == DEFAULT_MARKERS.tools
        return FamilyLayout(markers.evolve(tools=f"\n\n{markers.tools.rstrip()}") if general else markers)


class AlpacaPromptTemplate(PromptTemplate):
    """The Alpaca form: one instruction, one response, no turns and so no history."""

    def __init__(self) -> None:
        super().__init__(
            "{system}\n{instruction}\n{tools}\n{user}\n\n### Response:\n",
            "### Response:\n",
            optional=("{system}\n", "\n{user}\n\n"),
        )


class TextWriter(Protocol):
    """Writer of guarded flat prompts: a prompt template with markers, or a model's own chat template."""

    def write(self, prompt: Prompt) -> PartList:
        """Return the text as parts, with their slots."""
        ...

    def write_sample(self, prompt: Prompt, answer: Msg, trained: Sequence[bool]) -> SampleParts:
        """The prompt with an answer, and what is trained of it."""
        ...


# A model that was trained on the form of Alpaca reads each of its headers, also where a template has not all of them.
# Source: https://github.com/tatsu-lab/stanford_alpaca#data-release
_ALPACA = frozenset({"### Instruction:", "### Input:", "### Response:"})


_PLACE = re.compile(r"\{\w+\}")


class Structure(NamedTuple):
    """The control sequences that the literals of a prompt template are.

    Attributes:
        sequences: The texts that count anywhere.
        lines: The texts that count at the start of a line.
    """

    sequences: frozenset[str]
    lines: frozenset[str]


def structure_in(text: str) -> Structure:
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
    return Structure(frozenset(filter(is_breakable, sequences)), frozenset(filter(is_breakable, lines)))


class Writer:
    """A prompt template made ready for one instruction and one model: lays a prompt out and guards it.

    Args:
        template: The template.
        markers: The markers of the model.
        literals: The developer's own text in the instruction, whose section headers are structure.
        safety: What becomes of control sequences in untrusted text.
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
        # The same text may stand between many values.
        texts = {*self._layout.literals, *literals, markers.tools}
        headers = template.structure.lines.union(header for text in texts for header in headers_in(text))
        if headers & _ALPACA:
            headers |= _ALPACA
        sequences = template.structure.sequences
        self._controls = controls_of(markers, headers, sequences)
        # An answer to be trained may think and call tools, but not end its turn or open another.
        self._label_controls = controls_for(markers.turn_sequences | sequences, headers, reserved=False)

    def keep(self, prompt: Prompt, constant: frozenset[str]) -> Writer:
        """Put in for good what is the same in every prompt this writer will write.

        Args:
            prompt: Any of these prompts, its system text known.
            constant: The names of those that never change.

        Returns:
            The writer itself.
        """
        self._own_layout = self._layout.folded(prompt, constant | {"tools"})
        self._layout = self._layout.folded(prompt, constant - {"tools"})
        self._tools = prompt.tools
        return self

    def write(self, prompt: Prompt) -> PartList:
        """Lay the prompt out.

        Args:
            prompt: The prompt; its system text counts where :meth:`keep` was not called.

        Returns:
            The guarded parts with their slots.

        Raises:
            SafetyError: Untrusted text holds a control sequence, and that is to be refused.
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
        """Lay the prompt out with an answer behind them, to train a model with.

        Args:
            prompt: The prompt.
            answer: The answer.
            trained: For each turn of the assistant in the history, whether it is trained; then the same of the answer.

        Returns:
            The guarded parts, which begin as :meth:`write` has them.

        Raises:
            SafetyError: Untrusted text holds a control sequence that is to be refused, or that a turn to be trained
                would have to be without.
            FormatError: The answer holds what flat text cannot show.
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
        """Refuse a turn of the history of which the guard leaves something else than of an answer.

        In a prompt, thoughts and calls that are written as text are neutralised: a model is not to learn that form.
        """
        for before, after in zip(bare, guarded, strict=True):
            # JSON stays the same value.
            if before == after or isinstance(before, JsonText):
                continue
            if guard(self._label_controls, ["", before, ""], (MARKERS, "history", MARKERS), NEUTRALIZE)[1] != after:
                raise SafetyError(
                    f"a turn of the history is to be trained, but a prompt shows the control sequences in it broken: "
                    f"{after!r}; give calls as tool_calls, give the turn as a label of its own, or trust the history: "
                    'with_safety("off")'
                )


_NONE: frozenset[str] = frozenset()


def controls_of(markers: Markers, headers: frozenset[str] = _NONE, sequences: frozenset[str] = _NONE) -> Controls:
    """The control sequences of a model.

    Args:
        markers: The markers of the model. Nobody knows which model reads a prompt without a family: whatever is
            structure to any of them is then meant.
        headers: The section headers that are structure.
        sequences: Further sequences, those of a prompt template.
    """
    known = markers.control_sequences | (_NONE if markers.family else Markers.known_sequences())
    return controls_for(known | COMMON_TAGS | sequences, headers)


def controls_for_model(model: str | None, headers: frozenset[str] = _NONE) -> Controls:
    """Return the control sequences of a model by its name; those of all families where the name tells none.

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
    """Text of anybody with the control sequences of a model broken by a backslash, for prompts that you put together.

    Prompters, chat templates and formatters do this themselves. What was made harmless stays as it is.

    Args:
        text: The text.
        model: The model that reads it; None is any.

    Raises:
        TemplateError: There is no such model.
    """
    return guard(controls_of(_markers_of(model)), ["", text, ""], ("", "text", ""), NEUTRALIZE)[1]


def restore(text: str, model: str | None = None) -> str:
    """Text that :func:`neutralize` made harmless, as it was before, for showing it to people.

    Args:
        text: The text. If somebody wrote a broken sequence himself, its backslash goes, too.
        model: The model that it was made harmless for.

    Raises:
        TemplateError: There is no such model.
    """
    return controls_of(_markers_of(model)).restore(text)


def _markers_of(model: str | None) -> Markers:
    return DEFAULT_MARKERS if model is None else Markers.for_model(model)


def resolved_system(system: str | None, markers: Markers) -> str:
    """The system text: what the developer set, else what the family brings, else the default."""
    if system is not None:
        return system
    return DEFAULT_SYSTEM if markers.system is None else markers.system
