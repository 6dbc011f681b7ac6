"""The guard: however it or its parent ends, no process of the command is left."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lazyprompt.modules import guard
from support.engines import SECONDS, eventually, find_processes, next_line, python, spawn

pytestmark = pytest.mark.slow  # engines

GUARD = [sys.executable, "-P", str(guard.__file__)]
# The command starts two processes: one in its group, one in a group of its own.
FAMILY = """
import subprocess, sys, time
for own in (None, 0):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)", *sys.argv[1:]], process_group=own)
print("all there", flush=True)
"""


class Started:
    """Starts guards, and ends those that a test has left."""

    def __init__(self) -> None:
        self.guards: list[subprocess.Popen[bytes]] = []

    def __call__(self, *command: str) -> subprocess.Popen[bytes]:
        self.guards.append(spawn([*GUARD, *command], start_new_session=True))
        return self.guards[-1]


@pytest.fixture
def start() -> Iterator[Started]:
    started = Started()
    yield started
    for process in started.guards:
        process.communicate(timeout=SECONDS)  # which closes its standard input


@pytest.fixture
def mark(tmp_path: Path) -> str:
    """A text on the command lines of all processes of one test."""
    return f"mark-of-{tmp_path}"


def family(start: Started, mark: str, *, stays: bool) -> subprocess.Popen[bytes]:
    """A guard whose command has started two processes."""
    process = start(*python("-c", FAMILY + ("time.sleep(1000)" if stays else ""), mark))
    assert next_line(process) == "all there"
    return process


@pytest.mark.parametrize(
    ("command", "code"),
    [(["true"], 0), (["sh", "-c", "exit 7"], 7), (["sh", "-c", "kill -9 $$"], 137), (["sh", "-c", "kill -15 $$"], 143)],
)
def test_guard_exits_with_the_code_of_the_command(start: Started, command: list[str], code: int) -> None:
    assert start(*command).wait(SECONDS) == code


@pytest.mark.parametrize(("command", "code"), [("no such command", 127), (str(Path(__file__)), 126)])
def test_guard_prints_one_line_if_the_command_cannot_be_started(start: Started, command: str, code: int) -> None:
    process = start(command)
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == code
    assert errors.count(b"\n") == 1
    assert errors.startswith(f"guard: cannot start {command}: ".encode())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, None])
def test_signal_or_closed_stdin_ends_all_processes(start: Started, mark: str, number: signal.Signals | None) -> None:
    process = family(start, mark, stays=True)
    # The guard has the mark too. A starting process has no command line yet.
    assert eventually(lambda: len(find_processes(mark)) == 4)
    if number is None:
        process.communicate(timeout=SECONDS)  # which closes its input
    else:
        process.send_signal(number)
    assert process.wait(SECONDS) == 143
    assert find_processes(mark) == []


def test_processes_left_by_the_command_are_ended(start: Started, mark: str) -> None:
    assert family(start, mark, stays=False).wait(SECONDS) == 0
    assert find_processes(mark) == []


def test_process_that_ignores_sigterm_is_killed(start: Started, mark: str) -> None:
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(1000)"
    )
    process = start(*python("-c", deaf, mark))
    assert next_line(process) == "up"
    process.terminate()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(guard.GRACE / 2)
    assert process.wait(SECONDS) == 137
    assert find_processes(mark) == []


def test_input_written_to_stdin_does_not_end_the_guard(start: Started) -> None:
    process = start(*python("-c", "import sys; print(repr(sys.stdin.read()), flush=True); sys.exit(3)"))
    assert process.stdin is not None
    process.stdin.write(b"not for the command")
    process.stdin.flush()
    assert next_line(process) == "''"
    assert process.wait(SECONDS) == 3


# The parent starts a guard, and may fork a process that inherits the pipe to the guard, like multiprocessing.
PARENT = """
import os, subprocess, sys, time
guard = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, start_new_session=True)
if "fork" in sys.argv[-1] and os.fork() == 0:
    time.sleep(1000)
time.sleep(1000)
"""


@pytest.mark.parametrize("holds", ["alone", "fork"])
def test_killed_parent_ends_the_guard_and_the_command(mark: str, holds: str) -> None:
    waits = "import time; print('up', flush=True); time.sleep(1000)"
    command = [*GUARD, *python("-c", waits, f"{mark}-engine", holds)]
    with spawn(python("-c", PARENT, *command), start_new_session=True) as parent:
        assert next_line(parent) == "up"
        there = {"alone": 3, "fork": 4}[holds]
        assert eventually(lambda: len(find_processes(f"{mark}-engine")) == there)
        parent.kill()
        parent.wait()
        # The guard does not end the forked process, which keeps the pipe open.
        left = {"alone": 0, "fork": 1}[holds]
        assert eventually(lambda: len(find_processes(f"{mark}-engine")) == left)
        if holds == "fork":
            os.killpg(parent.pid, signal.SIGKILL)


def test_members_lists_the_processes_of_a_session(start: Started, mark: str) -> None:
    process = family(start, mark, stays=True)
    assert eventually(lambda: len(find_processes(mark)) == 4)
    assert sorted([process.pid, *(each.pid for each in guard.members(process.pid))]) == sorted(find_processes(mark))
    assert guard.members(1 << 22) == []


def test_members_leaves_out_exited_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    gone, other = psutil.Popen(["true"]), psutil.Process()
    gone.wait()
    monkeypatch.setattr(psutil, "process_iter", lambda: [gone, other])
    session = os.getsid(0)
    assert guard.members(session) == ([] if session == other.pid else [other])
    assert not guard.listens(session, 1)
    monkeypatch.setattr(guard, "members", lambda _: [gone, other])
    guard.send(session, 0)
    assert not guard.listens(session, 1)
