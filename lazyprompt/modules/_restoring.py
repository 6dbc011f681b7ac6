"""Restores the prompt's neutralised control sequences in complete and streamed responses."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lazyprompt.messages.texts import with_texts
from lazyprompt.safety.restoring import Restorer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lazyprompt.answers.parser import Delta
    from lazyprompt.messages.msg import Msg

NOTHING: Final = Restorer()


def restore_message(message: Msg, restorer: Restorer) -> Msg:
    """Return a response with its control sequences restored. The provider's native data is unchanged."""

    def restore(text: str, *, behind_text: bool = False) -> str:  # noqa: ARG001 - ChangeText requires it
        return restorer.restore(text)

    return with_texts(message, restore) if restorer else message


class RestoredDeltas:
    """Restores control sequences in streamed deltas.

    If the last characters of a delta may begin a control sequence, they are buffered until the next delta.

    Args:
        restorer: The restorer for the control sequences.
    """

    def __init__(self, restorer: Restorer) -> None:
        self._restorer = restorer
        self._held: Delta | None = None

    def feed(self, deltas: Iterable[Delta]) -> list[Delta]:
        """Return the restored deltas, and buffer trailing characters that may begin a control sequence."""
        return [certain for delta in deltas for certain in self._certain(delta)] if self._restorer else [*deltas]

    def finish(self) -> list[Delta]:
        """Return a list that contains the buffered delta, or an empty list."""
        held, self._held = self._held, None
        return [] if held is None else [replace(held, text=self._restorer.restore(held.text))]

    def _certain(self, delta: Delta) -> list[Delta]:
        held = self._held
        if held is not None and (held.kind, held.index) != (delta.kind, delta.index):
            return [*self.finish(), *self._certain(delta)]
        text, rest = self._restorer.split((held.text if held else "") + delta.text)
        self._held = replace(delta, text=rest, id=None, name=None) if rest else None
        return [replace(delta, text=text)] if text or delta.id or delta.name else []
