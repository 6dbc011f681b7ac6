"""The prompter: one definition of a prompt, a flat string or a dict out.

It is an instruction template, a prompt template, and what the developer has fixed: system text, tools, history.
It keeps nothing of a call, so one prompter serves any number of threads and models at once.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal, Self, overload

from lazyprompt._base.json import checked_text
from lazyprompt.errors import BudgetError, FormatError, TemplateError, did_you_mean
from lazyprompt.formatters.providers import PROVIDERS
from lazyprompt.messages.prompt import Prompt, Rendered
from lazyprompt.prompters.prompt_maker import OWN_FORMS, PromptMaker
from lazyprompt.rendering.markers import Markers
from lazyprompt.safety.policy import policy_of
from lazyprompt.templates.call_input import name_of_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lazyprompt._base.json import JsonObject
    from lazyprompt.budget.report import TrimReport
    from lazyprompt.chat_templates.template import ChatTemplate
    from lazyprompt.formatters.providers import OtherProvider
    from lazyprompt.formatters.report import Payload
    from lazyprompt.messages.history import HistoryLike, PastLike
    from lazyprompt.messages.openai_form import OpenAIPrompt
    from lazyprompt.messages.tools import ToolsLike
    from lazyprompt.prompters.budgeted import BudgetLike
    from lazyprompt.prompters.prompt_maker import Hook
    from lazyprompt.prompters.rows import Columns, OnError, RayMap, RowFault
    from lazyprompt.rendering.prompt_template import PromptTemplate
    from lazyprompt.safety.policy import Safety
    from lazyprompt.training.samples import Train, TrainingSample

FORMATS = ("flat", *PROVIDERS)


class Prompter(PromptMaker):
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

    @property
    def slots(self) -> tuple[str, ...]:
        """The names of the slots that the input must fill."""
        return self._instruction.slots

    def name_of_text(self, given: Iterable[str] = ()) -> str:
        """Return the name of what a text without a name is: the slot that it fills, or ``input``, the user's text.

        Args:
            given: The slots that have a value already.

        Raises:
            SlotError: Text goes into slots only, and not just one is open.
        """
        form = self._instruction.input_form
        return name_of_text(form, {*given, *dict(form.fixed)})

    @property
    def response_format(self) -> JsonObject | None:
        """The JSON Schema that answers are to be of; None for any answer."""
        return None

    @property
    def prompt_template(self) -> PromptTemplate:
        """Which fields a flat prompt shows, and what stands between them."""
        return self._template

    @property
    def shows(self) -> bool:
        """Whether each prompt is written to the standard error as well."""
        return self._show

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
        chat_template: ChatTemplate | None = ...,
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
        chat_template: ChatTemplate | None = ...,
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
        chat_template: ChatTemplate | None = ...,
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
        return_dict: Literal[False] = ...,
        format: OtherProvider,
        model: str | None = ...,
        chat_template: ChatTemplate | None = ...,
    ) -> Payload: ...
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
        format: None = ...,
        model: str | None = ...,
        chat_template: ChatTemplate | None = ...,
    ) -> str | OpenAIPrompt: ...
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
        chat_template: ChatTemplate | None = ...,
    ) -> str | OpenAIPrompt | Payload: ...
    def generate_prompt(  # noqa: PLR0913 - the forms of one prompt; all but four are given by name
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
        chat_template: ChatTemplate | None = None,
    ) -> str | OpenAIPrompt | Payload:
        """Make the prompt.

        Args:
            input: A dict with a value for each slot, and under ``input`` the user's text, if no slot has that name.
                Text alone fills the only slot if that is called ``input``, stands in the user's part, or is Alpaca's;
                else it is the user's text.
            history: What was said before: pairs, OpenAI dicts, Msg, in any mixture.
            tools: Tools the model may call: dicts or Python functions.
            label: The answer, in training data.
            show: Whether the prompt is written to the standard error as well.
            return_dict: The same as ``format="openai"``.
            format: ``flat`` (the default) for a string, ``openai`` for ``dict(messages, tools)``, or another provider
                for its payload.
            model: The model whose markers (and system text) are used in place of the prompter's own; with a provider
                other than ``openai``, the model at that provider.
            chat_template: The model's own chat template, which lays flat text out in the place of markers.

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
        if (model is not None or chat_template is not None) and format in OWN_FORMS:
            return self._for_model(model, chat_template).generate_prompt(
                input, history, tools, label, show=show, return_dict=return_dict, format=format
            )
        # Written out: a property would be a call, and one that is made for each prompt.
        if self._expands or self._hooks or self._instruction.has_functions or label is not None:
            input, history, tools, label = self._prepared(input, history, tools, label)  # noqa: A001
        as_dict = return_dict if format is None else _is_dict(format, return_dict=return_dict)
        made: str | OpenAIPrompt | Payload
        if self._budget is not None:
            made, _ = self._within(self._budget, "openai" if as_dict else format, model, (input, history, tools, label))
        elif as_dict:
            made = self._openai(input, history, tools, label)
        else:
            made = self._made(format, model, (input, history, tools, label))
        if show or self._show:
            sys.stderr.write(f"{made}\n")
        return made

    @overload
    def fit(
        self,
        input: object = ...,
        history: HistoryLike | None = ...,
        tools: ToolsLike = ...,
        label: str | None = ...,
        *,
        format: Literal["flat"] | None = ...,
        model: str | None = ...,
        chat_template: ChatTemplate | None = ...,
    ) -> tuple[str, TrimReport]: ...
    @overload
    def fit(
        self,
        input: object = ...,
        history: HistoryLike | None = ...,
        tools: ToolsLike = ...,
        label: str | None = ...,
        *,
        format: Literal["openai"],
        model: str | None = ...,
        chat_template: ChatTemplate | None = ...,
    ) -> tuple[OpenAIPrompt, TrimReport]: ...
    @overload
    def fit(
        self,
        input: object = ...,
        history: HistoryLike | None = ...,
        tools: ToolsLike = ...,
        label: str | None = ...,
        *,
        format: OtherProvider,
        model: str | None = ...,
        chat_template: ChatTemplate | None = ...,
    ) -> tuple[Payload, TrimReport]: ...
    @overload
    def fit(
        self,
        input: object = ...,
        history: HistoryLike | None = ...,
        tools: ToolsLike = ...,
        label: str | None = ...,
        *,
        format: str | None = ...,
        model: str | None = ...,
        chat_template: ChatTemplate | None = ...,
    ) -> tuple[str | OpenAIPrompt | Payload, TrimReport]: ...
    def fit(
        self,
        input: object = None,  # noqa: A002 - the name of the documents
        history: HistoryLike | None = None,
        tools: ToolsLike = None,
        label: str | None = None,
        *,
        format: str | None = None,  # noqa: A002 - the name of the documents
        model: str | None = None,
        chat_template: ChatTemplate | None = None,
    ) -> tuple[str | OpenAIPrompt | Payload, TrimReport]:
        """The same as :meth:`generate_prompt`, with the report of the budget.

        Args:
            input: As in :meth:`generate_prompt`.
            history: As in :meth:`generate_prompt`.
            tools: As in :meth:`generate_prompt`.
            label: As in :meth:`generate_prompt`.
            format: As in :meth:`generate_prompt`.
            model: As in :meth:`generate_prompt`.
            chat_template: As in :meth:`generate_prompt`.

        Returns:
            The prompt, and what went so that it fits. The messages of the report are those of the history, then the
            values of the slots.

        Raises:
            BudgetError: The prompter has no budget, or even what never goes does not fit.
            LazyPromptError: As in :meth:`generate_prompt`.
        """
        if (model is not None or chat_template is not None) and format in OWN_FORMS:
            return self._for_model(model, chat_template).fit(input, history, tools, label, format=format)
        if self._budget is None:
            raise BudgetError("this prompter has no budget; give it one with budget=, or with_budget")
        _check_format(format)
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
        if self._expands or self._has_functions:
            input, history, tools, _ = self._prepared(input, history, tools, None)  # noqa: A001
        filled, past = self._filled(input, history)
        return Prompt(
            system=self._system,
            instruction=filled.system_text,
            user=filled.user_text,
            input=self._now(filled.input, past),
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
        chat_template: ChatTemplate | None = None,
    ) -> Rendered:
        """The flat prompt with its segments: ``render(x).text == generate_prompt(x)``.

        Args:
            input: As in :meth:`generate_prompt`.
            history: As in :meth:`generate_prompt`.
            tools: As in :meth:`generate_prompt`.
            label: As in :meth:`generate_prompt`.
            model: As in :meth:`generate_prompt`.
            chat_template: As in :meth:`generate_prompt`.

        Returns:
            The flat prompt.

        Raises:
            LazyPromptError: As in :meth:`generate_prompt`.
        """
        if model is not None or chat_template is not None:
            return self._for_model(model, chat_template).render(input, history, tools, label)
        return self.render_with_trim(input, history, tools, label)[0]

    def render_with_trim(
        self,
        input: object = None,  # noqa: A002 - the name of the documents
        history: HistoryLike | None = None,
        tools: ToolsLike = None,
        label: str | None = None,
    ) -> tuple[Rendered, TrimReport | None]:
        """Render the flat prompt, and report what the budget dropped.

        Args:
            input: As in :meth:`generate_prompt`.
            history: As in :meth:`generate_prompt`.
            tools: As in :meth:`generate_prompt`.
            label: As in :meth:`generate_prompt`.

        Returns:
            The flat prompt, and the report of the prompter's budget, or None without a budget.

        Raises:
            LazyPromptError: As in :meth:`generate_prompt`.
        """
        if self._expands or self._has_functions or label is not None:
            input, history, tools, label = self._prepared(input, history, tools, label)  # noqa: A001
        given: tuple[object, PastLike] = (input, history)
        trim: TrimReport | None = None
        if self._budget is not None:
            given, trim = self._fitted(self._budget, None, None, (input, history, tools, label))
        laid = self._lay(*given, tools, label)
        return Rendered(laid.parts, laid.slots, laid.note), trim

    def training_sample(
        self,
        input: object = None,  # noqa: A002 - the name of the documents
        label: str | None = None,
        history: HistoryLike | None = None,
        tools: ToolsLike = None,
        *,
        train: Train = "last",
        model: str | None = None,
        chat_template: ChatTemplate | None = None,
    ) -> TrainingSample:
        """A conversation to fine-tune a model with: what :meth:`generate_prompt` makes, the answer, and its end marker.

        Args:
            input: As in :meth:`generate_prompt` (so with history, tools and model).
            label: The answer; without one it is the assistant's turn that the history ends with.
            history: What was said before.
            tools: Tools the model may call.
            train: Which answers are trained: the ``last``, ``all``, or those for which ``train(index, message)`` is.
            model: The model whose markers are used.
            chat_template: As in :meth:`generate_prompt`.

        Returns:
            The sample. A budget is for its prompt: the answer is beside it, as it is when the model gives one.

        Raises:
            SlotError: There is no answer.
            LazyPromptError: As in :meth:`generate_prompt`; a turn that is to be trained cannot be shown as it is.
        """
        if model is not None or chat_template is not None:
            return self._for_model(model, chat_template).training_sample(input, label, history, tools, train=train)
        return self._sample(self._prepared(input, history, tools, label), train)

    @overload
    def render_batch(
        self,
        rows: object,
        *,
        format: str | None = ...,
        model: str | None = ...,
        columns: Columns | None = ...,
        params: Mapping[str, object] | None = ...,
        on_error: Literal["raise"] = ...,
    ) -> Iterator[dict[str, Any]]: ...
    @overload
    def render_batch(
        self,
        rows: object,
        *,
        format: str | None = ...,
        model: str | None = ...,
        columns: Columns | None = ...,
        params: Mapping[str, object] | None = ...,
        on_error: OnError = ...,
    ) -> Iterator[dict[str, Any] | RowFault]: ...
    def render_batch(
        self,
        rows: object,
        *,
        format: str | None = None,  # noqa: A002 - the name of the documents
        model: str | None = None,
        columns: Columns | None = None,
        params: Mapping[str, object] | None = None,
        on_error: OnError = "raise",
    ) -> Iterator[dict[str, Any] | RowFault]:
        """The prompts of many rows, one at a time; see :func:`lazyprompt.batch.render.render_batch`.

        Args:
            rows: Mappings one after another, a mapping of columns, an Arrow table or a DataFrame.
            format: ``flat`` (the default), a provider, or a form of files as ``openai-batch``; see
                :data:`lazyprompt.batch.forms.FORMS`.
            model: The model of requests; in all other forms as in :meth:`generate_prompt`.
            columns: Which columns are what, where that is not said by their names.
            params: Further fields of each request, as ``{"max_tokens": 1024}``.
            on_error: Whether a row without a prompt ends the work (``raise``), or its fault stands in its place
                (``return``).

        Returns:
            What the line of each row holds, as dicts that share nothing with the rows.

        Raises:
            BatchError: The rows are no rows, or the settings do not fit.
            LazyPromptError: As in :meth:`generate_prompt`; the message begins with the number of the row.
        """
        from lazyprompt.batch.render import render_batch  # noqa: PLC0415  # door: rows are work for the folder above

        return render_batch(self, rows, format=format, model=model, columns=columns, params=params, on_error=on_error)

    def ray_map(
        self,
        *,
        format: str | None = None,  # noqa: A002 - the name of the documents
        model: str | None = None,
        columns: Columns | None = None,
        params: Mapping[str, object] | None = None,
    ) -> RayMap:
        """What ``ray.data.Dataset.map_batches`` takes: ``data.map_batches(**prompter.ray_map())``.

        It adds the columns ``line`` and ``error`` to a table; see :mod:`lazyprompt.batch.adapters`.

        Args:
            format: As in :meth:`render_batch` (so with model, columns and params).
            model: The model.
            columns: Which columns are what.
            params: Further fields of each request.

        Raises:
            BatchError: The settings do not fit.
            FormatError: There is no such form.
        """
        from lazyprompt.batch.adapters import ray_map  # noqa: PLC0415  # door: as render_batch
        from lazyprompt.batch.render import RowPlan  # noqa: PLC0415  # door: as render_batch

        return ray_map(RowPlan.of(self, format, model=model, columns=columns, params=params))

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

    def partial(self, /, **values: object) -> Self:
        """Return a copy with values for some slots, which a call may then leave out; those of a call win.

        Args:
            **values: A value for each slot, or a function without arguments, which is called once for each prompt.

        Raises:
            SlotError: A name is that of no slot, or a value is None or cannot become text.
        """
        return self._changed(self._markers, instruction=self._instruction.partial(**values))

    def with_markers(self, markers: Markers | str) -> Self:
        """A copy for a model.

        Args:
            markers: Markers, or the name of a model or family.

        Returns:
            The copy; this prompter stays as it is.

        Raises:
            TemplateError: The model is of no known family.
        """
        found = markers if isinstance(markers, Markers) else Markers.for_model(markers)
        return self._changed(found, chat_template=None)

    def with_chat_template(self, template: ChatTemplate) -> Self:
        """A copy whose flat text a model's own chat template lays out.

        Args:
            template: The template; what it brings, as a system text, is the model family's.

        Returns:
            The copy; this prompter stays as it is.
        """
        return self._changed(template.markers, chat_template=template)

    def with_system(self, system: str | None) -> Self:
        """A copy with another system text.

        Args:
            system: The text; ``""`` is none, ``None`` leaves it to the model family or the default.

        Returns:
            The copy; this prompter stays as it is.
        """
        return self._changed(self._markers, system=checked_text(system, "the system text", TemplateError))

    def with_added_system(self, text: str) -> Self:
        """A copy with words behind its system text, whichever that is.

        Args:
            text: The words; they stand in a paragraph of their own.

        Returns:
            The copy; this prompter stays as it is.
        """
        words = checked_text(text, "the system text", TemplateError)
        added = "\n\n".join(filter(None, (self._added_system, words)))
        return self._changed(self._markers, added_system=added)

    def with_safety(self, safety: Safety, slots: Mapping[str, Safety] | None = None) -> Self:
        """A copy with another policy for control sequences in untrusted text.

        Args:
            safety: ``neutralize`` (the default), ``raise`` or ``off``.
            slots: The same for the text of some slots, by their names; so are ``input``, ``history`` and ``tools``.

        Returns:
            The copy; this prompter stays as it is.

        Raises:
            SafetyError: There is no such policy.
        """
        return self._changed(self._markers, safety=policy_of(safety, slots))

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

    def __getstate__(self) -> dict[str, object]:
        """What a pickle holds: not what was made on first use."""
        return {**self.__dict__, "_writer": None, "_by_model": {}}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(slots={self.slots!r})"


def _check_format(format: str | None) -> None:  # noqa: A002 - the name of the documents
    if format is not None and format not in FORMATS:
        raise FormatError(
            f"format {format!r} is unknown{did_you_mean(str(format), FORMATS)}; known are {', '.join(FORMATS)}"
        )


def _is_dict(format: str, *, return_dict: bool) -> bool:  # noqa: A002 - the name of the documents
    _check_format(format)
    if return_dict and format != "openai":
        raise FormatError(f"return_dict=True is format='openai', but format is {format!r}; give one of them")
    return format == "openai"
