"""A batch run, which renders a file of rows to output files and can be resumed after being killed."""

from __future__ import annotations

import json
import os
import pickle
import signal
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import get_context, parent_process
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from lazyprompt._base.files import check_no_link
from lazyprompt.batch.database import BatchStoppedError, Line, State
from lazyprompt.batch.journal import Journal, RunFiles
from lazyprompt.batch.row_columns import check_columns
from lazyprompt.batch.row_names import check_names
from lazyprompt.batch.rows import Choice, RawRow, Row, RowFile, estimate_rows, fingerprint, parse_row
from lazyprompt.errors import BatchError, LazyPromptError
from lazyprompt.prompters.rows import RowFault

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from pathlib import Path

    from lazyprompt._base.json import JsonObject
    from lazyprompt.batch.forms import LineCounter
    from lazyprompt.batch.plan import RowPlan

# The target chunk size in bytes. Small chunks add overhead, and large chunks lose more work when a run is killed.
_CHUNK_BYTES = 1 << 19
_CHUNK_ROWS = 500
_FIRST_CHUNK = 16
# The number of pending chunks per process. With two chunks, a process never waits for work.
_AHEAD = 2


@dataclass(frozen=True, slots=True)
class BatchJob:
    """The settings for a batch run.

    Args:
        rows: The input file that contains the rows.
        plan: The plan that turns each row into a line.
        output: The output file; it is split into numbered files if it exceeds the format's limits.
        rejects: The file for rows that cannot be rendered; None to stop at the first of these rows.
        choice: The selection of rows.
        workers: The number of processes.
        counter: The token counter for lines; None if tokens are not counted.
    """

    rows: RowFile
    plan: RowPlan
    output: Path
    rejects: Path | None = None
    choice: Choice = field(default_factory=Choice)
    workers: int = 1
    counter: LineCounter | None = None

    def settings(self) -> JsonObject:
        """Return the settings that affect the output, keyed by their names in error messages.

        Raises:
            BatchError: The rows cannot be read.
        """
        settings: JsonObject = {
            "the input": fingerprint(self.rows),
            **self.plan.settings,
            **self.choice.settings,
            "--tokens": None if self.counter is None else self.counter.name,
        }
        # Convert the settings to JSON types, because the settings in the database were parsed from JSON.
        read: JsonObject = json.loads(json.dumps(settings))
        return read


class Progress(NamedTuple):
    """The progress of a run.

    Attributes:
        rows: The number of finished rows, including those from earlier runs.
        total: The approximate total number of rows; None if unknown.
        rejected: The number of rejected rows.
        rate: The number of rows per second in this run.
        tokens: The number of tokens in the lines; None if they are not counted.
        eta: The estimated remaining time in seconds; None if unknown.
    """

    rows: int
    total: int | None
    rejected: int
    rate: float
    tokens: int | None
    eta: float | None


class Outcome(NamedTuple):
    """The outcome of a run.

    Attributes:
        written: The number of rows with an output line.
        rejected: The number of rejected rows.
        tokens: The number of tokens in the lines; None if they are not counted.
        rate: The number of rows per second in this run.
        outputs: The output files.
        left_over: The output files from an earlier run that this run did not replace.
    """

    written: int
    rejected: int
    tokens: int | None
    rate: float
    outputs: list[Path]
    left_over: list[Path]

    @property
    def read(self) -> int:
        """The number of rows that were read, including rejected rows."""
        return self.written + self.rejected


Chunk: TypeAlias = "Sequence[RawRow]"
"""Rows that one process renders together."""


class WorkerEndedError(BatchError):
    """A worker process ended unexpectedly."""


class ChunkResult(NamedTuple):
    """The result for one chunk of rows.

    Attributes:
        number: The number of the last finished row; None if no row was finished.
        lines: The lines for the output.
        rejects: The lines for the rejects file.
        tokens: The number of tokens in the lines, or 0 if tokens are not counted.
        fault: The error in the row that stops the run, if any.
    """

    number: int | None
    lines: Sequence[bytes]
    rejects: Sequence[Line]
    tokens: int = 0
    fault: RowFault | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """A renderer for chunks of rows; it is pickled and sent to worker processes.

    Args:
        plan: The plan that renders the lines.
        skip: True to reject rows that cannot be rendered; False to stop at the first of these rows.
        most_bytes: The maximum size of a line in bytes; None for no limit.
        count: A function that counts the tokens in a line; None if tokens are not counted.
    """

    plan: RowPlan
    skip: bool = False
    most_bytes: int | None = None
    count: Callable[[bytes], int] | None = None

    def render(self, chunk: Chunk) -> ChunkResult:
        """Render the lines for a chunk of rows; if ``skip`` is False, stop at the first row that fails."""
        lines: list[bytes] = []
        rejects: list[Line] = []
        last: int | None = None
        fault: RowFault | None = None
        for raw in chunk:
            row = parse_row(raw)
            line = self._line(raw.number, row)
            if isinstance(line, bytes):
                lines.append(line)
            elif self.skip:
                rejects.append(reject_line(line.reason, raw, row))
            else:
                fault = line
                break
            last = raw.number
        return ChunkResult(last, lines, rejects, 0 if self.count is None else sum(map(self.count, lines)), fault)

    def _line(self, number: int, row: Row | RowFault) -> bytes | RowFault:
        if isinstance(row, RowFault):
            return row
        try:
            line = self.plan.line(number, row)
        except LazyPromptError as error:
            return RowFault(number, str(error).removeprefix(f"row {number}: "))
        if self.most_bytes is not None and len(line) > self.most_bytes:
            return RowFault(number, f"line is too large: {len(line):,} bytes; the limit is {self.most_bytes:,}")
        return line


def reject_line(reason: str, raw: RawRow, row: Row | RowFault) -> Line:
    """Return a row's line for the rejects file.

    Args:
        reason: The reason why the row was rejected.
        raw: The row as it was read from the file.
        row: The parsed row, or the reason why the row cannot be parsed.
    """
    text, data = (row.text, None) if isinstance(row, RowFault) else (raw.stripped_text, {**row})
    line: dict[str, object] = {
        "row": raw.number,
        "lines": raw.lines,
        "reason": reason,
        "text": text,
        "data": data,
    }
    try:
        written = json.dumps(line, ensure_ascii=False, allow_nan=False, default=str)
    except ValueError:  # NaN is not valid JSON
        written = json.dumps({**line, "data": str(row)}, ensure_ascii=False)
    # The backslashreplace handler writes a lone surrogate as a valid JSON escape.
    return Line(raw.number, written.encode("utf-8", "backslashreplace") + b"\n", rejected=True)


StopReason: TypeAlias = "Callable[[], str | None]"
"""A function that returns the reason to stop a run, or None."""
Engine: TypeAlias = "Callable[[Work, Iterable[Chunk], int], Iterator[ChunkResult]]"
"""A function that renders chunks in a given number of processes and yields the results in order."""


def run_batch(
    job: BatchJob,
    *,
    restart: bool = False,
    progress: Callable[[Progress], None] | None = None,
    stopped: StopReason | None = None,
    seconds: float = 1.0,
    engine: Engine | None = None,
) -> Outcome:
    """Run a batch job, or resume an unfinished run of the job.

    Args:
        job: The job.
        restart: True to discard an unfinished run of this job.
        progress: A function called with the progress after each chunk.
        stopped: A function, called after each chunk, that returns the reason to stop, or None to continue.
        seconds: The minimum time between saves, in seconds; a killed run loses the work since its last save.
        engine: A function that renders chunks of rows; None to use processes on this machine.

    Returns:
        The outcome.

    Raises:
        BatchError: The rows cannot be read, a column that the prompt needs is missing from every row, or two rows have
            the same name. Also raised if another run is writing the output or an unfinished run has different settings.
        BatchStoppedError: The run stopped early: a row cannot be rendered, a file cannot be written, a worker process
            ended, or ``stopped`` returned a reason. Finished rows are kept, and the next run of the job continues
            after them.
    """
    files = files_of(job)
    check_columns(job.choice.raw_rows(job.rows), job.plan.cells)
    if job.plan.form.id_key:
        check_names(job.choice.raw_rows(job.rows), job.plan.cells)
    with Journal(files, job.settings(), job.plan.form.limits, restart=restart, seconds=seconds) as journal:
        begun, before = monotonic(), journal.state
        if not before.done:
            _render_rows(job, journal, engine or work_on, watch(job, before, progress), stopped or (lambda: None))
        outputs = journal.finish()
        state = journal.state
    rate = (state.rows - before.rows) / max(monotonic() - begun, 1e-9)
    tokens = None if job.counter is None else state.tokens
    return Outcome(state.written, state.rejected, tokens, rate, outputs, files.left_over(len(outputs)))


def _render_rows(
    job: BatchJob, journal: Journal, engine: Engine, report: Callable[[State], None], stopped: StopReason
) -> None:
    """Render all rows that are not finished yet."""
    limits = [most for most in (job.plan.form.limits.bytes, job.plan.form.limits.line_bytes) if most is not None]
    work = Work(job.plan, job.rejects is not None, min(limits, default=None), job.counter)
    chunks = _RowChunks(job.choice.raw_rows(job.rows, journal.state.number))

    def place() -> str:
        return f"row {journal.state.number:,} was the last" if journal.state.number else "no row is finished"

    try:
        for result in engine(work, chunks, job.workers):
            chunks.resize(result)
            if result.number is not None:
                journal.add(result.number, result.lines, result.rejects, result.tokens)
            report(journal.state)
            if result.fault is not None:
                raise BatchStoppedError(f"row {result.fault.number:,}: {result.fault.reason}", result.fault)
            if reason := stopped():
                raise BatchStoppedError(f"{place()}: {reason}")
    except WorkerEndedError as error:
        # The signal that stops a run can also kill its workers, so report the signal as the reason.
        raise BatchStoppedError(f"{place()}: {stopped() or error}") from error


class _RowChunks:
    """An iterator over chunks of rows; the chunk size is adapted to the length of earlier lines.

    Args:
        rows: The rows.
    """

    def __init__(self, rows: Iterator[RawRow]) -> None:
        self._rows = rows
        self._size = _FIRST_CHUNK

    def __iter__(self) -> Iterator[Chunk]:
        while chunk := [*islice(self._rows, self._size)]:
            yield chunk

    def resize(self, result: ChunkResult) -> None:
        """Set the size of the next chunk, based on the average length of this chunk's lines."""
        lines = [*result.lines, *(reject.line for reject in result.rejects)]
        self._size = max(1, min(_CHUNK_ROWS, _CHUNK_BYTES * len(lines) // max(1, sum(map(len, lines)))))


def work_on(work: Work, chunks: Iterable[Chunk], workers: int = 1) -> Iterator[ChunkResult]:
    """Render chunks of rows on this machine; this is the default :data:`Engine`.

    Args:
        work: The renderer for chunks of rows.
        chunks: The chunks of rows, which are read only as far ahead as needed to keep the processes busy.
        workers: The number of processes; 1 means that rows are rendered in this process.

    Yields:
        The result for each chunk, in order.

    Raises:
        BatchError: The renderer cannot be pickled.
        WorkerEndedError: A worker process ended unexpectedly.
    """
    if workers == 1:
        yield from map(work.render, chunks)
        return
    try:
        pickle.dumps(work)
    except Exception as error:  # pickle can raise any exception
        raise BatchError(f"the prompter cannot be sent to other processes ({error}); use one worker") from error
    # Spawn the processes, because forked processes would inherit locks that other threads hold.
    with ProcessPoolExecutor(workers, get_context("spawn"), _begin_worker, (work,)) as pool:

        def submit(chunk: Chunk) -> Callable[[], ChunkResult]:
            with _uninterrupted():
                return pool.submit(_render_in_worker, chunk).result

        try:
            yield from in_order(submit, chunks, workers)
        except BrokenProcessPool as error:
            raise WorkerEndedError(
                "a worker process was killed, possibly because the system ran out of memory (use fewer workers), or "
                "could not start (see the error above)"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def in_order(
    submit: Callable[[Chunk], Callable[[], ChunkResult]], chunks: Iterable[Chunk], workers: int
) -> Iterator[ChunkResult]:
    """Yield the results for chunks in order, while a few later chunks are pending.

    Args:
        submit: A function that submits a chunk and returns a function that waits for its result.
        chunks: The chunks.
        workers: The number of processes.
    """
    under_way: deque[Callable[[], ChunkResult]] = deque()
    for chunk in chunks:
        under_way.append(submit(chunk))
        if len(under_way) >= workers * _AHEAD:
            yield under_way.popleft()()
    while under_way:
        yield under_way.popleft()()


@contextmanager
def _uninterrupted() -> Generator[None]:
    """Block SIGINT in processes started in this context, so that Ctrl-C interrupts only the main process."""
    if os.name != "posix":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# The worker process's renderer, which is reused between chunks because its plan caches values.
_WORK: ContextVar[Work] = ContextVar("work")


def _begin_worker(work: Work) -> None:
    """Set up a worker process that ends when its parent ends."""
    _WORK.set(work)
    Thread(target=_end_with_parent, daemon=True).start()


def _render_in_worker(chunk: Chunk) -> ChunkResult:
    return _WORK.get().render(chunk)


def _end_with_parent() -> None:
    """End this process when its parent ends; otherwise, it would wait for work forever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def watch(job: BatchJob, before: State, progress: Callable[[Progress], None] | None) -> Callable[[State], None]:
    """Return a function that reports a run's progress, given the run's state.

    Args:
        job: The job.
        before: The counts of finished rows and tokens at the time of this call.
        progress: A function called with the progress, or None.
    """
    if progress is None:
        return lambda _: None
    count = estimate_rows(job.rows)
    total = None if count is None else max(job.choice.size(count), 1)
    begun = monotonic()

    def report(state: State) -> None:
        rows = state.rows
        rate = (rows - before.rows) / max(monotonic() - begun, 1e-9)
        eta = None if total is None or not rate else max(0, total - rows) / rate
        progress(Progress(rows, total, state.rejected, rate, state.tokens or None, eta))

    return report


def files_of(job: BatchJob) -> RunFiles:
    """Return the files that a job writes.

    Raises:
        BatchError: A file cannot be written, or the output and the rejects file have the same path.
    """
    output = _checked_output(job.output, job, "output")
    files = RunFiles(output, None if job.rejects is None else _checked_output(job.rejects, job, "rejects"))
    if files.output == files.rejects:
        raise BatchError(
            f"{job.output} cannot be both the output and the rejects file; use two different names", setting="rejects"
        )
    return files


def _checked_output(path: Path, job: BatchJob, setting: str) -> Path:
    """Check that the run can write an output file at a path, and return the path."""
    try:
        check_no_link(path)
    except OSError as error:
        raise BatchError(f"{path} cannot be written: {error.strerror}", setting=setting) from error
    fault = ""
    if path.exists() and not path.is_file():
        fault = f"{path} is not a regular file; a resumable run requires one"
    elif not path.parent.is_dir():
        fault = f"{path}: directory {path.parent} does not exist"
    elif path.exists() and path.samefile(job.rows.path):
        fault = f"{path} is the input, which cannot be overwritten; use another name"
    if fault:
        raise BatchError(fault, setting=setting)
    return path
