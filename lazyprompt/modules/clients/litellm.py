"""LiteLLM: one call for many providers.

Keys come with the call, or from the environment as LiteLLM finds them for the provider of the model. Its connections
are its own, one set for the whole process, and so are the threads it logs in: closing them is left to it
(``litellm.close_litellm_async_clients``). It keeps the keys it is given among them.

Three things more are the whole process's: what it prints beside its errors is turned off; its connections follow no
redirect; and where it is imported here
first, it takes the prices of models that it comes with, instead of asking the network for newer ones.

It would try again, but up to twice as often as it is set to, and for most providers without waiting; so that is left to
the module. A stream that ends too early it ends as if it was whole, up to version 1.108; that end is taken away here.
Events that are no JSON it leaves out without a word, for most providers.

Sources: LiteLLM's documentation, "Input Params", "Exception Mapping" and "Streaming"; its source (1.106, 1.109).
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from lazyprompt.errors import ModuleError
from lazyprompt.modules.clients._base import SETUP, OfficialClient, Request, key_of
from lazyprompt.modules.clients._faults import (
    WORDS,
    Fault,
    classes_of,
    kind_of_class,
    kind_of_refusal,
    kind_of_words,
    one_line,
    wait_in,
)
from lazyprompt.modules.clients.openai import ChatCollector

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Mapping

    from lazyprompt.modules.clients._faults import FaultKind

# It makes failures of the server of all these, with a status that the server never sent.
_BEHIND: dict[str, FaultKind] = {"openai.APITimeoutError": "timeout", "openai.APIConnectionError": "connection"}
_WORDS: dict[str, FaultKind] = {
    "empty or invalid response from llm endpoint": "malformed",
    "llm provider not provided": "not found",
    "stream ended before a finish_reason": "cut",  # from version 1.109 on
}
_LOCAL = "LITELLM_LOCAL_MODEL_COST_MAP"


class LiteLLMClient(OfficialClient):
    """The client of LiteLLM's one call, which knows of no schema whether a model takes it.

    Args:
        settings: ``options`` are further arguments of every call, as ``api_version``; ``base_url`` is its ``api_base``.
    """

    package = ("litellm", "litellm", "", "httpx2")
    method = "litellm:completion"
    called = "litellm.completion"
    collector = ChatCollector
    # What its errors mean where no server answered, and nothing that is behind them tells.
    kinds: ClassVar[Mapping[str, FaultKind]] = {
        "litellm.ContextWindowExceededError": "overflow",
        "litellm.AuthenticationError": "key",
        "litellm.NotFoundError": "not found",
        "litellm.RateLimitError": "rate limit",
        "litellm.Timeout": "timeout",
        "litellm.APIResponseValidationError": "malformed",
        "litellm.BadRequestError": "request",
        "openai.OpenAIError": "server",
    }

    def sdk(self) -> Any:
        """Import the official package, and keep it from the network."""
        with nullcontext() if "litellm" in sys.modules else _offline():
            return super().sdk()

    def _make(self, *, in_loop: bool) -> Any:
        """Return the function to call, when LiteLLM has been kept from redirects."""
        sdk = self.sdk()
        sdk.suppress_debug_info = True  # there is no such thing for a call alone
        _follow_no_redirects(sdk)
        return sdk.acompletion if in_loop else sdk.completion

    def _ask(self, client: Any, request: Request, **stream: bool) -> Any:
        answer = client(**self._call(request, **stream))
        if not stream:
            return answer
        return _abegin(answer) if hasattr(answer, "__await__") else _events(answer)

    def _call(self, request: Request, **stream: bool) -> dict[str, Any]:
        """Return the arguments of a call: copies, for LiteLLM changes messages on their way to some providers."""
        base_url, key, timeout, _, options = self._settings
        call: dict[str, Any] = {"model": request.model, **deepcopy(dict(request.payload)), "timeout": timeout}
        # The tokens of a stream are not asked for at an address of which nothing is known.
        if stream and (base_url is None or request.model.startswith("litellm_proxy/")):
            call["stream_options"] = {"include_usage": True}
        call |= {"num_retries": 0, "max_retries": 0, **options}
        call |= {} if base_url is None else {"api_base": base_url}
        call |= {} if key is None else {"api_key": key_of(key)}
        return {**call, **request.params, **stream}

    def fault(self, error: Exception) -> Fault | None:
        """Return the meaning of an error: by the server's answer, by what is behind it, or by its class."""
        kind = kind_of_class(error, self.kinds)
        if kind is None:
            return None
        text = str(error)
        line, behind = one_line(text, self._key), _behind(error)
        # Answers in LiteLLM's own errors are made up.
        answers = (getattr(each, "response", None) for each in behind if "httpx.HTTPStatusError" in classes_of(each))
        if (answer := next(answers, None)) is not None:
            refused = kind if kind == "overflow" else kind_of_refusal(answer.status_code, text, WORDS, self._key)
            return Fault(refused, line, answer.status_code, wait_in(answer.headers))
        known: FaultKind | None = next(filter(None, (kind_of_class(each, _BEHIND) for each in behind)), None)
        return Fault(known or kind_of_words(text, _WORDS) or kind, line)

    def close(self) -> None:
        """Do nothing: the connections are LiteLLM's."""

    async def aclose(self) -> None:
        """Do nothing: the connections are LiteLLM's."""


def _events(stream: Any) -> Generator[object]:
    """Yield the chunks, and close the stream: OpenAI's, or what reads the lines of another."""
    try:
        yield from (event for event in stream if not _is_made_up(stream, event))
    finally:
        for each in (stream.completion_stream, getattr(stream.completion_stream, "streaming_response", None)):
            if close := getattr(each, "close", None):
                close()


async def _abegin(answer: Any) -> AsyncGenerator[object]:
    return _aevents(await answer)


async def _aevents(stream: Any) -> AsyncGenerator[object]:
    try:
        async for event in stream:
            if not _is_made_up(stream, event):
                yield event
    finally:
        await stream.aclose()


def _is_made_up(stream: Any, event: Any) -> bool:
    """Return True if a chunk is the end that LiteLLM gives to a stream that had none."""
    finish = stream.received_finish_reason or stream.intermittent_finish_reason
    return not finish and any(choice.finish_reason for choice in event.choices)


def _follow_no_redirects(sdk: Any) -> None:
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
    def made(*arguments: Any, **named: Any) -> Any:
        client = make(*arguments, **named)
        if client is not None:
            client.follow_redirects = False
        return client

    return made


@contextmanager
def _offline() -> Generator[None]:
    """Keep LiteLLM from asking the network while it is imported, unless the environment has a setting for that."""
    if _LOCAL in os.environ:
        yield
        return
    with SETUP:
        os.environ[_LOCAL] = "True"
        try:
            yield
        finally:
            del os.environ[_LOCAL]


def _behind(error: BaseException) -> list[BaseException]:
    """Return the errors that led to one, the nearest first."""
    found: list[BaseException] = []
    each = error.__cause__ or error.__context__
    while each is not None and each not in found:
        found.append(each)
        each = each.__cause__ or each.__context__
    return found


connect = LiteLLMClient
