"""What safety costs: flat prompts of honest text with the look-out for control sequences, against the same without.

    python benchmarks/safety.py                      a table, in per cent
    python benchmarks/safety.py --check --slack 2    exit with 1 where a row costs more than twice what it may

These are the flat rows of ``benchmarks/speed.py``, with its tools and its way to measure: both sides in turn, the least
of several times. The texts are its English, Chinese of the same length, and English with signs that also begin control
sequences.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
from speed import TOOLS, TURNS, WORDS, Result, Row, measured

from lazyprompt import ChatPrompter, Markers

TARGET = 1.15
SIZE = len(TURNS[0][1])
CHINESE = "订单已于星期一发出，除非仓库因假期关闭，否则应当在星期五之前送达；如有问题，请与客服联系。"
SIGNS = f"# Title\nWhere a < b and b > c, see [1] and `x = y[0]`: {WORDS}<b>soon</b>. "


class Asked(NamedTuple):
    """Honest turns and a question, by the kind of their text."""

    kind: str
    turns: list[list[str]]
    question: str = "And now?"


TEXTS = (
    Asked("English", TURNS),
    Asked("Chinese", [[f"{n}：{CHINESE * 9}"[:SIZE], f"第{n}答：{CHINESE * 9}"[:SIZE]] for n in range(20)], "现在呢？"),
    Asked("with signs", [[f"{n}: {SIGNS * 3}"[:SIZE], f"Answer {n}. {SIGNS * 3}"[:SIZE]] for n in range(20)]),
)
PROMPTERS = {
    "20 turns + 5 tools -> flat": ChatPrompter("Be brief.", tools=TOOLS),
    "20 turns -> ChatML": ChatPrompter("Be brief.").with_markers(Markers.for_model("chatml")),
}


def row(work: str, asked: Asked) -> Row:
    """One line of the table: a prompter that neutralises against the same that leaves text as it is."""
    safe, bare = (PROMPTERS[work].with_safety(safety) for safety in ("neutralize", "off"))
    return Row(
        f"{work}, {asked.kind}",
        TARGET,
        lambda: safe.generate_prompt(asked.question, asked.turns),
        lambda: bare.generate_prompt(asked.question, asked.turns),
    )


def cost(ratio: float) -> str:
    """A ratio as what comes on top, in per cent."""
    return f"{(ratio - 1) * 100:+.1f}%"


def table(results: list[Result]) -> str:
    """The results to be read."""
    lines = [f"{'':40}{'off us':>9}{'safe us':>9}{'least':>9}{'median':>9}{'target':>9}"]
    for name, off, safe, least, median, target, _ in results:
        lines.append(f"{name:40}{off:9.2f}{safe:9.2f}{cost(least):>9}{cost(median):>9}{cost(target):>9}")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="exit with 1 where a target is missed")
    parser.add_argument("--slack", type=float, default=1.0, help="with --check: how many times the target is allowed")
    options = parser.parse_args()
    results = [measured(row(work, asked)) for work in PROMPTERS for asked in TEXTS]
    print(table(results))
    missed = [result.name for result in results if result.ratio - 1 > (TARGET - 1) * options.slack]
    if options.check and missed:
        raise SystemExit(f"missed: {'; '.join(missed)}")


if __name__ == "__main__":
    main()
