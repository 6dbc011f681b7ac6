"""The command ``lazyprompt check``: its output, its exit status, and the definition of its hook."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.helpers import Ran, Run, fault
from lazyprompt import __version__
from lazyprompt.files.check.check import RULES
from support.paths import ROOT

HOOKS = ROOT / ".pre-commit-hooks.yaml"
WRONG = "system:\nBe kind.\nuser:\n{{ a | lowr }}\n"
DOUBTFUL = "system:\nBe kind.\nasistant:\nHi.\n"
RIGHT = "system:\nBe kind.\nuser:\nHi.\n"


@pytest.fixture(autouse=True)
def _prompt_files(tmp_path: Path) -> None:
    for name, text in (("wrong", WRONG), ("doubtful", DOUBTFUL), ("right", RIGHT), ("marked", f"\ufeff{RIGHT}")):
        (tmp_path / f"{name}.prompty").write_text(text, encoding="utf-8")


def find_issues(ran: Ran) -> list[dict[str, Any]]:
    findings: list[dict[str, Any]] = json.loads(ran.out)
    return findings


def test_plain_output_shows_place_excerpt_and_caret_of_each_finding(run: Run) -> None:
    assert run("check", "right.prompty") == Ran(0, b"nothing found in 1 file\n", "")
    ran = run("check", "wrong.prompty", "doubtful.prompty")
    assert ran == Ran(
        1,
        b"wrong.prompty:4:8: LP052 there is no filter 'lowr' (did you mean 'lower'?); use one of Jinja's\n"
        b"    {{ a | lowr }}\n"
        b"           ^\n"
        b"doubtful.prompty:3:1: LP030 'asistant' is not a role (did you mean 'assistant'?): the line is text and "
        b"doesn't begin a section; write assistant:\n"
        b"1 error, 1 warning in 2 files\n",
        "",
    )


def test_json_output_lists_all_fields_of_a_finding(run: Run) -> None:
    about = {"code": "LP052", "severity": "error", "message": "there is no filter 'lowr' (did you mean 'lower'?)"}
    place = {"file": "wrong.prompty", "line": 4, "column": 8}
    finding = about | place | {"advice": "use one of Jinja's", "excerpt": "{{ a | lowr }}"}
    text = f"{json.dumps([finding], indent=2)}\n"
    assert run("check", "wrong.prompty", "--format", "json") == Ran(1, text.encode(), "")
    assert run("check", "right.prompty", "--format", "json") == Ran(0, b"[]\n", "")


@pytest.mark.parametrize(
    ("argv", "status"),
    [
        (("doubtful.prompty",), 0),
        (("doubtful.prompty", "--strict"), 1),
        (("doubtful.prompty", "--strict", "--ignore", "LP03"), 0),
        (("right.prompty", "--strict"), 0),
        (("marked.prompty", "--strict"), 0),
        (("wrong.prompty", "right.prompty"), 1),
        (("wrong.prompty", "--select", "LP030,lp031"), 0),
        (("wrong.prompty", "--select", "LP05"), 1),
        (("wrong.prompty", "--select", "LP05", "--ignore", "LP052"), 0),
    ],
)
def test_exit_status_depends_on_severity_and_selected_rules(run: Run, argv: tuple[str, ...], status: int) -> None:
    ran = run("check", *argv)
    assert (ran.status, ran.err) == (status, "")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("no.prompty",), "FILE: no.prompty: no such file or directory"),
        ((), "FILE...: Missing argument 'FILE...'"),
        (("wrong.prompty", "--select", "LP9999"), "--select: unknown rule 'LP9999'"),
        (("wrong.prompty", "--ignore", ""), "--ignore: unknown rule ''"),
        (("wrong.prompty", "--ignore", "LP052,"), "--ignore: unknown rule ''"),
        (("wrong.prompty", "--dialect", "v3"), "--dialect: unknown value 'v3' (did you mean 'v"),
        # A run that checked nothing exited with status 0.
        (("empty", "./empty"), "FILE: nothing was checked: no prompt file in empty, ./empty"),
        (("wrong.prompty", "--ignore", "LP"), "FILE: nothing was checked: --select and --ignore leave no rule"),
        (("wrong.prompty", "--select", "LP052", "--ignore", "LP05"), "FILE: nothing was checked"),
        (("notes.txt",), "FILE: notes.txt: not a prompt file; expected a name ending in .prompty, .yaml, .yml"),
    ],
)
def test_usage_error_is_one_line_with_status_2(run: Run, argv: tuple[str, ...], message: str) -> None:
    Path("notes.txt").write_text("x", encoding="utf-8")
    Path("empty").mkdir()
    assert fault(run("check", *argv)).startswith(message)


def test_directories_are_searched_for_prompt_files(run: Run) -> None:
    Path("a/.git").mkdir(parents=True)
    for name in ("a/x.prompty", "a/.git/y.prompty", "a/z.txt", "a/Y.PROMPTY"):
        Path(name).write_text(DOUBTFUL, encoding="utf-8")
    Path("a/compose.yaml").write_text("type: x\nname: chat\nservices: {web: {image: x}}\n", encoding="utf-8")
    Path("a/broken.yaml").write_text("a: [", encoding="utf-8")
    Path("a/qa.yaml").write_text("instruction: 7\n", encoding="utf-8")
    # These two were skipped, although they are meant as prompts: one with a misspelt key, and one that is not YAML.
    Path("a/slip.yaml").write_text("instuction: Hi.\n", encoding="utf-8")
    Path("a/torn.yml").write_text("type: chat\nsystem: [\n", encoding="utf-8")
    ran = run("check", "a", "--format", "json")
    assert [(Path(each["file"]).name, each["code"]) for each in find_issues(ran)] == [
        ("Y.PROMPTY", "LP030"),
        ("qa.yaml", "LP001"),
        ("slip.yaml", "LP001"),
        ("torn.yml", "LP001"),
        ("x.prompty", "LP030"),
    ]
    # A file that is named on the command line is always checked.
    assert [each["code"] for each in find_issues(run("check", "a/broken.yaml", "--format", "json"))] == ["LP001"]


def test_file_that_is_named_twice_is_checked_once(run: Run) -> None:
    assert run("check", "wrong.prompty", ".", "wrong.prompty").out.count(b"LP052") == 1


def test_control_characters_in_the_excerpt_are_escaped(run: Run) -> None:
    Path("e.prompty").write_text("user:\n{{ a | lowr }} \x1b[2J\n", encoding="utf-8")
    assert run("check", "e.prompty").out.splitlines()[1].endswith(b"{{ a | lowr }} \\u001b[2J")


def test_caret_of_a_long_line_with_wide_characters_is_aligned(run: Run) -> None:
    Path("w.prompty").write_text(f"user:\n{'字' * 200}{{{{ a | lowr }}}}\n", encoding="utf-8")
    _, line, caret, _ = run("check", "w.prompty").out.decode().splitlines()
    assert line[: (caret.index("^") - 4 - 6) // 2 + 4 + 6].endswith("{{ a |")
    assert len(line) <= 110


def front(fields: str, body: str = "user:\nHi.\n") -> str:
    return f"---\n{fields}\n---\n{body}"


BOMB = "\n".join(
    f"{name}: &{name} [{', '.join([of] * 9)}]"
    for name, of in zip("abcdefg", ("x", "*a", "*b", "*c", "*d", "*e", "*f"), strict=True)
)

# For each fault: the file, the place of the finding, the beginning of its message, and the text at the caret.
BROKEN = {
    "bad YAML": (front("name: a: b"), "2:8", "invalid frontmatter: mapping values are not allowed", ": b"),
    "a tab": (front("model:\n\tid: x"), "3:1", "invalid frontmatter: ", " id: x"),
    "duplicate keys": (front("name: a\nname: b"), "3:1", "invalid frontmatter: duplicate key 'name'", "name: b"),
    "unknown kinds": (
        front("inputs:\n  - {name: a, kind: strng}"),
        "3:21",
        "inputs[0] has an unknown kind 'strng' (did you",
        "strng}",
    ),
    "references outside the roots": (
        front("name: ${file:../a.txt}"),
        "2:7",
        "'../a.txt' is outside allowed roots",
        "${f",
    ),
    "absolute references": (front("name: ${file:/etc/hostname}"), "2:7", "'/etc/hostname' is outside allowed", "${f"),
    "a reference to a missing file": (front("name: ${file:no.txt}"), "2:7", "", "${f"),
    "loops of references": (front("name: ${file:loop.json}"), "2:7", "loop.json:1:1: circular file references", "${f"),
    "loops of includes": ("user:\n{% include 'loop.md' %}\n", "2:1", "loop.md: circular includes", "{% "),
    "a YAML bomb": (front(BOMB), "7:8", "invalid frontmatter: the file contains more than 100000 values", "*"),
    "NUL in the text": ("user:\nHi\0.\n", "2:3", "the file contains the character U+0000", "\\u0000."),
    "NUL in the front matter": (front("name: a\0"), "2:8", "the file contains the character U+0000", "\\u0000"),
    "undefined variables": (front("inputs: [name: a]", "{{ a }} {{ b }}\n"), "4:12", "the template uses 'b'", "b }}"),
    "Jinja": ("user:\nSay {{ a }} and {{ b + }}.\n", "2:17", "Jinja: unexpected 'end of print statement'", "{{ b"),
    "a block without an end": ("user:\n{% if a %}\n", "2:1", "Jinja: Unexpected end of template", "{% if"),
    "an unknown filter": ("user:\n{{ a | lowr }}\n", "2:8", "there is no filter 'lowr'", "lowr"),
    "Mustache": (front("template: {format: mustache}", "Hi {{#a}}\n"), "4:4", "Mustache: ", "{{#a"),
    "front matter without an end": ("---\nname: a\nuser:\n", "1:1", "invalid frontmatter: it begins here", "---"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_finding_of_a_broken_file_points_at_the_error(run: Run, broken: str) -> None:
    text, place, message, pointed = BROKEN[broken]
    Path("loop.json").write_text('"${file:loop.json}"', encoding="utf-8")
    Path("loop.md").write_text("{% include 'loop.md' %}", encoding="utf-8")
    Path("b.prompty").write_text(text, encoding="utf-8")
    ran = run("check", "b.prompty")
    finding, line, caret, summed = ran.out.decode().splitlines()
    assert (ran.status, ran.err, summed) == (1, "", "1 error in 1 file")
    assert re.fullmatch(rf"b\.prompty:{place}: LP\d\d\d {re.escape(message)}.*", finding), finding
    assert line[caret.index("^") :].startswith(pointed)


# The fields of a hook, as pre-commit documents them.
FIELDS = {
    *("id", "name", "entry", "language", "files", "exclude", "types", "types_or", "exclude_types", "always_run"),
    *("fail_fast", "verbose", "pass_filenames", "require_serial", "description", "language_version"),
    *("minimum_pre_commit_version", "args", "stages"),
}


def test_pre_commit_hooks_are_valid_and_match_prompty_files() -> None:
    hook, tested = yaml.safe_load(HOOKS.read_text(encoding="utf-8"))
    assert set(hook) <= FIELDS
    assert (hook["id"], hook["entry"], hook["language"]) == ("lazyprompt-check", "lazyprompt check", "python")
    assert set(tested) <= FIELDS
    assert (tested["id"], tested["entry"], tested["pass_filenames"]) == ("lazyprompt-test", "lazyprompt test", False)
    # pre-commit appends the names of files to the entry, unless pass_filenames is false.
    assert hook.get("pass_filenames", True) is True
    names = {"a.prompty": True, "b/c.prompt": False, "a.promptyx": False, "prompt.txt": False, "prompt": False}
    assert {name: re.search(hook["files"], name) is not None for name in names} == names


def test_github_output_is_one_workflow_command_for_each_finding(run: Run) -> None:
    Path("a, 100%:b.prompty").write_text("system:\n<|im_start|>\n{{ a | lowr }}\n", encoding="utf-8")
    ran = run("check", "a, 100%:b.prompty", "--format", "github")
    assert ran.status == 1
    *commands, last = ran.out.decode().splitlines()
    assert [each.partition("::")[2].partition("::")[0] for each in commands] == [
        "warning file=a%2C 100%25%3Ab.prompty,line=2,col=1,title=LP040 control-marker",
        "error file=a%2C 100%25%3Ab.prompty,line=3,col=8,title=LP052 unknown-filter",
    ]
    assert last == "1 error, 1 warning in 1 file"


def test_line_breaks_and_percent_signs_are_escaped_in_github_output(run: Run) -> None:
    """A line break or a percent sign in a name would end the command, or be read as an escape."""
    Path("n.prompty").write_text('---\n"tempe%0Are\\n::error::x": 1\n---\nuser:\nHi.\n', encoding="utf-8")
    lines = run("check", "n.prompty", "--format", "github").out.decode().splitlines()
    assert len(lines) == 2
    assert "tempe%250Are" in lines[0]


def test_sarif_output_lists_rules_results_and_places(run: Run) -> None:
    Path("a b").mkdir()
    Path("a b/é#1.prompty").write_text(WRONG + "human:\nHi.\n", encoding="utf-8")
    ran = run("check", str(Path("a b").resolve()), "right.prompty", "--format", "sarif")
    log = json.loads(ran.out)
    assert (ran.status, ran.out.decode()) == (1, json.dumps(log, indent=2, ensure_ascii=False) + "\n")
    rules = log["runs"][0]["tool"]["driver"].pop("rules")
    assert [(rule["id"], rule["name"]) for rule in rules] == [(rule.code, rule.name) for rule in RULES.values()]
    text = "Report errors that prevent the file from loading."
    more = "The page 'Check prompt files' of lazyprompt's manual explains LP001."
    assert rules[0] == {
        "id": "LP001",
        "name": "does-not-load",
        "shortDescription": {"text": text},
        "help": {"text": f"{text} {more}"},
        "defaultConfiguration": {"level": "error"},
    }

    def result(code: str, level: str, message: str, line: int, column: int) -> dict[str, Any]:
        # The path is relative to the working directory, and percent-encoded.
        uri = {"uri": "a%20b/%C3%A9%231.prompty"}
        place = {"artifactLocation": uri, "region": {"startLine": line, "startColumn": column}}
        about = {"ruleId": code, "ruleIndex": [*RULES].index(code), "level": level, "message": {"text": message}}
        return {**about, "locations": [{"physicalLocation": place}]}

    role = "'human' is not a role (did you mean 'user'?): the line is text and doesn't begin a section; write user:"
    name = "there is no filter 'lowr' (did you mean 'lower'?); use one of Jinja's"
    results = [result("LP052", "error", name, 4, 8), result("LP030", "warning", role, 5, 1)]
    tool = {"driver": {"name": "lazyprompt", "version": __version__}}
    assert log == {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": tool, "columnKind": "unicodeCodePoints", "results": results}],
    }
    assert json.loads(run("check", "right.prompty", "--format", "sarif").out)["runs"][0]["results"] == []
