"""An adapter for Google's official Gemini client.

Sources: "generateContent", "GenerateContentResponse" and "Troubleshooting" in the API reference; the guide "Thought
signatures"; the source code of the client (google-genai 3.4).
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from contextvars import ContextVar
from math import ceil
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from lazyprompt._base.client_objects import fields_of, plain, snake_keys
from lazyprompt.answers.parser import Delta
from lazyprompt.errors import ModuleError, did_you_mean
from lazyprompt.modules.clients._base import CONNECTIONS, OfficialClient, import_extra, key_of
from lazyprompt.modules.clients._faults import ErrorResponse, Fault, FaultKind, describe, seconds
from lazyprompt.modules.clients._limits import limit_hooks
from lazyprompt.modules.clients.openai import fields_in

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator, Iterator, Mapping

    import httpx2

    from lazyprompt._base.json import Fields, JsonObject
    from lazyprompt.modules.clients._base import Request

# The SDK's header with a deadline for the whole response. Servers reject deadlines below ten seconds.
# The header is removed from requests, because a module's timeout applies to each event instead.
_DEADLINE = "x-server-timeout"
_ON_HTTPX2 = 3
# The chunk fields that the collector skips: the SDK adds them, or other code collects them.
_ASIDE = frozenset({"candidates", "sdk_http_response", "parsed", "automatic_function_calling_history"})
_TEXT = frozenset({"text", "thought"})


class GeminiCollector:
    """Collects stream chunks. See :class:`lazyprompt.modules.clients._base.Collector`.

    Only the first candidate is used as the response.
    """

    __slots__ = ("_answer", "_calls", "_candidate", "_parts")

    def __init__(self) -> None:
        # The response fields other than candidates, such as token usage. Every chunk repeats these fields.
        self._answer: dict[str, object] = {}
        self._candidate: dict[str, object] = {}
        # The content parts, each with the received pieces of its text.
        self._parts: list[tuple[Fields, list[str]]] = []
        self._calls = 0

    def feed(self, event: object) -> list[Delta]:
        """Return the deltas in a chunk."""
        chunk = fields_of(plain(event))
        self._answer |= {key: value for key, value in chunk.items() if key not in _ASIDE}
        news: list[Delta] = []
        for fields in fields_in(chunk.get("candidates")):
            if fields.get("index") in (None, 0):
                self._candidate |= {key: value for key, value in fields.items() if key != "content"}
                parts = fields_in(fields_of(fields.get("content")).get("parts"))
                # Skip empty parts: the SDK creates them for unknown fields, and the last chunk may contain empty text.
                news += [delta for part in parts if _says(part) for delta in self._add(part)]
        return news

    @property
    def complete(self) -> bool:
        """True if the candidate has a finish reason or the prompt was blocked."""
        blocked = fields_of(self._answer.get("prompt_feedback")).get("block_reason")
        return bool(blocked or self._candidate.get("finish_reason"))

    def answer(self) -> dict[str, Any]:
        """Return the response received so far."""
        parts = [{**part, "text": "".join(pieces)} if pieces else part for part, pieces in self._parts]
        content = {"content": {"role": "model", "parts": parts}} if parts else {}
        return {**self._answer, "candidates": [{**self._candidate, **content}] if parts or self._candidate else []}

    def _add(self, part: Fields) -> Iterator[Delta]:
        text, call = part.get("text"), fields_of(part.get("function_call"))
        if self._parts and isinstance(text, str) and _can_join(self._parts[-1][0], part):
            self._parts[-1][1].append(text)
        else:
            self._parts.append((part, [text] if isinstance(text, str) else []))
        if call:
            index, self._calls = self._calls, self._calls + 1
            own_id = str(call.get("id") or f"call_{index}")
            written = json.dumps(call.get("args") or {}, ensure_ascii=False)
            yield Delta("tool_call", written, index, own_id, str(call.get("name") or ""))
        elif isinstance(text, str) and text:
            yield Delta("thinking" if part.get("thought") is True else "text", text)


def _says(part: Fields) -> bool:
    return any(value not in (None, "", False) for value in part.values())


def _can_join(last: Fields, part: Fields) -> bool:
    """Return True if two unsigned parts are pieces of the same text or reasoning."""
    plain = last.keys() | part.keys() <= _TEXT and "text" in last
    return plain and bool(last.get("thought")) == bool(part.get("thought"))


class GeminiClient(OfficialClient):
    """A client for Gemini's ``generateContent`` API.

    The official client ignores the server's ``Retry-After``, so lazyprompt performs the retries.

    Args:
        settings: The client's settings. The ``options`` are additional arguments for ``google.genai.Client``, such as
            ``vertexai``, ``project``, ``location`` and ``credentials``. If ``options`` contains ``http_options``, they
            take precedence over the other settings.
    """

    package = ("google.genai", "google-genai")
    names: Mapping[str, str] = {"max_tokens": "max_output_tokens", "stop": "stop_sequences"}
    collector = GeminiCollector
    stumbles = "google"
    kinds: ClassVar[Mapping[str, FaultKind]] = {
        "google.APIError": "request",
        "google.UnknownApiResponseError": "malformed",
        "google.TransportError": "connection",
        "google.GoogleAuthError": "key",
        "pydantic_core.ValidationError": "request",
    }
    # Maps lower-case phrases in error messages with status 400 to fault kinds.
    # The last phrase is the name of an SDK class, which occurs in the error message for an invalid response.
    words: ClassVar[Mapping[str, FaultKind]] = {
        "api key": "key",
        "exceeds the maximum number of tokens": "overflow",
        "request payload size exceeds": "overflow",
        "generatecontentresponse": "malformed",
    }

    def params(self, common: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields for ``GenerateContentConfig``.

        Raises:
            ModuleError: A parameter is not a field of ``GenerateContentConfig``, or enables the streaming of tool call
                arguments on Vertex AI.
            MissingExtraError: The client is not installed.
        """
        params = {self.names.get(name, name): value for name, value in common.items()}
        fields = self.sdk().types.GenerateContentConfig.model_fields
        for name in params:
            if name not in fields and all(name != field.alias for field in fields.values()):
                raise ModuleError(f"GenerateContentConfig has no field {name!r}{did_you_mean(name, fields)}; remove it")
        config = snake_keys(plain(snake_keys(params).get("tool_config")))
        if snake_keys(config.get("function_calling_config")).get("stream_function_call_arguments"):
            raise ModuleError(
                "streaming of tool call arguments is not supported; remove stream_function_call_arguments"
            )
        return params

    def structured(self, schema: JsonObject, name: str) -> dict[str, Any] | None:
        """Return the parameters that request a JSON schema. Gemini ignores unknown schema keywords."""
        return {"response_mime_type": "application/json", "response_json_schema": schema}

    def _ask(self, client: _OnHttp, request: Request, **stream: bool) -> Any:
        """Call the official client, with its automatic function calling disabled."""
        beside = {key: value for key, value in request.payload.items() if key != "contents"}
        config = {"automatic_function_calling": {"disable": True}, **beside, **request.params}
        in_loop = hasattr(client.http, "aclose")
        models = client.sdk.aio.models if in_loop else client.sdk.models
        ask = models.generate_content_stream if stream else models.generate_content
        answer = ask(model=request.model, contents=request.payload["contents"], config=config)
        if not stream:
            return answer
        return _abegin(answer) if in_loop else _ClosingStream(answer, [])

    def fault(self, error: Exception) -> Fault | None:
        """Classify a client's exception, and read the retry delay from Google's error details."""
        fault = super().fault(error)
        if fault is None or fault.retry_after is not None:
            return fault
        details = fields_in(fields_of(fields_of(getattr(error, "details", None)).get("error")).get("details"))
        delays = (delay.removesuffix("s") for each in details if isinstance(delay := each.get("retryDelay"), str))
        return fault._replace(retry_after=seconds(next(delays, None)))

    def _refusal(self, error: Any) -> ErrorResponse:
        headers = getattr(getattr(error, "response", None), "headers", None)
        return ErrorResponse(getattr(error, "code", None), getattr(error, "message", None) or describe(error), headers)

    def _make(self, *, in_loop: bool) -> _OnHttp:
        """Create the official client with httpx clients instead of aiohttp.

        With aiohttp, the official client applies the timeout to the whole response and always retries once.
        """
        base_url, key, timeout, _, options, *_ = self._settings
        given: Any = options.get("http_options") or {}
        asked: dict[str, Any] = {**(given.model_dump(exclude_none=True) if hasattr(given, "model_dump") else given)}
        vertex = bool(options.get("enterprise", options.get("vertexai")))
        # Google's SDK has used httpx2 since version 3. Earlier versions use httpx.
        newer = int(self.sdk().__version__.partition(".")[0]) >= _ON_HTTPX2
        library = import_extra("httpx2" if newer else "httpx", "google-genai")
        common = {
            "verify": library.create_ssl_context(),
            "limits": library.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS),
            "follow_redirects": False,
        }
        own, aown = asked.get("client_args", {}), asked.get("async_client_args", {})
        ours = {"request": [_without_deadline], "response": [_collect_response]}
        aours = {"request": [_awithout_deadline], "response": [_acollect_response]}
        hooks = limit_hooks(library, self._settings.limits, own.get("event_hooks", ours), in_loop=False)
        ahooks = limit_hooks(library, self._settings.limits, aown.get("event_hooks", aours), in_loop=True)
        http = library.Client(**{**common, **own, "event_hooks": hooks})
        ahttp = library.AsyncClient(**{**common, **aown, "event_hooks": ahooks})
        http_options = {
            "base_url": base_url,
            "api_version": None if vertex else "v1beta",
            "timeout": ceil(timeout * 1000),
            "httpx_client": http,
            "httpx_async_client": ahttp,
            **asked,
        }
        # Set every option, because the SDK would read missing options from the environment.
        made: dict[str, Any] = {**({} if vertex else {"vertexai": False}), **options, "http_options": http_options}
        sdk = self.sdk().Client(**{"api_key": None if vertex and key is None else key_of(key), **made})
        return _OnHttp(sdk, ahttp if in_loop else http)


class _OnHttp(NamedTuple):
    """The official client and its HTTP client. The official client doesn't close its HTTP client."""

    sdk: Any
    http: Any

    def close(self) -> Any:
        """Close the HTTP client. For an async client, this method returns an awaitable."""
        return self.http.aclose() if hasattr(self.http, "aclose") else self.http.close()


def _without_deadline(request: httpx2.Request) -> None:
    request.headers.pop(_DEADLINE, None)


async def _awithout_deadline(request: httpx2.Request) -> None:
    _without_deadline(request)


# The HTTP responses opened during the current step of a stream, which the SDK doesn't close.
_RESPONSES: ContextVar[list[Any] | None] = ContextVar("_RESPONSES", default=None)


@contextmanager
def _collect_responses(responses: list[Any]) -> Generator[None]:
    """Collect the HTTP responses that the ``with`` block opens."""
    token = _RESPONSES.set(responses)
    try:
        yield
    finally:
        _RESPONSES.reset(token)


def _collect_response(response: Any) -> None:
    if (responses := _RESPONSES.get()) is not None:
        responses.append(response)


async def _acollect_response(response: Any) -> None:
    _collect_response(response)


class _ClosingStream:
    """An iterator over a stream's chunks, with methods that close the stream's HTTP responses.

    Closing only the outermost of the client's nested generators would leave the connection open until garbage
    collection.
    """

    def __init__(self, chunks: Any, responses: list[Any]) -> None:
        self._chunks, self._responses = chunks, responses

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> object:
        with _collect_responses(self._responses):
            return next(self._chunks)

    def close(self) -> None:
        for response in self._responses:
            response.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> object:
        with _collect_responses(self._responses):
            return await anext(self._chunks)

    async def aclose(self) -> None:
        for response in self._responses:
            await response.aclose()


async def _abegin(chunks: Awaitable[Any]) -> _ClosingStream:
    """Begin a stream. On cancellation, close the stream's HTTP responses, which the official client leaves open."""
    responses: list[Any] = []
    try:
        with _collect_responses(responses):
            begun = await chunks
    except BaseException:
        for response in responses:
            await response.aclose()
        raise
    return _ClosingStream(begun, responses)


connect = GeminiClient
