"""How servers that speak like OpenAI differ in what they take.

Sources: the references of OpenAI, Moonshot, xAI, DeepSeek and SiliconFlow, "Create chat completion"; the documentation
of vLLM ("Structured outputs") and llama.cpp's server; the request types of SGLang, LMDeploy and ``transformers serve``.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from lazyprompt.modules.clients._strict import is_strict

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyprompt._base.json import JsonObject

Structured: TypeAlias = "Callable[[JsonObject, str], dict[str, Any]]"
_NO_NAME = re.compile(r"[^a-zA-Z0-9_-]")


def response_format(schema: JsonObject, name: str) -> dict[str, Any]:
    """A JSON schema as Chat Completions take it.

    Args:
        schema: The schema; ``strict`` where it keeps the rules of OpenAI's strict mode, and said not to be elsewhere:
            Moonshot takes it for strict where nothing is said.
        name: Its name; what OpenAI takes of it.
    """
    named = _NO_NAME.sub("_", name)[:64] or "answer"
    wanted = {"name": named, "schema": schema, "strict": is_strict(schema)}
    return {"response_format": {"type": "json_schema", "json_schema": wanted}}


def _extra(*path: str) -> Structured:
    """A JSON schema below a path of keys that the client does not know."""

    def structured(schema: JsonObject, _: str) -> dict[str, Any]:
        wanted: dict[str, Any] = schema
        for key in reversed(path):
            wanted = {key: wanted}
        return {"extra_body": wanted}

    return structured


def _written(schema: JsonObject, _: str) -> dict[str, Any]:
    return {"extra_body": {"json_schema": json.dumps(schema)}}


class Server(NamedTuple):
    """What is known of a server of Chat Completions.

    Attributes:
        hosts: The ends of the names of its hosts.
        limit: What it calls ``max_tokens``; those that know the newer name call the older one deprecated.
        usage: Whether a stream is to be asked for its tokens: not where it tells them by itself, or where it is not
            known whether the server takes ``stream_options``.
        structured: The parameters for a JSON schema, where it takes one.
    """

    hosts: tuple[str, ...] = ()
    limit: str = "max_tokens"
    usage: bool = False
    structured: Structured | None = None


_NEWER = Server(limit="max_completion_tokens", usage=True, structured=response_format)
SERVERS: dict[str, Server] = {
    "openai": _NEWER._replace(hosts=("api.openai.com", "openai.azure.com")),
    "moonshot": _NEWER._replace(hosts=("api.moonshot.ai", "api.moonshot.cn")),
    "xai": _NEWER._replace(hosts=("api.x.ai",)),
    "deepseek": Server(("api.deepseek.com",), usage=True),
    "siliconflow": Server(("api.siliconflow.cn", "api.siliconflow.com")),
    "vllm": Server(usage=True, structured=response_format),
    "llama.cpp": Server(usage=True, structured=response_format),
    "other": Server(),
}


class Engine(NamedTuple):
    """What is known of the ``/v1/completions`` of a local engine: ``usage`` and ``structured`` as of a server."""

    usage: bool = False
    structured: Structured | None = None


ENGINES: dict[str, Engine] = {
    "llama.cpp": Engine(usage=True, structured=_extra("json_schema")),
    "vllm": Engine(usage=True, structured=_extra("structured_outputs", "json")),
    "sglang": Engine(usage=True, structured=_written),
    "lmdeploy": Engine(usage=True),
    "transformers": Engine(),  # it refuses what it does not know
    "other": Engine(),
}


def server_at(base_url: str) -> Server:
    """The server that has the host of an address; ``other`` where that is not known."""
    host = urlsplit(base_url).hostname or ""
    ends = (server for server in SERVERS.values() if any(f".{host}".endswith(f".{end}") for end in server.hosts))
    return next(ends, SERVERS["other"])
