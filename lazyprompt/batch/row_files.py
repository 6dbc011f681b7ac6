"""Files of rows, one reader a kind: JSON Lines, CSV, Parquet.

Sources of the rules: JSON is RFC 8259, one object a line, as jsonlines.org has it; CSV is RFC 4180 with a header line,
in UTF-8.
"""

from __future__ import annotations

import csv
from importlib import import_module
from json import JSONDecodeError, JSONDecoder
from threading import Lock
from typing import TYPE_CHECKING, Any, NoReturn, cast

from lazyprompt.batch.row import Kind, shown
from lazyprompt.errors import BatchError, missing_extra
from lazyprompt.prompters.rows import RowFault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lazyprompt.batch.row import Numbered, Row

# Rows of Parquet become Python's so many at a time.
_STEP = 1000
_BOM = b"\xef\xbb\xbf"
# Python's reader of CSV refuses fields beyond 128 KiB, which documents are, by a setting that all of a process share.
_LONGEST_FIELD = 1 << 30
_FIELD_LIMIT = Lock()


class _NoRowError(Exception):
    """A line is no row; the message says why."""


def _refuse_constant(name: str) -> NoReturn:
    raise _NoRowError(f"{name} is no JSON; write null, or a string")


_decode = JSONDecoder(parse_constant=_refuse_constant).decode
# What orjson reads as Python's json does. It makes a float of an integer beyond 64 bits, and says nothing of it.
_ALIKE = frozenset({str, int, bool, type(None)})


def _quick_reader() -> Callable[[bytes], Any]:
    try:
        reader: Callable[[bytes], Any] = import_module("orjson").loads
    except ImportError:
        return _no_reader
    return reader


def _no_reader(_: bytes) -> object:
    """Nothing: orjson is not installed."""
    return None


_quick = _quick_reader()


def _read_jsonl(path: Path, start: int) -> Numbered:
    number = 0
    is_alike = _ALIKE.issuperset
    try:
        with path.open("rb") as file:
            for at, line in enumerate(file, 1):
                if number < start:
                    number += not line.isspace()
                    continue
                try:
                    row: dict[str, object] = _quick(line)
                    plain = type(row) is dict and is_alike(map(type, row.values()))
                    found: Row | RowFault | None = row if plain else None
                except ValueError:
                    found = None
                if found is None and not line.isspace():
                    found = row_of_line(line, number + 1, at)
                if found is not None:
                    number += 1
                    yield number, found
    except OSError as error:
        raise _unreadable(path, error) from error


def row_of_line(line: bytes, number: int, at: int) -> Row | RowFault:
    """A line as a row, whatever is in it."""
    try:
        return _object(line.removeprefix(_BOM) if at == 1 else line)
    except _NoRowError as error:
        return RowFault(number, f"line {at}: {error}", at, shown(line.decode(errors="replace").rstrip("\r\n")))


def _object(line: bytes) -> Row:
    """The JSON object of a line.

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
        raise _NoRowError(f'it is a {type(found).__name__}; a row is a JSON object, as {{"question": "..."}}')
    return cast("Row", found)


def _read_csv(path: Path, start: int) -> Numbered:
    try:
        # What is no UTF-8 becomes lone surrogates, by which its row is found.
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            records = _records(csv.reader(file, strict=True))
            header = next(records, (1, list[str]()))[1]
            names = _checked_header(path, header)
            for number, (at, record) in enumerate(records, 1):
                if number > start:
                    yield number, _row_of_record(names, record, number, at)
    except OSError as error:
        raise _unreadable(path, error) from error


def _records(reader: Any) -> Iterator[tuple[int, list[str] | csv.Error]]:  # noqa: ANN401 - the type has no public name
    """The records with the lines that they begin in; empty lines are none."""
    while True:
        at = reader.line_num + 1
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
        if found:
            yield at, found


def _checked_header(path: Path, header: list[str] | csv.Error) -> list[str]:
    if isinstance(header, csv.Error):
        raise BatchError(f"{path}:1: the header cannot be read: {header}")
    if not header:
        raise BatchError(f"{path} is empty; its first line is to hold the names of the columns")
    for at, name in enumerate(header):
        if not name or name in header[:at]:
            what = f"is named {name!r} as another is" if name else "has no name"
            raise BatchError(f"{path}:1: column {at + 1} {what}; the first line names each column once")
    if _is_broken("".join(header)):
        raise BatchError(f"{path}:1: the header is no UTF-8; save the file as UTF-8")
    return header


def _row_of_record(names: list[str], record: list[str] | csv.Error, number: int, at: int) -> Row | RowFault:
    if isinstance(record, csv.Error):
        return RowFault(number, f"line {at}: it is no CSV: {record}", at)
    if len(record) != len(names):
        reason = f"it has {len(record)} fields, and the header names {len(names)}"
    elif _is_broken("".join(record)):
        reason = "it is no UTF-8"
    else:
        return dict(zip(names, record, strict=True))
    text = ",".join(record).encode(errors="surrogateescape").decode(errors="replace")
    return RowFault(number, f"line {at}: {reason}", at, shown(text))


def _is_broken(text: str) -> bool:
    if text.isascii():
        return False
    try:
        text.encode("utf-32-le")
    except UnicodeEncodeError:
        return True
    return False


def _read_parquet(path: Path, start: int) -> Numbered:
    library = arrow()
    try:
        with import_module("pyarrow.parquet").ParquetFile(path) as file:
            names: list[str] = file.schema_arrow.names
            if twice := [name for at, name in enumerate(names) if name in names[:at]]:
                raise BatchError(f"{path} has two columns named {twice[0]!r}; name each column once")
            sizes = [file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)]
            number, groups = groups_from(sizes, start)
            for batch in file.iter_batches(_STEP, groups):
                passed = min(start - number, len(batch)) if number < start else 0
                number += passed
                for row in batch.slice(passed).to_pylist():
                    number += 1
                    yield number, row
    except (OSError, library.ArrowException) as error:
        raise _unreadable(path, error) from error


def groups_from(sizes: list[int], start: int) -> tuple[int, list[int]]:
    """The groups of rows that are still to be read, and how many rows the others have."""
    passed = 0
    for at, size in enumerate(sizes):
        if passed + size > start:
            return passed, list(range(at, len(sizes)))
        passed += size
    return passed, []


def arrow() -> Any:  # noqa: ANN401 - a module that may not be there
    """The package pyarrow.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        return import_module("pyarrow")
    except ImportError as error:
        raise missing_extra("pyarrow", "parquet") from error


def _unreadable(path: Path, error: Exception) -> BatchError:
    return BatchError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}")


READERS: dict[Kind, Callable[[Path, int], Numbered]] = {
    "jsonl": _read_jsonl,
    "csv": _read_csv,
    "parquet": _read_parquet,
}
