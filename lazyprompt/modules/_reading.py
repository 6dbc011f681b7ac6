"""Reads complete and streamed model responses, and parses structured output."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias, TypeGuard

from lazyprompt._base.json import JsonObject, checked_object, is_mapping
from lazyprompt.errors import FormatError, ModuleError
from lazyprompt.formatters._answers import as_dict
from lazyprompt.formatters.reply import Reply, value_at
from lazyprompt.modules._restoring import NOTHING, RestoredDeltas, restore_message

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence

    from pydantic import BaseModel

    from lazyprompt.answers.parser import Delta, ResponseParser
    from lazyprompt.budget.report import TrimReport
    from lazyprompt.formatters.report import Entries
    from lazyprompt.messages.msg import Msg
    from lazyprompt.modules.clients._base import Collector, Request
    from lazyprompt.safety.restoring import Restorer

_ADVICE = {
    "refusal": "the model refused to answer; its text is in .partial; rephrase the prompt",
    "content_filter": "the provider's content filter withheld the response; the received part is in .partial; change "
    "the prompt or the provider's safety settings",
    "length": "the response reached the token limit before any text; increase max_tokens",
    "broken call": "the model wrote a malformed tool call; the received part is in .partial; repeat the request",
}
_EMPTY = "the model's response is empty; repeat the request or rephrase the prompt"
# Malformed arguments are an error, because the tool would otherwise run with default arguments.
_BROKEN = (
    "the model called the tool {!r} with arguments that are not a JSON object: {!r:.200}; the received part is in "
    ".partial; repeat the request"
)
_CUT_CALL = (
    "the response reached the token limit inside a tool call, so arguments may be missing; increase max_tokens; the "
    "received part is in .partial"
)


ResponseFormat: TypeAlias = "type[BaseModel] | Mapping[str, Any]"

_FENCED = re.compile(r"```(?:json)?[^\S\n]*+\n(.*?)```", re.DOTALL | re.IGNORECASE)
# The first character of a JSON value, by schema type.
_OPENS = {"object": "{", "array": "["}


class AnswerSchema(NamedTuple):
    """The JSON schema for structured output.

    Attributes:
        name: The schema's name.
        schema: The JSON schema.
        model: The pydantic model, or None if the caller passed a JSON schema.
    """

    name: str
    schema: JsonObject
    model: type[BaseModel] | None

    @classmethod
    def of(cls, response_format: ResponseFormat) -> AnswerSchema:
        """Create a schema from a pydantic model, a JSON schema, or OpenAI's ``response_format``.

        Raises:
            FormatError: The argument is not a valid response format.
        """
        if _is_model(response_format):
            return cls(response_format.__name__, response_format.model_json_schema(), response_format)
        if not is_mapping(response_format):
            raise FormatError(
                f"response_format must be a pydantic model or a JSON schema as a dict, not {response_format!r}"
            )
        fields = checked_object(response_format, "response_format", FormatError)
        if fields.get("type") == "json_object":
            return cls("answer", {"type": "object"}, None)
        if "json_schema" not in fields:
            return cls(str(fields.get("title", "answer")), fields, None)
        named = fields["json_schema"]
        schema = named.get("schema") if isinstance(named, dict) else None
        if not isinstance(named, dict) or not isinstance(schema, dict):
            raise FormatError('"json_schema" in response_format must be a dict that contains the schema as "schema"')
        return cls(str(named.get("name", "answer")), schema, None)

    @property
    def instruction(self) -> str:
        """The instruction that describes the schema to a model, for providers that do not enforce schemas."""
        schema = json.dumps(self.schema, ensure_ascii=False)
        return f"Answer with one JSON value and nothing else: no words before or behind it. Its JSON schema:\n{schema}"

    def read(self, text: str) -> object:
        """Parse the JSON value in a response, which may be inside a code fence or surrounded by other text.

        Returns:
            An instance of the pydantic model or, if the caller passed a JSON schema, the JSON value without validation.

        Raises:
            ValueError: The response contains no JSON, or the JSON fails the pydantic model's validation.
        """
        kind = self.schema.get("type")
        found = _json_in(text, _OPENS.get(kind, "") if isinstance(kind, str) else "")
        # Validate the JSON text, not a parsed value: strict pydantic models reject date strings in parsed values, and
        # parsing rounds long decimals.
        return json.loads(found) if self.model is None else self.model.model_validate_json(found)


def _is_model(value: object) -> TypeGuard[type[BaseModel]]:
    from pydantic import BaseModel  # noqa: PLC0415 - slow, and needed only for structured output

    return isinstance(value, type) and issubclass(value, BaseModel)


def _json_in(text: str, opens: str) -> str:
    """Return the JSON value in the text of a model's response.

    Args:
        text: The text of the response.
        opens: The required first character of the JSON value, or an empty string to allow any character.

    Raises:
        ValueError: The response contains no valid JSON value that begins with ``opens``.
    """
    whole = text.strip()
    fenced = (match[1].strip() for match in _FENCED.finditer(text))
    try:
        found = next((each for each in (whole, *fenced) if each.startswith(opens) and _is_json(each)), None)
        if found is not None:
            return found
        if _is_json(whole):
            raise ValueError(f"the JSON does not begin with {opens}")
        # Search only from the first bracket: a later bracket may be part of a malformed value.
        begin = min((at for sign in opens or "{[" if (at := text.find(sign)) >= 0), default=None)
        if begin is None:
            raise ValueError("the text contains no JSON")
        return text[begin : json.JSONDecoder().raw_decode(text, begin)[1]]
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


class ReplyReader(NamedTuple):
    """Reads the responses to one request.

    Attributes:
        parse: A function that parses a complete response from a dict.
        collector: A function that creates a collector for stream events.
        parser: A function that creates a parser for a local model's raw text; None for a provider's model.
        heard: A function called with the events and the message of each complete response. Without streaming, the only
            event is the response itself.
        restorer: The restorer for the prompt's neutralised control sequences.
    """

    parse: Callable[[Mapping[str, Any]], Msg]
    collector: Callable[[], Collector]
    parser: Callable[[], ResponseParser] | None = None
    heard: Callable[[Sequence[object], Msg], None] | None = None
    restorer: Restorer = NOTHING

    def message(self, answer: object) -> tuple[Msg, dict[str, Any]]:
        """Return the message in a complete response, and the response as a dict."""
        fields = as_dict(answer)
        message = restore_message(self.parse(fields), self.restorer)
        if self.heard is not None:
            self.heard([answer], message)
        return message, fields


def text_reader(
    parser: Callable[[], ResponseParser], collector: Callable[[], Collector], restorer: Restorer
) -> ReplyReader:
    """Return a reader that parses the text output of a local model."""

    def parse(answer: Mapping[str, Any]) -> Msg:
        return _with_usage(parser().parse(_raw_text(answer)), answer)

    return ReplyReader(parse, collector, parser, restorer=restorer)


class CutError(Exception):
    """Raised when a stream ends before its final event."""


class PartialAnswer:
    """The received part of a response.

    Args:
        exchange: The request and its response reader.

    Attributes:
        reply: The complete reply, or None while the response is incomplete.
        begun: True if an event has been received.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._exchange, reader = exchange, exchange.reader
        self._reader, self._collector = reader, reader.collector()
        self._text = None if reader.parser is None else reader.parser().stream()
        self._restored = RestoredDeltas(reader.restorer)
        self._events: list[object] = []
        self.reply: Reply | None = None
        self.begun = False

    def feed(self, event: object) -> list[Delta]:
        """Return the deltas in an event."""
        self.begun = True
        if self._reader.heard is not None:
            self._events.append(event)
        news = self._collector.feed(event)
        if self._text is not None:
            news = [new for delta in news for new in self._text.feed(delta.text)]
        return self._restored.feed(news)

    def finish(self) -> list[Delta]:
        """Return the deltas that are still buffered at the end of the stream.

        Raises:
            CutError: The stream ended before its final event.
        """
        if not self._collector.complete:
            raise CutError
        if self._text is None:
            return self._restored.finish()
        self._text.finish()
        return [*self._restored.feed(self._text.rest), *self._restored.finish()]

    def message(self) -> tuple[Msg, dict[str, Any]]:
        """Return the message received so far, and the response as a dict."""
        answer = self._collector.answer()
        parsed = self._reader.parse(answer) if self._text is None else _with_usage(self._text.finish(), answer)
        parsed = restore_message(parsed, self._reader.restorer)
        if self._reader.heard is not None and self._collector.complete:
            self._reader.heard(self._events, parsed)
        return parsed, answer

    def partial(self) -> Reply | None:
        """Return the received part of the response, or None if nothing was received."""
        if self.reply is not None or not self.begun:
            return self.reply
        try:
            return self._exchange.partial(*self.message())
        except FormatError:  # the response contained metadata but no message
            return None


# The paths to the text in responses from OpenAI's completions API and from Ollama's `generate`.
_TEXTS: tuple[tuple[str | int, ...], ...] = (("choices", 0, "text"), ("response",))
# The paths to the prompt and completion token counts in responses from OpenAI's completions API and Ollama's
# `generate`.
_COUNTS: tuple[tuple[tuple[str | int, ...], tuple[str | int, ...]], ...] = (
    (("usage", "prompt_tokens"), ("usage", "completion_tokens")),
    (("prompt_eval_count",), ("eval_count",)),
)


def _raw_text(answer: Mapping[str, Any]) -> str:
    """Return the text in an engine's response.

    Raises:
        FormatError: The response contains no text.
    """
    for path in _TEXTS:
        found = value_at(answer, path)
        if isinstance(found, str):
            return found
    raise FormatError(f"the engine's response contains no text, only {', '.join(map(repr, answer))}")


def _with_usage(message: Msg, answer: Mapping[str, Any]) -> Msg:
    """Add the engine's token counts to a message."""
    for paths in _COUNTS:
        prompt, completion = (value_at(answer, path) for path in paths)
        if isinstance(prompt, int) and isinstance(completion, int):
            usage = {
                "prompt_tokens": prompt,
                "completion_tokens": completion,
                "total_tokens": prompt + completion,
            }
            return message.evolve(usage=usage)
    return message


class Exchange(NamedTuple):
    """A request and its response reader.

    Attributes:
        request: The request.
        reader: The response reader.
        structure: The JSON schema for structured output, or None.
        user_text: The user's text, or None if the history already ends with a message that awaits a response.
        trim: The budget's trim report, or None without a budget.
        report: The formatter's report on the payload.
        tools: The tools in a local model's prompt.
    """

    request: Request
    reader: ReplyReader
    structure: AnswerSchema | None = None
    user_text: str | None = None
    trim: TrimReport | None = None
    report: Entries = ()
    tools: Sequence[JsonObject] = ()

    def partial(self, message: Msg, raw: dict[str, Any], parsed: object = None) -> Reply:
        """Create the reply for a complete or partial response, without validation."""
        return Reply(message, raw, parsed, self.user_text, self.trim, self.report)

    def reply(self, message: Msg, raw: dict[str, Any]) -> Reply:
        """Create and validate the reply for a complete response.

        Raises:
            ModuleError: The response is a refusal, was filtered, is empty, contains an incomplete or malformed tool
                call, or doesn't match the requested schema.
        """
        reply = self.partial(message, raw)
        if reply.finish in ("refusal", "content_filter"):
            raise ModuleError(_ADVICE[reply.finish], kind="refusal", partial=reply)
        if reply.finish == "broken call":
            raise ModuleError(_ADVICE[reply.finish], kind="invalid", partial=reply)
        # Report truncated arguments, because an empty or partial value can be valid JSON.
        if reply.finish == "length" and message.blocks and message.blocks[-1].type == "tool_use":
            raise ModuleError(_CUT_CALL, kind="invalid", partial=reply)
        free = message.native.custom_calls() if message.native else ()
        broken = next((call for call in reply.tool_calls if call.raw_input is not None and call.id not in free), None)
        if broken is not None:
            raise ModuleError(_BROKEN.format(broken.name, broken.raw_input), kind="invalid", partial=reply)
        if not reply.strip() and all(block.type in ("text", "thinking") for block in message.blocks):
            raise ModuleError(_ADVICE.get(reply.finish or "", _EMPTY), kind="empty", partial=reply)
        if self.structure is None or reply.tool_calls:  # a reply with tool calls contains no structured output yet
            return reply
        try:
            return self.partial(message, raw, self.structure.read(reply))
        except ValueError as error:
            raise ModuleError(
                f"the response is not a valid {self.structure.name}: {error}; the response is in .partial; repeat the "
                "request, or increase max_tokens if the response was truncated",
                kind="invalid",
                partial=reply,
            ) from error


class _End:
    """Stores the complete response of a stream, and calls the registered callbacks.

    The object holds no reference to the stream, so that an abandoned stream is closed immediately.
    """

    __slots__ = ("reply", "then")

    def __init__(self) -> None:
        self.reply: Reply | None = None
        self.then: tuple[Callable[[Reply], object], ...] = ()

    def __call__(self, reply: Reply) -> None:
        self.reply = reply
        for call in self.then:
            call(reply)


class _Stream:
    """The base class for streams. A stream's complete response is available after its last event."""

    def __init__(self) -> None:
        self._end = _End()

    @property
    def reply(self) -> Reply:
        """The complete response.

        Raises:
            ModuleError: The stream has not ended.
        """
        if self._end.reply is None:
            raise ModuleError("the response is not complete yet; iterate over the stream to its end first")
        return self._end.reply

    def then(self, call: Callable[[Reply], object]) -> Self:
        """Register a callback for the end of the stream.

        Args:
            call: A function called with the complete response.

        Returns:
            The stream itself.
        """
        self._end.then += (call,)
        return self


class ReplyStream(_Stream):
    """A streamed response.

    Iterate over the stream for its text, or over :meth:`deltas` for all deltas. Closing the stream early, with ``with``
    or ``close``, closes the connection.

    Args:
        deltas: A function that starts the stream and accepts a callback for the complete response.
    """

    def __init__(self, deltas: Callable[[Callable[[Reply], Any]], Generator[Delta]]) -> None:
        super().__init__()
        self._deltas = deltas(self._end)

    def __iter__(self) -> Iterator[str]:
        """Yield the response's text in chunks, as it arrives."""
        return (delta.text for delta in self._deltas if delta.kind == "text")

    def deltas(self) -> Iterator[Delta]:
        """Return the deltas for text, reasoning and tool calls."""
        return self._deltas

    def close(self) -> None:
        """Close the connection."""
        self._deltas.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncReplyStream(_Stream):
    """Async version of :class:`ReplyStream`, for ``async for`` and ``async with``.

    Args:
        deltas: A function that starts the stream and accepts a callback for the complete response.
    """

    def __init__(self, deltas: Callable[[Callable[[Reply], Any]], AsyncGenerator[Delta]]) -> None:
        super().__init__()
        self._deltas = deltas(self._end)

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield the response's text in chunks, as it arrives."""
        async for delta in self._deltas:
            if delta.kind == "text":
                yield delta.text

    def deltas(self) -> AsyncIterator[Delta]:
        """Return the deltas for text, reasoning and tool calls."""
        return self._deltas

    async def aclose(self) -> None:
        """Close the connection."""
        await self._deltas.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
