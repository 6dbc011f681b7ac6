"""The developer's own text, given as a value."""

from __future__ import annotations


class Trusted(str):
    """The developer's own text, given as a value: its control sequences are kept.

    Adding, slicing or formatting it returns plain text, which is untrusted.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str.__repr__(self)})"


def is_trusted(place: int, part: str) -> bool:
    """Return True for a trusted part of a prompt: one with an even index, or :class:`Trusted` text.

    Args:
        place: The index of the part.
        part: The part.
    """
    return place % 2 == 0 or isinstance(part, Trusted)
