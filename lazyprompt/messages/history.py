"""The immutable history of a conversation, and the types that a history is parsed from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from lazyprompt._base.frozen import read_only

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyprompt._base.json import Fields
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


# Message objects from provider SDKs, LangChain and AgentScope, matched by their attributes.
MessageObject: TypeAlias = "_HasContent | _HasParts | _HasType"
HistoryLike: TypeAlias = "Sequence[Msg | Pair | Fields | MessageObject]"
PastLike: TypeAlias = "HistoryLike | History | None"


@read_only
@dataclass(frozen=True, slots=True, repr=False)
class History:
    """A parsed history of a conversation.

    Args:
        messages: The messages, oldest first.
    """

    messages: tuple[Msg, ...] = ()

    @classmethod
    def of(cls, history: HistoryLike | History | None) -> History:
        """Parse a history into a :class:`History`.

        Args:
            history: A list that may mix ``[question, answer]`` pairs, LangChain messages, any provider's messages, and
                :class:`Msg` objects; ``None`` means an empty history. The items are copied.

        Raises:
            HistoryError: An item's format is not accepted; the error includes the item's index.
        """
        if isinstance(history, History):
            return history
        if history is None or history in ([], ()):
            return EMPTY_HISTORY
        from lazyprompt.messages.parse import parse_messages  # noqa: PLC0415 - not needed for an empty history

        return cls(tuple(parse_messages(history)))

    @property
    def awaits_answer(self) -> bool:
        """True if the last message is from the user or a tool, so that the assistant's turn is next."""
        if not self.messages:
            return False
        last = self.messages[-1]
        return last.role == "user" or _has_results(last)

    @property
    def question_before_results(self) -> str | None:
        """The user's last text (or an empty string) if the history ends with a tool result; otherwise None."""
        if not self.messages or not _has_results(self.messages[-1]):
            return None
        asked = (each for each in reversed(self.messages) if each.role == "user" and not _has_results(each))
        return next((each.text for each in asked), "")

    def __add__(self, other: History) -> History:
        return History(self.messages + other.messages) if self and other else self or other

    def __bool__(self) -> bool:
        return bool(self.messages)

    def __repr__(self) -> str:
        return f"History({list(self.messages)!r})"


EMPTY_HISTORY = History()


def messages_from(history: HistoryLike | None) -> list[Msg]:
    """Parse a history in any accepted format.

    A history may mix ``[question, answer]`` pairs, :class:`Msg` objects, LangChain tuples and messages, and
    AgentScope's ``Msg``. Messages in the formats of OpenAI (Chat Completions and Responses), Anthropic and Gemini can
    be dicts or objects from the provider's client.

    Args:
        history: The list of messages. Fields of content parts that no block can express, such as ``cache_control``, are
            stored in the message's metadata under ``part_fields``.

    Returns:
        A new list of messages.

    Raises:
        HistoryError: An item's format is ambiguous or not accepted; the error includes the item's index.
    """
    return list(History.of(history).messages)


def _has_results(message: Msg) -> bool:
    content = message.content
    return message.role == "tool" or (type(content) is tuple and any(block.type == "tool_result" for block in content))
