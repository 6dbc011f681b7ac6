"""A plan of rows that needs no prompter, and what runs of it are judged by."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from lazyprompt.batch.forms import BatchForm, Limits
from lazyprompt.batch.rows import RowFile
from lazyprompt.batch.run import BatchJob
from lazyprompt.errors import BatchError

if TYPE_CHECKING:
    from pathlib import Path

    from lazyprompt._base.json import JsonObject
    from lazyprompt.batch.choice import Choice
    from lazyprompt.batch.render import RowPlan
    from lazyprompt.batch.row import Row

NO_LIMITS = Limits()


@dataclass(frozen=True)
class SmallPlan:
    """Writes a row's number and its ``x``; a row without one has no line."""

    limits: Limits = NO_LIMITS
    settings: JsonObject = field(default_factory=lambda: {"--model": "small"})

    @property
    def form(self) -> BatchForm:
        return BatchForm("small", limits=self.limits)

    def line(self, number: int, row: Row) -> bytes:
        if "x" not in row:
            raise BatchError(f"row {number}: there is no column 'x'")
        return f"{number}:{row['x']}\n".encode()


@dataclass(frozen=True)
class Deadly(SmallPlan):
    """Ends its process at one row, if that is another one than this."""

    at: int = 0
    own: int = 0

    def line(self, number: int, row: Row) -> bytes:
        if number == self.at and os.getpid() != self.own:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().line(number, row)


def rows_file(directory: Path, count: int, *, bad: int = 0) -> RowFile:
    """A file of rows; of every ``bad`` rows, one is no JSON and one has no ``x``."""
    lines: list[str] = []
    for number in range(1, count + 1):
        if bad and number % bad == 0:
            lines.append("{oops")
        elif bad and number % bad == 1:
            lines.append(json.dumps({"y": number}))
        else:
            lines.append(json.dumps({"x": "x" * (number % 7)}))
    path = directory / "data.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    return RowFile(path, "jsonl")


def job_of(
    rows: RowFile,
    limits: Limits | None = None,
    *,
    output: str = "out.jsonl",
    rejects: str | None = None,
    choice: Choice | None = None,
    workers: int = 1,
    model: str = "small",
) -> BatchJob:
    """A job beside its rows."""
    directory = rows.path.parent
    plan = cast("RowPlan", SmallPlan(limits or NO_LIMITS, {"--model": model}))
    made = BatchJob(rows, plan, directory / output, None if rejects is None else directory / rejects, workers=workers)
    return made if choice is None else BatchJob(rows, plan, made.output, made.rejects, choice, workers)


def left(directory: Path) -> dict[str, bytes]:
    """The files of a directory, but for the rows."""
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.name != "data.jsonl"}
