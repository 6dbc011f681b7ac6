"""``lazyprompt batch --run``: the rows are sent to a model, and the output has its answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from lazyprompt.batch.calls import CallJob, call_batch
from lazyprompt.batch.rates import Rates
from lazyprompt.cli.errors import WrongUseError
from lazyprompt.cli.models import opened_model
from lazyprompt.errors import BatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lazyprompt._base.json import Json
    from lazyprompt.batch.run import BatchJob, Outcome, Progress
    from lazyprompt.cli.options import ModelOptions

# Nobody waits at the screen: a long answer, or a minute without the service, does not end the run.
_RETRIES, _TIMEOUT = 8, 600.0


def run_calls(
    model: ModelOptions,
    limits: Mapping[str, int],
    params: Mapping[str, object],
    job: BatchJob,
    *,
    restart: bool,
    progress: Callable[[Progress], None] | None,
    stopped: Callable[[], str | None],
) -> Outcome:
    """Ask the model for the answer to each row; with the first three arguments bound, a ``run_batch``.

    Args:
        model: The options of the model.
        limits: The arguments of :class:`Rates`.
        params: Further parameters of each call.
        job: The rows, and the file for the answers.
        restart: True to begin anew.
        progress: Called with the progress.
        stopped: Returns the reason to stop, if there is one.

    Returns:
        The outcome.

    Raises:
        WrongUseError: An option is wrong, or has no effect beside others.
        NoAnswerError: There is no such model, or it does not start.
        BatchError: As of :func:`lazyprompt.batch.calls.call_batch`.
    """
    if job.plan.form.name != "flat":
        raise WrongUseError("--format", "with --run the output has answers, in a form of their own; leave it out")
    if job.workers != 1:
        raise WrongUseError("--workers", "with --run one process asks; --concurrency says how much at once")
    failure: BatchError
    with opened_model(model, job.plan.prompty, retries=_RETRIES, timeout=_TIMEOUT) as module:
        calls = CallJob(job, module, Rates(**limits), cast("Mapping[str, Json]", params))
        try:
            return call_batch(calls, restart=restart, progress=progress, stopped=stopped)
        except BatchError as error:
            failure = error
    # Outside the context, where no option of the model is blamed for it.
    raise failure
