"""Classifies failed model calls by exception class, HTTP status and the server's error message.

Sources: the error references of OpenAI, DeepSeek, Moonshot, xAI, SiliconFlow and Zhipu; the source code of vLLM,
SGLang, LMDeploy and llama.cpp's server. Undocumented error messages are taken from the clients' GitHub issues.
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
    "key",  # the API key is missing or invalid
    "not found",  # the model or the path does not exist
    "overflow",  # the prompt exceeds the model's context window
    "request",  # the request is invalid for another reason
    "rate limit",  # too many requests, or an exhausted quota
    "server",  # a server error, or an overloaded server
    "timeout",  # the response did not arrive in time
    "connection",  # the connection failed before the response began
    "cut",  # the connection was lost during the response, or the stream ended before the final event
    "malformed",  # the response does not match the API's format
    "too large",  # the response exceeds max_answer_bytes
]


class Fault(NamedTuple):
    """A client-independent description of a failed call.

    Attributes:
        kind: The kind of failure.
        message: The error message from the client or server, on one line and without the API key.
        status: The HTTP status of the response, or None.
        retry_after: The server's ``Retry-After`` in seconds, or None.
    """

    kind: FaultKind
    message: str
    status: int | None = None
    retry_after: float | None = None


REDIRECTS = frozenset((301, 302, 303, 307, 308))
# The fault kinds of exceptions that all clients can raise, keyed by ``package.Name``.
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
    402: "rate limit",  # insufficient credit
    403: "key",
    404: "not found",
    408: "timeout",
    413: "overflow",
    424: "server",  # TGI's status for failed generation
    429: "rate limit",
}
_NO_SUCCESS, _FIRST_OF_SERVER = 300, 500
# Statuses that identify the fault. Phrases in the message are ignored, because the message may quote other text.
_CLEAR = frozenset({401, 404, 408, 429})
# Maps lower-case phrases in the error codes, types and messages of OpenAI-compatible servers to fault kinds.
WORDS: dict[str, FaultKind] = {
    "context_length_exceeded": "overflow",  # sent by OpenAI as an error code
    "exceed_context_size_error": "overflow",  # sent by llama.cpp as an error type
    "context size": "overflow",  # sent by llama.cpp: "exceeds the available context size"
    "maximum context length": "overflow",  # sent by OpenAI, DeepSeek, vLLM and Zhipu
    "context window": "overflow",  # sent by OpenAI: "exceeds the context window of this model"
    "maximum model length": "overflow",  # sent by vLLM
    "model's context length": "overflow",  # sent by SGLang
    "maximum prompt length": "overflow",  # sent by xAI
    "exceeded model token limit": "overflow",  # sent by Moonshot
    "max_seq_len": "overflow",  # sent by SiliconFlow
    "exceeds max length": "overflow",  # sent by Zhipu
    "prompt 超长": "overflow",  # sent by Zhipu
    "range of input length": "overflow",  # sent by DashScope
    "`inputs` must have less than": "overflow",  # sent by TGI
    "`inputs` tokens + `max_new_tokens` must be <=": "overflow",  # sent by TGI
    "incorrect api key": "key",  # sent by xAI with status 400
    "api key not valid": "key",  # sent by Gemini's OpenAI-compatible API with status 400
    "model not exist": "not found",  # sent by DeepSeek with status 400
    "model does not exist": "not found",  # sent by SiliconFlow with status 400
    "模型不存在": "not found",  # sent by Zhipu with status 400
    "invalid_model": "not found",  # sent by Mistral as an error type with status 400
    "invalid model name": "not found",  # sent by LiteLLM's proxy with status 400
    "arrearage": "key",  # sent by DashScope with status 400 if the account has unpaid bills, so retries are useless
    "insufficient balance": "rate limit",  # sent by DeepSeek and Moonshot
    "balance is insufficient": "rate limit",  # sent by SiliconFlow with status 403
    "any credits": "rate limit",  # sent by xAI with status 403 for an account that never had credits
    "available credits": "rate limit",  # sent by xAI with status 403 for an account without remaining credits
    "rate_limit": "rate limit",  # sent by OpenAI as an error code in a stream
}
_FIELDS = ("code", "type", "message")
# The maximum length of an error message in characters, because some messages quote a whole malformed response.
_LONGEST = 1_000
_DEPTH = 8  # the maximum depth of nested lists and dicts in which the API key is masked
# The packages that raise a RuntimeError if a client is closed during a call.
_HTTP = frozenset(("httpx", "httpx2"))
# The exceptions that an SDK may raise for a malformed response.
_STUMBLES = (TypeError, AttributeError, LookupError, ValueError)


class MalformedError(Exception):
    """Raised when a response does not come from the API, such as a web page at a wrong URL."""


class StreamedError(Exception):
    """Raised when a server reports an error in a stream.

    Args:
        body: The JSON object that describes the error.
    """

    def __init__(self, body: Mapping[str, Any]) -> None:
        super().__init__(str(body.get("message")))
        self.body = body


class ErrorResponse(NamedTuple):
    """A server's error response.

    Attributes:
        status: The HTTP status, or None for an error in a stream.
        body: The body, as JSON or text.
        headers: The HTTP headers.
    """

    status: object = None
    body: object = None
    headers: object = None


def fault_of(
    kind: FaultKind, error: Exception, refusal: ErrorResponse, words: Mapping[str, FaultKind], key: Secret | None
) -> Fault:
    """Convert an exception from a model call to a :class:`Fault`.

    Args:
        kind: The kind of failure that the exception's class indicates. For "request" and "server", the HTTP status and
            the error message may determine a more specific kind.
        error: The exception.
        refusal: The server's response; if the server sent no response, all fields of ``refusal`` are None.
        words: The kinds of failure, keyed by phrases in the server's error messages.
        key: The API key to mask.
    """
    status = refusal.status if isinstance(refusal.status, int) and refusal.status >= _NO_SUCCESS else None
    text, message = _parse_body(refusal.body)
    if kind in ("request", "server"):
        kind = kind_of_refusal(status, text, words, key, kind)
    return Fault(kind, one_line(message or describe(error), key), status, wait_in(refusal.headers))


def kind_of_refusal(
    status: int | None, text: str, words: Mapping[str, FaultKind], key: Secret | None, otherwise: FaultKind = "server"
) -> FaultKind:
    """Classify an error response by its status, or by phrases in its text if the status is ambiguous."""
    kind = otherwise
    if status is not None:
        kind = _STATUSES.get(status, "server" if status >= _FIRST_OF_SERVER else "request")
    # The API key may already be masked in the text. Mask the key in `words` too, so that a phrase that contains the key
    # still matches.
    if key is not None:
        words = {key.hidden_in(known): meaning for known, meaning in words.items()}
    return kind if status in _CLEAR else kind_of_words(text, words) or kind


def kind_of_words(text: str, words: Mapping[str, FaultKind]) -> FaultKind | None:
    """Return the kind of failure for the first key of ``words`` that an error message contains, or None."""
    lower = text.lower()
    return next((kind for known, kind in words.items() if known in lower), None)


def kind_of_class(error: BaseException, kinds: Mapping[str, FaultKind], stumbles: str = "") -> FaultKind | None:
    """Return the kind of failure that an exception's class indicates, without importing the client.

    Args:
        error: The exception.
        kinds: The kinds of failure, keyed by exception class (``package.Name``), with subclasses first. Exceptions from
            httpx2 are classified like the httpx exceptions with the same names.
        stumbles: The client's package, whose ``TypeError`` and similar exceptions indicate a malformed response.
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
    """Return the name of the package whose code raised an exception."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return "" if at is None else str(at.tb_frame.f_globals.get("__name__", "")).partition(".")[0]


def classes_of(error: BaseException) -> set[str]:
    """Return the names of an exception's class and its base classes, each as ``package.Name``."""
    packages = ((cls.__module__.partition(".")[0], cls.__name__) for cls in type(error).__mro__)
    return {f"{'httpx' if package == 'httpx2' else package}.{name}" for package, name in packages}


def describe(error: BaseException) -> str:
    """Join the messages of an exception and its cause, with the class name in place of an empty message."""
    words = [str(each).strip(". ") or type(each).__name__ for each in (error, error.__cause__) if each is not None]
    return ": ".join(dict.fromkeys(words))


def one_line(text: str, key: Secret | None) -> str:
    """Join the lines of a text, mask the API key, and limit the length."""
    hidden = key.hidden_in(text) if key is not None else text
    line = " ".join(hidden.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def wait_in(headers: object) -> float | None:
    """Return the delay in seconds from a ``Retry-After`` header, or None."""
    wait = fields_of(headers).get("retry-after")
    return None if wait is None else seconds(str(wait))


def seconds(retry_after: str | None) -> float | None:
    """Convert a ``Retry-After`` number or date to seconds (RFC 9110, section 10.2.3); return None if it is invalid."""
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
    """Return two strings: the joined code, type and message of an error response, and the message alone."""
    if not is_mapping(body):
        return (body, body) if isinstance(body, str) else ("", "")
    inner = body.get("error")  # the error field of an xAI response is a string
    if is_mapping(inner):
        return _parse_body(inner)
    message = body.get("message") or inner or body.get("detail")
    return " ".join(str(body.get(field)) for field in _FIELDS if body.get(field)) + f" {inner}", str(message or "")


def redirect_target(error: BaseException) -> str | None:
    """Return the target URL of the redirect that caused an exception, or None if no redirect caused it.

    If the redirect contains no target URL, return an empty string.
    """
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
    """Mask the API key in exceptions that the ``with`` block raises."""
    try:
        yield
    except Exception as error:
        hide(error, key)
        raise


def hide(error: BaseException, key: Secret | None) -> None:
    """Mask the API key in an exception and its causes, because some servers quote the key."""
    if key is None:
        return
    for each in with_origins(error):
        each.args = tuple(_mask(arg, key) for arg in each.args)
        vars(each).update({name: _mask(value, key) for name, value in vars(each).items()})


def with_origins(error: BaseException) -> list[BaseException]:
    """List an exception and all exceptions among its causes, contexts and arguments."""
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
    """Mask the API key in the strings of a JSON value; other values are returned unchanged."""
    if depth > _DEPTH:
        return value
    if type(value) is str:  # keep Reply objects, which are instances of a subclass of str
        return key.hidden_in(value)
    if isinstance(value, bytes):
        return key.hidden_in(value.decode("latin-1")).encode("latin-1")
    if is_list(value):
        return [_mask(item, key, depth + 1) for item in value]
    if is_dict(value):
        return {_mask(name, key, depth + 1): _mask(item, key, depth + 1) for name, item in value.items()}
    return value
