"""``lazyprompt batch --run``: the rows are asked of a model, and the output has its answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, cast

import click

from lazyprompt.cli.models import ModelOptions, opened_model
from lazyprompt.cli.prompts import text_option, with_options
from lazyprompt.cli.streams import WrongUseError
from lazyprompt.errors import BatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lazyprompt._json import Json
    from lazyprompt.batch.run import BatchJob, Outcome, Progress

_Command = TypeVar("_Command", bound="Callable[..., Any]")
# Nobody waits before the screen: a long answer, or a minute in which the service is gone, is no end of the run.
_RETRIES, _TIMEOUT = 8, 600.0


class CallOptions(TypedDict):
    """What the options of a run that asks a model give."""

    run: bool
    model: str | None
    source: str | None
    base_url: str | None
    url: str | None
    concurrency: int | None
    rpm: int | None
    tpm: int | None


# All but --model, which says for whom lines are written, too.
_OPTIONS = (
    click.option("--run", is_flag=True, help="Ask the model, and write its answers in the order of rows."),
    text_option("--source", metavar="NAME", help="Who has the model (see lazyprompt run --help)."),
    text_option("--base-url", metavar="URL", help="Another address of the source."),
    text_option("--url", metavar="URL", help="Where the engine of a local model runs already."),
    click.option("--concurrency", type=click.IntRange(min=1), metavar="N", help="Rows asked at once.  [default: 8]"),
    click.option("--rpm", type=click.IntRange(min=1), metavar="N", help="At most so many requests a minute."),
    click.option("--tpm", type=click.IntRange(min=1), metavar="N", help="At most so many tokens a minute."),
)


def call_options(command: _Command) -> _Command:
    """Give a command the options of a run that asks a model."""
    return with_options(command, _OPTIONS)


def refuse_calls(options: CallOptions) -> None:
    """Refuse options that say nothing without ``--run``.

    Args:
        options: The options.

    Raises:
        WrongUseError: There is one.
    """
    given = {
        "--source": options["source"],
        "--base-url": options["base_url"],
        "--url": options["url"],
        "--concurrency": options["concurrency"],
        "--rpm": options["rpm"],
        "--tpm": options["tpm"],
    }
    for option, value in given.items():
        if value is not None:
            raise WrongUseError(option, "it says how a model is asked; give --run too")


def run_calls(
    options: CallOptions,
    params: Mapping[str, object],
    job: BatchJob,
    *,
    restart: bool,
    progress: Callable[[Progress], None] | None,
    stopped: Callable[[], str | None],
) -> Outcome:
    """Ask the model for the answer to each row; with its first two arguments bound it is a ``run_batch``.

    Args:
        options: The options.
        params: Further parameters of each call.
        job: The rows, and where the answers go.
        restart: Whether to begin anew.
        progress: What is told how far it is.
        stopped: What is asked whether to stop.

    Returns:
        What was made.

    Raises:
        WrongUseError: An option is wrong, or says nothing beside others.
        NoAnswerError: There is no such model, or it does not start.
        BatchError: As of :func:`lazyprompt.batch.calls.call_batch`.
    """
    from lazyprompt.batch.calls import CallJob, call_batch  # noqa: PLC0415 - slow, and only here
    from lazyprompt.batch.rates import Rates  # noqa: PLC0415 - as above

    if job.plan.form.name != "flat":
        raise WrongUseError("--format", "with --run the output has answers, in a form of their own; leave it out")
    if job.workers != 1:
        raise WrongUseError("--workers", "with --run one process asks; --concurrency says how much at once")
    rates = Rates(options["concurrency"] or Rates().concurrency, options["rpm"], options["tpm"])
    failure: BatchError
    with opened_model(_asked(options), job.plan.prompty, retries=_RETRIES, timeout=_TIMEOUT) as module:
        calls = CallJob(job, module, rates, cast("Mapping[str, Json]", params))
        try:
            return call_batch(calls, restart=restart, progress=progress, stopped=stopped)
        except BatchError as error:
            failure = error
    # Here, where no option of the model is blamed for it.
    raise failure


def _asked(options: CallOptions) -> ModelOptions:
    """The model that is asked."""
    return {
        "source": options["source"],
        "model": options["model"],
        "base_url": options["base_url"],
        "engine": None,
        "url": options["url"],
        "max_tokens": None,
        "temperature": None,
    }
