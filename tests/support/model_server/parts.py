"""The responses of the model, the misbehaviour of the server, and the bytes that both become."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from support.model_server.http import Script

Json: TypeAlias = dict[str, Any]
Finish: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter", "refusal"]
_PIECE = 4  # characters, about a token


@dataclass(frozen=True)
class Answer:
    """The model's response; each provider's voice writes it in its own format.

    Attributes:
        text: The text; what the model says instead where ``finish`` is ``refusal``.
        thinking: What it thought before; left out where the provider shows no thoughts.
        calls: An id, the name of a tool, and its arguments for each call.
        finish: Why it ended; ``stop`` becomes ``tool_calls`` where there are calls. ``content_filter``: the provider
            stopped the text where it is. ``refusal``: the model says no.
        prompt_tokens: Tokens of the prompt.
        completion_tokens: Tokens of the answer.
        native: Blocks, items, parts or calls in the provider's own form, before the text.
        half: Whether the arguments of the last call stop half way: what `HalfCall` makes of an answer.
    """

    text: str = "pong"
    thinking: str = ""
    calls: tuple[tuple[str, str, Any], ...] = ()
    finish: Finish = "stop"
    prompt_tokens: int = 1
    completion_tokens: int = 1
    native: tuple[Json, ...] = ()
    half: bool = False

    @property
    def why(self) -> Finish:
        """The finish reason, as a server reports it."""
        return "tool_calls" if self.calls and self.finish == "stop" else self.finish

    def arguments(self) -> list[str]:
        """The arguments of each call as JSON text."""
        written = [json.dumps(arguments, ensure_ascii=False) for _, _, arguments in self.calls]
        return [*written[:-1], written[-1][: len(written[-1]) // 2]] if self.half else written

    def whole_calls(self) -> tuple[tuple[str, str, Json], ...]:
        """The complete calls, for providers that send arguments in one piece."""
        return self.calls[:-1] if self.half else self.calls


class Ask(NamedTuple):
    """A request to a model: its name, and the body."""

    model: str
    body: Mapping[str, Any]

    @property
    def usage(self) -> bool:
        """Whether a stream of OpenAI's form reports the usage at its end."""
        options: Json = self.body.get("stream_options") or {}
        return bool(options.get("include_usage"))


class Event(NamedTuple):
    """An event of a stream.

    Attributes:
        data: What it says.
        name: Its type, where the provider names it outside of the data.
        end: Whether it belongs to the end of the stream, which a stream that is cut never reaches.
    """

    data: Any
    name: str = ""
    end: bool = False


class Refusal(NamedTuple):
    """An error of a provider: its status and message, and what its form has besides."""

    status: int
    message: str
    more: Mapping[str, Any] | None = None


class Voice(NamedTuple):
    """The response format of a provider.

    Attributes:
        whole: The body of an answer that is not streamed.
        stream: The events of one that is.
        written: The bytes of an event, given its number.
        media_type: The content type of a stream.
        news: Events of types that nobody knows yet, each with the name of the event behind which it first comes.
        trouble: The event that tells of an error in the middle of a stream, given a status and a message.
        blocked: The error that the provider gives in place of a filtered answer.
    """

    whole: Callable[[Answer, Ask], Json]
    stream: Callable[[Answer, Ask], list[Event]]
    written: Callable[[Event, int], bytes]
    media_type: str
    news: tuple[tuple[str, Event], ...]
    trouble: Callable[[int, str], Event]
    blocked: Refusal | None = None


def pieces(text: str) -> list[str]:
    """A text in pieces as a model makes them: at least two if it has two characters; none if it is empty."""
    size = max(1, min(_PIECE, ceil(len(text) / 2)))
    return [text[at : at + size] for at in range(0, len(text), size)]


def encode_json(data: object) -> bytes:
    """JSON as servers write it: UTF-8, no spaces."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()


def sse(event: Event, _: int = 0) -> bytes:
    """A server-sent event; a text is sent unchanged as its data."""
    data = event.data.encode() if isinstance(event.data, str) else encode_json(event.data)
    name = f"event: {event.name}\n".encode() if event.name else b""
    return b"%bdata: %b\n\n" % (name, data)


_USERS = {"arguments", "args", "input"}  # defined by users' tools: nothing is added there


def with_news(value: Any) -> Any:
    """A value with an unknown field in each dict."""
    if isinstance(value, list):
        return [with_news(item) for item in cast("Sequence[Any]", value)]
    if not isinstance(value, dict):
        return value
    fields = cast("Mapping[str, Any]", value).items()
    known = {key: item if key in _USERS else with_news(item) for key, item in fields}
    return {"x_new": {"of": ["tomorrow"]}, **known}


@dataclass(frozen=True)
class Status:
    """An error in the provider's form: any status from 400 on; ``retry_after`` in seconds."""

    code: int
    message: str = "the server would not"
    retry_after: float | None = None


@dataclass(frozen=True)
class Cut:
    """The connection is lost after so many events and half of another (never the end), or in mid-body."""

    after: int = 2


@dataclass(frozen=True)
class Ends:
    """The stream ends normally after so many events, but without its final event; a body is cut in half."""

    after: int = 2


@dataclass(frozen=True)
class Fails:
    """After so many events comes the provider's event of an error, and nothing more; unstreamed as `Status`."""

    after: int = 2
    code: int = 500
    message: str = "the server failed in mid-stream"


@dataclass(frozen=True)
class Slow:
    """Seconds before anything comes at all, and before each event but the first."""

    first: float = 0.2
    between: float = 0.0


@dataclass(frozen=True)
class Malformed:
    """A body, or the second event of a stream, that is no JSON. ``page``: a web page with status 200 instead."""

    page: bool = False


@dataclass(frozen=True)
class HalfCall:
    """The answer ends properly, for its length, in the middle of the arguments of a call.

    Where arguments come in one piece (Gemini, Ollama), or there are no calls (generate, completions), the call is
    missing.
    """


@dataclass(frozen=True)
class Unknown:
    """Unknown fields and types of events are added; the content stays the same."""


@dataclass(frozen=True)
class Drop:
    """The connection is closed before any byte."""


Misbehaviour: TypeAlias = Status | Cut | Ends | Fails | Slow | Malformed | HalfCall | Unknown | Drop


JSON_TYPE = "application/json"
_PAGE = b"<html><body><h1>Sign in to the network</h1></body></html>"


def make_script(voice: Voice, answer: Answer, ask: Ask, fault: Misbehaviour | None, *, streamed: bool) -> Script:
    """The script that the server sends for this answer and this misbehaviour."""
    if isinstance(fault, HalfCall):
        calls = answer.calls or (("call_half", "weather", {"city": "Paris"}),)
        answer = replace(answer, calls=calls, finish="length", half=True)
    if fault == Malformed(page=True):
        return Script(200, "text/html", (_PAGE,))
    script = _streamed(voice, answer, ask, fault) if streamed else _unstreamed(voice, answer, ask, fault)
    return script._replace(first=fault.first, between=fault.between) if isinstance(fault, Slow) else script


def _unstreamed(voice: Voice, answer: Answer, ask: Ask, fault: Misbehaviour | None) -> Script:
    body = voice.whole(answer, ask)
    data = encode_json(with_news(body) if isinstance(fault, Unknown) else body)
    half = data[: len(data) // 2]
    if isinstance(fault, Cut):
        return Script(200, JSON_TYPE, (half,), lost=data[len(half) :])
    return Script(200, JSON_TYPE, (half if isinstance(fault, Malformed | Ends) else data,))


def _streamed(voice: Voice, answer: Answer, ask: Ask, fault: Misbehaviour | None) -> Script:
    events = voice.stream(answer, ask)
    if isinstance(fault, Unknown):
        events = _among([event._replace(data=with_news(event.data)) for event in events], voice.news)
    frames = [voice.written(event, at) for at, event in enumerate(events, 1)]
    last = next(at for at, event in enumerate(events) if event.end)
    lost = None
    if isinstance(fault, Cut | Ends):
        kept = min(fault.after, last)
        lost = frames[kept][: len(frames[kept]) // 2] if isinstance(fault, Cut) else None
        frames = frames[:kept]
    elif isinstance(fault, Malformed):
        at = min(1, len(frames) - 1)
        frames = [*frames[:at], _broken(frames[at]), *frames[at + 1 :]]
    elif isinstance(fault, Fails):
        told = voice.trouble(fault.code, fault.message)
        frames = [*frames[: min(fault.after, last)], voice.written(told, fault.after + 1)]
    return Script(200, voice.media_type, frames, chunked=True, lost=lost)


def _among(events: list[Event], news: tuple[tuple[str, Event], ...]) -> list[Event]:
    for name, new in news:
        at = next((at for at, event in enumerate(events, 1) if event.name == name), None)
        if at is not None:  # an answer without text has no deltas
            events = [*events[:at], new, *events[at:]]
    return events


def _broken(frame: bytes) -> bytes:
    """An event whose JSON stops half way, though the event itself is whole."""
    content, end = frame.rstrip(b"\n"), frame[len(frame.rstrip(b"\n")) :]
    return content[: -max(1, len(content) // 3)] + end
