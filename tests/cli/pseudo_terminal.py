"""The command line on a pseudo-terminal, as for a person who types."""

import os
import select
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

SECONDS = 60.0  # a time limit that suffices on a busy machine
CTRL_D = "\x04"
_CTRL_C = "\x03"
_RETRY_AFTER = 1.0  # seconds

# The leader of the session opens the terminal by its name: from then on, Ctrl-C in it sends a signal to the program.
_PROGRAM = (
    "import os, sys; os.close(os.open(os.ttyname(0), os.O_RDWR)); "
    "from lazyprompt.cli.main import main; sys.exit(main())"
)
_UNSET = {"NO_COLOR", "FORCE_COLOR", "TERM", "INPUTRC"}


def _open(columns: int = 0) -> tuple[int, int]:
    """Open a terminal with a number of columns, or 0 for the default; return our end and the program's."""
    import fcntl  # noqa: PLC0415 - not on Windows, where the tests are skipped
    import pty  # noqa: PLC0415 - as above
    import termios  # noqa: PLC0415 - as above

    ours, theirs = pty.openpty()
    if columns:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 200, columns, 0, 0))
    return ours, theirs


def written_to_terminal(command: Sequence[str], env: Mapping[str, str], columns: int = 0) -> bytes:
    """Run Python with arguments on a terminal, and return its output."""
    end, theirs = _open(columns)
    clean = {name: value for name, value in os.environ.items() if name not in {*_UNSET, "COLUMNS"}}
    with subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, *command], stdin=theirs, stdout=theirs, stderr=theirs, env={**clean, **env}
    ) as running:
        os.close(theirs)
        chunks: list[bytes] = []
        while chunk := _read(end):
            chunks.append(chunk)
        assert running.wait(SECONDS) == 0, b"".join(chunks)
    os.close(end)
    return b"".join(chunks)


def _read(end: int) -> bytes:
    try:
        return os.read(end, 65536)
    except OSError:  # on Linux: the other end is closed
        return b""


class OnTerminal:
    """The program on a terminal of its own; leaving the context kills it.

    Args:
        argv: The arguments of the program.
        folder: A folder, for a file that keeps readline from sending escapes of its own.
        env: Variables of its environment.
    """

    def __init__(self, *argv: str, folder: Path, **env: str) -> None:
        settings = folder / "inputrc"
        settings.write_text("set enable-bracketed-paste off\n", encoding="ascii")
        clean = {name: value for name, value in os.environ.items() if name not in _UNSET}
        self._end, theirs = _open()
        self._running = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-c", _PROGRAM, *argv],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env={**clean, "TERM": "xterm", "INPUTRC": str(settings), **env},
        )
        os.close(theirs)
        self._shown = ""
        self._looked_at = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.kill()
        self._running.wait()
        os.close(self._end)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._end, keys.encode())

    def interrupt(self, text: str) -> None:
        """Press Ctrl-C until a text is shown: Python misses a signal that comes just before it begins to wait.

        Keys that were typed before must be shown already: Ctrl-C makes the terminal discard unread keys, and readline
        would wait for them.

        Raises:
            TimeoutError: The text is not shown.
        """
        patience = time.monotonic() + SECONDS
        while True:
            self.type(_CTRL_C)
            try:
                self.until(text, _RETRY_AFTER)
            except TimeoutError:
                if time.monotonic() > patience:
                    raise
            else:
                return

    def until(self, text: str, seconds: float = SECONDS) -> str:
        """Return the output since the last call, up to and including a text.

        Raises:
            TimeoutError: The text is not shown.
        """
        patience = time.monotonic() + seconds
        while (at := self._shown.find(text, self._looked_at)) < 0:
            if not self._more(patience - time.monotonic()):
                raise TimeoutError(f"{text!r} is not shown, but {self._shown!r}")
        begin, self._looked_at = self._looked_at, at + len(text)
        return self._shown[begin : self._looked_at]

    def ended(self) -> tuple[int, str]:
        """Wait for the end; return the exit status and the rest of the output."""
        while self._more(SECONDS):
            pass
        return self._running.wait(SECONDS), self._shown[self._looked_at :]

    def _more(self, seconds: float) -> bool:
        """Wait for more output, and return whether there was any."""
        ready, _, _ = select.select([self._end], [], [], max(0.0, seconds))
        chunk = _read(self._end) if ready else b""
        self._shown += chunk.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(chunk)
