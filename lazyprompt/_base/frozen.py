"""Frozen dataclasses that raise ``FrozenInstanceError`` on every assignment.

With ``@dataclass(frozen=True, slots=True)`` alone, assigning to an unknown attribute raises
"TypeError: super(type, obj): obj must be an instance or subtype of type" (python/cpython#90562).
"""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed import DataclassInstance


_Class = TypeVar("_Class", bound=type)


def read_only(cls: _Class) -> _Class:
    """Make a frozen dataclass with slots raise ``FrozenInstanceError`` when any attribute is assigned or deleted."""
    setattr(cls, "__setattr__", _refuse_to_set)  # noqa: B010 - type checkers reject the plain form
    setattr(cls, "__delattr__", _refuse_to_delete)  # noqa: B010 - as above
    return cls


def fill(value: DataclassInstance, given: Iterable[object]) -> None:
    """Set the fields of a frozen dataclass in declaration order."""
    for each, item in zip(fields(value), given, strict=True):
        object.__setattr__(value, each.name, item)


def draft_of(cls: type) -> type[Any]:
    """Return a mutable class with the slots of a frozen dataclass; the base classes must not be frozen.

    After the fields of an instance are set, assigning ``draft.__class__ = cls`` freezes the instance. For field values
    that are already checked, creating an instance from the mutable class takes a third of the constructor's time.
    """
    return type(f"{cls.__name__}Draft", cls.__bases__, {"__slots__": vars(cls)["__slots__"]})


def _refuse_to_set(self: object, name: str, value: object) -> NoReturn:  # noqa: ARG001 - Python passes it
    raise FrozenInstanceError(f"cannot assign to {name!r}: a {type(self).__name__} is immutable; create a new one")


def _refuse_to_delete(self: object, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete {name!r}: a {type(self).__name__} is immutable; create a new one")
