"""The speed of this library: every row as a ratio to the same result written by hand in the same process.

    python benchmarks/run.py                 all rows
    python benchmarks/run.py slots file      these rows, with each shape of conversation
    python benchmarks/run.py --peers         the peers too, each in an environment of its own, made once and kept
    python benchmarks/run.py --check         exit with 1 if a row exceeds its limit
    python benchmarks/run.py --write         keep the figures; then run docs/make_speed.py

Results are compared before they are timed. A ratio is that of the least times of seven. A row with several shapes of
conversation has the ratio of the slowest.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "tests"), str(HERE.parent)]
# The interpreters of the row of imports find this library too.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(HERE.parent), os.environ.get("PYTHONPATH"))))

from support.vocabularies import CL100K, O200K, vocabulary_folder  # noqa: E402 - found on the path that is made above

VOCABULARIES = vocabulary_folder(CL100K, O200K)
os.environ["TIKTOKEN_CACHE_DIR"] = str(VOCABULARIES)
VOCABULARY = VOCABULARIES / O200K

from figures import PeerFigures, committed, keep, limit, machine, misses, peers_table, ratios, shown  # noqa: E402 - the same
from floors import FEW, MANY, WORK  # noqa: E402 - the same
from ours import contenders  # noqa: E402 - the same
from peer_environments import TIMED, PeerError, default_folder, driven  # noqa: E402 - the same
from speed import DifferentError, compared, row_of, timed  # noqa: E402 - the same

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from figures import Ratios
    from floors import Work
    from peer_environments import Peer
    from speed import Result, Row


# The greatest exponent of trimming.
GROWTH = 1.1


class Found(NamedTuple):
    """The measured rows.

    Attributes:
        shapes: The results of each row by its key: one, or one for each shape.
        growths: How the time of trimming grows, by the name of the figure.
        failed: Why results differ, by the row's key.
    """

    shapes: dict[str, list[Result]]
    growths: dict[str, float]
    failed: dict[str, str]

    @property
    def rows(self) -> dict[str, Ratios]:
        """The figures of the rows, each of its slowest shape."""
        return {key: ratios(max(results, key=lambda each: each.ratio)) for key, results in self.shapes.items()}


def found(keys: Iterable[str]) -> Found:
    """Measure rows of this library; all of them if no keys are given."""
    wanted = {*keys} or {work.key for work in WORK}
    ours = contenders(VOCABULARY)
    ready: list[tuple[str, Row]] = []
    failed: dict[str, str] = {}
    for work in WORK:
        if work.key in wanted:
            try:
                rows = [row_of(work, ours[work.key], shape) for shape in work.shapes or ("",)]
                ready += [(work.key, compared(row)) for row in rows]
            except DifferentError as error:
                failed[work.key] = str(error)
    shapes: dict[str, list[Result]] = {}
    for (key, _), result in zip(ready, timed([each for _, each in ready]), strict=True):
        shapes.setdefault(key, []).append(result)
    return Found(shapes, growths(shapes), failed)


def growths(results: Mapping[str, list[Result]]) -> dict[str, float]:
    """Return the exponents with which the time of trimming grows; linear is 1.

    The floor is one loop over the same messages, so its growth counts as linear.
    """
    pairs = (("none known", "trim few", "trim many"), ("all known", "trim few known", "trim many known"))
    return {
        f"growth of trimming from {FEW:,} to {MANY:,} messages, {name}": 1
        + log(results[many][0].ratio / results[few][0].ratio) / log(MANY / FEW)
        for name, few, many in pairs
        if few in results and many in results
    }


def once_more(seen: Found, slack: float) -> Found:
    """Measure the rows that fail a second time and take the better of both: machines have bad minutes."""
    late = misses(seen.rows, slack)
    if not late:
        return seen
    shapes = {**seen.shapes}
    for key, results in found(late).shapes.items():
        pairs = zip(results, shapes[key], strict=True)
        shapes[key] = [min(pair, key=lambda each: each.ratio) for pair in pairs]
    return seen._replace(shapes=shapes)


def table(seen: Found, *, shapes: bool) -> str:
    """Return the table as text.

    Args:
        seen: The measured rows.
        shapes: True to show each shape of a row, not only the slowest.
    """
    lines = [f"{'':44}{'floor us':>11}{'us':>11}{'median':>9}{'limit':>9}  ratio (of the seven)"]
    for work in WORK:
        results = seen.shapes.get(work.key, [])
        if results:
            lines.append(line(work.name, work, max(results, key=lambda each: each.ratio)))
        if shapes and work.shapes:
            lines += [line(f"    {each.row.shape}", work, each) for each in results]
        if work.key in seen.failed:
            lines.append(f"{work.name:44}  {seen.failed[work.key]}")
    lines += [f"{name}: {value:.2f}" for name, value in seen.growths.items()]
    return "\n".join(lines)


def line(name: str, work: Work, result: Result) -> str:
    """Return a line of the table."""
    low, high = result.spread
    figures = f"{result.floor_us:11.2f}{result.us:11.2f}{result.median:9.2f}{limit(work):>9}"
    return f"{name:44}{figures}  {shown(work, ratios(result))} ({low:.2f}-{high:.2f})"


def peer_figures(peer: Peer, folder: Path) -> PeerFigures:
    """Time a peer."""
    try:
        lines = driven(peer, folder, "speed", peer.imports, PYTHONHASHSEED="0", TIKTOKEN_CACHE_DIR=str(VOCABULARIES))
        made: PeerFigures = json.loads(lines)
    except PeerError as error:
        return PeerFigures(version=peer.version, rows={}, failed=[str(error)])
    return made


def asked() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    keys = [[], *(work.key for work in WORK)]
    parser.add_argument("rows", nargs="*", metavar="ROW", choices=keys, help="these rows only")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a row exceeds its limit")
    parser.add_argument("--slack", type=float, default=1.0, help="with --check: how many times the limit is allowed")
    parser.add_argument("--write", action="store_true", help="keep the figures")
    parser.add_argument("--peers", action="store_true", help="time the peers too")
    parser.add_argument("--only", action="append", choices=[peer.name for peer in TIMED], help="this peer only")
    parser.add_argument("--cache", type=Path, default=default_folder(), help="the folder of the peers' environments")
    return parser.parse_args()


def main() -> None:
    """Measure, print, write, check."""
    options = asked()
    seen = found(options.rows)
    if options.check:
        seen = once_more(seen, options.slack)
    print(table(seen, shapes=bool(options.rows)))
    figures = committed()
    figures["machine"] = machine()
    figures["rows"] |= seen.rows
    figures["growths"] |= {name: round(value, 3) for name, value in seen.growths.items()}
    if options.peers or options.only:
        chosen = [peer for peer in TIMED if not options.only or peer.name in options.only]
        peers = {peer.name: peer_figures(peer, options.cache) for peer in chosen}
        print(peers_table({**figures, "peers": peers}))
        print("\n".join(f"{name}: {each}" for name, peer in peers.items() for each in peer["failed"]))
        figures["peers"] |= peers
    if options.write:
        keep(figures)
    late = [*misses(seen.rows, options.slack).values(), *seen.failed.values()]
    late += [f"{name}: {value:.2f}" for name, value in seen.growths.items() if value > GROWTH * options.slack]
    if options.check and late:
        sys.exit("too slow, or different results:\n" + "\n".join(late))


if __name__ == "__main__":
    main()
