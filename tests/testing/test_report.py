"""The report of results in each of its formats."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree as ET

import pytest

from lazyprompt.testing.checks import Failure
from lazyprompt.testing.difference import CaseChange
from lazyprompt.testing.report import Report, change_lines, failure_lines, github, junit, table_rows
from lazyprompt.testing.running import Result

FAILURE = Failure("contains", "the text does not contain 'x'", "name", "a\n\x1b[31m")


def result(file: str, name: str, failures: tuple[Failure, ...] = (), change: CaseChange | None = None) -> Result:
    case = SimpleNamespace(file=Path(file), name=name, line=3, prompt=())
    return Result(cast("Any", case), failures, None, change)


def make_change(kinds: tuple[str, ...], tokens: int, size: int) -> CaseChange:
    return CaseChange(kinds, tokens, size, "a\n", "b\n")


def report() -> Report:
    made = Report(compares=True, keeps_names=True)
    made.add(result("a.test.yaml", "one"))
    made.add(result("a.test.yaml", "two", (FAILURE, Failure("safe", "no"))))
    made.add(result("b.test.yaml", "three", (), make_change(("text",), 5, 2)))
    made.add(result("b.test.yaml", "four", (), make_change(("text", "tools"), -1_000, 9)))
    made.add(result("b.test.yaml", "five", (), make_change(("text",), 1, 1)))
    made.counters.update({"words": 1, "chars": 2})
    return made


def test_a_report_is_converted_to_a_dict() -> None:
    rows = [("three", ["text"], 5), ("four", ["text", "tools"], -1000), ("five", ["text"], 1)]
    failures = [dict(FAILURE._asdict()), {"check": "safe", "message": "no", "slot": "", "text": ""}]
    made = report()
    assert made.total == 5
    assert made.to_dict() == {
        "passed": 4,
        "failed": 1,
        "counters": {"words": 1, "chars": 2},
        "failures": [{"file": "a.test.yaml", "line": 3, "case": "two", "failures": failures}],
        "changed": [{"file": "b.test.yaml", "case": name, "kinds": kinds, "tokens": n} for name, kinds, n in rows],
        "groups": [
            {"kinds": ["text"], "rows": 2, "tokens": 6},
            {"kinds": ["text", "tools"], "rows": 1, "tokens": -1000},
        ],
    }
    assert made.summary() == "4 passed, 1 failed, 3 changed; tokens counted by chars, words"
    assert Report().to_dict() == {"passed": 0, "failed": 0, "failures": []}
    assert Report().summary() == "0 passed, 0 failed"


def test_a_report_is_converted_to_a_table_of_files() -> None:
    assert table_rows(report()) == [
        ("FILE", "PASSED", "FAILED", "CHANGED"),
        ("a.test.yaml", "1", "1", "0"),
        ("b.test.yaml", "3", "0", "3"),
    ]
    assert table_rows(Report()) == [("FILE", "PASSED", "FAILED")]


def test_a_report_lists_failures_and_changes() -> None:
    made = report()
    assert [*failure_lines(made.failed[0])] == [
        ("a.test.yaml:3: two", ""),
        ("  contains: the text does not contain 'x'", " [name]"),
        *(("    ", "a"), ("    ", r"\u001b[31m")),
        ("  safe: no", ""),
    ]
    lines = [line for line in change_lines(made) if line and not line.startswith(" ")]
    assert lines == [
        *("2 changed: text (+6 tokens)", "1 changed: text, tools (-1,000 tokens)"),
        "b.test.yaml: four: text, tools (-1,000 tokens)",
        *("b.test.yaml: three: text (+5 tokens)", "b.test.yaml: five: text (+1 tokens)"),
    ]
    assert [line for line in change_lines(made) if line.startswith(" ")] == [
        "    @@ -1,2 +1,2 @@",
        "    -a",
        "    +b",
    ] * 3


@pytest.mark.parametrize(("lines", "shown"), [(30, 30), (31, 30)])
def test_a_report_shows_at_most_30_lines_of_a_text(lines: int, shown: int) -> None:
    made = Report(compares=True)
    text = "a\n" * (lines - 2)
    made.add(result("a", "b", (Failure("regex", "no", text="a\n" * lines),), CaseChange(("text",), 1, 1, "", text)))
    assert [*failure_lines(made.failed[0])] == [("a:3: b", ""), ("  regex: no", ""), *[("    ", "a")] * shown]
    assert made.cases == []
    whole = [f"    @@ -0,0 +1,{lines - 1} @@", *["    +a"] * (lines - 2), "    +"]
    assert [*change_lines(made)][3:] == whole[:shown]


def test_the_ten_largest_changes_are_kept_and_earlier_ones_of_equal_size_come_first() -> None:
    made = Report(compares=True)
    for at, size in enumerate([1, *[5] * 9, 0, 7, 5, 5]):
        made.add(result("a", str(at), (), make_change(("text",), 0, size)))
    assert [row.name for row, _ in made.largest()] == ["11", *map(str, range(1, 10))]


def test_a_report_is_converted_to_junit_xml_and_github_workflow_commands() -> None:
    odd = Report(keeps_names=True)
    odd.add(result("a\ud800\ufffe", "b\uffff\x0b", (Failure("contains", "\x0c<"),)))
    (case,) = ET.fromstring(junit(odd)).iter("testcase")  # noqa: S314 - our own output
    found = (case.attrib, [(each.get("message"), each.text) for each in case])
    assert found == (
        {"classname": "a??", "name": "b?\\u000b", "time": "0", "line": "3"},
        [("contains: \\u000c<", "contains: \\u000c<")],
    )
    assert junit(report()) == (
        '<?xml version="1.0" encoding="UTF-8"?>\n<testsuites tests="5" failures="1">\n'
        '  <testsuite name="lazyprompt" errors="0" skipped="0" tests="5" failures="1">\n'
        '    <testcase classname="a.test.yaml" name="one" time="0" />\n'
        '    <testcase classname="a.test.yaml" name="two" time="0" line="3">\n'
        "      <failure message=\"contains: the text does not contain 'x'\">"
        "contains: the text does not contain 'x'\nsafe: no</failure>\n    </testcase>\n"
        + "".join(f'    <testcase classname="b.test.yaml" name="{n}" time="0" />\n' for n in ("three", "four", "five"))
        + "  </testsuite>\n</testsuites>\n"
    )
    assert [line.rstrip("\n") for line in github(report())] == [
        "::error file=a.test.yaml,line=3,title=case two::contains: the text does not contain 'x'%0Asafe: no",
        "::notice file=b.test.yaml,line=1,title=changed prompts::2 changed: text (+6 tokens)",
        "::notice file=b.test.yaml,line=1,title=changed prompts::1 changed: text, tools (-1,000 tokens)",
    ]
