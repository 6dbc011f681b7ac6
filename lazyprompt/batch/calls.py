"""Rows asked of a model: so many at once and so fast, each answer on the disk before the next row takes its place.

Beside the output stands ``out.jsonl.answers`` while a run is on: the answers in the order in which they come. A run
that was killed asks no row again whose answer is there; what was under way, as many rows as are asked at once at most,
it does. At the end the answers go to the output in the order of rows, by way of the journal of all runs.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from lazyprompt.batch.answer_log import AnswerLog
from lazyprompt.batch.asking import Asking
from lazyprompt.batch.call_job import CallJob
from lazyprompt.batch.journal import Journal
from lazyprompt.batch.run import Outcome, Watch, files_of
from lazyprompt.batch.state import ANEW, BatchStoppedError, State, beside
from lazyprompt.errors import BatchError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lazyprompt.batch.answer_log import Entry
    from lazyprompt.batch.run import Progress
    from lazyprompt.batch.state import Files

__all__ = ["CallJob", "call_batch"]

_CHUNK_ROWS = 500


def call_batch(
    calls: CallJob,
    *,
    restart: bool = False,
    progress: Callable[[Progress], None] | None = None,
    stopped: Callable[[], str | None] | None = None,
    grace: float = 5.0,
) -> Outcome:
    """Ask a model for the answer to each row, or go on with that.

    Args:
        calls: What is asked.
        restart: Whether a run that was begun is thrown away, with its answers; or an output that is there already.
        progress: What is told how far it is, after each row.
        stopped: What is asked ten times a second whether to stop; it says why.
        grace: How many seconds are left to what is under way when the run stops.

    Returns:
        What was made; its tokens are those of the answers, as the provider has counted them.

    Raises:
        BatchError: The rows cannot be read; or the output is not to be written: it is there already, another run
            writes it, or one was begun that was asked for something else.
        BatchStoppedError: It stopped before its end: the model cannot be asked, a row is refused, a file cannot be
            written, or it was told to. Answers that have come are kept, and the next run goes on with them.
    """
    job = calls.job
    files = files_of(job)
    answers = beside(files.output, ".answers")
    if not restart:
        _refuse_paying_twice(files, answers)
    calls.module.prompt(job.plan.prompter)
    begun = monotonic()
    # Answers are for the user, so no service's limits hold for their file.
    limits = type(job.plan.form.limits)()
    with Journal(files, calls.asked(), limits, restart=restart) as journal:
        rate = 0.0
        if not journal.state.done:
            if not journal.resumed:
                answers.unlink(missing_ok=True)
            asked = (number for number, _ in job.choice.unread(job.rows))
            with AnswerLog(answers, asked, keeps_rejects=job.rejects is not None) as log:
                journal.save()  # which makes the name of the log safe too
                before = log.answered
                _ask(calls, log, journal.state.number, progress, stopped, grace)
                rate = (log.answered - before) / max(monotonic() - begun, 1e-9)
                _write(log, journal)
                log.remove()
        state = journal.state
        outputs = journal.finish()
    return Outcome(state.written, state.rejected, state.tokens or None, rate, outputs, files.left_over(len(outputs)))


def _refuse_paying_twice(files: Files, answers: Path) -> None:
    """Refuse to begin anew where answers are that were paid for.

    Raises:
        BatchError: There are some.
    """
    if files.state.exists():
        return
    if files.output.exists():
        raise BatchError(f"{files.output} is there already; give another output, or --restart to ask all rows again")
    if answers.exists():
        raise BatchError(
            f"{answers} has the answers of a run whose state, {files.state.name}, is gone; move it away, or {ANEW}"
        )


def _ask(
    calls: CallJob,
    log: AnswerLog,
    behind: int,
    progress: Callable[[Progress], None] | None,
    stopped: Callable[[], str | None] | None,
    grace: float,
) -> None:
    """Ask for all answers that are not there."""
    asking = Asking(calls, log, _teller(calls, log, progress), stopped, grace)
    try:
        asking.run(calls.job.choice.rows(calls.job.rows, behind))
    except BatchStoppedError as error:
        lost = f", {asking.given_up:,} were under way and will be asked again" if asking.given_up else ""
        raise BatchStoppedError(f"{error}; {log.answered:,} rows have an answer{lost}", error.fault) from error


def _teller(calls: CallJob, log: AnswerLog, progress: Callable[[Progress], None] | None) -> Callable[[], None]:
    """What tells how far a run is."""
    if progress is None:
        return lambda: None

    def state() -> State:
        return State(written=log.answered, rejected=log.rejected)

    def with_tokens(told: Progress) -> None:
        progress(told._replace(tokens=log.tokens or None))

    watch = Watch(calls.job, state(), with_tokens)
    return lambda: watch.tell(state())


def _write(log: AnswerLog, journal: Journal) -> None:
    """Write the answers to the output, in the order of rows."""
    chunk: list[Entry] = []
    for entry in log.entries(journal.state.number):
        chunk.append(entry)
        if len(chunk) == _CHUNK_ROWS:
            _add(journal, chunk)
            chunk = []
    if chunk:
        _add(journal, chunk)
    journal.save()


def _add(journal: Journal, chunk: list[Entry]) -> None:
    lines = [entry.line for entry in chunk if not entry.rejected]
    rejects = [entry.line for entry in chunk if entry.rejected]
    journal.add(chunk[-1].row, lines, rejects, sum(entry.tokens for entry in chunk))
