"""The target for payloads, which converts a prompt to messages and formats the messages for a provider."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, cast

from lazyprompt.formatters.formatter import ChatFormatter, countable
from lazyprompt.formatters.report import Payload, Report
from lazyprompt.messages.msg import text_message
from lazyprompt.messages.prompt import MARKERS, FilledText, Text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lazyprompt.budget.budget import Budget
    from lazyprompt.formatters._guard import MessageGuard
    from lazyprompt.formatters.profile import Profile
    from lazyprompt.formatters.report import Entries
    from lazyprompt.messages.msg import Msg
    from lazyprompt.messages.prompt import Prompt
    from lazyprompt.prompters.targets import Made, System
    from lazyprompt.safety.find import Controls

EmptyTurn: TypeAlias = Literal["keep", "drop", "fill"]


class PromptMessages(NamedTuple):
    """The messages in a prompt, with the origins of their texts.

    Attributes:
        messages: The prompt's messages.
        own: The texts that contain slot values at known positions, by message index.
    """

    messages: list[Msg]
    own: Mapping[int, Text]


class PayloadTarget:
    """A renderer for payloads in a provider's format, including OpenAI's.

    Args:
        provider: The provider's name or profile.
        model: The provider's name for the model.
        system: The system text.
        empty_turn: The policy for a user turn without text. ``keep`` sends the empty turn, and ``drop`` omits it. If
            there is no history, ``fill`` moves the instruction into the empty user turn.
        guard: The guard against control sequences in untrusted text; None to keep control sequences.

    Raises:
        FormatError: The provider is unknown.
    """

    def __init__(
        self,
        provider: str | Profile,
        model: str | None,
        system: System,
        empty_turn: EmptyTurn,
        guard: MessageGuard | None,
    ) -> None:
        self._formatter = ChatFormatter(provider, model=model, safety="off")
        self._system, self._empty_turn, self._guard = system, empty_turn, guard

    def render(self, prompt: Prompt) -> Payload:
        """Return the payload, which shares no list or dict with the prompt.

        In OpenAI's format, a prompt without any text becomes an empty message list.

        Raises:
            FormatError: The provider doesn't support the prompt's content.
            SafetyError: Untrusted text contains a control sequence, and the policy is ``raise``.
        """
        return self.write(self.conversation(prompt), prompt)

    def write(self, conversation: PromptMessages, prompt: Prompt) -> Payload:
        """Return the payload for a prompt whose messages were already created; see :meth:`render`."""
        messages = conversation.messages
        if messages or self._empty_turn == "fill":
            payload = self._formatter.format_parsed(messages, prompt.tools, self.guard(conversation))
        else:
            payload = Payload({"messages": [], **({"tools": prompt.tools.copy()} if prompt.tools.names else {})})
        if prompt.report:
            payload.report = Report((*cast("Entries", prompt.report), *payload.report))
        return payload

    @property
    def controls(self) -> Controls | None:
        """The control sequences to look for in untrusted text; None if the safety policy ignores control sequences."""
        return None if self._guard is None else self._guard.controls

    def guard(self, conversation: PromptMessages) -> MessageGuard | None:
        """Return the message guard for a conversation, or None if the safety policy ignores control sequences."""
        return None if self._guard is None else self._guard._replace(own=conversation.own)

    def messages(self, prompt: Prompt) -> list[Msg]:
        """Return the prompt as messages: system text, history, user text and expected response."""
        return self.conversation(prompt).messages

    def conversation(self, prompt: Prompt) -> PromptMessages:
        """Return the prompt as messages, with the origins of their texts."""
        system, user = self.texts(prompt)
        if user is None and self._empty_turn == "keep":
            user = Text()
        history = prompt.plain_messages
        own: dict[int, Text] = {}
        messages: list[Msg] = []
        if text := "".join(system.parts):
            own[0] = system
            messages.append(text_message(text, "system"))
        if prompt.opening or prompt.closing:
            for at, message in enumerate(prompt.history.messages, len(messages)):
                if isinstance(message.content, FilledText):
                    own[at] = message.content.origins
        messages += history
        if user is not None:
            own[len(messages)] = user
            messages.append(text_message("".join(user.parts), "user"))
        if prompt.label is not None:
            own[len(messages)] = Text(("", prompt.label, ""), (MARKERS, "label", MARKERS))
            messages.append(text_message(prompt.label, "assistant"))
        return PromptMessages(messages, own)

    def texts(self, prompt: Prompt) -> tuple[Text, Text | None]:
        """Return the system text, and the user's text or None if there is no user turn."""
        system, instruction = self._system.of(prompt), prompt.instruction
        user: Text | None = Text((*prompt.user.parts, prompt.input or "", ""), (*prompt.user.slots, "input", MARKERS))
        if not user:
            user = None
            if prompt.input is not None and self._empty_turn == "fill" and not prompt.history:
                instruction, user = Text(), instruction or None
        if system and instruction:
            system += "\n"
        return Text((system + instruction.parts[0], *instruction.parts[1:]), instruction.slots), user

    def cost(self, made: Made, budget: Budget) -> int:
        """Return the token count of a payload."""
        return budget.count(*countable(cast("Payload", made), self._formatter.profile))

    def tokens(self, prompt: Prompt, budget: Budget) -> Mapping[str, int]:
        """Return the token count of each slot, by name."""
        return budget.count_slots(prompt, self._system.of(prompt))
