"""Finds the response in the input for a training sample: the label, a message or the history's last turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lazyprompt.errors import HistoryError, SlotError
from lazyprompt.messages.history import History, HistoryLike, messages_from
from lazyprompt.messages.msg import Msg, message_of
from lazyprompt.messages.prompt import without_origins

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lazyprompt.messages.prompt import Prompt


def split_answer(history: HistoryLike | None) -> tuple[HistoryLike | None, Msg | None]:
    """Separate the response from a history that ends with an assistant message without tool calls."""
    past = History.of(history)
    if not _is_answered(past):
        return history, None
    return [*past.messages[:-1]], past.messages[-1]


def take_answer(prompt: Prompt, answer: Msg | None) -> tuple[Prompt, Msg]:
    """Separate the response from a prompt that contains it, and return the prompt and the response.

    Args:
        prompt: The prompt.
        answer: The response, if it was separated from the history. Otherwise, the response is the label or the last
            turn in the prompt file's own history.

    Raises:
        SlotError: The prompt contains no response, or a message follows the response.
    """
    if prompt.label is not None:
        return prompt.evolve(label=None), message_of("", str.__str__(prompt.label), "assistant")
    # The turns stored in a prompter are only examples, but the last turn of a prompt file may be the sample's response.
    has_own_turns = bool(prompt.history) and (prompt.closing > 0 or not prompt.opening)
    if answer is None and has_own_turns and _is_answered(prompt.history):
        past = prompt.history.messages
        before, answer = History(messages=past[:-1]), without_origins(past[-1])
        said = None if before.awaits_answer else prompt.input
        prompt = prompt.evolve(history=before, input=said, closing=max(prompt.closing - 1, 0))
    if answer is None or prompt.said is not None:
        raise SlotError(
            "a training sample requires a response; pass label=, or pass a history that ends with an assistant turn "
            "and no input"
        )
    return prompt, answer


def answer_in(message: Msg | Mapping[str, Any]) -> Msg:
    """Parse a response that is passed as a message.

    Raises:
        HistoryError: The argument is not an assistant message.
    """
    answer = messages_from([message])[0]
    if answer.role != "assistant" or any(block.type == "tool_result" for block in answer.blocks):
        raise HistoryError(
            f"the response is a message with the role {answer.role!r}; expected an assistant message without tool "
            "results"
        )
    return answer


def _is_answered(past: History) -> bool:
    return bool(past) and not past.awaits_answer and past.messages[-1].role == "assistant"
