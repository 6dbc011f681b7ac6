"""``lazyprompt check`` on whole files: faults, secrets, ignore comments, dialects, referenced and large files."""

import json
from pathlib import Path
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from files.check.helpers import KEY, find_issues, front
from lazyprompt.errors import PromptFileError, TemplateError
from lazyprompt.files.check.check import check
from lazyprompt.files.prompty import Prompty
from support.paths import LIBRARY


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            front("inputs: 7\nmodel: 7\ntools: [{}]", "{% if %}"),
            [("LP001", 2, 9), ("LP001", 3, 8), ("LP001", 4, 9), ("LP001", 6, 1)],
        ),
        ("\ufeffsytem:\nBe kind.\nuser:\nHi. <think> <think>\n", [("LP002", 1, 1), ("LP030", 1, 1), ("LP040", 4, 5)]),
        # A more specific finding replaces LP001.
        ("user:\n{{ x | lowr }}\n", [("LP052", 2, 8)]),
        # The closing quote after a secret is not part of the secret.
        (front('description: "a\n  password: abcdefgh"'), [("LP061", 3, 13)]),
        ("user:\nHi. -----BEGIN RSA PRIVATE KEY-----\nMIIabc+/=\n-----END RSA PRIVATE KEY-----\n", [("LP060", 2, 5)]),
        # A template of an unknown syntax is not parsed.
        (front("template: {format: mustach}", "{{#a}}x{{/a}}"), [("LP001", 2, 20)]),
        # An empty thread section is the place of the history.
        ("system:\nBe kind.\nthread:\nuser:\nHi.\n", []),
    ],
)
def test_check_reports_each_fault_once(text: str, found: list[tuple[str, int, int]]) -> None:
    assert find_issues(text) == found


@pytest.mark.parametrize(
    "text",
    [
        front(f"model: {{connection: {{apiKey: {KEY}}}}}"),
        front(f"name: a\nfoo: [{KEY}"),
        front(f"inputs:\n  - {{name: a, kind: integer, default: {KEY}}}", "{{a}}"),
        front(f'metadata:\n  password: "{KEY}"\n  x: [', f"{KEY}"),
        front(f"inputs: {KEY}"),
        f"user:\n{{{{ a.{KEY} }}}} {KEY}\n",
        f"user:\n{{% if '{KEY}' %}}\n",
    ],
)
def test_no_finding_shows_a_secret(text: str) -> None:
    findings = check(text, name="p.prompty")
    assert {"LP060", "LP061"} & {each.code for each in findings}
    for each in findings:
        assert KEY[3:9] not in f"{each}"
        assert (f": sk-… ({len(KEY)} characters)" in each.message) is (each.code in ("LP060", "LP061"))


def test_ignore_comment_disables_a_rule_in_the_whole_file_or_in_one_line() -> None:
    body = "user:\n<think> a\n<think> {# lazyprompt: ignore=LP040 #} [INST]\n"
    assert [each for each in find_issues(body) if each[0] == "LP040"] == [("LP040", 2, 1)]
    assert "LP040" not in str(find_issues("{# lazyprompt: ignore=lp040 #}\n" + body))
    assert "LP040" not in str(find_issues(front("# lazyprompt: ignore=LP020,LP040\nname: a", body)))
    assert "LP014" not in str(find_issues(front("tags: [a]  # lazyprompt: ignore=LP014")))
    mustache = front("template: {format: mustache}", "{{! lazyprompt: ignore=LP040 }}\nuser:\n<think>\n")
    assert find_issues(mustache) == []


def test_errors_and_secrets_cannot_be_ignored_by_a_comment() -> None:
    text = f"{{# lazyprompt: ignore=LP060, LP001 #}}\nuser:\n{KEY}\n{{% if %}}\n"
    assert {code for code, *_ in find_issues(text)} == {"LP001", "LP060", "LP090"}


def test_yaml_prompt_files_are_checked() -> None:
    # A tab that prevents loading is reported once.
    assert find_issues("instruction:\n\tsystem: x\n", "p.yaml") == [("LP001", 2, 1)]
    assert ("LP004", 1, 18) in find_issues('instruction: "a b\tc"\n', "p.yaml")
    assert find_issues("instruction: 7\n", "p.yaml") == [("LP001", 1, 14)]
    assert find_issues(f"instruction: Hi <think>\nsystem: {KEY}\n", "p.yaml") == [("LP040", 1, 17), ("LP060", 2, 9)]
    assert find_issues("type: chat\ninstruction: Answer {question}.\n", "p.yaml") == []
    assert find_issues(f"instruction: {'word ' * 9000}\nmodel: gemma\n", "p.yaml") == [("LP070", 1, 1)]


def test_dialect_argument_overrides_the_detected_dialect() -> None:
    assert find_issues("tool:\nx\n", dialect="v2") == []
    with pytest.raises(TemplateError, match="unknown dialect 'v3'"):
        check("user:\nx\n", dialect="v3")


@pytest.mark.parametrize(
    "fields",
    [
        "inputs: ${params:x}",
        "tools: '${params:x}'",
        "inputs:\n  - {name: a, items: '${params:x}'}",
        "model: {api: chat, parameters: {temperature: '${params:x}'}}",
    ],
)
def test_params_references_cause_no_findings(fields: str) -> None:
    assert [code for code, *_ in find_issues(front(fields, "user:\n{{a}}\n")) if code != "LP027"] == []


def test_check_accepts_a_path_and_reports_unreadable_files(tmp_path: Path) -> None:
    path = tmp_path / "a.prompty"
    path.write_text(front("model: ${file:model.json}"), encoding="utf-8")
    assert [(each.code, each.file) for each in check(path)] == [("LP001", str(path))]
    (tmp_path / "model.json").write_text(json.dumps({"id": "gpt-4o"}), encoding="utf-8")
    assert check(path) == []
    assert check(str(path)) == []
    path.write_bytes(b"user:\nHi \xff")
    # The finding was at the beginning of the file, and only its message had the place.
    (finding,) = check(path)
    assert (finding.line, finding.column) == (2, 4)
    assert finding.message.startswith("byte 0xff is not UTF-8")
    assert [each.code for each in check(tmp_path / "no.prompty")] == ["LP001"]


def test_fault_in_a_referenced_file_is_reported_at_the_reference(tmp_path: Path) -> None:
    inputs = "# of all prompts\n- name: a\n  kind: integer\n  default: x\n- name: b\n"
    (tmp_path / "inputs.yaml").write_text("#\n" * 99 + inputs, encoding="utf-8")
    text = front("name: a\ninputs: ${file:inputs.yaml}", "{{a}}")
    assert find_issues(text, base_dir=tmp_path) == [("LP020", 3, 9), ("LP023", 3, 9)]
    text = front("tools:\n  - {name: a, description: A, parameters: '${file:no.json}'}", "x")
    assert find_issues(text, base_dir=tmp_path) == [("LP001", 3, 43)]


INCLUDES: list[tuple[str, list[tuple[str, int, int]]]] = [
    ("{% include 'tone.md' %}\n{{ name }}", []),
    ("{% include 'tone.md' %}", []),
    ("Hi.\n {% include 'no.md' %}", [("LP001", 5, 2)]),
    ("{% include '../secret.md' %}", [("LP001", 4, 1)]),
    ("{% include 'loop.md' %}", [("LP001", 4, 1)]),
    ("{% include 'wrong.md' %}", [("LP001", 4, 1)]),
    ("{{ name }}\n{% include 'asks.md' %}", [("LP021", 5, 1)]),
    ("{{ name }} {{ nmae }} {% include 'asks.md' %}", [("LP021", 4, 15)]),
]


@pytest.mark.parametrize(("body", "expected"), INCLUDES)
def test_included_files_are_checked(tmp_path: Path, body: str, expected: list[tuple[str, int, int]]) -> None:
    tone = "Be kind to {{ name }}. {% if mood is defined %}{{ mood }}{% endif %}"
    files = {"tone.md": tone, "loop.md": "{% include 'loop.md' %}", "wrong.md": "{% if %}", "asks.md": "{{ nmae }}"}
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    text = front("inputs: [name: name]", f"{body}\n")
    assert find_issues(text, base_dir=tmp_path) == expected
    (tmp_path / "p.prompty").write_text(text, encoding="utf-8")
    assert [(each.code, each.line, each.column) for each in check(tmp_path / "p.prompty")] == expected


def test_check_does_not_show_environment_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL", "topsecret")
    text = front("model: ${env:MODEL}\ninputs:\n  - {name: a, kind: integer, default: '${env:MODEL}'}", "{{a}}")
    assert "topsecret" not in str(check(text))


def test_number_of_findings_is_limited_to_100() -> None:
    text = "".join("sytem:\nx\n" for _ in range(5000))
    findings = check(text)
    assert len({*findings}) == 100
    assert (findings[0].severity, findings[0].file, findings[0].excerpt) == ("warning", "<string>", "sytem:")


@pytest.mark.timing
@pytest.mark.parametrize(
    "text",
    [
        # The rule for tabs searched from each character; each secret was compared with all others.
        "---\n" + "apiKey: " * 50_000 + "\n---\nx",
        "---\n" + 'apiKey: "' * 40_000 + "\n---\nx",
        # Walking the syntax tree of the template ended in a RecursionError.
        "{{ range(a" + ".a" * 3000 + ") }}\n",
        "-----BEGIN PRIVATE KEY-----\n" * 10_000,
        "<|" * 200_000 + "\n",
        "user:\n" * 50_000,
        # Each variable was compared with all inputs to suggest a name.
        front(
            "inputs:\n" + "".join(f"  - name: one{number}\n" for number in range(2000)),
            "".join(f"{{{{ two{number} }}}}\n" for number in range(500)),
        ),
    ],
    ids=["keys", "quoted keys", "attributes", "private keys", "control sequences", "roles", "inputs"],
)
def test_checking_time_of_large_files_is_bounded(text: str) -> None:
    begin = process_time()
    check(text)
    assert process_time() - begin < 5


@pytest.mark.parametrize("path", sorted(LIBRARY.rglob("*.prompty")), ids=lambda path: path.name)
def test_example_library_has_no_findings(path: Path) -> None:
    assert check(path, allowed_roots=[LIBRARY]) == []


TEXTS = st.lists(
    st.sampled_from(
        [
            *("---\n", "name: a\n", "inputs:\n", "  - name: a\n", "    kind: integer\n", "    default: 1\n"),
            *("model: gpt-4o\n", "tools: [{name: t}]\n", "user:\n", "system:\n", "{{ a }}", "{% if a %}"),
            *("{% endif %}", "```\n", "x\n", "\t", "\r\n", "{#", "#}", "'", '"', "[", "\ufeff", "{{ a | lowr }}"),
        ]
    ),
    max_size=14,
).map("".join)


@pytest.mark.slow
@given(TEXTS)
@settings(deadline=None)
def test_check_reports_an_error_if_and_only_if_loading_fails(text: str) -> None:
    """The rules parse a file part by part, and must find an error exactly where loading raises one."""
    findings = check(text, name="p.prompty")
    lines = max(text.count("\n") + text.count("\r") + 1, 1)
    assert all(1 <= each.line <= lines and each.column >= 1 for each in findings)
    errors = [(each.code, each.line) for each in findings if each.code in ("LP001", "LP023", "LP052")]
    fault_line = 0
    try:
        Prompty.loads(text)
    except PromptFileError as error:
        fault_line = int(str(error).split(":")[1])
    # An unknown filter under an {% if %} is LP052, but fails only when the condition is true.
    assert fault_line in [line for _, line in errors] if fault_line else {code for code, _ in errors} <= {"LP052"}
