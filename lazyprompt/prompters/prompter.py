"""The Prompter class, which defines a prompt for any target.

A prompter consists of an instruction template, a prompt template, and the developer's system text, tools and history.
A prompter stores no state between calls, so threads and models can share one.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal, overload

from lazyprompt.errors import BudgetError, FormatError
from lazyprompt.formatters.report import Payload
from lazyprompt.prompters.definition import PromptDefinition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lazyprompt.budget.budget import Budget
    from lazyprompt.budget.report import TrimReport
    from lazyprompt.chat_templates.template import ChatTemplate, ModelLike
    from lazyprompt.formatters.profile import Profile
    from lazyprompt.formatters.providers import OtherProvider
    from lazyprompt.messages.history import HistoryLike
    from lazyprompt.messages.msg import Msg
    from lazyprompt.messages.openai_form import OpenAIPrompt
    from lazyprompt.messages.prompt import Prompt, Rendered
    from lazyprompt.messages.tools import ToolsLike
    from lazyprompt.prompters.rows import Columns, OnError, RayMap, RowFault
    from lazyprompt.prompters.target_choice import FormatLike
    from lazyprompt.prompters.targets import Made, Target
    from lazyprompt.training.masks import Mask
    from lazyprompt.training.preference import PreferenceSample
    from lazyprompt.training.samples import Train, TrainingSample


class Prompter(PromptDefinition):
    """A prompter with custom instruction and prompt templates.

    Args:
        instruction_template: The template for instructions.
        prompt_template: The template for flat prompts, with fields and the text between them.
        system: The system text. ``None`` uses the model family's text or the documented default; ``""`` omits the
            system text.
        tools: The tools for every call: dicts or Python functions. If this argument is set, calls can't pass tools.
        history: The messages at the start of every conversation, in any supported format.
        show: True to print each prompt to stderr.
        budget: The token budget for each prompt, or a dict of token limits by slot name.

    Raises:
        ToolsError: A tool is invalid, or its schema cannot be generated.
        HistoryError: The history has an unsupported format.
        BudgetError: The budget limits an unknown slot.
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
    def generate_prompt(  # noqa: PLR0913 - all but the first four parameters are keyword-only
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
        """Fill the slots and render the prompt.

        Args:
            input: A dict with a value for each slot. The key ``input`` contains the user's text, unless a slot has that
                name. A string fills the only slot if that slot is named ``input``, is in the user part, or is in an
                Alpaca prompt. A string that fills no slot is the user's text.
            history: The earlier messages: any mixture of (user, assistant) pairs, OpenAI dicts and Msg.
            tools: The tools that the model may call: dicts or Python functions.
            label: The expected response, for training data.
            show: True to log the prompt to ``lazyprompt.prompts`` if that logger is enabled for INFO, or else to print
                the prompt to stderr.
            return_dict: True to return the same dict as ``format="openai"``.
            format: The output format, which is ``flat`` (the default) for a string or ``openai`` for
                ``dict(messages, tools)``. To get a provider's payload, pass the provider's name or a Profile.
            model: The model, as a name, Markers or ChatTemplate; its markers and system text replace the prompter's
                own. For a provider other than ``openai``, the provider's name for the model.
            chat_template: The model's chat template, which is used instead of markers to render flat text.

        Returns:
            The flat text, or a dict that shares no mutable object with the arguments. If a payload lost content, its
            ``report.raise_for_losses()`` raises an error.

        Raises:
            SlotError: A slot has no value, or a value matches no slot.
            HistoryError: The history has an unsupported format, or the prompt template has no field for history.
            ToolsError: A tool is invalid, or the prompter already has tools.
            FormatError: The format is unknown, or doesn't support the content of a message.
            SafetyError: A value contains a control sequence, and the policy is ``raise``.
            TemplateError: The model matches no known family.
        """
        if return_dict:
            if format not in (None, "openai"):
                given = repr(format) if isinstance(format, str) else f"a value of type {type(format).__name__}"
                raise FormatError(
                    f"return_dict=True requires format='openai', but format is {given}; remove one of them"
                )
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
        """Render a prompt within the budget, and return the prompt with the budget's report.

        Args:
            input: See :meth:`generate_prompt`.
            history: See :meth:`generate_prompt`.
            tools: See :meth:`generate_prompt`.
            label: See :meth:`generate_prompt`.
            format: See :meth:`generate_prompt`.
            model: See :meth:`generate_prompt`.
            chat_template: See :meth:`generate_prompt`.

        Returns:
            The prompt and the report. The report lists the history's messages, followed by the slot values.

        Raises:
            BudgetError: The prompter has no budget, or the parts that are never dropped exceed the budget.
            LazyPromptError: See :meth:`generate_prompt`.
        """
        if self._budget is None:
            raise BudgetError("this prompter has no budget; set one with budget= or with_budget()")
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
        """Return the flat prompt with its segments, so that ``render(x).text == generate_prompt(x)``.

        Args:
            input: See :meth:`generate_prompt`.
            history: See :meth:`generate_prompt`.
            tools: See :meth:`generate_prompt`.
            label: See :meth:`generate_prompt`.
            model: See :meth:`generate_prompt`.
            chat_template: See :meth:`generate_prompt`.

        Returns:
            The flat prompt.

        Raises:
            LazyPromptError: See :meth:`generate_prompt`.
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
        """Return a fine-tuning sample: the prompt from :meth:`generate_prompt`, the response and its end marker.

        Args:
            input: See :meth:`generate_prompt`.
            label: The response to train on, as text or as a message with tool calls. By default, the response is the
                assistant message at the end of the history.
            history: The earlier messages.
            tools: The tools that the model may call.
            train: ``last`` or ``all`` to train on the last response or on all responses, or a function
                ``train(index, message)`` that returns True for each response to include.
            mask: Text inside the responses to exclude from training; see :meth:`TrainingSample.with_mask`.
            model: The model whose markers are used in the flat text.
            chat_template: See :meth:`generate_prompt`.

        Returns:
            The sample. A budget applies only to the prompt, as at inference; the response isn't counted.

        Raises:
            SlotError: No response was passed, and the history doesn't end with an assistant message.
            LazyPromptError: Rendering would change a turn to train on. For other causes of this error, see
                :meth:`generate_prompt`.
        """
        from lazyprompt.prompters.samples import sample_of  # noqa: PLC0415 - prompts need none
        from lazyprompt.training.answers import answer_in, split_answer, take_answer  # noqa: PLC0415 - as above

        target = self.text_target(model, chat_template)
        openai = self.target("openai", model, chat_template)
        if label is None or isinstance(label, str):
            past, answer = (history, None) if label is not None else split_answer(history)
            prompt, answer = take_answer(self.fill(input, past, tools, label), answer)
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
        """Return a preference pair for DPO, KTO and reward models: a prompt with two responses.

        Args:
            input: See :meth:`generate_prompt`.
            chosen: The preferred response: text, or a message with tool calls.
            rejected: The rejected response.
            history: The earlier messages.
            tools: The tools that the model may call.
            mask: See :meth:`training_sample`.
            model: The model whose markers are used in the flat text.
            chat_template: See :meth:`generate_prompt`.

        Returns:
            The pair of samples, each created as in :meth:`training_sample`.

        Raises:
            FormatError: Both responses are equal, or their prompts differ.
            LazyPromptError: See :meth:`training_sample`.
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
        format: FormatLike | None = ...,
        model: ModelLike | None = ...,
        columns: Columns | None = ...,
        params: Mapping[str, object] | None = ...,
        train: Literal["last", "all"] = ...,
        on_error: Literal["raise"] = ...,
    ) -> Iterator[dict[str, Any]]: ...
    @overload
    def render_batch(
        self,
        rows: object,
        *,
        format: FormatLike | None = ...,
        model: ModelLike | None = ...,
        columns: Columns | None = ...,
        params: Mapping[str, object] | None = ...,
        train: Literal["last", "all"] = ...,
        on_error: OnError = ...,
    ) -> Iterator[dict[str, Any] | RowFault]: ...
    def render_batch(
        self,
        rows: object,
        *,
        format: FormatLike | None = None,
        model: ModelLike | None = None,
        columns: Columns | None = None,
        params: Mapping[str, object] | None = None,
        train: Literal["last", "all"] = "last",
        on_error: OnError = "raise",
    ) -> Iterator[dict[str, Any] | RowFault]:
        """Yield a prompt for each row of a dataset; see :func:`lazyprompt.batch.render.render_batch`.

        Args:
            rows: The rows: an iterable of mappings, a mapping of columns, an Arrow table or a DataFrame.
            format: The output format, which is ``flat`` (the default), a provider's name, a Profile or a file format
                such as ``openai-batch``; see :data:`lazyprompt.batch.forms.FORMS`.
            model: The model's name for formats that write requests; for other formats, see :meth:`generate_prompt`.
            columns: The roles of columns that don't have the default names.
            params: Additional fields for each request, such as ``{"max_tokens": 1024}``.
            train: The responses to train on, ``last`` or ``all``; only training formats use it.
            on_error: ``raise`` to stop at the first invalid row, or ``return`` to yield a :class:`RowFault` in its
                place.

        Returns:
            A dict for each row, with the fields of its output line. Each dict shares no mutable object with its row.

        Raises:
            BatchError: The rows have an unsupported format, or the settings conflict.
            LazyPromptError: A row can't be rendered; see :meth:`generate_prompt`. The error message begins with the row
                number.
        """
        from lazyprompt.batch.render import render_batch  # noqa: PLC0415  # door: batch is a higher layer

        return render_batch(
            self, rows, format=format, model=model, columns=columns, params=params, train=train, on_error=on_error
        )

    def ray_map(
        self,
        *,
        format: FormatLike | None = None,
        model: ModelLike | None = None,
        columns: Columns | None = None,
        params: Mapping[str, object] | None = None,
    ) -> RayMap:
        """Return arguments for Ray Data's ``map_batches``, as in ``data.map_batches(**prompter.ray_map())``.

        ``map_batches`` adds the columns ``line`` and ``error`` to the dataset; see :mod:`lazyprompt.batch.adapters`.

        Args:
            format: See :meth:`render_batch`.
            model: See :meth:`render_batch`.
            columns: See :meth:`render_batch`.
            params: See :meth:`render_batch`.

        Raises:
            BatchError: The settings conflict.
            FormatError: The format is unknown.
        """
        from lazyprompt.batch.adapters import ray_map  # noqa: PLC0415  # door: as render_batch
        from lazyprompt.batch.render import RowPlan  # noqa: PLC0415  # door: as render_batch

        return ray_map(RowPlan.of(self, format, model=model, columns=columns, params=params))

    def get_response(self, output: str, input: str | None = None) -> str:
        """Extract the response from a local model's output.

        Args:
            output: The engine's output: the response, or the prompt followed by the response.
            input: The prompt to remove from the start of the output; by default, the prompt template is used to find
                the end of the prompt.

        Returns:
            The response, without the prompt and the end marker.
        """
        found = self._template.answer_in(output, self._markers) if input is None else output.removeprefix(input)
        ends = [end for end in (self._markers.eoa.strip(), *self._markers.stop) if end]
        cuts = [at for end in ends if (at := found.find(end)) >= 0]
        return found[: min(cuts)] if cuts else found


def _made(budget: Budget, prompt: Prompt, target: Target) -> tuple[Made, TrimReport]:
    """Render a prompt within a budget; if the result is a payload, attach the report to it."""
    from lazyprompt.prompters.fitting import fitted  # noqa: PLC0415 - only a budget needs it

    _, report, made = fitted(budget, prompt, target)
    if isinstance(made, Payload):
        made.trim = report
    return made, report


def _show(made: object) -> None:
    import logging  # noqa: PLC0415 - slow and rarely needed

    log = logging.getLogger("lazyprompt.prompts")
    if log.hasHandlers() and log.isEnabledFor(logging.INFO):
        log.info("%s", made)
    else:
        sys.stderr.write(f"{made}\n")
