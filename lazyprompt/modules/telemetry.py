"""Call records for hooks, a hook that logs calls, and OpenTelemetry spans if the OpenTelemetry API is installed.

Span and attribute names come from OpenTelemetry's semantic conventions for generative AI. Spans contain no text from
prompts and responses, but the log contains the full text.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from lazyprompt._base.json import is_mapping
from lazyprompt._base.secret import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from opentelemetry.trace import Tracer

    from lazyprompt._base.secret import SecretText
    from lazyprompt.formatters.reply import Reply
    from lazyprompt.modules.clients._base import Request

# OpenTelemetry's provider names that differ from lazyprompt's.
_PROVIDERS = {"gemini": "gcp.gemini", "xai": "x_ai", "moonshot": "moonshot_ai"}
_PARAMS = {
    **{name: name for name in ("temperature", "top_p", "top_k", "seed", "frequency_penalty", "presence_penalty")},
    **dict.fromkeys(("stop", "stop_sequences"), "stop_sequences"),
    **dict.fromkeys(("max_tokens", "max_completion_tokens", "max_output_tokens", "num_predict"), "max_tokens"),
}
# The parameters that affect the cached prefix, because providers insert them before the messages.
_PREFIXED = ("tools", "response_format", "cache_control", "prompt_cache_options")
_USAGE = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"}


class CallRecord(NamedTuple):
    """The record of a finished model call.

    Attributes:
        source: The name of the provider or inference engine.
        model: The requested model.
        payload: The read-only payload: the messages and tools for a provider, or the prompt for an engine.
        params: The read-only dict of the call arguments that are not in the payload, such as ``temperature``.
        reply: The reply, or the partial reply to a failed call; None if nothing was received.
        error: The exception from a failed or cancelled call, or None.
        seconds: The duration in seconds, including retries and the time spent waiting for other calls.
        streamed: True if the response was streamed.
        secrets: The values in the prompt that come from environment variables; logs must mask them.
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
    """A hook that appends each model call to a JSON Lines file.

    The file contains complete prompts and responses, but no secrets from the environment. Only the owner can read the
    file.

    Args:
        path: The log file, which the first call creates.
        conversation: The conversation id to write to each line.
    """

    def __init__(self, path: str | os.PathLike[str], conversation: str | None = None) -> None:
        self.path = Path(path)
        self.conversation = conversation

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    def __call__(self, record: CallRecord) -> None:
        """Append the record of a call to the file."""
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
        # Append the line in a single write, so that lines from concurrent threads and processes don't mix.
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "ab", buffering=0) as file:
            file.write(data)


@contextmanager
def open_span(source: str, request: Request) -> Generator[Callable[[Reply | None, BaseException | None], None]]:
    """Open a span for a model call, without making it the current span.

    Args:
        source: The name of the provider or inference engine.
        request: The request.

    Yields:
        A function that records the reply's metadata or the kind of failure, but no text.
    """
    tracer = _tracer()
    if tracer is None:
        yield lambda _reply, _error: None
        return
    from opentelemetry.trace import SpanKind, Status, StatusCode  # noqa: PLC0415 - optional dependency

    operation = "text_completion" if "prompt" in request.payload else "chat"
    options = request.params.get("options")  # Ollama expects parameters in "options"
    params = {**request.params, **(options if is_mapping(options) else {})}
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
        from opentelemetry import trace  # noqa: PLC0415 - optional dependency
    except ImportError:
        return None
    return trace.get_tracer("lazyprompt")
