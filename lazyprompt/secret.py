"""Secrets: values that show as ``***`` wherever they are written."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NoReturn, Self, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

SHOWN = "***"
# Anything shorter is in many a text by chance.
_SHORTEST = 4
_VARIABLE = re.compile(r"\$\{env:([^{}]*)\}", re.IGNORECASE)


class _Unshown:
    """What is ``***`` wherever it is written, and of which there is no second one."""

    __slots__ = ()

    def __str__(self) -> str:
        return SHOWN

    def __format__(self, spec: str) -> str:
        return format(SHOWN, spec)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self


class Secret(_Unshown):
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

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled; give it again where the pickle is loaded, or in the environment")


class SecretText(_Unshown, str):
    """Text out of the environment: it is the text to whoever sends it, and ``***`` wherever it is printed.

    A pickle does not hold it: where that is loaded, it is looked up again.

    Args:
        text: The text.
        reference: How it is written, as ``Bearer ${env:KEY}``.
    """

    __slots__ = ("reference",)
    reference: str

    def __new__(cls, text: str, reference: str) -> Self:
        """A text that does not show."""
        made = super().__new__(cls, text)
        made.reference = reference
        return made

    def reveal(self) -> str:
        """The text itself."""
        return str.__str__(self)

    def __repr__(self) -> str:
        return repr(SHOWN)

    def __reduce__(self) -> tuple[object, ...]:
        return looked_up, (self.reference,)


def looked_up(reference: str) -> SecretText:
    """A text with the variables of the environment that it names.

    Args:
        reference: The text, as ``Bearer ${env:KEY}``.

    Raises:
        ValueError: A variable is not set, and has no default.
    """
    return SecretText(_VARIABLE.sub(lambda found: variable(found[1], os.environ), reference), reference)


def variable(given: str, environment: Mapping[str, str]) -> str:
    """The value of a variable, or else its default.

    Args:
        given: Its name, as ``KEY`` or ``KEY:default``.
        environment: The variables.

    Raises:
        ValueError: It is not set, and has no default.
    """
    name, _, default = given.partition(":")
    found = environment.get(name, default or None) if name else None
    if found is None:
        raise ValueError(
            f"Environment variable '{name}' not set: set it, or give a default, as ${{env:{name or 'X'}:default}}"
        )
    return found


def revealed(value: object) -> object:
    """JSON with its secret texts as they are, for whoever sends it."""
    if isinstance(value, list):
        return [*map(revealed, cast("list[object]", value))]
    if isinstance(value, dict):
        return {name: revealed(item) for name, item in cast("dict[object, object]", value).items()}
    return value.reveal() if isinstance(value, SecretText) else value
