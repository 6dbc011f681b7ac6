"""The speed of this library: every row as a ratio to the same result written by hand in the same process.

    python benchmarks/run.py                     a table
    python benchmarks/run.py slots file          these rows alone, by their keys, with each shape of conversation
    python benchmarks/run.py --shapes            all rows with each shape
    python benchmarks/run.py --peers             peers beside it, each in an environment of its own, made once and kept
    python benchmarks/run.py --json FILE         the ratios as JSON; --pyperf FILE the times, for pyperf's own commands
    python benchmarks/run.py --check             exit with 1 where a row is 30 % worse than it was, or over its target
    python benchmarks/run.py --write             the figures, their tables in docs/reference/speed.md, the chart

Results are compared before they are timed. A ratio is that of the least times of seven; beside it is the range of the
seven ratios. A row that is done with conversations of several shapes has the ratio of the slowest (of three, beside its
name); the others are not averaged in.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))
# Interpreters of their own (the row of import) find this library too.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(HERE.parent), os.environ.get("PYTHONPATH"))))
sys.path.insert(1, str(HERE.parent))

from support.vocabularies import CL100K, O200K, vocabulary_folder  # noqa: E402 - found on the path that is made above

VOCABULARIES = vocabulary_folder(CL100K, O200K)
os.environ["TIKTOKEN_CACHE_DIR"] = str(VOCABULARIES)
VOCABULARY = VOCABULARIES / O200K

from chart import drawn  # noqa: E402 - the same
from figures import Figures, PeerFigures, committed, machine, misses, ratios, shown, target, written  # noqa: E402 - the same
from floors import WORK  # noqa: E402 - the same
from ours import contenders  # noqa: E402 - the same
from peer_environments import PEERS, default_folder  # noqa: E402 - the same
from peer_runs import driven  # noqa: E402 - the same
from speed import DifferentError, Ready, compared, pyperf, row_of, timed  # noqa: E402 - the same
from trimming import Figure, growths, shares  # noqa: E402 - the same

from lazyprompt import TiktokenCounter  # noqa: E402 - the same

if TYPE_CHECKING:
    from collections.abc import Iterable

    from figures import Ratios
    from floors import Work
    from speed import Result


class Found(NamedTuple):
    """What was measured.

    Attributes:
        shapes: What was measured of each row, by its key: one result, or that of each shape.
        others: What is no ratio.
        failed: Rows whose results differ, and how.
    """

    shapes: dict[str, list[Result]]
    others: list[Figure]
    failed: dict[str, str]

    @property
    def results(self) -> dict[str, Result]:
        """The rows by their keys, each with its slowest shape."""
        return {key: max(results, key=lambda each: each.ratio) for key, results in self.shapes.items()}

    @property
    def rows(self) -> dict[str, Ratios]:
        """The rows as they are kept."""
        return {key: ratios(result) for key, result in self.results.items()}


def found(keys: Iterable[str]) -> Found:
    """Measure this library's rows.

    Args:
        keys: Which; all where there are none.
    """
    wanted = {*keys} or {work.key for work in WORK}
    ours = contenders(VOCABULARY)
    ready: list[tuple[str, Ready]] = []
    failed: dict[str, str] = {}
    for work in WORK:
        if work.key in wanted:
            try:
                ready += [
                    (work.key, compared(row_of(work, ours[work.key], shape=shape))) for shape in work.shapes or ("",)
                ]
            except DifferentError as error:
                failed[work.key] = str(error)
    shapes: dict[str, list[Result]] = {}
    for (key, _), result in zip(ready, timed([each for _, each in ready]), strict=True):
        shapes.setdefault(key, []).append(result)
    seen = Found(shapes, [], failed)
    seen.others.extend(growths(seen.results))
    if "trim many" in wanted:
        seen.others.extend(shares(TiktokenCounter("o200k_base", bpe_file=VOCABULARY)))
    return seen


def once_more(seen: Found, slack: float) -> Found:
    """The same with the rows that fail measured a second time, and the better of both: machines have bad minutes."""
    late = {miss.key for miss in misses(seen.rows, slack)}
    if not late:
        return seen
    second = found(late).shapes
    return seen._replace(
        shapes={
            key: [
                min(pair, key=lambda each: each.ratio) for pair in zip(results, second.get(key, results), strict=True)
            ]
            for key, results in seen.shapes.items()
        }
    )


def table(seen: Found, *, shapes: bool) -> str:
    """What was measured, to be read.

    Args:
        seen: What was measured.
        shapes: Show each shape of a row, and not only the slowest.
    """
    lines = [f"{'':44}{'floor us':>11}{'us':>11}{'median':>9}{'target':>9}  ratio (of the seven)"]
    slowest = seen.results
    for work in WORK:
        if work.key in slowest:
            lines.append(line(work.name, work, slowest[work.key]))
            if shapes and work.shapes:
                lines += [line(f"    {each.shape}", work, each._replace(shape="")) for each in seen.shapes[work.key]]
        elif work.key in seen.failed:
            lines.append(f"{work.name:44}  {seen.failed[work.key]}")
    lines += [f"{each.name}: {each.value:.2f}" for each in seen.others]
    return "\n".join(lines)


def line(name: str, work: Work, result: Result) -> str:
    """A line of the table."""
    figures = f"{result.floor_us:11.2f}{result.us:11.2f}{result.median:9.2f}{target(work):>9}"
    return f"{name:44}{figures}  {shown(work, ratios(result))}"


def peers_table(peers: dict[str, PeerFigures]) -> str:
    """The peers, to be read."""
    lines: list[str] = []
    for name, peer in peers.items():
        lines += ["", f"{name} {peer['version']}"]
        for work in WORK:
            cell = peer["rows"].get(work.key)
            if cell is not None:
                lines.append(f"  {work.name:44}{shown(work, cell)}")
        lines += [f"  {note}" for note in dict.fromkeys([*peer["notes"].values(), *peer["cannot"].values()])]
    return "\n".join(lines)


def asked() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "rows", nargs="*", metavar="ROW", choices=[[], *(work.key for work in WORK)], help="these alone"
    )
    parser.add_argument("--shapes", action="store_true", help="show each shape of a row, as rows that are named do")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the ratios as JSON")
    parser.add_argument("--pyperf", type=Path, metavar="FILE", help="write the times as pyperf has them")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a row is worse or misses its target")
    parser.add_argument("--slack", type=float, default=1.0, help="with --check: how many times the target is allowed")
    parser.add_argument("--write", action="store_true", help="write the committed figures, the tables and the chart")
    parser.add_argument("--peers", action="store_true", help="drive the peers too")
    parser.add_argument("--only", action="append", choices=[peer.name for peer in PEERS], help="this peer alone")
    parser.add_argument("--cache", type=Path, default=default_folder(), help="where the peers' environments are kept")
    return parser.parse_args()


def main() -> None:
    """Measure, print, write, check."""
    options = asked()
    seen = found(options.rows)
    if options.check:
        seen = once_more(seen, options.slack)
    print(table(seen, shapes=options.shapes or bool(options.rows)))
    benchmarks = [each for results in seen.shapes.values() for result in results for each in result.benchmarks]
    before = committed()
    figures = Figures(
        machine=machine(benchmarks),
        rows={**before["rows"], **seen.rows},
        others=before["others"] | {each.name: round(each.value, 3) for each in seen.others},
        peers=before["peers"],
    )
    late = [f"{miss.name}: {miss.why}" for miss in misses(seen.rows, options.slack)]
    late += [f"{each.name}: {each.value:.2f}" for each in seen.others if each.misses(options.slack)]
    late += [f"{key}: {why}" for key, why in seen.failed.items()]
    if options.peers or options.only:
        chosen = [peer for peer in PEERS if not options.only or peer.name in options.only]
        found_peers = {peer.name: driven(peer, options.cache, VOCABULARIES) for peer in chosen}
        print(peers_table(found_peers))
        figures["peers"] = {**figures["peers"], **found_peers}
    if options.pyperf:
        pyperf.BenchmarkSuite(benchmarks).dump(str(options.pyperf), replace=True)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if options.write:
        written(figures)
        drawn(figures)
    if options.check and late:
        sys.exit("too slow, or not the same:\n" + "\n".join(late))


if __name__ == "__main__":
    main()
