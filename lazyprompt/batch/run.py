"""A batch run: rows of a file in, files of lines out; killed at any moment, it continues where it was."""

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
from lazyprompt._version import __version__
from lazyprompt.batch.database import BatchStoppedError, Line, State
from lazyprompt.batch.journal import Files, Journal
from lazyprompt.batch.row_columns import check_columns
from lazyprompt.batch.row_names import check_names
from lazyprompt.batch.rows import Choice, Row, RowFile, Unread, about_rows, fingerprint, parsed
from lazyprompt.errors import BatchError, LazyPromptError
from lazyprompt.prompters.rows import RowFault

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from pathlib import Path

    from lazyprompt._base.json import JsonObject
    from lazyprompt.batch.forms import LineCounter
    from lazyprompt.batch.plan import RowPlan

# A chunk is as many rows as make about so many bytes of lines, but not more than so many rows: little is under way
# whatever the rows are, and sending a chunk to a process costs little beside working on it.
_CHUNK_BYTES = 1 << 19
_CHUNK_ROWS = 500
_FIRST_CHUNK = 16
# How many chunks are under way for each process, so that none of them waits.
_AHEAD = 2


@dataclass(frozen=True, slots=True)
class BatchJob:
    """The job of a run.

    Args:
        rows: The file of rows.
        plan: The plan that turns a row into a line.
        output: The output file. If one file of the plan's form may not be as large, there are several, whose names
            have numbers.
        rejects: The file for rows without a line; without it the first of them ends the run.
        choice: The rows that are worked on.
        workers: The number of processes.
        counter: The counter of the tokens of lines.
    """

    rows: RowFile
    plan: RowPlan
    output: Path
    rejects: Path | None = None
    choice: Choice = field(default_factory=Choice)
    workers: int = 1
    counter: LineCounter | None = None

    def asked(self) -> JsonObject:
        """Return the settings that the output depends on, by the names that messages use.

        Raises:
            BatchError: The rows cannot be read.
        """
        asked: JsonObject = {
            "lazyprompt": __version__,
            "the input": fingerprint(self.rows),
            **self.plan.settings,
            **self.choice.asked,
            "--tokens": None if self.counter is None else self.counter.name,
        }
        # As it comes back from the database.
        read: JsonObject = json.loads(json.dumps(asked))
        return read


class Progress(NamedTuple):
    """The progress of a run.

    Attributes:
        rows: The number of rows that are done, also by the runs before this one.
        total: About how many there are; None if that is not known.
        rejected: The number of rows without a line.
        rate: Rows a second, of this run.
        tokens: The number of tokens of the lines; None if they are not counted.
        eta: The seconds that are left at this rate; None if that is not known.
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
        written: The number of rows with a line.
        rejected: The number of rows without one.
        tokens: The number of tokens of the lines; None if they are not counted.
        rate: Rows a second, of this run.
        outputs: The output files.
        left_over: Output files of an earlier run that are still there beside these.
    """

    written: int
    rejected: int
    tokens: int | None
    rate: float
    outputs: list[Path]
    left_over: list[Path]

    @property
    def read(self) -> int:
        """The number of rows that were read: each has a line, or is rejected."""
        return self.written + self.rejected


Chunk: TypeAlias = "Sequence[Unread]"
"""Rows that are worked on together."""


class WorkerEndedError(BatchError):
    """A process that worked on rows was ended."""


class Made(NamedTuple):
    """The result of a chunk.

    Attributes:
        number: The number of the last row that is done; None if none is.
        lines: The lines of the rows that have one.
        rejects: The lines of all others, for the file of rejects.
        tokens: The number of tokens of the lines, if they are counted.
        fault: The row that ends the run.
    """

    number: int | None
    lines: Sequence[bytes]
    rejects: Sequence[Line]
    tokens: int = 0
    fault: RowFault | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """The work on rows; it is sent to other processes as it is.

    Args:
        plan: The plan that makes the lines.
        skip: True to pass over rows without a line.
        most_bytes: The most bytes of a line; None is any length.
        count: Counts the tokens of a line; None counts nothing.
    """

    plan: RowPlan
    skip: bool = False
    most_bytes: int | None = None
    count: Callable[[bytes], int] | None = None

    def made(self, chunk: Chunk) -> Made:
        """Return the lines of rows, up to the first row without one, unless such rows are passed over."""
        lines: list[bytes] = []
        rejects: list[Line] = []
        last: int | None = None
        fault: RowFault | None = None
        for unread in chunk:
            row = parsed(unread)
            made = self._line(unread.number, row)
            if isinstance(made, bytes):
                lines.append(made)
            elif self.skip:
                rejects.append(reject_line(made.reason, unread, row))
            else:
                fault = made
                break
            last = unread.number
        return Made(last, lines, rejects, 0 if self.count is None else sum(map(self.count, lines)), fault)

    def _line(self, number: int, row: Row | RowFault) -> bytes | RowFault:
        if isinstance(row, RowFault):
            return row
        try:
            line = self.plan.line(number, row)
        except LazyPromptError as error:
            return RowFault(number, str(error).removeprefix(f"row {number}: "))
        if self.most_bytes is not None and len(line) > self.most_bytes:
            return RowFault(number, f"its line has {len(line):,} bytes; at most {self.most_bytes:,} are allowed")
        return line


def reject_line(reason: str, unread: Unread, row: Row | RowFault) -> Line:
    """Return the line of the file of rejects for a row.

    Args:
        reason: The reason.
        unread: The row as the file contains it.
        row: The row, parsed.
    """
    text, data = (row.text, None) if isinstance(row, RowFault) else (unread.shown_text, {**row})
    line: dict[str, object] = {
        "row": unread.number,
        "lines": unread.lines,
        "reason": reason,
        "text": text,
        "data": data,
    }
    try:
        written = json.dumps(line, ensure_ascii=False, allow_nan=False, default=str)
    except ValueError:  # NaN is no JSON
        written = json.dumps({**line, "data": str(row)}, ensure_ascii=False)
    # Half of a surrogate pair becomes what JSON writes for it.
    return Line(unread.number, written.encode("utf-8", "backslashreplace") + b"\n", rejected=True)


Stopped: TypeAlias = "Callable[[], str | None]"
"""Returns the reason to stop a run, if there is one."""
Engine: TypeAlias = "Callable[[Work, Iterable[Chunk], int], Iterator[Made]]"
"""Works on chunks of rows with so many processes, and yields the results in their order."""


def run_batch(
    job: BatchJob,
    *,
    restart: bool = False,
    progress: Callable[[Progress], None] | None = None,
    stopped: Stopped | None = None,
    seconds: float = 1.0,
    engine: Engine | None = None,
) -> Outcome:
    """Do a job, or continue one that was begun.

    Args:
        job: The job.
        restart: True to throw away a run of it that was begun.
        progress: Called with the progress, after each few hundred rows.
        stopped: Called as often; returns the reason to stop, if there is one.
        seconds: The most seconds of work that are lost when the run is killed.
        engine: Makes lines of rows; None does it on this machine.

    Returns:
        The outcome.

    Raises:
        BatchError: The rows cannot be read, no row has a column that the prompt needs, or two rows have the same name;
            or the output must not be written: another run writes it, or one with other settings was begun.
        BatchStoppedError: It stopped before its end: a row has no line, a file cannot be written, a process was
            ended, or ``stopped`` gave a reason. What is done is kept, and the next run of the job continues.
    """
    files = files_of(job)
    check_columns(job.choice.unread(job.rows), job.plan.cells)
    if job.plan.form.id_key:
        check_names(job.choice.unread(job.rows), job.plan.cells)
    with Journal(files, job.asked(), job.plan.form.limits, restart=restart, seconds=seconds) as journal:
        begun, before = monotonic(), journal.state
        if not before.done:
            _do(job, journal, engine or work_on, watch(job, before, progress), stopped or (lambda: None))
        outputs = journal.finish()
        state = journal.state
    rate = (state.rows - before.rows) / max(monotonic() - begun, 1e-9)
    tokens = None if job.counter is None else state.tokens
    return Outcome(state.written, state.rejected, tokens, rate, outputs, files.left_over(len(outputs)))


def _do(job: BatchJob, journal: Journal, engine: Engine, tell: Callable[[State], None], stopped: Stopped) -> None:
    """Work on all rows behind those that are done."""
    limits = [most for most in (job.plan.form.limits.bytes, job.plan.form.limits.line_bytes) if most is not None]
    work = Work(job.plan, job.rejects is not None, min(limits, default=None), job.counter)
    chunks = _RowChunks(job.choice.unread(job.rows, journal.state.number))

    def place() -> str:
        return f"row {journal.state.number:,} was the last" if journal.state.number else "no row is done"

    try:
        for made in engine(work, chunks, job.workers):
            chunks.learn(made)
            if made.number is not None:
                journal.add(made.number, made.lines, made.rejects, made.tokens)
            tell(journal.state)
            if made.fault is not None:
                raise BatchStoppedError(f"row {made.fault.number:,}: {made.fault.reason}", made.fault)
            if why := stopped():
                raise BatchStoppedError(f"{place()}: {why}")
    except WorkerEndedError as error:
        # Who tells a run to end often tells all its processes.
        raise BatchStoppedError(f"{place()}: {stopped() or error}") from error


class _RowChunks:
    """Rows in chunks, whose size follows that of their lines.

    Args:
        rows: The rows.
    """

    def __init__(self, rows: Iterator[Unread]) -> None:
        self._rows = rows
        self._size = _FIRST_CHUNK

    def __iter__(self) -> Iterator[Chunk]:
        while chunk := [*islice(self._rows, self._size)]:
            yield chunk

    def learn(self, made: Made) -> None:
        """Take the next size from the length of lines."""
        lines = [*made.lines, *(reject.line for reject in made.rejects)]
        self._size = max(1, min(_CHUNK_ROWS, _CHUNK_BYTES * len(lines) // max(1, sum(map(len, lines)))))


def work_on(work: Work, chunks: Iterable[Chunk], workers: int = 1) -> Iterator[Made]:
    """Work on chunks of rows on this machine; an :data:`Engine`.

    Args:
        work: The work.
        chunks: The rows; no more of them are read ahead than keeps the processes busy.
        workers: The number of processes; 1 is this one.

    Yields:
        The result of each chunk, in their order.

    Raises:
        BatchError: The work cannot be sent to another process.
        WorkerEndedError: A process was ended from outside.
    """
    if workers == 1:
        yield from map(work.made, chunks)
        return
    try:
        pickle.dumps(work)
    except Exception as error:  # what cannot be pickled says so in many ways
        raise BatchError(f"the prompter cannot be sent to other processes ({error}); take one worker") from error
    # Forking would hand on locks that threads hold, and this output's.
    with ProcessPoolExecutor(workers, get_context("spawn"), _begin_worker, (work,)) as pool:

        def submit(chunk: Chunk) -> Callable[[], Made]:
            with _uninterrupted():
                return pool.submit(_made, chunk).result

        try:
            yield from in_order(submit, chunks, workers)
        except BrokenProcessPool as error:
            raise WorkerEndedError(
                "a worker was ended from outside, as the system does where memory is short (then take fewer workers); "
                "or it could not begin, as is told above"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def in_order(submit: Callable[[Chunk], Callable[[], Made]], chunks: Iterable[Chunk], workers: int) -> Iterator[Made]:
    """Yield the results of chunks in their order, a few of them being under way.

    Args:
        submit: Begins work on a chunk; returns a function that waits for the result.
        chunks: The chunks.
        workers: The number of processes.
    """
    under_way: deque[Callable[[], Made]] = deque()
    for chunk in chunks:
        under_way.append(submit(chunk))
        if len(under_way) >= workers * _AHEAD:
            yield under_way.popleft()()
    while under_way:
        yield under_way.popleft()()


@contextmanager
def _uninterrupted() -> Generator[None]:
    """Keep the keyboard's interrupt from processes that are started within: it is for the one that they work for."""
    if os.name != "posix":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# The work of a process that was begun for it: a plan makes on first use what it needs for all rows.
_WORK: ContextVar[Work] = ContextVar("work")


def _begin_worker(work: Work) -> None:
    """Begin a process that makes lines, and ends when the one that it works for does."""
    _WORK.set(work)
    Thread(target=_end_with_parent, daemon=True).start()


def _made(chunk: Chunk) -> Made:
    return _WORK.get().made(chunk)


def _end_with_parent() -> None:
    """End when the process that this one works for ends, however that happens: it would wait for work for ever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def watch(job: BatchJob, before: State, progress: Callable[[Progress], None] | None) -> Callable[[State], None]:
    """Return a function that reports the progress of a run, given its state.

    Args:
        job: The job.
        before: The state at the beginning.
        progress: Called with the progress; None for nobody.
    """
    if progress is None:
        return lambda _: None
    count = about_rows(job.rows)
    total = None if count is None else max(job.choice.size(count), 1)
    begun = monotonic()

    def tell(state: State) -> None:
        rows = state.rows
        rate = (rows - before.rows) / max(monotonic() - begun, 1e-9)
        eta = None if total is None or not rate else max(0, total - rows) / rate
        progress(Progress(rows, total, state.rejected, rate, state.tokens or None, eta))

    return tell


def files_of(job: BatchJob) -> Files:
    """Return the files that a job writes.

    Raises:
        BatchError: One of them cannot be written, or both are one.
    """
    output = _written_to(job.output, job, "output")
    files = Files(output, None if job.rejects is None else _written_to(job.rejects, job, "rejects"))
    if files.output == files.rejects:
        raise BatchError(f"{job.output} is the output and the file of rejects; give two names", setting="rejects")
    return files


def _written_to(path: Path, job: BatchJob, setting: str) -> Path:
    """Return a file that is to be written, if it can be."""
    try:
        check_no_link(path)
    except OSError as error:
        raise BatchError(f"{path} cannot be written: {error.strerror}", setting=setting) from error
    fault = ""
    if path.exists() and not path.is_file():
        fault = f"{path} is no file; a run that can be continued writes to a file"
    elif not path.parent.is_dir():
        fault = f"{path}: there is no directory {path.parent}"
    elif path.exists() and path.samefile(job.rows.path):
        fault = f"the input cannot be written to ({path}); give another name"
    if fault:
        raise BatchError(fault, setting=setting)
    return path
