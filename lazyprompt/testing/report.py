"""Reports of test results as a table, JSON, JUnit XML or GitHub workflow commands."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from lazyprompt._base.characters import visible
from lazyprompt._base.difference import changed_lines
from lazyprompt.files.check.check import command
from lazyprompt.testing.checks import counter_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.testing.difference import CaseChange
    from lazyprompt.testing.running import Result

_MOST_SHOWN: Final = 10
_MOST_LINES: Final = 30


class ChangedCase(NamedTuple):
    """A test case whose prompt changed.

    Attributes:
        file: The path of the test file.
        name: The test case's name.
        kinds: The changed parts of the prompt.
        tokens: The approximate number of tokens that the change added to the prompt; negative if the prompt is shorter.
    """

    file: str
    name: str
    kinds: tuple[str, ...]
    tokens: int


# A heap entry: the size of a change, its negated sequence number, the test case and the change.
_Ranked: TypeAlias = "tuple[int, int, ChangedCase, CaseChange]"


class Group(NamedTuple):
    """A group of test cases in which the same parts of the prompt changed.

    Attributes:
        kinds: The changed parts of the prompt.
        file: The path of the first test case's file.
        rows: The number of test cases.
        tokens: The approximate number of tokens added to the prompts, summed over all test cases in the group.
    """

    kinds: tuple[str, ...]
    file: str
    rows: int
    tokens: int

    def __str__(self) -> str:
        return f"{self.rows:,} changed: {', '.join(self.kinds)} ({self.tokens:+,} tokens)"


@dataclass
class Report:
    """A report of the results added so far. Passed test cases are counted but not kept.

    Args:
        compares: True if the prompts are compared with a baseline version.
        keeps_names: True to keep the names of all test cases, which JUnit XML requires.
    """

    compares: bool = False
    keeps_names: bool = False
    passed: dict[str, int] = field(default_factory=dict[str, int])
    failed: list[Result] = field(default_factory=list["Result"])
    changed: list[ChangedCase] = field(default_factory=list[ChangedCase])
    cases: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    counters: Counter[str] = field(default_factory=Counter[str])
    _largest: list[_Ranked] = field(default_factory=list["_Ranked"])

    def add(self, result: Result) -> None:
        """Add a result to the report."""
        case, rendered, change = result.case, result.rendered, result.change
        file = str(case.file)
        self.passed[file] = self.passed.get(file, 0) + (not result.failures)
        if self.keeps_names:
            self.cases.append((file, case.name))
        if result.failures:
            self.failed.append(result._replace(rendered=None, change=None))
        for check in case.prompt:
            if check.kind == "max_tokens" and rendered is not None:
                self.counters[counter_of(rendered, check)[0]] += 1
        if change is not None:
            row = ChangedCase(file, case.name, change.kinds, change.tokens)
            self.changed.append(row)
            # The negated sequence number breaks ties in favor of earlier test cases.
            heapq.heappush(self._largest, (change.size, -len(self.changed), row, change))
            if len(self._largest) > _MOST_SHOWN:
                heapq.heappop(self._largest)

    @property
    def total(self) -> int:
        """The number of test cases."""
        return sum(self.passed.values()) + len(self.failed)

    def groups(self) -> list[Group]:
        """Group the changed test cases by their changed parts, largest group first."""
        found: dict[tuple[str, ...], Group] = {}
        for file, _, kinds, tokens in self.changed:
            group = found.get(kinds, Group(kinds, file, 0, 0))
            found[kinds] = group._replace(rows=group.rows + 1, tokens=group.tokens + tokens)
        return sorted(found.values(), key=lambda group: -group.rows)

    def largest(self) -> list[tuple[ChangedCase, CaseChange]]:
        """Return the ten test cases with the largest changes, largest first."""
        return [(row, change) for _, _, row, change in sorted(self._largest, key=lambda each: each[:2], reverse=True)]

    def to_dict(self) -> JsonObject:
        """Return the report as a JSON-serializable dict."""
        failed: list[Json] = []
        for result in self.failed:
            case = result.case
            failures: list[Json] = [dict(each._asdict()) for each in result.failures]
            failed.append({"file": str(case.file), "line": case.line, "case": case.name, "failures": failures})
        found: JsonObject = {"passed": sum(self.passed.values()), "failed": len(failed), "failures": failed}
        if self.counters:
            found["counters"] = dict(self.counters)
        if self.compares:
            found["changed"] = [
                {"file": file, "case": name, "kinds": [*kinds], "tokens": tokens}
                for file, name, kinds, tokens in self.changed
            ]
            found["groups"] = [
                {"kinds": [*group.kinds], "rows": group.rows, "tokens": group.tokens} for group in self.groups()
            ]
        return found

    def summary(self) -> str:
        """Return a one-line summary of the results."""
        parts = [f"{sum(self.passed.values()):,} passed", f"{len(self.failed):,} failed"]
        if self.compares:
            parts.append(f"{len(self.changed):,} changed")
        counted = f"; tokens counted by {', '.join(sorted(self.counters))}" if self.counters else ""
        return ", ".join(parts) + counted


def table_rows(report: Report) -> list[tuple[str, ...]]:
    """Return the table's heading and one row for each test file."""
    failed = Counter(str(each.case.file) for each in report.failed)
    counts = [Counter(report.passed), failed]
    if report.compares:
        counts.append(Counter(row.file for row in report.changed))
    heading = ("FILE", "PASSED", "FAILED", "CHANGED")[: 1 + len(counts)]
    return [heading, *((visible(file), *(str(each[file]) for each in counts)) for file in report.passed)]


def failure_lines(result: Result) -> Iterator[tuple[str, str]]:
    """Yield the lines that describe a failed test case, as pairs of plain text and text to color.

    Control characters are escaped, because logs may be displayed in terminals.
    """
    case = result.case
    yield visible(f"{case.file}:{case.line}: {case.name}"), ""
    for each in result.failures:
        yield visible(f"  {each.check}: {each.message}"), visible(f" [{each.slot}]") if each.slot else ""
        yield from (("    ", visible(line)) for line in islice(each.text.splitlines(), _MOST_LINES))


def change_lines(report: Report) -> Iterator[str]:
    """Yield the lines that list groups of changes and the largest changes, with control characters escaped."""
    yield from (visible(str(group)) for group in report.groups())
    for row, change in report.largest():
        yield ""
        yield visible(f"{row.file}: {row.name}: {', '.join(row.kinds)} ({row.tokens:+,} tokens)")
        yield from (f"    {visible(line)}".rstrip() for line in changed_lines(*change.texts, context=1)[:_MOST_LINES])


def junit(report: Report) -> str:
    """Return the results as JUnit XML for CI systems."""
    failed = {(str(each.case.file), each.case.name): each for each in report.failed}
    counts = {"tests": str(report.total), "failures": str(len(failed))}
    suites = Element("testsuites", counts)
    suite = SubElement(suites, "testsuite", {"name": "lazyprompt", "errors": "0", "skipped": "0", **counts})
    for file, name in report.cases:
        case = SubElement(suite, "testcase", {"classname": _xml(file), "name": _xml(name), "time": "0"})
        if (result := failed.get((file, name))) is not None:
            case.set("line", str(result.case.line))
            text = _xml(_message(result))
            SubElement(case, "failure", {"message": text.splitlines()[0]}).text = text
    indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(suites, encoding="unicode")}\n'


def _message(result: Result) -> str:
    return "\n".join(f"{each.check}: {each.message}" for each in result.failures)


def _xml(text: str) -> str:
    """Escape or replace characters that XML can't represent."""
    return visible(text).replace("\ufffe", "?").replace("\uffff", "?").encode("utf-8", "replace").decode()


def github(report: Report) -> Iterator[str]:
    """Yield GitHub workflow commands, which annotate each failure at its line in a pull request."""
    for result in report.failed:
        case = result.case
        yield command("error", str(case.file), case.line, f"case {case.name}", _message(result))
    for group in report.groups():
        yield command("notice", group.file, 1, "changed prompts", str(group))
