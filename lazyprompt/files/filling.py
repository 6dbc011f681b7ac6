"""A prompt file filled, and as a prompter: all that prompters can do, it can.

Its template gives its own text and values in turn, and roles are found in its own text.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from secrets import token_hex
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, cast

from jinja2 import ChainableUndefined

from lazyprompt._base.json import JsonObject, checked_text
from lazyprompt._base.secret import secrets_within
from lazyprompt.errors import LazyPromptError, PromptFileError, SlotError, ToolsError
from lazyprompt.files.properties import RICH, MediaInput, Thread, checked_inputs, rich_value, schema_of, thread_items
from lazyprompt.files.roles import Section, SectionLayout, layout_of, sections
from lazyprompt.files.targets import request, sent_to, target_of
from lazyprompt.files.turns import (
    Turn,
    drop_own_attributes,
    functions_of,
    messages_of,
    named_functions,
    place_of_history,
    with_history,
)
from lazyprompt.formatters.report import Notes
from lazyprompt.messages.history import History, HistoryLike
from lazyprompt.messages.prompt import Prompt, Text, prompt_of
from lazyprompt.messages.tools import ToolSet, ToolsLike
from lazyprompt.prompters.list_source import lists_in
from lazyprompt.prompters.payload_target import PromptMessages
from lazyprompt.prompters.prompter import Prompter
from lazyprompt.rendering.prompt_template import ChatPromptTemplate
from lazyprompt.templates.instruction import INPUT, Fixed, InstructionTemplate, called, dict_form, fixed_with, is_asked
from lazyprompt.templates.slots import Value, listed

if TYPE_CHECKING:
    from lazyprompt.files.dialects.dialects import Dialect
    from lazyprompt.files.spec import Spec, Template
    from lazyprompt.files.turns import Step
    from lazyprompt.formatters.report import Payload, Report
    from lazyprompt.messages.msg import Msg
    from lazyprompt.prompters.payload_target import PayloadTarget


@dataclass(frozen=True, slots=True)
class FilledFile:
    """A prompt file with its inputs put in.

    Args:
        steps: Its turns and threads.
        tools: The tools that it names in its text.
        missing: The inputs that were left out in a tool loop; only its last turn shows them.
    """

    steps: tuple[Step, ...]
    tools: tuple[JsonObject, ...] = field(default=())
    missing: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Filling:
    """Fills a prompt file.

    Args:
        spec: Its front matter.
        template: Its template.
        dialect: Its dialect.
        called: Its name in errors.
    """

    spec: Spec
    template: Template
    dialect: Dialect
    called: str

    def inputs_of(self, given: object) -> Mapping[str, object]:
        """Return inputs by their names.

        Args:
            given: A mapping; a value alone, for the open input (see :meth:`open_input`); or None.

        Raises:
            SlotError: A value alone could be for several inputs or none, or would not be the user's text.
        """
        if given is None:
            return {}
        if isinstance(given, (dict, Mapping)):  # a dict is found sooner
            return cast("Mapping[str, object]", given)
        return self.with_text({}, self.open_input(), given)

    def with_text(self, values: Mapping[str, object], name: str, text: object) -> dict[str, object]:
        """Return inputs with the value of one that was given without its name.

        Args:
            values: The other inputs.
            name: The input, as of :meth:`open_input`.
            text: Its value.

        Raises:
            SlotError: It would not be the user's text: the input is not called ``input`` and stands in no user turn.
        """
        given = {**values, name: text}
        if name != INPUT and not self._is_of_user(name, given):
            raise SlotError(
                f"a {type(text).__name__} alone is the user's text, and the input {name!r} of {self.called} stands in "
                f"no user turn; give a dict, {dict_form(self.names)}"
            )
        return given

    def open_input(self, given: Container[str] = ()) -> str:
        """Return the only input without a value: of those that need one, of those not declared, of all but threads.

        Of several, it is the only one that takes text.

        Args:
            given: The inputs that have a value.

        Raises:
            SlotError: There are several, or there is none.
        """
        kinds = {each.name: each.kind for each in self.spec.inputs}
        declared = [*kinds]
        needed = [each.name for each in self.spec.inputs if each.is_needed]
        for names in (needed, [name for name in self.template.slots if name not in declared], declared):
            left = [name for name in names if name not in given and name not in self._threads]
            takers = [name for name in left if kinds.get(name, "string") in _TAKE_TEXT]
            if len(left) == 1 or len(takers) == 1:
                return (takers or left)[0]
            if names is declared and INPUT in left:
                return INPUT
            if left:
                could = f"a text alone could be the value of {listed(left)} of {self.called}"
                raise SlotError(f"{could}; give a dict, {dict_form(left)}")
        has = "a value for each input already" if self.names else "no input"
        raise SlotError(f"{self.called} has {has}, so a text alone has no place")

    def _is_of_user(self, name: str, given: Mapping[str, object]) -> bool:
        """Return True if the value of an input stands in a user turn, as far as its expressions tell."""
        others = {*self.names} - {name}
        declared = [each for each in self.spec.inputs if each.kind != "thread"]
        sections = self._sections(self.template.fill(self._ready(checked_inputs(given, declared))))
        return any(
            isinstance(part, Value) and part.root not in others
            for section in sections
            if section.role == "user"
            for part in section.parts
        )

    def parts(self, inputs: object) -> Sequence[str]:
        """Return the filled template: its own text, and values, in turn.

        Args:
            inputs: As of :meth:`inputs_of`.

        Raises:
            SlotError: Some are missing, or not of their kind; or a variable is nowhere.
            TemplateError: The template fails.
        """
        return self._fill(self._ready(checked_inputs(self.inputs_of(inputs), self.spec.inputs)))

    def filled(self, inputs: object, history: HistoryLike | None = None, *, in_loop: bool = False) -> FilledFile:
        """Return the filled template as turns.

        Args:
            inputs: As of :meth:`parts`.
            history: The messages before: they stand in the place of the first thread that is not among the inputs, or
                where the template has the history; else before the last turn, if that is the user's.
            in_loop: True if the inputs of the last turn alone may be left out where the history ends with a tool's
                result.

        Raises:
            PromptFileError: Something is wrong in its dialect, as a call without a name.
        """
        given = self.inputs_of(inputs)
        open_thread = None if history is None else next((one for one in self._threads if given.get(one) is None), None)
        if open_thread is not None:
            given = {**given, open_thread: history}
        missing: frozenset[str] = frozenset()
        threads = [given.get(name) for name in self._threads]
        read = [thread_items(cast("list[object]", each)) if isinstance(each, list) else each for each in threads]
        pasts = cast("list[HistoryLike | None]", [history, *read])
        if in_loop and any(map(_ends_with_result, pasts)):
            needed = {each.name: each.is_needed for each in self.spec.inputs}
            left = (name for name in self.names if given.get(name) is None and needed.get(name, True))
            missing = frozenset(left) - {*self._threads}
        values = checked_inputs(given, [each for each in self.spec.inputs if each.name not in missing])
        held = self._ready(values, missing)
        try:
            found = self._sections(self._fill(held))
            steps = [*self.dialect.steps(found)]
            tools = tuple(self.dialect.tools(found))
        except PromptFileError as error:
            raise PromptFileError(f"{self.called}: {error}") from error
        # A thread that the template does not name stands in the history's place, or at the end.
        slots, place = self.template.slots, place_of_history(steps)
        at = len(steps) if place is None else place
        steps[at:at] = [held[name] for name in self._threads if name not in slots and values.get(name) is not None]
        if history is not None and open_thread is None:
            steps = with_history(steps, History.of(history).messages)
        last = next((index for index in reversed(range(len(found))) if found[index].role == "user"), len(found))
        others = (*found[:last], *found[last + 1 :]) if missing else ()
        if any(isinstance(part, Value) and part.root in missing for section in others for part in section.parts):
            checked_inputs(given, self.spec.inputs)
            raise SlotError(f"{self.called}: no value for {listed(sorted(missing))}")
        return FilledFile(tuple(steps), tools, missing)

    def _fill(self, held: Mapping[str, object]) -> Sequence[str]:
        try:
            return self.template.fill(held)
        except SlotError as error:
            why = "undefined='empty' (--undefined empty) reads a name without a value as empty"
            raise SlotError(f"{error}; {why}") from error

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle holds: nothing that was made on first use."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def _threads(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.spec.inputs if each.kind == "thread")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The inputs that the file declares, and those that its template names beside them."""
        return tuple(dict.fromkeys((*(each.name for each in self.spec.inputs), *self.template.slots)))

    @cached_property
    def _layout(self) -> SectionLayout | None:
        outline = self.template.outline
        return layout_of(outline, self.dialect.roles) if outline is not None else None

    def _sections(self, parts: Sequence[str]) -> list[Section]:
        # They are looked for once, where they cannot differ by what is put in.
        return sections(parts, self.dialect.roles) if self._layout is None else self._layout.fill(parts)

    def _ready(self, values: Mapping[str, object], missing: Iterable[str] = ()) -> dict[str, Any]:
        """Return checked inputs as the template may have them; threads and media keep their place."""
        kinds = {each.name: each.kind for each in self.spec.inputs}
        is_jinja = self.spec.engine == "jinja2"
        # An input that is declared and not given is empty, and no error; to Jinja's tests it is undefined, so that
        # ``is defined`` and ``default`` know it.
        made: dict[str, Any] = {
            name: ChainableUndefined(name=name) if is_jinja else "" for name in (*kinds, *missing) if name not in values
        }
        for name, value in values.items():
            if kinds.get(name) in RICH:
                made[name] = rich_value(name, kinds[name], value)
                continue
            try:
                made[name] = self.template.coerce(value, name)
            except LazyPromptError as error:
                raise SlotError(f"input {name}: {error}") from error
        return made


def _ends_with_result(past: HistoryLike | None) -> bool:
    """Return True if a history ends with a tool's result."""
    return past is not None and History.of(past).question_before_results is not None


def display_text(part: str) -> str:
    """Return a part of a filled template to be looked at: a thread or a medium is a mark, different each time."""
    if not isinstance(part, Value) or part.held is None:
        return str.__str__(part)
    return f"__PROMPTY_THREAD_{token_hex(4)}_{cast('Thread | MediaInput', part.held).name}__"


# The kinds of inputs that a text without a name can be the value of, where there are others.
_TAKE_TEXT = frozenset(("string", "union"))
# The parts of a text that is not there.
_NOTHING = ("",)
# It never changes, so all prompters of files have one.
_TEMPLATE = ChatPromptTemplate()


class _FileInstruction(InstructionTemplate):
    """The instruction of a file, which the file's own template fills."""

    accepts_input: bool = False

    def __init__(self, template: Template) -> None:
        self._literals = template.literals
        super().__init__()
        self.input_form = self.input_form._replace(has_defaults=True)
        self.slots = template.slots

    @property
    def literals(self) -> tuple[str, ...]:
        """The template's own text, in pieces: values beside it could make a control sequence with it."""
        return self._literals

    @property
    def constant(self) -> frozenset[str]:
        """Nothing: each prompt is filled anew."""
        return frozenset()


class _File(Protocol):
    def hidden_prompter(self) -> FilePrompter:
        """Return the prompter of the file with a reference in the place of each value of the environment."""
        ...


class FilePrompter(Prompter):
    """A prompter whose input are the inputs of a prompt file.

    The file's first system turn is its system text, its last turn, if that is the user's and only text, what the user
    says; all between is history. A history that is given stands in the place of the file's thread, or before that last
    turn. Where it ends with a tool's result, that turn is left out, unless its inputs ask another question.

    Args:
        filling: Fills the file.
        file: The file, which is read again for a view.
    """

    def __init__(self, filling: Filling, file: _File) -> None:
        notes = Notes()
        functions = functions_of(filling.spec.tools, notes)
        instruction = _FileInstruction(filling.template)
        super().__init__(instruction, _TEMPLATE, system="", tools=functions or None)
        self._filling = filling
        self._file = file
        self._left = tuple(notes)
        self.secrets = tuple(secrets_within(filling.spec.to_dict()))
        self._fixed: Fixed = ()

    def for_display(self) -> Self:
        """Return a copy without the values that are from the environment; itself if there are none."""
        if all(each.is_hidden for each in self.secrets):
            return self
        other = self._file.hidden_prompter()
        parts = ("filling", "instruction", "tools", "left")
        made = self._changed(**{name: getattr(other, f"_{name}") for name in parts})
        made.secrets = other.secrets
        return made

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
        if not self._fixed:
            return given
        if given is None or isinstance(given, Mapping):
            named: Mapping[str, object] = cast("Mapping[str, object]", given or {})
            return {**called(self._fixed, named), **named}
        return self._filling.with_text(called(self._fixed, ()), self.name_of_text(), given)

    @property
    def left_out(self) -> Report:
        """The tools of the file that no request has, as they are no functions."""
        return self._left

    def request(self, prompt: Prompt, provider: str | None = None, api: str | None = None) -> Payload:
        """Return the whole request of a prompt; see :meth:`lazyprompt.Prompty.request`.

        Args:
            prompt: A prompt of this prompter.
            provider: The provider; None is the one of the file, or else ``openai``.
            api: The interface; None is the one of the file, or else ``chat``.

        Raises:
            FormatError: There is no such provider or interface; or the messages have no form there.
        """
        spec = self._filling.spec
        own = {each.name for each in spec.tools}
        named = [tool for tool, name in zip(prompt.tools.copy(), prompt.tools.names, strict=True) if name not in own]
        payloads = self._payloads(provider, api)
        conversation = payloads.conversation(prompt)
        report, guard = cast("Report", prompt.report), payloads.guard(conversation)
        return request(spec, conversation.messages, provider, api, tools=named, report=report, guard=guard)

    def request_of(self, messages: list[Msg], provider: str | None = None, api: str | None = None) -> Payload:
        """Return the whole request of other messages, none of which is trusted; see :meth:`request`."""
        guard = self._payloads(provider, api).guard(PromptMessages(messages, {}))
        return request(self._filling.spec, messages, provider, api, report=self.left_out, guard=guard)

    def _payloads(self, provider: str | None, api: str | None) -> PayloadTarget:
        """Return the target of the messages of requests."""
        spec = self._filling.spec
        profile, model = target_of(*sent_to(spec, provider, api)).profile, spec.model.get("id")
        named = model if isinstance(model, str) and profile != "openai" else None
        return cast("PayloadTarget", self.target(profile, named))

    @property
    def response_format(self) -> JsonObject | None:
        """The schema of the file's outputs."""
        outputs = self._filling.spec.outputs
        title = re.sub(r"\W+", "_", self._filling.spec.name or "answer", flags=re.ASCII)
        return {"title": title, **schema_of(outputs)} if outputs else None

    def fill(
        self,
        input: object = None,
        history: HistoryLike | None = None,
        tools: ToolsLike = None,
        label: str | None = None,
    ) -> Prompt:
        """Make the prompt of the file; see :meth:`Prompter.fill`.

        Args:
            input: The inputs of the file.
            history: The messages in the place of the file's thread, or before its last turn.
            tools: The tools that the model may call.
            label: The answer, in training data.

        Raises:
            SlotError: An input is missing or unknown.
            ToolsError: The file has tools of its own, and so has the call.
        """
        if self._hooks:
            input, history, tools, label = self._after_hooks(input, history, tools, label)
        if label is not None:
            checked_text(label, "the label", SlotError)
        given = self._inputs(input)
        source = None
        if self._budget is not None:
            given = self._filling.inputs_of(given)
            made = _FileSource(
                self._filling, deepcopy(dict(given)), None if history is None else History.of(history).messages
            )
            source = made if made.lists else None
        notes = Notes(self._left)
        texts = _texts_of(self._filling, given, history, notes)
        all_tools = self._with_named(named_functions(texts.tools, notes) if texts.tools else [], tools)
        return prompt_of(
            self._system,
            texts.system,
            texts.user,
            None,
            texts.past,
            all_tools,
            label,
            report=tuple(notes),
            source=source,
        )

    @property
    def _all_slots(self) -> tuple[str, ...]:
        return self._filling.names

    def _with_named(self, functions: list[JsonObject], tools: ToolsLike) -> ToolSet:
        """Return the tools of a call: the file's own, and behind them those that its text names."""
        if not functions:
            return self._all_tools(tools)
        if given := ToolSet.of(tools):
            names, called = ", ".join(given.names), self._filling.called
            raise ToolsError(f"{called} names tools in its text, so none may be given at the call; given were {names}")
        return ToolSet.of([*self._tools, *functions])


class _FileTexts(NamedTuple):
    """The texts of a filled file: its system text, its user's text, the messages between them, and named tools."""

    system: Text
    user: Text
    past: History
    tools: tuple[JsonObject, ...]


def _texts_of(filling: Filling, inputs: object, history: HistoryLike | None, notes: Notes) -> _FileTexts:
    made = filling.filled(inputs, history, in_loop=True)
    system, user, steps = _split_off_texts(drop_own_attributes(made.steps, notes))
    past = History.of(messages_of([step for step in steps if not _is_empty_user_turn(step)]))
    asked = past.question_before_results if steps and isinstance(steps[-1], Thread) else None
    if asked is not None and user != _NOTHING:
        values = [part for part in user if isinstance(part, Value)]
        if made.missing or (asked and not values) or is_asked(user, values, asked):
            user = _NOTHING
    return _FileTexts(Text(system, _slots(system, "instruction")), Text(user, _slots(user, "user")), past, made.tools)


@dataclass(frozen=True, slots=True)
class _FileSource:
    """A prompt file with its inputs; a :class:`lazyprompt.messages.prompt.PromptFiller`.

    Args:
        filling: Fills the file.
        inputs: Its inputs.
        history: The messages that were given beside them.
    """

    filling: Filling
    inputs: Mapping[str, object]
    history: Sequence[Msg] | None

    @property
    def lists(self) -> Mapping[str, Sequence[object]]:
        """The inputs that are lists; the items of media and threads are parts of messages."""
        rich = {each.name for each in self.filling.spec.inputs if each.kind in RICH}
        return lists_in(self.inputs, [name for name in self.filling.names if name not in rich])

    @property
    def fills_turns(self) -> bool:
        """True: the template may write any turn, and slots have the names of loop variables."""
        return True

    def fill(self, prompt: Prompt, slot: str, items: Sequence[object]) -> Prompt:
        """Return the prompt with other items in the place of a list."""
        source = replace(self, inputs={**self.inputs, slot: [*items]})
        texts = _texts_of(self.filling, source.inputs, self.history, Notes())
        return prompt.evolve(instruction=texts.system, user=texts.user, history=texts.past, source=source)


def _is_empty_user_turn(step: Step) -> bool:
    """Return True for a turn of the user without any text: a file has one for an input that is empty."""
    only = step.only_text if isinstance(step, Turn) and step.role == "user" else None
    return only is not None and not only.text


def _split_off_texts(steps: Sequence[Step]) -> tuple[tuple[str, ...], tuple[str, ...], list[Step]]:
    """Return the system text and the user's last turn, each as own text and values in turn, and the other turns."""
    left = [*steps]
    system: tuple[str, ...] = _NOTHING
    user: tuple[str, ...] = _NOTHING
    if left and isinstance(first := left[0], Turn) and first.role == "system" and first.only_text is not None:
        system = _alternate(first.only_text.parts)
        del left[0]
    if left and isinstance(last := left[-1], Turn) and last.role == "user" and not last.attributes:
        only = last.only_text
        if only is not None and only.text:
            user = _alternate(only.parts)
            del left[-1]
    return system, user, left


def _alternate(parts: Sequence[str]) -> tuple[str, ...]:
    """Return own text and values in turn: own text stands at the even places."""
    found = [""]
    for part in parts:
        if isinstance(part, Value):
            found += (part, "")
        else:
            found[-1] += part
    return tuple(found)


def _slots(parts: Sequence[str], own: str) -> tuple[str, ...]:
    """Return the input of each part; the template's own text, and what an expression made, count as its own."""
    return tuple(part.root or own if isinstance(part, Value) else own for part in parts)
