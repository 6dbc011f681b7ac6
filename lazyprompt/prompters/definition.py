"""The base class of prompters, which stores a prompter's parts, fills its slots and chooses its target."""

from __future__ import annotations

from copy import copy, deepcopy
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, Self, TypeAlias, cast, overload

from lazyprompt._base.json import JsonObject, checked_text
from lazyprompt.errors import BudgetError, SlotError, TemplateError, ToolsError, did_you_mean
from lazyprompt.messages.history import EMPTY_HISTORY, History, HistoryLike, PastLike
from lazyprompt.messages.prompt import Prompt, prompt_of
from lazyprompt.messages.tools import ToolSet, ToolsLike
from lazyprompt.prompters.list_source import may_have_lists, source_of
from lazyprompt.prompters.target_choice import chat_template_of, target_for, target_spec
from lazyprompt.rendering.markers import DEFAULT_MARKERS, Markers, check_breakable
from lazyprompt.safety.policy import NEUTRALIZE, OFF, Policy, Safety, policy_of
from lazyprompt.templates.instruction import InstructionTemplate, name_of_text
from lazyprompt.templates.slots import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lazyprompt._base.secret import SecretText
    from lazyprompt.budget.budget import Budget, BudgetLike
    from lazyprompt.budget.report import TrimReport
    from lazyprompt.chat_templates.template import ChatTemplate, ModelLike
    from lazyprompt.prompters.payload_target import PayloadTarget
    from lazyprompt.prompters.target_choice import FormatLike, ModelServer, TargetSpec
    from lazyprompt.prompters.targets import Target, TextTarget
    from lazyprompt.rendering.prompt_template import PromptTemplate

HookArgs: TypeAlias = "tuple[object, HistoryLike | None, ToolsLike, str | None]"
Hook: TypeAlias = "Callable[[object, HistoryLike | None, ToolsLike, str | None], HookArgs]"


class MadeOf(NamedTuple):
    """The parts of a prompter, for conversion to other formats.

    Attributes:
        instruction: The instruction template.
        system: The system text of all prompts.
        history: The messages at the start of every conversation.
        tools: The tools for every call.
        has_functions: True if each call runs functions, such as hooks or functions that return slot values.
        has_budget: True if the prompter has a budget.
    """

    instruction: InstructionTemplate
    system: str
    history: History
    tools: ToolSet
    has_functions: bool
    has_budget: bool


class PromptOrigin(NamedTuple):
    """The name and version of a prompt from a file or library.

    Attributes:
        name: The name in the file, or else the prompt's library key or file name.
        version: The version in the file name, or else in the metadata; None if neither contains a version.
    """

    name: str
    version: str | None


class PromptDefinition:
    """The base class of ``Prompter``: :meth:`fill` fills a prompt, and :meth:`target` returns its renderer."""

    _default_safety: ClassVar[Policy] = NEUTRALIZE
    origin: PromptOrigin | None = None
    """The prompt file that the prompter was loaded from; None if it was not loaded from a file."""
    secrets: tuple[SecretText, ...] = ()
    """Texts that a prompt file reads from environment variables; views and logs hide these texts."""

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
        self._added_system = ""
        self._tools = ToolSet.of(tools)
        self._history = History.of(history)
        self._show = show
        self._hooks: tuple[Hook, ...] = ()
        self._safety: Policy = self._default_safety
        self._budget = None if budget is None else self._checked_budget(budget)
        self._markers = DEFAULT_MARKERS
        self._chat_template: ChatTemplate | None = None

    def for_display(self) -> Self:
        """Return a prompter that is safe to display: itself, or a copy without values from environment variables."""
        return self

    @property
    def slots(self) -> tuple[str, ...]:
        """The names of the instruction's slots that the ``input`` argument fills."""
        return self._instruction.slots

    def name_of_text(self, given: Iterable[str] = ()) -> str:
        """Return the name of the slot that a plain string fills, or ``input`` if the string is the user's text.

        Args:
            given: The names of the slots that already have a value.

        Raises:
            SlotError: The prompt accepts only slot values, and the string could fill several slots or none.
        """
        form = self._instruction.input_form
        return name_of_text(form, {*given, *dict(form.fixed)})

    @property
    def response_format(self) -> JsonObject | None:
        """The JSON Schema for responses, or None."""
        return None

    @property
    def prompt_template(self) -> PromptTemplate:
        """The template for flat prompts, with fields and the text between them."""
        return self._template

    @property
    def shows(self) -> bool:
        """True if each prompt is also printed to stderr."""
        return self._show

    @property
    def made_of(self) -> MadeOf:
        """The components of the prompter, such as its instruction, history and tools."""
        system = self._spec.system_for(self._markers).of(Prompt(self._system))
        has_functions = bool(self._hooks) or self._instruction.has_functions
        return MadeOf(self._instruction, system, self._history, self._tools, has_functions, self._budget is not None)

    def fill(
        self,
        input: object = None,
        history: HistoryLike | None = None,
        tools: ToolsLike = None,
        label: str | None = None,
    ) -> Prompt:
        """Fill the slots and return the prompt without rendering it.

        Args:
            input: See :meth:`generate_prompt`.
            history: See :meth:`generate_prompt`.
            tools: See :meth:`generate_prompt`.
            label: See :meth:`generate_prompt`.

        Returns:
            The filled prompt.

        Raises:
            SlotError: A slot has no value, or a value matches no slot.
            LazyPromptError: See :meth:`generate_prompt`.
        """
        if self._hooks:
            input, history, tools, label = self._after_hooks(input, history, tools, label)
        if label is not None:
            checked_text(label, "the label", SlotError)
        instruction = self._instruction
        past = EMPTY_HISTORY if history is None and self._history is EMPTY_HISTORY else self._past(history)
        all_tools = self._tools if tools is None else self._all_tools(tools)
        asked = None if past is EMPTY_HISTORY else past.question_before_results
        source = None
        if self._budget is not None and may_have_lists(input, instruction.input_form.fixed):
            input = instruction.by_name(input, asked)
            source = source_of(instruction, input, asked)
        system, user, text, (before, after) = instruction.parts(input, asked)
        if text is None and instruction.always_user_turn and (past is EMPTY_HISTORY or not past.awaits_answer):
            text = ""
        opening, closing = len(before) + len(self._history.messages), len(after)
        if before or after:
            past = History((*before, *past.messages, *after))
        return prompt_of(self._system, system, user, text, past, all_tools, label, opening, closing, source=source)

    @overload
    def target(
        self,
        format: Literal["flat"] | None = ...,
        model: ModelLike | None = ...,
        chat_template: ChatTemplate | None = ...,
        server: ModelServer | None = ...,
    ) -> TextTarget: ...
    @overload
    def target(
        self,
        format: Literal["openai"],
        model: ModelLike | None = ...,
        chat_template: ChatTemplate | None = ...,
        server: ModelServer | None = ...,
    ) -> PayloadTarget: ...
    @overload
    def target(
        self,
        format: FormatLike | None,
        model: ModelLike | None = ...,
        chat_template: ChatTemplate | None = ...,
        server: ModelServer | None = ...,
    ) -> Target: ...
    def target(
        self,
        format: FormatLike | None = None,
        model: ModelLike | None = None,
        chat_template: ChatTemplate | None = None,
        server: ModelServer | None = None,
    ) -> Target:
        """Return a renderer for this prompter's prompts in a format; equal copies of a prompter share renderers.

        Args:
            format: See :meth:`generate_prompt`.
            model: See :meth:`generate_prompt`.
            chat_template: See :meth:`generate_prompt`.
            server: The server that receives a payload. By default, the provider's profile determines whether the server
                tokenizes messages.

        Raises:
            FormatError: The format is unknown.
            TemplateError: The model matches no known family, or both a model and a chat template were passed.
        """
        return target_for(self._spec, format, model, chat_template, server)

    def text_target(self, model: ModelLike | None = None, chat_template: ChatTemplate | None = None) -> TextTarget:
        """Return a renderer for flat text; see :meth:`target`."""
        return self.target(None, model, chat_template)

    def fitted(self, prompt: Prompt, target: Target) -> tuple[Prompt, TrimReport | None]:
        """Fit a prompt to the prompter's budget.

        Args:
            prompt: A prompt returned by :meth:`fill`.
            target: The renderer for the prompt.

        Returns:
            The fitted prompt and the budget's report; without a budget, the unchanged prompt and None.

        Raises:
            BudgetError: The parts that are never dropped exceed the budget.
        """
        if self._budget is None:
            return prompt, None
        from lazyprompt.prompters.fitting import fitted  # noqa: PLC0415 - only a budget needs it

        fit = fitted(self._budget, prompt, target)
        return fit.prompt, fit.report

    def pre_hook(self, hook: Hook) -> Self:
        """Add a function that can replace the arguments of each call to the prompter.

        Args:
            hook: A function ``hook(input, history, tools, label)`` that receives copies of the arguments and returns a
                tuple of the same four values.

        Returns:
            The prompter itself.
        """
        self._hooks = (*self._hooks, hook)
        return self

    def partial(self, /, **values: object) -> Self:
        """Return a copy with default values for some slots; values passed to a call override the defaults.

        Args:
            **values: The default value for each slot. If a value is a function without arguments, it is called once for
                each prompt.

        Raises:
            SlotError: A name matches no slot, or a value is None or cannot be converted to text.
        """
        return self._changed(instruction=self._instruction.partial(**values))

    def with_markers(self, markers: Markers | str) -> Self:
        """Return a copy that renders flat text with a model's markers.

        Args:
            markers: The markers, or the name of a model or model family.

        Returns:
            The copy.

        Raises:
            TemplateError: The model matches no known family.
            SafetyError: A marker is a single character, so it cannot be neutralised in untrusted text; see
                :meth:`with_safety`.
        """
        found = Markers.for_model(markers)
        if self._safety.looks:
            check_breakable(found)
        return self._changed(markers=found, chat_template=None)

    def with_chat_template(self, template: ChatTemplate) -> Self:
        """Return a copy that renders flat text with a model's own chat template.

        Args:
            template: The chat template. Without a system text, prompts use the model family's system text.

        Returns:
            The copy.

        Raises:
            TemplateError: The argument is not a chat template.
        """
        return self._changed(markers=chat_template_of(template).markers, chat_template=template)

    def with_system(self, system: str | None) -> Self:
        """Return a copy with a different system text.

        Args:
            system: The new text. ``None`` uses the model family's text or the documented default; ``""`` omits the
                system text.

        Returns:
            The copy.
        """
        return self._changed(system=checked_text(system, "the system text", TemplateError))

    def with_added_system(self, text: str) -> Self:
        """Return a copy with a paragraph appended to the system text.

        Args:
            text: The paragraph to append to the prompter's system text, or to the model family's default system text.

        Returns:
            The copy.
        """
        words = checked_text(text, "the system text", TemplateError)
        added = "\n\n".join(filter(None, (self._added_system, words)))
        return self._changed(added_system=added)

    def with_safety(self, safety: Safety, slots: Mapping[str, Safety] | None = None) -> Self:
        """Return a copy with a different policy for control sequences in untrusted text, in every format.

        By default, control sequences are neutralised in flat text, and in payloads for servers that apply the model's
        chat template (vLLM, Ollama, your own ``base_url``). Payloads for hosted providers keep control sequences.

        Args:
            safety: The policy, which is ``neutralize`` (the default), ``raise`` or ``off``.
            slots: Policies for individual slots, by slot name; each replaces ``safety`` for the text in its slot. The
                keys ``input``, ``history`` and ``tools`` are also accepted.

        Returns:
            The copy.

        Raises:
            SafetyError: The policy is unknown, or a marker cannot be neutralised.
        """
        policy = policy_of(safety, slots)
        if policy.looks:
            check_breakable(self._markers)
        return self._changed(safety=policy)

    def for_hosted(self) -> Self:
        """Return a copy that keeps control sequences, as for hosted providers, unless a safety policy was set."""
        return self if self._safety.asked else self._changed(safety=OFF)

    def with_budget(self, budget: BudgetLike | None) -> Self:
        """Return a copy with a different budget.

        Args:
            budget: The token budget, or a dict of token limits by slot name; ``None`` to remove the budget.

        Returns:
            The copy.

        Raises:
            BudgetError: The budget limits an unknown slot.
        """
        return self._changed(budget=None if budget is None else self._checked_budget(budget))

    def __getstate__(self) -> dict[str, object]:
        """Return the attributes for a copy or pickle, without the cached ``_spec``."""
        return {name: value for name, value in vars(self).items() if name != "_spec"}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(slots={self.slots!r})"

    def _changed(self, **fields: object) -> Self:
        changed = copy(self)
        for name, value in fields.items():
            setattr(changed, f"_{name}", value)
        return changed

    def _after_hooks(self, *args: *HookArgs) -> HookArgs:
        """Return the arguments of a call after passing them through all hooks."""
        for hook in self._hooks:
            result = hook(*deepcopy(args))
            if not isinstance(cast("object", result), tuple) or len(result) != len(args):
                raise TemplateError(
                    f"pre_hook {getattr(hook, '__name__', hook)!r} returned {result!r}; "
                    "it must return the tuple (input, history, tools, label)"
                )
            args = result
        return args

    def _past(self, history: PastLike) -> History:
        """Return the prompter's history, followed by the history passed to a call."""
        return self._history + History.of(history)

    def _all_tools(self, tools: ToolsLike) -> ToolSet:
        given = ToolSet.of(tools)
        if given and self._tools:
            raise ToolsError(
                f"this prompter was created with the tools {', '.join(self._tools.names)}, "
                f"so tools can't be passed per call; got {', '.join(given.names)}"
            )
        return given or self._tools

    @cached_property
    def _spec(self) -> TargetSpec:
        """The parts of the prompter that its targets depend on."""
        return target_spec(
            self._template,
            self._markers,
            self._chat_template,
            self._added_system,
            self._instruction,
            self._tools,
            self._safety,
        )

    def _checked_budget(self, budget: BudgetLike) -> Budget:
        """Return a budget after checking that the prompter has every slot that the budget limits."""
        from lazyprompt.budget.budget import read_budget  # noqa: PLC0415 - only a budget needs it

        made, known = read_budget(budget), (*self._all_slots, "input")
        for slot in (*made.slots, *made.order):
            if slot not in known:
                raise BudgetError(
                    f"the budget limits the slot {slot!r}{did_you_mean(slot, known)}, but the prompter has no such "
                    f"slot; expected one of {listed(known)}"
                )
        return made

    @property
    def _all_slots(self) -> tuple[str, ...]:
        """The names of all slots, including those with fixed values."""
        return self._instruction.input_form.slots
