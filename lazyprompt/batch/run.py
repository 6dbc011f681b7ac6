"""A batch run: rows of a file in, files of lines out; killed at any moment, it goes on where it was."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from lazyprompt._base.files import check_no_link
from lazyprompt._version import __version__
from lazyprompt.batch.choice import Choice, about_rows
from lazyprompt.batch.journal import Journal
from lazyprompt.batch.rows import fingerprint
from lazyprompt.batch.state import BatchStoppedError, Files
from lazyprompt.batch.workers import Work, WorkerEndedError, work_on
from lazyprompt.errors import BatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lazyprompt._base.json import JsonObject
    from lazyprompt.batch.choice import RawLine
    from lazyprompt.batch.counting import LineCounter
    from lazyprompt.batch.render import RowPlan
    from lazyprompt.batch.row import Row
    from lazyprompt.batch.rows import RowFile
    from lazyprompt.batch.state import State
    from lazyprompt.batch.workers import Chunk, Made
    from lazyprompt.prompters.rows import RowFault

# A chunk is as many rows as make about so many bytes of lines, but not more than so many rows: what is under way is
# small whatever the rows are, and sending it to a process costs little beside working on it.
_CHUNK_BYTES = 1 << 19
_CHUNK_ROWS = 500
_FIRST_CHUNK = 16


@dataclass(frozen=True, slots=True)
class BatchJob:
    """What a run is asked for.

    Args:
        rows: The file of rows.
        plan: How a row becomes a line.
        output: The output file. Where it is larger than one file of the plan's form may be there are several, whose
            names have numbers.
        rejects: Where rows without a line are written down; without it the first of them ends the run.
        choice: Which rows are worked on.
        workers: How many processes do it.
        counter: What counts the tokens of lines.
    """

    rows: RowFile
    plan: RowPlan
    output: Path
    rejects: Path | None = None
    choice: Choice = field(default_factory=Choice)
    workers: int = 1
    counter: LineCounter | None = None

    def asked(self) -> JsonObject:
        """What the output depends on, by the names that messages use.

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
        # As it comes back from the file of the state.
        read: JsonObject = json.loads(json.dumps(asked))
        return read


Engine: TypeAlias = "Callable[[BatchJob, Work, int], Iterator[Made]]"
"""What makes lines of the rows of a job behind those that are done, in their order."""


class Progress(NamedTuple):
    """How far a run is.

    Attributes:
        rows: How many rows are done, those of the runs before this one too.
        total: About how many there are; None where that is not known.
        rejected: How many have no line.
        rate: Rows a second, of this run.
        tokens: How many tokens the lines have; None where they are not counted.
        eta: How many seconds are left, if it goes on like this; None where that is not known.
    """

    rows: int
    total: int | None
    rejected: int
    rate: float
    tokens: int | None
    eta: float | None


class Outcome(NamedTuple):
    """What a run has made.

    Attributes:
        written: How many rows have a line.
        rejected: How many have none.
        tokens: How many tokens the lines have; None where they are not counted.
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


def run_batch(
    job: BatchJob,
    *,
    restart: bool = False,
    progress: Callable[[Progress], None] | None = None,
    stopped: Callable[[], str | None] | None = None,
    seconds: float = 1.0,
    engine: Engine | None = None,
) -> Outcome:
    """Do what a job asks for, or go on with it.

    Args:
        job: The job.
        restart: Whether a run of it that was begun is thrown away.
        progress: What is told how far it is, after each few hundred rows.
        stopped: What is asked as often whether to stop; it says why.
        seconds: How many seconds' work may be lost when the run is killed.
        engine: What makes lines of rows; None does it on this machine.

    Returns:
        What was made.

    Raises:
        BatchError: The rows cannot be read; or the output is not to be written: another run does so, or one was begun
            that was asked for something else.
        BatchStoppedError: It stopped before its end: a row has no line, a file cannot be written, a process was
            ended, or it was told to. What is done is kept, and the next run of the job goes on with it.
    """
    files = files_of(job)
    with Journal(files, job.asked(), job.plan.form.limits, restart=restart, seconds=seconds) as journal:
        begun, before = monotonic(), journal.state
        if not before.done:
            tell = None if progress is None else Watch(job, before, progress).tell
            _do(job, journal, engine or made_here, tell, stopped or _never)
        outputs = journal.finish()
        state = journal.state
    rate = (state.rows - before.rows) / max(monotonic() - begun, 1e-9)
    tokens = None if job.counter is None else state.tokens
    return Outcome(state.written, state.rejected, tokens, rate, outputs, files.left_over(len(outputs)))


def made_here(job: BatchJob, work: Work, done: int) -> Iterator[Made]:
    """What comes of the rows of a job, in their order, on this machine; an :data:`Engine`.

    Args:
        job: The job.
        work: What is done with rows.
        done: The number of the last row that is done already.

    Raises:
        BatchError: The rows cannot be read.
        WorkerEndedError: A process was ended by something else.
    """
    chunks = _Chunks(job.choice.unread(job.rows, done))
    for made in work_on(work, chunks, job.workers):
        chunks.learn(made)
        yield made


def _do(
    job: BatchJob,
    journal: Journal,
    engine: Engine,
    tell: Callable[[State], None] | None,
    stopped: Callable[[], str | None],
) -> None:
    """Work on all rows behind those that are done."""
    limits = [most for most in (job.plan.form.limits.bytes, job.plan.form.limits.line_bytes) if most is not None]
    work = Work(job.plan, job.rejects is not None, min(limits, default=None), job.counter)
    try:
        for made in engine(job, work, journal.state.number):
            if made.number is not None:
                journal.add(made.number, made.lines, made.rejects, made.tokens)
            if tell is not None:
                tell(journal.state)
            if made.fault is not None:
                raise BatchStoppedError(f"row {made.fault.number:,}: {made.fault.reason}", made.fault)
            if why := stopped():
                raise BatchStoppedError(f"{_last(journal.state)}: {why}")
    except WorkerEndedError as error:
        # Who tells a run to end often tells all its processes.
        raise BatchStoppedError(f"{_last(journal.state)}: {stopped() or error}") from error


def _last(state: State) -> str:
    return f"row {state.number:,} was the last" if state.number else "no row is done"


def _never() -> None:
    """Nobody wants it to stop."""


class _Chunks:
    """Rows in chunks, whose size follows what rows turn out to be.

    Args:
        rows: The rows.
    """

    def __init__(self, rows: Iterator[tuple[int, Row | RowFault | RawLine]]) -> None:
        self._rows = rows
        self._size = _FIRST_CHUNK

    def __iter__(self) -> Iterator[Chunk]:
        while chunk := [*islice(self._rows, self._size)]:
            yield chunk

    def learn(self, made: Made) -> None:
        """Look how long lines are."""
        lines = len(made.lines) + len(made.rejects)
        size = sum(map(len, made.lines)) + sum(map(len, made.rejects))
        self._size = max(1, min(_CHUNK_ROWS, _CHUNK_BYTES * lines // max(1, size)))


class Watch:
    """Tells how far a run is.

    Args:
        job: The job.
        state: How far it was at the beginning.
        progress: What is told.
    """

    def __init__(self, job: BatchJob, state: State, progress: Callable[[Progress], None]) -> None:
        self._counts = job.counter is not None
        count = about_rows(job.rows)
        self._total = None if count is None else max(job.choice.size(count), 1)
        self._begun = monotonic()
        self._before = state.rows
        self._progress = progress

    def tell(self, state: State) -> None:
        """Tell it."""
        rows = state.rows
        rate = (rows - self._before) / max(monotonic() - self._begun, 1e-9)
        eta = None if self._total is None or not rate else max(0, self._total - rows) / rate
        tokens = state.tokens if self._counts else None
        self._progress(Progress(rows, self._total, state.rejected, rate, tokens, eta))


def files_of(job: BatchJob) -> Files:
    """The files that a job writes.

    Raises:
        BatchError: One of them cannot be written, or both are one.
    """
    files = Files(_written_to(job.output, job), None if job.rejects is None else _written_to(job.rejects, job))
    if files.output == files.rejects:
        raise BatchError(f"{job.output} is the output and the file of rejects; give two names")
    return files


def _written_to(path: Path, job: BatchJob) -> Path:
    """A file that is to be written, if it can be."""
    try:
        check_no_link(path)
    except OSError as error:
        raise BatchError(f"{path} cannot be written: {error.strerror}") from error
    if path.exists() and not path.is_file():
        raise BatchError(f"{path} is no file; a run that can be gone on with writes to a file")
    if not path.parent.is_dir():
        raise BatchError(f"{path}: there is no directory {path.parent}")
    if path.exists() and path.samefile(job.rows.path):
        raise BatchError(f"the input cannot be written to ({path}); give another name")
    return path
