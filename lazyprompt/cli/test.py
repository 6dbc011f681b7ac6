"""The ``lazyprompt test`` command: test cases for prompts, changes since another version, and model responses."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import click

from lazyprompt._base.characters import visible
from lazyprompt.cli.choices import OneOf
from lazyprompt.cli.options import Options, base_url_option, count_option, env_option, reference_options, url_option
from lazyprompt.cli.progress import progress_bar
from lazyprompt.cli.streams import Screen, WrongUseError, blaming, json_text, note, table, write_lines, write_text
from lazyprompt.errors import BatchError, LazyPromptError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lazyprompt.batch.run import Progress
    from lazyprompt.testing.cases import CaseFile
    from lazyprompt.testing.rendered import LoadedPrompt
    from lazyprompt.testing.report import Report
    from lazyprompt.testing.running import Answers, Result, Runner

_FAILED = 1
_STEP = 0.2


class _TestOptions(TypedDict):
    """The command's options."""

    paths: tuple[str, ...]
    form: str
    update: bool
    against: str | None
    run: str | None
    base_url: str | None
    url: str | None
    answers: str
    concurrency: int
    env: tuple[str, ...]
    allow_code: bool
    params: dict[str, str]
    roots: tuple[str, ...]


@click.command("test")
@click.argument("paths", nargs=-1, metavar="[PATH...]")
@click.option("--format", "form", type=OneOf(["table", "json", "junit", "github"]), default="table", show_default=True)
@click.option("--update", is_flag=True, help="Accept the prompts as snapshots.")
@click.option("--against", metavar="REV|DIR", help="Show changes since a git revision or another directory.")
@click.option(
    "--run", metavar="SOURCE:MODEL", help="Also call a model: openai:gpt-5-mini, or a local one as for lazyprompt run."
)
@base_url_option
@url_option
@click.option(
    "--answers",
    default=".lazyprompt/answers.sqlite",
    show_default=True,
    metavar="FILE",
    help="The file for recorded responses.",
)
@count_option("--concurrency", default=8, show_default=True, help="The maximum number of simultaneous calls.")
@env_option
@click.option("--allow-code", is_flag=True, help="Let response checks call the functions that they name.")
@reference_options
@click.pass_context
def command(context: click.Context, **options: Unpack[_TestOptions]) -> None:
    r"""Test prompts with cases, and show what changed.

    Each prompt is rendered with the inputs of its cases, and the result is checked.

    PATH is a directory (by default the current one), a prompt file, or a file of cases. The cases for greeting.prompty
    are next to it in greeting.test.yaml; greeting.test.jsonl or .csv contain only inputs. Only --run calls a model.

    --against shows the changed cases. With --run, only these are sent to the model; the others use their recorded
    responses.

    The exit status is 0 if all cases pass, 1 if any fails or has no response, and 2 for a usage error or if there are
    no cases.

    \b
    Examples:
      lazyprompt test
      lazyprompt test prompts/ --format junit > report.xml
      lazyprompt test prompts/ --against main
      lazyprompt test prompts/ --against main --run openai:gpt-5-mini
    """
    from lazyprompt.testing.report import Report

    if options["update"] and options["against"]:
        raise WrongUseError(
            "--update", "this option accepts all changes, so there is nothing to compare; remove --against"
        )
    places = [Path(each) for each in options["paths"] or (".",)]
    files = _case_files(places, options["roots"])
    report = Report(options["against"] is not None, keeps_names=options["form"] == "junit")
    with ExitStack() as opened:
        runner = _runner(options, places, opened)
        try:
            for result in _with_progress(runner.run(files), options["form"]):
                report.add(result)
        except LazyPromptError as error:
            raise WrongUseError("PATH", str(error)) from error
        if runner.answers is not None:
            left = f", {runner.answers.left:,} have no recorded response" if runner.answers.left else ""
            note(f"{runner.answers.asked:,} model calls{left}")
    if not report.total:
        raise WrongUseError("PATH", f"no test cases in {', '.join(map(str, places))}")
    _write(report, options["form"])
    if report.failed:
        context.exit(_FAILED)


def _case_files(places: list[Path], roots: tuple[str, ...]) -> list[CaseFile]:
    from lazyprompt.testing.cases import CaseFile, case_files

    paths: list[Path] = []
    for place in places:
        if not place.exists():
            raise WrongUseError("PATH", f"{place}: no such file or directory")
        found = [*case_files(place)]
        if not found:
            raise WrongUseError("PATH", f"no test cases in {place}; add {_example(place)}")
        paths += found
    files: list[CaseFile] = []
    for path in dict.fromkeys(paths):
        with blaming("PATH"):
            files.append(CaseFile.read(path, roots))
    return files


def _example(place: Path) -> str:
    return "NAME.test.yaml next to a prompt" if place.is_dir() else str(place.with_name(f"{place.stem}.test.yaml"))


def _runner(options: _TestOptions, places: list[Path], opened: ExitStack) -> Runner:
    """Create the test runner, and register its resources on the stack, which closes them at the end of the command."""
    from lazyprompt.testing.difference import older_version
    from lazyprompt.testing.running import Runner

    older = None
    if options["against"] is not None:
        try:
            older = opened.enter_context(older_version(options["against"], places))
        except BatchError as error:
            raise WrongUseError("--against", str(error)) from error
    answers = _answers(options, opened)
    return Runner(
        options["params"],
        options["roots"],
        options["update"],
        older,
        answers,
        options["concurrency"],
        options["env"],
        options["allow_code"],
    )


def _answers(options: _TestOptions, opened: ExitStack) -> Answers | None:
    """Open the model and the file of recorded responses."""
    name = options["run"]
    if name is None:
        for option, value in (("--base-url", options["base_url"]), ("--url", options["url"])):
            if value is not None:
                raise WrongUseError(option, "this option requires a model; add --run")
        if options["allow_code"]:
            raise WrongUseError("--allow-code", "this option applies only to response checks; add --run")
        return None
    from lazyprompt.cli.models import file_model, open_model
    from lazyprompt.modules.sources import SOURCES
    from lazyprompt.testing.running import Answers

    source, colon, model = name.partition(":")
    known = bool(colon) and source in SOURCES
    asked: Any = {
        "source": source if known else None,
        "model": (model or None) if known else name,
        "base_url": options["base_url"],
        "url": options["url"],
        "engine": None,
    }

    def params_of(prompt: LoadedPrompt) -> Mapping[str, Any]:
        if prompt.file is None:
            return {}
        chosen: Options = asked
        return file_model(chosen, prompt.file).params

    module = opened.enter_context(open_model(asked))
    if options["allow_code"]:  # let checks import modules from the current directory, as in pytest
        sys.path.insert(0, str(Path.cwd()))
    with blaming("--answers"):
        answers = Answers(Path(options["answers"]), module, name, params_of)
    opened.callback(answers.close)
    return answers


def _with_progress(results: Iterator[Result], form: str) -> Iterator[Result]:
    """Yield the results; on a terminal, show the numbers of finished and failed test cases."""
    with progress_bar(f"test ({form})") as show:
        begin = shown = time.monotonic()
        failed = 0
        for number, result in enumerate(results, 1):
            failed += bool(result.failures)
            now = time.monotonic()
            if show is not None and now - shown > _STEP:
                show(_progress(number, failed, now - begin))
                shown = now
            yield result


def _progress(rows: int, failed: int, seconds: float) -> Progress:
    from lazyprompt.batch.run import Progress

    return Progress(rows, None, failed, rows / seconds, None, None)


def _write(report: Report, form: str) -> None:
    """Write the report to standard output in the given format."""
    from lazyprompt.testing.report import change_lines, failure_lines, github, junit, table_rows

    if form == "json":
        return write_lines([visible(json_text(report.to_dict(), indent=2))])
    if form == "junit":
        return write_text(junit(report))
    if form == "github":
        return write_lines(["".join(github(report)) + report.summary()])
    screen = Screen()
    for line in table(table_rows(report), right=(1, 2, 3)):
        screen.line(line)
    for result in report.failed:
        screen.write("\n")
        for text, colored in failure_lines(result):
            screen.write(text)
            screen.write(colored, "bold red")
            screen.write("\n")
    if report.changed:
        screen.write("\n")
        for line in change_lines(report):
            style = "green" if line.startswith("    +") else "red" if line.startswith("    -") else ""
            screen.write(line, style)
            screen.write("\n")
    screen.write("\n")
    return screen.write(f"{report.summary()}\n", "bold red" if report.failed else "bold green")
