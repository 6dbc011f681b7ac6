"""One conversation on its way to a payload: the value that every step is handed beside the turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lazyprompt.formatters._turns import Reading
    from lazyprompt.formatters.profile import HistoryStyle, Layout, Profile
    from lazyprompt.formatters.report import Notes
    from lazyprompt.media.resolver import MediaResolver
    from lazyprompt.messages.msg import Base64Source, URLSource

Loaded: TypeAlias = "Mapping[URLSource, Base64Source]"


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
        reading: The conversation, and the work that it may need.
        profile: The provider's rules.
        notes: The report so far; steps add to it.
        resolver: The loader of media; None where nothing may be loaded.
        loaded: The media that were loaded.
        merging: The rule by which speakers are merged; None where they are not.
        user_last: True if the last turn must be the user's or a tool's.
    """

    reading: Reading
    profile: Profile
    notes: Notes
    resolver: MediaResolver | None
    loaded: Loaded
    merging: Merging | None
    user_last: bool
