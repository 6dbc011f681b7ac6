"""Output is complete or absent, whenever the process that writes it ends."""

import gc
import os
import sqlite3
import sys
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from stat import S_ISDIR
from typing import Any, NoReturn

import pytest

from lazyprompt._base.json import JsonObject
from lazyprompt.batch import journal as module
from lazyprompt.batch.database import BatchStoppedError, Line, RunDatabase, State
from lazyprompt.batch.forms import FileLimits
from lazyprompt.batch.journal import Journal, RunFiles
from lazyprompt.errors import BatchError
from support.batch_runs import Unsynced, files_left, full_disk, saved_state
from support.windows import PERMISSIONS

SETTINGS: JsonObject = {"the input": "sha256:" + "0" * 64, "--model": "m"}
NO_LIMITS = FileLimits()
CONNECT = "lazyprompt.batch.database.sqlite3.connect"


class Killed(BaseException):
    """The process was killed: none of its code runs any more."""


def open_journal(
    directory: Path,
    limits: FileLimits = NO_LIMITS,
    *,
    rejects: bool = False,
    restart: bool = False,
    settings: "JsonObject | None" = None,
) -> Journal:
    files = RunFiles(directory / "out.jsonl", directory / "bad.jsonl" if rejects else None)
    return Journal(files, {**SETTINGS, **(settings or {})}, limits, restart=restart, seconds=0)


def bad(number: int) -> list[Line]:
    return [Line(number, b"bad\n", rejected=True)]


def lines(first: int, last: int) -> list[bytes]:
    return [b"%d\n" % number for number in range(first, last + 1)]


def test_output_and_rejects_get_their_names_when_the_run_is_finished(tmp_path: Path) -> None:
    with open_journal(tmp_path, rejects=True) as journal:
        journal.add(3, lines(1, 2), bad(3))
        beside = {path.name.removesuffix("-wal").removesuffix("-journal") for path in tmp_path.iterdir()}
        assert beside == {"bad.jsonl.run", "out.jsonl.part", "out.jsonl.run"}
        assert journal.finish() == [tmp_path / "out.jsonl"]
    assert files_left(tmp_path) == {"bad.jsonl": b"bad\n", "out.jsonl": b"1\n2\n"}


@PERMISSIONS
def test_an_existing_output_is_replaced_at_the_end_and_keeps_its_permissions(tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").write_bytes(b"old")
    (tmp_path / "out.jsonl").chmod(0o600)
    with open_journal(tmp_path) as journal:
        journal.add(1, lines(1, 1))
        assert (tmp_path / "out.jsonl").read_bytes() == b"old"
        journal.finish()
    assert files_left(tmp_path) == {"out.jsonl": b"1\n"}
    assert (tmp_path / "out.jsonl").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("limits", "sizes"),
    [
        (FileLimits(requests=3), [3, 3, 3, 1]),
        (FileLimits(bytes=6), [3, 3, 3, 1]),
        (FileLimits(requests=2, bytes=1000), [2, 2, 2, 2, 2]),
        (FileLimits(requests=10), [10]),
        (FileLimits(bytes=21), [10]),
    ],
)
@pytest.mark.parametrize("step", [1, 4, 10])
def test_output_is_split_by_the_limits(tmp_path: Path, limits: FileLimits, sizes: list[int], step: int) -> None:
    for first in range(1, 11, step):  # a separate run for each step
        with open_journal(tmp_path, limits) as journal:
            journal.add(first + step - 1, lines(first, min(first + step - 1, 10)))
    with open_journal(tmp_path, limits) as journal:
        finals = journal.finish()
    assert [len(path.read_bytes().splitlines()) for path in finals] == sizes
    assert b"".join(path.read_bytes() for path in finals) == b"".join(lines(1, 10))
    names = [f"out-{number:05}.jsonl" for number in range(1, len(sizes) + 1)] if len(sizes) > 1 else ["out.jsonl"]
    assert [*files_left(tmp_path)] == [path.name for path in finals] == names


def test_resuming_with_different_settings_is_refused_with_the_differences(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        journal.add(1, lines(1, 1))
    before = files_left(tmp_path)
    with pytest.raises(BatchError) as caught:
        open_journal(tmp_path, settings={"--model": "n", "--limit": 5, "the input": "sha256:" + "1" * 64})
    assert str(caught.value) == (
        f"{tmp_path / 'out.jsonl'}: the unfinished run has different settings: the input has changed; "
        '--model was "m", now "n"; --limit was not set, now 5; use --restart to start over'
    )
    assert files_left(tmp_path) == before
    with open_journal(tmp_path, restart=True, settings={"--model": "n"}) as journal:
        assert journal.state.rows == 0
        journal.finish()
    assert files_left(tmp_path) == {"out.jsonl": b""}


def test_a_rejects_file_can_be_added_to_an_unfinished_run(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        journal.add(1, lines(1, 1))
    with open_journal(tmp_path, rejects=True) as journal:
        assert journal.state.number == 1
    # And removed again, while no row was rejected.
    with open_journal(tmp_path) as journal:
        assert journal.state.number == 1
        assert not [path for path in tmp_path.iterdir() if path.name.startswith("bad")]
    with open_journal(tmp_path, rejects=True) as journal:
        journal.add(2, [], bad(2))
    with pytest.raises(BatchError, match=r"--rejects was \".*bad.jsonl\", now not set; use --restart"):
        open_journal(tmp_path)
    with pytest.raises(BatchError, match=r"--rejects was \".*bad.jsonl\", now \".*other.jsonl\"; use --restart"):
        Journal(RunFiles(tmp_path / "out.jsonl", tmp_path / "other.jsonl"), SETTINGS, NO_LIMITS)


def test_parts_shorter_than_the_earlier_run_wrote_are_refused(tmp_path: Path) -> None:
    with open_journal(tmp_path, FileLimits(requests=1)) as journal:
        journal.add(2, lines(1, 2))
    part = tmp_path / "out-00002.jsonl.part"
    part.write_bytes(b"2")
    with pytest.raises(BatchError, match="contains 1 of the 2 bytes that the earlier run wrote; use --restart"):
        open_journal(tmp_path, FileLimits(requests=1))
    part.unlink()
    with pytest.raises(BatchError, match="contains 0 of the 2 bytes"):
        open_journal(tmp_path, FileLimits(requests=1))


@pytest.mark.parametrize("name", ["out.jsonl.part", "out-00002.jsonl.part", "bad.jsonl.part"])
def test_a_part_file_without_an_unfinished_run_is_not_overwritten(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"precious")
    with pytest.raises(BatchError, match=f"{name} already exists, but no unfinished run wrote it; move this file, or "):
        open_journal(tmp_path, rejects=True)
    assert (tmp_path / name).read_bytes() == b"precious"
    (tmp_path / name).write_bytes(b"")
    with open_journal(tmp_path, rejects=True) as journal:
        journal.finish()
    assert files_left(tmp_path) == {"out.jsonl": b"", "bad.jsonl": b""}


def test_short_writes_of_the_system_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_file = os.fdopen

    def slow(*given: Any, **named: Any) -> Any:
        file = open_file(*given, **named)

        class Slow(type(file)):  # type: ignore[misc]
            def write(self, data: Any) -> int:
                return int(super().write(bytes(data)[:3]))

        if named.get("buffering") == 0:
            slowed = Slow(os.dup(file.fileno()), "r+b")
            file.close()
            return slowed
        return file

    monkeypatch.setattr(os, "fdopen", slow)
    with open_journal(tmp_path) as journal:
        journal.add(20, lines(1, 20))
        journal.finish()
    assert files_left(tmp_path) == {"out.jsonl": b"".join(lines(1, 20))}


def test_a_part_that_disappears_while_finishing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> NoReturn:
        raise Killed

    with open_journal(tmp_path) as journal:
        journal.add(1, lines(1, 1))
        with monkeypatch.context() as patched:
            patched.setattr(module, "_move", stop)
            with pytest.raises(Killed):
                journal.finish()
    (tmp_path / "out.jsonl.part").unlink()
    with open_journal(tmp_path) as journal, pytest.raises(BatchError, match="out.jsonl.part, which .*, is missing"):
        journal.finish()


@pytest.mark.parametrize("data", ["[]", "{}", "\udcff", "\x00" * 99, "SQLite format 3\x00" + "\x00" * 999])
def test_a_run_file_that_is_not_a_database_is_refused(tmp_path: Path, data: str) -> None:
    (tmp_path / "out.jsonl.run").write_text(data, errors="surrogateescape")
    with pytest.raises(
        BatchError, match=r"out.jsonl.run is damaged or is not a run database .*; use --restart to start over"
    ):
        open_journal(tmp_path)
    with open_journal(tmp_path, restart=True) as journal:
        journal.finish()
    assert files_left(tmp_path) == {"out.jsonl": b""}


def test_a_database_of_another_program_is_not_changed(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "out.jsonl.run")) as other:
        other.execute("CREATE TABLE precious (x)")
    before = files_left(tmp_path)
    with pytest.raises(
        BatchError, match=r"out.jsonl.run is damaged or is not a run database \(the file's tables are not those"
    ):
        open_journal(tmp_path)
    assert files_left(tmp_path) == before


def test_database_lines_are_ordered_by_row_and_uncommitted_lines_are_lost(tmp_path: Path) -> None:
    given = [Line(number, b"%d" % number, rejected=number % 2 == 0, tokens=number + 1) for number in range(1, 1201)]
    database = RunDatabase(tmp_path / "out.jsonl")
    database.save(State())
    database.add(reversed(given))
    chunks = [*database.chunks()]
    assert [len(chunk) for chunk in chunks] == [500, 500, 200]
    assert [line for chunk in chunks for line in chunk] == given
    assert [line for chunk in database.chunks(behind=1100) for line in chunk] == given[1100:]
    database.close()
    # Uncommitted lines are lost.
    database = RunDatabase(tmp_path / "out.jsonl")
    assert (database.saved, [*database.chunks()]) == (State(), [])
    database.add(given[:2], commit=True)
    database.add([Line(2, b"again", rejected=True)], commit=True)
    database.add(given[2:])
    database.close()
    database = RunDatabase(tmp_path / "out.jsonl")
    assert [*database.chunks()] == [[given[0], Line(2, b"again", rejected=True)]]
    database.drop(rejects=False)
    assert len(next(database.chunks())) == 2
    database.drop(rejects=True)
    assert [*database.chunks()] == [given[:1]]
    # The database has a write-ahead log, and is locked by one process.
    assert database.path.read_bytes()[18:20] == b"\2\2"
    with pytest.raises(BatchError, match="another run is writing"):
        RunDatabase(tmp_path / "out.jsonl")
    database.remove()
    assert files_left(tmp_path) == {}


def test_a_database_without_a_saved_state_is_removed(tmp_path: Path) -> None:
    RunDatabase(tmp_path / "out.jsonl").close()
    assert files_left(tmp_path) == {}
    database = RunDatabase(tmp_path / "out.jsonl")
    database.save(State(number=3, written=2, rejected=1))
    database.close()
    database = RunDatabase(tmp_path / "out.jsonl")
    assert database.saved is not None
    assert (database.saved.number, database.saved.rows) == (3, 3)
    database.close()
    assert RunDatabase(tmp_path / "out.jsonl", restart=True).saved is None


def test_a_second_run_with_the_same_output_or_rejects_is_refused(tmp_path: Path) -> None:
    with open_journal(tmp_path, rejects=True) as journal:
        for restart in (False, True):
            with pytest.raises(BatchError, match=r"another run is writing .*out.jsonl; wait until it ends, or use"):
                open_journal(tmp_path, restart=restart)
        # Another output, but the same rejects file.
        with pytest.raises(BatchError, match="is writing .*bad.jsonl"):
            Journal(RunFiles(tmp_path / "b.jsonl", tmp_path / "bad.jsonl"), SETTINGS, NO_LIMITS)
        journal.finish()
    assert [*files_left(tmp_path)] == ["bad.jsonl", "out.jsonl"]


def test_the_output_of_an_unfinished_run_is_refused_as_rejects_file(tmp_path: Path) -> None:
    with Journal(RunFiles(tmp_path / "bad.jsonl"), SETTINGS, NO_LIMITS) as journal:
        journal.add(1, lines(1, 1))
    before = files_left(tmp_path)
    with pytest.raises(BatchError, match=r"bad.jsonl is the output of an unfinished run; use another rejects file"):
        open_journal(tmp_path, rejects=True)
    assert {name: data for name, data in files_left(tmp_path).items() if name in before} == before


def test_a_database_removed_during_locking_is_locked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Otherwise two runs would hold locks of the same name, one of them on a deleted file.
    connect = sqlite3.connect
    removed: list[Path] = []
    (tmp_path / "out.jsonl.run").touch()

    def connect_early(path: Path, **more: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(path, **more)
        if not removed:
            removed.append(path)
            path.unlink()
        return connection

    monkeypatch.setattr(CONNECT, connect_early)
    with open_journal(tmp_path) as journal:
        assert removed[0].exists()
        with pytest.raises(BatchError, match="another run"):
            open_journal(tmp_path)
        journal.finish()


@pytest.mark.parametrize("ending", ["", "-journal", "-wal", "-shm"])
def test_database_files_that_are_links_are_refused(tmp_path: Path, ending: str) -> None:
    """SQLite would write through the link, or delete it."""
    (tmp_path / "precious").write_bytes(b"x")
    link = tmp_path / f"out.jsonl.run{ending}"
    link.symlink_to(tmp_path / "precious")
    with pytest.raises(BatchError, match=r"out.jsonl.run cannot be written: the path is a link, not a regular file$"):
        open_journal(tmp_path)
    assert link.is_symlink()
    assert (tmp_path / "precious").read_bytes() == b"x"


@pytest.mark.skipif(sys.platform != "linux", reason="open files are listed by Linux")
def test_files_are_closed_before_they_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows requires it; Windows cannot sync directories either."""
    unlink = Path.unlink

    def unlink_closed(path: Path, *, missing_ok: bool = False) -> None:
        assert str(path) not in {str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()}
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(os, "name", "another")
    monkeypatch.setattr(Path, "unlink", unlink_closed)
    with open_journal(tmp_path, rejects=True) as journal:
        journal.add(2, lines(1, 1), bad(2))
    with open_journal(tmp_path, rejects=True) as journal:
        journal.finish()
    assert files_left(tmp_path) == {"bad.jsonl": b"bad\n", "out.jsonl": b"1\n"}


def test_nothing_is_written_without_a_lock(tmp_path: Path) -> None:
    (tmp_path / "out.jsonl.run").mkdir()
    with pytest.raises(
        BatchError, match=r"out.jsonl.run cannot be written: the path is a directory, not a regular file$"
    ):
        open_journal(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl.run"]


def test_the_error_of_a_full_disk_names_the_last_saved_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> NoReturn:
        raise OSError(28, "No space left on device")

    with open_journal(tmp_path) as journal:
        journal.add(2, lines(1, 2))
    with open_journal(tmp_path) as journal:
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(BatchStoppedError) as caught:
            journal.add(4, lines(3, 4))
    part = tmp_path / "out.jsonl.part"
    assert part.read_bytes() == b"1\n2\n3\n4\n"
    assert str(caught.value) == (
        f"{tmp_path / 'out.jsonl.run'} cannot be written: No space left on device; rows up to 2 are saved"
    )
    monkeypatch.undo()
    with open_journal(tmp_path) as journal:
        assert journal.state.number == 2
        assert part.read_bytes() == b"1\n2\n"


def test_a_disk_that_is_full_at_the_start_stops_the_run(tmp_path: Path) -> None:
    # It was reported as a wrong option, not as a run that can continue.
    message = r"out.jsonl.run cannot be written: disk I/O error; no row is saved"
    with full_disk(100), pytest.raises(BatchStoppedError, match=message):
        open_journal(tmp_path)
    with open_journal(tmp_path) as journal:
        journal.finish()
    assert files_left(tmp_path) == {"out.jsonl": b""}


def test_unsaved_rows_are_saved_on_an_interrupt(tmp_path: Path) -> None:
    files = RunFiles(tmp_path / "out.jsonl")

    def interrupted() -> NoReturn:
        with Journal(files, SETTINGS, NO_LIMITS, seconds=1000) as journal:
            journal.add(2, lines(1, 2))
            assert saved_state(files.output)["number"] == 0
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert saved_state(files.output)["number"] == 2


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The events that save a run in order: syncs of files and directories, renames, and database changes."""
    found: list[str] = []
    sync, move = os.fsync, Path.replace

    def synced(descriptor: int) -> None:
        status = os.fstat(descriptor)
        empty = "" if status.st_size or S_ISDIR(status.st_mode) else " (empty)"
        paths = [path for path in (*tmp_path.iterdir(), tmp_path) if path.stat().st_ino == status.st_ino]
        found.extend(f"sync {path.name}{empty}" for path in paths)
        sync(descriptor)

    def moved(path: Path, to: Path) -> Path:
        found.append(f"name {to.name}")
        return move(path, to)

    def recorded(name: str) -> Callable[..., None]:
        call: Callable[..., None] = getattr(RunDatabase, name)

        def record(*arguments: object) -> None:
            found.append(name)
            call(*arguments)

        return record

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", moved)
    for name in ("save", "remove"):
        monkeypatch.setattr(RunDatabase, name, recorded(name))
    return found


def test_parts_are_synced_before_state_and_names_before_database_removal(tmp_path: Path, events: list[str]) -> None:
    """The state counts the rows of the parts, and the database is needed to repeat an incomplete renaming."""
    directory = f"sync {tmp_path.name}"
    with open_journal(tmp_path, FileLimits(requests=1), rejects=True) as journal:
        assert events == ["sync out.jsonl.part (empty)", directory, "save"]
        del events[:]
        journal.add(3, lines(1, 2), bad(3))
        assert events == ["sync out.jsonl.part", "sync out-00002.jsonl.part", directory, "save"]
        del events[:]
        journal.add(4, lines(4, 4))
        assert events == ["sync out-00002.jsonl.part", "sync out-00003.jsonl.part", directory, "save"]
        del events[:]
        journal.finish()
        names = [f"name out-0000{number}.jsonl" for number in (1, 2, 3)]
        assert events == [
            *("sync out-00003.jsonl.part", directory, "save"),
            *("sync bad.jsonl.part", *names, "name bad.jsonl", directory, "remove", directory),
        ]


def test_the_state_is_saved_at_the_interval(tmp_path: Path, events: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    with Journal(RunFiles(tmp_path / "out.jsonl"), SETTINGS, NO_LIMITS, seconds=10) as journal:
        counts: list[int] = []
        for number, now in enumerate((105.0, 109.0, 110.0, 115.0, 119.0, 120.0, 121.0), 1):  # noqa: B007 - the clock
            journal.add(number, lines(number, number), tokens=number)
            counts.append(events.count("save"))
        assert counts == [1, 1, 2, 2, 2, 3, 3]
        assert journal.state.tokens == 28
        journal.add(8, lines(8, 8))
        assert journal.state.tokens == 28
    assert saved_state(tmp_path / "out.jsonl")["number"] == 8


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the system does not list open files")
def test_a_journal_leaves_no_file_open(tmp_path: Path) -> None:
    def number() -> int:
        return len([*Path("/proc/self/fd").iterdir()])

    gc.disable()  # it would close forgotten files
    try:
        before = number()
        with open_journal(tmp_path, FileLimits(requests=1), rejects=True) as journal:
            begun = number()
            journal.add(3, lines(1, 2), bad(3))
            assert number() == begun
            journal.finish()
        assert number() == before
        with pytest.raises(BatchError, match="another run"), open_journal(tmp_path), open_journal(tmp_path):
            pass
        assert number() == before
    finally:
        gc.enable()


def test_leftover_outputs_of_an_earlier_run_are_found(tmp_path: Path) -> None:
    for name in ("out-00001.jsonl", "out-00009.jsonl", "out-1.jsonl", "out-00009.jsonl.part", "other-00009.jsonl"):
        (tmp_path / name).touch()
    with open_journal(tmp_path) as journal:
        journal.finish()
    files = RunFiles(tmp_path / "out.jsonl")
    assert [path.name for path in files.left_over(1)] == ["out-00001.jsonl", "out-00009.jsonl"]
    assert [path.name for path in files.left_over(2)] == ["out-00009.jsonl", "out.jsonl"]
    assert not (tmp_path / "out-00009.jsonl.part").exists()


def run_all(directory: Path) -> None:
    """Write four rows, the last of which is rejected, with two lines per file."""
    with open_journal(directory, FileLimits(requests=2), rejects=True) as journal:
        while journal.state.number < 4 and not journal.state.done:
            number = journal.state.number + 2
            good = [each for each in (number - 1, number) if each % 4]
            journal.add(number, [b"%d\n" % each for each in good], bad(number) if len(good) < 2 else [])
        journal.finish()


def stepping_connection(step: Callable[[], None]) -> type[Unsynced]:
    """A connection whose changes are counted as steps; in SQLite, transactions are atomic."""

    class Stepping(Unsynced):
        def execute(self, sql: str, *more: Any) -> sqlite3.Cursor:
            if not sql.startswith("SELECT"):
                step()
            return super().execute(sql, *more)

        def executemany(self, sql: str, *more: Any) -> sqlite3.Cursor:
            step()
            return super().executemany(sql, *more)

        def commit(self) -> None:
            step()
            super().commit()

    return Stepping


@contextmanager
def run_until_killed(steps: int, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Run a number of the calls by which a journal changes the disk; if the last is a write, it writes half."""
    done = 0
    write = Journal._write  # noqa: SLF001 - the step that writes

    def step() -> None:
        nonlocal done
        done += 1
        if done > steps:
            raise Killed

    def stepping(call: Callable[..., object]) -> Callable[..., object]:
        def stepped(*given: object, **named: object) -> object:
            step()
            return call(*given, **named)

        return stepped

    def half(journal: Journal, index: int, size: int, data: bytes) -> int:
        if done == steps:
            write(journal, index, size, data[: len(data) // 2])
        step()
        return write(journal, index, size, data)

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "_write", half)
        patched.setattr(CONNECT, partial(sqlite3.connect, factory=stepping_connection(step)))
        for owner, name in ((Path, "replace"), (Path, "unlink"), (os, "open"), (os, "fsync"), (module, "copymode")):
            patched.setattr(owner, name, stepping(getattr(owner, name)))
        yield


@pytest.mark.slow
def test_a_run_killed_at_any_step_resumes_to_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # No code runs after that step, not even at the end of a block, as after kill -9.
    clean = tmp_path / "clean"
    clean.mkdir()
    run_all(clean)
    steps, ended = 0, False
    while not ended:
        directory = tmp_path / str(steps)
        directory.mkdir()
        (directory / "out-00001.jsonl").write_bytes(b"of an earlier run")
        for more in (0, 7, 1000):  # killed; killed once more, a little later; not killed
            with run_until_killed(steps + more, monkeypatch):
                try:
                    run_all(directory)
                except Killed:
                    pass
                else:
                    ended = ended or not more
        assert files_left(directory) == files_left(clean), steps
        steps += 1
    assert steps > 30
