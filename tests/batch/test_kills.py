"""Runs that are killed with kill -9 and continued."""

import json
import random
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from lazyprompt.cli.main import main
from support.batch_calls import Clocked, all_answered, lines, rows
from support.batch_runs import answered_rows, saved_state
from support.client_scenes import KEY
from support.model_server.server import Slow

pytestmark = pytest.mark.slow  # runs that are killed

# The command line, but a run is saved every 0.01 seconds, since it is killed often.
PROGRAM = """
import sys
from functools import partial
from lazyprompt.batch import run
from lazyprompt.cli.main import main
run.run_batch = partial(run.run_batch, seconds=0.01)
if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""
PROMPT = """---
name: ask
inputs: {question: {kind: string, required: true}, language: {kind: string, required: true}}
---
system:
Answer in {{ language }}.

user:
{{ question }}
"""
DONE_WITH_REJECTS = 3
# How many runs are killed, how many rows they have, and how many seconds a worker may outlive its run.
KILLS, ROWS, PATIENCE = 3, 3000, 20


def write_data(directory: Path, draw: random.Random) -> None:
    """Write a prompt and rows; each 997th row lacks a value, and each 1,999th is not JSON."""
    (directory / "ask.prompty").write_text(PROMPT)
    (directory / "program.py").write_text(PROGRAM)
    with (directory / "data.jsonl").open("w") as file:
        for number in range(1, ROWS + 1):
            row = {"id": f"r{number}", "language": "French", "question": f"{number}? " + "é" * draw.randrange(200)}
            if number % 997 == 0:
                del row["language"]
            line = json.dumps(row, ensure_ascii=False)
            file.write(f"{line if number % 1999 else line[:9]}\n")


def arguments(output: str, workers: int = 1) -> list[str]:
    """The command line of a run."""
    return [
        *("batch", "ask.prompty", "data.jsonl", "-o", output),
        *("--format", "anthropic-batch", "--model", "m", "--field", "max_tokens=9"),
        *("--rejects", f"{output}.bad", "--workers", str(workers)),
    ]


def outputs(directory: Path, name: str) -> dict[str, bytes]:
    """All files of an output, by the rest of their names."""
    found = [path for path in directory.iterdir() if path.name.startswith(name)]
    return {path.name.removeprefix(name): path.read_bytes() for path in found}


def part_sizes(directory: Path) -> int:
    """The total size of the current part files."""
    sizes = 0
    for path in directory.glob("out*.part"):
        with suppress(FileNotFoundError):  # it was renamed just now
            sizes += path.stat().st_size
    return sizes


def children(run: subprocess.Popen[bytes]) -> list[int]:
    """The processes that a run has started."""
    with suppress(OSError):
        return [*map(int, Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split())]
    return []


def wait_for_end(workers: list[int]) -> None:
    """Wait until the workers of a killed run have ended."""
    until = time.monotonic() + PATIENCE
    for worker in workers:
        while Path(f"/proc/{worker}").exists():
            assert time.monotonic() < until, f"the worker {worker} has outlived its run"
            time.sleep(0.01)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="what a run has started is read from /proc")
def test_killed_runs_resume_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = random.Random(2)  # noqa: S311 - rows and moments keep no secret
    write_data(tmp_path, draw)
    monkeypatch.chdir(tmp_path)
    assert main(arguments("clean.jsonl")) == DONE_WITH_REJECTS
    assert "3,000 rows read, 2,996 written, 4 rejected" in capsys.readouterr().err
    clean = outputs(tmp_path, "clean")
    size = sum(map(len, clean.values()))
    killed = passes = runs = 0
    while killed < KILLS or not passes:
        command = [sys.executable, "program.py", *arguments("out.jsonl", 1 + runs % 2)]
        run = subprocess.Popen(command, stderr=subprocess.PIPE)  # noqa: S603 - our own program
        # The first run is killed at its start, the others when they have written some more.
        at = part_sizes(tmp_path) + draw.randrange(4 * size // KILLS) if runs else 0
        until = time.monotonic() + (600 if runs else draw.random())
        while killed < KILLS and run.poll() is None:
            if (runs and part_sizes(tmp_path) >= at) or time.monotonic() > until:
                at_work = children(run)
                run.kill()
                wait_for_end(at_work)
                break
            time.sleep(0.001)
        _, errors = run.communicate(timeout=600)
        runs += 1
        # A run that ended just before the kill does not count.
        if run.returncode == -9:
            killed += 1
        else:
            assert run.returncode == DONE_WITH_REJECTS, errors.decode()
            assert outputs(tmp_path, "out") == clean, f"after {killed} kills, {saved_state(tmp_path / 'out.jsonl')}"
            passes += 1
            for name in clean:
                (tmp_path / f"out{name}").unlink()


# The number of concurrent requests, and the longest response time in seconds.
AT_ONCE, SLOW = 4, 0.02
RUN = """
import sys
from pathlib import Path
from lazyprompt import ChatPrompter, OnlineChatModule
from lazyprompt.batch.calls import CallJob, call_batch
from lazyprompt.batch.rates import Rates
from lazyprompt.batch.render import RowPlan
from lazyprompt.batch.rows import row_file
from lazyprompt.batch.run import BatchJob

path, source, url, at_once = Path(sys.argv[1]), *sys.argv[2:]
plan = RowPlan.of(ChatPrompter("Answer in {language}."))
job = BatchJob(row_file(path), plan, path.with_name("out.jsonl"))
module = OnlineChatModule(source, model="m", base_url=url, api_key=sys.stdin.read())
call_batch(CallJob(job, module, Rates(int(at_once))))
"""


def rows_answered(output: Path) -> set[int]:
    """The rows whose responses are saved: in the database, or in the finished output."""
    return answered_rows(output) or ({line["row"] for line in lines(output)} if output.exists() else set())


def test_a_killed_run_loses_no_response_and_sends_no_answered_row_again(tmp_path: Path) -> None:
    moments, count = random.Random(3), 40  # noqa: S311 - no secret
    path, output = rows(tmp_path, count), tmp_path / "out.jsonl"
    killed = 0
    with Clocked(lambda _: Slow(first=SLOW * moments.random())) as server:
        # The client of Ollama is the fastest to import.
        command = [sys.executable, "-c", RUN, str(path), "ollama", server.url("ollama"), str(AT_ONCE)]
        while output.with_suffix(".jsonl.run").exists() or not output.exists():
            before, had = len(server.came), rows_answered(output)
            run = subprocess.Popen(command, stdin=subprocess.PIPE)  # noqa: S603 - our own
            assert run.stdin is not None
            run.stdin.write(KEY.encode())
            run.stdin.close()
            if not killed:
                more = moments.randint(1, count - 1)
                while run.poll() is None and len(server.came) < before + more:
                    time.sleep(0.001)
                time.sleep(moments.random() * SLOW)
                run.kill()
            killed += run.wait() != 0
            sent = {int(row) for row in server.said[before:]}
            assert not sent & had, f"answered rows were sent again: {sorted(sent & had)}"
            if run.returncode:
                assert run.returncode == -9
                assert len(sent - rows_answered(output)) <= AT_ONCE
    assert killed == 1
    assert all_answered(output, count)
    assert {each.name for each in tmp_path.iterdir()} <= {"data.jsonl", "out.jsonl"}
    assert len(server.came) - count <= AT_ONCE
