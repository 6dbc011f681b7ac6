"""Classifies the failures of clients by the class of an error, the HTTP status, and the server's message.

Sources: the providers' error references (OpenAI, DeepSeek, Moonshot, xAI, SiliconFlow, Zhipu); the source code of vLLM,
SGLang, LMDeploy and llama.cpp's server; and, for undocumented messages, errors quoted in issues of the clients.
"""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from lazyprompt._base.client_objects import fields_of
from lazyprompt._base.json import is_dict, is_list, is_mapping

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from lazyprompt._base.secret import Secret

FaultKind: TypeAlias = Literal[
    "key",  # the key is missing or refused
    "not found",  # the server has no such model or path
    "overflow",  # the prompt exceeds the model's context
    "request",  # the server refuses the request for another reason
    "rate limit",  # too many requests, or the quota is used up
    "server",  # the server failed, or is overloaded
    "timeout",  # no answer in time
    "connection",  # no connection, or it was lost before the answer began
    "cut",  # a stream stopped before its final event; also a "connection" fault after the answer had begun
    "malformed",  # not an answer of the API
    "too large",  # the answer exceeds max_answer_bytes
]


class Fault(NamedTuple):
    """A failed call, in a form that doesn't depend on the client.

    Attributes:
        kind: The kind of failure.
        message: The message of the client or the server in one line, without the key.
        status: The HTTP status of a response.
        retry_after: The server's ``Retry-After`` in seconds.
    """

    kind: FaultKind
    message: str
    status: int | None = None
    retry_after: float | None = None


# Statuses of redirects.
REDIRECTS = frozenset((301, 302, 303, 307, 308))
# The kinds of errors of HTTP libraries, parsers and lazyprompt, which are the same for every client.
_CLASSES: dict[str, FaultKind] = {
    "lazyprompt.MalformedError": "malformed",
    "lazyprompt.StreamedError": "server",
    "json.JSONDecodeError": "malformed",
    "builtins.UnicodeDecodeError": "malformed",
    "httpx.DecodingError": "malformed",
    "httpx.TimeoutException": "timeout",
    "httpx.RequestError": "connection",
}
_STATUSES: dict[int, FaultKind] = {
    401: "key",
    402: "rate limit",  # no credit left
    403: "key",
    404: "not found",
    408: "timeout",
    413: "overflow",
    424: "server",  # TGI: the generation failed
    429: "rate limit",
}
_NO_SUCCESS, _FIRST_OF_SERVER = 300, 500
# Statuses that decide the kind alone; the message may quote other text.
_CLEAR = frozenset({401, 404, 408, 429})
# Phrases in codes, types and messages of servers with OpenAI's API, in lower case.
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
    "range of input length": "overflow",  # DashScope
    "`inputs` must have less than": "overflow",  # TGI
    "`inputs` tokens + `max_new_tokens` must be <=": "overflow",  # TGI
    "incorrect api key": "key",  # xAI, with the status 400
    "api key not valid": "key",  # Gemini's compatible API, with the status 400
    "model not exist": "not found",  # DeepSeek, with the status 400
    "model does not exist": "not found",  # SiliconFlow, with the status 400
    "模型不存在": "not found",  # Zhipu, with the status 400
    "invalid_model": "not found",  # Mistral's type, with the status 400
    "invalid model name": "not found",  # LiteLLM's proxy, with the status 400
    "arrearage": "key",  # DashScope's code, with the status 400: the account is in debt, and waiting does not help
    "insufficient balance": "rate limit",  # DeepSeek, Moonshot
    "balance is insufficient": "rate limit",  # SiliconFlow, with the status 403
    "any credits": "rate limit",  # xAI, with the status 403: does not have any credits yet
    "available credits": "rate limit",  # xAI, with the status 403: used all of them
    "rate_limit": "rate limit",  # OpenAI's code, in a stream
}
_FIELDS = ("code", "type", "message")
# The maximum length of a message: some quote a whole malformed answer.
_LONGEST = 1_000
_DEPTH = 8  # the depth to which values in an error are searched for the key
# Packages that raise a RuntimeError if their client is closed during a call.
_HTTP = frozenset(("httpx", "httpx2"))
# The errors of client code that a malformed answer causes.
_STUMBLES = (TypeError, AttributeError, LookupError, ValueError)


class MalformedError(Exception):
    """An answer that is not the API's, such as the web page of a wrong address."""


class StreamedError(Exception):
    """An error that a server reports in a stream.

    Args:
        body: The error's JSON.
    """

    def __init__(self, body: Mapping[str, Any]) -> None:
        super().__init__(str(body.get("message")))
        self.body = body


class ErrorResponse(NamedTuple):
    """A server's error response.

    Attributes:
        status: The HTTP status; None in a stream.
        body: The JSON or text of the body.
        headers: The headers.
    """

    status: object = None
    body: object = None
    headers: object = None


def fault_of(
    kind: FaultKind, error: Exception, refusal: ErrorResponse, words: Mapping[str, FaultKind], key: Secret | None
) -> Fault:
    """Return the fault of an error.

    Args:
        kind: The kind of its class; status and message refine a "request" or "server".
        error: The error.
        refusal: The server's response; its fields are None without one.
        words: The kinds by phrases of this server.
        key: The key to hide.
    """
    status = refusal.status if isinstance(refusal.status, int) and refusal.status >= _NO_SUCCESS else None
    text, message = _parse_body(refusal.body)
    if kind in ("request", "server"):
        kind = kind_of_refusal(status, text, words, key, kind)
    return Fault(kind, one_line(message or describe(error), key), status, wait_in(refusal.headers))


def kind_of_refusal(
    status: int | None, text: str, words: Mapping[str, FaultKind], key: Secret | None, otherwise: FaultKind = "server"
) -> FaultKind:
    """Return the kind of an error response: by its status if that is clear, else by phrases in its text."""
    kind = otherwise
    if status is not None:
        kind = _STATUSES.get(status, "server" if status >= _FIRST_OF_SERVER else "request")
    if key is not None:  # mask the key in the phrases, as in the answer
        words = {key.hidden_in(known): meaning for known, meaning in words.items()}
    return kind if status in _CLEAR else kind_of_words(text, words) or kind


def kind_of_words(text: str, words: Mapping[str, FaultKind]) -> FaultKind | None:
    """Return the kind of the first phrase in a text; the phrases are in lower case."""
    lower = text.lower()
    return next((kind for known, kind in words.items() if known in lower), None)


def kind_of_class(error: BaseException, kinds: Mapping[str, FaultKind], stumbles: str = "") -> FaultKind | None:
    """Return the kind of an error by its class, without importing the client.

    Args:
        error: The error.
        kinds: The kinds by ``package.Name``, subclasses first; httpx2 counts as httpx.
        stumbles: The client's package, whose ``TypeError`` or similar error means a malformed answer.
    """
    names = classes_of(error)
    known = (*kinds.items(), *_CLASSES.items())
    found: FaultKind | None = next((kind for name, kind in known if name in names), None)
    if found is None and isinstance(error, RuntimeError) and _raised_by(error) in _HTTP:
        return "connection"
    if found is None and stumbles and isinstance(error, _STUMBLES) and _raised_by(error) == stumbles:
        return "malformed"
    return found


def _raised_by(error: BaseException) -> str:
    """Return the package whose code raised an error."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return "" if at is None else str(at.tb_frame.f_globals.get("__name__", "")).partition(".")[0]


def classes_of(error: BaseException) -> set[str]:
    """Return the class of an error and its base classes, each as ``package.Name``."""
    packages = ((cls.__module__.partition(".")[0], cls.__name__) for cls in type(error).__mro__)
    return {f"{'httpx' if package == 'httpx2' else package}.{name}" for package, name in packages}


def describe(error: BaseException) -> str:
    """Return the messages of an error and its cause, or the class's name for an empty message."""
    words = [str(each).strip(". ") or type(each).__name__ for each in (error, error.__cause__) if each is not None]
    return ": ".join(dict.fromkeys(words))


def one_line(text: str, key: Secret | None) -> str:
    """Return a text in one line of limited length, without the key."""
    hidden = key.hidden_in(text) if key is not None else text
    line = " ".join(hidden.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def wait_in(headers: object) -> float | None:
    """Return the seconds of a ``Retry-After`` header, or None."""
    wait = fields_of(headers).get("retry-after")
    return None if wait is None else seconds(str(wait))


def seconds(retry_after: str | None) -> float | None:
    """Return the seconds of a ``Retry-After``, a number or a date (RFC 9110, section 10.2.3), or None."""
    try:
        return max(0.0, float(retry_after or ""))
    except ValueError:
        pass
    try:
        until = parsedate_to_datetime(retry_after or "")
    except ValueError:
        return None
    now = datetime.now(UTC)
    return max(0.0, (until - (now if until.tzinfo else now.replace(tzinfo=None))).total_seconds())


def _parse_body(body: object) -> tuple[str, str]:
    """Return the code, type and message of an error's body as one text, and the message alone."""
    if not is_mapping(body):
        return (body, body) if isinstance(body, str) else ("", "")
    inner = body.get("error")  # xAI's is the message itself
    if is_mapping(inner):
        return _parse_body(inner)
    message = body.get("message") or inner or body.get("detail")
    return " ".join(str(body.get(field)) for field in _FIELDS if body.get(field)) + f" {inner}", str(message or "")


def redirect_target(error: BaseException) -> str | None:
    """Return the address of a redirect that caused an error; empty without an address, None without a redirect."""
    found: list[str] = []
    for each in with_origins(error):
        answer: Any = getattr(each, "response", None)
        headers: Mapping[str, str] = getattr(answer, "headers", None) or {}
        status = getattr(each, "status_code", None) or getattr(answer, "status_code", None)
        if status in REDIRECTS:
            found.append(headers.get("location", ""))
    return max(found, default=None)


@contextmanager
def mask_in_errors(key: Secret | None) -> Generator[None]:
    """Mask a key in errors of the block."""
    try:
        yield
    except Exception as error:
        hide(error, key)
        raise


def hide(error: BaseException, key: Secret | None) -> None:
    """Mask a key in an error and its causes: some servers quote it."""
    if key is None:
        return
    for each in with_origins(error):
        each.args = tuple(_mask(arg, key) for arg in each.args)
        vars(each).update({name: _mask(value, key) for name, value in vars(each).items()})


def with_origins(error: BaseException) -> list[BaseException]:
    """Return an error with its causes and contexts."""
    found: list[BaseException] = []
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is not None and not any(each is known for known in found):
            found.append(each)
            left += (each.__cause__, each.__context__)
            left += (arg for arg in each.args if isinstance(arg, BaseException))
    return found


def _mask(value: object, key: Secret, depth: int = 0) -> object:
    """Return a JSON value with the key masked in its texts; other values are returned unchanged."""
    if depth > _DEPTH:
        return value
    if type(value) is str:  # not subclasses: a Reply must stay one
        return key.hidden_in(value)
    if isinstance(value, bytes):
        return key.hidden_in(value.decode("latin-1")).encode("latin-1")
    if is_list(value):
        return [_mask(item, key, depth + 1) for item in value]
    if is_dict(value):
        return {_mask(name, key, depth + 1): _mask(item, key, depth + 1) for name, item in value.items()}
    return value
