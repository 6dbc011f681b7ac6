"""Text written by the developer and passed as a value."""

from __future__ import annotations


class Trusted(str):
    """Text that the developer wrote and passes as a value; its control sequences are kept.

    Concatenating, slicing or formatting trusted text returns plain, untrusted text.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str.__repr__(self)})"


def is_trusted(place: int, part: str) -> bool:
    """Return True if a prompt part is trusted because its index is even or its type is :class:`Trusted`.

    Args:
        place: The index of the part in the list of the prompt's parts.
        part: The part's text.
    """
    return place % 2 == 0 or isinstance(part, Trusted)
