"""A filled prompt as a provider's payload: the way from a prompter to the formatters."""

from __future__ import annotations

from copy import copy
from functools import lru_cache
from typing import TYPE_CHECKING

from lazyprompt.formatters.formatter import ChatFormatter
from lazyprompt.messages.msg import Msg

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyprompt.formatters._turns import MessageLike
    from lazyprompt.formatters.report import Payload
    from lazyprompt.messages.tools import ToolSet


def prompted(
    provider: str,
    model: str | None,
    instruction: tuple[str, str],
    history: Sequence[MessageLike],
    said: str | None,
    tools: ToolSet,
    label: str | None,
) -> Payload:
    """The payload of what a prompter has filled.

    Where nothing is said and there is no history, the instruction is the user's turn: no provider is sent an empty one.

    Args:
        provider: The provider.
        model: The model.
        instruction: The system text, and the system-level instruction.
        history: What was said before.
        said: What the user says; ``""`` if nothing, ``None`` where the history waits for the assistant.
        tools: The tools.
        label: The answer, in training data.

    Returns:
        The payload.

    Raises:
        FormatError: The provider is unknown, or cannot carry what is given.
    """
    formatter = _formatter(provider, model)
    system, told = instruction
    if said == "":
        said = None
        if told and not history:
            told, said = "", told
    text = f"{system}\n{told}" if system and told else system or told
    messages: list[MessageLike] = [{"role": "system", "content": text}] if text else []
    messages += history if formatter.profile.names is None else map(_unnamed, history)
    if said is not None:
        messages.append({"role": "user", "content": said})
    if label is not None:
        messages.append({"role": "assistant", "content": label})
    return formatter.format(messages, tools=tools)


def _unnamed(message: MessageLike) -> MessageLike:
    """Return a message without a name that only repeats its role: the history of a prompter has no other for pairs."""
    if not isinstance(message, Msg) or message.name != message.role:
        return message
    made = copy(message)
    object.__setattr__(made, "name", "")
    return made


@lru_cache(maxsize=64)
def _formatter(provider: str, model: str | None) -> ChatFormatter:
    """The formatter, which nothing changes, of the last few models."""
    return ChatFormatter(provider, model=model)
