"""What the command line reads and writes: option values, files, the standard streams."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path
from typing import NamedTuple, cast

import click

from lazyprompt._files import read_regular, write_whole
from lazyprompt.inspect.signs import visible

# The largest file that an option names; and what a shell opens for this process, be it a pipe.
_MOST = 268_435_456
_OWN_STREAMS = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")


class WrongUseError(click.ClickException):
    """Wrong use of the command line.

    Args:
        where: The option or argument to blame.
        what: What is wrong with it.
    """

    def __init__(self, where: str, what: str) -> None:
        super().__init__(what)
        self.where = where


class Stdin:
    """The standard input, which can be read once."""

    def __init__(self) -> None:
        self._reader: str | None = None

    def read(self, reader: str) -> str:
        """All of it, for the option ``reader``.

        Raises:
            WrongUseError: Another option has read it, or it cannot be read as UTF-8.
        """
        if self._reader is not None:
            raise WrongUseError(reader, f"the standard input was read already, by {self._reader}")
        self._reader = reader
        if _is_closed(sys.stdin):
            return ""
        try:
            data = sys.stdin.buffer.read()
        except OSError as error:
            raise WrongUseError(reader, f"the standard input: {_reason(error)}") from error
        return _decoded(data, reader, "the standard input")

    def read_if_piped(self) -> str:
        """All of it, or nothing where a person sits at a terminal."""
        return "" if _is_closed(sys.stdin) or sys.stdin.isatty() else self.read("stdin")

    def value(self, where: str, text: str) -> str:
        """What the value of an option stands for: ``@file``, ``@-``, ``@@x`` for ``@x``, or itself.

        Raises:
            WrongUseError: The file cannot be read.
        """
        if not text.startswith("@"):
            return text
        if text.startswith("@@"):
            return text[1:]
        if text == "@-":
            return self.read(where)
        return file_text(where, text[1:], " (a text that begins with @ is written @@)")


def json_list(where: str, path: str | None) -> list[object] | None:
    """The list in the JSON file of an option; ``None`` if the option was not given.

    Raises:
        WrongUseError: The file cannot be read, or holds something else.
    """
    if path is None:
        return None
    try:
        value: object = json.loads(file_text(where, path))
    except (ValueError, RecursionError) as error:
        raise WrongUseError(where, f"{path}: not JSON: {error}") from error
    if not isinstance(value, list):
        raise WrongUseError(where, f"{path}: must hold a JSON list, but holds {_KINDS[type(value)]}")
    return cast("list[object]", value)


def json_object(text: str) -> dict[str, object] | None:
    """The object, if the text is a JSON object."""
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, object]", value) if isinstance(value, dict) else None


def json_text(value: object, *, indent: int | None = None, terminal: bool = False) -> str:
    """A value as JSON to be written: one line, or indented ones; for a terminal without anything that it obeys."""
    separators = (",", ":") if indent is None else None
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators) + "\n"
    return visible(text) if terminal else text


_KINDS: dict[type, str] = {
    dict: "an object",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a boolean",
    type(None): "null",
}


def _reason(error: Exception) -> object:
    """What the system said, without the number and the name that an ``OSError`` puts around it."""
    return getattr(error, "strerror", None) or error


def file_text(where: str, path: str, advice: str = "") -> str:
    """The text of a file.

    Args:
        where: The option or argument that names it.
        path: The file.
        advice: What an error says at its end.

    Raises:
        WrongUseError: It cannot be read as UTF-8.
    """
    try:
        data = _bytes_of(path) if path else b""
    except (OSError, ValueError) as error:  # a path with a NUL character is a ValueError
        raise WrongUseError(where, f"{path}: {_reason(error)}{advice}") from error
    if not path:
        raise WrongUseError(where, f"the name of the file is empty{advice}")
    return _decoded(data, where, path)


def _bytes_of(path: str) -> bytes:
    if not path.startswith(_OWN_STREAMS):
        return read_regular(path, _MOST)
    with Path(path).open("rb") as file:
        data = file.read(_MOST + 1)
    if len(data) > _MOST:
        raise OSError(errno.EFBIG, f"it has more than {_MOST:,} bytes")
    return data


def _decoded(data: bytes, where: str, name: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise WrongUseError(where, f"{name}: byte 0x{data[error.start]:02x} at {error.start} is not UTF-8") from error


class Output(NamedTuple):
    """What a command made.

    Attributes:
        text: The text, written as UTF-8 to the byte.
        path: The file it goes to; ``None`` is the standard output.
    """

    text: str
    path: str | None = None

    def write(self) -> None:
        """Write it.

        Raises:
            WrongUseError: The file cannot be written.
            OSError: The standard output cannot be written.
        """
        data = self.text.encode()
        if self.path is None:
            _write_stdout(data)
            return
        try:
            write_whole(Path(self.path), data)
        except (OSError, ValueError) as error:
            raise WrongUseError("--output", f"{self.path}: {_reason(error)}") from error


def goes_to_terminal(path: str | None) -> bool:
    """Whether output for a file, or for the standard output where there is none, is seen on a terminal."""
    return path is None and not _is_closed(sys.stdout) and sys.stdout.isatty()


def _is_closed(stream: object) -> bool:
    """Whether the process was started without the stream, which type checkers do not expect."""
    return stream is None


def _write_stdout(data: bytes) -> None:
    if _is_closed(sys.stdout):
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def drop_stdout(error: OSError) -> str:
    """Give up the standard output, which failed: Python would try again on its way out, and complain.

    Returns:
        Why it failed.
    """
    if not _is_closed(sys.stdout):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return str(_reason(error))
