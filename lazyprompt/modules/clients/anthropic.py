"""Anthropic's official client.

Source: the API reference, "Create a Message" and "Errors"; the guides "Structured outputs" and "Migrate to API version
2026-10-21"; the source of the client (2.12).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from lazyprompt._base.secret import Secret
from lazyprompt.errors import missing_extra
from lazyprompt.modules.client import Fault
from lazyprompt.modules.clients._anthropic_schema import expressible
from lazyprompt.modules.clients._anthropic_stream import AnthropicCollector
from lazyprompt.modules.clients._chat_faults import PageError, hiding
from lazyprompt.modules.clients._opened import Opened, key_of
from lazyprompt.modules.clients._parameters import check_parameters
from lazyprompt.modules.clients._said import kind_of_class, kind_of_status, kind_of_words, one_line, seconds, told
from lazyprompt.modules.clients._wire import own_http

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from types import ModuleType

    import anthropic as sdk
    import httpx2

    from lazyprompt._base.json import JsonObject
    from lazyprompt.modules.client import FaultKind, Request, Settings

# The API asks for a limit. All models take this one, the oldest no more; an answer that is cut there says so
# ("max_tokens" is its stop_reason). Thoughts count as well, so a budget for them comes on top.
DEFAULT_MAX_TOKENS = 4096

_NAMES = {"stop": "stop_sequences"}
_SAMPLING = (
    ", or use the API version that still had it: default_headers={{'anthropic-version': '2023-06-01'}} in options, and "
    "the parameter in extra_body"
)
_HINTS = {"temperature": _SAMPLING, "top_p": _SAMPLING, "top_k": _SAMPLING}
# Constructor arguments that are a credential of another kind.
_CREDENTIALS = frozenset({"auth_token", "credentials", "config", "profile"})

_CLASSES: dict[str, FaultKind] = {
    "anthropic.APITimeoutError": "timeout",
    "anthropic.APIConnectionError": "connection",
    "anthropic.APIResponseValidationError": "malformed",
    "anthropic.CredentialsError": "key",
    "anthropic.AnthropicError": "request",
    # What is read of a stream is not wrapped by the client.
    "httpx.TimeoutException": "timeout",
    "httpx.DecodingError": "malformed",
    "httpx.RequestError": "cut",
    "json.JSONDecodeError": "malformed",
    "builtins.UnicodeDecodeError": "malformed",
    "lazyprompt.PageError": "malformed",
}
_TYPES: dict[str, FaultKind] = {
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
_WORDS: dict[str, FaultKind] = {
    "prompt is too long": "overflow",
    "exceed context limit": "overflow",
    "credit balance is too low": "rate limit",
    # llama.cpp's and vLLM's own words, which have Anthropic's API too.
    "context size": "overflow",
    "maximum context length": "overflow",
}


def connect(settings: Settings) -> AnthropicClient:
    """A client for Anthropic, or for a server that speaks like it.

    Args:
        settings: ``options`` are further arguments of ``anthropic.Anthropic`` and ``anthropic.AsyncAnthropic``.
    """
    return AnthropicClient(settings)


class AnthropicClient:
    """The client; see :class:`lazyprompt.modules.client.Client`.

    Args:
        settings: How the official client is made.
    """

    retries_itself = True

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._key = None if settings.key is None else Secret(key_of(settings.key))
        self._opened = Opened(
            lambda: cast("sdk.Anthropic", self._made("Anthropic")),
            lambda: cast("sdk.AsyncAnthropic", self._made("AsyncAnthropic")),
        )

    def params(self, common: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters of ``messages.create``; ``max_tokens`` is :data:`DEFAULT_MAX_TOKENS` where none is given.

        Raises:
            ModuleError: The installed client has no such parameter: ``seed``, and from its version 2 on
                ``temperature`` and ``top_p``.
            MissingExtraError: The client is not installed.
        """
        params = {_NAMES.get(name, name): value for name, value in common.items()}
        sdk = _sdk()
        method = f"messages.create of the installed anthropic ({sdk.__version__})"
        for name in params:
            check_parameters([name], sdk.resources.Messages.create, method, advice=_HINTS.get(name, ""))
        thoughts: object = params.get("thinking")
        budget = cast("JsonObject", thoughts).get("budget_tokens") if isinstance(thoughts, dict) else None
        limit = DEFAULT_MAX_TOKENS + (budget if isinstance(budget, int) else 0)
        return {"max_tokens": limit, **params}

    def structured(self, schema: JsonObject, name: str) -> dict[str, Any] | None:  # noqa: ARG002 - others name theirs
        """``output_config`` with the schema in the form that the API takes, as the client itself makes it.

        Bounds and patterns are words in it, so an answer is to be held against the schema all the same. None is for
        schemas of which more would be lost (free keys, recursion), and for clients that know no such parameter.

        Raises:
            MissingExtraError: The client is not installed.
        """
        transform = getattr(_sdk(), "transform_schema", None)
        if transform is None or not expressible(schema):
            return None
        return {"output_config": {"format": {"type": "json_schema", "schema": transform(schema)}}}

    def send(self, request: Request) -> object:
        """The message."""
        with hiding(self._key):
            create: Any = self._opened.client().messages.create  # its overloads tell nothing of a dict's keys
            return _no_page(create(**_call(request)))

    async def asend(self, request: Request) -> object:
        """The message."""
        with hiding(self._key):
            create: Any = (await self._opened.aclient()).messages.create
            return _no_page(await create(**_call(request)))

    def stream(self, request: Request) -> Iterator[object]:
        """The raw events."""
        with hiding(self._key), self._opened.client().messages.create(**_call(request), stream=True) as events:
            _no_page_in(events.response)
            yield from events

    async def astream(self, request: Request) -> AsyncIterator[object]:
        """The raw events."""
        with hiding(self._key):
            client = await self._opened.aclient()
            async with await client.messages.create(**_call(request), stream=True) as events:
                _no_page_in(events.response)
                async for event in events:
                    yield event

    def collector(self) -> AnthropicCollector:
        """A new collector."""
        return AnthropicCollector()

    def fault(self, error: Exception) -> Fault | None:
        """What an error means: by the type that the API gives it, its words, its status, its class."""
        kind = kind_of_class(error, _CLASSES)
        if kind is None:
            return None
        given: Any = error  # a class of the client's, which need not be there
        response = getattr(given, "response", None)
        headers = getattr(response, "headers", {})
        status: int | None = getattr(given, "status_code", None)
        said = told(error)
        if status is not None and kind != "malformed":
            type_, said = _body(given.body, said)
            kind = _TYPES.get(type_) or kind_of_status(status)
            kind = kind_of_words(said, _WORDS) or kind if kind == "request" else kind
            # An error in a stream comes behind the status of success.
            status = status if status >= 400 else None  # noqa: PLR2004 - where errors begin
        return Fault(kind, one_line(said, self._key), status, seconds(headers.get("retry-after")))

    def close(self) -> None:
        """Close the client for threads."""
        client = self._opened.taken()
        if client is not None:
            client.close()

    async def aclose(self) -> None:
        """Close the client of the running event loop."""
        client = self._opened.ataken()
        if client is not None:
            await client.close()

    def _made(self, name: str) -> object:
        """Make one of the official clients."""
        base_url, key, timeout, retries, options = self._settings
        # A time-out of one's own is also what lets through calls that the client would have streamed, for they are
        # long: it counts on ten minutes at most.
        made: dict[str, Any] = {"base_url": base_url, "timeout": timeout, "max_retries": retries, **options}
        made |= own_http(_sdk(), name, options)
        if key is None and _CREDENTIALS & options.keys():
            return getattr(_sdk(), name)(**made)
        return getattr(_sdk(), name)(**{"api_key": key_of(key), **made})


def _sdk() -> ModuleType:
    try:
        import anthropic as sdk  # noqa: PLC0415 - an extra, and slow
    except ImportError as error:
        raise missing_extra("anthropic", "anthropic") from error
    return sdk


def _call(request: Request) -> dict[str, Any]:
    return {"model": request.model, **request.payload, **request.params}


def _no_page(answer: object) -> object:
    """An answer; the client gives back as text whatever has not the content type of JSON."""
    if isinstance(answer, str):
        raise PageError(answer)
    return answer


def _no_page_in(response: httpx2.Response) -> None:
    """Refuse a web page as a stream, which the client would find empty."""
    if "text/html" in response.headers.get("content-type", ""):
        raise PageError("text/html")


def _body(body: object, otherwise: str) -> tuple[str, str]:
    """The type and the message of an error, in the body that the API has for them."""
    given: object = cast("JsonObject", body).get("error") if isinstance(body, dict) else None
    error = cast("JsonObject", given) if isinstance(given, dict) else {}
    type_, message = error.get("type"), error.get("message")
    return type_ if isinstance(type_, str) else "", message if isinstance(message, str) and message else otherwise
