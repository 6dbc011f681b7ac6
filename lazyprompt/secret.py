"""Secrets: values that show as ``***`` wherever they are written."""

from __future__ import annotations

from typing import NoReturn, Self, cast

SHOWN = "***"
# Anything shorter is in many a text by chance.
_SHORTEST = 4


class Secret:
    """A key, a password or the like. What is written of it is ``***``: in reprs, logs, errors and traces.

    Args:
        value: The value.

    Raises:
        TypeError: It is no text.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        if not isinstance(cast("object", value), str):
            raise TypeError(f"a secret is text, not a {type(value).__name__}")
        self._value = value

    def reveal(self) -> str:
        """The value itself, for whoever sends it."""
        return self._value

    def hidden_in(self, text: str) -> str:
        """A text with the value taken out.

        Args:
            text: The text, as an error of a client that may name its key.
        """
        return text.replace(self._value, SHOWN) if len(self._value) >= _SHORTEST else text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({SHOWN!r})"

    def __str__(self) -> str:
        return SHOWN

    def __format__(self, spec: str) -> str:
        return format(SHOWN, spec)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled; give it again where the pickle is loaded, or in the environment")
