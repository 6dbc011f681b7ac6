"""The attack corpus against this library and its peers: how many turns, roles, slots and tools a user's text forges.

    python benchmarks/forged_turns.py                   a table of all; each peer in an environment of its own, made
                                                        for it and thrown away
    python benchmarks/forged_turns.py --only prompty    one of them; may be given more than once
    python benchmarks/forged_turns.py --json            the same as JSON, with the attacks by name
    python benchmarks/forged_turns.py --write           keeps the figures that docs/internals/attacks.md shows; then
                                                        python docs/make_attacks.py writes them there

A peer is used as its own documents show it: see ``benchmarks/peers``. Every attack is put in as it is, and once more
between two honest lines. What comes out is judged by ``tests/attacks/judges.py`` against the same prompt with an honest
value. So are the honest texts of the corpus: where one of those forges something, it broke the prompt by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT / "tests"))

from recorded import record, recorded  # noqa: E402 - the same

from attacks.attacks import attacks, honest  # noqa: E402 - found on the path that is made above
from attacks.judges import HEAD, KINDS, NEXT, TAIL, Kind, Message, Reading, forged, readings  # noqa: E402 - the same

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from recorded import Attacks


class Peer(NamedTuple):
    """A library and how to get it.

    Attributes:
        name: Its name.
        version: Its version; ``""`` where it is what runs here.
        wants: What pip installs: the library, and what it needs but does not ask for, or not in the right version.
        script: What drives it.
        seeds: Python's seeds for the order of sets: more than one where the library's prompts hang on it.
    """

    name: str
    version: str
    wants: tuple[str, ...]
    script: str
    seeds: tuple[str, ...] = ("0",)


PEERS = (
    Peer("lazyprompt", "", (), "peer_lazyprompt.py"),
    # It fills its slots in the order of a set: in some processes a value is looked through for slots, in some not.
    Peer("lazyllm", "1.4.0", ("lazyllm==1.4.0",), "peer_lazyllm.py", ("0", "2")),
    Peer("dotpromptz", "0.2.0", ("dotpromptz==0.2.0",), "peer_dotprompt.py"),
    Peer("prompt-poet", "0.0.52", ("prompt-poet==0.0.52",), "peer_prompt_poet.py"),
    # It imports all of these, and breaks with version 2 of mcp.
    Peer("agentscope", "1.0.21", ("agentscope==1.0.21", "mcp<2", "greenlet", "tqdm"), "peer_agentscope.py"),
    Peer("prompty", "2.1.0", ("prompty[jinja2,mustache]==2.1.0",), "peer_prompty.py"),
)


class Trial(NamedTuple):
    """A case, and what is known of it.

    Attributes:
        id: The attack or the honest text; ``""`` where it is what others are held against.
        honest: Whether it is honest.
        values: The values to put side by side.
        before: What the developer wrote before them.
        behind: What the developer wrote behind them.
        wrapped: Whether the values stand between two honest lines.
    """

    id: str
    honest: bool
    values: tuple[str, ...]
    before: str = ""
    behind: str = ""
    wrapped: bool = False

    @property
    def like(self) -> Trial:
        """The case that this one is held against: of the same shape, with nothing but words in it."""
        words = (HEAD, NEXT)[: len(self.values)]
        if self.wrapped:
            words = _between(words)
        return Trial("", honest=True, values=words, before=self.before, behind=self.behind, wrapped=self.wrapped)


@dataclass(slots=True)
class Row:
    """What one entry of a library let through; each set holds names of attacks or honest texts.

    Attributes:
        entry: The entry.
        run: The attacks that were run.
        found: What was forged, by its kind; each attack with the layouts in which it was.
        disguised: Attacks that only a tokenizer reads that normalises.
        refused: Attacks that got an error each time.
        honest_forged: Honest texts that broke the prompt by themselves.
        honest_refused: Honest texts that got an error.
    """

    entry: str
    run: set[str] = field(default_factory=set[str])
    found: dict[Kind, dict[str, set[str]]] = field(default_factory=lambda: {kind: {} for kind in KINDS})
    disguised: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    refused: set[str] = field(default_factory=set[str])
    honest_forged: set[str] = field(default_factory=set[str])
    honest_refused: set[str] = field(default_factory=set[str])

    @property
    def any(self) -> set[str]:
        """The attacks that forged anything, read as the text stands."""
        return set[str]().union(*self.found.values())

    @property
    def cells(self) -> tuple[int, ...]:
        """The figures of the table."""
        return (
            len(self.run),
            len(self.any),
            *(len(self.found[kind]) for kind in KINDS),
            len(self.disguised.keys() - self.any),
            len(self.refused),
            len(self.honest_forged),
            len(self.honest_refused),
        )


HEADS = ("run", "forge", *(f"{kind}s" for kind in KINDS), "folded", "refused", "honest forge", "honest refused")


LEGEND = """\
run      attacks; those in which the developer's own text takes part only where there are slots
forge    those that forged anything: an attack counts once, for whichever models and ways of putting it in
turns    more turns than with an honest value, or text behind the attack in another turn
roles    text in a role that it was not given
slots    another slot's value shown, or a template in the value run
tools    calls, results, descriptions of tools, media; in messages also metadata
specials special tokens and tags of thoughts, in flat text
folded   those that forge only for a tokenizer which normalises: full-width signs, signs that do not show, line ends
refused  those that got an error, each way
honest   texts without a control sequence that broke the prompt, or got an error"""


def trials() -> list[Trial]:
    """All cases; those that others are held against come first."""
    plain = [Trial(each.id, False, each.values, each.before, each.behind) for each in attacks()]  # noqa: FBT003 - a named tuple
    plain += [Trial(each.id, honest=True, values=(each.text,)) for each in honest()]
    # Where the developer's own text takes part, nothing may stand between the two.
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
    """What a library makes of the cases: entry, layout, case, and the messages or why it refused.

    Raises:
        RuntimeError: It could not be installed, or did not run; the message is for the table.
    """
    with TemporaryDirectory() as folder:
        python = _environment(peer, Path(folder))
        given = Path(folder, "cases.json")
        given.write_text(json.dumps([_as_json(each) for each in cases]), encoding="utf-8")
        for seed in peer.seeds:
            settings = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1"}
            if not peer.wants:
                settings["PYTHONPATH"] = str(ROOT)
            for line in _lines([python, str(HERE / "peers" / peer.script)], given, settings):
                entry, layout, at, made = json.loads(line)
                if made is not None:
                    yield entry, layout, cases[at], made if isinstance(made, str) else [Message(*each) for each in made]


def _lines(command: list[str], given: Path, settings: dict[str, str]) -> Iterator[str]:
    """What a script says to a file, line by line.

    Raises:
        RuntimeError: It did not run to its end.
    """
    errors = given.with_name("errors.txt")
    with given.open() as cases, errors.open("w") as log:
        process = subprocess.Popen(  # noqa: S603 - our own script
            command, cwd=given.parent, env=settings, stdin=cases, stdout=subprocess.PIPE, stderr=log, text=True
        )
        with process:
            yield from process.stdout or ()
    if process.returncode:
        raise RuntimeError(f"did not run: {_last(errors.read_text(encoding='utf-8'))}")


def _environment(peer: Peer, folder: Path) -> str:
    if not peer.wants:
        return sys.executable
    python = str(folder / "venv" / "bin" / "python")
    for command in (
        [sys.executable, "-m", "venv", str(folder / "venv")],
        [python, "-m", "pip", "install", "--quiet", "--no-cache-dir", *peer.wants],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own commands
        if done.returncode:
            raise RuntimeError(f"cannot be installed here: {_last(done.stderr)}")
    return python


def _last(text: str) -> str:
    return (text.strip().splitlines() or ["nothing was said"])[-1]


def _as_json(case: Trial) -> dict[str, object]:
    return {"values": case.values, "before": case.before, "behind": case.behind}


def judged(made: Iterable[tuple[str, str, Trial, list[Message] | str]]) -> list[Row]:
    """The rows of a library.

    Args:
        made: What it made of the cases; those that others are held against come before these.
    """
    rows: dict[str, Row] = {}
    bases: dict[tuple[str, str, Trial], tuple[Reading, ...]] = {}
    answered: dict[str, set[str]] = {}
    for entry, layout, case, prompt in made:
        row = rows.setdefault(entry, Row(entry))
        if not case.id:
            if not isinstance(prompt, str):
                bases[entry, layout, case] = readings(prompt, layout)
        elif (base := bases.get((entry, layout, case.like))) is not None:
            if not case.honest:
                row.run.add(case.id)
            if isinstance(prompt, str):
                (row.honest_refused if case.honest else row.refused).add(case.id)
            else:
                answered.setdefault(entry, set()).add(case.id)
                _count(row, case, layout, readings(prompt, layout), base)
    for row in rows.values():
        row.refused -= answered.get(row.entry, set())
    return list(rows.values())


def _count(row: Row, case: Trial, layout: str, made: tuple[Reading, ...], base: tuple[Reading, ...]) -> None:
    value = "".join(case.values)
    plain, *folded = [
        # A prompt of plain signs reads the same in every form.
        forged(each, base[min(at, len(base) - 1)], value)
        for at, each in enumerate(made)
    ]
    if case.honest:
        if plain.union(*folded):
            row.honest_forged.add(case.id)
        return
    for kind in plain:
        row.found[kind].setdefault(case.id, set()).add(layout)
    if any(folded):
        row.disguised.setdefault(case.id, set()).add(layout)


def figures(results: list[tuple[Peer, list[Row] | str]], attacks: int, texts: int) -> Attacks:
    """The figures of the table, as they are kept."""
    return {
        "attacks": attacks,
        "honest": texts,
        "libraries": [
            {
                "library": peer.name,
                "version": peer.version,
                "entries": {} if isinstance(rows, str) else {row.entry: list(row.cells) for row in rows},
                "failed": rows if isinstance(rows, str) else "",
            }
            for peer, rows in results
        ],
    }


def written(found: Attacks) -> None:
    """Keep the figures; libraries that were not run keep theirs."""
    before = recorded()
    new = {each["library"]: each for each in found["libraries"]}
    known = {each["library"]: each for each in before["attacks"]["libraries"]}
    libraries = [(known | new)[peer.name] for peer in PEERS if peer.name in known | new]
    record({**before, "attacks": {**found, "libraries": libraries}})


def table(found: Attacks) -> str:
    """The table, as text."""
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


def as_json(results: list[tuple[Peer, list[Row] | str]]) -> list[dict[str, object]]:
    """The same with the attacks by name, and the layouts in which each forged something."""
    return [
        {"library": peer.name, "version": peer.version, "failed": rows}
        if isinstance(rows, str)
        else {
            "library": peer.name,
            "version": peer.version,
            "entries": [
                {
                    "entry": row.entry,
                    "run": len(row.run),
                    "forged": {kind: _sorted(row.found[kind]) for kind in KINDS},
                    "folded": _sorted({id_: row.disguised[id_] for id_ in row.disguised.keys() - row.any}),
                    "refused": sorted(row.refused),
                    "honest_forged": sorted(row.honest_forged),
                    "honest_refused": sorted(row.honest_refused),
                }
                for row in rows
            ],
        }
        for peer, rows in results
    ]


def _sorted(found: dict[str, set[str]]) -> dict[str, list[str]]:
    return {each: sorted(layouts) for each, layouts in sorted(found.items())}


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=[peer.name for peer in PEERS], help="this library alone")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--write", action="store_true", help="keep the figures that docs/internals/attacks.md shows")
    options = parser.parse_args()
    cases = trials()
    results: list[tuple[Peer, list[Row] | str]] = []
    for peer in PEERS:
        if not options.only or peer.name in options.only:
            try:
                results.append((peer, judged(prompts(peer, cases))))
            except RuntimeError as error:
                results.append((peer, str(error)))
    named = {case.id: case.honest for case in cases if case.id}
    honest = sum(named.values())
    found = figures(results, len(named) - honest, honest)
    print(json.dumps(as_json(results), indent=2) if options.json else table(found))
    if options.write:
        written(found)


if __name__ == "__main__":
    main()
