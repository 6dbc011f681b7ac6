"""What safety costs: flat prompts of honest text with the look-out for control sequences, against the same without.

    python benchmarks/safety.py                      a table, in per cent
    python benchmarks/safety.py --check --slack 2    exit with 1 where a row with a target costs more than twice that

These are the flat rows of ``benchmarks/speed.py``, with its tools and its way to measure: both sides in turn, the least
of several times. The texts are its English, which has the target; to compare, Chinese of the same length, and English
with signs that also begin control sequences.

Text that is not ASCII costs more: each look for a sign there, or for one of its disguises, stops wherever half of a
character is the same byte.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
from speed import TOOLS, TURNS, Row, measured

from lazyprompt import ChatPrompter, Markers

TARGET = 1.15
TIMES = 3
SIZE = len(TURNS[0][1])
CHINESE = (
    "您好，您在上个月二十八日订购的三件商品已经于星期一上午从我们的北方仓库发出，由顺丰快递负责运送。除非沿途遇到大雪或者道路封闭，"
    "包裹应当在星期五之前送到您填写的地址；如果当时家里没有人签收，快递员会把它放在小区门口的存放柜里，并用短信告诉您取件的密码。"
    "收到以后请先检查外箱是否完好，再打开确认数量和颜色。若发现破损、缺少或者与网页上的说明不符，请在七天之内拍照留存，联系客服办理退换，"
    "所需的运费由我们承担。另外提醒一句：仓库逢年过节会休息，那几天下的订单要等假期结束才能处理，还望见谅。祝您生活愉快！"
)
SIGNS = "# Title\nWhere a < b and b > c, see [1] and x[0] for <b>this</b>. "


class Asked(NamedTuple):
    """Honest turns and a question, by the kind of their text; and what safety may cost there, if that is said."""

    kind: str
    turns: list[list[str]]
    question: str = "And now?"
    target: float = 0


TEXTS = (
    Asked("English", TURNS, target=TARGET),
    Asked("Chinese", [[f"{n}：{CHINESE * 2}"[:SIZE], f"第{n}答：{CHINESE * 2}"[:SIZE]] for n in range(20)], "现在呢？"),
    # One turn in five has them.
    Asked(
        "with signs",
        [[question, answer if n % 5 else f"{SIGNS}{answer}"[:SIZE]] for n, (question, answer) in enumerate(TURNS)],
    ),
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
        asked.target,
        lambda: safe.generate_prompt(asked.question, asked.turns),
        lambda: bare.generate_prompt(asked.question, asked.turns),
    )


def percent(ratio: float) -> str:
    """A ratio as what comes on top, in per cent."""
    return f"{(ratio - 1) * 100:+.1f}%"


class Cost(NamedTuple):
    """A row, measured several times: the least microseconds of both sides, their ratio, and those of each time."""

    name: str
    target: float
    off: float
    safe: float
    ratio: float
    ratios: tuple[float, ...]

    @classmethod
    def of(cls, each: Row) -> Cost:
        """Measure a row."""
        found = [measured(each) for _ in range(TIMES)]
        off, safe = min(one.floor_us for one in found), min(one.us for one in found)
        return cls(each.name, each.target, off, safe, safe / off, tuple(sorted(one.ratio for one in found)))


def table(costs: list[Cost]) -> str:
    """The costs to be read."""
    lines = [f"{'':40}{'off us':>9}{'safe us':>9}{'cost':>9}{'target':>9}   from, to"]
    for name, target, off, safe, ratio, ratios in costs:
        spread = f"{percent(ratios[0])}, {percent(ratios[-1])}"
        wanted = percent(target) if target else ""
        lines.append(f"{name:40}{off:9.2f}{safe:9.2f}{percent(ratio):>9}{wanted:>9}   {spread}")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="exit with 1 where a target is missed")
    parser.add_argument("--slack", type=float, default=1.0, help="with --check: how many times the target is allowed")
    options = parser.parse_args()
    asked = [each for each in TEXTS if each.target or not options.check]
    costs = [Cost.of(row(work, each)) for work in PROMPTERS for each in asked]
    print(table(costs))
    missed = [each.name for each in costs if each.target and each.ratio - 1 > (each.target - 1) * options.slack]
    if options.check and missed:
        raise SystemExit(f"missed: {'; '.join(missed)}")


if __name__ == "__main__":
    main()
