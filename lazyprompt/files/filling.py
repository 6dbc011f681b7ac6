"""A prompt file filled: its template gives its own text and values in turn, and roles are found in its own text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from secrets import token_hex
from typing import TYPE_CHECKING, Any, cast

from jinja2 import ChainableUndefined

from lazyprompt.errors import LazyPromptError, PromptFileError, SlotError
from lazyprompt.files.dialects.dotprompt import shown_mark
from lazyprompt.files.inputs import Medium, Thread, checked_inputs, ready
from lazyprompt.files.roles import layout_of
from lazyprompt.files.spec import ENGINES
from lazyprompt.files.turns import place_of_history, with_history
from lazyprompt.messages.history import History
from lazyprompt.templates.instruction import INPUT, dict_form
from lazyprompt.templates.slots import Value, listed

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from lazyprompt._base.json import JsonObject
    from lazyprompt.files.dialects.table import Dialect
    from lazyprompt.files.roles import Layout, Section
    from lazyprompt.files.spec import Spec, Template
    from lazyprompt.files.turns import Step
    from lazyprompt.messages.history import HistoryLike


@dataclass(frozen=True, slots=True)
class Filled:
    """A prompt file with its inputs put in.

    Args:
        steps: What it says: turns and threads.
        tools: The tools that it names in its text.
        missing: The inputs that were left out in a tool loop; only its last turn shows them.
    """

    steps: tuple[Step, ...]
    tools: tuple[JsonObject, ...] = field(default=())
    missing: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Filling:
    """What fills a prompt file.

    Args:
        spec: What its front matter says.
        template: Its template.
        dialect: Its dialect.
        called: How errors call it.
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
        if name != INPUT and not self._is_said_by_user(name, given):
            raise SlotError(
                f"a {type(text).__name__} alone is the user's text, and the input {name!r} of {self.called} stands in "
                f"no user turn; give a dict, {dict_form(self.names)}"
            )
        return given

    def open_input(self, given: Container[str] = ()) -> str:
        """Return the only input without a value: of those that need one, of those not declared, of all but threads.

        Args:
            given: The inputs that have a value.

        Raises:
            SlotError: There are several, or there is none.
        """
        declared = [each.name for each in self.spec.inputs]
        needed = [each.name for each in self.spec.inputs if each.required and each.default is None]
        for names in (needed, [name for name in self.template.slots if name not in declared], declared):
            left = [name for name in names if name not in given and name not in self._threads]
            if len(left) == 1 or (names is declared and INPUT in left):
                return left[0] if len(left) == 1 else INPUT
            if left:
                raise SlotError(
                    f"a text alone could be the value of {listed(left)} of {self.called}; give a dict, "
                    f"{dict_form(left)}"
                )
        has = "a value for each input already" if self.names else "no input"
        raise SlotError(f"{self.called} has {has}, so a text alone has no place")

    def _is_said_by_user(self, name: str, given: Mapping[str, object]) -> bool:
        """True if the value of an input stands in a user turn, as far as its expressions tell."""
        others = {*self.names} - {name}
        declared = [each for each in self.spec.inputs if each.kind != "thread"]
        parts = self._put_in(self._ready(checked_inputs(given, declared)))
        asked = [part for section in self._sections(parts) if section.role == "user" for part in section.parts]
        return any(isinstance(part, Value) and part.root not in others for part in asked)

    def parts(self, inputs: object) -> Sequence[str]:
        """The filled template: its own text, and values, in turn.

        Args:
            inputs: As of :meth:`inputs_of`.

        Raises:
            SlotError: Some are missing, or not of their kind; or a variable is nowhere.
            TemplateError: The template fails.
        """
        return self._put_in(self._ready(checked_inputs(self.inputs_of(inputs), self.spec.inputs)))

    def filled(self, inputs: object, history: HistoryLike | None = None, *, in_loop: bool = False) -> Filled:
        """The filled template as turns.

        Args:
            inputs: As of :meth:`parts`.
            history: What was said before: it stands in the place of the first thread that is not among the inputs, or
                where the template has the history; else before the last turn, if that is the user's.
            in_loop: True if the inputs of the last turn alone may be left out where the history ends with a tool's
                result.

        Raises:
            PromptFileError: What it says is wrong in its dialect, as a call without a name.
        """
        given = self.inputs_of(inputs)
        open_thread = None if history is None else next((one for one in self._threads if given.get(one) is None), None)
        if open_thread is not None:
            given = {**given, open_thread: history}
        missing: frozenset[str] = frozenset()
        if in_loop and _ends_with_result(history, given, self._threads):
            missing = self._left_out(given)
        values = checked_inputs(given, [each for each in self.spec.inputs if each.name not in missing])
        held = {**self._ready(values), **{name: ENGINES[self.spec.engine].absent(name) for name in missing}}
        try:
            found = self._sections(self._put_in(held))
            steps = [*self.dialect.steps(found)]
            tools = tuple(self.dialect.tools(found))
        except PromptFileError as error:
            raise PromptFileError(f"{self.called}: {error}") from error
        # A thread that the template does not name stands in the history's place, or at the end.
        slots, place = self.template.slots, place_of_history(steps)
        at = len(steps) if place is None else place
        steps[at:at] = [
            cast("Thread", held[name]) for name in self._threads if name not in slots and values.get(name) is not None
        ]
        if history is not None and open_thread is None:
            steps = with_history(steps, History.of(history).messages)
        last = next((index for index in reversed(range(len(found))) if found[index].role == "user"), len(found))
        if missing and _shows((*found[:last], *found[last + 1 :]), missing):
            checked_inputs(given, self.spec.inputs)
            raise SlotError(f"{self.called}: no value for {listed(sorted(missing))}")
        return Filled(tuple(steps), tools, missing)

    def _left_out(self, given: Mapping[str, object]) -> frozenset[str]:
        """The inputs without a value or a default."""
        declared = {each.name: each for each in self.spec.inputs}
        return frozenset(
            name
            for name in self.names
            if given.get(name) is None
            and name not in self._threads
            and (name not in declared or (declared[name].required and declared[name].default is None))
        )

    def __getstate__(self) -> dict[str, Any]:
        """What a pickle holds: not what was made on first use."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def _threads(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.spec.inputs if each.kind == "thread")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What the file declares, and what its template names beside that."""
        return tuple(dict.fromkeys((*(each.name for each in self.spec.inputs), *self.template.slots)))

    @cached_property
    def _layout(self) -> Layout | None:
        outline = self.template.outline
        return layout_of(outline, self.dialect.roles) if outline is not None and self.dialect.roles else None

    def _sections(self, parts: Sequence[str]) -> list[Section]:
        """The sections; they are looked for once, where they cannot differ by what is put in."""
        return self.dialect.sections(parts) if self._layout is None else self._layout.filled(parts)

    def _ready(self, values: Mapping[str, object]) -> Mapping[str, Any]:
        return ready(values, self.spec.inputs, ENGINES[self.spec.engine].absent)

    def _put_in(self, values: Mapping[str, Any]) -> Sequence[str]:
        return self.template.fill({name: _plain(self.template, value, name) for name, value in values.items()})


def _ends_with_result(history: HistoryLike | None, given: Mapping[str, object], threads: Sequence[str]) -> bool:
    """True if a history, or else a thread, ends with a tool's result."""
    pasts = [history, *(given.get(name) for name in threads)]
    return any(
        History.of(cast("HistoryLike", past)).question_before_results is not None for past in pasts if past is not None
    )


def _shows(found: Sequence[Section], names: Container[str]) -> bool:
    """True if a section shows the value of one of some inputs."""
    return any(isinstance(part, Value) and part.root in names for section in found for part in section.parts)


def _plain(template: Template, value: object, name: str) -> object:
    """A value as a template may see it."""
    if isinstance(value, (Thread, Medium, ChainableUndefined)):
        return value
    try:
        return template.coerce(value, name)
    except LazyPromptError as error:
        raise SlotError(f"input {name}: {error}") from error


def shown(part: str) -> str:
    """A part of a filled template as it is looked at: a thread or a medium is a mark, which is another each time."""
    if not isinstance(part, Value):
        return part
    if part.held is None:
        return str.__str__(part)
    if mark := shown_mark(part.held):
        return mark
    held = cast("Thread | Medium", part.held)
    return f"__PROMPTY_THREAD_{token_hex(4)}_{held.name}__"
