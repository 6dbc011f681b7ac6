"""Rows, plans and runs for the tests of clusters; and what kills a worker of Ray that this process started."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from lazyprompt import Budget, ChatPrompter
from lazyprompt.batch.render import RowPlan
from lazyprompt.batch.rows import row_file
from lazyprompt.batch.run import BatchJob, Outcome, Progress, run_batch

# How Ray names the processes that work on chunks, and those of ``map_batches``.
WORKERS = (b"ray::render_chunk", b"ray::MapWorker")
# How long to look for one that is at work.
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


def costly_plan() -> RowPlan:
    """A plan whose rows cost much: each conversation is made to fit."""
    return RowPlan.of(make_prompter().with_budget(Budget(1000)), "openai-batch", model="gpt-5-mini")


def rows(count: int) -> list[dict[str, Any]]:
    """Rows as tables have them: texts, numbers of which some are missing, conversations."""
    said = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": 'A "word"\\ 你好\n'}]
    return [
        {
            "id": f"ask-{at}",
            "question": f"Why {at}? 为什么\u2028{{language}}",
            "language": 7 if at % 5 == 0 else at,
            "history": said if at % 3 == 0 else [],
            "beside": None if at % 7 == 0 else at,
        }
        for at in range(count)
    ]


def by_id(found: Iterable[dict[str, Any]]) -> list[str]:
    """The lines of rows that came in any order."""
    return [row["line"] for row in sorted(found, key=lambda row: int(row["id"].partition("-")[2]))]


def expected_lines(count: int) -> list[str]:
    """The lines of so many rows, made one after another."""
    made = plan()
    return [made.line(number, row)[:-1].decode() for number, row in enumerate(rows(count), 1)]


def job(folder: Path, count: int, name: str, *, talk: bool = False) -> BatchJob:
    """A job whose file has rows without an id, empty lines, and lines that are no rows; with long talks, if asked."""
    file = folder / f"rows-{count}.jsonl"
    if not file.exists():
        with file.open("w", encoding="utf-8", newline="\n") as data:
            for at, row in enumerate(rows(count)):
                if talk:
                    row["history"] = [[f"What of {at}-{turn}? {'ask ' * 50}", "say " * 100] for turn in range(20)]
                if at % 11 == 0:
                    del row["id"]
                data.write(json.dumps(row, ensure_ascii=at % 2 == 0) + "\n")
                if at % 97 == 0:
                    data.write("\n{broken\n")
    return BatchJob(row_file(file), plan(), folder / f"{name}.jsonl", folder / f"{name}.rejects")


def read_written(outcome: Outcome, asked: BatchJob) -> tuple[list[bytes], bytes]:
    """All that a run has written."""
    assert asked.rejects is not None
    return [path.read_bytes() for path in outcome.outputs], asked.rejects.read_bytes()


def alone(folder: Path, count: int) -> tuple[list[bytes], bytes]:
    """What one process writes."""
    asked = job(folder, count, "alone")
    return read_written(run_batch(asked), asked)


class Killer:
    """Kills one worker of Ray with ``kill -9`` as soon as so many rows are done.

    Args:
        at: How many rows.
    """

    def __init__(self, at: int) -> None:
        self._at = at
        self.killed: int | None = None

    def __call__(self, progress: Progress) -> None:
        if self.killed is None and progress.rows >= self._at:
            self.killed = kill_a_worker()


def kill_a_worker() -> int:
    """Kill a worker of the cluster that this process has started.

    Returns:
        Its number.
    """
    until = time.monotonic() + PATIENCE
    while not (found := _below(os.getpid(), lambda name: name.startswith(WORKERS))):
        if time.monotonic() > until:
            raise LookupError("no worker of Ray is at work")
    os.kill(found[0], signal.SIGKILL)
    return found[0]


def _below(process: int, wanted: Callable[[bytes], bool]) -> list[int]:
    """The processes below one, whose command line is wanted."""
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
