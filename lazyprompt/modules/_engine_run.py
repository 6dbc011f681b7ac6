"""One run of an engine under its guard, and what its log and exit code tell of its end."""

from __future__ import annotations

import os
import re
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Final

from lazyprompt.modules.guard import GRACE, members, processes, session_of

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterable

_PAUSE = 0.005  # seconds between two looks at what is being ended


@dataclass(eq=False)
class EngineRun:
    """One run of an engine, from its start to its end. A process that was forked from ours can look, not end it.

    Attributes:
        guard: The guard's process; the engine lives in its session.
        port: Where the engine listens.
        log: Where its output goes.
        offset: Where in the log this run begins, in bytes.
        temporary: Whether the log goes with it.
        ready: Whether it could be asked already.
        failed: Whether it died, or was not ready in time, so that its log is kept.
        stopping: Whether its end was asked for.
        owner: The process that started it.
    """

    guard: subprocess.Popen[bytes]
    port: int
    log: Path
    offset: int
    temporary: bool
    ready: bool = False
    failed: bool = False
    stopping: bool = False
    owner: int = field(default_factory=os.getpid)
    _lock: RLock = field(default_factory=RLock)

    def ended(self) -> bool:
        """Whether it has ended, with all that it started."""
        if self.owner != os.getpid():
            return not _is_there(self.guard.pid)
        with self._lock:
            if self.guard.returncode is None and self.guard.poll() is not None:
                self.failed = self.failed or not self.stopping
                # The guard has ended all, unless it was killed. At once: no other process can have its number yet.
                _kill_session(self.guard.pid)
            return self.guard.returncode is not None

    def stop(self) -> None:
        """End it, and wait until nothing is left of it."""
        if self.owner != os.getpid():
            return
        with self._lock:
            if not self.ended():
                self.stopping = True
                # The signal too: a process that was forked may hold the pipe. Popen's own way would look by itself
                # whether it has ended, and we would not see it.
                os.kill(self.guard.pid, signal.SIGTERM)
            self.stopping = True
            if self.guard.stdin is not None:
                self.guard.stdin.close()
            patience = time.monotonic() + 3 * GRACE  # it takes two at most
            while not self.ended():
                if time.monotonic() > patience:
                    os.kill(self.guard.pid, signal.SIGKILL)
                time.sleep(_PAUSE)
            if self.temporary and not self.failed:
                self.log.unlink(missing_ok=True)

    def another_listens(self) -> bool:
        """Whether it is to be seen that another than the engine listens at its port; always False without ``/proc``.

        It may have come between our look for a free port and the engine's own, and may even say that it is healthy.
        """
        sockets = _listening(self.port)
        return any(session_of(pid) != self.guard.pid for pid in processes() if sockets and _has_one_of(pid, sockets))


def _listening(port: int) -> set[str]:
    """The sockets that listen at a port, as the links to open files name them."""
    try:
        lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    except FileNotFoundError:
        return set()
    # number local-address:port remote-address:port state ... (the tenth) inode: proc_net(5); 0A is to listen
    columns = [line.split() for line in lines]
    return {f"socket:[{one[9]}]" for one in columns if one[3] == "0A" and int(one[1].partition(":")[2], 16) == port}


def _has_one_of(pid: int, sockets: set[str]) -> bool:
    """Whether a process has one of these sockets open."""
    try:
        return any(str(link.readlink()) in sockets for link in Path(f"/proc/{pid}/fd").iterdir())
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False  # it has ended, has closed what we look at, or is none of ours


def _is_there(pid: int) -> bool:
    """Whether there is a process of this number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _kill_session(leader: int) -> None:
    """Kill what is left of a session; what the system itself holds back is given up after a while."""
    patience = time.monotonic() + GRACE
    while (left := members(leader)) and time.monotonic() < patience:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue  # it is gone by itself
        time.sleep(_PAUSE)


_LINES = 15  # of the log, that an error quotes
_BYTES = 65_536


# Patterns of what llama.cpp, PyTorch, CUDA, vLLM, uvicorn, argparse, click and clap write, and what to do then; the
# first that fits counts.
_CAUSES: Final = (
    (
        r"address already in use|couldn't bind",
        "somebody else took the port; give another one, or none for any that is free",
    ),
    (r"is no GGUF file", "give it a GGUF file; a download may have been an error page or a Git LFS pointer"),
    (r"cannot read the model", "give it the path of a GGUF file"),
    (r"not within the file bounds|corrupted or incomplete|SafetensorError", "the file is cut off; get it again"),
    (r"unknown model architecture|architectures? .* not supported", "a newer version of the engine may know it"),
    (
        r"out ?of ?memory|bad_alloc|(cannot|failed to|unable to) allocate|no available memory|KV cache is needed",
        "it needs more memory than there is; take a smaller model or quantisation, or a shorter context",
    ),
    (r"No module named|Missing dependencies|is not installed", "something is not installed; {install}"),
    (
        r"unrecognized arguments|no such option|unexpected argument|unknown flag|has no option|does not take",
        "it does not know an option, or not with that value",
    ),
)
_KILLED: Final = "the system may have killed it for want of memory; take a smaller model or a shorter context"


def how(code: int | None) -> str:
    """Return how a process ended, as the end of a sentence about it.

    Args:
        code: Its exit code as a shell or :mod:`subprocess` has it: a signal's number is behind 128, or negative. None
            where only whoever started it is told.
    """
    if code is None:
        return "has ended"
    number = -code if code < 0 else code - 128
    if number in set(signal.Signals):
        return f"was ended by {signal.Signals(number).name}"
    return f"ended by itself with exit code {code}"


def advice(lines: Iterable[str], code: int | None, install: str) -> str:
    """Return what to do, as the last lines of the log and the exit code tell; empty where nothing is known."""
    text = "\n".join(lines)
    known = next((todo for pattern, todo in _CAUSES if re.search(pattern, text, re.IGNORECASE)), "")
    return known.format(install=install) or (_KILLED if code == 128 + signal.SIGKILL else "")


def tail(log: Path, offset: int) -> list[str]:
    """Return the last lines of a log behind an offset in bytes that say something.

    Of a line that a progress bar wrote again and again, the last state counts.
    """
    try:
        with log.open("rb") as file:
            file.seek(max(offset, file.seek(0, os.SEEK_END) - _BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return [f"{log} is there no more"]
    lines = [line.rstrip().rpartition("\r")[2] for line in text.split("\n")]
    return [line for line in lines if line][-_LINES:]
