"""A lock that dies with its process: one run at a time writes an output."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from errno import EEXIST
from typing import TYPE_CHECKING, Self

from lazyprompt._base.files import open_own
from lazyprompt.errors import BatchError

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

if sys.platform == "win32":
    import msvcrt

    def _claim(descriptor: int) -> None:
        # Behind all that it holds: what is locked there cannot be read, and it says who holds it.
        os.lseek(descriptor, 1 << 30, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)

else:
    import fcntl

    def _claim(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


_HOLDER = re.compile(rb"\d{0,20}")


class Lock:
    """A file that one process at a time holds; the system lets go of it when that process ends, however it ends.

    Args:
        path: The file. It is made, holds the number of the process, and is removed when the lock is let go of.
        what: What it is for, in messages.

    Raises:
        BatchError: Another process holds it.
        OSError: The file cannot be made; or a file of that name is not a lock.
    """

    def __init__(self, path: Path, what: str) -> None:
        self._path = path
        self._descriptor = _claimed(path, what)
        # Who holds it is for messages alone: a full disk shows itself where something is lost by it.
        with suppress(OSError):
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            os.ftruncate(self._descriptor, 0)
            os.write(self._descriptor, str(os.getpid()).encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Let go of it."""
        try:
            if os.name == "posix":  # elsewhere a file that is open cannot be removed
                self._path.unlink(missing_ok=True)
        finally:
            os.close(self._descriptor)


def _claimed(path: Path, what: str) -> int:
    """The file, open and held."""
    while True:
        # Not to be inherited: a worker that outlives the run would go on holding it.
        descriptor = open_own(path)
        try:
            _claim(descriptor)
            _check_holder(descriptor)
        except (BlockingIOError, PermissionError) as error:  # the second is what Windows says
            holder = os.read(descriptor, 20).decode(errors="replace")
            os.close(descriptor)
            who = f"another run (process {holder})" if holder else "another run"
            raise BatchError(f"{who} is writing {what}; wait for its end, or give another output") from error
        except BaseException:
            os.close(descriptor)
            raise
        # Who held it before may have removed the file between the two steps: then others would lock another one.
        if _is_still(path, descriptor):
            return descriptor
        os.close(descriptor)


def _check_holder(descriptor: int) -> None:
    if not _HOLDER.fullmatch(os.read(descriptor, 21)):
        raise OSError(EEXIST, "it is not a lock; move it away")


def _is_still(path: Path, descriptor: int) -> bool:
    """Return True if a path still leads to an open file."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
