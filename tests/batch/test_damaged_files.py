"""A damaged run database: the error is one line, and no line of the output is added or lost."""

import json
import re
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, reject, settings
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
    """A job with some finished rows, two of which are rejected."""
    job = job_of(rows_file(tmp_path, 40, bad=10), rejects="bad.jsonl")
    with pytest.raises(BatchStoppedError):
        run_batch(job, stopped=lambda: "enough")
    return job


@pytest.fixture
def clean(tmp_path: Path) -> tuple[bytes, bytes]:
    """Output and rejects of a run that was never stopped."""
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
    """The error of a run with damaged files, which must stay unchanged."""
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
def test_a_truncated_database_is_refused(stopped: BatchJob, clean: tuple[bytes, bytes]) -> None:
    path = database_path(stopped)
    saved = files_left(path.parent)
    whole = saved[path.name]
    for end in (0, 1, 15, 16, 17, 99, 100, 101, *range(511, len(whole), 1024), len(whole) - 1):
        path.write_bytes(whole[:end])
        # An empty database has no state, so the part file belongs to no run.
        with pytest.raises(BatchError, match=r"out.jsonl.run |part already exists, but no unfinished run") as e:
            run_batch(stopped)
        assert len(str(e.value).splitlines()) == 1
        assert not stopped.output.exists()
        for name in files_left(path.parent):
            (path.parent / name).unlink()
        for name, data in saved.items():
            (path.parent / name).write_bytes(data)
    run_batch(stopped)
    assert (stopped.output.read_bytes(), stopped.output.with_name("bad.jsonl").read_bytes()) == clean


def test_a_database_with_a_damaged_page_is_refused(stopped: BatchJob) -> None:
    """An error of SQLite itself was shown for a page that was read late."""
    path = database_path(stopped)
    saved = files_left(path.parent)
    whole = saved[path.name]
    # The last place is in the name of a table, which SQLite quotes with the control character in it.
    for at in (*range(0, len(whole), 4096), 4055):
        path.write_bytes(whole[:at] + b"\x1c" + whole[at + 1 :])
        with pytest.raises(BatchError, match=r"out.jsonl.run is damaged or is not a run database") as caught:
            run_batch(stopped)
        assert len(str(caught.value).splitlines()) == 1
        assert not stopped.output.exists()
        for name, data in saved.items():
            (path.parent / name).write_bytes(data)


@pytest.mark.slow
@given(data=st.data())
@SAME_DIRECTORY
def test_random_damage_of_a_database_is_refused_or_harmless(
    stopped: BatchJob, clean: tuple[bytes, bytes], data: st.DataObject
) -> None:
    """Harmless damage leaves the output of a run that was never stopped."""
    directory = stopped.output.parent
    saved = directory.parent / "saved"
    if not saved.exists():
        saved.mkdir()
        for name, content in files_left(directory).items():
            (saved / name).write_bytes(content)
    for path in directory.iterdir():
        if path.name != "data.jsonl":
            path.unlink()
    for path in saved.iterdir():
        (directory / path.name).write_bytes(path.read_bytes())
    whole = database_path(stopped).read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    damage = data.draw(st.binary(min_size=1, max_size=8))
    cut = data.draw(st.integers(0, 4) | st.just(len(damage)))
    database_path(stopped).write_bytes(whole[:at] + damage + whole[at + cut :])
    try:
        run_batch(stopped)
    except BatchError as error:
        (line,) = str(error).splitlines()
        assert re.fullmatch(r".*out\.jsonl\.run .*; use --restart to start over", line)
        assert not stopped.output.exists()
    else:
        assert (stopped.output.read_bytes(), (directory / "bad.jsonl").read_bytes()) == clean


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_state_with_values_of_wrong_types_is_refused(stopped: BatchJob, kind: str) -> None:
    """A saved ``null`` with a valid checksum ended in an AttributeError."""
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


@pytest.mark.parametrize("name", ["number", "written", "lines", "rejected"])
def test_a_saved_state_with_a_changed_number_is_refused(stopped: BatchJob, name: str) -> None:
    """A smaller number wrote rows a second time."""
    with closing(sqlite3.connect(database_path(stopped))) as database:
        ((whole,),) = database.execute("SELECT state FROM run")
    fields = json.loads(whole)
    state = json.dumps({**fields, name: fields[name] + 1}).encode()
    change_database(database_path(stopped), "UPDATE run SET state = ?", state)
    assert "(the saved run state doesn't match its checksum)" in error_text(stopped)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("UPDATE lines SET line = 'x'", r"or .* \(.*\)"),
        ("DELETE FROM lines WHERE row = 1", ": rejected rows are missing"),
        ("UPDATE lines SET row = 9 WHERE row = 1", r"or .* \(the checksum for row 9 doesn't match\)"),
    ],
)
def test_changed_or_missing_rejects_in_a_database_are_refused(stopped: BatchJob, query: str, reason: str) -> None:
    change_database(database_path(stopped), query)
    with pytest.raises(BatchError, match=rf"out\.jsonl\.run is damaged ?{reason}; use --restart to start over"):
        run_batch(stopped)
    assert not stopped.output.exists()


@pytest.mark.parametrize(
    "table", ["CREATE TRIGGER t AFTER INSERT ON run BEGIN DELETE FROM lines; END", "CREATE TABLE x (y)"]
)
def test_a_database_with_extra_tables_or_triggers_is_refused(stopped: BatchJob, table: str) -> None:
    change_database(database_path(stopped), table)
    assert "(the file's tables are not those of a run database)" in error_text(stopped)


# Changes of a response in the database; the checksum reveals each of them.
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
def test_only_a_changed_response_in_the_database_is_requested_again(tmp_path: Path, change: str) -> None:
    """A row that was never sent got a line; usage that was not a number ended in a TypeError."""
    path = rows(tmp_path, 5)
    with Clocked(lambda row: Status(401) if row == "4" else None) as server:
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
def test_damaged_responses_in_a_database_are_never_returned(tmp_path: Path, damage: bytes, at: int) -> None:
    output = tmp_path / "out.jsonl"
    saved = tmp_path / "saved"
    if not saved.exists():
        wrong = Clocked(lambda row: Status(401) if row == "4" else None)
        with wrong as server, pytest.raises(BatchStoppedError):
            call_batch(calls_of(rows(tmp_path, 5), server.url("openai"), rates=Rates(1)))
        saved.write_bytes((tmp_path / "out.jsonl.run").read_bytes())
    whole = saved.read_bytes()
    at %= len(whole)
    (tmp_path / "out.jsonl.run").write_bytes(whole[:at] + damage + whole[at + len(damage) :])
    try:
        with closing(RunDatabase(output)) as database:
            database.drop(rejects=False)
            found = [line for chunk in database.chunks() for line in chunk]
    except (BatchError, sqlite3.OperationalError) as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017 - one of two ends
        reject()
    assert {json.loads(line.line)["row"] for line in found} <= {1, 2, 3}
    assert all(json.loads(line.line)["row"] == line.row for line in found)
