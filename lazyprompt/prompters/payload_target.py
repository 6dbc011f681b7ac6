"""The target of payloads: a prompt becomes messages, and a formatter writes them as a provider takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from lazyprompt.formatters.formatter import ChatFormatter, countable
from lazyprompt.formatters.report import Payload
from lazyprompt.messages.msg import text_message

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lazyprompt.budget.budget import Budget
    from lazyprompt.formatters.report import Report
    from lazyprompt.messages.msg import Msg
    from lazyprompt.messages.prompt import Prompt
    from lazyprompt.prompters.targets import Made, System

EmptyTurn: TypeAlias = Literal["keep", "drop", "fill"]


class PayloadTarget:
    """A provider's payload, OpenAI's too.

    Args:
        provider: The provider.
        model: The model.
        system: The system text.
        empty_turn: The user's turn if the user has no text: ``keep`` sends it empty, ``drop`` leaves it out, and
            ``fill`` makes the instruction the user's text, if there is no history.

    Raises:
        FormatError: The provider is unknown.
    """

    def __init__(self, provider: str, model: str | None, system: System, empty_turn: EmptyTurn) -> None:
        self._formatter = ChatFormatter(provider, model=model)
        self._system, self._empty_turn = system, empty_turn

    def render(self, prompt: Prompt) -> Payload:
        """Return the payload; every list and dict in it is new.

        In OpenAI's form, a prompt without any text is an empty list of messages.

        Raises:
            FormatError: The provider cannot carry what the prompt holds.
        """
        return self.write(self.messages(prompt), prompt)

    def write(self, messages: Sequence[Msg], prompt: Prompt) -> Payload:
        """Write the messages of a prompt, with its tools, as :meth:`render` does."""
        if not messages and self._empty_turn != "fill":
            return Payload({"messages": [], **({"tools": prompt.tools.copy()} if prompt.tools.names else {})})
        payload = self._formatter.format_parsed(messages, prompt.tools)
        if prompt.report:
            payload.report = (*cast("Report", prompt.report), *payload.report)
        return payload

    def messages(self, prompt: Prompt) -> list[Msg]:
        """Return the prompt as messages: system text, history, the user's text, the label."""
        system, user = self.texts(prompt)
        text = "".join(system)
        messages = [text_message(text, "system")] if text else []
        messages += prompt.history.messages
        if user is not None or self._empty_turn == "keep":
            messages.append(text_message("".join(user or ()), "user"))
        if prompt.label is not None:
            messages.append(text_message(prompt.label, "assistant"))
        return messages

    def texts(self, prompt: Prompt) -> tuple[Sequence[str], Sequence[str] | None]:
        """Return the system text, and the user's text or None: the developer's own text and values in turn."""
        system, instruction = self._system.of(prompt), prompt.instruction.parts
        said = (*prompt.user.parts, prompt.input or "", "")
        user = said if any(said) else None
        if user is None and prompt.input is not None and self._empty_turn == "fill" and not prompt.history:
            instruction, user = ("",), instruction if any(instruction) else None
        if system and any(instruction):
            system += "\n"
        return (system + instruction[0], *instruction[1:]), user

    def cost(self, made: Made, budget: Budget) -> int:
        """Return the tokens of the payload."""
        return budget.count(*countable(cast("Payload", made), self._formatter.profile))

    def tokens(self, prompt: Prompt, budget: Budget) -> Mapping[str, int]:
        """Return the tokens of each slot, each counted by itself."""
        return budget.count_slots(prompt, self._system.of(prompt))
