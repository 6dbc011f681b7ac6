"""Write docs/reference/commands.md from the commands themselves.

python docs/make_commands.py
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lazyprompt.cli.main import commands as group

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
HEAD = """# Commands

Read out of the commands; `lazyprompt COMMAND --help` prints the same with examples. How they are used is in
[Prompt files and the command line](command-line.md).

| command | does |
|---|---|
"""


def commands(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    """All commands with their whole names; of a group its commands, and itself if it does something alone."""
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        found = command.get_command(context, name) if isinstance(command, click.Group) else None
        if found is not None:
            inner = click.Context(found, info_name=name, parent=context)
            if not isinstance(found, click.Group):
                yield f"{context.command_path} {name}", found
            yield from commands(found, inner)


def first_line(text: str | None) -> str:
    """The first paragraph of a help text as one line."""
    return " ".join((text or "").replace("\f", "\n\n").strip().partition("\n\n")[0].split())


def cell(text: str) -> str:
    """Text as a cell of a table."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def told(option: click.Option) -> str:
    """What an option is: its help, its choices, its default."""
    parts = [cell(first_line(option.help))] if option.help else []
    if isinstance(option.type, click.Choice):
        parts.append("One of " + ", ".join(f"`{each}`" for each in option.type.choices) + ".")
    if option.show_default and option.default is not None and not callable(option.default):
        parts.append(f"Default: `{option.default}`.")
    if option.multiple:
        parts.append("May be given more than once.")
    return " ".join(parts)


def section(name: str, command: click.Command) -> str:
    """A command: what it takes, and its options."""
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    shown = [each.human_readable_name if each.required else f"[{each.human_readable_name}]" for each in arguments]
    options = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
    lines = [f"\n## {name}\n", f"{cell(first_line(command.help))}\n", f"`{' '.join([name, *shown])}`\n"]
    if options:
        lines += ["| option | is |", "|---|---|"]
    for option in options:
        names = ", ".join(f"`{each}`" for each in (*option.opts, *option.secondary_opts))
        value = f" `{option.metavar}`" if option.metavar else ""
        lines.append(f"| {names}{value} | {told(option)} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """The whole page."""
    every = list(commands(group, group.make_context("lazyprompt", [], resilient_parsing=True)))
    parts = [HEAD]
    parts += [f"| [`{name}`](#{name.replace(' ', '-')}) | {cell(first_line(each.help))} |\n" for name, each in every]
    parts += [section(name, each) for name, each in every]
    return "".join(parts)


if __name__ == "__main__":
    (ROOT / "docs" / "reference" / "commands.md").write_text(page(), encoding="utf-8")
