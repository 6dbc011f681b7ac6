"""The database of a run: an SQLite file beside the output, locked by one process at a time.

``out.jsonl.run`` stores the progress of the run and the lines that are not written to the output immediately: rejected
rows and a model's answers. A transaction is complete or absent, even if the process is killed. State and lines have
checksums, since SQLite has none.
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

from lazyprompt._base.files import DATABASE_ENDINGS, own_database_status
from lazyprompt.errors import BatchError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator
    from pathlib import Path

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.prompters.rows import RowFault

RESTART_ADVICE = "--restart begins anew"
"""The advice for a run that cannot be continued."""

_TABLES = [
    b"CREATE TABLE run (state BLOB, checksum INTEGER)",
    b"CREATE TABLE lines (row INTEGER PRIMARY KEY, line BLOB, rejected INTEGER, tokens INTEGER, checksum INTEGER)",
]
# SQLite's own message can contain damaged text, hence the UnicodeDecodeError.
_DAMAGE = (sqlite3.DatabaseError, UnicodeDecodeError)


class BatchStoppedError(BatchError):
    """A run stopped early; finished rows are kept, and the same command continues the run.

    Args:
        message: The place and the reason.
        fault: The row without a line, if that is the reason.
    """

    def __init__(self, message: str, fault: RowFault | None = None) -> None:
        super().__init__(message)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class State:
    """The progress of a run.

    Args:
        settings: The settings of the run, by the names in messages; a run continues only with the same settings.
        rejects_to: The file of rejects; None if a row without a line ends the run.
        number: The number of the last finished row.
        written: The number of rows with a line.
        rejected: The number of rejected rows.
        tokens: The number of tokens in the lines, if they are counted.
        files: The size of each output file, in bytes.
        lines: The number of lines in the last output file.
        done: True if the files only need to be renamed.
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
    """A line in the database.

    Attributes:
        row: The number of the row.
        line: The line, for the output or the file of rejects.
        rejected: True if the line is for the file of rejects.
        tokens: The number of tokens in prompt and answer.
    """

    row: int
    line: bytes
    rejected: bool
    tokens: int = 0


class RunDatabase:
    """The database of a run, locked until it is closed or the process ends.

    Args:
        output: The file that the run writes.
        restart: True to discard the content of the database.

    Attributes:
        path: The file of the database.
        saved: The last saved state; None if the run has just begun.

    Raises:
        BatchError: Another process has locked the file, or it is damaged or not the database of a run.
        OSError: The path is not a regular file, such as a link.
        sqlite3.OperationalError: The file cannot be written.
    """

    def __init__(self, output: Path, *, restart: bool = False) -> None:
        self.path = add_ending(output, ".run")
        self.saved: State | None = None
        self._output = output
        if restart:
            with suppress(*_DAMAGE):  # no run can hold a file that isn't a database
                self._lock().close()
            self._unlink()
        with self._reporting_damage(), ExitStack() as opened:
            self._connection = self._lock()
            opened.callback(self._connection.close)
            found = [sql for (sql,) in self._connection.execute("SELECT sql FROM sqlite_master ORDER BY rowid")]
            if found:
                if found != _TABLES:
                    raise self._damage_error("it has other tables")
                self.saved = self._read()
            opened.pop_all()

    def close(self) -> None:
        """Close and unlock the database; remove it if nothing was saved."""
        with closing(self._connection):
            if self.saved is None:
                self.remove()

    def remove(self) -> None:
        """Remove the files of the database, and unlock it."""
        # Windows can't remove an open file. Elsewhere, removing it after closing would let another run lock it first.
        with closing(self._connection):
            if os.name == "posix":
                self._unlink()
        if os.name != "posix":
            self._unlink()

    def save(self, state: State) -> None:
        """Commit the state and the added lines.

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
        """Insert lines.

        Args:
            lines: The lines.
            commit: True to commit immediately, False to commit with the next state.

        Raises:
            BatchError: The database is damaged.
        """
        values = [(*line, _checksum(line)) for line in lines]
        with self._reporting_damage():
            self._connection.executemany("INSERT OR REPLACE INTO lines VALUES (?, ?, ?, ?, ?)", values)
            if commit:
                self._connection.commit()

    def chunks(self, behind: int = 0) -> Iterator[list[Line]]:
        """Yield the lines in the order of rows, up to 500 at a time.

        Args:
            behind: The number of the row after which to begin.

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
                    raise self._damage_error(f"the line of row {row} has another checksum")
            behind = found[-1][0]
            yield [Line(row, line, bool(rejected), tokens) for row, line, rejected, tokens, _ in found]

    def drop(self, *, rejects: bool) -> None:
        """Remove damaged lines.

        Args:
            rejects: True to remove the lines of rejected rows too.
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
        """Open the file and lock it."""
        while True:
            before = self._status()
            with ExitStack() as opened:
                connection = sqlite3.connect(self.path, timeout=0, check_same_thread=False)
                opened.callback(connection.close)
                connection.text_factory = bytes  # damaged text can't be decoded
                connection.create_function("is_whole", 5, _is_whole)
                failure: sqlite3.OperationalError | None = None
                try:
                    connection.execute("PRAGMA synchronous = FULL")
                    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
                    connection.execute("BEGIN EXCLUSIVE")
                    connection.rollback()  # the file stays locked
                except sqlite3.OperationalError as error:
                    if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                        message = f"another run is writing {self._output}; wait for its end, or give another output"
                        raise BatchError(message) from error
                    failure = error
                # The previous run may have removed the file between opening and locking.
                after = self._status()
                if before is not None and after is not None and samestat(before, after):
                    if failure is not None:
                        raise failure
                    opened.pop_all()
                    return connection

    def _status(self) -> os.stat_result | None:
        """Check that the files of the database are regular, and return the status of the main file."""
        first = own_database_status(self.path)
        if first is not None and first.st_size == 1:  # SQLite treats it as an empty database
            raise sqlite3.DatabaseError("file is not a database")
        return first

    def _unlink(self) -> None:
        for ending in DATABASE_ENDINGS:
            add_ending(self.path, ending).unlink(missing_ok=True)

    @contextmanager
    def _reporting_damage(self) -> Generator[None]:
        """Convert errors of damaged files; errors of writing pass through."""
        try:
            yield
        except sqlite3.OperationalError:
            raise
        except _DAMAGE as error:
            raise self._damage_error(str(error)) from error

    def _damage_error(self, reason: str) -> BatchError:
        return BatchError(f"{self.path} is not the database of a run, or it is damaged ({reason}); {RESTART_ADVICE}")


def add_ending(path: Path, ending: str) -> Path:
    """Return the path with an ending added to its name."""
    return path.with_name(path.name + ending)


def _parse_state(text: bytes, checksum: int) -> State:
    if crc32(text) != checksum:
        raise ValueError("its checksum is another one")
    found: dict[str, Any] = {**json.loads(text)}
    rejects_to: str | None = found.pop("rejects_to")
    fresh = asdict(State())
    del fresh["rejects_to"]
    if [(name, type(found.get(name))) for name in found] != [(name, type(fresh[name])) for name in fresh]:
        raise ValueError("its state has other fields")
    return State(**found, rejects_to=rejects_to)


# The columns of a line: row, line, rejected, tokens.
_LineColumns: TypeAlias = tuple[int, bytes, int, int]


def _is_whole(checksum: int, *line: *_LineColumns) -> bool:
    try:
        return _checksum(line) == checksum
    except TypeError:  # damage can change a column's type
        return False


def _checksum(columns: _LineColumns) -> int:
    row, line, rejected, tokens = columns
    return crc32(b"%d %d %d " % (row, rejected, tokens), crc32(line))
