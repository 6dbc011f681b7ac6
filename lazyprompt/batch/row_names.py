"""Row names, which must be unique because each response is matched to its row by name."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Final

from lazyprompt.batch.rows import parse_row
from lazyprompt.errors import BatchError, LazyPromptError
from lazyprompt.prompters.rows import RowFault

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lazyprompt.batch.cells import Cells
    from lazyprompt.batch.rows import RawRow

_DEFAULT: Final = re.compile(r"row-([1-9][0-9]{0,17})")


def default_name(number: int) -> str:
    """Return the default name for a row number, counted from 1."""
    return f"row-{number}"


class RowNames:
    """The names of the rows read so far; explicit names are stored on disk instead of in memory.

    Args:
        column: The column that contains the names, for error messages.
    """

    def __init__(self, column: str) -> None:
        self._column = column
        self._is_empty = True
        # An empty path creates a temporary database, which SQLite moves to disk when the data grows.
        self._database = sqlite3.connect("", check_same_thread=False)
        self._database.execute("CREATE TABLE names (number INTEGER PRIMARY KEY, name TEXT UNIQUE)")

    def close(self) -> None:
        """Delete all names."""
        self._database.close()

    def add(self, number: int, name: str | None) -> None:
        """Add the name of the next row.

        Args:
            number: The row's number.
            name: The row's explicit name; None for the default name.

        Raises:
            BatchError: Another row has the same explicit or default name.
        """
        if name is None:
            if not self._is_empty and (first := self._row_named(default_name(number))):
                raise self._clash(first, number, default_name(number))
            return
        name = name.encode(errors="backslashreplace").decode()
        if first := self._row_named(name):
            message = f"rows {first:,} and {number:,} have the same {self._column}: {name!r}"
            raise BatchError(message, setting="rows")
        default = _DEFAULT.fullmatch(name)
        if default and int(default[1]) < number and not self._has_name(int(default[1])):
            raise self._clash(number, int(default[1]), name)
        self._database.execute("INSERT INTO names VALUES (?, ?)", (number, name))
        self._is_empty = False

    def _row_named(self, name: str) -> int | None:
        found = self._database.execute("SELECT number FROM names WHERE name = ?", (name,)).fetchone()
        return None if found is None else int(found[0])

    def _has_name(self, number: int) -> bool:
        return bool(self._database.execute("SELECT 1 FROM names WHERE number = ?", (number,)).fetchone())

    def _clash(self, own: int, unnamed: int, name: str) -> BatchError:
        return BatchError(
            f"row {own:,} has the {self._column} {name!r}, which is the default for row {unnamed:,}; add an "
            f"{self._column} to row {unnamed:,}, or change the {self._column} in row {own:,}",
            setting="rows",
        )


def check_names(rows: Iterable[RawRow], cells: Cells) -> None:
    """Check that no two rows have the same name.

    Args:
        rows: The rows.
        cells: The column mapping, which includes the column for row names.

    Raises:
        BatchError: Two rows have the same name, or a row's explicit name is the default name of another row.
    """
    mark = json.dumps(cells.id, ensure_ascii=False).encode()
    with closing(RowNames(cells.id)) as names:
        for raw in rows:
            # If the raw bytes don't contain the name column, the row needs no parsing.
            if isinstance(raw.text, bytes) and mark not in raw.text and b"\\" not in raw.text:
                names.add(raw.number, None)
                continue
            row = parse_row(raw)
            if isinstance(row, RowFault):
                continue
            try:
                name = cells.name_of(row)
            except LazyPromptError:
                continue  # rendering the row reports this error
            names.add(raw.number, name)
