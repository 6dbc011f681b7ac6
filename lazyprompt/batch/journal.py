"""Output that is there whole or not at all, and that a run which was killed goes on with.

Beside an output ``out.jsonl`` stand, while it is written: ``out.jsonl.part`` (and ``out-00002.jsonl.part`` ... where
it is split), ``out.jsonl.state`` and ``out.jsonl.lock``. The state says how much of the parts is safe. It is replaced
in one step, after what it speaks of has reached the disk; what stands behind that in the parts is cut off before a
run goes on. So there is no moment at which a run can be killed and a row be lost or doubled.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from io import FileIO
from shutil import copymode
from time import monotonic
from typing import TYPE_CHECKING, Self

from lazyprompt._base.files import check_no_link, open_new, open_own
from lazyprompt._base.locks import Lock
from lazyprompt.batch.state import ANEW, BatchStoppedError, Files, State, beside, check_free, part_of, read_state
from lazyprompt.errors import BatchError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import TypeAlias

    from lazyprompt._base.json import JsonObject
    from lazyprompt.batch.forms import Limits

    # Lines of one file, and whether it is a new one.
    _Piece: TypeAlias = tuple[Sequence[bytes], bool]


class Journal:
    """The files of one run, held from the beginning to the end of the block that it is used in.

    Args:
        files: Their names.
        asked: What the run is asked for, by the names that messages use.
        limits: What one output file may hold.
        restart: Whether a run that was begun is thrown away.
        seconds: How many seconds' work may be lost when the run is killed.

    Attributes:
        files: Their names.
        state: How far the run has come.
        resumed: Whether it goes on with one that was begun.

    Raises:
        BatchError: Another process writes this output; or a run that was begun was asked for something else, or its
            files are not what it left.
        BatchStoppedError: A file cannot be written.
    """

    def __init__(
        self, files: Files, asked: JsonObject, limits: Limits, *, restart: bool = False, seconds: float = 1.0
    ) -> None:
        self.files = files
        self.state = self._safe = State(asked, None if files.rejects is None else str(files.rejects))
        self.resumed = False
        self._limits = limits
        self._seconds = seconds
        self._output: FileIO | None = None
        self._rejects: FileIO | None = None
        self._failed = False
        with ExitStack() as held:
            self._lock(held)
            begun = None if restart else read_state(files, self.state)
            if begun is not None:
                self.state = self._safe = begun
                self.resumed = True
            if not self.state.done:
                held.callback(self._close)
                self._open(restart=restart)
            self._held = held.pop_all()
        self._saved = monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Make safe what is done, unless that has failed, and let go of the files."""
        with self._held:
            if self.state is not self._safe and not self._failed:
                self.save()

    def add(self, number: int, lines: Sequence[bytes], rejects: Sequence[bytes] = (), tokens: int = 0) -> None:
        """Write what came of some rows.

        Args:
            number: The number of the last of them.
            lines: The lines of those that have one.
            rejects: Those of all others.
            tokens: How many tokens the lines have.

        Raises:
            BatchStoppedError: A file cannot be written.
        """
        old = self.state
        files, count = [*old.files], old.lines
        for piece, is_new in self._pieces(lines):
            if is_new:
                self._next(len(files))
                files.append(0)
                count = 0
            files[-1] += self._write(self._output, self.files.part(len(files) - 1), piece)
            count += len(piece)
        refused = 0
        if self.files.rejects is not None:
            refused = self._write(self._rejects, part_of(self.files.rejects), rejects)
        self.state = replace(
            old,
            number=number,
            written=old.written + len(lines),
            rejected=old.rejected + len(rejects),
            tokens=old.tokens + tokens,
            files=tuple(files),
            lines=count,
            rejects=old.rejects + refused,
        )
        if monotonic() - self._saved >= self._seconds:
            self.save()

    def save(self) -> None:
        """Make safe what has been written.

        Raises:
            BatchStoppedError: A file cannot be written.
        """
        with self._telling(self.files.state, self._safe.number):
            for file in (self._output, self._rejects):
                if file is not None:
                    os.fsync(file.fileno())
            # Its name is always the same, so that nothing is left of a run that was killed.
            temporary = beside(self.files.state, ".tmp")
            temporary.unlink(missing_ok=True)
            with os.fdopen(open_new(temporary), "wb") as written:
                written.write(self.state.to_json())
                written.flush()
                os.fsync(written.fileno())
            temporary.replace(self.files.state)
            # Those of new parts as well, which the state speaks of.
            _sync_directories(filter(None, (self.files.state, self.files.rejects)))
        self._safe = self.state
        self._saved = monotonic()

    def finish(self) -> list[Path]:
        """Give the files their names, all rows being done.

        Returns:
            The output files.

        Raises:
            BatchError: A file is gone.
            BatchStoppedError: A file cannot be written or renamed.
        """
        if not self.state.done:
            self.state = replace(self.state, done=True)
            self.save()
        self._close()
        finals = self.files.finals(len(self.state.files))
        moved = [(self.files.part(index), final) for index, final in enumerate(finals)]
        if self.files.rejects is not None:
            moved.append((part_of(self.files.rejects), self.files.rejects))
        with self._telling(self.files.output):
            for part, final in moved:
                _move(part, final)
            # The names are safe before the state is gone that would give them again.
            _sync_directories(final for _, final in moved)
            self.files.state.unlink()
            _sync_directories([self.files.state])
        return finals

    def _pieces(self, lines: Sequence[bytes]) -> Iterator[_Piece]:
        """Lines by the files that they go to."""
        most_lines = self._limits.requests or float("inf")
        most_bytes = self._limits.bytes or float("inf")
        count, size = self.state.lines, self.state.files[-1]
        if count + len(lines) <= most_lines and size + sum(map(len, lines)) <= most_bytes:
            yield lines, False
            return
        piece: list[bytes] = []
        is_new = False
        for line in lines:
            if count and (count >= most_lines or size + len(line) > most_bytes):
                yield piece, is_new
                piece, is_new = [], True
                count = size = 0
            piece.append(line)
            count += 1
            size += len(line)
        yield piece, is_new

    def _lock(self, held: ExitStack) -> None:
        """Hold the output, and the rejects."""
        for path in filter(None, (self.files.output, self.files.rejects)):
            lock = beside(path, ".lock")
            try:
                held.enter_context(Lock(lock, str(path)))
            except OSError as error:
                raise BatchError(f"{lock} cannot be written: {error.strerror}") from error

    def _open(self, *, restart: bool) -> None:
        """Open the parts, cut to what is safe; those of no use are removed."""
        if not self.resumed:
            if not restart:
                rejects = () if self.files.rejects is None else (part_of(self.files.rejects),)
                for path in (self.files.part(0), *self.files.parts_beyond(1), *rejects):
                    check_free(path)
            # The state goes first: without it parts mean nothing, with it they must be whole.
            self.files.state.unlink(missing_ok=True)
        *full, last = self.state.files
        for path in self.files.parts_beyond(len(self.state.files)):
            path.unlink()
        for index, size in enumerate(full):
            self._opened(self.files.part(index), size).close()
        self._output = self._opened(self.files.part(len(full)), last)
        if self.files.rejects is not None:
            self._rejects = self._opened(part_of(self.files.rejects), self.state.rejects)
        self.save()

    def _next(self, index: int) -> None:
        """Go over to the next output file; the one that is full is safe from here on."""
        if self._output is not None:
            with self._telling(self.files.part(index - 1)):
                os.fsync(self._output.fileno())
            self._output.close()
        self._output = self._opened(self.files.part(index), 0)

    def _opened(self, path: Path, size: int) -> FileIO:
        """A part, with so many bytes, to be written to behind them."""
        with self._telling(path):
            found = path.stat().st_size if path.exists() else 0
            if found < size:
                raise BatchError(f"{path} has {found:,} of the {size:,} bytes that the run before has written; {ANEW}")
            # Without a buffer: what could not be written is not tried again when the file is closed.
            file = FileIO(open_own(path), "r+b")
            file.truncate(size)
            file.seek(size)
        return file

    def _write(self, file: FileIO | None, path: Path, lines: Sequence[bytes]) -> int:
        """Write lines, and say how many bytes they are."""
        if file is None:
            raise BatchError(f"{path} is not open: the run is over")
        data = b"".join(lines)
        left = memoryview(data)
        with self._telling(path):
            while left:
                left = left[file.write(left) :]
        return len(data)

    @contextmanager
    def _telling(self, path: Path, behind: int | None = None) -> Generator[None]:
        """Tell what the system says with the row that it is about, behind what is done, and with what is safe."""
        try:
            yield
        except OSError as error:
            self._failed = True
            safe = self._safe.number
            kept = f"all up to row {safe:,} is safe" if safe else "no row is safe yet"
            row = (self.state.number if behind is None else behind) + 1
            raise BatchStoppedError(
                f"row {row:,}: {path} cannot be written: {error.strerror or error}; {kept}"
            ) from error

    def _close(self) -> None:
        for file in (self._output, self._rejects):
            if file is not None:
                file.close()
        self._output = self._rejects = None


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
