"""An adapter for Ollama's official client, with ``chat`` for messages and ``generate`` for raw prompts.

The client sends neither ``truncate`` nor tool call ids, and drops unknown keywords from tool schemas.

Sources: the API reference (``docs/api.md`` in the Ollama repository) and the client's source code.
"""

from __future__ import annotations

import re
from base64 import b64decode
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from lazyprompt._base.client_objects import fields_of, plain
from lazyprompt.errors import MediaError, ModuleError
from lazyprompt.modules.clients._base import COMMON, CONNECTIONS, OfficialClient, import_extra, key_of
from lazyprompt.modules.clients._faults import ErrorResponse, Fault, FaultKind, classes_of, describe, one_line
from lazyprompt.modules.clients._limits import limit_hooks
from lazyprompt.modules.clients.openai import ChatCollector, fields_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lazyprompt._base.json import JsonObject
    from lazyprompt.answers.parser import Delta
    from lazyprompt.modules.clients._base import ClientSettings, Request

# The SDK's pydantic models for responses and requests, as named in validation errors.
_ANSWERS = ("ChatResponse", "GenerateResponse")
_REQUESTS = ("ChatRequest", "GenerateRequest", "Message", "Tool")
_NO_MODEL = re.compile(r"""model ['"]([^'"]+)['"] not found""")


class OllamaCollector(ChatCollector):
    """Collects Ollama's stream events.

    Args:
        chat: True for events from ``chat``, and False for events from ``generate``.
    """

    __slots__ = ("_chat", "_last", "_whole")

    def __init__(self, *, chat: bool) -> None:
        super().__init__()
        self._chat = chat
        self._last: dict[str, Any] = {}
        self._whole: list[Mapping[str, Any]] = []

    @property
    def complete(self) -> bool:
        """True if an event reported ``done``."""
        return self._last.get("done") is True

    def feed(self, event: object) -> list[Delta]:
        """Return the deltas in an event. Tool calls without ids are numbered, as in ``ChatFormatter.parse``."""
        fields = fields_of(plain(event))
        self._last |= fields
        message = fields_of(fields.get("message")) if self._chat else {**fields, "content": fields.get("response")}
        calls = fields_in(message.get("tool_calls"))
        numbered = [
            {"index": index, "id": call.get("id") or f"call_{index}", "function": call.get("function")}
            for index, call in enumerate(calls, len(self._whole))
        ]
        self._whole += calls
        return super().feed({"choices": [{"delta": {**message, "tool_calls": numbered}}]})

    def answer(self) -> dict[str, Any]:
        """Return the last event, with its message replaced by the complete message."""
        message = super().answer()["choices"][0]["message"]
        text, thought = message["content"] or "", message.get("reasoning_content")
        thinking = {"thinking": thought} if thought else {}
        if not self._chat:
            return {**self._last, "response": text, **thinking}
        calls = {"tool_calls": self._whole} if self._whole else {}
        return {**self._last, "message": {"role": "assistant", "content": text, **thinking, **calls}}


class OllamaClient(OfficialClient):
    """A client for Ollama's chat API or generate API.

    Args:
        settings: The client's settings. The default URL is the value of ``OLLAMA_HOST`` or, if unset, the URL of the
            local server.
        api: The client's method: ``chat`` for payloads from ``ChatFormatter("ollama")``, or ``generate`` for an
            engine's raw prompt ``{"prompt": text}``. The text of a ``generate`` response is in the field ``response``.

    Raises:
        ModuleError: The API key contains characters that are invalid in a header.
    """

    package = ("ollama", "ollama")
    advice = ", or pass a model option in options={{{name!r}: ...}}"
    stumbles = "ollama"
    kinds: ClassVar[Mapping[str, FaultKind]] = {
        "builtins.ConnectionError": "connection",
        "ollama.RequestError": "request",
        "ollama.ResponseError": "server",
    }
    # Ollama's error messages for prompts that exceed the context window.
    words: ClassVar[Mapping[str, FaultKind]] = {
        "exceeds the available context size": "overflow",
        "exceeds the context length": "overflow",
        "prompt is too long": "overflow",
        "exceed_context_size_error": "overflow",
    }

    def __init__(self, settings: ClientSettings, api: str) -> None:
        super().__init__(settings)
        self._api = self.called = api
        self.method = f"ollama:Client.{api}"
        self.collector = partial(OllamaCollector, chat=api == "chat")

    def _make(self, *, in_loop: bool) -> Any:
        sdk, httpx, own = self.sdk(), import_extra("httpx", "ollama"), self._settings.options
        # An async client keeps at most 20 idle connections, but may open any number of connections.
        # The limit is low because httpcore compares all pairs of connections (_assign_requests_to_connections).
        # With 500 connections, comparing all pairs of connections blocked the event loop for seconds.
        most, kept = (None, 20) if in_loop else (CONNECTIONS, CONNECTIONS)
        settings = {
            "host": self._settings.base_url,
            "limits": httpx.Limits(max_connections=most, max_keepalive_connections=kept),
            "timeout": self._settings.timeout,
            "follow_redirects": False,
            **own,
            "event_hooks": limit_hooks(httpx, self._settings.limits, own.get("event_hooks", {}), in_loop=in_loop),
        }
        # Without an authorization header, the SDK would send a key from the environment.
        make, headers = sdk.AsyncClient if in_loop else sdk.Client, own.get("headers", {})
        return make(**{**settings, "headers": {**headers, "authorization": f"Bearer {key_of(self._key)}"}})

    def params(self, common: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments for a call, with the parameters listed in ``COMMON`` moved into ``options``.

        Options that the caller passes in ``options`` take precedence over the moved parameters.

        Raises:
            ModuleError: The client's method does not accept one of the parameters.
            MissingExtraError: The client is not installed.
        """
        own = super().params(common)
        given: dict[str, Any] = own.pop("options", None) or {}
        options = {"num_predict" if name == "max_tokens" else name: own.pop(name) for name in common if name in COMMON}
        options |= given
        return {**own, "options": options} if options else own

    def structured(self, schema: JsonObject, name: str) -> dict[str, Any] | None:
        """Return the JSON schema as the ``format`` parameter."""
        return {"format": schema}

    def _ask(self, client: Any, request: Request, **stream: bool) -> Any:
        payload = _without_paths(request.payload)
        if self._api == "generate":
            if not isinstance(payload.get("prompt"), str):
                raise ModuleError(
                    "Ollama does not accept token ids as a prompt; pass text, or use an engine that accepts ids "
                    "(llama.cpp, vLLM)"
                )
            payload["raw"] = True
        if "messages" in payload:
            payload["messages"] = [_without_paths(message) for message in payload["messages"]]
        return getattr(client, self._api)(**{"model": request.model, **payload, **request.params, **stream})

    def fault(self, error: Exception) -> Fault | None:
        """Classify a client's exception, including validation errors, and streaming errors that have no HTTP status."""
        if "pydantic_core.ValidationError" in classes_of(error):
            title = str(getattr(error, "title", ""))
            line = one_line(describe(error), self._key)
            if title in _ANSWERS:
                return Fault("malformed", line)
            return Fault("request", line) if title in _REQUESTS else None
        fault = super().fault(error)
        model = _NO_MODEL.search(fault.message) if fault and fault.kind == "not found" else None
        if fault is None or model is None or "pull" in fault.message:
            return fault
        return fault._replace(message=f"{fault.message}; download it with: ollama pull {model[1]}")

    def _refusal(self, error: Any) -> ErrorResponse:
        # The SDK's exception doesn't store the response, but the httpx exception in its __context__ does.
        headers = getattr(getattr(error.__context__, "response", None), "headers", None)
        return ErrorResponse(getattr(error, "status_code", None), getattr(error, "error", None), headers)


def _without_paths(given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert images to bytes, because the client would treat a string as a file path."""
    return {name: list(map(_bytes_of, value)) if name == "images" else value for name, value in given.items()}


def _bytes_of(image: str | bytes) -> bytes:
    if isinstance(image, bytes):
        return image
    try:
        return b64decode(image, validate=True)
    except (ValueError, TypeError) as error:
        raise MediaError(f"Ollama images must be valid base64: {image!r:.60}") from error


connect, connect_generate = partial(OllamaClient, api="chat"), partial(OllamaClient, api="generate")
