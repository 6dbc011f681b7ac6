"""What rendering holds in memory: at most twice its output, nothing more after many renders, and caches with bounds.

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
from typing import TYPE_CHECKING

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from shapes import ORDERS  # noqa: E402 - found on the path that is made above
from work import SLOTS, TOOLS, TURNS  # noqa: E402 - the same

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


def works() -> dict[str, Callable[[int], object]]:
    """Return what is rendered by its name; each is called with the number of its input."""
    chat = ChatPrompter("Be brief.", tools=TOOLS)
    slotted = ChatPrompter({"system": "You answer as {role}.", "user": "{context}\n{question}"})
    anthropic, gemini, tools = ChatFormatter("anthropic"), ChatFormatter("gemini"), ToolSet.of(TOOLS)

    def asked(number: int) -> list[dict[str, object]]:
        return [*ORDERS, {"role": "user", "content": f"And order {number}?"}]

    return {
        "3 slots -> dict": lambda number: slotted.generate_prompt({**SLOTS, "role": f"{number}"}, format="openai"),
        "3 slots -> flat": lambda number: slotted.generate_prompt({**SLOTS, "role": f"{number}"}),
        "20 turns + 5 tools -> dict": lambda number: chat.generate_prompt(f"{number}?", TURNS, format="openai"),
        "20 turns + 5 tools -> flat": lambda number: chat.generate_prompt(f"{number}?", TURNS),
        "40 messages + tools -> anthropic": lambda number: anthropic.format(*asked(number), tools=tools),
        "40 messages + tools -> gemini": lambda number: gemini.format(*asked(number), tools=tools),
    }


def held(make: Callable[[int], object]) -> tuple[int, int]:
    """Return the bytes of one result, without what it shares with the input, and the bytes at the peak."""
    for number in range(3):
        make(number)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    made = make(3)
    after, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del made
    return after - before, peak - before


def growth(make: Callable[[int], object], renders: int) -> tuple[int, float]:
    """Return the blocks and the process's kB that the second half of many different renders adds."""
    found: list[tuple[int, float]] = []
    for half in (range(renders // 2), range(renders // 2, renders)):
        for number in half:
            make(number)
        gc.collect()
        process = int(STATM.read_text(encoding="ascii").split()[1]) * 4.0 if STATM.exists() else 0.0
        found.append((sys.getallocatedblocks(), process))
    (blocks, process), (blocks_later, process_later) = found
    return blocks_later - blocks, process_later - process


def main() -> None:
    """Measure, print, write, check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--renders", type=int, default=200_000, help="how many, over all rows")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a target is missed")
    options = parser.parse_args()
    every = works()
    late: list[str] = []
    print(f"{'':36}{'output kB':>10}{'peak':>7}{'times':>7}{'blocks':>8}{'process kB':>12}")
    for name, make in every.items():
        (output, peak), (blocks, process) = held(make), growth(make, options.renders // len(every))
        sizes = f"{output / 1024:10.1f}{peak / 1024:7.1f}{peak / output:7.2f}"
        print(f"{name:36}{sizes}{blocks:8d}{process:12.0f}", flush=True)
        if peak > max(MOST_TIMES * output, CALL_KB * 1024) or blocks > MOST_BLOCKS or process > MOST_PROCESS_KB:
            late.append(name)
    if options.check and late:
        sys.exit(f"too much memory: {'; '.join(late)}")


if __name__ == "__main__":
    main()
