"""A damaged database of a run: one line tells of it, and no line is added to the output or lost."""

import json
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lazyprompt.batch.calls import call_batch
from lazyprompt.batch.database import BatchStoppedError, RunDatabase
from lazyprompt.batch.rates import Rates
from lazyprompt.batch.run import BatchJob, run_batch
from lazyprompt.errors import BatchError
from support.batch_calls import Clocked, all_answered, calls_of, rows
from support.batch_runs import files_left, job_of, rows_file
from support.missing import needs
from support.model_server.server import Status

needs("openai")

KINDS = ("null", "true", "0", "-1.5", '"x"', "[]", "[null]", "{}", '{"row": 1}')
SAME_DIRECTORY = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def stopped(tmp_path: Path) -> BatchJob:
    """A job of which some rows are done; two of them have no line."""
    job = job_of(rows_file(tmp_path, 40, bad=10), rejects="bad.jsonl")
    with pytest.raises(BatchStoppedError):
        run_batch(job, stopped=lambda: "enough")
    return job


@pytest.fixture
def clean(tmp_path: Path) -> tuple[bytes, bytes]:
    """What a run that was never stopped writes."""
    job = job_of(rows_file(tmp_path, 40, bad=10), output="clean.jsonl", rejects="clean.bad")
    run_batch(job)
    written = (tmp_path / "clean.jsonl", tmp_path / "clean.bad")
    first, second = (path.read_bytes() for path in written)
    for path in written:
        path.unlink()
    return first, second


def database_path(job: BatchJob) -> Path:
    return job.output.with_name("out.jsonl.run")


def error_text(job: BatchJob) -> str:
    """What is said of the files of a run; they stay as they are."""
    before = files_left(job.output.parent)
    with pytest.raises(BatchError) as caught:
        run_batch(job)
    assert files_left(job.output.parent) == before
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def change_database(path: Path, query: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(query, values)


@pytest.mark.slow
def test_every_prefix_of_a_database_is_refused(stopped: BatchJob, clean: tuple[bytes, bytes]) -> None:
    path = database_path(stopped)
    kept = files_left(path.parent)
    whole = kept[path.name]
    for end in (0, 1, 15, 16, 17, 99, 100, 101, *range(511, len(whole), 1024), len(whole) - 1):
        path.write_bytes(whole[:end])
        # Without a byte it says nothing, and the part is nobody's. The last bytes are those of a reject.
        with pytest.raises(BatchError, match=r"out.jsonl.run |part already exists, but no unfinished run") as e:
            run_batch(stopped)
        assert len(str(e.value).splitlines()) == 1
        assert not stopped.output.exists()
        for name in files_left(path.parent):
            (path.parent / name).unlink()
        for name, data in kept.items():
            (path.parent / name).write_bytes(data)
    run_batch(stopped)
    assert (stopped.output.read_bytes(), stopped.output.with_name("bad.jsonl").read_bytes()) == clean


def test_a_page_that_is_no_page_is_refused(stopped: BatchJob) -> None:
    """The page that the next line was written to was read last: SQLite's own error came out."""
    path = database_path(stopped)
    kept = files_left(path.parent)
    whole = kept[path.name]
    for at in range(0, len(whole), 4096):
        path.write_bytes(whole[:at] + b"\0" + whole[at + 1 :])
        with pytest.raises(BatchError, match=r"out.jsonl.run is damaged or is not a run database") as caught:
            run_batch(stopped)
        assert len(str(caught.value).splitlines()) == 1
        assert not stopped.output.exists()
        for name, data in kept.items():
            (path.parent / name).write_bytes(data)


@pytest.mark.slow
@given(data=st.data())
@SAME_DIRECTORY
def test_random_damage_of_a_database_adds_no_line(
    stopped: BatchJob, clean: tuple[bytes, bytes], data: st.DataObject
) -> None:
    """It is refused with one line, or it is of no account: the output is that of a run which was never stopped."""
    directory = stopped.output.parent
    kept = directory.parent / "kept"
    if not kept.exists():
        kept.mkdir()
        for name, content in files_left(directory).items():
            (kept / name).write_bytes(content)
    for path in directory.iterdir():
        if path.name != "data.jsonl":
            path.unlink()
    for path in kept.iterdir():
        (directory / path.name).write_bytes(path.read_bytes())
    whole = database_path(stopped).read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    damage = data.draw(st.binary(min_size=1, max_size=8))
    cut = data.draw(st.integers(0, 4) | st.just(len(damage)))
    database_path(stopped).write_bytes(whole[:at] + damage + whole[at + cut :])
    try:
        run_batch(stopped)
    except BatchError as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017 - one of two ends
        assert not stopped.output.exists()
    else:
        assert (stopped.output.read_bytes(), (directory / "bad.jsonl").read_bytes()) == clean


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_state_of_another_kind_and_a_field_of_another_kind_are_refused(stopped: BatchJob, kind: str) -> None:
    """A checksum can be made up, too: ``null`` ended in an AttributeError."""
    with closing(sqlite3.connect(database_path(stopped))) as database:
        ((whole,),) = database.execute("SELECT state FROM run")
    fields = json.loads(whole)
    made = [json.loads(kind)]
    for name, value in fields.items():
        made.append({each: value for each, value in fields.items() if each != name})
        if type(value) is not type(json.loads(kind)) and name != "rejects_to":
            made.append({**fields, name: json.loads(kind)})
    for each in (json.dumps(each).encode() for each in [*made, {**fields, "x\n": 1}]):
        change_database(database_path(stopped), "UPDATE run SET state = ?, checksum = ?", each, zlib.crc32(each))
        assert error_text(stopped).endswith("; use --restart to start over")


def test_a_number_that_was_changed_is_refused(stopped: BatchJob) -> None:
    """A smaller one wrote rows that were written already once more."""
    with closing(sqlite3.connect(database_path(stopped))) as database:
        ((whole,),) = database.execute("SELECT state FROM run")
    for name in ("number", "written", "lines", "rejected"):
        fields = json.loads(whole)
        state = json.dumps({**fields, name: fields[name] + 1}).encode()
        change_database(database_path(stopped), "UPDATE run SET state = ?", state)
        assert "(the saved run state doesn't match its checksum)" in error_text(stopped)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("UPDATE lines SET line = 'x'", r"or .* \(.*\)"),
        ("DELETE FROM lines WHERE row = 1", ": rejected rows are missing"),
        ("UPDATE lines SET row = 9 WHERE row = 1", r"or .* \(the checksum for row 9 doesn't match\)"),
    ],
)
def test_rejects_that_were_changed_are_missed(stopped: BatchJob, query: str, said: str) -> None:
    change_database(database_path(stopped), query)
    with pytest.raises(BatchError, match=rf"out\.jsonl\.run is damaged ?{said}; use --restart to start over"):
        run_batch(stopped)
    assert not stopped.output.exists()


@pytest.mark.parametrize(
    "table", ["CREATE TRIGGER t AFTER INSERT ON run BEGIN DELETE FROM lines; END", "CREATE TABLE x (y)"]
)
def test_a_database_with_more_in_it_is_refused(stopped: BatchJob, table: str) -> None:
    change_database(database_path(stopped), table)
    assert "(the file's tables are not those of a run database)" in error_text(stopped)


# Changes of an answer in the database; each is found by its checksum.
CHANGES = (
    "UPDATE lines SET line = replace(line, 're', 'no') WHERE row = 2",
    "UPDATE lines SET line = NULL WHERE row = 2",
    "UPDATE lines SET line = 7 WHERE row = 2",
    "UPDATE lines SET row = 9 WHERE row = 2",
    "UPDATE lines SET rejected = 1 WHERE row = 2",
    "UPDATE lines SET tokens = 'many' WHERE row = 2",
    "UPDATE lines SET tokens = 3000 WHERE row = 2",
    "UPDATE lines SET checksum = checksum + 1 WHERE row = 2",
    "DELETE FROM lines WHERE row = 2",
    "INSERT INTO lines VALUES (9, x'7b7d', 0, 0, 0)",
)


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_an_answer_that_was_changed_is_asked_again_and_others_are_not(tmp_path: Path, change: str) -> None:
    """A row that nobody asked for came out in a line of its own; usage that was no number ended in a TypeError."""
    path = rows(tmp_path, 5)
    with Clocked(lambda said: Status(401) if said == "4" else None) as server:
        calls = calls_of(path, server.url("openai"), rates=Rates(1))
        with pytest.raises(BatchStoppedError):
            call_batch(calls)
        change_database(tmp_path / "out.jsonl.run", change)
        server.misbehaves = lambda _: None
        assert call_batch(calls).tokens == 5 * 25
    assert all_answered(tmp_path / "out.jsonl", 5)
    assert server.said == ["1", "2", "3", "4", *([] if "INSERT" in change else ["2"]), "4", "5"]


@pytest.mark.slow
@given(damage=st.binary(min_size=1, max_size=40), at=st.integers(0, 20_000))
@SAME_DIRECTORY
def test_no_damage_of_answers_makes_a_line(tmp_path: Path, damage: bytes, at: int) -> None:
    output = tmp_path / "out.jsonl"
    kept = tmp_path / "kept"
    if not kept.exists():
        wrong = Clocked(lambda said: Status(401) if said == "4" else None)
        with wrong as server, pytest.raises(BatchStoppedError):
            call_batch(calls_of(rows(tmp_path, 5), server.url("openai"), rates=Rates(1)))
        kept.write_bytes((tmp_path / "out.jsonl.run").read_bytes())
    whole = kept.read_bytes()
    at %= len(whole)
    (tmp_path / "out.jsonl.run").write_bytes(whole[:at] + damage + whole[at + len(damage) :])
    found: list[Any] = []
    try:
        with closing(RunDatabase(output)) as database:
            database.drop(rejects=False)
            found = [line for chunk in database.chunks() for line in chunk]
    except (BatchError, sqlite3.OperationalError) as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017 - one of two ends
    assert {json.loads(line.line)["row"] for line in found} <= {1, 2, 3}
    assert all(json.loads(line.line)["row"] == line.row for line in found)
