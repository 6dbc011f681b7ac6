"""Jinja in a sandbox that bounds what a template can cost: steps, time, sizes, numbers.

Jinja's own sandbox keeps a template from everything but its data. Its operators, filters and methods could still be
made to fill the memory (``'x'|center(10**9)``) or never to end (loops in loops): these are what this module bounds.
Which dialect of Jinja is spoken within these bounds, the modules that use it decide.

To look after a template takes time, and reading plain data takes more of it in Jinja's sandbox than it must. So what is
done most often is written as Python that does it directly where the data is plain: see :class:`BoundedGenerator`.
"""

from __future__ import annotations

from functools import partial, wraps
from itertools import chain
from types import BuiltinMethodType, MethodType
from typing import TYPE_CHECKING, Any, cast

from jinja2 import nodes, pass_context
from jinja2.compiler import CodeGenerator, optimizeconst
from jinja2.exceptions import SecurityError, TemplateRuntimeError
from jinja2.runtime import LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from lazyprompt.text.bounds import (
    MAX_EXPONENT,
    MAX_OPERAND,
    MAX_OUTPUT,
    MAX_RANGE,
    MAX_STEPS,
    PORTION,
    Meter,
    brace_specs,
    check_arguments,
    check_format,
    check_length,
    check_number,
    check_writing,
    listed,
    percent_specs,
    weigh,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence

    from jinja2.compiler import Frame
    from jinja2.nodes import EvalContext
    from jinja2.runtime import Context

# What an expression may raise: Jinja's own errors, and those of the operators and methods of plain data.
FAILURES = (
    *(TemplateRuntimeError, TypeError, ValueError, ArithmeticError),
    *(LookupError, AttributeError, RecursionError, MemoryError),
)

# How a rendering counts its steps: a name no template can write.
_METER = " meter"
_COUNTED = " counted"
# Filters that grow their subject, or write all of it as text.
_GROWING = (
    *("batch", "capitalize", "center", "e", "escape", "forceescape", "format", "indent", "join", "lower", "pprint"),
    *("replace", "round", "slice", "string", "striptags", "sum", "title", "tojson", "trim", "truncate", "upper"),
    *("urlencode", "urlize", "wordcount", "wordwrap", "xmlattr"),
)
# Those that are no more than a method where their subject is text, or leave it as it is.
_OF_TEXT = {"lower": ".lower()", "string": "", "trim": ".strip()", "upper": ".upper()"}
# Methods that make nothing longer than what there is, by the type that has them.
_HARMLESS = {
    **dict.fromkeys(("get", "items", "keys", "values"), dict),
    **dict.fromkeys(("count", "endswith", "find", "index", "isalnum", "isalpha", "isdecimal", "isdigit"), str),
    **dict.fromkeys(("islower", "isnumeric", "isspace", "istitle", "isupper", "lstrip", "partition"), str),
    **dict.fromkeys(("removeprefix", "removesuffix", "rfind", "rindex", "rpartition", "rsplit", "rstrip"), str),
    **dict.fromkeys(("split", "splitlines", "startswith", "strip"), str),
}
# All that Python gives these types: under any other name there is nothing but an item, if that.
_OF_DICT, _OF_STR = frozenset(dir(dict)), frozenset(dir(str))
# What may be read with no further question.
_READABLE: dict[type, frozenset[str]] = {
    dict: frozenset(name for name, owner in _HARMLESS.items() if owner is dict),
    str: frozenset(name for name, owner in _HARMLESS.items() if owner is str),
    LoopContext: frozenset(
        ("depth", "depth0", "first", "index", "index0", "last", "length", "nextitem", "previtem", "revindex", "revindex0")
    ),
}
_METHODS = (BuiltinMethodType, MethodType)
# What has a length that counts, and what a loop may go over in portions.
_LONG = (str, list, tuple, bytes)
_PORTIONED = frozenset((list, tuple, str, range))
# How many values a sum is made of before it is looked at: that is how many times too long it may be for a moment.
_SUMMANDS = 4


def said(error: BaseException) -> str:
    """What an error says; with its kind where that alone would be no sentence.

    Args:
        error: The error.

    Returns:
        Its text.
    """
    text = str(error)
    return f"{type(error).__name__} {text}".rstrip() if isinstance(error, LookupError) or not text else text


class BoundedGenerator(CodeGenerator):
    """Jinja's compiler, which writes ``~`` and ``+`` within bounds, and what is done most often without detours.

    Each of the forms below asks for the exact type of a value and does what Jinja would have done with it in the end;
    everything else, a text of a kind of its own too, goes to the method of the environment. ``t_0`` holds the value
    just long enough: nothing is evaluated between its being set and its being used.
    """

    # The sum that is about to be shown.
    _shown: nodes.Expr | None = None

    @optimizeconst
    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802 - the name is Jinja's
        """Write ``~`` as a call that looks at the length."""
        self.write("environment.joined((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    @optimizeconst
    def visit_Add(self, node: nodes.Add, frame: Frame) -> None:  # noqa: N802 - the name is Jinja's
        """Write a chain of ``+`` as Python has it: ``environment.summed(a + b + c)``.

        What is shown at once is ``(a + b + c)``: whoever takes the output looks at the length of each piece. With a
        number in it nothing becomes longer.
        """
        first: nodes.Expr = node.left
        rest = [node.right]
        while isinstance(first, nodes.Add) and sum(not isinstance(one, nodes.Const) for one in rest) < _SUMMANDS - 1:
            rest.insert(0, first.right)
            first = first.left
        number = any(isinstance(one, nodes.Const) and not isinstance(one.value, _LONG) for one in (first, *rest))
        self.write("(" if node is self._shown or number else "environment.summed(")
        self.visit(first, frame)
        for one in rest:
            self.write(" + ")
            self.visit(one, frame)
        self.write(")")

    @optimizeconst
    def visit_Getattr(self, node: nodes.Getattr, frame: Frame) -> None:  # noqa: N802 - the name is Jinja's
        """Write ``x.a``; where a dict has no attribute of the name, it is the item: see :meth:`_write_item`."""
        if node.attr in _OF_DICT:
            super().visit_Getattr(node, frame)
        else:
            self._write_item(node.node, node.attr, "getattr", frame)

    @optimizeconst
    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:  # noqa: N802 - the name is Jinja's
        """Write ``x['a']``: see :meth:`_write_item`."""
        if isinstance(node.arg, nodes.Const) and type(node.arg.value) is str:
            self._write_item(node.node, node.arg.value, "getitem", frame)
        else:
            super().visit_Getitem(node, frame)

    def _write_item(self, value: nodes.Expr, key: str, otherwise: str, frame: Frame) -> None:
        """``(t_0['a'] if type(t_0 := x) is dict and 'a' in t_0 else environment.getitem(t_0, 'a'))``."""
        self.write(f"(t_0[{key!r}] if type(t_0 := ")
        self.visit(value, frame)
        self.write(f") is dict and {key!r} in t_0 else environment.{otherwise}(t_0, {key!r}))")

    @optimizeconst
    def visit_Call(self, node: nodes.Call, frame: Frame, forward_caller: bool = False) -> None:  # noqa: FBT001, FBT002, N802 - Jinja's
        """Write a call; that of a method that needs no looking after directly.

        ``x.strip(a)`` becomes ``(t_0.strip if type(t_0 := x) is str else environment.method(context, t_0, 'strip'))(a)``.
        """
        method = node.node
        if (
            not isinstance(method, nodes.Getattr)
            or method.attr not in _HARMLESS
            or node.kwargs
            or node.dyn_args
            or node.dyn_kwargs
        ):
            super().visit_Call(node, frame, forward_caller=forward_caller)
            return
        scopes = {"_loop_vars": frame.loop_frame, "_block_vars": frame.block_frame}
        given = "".join(f", {name}={name}" for name, there in scopes.items() if there)
        self.write(f"(t_0.{method.attr} if type(t_0 := ")
        self.visit(method.node, frame)
        self.write(f") is {_HARMLESS[method.attr].__name__} else ")
        self.write(f"environment.method(context, t_0, {method.attr!r}{given}))(")
        for argument in node.args:
            self.visit(argument, frame)
            self.write(", ")
        self.write(")")

    @optimizeconst
    def visit_Filter(self, node: nodes.Filter, frame: Frame) -> None:  # noqa: N802 - the name is Jinja's
        """Write a filter; ``x|trim`` as ``(t_0.strip() if type(t_0 := x) is str else t_1(t_0))``."""
        if node.node is None or node.name not in _OF_TEXT or node.args or node.kwargs or node.dyn_args or node.dyn_kwargs:
            super().visit_Filter(node, frame)
            return
        self.write(f"(t_0{_OF_TEXT[node.name]} if type(t_0 := ")
        self.visit(node.node, frame)
        self.write(f") is str else {self.filters[node.name]}(t_0))")

    def _output_child_pre(self, node: nodes.Expr, frame: Frame, finalize: CodeGenerator._FinalizeInfo) -> None:
        """Begin what shows a value: ``(t_0 if type(t_0 := x) is str else environment.shown(t_0))``."""
        self._shown = node if frame.buffer is None else None
        if finalize.src is None:
            self.write("(t_0 if type(t_0 := ")
        else:
            super()._output_child_pre(node, frame, finalize)

    def _output_child_post(self, node: nodes.Expr, frame: Frame, finalize: CodeGenerator._FinalizeInfo) -> None:
        """End what :meth:`_output_child_pre` began."""
        if finalize.src is None:
            self.write(") is str else environment.shown(t_0))")
        else:
            super()._output_child_post(node, frame, finalize)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's immutable sandbox, within bounds."""

    code_generator_class = BoundedGenerator
    intercepted_binops = frozenset({"*", "**", "%"})

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - Jinja's own options
        super().__init__(**options)
        filters = cast("dict[str, Callable[..., object]]", self.filters)
        # The same prompt gives the same bytes each time: these two do not.
        del self.globals["lipsum"], filters["random"]
        for name in _GROWING:
            filters[name] = bounded(filters[name], name)
        filters[_COUNTED] = _counted

    def make_globals(self, d: MutableMapping[str, Any] | None) -> MutableMapping[str, Any]:
        """The variables that all renderings of a template have: a dict, which is copied sooner than Jinja's chain."""
        return {**self.globals, **(d or {})}

    @staticmethod
    def concat(pieces: Iterable[str]) -> str:
        """The text of a template, block, macro or call, out of its pieces."""
        if isinstance(pieces, list):
            check_length(sum(map(len, cast("list[str]", pieces))))
            return "".join(cast("list[str]", pieces))
        texts: list[str] = []
        length = 0
        for piece in pieces:
            length += len(piece)
            if length > MAX_OUTPUT:
                check_length(length)
            texts.append(piece)
        return "".join(texts)

    @staticmethod
    def joined(values: Sequence[object]) -> str:
        """What ``~`` gives."""
        length = 0
        for value in values:
            length += len(value) if isinstance(value, str) else weigh(value)
        check_length(length)
        return "".join(map(str, values))

    def summed(self, total: object) -> object:
        """What a chain of ``+`` gave."""
        if isinstance(total, _LONG) and len(cast("Sequence[object]", total)) > MAX_OUTPUT:
            check_length(len(cast("Sequence[object]", total)))
        return total

    def shown(self, value: object) -> str:
        """The text of a value that is to be shown; plain text shows itself."""
        if not isinstance(value, str):
            weigh(value)
        return str(value)

    def getattr(self, obj: Any, attribute: str) -> Any:  # noqa: ANN401 - Jinja's
        """Give ``x.a``, or what stands for its absence: what Jinja gives, sooner where it is plain data."""
        kind = cast("type[object]", type(obj))
        if kind is dict:
            if attribute not in _OF_DICT:
                return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        elif kind is str:
            if attribute not in _OF_STR:
                return self.undefined(obj=obj, name=attribute)
        elif isinstance(obj, Namespace) and not attribute.startswith("_"):
            value = object.__getattribute__(obj, "_Namespace__attrs").get(attribute, _METHODS)
            # Jinja wants to see methods: they may be those that format text.
            if value is not _METHODS and not isinstance(value, _METHODS):
                return value
        if attribute in _READABLE.get(kind, ()):
            return getattr(obj, attribute)
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:  # noqa: ANN401 - Jinja's
        """Give ``x[a]``, or what stands for its absence: what Jinja gives, sooner where it is plain data."""
        if type(argument) is str:
            kind = cast("type[object]", type(obj))
            if (kind is str and argument not in _OF_STR) or (
                kind is dict and argument not in _OF_DICT and argument not in obj
            ):
                return self.undefined(obj=obj, name=argument)
        try:
            return obj[argument]
        except (TypeError, LookupError):
            return super().getitem(obj, argument)

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        """Calculate ``*``, ``**`` and ``%``, within bounds."""
        if isinstance(left, int) and isinstance(right, int):
            check_number(operator, left, right)
        elif operator == "**" and isinstance(right, (int, float)) and abs(right) > MAX_EXPONENT:
            raise SecurityError(f"'**' takes exponents up to {MAX_EXPONENT}")
        elif operator == "%" and isinstance(left, str):
            arguments = cast("tuple[object, ...]", right) if isinstance(right, tuple) else (right,)
            check_format("%", percent_specs(left), arguments)
        elif operator == "*":
            operands = (left, right)
            sizes = [len(cast("Sequence[object]", one)) for one in operands if isinstance(one, _LONG)]
            times = max((one for one in operands if isinstance(one, int)), default=1)
            check_length(max(sizes, default=0) * times, MAX_OPERAND)
        return cast("object", super().call_binop(context, operator, left, right))

    def method(self, context: Context, subject: object, name: str, **scopes: object) -> Callable[..., object]:
        """A method of what is no plain text or dict, to be called like everything else."""
        return partial(self.call, context, self.getattr(subject, name), **scopes)

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - Jinja's
        """Call what a template calls, methods of data within bounds; each call is a step."""
        _meter(context).step()
        if type(function) is Macro:
            # What Jinja finds out about it in several steps. It has its own variables, and needs none of the loop's.
            kwargs.pop("_loop_vars", None)
            kwargs.pop("_block_vars", None)
            return function(context.eval_ctx, *args, **kwargs)
        # Jinja wraps the format methods of text in one of its own.
        subject = getattr(getattr(function, "__wrapped__", function), "__self__", None)
        if isinstance(subject, (str, int, float, bytes)):
            name = str(function.__name__)
            if name == "translate" or (isinstance(subject, bytes) and name != "decode"):
                raise SecurityError(f"{name} is not for templates; use replace")
            if isinstance(subject, str) and name == "join" and args:
                args = (listed(args[0], len(subject)), *args[1:])
            elif isinstance(subject, str) and name in ("format", "format_map"):
                check_format("format", brace_specs(subject), (*args, *kwargs.values()))
            check_arguments(name, subject, (*args, *kwargs.values()))
        elif isinstance(function, LoopContext) and args:
            # The next level of a recursive loop.
            args = (_counted(context, args[0]), *args[1:])
        return super().call(context, function, *args, **kwargs)

    def call_filter(
        self,
        name: str,
        value: Any,  # noqa: ANN401 - Jinja's
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        context: Context | None = None,
        eval_ctx: EvalContext | None = None,
    ) -> Any:  # noqa: ANN401 - Jinja's
        """Apply the filter that ``map`` names; each time is a step."""
        made = super().call_filter(name, value, args, kwargs, context, eval_ctx)
        if context is not None:
            _meter(context).step()
            if isinstance(made, str):
                _meter(context).made(made)
        return made


def bounded(function: Callable[..., object], name: str) -> Callable[..., object]:
    """A filter that takes only arguments within bounds.

    Args:
        function: The filter.
        name: Its name.

    Returns:
        The same for arguments within bounds; others are an error.
    """
    # Some are given their surroundings first, then the value.
    value_at = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def call(*args: object, **kwargs: object) -> object:
        subject = args[value_at]
        arguments = (*args[value_at + 1 :], *kwargs.values())
        if isinstance(subject, str) and not arguments:
            return function(*args)
        if name in ("join", "sum"):
            subject = listed(subject, len(str(arguments[0])) if arguments and name == "join" else 0)
        check_writing(name, subject, arguments)
        if name == "format" and isinstance(subject, str):
            check_format(name, percent_specs(subject), arguments)
        check_arguments(name, subject, arguments)
        return function(*args[:value_at], subject, *args[value_at + 1 :], **kwargs)

    return call


def _meter(context: Context) -> Meter:
    return cast("Meter", context.parent[_METER])


@pass_context
def _counted(context: Context, items: Iterable[object]) -> Iterable[object]:
    """What a loop goes over, each step counted; plain data before the step, since nothing can change it meanwhile."""
    meter = _meter(context)
    if type(items) in _PORTIONED:
        sequence = cast("Sequence[object]", items)
        if len(sequence) > PORTION:
            return chain.from_iterable(meter.portions(sequence))
        meter.step(len(sequence))
        return sequence
    return _counted_singly(meter, items)


def _counted_singly(meter: Meter, items: Iterable[object]) -> Iterator[object]:
    for item in items:
        meter.step()
        yield item


def count_loops(tree: nodes.Template) -> nodes.Template:
    """A parsed template whose loops count their steps."""
    for loop in list(tree.find_all(nodes.For)):
        loop.iter = nodes.Filter(loop.iter, _COUNTED, [], [], None, None, lineno=loop.lineno)
    tree.set_environment(cast("BoundedEnvironment", tree.environment))
    return tree


def globals_of_one_rendering(steps: int = MAX_STEPS, numbers: int = MAX_RANGE) -> dict[str, object]:
    """What is counted anew in each rendering.

    Args:
        steps: How many steps it may take.
        numbers: How many numbers ``range`` gives.

    Returns:
        Variables for the template.
    """
    meter = Meter(steps, numbers)
    return {_METER: meter, "range": meter.numbers}
