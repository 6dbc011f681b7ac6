"""Test files: how they are found, and how their cases are read."""

from pathlib import Path
from typing import Any

import pytest

from lazyprompt.errors import BatchError, PromptFileError
from lazyprompt.testing.cases import Case, CaseFile, case_files, is_case_file
from lazyprompt.testing.checks import make_check

FILE = """file: ask.prompty
params: {who: Ann, count: 2}
prompt: [{contains: Hi}]
answer: [{not_contains: No}]
rows: more.jsonl
cases:
  - {inputs: {name: Ann}, history: [[a, b]], prompt: [{roles: [user]}]}
  - {name: 7, tools: [], answer: [{regex: x}]}
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("ask.prompty", "talk.yaml"):
        Path(name).write_text("user:\nHi\n", encoding="utf-8")


def test_a_test_file_lists_cases_before_rows_and_common_checks_last() -> None:
    path, rows = Path("x.test.yaml"), Path("more.jsonl")
    path.write_text(FILE, encoding="utf-8")
    rows.write_text('{"name": "Bob"}\n\nno\n', encoding="utf-8")
    file = CaseFile.read(path)
    hi, no = make_check("prompt", "contains", "Hi"), make_check("answer", "not_contains", "No")
    assert (file.path, file.prompt, dict(file.params)) == (path, Path("ask.prompty"), {"who": "Ann", "count": 2})
    roles, pattern = make_check("prompt", "roles", ["user"]), make_check("answer", "regex", "x")
    found = [*file.cases()]
    assert [each.line for each in found] == [7, 8, 1, 3]
    assert [each._replace(row=None, prompt=(), answer=()) for each in found] == [
        Case(path, 7, "1", ({"name": "Ann"}, [["a", "b"]], None)),
        Case(path, 8, "7", (None, None, [])),
        Case(rows, 1, "row 1"),
        Case(rows, 3, "row 2", fault=found[3].fault),
    ]
    assert found[3].fault == "line 3: not valid JSON: Expecting value at column 1"
    kinds = [([each.kind for each in case.prompt], [each.kind for each in case.answer]) for case in found]
    assert kinds == [
        ([roles.kind, hi.kind], [no.kind]),
        ([hi.kind], [pattern.kind, no.kind]),
        ([hi.kind], [no.kind]),
        ([], []),
    ]
    inputs: Any = found[2].inputs
    assert (dict(inputs), found[0].inputs) == ({"name": "Bob"}, {"name": "Ann"})


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[]", "1:1: a test file must be a mapping, not a list"),
        ("cases: [{inputs: {}}, 3]", "1:23: cases[1] must be a mapping, not a number"),
        ("cases: [{input: {}}]", "1:10: unknown field 'input' in a case (did you mean 'inputs'?); expected one of "),
        ("cases: 3", "1:8: cases must be a list, not a number"),
        ("file: 3", "1:7: file must be text, not a number"),
        ("file: ask.txt", "1:7: 'ask.txt' is not a prompt file; its name must end in .prompty, .yaml, .yml"),
        ("file: gone.yaml", "1:7: prompt file 'gone.yaml' doesn't exist"),
        ("file: link.yml", "1:7: 'link.yml' is a link to 'notes.txt', which is not a prompt file"),
        ("file: ../x.yaml", "1:7: '../x.yaml'"),
        ("rows: ../x.jsonl", "1:7: '../x.jsonl'"),
        ("params: []", "1:9: params must be a mapping, not a list"),
        ("cases: [{name: a}, {name: b},\n {name: a}]", "2:2: duplicate case name 'a'; the first is on line 1"),
        ("name: x", "1:1: unknown field 'name' in a test file; expected one of file, params, cases, rows, prompt, a"),
        ("{}", "1:1: the file contains no cases; add cases: [{inputs: {...}}], or rows: FILE.jsonl"),
    ],
)
def test_error_for_an_invalid_test_file_names_the_line_and_column(text: str, fault: str) -> None:
    Path("notes.txt").touch()
    Path("link.yml").symlink_to("notes.txt")
    Path("ask.test.yml").write_text(text, encoding="utf-8")
    with pytest.raises(PromptFileError) as caught:
        CaseFile.read(Path("ask.test.yml"))
    assert str(caught.value).startswith(f"ask.test.yml:{fault}")


@pytest.mark.parametrize("name", ["ask.test.yaml", "ask.test.jsonl"])
def test_the_prompt_file_of_a_test_file_is_the_only_one_with_its_name(name: str) -> None:
    path = Path(name)
    path.write_text("cases: [{}]" if path.suffix == ".yaml" else "{}", encoding="utf-8")
    assert CaseFile.read(path).prompt == Path("ask.prompty")
    Path("ask.yml").touch()
    with pytest.raises(PromptFileError) as caught:
        CaseFile.read(path)
    assert str(caught.value) == f"{name}:1:1: ask.prompty and ask.yml both match; set the prompt file with file:"
    Path("ask.prompty").unlink()
    assert CaseFile.read(path).prompt == Path("ask.yml")
    Path("ask.yml").unlink()
    with pytest.raises(PromptFileError) as caught:
        CaseFile.read(path)
    missing = "the prompt file ask.prompty doesn't exist (nor ask.yaml or ask.yml); create it, or set file:"
    assert str(caught.value) == f"{name}:1:1: {missing}"


@pytest.mark.parametrize(
    ("line", "text"), [(1, "answer: [{python: a:b}]\ncases: [{}]"), (3, "cases:\n- {}\n- {answer: [{python: a:b}]}")]
)
def test_error_for_a_check_that_runs_code_names_its_line(line: int, text: str) -> None:
    path = Path("ask.test.yaml")
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BatchError) as caught:
        CaseFile.read(path).check_no_code()
    why = "the check 'python: a:b' runs code; pass --allow-code if you trust this file"
    assert str(caught.value) == f"ask.test.yaml:{line}:1: {why}"
    path.write_text("cases: [{answer: [{contains: a}]}]", encoding="utf-8")
    CaseFile.read(path).check_no_code()


@pytest.mark.parametrize(
    ("name", "text", "is_ours"),
    [
        ("ask.test.yaml", "", True),  # beside a .prompty file
        ("talk.test.yaml", "cases: [{}]", True),  # beside a prompt in YAML
        ("talk.test.yaml", "name: x", False),
        ("other.test.yml", "cases: [{}]", False),
        ("other.test.yaml", "file: x.yaml\n'cases': [{}]", True),
        ("other.test.yaml", "cases:\n- {inputs: {}}", True),
        ("other.test.yaml", "rows: a.csv", True),
        ("other.test.yaml", "rows: a.txt", False),
        ("other.test.yaml", "- {inputs: {}}", False),
        ("other.test.yaml", "cases:\n- {my-inputs: {}}", False),
        ("other.test.yaml", "\xff", False),
    ],
)
def test_test_files_are_distinguished_from_files_of_other_tools(name: str, text: str, *, is_ours: bool) -> None:
    Path(name).write_bytes(text.encode("latin-1"))
    assert is_case_file(Path(name)) is is_ours
    assert [*case_files(Path())] == ([Path(name)] if is_ours else [])
    assert [*case_files(Path(name))] == [Path(name)]


def test_case_files_of_a_prompt_and_of_a_directory_are_found() -> None:
    Path("sub").mkdir()
    for name in ("ask.test.csv", "ask.test.jsonl", "ask.test.yaml", "ask.test.yml", "sub/b.test.csv", ".c.test.csv"):
        Path(name).touch()
    names = ["ask.test.yaml", "ask.test.yml", "ask.test.jsonl", "ask.test.csv"]
    assert [*case_files(Path("ask.prompty"))] == [*map(Path, names)]
    assert [*case_files(Path("talk.yaml"))] == []
    assert [*case_files(Path())] == [*map(Path, sorted([*names, "sub/b.test.csv"]))]
