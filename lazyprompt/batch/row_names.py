"""The names of rows, which must differ: an answer is found again by the name of its row."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Final

from lazyprompt.batch.rows import parsed
from lazyprompt.errors import BatchError, LazyPromptError
from lazyprompt.prompters.rows import RowFault

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lazyprompt.batch.cells import Cells
    from lazyprompt.batch.rows import Unread

# Another row's default name: that of a row that has no name of its own.
_TAKEN: Final = """
    SELECT number, name FROM names WHERE name GLOB 'row-[1-9]*'
    AND CAST(substr(name, 5) AS INTEGER) <= ? AND name = 'row-' || CAST(substr(name, 5) AS INTEGER)
    AND NOT EXISTS (SELECT 1 FROM names AS other WHERE other.number = CAST(substr(names.name, 5) AS INTEGER)) LIMIT 1
"""


def default_name(number: int) -> str:
    """Return the name of a row that has no name of its own.

    Args:
        number: The number of the row, from 1.
    """
    return f"row-{number}"


def check_names(rows: Iterable[Unread], cells: Cells) -> None:
    """Check that no two rows have the same name; names are kept on disk, not in memory.

    Args:
        rows: The rows.
        cells: The columns of a row.

    Raises:
        BatchError: Two rows have the same name; a row's own name may be the default name of another row.
    """
    last = 0

    def named() -> Iterator[tuple[int, str]]:
        nonlocal last
        for number, at, unread in rows:
            last = number
            if isinstance(unread, bytes) and mark not in unread and b"\\" not in unread:
                continue  # it need not be parsed to see that it has no name
            row = parsed(number, at, unread)
            if isinstance(row, RowFault):
                continue
            try:
                name = cells.name_of(row)
            except LazyPromptError:
                continue  # reported as the fault of its row
            if name is not None:
                yield number, name.encode(errors="backslashreplace").decode()

    mark = json.dumps(cells.id, ensure_ascii=False).encode()
    # A temporary database without a name, which SQLite keeps on disk as far as it is large.
    with closing(sqlite3.connect("")) as database:
        database.execute("CREATE TABLE names (number INTEGER PRIMARY KEY, name TEXT UNIQUE)")
        for number, name in named():
            try:
                database.execute("INSERT INTO names VALUES (?, ?)", (number, name))
            except sqlite3.IntegrityError:
                (first,) = database.execute("SELECT number FROM names WHERE name = ?", (name,)).fetchone()
                raise BatchError(f"the rows {first:,} and {number:,} have the same {cells.id}: {name!r}") from None
        if found := database.execute(_TAKEN, (last,)).fetchone():
            number, name = found
            raise BatchError(
                f"row {number:,} has the {cells.id} {name!r}, which row {name[4:]} has by its number; give that row an "
                f"{cells.id} too, or row {number:,} another one"
            )
