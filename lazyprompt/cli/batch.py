"""The command ``lazyprompt batch``: a prompt for each row of a file."""

from __future__ import annotations

import json
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack

import click

from lazyprompt.batch.forms import FORMS
from lazyprompt.batch.state import BatchStoppedError
from lazyprompt.cli.batch_calls import CallOptions, call_options, refuse_calls, run_calls
from lazyprompt.cli.progress import shown, signals
from lazyprompt.cli.prompts import FILE_OPTIONS, NO_WORDS, asked_prompter, settings, text_option, with_options
from lazyprompt.cli.streams import WrongUseError
from lazyprompt.errors import FormatError, LazyPromptError, MissingExtraError
from lazyprompt.inspect.signs import visible

if TYPE_CHECKING:
    from collections.abc import Callable

    from lazyprompt.batch.counting import LineCounter
    from lazyprompt.batch.render import Columns, RowPlan
    from lazyprompt.batch.run import BatchJob, Outcome

_STOPPED, _DONE_WITH_REJECTS = 1, 3
# What a row has beside the values of slots.
_BESIDE = ("history", "tools", "label", "id")
# What says how to count, and asks nobody.
_COUNTERS = ("approximate", "chars", "tiktoken", "huggingface")


class BatchOptions(CallOptions):
    """What the options of the command give."""

    prompt_file: str
    rows: str
    output: str
    form: str
    columns: tuple[str, ...]
    fields: tuple[str, ...]
    params: tuple[str, ...]
    roots: tuple[str, ...]
    limit: int | None
    sample: int | None
    seed: int | None
    on_error: Literal["stop", "skip"] | None
    rejects: str | None
    workers: int
    engine: Literal["local", "ray"]
    tokens: str | None
    restart: bool


class _Command(click.Command):
    """A command that knows how it was called, so that it can say how to call it again."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments, and remember them."""
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
    help="What a line is: flat, a provider (see lazyprompt providers), a service's batch form or a trainer's form.",
)
@text_option("--model", metavar="NAME", help="The model to write for (see lazyprompt families), or to ask.")
@text_option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME=COLUMN",
    help="The column of a slot, or of input, history, tools, label, id, where it has another name.",
)
@text_option(
    "--field", "fields", multiple=True, metavar="NAME=VALUE", help="A further field of each request: JSON, or text."
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N rows.")
@click.option("--sample", type=click.IntRange(min=1), metavar="N", help="Only N rows at random, in their order.")
@click.option("--seed", type=int, metavar="S", help="Which rows are the sample.  [default: 0]")
@click.option(
    "--on-error",
    type=click.Choice(["stop", "skip"]),
    help="What to do at a row that has no line.  [default: stop; with --rejects skip]",
)
@text_option("--rejects", metavar="FILE", help="Where such rows go, with the reason.  [default: OUT.rejects.jsonl]")
@click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True, metavar="N", help="Processes.")
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
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
@partial(with_options, options=FILE_OPTIONS)
@call_options
@click.pass_context
def batch(context: click.Context, **options: Unpack[BatchOptions]) -> None:
    """Write a prompt for each row of a file.

    PROMPT_FILE is a .prompty, .prompt or YAML prompt file, ROWS a .jsonl, .csv or .parquet file, whose columns are
    the slots of the prompt.

    A run that was stopped, killed or had no room on the disk goes on where it was when the same command is given
    again, and writes what it would have written at once. A file that a service would refuse as too large is split.

    The exit status is 0 when all is done, 3 when all is done but for rejected rows, 1 when it was stopped on the way,
    2 for wrong use.

    \b
    Examples:
      lazyprompt batch qa.yaml data.jsonl -o out.jsonl
      lazyprompt batch qa.prompty data.csv -o out.jsonl --format openai-batch \\
          --model gpt-5-mini --workers 4 --rejects bad.jsonl
      lazyprompt batch qa.yaml data.parquet -o try.jsonl --sample 100 --seed 7
      lazyprompt batch qa.yaml data.jsonl -o answers.jsonl --run \\
          --source openai --model gpt-5-mini --rpm 500
    """  # noqa: D301 - \b is how click is told not to wrap
    job = _job(options)
    run = _runner(options)
    try:
        with signals() as stopped, shown(job.output.name) as tell:
            outcome = run(job, restart=options["restart"], progress=tell, stopped=stopped)
    except BatchStoppedError as error:
        _say(f"stopped: {error}")
        passed_over = error.fault is not None
        _say(f"{'pass over such rows' if passed_over else 'go on'} with: {_again(context, skip=passed_over)}")
        context.exit(_STOPPED)
    except LazyPromptError as error:
        raise WrongUseError(_blamed(job, error), str(error)) from error
    _say(_summary(job, outcome))
    if outcome.left_over:
        _say(f"of an earlier run, and not of this one: {_named(outcome.left_over)}")
    if outcome.rejected:
        context.exit(_DONE_WITH_REJECTS)


def _runner(options: BatchOptions) -> Callable[..., Outcome]:
    """What does the work."""
    if options["run"]:
        if options["engine"] != "local":
            raise WrongUseError("--engine", "with --run one process asks; --concurrency says how much at once")
        return partial(run_calls, options, _fields(options))
    refuse_calls(options)
    if options["engine"] == "ray":
        from lazyprompt.batch.ray_engine import run_on_ray  # noqa: PLC0415 - only Ray needs it

        return run_on_ray
    from lazyprompt.batch.run import run_batch  # noqa: PLC0415 - no other command runs over rows

    return run_batch


def _blamed(job: BatchJob, error: LazyPromptError) -> str:
    """The option or argument that an error is about: messages begin with the file."""
    said = str(error)
    if isinstance(error, MissingExtraError) and "ray" in said:
        return "--engine"
    if isinstance(error, MissingExtraError) or said.startswith(str(job.rows.path)):
        return "ROWS"
    return "--rejects" if job.rejects is not None and said.startswith(str(job.rejects)) else "--output"


def _job(options: BatchOptions) -> BatchJob:
    """What the options ask for."""
    from lazyprompt.batch.choice import Choice  # noqa: PLC0415 - as above
    from lazyprompt.batch.rows import row_file  # noqa: PLC0415 - as above
    from lazyprompt.batch.run import BatchJob  # noqa: PLC0415 - as above

    if options["seed"] is not None and options["sample"] is None:
        raise WrongUseError("--seed", "it says which rows a sample has; give --sample N")
    try:
        rows = row_file(options["rows"])
    except LazyPromptError as error:
        raise WrongUseError("ROWS", str(error)) from error
    return BatchJob(
        rows,
        _plan(options),
        Path(options["output"]),
        _rejects(options),
        Choice(options["limit"], options["sample"], options["seed"] or 0),
        options["workers"],
        _counter(options["tokens"]),
    )


def _rejects(options: BatchOptions) -> Path | None:
    """Where rows go that have no line."""
    given, on_error = options["rejects"], options["on_error"]
    if given is not None and on_error == "stop":
        raise WrongUseError("--rejects", "--on-error stop rejects no row; leave out one of the two")
    if given is None and on_error != "skip":
        return None
    output = Path(options["output"])
    return output.with_name(f"{output.stem}.rejects.jsonl") if given is None else Path(given)


def _plan(options: BatchOptions) -> RowPlan:
    """How a row becomes a line."""
    from lazyprompt.batch.render import RowPlan  # noqa: PLC0415 - no other command runs over rows

    file, params, roots = options["prompt_file"], options["params"], options["roots"]
    asked = asked_prompter({**NO_WORDS, "prompt_file": file, "params": params, "roots": roots})
    try:
        return RowPlan.of(
            asked.prompter if asked.file is None else asked.file,
            options["form"],
            # One that is asked is no family, whose markers flat text would have.
            model=None if options["run"] else options["model"],
            columns=_columns(options["columns"]),
            params={} if options["run"] else _fields(options),
        )
    except LazyPromptError as error:
        known = options["form"] in FORMS
        raise WrongUseError("--format" if isinstance(error, FormatError) or known else "--model", str(error)) from error


def _columns(given: tuple[str, ...]) -> Columns:
    """Which columns are what."""
    from lazyprompt.batch.render import Columns  # noqa: PLC0415 - as above

    named = settings("--column", given)
    beside = {name: named.pop(name) for name in _BESIDE if name in named}
    return Columns(named, **beside)


def _fields(options: BatchOptions) -> dict[str, object]:
    """Further fields of each request."""
    return {name: _value(text) for name, text in settings("--field", options["fields"]).items()}


def _value(text: str) -> object:
    """A value as JSON; what is none is text."""
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value


def _counter(asked: str | None) -> LineCounter | None:
    """What counts tokens."""
    if asked is None:
        return None
    # Its names are those of lazyprompt tokens.
    from lazyprompt.batch.counting import LineCounter  # noqa: PLC0415 - only who counts needs it
    from lazyprompt.cli.tokens import counter_of  # noqa: PLC0415 - as above

    if asked.partition(":")[0] not in _COUNTERS:
        raise WrongUseError("--tokens", f"{asked!r} counts no rows; give one of {', '.join(_COUNTERS)}")
    try:
        return LineCounter(asked, counter_of(asked, None))
    except WrongUseError as error:
        raise WrongUseError("--tokens", error.message) from error


def _again(context: click.Context, *, skip: bool) -> str:
    """The command that goes on with the run; to begin anew is not to be said twice."""
    given: list[str] = [each for each in context.meta[__name__] if each != "--restart"]
    more = ["--on-error", "skip"] if skip else []
    return shlex.join(["lazyprompt", "batch", *given, *more])


def _summary(job: BatchJob, outcome: Outcome) -> str:
    """What was made, in a line."""
    parts = [f"{_named(outcome.outputs)}: {outcome.written:,} rows"]
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


def _say(text: str) -> None:
    click.echo(visible(f"lazyprompt: {text}"), err=True)
