"""The cost of safety: flat prompts of honest text that are searched for control sequences, and the same without.

    python benchmarks/safety.py                      a table, in per cent
    python benchmarks/safety.py --check --slack 2    exit with 1 if a row with a limit costs more than twice that

Both sides are timed in turn, as in run.py. English has a limit. Chinese costs more, because a search for a marker in
text that is not ASCII stops at every half of a character that is the same byte.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
from speed import Row, compared, timed
from work import TOOLS, TURNS

from lazyprompt import ChatPrompter, Markers

LIMIT = 0.5
SIZE = len(TURNS[0][1])
CHINESE = (
    "您好，您在上个月二十八日订购的三件商品已经于星期一上午从我们的北方仓库发出，由顺丰快递负责运送。除非沿途遇到大雪或者道路封闭，"
    "包裹应当在星期五之前送到您填写的地址；如果当时家里没有人签收，快递员会把它放在小区门口的存放柜里，并用短信告诉您取件的密码。"
    "收到以后请先检查外箱是否完好，再打开确认数量和颜色。若发现破损、缺少或者与网页上的说明不符，请在七天之内拍照留存，联系客服办理退换，"
    "所需的运费由我们承担。另外提醒一句：仓库逢年过节会休息，那几天下的订单要等假期结束才能处理，还望见谅。祝您生活愉快！"
)


class Asked(NamedTuple):
    """Turns of honest text and a question; with or without a limit."""

    kind: str
    turns: list[list[str]]
    question: str
    limited: bool = False


TEXTS = (
    Asked("English", TURNS, "And now?", limited=True),
    Asked("Chinese", [[f"{n}：{CHINESE * 2}"[:SIZE], f"第{n}答：{CHINESE * 2}"[:SIZE]] for n in range(20)], "现在呢？"),
)
PROMPTERS = {
    "20 turns + 5 tools -> flat": ChatPrompter("Be brief.", tools=TOOLS),
    "20 turns -> ChatML": ChatPrompter("Be brief.").with_markers(Markers.for_model("chatml")),
}


def row(work: str, asked: Asked) -> Row:
    """Return a line of the table: a prompter with safety, and the same without."""
    safe, bare = (PROMPTERS[work].with_safety(safety) for safety in ("neutralize", "off"))
    return Row(
        f"{work}, {asked.kind}",
        lambda: safe.generate_prompt(asked.question, asked.turns),
        lambda: bare.generate_prompt(asked.question, asked.turns),
    )


def main() -> None:
    """Measure, print, check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a limit is exceeded")
    parser.add_argument("--slack", type=float, default=1.0, help="with --check: how many times the limit is allowed")
    options = parser.parse_args()
    rows = {row(work, each): each.limited for work in PROMPTERS for each in TEXTS if each.limited or not options.check}
    missed: list[str] = []
    print(f"{'':40}{'off us':>9}{'safe us':>9}{'cost':>9}")
    for result in timed([compared(each) for each in rows]):
        cost = result.ratio - 1
        print(f"{result.row.name:40}{result.floor_us:9.2f}{result.us:9.2f}{cost:+9.1%}")
        if rows[result.row] and cost > LIMIT * options.slack:
            missed.append(result.row.name)
    if options.check and missed:
        raise SystemExit(f"more than {LIMIT:.0%}: {'; '.join(missed)}")


if __name__ == "__main__":
    main()
