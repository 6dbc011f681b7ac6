"""Files of rows: JSON Lines, CSV and Parquet, read in constant memory, and arrays of JSON, read as a whole.

Sources of the rules: JSON is RFC 8259, one object a line, as jsonlines.org has it; CSV is RFC 4180 with a header line,
in UTF-8.
"""

from __future__ import annotations

import csv
import json
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from itertools import count, islice
from json import JSONDecodeError, JSONDecoder
from pathlib import Path
from random import Random
from threading import Lock
from typing import IO, Any, AnyStr, Literal, NamedTuple, NoReturn, Self, TypeAlias, cast, get_args

from lazyprompt._base.files import open_regular
from lazyprompt._base.json import JsonObject, is_well_formed
from lazyprompt.errors import BatchError, did_you_mean, import_extra
from lazyprompt.prompters.rows import RowFault

Row: TypeAlias = Mapping[str, object]
Kind: TypeAlias = Literal["jsonl", "json", "csv", "parquet"]
Numbered: TypeAlias = Iterator[tuple[int, Row | RowFault]]
# Rows of Parquet become Python's so many at a time.
_STEP = 1000
# A record of CSV: its fields, or the reason why it has none; its first and last line, and their text.
_Record: TypeAlias = "tuple[list[str] | csv.Error, tuple[int, int], str]"
_BOM = b"\xef\xbb\xbf"
# Python's reader of CSV refuses fields beyond 128 KiB, which documents are, by a setting that all of a process share.
_LONGEST_FIELD = 1 << 30
_FIELD_LIMIT = Lock()
_A_ROW = 'a row is a JSON object, as {"question": "..."}'
MAX_ARRAY = 1 << 30
"""The largest file that is an array of JSON, in bytes."""

MAX_LINE = 1 << 26
"""The longest line of a file of rows: bytes of JSON Lines, characters of CSV."""

MAX_RECORD = 1 << 24
"""The longest record of CSV that has several lines, in characters: a quote that is open for longer is not closed."""


class Unread(NamedTuple):
    """A row of a file, as far as reading one row after another needs it: other processes can do the rest.

    Attributes:
        number: Its number, from 1.
        row: The row; None for JSON that is not parsed yet.
        lines: Its first and last line, from 1; None where rows are not lines.
        text: The row as the file contains it; None if the file is not text.
    """

    number: int
    row: Row | RowFault | None
    lines: tuple[int, int] | None = None
    text: str | bytes | None = None

    @property
    def shown_text(self) -> str | None:
        """The row as the file contains it, without the end of its line."""
        text = self.text.decode(errors="surrogateescape") if isinstance(self.text, bytes) else self.text
        return None if text is None else text.rstrip("\r\n")

    def fault(self, reason: str) -> RowFault:
        """Return the row as one that cannot be read."""
        where = f"line {self.lines[0]}: " if self.lines else ""
        return RowFault(self.number, f"{where}{reason}", self.lines, self.shown_text)


class RowFile(NamedTuple):
    """A file of rows.

    Attributes:
        path: Its path.
        kind: ``jsonl``, ``csv`` or ``parquet``.
        resolved: The path of which no link is followed; None follows those of its path.
    """

    path: Path
    kind: Kind
    resolved: Path | None = None


def row_file(path: str | os.PathLike[str], kind: Kind | None = None, resolved: Path | None = None) -> RowFile:
    """Return a file of rows, its kind known by its name.

    The endings are ``.jsonl`` (``.ndjson``), ``.json``, ``.csv`` and ``.parquet`` (``.pq``).

    Args:
        path: Its path.
        kind: Its kind, whatever its name is.
        resolved: The path that was checked, if it is to be read through no link.

    Raises:
        BatchError: The name has another ending, or there is no such kind.
    """
    found = Path(path)
    if kind is None:
        kind = _ENDINGS.get(found.suffix.lower())
        if kind is None:
            near = did_you_mean(found.suffix.lower(), _ENDINGS)
            raise BatchError(f"{found} ends in {found.suffix!r}{near}; rows are read from {', '.join(_ENDINGS)}")
    elif kind not in get_args(Kind):
        raise BatchError(f"{found}: there is no kind {kind!r} of files; known are {', '.join(get_args(Kind))}")
    return RowFile(found, kind, resolved)


def _opened(file: RowFile) -> int:
    """Return the descriptor of a file of rows."""
    if file.resolved is None:
        return open_regular(file.path)
    return open_regular(file.resolved, file.resolved.anchor)


def read_rows(path: str | os.PathLike[str] | RowFile, *, start: int = 0) -> Numbered:
    """Return the rows of a file with their numbers, from 1; a few are in memory at a time.

    Empty lines are no rows, and have no number.

    Args:
        path: The file.
        start: The number of rows to pass over; the first that comes has the number ``start + 1``.

    Returns:
        Each row with its number; a row that cannot be read as a :class:`RowFault`.

    Raises:
        BatchError: The file cannot be read at all: it is not there, or its header is wrong. That may show itself only
            when the first row is asked for.
        MissingExtraError: It is Parquet, and pyarrow is not installed.
    """
    if start < 0:
        raise BatchError(f"start is {start}; it is how many rows to pass over, from 0")
    found = path if isinstance(path, RowFile) else row_file(path)
    if not found.path.is_file():
        what = "is not a regular file" if found.path.exists() else "is not there"
        raise BatchError(f"{found.path} {what}; rows are read from a file")
    return ((unread.number, parsed(unread)) for unread in _unread(found, start))


def fingerprint(path: str | os.PathLike[str] | RowFile) -> str:
    """Return the hash of the content of a file, as ``sha256:...``.

    Args:
        path: The file. It is read as a whole, at more than a gigabyte a second.

    Raises:
        BatchError: It cannot be read.
    """
    import hashlib  # noqa: PLC0415 - only work that can be resumed needs it

    found = path.path if isinstance(path, RowFile) else Path(path)
    try:
        with os.fdopen(open_regular(found), "rb") as file:
            return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    except OSError as error:
        raise _unreadable(found, error) from error


def about_rows(file: RowFile) -> int | None:
    """Return about how many rows a file has, found fast: its lines are counted, not read.

    Args:
        file: The file.

    Returns:
        The number of its lines; None for Parquet and for an array of JSON, whose rows are no lines.
    """
    if file.kind in ("parquet", "json"):
        return None
    with file.path.open("rb") as data:
        lines = sum(block.count(b"\n") for block in iter(lambda: data.read(1 << 20), b""))
    return lines - (file.kind == "csv")


@dataclass(frozen=True, slots=True)
class Choice:
    """The rows of a file that are worked on.

    Args:
        limit: Only so many of the first; None is all.
        sample: So many of these at random; None is all.
        seed: The seed of the sample: the same seed and the same number of rows give the same rows.
    """

    limit: int | None = None
    sample: int | None = None
    seed: int = 0

    @property
    def asked(self) -> JsonObject:
        """The choice, by the names of the options."""
        sampled = self.sample is not None
        return {"--limit": self.limit, "--sample": self.sample, "--seed": self.seed if sampled else None}

    def rows(self, file: RowFile, start: int = 0) -> Numbered:
        """Return the rows, in their order, each with its number.

        Args:
            file: The file. For a sample it is read twice: the number of its rows must be known first.
            start: The number of the row behind which to begin.

        Raises:
            BatchError: As of :func:`read_rows`.
        """
        return ((unread.number, parsed(unread)) for unread in self.unread(file, start))

    def unread(self, file: RowFile, start: int = 0) -> Iterator[Unread]:
        """Return the rows as :meth:`rows` does, but lines of JSON as bytes: reading them is work that can be shared."""
        rows = _unread(file, start)
        if self.sample is None:
            yield from islice(rows, None if self.limit is None else max(0, self.limit - start))
            return
        total = sum(1 for _ in islice(_unread(file), self.limit))
        for chosen in _drawn(total, self.sample, self.seed):
            if chosen > start:
                yield from islice((row for row in rows if row.number == chosen), 1)

    def size(self, count: int) -> int:
        """Return the number of rows that it chooses out of so many."""
        return min(each for each in (count, self.limit, self.sample) if each is not None)


def _drawn(total: int, sample: int, seed: int) -> Iterator[int]:
    """Yield numbers at random, in their order and without keeping them.

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


def _unread(file: RowFile, start: int = 0) -> Iterator[Unread]:
    """Yield the rows of a file behind so many."""
    try:
        yield from _READERS[file.kind](file, start)
    except OSError as error:
        raise _unreadable(file.path, error) from error
    except BatchError as error:
        error.setting = "rows"
        raise


def _unreadable(path: Path, error: Exception) -> BatchError:
    # pyarrow's messages have several lines.
    reason = " ".join(str(getattr(error, "strerror", None) or error).split())
    return BatchError(f"{path} cannot be read: {reason}", setting="rows")


class _NoRowError(Exception):
    """A line is no row; the message says why."""


def _refuse_constant(name: str) -> NoReturn:
    raise _NoRowError(f"{name} is no JSON; write null, or a string")


_decode = JSONDecoder(parse_constant=_refuse_constant).decode
# The values that orjson reads as Python's json does. It makes a float of an integer beyond 64 bits without a word.
_ALIKE = frozenset({str, int, bool, type(None)})


def _quick_reader() -> Callable[[bytes], Any]:
    try:
        reader: Callable[[bytes], Any] = import_module("orjson").loads
    except ImportError:
        return lambda _: None
    return reader


_quick = _quick_reader()


def _read_jsonl(file: RowFile, start: int) -> Iterator[Unread]:
    number = 0
    with os.fdopen(_opened(file), "rb") as data:
        for at, line in enumerate(_lines(file.path, data), 1):
            if not line.isspace():
                number += 1
                if number > start:
                    yield Unread(number, None, (at, at), line)


def _read_array(file: RowFile, start: int) -> Iterator[Unread]:
    with os.fdopen(_opened(file), "rb") as data:
        text = data.read(MAX_ARRAY + 1)
    if len(text) > MAX_ARRAY:
        raise BatchError(f"{file.path} is larger than {MAX_ARRAY:,} bytes, and is read whole; make it JSON Lines")
    try:
        rows = cast("object", _decode(text.removeprefix(_BOM).decode()))
    except (ValueError, RecursionError, _NoRowError) as error:
        raise BatchError(f"{file.path} is no JSON: {error}") from error
    if not isinstance(rows, list):
        raise BatchError(f"{file.path} is a {type(rows).__name__}; rows are an array of objects, or JSON Lines")
    for number, row in enumerate(cast("list[object]", rows), 1):
        if number > start:
            yield Unread(number, cast("Row", row) if isinstance(row, dict) else _no_row(row, number))


def _no_row(item: object, number: int) -> RowFault:
    reason = f"item {number}: it is a {type(item).__name__}; {_A_ROW}"
    return RowFault(number, reason, text=json.dumps(item, ensure_ascii=False))


def _lines(path: Path, file: IO[AnyStr]) -> Iterator[AnyStr]:
    """Yield the lines of a file.

    Raises:
        BatchError: A line is longer than ``MAX_LINE``. The rest of the file is not read.
    """
    for at in count(1):
        line = file.readline(MAX_LINE + 1)
        if not line:
            return
        if len(line) > MAX_LINE:
            raise BatchError(f"{path}:{at}: the line is longer than {MAX_LINE:,}; is it a file of rows?")
        yield line


def parsed(unread: Unread) -> Row | RowFault:
    """Return a row, parsed if it has not been."""
    text = unread.text
    if unread.row is not None or not isinstance(text, bytes):
        return unread.row or {}
    try:
        row: dict[str, object] = _quick(text)
        if type(row) is dict and _ALIKE.issuperset(map(type, row.values())):
            return row
    except ValueError:
        pass
    try:
        return _object(text.removeprefix(_BOM) if unread.lines == (1, 1) else text)
    except _NoRowError as error:
        return unread.fault(str(error))


def _object(line: bytes) -> Row:
    """Return the JSON object of a line.

    Raises:
        _NoRowError: It is none.
    """
    try:
        found = cast("object", _decode(line.decode().strip(" \t\r\n")))
    except UnicodeDecodeError as error:
        raise _NoRowError(f"it is no UTF-8: byte {line[error.start]:#04x} at index {error.start}") from error
    except JSONDecodeError as error:
        raise _NoRowError(f"it is no JSON: {error.msg} at column {error.colno}") from error
    except RecursionError as error:
        raise _NoRowError("it is nested too deeply") from error
    except ValueError as error:
        # All that is left is that Python reads no integer of so many digits.
        raise _NoRowError("it holds an integer of more than 4,300 digits") from error
    if not isinstance(found, dict):
        raise _NoRowError(f"it is a {type(found).__name__}; {_A_ROW}")
    return cast("Row", found)


def _read_csv(file: RowFile, start: int) -> Iterator[Unread]:
    # What is no UTF-8 becomes lone surrogates, by which its row is found.
    with os.fdopen(_opened(file), encoding="utf-8-sig", errors="surrogateescape", newline="") as data:
        records = _records(_Lines(_lines(file.path, data)))
        first = next(records, None)
        names = _checked_header(file.path, [] if first is None else first[0])
        for number, record in enumerate(records, 1):
            if number > start:
                yield _row_of_record(names, record, number)


class _Lines:
    """The lines of CSV, of which those of one record can be put back.

    Args:
        lines: The lines.

    Attributes:
        taken: The lines of the record that is read.
        before: The number of lines before that record.
    """

    def __init__(self, lines: Iterator[str]) -> None:
        self.taken: list[str] = []
        self.before = 0
        self._lines = lines
        self._ahead: deque[str] = deque()
        self._size = 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        line = self._ahead.popleft() if self._ahead else next(self._lines)
        self.taken.append(line)
        self._size += len(line)
        if self._size > MAX_RECORD and len(self.taken) > 1:
            raise csv.Error(f"no end within {MAX_RECORD:,} characters")
        return line

    def put_back(self) -> None:
        """Put back all lines of the record but its first."""
        self._ahead.extendleft(reversed(self.taken[1:]))
        del self.taken[1:]

    def next_record(self) -> None:
        """Go on to the next record."""
        self.before += len(self.taken)
        self.taken.clear()
        self._size = 0


def _records(lines: _Lines) -> Iterator[_Record]:
    """Yield the records; an empty line is none.

    Of a record that is not valid, only the first line is rejected: a quote that is never closed would otherwise take
    all rows after it.
    """
    reader = csv.reader(lines, strict=True)
    while True:
        lines.next_record()
        found: list[str] | csv.Error | None
        with _FIELD_LIMIT:
            before = csv.field_size_limit(_LONGEST_FIELD)
            try:
                found = next(reader, None)
            except csv.Error as error:
                found = error
            finally:
                csv.field_size_limit(before)
        if found is None:
            return
        if isinstance(found, csv.Error) and len(lines.taken) > 1:
            found = csv.Error(f"a quote that opens here is not closed ({found}, {len(lines.taken) - 1} lines later)")
            lines.put_back()
        if found:
            place = (lines.before + 1, lines.before + len(lines.taken))
            yield found, place, "".join(lines.taken)


def _checked_header(path: Path, header: list[str] | csv.Error) -> list[str]:
    if isinstance(header, csv.Error):
        raise BatchError(f"{path}:1: the header cannot be read: {header}")
    if not header:
        raise BatchError(f"{path} is empty; its first line is to hold the names of the columns")
    for at, name in enumerate(header):
        # A column without a name is passed over: pandas writes the number of the row there.
        if name and name in header[:at]:
            what = f"is named {name!r} as another is"
            raise BatchError(f"{path}:1: column {at + 1} {what}; the first line names each column once")
    if not any(header):
        raise BatchError(f"{path}:1: no column has a name; the first line names each column once")
    if not is_well_formed("".join(header)):
        raise BatchError(f"{path}:1: the header is no UTF-8; save the file as UTF-8")
    return header


def _row_of_record(names: list[str], record: _Record, number: int) -> Unread:
    fields, lines, text = record
    if isinstance(fields, csv.Error):
        fault = f"not valid CSV: {fields}"
    elif len(fields) != len(names):
        fault = f"it has {len(fields)} fields, and the header names {len(names)}"
    elif not is_well_formed("".join(fields)):
        fault = "it is no UTF-8"
    else:
        row = {name: value for name, value in zip(names, fields, strict=True) if name}
        return Unread(number, row, lines, text)
    unread = Unread(number, None, lines, text)
    return unread._replace(row=unread.fault(fault))


def _read_parquet(file: RowFile, start: int) -> Iterator[Unread]:
    library = arrow()
    try:
        parquet = import_module("pyarrow.parquet").ParquetFile
        with os.fdopen(_opened(file), "rb") as data, parquet(data, page_checksum_verification=True) as table:
            names: list[str] = table.schema_arrow.names
            if twice := [name for at, name in enumerate(names) if name in names[:at]]:
                raise BatchError(f"{file.path} has two columns named {twice[0]!r}; name each column once")
            sizes = [table.metadata.row_group(at).num_rows for at in range(table.num_row_groups)]
            number, groups = groups_from(sizes, start)
            for batch in table.iter_batches(_STEP, groups):
                passed = min(start - number, len(batch)) if number < start else 0
                number += passed
                for row in _rows_of_batch(batch.slice(passed)):
                    number += 1
                    yield Unread(number, RowFault(number, row) if isinstance(row, str) else row)
            if number < sum(sizes):
                raise BatchError(f"{file.path} has {number:,} of the {sum(sizes):,} rows that it names; is it damaged?")
    except library.ArrowException as error:
        raise _unreadable(file.path, error) from error


def _rows_of_batch(batch: Any) -> Iterator[Row | str]:  # noqa: ANN401 - pyarrow has no types
    """Yield the rows of a record batch; for a row with a value that Python can't contain, the reason."""
    try:
        rows = batch.to_pylist()
    except (ValueError, OverflowError) as error:
        if len(batch) == 1:
            yield f"a value cannot be read: {error}"
            return
        for at in range(len(batch)):
            yield from _rows_of_batch(batch.slice(at, 1))
    else:
        yield from rows


def groups_from(sizes: list[int], start: int) -> tuple[int, list[int]]:
    """Return the groups of rows that are still to be read, and the number of rows of the others."""
    passed = 0
    for at, size in enumerate(sizes):
        if passed + size > start:
            return passed, list(range(at, len(sizes)))
        passed += size
    return passed, []


def arrow() -> Any:  # noqa: ANN401 - a module that may not be there
    """Return the package pyarrow.

    Raises:
        MissingExtraError: It is not installed.
    """
    return import_extra("pyarrow", "pyarrow", "batch")


_READERS: dict[Kind, Callable[[RowFile, int], Iterator[Unread]]] = {
    "jsonl": _read_jsonl,
    "json": _read_array,
    "csv": _read_csv,
    "parquet": _read_parquet,
}
_ENDINGS: dict[str, Kind] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}
