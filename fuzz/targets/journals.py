"""Files that a batch run has left, damaged: they are refused with one line, or the run goes on as it was."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from fuzz.judge import require
from fuzz.sandbox import encoded, scratch
from fuzz.target import Target
from lazyprompt.batch.answer_log import AnswerLog
from lazyprompt.batch.forms import Limits
from lazyprompt.batch.journal import Journal
from lazyprompt.batch.state import Files
from lazyprompt.errors import BatchError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fuzz.chance import Chance

_ASKED: Any = {"the input": "sha256:" + "0" * 64, "--limit": None}
_DONE = b"1\n2\n"
_ROWS = (1, 2, 4, 300)
_ANSWER: Mapping[str, object] = {
    "text": "so",
    "thinking": "",
    "tool_calls": [],
    "usage": {"total_tokens": 5},
    "finish": None,
    "model": "m",
}
_LINES: tuple[Mapping[str, object], ...] = (
    {"row": 1, "custom_id": "row-1", **_ANSWER},
    {"row": 4, "line": 4, "reason": "late", "data": {}},
    {"row": 300, "line": None, "reason": "late", "data": "x", "answer": _ANSWER},
)


def _journal() -> Journal:
    return Journal(Files(scratch("journals") / "out.jsonl"), _ASKED, Limits(), seconds=1000)


def _run(chance: Chance) -> None:
    for left in scratch("journals").iterdir():
        left.unlink()
    if chance.flag():
        _state(chance)
    else:
        _log(chance)


def _state(chance: Chance) -> None:
    """Damage the state of a run."""
    with _journal() as begun:
        begun.add(2, _DONE.splitlines(keepends=True))
    state, part = scratch("journals") / "out.jsonl.state", scratch("journals") / "out.jsonl.part"
    before = state.read_bytes()
    at = chance.number(len(before) + 1)
    changes = (encoded(chance.text()), before[:at], before[:at] + encoded(chance.text()) + before[at + 1 :])
    changed = chance.one(changes)
    fields = json.loads(before)
    if chance.flag():
        fields[chance.one([*fields, "x"])] = chance.json()
        changed = json.dumps(fields).encode()
    state.write_bytes(changed)
    try:
        journal = _journal()
    except BatchError as error:
        require("\n" not in str(error), f"the error has several lines: {error}")
        require(part.read_bytes() == _DONE, "a run that is refused has changed its output")
        return
    with journal:
        require(json.loads(changed) == json.loads(before), "a damaged state was gone on with")
        journal.add(3, [b"3\n"])
        (output,) = journal.finish()
    require(output.read_bytes() == _DONE + b"3\n", "a line was added or lost")


def _log(chance: Chance) -> None:
    """Damage the answers of a run."""
    pieces = [_line(chance) for _ in range(chance.number(5))]
    content = b"".join(pieces)[: -chance.number(9) or None]
    path = scratch("journals") / "out.jsonl.answers"
    path.write_bytes(content)
    try:
        log = AnswerLog(path, iter(_ROWS), keeps_rejects=chance.flag())
    except BatchError as error:
        require("\n" not in str(error), f"the error has several lines: {error}")
        require(path.read_bytes() == content, "a log that is refused was changed")
        return
    with log:
        entries = [*log.entries(0)]
        require(len(entries) == log.answered + log.rejected, "what is counted is not what is there")
        require(log.tokens >= 0 or b"-" in content, "there are fewer tokens than none")
    rows = [entry.row for entry in entries]
    require(rows == sorted({*rows} & {*_ROWS}), f"answers of other rows, or two of one: {rows}")
    for entry in entries:
        line = cast("dict[str, object]", json.loads(entry.line))
        require(line["row"] == entry.row and entry.line in content, "a line that nobody has written")


def _line(chance: Chance) -> bytes:
    if chance.flag():
        return encoded(chance.text()) + b"\n" * chance.flag()
    fields = dict(chance.one(_LINES))
    for _ in range(chance.number(3)):
        fields[chance.one([*fields, "x"])] = chance.json()
    return json.dumps(fields).encode() + b"\n"


JOURNALS = Target(
    "journals",
    _run,
    (
        *(
            "null",
            "[]",
            "{}",
            "true",
            "1",
            '"x"',
            "\n",
            "\0",
            '{"row": 1}',
            '{"row": 1e9}',
            '{"row": -1, "reason": ""}',
        ),
        *('{"row": 1, "line": 1, "reason": "", "data": 0}', '"usage": {"total_tokens": "x"}', '"checksum": ', "NaN"),
        *('{"version": 2}', '"number": 1', '"files": [0]', '"done": true', "1" * 5000, "[" * 2000, "\ufeff", "\r"),
    ),
)
