"""Types for rendering many rows: the roles of columns, invalid rows, and arguments for Ray."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping

OnError: TypeAlias = Literal["raise", "return"]


@dataclass(frozen=True, slots=True)
class Columns:
    """The names of the columns that contain a row's inputs, history, tools, label and id.

    A column that fills a slot is not also read as history, tools, label or id. For example, if the prompt has a slot
    ``history``, the column ``history`` does not contain earlier messages.

    Args:
        input: A mapping from slot names to column names, for columns that are not named after their slots. The key
            ``input`` stands for the user's text.
        history: The column that contains the earlier messages, as a list or JSON text.
        tools: The column that contains the tools, as a list or JSON text.
        label: The column that contains the expected response, for training formats only.
        id: The column that contains the row's name; if there is no such column, the name is ``row-<number>``.
    """

    input: Mapping[str, str] = field(default_factory=dict[str, str])
    history: str = "history"
    tools: str = "tools"
    label: str = "label"
    id: str = "id"


class RowFault(NamedTuple):
    """A row that cannot be parsed or rendered.

    Attributes:
        number: The row number, starting at 1.
        reason: The reason for the failure.
        lines: The first and last line number of the row in its file, starting at 1; None if rows are not lines.
        text: The row's text in the file; None if the file is not text. Invalid UTF-8 bytes become lone surrogates, as
            with Python's ``surrogateescape``.
    """

    number: int
    reason: str
    lines: tuple[int, int] | None = None
    text: str | None = None


class RayMap(TypedDict):
    """The arguments for ``ray.data.Dataset.map_batches``."""

    fn: type[Any]
    fn_constructor_args: tuple[Any]
    batch_format: Literal["pyarrow"]
