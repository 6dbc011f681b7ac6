"""What rendering holds in memory: at most twice its output, nothing more after many renders.

    python benchmarks/memory.py                        200,000 renders
    python benchmarks/memory.py --renders 10000000     ten million
    python benchmarks/memory.py --check                exit with 1 where a target is missed

The peak is that of Python's own memory (tracemalloc) while one prompt is made, all caches warm, against the size of
what comes out: each object in it once, but for what the prompt shares with the input (texts cannot be changed, and are
not copied). Growth is how many blocks of memory Python holds more after the second half of the renders than after the
first, each render of another input; beside it, what the process holds.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "tests"), str(HERE.parent)]

from work import ORDERS, SLOTS, TOOLS, TURNS  # noqa: E402 - found on the path that is made above

from lazyprompt import ChatFormatter, ChatPrompter  # noqa: E402 - the same
from lazyprompt.messages.tools import ToolSet  # noqa: E402 - the same

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_TIMES = 2.0
# What a call takes whatever comes out: its frames and a few short lists. A prompt of one line is smaller than these.
CALL_KB = 8
# What may be left over: the interpreter's own free lists, and the process's memory in pieces of its own.
MOST_BLOCKS, MOST_PROCESS_KB = 200, 1_024
STATM = Path("/proc/self/statm")


class Work(NamedTuple):
    """Something that is rendered.

    Attributes:
        name: What it is.
        make: Renders it for the input of a number.
    """

    name: str
    make: Callable[[int], object]


def works() -> list[Work]:
    """Flat text, dicts and payloads."""
    chat = ChatPrompter("Be brief.", tools=TOOLS)
    slotted = ChatPrompter({"system": "You answer as {role}.", "user": "{context}\n{question}"})
    anthropic, gemini, tools = ChatFormatter("anthropic"), ChatFormatter("gemini"), ToolSet.of(TOOLS)

    def asked(number: int) -> list[dict[str, object]]:
        return [*ORDERS, {"role": "user", "content": f"And order {number}?"}]

    return [
        Work(
            "3 slots -> dict", lambda number: slotted.generate_prompt({**SLOTS, "role": f"{number}"}, format="openai")
        ),
        Work("3 slots -> flat", lambda number: slotted.generate_prompt({**SLOTS, "role": f"{number}"})),
        Work("20 turns + 5 tools -> dict", lambda number: chat.generate_prompt(f"{number}?", TURNS, format="openai")),
        Work("20 turns + 5 tools -> flat", lambda number: chat.generate_prompt(f"{number}?", TURNS)),
        Work("40 messages + tools -> anthropic", lambda number: anthropic.format(*asked(number), tools=tools)),
        Work("40 messages + tools -> gemini", lambda number: gemini.format(*asked(number), tools=tools)),
    ]


class Held(NamedTuple):
    """What one render holds.

    Attributes:
        output: The bytes of what comes out, without what is shared with the input.
        peak: The bytes at the peak.
    """

    output: int
    peak: int

    @property
    def times(self) -> float:
        """The peak by the output."""
        return self.peak / self.output

    @property
    def fits(self) -> bool:
        """Whether it is within its target."""
        return self.peak <= MOST_TIMES * self.output or self.peak <= CALL_KB * 1024


def held(work: Work) -> Held:
    """Measure one render."""
    for number in range(3):
        work.make(number)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    made = work.make(3)
    after, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del made
    return Held(after - before, peak - before)


class Growth(NamedTuple):
    """What is more in the memory after the second half of many renders than after the first.

    Attributes:
        blocks: Blocks of Python's own memory.
        process_kb: What the process holds; 0 where the system does not tell.
    """

    blocks: int
    process_kb: float

    @property
    def fits(self) -> bool:
        """Whether it is within its target."""
        return self.blocks <= MOST_BLOCKS and self.process_kb <= MOST_PROCESS_KB


def growth(work: Work, renders: int) -> Growth:
    """Render many times, each time another input."""
    found: list[tuple[int, float]] = []
    for half in (range(renders // 2), range(renders // 2, renders)):
        for number in half:
            work.make(number)
        gc.collect()
        found.append((sys.getallocatedblocks(), _process_kb()))
    (blocks, process), (blocks_later, process_later) = found
    return Growth(blocks_later - blocks, process_later - process)


def _process_kb() -> float:
    return int(STATM.read_text(encoding="ascii").split()[1]) * 4.0 if STATM.exists() else 0.0


def main() -> None:
    """Measure, print, write, check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--renders", type=int, default=200_000, help="how many, over all rows")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a target is missed")
    options = parser.parse_args()
    every = works()
    late: list[str] = []
    print(f"{'':36}{'output kB':>10}{'peak':>7}{'times':>7}{'blocks':>8}{'process kB':>12}")
    for work in every:
        one, more = held(work), growth(work, options.renders // len(every))
        sizes = f"{one.output / 1024:10.1f}{one.peak / 1024:7.1f}{one.times:7.2f}"
        print(f"{work.name:36}{sizes}{more.blocks:8d}{more.process_kb:12.0f}", flush=True)
        if not (one.fits and more.fits):
            late.append(work.name)
    if options.check and late:
        sys.exit(f"too much memory: {'; '.join(late)}")


if __name__ == "__main__":
    main()
