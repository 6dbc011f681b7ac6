"""The target of providers: a prompt as a provider's payload, by way of the formatters."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from lazyprompt.formatters.formatter import ChatFormatter, countable
from lazyprompt.messages.histories.read import without_role_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lazyprompt.budget.budget import Budget
    from lazyprompt.formatters._turns import MessageLike
    from lazyprompt.formatters.report import Payload, Report
    from lazyprompt.messages.prompt import Prompt


class ProviderTarget:
    """A provider's payload.

    Args:
        provider: The provider.
        model: The model.
        system: Tells the system text of a prompt.
        tokens: Tells the tokens of each slot, given a prompt, its system text and a budget.

    Raises:
        FormatError: The provider is unknown.
    """

    def __init__(
        self,
        provider: str,
        model: str | None,
        system: Callable[[Prompt], str],
        tokens: Callable[[Prompt, str, Budget], Mapping[str, int]],
    ) -> None:
        self._formatter = ChatFormatter(provider, model=model)
        self._system, self._tokens = system, tokens

    def render(self, prompt: Prompt) -> Payload:
        """Return the payload.

        If the user has no text and there is no history, the instruction is the user's turn: no provider is sent an
        empty one.

        Raises:
            FormatError: The provider cannot carry what the prompt holds.
        """
        system, instruction = self._system(prompt), "".join(prompt.instruction.parts)
        question, past = prompt.said, prompt.history
        if question is None and prompt.input is not None and instruction and not past:
            instruction, question = "", instruction
        text = f"{system}\n{instruction}" if system and instruction else system or instruction
        messages: list[MessageLike] = [{"role": "system", "content": text}] if text else []
        if not past.has_messages:
            messages += past.to_openai()
        elif self._formatter.profile.names is None:
            messages += past.messages
        else:
            # A history of pairs or dicts names nobody, and a Msg of one has its role for a name.
            messages += map(without_role_name, past.messages)
        if question is not None:
            messages.append({"role": "user", "content": question})
        if prompt.label is not None:
            messages.append({"role": "assistant", "content": prompt.label})
        payload = self._formatter.format(messages, tools=prompt.tools)
        if prompt.source is not None and prompt.source.report:
            payload.report = (*cast("Report", prompt.source.report), *payload.report)
        return payload

    def cost(self, prompt: Prompt, budget: Budget) -> int:
        """Return the tokens of the payload."""
        return budget.count(*countable(self.render(prompt), self._formatter.profile))

    def tokens(self, prompt: Prompt, budget: Budget) -> Mapping[str, int]:
        """Return the tokens of each slot, each counted by itself."""
        return self._tokens(prompt, self._system(prompt), budget)
