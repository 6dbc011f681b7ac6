"""One conversation on its way to a payload: what every rule is given beside the turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

from lazyprompt.errors import FormatError
from lazyprompt.messages.msg import Msg
from lazyprompt.messages.parse import message_fields, parse_messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lazyprompt._base.json import Fields
    from lazyprompt.formatters.profile import HistoryStyle, Layout, Profile
    from lazyprompt.formatters.report import Notes
    from lazyprompt.media.resolver import MediaResolver
    from lazyprompt.messages.history import HistoryLike, MessageObject, Pair
    from lazyprompt.messages.msg import Base64Source, URLSource
    from lazyprompt.messages.native import Native
    from lazyprompt.messages.turns import Turn

MessageLike: TypeAlias = "Msg | Fields"
Messages: TypeAlias = "MessageLike | Pair | MessageObject | HistoryLike | None"
Loaded: TypeAlias = "Mapping[URLSource, Base64Source]"

# The keys that mark the beginning of an answer, which the model goes on with.
PREFILL = ("prefix", "partial")
_PAIR = 2


class Merging(NamedTuple):
    """The rule by which the messages of all speakers become histories in the user's turns.

    Attributes:
        layout: The place of the system text.
        style: The form of a history.
        single: True if a single message is written as a history too.
    """

    layout: Layout
    style: HistoryStyle
    single: bool


class Job(NamedTuple):
    """One conversation on its way to a payload.

    Attributes:
        messages: All messages of the conversation; turns have their indices.
        profile: The provider's rules.
        notes: The report so far; rules add to it.
        resolver: The loader of media; None where nothing may be loaded.
        loaded: The media that were loaded.
        wanted: The media to load, each with the place where it is first met; None where they are loaded.
        merging: The rule by which speakers are merged; None where they are not.
        model: The model, where rules differ from one to another.
        changed: The indices of the messages from the provider that a rule has to change.
    """

    messages: Sequence[Msg]
    profile: Profile
    notes: Notes
    resolver: MediaResolver | None
    loaded: Loaded
    wanted: dict[URLSource, str] | None
    merging: Merging | None
    model: str | None
    changed: frozenset[int] = frozenset()

    def native(self, turn: Turn) -> Native | None:
        """Return a turn in the provider's own form; None if it did not come from the provider, or was changed."""
        message = self.messages[turn[3]]
        own = message.native
        if own is None or own.provider != self.profile.native or turn[3] in self.changed:
            return None
        return own if turn[2] is message.content else None


def is_prefill(message: Msg) -> bool:
    """Return True if a message is the beginning of an answer, marked with ``prefix`` or ``partial``."""
    return message.role == "assistant" and any(message.metadata.get(key) is True for key in PREFILL)


def parse_arguments(messages: Iterable[Messages]) -> list[Msg]:
    """Parse the arguments of ``format``: messages, lists of them in any depth, and ``None``, which is passed over.

    Raises:
        FormatError: Something is neither a message nor a list of them.
        HistoryError: Something is no message (or MediaError).
    """
    return parse_messages([*_items(messages)], "messages")


def _items(given: Iterable[object]) -> Iterator[object]:
    """Yield the items of lists in lists; a pair is one item, and ``None`` none."""
    for item in given:
        if item.__class__ is dict or isinstance(item, Msg):
            yield item
        elif isinstance(item, list | tuple):
            inner = cast("Sequence[object]", item)
            if len(inner) == _PAIR and isinstance(inner[0], str):
                yield inner
            else:
                yield from _items(inner)
        elif message_fields(item) is not None:
            yield item
        elif item is not None:
            raise FormatError(
                f"{item!r} is a {type(item).__name__}; give Msg objects, message dicts of any provider, pairs "
                "[question, answer], or lists of them"
            )
