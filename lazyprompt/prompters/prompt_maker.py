"""How a prompt is made: what a prompter holds, laid out as flat text, OpenAI's form or a provider's payload."""

from __future__ import annotations

from copy import copy, deepcopy
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeAlias, cast

from lazyprompt._base.json import checked_text
from lazyprompt.errors import FormatError, SlotError, TemplateError, ToolsError
from lazyprompt.messages.history import EMPTY_HISTORY, History
from lazyprompt.messages.prompt import MARKERS, Rendered, Text
from lazyprompt.messages.tools import ToolSet
from lazyprompt.rendering.layout import Fields
from lazyprompt.rendering.markers import DEFAULT_MARKERS, Markers
from lazyprompt.rendering.prompt_template import PromptTemplate, TextWriter, Writer, resolved_system
from lazyprompt.safety.policy import NEUTRALIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lazyprompt._base.json import JsonObject
    from lazyprompt.budget.budget import Budget
    from lazyprompt.budget.report import TrimReport
    from lazyprompt.chat_templates.template import ChatTemplate
    from lazyprompt.formatters.report import Payload
    from lazyprompt.messages.history import HistoryLike, PastLike
    from lazyprompt.messages.msg import Msg
    from lazyprompt.messages.openai_form import OpenAIPrompt
    from lazyprompt.messages.tools import ToolsLike
    from lazyprompt.prompters.budgeted import BudgetLike, Call
    from lazyprompt.rendering.layout import Laid
    from lazyprompt.safety.policy import Policy
    from lazyprompt.templates.instruction import Filled, InstructionTemplate
    from lazyprompt.training.samples import Train, TrainingSample

# Input, history, tools and label.
CallArgs: TypeAlias = "tuple[object, PastLike, ToolsLike, str | None]"
HookArgs: TypeAlias = "tuple[object, HistoryLike | None, ToolsLike, str | None]"
Hook: TypeAlias = "Callable[[object, HistoryLike | None, ToolsLike, str | None], HookArgs]"


# What a prompter writes itself: flat text and OpenAI's form.
OWN_FORMS = (None, "flat", "openai")
# A prompter remembers the copies it made for so many model names.
_MODELS_KEPT = 32


class MadeOf(NamedTuple):
    """What a prompter was made of, for whoever writes it in another form.

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


class PromptMaker:
    """What a prompter is made of, and what it makes of a call. :class:`Prompter` says what each field means."""

    _default_safety: ClassVar[Policy] = NEUTRALIZE

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
        # Whether the arguments of a call are made into others by the prompter itself: see _prepared.
        self._expands = False
        self._safety: Policy = self._default_safety
        self._budget = None if budget is None else self._checked_budget(budget)
        self._chat_template: ChatTemplate | None = None
        self._added_system = ""
        self._set_markers(DEFAULT_MARKERS)

    def _changed(self, markers: Markers, **fields: object) -> Self:
        """A copy with other markers and fields, that has made nothing yet."""
        changed = copy(self)
        for name, value in fields.items():
            setattr(changed, f"_{name}", value)
        PromptMaker._set_markers(changed, markers)
        return changed

    def _set_markers(self, markers: Markers) -> None:
        self._markers = markers
        own = resolved_system(self._system, markers)
        self._system_text = (
            f"{own}\n\n{self._added_system}" if own and self._added_system else own or self._added_system
        )
        self._writer: TextWriter | None = None
        self._by_model: dict[str | ChatTemplate, Self] = {}

    def _for_model(self, model: str | None, chat_template: ChatTemplate | None = None) -> Self:
        """The copy for a model or a chat template; the last few are kept."""
        if model is not None and chat_template is not None:
            raise TemplateError("model= and chat_template= both say how flat text is laid out; give one of them")
        asked = chat_template if model is None else model
        if asked is None:
            return self
        made = self._by_model.get(asked)
        if made is None:
            markers = Markers.for_model(asked) if isinstance(asked, str) else asked.markers
            made = self._changed(markers, chat_template=chat_template)
            if len(self._by_model) >= _MODELS_KEPT:
                self._by_model.clear()
            self._by_model[asked] = made
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
        if self._instruction.has_functions:
            asked = self._past(args[1]).question_before_results
            args = (self._instruction.by_name(args[0], asked), *args[1:])
        return args

    @property
    def _has_functions(self) -> bool:
        """True if functions change a call: hooks, or those that give fixed values."""
        return bool(self._hooks) or self._instruction.has_functions

    @property
    def made_of(self) -> MadeOf:
        """What it was made of."""
        has_budget = self._budget is not None
        return MadeOf(self._instruction, self._system_text, self._history, self._tools, self._has_functions, has_budget)

    def after_hooks(
        self,
        input: object,  # noqa: A002 - the name of the documents
        history: HistoryLike | None,
        tools: ToolsLike,
        label: str | None = None,
    ) -> tuple[Self, object, HistoryLike | None, ToolsLike, str | None]:
        """A call as its hooks leave it, for whoever makes several things of one call: a hook is to run once.

        Args:
            input: As of a call.
            history: What was said before.
            tools: What the model may call.
            label: The answer, in training data.

        Returns:
            A copy without hooks (this prompter itself if it has none), and what it is to be given.
        """
        if not self._expands and not self._has_functions:
            return self, input, history, tools, label
        return self._changed(self._markers, hooks=(), expands=False), *self._prepared(input, history, tools, label)

    def said(self, input: object, history: PastLike) -> str | None:  # noqa: A002 - the name of the documents
        """What the user says with a call: the user's part of the instruction, and the input.

        Args:
            input: As of a call; hooks do not see it.
            history: What was said before.

        Returns:
            The text; None where nothing is said and the history waits for an answer.
        """
        _, user, text, _ = self._read(input, history)
        return "".join(user) + (text or "") or None

    def _within(
        self, budget: Budget, form: str | None, model: str | None, args: CallArgs
    ) -> tuple[str | OpenAIPrompt | Payload, TrimReport]:
        """The prompt in a form, within a budget, and its report."""
        (values, history), report = self._fitted(budget, form, model, args)
        _, _, tools, label = args
        made = self._made(form, model, (values, history, tools, label))
        return made if isinstance(made, str) else _with_trim(made, report), report

    def _made(self, form: str | None, model: str | None, args: CallArgs) -> str | OpenAIPrompt | Payload:
        """The prompt in a form."""
        if form == "openai":
            return self._openai(*args)
        if form in OWN_FORMS:
            given, history, tools, label = args
            fields = self._fields(given, history, tools)
            return self._ready(fields).text(fields, label)
        return self._payload(str(form), model, *args)

    def _fitted(self, budget: Budget, form: str | None, model: str | None, args: CallArgs) -> tuple[Call, TrimReport]:
        """The values and the history of a prompt that fits."""
        from lazyprompt.prompters.budgeted import Call, Costs, cost_of, fitted_call, slots_of  # noqa: PLC0415 - only a budget needs it

        given, history, tools, label = args

        def whole(call: Call) -> int:
            return cost_of(budget, form, self._made(form, model, (call.values, call.history, tools, label)))

        def slots(call: Call) -> dict[str, int]:
            if form in (None, "flat"):
                laid = self._lay(*call, tools, label)
                found = Rendered(laid.parts, laid.slots).tokens(budget)
                return {slot: tokens for slot, tokens in found.items() if slot != MARKERS}
            filled, past = self._filled(*call)
            texts = (Text.trusted(self._system_text, "system"), filled.system_text, filled.user_text)
            own = self._tools if tools is None else self._all_tools(tools)
            return slots_of(budget, texts, {"input": filled.input, "label": label}, past, own)

        past = History.of(history)
        values = self._instruction.by_name(given, self._past(past).question_before_results)
        waits = "input" not in values and past.waits_for_answer
        return fitted_call(budget, Call(values, past), Costs(whole, slots), waits=waits)

    def _checked_budget(self, budget: BudgetLike) -> Budget:
        """A budget whose slots are there."""
        from lazyprompt.prompters.budgeted import budget_for  # noqa: PLC0415 - only a budget needs it

        return budget_for(budget, self._instruction.input_form.slots)

    def _sample(self, call: HookArgs, train: Train) -> TrainingSample:
        """The training sample of a call after the hooks."""
        from lazyprompt.messages.openai_form import to_openai  # noqa: PLC0415 - prompts need none of these
        from lazyprompt.rendering.layout import Said  # noqa: PLC0415
        from lazyprompt.rendering.turns import answers_in  # noqa: PLC0415
        from lazyprompt.training.samples import TrainingSample, trained_messages  # noqa: PLC0415

        given, history, tools, label = call
        past, answer = self._answered(given, History.of(history), label)
        if self._budget is not None:
            (given, past), _ = self._fitted(self._budget, None, None, (given, past, tools, None))
        form = self._openai(given, past, tools, None)
        messages = [*form["messages"], *to_openai(answer)]
        trained = trained_messages(messages, train)
        answers = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
        for index, turn in zip(answers, (*answers_in(self._past(past)), answer), strict=True):
            if trained[index] and self._chat_template is None:
                _refuse_thoughts(turn, index)
        wanted = [trained[index] for index in answers]
        laid = self._lay(given, past, tools, None, (answer, wanted))
        return TrainingSample(
            tuple(laid.parts),
            tuple(map(str, laid.slots)),
            tuple(isinstance(slot, Said) for slot in laid.slots),
            tuple(messages),
            trained,
            tuple(form.get("tools", ())),
        )

    def _answered(self, given: object, past: History, label: str | None) -> tuple[History, Msg]:
        """The history before the answer, and the answer: the label, or else the turn that the history ends with."""
        from lazyprompt.messages.msg import Msg  # noqa: PLC0415 - prompts of pairs need none

        if label is not None:
            return past, Msg("assistant", str.__str__(label), "assistant")
        if past and past.messages[-1].role == "assistant" and not past.waits_for_answer:
            before = History(messages=past.messages[:-1])
            _, user, text, _ = self._read(given, before)
            if text is None and not any(user):
                return before, past.messages[-1]
        raise SlotError(
            "a training sample needs an answer: give label=, or a history that ends with the assistant's turn, "
            "and nothing that is said behind it"
        )

    def _lay(
        self,
        given: object,
        history: PastLike,
        tools: ToolsLike,
        label: str | None,
        sample: tuple[Msg, Sequence[bool]] | None = None,
    ) -> Laid:
        """The parts of the flat prompt; or of a sample: with the answer, and which answers are trained."""
        fields = self._fields(given, history, tools)
        writer = self._ready(fields)
        return writer.write(fields, label) if sample is None else writer.write_sample(fields, *sample)

    def _read(self, given: object, history: PastLike) -> tuple[Sequence[str], Sequence[str], str | None, History]:
        """Return the parts of the instruction, the user's text, and the history."""
        past = self._past(history)
        asked = None if past is EMPTY_HISTORY else past.question_before_results
        return *self._instruction.parts(given, asked), past

    def _filled(self, given: object, history: PastLike) -> tuple[Filled, History]:
        """Return the instruction with its values, and the history."""
        system, user, text, past = self._read(given, history)
        return self._instruction.filled(system, user, text), past

    def _fields(self, given: object, history: PastLike, tools: ToolsLike) -> Fields:
        """What a flat prompt shows."""
        system, user, text, past = self._read(given, history)
        all_tools = self._tools if tools is None else self._all_tools(tools)
        slots = self._instruction.origins(system, user)
        return Fields(self._system_text, system, slots[0], user, slots[1], self._now(text, past), past, all_tools)

    def _ready(self, fields: Fields) -> TextWriter:
        """What lays the fields of any prompt out: made on first use; two threads that come at once make the same."""
        writer = self._writer = self._writer or self._new_writer(fields)
        return writer

    def _new_writer(self, fields: Fields) -> TextWriter:
        if self._chat_template is not None:
            from lazyprompt.chat_templates.writer import ChatTemplateWriter  # noqa: PLC0415 - only templates need Jinja

            return ChatTemplateWriter(self._chat_template, self._safety)
        constant = self._instruction.constant | {"system"}
        if self._tools:
            constant |= {"tools"}
        writer = Writer(self._template, self._markers, self._instruction.literals, self._safety)
        # Tools of this very call are none of the prompter's own.
        return writer.keep(fields._replace(tools=self._tools), constant)

    def _openai(self, given: object, history: PastLike, tools: ToolsLike, label: str | None) -> OpenAIPrompt:
        """The OpenAI form; every list and dict in it is new."""
        system_parts, user_parts, text, past = self._read(given, history)
        messages: list[JsonObject] = []
        instruction = "".join(system_parts)
        system = self._system_text
        if system or instruction:
            content = f"{system}\n{instruction}" if system and instruction else system or instruction
            messages.append({"role": "system", "content": content})
        if past is not EMPTY_HISTORY:
            messages += past.to_openai()
        said = "".join(user_parts)
        if text:
            said += text
        if said or self._instruction.keeps_empty_turn:
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
        history: PastLike,
        tools: ToolsLike,
        label: str | None,
    ) -> Payload:
        """The payload of a provider."""
        from lazyprompt.formatters.prompted import prompted  # noqa: PLC0415 - only such a form needs it

        system_parts, user_parts, text, past = self._read(given, history)
        said = "".join(user_parts) + (text or "")
        return prompted(
            provider,
            model,
            (self._system_text, "".join(system_parts)),
            past.messages if past.has_messages else past.to_openai(),
            said or self._now(text, past),
            self._tools if tools is None else self._all_tools(tools),
            label,
        )

    def _now(self, text: str | None, past: History) -> str | None:
        """Return the user's text; ``""`` if nothing is said, the user's section is shown, and it is the user's turn."""
        return said_now(text, past) if self._instruction.always_user_turn else text

    def _past(self, history: PastLike) -> History:
        if history is None and self._history is EMPTY_HISTORY:
            return EMPTY_HISTORY
        return (self._history + History.of(history)).without_empty_questions()

    def _all_tools(self, tools: ToolsLike) -> ToolSet:
        given = ToolSet.of(tools)
        if given and self._tools:
            raise ToolsError(
                f"this prompter has the tools {', '.join(self._tools.names)} since its construction, "
                f"so none may be given at the call; given were {', '.join(given.names)}"
            )
        return given or self._tools


def said_now(text: str | None, past: History) -> str | None:
    """What the user says now; nothing at all where nothing was given and the history waits for the assistant."""
    return "" if text is None and not past.waits_for_answer else text


def _with_trim(made: OpenAIPrompt | Payload, trim: TrimReport) -> Payload:
    """A payload that knows what a budget let go."""
    from lazyprompt.formatters.report import Payload  # noqa: PLC0415 - only a budget needs it

    given = cast("dict[str, Any]", made)
    return Payload(given, given.report if isinstance(given, Payload) else (), trim)


def _refuse_thoughts(message: Msg, index: int) -> None:
    if any(block.type == "thinking" for block in message.blocks):
        raise FormatError(
            f"messages[{index}] is to be trained and holds thoughts, which flat text leaves out; write them into its "
            "text, in the form of the model, or leave them out"
        )
