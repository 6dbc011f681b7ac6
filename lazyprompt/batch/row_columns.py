"""A check of a file's columns before rendering, because a missing column would make every row fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazyprompt.batch.rows import parse_row
from lazyprompt.errors import BatchError
from lazyprompt.prompters.rows import RowFault

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lazyprompt.batch.cells import Cells
    from lazyprompt.batch.rows import RawRow


def check_columns(rows: Iterable[RawRow], cells: Cells) -> None:
    """Check that the rows have all columns that a prompt needs.

    Rows are read until all needed columns are found; in most files, the first row is enough.

    Args:
        rows: The rows.
        cells: The mapping from slots, history and other row data to columns.

    Raises:
        BatchError: A needed column is missing from every row, or no column provides the user's text although some
            columns are unused.
    """
    found: dict[str, object] = {}
    fault: str | None = None
    for raw in rows:
        row = parse_row(raw)
        if isinstance(row, RowFault) or (found and row.keys() <= found.keys()):
            continue
        found.update(row)
        fault = cells.missing_in(found)
        if fault is None:
            return
    if fault is not None:
        raise BatchError(fault, setting="columns")
