"""A batch run on a cluster: Ray Data renders, this process writes.

The file is taken apart into shards. An actor of Ray, of which there are as many as there is room for, reads a shard,
renders it, and sends its lines back; they come in the order of the rows and go to the same journal as ever. So the
output is that of one process to the byte. When an actor is killed, Ray does its shard again, somewhere else. When this
process is killed, the next run goes on behind what the journal says is safe.

Each machine of the cluster reads the file itself: it must be there under the same path.
"""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from importlib import import_module
from logging import ERROR, getLogger
from signal import SIGTERM, getsignal, signal
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any

from lazyprompt.batch.rows import RowFile
from lazyprompt.batch.run import run_batch
from lazyprompt.batch.shards import Shard, rows_of_shard, shards_of
from lazyprompt.batch.workers import Made, WorkerEndedError
from lazyprompt.errors import missing_extra
from lazyprompt.prompters.rows import RowFault

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from lazyprompt.batch.row import Row
    from lazyprompt.batch.run import BatchJob, Outcome, Progress
    from lazyprompt.batch.workers import Work

# An actor sends its lines back in pieces of about so many bytes, and works on so many rows before it looks.
_PIECE_BYTES = 1 << 20
_PIECE_ROWS = 50
# Ray puts pieces together to blocks of so many bytes at most; a few of them are under way for each actor.
_BLOCK_BYTES = 1 << 23
# The last line of a trace.
_ENDS = re.compile(r"[\w.]+(Error|Exception): ")


def run_on_ray(
    job: BatchJob,
    *,
    restart: bool = False,
    progress: Callable[[Progress], None] | None = None,
    stopped: Callable[[], str | None] | None = None,
    seconds: float = 1.0,
) -> Outcome:
    """The same as :func:`lazyprompt.batch.run.run_batch`, on the cluster that Ray finds.

    That is the cluster that this process is connected to; else that of ``RAY_ADDRESS``, or one that runs on this
    machine; else one is started here for the time of the run.

    Args:
        job: The job. Its ``workers`` are the most actors; with 1 there are as many as the cluster has processors.
        restart: As of ``run_batch`` (so with the others).
        progress: What is told how far it is.
        stopped: What is asked whether to stop.
        seconds: How many seconds' work may be lost when this process is killed.

    Returns:
        What was made.

    Raises:
        BatchError: As of ``run_batch`` (so with BatchStoppedError).
        MissingExtraError: Ray is not installed.
    """
    _ray()
    return run_batch(job, restart=restart, progress=progress, stopped=stopped, seconds=seconds, engine=made_on_ray)


def made_on_ray(job: BatchJob, work: Work, done: int) -> Iterator[Made]:
    """What comes of the rows of a job, in their order.

    Args:
        job: The job.
        work: What is done with rows.
        done: The number of the last row that is done already.

    Raises:
        BatchError: The rows cannot be read.
        MissingExtraError: Ray is not installed.
        WorkerEndedError: Ray has given up.
    """
    file = RowFile(job.rows.path.absolute(), job.rows.kind)
    chosen = None
    if job.choice.sample is not None:
        chosen = frozenset(number for number, _ in job.choice.rows(file, done))
    shards = [*shards_of(file, start=done, limit=job.choice.limit)]
    if shards:
        yield from _on_cluster(shards, (work, file, chosen), job.workers)


class ShardLines:
    """Reads shards and renders them; a class that Ray Data makes once in each actor.

    Args:
        work: What is done with rows.
        file: The file.
        chosen: The numbers of the rows that are wanted; None is all.
    """

    def __init__(self, work: Work, file: RowFile, chosen: frozenset[int] | None) -> None:
        self._work = work
        self._file = file
        self._chosen = chosen

    def __call__(self, shards: Any) -> Iterator[Any]:  # noqa: ANN401 - tables of pyarrow, which has no types
        """What comes of shards, in pieces.

        Args:
            shards: A table with a row for each shard.

        Yields:
            Tables with a row for each :class:`lazyprompt.batch.workers.Made`, and a column for each of its fields.
        """
        for shard in shards.to_pylist():
            yield from map(_packed, self._pieces(Shard(**shard)))

    def _pieces(self, shard: Shard) -> Iterator[list[Made]]:
        pieces: list[Made] = []
        size = 0
        for made in self._made(shard):
            pieces.append(made)
            size += sum(map(len, made.lines)) + sum(map(len, made.rejects))
            if size >= _PIECE_BYTES:
                yield pieces
                pieces, size = [], 0
        if pieces:
            yield pieces

    def _made(self, shard: Shard) -> Iterator[Made]:
        chosen = self._chosen
        chunk: list[tuple[int, Row | RowFault]] = []
        for number, row in rows_of_shard(self._file, shard):
            if chosen is not None and number not in chosen:
                continue
            chunk.append((number, row))
            if len(chunk) == _PIECE_ROWS:
                yield self._work.made(chunk)
                chunk = []
        if chunk:
            yield self._work.made(chunk)


def _packed(pieces: Sequence[Made]) -> Any:  # noqa: ANN401 - a table of pyarrow, which has no types
    """What came of rows, as a table."""
    arrow: Any = import_module("pyarrow")
    texts = arrow.large_list(arrow.large_binary())
    kinds = {
        "number": arrow.int64(),
        "lines": texts,
        "rejects": texts,
        "tokens": arrow.int64(),
        "fault": arrow.string(),
    }
    # As JSON a fault's text may hold what has no encoding.
    rows = [{**made._asdict(), "fault": made.fault and json.dumps(made.fault)} for made in pieces]
    return arrow.table({name: arrow.array([row[name] for row in rows], kind) for name, kind in kinds.items()})


def unpacked(table: Any) -> Iterator[Made]:  # noqa: ANN401 - as above
    """What came of rows, out of a table of :class:`ShardLines`.

    Args:
        table: The table, of pyarrow.
    """
    rows: list[dict[str, Any]] = table.to_pylist()
    for row in rows:
        fault = row.pop("fault")
        yield Made(**row, fault=fault and RowFault(*json.loads(fault)))


def _on_cluster(
    shards: list[Shard], given: tuple[Work, RowFile, frozenset[int] | None], workers: int
) -> Iterator[Made]:
    with _connected() as ray:
        most = workers if workers > 1 else max(1, int(ray.cluster_resources().get("CPU", 1)))
        data = ray.data.from_items([shard._asdict() for shard in shards], override_num_blocks=len(shards))
        data = data.map_batches(
            ShardLines,
            fn_constructor_args=given,
            batch_size=1,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(min_size=1, max_size=most),
        )
        data.context.execution_options.preserve_order = True
        data.context.target_max_block_size = _BLOCK_BYTES
        data.context.enable_progress_bars = False
        data.context.print_on_execution_start = False
        try:
            for table in data.iter_batches(batch_size=None, batch_format="pyarrow"):
                yield from unpacked(table)
        except ray.exceptions.RayError as error:
            raise WorkerEndedError(f"Ray has ended the work: {_reason(error)}") from error


@contextmanager
def _connected() -> Generator[Any]:
    """Ray, connected to a cluster; what this process did not connect it lets go of, and Ray is quiet as long."""
    ray = _ray()
    if ray.is_initialized():
        yield ray
        return
    handler = getsignal(SIGTERM)
    try:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="error")
    except (OSError, RuntimeError, ValueError) as error:
        raise WorkerEndedError(f"no cluster of Ray can be reached: {error}") from error
    if handler is not None and current_thread() is main_thread():
        # Ray puts its own in the place of the one that stops a run in order.
        signal(SIGTERM, handler)
    log = getLogger("ray.data")
    level = log.level
    log.setLevel(ERROR)
    try:
        yield ray
    finally:
        log.setLevel(level)
        ray.shutdown()


def _reason(error: BaseException) -> str:
    """What is wrong in the end: Ray says it behind the traces of all processes that it came through."""
    said = [line for line in str(error).splitlines() if _ENDS.match(line)]
    return said[-1] if said else f"{type(error).__name__}: {error}".splitlines()[0]


def _ray() -> Any:  # noqa: ANN401 - a package that may not be there
    """Ray with Ray Data.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        import_module("ray.data")
    except ImportError as error:
        raise missing_extra("ray[data]", "ray") from error
    return import_module("ray")
