"""``lazyprompt batch``: a prompt for each row of a file."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast

import click

from lazyprompt.batch.database import BatchStoppedError
from lazyprompt.batch.forms import LineCounter
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
    from collections.abc import Callable, Mapping

    from lazyprompt._base.json import Json

_STOPPED, _DONE_WITH_REJECTS = 1, 3
# The parts of a row that are no slots.
_NO_SLOTS = ("history", "tools", "label", "id")
# Nobody waits at the screen: a long answer, or a minute without the service, does not end a run of calls.
_RETRIES, _TIMEOUT = 8, 600.0
# The option of each setting that an error is about.
_OPTIONS = {
    "rows": "ROWS",
    "columns": "--column",
    "params": "--field",
    "model": "--model",
    "output": "--output",
    "rejects": "--rejects",
}
# The counters that ask no provider.
_COUNTERS = ("approximate", "chars", "tiktoken", "huggingface")


class _BatchOptions(Options):
    rows: str
    output: str
    columns: dict[str, str]
    fields: dict[str, str]
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
    """A command that remembers its arguments, so that it can print the command that goes on."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, and remember them."""
        ctx.meta[__name__] = [*args]
        return super().parse_args(ctx, args)


@click.command("batch", cls=_Command)
@click.argument("prompt_file")
@click.argument("rows")
@text_option("-o", "--output", required=True, metavar="FILE", help="Where the lines go; it is there when all are.")
@click.option(
    "--format",
    "form",
    default="flat",
    show_default=True,
    metavar="FORM",
    help="The form of a line: flat, a provider (see lazyprompt list providers), a batch form or a trainer's form.",
)
@text_option("--model", metavar="NAME", help="The model to write for (see lazyprompt list families), or to ask.")
@settings_option(
    "--column",
    "columns",
    metavar="NAME=COLUMN",
    help="The column of a slot, or of input, history, tools, label, id, where it has another name.",
)
@settings_option("--field", "fields", metavar="NAME=VALUE", help="A further field of each request: JSON, or text.")
@count_option("--limit", help="Only the first N rows.")
@count_option("--sample", help="Only N rows at random, in their order.")
@click.option("--seed", type=int, metavar="S", help="Which rows are the sample.  [default: 0]")
@click.option(
    "--on-error",
    type=OneOf(["stop", "skip"]),
    help="What to do at a row that has no line.  [default: stop; with --rejects skip]",
)
@text_option("--rejects", metavar="FILE", help="Where such rows go, with the reason.  [default: OUT.rejects.jsonl]")
@count_option("--workers", default=1, show_default=True, help="Processes.")
@click.option(
    "--engine",
    type=OneOf(["local", "ray"]),
    default="local",
    show_default=True,
    help="Where it is done: here, or on a cluster of Ray.",
)
@text_option(
    "--tokens",
    metavar="NAME[:ARGUMENT]",
    help="Count the tokens too, which takes time: approximate, chars, tiktoken:MODEL, huggingface:PATH.",
)
@click.option("--restart", is_flag=True, help="Begin anew, where a run was begun.")
@reference_options
@env_option
@click.option("--run", is_flag=True, help="Ask the model, and write its answers in the order of rows.")
@address_options
@count_option("--concurrency", help="Rows asked at once.  [default: 8]")
@count_option("--rpm", help="At most N requests a minute.")
@count_option("--tpm", help="At most N tokens a minute.")
@click.pass_context
def command(context: click.Context, **options: Unpack[_BatchOptions]) -> None:
    r"""Write a prompt for each row of a file.

    PROMPT_FILE is a .prompty or YAML prompt file, ROWS a .jsonl, .json, .csv or .parquet file, whose columns
    are the slots of the prompt.

    A run that was stopped, killed or had no room on the disk goes on where it was when the same command is given
    again, and writes what it would have written at once. A file that a service would refuse as too large is split.

    The exit status is 0 when all is done, 3 when all is done but for rejected rows, 1 when it was stopped on the way,
    2 for wrong use.

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
        passed_over = error.fault is not None
        note(f"{'pass over such rows' if passed_over else 'go on'} with: {_again(context, skip=passed_over)}")
        context.exit(_STOPPED)
    except LazyPromptError as error:
        raise WrongUseError(_blamed(error, "--output"), str(error)) from error
    note(_summary(job, outcome))
    _note_unused(job)
    if outcome.left_over:
        note(f"of an earlier run, and not of this one: {_named(outcome.left_over)}")
    if outcome.rejected:
        context.exit(_DONE_WITH_REJECTS)


def _note_unused(job: BatchJob) -> None:
    """Name the columns of the first row that look like a part of a prompt and are none."""
    _, first = next(read_rows(job.rows), (0, RowFault(0, "")))
    if not isinstance(first, RowFault) and (unused := job.plan.cells.unused(first)):
        what = "is a column that no prompt takes" if len(unused) == 1 else "are columns that no prompt takes"
        note(f"{', '.join(map(repr, unused))} {what}; --column NAME=COLUMN gives one to a slot, or to history")


def _runner(options: _BatchOptions) -> Callable[..., Outcome]:
    """Choose the function that runs the job."""
    if options["run"]:
        for option, value, default in (("--engine", options["engine"], "local"), ("--workers", options["workers"], 1)):
            if value != default:
                raise WrongUseError(option, "with --run one process asks; --concurrency says how much at once")
        if options["form"] != "flat":
            raise WrongUseError("--format", "with --run the output has answers, in a form of their own; leave it out")
        return partial(_ask, options)
    for name in ("source", "base_url", "url", "concurrency", "rpm", "tpm"):
        if options.get(name) is not None:
            raise WrongUseError(f"--{name.replace('_', '-')}", "it says how a model is asked; give --run too")
    if options["engine"] == "ray":
        from lazyprompt.batch.ray_engine import run_on_ray

        return run_on_ray
    return run_batch


def _ask(options: _BatchOptions, job: BatchJob, **how: Any) -> Outcome:
    """Ask a model for the answer to each row: a ``run_batch`` once the options are bound."""
    from lazyprompt.batch.calls import CallJob, call_batch
    from lazyprompt.batch.rates import Rates
    from lazyprompt.cli.models import opened_model

    rates = {"concurrency": options["concurrency"], "rpm": options["rpm"], "tpm": options["tpm"]}
    limits = Rates(**{name: limit for name, limit in rates.items() if limit is not None})
    model: _BatchOptions = {**options, "engine": None}
    failure: BatchError
    with opened_model(model, job.plan.prompty, retries=_RETRIES, timeout=_TIMEOUT) as module:
        try:
            return call_batch(CallJob(job, module, limits, cast("Mapping[str, Json]", _fields(options))), **how)
        except BatchError as error:
            failure = error
    # Outside the context, where no option of the model is blamed for it.
    raise failure


def _blamed(error: LazyPromptError, otherwise: str) -> str:
    """Return the option or argument that an error is about."""
    if isinstance(error, MissingExtraError):
        return "--engine" if "ray" in str(error) else "ROWS"
    return _OPTIONS.get(error.setting, otherwise) if isinstance(error, BatchError) else otherwise


def _job(options: _BatchOptions) -> BatchJob:
    """Make the job that the options describe."""
    if options["seed"] is not None and options["sample"] is None:
        raise WrongUseError("--seed", "it says which rows a sample has; give --sample N")
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
    """Choose the file for rows that have no line; None to stop at them."""
    given, on_error = options["rejects"], options["on_error"]
    if given is not None and on_error == "stop":
        raise WrongUseError("--rejects", "--on-error stop rejects no row; leave out one of the two")
    if given is None and on_error != "skip":
        return None
    return output.with_name(f"{output.stem}.rejects.jsonl") if given is None else Path(given)


def _plan(options: _BatchOptions) -> RowPlan:
    """Make the plan that turns a row into a line."""
    slots = dict(options["columns"])
    others = {name: slots.pop(name) for name in _NO_SLOTS if name in slots}
    request = cast("PromptRequest", open_file(options))  # PROMPT_FILE is required
    try:
        return RowPlan.of(
            request.file or request.prompter,
            options["form"],
            # The markers of a family are not for the model that is asked.
            model=None if options["run"] else options["model"],
            columns=Columns(slots, **others),
            params={} if options["run"] else _fields(options),
        )
    except LazyPromptError as error:
        raise WrongUseError(_blamed(error, "--format"), str(error)) from error


def _fields(options: _BatchOptions) -> dict[str, object]:
    """Read the further fields of each request: JSON, or text."""
    return {name: json_or_text(text) for name, text in options["fields"].items()}


def _counter(spec: str | None) -> LineCounter | None:
    """Make the token counter, if tokens are counted."""
    if spec is None:
        return None
    if spec.partition(":")[0] not in _COUNTERS:
        raise WrongUseError("--tokens", f"{spec!r} counts no rows; give one of {', '.join(_COUNTERS)}")
    try:
        return LineCounter(spec, token_counter(spec))
    except WrongUseError as error:
        raise WrongUseError("--tokens", error.message) from error


def _again(context: click.Context, *, skip: bool) -> str:
    """Return the command that goes on with the run, without ``--restart``."""
    given: list[str] = [each for each in context.meta[__name__] if each != "--restart"]
    more = ["--on-error", "skip"] if skip else []
    return shlex.join(["lazyprompt", "batch", *given, *more])


def _summary(job: BatchJob, outcome: Outcome) -> str:
    """Describe the outcome in a line."""
    parts = [f"{_named(outcome.outputs)}: {outcome.read:,} rows read, {outcome.written:,} written"]
    if outcome.rejected:
        parts.append(f"{outcome.rejected:,} rejected ({job.rejects})")
    if outcome.tokens is not None:
        parts.append(f"{outcome.tokens:,} tokens")
    if outcome.rate:
        parts.append(f"{outcome.rate:,.0f} rows/s")
    return ", ".join(parts)


def _named(files: list[Path]) -> str:
    first, *others = files
    return f"{first} ... {others[-1].name} ({len(files)} files)" if others else str(first)
