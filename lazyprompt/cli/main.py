"""The command line: reads options, calls the library, writes what comes back.

Wrong use is one line on the standard error that names the option, and exit status 2; never a traceback. Where a model
gives no answer it is 1.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Unpack

import click

from lazyprompt._version import __version__
from lazyprompt.cli.models import NoAnswerError, model_options, sources_help
from lazyprompt.cli.prompts import (
    FILE_OPTIONS,
    PromptOptions,
    asked_prompt,
    prompt_options,
    text_option,
    with_options,
    words_options,
)
from lazyprompt.cli.streams import Output, WrongUseError, drop_stdout, goes_to_terminal, json_text
from lazyprompt.inspect.signs import visible
from lazyprompt.inspect.terminal import rendered_text
from lazyprompt.text.markers import Markers

if TYPE_CHECKING:
    from lazyprompt.cli.chat import ChatOptions
    from lazyprompt.cli.prompts import Asked
    from lazyprompt.cli.run import RunOptions
    from lazyprompt.cli.tokens import TokensOptions
    from lazyprompt.inspect.terminal import Color

_ELSEWHERE = {
    "batch": "batch:batch",
    "check": "check:check_command",
    "convert": "convert:convert",
    "doctor": "doctor:doctor",
    "inspect": "inspect:inspect",
    "lib": "lib:lib",
    "studio": "studio:studio",
}
_NO_ANSWER, _WRONG_USE, _INTERRUPTED, _PIPE_CLOSED = 1, 2, 130, 141


def main(argv: list[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: The arguments without the program's name; those of the process if left out.

    Returns:
        The exit status: 0, 1 where a model gave no answer, 2 for wrong use, 130 if interrupted, 141 if nobody reads
        the output any more.
    """
    try:
        arguments = sys.argv[1:] if argv is None else argv
        made: object = _cli.main(arguments, prog_name="lazyprompt", standalone_mode=False)
        if isinstance(made, Output):
            made.write()
        elif isinstance(made, int):
            return made
    except (click.Abort, KeyboardInterrupt):
        return _INTERRUPTED
    except NoAnswerError as error:
        _complain(error.where, error.message)
        return _NO_ANSWER
    except click.ClickException as error:
        # The message of a wrong parameter, formatted, begins with its name; a missing one has no other.
        said = (isinstance(error, click.BadParameter) and error.message) or error.format_message()
        return _complain(_blamed(error), said)
    except OSError as error:
        why = drop_stdout(error)
        return _PIPE_CLOSED if isinstance(error, BrokenPipeError) else _complain("stdout", why)
    return 0


def _complain(where: str, what: str) -> int:
    """Say in one line what is wrong."""
    # Lines are joined, where a caret under a line of YAML would point nowhere.
    lines = [line.strip() for line in what.splitlines()]
    said = "; ".join(line for line in lines if line not in ("", "^")).replace(":; ", ": ").replace(",; ", ", ")
    click.echo(visible(f"lazyprompt: error: {where}: {said}"), err=True)
    return _WRONG_USE


def _blamed(error: click.ClickException) -> str:
    """The option, argument or command that an error is about."""
    if isinstance(error, WrongUseError):
        return error.where
    if isinstance(error, click.NoSuchOption | click.BadOptionUsage):
        return error.option_name
    if isinstance(error, click.BadParameter) and error.param is not None:
        parameter = error.param
        return parameter.human_readable_name if isinstance(parameter, click.Argument) else max(parameter.opts, key=len)
    context = error.ctx if isinstance(error, click.UsageError) else None
    return "COMMAND" if context is None or context.parent is None else str(context.info_name)


class _Commands(click.Group):
    """The commands; those that read files are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names."""
        return sorted({*super().list_commands(ctx), *_ELSEWHERE})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name."""
        if cmd_name not in _ELSEWHERE:
            return super().get_command(ctx, cmd_name)
        module, _, command = _ELSEWHERE[cmd_name].partition(":")
        found: click.Command = getattr(import_module(f"lazyprompt.cli.{module}"), command)
        return found


@click.group(cls=_Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="lazyprompt", message="%(prog)s %(version)s")
@click.pass_context
def _cli(context: click.Context) -> None:
    """One definition of a prompt, exactly what every model takes."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


class _RenderOptions(PromptOptions):
    as_json: bool
    color: Color
    output: str | None


@_cli.command()
@prompt_options
@click.option("--json", "as_json", is_flag=True, help="One line of JSON; for flat text with its segments.")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True)
@click.option("-o", "--output", metavar="FILE", help="Write to a file, in one step.")
def render(**options: Unpack[_RenderOptions]) -> Output:
    """Make a prompt, from a prompt file or from options.

    PROMPT_FILE is a .prompty, .prompt or YAML prompt file. The first two say of which kind an input is: texts and
    addresses are given as they are, all else as JSON; @FILE is the picture, sound or file itself.

    In --set and --input, @FILE is the text of a file, @- the standard input, and @@x is @x. Without either, what is
    piped in is the input: a JSON object gives the slots their values, any other text is as for --input.

    \b
    Examples:
      lazyprompt render order.prompty --set urgent=true --input 'Where is it?'
      lazyprompt render --instruction 'Answer in {language}.' \\
          --set language=French --input 'Who are you?' --model qwen2.5
      lazyprompt render qa.yaml --set document=@report.txt --set question='Who?'
      cat report.txt | lazyprompt render summary.yaml --format openai
    """  # noqa: D301 - \b is how click is told not to wrap
    if options["color"] == "always" and (options["as_json"] or options["form"] != "flat"):
        raise WrongUseError("--color", "only flat text has colour; leave out --json and --format")
    asked = asked_prompt(options, "render")
    with asked.blaming():
        return _made(options, asked)


def _made(options: _RenderOptions, asked: Asked) -> Output:
    """The prompt in the form that was asked for."""
    output = options["output"]
    terminal = goes_to_terminal(output)
    if asked.form != "flat":
        return Output(json_text(asked.made(), indent=None if options["as_json"] else 2, terminal=terminal), output)
    rendered = asked.prompter.render(*asked.call)
    if options["as_json"]:
        segments = [segment._asdict() for segment in rendered.segments]
        return Output(json_text({"text": rendered.text, "segments": segments}, terminal=terminal), output)
    return Output(rendered_text(rendered, options["color"], terminal=terminal), output)


@_cli.command()
@prompt_options
@text_option(
    "--counter",
    default="approximate",
    show_default=True,
    metavar="NAME[:ARGUMENT]",
    help="approximate, chars, tiktoken:MODEL or :ENCODING, huggingface:PATH; anthropic:MODEL and gemini:MODEL ask "
    "the provider.",
)
@click.option("--bpe-file", metavar="FILE", help="The vocabulary of tiktoken, where its cache lacks it.")
@click.option(
    "--max-tokens", type=click.IntRange(min=1), metavar="N", help="Show what a budget of so many would leave."
)
@text_option("--download", metavar="NAME", help="Download the vocabulary of tiktoken for a model or encoding.")
@click.option("--json", "as_json", is_flag=True, help="One line of JSON.")
def tokens(**options: Unpack[TokensOptions]) -> Output:
    """Count what a prompt costs, slot by slot and message by message.

    The prompt is given as to lazyprompt render. Its slots, its tools and the framing around them add up to the total;
    of flat text, the messages are those of the history.

    \b
    Examples:
      lazyprompt tokens qa.yaml --set document=@report.txt --set question='Who?'
      lazyprompt tokens --input Hi --format openai --counter tiktoken:gpt-4o
      lazyprompt tokens --input Hi --history chat.json --max-tokens 4000
      lazyprompt tokens --download o200k_base
    """  # noqa: D301 - as above
    from lazyprompt.cli.tokens import counted  # noqa: PLC0415 - no other command counts

    return counted(options)


@_cli.command(epilog=sources_help())
@words_options
@model_options
@click.option("--stream/--no-stream", default=None, help="Write the answer as it is said.  [default: on a terminal]")
@click.option("--json", "as_json", is_flag=True, help="One line of JSON: all that is known of the answer.")
def run(**options: Unpack[RunOptions]) -> None:
    """Ask a model once, and write its answer.

    The prompt is given as to lazyprompt render. The model, the provider and the options that a .prompty or .prompt
    file names hold where no option says otherwise. Keys are read from the environment, never from options, which
    others could see. Without an answer there is one line on the standard error, and the exit status is 1.

    With --json: text, thinking, tool_calls (id, name, input), usage, finish and model.

    \b
    Examples:
      lazyprompt run --source anthropic --input 'Who are you?'
      lazyprompt run qa.yaml --set document=@report.txt --set question='Who?' \\
          --source openai --model gpt-5-mini --json
      cat report.txt | lazyprompt run summary.yaml --model models/qwen3.gguf
    """  # noqa: D301 - as above
    from lazyprompt.cli.run import answered  # noqa: PLC0415 - no other command asks once

    answered(options)


@_cli.command(epilog=sources_help())
@click.option("--prompt", "prompt_file", metavar="PROMPT_FILE", help="A prompt file; each turn is an input of it.")
@text_option("--system", help="The system text.")
@text_option("--set", "values", multiple=True, metavar="NAME=VALUE", help="The value of a slot or input, in each turn.")
@click.option("--tools", metavar="FILE.json", help="Tools in the OpenAI form; you say what they give back.")
@partial(with_options, options=FILE_OPTIONS)
@model_options
def chat(**options: Unpack[ChatOptions]) -> None:
    """Talk to a model.

    What you say is answered as the model says it; /help lists the commands. A line that ends with a backslash goes on
    in the next. Ctrl-C stops an answer, Ctrl-D ends the chat. Keys are read from the environment, never from options,
    which others could see.

    Where lines are piped in, each is a turn; the first one that gets no answer ends it with exit status 1.

    \b
    Examples:
      lazyprompt chat --source openai
      lazyprompt chat --model models/qwen3.gguf --prompt assistant.yaml
      lazyprompt chat --source ollama --model qwen3 < questions.txt
    """  # noqa: D301 - as above
    from lazyprompt.cli.chat import talked  # noqa: PLC0415 - no other command talks

    talked(options)


@_cli.command("check-template")
@click.argument("path")
@click.option("--name", metavar="NAME", help="Which of several templates.")
@click.option("--json", "as_json", is_flag=True, help="One line of JSON.")
def check_template(path: str, *, name: str | None, as_json: bool) -> Output:
    """Find out what a model's chat template can and cannot do.

    PATH is a .jinja file, a tokenizer's directory or a GGUF file. The template is tried out on short chats: does it
    take a system text, tools, arguments as JSON? Does what it wrote stay as it was when a chat goes on? Is a model
    trained with it taught to stop? Which templates can be bridged, and laid out by markers?

    \b
    Examples:
      lazyprompt check-template models/qwen3
      lazyprompt check-template chat_template.jinja --json
    """  # noqa: D301 - as above
    from lazyprompt.cli.check_template import checked  # noqa: PLC0415 - no other command needs templates

    return checked(path, name, as_json=as_json)


@_cli.command()
@click.option("--json", "as_json", is_flag=True, help="All markers of each family, as one line of JSON.")
def families(*, as_json: bool) -> Output:
    """List the model families that --model knows.

    The columns: the name, whether the family brings a system text of its own, and the texts at which to stop.
    """
    found = {name: Markers.for_model(name) for name in Markers.families()}
    if as_json:
        return Output(json_text([{"name": name, **asdict(markers)} for name, markers in found.items()]))
    rows = [("NAME", "SYSTEM", "STOP")]
    for name, markers in found.items():
        stop = " ".join(json.dumps(text, ensure_ascii=False) for text in markers.stop)
        rows.append((name, "yes" if markers.system else "no", stop))
    width = max(len(name) for name, _, _ in rows)
    return Output("".join(f"{name:{width}}  {system:6}  {stop}".rstrip() + "\n" for name, system, stop in rows))


@_cli.command()
@click.option("--json", "as_json", is_flag=True, help="The whole table, as one line of JSON.")
def providers(*, as_json: bool) -> Output:
    """List the providers that --format knows, and what each takes.

    For each provider the blocks that it takes: media by address (url), as base64 (data), within results of tools or
    in a turn behind them; the thoughts that it wants back; and its rules of order.
    """
    from lazyprompt.formatters.matrix import HEADERS, rows  # noqa: PLC0415 - all profiles are read for it

    found = rows()
    if as_json:
        return Output(json_text([{"provider": row.provider, **row.cells} for row in found]))
    table = [HEADERS, *((row.provider, *row.cells.values()) for row in found)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table)
    return Output("\n".join(lines) + "\n")
