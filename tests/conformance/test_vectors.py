"""Conformance vectors of Prompty's form."""

import json
from pathlib import Path
from typing import Any

import pytest

from conformance.runner import check_vector

OWN = json.loads((Path(__file__).parent / "own_vectors.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("vector", OWN, ids=[f"{each['operation']}-{each['name']}" for each in OWN])
def test_vector(vector: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_vector(vector["operation"], vector, {}, tmp_path, monkeypatch)
