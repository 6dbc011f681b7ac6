"""The code blocks of docs/reference/clusters.md that name an engine run if the engine is installed.

``tests/docs/test_docs.py`` runs the blocks without an engine.
"""

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.missing import needs
from support.paths import DOCS

# The engines and their imports warn of each other's versions.
pytestmark = pytest.mark.filterwarnings("default")

PAGE = (DOCS / "reference" / "clusters.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)(?: (\w+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [(match[1], match[2], match[3]) for match in BLOCK.finditer(PAGE)]
PROMPT = 'type: chat\nsystem: Be brief.\ninstruction: "Answer in {language}: {question}"\n'
ROWS = "".join(
    f'{{"id": "ask-{at}", "language": "French", "question": "{word}?"}}\n' for at, word in enumerate(("Why", "Who"), 1)
)


@contextlib.contextmanager
def small_cluster() -> Iterator[dict[str, Any]]:
    ray = needs("ray")
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=256 * 2**20, log_to_driver=False)
    try:
        yield {}
    finally:
        ray.shutdown()


def test_every_code_block_is_for_ray_or_for_no_engine() -> None:
    assert {engine for _, engine, _ in BLOCKS} == {None, "ray"}


@pytest.mark.slow  # Ray looks for the metadata server of a cloud
def test_the_ray_code_blocks_print_the_shown_output(tmp_path: Path) -> None:
    shown = [
        (code, BLOCKS[at + 1][2])
        for at, (kind, named, code) in enumerate(BLOCKS)
        if kind == "python" and (named == "ray" or "plan = " in code)
    ]
    with small_cluster() as namespace:
        for code, expected in shown:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(code, "clusters.md", "exec", dont_inherit=True), namespace)  # noqa: S102
            assert printed.getvalue() == expected
    assert len(shown) > 1
    run_commands(tmp_path)


def run_commands(folder: Path) -> None:
    (folder / "ask.yaml").write_text(PROMPT)
    (folder / "rows.jsonl").write_text(ROWS)
    command = f'lazyprompt() {{ "{sys.executable}" -m lazyprompt "$@"; }}\n'
    environment = {**os.environ, "RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES": str(256 * 2**20)}
    for code in (code for kind, named, code in BLOCKS if kind == "console" and named == "ray"):
        for line, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", code, re.MULTILINE):
            done = subprocess.run(  # noqa: S602 - the page's own commands
                command + line, shell=True, check=False, cwd=folder, env=environment, capture_output=True, text=True
            )
            errors = folder / "said.txt"
            assert done.stdout + done.stderr == expected, errors.read_text() if errors.exists() else ""
