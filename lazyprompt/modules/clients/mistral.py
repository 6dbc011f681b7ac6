"""Mistral's official client, for threads and for event loops.

It tries again only where ``retry_config`` is among the options, and does not wait as long as ``Retry-After`` says; so
that is left to the module. It has defaults for what a stream does not say, so events are read without them.

Source: the API reference, "Chat completion"; the source of the client (mistralai 3.7); errors quoted in its issues.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

from lazyprompt._base.client_objects import fields_of
from lazyprompt.modules.clients._base import OfficialClient, OnHttp, Request, anote, begin, import_extra, key_of
from lazyprompt.modules.clients._faults import Fault, FaultKind, Refusal, kind_of_refusal
from lazyprompt.modules.clients.openai import ChatCollector, response_format

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lazyprompt._base.json import JsonObject

_OK = 200


class MistralClient(OfficialClient):
    """The client of chat completions.

    Args:
        settings: ``options`` are further arguments of ``mistralai.client.Mistral``.
    """

    package = ("mistralai.client", "mistralai")
    method = "mistralai.client.chat:Chat.complete"
    called = "chat.complete"
    names: Mapping[str, str] = {"seed": "random_seed"}
    collector = ChatCollector
    kinds: ClassVar[Mapping[str, FaultKind]] = {
        "mistralai.ResponseValidationError": "malformed",
        "mistralai.MistralError": "request",
        "mistralai.NoResponseError": "connection",
    }

    def structured(self, schema: JsonObject, name: str) -> dict[str, Any] | None:
        """Return ``response_format`` with the schema."""
        return response_format(schema, name)

    def _make(self, *, in_loop: bool) -> OnHttp:
        """Make the client, with both HTTP clients: it closes only those of its own making."""
        base_url, _, timeout, _, options = self._settings
        sdk, httpx2 = self.sdk(), import_extra("httpx2", "mistralai")
        threads = httpx2.Client(follow_redirects=False, verify=not in_loop)
        loop = httpx2.AsyncClient(follow_redirects=False, verify=in_loop, event_hooks={"response": [anote]})
        made = {"server_url": base_url, "timeout_ms": int(timeout * 1000), "client": threads, "async_client": loop}
        client = sdk.Mistral(**{"api_key": key_of(self._key), **made, **options})
        _ = client.chat  # which imports what it needs: here, where no event loop waits for it
        return OnHttp(client, loop if in_loop else threads)

    def _ask(self, client: OnHttp, request: Request, **stream: bool) -> Any:
        chat, in_loop = client.sdk.chat, hasattr(client.http, "aclose")
        ask = getattr(chat, ("stream" if stream else "complete") + ("_async" if in_loop else ""))
        answer = ask(**{"model": request.model, **request.payload, **request.params})
        return begin(answer, []) if stream and in_loop else answer

    def _event(self, event: Any) -> object:
        """Return an event's chunk as the server sent it: a piece of a call without an id would have the id "null"."""
        return event.data.model_dump(exclude_unset=True, warnings=False)

    def fault(self, error: Exception) -> Fault | None:
        """Return the meaning of an error; behind the status of success, what came is an error, or no answer."""
        fault = super().fault(error)
        if fault is None or getattr(error, "status_code", None) != _OK:
            return fault
        body = _body(error)
        is_error = "message" in fields_of(body)
        kind = kind_of_refusal(None, json.dumps(body), self.words, self._key) if is_error else "malformed"
        return fault._replace(kind=kind)

    def _refusal(self, error: Any) -> Refusal:
        return Refusal(getattr(error, "status_code", None), _body(error), getattr(error, "headers", None))


def _body(error: Any) -> object:
    """Return the server's words: its JSON, in a stream the data of the event, or its text."""
    text: object = getattr(error, "body", None)
    try:
        body: object = json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        return text
    return fields_of(body).get("data") or body


connect = MistralClient
