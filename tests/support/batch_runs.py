"""A plan of rows that needs no prompter, and helpers that check runs of it."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

from lazyprompt import AlpacaPrompter
from lazyprompt.batch.cells import Cells
from lazyprompt.batch.forms import BatchForm, FileLimits
from lazyprompt.batch.rows import RowFile
from lazyprompt.batch.run import BatchJob
from lazyprompt.errors import BatchError
from lazyprompt.prompters.rows import Columns

if TYPE_CHECKING:
    from collections.abc import Generator

    import pytest

    from lazyprompt._base.json import JsonObject
    from lazyprompt.batch.render import RowPlan
    from lazyprompt.batch.rows import Choice, Row

NO_LIMITS = FileLimits()


@contextmanager
def full_disk(size: int) -> Generator[None]:
    """Refuse to write files of more bytes, with the same errors as a full disk."""
    import resource  # noqa: PLC0415 - Windows has none, and skips the tests that come here

    most, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))


@dataclass(frozen=True)
class SmallPlan:
    """Writes a row's number and its ``x``; a row without one has no line."""

    limits: FileLimits = NO_LIMITS
    settings: JsonObject = field(default_factory=lambda: {"--model": "small"})

    @property
    def cells(self) -> Cells:
        return Cells.of(Columns(), AlpacaPrompter("{x}"))

    @property
    def form(self) -> BatchForm:
        return BatchForm("small", id_key="", limits=self.limits)

    def line(self, number: int, row: Row) -> bytes:
        if "x" not in row:
            raise BatchError(f"row {number}: there is no column 'x'")
        return f"{number}:{row['x']}\n".encode()


@dataclass(frozen=True)
class Deadly(SmallPlan):
    """Ends its process at one row, unless it runs in the process of the tests."""

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
    limits: FileLimits | None = None,
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


def files_left(directory: Path) -> dict[str, bytes]:
    """The files of a directory, but for the rows."""
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.name != "data.jsonl"}


def saved_state(output: Path) -> dict[str, Any]:
    """The state from which a run would continue if it were killed now; empty if it has not begun.

    It is read from a copy: to open the database of a run takes its lock.
    """
    found = _read(output, "SELECT state FROM run")
    return dict(json.loads(found[0][0])) if found else {}


def answered_rows(output: Path) -> set[int]:
    """The rows of a run that have a line in its database."""
    return {row for (row,) in _read(output, "SELECT row FROM lines")}


def _read(output: Path, query: str) -> list[tuple[Any, ...]]:
    with TemporaryDirectory() as directory:
        for ending in (".run", ".run-wal"):
            path = output.with_name(output.name + ending)
            if path.exists():
                copyfile(path, Path(directory, f"copy{ending}"))
        with closing(sqlite3.connect(Path(directory, "copy.run"))) as database:
            if not database.execute("SELECT 1 FROM sqlite_master").fetchall():
                return []
            return database.execute(query).fetchall()


class Unsynced(sqlite3.Connection):
    """A connection that does not wait for the disk."""

    def execute(self, sql: str, *more: Any) -> sqlite3.Cursor:
        return super().execute("PRAGMA synchronous = OFF" if "synchronous" in sql else sql, *more)


def wait_for_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip syncing to the disk, which takes milliseconds each time."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr("lazyprompt.batch.database.sqlite3.connect", partial(sqlite3.connect, factory=Unsynced))
