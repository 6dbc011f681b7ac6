"""Output that is there whole or not at all, whenever the process that writes it ends."""

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

ASKED: JsonObject = {"the input": "sha256:" + "0" * 64, "--model": "m"}
NO_LIMITS = FileLimits()
CONNECT = "lazyprompt.batch.database.sqlite3.connect"


class Killed(BaseException):
    """The process was killed: nothing of it runs any more."""


def open_journal(
    directory: Path,
    limits: FileLimits = NO_LIMITS,
    *,
    rejects: bool = False,
    restart: bool = False,
    asked: "JsonObject | None" = None,
) -> Journal:
    files = RunFiles(directory / "out.jsonl", directory / "bad.jsonl" if rejects else None)
    return Journal(files, {**ASKED, **(asked or {})}, limits, restart=restart, seconds=0)


def bad(number: int) -> list[Line]:
    return [Line(number, b"bad\n", rejected=True)]


def lines(first: int, last: int) -> list[bytes]:
    return [b"%d\n" % number for number in range(first, last + 1)]


def test_names_are_there_when_all_is_done(tmp_path: Path) -> None:
    with open_journal(tmp_path, rejects=True) as journal:
        journal.add(3, lines(1, 2), bad(3))
        beside = {path.name.removesuffix("-wal").removesuffix("-journal") for path in tmp_path.iterdir()}
        assert beside == {"bad.jsonl.run", "out.jsonl.part", "out.jsonl.run"}
        assert journal.finish() == [tmp_path / "out.jsonl"]
    assert files_left(tmp_path) == {"bad.jsonl": b"bad\n", "out.jsonl": b"1\n2\n"}


@PERMISSIONS
def test_an_output_that_is_there_stays_until_then_with_who_may_read_it(tmp_path: Path) -> None:
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
def test_files_are_split_by_what_one_may_hold(tmp_path: Path, limits: FileLimits, sizes: list[int], step: int) -> None:
    for first in range(1, 11, step):  # each part by a run of its own
        with open_journal(tmp_path, limits) as journal:
            journal.add(first + step - 1, lines(first, min(first + step - 1, 10)))
    with open_journal(tmp_path, limits) as journal:
        finals = journal.finish()
    assert [len(path.read_bytes().splitlines()) for path in finals] == sizes
    assert b"".join(path.read_bytes() for path in finals) == b"".join(lines(1, 10))
    names = [f"out-{number:05}.jsonl" for number in range(1, len(sizes) + 1)] if len(sizes) > 1 else ["out.jsonl"]
    assert [*files_left(tmp_path)] == [path.name for path in finals] == names


def test_a_run_for_something_else_is_refused_with_what_differs(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        journal.add(1, lines(1, 1))
    before = files_left(tmp_path)
    with pytest.raises(BatchError) as caught:
        open_journal(tmp_path, asked={"--model": "n", "--limit": 5, "the input": "sha256:" + "1" * 64})
    assert str(caught.value) == (
        f"{tmp_path / 'out.jsonl'}: the unfinished run has different settings: the input has changed; "
        '--model was "m", now "n"; --limit was not set, now 5; use --restart to start over'
    )
    assert files_left(tmp_path) == before
    with open_journal(tmp_path, restart=True, asked={"--model": "n"}) as journal:
        assert journal.state.rows == 0
        journal.finish()
    assert files_left(tmp_path) == {"out.jsonl": b""}


def test_rows_may_be_passed_over_from_here_on(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        journal.add(1, lines(1, 1))
    with open_journal(tmp_path, rejects=True) as journal:
        assert journal.state.number == 1
    # And back, as long as none was.
    with open_journal(tmp_path) as journal:
        assert journal.state.number == 1
        assert not [path for path in tmp_path.iterdir() if path.name.startswith("bad")]
    with open_journal(tmp_path, rejects=True) as journal:
        journal.add(2, [], bad(2))
    with pytest.raises(BatchError, match=r"--rejects was \".*bad.jsonl\", now not set; use --restart"):
        open_journal(tmp_path)
    with pytest.raises(BatchError, match=r"--rejects was \".*bad.jsonl\", now \".*other.jsonl\"; use --restart"):
        Journal(RunFiles(tmp_path / "out.jsonl", tmp_path / "other.jsonl"), ASKED, NO_LIMITS)


def test_parts_that_are_not_what_was_left_are_refused(tmp_path: Path) -> None:
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
def test_a_part_that_no_run_is_known_to_have_written_stays(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"precious")
    with pytest.raises(BatchError, match=f"{name} already exists, but no unfinished run wrote it; move this file, or "):
        open_journal(tmp_path, rejects=True)
    assert (tmp_path / name).read_bytes() == b"precious"
    (tmp_path / name).write_bytes(b"")
    with open_journal(tmp_path, rejects=True) as journal:
        journal.finish()
    assert files_left(tmp_path) == {"out.jsonl": b"", "bad.jsonl": b""}


def test_what_the_system_writes_in_several_goes_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_file_that_is_gone_between_two_names_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_a_database_that_is_none(tmp_path: Path, data: str) -> None:
    (tmp_path / "out.jsonl.run").write_text(data, errors="surrogateescape")
    with pytest.raises(
        BatchError, match=r"out.jsonl.run is damaged or is not a run database .*; use --restart to start over"
    ):
        open_journal(tmp_path)
    with open_journal(tmp_path, restart=True) as journal:
        journal.finish()
    assert files_left(tmp_path) == {"out.jsonl": b""}


def test_a_database_of_something_else_stays_as_it_is(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "out.jsonl.run")) as other:
        other.execute("CREATE TABLE precious (x)")
    before = files_left(tmp_path)
    with pytest.raises(
        BatchError, match=r"out.jsonl.run is damaged or is not a run database \(the file's tables are not those"
    ):
        open_journal(tmp_path)
    assert files_left(tmp_path) == before


def test_lines_of_a_database_come_in_the_order_of_rows_whatever_order_they_went_in(tmp_path: Path) -> None:
    given = [Line(number, b"%d" % number, rejected=number % 2 == 0, tokens=number + 1) for number in range(1, 1201)]
    database = RunDatabase(tmp_path / "out.jsonl")
    database.save(State())
    database.add(reversed(given))
    chunks = [*database.chunks()]
    assert [len(chunk) for chunk in chunks] == [500, 500, 200]
    assert [line for chunk in chunks for line in chunk] == given
    assert [line for chunk in database.chunks(behind=1100) for line in chunk] == given[1100:]
    database.close()
    # What was not committed is not there.
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
    # A database that is written ahead, and one process's.
    assert database.path.read_bytes()[18:20] == b"\2\2"
    with pytest.raises(BatchError, match="another run is writing"):
        RunDatabase(tmp_path / "out.jsonl")
    database.remove()
    assert files_left(tmp_path) == {}


def test_a_database_in_which_nothing_was_saved_is_removed(tmp_path: Path) -> None:
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


def test_two_runs_at_a_time_are_refused(tmp_path: Path) -> None:
    with open_journal(tmp_path, rejects=True) as journal:
        for restart in (False, True):
            with pytest.raises(BatchError, match=r"another run is writing .*out.jsonl; wait until it ends, or use"):
                open_journal(tmp_path, restart=restart)
        # Another output, but the same file of rejects.
        with pytest.raises(BatchError, match="is writing .*bad.jsonl"):
            Journal(RunFiles(tmp_path / "b.jsonl", tmp_path / "bad.jsonl"), ASKED, NO_LIMITS)
        journal.finish()
    assert [*files_left(tmp_path)] == ["bad.jsonl", "out.jsonl"]


def test_rejects_do_not_go_to_the_output_of_a_run_that_was_begun(tmp_path: Path) -> None:
    with Journal(RunFiles(tmp_path / "bad.jsonl"), ASKED, NO_LIMITS) as journal:
        journal.add(1, lines(1, 1))
    before = files_left(tmp_path)
    with pytest.raises(BatchError, match=r"bad.jsonl is the output of an unfinished run; use another rejects file"):
        open_journal(tmp_path, rejects=True)
    assert {name: data for name, data in files_left(tmp_path).items() if name in before} == before


def test_a_lock_that_is_removed_while_it_is_taken_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Else two runs would each hold a lock of the same name: one of them a file that has no name any more.
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
def test_no_file_of_a_database_may_be_a_link(tmp_path: Path, ending: str) -> None:
    """SQLite would write through it, or delete it."""
    (tmp_path / "precious").write_bytes(b"x")
    link = tmp_path / f"out.jsonl.run{ending}"
    link.symlink_to(tmp_path / "precious")
    with pytest.raises(BatchError, match=r"out.jsonl.run cannot be written: the path is a link, not a regular file$"):
        open_journal(tmp_path)
    assert link.is_symlink()
    assert (tmp_path / "precious").read_bytes() == b"x"


@pytest.mark.skipif(sys.platform != "linux", reason="the list of open files is Linux's")
def test_files_are_closed_before_they_are_removed_where_the_system_asks_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Windows does; it cannot make names safe on the disk either."""
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


def test_where_no_lock_can_be_made_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "out.jsonl.run").mkdir()
    with pytest.raises(
        BatchError, match=r"out.jsonl.run cannot be written: the path is a directory, not a regular file$"
    ):
        open_journal(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl.run"]


def test_a_full_disk_names_the_row_and_what_is_safe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_disk_that_is_full_from_the_beginning(tmp_path: Path) -> None:
    # It was wrong use of an option, and not a run that can continue.
    told = r"out.jsonl.run cannot be written: disk I/O error; no row is saved"
    with full_disk(100), pytest.raises(BatchStoppedError, match=told):
        open_journal(tmp_path)
    with open_journal(tmp_path) as journal:
        journal.finish()
    assert files_left(tmp_path) == {"out.jsonl": b""}


def test_what_is_not_safe_yet_is_made_so_on_any_other_error(tmp_path: Path) -> None:
    files = RunFiles(tmp_path / "out.jsonl")

    def interrupted() -> NoReturn:
        with Journal(files, ASKED, NO_LIMITS, seconds=1000) as journal:
            journal.add(2, lines(1, 2))
            assert saved_state(files.output)["number"] == 0
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert saved_state(files.output)["number"] == 2


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What makes a run safe, as it happens: files and directories that reach the disk, names, and the database."""
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

    def told(name: str) -> Callable[..., None]:
        call: Callable[..., None] = getattr(RunDatabase, name)

        def tell(*given: object) -> None:
            found.append(name)
            call(*given)

        return tell

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", moved)
    for name in ("save", "remove"):
        monkeypatch.setattr(RunDatabase, name, told(name))
    return found


def test_what_is_counted_on_has_reached_the_disk_before(tmp_path: Path, events: list[str]) -> None:
    """The parts before the state that counts their rows; the names before the database that could give them again."""
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


def test_it_saves_as_often_as_it_was_told_to(
    tmp_path: Path, events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    with Journal(RunFiles(tmp_path / "out.jsonl"), ASKED, NO_LIMITS, seconds=10) as journal:
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
def test_no_file_stays_open(tmp_path: Path) -> None:
    def number() -> int:
        return len([*Path("/proc/self/fd").iterdir()])

    gc.disable()  # or it would close what was forgotten
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


def test_outputs_of_an_earlier_run_are_known(tmp_path: Path) -> None:
    for name in ("out-00001.jsonl", "out-00009.jsonl", "out-1.jsonl", "out-00009.jsonl.part", "other-00009.jsonl"):
        (tmp_path / name).touch()
    with open_journal(tmp_path) as journal:
        journal.finish()
    files = RunFiles(tmp_path / "out.jsonl")
    assert [path.name for path in files.left_over(1)] == ["out-00001.jsonl", "out-00009.jsonl"]
    assert [path.name for path in files.left_over(2)] == ["out-00009.jsonl", "out.jsonl"]
    assert not (tmp_path / "out-00009.jsonl.part").exists()


def run_all(directory: Path) -> None:
    """Four rows, of which the last has no line, two lines a file."""
    with open_journal(directory, FileLimits(requests=2), rejects=True) as journal:
        while journal.state.number < 4 and not journal.state.done:
            number = journal.state.number + 2
            good = [each for each in (number - 1, number) if each % 4]
            journal.add(number, [b"%d\n" % each for each in good], bad(number) if len(good) < 2 else [])
        journal.finish()


def stepping_connection(step: Callable[[], None]) -> type[Unsynced]:
    """A connection of which each change is a step; SQLite makes a transaction one as a whole."""

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
    """Run so many of the calls by which a journal changes the disk; one that writes, as the last, writes half."""
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
def test_killed_before_any_step_it_goes_on_to_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing is done behind that step, neither what ends a block nor the rest; as if it was killed with kill -9.
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
