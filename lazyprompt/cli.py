"""The command line: reads options, calls the library, writes what comes back.

Wrong use is one line on the standard error that names the option, and exit status 2; never a traceback.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from functools import partial
from reprlib import repr as short
from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict, Unpack, cast

import click

from lazyprompt._cli_io import Output, Stdin, WrongUseError, drop_stdout, goes_to_terminal, json_list, json_object
from lazyprompt._json import well_formed
from lazyprompt._version import __version__
from lazyprompt.errors import FormatError, HistoryError, LazyPromptError, SafetyError, SlotError, ToolsError
from lazyprompt.inspect.terminal import rendered_text, visible
from lazyprompt.prompter import FORMATS
from lazyprompt.prompters import AlpacaPrompter, ChatPrompter
from lazyprompt.text.markers import Markers
from lazyprompt.text.safety import SAFETIES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lazyprompt.history import HistoryLike
    from lazyprompt.inspect.terminal import Color
    from lazyprompt.prompter import Prompter, ToolsLike
    from lazyprompt.text.safety import Safety

_WRONG_USE, _INTERRUPTED, _PIPE_CLOSED = 2, 130, 141

# The option to blame for an error of the library; for any other error it is the one that gave the input.
_OPTION_OF: dict[type[LazyPromptError], str] = {
    HistoryError: "--history",
    ToolsError: "--tools",
    SafetyError: "--safety",
    FormatError: "--format",
}


def main(argv: list[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: The arguments without the program's name; those of the process if left out.

    Returns:
        The exit status: 0, 2 for wrong use, 130 if interrupted, 141 if nobody reads the output any more.
    """
    try:
        arguments = sys.argv[1:] if argv is None else argv
        made: object = _cli.main(arguments, prog_name="lazyprompt", standalone_mode=False)
        if isinstance(made, Output):
            made.write()
    except (click.Abort, KeyboardInterrupt):
        return _INTERRUPTED
    except click.ClickException as error:
        said = error.message if isinstance(error, click.BadParameter) else error.format_message()
        return _complain(_blamed(error), said)
    except OSError as error:
        why = drop_stdout(error)
        return _PIPE_CLOSED if isinstance(error, BrokenPipeError) else _complain("stdout", why)
    return 0


def _complain(where: str, what: str) -> int:
    """Say in one line what is wrong."""
    # Lines are joined, where a caret under a line of YAML would point nowhere.
    lines = [line.strip() for line in what.splitlines()]
    said = "; ".join(line for line in lines if line not in ("", "^"))
    click.echo(visible(f"lazyprompt: error: {where}: {said}"), err=True)
    return _WRONG_USE


def _blamed(error: click.ClickException) -> str:
    """The option, argument or command that an error is about."""
    if isinstance(error, WrongUseError):
        return error.where
    if isinstance(error, click.NoSuchOption | click.BadOptionUsage):
        return error.option_name
    if isinstance(error, click.BadParameter) and error.param is not None:
        return max(error.param.opts, key=len)
    context = error.ctx if isinstance(error, click.UsageError) else None
    return "COMMAND" if context is None or context.parent is None else str(context.info_name)


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="lazyprompt", message="%(prog)s %(version)s")
@click.pass_context
def _cli(context: click.Context) -> None:
    """One definition of a prompt, exactly what every model takes."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def _utf8(_: click.Context, parameter: click.Parameter, value: _OptionText) -> _OptionText:
    """Text that can be written as UTF-8: a shell may hand over any bytes."""
    for text in (value,) if isinstance(value, str) else value or ():
        try:
            well_formed(text, "the text", LazyPromptError)
        except LazyPromptError as error:
            raise WrongUseError(max(parameter.opts, key=len), "the text is not UTF-8") from error
    return value


class _Options(TypedDict):
    prompt_file: str | None
    kind: Literal["chat", "alpaca"] | None
    instruction: str | None
    user_instruction: str | None
    system: str | None
    extra_keys: tuple[str, ...]
    values: tuple[str, ...]
    text: str | None
    history: str | None
    tools: str | None
    label: str | None
    model: str | None
    form: str
    as_json: bool
    safety: Safety | None
    color: Color
    output: str | None


_OptionText: TypeAlias = "str | tuple[str, ...] | None"
_text = partial(click.option, callback=_utf8)


@_cli.command()
@click.argument("prompt_file", required=False, metavar="[PROMPT_FILE]")
@click.option("--type", "kind", type=click.Choice(["chat", "alpaca"]), help="The form of the prompt.  [default: chat]")
@_text("--instruction", help="What the model is told, with slots: 'Answer from {context}.'")
@_text("--user-instruction", metavar="TEXT", help="An instruction in the user's turn.")
@_text("--system", help="The system text, in place of the model's own.")
@_text("--extra-key", "extra_keys", multiple=True, metavar="NAME", help="A further slot.")
@_text("--set", "values", multiple=True, metavar="NAME=VALUE", help="The value of a slot.")
@_text("--input", "text", help="What the user says, or the value of the only slot.")
@click.option("--history", metavar="FILE.json", help="Pairs or OpenAI messages.")
@click.option("--tools", metavar="FILE.json", help="Tools in the OpenAI form.")
@_text("--label", help="The answer, in training data.")
@_text("--model", metavar="NAME", help="The model to write for (see lazyprompt families).")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    metavar="FORM",
    default="flat",
    show_default=True,
    help="flat, or a provider (see lazyprompt providers).",
)
@click.option("--json", "as_json", is_flag=True, help="One line of JSON; for flat text with its segments.")
@click.option("--safety", type=click.Choice(SAFETIES), help="For control sequences in values.  [default: neutralize]")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True)
@click.option("-o", "--output", metavar="FILE", help="Write to a file, in one step.")
def render(**options: Unpack[_Options]) -> Output:
    """Make a prompt, from a YAML prompt file or from options.

    In --set and --input, @FILE is the text of a file, @- the standard input, and @@x is @x. Without either, what is
    piped in is the input: a JSON object gives the slots their values, any other text is as for --input.

    \b
    Examples:
      lazyprompt render --instruction 'Answer in {language}.' \\
          --set language=French --input 'Who are you?' --model qwen2.5
      lazyprompt render qa.yaml --set document=@report.txt --set question='Who?'
      cat report.txt | lazyprompt render summary.yaml --format openai
    """  # noqa: D301 - \b is how click is told not to wrap
    _refuse_conflicts(options)
    prompter = _prompter(options)
    where, given = _given(options, prompter)
    history = cast("HistoryLike | None", json_list("--history", options["history"]))
    tools = cast("ToolsLike", json_list("--tools", options["tools"]))
    sources = (given, history, options["prompt_file"], options["instruction"], options["user_instruction"])
    if all(source is None for source in sources):
        raise WrongUseError("PROMPT_FILE", "nothing to render; give a prompt file, --instruction or --input")
    try:
        return _made(options, prompter, (given, history, tools, options["label"]))
    except LazyPromptError as error:
        advice = "; --set name=value gives one slot its value" if isinstance(error, SlotError) else ""
        what = f"{error}{advice if where != '--set' else ''}"
        raise WrongUseError(_OPTION_OF.get(type(error), where), what) from error


def _refuse_conflicts(options: _Options) -> None:
    """Refuse options that would say nothing beside others."""
    in_file = {
        "--type": options["kind"],
        "--instruction": options["instruction"],
        "--user-instruction": options["user_instruction"],
        "--extra-key": options["extra_keys"] or None,
    }
    for option, value in in_file.items():
        if value is not None and options["prompt_file"] is not None:
            raise WrongUseError(option, "the prompt file says that; give one of the two")
    form = options["form"]
    if form != "flat" and options["safety"] is not None:
        raise WrongUseError("--safety", f"only flat text is searched for control sequences; leave out --format {form}")
    if options["color"] == "always" and (options["as_json"] or form != "flat"):
        raise WrongUseError("--color", "only flat text has colour; leave out --json and --format")


def _prompter(options: _Options) -> Prompter:
    """The prompter of the prompt file or of the options, with what overrides it."""
    where = "PROMPT_FILE"
    try:
        if options["prompt_file"] is not None:
            from lazyprompt.files.prompt_file import PromptFile  # noqa: PLC0415 - yaml costs 10 ms

            prompter = PromptFile.load(options["prompt_file"]).prompter
        else:
            where = "--extra-key" if options["extra_keys"] else "--instruction"
            make = AlpacaPrompter if options["kind"] == "alpaca" else ChatPrompter
            prompter = make(_instruction(options), options["extra_keys"])
        where = "--model"
        if options["model"] is not None and options["form"] in ("flat", "openai"):
            prompter = prompter.with_markers(options["model"])
    except LazyPromptError as error:
        raise WrongUseError(where, str(error)) from error
    if options["system"] is not None:
        prompter = prompter.with_system(options["system"])
    return prompter if options["safety"] is None else prompter.with_safety(options["safety"])


def _instruction(options: _Options) -> str | dict[str, str] | None:
    system, user = options["instruction"], options["user_instruction"]
    if user is None:
        return system
    return {"user": user} if system is None else {"system": system, "user": user}


def _given(options: _Options, prompter: Prompter) -> tuple[str, object]:
    """The input, and which option gave it."""
    stdin = Stdin()
    values = _values(options["values"], stdin)
    if options["text"] is not None:
        text = stdin.value("--input", options["text"])
        if "input" in values:
            raise WrongUseError("--input", "--set gives a value for 'input' too; give one of the two")
        return ("--set", {**values, "input": text}) if values else ("--input", text)
    if values or not (prompter.slots or isinstance(prompter, ChatPrompter)):
        return "--set", values or None
    piped = stdin.read_if_piped()
    if not piped:
        return "--set", None
    by_name = json_object(piped)
    return "stdin", piped.removesuffix("\n") if by_name is None else by_name


def _values(settings: Iterable[str], stdin: Stdin) -> dict[str, str]:
    values: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not (name and equals):
            raise WrongUseError("--set", f"{short(setting)} is not of the form name=value")
        if name in values:
            raise WrongUseError("--set", f"{name!r} is given twice")
        values[name] = stdin.value("--set", value)
    return values


def _made(
    options: _Options, prompter: Prompter, call: tuple[object, HistoryLike | None, ToolsLike, str | None]
) -> Output:
    """The prompt in the form that was asked for."""
    output = options["output"]
    terminal = goes_to_terminal(output)
    if options["form"] != "flat":
        # The model's markers and system text are the prompter's by now; a provider is told its name.
        model = None if options["form"] == "openai" else options["model"]
        form = prompter.generate_prompt(*call, format=options["form"], model=model)
        return Output(_json(form, indent=None if options["as_json"] else 2, terminal=terminal), output)
    rendered = prompter.render(*call)
    if options["as_json"]:
        segments = [segment._asdict() for segment in rendered.segments]
        return Output(_json({"text": rendered.text, "segments": segments}, terminal=terminal), output)
    return Output(rendered_text(rendered, options["color"], terminal=terminal), output)


def _json(value: object, *, indent: int | None = None, terminal: bool = False) -> str:
    separators = (",", ":") if indent is None else None
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators) + "\n"
    return visible(text) if terminal else text


@_cli.command()
@click.option("--json", "as_json", is_flag=True, help="All markers of each family, as one line of JSON.")
def families(*, as_json: bool) -> Output:
    """List the model families that --model knows.

    The columns: the name, whether the family brings a system text of its own, and the texts at which to stop.
    """
    found = {name: Markers.for_model(name) for name in Markers.families()}
    if as_json:
        return Output(_json([{"name": name, **asdict(markers)} for name, markers in found.items()]))
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
        return Output(_json([{"provider": row.provider, **row.cells} for row in found]))
    table = [HEADERS, *((row.provider, *row.cells.values()) for row in found)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table)
    return Output("\n".join(lines) + "\n")
