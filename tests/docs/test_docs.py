"""Every code block of README and docs runs, and prints the output shown below it.

A ``python`` block runs in the namespace of the blocks before it in the same file; a ``text`` block right after it is
its output. In a ``console`` block, lines after ``$`` are commands, which continue where a line ends with a backslash,
and the lines below are their output. A block with a title is a file of that name, which exists in the directory from
there on. The ``bash`` blocks of the README are the two that ``.ci/run`` runs.

Commands of most pages run in this repository. Those of the tutorial, the how-to pages and all pages with files run in
an empty directory with the page's files. There, ``…`` in the output of a command matches any text. The pages in
docs/migrating need libraries that this environment does not have, and have tests of their own.
"""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from itertools import zip_longest
from pathlib import Path

import pytest

from lazyprompt.cli.main import main
from support.docs_models import models_at_hand
from support.paths import FENCE, ROOT, Block, blocks

PAGES = sorted(
    page
    for page in [*ROOT.glob("README*.md"), ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
    if page.parent.name != "migrating"
)
COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
SHELL = frozenset("|;&<>$*`")


def page_name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def has_directory(page: Path) -> bool:
    return page.parent.name == "how-to" or page.name.startswith("tutorial.") or any(each.title for each in blocks(page))


def run_page(page: Path, directory: Path) -> None:
    namespace: dict[str, object] = {"__name__": "docs"}
    found = blocks(page)
    for block, after in zip_longest(found, found[1:]):
        if block.title:
            assert directory != ROOT, f"{page_name(page)}:{block.line} is a file, and this page has no directory"
            file = directory / block.title
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.code, encoding="utf-8")
        elif block.language == "python":
            shown = after is not None and after.language == "text" and after.line <= block.end + 2
            run_python(page, block, after.code if after is not None and shown else None, namespace)
        elif block.language == "console":
            run_console(page, block, directory)


def run_python(page: Path, block: Block, expected: str | None, namespace: dict[str, object]) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n" * block.line + block.code, str(page), "exec", dont_inherit=True), namespace)  # noqa: S102
    if expected is None:
        assert printed.getvalue() == "", f"{page_name(page)}:{block.line} prints, but shows no output"
    else:
        assert printed.getvalue() == expected, f"{page_name(page)}:{block.end}"


def run_console(page: Path, block: Block, directory: Path) -> None:
    for command, expected in COMMAND.findall(block.code):
        here = has_directory(page) and command.startswith("lazyprompt ") and SHELL.isdisjoint(command)
        printed = (run_in_process(command) if here else run_in_shell(command, directory)).rstrip("\n")
        shown = expected.rstrip("\n")
        if has_directory(page) and re.fullmatch(re.escape(shown).replace("…", ".*"), printed):
            continue
        assert printed == shown, f"{page_name(page)}:{block.line}: {command}"


def run_in_shell(command: str, directory: Path) -> str:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(  # noqa: S602 - the documents' own commands
        command, shell=True, check=False, cwd=directory, env=environment, capture_output=True, text=True
    )
    return done.stdout + done.stderr


def run_in_process(command: str) -> str:
    """Run a command of lazyprompt in this process, which saves the second that importing the clients takes."""
    printed, errors = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
        main(shlex.split(command.replace("\\\n", " "))[1:])
    printed.seek(0)
    return printed.read() + errors.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_code_blocks_print_the_shown_output(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = page.read_text(encoding="utf-8")
    if has_directory(page) or "OnlineChatModule(" in text:
        with models_at_hand(tmp_path, monkeypatch):
            run_page(page, tmp_path if has_directory(page) else ROOT)
    else:
        if "write_text(" in text:
            monkeypatch.chdir(tmp_path)
        run_page(page, ROOT)


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_code_blocks_have_a_tested_language(page: Path) -> None:
    kinds = {block.language for block in blocks(page)}
    assert kinds <= {"python", "text", "console", "bash", "yaml"}
    if not page.name.startswith("README"):
        assert "bash" not in kinds


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name == "how-to"], ids=page_name)
def test_a_how_to_page_starts_with_an_example(page: Path) -> None:
    # The page about extensions began with a table.
    introduction = page.read_text(encoding="utf-8").partition("\n## ")[0]
    assert FENCE.search(introduction) is not None
    assert len(introduction.partition("```")[0].split()) < 50


@pytest.mark.parametrize("page", [page for page in PAGES if has_directory(page)], ids=page_name)
def test_text_before_a_file_block_names_the_file(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for match in FENCE.finditer(text):
        assert match[2] is None or f"`{match[2]}`" in text[: match.start()], match[2]


def test_both_readmes_have_the_same_two_command_lines() -> None:
    lines = [block.code for block in blocks(ROOT / "README.md") if block.language == "bash"]
    assert len(lines) == 2
    assert [block.code for block in blocks(ROOT / "README.zh.md") if block.language == "bash"] == lines
