"""The Jinja environment for prompt files and instructions, which tells values from the template's own text."""

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

# An expression without these has no value in it.
_LOOKING = (nodes.Name, nodes.Call)
_CONTAINERS = (list, tuple, dict)
# The largest length of a list in which there are lists, when it is written.
_MAX_NESTED = 6_000_000

NAMED: Final = " named"
"""A filter of ours, by a name that no template can write: the value of a name."""


class _Generator(BoundedGenerator):
    """Jinja's compiler; the output of filter blocks, call blocks and recursive loops is a value too.

    Jinja writes that output as it is, and it would count as the template's own text.
    """

    def visit_Filter(self, node: nodes.Filter, frame: Frame) -> None:
        """Write a filter, which is a step: a long template without loops takes time too."""
        if node.name.startswith(" "):
            super().visit_Filter(node, frame)
            return
        self.write("meter.stepped(")
        super().visit_Filter(node, frame)
        self.write(")")

    def visit_List(self, node: nodes.List, frame: Frame) -> None:
        """Write a list, whose nested lists are counted: to compare lists that hold each other could never end."""
        self.write("environment.listed(")
        super().visit_List(node, frame)
        self.write(")")

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:
        """Write a tuple as :meth:`visit_List` does, unless it is the target of an assignment."""
        self.write("environment.listed(" if node.ctx == "load" else "(")
        super().visit_Tuple(node, frame)
        self.write(")")

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        """Write a dict as :meth:`visit_List` does."""
        self.write("environment.listed(")
        super().visit_Dict(node, frame)
        self.write(")")

    def _output_child_pre(self, node: nodes.Expr, frame: Frame, finalize: CodeGenerator._FinalizeInfo) -> None:
        """Begin the writing of a value, or of own text."""
        if not isinstance(node, _LOOKING) and next(node.find_all(_LOOKING), None) is None:
            finalize = finalize._replace(src="environment.own_text(")
        super()._output_child_pre(node, frame, finalize)

    def start_write(self, frame: Frame, node: nodes.Node | None = None) -> None:
        """Begin the output of a call, a filter block or a recursive loop."""
        super().start_write(frame, node)
        self.write("environment.finalize(" if frame.buffer is None else "meter.kept(environment.finalize(")

    def end_write(self, frame: Frame) -> None:
        """End what :meth:`start_write` began."""
        self.write(")" if frame.buffer is None else "))")
        super().end_write(frame)


class ValueEnvironment(BoundedEnvironment):
    """Jinja's immutable sandbox, within bounds."""

    code_generator_class = _Generator

    @staticmethod
    def listed(value: list[object] | tuple[object, ...] | dict[object, object]) -> object:
        """Return a new list, tuple or dict, if it is not too large with all that is nested in it."""
        items = value.values() if isinstance(value, dict) else value
        if any(isinstance(item, _CONTAINERS) for item in items):
            size_of(value, _MAX_NESTED)
        return value

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
