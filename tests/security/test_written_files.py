"""A file or link that was planted at the path of an output file never leads a write to another file.

A cloned repository, an archive or a shared directory may hold links, pipes and files by any name.
"""

import os
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

import lazyprompt.studio.workspace
from lazyprompt import Chat, OnlineChatModule, Prompty
from lazyprompt.batch.run import run_batch
from lazyprompt.cli.streams import WrongUseError, write_text
from lazyprompt.errors import BatchError, EngineError, LazyPromptError
from lazyprompt.modules.process import EngineProcess
from lazyprompt.studio.workspace import Workspace
from lazyprompt.tokens.download import write_file
from support.batch_runs import job_of, rows_file, wait_for_no_disk
from support.engines import script_engine
from support.windows import PERMISSIONS

PRECIOUS = b'{"precious": true}\n'


def batch(base: Path) -> None:
    run_batch(job_of(rows_file(base, 3), rejects="bad.jsonl"))


def batch_anew(base: Path) -> None:
    run_batch(job_of(rows_file(base, 3), rejects="bad.jsonl"), restart=True)


def studio(base: Path) -> None:
    Workspace(base).save("x.prompty", "new", None)


def command(base: Path) -> None:
    write_text("new", str(base / "out.txt"))


def prompty(base: Path) -> None:
    Prompty.loads("user:\nhi").dump(base / "out.txt")


def chat(base: Path) -> None:
    Chat(OnlineChatModule("openai", model="m", api_key="k")).save(base / "out.txt")


def vocabulary(base: Path) -> None:
    write_file(base / "out.txt", b"new")


def engine_log(base: Path) -> None:
    EngineProcess(script_engine("print('new')"), "m", log=base / "out.txt").start()


def lock_of_studio(base: Path) -> str:
    """The name of the lock that the studio takes for ``x.prompty``."""
    seen: list[str] = []
    with pytest.MonkeyPatch.context() as patched:
        names = (each.name for each in base.glob(".*.lock"))
        patched.setattr(lazyprompt.studio.workspace, "write_whole", lambda *_: seen.extend(names))
        studio(base)
    for each in base.iterdir():
        each.unlink()
    return seen[0]


DATABASE = ("out.jsonl.run", "out.jsonl.run-journal", "out.jsonl.run-wal", "out.jsonl.run-shm")
# The ways to write, each with the file names that may have been planted.
WAYS: dict[Callable[[Path], object], tuple[str, ...]] = {
    batch: (
        *("out.jsonl", "out.jsonl.part", *DATABASE),
        *("bad.jsonl", "bad.jsonl.part", "bad.jsonl.run", "bad.jsonl.run-journal"),
    ),
    batch_anew: (
        *("out.jsonl.part", "out-00002.jsonl.part", *DATABASE),
        *("bad.jsonl.part", "bad.jsonl.run", "bad.jsonl.run-journal"),
    ),
    studio: ("lock of the studio",),
    command: ("out.txt",),
    prompty: ("out.txt",),
    chat: ("out.txt",),
    vocabulary: ("out.txt",),
    engine_log: ("out.txt",),
}
CASES = [pytest.param(way, name, id=f"{way.__name__}-{name}") for way, names in WAYS.items() for name in names]


def link_of_a_link(place: Path, victim: Path) -> None:
    place.with_name("between").symlink_to(victim)
    place.symlink_to("between")


PLANTS: dict[str, Callable[[Path, Path], object]] = {
    "link": lambda place, victim: place.symlink_to(victim),
    "link of a link": link_of_a_link,
    "hard link": lambda place, victim: place.hardlink_to(victim),
}


@pytest.fixture(autouse=True)
def _disk_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_no_disk(monkeypatch)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    made = tmp_path / "cloned"
    made.mkdir()
    return made


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    made = tmp_path / "victim"
    made.write_bytes(PRECIOUS)
    made.chmod(0o600)
    return made


def plant_file(base: Path, name: str, plant: Callable[[Path, Path], object], victim: Path) -> Path:
    place = base / (lock_of_studio(base) if name == "lock of the studio" else name)
    plant(place, victim)
    return place


def run_to_end(way: Callable[[Path], object], base: Path) -> Exception | None:
    """Run a function to its end in a thread; return the error that it raised, if any."""
    caught: list[Exception] = []

    def run() -> None:
        try:
            way(base)
        except Exception as error:  # noqa: BLE001 - checked by the caller
            caught.append(error)

    running = Thread(target=run, daemon=True)
    running.start()
    running.join(60)
    assert not running.is_alive()
    return caught[0] if caught else None


@pytest.mark.slow
@pytest.mark.parametrize("system", ["posix", "without O_NOFOLLOW"])
@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize(("way", "name"), CASES)
def test_planted_links_are_not_written_through(
    base: Path,
    victim: Path,
    monkeypatch: pytest.MonkeyPatch,
    way: Callable[[Path], object],
    name: str,
    plant: str,
    system: str,
) -> None:
    """The naive version opens the name: ``.<hash>.lock`` of the studio and ``out.jsonl.lock`` emptied any file."""
    if system != "posix":
        for flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC"):
            monkeypatch.delattr(os, flag, raising=False)
    plant_file(base, name, PLANTS[plant], victim)
    mode = victim.stat().st_mode
    error = run_to_end(way, base)
    assert victim.read_bytes() == PRECIOUS
    assert victim.stat().st_mode == mode
    assert error is None or isinstance(error, LazyPromptError | OSError | WrongUseError)
    assert error is None or "\n" not in str(error) or isinstance(error, EngineError)


@pytest.mark.parametrize(
    ("way", "name"), [case for case in CASES if case.values[1] != "out.txt" or case.values[0] is engine_log]
)
def test_planted_pipes_are_not_waited_for(base: Path, way: Callable[[Path], object], name: str) -> None:
    """The naive version waits for another process to open the pipe."""
    place = plant_file(base, name, lambda place, _: os.mkfifo(place), base)
    error = run_to_end(way, base)
    # A writer that raises no error has removed the pipe.
    assert place.is_fifo() is (error is not None)
    assert error is None or "not a regular file" in str(error) or "no file" in str(error)


@pytest.mark.parametrize(
    "name", [*("out.jsonl.run", "out.jsonl.part", "out-00002.jsonl.part"), *("bad.jsonl.part", "bad.jsonl.run")]
)
def test_batch_keeps_a_foreign_file_that_has_the_name_of_its_own_file(base: Path, name: str) -> None:
    """The naive version treats the file as its own, and empties it."""
    (base / name).write_bytes(PRECIOUS)
    with pytest.raises(BatchError, match=f"{name} .*(move it|use --restart to start over)"):
        batch(base)
    assert (base / name).read_bytes() == PRECIOUS


def test_resumed_batch_keeps_a_foreign_file_that_has_the_name_of_its_rejects(base: Path) -> None:
    rows = rows_file(base, 40)
    with pytest.raises(BatchError):
        run_batch(job_of(rows), stopped=lambda: "enough")
    (base / "bad.jsonl.part").write_bytes(PRECIOUS)
    with pytest.raises(BatchError, match="bad.jsonl.part already exists, but no unfinished run wrote it"):
        run_batch(job_of(rows, rejects="bad.jsonl"))
    assert (base / "bad.jsonl.part").read_bytes() == PRECIOUS


def test_output_file_that_links_to_a_device_is_written_to(base: Path) -> None:
    # /dev/stdout is such a link.
    (base / "out.txt").symlink_to("/dev/null")
    command(base)
    assert (base / "out.txt").is_symlink()


@PERMISSIONS
def test_saved_chat_is_readable_only_by_its_owner(base: Path) -> None:
    chat(base)
    assert (base / "out.txt").stat().st_mode & 0o077 == 0
