"""Readers for files of rows, which read JSON Lines, CSV and Parquet in constant memory, and JSON arrays as a whole.

A JSON Lines file contains one JSON object per line (see RFC 8259 and jsonlines.org). A CSV file follows RFC 4180, in
UTF-8 with a header line.
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
from typing import IO, Any, AnyStr, Literal, NamedTuple, NoReturn, Self, TypeAlias, get_args

from lazyprompt._base.files import open_regular
from lazyprompt._base.json import Json, JsonObject, is_well_formed
from lazyprompt.errors import BatchError, did_you_mean, import_extra
from lazyprompt.prompters.rows import RowFault

Row: TypeAlias = Mapping[str, object]
Kind: TypeAlias = Literal["jsonl", "json", "csv", "parquet"]
NumberedRows: TypeAlias = Iterator[tuple[int, Row | RowFault]]
# The number of Parquet rows that are converted to Python objects at a time.
_STEP = 1000
# A CSV record: the fields or an error, the first and last line numbers, and the raw text.
_Record: TypeAlias = "tuple[list[str] | csv.Error, tuple[int, int], str]"
_BOM = b"\xef\xbb\xbf"
# The csv module's field size limit is process-wide, so a lock guards changes to the limit.
_LONGEST_FIELD = 1 << 30
_FIELD_LIMIT = Lock()
_A_ROW = 'expected a JSON object such as {"question": "..."}'
MAX_ARRAY = 1 << 30
"""The maximum size of a JSON array file, in bytes."""

MAX_LINE = 1 << 26
"""The maximum length of a line: in bytes for JSON Lines, in characters for CSV."""

MAX_RECORD = 1 << 24
"""The maximum length of a multi-line CSV record, in characters; a longer record indicates an unclosed quote."""


class RawRow(NamedTuple):
    """A row whose JSON may still be unparsed, so that several processes can share the parsing.

    Attributes:
        number: The row's number, from 1.
        row: The row; None for JSON that is not parsed yet.
        lines: The numbers of the row's first and last line, from 1; None if the file does not consist of lines.
        text: The row's raw text; None if the file is not text.
    """

    number: int
    row: Row | RowFault | None
    lines: tuple[int, int] | None = None
    text: str | bytes | None = None

    @property
    def stripped_text(self) -> str | None:
        """The row's raw text, without its newline."""
        text = self.text.decode(errors="surrogateescape") if isinstance(self.text, bytes) else self.text
        return None if text is None else text.rstrip("\r\n")

    def fault(self, reason: str) -> RowFault:
        """Return the fault for a row that cannot be read."""
        where = f"line {self.lines[0]}: " if self.lines else ""
        return RowFault(self.number, f"{where}{reason}", self.lines, self.stripped_text)


class RowFile(NamedTuple):
    """A file that contains the input rows of a batch job.

    Attributes:
        path: The file's path.
        kind: ``jsonl``, ``json``, ``csv`` or ``parquet``.
        resolved: A validated path that is opened without following symlinks; None to open ``path`` and follow symlinks.
    """

    path: Path
    kind: Kind
    resolved: Path | None = None


def row_file(path: str | os.PathLike[str], kind: Kind | None = None, resolved: Path | None = None) -> RowFile:
    """Return a file of rows; its extension determines its kind unless ``kind`` is set.

    The extensions are ``.jsonl`` (``.ndjson``), ``.json``, ``.csv`` and ``.parquet`` (``.pq``).

    Args:
        path: The file's path.
        kind: The kind of file; overrides the extension.
        resolved: A validated path that is opened without following symlinks; None to open ``path`` and follow symlinks.

    Raises:
        BatchError: The file's extension or the value of ``kind`` is unknown.
    """
    found = Path(path)
    if kind is None:
        kind = _ENDINGS.get(found.suffix.lower())
        if kind is None:
            near = did_you_mean(found.suffix.lower(), _ENDINGS)
            raise BatchError(
                f"{found}: unknown extension {found.suffix!r}{near}; expected one of {', '.join(_ENDINGS)}"
            )
    elif kind not in get_args(Kind):
        raise BatchError(f"{found}: unknown kind {kind!r}; expected one of {', '.join(get_args(Kind))}")
    return RowFile(found, kind, resolved)


def _open(file: RowFile) -> int:
    if file.resolved is None:
        return open_regular(file.path)
    return open_regular(file.resolved, file.resolved.anchor)


def read_rows(path: str | os.PathLike[str] | RowFile, *, start: int = 0) -> NumberedRows:
    """Read the rows of a file lazily, each with its number.

    Empty lines are not counted as rows.

    Args:
        path: The file, as a path or a :class:`RowFile`.
        start: The number of rows to skip; the first row returned has the number ``start + 1``.

    Returns:
        Each row with its number, from 1. A row that cannot be read is a :class:`RowFault`.

    Raises:
        BatchError: The file is missing or cannot be read, or its header is invalid. Some errors are raised
            only when the first row is read.
        MissingExtraError: The file is Parquet, and pyarrow is not installed.
    """
    if start < 0:
        raise BatchError(f"start must be the number of rows to skip, 0 or more, not {start}")
    found = path if isinstance(path, RowFile) else row_file(path)
    if not found.path.is_file():
        what = "is not a regular file" if found.path.exists() else "does not exist"
        raise BatchError(f"{found.path} {what}; expected a file of rows")
    return ((raw.number, parse_row(raw)) for raw in _read_raw(found, start))


def fingerprint(path: str | os.PathLike[str] | RowFile) -> str:
    """Return a hash of a file's content, as ``sha256:...``.

    Args:
        path: The file, as a path or a :class:`RowFile`. The whole file is read, at more than 1 GB per second.

    Raises:
        BatchError: The file cannot be read.
    """
    import hashlib  # noqa: PLC0415 - only resumable runs need it

    found = path.path if isinstance(path, RowFile) else Path(path)
    try:
        with os.fdopen(open_regular(found), "rb") as file:
            return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    except OSError as error:
        raise _unreadable(found, error) from error


def estimate_rows(file: RowFile) -> int | None:
    """Estimate the number of rows in a file by counting its lines.

    Args:
        file: The file.

    Returns:
        The number of lines, or None for Parquet and JSON arrays, whose rows are not lines.
    """
    if file.kind in ("parquet", "json"):
        return None
    with file.path.open("rb") as data:
        lines = sum(block.count(b"\n") for block in iter(lambda: data.read(1 << 20), b""))
    return lines - (file.kind == "csv")


@dataclass(frozen=True, slots=True)
class Choice:
    """A selection of rows from a file.

    Args:
        limit: The number of rows to take from the beginning; None for all rows.
        sample: The number of rows to choose at random from the first ``limit`` rows; None to choose all.
        seed: The random seed; the same seed and number of rows produce the same sample.
    """

    limit: int | None = None
    sample: int | None = None
    seed: int = 0

    @property
    def settings(self) -> JsonObject:
        """The settings that select rows, keyed by their command-line options."""
        sampled = self.sample is not None
        return {"--limit": self.limit, "--sample": self.sample, "--seed": self.seed if sampled else None}

    def rows(self, file: RowFile, start: int = 0) -> NumberedRows:
        """Return the selected rows in order, each with its number.

        Args:
            file: The file, which is read twice for a sample: once to count its rows, and once to choose from them.
            start: The number of the last row to skip.

        Raises:
            BatchError: The file cannot be read; see :func:`read_rows`.
        """
        return ((raw.number, parse_row(raw)) for raw in self.raw_rows(file, start))

    def raw_rows(self, file: RowFile, start: int = 0) -> Iterator[RawRow]:
        """Yield the selected rows, leaving JSON lines unparsed so that other processes can parse them."""
        rows = _read_raw(file, start)
        if self.sample is None:
            yield from islice(rows, None if self.limit is None else max(0, self.limit - start))
            return
        total = sum(1 for _ in islice(_read_raw(file), self.limit))
        for chosen in _draw_sample(total, self.sample, self.seed):
            if chosen > start:
                yield from islice((row for row in rows if row.number == chosen), 1)

    def size(self, count: int) -> int:
        """Return the number of rows that are selected from ``count`` rows."""
        return min(each for each in (count, self.limit, self.sample) if each is not None)


def _draw_sample(total: int, sample: int, seed: int) -> Iterator[int]:
    """Yield random row numbers in ascending order, in constant memory.

    Each row number is chosen with the probability (rows still needed) / (rows remaining), as in Knuth's Algorithm S.
    Python guarantees that a seed produces the same numbers in all versions.
    """
    random = Random(seed).random  # noqa: S311 - not used for security
    wanted = min(sample, total)
    for number in range(1, total + 1):
        if not wanted:
            return
        if random() * (total - number + 1) < wanted:
            wanted -= 1
            yield number


def _read_raw(file: RowFile, start: int = 0) -> Iterator[RawRow]:
    """Yield the rows after the first ``start`` rows of a file."""
    try:
        yield from _READERS[file.kind](file, start)
    except OSError as error:
        raise _unreadable(file.path, error) from error
    except BatchError as error:
        error.setting = "rows"
        raise


def _unreadable(path: Path, error: Exception) -> BatchError:
    # Join the lines of the error message, because pyarrow's error messages can span several lines.
    reason = " ".join(str(getattr(error, "strerror", None) or error).split())
    return BatchError(f"{path} cannot be read: {reason}", setting="rows")


class _InvalidRowError(Exception):
    """An error for a line that is not a valid row; the message states the reason."""


def _refuse_constant(name: str) -> NoReturn:
    raise _InvalidRowError(f"{name} is not valid JSON; write null or a string instead")


_decode: Callable[[str], Json] = JSONDecoder(parse_constant=_refuse_constant).decode
# Types that orjson and json decode alike; orjson decodes integers beyond 64 bits as floats, so float is excluded.
_ALIKE = frozenset({str, int, bool, type(None)})


def _quick_reader() -> Callable[[bytes], Any]:
    try:
        reader: Callable[[bytes], Any] = import_module("orjson").loads
    except ImportError:
        return lambda _: None
    return reader


_quick = _quick_reader()


def _read_jsonl(file: RowFile, start: int) -> Iterator[RawRow]:
    number = 0
    with os.fdopen(_open(file), "rb") as data:
        for at, line in enumerate(_lines(file.path, data), 1):
            if not line.isspace():
                number += 1
                if number > start:
                    yield RawRow(number, None, (at, at), line)


def _read_array(file: RowFile, start: int) -> Iterator[RawRow]:
    with os.fdopen(_open(file), "rb") as data:
        text = data.read(MAX_ARRAY + 1)
    if len(text) > MAX_ARRAY:
        raise BatchError(f"{file.path} exceeds {MAX_ARRAY:,} bytes, the limit for a JSON array; use JSON Lines")
    try:
        rows = _decode(text.removeprefix(_BOM).decode())
    except (ValueError, RecursionError, _InvalidRowError) as error:
        raise BatchError(f"{file.path} is not valid JSON: {error}") from error
    if not isinstance(rows, list):
        raise BatchError(f"{file.path} must contain a JSON array or JSON Lines, not {type(rows).__name__}")
    for number, row in enumerate(rows, 1):
        if number > start:
            yield RawRow(number, row if isinstance(row, dict) else _item_fault(row, number))


def _item_fault(item: Json, number: int) -> RowFault:
    reason = f"item {number} has type {type(item).__name__}; {_A_ROW}"
    return RowFault(number, reason, text=json.dumps(item, ensure_ascii=False))


def _lines(path: Path, file: IO[AnyStr]) -> Iterator[AnyStr]:
    """Yield the lines of a file.

    Raises:
        BatchError: A line is longer than ``MAX_LINE``; the rest of the file is not read.
    """
    for at in count(1):
        line = file.readline(MAX_LINE + 1)
        if not line:
            return
        if len(line) > MAX_LINE:
            raise BatchError(
                f"{path}:{at}: line exceeds {MAX_LINE:,} bytes (JSON Lines) or characters (CSV); check that each row "
                "is on a separate line"
            )
        yield line


def parse_row(raw: RawRow) -> Row | RowFault:
    """Return the parsed row, or a :class:`RowFault` if the row is invalid."""
    text = raw.text
    if raw.row is not None or not isinstance(text, bytes):
        return raw.row or {}
    try:
        row: dict[str, object] = _quick(text)
        if type(row) is dict and _ALIKE.issuperset(map(type, row.values())):
            return row
    except ValueError:
        pass
    try:
        return _parse_object(text.removeprefix(_BOM) if raw.lines == (1, 1) else text)
    except _InvalidRowError as error:
        return raw.fault(str(error))


def _parse_object(line: bytes) -> Row:
    """Parse a line that contains a JSON object.

    Raises:
        _InvalidRowError: The line is not a JSON object.
    """
    try:
        found = _decode(line.decode().strip(" \t\r\n"))
    except UnicodeDecodeError as error:
        raise _InvalidRowError(f"not valid UTF-8: byte {line[error.start]:#04x} at index {error.start}") from error
    except JSONDecodeError as error:
        raise _InvalidRowError(f"not valid JSON: {error.msg} at column {error.colno}") from error
    except RecursionError as error:
        raise _InvalidRowError("nested too deeply") from error
    except ValueError as error:
        # Invalid UTF-8 and JSON are handled above, so Python's limit on the digits of an integer was exceeded.
        raise _InvalidRowError("contains an integer with more than 4,300 digits") from error
    if not isinstance(found, dict):
        raise _InvalidRowError(f"the line contains a value of type {type(found).__name__}; {_A_ROW}")
    return found


def _read_csv(file: RowFile, start: int) -> Iterator[RawRow]:
    # The surrogateescape handler turns invalid UTF-8 into lone surrogates, so each row can be checked separately.
    with os.fdopen(_open(file), encoding="utf-8-sig", errors="surrogateescape", newline="") as data:
        records = _records(_Lines(_lines(file.path, data)))
        first = next(records, None)
        names = _checked_header(file.path, [] if first is None else first[0])
        for number, record in enumerate(records, 1):
            if number > start:
                yield _row_of_record(names, record, number)


class _Lines:
    """An iterator over CSV lines that can put back the lines of the current record.

    Args:
        lines: The lines.

    Attributes:
        taken: The lines in the current record.
        before: The number of lines before the current record.
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
            raise csv.Error(f"no closing quote within {MAX_RECORD:,} characters")
        return line

    def put_back(self) -> None:
        """Put back all lines of the current record except the first."""
        self._ahead.extendleft(reversed(self.taken[1:]))
        del self.taken[1:]

    def next_record(self) -> None:
        """Start the next record."""
        self.before += len(self.taken)
        self.taken.clear()
        self._size = 0


def _records(lines: _Lines) -> Iterator[_Record]:
    """Yield the CSV records, skipping empty lines.

    Only the first line of an invalid record is rejected; otherwise, an unclosed quote would invalidate all later rows.
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
        raise BatchError(f"{path} is empty; its first line must contain the column names")
    for at, name in enumerate(header):
        # Skip unnamed columns, because pandas writes its index as a column without a name.
        if name and name in header[:at]:
            what = f"has the same name as an earlier column, {name!r}"
            raise BatchError(f"{path}:1: column {at + 1} {what}; column names must be unique")
    if not any(header):
        raise BatchError(f"{path}:1: no column has a name; the first line must contain the column names")
    if not is_well_formed("".join(header)):
        raise BatchError(f"{path}:1: the header is not valid UTF-8; save the file as UTF-8")
    return header


def _row_of_record(names: list[str], record: _Record, number: int) -> RawRow:
    fields, lines, text = record
    if isinstance(fields, csv.Error):
        fault = f"not valid CSV: {fields}"
    elif len(fields) != len(names):
        fault = f"the row has {len(fields)} fields, but the header has {len(names)}"
    elif not is_well_formed("".join(fields)):
        fault = "not valid UTF-8"
    else:
        row = {name: value for name, value in zip(names, fields, strict=True) if name}
        return RawRow(number, row, lines, text)
    raw = RawRow(number, None, lines, text)
    return raw._replace(row=raw.fault(fault))


def _read_parquet(file: RowFile, start: int) -> Iterator[RawRow]:
    library = arrow()
    try:
        parquet = import_module("pyarrow.parquet").ParquetFile
        with os.fdopen(_open(file), "rb") as data, parquet(data, page_checksum_verification=True) as table:
            names: list[str] = table.schema_arrow.names
            if twice := [name for at, name in enumerate(names) if name in names[:at]]:
                raise BatchError(f"{file.path} has two columns named {twice[0]!r}; column names must be unique")
            sizes = [table.metadata.row_group(at).num_rows for at in range(table.num_row_groups)]
            number, groups = groups_from(sizes, start)
            for batch in table.iter_batches(_STEP, groups):
                passed = max(0, min(start - number, len(batch)))
                number += passed
                for row in _rows_of_batch(batch.slice(passed)):
                    number += 1
                    yield RawRow(number, RowFault(number, row) if isinstance(row, str) else row)
            if number < sum(sizes):
                raise BatchError(f"{file.path} may be damaged: it declares {sum(sizes):,} rows but contains {number:,}")
    except library.ArrowException as error:
        raise _unreadable(file.path, error) from error


def _rows_of_batch(batch: Any) -> Iterator[Row | str]:  # noqa: ANN401 - pyarrow has no types
    """Yield each row of a record batch, or the reason why the row cannot be converted to Python."""
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
    """Return the number of rows in the row groups to skip, and the indexes of the row groups to read."""
    passed = 0
    for at, size in enumerate(sizes):
        if passed + size > start:
            return passed, list(range(at, len(sizes)))
        passed += size
    return passed, []


def arrow() -> Any:  # noqa: ANN401 - an optional module
    """Import pyarrow.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """
    return import_extra("pyarrow", "pyarrow", "batch")


_READERS: dict[Kind, Callable[[RowFile, int], Iterator[RawRow]]] = {
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
