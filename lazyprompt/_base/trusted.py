"""Text that the developer vouches for."""

from __future__ import annotations


class Trusted(str):
    """The developer's own text, given as a value: control sequences in it are meant.

    What is made of it by adding, cutting or formatting is plain text again, which nobody vouches for.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str.__repr__(self)})"


def is_trusted(place: int, part: str) -> bool:
    """Return True for a trusted part of a prompt: one in an even place, or :class:`Trusted` text in another.

    Args:
        place: Its place among the parts.
        part: The part.
    """
    return place % 2 == 0 or isinstance(part, Trusted)
