"""The names of rows, which must differ: an answer is found again by the name of its row."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Final

from lazyprompt.batch.rows import parsed
from lazyprompt.errors import BatchError, LazyPromptError
from lazyprompt.prompters.rows import RowFault

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lazyprompt.batch.cells import Cells
    from lazyprompt.batch.rows import Unread

_DEFAULT: Final = re.compile(r"row-([1-9][0-9]{0,17})")


def default_name(number: int) -> str:
    """Return the name of a row that has no name of its own.

    Args:
        number: The number of the row, from 1.
    """
    return f"row-{number}"


class RowNames:
    """The names of the rows so far; those of rows with a name of their own are kept on disk, not in memory.

    Args:
        column: The column of the name, for messages.
    """

    def __init__(self, column: str) -> None:
        self._column = column
        self._is_empty = True
        # A temporary database without a name, which SQLite keeps on disk as far as it is large.
        self._database = sqlite3.connect("", check_same_thread=False)
        self._database.execute("CREATE TABLE names (number INTEGER PRIMARY KEY, name TEXT UNIQUE)")

    def close(self) -> None:
        """Remove the names."""
        self._database.close()

    def add(self, number: int, name: str | None) -> None:
        """Add the name of the next row.

        Args:
            number: The number of the row.
            name: Its own name; None if it has none.

        Raises:
            BatchError: Another row has the same name, its own one or by its number.
        """
        if name is None:
            if not self._is_empty and (first := self._row_named(default_name(number))):
                raise self._clash(first, number, default_name(number))
            return
        name = name.encode(errors="backslashreplace").decode()
        if first := self._row_named(name):
            message = f"the rows {first:,} and {number:,} have the same {self._column}: {name!r}"
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
            f"row {own:,} has the {self._column} {name!r}, which row {unnamed:,} has by its number; give that row an "
            f"{self._column} too, or row {own:,} another one",
            setting="rows",
        )


def check_names(rows: Iterable[Unread], cells: Cells) -> None:
    """Check that no two rows have the same name.

    Args:
        rows: The rows.
        cells: The columns of a row.

    Raises:
        BatchError: Two rows have the same name; a row's own name may be the default name of another row.
    """
    mark = json.dumps(cells.id, ensure_ascii=False).encode()
    with closing(RowNames(cells.id)) as names:
        for unread in rows:
            # Most JSON need not be parsed to see that it has no name.
            if isinstance(unread.text, bytes) and mark not in unread.text and b"\\" not in unread.text:
                names.add(unread.number, None)
                continue
            row = parsed(unread)
            if isinstance(row, RowFault):
                continue
            try:
                name = cells.name_of(row)
            except LazyPromptError:
                continue  # reported as the fault of its row
            names.add(unread.number, name)
