"""Rows, plans and jobs for the tests of clusters, and a function that kills a Ray worker of this process."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from lazyprompt import ChatPrompter
from lazyprompt.batch.render import RowPlan
from lazyprompt.batch.rows import row_file
from lazyprompt.batch.run import BatchJob, Outcome, Progress, run_batch

# Names of Ray worker processes: those of chunks, and those of ``map_batches``.
WORKERS = (b"ray::render_chunk", b"ray::MapWorker")
# Seconds to wait for a worker.
PATIENCE = 20


def make_prompter() -> ChatPrompter:
    return ChatPrompter("Answer in {language}: {question}", system="Be brief.", tools=[weather])


def weather(city: str) -> str:
    """Tell the weather.

    Args:
        city: Where.
    """
    return city


def plan() -> RowPlan:
    return RowPlan.of(make_prompter(), "openai-batch", model="gpt-5-mini")


def rows(count: int) -> list[dict[str, Any]]:
    """Rows with texts, numbers (some missing) and conversations."""
    conversation = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": 'A "word"\\ 你好\n'}]
    return [
        {
            "id": f"ask-{at}",
            "question": f"Why {at}? 为什么\u2028{{language}}",
            "language": 7 if at % 5 == 0 else at,
            "history": conversation if at % 3 == 0 else [],
            "beside": None if at % 7 == 0 else at,
        }
        for at in range(count)
    ]


def by_id(found: Iterable[dict[str, Any]]) -> list[str]:
    """The lines of unordered rows, ordered by id."""
    return [row["line"] for row in sorted(found, key=lambda row: int(row["id"].partition("-")[2]))]


def expected_lines(count: int) -> list[str]:
    """The lines of the first ``count`` rows, rendered one after another."""
    made = plan()
    return [made.line(number, row)[:-1].decode() for number, row in enumerate(rows(count), 1)]


def job(folder: Path, count: int, name: str) -> BatchJob:
    """A job whose file has rows without an id, empty lines, and invalid lines."""
    file = folder / f"rows-{count}.jsonl"
    if not file.exists():
        with file.open("w", encoding="utf-8", newline="\n") as data:
            for at, row in enumerate(rows(count)):
                if at % 11 == 0:
                    del row["id"]
                data.write(json.dumps(row, ensure_ascii=at % 2 == 0) + "\n")
                if at % 97 == 0:
                    data.write("\n{broken\n")
    return BatchJob(row_file(file), plan(), folder / f"{name}.jsonl", folder / f"{name}.rejects")


def read_written(outcome: Outcome, batch_job: BatchJob) -> tuple[list[bytes], bytes]:
    """The contents of all outputs and of the rejects file."""
    assert batch_job.rejects is not None
    return [path.read_bytes() for path in outcome.outputs], batch_job.rejects.read_bytes()


def run_locally(folder: Path, count: int) -> tuple[list[bytes], bytes]:
    """The output and rejects of a run in one process."""
    batch_job = job(folder, count, "one_process")
    return read_written(run_batch(batch_job), batch_job)


class Killer:
    """Kills one Ray worker with ``kill -9`` when ``at`` rows are done."""

    def __init__(self, at: int) -> None:
        self._at = at
        self.killed: int | None = None

    def __call__(self, progress: Progress) -> None:
        if self.killed is None and progress.rows >= self._at:
            self.killed = kill_a_worker()


def kill_a_worker() -> int:
    """Kill a worker of the cluster that this process has started, and return its process id."""
    until = time.monotonic() + PATIENCE
    while not (found := _below(os.getpid(), lambda name: name.startswith(WORKERS))):
        if time.monotonic() > until:
            raise LookupError("no worker of Ray is at work")
    os.kill(found[0], signal.SIGKILL)
    return found[0]


def _below(process: int, wanted: Callable[[bytes], bool]) -> list[int]:
    """The descendants of a process whose command line is wanted."""
    parents: dict[int, int] = {}
    names: dict[int, bytes] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            names[int(folder.name)] = (folder / "cmdline").read_bytes()
        except OSError:  # it has ended since
            continue

    def is_below(each: int) -> bool:
        return each == process or (each in parents and is_below(parents[each]))

    return [each for each in sorted(names) if wanted(names[each]) and is_below(each)]
