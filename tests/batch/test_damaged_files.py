"""Files of a run that was killed, damaged: one line tells which, and no line is added to the output or lost."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lazyprompt.batch.answer_log import AnswerLog
from lazyprompt.batch.calls import call_batch
from lazyprompt.batch.rates import Rates
from lazyprompt.batch.run import run_batch
from lazyprompt.batch.state import BatchStoppedError
from lazyprompt.errors import BatchError
from support.batch_calls import Clocked, all_answered, answer_line, calls_of, rows
from support.batch_runs import job_of, left, rows_file
from support.model_server.server import Status

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lazyprompt.batch.run import BatchJob

KINDS = ("null", "true", "0", "-1.5", '"x"', "[]", "[null]", "{}", '{"row": 1}')
SAME_DIRECTORY = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
REJECT = b'{"row": 4, "line": 4, "reason": "late", "data": {}}\n'


@pytest.fixture
def stopped(tmp_path: Path) -> BatchJob:
    """A job of which some rows are done."""
    job = job_of(rows_file(tmp_path, 40))
    with pytest.raises(BatchStoppedError):
        run_batch(job, stopped=lambda: "enough")
    return job


def refused_state(job: BatchJob, data: bytes) -> str:
    """What is said of a state that holds such bytes; nothing else is changed by that."""
    state = job.output.with_name("out.jsonl.state")
    state.write_bytes(data)
    before = left(state.parent)
    with pytest.raises(BatchError) as caught:
        run_batch(job)
    assert left(state.parent) == before
    told = str(caught.value)
    assert told.startswith(f"{state} is not the state of a run (")
    assert told.endswith("--restart begins anew")
    assert len(told.splitlines()) == 1
    return told


def goes_on(job: BatchJob) -> bool:
    """Whether what is left of it leads to the output of a run that was never stopped."""
    output = run_batch(job).outputs[0].read_bytes()
    clean = job_of(job.rows, output="clean.jsonl")
    return output == run_batch(clean).outputs[0].read_bytes()


def test_every_prefix_of_a_state_is_refused(stopped: BatchJob) -> None:
    state = stopped.output.with_name("out.jsonl.state")
    whole = state.read_bytes()
    assert len(whole) > 100
    for end in range(len(whole)):
        refused_state(stopped, whole[:end])
    state.write_bytes(whole)
    assert goes_on(stopped)


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_of_another_kind_and_a_field_of_another_kind_are_refused(stopped: BatchJob, kind: str) -> None:
    """``null`` ended in an AttributeError, and a smaller number wrote rows that were written already once more."""
    whole = stopped.output.with_name("out.jsonl.state").read_bytes()
    fields = json.loads(whole)
    refused_state(stopped, kind.encode())
    for name in fields:
        if fields[name] != json.loads(kind):
            refused_state(stopped, json.dumps({**fields, name: json.loads(kind)}).encode())
        refused_state(stopped, json.dumps({each: value for each, value in fields.items() if each != name}).encode())
    for name in ("number", "written", "lines", "rejected"):
        refused_state(stopped, json.dumps({**fields, name: fields[name] + 1}).encode())


@given(data=st.data())
@SAME_DIRECTORY
def test_random_damage_of_a_state_is_refused(stopped: BatchJob, data: st.DataObject) -> None:
    state, kept = (stopped.output.with_name(name) for name in ("out.jsonl.state", "kept"))
    if not kept.exists():
        kept.write_bytes(state.read_bytes())
    whole = kept.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged = whole[:at] + data.draw(st.binary(min_size=1, max_size=8)) + whole[at + data.draw(st.integers(0, 4)) :]
    try:
        same = json.loads(damaged) == json.loads(whole)
    except ValueError:
        same = False
    if not same:
        refused_state(stopped, damaged)


def test_a_state_that_was_made_up_is_told_by_its_fields(stopped: BatchJob) -> None:
    """A checksum can be made up, too."""
    fields = json.loads(stopped.output.with_name("out.jsonl.state").read_bytes())
    del fields["checksum"]
    for name, wrong in (("number", None), ("files", {}), ("asked", []), ("done", 1), ("rejects_to", 3), ("x\n", 1)):
        made: Any = {**fields, name: wrong}
        told = refused_state(stopped, json.dumps({**made, "checksum": zlib.crc32(json.dumps(made).encode())}).encode())
        assert repr(name) in told


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "out.jsonl.answers"
    path.write_bytes(answer_line(1) + REJECT + answer_line(3, usage=None))
    return path


def read(path: Path) -> list[int]:
    """The rows of a log that have something, for a run of the rows 1 to 5."""
    with AnswerLog(path, range(1, 6), keeps_rejects=True) as opened:
        entries = [*opened.entries(0)]
        assert len(entries) == opened.answered + opened.rejected
    return [entry.row for entry in entries]


def refused_log(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    with pytest.raises(BatchError) as caught:
        read(path)
    assert path.read_bytes() == data
    told = str(caught.value)
    assert "remove the line to ask its row again, or --restart begins anew" in told
    assert len(told.splitlines()) == 1
    return told


def test_every_prefix_of_the_answers_keeps_its_whole_lines(log: Path) -> None:
    """A line that was cut is asked again: that is what a power cut leaves."""
    whole = log.read_bytes()
    ends = [at + 1 for at, byte in enumerate(whole) if byte == ord("\n")]
    for end in range(len(whole) + 1):
        log.write_bytes(whole[:end])
        assert read(log) == sorted([1, 4, 3][: sum(each <= end for each in ends)])
        assert log.read_bytes() == whole[: max((each for each in ends if each <= end), default=0)]


@pytest.mark.parametrize("kind", [*KINDS, "", " ", "x", "\x7f\xff", "[" * 100_000, "1" * 5000, '{"row": 1'])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_line_of_another_kind_is_told_with_its_number(log: Path, kind: str, number: int) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    lines[number - 1] = kind.encode("latin-1") + b"\n"
    assert refused_log(log, b"".join(lines)).startswith(f"{log}:{number}: not an answer of this run: ")


@pytest.mark.parametrize("kind", KINDS)
def test_a_field_of_another_kind_is_told(log: Path, kind: str) -> None:
    for line in (answer_line(1), REJECT, REJECT[:-2] + b', "answer": ' + answer_line(1)[:-1] + b"}\n"):
        fields = json.loads(line)
        for name, value in fields.items():
            other = json.loads(kind)
            if type(other) is type(value) or name == "data" or (name in {"usage", "finish", "line"} and other is None):
                continue
            if name == "answer" and other is None:
                continue
            refused_log(log, json.dumps({**fields, name: other}).encode() + b"\n")


@pytest.mark.parametrize("usage", ["x", [1], {"total_tokens": "x"}, {"total_tokens": 1.5}, {"total_tokens": [1]}, 7])
def test_usage_that_is_no_number_is_told(log: Path, usage: Any) -> None:
    refused_log(log, answer_line(1, usage=usage))


@pytest.mark.parametrize("row", [0, -1, 6, 10**6, 10**18, 10**30, True, "1", None])
def test_a_row_that_was_not_asked_is_told(log: Path, row: Any) -> None:
    """The answer came out in a line of its own; a large number filled the memory."""
    refused_log(log, answer_line(1, row=row))


def test_a_row_between_those_that_were_chosen_is_told(log: Path) -> None:
    with pytest.raises(BatchError, match=r"answers:2: not an answer of this run: there is no row 4 in this run"):
        AnswerLog(log, iter((1, 3, 5)), keeps_rejects=False)


@given(damage=st.binary(max_size=40), at=st.integers(0, 400), cut=st.integers(0, 40))
@SAME_DIRECTORY
def test_no_damage_of_answers_makes_a_line(log: Path, damage: bytes, at: int, cut: int) -> None:
    whole = answer_line(1) + REJECT + answer_line(3)
    log.write_bytes(whole[:at] + damage + whole[at + cut :])
    try:
        found = read(log)
    except BatchError as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017 - one line of many is looked at
    else:
        assert set(found) <= {1, 3, 4}


CHANGES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "null": lambda lines: [*lines, b"null\n"],
    "another row": lambda lines: [*lines, lines[0].replace(b'"row":1', b'"row":9')],
    "a row that is no number": lambda lines: [lines[0].replace(b'"row":1', b'"row":"1"'), *lines[1:]],
    "usage": lambda lines: [lines[0].replace(b'"total_tokens":25', b'"total_tokens":"25"'), *lines[1:]],
    "rubbish": lambda lines: [lines[0], b"\x80\x81\n", *lines[1:]],
    "no field": lambda lines: [lines[0].replace(b'"text"', b'"texts"'), *lines[1:]],
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_run_asks_nothing_until_its_answers_are_mended(tmp_path: Path, change: str) -> None:
    path = rows(tmp_path, 5)
    log = tmp_path / "out.jsonl.answers"
    with Clocked(lambda said: Status(401) if said == "4" else None) as server:
        calls = calls_of(path, server.url("openai"), rates=Rates(1))
        with pytest.raises(BatchStoppedError):
            call_batch(calls)
        whole = log.read_bytes()
        log.write_bytes(b"".join(CHANGES[change](whole.splitlines(keepends=True))))
        asked = len(server.seen)
        with pytest.raises(BatchError, match=r"out\.jsonl\.answers:\d: not an answer of this run: "):
            call_batch(calls)
        assert len(server.seen) == asked
        assert not (tmp_path / "out.jsonl").exists()
        log.write_bytes(whole)
        server.misbehaves = lambda _: None
        call_batch(calls)
    assert all_answered(tmp_path / "out.jsonl", 5)
