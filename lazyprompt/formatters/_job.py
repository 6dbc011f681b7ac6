"""The context for a provider's rules: the conversation that is being formatted, and the formatter's settings."""

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

# The message keys that mark a partial reply that the model must continue.
PREFILL = ("prefix", "partial")
_PAIR = 2


class Merging(NamedTuple):
    """Settings for merging the messages of all speakers into histories, which are sent as user turns.

    Attributes:
        layout: The position of a history relative to system text and media.
        style: The heading and tags around a history.
        single: True to write a history even for a single message.
        heading: The text before a history; None for the style's default heading.
    """

    layout: HistoryLayout
    style: HistoryStyle
    single: bool
    heading: str | None = None


class Job(NamedTuple):
    """A conversation that is being formatted.

    Attributes:
        messages: All messages in the conversation; turns refer to messages by index.
        profile: The provider's rules.
        notes: The report, to which rules add entries.
        resolver: The loader for media files; None if loading media is not allowed.
        loaded: A mapping from media URLs to the loaded data.
        wanted: The media URLs to load, each with the path of its first use; None once the media are loaded.
        merging: The settings for merging messages of named speakers into one turn; None to keep the messages separate.
        model: The model, or None if it is unknown.
        changed: The indices of the messages whose native content must not be sent.
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
        """Return a turn's native content, or None if it is from another provider or a rule changed the turn."""
        message = self.messages[turn[3]]
        own = message.native
        if own is None or own.provider != self.profile.native or turn[3] in self.changed:
            return None
        return own if turn[2] is message.content else None


def is_prefill(message: Msg) -> bool:
    """Return True if a message is a partial reply, marked with ``prefix`` or ``partial``."""
    return message.role == "assistant" and any(message.metadata.get(key) is True for key in PREFILL)


def parse_arguments(messages: Iterable[Messages]) -> list[Msg]:
    """Parse the arguments of ``format``, which are messages or nested lists of messages; ``None`` is skipped.

    Raises:
        FormatError: An argument is neither a message nor a list of messages.
        HistoryError: A message is invalid.
        MediaError: A media block is invalid.
    """
    return parse_messages([*_items(messages)], "messages")


def _items(given: Iterable[object]) -> Iterator[object]:
    """Yield the items in nested lists; a question-answer pair counts as one item, and ``None`` is skipped."""
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
                f"{item!r} has type {type(item).__name__}; expected Msg objects, message dicts from any provider, "
                "[question, answer] pairs, or lists of messages"
            )
