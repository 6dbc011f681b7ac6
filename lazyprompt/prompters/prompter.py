"""The prompter: one definition of a prompt, for any target.

It is an instruction template, a prompt template, and what the developer has fixed: system text, tools, history.
It keeps nothing of a call, so one prompter serves any number of threads and models at once.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal, cast, overload

from lazyprompt.errors import BudgetError, FormatError
from lazyprompt.formatters.report import Payload
from lazyprompt.prompters.definition import PromptDefinition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lazyprompt.budget.budget import Budget
    from lazyprompt.budget.report import TrimReport
    from lazyprompt.chat_templates.template import ChatTemplate
    from lazyprompt.formatters.profile import Profile
    from lazyprompt.formatters.providers import OtherProvider
    from lazyprompt.messages.history import HistoryLike
    from lazyprompt.messages.msg import Msg
    from lazyprompt.messages.openai_form import OpenAIPrompt
    from lazyprompt.messages.prompt import Prompt, Rendered
    from lazyprompt.messages.tools import ToolsLike
    from lazyprompt.prompters.payload_target import PayloadTarget
    from lazyprompt.prompters.rows import Columns, OnError, RayMap, RowFault
    from lazyprompt.prompters.target_choice import FormatLike, ModelLike
    from lazyprompt.prompters.targets import Made, Target
    from lazyprompt.training.masks import Mask
    from lazyprompt.training.preference import PreferenceSample
    from lazyprompt.training.samples import Train, TrainingSample


class Prompter(PromptDefinition):
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
        model: ModelLike | None = ...,
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
        model: ModelLike | None = ...,
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
        model: ModelLike | None = ...,
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
        format: OtherProvider | Profile,
        model: ModelLike | None = ...,
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
        model: ModelLike | None = ...,
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
        format: FormatLike | None = ...,
        model: ModelLike | None = ...,
        chat_template: ChatTemplate | None = ...,
    ) -> str | OpenAIPrompt | Payload: ...
    def generate_prompt(  # noqa: PLR0913 - the forms of one prompt; all but four are given by name
        self,
        input: object = None,
        history: HistoryLike | None = None,
        tools: ToolsLike = None,
        label: str | None = None,
        *,
        show: bool = False,
        return_dict: bool = False,
        format: FormatLike | None = None,
        model: ModelLike | None = None,
        chat_template: ChatTemplate | None = None,
    ) -> str | OpenAIPrompt | Payload:
        """Make the prompt.

        Args:
            input: A dict with a value for each slot, and under ``input`` the user's text, if no slot has that name.
                Text alone fills the only slot if that is called ``input``, stands in the user's part, or is Alpaca's;
                else it is the user's text.
            history: The earlier messages: pairs, OpenAI dicts, Msg, in any mixture.
            tools: Tools the model may call: dicts or Python functions.
            label: The answer, in training data.
            show: Show the prompt as well: in the log ``lazyprompt.prompts`` where the program logs that at level INFO,
                else on the standard error.
            return_dict: The same as ``format="openai"``.
            format: ``flat`` (the default) for a string, ``openai`` for ``dict(messages, tools)``, or another provider
                for its payload, by its name or as a Profile of your own.
            model: The model whose markers (and system text) are used in place of the prompter's own: its name, Markers
                or its ChatTemplate; with a provider other than ``openai``, the name of the model at that provider.
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
        if return_dict:
            if format not in (None, "openai"):
                given = repr(format) if isinstance(format, str) else f"a {type(format).__name__}"
                raise FormatError(f"return_dict=True is format='openai', but format is {given}; give one of them")
            format = "openai"
        target = self.target(format, model, chat_template)
        prompt = self.fill(input, history, tools, label)
        made = target.render(prompt) if self._budget is None else _made(self._budget, prompt, target)[0]
        if show or self._show:
            _show(made)
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
        model: ModelLike | None = ...,
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
        model: ModelLike | None = ...,
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
        format: OtherProvider | Profile,
        model: ModelLike | None = ...,
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
        format: FormatLike | None = ...,
        model: ModelLike | None = ...,
        chat_template: ChatTemplate | None = ...,
    ) -> tuple[str | OpenAIPrompt | Payload, TrimReport]: ...
    def fit(
        self,
        input: object = None,
        history: HistoryLike | None = None,
        tools: ToolsLike = None,
        label: str | None = None,
        *,
        format: FormatLike | None = None,
        model: ModelLike | None = None,
        chat_template: ChatTemplate | None = None,
    ) -> tuple[str | OpenAIPrompt | Payload, TrimReport]:
        """Make a prompt as :meth:`generate_prompt` does, with the report of the budget.

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
        if self._budget is None:
            raise BudgetError("this prompter has no budget; give it one with budget=, or with_budget")
        prompt, target = self.fill(input, history, tools, label), self.target(format, model, chat_template)
        return _made(self._budget, prompt, target)

    def render(
        self,
        input: object = None,
        history: HistoryLike | None = None,
        tools: ToolsLike = None,
        label: str | None = None,
        *,
        model: ModelLike | None = None,
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
        target = self.text_target(model, chat_template)
        return target.segments(self.fitted(self.fill(input, history, tools, label), target)[0])

    def training_sample(
        self,
        input: object = None,
        label: str | Msg | Mapping[str, Any] | None = None,
        history: HistoryLike | None = None,
        tools: ToolsLike = None,
        *,
        train: Train = "last",
        mask: Mask = (),
        model: ModelLike | None = None,
        chat_template: ChatTemplate | None = None,
    ) -> TrainingSample:
        """A conversation to fine-tune a model with: what :meth:`generate_prompt` makes, the answer, and its end marker.

        Args:
            input: As in :meth:`generate_prompt` (so with history, tools and model).
            label: The answer: text, or a message with its calls; without one it is the assistant's turn that the
                history ends with.
            history: The earlier messages.
            tools: Tools the model may call.
            train: Which answers are trained: the ``last``, ``all``, or those for which ``train(index, message)`` is.
            mask: Text inside the answers that is not trained, as of :meth:`TrainingSample.with_mask`.
            model: The model whose markers are used.
            chat_template: As in :meth:`generate_prompt`.

        Returns:
            The sample. A budget is for its prompt: the answer is beside it, as it is when the model gives one.

        Raises:
            SlotError: There is no answer.
            LazyPromptError: As in :meth:`generate_prompt`; a turn that is to be trained cannot be shown as it is.
        """
        from lazyprompt.prompters.samples import sample_of  # noqa: PLC0415 - prompts need none
        from lazyprompt.training.answers import answer_in, answered, split_answer  # noqa: PLC0415 - as above

        target = self.text_target(model, chat_template)
        openai = cast("PayloadTarget", self.target("openai", model, chat_template))
        if label is None or isinstance(label, str):
            past, answer = (history, None) if label is not None else split_answer(history)
            prompt, answer = answered(self.fill(input, past, tools, label), answer)
        else:
            prompt, answer = self.fill(input, history, tools), answer_in(label)
        sample = sample_of(self.fitted(prompt, target)[0], answer, train, target, openai)
        return sample.with_mask(mask) if mask else sample

    def preference_sample(
        self,
        input: object = None,
        chosen: str | Msg | Mapping[str, Any] = "",
        rejected: str | Msg | Mapping[str, Any] = "",
        history: HistoryLike | None = None,
        tools: ToolsLike = None,
        *,
        mask: Mask = (),
        model: ModelLike | None = None,
        chat_template: ChatTemplate | None = None,
    ) -> PreferenceSample:
        """Make a preference pair: one prompt with two answers, for DPO, KTO and reward models.

        Args:
            input: As in :meth:`generate_prompt` (so with history, tools and model).
            chosen: The preferred answer: text, or a message with its calls.
            rejected: The other answer.
            history: The earlier messages.
            tools: Tools the model may call.
            mask: As in :meth:`training_sample`.
            model: The model whose markers are used.
            chat_template: As in :meth:`generate_prompt`.

        Returns:
            The pair; each side is the :meth:`training_sample` of its answer.

        Raises:
            FormatError: Both answers are the same, or the prompt is not the same before both.
            LazyPromptError: As in :meth:`training_sample`.
        """
        from lazyprompt.training.preference import PreferenceSample  # noqa: PLC0415 - prompts need none

        one, other = (
            self.training_sample(input, answer, history, tools, mask=mask, model=model, chat_template=chat_template)
            for answer in (chosen, rejected)
        )
        return PreferenceSample(one, other)

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
        format: str | None = None,
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
            columns: The roles of columns whose names do not show them.
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
        format: str | None = None,
        model: str | None = None,
        columns: Columns | None = None,
        params: Mapping[str, object] | None = None,
    ) -> RayMap:
        """Return the arguments of ``ray.data.Dataset.map_batches``: ``data.map_batches(**prompter.ray_map())``.

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

    def get_response(self, output: str, input: str | None = None) -> str:
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


def _made(budget: Budget, prompt: Prompt, target: Target) -> tuple[Made, TrimReport]:
    """Render a prompt within a budget; a payload has the report."""
    from lazyprompt.prompters.fitting import fitted  # noqa: PLC0415 - only a budget needs it

    _, report, made = fitted(budget, prompt, target)
    if isinstance(made, Payload):
        made.trim = report
    return made, report


def _show(made: object) -> None:
    import logging  # noqa: PLC0415 - slow, and few prompts are shown

    log = logging.getLogger("lazyprompt.prompts")
    if log.hasHandlers() and log.isEnabledFor(logging.INFO):
        log.info("%s", made)
    else:
        sys.stderr.write(f"{made}\n")
