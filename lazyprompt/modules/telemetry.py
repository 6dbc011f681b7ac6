"""What is told of calls: records for hooks, and OpenTelemetry spans where its API is installed.

The names of spans and attributes are those of OpenTelemetry's semantic conventions for generative AI. What was said
is in no span.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from opentelemetry.trace import Tracer

    from lazyprompt.formatters.reply import Reply
    from lazyprompt.modules.clients._base import Request

# What providers are called in the conventions, where that is another name.
_PROVIDERS = {
    "gemini": "gcp.gemini",
    "xai": "x_ai",
    "moonshot": "moonshot_ai",
    "dashscope-multimodal": "dashscope",
}
_PARAMS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "seed": "seed",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    **dict.fromkeys(("stop", "stop_sequences"), "stop_sequences"),
    **dict.fromkeys(("max_tokens", "max_completion_tokens", "max_output_tokens"), "max_tokens"),
    **dict.fromkeys(("max_new_tokens", "num_predict"), "max_tokens"),
}
_USAGE = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"}


class CallRecord(NamedTuple):
    """A call that is over.

    Attributes:
        source: The source, or the engine.
        model: The model that was asked for.
        payload: What was sent: messages and tools, or a prompt. Not to be changed.
        params: The further arguments of the client's call. Not to be changed.
        reply: The answer; what there was of it where the call failed; None where there was nothing.
        error: Why it failed, or was given up; None where it did not.
        seconds: How long it took, waiting for a free place and further attempts included.
        streamed: Whether the answer came in pieces.
    """

    source: str
    model: str
    payload: Mapping[str, Any]
    params: Mapping[str, Any]
    reply: Reply | None
    error: BaseException | None
    seconds: float
    streamed: bool


CallHook: TypeAlias = "Callable[[CallRecord], object]"


class Span:
    """A span that may be none.

    Args:
        span: The span of OpenTelemetry; None where its API is not installed.
    """

    __slots__ = ("_span",)

    def __init__(self, span: Any = None) -> None:  # noqa: ANN401 - a type of a package that may not be there
        self._span = span

    def ended(self, reply: Reply | None, error: BaseException | None) -> None:
        """Tell of the answer, as far as there is one, and of the kind of a failure, without their words."""
        if self._span is None:
            return
        if reply is not None and self._span.is_recording():
            self._span.set_attributes(dict(_told_of(reply)))
        if error is not None:
            from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - only where it is installed

            kind = getattr(error, "kind", "") or type(error).__name__
            self._span.set_attribute("error.type", kind)
            self._span.set_status(Status(StatusCode.ERROR, kind))


def _told_of(reply: Reply) -> Iterator[tuple[str, Any]]:
    """The attributes of an answer."""
    if reply.model:
        yield "gen_ai.response.model", reply.model
    if reply.finish:
        yield "gen_ai.response.finish_reasons", [reply.finish]
    for name, count in (reply.usage or {}).items():
        if name in _USAGE:
            yield f"gen_ai.usage.{_USAGE[name]}", count


@contextmanager
def span_of(source: str, request: Request) -> Generator[Span]:
    """A span around a call; it is not the current one of what runs beside an answer that comes in pieces.

    Args:
        source: The source, or the engine.
        request: What is sent.

    Yields:
        The span.
    """
    tracer = _tracer()
    if tracer is None:
        yield Span()
        return
    from opentelemetry.trace import SpanKind  # noqa: PLC0415 - only where it is installed

    told: dict[str, Any] = {
        "gen_ai.operation.name": "text_completion" if "prompt" in request.payload else "chat",
        "gen_ai.provider.name": _PROVIDERS.get(source, source),
        "gen_ai.request.model": request.model,
    }
    options = request.params.get("options")  # Ollama has them there
    params = {**request.params, **(cast("Mapping[str, Any]", options) if isinstance(options, Mapping) else {})}
    told |= {f"gen_ai.request.{name}": params[key] for key, name in _PARAMS.items() if key in params}
    name = f"{told['gen_ai.operation.name']} {request.model}"
    span = tracer.start_span(name, kind=SpanKind.CLIENT, attributes=told)
    try:
        yield Span(span)
    finally:
        span.end()


@lru_cache(maxsize=1)
def _tracer() -> Tracer | None:
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.trace") is None:
        return None
    from opentelemetry import trace  # noqa: PLC0415 - only where it is installed

    return trace.get_tracer("lazyprompt")
