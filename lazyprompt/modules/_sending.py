"""Sends requests: limits concurrency, retries, and converts every failure to one kind of error."""

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

# Faults to retry. A stream that has begun is never retried: its beginning would be repeated.
_PASSING: frozenset[FaultKind] = frozenset(("rate limit", "server", "timeout", "connection", "cut"))
_PASSING_STATUSES = frozenset((408, 409))
# Seconds before the first retry, and the maximum before any; there is no retry if a server asks for more.
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 60.0
_ADVICE: dict[FaultKind, str] = {
    "key": "give a valid key: api_key=, or the environment variable",
    "not found": "check the model's name and the server's address",
    "overflow": "shorten it, or give a budget: budget=Budget(tokens, counter)",
    "request": "the request breaks a rule of the server; payload(...) shows it",
    "rate limit": "send less at once (concurrency=), try again later, or raise the quota",
    "server": "try again later",
    "timeout": "try again, or give a larger timeout=",
    "connection": "check that the server is running, and its address",
    "cut": "the received part is in .partial; ask again",
    "malformed": "check that its address is that of such an API",
    "too large": "give a larger max_answer_bytes= if you expect such answers",
}
_LOG = logging.getLogger("lazyprompt")
_END = object()  # marks the end of a stream


class _Loop(NamedTuple):
    """The semaphore of an event loop, or None without a limit, and the lock with which its calls take turns."""

    places: asyncio.Semaphore | None
    turn: asyncio.Lock


class Sender:
    """Sends requests with one client.

    Args:
        client: The client.
        source: The name of the source or engine in records and errors.
        settings: The settings of the client; errors don't contain its key.
        concurrency: The maximum number of concurrent calls, in threads and in each event loop; None for no limit.
        hooks: Functions called with the record of each call.
        failed: A function that creates the error, from its message, the fault and the received part of the answer.
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
        # Installed only with clients that don't retry themselves.
        tenacity = import_extra("tenacity", "tenacity", client.package[1])
        self._longer = tenacity.wait_exponential_jitter(initial=_FIRST_WAIT, max=_LONGEST_WAIT, jitter=_FIRST_WAIT)
        again: dict[str, Any] = {
            "stop": tenacity.stop_after_attempt(1 + settings.retries),
            "wait": self._wait,
            "retry": tenacity.retry_if_exception(self._may_pass),
            "reraise": True,
        }

        def aretrying(call: Callable[..., Awaitable[object]], asked: object) -> Awaitable[object]:
            # Create an object for each call: tasks of one event loop would share its state.
            waiting: Awaitable[object] = tenacity.AsyncRetrying(**again)(call, asked)
            return waiting

        self._retry, self._aretry = tenacity.Retrying(**again), aretrying

    def send(self, exchange: Exchange) -> Reply:
        """Send a request, and return the answer.

        Raises:
            ModuleError: The call failed.
        """
        with self._watch(exchange) as answer, self._place:
            whole: object = self._retry(self.client.send, exchange.request)
            answer.reply = exchange.reply(*exchange.reader.message(whole))
            return answer.reply

    async def asend(self, make: Callable[[], Exchange]) -> Reply:
        """Async version of :meth:`send`; cancelling it closes the connection."""
        exchange = await self._make_in_turn(make)
        with self._watch(exchange) as answer:
            async with self._aplace():
                whole: object = await self._aretry(self.client.asend, exchange.request)
            answer.reply = exchange.reply(*exchange.reader.message(whole))
            return answer.reply

    def stream(self, exchange: Exchange, ended: Callable[[Reply], object]) -> Generator[Delta]:
        """Send a request, and yield the pieces of the answer.

        Args:
            exchange: The request, and the reader of its answer.
            ended: A function called with the whole answer at the end.

        Raises:
            ModuleError: The call failed; the error has the received part of the answer.
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
        """Make the requests of an event loop one at a time.

        Tasks created together all start in one step of their loop: 500 of them blocked it for 0.4 to 1 s while prompts
        and requests were made, and again when their answers arrived together. With a step for each, the loop was
        blocked for 15 to 50 ms, and for 120 ms when answers arrived together. With ``concurrency=200``, it was never
        blocked for more than 25 ms, since httpcore searches all connections for each request. The first request imports
        the client in a thread, which takes up to two seconds.
        """
        async with self._loop().turn:
            if not self._loaded:
                exchange = await asyncio.to_thread(make)
                self._loaded = True
                return exchange
            await asyncio.sleep(0)
        return make()

    def _begin(self, exchange: Exchange) -> tuple[object, Generator[object]]:
        """Return the first event of a stream, or `_END` if there is none, and the iterator of the others."""
        events = self.client.stream(exchange.request)
        return next(events, _END), events

    async def _abegin(self, exchange: Exchange) -> tuple[object, AsyncGenerator[object]]:
        events = self.client.astream(exchange.request)
        return await anext(events, _END), events

    @contextmanager
    def _watch(self, exchange: Exchange, *, streamed: bool = False) -> Generator[PartialAnswer]:
        """Record a call at its end, and convert failures to lazyprompt's errors."""
        answer, begun = PartialAnswer(exchange), perf_counter()
        request = exchange.request
        failure: BaseException | None = None
        with open_span(self._source, request) as record_span:
            try:
                yield answer
            except Exception as error:
                failure = self._as_error(error, answer)
                # Not in a loop: tracebacks would show its variable.
                hide(failure, self._key)
                hide(error, self._key)
                if failure is error:
                    raise
                raise failure from error
            except BaseException as error:  # the stream was closed, or the task cancelled
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
            except Exception:  # noqa: BLE001 - a failing hook must not cost the caller the answer
                _LOG.exception("a hook failed on the record of a call of %s", self._source)

    def _as_error(self, error: Exception, answer: PartialAnswer) -> Exception:
        """Convert a client's failure to lazyprompt's error; other errors are returned unchanged."""
        if isinstance(error, FormatError | RecursionError):  # RecursionError: JSON nested too deeply
            fault: Fault | None = Fault("malformed", str(error))
        elif isinstance(error, LazyPromptError):
            return error
        elif isinstance(error, CutError):
            cut = Fault("cut", "the stream ended before its final event")
            fault = cut if answer.begun else Fault("malformed", "the stream was empty")
        else:
            fault = self.client.fault(error)
        if fault is None:
            return error
        if (moved := redirect_target(error)) is not None:
            fault = fault._replace(kind="not found", message=_describe_redirect(moved))
        # Clients name lost connections differently; the kind depends on whether the answer had begun.
        if fault.kind in ("connection", "cut"):
            fault = fault._replace(kind="cut" if answer.begun else "connection")
        status = f" (HTTP {fault.status})" if fault.status else ""
        message = f"{self._source}: {fault.message}{status}; {_ADVICE[fault.kind]}"
        return self._failed(message, fault, answer.partial())

    def _may_pass(self, error: BaseException) -> bool:
        """Return True if a retry may succeed."""
        fault = self.client.fault(error) if isinstance(error, Exception) else None
        if fault is None or (fault.retry_after or 0) > _LONGEST_WAIT:
            return False
        return fault.kind in _PASSING or fault.status in _PASSING_STATUSES

    def _wait(self, state: tenacity.RetryCallState) -> float:
        """Return the seconds to wait: the server's ``Retry-After``, or an exponential back-off."""
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
    """Describe the target of a redirect, without the parts of the address that could be secret."""
    to = urlsplit(location)
    place = f"{to.scheme}://{to.netloc.rpartition('@')[2]}" if to.netloc else "another address"
    return f"the server redirects to {place}; redirects are not followed, since they would send the key and prompt on"
