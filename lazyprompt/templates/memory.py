"""The memory that a template of a prompt file or an instruction may take, and how it is counted.

Each value that an expression makes is charged to one budget:

- :meth:`MemoryMeter.made`: the value of an operator;
- :meth:`MemoryMeter.listed`: a list, tuple or dict that is written out, with its items;
- :meth:`MemoryMeter.given`: the value of a filter or call, with the items in it;
- :meth:`MemoryMeter.kept`: a piece of text in a buffer, until :meth:`MemoryMeter.joined` makes one text of them.

A long text or list gives its size back when Python frees it, and the pieces of a buffer when they are joined: a loop
that makes a text longer and longer holds one of them at a time. Nothing else is given back. So a template that makes
many short values and keeps none of them pays for all, which loops of many thousand rounds can afford. Output that is in
no buffer is bounded where it is read.

What a filter or method takes while it works is not charged; its subject is bounded by :func:`check_subject`.
"""

from __future__ import annotations

from collections.abc import Sized
from functools import wraps
from sys import getsizeof
from types import BuiltinMethodType
from typing import TYPE_CHECKING, Any, Self, cast

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from markupsafe import Markup

from lazyprompt.templates.bounds import MAX_OPERAND, MAX_OUTPUT, Meter, check_items, check_length, kind_of, weigh
from lazyprompt.templates.sandbox import BoundedEnvironment, BoundedGenerator

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from jinja2.compiler import Frame, MacroRef
    from jinja2.nodes import EvalContext
    from jinja2.runtime import Context

MAX_KEPT = 200_000_000
"""The bytes that the values of one rendering may take."""

MAX_TEXT = 5_000_000
"""The longest text that an expression may make, in characters."""

# Texts and lists longer than this give their size back.
_LONG = 2000
# The bytes of a short value in a list or dict, and of a value of any other kind, such as a loop or a macro.
_ITEM, _OTHER = 100, 1000
# The bytes of an empty piece of text, and of a character.
_PIECE, _CHARACTER = 64, 4
_CONTAINERS = (list, tuple, dict)
_SIMPLE = frozenset((str, int, float, bool, type(None)))
_SIZED = frozenset((str, Markup, list, tuple))
_PLAIN = _SIMPLE.union(_CONTAINERS)
# After this many charges the clock is asked.
_CHARGES = 100
# The longest subject of filters and methods: of those that list items or characters, of those that list words or lines,
# and of those that write several characters for one.
_LISTING = frozenset(("batch", "groupby", "list", "slice", "sort", "unique"))
_LONGEST = {
    **dict.fromkeys(_LISTING, 200_000),
    **dict.fromkeys(("expandtabs", "indent", "pprint", "rsplit", "split", "splitlines", "striptags"), 2_000_000),
    **dict.fromkeys(("title", "urlize", "wordcount", "wordwrap"), 2_000_000),
    **dict.fromkeys(("e", "escape", "forceescape", "tojson", "upper", "urlencode", "xmlattr"), MAX_TEXT),
}
# Filters that hold a copy of their subject while a template goes through what they give.
_COPYING = ("batch", "slice", "unique")
# Filters that give a value that is there, or a small number.
_CHOOSING = frozenset(("attr", "count", "d", "default", "first", "last", "length", "max", "min"))
# Operators whose values are charged; those that compare give no more than True or False.
_OPERATORS = (nodes.BinExpr, nodes.Concat, nodes.Neg, nodes.Pos)
_LITERALS = (nodes.Dict, nodes.List, nodes.Tuple)


class _LongText(str):
    """A text that is charged to a meter until it is freed."""

    __slots__ = ("_meter", "_size")
    _meter: MemoryMeter
    _size: int

    def __new__(cls, text: str, meter: MemoryMeter) -> Self:
        """Copy a text and charge it."""
        made = super().__new__(cls, text)
        made._meter, made._size = meter, getsizeof(made)
        meter.charge(made._size)
        return made

    def __del__(self) -> None:
        self._meter.release(self._size)


class _LongList(list[Any]):
    """A list that is charged to a meter until it is freed."""

    __slots__ = ("_meter", "_size")

    def __init__(self, items: list[Any], meter: MemoryMeter) -> None:
        """Copy a list and charge it."""
        super().__init__(items)
        self._meter, self._size = meter, getsizeof(self)
        meter.charge(self._size)

    def __del__(self) -> None:
        self._meter.release(self._size)


# The names that errors of Python and Jinja show.
_LongText.__name__, _LongText.__module__ = "str", "builtins"
_LongList.__name__, _LongList.__module__ = "list", "builtins"


class MemoryMeter(Meter):
    """A count of what one rendering has cost and what its values take."""

    __slots__ = ("_bytes", "_charges")

    def __init__(self, most: int, numbers: int) -> None:
        super().__init__(most, numbers)
        self._bytes = self._charges = 0

    def charge(self, size: int) -> None:
        """Charge a number of bytes.

        Raises:
            SecurityError: The values take too much, or the rendering takes too long.
        """
        self._bytes += size
        if self._bytes > MAX_KEPT:
            raise SecurityError(f"the template keeps more than {MAX_KEPT} bytes")
        self._charges += 1
        if size > _LONG or self._charges > _CHARGES:
            self._charges = 0
            self.look_at_clock()

    def release(self, size: int) -> None:
        """Give back a number of bytes that were charged."""
        self._bytes -= size

    def made(self, value: Any) -> Any:  # noqa: ANN401 - of the kind that was given
        """Charge the value of an operator.

        Returns:
            The value; a long text or list as one that gives its size back.

        Raises:
            SecurityError: The value is too long, or the values take too much.
        """
        kind = kind_of(value)
        if kind in _SIZED and len(value) > _LONG:
            check_length(len(value), MAX_OPERAND if kind is list or kind is tuple else MAX_TEXT)
            if kind is str:
                return _LongText(value, self)
            if kind is list:
                return _LongList(value, self)
        self.charge(getsizeof(value))
        return value

    def listed(self, value: Any) -> Any:  # noqa: ANN401 - of the kind that was given
        """Charge a list, tuple or dict that is written out, with its items.

        Raises:
            SecurityError: The values take too much; or there are too many lists in lists.
        """
        items: Collection[object] = value.values() if kind_of(value) is dict else value
        self.charge(getsizeof(value))
        self.held(items)
        if any(isinstance(item, _CONTAINERS) for item in items):
            check_items(value)
        return value

    def held(self, items: Collection[object]) -> None:
        """Charge the items that something holds."""
        self.charge(sum([_ITEM if kind_of(item) in _PLAIN else _OTHER for item in items]))

    def given(self, value: Any) -> Any:  # noqa: ANN401 - of the kind that was given
        """Charge the value that a filter or call gave, with the items that may be new.

        Returns:
            The value, as :meth:`made` has it.

        Raises:
            SecurityError: The value is too long, or the values take too much.
        """
        kind = kind_of(value)
        if kind in _SIMPLE:
            return self.made(value)
        level: list[Any] = [value] if issubclass(kind, _CONTAINERS) else []
        while level:
            inside: list[Any] = []
            for many in level:
                self.charge(getsizeof(many) + _ITEM * len(many))
                items: list[Any] = [*many, *many.values()] if isinstance(many, dict) else many
                self.charge(sum([getsizeof(item) for item in items if isinstance(item, str)]))
                inside += [item for item in items if isinstance(item, _CONTAINERS)]
            level = inside
        if kind in _SIZED:
            return self.made(value)
        self.charge(_OTHER + getsizeof(value))
        return value

    def kept(self, text: str) -> str:
        """Charge a piece of text that is put aside.

        Raises:
            SecurityError: The pieces are too long together, or the values take too much.
        """
        # Each piece comes here: no calls.
        length = len(text)
        self._made += length
        self._bytes += _PIECE + _CHARACTER * length
        if self._made > MAX_OUTPUT or self._bytes > MAX_KEPT:
            check_length(self._made)
            self.charge(0)
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
        self.release(_PIECE * len(pieces) + _CHARACTER * len(text))
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
    if name not in _LONGEST:
        return
    most = _LONGEST[name]
    if not isinstance(subject, str):
        if name not in _LISTING:
            length = weigh(subject)
        elif isinstance(subject, Sized):
            length, most = len(subject), MAX_OPERAND
        else:
            return
    else:
        length = len(subject)
    if length > most:
        raise SecurityError(f"{name} takes no more than {most} characters or items")


def _checked(function: Callable[..., Any], name: str) -> Callable[..., object]:
    """Return a filter that checks the length of its subject."""
    value_at = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def call(*args: object, **kwargs: object) -> object:
        check_subject(name, args[value_at])
        made = function(*args, **kwargs)
        return list(made) if name in _COPYING else made

    return call


class MemoryGenerator(BoundedGenerator):
    """Jinja's compiler, which charges the values of expressions and the pieces of output."""

    _in_buffer = False

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

    def visit_Output(self, node: nodes.Output, frame: Frame) -> None:  # noqa: N802 - the name is Jinja's
        """Write output."""
        self._in_buffer = frame.buffer is not None
        super().visit_Output(node, frame)

    def _output_const_repr(self, group: Iterable[Any]) -> str:
        """Write a piece of own text."""
        code = super()._output_const_repr(group)
        return f"meter.kept({code})" if self._in_buffer else code

    def macro_def(self, macro_ref: MacroRef, frame: Frame) -> None:
        """Write a macro."""
        self.write("meter.given(")
        super().macro_def(macro_ref, frame)
        self.write(")")

    def start_write(self, frame: Frame, node: nodes.Node | None = None) -> None:
        """Begin the output of a call, a filter block or a recursive loop."""
        super().start_write(frame, node)
        if frame.buffer is not None:
            self.write("meter.kept(")

    def end_write(self, frame: Frame) -> None:
        """End what :meth:`start_write` began."""
        if frame.buffer is not None:
            self.write(")")
        super().end_write(frame)


def _charge_of(node: nodes.Node) -> tuple[str, str]:
    """Return the code before and behind an expression whose value is charged."""
    if getattr(node, "ctx", "load") != "load":
        return "", ""
    if isinstance(node, _OPERATORS) and not isinstance(node, nodes.And | nodes.Or):
        return "meter.made(", ")"
    if isinstance(node, _LITERALS):
        return "meter.listed(", ")"
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
        if args or kwargs:
            # A namespace and the like hold them.
            meter.held((*args, *kwargs.values()))
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
