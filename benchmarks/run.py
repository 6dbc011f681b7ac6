"""The speed of this library: every row as a ratio to the same result written by hand in the same process.

    python benchmarks/run.py                     a table
    python benchmarks/run.py slots file          these rows alone, by their keys
    python benchmarks/run.py --peers             peers beside it, each in an environment of its own, made once and kept
    python benchmarks/run.py --json FILE         the ratios as JSON; --pyperf FILE the times, for pyperf's own commands
    python benchmarks/run.py --check             exit with 1 where a row is 30 % worse than it was, or over its target
    python benchmarks/run.py --write             the committed figures, their tables in docs/speed.md, and the chart

Results are compared before they are timed. A ratio is that of the least times of seven; beside it is the range of the
seven ratios.
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

from support.vocabularies import vocabulary_folder  # noqa: E402 - found on the path that is made above

VOCABULARIES = vocabulary_folder()
os.environ["TIKTOKEN_CACHE_DIR"] = str(VOCABULARIES)
VOCABULARY = VOCABULARIES / "fb374d419588a4632f3f557e76b4b70aebbca790"

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
    from speed import Result


class Found(NamedTuple):
    """What was measured.

    Attributes:
        results: The rows by their keys.
        others: What is no ratio.
        failed: Rows whose results differ, and how.
    """

    results: dict[str, Result]
    others: list[Figure]
    failed: dict[str, str]

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
    ready: dict[str, Ready] = {}
    failed: dict[str, str] = {}
    for work in WORK:
        if work.key in wanted:
            try:
                ready[work.key] = compared(row_of(work, ours[work.key]))
            except DifferentError as error:
                failed[work.key] = str(error)
    results = dict(zip(ready, timed([*ready.values()]), strict=True))
    others = growths(results)
    if "trim many" in wanted:
        others += shares(TiktokenCounter("o200k_base", bpe_file=VOCABULARY))
    return Found(results, others, failed)


def once_more(seen: Found, slack: float) -> Found:
    """The same with the rows that fail measured a second time, and the better of both: machines have bad minutes."""
    late = {miss.key for miss in misses(seen.rows, slack)}
    if not late:
        return seen
    second = found(late).results
    return seen._replace(
        results={
            key: min(result, second.get(key, result), key=lambda each: each.ratio)
            for key, result in seen.results.items()
        }
    )


def table(seen: Found) -> str:
    """What was measured, to be read."""
    lines = [f"{'':36}{'floor us':>11}{'us':>11}  {'ratio (of the seven)':24}{'median':>7}{'target':>9}"]
    for work in WORK:
        result = seen.results.get(work.key)
        if result is not None:
            figures = f"{result.floor_us:11.2f}{result.us:11.2f}  {shown(work, ratios(result)):24}{result.median:7.2f}"
            lines.append(f"{work.name:36}{figures}{target(work):>9}")
        elif work.key in seen.failed:
            lines.append(f"{work.name:36}  {seen.failed[work.key]}")
    lines += [f"{each.name}: {each.value:.2f}" for each in seen.others]
    return "\n".join(lines)


def peers_table(peers: dict[str, PeerFigures]) -> str:
    """The peers, to be read."""
    lines: list[str] = []
    for name, peer in peers.items():
        lines += ["", f"{name} {peer['version']}"]
        for work in WORK:
            cell = peer["rows"].get(work.key)
            if cell is not None:
                lines.append(f"  {work.name:36}{shown(work, cell)}")
        lines += [f"  {note}" for note in dict.fromkeys([*peer["notes"].values(), *peer["cannot"].values()])]
    return "\n".join(lines)


def asked() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "rows", nargs="*", metavar="ROW", choices=[[], *(work.key for work in WORK)], help="these alone"
    )
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
    print(table(seen))
    benchmarks = [each for result in seen.results.values() for each in result.benchmarks]
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
