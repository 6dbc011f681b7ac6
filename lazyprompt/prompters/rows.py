"""Types of a prompter's work on many rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping

OnError: TypeAlias = Literal["raise", "return"]


@dataclass(frozen=True, slots=True)
class Columns:
    """Roles of a row's columns.

    A column that fills a slot is nothing else: where ``history`` is a slot, no column is the history.

    Args:
        input: The column of each slot (and of ``input``, what the user says), where it has another name.
        history: The column of the earlier messages: a list, or JSON of one.
        tools: The column of the tools that the model may call: a list, or JSON of one.
        label: The column of the answer, for the forms to train with; no other form looks at it.
        id: The column of the name of the row; a row without one is ``row-<number>``.
    """

    input: Mapping[str, str] = field(default_factory=dict[str, str])
    history: str = "history"
    tools: str = "tools"
    label: str = "label"
    id: str = "id"


class RowFault(NamedTuple):
    """A row of a file that cannot be read, or a row that has no prompt.

    Attributes:
        number: The number of the row, from 1.
        reason: What is wrong with it.
        lines: The first and the last line of the row in its file, from 1; None where rows are not lines.
        text: The row as the file contains it; None if the file is not text. Bytes that are not UTF-8 are lone
            surrogates, as Python's ``surrogateescape`` writes them.
    """

    number: int
    reason: str
    lines: tuple[int, int] | None = None
    text: str | None = None


class RayMap(TypedDict):
    """Arguments of ``ray.data.Dataset.map_batches``."""

    fn: type[Any]
    fn_constructor_args: tuple[Any]
    batch_format: Literal["pyarrow"]
