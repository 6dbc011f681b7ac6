"""Runs a command so that it never outlives whoever asked for it.

    python -m lazyprompt.modules.guard -- COMMAND [ARGUMENT ...]

The command, and all that it starts, lives in the guard's session. It is ended when the guard's standard input comes
to its end, which happens however the process at the other end of the pipe went, ``kill -9`` included; when the guard
gets SIGTERM, SIGINT or SIGHUP; and when the guard's parent is another one than before, should a child of the parent
still hold the pipe. What a command leaves behind when it ends by itself is ended too. SIGTERM comes first, SIGKILL
after `GRACE` seconds.

The guard exits with the command's exit code, with 128 and the signal's number if a signal ended it (as a shell does),
126 or 127 if it cannot be started.

It runs beside every engine, so it imports no more than it needs: it is up in a hundredth of a second. POSIX only.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

GRACE = 3.0  # seconds from SIGTERM to SIGKILL
_LOOK = 1.0  # seconds between two looks at the parent
_PAUSE = 0.01  # seconds between two looks at what is being ended
_PROC = os.path.isdir("/proc/self")  # noqa: PTH112 - pathlib takes longer
# Windows imports this module too, with all others, but has neither of these.
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)
_ASKED = (signal.SIGTERM, signal.SIGINT, getattr(signal, "SIGHUP", signal.SIGTERM))


def processes() -> list[int]:
    """Return the ids of all processes; none where there is no ``/proc``."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()] if _PROC else []  # noqa: PTH208 - pathlib takes longer


def session_of(pid: int) -> int | None:
    """Return the session of a process.

    Args:
        pid: Its id.

    Returns:
        The id of the session's leader; None if the process is gone, or waits to be reaped.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib takes longer
            # pid (name, in which anything may be) state ppid pgrp session ...: proc_pid_stat(5)
            state, _, _, session = file.read().rpartition(b")")[2].split(maxsplit=4)[:4]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state in b"ZX" else int(session)


def members(session: int) -> list[int]:
    """Return the living processes of a session, but for its leader; none where there is no ``/proc``.

    Args:
        session: The id of the session's leader.

    Returns:
        Their ids.
    """
    return [pid for pid in processes() if pid != session and session_of(pid) == session]


def main(arguments: list[str]) -> int:
    """Run a command and see to its end.

    Args:
        arguments: ``--``, the command and its arguments.

    Returns:
        The exit code.
    """
    if len(arguments) < 2 or arguments[0] != "--":  # noqa: PLR2004 - "--" and the command
        print("usage: python -m lazyprompt.modules.guard -- COMMAND [ARGUMENT ...]", file=sys.stderr)  # noqa: T201 - a program
        return 2
    if os.getsid(0) != os.getpid():
        try:
            os.setsid()
        except PermissionError:
            print("guard: give it a session of its own: setsid -w python ...", file=sys.stderr)  # noqa: T201 - a program
            return 2
    wake = _woken_by_signals()
    parent = os.getppid()
    try:
        # Not subprocess, which takes as long to import as all the rest.
        engine = os.posix_spawnp(
            arguments[1],
            arguments[1:],
            os.environ,
            file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)],
            setpgroup=0,
            setsigdef=[*_ASKED, signal.SIGCHLD],
        )
    except OSError as error:
        print(f"guard: cannot start {arguments[1]}: {error.strerror}", file=sys.stderr)  # noqa: T201 - a program
        return 127 if isinstance(error, FileNotFoundError) else 126
    code = None
    while code is None and not _asked_to_end(wake, parent):
        code = _exit_code(engine)
    return _end(engine, code)


def _woken_by_signals() -> int:
    """Have signals write their numbers into a pipe, whose other end is given back."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    for number in (*_ASKED, signal.SIGCHLD):
        signal.signal(number, _noted)
    signal.set_wakeup_fd(write)
    return read


def _noted(*_: object) -> None:
    """Do nothing: the pipe has the number already."""


def _asked_to_end(wake: int, parent: int) -> bool:
    """Wait for an event, and return True if it asks for the end."""
    ready, _, _ = select.select([0, wake], [], [], _LOOK)
    signals = os.read(wake, 1024) if wake in ready else b""
    return (
        any(number in _ASKED for number in signals)
        or (0 in ready and not os.read(0, 1024))  # the end of the input, not something written to it
        or os.getppid() != parent
    )


def _exit_code(engine: int) -> int | None:
    """Return the exit code of the engine if it has ended."""
    pid, status = os.waitpid(engine, os.WNOHANG)
    if not pid:
        return None
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _end(engine: int, code: int | None) -> int:
    """End the engine and all that it started: its exit code."""
    _send(engine, signal.SIGTERM)
    patience = time.monotonic() + GRACE
    while time.monotonic() < patience + GRACE:
        if code is None:
            code = _exit_code(engine)
        if code is not None and not _left(engine):
            return code
        if time.monotonic() > patience:  # again and again, for what was started meanwhile
            _send(engine, KILL)
        time.sleep(_PAUSE)
    return 128 + KILL if code is None else code


def _left(engine: int) -> bool:
    """Return True if something is left of an engine that has itself ended."""
    if _PROC:
        return bool(members(os.getpid()))
    try:
        os.killpg(engine, 0)
    except ProcessLookupError:
        return False
    return True


def _send(engine: int, number: signal.Signals) -> None:
    """Send a signal to each process of the session, or to the engine's group where the session is not to be seen."""
    targets = [(os.kill, pid) for pid in members(os.getpid())] if _PROC else [(os.killpg, engine)]
    for send, target in targets:
        try:
            send(target, number)
        except ProcessLookupError:
            continue  # it is gone, which is what the signal was for


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
