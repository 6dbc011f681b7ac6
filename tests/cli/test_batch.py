"""The command ``lazyprompt batch``."""

import io
import json
import re
import shlex
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cli.helpers import Run, Terminal, fault, write
from lazyprompt.batch.forms import FORMS
from lazyprompt.batch.render import RowPlan
from lazyprompt.batch.rows import Row
from lazyprompt.batch.run import Progress
from lazyprompt.cli.batch import _blamed  # maps every error to an option
from lazyprompt.cli.progress import describe
from lazyprompt.cli.streams import WrongUseError
from lazyprompt.errors import BatchError, FormatError, missing_extra
from support.batch_runs import saved_state

YAML = "type: chat\nsystem: ''\ninstruction: Say {x}.\n"


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """The arguments of a batch command for 100 rows."""
    write(tmp_path / "say.yaml", YAML)
    write(tmp_path / "data.jsonl", "".join(f'{{"x": "{number}"}}\n' for number in range(1, 101)))
    return ["batch", "say.yaml", "data.jsonl", "-o", "out.jsonl"]


def remove_value(directory: Path, number: int) -> None:
    """Remove the value from a row."""
    path = directory / "data.jsonl"
    path.write_text(path.read_text().replace(f'{{"x": "{number}"}}', "{}"))


def call_at_row(number: int, action: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Call a function while a row is rendered."""
    line = RowPlan.line

    def line_of(plan: RowPlan, at: int, row: Row) -> bytes:
        if at == number:
            action()
        return line(plan, at, row)

    monkeypatch.setattr(RowPlan, "line", line_of)


def test_batch_writes_one_request_for_each_row(run: Run, tmp_path: Path, command: list[str]) -> None:
    ran = run(*command, "--format", "openai-batch", "--model", "m")
    assert (ran.status, ran.out) == (0, b"")
    assert ran.err.startswith("lazyprompt: out.jsonl: 100 rows read, 100 written, ")
    assert ran.err.endswith(" rows/s\n")
    assert ran.err.count("\n") == 1
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["custom_id"] for line in lines] == [f"row-{number}" for number in range(1, 101)]
    assert lines[6]["body"]["messages"][0] == {"role": "system", "content": "Say 7.\n\n"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.jsonl", "out.jsonl", "say.yaml"]


def test_skipped_rows_are_written_to_the_rejects_file(run: Run, tmp_path: Path, command: list[str]) -> None:
    remove_value(tmp_path, 7)
    ran = run(*command, "--on-error", "skip")
    assert ran.status == 3
    assert ran.err.startswith("lazyprompt: out.jsonl: 100 rows read, 99 written, 1 rejected (out.rejects.jsonl), ")
    (reject,) = map(json.loads, (tmp_path / "out.rejects.jsonl").read_text().splitlines())
    assert (reject["row"], reject["data"]) == (7, {})
    assert run(*command, "--rejects", "bad.jsonl").status == 3
    assert (tmp_path / "bad.jsonl").read_bytes() == (tmp_path / "out.rejects.jsonl").read_bytes()


def test_run_stopped_by_a_wrong_row_prints_the_command_to_skip_it(run: Run, tmp_path: Path, command: list[str]) -> None:
    remove_value(tmp_path, 70)
    run(*command, "--restart")
    ran = run(*command, "--restart")
    assert (ran.status, ran.out) == (1, b"")
    stopped, again = ran.err.splitlines()
    assert stopped.startswith("lazyprompt: stopped: row 70: ")
    advice = "lazyprompt: skip such rows with: lazyprompt "
    assert again == f"{advice}{shlex.join(command)} --on-error skip"
    assert not (tmp_path / "out.jsonl").exists()
    ran = run(*shlex.split(again.removeprefix(advice)))
    assert ran.status == 3
    assert ran.err.startswith("lazyprompt: out.jsonl: 100 rows read, 99 written, 1 rejected ")
    numbers = [json.loads(line)["id"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert numbers == [f"row-{number}" for number in range(1, 101) if number != 70]


def test_run_with_other_settings_requires_restart(run: Run, tmp_path: Path, command: list[str]) -> None:
    remove_value(tmp_path, 70)
    run(*command)
    message = fault(run(*command, "--limit", "20"))
    assert message.startswith("--output: out.jsonl: the unfinished run has different settings: --limit was not")
    assert message.endswith("use --restart to start over")
    write(tmp_path / "say.yaml", YAML.replace("Say", "Tell"))
    assert "the unfinished run has different settings: prompt has changed; use --restart" in fault(run(*command))
    assert run(*command, "--limit", "20", "--restart").status == 0
    assert (tmp_path / "out.jsonl").read_bytes().count(b"Tell") == 20


@pytest.mark.parametrize(
    ("number", "message"), [(signal.SIGINT, "interrupted by Ctrl-C"), (signal.SIGTERM, "terminated by SIGTERM")]
)
def test_interrupted_run_prints_the_command_that_resumes_it(
    run: Run, tmp_path: Path, command: list[str], monkeypatch: pytest.MonkeyPatch, number: signal.Signals, message: str
) -> None:
    before = signal.getsignal(number)
    with monkeypatch.context() as patched:
        call_at_row(10, lambda: signal.raise_signal(number), patched)
        ran = run(*command)
    assert ran.status == 1
    assert ran.err.splitlines() == [
        f"lazyprompt: stopped: row 16 was the last: {message}",
        f"lazyprompt: resume with: lazyprompt {shlex.join(command)}",
    ]
    assert signal.getsignal(number) == before
    assert saved_state(tmp_path / "out.jsonl")["number"] == 16
    assert run(*command).status == 0
    assert len((tmp_path / "out.jsonl").read_bytes().splitlines()) == 100


def test_second_interrupt_ends_the_run_at_once(
    run: Run, tmp_path: Path, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt_twice() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    call_at_row(10, interrupt_twice, monkeypatch)
    assert run(*command).status == 130
    assert (tmp_path / "out.jsonl.run").exists()


def test_run_outside_the_main_thread_succeeds_without_signal_handlers(run: Run, command: list[str]) -> None:
    with ThreadPoolExecutor() as threads:
        assert threads.submit(run, *command).result().status == 0


def test_ignored_interrupt_does_not_stop_the_run(run: Run, command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # A shell script starts its background commands with interrupts ignored.
    call_at_row(10, lambda: signal.raise_signal(signal.SIGINT), monkeypatch)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert run(*command).status == 0
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("command")
def test_column_sample_limit_and_field_options_are_applied(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "data.csv", "what,key\n" + "".join(f"{number},k{number}\n" for number in range(30)))
    argv = ["batch", "say.yaml", "data.csv", "-o", "out.jsonl", "--column", "x=what", "--column", "id=key"]
    ran = run(*argv, "--sample", "5", "--seed", "3", "--format", "openai", "--tokens", "chars")
    assert ran.status == 0
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(lines) == 5
    for line in lines:
        assert line["payload"]["messages"][0]["content"] == f"Say {line['custom_id'][1:]}.\n\n"
    counted = sum(len(message["content"]) for line in lines for message in line["payload"]["messages"])
    assert f"5 rows read, 5 written, {counted} tokens, " in ran.err
    fields = ("--field", "max_tokens=9", "--field", "user=me")
    run(*argv, "--limit", "4", "--format", "openai-batch", "--model", "m", *fields)
    body = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[3])["body"]
    assert (body["max_tokens"], body["user"]) == (9, "me")


def test_error_for_an_unknown_format_lists_the_known_formats(run: Run) -> None:
    """The message also offered "or a Profile", which the command line does not accept."""
    reported = run("batch", "say.yaml", "data.jsonl", "-o", "out.jsonl", "--format", "acme").err
    assert reported == f"lazyprompt: error: --format: unknown value 'acme'; expected one of {', '.join(FORMS)}\n"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--format", "opnai"], "--format: unknown value 'opnai' (did you mean 'openai'?)"),
        (["--seed", "3"], "--seed: a seed requires a sample; add --sample N"),
        (["--on-error", "stop", "--rejects", "x"], "--rejects: no rows are rejected with --on-error stop; remove "),
        (
            ["--tokens", "anthropic:m"],
            (
                "--tokens: batch runs do not support the counter 'anthropic:m'; expected one of approximate, chars, "
                "tiktoken, huggingface"
            ),
        ),
        (["--tokens", "tiktoken"], "--tokens: tiktoken requires an argument"),
        (["-o", "data.jsonl"], "--output: data.jsonl is the input, which cannot be overwritten; use another"),
        (["-o", "no/out.jsonl"], "--output: no/out.jsonl: directory no does not exist"),
        (["--rejects", "no/x"], "--rejects: no/x: directory no does not exist"),
        (["--column", "x"], "--column: expected NAME=VALUE, not 'x'"),
        # Every row was written without a user message, and the exit status was 0.
        (["--column", "input=TYPO"], "--column: there is no column 'TYPO' (for 'input'); the rows have 'x'"),
        (["--column", "history=TYPO"], "--column: there is no column 'TYPO' (for 'history'); the rows have 'x'"),
        (["--column", "x=y"], "--column: there is no column 'y' (for the slot 'x'); the rows have 'x'"),
        # The messages for these three named --format.
        (
            ["--column", "y=x"],
            "--column: a column is set for 'y', which the prompt doesn't use; the prompt uses 'x', 'input'",
        ),
        (
            ["--field", "top_p=1"],
            "--field: flat does not accept 'top_p'; only complete requests have additional fields",
        ),
        (["--format", "openai-batch"], "--model: openai-batch requires a model name in each request"),
        # The message blamed a row, and advised to skip it.
        (["--model", "nope"], "--model: no model family is known for 'nope'"),
        (
            ["--run", "--engine", "ray"],
            "--engine: --run uses one process; use --concurrency to set the number of simultaneous calls",
        ),
        (["--param", "a=b"], "--param: this option requires a .prompty file"),
    ],
)
def test_usage_error_names_the_option(
    run: Run, tmp_path: Path, command: list[str], argv: list[str], message: str
) -> None:
    before = sorted(tmp_path.iterdir())
    assert fault(run(*command, *argv)).startswith(message)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            "x,question\na,Why?\n",
            "--column: the prompt has no user text: there is no column 'input', and no slot uses 'question'; ",
        ),
        ("question\nWhy?\n", "--column: there is no column 'x'; the rows have 'question'"),
        ("x,id\na,row-2\nb,\n", "ROWS: row 1 has the id 'row-2', which is the default for row 2; add an id to row 2"),
    ],
)
@pytest.mark.usefixtures("command")
def test_unusable_columns_and_ids_are_usage_errors(run: Run, tmp_path: Path, rows: str, message: str) -> None:
    write(tmp_path / "data.csv", rows)
    assert fault(run("batch", "say.yaml", "data.csv", "-o", "out.jsonl", "--on-error", "skip")).startswith(message)
    assert not [*tmp_path.glob("out*")]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ("no.yaml data.jsonl -o o", "PROMPT_FILE: no.yaml:1:1: file not found"),
        ("say.yaml no.jsonl -o o", "ROWS: no.jsonl cannot be read: No such"),
        ("say.yaml data.txt -o o", "ROWS: data.txt: unknown extension '.txt'"),
        ("say.yaml data.jsonl", "--output: Missing option '-o' / '--output'."),
    ],
)
@pytest.mark.usefixtures("command")
def test_missing_files_are_usage_errors(run: Run, tmp_path: Path, files: str, message: str) -> None:
    assert fault(run("batch", *files.split())).startswith(message)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.jsonl", "say.yaml"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"images": ["a"], "audios": ["b"], "y": 1}, "'images', 'audios' are columns that the prompt doesn't use"),
        ({"images": [], "videos": ["a"]}, "'videos' is a column that the prompt doesn't use"),
        ({"y": 1}, None),
    ],
)
def test_unused_media_columns_are_reported(
    run: Run, tmp_path: Path, command: list[str], columns: dict[str, object], message: str | None
) -> None:
    write(tmp_path / "data.jsonl", json.dumps({"x": "1", "input": "Hi", **columns}))
    ran = run(*command)
    assert (ran.status, ran.err.splitlines()[1:]) == (
        0,
        [] if message is None else [f"lazyprompt: {message}; assign one with --column NAME=COLUMN"],
    )


def test_leftover_outputs_of_an_earlier_run_are_reported(run: Run, tmp_path: Path, command: list[str]) -> None:
    for numbers, reported in (("2", "out-00002.jsonl"), ("34", "out-00002.jsonl ... out-00004.jsonl (3 files)")):
        for number in numbers:
            (tmp_path / f"out-0000{number}.jsonl").touch()
        ran = run(*command, "--restart")
        assert ran.status == 0
        assert ran.err.splitlines()[1] == f"lazyprompt: left over from an earlier run: {reported}"


def test_terminal_shows_a_temporary_progress_bar(run: Run, command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", Terminal(screen, "utf-8", write_through=True))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "200")
    assert run(*command[:-1], "[b]out.jsonl").status == 0
    assert re.search(r"\[b\]out\.jsonl ((\x1b\[[\d;]+m)?━(\x1b\[0m)?){20}  \r", screen.getvalue().decode())
    _, found, shown = screen.getvalue().decode().rpartition(f"[b]out.jsonl \x1b[38;5;70m{'━' * 20}\x1b[0m ")
    assert found  # the full bar in green
    end = r"100 of ~100 rows, [\d,]+ rows/s, 0:00:00 left\n\x1b\[\?25h\r\x1b\[1A\x1b\[2K"  # which erases the bar
    reported = r"lazyprompt: \[b\]out\.jsonl: 100 rows read, 100 written, [\d,]+ rows/s\n"
    assert re.fullmatch(f"{end}{reported}", shown)


def test_model_calls_of_a_batch_use_rate_limits_retries_and_a_long_timeout(
    run: Run, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: list[dict[str, float]] = []

    def open_model(*_: object, **options: float) -> None:
        settings.append(options)
        raise WrongUseError("--source", "no")

    monkeypatch.setattr("lazyprompt.cli.models.open_model", open_model)
    monkeypatch.setattr("lazyprompt.batch.rates.Rates", lambda **options: settings.append(options))
    rates = ("--concurrency", "2", "--rpm", "5", "--tpm", "9")
    reported = fault(run(*command, "--run", "--source", "openai", *rates))
    limits = {"concurrency": 2, "rpm": 5, "tpm": 9}
    assert (reported, settings) == ("--source: no", [limits, {"retries": 8, "timeout": 600.0}])


def test_error_about_a_setting_names_its_command_line_option() -> None:
    settings = ("rows", "columns", "params", "model", "output", "rejects", "")
    options = ["ROWS", "--column", "--field", "--model", "--output", "--rejects", "-"]
    assert [_blamed(BatchError("no", setting=setting), "-") for setting in settings] == options
    assert _blamed(FormatError("no"), "-") == "-"
    missing = [_blamed(missing_extra(package, "batch"), "-") for package in ("ray", "pyarrow")]
    assert missing == ["--engine", "ROWS"]


def test_progress_is_described_with_counts_rate_and_time_left() -> None:
    assert describe(Progress(1000, None, 0, 250.4, None, None)) == "1,000 rows, 250 rows/s"
    assert describe(Progress(1000, 2000, 3, 250, 70_000, 3725.2)) == (
        "1,000 of ~2,000 rows, 250 rows/s, 3 rejected, 70,000 tokens, 1:02:05 left"
    )


def test_train_option_selects_the_responses_to_train_on(run: Run, tmp_path: Path) -> None:
    past = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]
    (tmp_path / "rows.jsonl").write_text(json.dumps({"q": "Why?", "label": "So.", "history": past}) + "\n")
    (tmp_path / "ask.prompty").write_text("user:\n{{q}}\n")
    command = ["batch", "ask.prompty", "rows.jsonl", "-o", "out.jsonl", "--format", "train-sharegpt"]
    assert run(*command).status != 0
    assert run(*command, "--train", "all", "--restart").status == 0
    (line,) = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [turn["value"] for turn in json.loads(line)["conversations"]] == ["Hi", "Hello.", "Why?", "So."]
