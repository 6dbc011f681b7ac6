"""Jinja as the other syntax of instructions, with values kept apart from the template's own text."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, ClassVar, cast

from jinja2 import TemplateSyntaxError, meta, nodes
from jinja2.exceptions import SecurityError, UndefinedError

from lazyprompt._base.json import checked, well_formed
from lazyprompt.errors import LazyPromptError, SlotError, TemplateError, did_you_mean
from lazyprompt.messages.prompt import Text
from lazyprompt.templates.bounds import MAX_OUTPUT, MAX_PIECES, MAX_TEMPLATE
from lazyprompt.templates.environment import NAMED, ValueEnvironment, environment_of
from lazyprompt.templates.sandbox import FAILURES, describe_error, globals_of_one_rendering, within_bounds
from lazyprompt.templates.slots import Value, value_text

if TYPE_CHECKING:
    from lazyprompt.templates.sandbox import BoundedEnvironment

MAX_NAMES = 200_000
"""The number of tags of a template that only names values; any other is bounded in tokens."""

_NAME_TAG = re.compile(r"\{\{\s*+([^\W\d]\w*+(?:\.[^\W\d]\w*+)*+)\s*+\}\}")
# What Jinja reads otherwise than as the name of a value.
_UNDEFINED = re.compile(r"('[^']*') is undefined")
_WORDS = frozenset(("true", "false", "none", "self", "super", "loop", "caller", "varargs", "kwargs"))
_OTHER_FILES = (nodes.Extends, nodes.Include, nodes.Import, nodes.FromImport)


@contextmanager
def _syntax_errors(syntax: str) -> Generator[None]:
    """Turn what parsing and compiling raise into errors of ours."""
    try:
        yield
    except TemplateSyntaxError as error:
        raise TemplateError(f"{syntax}, line {error.lineno}: {error.message}") from error
    except (SyntaxError, *FAILURES) as error:
        # What Jinja's parser lets pass and Python's does not: a repeated keyword, a huge number, deep nesting.
        raise TemplateError(f"{syntax} cannot compile the template: {describe_error(error)}") from error


class CompiledTemplate(ABC):
    """A template that Jinja compiles, whichever syntax it is written in.

    Args:
        text: The template.
        own: The slot that all of it counts as.
        lenient: True if a name that leads nowhere is empty text, at any depth; else it is an error.

    Attributes:
        text: The template as it was written.
        slots: The names of the values that it looks up.
        literals: Its own text, in pieces.
        outline: The parts that it gives, with the place of each value in it as the value; None where the number of
            parts differs by the values.

    Raises:
        TemplateError: It is no text, or the syntax is wrong; the message names the line.
    """

    __slots__ = ("_lenient", "_own", "_render", "literals", "outline", "slots", "text")
    syntax: ClassVar[str]
    _render: Callable[[Mapping[str, object]], list[str]]
    literals: tuple[str, ...]
    slots: tuple[str, ...]

    def __init__(self, text: str, own: str = "instruction", *, lenient: bool = False) -> None:
        if not isinstance(cast("object", text), str):
            raise TemplateError(f"a template is text, not a {type(text).__name__}")
        self.text = well_formed(text, "the template", TemplateError)
        self._own, self._lenient = own, lenient
        self.outline: tuple[str, ...] | None = None
        self._parse()

    @abstractmethod
    def _parse(self) -> None:
        """Read the template, and compile it."""

    def _compile(self, tree: nodes.Template, environment: BoundedEnvironment) -> None:
        with _syntax_errors(self.syntax):
            template = environment.from_string(within_bounds(tree))

        def render(values: Mapping[str, object]) -> list[str]:
            parts: list[str] = []
            # The own text since the last value, joined only then: a sum of texts would copy them each time.
            own: list[str] = []
            size = 0
            context = template.new_context({**globals_of_one_rendering(), **values})
            for count, chunk in enumerate(template.root_render_func(context)):
                size += len(chunk)
                if size > MAX_OUTPUT:
                    raise SecurityError(f"the output is longer than {MAX_OUTPUT} characters")
                if count > MAX_PIECES:
                    raise SecurityError(f"the output is of more than {MAX_PIECES} pieces")
                if isinstance(chunk, Value):
                    parts += ("".join(own), chunk)
                    own.clear()
                else:
                    own.append(chunk)
            return [*parts, "".join(own)]

        self._render = render

    def _only_show(self, literals: Sequence[str], shows: Sequence[Callable[[Mapping[str, Any]], Value]]) -> None:
        """Render without Jinja a template that only shows values: to compile it would take a hundred times as long.

        Args:
            literals: Its own text, around and between the values.
            shows: The functions that return the values.
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
        """Return a value as plain data: the sandbox never sees an object with methods of its own."""
        if isinstance(value, str):  # Most are; what is below takes longer to ask.
            return value_text(value, slot)
        if isinstance(value, Mapping | list | tuple | bool | int | float) or value is None:
            return checked(cast("object", value), f"the value of slot {slot!r}", SlotError)
        return value_text(value, slot)

    def fill(self, values: Mapping[str, object]) -> Sequence[str]:
        """Render the template.

        Args:
            values: Plain data for each slot, or an :class:`~lazyprompt.templates.slots.Opaque`.

        Returns:
            The parts: the template's own text and values, in turn.

        Raises:
            SlotError: A name leads nowhere, or a value has no text.
            TemplateError: The template fails, or asks for more than the bounds give.
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
        """Return the slot of each part."""
        return (self._own,) * len(parts)

    def filled(self, values: Mapping[str, object]) -> Text:
        """Render the template with the slot of each part; see :meth:`fill`."""
        parts = tuple(self.fill(values))
        return Text(parts, self.origins(parts))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle its text: compiled code cannot travel."""
        return partial(type(self), lenient=self._lenient), (self.text, self._own)


class JinjaTemplate(CompiledTemplate):
    """A template in Jinja's syntax.

    The value of an expression counts as a value, whatever it is made of; an expression of constants alone is the
    template's own text.

    Args:
        text: The template.
        own: The slot that all of it counts as.
        lenient: As of :class:`CompiledTemplate`.
        is_portable: True writes scalars as prompt files do (see :func:`~lazyprompt.templates.environment.portable`);
            False as Python's ``str()`` does.

    Raises:
        TemplateError: As of :class:`CompiledTemplate`.
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
        """Pickle its text: compiled code cannot travel."""
        return partial(type(self), lenient=self._lenient, is_portable=self._is_portable), (self.text, self._own)


def _check_names(tree: nodes.Template, jinja: ValueEnvironment) -> None:
    """Refuse filters and tests that there are not: under an if, Jinja looks for them only when it gets there."""
    for kind, known, called in ((nodes.Filter, jinja.filters, "filter"), (nodes.Test, jinja.tests, "test")):
        for node in tree.find_all(kind):
            if node.name not in known:
                near = did_you_mean(node.name, known)
                raise TemplateSyntaxError(f"there is no {called} {node.name!r}{near}", node.lineno)


def _check_statements(tree: nodes.Template) -> None:
    """Refuse the statements that a prompt file does not have."""
    if other := next(tree.find_all(_OTHER_FILES), None):
        raise TemplateSyntaxError(
            'a template reads no other templates; a prompt file can include text, as {% include "shared/tone.md" %}',
            other.lineno,
        )
    if escaped := tree.find(nodes.ScopedEvalContextModifier):
        raise TemplateSyntaxError("autoescape is for HTML, and a prompt is none", escaped.lineno)


def _show(path: tuple[str, ...], jinja: ValueEnvironment) -> Callable[[Mapping[str, object]], Value]:
    """Return the function that shows the value of a name."""
    name, *attributes = path
    source = ".".join(path)
    finalize = cast("Callable[[object, str], Value]", jinja.finalize)

    def show(values: Mapping[str, object]) -> Value:
        value = values[name] if name in values else jinja.undefined(name=name)
        for attribute in attributes:
            value = jinja.getattr(value, attribute)
        # Text was checked when it was coerced.
        return Value(value, source) if type(value) is str else finalize(value, source)

    return show


def _only_names(text: str, jinja: ValueEnvironment) -> tuple[list[str], list[tuple[str, ...]]] | None:
    """Read a template that only names values: its own text around them, and their paths; None where it does more."""
    if "{%" in text or "{#" in text or "\r" in text:
        return None
    if len(text) > MAX_TEMPLATE or text.count("{{") > MAX_NAMES:
        return None
    pieces = _NAME_TAG.split(text)
    literals, paths = pieces[::2], [tuple(path.split(".")) for path in pieces[1::2]]
    # Jinja takes the first two braces of three for the tag.
    if any("{{" in literal or literal.endswith("{") for literal in literals):
        return None
    if not all(_is_path(path) and path[0] not in jinja.globals for path in paths):
        return None
    return literals, paths


def _is_path(path: tuple[str, ...]) -> bool:
    """Return True if names mean values alone: neither words of Jinja nor names that its sandbox treats specially."""
    return not (path[0] in _WORDS or any(name.startswith("_") for name in path)) and all(
        name.isidentifier() and not iskeyword(name) for name in path
    )


def _named(tree: nodes.Template) -> nodes.Template:
    """A parsed template whose values know the names that they are from."""
    for output in tree.find_all(nodes.Output):
        output.nodes = [
            nodes.Filter(node, NAMED, [nodes.Const(name)], [], None, None, lineno=node.lineno)
            if (name := _path(node))
            else node
            for node in output.nodes
        ]
    tree.set_environment(cast("ValueEnvironment", tree.environment))
    return tree


def _path(node: nodes.Node) -> str:
    """An expression that is a name, or names one behind the other, as a template writes it; ``""`` for any other."""
    if isinstance(node, nodes.Name):
        return node.name
    if isinstance(node, nodes.Getattr):
        before = _path(node.node)
        return f"{before}.{node.attr}" if before else ""
    return ""
