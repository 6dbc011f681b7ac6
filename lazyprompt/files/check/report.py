"""Findings as text, for people."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.cells import cell_len

from lazyprompt.files.check.check import SEVERITIES
from lazyprompt.inspect.signs import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lazyprompt.files.check.check import Finding

# How much of a long line is shown.
_SHOWN = 100


def report(findings: Sequence[Finding], files: int) -> str:
    """Findings as lines: each with its place, errors with the line that they are in; and how many there are.

    Args:
        findings: The findings.
        files: How many files were looked at.
    """
    counts = Counter(each.severity for each in findings)
    told = [_counted(counts[each], each) for each in SEVERITIES if counts[each]] or ["nothing found"]
    return visible(f"{''.join(map(_told, findings))}{', '.join(told)} in {_counted(files, 'file')}\n")


def _told(finding: Finding) -> str:
    advice = f"; {finding.advice}" if finding.advice else ""
    text = f"{finding.file}:{finding.line}:{finding.column}: {finding.code} {finding.message}{advice}\n"
    return f"{text}{_pointed(finding)}" if finding.severity == "error" and finding.excerpt else text


def _pointed(finding: Finding) -> str:
    """The line that a finding is in, and a caret below its place."""
    at = finding.column - 1
    begin = max(at - _SHOWN // 2, 0)
    before, rest = (
        visible(part.replace("\t", " ")) for part in (finding.excerpt[begin:at], finding.excerpt[at : begin + _SHOWN])
    )
    return f"    {before}{rest}\n    {' ' * cell_len(before)}^\n"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 or what == 'info' else 's'}"
