"""Jinja as the other syntax of instructions: sandboxed, bounded, and with the values told from the template's text."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from jinja2 import StrictUndefined, TemplateSyntaxError, meta, nodes
from jinja2.compiler import CodeGenerator
from jinja2.exceptions import SecurityError, TemplateRuntimeError, UndefinedError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from lazyprompt._json import JsonText, checked, well_formed
from lazyprompt.errors import LazyPromptError, SlotError, TemplateError
from lazyprompt.text.slots import value_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jinja2.compiler import Frame
    from jinja2.runtime import Context

# A prompt of more signs than any model reads is a runaway template.
MAX_OUTPUT = 20_000_000
# How many numbers ``range`` gives in one rendering, how long ``*`` may make a text or list, how far ``**`` goes, and
# how long a number either may make (with a power of a power it would take but a line to fill the memory).
MAX_RANGE = 100_000
MAX_OPERAND = 1_000_000
MAX_EXPONENT = 64
MAX_BITS = 10_000


# What an expression may raise: Jinja's own errors, and those of the operators and methods of plain data.
_FAILURES = (
    *(TemplateRuntimeError, TypeError, ValueError, ArithmeticError),
    *(LookupError, AttributeError, RecursionError, MemoryError),
)


def _said(error: BaseException) -> str:
    """What an error says; with its kind where that alone would be no sentence."""
    said = str(error)
    return f"{type(error).__name__} {said}".rstrip() if isinstance(error, LookupError) or not said else said


class _Value(str):
    """Text that an expression gave: not the developer's."""

    __slots__ = ()

    def __str__(self) -> str:
        return self


class _JsonValue(JsonText, _Value):
    """The same, where the value was a dict or list."""

    __slots__ = ()


def _finalize(value: object) -> _Value:
    """What Jinja calls with the value of each expression, before it becomes output."""
    text = value_text(value, "a Jinja expression")
    return _JsonValue(text) if isinstance(text, JsonText) else _Value(text)


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


class _Environment(ImmutableSandboxedEnvironment):
    """Jinja's immutable sandbox, with operators that cannot be made to eat all memory."""

    code_generator_class = _CodeGenerator
    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        """Multiply or raise to a power, within bounds."""
        for one, other in ((left, right), (right, left)):
            repeats = isinstance(one, str | list | tuple) and isinstance(other, int)
            if repeats and len(cast("list[object]", one)) * cast("int", other) > MAX_OPERAND:
                raise SecurityError(f"'*' would make more than {MAX_OPERAND} items")
        if operator == "**" and isinstance(right, int | float) and abs(right) > MAX_EXPONENT:
            raise SecurityError(f"'**' takes exponents up to {MAX_EXPONENT}")
        if isinstance(left, int) and isinstance(right, int):
            sizes = left.bit_length(), right.bit_length()
            if (sizes[0] * abs(right) if operator == "**" else sum(sizes)) > MAX_BITS:
                raise SecurityError(f"{operator!r} would make a number of more than {MAX_BITS} bits")
        return cast("object", super().call_binop(context, operator, left, right))


@lru_cache(maxsize=1)
def _environment() -> _Environment:
    """The one environment all templates share; nothing ever changes it."""
    environment = _Environment(undefined=StrictUndefined, finalize=_finalize, keep_trailing_newline=True)
    # The same prompt gives the same bytes each time: these two do not.
    del environment.globals["lipsum"], environment.filters["random"]
    return environment


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


class JinjaTemplate:
    """A template in Jinja's syntax.

    Its slots are the variables it looks up. What an expression gives counts as a value, whatever it is made of.

    Args:
        text: The template.
        own: What all of it counts as, among the slots: which expression a value came from is not kept.

    Raises:
        TemplateError: It is no text, or the syntax is wrong; the message names the line.
    """

    __slots__ = ("_own", "_template", "literals", "slots", "text")

    def __init__(self, text: str, own: str = "instruction") -> None:
        if not isinstance(cast("object", text), str):
            raise TemplateError(f"a template is text, not a {type(text).__name__}")
        well_formed(text, "the template", TemplateError)
        environment = _environment()
        try:
            tree = environment.parse(text)
            found = meta.find_undeclared_variables(tree) - set(environment.globals)
            self._template = environment.from_string(text)
        except TemplateSyntaxError as error:
            raise TemplateError(f"Jinja, line {error.lineno}: {error.message}") from error
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            # What Jinja's parser lets pass and Python's does not: a repeated keyword, a huge number, deep nesting.
            raise TemplateError(f"Jinja cannot compile the template: {_said(error)}") from error
        if escaped := tree.find(nodes.ScopedEvalContextModifier):
            raise TemplateError(f"Jinja, line {escaped.lineno}: autoescape is for HTML, and a prompt is none")
        self.text = text
        self._own = own
        self.slots: tuple[str, ...] = tuple(sorted(found, key=lambda name: (text.find(name), name)))
        self.literals: tuple[str, ...] = tuple(data.data for data in tree.find_all(nodes.TemplateData))

    @staticmethod
    def coerce(value: object, slot: str) -> object:
        """A value as plain data: the sandbox never sees an object with methods of its own."""
        if isinstance(value, Mapping | list | tuple | bool | int | float) or value is None:
            return checked(cast("object", value), f"the value of slot {slot!r}", SlotError)
        return value_text(value, slot)

    def fill(self, values: Mapping[str, object]) -> Sequence[str]:
        """Render the template.

        Args:
            values: Plain data for each slot.

        Returns:
            The parts: the template's own text and what its expressions gave in turn.

        Raises:
            SlotError: An expression looks for something a value does not have.
            TemplateError: The template fails, or asks for more than the bounds give.
        """
        context = self._template.new_context({"range": _bounded_range(), **values})
        parts = [""]
        size = 0
        try:
            for chunk in self._template.root_render_func(context):
                size += len(chunk)
                if size > MAX_OUTPUT:
                    raise TemplateError(f"Jinja: the output is longer than {MAX_OUTPUT} characters")
                if isinstance(chunk, _Value):
                    parts += (chunk, "")
                else:
                    parts[-1] += chunk
        except UndefinedError as error:
            raise SlotError(f"Jinja: {error.message}; the slots are {', '.join(map(repr, self.slots))}") from error
        except _FAILURES as error:
            if isinstance(error, LazyPromptError):
                raise
            raise TemplateError(f"Jinja: {_said(error)}") from error
        return parts

    def origins(self, parts: Sequence[str]) -> tuple[str, ...]:
        """The slot of each part."""
        return (self._own,) * len(parts)

    def __reduce__(self) -> tuple[type[JinjaTemplate], tuple[str, str]]:
        """Pickled as its text: compiled code cannot travel."""
        return JinjaTemplate, (self.text, self._own)
