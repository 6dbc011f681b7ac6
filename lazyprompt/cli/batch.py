"""The ``lazyprompt batch`` command, which renders a prompt for each row of a file or sends it to a model."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast

import click

from lazyprompt.batch.database import BatchStoppedError
from lazyprompt.batch.forms import FORMS, LineCounter
from lazyprompt.batch.plan import RowPlan
from lazyprompt.batch.rows import Choice, read_rows, row_file
from lazyprompt.batch.run import BatchJob, Outcome, run_batch
from lazyprompt.cli.choices import OneOf
from lazyprompt.cli.options import (
    Options,
    address_options,
    count_option,
    env_option,
    reference_options,
    settings_option,
    text_option,
    token_counter,
)
from lazyprompt.cli.progress import progress_bar, stop_signals
from lazyprompt.cli.prompts import PromptRequest, open_file
from lazyprompt.cli.streams import WrongUseError, blaming, json_or_text, note
from lazyprompt.errors import BatchError, LazyPromptError, MissingExtraError
from lazyprompt.prompters.rows import Columns, RowFault

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyprompt._base.json import JsonObject

_STOPPED, _DONE_WITH_REJECTS = 1, 3
_NO_SLOTS = ("history", "tools", "label", "id")
# Allow many retries and a long timeout (in seconds), so that a brief outage doesn't end the run.
_RETRIES, _TIMEOUT = 8, 600.0
_OPTIONS = {
    "rows": "ROWS",
    "columns": "--column",
    "params": "--field",
    "model": "--model",
    "output": "--output",
    "rejects": "--rejects",
}
# Token counters that don't call a provider.
_COUNTERS = ("approximate", "chars", "tiktoken", "huggingface")


class _BatchOptions(Options):
    rows: str
    output: str
    columns: dict[str, str]
    fields: dict[str, str]
    train: Literal["last", "all"]
    limit: int | None
    sample: int | None
    seed: int | None
    on_error: Literal["stop", "skip"] | None
    rejects: str | None
    workers: int
    tokens: str | None
    restart: bool
    run: bool
    concurrency: int | None
    rpm: int | None
    tpm: int | None


class _Command(click.Command):
    """A command that stores its arguments, so that it can print the command that resumes a run."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments and store a copy of them."""
        ctx.meta[__name__] = [*args]
        return super().parse_args(ctx, args)


@click.command("batch", cls=_Command)
@click.argument("prompt_file")
@click.argument("rows")
@text_option("-o", "--output", required=True, metavar="FILE", help="The output file; it appears when it is complete.")
@click.option(
    "--format",
    "form",
    type=OneOf(FORMS),
    default="flat",
    show_default=True,
    metavar="FORM",
    help="The line format: flat, a provider (see lazyprompt list providers), a batch format or a training format.",
)
@text_option("--model", metavar="NAME", help="The model to render for (see lazyprompt list families), or to call.")
@settings_option(
    "--column",
    "columns",
    metavar="NAME=COLUMN",
    help="The column for a slot, or for input, history, tools, label or id, if its name differs.",
)
@settings_option("--field", "fields", metavar="NAME=VALUE", help="An additional field in each request: JSON or text.")
@click.option(
    "--train",
    type=OneOf(["last", "all"]),
    default="last",
    show_default=True,
    help="The responses to train on, for a training format.",
)
@count_option("--limit", help="Only the first N rows.")
@count_option("--sample", help="Only N random rows, in file order.")
@click.option("--seed", type=int, metavar="S", help="The seed of the sample.  [default: 0]")
@click.option(
    "--on-error",
    type=OneOf(["stop", "skip"]),
    help="The action for a row that cannot be rendered.  [default: stop; with --rejects skip]",
)
@text_option("--rejects", metavar="FILE", help="The file for such rows, with reasons.  [default: OUT.rejects.jsonl]")
@count_option("--workers", default=1, show_default=True, help="The number of processes.")
@click.option(
    "--engine",
    type=OneOf(["local", "ray"]),
    default="local",
    show_default=True,
    help="Run on this machine, or on a Ray cluster.",
)
@text_option(
    "--tokens",
    metavar="NAME[:ARGUMENT]",
    help="Count tokens too, which takes time: approximate, chars, tiktoken:MODEL, huggingface:PATH.",
)
@click.option("--restart", is_flag=True, help="Start over instead of resuming.")
@reference_options
@env_option
@click.option("--run", is_flag=True, help="Call the model and write its responses in row order.")
@address_options
@count_option("--concurrency", help="The maximum number of simultaneous calls.  [default: 8]")
@count_option("--rpm", help="The maximum number of requests per minute.")
@count_option("--tpm", help="The maximum number of tokens per minute.")
@click.pass_context
def command(context: click.Context, **options: Unpack[_BatchOptions]) -> None:
    r"""Write a prompt for each row of a file.

    PROMPT_FILE is a .prompty or YAML prompt file. ROWS is a .jsonl, .json, .csv or .parquet file, whose columns
    are the prompt's slots.

    After an interruption, a crash or a full disk, the same command resumes the run and produces the same output as an
    uninterrupted run. A file that is too large for a batch service is split.

    The exit status is 0 if all rows are written, 1 if the run was stopped, 2 for a usage error, and 3 if some rows were
    rejected.

    \b
    Examples:
      lazyprompt batch qa.yaml data.jsonl -o out.jsonl
      lazyprompt batch qa.prompty data.csv -o out.jsonl --format openai-batch \
          --model gpt-5-mini --workers 4 --rejects bad.jsonl
      lazyprompt batch qa.yaml data.parquet -o try.jsonl --sample 100 --seed 7
      lazyprompt batch qa.yaml data.jsonl -o answers.jsonl --run \
          --source openai --model gpt-5-mini --rpm 500
    """
    job = _job(options)
    run = _runner(options)
    try:
        with stop_signals() as stopped, progress_bar(job.output.name) as progress:
            outcome = run(job, restart=options["restart"], progress=progress, stopped=stopped)
    except BatchStoppedError as error:
        note(f"stopped: {error}")
        has_fault = error.fault is not None
        note(f"{'skip such rows' if has_fault else 'resume'} with: {_resume_command(context, skip=has_fault)}")
        context.exit(_STOPPED)
    except LazyPromptError as error:
        raise WrongUseError(_blamed(error, "--output"), str(error)) from error
    note(_summary(job, outcome))
    _note_unused(job)
    if outcome.left_over:
        note(f"left over from an earlier run: {_describe_files(outcome.left_over)}")
    if outcome.rejected:
        context.exit(_DONE_WITH_REJECTS)


def _note_unused(job: BatchJob) -> None:
    """Print a note about columns in the first row that contain messages, media or tools but are not used."""
    _, first = next(read_rows(job.rows), (0, RowFault(0, "")))
    if not isinstance(first, RowFault) and (unused := job.plan.cells.unused(first)):
        what = "is a column" if len(unused) == 1 else "are columns"
        note(f"{', '.join(map(repr, unused))} {what} that the prompt doesn't use; assign one with --column NAME=COLUMN")


def _runner(options: _BatchOptions) -> Callable[..., Outcome]:
    """Return the function that runs the batch: with model calls, on Ray, or in local processes."""
    if options["run"]:
        for option, value, default in (("--engine", options["engine"], "local"), ("--workers", options["workers"], 1)):
            if value != default:
                raise WrongUseError(
                    option, "--run uses one process; use --concurrency to set the number of simultaneous calls"
                )
        if options["form"] != "flat":
            raise WrongUseError("--format", "--run always writes responses in the same format; remove --format")
        return partial(_ask, options)
    for name in ("source", "base_url", "url", "concurrency", "rpm", "tpm"):
        if options.get(name) is not None:
            raise WrongUseError(f"--{name.replace('_', '-')}", "this option applies only to model calls; add --run")
    if options["engine"] == "ray":
        from lazyprompt.batch.ray_engine import run_on_ray

        return run_on_ray
    return run_batch


def _ask(options: _BatchOptions, job: BatchJob, **how: Any) -> Outcome:
    """Call a model for each row; the parameters after ``options`` are those of ``run_batch``."""
    from lazyprompt.batch.calls import CallJob, call_batch
    from lazyprompt.batch.rates import Rates
    from lazyprompt.cli.models import open_model

    rates = {"concurrency": options["concurrency"], "rpm": options["rpm"], "tpm": options["tpm"]}
    limits = Rates(**{name: limit for name, limit in rates.items() if limit is not None})
    model: _BatchOptions = {**options, "engine": None}
    failure: BatchError
    with open_model(model, job.plan.prompty, retries=_RETRIES, timeout=_TIMEOUT) as module:
        try:
            return call_batch(CallJob(job, module, limits, _fields(options)), **how)
        except BatchError as error:
            failure = error
    # Raise the error outside the `with` block, because that block attributes errors to a model option.
    raise failure


def _blamed(error: LazyPromptError, otherwise: str) -> str:
    """Return the option or argument that caused an error."""
    if isinstance(error, MissingExtraError):
        return "--engine" if "ray" in str(error) else "ROWS"
    return _OPTIONS.get(error.setting, otherwise) if isinstance(error, BatchError) else otherwise


def _job(options: _BatchOptions) -> BatchJob:
    """Create the batch job from the options."""
    if options["seed"] is not None and options["sample"] is None:
        raise WrongUseError("--seed", "a seed requires a sample; add --sample N")
    with blaming("ROWS"):
        rows = row_file(options["rows"])
    output = Path(options["output"])
    return BatchJob(
        rows,
        _plan(options),
        output,
        _rejects(options, output),
        Choice(options["limit"], options["sample"], options["seed"] or 0),
        options["workers"],
        _counter(options["tokens"]),
    )


def _rejects(options: _BatchOptions, output: Path) -> Path | None:
    """Return the path of the rejects file, or None to stop at the first invalid row."""
    given, on_error = options["rejects"], options["on_error"]
    if given is not None and on_error == "stop":
        raise WrongUseError("--rejects", "no rows are rejected with --on-error stop; remove --rejects or --on-error")
    if given is None and on_error != "skip":
        return None
    return output.with_name(f"{output.stem}.rejects.jsonl") if given is None else Path(given)


def _plan(options: _BatchOptions) -> RowPlan:
    """Create the row plan from the options."""
    slots = dict(options["columns"])
    others = {name: slots.pop(name) for name in _NO_SLOTS if name in slots}
    request = cast("PromptRequest", open_file(options))  # not None, because PROMPT_FILE is required
    try:
        return RowPlan.of(
            request.file or request.prompter,
            options["form"],
            # With --run, --model names the model to call, not a model family for the prompt.
            model=None if options["run"] else options["model"],
            columns=Columns(slots, **others),
            params={} if options["run"] else _fields(options),
            train=options["train"],
        )
    except LazyPromptError as error:
        raise WrongUseError(_blamed(error, "--format"), str(error)) from error


def _fields(options: _BatchOptions) -> JsonObject:
    """Parse each additional request field as JSON, or use its text if it is not valid JSON."""
    return {name: json_or_text(text) for name, text in options["fields"].items()}


def _counter(spec: str | None) -> LineCounter | None:
    """Create the token counter, or return None if tokens are not counted."""
    if spec is None:
        return None
    if spec.partition(":")[0] not in _COUNTERS:
        raise WrongUseError(
            "--tokens", f"batch runs do not support the counter {spec!r}; expected one of {', '.join(_COUNTERS)}"
        )
    try:
        return LineCounter(spec, token_counter(spec))
    except WrongUseError as error:
        raise WrongUseError("--tokens", error.message) from error


def _resume_command(context: click.Context, *, skip: bool) -> str:
    """Return the command that resumes the run: the given arguments without ``--restart``."""
    given: list[str] = [each for each in context.meta[__name__] if each != "--restart"]
    more = ["--on-error", "skip"] if skip else []
    return shlex.join(["lazyprompt", "batch", *given, *more])


def _summary(job: BatchJob, outcome: Outcome) -> str:
    """Describe the outcome in one line."""
    parts = [f"{_describe_files(outcome.outputs)}: {outcome.read:,} rows read, {outcome.written:,} written"]
    if outcome.rejected:
        parts.append(f"{outcome.rejected:,} rejected ({job.rejects})")
    if outcome.tokens is not None:
        parts.append(f"{outcome.tokens:,} tokens")
    if outcome.rate:
        parts.append(f"{outcome.rate:,.0f} rows/s")
    return ", ".join(parts)


def _describe_files(files: list[Path]) -> str:
    first, *others = files
    return f"{first} ... {others[-1].name} ({len(files)} files)" if others else str(first)
