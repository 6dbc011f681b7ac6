"""Test files: what they name stays in their directory, and their checks end, whatever they hold."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING

from fuzz.judge import require
from fuzz.sandbox import OUTSIDE, encoded, scratch
from fuzz.target import Target
from lazyprompt.testing.cases import CaseFile, is_case_file
from lazyprompt.testing.checks import answer_failures
from lazyprompt.testing.report import Report, failure_lines, github, junit
from lazyprompt.testing.running import Runner

if TYPE_CHECKING:
    from pathlib import Path

    from fuzz.chance import Chance

_NAMES = (
    "own.prompty",
    "own.yaml",
    "link.prompty",
    "../secret.prompty",
    "up/secret.prompty",
    "itself.prompty",
    "rows.jsonl",
)
_ROWS = ("rows.jsonl", "link.jsonl", "../secret.jsonl", "up/secret.jsonl", "rows.csv", "gone.jsonl")
_PROMPT = ("contains", "not_contains", "regex", "not_regex", "roles", "max_tokens", "safe", "valid", "snapshot")
_ANSWER = ("contains", "regex", "equals", "starts_with", "ends_with", "json_schema", "python")
_KEYWORDS = ("$ref", "pattern", "type", "properties", "patternProperties", "additionalProperties", "items", "allOf")


@cache
def _directory() -> Path:
    """The directory of test files, with links that lead out of it."""
    around = scratch("cases")
    base = around / "in"
    base.mkdir()
    for end in ("prompty", "yaml", "jsonl"):
        (around / f"secret.{end}").write_text(f"user:\n{OUTSIDE}\n")
        (base / f"link.{end}").symlink_to(f"../secret.{end}")
    (base / "up").symlink_to("..")
    (base / "itself.prompty").symlink_to("itself.prompty")
    (base / "own.prompty").write_text("---\ninputs: {a: string}\n---\nsystem:\nYou know {{ a }}.\nuser:\n{{ a }}\n")
    (base / "own.yaml").write_text("instruction: Answer {a}.\n")
    (base / "rows.jsonl").write_text('{"a": "x"}\n{"a": 1}\n[]\n')
    (base / "rows.csv").write_text("a\nx\n")
    return base


def _run(chance: Chance) -> None:
    path = _directory() / "fuzzed.test.yaml"
    path.write_bytes(encoded(chance.text() if chance.flag() else _text(chance)))
    is_case_file(path)
    file = CaseFile.read(path)
    for named in (file.prompt, None if file.rows is None else file.rows.path):
        if named is not None:
            require(named.resolve().is_relative_to(_directory().resolve()), f"{named} lies outside")
    report, answer = Report(keeps_names=True), chance.text()
    for result in Runner().run([file]):
        report.add(result)
        for check in result.case.answer:
            if check.kind != "python":
                failures = answer_failures(answer, [check], result.case.inputs)
                require(OUTSIDE not in repr(failures), "a file outside was read for an answer")
    lines = ["".join(line) for result in report.failed for line in failure_lines(result)]
    for written in (json.dumps(report.to_dict()), junit(report), *github(report), *lines):
        require(OUTSIDE not in written, "a file outside was read")
    for written in (*github(report), *lines):
        require("\x1b" not in written, "an escape sequence was written")


def _text(chance: Chance) -> str:
    """A test file with the right fields."""
    fields: dict[str, object] = {"file": chance.one((*_NAMES, chance.text()))}
    if chance.flag():
        fields["rows"] = chance.one((*_ROWS, chance.text()))
    fields["cases"] = [
        {
            "name": chance.text(),
            "inputs": {"a": chance.json()},
            "prompt": [{chance.one(_PROMPT): chance.json()} for _ in range(chance.number(3))],
            "answer": [
                {kind: _schema(chance) if kind == "json_schema" else chance.json()}
                for kind in (chance.one(_ANSWER) for _ in range(chance.number(3)))
            ],
        }
        for _ in range(chance.number(3))
    ]
    return json.dumps(fields)


def _schema(chance: Chance, depth: int = 2) -> object:
    if not depth:
        return chance.json(1)
    return {chance.one(_KEYWORDS): _schema(chance, depth - 1) for _ in range(chance.number(4))}


CASES = Target(
    "cases",
    _run,
    (
        *(
            "file: own.prompty\n",
            "file: ../secret.prompty\n",
            "rows: link.jsonl\n",
            "cases: [{}]\n",
            "cases:\n",
            "  - ",
        ),
        *("inputs: {a: x}\n", "prompt: [{", "answer: [{", "contains: x", "regex: '(a|a)+$'", "json_schema: {", "}]\n"),
        *("$ref: '#'", "$ref: 'http://127.0.0.1:1/'", "pattern: '(a|a)+$'", "type: object", "(a|a)+$", "aaaaaaaaaaaa!"),
        *(
            "(?:",
            ")",
            "*",
            "+",
            "{2,9}",
            "\\1",
            "(?R)",
            "[[a]--b]",
            "(?i)",
            "^",
            "$",
            "|",
            ".",
            "\\p{L}",
            "\x1b]0;x\x07",
        ),
        *("python: 'os:system'", "snapshot: true", "max_tokens: 1", "roles: [user]", "name: ", "params: {a: 1}\n", '"'),
    ),
    seconds=30,
)
