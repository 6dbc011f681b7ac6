"""A Jinja sandbox that limits the steps, the CPU time, the output and the size of numbers in each rendering.

Jinja's own sandbox prevents a template from accessing Python internals. Operators, filters
and methods could still exhaust memory (``'x'|center(10**9)``) or run forever (nested loops), so this module limits
them. The modules that use this sandbox define the Jinja dialect.

Jinja's sandbox runs slow checks that are unnecessary for plain data, such as strings and dicts.
:class:`BoundedGenerator` and :class:`BoundedEnvironment` therefore implement fast paths for the most frequent
operations on plain data.
"""

from __future__ import annotations

import re
from functools import wraps
from math import isfinite
from types import BuiltinMethodType, MethodType
from typing import TYPE_CHECKING, Any

from jinja2 import nodes, pass_context
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import TemplateRuntimeError, TemplateSyntaxError
from jinja2.ext import Extension
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from lazyprompt.templates.bounds import (
    BRIEF,
    LONG,
    MAX_CODE,
    MAX_OUTPUT,
    MAX_RANGE,
    MAX_SCOPED,
    MAX_STEPS,
    MAX_TEMPLATE,
    MAX_TOKENS,
    Meter,
    as_text,
    check_filter,
    check_length,
    check_method,
    check_operator,
    kind_of,
    size_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence

    from jinja2.lexer import Token, TokenStream
    from jinja2.nodes import EvalContext

# Exceptions that Jinja, its filters, and the operators and methods of plain data may raise.
FAILURES = (
    *(TemplateRuntimeError, TypeError, ValueError, ArithmeticError),
    *(LookupError, AttributeError, RecursionError, MemoryError, AssertionError),
)

# Internal names contain a space, so that templates can't use them.
_METER = " meter"
_COUNTED = " counted"
# Filters that can enlarge their input or that convert the entire input to text.
_GROWING = (
    *("batch", "capitalize", "center", "e", "escape", "forceescape", "format", "indent", "join", "lower", "pprint"),
    *("replace", "round", "slice", "string", "striptags", "sum", "title", "tojson", "trim", "truncate", "upper"),
    *("urlencode", "urlize", "wordcount", "wordwrap", "xmlattr"),
)
# Maps each filter to the equivalent string method call ("" means that strings are returned unchanged).
_OF_TEXT = {"lower": ".lower()", "string": "", "trim": ".strip()", "upper": ".upper()"}
# The attribute names of `dict` and `str`. Any other name can only refer to an item.
_OF_DICT, _OF_STR = frozenset(dir(dict)), frozenset(dir(str))
# Attributes that Jinja's sandbox always allows, by type. For speed, skip the sandbox's check for these attributes.
_READABLE: dict[type[object], frozenset[str]] = {
    dict: frozenset(("get", "items", "keys", "values")),
    str: frozenset(name for name in _OF_STR if not name.startswith(("_", "format"))),
    LoopContext: frozenset(name for name in dir(LoopContext) if not name.startswith("_")) | {"depth0"},
}
_METHODS = (BuiltinMethodType, MethodType)
# The maximum number of summands between two length checks. A sum can temporarily exceed the limit by this factor.
_SUMMANDS = 4
# Matches very long numbers, for which Jinja's lexer takes 250 bytes per digit and quadratic time.
_LONG_NUMBER = re.compile(r"[\d_]{5000}|0[xob][\da-f_]{5000}", re.IGNORECASE)
_SCOPES = (
    *(nodes.AssignBlock, nodes.Block, nodes.CallBlock, nodes.FilterBlock, nodes.For, nodes.If, nodes.Macro),
    *(nodes.Scope, nodes.With),
)


def describe_error(error: BaseException) -> str:
    """Return the text of an error, preceded by the error's type if the text alone is unclear."""
    text = str(error)
    return f"{type(error).__name__} {text}".rstrip() if isinstance(error, LookupError) or not text else text


class _BoundedTokens(Extension):
    """An extension that limits a template's size before parsing, because compiling each token takes kilobytes."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:  # noqa: ARG002 - Jinja's
        """Check the length of a template, and the length of each number in the template."""
        if len(source) > MAX_TEMPLATE:
            raise TemplateSyntaxError(f"the template is longer than {MAX_TEMPLATE} characters", 1)
        if _LONG_NUMBER.search(source):
            raise TemplateSyntaxError("a number has more than 5000 digits", 1)
        return source

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        """Count the tokens of a template during lexing."""
        for count, token in enumerate(stream, 1):
            if count > MAX_TOKENS:
                raise TemplateSyntaxError(
                    f"the template has more than {MAX_TOKENS} tokens; split it, or loop over values", token.lineno
                )
            yield token


class BoundedGenerator(CodeGenerator):
    """A Jinja compiler with limits on ``~`` and ``+``, and with fast paths for plain data.

    A fast path applies only to values whose type is exactly ``dict`` or ``str``. For a value of any other type,
    including a subclass of ``str``, the generated code calls Jinja's environment as usual. The generated code stores a
    value in the variable ``t_0``, and reads the variable before evaluating anything else.
    """

    _body: Iterable[nodes.Node] | None = None
    # The expression being output, or None if the output is buffered.
    _written: nodes.Expr | None = None
    # The code to write after the output expression, or None to write Jinja's default code.
    _behind: str | None = None
    _code = 0

    def write(self, x: str) -> None:
        """Append generated Python code, and check the total length of the generated code."""
        self._code += len(x)
        if self._code > MAX_CODE:
            raise TemplateSyntaxError(f"the template compiles to more than {MAX_CODE} characters of code", 1)
        super().write(x)

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: CodeGenerator._FinalizeInfo) -> str:
        """Compile only literals to constants; evaluate other expressions during rendering, when the limits apply."""
        if not isinstance(node, nodes.Const | nodes.TemplateData):
            raise nodes.Impossible
        return super()._output_child_to_const(node, frame, finalize)

    def write_commons(self) -> None:
        """Generate the beginning of a function, including code that looks up the rendering's :class:`Meter`."""
        super().write_commons()
        self.writeline("meter = environment.meter(context)")

    def visit_For(self, node: nodes.For, frame: Frame) -> None:
        """Generate the code of a ``for`` loop that counts each iteration as a template step."""
        self._body = node.body
        super().visit_For(node, frame)

    def blockvisit(self, nodes: Iterable[nodes.Node], frame: Frame) -> None:
        """Generate a block of statements. The body of a loop begins with an inlined call to :meth:`Meter.step`."""
        if nodes is self._body:
            self.writeline("meter.left -= 1")
            self.writeline("if meter.left < 0: meter.look()")
        super().blockvisit(nodes, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        """Compile ``a ~ b`` to ``environment.joined((a, b, ))``, which checks the length of the result."""
        self.write("environment.joined((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def visit_Add(self, node: nodes.BinExpr, frame: Frame) -> None:
        """Compile ``a + b + c`` to ``environment.summed(a + b + c)``, which checks the length of the result.

        The length check is omitted if an operand is a number literal, because the result is then also a number. The
        length check is also omitted if the result is output directly, because the total length of the output is
        checked.
        """
        first, others = node.left, [node.right]
        while isinstance(first, nodes.Add) and sum(not isinstance(one, nodes.Const) for one in others) < _SUMMANDS - 1:
            others.insert(0, first.right)
            first = first.left
        constants = [one.value for one in (first, *others) if isinstance(one, nodes.Const)]
        unseen = node is self._written or any(isinstance(one, int | float) for one in constants)
        self.write("(" if unseen else "environment.summed(")
        self.visit(first, frame)
        for one in others:
            self.write(" + ")
            self.visit(one, frame)
        self.write(")")

    def visit_Getattr(self, node: nodes.Getattr, frame: Frame) -> None:
        """Compile ``x.a`` to an item lookup, unless dicts have an attribute with this name."""
        if node.attr in _OF_DICT:
            super().visit_Getattr(node, frame)
        else:
            self._write_item(node.node, node.attr, "getattr", frame)

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        """Compile ``x['a']`` to an item lookup with a fast path for dicts."""
        if isinstance(node.arg, nodes.Const) and type(node.arg.value) is str:
            self._write_item(node.node, node.arg.value, "getitem", frame)
        else:
            super().visit_Getitem(node, frame)

    def _write_item(self, value: nodes.Expr, key: str, otherwise: str, frame: Frame) -> None:
        """Write ``(t_0['a'] if type(t_0 := x) is dict and 'a' in t_0 else environment.getitem(t_0, 'a'))``."""
        self.write(f"(t_0[{key!r}] if type(t_0 := ")
        self.visit(value, frame)
        self.write(f") is dict and {key!r} in t_0 else environment.{otherwise}(t_0, {key!r}))")

    def visit_Filter(self, node: nodes.Filter, frame: Frame) -> None:
        """Compile ``x|trim`` to ``(t_0.strip() if type(t_0 := x) is str else t_1(t_0))``."""
        given = node.args, node.kwargs, node.dyn_args, node.dyn_kwargs
        if node.node is None or node.name not in _OF_TEXT or any(given):
            super().visit_Filter(node, frame)
            return
        self.write(f"(t_0{_OF_TEXT[node.name]} if type(t_0 := ")
        self.visit(node.node, frame)
        self.write(f") is str else {self.filters[node.name]}(t_0))")

    def _output_child_pre(self, node: nodes.Expr, frame: Frame, finalize: CodeGenerator._FinalizeInfo) -> None:
        """Generate the code before an output expression, with a fast path for strings.

        An expression ``x`` that may evaluate to a value other than text is compiled to
        ``(t_0 if type(t_0 := x) is str else environment.shown(t_0))``.
        """
        # In `{% set %}` blocks and macros, count the output here, because Jinja joins it into a string only later.
        self._written = node if frame.buffer is None else None
        if frame.buffer is not None:
            self.write("meter.kept(")
        if isinstance(node, nodes.Filter) and node.name.startswith(" "):
            # The internal filters already return strings, which need no conversion.
            self._behind = ""
        elif finalize.src is not None or frame.eval_ctx.volatile or frame.eval_ctx.autoescape:
            self._behind = None
            super()._output_child_pre(node, frame, finalize)
        elif _is_text(node):
            self._behind = ""
        else:
            self._behind = ") is str else environment.shown(t_0))"
            self.write("(t_0 if type(t_0 := ")

    def _output_child_post(self, node: nodes.Expr, frame: Frame, finalize: CodeGenerator._FinalizeInfo) -> None:
        """Close the code that :meth:`_output_child_pre` opened."""
        if self._behind is None:
            super()._output_child_post(node, frame, finalize)
        else:
            self.write(self._behind)
        if frame.buffer is not None:
            self.write(")")


def _is_text(node: nodes.Expr) -> bool:
    """Return True if an expression, such as ``a ~ b``, always evaluates to text."""
    while isinstance(node, nodes.Add):
        if _is_text(node.right):
            return True
        node = node.left
    return isinstance(node, nodes.Concat) or (isinstance(node, nodes.Const) and isinstance(node.value, str))


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's immutable sandbox, with limits on the cost of a template."""

    filters: dict[str, Callable[..., object]]
    globals: dict[str, object]
    code_generator_class = BoundedGenerator
    intercepted_binops = frozenset({"*", "**", "%"})

    def __init__(self, extensions: Sequence[str | type[Extension]] = (), **options: Any) -> None:
        # Disable constant folding, because the limits don't apply during compilation.
        super().__init__(optimized=False, extensions=[_BoundedTokens, *extensions], **options)
        # Remove `lipsum` and `random`, because their output is random.
        del self.globals["lipsum"], self.filters["random"]
        for name in _GROWING:
            self.filters[name] = bounded(self.filters[name], name)
        self.filters[_COUNTED] = _counted

    def make_globals(self, d: MutableMapping[str, Any] | None) -> MutableMapping[str, Any]:
        """Return the globals of a template as a dict, which is faster to copy than Jinja's ``ChainMap``."""
        return {**self.globals, **(d or {})}

    @staticmethod
    def meter(context: Context) -> Meter:
        """Return the :class:`Meter` that counts the cost of the current rendering."""
        meter: Meter = context.parent[_METER]
        return meter

    @staticmethod
    def concat(pieces: Iterable[str]) -> str:
        """Concatenate the output of a template, block, macro or call, and check its length."""
        length = 0
        if isinstance(pieces, list):
            check_length(sum(map(len, pieces)))
            return "".join(pieces)
        texts: list[str] = []
        for piece in pieces:
            length += len(piece)
            if length > MAX_OUTPUT:
                check_length(length)
            texts.append(piece)
        return "".join(texts)

    @staticmethod
    def joined(values: Sequence[object]) -> str:
        """Concatenate the operands of ``~``, and check the length of the result."""
        check_length(sum([len(value) if isinstance(value, str) else size_of(value) for value in values]))
        return "".join(map(str, values))

    def summed(self, total: Any) -> Any:  # noqa: ANN401 - the type of the sum
        """Check the length of the result of ``+``, and return the result."""
        if isinstance(total, LONG) and len(total) > MAX_OUTPUT:
            check_length(len(total))
        return total

    def shown(self, value: object) -> str:
        """Convert a value that is not a plain string to text."""
        return str(as_text(value))

    def getattr(self, obj: Any, attribute: str) -> Any:  # noqa: ANN401 - Jinja's
        """Look up ``x.a`` as Jinja's sandbox does, but with fast paths for plain data."""
        kind = kind_of(obj)
        if attribute in _READABLE.get(kind, ()):
            return getattr(obj, attribute)
        if kind is dict and attribute not in _OF_DICT:
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        if kind is str and attribute not in _OF_STR:
            return self.undefined(obj=obj, name=attribute)
        if isinstance(obj, Namespace) and not attribute.startswith("_"):
            value = object.__getattribute__(obj, "_Namespace__attrs").get(attribute, _METHODS)
            # Let Jinja's sandbox check methods, because `str.format` can read attributes.
            if value is not _METHODS and not isinstance(value, _METHODS):
                return value
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:  # noqa: ANN401 - Jinja's
        """Look up ``x[a]`` as Jinja's sandbox does, but with fast paths for plain data."""
        kind = kind_of(obj)
        if type(argument) is str and (
            (kind is str and argument not in _OF_STR)
            or (kind is dict and argument not in _OF_DICT and argument not in obj)
        ):
            return self.undefined(obj=obj, name=argument)
        try:
            return obj[argument]
        except (TypeError, LookupError):
            if not isinstance(argument, BRIEF):
                # Check the argument's size, because Jinja's error message contains the argument.
                size_of(argument)
            return super().getitem(obj, argument)

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        """Evaluate ``*``, ``**`` or ``%`` after checking the operands."""
        check_operator(operator, left, right)
        result: object = super().call_binop(context, operator, left, right)
        return result

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - Jinja's
        """Call a function or a method, and count the call as one step.

        If the function is a method of a built-in value, such as a string, the arguments are checked before the call.
        """
        self.meter(context).step()
        kind = kind_of(function)
        # Unwrap string format methods, which Jinja wraps in a function.
        method = function if kind in _METHODS else getattr(function, "__wrapped__", function)
        subject = getattr(method, "__self__", None)
        if isinstance(subject, (str, int, float, bytes)):
            args = check_method(function.__name__, subject, args, (*kwargs.values(),))
        elif isinstance(subject, (list, range)) and function.__name__ == "index":
            # Limit the size of the arguments of ``index``: if the item isn't found, Python's error message contains
            # the item's repr.
            size_of(args)
        elif kind is LoopContext and args:
            # The call `loop(items)` starts the next level of a recursive loop. The items of that level count as steps.
            args = (_counted(context, args[0]), *args[1:])
        # Let Jinja check whether other callables are safe, and pass the context that they expect.
        if kind is Macro:
            args = (context.eval_ctx, *args)
        elif kind is not BuiltinMethodType and (
            kind is not MethodType or hasattr(function, "jinja_pass_arg") or not self.is_safe_callable(function)
        ):
            return super().call(context, function, *args, **kwargs)
        kwargs.pop("_loop_vars", None)
        kwargs.pop("_block_vars", None)
        return function(*args, **kwargs)

    def call_filter(
        self,
        name: str,
        value: Any,  # noqa: ANN401 - Jinja's
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        context: Context | None = None,
        eval_ctx: EvalContext | None = None,
    ) -> Any:  # noqa: ANN401 - Jinja's
        """Apply a filter to one item on behalf of ``map``, and count one step."""
        made = super().call_filter(name, value, args, kwargs, context, eval_ctx)
        if context is None:
            return made
        meter = self.meter(context)
        meter.step()
        return meter.kept(made) if isinstance(made, str) else made


def bounded(function: Callable[..., object], name: str) -> Callable[..., object]:
    """Wrap a filter function to check its arguments before each call.

    Args:
        function: The filter function.
        name: The name of the filter.
    """
    # Some filters have a context as the first parameter and the value as the second.
    value_at = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def call(*args: object, **kwargs: object) -> object:
        subject = args[value_at]
        arguments = (*args[value_at + 1 :], *kwargs.values())
        if isinstance(subject, str) and not arguments:
            return function(*args)
        subject = check_filter(name, subject, arguments)
        return function(*args[:value_at], subject, *args[value_at + 1 :], **kwargs)

    return call


@pass_context
def _counted(context: Context, items: Iterable[object]) -> Iterable[object]:
    return BoundedEnvironment.meter(context).counted(items)


def within_bounds(tree: nodes.Template) -> nodes.Template:
    """Check a parsed template, and rewrite each loop with an ``if`` condition to count skipped items as steps.

    Raises:
        TemplateSyntaxError: The product of the numbers of variables and scopes exceeds ``MAX_SCOPED``, or a number is
            too large for a float, so that Jinja would compile it to the name ``inf``.
    """
    variables = len({node.name for node in tree.find_all(nodes.Name)})
    scopes = sum(1 for _ in tree.find_all(_SCOPES))
    if variables * scopes > MAX_SCOPED:
        raise TemplateSyntaxError(
            f"the template has {variables} variables and {scopes} blocks, and the product of these numbers exceeds "
            f"{MAX_SCOPED}; use fewer variables or blocks",
            1,
        )
    for node in tree.find_all(nodes.Const):
        if isinstance(node.value, float) and not isfinite(node.value):
            raise TemplateSyntaxError("a number in the template is too large for a float", node.lineno)
    for loop in list(tree.find_all(nodes.For)):
        if loop.test:
            loop.iter = nodes.Filter(loop.iter, _COUNTED, [], [], None, None, lineno=loop.lineno)
    if tree.environment is not None:
        tree.set_environment(tree.environment)
    return tree


def globals_of_one_rendering(steps: int = MAX_STEPS, numbers: int = MAX_RANGE) -> dict[str, object]:
    """Return the globals for one rendering, including a new :class:`Meter`.

    Args:
        steps: The maximum number of steps.
        numbers: The maximum number of values that ``range()`` may return in total.
    """
    meter = Meter(steps, numbers)
    return {_METER: meter, "range": meter.numbers}
