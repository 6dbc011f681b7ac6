"""The command-line interface's entry point, table of commands and exit statuses.

For a usage error, one line that names the option is written to standard error, without a traceback; the exit status is
2. If a model fails to respond, the exit status is 1.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

import click

from lazyprompt._version import __version__
from lazyprompt.cli.choices import CommandGroup
from lazyprompt.cli.streams import CommandError, drop_stdout, note, reason

# The summaries are repeated here, so that --help doesn't import the commands.
# To add a command, define `command` in a module named after the command, and add a summary here.
COMMANDS: Final = {
    "batch": "Write a prompt for each row of a file.",
    "cache": "Show what a prompt cache saves, and what breaks it.",
    "check": "Find mistakes in prompt files.",
    "check-template": "Report what a model's chat template supports.",
    "convert": "Write a prompt file in another format.",
    "inspect": "Show where each part of a prompt came from, and its cost.",
    "lib": "List, show and compare the prompts of a library.",
    "list": "List the known model families or providers.",
    "render": "Render a prompt from a prompt file or from options.",
    "run": "Call a model, or chat with it.",
    "studio": "Edit prompts, and see what each model receives.",
    "test": "Test prompts with cases, and show what changed.",
    "tokens": "Count the tokens of a prompt, by slot and by message.",
}
_PLACES: Final = {"check-template": ("check", "check_template")}
_WRONG_USE, _INTERRUPTED, _PIPE_CLOSED = 2, 130, 141


def main(argv: list[str] | None = None) -> int:
    """Run the command-line interface.

    Args:
        argv: The arguments without the program's name; the process's arguments by default.

    Returns:
        The exit status: 0 for success, 1 if a model failed to respond, 2 for a usage error, 130 after Ctrl-C, or 141 if
        the output pipe was closed.
    """
    try:
        arguments = sys.argv[1:] if argv is None else argv
        result: object = commands.main(arguments, prog_name="lazyprompt", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except (click.Abort, KeyboardInterrupt):
        return _INTERRUPTED
    except click.ClickException as error:
        # A BadParameter's formatted message repeats the parameter's name, so prefer the raw message if there is one.
        message = (isinstance(error, click.BadParameter) and error.message) or error.format_message()
        _complain(_blame(error), message)
        return error.exit_code if isinstance(error, CommandError) else _WRONG_USE
    except OSError as error:
        drop_stdout()
        if isinstance(error, BrokenPipeError):
            return _PIPE_CLOSED
        _complain("stdout", str(reason(error)))
        return _WRONG_USE


def _complain(where: str, what: str) -> None:
    """Print an error on one line."""
    # Drop the caret under a YAML error, because the caret is meaningless after the lines are joined.
    lines = [line.strip() for line in what.splitlines()]
    message = "; ".join(line for line in lines if line not in ("", "^")).replace(":; ", ": ").replace(",; ", ", ")
    note(f"error: {where}: {message}")


def _blame(error: click.ClickException) -> str:
    """Return the option, argument or command that caused an error."""
    if isinstance(error, CommandError):
        return error.where
    if isinstance(error, click.NoSuchOption | click.BadOptionUsage):
        return error.option_name
    if isinstance(error, click.BadParameter) and error.param is not None:
        parameter = error.param
        return parameter.human_readable_name if isinstance(parameter, click.Argument) else max(parameter.opts, key=len)
    context = error.ctx if isinstance(error, click.UsageError) else None
    return "COMMAND" if context is None or context.parent is None else str(context.info_name)


class _Commands(CommandGroup):
    """A command group that imports each command on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the command names."""
        return [*COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        """Import and return a command."""
        if cmd_name not in COMMANDS:
            return None
        module, name = _PLACES.get(cmd_name, (cmd_name, "command"))
        command: click.Command = getattr(import_module(f"lazyprompt.cli.{module}"), name)
        for each in (command, *getattr(command, "commands", {}).values()):
            # Click's no-wrap marker is a backspace character. A raw docstring contains a backslash and a "b" instead,
            # so replace these two characters.
            each.help = (each.help or "").replace("\\b\n", "\b\n")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        """Write the command list for ``--help`` without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([*COMMANDS.items()])


@click.group(cls=_Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="lazyprompt", message="%(prog)s %(version)s")
@click.pass_context
def commands(context: click.Context) -> None:
    """Define a prompt once, and render it in the exact format that each model expects."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
