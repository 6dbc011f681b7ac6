"""Records of calls for hooks, a hook that logs them, and OpenTelemetry spans where its API is installed.

The names of spans and attributes are those of OpenTelemetry's semantic conventions for generative AI. No words of a
prompt or an answer are in a span; a log has them all.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from lazyprompt._base.secret import shown

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    from lazyprompt._base.secret import SecretText
    from lazyprompt.formatters.reply import Reply
    from lazyprompt.modules.clients._base import Request

# The names of providers in the conventions, if they are others.
_PROVIDERS = {"gemini": "gcp.gemini", "xai": "x_ai", "moonshot": "moonshot_ai"}
_PARAMS = {
    **{name: name for name in ("temperature", "top_p", "top_k", "seed", "frequency_penalty", "presence_penalty")},
    **dict.fromkeys(("stop", "stop_sequences"), "stop_sequences"),
    **dict.fromkeys(("max_tokens", "max_completion_tokens", "max_output_tokens", "num_predict"), "max_tokens"),
}
# The parameters that stand before the messages, so that they are a part of a cached prefix.
_PREFIXED = ("tools", "response_format", "cache_control", "prompt_cache_options")
_USAGE = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"}


class CallRecord(NamedTuple):
    """A call that is over.

    Attributes:
        source: The source, or the engine.
        model: The model that was asked for.
        payload: The messages and tools, or the prompt. Not to be changed.
        params: The further arguments of the client's call. Not to be changed.
        reply: The answer, or the part of it that came before a failure; None if nothing came.
        error: The reason of a failure, or of giving up; None if there is none.
        seconds: The seconds it took, waiting for a free place and further attempts included.
        streamed: True if the answer came in pieces.
        secrets: The texts of the prompt that are from the environment, which a log hides.
    """

    source: str
    model: str
    payload: Mapping[str, Any]
    params: Mapping[str, Any]
    reply: Reply | None
    error: BaseException | None
    seconds: float
    streamed: bool
    secrets: tuple[SecretText, ...] = ()


CallHook: TypeAlias = "Callable[[CallRecord], object]"


class CallLog:
    """A hook of modules that appends each call to a file, one line of JSON each.

    The file holds whole prompts and answers; only its owner can read it. Secrets out of the environment are not in it.

    Args:
        path: The file; made by the first call.
        conversation: The id of the conversation, which all calls of this log get.
    """

    def __init__(self, path: str | os.PathLike[str], conversation: str | None = None) -> None:
        self.path = Path(path)
        self.conversation = conversation

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    def __call__(self, record: CallRecord) -> None:
        """Append a call."""
        params = {name: record.params[name] for name in _PREFIXED if name in record.params}
        reply = record.reply
        line = {
            "time": round(time.time() - record.seconds, 3),
            "source": record.source,
            "model": record.model,
            "conversation": self.conversation,
            "payload": {**record.payload, **params},
            "reply": None if reply is None else str(reply),
            "usage": None if reply is None else reply.usage,
        }
        known = {name: value for name, value in line.items() if value is not None}
        data = (
            json.dumps(shown(known, record.secrets), ensure_ascii=False, default=str).encode(
                "utf-8", "backslashreplace"
            )
            + b"\n"
        )
        # One write that appends: lines of threads and processes do not mix.
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "ab", buffering=0) as file:
            file.write(data)


@contextmanager
def span_of(source: str, request: Request) -> Generator[Callable[[Reply | None, BaseException | None], None]]:
    """Open a span around a call; it is not the current one of what runs beside an answer that comes in pieces.

    Args:
        source: The source, or the engine.
        request: The request.

    Yields:
        A function that records the answer, as far as there is one, and the kind of a failure, without their words.
    """
    tracer = _tracer()
    if tracer is None:
        yield lambda _reply, _error: None
        return
    from opentelemetry.trace import SpanKind, Status, StatusCode  # noqa: PLC0415 - only where it is installed

    operation = "text_completion" if "prompt" in request.payload else "chat"
    options = request.params.get("options")  # Ollama has them there
    params = {**request.params, **(cast("Mapping[str, Any]", options) if isinstance(options, Mapping) else {})}
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": _PROVIDERS.get(source, source),
        "gen_ai.request.model": request.model,
        **{f"gen_ai.request.{name}": params[key] for key, name in _PARAMS.items() if key in params},
    }
    if request.origin is not None:
        named = zip(("gen_ai.prompt.name", "gen_ai.prompt.version"), request.origin, strict=True)
        attributes |= {name: value for name, value in named if value is not None}
    span = tracer.start_span(f"{operation} {request.model}", kind=SpanKind.CLIENT, attributes=attributes)

    def record(reply: Reply | None, error: BaseException | None) -> None:
        if reply is not None and span.is_recording():
            span.set_attributes(dict(_attributes_of(reply)))
        if error is not None:
            kind = getattr(error, "kind", "") or type(error).__name__
            span.set_attribute("error.type", kind)
            span.set_status(Status(StatusCode.ERROR, kind))

    try:
        yield record
    finally:
        span.end()


def _attributes_of(reply: Reply) -> Iterator[tuple[str, Any]]:
    if reply.model:
        yield "gen_ai.response.model", reply.model
    if reply.finish:
        yield "gen_ai.response.finish_reasons", [reply.finish]
    for name, count in (reply.usage or {}).items():
        if name in _USAGE:
            yield f"gen_ai.usage.{_USAGE[name]}", count


@lru_cache(maxsize=1)
def _tracer() -> Tracer | None:
    try:
        from opentelemetry import trace  # noqa: PLC0415 - only where it is installed
    except ImportError:
        return None
    return trace.get_tracer("lazyprompt")
