"""The memory that a template of a prompt file or an instruction may take, and how it is counted.

Each value that an expression makes is charged to one budget. A long text gives its size back when Python frees it, and
text in a buffer when the buffer is joined; nothing else is ever given back. So a template that makes many short values
and keeps none of them pays for all of them, which loops of many thousand rounds can afford.
"""

from __future__ import annotations

from functools import wraps
from sys import getsizeof
from types import BuiltinMethodType
from typing import TYPE_CHECKING, Any, cast

from jinja2 import nodes
from jinja2.exceptions import SecurityError

from lazyprompt.text.bounds import MAX_OPERAND, Meter, check_length, kind_of
from lazyprompt.text.sandbox import BoundedEnvironment, BoundedGenerator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence, Sized

    from jinja2.compiler import CodeGenerator, Frame
    from jinja2.nodes import EvalContext
    from jinja2.runtime import Context

MAX_KEPT = 200_000_000
"""The bytes that the values of one rendering may take."""

MAX_TEXT = 5_000_000
"""The longest text that an expression may make, in characters."""

# Texts longer than this give their size back.
_LONG = 2000
# The bytes of a short value in a list or dict, and of a value of any other kind, such as a generator or a namespace.
_ITEM, _OTHER = 100, 1000
# After this many charges the clock is asked.
_CHARGES = 100
# The longest subject of filters and methods: of those that make a list of characters, those that make a list of words
# or lines, and those that write several characters for one.
_LONGEST = {
    **dict.fromkeys(("batch", "groupby", "list", "slice", "sort", "unique"), 200_000),
    **dict.fromkeys(("expandtabs", "indent", "rsplit", "split", "splitlines", "striptags", "title"), 2_000_000),
    **dict.fromkeys(("urlize", "wordcount", "wordwrap"), 2_000_000),
    **dict.fromkeys(("e", "escape", "forceescape", "pprint", "tojson", "upper", "urlencode"), MAX_TEXT),
}
# Filters that give a value that is there, or a number.
_CHOOSING = frozenset(("abs", "attr", "count", "d", "default", "first", "float", "int", "last", "length", "max", "min"))
# Nodes whose values are charged; calls are charged where they are made.
_OPERATORS = (nodes.BinExpr, nodes.Compare, nodes.Concat, nodes.Neg, nodes.Pos, nodes.Test)
_LITERALS = (nodes.Dict, nodes.List, nodes.Tuple)


class _LongText(str):
    """A text that gives its size back to the meter when it is freed."""

    __slots__ = ("_meter", "_size")
    _meter: MemoryMeter
    _size: int

    def __del__(self) -> None:
        self._meter.charge(-self._size)


# The name that errors of Python and Jinja show.
_LongText.__name__, _LongText.__module__ = "str", "builtins"


class MemoryMeter(Meter):
    """A count of what one rendering has cost and what its values take."""

    __slots__ = ("_bytes", "_charges")

    def __init__(self, most: int, numbers: int) -> None:
        super().__init__(most, numbers)
        self._bytes = self._charges = 0

    def charge(self, size: int) -> None:
        """Charge a number of bytes, or give them back if it is negative.

        Raises:
            SecurityError: The values take too much, or the rendering takes too long.
        """
        self._bytes += size
        if size < 0:
            return
        if self._bytes > MAX_KEPT:
            raise SecurityError(f"the template keeps more than {MAX_KEPT} bytes")
        self._charges += 1
        if self._charges > _CHARGES:
            self._charges = 0
            self.look_at_clock()

    def made(self, value: Any, items: int = 0) -> Any:  # noqa: ANN401 - of the kind that was given
        """Charge the value of an operator or a literal.

        Args:
            value: The value.
            items: The number of items of a literal.

        Returns:
            The value; a long text as one that gives its size back.

        Raises:
            SecurityError: The value is too long, or the values take too much.
        """
        kind = kind_of(value)
        if kind is str and len(value) > _LONG:
            check_length(len(value), MAX_TEXT)
            text = _LongText(value)
            text._meter, text._size = self, getsizeof(text)  # noqa: SLF001 - no template may read them
            self.charge(text._size)  # noqa: SLF001 - as above
            return text
        if kind is list or kind is tuple:
            check_length(len(value), MAX_OPERAND)
        elif isinstance(value, str):
            check_length(len(value), MAX_TEXT)
        self.charge(getsizeof(value) + _ITEM * items)
        return value

    def given(self, value: Any) -> Any:  # noqa: ANN401 - of the kind that was given
        """Charge the value that a filter or call gave, with the items that may be new.

        Args:
            value: The value.

        Returns:
            The value, as :meth:`made` has it.

        Raises:
            SecurityError: The value is too long, or the values take too much.
        """
        level: list[Any] = [value] if isinstance(value, list | tuple) else []
        while level:
            inside: list[Any] = []
            for many in level:
                self.charge(getsizeof(many) + _ITEM * len(many))
                texts = [item for item in many if isinstance(item, str)]
                self.charge(sum(map(getsizeof, texts)))
                inside += [item for item in many if isinstance(item, list | tuple)]
            level = inside
        if isinstance(value, str | int | float | list | tuple):
            return self.made(value)
        self.charge(_OTHER + getsizeof(value) + (_ITEM * len(value) if isinstance(value, dict) else 0))
        return value

    def piece(self, text: str) -> str:
        """Charge a piece of output."""
        self.charge(getsizeof(text))
        return text

    def joined(self, concat: Callable[[Iterable[str]], str], pieces: list[str]) -> str:
        """Join a buffer, which gives back what its pieces were charged.

        Args:
            concat: The function that joins.
            pieces: The buffer, which is emptied.

        Returns:
            The text.
        """
        text = concat(pieces)
        self.charge(-sum(map(getsizeof, pieces)))
        pieces.clear()
        return cast("str", self.made(text))


def check_subject(name: str, subject: object) -> None:
    """Refuse a subject for which a filter or method would take many times its memory.

    Args:
        name: The name of the filter or method.
        subject: The value that it is applied to.

    Raises:
        SecurityError: It is too long.
    """
    if name in _LONGEST and hasattr(subject, "__len__"):
        most = _LONGEST[name] if isinstance(subject, str) else MAX_OPERAND
        if len(cast("Sized", subject)) > most:
            raise SecurityError(f"{name} takes no more than {most} characters or items")


def _checked(function: Callable[..., object], name: str) -> Callable[..., object]:
    """Return a filter that checks the length of its subject."""
    value_at = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def call(*args: object, **kwargs: object) -> object:
        check_subject(name, args[value_at])
        return function(*args, **kwargs)

    return call


class MemoryGenerator(BoundedGenerator):
    """Jinja's compiler, which charges the values of expressions and the pieces of output."""

    summands = 2

    def write_commons(self) -> None:
        """Begin a function."""
        super().write_commons()
        self.writeline("concat = lambda pieces: meter.joined(environment.concat, pieces)")

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - Jinja's
        """Write a node."""
        charge, end = _charge_of(node)
        self.write(charge)
        made = super().visit(node, *args, **kwargs)
        self.write(end)
        return made

    def _output_const_repr(self, group: Iterable[Any]) -> str:
        """Write a piece of own text."""
        return f"meter.piece({super()._output_const_repr(group)})"

    def _output_child_pre(self, node: nodes.Expr, frame: Frame, finalize: CodeGenerator._FinalizeInfo) -> None:
        """Begin a piece of output."""
        self.write("meter.piece(")
        super()._output_child_pre(node, frame, finalize)

    def _output_child_post(self, node: nodes.Expr, frame: Frame, finalize: CodeGenerator._FinalizeInfo) -> None:
        """End a piece of output."""
        super()._output_child_post(node, frame, finalize)
        self.write(")")

    def start_write(self, frame: Frame, node: nodes.Node | None = None) -> None:
        """Begin the output of a call, a filter block or a recursive loop."""
        super().start_write(frame, node)
        self.write("meter.piece(")

    def end_write(self, frame: Frame) -> None:
        """End what :meth:`start_write` began."""
        self.write(")")
        super().end_write(frame)


def _charge_of(node: nodes.Node) -> tuple[str, str]:
    """Return the code before and behind an expression whose value is charged."""
    if getattr(node, "ctx", "load") != "load":
        return "", ""
    if isinstance(node, _OPERATORS) and not isinstance(node, nodes.And | nodes.Or):
        return "meter.made(", ")"
    if isinstance(node, _LITERALS):
        return "meter.made(", f", {len(node.items)})"
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
        return "meter.made(", ")"
    if isinstance(node, nodes.Filter) and node.name not in _CHOOSING and not node.name.startswith(" "):
        return "meter.given(", ")"
    return "", ""


class MemoryEnvironment(BoundedEnvironment):
    """Jinja's immutable sandbox, within bounds, also of the memory that values take."""

    code_generator_class = MemoryGenerator

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - Jinja's own options
        super().__init__(**options)
        filters = cast("dict[str, Callable[..., object]]", self.filters)
        for name in _LONGEST.keys() & filters.keys():
            filters[name] = _checked(filters[name], name)

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - Jinja's
        """Call a function or method."""
        subject = getattr(function, "__self__", None)
        if isinstance(subject, str):
            check_subject(function.__name__, subject)
        made = super().call(context, function, *args, **kwargs)
        if kind_of(function) is BuiltinMethodType and isinstance(subject, dict) and function.__name__ == "get":
            return made
        meter = cast("MemoryMeter", self.meter(context))
        if made is not None and kind_of(made) is not bool:
            # A namespace and the like hold their arguments.
            meter.charge(_ITEM * (len(args) + len(kwargs)))
        return meter.given(made)

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
        return made if context is None else cast("MemoryMeter", self.meter(context)).given(made)
