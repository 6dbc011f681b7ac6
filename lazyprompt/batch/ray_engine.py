"""A batch run on a cluster: Ray renders the lines, this process reads rows and writes files.

Each chunk of rows is a Ray task, with a few pending tasks per processor of the cluster. Lines are written in the order
of rows, so the output equals that of one process, byte for byte. When a worker is killed, Ray repeats its chunk on
another one. When this process is killed, the next run continues after the last saved row.
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

    from lazyprompt.batch.run import BatchJob, Chunk, ChunkResult, Outcome, Progress, StopReason, Work

# The last line of a traceback.
_ENDS = re.compile(r"[\w.]+(Error|Exception): ")


def run_on_ray(
    job: BatchJob,
    *,
    restart: bool = False,
    progress: Callable[[Progress], None] | None = None,
    stopped: StopReason | None = None,
    seconds: float = 1.0,
) -> Outcome:
    """Run :func:`lazyprompt.batch.run.run_batch` on the cluster that Ray finds.

    This is the first of: the cluster that this process is connected to, the one at ``RAY_ADDRESS``, one that runs on
    this machine. Otherwise a local cluster is started for the run.

    Args:
        job: The job. Its ``workers`` are the maximum number of tasks; 1 means one per processor of the cluster.
        restart: True to discard an unfinished run of this job.
        progress: A function called with the progress.
        stopped: A function that returns the reason to stop, or None.
        seconds: The maximum seconds of work lost when this process is killed.

    Returns:
        The outcome.

    Raises:
        BatchError: The job cannot run, for the reasons of ``run_batch``.
        BatchStoppedError: The run stopped early.
        MissingExtraError: Ray is not installed.
    """
    import_extra("ray", "ray")
    return run_batch(job, restart=restart, progress=progress, stopped=stopped, seconds=seconds, engine=_work_on_ray)


def _work_on_ray(work: Work, chunks: Iterable[Chunk], workers: int) -> Iterator[ChunkResult]:
    """Render chunks of rows on the cluster; a :data:`lazyprompt.batch.run.Engine`."""
    with _connected() as ray:
        make = partial(ray.remote(max_retries=-1)(render_chunk).remote, ray.put(work))
        most = workers if workers > 1 else max(1, int(ray.cluster_resources().get("CPU", 1)))
        try:
            yield from in_order(lambda chunk: partial(ray.get, make(chunk)), chunks, most)
        except ray.exceptions.RayError as error:
            raise WorkerEndedError(f"Ray ended the work: {_reason(error)}") from error


def render_chunk(work: Work, chunk: Chunk) -> ChunkResult:
    """Render the lines of rows, as a task of the cluster; Ray shows the task under this function's name."""
    return work.render(chunk)


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
        # Ray replaces the handler that stops a run cleanly.
        signal(SIGTERM, handler)
    try:
        yield ray
    finally:
        ray.shutdown()


def _reason(error: BaseException) -> str:
    """Return the reason in one line; Ray writes it below the tracebacks of all processes involved."""
    endings = [line for line in str(error).splitlines() if _ENDS.match(line)]
    return endings[-1] if endings else f"{type(error).__name__}: {error}".splitlines()[0]
