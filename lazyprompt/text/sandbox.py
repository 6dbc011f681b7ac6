"""Jinja in a sandbox that bounds what a template can cost: steps, sizes, numbers.

Jinja's own sandbox keeps a template from everything but its data. Its operators, filters and methods could still be
made to fill the memory (``'x'|center(10**9)``) or never to end (loops in loops): these are what this module bounds.
"""

from __future__ import annotations

import re
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any, cast

from jinja2 import StrictUndefined, nodes, pass_context
from jinja2.compiler import CodeGenerator, optimizeconst
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from lazyprompt._json import JsonText
from lazyprompt.text.slots import value_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from jinja2.compiler import Frame
    from jinja2.runtime import Context

MAX_OUTPUT = 20_000_000
"""The longest text a template may make, on its way or in the end: more than any model reads."""

MAX_STEPS = 1_000_000
"""How often loops may go round in one rendering, all of them together."""

MAX_PIECES = 4_000_000
"""Of how many pieces an output may be."""

MAX_RANGE = 100_000
"""How many numbers ``range`` gives in one rendering."""

MAX_OPERAND = 1_000_000
"""How long ``*``, ``replace`` and ``join`` may make a text or list."""

MAX_WIDTH = 10_000
"""The largest number that a filter or method takes: a width, an indent, a count."""

MAX_EXPONENT = 64
"""How far ``**`` goes."""

MAX_BITS = 10_000
"""How long a number may become: with a power of a power it would take but a line to fill the memory."""

# How a rendering counts its steps: a name no template can write.
_STEPS = " steps"
_COUNTED = " counted"
_WIDTH = re.compile(r"\d{5,}")


class Value(str):
    """Text that an expression gave: not the developer's."""

    __slots__ = ()

    def __str__(self) -> str:
        return self


class _JsonValue(JsonText, Value):
    """The same, where the value was a dict or list."""

    __slots__ = ()


def _finalize(value: object) -> Value:
    """What Jinja calls with the value of each expression, before it becomes output."""
    text = value_text(value, "a Jinja expression")
    _check_length(len(text))
    return _JsonValue(text) if isinstance(text, JsonText) else Value(text)


def _check_length(length: int, most: int = MAX_OUTPUT) -> None:
    if length > most:
        raise SecurityError(f"a value would become longer than {most} characters or items")


def _check_arguments(what: str, subject: object, arguments: Sequence[object]) -> None:
    """Refuse the arguments that would make a filter or method grow its subject out of bounds."""
    for argument in arguments:
        if isinstance(argument, int) and abs(argument) > MAX_WIDTH:
            raise SecurityError(f"{what} takes numbers up to {MAX_WIDTH}")
    if what in ("format", "%") and isinstance(subject, str) and _WIDTH.search(subject):
        raise SecurityError(f"{what} takes widths up to {MAX_WIDTH}")
    texts = [argument for argument in arguments if isinstance(argument, str)]
    if what == "replace" and isinstance(subject, str) and len(texts) > 1:
        _check_length(subject.count(texts[0]) * len(texts[1]), MAX_OPERAND)


class _CodeGenerator(CodeGenerator):
    """Jinja's compiler, with the output of filter blocks, call blocks and recursive loops finalized too.

    Jinja writes these to the output as they are, so that the values in them would count as the template's own text.
    """

    def start_write(self, frame: Frame, node: nodes.Node | None = None) -> None:
        """Begin the writing of a value."""
        super().start_write(frame, node)
        self.write("environment.finalize(")

    def end_write(self, frame: Frame) -> None:
        """End what :meth:`start_write` began."""
        self.write(")")
        super().end_write(frame)

    @optimizeconst
    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802 - the name is Jinja's
        """Write ``~`` as a call that looks at the length."""
        self.write("environment.joined((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class _Environment(ImmutableSandboxedEnvironment):
    """Jinja's immutable sandbox, within bounds."""

    code_generator_class = _CodeGenerator
    intercepted_binops = frozenset({"*", "**", "+", "%"})

    def joined(self, values: Iterable[object]) -> str:
        """What ``~`` gives."""
        texts = list(map(str, values))
        _check_length(sum(map(len, texts)))
        return "".join(texts)

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        """Calculate, within bounds."""
        operands: tuple[object, object] = (left, right)
        if isinstance(left, int) and isinstance(right, int):
            _check_number(operator, left, right)
        elif operator == "**" and isinstance(right, int | float) and abs(right) > MAX_EXPONENT:
            raise SecurityError(f"'**' takes exponents up to {MAX_EXPONENT}")
        elif operator == "%":
            _check_arguments("%", left, cast("tuple[object]", right) if isinstance(right, tuple) else (right,))
        sizes = [len(cast("Sequence[object]", one)) for one in operands if isinstance(one, str | list | tuple)]
        if operator == "+" and sizes:
            _check_length(sum(sizes))
        elif operator == "*" and sizes:
            _check_length(sizes[0] * max((one for one in operands if isinstance(one, int)), default=1), MAX_OPERAND)
        return cast("object", super().call_binop(context, operator, left, right))

    def call(self, context: Context, function: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - Jinja's
        """Call what a template calls, methods of data within bounds."""
        # Jinja wraps the format methods of text in one of its own.
        subject = getattr(getattr(function, "__wrapped__", function), "__self__", None)
        if isinstance(subject, str | int | float):
            name = str(function.__name__)
            if name == "translate":
                raise SecurityError("translate is not for templates; use replace")
            if name == "join" and isinstance(subject, str) and args and isinstance(args[0], list | tuple):
                _check_length(len(subject) * len(cast("Sequence[object]", args[0])), MAX_OPERAND)
            _check_arguments(name, subject, (*args, *kwargs.values()))
        return super().call(context, function, *args, **kwargs)


def _check_number(operator: str, left: int, right: int) -> None:
    if operator == "**" and abs(right) > MAX_EXPONENT:
        raise SecurityError(f"'**' takes exponents up to {MAX_EXPONENT}")
    bits = left.bit_length(), right.bit_length()
    if operator in ("*", "**") and (bits[0] * abs(right) if operator == "**" else sum(bits)) > MAX_BITS:
        raise SecurityError(f"{operator!r} would make a number of more than {MAX_BITS} bits")


def _bounded(function: Callable[..., object], name: str) -> Callable[..., object]:
    """A filter that takes only arguments within bounds."""
    # Some are given their surroundings first, then the value.
    value_at = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def call(*args: object, **kwargs: object) -> object:
        arguments = (*args[value_at + 1 :], *kwargs.values())
        _check_arguments(name, args[value_at], arguments)
        if name == "join" and arguments and isinstance(args[value_at], list | tuple):
            _check_length(len(str(arguments[0])) * len(cast("Sequence[object]", args[value_at])), MAX_OPERAND)
        return function(*args, **kwargs)

    return call


@pass_context
def _counted(context: Context, items: Iterable[object]) -> Iterator[object]:
    """What a loop goes over, each step counted."""
    steps = cast("list[int]", context.parent[_STEPS])
    for item in items:
        steps[0] += 1
        if steps[0] > MAX_STEPS:
            raise SecurityError(f"the loops went round more than {MAX_STEPS} times in one rendering")
        yield item


@lru_cache(maxsize=1)
def environment() -> _Environment:
    """The one environment all templates share; nothing ever changes it."""
    made = _Environment(undefined=StrictUndefined, finalize=_finalize, keep_trailing_newline=True)
    filters = cast("dict[str, Callable[..., object]]", made.filters)
    # The same prompt gives the same bytes each time: these two do not.
    del made.globals["lipsum"], filters["random"]
    for name in ("batch", "center", "format", "indent", "join", "replace", "round", "slice", "truncate", "wordwrap"):
        filters[name] = _bounded(filters[name], name)
    filters[_COUNTED] = _counted
    return made


def count_loops(tree: nodes.Template) -> nodes.Template:
    """A parsed template whose loops count their steps."""
    for loop in list(tree.find_all(nodes.For)):
        loop.iter = nodes.Filter(loop.iter, _COUNTED, [], [], None, None, lineno=loop.lineno)
    tree.set_environment(environment())
    return tree


def globals_of_one_rendering() -> dict[str, object]:
    """What is counted anew in each rendering: the steps of loops, and the numbers of ``range``."""
    return {_STEPS: [0], "range": _bounded_range()}


def _bounded_range() -> Callable[..., range]:
    """A ``range`` for one rendering, which gives so many numbers and no more."""
    left = MAX_RANGE

    def bounded(*bounds: int) -> range:
        nonlocal left
        numbers = range(*bounds)
        left -= len(numbers)
        if left < 0:
            raise SecurityError(f"range() gave more than {MAX_RANGE} numbers in one rendering")
        return numbers

    return bounded
