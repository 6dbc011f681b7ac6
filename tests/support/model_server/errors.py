"""The errors of each provider: their bodies, and the messages about a wrong key, model or length.

Sources: the providers' references of errors, and answers of theirs that are quoted in issues of their clients.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal, TypeAlias

from support.model_server.parts import Json, Refusal

Form: TypeAlias = Callable[..., Json | str]
NO_KEY, NO_MODEL, TOO_LONG = "wrong", "no-such-model", b"OVERFLOW"


_OPENAI_TYPES = {429: "requests", 500: "server_error", 503: "server_error"}
_OPENAI_CODES = {429: "rate_limit_exceeded"}
_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_GOOGLE = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_VLLM_TYPES = {400: "BadRequestError", 404: "NotFoundError", 429: "TooManyRequests", 500: "InternalServerError"}
_LLAMA_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    500: "server_error",
    503: "unavailable_error",
}
_MOONSHOT_TYPES = {
    400: "invalid_request_error",
    401: "invalid_authentication_error",
    404: "resource_not_found_error",
    429: "rate_limit_reached_error",
    500: "server_error",
}
_SILICONFLOW = {400: 20015, 503: 50505}
_ZHIPU_CODES = {400: "1210", 401: "1000", 404: "1211", 429: "1302", 500: "500"}
_XAI_CODES = {
    400: "Client specified an invalid argument",
    403: "The caller does not have permission to execute the specified operation",
    404: "Some requested entity was not found",
    429: "Some resource has been exhausted",
    500: "Internal error",
    503: "The service is currently unavailable",
}


def _openai(status: int, message: str, **more: object) -> Json:
    kind = _OPENAI_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": _OPENAI_CODES.get(status), **more}}


def _deepseek(status: int, message: str, **more: object) -> Json:
    kind = "authentication_error" if status == 401 else "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": "invalid_request_error", **more}}


def _litellm(status: int, message: str, **more: object) -> Json:
    return {"error": {"message": message, "type": None, "param": None, "code": str(status), **more}}


def _moonshot(status: int, message: str, **more: object) -> Json:
    return {"error": {"message": message, "type": _MOONSHOT_TYPES.get(status, "server_error"), **more}}


def _siliconflow(status: int, message: str, code: int = 0) -> Json | str:
    return message if status == 401 else {"code": code or _SILICONFLOW.get(status), "message": message, "data": None}


def _typed(types: dict[int, str], status: int, message: str, **more: object) -> Json:
    """The form of vLLM and llama.cpp: the status is the code."""
    if status == 401 and types is _VLLM_TYPES:
        return {"error": message}
    return {"error": {"message": message, "type": types.get(status, "server_error"), "code": status, **more}}


def _zhipu(status: int, message: str, code: str = "") -> Json:
    return {"error": {"code": code or _ZHIPU_CODES.get(status, str(status)), "message": message}}


def _mistral(status: int, message: str, **more: object) -> Json:
    kind = "invalid_request_error" if status < 500 else "internal_server_error"
    return {"object": "error", "message": message, "type": kind, "param": None, "code": "3000", **more}


def _xai(status: int, message: str) -> Json:
    return {"code": _XAI_CODES.get(status, "Unknown error"), "error": message}


def _anthropic(status: int, message: str) -> Json:
    kind = _ANTHROPIC_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def _gemini(status: int, message: str, **more: object) -> Json:
    return {"error": {"code": status, "message": message, "status": _GOOGLE.get(status, "UNKNOWN"), **more}}


def _ollama(_: int, message: str) -> Json:
    return {"error": message}


def _dashscope(status: int, message: str, **more: object) -> Json:
    return {**_openai(status, message, **more), "request_id": "r"}


FORMS: dict[str, Form] = {
    **dict.fromkeys(("openai", "openai-responses"), _openai),
    "deepseek": _deepseek,
    "litellm": _litellm,
    "moonshot": _moonshot,
    "siliconflow": _siliconflow,
    "vllm": partial(_typed, _VLLM_TYPES),
    "completions": partial(_typed, _LLAMA_TYPES),
    "zhipu": _zhipu,
    "xai": _xai,
    "mistral": _mistral,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "ollama": _ollama,
    "ollama-generate": _ollama,
    "dashscope": _dashscope,
}


def error_body(provider: str, status: int, message: str, more: Mapping[str, object] | None = None) -> Json | str:
    """The body of an error of the provider."""
    return FORMS[provider](status, message, **(more or {}))


Reason: TypeAlias = Literal["key", "model", "length"]
_LONG = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens. "
_OPENAI_REFUSALS: dict[Reason, Refusal] = {
    "key": Refusal(
        401,
        f"Incorrect API key provided: {NO_KEY}. You can find your API key at https://platform.openai.com/account/"
        "api-keys.",
        {"code": "invalid_api_key"},
    ),
    "model": Refusal(
        404, f"The model `{NO_MODEL}` does not exist or you do not have access to it.", {"code": "model_not_found"}
    ),
    "length": Refusal(
        400,
        f"{_LONG}Please reduce the length of the messages.",
        {"param": "messages", "code": "context_length_exceeded"},
    ),
}
_OLLAMA_REFUSALS: dict[Reason, Refusal] = {
    "key": Refusal(401, "unauthorized"),
    "model": Refusal(404, f"model '{NO_MODEL}' not found"),
}  # it silently cuts a prompt that is too long
REFUSALS: dict[str, dict[Reason, Refusal]] = {
    **dict.fromkeys(("openai", "openai-responses"), _OPENAI_REFUSALS),
    "deepseek": {
        "key": Refusal(401, f"Authentication Fails, Your api key: ****{NO_KEY[-4:]} is invalid"),
        "model": Refusal(400, "Model Not Exist"),
        "length": Refusal(
            400,
            "This model's maximum context length is 65536 tokens. However, you requested 72458 tokens (72458 in the "
            "messages, 0 in the completion). Please reduce the length of the messages or completion.",
        ),
    },
    "moonshot": {
        "key": Refusal(401, "Invalid Authentication"),
        "model": Refusal(404, f"Not found the model {NO_MODEL} or Permission denied"),
        "length": Refusal(400, "Invalid request: Your request exceeded model token limit: 8192 (requested: 9000)"),
    },
    "xai": {
        "key": Refusal(
            400, "Incorrect API key provided: wr***ng. You can obtain an API key from https://console.x.ai."
        ),
        "model": Refusal(
            404,
            f"The model {NO_MODEL} does not exist or your team 0 does not have access to it. Please ask your admin.",
        ),
        "length": Refusal(400, "This model's maximum prompt length is 131072 but the request contains 140000 tokens."),
    },
    "siliconflow": {
        "key": Refusal(401, "Invalid token"),
        "model": Refusal(400, "Model does not exist. Please check it carefully.", {"code": 20012}),
        "length": Refusal(
            400, "length of prompt_tokens (40000) must be less than max_seq_len (32768).", {"code": 20015}
        ),
    },
    "vllm": {
        "key": Refusal(401, "Unauthorized"),
        "model": Refusal(404, f"The model `{NO_MODEL}` does not exist.", {"param": "model"}),
        "length": Refusal(
            400,
            "This model's maximum context length is 1024 tokens. However, your request has 1100 input tokens. Please "
            "reduce the length of the input messages.",
            {"param": "input_tokens"},
        ),
    },
    "completions": {
        "key": Refusal(401, "Invalid API Key"),
        "model": Refusal(404, f"model '{NO_MODEL}' not found"),
        "length": Refusal(
            400,
            "request (1407 tokens) exceeds the available context size (256 tokens), try increasing it",
            {"type": "exceed_context_size_error", "n_prompt_tokens": 1407, "n_ctx": 256},
        ),
    },
    "mistral": {
        "key": Refusal(401, "Unauthorized"),
        "model": Refusal(400, f"Invalid model: {NO_MODEL}", {"type": "invalid_model", "code": "1500"}),
        "length": Refusal(
            400,
            "Prompt contains 140000 tokens, too large for model with 131072 maximum context length",
            {"code": "3051"},
        ),
    },
    "zhipu": {
        "key": Refusal(401, "身份验证失败。", {"code": "1000"}),
        "model": Refusal(400, "模型不存在，请检查模型代码。", {"code": "1211"}),
        "length": Refusal(400, "Prompt 超长", {"code": "1261"}),
    },
    "litellm": {
        "key": Refusal(
            401,
            "Authentication Error, Invalid proxy server token passed. Received API Key = sk-...rong, Key Hash (Token) "
            "=00. Unable to find token in cache or `LiteLLM_VerificationTokenTable`",
            {"type": "token_not_found_in_db", "param": "key"},
        ),
        "model": Refusal(
            400,
            f"/chat/completions: Invalid model name passed in model={NO_MODEL}. Call `/v1/models` to view available "
            "models for your key.",
            {"type": "invalid_request_error"},
        ),
        "length": Refusal(
            400,
            "litellm.ContextWindowExceededError: litellm.BadRequestError: ContextWindowExceededError: "
            f"OpenAIException - {_LONG}",
        ),
    },
    "anthropic": {
        "key": Refusal(401, "invalid x-api-key"),
        "model": Refusal(404, f"model: {NO_MODEL}"),
        "length": Refusal(400, "prompt is too long: 212000 tokens > 200000 maximum"),
    },
    "gemini": {
        "key": Refusal(
            400,
            "API key not valid. Please pass a valid API key.",
            {
                "details": [
                    {
                        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                        "reason": "API_KEY_INVALID",
                        "domain": "googleapis.com",
                        "metadata": {"service": "generativelanguage.googleapis.com"},
                    }
                ]
            },
        ),
        "model": Refusal(
            404,
            f"models/{NO_MODEL} is not found for API version v1beta, or is not supported for generateContent. Call "
            "ListModels to see the list of available models and their supported methods.",
        ),
        "length": Refusal(
            400, "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
        ),
    },
    "ollama": _OLLAMA_REFUSALS,
    "ollama-generate": _OLLAMA_REFUSALS,
    "dashscope": {
        "key": Refusal(401, "Incorrect API key provided.", {"code": "invalid_api_key"}),
        "model": Refusal(404, f"The model `{NO_MODEL}` does not exist or you do not have access to it."),
        "length": Refusal(400, "Range of input length should be [1, 30720]", {"code": "invalid_parameter_error"}),
    },
}
