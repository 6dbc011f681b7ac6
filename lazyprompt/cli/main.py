"""The command line: the list of commands, the entry point and its exit statuses.

Wrong use prints one line that names the option to the standard error, never a traceback, and exits with status 2. A
model that fails to answer exits with status 1.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

import click

from lazyprompt._version import __version__
from lazyprompt.cli.choices import CommandGroup
from lazyprompt.cli.streams import CommandError, drop_stdout, note, reason

# Each command is `command` in the module of its name. The summaries are repeated here, so that --help imports no
# command. To add a command, write its module and add its line. `check-template` is in the module of `check`.
COMMANDS: Final = {
    "batch": "Write a prompt for each row of a file.",
    "cache": "Show what a prompt cache saves, and what breaks it.",
    "check": "Find mistakes in prompt files.",
    "check-template": "Report what a model's chat template supports.",
    "convert": "Write a prompt file in another form.",
    "inspect": "Show where each part of a prompt came from, and its cost.",
    "lib": "List, show and compare the prompts of a library.",
    "list": "List the known model families or providers.",
    "render": "Render a prompt from a prompt file or from options.",
    "run": "Ask a model, or chat with it.",
    "studio": "Edit prompts, and see what each model is sent.",
    "test": "Test prompts with cases, and show what changed.",
    "tokens": "Count the tokens of a prompt, by slot and by message.",
}
_PLACES: Final = {"check-template": ("check", "check_template")}
_WRONG_USE, _INTERRUPTED, _PIPE_CLOSED = 2, 130, 141


def main(argv: list[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: The arguments without the program's name; those of the process if left out.

    Returns:
        The exit status: 0, 1 if a model failed to answer, 2 for wrong use, 130 after Ctrl-C, 141 if the output pipe was
        closed.
    """
    try:
        arguments = sys.argv[1:] if argv is None else argv
        result: object = commands.main(arguments, prog_name="lazyprompt", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except (click.Abort, KeyboardInterrupt):
        return _INTERRUPTED
    except click.ClickException as error:
        # The formatted message of a bad parameter repeats its name; a missing parameter has only that message.
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
    """Write an error in one line."""
    # In one line, the caret below a line of YAML has no meaning.
    lines = [line.strip() for line in what.splitlines()]
    message = "; ".join(line for line in lines if line not in ("", "^")).replace(":; ", ": ").replace(",; ", ", ")
    note(f"error: {where}: {message}")


def _blame(error: click.ClickException) -> str:
    """Name the option, argument or command that an error is about."""
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
    """A group that imports a command on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """List the names."""
        return [*COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        module, name = _PLACES.get(cmd_name, (cmd_name, "command"))
        command: click.Command = getattr(import_module(f"lazyprompt.cli.{module}"), name)
        for each in (command, *getattr(command, "commands", {}).values()):
            # \b keeps click from wrapping the examples; raw docstrings contain the escape.
            each.help = (each.help or "").replace("\\b\n", "\b\n")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        """Write the commands of ``--help``, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([*COMMANDS.items()])


@click.group(cls=_Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="lazyprompt", message="%(prog)s %(version)s")
@click.pass_context
def commands(context: click.Context) -> None:
    """One definition of a prompt, exactly what every model takes."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
