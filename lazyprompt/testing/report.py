"""The results of cases: counted, and written as a table, JSON, JUnit's XML or commands of GitHub's workflows."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field
from difflib import unified_diff
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from lazyprompt._base.signs import visible
from lazyprompt.files.check.report import command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.testing.difference import Change
    from lazyprompt.testing.running import Result

_MOST_SHOWN: Final = 10
_MOST_LINES: Final = 30


class Changed(NamedTuple):
    """A case that has changed.

    Attributes:
        file: Its file.
        name: Its name.
        kinds: What changed.
        tokens: About how many tokens it has more.
    """

    file: str
    name: str
    kinds: tuple[str, ...]
    tokens: int

    def to_dict(self) -> JsonObject:
        """Return it as JSON."""
        return {"file": self.file, "case": self.name, "kinds": [*self.kinds], "tokens": self.tokens}


class _Failed(NamedTuple):
    """A case that failed, without its prompt."""

    result: Result

    def to_dict(self) -> JsonObject:
        case = self.result.case
        failures: list[Json] = [dict(each._asdict()) for each in self.result.failures]
        return {"file": str(case.file), "line": case.line, "case": case.name, "failures": failures}


@dataclass
class Report:
    """The results so far. Of cases that passed only their number is kept.

    Args:
        compares: True if there is another version to compare with.
    """

    compares: bool = False
    passed: Counter[str] = field(default_factory=Counter[str])
    failed: list[Result] = field(default_factory=list["Result"])
    files: dict[str, None] = field(default_factory=dict[str, None])
    changed: list[Changed] = field(default_factory=list[Changed])
    cases: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    keeps_names: bool = False
    _largest: list[tuple[int, int, Changed, Change]] = field(default_factory=list["tuple[int, int, Changed, Change]"])

    def add(self, result: Result) -> None:
        """Count a result."""
        file = str(result.case.file)
        self.files[file] = None
        if self.keeps_names:
            self.cases.append((file, result.case.name))
        if result.failures:
            self.failed.append(result._replace(rendered=None, change=None))
        else:
            self.passed[file] += 1
        if (change := result.change) is not None:
            row = Changed(file, result.case.name, change.kinds, change.tokens)
            self.changed.append(row)
            # The number keeps the heap from comparing more, and the first of equal ones in it.
            ranked = change.size, -len(self.changed), row, change
            if len(self._largest) < _MOST_SHOWN:
                heapq.heappush(self._largest, ranked)
            elif change.size > self._largest[0][0]:
                heapq.heapreplace(self._largest, ranked)

    @property
    def total(self) -> int:
        """The number of cases."""
        return self.passed.total() + len(self.failed)

    def groups(self) -> list[tuple[tuple[str, ...], list[Changed]]]:
        """Return the changed cases by what changed, the largest group first."""
        found: dict[tuple[str, ...], list[Changed]] = {}
        for row in self.changed:
            found.setdefault(row.kinds, []).append(row)
        return sorted(found.items(), key=lambda item: -len(item[1]))

    def largest(self) -> list[tuple[Changed, Change]]:
        """Return the ten cases that differ most."""
        return [(row, change) for _, _, row, change in sorted(self._largest, key=lambda each: each[:2], reverse=True)]

    def to_dict(self) -> JsonObject:
        """Return it as JSON."""
        found: JsonObject = {
            "passed": self.passed.total(),
            "failed": len(self.failed),
            "failures": [_Failed(each).to_dict() for each in self.failed],
        }
        if self.compares:
            found["changed"] = [row.to_dict() for row in self.changed]
            found["groups"] = [
                {"kinds": [*kinds], "rows": len(rows), "tokens": sum(row.tokens for row in rows)}
                for kinds, rows in self.groups()
            ]
        return found

    def summary(self) -> str:
        """Return the numbers in a line."""
        parts = [f"{self.passed.total():,} passed", f"{len(self.failed):,} failed"]
        if self.compares:
            parts.append(f"{len(self.changed):,} changed")
        return ", ".join(parts)


def table_rows(report: Report) -> list[tuple[str, ...]]:
    """Return a row for each file, with its numbers; the first is the heading."""
    failed, changed = (
        Counter(names)
        for names in ((str(each.case.file) for each in report.failed), (row.file for row in report.changed))
    )
    heading = ("FILE", "PASSED", "FAILED", *(("CHANGED",) if report.compares else ()))
    rows = [
        (
            visible(file),
            str(report.passed[file]),
            str(failed[file]),
            *((str(changed[file]),) if report.compares else ()),
        )
        for file in report.files
    ]
    return [heading, *rows]


def failure_lines(result: Result) -> Iterator[tuple[str, str, str]]:
    """Yield the lines of a failed case: a text, the text to colour behind it, and the rest of the line."""
    case = result.case
    yield f"{case.file}:{case.line}: {case.name}", "", ""
    for each in result.failures:
        where = f" [{each.slot}]" if each.slot else ""
        yield f"  {each.check}: {each.message}", where, ""
        for line in islice(each.text.splitlines(), _MOST_LINES):
            yield "    ", line, ""


def change_lines(report: Report) -> Iterator[str]:
    """Yield the lines of the changes: the groups, and the cases that differ most."""
    for kinds, rows in report.groups():
        tokens = sum(row.tokens for row in rows)
        yield f"{len(rows):,} changed: {', '.join(kinds)} ({tokens:+,} tokens)"
    for row, change in report.largest():
        yield ""
        yield f"{row.file}: {row.name}: {', '.join(row.kinds)} ({row.tokens:+,} tokens)"
        before, after = (text.splitlines() for text in change.texts)
        lines = islice(unified_diff(before, after, lineterm="", n=1), 2, 2 + _MOST_LINES)
        yield from (f"    {line}".rstrip() for line in lines)


def junit(report: Report) -> str:
    """Return the results as JUnit's XML, which CI systems read."""
    failed = {(str(each.case.file), each.case.name): each for each in report.failed}
    counts = {"tests": str(report.total), "failures": str(len(failed))}
    suite = Element("testsuite", {"name": "lazyprompt", "errors": "0", "skipped": "0", **counts})
    for file, name in report.cases:
        case = SubElement(suite, "testcase", {"classname": _xml(file), "name": _xml(name), "time": "0"})
        if (result := failed.get((file, name))) is not None:
            case.set("line", str(result.case.line))
            text = "\n".join(f"{each.check}: {each.message}" for each in result.failures)
            SubElement(case, "failure", {"message": _xml(text.splitlines()[0])}).text = _xml(text)
    suites = Element("testsuites", counts)
    suites.append(suite)
    indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(suites, encoding="unicode")}\n'


def _xml(text: str) -> str:
    """Return a text without characters that XML has not."""
    return visible(text).replace("\x0c", "").replace("\x0b", "").encode("utf-8", "replace").decode()


def github(report: Report) -> Iterator[str]:
    """Yield GitHub's workflow commands, which show each failure at its line of a pull request."""
    for result in report.failed:
        text = "\n".join(f"{each.check}: {each.message}" for each in result.failures)
        yield command("error", str(result.case.file), result.case.line, f"case {result.case.name}", text)
    for kinds, rows in report.groups():
        first = rows[0]
        tokens = sum(row.tokens for row in rows)
        text = f"{len(rows):,} rows changed: {', '.join(kinds)} ({tokens:+,} tokens)"
        yield command("notice", first.file, 1, "changed prompts", text)
