"""Figures that take long to measure, kept as data; docs/make_attacks.py and docs/make_speed.py make the tables of them.

python benchmarks/forged_turns.py --write    what attacks forge, here and in other libraries
python benchmarks/templates.py --write       chat templates beside transformers and Jinja
python benchmarks/token_ids.py --write       ids of a chat that grows, beside transformers
python benchmarks/module_calls.py --write    what a module adds to a call
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, TypedDict, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

FILE = Path(__file__).with_name("recorded.json")


class Forged(TypedDict):
    """What the attacks did to one library.

    ``entries`` has the figures of each entry in the order of the table's columns; ``failed`` is why there are none, or
    ``""``.
    """

    library: str
    version: str
    entries: dict[str, list[int]]
    failed: str


class Attacks(TypedDict):
    """The attacks and honest texts, how many of each, and what they did."""

    attacks: int
    honest: int
    libraries: list[Forged]


class Span(TypedDict):
    """Ratios of several templates: of how many, from where to where, and how many of them miss the target."""

    of: int
    low: float
    median: float
    high: float
    target: float
    missed: int


class Templates(TypedDict):
    """Chat templates: shares of transformers' time."""

    plain: Span
    calls: Span


class TokenIds(TypedDict):
    """Ids of a chat that grows: how many, and shares of transformers' time, without a cache and with one."""

    tokens: int
    without: float
    cached: float
    target: float


class Modules(TypedDict):
    """Modules by source, least and most: the share of a call of ten milliseconds, and milliseconds of a loop."""

    added: dict[str, tuple[float, float]]
    stall: dict[str, tuple[float, float]]
    most_added: float
    most_stall: float


class Recorded(TypedDict):
    """The file."""

    attacks: Attacks
    templates: Templates
    token_ids: TokenIds
    modules: Modules


def recorded() -> Recorded:
    """What was measured last."""
    return cast("Recorded", json.loads(FILE.read_text(encoding="utf-8")))


def record(figures: Recorded) -> None:
    """Keep figures for the tables."""
    FILE.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def span(ratios: Sequence[float], target: float, missed: int) -> Span:
    """What is kept of several ratios; digits that mean nothing are left out."""
    low, middle, high = (float(f"{each:.2g}") for each in (min(ratios), median(ratios), max(ratios)))
    return {"of": len(ratios), "low": low, "median": middle, "high": high, "target": target, "missed": missed}
