"""The example library: each prompt has test cases, and all pass; memory does not grow with the rows."""

import tracemalloc
from pathlib import Path

import pytest

from lazyprompt.testing.cases import CaseFile, case_files
from lazyprompt.testing.report import Report
from lazyprompt.testing.running import Runner
from support.paths import LIBRARY, library_inputs
from support.vocabularies import CL100K, O200K, vocabulary_folder


@pytest.mark.parametrize("has_vocabulary", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_each_prompt_of_the_library_has_a_case_that_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_vocabulary: bool
) -> None:
    """Tokens are counted with the model's vocabulary if it is on the machine, else approximately."""
    monkeypatch.setattr("tiktoken.registry.ENCODINGS", {})
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(vocabulary_folder(CL100K, O200K) if has_vocabulary else tmp_path))
    files = [*map(CaseFile.read, case_files(LIBRARY))]
    assert {file.prompt.relative_to(LIBRARY).as_posix() for file in files} == set(library_inputs())
    results = [*Runner().run(files)]
    assert len(results) >= 100
    assert all(result.case.prompt for result in results)
    assert [((result.case.file, result.case.name), result.failures) for result in results if result.failures] == []


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_rows(tmp_path: Path) -> None:
    prompt = tmp_path / "ask.yaml"
    prompt.write_text("instruction: Answer in {language}.\n", encoding="utf-8")
    rows = tmp_path / "ask.test.jsonl"

    def peak(count: int) -> int:
        rows.write_text('{"language": "Thai", "input": "A question."}\n' * count, encoding="utf-8")
        report = Report(compares=True)
        tracemalloc.start()
        for result in Runner(older=lambda path: path).run([CaseFile.read(rows)]):
            report.add(result)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert sum(report.passed.values()) == count
        return found

    peak(10)
    assert peak(4000) - peak(400) < 50_000
