"""Every code block of README and docs runs, and prints what stands below it.

A ``python`` block runs in the namespace of the blocks before it in the same file; a ``text`` block right after it is
its output. In a ``console`` block, lines after ``$`` are commands and the lines below are their output. The ``bash``
blocks of the README are the two that ``.ci/run`` runs.
"""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from docs_models import models_at_hand

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("README*.md"), ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")])
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")


class Block(NamedTuple):
    language: str
    code: str
    line: int
    end: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(match[1], match[2], text.count("\n", 0, match.start()) + 1, text.count("\n", 0, match.end()) + 1)
        for match in FENCE.finditer(text)
    ]


def run_python(page: Path) -> None:
    namespace: dict[str, object] = {"__name__": "docs"}
    found = blocks(page)
    for index, block in enumerate(found):
        if block.language != "python":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * block.line + block.code, str(page), "exec", dont_inherit=True), namespace)  # noqa: S102
        after = found[index + 1] if index + 1 < len(found) else None
        if after is not None and after.language == "text" and after.line <= block.end + 2:
            assert printed.getvalue() == after.code, f"{page.name}:{after.line}"
        else:
            assert printed.getvalue() == "", f"{page.name}:{block.line} prints, but shows no output"


def run_console(page: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for block in blocks(page):
        if block.language != "console":
            continue
        for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.code, re.MULTILINE):
            done = subprocess.run(  # noqa: S602 - the documents' own commands
                command, shell=True, check=False, cwd=ROOT, env=environment, capture_output=True, text=True
            )
            printed = done.stdout + done.stderr
            assert printed.rstrip("\n") == expected.rstrip("\n"), f"{page.name}:{block.line}: {command}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_blocks_run_and_print_what_they_show(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "OnlineChatModule(" in page.read_text(encoding="utf-8"):
        with models_at_hand(tmp_path, monkeypatch):
            run_python(page)
    else:
        run_python(page)
    run_console(page)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_are_of_a_kind_that_is_tested(page: Path) -> None:
    kinds = {block.language for block in blocks(page)}
    assert kinds <= {"python", "text", "console", "bash", "yaml"}
    if not page.name.startswith("README"):
        assert "bash" not in kinds


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_both_readmes_hold_the_same_two_command_lines() -> None:
    lines = [block.code for block in blocks(ROOT / "README.md") if block.language == "bash"]
    assert len(lines) == 2
    assert [block.code for block in blocks(ROOT / "README.zh.md") if block.language == "bash"] == lines


@pytest.mark.parametrize("name", ["families", "blocks"])
def test_a_page_of_a_table_is_made_from_the_table(name: str) -> None:
    made = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, "-c", f"import runpy; print(runpy.run_path('docs/make_{name}.py')['page'](), end='')"],
        check=True,
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONUTF8": "1"},
    )
    assert made.stdout == (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
