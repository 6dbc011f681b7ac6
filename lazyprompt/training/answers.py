"""Finds the answer of a training sample: the label, a message, or the last turn of the history."""

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
    """Split the answer off a history: the last turn, if it is the assistant's and has no tool calls."""
    past = History.of(history)
    if not _is_answered(past):
        return history, None
    return [*past.messages[:-1]], past.messages[-1]


def take_answer(prompt: Prompt, answer: Msg | None) -> tuple[Prompt, Msg]:
    """Split a prompt into the prompt without the answer, and the answer.

    Args:
        prompt: The prompt.
        answer: The answer, if it was split off the history; otherwise it is the label, or the last turn of the
            history of a prompter or prompt file.

    Raises:
        SlotError: There is no answer, or a message follows it.
    """
    if prompt.label is not None:
        return prompt.evolve(label=None), message_of("", str.__str__(prompt.label), "assistant")
    # A prompter's history contains examples, not answers. A prompt file's turns may end with an answer.
    has_own_turns = bool(prompt.history) and (prompt.closing > 0 or not prompt.opening)
    if answer is None and has_own_turns and _is_answered(prompt.history):
        past = prompt.history.messages
        before, answer = History(messages=past[:-1]), without_origins(past[-1])
        said = None if before.awaits_answer else prompt.input
        prompt = prompt.evolve(history=before, input=said, closing=max(prompt.closing - 1, 0))
    if answer is None or prompt.said is not None:
        raise SlotError(
            "a training sample needs an answer: give label=, or a history that ends with the assistant's turn, "
            "with no message after it"
        )
    return prompt, answer


def answer_in(message: Msg | Mapping[str, Any]) -> Msg:
    """Parse an answer that is a message.

    Raises:
        HistoryError: The argument is not a message of the assistant.
    """
    answer = messages_from([message])[0]
    if answer.role != "assistant" or any(block.type == "tool_result" for block in answer.blocks):
        raise HistoryError(f"the answer is a message of role {answer.role!r}; expected the assistant's own message")
    return answer


def _is_answered(past: History) -> bool:
    return bool(past) and not past.awaits_answer and past.messages[-1].role == "assistant"
