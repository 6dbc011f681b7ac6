"""Classes that fill prompt files, and the prompter for prompt files.

A filled template is a sequence of template text and values. Only the template's own text can contain role lines.
"""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from secrets import token_hex
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, cast

from jinja2 import ChainableUndefined

from lazyprompt._base.json import JsonObject, checked_text, is_mapping, is_sequence
from lazyprompt._base.secret import secrets_within
from lazyprompt.errors import LazyPromptError, PromptFileError, SlotError, ToolsError
from lazyprompt.files.properties import RICH, MediaInput, Thread, checked_inputs, rich_value, schema_of, thread_messages
from lazyprompt.files.roles import Section, SectionLayout, layout_of, sections
from lazyprompt.files.targets import other_provider, request, sent_to, target_of
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
from lazyprompt.rendering.prompt_template import MessagesPromptTemplate
from lazyprompt.templates.instruction import INPUT, Fixed, InstructionTemplate, called, dict_form, fixed_with, is_asked
from lazyprompt.templates.slots import Value, listed

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from lazyprompt.files.dialects.dialects import Dialect
    from lazyprompt.files.spec import Spec, Template
    from lazyprompt.files.turns import Step
    from lazyprompt.formatters.profile import Profile
    from lazyprompt.formatters.report import Entries, Payload
    from lazyprompt.messages.msg import Msg
    from lazyprompt.prompters.payload_target import PayloadTarget


@dataclass(frozen=True, slots=True)
class FilledFile:
    """A prompt file filled with inputs.

    Args:
        steps: The conversation's turns and threads; a thread is the list of messages that a thread input inserts.
        tools: The tools defined in the template body.
        missing: The names of the inputs without a value. Inputs may be missing if only the last user turn uses them,
            and the history or a thread input ends with a tool result.
    """

    steps: tuple[Step, ...]
    tools: tuple[JsonObject, ...] = field(default=())
    missing: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Filling:
    """A parsed prompt file that can be filled with inputs.

    Args:
        spec: The front matter.
        template: The template.
        dialect: The file's dialect.
        called: The file's name in error messages.
    """

    spec: Spec
    template: Template
    dialect: Dialect
    called: str

    def inputs_of(self, given: object) -> Mapping[str, object]:
        """Return the inputs as a mapping from names to values.

        Args:
            given: A mapping from input names to values, a single value for the input that :meth:`open_input` returns,
                or None.

        Raises:
            SlotError: A value passed without a name matches no input, several inputs, or an input that no user turn
                uses.
        """
        if given is None:
            return {}
        if is_mapping(given):
            return given
        return self.with_text({}, self.open_input(), given)

    def with_text(self, values: Mapping[str, object], name: str, text: object) -> dict[str, object]:
        """Add an unnamed value to the inputs.

        Args:
            values: The inputs that already have a value, by name.
            name: The input's name, as returned by :meth:`open_input`.
            text: The value to add.

        Raises:
            SlotError: No user turn uses the input, and the input isn't named ``input``.
        """
        given = {**values, name: text}
        if name != INPUT and not self._is_of_user(name, given):
            raise SlotError(
                f"a value of type {type(text).__name__} without an input name is used as the user's text, but no user "
                f"turn in {self.called} uses the input {name!r}; pass a dict, {dict_form(self.names)}"
            )
        return given

    def open_input(self, given: Container[str] = ()) -> str:
        """Return the name of the input that an unnamed value is assigned to.

        The input is chosen from all inputs without a value, except thread inputs. Three groups of inputs are searched
        in order: required inputs without a default, undeclared inputs, and all declared inputs. If the first non-empty
        group contains only one input, or only one input that accepts text, that input's name is returned. If the choice
        among all declared inputs is ambiguous, the input named ``input`` is preferred.

        Args:
            given: The names of the inputs that already have a value.

        Raises:
            SlotError: More than one input accepts the unnamed value, or no input does.
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
                raise SlotError(
                    f"text without an input name could be the value of {listed(left)} in {self.called}; pass a dict, "
                    f"{dict_form(left)}"
                )
        why = "already has a value for each input" if self.names else "has no input"
        raise SlotError(f"{self.called} {why}, so it doesn't accept text without an input name")

    def _is_of_user(self, name: str, given: Mapping[str, object]) -> bool:
        """Return True if a user turn contains the value of an input, or an expression that may use the input."""
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
        """Fill the template, and return its literal text and the inserted values, in order.

        Args:
            inputs: The inputs; see :meth:`inputs_of`.

        Raises:
            SlotError: An input is missing, a value doesn't match its input's kind, or a variable is undefined.
            TemplateError: The template can't be rendered.
        """
        return self._fill(self._ready(checked_inputs(self.inputs_of(inputs), self.spec.inputs)))

    def filled(self, inputs: object, history: HistoryLike | None = None, *, in_loop: bool = False) -> FilledFile:
        """Fill the template and return its turns.

        Args:
            inputs: The inputs; see :meth:`inputs_of`.
            history: Earlier messages, which become the value of the first thread input without a value. Without such an
                input, the messages replace the template's history section. If the template has no history section, the
                messages are placed before the final user turn.
            in_loop: If True and the history or a thread input ends with a tool result, inputs that only the last user
                turn uses may be missing.

        Raises:
            PromptFileError: A section is invalid in this dialect, such as a tool call without a name.
        """
        given = self.inputs_of(inputs)
        open_thread = None if history is None else next((one for one in self._threads if given.get(one) is None), None)
        if open_thread is not None:
            given = {**given, open_thread: history}
        missing: frozenset[str] = frozenset()
        if in_loop and self._awaits_answer(given, history):
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
        # A thread without a slot in the template is inserted at the history's position, or at the end.
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

    def _awaits_answer(self, given: Mapping[str, object], history: HistoryLike | None) -> bool:
        """Return True if the passed history or a thread input ends with a tool result."""
        threads = (given.get(name) for name in self._threads)
        pasts = (thread_messages(each) for each in threads if is_sequence(each))
        return any(map(_ends_with_result, (history, *pasts)))

    def _fill(self, held: Mapping[str, object]) -> Sequence[str]:
        try:
            return self.template.fill(held)
        except SlotError as error:
            why = "undefined='empty' (--undefined empty) renders undefined variables as empty text"
            raise SlotError(f"{error}; {why}") from error

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields to pickle, without cached values."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def _threads(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.spec.inputs if each.kind == "thread")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the declared inputs and of the template's undeclared variables."""
        return tuple(dict.fromkeys((*(each.name for each in self.spec.inputs), *self.template.slots)))

    @cached_property
    def _layout(self) -> SectionLayout | None:
        outline = self.template.outline
        return layout_of(outline, self.dialect.roles) if outline is not None else None

    def _sections(self, parts: Sequence[str]) -> list[Section]:
        # If values can't change the sections, reuse the unfilled template's section layout.
        return sections(parts, self.dialect.roles) if self._layout is None else self._layout.fill(parts)

    def _ready(self, values: Mapping[str, object], missing: Iterable[str] = ()) -> dict[str, Any]:
        """Convert validated inputs to template values; ``thread`` and media inputs become placeholders."""
        kinds = {each.name: each.kind for each in self.spec.inputs}
        is_jinja = self.spec.engine == "jinja2"
        # A declared input without a value renders as empty text, although Jinja's ``is defined`` returns false.
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
    """Return True if a history ends with a tool result."""
    return past is not None and History.of(past).question_before_results is not None


def display_text(part: str) -> str:
    """Return a part of a filled template as display text; a thread or media input becomes a random placeholder."""
    held = part.held if isinstance(part, Value) else None
    if not isinstance(held, Thread | MediaInput):
        return str.__str__(part)
    return f"__PROMPTY_THREAD_{token_hex(4)}_{held.name}__"


# If several inputs have no value, unnamed text is assigned to the only input whose kind is in this set.
_TAKE_TEXT = frozenset(("string", "union"))
_NOTHING = ("",)
# The template is immutable, so all file prompters can share one object.
_TEMPLATE = MessagesPromptTemplate()


class _FileInstruction(InstructionTemplate):
    """A placeholder instruction for a prompt file's prompter; the file's own template renders the messages."""

    accepts_input: bool = False

    def __init__(self, template: Template) -> None:
        self._literals = template.literals
        super().__init__()
        self.input_form = self.input_form._replace(has_defaults=True)
        self.slots = template.slots

    @property
    def literals(self) -> tuple[str, ...]:
        """The template's literal text, split at values because a value could complete a control sequence."""
        return self._literals

    @property
    def constant(self) -> frozenset[str]:
        """The names of the parts that are the same in every prompt; always empty, as inputs can change any part."""
        return frozenset()


class _File(Protocol):
    def hidden_prompter(self) -> FilePrompter:
        """Return a prompter that is safe to display: references replace the values of environment variables."""
        ...


class FilePrompter(Prompter):
    """A prompter for a prompt file. The prompter's input is a mapping of the file's inputs.

    An initial system turn that contains only text becomes the system text, and a final user turn that contains only
    text becomes the user text. The turns that become neither system text nor user text form the history.
    :meth:`lazyprompt.Prompty.filled` describes where a history passed by the caller is inserted. If the passed history
    ends with a tool result, the final user turn is dropped unless it contains a new question.

    Args:
        filling: The :class:`Filling` that fills the prompt file's template.
        file: The prompt file, whose method ``hidden_prompter`` is called by :meth:`for_display`.
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
        """Return a copy without the values of environment variables, or this prompter itself if there are none."""
        if all(each.is_hidden for each in self.secrets):
            return self
        other = self._file.hidden_prompter()
        parts = ("filling", "instruction", "tools", "left")
        made = self._changed(**{name: getattr(other, f"_{name}") for name in parts})
        made.secrets = other.secrets
        return made

    @property
    def slots(self) -> tuple[str, ...]:
        """The template variables without a fixed value."""
        return tuple(name for name in super().slots if name not in dict(self._fixed))

    def partial(self, /, **values: object) -> Self:
        """Return a copy with fixed values for some inputs. Calls can override these values.

        Args:
            **values: Values by input name. A value can be a function without parameters, which is called for each
                prompt.

        Raises:
            SlotError: An input name is unknown, or a value is None.
        """
        fixed = fixed_with(self._fixed, values, self._filling.names, lambda value, _: deepcopy(value))
        return self._changed(fixed=fixed)

    def name_of_text(self, given: Iterable[str] = ()) -> str:
        """Return the name of the input that text without an input name is assigned to; see :meth:`Filling.open_input`.

        Args:
            given: The names of the inputs that already have a value.

        Raises:
            SlotError: More than one input accepts text without an input name, or no input does.
        """
        return self._filling.open_input({*given, *dict(self._fixed)})

    def _inputs(self, given: object) -> object:
        if not self._fixed:
            return given
        if given is None or is_mapping(given):
            named = given or {}
            return {**called(self._fixed, named), **named}
        return self._filling.with_text(called(self._fixed, ()), self.name_of_text(), given)

    @property
    def left_out(self) -> Entries:
        """Report entries for the file's tools that aren't functions and therefore can't be sent."""
        return self._left

    def request(self, prompt: Prompt, provider: str | Profile | None = None, api: str | None = None) -> Payload:
        """Return the complete request for a prompt; see :meth:`lazyprompt.Prompty.request`.

        Args:
            prompt: A prompt created by this prompter.
            provider: The provider's name, or a profile. The default is the file's provider, or else ``openai``.
            api: The API. The default is the file's API, or else ``chat``.

        Raises:
            FormatError: The provider or API is unknown, or the messages can't be sent to it.
        """
        spec = self._filling.spec
        own = {each.name for each in spec.tools}
        named = [tool for tool, name in zip(prompt.tools.copy(), prompt.tools.names, strict=True) if name not in own]
        payloads = self._payloads(provider, api)
        conversation = payloads.conversation(prompt)
        report, guard = cast("Entries", prompt.report), payloads.guard(conversation)
        return request(spec, conversation.messages, provider, api, tools=named, report=report, guard=guard)

    def request_of(self, messages: list[Msg], provider: str | Profile | None = None, api: str | None = None) -> Payload:
        """Return the complete request for untrusted messages instead of a prompt; see :meth:`request`."""
        guard = self._payloads(provider, api).guard(PromptMessages(messages, {}))
        return request(self._filling.spec, messages, provider, api, report=self.left_out, guard=guard)

    def _payloads(self, provider: str | Profile | None, api: str | None) -> PayloadTarget:
        """Return the target that formats the messages of requests."""
        profile = target_of(*sent_to(self._filling.spec, provider, api)).profile
        named = None if profile == "openai" else self.model_for(provider, api)
        return cast("PayloadTarget", self.target(profile, named))

    def model_for(self, provider: str | Profile | None = None, api: str | None = None) -> str | None:
        """Return the file's model; None if the file sets no model, or sets it for another provider than the request's.

        Args:
            provider: The request's provider; see :meth:`request`.
            api: The request's API; see :meth:`request`.
        """
        spec = self._filling.spec
        model = spec.model.get("id")
        target = target_of(*sent_to(spec, provider, api))
        return model if isinstance(model, str) and not other_provider(spec, target) else None

    @property
    def response_format(self) -> JsonObject | None:
        """The JSON Schema of the file's outputs, or None if the file declares no outputs."""
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
        """Fill the prompt file; see :meth:`Prompter.fill`.

        Args:
            input: The values of the file's inputs.
            history: Earlier messages; :meth:`lazyprompt.Prompty.filled` describes where they are inserted.
            tools: The tools that the model may call.
            label: The expected response, for training data.

        Raises:
            SlotError: An input is missing, or a value doesn't match its input's kind.
            ToolsError: Both the file and the call define tools.
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
        """Return the tools for a call: the front matter's tools, followed by the tools defined in the template body."""
        if not functions:
            return self._all_tools(tools)
        if given := ToolSet.of(tools):
            names, called = ", ".join(given.names), self._filling.called
            raise ToolsError(f"{called} defines tools in its text, so a call can't pass any; got {names}")
        return ToolSet.of([*self._tools, *functions])


class _FileTexts(NamedTuple):
    """A filled file's system text, user text, the messages between these texts, and the tools in the template."""

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
    """A :class:`lazyprompt.messages.prompt.PromptFiller` for a prompt file and its inputs.

    Args:
        filling: The :class:`Filling` that fills the prompt file's template.
        inputs: The values of the file's inputs.
        history: The history passed by the caller.
    """

    filling: Filling
    inputs: Mapping[str, object]
    history: Sequence[Msg] | None

    @property
    def lists(self) -> Mapping[str, Sequence[object]]:
        """The inputs whose values are lists, except thread and media inputs."""
        rich = {each.name for each in self.filling.spec.inputs if each.kind in RICH}
        return lists_in(self.inputs, [name for name in self.filling.names if name not in rich])

    @property
    def fills_turns(self) -> bool:
        """Always True: any turn of a prompt file can contain an input's value, even through a loop variable."""
        return True

    def fill(self, prompt: Prompt, slot: str, items: Sequence[object]) -> Prompt:
        """Return the prompt with the items of one list input replaced."""
        source = replace(self, inputs={**self.inputs, slot: [*items]})
        texts = _texts_of(self.filling, source.inputs, self.history, Notes())
        return prompt.evolve(instruction=texts.system, user=texts.user, history=texts.past, source=source)


def _is_empty_user_turn(step: Step) -> bool:
    only = step.only_text if isinstance(step, Turn) and step.role == "user" else None
    return only is not None and not only.text


def _split_off_texts(steps: Sequence[Step]) -> tuple[tuple[str, ...], tuple[str, ...], list[Step]]:
    """Return the system text, the final user text and the other turns.

    In the system text and the user text, literal text alternates with values.
    """
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
    """Return parts with template text at even indexes and values at odd indexes."""
    found = [""]
    for part in parts:
        if isinstance(part, Value):
            found += (part, "")
        else:
            found[-1] += part
    return tuple(found)


def _slots(parts: Sequence[str], own: str) -> tuple[str, ...]:
    """Return each part's input name, or ``own`` for literal text and for expressions without an input."""
    return tuple(part.root or own if isinstance(part, Value) else own for part in parts)
