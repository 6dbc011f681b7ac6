"""Past one process: tables of Ray Data, Hugging Face datasets, Daft and Spark, rendered where they are.

Each adapter adds two columns to a table: ``line``, the line of a row without its end, and ``error``, which says why a
row has none. A row that is wrong never ends the work of a cluster. The plan is pickled, sent to each worker once, and
what it makes on first use is made there.

Pieces of a table know nothing of each other, so its rows have no numbers: where a form names its rows, each row needs
a name of its own, in the column of ids. Only datasets tell at which place a row stands.

Tables are read by Arrow, where the engine has it, and not by pandas: there a column of integers in which one is
missing becomes one of floats, and 7 would be rendered as 7.0.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from lazyprompt.batch.cells import is_nan
from lazyprompt.batch.render import render_columns
from lazyprompt.batch.rows import arrow
from lazyprompt.errors import BatchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lazyprompt.batch.plan import RowPlan
    from lazyprompt.prompters.rows import RayMap

MADE = ("line", "error")
"""The columns that are added."""

_Table: TypeAlias = "Mapping[str, Sequence[object]]"
_Made: TypeAlias = "dict[str, list[str | None]]"
# A table or record batch of pyarrow, a DataFrame of Daft or Spark: libraries that are not imported here.
_Frame: TypeAlias = Any


class ColumnLines:
    """Renders columns; a function for ``datasets.Dataset.map`` with ``batched=True``. It can be pickled.

    Args:
        plan: The plan of the lines.
    """

    def __init__(self, plan: RowPlan) -> None:
        self._plan = plan

    def __call__(self, columns: _Table, places: Sequence[int] | None = None) -> _Made:
        """Return the columns that are added to a piece of a table.

        Args:
            columns: The columns of the piece.
            places: The place of each row in the whole table, from 0, which ``with_indices=True`` gives.

        Raises:
            BatchError: The table has a column of that name already; or rows have neither a place nor a name.
        """
        if taken := [name for name in MADE if name in columns]:
            raise BatchError(f"the table has a column {taken[0]!r}, which is to be made; rename it")
        if places is not None:
            return render_columns(self._plan, columns, first=places[0] + 1 if places else 1)
        return _nameless(self._plan, columns)


class ArrowLines:
    """Renders tables or record batches of Arrow; a class that Ray Data makes once in each worker.

    Args:
        plan: The plan of the lines.
    """

    def __init__(self, plan: RowPlan) -> None:
        self._lines = ColumnLines(plan)

    def __call__(self, table: _Frame) -> _Frame:
        """Return the table with the columns that are added.

        Args:
            table: The table or record batch.

        Raises:
            BatchError: As of :class:`ColumnLines`.
        """
        text = arrow().large_string()
        made = self._lines({name: table.column(name).to_pylist() for name in table.schema.names})
        for name in MADE:
            table = table.append_column(name, arrow().array(made[name], text))
        return table


def ray_map(plan: RowPlan) -> RayMap:
    """Return the arguments of :meth:`ray.data.Dataset.map_batches`: ``data.map_batches(**ray_map(plan))``.

    Args:
        plan: The plan of the lines.

    Returns:
        The class that renders tables, and what each worker makes it of. All other arguments are the caller's, as
        ``compute=ray.data.ActorPoolStrategy(size=8)``.
    """
    return {"fn": ArrowLines, "fn_constructor_args": (plan,), "batch_format": "pyarrow"}


def columns_map(plan: RowPlan) -> ColumnLines:
    """Return a function for ``datasets``: ``data.map(columns_map(plan), batched=True, with_indices=True, num_proc=4)``.

    Args:
        plan: The plan of the lines.

    Returns:
        The function. With indices, a row without an id is named by its place, as it is by ``lazyprompt batch``.
    """
    return ColumnLines(plan)


def daft_lines(plan: RowPlan, frame: _Frame) -> _Frame:
    """Return a DataFrame of Daft with the columns ``line`` and ``error``.

    Args:
        plan: The plan of the lines.
        frame: The DataFrame.
    """
    daft, functions = import_module("daft"), import_module("daft.functions")
    lines = ColumnLines(plan)
    names: list[str] = frame.column_names

    def rendered(rows: _Frame) -> list[dict[str, str | None]]:
        found: list[dict[str, object]] = rows.to_pylist()
        made = lines({name: [row[name] for row in found] for name in names})
        return [dict(zip(MADE, pair, strict=True)) for pair in zip(*map(made.__getitem__, MADE), strict=True)]

    kind = daft.DataType.struct(dict.fromkeys(MADE, daft.DataType.string()))
    own = [daft.col(name) for name in names]
    return frame.select(*own, daft.func.batch(return_dtype=kind, unnest=True)(rendered)(functions.to_struct(*own)))


def spark_lines(plan: RowPlan, frame: _Frame) -> _Frame:
    """Return a DataFrame of Spark, 3.3 or later, with the columns ``line`` and ``error``.

    Args:
        plan: The plan of the lines.
        frame: The DataFrame.
    """
    types, lines = import_module("pyspark.sql.types"), ArrowLines(plan)

    def each(batches: Iterable[_Frame]) -> Iterator[_Frame]:
        return map(lines, batches)

    made = [types.StructField(name, types.StringType()) for name in MADE]
    return frame.mapInArrow(each, types.StructType([*frame.schema.fields, *made]))


def _nameless(plan: RowPlan, columns: _Table) -> _Made:
    """Return the columns for rows without a place: by their number in a piece, many would have the same name."""
    made = render_columns(plan, columns)
    for at, error in enumerate(made["error"]):
        if error is not None:
            made["error"][at] = error.removeprefix(f"row {at + 1}: ")
    if not plan.form.id_key or not made["line"]:
        return made
    ids = columns.get(plan.columns.id)
    if ids is None:
        raise BatchError(
            f"there is no column {plan.columns.id!r}; {plan.form.name} names each row, and the rows of a table in "
            "pieces have no number; give each a name in that column"
        )
    for at, name in enumerate(ids):
        if name is None or is_nan(name):
            made["line"][at] = None
            made["error"][at] = made["error"][at] or f"column {plan.columns.id!r} has no value; each row needs a name"
    return made
