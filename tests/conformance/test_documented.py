"""Examples like those in documents of other libraries, and the printed ones themselves where they are available."""

import json
from pathlib import Path
from typing import Any

import pytest

from conformance.documented import check_format, check_prompt_file, check_prompter
from conformance.runner import check_vector
from support.front_matter import VALIDATOR, fields_of
from support.paths import SPECIFICATIONS

AVAILABLE = SPECIFICATIONS.is_dir()


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def own(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read_json(Path(__file__).parent / f"own_{name}.json")
    return found


def printed_output(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read_json(SPECIFICATIONS / f"{name}_documented.json") if AVAILABLE else []
    return found


PRINTED_PROMPTERS, PRINTED_FORMATS, PRINTED_FILES = map(printed_output, ("lazyllm", "agentscope", "prompty"))
PRINTED_VECTORS: dict[str, Any] = (
    read_json(SPECIFICATIONS / "prompty_vectors_sample.json") if AVAILABLE else {"vectors": [], "fixtures": {}}
)


def each(cases: list[dict[str, Any]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=[case["name"] for case in cases])


@each(own("prompters") + PRINTED_PROMPTERS)
def test_prompter_matches_documents(case: dict[str, Any]) -> None:
    check_prompter(case)


@each(own("formats") + PRINTED_FORMATS)
def test_formatter_matches_documents(case: dict[str, Any], tmp_path: Path) -> None:
    check_format(case, tmp_path)


@each(own("prompt_files") + PRINTED_FILES)
def test_prompt_file_matches_documents(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_prompt_file(case, tmp_path, monkeypatch)


VECTORS = own("vectors") + [{"operation": made["operation"], **made["vector"]} for made in PRINTED_VECTORS["vectors"]]


@pytest.mark.parametrize("vector", VECTORS, ids=[f"{vector['operation']}-{vector['name']}" for vector in VECTORS])
def test_prompty_vector_passes(vector: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_vector(vector["operation"], vector, PRINTED_VECTORS["fixtures"], tmp_path, monkeypatch)


@pytest.mark.skipif(not AVAILABLE, reason="the printed examples are not part of the repository")
def test_documented_examples_are_complete_and_valid_by_the_schema() -> None:
    vectors, fixtures = PRINTED_VECTORS["vectors"], PRINTED_VECTORS["fixtures"].items()
    assert [*map(len, (PRINTED_PROMPTERS, PRINTED_FORMATS, PRINTED_FILES, vectors))] == [15, 22, 13, 65]
    texts = [case["text"] for case in PRINTED_FILES] + [text for name, text in fixtures if name.endswith(".prompty")]
    for text in texts:
        VALIDATOR.validate(fields_of(text))
