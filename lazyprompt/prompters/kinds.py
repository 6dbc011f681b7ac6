"""The predefined prompters ``ChatPrompter``, ``AlpacaPrompter`` and ``EmptyPrompter``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from lazyprompt._base.json import checked_text
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
    """A prompter for conversations, with a system turn, tools, history and user text.

    Args:
        instruction: The instruction text with slots, or ``{"system": ..., "user": ...}``.
        extra_keys: The names of additional slots, which are added under headers after the instruction.
        show: True to print each prompt to stderr.
        tools: The tools for every call.
        history: The messages at the start of every conversation.
        system: The system text. ``None`` uses the model family's text or the documented default; ``""`` omits the
            system text.
        enable_system: False to omit the system turn and place a string instruction before the user's text.
        extro_keys: An alternative spelling of ``extra_keys``.
        syntax: The template syntax, either ``slots`` for ``{name}`` or ``jinja2`` for Jinja.
        budget: The token budget for each prompt, or a dict of token limits by slot name.
        skills: Additional text after the instruction, without slots, such as descriptions of an agent's skills.

    Raises:
        TemplateError: The instruction or an extra key is invalid.
        ToolsError: A tool is invalid, or its schema cannot be generated.
        HistoryError: The history has an unsupported format.
    """

    def __init__(  # noqa: PLR0913 - the documented signature
        self,
        instruction: Instruction = None,
        extra_keys: str | Iterable[str] | None = None,
        show: bool = False,  # noqa: FBT001, FBT002 - the documented position
        tools: ToolsLike = None,
        history: HistoryLike | None = None,
        *,
        system: str | None = None,
        enable_system: bool = True,
        extro_keys: str | Iterable[str] | None = None,
        syntax: Syntax = "slots",
        budget: BudgetLike | None = None,
        skills: str | None = None,
    ) -> None:
        template = ChatInstructionTemplate(instruction, _one_of(extra_keys, extro_keys), syntax)
        if text := checked_text(skills, "skills", TemplateError):
            template = template.followed_by(text if enable_system else f"{text}\n\n")
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
        syntax: Syntax = "slots",
        tools: ToolsLike = None,
        budget: BudgetLike | None = None,
        safety: Safety | None = None,
    ) -> Self:
        """Create a prompter from messages in reading order; no text is added to the messages.

        Args:
            messages: The messages, as ``(role, text)`` pairs, message dicts or Msg. The texts of the messages may
                contain slots such as ``{slot}``. The string ``"history"`` is a placeholder for earlier messages, which
                otherwise follow the last system message. If the last message is a user message, all input fills slots;
                otherwise, the input text becomes the next user message.
            syntax: The template syntax, either ``slots`` for ``{name}`` or ``jinja2`` for Jinja.
            tools: The tools for every call.
            budget: The token budget for each prompt, or a dict of token limits by slot name.
            safety: The policy for control sequences in untrusted text; see :meth:`with_safety`.

        Returns:
            The prompter; its system text comes only from the messages.

        Raises:
            TemplateError: A role or the syntax is unknown, or ``"history"`` appears twice.
            HistoryError: A message has an unsupported format.
            ToolsError: A tool is invalid, or its schema cannot be generated.
        """
        from lazyprompt.templates.messages import MessagesTemplate  # noqa: PLC0415 - only needed here

        made = cls.__new__(cls)
        template, layout = MessagesTemplate(messages, syntax), MessagesPromptTemplate()
        Prompter.__init__(made, template, layout, system="", tools=tools, budget=budget)
        return made if safety is None else made.with_safety(safety)


class AlpacaPrompter(Prompter):
    """A prompter for a single instruction and response in the Alpaca format, which has no history.

    Args:
        instruction: The instruction text with slots, or ``{"system": ..., "user": ...}``.
        extra_keys: The names of additional slots, which are added under headers after the instruction.
        show: True to print each prompt to stderr.
        tools: The tools for every call.
        system: The system text. ``None`` uses the model family's text or the documented default; ``""`` omits the
            system text.
        extro_keys: An alternative spelling of ``extra_keys``.
        syntax: The template syntax, either ``slots`` for ``{name}`` or ``jinja2`` for Jinja.
        budget: The token budget for each prompt, or a dict of token limits by slot name.

    Raises:
        TemplateError: The instruction or an extra key is invalid.
        ToolsError: A tool is invalid, or its schema cannot be generated.
    """

    def __init__(
        self,
        instruction: Instruction = None,
        extra_keys: str | Iterable[str] | None = None,
        show: bool = False,  # noqa: FBT001, FBT002 - the documented position
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
            raise HistoryError("the Alpaca format has no turns, so it does not support history; use ChatPrompter")
        return super()._past(None)


class EmptyPrompter(Prompter):
    """A prompter that adds no text: flat text is the input itself, and a payload contains a single user message.

    Control sequences in the input are kept, so pass only trusted text.
    """

    _default_safety: ClassVar[Policy] = OFF

    def __init__(self) -> None:
        super().__init__(InstructionTemplate(), PromptTemplate("{input}"), system="")


def _one_of(
    extra_keys: str | Iterable[str] | None, extro_keys: str | Iterable[str] | None
) -> str | Iterable[str] | None:
    if extra_keys is not None and extro_keys is not None:
        raise TemplateError("extra_keys and extro_keys are the same parameter; pass only one of them")
    return extro_keys if extra_keys is None else extra_keys
