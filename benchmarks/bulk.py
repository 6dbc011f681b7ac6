"""Rows to lines of an OpenAI Batch file, against the loop that one would write by hand with the same JSON library.

    python benchmarks/bulk.py                     100,000 rows
    python benchmarks/bulk.py --rows 1000000      a million
    python benchmarks/bulk.py --json              the results as JSON
    python benchmarks/bulk.py --check             exit with 1 where a target is missed

Each way runs in a process of its own, in turn with the other, so that a noisy machine disturbs both. Before anything is
timed, what both wrote is compared byte for byte. Timed is the loop: from the first row to the closed file, without
imports, and with the making of the plan. Rows are either at hand (a thousand dicts, again and again) or read from a
JSON Lines file. The ratio is one of processor time, which hardly knows who else is on the machine; that of the clock
stands beside it. Memory is the peak of the process over that of a Python that does nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from filecmp import cmp
from importlib import import_module
from importlib.util import find_spec
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

REPEATS = 5
TARGET_RATIO = 1.5
TARGET_MB = 150
MODEL = "gpt-4o-mini"
LIBRARIES = ("json", "orjson")
SOURCES = ("hand", "file")
WORDS = "the order was sent on Monday and should arrive by Friday unless the depot is closed; 订单已发出。 "


def some_rows(count: int) -> list[dict[str, object]]:
    """Rows of about 200 characters, no two alike."""
    return [
        {
            "role": f"a librarian of branch {at}",
            "context": f'Order "{at}": {WORDS * (1 + at % 3)}\n',
            "question": f"When does number {at} arrive?",
            "note": at,
        }
        for at in range(count)
    ]


def rows_of(source: Path | None, count: int, loads: Callable[[bytes], Any]) -> Iterable[Mapping[str, Any]]:
    """The rows, as a loop written by hand has them."""
    if source is None:
        return islice(cycle(some_rows(1000)), count)
    return lines_of(source, loads)


def lines_of(source: Path, loads: Callable[[bytes], Any]) -> Iterator[Mapping[str, Any]]:
    """The rows of a file, read by hand."""
    with source.open("rb") as file:
        for line in file:
            yield loads(line)


def by_hand(library: str, source: Path | None, count: int, target: Path) -> None:
    """The loop as one writes it."""
    if library == "orjson":
        import orjson  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415 - it may not be there

        loads: Callable[[bytes], Any] = orjson.loads
        option = orjson.OPT_APPEND_NEWLINE

        def dumps(value: object) -> bytes:
            made: bytes = orjson.dumps(value, option=option)
            return made
    else:
        loads = json.loads

        def dumps(value: object) -> bytes:
            return (json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n").encode()

    with target.open("wb") as file:
        for number, row in enumerate(rows_of(source, count, loads), 1):
            file.write(
                dumps(
                    {
                        "custom_id": f"row-{number}",
                        "method": "POST",
                        "url": "/v1/chat/completions",
                        "body": {
                            "model": MODEL,
                            "messages": [
                                {"role": "system", "content": f"You answer as {row['role']}."},
                                {"role": "user", "content": f"Context: {row['context']}\nQuestion: {row['question']}"},
                            ],
                        },
                    }
                )
            )


def by_plan(source: Path | None, count: int, target: Path) -> None:
    """The same with this package."""
    from lazyprompt import ChatPrompter  # noqa: PLC0415 - the other way is without it
    from lazyprompt.batch.render import RowPlan  # noqa: PLC0415 - as above
    from lazyprompt.batch.rows import read_rows  # noqa: PLC0415 - as above
    from lazyprompt.prompters.rows import RowFault  # noqa: PLC0415 - as above

    prompter = ChatPrompter(
        {"system": "You answer as {role}.", "user": "Context: {context}\nQuestion: {question}"}, system=""
    )
    plan = RowPlan.of(prompter, "openai-batch", model=MODEL)
    numbered = enumerate(rows_of(None, count, json.loads), 1) if source is None else read_rows(source)
    with target.open("wb") as file:
        for number, row in numbered:
            if isinstance(row, RowFault):
                raise SystemExit(row.reason)
            file.write(plan.line(number, row))


def peak_mb() -> float:
    """The peak of this process. What getrusage says may be the peak of the process that started it."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    import resource  # noqa: PLC0415 - Windows has none

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def work(way: str, library: str, source: Path | None, count: int, target: Path) -> None:
    """What a process of its own does: one way, once. It prints what :class:`Run` has."""
    if library != "orjson":
        # Even where orjson is installed: that is what it is like without.
        sys.modules["orjson"] = None  # type: ignore[assignment]
    if way == "nothing":
        print(json.dumps(Run(0.0, 0.0, peak_mb())))
        return
    if way == "plan":
        # Imports are not timed.
        import_module("lazyprompt.batch.render")
    began = time.process_time(), time.perf_counter()
    if way == "plan":
        by_plan(source, count, target)
    else:
        by_hand(library, source, count, target)
    print(json.dumps(Run(time.process_time() - began[0], time.perf_counter() - began[1], peak_mb())))


class Run(NamedTuple):
    """One run: seconds by the processor and by the clock, and the peak of memory in megabytes."""

    cpu: float
    clock: float
    mb: float


class Result(NamedTuple):
    """What was measured of one library and one source of rows.

    Attributes:
        library: The JSON library.
        source: Where rows are from.
        hand: Rows a second of the loop by hand, at best, by the clock.
        ours: Rows a second of this package, the same way.
        ratio: How many times the loop's processor time it takes, the best of both.
        median: The same of the medians.
        clock: The same by the clock, the best of both.
        mb: The peak over an idle Python, in megabytes.
        hand_mb: The same of the loop.
    """

    library: str
    source: str
    hand: float
    ours: float
    ratio: float
    median: float
    clock: float
    mb: float
    hand_mb: float


def measured(library: str, source: str, count: int, folder: Path) -> Result:
    """Run both ways in turn, each in its own process."""
    table = None
    if source == "file":
        table = folder / "rows.jsonl"
        with table.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in islice(cycle(some_rows(1000)), count))
    targets = {way: folder / f"{way}.jsonl" for way in ("plan", "hand")}

    def run(way: str) -> Run:
        target = targets.get(way, folder)
        command = [sys.executable, __file__, "--work", way, library, str(table or ""), str(count), str(target)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - this very file
        return Run(*json.loads(done.stdout))

    idle = run("nothing").mb
    runs = {way: [run(way)] for way in targets}
    if not cmp(targets["plan"], targets["hand"], shallow=False):
        raise SystemExit(f"{library}, rows from {source}: the two wrote different files")
    for _ in range(REPEATS):
        for way, found in runs.items():
            found.append(run(way))
    # The first run warmed the disk.
    plan, hand = runs["plan"][1:], runs["hand"][1:]
    clock, clock_by_hand = min(one.clock for one in plan), min(one.clock for one in hand)
    return Result(
        library,
        source,
        count / clock_by_hand,
        count / clock,
        min(one.cpu for one in plan) / min(one.cpu for one in hand),
        statistics.median(one.cpu for one in plan) / statistics.median(one.cpu for one in hand),
        clock / clock_by_hand,
        max(one.mb for one in plan) - idle,
        max(one.mb for one in hand) - idle,
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000, help="how many rows")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a target is missed")
    parser.add_argument("--work", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        way, library, source, count, target = options.work
        work(way, library, Path(source) if source else None, int(count), Path(target))
        return
    libraries = [library for library in LIBRARIES if find_spec(library) is not None]
    results: list[Result] = []
    for library in libraries:
        for source in SOURCES:
            with tempfile.TemporaryDirectory() as folder:
                results.append(measured(library, source, options.rows, Path(folder)))
    if options.json:
        print(json.dumps({"rows": options.rows, "results": [result._asdict() for result in results]}, indent=1))
    else:
        print(f"{options.rows:,} rows to an OpenAI Batch file; targets: {TARGET_RATIO} times the loop, {TARGET_MB} MB")
        heads = ("by hand/s", "ours/s", "ratio", "median", "clock", "MB", "by hand")
        print(f"{'library':9}{'rows from':10}" + "".join(f"{head:>10}" for head in heads))
        for library, source, hand, ours, *ratios, mb, hand_mb in results:
            figures = [
                f"{hand:,.0f}",
                f"{ours:,.0f}",
                *(f"{each:.2f}" for each in ratios),
                f"{mb:.1f}",
                f"{hand_mb:.1f}",
            ]
            print(f"{library:9}{source:10}" + "".join(f"{figure:>10}" for figure in figures))
    missed = [result for result in results if result.ratio > TARGET_RATIO or result.mb > TARGET_MB]
    if options.check and missed:
        raise SystemExit("missed: " + ", ".join(f"{result.library} from {result.source}" for result in missed))


if __name__ == "__main__":
    main()
