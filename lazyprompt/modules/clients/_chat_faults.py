"""What servers of OpenAI's form say when something goes wrong.

Sources: the providers' references of errors (OpenAI, DeepSeek, Moonshot, xAI, SiliconFlow, Zhipu); the sources of vLLM,
SGLang, LMDeploy and llama.cpp's server; for words that no reference has, errors quoted in issues of their clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from lazyprompt.modules.client import Fault
from lazyprompt.modules.clients._said import kind_of_class, kind_of_status, kind_of_words, one_line, seconds, told
from lazyprompt.modules.clients._wire import hiding

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyprompt._base.secret import Secret
    from lazyprompt.modules.client import FaultKind

__all__ = ["WORDS", "PageError", "chat_fault", "cut_in", "hiding", "kind_of_refusal", "wait_in"]

# In codes, types and messages, in lower case.
WORDS: dict[str, FaultKind] = {
    "context_length_exceeded": "overflow",  # OpenAI's code
    "exceed_context_size_error": "overflow",  # llama.cpp's type
    "context size": "overflow",  # llama.cpp: exceeds the available context size
    "maximum context length": "overflow",  # OpenAI, DeepSeek, vLLM, Zhipu
    "context window": "overflow",  # OpenAI: exceeds the context window of this model
    "maximum model length": "overflow",  # vLLM
    "model's context length": "overflow",  # SGLang
    "maximum prompt length": "overflow",  # xAI
    "exceeded model token limit": "overflow",  # Moonshot
    "max_seq_len": "overflow",  # SiliconFlow
    "exceeds max length": "overflow",  # Zhipu
    "prompt 超长": "overflow",  # Zhipu
    "range of input length": "overflow",  # DashScope's compatible API
    "incorrect api key": "key",  # xAI, with the status 400
    "api key not valid": "key",  # Gemini's compatible API, with the status 400
    "model not exist": "not found",  # DeepSeek, with the status 400
    "model does not exist": "not found",  # SiliconFlow, with the status 400
    "模型不存在": "not found",  # Zhipu, with the status 400
    "invalid_model": "not found",  # Mistral's type, with the status 400
    "invalid model name": "not found",  # LiteLLM's proxy, with the status 400
    "insufficient balance": "rate limit",  # DeepSeek, Moonshot
    "balance is insufficient": "rate limit",  # SiliconFlow, with the status 403
    "any credits": "rate limit",  # xAI, with the status 403: does not have any credits yet
    "available credits": "rate limit",  # xAI, with the status 403: used all of them
    "rate_limit": "rate limit",  # OpenAI's code, in a stream
}
# Statuses that say all; the words may quote what somebody else said.
_CLEAR = frozenset({401, 404, 408, 429})
_SIGNS = ("code", "type", "message")


class PageError(Exception):
    """The server answered with text where an API answers with JSON: a web page, as a wrong address does."""

    def __init__(self, text: str) -> None:
        super().__init__(f"the server answered with no JSON, as if it were no API: {text[:200]}")


def chat_fault(error: Exception, classes: Mapping[str, FaultKind], body: object, key: Secret | None) -> Fault | None:
    """What an error of a client means: by its class, and where it is what a server said, by status and words.

    Args:
        error: The error; ``status_code`` and ``response`` as httpx has it count where they are there.
        classes: What its class means, as ``kind_of_class`` takes it; "request" and "server" are looked into.
        body: What the server said: the error within its JSON, or text.
        key: What must not show.
    """
    kind = kind_of_class(error, classes)
    if kind is None:
        return None
    status: object = getattr(error, "status_code", None)
    headers: object = getattr(getattr(error, "response", None), "headers", None)
    signs, message = _read(body)
    answered = status if isinstance(status, int) else None
    if kind in ("request", "server"):
        kind = kind_of_refusal(answered, signs, key, kind)
    return Fault(kind, one_line(message or told(error), key), answered, wait_in(headers))


def kind_of_refusal(status: int | None, said: str, key: Secret | None, otherwise: FaultKind = "server") -> FaultKind:
    """What a server means that says no: by its status where that is clear, by its words where they are known.

    Args:
        status: The HTTP status; None within a stream.
        said: What it says: codes, types, message.
        key: What may have been taken out of it.
        otherwise: What it means if there is neither.
    """
    kind = otherwise if status is None else kind_of_status(status)
    # Where the key was taken out of what was said, it was taken out of these too.
    words = WORDS if key is None else _with_hidden(key)
    return kind if status in _CLEAR else kind_of_words(said, words) or kind


def cut_in(classes: Mapping[str, FaultKind]) -> Callable[[Exception, bool], bool]:
    """What tells ``unbroken`` that a stream was cut.

    Args:
        classes: What the classes of errors mean; in a stream that has begun, "connection" is that.
    """
    return lambda error, begun: begun and kind_of_class(error, classes) == "connection"


def wait_in(headers: object) -> float | None:
    """The seconds of a ``Retry-After`` among headers, if they are any."""
    return seconds(cast("Mapping[str, str]", headers).get("retry-after")) if isinstance(headers, Mapping) else None


def _with_hidden(key: Secret) -> dict[str, FaultKind]:
    return {key.hidden_in(known): kind for known, kind in WORDS.items()}


def _read(body: object) -> tuple[str, str]:
    """All that tells what is wrong, and the message alone; of a body that is text, the text."""
    if not isinstance(body, Mapping):
        return (body, body) if isinstance(body, str) else ("", "")
    fields = cast("Mapping[str, object]", body)
    inner = fields.get("error")  # xAI's is the message itself
    if isinstance(inner, Mapping):
        return _read(cast("object", inner))
    message = fields.get("message") or inner or fields.get("detail")
    return " ".join(str(fields.get(sign)) for sign in _SIGNS if fields.get(sign)) + f" {inner}", str(message or "")
