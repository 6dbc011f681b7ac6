"""A prompt file as a prompter: all that prompters can do, it can."""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

from lazyprompt.errors import SlotError, ToolsError
from lazyprompt.files.inputs import Thread
from lazyprompt.files.properties import schema_of
from lazyprompt.files.sent import as_sent, functions_of, named_functions
from lazyprompt.files.turns import messages_of
from lazyprompt.formatters.report import Notes, Payload
from lazyprompt.messages.history import History
from lazyprompt.messages.tools import ToolSet
from lazyprompt.prompters.prompter import Prompter
from lazyprompt.rendering.prompt_template import ChatPromptTemplate
from lazyprompt.templates.call_input import called, fixed_with, is_asked
from lazyprompt.templates.instruction import InstructionTemplate
from lazyprompt.templates.values import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Self

    from lazyprompt._base.json import JsonObject
    from lazyprompt.files.engines import Template
    from lazyprompt.files.filling import Filling
    from lazyprompt.files.turns import Step
    from lazyprompt.formatters.report import Report
    from lazyprompt.messages.history import HistoryLike, PastLike
    from lazyprompt.messages.openai_form import OpenAIPrompt
    from lazyprompt.messages.tools import ToolsLike
    from lazyprompt.prompters.prompt_maker import HookArgs
    from lazyprompt.templates.call_input import Fixed
    from lazyprompt.templates.instruction import Parts


class _Said(NamedTuple):
    """What the text of a file says that is a prompter's own: its system text, and the user's last turn.

    Attributes:
        system: The system text: the template's own and values in turn.
        user: The last turn, in the same way.
        report: What of the file no form has.
    """

    system: tuple[str, ...] = ()
    user: tuple[str, ...] = ()
    report: Report = ()


_KEY = ""
# It never changes, so all prompters of files have one.
_TEMPLATE = ChatPromptTemplate()


class _FileInstruction(InstructionTemplate):
    """An instruction that is filled already: it takes the parts as they are."""

    accepts_input: ClassVar[bool] = False
    always_user_turn: ClassVar[bool] = False

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

    def by_name(self, given: object, asked: str | None = None) -> dict[str, object]:  # noqa: ARG002 - as of its base
        """What is given, as values by slots: one, which is no text and so is not cut."""
        return {_KEY: given}

    def parts(self, given: object, asked: str | None = None) -> Parts:  # noqa: ARG002 - the prompter looks at it
        """The parts themselves."""
        said = _said(given)
        return said.system, said.user, None

    def origins(self, system: Sequence[str], user: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The inputs that the parts are from."""
        return _slots(system, "instruction"), _slots(user, "user")


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
        self._expands = True
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
        return self._changed(self._markers, fixed=fixed)

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

    def _prepared(self, *args: *tuple[object, HistoryLike | None, ToolsLike, str | None]) -> HookArgs:
        given, history, tools, label = super()._prepared(*args)
        if not self._expands:
            return given, history, tools, label
        made = self._filling.filled(self._inputs(given), history, in_loop=True)
        notes = Notes(self._left)
        if made.tools:
            tools = self._with_named(named_functions(made.tools, notes), tools)
        said, steps = _taken(as_sent(made.steps, notes))
        past = messages_of(steps)
        asked = History.of(past).question_before_results if steps and isinstance(steps[-1], Thread) else None
        if asked is not None and said.user:
            values = [part for part in said.user if isinstance(part, Value)]
            if made.missing or (asked and not values) or is_asked(said.user, values, asked):
                said = said._replace(user=())
        return said._replace(report=tuple(notes)), past, tools, label

    def _with_named(self, functions: list[JsonObject], tools: ToolsLike) -> ToolsLike:
        """The tools of a call, with those that the text names behind the file's own."""
        given = ToolSet.of(tools)
        if functions and given:
            raise ToolsError(
                f"{self._filling.called} names tools in its text, so none may be given at the call; given were "
                f"{', '.join(given.names)}"
            )
        return ToolSet.of([*self._tools, *functions]) if functions else tools

    def _all_tools(self, tools: ToolsLike) -> ToolSet:
        """The tools of a call; those that begin with the file's own are of :meth:`_with_named`."""
        given = ToolSet.of(tools)
        return given if given.names[: len(self._tools)] == self._tools.names else super()._all_tools(given)

    def _openai(self, given: object, history: PastLike, tools: ToolsLike, label: str | None) -> OpenAIPrompt:
        """The OpenAI form, with a report of what of the file is not in it."""
        made = super()._openai(given, history, tools, label)
        return cast("OpenAIPrompt", Payload(cast("dict[str, Any]", made), _said(given).report))

    def _payload(
        self,
        provider: str,
        model: str | None,
        given: object,
        history: PastLike,
        tools: ToolsLike,
        label: str | None,
    ) -> Payload:
        """The payload, with what of the file is not in it among its report."""
        made = super()._payload(provider, model, given, history, tools, label)
        left = _said(given).report
        return Payload(made, (*left, *made.report), made.trim) if left else made


def _said(given: object) -> _Said:
    """What a call says; a budget hands it on by its name."""
    said = cast("Mapping[str, object]", given)[_KEY] if isinstance(given, dict) else given
    if not isinstance(said, _Said):
        raise SlotError(f"a prompt file takes a dict of inputs, not {type(said).__name__}")
    return said


def _taken(steps: Sequence[Step]) -> tuple[_Said, list[Step]]:
    """What is the prompter's own of a conversation, and the rest of it."""
    left = [*steps]
    system: tuple[str, ...] = ()
    user: tuple[str, ...] = ()
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
    return _Said(system, user), left


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
