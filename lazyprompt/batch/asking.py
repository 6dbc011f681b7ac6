"""One run over rows that asks a model: what is under way, what came of it, and when to stop.

What goes wrong is of three kinds. A wrong key, an unknown model, an empty account are the fault of no row: the run
stops. A request that breaks a rule is a row's own fault. And a server that fails, or is late, may be either: such rows
wait until another one has an answer, and are asked again by the next run if none has.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from lazyprompt.batch.answer_log import Entry, tokens_of
from lazyprompt.batch.rates import Pace
from lazyprompt.batch.state import BatchStoppedError
from lazyprompt.batch.workers import reject_line
from lazyprompt.batch.writing import json_bytes
from lazyprompt.errors import LazyPromptError, ModuleError
from lazyprompt.prompters.rows import RowFault
from lazyprompt.tokens.approximate import ApproximateTokenCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.batch.answer_log import AnswerLog
    from lazyprompt.batch.call_job import CallJob
    from lazyprompt.batch.row import Row
    from lazyprompt.formatters.reply import Reply
    from lazyprompt.messages.history import HistoryLike
    from lazyprompt.messages.tools import ToolsLike

# What goes wrong, by the kinds of errors of modules; all others are a row's own.
_OF_ALL = frozenset(("key", "not found", "rate limit"))
_UNSURE = frozenset(("server", "timeout", "connection", "cut", "malformed"))
# A parameter that the model does not take makes every request a wrong one.
_UNSURE_AT_FIRST = frozenset(("request",))
# How many rows may wait at least for another one's answer before the run stops.
_WAITING = 10
_POLL = 0.1


class Question(NamedTuple):
    """What a row asks.

    Attributes:
        number: The number of the row.
        name: Its name.
        row: The row.
        input: As of :meth:`lazyprompt.Prompter.generate_prompt` (so with history and tools).
        history: What was said before.
        tools: What the model may call.
    """

    number: int
    name: str
    row: Row
    input: object
    history: HistoryLike | None
    tools: ToolsLike


class Asking:
    """Asks for what is not in a log.

    Args:
        calls: What is asked.
        log: Where the answers go.
        tell: Is called when something came of a row.
        stopped: What is asked whether to stop; it says why.
        grace: How many seconds are left to what is under way when the run stops.

    Attributes:
        given_up: How many rows were under way when it stopped, and got no answer in that time.
    """

    def __init__(
        self,
        calls: CallJob,
        log: AnswerLog,
        tell: Callable[[], None],
        stopped: Callable[[], str | None] | None,
        grace: float,
    ) -> None:
        self.given_up = 0
        self._calls, self._log, self._tell = calls, log, tell
        self._stopped, self._grace = stopped, grace
        self._skips = calls.job.rejects is not None
        self._counter = ApproximateTokenCounter() if calls.job.counter is None else calls.job.counter.counter
        self._most_waiting = max(_WAITING, 2 * calls.rates.concurrency)
        self._waiting: list[tuple[Entry, str]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._why: BaseException | None = None

    def run(self, rows: Iterator[tuple[int, Row | RowFault]]) -> None:
        """Ask for the answer to each row.

        Args:
            rows: The rows, with their numbers.

        Raises:
            BatchError: The rows cannot be read.
            BatchStoppedError: It stopped before the end.
        """
        asyncio.run(self._run(rows))

    async def _run(self, rows: Iterator[tuple[int, Row | RowFault]]) -> None:
        self._places = asyncio.Semaphore(self._calls.rates.concurrency)
        self._pace = Pace(self._calls.rates)
        self._feeding = asyncio.create_task(self._feed(rows))
        watching = asyncio.create_task(self._watch())
        try:
            await asyncio.wait((self._feeding,))
        finally:  # also where Ctrl-C has cancelled it
            watching.cancel()
            self._feeding.cancel()
            await self._end()
            await self._calls.module.aclose()
        if self._why is not None:
            raise self._why
        self._feeding.result()

    async def _feed(self, rows: Iterator[tuple[int, Row | RowFault]]) -> None:
        """Ask one row after another; each takes a place, and gives it back when its answer is on the disk.

        The first goes alone: a wrong key is found with one request, and a client takes a second or two to load, behind
        which all that had its turn meanwhile would go out at once.
        """
        is_first = True
        for number, row in rows:
            if number in self._log:
                continue
            question = self._question(number, row)
            if isinstance(question, RowFault):
                await self._refuse(question, row)
                await asyncio.sleep(0)  # so that somebody else can say stop
                continue
            await self._places.acquire()
            taken = await self._pace.turn(self._tokens(question))
            task = asyncio.create_task(self._ask(question, taken))
            self._tasks.add(task)
            task.add_done_callback(self._over)
            if is_first:
                await asyncio.wait((task,))
                is_first = False
        for _ in range(self._calls.rates.concurrency):
            await self._places.acquire()
        await self._judge_rest()

    async def _ask(self, question: Question, taken: int) -> None:
        """Ask for one answer."""
        module, params = self._calls.module, cast("dict[str, Any]", dict(self._calls.params))
        try:
            reply = await module.acall(question.input, question.history, question.tools, **params)
        except LazyPromptError as error:
            partial: Reply | None = getattr(error, "partial", None)
            self._pace.settle(taken, None if partial is None else partial.usage)
            await self._fail(question, error, partial)
            return
        self._pace.settle(taken, reply.usage)
        line = json_bytes({"row": question.number, "custom_id": question.name, **answer_of(reply)}) + b"\n"
        await self._log.add(Entry(question.number, line, rejected=False, tokens=tokens_of(reply.usage)))
        self._tell()
        await self._accept_waiting()

    async def _fail(self, question: Question, error: LazyPromptError, partial: Reply | None) -> None:
        """See what is to be done about a row without an answer."""
        kind = error.kind if isinstance(error, ModuleError) else ""
        fault = RowFault(question.number, str(error))
        if kind in _OF_ALL or (kind in _UNSURE and not self._skips):
            self._stop(BatchStoppedError(f"row {fault.number:,}: {fault.reason}"))
        elif self._skips and (kind in _UNSURE or (kind in _UNSURE_AT_FIRST and not self._log.answered)):
            self._waiting.append((_rejected(fault, question.row, partial), kind))
            if len(self._waiting) >= self._most_waiting:
                self._stop(self._no_answers(fault.reason))
        else:
            await self._refuse(fault, question.row, partial)

    async def _refuse(self, fault: RowFault, row: Row | RowFault, partial: Reply | None = None) -> None:
        """Reject a row, or stop at it."""
        if not self._skips:
            self._stop(BatchStoppedError(f"row {fault.number:,}: {fault.reason}", fault))
            return
        await self._log.add(_rejected(fault, row, partial))
        self._tell()

    async def _accept_waiting(self) -> None:
        """Reject the rows that wait: another one has an answer, so it was their own fault."""
        waiting, self._waiting = self._waiting, []
        for entry, _ in waiting:
            await self._log.add(entry)
            self._tell()

    async def _judge_rest(self) -> None:
        """See what is to be done about rows that still wait when nobody else is asked."""
        if not self._waiting:
            return
        if not self._log.answered or any(kind == "connection" for _, kind in self._waiting):
            entry, _ = self._waiting[-1]
            raise self._no_answers(str(json.loads(entry.line)["reason"]))
        await self._accept_waiting()

    def _no_answers(self, reason: str) -> BatchStoppedError:
        return BatchStoppedError(f"{len(self._waiting):,} rows in a row have no answer, the last for: {reason}")

    def _stop(self, why: BaseException) -> None:
        """Ask no more; the first reason counts."""
        if self._why is None:
            self._why = why
            self._feeding.cancel()

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._places.release()
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._stop(error)

    async def _watch(self) -> None:
        """Look whether somebody wants it to stop."""
        while self._stopped is not None:
            if why := self._stopped():
                self._stop(BatchStoppedError(why))
            await asyncio.sleep(_POLL)

    async def _end(self) -> None:
        """Leave some time to what is under way, and then end it."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=self._grace)
        self.given_up = len(late)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    def _question(self, number: int, row: Row | RowFault) -> Question | RowFault:
        """What a row asks; what is wrong with it where it asks nothing."""
        if isinstance(row, RowFault):
            return row
        cells = self._calls.job.plan.cells
        try:
            name = cells.name_of(row) or f"row-{number}"
            return Question(number, name, row, cells.given(row), cells.history_of(row), cells.tools_of(row))
        except LazyPromptError as error:
            return RowFault(number, str(error))

    def _tokens(self, question: Question) -> int:
        """About how many tokens a prompt has, where that matters."""
        if not self._pace.counts:
            return 0
        prompter = self._calls.module.prompter
        try:
            made = prompter.generate_prompt(question.input, question.history, question.tools, format="openai")
            return self._counter.count(made["messages"], made.get("tools"))
        except LazyPromptError:
            return 0  # the call itself will say what is wrong


def answer_of(reply: Reply) -> JsonObject:
    """An answer, as JSON."""
    calls = [{"id": call.id, "name": call.name, "input": cast("Json", call.input)} for call in reply.tool_calls]
    return {
        "text": str(reply),
        "thinking": reply.thinking,
        "tool_calls": cast("list[Json]", calls),
        "usage": None if reply.usage is None else dict(reply.usage),
        "finish": reply.finish,
        "model": reply.model,
    }


def _rejected(fault: RowFault, row: Row | RowFault, partial: Reply | None) -> Entry:
    """A row without an answer; what came of one was paid for, and is kept."""
    line = reject_line(fault, row)
    if partial is None:
        return Entry(fault.number, line, rejected=True, tokens=0)
    line = json_bytes({**json.loads(line), "answer": answer_of(partial)}) + b"\n"
    return Entry(fault.number, line, rejected=True, tokens=tokens_of(partial.usage))
