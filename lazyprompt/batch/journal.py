"""The files of a run: parts of the output, and the database that says how much of them is safe.

Beside an output ``out.jsonl`` stand, while it is written: ``out.jsonl.part`` (and ``out-00002.jsonl.part`` ... if it
is split), and ``out.jsonl.run``, see :mod:`lazyprompt.batch.database`. The state in the database is committed after
the parts have reached the disk. What stands behind that in the parts is cut off before a run continues. So a run can
be killed at any moment, and no row is lost or doubled.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from shutil import copymode
from sqlite3 import OperationalError
from time import monotonic
from typing import TYPE_CHECKING, Self

from lazyprompt._base.files import check_no_link, open_own
from lazyprompt.batch.database import ANEW, BatchStoppedError, Line, RunDatabase, State, beside
from lazyprompt.errors import BatchError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence
    from pathlib import Path

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.batch.forms import Limits

_HASH = re.compile(r"(sha256:)?[0-9a-f]{32,}")


@dataclass(frozen=True, slots=True)
class Files:
    """The names of the files of a run.

    Args:
        output: The output.
        rejects: The file of rejects; None if a row without a line ends the run.
    """

    output: Path
    rejects: Path | None = None

    def part(self, index: int) -> Path:
        """Return the name of an output file before the end, when nobody knows yet if there are several."""
        return part_of(self._numbered(index) if index else self.output)

    def finals(self, count: int) -> list[Path]:
        """Return the names of ``count`` output files at the end."""
        return [self.output] if count == 1 else [self._numbered(index) for index in range(count)]

    def left_over(self, count: int) -> list[Path]:
        """Return the output files of earlier runs that are there beside ``count`` new ones."""
        new = {*self.finals(count)}
        found = [*self._found(""), *([self.output] if self.output.exists() else [])]
        return sorted(path for path in found if path not in new)

    def parts_beyond(self, count: int) -> list[Path]:
        """Return the parts behind the first ``count``."""
        known = {self.part(index) for index in range(count)}
        return [path for path in self._found(".part") if path not in known]

    def _numbered(self, index: int) -> Path:
        return self.output.with_name(f"{self.output.stem}-{index + 1:05}{self.output.suffix}")

    def _found(self, ending: str) -> list[Path]:
        """Return the files with numbers that are there."""
        form = re.compile(rf"{re.escape(self.output.stem)}-\d{{5,}}{re.escape(self.output.suffix + ending)}")
        return [path for path in self.output.parent.iterdir() if form.fullmatch(path.name)]


class Journal:
    """The files of one run, held from the beginning to the end of the block that it is used in.

    Args:
        files: Their names.
        asked: The settings of the run, by the names that messages use.
        limits: The limits of one output file.
        restart: True to throw away a run that was begun.
        seconds: The most seconds of work that are lost when the run is killed.

    Attributes:
        files: Their names.
        database: The database of the run.
        state: The progress of the run.

    Raises:
        BatchError: Another process writes this output; or a run that was begun has other settings, or its files are
            not what it left.
        BatchStoppedError: A file cannot be written.
    """

    def __init__(
        self, files: Files, asked: JsonObject, limits: Limits, *, restart: bool = False, seconds: float = 1.0
    ) -> None:
        self.files = files
        self.state = self._safe = State(asked, None if files.rejects is None else str(files.rejects))
        self._limits = limits
        self._seconds = seconds
        self._failed = False
        with ExitStack() as held:
            self.database = self._claimed(files.output, held, restart=restart)
            # Its database only keeps other runs from the file of rejects.
            if files.rejects is not None and self._claimed(files.rejects, held).saved is not None:
                message = f"{files.rejects} is the output of a run that was begun; give another file of rejects"
                raise BatchError(message, setting="rejects")
            self._begin(restart=restart)
            self._held = held.pop_all()
        self._saved = monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Save what is done, unless that has failed, and unlock the files."""
        with self._held:
            if self.state is not self._safe and not self._failed:
                self.save()

    def add(self, number: int, lines: Sequence[bytes], rejects: Sequence[Line] = (), tokens: int = 0) -> None:
        """Write the lines of some rows.

        Args:
            number: The number of the last of the rows.
            lines: The lines of those that have one.
            rejects: The lines of all others.
            tokens: The number of tokens of the lines.

        Raises:
            BatchStoppedError: A file cannot be written.
        """
        old = self.state
        files, count = [*old.files], old.lines
        for piece, is_new in self._pieces(lines):
            if is_new:
                files.append(0)
                count = 0
            files[-1] += self._write(len(files) - 1, files[-1], b"".join(piece))
            count += len(piece)
        with self._telling(self.database.path):
            self.database.add(rejects)
        self.state = replace(
            old,
            number=number,
            written=old.written + len(lines),
            rejected=old.rejected + len(rejects),
            tokens=old.tokens + tokens,
            files=files,
            lines=count,
        )
        if monotonic() - self._saved >= self._seconds:
            self.save()

    def save(self) -> None:
        """Make safe what has been written.

        Raises:
            BatchStoppedError: A file cannot be written.
        """
        with self._telling(self.database.path):
            for index in range(len(self._safe.files) - 1, len(self.state.files)):
                with os.fdopen(open_own(self.files.part(index)), "rb") as part:
                    os.fsync(part.fileno())
            _sync_directories([self.files.output])  # the names of new parts
            self.database.save(self.state)
        self._safe = self.state
        self._saved = monotonic()

    def finish(self) -> list[Path]:
        """Give the files their names; all rows are done.

        Returns:
            The output files.

        Raises:
            BatchError: A file is gone.
            BatchStoppedError: A file cannot be written or renamed.
        """
        if not self.state.done:
            self.state = replace(self.state, done=True)
            self.save()
        finals = self.files.finals(len(self.state.files))
        moved = [(self.files.part(index), final) for index, final in enumerate(finals)]
        if self.files.rejects is not None:
            moved.append((self._written_rejects(part_of(self.files.rejects)), self.files.rejects))
        with self._telling(self.files.output):
            for part, final in moved:
                _move(part, final)
            # The names are safe before the database is gone that would give them again.
            _sync_directories(final for _, final in moved)
            self.database.remove()
            _sync_directories([self.files.output])
        return finals

    def _claimed(self, path: Path, held: ExitStack, *, restart: bool = False) -> RunDatabase:
        """Lock the database of a file."""
        with self._telling(beside(path, ".run")):
            try:
                database = RunDatabase(path, restart=restart)
            except OSError as error:
                raise BatchError(f"{beside(path, '.run')} cannot be written: {error.strerror or error}") from error
        held.callback(database.close)
        return database

    def _begin(self, *, restart: bool) -> None:
        """Cut the parts to what is safe, and remove those that are not needed."""
        files = self.files
        begun = self.database.saved
        if begun is not None:
            self.state = self._safe = _continued(begun, self.state, files)
        if self.state.done:
            return
        rejects = [] if files.rejects is None else [part_of(files.rejects)]
        with self._telling(files.output):
            if restart:
                for path in (files.part(0), *rejects):
                    path.unlink(missing_ok=True)
            for path in rejects if begun or restart else (files.part(0), *files.parts_beyond(1), *rejects):
                if path.is_file() and path.stat().st_size:
                    raise BatchError(f"{path} is there, and no run is known to have left it; move it away, or {ANEW}")
            for path in files.parts_beyond(len(self.state.files)):
                path.unlink()
        for index, size in enumerate(self.state.files):
            self._write(index, size, b"")
        self.save()

    def _pieces(self, lines: Sequence[bytes]) -> Iterator[tuple[Sequence[bytes], bool]]:
        """Yield the lines of one file after another, and True if that is a new one."""
        most_lines = self._limits.requests or float("inf")
        most_bytes = self._limits.bytes or float("inf")
        count, size = self.state.lines, self.state.files[-1]
        begin, is_new = 0, False
        for at, line in enumerate(lines):
            if count and (count >= most_lines or size + len(line) > most_bytes):
                yield lines[begin:at], is_new
                begin, is_new = at, True
                count = size = 0
            count += 1
            size += len(line)
        yield lines[begin:], is_new

    def _write(self, index: int, size: int, data: bytes) -> int:
        """Write behind the first ``size`` bytes of a part, and return how many bytes were written."""
        path = self.files.part(index)
        # Without a buffer: what could not be written is not tried again when the file is closed.
        with self._telling(path), os.fdopen(open_own(path), "r+b", buffering=0) as part:
            found = os.fstat(part.fileno()).st_size
            if found < size:
                raise BatchError(f"{path} has {found:,} of the {size:,} bytes that the run before has written; {ANEW}")
            part.truncate(size)
            part.seek(size)
            left = memoryview(data)
            while left:
                left = left[part.write(left) :]
        return len(data)

    def _written_rejects(self, path: Path) -> Path:
        """Write the part of the rejects."""
        count = 0
        with self._telling(path), os.fdopen(open_own(path), "r+b") as file:
            file.truncate()
            for chunk in self.database.chunks():
                rejects = [each.line for each in chunk if each.rejected]
                file.writelines(rejects)
                count += len(rejects)
            file.flush()
            os.fsync(file.fileno())
        if count != self.state.rejected:
            raise BatchError(f"{self.database.path} is damaged: rejects are missing from it; {ANEW}")
        return path

    @contextmanager
    def _telling(self, path: Path) -> Generator[None]:
        """Raise an error of the system with the number of the last row that is safe."""
        try:
            yield
        except (OSError, OperationalError) as error:
            self._failed = True
            safe = self._safe.number
            kept = f"all up to row {safe:,} is safe" if safe else "no row is safe yet"
            reason = getattr(error, "strerror", None) or error
            raise BatchStoppedError(f"{path} cannot be written: {reason}; {kept}") from error


def part_of(path: Path) -> Path:
    """Return the name of a file while it is written."""
    return beside(path, ".part")


def _continued(begun: State, asked: State, files: Files) -> State:
    """Return the state of a run that was begun, if its settings are the ones asked for.

    Raises:
        BatchError: They are others; the message lists them.
    """
    changed = [*_changes(begun.asked, asked.asked)]
    # Before a row was rejected, it makes no difference what would have been done with one.
    if begun.rejects_to != asked.rejects_to and (begun.rejected or begun.done):
        changed += _changes({"--rejects": begun.rejects_to}, {"--rejects": asked.rejects_to})
    if changed:
        raise BatchError(
            f"{files.output}: the run that was begun was asked for something else: {'; '.join(changed)}; {ANEW}"
        )
    return replace(begun, rejects_to=asked.rejects_to)


def _changes(old: JsonObject, new: JsonObject) -> Iterator[str]:
    """Describe the differences between the settings of two runs."""
    for name in dict.fromkeys((*old, *new)):
        before, after = old.get(name), new.get(name)
        if before == after:
            continue
        if all(isinstance(value, str) and _HASH.fullmatch(value) for value in (before, after)):
            yield f"{name} has changed"
        else:
            yield f"{name} was {_shown(before)}, and is {_shown(after)}"


def _shown(value: Json) -> str:
    return "not given" if value is None else json.dumps(value, ensure_ascii=False)


def _move(part: Path, final: Path) -> None:
    """Give a part its name."""
    check_no_link(part)
    if part.exists():
        if final.exists():
            copymode(final, part)
        part.replace(final)
    elif not final.exists():  # a run that was killed between two files has moved the first already
        raise BatchError(f"{part} is gone, which the run before has written; {ANEW}")


def _sync_directories(paths: Iterable[Path]) -> None:
    """Make names safe: those of new files, and those that files have been given."""
    if os.name != "posix":
        return
    for directory in {path.parent for path in paths}:
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
