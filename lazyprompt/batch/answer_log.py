"""The answers that have come, in the order in which they came: what was paid for is on the disk before all else."""

from __future__ import annotations

import asyncio
import json
import os
from array import array
from bisect import bisect_left
from contextlib import ExitStack
from io import FileIO
from typing import TYPE_CHECKING, NamedTuple, Self, cast

from lazyprompt._base.files import open_own
from lazyprompt.batch.state import ANEW, BatchStoppedError, check_fields
from lazyprompt.errors import BatchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

    from lazyprompt._base.json import Json, JsonObject

# The fields of lines, with the types of their values.
_ANSWER: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "thinking": (str,),
    "tool_calls": (list,),
    "usage": (dict, type(None)),
    "finish": (str, type(None)),
    "model": (str,),
}
_LINE: dict[str, tuple[type, ...]] = {"row": (int,), "custom_id": (str,), **_ANSWER}
_REJECT: dict[str, tuple[type, ...]] = {"row": (int,), "line": (int, type(None)), "reason": (str,), "data": ()}
_LONGEST = 268_435_456


class Entry(NamedTuple):
    """What came of a row.

    Attributes:
        row: Its number.
        line: Its line, for the output or for the rejects.
        rejected: Whether it is for the rejects.
        tokens: How many tokens it took.
    """

    row: int
    line: bytes
    rejected: bool
    tokens: int


class AnswerLog:
    """A file of lines that only grows: one for each row of which something came, whenever it came.

    Where each line is takes eight bytes a row. A line that was cut short, as by a full disk, is thrown away.

    Args:
        path: The file; one that is there is gone on with.
        rows: The numbers of the rows that are asked, in their order; read only if the file has lines.
        keeps_rejects: Whether rows that were rejected stay so; else they count as not asked.

    Attributes:
        answered: How many rows have an answer.
        rejected: How many are rejected.
        tokens: How many tokens all of them took.

    Raises:
        BatchError: A line of the file is not what came of one of the rows.
        BatchStoppedError: The file cannot be read or written.
    """

    def __init__(self, path: Path, rows: Iterable[int], *, keeps_rejects: bool) -> None:
        self.path = path
        self.answered = self.rejected = self.tokens = 0
        self._keeps_rejects = keeps_rejects
        # Of each row, where its line begins, and one more; less than nothing for rejects, nothing for no line.
        self._places = array("q", (0,))
        self._syncing = asyncio.Lock()
        try:
            # Without a buffer: what could not be written is not tried again when the file is closed.
            self._file = FileIO(open_own(path), "r+b")
            with ExitStack() as opened:
                opened.callback(self._file.close)
                self._end = self._synced = self._read(rows)
                self._file.truncate(self._end)
                self._file.seek(self._end)
                opened.pop_all()
        except OSError as error:
            raise self._stopped(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()

    def __contains__(self, row: int) -> bool:
        """Whether something came of a row."""
        return row < len(self._places) and self._places[row] != 0

    async def add(self, entry: Entry) -> None:
        """Write what came of a row; an answer is on the disk when this is over.

        Answers that come while others are on their way there go together.

        Args:
            entry: What came.

        Raises:
            BatchStoppedError: The file cannot be written.
        """
        try:
            left = memoryview(entry.line)
            while left:
                left = left[self._file.write(left) :]
            self._note(entry, self._end)
            self._end += len(entry.line)
            # What a row lacks costs nothing, and comes out again.
            if not entry.rejected or entry.tokens:
                await self._sync(self._end)
        except OSError as error:
            # A part of a line must not stand before the next one: others may be on their way here.
            self._file.truncate(self._end)
            self._file.seek(self._end)
            raise self._stopped(error) from error

    def entries(self, behind: int) -> Iterator[Entry]:
        """What came, in the order of rows.

        Args:
            behind: The number of the row behind which to begin.

        Raises:
            BatchStoppedError: A line is no longer what it was.
        """
        with self.path.open("rb") as file:
            for row in range(behind + 1, len(self._places)):
                if place := self._places[row]:
                    file.seek(abs(place) - 1)
                    try:
                        entry = _entry(file.readline())
                    except BatchError:
                        entry = None
                    if entry is None or entry.row != row:
                        raise BatchStoppedError(f"{self.path}: the answer of row {row:,} was changed by somebody else")
                    yield entry

    def remove(self) -> None:
        """Remove the file; all that is in it is elsewhere."""
        self._file.close()
        self.path.unlink()

    async def _sync(self, end: int) -> None:
        """Have all up to a place on the disk."""
        async with self._syncing:
            if self._synced < end:
                reached = self._end
                await asyncio.to_thread(os.fsync, self._file.fileno())
                self._synced = reached

    def _read(self, rows: Iterable[int]) -> int:
        """Find all lines; where the last whole one ends is where to go on."""
        end = 0
        if not os.fstat(self._file.fileno()).st_size:
            return end
        asked = array("q", rows)
        with self.path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(_LONGEST), b""), 1):
                if not line.endswith(b"\n") and len(line) < _LONGEST:
                    break
                # Zeros are what a file system leaves in the place of blocks that were lost with the power.
                if b"\0" not in line:
                    try:
                        entry = _entry(line, asked)
                    except BatchError as error:
                        told = f"{self.path}:{number}: not an answer of this run: {error}"
                        raise BatchError(f"{told}; remove the line to ask its row again, or {ANEW}") from error
                    if self._keeps_rejects or not entry.rejected:
                        self._note(entry, end)
                end += len(line)
        return end

    def _note(self, entry: Entry, place: int) -> None:
        """Remember a line; a later one of the same row counts in its place."""
        if entry.row >= len(self._places):
            self._places.extend([0] * (entry.row + 1 - len(self._places)))
        before = self._places[entry.row]
        self.answered += (not entry.rejected) - (before > 0)
        self.rejected += entry.rejected - (before < 0)
        self.tokens += entry.tokens
        self._places[entry.row] = -place - 1 if entry.rejected else place + 1

    def _stopped(self, error: OSError) -> BatchStoppedError:
        return BatchStoppedError(f"{self.path} cannot be written: {error.strerror or error}")


def tokens_of(usage: Mapping[str, int] | None) -> int:
    """How many tokens a provider has counted; 0 where it does not tell."""
    return (usage or {}).get("total_tokens") or 0


def _entry(line: bytes, rows: array[int] | None = None) -> Entry:
    """Parse a line.

    Args:
        line: The line.
        rows: The numbers of the rows that are asked, in their order; None for any.

    Raises:
        BatchError: It is not what came of such a row.
    """
    try:
        found: Json = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BatchError(f"not JSON: {error}") from error
    if not isinstance(found, dict):
        raise BatchError("not an object")
    rejected = "reason" in found
    answer = found.pop("answer", None) if rejected else found
    check_fields(found, _REJECT if rejected else _LINE)
    usage: Json = None
    if answer is not None:
        check_fields(answer, _ANSWER if rejected else _LINE)
        usage = cast("JsonObject", answer)["usage"]
        if usage is not None:
            check_fields(usage, dict.fromkeys(cast("JsonObject", usage), (int,)))
    row = cast("int", found["row"])
    if rows is not None and row not in rows[(at := bisect_left(rows, row)) : at + 1]:
        raise BatchError(f"there is no row {row:,} in this run")
    return Entry(row, line, rejected, tokens_of(cast("dict[str, int] | None", usage)))
