"""A model's own chat template: Jinja in the dialect that models use, rendered to plain text.

Source of the dialect: transformers 5, ``transformers/utils/chat_template_utils.py`` (``render_jinja_template`` and
``_cached_compile_jinja_template``) and its guide "Writing a chat template". What it renders, this renders byte for
byte; a template that would never end, fill the memory or look behind its data is stopped.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateSyntaxError
from jinja2.ext import Extension
from jinja2.utils import Namespace

from lazyprompt._json import checked_text
from lazyprompt.errors import TemplateError
from lazyprompt.text.bounds import MAX_STEPS, MAX_WIDTH, check_length, weigh
from lazyprompt.text.chat.messages import chat_message, plain_data, with_arguments
from lazyprompt.text.sandbox import FAILURES, BoundedEnvironment, bounded, count_loops, globals_of_one_rendering, said

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jinja2.parser import Parser


# A text to be found again, and what tells that a list was written as Python or JSON has it.
_WORD = "lazyprompt"
_WRITTEN_LIST = re.compile(rf"""['"]text['"]: *['"]{_WORD}""")


class _Refusal(jinja2.TemplateError):
    """What ``raise_exception`` raises."""


class _Generation(Extension):
    """``{% generation %}``, which marks what the model said; here it shows what is in it."""

    tags = {"generation"}  # noqa: RUF012 - the form jinja2 gives

    def parse(self, parser: Parser) -> nodes.Node:
        """Read the block. As in transformers it is a call block: what is set in it ends with it."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("show"), [], [], body).set_lineno(line)

    def show(self, caller: Callable[[], str]) -> str:
        """What is in the block."""
        return caller()


class _Dict:
    """``dict`` for templates: it makes dicts, and is no type that could be looked into."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:  # noqa: ANN401 - dict's own
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:  # noqa: ANN401 - dict's own
        """The same as ``dict.fromkeys``."""
        return dict.fromkeys(*args)


class _Namespace(Namespace):
    """``namespace`` for templates, without names that Python gives a meaning."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - Jinja's own: ``self`` may be a name in it
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
    """What templates call to refuse messages; its name is in the error where it is called wrongly.

    Args:
        message: Why.

    Raises:
        _Refusal: Always.
    """
    raise _Refusal(str(message))


def _to_json(
    value: object,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - templates may give it by its place
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002 - templates may give it by its place
) -> str:
    """A value as JSON; unlike Jinja's own filter it escapes nothing for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _shown(value: object) -> object:
    """What Jinja calls with the value of each expression: nothing is changed, it is only looked at."""
    if not isinstance(value, str):
        weigh(value)
    return value


@lru_cache(maxsize=1)
def _environment() -> BoundedEnvironment:
    """The one environment all chat templates share; nothing ever changes it."""
    made = BoundedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
        extensions=[_Generation, "jinja2.ext.loopcontrols"],
    )
    made.filters["tojson"] = bounded(_to_json, "tojson")
    cast("dict[str, Any]", made.globals).update(raise_exception=raise_exception, dict=_Dict(), namespace=_Namespace)
    return made


@lru_cache(maxsize=64)
def _compiled(text: str) -> jinja2.Template:
    environment = _environment()
    try:
        tree = environment.parse(text)
        made = environment.from_string(count_loops(tree))
    except TemplateSyntaxError as error:
        raise TemplateError(f"the chat template, line {error.lineno}: {error.message}") from error
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        # What Jinja's parser lets pass and Python's does not: a repeated keyword, a huge number, deep nesting.
        raise TemplateError(f"the chat template cannot be compiled: {said(error)}") from error
    if escaped := tree.find(nodes.ScopedEvalContextModifier):
        raise TemplateError(f"the chat template, line {escaped.lineno}: autoescape is for HTML, and a prompt is none")
    return made


@dataclass(frozen=True, slots=True)
class ChatJinja:
    """A model's own chat template.

    Args:
        text: The template.
        special_tokens: The tokens by the names that the template has for them, as ``bos_token``.
        now: The time that ``strftime_now`` tells; None is the clock's.

    Raises:
        TemplateError: The template or a token is no text, or the syntax is wrong; the message names the line.
    """

    text: str
    special_tokens: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    now: datetime | None = None

    def __post_init__(self) -> None:
        if not isinstance(cast("object", self.text), str):
            raise TemplateError(f"a chat template is text, not a {type(self.text).__name__}")
        checked_text(self.text, "the chat template", TemplateError)
        tokens = {
            name: checked_text(token, f"the {name} of the chat template", TemplateError)
            for name, token in self.special_tokens.items()
            if cast("object", token) is not None
        }
        object.__setattr__(self, "special_tokens", tokens)
        _compiled(self.text)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **variables: object,
    ) -> str:
        """Render messages.

        Templates want the arguments of a call as a dict; where the OpenAI form has them as JSON, they are read. A few
        templates want the JSON: one that fails with dicts is given the messages as they are.

        Args:
            messages: The messages, in the form that the template knows: mostly OpenAI's.
            tools: The tools, in the OpenAI form.
            documents: The documents, for the templates that have a place for them.
            add_generation_prompt: Whether the text ends with what invites the assistant to speak.
            variables: What else the template looks up; it goes before special tokens of the same name.

        Returns:
            The text that the model is given.

        Raises:
            TemplateError: The template refuses the messages, fails, or asks for more than the bounds give.
            FormatError: A message, tool, document or variable is no plain data.
        """
        given: dict[str, object] = {**self.special_tokens, "tools": tools, "documents": documents}
        given |= {"add_generation_prompt": add_generation_prompt, **variables}
        given = {name: plain_data(value, name) for name, value in given.items()}
        chat = [chat_message(message, f"messages[{at}]") for at, message in enumerate(messages)]
        read = [with_arguments(message) for message in chat]
        try:
            return self._rendered(read, given)
        except TemplateError:
            if read != chat:
                with suppress(TemplateError):
                    return self._rendered(chat, given)
            raise

    @property
    def shows_text(self) -> bool:
        """Whether the template shows a content that is text."""
        return _shows(self, parts=False)

    @property
    def shows_parts(self) -> bool:
        """Whether the template shows the texts in a content that is a list of parts."""
        return _shows(self, parts=True)

    def _rendered(self, chat: list[dict[str, object]], given: dict[str, object]) -> str:
        template = _compiled(self.text)
        # Many templates look through all messages for each of them.
        steps = MAX_STEPS + len(chat) ** 2
        own = {**globals_of_one_rendering(steps, steps), "strftime_now": self._time}
        context = template.new_context({**own, **given, "messages": chat})
        try:
            return BoundedEnvironment.concat(template.root_render_func(context))
        except _Refusal as error:
            raise TemplateError(f"the chat template refuses the messages: {error}") from error
        except (jinja2.TemplateError, *FAILURES) as error:
            raise TemplateError(f"the chat template fails{_line_of(error, template)}: {said(error)}") from error

    def _time(self, form: str) -> str:
        """What ``strftime_now`` gives."""
        check_length(len(form), MAX_WIDTH)
        now = datetime.now() if self.now is None else self.now  # noqa: DTZ005 - the local time, as in transformers
        return now.strftime(form)


@lru_cache(maxsize=128)
def _shows(template: ChatJinja, *, parts: bool) -> bool:
    """Whether a template shows such a content: tried out, since nothing in it says so."""
    content = [{"type": "text", "text": _WORD}] if parts else _WORD
    try:
        text = template.render([{"role": "user", "content": content}])
    except TemplateError:
        return False
    # Templates for text alone show a list as Python writes it.
    return _WORD in text and not _WRITTEN_LIST.search(text)


def _line_of(error: BaseException, template: jinja2.Template) -> str:
    """Where in the template an error comes from, for its message."""
    line = 0
    trace = error.__traceback__
    while trace:
        # Where Jinja itself looks for the template of a frame.
        if trace.tb_frame.f_globals.get("__jinja_template__") is template:
            line = template.get_corresponding_lineno(trace.tb_lineno)
        trace = trace.tb_next
    return f" in line {line}" if line else ""
