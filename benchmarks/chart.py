"""The chart of the figures: an SVG file, a bar for each library in each row, on a scale of powers of ten."""

from __future__ import annotations

from html import escape
from math import log10
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from figures import told
from floors import WORK

if TYPE_CHECKING:
    from figures import Figures
    from floors import Work

FILE = Path(__file__).parents[1] / "docs" / "reference" / "speed.svg"
WIDE, LEFT, RIGHT, LINE, HEAD = 960, 190, 90, 15, 22
OURS, THEIRS, TARGET, INK, PALE = "#1f6feb", "#a8b3c1", "#d1242f", "#1f2328", "#e4e8ec"
STYLE = (
    f"text{{font:11px sans-serif;fill:{INK}}} .row{{font-weight:bold}} .name{{text-anchor:end}} "
    f".axis{{stroke:{PALE}}} .target{{stroke:{TARGET};stroke-width:2}}"
)


class Bar(NamedTuple):
    """One bar.

    Attributes:
        name: Whose it is.
        ratio: How long.
        own: Whether it is this library's.
    """

    name: str
    ratio: float
    own: bool


def drawn(figures: Figures) -> None:
    """Write the chart."""
    FILE.write_text(svg(figures), encoding="utf-8")


def svg(figures: Figures) -> str:
    """The chart as text."""
    groups = [(work, bars(figures, work)) for work in WORK if work.key in figures["rows"] and work.measure == "ratio"]
    ratios = [bar.ratio for _, group in groups for bar in group]
    least, most = min([0.1, *ratios]), max([10.0, *ratios])
    scale = Scale(least, most)
    high = HEAD + sum(HEAD + LINE * len(group) for _, group in groups) + LINE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {high}" role="img">',
        "<title>Times the floor written by hand, by row and library</title>",
        f"<style>{STYLE}</style>",
        f'<rect width="{WIDE}" height="{high}" fill="white"/>',
    ]
    for power in range(scale.first, scale.last + 1):
        at = scale.x(10.0**power)
        parts.append(f'<line class="axis" x1="{at}" y1="{HEAD}" x2="{at}" y2="{high - LINE}"/>')
        parts.append(f'<text x="{at}" y="{HEAD - 8}" text-anchor="middle">{10.0**power:g}×</text>')
    top = float(HEAD)
    for work, group in groups:
        parts += _group(work, group, scale, top)
        top += HEAD + LINE * len(group)
    return "\n".join([*parts, "</svg>"]) + "\n"


class Scale(NamedTuple):
    """From ratios to places, by powers of ten."""

    least: float
    most: float

    @property
    def first(self) -> int:
        """The power of ten at the left."""
        return -int(-log10(self.least) + 0.999)

    @property
    def last(self) -> int:
        """The last one that has a line."""
        return int(log10(self.most))

    def x(self, ratio: float) -> float:
        """The place of a ratio."""
        share = (log10(ratio) - self.first) / (log10(self.most) - self.first)
        return round(LEFT + share * (WIDE - LEFT - RIGHT), 1)


def bars(figures: Figures, work: Work) -> list[Bar]:
    """The bars of a row, the fastest first."""
    found = [Bar("lazyprompt", figures["rows"][work.key]["min"], own=True)]
    for name, peer in figures["peers"].items():
        if work.key in peer["rows"]:
            found.append(Bar(name, peer["rows"][work.key]["min"], own=False))
    return sorted(found, key=lambda bar: bar.ratio)


def _group(work: Work, group: list[Bar], scale: Scale, top: float) -> list[str]:
    """A row: its name, its bars, and where its target is."""
    parts = [f'<text class="row" x="{LEFT}" y="{top + HEAD - 7}">{escape(work.name)}</text>']
    for at, bar in enumerate(group):
        y = top + HEAD + at * LINE
        wide = round(scale.x(bar.ratio) - LEFT, 1)
        parts.append(f'<text class="name" x="{LEFT - 6}" y="{y + 10}">{escape(bar.name)}</text>')
        parts.append(
            f'<rect x="{LEFT}" y="{y + 1}" width="{wide}" height="{LINE - 3}" fill="{OURS if bar.own else THEIRS}"/>'
        )
        parts.append(f'<text x="{LEFT + wide + 5}" y="{y + 10}">{told(bar.ratio)}</text>')
        if bar.own and work.target is not None:
            mark = scale.x(work.target)
            parts.append(f'<line class="target" x1="{mark}" y1="{y - 1}" x2="{mark}" y2="{y + LINE - 1}"/>')
    return parts
