"""The meaning of what goes wrong in a client: by the class of an error, an HTTP status, and the words of a server.

Sources: the providers' references of errors (OpenAI, DeepSeek, Moonshot, xAI, SiliconFlow, Zhipu); the sources of vLLM,
SGLang, LMDeploy and llama.cpp's server; for words that no reference has, errors quoted in issues of their clients.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

from lazyprompt._base.client_objects import fields_of

if TYPE_CHECKING:
    from lazyprompt._base.secret import Secret

FaultKind: TypeAlias = Literal[
    "key",  # no key, or one that is refused
    "not found",  # there is no such model, or no such path at the server
    "overflow",  # the prompt is longer than the model takes
    "request",  # the server refuses the request for another reason
    "rate limit",  # too many requests, or the quota is used up
    "server",  # the server failed, or is overloaded
    "timeout",  # no answer in time
    "connection",  # no connection, or it was lost before the answer began
    "cut",  # a stream ended without its end; of a client's "connection", the module decides if an answer had begun
    "malformed",  # no answer of the API
    "too large",  # the answer exceeds max_answer_bytes
]


class Fault(NamedTuple):
    """A failure between a module and a model, in words that do not depend on the client.

    Attributes:
        kind: Its kind.
        message: The words of the client or the server, in one line, without keys.
        status: The HTTP status, if there was an answer.
        retry_after: Seconds after which the server asks to try again.
    """

    kind: FaultKind
    message: str
    status: int | None = None
    retry_after: float | None = None


# Redirects that clients would follow.
REDIRECTS = frozenset((301, 302, 303, 307, 308))
# The classes of errors that mean the same in every client: those of HTTP libraries, of parsers, and our own.
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
    402: "rate limit",  # nothing is left to pay with
    403: "key",
    404: "not found",
    408: "timeout",
    413: "overflow",
    424: "server",  # TGI: the generation failed
    429: "rate limit",
}
_NO_SUCCESS, _FIRST_OF_SERVER = 300, 500
# Statuses that say all; the words may quote somebody else.
_CLEAR = frozenset({401, 404, 408, 429})
# The words of servers of OpenAI's form in codes, types and messages, in lower case.
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
_SIGNS = ("code", "type", "message")
# A message that quotes the whole of a broken answer is cut here.
_LONGEST = 1_000
_DEPTH = 8  # the depth of a server's words in an error
# Packages that raise a RuntimeError where their client was closed under a call.
_HTTP = frozenset(("httpx", "httpx2"))
# The errors of code that trusts its server, where what came is no answer.
_STUMBLES = (TypeError, AttributeError, LookupError, ValueError)


class MalformedError(Exception):
    """An answer that is none, as the web page of a wrong address."""


class StreamedError(Exception):
    """An error that a server tells of within a stream.

    Args:
        body: Its JSON.
    """

    def __init__(self, body: Mapping[str, Any]) -> None:
        super().__init__(str(body.get("message")))
        self.body = body


class Refusal(NamedTuple):
    """The answer of a server that refuses.

    Attributes:
        status: The HTTP status; None within a stream.
        body: Its JSON, or its text.
        headers: Its headers.
    """

    status: object = None
    body: object = None
    headers: object = None


def fault_of(
    kind: FaultKind, error: Exception, refusal: Refusal, words: Mapping[str, FaultKind], key: Secret | None
) -> Fault:
    """Return the fault of an error.

    Args:
        kind: The meaning of its class; a "request" or "server" is distinguished by status and words.
        error: The error.
        refusal: The server's answer, as far as there is one.
        words: The words of this server.
        key: The key, which must not show.
    """
    status = refusal.status if isinstance(refusal.status, int) and refusal.status >= _NO_SUCCESS else None
    signs, message = _read(refusal.body)
    if kind in ("request", "server"):
        kind = kind_of_refusal(status, signs, words, key, kind)
    return Fault(kind, one_line(message or describe(error), key), status, wait_in(refusal.headers))


def kind_of_refusal(
    status: int | None, text: str, words: Mapping[str, FaultKind], key: Secret | None, otherwise: FaultKind = "server"
) -> FaultKind:
    """Return the meaning of a refusal: by its status where that is clear, by its words where they are known."""
    kind = otherwise
    if status is not None:
        kind = _STATUSES.get(status, "server" if status >= _FIRST_OF_SERVER else "request")
    if key is not None:  # what was masked in the answer is masked in the words to look for
        words = {key.hidden_in(known): meaning for known, meaning in words.items()}
    return kind if status in _CLEAR else kind_of_words(text, words) or kind


def kind_of_words(text: str, words: Mapping[str, FaultKind]) -> FaultKind | None:
    """Return the meaning of the first known words, in lower case, that are found."""
    lower = text.lower()
    return next((kind for known, kind in words.items() if known in lower), None)


def kind_of_class(error: BaseException, kinds: Mapping[str, FaultKind], stumbles: str = "") -> FaultKind | None:
    """Return the meaning of an error by its class; nothing is imported for that.

    Args:
        error: The error.
        kinds: Classes as ``package.Name``, special ones first; httpx2 counts as the httpx it was made from.
        stumbles: The client's package, whose own ``TypeError`` and the like mean an answer that is none.
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
    """Return the class of an error and all above it, each as ``package.Name``."""
    packages = ((cls.__module__.partition(".")[0], cls.__name__) for cls in type(error).__mro__)
    return {f"{'httpx' if package == 'httpx2' else package}.{name}" for package, name in packages}


def describe(error: BaseException) -> str:
    """Return the words of an error and of its cause; some say nothing but their name."""
    words = [str(each).strip(". ") or type(each).__name__ for each in (error, error.__cause__) if each is not None]
    return ": ".join(dict.fromkeys(words))


def one_line(text: str, key: Secret | None) -> str:
    """Return words without the key, in one line of a readable length."""
    hidden = key.hidden_in(text) if key is not None else text
    line = " ".join(hidden.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def wait_in(headers: object) -> float | None:
    """Return the seconds of a ``Retry-After`` among headers, if there are any."""
    return seconds(cast("Mapping[str, str]", headers).get("retry-after")) if isinstance(headers, Mapping) else None


def seconds(retry_after: str | None) -> float | None:
    """Return the seconds of a ``Retry-After``: a number or a date (RFC 9110, section 10.2.3); else None."""
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


def _read(body: object) -> tuple[str, str]:
    """Return all that tells what is wrong, and the message alone; of a body that is text, the text."""
    if not isinstance(body, Mapping):
        return (body, body) if isinstance(body, str) else ("", "")
    fields = fields_of(cast("object", body))
    inner = fields.get("error")  # xAI's is the message itself
    if isinstance(inner, Mapping):
        return _read(cast("object", inner))
    message = fields.get("message") or inner or fields.get("detail")
    return " ".join(str(fields.get(sign)) for sign in _SIGNS if fields.get(sign)) + f" {inner}", str(message or "")


def redirected_to(error: BaseException) -> str | None:
    """Return the address that a server redirects to, if that is what went wrong; empty where it names none."""
    found: list[str] = []
    for each in with_origins(error):
        answer: Any = getattr(each, "response", None)
        headers: Mapping[str, str] = getattr(answer, "headers", None) or {}
        status = getattr(each, "status_code", None) or getattr(answer, "status_code", None)
        if status in REDIRECTS:
            found.append(headers.get("location", ""))
    return max(found, default=None)


@contextmanager
def hiding(key: Secret | None) -> Generator[None]:
    """Mask a key in whatever error passes here."""
    try:
        yield
    except Exception as error:
        hide(error, key)
        raise


def hide(error: BaseException, key: Secret | None) -> None:
    """Mask a key in an error and in those behind it: some servers quote it."""
    if key is None:
        return
    for each in with_origins(error):
        each.args = tuple(_hidden(arg, key) for arg in each.args)
        vars(each).update({name: _hidden(value, key) for name, value in vars(each).items()})


def with_origins(error: BaseException) -> list[BaseException]:
    """Return an error, those that caused it, and those it was raised in the midst of."""
    found: list[BaseException] = []
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is not None and not any(each is known for known in found):
            found.append(each)
            left += (each.__cause__, each.__context__)
            left += (arg for arg in cast("tuple[object, ...]", each.args) if isinstance(arg, BaseException))
    return found


def _hidden(value: object, key: Secret, depth: int = 0) -> object:
    """Return a value with the key taken out of its texts; what is no JSON stays as it is."""
    if depth > _DEPTH:
        return value
    if type(value) is str:  # a reply is text that holds more than that
        return key.hidden_in(value)
    if isinstance(value, bytes):
        return key.hidden_in(value.decode("latin-1")).encode("latin-1")
    if isinstance(value, list):
        return [_hidden(item, key, depth + 1) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        items = cast("dict[object, object]", value).items()
        return {_hidden(name, key, depth + 1): _hidden(item, key, depth + 1) for name, item in items}
    return value
