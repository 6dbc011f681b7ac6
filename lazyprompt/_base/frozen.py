"""Frozen values that say so whatever is assigned.

``@dataclass(frozen=True, slots=True)`` answers the assignment of a name that is no field with
"TypeError: super(type, obj): obj must be an instance or subtype of type" (python/cpython#90562).
"""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Iterable


_Class = TypeVar("_Class", bound=type)


def read_only(cls: _Class) -> _Class:
    """Make a frozen dataclass with slots raise ``FrozenInstanceError`` for any name."""
    setattr(cls, "__setattr__", _refuse_to_set)  # noqa: B010 - a type checker takes the plain form for a mistake
    setattr(cls, "__delattr__", _refuse_to_delete)  # noqa: B010 - as above
    return cls


def fill(value: object, given: Iterable[object]) -> None:
    """Set the fields of a frozen dataclass, in order."""
    for each, item in zip(fields(cast("Any", value)), given, strict=True):
        object.__setattr__(value, each.name, item)


def draft_of(cls: type) -> type[Any]:
    """Return a class with the slots of a frozen dataclass without a frozen base, whose objects can be filled.

    An object becomes a frozen value by ``draft.__class__ = cls``. A factory that does so for fields that are checked
    already takes a third of the time of the constructor.
    """
    return type(f"{cls.__name__}Draft", cls.__bases__, {"__slots__": vars(cls)["__slots__"]})


def _refuse_to_set(self: object, name: str, value: object) -> NoReturn:  # noqa: ARG001 - Python gives it
    raise FrozenInstanceError(f"cannot assign {name!r}: a {type(self).__name__} does not change; make a new one")


def _refuse_to_delete(self: object, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete {name!r}: a {type(self).__name__} does not change; make a new one")
