"""Text that a command writes: to a file, to the standard output, or as a note to the standard error; and tables."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from lazyprompt._base.files import write_whole
from lazyprompt._base.signs import visible
from lazyprompt.cli.errors import WrongUseError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from typing import TextIO


class Output(NamedTuple):
    """The text that a command made.

    Attributes:
        text: The text, written as UTF-8 to the byte.
        path: The file to write; None for the standard output.
    """

    text: str
    path: str | None = None

    def write(self) -> None:
        """Write the text.

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
            raise WrongUseError("--output", f"{self.path}: {reason(error)}") from error


def text_output(text: str, path: str | None = None) -> Output:
    """Return text to be written; on a terminal, control characters are shown, not obeyed.

    Args:
        text: The text.
        path: The file to write; None for the standard output.
    """
    return Output(visible(text) if goes_to_terminal(path) else text, path)


def json_output(value: object, path: str | None = None, *, indent: int | None = None) -> Output:
    """Return a value as JSON to be written: one line, or several with an indent.

    Args:
        value: The value.
        path: The file to write; None for the standard output.
        indent: The spaces to indent by; None for one line.
    """
    return text_output(json_text(value, indent=indent), path)


def json_text(value: object, *, indent: int | None = None) -> str:
    """Render a value as JSON, with a line end."""
    separators = (",", ":") if indent is None else None
    return json.dumps(value, ensure_ascii=False, indent=indent, separators=separators) + "\n"


def note(text: str) -> None:
    """Write a line to the standard error, beside the output."""
    click.echo(visible(f"lazyprompt: {text}"), err=True)


def reason(error: Exception) -> object:
    """Return the system's message of an error, without the number and the name that ``OSError`` adds."""
    return getattr(error, "strerror", None) or error


def goes_to_terminal(path: str | None = None) -> bool:
    """Return True if output for a file, or for the standard output without one, is seen on a terminal."""
    stdout: TextIO | None = sys.stdout  # None if the process was started without it
    return path is None and stdout is not None and stdout.isatty()


def _write_stdout(data: bytes) -> None:
    stdout: TextIO | None = sys.stdout
    if stdout is None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    stdout.buffer.write(data)
    stdout.buffer.flush()


def drop_stdout() -> None:
    """Give up the standard output after it failed: Python would write to it again at exit, and complain."""
    stdout: TextIO | None = sys.stdout
    if stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stdout.fileno())


def table(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Align the cells of rows as a terminal shows them, where a Chinese character takes two places.

    Args:
        rows: The rows, with the heading first.
        right: The columns to align to the right.

    Returns:
        A line for each row.
    """
    from rich.cells import cell_len  # noqa: PLC0415 - most commands write no table

    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    lines: list[str] = []
    for row in rows:
        gaps = [" " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
        cells = [
            gap + cell if at in right else cell + gap for at, (cell, gap) in enumerate(zip(row, gaps, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
