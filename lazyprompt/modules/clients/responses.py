"""An adapter for the Responses API in OpenAI's official client.

Sources: "Create a model response" and "Streaming events" in the API reference; the guide "Structured model outputs";
the type definitions in the client (version 3.57).
"""

from __future__ import annotations

from collections import defaultdict
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from lazyprompt._base.client_objects import fields_of, plain
from lazyprompt.answers.parser import Delta
from lazyprompt.modules.clients._base import check_parameters
from lazyprompt.modules.clients._faults import StreamedError
from lazyprompt.modules.clients.openai import SERVERS, OpenAIClient, response_format

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lazyprompt._base.json import Fields, JsonObject
    from lazyprompt.answers.message_builder import Kind
    from lazyprompt.modules.clients._base import ClientSettings

# Maps the type of each delta event to the kind of its content: text or reasoning.
_TEXTS: dict[object, Kind] = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "text",
    "response.reasoning_summary_text.delta": "thinking",
    "response.reasoning_text.delta": "thinking",
}
# The types of the final events, each of which contains the complete response.
_ENDS = ("response.completed", "response.incomplete")
_FAULTS = ("error", "response.failed")


class ResponsesCollector:
    """Collects stream events. See :class:`lazyprompt.modules.clients._base.Collector`."""

    __slots__ = ("_calls", "_items", "_pieces", "_response", "complete")

    def __init__(self) -> None:
        self.complete = False
        self._response: dict[str, Any] = {}
        # The output items, the pieces of text or arguments, and the tool call numbers, keyed by item index.
        self._items: dict[int, dict[str, Any]] = {}
        self._pieces: defaultdict[int, list[str]] = defaultdict(list)
        self._calls: dict[int, int] = {}

    def feed(self, event: object) -> list[Delta]:
        """Return the deltas in an event."""
        fields = fields_of(plain(event))
        kind, given = fields.get("type"), fields.get("output_index")
        index, piece = given if isinstance(given, int) else 0, fields.get("delta")
        if kind in _TEXTS and isinstance(piece, str):
            self._pieces[index].append(piece)
            return [Delta(_TEXTS[kind], piece)] if piece else []
        if kind == "response.function_call_arguments.delta" and isinstance(piece, str) and index in self._calls:
            self._pieces[index].append(piece)
            return [Delta("tool_call", piece, self._calls[index])] if piece else []
        if kind == "response.output_item.added":
            return self._begin(index, fields_of(fields.get("item")))
        if kind == "response.output_item.done":
            self._items[index] = {**fields_of(fields.get("item"))}
            self._pieces.pop(index, None)
        elif kind in ("response.created", *_ENDS):
            self._response = {**fields_of(fields.get("response"))}
            self.complete = kind in _ENDS
        return []

    def _begin(self, index: int, item: Fields) -> list[Delta]:
        self._items[index] = {**item}
        if item.get("type") != "function_call":
            return []
        self._calls[index] = len(self._calls)
        call_id, name = (value if isinstance(value := item.get(key), str) else None for key in ("call_id", "name"))
        return [Delta("tool_call", "", self._calls[index], call_id, name)]

    def answer(self) -> dict[str, Any]:
        """Return the response received so far. Incomplete tool call arguments are returned as text."""
        if self.complete:
            return self._response
        return {**self._response, "output": [self._item(index) for index in sorted(self._items)]}

    def _item(self, index: int) -> dict[str, Any]:
        """Return an output item with the text received so far."""
        item, text = self._items[index], "".join(self._pieces[index])
        match item.get("type") if text else None:
            case "message":
                return {**item, "content": [{"type": "output_text", "text": text, "annotations": []}]}
            case "reasoning":
                return {**item, "summary": [{"type": "summary_text", "text": text}]}
            case "function_call":
                return {**item, "arguments": text}
            case _:
                return item


class ResponsesClient(OpenAIClient):
    """A client for OpenAI's Responses API.

    Args:
        settings: The client's settings. The ``options`` are additional arguments for ``openai.OpenAI`` and
            ``openai.AsyncOpenAI``.
    """

    method = "openai.resources.responses:Responses.create"
    called = "responses.create"
    collector = ResponsesCollector

    def __init__(self, settings: ClientSettings) -> None:
        # Don't request token usage, because the Responses API always includes it in the stream.
        super().__init__(settings, SERVERS["openai"]._replace(limit="max_output_tokens", usage=False))

    def params(self, common: Mapping[str, Any]) -> dict[str, Any]:
        """Rename parameters to the names that the official client uses.

        Raises:
            ModuleError: The API does not support one of the parameters, such as ``stop`` or ``seed``.
            MissingExtraError: The client is not installed.
        """
        refused = sorted(common.keys() & {"stop", "seed"})
        if refused:
            self.sdk()
            check_parameters(refused, resolve_name(self.method), self.called)
        return super().params(common)

    def structured(self, schema: JsonObject, name: str) -> dict[str, Any] | None:
        """Return the parameters that request a JSON schema."""
        named = response_format(schema, name)["response_format"]["json_schema"]
        return {"text": {"format": {"type": "json_schema", **named}}}

    def _event(self, event: Any) -> object:
        """Return an event, or raise the error that it reports."""
        if getattr(event, "type", None) in _FAULTS:
            fields = fields_of(plain(event))
            response = fields_of(fields.get("response"))
            raise StreamedError(fields_of(response.get("error")) or fields)
        return event


connect = ResponsesClient
