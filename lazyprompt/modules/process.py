"""A local engine as a process of ours: started, watched, and ended whatever happens."""

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
from typing import IO, TYPE_CHECKING, Final, Literal, Self, TypeAlias, cast

from lazyprompt._base.files import open_own
from lazyprompt._base.secret import Secret
from lazyprompt.errors import EngineError, import_extra
from lazyprompt.modules.engines import HOST, Engine, engine_named

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping
    from types import ModuleType


Status: TypeAlias = Literal["stopped", "starting", "running", "died"]

_HEALTH = "/health"  # answers 200 once the model can be asked, and not before
_PAUSE = 0.05  # seconds between two looks at an engine that starts
_ANSWER = 2.0  # seconds that an answer about its health may take
_ATTEMPTS = 3  # with another free port each, if another process takes the one that was free
_ENDING = 0.005  # seconds between two looks at what is being ended


def _guard() -> ModuleType:
    """Import the guard, whose psutil the extra ``local`` installs; vLLM installs it too."""
    guard: ModuleType = import_extra("lazyprompt.modules.guard", "psutil", "local")
    return guard


@dataclass(eq=False)
class _Run:
    """One run of an engine, from its start to its end. A process that was forked from ours can look, not end it.

    Attributes:
        guard: The guard's process; the engine lives in its session.
        port: The port that the engine listens at.
        log: The file of its output.
        offset: The begin of this run in the log, in bytes.
        temporary: True if the log goes with it.
        ready: True once it can be asked.
        failed: True if it died, or was not ready in time, so that its log is kept.
        stopping: True once its end was asked for.
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
        """Return True if it has ended, with all that it started."""
        if self.owner != os.getpid():
            try:
                os.kill(self.guard.pid, 0)
            except ProcessLookupError:
                return True
            return False
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
            patience = time.monotonic() + 3 * _guard().GRACE  # it takes two at most
            while not self.ended():
                if time.monotonic() > patience:
                    os.kill(self.guard.pid, _guard().KILL)
                time.sleep(_ENDING)
            if self.temporary and not self.failed:
                self.log.unlink(missing_ok=True)


def _kill_session(leader: int) -> None:
    """Kill what is left of a session, and give up after a while on what the system itself holds back."""
    guard = _guard()
    patience = time.monotonic() + guard.GRACE
    while guard.members(leader) and time.monotonic() < patience:
        guard.send(leader, guard.KILL)
        time.sleep(_ENDING)


_LINES = 15  # of the log, that an error quotes
_BYTES = 65_536


# Patterns of what llama.cpp, PyTorch, CUDA, vLLM, uvicorn and argparse write, and what to do then; the first that fits
# counts.
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
    (r"No module named|is not installed", "something is not installed; {install}"),
    (
        r"unrecognized arguments|has no option|does not take",
        "it does not know an option, or not with that value",
    ),
)
_KILL_CODE = 137  # of a process that SIGKILL ended
_KILLED: Final = "the system may have killed it for want of memory; take a smaller model or a shorter context"


def how(code: int | None) -> str:
    """Return how a process ended, as the end of a sentence about it.

    Args:
        code: Its exit code as a shell or :mod:`subprocess` has it: a signal's number is behind 128, or negative. None
            which only the process that started it knows.
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
    return known.format(install=install) or (_KILLED if code == _KILL_CODE else "")


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


class EngineProcess:
    """A local engine as a process, which lives no longer than this one does, however it ends.

    Between the two stands :mod:`lazyprompt.modules.guard`. All methods may be called from any thread; the process can
    be started again after it was stopped or died. POSIX only.

    Args:
        engine: The engine, or its name.
        model: The model, as the engine knows it.
        port: The port at 127.0.0.1; None for any that is free.
        options: The engine's own options, as :meth:`~lazyprompt.modules.engines.Engine.command` takes them. A
            :class:`lazyprompt.Secret` among them shows in no error, but on the command line of the process.
        log: The file that its output is appended to; None for a temporary one, removed when all went well.
        timeout: Seconds that it may take to be ready.

    Raises:
        EngineError: There is no such engine, or the port is none.
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
        self.model = os.path.expanduser(str(model))  # noqa: PTH111 - a name at a hub is no path
        if not self.engine.program:
            raise EngineError(
                f"lazyprompt starts llama.cpp and vLLM, not {self.engine.name}: start it by hand and give its url="
            )
        if port is not None and not 0 < port < 1 << 16:
            raise EngineError(f"a port is a number from 1 to 65535, not {port}")
        self._port = port
        self._options = dict(options or {})
        self._log = None if log is None else Path(log)
        self._timeout = timeout
        self._starting = Lock()
        self._run: _Run | None = None
        self._at_exit: weakref.finalize[[], EngineProcess] | None = None

    def start(self) -> Self:
        """Start the engine and wait until it is ready; nothing if it runs.

        Returns:
            Itself.

        Raises:
            EngineError: It is not installed, the port is taken, it died, was stopped, or was not ready in time. Where
                it had begun, with the last lines of its log, its command and what to do.
        """
        if os.name != "posix":
            raise EngineError("engines are started on POSIX systems only; start it by hand and give its url")
        with self._starting:
            if self.status() != "running":
                self._start()
        return self

    def stop(self) -> None:
        """End the engine and wait until nothing is left of it; nothing if it does not run."""
        if self._run is not None:
            self._run.stop()

    def status(self) -> Status:
        """Return its state: stopped, starting, running, or died by itself."""
        run = self._run
        if run is None or run.stopping:
            return "stopped"
        if run.ended():
            return "died"
        return "running" if run.ready else "starting"

    def why(self, wait: float = 0.0) -> str:
        """Return the reason of its death.

        Args:
            wait: Seconds to wait for its end: a connection is lost a moment before the process is seen to be gone.

        Returns:
            How it ended, what to do, its command and the last lines of its log; empty if it did not die.
        """
        run, until = self._run, time.monotonic() + wait
        while run is not None and not run.stopping:
            if run.ended():
                return self._story(run, how(run.guard.returncode), run.guard.returncode)
            if time.monotonic() >= until:
                break
            time.sleep(_PAUSE)
        return ""

    @property
    def url(self) -> str:
        """Its address: scheme, host and port.

        Raises:
            EngineError: It was not started, or was stopped.
        """
        return f"http://{HOST}:{self._known().port}"

    @property
    def log(self) -> Path:
        """The file that its output goes to.

        Raises:
            EngineError: It was not started, or was stopped.
        """
        return self._known().log

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.engine.name!r}, {self.model!r}, status={self.status()!r})"

    def _known(self) -> _Run:
        if self._run is None or self._run.stopping:
            raise EngineError(f"{self.engine.name} does not run; call start() first")
        return self._run

    def _start(self) -> None:
        for left in reversed(range(_ATTEMPTS)):
            self.stop()
            run = self._launched()
            try:
                with _telling(f"{self.engine.name} is loading {self.model}, its log is {run.log}"):
                    self._wait(run)
            except EngineError:
                # Between our look for a free port and its own, somebody else may have taken it.
                if self._port is None and left and self.status() == "died" and not _is_free(run.port):
                    run.failed = False  # so that nothing is left of it, the log included
                    continue
                raise
            except BaseException:
                run.stop()
                raise
            return

    def _launched(self) -> _Run:
        """Start the engine's process."""
        program = self.engine.executable()
        if program is None:
            what = f"package {self.engine.package}" if self.engine.package else f"program {self.engine.program[0]}"
            raise EngineError(f"{self.engine.name} is not installed, there is no {what}; {self.engine.install_advice}")
        port = _free_port() if self._port is None else self._port
        if not _is_free(port):
            raise EngineError(f"port {port} at {HOST} is taken; give another one, or none for any that is free")
        _, *arguments = self.engine.command(self.model, port, self._options)
        with self._opened_log() as file:
            log, offset = self._log or Path(file.name), file.seek(0, os.SEEK_END)
            guard = subprocess.Popen(  # noqa: S603 - no shell; the program is the engine's, the rest its user's
                # The file: with -m, a module of that name in the working directory would come first.
                [sys.executable, "-P", str(_guard().__file__), program, *arguments],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
                # Output that waits in a buffer is lost when it is killed.
                env=os.environ | {"PYTHONUNBUFFERED": "1", _guard().LOG: "" if self._log else file.name},
                # Ctrl-C is for us: we end it, it does not end beside us.
                start_new_session=True,
            )
        run = self._run = _Run(guard, port, log, offset, temporary=self._log is None)
        if self._at_exit is not None:
            self._at_exit.detach()  # of the run before, which has ended
        self._at_exit = weakref.finalize(self, run.stop)
        return run

    def _opened_log(self) -> IO[bytes]:
        try:
            if self._log is not None:
                return os.fdopen(open_own(self._log, os.O_APPEND), "ab")
            prefix = f"lazyprompt-{self.engine.name}-"
            return tempfile.NamedTemporaryFile("ab", prefix=prefix, suffix=".log", delete=False)
        except OSError as error:
            raise EngineError(f"cannot write the log {self._log or ''}: {error.strerror}") from error

    def _wait(self, run: _Run) -> None:
        """Wait until the engine is ready."""
        until = time.monotonic() + self._timeout
        while True:
            # Another process may have taken the port meanwhile, and may even say that it is healthy.
            healthy = _is_healthy(f"http://{HOST}:{run.port}{_HEALTH}") and _guard().listens(run.guard.pid, run.port)
            if run.stopping:
                raise EngineError(f"{self.engine.name} was stopped while it started")
            if run.ended():
                raise EngineError(self._story(run, how(run.guard.returncode), run.guard.returncode))
            if healthy:
                run.ready = True
                return
            if time.monotonic() > until:
                run.failed = True
                run.stop()
                raise EngineError(self._story(run, f"was not ready after {self._timeout:g} s, which is its timeout"))
            time.sleep(_PAUSE)

    def _story(self, run: _Run, end: str, code: int | None = None) -> str:
        """Return what happened, what to do, the command and the last lines of the log, without secrets."""
        lines = tail(run.log, run.offset)
        shown = {name: _hidden(value) for name, value in self._options.items()}
        first = f"{self.engine.name} with the model {self.model} {end}"
        todo = advice(lines, code, self.engine.install_advice)
        story = "\n".join(
            (
                f"{first}: {todo}" if todo else first,
                f"command: {shlex.join(self.engine.command(self.model, run.port, shown))}",
                f"log: {run.log}, which ends:",
                *(f"    {line}" for line in lines or ["(it says nothing)"]),
            )
        )
        for value in self._options.values():
            for part in cast("list[object]", value) if isinstance(value, (list, tuple)) else [value]:
                story = part.hidden_in(story) if isinstance(part, Secret) else story
        return story


def _hidden(value: object) -> object:
    """Return an option without secrets."""
    if isinstance(value, (list, tuple)):
        return [_hidden(part) for part in cast("list[object]", value)]
    return str(value) if isinstance(value, Secret) else value


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as at:
        return int(at.getsockname()[1])


def _is_free(port: int) -> bool:
    """Return True if a server can listen at a port."""
    try:
        socket.create_server((HOST, port)).close()
    except OSError:
        return False
    return True


def _is_healthy(url: str) -> bool:
    """Return True if an engine says that it is ready.

    It is no call of a model: the clients have no method for it, and would try again and log by themselves.
    """
    from urllib3 import PoolManager, Timeout  # noqa: PLC0415 - slow, and not needed to describe an engine
    from urllib3.exceptions import HTTPError  # noqa: PLC0415 - the same

    try:
        with PoolManager(retries=False, timeout=Timeout(total=_ANSWER)) as pool:
            return pool.request("GET", url, preload_content=False).status == 200  # noqa: PLR2004 - HTTP's OK
    except HTTPError:
        return False  # it does not listen yet


@contextmanager
def _telling(what: str) -> Generator[None]:
    """Show on a terminal what is waited for, and for how long already."""
    if sys.stderr is None or not sys.stderr.isatty():  # it is None where there is no console
        yield
        return
    from rich.console import Console  # noqa: PLC0415 - slow, and for terminals only
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - the same

    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task(what, total=None)
        yield
