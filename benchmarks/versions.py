"""``lazyprompt test --against``: the time to compare 10,000 rows of two versions, and what it holds in memory.

    python benchmarks/versions.py            a table
    python benchmarks/versions.py --check    exit with 1 if a limit is exceeded

A ratio is the time of the comparison to that of reading the rows and rendering them with each version. Each is the
processor's time, the least of three. Memory is Python's own peak (tracemalloc) for 10,000 rows, less that for 1,000.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))

from lazyprompt.batch.rows import read_rows
from lazyprompt.files.prompt_file import PromptFile
from lazyprompt.files.prompty import Prompty
from lazyprompt.testing.cases import CaseFile
from lazyprompt.testing.report import Report
from lazyprompt.testing.running import Runner

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = 10_000
MOST = 16.0
MOST_BYTES = 8_000_000
PROMPTY = """---
name: desk
model: {{id: gpt-5-mini}}
inputs:
  - {{name: customer, kind: string, required: true}}
  - {{name: question, kind: string, required: true}}
---
system:
You are the help desk of a library. Be {word}.

user:
I am {{{{ customer }}}}. {{{{ question }}}}
"""
YAML = """instruction:
  system: "You are the help desk of a library. Be {word}."
  user: "I am {{customer}}. {{question}}"
"""


def main() -> int:
    """Print the table, and return the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--slack", type=float, default=1.0, help="how many times its limit a ratio may be")
    asked = parser.parse_args()
    missed = False
    print(f"{'rows':36} {'ratio':>6} {'changed':>8} {'memory':>10}")
    for name, form in (("desk.yaml", YAML), ("desk.prompty", PROMPTY)):
        before = form.format(word="kind")
        slot = "{question}" if form is YAML else "{{ question }}"
        for what, after in {
            "none changed": before,
            "own text changed": form.format(word="brief"),
            "slots moved": before.replace(f". {slot}", "").replace("I am", f"{slot} I am"),
            "a slot's text changed": before.replace(slot, f"{slot} {slot}"),
        }.items():
            with TemporaryDirectory() as directory:
                ratio, changed, held = measured(Path(directory), name, (before, after))
            print(f"{name + ', ' + what:36} {ratio:6.2f} {changed:8,} {held:10,}")
            missed = missed or ratio > MOST * asked.slack or held > MOST_BYTES
    return int(asked.check and missed)


def measured(directory: Path, name: str, texts: tuple[str, str]) -> tuple[float, int, int]:
    """The ratio, the number of changed rows, and the bytes held for the other nine thousand."""
    paths = directory / "old" / name, directory / "new" / name
    for path, text in zip(paths, texts, strict=True):
        path.parent.mkdir()
        path.write_text(text, encoding="utf-8")
    rows = paths[1].with_name("desk.test.jsonl")
    write_rows(rows, ROWS)

    def render() -> None:
        for path in paths:
            prompter = PromptFile.load(path).prompter if name.endswith(".yaml") else Prompty.load(path).prompter
            for _, row in read_rows(rows):
                prompter.generate_prompt(row, format="openai")

    def compare() -> Report:
        report = Report(compares=True)
        for result in Runner(older=lambda path: paths[0].with_name(path.name)).run([CaseFile.read(rows)]):
            report.add(result)
        return report

    ratio = least(compare) / least(render)
    found = len(compare().changed)
    whole = peak(compare)
    write_rows(rows, ROWS // 10)
    return ratio, found, whole - peak(compare)


def write_rows(path: Path, count: int) -> None:
    """Write rows of some ten to a hundred words."""
    lines = (
        json.dumps({"customer": f"c-{number}", "question": f"Question {number}: " + "some more words " * (number % 30)})
        for number in range(count)
    )
    path.write_text("\n".join(lines), encoding="utf-8")


def least(work: Callable[[], object]) -> float:
    """The least time of three."""
    times: list[float] = []
    for _ in range(3):
        gc.collect()
        begin = process_time()
        work()
        times.append(process_time() - begin)
    return min(times)


def peak(work: Callable[[], object]) -> int:
    """Python's peak of memory in some work, and what it leaves."""
    tracemalloc.start()
    kept = work()
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    del kept
    return found


if __name__ == "__main__":
    raise SystemExit(main())
