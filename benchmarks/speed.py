"""The timer: a contender and its floor in turn, in one process, compared before they are timed.

pyperf gives the clock, the statistics, what is known of the machine, and files that its own commands read (``python -m
pyperf stats``, ``compare_to``). Its ``Runner`` is not used: it times each function in processes of its own, one after
the other, and between the two a noisy machine has changed. Here both are timed in slices of two milliseconds, in turn.
pytest-benchmark times one after the other as well. The loop is timeit's, which pyperf's is made from.

Only the standard library and pyperf are used: peers are timed with this too, where this library is not installed.
"""

from __future__ import annotations

import statistics
import timeit
from functools import partial
from importlib import import_module
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

# What benchmarks/safety.py is made of beside the timer.
from work import TOOLS, TURNS, WORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from floors import Work

# It has no types of its own.
pyperf: Any = import_module("pyperf")

__all__ = ["TOOLS", "TURNS", "WORDS", "Ready", "Result", "Row", "compared", "measured", "row_of", "timed"]

REPEATS = 7
# A row that has shapes is timed briefly with each of them.
SHAPE_REPEATS, SHAPE_SECONDS = 3, 0.05
# A value of a row is the least of many short slices, those of floor and contender in turn: a short one may go through
# while a busy machine does nothing else, a long one does not.
VALUE_SECONDS, SLICE_SECONDS, FEWEST_SLICES = 0.2, 0.002, 3
# What takes longer than this is timed once: its peers take minutes.
ONCE_SECONDS = 4.0


class Row(NamedTuple):
    """One line of the table: what is measured, and against what.

    Attributes:
        name: What it is called.
        target: The ratio to reach; infinite where it is only looked at.
        contender: What is timed.
        floor: The same by hand.
        tidy: Takes the contender's harmless differences away, for the comparison; its time does not count.
        shape: The shape of its conversation, where it is one of several.
    """

    name: str
    target: float
    contender: Callable[[], object]
    floor: Callable[[], object]
    tidy: Callable[[Any], object] | None = None
    shape: str = ""


class Result(NamedTuple):
    """A row measured.

    Attributes:
        name: As of the row.
        floor_us: The least microseconds of the floor.
        us: The least microseconds of the contender.
        ratio: The contender's least time by the floor's.
        median: The same of the medians.
        target: As of the row.
        values: The seconds of floor and contender, in the order in which they were timed.
        shape: As of the row.
    """

    name: str
    floor_us: float
    us: float
    ratio: float
    median: float
    target: float
    values: Sequence[tuple[float, float]]
    shape: str = ""

    @property
    def spread(self) -> tuple[float, float]:
        """The least and the greatest ratio of a floor and the contender that was timed right behind it."""
        ratios = [contender / floor for floor, contender in self.values]
        return min(ratios), max(ratios)

    @property
    def benchmarks(self) -> list[Any]:
        """What was measured, as pyperf keeps it: floor and contender."""
        name = f"{self.name}: {self.shape}" if self.shape else self.name
        names = (f"{name}: floor", name)
        return [
            pyperf.Benchmark([pyperf.Run(times, metadata={"name": name})])
            for name, times in zip(names, zip(*self.values, strict=True), strict=True)
        ]


class DifferentError(Exception):
    """A contender's result is not the floor's, so that there is nothing to compare."""


def measured(row: Row) -> Result:
    """Time one row.

    Args:
        row: The row.

    Raises:
        DifferentError: The contender's result is not the floor's.
    """
    return timed([compared(row)])[0]


class Ready(NamedTuple):
    """A row that was compared, and how long that took.

    Attributes:
        row: The row.
        seconds: What the contender took for the first time.
    """

    row: Row
    seconds: float


def compared(row: Row) -> Ready:
    """Compare what contender and floor make.

    Args:
        row: The row.

    Raises:
        DifferentError: It is not the same.
    """
    begun = pyperf.perf_counter()
    made = row.contender()
    seconds: float = pyperf.perf_counter() - begun
    if row.tidy is not None:
        made = row.tidy(made)
    wanted = row.floor()
    if made != wanted:
        name = f"{row.name}, {row.shape}" if row.shape else row.name
        raise DifferentError(f"{name}: {_difference(made, wanted)}")
    return Ready(row, seconds)


def timed(ready: Sequence[Ready]) -> list[Result]:
    """Time rows that were compared, all of them once, and so seven times: a bad moment spoils one value of a row."""
    takes = [_take(each) for each in ready]
    rounds = [[next(take, None) for take in takes] for _ in range(REPEATS)]
    return [
        result_of(each.row, [value for value in values if value is not None])
        for each, values in zip(ready, zip(*rounds, strict=True), strict=True)
    ]


def _take(ready: Ready) -> Iterator[tuple[float, float]]:
    """The values of a row, one at a time: the least of some slices of the floor, and of the contender between them."""
    if ready.seconds > ONCE_SECONDS:
        yield timeit.timeit(ready.row.floor, number=1), ready.seconds
        return
    floor, contender = (
        timeit.Timer(work, timer=pyperf.perf_counter) for work in (ready.row.floor, ready.row.contender)
    )
    floors, contenders = loops_of(floor), loops_of(contender)
    both = floor.timeit(floors) + contender.timeit(contenders)
    repeats, seconds = (SHAPE_REPEATS, SHAPE_SECONDS) if ready.row.shape else (REPEATS, VALUE_SECONDS)
    for _ in range(repeats):
        slices = [
            (floor.timeit(floors) / floors, contender.timeit(contenders) / contenders)
            for _ in range(max(FEWEST_SLICES, round(seconds / both)))
        ]
        yield min(each for each, _ in slices), min(each for _, each in slices)


def result_of(row: Row, values: Sequence[tuple[float, float]]) -> Result:
    """The figures of seconds that were measured in pairs, floor and contender."""
    floors, contenders = zip(*values, strict=True)
    least = min(contenders) / min(floors)
    median = statistics.median(contenders) / statistics.median(floors)
    return Result(row.name, min(floors) * 1e6, min(contenders) * 1e6, least, median, row.target, values, row.shape)


def row_of(
    work: Work, contender: Callable[..., object], tidy: Callable[[Any], object] | None = None, shape: str = ""
) -> Row:
    """A line of the table of all work, done by a contender.

    Args:
        work: The line.
        contender: What does it.
        tidy: Takes the contender's harmless differences away, for the comparison.
        shape: The shape of its conversation, where it is one of several.
    """
    target = inf if work.target is None else work.target
    both = (partial(contender, shape), partial(work.floor, shape)) if shape else (contender, work.floor)
    return Row(work.name, target, *both, tidy, shape)


def loops_of(timer: timeit.Timer) -> int:
    """How often some work has to be done to take a slice of time; it is warm then."""
    loops = 1
    while (seconds := timer.timeit(loops)) < SLICE_SECONDS / 4:
        loops *= 4
    return max(1, round(SLICE_SECONDS / seconds * loops))


def _difference(made: object, wanted: object, path: str = "") -> str:
    """Where two results first differ, in a few words."""
    if isinstance(made, dict) and isinstance(wanted, dict) and made.keys() == wanted.keys():
        pairs = [(f"{path}.{key}", made[key], wanted[key]) for key in wanted]
    elif isinstance(made, list) and isinstance(wanted, list) and len(made) == len(wanted):
        pairs = [(f"{path}[{at}]", one, other) for at, (one, other) in enumerate(zip(made, wanted, strict=True))]
    else:
        return f"it makes {made!s:.120}, and the floor {wanted!s:.120}, at {path.removeprefix('.') or 'the top'}"
    return next(_difference(one, other, place) for place, one, other in pairs if one != other)
