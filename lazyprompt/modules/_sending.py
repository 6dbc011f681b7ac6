"""Requests: a bounded number at once, retried if that may help, with every failure as one kind of error."""

from __future__ import annotations

import asyncio
import logging
import operator
from contextlib import aclosing, asynccontextmanager, closing, contextmanager, nullcontext
from threading import BoundedSemaphore
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import urlsplit

from lazyprompt.errors import FormatError, LazyPromptError, import_extra
from lazyprompt.modules._reading import Answer, CutError, Exchange
from lazyprompt.modules.clients._faults import Fault, FaultKind, hide, redirected_to
from lazyprompt.modules.telemetry import CallHook, CallRecord, span_of

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence

    import tenacity

    from lazyprompt.answers.parser import Delta
    from lazyprompt.formatters.reply import Reply
    from lazyprompt.modules.clients._base import OfficialClient, Settings

# What may be gone by itself soon. Once a stream has begun, nothing is tried again: its beginning would come twice.
_PASSING: frozenset[FaultKind] = frozenset(("rate limit", "server", "timeout", "connection", "cut"))
_PASSING_STATUSES = frozenset((408, 409))
# Seconds before the second attempt, and at most before any; a server that asks for more than that is not waited for.
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 60.0
_ADVICE: dict[FaultKind, str] = {
    "key": "give a right key: api_key=, or the variable of the environment",
    "not found": "look at the model's name and the server's address",
    "overflow": "shorten it, or give a budget: budget=Budget(tokens, counter)",
    "request": "the request breaks a rule of the server; payload(...) shows what is sent",
    "rate limit": "send less at once (concurrency=), try again later, or raise the quota",
    "server": "try again later",
    "timeout": "try again, or give a larger timeout=",
    "connection": "is the server up, and its address right?",
    "cut": "what came is in .partial; ask again",
    "malformed": "is its address that of such an API?",
}
_LOG = logging.getLogger("lazyprompt")
_END = object()  # behind the last event of a stream


class _Loop(NamedTuple):
    """The waits of calls in one event loop: for a free place if those are bounded, and for their turn to begin."""

    places: asyncio.Semaphore | None
    turn: asyncio.Lock


class Sender:
    """Sends requests with one client.

    Args:
        client: The client.
        source: The name of the source or engine in records and errors.
        settings: The settings of the client; its key shows in no error.
        concurrency: The number of calls under way at once, in threads, and in each event loop; None for any number.
        hooks: Functions that are given the record of each call.
        failed: Makes the error of a fault, given its words, the fault and the part of the answer that came.
    """

    def __init__(
        self,
        client: OfficialClient,
        source: str,
        settings: Settings,
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
        self._tried: Callable[..., Any] = operator.call
        self._atried: Callable[..., Any] = operator.call
        if client.retries_itself:
            return
        # Only the extras of clients that do not retry by themselves have it.
        tenacity = import_extra("tenacity", "tenacity", client.package[1])
        self._longer = tenacity.wait_exponential_jitter(initial=_FIRST_WAIT, max=_LONGEST_WAIT, jitter=_FIRST_WAIT)
        again: dict[str, Any] = {
            "stop": tenacity.stop_after_attempt(1 + settings.retries),
            "wait": self._wait,
            "retry": tenacity.retry_if_exception(self._may_pass),
            "reraise": True,
        }

        def aretrying(call: Callable[..., Awaitable[object]], asked: object) -> Awaitable[object]:
            # Each thread has a state of its own in one object; tasks of one loop would share theirs.
            return cast("Awaitable[object]", tenacity.AsyncRetrying(**again)(call, asked))

        self._tried, self._atried = tenacity.Retrying(**again), aretrying

    def send(self, exchange: Exchange) -> Reply:
        """Return the answer.

        Raises:
            ModuleError: There is none.
        """
        with self._watched(exchange) as answer, self._place:
            whole: object = self._tried(self.client.send, exchange.request)
            answer.reply = exchange.reply(*exchange.reader.message(whole))
            return answer.reply

    async def asend(self, make: Callable[[], Exchange]) -> Reply:
        """Async version of :meth:`send`; cancelling it closes the connection."""
        exchange = await self._in_turn(make)
        with self._watched(exchange) as answer:
            async with self._aplace():
                whole: object = await self._atried(self.client.asend, exchange.request)
            answer.reply = exchange.reply(*exchange.reader.message(whole))
            return answer.reply

    def stream(self, exchange: Exchange, ended: Callable[[Reply], object]) -> Generator[Delta]:
        """Yield the answer piece by piece.

        Args:
            exchange: The request, and the reader of its answer.
            ended: Called with the whole answer at the end.

        Raises:
            ModuleError: There is none; the part of it that came is in the error.
        """
        with self._watched(exchange, streamed=True) as answer, self._place:
            event, events = self._tried(self._begin, exchange)
            with closing(events):
                while event is not _END:
                    yield from answer.feed(event)
                    event = next(events, _END)
            yield from answer.finish()
            answer.reply = exchange.reply(*answer.message())
        ended(answer.reply)

    async def astream(self, make: Callable[[], Exchange], ended: Callable[[Reply], object]) -> AsyncGenerator[Delta]:
        """Async version of :meth:`stream`."""
        exchange = await self._in_turn(make)
        with self._watched(exchange, streamed=True) as answer:
            async with self._aplace():
                event, events = await self._atried(self._abegin, exchange)
                async with aclosing(events):
                    while event is not _END:
                        for delta in answer.feed(event):
                            yield delta
                        event = await anext(events, _END)
            for delta in answer.finish():
                yield delta
            answer.reply = exchange.reply(*answer.message())
        ended(answer.reply)

    async def _in_turn(self, make: Callable[[], Exchange]) -> Exchange:
        """Make a request of an event loop when it is its turn.

        Tasks that are made together all begin in one step of their loop. With 500 of them it stood still for 0.4 to 1 s
        while prompts and requests were made, and again when the answers came as close together. So each begins in a
        step of its own: then it was 15 to 50 ms, and 120 where answers came in bunches all the same; with 200 under way
        at most (``concurrency``), for httpcore looks through all connections for each of them, never more than 25. And
        the first one imports its client, which takes up to two seconds: in a thread.
        """
        async with self._loop().turn:
            if not self._loaded:
                exchange = await asyncio.to_thread(make)
                self._loaded = True
                return exchange
            await asyncio.sleep(0)
        return make()

    def _begin(self, exchange: Exchange) -> tuple[object, Generator[object]]:
        """Return the first event of a stream, or `_END` if there is none, and the others."""
        events = cast("Generator[object]", self.client.stream(exchange.request))
        return next(events, _END), events

    async def _abegin(self, exchange: Exchange) -> tuple[object, AsyncGenerator[object]]:
        events = cast("AsyncGenerator[object]", self.client.astream(exchange.request))
        return await anext(events, _END), events

    @contextmanager
    def _watched(self, exchange: Exchange, *, streamed: bool = False) -> Generator[Answer]:
        """Record a call when it is over, and turn failures into errors of ours."""
        answer, begun = Answer(exchange), perf_counter()
        request = exchange.request
        failure: BaseException | None = None
        with span_of(self._source, request) as record_span:
            try:
                yield answer
            except Exception as error:
                failure = self._as_error(error, answer)
                # Not in a loop: its variable would stay in this frame, which tracebacks show.
                hide(failure, self._key)
                hide(error, self._key)
                if failure is error:
                    raise
                raise failure from error
            except BaseException as error:  # given up: the stream was closed, the task cancelled
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
            except Exception:  # noqa: BLE001 - a fault of a hook takes no answer away from the caller; it is logged
                _LOG.exception("a hook failed that was given the record of a call of %s", self._source)

    def _as_error(self, error: Exception, answer: Answer) -> Exception:
        """Return a failure as an error of ours; other errors stay as they are."""
        if isinstance(error, FormatError | RecursionError):  # too deep for Python's reader of JSON
            fault: Fault | None = Fault("malformed", str(error))
        elif isinstance(error, LazyPromptError):
            return error
        elif isinstance(error, CutError):
            cut = Fault("cut", "the stream ended without its end")
            fault = cut if answer.begun else Fault("malformed", "the stream was empty")
        else:
            fault = self.client.fault(error)
        if fault is None:
            return error
        if (moved := redirected_to(error)) is not None:
            fault = fault._replace(kind="not found", message=_moved(moved))
        # Clients differ in how they call a connection that was lost; what counts is whether the answer had begun.
        if fault.kind in ("connection", "cut"):
            fault = fault._replace(kind="cut" if answer.begun else "connection")
        status = f" (HTTP {fault.status})" if fault.status else ""
        message = f"{self._source}: {fault.message}{status}; {_ADVICE[fault.kind]}"
        return self._failed(message, fault, answer.partial())

    def _may_pass(self, error: BaseException) -> bool:
        """Return True if a further attempt may succeed."""
        fault = self.client.fault(error) if isinstance(error, Exception) else None
        if fault is None or (fault.retry_after or 0) > _LONGEST_WAIT:
            return False
        return fault.kind in _PASSING or fault.status in _PASSING_STATUSES

    def _wait(self, state: tenacity.RetryCallState) -> float:
        """Return the seconds to wait: as long as the server asks for, or longer each time."""
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


def _moved(location: str) -> str:
    """Describe the target of a redirect, without the parts of the address that could be secret."""
    to = urlsplit(location)
    place = f"{to.scheme}://{to.netloc.rpartition('@')[2]}" if to.netloc else "another address"
    return f"the server redirects to {place}, which is not followed, so that key and conversation go nowhere else"
