"""Runs a command that never outlives the parent process.

    python guard.py COMMAND [ARGUMENT ...]

The guard leads a session in which the command and its child processes run. The guard terminates the command and its
child processes in three cases:

1. The guard's standard input is closed, as happens when the parent exits or is killed.
2. The guard receives SIGTERM, SIGINT or SIGHUP.
3. The guard's parent process id changes. This detects a parent that exits while one of its other children keeps the
   pipe open.

When the command finishes, the guard also terminates any child processes that are still running. The guard first sends
SIGTERM, and sends SIGKILL after `GRACE` seconds.

If the parent has exited, the guard deletes the temporary log file named in the environment variable `LOG`.

The guard exits with the command's exit code, or with 128 plus the signal number if a signal terminated the command. The
exit code is 126 or 127 if the command cannot be started. The guard runs on POSIX systems only.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal, TypeAlias

import psutil

_Reason: TypeAlias = Literal["signal", "parent"] | None

GRACE = 3.0  # seconds between SIGTERM and SIGKILL
_LOOK = 1.0  # seconds between checks that the parent process is running
_PAUSE = 0.01  # seconds between checks that the terminated processes have exited
LOG = "LAZYPROMPT_ENGINE_LOG"  # the environment variable that names the temporary log file
# Windows lacks SIGKILL and SIGHUP, but importing this module on Windows must not fail.
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)
_ASKED = (signal.SIGTERM, signal.SIGINT, getattr(signal, "SIGHUP", signal.SIGTERM))


def members(session: int) -> list[psutil.Process]:
    """Return the running processes in a session, except its leader.

    Args:
        session: The process id of the session leader.
    """
    return [process for process in psutil.process_iter() if process.pid != session and _is_in(process, session)]


def _is_in(process: psutil.Process, session: int) -> bool:
    try:
        return os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE
    except (OSError, psutil.Error):
        return False  # the process has exited or belongs to another user


def listens(session: int, port: int) -> bool:
    """Return True if any process in a session, except the session leader, listens on the given TCP port.

    Args:
        session: The process id of the session leader.
        port: The TCP port number.
    """
    return any(port in _ports(process) for process in members(session))


def _ports(process: psutil.Process) -> set[int]:
    try:
        connections = process.net_connections("tcp")
    except psutil.Error:
        return set()  # the process has exited
    return {each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN}


def send(session: int, number: int) -> None:
    """Send a signal to every process in a session, except its leader.

    Args:
        session: The process id of the session leader.
        number: The signal number.
    """
    for process in members(session):
        try:
            process.send_signal(number)
        except psutil.Error:
            continue  # the process has exited or belongs to another user


def main(arguments: list[str]) -> int:
    """Run a command, and terminate it if the parent exits or a signal arrives.

    Args:
        arguments: The command and its arguments.

    Returns:
        The exit code.
    """
    wake = _open_signal_pipe()
    parent, log = os.getppid(), os.environ.pop(LOG, "")
    try:
        engine = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, process_group=0)  # noqa: S603 - the caller's own command
    except OSError as error:
        print(f"guard: cannot start {arguments[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201 - a program
        return 127 if isinstance(error, FileNotFoundError) else 126
    reason: _Reason = None
    while engine.poll() is None and reason is None:
        reason = _reason_to_end(wake, parent)
    code = _end(engine)
    if reason == "parent" and log:
        Path(log).unlink(missing_ok=True)
    return code


def _open_signal_pipe() -> int:
    """Create a pipe that receives signal numbers, and return its read end."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    for number in (*_ASKED, signal.SIGCHLD):
        signal.signal(number, _ignore_signal)
    signal.set_wakeup_fd(write)
    return read


def _ignore_signal(*_: object) -> None:
    """Do nothing, because Python has already written the signal number to the pipe."""


def _reason_to_end(wake: int, parent: int) -> _Reason:
    """Wait for an event, and return the reason to terminate the command, or None."""
    ready, _, _ = select.select([0, wake], [], [], _LOOK)
    # Standard input is closed if it is readable but has no data.
    is_closed = 0 in ready and not os.read(0, 1024)
    try:
        signals = os.read(wake, 1024)
    except BlockingIOError:
        signals = b""
    if any(number in _ASKED for number in signals):
        return "signal"
    return "parent" if is_closed or os.getppid() != parent else None


def _end(engine: subprocess.Popen[bytes]) -> int:
    """Terminate the engine and its child processes, and return the engine's exit code."""
    session = os.getpid()
    send(session, signal.SIGTERM)
    patience = time.monotonic() + GRACE
    while (engine.poll() is None or members(session)) and time.monotonic() < patience + GRACE:
        if time.monotonic() > patience:  # repeat the signal, because new processes may have started
            send(session, KILL)
        time.sleep(_PAUSE)
    code = engine.poll()
    if code is None:
        return 128 + KILL
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
