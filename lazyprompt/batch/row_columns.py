"""The columns of a file of rows, checked before its first row: a column that is missing is missing in every row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyprompt.batch.rows import parsed
from lazyprompt.errors import BatchError
from lazyprompt.prompters.rows import RowFault

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lazyprompt.batch.cells import Cells
    from lazyprompt.batch.rows import Unread


def check_columns(rows: Iterable[Unread], cells: Cells) -> None:
    """Check that the rows have the columns that a prompt needs.

    Rows are read until all of these columns were found: in most files, that is the first row.

    Args:
        rows: The rows.
        cells: The columns of a row's parts.

    Raises:
        BatchError: No row has one of the columns; or no column becomes the user's text, and some are not used.
    """
    found: dict[str, object] = {}
    fault: str | None = None
    for unread in rows:
        row = parsed(unread)
        if isinstance(row, RowFault) or (found and row.keys() <= found.keys()):
            continue
        found.update(row)
        fault = cells.missing_in(found)
        if fault is None:
            return
    if fault is not None:
        raise BatchError(fault, setting="columns")
