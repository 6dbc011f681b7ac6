"""A prompt file as a prompter: all that prompters can do, it can."""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, ClassVar, cast

from lazyprompt._base.json import checked_text
from lazyprompt.errors import SlotError, ToolsError
from lazyprompt.files.inputs import Thread
from lazyprompt.files.properties import schema_of
from lazyprompt.files.sent import as_sent, functions_of, named_functions
from lazyprompt.files.turns import messages_of
from lazyprompt.formatters.report import Notes
from lazyprompt.messages.history import EMPTY_HISTORY, History
from lazyprompt.messages.prompt import Source, Text, prompt_of
from lazyprompt.messages.tools import ToolSet
from lazyprompt.prompters.prompter import Prompter
from lazyprompt.rendering.prompt_template import ChatPromptTemplate
from lazyprompt.templates.instruction import InstructionTemplate, called, fixed_with, is_asked
from lazyprompt.templates.slots import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Self

    from lazyprompt._base.json import JsonObject
    from lazyprompt.files.filling import Filling
    from lazyprompt.files.spec import Template
    from lazyprompt.files.turns import Step
    from lazyprompt.messages.history import HistoryLike
    from lazyprompt.messages.prompt import Prompt
    from lazyprompt.messages.tools import ToolsLike
    from lazyprompt.templates.instruction import Fixed


# The parts of a text that is not there.
_NOTHING = ("",)
# It never changes, so all prompters of files have one.
_TEMPLATE = ChatPromptTemplate()


class _FileInstruction(InstructionTemplate):
    """What a prompter tells of the instruction of a file, which the file's own template fills."""

    accepts_input: ClassVar[bool] = False

    def __init__(self, template: Template) -> None:
        super().__init__()
        self.input_form = self.input_form._replace(has_defaults=True)
        self.slots = template.slots
        self._literals = template.literals

    @property
    def literals(self) -> tuple[str, ...]:
        """The template's own text, in pieces: what values beside it could be made a control sequence with."""
        return self._literals

    @property
    def constant(self) -> frozenset[str]:
        """Nothing: each prompt is filled anew."""
        return frozenset()


class FilePrompter(Prompter):
    """A prompter whose input are the inputs of a prompt file.

    The file's first system turn is its system text, its last turn, if that is the user's and only text, what the user
    says; all between is history. A history that is given stands in the place of the file's thread, or before that last
    turn. Where it ends with a tool's result, that turn is left out, unless its inputs ask another question.

    Args:
        filling: What fills the file.
    """

    def __init__(self, filling: Filling) -> None:
        notes = Notes()
        functions = functions_of(filling.spec.tools, notes)
        instruction = _FileInstruction(filling.template)
        super().__init__(instruction, _TEMPLATE, system="", tools=functions or None)
        self._filling = filling
        self._left = tuple(notes)
        self._fixed: Fixed = ()

    @property
    def slots(self) -> tuple[str, ...]:
        """The variables of the template that have no fixed value."""
        return tuple(name for name in super().slots if name not in dict(self._fixed))

    def partial(self, /, **values: object) -> Self:
        """Return a copy with values for some inputs, which a call may then leave out; those of a call win.

        Args:
            **values: A value for each input, or a function without arguments, which is called once for each prompt.

        Raises:
            SlotError: A name is that of no input, or a value is None.
        """
        fixed = fixed_with(self._fixed, values, self._filling.names, lambda value, _: deepcopy(value))
        return self._changed(fixed=fixed)

    def name_of_text(self, given: Iterable[str] = ()) -> str:
        """Return the input that a text alone is the value of; see :meth:`Filling.open_input`.

        Args:
            given: The inputs that have a value.

        Raises:
            SlotError: There are several, or there is none.
        """
        return self._filling.open_input({*given, *dict(self._fixed)})

    def _inputs(self, given: object) -> object:
        """Return the inputs of a call with the fixed ones."""
        if not self._fixed:
            return given
        if given is None or isinstance(given, Mapping):
            named: Mapping[str, object] = cast("Mapping[str, object]", given or {})
            return {**called(self._fixed, named), **named}
        return self._filling.with_text(called(self._fixed, ()), self.name_of_text(), given)

    @property
    def response_format(self) -> JsonObject | None:
        """The schema of the file's outputs."""
        outputs = self._filling.spec.outputs
        title = re.sub(r"\W+", "_", self._filling.spec.name or "answer", flags=re.ASCII)
        return {"title": title, **schema_of(outputs)} if outputs else None

    def fill(
        self,
        input: object = None,  # noqa: A002 - the name of the documents
        history: HistoryLike | None = None,
        tools: ToolsLike = None,
        label: str | None = None,
    ) -> Prompt:
        """Make the prompt of the file; see :meth:`Prompter.fill`.

        Args:
            input: The inputs of the file.
            history: What stands in the place of the file's thread, or before its last turn.
            tools: The tools that the model may call.
            label: The answer, in training data.

        Raises:
            SlotError: An input is missing or unknown.
            ToolsError: The file has tools of its own, and so has the call.
        """
        if self._hooks:
            input, history, tools, label = self._after_hooks(input, history, tools, label)  # noqa: A001
        if label is not None:
            checked_text(label, "the label", SlotError)
        made = self._filling.filled(self._inputs(input), history, in_loop=True)
        notes = Notes(self._left)
        all_tools = self._with_named(named_functions(made.tools, notes) if made.tools else [], tools)
        system, user, steps = _taken(as_sent(made.steps, notes))
        past = History.of(messages_of(steps))
        asked = past.question_before_results if steps and isinstance(steps[-1], Thread) else None
        if asked is not None and user != _NOTHING:
            values = [part for part in user if isinstance(part, Value)]
            if made.missing or (asked and not values) or is_asked(user, values, asked):
                user = _NOTHING
        # A budget cuts no input of a file: what an input has become, the file's own text decides.
        return prompt_of(
            self._system,
            Text(system, _slots(system, "instruction")),
            Text(user, _slots(user, "user")),
            None,
            past.without_empty_questions(),
            all_tools,
            label,
            Source(EMPTY_HISTORY, {}, _with_history, tuple(notes)),
        )

    def _with_named(self, functions: list[JsonObject], tools: ToolsLike) -> ToolSet:
        """Return the tools of a call: the file's own, and behind them those that its text names."""
        if not functions:
            return self._all_tools(tools)
        given = ToolSet.of(tools)
        if given:
            raise ToolsError(
                f"{self._filling.called} names tools in its text, so none may be given at the call; given were "
                f"{', '.join(given.names)}"
            )
        return ToolSet.of([*self._tools, *functions])


def _with_history(prompt: Prompt, _: Mapping[str, object], history: History) -> Prompt:
    """Return the prompt with another history."""
    return prompt.evolve(history=history)


def _taken(steps: Sequence[Step]) -> tuple[tuple[str, ...], tuple[str, ...], list[Step]]:
    """Return the system text and the user's last turn, each as own text and values in turn, and the other turns."""
    left = [*steps]
    system: tuple[str, ...] = _NOTHING
    user: tuple[str, ...] = _NOTHING
    first = left[0] if left else None
    if first is not None and not isinstance(first, Thread) and first.role == "system" and first.only_text is not None:
        system = _in_turn(first.only_text.parts)
        del left[0]
    last = left[-1] if left else None
    if last is not None and not isinstance(last, Thread) and last.role == "user" and not last.attributes:
        only = last.only_text
        if only is not None and only.text:
            user = _in_turn(only.parts)
            del left[-1]
    return system, user, left


def _in_turn(parts: Sequence[str]) -> tuple[str, ...]:
    """The template's own text and values in turn: own text stands at the even places."""
    found = [""]
    for part in parts:
        if isinstance(part, Value):
            found += (part, "")
        else:
            found[-1] += part
    return tuple(found)


def _slots(parts: Sequence[str], own: str) -> tuple[str, ...]:
    """The input that each part is from; the template's own text, and what an expression made, count as its own."""
    return tuple(part.root or own if isinstance(part, Value) else own for part in parts)
