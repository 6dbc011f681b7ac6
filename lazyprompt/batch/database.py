"""The database for a run: an SQLite file next to the output, locked by one process at a time.

``out.jsonl.run`` stores the run's progress and the lines that are not written to the output immediately: rejected rows
and model responses. A transaction is saved completely or not at all, even if the process is killed. The run's state and
each stored line have a checksum, because SQLite itself stores no checksums.
"""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from os.path import samestat
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from zlib import crc32

from lazyprompt._base.characters import visible
from lazyprompt._base.files import DATABASE_ENDINGS, own_database_status
from lazyprompt.errors import BatchError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator
    from pathlib import Path

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.prompters.rows import RowFault

RESTART_ADVICE = "use --restart to start over"
"""The advice in error messages for a run that cannot be resumed."""

_TABLES = [
    b"CREATE TABLE run (state BLOB, checksum INTEGER)",
    b"CREATE TABLE lines (row INTEGER PRIMARY KEY, line BLOB, rejected INTEGER, tokens INTEGER, checksum INTEGER)",
]
# A damaged database can also raise UnicodeDecodeError, if SQLite's error message is not valid UTF-8.
_DAMAGE = (sqlite3.DatabaseError, UnicodeDecodeError)


class BatchStoppedError(BatchError):
    """An error that stops a run early; finished rows are kept, and the same command resumes the run.

    Args:
        message: The place where the run stopped, and the reason.
        fault: The row error that stopped the run; None if the run stopped for another reason.
    """

    def __init__(self, message: str, fault: RowFault | None = None) -> None:
        super().__init__(message)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class State:
    """The progress of a run.

    Args:
        settings: The run's settings, keyed by their names in error messages; a run resumes only if they are unchanged.
        rejects_to: The path of the rejects file; None if the first rejected row ends the run.
        number: The number of the last finished row.
        written: The number of rows with an output line.
        rejected: The number of rejected rows.
        tokens: The number of tokens in the lines, or 0 if tokens are not counted.
        files: The size of each output file, in bytes.
        lines: The number of lines in the last output file.
        done: True if all rows are finished and the only remaining step is to rename the run's files.
    """

    settings: JsonObject = field(default_factory=dict[str, "Json"])
    rejects_to: str | None = None
    number: int = 0
    written: int = 0
    rejected: int = 0
    tokens: int = 0
    files: list[int] = field(default_factory=lambda: [0])
    lines: int = 0
    done: bool = False

    @property
    def rows(self) -> int:
        """The number of finished rows."""
        return self.written + self.rejected


class Line(NamedTuple):
    """A line in the run's database.

    Attributes:
        row: The row's number.
        line: The line, for the output or the rejects file.
        rejected: True if the line is for the rejects file.
        tokens: The number of tokens in the prompt and the response.
    """

    row: int
    line: bytes
    rejected: bool
    tokens: int = 0


class RunDatabase:
    """The database for a run, locked until it is closed or the process ends.

    Args:
        output: The run's output file, next to which the database is stored.
        restart: True to discard the database's content.

    Attributes:
        path: The path of the database file.
        saved: The last saved state, or None for a new run.

    Raises:
        BatchError: Another process has locked the file, or the file is damaged or is not a run database.
        OSError: The path exists but is not a regular file; for example, it is a symlink.
        sqlite3.OperationalError: The file cannot be written.
    """

    def __init__(self, output: Path, *, restart: bool = False) -> None:
        self.path = add_ending(output, ".run")
        self.saved: State | None = None
        self._output = output
        if restart:
            with suppress(*_DAMAGE):  # a file that isn't a database can't be locked by another run
                self._lock().close()
            self._unlink()
        with self._reporting_damage(), ExitStack() as opened:
            self._connection = self._lock()
            opened.callback(self._connection.close)
            found = [sql for (sql,) in self._connection.execute("SELECT sql FROM sqlite_master ORDER BY rowid")]
            if found:
                if found != _TABLES:
                    raise self._damage_error("the file's tables are not those of a run database")
                self.saved = self._read()
            opened.pop_all()

    def close(self) -> None:
        """Close and unlock the database, and delete it if nothing was saved."""
        with closing(self._connection):
            if self.saved is None:
                self.remove()

    def remove(self) -> None:
        """Delete the database files and unlock the database."""
        # Delete the database files before unlocking them, so that no other run can lock them.
        # On Windows, close the files before deleting them, because Windows can't delete open files.
        with closing(self._connection):
            if os.name == "posix":
                self._unlink()
        if os.name != "posix":
            self._unlink()

    def save(self, state: State) -> None:
        """Commit the state and the inserted lines.

        Raises:
            BatchError: The database is damaged.
        """
        text = json.dumps(asdict(state)).encode()
        with self._reporting_damage():
            if self.saved is None:
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.execute("BEGIN")
                for table in _TABLES:
                    self._connection.execute(table.decode())
            self._connection.execute("DELETE FROM run")
            self._connection.execute("INSERT INTO run VALUES (?, ?)", (text, crc32(text)))
            self._connection.commit()
        self.saved = state

    def add(self, lines: Iterable[Line], *, commit: bool = False) -> None:
        """Insert lines into the database.

        Args:
            lines: The lines.
            commit: True to commit immediately; False to commit when the state is next saved.

        Raises:
            BatchError: The database is damaged.
        """
        values = [(*line, _checksum(line)) for line in lines]
        with self._reporting_damage():
            self._connection.executemany("INSERT OR REPLACE INTO lines VALUES (?, ?, ?, ?, ?)", values)
            if commit:
                self._connection.commit()

    def chunks(self, behind: int = 0) -> Iterator[list[Line]]:
        """Yield the lines in row order, in chunks of up to 500.

        Args:
            behind: The number of the last row to skip.

        Raises:
            BatchError: The database is damaged.
        """
        query = (
            "SELECT row, line, rejected, tokens, is_whole(checksum, row, line, rejected, tokens) FROM lines "
            "WHERE row > ? ORDER BY row LIMIT 500"
        )
        while True:
            with self._reporting_damage():
                found = self._connection.execute(query, (behind,)).fetchall()
            if not found:
                return
            for row, *_, whole in found:
                if not whole:
                    raise self._damage_error(f"the checksum for row {row} doesn't match")
            behind = found[-1][0]
            yield [Line(row, line, bool(rejected), tokens) for row, line, rejected, tokens, _ in found]

    def drop(self, *, rejects: bool) -> None:
        """Delete damaged lines.

        Args:
            rejects: True to delete the lines of rejected rows too.
        """
        with self._reporting_damage(), self._connection:
            self._connection.execute(
                "DELETE FROM lines WHERE NOT is_whole(checksum, row, line, rejected, tokens) OR rejected AND ?",
                (rejects,),
            )

    def _read(self) -> State:
        found = self._connection.execute("SELECT state, checksum FROM run").fetchall()
        try:
            return _parse_state(*found[0])
        except (IndexError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise self._damage_error(str(error)) from error

    def _lock(self) -> sqlite3.Connection:
        """Open the database file and lock it."""
        while True:
            before = self._status()
            with ExitStack() as opened:
                connection = sqlite3.connect(self.path, timeout=0, check_same_thread=False)
                opened.callback(connection.close)
                connection.text_factory = bytes  # damaged text might not be valid UTF-8
                connection.create_function("is_whole", 5, _is_whole)
                failure: sqlite3.OperationalError | None = None
                try:
                    connection.execute("PRAGMA synchronous = FULL")
                    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
                    connection.execute("BEGIN EXCLUSIVE")
                    connection.rollback()  # in exclusive locking mode, a rollback keeps the lock
                except sqlite3.OperationalError as error:
                    if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                        message = f"another run is writing {self._output}; wait until it ends, or use another output"
                        raise BatchError(message) from error
                    failure = error
                # Retry if an earlier run deleted the file after this run opened it but before this run locked it.
                after = self._status()
                if before is not None and after is not None and samestat(before, after):
                    if failure is not None:
                        raise failure
                    opened.pop_all()
                    return connection

    def _status(self) -> os.stat_result | None:
        """Check that the database files are regular files, and return the main file's status."""
        first = own_database_status(self.path)
        if first is not None and first.st_size == 1:  # SQLite accepts a one-byte file as an empty database
            raise sqlite3.DatabaseError("file is not a database")
        return first

    def _unlink(self) -> None:
        for ending in DATABASE_ENDINGS:
            add_ending(self.path, ending).unlink(missing_ok=True)

    @contextmanager
    def _reporting_damage(self) -> Generator[None]:
        """Convert errors from damaged files to BatchError; write errors are raised unchanged."""
        try:
            yield
        except sqlite3.OperationalError:
            raise
        except _DAMAGE as error:
            raise self._damage_error(str(error)) from error

    def _damage_error(self, reason: str) -> BatchError:
        # SQLite quotes damaged names from the file, which can contain control characters.
        why = " ".join(visible(reason).split())
        return BatchError(f"{self.path} is damaged or is not a run database ({why}); {RESTART_ADVICE}")


def add_ending(path: Path, ending: str) -> Path:
    """Return the path with ``ending`` appended to its file name."""
    return path.with_name(path.name + ending)


def _parse_state(text: bytes, checksum: int) -> State:
    if crc32(text) != checksum:
        raise ValueError("the saved run state doesn't match its checksum")
    found: dict[str, Any] = {**json.loads(text)}
    rejects_to: str | None = found.pop("rejects_to")
    fresh = asdict(State())
    del fresh["rejects_to"]
    if [(name, type(found.get(name))) for name in found] != [(name, type(fresh[name])) for name in fresh]:
        raise ValueError("the saved run state has unexpected fields")
    return State(**found, rejects_to=rejects_to)


# The columns ``row``, ``line``, ``rejected`` and ``tokens`` of the table ``lines``.
_LineColumns: TypeAlias = tuple[int, bytes, int, int]


def _is_whole(checksum: int, *line: *_LineColumns) -> bool:
    try:
        return _checksum(line) == checksum
    except TypeError:  # a damaged row can contain values of the wrong type
        return False


def _checksum(columns: _LineColumns) -> int:
    row, line, rejected, tokens = columns
    return crc32(b"%d %d %d " % (row, rejected, tokens), crc32(line))
