"""Agent definitions of the kinds that the documents print."""

import json
from pathlib import Path
from typing import Any

import pytest

from conformance.documented import check_prompt_file

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "own_documented.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_documented_example(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_prompt_file(case, tmp_path, monkeypatch)
