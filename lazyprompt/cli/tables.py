"""Tables of text with aligned columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


def table(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Align the cells of rows as a terminal shows them, where a Chinese character takes two places.

    Args:
        rows: The rows, with the heading first.
        right: The columns to align to the right.

    Returns:
        A line for each row.
    """
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    lines: list[str] = []
    for row in rows:
        gaps = [" " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
        cells = [
            gap + cell if at in right else cell + gap for at, (cell, gap) in enumerate(zip(row, gaps, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
