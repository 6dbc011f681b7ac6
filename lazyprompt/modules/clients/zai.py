"""Zhipu's official client (GLM), which is for threads only: event loops get it by way of threads.

It would try again by itself, but does not wait as long as ``Retry-After`` says; so it is left to the module. It changes
the messages it is given, and takes temperatures of 0 and 1, which its API does not, for others next to them.

Source: the API reference, "Chat completion" (对话补全) and "Error codes"; the source of the client (zai-sdk 0.2).
"""

from __future__ import annotations

from contextlib import aclosing, closing
from copy import deepcopy
from functools import partial
from json import JSONDecodeError, loads
from typing import TYPE_CHECKING, Any, cast

from lazyprompt._base.secret import Secret
from lazyprompt.errors import missing_extra
from lazyprompt.modules.clients._chat_faults import PageError, chat_fault, cut_in, hiding
from lazyprompt.modules.clients._chat_stream import ChatCollector
from lazyprompt.modules.clients._opened import Opened, key_of
from lazyprompt.modules.clients._parameters import COMMON, EXTRA_BODY, check_parameters
from lazyprompt.modules.clients._wire import CONNECTIONS, aunbroken, unbroken
from lazyprompt.modules.clients._zai_lines import Line, Lines

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Mapping
    from types import ModuleType

    import httpx
    import zai as sdk
    from zai.api_resource.chat.completions import Completions
    from zai.core import StreamResponse

    from lazyprompt._base.json import JsonObject
    from lazyprompt.modules.client import Fault, FaultKind, Request, Settings

_CLASSES: dict[str, FaultKind] = {
    "zai.APITimeoutError": "timeout",
    "zai.APIConnectionError": "connection",
    "zai.APIResponseValidationError": "malformed",
    "zai.APIStatusError": "request",
    "zai.APIResponseError": "server",  # what a stream says of itself
    "zai.ZaiError": "key",  # there is none
    # What is read of a stream is not wrapped by the client.
    "httpx.TimeoutException": "timeout",
    "httpx.DecodingError": "malformed",
    "httpx.TransportError": "connection",
    "lazyprompt.CutError": "cut",
    "json.JSONDecodeError": "malformed",
    "builtins.UnicodeDecodeError": "malformed",
    "lazyprompt.PageError": "malformed",
}
_END = object()


def connect(settings: Settings) -> ZaiClient:
    """A client for Zhipu.

    Args:
        settings: ``options`` are further arguments of ``zai.ZhipuAiClient``. An ``http_client`` is for threads only:
            event loops have one for each connection. With no ``base_url`` it is that of ``ZAI_BASE_URL``, or Zhipu's.

    Raises:
        ModuleError: The key is none.
    """
    return ZaiClient(settings)


class ZaiClient:
    """The client; see :class:`lazyprompt.modules.client.Client`.

    Args:
        settings: How the official client is made.
    """

    retries_itself = False

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._key = None if settings.key is None else Secret(key_of(settings.key))
        self._opened = Opened(self._for_threads, self._lines)

    def params(self, common: Mapping[str, Any]) -> dict[str, Any]:
        """Return parameters of the client's ``create``, which has the common names.

        Raises:
            ModuleError: ``create`` takes no such parameter.
            MissingExtraError: The client is not installed.
        """
        if further := common.keys() - COMMON:
            method = _completions().create
            check_parameters(sorted(further), method, "chat.completions.create", advice=EXTRA_BODY)
        return dict(common)

    def structured(self, schema: JsonObject, name: str) -> dict[str, Any] | None:  # noqa: ARG002 - others take one
        """None: the API knows JSON, but no schemas."""
        return None

    def send(self, request: Request) -> object:
        """The answer."""
        with hiding(self._key):
            return _whole(self._opened.client(), _call(request))

    async def asend(self, request: Request) -> object:
        """The answer."""
        with hiding(self._key):
            lines = await self._opened.aclient()
            async with lines.line() as line:
                return await line.run(lines.threads, partial(_whole, line.client, _call(request)))

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

    def collector(self) -> ChatCollector:
        """A new collector."""
        return ChatCollector()

    def fault(self, error: Exception) -> Fault | None:
        """What an error means: by its class, its status, and the words and codes of the API."""
        return chat_fault(error, _CLASSES, _body(error), self._key)

    def close(self) -> None:
        """Close the client for threads."""
        client = self._opened.taken()
        if client is not None:
            client.close()  # type: ignore[no-untyped-call]  # it has no types

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        lines = self._opened.ataken()
        if lines is not None:
            await lines.close()

    def _events(self, request: Request) -> Generator[object]:
        events = _begun(self._opened.client(), _call(request))
        with closing(events.response):
            yield from events

    async def _aevents(self, request: Request) -> AsyncGenerator[object]:
        lines = await self._opened.aclient()
        async with lines.line() as line:
            events = await line.run(lines.threads, partial(_begun, line.client, _call(request)))
            following: partial[object] = partial(next, events, _END)
            try:
                while (event := await line.run(lines.threads, following)) is not _END:
                    yield event
            except Exception:
                events.response.close()  # for the line is kept
                raise

    def _for_threads(self) -> sdk.ZhipuAiClient:
        """Make the client that all threads share."""
        _sdk()
        import httpx  # noqa: PLC0415 - the client's own

        limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
        own = self._settings.options
        return self._made(own if "http_client" in own else {**own, "http_client": httpx.Client(limits=limits)})

    def _made(self, options: Mapping[str, Any]) -> sdk.ZhipuAiClient:
        """The official client."""
        base_url, key, timeout, _, _ = self._settings
        made = {"base_url": base_url, "timeout": timeout, "max_retries": 0, **options}
        client = cast("sdk.ZhipuAiClient", _sdk().ZhipuAiClient(**{"api_key": key_of(key), **made}))
        _ = client.chat.completions  # which imports what it needs: here, where no event loop waits for it
        return client

    def _lines(self) -> Lines:
        """What an event loop needs; the certificates are read once for all its connections."""
        _sdk()
        import httpx  # noqa: PLC0415 - the client's own

        context = httpx.create_ssl_context()
        return Lines(partial(self._line, context))

    def _line(self, context: ssl.SSLContext) -> Line:
        import httpx  # noqa: PLC0415 - the client's own

        http = httpx.Client(verify=context)
        return Line(self._made({**self._settings.options, "http_client": http}), http)


def _call(request: Request) -> dict[str, Any]:
    """The arguments of a call: a copy, for the client takes the heads off pictures in the messages it is given."""
    return {"model": request.model, **deepcopy(dict(request.payload)), **request.params}


def _sdk() -> ModuleType:
    try:
        import zai as sdk  # noqa: PLC0415 - an extra, and slow
    except ImportError as error:
        raise missing_extra("zai-sdk", "zai-sdk") from error
    return sdk


def _completions() -> type[Completions]:
    _sdk()
    from zai.api_resource.chat.completions import Completions  # noqa: PLC0415 - loaded by now

    return Completions


def _whole(client: sdk.ZhipuAiClient, call: dict[str, Any]) -> object:
    """The answer; the client gives back as text whatever has not the content type of JSON."""
    answer: object = client.chat.completions.create(**call)
    if isinstance(answer, str):
        raise PageError(answer)
    return answer


def _begun(client: sdk.ZhipuAiClient, call: dict[str, Any]) -> StreamResponse[dict[str, Any]]:
    """A stream; of a web page, the client would make an empty one."""
    events = cast("StreamResponse[dict[str, Any]]", client.chat.completions.create(**call, stream=True))
    if "text/html" in events.response.headers.get("content-type", ""):
        events.response.close()
        raise PageError("text/html")
    return events


def _body(error: Exception) -> object:
    """What the server said: the client keeps it as it came, or what it is in a stream."""
    response: httpx.Response | None = getattr(error, "response", None)
    if response is None or hasattr(error, "json_data"):
        return getattr(error, "json_data", None)
    try:
        return cast("object", loads(response.text))
    except JSONDecodeError:
        return response.text
