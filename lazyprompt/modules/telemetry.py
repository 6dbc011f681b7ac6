"""What is told of calls: records for hooks, and OpenTelemetry spans where its API is installed.

The names of spans and attributes are those of OpenTelemetry's semantic conventions for generative AI. What was said
is in no span.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from opentelemetry.trace import Tracer

    from lazyprompt.modules.client import Request
    from lazyprompt.modules.reply import Reply

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
    "seed": "seed",
    "stop": "stop_sequences",
    **dict.fromkeys(("max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens"), "max_tokens"),
}


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

    def answered(self, reply: Reply) -> None:
        """Tell of the answer."""
        if self._span is None:
            return
        told: dict[str, Any] = {"gen_ai.response.model": reply.model} if reply.model else {}
        if reply.finish:
            told["gen_ai.response.finish_reasons"] = [reply.finish]
        for name, count in (reply.usage or {}).items():
            if name in ("prompt_tokens", "completion_tokens"):
                told[f"gen_ai.usage.{'input' if name == 'prompt_tokens' else 'output'}_tokens"] = count
        self._span.set_attributes(told)

    def failed(self, error: BaseException) -> None:
        """Tell of a failure: its kind, not its words."""
        if self._span is not None:
            from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - only where it is installed

            kind = getattr(error, "kind", "") or type(error).__name__
            self._span.set_attribute("error.type", kind)
            self._span.set_status(Status(StatusCode.ERROR, kind))


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
    told |= {f"gen_ai.request.{name}": request.params[key] for key, name in _PARAMS.items() if key in request.params}
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
