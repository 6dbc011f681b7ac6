"""Parsing of responses with a tokenizer's ``response_template``, which transformers interprets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from lazyprompt._base.client_objects import fields_of
from lazyprompt.answers.message_builder import MessageBuilder, WrittenCall, arguments_of
from lazyprompt.answers.values import items_in
from lazyprompt.errors import MissingExtraError, TemplateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lazyprompt._base.json import Fields, JsonObject

# The exceptions that the response parser of transformers raises for a field with invalid content.
_ERRORS = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
_THINKING = frozenset(("reasoning_content", "reasoning", "thinking"))
_CALLS = "tool_calls"
_OPENINGS = frozenset(("open", "open_pattern"))


class AnsweringTokenizer(Protocol):
    """A transformers tokenizer or a :class:`~lazyprompt.ChatTemplate`, which may have a response template."""

    @property
    def response_template(self) -> Mapping[str, Any] | None:
        """The response template."""
        ...

    @property
    def chat_template(self) -> Any:  # noqa: ANN401 - transformers declares no type
        """The source text of the chat template, or several texts by name."""
        ...


class _FieldParser(Protocol):
    """The streaming parser in transformers; each of its events refers to one field of the message."""

    def feed(self, text: str) -> list[dict[str, Any]]: ...

    def finalize(self) -> tuple[dict[str, Any], list[dict[str, Any]]]: ...


class ResponseTemplate(NamedTuple):
    """A response template, with the prompt and the tools of a request.

    Args:
        fields: The template, changed so that fields may be missing or contain invalid JSON.
        implicit: The name of the field for text outside all markers; empty if the template has no such field.
        prompt: The prompt, which the template uses to find the start of the response.
        tools: The tools as OpenAI dicts.
    """

    fields: Fields
    implicit: str
    prompt: str
    tools: Sequence[JsonObject]

    @classmethod
    def load(cls, template: Mapping[str, Any], prompt: str, tools: Sequence[JsonObject]) -> ResponseTemplate:
        """Validate and load a response template.

        Raises:
            TemplateError: transformers rejects the template.
            MissingExtraError: transformers is not installed, or its version does not support response templates.
        """
        fields = {name: _tolerant(field) for name, field in fields_of(template.get("fields")).items()}
        implicit = next((name for name, field in fields.items() if not _OPENINGS.intersection(fields_of(field))), "")
        loaded = cls({**template, "fields": fields}, implicit, prompt, tools)
        try:
            loaded.start(prompt)
        except _ERRORS as error:
            raise TemplateError(f"transformers rejects the response template: {error}") from error
        return loaded

    def start(self, prompt: str) -> _FieldParser:
        """Return a parser that has already read a prompt."""
        try:
            from transformers.utils.chat_parsing import ResponseParser  # noqa: PLC0415 - optional and slow to import
        except ImportError as error:
            raise MissingExtraError(
                "response templates require transformers 5.24 or newer; install it with: pip install -U transformers"
            ) from error
        parser: _FieldParser = ResponseParser(dict(self.fields), prefix=prompt, tools=list(self.tools))
        return parser


def _tolerant(field: object) -> object:
    """Return a copy of a field definition that accepts a missing field."""
    given = fields_of(field)
    return {**given, "optional": True} if given else field


class TemplateReader:
    """A reader that parses a response with a response template.

    If a field can't be parsed, its content is added to the message as text, without the markers around the field. The
    content of any field besides text, reasoning and calls is also added as text.

    Args:
        template: The loaded response template.
        builder: The builder for the parsed message.
    """

    def __init__(self, template: ResponseTemplate, builder: MessageBuilder) -> None:
        self._template = template
        self.builder = builder
        # The text of the current region that is not in the message yet.
        self._region: list[str] = []
        self._closed = ""
        self._over = False
        self._restart(template.prompt)
        # Drop leading whitespace, because the transformers parser may emit the end of the prompt with the response.
        builder.close()

    def _restart(self, prompt: str) -> None:
        self._prompt = prompt
        self._parser = self._template.start(prompt)
        self._raw = ""

    def feed(self, chunk: str) -> bool:
        """Read a chunk; return True if a marker ended the response."""
        while chunk:
            chunk = self._read(chunk)
        return self._over

    def _read(self, chunk: str) -> str:
        """Read a chunk; return the unread text after an invalid field, or an empty string if all fields are valid."""
        try:
            events = self._parser.feed(chunk)
        except _ERRORS:
            return self._read_up_to_error(chunk)
        self._raw += chunk
        self._take(events)
        return ""

    def _read_up_to_error(self, chunk: str) -> str:
        """Read a chunk again, character by character, because the failed call lost the events before the error."""
        self._parser = self._template.start(self._prompt)
        self._parser.feed(self._raw)
        for at, character in enumerate(chunk, 1):
            try:
                self._take(self._parser.feed(character))
            except _ERRORS:
                self._fail()
                self.builder.close()
                self._restart("")
                return chunk[at:]
            if self._over:
                break
        return ""

    def end(self) -> None:
        """Read the text that was held back until the end of the response."""
        if self._over:
            return
        try:
            _, events = self._parser.finalize()
        except _ERRORS:
            self._fail()
        else:
            self._take(events)

    def _take(self, events: Iterable[dict[str, Any]]) -> None:
        for event in events:
            field: str = event["field"]
            if event["type"] == "region_open":
                if field == self._closed == self._template.implicit:
                    # The implicit field has no start marker: if the implicit field reopens right after it closed, an
                    # end-of-turn marker closed it.
                    self._over = True
                    return
                self._region, self._closed = [], ""
            elif event["type"] == "region_close":
                self._close(field, event["value"])
            elif field == _CALLS or event["dirty"]:
                self._region.append(event["text"])
            elif field in _THINKING:
                self.builder.thinking(event["text"])
            else:
                self.builder.text(event["text"])

    def _close(self, field: str, value: object) -> None:
        calls = _calls_in(value, "".join(self._region)) if field == _CALLS else []
        for call, own_id in calls:
            self.builder.call(call, own_id)
        if not calls:
            self._fail()
        self.builder.close()
        self._region, self._closed = [], field

    def _fail(self) -> None:
        """Add the text of the current region to the message, unless it was already added."""
        self.builder.text("".join(self._region))


WrittenCalls: TypeAlias = list[tuple[WrittenCall, str]]


def _calls_in(value: object, raw: str) -> WrittenCalls:
    """Return the calls in a field's value, with their ids; an empty list if any item is not a call."""
    calls: WrittenCalls = []
    for item in items_in(value) or (value,):
        fields = fields_of(item)
        function = fields_of(fields.get("function")) or fields
        name, given, own_id = function.get("name"), function.get("arguments"), fields.get("id")
        if not isinstance(name, str) or not name:
            return []
        arguments = arguments_of(given) if isinstance(given, str) else {} if given is None else given
        written = WrittenCall(
            name, given if isinstance(given, str) else raw, arguments if isinstance(arguments, dict) else None
        )
        calls.append((written, own_id if isinstance(own_id, str) else ""))
    return calls
