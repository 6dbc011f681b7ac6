"""The dialect of Jinja that models' chat templates are written in, compiled within bounds.

Source of the dialect: transformers 5 (``_cached_compile_jinja_template`` in ``utils/chat_template_utils.py``)
and its guide "Writing a chat template": loop controls, ``raise_exception``, ``tojson`` that escapes nothing,
``{% generation %}``, ``dict`` and ``namespace``. There are two environments of it: one writes plain text, and one
(:class:`TracingEnvironment`) the same text with its origins.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any, cast

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateSyntaxError
from jinja2.ext import Extension
from jinja2.utils import Namespace
from markupsafe import Markup

from lazyprompt.chat_templates.traced import OWN, Run, Traced, holds_traced, map_origins, runs_of, whole
from lazyprompt.errors import TemplateError
from lazyprompt.templates.bounds import check_length, size_of
from lazyprompt.templates.sandbox import FAILURES, BoundedEnvironment, bounded, describe_error, within_bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from jinja2.parser import Parser
    from jinja2.runtime import Context


# A filter's name that no template can write.
_GENERATED = " generated"


class Refusal(jinja2.TemplateError):
    """Error of ``raise_exception``."""


class _Generation(Extension):
    """``{% generation %}``, which marks the model's text; here it shows its content."""

    tags = {"generation"}  # noqa: RUF012 - the form jinja2 gives

    def parse(self, parser: Parser) -> nodes.Node:
        """Read the block. As in transformers, what is set in it ends with it."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        block: nodes.Node = nodes.Scope(body).set_lineno(line)
        names = {name.name for name in block.find_all(nodes.Name)}
        if any(block.find_all((nodes.Break, nodes.Continue))) or not names.isdisjoint(("caller", "kwargs", "varargs")):
            # In transformers it is a call block, which has these names of its own, and which no loop reaches into.
            block = nodes.CallBlock(self.call_method("show"), [], [], body).set_lineno(line)
        if isinstance(self.environment, TracingEnvironment):
            block = nodes.FilterBlock([block], nodes.Filter(None, _GENERATED, [], [], None, None)).set_lineno(line)
        return block

    def show(self, caller: Callable[[], str]) -> str:
        """Return the content of a block."""
        return caller()


def _generated(text: str) -> str:
    """Mark the content of a block that the model writes."""
    return map_origins(text, lambda origin: origin._replace(generated=True)) if isinstance(text, Traced) else text


class _Dict:
    """``dict`` for templates: it makes dicts, and is no type that could be looked into."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        """Make a dict as ``dict.fromkeys`` does."""
        return dict.fromkeys(*args)


class _Namespace(Namespace):
    """``namespace`` for templates, without names that Python gives a meaning."""

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
        # transformers' words.
        raise SecurityError(
            f"Chat templates cannot store underscore-prefixed attributes on a namespace, but got {name!r}. "
            "Please rename the attribute."
        )


def raise_exception(message: object) -> None:
    """Refuse the messages, as templates do; a wrong use of it is an error with its name.

    Args:
        message: Why.

    Raises:
        Refusal: Always.
    """
    raise Refusal(str(message))


def _to_json(
    value: object,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - templates may give it by its place
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002 - templates may give it by its place
) -> str:
    """A value as JSON; unlike Jinja's own filter it escapes nothing for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class ChatEnvironment(BoundedEnvironment):
    """Environment in which chat templates are compiled; it never changes."""

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"])
        self.filters["tojson"] = bounded(_to_json, "tojson")
        self.filters[_GENERATED] = _generated
        cast("dict[str, Any]", self.globals).update(raise_exception=raise_exception, dict=_Dict(), namespace=_Namespace)


# Fields of formats that write a character by its number, or may.
_BY_NUMBER = re.compile(r"%(?:\([^)%]*+\))?+[-+ #0-9.*hlL]*+c|%\([^)%]*+%|:[^{}:]*(?:c\}|\{)")
# What these give is made of a traced text's own methods.
_KEEPING = frozenset(("capitalize", "lower", "replace", "safe", "string", "title", "trim", "truncate", "upper"))
# What these give is one of the things they are given, with its own origin.
_CHOOSING = frozenset(("attr", "d", "default", "first", "last", "max", "min", _GENERATED))


# A value of which nobody knows where it came from.
_UNKNOWN = (b"",)


class TracingEnvironment(ChatEnvironment):
    """Environment for texts that carry their origins."""

    def __init__(self) -> None:
        super().__init__()
        filters = cast("dict[str, Callable[..., object]]", self.filters)
        for name in filters.keys() - _CHOOSING:
            filters[name] = _tracing(filters[name], name)

    @staticmethod
    def concat(pieces: Iterable[str]) -> str:
        """The text of a block, macro or call, out of its pieces."""
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
        """Join values as ``~`` does."""
        return TracingEnvironment.concat([cast("str", _shown_traced(value)) for value in values])

    def shown(self, value: object) -> str:
        """Write a value that is not just text."""
        return str(_shown_traced(value))

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        """Calculate; what ``%`` puts together came from where its operands came from."""
        return _kept(super().call_binop(context, operator, left, right), (left, right, *_by_number(left)))

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - Jinja's
        """Call what a template calls; text that comes back came from where the arguments came from."""
        subject = getattr(getattr(function, "__wrapped__", function), "__self__", None)
        name = getattr(function, "__name__", "")
        if isinstance(subject, str) and name == "join" and not isinstance(subject, Traced):
            function = Traced.of(subject, OWN).join
        elif isinstance(subject, Traced) and name in ("format", "format_map"):
            # Jinja's own form of them makes another text of the same kind, which would need origins.
            function = self.getattr(str.__str__(subject), name)
        given: tuple[object, ...] = (subject if isinstance(subject, str | bytes) else None, args, kwargs)
        if name in ("format", "format_map"):
            given = (*given, *_by_number(subject))
        made = super().call(context, function, *args, **kwargs)
        # ``loop.cycle`` gives one of its arguments as it is.
        return made if name == "cycle" else _kept(made, given)


def _by_number(text: object) -> tuple[object, ...]:
    """Return a value of unknown origin where a format may write characters by their numbers."""
    return _UNKNOWN if isinstance(text, str) and _BY_NUMBER.search(text) else ()


def _kept(made: object, given: object) -> object:
    """Return a result as traced text, if it is text and something traced went into it."""
    return whole(made, given) if type(made) is str and holds_traced(given) else made


def _tracing(function: Callable[..., object], name: str) -> Callable[..., object]:
    """A filter whose result still knows where it came from."""
    value_at = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> object:
        given = args[value_at:]
        if name == "join" and not isinstance(given[0], str):
            # What is joined may be given as it comes, and be gone through only once.
            args = (*args[:value_at], [*given[0]], *given[1:])
            given = args[value_at:]
        made = function(*args, **kwargs)
        if isinstance(made, Markup):
            # It would escape what is joined to it, and no origin would be left; a plain text shows that it did not.
            made = str.__str__(made) if name != "safe" or not isinstance(given[0], str) else given[0]
        if not isinstance(made, str) or (isinstance(made, Traced) and name in _KEEPING):
            return made
        if name == "join" and (joined := _joined(given, kwargs)) == made:
            return joined
        if name == "format":
            given = (*given, *_by_number(given[0]))
        traced = holds_traced((given, kwargs))
        return whole(str.__str__(made), (given, kwargs), json=name == "tojson") if traced else made

    return call


def _joined(given: Sequence[Any], options: dict[str, Any]) -> str | None:
    """Join texts as ``join`` does, with their origins; None if it does more than to join them."""
    if "attribute" in options or len(given) > 2:  # noqa: PLR2004 - what is joined, and by what
        return None
    between = _shown_traced(options.get("d", given[1] if len(given) > 1 else ""))
    return Traced(str(between), runs_of(str(between))).join([str(_shown_traced(item)) for item in given[0]])


def _shown_traced(value: object) -> object:
    """The value of an expression as text with its origins."""
    if isinstance(value, str):
        return value
    size_of(value)
    text = str(value)
    return whole(text, value) if holds_traced(value) else text


@lru_cache(maxsize=2)
def _environment(*, traced: bool) -> ChatEnvironment:
    return TracingEnvironment() if traced else ChatEnvironment()


@lru_cache(maxsize=128)
def compiled(text: str, *, traced: bool = False) -> jinja2.Template:
    """A template made ready; the last 128 are kept.

    Args:
        text: The template.
        traced: Whether what it writes knows where it came from.

    Returns:
        The template.

    Raises:
        TemplateError: Its syntax is wrong; the message names the line.
    """
    environment = _environment(traced=traced)
    try:
        made = environment.from_string(within_bounds(environment.parse(text)))
    except TemplateSyntaxError as error:
        raise TemplateError(f"the chat template, line {error.lineno}: {error.message}") from error
    except (SyntaxError, *FAILURES) as error:
        # What Jinja's parser lets pass and Python's does not: a repeated keyword, a huge number, deep nesting; and what
        # fails in expressions without variables, which are worked out now.
        raise TemplateError(f"the chat template cannot be compiled: {describe_error(error)}") from error
    if escaped := parsed(text).find(nodes.ScopedEvalContextModifier):
        raise TemplateError(f"the chat template, line {escaped.lineno}: autoescape is for HTML, and a prompt is none")
    return made


@lru_cache(maxsize=16)
def parsed(text: str) -> nodes.Template:
    """A template as a tree, for looking into; nobody may change it.

    Args:
        text: The template, whose syntax is right.

    Returns:
        The tree.
    """
    return _environment(traced=False).parse(text)
