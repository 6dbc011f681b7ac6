"""A model's own chat template, rendered to plain text: what transformers renders, this renders byte for byte.

A template is given plain data, the arguments of calls read, reasoning under its names. One that would never end, fill
the memory or look behind its data is stopped.

Source: transformers 5, ``transformers/utils/chat_template_utils.py`` (``render_jinja_template``,
``_plain_template_data``, ``_alias_reasoning_fields``) and ``PreTrainedTokenizerBase.apply_chat_template``.
"""

from __future__ import annotations

import json
import marshal
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias, cast

import jinja2

from lazyprompt._base.json import MAX_DEPTH, checked_text, texts_in
from lazyprompt.chat_templates.dialect import Refusal, compiled
from lazyprompt.errors import FormatError, TemplateError
from lazyprompt.templates.bounds import MAX_STEPS, MAX_WIDTH, check_length
from lazyprompt.templates.sandbox import FAILURES, BoundedEnvironment, describe_error, globals_of_one_rendering

# Messages, tools or documents, as dicts.
Chat: TypeAlias = "Sequence[Mapping[str, Any]]"
_FLAT = frozenset((str, int, float, bool, type(None)))
# The names under which reasoning travels; transformers gives templates the first and the second.
REASONING = ("reasoning_content", "thinking", "reasoning")


def without_none(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages without the keys that hold None, as transformers' ``apply_chat_template`` gives them to a template.

    Args:
        messages: Messages in the OpenAI form, where a message that only calls has the content None.

    Returns:
        The messages; templates show a key that is not there as nothing, and None as "None".
    """
    return [{key: value for key, value in message.items() if value is not None} for message in messages]


class PlainData(NamedTuple):
    """Data that a template is given.

    Attributes:
        data: The data, as tools. Nothing changes it.
        texts: All texts in it.
    """

    data: Any
    texts: Sequence[str]


def with_reasoning(message: dict[str, object]) -> dict[str, object]:
    """Return a message with its reasoning under the names that transformers gives it."""
    reasoning = next((message[name] for name in REASONING if message.get(name) is not None), None)
    return message if reasoning is None else {"thinking": reasoning, **message, "reasoning_content": reasoning}


def _plain_message(message: object, where: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise FormatError(f"{where} is a {type(message).__name__}; a template is given dicts")
    return cast("dict[str, Any]", plain_data(cast("object", message), where))


def plain_data(value: object, where: str, depth: int = 0) -> object:
    """A copy of a value as plain data: a template never sees an object with methods of its own.

    Args:
        value: The value: text, numbers, True and False, None, and lists, tuples and dicts of them.
        where: How an error names it.
        depth: How deep in the value this is.

    Returns:
        The copy; a tuple stays one, since templates show it as Python writes it.

    Raises:
        FormatError: Something in it is anything else.
    """
    kind = type(value)
    if kind in _FLAT:
        return value
    if depth >= MAX_DEPTH:
        raise FormatError(f"{where} is nested deeper than {MAX_DEPTH} levels, or holds itself")
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {
            plain_data(key, f"a key of {where}"): plain_data(item, f"{where}.{key}", depth + 1) for key, item in items
        }
    if isinstance(value, list | tuple):
        copy = [
            plain_data(item, f"{where}[{at}]", depth + 1) for at, item in enumerate(cast("Sequence[object]", value))
        ]
        return tuple(copy) if isinstance(value, tuple) else copy
    # Members of an Enum and the like, which have methods of their own.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    raise FormatError(f"{where} is a {kind.__name__}, which is no JSON value")


def plain_tools(tools: Chat | None) -> PlainData:
    """Tools as plain data; the last 64 sets are kept.

    Args:
        tools: The tools.

    Returns:
        What a template may be given.

    Raises:
        FormatError: Something in them is no plain data.
    """
    try:
        # Version 2 writes equal content as equal bytes; later ones also write which strings are shared.
        packed = marshal.dumps(cast("list[Any]", tools), 2)
    except ValueError:  # something marshal does not know: a mapping or str of another class, or a mistake
        made = plain_data(tools, "tools")
        return PlainData(made, tuple(texts_in(made)))
    return _packed_tools(packed)


@lru_cache(maxsize=64)
def _packed_tools(packed: bytes) -> PlainData:
    made = plain_data(marshal.loads(packed), "tools")  # noqa: S302 - bytes that have just been dumped
    return PlainData(made, tuple(texts_in(made)))


def with_arguments(message: dict[str, object]) -> dict[str, object]:
    """A message with the arguments of its calls as dicts, as most templates want them.

    Args:
        message: The message, in the OpenAI form: the arguments are JSON.

    Returns:
        A copy where there are such calls; arguments that are no JSON object stay as they are.
    """
    return _with_calls(message, _read)


def with_json_arguments(message: dict[str, object]) -> dict[str, object]:
    """A message with the arguments of its calls as JSON, as OpenAI's form and a few templates want them.

    Args:
        message: The message.

    Returns:
        A copy where there are such calls.
    """
    return _with_calls(message, _written)


def _with_calls(message: dict[str, object], change: Callable[[object], object]) -> dict[str, object]:
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return message
    return {**message, "tool_calls": [_with_call(call, change) for call in cast("list[object]", calls)]}


def _with_call(call: object, change: Callable[[object], object]) -> object:
    if not isinstance(call, dict):
        return call
    fields = cast("dict[str, object]", call)
    if isinstance(fields.get("function"), dict):
        return {**fields, "function": _with_call(fields["function"], change)}
    return {**fields, "arguments": change(fields["arguments"])} if "arguments" in fields else fields


def _read(arguments: object) -> object:
    if not isinstance(arguments, str):
        return arguments
    try:
        read = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        # A model wrote them, and wrote no JSON: the template is given its words.
        return arguments
    return cast("object", read) if isinstance(read, dict) else arguments


def _written(arguments: object) -> object:
    return json.dumps(arguments, ensure_ascii=False) if isinstance(arguments, dict | list) else arguments


# A text to be found again, and what tells that a list was written as Python or JSON has it.
_WORD = "lazyprompt"
_WRITTEN_LIST = re.compile(rf"""['"]text['"]: *['"]{_WORD}""")
# A call with its result, as OpenAI's form has it; ids of nine letters and digits are what Mistral's templates take.
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


class Takes(NamedTuple):
    """Parts of OpenAI's form of a call that a template takes.

    Attributes:
        json_arguments: Whether it takes arguments as JSON only; most take a dict.
        null_content: Whether a message that only calls may have the content None; else it is given an empty one.
        json_beside_null: Whether it takes arguments as JSON only where the content is None.
    """

    json_arguments: bool
    null_content: bool
    json_beside_null: bool

    def form(self, message: dict[str, Any]) -> dict[str, Any]:
        """A message in the form that the template takes.

        Args:
            message: The message, in OpenAI's form.

        Returns:
            A copy where something has to be changed.
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
        compiled(self.text)

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
            messages: The messages, in the form that the template knows: mostly OpenAI's. The arguments of calls may be
                dicts or JSON: the template is given what it takes.
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
        given = {"tools": tools, "documents": documents, "add_generation_prompt": add_generation_prompt, **variables}
        return self.run(self.prepared(messages), {name: plain_data(value, name) for name, value in given.items()})

    def prepared(self, messages: Chat) -> list[dict[str, Any]]:
        """Messages as plain data, calls in the form that the template takes.

        Args:
            messages: The messages.

        Returns:
            New messages.

        Raises:
            FormatError: A message is no plain data.
        """
        return [
            with_reasoning(
                self.takes.form(plain) if "tool_calls" in plain or plain.get("content", "") is None else plain
            )
            for plain in (_plain_message(message, f"messages[{at}]") for at, message in enumerate(messages))
        ]

    def run(self, chat: Chat, given: Mapping[str, object], *, traced: bool = False) -> str:
        """Render what is plain data already.

        Args:
            chat: The messages.
            given: The variables of the template, without those that are the same each time.
            traced: Whether the text knows where it came from; what it is made of must know it then.

        Returns:
            The text.

        Raises:
            TemplateError: As :meth:`render`.
        """
        template = compiled(self.text, traced=traced)
        # Many templates look through all messages for each of them.
        steps = MAX_STEPS + len(chat) ** 2
        own = {**globals_of_one_rendering(steps, steps), "strftime_now": self._time, **self.special_tokens}
        context = template.new_context({**own, **given, "messages": chat})
        concat = cast("BoundedEnvironment", template.environment).concat
        try:
            return concat(template.root_render_func(context))
        except Refusal as error:
            raise TemplateError(f"the chat template refuses the messages: {error}") from error
        except (jinja2.TemplateError, *FAILURES) as error:
            raise TemplateError(
                f"the chat template fails{_line_of(error, template)}: {describe_error(error)}"
            ) from error

    @property
    def takes(self) -> Takes:
        """Parts of OpenAI's form that the template takes."""
        return _takes(self)

    @property
    def shows_text(self) -> bool:
        """True if the template shows a content that is text."""
        return _shows(self, parts=False)

    @property
    def shows_parts(self) -> bool:
        """True if the template shows the texts in a content that is a list of parts."""
        return _shows(self, parts=True)

    def content(self, text: str) -> Any:  # noqa: ANN401 - text or parts
        """Return a text as content: as parts where the template shows nothing else."""
        return [{"type": "text", "text": text}] if self.shows_parts and not self.shows_text else text

    def with_content(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return a message whose content is parts, where the template shows nothing else."""
        content: object = message.get("content")
        return {**message, "content": self.content(content)} if isinstance(content, str) else message

    def writes(self, chat: Chat, *, traced: bool = False, **given: object) -> str | None:
        """Render messages for a trial; None if the template refuses or fails.

        Args:
            chat: The messages, as plain data.
            traced: As in :meth:`run`.
            given: The variables; what is not given is as transformers has it.

        Returns:
            The text, if any.
        """
        try:
            return self.run(
                chat, {"tools": None, "documents": None, "add_generation_prompt": False, **given}, traced=traced
            )
        except TemplateError:
            return None

    def _time(self, form: str) -> str:
        """Return the time for ``strftime_now``."""
        check_length(len(form), MAX_WIDTH)
        now = datetime.now() if self.now is None else self.now  # noqa: DTZ005 - the local time, as in transformers
        return now.strftime(form)


@lru_cache(maxsize=128)
def _takes(template: ChatJinja) -> Takes:
    """Try calls in the forms they may have, since nothing in the template says which it takes."""
    user, called, result = CALLING

    def shown(message: dict[str, Any]) -> list[str]:
        """Render a call in some surroundings."""
        chats = ((user, message, result), (user, message))
        texts = [template.writes(chat, tools=tools) for chat in chats for tools in (None, [TOOL])]
        return [text for text in texts if text is not None]

    with_dict, with_json = (change(dict(called)) for change in (with_arguments, with_json_arguments))
    json_arguments = not shown(with_dict) and bool(shown(with_json))
    usual = with_json if json_arguments else with_dict
    nulls = [len(_NULL.findall(text)) for text in shown(usual)]
    with_null = [(form, shown({**form, "content": None})) for form in (with_dict, with_json)]
    # Some write what is not there as Python or JSON has it, and some show a call in one of the forms only.
    taken = [(form, texts) for form, texts in with_null if [len(_NULL.findall(text)) for text in texts] == nulls]
    telling = [form for form, texts in taken if texts and all(_NAME in text for text in texts)]
    forms = telling or [form for form, texts in taken if texts]
    return Takes(json_arguments, bool(forms), json_beside_null=forms[0] is with_json if forms else json_arguments)


@lru_cache(maxsize=128)
def _shows(template: ChatJinja, *, parts: bool) -> bool:
    """Return True if a template shows such a content: tried, since nothing in it says so."""
    content = [{"type": "text", "text": _WORD}] if parts else _WORD
    text = template.writes([{"role": "user", "content": content}], add_generation_prompt=True)
    # Templates for text alone show a list as Python writes it.
    return text is not None and _WORD in text and not _WRITTEN_LIST.search(text)


def _line_of(error: BaseException, template: jinja2.Template) -> str:
    """Return the line of the template at which an error was raised, for its message."""
    line = 0
    trace = error.__traceback__
    while trace:
        # Where Jinja itself looks for the template of a frame.
        if trace.tb_frame.f_globals.get("__jinja_template__") is template:
            line = template.get_corresponding_lineno(trace.tb_lineno)
        trace = trace.tb_next
    return f" in line {line}" if line else ""
