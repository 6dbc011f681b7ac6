"""The committed figures: ratios, not times, with the machine they are from; and the tables that are made of them."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NotRequired, TypedDict, cast

from floors import WORK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from floors import Work
    from speed import Result

FILE = Path(__file__).with_name("figures.json")
PAGE = FILE.parents[1] / "docs" / "reference" / "speed.md"
# How much worse a ratio may get before a check fails.
WORSE = 1.3


class Ratios(TypedDict):
    """What is kept of a row: contender by floor, and the shape of conversation where it has several."""

    min: float
    median: float
    low: float
    high: float
    more_ms: float
    shape: NotRequired[str]


class PeerFigures(TypedDict):
    """What is kept of a peer: its rows by their keys, why it has no others, and what was let pass in them."""

    version: str
    rows: dict[str, Ratios]
    cannot: dict[str, str]
    notes: dict[str, str]


class Figures(TypedDict):
    """The file."""

    machine: dict[str, str]
    rows: dict[str, Ratios]
    others: dict[str, float]
    peers: dict[str, PeerFigures]


class Miss(NamedTuple):
    """Why a check fails.

    Attributes:
        key: The row's key.
        name: What it is called.
        why: What is wrong with it.
    """

    key: str
    name: str
    why: str


def ratios(result: Result) -> Ratios:
    """What is kept of a result."""
    low, high = result.spread
    kept = (result.ratio, result.median, low, high, (result.us - result.floor_us) / 1000)
    least, median, low, high, more = (float(f"{each:.4g}") for each in kept)
    found: Ratios = {"min": least, "median": median, "low": low, "high": high, "more_ms": more}
    if result.shape:
        found["shape"] = result.shape
    return found


def machine(benchmarks: Sequence[object]) -> dict[str, str]:
    """What pyperf knows of the machine, as far as figures hang on it."""
    known = cast("Mapping[str, object]", benchmarks[0].get_metadata()) if benchmarks else {}  # type: ignore[attr-defined]  # pyperf has no types
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.system(),
        "cpu": str(known.get("cpu_model_name", platform.processor())),
        "cores": str(known.get("cpu_count", "")),
    }


def committed() -> Figures:
    """The committed figures; none where there is no file yet."""
    if not FILE.exists():
        return {"machine": {}, "rows": {}, "others": {}, "peers": {}}
    return cast("Figures", json.loads(FILE.read_text(encoding="utf-8")))


def misses(found: Mapping[str, Ratios], slack: float) -> list[Miss]:
    """The rows that fail: worse than committed, or over the target by more than the slack.

    Args:
        found: The rows measured now, by their keys.
        slack: How many times its target a row may have.
    """
    before = committed()["rows"]
    late: list[Miss] = []
    for work in WORK:
        now, then = found.get(work.key), before.get(work.key)
        if now is None:
            continue
        # How long an import takes hangs on the environment it is in: there the target alone counts.
        if work.measure == "ratio" and then is not None and now["min"] > then["min"] * WORSE:
            late.append(Miss(work.key, work.name, f"{now['min']:.2f} times the floor, and {then['min']:.2f} before"))
        if work.target is not None and value(work, now) > work.target * slack:
            late.append(Miss(work.key, work.name, f"{shown(work, now)}, and the target is {target(work)}"))
    return late


def value(work: Work, row: Ratios) -> float:
    """The figure of a row that is held against its target."""
    return row["min"] if work.measure == "ratio" else row["more_ms"]


def shown(work: Work, row: Ratios) -> str:
    """The same with its unit, and for a ratio how far the values lie apart and the shape that it is of."""
    if work.measure != "ratio":
        return f"{row['more_ms']:.0f} ms more"
    shape = f", {row['shape']}" if "shape" in row else ""
    return f"{row['min']:.2f} ({row['low']:.2f}–{row['high']:.2f}){shape}"


def brief(work: Work, row: Ratios) -> str:
    """The same without the seven values; small ratios have digits behind the point."""
    if work.measure != "ratio":
        return f"{row['more_ms']:,.0f} ms"
    return told(row["min"])


def told(ratio: float) -> str:
    """A ratio in few digits."""
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:,.0f}"  # noqa: PLR2004 - from here on, the digits say nothing


def target(work: Work) -> str:
    """The target of a row."""
    if work.target is None:
        return "–"
    return f"{work.target:g}" if work.measure == "ratio" else f"{work.target:g} ms"


def written(figures: Figures) -> None:
    """Write the figures, and the tables of the page between their markers."""
    FILE.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    text = PAGE.read_text(encoding="utf-8")
    for name, table in (("rows", rows_table(figures)), ("peers", peers_table(figures))):
        text = between(text, f"{name}: made by benchmarks/run.py", table)
    PAGE.write_text(text, encoding="utf-8")


def between(text: str, name: str, table: str) -> str:
    """A page with another table between two markers.

    Args:
        text: The page.
        name: What the first marker says; the second says that what stands before its colon ends.
        table: The table.

    Raises:
        ValueError: The page has no such markers.
    """
    begin, end = f"<!-- {name} -->", f"<!-- end of {name.partition(':')[0]} -->"
    before, found, rest = text.partition(begin)
    _, there, behind = rest.partition(end)
    if not (found and there):
        raise ValueError(f"{PAGE} has no lines {begin!r} and {end!r} for the table to stand between")
    return f"{before}{begin}\n{table}\n{end}{behind}"


def rows_table(figures: Figures) -> str:
    """This library's rows, in Markdown."""
    lines = ["| row | ratio (of the seven) | median | target |", "|---|---|---|---|"]
    for work in WORK:
        row = figures["rows"].get(work.key)
        if row is not None:
            missed = ": missed" if work.target is not None and value(work, row) > work.target else ""
            lines.append(f"| {work.name} | {shown(work, row)} | {row['median']:.2f} | {target(work)}{missed} |")
    lines += [f"| {name} | {found:.2f} | | |" for name, found in figures["others"].items()]
    found = figures["machine"]
    python = f"{found['implementation']} {found['python']} on {found['system']}"
    lines += ["", f"Measured with {python}, {found['cores']} cores of {found['cpu']}."]
    return "\n".join(lines)


def peers_table(figures: Figures) -> str:
    """The peers beside this library, in Markdown: a column a row would be too wide, so a line each."""
    lines = ["| row | lazyprompt | peers, times the floor |", "|---|---|---|"]
    for work in WORK:
        able = [(name, peer["rows"][work.key]) for name, peer in figures["peers"].items() if work.key in peer["rows"]]
        row = figures["rows"].get(work.key)
        if able and row is not None:
            ranked = sorted(able, key=lambda one: value(work, one[1]))
            theirs = ", ".join(f"{peer} {brief(work, cell)}" for peer, cell in ranked)
            lines.append(f"| {work.name} | {brief(work, row)} | {theirs} |")
    lines += ["", "What they cannot do, and what was let pass when their results were compared:", ""]
    for name, peer in figures["peers"].items():
        notes = dict.fromkeys([*peer["notes"].values(), *peer["cannot"].values()])
        lines.append(f"- {name} {peer['version']}: " + "; ".join(notes))
    return "\n".join(lines)
