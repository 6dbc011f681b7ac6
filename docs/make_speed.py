"""Write the tables of docs/reference/speed.md from the stored figures.

python docs/make_speed.py
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "speed.md"
sys.path.insert(0, str(ROOT / "benchmarks"))

from figures import between, committed, peers_table, rows_table  # noqa: E402 - found on the path that is made above


def others_table(figures: dict[str, Any]) -> str:
    """Return the figures of the other benchmarks, in Markdown."""
    templates, ids, modules = (figures[part] for part in ("templates", "token_ids", "modules"))
    lines = ["| work | figure | limit |", "|---|---|---|"]
    for kind, what in (("plain", "plain chat"), ("calls", "chat with tools")):
        each = templates[kind]
        share = f"{each['low']:g}–{each['high']:g}, median {each['median']:g}"
        lines.append(f"| {what}, {each['of']} chat templates | {share} | 1, median 0.67 |")
    lines.append(f"| {ids['tokens']:,} token ids of a chat of 60 turns | {ids['cached']:g} | 0.33 |")
    for part, what, limit in (
        ("added", "time added by a module to a call of 10 ms, as a share", "0.05"),
        ("stall", "longest time that 500 calls block the event loop, in ms", "50"),
    ):
        values = [each for span in modules[part].values() for each in span]
        lines.append(f"| {what} | {min(values):g}–{max(values):g} | {limit} |")
    return "\n".join(lines)


def page() -> str:
    """Return the whole page; only its tables change."""
    figures: Any = committed()
    tables = {"rows": rows_table(figures), "others": others_table(figures), "peers": peers_table(figures)}
    text = PAGE.read_text(encoding="utf-8")
    for name, table in tables.items():
        text = between(text, f"{name}: made by docs/make_speed.py", table)
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
