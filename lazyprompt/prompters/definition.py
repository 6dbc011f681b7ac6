"""The definition of a prompter: what it is made of, how a call fills it, and which target renders it."""

from __future__ import annotations

from copy import copy, deepcopy
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self, TypeAlias, cast

from lazyprompt._base.json import JsonObject, checked_text
from lazyprompt.errors import BudgetError, SlotError, TemplateError, ToolsError, did_you_mean
from lazyprompt.messages.history import EMPTY_HISTORY, History, HistoryLike, PastLike
from lazyprompt.messages.prompt import Prompt, prompt_of
from lazyprompt.messages.tools import ToolSet, ToolsLike
from lazyprompt.prompters.list_source import may_have_lists, source_of
from lazyprompt.prompters.target_choice import target_for, target_spec
from lazyprompt.rendering.markers import DEFAULT_MARKERS, Markers, check_breakable
from lazyprompt.safety.policy import NEUTRALIZE, OFF, Policy, Safety, policy_of
from lazyprompt.templates.instruction import InstructionTemplate, name_of_text
from lazyprompt.templates.slots import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lazyprompt._base.secret import SecretText
    from lazyprompt.budget.budget import Budget, BudgetLike
    from lazyprompt.budget.report import TrimReport
    from lazyprompt.chat_templates.template import ChatTemplate
    from lazyprompt.prompters.target_choice import FormatLike, ModelLike, ModelServer, TargetSpec
    from lazyprompt.prompters.targets import Target, TextTarget
    from lazyprompt.rendering.prompt_template import PromptTemplate

# Input, history, tools and label.
HookArgs: TypeAlias = "tuple[object, HistoryLike | None, ToolsLike, str | None]"
Hook: TypeAlias = "Callable[[object, HistoryLike | None, ToolsLike, str | None], HookArgs]"


class MadeOf(NamedTuple):
    """Arguments that a prompter was made of, for writers of other forms.

    Attributes:
        instruction: The instruction.
        system: The system text that its prompts have.
        history: What every conversation begins with.
        tools: The tools that the model may always call.
        has_functions: True if functions change each call: hooks, or those that give fixed values.
        has_budget: Whether prompts are made to fit.
    """

    instruction: InstructionTemplate
    system: str
    history: History
    tools: ToolSet
    has_functions: bool
    has_budget: bool


class Origin(NamedTuple):
    """The name and version of a prompt in a file or library.

    Attributes:
        name: The name that the file gives it, or else its key in the library, or that of the file.
        version: The version in the file's name, or else in its metadata; None without one.
    """

    name: str
    version: str | None


class PromptDefinition:
    """The parts of a prompter, filled by :meth:`fill` and rendered by a :meth:`target`; ``Prompter`` adds the calls."""

    _default_safety: ClassVar[Policy] = NEUTRALIZE
    origin: Origin | None = None
    """The prompt file that the prompter was read from; None of any other."""
    secrets: tuple[SecretText, ...] = ()
    """The texts of a prompt file that are from the environment; whatever shows or logs a prompt hides them."""

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
        """Return the prompter of a view: itself, or a copy without the values that are from the environment."""
        return self

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
        """Fields that a flat prompt shows, and the text between them."""
        return self._template

    @property
    def shows(self) -> bool:
        """True if each prompt is written to the standard error as well."""
        return self._show

    @property
    def made_of(self) -> MadeOf:
        """Arguments that it was made of."""
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
        """Make the prompt as a value, before it takes any form.

        Args:
            input: As of :meth:`generate_prompt`.
            history: As of :meth:`generate_prompt`.
            tools: As of :meth:`generate_prompt`.
            label: As of :meth:`generate_prompt`.

        Returns:
            The filled prompt.

        Raises:
            SlotError: A slot has no value, or a value no slot (so with HistoryError, ToolsError).
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

    def target(
        self,
        format: FormatLike | None = None,
        model: ModelLike | None = None,
        chat_template: ChatTemplate | None = None,
        server: ModelServer | None = None,
    ) -> Target:
        """Return what renders the prompts of this prompter in a form; copies share it if it would be the same.

        Args:
            format: As of :meth:`generate_prompt`.
            model: As of :meth:`generate_prompt`.
            chat_template: As of :meth:`generate_prompt`.
            server: The server of a payload; None for one of ``model`` as the provider's profile says.

        Raises:
            FormatError: The format is unknown.
            TemplateError: The model is of no known family, or both a model and a chat template are given.
        """
        return target_for(self._spec, format, model, chat_template, server)

    def text_target(self, model: ModelLike | None = None, chat_template: ChatTemplate | None = None) -> TextTarget:
        """Return what lays the prompts of this prompter out as flat text; see :meth:`target`."""
        return cast("TextTarget", self.target(None, model, chat_template))

    def fitted(self, prompt: Prompt, target: Target) -> tuple[Prompt, TrimReport | None]:
        """Make a prompt fit the prompter's budget.

        Args:
            prompt: A prompt of :meth:`fill`.
            target: What renders it.

        Returns:
            The prompt that fits, and what went; the very prompt and None where there is no budget.

        Raises:
            BudgetError: Even what never goes does not fit.
        """
        if self._budget is None:
            return prompt, None
        from lazyprompt.prompters.fitting import fitted  # noqa: PLC0415 - only a budget needs it

        fit = fitted(self._budget, prompt, target)
        return fit.prompt, fit.report

    def pre_hook(self, hook: Hook) -> Self:
        """Call a function with the arguments of each call first; it gives back what is used in their place.

        Args:
            hook: ``hook(input, history, tools, label)`` returns the same four. It works on copies.

        Returns:
            The prompter itself.
        """
        self._hooks = (*self._hooks, hook)
        return self

    def partial(self, /, **values: object) -> Self:
        """Return a copy with values for some slots, which a call may then leave out; those of a call win.

        Args:
            **values: A value for each slot, or a function without arguments, which is called once for each prompt.

        Raises:
            SlotError: A name is that of no slot, or a value is None or cannot become text.
        """
        return self._changed(instruction=self._instruction.partial(**values))

    def with_markers(self, markers: Markers | str) -> Self:
        """A copy for a model.

        Args:
            markers: Markers, or the name of a model or family.

        Returns:
            The copy; this prompter stays as it is.

        Raises:
            TemplateError: The model is of no known family.
            SafetyError: A marker is a single character, which cannot be neutralised in untrusted text; see
                :meth:`with_safety`.
        """
        found = markers if isinstance(markers, Markers) else Markers.for_model(markers)
        if self._safety.looks:
            check_breakable(found)
        return self._changed(markers=found, chat_template=None)

    def with_chat_template(self, template: ChatTemplate) -> Self:
        """A copy whose flat text a model's own chat template lays out.

        Args:
            template: The template; what it brings, as a system text, is the model family's.

        Returns:
            The copy; this prompter stays as it is.
        """
        return self._changed(markers=template.markers, chat_template=template)

    def with_system(self, system: str | None) -> Self:
        """A copy with another system text.

        Args:
            system: The text; ``""`` is none, ``None`` leaves it to the model family or the default.

        Returns:
            The copy; this prompter stays as it is.
        """
        return self._changed(system=checked_text(system, "the system text", TemplateError))

    def with_added_system(self, text: str) -> Self:
        """A copy with words behind its system text, whichever that is.

        Args:
            text: The words; they stand in a paragraph of their own.

        Returns:
            The copy; this prompter stays as it is.
        """
        words = checked_text(text, "the system text", TemplateError)
        added = "\n\n".join(filter(None, (self._added_system, words)))
        return self._changed(added_system=added)

    def with_safety(self, safety: Safety, slots: Mapping[str, Safety] | None = None) -> Self:
        """A copy with another policy for control sequences in untrusted text, in every format.

        Without this call, they are neutralised in flat text and in payloads for servers that tokenize texts with the
        model's chat template (vLLM, Ollama, a ``base_url`` of one's own), and stay in payloads for hosted providers.

        Args:
            safety: ``neutralize`` (the default), ``raise`` or ``off``.
            slots: The same for the text of some slots, by their names; so are ``input``, ``history`` and ``tools``.

        Returns:
            The copy; this prompter stays as it is.

        Raises:
            SafetyError: There is no such policy, or a marker cannot be neutralised.
        """
        policy = policy_of(safety, slots)
        if policy.looks:
            check_breakable(self._markers)
        return self._changed(safety=policy)

    def for_hosted(self) -> Self:
        """A copy for a hosted provider, whose payloads keep control sequences unless :meth:`with_safety` was called."""
        return self if self._safety.asked else self._changed(safety=OFF)

    def with_budget(self, budget: BudgetLike | None) -> Self:
        """A copy whose prompts fit a number of tokens.

        Args:
            budget: The budget; or the most tokens of slots, by their names; ``None`` is none.

        Returns:
            The copy; this prompter stays as it is.

        Raises:
            BudgetError: The budget limits a slot that is not there.
        """
        return self._changed(budget=None if budget is None else self._checked_budget(budget))

    def __getstate__(self) -> dict[str, object]:
        """Return the fields for a copy or a pickle, without the one made on first use."""
        return {name: value for name, value in vars(self).items() if name != "_spec"}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(slots={self.slots!r})"

    def _changed(self, **fields: object) -> Self:
        """Return a copy with other fields."""
        changed = copy(self)
        for name, value in fields.items():
            setattr(changed, f"_{name}", value)
        return changed

    def _after_hooks(self, *args: *HookArgs) -> HookArgs:
        """Return the arguments of a call after the hooks."""
        for hook in self._hooks:
            result = hook(*deepcopy(args))
            if not isinstance(cast("object", result), tuple) or len(result) != len(args):
                raise TemplateError(
                    f"pre_hook {getattr(hook, '__name__', hook)!r} returned {result!r}; "
                    "it must return the four (input, history, tools, label)"
                )
            args = result
        return args

    def _past(self, history: PastLike) -> History:
        """Return the whole history: the prompter's own, and behind it what was given."""
        return self._history + History.of(history)

    def _all_tools(self, tools: ToolsLike) -> ToolSet:
        given = ToolSet.of(tools)
        if given and self._tools:
            raise ToolsError(
                f"this prompter has the tools {', '.join(self._tools.names)} since its construction, "
                f"so none may be given at the call; given were {', '.join(given.names)}"
            )
        return given or self._tools

    @cached_property
    def _spec(self) -> TargetSpec:
        """The fields that targets depend on; a copy with other fields has another one."""
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
        """Return a budget that limits no slots but the prompter's."""
        from lazyprompt.budget.budget import read_budget  # noqa: PLC0415 - only a budget needs it

        made, known = read_budget(budget), (*self._all_slots, "input")
        for slot in (*made.slots, *made.order):
            if slot not in known:
                raise BudgetError(
                    f"the budget limits the slot {slot!r}{did_you_mean(slot, known)}, which the prompter has not; it "
                    f"has {listed(known)}"
                )
        return made

    @property
    def _all_slots(self) -> tuple[str, ...]:
        """The names of all slots, those with fixed values too."""
        return self._instruction.input_form.slots
