"""The answers to one request, read: whole ones, and those that come in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from lazyprompt.errors import FormatError, ModuleError
from lazyprompt.formatters._answers import as_dict
from lazyprompt.formatters.reply import Reply, at
from lazyprompt.messages.msg import Msg

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lazyprompt.answers.parser import Delta, ResponseParser
    from lazyprompt.budget.report import TrimReport
    from lazyprompt.formatters.formatter import ChatFormatter
    from lazyprompt.formatters.report import Report
    from lazyprompt.modules.client import Collector, Request
    from lazyprompt.modules.structured import Structure

_ADVICE = {
    "refusal": "the model refused to answer; its words are in .partial: ask in another way",
    "content_filter": "the provider held the answer back for its content; what came of it is in .partial: change what "
    "is asked, or the provider's safety settings",
    "length": "the answer ended at the limit of tokens before it said anything: give a larger max_tokens",
    "broken call": "the model wrote a call of a tool that is none: ask again; what came is in .partial",
}
_EMPTY = "the model answered nothing: ask again, or in another way"
_CUT_CALL = (
    "the answer ended at the limit of tokens in a call of a tool, which may have lost arguments: give a larger "
    "max_tokens; what came is in .partial"
)


class Streamed(Protocol):
    """An answer that comes in pieces."""

    @property
    def complete(self) -> bool:
        """Whether its end came."""
        ...

    def feed(self, event: object) -> list[Delta]:
        """What is new in an event."""
        ...

    def finish(self) -> list[Delta]:
        """What was held back, at the end."""
        ...

    def message(self) -> tuple[Msg, dict[str, Any]]:
        """The answer so far, and as the provider gives it."""
        ...


class Reader(Protocol):
    """Reads the answers to one request."""

    def message(self, answer: object) -> tuple[Msg, dict[str, Any]]:
        """A whole answer, and as a dict."""
        ...

    def stream(self) -> Streamed:
        """A new answer in pieces."""
        ...


class ProviderReader(NamedTuple):
    """Reads the answers of a provider.

    Attributes:
        formatter: Reads whole ones.
        collector: Puts the pieces of one together.
    """

    formatter: ChatFormatter
    collector: Callable[[], Collector]

    def message(self, answer: object) -> tuple[Msg, dict[str, Any]]:
        """A whole answer, and as a dict."""
        fields = as_dict(answer)
        return self.formatter.parse(fields), fields

    def stream(self) -> Streamed:
        """A new answer in pieces."""
        return _ProviderStream(self.formatter, self.collector())


class _ProviderStream:
    def __init__(self, formatter: ChatFormatter, collector: Collector) -> None:
        self._formatter, self._collector = formatter, collector

    @property
    def complete(self) -> bool:
        return self._collector.complete

    def feed(self, event: object) -> list[Delta]:
        return self._collector.feed(event)

    def finish(self) -> list[Delta]:
        return []

    def message(self) -> tuple[Msg, dict[str, Any]]:
        answer = self._collector.answer()
        return self._formatter.parse(answer), answer


class TextReader(NamedTuple):
    """Reads the raw text of a local model.

    Attributes:
        parser: What it says in the form of the model's family.
        collector: Puts the pieces of one together.
    """

    parser: ResponseParser
    collector: Callable[[], Collector]

    def message(self, answer: object) -> tuple[Msg, dict[str, Any]]:
        """A whole answer, and as a dict."""
        fields = as_dict(answer)
        return _with_usage(self.parser.parse(_raw_text(fields)), fields), fields

    def stream(self) -> Streamed:
        """A new answer in pieces."""
        return _TextStream(self)


class _TextStream:
    def __init__(self, reader: TextReader) -> None:
        self._reader, self._collector, self._said = reader, reader.collector(), reader.parser.stream()

    @property
    def complete(self) -> bool:
        return self._collector.complete

    def feed(self, event: object) -> list[Delta]:
        return [new for delta in self._collector.feed(event) for new in self._said.feed(delta.text)]

    def finish(self) -> list[Delta]:
        self._said.finish()
        return list(self._said.rest)

    def message(self) -> tuple[Msg, dict[str, Any]]:
        answer = self._collector.answer()
        return _with_usage(self._said.finish(), answer), answer


# Where engines put the text of an answer: OpenAI's completions, Ollama's generate, TGI, llama.cpp.
_TEXTS: tuple[tuple[str | int, ...], ...] = (("choices", 0, "text"), ("response",), ("generated_text",), ("content",))
# And where they count the tokens of the prompt, and of the answer.
_COUNTS: tuple[tuple[tuple[str | int, ...], tuple[str | int, ...]], ...] = (
    (("usage", "prompt_tokens"), ("usage", "completion_tokens")),
    (("prompt_eval_count",), ("eval_count",)),
    (("tokens_evaluated",), ("tokens_predicted",)),
    ((), ("details", "generated_tokens")),
)


def _raw_text(answer: Mapping[str, Any]) -> str:
    """What an engine wrote.

    Raises:
        FormatError: It is no answer of an engine.
    """
    for path in _TEXTS:
        found = at(answer, path)
        if isinstance(found, str):
            return found
    raise FormatError(f"this is no answer of an engine: it has no text; it has {', '.join(map(repr, answer))}")


def _with_usage(message: Msg, answer: Mapping[str, Any]) -> Msg:
    """A message with the tokens that the engine counted."""
    for paths in _COUNTS:
        prompt, completion = (at(answer, path) if path else 0 for path in paths)
        if isinstance(prompt, int) and isinstance(completion, int):
            usage = {
                "prompt_tokens": prompt,
                "completion_tokens": completion,
                "total_tokens": prompt + completion,
            }
            return Msg(message.name, message.content, message.role, usage=usage)
    return message


class Exchange(NamedTuple):
    """A request, and how its answer is read.

    Attributes:
        request: What is sent.
        reader: What reads the answer.
        structure: The form that the answer is to have.
        said: The user's text, or None if the history awaits the answer.
        trim: The report of the budget, or None without one.
        report: The report of the payload.
    """

    request: Request
    reader: Reader
    structure: Structure | None = None
    said: str | None = None
    trim: TrimReport | None = None
    report: Report = ()

    def partial(self, message: Msg, raw: dict[str, Any], parsed: object = None) -> Reply:
        """Return an answer as a reply, without judging it: it may be part of one."""
        return Reply(message, raw, parsed, self.said, self.trim, self.report)

    def reply(self, message: Msg, raw: dict[str, Any]) -> Reply:
        """Return a whole answer as a reply.

        Raises:
            ModuleError: It is a refusal, was held back, is empty, has half a call, or has not the form that was asked
                for.
        """
        reply = self.partial(message, raw)
        if reply.finish in ("refusal", "content_filter"):
            raise ModuleError(_ADVICE[reply.finish], kind="refusal", partial=reply)
        if reply.finish == "broken call":
            raise ModuleError(_ADVICE[reply.finish], kind="invalid", partial=reply)
        # Not all providers show that arguments are cut off: what is left of them may be whole JSON, or nothing.
        if reply.finish == "length" and message.blocks and message.blocks[-1].type == "tool_use":
            raise ModuleError(_CUT_CALL, kind="invalid", partial=reply)
        if not reply.strip() and all(block.type in ("text", "thinking") for block in message.blocks):
            raise ModuleError(_ADVICE.get(reply.finish or "", _EMPTY), kind="empty", partial=reply)
        if self.structure is None or reply.tool_calls:  # with calls, the answer is yet to come
            return reply
        try:
            return self.partial(message, raw, self.structure.read(reply))
        except ValueError as error:
            raise ModuleError(
                f"the answer is no {self.structure.name}: {error}; it is in .partial: ask again, or give a larger "
                "max_tokens where it was cut off",
                kind="invalid",
                partial=reply,
            ) from error
