"""Safe file access and locks that never block on a pipe, follow an unexpected link or read without a limit.

Every module in the package uses these functions to read and write whole files.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from errno import EEXIST, EFBIG, EINVAL, EISDIR, ELOOP, EMLINK
from functools import partial
from stat import S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK, S_IMODE, S_ISREG
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from pathlib import Path


_KINDS: Final = {
    S_IFDIR: "a directory",
    S_IFIFO: "a pipe",
    S_IFSOCK: "a socket",
    S_IFCHR: "a device",
    S_IFBLK: "a device",
    S_IFLNK: "a link",
}


def read_regular(path: str | os.PathLike[str], most: int, root: str | None = None) -> bytes:
    """Read a regular file of bounded size.

    Args:
        path: The path of the file, or of a link to it.
        most: The size limit in bytes.
        root: A resolved directory that contains the path. If set, links are not followed; see :func:`open_nofollow`.

    Raises:
        OSError: The file can't be read, is not a regular file, is too large, or grows while it is read.
        ValueError: The path contains a NUL character.
    """
    descriptor = open_regular(path, root)
    try:
        status = os.fstat(descriptor)
        if status.st_size > most:
            raise OSError(EFBIG, f"file is too large: {status.st_size:,} bytes; the limit is {most:,}")
        data = os.read(descriptor, status.st_size + 1)
        while len(data) < status.st_size and (more := os.read(descriptor, status.st_size + 1 - len(data))):
            data += more
        if len(data) > status.st_size:
            raise OSError(EINVAL, "the file grew while being read")
        return data
    finally:
        os.close(descriptor)


def open_regular(path: str | os.PathLike[str], root: str | None = None) -> int:
    """Open a regular file, or a link to one, for reading.

    Args:
        path: The path of the file, or of a link to it.
        root: A resolved directory that contains the path. If set, links are not followed; see :func:`open_nofollow`.

    Returns:
        The file descriptor.

    Raises:
        OSError: The file can't be opened, or is not a regular file.
        ValueError: The path contains a NUL character.
    """
    if root is not None:
        return _checked(open_nofollow(root, os.fspath(path)), _check_regular)
    # Check the file type before opening the file, because opening a device can change the device's state.
    _check_regular(os.stat(path))  # noqa: PTH116 - creating a Path takes as long as the call
    return _checked(os.open(path, os.O_RDONLY | _flags("O_NONBLOCK", "O_NOCTTY")), _check_regular)


def open_nofollow(root: str, path: str) -> int:
    """Open a resolved path inside a root directory for reading, without following links.

    Each directory is opened relative to its parent, so a link that replaced a directory after resolution is not
    followed. Opening a pipe doesn't wait for a writer. Windows can't open a path one directory at a time, so a check
    confirms afterwards that the path still names the opened file.

    Args:
        root: The resolved root directory.
        path: The resolved path, which starts with ``root``.

    Returns:
        The file descriptor.

    Raises:
        OSError: The path can't be opened, or a directory in it has become a link.
    """
    if os.open not in os.supports_dir_fd:
        return _checked(open_regular(path), partial(_check_unmoved, path))
    step = getattr(os, "O_PATH", os.O_RDONLY) | _flags("O_DIRECTORY", "O_NOFOLLOW")
    *above, name = path.removeprefix(root).strip("/").split("/")
    directory = os.open(root, step)
    try:
        for part in above:
            below = os.open(part, step, dir_fd=directory)
            os.close(directory)
            directory = below
        return os.open(name, os.O_RDONLY | _flags("O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY"), dir_fd=directory)
    finally:
        os.close(directory)


def names_other_machine(path: str, roots: Iterable[str]) -> bool:
    r"""Return True if a Windows path such as ``\\host\share\name`` is on a share that contains none of the roots.

    On Windows, resolving a network path sends the user's name and password hash to the remote host.

    Args:
        path: The unresolved path.
        roots: The resolved directories in which the path is allowed.
    """
    drive = _drive(path)
    return drive.startswith("\\\\") and drive not in map(_drive, roots)


def open_own(path: Path, flags: int = 0) -> int:
    """Open or create a file that lazyprompt manages, such as a lock file or a log, for reading and writing.

    The file name is predictable, so another user may have created a link with this name.

    Args:
        path: The path of the file, which is created if it is missing.
        flags: Additional flags for :func:`os.open`.

    Returns:
        The file descriptor.

    Raises:
        OSError: The file can't be opened, is not a regular file, or has additional hard links.
    """
    own_status(path)  # needed on systems without O_NOFOLLOW
    flags |= os.O_RDWR | os.O_CREAT | _flags("O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY")
    return _checked(os.open(path, flags, 0o666), _check_own)


def own_status(path: Path) -> os.stat_result | None:
    """Return the status of a file that lazyprompt manages, or None if the file is missing.

    Raises:
        OSError: The file is not a regular file, or has additional hard links.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    _check_own(status)
    return status


DATABASE_ENDINGS: Final = ("", "-journal", "-wal", "-shm")
"""The suffixes of the files that make up an SQLite database."""


def own_database_status(path: Path) -> os.stat_result | None:
    """Return the status of an SQLite database that lazyprompt manages, or None if the database is missing.

    Raises:
        OSError: A database file is not a regular file, or has additional hard links.
    """
    first, *_ = [own_status(path.with_name(path.name + ending)) for ending in DATABASE_ENDINGS]
    return first


def make_own_directory(path: Path) -> bool:
    """Create a directory for the package's files, and any missing parents; return False if the directory exists.

    Args:
        path: The directory's path. In a relative path, links are rejected, because another user may have created them.

    Raises:
        OSError: The directory can't be created, or a relative path contains a link.
    """
    if not path.is_absolute():
        for part in (*reversed(path.parents), path):
            check_no_link(part)
    if path.exists():
        return False
    path.mkdir(parents=True)
    return True


def open_new(path: Path, mode: int = 0o666) -> int:
    """Create a new file and open it for reading and writing.

    Args:
        path: The path of the new file.
        mode: The file permissions before the process's umask is applied.

    Returns:
        The file descriptor.

    Raises:
        OSError: The file can't be created, or a file or link already exists at the path.
    """
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _flags("O_NOFOLLOW"), mode)


def write_whole(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a file atomically.

    If the process dies while writing, the old file is unchanged, and a hidden temporary file remains in its directory.
    A device or pipe is written to directly, never replaced.

    Args:
        path: The file's path; the file is created if it is missing.
        data: The content.
        mode: The permissions of a new file; an existing file keeps its permissions.

    Raises:
        OSError: The file can't be written, or is a link to a file; the old content is unchanged.
        ValueError: The path contains a NUL character.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        status = None
    if status is not None and not S_ISREG(status.st_mode):
        path.write_bytes(data)
        return
    check_no_link(path)
    temporary = path.with_name(f".lazyprompt-{os.urandom(16).hex()}.tmp")
    try:
        with os.fdopen(open_new(temporary, mode), "wb") as file:
            # Set the permissions before writing, so that other users can't read private content.
            if status is not None and os.name == "posix":
                temporary.chmod(S_IMODE(status.st_mode))
            file.write(data)
            file.flush()
            # Without fsync, a system crash could leave an empty file at the final path.
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def check_no_link(path: Path) -> None:
    """Check that a path to write to is not a link, because another user may have created the link.

    Raises:
        OSError: The path is a link.
    """
    if path.is_symlink():
        raise OSError(ELOOP, f"the file is a link; pass its target, {os.path.realpath(path)}, or remove the link")


def _drive(path: str) -> str:
    return os.path.normcase(os.path.splitdrive(path)[0])


def _checked(descriptor: int, check: Callable[[os.stat_result], None]) -> int:
    """Return a file descriptor if its status passes a check; otherwise, close it and raise the check's error."""
    try:
        check(os.fstat(descriptor))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _check_regular(status: os.stat_result) -> None:
    kind = S_IFMT(status.st_mode)
    if kind != S_IFREG:
        what = _KINDS.get(kind, "something else")
        raise OSError(EISDIR if kind == S_IFDIR else EINVAL, f"the path is {what}, not a regular file")


def _check_own(status: os.stat_result) -> None:
    _check_regular(status)
    if status.st_nlink > 1:
        raise OSError(
            EMLINK,
            "the file has more than one hard link, so another user may control it; replace the file with a copy",
        )


def _check_unmoved(path: str, status: os.stat_result) -> None:
    if not os.path.samestat(os.lstat(path), status) or os.path.realpath(path) != path:
        raise OSError(ELOOP, "a link has replaced the file or one of its parent directories")


def _flags(*names: str) -> int:
    """Combine the named flags with the flags used for every file, ignoring flags that this system lacks."""
    flags = 0
    for name in ("O_BINARY", *names):
        flags |= getattr(os, name, 0)
    return flags


if sys.platform == "win32":
    import msvcrt

    def _claim(descriptor: int) -> None:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError as error:
            raise BlockingIOError(*error.args) from error

else:
    import fcntl

    def _claim(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold a lock until the ``with`` block ends; only one process at a time can hold it.

    The operating system also releases the lock when the process ends.

    Args:
        path: The lock file, which is created empty and removed when the lock is released.

    Raises:
        BlockingIOError: Another process holds the lock.
        OSError: The file can't be created, or is not a lock file.
    """
    descriptor = _claimed(path)
    try:
        yield
    finally:
        try:
            if os.name == "posix":  # Windows can't remove an open file
                path.unlink(missing_ok=True)
        finally:
            os.close(descriptor)


def _check_empty(status: os.stat_result) -> None:
    if status.st_size:
        raise OSError(EEXIST, "the file is not empty, so it is not a lock file; move the file away")


def _claimed(path: Path) -> int:
    while True:
        # Child processes don't inherit this descriptor, so a child that outlives this process can't keep the lock.
        descriptor = _checked(open_own(path), _check_empty)
        try:
            _claim(descriptor)
            # Return only if the path still refers to this file, because the previous holder of the lock may have
            # deleted the file.
            with suppress(FileNotFoundError):
                if os.path.samestat(path.lstat(), os.fstat(descriptor)):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
