"""Manages a local inference engine as a child process, and always terminates it."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, RLock
from typing import IO, TYPE_CHECKING, Final, Literal, Self, TypeAlias

from lazyprompt._base.files import open_own
from lazyprompt._base.json import is_sequence
from lazyprompt._base.secret import Secret
from lazyprompt.errors import EngineError, import_extra
from lazyprompt.modules.engines import HOST, Engine, engine_named

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping
    from types import ModuleType


Status: TypeAlias = Literal["stopped", "starting", "running", "died"]

_HEALTH = "/health"  # the URL path of the health check, which returns status 200 once the model is loaded
_PAUSE = 0.05  # seconds between health checks of a starting engine
_ANSWER = 2.0  # the timeout for a health check, in seconds
_ATTEMPTS = 3  # the maximum number of attempts to start the engine, each on another free port
_ENDING = 0.005  # seconds between checks that the terminated engine has exited


def _guard() -> ModuleType:
    """Import the guard module, which requires psutil from the ``local`` extra. Installing vLLM also installs psutil."""
    guard: ModuleType = import_extra("lazyprompt.modules.guard", "psutil", "local")
    return guard


@dataclass(eq=False)
class _Run:
    """One run of an engine. A forked process can check whether the engine is running, but can't stop the engine.

    Attributes:
        guard: The guard process. The engine runs in the guard's POSIX session.
        port: The engine's port.
        log: The log file with the engine's output.
        offset: The byte offset in the log at which this run starts.
        temporary: True to delete the log when the run ends.
        ready: True once the model is loaded.
        failed: True if the engine died or was not ready in time. The log file of a failed run is kept.
        stopping: True after :meth:`stop` has been called.
        owner: The id of the process that started the engine.
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
        """Return True if the engine and its child processes have exited."""
        if self.owner != os.getpid():
            try:
                os.kill(self.guard.pid, 0)
            except ProcessLookupError:
                return True
            return False
        with self._lock:
            if self.guard.returncode is None and self.guard.poll() is not None:
                self.failed = self.failed or not self.stopping
                # If the guard was killed, kill the engine now, before another process reuses the guard's id.
                _kill_session(self.guard.pid)
            return self.guard.returncode is not None

    def stop(self) -> None:
        """Terminate the engine, and wait until its processes have exited."""
        if self.owner != os.getpid():
            return
        with self._lock:
            # An engine that ended before this call has failed, so check this before setting ``stopping``.
            is_running = not self.ended()
            self.stopping = True
            if is_running:
                # Send a signal before closing the pipe, because a forked process may keep the pipe open.
                # Don't use Popen.terminate, because it would reap the guard before ended() can kill the session.
                os.kill(self.guard.pid, signal.SIGTERM)
            if self.guard.stdin is not None:
                self.guard.stdin.close()
            # The guard may need 2 * GRACE seconds to stop the engine.
            patience = time.monotonic() + 3 * _guard().GRACE
            while not self.ended():
                if time.monotonic() > patience:
                    os.kill(self.guard.pid, _guard().KILL)
                time.sleep(_ENDING)
            if self.temporary and not self.failed:
                self.log.unlink(missing_ok=True)


def _kill_session(leader: int) -> None:
    """Kill the remaining processes in a session, repeatedly for up to ``GRACE`` seconds."""
    guard = _guard()
    patience = time.monotonic() + guard.GRACE
    while guard.members(leader) and time.monotonic() < patience:
        guard.send(leader, guard.KILL)
        time.sleep(_ENDING)


_LINES = 15  # the maximum number of log lines in an error message
_BYTES = 65_536


# Patterns for log lines of llama.cpp, PyTorch, CUDA, vLLM, uvicorn and argparse, with advice. The first match applies.
_CAUSES: Final = (
    (
        r"address already in use|couldn't bind",
        "another process uses the port; pass another port, or omit port= to use a free one",
    ),
    (r"is not a GGUF file", "pass a GGUF file; the download may be an error page or a Git LFS pointer"),
    (r"cannot read the model", "pass the path of a GGUF file"),
    (r"not within the file bounds|corrupted or incomplete|SafetensorError", "the file is truncated; download it again"),
    (r"unknown model architecture|architectures? .* not supported", "a newer version of the engine may support it"),
    (
        r"out ?of ?memory|bad_alloc|(cannot|failed to|unable to) allocate|no available memory|KV cache is needed",
        "the model needs more memory than is available; use a smaller model or quantisation, or a shorter context",
    ),
    (r"No module named|is not installed", "a dependency is not installed; {install}"),
    (
        r"unrecognized arguments|has no option|the option \S+ does not accept",
        "the engine does not support an option or its value",
    ),
)
_KILL_CODE = 137  # the exit code after SIGKILL
_KILLED: Final = "the system may have run out of memory and killed the engine; use a smaller model or a shorter context"


def how(code: int | None) -> str:
    """Describe how a process ended, for example as "exited with code 1".

    Args:
        code: The exit code, or None if unknown. A signal is represented by 128 plus its number, as in a shell, or by
            its negative number, as in :mod:`subprocess`.
    """
    if code is None:
        return "has exited"
    number = -code if code < 0 else code - 128
    if number in set(signal.Signals):
        return f"was terminated by {signal.Signals(number).name}"
    return f"exited with code {code}"


def advice(lines: Iterable[str], code: int | None, install: str) -> str:
    """Return advice for a failure, or an empty string if its cause is unknown."""
    text = "\n".join(lines)
    known = next((todo for pattern, todo in _CAUSES if re.search(pattern, text, re.IGNORECASE)), "")
    return known.format(install=install) or (_KILLED if code == _KILL_CODE else "")


def tail(log: Path, offset: int) -> list[str]:
    """Return the last non-empty lines of a log after an offset in bytes.

    Only the final state of a progress bar is returned.
    """
    try:
        with log.open("rb") as file:
            file.seek(max(offset, file.seek(0, os.SEEK_END) - _BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return [f"{log} no longer exists"]
    lines = [line.rstrip().rpartition("\r")[2] for line in text.split("\n")]
    return [line for line in lines if line][-_LINES:]


class EngineProcess:
    """A local inference engine that runs as a child process and never outlives its parent.

    If the parent exits, the :mod:`lazyprompt.modules.guard` module terminates the engine. All methods are thread-safe.
    An engine that was stopped or died can be started again. The class works on POSIX systems only.

    Args:
        engine: The engine, or its name.
        model: The model's path, or its name as the engine expects it.
        port: The port on 127.0.0.1; None for any free port.
        options: The engine's options, as in :meth:`~lazyprompt.modules.engines.Engine.command`. The value of a
            :class:`lazyprompt.Secret` appears on the command line of the process, but never in error messages.
        log: The log file to which the engine's output is appended. None creates a temporary file, which is deleted
            unless the run fails.
        timeout: The maximum time in seconds until the engine is ready.

    Raises:
        EngineError: The engine is unknown, or the port is invalid.
    """

    def __init__(
        self,
        engine: Engine | str,
        model: str | Path,
        *,
        port: int | None = None,
        options: Mapping[str, object] | None = None,
        log: str | Path | None = None,
        timeout: float = 120.0,
    ) -> None:
        self.engine = engine if isinstance(engine, Engine) else engine_named(engine)
        self.model = os.path.expanduser(str(model))  # noqa: PTH111 - a hub's name is not a path
        if not self.engine.program:
            raise EngineError(
                f"lazyprompt can start llama.cpp and vLLM, not {self.engine.name}; start it manually and pass its url="
            )
        if port is not None and not 0 < port < 1 << 16:
            raise EngineError(f"port must be a number from 1 to 65535, not {port}")
        self._port = port
        self._options = dict(options or {})
        self._log = None if log is None else Path(log)
        self._timeout = timeout
        self._starting = Lock()
        self._run: _Run | None = None
        self._at_exit: weakref.finalize[[], EngineProcess] | None = None

    def start(self) -> Self:
        """Start the engine and wait until it is ready. A running engine is left unchanged.

        Returns:
            The process itself.

        Raises:
            EngineError: The engine is not installed, died, was stopped, or was not ready in time, or the port is in
                use. If the engine was started, the error message includes advice, the command and the last log lines.
        """
        if os.name != "posix":
            raise EngineError(
                "lazyprompt starts engines only on POSIX systems; start the engine manually and pass its url="
            )
        with self._starting:
            if self.status() != "running":
                self._start()
        return self

    def stop(self) -> None:
        """Terminate the engine if it is running, and wait until its processes have exited."""
        if self._run is not None:
            self._run.stop()

    def status(self) -> Status:
        """Return the engine's state."""
        run = self._run
        if run is None or run.stopping:
            return "stopped"
        if run.ended():
            return "died"
        return "running" if run.ready else "starting"

    def why(self, wait: float = 0.0) -> str:
        """Describe why the engine died.

        Args:
            wait: The time in seconds to wait for the process to exit. An engine's connection
                breaks shortly before its process exits.

        Returns:
            The exit code or signal, advice, the command and the last log lines, or an empty string if the engine did
            not die.
        """
        run, until = self._run, time.monotonic() + wait
        while run is not None and not run.stopping:
            if run.ended():
                return self._describe(run, how(run.guard.returncode), run.guard.returncode)
            if time.monotonic() >= until:
                break
            time.sleep(_PAUSE)
        return ""

    @property
    def url(self) -> str:
        """The engine's URL, which consists of scheme, host and port.

        Raises:
            EngineError: The engine was never started, or was stopped.
        """
        return f"http://{HOST}:{self._current_run().port}"

    @property
    def log(self) -> Path:
        """The log file with the engine's output.

        Raises:
            EngineError: The engine was never started, or was stopped.
        """
        return self._current_run().log

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.engine.name!r}, {self.model!r}, status={self.status()!r})"

    def _current_run(self) -> _Run:
        if self._run is None or self._run.stopping:
            raise EngineError(f"{self.engine.name} is not running; call start() first")
        return self._run

    def _start(self) -> None:
        for left in reversed(range(_ATTEMPTS)):
            self.stop()
            run = self._launch()
            try:
                with _show_progress(f"{self.engine.name} is loading {self.model}; log file: {run.log}"):
                    self._wait(run)
            except EngineError:
                # Another process may have bound the free port before the engine could bind it.
                if self._port is None and left and self.status() == "died" and not _is_free(run.port):
                    run.failed = False  # let stop() delete the log
                    continue
                raise
            except BaseException:
                run.stop()
                raise
            return

    def _launch(self) -> _Run:
        """Start the engine's process without waiting for the model."""
        program = self.engine.executable()
        if program is None:
            what = f"package {self.engine.package}" if self.engine.package else f"program {self.engine.program[0]}"
            raise EngineError(f"{self.engine.name} is not installed: no {what}; {self.engine.install_advice}")
        port = _free_port() if self._port is None else self._port
        if not _is_free(port):
            raise EngineError(f"port {port} on {HOST} is in use; pass another port, or omit port= to use a free one")
        _, *arguments = self.engine.command(self.model, port, self._options)
        with self._open_log() as file:
            log, offset = self._log or Path(file.name), file.seek(0, os.SEEK_END)
            guard = subprocess.Popen(  # noqa: S603 - no shell; the arguments are the user's own
                # Don't use -m, because Python would prefer a module in the working directory.
                [sys.executable, "-P", str(_guard().__file__), program, *arguments],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
                # Disable output buffering, because killing the process would discard buffered output.
                env=os.environ | {"PYTHONUNBUFFERED": "1", _guard().LOG: "" if self._log else file.name},
                # Start a new session, so that Ctrl-C doesn't interrupt the engine.
                start_new_session=True,
            )
        run = self._run = _Run(guard, port, log, offset, temporary=self._log is None)
        if self._at_exit is not None:
            # Drop the exit handler of the previous engine process, which has already ended.
            self._at_exit.detach()
        self._at_exit = weakref.finalize(self, run.stop)
        return run

    def _open_log(self) -> IO[bytes]:
        try:
            if self._log is not None:
                return os.fdopen(open_own(self._log, os.O_APPEND), "ab")
            prefix = f"lazyprompt-{self.engine.name}-"
            return tempfile.NamedTemporaryFile("ab", prefix=prefix, suffix=".log", delete=False)
        except OSError as error:
            raise EngineError(f"cannot write the log file {self._log or ''}: {error.strerror}") from error

    def _wait(self, run: _Run) -> None:
        """Wait until the engine is ready."""
        until = time.monotonic() + self._timeout
        while True:
            # Check which process listens, because another process may have bound the port and returned status 200.
            healthy = _is_healthy(f"http://{HOST}:{run.port}{_HEALTH}") and _guard().listens(run.guard.pid, run.port)
            if run.stopping:
                raise EngineError(f"{self.engine.name} was stopped before it was ready")
            if run.ended():
                raise EngineError(self._describe(run, how(run.guard.returncode), run.guard.returncode))
            if healthy:
                run.ready = True
                return
            if time.monotonic() > until:
                run.failed = True
                run.stop()
                raise EngineError(self._describe(run, f"was not ready within timeout={self._timeout:g} seconds"))
            time.sleep(_PAUSE)

    def _describe(self, run: _Run, end: str, code: int | None = None) -> str:
        """Return a failure message with advice, the command and the last log lines, but without secrets."""
        lines = tail(run.log, run.offset)
        shown = {name: _hide_secrets(value) for name, value in self._options.items()}
        first = f"{self.engine.name} with model {self.model} {end}"
        todo = advice(lines, code, self.engine.install_advice)
        story = "\n".join(
            (
                f"{first}: {todo}" if todo else first,
                f"command: {shlex.join(self.engine.command(self.model, run.port, shown))}",
                f"end of the log {run.log}:",
                *(f"    {line}" for line in lines or ["(empty)"]),
            )
        )
        for value in self._options.values():
            for part in value if is_sequence(value) else [value]:
                story = part.hidden_in(story) if isinstance(part, Secret) else story
        return story


def _hide_secrets(value: object) -> object:
    """Mask the secrets in the value of an option."""
    if is_sequence(value):
        return [_hide_secrets(part) for part in value]
    return str(value) if isinstance(value, Secret) else value


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as at:
        return int(at.getsockname()[1])


def _is_free(port: int) -> bool:
    """Return True if a server can listen on a port."""
    try:
        socket.create_server((HOST, port)).close()
    except OSError:
        return False
    return True


def _is_healthy(url: str) -> bool:
    """Return True if an engine reports that it is ready.

    The official clients have no method for health checks, and would add their own retries and log messages.
    """
    from urllib3 import PoolManager, Timeout  # noqa: PLC0415 - slow, and needed only for health checks
    from urllib3.exceptions import HTTPError  # noqa: PLC0415 - slow

    try:
        with PoolManager(retries=False, timeout=Timeout(total=_ANSWER)) as pool:
            return pool.request("GET", url, preload_content=False).status == 200  # noqa: PLR2004 - HTTP's OK
    except HTTPError:
        return False  # the engine is not listening yet


@contextmanager
def _show_progress(what: str) -> Generator[None]:
    """Show a message and the elapsed time on a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():  # sys.stderr is None without a console
        yield
        return
    from rich.console import Console  # noqa: PLC0415 - slow, and used only on terminals
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - slow

    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task(what, total=None)
        yield
