"""What users can call, as text: every public name with its signature.

`tests/golden/api.txt` holds it, so that a change of the public API is seen where it is made. Write it anew with

    python tests/release/api.py > tests/golden/api.txt
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, ForwardRef, is_typeddict

import lazyprompt


class _Written:
    """What a signature shows by its repr, the same in every version of Python and in every process."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _annotation(value: object) -> _Written:
    """An annotation as its source has it."""
    found = value.__forward_arg__ if isinstance(value, ForwardRef) else value
    return _Written(found if isinstance(found, str) else inspect.formatannotation(found))


def _default(value: object) -> object:
    """A default value; sets have no order of their own."""
    if isinstance(value, frozenset) and value:
        return _Written(f"frozenset({{{', '.join(sorted(map(repr, value)))}}})")
    return value


def page() -> str:
    """All of it: a name a line, and below a class what it has."""
    return "".join(f"{line}\n" for name in lazyprompt.__all__ for line in _lines(name, getattr(lazyprompt, name)))


def _lines(name: str, value: object) -> Iterator[str]:
    if inspect.isclass(value):
        yield f"class {name}{_called(value)}, of {', '.join(base.__name__ for base in value.__bases__)}"
        if is_typeddict(value):
            yield from (f"    [{key!r}]: {_annotation(said)}" for key, said in value.__annotations__.items())
            return
        for member in sorted(dir(value)):
            if not member.startswith("_") or member == "__call__":
                yield from _member(value, member)
    elif callable(value):
        yield f"{name}{_signature(value)}"
    else:
        yield f"{name}: {type(value).__name__}"


def _called(kind: type) -> str:
    """How an object of a class is made; of what Python alone makes, nothing."""
    own = (base for base in kind.__mro__ if {"__init__", "__new__"} & vars(base).keys())
    if not next(own, object).__module__.startswith("lazyprompt") or getattr(kind, "_is_protocol", False):
        return ""
    return str(_signature(kind).replace(return_annotation=inspect.Signature.empty))


def _member(kind: type, name: str) -> Iterator[str]:
    """What a class has under a name, where no class of Python says so and no other public one."""
    home = next(base for base in kind.__mro__ if name in vars(base))
    if not home.__module__.startswith("lazyprompt") or (home is not kind and home.__name__ in lazyprompt.__all__):
        return
    value = inspect.getattr_static(kind, name)
    if isinstance(value, property | cached_property):
        read: Any = value.fget if isinstance(value, property) else value.func
        yield f"    .{name} -> {_annotation(inspect.signature(read).return_annotation)}"
    elif isinstance(value, classmethod | staticmethod):
        yield f"    {type(value).__name__} .{name}{_signature(getattr(kind, name))}"
    elif inspect.isfunction(value):
        waits = "async " if inspect.iscoroutinefunction(value) else ""
        yield f"    {waits}.{name}{_signature(value)}"


def _signature(function: Callable[..., object]) -> inspect.Signature:
    found = inspect.signature(function)
    empty = inspect.Signature.empty
    parameters = [
        each.replace(
            annotation=empty if each.annotation is empty else _annotation(each.annotation),
            default=_default(each.default),
        )
        for each in found.parameters.values()
    ]
    back = found.return_annotation
    return found.replace(parameters=parameters, return_annotation=back if back is empty else _annotation(back))


if __name__ == "__main__":
    sys.stdout.write(page())
