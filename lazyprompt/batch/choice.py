"""Which rows of a file are worked on: all, the first so many, a sample."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from lazyprompt.batch.row_files import row_of_line
from lazyprompt.batch.rows import read_rows
from lazyprompt.errors import BatchError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lazyprompt._base.json import JsonObject
    from lazyprompt.batch.row import Row
    from lazyprompt.batch.rows import RowFile
    from lazyprompt.prompters.rows import RowFault


@dataclass(frozen=True, slots=True)
class Choice:
    """Which rows of a file are worked on.

    Args:
        limit: Only the first so many; None is all.
        sample: Of these, so many at random; None is all.
        seed: What the choice at random depends on: the same seed and the same number of rows give the same rows.
    """

    limit: int | None = None
    sample: int | None = None
    seed: int = 0

    @property
    def asked(self) -> JsonObject:
        """What it is, by the names of the options."""
        sampled = self.sample is not None
        return {"--limit": self.limit, "--sample": self.sample, "--seed": self.seed if sampled else None}

    def rows(self, file: RowFile, start: int = 0) -> Iterator[tuple[int, Row | RowFault]]:
        """The rows, in their order.

        Args:
            file: The file. For a sample it is read twice: how many rows there are must be known first.
            start: The number of the row behind which to begin.

        Returns:
            Each row with its number.

        Raises:
            BatchError: As of :func:`lazyprompt.batch.rows.read_rows`.
        """
        return ((number, parsed(number, row)) for number, row in self.unread(file, start))

    def unread(self, file: RowFile, start: int = 0) -> Iterator[tuple[int, Row | RowFault | RawLine]]:
        """The same as :meth:`rows`, but lines of JSON stay as they are: reading them is work that can be shared."""
        if self.sample is None:
            yield from islice(_unread(file, start), None if self.limit is None else max(0, self.limit - start))
            return
        total = sum(1 for _ in islice(_unread(file), self.limit))
        chosen = (number for number in _drawn(total, self.sample, self.seed) if number > start)
        wanted = next(chosen, None)
        if wanted is None:
            return
        for number, row in _unread(file, start):
            if number == wanted:
                yield number, row
                wanted = next(chosen, None)
                if wanted is None:
                    return

    def size(self, count: int) -> int:
        """How many rows it chooses out of so many."""
        return min(each for each in (count, self.limit, self.sample) if each is not None)


class RawLine(NamedTuple):
    """A row of JSON Lines that has not been read.

    Attributes:
        at: The number of the line, from 1.
        data: The line.
    """

    at: int
    data: bytes


def parsed(number: int, row: Row | RowFault | RawLine) -> Row | RowFault:
    """A row, read if it has not been.

    Args:
        number: Its number.
        row: The row.
    """
    return row_of_line(row.data, number, row.at) if isinstance(row, RawLine) else row


def _unread(file: RowFile, start: int = 0) -> Iterator[tuple[int, Row | RowFault | RawLine]]:
    """The rows of a file; what is a line is left to be read."""
    if file.kind != "jsonl":
        yield from read_rows(file, start=start)
        return
    number = 0
    try:
        with file.path.open("rb") as data:
            for at, line in enumerate(data, 1):
                if not line.isspace():
                    number += 1
                    if number > start:
                        yield number, RawLine(at, line)
    except OSError as error:
        raise BatchError(f"{file.path} cannot be read: {error.strerror or error}") from error


def about_rows(file: RowFile) -> int | None:
    """About how many rows a file has, found fast: its lines are counted, not read.

    Args:
        file: The file.

    Returns:
        The number of its lines; None for Parquet, which has none.
    """
    if file.kind == "parquet":
        return None
    with file.path.open("rb") as data:
        lines = sum(block.count(b"\n") for block in iter(lambda: data.read(1 << 20), b""))
    return lines - (file.kind == "csv")


def _drawn(total: int, sample: int, seed: int) -> Iterator[int]:
    """Numbers at random, in their order and without keeping them.

    Each number is taken with the chance that as many are still wanted of as many as are left (Knuth's algorithm S).
    Python promises that a seed gives the same numbers in all its versions.
    """
    random = Random(seed).random  # noqa: S311 - a sample keeps no secret
    wanted = min(sample, total)
    for number in range(1, total + 1):
        if not wanted:
            return
        if random() * (total - number + 1) < wanted:
            wanted -= 1
            yield number
