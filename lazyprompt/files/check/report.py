"""Findings as text: for people, for GitHub's workflow log, and as SARIF for code scanning."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from rich.cells import cell_len

from lazyprompt._base.signs import visible
from lazyprompt._version import __version__
from lazyprompt.files.check.check import RULES, SEVERITIES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lazyprompt._base.json import Json, JsonObject
    from lazyprompt.files.check.check import Finding, Rule, Severity

# Source: GitHub's workflow commands, and their escapes: of a message, and of a property.
_COMMANDS: Final[Mapping[Severity, str]] = {"error": "error", "warning": "warning", "info": "notice"}
_OF_MESSAGE = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_OF_PROPERTY = _OF_MESSAGE | str.maketrans({":": "%3A", ",": "%2C"})
# Source: SARIF 2.1.0, section 3.27.10.
_LEVELS: Final[Mapping[Severity, str]] = {"error": "error", "warning": "warning", "info": "note"}

# How much of a long line is shown.
_SHOWN = 100


def report(findings: Sequence[Finding], files: int) -> str:
    """Write findings as lines: each with its place, errors with the line that they are in; then their numbers.

    Args:
        findings: The findings.
        files: The number of files that were checked.
    """
    return visible("".join(map(_lines, findings))) + _summary(findings, files)


def github(findings: Sequence[Finding], files: int) -> str:
    """Write findings as GitHub's workflow commands, which show each beside its line; then the number of them.

    Args:
        findings: The findings.
        files: The number of files that were checked.
    """
    lines = [
        command(
            _COMMANDS[each.severity],
            each.file,
            each.line,
            f"{each.code} {RULES[each.code].name}",
            _message(each),
            each.column,
        )
        for each in findings
    ]
    return "".join(lines) + _summary(findings, files)


def command(kind: str, file: str, line: int, title: str, message: str, column: int | None = None) -> str:
    """Return a workflow command of GitHub's, as a line.

    Args:
        kind: ``error``, ``warning`` or ``notice``.
        file: The file that it stands beside.
        line: The line, from 1.
        title: Its title.
        message: Its text.
        column: The column, from 1.
    """
    place = f"file={Path(file).as_posix().translate(_OF_PROPERTY)},line={line}"
    at = "" if column is None else f",col={column}"
    return f"::{kind} {place}{at},title={title.translate(_OF_PROPERTY)}::{visible(message).translate(_OF_MESSAGE)}\n"


def sarif(findings: Sequence[Finding]) -> JsonObject:
    """Return findings as a log of SARIF 2.1.0, with paths relative to the working directory.

    Args:
        findings: The findings.
    """
    places = {code: index for index, code in enumerate(RULES)}
    results: list[Json] = [
        {
            "ruleId": each.code,
            "ruleIndex": places[each.code],
            "level": _LEVELS[each.severity],
            "message": {"text": visible(_message(each))},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": quote(Path(os.path.relpath(each.file)).as_posix())},
                        "region": {"startLine": each.line, "startColumn": each.column},
                    }
                }
            ],
        }
        for each in findings
    ]
    driver: JsonObject = {"name": "lazyprompt", "version": __version__, "rules": [*map(_sarif_rule, RULES.values())]}
    run: JsonObject = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}


def _sarif_rule(rule: Rule) -> JsonObject:
    # Python leaves docstrings out with -OO; then the name has to do.
    text = " ".join((rule.find.__doc__ or rule.name).replace("``", "'").split())
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": text},
        "help": {"text": f"{text} The page 'Check prompt files' of lazyprompt's manual explains {rule.code}."},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
    }


def _message(finding: Finding) -> str:
    return f"{finding.message}; {finding.advice}" if finding.advice else finding.message


def _lines(finding: Finding) -> str:
    text = f"{finding.file}:{finding.line}:{finding.column}: {finding.code} {_message(finding)}\n"
    return f"{text}{_pointed(finding)}" if finding.severity == "error" and finding.excerpt else text


def _pointed(finding: Finding) -> str:
    """Return the line of a finding, with a caret below its place."""
    at = finding.column - 1
    begin = max(at - _SHOWN // 2, 0)
    before, rest = (
        visible(part.replace("\t", " ")) for part in (finding.excerpt[begin:at], finding.excerpt[at : begin + _SHOWN])
    )
    return f"    {before}{rest}\n    {' ' * cell_len(before)}^\n"


def _summary(findings: Sequence[Finding], files: int) -> str:
    counts = Counter(each.severity for each in findings)
    numbers = [_counted(counts[each], each) for each in SEVERITIES if counts[each]] or ["nothing found"]
    return f"{', '.join(numbers)} in {_counted(files, 'file')}\n"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 or what == 'info' else 's'}"
