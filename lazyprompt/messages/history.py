"""History in every accepted form, made one.

Most histories are plain pairs of question and answer. They are kept as two tuples of strings, because making forty
messages of them costs four times as much as the whole prompt. What messages are is imported when there are some.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from lazyprompt._base.json import Fields, JsonObject, well_formed
from lazyprompt._base.roles import LANGCHAIN_WORDS
from lazyprompt.errors import HistoryError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lazyprompt.messages.msg import Msg

Pair: TypeAlias = "tuple[str, object] | list[str]"


class _HasContent(Protocol):
    @property
    def content(self) -> object: ...


class _HasParts(Protocol):
    @property
    def parts(self) -> object: ...


class _HasType(Protocol):
    @property
    def type(self) -> str: ...


# The message objects of official clients, LangChain and AgentScope, by what they have.
MessageObject: TypeAlias = "_HasContent | _HasParts | _HasType"
HistoryLike: TypeAlias = "Sequence[Msg | Pair | Fields | MessageObject]"
# A history as it was given, or read.
PastLike: TypeAlias = "HistoryLike | History | None"


class History:
    """An immutable history: either plain pairs, or messages.

    Attributes:
        questions: The user's texts, turn by turn, if the history is nothing but pairs of text.
        answers: The assistant's answer to each; both are empty where the history is made of messages.
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
            history: Pairs, messages of any provider or of LangChain, and Msg in any mixture; ``None`` is an empty one.
                It is copied.

        Returns:
            The history as a value.

        Raises:
            HistoryError: An item has no accepted shape; the message names its index.
        """
        if history is None:
            return EMPTY_HISTORY
        if isinstance(history, History):
            return history
        if isinstance(history, (list, tuple)):
            if not history:
                return EMPTY_HISTORY
            plain = _plain_turns(history)
            if plain is not None:
                return plain
        from lazyprompt.messages.reading import messages_of  # noqa: PLC0415 - only such a history needs it

        return cls(messages=messages_of(history))

    @property
    def messages(self) -> tuple[Msg, ...]:
        """The history as messages."""
        if self._messages:
            return self._messages
        from lazyprompt.messages.msg import Msg  # noqa: PLC0415 - plain pairs are seldom asked for as messages

        return tuple(
            message
            for question, answer in zip(self.questions, self.answers, strict=True)
            for message in (Msg("user", question, "user"), Msg("assistant", answer, "assistant"))
        )

    def to_openai(self) -> list[JsonObject]:
        """Write the history as fresh OpenAI dicts."""
        if self._messages:
            from lazyprompt.messages.openai_form import to_openai  # noqa: PLC0415 - only such a history needs it

            return [form for message in self._messages for form in to_openai(message)]
        forms: list[JsonObject] = []
        for question, answer in zip(self.questions, self.answers, strict=True):
            forms.append({"role": "user", "content": question})
            forms.append({"role": "assistant", "content": answer})
        return forms

    @property
    def has_messages(self) -> bool:
        """True if the history is made of messages, and not of plain pairs."""
        return bool(self._messages)

    @property
    def waits_for_answer(self) -> bool:
        """True if the last message is the user's or a tool's, so that the assistant speaks next."""
        if not self._messages:
            return False
        last = self._messages[-1]
        return last.role == "user" or _has_results(last)

    @property
    def question_before_results(self) -> str | None:
        """The user's last text, or ``""`` if there is none, where the history ends with a tool's result; else None."""
        if not self._messages or not _has_results(self._messages[-1]):
            return None
        asked = (each for each in reversed(self._messages) if each.role == "user" and not _has_results(each))
        return next((each.text for each in asked), "")

    def without_empty_questions(self) -> History:
        """Return the history without empty user turns, which say nothing and which providers refuse."""
        # Most questions are a text, which needs no call to be looked at.
        empty = [
            each
            for each in self._messages
            if each.role == "user" and not (type(each.content) is str and each.content) and _is_empty_question(each)
        ]
        if not empty and "" not in self.questions:
            return self
        return History(messages=tuple(message for message in self.messages if not _is_empty_question(message)))

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
    """Read a history in any accepted form into messages.

    Args:
        history: In any mixture: pairs ``[question, answer]``; Msg; message dicts of OpenAI (Chat Completions and
            Responses), Anthropic and Gemini, and the objects of their clients; LangChain's tuples and messages; the Msg
            of AgentScope. Fields of content parts that no block has a place for, as ``cache_control``, are in the
            metadata under ``part_fields``.

    Returns:
        A new list of messages.

    Raises:
        HistoryError: An item has no accepted shape, or could be of two; the message names its index.
    """
    return list(History.of(history).messages)


def _has_results(message: Msg) -> bool:
    content = message.content
    return message.role == "tool" or (type(content) is tuple and any(block.type == "tool_result" for block in content))


def _is_empty_question(message: Msg) -> bool:
    if message.role != "user" or (type(message.content) is str and message.content):
        return False
    return not any(getattr(block, "text", block) for block in message.blocks)


def _plain_turns(history: Sequence[Any]) -> History | None:
    """Read a history of nothing but text pairs, or of plain user and assistant dicts in turn; None for any other.

    This is the quick reading, so it only says yes or no: what is wrong with an item is for the careful one to say.
    """
    split = _split_dicts if type(history[0]) is dict else _split_pairs
    try:
        found = split(history)
        if found is None:
            return None
        questions, answers = found
        well_formed("".join(questions + answers), "", HistoryError)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return History(tuple(questions), tuple(answers))


_PAIRS = frozenset({list, tuple})
_Split: TypeAlias = "tuple[list[str], list[str]] | None"


def _split_pairs(history: Sequence[Sequence[str]]) -> _Split:
    questions: list[str] = []
    answers: list[str] = []
    for pair in history:
        if pair.__class__ not in _PAIRS:
            return None
        question, answer = pair
        questions.append(question)
        answers.append(answer)
    # Such a pair may be LangChain's, of role and content.
    return (questions, answers) if LANGCHAIN_WORDS.isdisjoint(questions) else None


def _split_dicts(history: Sequence[Mapping[str, str]]) -> _Split:
    questions: list[str] = []
    answers: list[str] = []
    for question, answer in zip(history[0::2], history[1::2], strict=True):
        # A dict of another class may add a key that is asked for.
        if question.__class__ is not dict or answer.__class__ is not dict:
            return None
        if len(question) != 2 or len(answer) != 2 or question["role"] != "user" or answer["role"] != "assistant":  # noqa: PLR2004 - role and content
            return None
        questions.append(question["content"])
        answers.append(answer["content"])
    return questions, answers
