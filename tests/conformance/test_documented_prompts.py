"""Printed examples of agent definitions: from the specification where it lies beside the repository, and our own."""

import json
from pathlib import Path
from typing import Any

import pytest

from lazyprompt.files.prompty import Prompty
from support.paths import SPECIFICATIONS

SPECIFICATION = SPECIFICATIONS / "prompty_documented.json"
OWN = Path(__file__).parent / "own_documented.json"
CASES: list[dict[str, Any]] = [
    case for path in (SPECIFICATION, OWN) if path.exists() for case in json.loads(path.read_text(encoding="utf-8"))
]
# In Prompty v2, Markdown is text, and nothing else tells that these are agent definitions: their dialect is given.
ONLY_MARKDOWN = {
    *("image-markdown", "file-markdown", "media-attributes"),
    *("a picture", "a file", "a picture with attributes"),
}


def seen(case: dict[str, Any], dialect: str | None, folder: Path) -> dict[str, Any]:
    prompt = Prompty.loads(case["text"], base_dir=folder, params=case.get("params"), dialect=dialect)
    made = prompt.generate_prompt(case.get("inputs", {}), format="neutral")
    return {"name": prompt.name, "model": prompt.model, "tools": [], **made}


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_documented_example(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in case.get("env", {}).items():
        monkeypatch.setenv(name, value)
    for name, text in case.get("files", {}).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    wanted = case["expected"]
    for dialect in (case["dialect"],) if case["name"] in ONLY_MARKDOWN else (case["dialect"], None):
        made = seen(case, dialect, tmp_path)
        assert {key: made[key] for key in wanted} == wanted


@pytest.mark.skipif(not SPECIFICATION.exists(), reason="the specification lies beside the repository where it is built")
def test_all_examples_of_the_specification_are_there() -> None:
    assert len(json.loads(SPECIFICATION.read_text(encoding="utf-8"))) == 13
