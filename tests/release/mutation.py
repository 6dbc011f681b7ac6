"""Measure how many small faults the quick tests notice, in twenty modules that the week of the year selects.

python tests/release/mutation.py [MODULE ...]

Exits with status 1 if the tests notice fewer than 80 % of the faults. mutmut makes the faults and selects the tests
that run each changed function. Text for people, such as error messages, stays unchanged.
"""

import ast
import datetime as dt
import json
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULES, LINES, SHARE = 20, 60, 0.8
CONFIG = """
[tool.mutmut]
source_paths = ["lazyprompt"]
only_mutate = {modules}
also_copy = {copied}
do_not_mutate_patterns = ['"[^"]*\\w,? \\w[^"]*"']
pytest_add_cli_args = ["-n0", "-p", "no:randomly", "-m", "not slow and not timing"]
pytest_add_cli_args_test_selection = {tests}
"""
# These tests read the package's source files, whose mutants they would find instead of the code.
READERS = {"docs", "golden", "package", "release", "support", "typing", "migrating"}


def statement_lines(path: Path) -> int:
    """Return the number of lines on which a statement begins."""
    return len({node.lineno for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.stmt)})


def select_modules(week: tuple[int, int]) -> list[str]:
    """Return the paths of the week's modules.

    Args:
        week: The year and the number of the week.
    """
    paths = [path for path in sorted((ROOT / "lazyprompt").rglob("*.py")) if statement_lines(path) > LINES]
    chosen = random.Random(str(week)).sample(paths, MODULES)  # noqa: S311 - no secret
    return [str(path.relative_to(ROOT)) for path in chosen]


def main(modules: list[str]) -> int:
    """Test the mutants of modules, print the results, and return the exit status."""
    modules = modules or select_modules(dt.datetime.now(dt.UTC).isocalendar()[:2])
    sys.stdout.write("\n".join([*modules, ""]))
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory, "checkout")
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*_cache", ".hypothesis", ".venv*"))
        copied = [each.name for each in copy.iterdir() if each.name not in {"lazyprompt", "tests", ".git"}]
        tests = [f"tests/{each.name}" for each in sorted((copy / "tests").iterdir()) if each.is_dir()]
        settings = {"modules": modules, "copied": copied, "tests": [each for each in tests if each[6:] not in READERS]}
        with (copy / "pyproject.toml").open("a", encoding="utf-8") as config:
            config.write(CONFIG.format_map({name: json.dumps(value) for name, value in settings.items()}))
        mutmut = [sys.executable, "-m", "mutmut"]
        for arguments in (["run"], ["results"], ["export-cicd-stats"]):
            subprocess.run([*mutmut, *arguments], cwd=copy, check=True)  # noqa: S603 - our own command
        found = json.loads((copy / "mutants" / "mutmut-cicd-stats.json").read_text("utf-8"))
    noticed: int = found["killed"] + found["timeout"] + found["segfault"] + found["suspicious"]
    share: float = noticed / max(1, noticed + found["survived"] + found["no_tests"])
    counts = f"{noticed} faults noticed, {found['survived']} survived, {found['no_tests']} run by no test"
    sys.stdout.write(f"{counts}: {share:.0%}\n")
    return int(share < SHARE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
