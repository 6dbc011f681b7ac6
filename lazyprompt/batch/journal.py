"""The files that a run writes: the output's part files, and a database that records how much of each is saved.

While a run writes ``out.jsonl``, the directory contains ``out.jsonl.part``. If the output is split, the directory also
contains ``out-00002.jsonl.part`` and so on. The database is ``out.jsonl.run``; see :mod:`lazyprompt.batch.database`.

The state is committed after the part files are synced to disk. When a run resumes, it first truncates the part files to
their committed size. A run can therefore be killed at any time without losing or duplicating a row.
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
from lazyprompt.batch.database import RESTART_ADVICE, BatchStoppedError, Line, RunDatabase, State, add_ending
from lazyprompt.errors import BatchError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence
    from pathlib import Path

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.batch.forms import FileLimits

_HASH = re.compile(r"(sha256:)?[0-9a-f]{32,}")


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The paths of a run's files.

    Args:
        output: The output file.
        rejects: The rejects file; None if the first rejected row ends the run.
    """

    output: Path
    rejects: Path | None = None

    def part(self, index: int) -> Path:
        """Return the path of a part file, given its index."""
        return part_of(self._numbered(index) if index else self.output)

    def finals(self, count: int) -> list[Path]:
        """Return the final paths of ``count`` output files."""
        return [self.output] if count == 1 else [self._numbered(index) for index in range(count)]

    def left_over(self, count: int) -> list[Path]:
        """Return the existing output files that a run with ``count`` output files doesn't replace."""
        new = {*self.finals(count)}
        found = [*self._found(""), *([self.output] if self.output.exists() else [])]
        return sorted(path for path in found if path not in new)

    def parts_beyond(self, count: int) -> list[Path]:
        """Return the existing part files with index ``count`` or higher."""
        known = {self.part(index) for index in range(count)}
        return [path for path in self._found(".part") if path not in known]

    def _numbered(self, index: int) -> Path:
        return self.output.with_name(f"{self.output.stem}-{index + 1:05}{self.output.suffix}")

    def _found(self, ending: str) -> list[Path]:
        """Return existing output files with a number and an ending, such as ``out-00002.jsonl.part``."""
        form = re.compile(rf"{re.escape(self.output.stem)}-\d{{5,}}{re.escape(self.output.suffix + ending)}")
        return [path for path in self.output.parent.iterdir() if form.fullmatch(path.name)]


class Journal:
    """The files of one run, locked until the end of the ``with`` block.

    Args:
        files: The paths of the run's files.
        settings: The run's settings, keyed by their names in error messages.
        limits: The maximum number of lines and bytes in one output file.
        restart: True to discard an unfinished run.
        seconds: The minimum time between saves, in seconds; a killed run loses the work since its last save.

    Attributes:
        files: The paths of the run's files.
        database: The run's database.
        state: The run's progress.

    Raises:
        BatchError: Another process is writing this output, the unfinished run has different settings, or its files
            have changed.
        BatchStoppedError: A file cannot be written.
    """

    def __init__(
        self, files: RunFiles, settings: JsonObject, limits: FileLimits, *, restart: bool = False, seconds: float = 1.0
    ) -> None:
        self.files = files
        self.state = self._safe = State(settings, None if files.rejects is None else str(files.rejects))
        self._limits = limits
        self._seconds = seconds
        self._failed = False
        with ExitStack() as held:
            self.database = self._lock(files.output, held, restart=restart)
            # The rejects file's database is used only for locking.
            if files.rejects is not None and self._lock(files.rejects, held).saved is not None:
                message = f"{files.rejects} is the output of an unfinished run; use another rejects file"
                raise BatchError(message, setting="rejects")
            self._begin(restart=restart)
            self._held = held.pop_all()
        self._saved = monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Save the state, unless a write has failed, and unlock the files."""
        with self._held:
            if self.state is not self._safe and not self._failed:
                self.save()

    def add(self, number: int, lines: Sequence[bytes], rejects: Sequence[Line] = (), tokens: int = 0) -> None:
        """Write the lines for consecutive rows.

        Args:
            number: The number of the last row.
            lines: The lines to append to the output files.
            rejects: The lines to append to the rejects file.
            tokens: The number of tokens in the lines.

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
        with self._reporting_failures(self.database.path):
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
        """Sync the part files to disk and commit the state.

        Raises:
            BatchStoppedError: A file cannot be written.
        """
        with self._reporting_failures(self.database.path):
            for index in range(len(self._safe.files) - 1, len(self.state.files)):
                with os.fdopen(open_own(self.files.part(index)), "rb") as part:
                    os.fsync(part.fileno())
            _sync_directories([self.files.output])  # without this sync, a crash could lose the new part files' names
            self.database.save(self.state)
        self._safe = self.state
        self._saved = monotonic()

    def finish(self) -> list[Path]:
        """Rename the files to their final names; call this after the last row.

        Returns:
            The output files.

        Raises:
            BatchError: A file is missing.
            BatchStoppedError: A file cannot be written or renamed.
        """
        if not self.state.done:
            self.state = replace(self.state, done=True)
            self.save()
        finals = self.files.finals(len(self.state.files))
        moved = [(self.files.part(index), final) for index, final in enumerate(finals)]
        if self.files.rejects is not None:
            moved.append((self._write_rejects(part_of(self.files.rejects)), self.files.rejects))
        with self._reporting_failures(self.files.output):
            for part, final in moved:
                _move(part, final)
            # Sync the renamed files before deleting the database, which is needed to resume an interrupted rename.
            _sync_directories(final for _, final in moved)
            self.database.remove()
            _sync_directories([self.files.output])
        return finals

    def _lock(self, path: Path, held: ExitStack, *, restart: bool = False) -> RunDatabase:
        with self._reporting_failures(add_ending(path, ".run")):
            try:
                database = RunDatabase(path, restart=restart)
            except OSError as error:
                raise BatchError(f"{add_ending(path, '.run')} cannot be written: {error.strerror or error}") from error
        held.callback(database.close)
        return database

    def _begin(self, *, restart: bool) -> None:
        """Truncate the part files to their saved size, and delete those that are no longer needed."""
        files = self.files
        begun = self.database.saved
        if begun is not None:
            self.state = self._safe = _continue(begun, self.state, files)
        if self.state.done:
            return
        rejects = [] if files.rejects is None else [part_of(files.rejects)]
        with self._reporting_failures(files.output):
            if restart:
                for path in (files.part(0), *rejects):
                    path.unlink(missing_ok=True)
            for path in rejects if begun or restart else (files.part(0), *files.parts_beyond(1), *rejects):
                if path.is_file() and path.stat().st_size:
                    raise BatchError(
                        f"{path} already exists, but no unfinished run wrote it; move this file, or {RESTART_ADVICE}"
                    )
            for path in files.parts_beyond(len(self.state.files)):
                path.unlink()
        for index, size in enumerate(self.state.files):
            self._write(index, size, b"")
        self.save()

    def _pieces(self, lines: Sequence[bytes]) -> Iterator[tuple[Sequence[bytes], bool]]:
        """Yield the lines for each output file, with a flag that is True if the file is new."""
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
        """Write data after the first ``size`` bytes of a part file, and return the number of bytes written."""
        path = self.files.part(index)
        # Disable buffering, because closing a buffered file retries a failed write.
        with self._reporting_failures(path), os.fdopen(open_own(path), "r+b", buffering=0) as part:
            found = os.fstat(part.fileno()).st_size
            if found < size:
                raise BatchError(
                    f"{path} contains {found:,} of the {size:,} bytes that the earlier run wrote; {RESTART_ADVICE}"
                )
            part.truncate(size)
            part.seek(size)
            left = memoryview(data)
            while left:
                left = left[part.write(left) :]
        return len(data)

    def _write_rejects(self, path: Path) -> Path:
        count = 0
        with self._reporting_failures(path), os.fdopen(open_own(path), "r+b") as file:
            file.truncate()
            for chunk in self.database.chunks():
                rejects = [each.line for each in chunk if each.rejected]
                file.writelines(rejects)
                count += len(rejects)
            file.flush()
            os.fsync(file.fileno())
        if count != self.state.rejected:
            raise BatchError(f"{self.database.path} is damaged: rejected rows are missing; {RESTART_ADVICE}")
        return path

    @contextmanager
    def _reporting_failures(self, path: Path) -> Generator[None]:
        """Convert write errors to BatchStoppedError; its message includes the number of the last saved row."""
        try:
            yield
        except (OSError, OperationalError) as error:
            self._failed = True
            safe = self._safe.number
            kept = f"rows up to {safe:,} are saved" if safe else "no row is saved yet"
            reason = getattr(error, "strerror", None) or error
            raise BatchStoppedError(f"{path} cannot be written: {reason}; {kept}") from error


def part_of(path: Path) -> Path:
    """Return the temporary name of a file that is being written."""
    return add_ending(path, ".part")


def _continue(begun: State, new: State, files: RunFiles) -> State:
    """Return an unfinished run's state; raise an error if the settings have changed.

    Raises:
        BatchError: Settings have changed; the message lists them.
    """
    changed = [*_changes(begun.settings, new.settings)]
    # The --rejects option may change between runs until the first row is rejected.
    if begun.rejects_to != new.rejects_to and (begun.rejected or begun.done):
        changed += _changes({"--rejects": begun.rejects_to}, {"--rejects": new.rejects_to})
    if changed:
        raise BatchError(
            f"{files.output}: the unfinished run has different settings: {'; '.join(changed)}; {RESTART_ADVICE}"
        )
    return replace(begun, rejects_to=new.rejects_to)


def _changes(old: JsonObject, new: JsonObject) -> Iterator[str]:
    """Yield a description of each setting that differs between two runs."""
    for name in dict.fromkeys((*old, *new)):
        before, after = old.get(name), new.get(name)
        if before == after:
            continue
        if all(isinstance(value, str) and _HASH.fullmatch(value) for value in (before, after)):
            yield f"{name} has changed"
        else:
            yield f"{name} was {_describe(before)}, now {_describe(after)}"


def _describe(value: Json) -> str:
    return "not set" if value is None else json.dumps(value, ensure_ascii=False)


def _move(part: Path, final: Path) -> None:
    """Rename a part file to its final name."""
    check_no_link(part)
    if part.exists():
        if final.exists():
            copymode(final, part)
        part.replace(final)
    elif not final.exists():  # the earlier run may have been killed after renaming the part file
        raise BatchError(f"{part}, which the earlier run wrote, is missing; {RESTART_ADVICE}")


def _sync_directories(paths: Iterable[Path]) -> None:
    """Sync the directories that contain new or renamed files."""
    if os.name != "posix":
        return
    for directory in {path.parent for path in paths}:
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
