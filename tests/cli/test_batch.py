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

from cli.helpers import Run, fault, write
from lazyprompt.batch.forms import FORMS
from lazyprompt.batch.render import RowPlan
from lazyprompt.batch.rows import Row
from lazyprompt.batch.run import Progress
from lazyprompt.cli.batch import _blamed  # how an error is told, whichever one it is
from lazyprompt.cli.progress import describe
from lazyprompt.cli.streams import WrongUseError
from lazyprompt.errors import BatchError, FormatError, missing_extra
from support.batch_runs import saved_state

YAML = "type: chat\nsystem: ''\ninstruction: Say {x}.\n"


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """A command over 100 rows."""
    write(tmp_path / "say.yaml", YAML)
    write(tmp_path / "data.jsonl", "".join(f'{{"x": "{number}"}}\n' for number in range(1, 101)))
    return ["batch", "say.yaml", "data.jsonl", "-o", "out.jsonl"]


def spoil(directory: Path, number: int) -> None:
    """Take the value out of a row."""
    path = directory / "data.jsonl"
    path.write_text(path.read_text().replace(f'{{"x": "{number}"}}', "{}"))


def doing_at(number: int, action: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Do something while a row is worked on."""
    line = RowPlan.line

    def line_of(plan: RowPlan, at: int, row: Row) -> bytes:
        if at == number:
            action()
        return line(plan, at, row)

    monkeypatch.setattr(RowPlan, "line", line_of)


def test_a_prompt_for_each_row(run: Run, tmp_path: Path, command: list[str]) -> None:
    ran = run(*command, "--format", "openai-batch", "--model", "m")
    assert (ran.status, ran.out) == (0, b"")
    assert ran.err.startswith("lazyprompt: out.jsonl: 100 rows read, 100 written, ")
    assert ran.err.endswith(" rows/s\n")
    assert ran.err.count("\n") == 1
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["custom_id"] for line in lines] == [f"row-{number}" for number in range(1, 101)]
    assert lines[6]["body"]["messages"][0] == {"role": "system", "content": "Say 7.\n\n"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.jsonl", "out.jsonl", "say.yaml"]


def test_rows_without_a_line_are_written_down(run: Run, tmp_path: Path, command: list[str]) -> None:
    spoil(tmp_path, 7)
    ran = run(*command, "--on-error", "skip")
    assert ran.status == 3
    assert ran.err.startswith("lazyprompt: out.jsonl: 100 rows read, 99 written, 1 rejected (out.rejects.jsonl), ")
    (reject,) = map(json.loads, (tmp_path / "out.rejects.jsonl").read_text().splitlines())
    assert (reject["row"], reject["data"]) == (7, {})
    assert run(*command, "--rejects", "bad.jsonl").status == 3
    assert (tmp_path / "bad.jsonl").read_bytes() == (tmp_path / "out.rejects.jsonl").read_bytes()


def test_a_row_without_a_line_ends_it_and_what_is_said_goes_on(run: Run, tmp_path: Path, command: list[str]) -> None:
    spoil(tmp_path, 70)
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


def test_another_run_is_refused_until_it_begins_anew(run: Run, tmp_path: Path, command: list[str]) -> None:
    spoil(tmp_path, 70)
    run(*command)
    said = fault(run(*command, "--limit", "20"))
    assert said.startswith("--output: out.jsonl: the unfinished run has different settings: --limit was not")
    assert said.endswith("use --restart to start over")
    write(tmp_path / "say.yaml", YAML.replace("Say", "Tell"))
    assert "the unfinished run has different settings: prompt has changed; use --restart" in fault(run(*command))
    assert run(*command, "--limit", "20", "--restart").status == 0
    assert (tmp_path / "out.jsonl").read_bytes().count(b"Tell") == 20


@pytest.mark.parametrize(
    ("number", "said"), [(signal.SIGINT, "interrupted by Ctrl-C"), (signal.SIGTERM, "terminated by SIGTERM")]
)
def test_a_run_that_is_told_to_end_says_how_to_go_on(
    run: Run, tmp_path: Path, command: list[str], monkeypatch: pytest.MonkeyPatch, number: signal.Signals, said: str
) -> None:
    before = signal.getsignal(number)
    with monkeypatch.context() as patched:
        doing_at(10, lambda: signal.raise_signal(number), patched)
        ran = run(*command)
    assert ran.status == 1
    assert ran.err.splitlines() == [
        f"lazyprompt: stopped: row 16 was the last: {said}",
        f"lazyprompt: resume with: lazyprompt {shlex.join(command)}",
    ]
    assert signal.getsignal(number) == before
    assert saved_state(tmp_path / "out.jsonl")["number"] == 16
    assert run(*command).status == 0
    assert len((tmp_path / "out.jsonl").read_bytes().splitlines()) == 100


def test_a_second_interrupt_does_not_wait(
    run: Run, tmp_path: Path, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def twice() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    doing_at(10, twice, monkeypatch)
    assert run(*command).status == 130
    assert (tmp_path / "out.jsonl.run").exists()


def test_a_run_outside_the_main_thread_handles_no_signals(run: Run, command: list[str]) -> None:
    with ThreadPoolExecutor() as threads:
        assert threads.submit(run, *command).result().status == 0


def test_what_is_ignored_stays_so(run: Run, command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # A script starts commands in its background so.
    doing_at(10, lambda: signal.raise_signal(signal.SIGINT), monkeypatch)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert run(*command).status == 0
    finally:
        signal.signal(signal.SIGINT, before)


def test_rows_are_chosen_and_named(run: Run, tmp_path: Path, command: list[str]) -> None:
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
    assert command


def test_a_format_is_one_of_the_names_that_a_command_takes(run: Run) -> None:
    """The message ended in "or a Profile", which no command line has."""
    told = run("batch", "say.yaml", "data.jsonl", "-o", "out.jsonl", "--format", "acme").err
    assert told == f"lazyprompt: error: --format: unknown value 'acme'; expected one of {', '.join(FORMS)}\n"


@pytest.mark.parametrize(
    ("changed", "said"),
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
        # Every row was written without a message of the user, and the command ended with 0.
        (["--column", "input=TYPO"], "--column: there is no column 'TYPO' (for 'input'); the rows have 'x'"),
        (["--column", "history=TYPO"], "--column: there is no column 'TYPO' (for 'history'); the rows have 'x'"),
        (["--column", "x=y"], "--column: there is no column 'y' (for the slot 'x'); the rows have 'x'"),
        # These three were said to be faults of --format.
        (
            ["--column", "y=x"],
            "--column: a column is set for 'y', which the prompt doesn't use; the prompt uses 'x', 'input'",
        ),
        (
            ["--field", "top_p=1"],
            "--field: flat does not accept 'top_p'; only complete requests have additional fields",
        ),
        (["--format", "openai-batch"], "--model: openai-batch requires a model name in each request"),
        # A row was said to be at fault, and to be passed over.
        (["--model", "nope"], "--model: no model family is known for 'nope'"),
        (
            ["--run", "--engine", "ray"],
            "--engine: --run uses one process; use --concurrency to set the number of simultaneous calls",
        ),
        (["--param", "a=b"], "--param: this option requires a .prompty file"),
    ],
)
def test_wrong_use(run: Run, tmp_path: Path, command: list[str], changed: list[str], said: str) -> None:
    before = sorted(tmp_path.iterdir())
    assert fault(run(*command, *changed)).startswith(said)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            "x,question\na,Why?\n",
            "--column: the prompt has no user text: there is no column 'input', and no slot uses 'question'; ",
        ),
        ("question\nWhy?\n", "--column: there is no column 'x'; the rows have 'question'"),
        ("x,id\na,row-2\nb,\n", "ROWS: row 1 has the id 'row-2', which is the default for row 2; add an id to row 2"),
    ],
)
def test_columns_that_no_prompt_can_use(run: Run, tmp_path: Path, command: list[str], rows: str, said: str) -> None:
    write(tmp_path / "data.csv", rows)
    assert fault(run("batch", "say.yaml", "data.csv", "-o", "out.jsonl", "--on-error", "skip")).startswith(said)
    assert not [*tmp_path.glob("out*")]
    assert command


def test_files_that_are_not_there(run: Run, tmp_path: Path, command: list[str]) -> None:
    assert fault(run("batch", "no.yaml", "data.jsonl", "-o", "o")).startswith(
        "PROMPT_FILE: no.yaml:1:1: file not found"
    )
    assert fault(run("batch", "say.yaml", "no.jsonl", "-o", "o")).startswith("ROWS: no.jsonl cannot be read: No such")
    assert fault(run("batch", "say.yaml", "data.txt", "-o", "o")).startswith("ROWS: data.txt: unknown extension '.txt'")
    assert fault(run("batch", "say.yaml", "data.jsonl")) == "--output: Missing option '-o' / '--output'."
    assert command
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.jsonl", "say.yaml"]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"images": ["a"], "audios": ["b"], "y": 1}, "'images', 'audios' are columns that the prompt doesn't use"),
        ({"images": [], "videos": ["a"]}, "'videos' is a column that the prompt doesn't use"),
        ({"y": 1}, None),
    ],
)
def test_columns_of_media_that_are_not_used_are_told(
    run: Run, tmp_path: Path, command: list[str], columns: dict[str, object], said: str | None
) -> None:
    write(tmp_path / "data.jsonl", json.dumps({"x": "1", "input": "Hi", **columns}))
    lines = run(*command).err.splitlines()[1:]
    assert lines == ([] if said is None else [f"lazyprompt: {said}; assign one with --column NAME=COLUMN"])


def test_outputs_of_an_earlier_run_are_told(run: Run, tmp_path: Path, command: list[str]) -> None:
    for numbers, told in (("2", "out-00002.jsonl"), ("34", "out-00002.jsonl ... out-00004.jsonl (3 files)")):
        for number in numbers:
            (tmp_path / f"out-0000{number}.jsonl").touch()
        ran = run(*command, "--restart")
        assert ran.status == 0
        assert ran.err.splitlines()[1] == f"lazyprompt: left over from an earlier run: {told}"


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_how_far_it_is(run: Run, command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "200")
    assert run(*command[:-1], "[b]out.jsonl").status == 0
    assert re.search(r"\[b\]out\.jsonl ((\x1b\[[\d;]+m)?━(\x1b\[0m)?){20}  \r", screen.getvalue())
    _, found, shown = screen.getvalue().rpartition(f"[b]out.jsonl \x1b[38;5;70m{'━' * 20}\x1b[0m ")
    assert found  # the full bar in its colour
    end = r"100 of ~100 rows, [\d,]+ rows/s, 0:00:00 left\n\x1b\[\?25h\r\x1b\[1A\x1b\[2K"  # which takes the bar away
    told = r"lazyprompt: \[b\]out\.jsonl: 100 rows read, 100 written, [\d,]+ rows/s\n"
    assert re.fullmatch(f"{end}{told}", shown)


def test_calls_of_a_run_are_patient_and_keep_its_limits(
    run: Run, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: list[dict[str, float]] = []

    def opened(*_: object, **given: float) -> None:
        settings.append(given)
        raise WrongUseError("--source", "no")

    monkeypatch.setattr("lazyprompt.cli.models.open_model", opened)
    monkeypatch.setattr("lazyprompt.batch.rates.Rates", lambda **given: settings.append(given))
    rates = ("--concurrency", "2", "--rpm", "5", "--tpm", "9")
    told = fault(run(*command, "--run", "--source", "openai", *rates))
    limits = {"concurrency": 2, "rpm": 5, "tpm": 9}
    assert (told, settings) == ("--source: no", [limits, {"retries": 8, "timeout": 600.0}])


def test_a_setting_of_a_run_is_told_as_its_option() -> None:
    settings = ("rows", "columns", "params", "model", "output", "rejects", "")
    options = ["ROWS", "--column", "--field", "--model", "--output", "--rejects", "-"]
    assert [_blamed(BatchError("no", setting=setting), "-") for setting in settings] == options
    assert _blamed(FormatError("no"), "-") == "-"
    missing = [_blamed(missing_extra(package, "batch"), "-") for package in ("ray", "pyarrow")]
    assert missing == ["--engine", "ROWS"]


def test_how_far_it_is_in_words() -> None:
    assert describe(Progress(1000, None, 0, 250.4, None, None)) == "1,000 rows, 250 rows/s"
    assert describe(Progress(1000, 2000, 3, 250, 70_000, 3725.2)) == (
        "1,000 of ~2,000 rows, 250 rows/s, 3 rejected, 70,000 tokens, 1:02:05 left"
    )


def test_the_responses_to_train_on_are_chosen(run: Run, tmp_path: Path) -> None:
    past = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]
    (tmp_path / "rows.jsonl").write_text(json.dumps({"q": "Why?", "label": "So.", "history": past}) + "\n")
    (tmp_path / "ask.prompty").write_text("user:\n{{q}}\n")
    command = ["batch", "ask.prompty", "rows.jsonl", "-o", "out.jsonl", "--format", "train-sharegpt"]
    assert run(*command).status != 0
    assert run(*command, "--train", "all", "--restart").status == 0
    (line,) = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [turn["value"] for turn in json.loads(line)["conversations"]] == ["Hi", "Hello.", "Why?", "So."]
