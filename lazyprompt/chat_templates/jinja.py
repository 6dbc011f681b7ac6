"""A model's own chat template, rendered to the same plain text as in transformers.

Templates receive plain data. Tool-call arguments are parsed, and reasoning is passed under each key that transformers
uses. Rendering stops if a template runs too long, uses too much memory or accesses Python internals.

Source: transformers 5, ``transformers/utils/chat_template_utils.py`` (``render_jinja_template``,
``_plain_template_data``, ``_alias_reasoning_fields``) and ``PreTrainedTokenizerBase.apply_chat_template``.
"""

from __future__ import annotations

import json
import marshal
import re
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import jinja2

from lazyprompt._base.json import (
    MAX_DEPTH,
    checked_text,
    is_dict,
    is_list,
    is_mapping,
    is_sequence,
    is_text,
    texts_in,
)
from lazyprompt.chat_templates.dialect import TemplateRefusal, compile_template
from lazyprompt.errors import FormatError, TemplateError
from lazyprompt.templates.bounds import MAX_STEPS, MAX_WIDTH, check_length
from lazyprompt.templates.sandbox import FAILURES, describe_error, globals_of_one_rendering

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

Chat: TypeAlias = "Sequence[Mapping[str, Any]]"
_FLAT = frozenset((str, int, float, bool, type(None)))
# The field names that message formats use for reasoning.
REASONING = ("reasoning_content", "thinking", "reasoning")


def without_none(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Remove the keys whose value is None, as in transformers' ``apply_chat_template``.

    Templates render a missing key as empty text, but render None as "None".

    Args:
        messages: Messages in OpenAI's format, where the content of a message with only tool calls is None.

    Returns:
        Copies of the messages without the keys whose value is None.
    """
    return [{key: value for key, value in message.items() if value is not None} for message in messages]


class PlainData(NamedTuple):
    """Plain data for a template, such as tools.

    Attributes:
        data: The value as plain data, which other renderings share; it must not be modified.
        texts: All strings in ``data``, including dict keys.
    """

    data: Any
    texts: Sequence[str]


def with_reasoning(message: dict[str, object]) -> dict[str, object]:
    """Return a message with its reasoning under the field names that transformers passes to templates."""
    reasoning = next((message[name] for name in REASONING if message.get(name) is not None), None)
    return message if reasoning is None else {"thinking": reasoning, **message, "reasoning_content": reasoning}


def _plain_message(message: object, where: str) -> dict[str, Any]:
    plain = plain_data(message, where) if is_mapping(message) else None
    if not is_dict(plain):
        raise FormatError(f"{where} must be a dict, not {type(message).__name__}")
    return plain


def plain_data(value: object, where: str, depth: int = 0) -> object:
    """Copy a value as plain data, so that a template never accesses an object with custom methods.

    Args:
        value: A string, number, boolean or None, or a list, tuple or dict that contains only such values.
        where: The name of the value in error messages.
        depth: The nesting depth of the value.

    Returns:
        The copy. A tuple remains a tuple, because templates render tuples and lists differently.

    Raises:
        FormatError: The value contains an object of an unsupported type, or is nested too deeply.
    """
    kind = type(value)
    if kind in _FLAT:
        return value
    if depth >= MAX_DEPTH:
        raise FormatError(f"{where} is nested deeper than {MAX_DEPTH} levels, or contains itself")
    if is_mapping(value):
        return {
            plain_data(key, f"a key of {where}"): plain_data(item, f"{where}.{key}", depth + 1)
            for key, item in value.items()
        }
    if is_sequence(value):
        copy = [plain_data(item, f"{where}[{at}]", depth + 1) for at, item in enumerate(value)]
        return tuple(copy) if isinstance(value, tuple) else copy
    # Convert an instance of a subclass, such as an Enum member, to the base type.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    raise FormatError(f"{where} has type {kind.__name__}, which is not a JSON value")


def plain_tools(tools: Chat | None) -> PlainData:
    """Copy tools as plain data; the last 64 tool lists are cached.

    Raises:
        FormatError: A tool contains a value that is not plain data.
    """
    try:
        # Marshal version 2 serializes equal content to equal bytes; later versions also record shared references.
        packed = marshal.dumps(cast("list[Any]", tools), 2)
    except ValueError:  # marshal supports no mappings except dict, and no subclasses of str
        made = plain_data(tools, "tools")
        return PlainData(made, tuple(texts_in(made)))
    return _packed_tools(packed)


@lru_cache(maxsize=64)
def _packed_tools(packed: bytes) -> PlainData:
    made = plain_data(marshal.loads(packed), "tools")  # noqa: S302 - bytes that have just been dumped
    return PlainData(made, tuple(texts_in(made)))


def with_arguments(message: dict[str, object]) -> dict[str, object]:
    """Parse the arguments of a message's tool calls, as most templates require.

    Args:
        message: A message in OpenAI's format, with JSON arguments.

    Returns:
        A copy if the message contains tool calls, else the message. Arguments other than JSON objects stay unchanged.
    """
    return _with_calls(message, _parse_arguments)


def with_json_arguments(message: dict[str, object]) -> dict[str, object]:
    """Write the arguments of a message's tool calls as JSON, as OpenAI's format and a few templates require.

    Returns:
        A copy if the message contains tool calls, else the message.
    """
    return _with_calls(message, _dump_arguments)


def _with_calls(message: dict[str, object], change: Callable[[object], object]) -> dict[str, object]:
    calls = message.get("tool_calls")
    if not is_list(calls):
        return message
    return {**message, "tool_calls": [_with_call(call, change) for call in calls]}


def _with_call(call: object, change: Callable[[object], object]) -> object:
    if not is_dict(call):
        return call
    if isinstance(call.get("function"), dict):
        return {**call, "function": _with_call(call["function"], change)}
    return {**call, "arguments": change(call["arguments"])} if "arguments" in call else call


def _parse_arguments(arguments: object) -> object:
    if not isinstance(arguments, str):
        return arguments
    try:
        read = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        # If the model wrote arguments that are not valid JSON, pass the arguments to the template as an unchanged
        # string.
        return arguments
    return read if is_dict(read) else arguments


def _dump_arguments(arguments: object) -> object:
    return json.dumps(arguments, ensure_ascii=False) if isinstance(arguments, dict | list) else arguments


_WORD = "lazyprompt"
_WRITTEN_LIST = re.compile(rf"""['"]text['"]: *['"]{_WORD}""")
# Mistral's templates require tool call ids of exactly nine alphanumeric characters.
_NAME = "look_around"
_CALL = {"id": "abcdefghi", "type": "function", "function": {"name": _NAME, "arguments": '{"at": "x"}'}}
CALLING: tuple[dict[str, Any], ...] = (
    {"role": "user", "content": _WORD},
    {"role": "assistant", "content": "", "tool_calls": [_CALL]},
    {"role": "tool", "tool_call_id": "abcdefghi", "name": _NAME, "content": _WORD},
)


TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": _NAME, "description": "", "parameters": {"type": "object"}},
}
_NULL = re.compile("None|null")


class CallForm(NamedTuple):
    """The variant of OpenAI's tool-call format that a template accepts.

    Attributes:
        json_arguments: True if tool-call arguments must be JSON text; most templates expect a dict.
        null_content: True if the content may be None in a message with only tool calls; otherwise, None is replaced by
            ``""``.
        json_beside_null: True if tool-call arguments must be JSON text in a message whose content is None.
    """

    json_arguments: bool
    null_content: bool
    json_beside_null: bool

    def convert(self, message: dict[str, Any]) -> dict[str, Any]:
        """Convert a message to the variant of OpenAI's format that the template accepts.

        Args:
            message: The message in OpenAI's format.

        Returns:
            A copy if a change is necessary, else the message itself.
        """
        null = message.get("content", "") is None
        if "tool_calls" in message:
            as_json = self.json_beside_null if null else self.json_arguments
            message = (with_json_arguments if as_json else with_arguments)(message)
        return {**message, "content": ""} if null and not self.null_content else message


@dataclass(frozen=True, slots=True)
class ChatJinja:
    """A model's own chat template.

    Args:
        text: The source text of the template.
        special_tokens: The special tokens, keyed by their names in templates, such as ``bos_token``.
        now: The time that ``strftime_now`` formats; None for the current time.

    Raises:
        TemplateError: The template or a token is not a string, or the template's syntax is invalid. A syntax error's
            message contains the line number in the template.
    """

    text: str
    special_tokens: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    now: datetime | None = None

    def __post_init__(self) -> None:
        if not is_text(self.text):
            raise TemplateError(f"the chat template must be text, not {type(self.text).__name__}")
        checked_text(self.text, "the chat template", TemplateError)
        tokens = {
            name: text
            for name, token in self.special_tokens.items()
            if (text := checked_text(token, f"the {name} of the chat template", TemplateError)) is not None
        }
        object.__setattr__(self, "special_tokens", tokens)
        compile_template(self.text)

    def render(
        self,
        messages: Chat,
        tools: Chat | None = None,
        *,
        documents: Chat | None = None,
        add_generation_prompt: bool = True,
        **variables: object,
    ) -> str:
        """Render messages.

        Args:
            messages: The messages in the template's format, which is usually OpenAI's. Tool-call arguments may be dicts
                or JSON; they are converted to the variant that the template accepts.
            tools: The tools in OpenAI's format.
            documents: The documents, for templates that render documents.
            add_generation_prompt: True to end the text with the generation prompt.
            variables: Additional template variables. A variable overrides a special token of the same name.

        Returns:
            The rendered chat, which is the prompt for the model.

        Raises:
            TemplateError: The template rejects the messages, fails, or exceeds a resource limit.
            FormatError: A message, tool, document or variable is not plain data.
        """
        given = {"tools": tools, "documents": documents, "add_generation_prompt": add_generation_prompt, **variables}
        return self.run(self.prepare(messages), {name: plain_data(value, name) for name, value in given.items()})

    def prepare(self, messages: Chat) -> list[dict[str, Any]]:
        """Copy messages as plain data, with tool calls in the variant that the template accepts.

        Raises:
            FormatError: A message is not plain data.
        """
        return [
            with_reasoning(
                self.call_form.convert(plain) if "tool_calls" in plain or plain.get("content", "") is None else plain
            )
            for plain in (_plain_message(message, f"messages[{at}]") for at, message in enumerate(messages))
        ]

    def run(self, chat: Chat, given: Mapping[str, object], *, traced: bool = False) -> str:
        """Render plain data.

        Args:
            chat: The messages.
            given: The template variables except special tokens and functions.
            traced: True to return a :class:`~lazyprompt.chat_templates.traced.Traced` string, which records the origin
                of each character. The texts in ``chat`` and ``given`` must then be traced too.

        Returns:
            The rendered text.

        Raises:
            TemplateError: The template rejects the messages, fails, or exceeds a resource limit.
        """
        template = compile_template(self.text, traced=traced)
        # Many templates loop over all messages for each message, so the step limit grows quadratically.
        steps = MAX_STEPS + len(chat) ** 2
        own = {**globals_of_one_rendering(steps, steps), "strftime_now": self._time, **self.special_tokens}
        context = template.new_context({**own, **given, "messages": chat})
        concat = template.environment.concat
        try:
            return concat(template.root_render_func(context))
        except TemplateRefusal as error:
            raise TemplateError(f"the chat template rejects the messages: {error}") from error
        except (jinja2.TemplateError, *FAILURES) as error:
            raise TemplateError(
                f"the chat template fails{_line_of(error, template)}: {describe_error(error)}"
            ) from error

    @property
    def call_form(self) -> CallForm:
        """The variant of OpenAI's tool-call format that the template accepts."""
        return _find_call_form(self)

    @property
    def shows_text(self) -> bool:
        """True if the template renders message contents that are strings."""
        return _shows(self, parts=False)

    @property
    def shows_parts(self) -> bool:
        """True if the template renders the text parts when a message's content is a list of parts."""
        return _shows(self, parts=True)

    def content(self, text: str) -> Any:  # noqa: ANN401 - text or parts
        """Return a text as message content, which is a list of parts if the template renders only parts."""
        return [{"type": "text", "text": text}] if self.shows_parts and not self.shows_text else text

    def with_content(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return a message whose text content is converted to parts if the template renders only parts."""
        content: object = message.get("content")
        return {**message, "content": self.content(content)} if isinstance(content, str) else message

    def try_render(self, chat: Chat, *, traced: bool = False, **given: object) -> str | None:
        """Render messages, or return None if the template rejects them or fails.

        Args:
            chat: The messages as plain data.
            traced: True to return a :class:`~lazyprompt.chat_templates.traced.Traced` string.
            given: The template variables. Missing variables get the same defaults as in transformers.
        """
        try:
            return self.run(
                chat, {"tools": None, "documents": None, "add_generation_prompt": False, **given}, traced=traced
            )
        except TemplateError:
            return None

    def _time(self, form: str) -> str:
        """Format the current time for the template function ``strftime_now``."""
        check_length(len(form), MAX_WIDTH)
        now = datetime.now() if self.now is None else self.now  # noqa: DTZ005 - the local time, as in transformers
        return now.strftime(form)


@lru_cache(maxsize=128)
def _find_call_form(template: ChatJinja) -> CallForm:
    """Render tool calls in all variants to find the variant that a template accepts."""
    user, called, result = CALLING

    def render(message: dict[str, Any]) -> list[str]:
        """Render a tool call with and without its result, and with and without tools."""
        chats = ((user, message, result), (user, message))
        texts = [template.try_render(chat, tools=tools) for chat in chats for tools in (None, [TOOL])]
        return [text for text in texts if text is not None]

    with_dict, with_json = (change(dict(called)) for change in (with_arguments, with_json_arguments))
    json_arguments = not render(with_dict) and bool(render(with_json))
    usual = with_json if json_arguments else with_dict
    nulls = [len(_NULL.findall(text)) for text in render(usual)]
    with_null = [(form, render({**form, "content": None})) for form in (with_dict, with_json)]
    # Keep only the message forms for which the template doesn't render ``content=None`` as "None" or "null".
    taken = [(form, texts) for form, texts in with_null if [len(_NULL.findall(text)) for text in texts] == nulls]
    telling = [form for form, texts in taken if texts and all(_NAME in text for text in texts)]
    forms = telling or [form for form, texts in taken if texts]
    return CallForm(json_arguments, bool(forms), json_beside_null=forms[0] is with_json if forms else json_arguments)


@lru_cache(maxsize=128)
def _shows(template: ChatJinja, *, parts: bool) -> bool:
    """Return True if a template renders message contents that are text (or parts, if ``parts`` is True)."""
    content = [{"type": "text", "text": _WORD}] if parts else _WORD
    text = template.try_render([{"role": "user", "content": content}], add_generation_prompt=True)
    # A template that expects a string renders a content list with Python's ``repr``, which ``_WRITTEN_LIST`` matches.
    return text is not None and _WORD in text and not _WRITTEN_LIST.search(text)


def _line_of(error: BaseException, template: jinja2.Template) -> str:
    """Return the part of an error message that names the template line at which the error was raised."""
    line = 0
    trace = error.__traceback__
    while trace:
        if trace.tb_frame.f_globals.get("__jinja_template__") is template:
            line = template.get_corresponding_lineno(trace.tb_lineno)
        trace = trace.tb_next
    return f" in line {line}" if line else ""
