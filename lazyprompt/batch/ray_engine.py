"""A batch run on a cluster: Ray makes the lines, this process reads the rows and writes.

Chunks of rows are tasks of Ray; a few are under way for each processor of the cluster, and their lines are written in
the order of the rows, to the same files as ever. So the output is that of one process to the byte. When a worker is
killed, Ray does its chunk again, somewhere else. When this process is killed, the next run continues behind what is
safe.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from functools import partial
from signal import SIGTERM, getsignal, signal
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any

from lazyprompt.batch.run import WorkerEndedError, in_order, run_batch
from lazyprompt.errors import import_extra

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from lazyprompt.batch.run import BatchJob, Chunk, Made, Outcome, Progress, Stopped, Work

# The last line of a trace.
_ENDS = re.compile(r"[\w.]+(Error|Exception): ")


def run_on_ray(
    job: BatchJob,
    *,
    restart: bool = False,
    progress: Callable[[Progress], None] | None = None,
    stopped: Stopped | None = None,
    seconds: float = 1.0,
) -> Outcome:
    """Run as :func:`lazyprompt.batch.run.run_batch` does, on the cluster that Ray finds.

    That is the cluster that this process is connected to; else that of ``RAY_ADDRESS``, or one that runs on this
    machine; else one is started here for the time of the run.

    Args:
        job: The job. Its ``workers`` are the most tasks at once; with 1 there are as many as the cluster has
            processors.
        restart: As of ``run_batch`` (so with the others).
        progress: Called with the progress.
        stopped: Returns the reason to stop, if there is one.
        seconds: The most seconds of work that are lost when this process is killed.

    Returns:
        The outcome.

    Raises:
        BatchError: As of ``run_batch`` (so with BatchStoppedError).
        MissingExtraError: Ray is not installed.
    """
    import_extra("ray", "ray")
    return run_batch(job, restart=restart, progress=progress, stopped=stopped, seconds=seconds, engine=_work_on_ray)


def _work_on_ray(work: Work, chunks: Iterable[Chunk], workers: int) -> Iterator[Made]:
    """Work on chunks of rows on the cluster; a :data:`lazyprompt.batch.run.Engine`."""
    with _connected() as ray:
        make = partial(ray.remote(max_retries=-1)(made_by).remote, ray.put(work))
        most = workers if workers > 1 else max(1, int(ray.cluster_resources().get("CPU", 1)))
        try:
            yield from in_order(lambda chunk: partial(ray.get, make(chunk)), chunks, most)
        except ray.exceptions.RayError as error:
            raise WorkerEndedError(f"Ray has ended the work: {_reason(error)}") from error


def made_by(work: Work, chunk: Chunk) -> Made:
    """Return the lines of rows, in a task of the cluster, which is named after this function."""
    return work.made(chunk)


@contextmanager
def _connected() -> Generator[Any]:
    """Connect Ray to a cluster, and disconnect it if this process was not connected before."""
    ray = import_extra("ray", "ray")
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
    try:
        yield ray
    finally:
        ray.shutdown()


def _reason(error: BaseException) -> str:
    """Return the reason in one line: Ray says it behind the traces of all processes that it came through."""
    endings = [line for line in str(error).splitlines() if _ENDS.match(line)]
    return endings[-1] if endings else f"{type(error).__name__}: {error}".splitlines()[0]
