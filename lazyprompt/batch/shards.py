"""A file of rows in pieces that can be read each for itself, in any order and by any process."""

from __future__ import annotations

from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from lazyprompt.batch.row_files import row_of_line
from lazyprompt.batch.rows import read_rows
from lazyprompt.errors import BatchError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lazyprompt.batch.row import Numbered
    from lazyprompt.batch.rows import RowFile

# A shard is what is done again when the process that works on it is killed.
_ROWS = 5000
_BYTES = 1 << 23
# Where a shard begins is known in JSON Lines only; of other files each is read from the beginning.
_MOST_OTHERS = 64


class Shard(NamedTuple):
    """Some rows of a file that follow each other.

    Attributes:
        before: The number of the row before the first; 0 where there is none.
        last: The number of the last.
        lines: How many lines stand before it, in JSON Lines; else 0.
        offset: How many bytes stand before it, in JSON Lines; else 0.
    """

    before: int
    last: int
    lines: int = 0
    offset: int = 0


def shards_of(file: RowFile, *, start: int = 0, limit: int | None = None) -> Iterator[Shard]:
    """The shards of a file, in their order. JSON Lines are passed over for it, but not read as JSON.

    Args:
        file: The file.
        start: The number of the row behind which to begin.
        limit: The number of the last row that is wanted; None is all.

    Raises:
        BatchError: The file cannot be read.
        MissingExtraError: It is Parquet, and pyarrow is not installed.
    """
    # What is wrong with the whole file shows itself at its first row.
    next(read_rows(file), None)
    if file.kind == "jsonl":
        return _of_lines(file, start, limit)
    total = _count(file)
    return _of_numbers(start, total if limit is None else min(total, limit))


def rows_of_shard(file: RowFile, shard: Shard) -> Numbered:
    """The rows of a shard with their numbers, as of :func:`lazyprompt.batch.rows.read_rows`.

    Args:
        file: The file.
        shard: The shard.

    Raises:
        BatchError: The file cannot be read, or is not what it was when it was taken apart.
    """
    if file.kind == "jsonl":
        return _lines(file, shard)
    return islice(read_rows(file, start=shard.before), shard.last - shard.before)


def _of_lines(file: RowFile, start: int, limit: int | None) -> Iterator[Shard]:
    number = offset = 0
    begun = Shard(start, start)
    with file.path.open("rb") as data:
        for at, line in enumerate(data):
            if not line.isspace():
                if number == start:
                    begun = Shard(start, start, at, offset)
                if number == limit:
                    break
                number += 1
                full = number - begun.before > _ROWS or offset - begun.offset >= _BYTES
                if full and number - 1 > begun.before:
                    yield begun._replace(last=number - 1)
                    begun = Shard(number - 1, number - 1, at, offset)
            offset += len(line)
    if number > begun.before:
        yield begun._replace(last=number)


def _lines(file: RowFile, shard: Shard) -> Numbered:
    number = shard.before
    try:
        with file.path.open("rb") as data:
            data.seek(shard.offset)
            for at, line in enumerate(data, shard.lines + 1):
                if number == shard.last:
                    return
                if not line.isspace():
                    number += 1
                    yield number, row_of_line(line, number, at)
    except OSError as error:
        raise BatchError(f"{file.path} cannot be read: {error.strerror or error}") from error
    if number < shard.last:
        raise BatchError(f"{file.path} ends with row {number:,}; it had {shard.last:,} when the run began")


def _of_numbers(start: int, total: int) -> Iterator[Shard]:
    step = max(_ROWS, -(-(total - start) // _MOST_OTHERS))
    return (Shard(before, min(before + step, total)) for before in range(start, total, step))


def _count(file: RowFile) -> int:
    """How many rows a file has."""
    if file.kind != "parquet":
        return sum(1 for _ in read_rows(file))
    # By its name, for it has no types; that it is there, the first row has shown.
    count: int = import_module("pyarrow.parquet").read_metadata(file.path).num_rows
    return count
