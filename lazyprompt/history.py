"""History in every accepted form, made one.

Most histories are plain pairs of question and answer. They are kept as a flat tuple of strings, because making forty
messages of them costs four times as much as the whole prompt.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, TypeAlias, cast

from lazyprompt._json import well_formed
from lazyprompt.errors import HistoryError
from lazyprompt.messages import Msg, ToolResultBlock, ToolUseBlock
from lazyprompt.openai_form import Fields, message_from_openai, to_openai

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lazyprompt._json import JsonObject
    from lazyprompt.messages import Role

Pair: TypeAlias = "tuple[str, str] | list[str]"
HistoryLike: TypeAlias = "Sequence[Msg | Pair | Fields]"

_SHAPES = "a pair [question, answer], an OpenAI message {'role': ..., 'content': ...}, or a Msg"


class History:
    """An immutable history: either plain pairs, or messages.

    Attributes:
        pairs: Question, answer, question, answer … where the history is nothing but pairs of text, else ``None``.
    """

    __slots__ = ("_messages", "pairs")

    pairs: tuple[str, ...] | None
    _messages: tuple[Msg, ...]

    def __init__(self, pairs: tuple[str, ...] | None, messages: tuple[Msg, ...] = ()) -> None:
        self.pairs = pairs
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
        if not isinstance(cast("object", history), list | tuple):
            raise HistoryError(f"a history is a list, not a {type(history).__name__}; its items are {_SHAPES}")
        if not history:
            return EMPTY_HISTORY
        pairs = _plain_pairs(cast("Sequence[object]", history))
        if pairs is not None and "".join(pairs).isascii():
            return cls(pairs)
        # One look at the whole is enough for plain English; else each text is looked at, to say which is broken.
        for index, text in enumerate(pairs or ()):
            well_formed(text, f"history[{index // 2}]", HistoryError)
        return cls(pairs) if pairs is not None else cls(None, tuple(_messages(history)))

    @property
    def messages(self) -> tuple[Msg, ...]:
        """The history as messages."""
        if self.pairs is None:
            return self._messages
        roles: tuple[Role, ...] = ("user", "assistant") * (len(self.pairs) // 2)
        return tuple(Msg(role, text, role) for role, text in zip(roles, self.pairs, strict=True))

    def to_openai(self) -> list[JsonObject]:
        """The history as fresh OpenAI dicts."""
        if self.pairs is None:
            return [form for message in self._messages for form in to_openai(message)]
        forms: list[JsonObject] = []
        texts = iter(self.pairs)
        for question, answer in zip(texts, texts, strict=True):
            forms.append({"role": "user", "content": question})
            forms.append({"role": "assistant", "content": answer})
        return forms

    @property
    def waits_for_answer(self) -> bool:
        """Whether the last message is the user's or a tool's, so that the assistant speaks next."""
        if self.pairs is not None or not self._messages:
            return False
        last = self._messages[-1]
        return last.role in ("user", "tool") or any(isinstance(block, ToolResultBlock) for block in last.blocks)

    def __add__(self, other: History) -> History:
        if not other:
            return self
        if not self:
            return other
        if self.pairs is not None and other.pairs is not None:
            return History(self.pairs + other.pairs)
        return History(None, self.messages + other.messages)

    def __bool__(self) -> bool:
        return bool(self.pairs or self._messages)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and self.messages == other.messages

    def __hash__(self) -> int:
        return hash(self.messages)

    def __repr__(self) -> str:
        return f"History({list(self.messages)!r})"


EMPTY_HISTORY = History(())


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


def _plain_pairs(history: Sequence[object]) -> tuple[str, ...] | None:
    """The texts of a history of nothing but text pairs (or of user and assistant dicts in turn), else None.

    The type checks are made over the whole list at once: a loop would cost more than all the rest of a prompt.
    """
    types = set(map(type, history))
    if types <= {list, tuple}:
        pairs = cast("Sequence[Sequence[object]]", history)
        if set(map(len, pairs)) == {2}:
            texts = tuple(chain.from_iterable(pairs))
            return cast("tuple[str, ...]", texts) if set(map(type, texts)) == {str} else None
    elif types == {dict} and len(history) % 2 == 0:
        dicts = cast("Sequence[dict[str, object]]", history)
        if all(len(form) == 2 for form in dicts):  # noqa: PLR2004 - role and content, and nothing else
            roles = [form.get("role") for form in dicts]
            texts = tuple(form.get("content") for form in dicts)
            if roles == ["user", "assistant"] * (len(dicts) // 2) and set(map(type, texts)) == {str}:
                return cast("tuple[str, ...]", texts)
    return None


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
