"""Functions that read the input of commands, write their output, and raise usage errors that name an option."""

from __future__ import annotations

import errno
import json
import os
import sys
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TextIO, cast

import click

from lazyprompt._base.characters import visible
from lazyprompt._base.files import read_regular, write_whole
from lazyprompt._base.secret import shown
from lazyprompt.errors import LazyPromptError

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Sequence
    from io import TextIOWrapper

    from lazyprompt._base.json import Json


# The maximum size, in bytes, of a file passed as an option.
_MOST = 268_435_456
# Prefixes of paths to the process's own streams, which may be pipes.
_OWN_STREAMS = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
_KINDS: dict[type, str] = {dict: "an object", str: "a string", bool: "a boolean", type(None): "null"}


class CommandError(click.ClickException):
    """An error about an option, argument or stream.

    Args:
        where: The option, argument or stream.
        what: The error message.
    """

    def __init__(self, where: str, what: str) -> None:
        super().__init__(what)
        self.where = where


class WrongUseError(CommandError):
    """A usage error on the command line."""

    exit_code = 2


class NoAnswerError(CommandError):
    """A model failed to respond, although the command line is valid."""


@contextmanager
def blaming(where: str, path: str | None = None) -> Generator[None]:
    """Turn errors from the library and the file system into usage errors for an option.

    Args:
        where: The option or argument.
        path: The file's name in the error message; None to use the name in the ``OSError``.

    Raises:
        WrongUseError: An error was raised inside the block.
    """
    try:
        yield
    except LazyPromptError as error:
        raise WrongUseError(where, str(error)) from error
    except OSError as error:
        raise WrongUseError(where, f"{path or error.filename}: {error.strerror}") from error


def reason(error: Exception) -> object:
    """Return an error's message; for an ``OSError``, return the message without its number and file name."""
    return getattr(error, "strerror", None) or error


class Stdin:
    """A reader for standard input, which can be read only once.

    Args:
        shared: True if two prompts may read standard input; each receives the same text.
    """

    def __init__(self, *, shared: bool = False) -> None:
        self._shared = shared
        self._reader: str | None = None
        self._text = ""

    def read(self, reader: str) -> str:
        """Read all of standard input.

        Args:
            reader: The name of the option that reads standard input, used in error messages.

        Raises:
            WrongUseError: Another option has already read standard input, or the input is not valid UTF-8.
        """
        if self._reader is not None:
            if self._shared:
                return self._text
            raise WrongUseError(reader, f"standard input was already read for {self._reader}")
        self._reader = reader
        stdin: TextIO | None = sys.stdin  # None if the process was started without standard input
        try:
            data = b"" if stdin is None else stdin.buffer.read()
        except OSError as error:
            raise WrongUseError(reader, f"standard input: {reason(error)}") from error
        self._text = _decode(data, reader, "standard input")
        return self._text

    def read_if_piped(self) -> str:
        """Read all of standard input; return an empty string if standard input is a terminal."""
        stdin: TextIO | None = sys.stdin
        return "" if stdin is None or stdin.isatty() else self.read("stdin")

    def value(self, where: str, text: str) -> str:
        """Return an option's value; ``@file`` and ``@-`` are read, and ``@@x`` becomes ``@x``.

        Raises:
            WrongUseError: The file cannot be read.
        """
        if not text.startswith("@"):
            return text
        if text.startswith("@@"):
            return text[1:]
        if text == "@-":
            return self.read(where)
        return file_text(where, text[1:], " (for text that starts with @, write @@)")


def json_list(where: str, path: str | None) -> list[Json] | None:
    """Read a list from the JSON file that an option names; return None if the option is not set.

    Raises:
        WrongUseError: The file cannot be read, or does not contain a list.
    """
    if path is None:
        return None
    try:
        value: Json = json.loads(file_text(where, path))
    except (ValueError, RecursionError) as error:
        raise WrongUseError(where, f"{path}: not valid JSON: {error}") from error
    if not isinstance(value, list):
        kind = _KINDS.get(type(value), "a number")
        raise WrongUseError(where, f"{path}: must contain a JSON list, not {kind}")
    return value


def json_or_text(text: str) -> Json:
    """Parse JSON text; return any other text unchanged."""
    try:
        value: Json = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value


def file_text(where: str, path: str, advice: str = "") -> str:
    """Read the text of a file.

    Args:
        where: The option or argument that names the file.
        path: The file's path.
        advice: Text to append to error messages.

    Raises:
        WrongUseError: The file cannot be read as UTF-8.
    """
    if not path:
        raise WrongUseError(where, f"the file name is empty{advice}")
    try:
        data = _read_bytes(path)
    except (OSError, ValueError) as error:  # a path with a NUL character raises a ValueError
        raise WrongUseError(where, f"{path}: {reason(error)}{advice}") from error
    return _decode(data, where, path)


def _read_bytes(path: str) -> bytes:
    if not path.startswith(_OWN_STREAMS):
        return read_regular(path, _MOST)
    with Path(path).open("rb") as file:
        data = file.read(_MOST + 1)
    if len(data) > _MOST:
        raise OSError(errno.EFBIG, f"file is too large; the limit is {_MOST:,} bytes")
    return data


def _decode(data: bytes, where: str, name: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise WrongUseError(
            where, f"{name}: byte 0x{data[error.start]:02x} at offset {error.start} is not UTF-8"
        ) from error


def write_text(text: str, path: str | None = None) -> None:
    """Write text as UTF-8, without converting line endings.

    Args:
        text: The text.
        path: The file to write; None for standard output.

    Raises:
        WrongUseError: The file cannot be written.
        OSError: Standard output cannot be written to.
    """
    data = text.encode()
    if path is None:
        stdout: TextIO | None = sys.stdout  # None if the process was started without standard output
        if stdout is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        binary: BinaryIO | None = getattr(stdout, "buffer", None)
        if binary is None:  # the calling program set a text-only stream such as io.StringIO
            stdout.write(text)
            return
        binary.write(data)
        binary.flush()
        return
    try:
        write_whole(Path(path), data)
    except (OSError, ValueError) as error:
        raise WrongUseError("--output", f"{path}: {reason(error)}") from error


def write_visible(text: str, path: str | None = None) -> None:
    """Write text like :func:`write_text`, but escape control characters on a terminal."""
    write_text(visible(text) if goes_to_terminal(path) else text, path)


def write_json(value: object, path: str | None = None, *, indent: int | None = None) -> None:
    """Write a value as JSON with :func:`write_visible`.

    Args:
        value: The value.
        path: The file to write; None for standard output.
        indent: The number of spaces per indentation level; None for one line.
    """
    write_visible(json_text(value, indent=indent) + "\n", path)


def json_text(value: object, *, indent: int | None = None) -> str:
    """Serialize a value as JSON, on one line without ``indent``; values from the environment become references."""
    return json.dumps(
        shown(value), ensure_ascii=False, indent=indent, separators=(",", ":") if indent is None else None
    )


def write_lines(lines: Iterable[str]) -> None:
    """Write lines to standard output."""
    write_text("".join(f"{line}\n" for line in lines))


class Screen:
    """Standard output, and standard input read line by line.

    On a terminal, control characters are escaped, and text is coloured unless the user disabled colours. If the output
    is not a terminal, text is written unchanged.

    Attributes:
        terminal: True if the output is a terminal.
        interactive: True if both the input and the output are terminals.
    """

    def __init__(self) -> None:
        self.terminal = goes_to_terminal()
        self._stdin: TextIO | None = sys.stdin  # None if the process was started without standard input
        self.interactive = self.terminal and self._stdin is not None and self._stdin.isatty()
        self._colored = self.terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._within_line = False
        if self.interactive:
            if find_spec("readline") is not None:
                import_module("readline")  # enables line editing and history in input()
            cast("TextIOWrapper", self._stdin).reconfigure(encoding="utf-8", errors="replace")

    def write(self, text: str, style: str = "") -> None:
        """Write text immediately.

        Args:
            text: The text.
            style: A style in rich's syntax; ignored unless the output is a terminal with colours.

        Raises:
            OSError: Standard output cannot be written to.
        """
        if not text:
            return
        self._within_line = not text.endswith("\n")
        shown = text.encode("utf-8", "replace").decode()  # replace lone surrogates, which can't be encoded
        if self.terminal:
            shown = visible(shown)
        if self._colored and style:
            from rich.color import ColorSystem
            from rich.style import Style

            shown = Style.parse(style).render(shown, color_system=ColorSystem.STANDARD)
        write_text(shown)

    def line(self, text: str, style: str = "") -> None:
        """Write text on a separate line."""
        self.end_line()
        self.write(text, style)
        self.end_line()

    def end_line(self) -> None:
        """End the current line if it contains text."""
        if self._within_line:
            self.write("\n")

    def read(self, prompt: str) -> str | None:
        r"""Read a line; a ``\`` at the end of a line continues it on the next line.

        Args:
            prompt: The input prompt to show on a terminal.

        Returns:
            The text without its last newline, or None at the end of the input.

        Raises:
            WrongUseError: The input is not valid UTF-8.
            KeyboardInterrupt: The user pressed Ctrl-C.
        """
        self.end_line()
        lines: list[str] = []
        line = self._line(prompt)
        while line is not None and line.endswith("\\"):
            lines.append(line[:-1])
            line = self._line("... ")
        if line is None:
            return "\n".join(lines) if lines else None
        return "\n".join((*lines, line))

    def _line(self, prompt: str) -> str | None:
        if not self.interactive:
            return self._piped_line()
        self._within_line = True  # until the user ends the line
        try:
            line = input(visible(prompt))
        except EOFError:
            self.end_line()  # start the shell's prompt on a new line
            return None
        self._within_line = False
        return line

    def _piped_line(self) -> str | None:
        data = b"" if self._stdin is None else self._stdin.buffer.readline()
        if not data:
            return None
        try:
            return data.decode("utf-8-sig").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise WrongUseError("stdin", f"line contains byte 0x{data[error.start]:02x}, which is not UTF-8") from error


def note(text: str) -> None:
    """Write a line to standard error."""
    click.echo(visible(f"lazyprompt: {text}"), err=True)


def goes_to_terminal(path: str | None = None) -> bool:
    """Return True if ``path`` is None and standard output is a terminal."""
    stdout: TextIO | None = sys.stdout
    return path is None and stdout is not None and stdout.isatty()


def drop_stdout() -> None:
    """Redirect standard output to the null device after a failure, so that Python's flush at exit doesn't fail too."""
    stdout: TextIO | None = sys.stdout
    if stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stdout.fileno())


def table(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Align the cells of table rows for a terminal, where a Chinese character is two columns wide.

    Args:
        rows: The rows, starting with the header row.
        right: The indexes of the columns to align to the right.

    Returns:
        One line per row.
    """
    from rich.cells import cell_len

    columns: list[list[str]] = []
    for at, column in enumerate(zip(*rows, strict=True)):
        width = max(map(cell_len, column))
        gaps = [" " * (width - cell_len(cell)) for cell in column]
        columns.append([gap + cell if at in right else cell + gap for cell, gap in zip(column, gaps, strict=True)])
    return ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]
