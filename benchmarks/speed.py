"""The timer: a contender and its floor, compared and then timed in turn in one process.

Each runs in slices of two milliseconds, so that a busy machine slows both sides of a ratio. It uses only the standard
library, because peers are timed with it too, in environments without lazyprompt.
"""

from __future__ import annotations

import statistics
import timeit
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from floors import Work

REPEATS = 7
# A row with several shapes is timed briefly with each of them.
SHAPE_REPEATS, SHAPE_SECONDS = 3, 0.05
# A value of a row is the least of many short slices: some of them pass while nothing else runs.
VALUE_SECONDS, SLICE_SECONDS, FEWEST_SLICES = 0.2, 0.002, 3
# The texts of messages are at least this long in all rows; names, ids and descriptions of tools are shorter.
LONG_TEXT = 60


class Row(NamedTuple):
    """A contender and its floor.

    Attributes:
        name: The name of the row.
        contender: The function to time.
        floor: The same result, written by hand.
        shape: The shape of the conversation, if the row has several.
        texts_only: True to compare only the long texts of both results.
    """

    name: str
    contender: Callable[[], object]
    floor: Callable[[], object]
    shape: str = ""
    texts_only: bool = False


class Result(NamedTuple):
    """The times of a row.

    Attributes:
        row: The row.
        values: Pairs of seconds, floor and contender, in the order in which they were timed.
    """

    row: Row
    values: Sequence[tuple[float, float]]

    @property
    def floor_us(self) -> float:
        """The least microseconds of the floor."""
        return min(floor for floor, _ in self.values) * 1e6

    @property
    def us(self) -> float:
        """The least microseconds of the contender."""
        return min(contender for _, contender in self.values) * 1e6

    @property
    def ratio(self) -> float:
        """The contender's least time divided by the floor's."""
        return self.us / self.floor_us

    @property
    def median(self) -> float:
        """The ratio of the medians."""
        floor, contender = (statistics.median(pair[side] for pair in self.values) for side in (0, 1))
        return contender / floor

    @property
    def spread(self) -> tuple[float, float]:
        """The least and the greatest ratio of a pair."""
        ratios = [contender / floor for floor, contender in self.values]
        return min(ratios), max(ratios)


class DifferentError(Exception):
    """A contender's result differs from the floor's."""


def row_of(work: Work, contender: Callable[..., object], shape: str = "", *, texts_only: bool = False) -> Row:
    """Return the row of a contender.

    Args:
        work: The line of the table.
        contender: The function to time; it is called with the shape, if there is one.
        shape: The shape of the conversation.
        texts_only: True to compare only the long texts of both results.
    """
    both = (partial(contender, shape), partial(work.floor, shape)) if shape else (contender, work.floor)
    return Row(work.name, *both, shape, texts_only)


def compared(row: Row) -> Row:
    """Return the row if contender and floor agree.

    Raises:
        DifferentError: Their results differ.
    """
    made, wanted = row.contender(), row.floor()
    if row.texts_only:
        made, wanted = long_texts(made), long_texts(wanted)
    if made != wanted:
        raise DifferentError(f"{row.name} {row.shape}: {_difference(made, wanted)}")
    return row


def long_texts(value: object) -> list[object]:
    """Return the long texts of a result in order, whatever they stand in: peers add names, blocks and settings."""
    value = getattr(value, "content", value)
    if isinstance(value, bytes) or (isinstance(value, str) and len(value) >= LONG_TEXT):
        return [value.strip()]
    items = cast("dict[str, object]", value).values() if isinstance(value, dict) else value
    if isinstance(items, str) or not hasattr(items, "__iter__"):
        return []
    return [text for item in cast("list[object]", items) for text in long_texts(item)]


def timed(rows: Sequence[Row]) -> list[Result]:
    """Time all rows once, and so seven times: a bad moment spoils one value of a row."""
    takes = [_take(row) for row in rows]
    rounds = [[next(take, None) for take in takes] for _ in range(REPEATS)]
    return [
        Result(row, [value for value in values if value is not None])
        for row, values in zip(rows, zip(*rounds, strict=True), strict=True)
    ]


def _take(row: Row) -> Iterator[tuple[float, float]]:
    """Yield the values of a row: the least of some slices of the floor, and of the contender between them."""
    floor, contender = timeit.Timer(row.floor), timeit.Timer(row.contender)
    floors, contenders = loops_of(floor), loops_of(contender)
    both = floor.timeit(floors) + contender.timeit(contenders)
    repeats, seconds = (SHAPE_REPEATS, SHAPE_SECONDS) if row.shape else (REPEATS, VALUE_SECONDS)
    for _ in range(repeats):
        slices = [
            (floor.timeit(floors) / floors, contender.timeit(contenders) / contenders)
            for _ in range(max(FEWEST_SLICES, round(seconds / both)))
        ]
        yield min(each for each, _ in slices), min(each for _, each in slices)


def loops_of(timer: timeit.Timer) -> int:
    """Return how many runs fill a slice; the code is warm afterwards."""
    loops = 1
    while (seconds := timer.timeit(loops)) < SLICE_SECONDS / 4:
        loops *= 4
    return max(1, round(SLICE_SECONDS / seconds * loops))


def _difference(made: object, wanted: object, path: str = "") -> str:
    """Describe the first difference between two results."""
    if isinstance(made, dict) and isinstance(wanted, dict) and made.keys() == wanted.keys():
        pairs = [(f"{path}.{key}", made[key], wanted[key]) for key in wanted]
    elif isinstance(made, list) and isinstance(wanted, list) and len(made) == len(wanted):
        pairs = [(f"{path}[{at}]", one, other) for at, (one, other) in enumerate(zip(made, wanted, strict=True))]
    else:
        return f"got {made!s:.120}, expected {wanted!s:.120}, at {path.removeprefix('.') or 'the top'}"
    return next(_difference(one, other, place) for place, one, other in pairs if one != other)
