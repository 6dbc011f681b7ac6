"""The prompters of the documents: for conversations, for one instruction, and for no prompt at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from lazyprompt.errors import HistoryError, TemplateError
from lazyprompt.prompters.prompter import Prompter
from lazyprompt.rendering.prompt_template import (
    AlpacaPromptTemplate,
    ChatPromptTemplate,
    MessagesPromptTemplate,
    PromptTemplate,
)
from lazyprompt.safety.policy import OFF, Policy, Safety
from lazyprompt.templates.instruction import AlpacaInstructionTemplate, ChatInstructionTemplate, InstructionTemplate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lazyprompt.budget.budget import BudgetLike
    from lazyprompt.messages.history import History, HistoryLike
    from lazyprompt.messages.tools import ToolsLike
    from lazyprompt.templates.instruction import Instruction, Syntax
    from lazyprompt.templates.messages import MessageLike


class ChatPrompter(Prompter):
    """A prompt for conversations: system turn, tools, history, and what the user says now.

    Args:
        instruction: Text with slots, or ``{"system": ..., "user": ...}``.
        extra_keys: Names of further slots, listed under headers behind the instruction.
        show: Whether each prompt is written to the standard error as well.
        tools: Tools the model may always call.
        history: What every conversation begins with.
        system: The system text; ``None`` takes the model family's, or else the documented default; ``""`` is none.
        enable_system: Whether there is a system turn. Without one, a string instruction goes before the user's text.
        extro_keys: The documents' spelling of ``extra_keys``.
        syntax: ``slots`` for ``{name}``, ``jinja2`` for Jinja.
        budget: What makes each prompt fit a number of tokens; or the most tokens of slots, by their names.

    Raises:
        TemplateError: The instruction or an extra key is wrong.
        ToolsError: A tool cannot be described.
        HistoryError: The history has no accepted shape.
    """

    def __init__(  # noqa: PLR0913 - the signature is the documents'
        self,
        instruction: Instruction = None,
        extra_keys: str | Iterable[str] | None = None,
        show: bool = False,  # noqa: FBT001, FBT002 - the place of the documents
        tools: ToolsLike = None,
        history: HistoryLike | None = None,
        *,
        system: str | None = None,
        enable_system: bool = True,
        extro_keys: str | Iterable[str] | None = None,
        syntax: Syntax = "slots",
        budget: BudgetLike | None = None,
    ) -> None:
        template = ChatInstructionTemplate(instruction, _one_of(extra_keys, extro_keys), syntax)
        super().__init__(
            template if enable_system else template.at_user_level(),
            ChatPromptTemplate(system_turn=enable_system),
            system=system if enable_system else "",
            tools=tools,
            history=history,
            show=show,
            budget=budget,
        )

    @classmethod
    def from_messages(
        cls,
        messages: Sequence[MessageLike],
        *,
        tools: ToolsLike = None,
        budget: BudgetLike | None = None,
        safety: Safety | None = None,
    ) -> Self:
        """Make a prompter of messages in the order in which they are read. Nothing is added around their texts.

        Args:
            messages: ``(role, text)`` pairs, message dicts or Msg, with ``{slot}`` in their texts, and the word
                ``"history"`` in the place of the earlier messages. Without that word, they stand behind the last system
                message. If the last message is the user's, all input goes into slots; else the input's text is the
                user's next message.
            tools: Tools the model may always call.
            budget: What makes each prompt fit a number of tokens; or the most tokens of slots, by their names.
            safety: What becomes of control sequences in untrusted text; see :meth:`with_safety`.

        Returns:
            The prompter. It has no system text but that of the messages.

        Raises:
            TemplateError: A role is unknown, or ``"history"`` is there twice.
            HistoryError: A message has no accepted form.
            ToolsError: A tool cannot be described.
        """
        from lazyprompt.templates.messages import MessagesTemplate  # noqa: PLC0415 - only these prompters parse messages

        made = cls.__new__(cls)
        template, layout = MessagesTemplate(messages), MessagesPromptTemplate()
        Prompter.__init__(made, template, layout, system="", tools=tools, budget=budget)
        return made if safety is None else made.with_safety(safety)


class AlpacaPrompter(Prompter):
    """A prompt of one instruction and one response, in the Alpaca form. It has no turns, and so no history.

    Args:
        instruction: Text with slots, or ``{"system": ..., "user": ...}``.
        extra_keys: Names of further slots, listed under headers behind the instruction.
        show: Whether each prompt is written to the standard error as well.
        tools: Tools the model may always call.
        system: The system text; ``None`` takes the model family's, or else the documented default; ``""`` is none.
        extro_keys: The documents' spelling of ``extra_keys``.
        syntax: ``slots`` for ``{name}``, ``jinja2`` for Jinja.
        budget: What makes each prompt fit a number of tokens; or the most tokens of slots, by their names.

    Raises:
        TemplateError: The instruction or an extra key is wrong.
        ToolsError: A tool cannot be described.
    """

    def __init__(
        self,
        instruction: Instruction = None,
        extra_keys: str | Iterable[str] | None = None,
        show: bool = False,  # noqa: FBT001, FBT002 - the place of the documents
        tools: ToolsLike = None,
        *,
        system: str | None = None,
        extro_keys: str | Iterable[str] | None = None,
        syntax: Syntax = "slots",
        budget: BudgetLike | None = None,
    ) -> None:
        super().__init__(
            AlpacaInstructionTemplate(instruction, _one_of(extra_keys, extro_keys), syntax),
            AlpacaPromptTemplate(),
            system=system,
            tools=tools,
            show=show,
            budget=budget,
        )

    def _past(self, history: HistoryLike | History | None) -> History:
        if history:
            raise HistoryError("the Alpaca form has no turns and takes no history; use ChatPrompter")
        return super()._past(None)


class EmptyPrompter(Prompter):
    """No prompt at all: the flat form is the input, character by character; the dict form is one user message.

    The input is taken as it is, also the control sequences in it: give it only text of your own.
    """

    _default_safety: ClassVar[Policy] = OFF

    def __init__(self) -> None:
        super().__init__(InstructionTemplate(), PromptTemplate("{input}"), system="")


def _one_of(
    extra_keys: str | Iterable[str] | None, extro_keys: str | Iterable[str] | None
) -> str | Iterable[str] | None:
    if extra_keys is not None and extro_keys is not None:
        raise TemplateError("extra_keys and extro_keys are the same parameter; give one of them")
    return extro_keys if extra_keys is None else extra_keys
