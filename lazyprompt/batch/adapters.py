"""Rendering of columns, for Ray Data and Hugging Face datasets.

Rendering adds two columns to a table: ``line``, a row's line without its newline, and ``error``, the reason why a row
has no line. An invalid row never stops the job. The plan is pickled and sent to each worker once.

A block of a table doesn't know the row numbers of the whole table. If the form names its rows, each row needs an id
in the id column. Only datasets pass the index of a row.

Ray Data hands over Arrow, not pandas: pandas turns integers into floats where one is missing, and 7 would be rendered
as 7.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from lazyprompt.batch.cells import is_nan
from lazyprompt.batch.render import render_columns
from lazyprompt.batch.rows import arrow
from lazyprompt.errors import BatchError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lazyprompt.batch.plan import RowPlan
    from lazyprompt.prompters.rows import RayMap

NEW_COLUMNS = ("line", "error")
"""The added columns."""

_Table: TypeAlias = "Mapping[str, Sequence[object]]"
_NewColumns: TypeAlias = "dict[str, list[str | None]]"
# A pyarrow table or record batch; pyarrow is not imported here.
_Frame: TypeAlias = Any


class ColumnLines:
    """A picklable function for ``datasets.Dataset.map`` with ``batched=True``.

    Args:
        plan: The plan of the lines.
    """

    def __init__(self, plan: RowPlan) -> None:
        self._plan = plan

    def __call__(self, columns: _Table, places: Sequence[int] | None = None) -> _NewColumns:
        """Return the added columns for a piece of a table.

        Args:
            columns: The columns of the piece.
            places: The index of each row in the whole table, from 0; passed with ``with_indices=True``.

        Raises:
            BatchError: The table already has a column of that name, or rows have neither an index nor a name.
        """
        if taken := [name for name in NEW_COLUMNS if name in columns]:
            raise BatchError(f"the table already has a column {taken[0]!r}, which rendering adds; rename it")
        if places is not None:
            return render_columns(self._plan, columns, first=places[0] + 1 if places else 1)
        return _render_without_index(self._plan, columns)


class ArrowLines:
    """Renders Arrow tables or record batches; Ray Data creates one instance per worker.

    Args:
        plan: The plan of the lines.
    """

    def __init__(self, plan: RowPlan) -> None:
        self._lines = ColumnLines(plan)

    def __call__(self, table: _Frame) -> _Frame:
        """Return the table with the added columns.

        Args:
            table: The table or record batch.

        Raises:
            BatchError: The table already has a column of that name, or a row has no name.
        """
        text = arrow().large_string()
        made = self._lines({name: table.column(name).to_pylist() for name in table.schema.names})
        for name in NEW_COLUMNS:
            table = table.append_column(name, arrow().array(made[name], text))
        return table


def ray_map(plan: RowPlan) -> RayMap:
    """Return the arguments of :meth:`ray.data.Dataset.map_batches`: ``data.map_batches(**ray_map(plan))``.

    Args:
        plan: The plan of the lines.

    Returns:
        The class that renders tables, its arguments and the batch format. The caller adds other arguments, such as
        ``compute=ray.data.ActorPoolStrategy(size=8)``.
    """
    return {"fn": ArrowLines, "fn_constructor_args": (plan,), "batch_format": "pyarrow"}


def columns_map(plan: RowPlan) -> ColumnLines:
    """Return a function for ``datasets``: ``data.map(columns_map(plan), batched=True, with_indices=True, num_proc=4)``.

    Args:
        plan: The plan of the lines.

    Returns:
        The function. With indices, a row without an id gets the default name that ``lazyprompt batch`` gives it.
    """
    return ColumnLines(plan)


def _render_without_index(plan: RowPlan, columns: _Table) -> _NewColumns:
    """Render rows without an index, which have no default name: numbers repeat in each piece of a table."""
    made = render_columns(plan, columns)
    for at, error in enumerate(made["error"]):
        if error is not None:
            made["error"][at] = error.removeprefix(f"row {at + 1}: ")
    if not plan.form.id_key or not made["line"]:
        return made
    ids = columns.get(plan.columns.id)
    if ids is None:
        raise BatchError(
            f"there is no column {plan.columns.id!r}; {plan.form.name} names each row, and rows of a piece of a table "
            "have no number; add that column with a name for each row"
        )
    for at, name in enumerate(ids):
        if name is None or name == "" or is_nan(name):
            made["line"][at] = None
            made["error"][at] = made["error"][at] or f"column {plan.columns.id!r} has no value; each row needs a name"
    return made
