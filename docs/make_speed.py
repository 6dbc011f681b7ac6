"""Write the tables of docs/reference/speed.md from the kept figures; that of caches is benchmarks/memory.py's.

python docs/make_speed.py
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests")]

from figures import PAGE, between, committed, peers_table, rows_table  # noqa: E402 - found on the path that is made above
from recorded import recorded  # noqa: E402 - the same

if TYPE_CHECKING:
    from recorded import Modules, Span, Templates, TokenIds

SHOWN = {"openai": "OpenAI", "anthropic": "Anthropic", "gemini": "Gemini"}


def templates_table(found: Templates) -> str:
    """Chat templates beside transformers."""
    plain, calls = found["plain"], found["calls"]
    rows = (
        ("a plain chat", "as a share of the time", plain),
        ("a chat with tools, a call and its result", "as a share of the time", calls),
    )
    lines = [f"| {what} ({each['of']} templates), {unit} | {_span(each)} |" for what, unit, each in rows]
    return "\n".join(("| | ratio | target |", "|---|---|---|", *lines))


def ids_table(found: TokenIds) -> str:
    """Ids of a chat that grows, beside transformers."""
    what = f"{found['tokens']:,} ids of a chat that grows to 60 turns, with `TokenCache`"
    lines = (
        f"| {what} | {found['cached']:g} | {found['target']:g} |",
        f"| without it | {found['without']:g} | |",
    )
    return "\n".join(("| as a share of transformers' time | ratio | target |", "|---|---|---|", *lines))


def _span(found: Span) -> str:
    missed = f": missed by {found['missed']}" if found["missed"] else ""
    return f"{found['low']:g}–{found['high']:g}, median {found['median']:g} | {found['target']:g}{missed}"


def modules_table(found: Modules) -> str:
    """What a module adds to a call."""
    added = [f"{low * 100:g}–{high * 100:g} %" for low, high in found["added"].values()]
    stall = [f"{low:g}–{high:g} ms" for low, high in found["stall"].values()]
    rows = (
        ("", *(SHOWN[source] for source in found["added"]), "target"),
        ("added to the median call, as a share of 10 ms", *added, f"{found['most_added'] * 100:g} %"),
        ("longest stall of the loop", *stall, f"{found['most_stall']:g} ms"),
    )
    head, *others = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join((head, "|---" * (len(found["added"]) + 2) + "|", *others))


def page() -> str:
    """The whole page; what is in no table stays as it is."""
    figures, others = committed(), recorded()
    tables = {
        "rows: made by benchmarks/run.py": rows_table(figures),
        "peers: made by benchmarks/run.py": peers_table(figures),
        "templates: made by docs/make_speed.py": templates_table(others["templates"]),
        "ids: made by docs/make_speed.py": ids_table(others["token_ids"]),
        "modules: made by docs/make_speed.py": modules_table(others["modules"]),
    }
    text = PAGE.read_text(encoding="utf-8")
    for name, table in tables.items():
        text = between(text, name, table)
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
