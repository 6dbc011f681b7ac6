"""Jinja in a sandbox that bounds what a template can cost: steps, time, sizes, numbers.

Jinja's own sandbox keeps a template from everything but its data. Its operators, filters and methods could still be
made to fill the memory (``'x'|center(10**9)``) or never to end (loops in loops): these are what this module bounds.
Which dialect of Jinja is spoken within these bounds, the modules that use it decide.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, cast

from jinja2 import nodes, pass_context
from jinja2.compiler import CodeGenerator, optimizeconst
from jinja2.exceptions import SecurityError, TemplateRuntimeError
from jinja2.runtime import LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment

from lazyprompt.text.bounds import (
    MAX_EXPONENT,
    MAX_OPERAND,
    MAX_RANGE,
    MAX_STEPS,
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
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

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
    """Jinja's compiler, with ``~`` within bounds."""

    @optimizeconst
    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802 - the name is Jinja's
        """Write ``~`` as a call that looks at the length."""
        self.write("environment.joined((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's immutable sandbox, within bounds."""

    code_generator_class = BoundedGenerator
    intercepted_binops = frozenset({"*", "**", "+", "%"})

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - Jinja's own options
        super().__init__(**options)
        filters = cast("dict[str, Callable[..., object]]", self.filters)
        # The same prompt gives the same bytes each time: these two do not.
        del self.globals["lipsum"], filters["random"]
        for name in _GROWING:
            filters[name] = bounded(filters[name], name)
        filters[_COUNTED] = _counted

    @staticmethod
    def concat(pieces: Iterable[str]) -> str:
        """The text of a block, macro or call, out of its pieces."""
        texts: list[str] = []
        length = 0
        for piece in pieces:
            length += len(piece)
            check_length(length)
            texts.append(piece)
        return "".join(texts)

    @staticmethod
    def joined(values: Sequence[object]) -> str:
        """What ``~`` gives."""
        check_length(sum(len(value) if isinstance(value, str) else weigh(value) for value in values))
        return "".join(map(str, values))

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        """Calculate, within bounds."""
        operands: tuple[object, object] = (left, right)
        if isinstance(left, int) and isinstance(right, int):
            check_number(operator, left, right)
        elif operator == "**" and isinstance(right, int | float) and abs(right) > MAX_EXPONENT:
            raise SecurityError(f"'**' takes exponents up to {MAX_EXPONENT}")
        elif operator == "%" and isinstance(left, str):
            arguments = cast("tuple[object, ...]", right) if isinstance(right, tuple) else (right,)
            check_format("%", percent_specs(left), arguments)
        sizes = [len(cast("Sequence[object]", one)) for one in operands if isinstance(one, str | list | tuple | bytes)]
        if operator == "+" and sizes:
            check_length(sum(sizes))
        elif operator == "*" and sizes:
            check_length(sizes[0] * max((one for one in operands if isinstance(one, int)), default=1), MAX_OPERAND)
        return cast("object", super().call_binop(context, operator, left, right))

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - Jinja's
        """Call what a template calls, methods of data within bounds; each call is a step."""
        _meter(context).step()
        # Jinja wraps the format methods of text in one of its own.
        subject = getattr(getattr(function, "__wrapped__", function), "__self__", None)
        if isinstance(subject, str | int | float | bytes):
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
            _meter(context).step(made)
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
def _counted(context: Context, items: Iterable[object]) -> Iterator[object]:
    """What a loop goes over, each step counted."""
    meter = _meter(context)
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
    return {_METER: Meter(steps), "range": _range(numbers)}


def _range(most: int) -> Callable[..., range]:
    """A ``range`` for one rendering, which gives so many numbers and no more."""
    left = most

    def limited(*bounds: int) -> range:
        nonlocal left
        numbers = range(*bounds)
        if len(numbers) > MAX_RANGE:
            raise SecurityError(f"range() gave more than {MAX_RANGE} numbers at once")
        left -= len(numbers)
        if left < 0:
            raise SecurityError(f"range() gave more than {most} numbers in one rendering")
        return numbers

    return limited
