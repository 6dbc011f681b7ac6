"""Functions that render the rows of an in-memory table, one prompt at a time or as columns of lines and errors.

No table library is imported: a table is recognized by its methods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeGuard, cast, overload

from lazyprompt._base.json import is_mapping, is_sequence
from lazyprompt.batch.cells import is_nan
from lazyprompt.batch.plan import RowPlan, Train
from lazyprompt.batch.row_names import RowNames
from lazyprompt.batch.rows import Row, arrow
from lazyprompt.errors import BatchError, LazyPromptError
from lazyprompt.prompters.rows import Columns, OnError, RowFault

if TYPE_CHECKING:
    from lazyprompt._base.json import JsonObject
    from lazyprompt.chat_templates.template import ModelLike
    from lazyprompt.files.prompty import Prompty
    from lazyprompt.prompters.prompter import Prompter
    from lazyprompt.prompters.target_choice import FormatLike

__all__ = ["RowPlan", "render_batch", "render_columns", "rows_of"]

# The number of Arrow rows that are converted to Python objects at a time.
_STEP = 1000
# A pyarrow table or a DataFrame, typed as Any because this module imports no table library.
_Frame: TypeAlias = Any


@overload
def render_batch(
    prompter: Prompter | Prompty,
    rows: object,
    *,
    format: FormatLike | None = ...,
    model: ModelLike | None = ...,
    columns: Columns | None = ...,
    params: Mapping[str, object] | None = ...,
    train: Train = ...,
    on_error: Literal["raise"] = ...,
) -> Iterator[dict[str, Any]]: ...
@overload
def render_batch(
    prompter: Prompter | Prompty,
    rows: object,
    *,
    format: FormatLike | None = ...,
    model: ModelLike | None = ...,
    columns: Columns | None = ...,
    params: Mapping[str, object] | None = ...,
    train: Train = ...,
    on_error: OnError = ...,
) -> Iterator[dict[str, Any] | RowFault]: ...
def render_batch(
    prompter: Prompter | Prompty,
    rows: object,
    *,
    format: FormatLike | None = None,
    model: ModelLike | None = None,
    columns: Columns | None = None,
    params: Mapping[str, object] | None = None,
    train: Train = "last",
    on_error: OnError = "raise",
) -> Iterator[dict[str, Any] | RowFault]:
    """Render the prompts of many rows, one at a time.

    Args:
        prompter: The prompter, or a prompt file.
        rows: The rows, in any form that :func:`rows_of` accepts.
        format: The line format; see :meth:`RowPlan.of`.
        model: The model; see :meth:`RowPlan.of`.
        columns: The columns for slots, history, tools, label and id.
        params: Additional fields for each request.
        train: The responses to train on; see :meth:`RowPlan.of`.
        on_error: ``raise`` to raise an error for a row that cannot be rendered, or ``return`` to yield a
            :class:`RowFault` instead.

    Returns:
        An iterator over the output lines, as JSON objects.

    Raises:
        BatchError: The type of the rows is not supported, the settings conflict, or two rows have the same name.
        FormatError: The format is unknown.
    """
    if on_error not in ("raise", "return"):
        raise BatchError(f"unknown on_error value {on_error!r}; expected 'raise' or 'return'")
    plan = RowPlan.of(prompter, format, model=model, columns=columns, params=params, train=train)
    return _objects(plan, rows_of(rows), on_error)


def _objects(plan: RowPlan, rows: Iterator[Row], on_error: OnError) -> Iterator[JsonObject | RowFault]:
    with closing(RowNames(plan.cells.id)) as names:
        for number, row in enumerate(rows, 1):
            made: JsonObject | RowFault
            try:
                made = plan.line_object(number, row)
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
    """Render one block of table rows as two columns: the output lines and the error messages.

    Args:
        plan: The plan that renders the rows.
        columns: The columns of the table, as lists or arrays of equal length.
        first: The number of the first row; a row without an id is named after its number.

    Returns:
        A dict with the lists ``line`` and ``error``, which contain one item per row. For each row, ``line`` contains
        the output line without its newline, or None if the row cannot be rendered. For each row, ``error`` contains the
        reason why the row cannot be rendered, or None if the row was rendered.

    Raises:
        BatchError: The columns differ in length, or a column that the prompt needs is missing.
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
    """Return the rows of a table or an iterable, one at a time; the data is not modified.

    Args:
        data: An iterable of mappings; a mapping of columns of equal length; an Arrow table, record batch or stream; or
            a pandas or polars DataFrame.

    Returns:
        The rows, in order. A missing value in a DataFrame becomes None.

    Raises:
        BatchError: The type of ``data`` is not supported, the columns differ in length, or a column name is not a
            string. An error in a single row is raised when that row is reached.
    """
    if isinstance(data, str | bytes) or hasattr(data, "__fspath__"):
        raise BatchError(
            f"rows must be mappings, columns or a table, not {type(data).__name__}; read a file with "
            "lazyprompt.batch.rows.read_rows"
        )
    if is_mapping(data):
        return _rows_of_columns(data)
    for method, reader in _TABLES.items():
        if hasattr(data, method):
            return reader(data)
    if isinstance(data, Iterable):
        return _rows_of_items(cast("Iterable[object]", data))
    raise BatchError(
        f"rows must be an iterable of mappings, a mapping of columns, an Arrow table or a DataFrame, not "
        f"{type(data).__name__}"
    )


class _Column(Protocol):
    """A column's values, in row order."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[object]: ...


def _rows_of_columns(columns: Mapping[str, object]) -> Iterator[Row]:
    found = {_checked_name(name): _checked_column(column, name) for name, column in columns.items()}
    if len({*map(len, found.values())}) > 1:
        lengths = ", ".join(f"{name!r} has {len(column)}" for name, column in found.items())
        raise BatchError(f"columns must have equal length, but {lengths}")
    # NumPy arrays contain NumPy scalars, which must be converted to Python numbers.
    plain: Iterator[Iterable[object]] = (
        column if is_sequence(column) else map(_to_python, column) for column in found.values()
    )
    return _zip_rows(tuple(found), zip(*plain, strict=True))


def _checked_column(column: object, name: object) -> _Column:
    if _is_column(column):
        return column
    raise BatchError(
        f"column {name!r} must be a list with one value per row, not {type(column).__name__}; a mapping is read as "
        "columns, so put a single row in a list"
    )


def _is_column(column: object) -> TypeGuard[_Column]:
    # A string or a mapping is a single value, not a column of values.
    return not isinstance(column, str | bytes | Mapping) and isinstance(column, Sized) and hasattr(column, "__iter__")


def _zip_rows(names: tuple[str, ...], rows: Iterable[Iterable[object]]) -> Iterator[Row]:
    return (dict(zip(names, row, strict=True)) for row in rows)


def _checked_name(name: object) -> str:
    if not isinstance(name, str):
        raise BatchError(f"column names must be text, not {name!r} of type {type(name).__name__}")
    return name


def _checked_names(names: Iterable[object]) -> tuple[str, ...]:
    """Return a table's column names; raise an error for a repeated name, which a row's mapping can't represent."""
    found = tuple(map(_checked_name, names))
    if twice := [name for at, name in enumerate(found) if name in found[:at]]:
        raise BatchError(f"the table has two columns named {twice[0]!r}; column names must be unique")
    return found


def _rows_of_arrow(table: _Frame) -> Iterator[Row]:
    """Return the rows of an Arrow table or dataset."""
    _checked_names(table.schema.names)
    return chain.from_iterable(map(_rows_of_batch, table.to_batches()))


def _rows_of_batch(batch: _Frame) -> Iterator[Row]:
    """Yield the rows of an Arrow record batch, converting ``_STEP`` rows at a time."""
    _checked_names(batch.schema.names)
    for at in range(0, len(batch), _STEP):
        yield from batch.slice(at, _STEP).to_pylist()


def _rows_of_polars(frame: _Frame) -> Iterator[Row]:
    rows: Iterator[Row] = frame.iter_rows(named=True)
    return rows


def _rows_of_pandas(frame: _Frame) -> Iterator[Row]:
    names = _checked_names(frame.columns)
    rows: Iterable[tuple[object, ...]] = frame.itertuples(index=False, name=None)
    return _zip_rows(names, (map(_to_python, row) for row in rows))


def _to_python(value: object) -> object:
    """Convert a NumPy value to a Python value, and pandas' missing values to None."""
    to_list: Callable[[], object] | None = getattr(value, "tolist", None)
    found = value if to_list is None else to_list()
    return None if is_nan(found) else found


def _rows_of_stream(stream: object) -> Iterator[Row]:
    """Return the rows of an object that can be read only as an Arrow stream."""
    return chain.from_iterable(map(_rows_of_batch, arrow().RecordBatchReader.from_stream(stream)))


def _rows_of_items(items: Iterable[object]) -> Iterator[Row]:
    number = 0
    for item in items:
        if is_mapping(item):
            number += 1
            yield item
        elif hasattr(item, "to_pylist"):
            for row in _rows_of_batch(item):
                number += 1
                yield row
        else:
            raise BatchError(
                f"row {number + 1} must be a mapping from column names to values, not {type(item).__name__}"
            )


# Maps a method that identifies a table class to a function that reads the table's rows.
# The Arrow stream method comes last, because the other table classes also have this method.
_TABLES: dict[str, Callable[[Any], Iterator[Row]]] = {
    "iter_rows": _rows_of_polars,
    "itertuples": _rows_of_pandas,
    "to_batches": _rows_of_arrow,
    "to_pylist": _rows_of_batch,
    "__arrow_c_stream__": _rows_of_stream,
}
