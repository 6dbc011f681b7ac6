"""Ollama, by its official client ``ollama``: chat, and prompts as they are through generate.

Sources: the API reference (docs/api.md of the Ollama repository), and the client itself. The client sends no
``truncate`` and no ids of calls, and of the schema of a tool only what its types know.
"""

from __future__ import annotations

import re
from base64 import b64decode
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

from lazyprompt._base.client_objects import fields_of, plain
from lazyprompt.errors import MediaError, ModuleError
from lazyprompt.modules.clients._base import COMMON, CONNECTIONS, OfficialClient, import_extra, key_of
from lazyprompt.modules.clients._faults import Fault, FaultKind, Refusal, classes_of, describe, one_line
from lazyprompt.modules.clients._limits import limiting
from lazyprompt.modules.clients.openai import ChatCollector, fields_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lazyprompt._base.json import JsonObject
    from lazyprompt.answers.parser import Delta
    from lazyprompt.modules.clients._base import Request, Settings

# The client's types that values did not fit: those of answers, or else those of requests.
_ANSWERS = ("ChatResponse", "GenerateResponse")
_REQUESTS = ("ChatRequest", "GenerateRequest", "Message", "Tool")
_NO_MODEL = re.compile(r"""model ['"]([^'"]+)['"] not found""")


class OllamaCollector(ChatCollector):
    """Puts the events of a stream together, whose parts are those of OpenAI's events under other names.

    Args:
        chat: True for those of chat, which have a message.
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
        """Return what is new; calls come whole, without ids: they are numbered as ``parse`` does it."""
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
        settings: The settings. Without a ``base_url``, the server is that of ``OLLAMA_HOST``, or of this machine.
        api: The client's method: ``chat``, for the payloads of ``ChatFormatter("ollama")``; or ``generate``, for an
            engine: ``{"prompt": text}`` goes to the model as it is (``raw``), and the text of answers is in
            ``response``.

    Raises:
        ModuleError: No header can carry the key.
    """

    package = ("ollama", "ollama")
    advice = ", or give an option of the model in options={{{name!r}: ...}}"
    stumbles = "ollama"
    kinds: ClassVar[Mapping[str, FaultKind]] = {
        "builtins.ConnectionError": "connection",
        "ollama.RequestError": "request",
        "ollama.ResponseError": "server",
    }
    # How it says that a prompt is too long, where it does not cut it in silence.
    words: ClassVar[Mapping[str, FaultKind]] = {
        "exceeds the available context size": "overflow",
        "exceeds the context length": "overflow",
        "prompt is too long": "overflow",
        "exceed_context_size_error": "overflow",
    }

    def __init__(self, settings: Settings, api: str) -> None:
        super().__init__(settings)
        self._api = self.called = api
        self.method = f"ollama:Client.{api}"
        self.collector = partial(OllamaCollector, chat=api == "chat")

    def _make(self, *, in_loop: bool) -> Any:
        sdk, httpx, own = self.sdk(), import_extra("httpx", "ollama"), self._settings.options
        # An event loop keeps few connections: httpcore compares all of them with all
        # (_assign_requests_to_connections), and with 500 a loop stood still for seconds. None opens as many as are
        # asked for.
        most, kept = (None, 20) if in_loop else (CONNECTIONS, CONNECTIONS)
        settings = {
            "host": self._settings.base_url,
            "limits": httpx.Limits(max_connections=most, max_keepalive_connections=kept),
            "timeout": self._settings.timeout,
            "follow_redirects": False,
            **own,
            "event_hooks": limiting(httpx, self._settings.limits, own.get("event_hooks", {}), in_loop=in_loop),
        }
        # Without a header, the client would send whatever key is in the environment.
        make, headers = sdk.AsyncClient if in_loop else sdk.Client, own.get("headers", {})
        return make(**{**settings, "headers": {**headers, "authorization": f"Bearer {key_of(self._key)}"}})

    def params(self, common: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call: common parameters go into ``options``, where explicit ones win.

        Raises:
            ModuleError: The call takes no such parameter.
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
                    "Ollama takes a prompt as text, not as token ids: it has no API for them; give the text, or use an "
                    "engine that takes ids (llama.cpp, vLLM)"
                )
            payload["raw"] = True
        if "messages" in payload:
            payload["messages"] = [_without_paths(message) for message in payload["messages"]]
        return getattr(client, self._api)(**{"model": request.model, **payload, **request.params, **stream})

    def fault(self, error: Exception) -> Fault | None:
        """Return the meaning of an error; of one in mid-stream the server tells no status."""
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

    def _refusal(self, error: Any) -> Refusal:
        # The client drops the answer it made its error from, but not without a trace.
        headers = getattr(getattr(error.__context__, "response", None), "headers", None)
        return Refusal(getattr(error, "status_code", None), getattr(error, "error", None), headers)


def _without_paths(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message or payload with pictures as bytes: a text that is the path of a file, the client would read."""
    return {name: list(map(_bytes_of, value)) if name == "images" else value for name, value in given.items()}


def _bytes_of(image: object) -> bytes:
    if isinstance(image, bytes):
        return image
    try:
        return b64decode(cast("str", image), validate=True)
    except (ValueError, TypeError) as error:
        raise MediaError(f"Ollama takes pictures as base64, and this is none: {image!r:.60}") from error


connect, connect_generate = partial(OllamaClient, api="chat"), partial(OllamaClient, api="generate")
