"""Rows, and the faults of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Row: TypeAlias = "Mapping[str, object]"
Kind: TypeAlias = Literal["jsonl", "csv", "parquet"]
Numbered: TypeAlias = "Iterator[tuple[int, Row | RowFault]]"

# The most characters of a row that are shown in a fault.
_SHOWN = 2000


class RowFault(NamedTuple):
    """A row of a file that cannot be read, or a row that has no prompt.

    Attributes:
        number: The number of the row, from 1.
        reason: What is wrong with it.
        line: The line of the file that it begins in, from 1; None where the file has no lines.
        text: The row as it is written, as far as it is at hand; long ones are cut.
    """

    number: int
    reason: str
    line: int | None = None
    text: str = ""


def shown(text: str) -> str:
    """Return the text of a row, cut if it is long."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text):,} characters)"
