"""LiteLLM: one call for many providers.

Keys come with the call, or from the environment as LiteLLM finds them for the provider of the model. Its connections
are its own, one set for the whole process, and so are the threads it logs in: closing them is left to it
(``litellm.close_litellm_async_clients``). It keeps the keys it is given among them.

Three things more are the whole process's: what it prints beside its errors is turned off; its connections follow no
redirect; and where it is imported here
first, it takes the prices of models that it comes with, instead of asking the network for newer ones.

It would try again, but up to twice as often as it is told, and for most providers without waiting; so that is left to
the module. A stream that ends too early it ends as if it was whole, up to version 1.108; that end is taken away here.
Events that are no JSON it leaves out without a word, for most providers.

Sources: LiteLLM's documentation, "Input Params", "Exception Mapping" and "Streaming"; its source (1.106, 1.109).
"""

from __future__ import annotations

import os
import sys
from asyncio import to_thread
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from lazyprompt._base.secret import Secret
from lazyprompt.errors import ModuleError, missing_extra
from lazyprompt.modules.client import Fault
from lazyprompt.modules.clients._chat_faults import hiding, kind_of_refusal, wait_in
from lazyprompt.modules.clients._chat_stream import ChatCollector
from lazyprompt.modules.clients._opened import key_of
from lazyprompt.modules.clients._parameters import COMMON, check_parameters
from lazyprompt.modules.clients._said import classes_of, kind_of_class, kind_of_words, one_line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping

    import httpx

    from lazyprompt._base.json import JsonObject
    from lazyprompt.modules.client import FaultKind, Request, Settings

# What its errors mean where no server answered, and nothing that is behind them tells.
_CLASSES: dict[str, FaultKind] = {
    "litellm.ContextWindowExceededError": "overflow",
    "litellm.AuthenticationError": "key",
    "litellm.NotFoundError": "not found",
    "litellm.RateLimitError": "rate limit",
    "litellm.Timeout": "timeout",
    "litellm.APIResponseValidationError": "malformed",
    "litellm.BadRequestError": "request",
    "openai.OpenAIError": "server",
}
# It makes failures of the server of all these, with a status that the server never sent.
_BEHIND: dict[str, FaultKind] = {
    "openai.APITimeoutError": "timeout",
    "httpx.TimeoutException": "timeout",
    "openai.APIConnectionError": "connection",
    "httpx.TransportError": "connection",
    "json.JSONDecodeError": "malformed",
    "builtins.UnicodeDecodeError": "malformed",
}
_WORDS: dict[str, FaultKind] = {
    "empty or invalid response from llm endpoint": "malformed",
    "llm provider not provided": "not found",
    "stream ended before a finish_reason": "cut",  # from version 1.109 on
}
_LOCAL = "LITELLM_LOCAL_MODEL_COST_MAP"


def connect(settings: Settings) -> LiteLLMClient:
    """A client for whatever LiteLLM knows.

    Args:
        settings: ``options`` are further arguments of every call, as ``api_version``; ``base_url`` is its ``api_base``.

    Raises:
        ModuleError: The key is none.
    """
    return LiteLLMClient(settings)


class LiteLLMClient:
    """The client; see :class:`lazyprompt.modules.client.Client`.

    Args:
        settings: What goes with each call.
    """

    retries_itself = False

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._key = None if settings.key is None else Secret(key_of(settings.key))

    def params(self, common: Mapping[str, Any]) -> dict[str, Any]:
        """Return parameters of ``completion``, which has the common names.

        Raises:
            ModuleError: A name looks like a misspelling; other unknown names go to the provider.
            MissingExtraError: The client is not installed.
        """
        if further := common.keys() - COMMON:
            check_parameters(sorted(further), _sdk().completion, "litellm.completion")
        return dict(common)

    def structured(self, schema: JsonObject, name: str) -> dict[str, Any] | None:  # noqa: ARG002 - others take one
        """None: whether a schema is taken depends on the model, of which nothing is known here."""
        return None

    def send(self, request: Request) -> object:
        """The answer."""
        with hiding(self._key):
            return cast("object", _sdk().completion(**self._call(request)))

    async def asend(self, request: Request) -> object:
        """The answer."""
        with hiding(self._key):
            litellm = await to_thread(_sdk)
            return cast("object", await litellm.acompletion(**self._call(request)))

    def stream(self, request: Request) -> Iterator[object]:
        """The chunks."""
        with hiding(self._key):
            events = _sdk().completion(**self._streamed(request))
            try:
                yield from (event for event in events if not _is_made_up(events, event))
            finally:
                _close(events.completion_stream)

    async def astream(self, request: Request) -> AsyncIterator[object]:
        """The chunks."""
        with hiding(self._key):
            litellm = await to_thread(_sdk)
            events = await litellm.acompletion(**self._streamed(request))
            try:
                async for event in events:
                    if not _is_made_up(events, event):
                        yield event
            finally:
                await events.aclose()

    def collector(self) -> ChatCollector:
        """A new collector."""
        return ChatCollector()

    def fault(self, error: Exception) -> Fault | None:
        """What an error means: by what the server answered, by what is behind it, or by its class."""
        kind = kind_of_class(error, _CLASSES)
        if kind is None:
            return None
        said = str(error)
        line, behind = one_line(said, self._key), _behind(error)
        answer = next(filter(None, map(_answer_in, behind)), None)
        if answer is not None:
            refused = kind if kind == "overflow" else kind_of_refusal(answer.status_code, said, self._key)
            return Fault(refused, line, answer.status_code, wait_in(answer.headers))
        known: FaultKind | None = next(filter(None, (kind_of_class(each, _BEHIND) for each in behind)), None)
        if known == "connection" and getattr(error, "is_pre_first_chunk", True) is False:
            known = "cut"
        return Fault(known or kind_of_words(said, _WORDS) or kind, line)

    def close(self) -> None:
        """Nothing: the connections are LiteLLM's."""

    async def aclose(self) -> None:
        """Nothing: the connections are LiteLLM's."""

    def _call(self, request: Request) -> dict[str, Any]:
        """The arguments of a call: copies, for LiteLLM changes messages on their way to some providers."""
        base_url, key, timeout, _, options = self._settings
        call: dict[str, Any] = {"model": request.model, **deepcopy(dict(request.payload)), "timeout": timeout}
        call |= {"num_retries": 0, "max_retries": 0, **options}
        call |= {} if base_url is None else {"api_base": base_url}
        call |= {} if key is None else {"api_key": key_of(key)}
        return {**call, **request.params}

    def _streamed(self, request: Request) -> dict[str, Any]:
        """The same for a stream; its tokens are not asked for at an address of which nothing is known."""
        known = self._settings.base_url is None or request.model.startswith("litellm_proxy/")
        usage = {"stream_options": {"include_usage": True}} if known else {}
        return {**usage, **self._call(request), "stream": True}


def _sdk() -> Any:  # noqa: ANN401 - a package that may not be there
    try:
        with nullcontext() if "litellm" in sys.modules else _offline():
            sdk: Any = import_module("litellm")  # an extra, and very slow
    except ImportError as error:
        raise missing_extra("litellm", "litellm") from error
    sdk.suppress_debug_info = True  # there is no such thing for a call alone
    _follow_no_redirects(sdk)
    return sdk


def _follow_no_redirects(sdk: Any) -> None:  # noqa: ANN401 - a package that may not be there
    """Make LiteLLM's HTTP clients follow no redirect: some take the key along, all of them the conversation.

    Raises:
        ModuleError: This version of LiteLLM makes its clients in another way.
    """
    try:
        handlers = import_module("litellm.llms.custom_httpx.http_handler")
        openai = import_module("litellm.llms.openai.common_utils").BaseOpenAILLM
        places = (
            *((owner, "create_client") for owner in (handlers.HTTPHandler, handlers.AsyncHTTPHandler)),
            *((openai, name) for name in ("_get_sync_http_client", "_get_async_http_client")),
        )
        makers = [(owner, name, getattr(owner, name)) for owner, name in places]
        cache = sdk.in_memory_llm_clients_cache
    except (ImportError, AttributeError) as error:
        raise ModuleError(
            f"this version of litellm cannot be kept from taking keys along to another address ({error}); install the "
            "newest, or ask the provider by its own source"
        ) from error
    if any(hasattr(make, "__wrapped__") for _, _, make in makers):
        return
    for owner, name, make in makers:
        setattr(owner, name, staticmethod(_not_following(make)) if owner is openai else _not_following(make))
    cache.flush_cache()  # those made before


def _not_following(make: Callable[..., Any]) -> Callable[..., Any]:
    """Make clients as a function does, that follow no redirect."""

    @wraps(make)
    def made(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - LiteLLM's own
        client = make(*arguments, **named)
        if client is not None:
            client.follow_redirects = False
        return client

    return made


@contextmanager
def _offline() -> Generator[None]:
    """Keep LiteLLM from asking the network while it is imported, unless somebody said what it is to do."""
    if _LOCAL in os.environ:
        yield
        return
    os.environ[_LOCAL] = "True"
    try:
        yield
    finally:
        del os.environ[_LOCAL]


def _behind(error: BaseException) -> list[BaseException]:
    """The errors that led to one, the nearest first."""
    found: list[BaseException] = []
    each = error.__cause__ or error.__context__
    while each is not None and each not in found:
        found.append(each)
        each = each.__cause__ or each.__context__
    return found


def _answer_in(error: BaseException) -> httpx.Response | None:
    """The server's refusal, where an error is that; those in LiteLLM's own errors are made up."""
    return cast("Any", error).response if "httpx.HTTPStatusError" in classes_of(error) else None


def _close(stream: object) -> None:
    """Close a stream for threads, which LiteLLM has no word for: OpenAI's, or what reads the lines of another."""
    for each in (stream, getattr(stream, "streaming_response", None)):
        if hasattr(each, "close"):
            cast("Any", each).close()


def _is_made_up(events: Any, event: Any) -> bool:  # noqa: ANN401 - LiteLLM's own, which has no types
    """Whether a chunk is the end that LiteLLM gives to a stream that had none."""
    said = events.received_finish_reason or events.intermittent_finish_reason
    return not said and any(choice.finish_reason for choice in event.choices)
