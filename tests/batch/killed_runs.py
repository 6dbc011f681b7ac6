"""Batch runs that are killed with kill -9 at random moments, continued, and compared with a clean run."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from support.batch_runs import saved

if TYPE_CHECKING:
    from collections.abc import Sequence

# The command line, but for how often a run makes safe what is done: not each second, but as often as it is killed.
PROGRAM = """
import sys
from functools import partial
from lazyprompt.batch import run
from lazyprompt.cli.main import main
run.run_batch = partial(run.run_batch, seconds={seconds})
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
# How long a worker may outlive the process that it works for.
PATIENCE = 20


class Done(NamedTuple):
    """What was done.

    Attributes:
        kills: How many runs were killed.
        passes: How many times the output was made whole and compared.
        safe: How many rows were safe at each kill.
        workers: How many workers were seen to end with the process that they worked for.
    """

    kills: int
    passes: int
    safe: list[int]
    workers: int


def write_data(directory: Path, rows: int) -> None:
    """Write a prompt and rows, of which one in 997 has no value, and one in 1,999 is no JSON."""
    draw = random.Random(1)  # noqa: S311 - rows keep no secret
    (directory / "ask.prompty").write_text(PROMPT)
    with (directory / "data.jsonl").open("w") as file:
        for number in range(1, rows + 1):
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


def started(directory: Path, output: str, workers: int, seconds: float) -> subprocess.Popen[bytes]:
    """Start a run."""
    (directory / "program.py").write_text(PROGRAM.format(seconds=seconds))
    command = [sys.executable, "program.py", *arguments(output, workers)]
    return subprocess.Popen(command, cwd=directory, stderr=subprocess.PIPE)  # noqa: S603 - our own program


def ended(run: subprocess.Popen[bytes]) -> bool:
    """Wait for the end of a run: whether it is done, and not killed."""
    _, said = run.communicate(timeout=600)
    if run.returncode == -9:
        return False
    if run.returncode != DONE_WITH_REJECTS:
        raise SystemExit(f"exit status {run.returncode}: {said.decode()}")
    return True


def outputs(directory: Path, name: str) -> dict[str, bytes]:
    """All files of an output, by what stands behind its name."""
    return {
        path.name.removeprefix(name): path.read_bytes() for path in directory.iterdir() if path.name.startswith(name)
    }


def written(directory: Path) -> int:
    """How many bytes the parts have that are there now."""
    sizes = 0
    for path in directory.glob("out*.part"):
        with suppress(FileNotFoundError):  # it has just been given its name
            sizes += path.stat().st_size
    return sizes


def children(run: subprocess.Popen[bytes]) -> list[int]:
    """The processes that a run has started."""
    with suppress(OSError):
        return [*map(int, Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split())]
    return []


def gone(workers: list[int]) -> int:
    """Wait until the workers of a killed run have ended; how many they were."""
    until = time.monotonic() + PATIENCE
    for worker in workers:
        while Path(f"/proc/{worker}").exists():
            if time.monotonic() > until:
                raise SystemExit(f"the worker {worker} has outlived its run")
            time.sleep(0.01)
    return len(workers)


def kill_runs(directory: Path, kills: int, workers: Sequence[int], seconds: float, seed: int) -> Done:
    """Kill runs over the rows of a directory, in which ``clean`` is the output of a clean run.

    Args:
        directory: The directory.
        kills: How many runs are killed.
        workers: How many processes each run has, one after another.
        seconds: How often a run makes safe what is done.
        seed: What the moments depend on.
    """
    processes = cycle(workers)
    draw = random.Random(seed)  # noqa: S311 - moments keep none either
    clean = outputs(directory, "clean")
    size = sum(map(len, clean.values()))
    killed = passes = seen = 0
    safe: list[int] = []
    while killed < kills or not passes:
        run = started(directory, "out.jsonl", next(processes), seconds)
        # A few while they start, the others when some more is written than there is now.
        late = killed % 5 > 0
        at = written(directory) + draw.randrange(max(1, 4 * size // kills)) if late else 0
        until = time.monotonic() + (600 if late else draw.random())
        while killed < kills and run.poll() is None:
            if (late and written(directory) >= at) or time.monotonic() > until:
                at_work = children(run)
                run.kill()
                seen += gone(at_work)
                break
            time.sleep(0.001)
        if ended(run):
            if outputs(directory, "out") != clean:
                raise SystemExit(f"seed {seed}: the output differs from that of a clean run, after {killed} kills")
            passes += 1
            for name in clean:
                (directory / f"out{name}").unlink()
        else:
            # A run that ended by itself just before counts as no kill.
            killed += 1
            safe.append(saved(directory / "out.jsonl").get("number", 0))
    return Done(killed, passes, safe, seen)
