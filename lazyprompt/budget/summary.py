"""Cached summaries of dropped messages, which are extended when more messages are dropped."""

from __future__ import annotations

from collections import OrderedDict
from copy import deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from lazyprompt._base.json import well_formed
from lazyprompt.budget.costs import digest
from lazyprompt.errors import BudgetError
from lazyprompt.messages.msg import Msg, message_of
from lazyprompt.tokens.counter import Form, forms

if TYPE_CHECKING:
    from collections.abc import Awaitable, Hashable, Sequence

    from lazyprompt.budget.units import Item, Message

SUMMARY = "Summary of the earlier conversation: "
"""The text at the start of each summary message."""

# The maximum number of cached summaries.
_KEPT = 64


class Summarizer(Protocol):
    """A function that summarizes messages."""

    def __call__(self, messages: list[dict[str, Any]], /) -> str | Awaitable[str]:
        """Return a summary of OpenAI message dicts, oldest first; the function may be async."""
        ...


class Task(NamedTuple):
    """A request for a summary.

    Attributes:
        messages: The messages to summarize, as OpenAI dicts. The first dict may contain an earlier summary.
        key: The hashes of all messages that the summary covers.
    """

    messages: list[dict[str, Any]]
    key: tuple[Hashable, ...]


class Summaries:
    """A cache for the latest summaries, keyed by the messages that they cover."""

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made: OrderedDict[tuple[Hashable, ...], str] = OrderedDict()

    def task(self, messages: Sequence[Message]) -> Task | str:
        """Return the cached summary of messages, or else a task that creates the summary."""
        key = tuple(digest(forms([message])) for message in messages)
        known = max((made for made in list(self._made) if key[: len(made)] == made), key=len, default=())
        if known and len(known) == len(key):
            return self._made[known]
        before: list[Form] = [{"role": "user", "content": f"{SUMMARY}{self._made[known]}"}] if known else []
        # Copy the messages, so that a summarizer can't modify the caller's messages.
        return Task([deepcopy(dict(form)) for form in before + forms(messages[len(known) :])], key)

    def keep(self, task: Task, summary: str) -> None:
        """Store a summary in the cache, which drops the oldest summary when full."""
        self._made[task.key] = summary
        while len(self._made) > _KEPT:
            self._made.popitem(last=False)

    def __reduce__(self) -> tuple[type[Summaries], tuple[()]]:
        """Omit the cached summaries from pickles."""
        return Summaries, ()


def checked_summary(made: object) -> str:
    """Return a summarizer's result after checking that it is a non-empty string.

    Raises:
        BudgetError: The summarizer's result is not a string, or is an empty string.
    """
    if not isinstance(made, str):
        raise BudgetError(
            f"the summarizer returned a value of type {type(made).__name__}; it must return the summary as a string"
        )
    text = well_formed(str.__str__(made), "the summary", BudgetError).strip()
    if not text:
        raise BudgetError("the summarizer returned an empty string")
    return text


def summary_message(text: str, like: Item) -> Message:
    """Return a summary as a message of the same type as ``like``, with the role user because the text is untrusted."""
    content = f"{SUMMARY}{text}"
    return message_of("", content, "user") if isinstance(like, Msg) else {"role": "user", "content": content}
