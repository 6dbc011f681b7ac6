"""Write the table of docs/internals/attacks.md from the figures that benchmarks/forged_turns.py kept.

python docs/make_attacks.py
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests")]

from figures import between, committed  # noqa: E402 - found on the path that is made above
from forged_turns import table  # noqa: E402 - the same

PAGE = ROOT / "docs" / "internals" / "attacks.md"


def page() -> str:
    """The whole page; what is not in the table stays as it is."""
    shown = f"```text\n{table(committed()['attacks'])}\n```"
    return between(PAGE.read_text(encoding="utf-8"), "attacks: made by docs/make_attacks.py", shown)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
