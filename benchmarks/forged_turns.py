"""The attack corpus against this library and its peers: how many turns, roles, slots and tools a user's text forges.

    python benchmarks/forged_turns.py                   a table of all; each peer in an environment of its own
    python benchmarks/forged_turns.py --only prompty    one of them; may be given more than once
    python benchmarks/forged_turns.py --names           the attacks that forged something, by name
    python benchmarks/forged_turns.py --write           keep the figures; then run docs/make_attacks.py

A peer is used as its own documents show it: see ``benchmarks/peers``. Every attack is put in alone, and once more
between two honest lines. ``tests/attacks/judges.py`` compares the result with the same prompt with an honest value. The
honest texts of the corpus are judged the same way: one that forges something broke the prompt by itself.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from figures import committed, keep  # noqa: E402 - found on the path that is made above
from peer_environments import ATTACKED, PeerError, default_folder, driven  # noqa: E402 - the same

from attacks.attacks import attacks, honest  # noqa: E402 - the same
from attacks.judges import HEAD, KINDS, NEXT, TAIL, Kind, Message, Reading, find_forged, readings  # noqa: E402 - the same

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from peer_environments import Peer


class Trial(NamedTuple):
    """A case.

    Attributes:
        id: The attack or the honest text; ``""`` for a case that others are compared with.
        honest: True for an honest text.
        values: The values to put side by side.
        before: The developer's text before them.
        behind: The developer's text behind them.
        wrapped: True if the values stand between two honest lines.
    """

    id: str
    honest: bool
    values: tuple[str, ...]
    before: str = ""
    behind: str = ""
    wrapped: bool = False

    @property
    def like(self) -> Trial:
        """The case to compare with: the same shape with plain words."""
        words = (HEAD, NEXT)[: len(self.values)]
        return self._replace(id="", honest=True, values=_between(words) if self.wrapped else words)


@dataclass(slots=True)
class Row:
    """The results of one entry; each set holds names of attacks or honest texts.

    Attributes:
        run: The attacks that were run.
        found: The attacks that forged something, by its kind.
        folded: Attacks that forge only for a tokenizer that normalises.
        answered: Cases that got a prompt at least once.
        refused: Attacks that got an error.
        honest_forged: Honest texts that broke the prompt by themselves.
        honest_refused: Honest texts that got an error.
    """

    run: set[str] = field(default_factory=set[str])
    found: dict[Kind, set[str]] = field(default_factory=lambda: {kind: set() for kind in KINDS})
    folded: set[str] = field(default_factory=set[str])
    answered: set[str] = field(default_factory=set[str])
    refused: set[str] = field(default_factory=set[str])
    honest_forged: set[str] = field(default_factory=set[str])
    honest_refused: set[str] = field(default_factory=set[str])

    @property
    def cells(self) -> dict[str, set[str]]:
        """The cells of the table, as names."""
        forging = set[str]().union(*self.found.values())
        return {
            "run": self.run,
            "forge": forging,
            "folded": self.folded - forging,
            "refused": self.refused - self.answered,
            "honest forge": self.honest_forged,
            "honest refused": self.honest_refused,
        }


HEADS = tuple(Row().cells)
LEGEND = """\
run      attacks tried; an attack that needs the developer's own text around it only runs in a slot
forge    attacks that forged a turn, role, slot, tool call or special token, for any model or position
folded   attacks that only work with a tokenizer that normalizes: full-width or invisible characters, line ends
refused  attacks that raised an error, both alone and between two lines
honest   texts without a control sequence that broke the prompt, or raised an error"""


def trials() -> list[Trial]:
    """Return all cases; those that others are compared with come first."""
    plain = [Trial(each.id, False, each.values, each.before, each.behind) for each in attacks()]  # noqa: FBT003 - a named tuple
    plain += [Trial(each.id, honest=True, values=(each.text,)) for each in honest()]
    # An attack that the developer's own text takes part in must stand right beside it.
    wrapped = [
        each._replace(values=_between(each.values), wrapped=True) for each in plain if not (each.before or each.behind)
    ]
    every = plain + wrapped
    return [*dict.fromkeys(each.like for each in every), *every]


def _between(values: tuple[str, ...]) -> tuple[str, ...]:
    first, *rest = values
    lines = [f"{HEAD}\n{first}", *rest]
    return (*lines[:-1], f"{lines[-1]}\n{TAIL}")


def prompts(peer: Peer, cases: list[Trial]) -> Iterator[tuple[str, str, Trial, list[Message] | str]]:
    """Yield the prompts of a library: entry, layout, case, and the messages or why it refused.

    Raises:
        PeerError: It cannot be installed or does not run.
    """
    given = json.dumps([{"values": each.values, "before": each.before, "behind": each.behind} for each in cases])
    for seed in peer.seeds:
        with TemporaryDirectory() as work:
            lines = driven(peer, default_folder(), "attacks", given=given, work=Path(work), PYTHONHASHSEED=seed)
        for line in lines.splitlines():
            entry, layout, at, made = json.loads(line)
            if made is not None:
                yield entry, layout, cases[at], made if isinstance(made, str) else [Message(*each) for each in made]


def judged(made: Iterable[tuple[str, str, Trial, list[Message] | str]]) -> dict[str, Row]:
    """Return the rows of a library by entry.

    Args:
        made: Its prompts; those that others are compared with come first.
    """
    rows: dict[str, Row] = {}
    bases: dict[tuple[str, str, Trial], tuple[Reading, ...]] = {}
    for entry, layout, case, prompt in made:
        row = rows.setdefault(entry, Row())
        base = bases.get((entry, layout, case.like))
        if not case.id:
            if not isinstance(prompt, str):
                bases[entry, layout, case] = readings(prompt, layout)
        elif base is not None:
            if not case.honest:
                row.run.add(case.id)
            if isinstance(prompt, str):
                (row.honest_refused if case.honest else row.refused).add(case.id)
            else:
                row.answered.add(case.id)
                _count(row, case, readings(prompt, layout), base)
    return rows


def _count(row: Row, case: Trial, made: tuple[Reading, ...], base: tuple[Reading, ...]) -> None:
    value = "".join(case.values)
    # A prompt of plain characters reads the same in every form.
    plain, *folded = [find_forged(each, base[min(at, len(base) - 1)], value) for at, each in enumerate(made)]
    if case.honest:
        if plain.union(*folded):
            row.honest_forged.add(case.id)
        return
    for kind in plain:
        row.found[kind].add(case.id)
    if any(folded):
        row.folded.add(case.id)


def table(found: dict[str, Any]) -> str:
    """Return the table of figures as text."""
    wide = max((len(entry) + 2 for each in found["libraries"] for entry in each["entries"]), default=20)
    lines = [f"{found['attacks']} attacks and {found['honest']} honest texts, each alone and between two lines", ""]
    lines.append(f"{'library and entry':{wide}}" + "".join(f"{head:>{len(head) + 2}}" for head in HEADS))
    for each in found["libraries"]:
        lines += ["", f"{each['library']} {each['version'] or 'as it is here'}"]
        lines += [f"  {each['failed']}"] * bool(each["failed"])
        for entry, cells in each["entries"].items():
            shown = "".join(f"{cell:>{len(head) + 2}}" for head, cell in zip(HEADS, cells, strict=True))
            lines.append(f"{'  ' + entry:{wide}}{shown}")
    return "\n".join([*lines, "", LEGEND])


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=[peer.name for peer in ATTACKED], help="this library only")
    parser.add_argument("--names", action="store_true", help="print the names of attacks, as JSON")
    parser.add_argument("--write", action="store_true", help="keep the figures that docs/internals/attacks.md shows")
    options = parser.parse_args()
    cases = trials()
    named = {case.id: case.honest for case in cases if case.id}
    honest = sum(named.values())
    libraries: list[dict[str, Any]] = []
    for peer in ATTACKED:
        if not options.only or peer.name in options.only:
            rows, failed = dict[str, Row](), ""
            try:
                rows = judged(prompts(peer, cases))
            except PeerError as error:
                failed = str(error)
            if options.names:
                names = {entry: {head: sorted(ids) for head, ids in row.cells.items()} for entry, row in rows.items()}
                print(json.dumps({peer.name: names}, indent=2))
            entries = {entry: [len(ids) for ids in row.cells.values()] for entry, row in rows.items()}
            libraries.append({"library": peer.name, "version": peer.version, "entries": entries, "failed": failed})
    found = {"attacks": len(named) - honest, "honest": honest, "libraries": libraries}
    print(table(found))
    if options.write:
        figures = committed()
        known = {each["library"]: each for each in (*figures["attacks"]["libraries"], *libraries)}
        figures["attacks"] = {**found, "libraries": [known[peer.name] for peer in ATTACKED if peer.name in known]}
        keep(figures)


if __name__ == "__main__":
    main()
