"""A screen for conversations: answers written piece by piece, and lines read, on a terminal or through pipes."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, cast

from lazyprompt._base.signs import visible
from lazyprompt.cli.errors import WrongUseError
from lazyprompt.cli.output import Output, goes_to_terminal

if TYPE_CHECKING:
    from io import TextIOWrapper
    from typing import TextIO


class Screen:
    """The standard output and, line by line, the standard input.

    On a terminal, control characters are shown, and there are colours unless the user turned them off; elsewhere text
    is written to the byte.

    Attributes:
        terminal: True if the output is seen on a terminal.
        interactive: True if a person sits there, who is asked for input.
    """

    def __init__(self) -> None:
        self.terminal = goes_to_terminal()
        self._stdin: TextIO | None = sys.stdin  # None where the process was started without
        self.interactive = self.terminal and self._stdin is not None and self._stdin.isatty()
        self._colored = self.terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._within_line = False
        if self.interactive:
            if find_spec("readline") is not None:
                import_module("readline")  # with it, input() lets lines be edited and called back
            cast("TextIOWrapper", self._stdin).reconfigure(encoding="utf-8", errors="replace")

    def write(self, text: str, style: str = "") -> None:
        """Write text at once.

        Args:
            text: The text.
            style: The style for a terminal with colours, as rich writes styles.

        Raises:
            OSError: The standard output cannot be written.
        """
        if not text:
            return
        self._within_line = not text.endswith("\n")
        shown = text.encode("utf-8", "replace").decode()  # half of a surrogate pair, which no file may hold
        if self.terminal:
            shown = visible(shown)
        if self._colored and style:
            from rich.color import ColorSystem  # noqa: PLC0415 - only colour needs it
            from rich.style import Style  # noqa: PLC0415 - as above

            shown = Style.parse(style).render(shown, color_system=ColorSystem.STANDARD)
        Output(shown).write()

    def line(self, text: str, style: str = "") -> None:
        """Write a line of its own."""
        self.end_line()
        self.write(text, style)
        self.end_line()

    def end_line(self) -> None:
        """Begin a new line, unless there is one."""
        if self._within_line:
            self.write("\n")

    def read(self, prompt: str) -> str | None:
        r"""Read the next text: a line, and while it ends with ``\``, the next one too.

        Args:
            prompt: The prompt for a person.

        Returns:
            The text without its last line end; None at the end of the input.

        Raises:
            WrongUseError: It is not UTF-8.
            KeyboardInterrupt: The person gave up the line.
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
        try:
            return input(visible(prompt))
        except EOFError:
            Output("\n").write()  # the shell's next prompt begins a line
            return None

    def _piped_line(self) -> str | None:
        data = b"" if self._stdin is None else self._stdin.buffer.readline()
        if not data:
            return None
        try:
            return data.decode("utf-8-sig").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise WrongUseError("stdin", f"a line is not UTF-8: it has the byte 0x{data[error.start]:02x}") from error
