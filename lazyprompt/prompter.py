"""The prompter: one definition of a prompt, a flat string or a dict out.

It is an instruction template, a prompt template, and what the developer has fixed: system text, tools, history.
It keeps nothing of a call, so one prompter serves any number of threads and models at once.
"""

from __future__ import annotations

import sys
from copy import copy, deepcopy
from typing import TYPE_CHECKING, Literal, NotRequired, Self, TypeAlias, TypedDict, cast, overload

from lazyprompt._json import checked_text
from lazyprompt.errors import BudgetError, FormatError, SlotError, TemplateError, ToolsError, did_you_mean
from lazyprompt.formatters.providers import PROVIDERS
from lazyprompt.history import EMPTY_HISTORY, History, HistoryLike
from lazyprompt.prompt import MARKERS, Prompt, Rendered, Text
from lazyprompt.text.layout import Fields
from lazyprompt.text.markers import DEFAULT_MARKERS, Markers
from lazyprompt.text.safety import checked_safety
from lazyprompt.text.template import PromptTemplate, Writer, resolved_system
from lazyprompt.tools import ToolLike, ToolSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lazyprompt._json import JsonObject
    from lazyprompt.budget.budget import Budget
    from lazyprompt.budget.report import TrimReport
    from lazyprompt.budgeted import BudgetLike, Call
    from lazyprompt.formatters.report import Payload
    from lazyprompt.text.instruction import InstructionTemplate
    from lazyprompt.text.layout import Laid
    from lazyprompt.text.safety import Safety

ToolsLike: TypeAlias = "Iterable[ToolLike] | ToolSet | None"
HookArgs: TypeAlias = "tuple[object, HistoryLike | None, ToolsLike, str | None]"
Hook: TypeAlias = "Callable[[object, HistoryLike | None, ToolsLike, str | None], HookArgs]"

FORMATS = ("flat", *PROVIDERS)


class OpenAIPrompt(TypedDict):
    """The OpenAI form of a prompt: ``messages``, and ``tools`` where there are any."""

    messages: list[JsonObject]
    tools: NotRequired[list[JsonObject]]


# What a prompter writes itself: flat text and OpenAI's form.
_OWN_FORMS = (None, "flat", "openai")
# A prompter remembers the copies it made for so many model names.
_MODELS_KEPT = 32


class Prompter:
    """A prompter of your own: any instruction template with any prompt template.

    Args:
        instruction_template: The instruction.
        prompt_template: Which fields a flat prompt shows, and what stands between them.
        system: The system text; ``None`` takes the model family's, or else the documented default; ``""`` is none.
        tools: Tools the model may always call: dicts or Python functions. None may then be given at the call.
        history: What every conversation begins with, in any accepted form.
        show: Whether each prompt is written to the standard error as well.
        budget: What makes each prompt fit a number of tokens; or the most tokens of slots, by their names.

    Raises:
        ToolsError: A tool cannot be described.
        HistoryError: The history has no accepted shape.
        BudgetError: The budget limits a slot that is not there.
    """

    _default_safety: Safety = "neutralize"

    def __init__(
        self,
        instruction_template: InstructionTemplate,
        prompt_template: PromptTemplate,
        *,
        system: str | None = None,
        tools: ToolsLike = None,
        history: HistoryLike | None = None,
        show: bool = False,
        budget: BudgetLike | None = None,
    ) -> None:
        self._instruction = instruction_template
        self._template = prompt_template
        self._system = checked_text(system, "the system text", TemplateError)
        self._tools = ToolSet.of(tools)
        self._history = History.of(history)
        self._show = show
        self._hooks: tuple[Hook, ...] = ()
        self._safety: Safety = self._default_safety
        self._budget = None if budget is None else self._checked_budget(budget)
        self._set_markers(DEFAULT_MARKERS)

    def _changed(self, markers: Markers, **fields: object) -> Self:
        """A copy with other markers and fields, that has made nothing yet."""
        changed = copy(self)
        for name, value in fields.items():
            setattr(changed, f"_{name}", value)
        Prompter._set_markers(changed, markers)
        return changed

    def _set_markers(self, markers: Markers) -> None:
        self._markers = markers
        self._system_text = resolved_system(self._system, markers)
        self._writer: Writer | None = None
        self._by_model: dict[str, Self] = {}

    @property
    def slots(self) -> tuple[str, ...]:
        """The names of the slots that the input must fill."""
        return self._instruction.slots

    @property
    def prompt_template(self) -> PromptTemplate:
        """Which fields a flat prompt shows, and what stands between them."""
        return self._template

    @overload
    def generate_prompt(
        self,
        input: object = ...,
        history: HistoryLike | None = ...,
        tools: ToolsLike = ...,
        label: str | None = ...,
        *,
        show: bool = ...,
        return_dict: Literal[False] = ...,
        format: Literal["flat"] | None = ...,
        model: str | None = ...,
    ) -> str: ...
    @overload
    def generate_prompt(
        self,
        input: object = ...,
        history: HistoryLike | None = ...,
        tools: ToolsLike = ...,
        label: str | None = ...,
        *,
        show: bool = ...,
        return_dict: Literal[True],
        format: Literal["openai"] | None = ...,
        model: str | None = ...,
    ) -> OpenAIPrompt: ...
    @overload
    def generate_prompt(
        self,
        input: object = ...,
        history: HistoryLike | None = ...,
        tools: ToolsLike = ...,
        label: str | None = ...,
        *,
        show: bool = ...,
        return_dict: bool = ...,
        format: Literal["openai"],
        model: str | None = ...,
    ) -> OpenAIPrompt: ...
    @overload
    def generate_prompt(
        self,
        input: object = ...,
        history: HistoryLike | None = ...,
        tools: ToolsLike = ...,
        label: str | None = ...,
        *,
        show: bool = ...,
        return_dict: bool = ...,
        format: str | None = ...,
        model: str | None = ...,
    ) -> str | OpenAIPrompt | Payload: ...
    def generate_prompt(
        self,
        input: object = None,  # noqa: A002 - the name of the documents
        history: HistoryLike | None = None,
        tools: ToolsLike = None,
        label: str | None = None,
        *,
        show: bool = False,
        return_dict: bool = False,
        format: str | None = None,  # noqa: A002 - the name of the documents
        model: str | None = None,
    ) -> str | OpenAIPrompt | Payload:
        """Make the prompt.

        Args:
            input: A dict with a value for each slot, and under ``input`` what the user says, if no slot has that name;
                or one value for the only slot; or, where there is no slot, what the user says.
            history: What was said before: pairs, OpenAI dicts, Msg, in any mixture.
            tools: Tools the model may call: dicts or Python functions.
            label: The answer, in training data.
            show: Whether the prompt is written to the standard error as well.
            return_dict: The same as ``format="openai"``.
            format: ``flat`` (the default) for a string, ``openai`` for ``dict(messages, tools)``, or another provider
                for its payload.
            model: The model whose markers (and system text) are used in place of the prompter's own; with a provider
                other than ``openai``, the model at that provider.

        Returns:
            The flat string, or a dict that shares nothing mutable with anything given.

        Raises:
            SlotError: A slot has no value, or a value no slot.
            HistoryError: The history has no accepted shape, or the prompt template no place for it.
            ToolsError: A tool cannot be described, or the prompter has tools of its own.
            FormatError: The format is unknown, or cannot show a picture or the like.
            SafetyError: A value holds a control sequence, and the prompter refuses them.
            TemplateError: The model is of no known family.
        """
        if model is not None and format in _OWN_FORMS:
            return self._for_model(model).generate_prompt(
                input, history, tools, label, show=show, return_dict=return_dict, format=format
            )
        if self._hooks or label is not None:
            input, history, tools, label = self._prepared(input, history, tools, label)  # noqa: A001
        as_dict = return_dict if format is None else _is_dict(format, return_dict=return_dict)
        made: str | OpenAIPrompt | Payload
        if self._budget is not None:
            made, _ = self._within(self._budget, "openai" if as_dict else format, model, (input, history, tools, label))
        elif as_dict:
            made = self._openai(input, history, tools, label)
        else:
            made = self._made(format, model, input, history, tools, label)
        if show or self._show:
            sys.stderr.write(f"{made}\n")
        return made

    def fit(
        self,
        input: object = None,  # noqa: A002 - the name of the documents
        history: HistoryLike | None = None,
        tools: ToolsLike = None,
        label: str | None = None,
        *,
        format: str | None = None,  # noqa: A002 - the name of the documents
        model: str | None = None,
    ) -> tuple[str | OpenAIPrompt | Payload, TrimReport]:
        """The same as :meth:`generate_prompt`, with the report of the budget.

        Args:
            input: As in :meth:`generate_prompt`.
            history: As in :meth:`generate_prompt`.
            tools: As in :meth:`generate_prompt`.
            label: As in :meth:`generate_prompt`.
            format: As in :meth:`generate_prompt`.
            model: As in :meth:`generate_prompt`.

        Returns:
            The prompt, and what went so that it fits. The messages of the report are those of the history, then the
            values of the slots.

        Raises:
            BudgetError: The prompter has no budget, or even what never goes does not fit.
            LazyPromptError: As in :meth:`generate_prompt`.
        """
        if model is not None and format in _OWN_FORMS:
            return self._for_model(model).fit(input, history, tools, label, format=format)
        if self._budget is None:
            raise BudgetError("this prompter has no budget; give it one with budget=, or with_budget")
        if format is not None:
            # It refuses what is no format.
            _is_dict(format, return_dict=False)
        call = (input, history, tools, label)
        return self._within(self._budget, format, model, self._prepared(*call))

    def fill(self, input: object = None, history: HistoryLike | None = None, tools: ToolsLike = None) -> Prompt:  # noqa: A002
        """The prompt as a value, before it takes any form.

        Args:
            input: As in :meth:`generate_prompt`.
            history: As in :meth:`generate_prompt`.
            tools: As in :meth:`generate_prompt`.

        Returns:
            The filled prompt.

        Raises:
            SlotError: A slot has no value, or a value no slot (so with HistoryError, ToolsError).
        """
        if self._hooks:
            input, history, tools, _ = self._prepared(input, history, tools, None)  # noqa: A001
        filled = self._instruction.fill(input)
        past = self._past(history)
        return Prompt(
            system=self._system,
            instruction=filled.system_text,
            user=filled.user_text,
            input=_said(filled.input, past),
            history=past,
            tools=self._tools if tools is None else self._all_tools(tools),
        )

    def render(
        self,
        input: object = None,  # noqa: A002 - the name of the documents
        history: HistoryLike | None = None,
        tools: ToolsLike = None,
        label: str | None = None,
        *,
        model: str | None = None,
    ) -> Rendered:
        """The flat prompt with its segments: ``render(x).text == generate_prompt(x)``.

        Args:
            input: As in :meth:`generate_prompt`.
            history: As in :meth:`generate_prompt`.
            tools: As in :meth:`generate_prompt`.
            label: As in :meth:`generate_prompt`.
            model: As in :meth:`generate_prompt`.

        Returns:
            The flat prompt.

        Raises:
            LazyPromptError: As in :meth:`generate_prompt`.
        """
        if model is not None:
            return self._for_model(model).render(input, history, tools, label)
        if self._hooks or label is not None:
            input, history, tools, label = self._prepared(input, history, tools, label)  # noqa: A001
        if self._budget is not None:
            (given, past), _ = self._fitted(self._budget, None, None, input, history, tools, label)
            laid = self._lay(given, past, tools, label)
        else:
            laid = self._lay(input, history, tools, label)
        return Rendered(laid.parts, laid.slots)

    def pre_hook(self, hook: Hook) -> Self:
        """Call a function with the arguments of each call first; it gives back what is used in their place.

        Args:
            hook: ``hook(input, history, tools, label)`` returns the same four. It works on copies.

        Returns:
            The prompter itself.
        """
        self._hooks = (*self._hooks, hook)
        # The copies made for models so far know nothing of it.
        self._by_model = {}
        return self

    def with_markers(self, markers: Markers | str) -> Self:
        """A copy for a model.

        Args:
            markers: Markers, or the name of a model or family.

        Returns:
            The copy; this prompter stays as it is.

        Raises:
            TemplateError: The model is of no known family.
        """
        return self._changed(markers if isinstance(markers, Markers) else Markers.for_model(markers))

    def with_system(self, system: str | None) -> Self:
        """A copy with another system text.

        Args:
            system: The text; ``""`` is none, ``None`` leaves it to the model family or the default.

        Returns:
            The copy; this prompter stays as it is.
        """
        return self._changed(self._markers, system=checked_text(system, "the system text", TemplateError))

    def with_safety(self, safety: Safety) -> Self:
        """A copy with another policy for control sequences in untrusted text.

        Args:
            safety: ``neutralize`` (the default), ``raise`` or ``off``.

        Returns:
            The copy; this prompter stays as it is.

        Raises:
            SafetyError: There is no such policy.
        """
        return self._changed(self._markers, safety=checked_safety(safety))

    def with_budget(self, budget: BudgetLike | None) -> Self:
        """A copy whose prompts fit a number of tokens.

        Args:
            budget: The budget; or the most tokens of slots, by their names; ``None`` is none.

        Returns:
            The copy; this prompter stays as it is.

        Raises:
            BudgetError: The budget limits a slot that is not there.
        """
        return self._changed(self._markers, budget=None if budget is None else self._checked_budget(budget))

    def get_response(self, output: str, input: str | None = None) -> str:  # noqa: A002 - the name of the documents
        """The answer in what a local model gave back.

        Args:
            output: What the engine returned: the answer, or the prompt with the answer behind it.
            input: The prompt, where it is known.

        Returns:
            The answer, without the prompt and without the marker that ends it.
        """
        found = self._template.answer_in(output, self._markers) if input is None else output.removeprefix(input)
        ends = [end for end in (self._markers.eoa.strip(), *self._markers.stop) if end]
        cuts = [at for end in ends if (at := found.find(end)) >= 0]
        return found[: min(cuts)] if cuts else found

    def _within(
        self, budget: Budget, form: str | None, model: str | None, call: HookArgs
    ) -> tuple[str | OpenAIPrompt | Payload, TrimReport]:
        """The prompt in a form, within a budget, and its report."""
        given, history, tools, label = call
        fitted, report = self._fitted(budget, form, model, given, history, tools, label)
        return self._made(form, model, *fitted, tools, label), report

    def _made(
        self,
        form: str | None,
        model: str | None,
        given: object,
        history: HistoryLike | History | None,
        tools: ToolsLike,
        label: str | None,
    ) -> str | OpenAIPrompt | Payload:
        """The prompt in a form."""
        if form == "openai":
            return self._openai(given, history, tools, label)
        if form in _OWN_FORMS:
            return "".join(self._lay(given, history, tools, label).parts)
        return self._payload(str(form), model, given, history, tools, label)

    def _fitted(
        self,
        budget: Budget,
        form: str | None,
        model: str | None,
        given: object,
        history: HistoryLike | History | None,
        tools: ToolsLike,
        label: str | None,
    ) -> tuple[Call, TrimReport]:
        """The values and the history of a prompt that fits."""
        from lazyprompt.budgeted import Call, Costs, cost_of, fitted_call, slots_of  # noqa: PLC0415 - only a budget needs it

        def whole(call: Call) -> int:
            return cost_of(budget, form, self._made(form, model, call.values, call.history, tools, label))

        def slots(call: Call) -> dict[str, int]:
            if form in (None, "flat"):
                laid = self._lay(call.values, call.history, tools, label)
                found = Rendered(laid.parts, laid.slots).tokens(budget)
                return {slot: tokens for slot, tokens in found.items() if slot != MARKERS}
            filled = self._instruction.fill(call.values)
            texts = (Text.trusted(self._system_text, "system"), filled.system_text, filled.user_text)
            own = self._tools if tools is None else self._all_tools(tools)
            return slots_of(budget, texts, {"input": filled.input, "label": label}, self._past(call.history), own)

        values, past = self._instruction.by_name(given), History.of(history)
        waits = "input" not in values and past.waits_for_answer
        return fitted_call(budget, Call(values, past), Costs(whole, slots), waits=waits)

    def _checked_budget(self, budget: BudgetLike) -> Budget:
        """A budget whose slots are there."""
        from lazyprompt.budgeted import checked_budget  # noqa: PLC0415 - only a budget needs it

        return checked_budget(budget, self.slots)

    def _lay(self, given: object, history: HistoryLike | History | None, tools: ToolsLike, label: str | None) -> Laid:
        """The parts of the flat prompt."""
        system, user, text = self._instruction.parts(given)
        past = self._history if history is None else self._past(history)
        all_tools = self._tools if tools is None else self._all_tools(tools)
        slots = self._instruction.origins(system, user)
        fields = Fields(self._system_text, system, slots[0], user, slots[1], _said(text, past), past, all_tools)
        # Made on first use; two threads that come at once make the same one.
        writer = self._writer = self._writer or self._new_writer(fields)
        return writer.write(fields, label)

    def _new_writer(self, fields: Fields) -> Writer:
        constant = self._instruction.constant | {"system"}
        if self._tools:
            constant |= {"tools"}
        writer = Writer(self._template, self._markers, self._instruction.literals, self._safety)
        # Tools of this very call are none of the prompter's own.
        return writer.keep(fields._replace(tools=self._tools), constant)

    def _openai(
        self, given: object, history: HistoryLike | History | None, tools: ToolsLike, label: str | None
    ) -> OpenAIPrompt:
        """The OpenAI form; every list and dict in it is new."""
        system_parts, user_parts, text = self._instruction.parts(given)
        messages: list[JsonObject] = []
        instruction = "".join(system_parts)
        system = self._system_text
        if system or instruction:
            content = f"{system}\n{instruction}" if system and instruction else system or instruction
            messages.append({"role": "system", "content": content})
        past = self._history if history is None else self._past(history)
        if past is not EMPTY_HISTORY:
            messages += past.to_openai()
        said = "".join(user_parts) + (text or "")
        if said or _said(text, past) is not None:
            messages.append({"role": "user", "content": said})
        if label is not None:
            messages.append({"role": "assistant", "content": label})
        all_tools = self._tools if tools is None else self._all_tools(tools)
        return {"messages": messages, "tools": all_tools.copy()} if all_tools.names else {"messages": messages}

    def _payload(
        self,
        provider: str,
        model: str | None,
        given: object,
        history: HistoryLike | History | None,
        tools: ToolsLike,
        label: str | None,
    ) -> Payload:
        """The payload of a provider."""
        from lazyprompt.formatters.prompted import prompted  # noqa: PLC0415 - only such a form needs it

        system_parts, user_parts, text = self._instruction.parts(given)
        past = self._past(history)
        said = "".join(user_parts) + (text or "")
        return prompted(
            provider,
            model,
            (self._system_text, "".join(system_parts)),
            past.messages if past.has_messages else past.to_openai(),
            said or _said(text, past),
            self._tools if tools is None else self._all_tools(tools),
            label,
        )

    def _past(self, history: HistoryLike | History | None) -> History:
        return History.of(history) if self._history is EMPTY_HISTORY else self._history + History.of(history)

    def _all_tools(self, tools: ToolsLike) -> ToolSet:
        given = ToolSet.of(tools)
        if given and self._tools:
            raise ToolsError(
                f"this prompter has the tools {', '.join(self._tools.names)} since its construction, "
                f"so none may be given at the call; given were {', '.join(given.names)}"
            )
        return given or self._tools

    def _for_model(self, model: str) -> Self:
        """The copy for a model; the last few are kept."""
        made = self._by_model.get(model)
        if made is None:
            made = self.with_markers(model)
            if len(self._by_model) >= _MODELS_KEPT:
                self._by_model.clear()
            self._by_model[model] = made
        return made

    def _prepared(self, *args: *tuple[object, HistoryLike | None, ToolsLike, str | None]) -> HookArgs:
        """The arguments of a call after the hooks, with the label checked."""
        for hook in self._hooks:
            result = hook(*deepcopy(args))
            if not isinstance(cast("object", result), tuple) or len(result) != len(args):
                raise TemplateError(
                    f"pre_hook {getattr(hook, '__name__', hook)!r} returned {result!r}; "
                    "it must return the four (input, history, tools, label)"
                )
            args = result
        checked_text(args[3], "the label", SlotError)
        return args

    def __getstate__(self) -> dict[str, object]:
        """What a pickle holds: not what was made on first use."""
        return {**self.__dict__, "_writer": None, "_by_model": {}}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(slots={self.slots!r})"


def _said(text: str | None, past: History) -> str | None:
    """What the user says now; nothing at all where nothing was given and the history waits for the assistant."""
    return "" if text is None and not past.waits_for_answer else text


def _is_dict(format: str, *, return_dict: bool) -> bool:  # noqa: A002 - the name of the documents
    if format not in FORMATS:
        raise FormatError(
            f"format {format!r} is unknown{did_you_mean(str(format), FORMATS)}; known are {', '.join(FORMATS)}"
        )
    if return_dict and format != "openai":
        raise FormatError(f"return_dict=True is format='openai', but format is {format!r}; give one of them")
    return format == "openai"
