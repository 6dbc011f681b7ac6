"""The Jinja dialect of chat templates, compiled within resource limits.

The dialect adds loop controls, ``raise_exception``, ``tojson`` without HTML escapes, ``{% generation %}``, ``dict`` and
``namespace`` to Jinja. :class:`ChatEnvironment` renders plain text. :class:`TracingEnvironment` renders the same text
and records the origin of each character.

Source: transformers 5 (``_cached_compile_jinja_template`` in ``utils/chat_template_utils.py``) and its guide
"Writing a chat template".
"""

from __future__ import annotations

import json
import re
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateSyntaxError
from jinja2.ext import Extension
from jinja2.utils import Namespace
from markupsafe import Markup

from lazyprompt.chat_templates.traced import OWN, Run, Traced, contains_traced, map_origins, runs_of, trace_opaque
from lazyprompt.errors import TemplateError
from lazyprompt.templates.bounds import check_length, size_of
from lazyprompt.templates.sandbox import FAILURES, BoundedEnvironment, bounded, describe_error, within_bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from jinja2.parser import Parser
    from jinja2.runtime import Context


# The leading space prevents templates from using this internal filter.
_GENERATED = " generated"


class TemplateRefusal(jinja2.TemplateError):
    """The error that ``raise_exception`` raises."""


class _Generation(Extension):
    """The ``{% generation %}`` block, which marks the model's text; only its content is rendered."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it as a set

    def parse(self, parser: Parser) -> nodes.Node:
        """Parse the block. As in transformers, variables that the block sets are local."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        block: nodes.Node = nodes.Scope(body).set_lineno(line)
        names = {name.name for name in block.find_all(nodes.Name)}
        if any(block.find_all((nodes.Break, nodes.Continue))) or not names.isdisjoint(("caller", "kwargs", "varargs")):
            # Use a call block, as transformers does, to define ``caller`` and to reject ``break`` from an outer loop.
            block = nodes.CallBlock(self.call_method("show"), [], [], body).set_lineno(line)
        if isinstance(self.environment, TracingEnvironment):
            block = nodes.FilterBlock([block], nodes.Filter(None, _GENERATED, [], [], None, None)).set_lineno(line)
        return block

    def show(self, caller: Callable[[], str]) -> str:
        return caller()


def _mark_generated(text: str) -> str:
    """Mark the content of a ``{% generation %}`` block as the model's own text."""
    return map_origins(text, lambda origin: origin._replace(generated=True)) if isinstance(text, Traced) else text


class _Dict:
    """The ``dict`` function in templates, which creates dicts but hides the attributes of Python's ``dict`` class."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class _Namespace(Namespace):
    """The ``namespace`` function in templates, which rejects names that begin with an underscore."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        names = dict(*args[1:], **kwargs)
        for name in names:
            _check_name(name)
        Namespace.__init__(args[0], names)

    def __setitem__(self, name: str, value: object) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(
            f"Chat templates cannot store underscore-prefixed attributes on a namespace, but got {name!r}. "
            "Please rename the attribute."
        )


def raise_exception(message: object) -> None:
    """Raise the error with which a template rejects the messages of a chat.

    Args:
        message: The reason why the template rejects the messages.

    Raises:
        TemplateRefusal: Always.
    """
    raise TemplateRefusal(str(message))


def _to_json(
    value: object,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - templates may pass it as a positional argument
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002 - templates may pass it as a positional argument
) -> str:
    """Dump a value as JSON, without the HTML escapes that Jinja's filter adds."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class ChatEnvironment(BoundedEnvironment):
    """The Jinja environment for compiling chat templates, which is shared and must not be modified."""

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"])
        self.filters["tojson"] = bounded(_to_json, "tojson")
        self.filters[_GENERATED] = _mark_generated
        self.globals.update(raise_exception=raise_exception, dict=_Dict(), namespace=_Namespace)


# Matches a format specifier that may convert a code point to a character, such as ``%c``.
_BY_NUMBER = re.compile(r"%(?>(?:\([^)%]*+\))?)[-+ #0-9.*hlL]*+c|%\([^)%]*+%|:[^{}:]*(?:c\}|\{)")
# The filters that call string methods, which :class:`Traced` overrides to keep the origin of each character.
_KEEPING = frozenset(("capitalize", "lower", "replace", "safe", "string", "title", "trim", "truncate", "upper"))
# The filters that return one of their arguments unchanged.
_CHOOSING = frozenset(("attr", "d", "default", "first", "last", "max", "min", _GENERATED))


# A bytes object represents a value of unknown origin.
_UNKNOWN = (b"",)


class TracingEnvironment(ChatEnvironment):
    """The Jinja environment that records the origin of each character in the rendered text."""

    def __init__(self) -> None:
        super().__init__()
        for name in self.filters.keys() - _CHOOSING:
            self.filters[name] = _trace_filter(self.filters[name], name)

    @staticmethod
    def concat(pieces: Iterable[str]) -> str:
        """Concatenate the rendered pieces of a block, macro or call."""
        texts: list[str] = []
        runs: list[Run] = []
        length = 0
        for piece in pieces:
            length += len(piece)
            check_length(length)
            texts.append(piece)
            runs += runs_of(piece)
        return Traced("".join(texts), runs)

    @staticmethod
    def joined(values: Sequence[object]) -> str:
        """Join values as the operator ``~`` does."""
        return TracingEnvironment.concat(map(_to_text, values))

    def shown(self, value: object) -> str:
        """Convert a value other than a plain string to text."""
        return _to_text(value)

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        """Evaluate an operator; text formatted with ``%`` gets its origin from the operands."""
        return _keep_origins(super().call_binop(context, operator, left, right), (left, right, *_mark_unknown(left)))

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - Jinja's
        """Call a function; text that the function returns gets its origin from the arguments."""
        subject = getattr(getattr(function, "__wrapped__", function), "__self__", None)
        name = getattr(function, "__name__", "")
        if isinstance(subject, str) and name == "join" and not isinstance(subject, Traced):
            function = Traced.of(subject, OWN).join
        elif isinstance(subject, Traced) and name in ("format", "format_map"):
            # Pass a plain ``str``, because Jinja would convert the result to a ``Traced`` string without origins.
            function = self.getattr(str.__str__(subject), name)
        given: tuple[object, ...] = (subject if isinstance(subject, str | bytes) else None, args, kwargs)
        if name in ("format", "format_map"):
            given = (*given, *_mark_unknown(subject))
        made = super().call(context, function, *args, **kwargs)
        # ``loop.cycle`` returns an argument unchanged, so the characters of its result already have origins.
        return made if name == "cycle" else _keep_origins(made, given)


def _mark_unknown(text: object) -> tuple[object, ...]:
    """Return ``_UNKNOWN`` if a format string may insert characters by code point (``%c``), or else an empty tuple."""
    return _UNKNOWN if isinstance(text, str) and _BY_NUMBER.search(text) else ()


def _keep_origins(made: object, given: object) -> object:
    """Add character origins to the result of a function if the result is a ``str`` computed from traced text."""
    return trace_opaque(made, given) if type(made) is str and contains_traced(given) else made


def _trace_filter(function: Callable[..., object], name: str) -> Callable[..., object]:
    """Wrap a filter so that its result carries the origins of the filter's arguments."""
    value_at = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> object:
        given = args[value_at:]
        if name == "join" and not isinstance(given[0], str):
            # Convert the items to a list, because an iterator can be consumed only once.
            args = (*args[:value_at], [*given[0]], *given[1:])
            given = args[value_at:]
        made = function(*args, **kwargs)
        if isinstance(made, Markup):
            # Convert ``Markup`` to ``str``, because ``Markup`` loses the origins of its characters and escapes any
            # appended text.
            made = str.__str__(made) if name != "safe" or not isinstance(given[0], str) else given[0]
        if not isinstance(made, str) or (isinstance(made, Traced) and name in _KEEPING):
            return made
        if name == "join" and (joined := _join(given, kwargs)) == made:
            return joined
        if name == "format":
            given = (*given, *_mark_unknown(given[0]))
        traced = contains_traced((given, kwargs))
        return trace_opaque(str.__str__(made), (given, kwargs), json=name == "tojson") if traced else made

    return call


def _join(given: Sequence[Any], options: dict[str, Any]) -> str | None:
    """Join texts like the ``join`` filter, and keep their origins; return None if the filter joins attributes."""
    if "attribute" in options or len(given) > 2:  # noqa: PLR2004 - the items and the separator
        return None
    between = _to_text(options.get("d", given[1] if len(given) > 1 else ""))
    return Traced(between, runs_of(between)).join(map(_to_text, given[0]))


def _to_text(value: object) -> str:
    """Convert the value of an expression to text, and keep the origins of the text."""
    if isinstance(value, str):
        return value
    size_of(value)
    text = str(value)
    return trace_opaque(text, value) if contains_traced(value) else text


@lru_cache(maxsize=2)
def _environment(*, traced: bool) -> ChatEnvironment:
    return TracingEnvironment() if traced else ChatEnvironment()


@lru_cache(maxsize=128)
def compile_template(text: str, *, traced: bool = False) -> jinja2.Template:
    """Compile a template; the last 128 templates are cached.

    Args:
        text: The template.
        traced: True to compile the template with :class:`TracingEnvironment`.

    Raises:
        TemplateError: The template's syntax is invalid; the error message contains the line number.
    """
    environment = _environment(traced=traced)
    try:
        made = environment.from_string(within_bounds(environment.parse(text)))
    except TemplateSyntaxError as error:
        raise TemplateError(f"the chat template, line {error.lineno}: {error.message}") from error
    except (SyntaxError, *FAILURES) as error:
        # Jinja's parser accepts repeated keywords, huge numbers and deep nesting, which then fail in the compiler.
        raise TemplateError(f"the chat template cannot be compiled: {describe_error(error)}") from error
    if escaped := parse_template(text).find(nodes.ScopedEvalContextModifier):
        raise TemplateError(f"the chat template, line {escaped.lineno}: remove autoescape; a prompt is not HTML")
    return made


@lru_cache(maxsize=16)
def parse_template(text: str) -> nodes.Template:
    """Parse a template with valid syntax into a shared syntax tree, which must not be modified."""
    return _environment(traced=False).parse(text)
