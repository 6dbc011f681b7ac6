"""Rows at hand: their prompts one at a time, and their lines as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from lazyprompt.batch.plan import RowPlan
from lazyprompt.batch.tables import rows_of
from lazyprompt.errors import BatchError, LazyPromptError
from lazyprompt.prompters.rows import Columns, OnError, RowFault

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lazyprompt._base.json import JsonObject
    from lazyprompt.batch.rows import Row
    from lazyprompt.files.prompty import Prompty
    from lazyprompt.prompters.prompter import Prompter

__all__ = ["RowPlan", "render_batch", "render_columns"]


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
        rows: As of :func:`lazyprompt.batch.tables.rows_of`.
        format: As of :meth:`RowPlan.of` (so with model, columns and params).
        model: The model.
        columns: The columns of slots, history and the like.
        params: Further fields of each request.
        on_error: ``raise`` to end the work at a row without a prompt; or ``return`` to have its fault in its place.

    Returns:
        The objects of the lines.

    Raises:
        BatchError: The rows are no rows, or the settings do not fit.
        FormatError: There is no such form.
    """
    if on_error not in ("raise", "return"):
        raise BatchError(f"on_error {on_error!r} is unknown; give raise or return")
    plan = RowPlan.of(prompter, format, model=model, columns=columns, params=params)
    return _objects(plan, rows_of(rows), on_error)


def _objects(plan: RowPlan, rows: Iterator[Row], on_error: OnError) -> Iterator[JsonObject | RowFault]:
    for number, row in enumerate(rows, 1):
        try:
            yield plan.made(number, row)
        except LazyPromptError as error:
            if on_error == "raise":
                raise
            yield RowFault(number, str(error))


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
        BatchError: The columns are of different lengths.
    """
    lines: list[str | None] = []
    errors: list[str | None] = []
    for number, row in enumerate(rows_of(columns), first):
        try:
            lines.append(plan.line(number, row)[:-1].decode())
            errors.append(None)
        except LazyPromptError as error:
            lines.append(None)
            errors.append(str(error))
    return {"line": lines, "error": errors}
