"""A Jinja environment that separates values from the template's literal text, for prompt files and instructions."""

from __future__ import annotations

from functools import lru_cache, partial, wraps
from typing import TYPE_CHECKING, Any, Final, cast

from jinja2 import ChainableUndefined, StrictUndefined, nodes, pass_eval_context
from jinja2.filters import make_attrgetter

from lazyprompt._base.json import JsonText
from lazyprompt._base.trusted import Trusted
from lazyprompt.templates.bounds import check_length, size_of
from lazyprompt.templates.sandbox import BoundedEnvironment, BoundedGenerator
from lazyprompt.templates.slots import JsonValue, Opaque, TrustedValue, Value, value_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from jinja2.compiler import CodeGenerator, Frame
    from jinja2.nodes import EvalContext

# The node types that read values. An expression without these node types is constant.
_LOOKING = (nodes.Name, nodes.Call)
_CONTAINERS = (list, tuple, dict)
# The maximum length of the text form of a nested list, tuple or dict, in characters.
_MAX_NESTED = 6_000_000

NAMED: Final = " named"
"""The internal filter that converts the value of a name. Templates can't use a filter whose name has a space."""


class _Generator(BoundedGenerator):
    """A Jinja compiler that marks the output of filter blocks, call blocks and recursive loops as untrusted values.

    Jinja's own compiler doesn't distinguish this output from the template's literal text.
    """

    def visit_Filter(self, node: nodes.Filter, frame: Frame) -> None:
        """Generate code that counts a filter as one step, because even a template without loops can be slow."""
        if node.name.startswith(" "):
            super().visit_Filter(node, frame)
            return
        self.write("meter.stepped(")
        super().visit_Filter(node, frame)
        self.write(")")

    def visit_List(self, node: nodes.List, frame: Frame) -> None:
        """Generate code that limits the size of a nested list, because comparing deeply nested lists takes too long."""
        self.write("environment.listed(")
        super().visit_List(node, frame)
        self.write(")")

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:
        """Generate code that limits the size of a nested tuple, unless the tuple is the target of an assignment."""
        self.write("environment.listed(" if node.ctx == "load" else "(")
        super().visit_Tuple(node, frame)
        self.write(")")

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        """Generate code that limits the size of a nested dict."""
        self.write("environment.listed(")
        super().visit_Dict(node, frame)
        self.write(")")

    def _output_child_pre(self, node: nodes.Expr, frame: Frame, finalize: CodeGenerator._FinalizeInfo) -> None:
        """Begin the call that converts an expression to literal text if it is constant, or else to a value."""
        if not isinstance(node, _LOOKING) and next(node.find_all(_LOOKING), None) is None:
            finalize = finalize._replace(src="environment.own_text(")
        super()._output_child_pre(node, frame, finalize)

    def start_write(self, frame: Frame, node: nodes.Node | None = None) -> None:
        """Begin the call that converts the output of a call block, a filter block or a recursive loop to a value."""
        super().start_write(frame, node)
        self.write("environment.finalize(" if frame.buffer is None else "meter.kept(environment.finalize(")

    def end_write(self, frame: Frame) -> None:
        """Close the function call that :meth:`start_write` opened."""
        self.write(")" if frame.buffer is None else "))")
        super().end_write(frame)


class ValueEnvironment(BoundedEnvironment):
    """A Jinja sandbox that limits resources and outputs values separately from literal text."""

    code_generator_class = _Generator

    @staticmethod
    def listed(value: list[object] | tuple[object, ...] | dict[object, object]) -> object:
        """Check the size of a new list, tuple or dict, including all nested items, and return the value."""
        items = value.values() if isinstance(value, dict) else value
        if any(isinstance(item, _CONTAINERS) for item in items):
            size_of(value, _MAX_NESTED)
        return value

    def own_text(self, value: object) -> str:
        """Convert the value of a constant expression to literal text of the template."""
        return str.__str__(cast("Callable[[object], str]", self.finalize)(value))


def portable(value: object) -> object:
    """Convert a scalar to Prompty's portable text: ``true`` for True, ``1`` for ``1.0``, and ``""`` for None.

    The rules are defined in section 10.2, rows 1 to 4, of Prompty's Jinja subset specification.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    # Adding zero changes negative zero to zero.
    return float.__repr__(value + 0.0).removesuffix(".0") if isinstance(value, float) else value


def finalize(value: object, source: str = "", scalar: Callable[[object], object] | None = None) -> Value:
    """Convert the value of an expression to output text. Jinja calls this function for each expression.

    Args:
        value: The value of the expression.
        source: The expression itself if it is a name or a dotted path; otherwise an empty string.
        scalar: A function that converts a scalar to text; None for ``str()``.
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
    """An environment in which ``~`` and text filters convert scalars with :func:`portable`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        filters = self.filters
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
        """Concatenate the operands of ``~``, converted with :func:`portable`."""
        return ValueEnvironment.joined(tuple(map(portable, values)))


def _of_portable(function: Callable[..., object]) -> Callable[..., object]:
    """Wrap a text filter so that it first converts its input value with :func:`portable`."""
    at = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def call(*args: object, **kwargs: object) -> object:
        return function(*args[:at], portable(args[at]), *args[at + 1 :], **kwargs)

    return call


@lru_cache(maxsize=4)
def environment_of(*, lenient: bool, is_portable: bool) -> ValueEnvironment:
    """Return a shared environment, which must not be modified.

    Args:
        lenient: True to render undefined names as empty text; False to raise an error.
        is_portable: True to convert scalars with :func:`portable`; False to convert them with ``str()``.
    """
    undefined = ChainableUndefined if lenient else StrictUndefined
    shown = partial(finalize, scalar=portable) if is_portable else finalize
    kind = _PortableEnvironment if is_portable else ValueEnvironment
    made = kind(undefined=undefined, finalize=shown, keep_trailing_newline=True)
    made.filters[NAMED] = shown
    return made
