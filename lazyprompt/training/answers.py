"""The answer of a training sample: given as a label or a message, or the last turn of the history."""

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
    """Split the last turn off a history, if it is the assistant's and calls no tool: it is the answer."""
    past = History.of(history)
    if not _is_answered(past):
        return history, None
    return [*past.messages[:-1]], past.messages[-1]


def answered(prompt: Prompt, answer: Msg | None) -> tuple[Prompt, Msg]:
    """Split a prompt into what stands before the answer, and the answer.

    Args:
        prompt: The prompt.
        answer: The answer, where it was split off the history; else it is the label, or the last turn of the history
            that a prompter or a file has itself.

    Raises:
        SlotError: There is no answer, or there is a message behind it.
    """
    if prompt.label is not None:
        return prompt.evolve(label=None), message_of("", str.__str__(prompt.label), "assistant")
    # The examples that every conversation of a prompter begins with are no answers; the turns of a file are.
    has_own_turns = bool(prompt.history) and (prompt.closing > 0 or not prompt.opening)
    if answer is None and has_own_turns and _is_answered(prompt.history):
        past = prompt.history.messages
        before, answer = History(messages=past[:-1]), without_origins(past[-1])
        said = None if before.awaits_answer else prompt.input
        prompt = prompt.evolve(history=before, input=said, closing=max(prompt.closing - 1, 0))
    if answer is None or prompt.said is not None:
        raise SlotError(
            "a training sample needs an answer: give label=, or a history that ends with the assistant's turn, "
            "and nothing that is said behind it"
        )
    return prompt, answer


def answer_in(message: Msg | Mapping[str, Any]) -> Msg:
    """Read an answer that is given as a message.

    Raises:
        HistoryError: It is no message, or not the assistant's.
    """
    answer = messages_from([message])[0]
    if answer.role != "assistant" or any(block.type == "tool_result" for block in answer.blocks):
        raise HistoryError(f"the answer is a message of role {answer.role!r}; expected the assistant's own message")
    return answer


def _is_answered(past: History) -> bool:
    return bool(past) and not past.awaits_answer and past.messages[-1].role == "assistant"
