"""Requests sent: so many at once, again where that may help, with every failure told in one way."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from threading import BoundedSemaphore
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast
from urllib.parse import urlsplit

import tenacity

from lazyprompt.errors import FormatError, LazyPromptError, ModuleError
from lazyprompt.modules.clients._faults import Fault, hide, redirected_to
from lazyprompt.modules.telemetry import CallRecord, span_of

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence

    from lazyprompt._base.secret import Secret
    from lazyprompt.answers.parser import Delta
    from lazyprompt.formatters.reply import Reply
    from lazyprompt.modules._reading import Exchange, Streamed
    from lazyprompt.modules.clients._base import OfficialClient
    from lazyprompt.modules.clients._faults import FaultKind
    from lazyprompt.modules.telemetry import CallHook

# What may be gone by itself soon. Once a stream has begun, nothing is tried again: what was said would be said twice.
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
_Asked = TypeVar("_Asked")
_Given = TypeVar("_Given")
_LOG = logging.getLogger("lazyprompt")


class CutError(Exception):
    """A stream that ended without its end."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How requests are sent.

    Args:
        retries: How often one is sent again, where the client does not do that by itself.
        concurrency: How many are under way at once, in threads, and in each event loop; None for any number.

    Raises:
        ModuleError: They are too small, or no numbers.
    """

    retries: int
    concurrency: int | None

    def __post_init__(self) -> None:
        for name, value, least in (("retries", self.retries, 0), ("concurrency", self.concurrency, 1)):
            given: object = value
            if not isinstance(given, int) and not (given is None and name == "concurrency"):
                raise ModuleError(f"{name} is a whole number, not {given!r}")
            if isinstance(given, int) and given < least:
                raise ModuleError(f"{name} is {least} or more, not {given}")


class _Watch:
    """A call that is watched: what is known of its answer."""

    __slots__ = ("_exchange", "begun", "reply", "streamed")

    def __init__(self, exchange: Exchange, streamed: Streamed | None) -> None:
        self._exchange, self.streamed = exchange, streamed
        self.reply: Reply | None = None
        self.begun = False

    def feed(self, event: object) -> list[Delta]:
        """What is new in an event of a stream."""
        self.begun = True
        return cast("Streamed", self.streamed).feed(event)

    def partial(self) -> Reply | None:
        """What there is of the answer; None where nothing has come."""
        if self.reply is not None or self.streamed is None or not self.begun:
            return self.reply
        try:
            return self._exchange.partial(*self.streamed.message())
        except FormatError:  # no more of it than its frame
            return None


class _Loop(NamedTuple):
    """What calls in one event loop wait for: a free place where those are bounded, and their turn to begin."""

    places: asyncio.Semaphore | None
    turn: asyncio.Lock


class Sender:
    """Sends requests with one client.

    Args:
        client: The client.
        source: How records and errors call the source or engine.
        limits: How requests are sent.
        hooks: What is told of each call.
        failed: Makes the error of a fault; given what it says, the fault and what there is of an answer.
        key: The key, which no error shows.
    """

    def __init__(
        self,
        client: OfficialClient,
        source: str,
        limits: Limits,
        hooks: Sequence[CallHook],
        failed: Callable[[str, Fault, Reply | None], LazyPromptError],
        key: Secret | None,
    ) -> None:
        self._key = key
        self.client = client
        self._source = source
        self._hooks = tuple(hooks)
        self._failed = failed
        self._concurrency = limits.concurrency
        self._threads = None if limits.concurrency is None else BoundedSemaphore(limits.concurrency)
        self._loops: dict[AbstractEventLoop, _Loop] = {}
        self._loaded = False
        self._again: dict[str, Any] = {
            "stop": tenacity.stop_after_attempt(1 + limits.retries),
            "wait": self._wait,
            "retry": tenacity.retry_if_exception(self._may_pass),
            "reraise": True,
        }
        # Each thread has a state of its own in it; tasks of one loop would share theirs.
        self._retrying = tenacity.Retrying(**self._again)

    def send(self, exchange: Exchange) -> Reply:
        """The answer.

        Raises:
            ModuleError: There is none.
        """
        with self._watched(exchange, None) as watch, self._place():
            answer: object = self._tried(self.client.send, exchange.request)
            watch.reply = exchange.reply(*exchange.reader.message(answer))
            return watch.reply

    async def asend(self, make: Callable[[], Exchange]) -> Reply:
        """The same as :meth:`send`; cancelling it closes the connection.

        Args:
            make: Makes what is sent.
        """
        exchange = await self._in_turn(make)
        with self._watched(exchange, None) as watch:
            async with self._aplace():
                answer: object = await self._atried(self.client.asend, exchange.request)
            watch.reply = exchange.reply(*exchange.reader.message(answer))
            return watch.reply

    def stream(self, exchange: Exchange, ended: Callable[[Reply], object]) -> Generator[Delta]:
        """The answer piece by piece.

        Args:
            exchange: What is sent.
            ended: Is given the whole answer at the end.

        Raises:
            ModuleError: There is none; what came of it is in the error.
        """
        said = exchange.reader.stream()
        with self._watched(exchange, said) as watch, self._place():
            first, events = self._tried(self._begin, exchange)
            with closing(events):
                for event in chain(first, events):
                    yield from watch.feed(event)
            yield from _finished(said)
            watch.reply = exchange.reply(*said.message())
        ended(watch.reply)

    async def astream(self, make: Callable[[], Exchange], ended: Callable[[Reply], object]) -> AsyncGenerator[Delta]:
        """The same as :meth:`stream` in an event loop; ``make`` makes what is sent."""
        exchange = await self._in_turn(make)
        said = exchange.reader.stream()
        with self._watched(exchange, said) as watch:
            async with self._aplace():
                begun: AsyncGenerator[object] = await self._atried(self._abegin, exchange)
                async with aclosing(begun) as events:
                    async for event in events:
                        for delta in watch.feed(event):
                            yield delta
            for delta in _finished(said):
                yield delta
            watch.reply = exchange.reply(*said.message())
        ended(watch.reply)

    async def _in_turn(self, make: Callable[[], Exchange]) -> Exchange:
        """A request of an event loop, made when it is its turn.

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

    def _tried(self, call: Callable[[_Asked], _Given], asked: _Asked) -> _Given:
        """What a call gives, made again where that may help; most clients do that by themselves."""
        return call(asked) if self.client.retries_itself else self._retrying(call, asked)

    async def _atried(self, call: Callable[[_Asked], Awaitable[_Given]], asked: _Asked) -> _Given:
        """The same in an event loop."""
        if self.client.retries_itself:
            return await call(asked)
        return await tenacity.AsyncRetrying(**self._again)(call, asked)

    def _begin(self, exchange: Exchange) -> tuple[list[object], Generator[object]]:
        """Return the first event of a stream, if there is one, and the others."""
        events = cast("Generator[object]", self.client.stream(exchange.request))
        return list(islice(events, 1)), events

    async def _abegin(self, exchange: Exchange) -> AsyncGenerator[object]:
        events = cast("AsyncGenerator[object]", self.client.astream(exchange.request))
        return _abehind(await anext(events, _NONE), events)

    @contextmanager
    def _watched(self, exchange: Exchange, streamed: Streamed | None) -> Generator[_Watch]:
        """Tell of a call when it is over, and of what went wrong as errors of ours."""
        watch, begun = _Watch(exchange, streamed), perf_counter()
        failure: BaseException | None = None
        with span_of(self._source, exchange.request) as span:
            try:
                yield watch
            except Exception as error:
                failure = self._as_error(error, watch)
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
                told: Reply | None = getattr(failure, "partial", None)
                reply = watch.partial() if told is None else told
                span.ended(reply, failure)
                self._tell(exchange, watch, reply, failure, perf_counter() - begun)

    def _tell(
        self, exchange: Exchange, watch: _Watch, reply: Reply | None, failure: BaseException | None, seconds: float
    ) -> None:
        """Tell the hooks of a call; what they do wrong takes no answer away from who called."""
        request, streamed = exchange.request, watch.streamed is not None
        record = CallRecord(
            self._source, request.model, request.payload, request.params, reply, failure, seconds, streamed
        )
        for hook in self._hooks:
            try:
                hook(record)
            except Exception:  # noqa: BLE001 - whatever it is, it is told with its traceback
                _LOG.exception("a hook failed that was told of a call of %s", self._source)

    def _as_error(self, error: Exception, watch: _Watch) -> Exception:
        """What went wrong, as an error of ours; what is no fault of a call comes as it is."""
        if isinstance(error, FormatError | RecursionError):  # too deep for Python's reader of JSON
            fault = Fault("malformed", str(error))
        elif isinstance(error, LazyPromptError):
            return error
        elif isinstance(error, CutError):
            cut = Fault("cut", "the stream ended without its end")
            fault = cut if watch.begun else Fault("malformed", "the stream was empty")
        else:
            found = self.client.fault(error)
            if found is None:
                return error
            fault = found
        if (moved := redirected_to(error)) is not None:
            fault = fault._replace(kind="not found", message=_moved(moved))
        # Clients differ in how they call a connection that was lost; what counts is whether the answer had begun.
        if fault.kind in ("connection", "cut"):
            fault = fault._replace(kind="cut" if watch.begun else "connection")
        partial = watch.partial()
        status = f" (HTTP {fault.status})" if fault.status else ""
        said = f"{self._source}: {fault.message}{status}; {_ADVICE[fault.kind]}"
        return self._failed(said, fault, partial)

    def _may_pass(self, error: BaseException) -> bool:
        """Whether it may be another thing to try again."""
        fault = self.client.fault(error) if isinstance(error, Exception) else None
        if fault is None or (fault.retry_after or 0) > _LONGEST_WAIT:
            return False
        return fault.kind in _PASSING or fault.status in _PASSING_STATUSES

    def _wait(self, state: tenacity.RetryCallState) -> float:
        """Seconds to wait: what the server asks for, or longer each time."""
        error = None if state.outcome is None else state.outcome.exception()
        fault = self.client.fault(error) if isinstance(error, Exception) else None
        if fault is not None and fault.retry_after is not None:
            return fault.retry_after
        return tenacity.wait_exponential_jitter(initial=_FIRST_WAIT, max=_LONGEST_WAIT, jitter=_FIRST_WAIT)(state)

    @contextmanager
    def _place(self) -> Generator[None]:
        """One of the places for requests that are under way at once."""
        if self._threads is None:
            yield
            return
        with self._threads:
            yield

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
        """What calls in the running event loop wait for."""
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
    """Say where a server redirects to, without anything of the address that could be secret."""
    to = urlsplit(location)
    place = f"{to.scheme}://{to.netloc.rpartition('@')[2]}" if to.netloc else "another address"
    return f"the server redirects to {place}, which is not followed, so that key and conversation go nowhere else"


_NONE = object()


async def _abehind(first: object, events: AsyncGenerator[object]) -> AsyncGenerator[object]:
    """Yield a stream whose first event has been taken; closing it closes the stream."""
    async with aclosing(events):
        if first is not _NONE:
            yield first
            async for event in events:
                yield event


def _finished(said: Streamed) -> list[Delta]:
    """What was held back until the end.

    Raises:
        CutError: It is not the end.
    """
    if not said.complete:
        raise CutError
    return said.finish()
