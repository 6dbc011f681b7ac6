"""The command ``lazyprompt test``: checks, formats, snapshots, changes since another version, responses."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from cli.helpers import Ran, Run, fault
from lazyprompt import CharTokenCounter
from lazyprompt.batch.run import Progress
from lazyprompt.cli import streams
from support.batch_calls import Clocked
from support.client_scenes import KEY
from support.missing import needs
from support.model_server.server import Slow, Status

PROMPT = """---
name: greet
model: {id: gpt-4o, options: {temperature: 0.2}}
inputs:
  - {name: name, kind: string, required: true}
  - {name: question, kind: string, default: How are you?}
tools:
  - {name: look_up, kind: function, description: Looks a thing up., parameters: [{name: key, kind: string}]}
---
system:
You greet {{ name }} kindly.

user:
{{ question }}
"""


def write(name: str, text: str) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text, encoding="utf-8")


def write_cases(*checks: str, inputs: str = "{name: Ann}", answer: str = "[]") -> None:
    write(
        "greet.test.yaml",
        f"cases:\n  - name: Ann\n    inputs: {inputs}\n    prompt: [{', '.join(checks)}]\n    answer: {answer}\n",
    )


def report(ran: Ran) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ran.out)
    return found


def failures(ran: Ran) -> list[tuple[str, str]]:
    """The check and the slot of each failure."""
    return [(each["check"], each["slot"]) for case in report(ran)["failures"] for each in case["failures"]]


@pytest.fixture(autouse=True)
def _no_vocabulary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Count tokens approximately, even if another test has loaded a vocabulary."""
    monkeypatch.setattr("tiktoken.registry.ENCODINGS", {})
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path_factory.mktemp("vocabularies")))


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write("greet.prompty", PROMPT)


@pytest.mark.parametrize(
    ("check", "slot"),
    [
        ("contains: [Ann, kindly]", None),
        ("{contains: Ann, role: user}", ""),
        ("not_contains: [Bob, kindly]", "instruction"),
        ("regex: 'greet \\w+ kindly\\.$'", None),
        ("max_tokens: 3", "instruction"),
        ("safe: true", None),
        ("valid: [openai, anthropic, gemini]", None),
    ],
)
def test_failed_check_names_its_slot(run: Run, check: str, slot: str | None) -> None:
    write_cases(check if check.startswith("{") else f"{{{check}}}")
    ran = run("test", "--format", "json")
    assert (ran.status, failures(ran)) == ((0, []) if slot is None else (1, [(re.findall(r"\w+", check)[0], slot)]))


def test_wrong_test_file_is_reported_in_one_line_with_its_place(run: Run) -> None:
    write("greet.test.yaml", text := "cases: [{prompt: [{max_tokens: many}]}]")
    message = "PATH: greet.test.yaml:1:32: max_tokens must be a non-negative number of tokens"
    assert fault(run("test")) == f"{message}; {text}"


def test_table_has_a_line_for_each_file_and_lists_the_failures(run: Run) -> None:
    write("more/other.yaml", "instruction: Answer in {language}.\n")
    write("more/other.test.yaml", "cases: [{inputs: {language: Thai, input: Hi}, prompt: [{contains: in Thai}]}]")
    write_cases("{not_contains: Ann}", "{max_tokens: 3}")
    ran = run("test", ".")
    assert ran.out.decode().splitlines() == [
        "FILE                  PASSED  FAILED",
        "greet.test.yaml            0       1",
        "more/other.test.yaml       1       0",
        "",
        "greet.test.yaml:2: Ann",
        "  not_contains: the text contains 'Ann' [name]",
        "    Ann",
        "  max_tokens: 70 tokens by the counter approximate, 67 more than 3 [instruction]",
        "    You greet  kindly.",
        "",
        "1 passed, 1 failed; tokens counted by approximate",
    ]


def test_junit_and_github_outputs_list_the_failures(run: Run) -> None:
    write_cases("{contains: Bob}")
    with Path("greet.test.yaml").open("a", encoding="utf-8") as file:
        file.write("  - {name: Tom, inputs: {name: Ann}, prompt: [{contains: Tom}]}\n")
    suites = ET.fromstring(run("test", "--format", "junit").out)  # noqa: S314 - our own output
    assert suites.attrib == {"tests": "2", "failures": "2"}
    messages = [each.get("message") for each in suites.iterfind("testsuite/testcase/failure")]
    assert messages == [f"contains: the text does not contain '{name}'" for name in ("Bob", "Tom")]
    lines = run("test", "--format", "github").out.decode().splitlines()
    assert lines == [
        "::error file=greet.test.yaml,line=2,title=case Ann::contains: the text does not contain 'Bob'",
        "::error file=greet.test.yaml,line=6,title=case Tom::contains: the text does not contain 'Tom'",
        "0 passed, 2 failed",
    ]


def test_rows_of_json_lines_and_csv_are_test_cases(run: Run) -> None:
    write("greet.test.jsonl", '{"name": "Ann"}\n\n{"name": "Bob", "question": "Why?"}\n{"nam": 1}\nnot json\n')
    found = report(run("test", "greet.prompty", "--format", "json"))
    assert (found["passed"], found["failed"]) == (2, 2)
    assert [each["line"] for each in found["failures"]] == [4, 5]
    write("rows.csv", '\ufeffname,question\r\n王,"Why\r\nso?"\r\nBob,When?\r\n')
    write("greet.test.yaml", "rows: rows.csv\nprompt: [{not_contains: Bob}]")
    found = report(run("test", "greet.test.yaml", "--format", "json"))
    assert (found["passed"], [(each["file"], each["line"]) for each in found["failures"]]) == (1, [("rows.csv", 4)])


def test_check_selects_its_token_counter(run: Run) -> None:
    write_cases("{max_tokens: 40, counter: chars}", "{max_tokens: 500, counter: approximate}")
    found = report(run("test", "--format", "json"))
    assert found["failures"][0]["failures"][0]["message"].endswith(" tokens by the counter chars, 159 more than 40")
    assert found["counters"] == {"chars": 1, "approximate": 1}


def test_model_of_a_prompt_selects_the_token_counter(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    models: list[str] = []

    class Counter(CharTokenCounter):
        def __init__(self, name: str, bpe_file: None = None) -> None:
            assert bpe_file is None
            models.append(name)

    monkeypatch.setattr("lazyprompt.tokens.openai.TiktokenCounter", Counter)
    write_cases("{max_tokens: 500}")
    assert run("test").out.endswith(b"\n1 passed, 0 failed; tokens counted by tiktoken:gpt-4o\n")
    assert models == ["gpt-4o"]


def test_snapshot_is_written_with_update_and_compared(run: Run) -> None:
    write_cases("{snapshot: true}")
    assert [run("test", *options).status for options in ([], ["--update"], [])] == [1, 0, 0]
    assert "You greet Ann kindly." in Path("greet.test.snapshots.yaml").read_text(encoding="utf-8")


def git(*arguments: str) -> None:
    who = ("-c", "user.name=Ann", "-c", "user.email=ann@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *arguments], check=True, capture_output=True)  # noqa: S603, S607 - a repository of its own


@pytest.mark.parametrize(
    ("old", "new", "kinds"),
    [
        ("kindly", "warmly", ["instruction"]),
        ("greet {{ name }}", "greet {{ name }}{{ name }}", ["slot name"]),
        ("default: How are you?", "default: And you?", ["slot question"]),
        ("default: How are you?", 'default: "<|im_end|>"', ["slot question", "safety"]),
        ("gpt-4o", "gpt-5-mini", ["model"]),
        ("name: greet", "name: greet # once more", None),
        ("name: greet", "description: Greets.\nname: greet", None),
        ("{{ name }}", "{{name}}", None),
    ],
)
def test_changes_since_a_revision_are_grouped_by_kind(run: Run, old: str, new: str, kinds: list[str] | None) -> None:
    write("prompts/greet.prompty", PROMPT)
    write("prompts/greet.test.yaml", "cases: [{name: Ann, inputs: {name: Ann}}, {name: Bob, inputs: {name: Bob}}]")
    for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "First")):
        git(*arguments)
    write("prompts/greet.prompty", PROMPT.replace(old, new))
    found = report(run("test", "prompts", "--against", "HEAD", "--format", "json"))
    assert (found["passed"], found["failed"]) == (2, 0)
    assert [each["case"] for each in found["changed"]] == ([] if kinds is None else ["Ann", "Bob"])
    assert [(each["kinds"], each["rows"]) for each in found["groups"]] == ([] if kinds is None else [(kinds, 2)])
    status = subprocess.run(["git", "status", "--short"], check=True, capture_output=True)  # noqa: S607 - as above
    assert status.stdout in (b"", b" M prompts/greet.prompty\n")


def test_changes_since_a_directory_are_shown_as_a_diff(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cases()
    write("old/greet.prompty", PROMPT.replace("kindly", "warmly"))
    lines = run("test", "greet.test.yaml", "--against", "old").out.decode().splitlines()
    assert lines == [
        "FILE             PASSED  FAILED  CHANGED",
        "greet.test.yaml       1       0        1",
        "",
        "1 changed: instruction (+0 tokens)",
        "",
        "greet.test.yaml: Ann: instruction (+0 tokens)",
        "    @@ -1,3 +1,3 @@",
        "     system:",
        "    -You greet Ann warmly.",
        "    +You greet Ann kindly.",
        "",
        "",
        "1 passed, 0 failed, 1 changed",
    ]
    monkeypatch.setattr(streams, "goes_to_terminal", lambda: True)
    write_cases("{not_contains: Ann}")
    colored = run("test", "greet.test.yaml", "--against", "old", stdin=b"").out.decode().splitlines()
    assert colored[2:] == [
        *("", "greet.test.yaml:2: Ann", "  not_contains: the text contains 'Ann'\x1b[1;31m [name]\x1b[0m"),
        *("    \x1b[1;31mAnn\x1b[0m", *lines[2:8]),
        *("\x1b[31m    -You greet Ann warmly.\x1b[0m", "\x1b[32m    +You greet Ann kindly.\x1b[0m"),
        *("", "", "\x1b[1;31m0 passed, 1 failed, 1 changed", "\x1b[0m"),
    ]


def test_unreadable_earlier_version_is_shown_as_an_error_with_its_place(run: Run) -> None:
    write_cases()
    write("old/greet.prompty", "---\nname: [\n---\nsystem:\n")
    out = run("test", "greet.prompty", "--against", "old").out
    assert b"1 changed: error (" in out
    assert b"    -greet.prompty:3:1: invalid frontmatter: " in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--against", ""), "--against: '' is neither a directory nor a git revision: "),
        (("--against", "no-such"), "--against: 'no-such' is neither a directory nor a git revision: "),
        (("--against", "--upload-pack=x"), "--against: '--upload-pack=x' is neither a directory nor a git revision"),
        (("gone",), "PATH: gone: no such file or directory"),
        (("old",), "PATH: no test cases in old; add NAME.test.yaml next to a prompt"),
        (("old.prompty",), "PATH: no test cases in old.prompty; add old.test.yaml"),
        (("greet.test.csv",), "PATH: greet.test.csv is empty; its first line must contain the column names"),
        (("greet.test.jsonl", "greet.test.jsonl"), "PATH: no test cases in greet.test.jsonl, greet.test.jsonl"),
        (("--url", "http://x"), "--url: this option requires a model; add --run"),
        (("--update", "--against", "old"), "--update: this option accepts all changes, so there is nothing"),
    ],
)
def test_usage_error_names_the_option(run: Run, arguments: tuple[str, ...], message: str) -> None:
    write_cases()
    write("old.prompty", PROMPT)
    Path("old").mkdir()
    Path("greet.test.csv").touch()
    Path("greet.test.jsonl").touch()
    git("init", "-q")
    assert fault(run("test", *arguments)).startswith(message)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clocked]:
    needs("openai")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with Clocked() as server:
        yield server


def run_options(server: Clocked) -> list[str]:
    return ["--run", "openai:m", "--base-url", server.url("openai")]


@pytest.mark.parametrize(
    ("check", "holds"),
    [
        ("contains: 're: How'", True),
        ("contains: Why", False),
        ("python: 'own_checks:is_polite'", True),
        ("python: 'own_checks:is_rude'", False),
    ],
)
def test_checks_are_applied_to_the_response(
    run: Run, model: Clocked, monkeypatch: pytest.MonkeyPatch, check: str, *, holds: bool
) -> None:
    write(
        "own_checks.py",
        "def is_polite(answer, inputs):\n    return inputs == {'name': 'Ann'}\n"
        "def is_rude(answer, inputs):\n    return 'too kind'\n",
    )
    monkeypatch.delitem(sys.modules, "own_checks", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    write_cases(answer=f"[{{{check}}}]")
    ran = run("test", "--format", "json", "--allow-code", *run_options(model))
    assert (ran.status, [each for each, _ in failures(ran)]) == (
        (0, []) if holds else (1, [re.findall(r"\w+", check)[0]])
    )
    assert model.seen[0].body["temperature"] == 0.2
    assert ran.err == "lazyprompt: 1 model calls\n"


def test_progress_counts_cases_and_failures_with_the_rate_per_second(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[str, Progress]] = []

    @contextmanager
    def bar(name: str) -> Iterator[Callable[[Progress], None]]:
        yield lambda progress: shown.append((name, progress))

    monkeypatch.setattr("lazyprompt.cli.test.progress_bar", bar)
    monkeypatch.setattr("lazyprompt.cli.test.time.monotonic", count(100, 0.125).__next__)
    write("greet.test.jsonl", '{"name": "Ann"}\n{"nam": 1}\n{"nam": 2}\n{"name": "Bob"}\n')
    assert run("test", "--format", "json").status == 1
    assert shown == [("test (json)", Progress(number, None, number // 2, 8.0, None, None)) for number in (2, 4)]


@pytest.mark.parametrize(
    ("option", "source", "name"),
    [
        ("openai:gpt-5-mini", "openai", "gpt-5-mini"),
        ("ollama:qwen2.5:7b", "ollama", "qwen2.5:7b"),
        ("openai:", "openai", None),
        ("qwen2.5:7b", None, "qwen2.5:7b"),
        ("openai", None, "openai"),
    ],
)
def test_run_option_is_split_into_source_and_model(
    run: Run, monkeypatch: pytest.MonkeyPatch, option: str, source: str | None, name: str | None
) -> None:
    opened: list[dict[str, Any]] = []

    def open_model(options: dict[str, Any]) -> None:
        opened.append(options)
        raise streams.WrongUseError("--run", "no model is needed here")

    monkeypatch.setattr("lazyprompt.cli.models.open_model", open_model)
    write_cases("{contains: Ann}")
    assert run("test", "--run", option, "--base-url", "http://a", "--url", "http://b").status == 2
    urls = {"base_url": "http://a", "url": "http://b", "engine": None}
    assert opened == [{"source": source, "model": name, **urls}]


def write_rows(count: int) -> None:
    lines = [json.dumps({"name": f"N{number}", "question": f"{number}?"}) for number in range(count)]
    write("greet.test.jsonl", "\n".join(lines))


@pytest.mark.slow
def test_only_changed_rows_are_sent_again(run: Run, model: Clocked) -> None:
    write_rows(20)
    old = PROMPT.replace("You greet", "{% if name == 'N7' or name == 'N9' %}Hello.{% endif %}You greet")
    write("old/greet.prompty", old)
    assert run("test", "greet.prompty", *run_options(model)).status == 0
    assert len(model.seen) == 20
    write("greet.prompty", old.replace("Hello.", "Good day."))
    ran = run("test", "greet.prompty", "--against", "old", "--format", "json", *run_options(model))
    assert len(report(ran)["changed"]) == 2
    assert sorted(model.said[20:]) == ["7?", "9?"]
    assert ran.err == "lazyprompt: 2 model calls\n"
    again = run("test", "greet.prompty", "--against", "old", *run_options(model))
    assert (len(model.seen), again.err) == (22, "lazyprompt: 0 model calls\n")


def test_unchanged_rows_without_a_recorded_response_are_not_sent(run: Run, model: Clocked) -> None:
    write_rows(5)
    write("old/greet.prompty", PROMPT)
    ran = run("test", "greet.prompty", "--against", "old", *run_options(model))
    assert (ran.err, model.seen) == ("lazyprompt: 0 model calls, 5 have no recorded response\n", [])


def test_row_with_a_failed_request_fails_and_the_others_are_reported(run: Run, model: Clocked) -> None:
    write_rows(6)
    model.misbehaves = lambda text: Status(400, "Too rude") if text == "3?" else None
    ran = run("test", "greet.prompty", "--format", "json", *run_options(model))
    assert (ran.status, report(ran)["passed"], failures(ran)) == (1, 5, [("answer", "")])
    assert "Too rude" in report(ran)["failures"][0]["failures"][0]["message"]
    model.misbehaves = lambda _: None
    assert run("test", "greet.prompty", *run_options(model)).status == 0
    assert sorted(set(model.said)) == [f"{number}?" for number in range(6)]
    sent = [text for text in model.said if text != "3?"]
    assert len(sent) == len(set(sent))


def test_wrong_key_stops_the_requests_and_earlier_responses_are_reported(run: Run, model: Clocked) -> None:
    write_rows(8)
    model.misbehaves = lambda text: Status(401, "Wrong key") if text == "3?" else None
    ran = run("test", "greet.prompty", "--format", "json", "--concurrency", "1", *run_options(model))
    found = report(ran)
    assert (ran.status, found["passed"], found["failed"]) == (1, 3, 5)
    messages = [each["failures"][0]["message"] for each in found["failures"]]
    assert "Wrong key" in messages[0]
    assert all(each.startswith("skipped, because the request for another test case failed: ") for each in messages[1:])
    assert model.said[-1] == "3?"


@pytest.mark.slow
def test_rows_with_a_response_are_not_sent_again_after_a_killed_run(model: Clocked, tmp_path: Path) -> None:
    write_rows(40)
    model.misbehaves = lambda _: Slow(0.05)
    command = [sys.executable, "-m", "lazyprompt", "test", "greet.prompty", "--concurrency", "2", *run_options(model)]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603 - our own command
    while len(model.seen) < 12 and process.poll() is None:
        time.sleep(0.02)
    process.kill()
    process.wait()
    first = len(model.seen)
    assert 12 <= first < 40
    model.misbehaves = lambda _: None
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)  # noqa: S603 - as above
    assert {*model.said} == {f"{number}?" for number in range(40)}
    # Requests that were pending at the kill are sent again: at most as many as the concurrency.
    assert len(model.said) <= 42
