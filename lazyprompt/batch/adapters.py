"""Functions that render the rows of Ray Data and Hugging Face datasets and add columns for lines and errors.

Rendering adds the columns ``line`` (a row's output line without its newline) and ``error`` (the reason why the row has
no line). An invalid row never stops the job. The plan is pickled and sent to each worker once.

A worker receives a block of the table and doesn't know the row numbers in the whole table. If the line format includes
row names, each row therefore needs a value in the id column. For a Hugging Face dataset, ``with_indices=True`` passes
the row numbers, so the id column is optional.

Ray Data is configured to pass blocks as Arrow tables, because pandas converts an integer column with a missing value to
floats, so that 7 would be rendered as 7.0.
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
"""The names of the added columns."""

_Table: TypeAlias = "Mapping[str, Sequence[object]]"
_NewColumns: TypeAlias = "dict[str, list[str | None]]"
# A pyarrow table or record batch, typed as Any because this module doesn't import pyarrow.
_Frame: TypeAlias = Any


class ColumnLines:
    """A picklable function for ``datasets.Dataset.map`` with ``batched=True``.

    Args:
        plan: The plan that renders the rows.
    """

    def __init__(self, plan: RowPlan) -> None:
        self._plan = plan

    def __call__(self, columns: _Table, places: Sequence[int] | None = None) -> _NewColumns:
        """Return the added columns for one block of a table.

        Args:
            columns: The block's columns.
            places: The index of each row in the whole table, from 0; passed with ``with_indices=True``.

        Raises:
            BatchError: The table already has a ``line`` or ``error`` column, or a row has neither an index nor a name.
        """
        if taken := [name for name in NEW_COLUMNS if name in columns]:
            raise BatchError(
                f"the table already has a column named {taken[0]!r}, but rendering adds a column with this name; "
                "rename the existing column"
            )
        if places is not None:
            return render_columns(self._plan, columns, first=places[0] + 1 if places else 1)
        return _render_without_index(self._plan, columns)


class ArrowLines:
    """A picklable callable that renders Arrow tables or record batches; Ray Data creates one per worker.

    Args:
        plan: The plan that renders the rows.
    """

    def __init__(self, plan: RowPlan) -> None:
        self._lines = ColumnLines(plan)

    def __call__(self, table: _Frame) -> _Frame:
        """Return the table with the added columns.

        Args:
            table: The Arrow table or record batch.

        Raises:
            BatchError: The table already has a ``line`` or ``error`` column, or a row has no name.
        """
        text = arrow().large_string()
        made = self._lines({name: table.column(name).to_pylist() for name in table.schema.names})
        for name in NEW_COLUMNS:
            table = table.append_column(name, arrow().array(made[name], text))
        return table


def ray_map(plan: RowPlan) -> RayMap:
    """Return arguments for :meth:`ray.data.Dataset.map_batches`, as in ``data.map_batches(**ray_map(plan))``.

    Args:
        plan: The plan that renders the rows.

    Returns:
        The class that renders tables, its constructor arguments and the batch format. You can pass more arguments to
        ``map_batches``, such as ``compute=ray.data.ActorPoolStrategy(size=8)``.
    """
    return {"fn": ArrowLines, "fn_constructor_args": (plan,), "batch_format": "pyarrow"}


def columns_map(plan: RowPlan) -> ColumnLines:
    """Return a function for :meth:`datasets.Dataset.map` that renders batches of rows.

    Example: ``data.map(columns_map(plan), batched=True, with_indices=True, num_proc=4)``.

    Args:
        plan: The plan that renders the rows.

    Returns:
        The function. With ``with_indices=True``, a row without an id gets the same default name as in
        ``lazyprompt batch``.
    """
    return ColumnLines(plan)


def _render_without_index(plan: RowPlan, columns: _Table) -> _NewColumns:
    """Render rows without default names, because row numbers would start at 1 again in each block of a table."""
    made = render_columns(plan, columns)
    for at, error in enumerate(made["error"]):
        if error is not None:
            made["error"][at] = error.removeprefix(f"row {at + 1}: ")
    if not plan.form.id_key or not made["line"]:
        return made
    ids = columns.get(plan.columns.id)
    if ids is None:
        raise BatchError(
            f"the table has no column {plan.columns.id!r}; {plan.form.name} requires a name for each row, and rows in "
            "a block have no row numbers; add this column with a unique name for each row"
        )
    for at, name in enumerate(ids):
        if name is None or name == "" or is_nan(name):
            made["line"][at] = None
            made["error"][at] = made["error"][at] or f"column {plan.columns.id!r} has no value; each row needs a name"
    return made
