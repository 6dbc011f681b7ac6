"""A function that renders a history; it imports the rendering code only if the history is not empty."""

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
    """Add the turns of a history to a part list.

    Args:
        messages: The messages of the history, which may be empty.
        markers: The model's markers.
        out: The part list to extend with the turns.
        first: The index of the first message, for error messages.
        is_open: True if no user text follows the history.
    """
    if messages:
        from lazyprompt.rendering.turns import put_messages  # noqa: PLC0415 - only prompts with a history need it

        put_messages(messages, markers, out, first, is_open=is_open)
