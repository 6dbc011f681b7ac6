"""The context of rules: the conversation that is being formatted."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from lazyprompt._base.json import is_sequence
from lazyprompt.errors import FormatError
from lazyprompt.messages.msg import Msg
from lazyprompt.messages.parse import message_fields, parse_messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lazyprompt._base.json import Fields
    from lazyprompt.formatters.profile import HistoryLayout, HistoryStyle, Profile
    from lazyprompt.formatters.report import Notes
    from lazyprompt.media.resolver import MediaResolver
    from lazyprompt.messages.history import HistoryLike, MessageObject, Pair
    from lazyprompt.messages.msg import Base64Source, URLSource
    from lazyprompt.messages.native import Native
    from lazyprompt.messages.turns import Turn

MessageLike: TypeAlias = "Msg | Fields"
Messages: TypeAlias = "MessageLike | Pair | MessageObject | HistoryLike | None"
Loaded: TypeAlias = "Mapping[URLSource, Base64Source]"

# The keys that mark the beginning of an answer for the model to continue.
PREFILL = ("prefix", "partial")
_PAIR = 2


class Merging(NamedTuple):
    """The settings for merging the messages of all speakers into histories in the user's turns.

    Attributes:
        layout: The layout of a history.
        style: The style of a history.
        single: True to write a single message as a history too.
        heading: The text before a history; None for the style's own.
    """

    layout: HistoryLayout
    style: HistoryStyle
    single: bool
    heading: str | None = None


class Job(NamedTuple):
    """A conversation that is being formatted.

    Attributes:
        messages: All messages of the conversation; turns refer to them by index.
        profile: The provider's rules.
        notes: The report, to which rules add entries.
        resolver: The loader of media; None if nothing may be loaded.
        loaded: The loaded media.
        wanted: The media to load, each with its first place in the messages; None if the media are loaded.
        merging: The settings for merging speakers; None if speakers are not merged.
        model: The model, or None.
        changed: The indices of the messages whose native form cannot be used.
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
        """Return the native form of a turn; None if it is from another provider, or the turn was changed."""
        message = self.messages[turn[3]]
        own = message.native
        if own is None or own.provider != self.profile.native or turn[3] in self.changed:
            return None
        return own if turn[2] is message.content else None


def is_prefill(message: Msg) -> bool:
    """Return True if a message is the beginning of an answer, marked with ``prefix`` or ``partial``."""
    return message.role == "assistant" and any(message.metadata.get(key) is True for key in PREFILL)


def parse_arguments(messages: Iterable[Messages]) -> list[Msg]:
    """Parse the arguments of ``format``: messages, nested lists of them, and ``None``, which is skipped.

    Raises:
        FormatError: An argument is neither a message nor a list of them.
        HistoryError: A message is invalid.
        MediaError: A media block is invalid.
    """
    return parse_messages([*_items(messages)], "messages")


def _items(given: Iterable[object]) -> Iterator[object]:
    """Yield the items of nested lists; a pair is one item, and ``None`` is skipped."""
    for item in given:
        if item.__class__ is dict or isinstance(item, Msg):
            yield item
        elif is_sequence(item):
            if len(item) == _PAIR and isinstance(item[0], str):
                yield item
            else:
                yield from _items(item)
        elif message_fields(item) is not None:
            yield item
        elif item is not None:
            raise FormatError(
                f"{item!r} is a {type(item).__name__}; give Msg objects, message dicts of any provider, pairs "
                "[question, answer], or lists of them"
            )
