"""Rows asked of a model: so many at once and so fast, each answer on the disk before the next row takes its place.

The answers are kept in the database of the run as they come. A run that was killed asks no row again whose answer is
there; the rows that were under way, as many as are asked at once at most, it does. At the end the answers go to the
output in the order of rows.

Errors are of three kinds. A wrong key, an unknown model or an empty account is the fault of no row: the run stops. A
request that breaks a rule is a row's own fault. A server that fails or is late may be either: such rows wait until
another row has an answer, and are asked again by the next run if none has.
"""

from __future__ import annotations

import asyncio
import json
from array import array
from bisect import bisect_left
from dataclasses import dataclass, field
from sqlite3 import OperationalError
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from lazyprompt.batch.database import BatchStoppedError, Line, RunDatabase, State, beside
from lazyprompt.batch.forms import Limits, json_bytes
from lazyprompt.batch.journal import Journal
from lazyprompt.batch.rates import Pace, Rates
from lazyprompt.batch.row_columns import check_columns
from lazyprompt.batch.row_names import check_names, default_name
from lazyprompt.batch.rows import parsed
from lazyprompt.batch.run import BatchJob, Outcome, Progress, Stopped, files_of, reject_line, watch
from lazyprompt.errors import BatchError, LazyPromptError, ModuleError
from lazyprompt.modules.online import OnlineChatModule
from lazyprompt.prompters.rows import RowFault
from lazyprompt.tokens.approximate import ApproximateTokenCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.batch.rows import Row, Unread
    from lazyprompt.formatters.reply import Reply
    from lazyprompt.messages.history import HistoryLike
    from lazyprompt.messages.tools import ToolsLike
    from lazyprompt.modules.trainable import TrainableModule

# Kinds of module errors that are the fault of no row, and those that may be; all others are a row's own.
_OF_ALL = frozenset(("key", "not found", "rate limit"))
_UNSURE = frozenset(("server", "timeout", "connection", "cut", "malformed"))
# A parameter that the model does not take makes every request a wrong one.
_UNSURE_AT_FIRST = frozenset(("request",))
# The run stops if more rows wait for another one's answer: so many, or twice those under way.
_WAITING = 10
_POLL = 0.1


@dataclass(frozen=True, slots=True)
class CallJob:
    """The job of a run that asks a model.

    Args:
        job: The rows, the prompts, and the file for the answers; its plan's form does not matter. With a file of
            rejects, rows that are refused go there; without it the first of them ends the run. Its counter counts the
            tokens of prompts before they are sent, if those of a minute are limited.
        module: The model. The plan's prompter is attached to it.
        rates: The limits of requests at once and in a minute.
        params: Further parameters of each call.
    """

    job: BatchJob
    module: OnlineChatModule | TrainableModule
    rates: Rates = field(default_factory=Rates)
    params: Mapping[str, Json] = field(default_factory=dict[str, "Json"])

    def asked(self) -> JsonObject:
        """Return the settings that the answers depend on, by the names that messages use.

        The rates and the token counter are not among them: these may change between runs.

        Raises:
            BatchError: The rows cannot be read; or a parameter is no JSON.
        """
        try:
            params: JsonObject = json.loads(json.dumps(dict(self.params), allow_nan=False))
        except (TypeError, ValueError) as error:
            raise BatchError(f"the parameters of calls are not JSON: {error}", setting="params") from error
        module = self.module
        # The address of a local model may be another one each time.
        model = f"{module.source.name} {module.model}" if isinstance(module, OnlineChatModule) else module.base_model
        asked = {name: value for name, value in self.job.asked().items() if name != "--tokens"}
        return {**asked, "the model": model, "the parameters of calls": params}


def call_batch(
    calls: CallJob,
    *,
    restart: bool = False,
    progress: Callable[[Progress], None] | None = None,
    stopped: Stopped | None = None,
    grace: float = 5.0,
) -> Outcome:
    """Ask a model for the answer to each row, or continue a run that does.

    Args:
        calls: The job.
        restart: True to throw away a run that was begun, with its answers; or an output that is there already.
        progress: Called with the progress, after each row.
        stopped: Called ten times a second; returns the reason to stop, if there is one.
        grace: The seconds that requests under way have left when the run stops.

    Returns:
        The outcome; its tokens are those of the answers, as the provider has counted them.

    Raises:
        BatchError: The rows cannot be read, no row has a column that the prompt needs, or two rows have the same name;
            or the output must not be written: it is there already, another run writes it, or one with other settings
            was begun.
        BatchStoppedError: It stopped before its end: the model cannot be asked, a row is refused, a file cannot be
            written, or ``stopped`` gave a reason. Answers that have come are kept, and the next run continues.
    """
    job = calls.job
    files = files_of(job)
    if files.output.exists() and not restart and not beside(files.output, ".run").exists():
        raise BatchError(f"{files.output} is there already; give another output, or --restart to ask all rows again")
    check_columns(job.choice.unread(job.rows), job.plan.cells)
    check_names(job.choice.unread(job.rows), job.plan.cells)
    calls.module.prompt(job.plan.prompter)
    # Answers are for the user, so no service's limits hold for their file.
    with Journal(files, calls.asked(), Limits(), restart=restart) as journal:
        rate = 0.0
        if not journal.state.done:
            log = _AnswerLog(journal.database, job, progress)
            begun, before = monotonic(), log.state.written
            _Asking(calls, log, stopped, grace).run(journal.state.number)
            rate = (log.state.written - before) / max(monotonic() - begun, 1e-9)
            for chunk in journal.database.chunks(journal.state.number):
                rejects = [each for each in chunk if each.rejected]
                tokens = sum(each.tokens for each in chunk)
                journal.add(chunk[-1].row, [each.line for each in chunk if not each.rejected], rejects, tokens)
        outputs = journal.finish()
        state = journal.state
    return Outcome(state.written, state.rejected, state.tokens or None, rate, outputs, files.left_over(len(outputs)))


class _AnswerLog:
    """The answers and rejects of a run, in its database.

    Those of earlier runs take eight bytes a row. A line that is damaged counts as not asked.

    Args:
        database: The database of the run.
        job: The job; without a file of rejects, rows that were rejected count as not asked.
        progress: Called with the progress, after each row.

    Attributes:
        state: The numbers of rows with an answer, of rejected rows, and of the tokens that all of them took.
    """

    def __init__(self, database: RunDatabase, job: BatchJob, progress: Callable[[Progress], None] | None) -> None:
        self.state = State()
        self._database = database
        self._earlier = array("q")
        self._added: list[Line] = []
        self._committing = asyncio.Lock()
        self._tell = watch(job, self.state, None)
        database.drop(rejects=job.rejects is None)
        for chunk in database.chunks():
            self._earlier.extend(line.row for line in chunk)
            self._count(chunk)
        self._tell = watch(job, self.state, progress)

    def __contains__(self, row: int) -> bool:
        """Return True if an earlier run has left a line of a row."""
        at = bisect_left(self._earlier, row)
        return at < len(self._earlier) and self._earlier[at] == row

    async def add(self, line: Line) -> None:
        """Add a line; it is on the disk when this returns.

        Lines that come while others are committed are committed together.

        Raises:
            BatchStoppedError: The database cannot be written.
        """
        self._added.append(line)
        async with self._committing:
            added, self._added = self._added, []
            try:
                await asyncio.to_thread(self._database.add, added, commit=True)
            except OperationalError as error:
                raise BatchStoppedError(f"{self._database.path} cannot be written: {error}") from error
            self._count(added)

    def _count(self, lines: list[Line]) -> None:
        for line in lines:
            old = self.state
            written, rejected = old.written + (not line.rejected), old.rejected + line.rejected
            self.state = State(written=written, rejected=rejected, tokens=old.tokens + line.tokens)
            self._tell(self.state)


class _Question(NamedTuple):
    """A row as a call.

    Attributes:
        unread: The row as its file contains it.
        row: The row.
        name: Its name.
        given: The arguments of the call: the input, the history, the tools.
    """

    unread: Unread
    row: Row
    name: str
    given: tuple[object, HistoryLike | None, ToolsLike]


class _Asking:
    """Asks for the answers that are not in a log.

    Args:
        calls: The job.
        log: Where the answers go.
        stopped: Returns the reason to stop, if there is one.
        grace: The seconds that requests under way have left when the run stops.
    """

    def __init__(self, calls: CallJob, log: _AnswerLog, stopped: Stopped | None, grace: float) -> None:
        self._calls, self._log = calls, log
        self._stopped, self._grace = stopped, grace
        self._skips = calls.job.rejects is not None
        self._counter = ApproximateTokenCounter() if calls.job.counter is None else calls.job.counter.counter
        self._most_waiting = max(_WAITING, 2 * calls.rates.concurrency)
        self._waiting: list[tuple[Line, str, str]] = []  # with the kind of the error, and its reason
        self._tasks: set[asyncio.Task[None]] = set()
        self._why: BaseException | None = None
        self._given_up = 0

    def run(self, behind: int) -> None:
        """Ask for the answer to each row.

        Args:
            behind: The number of the row behind which to begin.

        Raises:
            BatchError: The rows cannot be read.
            BatchStoppedError: It stopped before the end.
        """
        try:
            asyncio.run(self._run(behind))
        except BatchStoppedError as error:
            lost = f", {self._given_up:,} were under way and will be asked again" if self._given_up else ""
            message = f"{error}; {self._log.state.written:,} rows have an answer{lost}"
            raise BatchStoppedError(message, error.fault) from error

    async def _run(self, behind: int) -> None:
        self._places = asyncio.Semaphore(self._calls.rates.concurrency)
        self._pace = Pace(self._calls.rates)
        self._feeding = asyncio.create_task(self._feed(self._calls.job.choice.unread(self._calls.job.rows, behind)))
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

    async def _feed(self, rows: Iterator[Unread]) -> None:
        """Ask one row after another; each takes a place, and gives it back when its answer is on the disk.

        The first goes alone: a wrong key is found with one request, and a client takes a second or two to load, after
        which all requests that had their turn meanwhile would go out at once.
        """
        is_first = True
        for unread in rows:
            if unread.number in self._log:
                continue
            row = parsed(unread)
            question = self._question(unread, row)
            if isinstance(question, RowFault):
                await self._refuse(question.reason, unread, row)
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
        # Nobody else will be asked.
        if self._waiting and (not self._log.state.written or any(kind == "connection" for _, kind, _ in self._waiting)):
            raise self._no_answers()
        await self._accept_waiting()

    async def _ask(self, question: _Question, taken: int) -> None:
        """Ask for one answer."""
        try:
            reply = await self._calls.module.acall(*question.given, **cast("dict[str, Any]", dict(self._calls.params)))
        except LazyPromptError as error:
            partial: Reply | None = getattr(error, "partial", None)
            self._pace.settle(taken, None if partial is None else partial.usage)
            await self._fail(question, error, partial)
            return
        self._pace.settle(taken, reply.usage)
        number = question.unread.number
        line = json_bytes({"row": number, "custom_id": question.name, **_answer(reply)}) + b"\n"
        await self._log.add(Line(number, line, rejected=False, tokens=_tokens_of(reply)))
        await self._accept_waiting()

    async def _fail(self, question: _Question, error: LazyPromptError, partial: Reply | None) -> None:
        """Decide what becomes of a row without an answer."""
        kind = error.kind if isinstance(error, ModuleError) else ""
        unread, row, reason = question.unread, question.row, str(error)
        if kind in _OF_ALL or (kind in _UNSURE and not self._skips):
            self._stop(BatchStoppedError(f"row {unread.number:,}: {reason}"))
        elif self._skips and (kind in _UNSURE or (kind in _UNSURE_AT_FIRST and not self._log.state.written)):
            self._waiting.append((_rejected(reason, unread, row, partial), kind, reason))
            if len(self._waiting) >= self._most_waiting:
                self._stop(self._no_answers())
        else:
            await self._refuse(reason, unread, row, partial)

    async def _refuse(self, reason: str, unread: Unread, row: Row | RowFault, partial: Reply | None = None) -> None:
        """Reject a row, or stop at it."""
        if self._skips:
            await self._log.add(_rejected(reason, unread, row, partial))
        else:
            fault = RowFault(unread.number, reason, unread.lines, unread.shown_text)
            self._stop(BatchStoppedError(f"row {unread.number:,}: {reason}", fault))

    async def _accept_waiting(self) -> None:
        """Reject the rows that wait: another one has an answer, so it was their own fault."""
        waiting, self._waiting = self._waiting, []
        for line, *_ in waiting:
            await self._log.add(line)

    def _no_answers(self) -> BatchStoppedError:
        *_, (_, _, reason) = self._waiting
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
        """Look for a reason to stop."""
        while self._stopped is not None:
            if why := self._stopped():
                self._stop(BatchStoppedError(why))
            await asyncio.sleep(_POLL)

    async def _end(self) -> None:
        """Wait a little for the requests under way, and then cancel them."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=self._grace)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        self._given_up = len(late)

    def _question(self, unread: Unread, row: Row | RowFault) -> _Question | RowFault:
        """Read a row as a call."""
        if isinstance(row, RowFault):
            return row
        cells = self._calls.job.plan.cells
        try:
            given = (cells.given(row), cells.history_of(row), cells.tools_of(row))
            return _Question(unread, row, cells.name_of(row) or default_name(unread.number), given)
        except LazyPromptError as error:
            return RowFault(unread.number, str(error))

    def _tokens(self, question: _Question) -> int:
        """Count the tokens of a prompt, if those of a minute are limited."""
        if not self._pace.counts:
            return 0
        try:
            made = self._calls.module.prompter.generate_prompt(*question.given, format="openai")
            return self._counter.count(made["messages"], made.get("tools"))
        except LazyPromptError:
            return 0  # the call itself will say what is wrong


def _answer(reply: Reply) -> JsonObject:
    """Return an answer as JSON."""
    calls = [{"id": call.id, "name": call.name, "input": cast("Json", call.input)} for call in reply.tool_calls]
    return {
        "text": str(reply),
        "thinking": reply.thinking,
        "tool_calls": cast("list[Json]", calls),
        "usage": None if reply.usage is None else dict(reply.usage),
        "finish": reply.finish,
        "model": reply.model,
    }


def _tokens_of(reply: Reply) -> int:
    """Return the number of tokens that the provider has counted; 0 if it does not tell."""
    return (reply.usage or {}).get("total_tokens") or 0


def _rejected(reason: str, unread: Unread, row: Row | RowFault, partial: Reply | None) -> Line:
    """Return the line of a row without an answer; an answer that came in part was paid for, and is kept."""
    line = reject_line(reason, unread, row)
    if partial is None:
        return line
    answer = json_bytes({**json.loads(line.line), "answer": _answer(partial)}) + b"\n"
    return line._replace(line=answer, tokens=_tokens_of(partial))
