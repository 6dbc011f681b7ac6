"""The smallest valid instances of the types of official clients, as JSON."""

import types
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from typing_extensions import is_typeddict

_PLAIN: dict[object, Any] = {str: "x", int: 1, float: 1.0, bool: True, object: {}, Any: {}, bytes: "eA=="}


_CONTAINERS: dict[Any, tuple[Any, ...]] = {list: (list, Iterable, Sequence), dict: (dict, Mapping)}


def members_of(union: Any) -> list[Any]:
    """Return the members of a union, of unions in it too."""
    origin = get_origin(union)
    if origin is Annotated:
        return members_of(get_args(union)[0])
    if origin in (Union, types.UnionType):
        return [member for each in get_args(union) for member in members_of(each)]
    return [] if union is type(None) else [union]


def smallest(kind: Any) -> Any:
    """Return the smallest valid value of a type: the required fields only, and nothing in lists."""
    origin = get_origin(kind)
    if kind in _PLAIN:
        return _PLAIN[kind]
    if origin in (Annotated, Required, NotRequired):
        return smallest(get_args(kind)[0])
    if origin is Literal:
        return get_args(kind)[0]
    if origin in (Union, types.UnionType):
        return None if type(None) in get_args(kind) else smallest(get_args(kind)[0])
    empty = [each for each, kinds in _CONTAINERS.items() if kind is each or origin in kinds]
    return empty[0]() if empty else _smallest_of(kind)


def _is_required(hint: Any, *, total: bool) -> bool:
    origin = get_origin(hint)
    return origin is Required or (total and origin is not NotRequired)


def _smallest_of(kind: Any) -> Any:
    """Return the smallest value of a class with fields, or of an enum."""
    if is_typeddict(kind):
        # ``__required_keys__`` misses those that are marked in a module whose annotations are text.
        hints = get_type_hints(kind, include_extras=True)
        needed = [name for name, hint in hints.items() if _is_required(hint, total=kind.__total__)]
        return {name: "eA==" if name == "data" else smallest(hints[name]) for name in needed}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next(iter(kind)).value
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        fields = kind.model_fields
        return {
            field.alias or name: smallest(field.annotation) for name, field in fields.items() if field.is_required()
        }
    raise TypeError(f"no smallest value of {kind!r} is known")
