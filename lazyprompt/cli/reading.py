"""Text that a command reads: from files, and from the standard input."""

from __future__ import annotations

import errno
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

from lazyprompt._base.files import read_regular
from lazyprompt.cli.errors import WrongUseError
from lazyprompt.cli.output import reason

if TYPE_CHECKING:
    from typing import TextIO

# The largest file that an option may name, in bytes.
_MOST = 268_435_456
# A shell opens these for this process, even as pipes.
_OWN_STREAMS = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
_KINDS: dict[type, str] = {
    dict: "an object",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a boolean",
    type(None): "null",
}


class Stdin:
    """The standard input, which can be read once."""

    def __init__(self) -> None:
        self._reader: str | None = None

    def read(self, reader: str) -> str:
        """Read all of it.

        Args:
            reader: The option that needs it.

        Raises:
            WrongUseError: Another option has read it, or it is not UTF-8.
        """
        if self._reader is not None:
            raise WrongUseError(reader, f"the standard input was read already, by {self._reader}")
        self._reader = reader
        stdin: TextIO | None = sys.stdin  # None if the process was started without it
        if stdin is None:
            return ""
        try:
            data = stdin.buffer.read()
        except OSError as error:
            raise WrongUseError(reader, f"the standard input: {reason(error)}") from error
        return _decode(data, reader, "the standard input")

    def read_if_piped(self) -> str:
        """Read all of it, or nothing if a person sits at a terminal."""
        stdin: TextIO | None = sys.stdin
        return "" if stdin is None or stdin.isatty() else self.read("stdin")

    def value(self, where: str, text: str) -> str:
        """Read the value of an option: ``@file``, ``@-``, ``@@x`` for ``@x``, or the text itself.

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
    """Read the list in the JSON file of an option; None if the option was not given.

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
    """Parse a JSON object; None if the text is something else."""
    value = json_or_text(text)
    return cast("dict[str, object]", value) if isinstance(value, dict) else None


def json_or_text(text: str) -> object:
    """Parse JSON; text that is not JSON stays text."""
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value


def file_text(where: str, path: str, advice: str = "") -> str:
    """Read the text of a file.

    Args:
        where: The option or argument that names the file.
        path: The file.
        advice: The end of an error message.

    Raises:
        WrongUseError: The file cannot be read as UTF-8.
    """
    if not path:
        raise WrongUseError(where, f"the name of the file is empty{advice}")
    try:
        data = _read_bytes(path)
    except (OSError, ValueError) as error:  # a path with a NUL character is a ValueError
        raise WrongUseError(where, f"{path}: {reason(error)}{advice}") from error
    return _decode(data, where, path)


def _read_bytes(path: str) -> bytes:
    if not path.startswith(_OWN_STREAMS):
        return read_regular(path, _MOST)
    with Path(path).open("rb") as file:
        data = file.read(_MOST + 1)
    if len(data) > _MOST:
        raise OSError(errno.EFBIG, f"it has more than {_MOST:,} bytes")
    return data


def _decode(data: bytes, where: str, name: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise WrongUseError(where, f"{name}: byte 0x{data[error.start]:02x} at {error.start} is not UTF-8") from error
