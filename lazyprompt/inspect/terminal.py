"""A rendered prompt on a terminal: coloured by slot, and unable to do anything to the terminal.

rich is imported when something is coloured, not before.
"""

from __future__ import annotations

import os
from io import StringIO
from itertools import cycle
from typing import TYPE_CHECKING, Literal, TypeAlias

from lazyprompt.inspect.signs import visible

if TYPE_CHECKING:
    from rich.console import Console

    from lazyprompt.prompt import Rendered

Color: TypeAlias = Literal["auto", "always", "never"]

# The standard colours, which every terminal has and lets its user choose; given out in this order.
PALETTE = (
    "cyan",
    "green",
    "yellow",
    "magenta",
    "blue",
    "red",
    "bright_cyan",
    "bright_green",
    "bright_yellow",
    "bright_magenta",
    "bright_blue",
    "bright_red",
)


def rendered_text(rendered: Rendered, color: Color = "auto", *, terminal: bool) -> str:
    """A flat prompt to be written: coloured for a terminal, byte-exact for anything else.

    On a terminal each slot has a colour, text that is not trusted is underlined, and a legend follows; control
    characters are written out. Without colour there is no legend.

    Args:
        rendered: The prompt.
        color: ``always``, ``never``, or ``auto`` for a terminal whose user has not set ``NO_COLOR``.
        terminal: Whether it goes to a terminal.

    Returns:
        The text to write.
    """
    allowed = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    if color == "always" or (color == "auto" and terminal and allowed):
        from rich.console import Console  # noqa: PLC0415 - rich costs 30 ms, and only colour needs it

        file = StringIO()
        _print_colored(
            rendered,
            Console(file=file, force_terminal=True, color_system="standard", no_color=False, legacy_windows=False),
        )
        return file.getvalue()
    return _whole_lines(visible(rendered.text)) if terminal else rendered.text


def _print_colored(rendered: Rendered, console: Console) -> None:
    from rich.text import Text  # noqa: PLC0415 - as above

    segments = rendered.segments
    # zip stops at the slots, of which there are finitely many; more slots than colours begin the palette anew.
    styles = dict(zip(dict.fromkeys(slot for _, slot, _ in segments), cycle(PALETTE), strict=False))
    body = Text()
    for text, slot, trusted in segments:
        body.append(visible(text), styles[slot] if trusted else f"{styles[slot]} underline")
    legend = Text(" · ").join(Text(slot, style) for slot, style in styles.items())
    if not all(trusted for _, _, trusted in segments):
        legend.append(" · ").append("not trusted", "underline")
    # soft_wrap: the terminal breaks long lines itself, so that a line copied from it is one line.
    console.print(body, end="" if rendered.text.endswith("\n") else "\n", soft_wrap=True)
    console.print(Text("── ").append_text(legend), soft_wrap=True)


def _whole_lines(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"
