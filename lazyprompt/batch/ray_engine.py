"""A batch run on a Ray cluster, which renders the lines; this process reads the rows and writes the files.

Each chunk of rows is a Ray task. The number of pending tasks is a small multiple of the cluster's CPU count. Lines are
written in row order, so the output is byte-for-byte identical to that of a single process. If a worker is killed, Ray
runs its chunk again on another worker. If this process is killed, the next run resumes after the last saved row.
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

# Matches the last line of a traceback.
_ENDS = re.compile(r"[\w.]+(Error|Exception): ")


def run_on_ray(
    job: BatchJob,
    *,
    restart: bool = False,
    progress: Callable[[Progress], None] | None = None,
    stopped: StopReason | None = None,
    seconds: float = 1.0,
) -> Outcome:
    """Run a batch job on a Ray cluster; see :func:`lazyprompt.batch.run.run_batch` for a run on one machine.

    The job uses the first cluster that exists: the connected cluster, the cluster at ``RAY_ADDRESS``, or a cluster that
    runs on this machine. If no cluster exists, a local cluster is started for the run.

    Args:
        job: The job. Its ``workers`` value is the maximum number of tasks; 1 means one task per processor.
        restart: True to discard an unfinished run of this job.
        progress: A function that receives the run's progress after each chunk of rows.
        stopped: A function that returns the reason to stop, or None to continue.
        seconds: The minimum time between saves, in seconds; a killed process loses the work since its last save.

    Returns:
        The outcome.

    Raises:
        BatchError: The job cannot run; see ``run_batch`` for the reasons.
        BatchStoppedError: The run stopped early.
        MissingExtraError: Ray is not installed.
    """
    import_extra("ray", "ray")
    return run_batch(job, restart=restart, progress=progress, stopped=stopped, seconds=seconds, engine=_work_on_ray)


def _work_on_ray(work: Work, chunks: Iterable[Chunk], workers: int) -> Iterator[ChunkResult]:
    """Render chunks of rows on the Ray cluster, as :data:`lazyprompt.batch.run.Engine` requires."""
    with _connected() as ray:
        make = partial(ray.remote(max_retries=-1)(render_chunk).remote, ray.put(work))
        most = workers if workers > 1 else max(1, int(ray.cluster_resources().get("CPU", 1)))
        try:
            yield from in_order(lambda chunk: partial(ray.get, make(chunk)), chunks, most)
        except ray.exceptions.RayError as error:
            raise WorkerEndedError(f"Ray stopped the run: {_reason(error)}") from error


def render_chunk(work: Work, chunk: Chunk) -> ChunkResult:
    """Render the lines for a chunk of rows as a Ray task; the Ray dashboard shows this function's name."""
    return work.render(chunk)


@contextmanager
def _connected() -> Generator[Any]:
    """Connect Ray to a cluster, and disconnect it afterwards if this process was not connected before."""
    ray = import_extra("ray", "ray")
    if ray.is_initialized():
        yield ray
        return
    handler = getsignal(SIGTERM)
    try:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="error")
    except (OSError, RuntimeError, ValueError) as error:
        raise WorkerEndedError(f"cannot connect to a Ray cluster: {error}") from error
    if handler is not None and current_thread() is main_thread():
        # Ray replaces the SIGTERM handler, so restore the handler that stops a run cleanly.
        signal(SIGTERM, handler)
    try:
        yield ray
    finally:
        ray.shutdown()


def _reason(error: BaseException) -> str:
    """Return an error as one line, because Ray's error messages contain the tracebacks of several processes."""
    endings = [line for line in str(error).splitlines() if _ENDS.match(line)]
    return endings[-1] if endings else f"{type(error).__name__}: {error}".splitlines()[0]
