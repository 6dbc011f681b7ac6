"""A local model's raw text, read back to a message."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from lazyprompt.answers.calls import Plan
from lazyprompt.answers.forms import FORMS, THINK, form_in, form_of
from lazyprompt.answers.message_builder import Delta, MessageBuilder, well
from lazyprompt.answers.reading import HarmonyReading, Reading
from lazyprompt.answers.source import Source
from lazyprompt.answers.values import ToolLike, Tools
from lazyprompt.errors import FormatError, TemplateError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lazyprompt.messages.msg import Msg

_OVER = object()

__all__ = ["Delta", "ResponseParser", "ResponseStream"]


class ResponseParser:
    """Reads what a local model wrote: text, thinking and tool calls.

    Whatever a model wrote, reading it raises nothing. Arguments that are no JSON object stay as they were written, in
    the ``raw_input`` of their call; what cannot be read as a call at all is text. A marker that ends a turn or begins
    another ends the answer, and nothing behind it counts.

    With ``thinking=None``, the prompt that the family's markers write decides whether the text begins in a thought.
    Where it does not tell (a form alone, Qwen3, GLM-4.5), a ``</think>`` without a ``<think>`` before it closes a
    thought that began at the beginning; so a stream gives nothing before the first marker or the end. With
    ``thinking=False`` it streams at once.

    A parser keeps no state: one serves all threads.

    Args:
        form: A form, a model family, or a model: its name, its repository, or the path of its file.
        thinking: Whether the prompt opened a thought, so that the text begins within it; ``None`` where that is to be
            found out.
        tools: The tools the model was offered, as OpenAI dicts, or their names. Calls without a marker count only where
            the name is among them, and parameters that are written without a type get that of their schema.

    Raises:
        TemplateError: Nothing is known for the name, or ``thinking`` is no truth value.
        ToolsError: A tool is neither a name nor an OpenAI dict.
    """

    __slots__ = ("_plan",)

    def __init__(self, form: str, *, thinking: bool | None = None, tools: Iterable[ToolLike] | None = None) -> None:
        found, begins, stop = form_of(form)
        if thinking is not None:
            if not isinstance(cast("object", thinking), bool):
                raise TemplateError(f"thinking is True, False or None, not {thinking!r}")
            begins = "thought" if thinking else "answer"
            if thinking and found.thought is None:
                found = replace(found, thought=THINK)  # whoever made the model think, that is how most do
        self._plan = Plan(found, begins, frozenset(stop), Tools(tools))

    @staticmethod
    def forms() -> tuple[str, ...]:
        """The names of the known forms; a family or a model will do as well."""
        return tuple(FORMS)

    @staticmethod
    def form_in(template: str) -> str:
        """The form that a chat template writes calls and thoughts in, by the markers it holds.

        Args:
            template: The template.

        Returns:
            The form's name; that of Hermes, in which lazyprompt writes where a model has none of its own, where the
            template shows no other.
        """
        return form_in(template)

    def parse(self, text: str) -> Msg:
        """Read a whole answer.

        Args:
            text: What the model wrote, special tokens included.

        Returns:
            The message: plain text, or blocks in the order of the output.
        """
        stream = self.stream()
        stream.feed(text)
        return stream.finish()

    def stream(self) -> ResponseStream:
        """A new answer, to be fed as it is written."""
        return ResponseStream(self._plan)


class ResponseStream:
    """An answer that is being written.

    However it is cut into chunks, the message is the same, and the deltas add up to it.

    Args:
        plan: What is known of the answer.
    """

    __slots__ = ("_builder", "_half", "_message", "_over", "_reading", "_rest", "_source")

    def __init__(self, plan: Plan) -> None:
        self._source = Source(plan.final)
        self._builder = MessageBuilder()
        reading = HarmonyReading if plan.form.channels else Reading
        self._reading = reading(plan, self._source, self._builder).read()
        # True once a marker ended the answer: all text behind it is ignored.
        self._over = False
        self._half = ""
        self._rest: tuple[Delta, ...] = ()
        self._message: Msg | None = None

    def feed(self, chunk: str) -> list[Delta]:
        """Read on.

        Args:
            chunk: The next piece of the text.

        Returns:
            What is new. Text that may still turn out to be a marker is held back until that is clear.

        Raises:
            FormatError: The answer was finished.
        """
        if self._message is not None:
            raise FormatError("this answer was finished; a new one begins with parser.stream()")
        chunk = self._half + chunk
        # The halves of a surrogate pair may come one by one.
        self._half = chunk[-1:] if "\ud800" <= chunk[-1:] <= "\udbff" else ""
        return self._read_on(well(chunk.removesuffix(self._half)))

    def finish(self) -> Msg:
        """Say that the answer is at its end.

        Returns:
            The message; the same again, however often it is asked for.
        """
        if self._message is None:
            rest = self._read_on(well(self._half))
            self._source.end()
            rest += self._read_on("")
            self._builder.end()
            self._rest = (*rest, *self._builder.news())
            self._message = self._builder.message()
        return self._message

    @property
    def rest(self) -> tuple[Delta, ...]:
        """Text that was held back until the answer was finished."""
        return self._rest

    def _read_on(self, chunk: str) -> list[Delta]:
        if not self._over:
            self._source.feed(chunk)
            self._over = next(self._reading, _OVER) is _OVER
        return self._builder.news()
