"""Many concurrent calls: each is answered once, the event loop is not blocked, and ``concurrency`` is kept."""

import asyncio
import gc
import subprocess
import sys
import weakref
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock
from time import perf_counter, sleep, thread_time
from typing import Any, NamedTuple

import pytest

from lazyprompt import ModuleError, OnlineChatModule, TrainableModule
from modules.online_scenes import ASKED, FEW, PROMPTER, SOME, Counted, echo_marks, module, run_in_loop
from support.client_scenes import KEY, TIMEOUT, until
from support.model_server.server import Answer, Drop, Misbehaviour, ModelServer, Seen, Slow, Status
from support.paths import TESTS

pytestmark = pytest.mark.slow
CALLS = 1_000
AT_ONCE = 500
# The longest stall in milliseconds, by concurrency, on a busy machine with two cores. On an idle machine, a stall
# takes 15 to 50, and 8 to 25.
STALLS = {None: 500, 200: 250}
FAULTS: tuple[Misbehaviour, ...] = (Status(429, retry_after=0.01), Status(500, retry_after=0.01), Drop())


class Flaky:
    """Answers with the mark of a request. One of five requests fails once, one of 25 twice, by their marks."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.asked: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()

    def faults(self, seen: Seen) -> Misbehaviour | None:
        mark = echo_marks(seen).text
        number = int(mark.strip("<m->"))
        with self._lock:
            self.asked[mark] += 1
            failures = (number % 5 == 0) + (number % 25 == 0)
            return FAULTS[number // 5 % 3] if self.asked[mark] <= failures else None

    def answer(self, seen: Seen) -> Answer:
        answer = echo_marks(seen)
        with self._lock:
            self.answered[answer.text] += 1
        return answer


@contextmanager
def flaky() -> Iterator[tuple[Flaky, list[OnlineChatModule | TrainableModule]]]:
    """A server that fails a fifth of the requests, and modules of four sources and two engines that call it."""
    flaky = Flaky()
    with ModelServer(flaky.answer, judges=False) as server:
        server.faults = flaky.faults
        # These markers contain no "<", with which the marks of the calls begin.
        local: dict[str, Any] = {"url": server.url("completions"), "markers": "vicuna", "retries": 5}
        engines = (TrainableModule("m", engine=engine, **local).prompt(PROMPTER) for engine in ("vllm", "sglang"))
        online = (module(server, source, retries=5) for source in FEW)
        models: list[OnlineChatModule | TrainableModule] = [*online, *engines]
        yield flaky, models
        assert flaky.answered == Counter(f"<m-{number}>" for number in range(CALLS))
        assert sum(flaky.asked.values()) == CALLS + CALLS // 5 + CALLS // 25
        for each in models:
            each.close()


def test_thousand_calls_in_threads_are_each_answered_once() -> None:
    with flaky() as (_, models):

        def ask(number: int) -> str:
            call = {"language": "Dutch", "input": f"say <m-{number}>"}
            if number % 3:
                return str(models[number % 6](call))
            return "".join(models[number % 6].stream(call))

        with ThreadPoolExecutor(32) as pool:
            assert list(pool.map(ask, range(CALLS))) == [f"<m-{number}>" for number in range(CALLS)]


def test_thousand_calls_in_an_event_loop_are_each_answered_once() -> None:
    with flaky() as (_, models):

        async def ask(number: int) -> str:
            call = {"language": "Dutch", "input": f"say <m-{number}>"}
            if number % 3:
                return str(await models[number % 6].acall(call))
            async with models[number % 6].astream(call) as stream:
                return "".join([piece async for piece in stream])

        async def all_at_once() -> list[str]:
            gate = asyncio.Semaphore(100)

            async def bounded(number: int) -> str:
                async with gate:
                    return await ask(number)

            answers = await asyncio.gather(*map(bounded, range(CALLS)))
            for each in models:
                await each.aclose()
            return answers

        assert asyncio.run(all_at_once()) == [f"<m-{number}>" for number in range(CALLS)]


_SERVE = """
import sys
sys.path.insert(0, {tests!r})
from support.model_server.server import ModelServer, Slow
with ModelServer(judges=False) as server:
    server.faults = lambda _: Slow(first=1.0)
    print(server.url({source!r}), flush=True)
    sys.stdin.read()
"""


@contextmanager
def server_process(source: str) -> Iterator[str]:
    """The address of a slow server in another process, whose threads do not slow down this one."""
    script = _SERVE.format(tests=str(TESTS), source=source)
    pipe = subprocess.PIPE
    started = subprocess.Popen([sys.executable, "-c", script], stdin=pipe, stdout=pipe, text=True)  # noqa: S603 - ours
    with started as server:
        assert server.stdout is not None
        assert server.stdin is not None
        yield server.stdout.readline().strip()
        server.stdin.close()


class Stall(NamedTuple):
    """The longest time that an event loop was blocked, in milliseconds."""

    busy: float  # the processor time of the loop; it does not depend on other processes
    waited: float  # how much too late a task woke up that sleeps for a millisecond


async def measure_stall(model: OnlineChatModule) -> Stall:
    """How long the event loop is blocked during many calls."""
    busy, waited = [0.0], [0.0]

    async def watch() -> None:
        while True:
            begin, worked = perf_counter(), thread_time()
            await asyncio.sleep(0.001)
            busy.append(thread_time() - worked)
            waited.append(perf_counter() - begin - 0.001)

    try:
        await model.acall("hi")  # what is made once is made here
        gc.collect()
        gc.freeze()  # else the collector looks through all that clients have loaded, which takes 0.3 s
        watching = asyncio.ensure_future(watch())
        answers = await asyncio.gather(*(model.acall(f"number {number}") for number in range(AT_ONCE)))
        watching.cancel()
    finally:
        await model.aclose()
    assert answers == ["pong"] * AT_ONCE
    return Stall(max(busy) * 1000, max(waited) * 1000)


@pytest.mark.timing
@pytest.mark.parametrize(("source", "concurrency"), [("openai", None), ("anthropic", 200), ("gemini", None)])
def test_five_hundred_concurrent_calls_do_not_block_the_event_loop(source: str, concurrency: int | None) -> None:
    options: dict[str, Any] = {}
    if source == "gemini":
        # As many as the other clients keep. Of a thousand that are kept, httpcore compares each with each, whenever an
        # answer comes: 0.2 to 0.5 s at the end of 500.
        import httpx2  # noqa: PLC0415 - the client's own

        limits = httpx2.Limits(max_connections=1000, max_keepalive_connections=100)
        options = {"http_options": {"async_client_args": {"limits": limits}}}
    with server_process(source) as url:
        stalls: list[Stall] = []
        while not stalls or (min(stalls).busy > STALLS[concurrency] and len(stalls) < 3):
            settings: dict[str, Any] = {"timeout": TIMEOUT, "retries": 0, "options": options}
            model = OnlineChatModule(source, model="m", base_url=url, api_key=KEY, concurrency=concurrency, **settings)
            stalls.append(asyncio.run(measure_stall(model)))
    print(f"{source}, {concurrency} at once: {min(stalls).busy:.0f} ms busy, {min(stalls).waited:.0f} ms late at most")  # noqa: T201 - the figures
    assert min(stalls).busy <= STALLS[concurrency]


@pytest.mark.timing
@pytest.mark.parametrize("source", ["anthropic", "gemini"])
def test_importing_a_client_does_not_block_the_event_loop(source: str) -> None:
    """In a process that has not imported the client yet, which takes a second and more."""
    script = f"""
import asyncio, time
from lazyprompt import ModuleError, OnlineChatModule
module = OnlineChatModule({source!r}, base_url="http://127.0.0.1:9", api_key="k", retries=0).prompt("x")
async def main():
    lates = []
    async def watch():
        while True:
            begin = time.perf_counter()
            await asyncio.sleep(0.001)
            lates.append(time.perf_counter() - begin)
    watching = asyncio.ensure_future(watch())
    begin = time.perf_counter()
    try:
        await module.acall("hi")
    except Exception as error:
        assert error.kind == "connection", error
    took = time.perf_counter() - begin
    watching.cancel()
    await module.aclose()
    print(max(lates) / took)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)  # noqa: S603 - ours
    assert float(done.stdout) < 0.7


# The limit of concurrent calls.


@SOME
def test_concurrency_limits_the_calls_in_threads(server: Counted, source: str) -> None:
    model = module(server, source, concurrency=3)
    model(ASKED)
    highest = count_waiting(server)

    def ask(number: int) -> str:
        return str(model(ASKED)) if number % 2 else "".join(model.stream(ASKED))

    with ThreadPoolExecutor(12) as pool:
        assert set(pool.map(ask, range(24))) == {"pong"}
    assert highest() == 3
    model.close()


@SOME
def test_concurrency_limits_the_calls_in_an_event_loop(server: Counted, source: str) -> None:
    model = module(server, source, concurrency=3)

    async def ask(number: int) -> str:
        if number % 2:
            return str(await model.acall(ASKED))
        async with model.astream(ASKED) as stream:
            return "".join([piece async for piece in stream])

    async def all_at_once() -> set[str]:
        await model.acall(ASKED)
        return set(await asyncio.gather(*map(ask, range(24))))

    for _ in range(2):  # each loop has places of its own
        highest = count_waiting(server)
        assert run_in_loop(model, all_at_once()) == {"pong"}
        assert highest() == 3


@SOME
def test_event_loops_in_threads_share_a_module_and_are_released(server: Counted, source: str) -> None:
    model = module(server, source, concurrency=2)
    server.answer = echo_marks
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def asked(number: int) -> list[str]:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        calls = [{"language": "Dutch", "input": f"<m-{number}-{each}>"} for each in range(6)]
        return [str(reply) for reply in await asyncio.gather(*map(model.acall, calls))]

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda number: run_in_loop(model, asked(number)), range(8)))
    assert answers == [[f"<m-{number}-{each}>" for each in range(6)] for number in range(8)]
    run_in_loop(model, asked(8))
    gc.collect()
    assert sum(loop() is not None for loop in loops) <= 1


def count_waiting(server: Counted) -> Any:
    """Counts how many requests the server handles at once; each takes a while.

    The end of an answer is no measure: its client may send the next request before the server has noted it.
    """
    waiting: list[Seen] = []
    counts: list[int] = []
    lock = Lock()

    def count(seen: Seen) -> None:
        with lock:
            waiting.append(seen)
            counts.append(len(waiting))
        sleep(0.05)
        with lock:
            waiting.remove(seen)

    server.faults = count
    return lambda: max(counts)


@SOME
def test_failed_and_cancelled_calls_release_their_concurrency_slots(server: Counted, source: str) -> None:
    model = module(server, source, concurrency=1)
    server.faults = lambda _: Status(400)
    for _ in range(3):
        with pytest.raises(ModuleError):
            model(ASKED)
        with pytest.raises(ModuleError):
            list(model.stream(ASKED))
    server.faults = []
    stream = model.stream(ASKED)
    next(iter(stream))
    stream.close()
    assert model(ASKED) == "pong"

    async def cancel_all() -> str:
        server.faults = [Slow(first=TIMEOUT)]
        task = asyncio.ensure_future(model.acall(ASKED))
        seen = len(server.seen)
        assert await asyncio.to_thread(until, lambda: len(server.seen) > seen)
        waiting = asyncio.ensure_future(model.acall(ASKED))
        await asyncio.sleep(0.01)
        waiting.cancel()
        task.cancel()
        await asyncio.wait([task, waiting])
        astream = model.astream(ASKED)
        async for _ in astream:
            break
        await astream.aclose()
        return str(await model.acall(ASKED))

    assert run_in_loop(model, cancel_all()) == "pong"
    model.close()
