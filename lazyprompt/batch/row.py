"""Rows: their types, and their text as a fault shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lazyprompt.prompters.rows import RowFault

Row: TypeAlias = "Mapping[str, object]"
Kind: TypeAlias = Literal["jsonl", "csv", "parquet"]
Numbered: TypeAlias = "Iterator[tuple[int, Row | RowFault]]"

# The most characters of a row that are shown in a fault.
_SHOWN = 2000


def shown(text: str) -> str:
    """Return the text of a row, cut if it is long."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text):,} characters)"
