"""A batch run that sends each row to a model, within rate limits.

Each response is stored in the run's database as soon as it arrives, before another row is sent. A resumed run sends
only rows without a stored response. After a killed run, only rows whose requests were pending are sent a second time.
At the end, all responses are written to the output in row order.

Errors fall into three groups. An invalid key, an unknown model or an account without credit affects all rows, so the
run stops. An invalid request affects only its row, which is rejected. A server failure or timeout can affect one row or
every row, so a failed row is rejected only after another row succeeds. If no other row succeeds, the next run sends the
failed rows again.
"""

from __future__ import annotations

import asyncio
import json
from array import array
from bisect import bisect_left
from dataclasses import dataclass, field
from sqlite3 import OperationalError
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from lazyprompt.batch.database import BatchStoppedError, Line, RunDatabase, State, add_ending
from lazyprompt.batch.forms import FileLimits, json_bytes
from lazyprompt.batch.journal import Journal
from lazyprompt.batch.rates import Pace, Rates
from lazyprompt.batch.row_columns import check_columns
from lazyprompt.batch.row_names import check_names, default_name
from lazyprompt.batch.rows import parse_row
from lazyprompt.batch.run import BatchJob, Outcome, Progress, StopReason, files_of, reject_line, watch
from lazyprompt.errors import BatchError, LazyPromptError, ModuleError
from lazyprompt.modules.online import OnlineChatModule
from lazyprompt.prompters.rows import RowFault
from lazyprompt.tokens.approximate import ApproximateTokenCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.batch.rows import RawRow, Row
    from lazyprompt.formatters.reply import Reply
    from lazyprompt.messages.history import HistoryLike
    from lazyprompt.messages.tools import ToolsLike
    from lazyprompt.modules.trainable import TrainableModule

# The values of ``ModuleError.kind`` for errors that affect every row of a batch.
_OF_ALL = frozenset(("key", "not found", "rate limit"))
# The values of ``ModuleError.kind`` for errors that may affect every row. An error of a kind in no set affects one row.
_UNSURE = frozenset(("server", "timeout", "connection", "cut", "malformed"))
# The values of ``ModuleError.kind`` for errors that may affect every row, such as a rejected parameter.
# After the first successful row, an error of these kinds affects only one row.
_UNSURE_AT_FIRST = frozenset(("request",))
# The run stops after this many failed rows without a success, or after twice the concurrency if that is larger.
_WAITING = 10
_POLL = 0.1


@dataclass(frozen=True, slots=True)
class CallJob:
    """A batch job that sends the prompt of each row to a model.

    Args:
        job: The rows, the prompts and the output file. The line format in ``job.plan`` is ignored. If the job has no
            rejects file, the first rejected row ends the run. If tokens per minute are limited, the job's counter
            counts the tokens in each prompt.
        module: The client for the model, to which the plan's prompter is attached.
        rates: The limits for simultaneous requests, and for requests and tokens per minute.
        params: Additional parameters for each call.
    """

    job: BatchJob
    module: OnlineChatModule | TrainableModule
    rates: Rates = field(default_factory=Rates)
    params: Mapping[str, Json] = field(default_factory=dict[str, "Json"])

    def settings(self) -> JsonObject:
        """Return the settings that affect the responses, keyed by their names in error messages.

        The settings don't include the rates and the token counter, because these may change between runs.

        Raises:
            BatchError: The rows cannot be read, or a parameter is not valid JSON.
        """
        try:
            params: JsonObject = json.loads(json.dumps(dict(self.params), allow_nan=False))
        except (TypeError, ValueError) as error:
            raise BatchError(f"call parameters are not valid JSON: {error}", setting="params") from error
        module = self.module
        # Omit a local model's URL from the saved settings, because a resumed run may use another URL.
        model = f"{module.source.name} {module.model}" if isinstance(module, OnlineChatModule) else module.base_model
        settings = {name: value for name, value in self.job.settings().items() if name != "--tokens"}
        return {**settings, "the model": model, "the parameters of calls": params}


def call_batch(
    calls: CallJob,
    *,
    restart: bool = False,
    progress: Callable[[Progress], None] | None = None,
    stopped: StopReason | None = None,
    grace: float = 5.0,
) -> Outcome:
    """Send each row to a model and store the responses, or resume an unfinished run.

    Args:
        calls: The job.
        restart: True to discard an unfinished run with its responses, or an existing output file.
        progress: A function called with the progress after each row.
        stopped: A function, called ten times a second, that returns the reason to stop, or None to continue.
        grace: The maximum time, in seconds, to wait for pending requests when the run stops.

    Returns:
        The outcome, including the token count that the provider reported.

    Raises:
        BatchError: The rows cannot be read, a column that the prompt needs is missing from every row, or two rows have
            the same name. Also raised if the output exists, another run is writing it, or an unfinished run has
            different settings.
        BatchStoppedError: The run stopped early: the model cannot be reached, a row is rejected, a file cannot be
            written, or ``stopped`` returned a reason. Responses stored before the stop are kept, and the next run
            resumes from them.
    """
    job = calls.job
    files = files_of(job)
    if files.output.exists() and not restart and not add_ending(files.output, ".run").exists():
        raise BatchError(f"{files.output} already exists; use another output, or add --restart to send all rows again")
    check_columns(job.choice.raw_rows(job.rows), job.plan.cells)
    check_names(job.choice.raw_rows(job.rows), job.plan.cells)
    calls.module.prompt(job.plan.prompter)
    # The response file isn't submitted to a batch service, so no file limits apply.
    with Journal(files, calls.settings(), FileLimits(), restart=restart) as journal:
        rate = 0.0
        if not journal.state.done:
            log = _AnswerLog(journal.database, job, progress)
            begun, before = monotonic(), log.state.written
            _CallRun(calls, log, stopped, grace).run(journal.state.number)
            rate = (log.state.written - before) / max(monotonic() - begun, 1e-9)
            for chunk in journal.database.chunks(journal.state.number):
                rejects = [each for each in chunk if each.rejected]
                tokens = sum(each.tokens for each in chunk)
                journal.add(chunk[-1].row, [each.line for each in chunk if not each.rejected], rejects, tokens)
        outputs = journal.finish()
        state = journal.state
    return Outcome(state.written, state.rejected, state.tokens or None, rate, outputs, files.left_over(len(outputs)))


class _AnswerLog:
    """The responses and rejects of a run, stored in its database.

    Each row that an earlier run finished takes eight bytes of memory. A row whose stored line is damaged is sent again.

    Args:
        database: The run's database.
        job: The job; if it has no rejects file, previously rejected rows are sent again.
        progress: A function called with the progress after each row.

    Attributes:
        state: The counts of stored responses, rejected rows and tokens.
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
        """Return True if an earlier run stored a line for the row."""
        at = bisect_left(self._earlier, row)
        return at < len(self._earlier) and self._earlier[at] == row

    async def add(self, line: Line) -> None:
        """Add a line and wait until it is committed.

        Lines that are added during a commit are written together in the next commit.

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


class _RowCall(NamedTuple):
    """The model call for one row.

    Attributes:
        raw: The row as it was read from the file.
        row: The parsed row.
        name: The value in the row's id column, or a default name such as ``row-7``.
        given: The call's arguments: input, history and tools.
    """

    raw: RawRow
    row: Row
    name: str
    given: tuple[object, HistoryLike | None, ToolsLike]


class _CallRun:
    """The model calls for all rows that have neither a stored response nor a stored rejection.

    Args:
        calls: The job.
        log: The log of stored responses and rejects.
        stopped: A function that returns the reason to stop, or None to continue.
        grace: The maximum time, in seconds, to wait for pending requests when the run stops.
    """

    def __init__(self, calls: CallJob, log: _AnswerLog, stopped: StopReason | None, grace: float) -> None:
        self._calls, self._log = calls, log
        self._stopped, self._grace = stopped, grace
        self._skips = calls.job.rejects is not None
        self._counter = ApproximateTokenCounter() if calls.job.counter is None else calls.job.counter.counter
        self._most_waiting = max(_WAITING, 2 * calls.rates.concurrency)
        # The rows that are rejected as soon as another row succeeds: the line for the rejects file, the error kind and
        # the reason.
        self._waiting: list[tuple[Line, str, str]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._error: BaseException | None = None
        self._cancelled = 0

    def run(self, behind: int) -> None:
        """Send each row to the model.

        Args:
            behind: The number of the last skipped row; all earlier rows are skipped, too.

        Raises:
            BatchError: The rows cannot be read.
            BatchStoppedError: The run stopped early.
        """
        try:
            asyncio.run(self._run(behind))
        except BatchStoppedError as error:
            lost = f", {self._cancelled:,} were pending and will be sent again" if self._cancelled else ""
            message = f"{error}; {self._log.state.written:,} rows have a response{lost}"
            raise BatchStoppedError(message, error.fault) from error

    async def _run(self, behind: int) -> None:
        self._places = asyncio.Semaphore(self._calls.rates.concurrency)
        self._pace = Pace(self._calls.rates)
        self._feeding = asyncio.create_task(self._feed(self._calls.job.choice.raw_rows(self._calls.job.rows, behind)))
        watching = asyncio.create_task(self._watch())
        try:
            await asyncio.wait((self._feeding,))
        finally:
            watching.cancel()
            self._feeding.cancel()
            await self._end()
            await self._calls.module.aclose()
        if self._error is not None:
            raise self._error
        self._feeding.result()

    async def _feed(self, rows: Iterator[RawRow]) -> None:
        """Start a call for each row; each call occupies a concurrency slot until its response is stored.

        The first row is sent alone, so that an invalid key costs only one request. This also prevents a burst of
        requests that become due while the client is still loading, which takes a second or two.
        """
        is_first = True
        for raw in rows:
            if raw.number in self._log:
                continue
            row = parse_row(raw)
            call = self._row_call(raw, row)
            if isinstance(call, RowFault):
                await self._refuse(call.reason, raw, row)
                await asyncio.sleep(0)  # yield to the event loop, so that another task can stop the run
                continue
            await self._places.acquire()
            taken = await self._pace.turn(self._tokens(call))
            task = asyncio.create_task(self._ask(call, taken))
            self._tasks.add(task)
            task.add_done_callback(self._finish_task)
            if is_first:
                await asyncio.wait((task,))
                is_first = False
        for _ in range(self._calls.rates.concurrency):
            await self._places.acquire()
        # Every concurrency slot is free, so all requests have ended.
        if self._waiting and (not self._log.state.written or any(kind == "connection" for _, kind, _ in self._waiting)):
            raise self._no_answers()
        await self._reject_waiting()

    async def _ask(self, call: _RowCall, taken: int) -> None:
        """Send one row and store the response."""
        params: dict[str, Any] = {**self._calls.params}
        try:
            reply = await self._calls.module.acall(*call.given, **params)
        except LazyPromptError as error:
            partial: Reply | None = getattr(error, "partial", None)
            self._pace.settle(taken, None if partial is None else partial.usage)
            await self._fail(call, error, partial)
            return
        self._pace.settle(taken, reply.usage)
        number = call.raw.number
        line = json_bytes({"row": number, "custom_id": call.name, **_answer(reply)}) + b"\n"
        await self._log.add(Line(number, line, rejected=False, tokens=_tokens_of(reply)))
        await self._reject_waiting()

    async def _fail(self, call: _RowCall, error: LazyPromptError, partial: Reply | None) -> None:
        """Stop the run, reject the row, or make the row wait until another row succeeds."""
        kind = error.kind if isinstance(error, ModuleError) else ""
        raw, row, reason = call.raw, call.row, str(error)
        if kind in _OF_ALL or (kind in _UNSURE and not self._skips):
            self._stop(BatchStoppedError(f"row {raw.number:,}: {reason}"))
        elif self._skips and (kind in _UNSURE or (kind in _UNSURE_AT_FIRST and not self._log.state.written)):
            self._waiting.append((_rejected(reason, raw, row, partial), kind, reason))
            if len(self._waiting) >= self._most_waiting:
                self._stop(self._no_answers())
        else:
            await self._refuse(reason, raw, row, partial)

    async def _refuse(self, reason: str, raw: RawRow, row: Row | RowFault, partial: Reply | None = None) -> None:
        """Reject a row, or stop the run if the job has no rejects file."""
        if self._skips:
            await self._log.add(_rejected(reason, raw, row, partial))
        else:
            fault = RowFault(raw.number, reason, raw.lines, raw.stripped_text)
            self._stop(BatchStoppedError(f"row {raw.number:,}: {reason}", fault))

    async def _reject_waiting(self) -> None:
        """Reject the rows in ``_waiting``, because a successful row shows that the errors don't affect all rows."""
        waiting, self._waiting = self._waiting, []
        for line, *_ in waiting:
            await self._log.add(line)

    def _no_answers(self) -> BatchStoppedError:
        *_, (_, _, reason) = self._waiting
        return BatchStoppedError(f"{len(self._waiting):,} rows in succession have no response; last error: {reason}")

    def _stop(self, error: BaseException) -> None:
        """Stop starting calls, and store the first error, which ends the run."""
        if self._error is None:
            self._error = error
            self._feeding.cancel()

    def _finish_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._places.release()
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._stop(error)

    async def _watch(self) -> None:
        """Poll ``stopped`` until it returns a reason to stop."""
        while self._stopped is not None:
            if reason := self._stopped():
                self._stop(BatchStoppedError(reason))
            await asyncio.sleep(_POLL)

    async def _end(self) -> None:
        """Wait up to ``grace`` seconds for pending requests, and cancel the rest."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=self._grace)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        self._cancelled = len(late)

    def _row_call(self, raw: RawRow, row: Row | RowFault) -> _RowCall | RowFault:
        if isinstance(row, RowFault):
            return row
        cells = self._calls.job.plan.cells
        try:
            given = (cells.input_of(row), cells.history_of(row), cells.tools_of(row))
            return _RowCall(raw, row, cells.name_of(row) or default_name(raw.number), given)
        except LazyPromptError as error:
            return RowFault(raw.number, str(error))

    def _tokens(self, call: _RowCall) -> int:
        """Return the number of tokens in the prompt, or 0 if tokens per minute are not limited."""
        if not self._pace.counts:
            return 0
        try:
            payload = self._calls.module.prompter.generate_prompt(*call.given, format="openai")
            return self._counter.count(payload["messages"], payload.get("tools"))
        except LazyPromptError:
            return 0  # the model call will raise this error again


def _answer(reply: Reply) -> JsonObject:
    """Return a reply as a JSON object."""
    return {
        "text": str(reply),
        "thinking": reply.thinking,
        "tool_calls": [{"id": call.id, "name": call.name, "input": {**call.input}} for call in reply.tool_calls],
        "usage": None if reply.usage is None else dict(reply.usage),
        "finish": reply.finish,
        "model": reply.model,
    }


def _tokens_of(reply: Reply) -> int:
    """Return the token count that the provider reported, or 0 if it reported none."""
    return (reply.usage or {}).get("total_tokens") or 0


def _rejected(reason: str, raw: RawRow, row: Row | RowFault, partial: Reply | None) -> Line:
    """Return a row's line for the rejects file, including the partial response if one arrived."""
    line = reject_line(reason, raw, row)
    if partial is None:
        return line
    answer = json_bytes({**json.loads(line.line), "answer": _answer(partial)}) + b"\n"
    return line._replace(line=answer, tokens=_tokens_of(partial))
