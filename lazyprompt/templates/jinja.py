"""Instruction templates in Jinja syntax, with values separated from the template's literal text."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from contextlib import contextmanager
from functools import partial
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, ClassVar, cast

from jinja2 import TemplateSyntaxError, meta, nodes
from jinja2.exceptions import SecurityError, UndefinedError

from lazyprompt._base.json import checked, is_mapping, is_sequence, is_text, well_formed
from lazyprompt.errors import LazyPromptError, SlotError, TemplateError, did_you_mean
from lazyprompt.messages.prompt import Text
from lazyprompt.templates.bounds import MAX_OUTPUT, MAX_PIECES, MAX_TEMPLATE
from lazyprompt.templates.environment import NAMED, ValueEnvironment, environment_of
from lazyprompt.templates.sandbox import FAILURES, describe_error, globals_of_one_rendering, within_bounds
from lazyprompt.templates.slots import Value, value_text

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from lazyprompt.templates.sandbox import BoundedEnvironment

MAX_NAMES = 200_000
"""The maximum number of tags in a template that contains only names. Other templates are limited by tokens."""

_NAME_TAG = re.compile(r"\{\{\s*+([^\W\d]\w*+(?>(?:\.[^\W\d]\w*+)*))\s*+\}\}")
_UNDEFINED = re.compile(r"('[^']*') is undefined")
# Jinja's reserved words, which can't be used as the names of values.
_WORDS = frozenset(("true", "false", "none", "self", "super", "loop", "caller", "varargs", "kwargs"))
_OTHER_FILES = (nodes.Extends, nodes.Include, nodes.Import, nodes.FromImport)


@contextmanager
def _syntax_errors(syntax: str) -> Generator[None]:
    """Convert parser and compiler errors to ``TemplateError``."""
    try:
        yield
    except TemplateSyntaxError as error:
        raise TemplateError(f"{syntax}, line {error.lineno}: {error.message}") from error
    except (SyntaxError, *FAILURES) as error:
        # Jinja's parser misses some errors, such as repeated keywords, huge numbers and deep nesting.
        raise TemplateError(f"{syntax} cannot compile the template: {describe_error(error)}") from error


class CompiledTemplate(ABC):
    """The base class for templates that are compiled by Jinja, in any syntax.

    Args:
        text: The source of the template.
        own: The slot name to record for all parts of the template.
        lenient: True to render undefined names and attributes as empty text; False to raise an error for them.

    Attributes:
        text: The source of the template.
        slots: The names of the values that the template uses.
        literals: The template's literal texts, in order.
        outline: The template's parts, with the index of each value in place of the value; None if the number of parts
            depends on the values.

    Raises:
        TemplateError: The template is not a string, or its syntax is invalid; the error includes the line.
    """

    __slots__ = ("_lenient", "_own", "_render", "literals", "outline", "slots", "text")
    syntax: ClassVar[str]
    _render: Callable[[Mapping[str, object]], list[str]]
    literals: tuple[str, ...]
    slots: tuple[str, ...]

    def __init__(self, text: str, own: str = "instruction", *, lenient: bool = False) -> None:
        if not is_text(text):
            raise TemplateError(f"the template must be a string, not {type(text).__name__}")
        self.text = well_formed(text, "the template", TemplateError)
        self._own, self._lenient = own, lenient
        self.outline: tuple[str, ...] | None = None
        self._parse()

    @abstractmethod
    def _parse(self) -> None:
        """Parse and compile the template, and set ``slots``, ``literals`` and ``outline``."""

    def _compile(self, tree: nodes.Template, environment: BoundedEnvironment) -> None:
        with _syntax_errors(self.syntax):
            template = environment.from_string(within_bounds(tree))

        def render(values: Mapping[str, object]) -> list[str]:
            parts: list[str] = []
            # Literal text since the last value, stored as pieces because joining once is faster.
            own: list[str] = []
            size = 0
            context = template.new_context({**globals_of_one_rendering(), **values})
            for count, chunk in enumerate(template.root_render_func(context)):
                size += len(chunk)
                if size > MAX_OUTPUT:
                    raise SecurityError(f"the output is longer than {MAX_OUTPUT} characters")
                if count > MAX_PIECES:
                    raise SecurityError(f"the template writes more than {MAX_PIECES} literal texts and values")
                if isinstance(chunk, Value):
                    parts += ("".join(own), chunk)
                    own.clear()
                else:
                    own.append(chunk)
            return [*parts, "".join(own)]

        self._render = render

    def _only_show(self, literals: Sequence[str], shows: Sequence[Callable[[Mapping[str, Any]], Value]]) -> None:
        """Prepare to render a template without Jinja's compiler, which takes a hundred times as long.

        The template must contain only names and literal text.

        Args:
            literals: The literal texts before, between and after the names.
            shows: For each name in the template, a function that looks up the name's value and converts it to text.
        """
        first, pairs = literals[0], tuple(zip(shows, literals[1:], strict=True))

        def render(values: Mapping[str, object]) -> list[str]:
            parts = [first]
            size = len(first)
            for show, literal in pairs:
                value = show(values)
                size += len(value) + len(literal)
                if size > MAX_OUTPUT:
                    raise SecurityError(f"the output is longer than {MAX_OUTPUT} characters")
                parts += (value, literal)
            return parts

        self._render = render

    @staticmethod
    def coerce(value: object, slot: str) -> object:
        """Convert a value to plain data, so that the sandbox never accesses an object with custom methods."""
        if isinstance(value, str):
            return value_text(value, slot)
        if value is None or isinstance(value, bool | int | float) or is_mapping(value) or is_sequence(value):
            return checked(value, f"the value of slot {slot!r}", SlotError)
        return value_text(value, slot)

    def fill(self, values: Mapping[str, object]) -> Sequence[str]:
        """Render the template.

        Args:
            values: A value for each slot, either plain data or an :class:`~lazyprompt.templates.slots.Opaque`.

        Returns:
            The parts as alternating literal texts and values.

        Raises:
            SlotError: A name is undefined, or a value can't be converted to text.
            TemplateError: The rendering fails or exceeds a limit.
        """
        try:
            return self._render(values)
        except UndefinedError as error:
            missing = _UNDEFINED.fullmatch(str(error.message))
            what = f"no value for {missing[1]}" if missing else error.message
            slots = ", ".join(map(repr, self.slots))
            raise SlotError(f"{self.syntax}: {what}; the slots are {slots}") from error
        except LazyPromptError:
            raise
        except FAILURES as error:
            raise TemplateError(f"{self.syntax}: {describe_error(error)}") from error

    def origins(self, parts: Sequence[str]) -> tuple[str, ...]:
        """Return the slot name of each part; all parts have the same slot name."""
        return (self._own,) * len(parts)

    def filled(self, values: Mapping[str, object]) -> Text:
        """Render the template, and return the parts and their slot names (see :meth:`fill`)."""
        parts = tuple(self.fill(values))
        return Text(parts, self.origins(parts))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle only the source, because compiled code can't be pickled."""
        return partial(type(self), lenient=self._lenient), (self.text, self._own)


class JinjaTemplate(CompiledTemplate):
    """A template in Jinja syntax.

    The result of a constant expression counts as literal text, and the result of any other expression as a value.

    Args:
        text: The source of the template.
        own: The slot name to record for all parts of the template.
        lenient: True to render undefined names as empty text; False to raise an error for them.
        is_portable: True to convert scalars with :func:`~lazyprompt.templates.environment.portable`, as prompt files
            do; False to convert them with ``str()``.

    Raises:
        TemplateError: The template is not a string, or its syntax is invalid; the error includes the line.
    """

    __slots__ = ("_is_portable",)
    syntax = "Jinja"

    def __init__(
        self, text: str, own: str = "instruction", *, lenient: bool = False, is_portable: bool = False
    ) -> None:
        self._is_portable = is_portable
        super().__init__(text, own, lenient=lenient)

    def _parse(self) -> None:
        environment = environment_of(lenient=self._lenient, is_portable=self._is_portable)
        if (names := _only_names(self.text, environment)) is not None:
            literals, paths = names
            self.literals = tuple(filter(None, literals))
            self.outline = (literals[0],)
            for place, (path, literal) in enumerate(zip(paths, literals[1:], strict=True)):
                self.outline += (Value(str(2 * place + 1), ".".join(path)), literal)
            self._only_show(literals, [_show(path, environment) for path in paths])
            found = {path[0] for path in paths}
        else:
            with _syntax_errors(self.syntax):
                tree = environment.parse(self.text)
                _check_names(tree, environment)
                _check_statements(tree)
                found = meta.find_undeclared_variables(tree) - set(environment.globals)
            self.literals = tuple(data.data for data in tree.find_all(nodes.TemplateData))
            self._compile(_named(tree), environment)
        self.slots = tuple(sorted(found, key=lambda name: (self.text.find(name), name)))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle only the source, because compiled code can't be pickled."""
        return partial(type(self), lenient=self._lenient, is_portable=self._is_portable), (self.text, self._own)


def _check_names(tree: nodes.Template, jinja: ValueEnvironment) -> None:
    """Check the names of filters and tests, because Jinja checks names inside an ``if`` only during rendering."""
    for kind, known, called in ((nodes.Filter, jinja.filters, "filter"), (nodes.Test, jinja.tests, "test")):
        for node in tree.find_all(kind):
            if node.name not in known:
                near = did_you_mean(node.name, known)
                raise TemplateSyntaxError(f"unknown {called} {node.name!r}{near}", node.lineno)


def _check_statements(tree: nodes.Template) -> None:
    """Reject a template that contains an unsupported statement."""
    if other := next(tree.find_all(_OTHER_FILES), None):
        raise TemplateSyntaxError(
            'a template cannot load other templates; in a prompt file, use {% include "shared/tone.md" %}',
            other.lineno,
        )
    if escaped := tree.find(nodes.ScopedEvalContextModifier):
        raise TemplateSyntaxError("remove autoescape, because a prompt is not HTML", escaped.lineno)


def _show(path: tuple[str, ...], jinja: ValueEnvironment) -> Callable[[Mapping[str, object]], Value]:
    """Return a function that looks up a dotted path and converts its value."""
    name, *attributes = path
    source = ".".join(path)
    finalize = cast("Callable[[object, str], Value]", jinja.finalize)

    def show(values: Mapping[str, object]) -> Value:
        value = values[name] if name in values else jinja.undefined(name=name)
        for attribute in attributes:
            value = jinja.getattr(value, attribute)
        return Value(value, source) if type(value) is str else finalize(value, source)

    return show


def _only_names(text: str, jinja: ValueEnvironment) -> tuple[list[str], list[tuple[str, ...]]] | None:
    """Split a template into its literal texts and the dotted paths of the names between them.

    Return None if a tag contains anything other than a name or a dotted path, such as a statement or a filter.
    """
    if "{%" in text or "{#" in text or "\r" in text:
        return None
    if len(text) > MAX_TEMPLATE or text.count("{{") > MAX_NAMES:
        return None
    pieces = _NAME_TAG.split(text)
    literals, paths = pieces[::2], [tuple(path.split(".")) for path in pieces[1::2]]
    # Return None for three opening braces: Jinja reads the first two as the start of an expression, but the pattern
    # matches the last two.
    if any("{{" in literal or literal.endswith("{") for literal in literals):
        return None
    if not all(_is_path(path) and path[0] not in jinja.globals for path in paths):
        return None
    return literals, paths


def _is_path(path: tuple[str, ...]) -> bool:
    """Return True if a dotted path contains no keywords and no names that Jinja's sandbox treats specially."""
    return not (path[0] in _WORDS or any(name.startswith("_") for name in path)) and all(
        name.isidentifier() and not iskeyword(name) for name in path
    )


def _named(tree: nodes.Template) -> nodes.Template:
    """Wrap each output expression that is a name in the filter that records the name."""
    for output in tree.find_all(nodes.Output):
        output.nodes = [
            nodes.Filter(node, NAMED, [nodes.Const(name)], [], None, None, lineno=node.lineno)
            if (name := _path(node))
            else node
            for node in output.nodes
        ]
    if tree.environment is not None:
        tree.set_environment(tree.environment)
    return tree


def _path(node: nodes.Node) -> str:
    """Return a name or a dotted path as text, such as ``user.name``, or an empty string for any other expression."""
    if isinstance(node, nodes.Name):
        return node.name
    if isinstance(node, nodes.Getattr):
        before = _path(node.node)
        return f"{before}.{node.attr}" if before else ""
    return ""
