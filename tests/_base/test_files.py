"""Reading and writing of whole files; own files that another user may have created before."""

import ntpath
import os
import socket
import stat
from pathlib import Path

import pytest

from lazyprompt._base.files import (
    locked,
    make_own_directory,
    names_other_machine,
    open_own,
    own_database_status,
    own_status,
    read_regular,
    write_whole,
)

pytestmark = pytest.mark.skipif(os.name != "posix", reason="links and permissions are those of POSIX")


@pytest.mark.parametrize("as_root", [False, True])
def test_a_file_is_read_up_to_the_limit_and_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, as_root: bool
) -> None:
    path, root = tmp_path / "b/c/a", str(tmp_path) if as_root else None
    path.parent.mkdir(parents=True)
    opened = sorted(Path("/dev/fd").iterdir())
    path.write_bytes(b"0123456789")
    assert read_regular(str(path), 10, root) == b"0123456789"
    with pytest.raises(OSError, match="file is too large: 10 bytes; the limit is 9"):
        read_regular(str(path), 9, root)
    os.mkfifo(tmp_path / "b/pipe")
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(path.parent)
        server.bind("../socket")
    places = [
        *(("b/c", "directory"), ("b/pipe", "pipe"), ("b/socket", "socket")),
        *([("/dev/null", "device")] * (not root)),
    ]
    for place, kind in places:
        with pytest.raises(OSError, match=f"the path is a {kind}, not a regular file|No such device"):
            read_regular(str(tmp_path / place), 9, root)
    assert sorted(Path("/dev/fd").iterdir()) == opened


@pytest.mark.parametrize("in_steps", [True, False])
def test_a_file_below_a_root_is_not_read_through_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, in_steps: bool
) -> None:
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "c").symlink_to(".")
    if not in_steps:
        monkeypatch.setattr(os, "supports_dir_fd", set())
    assert read_regular(str(tmp_path / "b"), 9) == read_regular(str(tmp_path / "a"), 9, str(tmp_path)) == b"a"
    for place in ("b", "c/a"):
        with pytest.raises(OSError, match="a link|symbolic links|Not a directory"):
            read_regular(str(tmp_path / place), 9, str(tmp_path))


def test_short_reads_are_joined_and_a_growing_file_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    read = os.read
    monkeypatch.setattr("os.read", lambda descriptor, most: read(descriptor, min(most, 4)))
    assert read_regular(tmp_path / "a", 10) == b"0123456789"
    monkeypatch.setattr("os.read", lambda _, most: b"x" * most)
    with pytest.raises(OSError, match="the file grew while being read"):
        read_regular(tmp_path / "a", 10)


def test_a_written_file_replaces_the_old_one_and_keeps_its_permissions(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_bytes(b"a" * 99)
    old.chmod(0o640)
    before = old.stat().st_ino
    write_whole(old, b"b", 0o600)
    write_whole(new, b"c", 0o600)
    assert (old.read_bytes(), stat.S_IMODE(old.stat().st_mode)) == (b"b", 0o640)
    assert (new.read_bytes(), stat.S_IMODE(new.stat().st_mode)) == (b"c", 0o600)
    assert old.stat().st_ino != before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "old"]


def test_a_failed_write_leaves_the_old_file_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, link = tmp_path / "a", tmp_path / "link"
    path.write_bytes(b"a")
    link.symlink_to(path)
    with pytest.raises(OSError, match="the file is a link; pass its target, .*/a, or remove the link"):
        write_whole(link, b"b")
    monkeypatch.delattr("os.fsync")
    with pytest.raises(AttributeError):
        write_whole(path, b"b")
    assert path.read_bytes() == b"a"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a", "link"]


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(path, b"a")
        assert (os.read(reader, 9), path.is_fifo()) == (b"a", True)
    finally:
        os.close(reader)


def test_own_files_that_are_symbolic_or_hard_links_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    assert own_status(path) is None
    os.close(open_own(path))
    assert not stat.S_IMODE(path.stat().st_mode) & 0o111
    assert (own_status(path) or path.stat()).st_ino == path.stat().st_ino
    (tmp_path / "c").symlink_to(path)
    with monkeypatch.context() as patch:
        patch.setattr("lazyprompt._base.files.own_status", lambda _: None)  # the link comes after the check
        with pytest.raises(OSError, match="symbolic links"):
            open_own(tmp_path / "c")
    (tmp_path / "b").hardlink_to(path)
    for check in (own_status, open_own, own_database_status):
        with pytest.raises(OSError, match="the file has more than one hard link, so another user may control it"):
            check(path)


@pytest.mark.parametrize("ending", ["", "-journal", "-wal", "-shm"])
def test_each_file_of_a_database_must_be_a_regular_file(tmp_path: Path, ending: str) -> None:
    assert own_database_status(tmp_path / "a.db") is None
    (tmp_path / f"a.db{ending}").mkdir()
    with pytest.raises(IsADirectoryError, match="the path is a directory, not a regular file"):
        own_database_status(tmp_path / "a.db")


def test_an_own_directory_is_not_created_through_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    assert [make_own_directory(Path("a/b")) for _ in range(2)] == [True, False]
    assert make_own_directory(tmp_path / "link/c")
    with pytest.raises(OSError, match="the file is a link"):
        make_own_directory(Path("link/d"))


def test_a_network_path_on_another_machine_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not names_other_machine("/b", [])
    for name in ("splitdrive", "normcase"):
        monkeypatch.setattr(os.path, name, getattr(ntpath, name))
    paths = [r"\\other\share\b", "//OTHER/x/b", r"\\host\share\b", r"C:\b", r"D:\b", "/b"]
    found = [names_other_machine(path, [r"C:\a", r"\\Host\Share\a"]) for path in paths]
    assert found == [True, True, False, False, False, False]


def test_a_lock_has_one_holder_and_leaves_no_file(tmp_path: Path) -> None:
    path, descriptors = tmp_path / "lock", sorted(Path("/dev/fd").iterdir())
    for _ in range(2):
        with locked(path), pytest.raises(BlockingIOError), locked(path):
            pass
        assert not path.exists()
    assert sorted(Path("/dev/fd").iterdir()) == descriptors


def test_a_file_with_content_is_refused_as_lock_file(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_bytes(b"a")
    with pytest.raises(OSError, match="the file is not empty, so it is not a lock file"), locked(path):
        pass
    assert path.read_bytes() == b"a"


def test_a_lock_file_removed_during_locking_is_locked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lock"
    opened: list[int] = []

    def open_and_remove(given: Path) -> int:
        opened.append(descriptor := open_own(given))
        if len(opened) == 1:
            path.unlink()
        return descriptor

    monkeypatch.setattr("lazyprompt._base.files.open_own", open_and_remove)
    with locked(path):
        assert path.exists()
    assert len(opened) == 2
    for descriptor in opened:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
