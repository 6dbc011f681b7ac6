"""The environment of Jinja for prompt files and instructions: it tells values from own text, and counts their memory.

The size of each value that an expression makes is added up. Long texts and lists are held until the sum reaches the
limit: those that nothing else holds are then taken off, so that a loop that makes a text longer and longer pays for one
of them. Short values are not taken off. Own text and values in a buffer are bounded by their characters, and output
that is in no buffer where it is read.

Memory that a filter or method takes while it works is not counted; its subject is bounded by :func:`check_subject`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence, Sized
from functools import lru_cache, partial, wraps
from sys import getrefcount, getsizeof
from types import BuiltinMethodType
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from jinja2 import ChainableUndefined, StrictUndefined, nodes, pass_eval_context
from jinja2.exceptions import SecurityError
from jinja2.filters import make_attrgetter
from markupsafe import Markup

from lazyprompt._base.json import JsonText
from lazyprompt._base.trusted import Trusted
from lazyprompt.templates.bounds import MAX_OPERAND, Meter, check_items, check_length, kind_of, size_of
from lazyprompt.templates.sandbox import BoundedEnvironment, BoundedGenerator
from lazyprompt.templates.slots import JsonValue, Opaque, TrustedValue, Value, value_text

if TYPE_CHECKING:
    from jinja2.compiler import CodeGenerator, Frame, MacroRef
    from jinja2.nodes import EvalContext
    from jinja2.runtime import Context

_T = TypeVar("_T")

MAX_KEPT = 200_000_000
"""The bytes that the values of one rendering may take."""

MAX_TEXT = 5_000_000
"""The longest text that an expression may make, in characters."""

# Texts and lists of more bytes are held, and looked through when so many bytes were made since the last time.
_LONG, _MADE = 2000, 20_000_000
# The bytes of a short value in a list or dict, and of a value of any other kind, such as a loop or a macro.
_ITEM, _OTHER = 100, 1000
_CONTAINERS = (list, tuple, dict)
_LONGEST_MADE: dict[type[object], int] = {
    **dict.fromkeys((str, Markup), MAX_TEXT),
    **dict.fromkeys((list, tuple), MAX_OPERAND),
}
_HELD = (str, list)
_NEW = (str, *_CONTAINERS)
_PLAIN = frozenset((str, int, float, bool, type(None), *_CONTAINERS))
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
# An expression without these has no value in it.
_LOOKING = (nodes.Name, nodes.Call)

NAMED: Final = " named"
"""A filter of ours, by a name that no template can write: the value of a name."""


class MemoryMeter(Meter):
    """A count of what one rendering has cost and what its values take."""

    __slots__ = ("_bytes", "_held", "_limit")

    def __init__(self, most: int, numbers: int) -> None:
        super().__init__(most, numbers)
        self._bytes, self._limit = 0, _MADE
        # Long values by their addresses. The first is one that nothing else holds, to compare the others with.
        self._held: dict[int, object] = {0: object()}

    def _charge(self, size: int) -> None:
        self._bytes += size
        if self._bytes > self._limit:
            self._take_off()

    def _take_off(self) -> None:
        """Take off the long values that nothing else holds.

        Raises:
            SecurityError: The others take too much.
        """
        gone: list[int] = [0]
        # A list that goes may have been the last to hold others.
        while gone:
            counts = {at: getrefcount(value) for at, value in self._held.items()}
            gone = [at for at, count in counts.items() if at and count <= counts[0]]
            self._bytes -= sum([getsizeof(self._held.pop(at)) for at in gone])
        if self._bytes > MAX_KEPT:
            raise SecurityError(f"the template keeps more than {MAX_KEPT} bytes")
        self._limit = self._bytes + _MADE

    def _add(self, value: object) -> None:
        size = getsizeof(value)
        if size > _LONG and kind_of(value) in _HELD:
            if id(value) in self._held:
                return
            self._held[id(value)] = value
        self._charge(size)

    def made(self, value: _T) -> _T:
        """Count the value of an operator, and return it.

        Raises:
            SecurityError: It is too long, the values take too much, or the rendering takes too long.
        """
        self._check(value)
        self._add(value)
        return value

    def _check(self, value: object) -> None:
        most = _LONGEST_MADE.get(kind_of(value))
        if most and len(cast("Sized", value)) > _LONG:
            self.look_at_clock()
            check_length(len(cast("Sized", value)), most)

    def listed(self, value: _T) -> _T:
        """Count a list, tuple or dict that is written out, with its items, and return it.

        Raises:
            SecurityError: As of :meth:`made`; or there are too many lists in lists.
        """
        many = cast("dict[object, object] | list[object]", value)
        items: Collection[object] = many.values() if isinstance(many, dict) else many
        self.holds(items)
        if any(isinstance(item, _CONTAINERS) for item in items):
            check_items(value)
        return self.made(value)

    def holds(self, items: Collection[object]) -> None:
        """Count the places of items that something holds."""
        self._charge(sum([_ITEM if kind_of(item) in _PLAIN else _OTHER for item in items]))

    def given(self, value: _T) -> _T:
        """Count the value that a filter or call gave, with the items that may be new, and return it.

        Raises:
            SecurityError: As of :meth:`made`.
        """
        self.look_at_clock()
        self._check(value)
        if kind_of(value) not in _PLAIN:
            self._charge(_OTHER)
        waiting: list[Any] = [value]
        while waiting:
            one: Any = waiting.pop()
            self._add(one)
            if issubclass(kind_of(one), _CONTAINERS):
                items: list[Any] = [*one, *one.values()] if hasattr(one, "values") else one
                self._charge(_ITEM * len(items))
                waiting += [item for item in items if issubclass(kind_of(item), _NEW)]
        return value

    def filtered(self, value: _T) -> _T:
        """Count the value of a filter that ``map`` names, and return it."""
        return self.given(super().filtered(value))


def check_subject(name: str, subject: object) -> None:
    """Refuse a subject for which a filter or method would take many times its memory.

    Args:
        name: The name of the filter or method.
        subject: The value that it is applied to.

    Raises:
        SecurityError: It is too long.
    """
    most = _LONGEST.get(name)
    if most is None:
        return
    if isinstance(subject, str):
        length = len(subject)
    elif name not in _LISTING:
        length = size_of(subject)
    elif isinstance(subject, Sized):
        length, most = len(subject), MAX_OPERAND
    else:
        return
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


class _Generator(BoundedGenerator):
    """Jinja's compiler, which counts the values of expressions and the pieces of buffers.

    Jinja writes the output of filter blocks, call blocks and recursive loops as it is; here it is a value too: it would
    count as the template's own text.
    """

    _in_buffer = False

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - Jinja's
        """Write a node."""
        count = _count_of(node)
        if count is None:
            return super().visit(node, *args, **kwargs)
        self.write(f"meter.{count}(")
        made = super().visit(node, *args, **kwargs)
        self.write(")")
        return made

    def visit_Output(self, node: nodes.Output, frame: Frame) -> None:
        """Write output."""
        self._in_buffer = frame.buffer is not None
        super().visit_Output(node, frame)

    def _output_child_pre(self, node: nodes.Expr, frame: Frame, finalize: CodeGenerator._FinalizeInfo) -> None:
        """Begin the writing of a value, or of own text."""
        if not isinstance(node, _LOOKING) and next(node.find_all(_LOOKING), None) is None:
            finalize = finalize._replace(src="environment.own_text(")
        super()._output_child_pre(node, frame, finalize)

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
        self.write("environment.finalize(" if frame.buffer is None else "meter.kept(environment.finalize(")

    def end_write(self, frame: Frame) -> None:
        """End what :meth:`start_write` began."""
        self.write(")" if frame.buffer is None else "))")
        super().end_write(frame)


def _count_of(node: nodes.Node) -> str | None:
    """Return the method that counts the value of an expression."""
    if getattr(node, "ctx", "load") != "load":
        return None
    if isinstance(node, _LITERALS):
        return "listed"
    if isinstance(node, nodes.Filter):
        return None if node.name in _CHOOSING or node.name.startswith(" ") else "given"
    is_slice = isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
    return "made" if is_slice or (isinstance(node, _OPERATORS) and not isinstance(node, nodes.And | nodes.Or)) else None


class ValueEnvironment(BoundedEnvironment):
    """Jinja's immutable sandbox, within bounds, also of the memory that values take."""

    code_generator_class = _Generator

    def __init__(self, **options: Any) -> None:
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
        if isinstance(function, BuiltinMethodType) and isinstance(subject, dict) and function.__name__ == "get":
            return made
        meter = cast("MemoryMeter", self.meter(context))
        if args or kwargs:
            # A namespace and the like hold them.
            meter.holds((*args, *kwargs.values()))
        return meter.given(made)

    def own_text(self, value: object) -> str:
        """Return the text of an expression of constants, which is the template's own."""
        return str.__str__(cast("Callable[[object], str]", self.finalize)(value))


def portable(value: object) -> object:
    """Return a scalar as the text that a template prints in every language: ``true``, ``1``, nothing for None.

    Source: Prompty's Jinja subset, section 10.2, rows 1 to 4.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    # Zero is added because a negative zero is written without its sign.
    return float.__repr__(value + 0.0).removesuffix(".0") if isinstance(value, float) else value


def finalize(value: object, source: str = "", scalar: Callable[[object], object] | None = None) -> Value:
    """Turn the value of an expression into output; Jinja calls this for each expression.

    Args:
        value: The value.
        source: The name that the expression is.
        scalar: The text of a scalar; None writes it as ``str()`` does.
    """
    value = scalar(value) if scalar else value
    if isinstance(value, Value):
        return value
    if isinstance(value, Opaque):
        return Value("", source, value)
    if isinstance(value, ChainableUndefined):
        return Value("", source)
    if not isinstance(value, str):
        size_of(value)
    text = value_text(value, source or "a Jinja expression")
    check_length(len(text))
    kind = JsonValue if isinstance(text, JsonText) else TrustedValue if isinstance(text, Trusted) else Value
    return kind(text, source)


class _PortableEnvironment(ValueEnvironment):
    """An environment whose ``~`` and text filters write scalars by :func:`portable`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        filters = cast("dict[str, Callable[..., object]]", self.filters)
        for name in ("capitalize", "lower", "replace", "string", "title", "trim", "upper"):
            filters[name] = _of_portable(filters[name])
        join = filters["join"]

        @pass_eval_context
        def join_portable(
            context: EvalContext, values: Iterable[object], d: object = "", attribute: str | None = None
        ) -> object:
            values = values if attribute is None else map(make_attrgetter(self, attribute), values)
            return join(context, list(map(portable, values)), portable(d))

        filters["join"] = join_portable

    @staticmethod
    def joined(values: Sequence[object]) -> str:
        """Concatenate the operands of ``~``."""
        return ValueEnvironment.joined(tuple(map(portable, values)))


def _of_portable(function: Callable[..., object]) -> Callable[..., object]:
    """Return a text filter whose subject and arguments are text by :func:`portable`."""
    at = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def call(*args: object, **kwargs: object) -> object:
        return function(*args[:at], portable(args[at]), *args[at + 1 :], **kwargs)

    return call


@lru_cache(maxsize=4)
def environment_of(*, lenient: bool, is_portable: bool) -> ValueEnvironment:
    """The environment that all templates of a kind share; nothing ever changes it."""
    undefined = ChainableUndefined if lenient else StrictUndefined
    shown = partial(finalize, scalar=portable) if is_portable else finalize
    kind = _PortableEnvironment if is_portable else ValueEnvironment
    made = kind(undefined=undefined, finalize=shown, keep_trailing_newline=True)
    made.filters[NAMED] = shown
    return made
