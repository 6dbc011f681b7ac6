"""The parser for the raw output of local models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from lazyprompt._base.client_objects import fields_of
from lazyprompt.answers.calls import AnswerPlan
from lazyprompt.answers.forms import FORMS, THINK, form_in, form_of, opens_thought
from lazyprompt.answers.message_builder import Delta, MessageBuilder, well
from lazyprompt.answers.reading import FormReader
from lazyprompt.answers.response_template import AnsweringTokenizer, ResponseTemplate, TemplateReader
from lazyprompt.answers.values import Tools
from lazyprompt.errors import FormatError, TemplateError
from lazyprompt.rendering.markers import Markers

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyprompt.answers.reading import AnswerReader
    from lazyprompt.messages.msg import Msg
    from lazyprompt.messages.tools import ToolLike

AnswerFormLike: TypeAlias = "str | Markers | Mapping[str, Any] | AnsweringTokenizer"
"""The response format of a model: a name, markers, a chat or response template, or a transformers tokenizer."""

__all__ = ["AnswerFormLike", "Delta", "ResponseParser", "ResponseStream"]


class ResponseParser:
    """A parser for the output of a local model: text, thinking and tool calls.

    Parsing never fails, whatever the model wrote. Arguments that are not a JSON object are stored unchanged in the
    call's ``raw_input``. Text that can't be parsed as a call remains text. A marker that ends a turn or starts the next
    turn ends the response; all text after it is dropped.

    Without ``thinking`` and ``prompt``, the end of the family's generation prompt determines whether the output starts
    with reasoning. If ``form`` names Qwen3, GLM-4.5 or only a response format, the output may start with either
    reasoning or text. If an output may start with reasoning or text, a ``</think>`` without a preceding ``<think>``
    ends reasoning that began at the start of the output. A stream returns no deltas until a marker or the end of the
    output shows whether the output starts with reasoning.

    A parser stores no state, so threads can share it.

    Args:
        form: The name of a format, model family, model or model repository, or the path of a model file. With
            custom :class:`~lazyprompt.Markers`, the response ends at a turn marker, and calls are parsed if they are
            JSON, or a name and JSON arguments without quotes or braces between them. A transformers tokenizer is also
            accepted: its ``response_template`` is used, or else the format that its chat template writes. A response
            template can also be passed directly. Patterns in a response template run without a time limit, so pass
            only trusted templates.
        thinking: True if the prompt opened a reasoning section, so that the output starts inside it.
        tools: The tools that were passed to the model: functions, dicts or names. Calls without a marker are parsed
            only if they name one of the tools passed to the model. Parameter values that are written without a type are
            converted to the type in the tool's schema.
        prompt: The prompt that produced the output. The end of the prompt may open a reasoning section. A response
            template also uses the prompt to find the start of the response.

    Raises:
        TemplateError: The name is unknown, the tokenizer has no template, or ``thinking`` is not a boolean.
        ToolsError: A tool is neither a function nor a dict nor a name.
        MissingExtraError: transformers is not installed, or its version does not support response templates.
    """

    __slots__ = ("_start",)

    def __init__(
        self,
        form: AnswerFormLike,
        *,
        thinking: bool | None = None,
        tools: Iterable[str | ToolLike] | None = None,
        prompt: str | None = None,
    ) -> None:
        if thinking is not None and not isinstance(cast("object", thinking), bool):
            raise TemplateError(f"thinking must be True, False or None, not {thinking!r}")
        self._start: Callable[[MessageBuilder], AnswerReader]
        known = Tools(tools)
        named = form if isinstance(form, str | Markers) else _template_or_form(form)
        if isinstance(named, str | Markers):
            thinks = opens_thought(prompt) if thinking is None and prompt is not None else thinking
            self._start = partial(FormReader, _plan(named, known, thinking=thinks))
        else:
            self._start = partial(TemplateReader, ResponseTemplate.load(named, prompt or "", known.schemas))

    @staticmethod
    def forms() -> tuple[str, ...]:
        """Return the names of all response formats; the parser also accepts the names of model families and models."""
        return tuple(FORMS)

    @staticmethod
    def form_in(template: str) -> str:
        """Return the name of the response format that a chat template uses, based on its markers.

        Args:
            template: The source text of the chat template.

        Returns:
            The format's name. If the template contains no known markers, this is lazyprompt's default, ``hermes``.
        """
        return form_in(template)

    def parse(self, text: str) -> Msg:
        """Parse a complete response.

        Args:
            text: The model's output, including special tokens.

        Returns:
            The message, whose content is a string or blocks in the order of the output.
        """
        stream = self.stream()
        stream.feed(text)
        return stream.finish()

    def stream(self) -> ResponseStream:
        """Return a stream that parses a new response."""
        return ResponseStream(self._start(MessageBuilder()))


def _template_or_form(form: Mapping[str, Any] | AnsweringTokenizer) -> Mapping[str, Any] | str:
    """Return a response template, or the name of the format that the tokenizer's chat template uses."""
    if isinstance(form, Mapping):
        return form
    template = getattr(form, "response_template", None)
    if isinstance(template, Mapping):
        return cast("Mapping[str, Any]", template)
    chat: object = getattr(form, "chat_template", None)
    texts = [text for text in (chat, *fields_of(chat).values()) if isinstance(text, str)]
    if not texts:
        raise TemplateError(
            f"{type(form).__name__} has no response_template or chat_template; pass the name of an answer format, "
            "Markers, a ChatTemplate, a response template, or a transformers tokenizer with one of these templates"
        )
    return form_in("\n".join(texts))


def _plan(name: str | Markers, tools: Tools, *, thinking: bool | None) -> AnswerPlan:
    found, begins, stop = form_of(name)
    if thinking is not None:
        begins = "thought" if thinking else "answer"
        if thinking and found.thought is None:
            found = replace(found, thought=THINK)  # most models use <think> and </think>
    return AnswerPlan(found, begins, frozenset(stop), tools)


class ResponseStream:
    """A response that arrives in chunks.

    The parsed message does not depend on how the text is split into chunks. The deltas add up to the message.

    Args:
        reader: The reader that parses the response.
    """

    __slots__ = ("_half", "_message", "_over", "_reader", "_rest")

    def __init__(self, reader: AnswerReader) -> None:
        self._reader = reader
        # True after a marker has ended the response. Any later text is ignored.
        self._over = False
        self._half = ""
        self._rest: tuple[Delta, ...] = ()
        self._message: Msg | None = None

    def feed(self, chunk: str) -> list[Delta]:
        """Parse the next chunk.

        Args:
            chunk: The next piece of the model's output.

        Returns:
            The new deltas. Text that may be the start of a marker is held back.

        Raises:
            FormatError: :meth:`finish` was already called.
        """
        if self._message is not None:
            raise FormatError("this stream is already finished; call parser.stream() to start a new response")
        chunk = self._half + chunk
        # Hold back a high surrogate, because the next chunk may contain the low surrogate.
        self._half = chunk[-1:] if "\ud800" <= chunk[-1:] <= "\udbff" else ""
        return self._read_on(well(chunk.removesuffix(self._half)))

    def finish(self) -> Msg:
        """End the response.

        Returns:
            The parsed message; further calls return the same message.
        """
        if self._message is None:
            builder = self._reader.builder
            rest = self._read_on(well(self._half))
            self._reader.end()
            builder.end()
            self._rest = (*rest, *builder.news())
            self._message = builder.message()
        return self._message

    @property
    def rest(self) -> tuple[Delta, ...]:
        """The last deltas, which were held back until the response was finished."""
        return self._rest

    def _read_on(self, chunk: str) -> list[Delta]:
        if not self._over:
            self._over = self._reader.feed(chunk)
        return self._reader.builder.news()
