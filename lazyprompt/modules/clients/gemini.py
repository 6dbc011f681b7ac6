"""Google's official client, for Gemini.

Source: the API reference, "generateContent" and "Troubleshooting"; the source of the client (google-genai 3.4).
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from lazyprompt._base.secret import Secret
from lazyprompt.errors import ModuleError, did_you_mean, missing_extra
from lazyprompt.modules.client import Fault
from lazyprompt.modules.clients._chat_faults import hiding
from lazyprompt.modules.clients._gemini_stream import GeminiCollector
from lazyprompt.modules.clients._opened import Opened, key_of
from lazyprompt.modules.clients._said import (
    classes_of,
    fields_of,
    kind_of_class,
    kind_of_status,
    kind_of_words,
    listed,
    one_line,
    seconds,
    told,
)
from lazyprompt.modules.clients._wire import CutError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator, Iterator, Mapping
    from types import ModuleType

    import httpx2
    from google import genai

    from lazyprompt._base.json import JsonObject
    from lazyprompt.modules.client import FaultKind, Request, Settings

_NAMES = {"max_tokens": "max_output_tokens", "stop": "stop_sequences"}
# As many as the other official clients allow at once.
_CONNECTIONS = 1_000
# It tells the server how long the whole answer may take, and less than ten seconds are refused. A time-out of ours is
# for each piece, so the server is to keep its own.
_DEADLINE = "x-server-timeout"
# The responses that a stream began to read. The client's generators lie in each other: closing the outermost leaves the
# connection to the garbage collector.
_BEGUN: ContextVar[list[Any] | None] = ContextVar("_BEGUN", default=None)

_CLASSES: dict[str, FaultKind] = {
    "google.APIError": "request",
    "google.UnknownApiResponseError": "malformed",
    "google.TransportError": "connection",
    "google.GoogleAuthError": "key",
    "lazyprompt.CutError": "cut",
    "httpx.TimeoutException": "timeout",
    "httpx.DecodingError": "malformed",
    "httpx.RequestError": "connection",
    "json.JSONDecodeError": "malformed",
    "builtins.UnicodeDecodeError": "malformed",
    "pydantic_core.ValidationError": "request",
}
# Words behind the status 400, and the name of the answer where it is that which the client's types refuse.
_WORDS: dict[str, FaultKind] = {
    "api key": "key",
    "exceeds the maximum number of tokens": "overflow",
    "request payload size exceeds": "overflow",
    "generatecontentresponse": "malformed",
}


def connect(settings: Settings) -> GeminiClient:
    """A client for Gemini.

    Args:
        settings: ``options`` are further arguments of ``google.genai.Client``: ``vertexai``, ``project``, ``location``,
            ``credentials``; what is in ``http_options`` counts before what is made of the others.
    """
    return GeminiClient(settings)


class GeminiClient:
    """The client; see :class:`lazyprompt.modules.client.Client`.

    The official client would try again by itself, but without regard to when the server asks for that.

    Args:
        settings: How the official client is made.
    """

    retries_itself = False

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._key = None if settings.key is None else Secret(key_of(settings.key))
        self._opened = Opened(self._made, self._made)

    def params(self, common: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters of ``GenerateContentConfig``.

        Raises:
            ModuleError: It has no such field; or it asks for calls in pieces, as Vertex AI can stream them.
            MissingExtraError: The client is not installed.
        """
        params = {_NAMES.get(name, name): value for name, value in common.items()}
        fields = _sdk().types.GenerateContentConfig.model_fields
        for name in params:
            if name not in fields and all(name != field.alias for field in fields.values()):
                raise ModuleError(f"GenerateContentConfig has no {name!r}{did_you_mean(name, fields)}; leave it out")
        if _calls_in_pieces(params.get("tool_config", params.get("toolConfig"))):
            raise ModuleError(
                "stream_function_call_arguments gives calls in pieces that nothing here joins; leave it out"
            )
        return params

    def structured(self, schema: JsonObject, name: str) -> dict[str, Any] | None:  # noqa: ARG002 - others name theirs
        """The schema, and JSON as the type of the answer. What Gemini does not know of a schema it leaves out."""
        return {"response_mime_type": "application/json", "response_json_schema": schema}

    def send(self, request: Request) -> object:
        """The answer."""
        with hiding(self._key):
            models: Any = self._opened.client().sdk.models  # its types name classes that need not be there
            return models.generate_content(**_call(request))

    async def asend(self, request: Request) -> object:
        """The answer."""
        with hiding(self._key):
            models: Any = (await self._opened.aclient()).sdk.aio.models
            return await models.generate_content(**_call(request))

    def stream(self, request: Request) -> Iterator[object]:
        """The chunks."""
        begun: list[Any] = []
        with hiding(self._key):
            models: Any = self._opened.client().sdk.models
            chunks: Iterator[object] = models.generate_content_stream(**_call(request))
            try:
                while True:
                    with _reading(begun):
                        chunk = next(chunks, None)
                    if chunk is None:
                        return
                    yield chunk
            finally:
                for response in begun:
                    response.close()

    async def astream(self, request: Request) -> AsyncIterator[object]:
        """The chunks."""
        begun: list[Any] = []
        with hiding(self._key):
            models: Any = (await self._opened.aclient()).sdk.aio.models
            try:
                with _reading(begun):
                    chunks: AsyncIterator[object] = await models.generate_content_stream(**_call(request))
                while True:
                    with _reading(begun):
                        chunk = await anext(chunks, None)
                    if chunk is None:
                        return
                    yield chunk
            finally:
                for response in begun:
                    await response.aclose()

    def collector(self) -> GeminiCollector:
        """A new collector."""
        return GeminiCollector()

    def fault(self, error: Exception) -> Fault | None:
        """What an error means: by its class, its status, its words."""
        kind = kind_of_class(error, _CLASSES)
        if kind is None:
            return None
        given: Any = error  # a class of the client's, which need not be there
        code = getattr(given, "code", None)
        status = code if isinstance(code, int) else None
        said = getattr(given, "message", None) or told(error)
        if kind == "request":
            kind = kind_of_status(status) if status is not None else kind
        if kind == "request":
            kind = kind_of_words(said, _WORDS) or kind
        return Fault(kind, one_line(said, self._key), status, _wait(given))

    def close(self) -> None:
        """Close the client for threads."""
        client = self._opened.taken()
        if client is not None:
            client.http.close()

    async def aclose(self) -> None:
        """Close the client of the running event loop."""
        client = self._opened.ataken()
        if client is not None:
            await client.ahttp.aclose()

    def _made(self) -> _Made:
        """A client of ours: with HTTP clients that we close, and not on aiohttp.

        With aiohttp the official client counts a time-out for the whole answer, and sends a second time what failed,
        however it was set.
        """
        base_url, key, timeout, _, options = self._settings
        given: Any = options.get("http_options") or {}
        asked: dict[str, Any] = {**(given.model_dump(exclude_none=True) if hasattr(given, "model_dump") else given)}
        vertex = bool(options.get("enterprise", options.get("vertexai")))
        library = _http()
        common = {
            "verify": library.create_ssl_context(),
            "limits": library.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS),
            "follow_redirects": False,
        }
        hooks = {"request": [_without_deadline], "response": [_note]}
        ahooks = {"request": [_awithout_deadline], "response": [_anote]}
        http = library.Client(**{**common, "event_hooks": hooks, **asked.get("client_args", {})})
        ahttp = library.AsyncClient(**{**common, "event_hooks": ahooks, **asked.get("async_client_args", {})})
        http_options = {
            "base_url": base_url,
            "api_version": None if vertex else "v1beta",
            "timeout": ceil(timeout * 1000),
            "httpx_client": http,
            "httpx_async_client": ahttp,
            **asked,
        }
        # What is not said here would be looked for in the environment.
        made: dict[str, Any] = {**({} if vertex else {"vertexai": False}), **options, "http_options": http_options}
        sdk = _sdk().Client(**{"api_key": None if vertex and key is None else key_of(key), **made})
        return _Made(sdk, http, ahttp)


class _Made(NamedTuple):
    """The official client, and what it sends with."""

    sdk: genai.Client
    http: httpx2.Client
    ahttp: httpx2.AsyncClient


def _sdk() -> ModuleType:
    try:
        from google import genai  # noqa: PLC0415 - an extra, and slow
    except ImportError as error:
        raise missing_extra("google-genai", "google-genai") from error
    return genai


def _http() -> ModuleType:
    """The HTTP library that the official client is made on: httpx2 from its version 3 on."""
    if int(_sdk().__version__.partition(".")[0]) < 3:  # noqa: PLR2004 - that version
        import httpx  # noqa: PLC0415 - comes with the client

        return httpx
    import httpx2  # noqa: PLC0415 - comes with the client

    return httpx2


def _call(request: Request) -> dict[str, Any]:
    """The arguments of a call. Functions are described to the model, and never called by the client."""
    contents = request.payload["contents"]
    beside = {key: value for key, value in request.payload.items() if key != "contents"}
    config = {"automatic_function_calling": {"disable": True}, **beside, **request.params}
    return {"model": request.model, "contents": contents, "config": config}


def _calls_in_pieces(tool_config: object) -> bool:
    given = fields_of(tool_config)
    calling = fields_of(given.get("function_calling_config", given.get("functionCallingConfig")))
    return bool(calling.get("stream_function_call_arguments", calling.get("streamFunctionCallArguments")))


def _without_deadline(request: httpx2.Request) -> None:
    request.headers.pop(_DEADLINE, None)


async def _awithout_deadline(request: httpx2.Request) -> None:
    _without_deadline(request)


def _note(response: httpx2.Response) -> None:
    begun = _BEGUN.get()
    if begun is not None:
        begun.append(response)


async def _anote(response: httpx2.Response) -> None:
    _note(response)


@contextmanager
def _reading(begun: list[Any]) -> Generator[None]:
    """One step of a stream: what it opens is noted, and a connection that is lost behind its beginning is told apart.

    Raises:
        CutError: It was lost so.
    """
    token = _BEGUN.set(begun)
    try:
        yield
    except Exception as error:
        classes = classes_of(error)
        if begun and "httpx.TransportError" in classes and "httpx.TimeoutException" not in classes:
            raise CutError(told(error)) from error
        raise
    finally:
        _BEGUN.reset(token)


def _wait(error: Any) -> float | None:  # noqa: ANN401 - of a class that need not be there
    """When the server asks to try again: in a header, or as Google says it, among the details of the error."""
    headers: Any = getattr(getattr(error, "response", None), "headers", None)
    details = fields_of(fields_of(getattr(error, "details", None)).get("error")).get("details")
    told_so = [fields_of(detail).get("retryDelay") for detail in listed(details)]
    delay = next((each.removesuffix("s") for each in told_so if isinstance(each, str)), None)
    return seconds((headers.get("retry-after") if headers else None) or delay)
