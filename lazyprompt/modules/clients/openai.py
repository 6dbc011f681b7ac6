"""Adapters for the Chat Completions API and the completions API in OpenAI's official client.

A collected stream has the same format as a non-streaming response. Requests contain no optional fields, because
compatible servers support different fields.

Sources: "Create chat completion" and "Create completion" in the API references of OpenAI, Moonshot, xAI, DeepSeek,
SiliconFlow, DashScope (compatible mode), Zhipu and Mistral; "Supported schemas" in OpenAI's guide "Structured model
outputs"; the client's source code (version 2.54); the documentation of vLLM ("Structured outputs") and llama.cpp's
server; the request types in SGLang, LMDeploy and ``transformers serve``.
"""

from __future__ import annotations

import json
import os
import re
from abc import ABC, abstractmethod
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from lazyprompt._base.client_objects import fields_of, plain
from lazyprompt._base.json import is_dict, is_list, is_mapping, is_sequence
from lazyprompt.answers.parser import Delta
from lazyprompt.modules.clients._base import EXTRA_BODY, ClientSettings, Collector, OwnHttpClient, Request
from lazyprompt.modules.clients._faults import FaultKind, StreamedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lazyprompt._base.json import Fields, JsonObject
    from lazyprompt.answers.message_builder import Kind


# The reasoning fields of a message: vLLM and OpenRouter send "reasoning", Ollama sends "thinking".
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")
# The fields of a message and of a tool call that the collector parses. All other fields are copied unchanged.
_DELTA = frozenset(("role", "content", "refusal", "function_call", "tool_calls", "thinking_blocks", *_THOUGHTS))
_CALL = frozenset(("index", "id", "function", "custom"))
# The metadata fields of a response. The first event with a field determines the value.
_HEAD = ("id", "created", "model", "system_fingerprint", "service_tier")


class _ChoiceCollector(ABC):
    """Collects the metadata, finish reason and token usage of a stream with one choice.

    The finish reason marks the end of the stream. A final ``[DONE]`` event is not required, because some servers
    don't send it and most clients hide it.
    """

    __slots__ = ("_finish", "_head", "_usage")

    def __init__(self) -> None:
        self._head: dict[str, object] = {}
        self._finish: str | None = None
        self._usage: object = None

    @property
    def complete(self) -> bool:
        """True if the stream contained a finish reason."""
        return self._finish is not None

    def feed(self, event: object) -> list[Delta]:
        """Return the deltas in an event."""
        chunk = fields_of(plain(event))
        for key in _HEAD:
            if key not in self._head and chunk.get(key):
                self._head[key] = chunk[key]
        choices = [each for each in fields_in(chunk.get("choices")) if not each.get("index")]
        choice: Fields = choices[0] if choices else {}
        # Moonshot sends token usage in the choice. xAI and SiliconFlow send cumulative usage in every event.
        self._usage = chunk.get("usage") or choice.get("usage") or self._usage
        # Some servers send an empty finish reason in early events.
        self._finish = _text(choice.get("finish_reason")) or self._finish
        return self._new_in(choice)

    @abstractmethod
    def _new_in(self, choice: Fields) -> list[Delta]:
        """Return the deltas in a chunk's choice."""

    def _answer(self, kind: str, choice: dict[str, object]) -> dict[str, Any]:
        choices = [{"index": 0, **choice, "finish_reason": self._finish}]
        return {**self._head, "object": kind, "choices": choices, "usage": self._usage}


class TextCollector(_ChoiceCollector):
    """Collects stream events from ``/v1/completions``."""

    __slots__ = ("_text",)

    def __init__(self) -> None:
        super().__init__()
        self._text: list[str] = []

    def _new_in(self, choice: Fields) -> list[Delta]:
        text = _text(choice.get("text"))
        self._text.append(text)
        return [Delta("text", text)] if text else []

    def answer(self) -> dict[str, Any]:
        """Return the text received so far, as a ``text_completion``."""
        return self._answer("text_completion", {"text": "".join(self._text), "logprobs": None})


class ChatCollector(_ChoiceCollector):
    """Collects stream events from the Chat Completions API."""

    __slots__ = ("_calls", "_more", "_refusal", "_signed", "_slots", "_text", "_thought")

    def __init__(self) -> None:
        super().__init__()
        self._thought: list[str] = []
        self._signed: list[dict[str, object]] = []
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._more: dict[str, object] = {}
        self._calls: list[_Call] = []
        # The latest tool call for each index that the server sent.
        self._slots: dict[int, _Call] = {}

    def _new_in(self, choice: Fields) -> list[Delta]:
        delta = fields_of(choice.get("delta"))
        thought = next(filter(None, (_text(delta.get(key)) for key in _THOUGHTS)), "") or _thoughts(
            delta.get("content")
        )
        text, refusal = _text(delta.get("content")), _text(delta.get("refusal"))
        self._thought.append(thought)
        self._text.append(text)
        self._refusal.append(refusal)
        self._more |= {key: value for key, value in delta.items() if value and key not in _DELTA}
        for block in fields_in(delta.get("thinking_blocks")):
            self._sign(block)
        pieces: tuple[tuple[Kind, str], ...] = (("thinking", thought), ("text", text), ("text", refusal))
        return [
            *(Delta(kind, piece) for kind, piece in pieces if piece),
            *(new for piece in fields_in(delta.get("tool_calls")) if (new := self._called(piece))),
        ]

    def answer(self) -> dict[str, Any]:
        """Return the message received so far, as a ``chat.completion``."""
        message: dict[str, object] = {"role": "assistant", "content": "".join(self._text) or None}
        more = {
            "refusal": "".join(self._refusal),
            "reasoning_content": "".join(self._thought),
            "thinking_blocks": self._signed,
            "tool_calls": [call.whole() for call in self._calls],
        }
        message |= {key: value for key, value in more.items() if value} | self._more
        return self._answer("chat.completion", {"message": message, "logprobs": None})

    def _sign(self, block: Fields) -> None:
        """Add a piece of LiteLLM's signed reasoning, in which the text arrives before the signature."""
        last = self._signed[-1] if self._signed else {}
        if block.get("type") != "thinking" or last.get("type") != "thinking" or last.get("signature"):
            self._signed.append(dict(block))
            return
        last["thinking"] = _text(last.get("thinking")) + _text(block.get("thinking"))
        last["signature"] = block.get("signature") or None

    def _called(self, piece: Fields) -> Delta | None:
        """Add a piece of a tool call, and return its delta, or None if the piece contains nothing new."""
        function = fields_of(piece.get("function") or piece.get("custom"))
        own_id, name = _text(piece.get("id")), _text(function.get("name"))
        arguments, index = _arguments(function.get("arguments", function.get("input"))), piece.get("index")
        call = self._open(index, own_id)
        if call is None or call.ends_before(own_id, name, arguments):
            call = _Call(len(self._calls))
            self._calls.append(call)
        if isinstance(index, int):
            self._slots[index] = call
        call.more |= {key: value for key, value in piece.items() if value and key not in _CALL}
        return call.add(own_id, name, arguments)

    def _open(self, index: object, own_id: str) -> _Call | None:
        """Return a delta's tool call, matched by index or id, or the last call if the delta has neither."""
        if isinstance(index, int):
            return self._slots.get(index)
        if own_id:
            return next((call for call in self._calls if call.id == own_id), None)
        return self._calls[-1] if self._calls else None


class _Call:
    """A partially received tool call.

    Args:
        place: The index of the tool call in the message.
    """

    __slots__ = ("_pieces", "id", "more", "name", "place")

    def __init__(self, place: int) -> None:
        self.place = place
        self.id = ""
        self.name = ""
        # The call's type and additional fields, such as Gemini's signature in ``extra_content``.
        self.more: dict[str, object] = {"type": "function"}
        self._pieces: list[str] = []

    def ends_before(self, own_id: str, name: str, arguments: str) -> bool:
        """Return True if a delta begins another tool call, even if the delta's index is the same or missing.

        Some servers send complete calls that all have index 0 or no index. A new id without a name doesn't begin
        another call, because LMDeploy sends a new id with each delta. A repeated name with the same id doesn't begin
        another call either, because some servers repeat the name.
        """
        if not name or not self.name:
            return False
        if own_id and self.id:
            return own_id != self.id
        return (bool(arguments) or name != self.name) and self._is_whole()

    def add(self, own_id: str, name: str, arguments: str) -> Delta | None:
        """Add a delta of the tool call, and ignore its id or name if the call already has one."""
        new_id, new_name = own_id if not self.id else "", name if not self.name else ""
        self.id, self.name = self.id or own_id, self.name or name
        self._pieces.append(arguments)
        if not (new_id or new_name or arguments):
            return None
        return Delta("tool_call", arguments, self.place, new_id or None, new_name or None)

    def whole(self) -> dict[str, object]:
        """Return the tool call in the format of a non-streaming response."""
        text, call = "".join(self._pieces), {"id": self.id or None, **self.more}
        if self.more["type"] == "custom":
            return {**call, "custom": {"name": self.name, "input": text}}
        return {**call, "function": {"name": self.name, "arguments": text}}

    def _is_whole(self) -> bool:
        try:
            return isinstance(json.loads("".join(self._pieces)), dict)
        except (ValueError, RecursionError):
            return False


def fields_in(value: object) -> list[Fields]:
    """Return the dicts in a list, or an empty list for any other value."""
    return [item for item in value if is_mapping(item)] if is_sequence(value) else []


def _text(value: object) -> str:
    """Return a string unchanged, or the joined text of a list of content parts such as Mistral's."""
    if is_list(value):
        return "".join(_text(part.get("text")) for part in fields_in(value))
    return value if isinstance(value, str) else ""


def _thoughts(content: object) -> str:
    """Return the reasoning text in content parts such as Mistral's."""
    return "".join(_text(part.get("thinking")) for part in fields_in(content) if part.get("type") == "thinking")


def _arguments(value: object) -> str:
    """Return tool call arguments as JSON text. Some servers send the arguments as a JSON object instead of text."""
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


Structured: TypeAlias = "Callable[[JsonObject, str], dict[str, Any]]"
_NO_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_REFUSED = frozenset(
    (
        *("allOf", "oneOf", "not", "if", "then", "else"),
        *("dependentRequired", "dependentSchemas", "patternProperties", "default"),
    )
)


def is_strict(schema: JsonObject) -> bool:
    """Return True if a schema satisfies strict mode, in which objects have no unknown or optional keys."""
    return schema.get("type") == "object" and _is_kept(schema)


def _is_kept(schema: object) -> bool:
    if not is_dict(schema) or _REFUSED & schema.keys():
        return False
    properties, kinds = fields_of(schema.get("properties")), schema.get("type")
    if "properties" in schema or "object" in (kinds if is_list(kinds) else [kinds]):
        required = schema.get("required")
        if schema.get("additionalProperties") is not False or {*_items(required)} != {*properties}:
            return False
    parts = (properties, *(fields_of(schema.get(key)) for key in ("$defs", "definitions")))
    below = [*(value for part in parts for value in part.values()), *_items(schema.get("anyOf"))]
    return all(map(_is_kept, [*below, *([schema["items"]] if "items" in schema else [])]))


def _items(value: object) -> list[object]:
    return value if is_list(value) else []


def response_format(schema: JsonObject, name: str) -> dict[str, Any]:
    """Return the ``response_format`` for a JSON schema.

    The ``strict`` field is always set, because Moonshot's default is true. Characters that OpenAI doesn't allow in
    schema names are replaced with underscores.
    """
    named = _NO_NAME.sub("_", name)[:64] or "answer"
    wanted = {"name": named, "schema": schema, "strict": is_strict(schema)}
    return {"response_format": {"type": "json_schema", "json_schema": wanted}}


class Server(NamedTuple):
    """The properties of a server with OpenAI's Chat Completions or completions API.

    Attributes:
        hosts: The suffixes of the server's host names.
        limit: The server's name for ``max_tokens``.
        seed: The server's name for ``seed``.
        usage: True to request token usage in streams with ``stream_options``. Some servers reject ``stream_options``,
            and other servers don't need the field.
        structured: A function that returns the parameters for a JSON schema, or None if the server supports no schemas.
    """

    hosts: tuple[str, ...] = ()
    limit: str = "max_tokens"
    seed: str = "seed"
    usage: bool = False
    structured: Structured | None = None


_NEWER = Server(limit="max_completion_tokens", usage=True, structured=response_format)
SERVERS: dict[str, Server] = {
    "openai": _NEWER._replace(hosts=("api.openai.com", "openai.azure.com")),
    "moonshot": _NEWER._replace(hosts=("api.moonshot.ai", "api.moonshot.cn")),
    "xai": _NEWER._replace(hosts=("api.x.ai",)),
    "dashscope": Server(
        ("dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com"), usage=True, structured=response_format
    ),
    "deepseek": Server(("api.deepseek.com",), usage=True),
    "mistral": Server(("api.mistral.ai",), seed="random_seed", structured=response_format),
    "siliconflow": Server(("api.siliconflow.cn", "api.siliconflow.com")),
    "zhipu": Server(("open.bigmodel.cn", "api.z.ai")),
    "litellm": Server(usage=True),
    "vllm": Server(usage=True, structured=response_format),
    "other": Server(),
}


def server_at(base_url: str) -> Server:
    """Return the entry in ``SERVERS`` for the host in a URL, or the entry ``other`` if the host is unknown."""
    host = urlsplit(base_url).hostname or ""
    ends = (server for server in SERVERS.values() if any(f".{host}".endswith(f".{end}") for end in server.hosts))
    return next(ends, SERVERS["other"])


def connect(settings: ClientSettings, server: str | None = None) -> OpenAIClient:
    """Return a client for the Chat Completions API.

    Args:
        settings: The client's settings. The ``options`` are additional arguments for ``openai.OpenAI`` and
            ``openai.AsyncOpenAI``, but an ``http_client`` works with only one of these classes. The default
            ``base_url`` is the value of ``OPENAI_BASE_URL`` or, if unset, OpenAI's URL.
        server: A key of :data:`SERVERS`. If it is None or unknown, the server is derived from the host in ``base_url``.

    Raises:
        ModuleError: The API key is invalid.
    """
    base_url = settings.base_url or os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"
    return OpenAIClient(settings, SERVERS.get(server or "") or server_at(base_url))


class OpenAIClient(OwnHttpClient):
    """A client for the Chat Completions API.

    Args:
        settings: The client's settings.
        server: The server's parameter names and supported features, from :data:`SERVERS`.
    """

    package = ("openai", "openai", "httpx", "httpx2")
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
        "openai.APIError": "server",  # an error event in a stream
        "openai.OpenAIError": "key",  # a missing API key
    }

    def __init__(self, settings: ClientSettings, server: Server) -> None:
        super().__init__(settings)
        self._server = server
        self.names = {"max_tokens": server.limit}

    def params(self, common: Mapping[str, Any]) -> dict[str, Any]:
        """Rename parameters to the names that the official client uses.

        If the server has another name for ``seed``, the value is sent in ``extra_body`` under that name.

        Raises:
            ModuleError: The client does not accept one of the parameters.
            MissingExtraError: The client is not installed.
        """
        params = super().params(common)
        if self._server.seed == "seed" or "seed" not in params:
            return params
        body = {self._server.seed: params.pop("seed"), **fields_of(params.get("extra_body"))}
        return {**params, "extra_body": body}

    def structured(self, schema: JsonObject, name: str) -> dict[str, Any] | None:
        """Return the parameters that request a JSON schema, or None if the server may not support schemas."""
        build = response_format if self._settings.output_schemas else self._server.structured
        return None if build is None else build(schema, name)

    def _make(self, *, in_loop: bool) -> Any:
        client = super()._make(in_loop=in_loop)
        # Import the endpoint's module now, so that a later import does not block the event loop.
        attrgetter(self.called)(client)
        return client

    def _ask(self, client: Any, request: Request, **stream: bool) -> Any:
        call: dict[str, Any] = {"model": request.model, **request.payload, **request.params, **stream}
        if stream and self._server.usage:
            call = {"stream_options": {"include_usage": True}, **call}
        headers = fields_of(self._settings.options.get("default_headers"))
        if self._key is None and not any(name.lower() == "authorization" for name in headers):
            # The SDK requires an API key, and sends this key unless the call omits the Authorization header.
            call["extra_headers"] = {"Authorization": self.sdk().Omit(), **call.get("extra_headers", {})}
        return attrgetter(self.called)(client)(**call)

    def _event(self, event: Any) -> object:
        """Return an event, or raise an error if the event has ``code`` and ``message`` fields instead of choices."""
        more = fields_of(None if getattr(event, "choices", None) else getattr(event, "model_extra", None))
        if "code" in more and more.get("message"):
            raise StreamedError(more)
        return event


class CompletionsClient(OpenAIClient):
    """A client for the completions API (``/v1/completions``) of local engines.

    The payload is ``{"prompt": ...}`` with text or token ids, and the response is a ``text_completion``.
    """

    method = "openai:resources.completions.Completions.create"
    called = "completions.create"
    collector = TextCollector

    def post(self, url: str, body: Mapping[str, object]) -> object:
        """POST a JSON body to another endpoint on the engine's server, and return the decoded JSON response."""
        return self.client().post(url, cast_to=object, body=body)
