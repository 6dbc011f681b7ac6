"""Rows at hand: any table as mappings, their prompts one at a time, and their lines as columns.

No library of tables is imported: each table is known by the methods that it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, overload

from lazyprompt.batch.cells import is_nan
from lazyprompt.batch.plan import RowPlan
from lazyprompt.batch.row_names import RowNames
from lazyprompt.batch.rows import Row, arrow
from lazyprompt.errors import BatchError, LazyPromptError
from lazyprompt.prompters.rows import Columns, OnError, RowFault

if TYPE_CHECKING:
    from lazyprompt._base.json import JsonObject
    from lazyprompt.files.prompty import Prompty
    from lazyprompt.prompters.prompter import Prompter

__all__ = ["RowPlan", "render_batch", "render_columns", "rows_of"]

# Tables are taken apart so many rows at a time.
_STEP = 1000
# A table of pyarrow or a DataFrame, whose libraries are not imported here.
_Frame: TypeAlias = Any


@overload
def render_batch(
    prompter: Prompter | Prompty,
    rows: object,
    *,
    format: str | None = ...,
    model: str | None = ...,
    columns: Columns | None = ...,
    params: Mapping[str, object] | None = ...,
    on_error: Literal["raise"] = ...,
) -> Iterator[dict[str, Any]]: ...
@overload
def render_batch(
    prompter: Prompter | Prompty,
    rows: object,
    *,
    format: str | None = ...,
    model: str | None = ...,
    columns: Columns | None = ...,
    params: Mapping[str, object] | None = ...,
    on_error: OnError = ...,
) -> Iterator[dict[str, Any] | RowFault]: ...
def render_batch(
    prompter: Prompter | Prompty,
    rows: object,
    *,
    format: str | None = None,
    model: str | None = None,
    columns: Columns | None = None,
    params: Mapping[str, object] | None = None,
    on_error: OnError = "raise",
) -> Iterator[dict[str, Any] | RowFault]:
    """Return the prompts of many rows, one at a time: the object of each line.

    Args:
        prompter: The prompter, or a prompt file.
        rows: As of :func:`rows_of`.
        format: As of :meth:`RowPlan.of` (so with model, columns and params).
        model: The model.
        columns: The columns of slots, history and the like.
        params: Further fields of each request.
        on_error: ``raise`` to end the work at a row without a prompt; or ``return`` to have its fault in its place.

    Returns:
        The objects of the lines.

    Raises:
        BatchError: The rows are no rows, the settings do not fit, or two rows have the same name.
        FormatError: There is no such form.
    """
    if on_error not in ("raise", "return"):
        raise BatchError(f"on_error {on_error!r} is unknown; give raise or return")
    plan = RowPlan.of(prompter, format, model=model, columns=columns, params=params)
    return _objects(plan, rows_of(rows), on_error)


def _objects(plan: RowPlan, rows: Iterator[Row], on_error: OnError) -> Iterator[JsonObject | RowFault]:
    with closing(RowNames(plan.cells.id)) as names:
        for number, row in enumerate(rows, 1):
            made: JsonObject | RowFault
            try:
                made = plan.made(number, row)
                if plan.form.id_key:
                    names.add(number, plan.cells.name_of(row))
            except LazyPromptError as error:
                if on_error == "raise":
                    raise
                made = RowFault(number, str(error))
            yield made


def render_columns(
    plan: RowPlan, columns: Mapping[str, Sequence[object]], *, first: int = 1
) -> dict[str, list[str | None]]:
    """Return the lines and the errors of columns; for tables that are worked on piece by piece.

    Args:
        plan: The plan of the lines.
        columns: The columns of the rows, all of one length: lists, or arrays.
        first: The number of the first row, by which a row without an id is named.

    Returns:
        ``line``, without its end, None where the row has no prompt; and ``error``, which says why, else None.

    Raises:
        BatchError: The columns are of different lengths; or a column that the prompt needs is not among them.
    """
    rows = rows_of(columns)
    if any(map(len, columns.values())) and (fault := plan.cells.missing_in(columns)):
        raise BatchError(fault, setting="columns")
    lines: list[str | None] = []
    errors: list[str | None] = []
    for number, row in enumerate(rows, first):
        try:
            lines.append(plan.line(number, row)[:-1].decode())
            errors.append(None)
        except LazyPromptError as error:
            lines.append(None)
            errors.append(str(error))
    return {"line": lines, "error": errors}


def rows_of(data: object) -> Iterator[Row]:
    """Return the rows of data in any form, one at a time; the data stays as it is.

    Args:
        data: Mappings one after another; a mapping of columns of one length; an Arrow table, record batch or stream; a
            DataFrame of pandas or polars.

    Returns:
        The rows, in their order. A place where a DataFrame has no value holds None.

    Raises:
        BatchError: It is none of these; or its columns are of different lengths, or have names that are no text. What
            is wrong with a single row shows itself when that is asked for.
    """
    if isinstance(data, str | bytes) or hasattr(data, "__fspath__"):
        raise BatchError(
            f"rows are given as a {type(data).__name__}; give mappings, columns or a table, or read a file with "
            "lazyprompt.batch.rows.read_rows"
        )
    if isinstance(data, Mapping):
        return _of_columns(cast("Mapping[object, object]", data))
    for method, reader in _TABLES.items():
        if hasattr(data, method):
            return reader(data)
    if isinstance(data, Iterable):
        return _of_items(cast("Iterable[object]", data))
    raise BatchError(
        f"rows are given as a {type(data).__name__}; give mappings one after another, a mapping of columns, an Arrow "
        "table or a DataFrame"
    )


def _of_columns(columns: Mapping[object, object]) -> Iterator[Row]:
    lengths = {_checked_name(name): _length(column, name) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name!r} has {length}" for name, length in lengths.items())
        raise BatchError(f"columns are of one length, but {found}")
    values = cast("Iterable[Iterable[object]]", columns.values())
    # Arrays have numbers of their own.
    plain = (column if isinstance(column, list | tuple) else map(_plain, column) for column in values)
    return _zipped(tuple(lengths), zip(*plain, strict=True))


def _length(column: object, name: object) -> int:
    kind = type(column).__name__
    # A single row would otherwise be taken for columns of letters.
    if isinstance(column, str | bytes | Mapping) or not isinstance(column, Sized) or not hasattr(column, "__iter__"):
        raise BatchError(
            f"column {name!r} is a {kind}; a mapping is read as columns, each of them a list with a "
            "value for each row; give a single row within a list"
        )
    return len(column)


def _zipped(names: tuple[str, ...], rows: Iterable[Iterable[object]]) -> Iterator[Row]:
    return (dict(zip(names, row, strict=True)) for row in rows)


def _checked_name(name: object) -> str:
    if not isinstance(name, str):
        raise BatchError(f"a column has the name {name!r} of type {type(name).__name__}; names of columns are text")
    return name


def _checked_names(names: Iterable[object]) -> tuple[str, ...]:
    """Return the names of a table's columns; a table may have two of one name, and a row may not."""
    found = tuple(map(_checked_name, names))
    if twice := [name for at, name in enumerate(found) if name in found[:at]]:
        raise BatchError(f"the table has two columns named {twice[0]!r}; name each column once")
    return found


def _of_batches(table: _Frame) -> Iterator[Row]:
    """Return the rows of a table or a data set of Arrow."""
    _checked_names(table.schema.names)
    return chain.from_iterable(map(_of_batch, table.to_batches()))


def _of_batch(batch: _Frame) -> Iterator[Row]:
    """Yield the rows of a record batch of Arrow; a few at a time become Python's."""
    _checked_names(batch.schema.names)
    for at in range(0, len(batch), _STEP):
        yield from batch.slice(at, _STEP).to_pylist()


def _of_polars(frame: _Frame) -> Iterator[Row]:
    _checked_names(frame.columns)
    return cast("Iterator[Row]", frame.iter_rows(named=True))


def _of_pandas(frame: _Frame) -> Iterator[Row]:
    names = _checked_names(frame.columns)
    rows: Iterable[tuple[object, ...]] = frame.itertuples(index=False, name=None)
    return _zipped(names, (map(_plain, row) for row in rows))


def _plain(value: object) -> object:
    """Return a value of a DataFrame as Python's own; pandas has NumPy's numbers, and three missing values."""
    to_python = cast("Callable[[], object] | None", getattr(value, "tolist", None))
    found = value if to_python is None else to_python()
    return None if is_nan(found) else found


def _of_stream(stream: object) -> Iterator[Row]:
    """Return the rows of an object that only gives a stream of Arrow."""
    return chain.from_iterable(map(_of_batch, arrow().RecordBatchReader.from_stream(stream)))


def _of_items(items: Iterable[object]) -> Iterator[Row]:
    number = 0
    for item in items:
        if isinstance(item, Mapping):
            number += 1
            yield cast("Row", item)
        elif hasattr(item, "to_pylist"):
            for row in _of_batch(item):
                number += 1
                yield row
        else:
            raise BatchError(
                f"row {number + 1} is a {type(item).__name__}; a row is a mapping of names of columns to values"
            )


# The tables, by a method that only they have. A stream is the last: tables give one as well.
_TABLES: dict[str, Callable[[Any], Iterator[Row]]] = {
    "iter_rows": _of_polars,
    "itertuples": _of_pandas,
    "to_batches": _of_batches,
    "to_pylist": _of_batch,
    "__arrow_c_stream__": _of_stream,
}
