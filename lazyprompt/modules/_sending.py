"""Sends requests with limited concurrency and retries, and converts client errors to lazyprompt errors."""

from __future__ import annotations

import asyncio
import logging
import operator
from contextlib import aclosing, asynccontextmanager, closing, contextmanager, nullcontext
from threading import BoundedSemaphore
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from lazyprompt.errors import FormatError, LazyPromptError, import_extra
from lazyprompt.modules._reading import CutError, Exchange, PartialAnswer
from lazyprompt.modules.clients._faults import Fault, FaultKind, hide, redirect_target
from lazyprompt.modules.telemetry import CallHook, CallRecord, open_span

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence

    import tenacity

    from lazyprompt.answers.parser import Delta
    from lazyprompt.formatters.reply import Reply
    from lazyprompt.modules.clients._base import ClientSettings, OfficialClient

# The kinds of faults after which a call is retried.
# A stream is retried only until its first event arrives, because a later retry would repeat text that the caller
# received.
_PASSING: frozenset[FaultKind] = frozenset(("rate limit", "server", "timeout", "connection", "cut"))
_PASSING_STATUSES = frozenset((408, 409))
# The minimum and maximum delay before a retry, in seconds. A call fails if the server requests a longer delay.
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 60.0
_ADVICE: dict[FaultKind, str] = {
    "key": "pass a valid key as api_key= or set it in the environment",
    "not found": "check the model's name and the server's URL",
    "overflow": "shorten the prompt or set a budget with budget=Budget(tokens, counter)",
    "request": "the request breaks a rule of the server; inspect it with payload(...)",
    "rate limit": "reduce concurrency=, try again later, or raise the quota",
    "server": "try again later",
    "timeout": "try again, or increase timeout=",
    "connection": "check that the server is running and that its URL is correct",
    "cut": "the received part is in .partial; repeat the request",
    "malformed": "check that the URL belongs to the expected API",
    "too large": "increase max_answer_bytes= if you expect responses of this size",
}
_LOG = logging.getLogger("lazyprompt")
_END = object()  # marks the end of a stream


class _Loop(NamedTuple):
    """The limits for calls in one event loop.

    Attributes:
        places: The semaphore that limits concurrent calls, or None without a limit.
        turn: The lock that allows only one call at a time to prepare its request.
    """

    places: asyncio.Semaphore | None
    turn: asyncio.Lock


class Sender:
    """Sends requests with one client.

    Args:
        client: The client.
        source: The name of the source or engine, for call records and error messages.
        settings: The client's settings. The API key is masked in error messages.
        concurrency: The maximum number of concurrent calls; None for no limit. Sync calls from all threads share one
            limit, and async calls have a separate limit in each event loop.
        hooks: Functions called with the record of each call.
        failed: A function that creates an exception from a message, a fault and the partial reply.
    """

    def __init__(
        self,
        client: OfficialClient,
        source: str,
        settings: ClientSettings,
        concurrency: int | None,
        hooks: Sequence[CallHook],
        failed: Callable[[str, Fault, Reply | None], LazyPromptError],
    ) -> None:
        self.client = client
        self._source, self._key, self._concurrency = source, settings.key, concurrency
        self._hooks, self._failed = tuple(hooks), failed
        self._place = nullcontext() if concurrency is None else BoundedSemaphore(concurrency)
        self._loops: dict[AbstractEventLoop, _Loop] = {}
        self._loaded = False
        self._retry: Callable[..., Any] = operator.call
        self._aretry: Callable[..., Any] = operator.call
        if client.retries_itself:
            return
        # Import tenacity only if the client doesn't retry by itself, because not every extra installs tenacity.
        tenacity = import_extra("tenacity", "tenacity", client.package[1])
        self._longer = tenacity.wait_exponential_jitter(initial=_FIRST_WAIT, max=_LONGEST_WAIT, jitter=_FIRST_WAIT)
        again: dict[str, Any] = {
            "stop": tenacity.stop_after_attempt(1 + settings.retries),
            "wait": self._wait,
            "retry": tenacity.retry_if_exception(self._may_pass),
            "reraise": True,
        }

        def aretrying(call: Callable[..., Awaitable[object]], asked: object) -> Awaitable[object]:
            # Create a new retry object for each call, because concurrent tasks must not share retry state.
            waiting: Awaitable[object] = tenacity.AsyncRetrying(**again)(call, asked)
            return waiting

        self._retry, self._aretry = tenacity.Retrying(**again), aretrying

    def send(self, exchange: Exchange) -> Reply:
        """Send a request and return the reply.

        Raises:
            ModuleError: The model call failed.
        """
        with self._watch(exchange) as answer, self._place:
            whole: object = self._retry(self.client.send, exchange.request)
            answer.reply = exchange.reply(*exchange.reader.message(whole))
            return answer.reply

    async def asend(self, make: Callable[[], Exchange]) -> Reply:
        """Async version of :meth:`send`; cancelling the task closes the connection."""
        exchange = await self._make_in_turn(make)
        with self._watch(exchange) as answer:
            async with self._aplace():
                whole: object = await self._aretry(self.client.asend, exchange.request)
            answer.reply = exchange.reply(*exchange.reader.message(whole))
            return answer.reply

    def stream(self, exchange: Exchange, ended: Callable[[Reply], object]) -> Generator[Delta]:
        """Send a request and yield the deltas of its response.

        Args:
            exchange: The request and its response reader.
            ended: A function called with the complete reply at the end of the stream.

        Raises:
            ModuleError: The model call failed; the exception contains the received part of the response.
        """
        with self._watch(exchange, streamed=True) as answer, self._place:
            event, events = self._retry(self._begin, exchange)
            with closing(events):
                while event is not _END:
                    yield from answer.feed(event)
                    event = next(events, _END)
            yield from answer.finish()
            answer.reply = exchange.reply(*answer.message())
        ended(answer.reply)

    async def astream(self, make: Callable[[], Exchange], ended: Callable[[Reply], object]) -> AsyncGenerator[Delta]:
        """Async version of :meth:`stream`."""
        exchange = await self._make_in_turn(make)
        with self._watch(exchange, streamed=True) as answer:
            async with self._aplace():
                event, events = await self._aretry(self._abegin, exchange)
                async with aclosing(events):
                    while event is not _END:
                        for delta in answer.feed(event):
                            yield delta
                        event = await anext(events, _END)
            for delta in answer.finish():
                yield delta
            answer.reply = exchange.reply(*answer.message())
        ended(answer.reply)

    async def _make_in_turn(self, make: Callable[[], Exchange]) -> Exchange:
        """Create requests one at a time in each event loop.

        Tasks that are created together all start in the same iteration of their event loop. When 500 tasks created
        their requests in one iteration, they blocked the event loop for 0.4 to 1 s, and again when responses arrived
        together. When each task created its request in a separate iteration, 500 tasks blocked the event loop for 15 to
        50 ms, or 120 ms when responses arrived together. With ``concurrency=200``, 500 tasks blocked the event loop for
        at most 25 ms, because httpcore searches all open connections for each request. The first request imports the
        client in a thread, because the import takes up to two seconds.
        """
        async with self._loop().turn:
            if not self._loaded:
                exchange = await asyncio.to_thread(make)
                self._loaded = True
                return exchange
            await asyncio.sleep(0)
        return make()

    def _begin(self, exchange: Exchange) -> tuple[object, Generator[object]]:
        """Return a stream's first event (`_END` if the stream is empty), and an iterator over the remaining events."""
        events = self.client.stream(exchange.request)
        return next(events, _END), events

    async def _abegin(self, exchange: Exchange) -> tuple[object, AsyncGenerator[object]]:
        events = self.client.astream(exchange.request)
        return await anext(events, _END), events

    @contextmanager
    def _watch(self, exchange: Exchange, *, streamed: bool = False) -> Generator[PartialAnswer]:
        """Record a call when it ends, and convert its exceptions to lazyprompt errors."""
        answer, begun = PartialAnswer(exchange), perf_counter()
        request = exchange.request
        failure: BaseException | None = None
        with open_span(self._source, request) as record_span:
            try:
                yield answer
            except Exception as error:
                failure = self._as_error(error, answer)
                # Don't loop over the errors: the loop variable would appear in a traceback that shows local variables.
                hide(failure, self._key)
                hide(error, self._key)
                if failure is error:
                    raise
                raise failure from error
            except BaseException as error:  # the stream was closed, or the task was cancelled
                failure = error
                raise
            finally:
                partial: Reply | None = getattr(failure, "partial", None)
                reply = answer.partial() if partial is None else partial
                record_span(reply, failure)
                ended = perf_counter() - begun, streamed
                self._record(CallRecord(self._source, *request[:3], reply, failure, *ended, request.secrets))

    def _record(self, record: CallRecord) -> None:
        for hook in self._hooks:
            try:
                hook(record)
            except Exception:  # noqa: BLE001 - a failing hook must not discard the reply
                _LOG.exception("a hook failed on the record of a call to %s", self._source)

    def _as_error(self, error: Exception, answer: PartialAnswer) -> Exception:
        """Convert a client's exception to a lazyprompt error, or return any other exception unchanged."""
        if isinstance(error, FormatError | RecursionError):  # deeply nested JSON raises a RecursionError
            fault: Fault | None = Fault("malformed", str(error))
        elif isinstance(error, LazyPromptError):
            return error
        elif isinstance(error, CutError):
            fault = Fault("cut", "the stream ended before its final event")
        else:
            fault = self.client.fault(error)
        if fault is None:
            return error
        if (moved := redirect_target(error)) is not None:
            fault = fault._replace(kind="not found", message=_describe_redirect(moved))
        # Clients classify lost connections differently, so check whether the response had begun.
        if fault.kind in ("connection", "cut"):
            fault = fault._replace(kind="cut" if answer.begun else "connection")
        status = f" (HTTP {fault.status})" if fault.status else ""
        message = f"{self._source}: {fault.message}{status}; {_ADVICE[fault.kind]}"
        return self._failed(message, fault, answer.partial())

    def _may_pass(self, error: BaseException) -> bool:
        """Return True if retrying the call may succeed."""
        fault = self.client.fault(error) if isinstance(error, Exception) else None
        if fault is None or (fault.retry_after or 0) > _LONGEST_WAIT:
            return False
        return fault.kind in _PASSING or fault.status in _PASSING_STATUSES

    def _wait(self, state: tenacity.RetryCallState) -> float:
        """Return the delay before a retry in seconds: the server's ``Retry-After``, or an exponential back-off."""
        error = None if state.outcome is None else state.outcome.exception()
        fault = self.client.fault(error) if isinstance(error, Exception) else None
        if fault is not None and fault.retry_after is not None:
            return fault.retry_after
        return float(self._longer(state))

    @asynccontextmanager
    async def _aplace(self) -> AsyncGenerator[None]:
        places = self._loop().places
        if places is None:
            yield
            return
        async with places:
            async with self._loop().turn:
                await asyncio.sleep(0)
            yield

    def _loop(self) -> _Loop:
        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is not None:
            return found
        for each in list(self._loops):
            if each.is_closed():
                self._loops.pop(each, None)
        places = None if self._concurrency is None else asyncio.Semaphore(self._concurrency)
        return self._loops.setdefault(loop, _Loop(places, asyncio.Lock()))


def _describe_redirect(location: str) -> str:
    """Describe the target of a redirect, without the parts of its URL that may be secret."""
    to = urlsplit(location)
    place = f"{to.scheme}://{to.netloc.rpartition('@')[2]}" if to.netloc else "another URL"
    return f"the server redirects to {place}; redirects are not followed, because they would forward the key and prompt"
