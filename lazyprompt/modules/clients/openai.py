"""OpenAI's official client: Chat Completions of OpenAI and of all who speak like it, and completions of flat text.

Sources: OpenAI's API reference, "Create chat completion" and "Create completion"; the source of the client (2.54).
"""

from __future__ import annotations

import os
from contextlib import aclosing
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from lazyprompt._base.secret import Secret
from lazyprompt.errors import ModuleError, did_you_mean, missing_extra
from lazyprompt.modules.clients._chat_faults import PageError, chat_fault, cut_in, hiding
from lazyprompt.modules.clients._chat_servers import ENGINES, SERVERS, server_at
from lazyprompt.modules.clients._chat_stream import ChatCollector, TextCollector
from lazyprompt.modules.clients._opened import Opened, key_of
from lazyprompt.modules.clients._parameters import COMMON, EXTRA_BODY, check_parameters
from lazyprompt.modules.clients._wire import aunbroken, own_http, unbroken

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping
    from types import ModuleType

    import openai as sdk

    from lazyprompt._base.json import JsonObject
    from lazyprompt.modules.client import Collector, Fault, FaultKind, Request, Settings
    from lazyprompt.modules.clients._chat_servers import Structured

_Entry = TypeVar("_Entry")

_CLASSES: dict[str, FaultKind] = {
    "openai.APITimeoutError": "timeout",
    "openai.APIConnectionError": "connection",
    "openai.APIResponseValidationError": "malformed",
    "openai.APIStatusError": "request",
    "openai.APIError": "server",  # what a stream says of itself
    "openai.OpenAIError": "key",  # there is none
    # What is read of a stream, the client wraps from its version 3 on.
    "httpx.TimeoutException": "timeout",
    "httpx.DecodingError": "malformed",
    "httpx.TransportError": "connection",
    "lazyprompt.CutError": "cut",
    "json.JSONDecodeError": "malformed",
    "builtins.UnicodeDecodeError": "malformed",
    "lazyprompt.PageError": "malformed",
}


def connect(settings: Settings, server: str | None = None) -> OpenAIClient:
    """A client for Chat Completions.

    Args:
        settings: ``options`` are further arguments of ``openai.OpenAI`` and ``openai.AsyncOpenAI``; an ``http_client``
            is for one of them only. With no ``base_url`` it is that of ``OPENAI_BASE_URL``, or OpenAI's.
        server: Which of :data:`SERVERS` it is; None: the one that has the host of the ``base_url``.

    Raises:
        ModuleError: There is no such server, or the key is none.
    """
    base_url = settings.base_url or os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"
    known = _known(SERVERS, server) if server is not None else server_at(base_url)
    way = _Way("chat.completions", ChatCollector, *known[1:])
    return OpenAIClient(settings, way)


def connect_completions(settings: Settings, engine: str = "other") -> OpenAIClient:
    """A client for the completions of flat text (``/v1/completions``) that local engines have.

    Its payload is ``{"prompt": ...}``, a text or token ids; its answer a ``text_completion``.

    Args:
        settings: As of :func:`connect`.
        engine: Which of :data:`ENGINES` it is; they differ in how a JSON schema is asked for.

    Raises:
        ModuleError: There is no such engine, or the key is none.
    """
    way = _Way("completions", TextCollector, "max_tokens", *_known(ENGINES, engine))
    return OpenAIClient(settings, way)


class _Way(NamedTuple):
    """The use of an endpoint: the client's resource, the collector of its streams, and the rest as of a server."""

    resource: str
    collector: Callable[[], Collector]
    limit: str
    usage: bool
    structured: Structured | None

    def create(self, client: object) -> Callable[..., Any]:
        """Return the method of a client."""
        method: Callable[..., Any] = attrgetter(f"{self.resource}.create")(client)
        return method


class OpenAIClient:
    """The client; see :class:`lazyprompt.modules.client.Client`.

    Args:
        settings: How the official client is made.
        way: Which endpoint is used, and how.
    """

    retries_itself = True

    def __init__(self, settings: Settings, way: _Way) -> None:
        self._settings, self._way = settings, way
        self._key = None if settings.key is None else Secret(key_of(settings.key))
        self._opened = Opened(
            lambda: cast("sdk.OpenAI", self._made("OpenAI")),
            lambda: cast("sdk.AsyncOpenAI", self._made("AsyncOpenAI")),
        )

    def params(self, common: Mapping[str, Any]) -> dict[str, Any]:
        """Return parameters of the client's ``create``; all but ``max_tokens`` have their names already.

        Raises:
            ModuleError: ``create`` takes no such parameter.
            MissingExtraError: The client is not installed.
        """
        if further := common.keys() - COMMON:
            method = attrgetter(f"resources.{self._way.resource}.Completions.create")(_sdk())
            check_parameters(sorted(further), method, f"{self._way.resource}.create", advice=EXTRA_BODY)
        return {self._way.limit if name == "max_tokens" else name: value for name, value in common.items()}

    def structured(self, schema: JsonObject, name: str) -> dict[str, Any] | None:
        """``response_format`` with the schema, ``strict`` where it keeps the rules for that; engines have their own.

        None is for servers that take no schema, as DeepSeek and SiliconFlow, or are not known.
        """
        return None if self._way.structured is None else self._way.structured(schema, name)

    def send(self, request: Request) -> object:
        """The answer."""
        with hiding(self._key):
            return _no_page(self._way.create(self._opened.client())(**self._call(request)))

    async def asend(self, request: Request) -> object:
        """The answer."""
        with hiding(self._key):
            client = await self._opened.aclient()
            return _no_page(await self._way.create(client)(**self._call(request)))

    def stream(self, request: Request) -> Iterator[object]:
        """The chunks."""
        with hiding(self._key):
            yield from unbroken(self._events(request), cut_in(_CLASSES))

    async def astream(self, request: Request) -> AsyncIterator[object]:
        """The chunks."""
        with hiding(self._key):
            async with aclosing(aunbroken(self._aevents(request), cut_in(_CLASSES))) as events:
                async for event in events:
                    yield event

    def collector(self) -> Collector:
        """A new collector."""
        return self._way.collector()

    def fault(self, error: Exception) -> Fault | None:
        """What an error means: by its class, its status, and the words and codes of the servers."""
        return chat_fault(error, _CLASSES, getattr(error, "body", None), self._key)

    def close(self) -> None:
        """Close the client for threads."""
        client = self._opened.taken()
        if client is not None:
            client.close()

    async def aclose(self) -> None:
        """Close the client of the running event loop."""
        client = self._opened.ataken()
        if client is not None:
            await client.close()

    def _events(self, request: Request) -> Generator[object]:
        made: sdk.Stream[object] = self._way.create(self._opened.client())(**self._streamed(request))
        with made as events:
            _no_page_in(events.response.headers.get("content-type", ""))
            for event in events:
                yield _no_error(event, events.response.request)

    async def _aevents(self, request: Request) -> AsyncGenerator[object]:
        client = await self._opened.aclient()
        made: sdk.AsyncStream[object] = await self._way.create(client)(**self._streamed(request))
        async with made as events:
            _no_page_in(events.response.headers.get("content-type", ""))
            async for event in events:
                yield _no_error(event, events.response.request)

    def _made(self, name: str) -> object:
        """One of the official clients."""
        base_url, key, timeout, retries, options = self._settings
        made = {"base_url": base_url, "timeout": timeout, "max_retries": retries, **options}
        made |= own_http(_sdk(), name, options)
        client = getattr(_sdk(), name)(**{"api_key": key_of(key), **made})
        self._way.create(client)  # which imports what the endpoint needs: here, where no event loop waits for it
        return client

    def _call(self, request: Request) -> dict[str, Any]:
        """The arguments of a call."""
        call: dict[str, Any] = {"model": request.model, **request.payload, **request.params}
        headers = cast("Mapping[str, str]", self._settings.options.get("default_headers") or {})
        if self._key is None and not any(name.lower() == "authorization" for name in headers):
            # The client must have a key, and sends it wherever this header is not left out of the call itself.
            call["extra_headers"] = {"Authorization": _sdk().Omit(), **call.get("extra_headers", {})}
        return call

    def _streamed(self, request: Request) -> dict[str, Any]:
        """The same for a stream."""
        usage = {"stream_options": {"include_usage": True}} if self._way.usage else {}
        return {**usage, **self._call(request), "stream": True}


def _sdk() -> ModuleType:
    try:
        import openai as sdk  # noqa: PLC0415 - an extra, and slow
    except ImportError as error:
        raise missing_extra("openai", "openai") from error
    return sdk


def _known(table: Mapping[str, _Entry], name: str) -> _Entry:
    if name not in table:
        raise ModuleError(f"{name!r} is not known{did_you_mean(name, table)}; known are {', '.join(table)}")
    return table[name]


def _no_page(answer: object) -> object:
    """An answer; the client gives back as text whatever has not the content type of JSON."""
    if isinstance(answer, str):
        raise PageError(answer)
    return answer


def _no_page_in(content_type: str) -> None:
    """Refuse a web page as a stream, which the client would find empty."""
    if "text/html" in content_type:
        raise PageError("text/html")


def _no_error(event: object, request: Any) -> object:  # noqa: ANN401 - of httpx or httpx2, as the client's version has it
    """An event; SiliconFlow and LMDeploy tell of an error in a stream without the ``error`` that the client looks for.

    Raises:
        openai.APIError: It is such an error, as the client raises it for the others.
    """
    more: object = None if getattr(event, "choices", None) else getattr(event, "model_extra", None)
    if isinstance(more, dict) and "code" in more and (message := cast("dict[str, object]", more).get("message")):
        raise _sdk().APIError(str(message), request, body=more)
    return event
