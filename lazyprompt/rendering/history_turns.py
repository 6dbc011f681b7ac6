"""The turns of a history, as flat text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyprompt.messages.msg import Msg
    from lazyprompt.rendering.layout import PartList
    from lazyprompt.rendering.markers import Markers


def put_history(
    messages: Sequence[Msg], markers: Markers, out: PartList, first: int = 0, *, is_open: bool = False
) -> None:
    """Add the turns of a history, if there is one.

    Args:
        messages: The messages.
        markers: The markers of the model.
        out: The parts so far.
        first: The index of the first message, for errors.
        is_open: True if no further text of the user follows.
    """
    if messages:
        from lazyprompt.rendering.turns import put_messages  # noqa: PLC0415 - only messages need to know what they are

        put_messages(messages, markers, out, first, is_open=is_open)
