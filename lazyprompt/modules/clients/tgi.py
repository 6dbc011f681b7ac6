"""Text Generation Inference, by the official client: ``InferenceClient.text_generation`` of ``huggingface_hub``.

The client keeps each answer open until it is closed itself, so there is one for each call. Those for event loops share
the connections of their loop. Those for threads have none of their own (they are the whole process's, which cannot be
closed for us), so these are not kept.

Sources: the client itself; the router of TGI (``server.rs``, ``validation.rs``) for its forms, errors and limits.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar

from lazyprompt._base.client_objects import fields_of, plain
from lazyprompt.answers.parser import Delta
from lazyprompt.errors import ModuleError
from lazyprompt.modules.clients._base import OfficialClient, Request, import_extra, key_of
from lazyprompt.modules.clients._faults import FaultKind, MalformedError, MovedError, Refusal, describe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lazyprompt._base.json import JsonObject

# True while a call is made in a thread.
_ASKING: ContextVar[bool] = ContextVar("_ASKING", default=False)


class TgiCollector:
    """Puts the tokens of a stream together."""

    __slots__ = ("_last", "_text", "_tokens")

    def __init__(self) -> None:
        self._last: Mapping[str, Any] = {}
        self._text = ""
        self._tokens: list[Mapping[str, Any]] = []

    @property
    def complete(self) -> bool:
        """True if the last token came: the whole text comes with it."""
        return isinstance(self._last.get("generated_text"), str)

    def feed(self, event: object) -> list[Delta]:
        """Return what is new; special tokens (an end of the turn) are no text, as they are none without streaming."""
        self._last = fields_of(plain(event))
        if token := fields_of(self._last.get("token")):
            self._tokens.append(token)
        new = "" if token.get("special") else str(token.get("text") or "")
        whole = str(self._last.get("generated_text") or "")
        if whole.startswith(self._text + new):
            new = whole[len(self._text) :]  # what was left of half a character
        self._text += new
        return [Delta("text", new)] if new else []

    def answer(self) -> dict[str, Any]:
        """Return the text, and the ``details`` of an answer that is not streamed."""
        details = {**fields_of(self._last.get("details")), "prefill": [], "tokens": list(self._tokens)}
        return {"generated_text": self._text, "details": details}


class TgiClient(OfficialClient):
    """A server's own endpoint; it serves one model, so the model of a request does not count."""

    package = ("huggingface_hub", "huggingface_hub", "tgi")
    method = "huggingface_hub:InferenceClient.text_generation"
    called = "text_generation"
    names: Mapping[str, str] = {"max_tokens": "max_new_tokens"}
    collector = TgiCollector
    stumbles = "huggingface_hub"
    kinds: ClassVar[Mapping[str, FaultKind]] = {
        "huggingface_hub.OverloadedError": "rate limit",
        "huggingface_hub.ValidationError": "request",
        "huggingface_hub.TextGenerationError": "server",
        "huggingface_hub.InferenceTimeoutError": "timeout",
        "huggingface_hub.OfflineModeIsEnabled": "connection",
        "huggingface_hub.HfHubHTTPError": "request",
    }
    # How its router says that a prompt is too long.
    words: ClassVar[Mapping[str, FaultKind]] = {
        "`inputs` tokens + `max_new_tokens` must be <=": "overflow",
        "`inputs` must have less than": "overflow",
    }

    def params(self, common: Mapping[str, Any]) -> dict[str, Any]:
        """Return parameters as TGI has them.

        It samples at a temperature of 1 only if it is asked to, and refuses one of 0 and a ``top_p`` of 1.

        Raises:
            ModuleError: ``text_generation`` takes no such parameter.
            MissingExtraError: The client is not installed.
        """
        params = super().params(common)
        if params.get("top_p") == 1:
            del params["top_p"]
        if "temperature" in params:
            params.setdefault("do_sample", bool(params["temperature"]))
            if not params["temperature"]:
                del params["temperature"]
        return params

    def structured(self, schema: JsonObject, name: str) -> dict[str, Any] | None:
        """Return the schema as the ``grammar``; TGI asks that it has ``properties``."""
        return {"grammar": {"type": "json", "value": schema}}

    def _make(self, *, in_loop: bool) -> _Threads | _Loop:
        return (_Loop if in_loop else _Threads)(self.sdk())

    def _lend(self, client: _Threads | _Loop) -> Any:
        own = {"base_url": self._settings.base_url, **self._settings.options}
        headers = {**fields_of(own.pop("headers", {})), **client.headers}
        if self._key is None:
            headers["authorization"] = None  # so that nothing is sent, not even what the client finds by itself
        # The client has a hundred connections; the next call waits for one however long the others take.
        own.setdefault(
            "timeout", import_extra("httpx", "huggingface_hub", "tgi").Timeout(self._settings.timeout, pool=None)
        )
        return client.made(**{"api_key": key_of(self._key), **own, "headers": headers})

    def _ask(self, client: Any, request: Request, **stream: bool) -> Any:
        prompt = request.payload.get("prompt")
        if not isinstance(prompt, str):
            raise ModuleError(
                "Text Generation Inference takes a prompt as text, not as token ids: it has no API for them; give the "
                "text, or use an engine that takes ids (llama.cpp, vLLM)"
            )
        token = _ASKING.set(True)
        try:
            # TGI repeats the prompt by default.
            own = {"details": True, "return_full_text": False, "stream": False, **stream}
            return client.text_generation(**{"prompt": prompt, **own, **request.params})
        finally:
            _ASKING.reset(token)

    def _check(self, answer: Any) -> object:
        """Return an answer that has a text: what is not there, the client takes for None."""
        if not isinstance(answer.generated_text, str):
            raise MalformedError("the answer has no generated_text")
        return answer

    def _refusal(self, error: Any) -> Refusal:
        """Return the words of the server, if any; else those of the client, with its advice for the Hub."""
        answer = getattr(error, "response", None) or getattr(error.__cause__, "response", None)
        if answer is None:
            return Refusal(None, getattr(error, "server_message", None) or describe(error))
        return Refusal(answer.status_code, getattr(error, "server_message", None) or str(error), answer.headers)


def _refuse_redirect(response: Any) -> None:
    if _ASKING.get() and response.has_redirect_location:
        raise MovedError(response.status_code, response.headers["location"])


async def _arefuse_redirect(response: Any) -> None:
    if response.has_redirect_location:
        raise MovedError(response.status_code, response.headers["location"])


def _hook(session: Any, hook: Any) -> Any:
    """Add a hook for responses to a session."""
    hooks = session.event_hooks
    if hook not in hooks["response"]:
        session.event_hooks = {**hooks, "response": [*hooks["response"], hook]}
    return session


class _Threads:
    """The clients of threads; the session is the whole process's, so its hook refuses only redirects of our calls."""

    headers: ClassVar[Mapping[str, str]] = {"connection": "close"}

    def __init__(self, sdk: Any) -> None:
        self._sdk = sdk

    @property
    def made(self) -> Any:
        """The class of clients for one call. It is called by whoever has the key: no frame here holds it."""
        _hook(self._sdk.get_session(), _refuse_redirect)
        return self._sdk.InferenceClient

    def close(self) -> None:
        """Do nothing: no connection is kept."""


class _Loop:
    """The connections of an event loop, and clients that use them; made outside of the loop, since that takes long."""

    headers: ClassVar[Mapping[str, str]] = {}

    def __init__(self, sdk: Any) -> None:
        self._http = _hook(sdk.get_async_session(), _arefuse_redirect)
        base = sdk.AsyncInferenceClient

        async def lent(_: Any) -> Any:
            return self._http

        # Without this, a client opens connections of its own, and closes them: right as well, but slow.
        self.made = type(base.__name__, (base,), {"_get_async_client": lent, "__module__": base.__module__})

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()


connect = TgiClient
