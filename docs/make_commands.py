"""Write the table of docs/reference/command-line.md from the commands themselves.

python docs/make_commands.py
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lazyprompt.cli.main import commands as group

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "command-line.md"
BEGIN, END = "<!-- commands: made by docs/make_commands.py -->\n", "<!-- end of commands -->\n"
HEAD = "| command | purpose |\n|---|---|\n"


def commands(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    """Yield each command that is not a group, with its full name."""
    if not isinstance(command, click.Group):
        yield context.command_path, command
        return
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        if found is not None:
            yield from commands(found, click.Context(found, info_name=name, parent=context))


def row(name: str, command: click.Command) -> str:
    """Return a command's table row: its arguments and the first paragraph of its help."""
    arguments = [each.human_readable_name for each in command.params if isinstance(each, click.Argument)]
    help_text = " ".join((command.help or "").replace("\f", "\n\n").strip().partition("\n\n")[0].split())
    cells = (f"`{' '.join([name.removeprefix('lazyprompt '), *arguments])}`", help_text)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def page() -> str:
    """Return the whole page; only the table changes."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    every = commands(group, group.make_context("lazyprompt", [], resilient_parsing=True))
    return "".join([before, BEGIN, HEAD, *(row(name, each) for name, each in every), END, after])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
