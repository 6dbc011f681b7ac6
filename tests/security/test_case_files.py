"""Untrusted test files read nothing outside their directory, have time limits for their patterns, and run no code.

Once, ``file: ../../.ssh/id_rsa`` was read, and printed when pytest collected the test file.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

import pytest

from lazyprompt.cli.main import main
from lazyprompt.errors import BatchError, LazyPromptError, PromptFileError
from lazyprompt.testing.cases import CaseFile, is_case_file, render_cases
from lazyprompt.testing.checks import answer_failures, make_check, prompt_failures
from lazyprompt.testing.difference import older_version
from lazyprompt.testing.rendered import LoadedPrompt
from lazyprompt.testing.running import Answers, Runner, Snapshots
from support.missing import needs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Ran(NamedTuple):
    status: int
    out: str
    err: str


def run_in_process(*arguments: str) -> Ran:
    """Run a command whose output is no terminal."""
    out, err = (TextIOWrapper(BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    stdin = TextIOWrapper(BytesIO())
    with redirect_stdout(out), redirect_stderr(err), patch.object(sys, "stdin", stdin):
        status = main([*arguments])
    return Ran(status, *(each.buffer.getvalue().decode() for each in (out, err)))


HIDDEN = "hunter2-the-secret"
LINES = f"user:\n{HIDDEN}\n"


@pytest.fixture
def base(tmp_path: Path) -> Iterator[Path]:
    """An untrusted directory beside private files."""
    made = tmp_path / "theirs"
    (made / "in").mkdir(parents=True)
    (made / "own.prompty").write_text("user:\nfine\n")
    for name in ("secret.prompty", "secret.yaml", "secret.jsonl", "secret", ".env"):
        (tmp_path / name).write_text(LINES)
    (made / ".env").write_text(LINES)
    (made / "link.prompty").symlink_to(tmp_path / "secret")
    (made / "link.yaml").symlink_to("../secret.yaml")
    (made / "inner.prompty").symlink_to(".env")
    (made / "door").symlink_to(tmp_path)
    (made / "rows.jsonl").symlink_to(tmp_path / "secret.jsonl")
    before = Path.cwd()
    os.chdir(made)
    yield made
    os.chdir(before)


NAMES = [
    *("../secret.prompty", "{tmp}/secret.prompty", "in/../../secret.yaml", "link.prompty", "link.yaml"),
    *("door/secret.prompty", "inner.prompty", "../secret", ".env", "{tmp}/.env", "/etc/passwd", "in/../.env"),
]


def case_file_messages(base: Path, text: str) -> str:
    """The output of the test command about a test file, in all formats."""
    (base / "a.test.yaml").write_text(text)
    printed: list[str] = []
    for form in ("table", "json", "junit", "github"):
        ran = run_in_process("test", "a.test.yaml", "--format", form, "--update")
        printed += [ran.out, ran.err]
    assert not (base / "a.test.snapshots.yaml").exists()
    return "".join(printed)


@pytest.mark.parametrize("name", NAMES)
def test_test_file_with_a_prompt_outside_its_directory_is_refused(base: Path, name: str) -> None:
    """The naive version joined the paths, read each of these files, and quoted its first line in an error."""
    name = name.format(tmp=base.parent)
    printed = case_file_messages(base, f"file: {name}\ncases: [{{prompt: [{{contains: x}}, {{snapshot: true}}]}}]\n")
    assert "a.test.yaml:1:7: " in printed
    assert HIDDEN not in printed


@pytest.mark.parametrize("name", ["../secret.jsonl", "{tmp}/secret.jsonl", "rows.jsonl", "door/secret.jsonl"])
def test_test_file_with_rows_outside_its_directory_is_refused(base: Path, name: str) -> None:
    printed = case_file_messages(base, f"file: own.prompty\nrows: {name.format(tmp=base.parent)}\n")
    assert "a.test.yaml:2:7: " in printed
    assert "outside allowed roots" in printed
    assert HIDDEN not in printed


@pytest.mark.parametrize("end", ["yaml", "jsonl"])
def test_test_file_that_links_out_of_its_directory_is_refused(base: Path, end: str) -> None:
    """A test file was read through a link, and an error quoted the first line of the linked file."""
    (base / f"own.test.{end}").symlink_to(base.parent / "secret.jsonl")
    if end == "yaml":
        assert is_case_file(base / "own.test.yaml")
    with pytest.raises(PromptFileError, match="outside allowed roots") as caught:
        CaseFile.read(base / f"own.test.{end}")
    assert HIDDEN not in str(caught.value)


def test_prompt_that_links_out_of_its_directory_is_refused(base: Path) -> None:
    (base / "link.test.yaml").write_text("cases: [{}]")
    (base / "link.yaml").unlink()
    assert HIDDEN not in str([*Runner().run([CaseFile.read(base / "link.test.yaml")])])
    with pytest.raises(LazyPromptError, match="outside allowed roots"):
        render_cases(base / "link.prompty")


def test_snapshot_file_that_links_out_of_its_directory_is_refused(base: Path) -> None:
    (base / "own.test.snapshots.yaml").symlink_to(base.parent / "secret.yaml")
    with pytest.raises(PromptFileError, match="outside allowed roots"):
        Snapshots(base / "own.test.yaml")


def test_prompt_outside_the_directory_is_read_with_the_root_option(base: Path) -> None:
    (base / "a.test.yaml").write_text("file: ../secret.prompty\ncases: [{prompt: [{contains: hunter2}]}]\n")
    assert run_in_process("test", "a.test.yaml").status == 2
    assert run_in_process("test", "a.test.yaml", "--root", "..").status == 0


@pytest.mark.slow
def test_pytest_collection_prints_no_content_of_files_outside(base: Path) -> None:
    (base / "a.test.yaml").write_text("file: ../secret.yaml\ncases: [{prompt: [{contains: x}]}]\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", str(base)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=base)  # noqa: S603 - pytest
    assert "outside allowed roots" in ran.stdout
    assert HIDDEN not in ran.stdout + ran.stderr
    (base / "pytest.ini").write_text("[pytest]\nlazyprompt_roots = ..\n")
    (base / "a.test.yaml").write_text("file: ../secret.prompty\ncases: [{prompt: [{contains: x}]}]\n")
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=base)  # noqa: S603 - as above
    assert "<PromptCase 1>" in ran.stdout


def test_rows_from_a_named_pipe_are_refused(base: Path) -> None:
    """Rows of a test file were opened without a check of the file type, which blocked at a pipe."""
    os.mkfifo(base / "pipe.jsonl")
    (base / "a.test.yaml").write_text("file: own.prompty\nrows: pipe.jsonl\n")
    with pytest.raises(BatchError, match="not a regular file"):
        [*Runner().run([CaseFile.read(base / "a.test.yaml")])]


def test_older_version_that_is_a_link_is_not_read(base: Path) -> None:
    """A link in another directory, or in a commit, was followed."""
    (base / "old").mkdir()
    (base / "old" / "own.prompty").symlink_to(base.parent / "secret.prompty")
    (base / "own.test.yaml").write_text("cases: [{prompt: [{contains: fine}]}]")
    ran = run_in_process("test", "own.test.yaml", "--against", "old")
    assert HIDDEN not in ran.out + ran.err


def git(*arguments: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *arguments], check=True, capture_output=True)  # noqa: S603, S607 - of the user


def test_comparison_with_a_git_revision_runs_no_filters_and_no_hooks(base: Path) -> None:
    """``--against`` checked out a revision, which ran the filters and hooks of an untrusted repository."""
    git("init", "-q")
    (base / ".gitattributes").write_text("*.prompty filter=evil\n")
    git("add", ".gitattributes", "own.prompty", "link.prompty")
    git("commit", "-q", "-m", "a")
    script = base / "evil.sh"
    script.write_text(f"#!/bin/sh\ntouch {base.parent}/ran\ncat\n")
    script.chmod(0o700)
    for name in ("post-index-change", "post-checkout", "reference-transaction", "fsmonitor-watchman"):
        (base / ".git" / "hooks").mkdir(exist_ok=True)
        (base / ".git" / "hooks" / name).symlink_to(script)
    for name in ("filter.evil.smudge", "filter.evil.clean", "core.fsmonitor", "core.pager", "core.sshCommand"):
        git("config", name, str(script))
    (base.parent / "ran").unlink(missing_ok=True)
    (base / "own.test.yaml").write_text("cases: [{prompt: [{contains: fine}]}]")
    with older_version("HEAD", [base]) as find:
        assert find(base / "own.prompty").read_text() == "user:\nfine\n"
        assert not os.path.lexists(find(base / "link.prompty"))
    assert run_in_process("test", "own.test.yaml", "--against", "HEAD").status == 0
    assert not (base.parent / "ran").exists()


class Echo:
    """A model that repeats the prompt."""

    prompter: Any = None

    def share(self, prompter: Any) -> Echo:
        made = Echo()
        made.prompter = prompter
        return made

    def payload(self, *call: Any, **_: object) -> object:
        return self.prompter.generate_prompt(*call, return_dict=True)

    def __call__(self, *call: Any, **_: object) -> str:
        return str(self.prompter.generate_prompt(*call))


def answers(path: Path) -> Answers:
    module: Any = Echo()
    return Answers(path, module, "echo", lambda _: {})


@pytest.mark.parametrize(
    ("name", "plant"),
    [
        ("", Path.symlink_to),
        ("answers.sqlite", Path.symlink_to),
        ("answers.sqlite", Path.hardlink_to),
        # SQLite itself wrote through none of these: it removed the link, or opened nothing.
        ("answers.sqlite-wal", Path.symlink_to),
    ],
)
@pytest.mark.parametrize("exists", [True, False])
def test_responses_are_not_saved_through_planted_links(
    base: Path, name: str, plant: Callable[[Path, Path], None], *, exists: bool
) -> None:
    """The database was opened through links: any database got another table, or a file was made anywhere."""
    victim = base.parent / "elsewhere" / "answers.sqlite"
    victim.parent.mkdir()
    if exists:
        with sqlite3.connect(victim) as database:
            database.execute("CREATE TABLE mine (a)")
    elif plant is Path.hardlink_to:
        pytest.skip("a second name needs a file")
    before = {each.name: each.read_bytes() for each in victim.parent.iterdir()}
    place = base / ".lazyprompt" / name
    place.parent.mkdir(exist_ok=True)
    plant(place, victim if name else victim.parent)
    with pytest.raises(BatchError, match="responses can't be saved"):
        answers(Path(".lazyprompt/answers.sqlite"))
    assert {each.name: each.read_bytes() for each in victim.parent.iterdir()} == before


def test_response_database_is_created_and_opened_again(base: Path) -> None:
    for _ in range(2):
        answers(Path(".lazyprompt/answers.sqlite")).close()
    assert sorted(each.name for each in (base / ".lazyprompt").iterdir()) == [".gitignore", "answers.sqlite"]


BACKTRACKING = "(a|a)+$"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["regex", "not_regex"])
@pytest.mark.parametrize("pattern", [BACKTRACKING, "(a|aa)+$", "^(?:b|(a|a)+$)"])
def test_backtracking_pattern_of_a_check_is_stopped(kind: str, pattern: str) -> None:
    """``re`` itself would take 2 ** 60 steps."""
    case = LoadedPrompt.load(Path("x"), text="user:\n" + "a" * 60 + "!").render()
    begun = time.process_time()
    (failure,) = prompt_failures(case, [make_check("prompt", kind, pattern)])
    assert "takes more than 1 s" in failure.message
    assert time.process_time() - begun < 5


SCHEMAS: list[dict[str, Any]] = [
    {"type": "string", "pattern": BACKTRACKING},
    {"type": "object", "patternProperties": {BACKTRACKING: True}},
    {"type": "object", "patternProperties": {BACKTRACKING: True}, "additionalProperties": False},
    {"properties": {"a": {"items": {"pattern": BACKTRACKING}}}},
]


@pytest.mark.slow
@pytest.mark.parametrize("schema", SCHEMAS)
def test_backtracking_pattern_in_a_json_schema_is_stopped(schema: dict[str, Any]) -> None:
    """Patterns in the JSON Schema validator have no time limit of their own."""
    needs("jsonschema")
    long = "a" * 60 + "!"
    begun = time.process_time()
    for answer in (long, {long: 1}, {"a": [long]}):
        answer_failures(json.dumps(answer), [make_check("answer", "json_schema", schema)], None)
    assert time.process_time() - begun < 12


@pytest.mark.slow
def test_json_schema_with_exponential_work_is_stopped() -> None:
    """Nested references took 2 ** 40 steps."""
    needs("jsonschema")
    defs = {f"d{at}": {"allOf": [{"$ref": f"#/$defs/d{at + 1}"}] * 2} for at in range(40)}
    schema: Any = {"$ref": "#/$defs/d0", "$defs": {**defs, "d40": {"type": "string"}}}
    begun = time.process_time()
    (failure,) = answer_failures('"x"', [make_check("answer", "json_schema", schema)], None)
    assert "took more than" in failure.message
    assert time.process_time() - begun < 20


@pytest.mark.parametrize(
    ("schema", "answer", "faults"),
    [
        ({"patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": False}, {"ab": 1}, 0),
        ({"patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": False}, {"ab": "x", "b": 1}, 2),
        ({"properties": {"b": True}, "additionalProperties": {"type": "integer"}}, {"b": "", "c": 1}, 0),
        ({"properties": {"b": True}, "additionalProperties": {"type": "integer"}}, {"b": "", "c": ""}, 1),
        ({"$id": "https://example.com/s", "$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}, "a", 0),
    ],
)
def test_json_schema_keywords_are_validated(schema: dict[str, Any], answer: object, faults: int) -> None:
    needs("jsonschema")
    check = make_check("answer", "json_schema", schema)
    assert len(answer_failures(json.dumps(answer), [check], None)) == faults


@pytest.mark.parametrize(
    "target", ["http://127.0.0.1:1/s.json", "file:///etc/passwd", "other.json", "/etc/passwd", "urn:a:b", "//host/s"]
)
@pytest.mark.parametrize("key", ["$ref", "$dynamicRef"])
@pytest.mark.parametrize("place", ["{}", "{{properties: {{a: {}}}}}", "{{allOf: [true, {}]}}", "{{$defs: {{a: {}}}}}"])
def test_json_schema_with_a_reference_outside_itself_is_refused(base: Path, target: str, key: str, place: str) -> None:
    """``$ref: http://…`` was fetched, ``file://`` read, and the content echoed."""
    schema = place.format(f"{{{key}: '{target}'}}")
    (base / "a.test.yaml").write_text(f"file: own.prompty\ncases: [{{answer: [{{json_schema: {schema}}}]}}]\n")
    with pytest.raises(PromptFileError, match=r"a\.test\.yaml:2:\d+: json_schema must be a JSON Schema whose .* local"):
        CaseFile.read(base / "a.test.yaml")


@pytest.mark.parametrize(
    "schema",
    [{"$ref": "http://127.0.0.1:1/a"}, {"$id": "http://127.0.0.1:1/b", "properties": {"a": {"$ref": "c"}}}],
)
def test_references_of_a_json_schema_are_never_fetched(monkeypatch: pytest.MonkeyPatch, schema: object) -> None:
    """Even a reference that the reader of test files let pass would not be fetched."""
    needs("jsonschema")
    fetched: list[object] = []
    monkeypatch.setattr("urllib.request.urlopen", lambda *given, **_: fetched.append(given))
    check = make_check("answer", "json_schema", {"type": "string"})._replace(value=schema)
    (failure,) = answer_failures('{"a": 1}', [check], None)
    assert failure.message.startswith("the schema is wrong: ")
    assert not fetched


@pytest.mark.parametrize("name", ["builtins:exec", "os:system", "evil:check"])
@pytest.mark.parametrize("place", ["cases: [{{answer: {0}}}]", "cases: [{{}}]\nanswer: {0}"])
def test_python_check_without_allow_code_is_refused(base: Path, name: str, place: str) -> None:
    """``--run`` called any function: ``builtins:exec`` with the model's response."""
    (base / "evil.py").write_text(f"open({str(base.parent / 'ran')!r}, 'w')\ndef check(answer, inputs): pass\n")
    (base / "a.test.yaml").write_text("file: own.prompty\n" + place.format(f"[{{python: '{name}'}}]"))
    file = CaseFile.read(base / "a.test.yaml")
    with pytest.raises(BatchError, match=f"'python: {name}' runs code; pass --allow-code"):
        [*Runner(answers=answers(Path("a.sqlite"))).run([file])]
    assert not (base.parent / "ran").exists()
    ran = run_in_process("test", "a.test.yaml", "--run", "openai:m", "--base-url", "http://127.0.0.1:1/v1")
    assert ran.status == 2
    assert not (base.parent / "ran").exists()


def test_python_check_runs_with_allow_code(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(base)
    (base / "kind.py").write_text("def check(answer, inputs):\n    return 'no' if 'fine' in answer else True\n")
    (base / "a.test.yaml").write_text("file: own.prompty\ncases: [{answer: [{python: 'kind:check'}]}]\n")
    runner = Runner(answers=answers(Path("a.sqlite")), allow_code=True)
    (result,) = runner.run([CaseFile.read(base / "a.test.yaml")])
    assert [each.message for each in result.failures] == ["kind:check: no"]
    assert run_in_process("test", "a.test.yaml", "--allow-code").status == 2


ESCAPE = "\x1b]0;owned\x07\x1b[2J\x9b31m"


@pytest.mark.parametrize("form", ["table", "github", "junit", "json"])
@pytest.mark.parametrize("more", [(), ("--against", "old")], ids=["alone", "compared"])
def test_test_command_prints_no_escape_sequences(base: Path, form: str, more: tuple[str, ...]) -> None:
    """Two formats printed them raw if the output was not a terminal, but logs are shown in one later."""
    text = json.dumps(ESCAPE)
    (base / "own.prompty").write_text("user:\n{{ a }}\n")
    (base / "own.test.yaml").write_text(
        f"cases: [{{name: {text}, inputs: {{a: {text}}}, "
        f"prompt: [{{contains: {text[:-1]}!\"}}, {{not_contains: ']0'}}]}}]"
    )
    (base / "old").mkdir()
    (base / "old" / "own.prompty").write_text("user:\n{{ a }} old\n")
    ran = run_in_process("test", "own.test.yaml", "--format", form, *more)
    assert ran.status == 1
    assert "\x1b" not in ran.out
    assert "\x9b" not in ran.out
