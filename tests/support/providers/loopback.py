"""The official clients, which send payloads to a local server that judges the requests that arrive."""

import json
import re
import ssl
from collections.abc import Callable, Mapping
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from support.model_server.http import Script, ScriptServer
from support.providers.judges import in_order
from support.providers.types import KEYS, OPENAI_CHAT, PROVIDERS, Payload, sdk, strictly
from support.serving import Serving

_OPENAI = dict.fromkeys(OPENAI_CHAT, ("/v1", "/chat/completions"))
_DASHSCOPE = "/services/aigc/{}-generation/generation"
# What a client's base_url ends with, and what the client puts after it.
_PATHS: dict[str, tuple[str, str]] = {
    **_OPENAI,
    "openai-responses": ("/v1", "/responses"),
    "zhipu": ("/api/paas/v4", "/chat/completions"),
    "mistral": ("", "/v1/chat/completions"),
    "ollama": ("", "/api/chat"),
    "ollama-generate": ("", "/api/generate"),
    "dashscope": ("/api/v1", _DASHSCOPE.format("text")),
    "dashscope-multimodal": ("/api/v1", _DASHSCOPE.format("multimodal")),
    "anthropic": ("", "/v1/messages"),
    "gemini": ("", "/v1beta/models/m:generateContent"),
}
# Below these keys, Gemini's payloads contain names chosen by users, which stay as they are.
_GEMINI_FREE = {"args", "response", "parameters", "parameters_json_schema", "response_json_schema"}
_TIMEOUT = 10.0


def judge(provider: str, payload: Payload) -> None:
    """Both at once: `strictly` and `in_order`."""
    strictly(provider, payload)
    in_order(provider, payload)


def payload_of(provider: str, body: dict[str, Any]) -> dict[str, Any]:
    """The payload in the body of a request: without the model and the settings, and as it was before the client."""
    if provider == "gemini":
        body = _snake(body)
    if provider.startswith("dashscope"):
        body = {**body.get("input", {}), **body.get("parameters", {})}
    if provider == "mistral":  # its client adds default values
        body = cast("dict[str, Any]", _without(body, {"prefix": False, "index": 0, "strict": False}))
    if provider == "ollama":  # its client leaves out empty values
        body["messages"] = [{"content": "", **message} for message in body.get("messages", [])]
        body = {key: value for key, value in body.items() if key != "tools" or value}
    required, optional = KEYS[provider]
    return {key: value for key, value in body.items() if key in required | optional}


def _without(value: object, usual: dict[str, object]) -> object:
    if isinstance(value, list):
        return [_without(item, usual) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: _without(item, usual) for key, item in value.items() if key not in usual or item != usual[key]}


def _snake(value: Any) -> Any:
    if isinstance(value, list):
        return [_snake(item) for item in value]
    if not isinstance(value, dict):
        return value
    named = {re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", key): item for key, item in value.items()}
    for key in {"data", "thought_signature"} & set(named):  # the client writes base64 in the alphabet for urls
        named[key] = named[key].translate({ord("-"): "+", ord("_"): "/"})
    return {key: item if key in _GEMINI_FREE else _snake(item) for key, item in named.items()}


def normalize(provider: str, payload: Payload) -> dict[str, Any]:
    """Return a payload without what the official client is known to change on the way."""
    payload = dict(payload)
    if provider == "gemini" and isinstance(system := payload.get("system_instruction"), str):
        payload |= {"system_instruction": {"role": "user", "parts": [{"text": system}]}}
    if provider == "gemini" and "'parameters'" in str(payload):  # spells the types of a Schema in capitals
        return {"contents": payload["contents"]}
    if provider == "ollama":  # drops ids, and what its types for JSON Schema do not know
        return {"said": [(one["role"], one["content"], one.get("images")) for one in payload["messages"]]}
    if provider == "zhipu":  # takes the head off a data URI
        return {key: re.sub("data:[a-z/]+;base64,", "", str(value)) for key, value in payload.items()}
    return payload


def answer_of(provider: str, text: str = "pong") -> dict[str, Any]:
    """The provider's response with this text of the model."""
    message = {"role": "assistant", "content": text}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    counted = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    ollama = {"model": "m", "created_at": "2026-01-01T00:00:00Z", "done": True, "done_reason": "stop"}
    written = {"type": "output_text", "text": text, "annotations": []}
    head = {"id": "1", "model": "m"}
    chat = {**head, "object": "chat.completion", "created": 1, "usage": counted}
    response = {**head, "object": "response", "created_at": 1, "status": "completed", "error": None}
    item = {"type": "message", "id": "msg_1", "status": "completed", **message, "content": [written]}
    parted = message | {"content": [{"text": text}]}
    dashscope = [
        {"output": {"choices": [{"finish_reason": "stop", "message": said}]}, "request_id": "r", "usage": usage}
        for said in (message, parted)
    ]
    forms: dict[str, dict[str, Any]] = {
        "openai": {**chat, "choices": [{"index": 0, "finish_reason": "stop", "message": message}]},
        "openai-responses": response
        | {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "output": [item]},
        "anthropic": {**head, "type": "message", **message, "usage": usage, "stop_reason": "end_turn"}
        | {"stop_sequence": None, "content": [{"type": "text", "text": text}]},
        "gemini": {"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, "finishReason": "STOP"}]},
        "ollama": {**ollama, "message": message},
        "ollama-generate": {**ollama, "response": text},
        "dashscope": dashscope[0],
        "dashscope-multimodal": dashscope[1],
    }
    return forms.get(provider, forms["openai"])


def error_of(provider: str, message: str) -> dict[str, Any]:
    """The provider's error for a request that it refuses."""
    openai = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    ollama, dashscope = {"error": message}, {"request_id": "r", "code": "InvalidParameter", "message": message}
    forms: dict[str, dict[str, Any]] = {
        "ollama": ollama,
        "ollama-generate": ollama,
        "dashscope": dashscope,
        "dashscope-multimodal": dashscope,
        "anthropic": {"type": "error", "error": {"type": "invalid_request_error", "message": message}},
        "gemini": {"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}},
        "zhipu": {"error": {"code": "1214", "message": message}},
        "mistral": {**openai, "object": "error", "code": "3230"},
        "xai": {"code": "Client specified an invalid argument", "error": message},
        "vllm": {"error": {**openai, "type": "BadRequestError", "code": 400}},
    }
    return forms.get(provider, {"error": openai})


@dataclass(frozen=True)
class Seen:
    """A request as it arrived: ``refusal`` is the judges' objection to it."""

    provider: str
    path: str
    headers: dict[str, str] = field(repr=False)
    body: dict[str, Any]
    payload: dict[str, Any]
    refusal: str | None = None


class JsonServer(Serving):
    """A server on the loopback that answers each POST of JSON with JSON, to be used as a context manager."""

    def __init__(self) -> None:
        server = ScriptServer(self._script)
        super().__init__(server)
        self.root = f"http://127.0.0.1:{server.server_port}"

    def _script(self, path: str, headers: dict[str, str], content: bytes) -> tuple[Script, Callable[[bool], None]]:
        status, answer = self.reply(path, headers, json.loads(content))
        return Script(status, "application/json", (json.dumps(answer).encode(),)), lambda _: None

    def reply(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """The status and the body of the answer to a request."""
        raise NotImplementedError


class Loopback(JsonServer):
    """A server for all providers, each below its own path.

    ``answer`` maps a provider to what it answers, `answer_of` where there is nothing; ``seen`` holds the requests.
    """

    def __init__(self, answer: Mapping[str, dict[str, Any]] | None = None) -> None:
        self.answer: dict[str, dict[str, Any]] = dict(answer or {})
        self.seen: list[Seen] = []
        super().__init__()

    def url(self, provider: str) -> str:
        """The base_url to give to the provider's client, or to `send`."""
        return f"{self.root}/{provider}{_PATHS[provider][0]}"

    def send(self, provider: str, payload: Payload) -> Any:
        """`send` to this server."""
        return send(provider, payload, self.url(provider))

    def reply(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        provider = path.split("/")[1]
        if provider not in PROVIDERS or path != "/" + provider + "".join(_PATHS[provider]):
            return 404, error_of(provider, f"there is nothing at {path}")
        payload, refusal = body, None
        try:
            payload = payload_of(provider, deepcopy(body))
            judge(provider, payload)
        except (ValueError, TypeError) as error:
            refusal = str(error)
        self.seen.append(Seen(provider, path, headers, body, payload, refusal))
        if refusal is not None:
            return 400, error_of(provider, refusal)
        return 200, self.answer.get(provider) or answer_of(provider)


def _http() -> dict[str, Any]:
    """Arguments of an HTTP client that looks at no proxies and loads no certificates, which would take longest."""
    return {"trust_env": False, "verify": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), "timeout": _TIMEOUT}


def _send_openai(payload: dict[str, Any], base_url: str, *, responses: bool = False) -> Any:
    openai = sdk("openai")
    http = openai.DefaultHttpxClient(**_http())
    with openai.OpenAI(base_url=base_url, api_key="k", max_retries=0, http_client=http) as client:
        return (client.responses if responses else client.chat.completions).create(model="m", **payload)


def _send_anthropic(payload: dict[str, Any], base_url: str) -> Any:
    anthropic = sdk("anthropic")
    http = anthropic.DefaultHttpxClient(**_http(), mounts={"all://127.0.0.1": None})  # it would read the proxies again
    with anthropic.Anthropic(base_url=base_url, api_key="k", max_retries=0, http_client=http) as client:
        return client.messages.create(model="m", max_tokens=8, **payload)


def _send_gemini(payload: dict[str, Any], base_url: str) -> Any:
    options = {"base_url": base_url, "api_version": "v1beta", "client_args": _http(), "timeout": int(_TIMEOUT * 1000)}
    with closing(sdk("google.genai").Client(api_key="k", http_options=options)) as client:
        return client.models.generate_content(model="m", contents=payload.pop("contents"), config=payload)


def _send_ollama(payload: dict[str, Any], base_url: str, *, generate: bool = False) -> Any:
    with closing(sdk("ollama").Client(host=base_url, **_http())) as client:
        return (client.generate if generate else client.chat)(model="m", **payload)


def _send_zhipu(payload: dict[str, Any], base_url: str) -> Any:
    http = sdk("httpx").Client(**_http())
    with sdk("zai").ZhipuAiClient(api_key="k.k", base_url=base_url, max_retries=0, http_client=http) as client:
        return client.chat.completions.create(model="m", **payload)


def _send_mistral(payload: dict[str, Any], base_url: str) -> Any:
    http = sdk("httpx2").Client(**_http())
    with closing(http):
        client = sdk("mistralai.client").Mistral(api_key="k", server_url=base_url, client=http)
        return client.chat.complete(model="m", **payload)


def _send_dashscope(payload: dict[str, Any], base_url: str, *, multimodal: bool = False) -> Any:
    dashscope = sdk("dashscope")
    generation = dashscope.MultiModalConversation if multimodal else dashscope.Generation
    with closing(sdk("requests").Session()) as session:
        session.trust_env = False
        response = generation.call(
            model="qwen-plus",
            api_key="k",
            result_format="message",
            base_address=base_url,  # of this call only: dashscope.base_http_api_url stays as it is
            session=session,
            **payload,
        )
    if response.status_code != 200:
        raise RuntimeError(f"{response.status_code} {response.code}: {response.message}")
    return response


_SEND: dict[str, Callable[[dict[str, Any], str], Any]] = {
    **dict.fromkeys(OPENAI_CHAT, _send_openai),
    "openai-responses": partial(_send_openai, responses=True),
    "anthropic": _send_anthropic,
    "gemini": _send_gemini,
    "ollama": _send_ollama,
    "ollama-generate": partial(_send_ollama, generate=True),
    "zhipu": _send_zhipu,
    "mistral": _send_mistral,
    "dashscope": _send_dashscope,
    "dashscope-multimodal": partial(_send_dashscope, multimodal=True),
}


def send(provider: str, payload: Payload, base_url: str) -> Any:
    """The response of the provider's official client for a payload, without retries."""
    return _SEND[provider](deepcopy(dict(payload)), base_url)


def refusals(provider: str) -> tuple[type[Exception], ...]:
    """The error that `send` raises if the client or the server refuses a payload."""
    if provider == "gemini":
        return sdk("google.genai.errors").ClientError, ValueError
    if provider.startswith("ollama"):
        return sdk("ollama").ResponseError, ValueError
    if provider.startswith("dashscope"):
        return RuntimeError, sdk("dashscope.common.error").DashScopeException
    if provider == "mistral":
        return sdk("mistralai.client.errors").SDKError, ValueError
    if provider == "zhipu":
        return (sdk("zai.core").APIRequestFailedError,)
    return (sdk("anthropic" if provider == "anthropic" else "openai").BadRequestError,)
