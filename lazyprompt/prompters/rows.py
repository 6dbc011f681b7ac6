"""Types for rendering many rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping

OnError: TypeAlias = Literal["raise", "return"]


@dataclass(frozen=True, slots=True)
class Columns:
    """The roles of a row's columns.

    A column that fills a slot has no other role: if ``history`` is a slot, no column is the history.

    Args:
        input: The columns of slots, by slot name, if they have another name; ``input`` is the user's text.
        history: The column of the earlier messages: a list, or a list as JSON.
        tools: The column of the tools: a list, or a list as JSON.
        label: The column of the answer, for training formats only.
        id: The column of the row's name; by default, the name is ``row-<number>``.
    """

    input: Mapping[str, str] = field(default_factory=dict[str, str])
    history: str = "history"
    tools: str = "tools"
    label: str = "label"
    id: str = "id"


class RowFault(NamedTuple):
    """A row that cannot be parsed or rendered.

    Attributes:
        number: The number of the row, from 1.
        reason: The fault.
        lines: The first and last line of the row in its file, from 1; None if rows are not lines.
        text: The row's text in the file; None if the file is not text. Bytes that are not UTF-8 become lone
            surrogates, as with Python's ``surrogateescape``.
    """

    number: int
    reason: str
    lines: tuple[int, int] | None = None
    text: str | None = None


class RayMap(TypedDict):
    """The arguments of ``ray.data.Dataset.map_batches``."""

    fn: type[Any]
    fn_constructor_args: tuple[Any]
    batch_format: Literal["pyarrow"]
