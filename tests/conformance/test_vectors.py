"""The conformance vectors of Prompty: those that lie beside the repository where it is built, and our own."""

import json
from pathlib import Path
from typing import Any

import pytest

from conformance.adapter import Adapter
from conformance.runner import fault, load, seen_by
from support.paths import SPECIFICATIONS

SAMPLE = SPECIFICATIONS / "prompty_vectors_sample.json"
OWN = json.loads((Path(__file__).parent / "own_vectors.json").read_text(encoding="utf-8"))
GIVEN: dict[str, Any] = (
    json.loads(SAMPLE.read_text(encoding="utf-8")) if SAMPLE.exists() else {"vectors": [], "fixtures": {}}
)
VECTORS = [(each["operation"], each["vector"], GIVEN["fixtures"]) for each in GIVEN["vectors"]] + [
    (each["operation"], each, {}) for each in OWN
]


@pytest.mark.parametrize(
    ("operation", "vector", "fixtures"), VECTORS, ids=[f"{operation}-{each['name']}" for operation, each, _ in VECTORS]
)
def test_vector(
    operation: str,
    vector: dict[str, Any],
    fixtures: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    adapter, given = Adapter(), vector["input"]
    if operation == "load":
        seen = load(adapter, given, fixtures, tmp_path, monkeypatch)
    else:
        seen = seen_by(adapter, operation, given)
    # A request is compared whole: what is too much in one is refused as well.
    assert not fault(seen, vector["expected"], strict=operation == "toRequest")


@pytest.mark.skipif(not SAMPLE.exists(), reason="the vectors lie beside the repository only where it is built")
def test_all_vectors_of_the_sample_are_there() -> None:
    assert len(GIVEN["vectors"]) == 65
