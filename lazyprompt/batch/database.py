"""The database of a run: one SQLite file beside the output, which one process at a time holds.

``out.jsonl.run`` holds how far the run is, and the lines that do not go to the output at once: rejected rows, and the
answers of a model. A transaction is there whole or not at all, whenever the process is killed. Each content has a
checksum, for SQLite itself has none.
"""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from os.path import samestat
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from zlib import crc32

from lazyprompt._base.files import DATABASE_ENDINGS, own_database_status
from lazyprompt.errors import BatchError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator
    from pathlib import Path

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.prompters.rows import RowFault

ANEW = "--restart begins anew"
"""The advice where a run cannot be continued."""

_TABLES = [
    b"CREATE TABLE run (state BLOB, checksum INTEGER)",
    b"CREATE TABLE lines (row INTEGER PRIMARY KEY, line BLOB, rejected INTEGER, tokens INTEGER, checksum INTEGER)",
]
# A message of SQLite may hold damaged text.
_DAMAGE = (sqlite3.DatabaseError, UnicodeDecodeError)


class BatchStoppedError(BatchError):
    """A run stopped before its end; what is done is kept, and the same command continues it.

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
        asked: The settings of the run, by the names that messages use; a run continues only with the same ones.
        rejects_to: The file of rejects; None if a row without a line ends the run.
        number: The number of the last row that is done.
        written: The number of rows with a line.
        rejected: The number of rows without one.
        tokens: The number of tokens of the lines, if they are counted.
        files: The size of each output file, in bytes.
        lines: The number of lines of the last of them.
        done: True if the files only need their names.
    """

    asked: JsonObject = field(default_factory=dict[str, "Json"])
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
        """The number of rows that are done."""
        return self.written + self.rejected


class Line(NamedTuple):
    """A line that the database holds.

    Attributes:
        row: The number of the row.
        line: The line, for the output or for the rejects.
        rejected: True if it is for the rejects.
        tokens: The number of tokens that its answer took.
    """

    row: int
    line: bytes
    rejected: bool
    tokens: int = 0


class RunDatabase:
    """The database of a run, locked until it is closed; the system unlocks it when the process ends.

    Args:
        output: The file that the run writes.
        restart: True to throw away what the database holds.

    Attributes:
        path: The file of the database.
        saved: The state that was saved last; None if the run has just begun.

    Raises:
        BatchError: Another process has locked it; or it is not the database of a run, or damaged.
        OSError: Its name belongs to something else, as a link.
        sqlite3.OperationalError: It cannot be written.
    """

    def __init__(self, output: Path, *, restart: bool = False) -> None:
        self.path = beside(output, ".run")
        self.saved: State | None = None
        self._output = output
        if restart:
            with suppress(*_DAMAGE):  # a file that is no database is nobody's
                self._locked().close()
            self._unlink()
        with self._judging(), ExitStack() as opened:
            self._connection = self._locked()
            opened.callback(self._connection.close)
            found = [sql for (sql,) in self._connection.execute("SELECT sql FROM sqlite_master ORDER BY rowid")]
            if found:
                if found != _TABLES:
                    raise self._foreign("it has other tables")
                self.saved = self._read()
            opened.pop_all()

    def close(self) -> None:
        """Close and unlock it; remove it if nothing was saved."""
        with closing(self._connection):
            if self.saved is None:
                self.remove()

    def remove(self) -> None:
        """Remove its files, and unlock it."""
        # A file that is open cannot be removed on Windows; elsewhere another run could lock it between the two steps.
        with closing(self._connection):
            if os.name == "posix":
                self._unlink()
        if os.name != "posix":
            self._unlink()

    def save(self, state: State) -> None:
        """Commit the state, and the lines that were added.

        Raises:
            BatchError: The database is damaged.
        """
        text = json.dumps(asdict(state)).encode()
        with self._judging():
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
        """Insert lines; they are committed at once if asked, and else with the state.

        Raises:
            BatchError: The database is damaged.
        """
        values = [(*line, _checksum(line)) for line in lines]
        with self._judging():
            self._connection.executemany("INSERT OR REPLACE INTO lines VALUES (?, ?, ?, ?, ?)", values)
            if commit:
                self._connection.commit()

    def chunks(self, behind: int = 0) -> Iterator[list[Line]]:
        """Yield the lines, some hundreds at a time, in the order of rows.

        Args:
            behind: The number of the row behind which to begin.

        Raises:
            BatchError: The database is damaged.
        """
        query = (
            "SELECT row, line, rejected, tokens, is_whole(checksum, row, line, rejected, tokens) FROM lines "
            "WHERE row > ? ORDER BY row LIMIT 500"
        )
        while True:
            with self._judging():
                found = self._connection.execute(query, (behind,)).fetchall()
            if not found:
                return
            for row, *_, whole in found:
                if not whole:
                    raise self._foreign(f"the line of row {row} has another checksum")
            behind = found[-1][0]
            yield [Line(row, line, bool(rejected), tokens) for row, line, rejected, tokens, _ in found]

    def drop(self, *, rejects: bool) -> None:
        """Remove the lines that are damaged.

        Args:
            rejects: True to remove those of rejected rows too.
        """
        with self._judging(), self._connection:
            self._connection.execute(
                "DELETE FROM lines WHERE NOT is_whole(checksum, row, line, rejected, tokens) OR rejected AND ?",
                (rejects,),
            )

    def _read(self) -> State:
        """Read the state."""
        found = self._connection.execute("SELECT state, checksum FROM run").fetchall()
        try:
            return _parsed(*found[0])
        except (IndexError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise self._foreign(str(error)) from error

    def _locked(self) -> sqlite3.Connection:
        """Open the file and lock it."""
        while True:
            before = self._status()
            with ExitStack() as opened:
                connection = sqlite3.connect(self.path, timeout=0, check_same_thread=False)
                opened.callback(connection.close)
                connection.text_factory = bytes  # a damaged text has no characters
                connection.create_function("is_whole", 5, _is_whole)
                failure: sqlite3.OperationalError | None = None
                try:
                    connection.execute("PRAGMA synchronous = FULL")
                    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
                    connection.execute("BEGIN EXCLUSIVE")
                    connection.rollback()  # it stays locked
                except sqlite3.OperationalError as error:
                    if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                        message = f"another run is writing {self._output}; wait for its end, or give another output"
                        raise BatchError(message) from error
                    failure = error
                # The run that had locked it may have removed the file between the two steps.
                after = self._status()
                if before is not None and after is not None and samestat(before, after):
                    if failure is not None:
                        raise failure
                    opened.pop_all()
                    return connection

    def _status(self) -> os.stat_result | None:
        """Check that no file of the database is somebody else's, and return the status of the first."""
        first = own_database_status(self.path)
        if first is not None and first.st_size == 1:  # SQLite would take it for an empty database
            raise sqlite3.DatabaseError("file is not a database")
        return first

    def _unlink(self) -> None:
        for ending in DATABASE_ENDINGS:
            beside(self.path, ending).unlink(missing_ok=True)

    @contextmanager
    def _judging(self) -> Generator[None]:
        """Tell errors of a file that holds something else, or is damaged, from those of writing."""
        try:
            yield
        except sqlite3.OperationalError:
            raise
        except _DAMAGE as error:
            raise self._foreign(str(error)) from error

    def _foreign(self, reason: str) -> BatchError:
        return BatchError(f"{self.path} is not the database of a run, or it is damaged ({reason}); {ANEW}")


def beside(path: Path, ending: str) -> Path:
    """Return the path with an ending added to its name."""
    return path.with_name(path.name + ending)


def _parsed(text: bytes, checksum: int) -> State:
    """Parse a state."""
    if crc32(text) != checksum:
        raise ValueError("its checksum is another one")
    found: dict[str, object] = {**json.loads(text)}
    rejects_to = found.pop("rejects_to")
    fresh: dict[str, object] = asdict(State())
    del fresh["rejects_to"]
    if [(name, type(found.get(name))) for name in found] != [(name, type(fresh[name])) for name in fresh]:
        raise ValueError("its state has other fields")
    return State(**cast("Any", found), rejects_to=cast("str | None", rejects_to))


def _is_whole(checksum: int, *line: object) -> bool:
    try:
        return _checksum(Line(*cast("Any", line))) == checksum
    except TypeError:  # damage may make a number of a text
        return False


def _checksum(line: Line) -> int:
    return crc32(b"%d %d %d " % (line.row, line.rejected, line.tokens), crc32(line.line))
