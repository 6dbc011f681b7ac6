"""What a template may keep in the memory at once, in namespaces, lists and variables, and how that is measured.

What a template writes is bounded by its length; what it keeps while it does so may be many times that. So whatever an
expression makes that is more than a few bytes is counted and held, until there is too much of it. Then it is let go,
and only what is still there is counted on: nobody but the template can hold that.
"""

from __future__ import annotations

from array import array
from collections.abc import Sized
from functools import wraps
from sys import getrefcount, getsizeof
from typing import TYPE_CHECKING, Any, TypeVar, cast

from jinja2 import nodes
from jinja2.exceptions import SecurityError

from lazyprompt.text.bounds import MAX_OPERAND, MAX_PIECES, Meter, check_length, kind_of
from lazyprompt.text.sandbox import BoundedEnvironment, BoundedGenerator

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from jinja2.nodes import EvalContext
    from jinja2.runtime import Context

_Made = TypeVar("_Made")

MAX_KEPT = 200_000_000
"""How many bytes a template may keep."""

MAX_CUT = 2_000_000
"""The longest text that may be cut into words or lines."""

MAX_SIGNS = 200_000
"""The longest text that may be gone through sign by sign, by a filter for lists."""

# How much may be held before it is looked what of it is still kept, and how much more than was kept then.
_FIRST_LOOK = 16_000_000
_NEXT_LOOK = 32_000_000
# A text as short as that is counted with what it is in.
_SHORT = 64
# How many references there are to what is held and nowhere else, as the expressions below see it.
_ALONE = {0: object()}
_UNKEPT = getrefcount(next(reversed(_ALONE.values())))
_FRESH = next(count for _, count in zip(_ALONE.values(), map(getrefcount, _ALONE.values()), strict=True))
# What it takes to hold something, and about what anything takes that is no plain data: a generator, a loop.
_HOLDING, _OTHER = 150, 1000
_PLAIN = frozenset((str, int, float, bool, type(None), list, tuple, dict, bytes))
# What makes many values of a text or list, and of a text.
_LISTING = frozenset(("batch", "groupby", "list", "slice", "sort", "unique"))
_CUTTING = frozenset(("indent", "striptags", "title", "urlize", "wordcount", "wordwrap"))
_CUTTING_METHODS = frozenset(("expandtabs", "rsplit", "split", "splitlines", "title"))
# Filters that make nothing, but give what is there, or a number.
_CHOOSING = frozenset(("abs", "count", "d", "default", "first", "float", "int", "last", "length", "max", "min"))
# The expressions that make values.
_MAKING = (
    *(nodes.Add, nodes.Call, nodes.Concat, nodes.Const, nodes.Dict, nodes.Filter, nodes.Getitem, nodes.List),
    *(nodes.Mod, nodes.Mul, nodes.Pow, nodes.Tuple),
)


class Keeper(Meter):
    """What one rendering has cost so far, and keeps."""

    __slots__ = ("_held", "_look_at", "_pieces", "_size", "_sizes")

    def __init__(self, most: int, numbers: int) -> None:
        super().__init__(most, numbers)
        # By their ids: what gives back what it was given, as a trim may, makes nothing new.
        self._held: dict[int, object] = {}
        self._sizes = array("Q")
        self._size = self._pieces = 0
        self._look_at = _FIRST_LOOK

    def kept(self, text: str) -> str:
        """A text that is put aside, counted.

        Args:
            text: The text.

        Raises:
            SecurityError: They are too long together, or too many.
        """
        self._pieces += 1
        if self._pieces > MAX_PIECES:
            raise SecurityError(f"more than {MAX_PIECES} pieces of text were put aside")
        return super().kept(text)

    def made(self, value: _Made) -> _Made:
        """What an expression made, counted.

        Args:
            value: The value.

        Returns:
            The value itself.

        Raises:
            SecurityError: The template keeps too much.
        """
        it: object = value
        if isinstance(it, str):
            if len(it) > _SHORT:
                self.hold(it, getsizeof(it))
        elif isinstance(it, list | tuple):
            items = cast("Sequence[object]", it)
            check_length(len(items), MAX_OPERAND)
            self.hold(items, getsizeof(items) + _of_fresh(items))
        elif isinstance(it, dict):
            pairs = cast("dict[object, object]", it)
            self.hold(pairs, getsizeof(pairs) + _of_fresh(pairs) + _of_fresh(pairs.values()))
        elif kind_of(it) not in _PLAIN:
            self.hold(it, _OTHER)
        return value

    def hold(self, value: object, size: int) -> None:
        """Count a value.

        Args:
            value: The value.
            size: How many bytes it takes.

        Raises:
            SecurityError: The template keeps too much.
        """
        if id(value) in self._held:
            return
        self._held[id(value)] = value
        self._sizes.append(size + _HOLDING)
        self._size += size + _HOLDING
        if self._size > self._look_at:
            self._let_go()

    def _let_go(self) -> None:
        """Let go of what nobody else holds; the last comes first, since it may hold what was made before it."""
        held, sizes = self._held, self._sizes
        kept: list[object] = []
        self._sizes, self._size = array("Q"), 0
        while held:
            size = sizes.pop()
            if getrefcount(next(reversed(held.values()))) > _UNKEPT:
                kept.append(held.popitem()[1])
                self._sizes.append(size)
                self._size += size
            else:
                held.popitem()
        self._sizes.reverse()
        self._held = {id(value): value for value in reversed(kept)}
        if self._size > MAX_KEPT:
            raise SecurityError(f"the template keeps more than {MAX_KEPT} bytes")
        self._look_at = max(_FIRST_LOOK, self._size + min(self._size, _NEXT_LOOK))


def _of_fresh(items: Collection[object]) -> int:
    """What the items take that are nowhere else: what is counted already is also held."""
    size = 0
    for item, references in zip(items, map(getrefcount, items), strict=True):
        if kind_of(item) not in _PLAIN:
            size += _OTHER
        elif references <= _FRESH:
            size += getsizeof(item)
    return size


def check_cut(name: str, subject: object) -> None:
    """Refuse to cut what is too long into pieces: they take a hundred times as much.

    Args:
        name: The name of the filter or method.
        subject: What it is applied to.

    Raises:
        SecurityError: It is too long.
    """
    if isinstance(subject, Sized):
        most = (MAX_SIGNS if name in _LISTING else MAX_CUT) if isinstance(subject, str) else MAX_OPERAND
        if len(subject) > most:
            raise SecurityError(f"{name} takes no more than {most} characters or items")


def _checked(function: Callable[..., object], name: str) -> Callable[..., object]:
    """A filter that cuts nothing that is too long."""
    value_at = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def call(*args: object, **kwargs: object) -> object:
        check_cut(name, args[value_at])
        return function(*args, **kwargs)

    return call


class KeepingGenerator(BoundedGenerator):
    """Jinja's compiler, with what expressions make counted: ``meter.made(...)``."""

    summands = 2

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - Jinja's
        """Write a node."""
        if not _makes(node):
            return super().visit(node, *args, **kwargs)
        self.write("meter.made(")
        super().visit(node, *args, **kwargs)
        self.write(")")
        return None


def _makes(node: nodes.Node) -> bool:
    """Whether an expression may make a value of more than a few bytes."""
    if isinstance(node, nodes.Const):
        return isinstance(node.value, list | tuple | dict)
    if isinstance(node, nodes.Getitem):
        return isinstance(node.arg, nodes.Slice)
    if isinstance(node, nodes.Filter):
        return node.name not in _CHOOSING and not node.name.startswith(" ")  # Our own make nothing, too.
    return isinstance(node, _MAKING) and getattr(node, "ctx", "load") == "load"


class KeepingEnvironment(BoundedEnvironment):
    """Jinja's immutable sandbox, within bounds, also of what is kept."""

    code_generator_class = KeepingGenerator

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - Jinja's own options
        super().__init__(**options)
        filters = cast("dict[str, Callable[..., object]]", self.filters)
        for name in _LISTING | _CUTTING:
            filters[name] = _checked(filters[name], name)

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - Jinja's
        """Call what a template calls."""
        subject = getattr(function, "__self__", None)
        if isinstance(subject, str) and function.__name__ in _CUTTING_METHODS:
            check_cut(function.__name__, subject)
        made = super().call(context, function, *args, **kwargs)
        if kind_of(made) not in _PLAIN:
            # A namespace and the like hold what they were made of.
            keeper = cast("Keeper", self.meter(context))
            keeper.hold(made, _OTHER + sum(map(getsizeof, (*args, *kwargs.values()))))
        return made

    def call_filter(
        self,
        name: str,
        value: Any,  # noqa: ANN401 - Jinja's
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        context: Context | None = None,
        eval_ctx: EvalContext | None = None,
    ) -> Any:  # noqa: ANN401 - Jinja's
        """Apply the filter that ``map`` names."""
        made = super().call_filter(name, value, args, kwargs, context, eval_ctx)
        return made if context is None else cast("Keeper", self.meter(context)).made(made)
