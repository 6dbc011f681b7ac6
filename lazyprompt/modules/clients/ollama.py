"""Ollama, by its official client ``ollama``: chat, and prompts as they are through generate.

Sources: the API reference (docs/api.md of the Ollama repository), and the client itself. The client sends no
``truncate`` and no ids of calls, and of the schema of a tool only what its types know.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from lazyprompt._base.secret import Secret
from lazyprompt.answers.parser import Delta
from lazyprompt.errors import MediaError, ModuleError, missing_extra
from lazyprompt.formatters._answers import as_dict
from lazyprompt.modules.client import Fault
from lazyprompt.modules.clients._opened import Opened, key_of
from lazyprompt.modules.clients._parameters import COMMON, check_parameters
from lazyprompt.modules.clients._said import (
    classes_of,
    kind_of_class,
    kind_of_status,
    kind_of_words,
    one_line,
    raised_by,
    seconds,
    told,
)
from lazyprompt.modules.clients._wire import CONNECTIONS, aunbroken, hiding, unbroken

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Mapping
    from types import ModuleType

    import ollama

    from lazyprompt._base.json import JsonObject
    from lazyprompt.modules.client import FaultKind, Request, Settings

# How many connections are opened and kept. An event loop keeps few: httpcore compares all of them with all
# (_assign_requests_to_connections), and with 500 a loop stood still for seconds. None opens as many as are asked for.
_LIMITS: dict[str, dict[str, int | None]] = {
    "Client": {"max_connections": CONNECTIONS, "max_keepalive_connections": CONNECTIONS},
    "AsyncClient": {"max_connections": None, "max_keepalive_connections": 20},
}
# What the common parameters are called among the options.
_OPTIONS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "num_predict",
    "stop": "stop",
    "seed": "seed",
}
_AS_OPTION = ", or give an option of the model in options={{{name!r}: ...}}"
_KINDS: dict[str, FaultKind] = {
    "lazyprompt.CutError": "cut",
    "json.JSONDecodeError": "malformed",
    "builtins.UnicodeDecodeError": "malformed",
    "httpx.DecodingError": "malformed",
    "httpx.TimeoutException": "timeout",
    "httpx.TransportError": "connection",
    "builtins.ConnectionError": "connection",
    "ollama.RequestError": "request",
    "ollama.ResponseError": "server",
}
# What does not fit one of the client's types.
_MISFITS: dict[str, FaultKind] = {
    "ChatResponse": "malformed",
    "GenerateResponse": "malformed",
    "ChatRequest": "request",
    "GenerateRequest": "request",
    "Message": "request",
    "Tool": "request",
}
# How it says that a prompt is too long, where it does not cut it in silence.
_WORDS: dict[str, FaultKind] = {
    "exceeds the available context size": "overflow",
    "exceeds the context length": "overflow",
    "prompt is too long": "overflow",
    "exceed_context_size_error": "overflow",
}
_NO_MODEL = re.compile(r"""model ['"]([^'"]+)['"] not found""")
# What the client does with an answer of another shape.
_STUMBLES = (TypeError, AttributeError, LookupError)


def connect(settings: Settings) -> OllamaClient:
    """Ollama's chat, for the payloads of ``ChatFormatter("ollama")``.

    Args:
        settings: How the client is to be made. Without a ``base_url``, it asks ``OLLAMA_HOST``, or this machine.

    Returns:
        The client; nothing is imported or connected yet.

    Raises:
        ModuleError: No header can carry the key.
    """
    return OllamaClient(settings, "chat")


def connect_generate(settings: Settings) -> OllamaClient:
    """Ollama as an engine: ``{"prompt": text}`` goes to the model as it is (``raw``).

    Args:
        settings: As for :func:`connect`.

    Returns:
        The client. Its answers and events are those of ``generate``, with the text in ``response``.

    Raises:
        ModuleError: No header can carry the key.
    """
    return OllamaClient(settings, "generate")


class OllamaClient:
    """One of Ollama's two APIs.

    Args:
        settings: How the client is to be made.
        api: The client's method.
    """

    retries_itself = False

    def __init__(self, settings: Settings, api: str) -> None:
        self._settings = settings
        # Without a header, the client would send whatever key is in the environment.
        self._key = None if settings.key is None else Secret(key_of(settings.key))
        self._api = api
        self._opened: Opened[ollama.Client, ollama.AsyncClient] = Opened(
            partial(self._made, "Client"), partial(self._made, "AsyncClient")
        )

    def _made(self, name: str) -> Any:  # noqa: ANN401 - one of two classes, as Opened knows
        sdk = _sdk()
        import httpx  # noqa: PLC0415 - the client's own, and as heavy

        own = self._settings.options
        settings = {
            "host": self._settings.base_url,
            "limits": httpx.Limits(**_LIMITS[name]),
            "timeout": self._settings.timeout,
            "follow_redirects": False,
            **own,
        }
        headers = own.get("headers", {})
        return getattr(sdk, name)(
            **{**settings, "headers": {**headers, "authorization": f"Bearer {key_of(self._key)}"}}
        )

    def params(self, common: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call: common parameters go into ``options``, where explicit ones win.

        Raises:
            ModuleError: The call takes no such parameter.
            MissingExtraError: The client is not installed.
        """
        if further := common.keys() - COMMON:
            method = getattr(_sdk().Client, self._api)
            check_parameters(sorted(further), method, self._api, advice=_AS_OPTION)
        options = {_OPTIONS[key]: value for key, value in common.items() if key in _OPTIONS}
        own = {key: value for key, value in common.items() if key not in _OPTIONS}
        options.update(own.pop("options", None) or {})
        return {**own, "options": options} if options else own

    def structured(self, schema: JsonObject, name: str) -> dict[str, Any] | None:  # noqa: ARG002 - a schema has no name here
        """The schema as the ``format``."""
        return {"format": schema}

    def send(self, request: Request) -> object:
        """A ``ChatResponse`` or ``GenerateResponse``."""
        arguments = self._arguments(request)
        with hiding(self._key):
            return self._method(self._opened.client())(**arguments)

    async def asend(self, request: Request) -> object:
        """The same as :meth:`send`."""
        arguments = self._arguments(request)
        with hiding(self._key):
            return await self._method(await self._opened.aclient())(**arguments)

    def stream(self, request: Request) -> Iterator[object]:
        """Events, which are answers as well."""
        arguments = self._arguments(request)
        with hiding(self._key):
            events: Generator[object] = self._method(self._opened.client())(**arguments, stream=True)
            yield from unbroken(events, _cut)

    async def astream(self, request: Request) -> AsyncIterator[object]:
        """The same as :meth:`stream`."""
        arguments = self._arguments(request)
        with hiding(self._key):
            call = self._method(await self._opened.aclient())
            events: AsyncGenerator[object] = await call(**arguments, stream=True)
            async with aclosing(aunbroken(events, _cut)) as whole:
                async for event in whole:
                    yield event

    def collector(self) -> OllamaCollector:
        """For the events of this API."""
        return OllamaCollector(chat=self._api == "chat")

    def fault(self, error: Exception) -> Fault | None:
        """What an error of the client means; of one in mid-stream the server tells no status."""
        status = cast("int", getattr(error, "status_code", -1))
        said = str(getattr(error, "error", None) or told(error))
        kind = _kind(error, status, said)
        if kind is None:
            return None
        model = _NO_MODEL.search(said)
        if kind == "not found" and model is not None and "pull" not in said:
            said = f"{said}; get it with: ollama pull {model[1]}"
        # The client drops the answer it made its error from, but not without a trace.
        headers = getattr(getattr(error.__context__, "response", None), "headers", {})
        known = status if status > 0 else None
        return Fault(kind, one_line(said, self._key), known, seconds(headers.get("retry-after")))

    def close(self) -> None:
        """Close the connections of threads."""
        client = self._opened.taken()
        if client is not None:
            client.close()  # type: ignore[no-untyped-call]  # the client's own types end here

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        client = self._opened.ataken()
        if client is not None:
            await client.close()  # type: ignore[no-untyped-call]  # the same

    def _method(self, client: ollama.Client | ollama.AsyncClient) -> Any:  # noqa: ANN401 - of many overloads
        return getattr(client, self._api)

    def _arguments(self, request: Request) -> dict[str, Any]:
        payload = _safe(request.payload)
        if self._api == "generate":
            if not isinstance(payload.get("prompt"), str):
                raise ModuleError(
                    "Ollama takes a prompt as text, not as token ids: it has no API for them; give the text, or use an "
                    "engine that takes ids (llama.cpp, vLLM)"
                )
            payload["raw"] = True
        if "messages" in payload:
            payload["messages"] = [_safe(message) for message in payload["messages"]]
        return {"model": request.model, **payload, **request.params}


def _sdk() -> ModuleType:
    try:
        import ollama as sdk  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise missing_extra("ollama", "ollama") from error
    return sdk


def _safe(given: Mapping[str, Any]) -> dict[str, Any]:
    """A message or payload whose pictures are bytes: a text that happens to be the path of a file, the client reads."""
    copy = dict(given)
    if "images" in copy:
        copy["images"] = [_bytes_of(image) for image in copy["images"]]
    return copy


def _bytes_of(image: object) -> bytes:
    if isinstance(image, bytes):
        return image
    try:
        return b64decode(cast("str", image), validate=True)
    except (ValueError, TypeError) as error:
        raise MediaError(f"Ollama takes pictures as base64, and this is none: {image!r:.60}") from error


def _kind(error: Exception, status: int, said: str) -> FaultKind | None:
    if isinstance(error, _STUMBLES) and raised_by(error) == "ollama":
        return "malformed"
    if "pydantic_core.ValidationError" in classes_of(error):
        return _MISFITS.get(str(getattr(error, "title", "")))
    kind = kind_of_class(error, _KINDS)
    if kind == "server":
        return kind_of_words(said, _WORDS) or (kind_of_status(status) if status > 0 else kind)
    return kind


def _cut(error: Exception, begun: bool) -> bool:  # noqa: FBT001 - as unbroken asks
    # httpx says the same of what is lost within an answer and before one, but in other words.
    return kind_of_class(error, _KINDS) == "connection" and (begun or "message body" in str(error))


class OllamaCollector:
    """Puts the events of a stream together.

    Args:
        chat: Whether they are those of chat.
    """

    __slots__ = ("_calls", "_chat", "_last", "_text", "_thinking")

    def __init__(self, *, chat: bool) -> None:
        self._chat = chat
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._calls: list[dict[str, Any]] = []
        self._last: dict[str, Any] = {}

    @property
    def complete(self) -> bool:
        """Whether an event said ``done``."""
        return self._last.get("done") is True

    def feed(self, event: object) -> list[Delta]:
        """What is new; calls come whole. The client leaves out their ids: they are numbered as ``parse`` does it."""
        said: dict[str, Any] = as_dict(event)
        self._last = {**self._last, **said}
        message: Mapping[str, Any] = (said.get("message") or {}) if self._chat else said
        thinking = message.get("thinking") or ""
        text = message.get("content" if self._chat else "response") or ""
        deltas = [Delta("thinking", thinking)] * bool(thinking) + [Delta("text", text)] * bool(text)
        self._thinking.append(thinking)
        self._text.append(text)
        for call in message.get("tool_calls") or ():
            index, function = len(self._calls), call["function"]
            self._calls.append(call)
            written = json.dumps(function["arguments"], ensure_ascii=False)
            deltas.append(Delta("tool_call", written, index, call.get("id") or f"call_{index}", function["name"]))
        return deltas

    def answer(self) -> dict[str, Any]:
        """The last event with all that was said."""
        said = {"thinking": "".join(self._thinking)} if any(self._thinking) else {}
        text = "".join(self._text)
        if not self._chat:
            return {**self._last, "response": text, **said}
        calls = {"tool_calls": list(self._calls)} if self._calls else {}
        return {**self._last, "message": {"role": "assistant", "content": text, **said, **calls}}
