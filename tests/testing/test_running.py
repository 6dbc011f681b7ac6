"""The runner of test files: snapshots, responses that are kept, and changes since another version."""

from pathlib import Path
from typing import Any, cast

import pytest

from lazyprompt.errors import BatchError, ModuleError
from lazyprompt.testing.cases import CaseFile
from lazyprompt.testing.checks import Failure
from lazyprompt.testing.running import Answers, Result, Runner, Snapshots

PROMPT = "---\ninputs: [{name: name, kind: string, required: true}]\n---\nuser:\nGreet {{ name }}.\nNow.\n"
CASES = """prompt: [{snapshot: true}]
answer: [{contains: Greet}]
cases: [{name: a, inputs: {name: Ann}}, {name: b, inputs: {name: Bob}}, {name: c}]
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("greet.prompty").write_text(PROMPT, encoding="utf-8")
    Path("old.prompty").write_text(PROMPT.replace("Now", "Then"), encoding="utf-8")
    Path("greet.test.yaml").write_text(CASES, encoding="utf-8")


class Echo:
    """A model that repeats the prompt, or fails."""

    def __init__(self, kind: str = "", prompter: Any = None) -> None:
        self.kind, self.prompter = kind, prompter

    def share(self, prompter: Any) -> "Echo":
        return Echo(self.kind, prompter)

    def payload(self, *call: Any, **_: object) -> object:
        return self.prompter.generate_prompt(*call, format="openai")

    def __call__(self, *call: Any, **_: object) -> str:
        if self.kind:
            raise ModuleError("no answer", kind=self.kind)
        return str(self.prompter.generate_prompt(*call))


def answers(kind: str = "", name: str = "m") -> Answers:
    return Answers(Path("kept/answers.sqlite").absolute(), cast("Any", Echo(kind)), name, lambda _: {})


def run(**settings: Any) -> list[Result]:
    return [*Runner(**settings).run([CaseFile.read(Path("greet.test.yaml"))])]


def messages(results: list[Result]) -> list[list[tuple[str, str]]]:
    return [[(failure.check, failure.message.partition(";")[0]) for failure in each.failures] for each in results]


def test_snapshots_are_created_compared_and_removed() -> None:
    kept = Path("greet.test.snapshots.yaml")
    missing = (Failure("snapshot", "no snapshot exists yet; create it with --update"),)
    assert [each.failures for each in run()] == [missing, missing, (Failure("render", "Missing required input: name"),)]
    assert not kept.exists()
    assert messages(run(update=True))[:2] == messages(run())[:2] == [[], []]
    assert "a:\n  messages:\n  - role: user\n    content: |" in kept.read_text(encoding="utf-8")
    Path("greet.prompty").write_text(PROMPT.replace("Now", "Soon"), encoding="utf-8")
    message = "the prompt differs from its snapshot; accept it with --update"
    lines = "@@ -2,5 +2,5 @@\n - role: user\n   content: |-\n     Greet Ann.\n-    Now.\n+    Soon.\n "
    assert run()[0].failures == (Failure("snapshot", message, "", lines),)
    written = kept.stat().st_mtime_ns
    Snapshots(Path("greet.test.yaml")).save()
    assert kept.stat().st_mtime_ns == written
    Snapshots(Path("greet.test.yaml"), update=True).save()
    assert not kept.exists()


def test_a_prompt_unsupported_by_the_provider_fails_only_its_own_case() -> None:
    Path("greet.prompty").write_text(PROMPT.replace("string", "image"), encoding="utf-8")
    pictures = "{name: a, inputs: {name: 'file:///x.png'}}, {name: b, inputs: {name: 'https://a.b/x.png'}}"
    Path("greet.test.yaml").write_text(f"prompt: [{{snapshot: true}}]\ncases: [{pictures}]", encoding="utf-8")
    assert messages(run(update=True)) == [
        [("render", "messages[0].content[1] is the local file 'file:///x.png', but local files are not allowed")],
        [],
    ]


def test_responses_are_stored_by_request() -> None:
    first = answers()
    results = run(answers=first, update=True)
    assert [each.answer for each in results][2] is None
    assert all("Greet" in str(each.answer) for each in results[:2])
    assert (first.asked, first.left) == (2, 0)
    assert Path("kept/.gitignore").read_text(encoding="utf-8") == "*\n"
    first.close()
    assert {path.name for path in Path("kept").iterdir()} == {".gitignore", "answers.sqlite"}
    again = answers("server")
    assert [each.answer for each in run(answers=again, update=True)] == [each.answer for each in results]
    assert (again.asked, again.left) == (0, 0)
    again.close()
    other = answers(name="other")
    assert [each.answer for each in run(answers=other, older=lambda path: path, update=True)] == [None] * 3
    assert (other.asked, other.left) == (0, 2)
    other.close()


def test_a_response_store_that_is_not_a_database_or_was_replaced_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path("kept/answers.sqlite")
    path.parent.mkdir()
    path.write_bytes(b"x" * 100)
    with pytest.raises(BatchError, match=r"can't be saved in .*: file is not a database; choose another"):
        answers()
    path.unlink()
    answers().close()
    Path("other").touch()
    found = iter([path.stat(), Path("other").stat()])
    monkeypatch.setattr("lazyprompt.testing.running.own_database_status", lambda _: next(found))
    with pytest.raises(BatchError, match=r"can't be saved in .*: .*another process replaced the file; choose another"):
        answers()


@pytest.mark.parametrize("kind", ["request", "overflow", "refusal", "empty", "invalid", "server"])
def test_only_a_server_error_of_a_request_skips_the_other_cases(kind: str) -> None:
    store = answers(kind)
    results = run(answers=store, update=True, concurrency=1)
    skipped = "skipped, because the request for another test case failed: no answer"
    assert messages(results)[:2] == [
        [("answer", "no answer")],
        [("answer", skipped if kind == "server" else "no answer")],
    ]
    assert (store.fault is not None, store.asked) == (kind == "server", 0)
    store.close()


def test_python_checks_run_only_with_allow_code() -> None:
    Path("greet.test.yaml").write_text("cases: [{answer: [{python: os:getcwd}]}]\n", encoding="utf-8")
    store = answers()
    with pytest.raises(BatchError, match="python"):
        run(answers=store)
    assert run()
    assert Runner() == Runner({}, (), update=False, older=None, answers=None, concurrency=8, env=(), allow_code=False)
    assert len(run(answers=store, allow_code=True)) == 1
    store.close()


def test_cases_are_compared_with_another_version() -> None:
    results = run(older=lambda path: path.with_name("old.prompty"), update=True)
    assert [each.change.kinds if each.change else None for each in results] == [("instruction",)] * 2 + [None]
    assert [each.change for each in run(older=lambda path: path, update=True)] == [None] * 3
    new = run(older=lambda path: path.with_name("gone.prompty"), update=True)
    assert [each.change.kinds if each.change else None for each in new] == [("new",)] * 2 + [None]


def test_an_older_version_with_other_inputs_is_filled_from_its_own_columns() -> None:
    Path("ask.test.jsonl").write_text('{"a": "x", "b": "x"}\n', encoding="utf-8")
    for name, slot in (("ask.prompty", "a"), ("old.prompty", "b")):
        Path(name).write_text(f"user:\n{{{{ {slot} }}}}\n", encoding="utf-8")
    runner = Runner(older=lambda path: path.with_name("old.prompty"))
    (result,) = runner.run([CaseFile.read(Path("ask.test.jsonl"))])
    assert (result.failures, result.change) == ((), None)
