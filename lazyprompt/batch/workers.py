"""Rows made into lines, in this process or in several."""

from __future__ import annotations

import json
import os
import pickle
import signal
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from lazyprompt.batch.choice import parsed
from lazyprompt.errors import BatchError, LazyPromptError
from lazyprompt.prompters.rows import RowFault

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from concurrent.futures import Future

    from lazyprompt.batch.choice import RawLine
    from lazyprompt.batch.row import Row

Chunk: TypeAlias = "Sequence[tuple[int, Row | RowFault | RawLine]]"
"""Rows that are worked on together, with their numbers."""

# How many chunks are under way for each process, so that none of them waits.
_AHEAD = 2


class WorkerEndedError(BatchError):
    """A process that worked on rows is no more."""


class Plan(Protocol):
    """What makes lines of rows: a :class:`lazyprompt.batch.render.RowPlan`."""

    def line(self, number: int, row: Row, /) -> bytes:
        """The line of a row, with its end."""
        ...


class Made(NamedTuple):
    """What came of a chunk.

    Attributes:
        number: The number of the last row that is done; None where none is.
        lines: The lines of the rows that have one.
        rejects: Those of all others, as JSON.
        tokens: How many tokens the lines have, where they are counted.
        fault: The row that ends the run.
    """

    number: int | None
    lines: Sequence[bytes]
    rejects: Sequence[bytes]
    tokens: int = 0
    fault: RowFault | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """What is done with rows; it goes to other processes as it is.

    Args:
        plan: What makes their lines.
        skip: Whether rows without a line are passed over.
        most_bytes: How long a line may be; None is any length.
        count: What counts the tokens of a line; None counts nothing.
    """

    plan: Plan
    skip: bool = False
    most_bytes: int | None = None
    count: Callable[[bytes], int] | None = None

    def made(self, chunk: Chunk) -> Made:
        """What comes of rows.

        Args:
            chunk: The rows.

        Returns:
            Their lines; up to the first row without one, unless such rows are passed over.
        """
        lines: list[bytes] = []
        rejects: list[bytes] = []
        last: int | None = None
        for number, unread in chunk:
            row = parsed(number, unread)
            made = self._line(number, row)
            if isinstance(made, bytes):
                lines.append(made)
            elif self.skip:
                rejects.append(reject_line(made, row))
            else:
                return Made(last, lines, rejects, self._tokens(lines), made)
            last = number
        return Made(last, lines, rejects, self._tokens(lines))

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

    def _tokens(self, lines: Sequence[bytes]) -> int:
        return 0 if self.count is None else sum(map(self.count, lines))


def reject_line(fault: RowFault, row: Row | RowFault) -> bytes:
    """A row without a line, as a line of the file of rejects."""
    told: dict[str, object] = {"row": fault.number, "line": fault.line, "reason": fault.reason}
    told["data"] = fault.text if isinstance(row, RowFault) else {**row}
    try:
        text = json.dumps(told, ensure_ascii=False, allow_nan=False, default=str)
    except ValueError:  # NaN is no JSON
        text = json.dumps({**told, "data": str(row)}, ensure_ascii=False)
    # Half of a surrogate pair becomes what JSON writes for it.
    return text.encode("utf-8", "backslashreplace") + b"\n"


def work_on(work: Work, chunks: Iterable[Chunk], workers: int = 1) -> Iterator[Made]:
    """Work on chunks of rows.

    Args:
        work: What is done.
        chunks: The rows; no more of them are read ahead than keeps the processes busy.
        workers: How many processes do it; 1 is this one.

    Yields:
        What came of each chunk, in their order.

    Raises:
        BatchError: The work cannot be sent to another process.
        WorkerEndedError: A process was ended by something else.
    """
    if workers == 1:
        yield from map(work.made, chunks)
        return
    try:
        pickle.dumps(work)
    except Exception as error:  # what cannot be pickled says so in many ways
        raise BatchError(f"the prompter cannot be sent to other processes ({error}); take one worker") from error
    # Forking would hand on locks that threads hold, and this output's.
    with ProcessPoolExecutor(workers, get_context("spawn"), _begin, (work,)) as pool:
        try:
            yield from _in_order(pool, chunks, workers * _AHEAD)
        except BrokenProcessPool as error:
            raise WorkerEndedError(
                "a worker was ended from outside, as the system does where memory is short (then take fewer workers); "
                "or it could not begin, as is told above"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _in_order(pool: ProcessPoolExecutor, chunks: Iterable[Chunk], most: int) -> Iterator[Made]:
    """What comes of chunks, in their order, so many of them being under way."""
    under_way: deque[Future[Made]] = deque()
    for chunk in chunks:
        with _uninterrupted():
            under_way.append(pool.submit(_made, chunk))
        if len(under_way) >= most:
            yield under_way.popleft().result()
    while under_way:
        yield under_way.popleft().result()


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


class _Worker:
    """What a process works on; it is one process's own."""

    work: Work


def _begin(work: Work) -> None:
    """Begin a process."""
    _Worker.work = work
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End when the process that this one works for ends, however that happens: it would wait for work for ever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _made(chunk: Chunk) -> Made:
    return _Worker.work.made(chunk)
