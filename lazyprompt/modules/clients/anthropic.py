"""An adapter for Anthropic's official client.

Sources: "Create a Message" and "Errors" in the API reference; the guides "Streaming Messages", "Structured outputs"
(JSON Schema limitations) and "Migrate to API version 2026-10-21"; the client's source code (version 2.12).
"""

from __future__ import annotations

import json
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from lazyprompt._base.client_objects import fields_of, plain
from lazyprompt._base.json import is_dict, is_list
from lazyprompt.answers.parser import Delta
from lazyprompt.modules.clients._base import OwnHttpClient, Request, check_parameters

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lazyprompt._base.json import Fields, JsonObject
    from lazyprompt.modules.clients._faults import FaultKind

# The default for max_tokens, which the API requires. The oldest models accept no higher value.
# Reasoning tokens count towards max_tokens, so the reasoning budget is added to this default.
DEFAULT_MAX_TOKENS = 4096

_SAMPLING = (
    ", or use an API version that supports it: set default_headers={{'anthropic-version': '2023-06-01'}} in options "
    "and pass the parameter in extra_body"
)
# The content block types whose text is in a field named after the type.
_KINDS: tuple[Literal["text"], Literal["thinking"]] = ("text", "thinking")
_HINTS: dict[str, str] = dict.fromkeys(("temperature", "top_p", "top_k"), _SAMPLING)
# The constructor arguments for credentials other than an API key.
_CREDENTIALS = frozenset({"auth_token", "credentials", "config", "profile"})


class AnthropicCollector:
    """Collects stream events. See :class:`lazyprompt.modules.clients._base.Collector`."""

    __slots__ = ("_blocks", "_calls", "_message", "_pieces", "complete")

    def __init__(self) -> None:
        self.complete = False
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        # The streamed pieces of each field, keyed by the index of the content block and the field's name.
        self._pieces: defaultdict[int, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        # Maps the index of a tool call's content block to the index of the tool call.
        self._calls: dict[int, int] = {}

    def feed(self, event: object) -> list[Delta]:
        """Return the deltas in an event."""
        fields = fields_of(plain(event))
        given = fields.get("index")
        index = given if isinstance(given, int) else 0
        match fields.get("type"):
            case "content_block_delta":
                return self._add(index, fields_of(fields.get("delta")))
            case "content_block_start":
                return self._start(index, fields_of(fields.get("content_block")))
            case "content_block_stop" if index in self._calls:
                is_written = self._pieces[index] or self._blocks[index].get("input")
                return [] if is_written else [Delta("tool_call", "{}", self._calls[index])]
            case "message_start":
                self._message = dict(fields_of(fields.get("message")))
            case "message_delta":
                # Token counts are cumulative. If an event omits a count, keep the previous count.
                usage = {**fields_of(self._message.get("usage")), **_not_null(fields.get("usage"))}
                self._message = {**self._message, **_not_null(fields.get("delta")), "usage": usage}
            case "message_stop":
                self.complete = True
            case _:
                pass
        return []

    def answer(self) -> dict[str, Any]:
        """Return the message received so far. Incomplete tool call arguments are returned as text."""
        return {**self._message, "content": [self._block(index) for index in sorted(self._blocks)]}

    def _block(self, index: int) -> dict[str, Any]:
        block = dict(self._blocks[index])
        for key, pieces in self._pieces[index].items():
            added = "".join(pieces)
            block[key] = _parse_arguments(added) if key == "input" else _text(block, key) + added
        return block

    def _start(self, index: int, block: Fields) -> list[Delta]:
        self._blocks[index] = dict(block)
        if block.get("type") == "tool_use":
            call = self._calls[index] = len(self._calls)
            given = block.get("input")
            written = json.dumps(given) if given else ""
            return [Delta("tool_call", written, call, _text(block, "id"), _text(block, "name"))]
        return [Delta(kind, text) for kind in _KINDS if (text := _text(block, kind))]

    def _add(self, index: int, delta: Fields) -> list[Delta]:
        block = self._blocks.setdefault(index, {})
        for kind in _KINDS:
            if delta.get("type") == f"{kind}_delta" and (piece := _text(delta, kind)):
                self._pieces[index][kind].append(piece)
                return [Delta(kind, piece)]
        match delta.get("type"):
            case "input_json_delta" if piece := _text(delta, "partial_json"):
                self._pieces[index]["input"].append(piece)
                # Omit the arguments of server tools, because Anthropic runs server tools itself.
                return [Delta("tool_call", piece, self._calls[index])] if index in self._calls else []
            case "signature_delta":
                block["signature"] = delta.get("signature")
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or ()), delta.get("citation")]
            case _:
                pass
        return []


def _text(fields: Fields, key: str) -> str:
    value = fields.get(key)
    return value if isinstance(value, str) else ""


def _not_null(value: object) -> dict[str, object]:
    return {key: item for key, item in fields_of(value).items() if item is not None}


def _parse_arguments(written: str) -> object:
    """Parse tool call arguments, or return the text unchanged if it is not JSON."""
    try:
        return json.loads(written)
    except (ValueError, RecursionError):
        return written


class AnthropicClient(OwnHttpClient):
    """A client for Anthropic's Messages API.

    Args:
        settings: The client's settings. The ``options`` are additional arguments for ``anthropic.Anthropic`` and
            ``anthropic.AsyncAnthropic``.
    """

    package = ("anthropic", "anthropic")
    called = "messages.create"
    names: Mapping[str, str] = {"stop": "stop_sequences"}
    classes = ("Anthropic", "AsyncAnthropic")
    collector = AnthropicCollector
    kinds: ClassVar[Mapping[str, FaultKind]] = {
        "anthropic.APITimeoutError": "timeout",
        "anthropic.APIConnectionError": "connection",
        "anthropic.APIResponseValidationError": "malformed",
        "anthropic.CredentialsError": "key",
        "anthropic.AnthropicError": "request",
    }
    words: ClassVar[Mapping[str, FaultKind]] = {
        "prompt is too long": "overflow",
        "exceed context limit": "overflow",
        "credit balance is too low": "rate limit",
        # Phrases in error messages from llama.cpp and vLLM, whose servers also support Anthropic's API.
        "context size": "overflow",
        "maximum context length": "overflow",
        # Anthropic's error types. Errors in a stream have a type but no status code.
        "authentication_error": "key",
        "permission_error": "key",
        "billing_error": "rate limit",
        "not_found_error": "not found",
        "request_too_large": "overflow",
        "rate_limit_error": "rate limit",
        "timeout_error": "server",
        "api_error": "server",
        "overloaded_error": "server",
    }

    def params(self, common: Mapping[str, Any]) -> dict[str, Any]:
        """Return parameters for ``messages.create``, with :data:`DEFAULT_MAX_TOKENS` as the default ``max_tokens``.

        Raises:
            ModuleError: The installed client does not accept one of the parameters, such as ``seed`` or, since version
                2, ``temperature`` or ``top_p``.
            MissingExtraError: The client is not installed.
        """
        params: dict[str, Any] = {self.names.get(name, name): value for name, value in common.items()}
        sdk = self.sdk()
        for name in params:
            called = f"{self.called} of the installed anthropic ({sdk.__version__})"
            check_parameters([name], sdk.resources.Messages.create, called, _HINTS.get(name, ""))
        budget = fields_of(params.get("thinking")).get("budget_tokens")
        return {"max_tokens": DEFAULT_MAX_TOKENS + (budget if isinstance(budget, int) else 0), **params}

    def structured(self, schema: JsonObject, name: str) -> dict[str, Any] | None:
        """Return an ``output_config`` that contains the schema after conversion by the client's ``transform_schema``.

        ``transform_schema`` replaces numeric bounds and string patterns with descriptions, so responses must be
        validated against the original schema.

        Returns:
            The parameters, or None if the client lacks ``transform_schema`` or the schema uses an unsupported feature
            such as arbitrary keys or recursion.

        Raises:
            MissingExtraError: The client is not installed.
        """
        transform = getattr(self.sdk(), "transform_schema", None)
        if transform is None or not expressible(schema):
            return None
        return {"output_config": {"format": {"type": "json_schema", "schema": transform(schema)}}}

    def _ask(self, client: Any, request: Request, **stream: bool) -> Any:
        return client.messages.create(**{"model": request.model, **request.payload, **request.params, **stream})

    def _credential(self) -> dict[str, str]:
        other = self._key is None and _CREDENTIALS & self._settings.options.keys()
        return {} if other else super()._credential()


_DEFINITIONS = "#/$defs/"
_CHOICES = ("anyOf", "oneOf", "allOf")
_TYPES = frozenset({"object", "array", "string", "integer", "number", "boolean", "null"})


def expressible(schema: JsonObject) -> bool:
    """Return True if Anthropic's API supports a JSON schema, apart from its numeric bounds and string patterns.

    The API does not support arbitrary keys (``additionalProperties``), recursion, or references outside ``$defs``. The
    API requires a type in every subschema.
    """
    main: Fields = {**schema, "$defs": None}
    parts = {name: list(_parts(part)) for name, part in fields_of(schema.get("$defs")).items()}
    references = {name: _references(found) for name, found in parts.items()}
    every = [*_parts(main), *(part for found in parts.values() for part in found)]
    if not all(map(_is_typed, every)) or not _references(every) <= references.keys():
        return False
    try:
        TopologicalSorter(references).prepare()
    except CycleError:
        return False
    return True


def _parts(schema: object) -> Iterator[Fields]:
    """Yield a schema and its subschemas, excluding definitions."""
    if not is_dict(schema):
        return
    yield schema
    variants = [each for key in _CHOICES if is_list(choices := schema.get(key)) for each in choices]
    for part in (*fields_of(schema.get("properties")).values(), schema.get("items"), *variants):
        yield from _parts(part)


def _is_typed(schema: Fields) -> bool:
    """Return True if a schema declares a type and allows no arbitrary keys."""
    kind = schema.get("type")
    known = isinstance(kind, str) and kind in _TYPES
    free = schema.get("additionalProperties") not in (None, False)
    return not free and (known or any(key in schema for key in (*_CHOICES, "$ref", "const", "enum")))


def _references(parts: list[Fields]) -> set[str]:
    """Return the names of the definitions that subschemas refer to."""
    given = (part.get("$ref") for part in parts)
    return {reference.removeprefix(_DEFINITIONS) for reference in given if isinstance(reference, str)}


connect = AnthropicClient
