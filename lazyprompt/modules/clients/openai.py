"""OpenAI's official client: Chat Completions of OpenAI and of all who speak like it, and completions of flat text.

Sources: OpenAI's API reference, "Create chat completion" and "Create completion"; the source of the client (2.54).
"""

from __future__ import annotations

import os
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

from lazyprompt._base.client_objects import fields_of
from lazyprompt.errors import ModuleError, did_you_mean
from lazyprompt.modules.clients._base import EXTRA_BODY, OwnHttpClient
from lazyprompt.modules.clients._faults import StreamedError
from lazyprompt.modules.clients._openai_form import ENGINES, SERVERS, ChatCollector, TextCollector, server_at

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lazyprompt._base.json import JsonObject
    from lazyprompt.modules.clients._base import Collector, Request, Settings
    from lazyprompt.modules.clients._faults import FaultKind
    from lazyprompt.modules.clients._openai_form import Server


def connect(settings: Settings, server: str | None = None) -> OpenAIClient:
    """Return a client for Chat Completions.

    Args:
        settings: ``options`` are further arguments of ``openai.OpenAI`` and ``openai.AsyncOpenAI``; an ``http_client``
            is for one of them only. With no ``base_url`` it is that of ``OPENAI_BASE_URL``, or OpenAI's.
        server: The name of one of :data:`SERVERS`; None: the one that has the host of the ``base_url``.

    Raises:
        ModuleError: There is no such server, or the key is none.
    """
    base_url = settings.base_url or os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"
    return OpenAIClient(settings, server_at(base_url) if server is None else _known(SERVERS, server))


def connect_completions(settings: Settings, engine: str = "other") -> CompletionsClient:
    """Return a client for the completions of flat text (``/v1/completions``) that local engines have.

    Its payload is ``{"prompt": ...}``, a text or token ids; its answer a ``text_completion``.

    Args:
        settings: As of :func:`connect`.
        engine: The name of one of :data:`ENGINES`; they differ in how a JSON schema is asked for.

    Raises:
        ModuleError: There is no such engine, or the key is none.
    """
    return CompletionsClient(settings, _known(ENGINES, engine))


def _known(table: Mapping[str, Server], name: str) -> Server:
    if name not in table:
        raise ModuleError(f"{name!r} is not known{did_you_mean(name, table)}; known are {', '.join(table)}")
    return table[name]


class OpenAIClient(OwnHttpClient):
    """The client of Chat Completions.

    Args:
        settings: How the official client is made.
        server: The server.
    """

    package = ("openai", "openai", "", "httpx2")
    method = "openai:resources.chat.completions.Completions.create"
    called = "chat.completions.create"
    advice = EXTRA_BODY
    classes = ("OpenAI", "AsyncOpenAI")
    collector: Callable[[], Collector] = ChatCollector
    kinds: ClassVar[Mapping[str, FaultKind]] = {
        "openai.APITimeoutError": "timeout",
        "openai.APIConnectionError": "connection",
        "openai.APIResponseValidationError": "malformed",
        "openai.APIStatusError": "request",
        "openai.APIError": "server",  # what a stream says of itself
        "openai.OpenAIError": "key",  # there is none
    }

    def __init__(self, settings: Settings, server: Server) -> None:
        super().__init__(settings)
        self._server = server
        self.names = {"max_tokens": server.limit}

    def structured(self, schema: JsonObject, name: str) -> dict[str, Any] | None:
        """Return the parameters for a schema; None for servers that take none, as DeepSeek, or are not known."""
        return None if self._server.structured is None else self._server.structured(schema, name)

    def _make(self, *, in_loop: bool) -> Any:
        client = super()._make(in_loop=in_loop)
        attrgetter(self.called)(client)  # which imports what the endpoint needs: here, where no event loop waits for it
        return client

    def _ask(self, client: Any, request: Request, **stream: bool) -> Any:
        call: dict[str, Any] = {"model": request.model, **request.payload, **request.params, **stream}
        if stream and self._server.usage:
            call = {"stream_options": {"include_usage": True}, **call}
        headers = fields_of(self._settings.options.get("default_headers"))
        if self._key is None and not any(name.lower() == "authorization" for name in headers):
            # The client must have a key, and sends it wherever this header is not left out of the call itself.
            call["extra_headers"] = {"Authorization": self.sdk().Omit(), **call.get("extra_headers", {})}
        return attrgetter(self.called)(client)(**call)

    def _event(self, event: Any) -> object:
        """Return an event; SiliconFlow and LMDeploy tell of errors without the ``error`` that the client looks for."""
        more = fields_of(None if getattr(event, "choices", None) else getattr(event, "model_extra", None))
        if "code" in more and more.get("message"):
            raise StreamedError(more)
        return event


class CompletionsClient(OpenAIClient):
    """The client of completions of flat text."""

    method = "openai:resources.completions.Completions.create"
    called = "completions.create"
    collector = TextCollector

    def post(self, url: str, body: Mapping[str, object]) -> object:
        """Return the JSON that another address of the server answers with."""
        return self.client().post(url, cast_to=object, body=body)
