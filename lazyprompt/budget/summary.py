"""Summaries in the place of what goes: asked for once, remembered, and carried on where more goes later."""

from __future__ import annotations

from collections import OrderedDict
from copy import deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from lazyprompt._base.json import well_formed
from lazyprompt.budget.tally import digest
from lazyprompt.errors import BudgetError
from lazyprompt.messages.msg import Msg, message_of
from lazyprompt.tokens.counter import Form, forms

if TYPE_CHECKING:
    from collections.abc import Awaitable, Hashable, Sequence

    from lazyprompt.budget.units import Message

SUMMARY = "Summary of the earlier conversation: "
"""What a summary begins with."""

# So many conversations' summaries are kept.
_KEPT = 64


class Summarizer(Protocol):
    """Anything that sums up messages."""

    def __call__(self, messages: list[dict[str, Any]], /) -> str | Awaitable[str]:
        """The summary of messages in the OpenAI form, the oldest first, as text; it may have to be awaited."""
        ...


class Task(NamedTuple):
    """Messages to summarize.

    Attributes:
        messages: The messages, in the OpenAI form; the first may be the summary of what came before.
        key: What stands for all that the summary will cover.
    """

    messages: list[dict[str, Any]]
    key: tuple[Hashable, ...]


class Summaries:
    """The last summaries that were made, by what they cover."""

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made: OrderedDict[tuple[Hashable, ...], str] = OrderedDict()

    def task(self, messages: Sequence[Message]) -> Task | str:
        """Return the task of summarizing dropped messages, or their summary where it is known."""
        key = tuple(digest(forms([message])) for message in messages)
        known = max((made for made in list(self._made) if key[: len(made)] == made), key=len, default=())
        if known and len(known) == len(key):
            return self._made[known]
        before: list[Form] = [{"role": "user", "content": f"{SUMMARY}{self._made[known]}"}] if known else []
        # A copy: whatever a summarizer does with it, the caller's messages stay as they are.
        return Task([deepcopy(dict(form)) for form in before + forms(messages[len(known) :])], key)

    def keep(self, task: Task, summary: str) -> None:
        """Remember a summary."""
        self._made[task.key] = summary
        while len(self._made) > _KEPT:
            self._made.popitem(last=False)

    def __reduce__(self) -> tuple[type[Summaries], tuple[()]]:
        """A pickle leaves out what was made."""
        return Summaries, ()


def checked_summary(made: object) -> str:
    """A summary as it was made, if it is one.

    Raises:
        BudgetError: It is no text, or an empty one.
    """
    if not isinstance(made, str):
        raise BudgetError(f"the summarizer gave a {type(made).__name__}; it must give the summary as text")
    text = well_formed(str.__str__(made), "the summary", BudgetError).strip()
    if not text:
        raise BudgetError("the summarizer gave an empty text")
    return text


def summary_message(text: str, like: Message) -> Message:
    """The message with a summary, of the same kind as another: the user's, for nothing in it is the developer's."""
    content = f"{SUMMARY}{text}"
    return message_of("", content, "user") if isinstance(like, Msg) else {"role": "user", "content": content}
