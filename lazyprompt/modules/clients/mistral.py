"""Mistral's official client, for threads and for event loops.

It tries again only where ``retry_config`` is among the options, and does not wait as long as ``Retry-After`` says; so
that is left to the module. It has defaults for what a stream does not say, so events are read without them.

Source: the API reference, "Chat completion"; the source of the client (mistralai 3.7); errors quoted in its issues.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import aclosing
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from lazyprompt._base.secret import Secret
from lazyprompt.errors import missing_extra
from lazyprompt.modules.clients._chat_faults import chat_fault, hiding, kind_of_refusal, wait_in
from lazyprompt.modules.clients._chat_servers import response_format
from lazyprompt.modules.clients._chat_stream import ChatCollector
from lazyprompt.modules.clients._opened import Opened, key_of
from lazyprompt.modules.clients._parameters import COMMON, check_parameters
from lazyprompt.modules.clients._said import kind_of_class
from lazyprompt.modules.clients._wire import aunbroken, unbroken

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from types import ModuleType

    import httpx2
    from mistralai.client import Mistral

    from lazyprompt._base.json import JsonObject
    from lazyprompt.modules.client import Fault, FaultKind, Request, Settings

# The responses of a stream that is about to begin.
_BEGUN: ContextVar[list[Any] | None] = ContextVar("_BEGUN", default=None)
_CLASSES: dict[str, FaultKind] = {
    "mistralai.ResponseValidationError": "malformed",
    "mistralai.MistralError": "request",
    "mistralai.NoResponseError": "connection",
    "httpx.TimeoutException": "timeout",
    "httpx.DecodingError": "malformed",
    "httpx.TransportError": "connection",
    "lazyprompt.CutError": "cut",
    "builtins.UnicodeDecodeError": "malformed",
}
_OK = 200
_Http = TypeVar("_Http")


def connect(settings: Settings) -> MistralClient:
    """Make a client for Mistral.

    Args:
        settings: ``options`` are further arguments of ``mistralai.client.Mistral``.

    Raises:
        ModuleError: The key cannot be sent.
    """
    return MistralClient(settings)


class MistralClient:
    """The client; see :class:`lazyprompt.modules.client.Client`.

    Args:
        settings: How the official client is made.
    """

    retries_itself = False

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._key = None if settings.key is None else Secret(key_of(settings.key))
        self._opened = Opened(self._made, self._amade)

    def params(self, common: Mapping[str, Any]) -> dict[str, Any]:
        """Return parameters of the client's ``complete``; all but ``seed`` have their names already.

        Raises:
            ModuleError: ``complete`` takes no such parameter.
            MissingExtraError: The client is not installed.
        """
        if further := common.keys() - COMMON:
            _modules()
            from mistralai.client.chat import Chat  # noqa: PLC0415 - loaded by now

            check_parameters(sorted(further), Chat.complete, "chat.complete")
        return {"random_seed" if name == "seed" else name: value for name, value in common.items()}

    def structured(self, schema: JsonObject, name: str) -> dict[str, Any] | None:
        """Return ``response_format`` with the schema."""
        return response_format(schema, name)

    def send(self, request: Request) -> object:
        """Return the answer."""
        with hiding(self._key):
            return self._opened.client().sdk.chat.complete(**_call(request))

    async def asend(self, request: Request) -> object:
        """Return the answer."""
        with hiding(self._key):
            client = await self._opened.aclient()
            return await client.sdk.chat.complete_async(**_call(request))

    def stream(self, request: Request) -> Iterator[object]:
        """Yield the chunks."""
        with hiding(self._key), self._opened.client().sdk.chat.stream(**_call(request)) as events:
            yield from unbroken((_chunk(event) for event in events), _cut)

    async def astream(self, request: Request) -> AsyncIterator[object]:
        """Yield the chunks."""
        with hiding(self._key):
            client = await self._opened.aclient()
            async with (
                await _streamed(client.sdk, _call(request)) as events,
                aclosing(aunbroken((_chunk(event) async for event in events), _cut)) as chunks,
            ):
                async for chunk in chunks:
                    yield chunk

    def collector(self) -> ChatCollector:
        """Return a new collector."""
        return ChatCollector()

    def fault(self, error: Exception) -> Fault | None:
        """Tell the fault of an error: by its class, its status, and the words of the API."""
        body = _body(error)
        fault = chat_fault(error, _CLASSES, body, self._key)
        if fault is None or fault.status != _OK:
            return fault and fault._replace(retry_after=wait_in(getattr(error, "headers", None)))
        # An error within a stream; or what is no answer, as a web page.
        said = json.dumps(body) if isinstance(body, dict) and "message" in body else ""
        return fault._replace(kind=kind_of_refusal(None, said, self._key) if said else "malformed", status=None)

    def close(self) -> None:
        """Close the client for threads."""
        client = self._opened.taken()
        if client is not None:
            client.http.close()

    async def aclose(self) -> None:
        """Close the client of the running event loop."""
        client = self._opened.ataken()
        if client is not None:
            await client.http.aclose()

    def _made(self) -> _Line[httpx2.Client]:
        """Make the client for threads. It closes only connections of its own making, so both are given to it."""
        httpx2 = _modules()[1]
        http = httpx2.Client(follow_redirects=False)
        return _Line(self._sdk(client=http, async_client=httpx2.AsyncClient(verify=False)), http)

    def _amade(self) -> _Line[httpx2.AsyncClient]:
        """Make the client for an event loop."""
        httpx2 = _modules()[1]
        http = httpx2.AsyncClient(follow_redirects=False, event_hooks={"response": [_note]})
        return _Line(self._sdk(client=httpx2.Client(verify=False), async_client=http), http)

    def _sdk(self, **http: Any) -> Mistral:  # noqa: ANN401 - clients of two kinds
        base_url, key, timeout, _, options = self._settings
        made = {"api_key": key_of(key), "server_url": base_url, "timeout_ms": int(timeout * 1000), **http, **options}
        client = cast("Mistral", _modules()[0].Mistral(**made))
        _ = client.chat  # which imports what it needs: here, where no event loop waits for it
        return client


class _Line(NamedTuple, Generic[_Http]):
    """The official client, and its connections."""

    sdk: Mistral
    http: _Http


def _call(request: Request) -> dict[str, Any]:
    return {"model": request.model, **request.payload, **request.params}


def _cut(error: Exception, begun: bool) -> bool:  # noqa: FBT001, ARG001 - as unbroken asks
    """Return True if a connection was lost: the stream is there already, so it was cut."""
    return kind_of_class(error, _CLASSES) == "connection"


def _chunk(event: Any) -> object:  # noqa: ANN401 - the client's own
    """Return an event's chunk as the server sent it: a piece of a call without an id would have the id "null"."""
    return event.data.model_dump(exclude_unset=True, warnings=False)


def _body(error: Exception) -> object:
    """Return what the server said: its JSON, in a stream the data of the event, or its text."""
    text: object = getattr(error, "body", None)
    try:
        said: object = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return text
    if not isinstance(said, Mapping):
        return said
    fields = cast("Mapping[str, object]", said)
    return fields.get("data") or fields


async def _streamed(sdk: Mistral, call: dict[str, Any]) -> Any:  # noqa: ANN401 - the client's stream
    """Begin a stream. Between the response and its stream the client waits, and cancelled there it closes nothing."""
    begun: list[httpx2.Response] = []
    token = _BEGUN.set(begun)
    try:
        return await sdk.chat.stream_async(**call)
    except BaseException:
        for response in begun:
            await response.aclose()
        raise
    finally:
        _BEGUN.reset(token)


async def _note(response: httpx2.Response) -> None:
    """Keep a response for whoever may have to close it."""
    begun = _BEGUN.get()
    if begun is not None:
        begun.append(response)


def _modules() -> tuple[ModuleType, ModuleType]:
    """Import the client, and the HTTP client that it is made with."""
    try:
        import httpx2  # noqa: PLC0415 - comes with the client
        import mistralai.client as sdk  # noqa: PLC0415 - an extra, and slow
    except ImportError as error:
        raise missing_extra("mistralai", "mistralai") from error
    return sdk, httpx2
