"""History in every accepted form, made one.

Most histories are plain pairs of question and answer. They are kept as a flat tuple of strings, because making forty
messages of them costs four times as much as the whole prompt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, cast

from lazyprompt._json import well_formed
from lazyprompt.errors import HistoryError
from lazyprompt.messages import Msg, ToolResultBlock, ToolUseBlock
from lazyprompt.openai_form import Fields, message_from_openai, to_openai

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lazyprompt._json import JsonObject

Pair: TypeAlias = "tuple[str, str] | list[str]"
HistoryLike: TypeAlias = "Sequence[Msg | Pair | Fields]"

_PAIR_TYPES: frozenset[type] = frozenset((list, tuple))
_DICT_TYPE: frozenset[type] = frozenset((dict,))
_PLAIN_KEYS = {frozenset(("role", "content"))}
_SHAPES = "a pair [question, answer], an OpenAI message {'role': ..., 'content': ...}, or a Msg"


class History:
    """An immutable history: either plain pairs, or messages.

    Attributes:
        questions: What the user said, turn by turn, where the history is nothing but pairs of text.
        answers: What the assistant said to each; both are empty where the history is made of messages.
    """

    __slots__ = ("_messages", "answers", "questions")

    def __init__(
        self, questions: tuple[str, ...] = (), answers: tuple[str, ...] = (), messages: tuple[Msg, ...] = ()
    ) -> None:
        self.questions = questions
        self.answers = answers
        self._messages = messages

    @classmethod
    def of(cls, history: HistoryLike | History | None) -> History:
        """Read a history.

        Args:
            history: Pairs, OpenAI dicts and Msg in any mixture; ``None`` is an empty one. It is copied.

        Returns:
            The history as a value.

        Raises:
            HistoryError: An item has no accepted shape; the message names its index.
        """
        if history is None:
            return EMPTY_HISTORY
        if isinstance(history, History):
            return history
        if not isinstance(history, (list, tuple)):
            raise HistoryError(f"a history is a list, not a {type(history).__name__}; its items are {_SHAPES}")
        if not history:
            return EMPTY_HISTORY
        pairs = _plain_pairs(history)
        return cls(*pairs) if pairs is not None else cls(messages=tuple(_messages(history)))

    @property
    def messages(self) -> tuple[Msg, ...]:
        """The history as messages."""
        if self._messages:
            return self._messages
        return tuple(
            message
            for question, answer in zip(self.questions, self.answers, strict=True)
            for message in (Msg("user", question, "user"), Msg("assistant", answer, "assistant"))
        )

    def to_openai(self) -> list[JsonObject]:
        """The history as fresh OpenAI dicts."""
        if self._messages:
            return [form for message in self._messages for form in to_openai(message)]
        forms: list[JsonObject] = []
        for question, answer in zip(self.questions, self.answers, strict=True):
            forms.append({"role": "user", "content": question})
            forms.append({"role": "assistant", "content": answer})
        return forms

    @property
    def waits_for_answer(self) -> bool:
        """Whether the last message is the user's or a tool's, so that the assistant speaks next."""
        if not self._messages:
            return False
        last = self._messages[-1]
        return last.role in ("user", "tool") or any(isinstance(block, ToolResultBlock) for block in last.blocks)

    def __add__(self, other: History) -> History:
        if not other:
            return self
        if not self:
            return other
        if self._messages or other._messages:
            return History(messages=self.messages + other.messages)
        return History(self.questions + other.questions, self.answers + other.answers)

    def __bool__(self) -> bool:
        return bool(self.questions or self._messages)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and self.messages == other.messages

    def __hash__(self) -> int:
        return hash(self.messages)

    def __repr__(self) -> str:
        return f"History({list(self.messages)!r})"


EMPTY_HISTORY = History()


def messages_from(history: HistoryLike | None) -> list[Msg]:
    """Messages from a history in any accepted form.

    Args:
        history: Pairs, OpenAI dicts (tool calls and results too) and Msg in any mixture.

    Returns:
        A new list of messages.

    Raises:
        HistoryError: An item has no accepted shape; the message names its index.
    """
    return list(History.of(history).messages)


_Texts: TypeAlias = "tuple[str, ...]"


def _plain_pairs(history: Sequence[Any]) -> tuple[_Texts, _Texts] | None:
    """Questions and answers of a history of nothing but text pairs (or of user and assistant dicts in turn).

    The checks are made over the whole list at once: a loop would cost more than all the rest of a prompt. What they
    find wrong is left to the careful reading, which names it.
    """
    types = set(map(type, history))
    try:
        if types <= _PAIR_TYPES:
            questions, answers = zip(*history, strict=True)
        elif types <= _DICT_TYPE:
            questions, answers = _alternating(history)
        else:
            return None
        plain = "".join(questions).isascii() and "".join(answers).isascii()
    except (ValueError, TypeError):
        return None
    if not plain:
        for index, pair in enumerate(zip(questions, answers, strict=True)):
            for text in pair:
                well_formed(text, f"history[{index}]", HistoryError)
    return questions, answers


def _alternating(forms: Sequence[dict[str, str]]) -> tuple[_Texts, _Texts]:
    """The contents of dicts with nothing but role and content, user and assistant in turn.

    Raises:
        ValueError: They are something else.
    """
    half = len(forms) // 2
    if set(map(frozenset, forms)) != _PLAIN_KEYS or [form["role"] for form in forms] != ["user", "assistant"] * half:
        raise ValueError("these are no plain turns")
    return tuple([form["content"] for form in forms[0::2]]), tuple([form["content"] for form in forms[1::2]])


def _messages(history: Iterable[object]) -> list[Msg]:
    """Each item read in its own form, with the calls that still wait for a result kept in view."""
    messages: list[Msg] = []
    unanswered: list[str] = []
    for index, item in enumerate(history):
        where = f"history[{index}]"
        if isinstance(item, Msg):
            messages.append(item)
        elif isinstance(item, dict):
            messages.append(_read_dict(cast("Fields", item), where, unanswered))
        elif isinstance(item, list | tuple):
            messages += _read_pair(cast("Sequence[object]", item), where)
        else:
            raise HistoryError(f"{where} is a {type(item).__name__}; a history holds {_SHAPES}")
        for block in messages[-1].blocks:
            if isinstance(block, ToolUseBlock):
                unanswered.append(block.id)
            elif isinstance(block, ToolResultBlock) and block.id in unanswered:
                unanswered.remove(block.id)
    return messages


def _read_dict(item: Fields, where: str, unanswered: list[str]) -> Msg:
    try:
        return message_from_openai(item, where, unanswered)
    except HistoryError as error:
        if str(error).startswith(where):
            raise
        raise HistoryError(f"{where}: {error}") from error


def _read_pair(pair: Sequence[object], where: str) -> tuple[Msg, Msg]:
    if len(pair) != 2:  # noqa: PLR2004 - a pair
        raise HistoryError(f"{where} has {len(pair)} items; a pair is [question, answer]")
    roles = ("user", "assistant")
    for role, text in zip(roles, pair, strict=True):
        if not isinstance(text, str | list | tuple):
            raise HistoryError(f"{where}: the {role}'s part is a {type(text).__name__}; give text or a list of blocks")
    user, assistant = (
        _read_dict({"role": role, "content": part}, where, []) for role, part in zip(roles, pair, strict=True)
    )
    return user, assistant
