"""The kept figures, in figures.json, and the tables that are made of them.

Each benchmark with ``--write`` replaces its own part: run.py, templates.py, token_ids.py, module_calls.py and
forged_turns.py. Then ``python docs/make_speed.py`` and ``python docs/make_attacks.py`` write the tables.
"""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, cast

from floors import WORK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from floors import Work
    from speed import Result

FILE = Path(__file__).with_name("figures.json")


class Ratios(TypedDict):
    """The figures of a row: ratios of contender to floor, and the slowest shape if it has several."""

    min: float
    median: float
    more_ms: float
    shape: NotRequired[str]


class PeerFigures(TypedDict):
    """A peer's version, its rows by their keys, and the reasons for rows that failed."""

    version: str
    rows: dict[str, Ratios]
    failed: list[str]


class Figures(TypedDict):
    """The file; the last four parts are those of the benchmarks of these names."""

    machine: str
    rows: dict[str, Ratios]
    growths: dict[str, float]
    peers: dict[str, PeerFigures]
    templates: dict[str, Any]
    token_ids: dict[str, Any]
    modules: dict[str, Any]
    attacks: dict[str, Any]


def committed() -> Figures:
    """Return the kept figures."""
    return cast("Figures", json.loads(FILE.read_text(encoding="utf-8")))


def keep(figures: Figures) -> None:
    """Write the figures."""
    FILE.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def machine() -> str:
    """Return the interpreter, the system and the number of cores."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{python} on {platform.system()}, {os.cpu_count()} cores"


def ratios(result: Result) -> Ratios:
    """Return the figures of a result."""
    kept = (result.ratio, result.median, (result.us - result.floor_us) / 1000)
    least, middle, more = (float(f"{each:.4g}") for each in kept)
    found: Ratios = {"min": least, "median": middle, "more_ms": more}
    if result.row.shape:
        found["shape"] = result.row.shape
    return found


def misses(found: Mapping[str, Ratios], slack: float) -> dict[str, str]:
    """Return what is wrong with the rows that exceed their limit, by their keys.

    Args:
        found: The rows by their keys.
        slack: How many times its limit a row may have.
    """
    return {
        work.key: f"{work.name}: {shown(work, found[work.key])}, and the limit is {limit(work)}"
        for work in WORK
        if work.key in found and value(work, found[work.key]) > work.limit * slack
    }


def value(work: Work, row: Ratios) -> float:
    """Return the figure of a row that its limit applies to."""
    return row["more_ms"] if work.in_ms else row["min"]


def shown(work: Work, row: Ratios) -> str:
    """Return the figure with its unit, and the shape that it belongs to."""
    if work.in_ms:
        return f"{row['more_ms']:,.0f} ms"
    digits = f"{row['min']:.2f}" if row["min"] < 10 else f"{row['min']:,.0f}"  # noqa: PLR2004 - digits after the point say nothing from here on
    return f"{digits}, {row['shape']}" if "shape" in row else digits


def limit(work: Work) -> str:
    """Return the limit of a row with its unit."""
    return f"{work.limit:g} ms" if work.in_ms else f"{work.limit:g}"


def rows_table(figures: Figures) -> str:
    """Return this library's rows in Markdown."""
    lines = ["| row | ratio | limit |", "|---|---|---|"]
    rows = figures["rows"]
    lines += [f"| {work.name} | {shown(work, rows[work.key])} | {limit(work)} |" for work in WORK if work.key in rows]
    lines += [f"| {name} | {found:.2f} | |" for name, found in figures["growths"].items()]
    return "\n".join([*lines, "", f"Measured with {figures['machine']}."])


def peers_table(figures: Figures) -> str:
    """Return the peers' rows in Markdown, the fastest peer of each row first."""
    lines = ["| row | lazyprompt | peers |", "|---|---|---|"]
    for work in WORK:
        able = {name: peer["rows"][work.key] for name, peer in figures["peers"].items() if work.key in peer["rows"]}
        if able and work.key in figures["rows"]:
            ranked = sorted(able, key=lambda name: value(work, able[name]))
            theirs = ", ".join(f"{name} {shown(work, able[name])}" for name in ranked)
            lines.append(f"| {work.name} | {shown(work, figures['rows'][work.key])} | {theirs} |")
    versions = ", ".join(f"{name} {peer['version']}" for name, peer in figures["peers"].items())
    return "\n".join([*lines, "", f"Versions: {versions}."])


def between(text: str, name: str, table: str) -> str:
    """Return a page with another table between two markers.

    Args:
        text: The page.
        name: The text of the first marker; the second has its part before the colon.
        table: The table.

    Raises:
        ValueError: The page has no such markers.
    """
    begin, end = f"<!-- {name} -->", f"<!-- end of {name.partition(':')[0]} -->"
    before, found, rest = text.partition(begin)
    _, there, behind = rest.partition(end)
    if not (found and there):
        raise ValueError(f"the page has no lines {begin!r} and {end!r} around a table")
    return f"{before}{begin}\n{table}\n{end}{behind}"
