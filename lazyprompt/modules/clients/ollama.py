"""Ollama's official client: chat, and raw prompts with generate.

Sources: the API reference (docs/api.md of the Ollama repository) and the client's source code. The client sends no
``truncate``, no ids of calls, and only the known keywords of a tool's schema.
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

# The client's pydantic models whose validation fails for a malformed answer, and for an invalid request.
_ANSWERS = ("ChatResponse", "GenerateResponse")
_REQUESTS = ("ChatRequest", "GenerateRequest", "Message", "Tool")
_NO_MODEL = re.compile(r"""model ['"]([^'"]+)['"] not found""")


class OllamaCollector(ChatCollector):
    """Collects the events of a stream, which have other names than OpenAI's.

    Args:
        chat: True for events of chat, which have a message.
    """

    __slots__ = ("_chat", "_last", "_whole")

    def __init__(self, *, chat: bool) -> None:
        super().__init__()
        self._chat = chat
        self._last: dict[str, Any] = {}
        self._whole: list[Mapping[str, Any]] = []

    @property
    def complete(self) -> bool:
        """True if an event had ``done``."""
        return self._last.get("done") is True

    def feed(self, event: object) -> list[Delta]:
        """Return the new pieces; calls arrive whole and without ids, and are numbered as in ``parse``."""
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
        """Return the last event with the whole message."""
        message = super().answer()["choices"][0]["message"]
        text, thought = message["content"] or "", message.get("reasoning_content")
        thinking = {"thinking": thought} if thought else {}
        if not self._chat:
            return {**self._last, "response": text, **thinking}
        calls = {"tool_calls": self._whole} if self._whole else {}
        return {**self._last, "message": {"role": "assistant", "content": text, **thinking, **calls}}


class OllamaClient(OfficialClient):
    """One of Ollama's two APIs.

    Args:
        settings: The settings. The default server is that of ``OLLAMA_HOST``, or of this machine.
        api: The client's method: ``chat`` for payloads of ``ChatFormatter("ollama")``, or ``generate`` for the raw
            prompt ``{"prompt": text}`` of an engine, whose answers have their text in ``response``.

    Raises:
        ModuleError: The key has characters that are invalid in a header.
    """

    package = ("ollama", "ollama")
    advice = ", or give an option of the model in options={{{name!r}: ...}}"
    stumbles = "ollama"
    kinds: ClassVar[Mapping[str, FaultKind]] = {
        "builtins.ConnectionError": "connection",
        "ollama.RequestError": "request",
        "ollama.ResponseError": "server",
    }
    # Its messages for a prompt that is too long and is not silently cut.
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
        # An event loop keeps few connections: httpcore compares all with all (_assign_requests_to_connections), which
        # blocked a loop with 500 of them for seconds. It may open any number.
        most, kept = (None, 20) if in_loop else (CONNECTIONS, CONNECTIONS)
        settings = {
            "host": self._settings.base_url,
            "limits": httpx.Limits(max_connections=most, max_keepalive_connections=kept),
            "timeout": self._settings.timeout,
            "follow_redirects": False,
            **own,
            "event_hooks": limit_hooks(httpx, self._settings.limits, own.get("event_hooks", {}), in_loop=in_loop),
        }
        # Without this header, the client would send a key from the environment.
        make, headers = sdk.AsyncClient if in_loop else sdk.Client, own.get("headers", {})
        return make(**{**settings, "headers": {**headers, "authorization": f"Bearer {key_of(self._key)}"}})

    def params(self, common: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call, with common parameters in ``options``; explicit options take precedence.

        Raises:
            ModuleError: The method has no such parameter.
            MissingExtraError: The client is not installed.
        """
        own = super().params(common)
        given: dict[str, Any] = own.pop("options", None) or {}
        options = {"num_predict" if name == "max_tokens" else name: own.pop(name) for name in common if name in COMMON}
        options |= given
        return {**own, "options": options} if options else own

    def structured(self, schema: JsonObject, name: str) -> dict[str, Any] | None:
        """Return the schema as the ``format``."""
        return {"format": schema}

    def _ask(self, client: Any, request: Request, **stream: bool) -> Any:
        payload = _without_paths(request.payload)
        if self._api == "generate":
            if not isinstance(payload.get("prompt"), str):
                raise ModuleError(
                    "Ollama has no API for token ids as a prompt: give text, or use an engine that accepts ids "
                    "(llama.cpp, vLLM)"
                )
            payload["raw"] = True
        if "messages" in payload:
            payload["messages"] = [_without_paths(message) for message in payload["messages"]]
        return getattr(client, self._api)(**{"model": request.model, **payload, **request.params, **stream})

    def fault(self, error: Exception) -> Fault | None:
        """Return the fault of a client's error; an error in a stream has no status."""
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
        return fault._replace(message=f"{fault.message}; get it with: ollama pull {model[1]}")

    def _refusal(self, error: Any) -> ErrorResponse:
        # The client's error doesn't keep the response, but its context does.
        headers = getattr(getattr(error.__context__, "response", None), "headers", None)
        return ErrorResponse(getattr(error, "status_code", None), getattr(error, "error", None), headers)


def _without_paths(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message or payload with images as bytes: the client would read a text as the path of a file."""
    return {name: list(map(_bytes_of, value)) if name == "images" else value for name, value in given.items()}


def _bytes_of(image: str | bytes) -> bytes:
    if isinstance(image, bytes):
        return image
    try:
        return b64decode(image, validate=True)
    except (ValueError, TypeError) as error:
        raise MediaError(f"Ollama takes images as base64, which this is not: {image!r:.60}") from error


connect, connect_generate = partial(OllamaClient, api="chat"), partial(OllamaClient, api="generate")
