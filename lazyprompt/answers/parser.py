"""The parser of local models' raw output."""

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

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyprompt.answers.reading import AnswerReader
    from lazyprompt.messages.msg import Msg
    from lazyprompt.messages.tools import ToolLike

AnswerFormLike: TypeAlias = "str | Mapping[str, Any] | AnsweringTokenizer"
"""The form of a model's answers: a name, a response template, or a tokenizer of transformers."""

__all__ = ["AnswerFormLike", "Delta", "ResponseParser", "ResponseStream"]


class ResponseParser:
    """Parses the output of a local model: text, thinking and tool calls.

    No output is an error. Arguments that are no JSON object stay as they were written, in the ``raw_input`` of their
    call. Text that can't be parsed as a call is text. A marker that ends a turn or begins another ends the answer, and
    the text behind it is dropped.

    Without ``thinking`` and ``prompt``, the prompt that the family's markers write decides whether the output begins
    in a thought. Where that depends on the request (a form alone, Qwen3, GLM-4.5), a ``</think>`` without a
    ``<think>`` before it closes a thought that began at the beginning. A stream then has no deltas before the first
    marker or the end.

    A parser has no state: one serves all threads.

    Args:
        form: A form, a model family, or a model: its name, its repository, or the path of its file. Or a tokenizer of
            transformers: its ``response_template`` is used, or else the form that its chat template writes. Or a
            response template itself; its patterns run without a time limit, so it must come from a trusted source.
        thinking: True if the prompt opened a thought, in which the output begins.
        tools: The tools that the model was offered: functions, dicts, or names. Calls without a marker count only if
            the name is among them, and parameters that are written without a type get the type of their schema.
        prompt: The prompt that the output answers. Its end shows whether it opened a thought; a response template
            finds the beginning of the answer in it.

    Raises:
        TemplateError: The name is unknown, the tokenizer has no template, or ``thinking`` is no truth value.
        ToolsError: A tool is no function, dict or name.
        MissingExtraError: There is a response template, but no version of transformers that reads it.
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
            raise TemplateError(f"thinking is True, False or None, not {thinking!r}")
        self._start: Callable[[MessageBuilder], AnswerReader]
        known = Tools(tools)
        named = form if isinstance(form, str) else _template_or_form(form)
        if isinstance(named, str):
            thinks = opens_thought(prompt) if thinking is None and prompt is not None else thinking
            self._start = partial(FormReader, _plan(named, known, thinking=thinks))
        else:
            self._start = partial(TemplateReader, ResponseTemplate.load(named, prompt or "", known.schemas))

    @staticmethod
    def forms() -> tuple[str, ...]:
        """Return the names of the known forms; families and models are accepted, too."""
        return tuple(FORMS)

    @staticmethod
    def form_in(template: str) -> str:
        """Return the form in which a chat template writes calls and thoughts, by its markers.

        Args:
            template: The template.

        Returns:
            The form's name; ``hermes``, in which lazyprompt writes calls by default, if there are no known markers.
        """
        return form_in(template)

    def parse(self, text: str) -> Msg:
        """Parse a whole answer.

        Args:
            text: The model's output, with special tokens.

        Returns:
            The message: plain text, or blocks in the order of the output.
        """
        stream = self.stream()
        stream.feed(text)
        return stream.finish()

    def stream(self) -> ResponseStream:
        """Return a stream for a new answer."""
        return ResponseStream(self._start(MessageBuilder()))


def _template_or_form(form: Mapping[str, Any] | AnsweringTokenizer) -> Mapping[str, Any] | str:
    """Return a response template, or the form that the tokenizer's chat template writes."""
    if isinstance(form, Mapping):
        return form
    template = getattr(form, "response_template", None)
    if isinstance(template, Mapping):
        return cast("Mapping[str, Any]", template)
    chat: object = getattr(form, "chat_template", None)
    texts = [text for text in (chat, *fields_of(chat).values()) if isinstance(text, str)]
    if not texts:
        raise TemplateError(
            f"no response_template or chat_template in {type(form).__name__}; give a name, a response template, or a "
            "tokenizer of transformers that has one of the two"
        )
    return form_in("\n".join(texts))


def _plan(name: str, tools: Tools, *, thinking: bool | None) -> AnswerPlan:
    found, begins, stop = form_of(name)
    if thinking is not None:
        begins = "thought" if thinking else "answer"
        if thinking and found.thought is None:
            found = replace(found, thought=THINK)  # most models' markers
    return AnswerPlan(found, begins, frozenset(stop), tools)


class ResponseStream:
    """An answer that arrives in chunks.

    The message does not depend on the chunks, and the deltas add up to it.

    Args:
        reader: The reader of the answer.
    """

    __slots__ = ("_half", "_message", "_over", "_reader", "_rest")

    def __init__(self, reader: AnswerReader) -> None:
        self._reader = reader
        # True once a marker ended the answer; all text behind it is ignored.
        self._over = False
        self._half = ""
        self._rest: tuple[Delta, ...] = ()
        self._message: Msg | None = None

    def feed(self, chunk: str) -> list[Delta]:
        """Parse the next chunk.

        Args:
            chunk: The next piece of the text.

        Returns:
            The new deltas. Text that may be the beginning of a marker is held back.

        Raises:
            FormatError: The answer was finished.
        """
        if self._message is not None:
            raise FormatError("this answer was finished; a new one begins with parser.stream()")
        chunk = self._half + chunk
        # The halves of a surrogate pair may arrive in two chunks.
        self._half = chunk[-1:] if "\ud800" <= chunk[-1:] <= "\udbff" else ""
        return self._read_on(well(chunk.removesuffix(self._half)))

    def finish(self) -> Msg:
        """End the answer.

        Returns:
            The message; further calls return the same message.
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
        """Text that was held back until the answer was finished."""
        return self._rest

    def _read_on(self, chunk: str) -> list[Delta]:
        if not self._over:
            self._over = self._reader.feed(chunk)
        return self._reader.builder.news()
